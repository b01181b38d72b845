"""Checks of the layer contract except gradients: shapes, dtypes, inference, random numbers, buffers."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from minidl.engine.flat_parameters import FlatParameters
from minidl.engine.layer_list import from_spec, to_spec
from minidl.engine.network import Network
from minidl.layers.base import Layer, used_rng
from minidl.layers.container import Container
from minidl.sequential import Sequential
from minidl.testing.forked import death_of
from minidl.testing.samples import Samples
from minidl.utils.arrays import Array
from minidl.utils.data import Index
from minidl.utils.validation import Shape

RTOL, ATOL = 1e-5, 1e-7
TWO_TILES = 19  # examples: two tiles of a kernel, the second one partly empty
MANY_THREADS = 5  # threads: several share each of the two tiles
MOVES = 5  # steps in which pixels are moved
THREADS = 1  # small layers would spend more time on synchronization than on computing


class Rewinding(Network):
    """A network that resets its buffers before each training forward, so that the output depends only on the input."""

    def __init__(self, layer: Layer, dtype: str) -> None:
        super().__init__([layer], [type(layer).__name__], FlatParameters([layer], dtype))
        self.initial = {name: buffer.copy() for name, buffer in layer.buffers.items()}

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
            buffer[...] = self.initial[name]
        return super().forward(x, num_threads, seed, step, example_ids, part)


def build(layer: Layer, in_shape: Shape, dtype: str) -> Network:
    """Returns a network of a fresh copy of the layer, with parameters that are neither 0 nor 1."""
    model = Sequential([copied(layer)], input_shape=in_shape, dtype=dtype)
    network = Rewinding(model.layers[0], dtype)
    fill(model.layers[0])
    return network


def copied(layer: Layer) -> Layer:
    """Returns an unbuilt layer with the same arguments."""
    fresh: Layer = from_spec(to_spec(layer))
    fresh.take_settings({})  # a frozen layer has no gradients to check
    return fresh


def fill(layer: Layer) -> None:
    """Adds noise to the parameters: zeros and ones could hide an omitted term."""
    rng = np.random.default_rng(1)
    for param in layer.params.values():
        param.value = param.value + 0.1 * rng.standard_normal(param.value.shape)


def freeze(array: Array) -> Array:
    """Makes the array read-only and returns it."""
    array.flags.writeable = False
    return array


def iter_leaves(name: str, layer: Layer) -> Iterator[tuple[str, Layer]]:
    """Yields the layer, or the layers in a container, each with its name in errors."""
    if not isinstance(layer, Container):
        yield name, layer
        return
    for path, child in layer.named_children():
        yield from iter_leaves(f"{name}: {path}, {type(child).__name__}", child)


def _get_state(layer: Layer) -> dict[str, bytes]:
    """Returns the whole state of a layer, and of the layers in it, as comparable bytes."""
    state = {}
    if isinstance(layer, Container):
        for path, child in layer.named_children():
            state.update({f"{path}.{key}": value for key, value in _get_state(child).items()})
    for key, value in vars(layer).items():
        if key == "params":
            state.update({f"params[{k!r}]": p.value.tobytes() for k, p in value.items()})
        elif key == "buffers":
            state.update({f"buffers[{k!r}]": buffer.tobytes() for k, buffer in value.items()})
        elif isinstance(value, np.ndarray):
            state[key] = value.tobytes()
        elif key not in ("op", "_rng") and not hasattr(value, "value"):
            with np.printoptions(threshold=sys.maxsize, floatmode="unique"):  # of arrays in a list, all numbers
                state[key] = repr(value).encode()
    return state


@contextmanager
def _translate_errors(failure: str, read_only: str) -> Iterator[None]:
    """Turns an exception of the layer into an AssertionError naming the mistake, such as a write to a frozen array."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "(?i).*(mean|slice|divide)", RuntimeWarning)  # for empty batches
            yield
    except Exception as error:
        if "read-only" in str(error):
            raise AssertionError(f"{read_only}; it must create its own array") from error
        raise AssertionError(f"{failure}: {error}") from error


def check_survival(name: str, layer: Layer, in_shape: Shape) -> None:
    """Checks that a kernel does not access memory outside its arrays; if it does, only a forked child is killed."""
    for leaf_name, leaf in iter_leaves(name, build(layer, in_shape, "float64").layers[0]):
        for dtype in ("float32", "float64") if leaf.native else ():
            net = build(leaf, leaf.in_shape, dtype)
            x, dy = np.zeros((TWO_TILES, *leaf.in_shape), dtype), np.zeros((TWO_TILES, *net.layers[0].out_shape), dtype)
            killed = f"{leaf_name}: its kernel kills the process"
            death = death_of(partial(_run, net, x, dy, True))
            assert death is None, (
                f"{killed} ({death}): it accesses memory that it does not have (fields of other kinds of ops are NULL)"
            )
            death = death_of(partial(_run, net, x, dy, False))
            assert death is None, (
                f"{killed} ({death}) when dx is not needed: t.dx is NULL then, and backward must not write to it "
                "(but must still compute the sums of its parameters)"
            )


def _run(net: Network, x: Array, dy: Array, want_dx: bool) -> None:
    net.predict(x, THREADS)
    net.backward(net.forward(x, THREADS)[1], dy, want_dx)


def check_shapes(name: str, layer: Layer, samples: Samples) -> None:
    """Checks forward and backward of batches of any size, in both dtypes, against the shapes that build returned."""
    for dtype in ("float32", "float64"):
        net = build(layer, samples.shape, dtype)
        out_shape = net.layers[0].out_shape
        for n in (net.layers[0].min_batch_size, 2, 17, 0):
            x = freeze(samples.many(n).astype(dtype))
            failure = f"{name}: a batch of {n} failed{'' if n else ' (the contract: a batch may have no examples)'}"
            with _translate_errors(failure, f"{name}: writes into x"):
                y, tape = net.forward(x, THREADS)
            with _translate_errors(failure, f"{name}: backward writes into x or dy"):
                dx = net.backward(tape, freeze(np.zeros((n, *out_shape), dtype)), want_dx=True)
            assert y.shape == (n, *out_shape), f"{name}: expected an output of shape {(n, *out_shape)}, got {y.shape}"
            assert dx is not None and dx.shape == x.shape, f"{name}: expected dx of shape {x.shape}"


def check_dtypes(name: str, layer: Layer, x: Array) -> None:
    """Checks that a layer in NumPy keeps the model's dtype; otherwise the model would convert results in every step."""
    for dtype in ("float32", "float64"):
        net = build(layer, x.shape[1:], dtype)
        for leaf_name, leaf in iter_leaves(name, net.layers[0]):
            if not leaf.native:
                _watch(leaf, dtype, leaf_name)
        y, tape = net.forward(freeze(x.astype(dtype)), THREADS)
        net.backward(tape, np.zeros(y.shape, dtype), want_dx=True)


def _watch(layer: Layer, dtype: str, name: str) -> None:
    """Wraps a layer in NumPy so that it checks the dtypes of its results."""
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
    """Checks that float32 results equal float64 ones, except if random numbers drawn in NumPy may differ."""
    results = []
    for dtype in ("float32", "float64"):
        net = build(layer, x.shape[1:], dtype)
        results.append(all_results(net, freeze(x.astype("float32").astype(dtype)), dy.astype("float32").astype(dtype)))
        if draws(net):
            return
    for what, single in results[0].items():
        double = results[1][what]
        scale = max(float(np.abs(double).max(initial=0)), 1.0)
        assert np.abs(single - double).max(initial=0) <= 1e-4 * scale, (
            f"{name}: {what} in float32 is not that in float64"
        )


def all_results(
    net: Network, x: Array, dy: Array, threads: int = THREADS, example_ids: Index | None = None
) -> dict[str, Array]:
    """Returns all results of a layer for a batch. example_ids: for kernels with random numbers."""
    y, tape = net.forward(x, threads, example_ids=example_ids)
    dx = net.backward(tape, dy, want_dx=True)
    assert dx is not None
    grads = {f"the grad of {key!r}": np.array(p.grad) for key, p in net.layers[0].params.items()}
    return {"the output": y, "dx": dx, **grads}


def check_random_numbers(name: str, net: Network, x: Array) -> None:
    """Checks that random numbers repeat for the same step, and that NumPy's global state is not used."""
    before = repr(np.random.get_state())  # noqa: NPY002
    first, second = net.forward(x, THREADS)[0], net.forward(x, THREADS)[0]
    assert repr(np.random.get_state()) == before, (  # noqa: NPY002
        f"{name}: uses NumPy's global random numbers; a layer must use self.rng"
    )
    assert np.array_equal(first, second, equal_nan=True), (
        f"{name}: two forwards of one batch and step differ; random numbers must come from self.rng"
    )


def check_moved_pixels(name: str, net: Network, in_shape: Shape) -> None:
    """Checks that a layer in NumPy that moves pixels copies them, or writes 0 from outside: targets move with them."""
    leaf = net.layers[0]
    if not leaf.moves_pixels or leaf.native or isinstance(leaf, Container):
        return
    x = 1000.0 + np.arange(2 * math.prod(in_shape)).reshape(2, *in_shape)
    for step in range(MOVES):
        y = net.forward(freeze(x), THREADS, step=step)[0]
        for image, moved in zip(x, y, strict=True):
            others = np.setdiff1d(moved, [*image.reshape(-1), 0.0])
            assert not others.size, (
                f"{name}: expected it to copy pixels, or to write 0 for those from outside, because targets move with "
                f"them (moves_pixels), got {others[0]:g} for pixels from {image.min():g} to {image.max():g}"
            )


def check_inference(name: str, net: Network, x: Array) -> None:
    """Checks that inference changes nothing and repeats."""
    before = _get_state(net.layers[0])
    first, second = net.predict(x, THREADS), net.predict(x, THREADS)
    after = _get_state(net.layers[0])
    changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    assert not changed, f"{name}: inference changed {', '.join(changed)}; without `training` a layer must not change"
    assert np.array_equal(first, second, equal_nan=True), f"{name}: two inferences of one batch differ"


def check_copies(name: str, layer: Layer, in_shape: Shape, x: Array) -> None:
    """Checks that a copy of a trained model predicts the same: it has the arguments, the parameters and the buffers."""
    model = Sequential([copied(layer)], input_shape=in_shape, dtype="float64")
    fill(model.layers[0])
    model.forward(x, training=True)
    copied_net, net = model[:].network, model.network
    assert copied_net is not None and net is not None
    assert np.array_equal(copied_net.predict(x), net.predict(x), equal_nan=True), (
        f"{name}: a copy of a trained model predicts other numbers: the constructor must store its arguments as they "
        "are, and state must be in buffers (self.buffer)"
    )


def check_buffers(name: str, layer: Layer, in_shape: Shape, x: Array) -> None:
    """Checks that training writes into the buffers that build created: others are not part of the model's state."""
    net = build(layer, in_shape, "float64")
    leaves = list(iter_leaves(name, net.layers[0]))
    before = [(leaf.buffers.copy(), vars(leaf).copy()) for _, leaf in leaves]
    net.forward(x, THREADS)
    for (leaf_name, leaf), (buffers, attributes) in zip(leaves, before, strict=True):
        held = {k: v for k, v in attributes.items() if any(v is buffer for buffer in buffers.values())}
        replaced = [f"self.{key}" for key, value in held.items() if vars(leaf).get(key) is not value]
        replaced += [f"buffers[{key!r}]" for key, value in buffers.items() if leaf.buffers.get(key) is not value]
        assert not replaced, (
            f"{leaf_name}: training replaces the array in {', '.join(replaced)}; "
            "it must write into the buffer ([...] = )"
        )


def draws(net: Network) -> bool:
    """Returns True if the layer drew random numbers in NumPy in its last training forward.

    Those depend on the batch. Random numbers of a kernel belong to an example (`rows` in op.h) and need no exception.
    """
    return any(used_rng(leaf) for leaf in net.layers[0].leaves())
