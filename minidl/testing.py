"""check_layer: the layer contract as a test, for our layers and for yours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minidl.contract import (
    ATOL,
    LARGE,
    RTOL,
    THREADS,
    build,
    check_buffers,
    check_dtypes,
    check_float32,
    check_inference,
    check_neighbours,
    check_random_numbers,
    check_rows,
    check_shapes,
    check_sums,
    freeze,
)
from minidl.layer import Array, Layer, Shape
from minidl.network import Network

STEP = 1e-6  # of the finite differences: the cube root of float64's precision, about
NOISE = 4 * np.finfo(np.float64).eps / STEP  # of a difference, as a share of what it is a difference of
BATCH = 3


def check_layer(layer: Layer, in_shape: Shape, couples_examples: bool = False, seed: int = 0) -> None:
    """Checks that a layer keeps the contract and has right gradients; raises AssertionError saying what is wrong.

    The layer itself is not touched: copies are made from its config, and built for float64 (and once for float32).
    Checked are: the output has the shape that `build` promised, and the model's dtype; x and dy are not written to;
    inference leaves the layer as it was and agrees with itself; training writes into buffers in place; examples do not
    see each other, unless `couples_examples` (batch statistics) is given; any batch size works, 0 and 1 included; dx
    and the grad of every Param equal central differences in float64, for every number of every example; a second
    backward overwrites. Where the function has a kink, the one-sided differences disagree and the number is left out.
    Random numbers from `self.rng` repeat, and buffers begin each training forward as `build` made them, so layers that
    draw or remember are checked like any other. The gradients stay the same when nobody asks for dx, when an inference
    comes in between, and with other ops in front and behind.

    >>> from minidl.layers import Dense
    >>> check_layer(Dense(2), (3,))
    """
    if not isinstance(layer, Layer):
        raise TypeError(f"layer: expected a Layer, got {layer!r}")
    name = type(layer).__name__
    rng = np.random.default_rng(seed)
    net = build(layer, in_shape, "float64")
    spread = rng.choice([1, 1, 6], (BATCH, *in_shape))  # some numbers go beyond a bound such as that of ReLU6
    x = freeze(rng.standard_normal((BATCH, *in_shape)) * spread)
    check_shapes(name, layer, in_shape, rng)
    check_dtypes(name, layer, in_shape, x)
    check_buffers(name, layer, in_shape, x)
    check_inference(name, net, x)
    check_random_numbers(name, net, x)
    if not couples_examples:
        check_rows(name, net, x)
        check_rows(name, net, freeze(rng.standard_normal((LARGE, *in_shape))))
    dy = freeze(rng.standard_normal((BATCH, *net.layers[0].out_shape)))
    dx, grads = _gradients(name, net, x, dy)
    _check_overwrites(name, net, x, dy, dx, grads)
    _check_uses(name, net, x, dy, dx, grads)
    if not couples_examples:
        _check_gradient_rows(name, net, x, dy, dx)

    def output_of_x(changed: Array) -> Array:
        return np.array(net.forward(freeze(changed), THREADS)[0])

    _compare(f"{name}: dx", dx, np.array(x), output_of_x, dy)
    for key, param in net.layers[0].params.items():
        first = np.array(param.value)

        def output_of_param(changed: Array, param: Any = param) -> Array:
            param.value = changed
            return np.array(net.forward(x, THREADS)[0])

        _compare(f"{name}: the grad of {key!r}", grads[key], np.array(first), output_of_param, dy)
        param.value = first
    if not couples_examples:
        check_sums(name, net, rng)
    check_float32(name, layer, in_shape, x, dy)
    check_neighbours(name, layer, in_shape, rng)


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


def _check_uses(name: str, net: Network, x: Array, dy: Array, dx: Array, grads: dict[str, Array]) -> None:
    """The gradients of a layer that is first in a model, and of one that predicts between forward and backward."""
    params = net.layers[0].params
    for what, want_dx in (("when nobody asks for dx", False), ("when an inference comes between", True)):
        tape = net.forward(x, THREADS)[1]
        if want_dx:
            net.predict(freeze(x[::-1] + 1), THREADS)
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


def _compare(what: str, found: Array, at: Array, output: Callable[[Array], Array], dy: Array) -> None:
    """Every number of `found` against the central difference of the sum of output * dy at `at`."""
    scale = max(float(np.abs(found).max(initial=0)), 1.0)
    middle = output(np.array(at))
    noise = NOISE * float(np.abs(middle * dy).max(initial=0))
    for place in np.ndindex(at.shape):
        value = at[place]
        changed = np.array(at)
        changed[place] = value + STEP
        up = output(changed)
        changed = np.array(at)
        changed[place] = value - STEP
        down = output(changed)
        numeric = float(((up - down) * dy).sum()) / (2 * STEP)
        error, allowed = abs(numeric - found[place]), RTOL * abs(numeric) + 1e-6 * scale + noise
        right, left = float(((up - middle) * dy).sum()) / STEP, float(((middle - down) * dy).sum()) / STEP
        kink = abs(right - left) > 1e-3 * max(abs(right), abs(left), 1e-3 * scale)
        assert error <= allowed or kink, (
            f"{what}{list(place)}: expected {numeric:.8g} (finite differences), got {found[place]:.8g}"
        )
