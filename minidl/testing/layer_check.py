"""check_layer: the layer contract as a test, for our layers and for yours."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from minidl.engine.network import Network
from minidl.layers.base import Layer
from minidl.layers.param import Param
from minidl.testing.batch_contract import check_neighbours, check_rows, check_sums
from minidl.testing.finite_differences import Function, check_gradient
from minidl.testing.layer_contract import (
    ATOL,
    LARGE,
    RTOL,
    THREADS,
    build,
    check_buffers,
    check_dtypes,
    check_float32,
    check_inference,
    check_random_numbers,
    check_shapes,
    check_survival,
    freeze,
)
from minidl.testing.samples import Samples
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape

BATCH = 3


def check_layer(
    layer: Layer, in_shape: Shape, couples_examples: bool = False, seed: int = 0, x: ArrayLike | None = None
) -> None:
    """Checks that a layer keeps the contract and has right gradients; raises AssertionError saying what is wrong.

    The layer itself is not touched: copies are made from its config, and built for float64 (and once for float32).
    Checked are: the output has the shape that `build` promised, and the model's dtype; x and dy are not written to;
    inference leaves the layer as it was and agrees with itself; training writes into buffers in place; examples do not
    see each other, unless `couples_examples` (batch statistics) is given; any batch size works, 0 and 1 included; dx
    and the grad of every Param equal central differences in float64, for every number of every example; a second
    backward overwrites. A number at a kink or a tie is moved, and has to be right on both sides of it; a layer that is
    all kinks fails. Random numbers from `self.rng` repeat, and buffers begin each training forward as `build` made
    them, so layers that draw or remember are checked like any other. The gradients stay the same when nobody asks for
    dx, when an inference comes in between, and with other ops in front and behind. A kernel is tried in a forked child
    first, and one that kills the process there (it writes dx where it is NULL) is told.

    The layer sees normal numbers, or where `x` is given, examples (n, *in_shape) of a layer that takes no others, their
    rows, in the model's dtype as always: whole numbers for an embedding. Of integers (by the dtype of `x`) dx is not
    compared with differences, since nothing lies between them; the gradients of the parameters are. Raises TypeError
    or ValueError for another x.

    >>> from minidl.layers import Dense
    >>> check_layer(Dense(2), (3,))
    """
    if not isinstance(layer, Layer):
        raise TypeError(f"layer: expected a Layer, got {layer!r}")
    name = type(layer).__name__
    rng = np.random.default_rng(seed)
    net = build(layer, in_shape, "float64")
    samples = Samples(in_shape, rng, x)
    _check(name, layer, net, samples, freeze(samples.few(BATCH)), couples_examples)


def _check(name: str, layer: Layer, net: Network, samples: Samples, x: Array, couples_examples: bool) -> None:
    rng = samples.rng
    check_survival(name, layer, samples.shape)
    check_shapes(name, layer, samples)
    check_dtypes(name, layer, x)
    check_buffers(name, layer, samples.shape, x)
    check_inference(name, net, x)
    check_random_numbers(name, net, x)
    if not couples_examples:
        check_rows(name, net, samples, x)
        check_rows(name, net, samples, freeze(samples.many(LARGE)))
    dy = freeze(rng.standard_normal((BATCH, *net.layers[0].out_shape)))
    dx, grads = _gradients(name, net, x, dy)
    _check_overwrites(name, net, x, dy, dx, grads)
    _check_uses(name, net, samples, x, dy, dx, grads)
    if not couples_examples:
        _check_gradient_rows(name, net, x, dy, dx)
    if not samples.integers:
        check_gradient(_function_of_x(f"{name}: dx", net, x, dy, couples_examples), rng)
    for key, param in net.layers[0].params.items():
        first = np.array(param.value)
        check_gradient(_function_of_param(f"{name}: the grad of {key!r}", net, param, x, dy), rng)
        param.value = first
    if not couples_examples:
        check_sums(name, net, samples)
    check_float32(name, layer, x, dy)
    check_neighbours(name, layer, samples)


def _function_of_x(name: str, net: Network, x: Array, dy: Array, couples_examples: bool) -> Function:
    def output(values: Array) -> Array:
        return net.forward(freeze(values), THREADS)[0]

    def gradient(values: Array) -> Array:
        dx = net.backward(net.forward(freeze(values), THREADS)[1], dy, want_dx=True)
        assert dx is not None
        return dx

    return Function(name, x, output, gradient, dy, 1 if couples_examples else len(x))


def _function_of_param(name: str, net: Network, param: Param, x: Array, dy: Array) -> Function:
    def output(values: Array) -> Array:
        param.value = values
        return net.forward(x, THREADS)[0]

    def gradient(values: Array) -> Array:
        param.value = values
        net.backward(net.forward(x, THREADS)[1], dy, want_dx=True)
        return np.array(param.grad)

    return Function(name, np.array(param.value), output, gradient, dy)


def _check_gradient_rows(name: str, net: Network, x: Array, dy: Array, dx: Array) -> None:
    for i in range(len(x)):
        only = np.zeros_like(dy)
        only[i] = dy[i]
        tape = net.forward(x, THREADS)[1]
        alone = net.backward(tape, freeze(only), want_dx=True)
        assert alone is not None
        others = np.delete(alone, i, axis=0)
        assert not others.any(), f"{name}: backward lets example {i} into the dx of other examples"
        assert np.allclose(alone[i], dx[i], RTOL, ATOL), f"{name}: the dx of example {i} changes with the dy of others"


def _gradients(name: str, net: Network, x: Array, dy: Array) -> tuple[Array, dict[str, Array]]:
    kept = np.array(x), np.array(dy)
    tape = net.forward(x, THREADS)[1]
    for param in net.layers[0].params.values():
        param.grad = np.full(param.value.shape, np.nan)
    dx = net.backward(tape, dy, want_dx=True)
    assert dx is not None
    assert np.array_equal(x, kept[0]), f"{name}: writes into x"
    assert np.array_equal(dy, kept[1]), f"{name}: backward writes into dy"
    grads = {key: np.array(param.grad) for key, param in net.layers[0].params.items()}
    for param in net.layers[0].params.values():  # what was there must not matter
        param.grad = np.zeros(param.value.shape)
    net.backward(net.forward(x, THREADS)[1], dy, want_dx=True)
    for key, grad in grads.items():
        added = np.isnan(grad) & (net.layers[0].params[key].grad != 0)
        assert not added.any(), f"{name}: backward adds to the grad of {key!r} (does it accumulate?) or makes it NaN"
        assert not np.isnan(grad).any(), f"{name}: backward does not write the grad of {key!r} (or not all of it)"
    return np.array(dx), grads


def _check_uses(
    name: str, net: Network, samples: Samples, x: Array, dy: Array, dx: Array, grads: dict[str, Array]
) -> None:
    """The gradients of a layer that is first in a model, and of one that predicts between forward and backward."""
    params = net.layers[0].params
    for what, want_dx in (("when nobody asks for dx", False), ("when an inference comes between", True)):
        tape = net.forward(x, THREADS)[1]
        if want_dx:
            net.predict(freeze(samples.unlike(x)), THREADS)
        for param in params.values():
            param.grad = np.full(param.value.shape, np.nan)
        found = net.backward(tape, dy, want_dx)
        assert found is None or np.allclose(found, dx, RTOL, ATOL), f"{name}: dx changes {what}"
        for key, param in params.items():
            assert np.allclose(param.grad, grads[key], RTOL, ATOL), f"{name}: the grad of {key!r} changes {what}"


def _check_overwrites(name: str, net: Network, x: Array, dy: Array, dx: Array, grads: dict[str, Array]) -> None:
    again = net.backward(net.forward(x, THREADS)[1], dy, want_dx=True)
    assert np.allclose(again, dx, RTOL, ATOL), f"{name}: a second backward gives another dx"  # type: ignore[arg-type]
    for key, param in net.layers[0].params.items():
        assert np.allclose(param.grad, grads[key], RTOL, ATOL), (
            f"{name}: a second backward does not overwrite the grad of {key!r} (does it accumulate?)"
        )
