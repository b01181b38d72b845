"""QuantizedModel: its bytes are the reference's; copies and files keep it; what models do, or refuse."""

import copy
import ctypes
import pickle
import re

import numpy as np
import pytest
from c_export.compiled import compile_c
from quantized_models import integers_of

import minidl
from minidl import InputError, Sequential, Trainer, plots, quantize
from minidl.estimators import SequentialClassifier
from minidl.layers import AvgPool2D, Conv2D, Dense, Flatten, MaxPool2D, Outputs, ReLU, Rescale, Residual, Softmax, Tanh
from minidl.optimizers import SGD
from minidl.quantization import FakeQuantize, QuantizationAware, QuantizedModel, prepare

SHAPE = (2, 6, 6)
RNG = np.random.default_rng(0)
X, Y = RNG.integers(0, 256, (40, *SHAPE)).astype(np.uint8), np.arange(40) % 3
LAST = "layer 0, IntegerNet: expected a layer with a gradient"


def float_model(*last):
    parts = [Rescale(1 / 255), Conv2D(5, 3, padding=1), ReLU(), AvgPool2D(3, 1, padding=1), Residual(Tanh())]
    model = Sequential([*parts, MaxPool2D(2), Flatten(), Dense(3), *last], input_shape=SHAPE)
    model.classes, model.metadata = ["a", "b", "c"], {"data": [1, None]}
    return model


@pytest.fixture(scope="module")
def model():
    return quantize(float_model(), X)


@pytest.fixture(scope="module")
def with_floats():
    return quantize(float_model(Dense(3), Softmax()), X, float_layers=2)


@pytest.fixture(params=["integers", "and floats"])
def either(request, model, with_floats):
    return model if request.param == "integers" else with_floats


def expected(model, X):
    """Returns the bytes of the reference, for X in the dtype of the model."""
    return integers_of(model.program, np.asarray(X, np.float32))[-1].reshape(len(X), -1)


# ---- what it computes


@pytest.mark.parametrize("num_threads", [1, 3])
def test_predictions_are_those_of_the_reference(model, num_threads):
    bytes_, made = expected(model, X), model.program.values[-1].quantization
    assert np.array_equal(model.predict_int8(X, num_threads), bytes_)
    scores = np.float32(made.scale) * (bytes_.astype(np.float32) - np.float32(made.zero_point))
    assert np.array_equal(model.predict(X, num_threads=num_threads), scores)


def test_float_layers_compute_from_what_the_integers_stand_for(with_floats):
    bytes_, made = with_floats.predict_int8(X), with_floats.program.values[-1].quantization
    assert np.array_equal(bytes_, expected(with_floats, X))
    scores = np.float32(made.scale) * (bytes_.astype(np.float32) - np.float32(made.zero_point))
    assert np.array_equal(with_floats.predict(X), with_floats[1:].predict(scores))
    assert np.array_equal(with_floats.predict_proba(X), with_floats.predict(X))


def test_quantized_inputs_are_those_of_the_reference(model):
    q = model.quantize_input(X)
    assert q.dtype == np.int8
    assert np.array_equal(q, integers_of(model.program, X)[0])
    assert np.array_equal(model.predict_int8(q, quantized=True), model.predict_int8(X))
    assert np.array_equal(model.predict_int8(q.reshape(len(q), -1), quantized=True), model.predict_int8(X))


def test_examples_of_any_kind_have_the_same_bytes(model, tmp_path):
    """Also int8, which are numbers, not quantized ones; float64 is rounded as `predict` rounds it."""
    signed = X.view(np.int8)
    for one in (signed, signed.astype(">i2"), signed.reshape(40, -1).tolist(), np.asfortranarray(signed)):
        assert np.array_equal(model.predict_int8(one), expected(model, signed))
    path = tmp_path / "X.npy"
    np.save(path, X)
    assert np.array_equal(model.quantize_input(np.load(path, mmap_mode="r")), model.quantize_input(X))
    for dtype in (np.float32, np.float64):  # beside the steps of the input
        steps = (np.arange(-8, 300)[:, None] - model.program.input.offsets[:1]) / model.program.input.factors[:1]
        doubles = np.concatenate([steps, np.nextafter(steps, np.inf), np.nextafter(steps, -np.inf)]).astype(dtype)
        examples = np.tile(doubles[:, :1, None, None], (1, *SHAPE))
        assert np.array_equal(model.predict_int8(examples), expected(model, examples))
        assert np.array_equal(model.layers[0].quantized(model.predict(examples)), expected(model, examples))


def test_no_examples(either):
    assert either.predict(X[:0]).shape == either.predict_int8(X[:0]).shape == (0, 3)
    assert either.quantize_input(X[:0]).shape == (0, *SHAPE)


@pytest.mark.parametrize("call", ["predict_int8", "quantize_input"])
def test_bad_examples_are_refused(model, call):
    for bad in (None, "X", X[:, :1], X[0], np.full((1, *SHAPE), np.nan), np.ma.masked_array(X)):
        with pytest.raises(InputError, match=r"^X: expected"):
            getattr(model, call)(bad)


def test_bad_quantized_inputs_are_refused(model):
    with pytest.raises(TypeError, match="X: expected int8, that quantize_input returned, got uint8"):
        model.predict_int8(X, quantized=True)
    with pytest.raises(TypeError, match="X: expected int8, that quantize_input returned, got list"):
        model.predict_int8(X.tolist(), quantized=True)
    with pytest.raises(InputError, match="X: expected shape"):
        model.predict_int8(X.view(np.int8)[:, :1], quantized=True)
    with pytest.raises(TypeError, match="quantized: expected"):
        model.predict_int8(X, quantized=2)


def test_signals_and_vectors_keep_their_shapes():
    signals = Sequential([minidl.layers.Conv1D(3, 3)], input_shape=(2, 9))
    x = RNG.standard_normal((20, 2, 9))
    quantized = quantize(signals, x)
    assert quantized.predict(x).shape == quantized.predict_int8(x).shape == (20, 3, 7)
    q = quantized.quantize_input(x)
    assert q.shape == x.shape
    assert np.array_equal(quantized.predict_int8(q, quantized=True), quantized.predict_int8(x))


def test_the_summary(model):
    summary = model.summary()
    rows = {row.label: row for row in summary.rows}
    dense, first = rows["7, Dense"], rows["1, Conv2D + 2, ReLU"]
    assert (dense.macs, first.macs, summary.macs) == (3 * 45, 5 * 18 * 36, 3 * 45 + 5 * 18 * 36)
    assert dense.constant_bytes == 3 * 45 + 3 * 3 * 4  # weights; biases, multipliers and shifts
    assert summary.constant_bytes == sum(row.constant_bytes for row in summary.rows)
    assert rows["4.body.0, Tanh"].constant_bytes == 256
    assert {row.label: row.snr for row in summary.rows} == {one.label: one.snr for one in model.noise[1:]}
    text = str(summary)
    assert text.splitlines()[-1] == summary.advice == model.advice
    assert re.search(r"^7, Dense +sum of products +\(3, 1, 1\) +135 +171 B +\d+\.\d dB$", text, re.M)
    alone = QuantizedModel(model.program, SHAPE).summary()
    assert (alone.advice, {row.snr for row in alone.rows}) == ("", {None})


# ---- copies and files


def check_equal(one, model):
    assert type(one) is QuantizedModel
    assert repr(one) == repr(model)
    assert (one.classes, one.metadata, one.noise) == (model.classes, model.metadata, model.noise)
    assert str(one.summary()) == str(model.summary())
    assert np.array_equal(one.predict(X), model.predict(X))
    assert np.array_equal(one.predict_int8(X), model.predict_int8(X))


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "slice": lambda model: model[:],
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_are_equal(either, name):
    check_equal(COPIES[name](either), either)


def test_files_keep_everything(either, tmp_path):
    path = tmp_path / "net.safetensors"
    either.save(path)
    loaded = QuantizedModel.load(path)
    check_equal(loaded, either)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    either.save(path, metadata={"k": 1}, classes=[5, 6, 7])
    loaded = QuantizedModel.load(path)
    assert (loaded.classes, loaded.metadata) == ((5, 6, 7), {"k": 1})


def test_slices(with_floats):
    integers, floats = with_floats[:1], with_floats[1:]
    assert type(integers) is QuantizedModel and type(floats) is Sequential
    assert (integers.classes, floats.classes) == (None, ("a", "b", "c"))
    assert integers.noise == with_floats.noise and integers.metadata == floats.metadata == with_floats.metadata
    assert np.array_equal(integers.predict_int8(X), with_floats.predict_int8(X))
    several = Sequential([Dense(4), Outputs(a=Dense(2), b=ReLU())], input_shape=(3,))
    x = RNG.standard_normal((9, 3))
    quantized = quantize(several, x, float_layers=1)
    assert type(quantized["a"]) is QuantizedModel
    assert np.array_equal(quantized["a"].predict(x), quantized.predict(x)["a"])
    assert np.array_equal(quantized[["b"]].predict(x)["b"], quantized.predict(x)["b"])


def test_the_repr_has_its_name(with_floats):
    assert repr(with_floats).splitlines()[:2] == ["QuantizedModel(", "  (0): IntegerNet(<Program of 6 operations>)"]


# ---- arguments


def test_arguments_are_checked(model):
    program = model.program

    def refused(error, message, *arguments, **options):
        with pytest.raises(error, match=message):
            QuantizedModel(*arguments, **options)

    refused(TypeError, "program: expected a Program, got 3", 3, SHAPE)
    refused(ValueError, "expected an input of shape", program, (3,))
    refused(ValueError, "expected an input of shape", program, (2, None, None))
    refused(TypeError, "input_shape: expected a tuple", program, 3)
    refused(TypeError, "output_shape: expected a tuple", program, SHAPE, 3)
    refused(ValueError, "output_shape: expected as many elements", program, SHAPE, (4,))
    refused(TypeError, "float_layers: expected a Sequential or None, got 3", program, SHAPE, float_layers=3)
    unbuilt, other = Sequential([Softmax()]), Sequential([Softmax()], (4,))
    refused(ValueError, "float_layers: expected a built model", program, SHAPE, float_layers=unbuilt)
    refused(ValueError, r"float_layers: .* takes \(3,\), got \(4,\)", program, SHAPE, float_layers=other)
    refused(TypeError, "noise: expected a tuple of Noise", program, SHAPE, noise=[3])
    refused(TypeError, "noise: expected a tuple of Noise", program, SHAPE, noise=3)


# ---- what models do


def trainer_of(model, loss="softmax_cross_entropy"):
    return Trainer(model, loss, SGD(0.1), ["accuracy"])


def test_it_is_evaluated_like_the_float_model(model):
    found = trainer_of(model).evaluate(X, Y)
    assert found["accuracy"] == (model.predict(X).argmax(axis=1) == Y).mean()
    probabilities = model.predict_proba(X)
    assert found["loss"] == pytest.approx(-np.log(probabilities[np.arange(40), Y]).mean(), rel=1e-5)
    assert np.array_equal(trainer_of(model).predict_proba(X), probabilities)
    mirrored = (model.predict(X) + model.predict(X[..., ::-1])) / 2
    np.testing.assert_allclose(model.predict(X, views="flip"), mirrored, rtol=1e-6)
    assert np.array_equal(model.forward(X, training=False), model.predict(X))
    assert model.at(SHAPE) is model


def test_plots_of_predictions(either):
    pytest.importorskip("matplotlib")
    assert "a" in {text.get_text() for text in plots.confusion_matrix(either, X, Y).axes[0].get_xticklabels()}
    assert plots.misclassified(either, X, Y).axes
    assert plots.calibration_curve(either, X, Y).axes


def test_the_model_of_an_estimator():
    classifier = SequentialClassifier([Rescale(1 / 255), Dense(3)], epochs=1, random_state=0)
    rows = X.reshape(40, -1)
    classifier.fit(rows, np.array(["x", "y", "z"])[Y])
    quantized = quantize(classifier.model_, rows)
    same = classifier.classes_[quantized.predict(rows).argmax(axis=1)] == classifier.predict(rows)
    assert same.mean() > 0.9
    with pytest.raises(TypeError, match="model: expected a Sequential, got SequentialClassifier"):
        quantize(classifier, rows)


def test_it_is_a_part_of_other_models(with_floats):
    x = X[:5]
    expected = with_floats.predict(x)
    assert np.array_equal(Sequential([with_floats.as_layer()], input_shape=SHAPE).predict(x), expected)
    assert np.array_equal(Sequential([with_floats, Rescale(2.0)], input_shape=SHAPE).predict(x), 2 * expected)


def test_float_weights_may_be_changed(with_floats, tmp_path):
    model = copy.deepcopy(with_floats)
    assert list(model.state_dict()) == list(model.params) == ["1.weight", "1.bias"]
    model.load_state_dict({name: 2 * array for name, array in model.state_dict().items()})
    assert not np.array_equal(model.predict(X), with_floats.predict(X))
    model.save(tmp_path / "net")
    assert np.array_equal(QuantizedModel.load(tmp_path / "net").predict(X), model.predict(X))
    with pytest.raises(ValueError, match=r"0\.weight"):
        model.load_state_dict({"0.weight": 1})


REFUSED = {
    "fit": lambda model, path: trainer_of(model).fit(X, Y, epochs=1, verbose=0),
    "train_batch": lambda model, path: trainer_of(model).train_batch(X, Y),
    "report": lambda model, path: trainer_of(model).report(X, Y),
    "training summary": lambda model, path: trainer_of(model).summary(X, Y),
    "input_gradient": lambda model, path: model.input_gradient(X, 1),
    "forward": lambda model, path: model.forward(X, training=True),
    "saliency": lambda model, path: plots.saliency(model, X[:2], 1),
}
OTHERS = {
    "per-example gradients": (lambda model, path: trainer_of(model).per_example_gradients(X, Y), "expected parameters"),
    "checkpoint": (lambda model, path: trainer_of(model).save_checkpoint(path), "a QuantizedModel, of which save"),
    "Sequential.save": (lambda model, path: Sequential.save(model, path), "a QuantizedModel, of which save"),
    "get_config": (lambda model, path: model.get_config(), "a QuantizedModel, of which save"),
    "from_config": (
        lambda model, path: model.from_config({}, None, {}),
        "from_config: expected Sequential.from_config",
    ),
    "soft_update": (lambda model, path: model.soft_update(copy.copy(model)), "soft_update: expected a model of floats"),
    "update of floats": (
        lambda model, path: float_model().soft_update(model),
        "layer 0, Rescale, got layer 0, IntegerNet",
    ),
    "at": (lambda model, path: model.at((2, 7, 6)), "input_shape: expected"),
    "quantize": (lambda model, path: quantize(model, X), "model: expected one in float, got a QuantizedModel"),
    "prepare": (lambda model, path: prepare(model, X), "model: expected one in float, got a QuantizedModel"),
    "ONNX": (
        lambda model, path: minidl.onnx.export(model, path, dtype="float64"),
        "layer 0, IntegerNet, input .*: dtype: expected 'float32'",
    ),
    "feature_maps": (lambda model, path: plots.feature_maps(model, X), "no convolution"),
    "grad_cam": (lambda model, path: plots.grad_cam(model, X, 1), "no convolution"),
    "C with softmax": (lambda model, path: minidl.export_c(model, path, softmax=True), "softmax: expected False"),
    "C with winograd": (lambda model, path: minidl.export_c(model, path, winograd="direct"), "winograd: expected None"),
}


@pytest.mark.parametrize("name", [*REFUSED, *OTHERS])
def test_what_needs_floats_is_refused(model, name, tmp_path):
    if name == "ONNX":
        pytest.importorskip("onnx")
    if name in ("saliency", "feature_maps", "grad_cam"):
        pytest.importorskip("matplotlib")
    call, message = (REFUSED[name], LAST) if name in REFUSED else OTHERS[name]
    with pytest.raises((TypeError, ValueError), match=message):
        call(model, tmp_path / "net.c")
    assert list(tmp_path.iterdir()) == []


# ---- C


def test_the_c_file_computes_the_bytes(model, tmp_path):
    minidl.export_c(model, tmp_path / "net.c", class_names=True)
    text = (tmp_path / "net.c").read_text()
    assert all(name in text for name in ('"a"', "net_classes", '"data"', "1, Conv2D + 2, ReLU"))
    library = ctypes.CDLL(str(compile_c(tmp_path / "net.c", "-O2", "-DNET_TEST")))
    assert library.net_test() == 0
    for function, inputs in ((library.net_predict, model.quantize_input(X)), (library.net_predict_uint8, X)):
        scores = np.zeros((len(X), 3), np.int8)
        for x, y in zip(inputs, scores, strict=True):
            function(*(array.ctypes.data_as(ctypes.c_void_p) for array in (np.ascontiguousarray(x), y)))
        assert np.array_equal(scores, model.predict_int8(X))


def test_the_c_file_of_float_layers_is_refused_by_name(with_floats, tmp_path):
    with pytest.raises(ValueError, match=r"^layer 1, Dense: expected .* without float_layers, such as model\[:1\]"):
        minidl.export_c(with_floats, tmp_path / "net.c")
    minidl.export_c(trainer_of(with_floats[:1]), tmp_path / "net.c")
    assert "int8_t *scores" in (tmp_path / "net.c").read_text()


def test_layers_of_integers_in_other_models_say_what_to_export_and_save(model, tmp_path):
    prepared = Sequential([QuantizationAware(FakeQuantize(0.1, 0), Dense(2), FakeQuantize(0.1, 0))], input_shape=(3,))
    around = Sequential([model.as_layer(), Softmax()], input_shape=model.input_shape)
    alone = Sequential([FakeQuantize(0.1, 0)], input_shape=(3,))
    for net, name, what in [
        (prepared, "layer 0, QuantizationAware", r"minidl\.quantization\.convert\(model\)"),
        (Sequential([prepared.as_layer()], input_shape=(3,)), "layer 0, Block: 0, QuantizationAware", r"convert\("),
        (alone, "layer 0, FakeQuantize", r"convert\("),
        (around, "layer 0, Block: 0, IntegerNet", "the QuantizedModel itself"),
    ]:
        with pytest.raises(ValueError, match=f"^{name}: expected a layer in float, got one of integers: .*{what}"):
            minidl.export_c(net, tmp_path / "net.c")
    with pytest.raises(TypeError, match=r"^layer 0, Block: layers\[0\]: cannot be saved: .*: save the QuantizedModel"):
        around.save(tmp_path / "net")
    with pytest.raises(TypeError, match="softmax: expected True or False"):
        minidl.export_c(model, tmp_path / "net.c", softmax=0)
    assert not list(tmp_path.iterdir())


def test_prepared_models_say_what_onnx_has(tmp_path):
    pytest.importorskip("onnx")
    prepared = QuantizationAware(FakeQuantize(0.1, 0), Dense(2), FakeQuantize(0.1, 0))
    for layer in (prepared, FakeQuantize(0.1, 0)):
        with pytest.raises(ValueError, match=r"layer 0, .*expected a layer in float, .*export .*\.convert\(model\)"):
            minidl.onnx.export(Sequential([layer], input_shape=(3,)), tmp_path / "net.onnx")
    assert not list(tmp_path.iterdir())
