"""Errors of the results of a 3x3 convolution with stride 1, by algorithm, relative to a computation in float64."""

from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from minidl_c.kernels.conv2d import Conv2DOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

RESULTS = ("y", "dx", "dw")
UNIT = 1e-7  # of the tables; half of the smallest relative distance of two float32 numbers is 0.6e-7


@dataclass
class Convolution:
    """The arrays of a convolution, float32: x (n, c, h, w), w (k, c, 3, 3), b (k,), dy (n, k, oh, ow).

    padding: (top, bottom, left, right).
    """

    x: np.ndarray
    w: np.ndarray
    b: np.ndarray
    dy: np.ndarray
    padding: tuple

    def op(self, algorithm, dtype="float32"):
        """Returns the op; raises ValueError for "winograd" if the sizes do not suit it."""
        options = {"padding": self.padding, "dtype": dtype, "algorithm": algorithm}
        return Conv2DOp(self.x.shape[1:], len(self.w), (3, 3), **options)

    @property
    def suits_winograd(self):
        """True if minidl computes it by Winograd's algorithm unless "direct" is requested."""
        return self.op("auto").uses_winograd


def run_minidl(conv, algorithm, dtype, threads):
    """Returns y, dx and dw."""
    x, w, b, dy = (a.astype(dtype) for a in (conv.x, conv.w, conv.b, conv.dy))
    op, y, dx, dw, db = conv.op(algorithm, dtype), *(np.empty_like(a) for a in (dy, x, w, b))
    forward_batch(op, x, y, (w, b), threads)
    backward_batch(op, dy, x, dx, (w, b), (dw, db), threads)
    return y, dx, dw


def run_torch(conv, dtype, threads):
    """Returns y, dx and dw of PyTorch, on the CPU."""
    import torch
    from torch.nn import functional as F

    torch.set_num_threads(threads)
    x, w, b, dy = (torch.tensor(a.astype(dtype)) for a in (conv.x, conv.w, conv.b, conv.dy))
    x.requires_grad_(), w.requires_grad_()
    top, bottom, left, right = conv.padding
    symmetric = (top, left) == (bottom, right)
    padded = x if symmetric else F.pad(x, (left, right, top, bottom))
    y = F.conv2d(padded, w, b, padding=(top, left) if symmetric else 0)
    y.backward(dy)
    return tuple(a.numpy() for a in (y.detach(), x.grad, w.grad))


def run(conv, side, dtype, threads):
    """Returns y, dx and dw of a side."""
    return run_torch(conv, dtype, threads) if side == "PyTorch" else run_minidl(conv, side, dtype, threads)


def find_sides():
    """Returns the names of all sides; PyTorch is left out, with a notice, if it is missing."""
    if find_spec("torch") is not None:
        return ["winograd", "direct", "PyTorch"]
    print("PyTorch is skipped (not installed); minidl's direct sum in float64 is the exact result", flush=True)
    return ["winograd", "direct"]


def measure_errors(conv, sides, threads):
    """Returns {result: {side: [root mean square, largest error]}}, relative to the exact result's root mean square.

    The exact result is that of the last side in float64.
    """
    exact = run(conv, sides[-1], "float64", threads)
    found = {result: {} for result in RESULTS}
    for side in sides:
        for result, values, true in zip(RESULTS, run(conv, side, "float32", threads), exact, strict=True):
            error, scale = values - true, root_mean_square(true)
            found[result][side] = [root_mean_square(error) / scale, float(np.abs(error).max()) / scale]
    return found


def root_mean_square(values):
    return float(np.sqrt(np.mean(np.square(values))))


def ratio(errors, index=0):
    """Returns Winograd's error divided by the direct sum's: 0 for the root mean square, 1 for the largest."""
    return errors["winograd"][index] / errors["direct"][index]


def columns(sides, *last):
    """Returns the two lines of a heading for `format_row`, after 12 columns for the row's name."""
    width = 10 * len(sides)
    above = f"{'':12}{'root mean square':>{width}}{'largest':>{width}}{'winograd / direct':>{11 * len(last)}}"
    names = "".join(f"{side:>10}" for side in sides)
    return f"{above}\n{'':12}{names}{names}" + "".join(f"{name:>11}" for name in last)


def format_row(name, errors, *ratios):
    """Returns a line of a table: the errors of each side in units of 1e-7, then ratios."""
    cells = "".join(f"{error[index] / UNIT:10.2f}" for index in (0, 1) for error in errors.values())
    return f"{name:12}{cells}" + "".join(f"{ratio:11.2f}" for ratio in ratios)
