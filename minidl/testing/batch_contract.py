"""Checks that a layer computes the same in a batch, and between other layers, as on its own."""

from __future__ import annotations

import numpy as np

from minidl.engine.flat_parameters import FlatParameters
from minidl.engine.network import Network
from minidl.engine.per_example import grad_requests, has_per_example_grad, with_per_example_grads
from minidl.layers.base import Layer
from minidl.layers.conv2d import Conv2D
from minidl.layers.dense import Dense
from minidl.layers.rescale import Rescale
from minidl.sequential import Sequential
from minidl.testing.layer_contract import (
    ATOL,
    MANY_THREADS,
    RTOL,
    THREADS,
    TWO_TILES,
    all_results,
    copied,
    draws,
    fill,
    freeze,
)
from minidl.testing.samples import Samples
from minidl.utils.arrays import Array


def check_rows(name: str, net: Network, samples: Samples, x: Array) -> None:
    """Checks that examples are independent of each other, in inference and in training."""
    together = net.predict(x, THREADS)
    trained = net.forward(x, THREADS)[0]
    for i in range(len(x)):
        alone = net.predict(x[i : i + 1], THREADS)[0]
        assert np.allclose(together[i], alone, RTOL, ATOL), (
            f"{name}: the output of example {i} changes with the batch around it (couples_examples=True if it should)"
        )
        others = samples.unlike(x)
        others[i] = x[i]  # the same index, so that a layer with random numbers draws the same ones
        assert np.allclose(trained[i], net.forward(freeze(others), THREADS)[0][i], RTOL, ATOL), (
            f"{name}: in training, the output of example {i} changes with the batch around it "
            "(couples_examples=True if it should)"
        )


def check_sums(name: str, net: Network, samples: Samples) -> None:
    """Checks that rows, sums and per-example gradients of a large batch do not depend on batch or threads."""
    x = freeze(samples.many(TWO_TILES))
    dy = freeze(samples.rng.standard_normal((TWO_TILES, *net.layers[0].out_shape)))
    results = all_results(net, x, dy)
    for what, array in all_results(net, x, dy, MANY_THREADS).items():
        assert np.array_equal(array, results[what]), f"{name}: {what} changes with the number of threads"
    if draws(net):
        return  # a single example would get other random numbers
    singles = [all_results(net, x[i : i + 1], dy[i : i + 1], example_ids=np.array([i])) for i in range(TWO_TILES)]
    for what, array in results.items():
        parts = [single[what] for single in singles]
        rows = what in ("the output", "dx")
        expected = np.concatenate(parts) if rows else np.sum(parts, axis=0)
        assert np.allclose(array, expected, RTOL, ATOL), (
            f"{name}: {what} of {TWO_TILES} examples is not the {'rows' if rows else 'sum'} of those of single examples"
        )
    for key, grads in _per_example_grads(net, x, dy).items():
        what = f"the grad of {key!r}"
        assert np.allclose(grads, [single[what] for single in singles], RTOL, ATOL), (
            f"{name}: {what} of the examples in a batch is not that of single examples (an op that sums lanes must "
            "leave them separate if tile.sum_stride is 16)"
        )


def _per_example_grads(net: Network, x: Array, dy: Array) -> dict[str, Array]:
    """Returns the parameters' gradients for each example, where kernels keep them separate in a batch."""
    params = net.layers[0].params
    if not all(map(has_per_example_grad, net.leaves)):
        return {}
    requests = grad_requests(net, params.values(), len(x), norms=False)
    twin = with_per_example_grads(net, requests)
    twin.backward(twin.forward(x, THREADS)[1], dy, want_dx=True)
    named = zip(params, requests, strict=True)
    return {name: request.shaped(request.grads) for name, request in named if request.grads is not None}


def check_neighbours(name: str, layer: Layer, samples: Samples) -> None:
    """Checks that a layer computes the same between a layer with parameters and one that works in place."""
    in_shape = samples.shape
    before: Layer = Rescale(0.5 if samples.given is None else 1.0)
    if len(in_shape) in (1, 3) and samples.given is None:
        before = Dense(in_shape[0]) if len(in_shape) == 1 else Conv2D(in_shape[0], 1)
    layers = (before, layer) if layer.ends_model else (before, layer, Rescale(3.0))
    singles, model = (Sequential(list(map(copied, layers)), in_shape, dtype="float64") for _ in range(2))
    for one, other in zip(singles.layers, model.layers, strict=True):  # same paths, hence same random numbers
        fill(one)
        for key, param in one.params.items():
            other.params[key].value = param.value
    alone, together = (
        [Network([one], [repr(one)], FlatParameters([one], "float64")) for one in singles.layers],
        model.network,
    )
    assert together is not None
    x = freeze(samples.many(TWO_TILES))
    dy = freeze(samples.rng.standard_normal((TWO_TILES, *together.out_shape)))
    with np.errstate(all="ignore"):
        tapes, y = [], x
        for net in alone:
            y, tape = net.forward(y, THREADS)
            tapes.append(tape)
        output, tape = together.forward(x, THREADS)
        expected_dx: Array | None = dy
        for net, single_tape in zip(reversed(alone), reversed(tapes), strict=True):
            assert expected_dx is not None
            expected_dx = net.backward(single_tape, expected_dx, want_dx=True)
        dx = together.backward(tape, dy, want_dx=True)
    assert expected_dx is not None and dx is not None
    compared = [("the output", output, y), ("dx", dx, expected_dx)]
    for one, net in zip(together.layers, alone, strict=True):
        compared += [(f"the grad of {k!r}", p.grad, net.layers[0].params[k].grad) for k, p in one.params.items()]
    for what, a, b in compared:
        assert np.allclose(a, b, RTOL, ATOL, equal_nan=True), (
            f"{name}: between {alone[0].layers[0]!r} and {alone[-1].layers[0]!r}, {what} is not that of the layers one "
            "by one (does it leave zeros in lanes without an example? does it declare what its backward reads?)"
        )
