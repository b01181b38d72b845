"""Every layer becomes integers within half a step of its float function, or is refused by name."""

import numpy as np
import pytest
from c_export.models import random_model, randomize
from contract.every_layer import DRAWS, RECURRENT
from quantized_models import check_operations, input_on_grid, on_grid
from slow_marks import slow_after

from minidl import Sequential, layers, quantize
from minidl.quantization.rules import TRANSLATIONS
from minidl.quantization.translation import CONTAINERS

REFUSED = {
    *("ConvTranspose1D", "ConvTranspose2D", "GroupNorm", "LayerNorm", "RMSNorm", "LocalResponseNorm"),
    *("Embedding", "OneHot", "PiecewiseLinearEncoding", "Softmax", "Softmin", "LogSoftmax"),
    *RECURRENT,
}
QUANTIZED = sorted(set(DRAWS) - REFUSED)
SOME = ("expected mode='nearest'", "expected dilation=1", "expected function=", "expected join=")


def test_every_layer_is_translated_or_listed():
    known = {*TRANSLATIONS, *CONTAINERS}
    assert {name for name in DRAWS if getattr(layers, name) not in known} == REFUSED


def quantized_or_refused(model, X):
    """Checks the operations; returns whether an argument of a layer was refused, by name."""
    try:
        check_operations(model, X)
    except ValueError as error:
        message = str(error)
        assert message.startswith("layer ")
        assert any(part in message for part in SOME) or "got NaN or infinity" in message, message
        return True
    return False


def drawn(name, number, dtype):
    rng = np.random.default_rng([number, *name.encode()])
    case = DRAWS[name](rng)
    model = on_grid(randomize(Sequential([case.layer], input_shape=case.in_shape, dtype=dtype), rng))
    zero_point = -30 if case.values(rng, (100,)).min() < 0 else -129  # of positive numbers
    return model, input_on_grid(rng, (3, *case.in_shape), zero_point=zero_point)


@pytest.mark.parametrize("name", QUANTIZED)
def test_layer(name):
    refused = [quantized_or_refused(*drawn(name, number, ["float32", "float64"][number % 2])) for number in range(4)]
    assert not all(refused)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_layer_is_refused_by_name(name):
    case = DRAWS[name](np.random.default_rng(0))
    model = Sequential([layers.Flatten(), layers.Reshape(case.in_shape), case.layer], input_shape=case.in_shape)
    with pytest.raises(ValueError, match=f"^layer 2, {name}: expected a layer that integers can compute"):
        quantize(model, np.random.default_rng(0).random((3, *case.in_shape)))


@pytest.mark.parametrize("number", slow_after(40, range(300)))
def test_random_model(number):
    """Chains of up to eight layers, whose parts are folded, clipped and composed."""
    rng = np.random.default_rng(number)
    model, draw = random_model(rng, "float32", names=QUANTIZED)
    X = draw(4)
    if X.min() < X.max():
        quantized_or_refused(on_grid(model), X)
