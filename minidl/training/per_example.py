"""The gradients of single examples of a training step, or their norms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from minidl.apart import Wanted, all_tell, apart
from minidl.arrays import Array
from minidl.container import leaves_named, title
from minidl.losses import Loss, checked_loss
from minidl.network import Network
from minidl.param import Param
from minidl.places import place_in, ways
from minidl.sequential import Sequential
from minidl.training.learner import Learner
from minidl.training.steps import Batches
from minidl.training.supervised import Supervised

AT_ONCE = 256  # examples: a tile for each of 16 threads, and the memory of so large a batch


def check_apart(network: Network) -> None:
    """Raises ValueError, naming the layer, if one couples the examples: then none has a gradient of its own."""
    named = zip(network.layers, network.names, strict=True)
    for leaf, name in (pair for layer, told in named for pair in leaves_named(layer, told)):
        couples = leaf.least_examples > 1 or any(op.couples for op in leaf.ops)
        if couples and not network.trained[id(leaf)].frozen:
            raise ValueError(
                f"{name}: expected layers that see each example alone; this one computes with the statistics of a "
                "batch, so no example has a gradient of its own: freeze it (trainable = False), or take GroupNorm"
            )


def fill(
    network: Network, loss: Loss, b: Batches, wanted: Sequence[Wanted], seed: int, num_threads: int | None
) -> None:
    """Computes what is wanted for the rows of a batch, with the random numbers of its step; changes nothing else."""
    parameters, step = network.parameters, int(b.count[0])
    changed = [buffer for leaf in network.leaves for buffer in leaf.buffers.values()]
    if not all_tell(network.leaves):
        changed.append(parameters.grads)
    before = [array.copy() for array in changed]
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(b.rows), AT_ONCE):
                here = slice(start, start + AT_ONCE)
                _backward(apart(network, [one.part(here) for one in wanted]), loss, b, here, seed, step, num_threads)
    finally:
        for array, old in zip(changed, before, strict=True):
            array[...] = old


def _backward(
    network: Network, loss: Loss, b: Batches, here: slice, seed: int, step: int, num_threads: int | None
) -> None:
    rows = b.rows[here]
    x = b.examples.copy(rows).reshape(len(rows), *network.stages[0].in_shape)
    scores, tape = network.forward(x, num_threads, seed, step, b.numbers[here])
    _, dscores = checked_loss(loss, scores, b.targets[rows])
    network.backward(tape, b.weighted(dscores, rows), want_dx=False)
    network.release(tape)


def wanted_of(network: Network, params: Mapping[str, Param], n: int, norms: bool) -> list[Wanted]:
    """Room for the gradients of n examples of these parameters, or for the squares of their norms."""
    found = []
    for param in params.values():
        place, size = network.parameters.places[id(param)], param.value.size
        grads = None if norms else np.empty((n, size), network.dtype)
        found.append(Wanted(param, place, grads, np.empty(n) if norms else None))
    return found


def chosen(model: Sequential, layers: Any) -> dict[str, Param]:
    """The parameters of these layers that steps change, by name; None: of all. Raises TypeError or ValueError."""
    assert model.network is not None
    trained = model.network.trained_params(model.params)
    if not trained:
        raise ValueError("model: expected parameters that are trained, it has none, or all are frozen")
    if layers is None:
        return trained
    found = ways(model)
    names: list[str] = []
    for place in layers if isinstance(layers, (list, tuple)) else [layers]:
        name = place_in(found, place)
        inside = [one for one in trained if one.startswith(f"{name}.")]
        if not inside:
            expected = "layers with parameters that are trained"
            raise ValueError(f"layers: expected {expected}, got {name} {title(found[name][-1])}")
        names += inside
    return {name: param for name, param in trained.items() if name in names}


def per_example_gradients(
    learner: Learner, X: ArrayLike, y: ArrayLike, layers: Any, reduce: str | None, sample_weight: ArrayLike | None
) -> dict[str, Array]:
    """What Trainer.per_example_gradients returns."""
    if reduce not in (None, "norm"):
        raise ValueError(f"reduce: expected None or 'norm', got {reduce!r}")
    model = learner.model
    with model.unbuilt_on_error():
        data = Supervised.accept(model, learner.loss, X, y, sample_weight)
        network = model.network
        assert network is not None
        network.refresh()
        check_apart(network)
        params = chosen(model, layers)
    learner.check_between_steps("per_example_gradients")
    with model.busy.writing("per_example_gradients"):
        wanted = wanted_of(network, params, len(data.used), reduce == "norm")
        batch = learner.batches(data, data.used, len(data.used))
        fill(network, learner.loss, batch, wanted, learner.seed, learner.num_threads)
    return {name: _shown(one, data) for name, one in zip(params, wanted, strict=True)}


def _shown(one: Wanted, data: Supervised) -> Array:
    """For all examples, those of weight 0 too: the gradients in the parameter's shape, or their norms in its dtype."""
    value = one.param.value
    found = np.sqrt(one.squares).astype(value.dtype) if one.squares is not None else one.grads
    assert found is not None
    if len(data.used) < len(data.examples):
        some, found = found, np.zeros((len(data.examples), *found.shape[1:]), found.dtype)
        found[data.used] = some
    if one.squares is not None:
        return found
    if value.flags.c_contiguous:
        return found.reshape(len(found), *value.shape)
    turned = found.reshape(len(found), *value.shape[::-1])  # a dense weight: see Param
    return turned.transpose(0, *range(value.ndim, 0, -1))
