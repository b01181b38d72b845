"""Odd arrays for the array arguments of quantize and of a QuantizedModel: see tests/test_array_arguments.py."""

import numpy as np
import pytest
from odd_arrays import KINDS
from test_array_arguments import ENTRIES, SHAPE, X, check_kind, without_trainer

from minidl import Sequential, quantize
from minidl.layers import Conv2D, Dense, Flatten, ReLU

MODEL = Sequential([Conv2D(3, 3), ReLU(), Flatten(), Dense(3)], SHAPE)
QUANTIZED = quantize(MODEL, X)


def numbers_of_program(X):
    program = quantize(MODEL, X).program
    made = [(value.quantization.scale, value.quantization.zero_point) for value in program.values]
    return made, [operation.weights for operation in program.operations]


ARGUMENTS = {
    "quantizing.quantize:X": (X, numbers_of_program),
    "model.QuantizedModel.quantize_input:X": (X, QUANTIZED.quantize_input),
    "model.QuantizedModel.predict_int8:X": (X, QUANTIZED.predict_int8),
    "model.QuantizedModel.predict_int8:X, quantized": (
        X.astype(np.int8),
        lambda q: QUANTIZED.predict_int8(q, quantized=True),
    ),
}


@pytest.fixture(scope="module", autouse=True)
def entries():
    added = {name: (valid, without_trainer(call)) for name, (valid, call) in ARGUMENTS.items()}
    ENTRIES.update(added)
    yield
    for name in added:
        del ENTRIES[name]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ARGUMENTS)
def test_odd_arrays(name, kind):
    if (name, kind) != ("quantizing.quantize:X", "huge"):  # any number of examples calibrates
        check_kind(name, kind)
