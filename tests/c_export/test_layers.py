"""Exported layers and models compute the bits of predict."""

import numpy as np
import pytest
from c_export.compiled import Compiled, compile_c, same_bits
from c_export.models import random_model, randomize
from contract.every_layer import DRAWS, WRITTEN_AS_LAYERS
from slow_marks import slow, slow_after

import minidl
from minidl import Sequential, layers
from minidl.c_export import HAS_FMA
from minidl.c_export.writers import WRITE_FUNCTIONS
from minidl.engine.layer_list import from_spec, to_spec
from minidl.layers import (
    BatchNorm2D,
    Conv2D,
    Dense,
    Embedding,
    Flatten,
    Outputs,
    Parallel,
    ReLU,
    Rescale,
)

pytestmark = pytest.mark.skipif(not HAS_FMA, reason="the bits of predict differ without fused multiply-add")
NATIVE = ("-O2", "-march=native")
each_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])
first_dtype = pytest.mark.parametrize("dtype", slow_after(1, ["float32", "float64"]))


def check(model, X, folder, *flags, **arguments):
    exported = Compiled(model, folder, *flags, **arguments)
    assert same_bits(exported.predict(X), model.predict(X)), exported.source.read_text()[-3000:]
    assert exported.test() == 0


def test_every_layer_is_written_or_a_container():
    assert {name for name in DRAWS if getattr(layers, name) not in WRITE_FUNCTIONS} == WRITTEN_AS_LAYERS


@pytest.mark.parametrize("name", sorted(DRAWS))
@pytest.mark.parametrize("number", slow_after(1, range(4)))
@each_dtype
def test_layer_has_the_bits_of_predict(name, number, dtype, tmp_path):
    rng = np.random.default_rng([number, *name.encode()])
    case = DRAWS[name](rng)
    model = randomize(Sequential([case.layer], input_shape=case.in_shape, dtype=dtype), rng)
    X = case.values(rng, (3, *case.in_shape)).astype(dtype)
    check(model, X, tmp_path, *(NATIVE if number % 2 else ()))


@each_dtype
@pytest.mark.parametrize("first", [layers.Reciprocal, layers.Flatten])
def test_powers_of_all_numbers_have_the_bits_of_predict(first, dtype, tmp_path):
    """Reciprocals of zeros are infinities."""
    rng = np.random.default_rng(0)
    numbers = [0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, -3, 1e-30, 1e30, -1e30, 16777215, 1 / 3, 1 / 8, 2.0**53]
    x = [*np.stack(np.meshgrid(numbers, numbers), -1).reshape(-1, 2), *rng.standard_normal((2000, 2)) * (2, 30)]
    x += [*np.exp(rng.standard_normal((2000, 2)) * (3, 2))]
    branches = [[layers.Columns(i, i + 1), first()] for i in (0, 1)]
    check(Sequential([Parallel(*branches, join="power")], (2,), dtype=dtype), np.asarray(x, dtype), tmp_path)


@pytest.mark.parametrize("number", slow_after(6, range(40)))
@each_dtype
def test_random_model_has_the_bits_of_predict(number, dtype, tmp_path):
    model, draw = random_model(np.random.default_rng(number), dtype)
    check(model, draw(3), tmp_path, *(NATIVE if number % 2 else ()))


@pytest.mark.parametrize("flags", [("-O1",), NATIVE, ("-O1", "-DSOFT_FMA")])
@pytest.mark.parametrize("shape", [(48, 9, 13), (32, 3, 2), *slow([((16, 8, 8),), ((32, 16, 8),), ((80, 1, 1),)])])
@first_dtype
def test_winograd(shape, flags, dtype, tmp_path, rng):
    layer = Conv2D(32, 3, padding="same", algorithm="winograd")
    model = randomize(Sequential([layer, ReLU()], input_shape=shape, dtype=dtype), rng)
    assert layer.uses_winograd
    check(model, rng.standard_normal((2, *shape)).astype(dtype), tmp_path, *flags)


@pytest.mark.parametrize("flags", [("-O1",), NATIVE, ("-O1", "-DSOFT_FMA")], ids=" ".join)
@each_dtype
def test_norms_of_numbers_whose_squares_overflow(flags, dtype, tmp_path, rng):
    norms = [layers.LayerNorm(), layers.LayerNorm(axis="channels", eps=1e30), layers.RMSNorm(axis="channels")]
    branches = Parallel(*([norm] for norm in (*norms, layers.RMSNorm(), layers.GroupNorm(2), layers.GroupNorm(6))))
    model = randomize(Sequential([branches], input_shape=(6, 3, 3), dtype=dtype), rng)
    largest = float(np.finfo(dtype).max)
    sizes = np.array([1, largest**0.25, largest**0.51, largest**0.75, largest, np.inf]).reshape(-1, 1, 1, 1)
    X = (np.minimum(sizes, largest) * rng.uniform(-1, 1, (6, 6, 3, 3))).astype(dtype)
    X[5] *= rng.integers(0, 2, (6, 3, 3))
    check(model, X, tmp_path, *flags)


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


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("size", [(8, 2), (2, 7), (7, 8)], ids=str)
def test_the_centre_of_a_crop_that_is_larger_than_the_image(size, mode, tmp_path, rng):
    model = Sequential([layers.RandomCrop(size, padding=2, mode=mode)], input_shape=(3, 4, 5))
    check(model, rng.standard_normal((3, 3, 4, 5)).astype("f4"), tmp_path)


@pytest.mark.parametrize("layer", [layers.Normalize([1.0, 2.0], [0.0, 2.0]), layers.Columns(-1)], ids=["std", "start"])
def test_numbers_with_a_meaning_of_their_own(layer, tmp_path, rng):
    """A deviation of 0 divides by 1, a negative start counts from the end."""
    check(Sequential([layer], input_shape=(2, 3, 3)), rng.standard_normal((3, 2, 3, 3)).astype("f4"), tmp_path)


@each_dtype
@pytest.mark.parametrize("flags", [NATIVE, ("-O2", "-U__SSE2__")], ids=["mode of the processor", "without"])
def test_places_in_bins_of_special_numbers(flags, dtype, tmp_path):
    """NaN, infinities, edges and subnormal numbers, which are zeros; among them an edge and a difference from one."""
    tiny = float(np.finfo(dtype).tiny)
    edges = [[-2, 0.1, 3], [], [tiny / 4, tiny, 2.5 * tiny]]
    model = Sequential([layers.PiecewiseLinearEncoding(edges, [True, True, False])], input_shape=(3,), dtype=dtype)
    numbers = [np.nan, np.inf, -np.inf, 0.0, -0.0, -2, 0.1, 0.7, 3, 4, tiny / 2, tiny, 1.7 * tiny, -3 * tiny, 1e9]
    X = np.array(numbers, dtype)[:, np.newaxis].repeat(3, axis=1)
    exported = Compiled(model, tmp_path, *flags)
    assert same_bits(exported.predict(X), model.network.predict(X))


@each_dtype
@pytest.mark.parametrize("flags", [NATIVE, ("-O2", "-U__SSE2__")], ids=["mode of the processor", "without"])
def test_one_hot_rows_of_special_numbers(flags, dtype, tmp_path):
    """Categories of bytes and more; numbers that are none; subnormal ones, which are category 0, also from a layer."""
    model = Sequential([layers.OneHot([300, 1, 3])], input_shape=(3,), dtype=dtype)
    numbers = [0, 1, 2, 3, 255, 299, 300, -0.0, -1, 0.5, 1e30, np.finfo(dtype).tiny / 2, np.nan, np.inf, -np.inf]
    X = np.array(numbers, dtype)[:, np.newaxis].repeat(3, axis=1)
    exported = Compiled(model, tmp_path, *flags)
    assert same_bits(exported.predict(X), model.network.predict(X))
    model = Sequential([Embedding(2, 1), Flatten(), layers.OneHot(2)], input_shape=(1,), dtype=dtype)
    model.layers[0].weight.value[...] = [[np.finfo(dtype).tiny / 2], [1]]
    assert model.predict([[0], [1]]).tolist() == [[1, 0], [0, 1]]
    check(model, np.array([[0], [1]], dtype), tmp_path, *flags)


def test_bytes_are_converted(tmp_path, rng):
    model = randomize(Sequential([layers.Rescale(1 / 255), Conv2D(4, 3), Flatten(), Dense(3)], (3, 6, 7)), rng)
    X = rng.integers(0, 256, (4, 3, 6, 7)).astype("uint8")
    exported = Compiled(model, tmp_path)
    assert same_bits(exported.predict(X, "predict_uint8"), model.predict(X))


SUBNORMAL = [
    ([Conv2D(16, 3, padding=1)], (16, 8, 8), {"0.weight": 1e-39}),
    ([Conv2D(16, 3, padding=1)], (16, 8, 8), {"0.weight": 1.1e-38}),
    ([Conv2D(16, 3, padding=1)], (16, 8, 8), {"0.weight": 3e-308}, "float64"),  # Winograd's terms are subnormal
    ([BatchNorm2D()], (2, 3, 3), {"0.weight": 1e-39, "0.running_var": 0}),
    ([BatchNorm2D()], (2, 3, 3), {"0.running_mean": 1e-39, "0.bias": 1e-40}),
    ([Embedding(3, 2)], (4,), {"0.weight": 1e-40}),
    ([Dense(3)], (4,), {"0.weight": 1e-40, "0.bias": 1e-40}),
    ([layers.Threshold(0.5, 1e-40)], (4,), {}),
    ([layers.Hardtanh(1e-40, 1.0)], (4,), {}),
    ([layers.LeakyReLU(1e-39), layers.Rescale(1e10)], (4,), {}),
    ([layers.Pad2D(1, 1e-40)], (1, 2, 2), {}),
]


@pytest.mark.parametrize("case", range(len(SUBNORMAL)))
@pytest.mark.parametrize("flags", [NATIVE, ("-O2",), *slow([(("-O2", "-mfma"),), (("-O2", "-DSOFT_FMA"),)])])
def test_subnormal_parameters(case, flags, tmp_path, rng):
    chain, shape, values, dtype = (*SUBNORMAL[case], "float32")[:4]
    model = Sequential(from_spec(to_spec(chain)), input_shape=shape, dtype=dtype)
    state = model.state_dict()
    for name, value in values.items():
        state[name][...] = value
    model.load_state_dict(state)
    X = rng.integers(0, 3, (3, *shape)).astype(dtype) * np.float32(1 if isinstance(chain[0], Embedding) else 1e10)
    check(model, X, tmp_path, *flags)


@pytest.mark.parametrize("flags", [NATIVE, ("-O2", "-U__SSE2__")], ids=["mode of the processor", "without"])
def test_subnormal_inputs_are_zeros(flags, tmp_path):
    model = Sequential([Dense(1, use_bias=False)], input_shape=(1,))
    model.layers[0].weight.value[...] = 1e10
    X = np.array([[1e-39], [-1e-39], [1e-30]], "f4")
    check(model, X, tmp_path, *flags)


@pytest.mark.parametrize(
    "flags",
    [
        ("-std=gnu17", "-O3", "-march=native"),
        ("-std=gnu17", "-O3", "-march=sapphirerapids", "-c"),
        ("-O2", "-march=native", "-masm=intel"),
        ("-std=gnu17", "-O2"),
    ],
)
def test_dialects(flags, tmp_path, rng):
    """gcc's own dialect contracts by default, and computes half precision with more digits."""
    model = randomize(Sequential([Rescale(0.3, 0.1), Conv2D(20, 3), ReLU(), Flatten(), Dense(4)], (2, 9, 9)), rng)
    if "-c" in flags:
        minidl.export_c(model, tmp_path / "net.c")
        compile_c(tmp_path / "net.c", *flags)
    else:
        check(model, rng.standard_normal((3, 2, 9, 9)).astype("f4"), tmp_path, *flags)


@each_dtype
def test_software_fma_has_no_undefined_behaviour(dtype, tmp_path, rng):
    model = randomize(Sequential([Conv2D(5, 3), layers.GELU(), Flatten(), Dense(4)], (2, 7, 7), dtype=dtype), rng)
    X = rng.standard_normal((3, 2, 7, 7)).astype(dtype) * np.array([1, 1e-30, 1e30], dtype)[:, None, None, None]
    with np.errstate(all="ignore"):
        check(model, X, tmp_path, "-O1", "-DSOFT_FMA", "-fsanitize=undefined", "-fno-sanitize-recover=all")


def test_no_function_is_left_unused(tmp_path):
    """Of the software functions, too."""
    Compiled(Sequential([layers.ReLU6()], input_shape=(3,), dtype="float64"), tmp_path, "-O1", "-DSOFT_FMA")


@each_dtype
def test_several_outputs_have_an_array_each(dtype, tmp_path):
    branches = {"policy": [Flatten(), Dense(5)], "mask": Conv2D(2, 3, padding=1), "seen": [], "wind speed": [Flatten()]}
    model = Sequential([Conv2D(4, 3, padding=1), ReLU(), Outputs(**branches)], (3, 6, 5), dtype=dtype)
    X = np.random.default_rng(0).standard_normal((3, 3, 6, 5)).astype(dtype)
    expected = model.predict(X)
    for arguments in ({}, {"weights": "inc", "header": True}):
        exported = Compiled(model, tmp_path, **arguments)
        found = exported.predict(X)
        assert all(same_bits(found[name], expected[name]) for name in expected)
        assert exported.test() == 0
    text = exported.source.read_text()
    real = {"float32": "float", "float64": "double"}[dtype]
    assert f"_predict(const {real} *x, {real} *policy, {real} *mask, {real} *seen, {real} *output_3)" in text
    assert "policy: (5,); mask: (2, 6, 5); seen: (4, 6, 5); output_3: (120,)" in text.replace("\n * ", " ")
    with pytest.raises(ValueError, match="softmax: expected a model of one output"):
        Compiled(model, tmp_path, softmax=True)


def test_names_of_outputs_that_c_cannot_tell_apart(tmp_path):
    """Macros are written in capitals; a comment may not end early."""
    names = {"Policy": 9, "policy": 2, "xor": 3, "Output_1": 4, "*/\n": 5}
    minidl.export_c(
        Sequential([Outputs(**{k: Dense(n) for k, n in names.items()})], (2,)), tmp_path / "q.c", header=True
    )
    compile_c(tmp_path / "q.c", "-c")
    header = (tmp_path / "q.h").read_text()
    found = dict(line.split()[1:] for line in header.splitlines() if "#define Q_OUTPUTS_" in line)
    assert found == {"Q_OUTPUTS_POLICY": "9", **{f"Q_OUTPUTS_OUTPUT_{i}": str(i + 1) for i in (1, 2, 3, 4)}}
    explained = [line for line in header.splitlines() if " is the output " in line]
    quoted = ("'policy'", "'xor'", "'Output_1'", r"'* /\n'")
    assert explained == [f"/* output_{i} is the output {name}. */" for i, name in enumerate(quoted, 1)]
