"""export_c: what it writes, its options, what it refuses, and that it writes nothing then."""

import ctypes
import ctypes.util
import inspect
import re
import subprocess
import sys

import numpy as np
import pytest
from c_export.compiled import Compiled, compile_c, same_bits
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

import minidl
from minidl import Layer, Sequential, Trainer, __main__
from minidl.c_export import HAS_FMA, CodeWriter, comment
from minidl.estimators import SequentialClassifier, SequentialRegressor
from minidl.initializers import ones
from minidl.layers import Conv2D, Dense, Flatten, Outputs, Parallel, ReLU, Rescale, Sigmoid
from minidl.optimizers import SGD

pytestmark = pytest.mark.skipif(not HAS_FMA, reason="the bits of predict differ without fused multiply-add")
FAST_MATH = ("ffast-math", "funsafe-math-optimizations", "freciprocal-math", "Ofast")


@pytest.fixture
def model():
    return Sequential([Rescale(1 / 16), Conv2D(3, 3), ReLU(), Flatten(), Dense(4)], input_shape=(1, 8, 8), seed=1)


class Swish(Layer):
    """y = x * sigmoid(beta * x), with the polynomial of minidl's Sigmoid."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def build(self, in_shape):
        self.beta = self.param("beta", in_shape, ones)
        return in_shape

    def forward(self, x, training):
        sigmoid = Sequential([Sigmoid()], input_shape=x.shape[1:], dtype=x.dtype.name)
        return x * (x.dtype.type(self.scale) * sigmoid.predict(self.beta.value * x))

    def c_code(self, writer):
        assert isinstance(writer, CodeWriter)
        assert (writer.in_shape, writer.out_shape) == (self.in_shape, self.out_shape)
        beta, scale = writer.constant("beta", self.beta.value), writer.number(writer["scale"])
        return f"""
            EACH(i, {writer.size}) {{
              const real s = real_sigmoid(flush({beta}[i] * x[i]));
              y[i] = flush(x[i] * flush({scale} * s));
            }}"""


class Bare(Layer):
    """The identity, without C."""

    def forward(self, x, training):
        return x


# ---- options


@pytest.mark.parametrize("weights", ["text", "inc"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weights_in_a_file_of_their_own(weights, dtype, tmp_path, rng):
    model = Sequential([Conv2D(3, 3), Flatten(), Dense(4)], input_shape=(2, 5, 5), dtype=dtype)
    X = rng.standard_normal((3, 2, 5, 5)).astype(dtype)
    exported = Compiled(model, tmp_path, weights=weights)
    assert same_bits(exported.predict(X), model.predict(X))
    assert exported.source.with_suffix(".inc").exists() == (weights == "inc")


def test_arena_as_an_argument(model, tmp_path, rng):
    """The header declares what the file defines; the arena is as large as it says, and its content is free."""
    minidl.export_c(model, tmp_path / "net.c", arena="argument", header=True)
    main = tmp_path / "main.c"
    main.write_text("""
        #include <stdio.h>
        #include "net.h"
        static float x[NET_INPUTS], scores[NET_OUTPUTS], arena[NET_ARENA];
        int main(void) {
          for (int i = 0; i < NET_ARENA; i++) arena[i] = 1e30f;
          fread(x, sizeof x, 1, stdin);
          net_predict(x, scores, arena);
          fwrite(scores, sizeof scores, 1, stdout);
          return net_test();
        }
        #include "net.c"
    """)
    program = compile_c(main, "-DNET_TEST", "-O1", "-fsanitize=address,undefined", "-Wno-unused-result", shared=False)
    X = rng.standard_normal((1, 1, 8, 8)).astype("f4")
    out = subprocess.run([program], input=X.tobytes(), capture_output=True, check=True).stdout
    assert out == model.predict(X).tobytes()


def test_values_of_all_layers(model, tmp_path, rng):
    minidl.export_c(model, tmp_path / "net.c", arena="argument", keep_values=True)
    library = ctypes.CDLL(str(compile_c(tmp_path / "net.c")))

    class Value(ctypes.Structure):
        _fields_ = [("layer", ctypes.c_char_p), *((name, ctypes.c_int32) for name in ("place", "pixels", "channels"))]

    values = (Value * len(model.layers)).in_dll(library, "net_values")
    x = rng.standard_normal((1, 8, 8)).astype("f4")
    arena, scores = np.zeros(20000, "f4"), np.zeros(4, "f4")
    library.net_predict(*(ctypes.c_void_p(a.ctypes.data) for a in (x, scores, arena)))
    for i, (value, layer) in enumerate(zip(values, model.layers, strict=True)):
        expected = model[: i + 1].predict(x[None])[0]
        assert value.layer.decode() == f"{i} {type(layer).__name__}"
        found = arena[value.place : value.place + expected.size].reshape(value.pixels, value.channels)
        assert found.T.tobytes() == expected.reshape(value.channels, value.pixels).tobytes()


@pytest.mark.parametrize("y", [np.arange(60) % 3, np.arange(180).reshape(60, 3) % 5 < 2], ids=["classes", "labels"])
def test_softmax_gives_probabilities(y, tmp_path):
    X = np.random.default_rng(0).random((60, 5))
    net = SequentialClassifier(Sequential([Dense(3)]), epochs=1, random_state=0).fit(X, y)
    minidl.export_c(net, tmp_path / "net.c", softmax=True)
    exported = Compiled(net.model_, tmp_path)
    library = ctypes.CDLL(str(compile_c(tmp_path / "net.c")))
    exported.functions["predict"] = library.net_predict
    X = X[:5].astype(net.model_.dtype)
    assert same_bits(exported.predict(X), net.predict_proba(X).astype(net.model_.dtype))


def test_the_comment_lists_the_classes(tmp_path):
    X, y = np.random.default_rng(0).random((60, 5)), np.array(["cat", "dog", "*/"])[np.arange(60) % 3]
    net = SequentialClassifier(Sequential([Dense(3)]), epochs=1, random_state=0).fit(X, y)
    minidl.export_c(net, tmp_path / "net.c", softmax=True)
    text = (tmp_path / "net.c").read_text()
    assert "The outputs are * /, cat, dog." in text
    assert "as `predict_proba` takes it" in text
    compile_c(tmp_path / "net.c")


def test_there_is_one_arena(model, tmp_path):
    minidl.export_c(model, tmp_path / "net.c")
    text = (tmp_path / "net.c").read_text()
    assert text.count("static real net_arena[NET_ARENA]") == 1
    bss = subprocess.run(
        ["size", compile_c(tmp_path / "net.c", "-c")], capture_output=True, text=True, check=True
    ).stdout
    assert int(bss.splitlines()[1].split()[2]) <= 4 * int(re.search(r"NET_ARENA (\d+)", text)[1]) + 64


@pytest.mark.parametrize("value", [np.inf, np.nan, 1e300, "a", None])
def test_numbers_that_are_none_are_refused(value, tmp_path, monkeypatch):
    monkeypatch.setattr(Bare, "c_code", lambda self, writer: writer.number(value), raising=False)
    with pytest.raises((TypeError, ValueError), match="layer 0, Bare: number: expected a"):
        minidl.export_c(Sequential([Bare()], input_shape=(1,)), tmp_path / "net.c")


def test_a_trainer_is_exported(model, tmp_path):
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1))
    minidl.export_c(trainer, tmp_path / "net.c")
    written = (tmp_path / "net.c").read_bytes()
    minidl.export_c(model, tmp_path / "net.c")
    assert written == (tmp_path / "net.c").read_bytes()


def test_the_test_in_the_file_notices_another_weight(model, tmp_path):
    minidl.export_c(model, tmp_path / "net.c")
    defines = ("-O1", "-DNET_TEST", "-DNET_MAIN")
    assert subprocess.run([compile_c(tmp_path / "net.c", *defines, shared=False)], check=False).returncode == 0
    text = (tmp_path / "net.c").read_text()
    (tmp_path / "wrong.c").write_text(re.sub(r"(TABLE\(net_4_bias, .*\n)", r"\g<1>0x3f000000 ^ ", text))
    assert subprocess.run([compile_c(tmp_path / "wrong.c", *defines, shared=False)], check=False).returncode == 4


def test_the_comment_tells_sizes_and_hash(model, tmp_path):
    minidl.export_c(model, tmp_path / "net.c")
    text = (tmp_path / "net.c").read_text()
    assert f"SHA-256 of the weights {comment.weights_hash(model.state_dict())}" in text
    assert "x: (1, 8, 8), as `predict` takes it in Python" in text
    arena = int(re.search(r"NET_ARENA (\d+)", text)[1])
    assert f"arena {4 * arena} bytes, in the file" in text
    assert set(re.findall(r"#include <(.*)>", text)) == {"stdint.h", "string.h", "math.h", "fenv.h"}
    for word in ("malloc", "stdio", "printf"):
        assert word not in text


@pytest.mark.parametrize(
    ("option", "message"),
    [
        *((f"-{option}", "net: compiled with fast math") for option in FAST_MATH),
        ("-ffinite-math-only", "net: compiled with a part of fast math"),
        ("-fno-signed-zeros", "net: compiled with a part of fast math"),
        ("-fsingle-precision-constant", "compile_without_single_precision_constant"),
    ],
)
def test_fast_math_is_an_error(option, message, model, tmp_path):
    minidl.export_c(model, tmp_path / "net.c")
    with pytest.raises(AssertionError, match=message):
        compile_c(tmp_path / "net.c", "-O2", option)


@pytest.mark.parametrize("flags", [("-O2",), ("-O2", "-mfma"), ("-O2", "-DNET_SOFT_FMA")])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_rounding_mode_of_the_caller(dtype, flags, tmp_path, rng):
    """It changes no score, and is restored."""
    net = Sequential([Conv2D(3, 3), Sigmoid(), Flatten(), Dense(4)], input_shape=(1, 8, 8), dtype=dtype)
    minidl.export_c(net, tmp_path / "net.c")
    library = ctypes.CDLL(str(compile_c(tmp_path / "net.c", *flags)))
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    x, scores = rng.standard_normal((1, 1, 8, 8)).astype(dtype), np.zeros((1, 4), dtype)
    expected, modes = net.predict(x), (0, 0x400, 0x800, 0xC00)  # of x86: to nearest, down, up, to zero
    for mode in modes:
        scores[...] = 7
        libm.fesetround(mode)
        try:
            library.net_predict(*(ctypes.c_void_p(array.ctypes.data) for array in (x, scores)))
            kept = libm.fegetround()
        finally:
            libm.fesetround(0)
        assert kept == mode
        assert same_bits(scores, expected)


def test_tables_are_padded_for_vectors_alone(model, tmp_path):
    minidl.export_c(model, tmp_path / "net.c")
    sizes = []
    for flags in (("-O2",), ("-O2", "-march=haswell")):
        file = compile_c(tmp_path / "net.c", *flags, "-c")
        done = subprocess.run(["nm", "-S", file], check=True, capture_output=True)
        sizes.append(int(re.search(rb"\w+ (\w+) r net_4_bias", done.stdout)[1], 16))
    assert sizes == [4 * 4, 4 * (4 + 15)]


def test_class_names_are_a_table(tmp_path):
    X, y = np.random.default_rng(0).random((60, 5)), np.array(["café", 'ch"ien?', "débet\\"])[np.arange(60) % 3]
    net = SequentialClassifier(Sequential([Dense(3)]), epochs=1, random_state=0).fit(X, y)
    for given in (True, sorted(set(y))):
        minidl.export_c(net if given is True else net.model_, tmp_path / "net.c", header=True, class_names=given)
        table = (ctypes.c_char_p * 3).in_dll(ctypes.CDLL(str(compile_c(tmp_path / "net.c"))), "net_classes")
        assert [name.decode() for name in table] == sorted(set(y))
        assert "extern const char *const net_classes[3];" in (tmp_path / "net.h").read_text()
    minidl.export_c(net, tmp_path / "net.c")
    assert "net_classes" not in (tmp_path / "net.c").read_text()


def test_a_single_score_has_two_class_names(tmp_path):
    model = Sequential([Dense(1)], input_shape=(2,))
    minidl.export_c(model, tmp_path / "net.c", class_names=["no", "yes"])
    table = (ctypes.c_char_p * 2).in_dll(ctypes.CDLL(str(compile_c(tmp_path / "net.c"))), "net_classes")
    assert list(table) == [b"no", b"yes"]


# ---- custom layers


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_custom_layers(dtype, tmp_path, rng):
    layers = [Conv2D(3, 2), Swish(0.5), Parallel(Swish(), Conv2D(2, 1)), Flatten(), Swish(2.0)]
    model = Sequential(layers, input_shape=(2, 4, 5), dtype=dtype)
    for param in model.params.values():
        param.value = rng.standard_normal(param.value.shape)
    X = rng.standard_normal((4, 2, 4, 5)).astype(dtype)
    exported = Compiled(model, tmp_path)
    assert same_bits(exported.predict(X), model.predict(X))


@pytest.mark.parametrize(
    ("c_code", "error", "message"),
    [
        (None, ValueError, r"layer 1, Bare: expected one of minidl's layers, or one with a method c_code\(writer\)"),
        (lambda self, writer: 3, TypeError, "layer 1, Bare: c_code: expected the statements of C as a string, got 3"),
        (lambda self, writer: writer.constant("a b", [1]), ValueError, "layer 1, Bare: constant: expected a name of C"),
        (lambda self, writer: writer.constant("a", ["x"]), TypeError, "layer 1, Bare: a: expected an array of numbers"),
        (lambda self, writer: writer.constant("a", [np.inf]), ValueError, "layer 1, Bare: a: expected finite numbers"),
        (lambda self, writer: writer["nothing"], ValueError, "layer 1, Bare: writer"),
        (
            lambda self, writer: writer.constant("a", [1]) and writer.constant("a", [1]),
            ValueError,
            "layer 1, Bare: constant 'a': expected a name that is not used yet",
        ),
    ],
)
def test_wrong_custom_layers_are_refused(c_code, error, message, tmp_path, monkeypatch):
    if c_code:
        monkeypatch.setattr(Bare, "c_code", c_code, raising=False)
    with pytest.raises(error, match=message):
        minidl.export_c(Sequential([Dense(3), Bare()], input_shape=(2,)), tmp_path / "net.c")
    assert list(tmp_path.iterdir()) == []


def test_names_of_the_library_may_be_those_of_variables(tmp_path, monkeypatch):
    code = "integer axis = 0, run = 1, low = 2; y[0] = (real)(axis + run + low) - {}; (void)x;"
    monkeypatch.setattr(Bare, "c_code", lambda self, writer: code.format(writer.number(-1.5)), raising=False)
    exported = Compiled(Sequential([Bare()], input_shape=(1,)), tmp_path, "-O1", "-Wno-unused-function")
    assert exported.predict(np.zeros((1, 1), "f4")).tolist() == [[4.5]]


def test_other_errors_of_a_layer_are_noted(tmp_path, monkeypatch):
    monkeypatch.setattr(Bare, "c_code", lambda self, writer: {}["nothing"], raising=False)
    with pytest.raises(KeyError) as caught:
        minidl.export_c(Sequential([Bare()], input_shape=(1,)), tmp_path / "net.c")
    assert caught.value.__notes__ == ["raised by the method c_code of Bare()"]


# ---- refusals


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"name": "2net"},
            ValueError,
            "name: expected an identifier of C, such as 'digits', that is no keyword of C or C++, got '2net'",
        ),
        *(
            ({"name": name}, ValueError, "name: expected an identifier of C")
            for name in ("while", "xor", "typeof", "alignas", "char8_t", "co_await", "true")
        ),
        ({"name": "né"}, ValueError, "name: expected an identifier of C"),
        ({"name": ""}, ValueError, "name: expected an identifier of C"),
        ({"name": 3}, TypeError, "name: expected a string or None, got 3"),
        ({"arena": "heap"}, ValueError, "arena: expected 'static' or 'argument', got 'heap'"),
        ({"weights": "bin"}, ValueError, "weights: expected 'text' or 'inc', got 'bin'"),
        ({"header": 1}, TypeError, "header: expected True or False, got 1"),
        ({"keep_values": True}, ValueError, 'keep_values: expected arena="argument" with it'),
        ({"class_names": ["a"]}, ValueError, "class_names: expected 4 names, for outputs (4,), got 1"),
        ({"class_names": 3}, TypeError, "class_names: expected a list of strings, got 3"),
        (
            {"class_names": True},
            ValueError,
            "class_names: expected a list of names, a fitted classifier, or a model with `classes`, got Seq",
        ),
    ],
)
def test_wrong_arguments_are_refused(arguments, error, message, model, tmp_path):
    with pytest.raises(error, match=re.escape(message)):
        minidl.export_c(model, tmp_path / "net.c", **arguments)
    assert list(tmp_path.iterdir()) == []


def test_wrong_paths_are_refused(model, tmp_path):
    with pytest.raises(ValueError, match=r"path: expected a file name that ends with \.c, got"):
        minidl.export_c(model, tmp_path / "net.h")
    with pytest.raises(ValueError, match=r"path: gives the name 'my net', expected an identifier of C, .* pass name="):
        minidl.export_c(model, tmp_path / "my net.c")
    with pytest.raises(OSError, match="nowhere"):
        minidl.export_c(model, tmp_path / "nowhere" / "net.c", header=True, weights="inc")
    with pytest.raises(TypeError, match="path"):
        minidl.export_c(model, None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stem", ["string", "stdint", "Math", "fenv", "stddef", "features"])
def test_names_of_the_headers_of_the_c_library_are_refused(stem, model, tmp_path):
    """With -I., they would be included instead."""
    with pytest.raises(ValueError, match=f"path: .* no header of the C library has, got '{stem}.c': {stem}.h would"):
        minidl.export_c(model, tmp_path / f"{stem}.c", header=True)
    assert list(tmp_path.iterdir()) == []
    minidl.export_c(model, tmp_path / f"{stem}.c")
    compile_c(tmp_path / f"{stem}.c", f"-I{tmp_path}")


@pytest.mark.parametrize("stem", ['a"b', "a\\b", "a\nb", "a??=b"])
def test_names_that_cannot_be_included_are_refused(stem, model, tmp_path):
    with pytest.raises(ValueError, match=r'path: with weights="inc", expected a name that C can include'):
        minidl.export_c(model, tmp_path / f"{stem}.c", name="net", weights="inc")
    assert list(tmp_path.iterdir()) == []
    minidl.export_c(model, tmp_path / f"{stem}.c", name="net")
    compile_c(tmp_path / f"{stem}.c")


def test_one_wrong_path_writes_no_file(model, tmp_path):
    (tmp_path / "net.c").mkdir()
    with pytest.raises(OSError, match=r"net\.c"):
        minidl.export_c(model, tmp_path / "net.c", header=True, weights="inc")
    assert [path.name for path in tmp_path.iterdir()] == ["net.c"]


def test_weights_that_are_not_finite_are_refused(model, tmp_path):
    model.layers[4].weight.value[0, 0] = np.nan
    with pytest.raises(ValueError, match="layer 4, Dense: weight: expected finite numbers in float32, got NaN"):
        minidl.export_c(model, tmp_path / "net.c")
    assert list(tmp_path.iterdir()) == []


def test_models_that_are_not_built_and_other_objects_are_refused(tmp_path):
    with pytest.raises(ValueError, match="input_shape"):
        minidl.export_c(Sequential([Dense(3)]), tmp_path / "net.c")
    with pytest.raises(TypeError, match="model: expected a Sequential, a Trainer or a fitted estimator, got dict"):
        minidl.export_c({}, tmp_path / "net.c")
    assert list(tmp_path.iterdir()) == []


def test_estimators_with_others_inside_name_the_one_to_export(tmp_path):
    """A scaled target is scaled back by a Rescale after the model: the C file has the scores of the longer model."""
    X, y = np.random.default_rng(0).normal(size=(60, 3)), 50 + 1e4 * np.random.default_rng(1).random(60)
    regressor = SequentialRegressor(Sequential([Dense(4), ReLU(), Dense(1)]), epochs=2, dtype="float32", random_state=0)
    scaled = TransformedTargetRegressor(regressor, transformer=StandardScaler()).fit(X, y)
    found = r"got TransformedTargetRegressor: export its regressor_, or the last step of it; .*scaled targets.*Rescale"
    with pytest.raises(TypeError, match=found):
        minidl.export_c(scaled, tmp_path / "net.c")
    search = GridSearchCV(regressor, {"epochs": [1]}, cv=2).fit(X, y)
    with pytest.raises(TypeError, match=r"got GridSearchCV: export its best_estimator_$"):
        minidl.export_c(search, tmp_path / "net.c")
    assert list(tmp_path.iterdir()) == []
    minidl.export_c(search.best_estimator_, tmp_path / "search.c")
    scaler, net = scaled.transformer_, scaled.regressor_.model_
    longer = Sequential([net, Rescale(scaler.scale_.item(), scaler.mean_.item())], net.input_shape)
    assert np.allclose(longer.predict(X)[:, 0], scaled.predict(X), rtol=1e-5)
    assert np.ptp(scaled.predict(X)) > 1
    assert same_bits(Compiled(longer, tmp_path).predict(X.astype("f4")), longer.predict(X.astype("f4")))


def test_a_refused_export_keeps_the_old_file(model, tmp_path):
    (tmp_path / "net.c").write_text("old")
    with pytest.raises(ValueError, match="Bare"):
        minidl.export_c(Sequential([Bare()], input_shape=(2,)), tmp_path / "net.c")
    assert (tmp_path / "net.c").read_text() == "old"


# ---- the command line


def test_the_command_writes_the_same_file(model, tmp_path, capsys):
    model.save(tmp_path / "digits.safetensors")
    files = [str(tmp_path / "digits.safetensors"), str(tmp_path / "net.c")]
    __main__.main(["export-c", *files, "--header", "--arena", "argument", "--class-names", "a,b,c,d"])
    written = (tmp_path / "net.c").read_bytes()
    minidl.export_c(model, tmp_path / "net.c", arena="argument", class_names=list("abcd"))
    assert written == (tmp_path / "net.c").read_bytes()
    assert (tmp_path / "net.h").exists()
    assert capsys.readouterr() == ("", "")


def test_the_command_chooses_outputs(tmp_path):
    ends = Outputs(policy=Dense(3), value=Dense(1), spread=Dense(1))
    model = Sequential([Flatten(), ends], input_shape=(4,))
    model.save(tmp_path / "net.safetensors")
    for names in (["policy"], ["value", "spread"]):
        chosen = [word for name in names for word in ("--outputs", name)]
        __main__.main(["export-c", str(tmp_path / "net.safetensors"), str(tmp_path / "net.c"), *chosen])
        written = (tmp_path / "net.c").read_bytes()
        minidl.export_c(model[names[0] if len(names) == 1 else names], tmp_path / "net.c")
        assert written == (tmp_path / "net.c").read_bytes()


def test_the_command_reports_errors(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        __main__.main(["export-c", str(tmp_path / "missing.safetensors"), str(tmp_path / "net.c")])
    assert "missing.safetensors" in capsys.readouterr().err


def test_the_command_has_all_options(model, tmp_path, monkeypatch):
    """Those of export_c and of import_model arrive as they are."""
    arguments, taken = {}, {}
    for function in (minidl.export_c, minidl.onnx.import_model):
        taken |= inspect.signature(function).parameters
    monkeypatch.setattr(__main__, "export_c", lambda model, path, **options: arguments.update(options))
    monkeypatch.setattr("minidl.onnx.import_model", lambda path, **options: arguments.update(options) or model)
    reading = ("--input-shape", "3,224,224", "--external-data", "--outputs", "y", "--outputs", "z")
    flags = ("--dequantize", "--softmax", "--header", "--keep-values")
    choices = ("--arena", "argument", "--weights", "inc", "--winograd", "direct")
    names = ("--name", "n", "--class-names", "a,b")
    __main__.main(["export-c", "m.onnx", "n.c", *reading, *flags, *choices, *names])
    expected = {"input_shape": (3, 224, 224), "external_data": True, "class_names": ["a", "b"], "name": "n"}
    assert (expected | {"outputs": ["y", "z"]}).items() <= arguments.items()
    assert set(arguments) == set(taken) - {"model", "path"}
    assert all(arguments[name] != parameter.default for name, parameter in taken.items() if name in arguments)


@pytest.mark.parametrize(
    ("file", "option", "message"),
    [
        ("m.safetensors", "--input-shape=3,8,8", "--input-shape: expected an ONNX file"),
        ("m.safetensors", "--external-data", "--external-data: expected an ONNX file"),
        ("m.onnx", "--input-shape=3x8", "argument --input-shape: expected sizes such as 3,224,224, got '3x8'"),
    ],
)
def test_the_command_refuses_options(file, option, message, tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        __main__.main(["export-c", file, str(tmp_path / "net.c"), option])
    assert re.search(message, capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


def test_without_a_command_the_configuration_is_printed():
    out = subprocess.run([sys.executable, "-m", "minidl"], capture_output=True, text=True, check=True).stdout
    assert out.strip() == str(minidl.show_config())
