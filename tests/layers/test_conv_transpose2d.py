"""ConvTranspose2D: shapes, parameters and arguments; it inverts a Conv2D's change of shape."""

import numpy as np
import pytest

from minidl import Sequential
from minidl.layers import Conv2D, ConvTranspose2D


def build_model(layer, shape=(4, 8, 8), **options):
    return Sequential([layer], input_shape=shape, **options)


@pytest.mark.parametrize("size", [(8, 8), (9, 12), (7, 10)])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 2, 1), (4, 2, 1), ((2, 3), (3, 1), 0), (5, 1, 2)])
def test_restores_the_input_size_of_a_convolution(size, kernel, stride, padding):
    conv = Conv2D(3, kernel, stride, padding)
    build_model(conv, (2, *size))
    steps = stride if isinstance(stride, tuple) else (stride, stride)
    back = ConvTranspose2D(2, kernel, stride, padding)
    build_model(back, conv.out_shape)
    extra = tuple(n - m for n, m in zip(size, back.out_shape[1:], strict=True))
    assert all(0 <= e < s for e, s in zip(extra, steps, strict=True))
    transposed = ConvTranspose2D(2, kernel, stride, padding, output_padding=extra)
    build_model(transposed, conv.out_shape)
    assert transposed.out_shape == (2, *size)


def test_parameters_match_pytorch():
    model = build_model(ConvTranspose2D(6, (5, 3), groups=2))
    assert list(model.params) == ["0.weight", "0.bias"]
    assert model.params["0.weight"].value.shape == (4, 3, 5, 3)
    bias = model.params["0.bias"].value
    assert not bias.any() and bias.shape == (6,)
    assert list(build_model(ConvTranspose2D(6, 3, use_bias=False)).params) == ["0.weight"]


@pytest.mark.parametrize(("kernel", "stride"), [(4, 2), (3, 1), (2, 2), (6, 3)])
def test_initial_outputs_are_as_large_as_the_inputs(kernel, stride, rng):
    """He: a variance of 2 / fan-in preserves the scale after a ReLU for any stride, where the layer does not narrow."""
    model = build_model(ConvTranspose2D(64, kernel, stride), (64, 12, 12))
    y = model.predict(np.maximum(rng.normal(size=(16, 64, 12, 12)), 0))
    assert 0.8 < y[:, :, 6:-6, 6:-6].var() < 1.25


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"filters": 0}, ValueError, "filters.*at least 1, got 0"),
        ({"filters": None}, TypeError, "filters.*got None"),
        ({"kernel_size": 0}, ValueError, "kernel_size.*got 0"),
        ({"kernel_size": (3, 3, 3)}, ValueError, r"kernel_size.*pair, got \(3, 3, 3\)"),
        ({"stride": -1}, ValueError, "stride.*got -1"),
        ({"padding": "same"}, TypeError, "padding.*integer, got 'same'"),
        ({"padding": -1}, ValueError, "padding.*at least 0, got -1"),
        ({"padding": 5}, ValueError, r"padding: expected to keep at least 1 x 1, got \(5, 5\), which keeps 0 x 0"),
        ({"output_padding": 1}, ValueError, r"output_padding: expected less than the stride \(1, 1\) or the dilation"),
        ({"output_padding": (2, 0), "stride": 2}, ValueError, r"output_padding.*got \(2, 0\)"),
        ({"output_padding": -1}, ValueError, "output_padding.*got -1"),
        ({"dilation": 0}, ValueError, "dilation.*got 0"),
        ({"groups": 3}, ValueError, "groups: expected a divisor of 4 input channels and 4 filters, got 3"),
        ({"groups": 2, "filters": 5}, ValueError, "5"),
        ({"use_bias": 1}, TypeError, "use_bias: expected True or False, got 1"),
    ],
    ids=str,
)
def test_invalid_arguments(arguments, error, message):
    with pytest.raises(error, match=rf"layer 0, ConvTranspose2D.*\(4, 8, 8\).*(?:{message})"):
        build_model(ConvTranspose2D(**{"filters": 4, "kernel_size": 3} | arguments))


@pytest.mark.parametrize("shape", [(8,), (8, 8), (1, 8, 8, 8)])
def test_needs_an_image(shape):
    with pytest.raises(ValueError, match=r"layer 0, ConvTranspose2D.*expected \(channels, height, width\)"):
        build_model(ConvTranspose2D(2, 3), shape)


@pytest.mark.oracle
def test_weights_can_be_moved_to_pytorch(rng):
    import torch

    model = build_model(ConvTranspose2D(6, 3, 2, 1, output_padding=1, groups=2), dtype="float64")
    twin = torch.nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1, groups=2).double()
    twin.load_state_dict({name.partition(".")[2]: torch.tensor(a) for name, a in model.state_dict().items()})
    x = rng.normal(size=(5, 4, 8, 8))
    np.testing.assert_allclose(model.predict(x), twin(torch.tensor(x)).detach().numpy(), atol=1e-12)


def test_initial_outputs_with_a_non_square_stride(rng):
    """Of 6 x 2 taps with stride (3, 1) an output sees 2 x 2: 4 of 12."""
    model = build_model(ConvTranspose2D(64, (6, 2), (3, 1)), (64, 12, 12))
    y = model.predict(np.maximum(rng.normal(size=(16, 64, 12, 12)), 0))
    assert 0.8 < y[:, :, 6:-6, 3:-3].var() < 1.25
