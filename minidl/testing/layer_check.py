"""check_layer: a test of the layer contract, for built-in layers and your own."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from minidl.engine.network import Network
from minidl.layers.base import Layer
from minidl.layers.param import Param
from minidl.testing.batch_contract import check_neighbours, check_rows, check_sums
from minidl.testing.finite_differences import Function, check_gradient, check_ties
from minidl.testing.inference_contract import check_draws
from minidl.testing.layer_contract import (
    ATOL,
    RTOL,
    THREADS,
    TWO_TILES,
    build,
    check_buffers,
    check_copies,
    check_dtypes,
    check_float32,
    check_inference,
    check_moved_pixels,
    check_random_numbers,
    check_shapes,
    check_survival,
    freeze,
)
from minidl.testing.layout_contract import check_layouts
from minidl.testing.samples import Samples
from minidl.utils.arrays import Array
from minidl.utils.hints import class_hint
from minidl.utils.validation import Shape, check_bool, check_count, check_shape
from minidl_c.runtime.threads import set_thread_choice

BATCH = 3


def check_layer(
    layer: Layer, in_shape: Shape, couples_examples: bool = False, seed: int = 0, x: ArrayLike | None = None
) -> None:
    """Checks the layer contract and the gradients of a layer; raises AssertionError naming what is wrong.

    The layer itself is not changed: copies are created from its config, and built for float64 (and once for float32).
    These are the checks:

    - The output has the shape that `build` returned, and the model's dtype. x and dy are not written to.
    - Inference does not change the layer, and repeats exactly. Training writes into buffers in place.
    - Examples are independent, unless `couples_examples` (batch statistics) is set. Any batch size works, including 0
      and 1.
    - dx and the grad of every Param equal central differences in float64, for every element of every example. At a kink
      or a tie, the element is moved and must be right on both sides; a layer with kinks everywhere fails. The dx of
      equal inputs sum to the slope of moving them together: a maximum must not give its gradient to each of them.
    - A second backward overwrites. Gradients do not change if dx is not needed, if an inference comes in between, or
      with other ops before and after the layer.
    - Random numbers from `self.rng` repeat. Buffers are reset before each training forward to the values from `build`,
      so that layers with random numbers or state are checked like any other.
    - A kernel that computes something else in training than in inference says so: it draws random numbers (`draws` of
      the op), or couples the examples. Its dx in inference, as `Sequential.input_gradient` computes it, equals central
      differences of predictions.
    - A layer in NumPy with `moves_pixels` copies pixels, or writes 0 for those from outside.
    - A kernel that kills the process (by writing dx where it is NULL) is reported: it is tried in a forked child first.
    - A layer with a kernel gives the same bits in both layouts, tiles and the blocked one of few examples, which are
      forced: predictions and training steps of 1 to 3 examples, on one thread and on three, in both dtypes. Besides the
      given shape, a wider one is tried if the layer accepts it: more than 16 channels, the second block not full.

    Parameters
    ----------
    layer : Layer
        The layer, which no model uses.
    in_shape : tuple of int
        Shape of one example.
    couples_examples : bool, default False
        Whether the outputs of an example depend on others, as with batch statistics.
    seed : int, default 0
        Determines inputs and initial weights.
    x : array-like of shape `(n, *in_shape)` or None, default None
        Examples whose rows are used, in the model's dtype as always; for an embedding, integers. None: normally
        distributed numbers. For integers (by the dtype of `x`) dx is not compared with differences, because there are
        no values in between; parameters' gradients are.

    Raises
    ------
    AssertionError
        If the layer breaks the contract.
    TypeError, ValueError
        If an argument is invalid.

    Examples
    --------
    >>> from minidl import Layer
    >>> from minidl.layers import Dense
    >>> from minidl.testing import check_layer
    >>> check_layer(Dense(2), (3,))
    >>> class Double(Layer):
    ...     def forward(self, x, training):
    ...         return 2 * x
    ...     def backward(self, dy):
    ...         return dy
    >>> check_layer(Double(), (3,))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    AssertionError: Double: dx[0, 0]: expected ... (finite differences), got ..., a relative error of 0.5, at ...
    """
    if not isinstance(layer, Layer):
        raise TypeError(f"layer: expected a Layer, got {layer!r}{class_hint(layer)}")
    name, couples_examples = type(layer).__name__, check_bool("couples_examples", couples_examples)
    in_shape, rng = check_shape("in_shape", in_shape), np.random.default_rng(check_count("seed", seed))
    net = build(layer, in_shape, "float64")
    samples = Samples(in_shape, rng, x)
    chooses = set_thread_choice(False)
    try:
        _check(name, layer, net, samples, freeze(samples.few(BATCH)), couples_examples)
    finally:
        set_thread_choice(chooses)


def _check(name: str, layer: Layer, net: Network, samples: Samples, x: Array, couples_examples: bool) -> None:
    rng = samples.rng
    check_survival(name, layer, samples.shape)
    check_shapes(name, layer, samples)
    check_dtypes(name, layer, x)
    check_buffers(name, layer, samples.shape, x)
    check_inference(name, net, x)
    check_copies(name, layer, samples.shape, x)
    check_random_numbers(name, net, x)
    check_moved_pixels(name, net, samples.shape)
    if not couples_examples:
        check_rows(name, net, samples, x)
        check_rows(name, net, samples, freeze(samples.many(TWO_TILES)))
    dy = freeze(rng.standard_normal((BATCH, *net.layers[0].out_shape)))
    dx, grads = _gradients(name, net, x, dy)
    _check_overwrites(name, net, x, dy, dx, grads)
    _check_uses(name, net, samples, x, dy, dx, grads)
    if not couples_examples:
        _check_gradient_rows(name, net, x, dy, dx)
    if not samples.integers:
        check_gradient(_function_of_x(f"{name}: dx", net, x, dy, couples_examples), rng)
        tied = freeze(samples.tied(BATCH))
        check_ties(_function_of_x(f"{name}: dx", net, tied, dy, couples_examples))
    for key, param in net.layers[0].params.items():
        initial = np.array(param.value)
        check_gradient(_function_of_param(f"{name}: the grad of {key!r}", net, param, x, dy), rng)
        param.value = initial
    if not couples_examples:
        check_sums(name, net, samples)
    check_float32(name, layer, x, dy)
    check_neighbours(name, layer, samples)
    check_layouts(name, layer, samples)
    check_draws(name, layer, samples)


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
        assert not others.any(), f"{name}: backward adds example {i} to the dx of other examples"
        assert np.allclose(alone[i], dx[i], RTOL, ATOL), f"{name}: the dx of example {i} changes with the dy of others"


def _gradients(name: str, net: Network, x: Array, dy: Array) -> tuple[Array, dict[str, Array]]:
    copies = np.array(x), np.array(dy)
    tape = net.forward(x, THREADS)[1]
    for param in net.layers[0].params.values():
        param.grad = np.full(param.value.shape, np.nan)
    dx = net.backward(tape, dy, want_dx=True)
    assert dx is not None
    assert np.array_equal(x, copies[0]), f"{name}: writes into x"
    assert np.array_equal(dy, copies[1]), f"{name}: backward writes into dy"
    grads = {key: np.array(param.grad) for key, param in net.layers[0].params.items()}
    for param in net.layers[0].params.values():  # the previous content must not matter
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
    """Checks the gradients of a first layer, which needs no dx, and after a prediction between forward and backward."""
    params = net.layers[0].params
    for condition, want_dx in (("if dx is not needed", False), ("if an inference comes in between", True)):
        tape = net.forward(x, THREADS)[1]
        if want_dx:
            net.predict(freeze(samples.unlike(x)), THREADS)
        for param in params.values():
            param.grad = np.full(param.value.shape, np.nan)
        repeated = net.backward(tape, dy, want_dx)
        assert repeated is None or np.allclose(repeated, dx, RTOL, ATOL), f"{name}: dx changes {condition}"
        for key, param in params.items():
            assert np.allclose(param.grad, grads[key], RTOL, ATOL), f"{name}: the grad of {key!r} changes {condition}"


def _check_overwrites(name: str, net: Network, x: Array, dy: Array, dx: Array, grads: dict[str, Array]) -> None:
    repeated = net.backward(net.forward(x, THREADS)[1], dy, want_dx=True)
    assert repeated is not None and np.allclose(repeated, dx, RTOL, ATOL), f"{name}: a second backward gives another dx"
    for key, param in net.layers[0].params.items():
        assert np.allclose(param.grad, grads[key], RTOL, ATOL), (
            f"{name}: a second backward does not overwrite the grad of {key!r} (does it accumulate?)"
        )
