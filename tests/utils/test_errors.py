"""InputError: every refusal of data has this type, and no other refusal has it."""

import io
import pickle

import numpy as np
import pytest

from minidl import FileError, InputError, Sequential, Trainer
from minidl.datasets import load_image
from minidl.estimators import SequentialClassifier, SequentialRegressor
from minidl.layers import Conv2D, Dense, Embedding, Flatten
from minidl.optimizers import SGD
from minidl.utils.errors import kind_of, refusing_input

X, Y = np.zeros((5, 4)), np.arange(5) % 3
NO_DATA = {
    "shape": np.zeros((5, 3)),
    "NaN": np.full((5, 4), np.nan),
    "too large": np.full((5, 4), 1e300),
    "strings": [["1"] * 4] * 5,
    "None": None,
    "empty list": [],
    "other rows of none": np.zeros((0, 3)),
    "complex": np.zeros((5, 4), complex),
    "mask": np.ma.masked_equal(X, 0),
    "ragged": [[1, 2], [3]],
}


def classifier():
    model = Sequential([Dense(3)], input_shape=(4,))
    return Trainer(model, "softmax_cross_entropy", SGD(0.1))


FITTED = SequentialClassifier(epochs=1).fit(np.random.default_rng(0).normal(size=(9, 4)), np.arange(9) % 3)
CALLS = {
    "predict": lambda bad: classifier().model.predict(bad),
    "predict_proba": lambda bad: classifier().model.predict_proba(bad),
    "Trainer.predict_proba": lambda bad: classifier().predict_proba(bad),
    "evaluate": lambda bad: classifier().evaluate(bad, Y),
    "fit": lambda bad: classifier().fit(bad, Y, verbose=0),
    "fit on batches": lambda bad: classifier().fit([(bad, Y)], verbose=0),
    "validation_data": lambda bad: classifier().fit(X, Y, validation_data=(bad, Y), verbose=0),
    "train_batch": lambda bad: classifier().train_batch(bad, Y),
    "estimator.fit": lambda bad: SequentialClassifier(epochs=1, dtype="float32").fit(bad, Y),
    "estimator.predict": lambda bad: FITTED.predict(bad),
    "estimator.predict_proba": lambda bad: FITTED.predict_proba(bad),
}


@pytest.mark.parametrize("bad", NO_DATA)
@pytest.mark.parametrize("call", CALLS)
def test_data_that_are_refused(call, bad):
    if call.startswith("estimator") and bad in ("other rows of none", "too large", "shape"):
        bad = "NaN"  # a fit takes these, and so does a model in float64
    with pytest.raises(InputError):
        CALLS[call](NO_DATA[bad])


@pytest.mark.parametrize("y", [Y - 1, Y + 5, Y[:3], ["a"] * 5, None, Y / 2, np.full(5, np.nan)], ids=str)
@pytest.mark.parametrize("call", ["fit", "evaluate", "train_batch"])
def test_targets_that_are_refused(call, y):
    with pytest.raises(InputError, match=r"^y: "):
        getattr(classifier(), call)(X, y)


@pytest.mark.parametrize("weights", [-np.ones(5), np.full(5, np.inf), np.ones(3), np.zeros(5), ["a"] * 5], ids=str)
@pytest.mark.parametrize("call", ["fit", "evaluate", "train_batch"])
def test_weights_that_are_refused(call, weights):
    with pytest.raises(InputError, match=r"^sample_weight"):
        getattr(classifier(), call)(X, Y, sample_weight=weights)
    with pytest.raises(InputError):
        SequentialRegressor().fit(X, Y, sample_weight=weights)


@pytest.mark.parametrize("kind", ["strings", "None", "complex", "mask"])
def test_a_wrong_type_is_a_type_error_too(kind):
    with pytest.raises(InputError) as refused:
        classifier().model.predict(NO_DATA[kind])
    assert isinstance(refused.value, TypeError) and isinstance(refused.value, ValueError)
    again = pickle.loads(pickle.dumps(refused.value))
    assert type(again) is type(refused.value) and str(again) == str(refused.value)


def test_images_of_a_size_that_does_not_fit():
    model = Sequential([Conv2D(2, 3)], input_shape=(1, None, None), max_pixels=64)
    for shape in ((2, 1, 2, 2), (2, 3, 8, 8), (2, 1, 0, 8), (2, 1, 9, 9), (4, 4)):
        with pytest.raises(InputError):
            model.predict(np.zeros(shape))


def test_bytes_of_a_caller_and_files():
    pytest.importorskip("PIL")
    with pytest.raises(InputError, match=r"^file: expected an image"):
        load_image(io.BytesIO(b"no image"))


def test_a_file_of_ones_own_that_is_no_image(tmp_path):
    pytest.importorskip("PIL")
    path = tmp_path / "a.png"
    path.write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"^file: expected an image") as refused:
        load_image(path)
    assert not isinstance(refused.value, InputError)


def unbuilt():
    Sequential([Dense(3)]).predict(X)


def no_classes():
    Sequential([Conv2D(2, 1)], input_shape=(1, 2, 2)).predict_proba(np.zeros((1, 1, 2, 2)))


def no_such_output():
    classifier().model.predict_proba(X, output="policy")


def not_finite():
    model = classifier().model
    model.params["0.weight"].value[0, 0] = np.nan
    model.predict_proba(X)


@pytest.mark.parametrize(
    "call",
    [
        *(unbuilt, no_classes, no_such_output, not_finite),
        lambda: classifier().fit(X, Y, epochs=-1),
        lambda: classifier().fit(X, Y, class_weight=3, verbose=0),
        lambda: classifier().fit(X, Y, validation_data=3),
        lambda: SequentialClassifier().predict(X),
        lambda: SequentialClassifier(class_weight="heavy").fit(X, Y),
        lambda: SequentialClassifier([Dense(7)]).fit(X, Y),
        lambda: SequentialClassifier(epochs="many").fit(X, Y),
        lambda: classifier().model.load_state_dict({"0.weight": np.full((3, 4), np.nan)}),
    ],
)
def test_what_is_not_input(call):
    with pytest.raises((TypeError, ValueError)) as refused:
        call()
    assert not isinstance(refused.value, InputError)


def test_what_overflows_is_named_and_weights_are_the_operators():
    model = Sequential([Dense(3)], input_shape=(4,))
    model.load_state_dict({"0.weight": np.full((3, 4), 1e30), "0.bias": np.zeros(3)})
    rows = np.zeros((4, 4))
    rows[[1, 3]] = 1e20
    for call in (model.predict_proba, Trainer(model, "softmax_cross_entropy", SGD(0.1)).predict_proba):
        with pytest.raises(InputError, match=r"^X: expected rows with probabilities, got NaN .* \[1, 3\] of X"):
            call(rows)
    assert np.isinf(model.predict(rows)[1]).all()  # scores are as they are
    np.testing.assert_array_equal(model.predict_proba(rows[[0, 2]]), np.float32([[1 / 3] * 3] * 2))


def test_a_category_that_a_model_lacks_is_named():
    model = Sequential([Embedding(3, 2), Flatten(), Dense(2)], input_shape=(4,))
    with pytest.raises(InputError, match="example 0 of X: an Embedding"):
        model.predict_proba([[0, 1, 2, 3]])


@pytest.mark.parametrize("call", ["predict", "predict_proba"])
def test_no_rows_give_no_rows(call):
    for trained in (classifier(), classifier().model):
        assert getattr(trained, call)(np.zeros((0, 4))).shape == (0, 3)


def test_wrappers_keep_type_words_and_notes():
    class Own(ValueError):
        pass

    for kind in (ValueError, TypeError):
        with pytest.raises(InputError, match=r"^words") as refused, refusing_input():
            error = kind("words")
            error.add_note("a note")
            raise error
        assert isinstance(refused.value, kind) and refused.value.__notes__ == ["a note"]
        assert kind_of(refused.value) is type(refused.value)
    for error in (Own("own"), FileError("file"), InputError("input"), RuntimeError("other")):
        with pytest.raises(type(error)) as raised, refusing_input():
            raise error
        assert raised.value is error
