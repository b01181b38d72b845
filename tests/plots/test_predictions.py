"""plots.misclassified and plots.confusion_matrix."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import matplotlib.pyplot as plt
from figure_checks import SIZES, check_readable, figure_of, images, title
from matplotlib.figure import Figure
from sklearn.metrics import confusion_matrix
from sklearn.naive_bayes import GaussianNB

from minidl import Sequential, Trainer, plots
from minidl.layers import Conv2D, Dense, Flatten, Rescale
from minidl.optimizers import SGD

RNG = np.random.default_rng(0)
X, Y = RNG.integers(0, 17, (200, 1, 6, 6), dtype=np.uint8), RNG.integers(0, 5, 200)
LONG_NAMES = ["a disc of one colour", "square", "triangle that points up", "$x^2$", "a class with a name of many words"]


def make_model(outputs=5, shape=(1, 6, 6)):
    flat = [Flatten()] if len(shape) > 1 else []
    return Sequential([Rescale(1 / 16), *flat, Dense(outputs)], shape)


def captions(figure):
    """Returns (predicted, percent, true) from the caption of each image."""
    (axes,) = figure.axes
    pairs = [text.get_text().split("\n") for text in axes.texts]
    return [(a.rpartition(": ")[0], a.rpartition(": ")[2], b.removeprefix("true ")) for a, b in pairs]


def cell_numbers(figure, classes):
    """Returns the numbers of a confusion matrix by cell."""
    numbers = {text.get_position()[::-1]: text.get_text() for text in figure.axes[0].texts}
    assert all(0 <= index < classes for cell in numbers for index in cell)
    return numbers


def check_worst(figure, probabilities, y, max_examples, X=X[:, 0], names=None):
    """Checks images and captions: mistakes, the most confident first."""
    found, names = probabilities.argmax(axis=1), np.arange(probabilities.shape[1]) if names is None else np.array(names)
    wrong = sorted(np.flatnonzero(found != y), key=lambda i: (-probabilities[i, found[i]], probabilities[i, y[i]]))[
        :max_examples
    ]
    assert len(images(figure)) == len(wrong) > 1
    np.testing.assert_allclose(images(figure), X[wrong])
    expected = [(str(names[found[i]]), f"{probabilities[i, found[i]]:.0%}", str(names[y[i]])) for i in wrong]
    assert captions(figure) == expected


# ---- misclassified
def test_the_most_confident_mistakes_come_first():
    model = make_model()
    probabilities = model.predict_proba(X)
    figure = plots.misclassified(model, X, Y)
    check_worst(figure, probabilities, Y, 16)
    wrong = int((probabilities.argmax(axis=1) != Y).sum())
    assert title(figure) == f"{wrong} of 200 examples misclassified; the 16 most confident"
    check_worst(plots.misclassified(model, X, Y, max_examples=3), probabilities, Y, 3)
    check_worst(plots.misclassified(model, X, Y, max_examples=1000), probabilities, Y, 1000)
    assert title(plots.misclassified(model, X, Y, max_examples=1000)) == f"{wrong} of 200 examples misclassified"


def test_types_of_labels():
    model = make_model()
    expected = captions(plots.misclassified(model, X, Y))
    for y in (Y[:, np.newaxis], Y.astype(float), Y.tolist(), Y.astype(np.uint8), Y.astype(">i4")):
        assert captions(plots.misclassified(model, X, y)) == expected


def test_a_model_with_one_score():
    model, y = make_model(1), Y % 2
    check_worst(plots.misclassified(model, X, y), model.predict_proba(X), y, 16)
    figure = plots.misclassified(model, X, y == 1, ["no", "yes"])
    check_worst(figure, model.predict_proba(X), y, 16, names=["no", "yes"])


def test_mistakes_match_the_accuracy():
    """If two scores round to equal probabilities, the scores decide, as for accuracy."""
    model = Sequential([Dense(2, use_bias=False)], (1,))
    model.params["0.weight"].value = [[1.0], [1.0 + 1e-6]]
    X = np.full((1, 1), 1e-3)
    assert model.predict_proba(X).tolist() == [[0.5, 0.5]]
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1), ["accuracy"])
    assert trainer.evaluate(X, [1])["accuracy"] == 1
    assert "None of 1 example" in title(plots.misclassified(model, X, [1], image_shape=(1, 1, 1)))


def test_sparse_rows():
    import scipy.sparse

    model = make_model()
    figure = plots.misclassified(model, scipy.sparse.csr_matrix(X.reshape(200, 36)), Y)
    check_worst(figure, model.predict_proba(X), Y, 16)


@pytest.mark.filterwarnings("error")
def test_line_breaks_in_names_become_spaces():
    figure = plots.misclassified(make_model(), X, Y, class_names=["a\n1", "b\t2", "c 3", "d\n4", "e\n5"])
    figure.draw_without_rendering()
    names = {name for found, _, true in captions(figure) for name in (found, true)}
    assert len(names) > 1 and names <= {"a 1", "b 2", "c 3", "d 4", "e 5"}


def test_names_are_those_of_the_model():
    names, model = ["zero", "one", "two", "three", "four"], make_model()
    model.classes = names
    check_worst(plots.misclassified(model, X, Y), model.predict_proba(X), Y, 16, names=names)
    check_worst(plots.misclassified(model, X, Y, list("abcde")), model.predict_proba(X), Y, 16, names=list("abcde"))


def test_class_names_are_not_parsed():
    names = ["zero", "<b>", "$x$", "two words", "five"]
    model = make_model()
    figure = plots.misclassified(model, X, Y, names)
    check_worst(figure, model.predict_proba(X), Y, 16, names=names)
    assert not any(text.get_parse_math() for text in figure.axes[0].texts)


def test_long_names_are_truncated():
    found = captions(plots.misclassified(make_model(), X, Y, LONG_NAMES, max_examples=60))
    cut = {name for row in found for name in (row[0], row[2]) if name.endswith("…")}
    assert cut and all(any(long.startswith(name[:-1]) for long in LONG_NAMES) for name in cut)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("names", [None, LONG_NAMES])
@pytest.mark.parametrize(("n", "max_examples"), [(200, 16), (1, 16), (200, 1), (200, 100)])
def test_misclassified_is_legible(size, names, n, max_examples):
    y = (make_model().predict(X[:n]).argmax(axis=1) + 1 + Y[:n] % 4) % 5  # all mistakes
    figure = plots.misclassified(make_model(), X[:n], y, names, max_examples, figure=figure_of(size))
    check_readable(figure)
    assert len(images(figure)) == min(n, max_examples) or size is not None
    assert len(images(figure)) >= min(n, max_examples, 2)


def test_rgb_images():
    model = Sequential([Rescale(1 / 255), Conv2D(2, 3), Flatten(), Dense(5)], (3, 6, 6))
    X = RNG.integers(0, 256, (50, 3, 6, 6), dtype=np.uint8)
    figure = plots.misclassified(model, X, Y[:50])
    check_worst(figure, model.predict_proba(X), Y[:50], 16, X.transpose(0, 2, 3, 1) / 255)


def test_flat_rows_need_an_image_shape():
    model, rows = make_model(shape=(36,)), X.reshape(200, 36)
    with pytest.raises(
        ValueError, match=r"X: expected images or signals, got shape \(200, 36\): pass image_shape=.*confusion_matrix"
    ):
        plots.misclassified(model, rows, Y)
    check_worst(plots.misclassified(model, rows, Y, image_shape=(1, 6, 6)), model.predict_proba(rows), Y, 16)
    check_worst(plots.misclassified(make_model(), rows, Y), make_model().predict_proba(rows), Y, 16)


@pytest.mark.parametrize("size", SIZES)
def test_a_figure_without_mistakes(size):
    y = make_model().predict(X).argmax(axis=1)
    figure = plots.misclassified(make_model(), X, y, figure=figure_of(size))
    assert images(figure) == [] and title(figure) == "None of 200 examples misclassified"
    check_readable(figure)


class Estimator:
    """A fitted estimator with labels and an inner model."""

    model_ = make_model(3)
    classes_ = np.array(["cat", "dog", "eel"])

    def predict_proba(self, X):
        return self.model_.predict_proba(X)


def test_estimators_with_string_labels():
    y = RNG.integers(0, 3, 200)
    for X_ in (X, X.reshape(200, 36)):
        figure = plots.misclassified(Estimator(), X_, Estimator.classes_[y])
        check_worst(figure, Estimator.model_.predict_proba(X), y, 16, names=Estimator.classes_)
    with pytest.raises(ValueError, match=r"y: expected labels of the classes \['cat', 'dog', 'eel'\], got .*fox"):
        plots.misclassified(Estimator(), X, ["cat"] * 199 + ["fox"])


def test_scikit_learn_classifiers():
    rows = X.reshape(200, 36)
    fitted = GaussianNB(var_smoothing=0.5).fit(rows, Y * 10)
    figure = plots.misclassified(fitted, rows, Y * 10, image_shape=(1, 6, 6))
    check_worst(figure, fitted.predict_proba(rows), Y, 16, names=fitted.classes_)
    images_ = plots.misclassified(ImageClassifier(fitted), X[:, 0], Y * 10)
    check_worst(images_, fitted.predict_proba(rows), Y, 16, names=fitted.classes_)


class ImageClassifier:
    """A classifier of images (n, h, w)."""

    def __init__(self, fitted):
        self.fitted, self.classes_ = fitted, fitted.classes_

    def predict_proba(self, X):
        return self.fitted.predict_proba(X.reshape(len(X), -1))


# ---- confusion matrices
@pytest.mark.parametrize("normalize", [None, "true", "pred", "all"])
def test_the_matrix_matches_scikit_learn(normalize):
    model = make_model()
    figure = plots.confusion_matrix(model, X, Y, normalize=normalize)
    predicted = model.predict(X).argmax(axis=1)
    found = confusion_matrix(Y, predicted, normalize=normalize)
    assert cell_numbers(figure, 5) == {
        cell: f"{value:.2f}" if normalize else str(value) for cell, value in np.ndenumerate(found) if value
    }
    correct, errors = (np.ma.filled(image.get_array(), 0) for image in figure.axes[0].images)
    np.testing.assert_array_equal(correct, np.diag(np.diag(found)))
    np.testing.assert_array_equal(errors, found - correct)
    assert [image.get_clim() for image in figure.axes[0].images] == [(0, correct.max()), (0, errors.max())]
    assert figure.get_suptitle() == f"{(predicted != Y).sum()} of 200 examples misclassified (red)"
    assert figure.axes[0].get_xlabel() == "predicted class" and figure.axes[0].get_ylabel() == "true class"
    check_readable(figure)


def test_absent_classes_are_drawn():
    model, y = make_model(), np.where(Y == 2, 1, Y)
    model.params["2.bias"].value[2] = -100
    figure = plots.confusion_matrix(model, X, y, LONG_NAMES)
    numbers = cell_numbers(figure, 5)
    assert sum(map(int, numbers.values())) == 200 and not any(2 in cell for cell in numbers)
    ticks = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert all(name.startswith(tick.rstrip("…")) for name, tick in zip(LONG_NAMES, ticks, strict=True))
    assert ticks == [label.get_text() for label in figure.axes[0].get_xticklabels()]
    both = [*figure.axes[0].get_xticklabels(), *figure.axes[0].get_yticklabels()]
    assert not any(label.get_parse_math() for label in both)  # no TeX


class ManyClasses:
    """A classifier with `classes` classes."""

    def __init__(self, classes):
        self.classes_ = np.arange(classes)

    def predict_proba(self, X):
        return np.eye(len(self.classes_))[np.arange(len(X)) % len(self.classes_)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("normalize", [None, "true"])
@pytest.mark.parametrize(
    ("classes", "name"), [(2, "{}"), (10, "{}"), (10, "a class called {}"), (30, "{}"), (100, "class {}")]
)
def test_matrices_are_legible(classes, name, normalize, size):
    y, names = np.arange(20_000) % classes, [name.format(i) for i in range(classes)]
    figure = plots.confusion_matrix(ManyClasses(classes), np.zeros((20_000, 2)), y, names, normalize, figure_of(size))
    check_readable(figure)
    bars = figure.axes[0].child_axes
    assert len(cell_numbers(figure, classes)) == (0 if bars else classes)  # all are correct
    assert not bars or classes >= 10


def test_subfigures():
    left, right = Figure((6.9, 3), layout="constrained").subfigures(1, 2)
    assert plots.confusion_matrix(make_model(), X, Y, figure=left) is left
    assert plots.misclassified(make_model(), X, Y, figure=right) is right
    check_readable(left.figure)
    assert len(left.axes) == len(right.axes) == 1 and plt.get_fignums() == []


# ---- refusals
@pytest.mark.parametrize("draw", [plots.misclassified, plots.confusion_matrix])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": Sequential([Dense(3)])}, "model: expected a built one"),
        (
            {"model": Sequential([Conv2D(3, 3)], (1, 6, 6))},
            r"y: expected one label per pixel, shape \(200, 4, 4\), got",
        ),
        ({"model": object()}, "model: expected a Sequential or a fitted estimator of one, got object"),
        ({"X": X[:, :, :5]}, r"X: expected shape \(n, 1, 6, 6\)"),
        ({"X": X[:0], "y": Y[:0]}, "X: expected at least one example, got none"),
        ({"y": Y[:-1]}, r"y: expected 200 labels, one for each example of X, got shape \(199,\)"),
        ({"y": np.eye(5)[Y]}, r"y: expected 200 labels, one for each example of X, got shape \(200, 5\)"),
        ({"y": Y + 1}, r"y: expected labels of the classes \[0, 1, 2, 3, 4\], got .*5"),
        ({"y": Y + 0.5}, "y: expected labels of the classes"),
        ({"y": Y.astype(str)}, "y: expected real numbers"),
        ({"y": None}, "y: expected an array, got None"),
        ({"class_names": ["a", "b"]}, "class_names: expected 5 names, got 2"),
        ({"class_names": "abcde"}, "class_names: expected a list of names, got 'abcde'"),
        ({"figure": 7}, "figure: expected a Figure"),
    ],
)
def test_invalid_arguments_are_refused(draw, arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        draw(**{"model": make_model(), "X": X, "y": Y} | arguments)


def test_an_unfitted_estimator_is_refused():
    from minidl.estimators import SequentialClassifier

    with pytest.raises(ValueError, match="X: expected images or signals, got shape"):
        plots.misclassified(SequentialClassifier(), X.reshape(200, 36), Y)


def test_a_regressor_is_refused():
    from minidl.estimators import SequentialRegressor

    fitted = SequentialRegressor(epochs=1).fit(X.reshape(200, 36), np.arange(200.0))
    with pytest.raises(ValueError, match="model: expected a classifier, got SequentialRegressor"):
        plots.confusion_matrix(fitted, X.reshape(200, 36), Y)


def test_invalid_arguments_of_one_function_are_refused():
    with pytest.raises(ValueError, match="normalize: expected 'true', 'pred', 'all' or None, got 'rows'"):
        plots.confusion_matrix(make_model(), X, Y, normalize="rows")
    with pytest.raises(ValueError, match="max_examples: expected at least 1, got 0"):
        plots.misclassified(make_model(), X, Y, max_examples=0)
    with pytest.raises(ValueError, match="image_shape: expected a product of 36"):
        plots.misclassified(make_model(), X, Y, image_shape=(1, 5, 5))

    class Wrong(Estimator):
        def predict_proba(self, X):
            return super().predict_proba(X)[:, :2]

    with pytest.raises(ValueError, match=r"model: expected probabilities \(n, 3\), got \(200, 2\)"):
        plots.misclassified(Wrong(), X, ["cat"] * 200)


def test_ties_in_confidence_are_ordered_by_the_probability_of_the_true_class():
    class Fixed:
        classes_ = np.arange(3)

        def predict_proba(self, X):
            return np.array([[0.5, 0.3, 0.2], [0.5, 0.1, 0.4], [0.5, 0.2, 0.3]])

    figure = plots.misclassified(Fixed(), X[:3], np.ones(3, int), class_names=["a", "b", "c"])
    drawn = [np.asarray(image.get_array()).reshape(6, 6) for image in figure.axes[0].images]
    expected = [X[i, 0] for i in (1, 2, 0)]
    for one, other in zip(drawn, expected, strict=True):
        assert np.corrcoef(one.ravel(), other.ravel())[0, 1] > 0.99
