"""What a layer has to keep besides right gradients: shapes, dtypes, inference, rows, random numbers, neighbours."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from minidl.arrays import Array
from minidl.container import Container
from minidl.data import Index
from minidl.layer import Layer, Shape
from minidl.layers.conv2d import Conv2D
from minidl.layers.dense import Dense
from minidl.layers.rescale import Rescale
from minidl.network import Network
from minidl.parameters import Parameters
from minidl.sequential import Sequential
from minidl.stack import apart, together

RTOL, ATOL = 1e-5, 1e-7
LARGE = 19  # two tiles of a kernel, the second one partly empty
MANY = 5  # threads: so many share each of the two tiles
THREADS = 1  # a layer of a few numbers would wait for threads longer than it computes


class Rewinding(Network):
    """A network whose training forwards all begin with the same buffers, so that each is a function of its input."""

    def __init__(self, layer: Layer, dtype: str) -> None:
        super().__init__([layer], [type(layer).__name__], Parameters([layer], dtype))
        self.first = {name: buffer.copy() for name, buffer in layer.buffers.items()}

    def forward(
        self,
        x: Array,
        num_threads: int | None = None,
        seed: int = 0,
        step: int = 0,
        numbers: Index | None = None,
        part: int = 0,
    ) -> tuple[Array, list[Any]]:
        """As Network.forward."""
        for name, buffer in self.layers[0].buffers.items():
            buffer[...] = self.first[name]
        return super().forward(x, num_threads, seed, step, numbers, part)


def build(layer: Layer, in_shape: Shape, dtype: str) -> Network:
    """A network of a fresh copy of the layer, with parameters that hide nothing."""
    model = Sequential([_copied(layer)], input_shape=in_shape, dtype=dtype)
    network = Rewinding(model.layers[0], dtype)
    _fill(model.layers[0])
    return network


def _copied(layer: Layer) -> Layer:
    copied: Layer = together(apart(layer))
    copied.take_settings({})  # a frozen one has no gradients to check
    return copied


def _fill(layer: Layer) -> None:
    """Leaves no zeros and ones in the parameters: they hide what is forgotten."""
    rng = np.random.default_rng(1)
    for param in layer.params.values():
        param.value = param.value + 0.1 * rng.standard_normal(param.value.shape)


def freeze(array: Array) -> Array:
    """The array itself, made read-only."""
    array.flags.writeable = False
    return array


def _leaves(name: str, layer: Layer) -> Iterator[tuple[str, Layer]]:
    """The layer, or of a container the layers in it, with what errors call them."""
    if not isinstance(layer, Container):
        yield name, layer
        return
    for place, part in layer.parts():
        yield from _leaves(f"{name}: {place}, {type(part).__name__}", part)


def _state(layer: Layer) -> dict[str, bytes]:
    """Everything a layer remembers, and those in it, as comparable bytes."""
    found = {}
    if isinstance(layer, Container):
        for place, part in layer.parts():
            found.update({f"{place}.{key}": value for key, value in _state(part).items()})
    for key, value in vars(layer).items():
        if key == "params":
            found.update({f"params[{k!r}]": p.value.tobytes() for k, p in value.items()})
        elif key == "buffers":
            found.update({f"buffers[{k!r}]": buffer.tobytes() for k, buffer in value.items()})
        elif isinstance(value, np.ndarray):
            found[key] = value.tobytes()
        elif key not in ("op", "_rng") and not hasattr(value, "value"):
            found[key] = repr(value).encode()
    return found


@contextmanager
def _blame(failure: str, read_only: str) -> Iterator[None]:
    """Turns an exception of the layer into what it did wrong; NumPy refuses to write into frozen arrays."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "(?i).*(mean|slice|divide)", RuntimeWarning)  # of a batch of none
            yield
    except Exception as error:
        if "read-only" in str(error):
            raise AssertionError(f"{read_only}; it has to make an array of its own") from error
        raise AssertionError(f"{failure}: {error}") from error


def check_shapes(name: str, layer: Layer, in_shape: Shape, rng: np.random.Generator) -> None:
    """Batches of any size go forward and backward, in both dtypes, to the shapes that build promised."""
    for dtype in ("float32", "float64"):
        net = build(layer, in_shape, dtype)
        out_shape = net.layers[0].out_shape
        for n in (0, net.layers[0].least_examples, 2, 17):
            x = freeze(rng.standard_normal((n, *in_shape)).astype(dtype))
            with _blame(f"{name}: a batch of {n} failed", f"{name}: writes into x"):
                y, tape = net.forward(x, THREADS)
            with _blame(f"{name}: a batch of {n} failed", f"{name}: backward writes into x or dy"):
                dx = net.backward(tape, freeze(np.zeros((n, *out_shape), dtype)), want_dx=True)
            assert y.shape == (n, *out_shape), f"{name}: expected an output of shape {(n, *out_shape)}, got {y.shape}"
            assert dx is not None and dx.shape == x.shape, f"{name}: expected dx of shape {x.shape}"


def check_dtypes(name: str, layer: Layer, in_shape: Shape) -> None:
    """A layer in NumPy keeps the model's dtype: the model would convert what it returns, in every step."""
    for dtype in ("float32", "float64"):
        for told, fresh in _leaves(name, build(layer, in_shape, dtype).layers[0]):
            if fresh.native:
                continue
            fresh.begin_step(0, 0)
            x = np.random.default_rng(1).standard_normal((2, *fresh.in_shape))
            y = fresh.forward(freeze(x.astype(dtype)), True)
            assert y.dtype == dtype, f"{told}: expected an output of {dtype}, got {y.dtype}"
            dx = fresh.backward(np.zeros(y.shape, dtype))
            assert dx.dtype == dtype, f"{told}: expected dx of {dtype}, got {dx.dtype}"


def check_float32(name: str, layer: Layer, in_shape: Shape, x: Array, dy: Array) -> None:
    """float32 computes what float64 does. (Layers that draw in NumPy may draw other numbers.)"""
    found = []
    for dtype in ("float32", "float64"):
        net = build(layer, in_shape, dtype)
        found.append(everything(net, freeze(x.astype("float32").astype(dtype)), dy.astype("float32").astype(dtype)))
        if draws(net):
            return
    for what, single in found[0].items():
        double = found[1][what]
        scale = max(float(np.abs(double).max(initial=0)), 1.0)
        assert np.abs(single - double).max(initial=0) <= 1e-4 * scale, (
            f"{name}: {what} in float32 is not that in float64"
        )


def everything(
    net: Network, x: Array, dy: Array, threads: int = THREADS, numbers: Index | None = None
) -> dict[str, Array]:
    """All that a layer computes for a batch; numbers: of its examples, for kernels that draw."""
    y, tape = net.forward(x, threads, numbers=numbers)
    dx = net.backward(tape, dy, want_dx=True)
    assert dx is not None
    grads = {f"the grad of {key!r}": np.array(p.grad) for key, p in net.layers[0].params.items()}
    return {"the output": y, "dx": dx, **grads}


def check_random_numbers(name: str, net: Network, x: Array) -> None:
    """They repeat with the step, and NumPy's own are left alone."""
    before = repr(np.random.get_state())  # noqa: NPY002
    first, second = net.forward(x, THREADS)[0], net.forward(x, THREADS)[0]
    assert repr(np.random.get_state()) == before, (  # noqa: NPY002
        f"{name}: uses NumPy's global random numbers; those of a layer come from self.rng"
    )
    assert np.array_equal(first, second, equal_nan=True), (
        f"{name}: two forwards of one batch and step differ; random numbers of a layer come from self.rng"
    )


def check_sums(name: str, net: Network, rng: np.random.Generator) -> None:
    """What a large batch gives is what its examples give one by one, whatever the number of threads."""
    layer = net.layers[0]
    x = freeze(rng.standard_normal((LARGE, *layer.in_shape)))
    dy = freeze(rng.standard_normal((LARGE, *layer.out_shape)))
    found = everything(net, x, dy)
    for what, array in everything(net, x, dy, MANY).items():
        assert np.array_equal(array, found[what]), f"{name}: {what} changes with the number of threads"
    if draws(net):
        return  # alone, an example has other numbers
    alone = [everything(net, x[i : i + 1], dy[i : i + 1], numbers=np.array([i])) for i in range(LARGE)]
    for what, array in found.items():
        parts = [one[what] for one in alone]
        rows = what in ("the output", "dx")
        expected = np.concatenate(parts) if rows else np.sum(parts, axis=0)
        assert np.allclose(array, expected, RTOL, ATOL), (
            f"{name}: {what} of {LARGE} examples is not the {'rows' if rows else 'sum'} that they give one by one"
        )


def check_inference(name: str, net: Network, x: Array) -> None:
    """It changes nothing and repeats."""
    before = _state(net.layers[0])
    first, second = net.predict(x, THREADS), net.predict(x, THREADS)
    after = _state(net.layers[0])
    changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    assert not changed, f"{name}: inference changed {', '.join(changed)}; without `training` a layer stays as it is"
    assert np.array_equal(first, second, equal_nan=True), f"{name}: two inferences of one batch differ"


def check_buffers(name: str, layer: Layer, in_shape: Shape, x: Array) -> None:
    """Training writes into the buffers that build made: others would not be part of the model's state."""
    net = build(layer, in_shape, "float64")
    leaves = list(_leaves(name, net.layers[0]))
    before = [(leaf.buffers.copy(), vars(leaf).copy()) for _, leaf in leaves]
    net.forward(x, THREADS)
    for (told, leaf), (buffers, attributes) in zip(leaves, before, strict=True):
        held = {k: v for k, v in attributes.items() if any(v is buffer for buffer in buffers.values())}
        replaced = [f"self.{key}" for key, value in held.items() if vars(leaf).get(key) is not value]
        replaced += [f"buffers[{key!r}]" for key, value in buffers.items() if leaf.buffers.get(key) is not value]
        assert not replaced, (
            f"{told}: training puts another array into {', '.join(replaced)}; "
            "it has to write into the buffer ([...] = )"
        )


def check_rows(name: str, net: Network, x: Array) -> None:
    """Examples do not see each other, in inference and in training."""
    together = net.predict(x, THREADS)
    trained = net.forward(x, THREADS)[0]
    for i in range(len(x)):
        alone = net.predict(x[i : i + 1], THREADS)[0]
        assert np.allclose(together[i], alone, RTOL, ATOL), (
            f"{name}: the output of example {i} changes with the batch around it (couples_examples=True if it should)"
        )
        others = 1 - x
        others[i] = x[i]  # where it was, so that a layer that draws draws the same for it
        assert np.allclose(trained[i], net.forward(freeze(others), THREADS)[0][i], RTOL, ATOL), (
            f"{name}: in training, the output of example {i} changes with the batch around it "
            "(couples_examples=True if it should)"
        )


def draws(net: Network) -> bool:
    """Whether the layer drew random numbers in NumPy in its last training forward.

    Those are a batch's. The ones of a kernel are an example's (`rows` in op.h), and hide nothing.
    """
    return any(getattr(leaf, "_rng", None) is not None for leaf in net.layers[0].leaves())


def check_neighbours(name: str, layer: Layer, in_shape: Shape, rng: np.random.Generator) -> None:
    """Between a layer with parameters and one that works in place, it computes what it does alone."""
    front: Layer = Rescale(0.5)
    if len(in_shape) in (1, 3):
        front = Dense(in_shape[0]) if len(in_shape) == 1 else Conv2D(in_shape[0], 1)
    layers = (front, layer, Rescale(3.0))
    apart, model = (Sequential(list(map(_copied, layers)), in_shape, dtype="float64") for _ in range(2))
    for one, other in zip(apart.layers, model.layers, strict=True):  # of one place, so they draw the same numbers
        _fill(one)
        for key, param in one.params.items():
            other.params[key].value = param.value
    alone, together = [Network([one], [repr(one)], Parameters([one], "float64")) for one in apart.layers], model.network
    assert together is not None
    x = freeze(rng.standard_normal((LARGE, *in_shape)))
    dy = freeze(rng.standard_normal((LARGE, *model.output_shape)))
    with np.errstate(all="ignore"):
        tapes, y = [], x
        for net in alone:
            y, tape = net.forward(y, THREADS)
            tapes.append(tape)
        found, tape = together.forward(x, THREADS)
        dx: Array | None = dy
        for net, kept in zip(reversed(alone), reversed(tapes), strict=True):
            assert dx is not None
            dx = net.backward(kept, dx, want_dx=True)
        found_dx = together.backward(tape, dy, want_dx=True)
    assert dx is not None and found_dx is not None
    compared = [("the output", found, y), ("dx", found_dx, dx)]
    for one, net in zip(together.layers, alone, strict=True):
        compared += [(f"the grad of {k!r}", p.grad, net.layers[0].params[k].grad) for k, p in one.params.items()]
    for what, a, b in compared:
        assert np.allclose(a, b, RTOL, ATOL, equal_nan=True), (
            f"{name}: between {alone[0].layers[0]!r} and {alone[2].layers[0]!r}, {what} is not what the layers give "
            "one by one (does it leave zeros in lanes without an example? does it say what its backward reads?)"
        )
