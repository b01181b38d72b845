"""Exported layers and models compute the bits of predict."""

import numpy as np
import pytest
from c_export.compiled import Compiled, same_bits
from c_export.models import random_model, randomize
from contract.every_layer import DRAWS
from slow_marks import slow_after

from minidl import Sequential, layers
from minidl.c_export.writers import WRITE_FUNCTIONS
from minidl.layers import Block, Conv2D, Dense, Flatten, Parallel, ReLU, Residual, SqueezeExcite

NATIVE = ("-O2", "-march=native")
each_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


def check(model, X, folder, *flags, **arguments):
    exported = Compiled(model, folder, *flags, **arguments)
    assert same_bits(exported.predict(X), model.predict(X)), exported.source.read_text()[-3000:]
    assert exported.test() == 0


def test_every_layer_is_written_or_a_container():
    assert {getattr(layers, name) for name in layers.__all__} - set(WRITE_FUNCTIONS) == {
        Block, Parallel, Residual, SqueezeExcite,
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(DRAWS))
@pytest.mark.parametrize("number", slow_after(1, range(4)))
@each_dtype
def test_layer_has_the_bits_of_predict(name, number, dtype, tmp_path):
    rng = np.random.default_rng([number, *name.encode()])
    case = DRAWS[name](rng)
    model = randomize(Sequential([case.layer], input_shape=case.in_shape, dtype=dtype), rng)
    X = case.values(rng, (3, *case.in_shape)).astype(dtype)
    check(model, X, tmp_path, *(NATIVE if number % 2 else ()))


@pytest.mark.parametrize("number", slow_after(6, range(40)))
@each_dtype
def test_random_model_has_the_bits_of_predict(number, dtype, tmp_path):
    model, draw = random_model(np.random.default_rng(number), dtype)
    check(model, draw(3), tmp_path, *(NATIVE if number % 2 else ()))


@pytest.mark.parametrize("flags", [("-O1",), NATIVE, ("-O1", "-DSOFT_FMA")])
@pytest.mark.parametrize("shape", [(16, 8, 8), (48, 9, 13), (32, 16, 8)])
@each_dtype
def test_winograd(shape, flags, dtype, tmp_path, rng):
    layer = Conv2D(32, 3, padding="same")
    model = randomize(Sequential([layer, ReLU()], input_shape=shape, dtype=dtype), rng)
    assert layer.uses_winograd
    check(model, rng.standard_normal((2, *shape)).astype(dtype), tmp_path, *flags)


@each_dtype
def test_software_fma_gives_the_same_bits(dtype, tmp_path, rng):
    model = randomize(Sequential([Conv2D(5, 3), ReLU(), Flatten(), Dense(4)], input_shape=(2, 9, 9), dtype=dtype), rng)
    check(model, rng.standard_normal((5, 2, 9, 9)).astype(dtype), tmp_path, "-O1", "-DSOFT_FMA")


@each_dtype
def test_extreme_values(dtype, tmp_path, rng):
    """Subnormal results are zeros; sums become infinite and NaN."""
    model = randomize(Sequential([Conv2D(3, 3), layers.GELU(), layers.Softmax()], (2, 5, 5), dtype=dtype), rng)
    X = rng.standard_normal((60, 2, 5, 5)).astype(dtype)
    X[:20] *= np.finfo(dtype).tiny * 4
    X[20:40] *= np.finfo(dtype).max / 16  # the largest of them is finite
    with np.errstate(all="ignore"):
        check(model, X, tmp_path)
        check(model, X, tmp_path, *NATIVE)


def test_bytes_are_converted(tmp_path, rng):
    model = randomize(Sequential([layers.Rescale(1 / 255), Conv2D(4, 3), Flatten(), Dense(3)], (3, 6, 7)), rng)
    X = rng.integers(0, 256, (4, 3, 6, 7)).astype("uint8")
    exported = Compiled(model, tmp_path)
    assert same_bits(exported.predict(X, "predict_uint8"), model.predict(X))
