"""Trace of a max-pool: its inputs, the gradients w.r.t. its outputs and inputs, and the winner of each window."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minidl.engine.input_gradient import inference_network
from minidl.engine.layer_paths import LayerPath
from minidl.engine.pixel_targets import at_rest
from minidl.layers.base import Layer
from minidl.layers.maxpool2d import GlobalMaxPool2D, MaxPool2D
from minidl.losses import Loss, checked_loss
from minidl.plots.models import compute_outputs
from minidl.plots.windows import View
from minidl.sequential import Sequential
from minidl.training.labeled_data import LabeledData
from minidl.utils.arrays import Array
from minidl.utils.data import Index
from minidl.utils.validation import Shape
from minidl_c.kernels.maxpool2d import MaxPool2DOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

POOL_CLASSES = (MaxPool2D, GlobalMaxPool2D)
MAX_EXAMPLES, MAX_ELEMENTS = 256, 2**23  # of one chunk


@dataclass(frozen=True)
class PoolTrace:
    """Inputs and gradients of a max-pool for the first examples, and sums of gradients over all examples."""

    x: Array  # (n, c, h, w): inputs
    dy: Array  # (n, c, oh, ow): gradient of each example's loss w.r.t. the outputs
    dx: Array  # (n, c, h, w): gradient w.r.t. the inputs
    dx_sum: NDArray[np.float64]  # (c, h, w): sum of dx over all examples
    dx_nonzero: Index  # (c, h, w): number of examples with dx != 0
    n_examples: int

    def relevance(self) -> NDArray[np.float64]:
        """Returns |dx| at each input (n, c, h, w), as a fraction of the sum over its example.

        It is 0 at the minima of a map: most of them are zeros of a ReLU before the pool, which stops their gradient.
        """
        sizes = np.nan_to_num(np.abs(self.dx.astype(np.float64)), posinf=0)
        sizes[self.x <= self.x.min(axis=(2, 3), keepdims=True)] = 0
        sums = sizes.sum(axis=(1, 2, 3), keepdims=True)
        return np.divide(sizes, sums, out=np.zeros_like(sizes), where=sums > 0)


class Recorder(Layer):
    """Wraps a max-pool's kernel as a NumPy layer that keeps x, dy and dx of the last forward and backward."""

    def __init__(self, pool: Layer) -> None:
        self.pool = pool
        self.setup(pool.in_shape, pool.dtype, 0, "")

    def build(self, in_shape: Shape) -> Shape:
        """As Layer.build."""
        return self.pool.out_shape

    def forward(self, x: Array, training: bool) -> Array:
        """As Layer.forward; keeps x."""
        (op,) = self.pool.ops
        self.x = x
        y = np.empty((len(x), *op.out_shape), x.dtype)
        forward_batch(op, x, y, num_threads=None)
        return y.reshape(len(x), *self.out_shape)

    def backward(self, dy: Array) -> Array:
        """As Layer.backward; keeps dy and dx."""
        (op,) = self.pool.ops
        self.dy = np.ascontiguousarray(dy).reshape(len(dy), *op.out_shape)
        self.dx = np.empty_like(self.x)
        backward_batch(op, self.dy, self.x, self.dx, num_threads=None)
        return self.dx


def trace_pool(
    model: Sequential, path: LayerPath, index: int, data: LabeledData, loss: Loss, max_examples: int
) -> PoolTrace:
    """Returns the trace of the max-pool at the end of a path.

    Forward and backward are those of the model's own layers, in inference; those in NumPy from `index` on are copied.

    index: of the top-level layer where the path begins. max_examples: the number of examples in x, dy and dx.

    Raises the exceptions of custom layers and losses, TypeError for layers that cannot be copied, RuntimeError while
    another thread trains the model.
    """
    network, copies, n_examples = model.network, [], len(data.examples)
    assert network is not None
    with model.usage.reading("pool_routing"), np.errstate(all="ignore"):
        recorder = Recorder(path[-1])
        layers, names, instead = network.layers[index:], network.names[index:], {id(recorder.pool): recorder}
        rest = inference_network("pool_routing", layers, names, network.parameters, instead)
        dx_sum, dx_nonzero = np.zeros(recorder.in_shape), np.zeros(recorder.in_shape, np.int64)
        layers_before, size = tuple(network.layers[:index]), _chunk_size(layers)
        for start in range(0, n_examples, size):
            rows = np.arange(start, min(start + size, n_examples))
            images = data.examples.gather_copy(rows).reshape(-1, *model.input_shape)
            scores, tape = rest.forward(compute_outputs(model, layers_before, images))
            targets = at_rest(network, loss, data.targets[rows])
            rest.backward(tape, checked_loss(loss, scores, targets)[1], want_dx=True)
            rest.release(tape)
            dx_sum += recorder.dx.sum(axis=0, dtype=np.float64)
            dx_nonzero += (recorder.dx != 0).sum(axis=0)
            if start < max_examples:
                copies.append(
                    [array[: max_examples - start].copy() for array in (recorder.x, recorder.dy, recorder.dx)]
                )
    x, dy, dx = map(np.concatenate, zip(*copies, strict=True))
    return PoolTrace(x, dy, dx, dx_sum, dx_nonzero, n_examples)


def find_winners(pool: Layer, x: Array, view: View) -> Index:
    """Returns the flat index in x (h, w) of the winner of each window of a view, where the kernel puts its gradient.

    Each window, without its padding, is passed to the kernel as an image, so that gradients do not add up.
    """
    boxes, width = np.array(list(view.boxes())), x.shape[1]
    winners = np.empty(len(boxes), np.int64)
    sizes = boxes[:, 2:] - boxes[:, :2]
    for size in np.unique(sizes, axis=0):
        op = MaxPool2DOp((1, *map(int, size)), tuple(map(int, size)), tuple(map(int, size)), dtype=pool.dtype)
        same = np.flatnonzero((sizes == size).all(axis=1))
        for chunk in np.array_split(same, -(-same.size * int(size.prod()) // MAX_ELEMENTS)):
            windows = np.stack([x[top:bottom, left:right] for top, left, bottom, right in boxes[chunk]])[:, np.newaxis]
            dx = np.empty_like(windows)
            backward_batch(op, np.ones((len(chunk), 1, 1, 1), x.dtype), windows, dx, num_threads=None)
            rows, columns = np.divmod(dx.reshape(len(chunk), -1).argmax(axis=1), size[1])
            winners[chunk] = (boxes[chunk, 0] + rows) * width + boxes[chunk, 1] + columns
    return winners


def _chunk_size(layers: list[Layer]) -> int:
    """Returns the number of examples per chunk: one if a NumPy layer could mix examples."""
    leaves = [leaf for layer in layers for leaf in layer.leaves()]
    if not all(leaf.native for leaf in leaves):
        return 1
    return max(1, min(MAX_EXAMPLES, MAX_ELEMENTS // max(math.prod(leaf.in_shape) for leaf in leaves)))
