"""plots.misclassified, confusion_matrix, saliency and grad_cam of nets with a label for each pixel."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from figure_checks import SIZES, check_readable, figure_of, images, title
from sklearn.metrics import confusion_matrix

from minidl import Sequential, plots
from minidl.layers import Conv1D, Conv2D, Dense, Flatten, MaxPool2D, ReLU, Rescale, Softmax, Upsample2D
from minidl.metrics import iou
from minidl.plots import pixels
from minidl.plots.attribution import chain_to, choose_classes, compute_grad_cam, compute_saliency

RNG = np.random.default_rng(0)
N, SHAPE = 40, (1, 8, 8)
X = RNG.integers(0, 17, (N, *SHAPE), dtype=np.uint8)
Y = RNG.integers(0, 3, (N, 8, 8))
HOLES = np.where(RNG.random(Y.shape) < 0.2, 255, Y)


def make_model(outputs=3, dtype="float32"):
    layers = [Rescale(1 / 16), Conv2D(6, 3, padding=1), ReLU(), MaxPool2D(2), Conv2D(5, 3, padding=1), ReLU()]
    return Sequential([*layers, Upsample2D(2), Conv2D(outputs, 1)], SHAPE, dtype=dtype)


MODEL = make_model()
PREDICTED = MODEL.predict(X).argmax(axis=1)


def cells(figure):
    """Returns the numbers of a confusion matrix by cell."""
    return {text.get_position()[::-1]: text.get_text() for text in figure.axes[0].texts}


# ---- confusion matrices
@pytest.mark.parametrize("chunk", [2**22, 1, 500])
@pytest.mark.parametrize("normalize", [None, "true", "pred", "all"])
def test_the_matrix_of_pixels_is_that_of_scikit_learn(monkeypatch, normalize, chunk):
    monkeypatch.setattr(pixels, "CHUNK", chunk)
    figure = plots.confusion_matrix(MODEL, X, HOLES, normalize=normalize, ignore_index=255)
    counts = HOLES != 255
    found = confusion_matrix(HOLES[counts], PREDICTED[counts], normalize=normalize)
    expected = {cell: f"{v:.2f}" if normalize else str(v) for cell, v in np.ndenumerate(found) if v}
    assert cells(figure) == expected
    wrong = (HOLES != PREDICTED)[counts].sum()
    assert figure.get_suptitle() == f"{wrong:,} of {counts.sum():,} pixels misclassified (red)"
    check_readable(figure)


def test_scores_are_computed_a_few_images_at_a_time(monkeypatch):
    seen, predict = [], Sequential.predict

    def counted(self, x, *arguments, **options):
        seen.append(len(x))
        return predict(self, x, *arguments, **options)

    monkeypatch.setattr(Sequential, "predict", counted)
    monkeypatch.setattr(pixels, "CHUNK", 7 * 3 * 64)
    plots.confusion_matrix(MODEL, X, Y)
    assert seen == [7] * 5 + [5]


@pytest.mark.parametrize("y", [Y > 0, (Y > 0).astype("u1")[:, np.newaxis], (Y > 0).astype("f4"), (Y > 0).tolist()])
def test_a_single_score_has_two_classes(y):
    model = make_model(1)
    figure = plots.confusion_matrix(model, X, y, ["sky", "bird"])
    expected = confusion_matrix((Y > 0).ravel(), (model.predict(X) > 0).ravel())
    assert cells(figure) == {cell: str(count) for cell, count in np.ndenumerate(expected) if count}
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["sky", "bird"]


def test_signals_have_labels_for_positions():
    model, signals, y = Sequential([Conv1D(2, 3, padding=1)], (1, 9)), RNG.random((5, 1, 9)), RNG.integers(0, 2, (5, 9))
    figure = plots.confusion_matrix(model, signals, y)
    assert sum(map(int, cells(figure).values())) == 45
    with pytest.raises(
        ValueError, match=r"model: expected outputs \(classes, h, w\) for each pixel of X, \(1, 9\), got"
    ):
        plots.misclassified(model, signals, y)


def test_examples_with_an_ignored_label_are_left_out():
    model, y = Sequential([Flatten(), Dense(3)], SHAPE), np.arange(N) % 4 - 1
    known, found = y >= 0, model.predict(X).argmax(axis=1)
    figure = plots.confusion_matrix(model, X, y, ignore_index=-1)
    expected = confusion_matrix(y[known], found[known])
    assert cells(figure) == {cell: str(count) for cell, count in np.ndenumerate(expected) if count}
    wrong = (found != y)[known].sum()
    figure = plots.misclassified(model, X, y, ignore_index=-1)
    assert title(figure).startswith(f"{wrong} of {known.sum()} examples misclassified")
    assert "true -1" not in "".join(text.get_text() for text in figure.axes[0].texts)
    both = plots.confusion_matrix(model, X, np.maximum(y, 0), ignore_index=0)  # a label that is a class, too
    assert not any(row == 0 for row, _ in cells(both))


# ---- misclassified
def test_the_images_of_the_lowest_iou_come_first(monkeypatch):
    y = Y.copy()
    y[3] = PREDICTED[3]  # no mistake: not drawn
    y[5] = 255
    every = np.array([iou(y[i : i + 1], MODEL.predict(X[i : i + 1]), 255) for i in range(N)])
    worst = [i for i in np.argsort(every, kind="stable") if i not in (3, 5)]
    monkeypatch.setattr(pixels, "CHUNK", 7 * 3 * 64)
    figure = plots.misclassified(MODEL, X, y, max_examples=4, ignore_index=255)
    captions = [text.get_text() for text in figure.axes[0].texts[:4]]
    assert captions == [f"{i}: IoU {every[i]:.2f}" for i in worst[:4]]
    wrong, count = ((y != PREDICTED) & (y != 255)).sum(), (y != 255).sum()
    counts = f"{wrong:,} of {count:,} pixels misclassified, in 38 of 40 examples"
    assert title(figure) == f"{counts}; the 4 of the lowest IoU: image, labels, prediction"
    drawn = images(figure)[:5]
    for k in (0, 1, 3):  # the image itself, and below both masks
        np.testing.assert_array_equal(drawn[k], X[worst[0], 0])
    every_one = plots.misclassified(MODEL, X, y, max_examples=100, ignore_index=255)
    assert title(every_one) == f"{counts}: image, labels, prediction"


@pytest.mark.parametrize("size", SIZES)
def test_a_net_of_pixels_without_mistakes(size):
    figure = plots.misclassified(MODEL, X, PREDICTED, figure=figure_of(size))
    assert images(figure) == [] and title(figure) == "None of 2,560 pixels misclassified"
    check_readable(figure)


@pytest.mark.parametrize("draw", [plots.misclassified, plots.confusion_matrix, plots.masks])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"y": HOLES},
            r"y: expected labels from 0 to 2, got 255: ignore_index=255 leaves out the pixels of that label",
        ),
        ({"y": HOLES, "ignore_index": 7}, r"y: expected labels from 0 to 2, got 255$"),
        ({"y": Y + 0.5}, "y: expected labels from 0 to 2, got"),
        ({"y": Y - 1}, "y: expected labels from 0 to 2, got -1"),
        ({"y": Y[:-1]}, r"y: expected one label per pixel, shape \(40, 8, 8\), got \(39, 8, 8\)"),
        ({"y": np.zeros((N, 3, 8, 8))}, r"y: expected one label per pixel, shape \(40, 8, 8\), got \(40, 3, 8, 8\)"),
        ({"y": Y.astype(str)}, "y: expected real numbers"),
        ({"X": X[:0], "y": Y[:0]}, "X: expected at least one example, got none"),
        ({"X": X[:, :, :5]}, r"X: expected shape \(n, 1, 8, 8\)"),
        ({"class_names": ["a"]}, "class_names: expected 3 names, got 1"),
        ({"ignore_index": "x"}, "ignore_index: expected an integer"),
        ({"model": Sequential([Conv2D(1, 1), Softmax()], SHAPE)}, "model: expected at least two scores for a softmax"),
    ],
)
def test_invalid_arguments_are_refused(draw, arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        draw(**{"model": MODEL, "X": X, "y": Y} | arguments)


# ---- saliency and grad_cam
def score_of(model, x, k, where):
    """Returns the scores of class k summed over some pixels of each example; of a single score, -s for class 0."""
    scores = model.predict(x)
    own = scores[:, k] if scores.shape[1] > 1 else (2 * k - 1) * scores[:, 0]
    return (own * where).sum(axis=(1, 2))


@pytest.mark.parametrize(("outputs", "k"), [(3, 1), (3, 0), (1, 1), (1, 0)])
def test_saliency_is_the_slope_of_the_summed_scores(outputs, k):
    model, x = make_model(outputs, "float64"), 16 * RNG.random((4, *SHAPE))
    chosen = choose_classes(model, model, x, k, 4)
    found = model.predict(x)
    where = (found.argmax(axis=1) if outputs > 1 else found[:, 0] > 0) == k
    assert chosen.names == [f"{k}, {n} pixel{'' if n == 1 else 's'}" for n in where.sum(axis=(1, 2))]
    maps = compute_saliency(model, x, chosen.dscores, SHAPE)
    for row, column in ((0, 0), (5, 3), (7, 7)):
        step = np.zeros_like(x)
        step[:, 0, row, column] = 1e-5
        slopes = (score_of(model, x + step, k, where) - score_of(model, x - step, k, where)) / 2e-5
        np.testing.assert_allclose(maps[:, row, column], np.abs(slopes), atol=1e-8)


def test_grad_cam_of_pixels_is_that_of_the_last_convolution_before_the_scores():
    model, x = make_model(dtype="float64"), 16 * RNG.random((4, *SHAPE))
    chain = chain_to(model, None)
    assert [name for name, _ in chain][-1] == "5"
    k = int(np.bincount(model.predict(x).argmax(axis=1).ravel()).argmax())
    where = model.predict(x).argmax(axis=1) == k
    maps = compute_grad_cam(model, chain, x, choose_classes(model, model, x, k, 4).dscores)
    outputs, back = model[:6].predict(x), model[6:]
    slopes = np.empty((4, 5))
    for channel in range(5):
        step = np.zeros_like(outputs)
        step[:, channel] = 1e-5
        slopes[:, channel] = (
            score_of(back, outputs + step, k, where) - score_of(back, outputs - step, k, where)
        ) / 2e-5
    slopes /= outputs[0, 0].size
    np.testing.assert_allclose(maps, np.maximum(np.einsum("nc,nchw->nhw", slopes, outputs), 0), atol=1e-8)
    assert (maps > 0).any()


def test_grad_cam_at_the_scores_themselves():
    model, x = make_model(dtype="float64"), 16 * RNG.random((4, *SHAPE))
    scores = model.predict(x)
    maps = compute_grad_cam(model, chain_to(model, -1), x, choose_classes(model, model, x, 2, 4).dscores)
    share = (scores.argmax(axis=1) == 2).mean(axis=(1, 2))
    np.testing.assert_allclose(maps, np.maximum(share[:, np.newaxis, np.newaxis] * scores[:, 2], 0), rtol=1e-12)


def test_a_net_of_one_convolution_has_no_default_layer():
    with pytest.raises(ValueError, match="since the model has no convolution before that of its scores, got None"):
        chain_to(Sequential([Conv2D(3, 1)], SHAPE), None)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("draw", [plots.saliency, plots.grad_cam])
def test_maps_of_classes_of_pixels(draw, size):
    figure = draw(MODEL, X, [0, 1, 2, 0, 1, 2, *[0] * 34], figure=figure_of(size))
    where = PREDICTED[0] == 0
    assert figure.axes[0].texts[0].get_text() == f"0: class 0, {where.sum()} pixels"
    check_readable(figure)
    with pytest.raises(ValueError, match=r"y: expected a class, such as y=1, for a model with outputs \(3, 8, 8\), "):
        draw(MODEL, X)
    with pytest.raises(ValueError, match="y: expected 40 labels, one for each example of X"):
        draw(MODEL, X, Y)
