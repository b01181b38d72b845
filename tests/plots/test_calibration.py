"""plots.calibration_curve."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from figure_checks import check_readable
from matplotlib.figure import Figure
from sklearn.calibration import calibration_curve
from sklearn.naive_bayes import GaussianNB

from minidl import Sequential, plots
from minidl.estimators import TabularClassifier
from minidl.layers import Conv2D, Dense

RNG = np.random.default_rng(0)
X = RNG.normal(size=(500, 3))
Y = np.where(X[:, 0] + 0.5 * RNG.normal(size=500) > 0, "a high one", "low")
CLASSES = np.clip(np.round(X[:, 0] + RNG.normal(size=500)), -1, 1).astype(int)


def curve(figure):
    """Returns mean probabilities and shares of the bins that are drawn, and the counts of all bins."""
    axes, histogram = figure.axes
    return axes.lines[1].get_data(), [bar.get_height() for bar in histogram.patches]


def test_of_two_classes_the_curve_is_that_of_scikit_learn():
    classifier = GaussianNB().fit(X, Y)
    (mean, share), counts = curve(figure := plots.calibration_curve(classifier, X, Y))
    probabilities = classifier.predict_proba(X)[:, 1]
    expected_share, expected_mean = calibration_curve(Y == "low", probabilities, n_bins=10)
    np.testing.assert_allclose(mean, expected_mean)
    np.testing.assert_allclose(share, expected_share)
    np.testing.assert_array_equal(counts, np.histogram(probabilities, 10, (0, 1))[0])
    assert [axes.get_ylabel() for axes in figure.axes] == ["share of low", "examples"]
    check_readable(figure)


def test_of_several_classes_it_is_that_of_the_predicted_class():
    classifier = GaussianNB().fit(X, CLASSES)
    (mean, share), _ = curve(figure := plots.calibration_curve(classifier, X, CLASSES, n_bins=7))
    confidence, right = classifier.predict_proba(X).max(axis=1), classifier.predict(X) == CLASSES
    expected_share, expected_mean = calibration_curve(right, confidence, n_bins=7)
    np.testing.assert_allclose(mean, expected_mean)
    np.testing.assert_allclose(share, expected_share)
    bins = np.minimum((confidence * 7).astype(int), 6)
    error = sum(abs(confidence[bins == k].sum() - right[bins == k].sum()) for k in range(7)) / 500
    assert figure.axes[0].get_title(loc="left") == f"expected calibration error {error:.3f}, 500 examples"


def test_left_out_labels_count_nothing():
    classifier, y = GaussianNB().fit(X, CLASSES), CLASSES.copy()
    y[100:] = -100
    figure, first = (
        plots.calibration_curve(classifier, X, y, ignore_index=-100),
        plots.calibration_curve(classifier, X[:100], CLASSES[:100]),
    )
    np.testing.assert_array_equal(curve(figure)[0], curve(first)[0])
    with pytest.raises(ValueError, match="y: expected a label beside -100, which is left out, got none"):
        plots.calibration_curve(classifier, X, np.full(500, -100), ignore_index=-100)


def test_it_draws_a_table_as_it_comes_into_a_given_figure():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abc"))
    classifier = TabularClassifier(n_folds=2, epochs=2, random_state=0).fit(frame, Y)
    figure = Figure((3, 4))
    assert plots.calibration_curve(classifier, frame, Y, ["high", "x" * 99], figure=figure) is figure
    assert "…" in figure.axes[0].get_ylabel()
    check_readable(figure)


def test_what_is_refused():
    with pytest.raises(ValueError, match="model: expected a classifier of examples, got a net with scores"):
        plots.calibration_curve(Sequential([Conv2D(3, 3, padding=1)], (1, 4, 4)), np.zeros((2, 1, 4, 4)), [0, 1])
    model = Sequential([Dense(3)], (3,))
    for n_bins in (0, 101, 2**62):
        with pytest.raises(ValueError, match=rf"n_bins: expected .*, got {n_bins}"):
            plots.calibration_curve(model, X, CLASSES + 1, n_bins=n_bins)
    model.params["0.weight"].value[...] = np.nan
    with pytest.raises(ValueError, match="model: expected probabilities from 0 to 1, got others, or NaN"):
        plots.calibration_curve(model, X, CLASSES + 1)
