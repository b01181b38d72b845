"""Checks of gradients in inference: a kernel that draws random numbers says so, and its backward draws none there."""

from __future__ import annotations

import numpy as np

from minidl.engine.input_gradient import inference_network
from minidl.engine.network import Network
from minidl.engine.param_groups import differs_in_training
from minidl.layers.base import Layer
from minidl.testing.finite_differences import Function, check_gradient
from minidl.testing.layer_contract import ATOL, RTOL, THREADS, TWO_TILES, build, freeze, iter_leaves
from minidl.testing.samples import Samples
from minidl.utils.arrays import Array

STEPS = 5  # in which a kernel may draw
BATCH = 3


def check_draws(name: str, layer: Layer, samples: Samples) -> None:
    """Checks each kernel: if it differs in training, the gradient in inference; otherwise that it computes the same."""
    for leaf_name, leaf in iter_leaves(name, build(layer, samples.shape, "float64").layers[0]):
        net = build(leaf, leaf.in_shape, "float64")
        inputs = samples if leaf.in_shape == samples.shape else Samples(leaf.in_shape, samples.rng)
        if differs_in_training(leaf):
            _check_gradient(leaf_name, net, inputs)
        elif leaf.native:
            _check_same(leaf_name, net, freeze(inputs.many(TWO_TILES)))


def _check_same(name: str, net: Network, x: Array) -> None:
    expected = net.predict(x, THREADS)
    for number in range(STEPS):
        y = net.forward(x, THREADS, seed=number, step=number)[0]
        assert np.allclose(y, expected, RTOL, ATOL, equal_nan=True), (
            f"{name}: its kernel computes something else in training than in inference, so it must say that it draws "
            "random numbers (self.c.draws = 1): otherwise it draws them for gradients in inference, too"
        )


def _check_gradient(name: str, net: Network, samples: Samples) -> None:
    if samples.integers:
        return
    twin = inference_network("check_layer", net.layers, net.names, net.parameters)
    x, dy = samples.few(BATCH), freeze(samples.rng.standard_normal((BATCH, *net.layers[0].out_shape)))

    def output(values: Array) -> Array:
        return net.predict(freeze(values), THREADS)

    def gradient(values: Array) -> Array:
        dx = twin.backward(twin.forward(freeze(values), THREADS)[1], dy, want_dx=True)
        assert dx is not None
        return dx

    check_gradient(Function(f"{name}: dx in inference", x, output, gradient, dy, BATCH), samples.rng)
