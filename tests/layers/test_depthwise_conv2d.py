"""DepthwiseConv2D: shapes, parameters and arguments; a Conv2D with one group per channel has the same weights."""

import numpy as np
import pytest

from minidl import Sequential
from minidl.layers import Conv2D, DepthwiseConv2D


def build_model(layer, shape=(4, 8, 8), **options):
    return Sequential([layer], input_shape=shape, **options)


@pytest.mark.parametrize("multiplier", [1, 3])
@pytest.mark.parametrize("padding", ["same", "valid", 1, (2, 0)], ids=str)
def test_equals_a_convolution_with_one_group_per_channel(padding, multiplier, rng):
    options = {"stride": (1, 2), "padding": padding, "dilation": (2, 1)}
    model = build_model(DepthwiseConv2D(3, **options, depth_multiplier=multiplier))
    twin = build_model(Conv2D(4 * multiplier, 3, **options, groups=4))
    twin.load_state_dict(model.state_dict())
    assert model.output_shape == twin.output_shape
    x, dy = rng.normal(size=(19, 4, 8, 8)), rng.normal(size=(19, *model.output_shape))
    assert model.forward(x, training=True).tobytes() == twin.forward(x, training=True).tobytes()
    assert model.backward(dy).tobytes() == twin.backward(dy).tobytes()
    for name, param in model.params.items():
        np.testing.assert_allclose(param.grad, twin.params[name].grad, rtol=1e-4, atol=1e-4)


def test_parameters_match_pytorch():
    model = build_model(DepthwiseConv2D((5, 3), depth_multiplier=2))
    assert list(model.params) == ["0.weight", "0.bias"]
    weight, bias = model.params["0.weight"].value, model.params["0.bias"].value
    assert weight.shape == (8, 1, 5, 3)
    assert np.abs(weight).max() <= np.sqrt(6 / 15)  # He: variance 2 / fan-in
    assert not bias.any() and bias.shape == (8,)
    assert list(build_model(DepthwiseConv2D(3, use_bias=False)).params) == ["0.weight"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"kernel_size": 0}, ValueError, "kernel_size.*got 0"),
        ({"kernel_size": "3"}, TypeError, "kernel_size.*got '3'"),
        ({"kernel_size": 9}, ValueError, "9.*8|8.*9"),
        ({"stride": 0}, ValueError, "stride.*got 0"),
        ({"padding": "full"}, ValueError, "padding.*'same'.*'full'"),
        ({"padding": -1}, ValueError, "padding.*at least 0, got -1"),
        ({"dilation": 0}, ValueError, "dilation.*got 0"),
        ({"depth_multiplier": 0}, ValueError, "depth_multiplier.*got 0"),
        ({"depth_multiplier": 1.5}, TypeError, "depth_multiplier.*got 1.5"),
        ({"use_bias": None}, TypeError, "use_bias: expected True or False, got None"),
    ],
    ids=str,
)
def test_invalid_arguments(arguments, error, message):
    with pytest.raises(error, match=rf"layer 0, DepthwiseConv2D.*\(4, 8, 8\).*(?:{message})"):
        build_model(DepthwiseConv2D(**{"kernel_size": 3} | arguments))


@pytest.mark.parametrize("shape", [(8,), (8, 8), (1, 8, 8, 8)])
def test_needs_an_image(shape):
    with pytest.raises(ValueError, match=r"layer 0, DepthwiseConv2D.*expected \(channels, height, width\)"):
        build_model(DepthwiseConv2D(3), shape)


@pytest.mark.oracle
def test_weights_can_be_moved_to_pytorch(rng):
    import torch

    model = build_model(DepthwiseConv2D(3, padding=1, depth_multiplier=2), dtype="float64")
    twin = torch.nn.Conv2d(4, 8, 3, padding=1, groups=4).double()
    twin.load_state_dict({name.partition(".")[2]: torch.tensor(a) for name, a in model.state_dict().items()})
    x = rng.normal(size=(5, 4, 8, 8))
    np.testing.assert_allclose(model.predict(x), twin(torch.tensor(x)).detach().numpy(), atol=1e-12)
