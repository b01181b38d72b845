"""Exports for use elsewhere: of trainers and estimators, with probabilities, inputs of bytes and names of classes."""

import json

import numpy as np
import pytest
from onnx_models.nets import make_net, relative_error, run_onnxruntime
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from minidl import Sequential, Trainer
from minidl.estimators import SequentialClassifier, SequentialRegressor
from minidl.layers import (
    Block,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    LogSoftmax,
    ReLU,
    Rescale,
    Residual,
    Sigmoid,
    Softmax,
    Softmin,
)
from minidl.onnx import export, import_model
from minidl.optimizers import SGD

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.onnx"


def small(units=3, **options):
    return Sequential([Dense(4), ReLU(), Dropout(0.5), Dense(units)], input_shape=(5,), **options)


def metadata(path):
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.get_modelmeta().custom_metadata_map


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return rng.standard_normal((60, 5)).astype("f4"), rng.integers(0, 3, 60)


def fitted(data, labels, model=None, **options):
    x, y = data
    names = np.array(labels)
    return SequentialClassifier(model, epochs=2, random_state=0, **options).fit(x, names[y % len(labels)])


def test_a_trainer(path, rng):
    model, x = small(), rng.random((20, 5)).astype("f4")
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1))
    export(trainer, path, softmax=True)
    assert relative_error(run_onnxruntime(path, x), model.predict_proba(x)) < 1e-6
    export(trainer, path)
    assert repr(import_model(path)) == repr(model)


@pytest.mark.parametrize("labels", [["cat", "dog", "é"], [3, 5, 9], ["no", "yes"]])
def test_a_classifier(labels, data, path):
    classifier, x = fitted(data, labels), data[0]
    export(classifier, path, softmax=True)
    assert relative_error(run_onnxruntime(path, x), classifier.predict_proba(x)) < 1e-6
    assert json.loads(metadata(path)["class_names"]) == [str(label) for label in labels]
    export(classifier, path, class_names=["a", "b", "c"][: len(labels)])
    assert json.loads(metadata(path)["class_names"]) == ["a", "b", "c"][: len(labels)]
    assert relative_error(run_onnxruntime(path, x), classifier.model_.predict(x)) < 1e-6


def test_a_single_score_becomes_two_probabilities(data, path):
    classifier, x = fitted(data, ["no", "yes"], loss="binary_cross_entropy"), data[0]
    assert classifier.model_.output_shape == (1,)
    export(classifier, path, softmax=True)
    assert relative_error(run_onnxruntime(path, x), classifier.predict_proba(x)) < 1e-6
    assert json.loads(metadata(path)["class_names"]) == ["no", "yes"]
    back = import_model(path)
    assert [type(layer) for layer in back.layers[-2:]] == [Dense, Softmax]
    assert np.array_equal(back.predict(x), classifier.predict_proba(x))
    export(small(1), path, softmax=True, class_names=["-", "+"])
    export(Trainer(small(1), "binary_cross_entropy", SGD(0.1)), path, softmax=True)
    assert relative_error(run_onnxruntime(path, x), small(1).predict_proba(x)) < 1e-6


def test_a_multilabel_classifier(data, path):
    x, y = data
    classifier = SequentialClassifier(epochs=1, random_state=0).fit(x, np.eye(3, dtype=int)[y])
    export(classifier, path, softmax=True)
    assert relative_error(run_onnxruntime(path, x), classifier.predict_proba(x)) < 1e-6
    assert isinstance(import_model(path).layers[-1], Sigmoid)
    export(classifier, path)
    assert json.loads(metadata(path)["class_names"]) == ["0", "1", "2"]


def test_a_regressor(data, path):
    x, y = data
    regressor = SequentialRegressor(epochs=1, random_state=0).fit(x, y.astype(float))
    export(regressor, path)
    assert relative_error(run_onnxruntime(path, x)[:, 0], regressor.predict(x)) < 1e-6
    assert "class_names" not in metadata(path)
    with pytest.raises(ValueError, match=r"softmax: expected a loss such as .* got MeanSquaredError\(\)"):
        export(regressor, path, softmax=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_softmax_is_a_layer_of_the_imported_model(dtype, path, rng):
    model, x = small(dtype=dtype), rng.random((20, 5)).astype(dtype)
    state, before = model.state_dict(), repr(model)
    export(model, path, softmax=True)
    back = import_model(path)
    assert repr(back[:-1]) == repr(model) and isinstance(back.layers[-1], Softmax)
    assert np.array_equal(back.predict(x), model.predict_proba(x))
    assert repr(model) == before and all(np.array_equal(state[k], v) for k, v in model.state_dict().items())


def test_frozen_layers_stay_frozen(path):
    model = small()
    model.layers[0].trainable = False
    export(model, path, softmax=True)
    assert [layer.trainable for layer in import_model(path).layers] == [False, True, True, True, True]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("with_metadata", [True, False])
def test_an_input_of_bytes(dtype, with_metadata, path, rng):
    import onnx

    layers = [Rescale(1 / 256), Flatten(), Dense(4), ReLU(), Dense(3)]
    model, x = Sequential(layers, (3, 6, 6), dtype=dtype), rng.integers(0, 256, (20, 3, 6, 6), dtype="u1")
    export(model, path, input_dtype="uint8")
    onnx.checker.check_model(str(path), full_check=True)
    assert relative_error(run_onnxruntime(path, x), model.predict(x)) < 1e-6
    if not with_metadata:
        proto = onnx.load(str(path))
        del proto.metadata_props[:]
        onnx.save(proto, str(path))
    back = import_model(path)
    assert repr(back) == repr(model) and back.dtype == dtype and np.array_equal(back.predict(x), model.predict(x))


def test_all_options_together(path, rng):
    model = make_net("inception")[0]
    x = rng.integers(0, 256, (10, *model.input_shape), dtype="u1")
    names = [f"class {i}" for i in range(model.output_shape[0])]
    export(model, path, "float32", softmax=True, input_dtype="uint8", class_names=names)
    assert relative_error(run_onnxruntime(path, x), model.predict_proba(x)) < 1e-5
    assert np.array_equal(import_model(path).predict(x), model.predict_proba(x))


def test_images_as_outputs(path):
    model = Sequential([Conv2D(3, 1)], input_shape=(2, 4, 4))
    export(model, path, class_names=["sky", "road", "car"])
    with pytest.raises(ValueError, match=r"softmax: expected a model with outputs \(classes,\), got \(3, 4, 4\)"):
        export(model, path, softmax=True)


def test_invalid_arguments(path, data):
    def refused(error, message, model=None, **options):
        with pytest.raises(error, match=message):
            export(small() if model is None else model, path, **options)

    refused(ValueError, "input_dtype: expected 'uint8' or None, got 'float16'", input_dtype="float16")
    refused(TypeError, "softmax: expected", softmax="yes")
    refused(ValueError, r"class_names: expected 3 names, for outputs \(3,\), got 2", class_names=["a", "b"])
    refused(ValueError, r"class_names: expected 2 names, for outputs \(1,\), got 1", model=small(1), class_names=["a"])
    refused(TypeError, "class_names: expected a list of strings, got 'abc'", class_names="abc")
    refused(TypeError, r"class_names: expected a list of strings, got \[1, 2, 3\]", class_names=[1, 2, 3])
    refused(TypeError, "class_names: expected a list of strings, got 3", class_names=3)
    refused(NotFittedError, "SequentialClassifier", model=SequentialClassifier())
    refused(TypeError, "model: expected a Sequential, a Trainer or a fitted estimator, got type", model=Sequential)
    mean = r"softmax: expected a loss such as softmax_cross_entropy, .* got MeanSquaredError\(\)"
    refused(ValueError, mean, model=Trainer(small(), "mean_squared_error", SGD(0.1)), softmax=True)
    refused(ValueError, r"class_names: expected strings that UTF-8 .*'\\ud800'", class_names=["a", "\ud800", "c"])
    pipeline = make_pipeline(StandardScaler(), SequentialClassifier(epochs=1)).fit(*data)
    refused(TypeError, r"got Pipeline: export its last step, pipeline\[-1\]; the other steps are not", model=pipeline)
    assert not path.exists()
    export(pipeline[-1], path)


@pytest.mark.parametrize("last", [LogSoftmax, Softmin, Sigmoid])
@pytest.mark.parametrize("nest", [lambda last: last, Block, lambda last: Sequential([Block(ReLU(), last)])])
def test_what_is_not_scores_gets_no_softmax(last, nest, path):
    model = Sequential([Dense(3), nest(last())], input_shape=(4,))
    with pytest.raises(ValueError, match=f"softmax: expected a model without a {last.__name__} at its end, got one"):
        export(model, path, softmax=True)
    assert not path.exists()


def test_a_softmax_in_a_branch_is_not_the_last_layer(path, rng):
    model, x = Sequential([Dense(3), Residual(Softmax())], input_shape=(4,)), rng.random((5, 4)).astype("f4")
    export(model, path, softmax=True)
    assert relative_error(run_onnxruntime(path, x), model.predict_proba(x)) < 1e-6


def test_a_softmax_at_the_end_is_not_written_twice(path, rng):
    model, x = Sequential([Dense(3), Softmax()], input_shape=(4,)), rng.random((5, 4)).astype("f4")
    export(model, path, softmax=True)
    assert relative_error(run_onnxruntime(path, x), model.predict(x)) < 1e-6
    assert repr(import_model(path)) == repr(model)


# ---- what the user says of a model


SAID = {"z": ["é */", 0.1, None], "a": {"n": 1}}


@pytest.mark.parametrize("classes", [["é", "b", "c"], [3, 1, 2]], ids=str)
def test_classes_and_metadata_are_read_back(path, classes):
    model = small()
    model.classes, model.metadata = classes, SAID
    for options in ({}, {"dtype": "float64"}, {"softmax": True}, {"input_dtype": "uint8"}):
        export(model, path, **options)
        back = import_model(path)
        assert (back.classes, back.metadata) == (tuple(classes), SAID)
    entries = metadata(path)
    assert (json.loads(entries["class_names"]), json.loads(entries["metadata"])) == (classes, SAID)
    export(Trainer(model, "softmax_cross_entropy", SGD(0.1)), path, class_names=["x", "y", "z"])
    assert import_model(path).classes == ("x", "y", "z")


def test_a_model_of_any_size_keeps_them(path):
    model = Sequential([Conv2D(2, 3, padding=1)], input_shape=(1, None, None))
    model.classes, model.metadata = ["sky", "road"], SAID
    export(model, path)
    back = import_model(path)
    assert (back.input_shape, back.classes, back.metadata) == ((1, None, None), ("sky", "road"), SAID)


def test_classes_are_of_the_outputs_of_the_file_alone(path):
    import onnx

    model = Sequential([Dense(3), ReLU(), Dense(3)], input_shape=(5,))
    model.classes, model.metadata = ["a", "b", "c"], SAID
    export(model, path)
    inner = onnx.load(path).graph.node[0].output[0]
    back = import_model(path, outputs=inner)
    assert (back.output_shape, back.classes, back.metadata) == ((3,), None, SAID)


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "a, b, c",
        "[",
        "[1, 2]",
        '["a", "a", "b"]',
        '["a", "b", 3]',
        '{"a": NaN}',
        "[" * 100_000,
        "3",
        '"abc"',
        "null",
    ],
    ids=lambda entry: entry[:20],
)
def test_entries_of_other_programs_are_no_error(path, entry):
    import onnx

    export(small(), path)
    proto = onnx.load(path)
    onnx.helper.set_model_props(proto, {"class_names": entry, "metadata": entry})
    onnx.save(proto, path)
    back = import_model(path)
    assert (back.classes, back.metadata) == (None, {})
