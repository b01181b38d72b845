"""A trace of a max-pool: its input, the gradients w.r.t. output and input, and the winner of each window."""

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
from minidl.plots.models import layer_outputs
from minidl.plots.windows import View
from minidl.sequential import Sequential
from minidl.training.labeled_data import LabeledData
from minidl.utils.arrays import Array
from minidl.utils.data import Index
from minidl.utils.validation import Shape
from minidl_c.kernels.maxpool2d import MaxPool2DOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

POOLS = (MaxPool2D, GlobalMaxPool2D)
MAX_EXAMPLES, MAX_ELEMENTS = 256, 2**23  # processed at a time


@dataclass(frozen=True)
class PoolTrace:
    """Arrays recorded at a max-pool: of the first n examples, and sums over all `count` examples."""

    x: Array  # (n, c, h, w): the input
    dy: Array  # (n, c, oh, ow): the gradient of each example's loss w.r.t. the output
    dx: Array  # (n, c, h, w): and w.r.t. the input
    total: NDArray[np.float64]  # (c, h, w): the sum of dx over all examples
    n_reached: Index  # (c, h, w): the number of examples in which dx is not 0
    count: int  # of examples

    def saliency(self) -> NDArray[np.float64]:
        """Returns |dx| as a fraction of its sum over the example (n, c, h, w); 0 where x is the minimum of its map.

        A ReLU before the pool has set most such inputs to 0 and blocks their gradient.
        """
        sizes = np.nan_to_num(np.abs(self.dx.astype(np.float64)), posinf=0)
        sizes[self.x <= self.x.min(axis=(2, 3), keepdims=True)] = 0
        sums = sizes.sum(axis=(1, 2, 3), keepdims=True)
        return np.divide(sizes, sums, out=np.zeros_like(sizes), where=sums > 0)


class PoolRecorder(Layer):
    """A layer that runs a max-pool's kernel and records the arrays of the last forward and backward."""

    def __init__(self, pool: Layer) -> None:
        self.pool = pool
        self.setup(pool.in_shape, pool.dtype, 0, "")

    def build(self, in_shape: Shape) -> Shape:
        """As Layer.build."""
        return self.pool.out_shape

    def forward(self, x: Array, training: bool) -> Array:
        """As Layer.forward; records x."""
        (op,) = self.pool.ops
        self.x = x
        y = np.empty((len(x), *op.out_shape), x.dtype)
        forward_batch(op, x, y, num_threads=None)
        return y.reshape(len(x), *self.out_shape)

    def backward(self, dy: Array) -> Array:
        """As Layer.backward; records dy and dx."""
        (op,) = self.pool.ops
        self.dy = np.ascontiguousarray(dy).reshape(len(dy), *op.out_shape)
        self.dx = np.empty_like(self.x)
        backward_batch(op, self.dy, self.x, self.dx, num_threads=None)
        return self.dx


def trace_pool(
    model: Sequential, way: LayerPath, place: int, data: LabeledData, loss: Loss, max_examples: int
) -> PoolTrace:
    """Returns the trace of the max-pool at the end of a path, which starts at layer `place` of the model.

    max_examples: the number of examples whose arrays are kept.

    Forward and backward are those of the model's own network, on copies of the layers from that one on. Raises what a
    user's layer or loss raises, TypeError for layers that cannot be copied, RuntimeError while another thread trains
    the model.
    """
    network, kept, count = model.network, [], len(data.examples)
    assert network is not None
    with model.usage.reading("pool_routing"), np.errstate(all="ignore"):
        watched = PoolRecorder(way[-1])
        rest = _settled(network, place, watched)
        total, n_reached = np.zeros(watched.in_shape), np.zeros(watched.in_shape, np.int64)
        front, size = tuple(network.layers[:place]), _at_once(network.layers[place:])
        for start in range(0, count, size):
            rows = np.arange(start, min(start + size, count))
            images = data.examples.gather_copy(rows).reshape(-1, *model.input_shape)
            scores, tape = rest.forward(layer_outputs(model, front, images))
            rest.backward(tape, checked_loss(loss, scores, data.targets[rows])[1], want_dx=True)
            rest.release(tape)
            total += watched.dx.sum(axis=0, dtype=np.float64)
            n_reached += (watched.dx != 0).sum(axis=0)
            if start < max_examples:
                kept.append([array[: max_examples - start].copy() for array in (watched.x, watched.dy, watched.dx)])
    x, dy, dx = map(np.concatenate, zip(*kept, strict=True))
    return PoolTrace(x, dy, dx, total, n_reached, count)


def winners(pool: Layer, x: Array, view: View) -> Index:
    """Returns the flat index in x (h, w) of the winner of each window of a view: the cell that gets the gradient.

    The kernel runs on each window as an image of its own, without padding, so no gradients are added up.
    """
    boxes, width = np.array(list(view.boxes())), x.shape[1]
    found = np.empty(len(boxes), np.int64)
    sizes = boxes[:, 2:] - boxes[:, :2]
    for size in np.unique(sizes, axis=0):
        op = MaxPool2DOp((1, *map(int, size)), tuple(map(int, size)), tuple(map(int, size)), dtype=pool.dtype)
        same = np.flatnonzero((sizes == size).all(axis=1))
        for some in np.array_split(same, -(-same.size * int(size.prod()) // MAX_ELEMENTS)):
            windows = np.stack([x[top:bottom, left:right] for top, left, bottom, right in boxes[some]])[:, np.newaxis]
            dx = np.empty_like(windows)
            backward_batch(op, np.ones((len(some), 1, 1, 1), x.dtype), windows, dx, num_threads=None)
            rows, columns = np.divmod(dx.reshape(len(some), -1).argmax(axis=1), size[1])
            found[some] = (boxes[some, 0] + rows) * width + boxes[some, 1] + columns
    return found


def _settled(network: Network, place: int, watched: PoolRecorder) -> Network:
    """Returns copies of the layers from `place` on, in inference mode; the recorder replaces its pool."""
    try:
        layers = eval_copies(network.layers[place:], {id(watched.pool): watched})
    except TypeError as error:
        raise TypeError(f"pool_routing: {error}") from error
    for layer in layers:
        layer.trainable = False  # no parameter gradients
    return Network(layers, network.names[place:], FlatParameters(layers, network.dtype))


def _at_once(layers: list[Layer]) -> int:
    """Returns the number of examples per batch: one with layers in NumPy, which might couple examples."""
    leaves = [leaf for layer in layers for leaf in layer.leaves()]
    if not all(leaf.native for leaf in leaves):
        return 1
    return max(1, min(MAX_EXAMPLES, MAX_ELEMENTS // max(math.prod(leaf.in_shape) for leaf in leaves)))
