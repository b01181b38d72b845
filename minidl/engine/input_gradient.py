"""input_gradient: the gradient w.r.t. each example in inference mode, which leaves the model unchanged."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from minidl.engine.flat_parameters import BorrowedParameters, FlatParameters
from minidl.engine.layer_list import copy_layers
from minidl.engine.network import Network
from minidl.engine.param_groups import ParamGroup, param_groups
from minidl.engine.per_example import with_per_example_grads
from minidl.engine.pixel_targets import at_rest, check_sized_targets
from minidl.layers.base import Layer
from minidl.layers.outputs import check_output
from minidl.losses import Loss, check_rows, check_targets, checked_loss, softmax_cross_entropy
from minidl.losses import get as loss_named
from minidl.utils.arrays import Array, as_array, as_dtype
from minidl.utils.data import ArraySource, Index
from minidl.utils.validation import Shape, check_int

TILE = 16  # examples that kernels process together
CHUNK_BYTES = 2**26  # of the values and gradients that a chunk of examples keeps between forward and backward

Objective = Callable[[Array, slice], Array]  # the gradients dscores of the scores of these examples


def class_objective(y: ArrayLike | None, n: int, shape: Shape) -> Objective:
    """Returns the gradient of one score per example: that of output y, or of the highest one (None)."""
    if len(shape) != 1:
        raise ValueError(f"loss: expected a loss, or dscores, for a model with outputs {shape}, got None")
    chosen: Index | None = None
    if y is not None:
        labels = np.full(n, check_int("y", y, minimum=0)) if np.ndim(y) == 0 else y
        chosen = softmax_cross_entropy.as_labels(check_rows(labels, n), shape)

    def dscores(scores: Array, here: slice) -> Array:
        gradient = np.zeros_like(scores)
        outputs = scores.argmax(axis=1) if chosen is None else chosen[here]
        gradient[np.arange(len(scores)), outputs] = 1
        return gradient

    return dscores


def make_objective(
    y: ArrayLike | None, loss: str | Loss | None, dscores: Any, n: int, network: Network, output: str | None = None
) -> Objective:
    """Returns the objective that the arguments of Sequential.input_gradient stand for; raises as that does."""
    outputs, dtype = network.outputs, network.dtype
    if outputs is None or (output is None and isinstance(dscores, Mapping) and y is None and loss is None):
        check_output("input_gradient", None, output)
        if outputs is not None:
            dscores = outputs.join(dscores, n, dtype, "dscores")
        return _objective(y, loss, dscores, n, network, network.out_shape)
    check_output("input_gradient", outputs, output)
    assert output is not None
    objective, layout = _objective(y, loss, dscores, n, network, outputs.shapes[output]), outputs

    def of_all(scores: Array, here: slice) -> Array:
        gradient = np.zeros_like(scores)
        own = objective(np.ascontiguousarray(layout.part(scores, output)), here)
        gradient[:, layout.places[output]] = own.reshape(len(own), -1)
        return gradient

    return of_all


def _objective(
    y: ArrayLike | None, loss: str | Loss | None, dscores: Any, n: int, network: Network, shape: Shape
) -> Objective:
    """Returns the objective of outputs of this shape: those of the network, or one of several."""
    dtype = network.dtype
    if dscores is not None:
        if y is not None or loss is not None:
            raise ValueError("dscores: expected neither y nor a loss with it, got one")
        array = as_array(dscores, "dscores")
        if array.shape != (n, *shape):
            raise ValueError(f"dscores: expected shape {(n, *shape)}, that of the outputs, got {array.shape}")
        given = as_dtype(array, dtype, "dscores")
        return lambda scores, here: given[here]
    if loss is None:
        return class_objective(y, n, shape)
    function = loss_named(loss)
    if y is None:
        raise ValueError("y: expected the targets of the loss, got None")
    if shape == network.out_shape and network.outputs is None:
        targets = at_rest(network, function, check_sized_targets(network, function, y, n))
    else:
        targets = check_targets(function, y, n, shape, dtype)
    return lambda scores, here: checked_loss(function, scores, targets[here])[1]


def input_gradient(network: Network, examples: ArraySource, objective: Objective, num_threads: int | None) -> Array:
    """Returns dx (n, ...) of an inference network, chunk by chunk; a layer in NumPy sees each example alone."""
    shape = network.layers[0].in_shape
    dx = np.empty((len(examples), *shape), network.dtype)
    for here, block in examples.chunks(_chunk_size(network)):
        scores, tape = network.forward(block.reshape(-1, *shape), num_threads)
        try:
            dx[here] = network.backward(tape, objective(scores, here), want_dx=True)
        finally:
            network.release(tape)
    return dx


def inference_network(
    caller: str,
    layers: Sequence[Layer],
    names: Sequence[str],
    parameters: FlatParameters,
    instead: Mapping[int, Layer] | None = None,
) -> Network:
    """Returns a network that computes as these layers of a model do in inference, with a backward for dx alone.

    Layers with kernels and their weights are the model's own. Those in NumPy are copies, as their state is: only one
    thread may use them. instead: replacements, keyed by the id of the layer to replace. Raises TypeError, whose message
    begins with `caller`, for layers that cannot be copied.
    """
    own = {id(leaf): leaf for layer in layers for leaf in layer.leaves() if leaf.native}
    try:
        (copies,) = copy_layers(layers, instead=own | dict(instead or {}))
    except Exception as error:
        raise TypeError(f"{caller}: expected layers that can be copied: {error}") from error
    groups = param_groups(copies, ParamGroup(frozen=True, inference=True))
    network = Network(copies, names, BorrowedParameters(parameters, copies), groups)
    network.check_gradients()
    return with_per_example_grads(network, [])


def _chunk_size(network: Network) -> int:
    """Returns the number of examples per chunk: whole tiles in a bounded memory; one example for layers in NumPy."""
    if not all(leaf.native for leaf in network.leaves):
        return 1
    values = sum(math.prod(leaf.in_shape) for leaf in network.leaves)
    tiles = CHUNK_BYTES // (2 * values * np.dtype(network.dtype).itemsize * TILE)
    return max(1, tiles) * TILE
