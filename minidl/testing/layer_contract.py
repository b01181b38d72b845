"""What a layer has to keep besides right gradients: shapes, dtypes, inference, random numbers, buffers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from minidl.engine.flat_parameters import FlatParameters
from minidl.engine.layer_list import from_spec, to_spec
from minidl.engine.network import Network
from minidl.layers.base import Layer, drew
from minidl.layers.container import Container
from minidl.sequential import Sequential
from minidl.testing.forked import death_of
from minidl.testing.samples import Samples
from minidl.utils.arrays import Array
from minidl.utils.data import Index
from minidl.utils.validation import Shape

RTOL, ATOL = 1e-5, 1e-7
LARGE = 19  # two tiles of a kernel, the second one partly empty
MANY = 5  # threads: so many share each of the two tiles
THREADS = 1  # a layer of a few numbers would wait for threads longer than it computes


class Rewinding(Network):
    """A network whose training forwards all begin with the same buffers, so that each is a function of its input."""

    def __init__(self, layer: Layer, dtype: str) -> None:
        super().__init__([layer], [type(layer).__name__], FlatParameters([layer], dtype))
        self.first = {name: buffer.copy() for name, buffer in layer.buffers.items()}

    def forward(
        self,
        x: Array,
        num_threads: int | None = None,
        seed: int = 0,
        step: int = 0,
        example_ids: Index | None = None,
        part: int = 0,
    ) -> tuple[Array, list[Any]]:
        """As Network.forward."""
        for name, buffer in self.layers[0].buffers.items():
            buffer[...] = self.first[name]
        return super().forward(x, num_threads, seed, step, example_ids, part)


def build(layer: Layer, in_shape: Shape, dtype: str) -> Network:
    """A network of a fresh copy of the layer, with parameters that hide nothing."""
    model = Sequential([copied(layer)], input_shape=in_shape, dtype=dtype)
    network = Rewinding(model.layers[0], dtype)
    fill(model.layers[0])
    return network


def copied(layer: Layer) -> Layer:
    """A layer of the same arguments, of no model."""
    fresh: Layer = from_spec(to_spec(layer))
    fresh.take_settings({})  # a frozen one has no gradients to check
    return fresh


def fill(layer: Layer) -> None:
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
    for place, part in layer.named_children():
        yield from _leaves(f"{name}: {place}, {type(part).__name__}", part)


def _state(layer: Layer) -> dict[str, bytes]:
    """Everything a layer remembers, and those in it, as comparable bytes."""
    found = {}
    if isinstance(layer, Container):
        for place, part in layer.named_children():
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


def check_survival(name: str, layer: Layer, in_shape: Shape) -> None:
    """A kernel uses no memory that it does not have. One that does kills a forked child, and not this process."""
    for told, leaf in _leaves(name, build(layer, in_shape, "float64").layers[0]):
        for dtype in ("float32", "float64") if leaf.native else ():
            net = build(leaf, leaf.in_shape, dtype)
            x, dy = np.zeros((LARGE, *leaf.in_shape), dtype), np.zeros((LARGE, *net.layers[0].out_shape), dtype)
            killed = f"{told}: its kernel kills the process"
            death = death_of(partial(_run, net, x, dy, True))
            assert death is None, (
                f"{killed} ({death}): it uses memory that it does not have (what only other kinds of ops have is NULL)"
            )
            death = death_of(partial(_run, net, x, dy, False))
            assert death is None, (
                f"{killed} ({death}) when nothing needs dx: t.dx is NULL then, and backward must not write there "
                "(and still leave the sums of its parameters)"
            )


def _run(net: Network, x: Array, dy: Array, want_dx: bool) -> None:
    net.predict(x, THREADS)
    net.backward(net.forward(x, THREADS)[1], dy, want_dx)


def check_shapes(name: str, layer: Layer, samples: Samples) -> None:
    """Batches of any size go forward and backward, in both dtypes, to the shapes that build promised."""
    for dtype in ("float32", "float64"):
        net = build(layer, samples.shape, dtype)
        out_shape = net.layers[0].out_shape
        for n in (net.layers[0].min_batch_size, 2, 17, 0):
            x = freeze(samples.many(n).astype(dtype))
            failed = f"{name}: a batch of {n} failed{'' if n else ' (the contract: a batch may have no examples)'}"
            with _blame(failed, f"{name}: writes into x"):
                y, tape = net.forward(x, THREADS)
            with _blame(failed, f"{name}: backward writes into x or dy"):
                dx = net.backward(tape, freeze(np.zeros((n, *out_shape), dtype)), want_dx=True)
            assert y.shape == (n, *out_shape), f"{name}: expected an output of shape {(n, *out_shape)}, got {y.shape}"
            assert dx is not None and dx.shape == x.shape, f"{name}: expected dx of shape {x.shape}"


def check_dtypes(name: str, layer: Layer, x: Array) -> None:
    """A layer in NumPy keeps the model's dtype: the model would convert what it returns, in every step."""
    for dtype in ("float32", "float64"):
        net = build(layer, x.shape[1:], dtype)
        for told, leaf in _leaves(name, net.layers[0]):
            if not leaf.native:
                _watch(leaf, dtype, told)
        y, tape = net.forward(freeze(x.astype(dtype)), THREADS)
        net.backward(tape, np.zeros(y.shape, dtype), want_dx=True)


def _watch(layer: Layer, dtype: str, name: str) -> None:
    """Lets a layer in NumPy look at the dtypes of what it returns."""
    forward, backward = layer.forward, layer.backward

    def watched_forward(x: Array, training: bool) -> Array:
        y = forward(x, training)
        assert y.dtype == dtype, f"{name}: expected an output of {dtype}, got {y.dtype}"
        return y

    def watched_backward(dy: Array) -> Array:
        dx = backward(dy)
        assert dx.dtype == dtype, f"{name}: expected dx of {dtype}, got {dx.dtype}"
        return dx

    layer.forward, layer.backward = watched_forward, watched_backward  # type: ignore[method-assign]


def check_float32(name: str, layer: Layer, x: Array, dy: Array) -> None:
    """float32 computes what float64 does. (Layers that draw in NumPy may draw other numbers.)"""
    found = []
    for dtype in ("float32", "float64"):
        net = build(layer, x.shape[1:], dtype)
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
    y, tape = net.forward(x, threads, example_ids=numbers)
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


def draws(net: Network) -> bool:
    """Whether the layer drew random numbers in NumPy in its last training forward.

    Those are a batch's. The ones of a kernel are an example's (`rows` in op.h), and hide nothing.
    """
    return any(drew(leaf) for leaf in net.layers[0].leaves())
