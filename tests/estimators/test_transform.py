"""transform: a layer's output as features, under scikit-learn's names."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import StandardScaler

from minidl.estimators import SequentialClassifier, SequentialRegressor
from minidl.layers import BatchNorm1D, Conv2D, Dense, Dropout, Flatten, ReLU

RNG = np.random.default_rng(0)
IMAGES, Y = RNG.normal(size=(40, 1, 5, 5)).astype("float32"), np.arange(40) % 3
X = IMAGES.reshape(40, 25)


@pytest.fixture(scope="module")
def fitted():
    layers = [Conv2D(2, 3), ReLU(), Flatten(), Dense(7), BatchNorm1D(), ReLU(), Dropout(0.5), Dense(3)]
    return SequentialClassifier(layers, epochs=2, batch_size=20, random_state=0).fit(IMAGES, Y)


def test_every_layer_matches_the_model_by_hand(fitted):
    x = fitted.model_.forward(IMAGES[:0])  # the model itself is not changed
    assert x.shape == (0, 3)
    x = IMAGES
    for i, layer in enumerate(fitted.model_.layers):
        x = fitted.model_[i : i + 1].predict(x)
        assert x.shape[1:] == layer.out_shape
        for place in (i, i - 8, np.int64(i)):
            result = fitted.transform(IMAGES, layer=place)
            assert result.dtype == "float32"
            np.testing.assert_array_equal(result, x.reshape(40, -1))
    np.testing.assert_array_equal(fitted.transform(X), fitted.transform(IMAGES, layer=6))
    np.testing.assert_array_equal(fitted.transform(X, layer=-1), fitted.model_.predict(X))


def test_dropout_is_off_and_batch_norm_as_in_predictions(fitted):
    np.testing.assert_array_equal(fitted.transform(X), fitted.transform(X))
    np.testing.assert_array_equal(fitted.transform(X[:1]), fitted.transform(X)[:1])
    last = fitted.model_.params
    scores = fitted.transform(X) @ last["7.weight"].value.T + last["7.bias"].value
    np.testing.assert_allclose(scores, fitted.model_.predict(X), 1e-5, 1e-5)


@pytest.mark.parametrize("layer", [8, -10, 1.5, "ReLU", None, True])
def test_invalid_layers_are_refused(fitted, layer):
    with pytest.raises((TypeError, ValueError), match="layer: expected"):
        fitted.transform(X, layer=layer)


def test_invalid_inputs_are_refused(fitted):
    with pytest.raises(ValueError, match="24 features"):
        fitted.transform(X[:, :24])


def test_the_input_of_the_first_layer_is_x():
    single = SequentialClassifier([Dense(3)], epochs=1).fit(X, Y)
    for rows in (X, csr_array(X)):
        np.testing.assert_array_equal(single.transform(rows), X)
    assert len(single.get_feature_names_out()) == X.shape[1]
    assert "transform" in dir(single)  # which reads every property, as notebooks do
    np.testing.assert_array_equal(single.transform(X, layer=0), single.model_.predict(X))


def test_feature_names(fitted):
    assert fitted.get_feature_names_out().tolist() == [f"sequentialclassifier{i}" for i in range(7)]
    regressor = SequentialRegressor(epochs=1).fit(X, X[:, 0])
    assert regressor.get_feature_names_out().tolist()[-1] == "sequentialregressor99"
    with pytest.raises(NotFittedError):
        SequentialClassifier().get_feature_names_out()


def test_features_as_a_data_frame():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, index=RNG.permutation(40)).rename(columns=str)
    estimator = SequentialClassifier(epochs=1, random_state=0).set_output(transform="pandas").fit(frame, Y)
    result = estimator.transform(frame)
    assert list(result.columns) == [f"sequentialclassifier{i}" for i in range(100)]
    np.testing.assert_array_equal(result.index, frame.index)
    np.testing.assert_array_equal(result, estimator.set_output(transform="default").transform(frame))
    assert isinstance(estimator.predict(frame), np.ndarray)


@pytest.mark.parametrize("layer", [0, 1, 2, -1, -4])
def test_a_frame_has_the_columns_of_its_layer(layer):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, index=RNG.permutation(40)).rename(columns=str)
    estimator = SequentialClassifier([Dense(7), ReLU(), Dense(3)], epochs=1, random_state=0).fit(frame, Y)
    expected = estimator.transform(frame, layer=layer)
    result = estimator.set_output(transform="pandas").transform(frame, layer=layer)
    assert list(result.columns) == [f"sequentialclassifier{i}" for i in range(expected.shape[1])]
    np.testing.assert_array_equal(result.index, frame.index)
    np.testing.assert_array_equal(result, expected)
    again = clone(estimator).set_output(transform="pandas")
    assert list(again.fit_transform(frame, Y).columns) == list(again.get_feature_names_out())
    with config_context(transform_output="pandas"):
        regressor = SequentialRegressor([Dense(5), Dense(1)], epochs=1).fit(frame, Y)
        assert list(regressor.transform(frame, layer=1).columns) == ["sequentialregressor0"]
        assert isinstance(regressor.set_output(transform="default").transform(frame, layer=1), np.ndarray)


def test_before_another_estimator():
    y = (np.linalg.norm(X[:, :2], axis=1) > 1.2).astype(int)  # not linearly separable
    net = SequentialClassifier([Dense(16), ReLU(), Dense(2)], epochs=200, tol=None, lr=0.01, random_state=0)
    pipeline = make_pipeline(StandardScaler(), net, LogisticRegression())
    pipeline.fit(X, y)
    assert pipeline.score(X, y) == 1
    features = pipeline[:-1].transform(X)
    np.testing.assert_array_equal(pipeline[-1].predict(features), pipeline.predict(X))
    names = pipeline[:-1].get_feature_names_out()
    assert len(names) == 16
    np.testing.assert_array_equal(net.fit_transform(X, y), net.fit(X, y).transform(X))


def test_next_to_other_features():
    net = SequentialRegressor([Dense(4), ReLU(), Dense(1)], epochs=1, random_state=0)
    union = FeatureUnion([("net", net), ("scaled", StandardScaler())]).fit(X, X[:, 0])
    assert union.transform(X).shape == (40, 29)
    assert union.get_feature_names_out()[:2].tolist() == ["net__sequentialregressor0", "net__sequentialregressor1"]
