"""check_layer: the layer contract as a test, for our layers and for yours."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from minidl.layer import Array, Layer, Shape
from minidl.network import Network
from minidl.sequential import Sequential

STEP = 1e-6  # of the finite differences: the cube root of float64's precision, about
RTOL, ATOL = 1e-5, 1e-7
BATCH = 3
LARGE = 19  # two tiles of a kernel, the second one partly empty
THREADS = 1  # a layer of a few numbers would wait for threads longer than it computes


def check_layer(layer: Layer, in_shape: Shape, couples_examples: bool = False, seed: int = 0) -> None:
    """Checks that a layer keeps the contract and has right gradients; raises AssertionError saying what is wrong.

    The layer itself is not touched: copies are made from its config, and built for float64 (and once for float32).
    Checked are: the output has the shape that `build` promised, and the model's dtype; x and dy are not written to;
    inference leaves the layer as it was and agrees with itself; examples do not see each other, unless
    `couples_examples` (batch statistics) is given; any batch size works, 0 and 1 included; dx and the grad of every
    Param equal central differences in float64, for every number of every example; a second backward overwrites.
    Where the function has a kink, the one-sided differences disagree and the number is left out. Random numbers from
    `self.rng` repeat, so layers that draw are checked like any other.

    >>> from minidl.layers import Dense
    >>> check_layer(Dense(2), (3,))
    """
    if not isinstance(layer, Layer):
        raise TypeError(f"layer: expected a Layer, got {layer!r}")
    name = type(layer).__name__
    rng = np.random.default_rng(seed)
    net = _build(layer, in_shape, "float64")
    x = _freeze(rng.standard_normal((BATCH, *in_shape)))
    _check_shapes(name, layer, in_shape, rng)
    _check_dtypes(name, layer, in_shape, x)
    _check_inference(name, net, x)
    _check_random_numbers(name, net, x)
    if not couples_examples:
        _check_rows(name, net, x)
        _check_rows(name, net, _freeze(rng.standard_normal((LARGE, *in_shape))))
    dy = _freeze(rng.standard_normal((BATCH, *net.layers[0].out_shape)))
    dx, grads = _gradients(name, net, x, dy)
    _check_overwrites(name, net, x, dy, dx, grads)
    if not couples_examples:
        _check_gradient_rows(name, net, x, dy, dx)

    def loss_of_x(changed: Array) -> float:
        return float((net.forward(_freeze(changed), THREADS)[0] * dy).sum())

    _compare(f"{name}: dx", dx, np.array(x), loss_of_x)
    for key, param in net.layers[0].params.items():
        first = np.array(param.value)

        def loss_of_param(changed: Array, param: Any = param) -> float:
            param.value = changed
            return float((net.forward(x, THREADS)[0] * dy).sum())

        _compare(f"{name}: the grad of {key!r}", grads[key], np.array(first), loss_of_param)
        param.value = first
    if not couples_examples:
        _check_sums(name, net, rng)
    _check_float32(name, layer, in_shape, x, dy)


def _build(layer: Layer, in_shape: Shape, dtype: str) -> Network:
    fresh = type(layer)(**copy.deepcopy(layer.config()))
    network = Sequential([fresh], input_shape=in_shape, dtype=dtype).network
    assert network is not None
    rng = np.random.default_rng(1)
    for param in fresh.params.values():  # no zeros and ones: they hide what is forgotten
        param.value = param.value + 0.1 * rng.standard_normal(param.value.shape)
    return network


def _freeze(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _state(layer: Layer) -> dict[str, bytes]:
    """Everything a layer remembers, as comparable bytes."""
    found = {}
    for key, value in vars(layer).items():
        if key == "params":
            found.update({f"params[{k!r}]": p.value.tobytes() for k, p in value.items()})
        elif isinstance(value, np.ndarray):
            found[key] = value.tobytes()
        elif key not in ("op", "_rng") and not hasattr(value, "value"):
            found[key] = repr(value).encode()
    return found


@contextmanager
def _blame(failure: str, read_only: str) -> Iterator[None]:
    """Turns an exception of the layer into what it did wrong; NumPy refuses to write into frozen arrays."""
    try:
        yield
    except Exception as error:
        if "read-only" in str(error):
            raise AssertionError(f"{read_only}; it has to make an array of its own") from error
        raise AssertionError(f"{failure}: {error}") from error


def _check_shapes(name: str, layer: Layer, in_shape: Shape, rng: np.random.Generator) -> None:
    for dtype in ("float32", "float64"):
        net = _build(layer, in_shape, dtype)
        out_shape = net.layers[0].out_shape
        for n in (0, 1, 2, 17):
            x = _freeze(rng.standard_normal((n, *in_shape)).astype(dtype))
            with _blame(f"{name}: a batch of {n} failed", f"{name}: writes into x"):
                y, tape = net.forward(x, THREADS)
            with _blame(f"{name}: a batch of {n} failed", f"{name}: backward writes into x or dy"):
                dx = net.backward(tape, _freeze(np.zeros((n, *out_shape), dtype)), want_dx=True)
            assert y.shape == (n, *out_shape), f"{name}: expected an output of shape {(n, *out_shape)}, got {y.shape}"
            assert dx is not None and dx.shape == x.shape, f"{name}: expected dx of shape {x.shape}"


def _check_dtypes(name: str, layer: Layer, in_shape: Shape, x: Array) -> None:
    """A layer in NumPy keeps the model's dtype: the model would convert what it returns, in every step."""
    for dtype in ("float32", "float64"):
        fresh = _build(layer, in_shape, dtype).layers[0]
        if fresh.op is not None:
            return
        fresh.begin_step(0, 0)
        y = fresh.forward(_freeze(x.astype(dtype)), True)
        assert y.dtype == dtype, f"{name}: expected an output of {dtype}, got {y.dtype}"
        dx = fresh.backward(np.zeros(y.shape, dtype))
        assert dx.dtype == dtype, f"{name}: expected dx of {dtype}, got {dx.dtype}"


def _check_float32(name: str, layer: Layer, in_shape: Shape, x: Array, dy: Array) -> None:
    """float32 computes what float64 does."""
    found = []
    for dtype in ("float32", "float64"):
        net = _build(layer, in_shape, dtype)
        found.append(_everything(net, _freeze(x.astype("float32").astype(dtype)), dy.astype("float32").astype(dtype)))
    for what, single in found[0].items():
        double = found[1][what]
        scale = max(float(np.abs(double).max(initial=0)), 1.0)
        assert np.abs(single - double).max(initial=0) <= 1e-4 * scale, (
            f"{name}: {what} in float32 is not that in float64"
        )


def _everything(net: Network, x: Array, dy: Array, threads: int = THREADS) -> dict[str, Array]:
    """All that a layer computes for a batch."""
    y, tape = net.forward(x, threads)
    dx = net.backward(tape, dy, want_dx=True)
    assert dx is not None
    grads = {f"the grad of {key!r}": np.array(p.grad) for key, p in net.layers[0].params.items()}
    return {"the output": y, "dx": dx, **grads}


def _check_random_numbers(name: str, net: Network, x: Array) -> None:
    before = repr(np.random.get_state())  # noqa: NPY002
    first, second = net.forward(x, THREADS)[0], net.forward(x, THREADS)[0]
    assert repr(np.random.get_state()) == before, (  # noqa: NPY002
        f"{name}: uses NumPy's global random numbers; those of a layer come from self.rng"
    )
    assert np.array_equal(first, second, equal_nan=True), (
        f"{name}: two forwards of one batch and step differ; random numbers of a layer come from self.rng"
    )


def _check_sums(name: str, net: Network, rng: np.random.Generator) -> None:
    """What a large batch gives is what its examples give one by one, whatever the number of threads."""
    layer = net.layers[0]
    x = _freeze(rng.standard_normal((LARGE, *layer.in_shape)))
    dy = _freeze(rng.standard_normal((LARGE, *layer.out_shape)))
    found = _everything(net, x, dy)
    for what, array in _everything(net, x, dy, threads=3).items():
        assert np.array_equal(array, found[what]), f"{name}: {what} changes with the number of threads"
    if _draws(net):
        return
    alone = [_everything(net, x[i : i + 1], dy[i : i + 1]) for i in range(LARGE)]
    for what, array in found.items():
        parts = [one[what] for one in alone]
        rows = what in ("the output", "dx")
        expected = np.concatenate(parts) if rows else np.sum(parts, axis=0)
        assert np.allclose(array, expected, RTOL, ATOL), (
            f"{name}: {what} of {LARGE} examples is not the {'rows' if rows else 'sum'} that they give one by one"
        )


def _check_inference(name: str, net: Network, x: Array) -> None:
    before = _state(net.layers[0])
    first, second = net.predict(x, THREADS), net.predict(x, THREADS)
    after = _state(net.layers[0])
    changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    assert not changed, f"{name}: inference changed {', '.join(changed)}; without `training` a layer stays as it is"
    assert np.array_equal(first, second, equal_nan=True), f"{name}: two inferences of one batch differ"


def _check_rows(name: str, net: Network, x: Array) -> None:
    together = net.predict(x, THREADS)
    trained = net.forward(x, THREADS)[0]
    for i in range(len(x)):
        alone = net.predict(x[i : i + 1], THREADS)[0]
        assert np.allclose(together[i], alone, RTOL, ATOL), (
            f"{name}: the output of example {i} changes with the batch around it (couples_examples=True if it should)"
        )
        if not _draws(net):
            alone = net.forward(x[i : i + 1], THREADS)[0][0]
            assert np.allclose(trained[i], alone, RTOL, ATOL), (
                f"{name}: in training, the output of example {i} changes with the batch around it"
            )


def _draws(net: Network) -> bool:
    """Whether the layer drew random numbers in its last training forward."""
    return getattr(net.layers[0], "_rng", None) is not None


def _check_gradient_rows(name: str, net: Network, x: Array, dy: Array, dx: Array) -> None:
    for i in range(len(x)):
        only = np.zeros_like(dy)
        only[i] = dy[i]
        tape = net.forward(x, THREADS)[1]
        alone = net.backward(tape, _freeze(only), want_dx=True)
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


def _check_overwrites(name: str, net: Network, x: Array, dy: Array, dx: Array, grads: dict[str, Array]) -> None:
    again = net.backward(net.forward(x, THREADS)[1], dy, want_dx=True)
    assert np.allclose(again, dx, RTOL, ATOL), f"{name}: a second backward gives another dx"  # type: ignore[arg-type]
    for key, param in net.layers[0].params.items():
        assert np.allclose(param.grad, grads[key], RTOL, ATOL), (
            f"{name}: a second backward does not overwrite the grad of {key!r} (does it accumulate?)"
        )


def _compare(what: str, found: Array, at: Array, loss: Callable[[Array], float]) -> None:
    """Every number of `found` against the central difference of `loss` at `at`."""
    scale = max(float(np.abs(found).max(initial=0)), 1.0)
    middle = loss(np.array(at))
    for place in np.ndindex(at.shape):
        value = at[place]
        changed = np.array(at)
        changed[place] = value + STEP
        up = loss(changed)
        changed = np.array(at)
        changed[place] = value - STEP
        down = loss(changed)
        numeric = (up - down) / (2 * STEP)
        error, allowed = abs(numeric - found[place]), RTOL * abs(numeric) + 1e-6 * scale
        right, left = (up - middle) / STEP, (middle - down) / STEP
        kink = abs(right - left) > 1e-3 * max(abs(right), abs(left), 1e-3 * scale)
        assert error <= allowed or kink, (
            f"{what}{list(place)}: expected {numeric:.8g} (finite differences), got {found[place]:.8g}"
        )
