"""Element-wise losses: their targets, errors for invalid ones, and models trained with them."""

import numpy as np
import pytest
from reference_losses import FUNCTIONS, mean_of
from sklearn.metrics import mean_pinball_loss

from minidl import Sequential, Trainer, losses
from minidl.layers import Conv2D, Dense, MaxPool2D, ReLU, Upsample2D
from minidl.losses import BinaryCrossEntropy, Huber, Pinball, binary_cross_entropy, mean_squared_error, poisson
from minidl.optimizers import SGD, Adam
from minidl.training.steps import FusedSteps

each_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


def fitted(layers, X, y, loss, epochs=30, lr=0.01, **options):
    """Fits without Python between steps; returns the history and the trainer."""
    trainer = Trainer(Sequential(layers, X.shape[1:], seed=3), loss, Adam(lr), options.pop("metrics", []))
    history = trainer.fit(X, y, epochs, batch_size=32, verbose=0, **options)
    assert type(trainer.steps()) is FusedSteps
    return history, trainer


@pytest.mark.parametrize("name", FUNCTIONS)
@each_dtype
def test_names_select_the_formulas(name, dtype, rng):
    scores, y = rng.normal(size=(20, 3)).astype(dtype), rng.random((20, 3)).astype(dtype)
    result, dscores = losses.NAMES[name](scores, y)
    assert result.dtype == dscores.dtype == dtype
    for a, b in zip((result, dscores), mean_of(name, scores, y), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=30 * np.finfo(dtype).eps)


# ---- targets
@each_dtype
@pytest.mark.parametrize("kind", ["int8", "uint64", ">i4", "float16", ">f8", "float32", "bool", "longdouble"])
def test_targets_are_converted_to_the_models_dtype(kind, dtype):
    y = np.array([[0, 1], [1, 0], [1, 1]], kind)
    for given in (y, np.asfortranarray(y), np.repeat(y, 2, axis=0)[::2]):
        targets = binary_cross_entropy.targets(given, (2,), dtype)
        assert targets.dtype == dtype and targets.flags.c_contiguous
        np.testing.assert_array_equal(targets, y)
    assert binary_cross_entropy.targets(targets, (2,), dtype) is targets


def test_one_output_accepts_a_vector():
    for y in ([1, 2, 3], np.array([[1], [2], [3]])):
        np.testing.assert_array_equal(mean_squared_error.targets(y, (1,), "float32"), [[1], [2], [3]])


@pytest.mark.parametrize(
    ("y", "shape", "error", "message"),
    [
        (None, (2,), TypeError, "an array, got None"),
        (["a", "b"], (1,), TypeError, "real numbers, got dtype <U1"),
        (np.zeros(3, complex), (1,), TypeError, "real numbers, got dtype complex128"),
        (np.zeros(3, object), (1,), TypeError, "real numbers, got dtype object"),
        (np.ma.masked_array([1.0]), (1,), TypeError, "an array without a mask"),
        (5.0, (1,), ValueError, r"shape \(n, 1\), that of the model's outputs, got \(\)$"),
        (np.zeros((3, 2)), (1,), ValueError, r"shape \(n, 1\), .* got \(3, 2\)$"),
        (np.zeros(3), (4,), ValueError, r"shape \(n, 4\), .* got \(3,\)$"),
        (np.zeros(3, int), (4,), ValueError, r"shape \(n, 4\), .* got \(3,\): labels are for softmax_cross_entropy"),
        (np.zeros((3, 4, 1)), (4,), ValueError, r".* got \(3, 4, 1\): y.reshape\(-1, 4\)"),
        (np.zeros((3, 8)), (2, 2, 2), ValueError, r".* got \(3, 8\): y.reshape\(-1, 2, 2, 2\)"),
        (np.zeros((3, 8, 8, 3)), (3, 8, 8), ValueError, r".* channels come first, y.transpose\(0, 3, 1, 2\)"),
        ([1.0, np.nan, 2.0], (1,), ValueError, r"finite values, got NaN or infinity \(first in example 1\)"),
        ([1.0, 2.0, -np.inf], (1,), ValueError, r"finite values, got NaN or infinity \(first in example 2\)"),
        ([1.0, 1e39], (1,), ValueError, "values that float32 can hold, got larger ones"),
    ],
)
def test_invalid_targets(y, shape, error, message):
    for loss in (mean_squared_error, binary_cross_entropy, poisson):
        with pytest.raises(error, match=f"^y: expected {message}"):
            loss.targets(y, shape, "float32")


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0.0, 1.5], r"from 0 to 1\.5$"),
        ([-1, 1, -1], r"from -1 to 1: \(y \+ 1\) / 2"),
        ([1, 2, 2], "from 1 to 2: y - 1"),
        (np.array([0, 255], "u1"), r"from 0 to 255: a mask of 0 and 255\? perhaps y // 255"),
        (np.array([0, 100, 255], "u1"), "from 0 to 255: y / 255"),
    ],
)
def test_binary_cross_entropy_needs_probabilities(y, message):
    with pytest.raises(ValueError, match=f"^y: .* or probabilities from 0 to 1, got values {message}"):
        binary_cross_entropy.targets(y, (1,), "float32")


def test_poisson_needs_counts():
    with pytest.raises(ValueError, match=r"^y: expected counts of at least 0, got -0\.5"):
        poisson.targets([3, -0.5], (1,), "float32")


def test_invalid_deltas():
    for delta in (0, -1.0, np.inf, np.nan, "1", None, True):
        with pytest.raises((ValueError, TypeError), match="delta: expected"):
            Huber(delta)


def test_a_delta_out_of_range_for_the_models_dtype():
    trainer = Trainer(Sequential([Dense(1)], (2,)), Huber(1e39), SGD(0.1))
    with pytest.raises(ValueError, match=r"delta: expected a number above 0 that float32 can hold, got 1e\+39"):
        trainer.train_batch(np.ones((3, 2)), np.ones(3))
    assert np.isfinite(Huber(1e39)(np.ones((1, 1)), np.zeros(1))[0])


def test_scores_without_outputs_are_refused():
    for scores in (np.zeros(3), np.array(1.0)):
        with pytest.raises(ValueError, match="scores: expected rows of outputs"):
            mean_squared_error(scores, np.zeros(3))
    with pytest.raises(ValueError, match=r"y: expected a target for each row of scores \(3, 1\), got shape \(4,\)"):
        mean_squared_error(np.zeros((3, 1)), np.zeros(4))
    assert mean_squared_error(np.zeros((0, 2)), np.zeros((0, 2)))[0].shape == (0,)


def test_refused_targets_change_nothing():
    model = Sequential([Dense(1)])
    with pytest.raises(ValueError, match=r"y: expected shape \(n, 1\)"):
        Trainer(model, "huber", SGD(0.1)).fit(np.ones((5, 3)), np.ones((5, 2)), verbose=0)
    assert model.network is None


# ---- learning
@pytest.mark.parametrize("loss", ["mean_squared_error", "mean_absolute_error", "huber", Huber(0.1)])
def test_regression(loss, rng):
    """Ten features and noise, as in scikit-learn's diabetes data; the noise is a tenth of the signal."""
    X = rng.normal(size=(400, 10))
    clean = X @ rng.normal(size=10) + 5
    y = clean + 0.3 * rng.standard_normal(400)
    _, trainer = fitted([Dense(1)], X[:300], y[:300], loss, epochs=60, lr=0.05)
    error = trainer.model.predict(X[300:])[:, 0] - clean[300:]
    assert np.sqrt((error**2).mean()) < 0.15 < 0.1 * clean.std()


def test_finds_the_least_squares_solution(rng):
    X, y = rng.normal(size=(64, 3)), rng.normal(size=(64, 2))
    trainer = Trainer(Sequential([Dense(2)], (3,), dtype="float64"), "mean_squared_error", SGD(0.3))
    for _ in range(300):
        trainer.train_batch(X, y)
    exact = np.linalg.lstsq(np.c_[X, np.ones(64)], y, rcond=None)[0]
    np.testing.assert_allclose(trainer.model.params["0.weight"].value, exact[:3].T, atol=1e-10)


def test_counts_have_the_rates_of_a_poisson_regression(rng):
    X = rng.normal(size=(4000, 2))
    y = rng.poisson(np.exp(X @ [0.5, -0.3] + 1))
    _, trainer = fitted([Dense(1)], X, y, "poisson", epochs=20, lr=0.02)
    result = [*trainer.model.params["0.weight"].value[0], trainer.model.params["0.bias"].value[0]]
    np.testing.assert_allclose(result, [0.5, -0.3, 1], atol=0.05)


@pytest.mark.parametrize("loss", ["mean_squared_error", "binary_cross_entropy"])
def test_an_autoencoder(loss, rng):
    images = np.kron(rng.integers(0, 2, (96, 1, 4, 4)), np.ones((2, 2)))  # blocks of 2 x 2
    layers = [Conv2D(8, 3, padding=1), ReLU(), MaxPool2D(2), Upsample2D(2), Conv2D(1, 3, padding=1)]
    history, trainer = fitted(layers, images, images, loss, epochs=40, lr=0.02)
    assert trainer.model.output_shape == (1, 8, 8)
    assert history["loss"][-1] < 0.2 * history["loss"][0]
    assert trainer.evaluate(images, images)["loss"] == pytest.approx(history["loss"][-1], rel=0.3)
    numbers = images.astype("u1")  # of other dtypes and layouts
    assert trainer.evaluate(images, numbers) == trainer.evaluate(images, images)
    assert trainer.evaluate(images, np.asfortranarray(numbers)) == trainer.evaluate(images, images)


# ---- labels 0 and 1
@pytest.mark.parametrize("kind", [int, bool, float, "column"])
def test_a_binary_classifier(kind, rng):
    X = rng.normal(size=(300, 4))
    y = (X @ [1, -2, 0.5, 1] > 0.5).astype(int)
    y = y[:, None] if kind == "column" else y.astype(kind)
    history, trainer = fitted([Dense(1)], X, y, "binary_cross_entropy", lr=0.05, metrics=["accuracy"])
    assert history["accuracy"][-1] > 0.95
    assert trainer.evaluate(X, y)["accuracy"] == ((trainer.model.predict(X) > 0)[:, 0] == np.ravel(y)).mean()


def test_two_softmax_outputs_equal_one_logit(rng):
    """The loss of logits (0, x) is that of x."""
    x, y = rng.normal(0, 5, (50, 1)), rng.integers(0, 2, 50)
    two, dtwo = losses.softmax_cross_entropy(np.c_[np.zeros(50), x], y)
    one, done = binary_cross_entropy(x, y)
    np.testing.assert_allclose(one, two, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(done[:, 0], dtwo[:, 1], rtol=0, atol=1e-15)


@pytest.mark.parametrize("kind", [int, bool, "column"])
def test_class_weights_use_the_original_labels(kind, rng):
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 4 == 0
    given = y[:, None].astype(int) if kind == "column" else y.astype(kind)
    for class_weight, weights in (({1: 3.0}, np.where(y, 3.0, 1.0)), ("balanced", np.where(y, 2.0, 2 / 3))):
        one, _ = fitted([Dense(1)], X, given, "binary_cross_entropy", 2, class_weight=class_weight)
        other, _ = fitted([Dense(1)], X, y, "binary_cross_entropy", 2, sample_weight=weights)
        assert one["loss"] == other["loss"]


def test_class_weights_need_labels(rng):
    trainer = Trainer(Sequential([Dense(1)], (3,)), "mean_squared_error", SGD(0.1))
    with pytest.raises(TypeError, match=r"class_weight: expected integer labels y of shape \(n,\)"):
        trainer.fit(np.ones((4, 3)), np.ones(4), class_weight="balanced", verbose=0)


def test_a_split_is_stratified_only_for_labels(rng):
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 10 == 0
    seen = []

    def watch(targets, scores):
        seen.append(targets.sum())
        return 0.0

    fitted([Dense(1)], X, y, "binary_cross_entropy", 1, validation_split=0.5, metrics=[watch])
    assert seen == [2, 2]
    for loss in ("mean_squared_error", "poisson"):  # as labels, each would be a class of one member
        fitted([Dense(1)], X, np.arange(40), loss, 1, validation_split=0.5)


# ---- quantiles
def test_pinball_is_that_of_scikit_learn(rng):
    scores, y, quantiles = rng.normal(size=(50, 3)), rng.normal(size=50), (0.05, 0.5, 0.8)
    scores[:9, 1] = y[:9]
    losses, dscores = Pinball(quantiles)(scores, y)
    each = [mean_pinball_loss(y, x, alpha=q) for x, q in zip(scores.T, quantiles, strict=True)]
    assert losses.mean() == pytest.approx(np.mean(each), rel=1e-13)
    assert not dscores[:9, 1].any() and dscores[9:].all()


def test_all_quantiles_have_the_one_target_of_an_example():
    loss, y = Pinball([0.1, 0.5, 0.9]), np.array([3, 1])
    for given in (y, y[:, np.newaxis], y.tolist()):
        targets = loss.targets(given, (3,), "float32")
        np.testing.assert_array_equal(targets, [[3, 3, 3], [1, 1, 1]])
        assert targets.dtype == np.float32 and loss.targets(targets, (3,), "float32") is targets
    np.testing.assert_array_equal(Pinball(0.5).targets(y, (1,), "float64"), [[3], [1]])
    one = r"^y: expected one number for each example, shape \(n,\) or \(n, 1\), got"
    for wrong in (np.zeros((2, 2)), [[1, 2, 3], [1, 1, 1]], np.zeros((2, 1, 1)), 5.0):
        with pytest.raises(ValueError, match=one):
            loss.targets(wrong, (3,), "float32")
    with pytest.raises(ValueError, match=r"^y: expected finite values, .* \(first in example 1\)"):
        loss.targets([1, np.nan], (3,), "float32")


@pytest.mark.parametrize(
    ("quantiles", "error"),
    [
        (0, ValueError), (1.0, ValueError), (-0.1, ValueError), (np.nan, ValueError), ([], ValueError),
        ([0.1, 1], ValueError), ([0.5, 0.1], ValueError), ([0.5, 0.5], ValueError), ([0.1, np.nan, 0.9], ValueError),
        (None, TypeError), ("0.5", TypeError), (True, TypeError), ([[0.5]], TypeError), ({0.5: 1}, TypeError),
        (np.full((1, 1), 0.5), TypeError),
    ],
)  # fmt: skip
def test_invalid_quantiles(quantiles, error):
    with pytest.raises(error, match="quantiles: expected"):
        Pinball(quantiles)


def test_another_number_of_quantiles_than_of_outputs():
    for model in (Sequential([Dense(3)], (4,)), Sequential([Conv2D(2, 1)], (1, 4, 4))):
        with pytest.raises(ValueError, match="quantiles: expected one for each output of a model with outputs"):
            Trainer(model, Pinball([0.1, 0.9]), SGD(0.1)).train_batch(np.zeros((5, *model.input_shape)), np.zeros(5))
    assert Pinball(np.array([0.1, 0.9])).quantiles == (0.1, 0.9) and Pinball(np.float32(0.5)).quantiles == 0.5
    assert repr(Pinball([0.1, 0.9])) == "Pinball(quantiles=(0.1, 0.9))"


def test_constants_become_the_quantiles_of_the_targets(rng):
    y, quantiles = rng.exponential(size=1000), (0.1, 0.5, 0.9)
    _, trainer = fitted([Dense(3)], np.zeros((1000, 1)), y, Pinball(quantiles), epochs=60, lr=0.02)
    np.testing.assert_allclose(trainer.model.predict([[0.0]])[0], np.quantile(y, quantiles), atol=0.1)


# ---- weights of outputs
def test_weights_multiply_the_terms_of_outputs(rng):
    scores, y = rng.normal(size=(20, 3)), rng.integers(0, 2, (20, 3))
    losses, dscores = BinaryCrossEntropy([1, 4, 0.5], output_weight=[2, 0, 1])(scores, y)
    each = np.where(y == 1, np.array([1, 4, 0.5]) * np.logaddexp(0, -scores), np.logaddexp(0, scores))
    np.testing.assert_allclose(losses, (each * [2, 0, 1]).sum(axis=1) / 3, rtol=1e-13)
    assert not dscores[:, 1].any()


def test_one_weight_is_that_of_all_channels(rng):
    scores, y = rng.normal(size=(20, 3, 2, 2)), rng.integers(0, 2, (20, 3, 2, 2))
    for one, other in (((2.5,), ([2.5] * 3,)), ((None, 2), (None, np.full(3, 2)))):
        for got, same in zip(BinaryCrossEntropy(*one)(scores, y), BinaryCrossEntropy(*other)(scores, y), strict=True):
            np.testing.assert_array_equal(got, same)
    weighted, plain = BinaryCrossEntropy(1.0, 1.0)(scores, y)[0], BinaryCrossEntropy()(scores, y)[0]
    np.testing.assert_allclose(weighted, plain, rtol=1e-14)


def test_weighted_losses_keep_full_precision_and_are_finite():
    scores = np.array([[60.0, -60.0], [1e4, -1e4], [-1e4, 1e4]])
    losses, dscores = BinaryCrossEntropy([2, 1])(scores, np.array([[1, 0]] * 3))
    np.testing.assert_allclose(losses[:2], [1.5 * np.exp(-60), 0], rtol=1e-14)
    np.testing.assert_allclose(dscores[0], [-np.exp(-60), np.exp(-60) / 2], rtol=1e-14)
    assert losses[2] == 1.5e4 and np.isfinite(dscores).all()


@pytest.mark.parametrize("name", ["pos_weight", "output_weight"])
@pytest.mark.parametrize(
    ("weights", "error"),
    [
        (-1, ValueError), (np.nan, ValueError), ([1, np.inf], ValueError), (1e39, ValueError), ([], ValueError),
        ("1", TypeError), (True, TypeError), ([1, None], TypeError), ([[1, 2]], TypeError),
        (np.ones((2, 1)), TypeError),
    ],
)  # fmt: skip
def test_invalid_weights(name, weights, error):
    with pytest.raises(error, match=f"{name}: expected"):
        BinaryCrossEntropy(**{name: weights})


@pytest.mark.parametrize("name", ["pos_weight", "output_weight"])
def test_another_number_of_weights_than_of_outputs(name):
    loss = BinaryCrossEntropy(**{name: [1, 2]})
    with pytest.raises(ValueError, match=rf"{name}: expected a number, or 3 for outputs \(3,\), got 2"):
        loss(np.zeros((5, 3)), np.zeros((5, 3)))
    trainer = Trainer(Sequential([Dense(3)], (4,)), loss, SGD(0.1))
    with pytest.raises(ValueError, match=f"{name}: expected a number, or 3"):
        trainer.fit(np.zeros((5, 4)), np.zeros((5, 3)))


def test_a_report_knows_the_weights(rng):
    X = rng.normal(size=(200, 4))
    trainer = Trainer(Sequential([Dense(2)], (4,)), BinaryCrossEntropy([20, 1], [1, 2]), SGD(0.1))
    trainer.fit(X, X[:, :2] > 1.5, 10, verbose=0)
    assert trainer.report() == []
