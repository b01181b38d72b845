"""What comes by at a max-pool: its inputs, the gradients of its output and input, and the cells that win windows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minidl.engine.eval_copy import eval_copies
from minidl.engine.flat_parameters import FlatParameters
from minidl.engine.layer_paths import LayerPath
from minidl.engine.network import Network
from minidl.layers.base import Layer
from minidl.layers.maxpool2d import GlobalMaxPool2D, MaxPool2D
from minidl.losses import Loss, checked_loss
from minidl.plots.models import outputs
from minidl.plots.windows import View
from minidl.sequential import Sequential
from minidl.training.labeled_data import LabeledData
from minidl.utils.arrays import Array
from minidl.utils.data import Index
from minidl.utils.validation import Shape
from minidl_c.kernels.maxpool2d import MaxPool2DOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

POOLS = (MaxPool2D, GlobalMaxPool2D)
MOST_EXAMPLES, MOST_NUMBERS = 256, 2**23  # that go through a pool at a time


@dataclass(frozen=True)
class Routes:
    """What came by: of the first examples all of it, of all examples what became of it together."""

    x: Array  # (n, c, h, w): what went in
    dy: Array  # (n, c, oh, ow): the gradient of each example's own loss for what came out
    dx: Array  # (n, c, h, w): and for what went in
    total: NDArray[np.float64]  # (c, h, w): the sum of dx over all examples
    times: Index  # (c, h, w): in how many of them dx is not 0
    count: int  # of them

    def telling(self) -> NDArray[np.float64]:
        """How much there is to see at each input (n, c, h, w): the size of dx, as a share of all in its example.

        Where a map is smallest, 0: a ReLU in front of the pool has set most such inputs to 0, and lets nothing through.
        """
        sizes = np.nan_to_num(np.abs(self.dx.astype(np.float64)), posinf=0)
        sizes[self.x <= self.x.min(axis=(2, 3), keepdims=True)] = 0
        sums = sizes.sum(axis=(1, 2, 3), keepdims=True)
        return np.divide(sizes, sums, out=np.zeros_like(sizes), where=sums > 0)


class Watched(Layer):
    """A max-pool's kernel as a layer in NumPy, which remembers what came by in the last forward and backward."""

    def __init__(self, pool: Layer) -> None:
        self.pool = pool
        self.setup(pool.in_shape, pool.dtype, 0, "")

    def build(self, in_shape: Shape) -> Shape:
        """As Layer.build."""
        return self.pool.out_shape

    def forward(self, x: Array, training: bool) -> Array:
        """As Layer.forward; x stays."""
        (op,) = self.pool.ops
        self.x = x
        y = np.empty((len(x), *op.out_shape), x.dtype)
        forward_batch(op, x, y, num_threads=None)
        return y.reshape(len(x), *self.out_shape)

    def backward(self, dy: Array) -> Array:
        """As Layer.backward; dy and dx stay."""
        (op,) = self.pool.ops
        self.dy = np.ascontiguousarray(dy).reshape(len(dy), *op.out_shape)
        self.dx = np.empty_like(self.x)
        backward_batch(op, self.dy, self.x, self.dx, num_threads=None)
        return self.dx


def routes(model: Sequential, way: LayerPath, place: int, data: LabeledData, loss: Loss, max_examples: int) -> Routes:
    """What comes by at the max-pool at the end of a way, which begins at a place of the model.

    max_examples: of which copies are kept.

    Forward and backward are those of the model's own network, on copies of the layers from that place on. Raises what
    a layer or loss of a user raises, TypeError for layers that cannot be copied, RuntimeError while another thread
    trains the model.
    """
    network, kept, count = model.network, [], len(data.examples)
    assert network is not None
    with model.busy.reading("pool_routing"), np.errstate(all="ignore"):
        watched = Watched(way[-1])
        rest = _settled(network, place, watched)
        total, times = np.zeros(watched.in_shape), np.zeros(watched.in_shape, np.int64)
        front, size = tuple(network.layers[:place]), _at_once(network.layers[place:])
        for start in range(0, count, size):
            rows = np.arange(start, min(start + size, count))
            images = data.examples.gather_copy(rows).reshape(-1, *model.input_shape)
            scores, tape = rest.forward(outputs(model, front, images))
            rest.backward(tape, checked_loss(loss, scores, data.targets[rows])[1], want_dx=True)
            rest.release(tape)
            total += watched.dx.sum(axis=0, dtype=np.float64)
            times += (watched.dx != 0).sum(axis=0)
            if start < max_examples:
                kept.append([array[: max_examples - start].copy() for array in (watched.x, watched.dy, watched.dx)])
    x, dy, dx = map(np.concatenate, zip(*kept, strict=True))
    return Routes(x, dy, dx, total, times, count)


def winners(pool: Layer, x: Array, view: View) -> Index:
    """Which cell of x (h, w), counted row by row, won each window of a view: where the kernel leaves its gradient.

    Each window is an image of its own here, without its padding, so nothing is added up.
    """
    boxes, width = np.array(list(view.boxes())), x.shape[1]
    found = np.empty(len(boxes), np.int64)
    sizes = boxes[:, 2:] - boxes[:, :2]
    for size in np.unique(sizes, axis=0):
        op = MaxPool2DOp((1, *map(int, size)), tuple(map(int, size)), tuple(map(int, size)), dtype=pool.dtype)
        same = np.flatnonzero((sizes == size).all(axis=1))
        for some in np.array_split(same, -(-same.size * int(size.prod()) // MOST_NUMBERS)):
            windows = np.stack([x[top:bottom, left:right] for top, left, bottom, right in boxes[some]])[:, np.newaxis]
            dx = np.empty_like(windows)
            backward_batch(op, np.ones((len(some), 1, 1, 1), x.dtype), windows, dx, num_threads=None)
            rows, columns = np.divmod(dx.reshape(len(some), -1).argmax(axis=1), size[1])
            found[some] = (boxes[some, 0] + rows) * width + boxes[some, 1] + columns
    return found


def _settled(network: Network, place: int, watched: Watched) -> Network:
    """Copies of the layers from a place on, that compute as in inference; `watched` stands for its pool."""
    try:
        layers = eval_copies(network.layers[place:], {id(watched.pool): watched})
    except TypeError as error:
        raise TypeError(f"pool_routing: {error}") from error
    for layer in layers:
        layer.trainable = False  # nothing is learned
    return Network(layers, network.names[place:], FlatParameters(layers, network.dtype))


def _at_once(layers: list[Layer]) -> int:
    """How many examples go through layers together: one, where a layer in NumPy might look at the others."""
    leaves = [leaf for layer in layers for leaf in layer.leaves()]
    if not all(leaf.native for leaf in leaves):
        return 1
    return max(1, min(MOST_EXAMPLES, MOST_NUMBERS // max(math.prod(leaf.in_shape) for leaf in leaves)))
