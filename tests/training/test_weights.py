"""Weights of examples: a weight is one of the data, not of its batch, and rows of weight 0 may hold anything."""

import numpy as np
import pytest
from scipy import sparse
from scipy.special import softmax

from minidl import Sequential, Trainer
from minidl.callbacks import EarlyStopping
from minidl.estimators import SequentialClassifier, SequentialRegressor
from minidl.layers import BatchNorm1D, Conv2D, Dense, Dropout, ReLU
from minidl.losses import BinaryCrossEntropy, MeanSquaredError, SoftmaxCrossEntropy
from minidl.optimizers import SGD, Adam
from minidl.training.labeled_data import LabeledData
from minidl.training.mixing import Mixing, mixed
from minidl.utils.weights import balanced_weights

RNG = np.random.default_rng(0)
N = 60
X, Y = RNG.normal(size=(N, 5)), RNG.integers(0, 3, N)
W = RNG.choice([0.0, 0.5, 1.0, 3.0], N)
USED = W > 0


def make_trainer(loss="softmax_cross_entropy", outputs=3, dtype="float64", optimizer=None, layers=(), shape=(5,)):
    model = Sequential([*layers, Dense(outputs)], shape, dtype=dtype, seed=3)
    return Trainer(model, loss, SGD(0.1, momentum=0.9) if optimizer is None else optimizer, seed=1)


def state(trainer):
    return [value.tobytes() for value in trainer.model.state_dict().values()]


def fitted(*args, trainer=None, **options):
    trainer = make_trainer() if trainer is None else trainer
    trainer.fit(*args, **{"epochs": 2, "batch_size": 16, "verbose": 0, **options})
    return trainer


def params(trainer):
    return np.concatenate([param.value.ravel() for param in trainer.model.params.values()])


# ---- the mean over the data


RARE = (np.arange(300) % 100 == 0).astype(int)
EQUAL = np.ones((300, 1))


def probability(fit, batch_size, optimizer):
    """Returns the probability of the rare class after a fit whose rate falls to 0."""
    epochs = max(20, 2 * batch_size)
    steps = epochs * -(-300 // batch_size)
    scale = {SGD: min(0.3, 0.003 * batch_size), Adam: 0.02}[optimizer]
    return fit(lambda step: optimizer(lambda k: scale * (1 - k / steps)), epochs, batch_size)


def by_trainer(make_optimizer, epochs, batch_size, micro=1):
    trainer = Trainer(Sequential([Dense(2)], (1,)), "softmax_cross_entropy", make_optimizer(0))
    options = {"class_weight": "balanced", "gradient_accumulation_steps": micro, "verbose": 0}
    trainer.fit(EQUAL, RARE, epochs, batch_size=batch_size // micro, **options)
    return trainer.predict_proba([[1]])[0, 1]


def by_classifier(make_optimizer, epochs, batch_size):
    options = {"optimizer": make_optimizer(0), "epochs": epochs, "batch_size": batch_size, "tol": None}
    model = SequentialClassifier([Dense(2)], class_weight="balanced", random_state=0, dtype="float32", **options)
    return model.fit(EQUAL, RARE).predict_proba([[1]])[0, 1]


@pytest.mark.parametrize("optimizer", [SGD, Adam])
@pytest.mark.parametrize("batch_size", [1, 2, 10, 64, 200, 300])
@pytest.mark.parametrize("fit", [by_trainer, by_classifier])
def test_no_batch_size_moves_the_minimum(fit, batch_size, optimizer):
    """The minimiser of the balanced loss is 1/2; divided by the weights of each batch, it was 0.01 for batches of 1."""
    assert probability(fit, batch_size, optimizer) == pytest.approx(0.5, abs=0.02)


def test_accumulated_batches_have_the_same_minimum():
    found = probability(lambda *args: by_trainer(*args, micro=5), 10, Adam)
    assert found == pytest.approx(0.5, abs=0.02)


def test_a_step_is_divided_by_the_number_of_examples():
    """By hand: u = w / mean(w), and the gradient of a batch is sum(u g) / n."""
    trainer, other = make_trainer(optimizer=SGD(0.1)), make_trainer(optimizer=SGD(0.1))
    trainer.fit(X, Y, batch_size=16, shuffle=False, sample_weight=W, verbose=0)
    x, y, w = X[USED], Y[USED], W[USED] / W[USED].mean()
    weight, bias = other.model.params["0.weight"].value.copy(), other.model.params["0.bias"].value.copy()
    for start in range(0, len(x), 16):
        here = slice(start, start + 16)
        d = (softmax(x[here] @ weight.T + bias, axis=1) - np.eye(3)[y[here]]) * w[here, np.newaxis] / len(x[here])
        weight, bias = weight - 0.1 * d.T @ x[here], bias - 0.1 * d.sum(axis=0)
    np.testing.assert_allclose(trainer.model.params["0.weight"].value, weight, rtol=1e-12)
    np.testing.assert_allclose(trainer.model.params["0.bias"].value, bias, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_common_factor_changes_nothing(dtype):
    """A power of 2 no bit; others by the rounding of w / m. Also weights that the model's dtype cannot hold."""
    one = fitted(X, Y, sample_weight=W, trainer=make_trainer(dtype=dtype))
    for factor in (2.0**-140, 2.0**900, 2.0**-1000):
        other = fitted(X, Y, sample_weight=W * factor, trainer=make_trainer(dtype=dtype))
        assert state(other) == state(one) and other.history["loss"] == one.history["loss"]
    for factor in (1e-36, 7.0, 1e300):
        other = fitted(X, Y, sample_weight=W * factor, trainer=make_trainer(dtype=dtype))
        np.testing.assert_allclose(params(other), params(one), rtol=1e-5 if dtype == "float32" else 1e-13)
        assert other.history["loss"][-1] == pytest.approx(one.history["loss"][-1], rel=1e-6)


@pytest.mark.parametrize(("least", "others"), [(1e-39, 1), (1e-200, 1), (1e-300, 1e300)])
@pytest.mark.parametrize("options", [{}, {"mixup": 0.4}])
def test_a_factor_below_the_normal_numbers_is_refused(least, others, options):
    """The quotient of the last ones is zero in float64."""
    trainer = make_trainer(dtype="float32")
    before = state(trainer)
    with pytest.raises(ValueError, match=r"^sample_weight, class_weight: expected weights of 0, or from 1.17.*float32"):
        trainer.fit(X, Y, sample_weight=np.where(np.arange(N) == 7, least, others), **options, verbose=0)
    assert state(trainer) == before and trainer.step == 0


def test_products_that_overflow_or_vanish_are_refused():
    for weight, of_class in ((1e200, 1e200), (1e-200, 1e-200)):
        with pytest.raises(ValueError, match="expected weights with a product that float64 can hold"):
            make_trainer().fit(X, Y, sample_weight=np.full(N, weight), class_weight={1: of_class}, verbose=0)
        with pytest.raises(ValueError, match="expected weights with a product that float64 can hold"):
            SequentialClassifier(class_weight={1: of_class}).fit(X, Y, sample_weight=np.full(N, weight))


def test_the_mean_is_that_of_the_rows_that_are_trained_on():
    """With rows held out, the bits are those of a fit on the others alone."""
    split = fitted(X, Y, sample_weight=W, validation_split=0.3)
    data = LabeledData.from_arrays(split.model, split.loss, X, Y, W)
    train, _ = data.split(0.3, split.seed)
    alone = fitted(X[train], Y[train], sample_weight=W[train])
    assert W[train].mean() != W[USED].mean() and state(alone) == state(split)


# ---- classes


def test_balanced_weights_ignore_rows_of_weight_0():
    """Bit for bit a fit on the kept rows, also val_loss; classes that only such rows have do not count."""
    y = np.where(USED, Y, 2)
    validation = {"validation_split": 0.25}
    with_mask = fitted(X, y, sample_weight=USED, class_weight="balanced", **validation)
    kept = fitted(X[USED], y[USED], class_weight="balanced", **validation)
    assert state(with_mask) == state(kept)
    assert (
        with_mask.history["loss"] == kept.history["loss"] and with_mask.history["val_loss"] == kept.history["val_loss"]
    )


def test_balanced_weights_count_weights():
    """Integer weights equal repeated rows; by the formula of scikit-learn, with the weights for counts."""
    counts = RNG.integers(0, 4, N)
    rows = np.repeat(np.arange(N), counts)
    by_class = {k: counts.sum() / (3 * counts[k == Y].sum()) for k in range(3)}
    found = balanced_weights(Y, counts.astype(float))
    np.testing.assert_allclose(found, [by_class[k] for k in Y], rtol=1e-15)
    options = {"epochs": 30, "batch_size": 1000, "class_weight": "balanced"}
    weighted, repeated = fitted(X, Y, sample_weight=counts, **options), fitted(X[rows], Y[rows], **options)
    np.testing.assert_allclose(params(weighted), params(repeated), rtol=1e-9)
    estimator = SequentialClassifier([Dense(3)], epochs=30, batch_size=1000, class_weight="balanced", random_state=0)
    one = estimator.fit(X, Y, sample_weight=counts).predict_proba(X)
    np.testing.assert_allclose(one, estimator.fit(X[rows], Y[rows]).predict_proba(X), rtol=1e-9)


def test_multilabel_balanced_weights_count_weights():
    y = np.stack([Y == 0, Y > 1, RNG.random(N) < 0.3], axis=1).astype(int)
    counts = RNG.integers(0, 4, N)
    rows = np.repeat(np.arange(N), counts)
    estimator = SequentialClassifier([Dense(3)], epochs=30, batch_size=1000, class_weight="balanced", random_state=0)
    one = estimator.fit(X, y, sample_weight=counts).predict_proba(X)
    np.testing.assert_allclose(one, estimator.fit(X[rows], y[rows]).predict_proba(X), rtol=1e-9)


def test_a_dict_may_name_classes_that_y_lacks():
    y = np.where(Y == 2, 0, Y)
    assert state(fitted(X, y, class_weight={0: 2.0, 2: 5.0})) == state(fitted(X, y, class_weight={0: 2.0}))
    one = make_trainer("binary_cross_entropy", 1)
    fitted(X, np.zeros(N, int), class_weight={0: 2.0, 1: 5.0}, trainer=one)
    for label in (3, -1, 1.5, "a"):
        with pytest.raises(ValueError, match=r"^class_weight: expected labels in y, or from 0 to 2, got"):
            make_trainer().fit(X, y, class_weight={label: 2.0}, verbose=0)
    SequentialClassifier(class_weight={0: 1.0, 1: 2.0, 2: 5.0}, epochs=1).fit(X, y)


# ---- mixup


LOSSES = [
    (SoftmaxCrossEntropy(), RNG.integers(0, 3, 16)),
    (SoftmaxCrossEntropy(label_smoothing=0.2), RNG.integers(0, 3, 16)),
    (BinaryCrossEntropy(pos_weight=[1, 4, 0.5]), RNG.integers(0, 2, (16, 3))),
    (MeanSquaredError(), RNG.normal(size=(16, 3))),
]


@pytest.mark.parametrize(("loss", "y"), LOSSES, ids=lambda value: repr(value) if callable(value) else "")
def test_a_mixture_has_the_gradient_of_both_weighted_losses(loss, y):
    trainer = make_trainer(loss)
    w = RNG.choice([0.2, 1.0, 30.0], 16)
    data = LabeledData.from_arrays(trainer.model, loss, X[:16], y, w).for_steps(np.arange(16))
    mixing = Mixing(0.7, 0.0, 5, X.shape[1:])
    batch = mixed(trainer.batches(data, np.arange(16), 16), loss, (3,), mixing)
    share, partner, _ = mixing.draw(0, 16)
    u, scores = w / w.mean(), RNG.normal(size=(16, 3))
    expected = (
        share * u[:, None] * loss(scores, y)[1] + ((1 - share) * u[partner])[:, None] * loss(scores, y[partner])[1]
    )
    found = batch.weights[:, None] * loss(scores, batch.targets)[1]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


# ---- rows of weight 0


def spoiled():
    """Returns X and labels in which the rows of weight 0 hold what no model takes."""
    x, y = X.copy(), Y.copy()
    x[~USED] = [np.nan, np.inf, -np.inf, 1e300, np.nan]
    y[~USED] = -1
    return x, y


def readable(x, kind):
    if kind == "sparse":
        return sparse.csr_matrix(x)
    return np.asfortranarray(x) if kind == "strided" else x


@pytest.mark.parametrize("kind", ["array", "sparse", "strided"])
@pytest.mark.parametrize("options", [{}, {"validation_split": 0.3}, {"class_weight": "balanced"}])
def test_rows_of_weight_0_hold_anything(kind, options):
    x, y = spoiled()
    one, other = (make_trainer(layers=[Dropout(0.3), Dense(8), BatchNorm1D(), ReLU()]) for _ in range(2))
    with_zeros = fitted(readable(x, kind), y, sample_weight=W, trainer=one, **options)
    without = fitted(X[USED], Y[USED], sample_weight=W[USED], trainer=other, **options)
    assert state(with_zeros) == state(without) and with_zeros.history["loss"] == without.history["loss"]


def test_the_first_fit_of_an_unbuilt_model_takes_rows_of_weight_0():
    x, y = spoiled()
    with_zeros = fitted(x, y, sample_weight=W, trainer=make_trainer(shape=None))
    assert state(with_zeros) == state(fitted(X[USED], Y[USED], sample_weight=W[USED]))


def test_every_call_takes_rows_of_weight_0():
    x, y = spoiled()
    trainer, other = make_trainer(), make_trainer()
    trainer.train_batch(x, y, W)
    other.train_batch(X[USED], Y[USED], W[USED])
    assert state(trainer) == state(other)
    assert trainer.evaluate(x, y, W) == other.evaluate(X[USED], Y[USED], W[USED])
    grads = trainer.per_example_gradients(x, y, sample_weight=W)["0.weight"]
    assert np.array_equal(grads[USED], other.per_example_gradients(X[USED], Y[USED], sample_weight=W[USED])["0.weight"])
    assert not grads[~USED].any()
    fitted([(x, y, W)], None, batch_size=64, trainer=trainer, validation_data=(x, y, W))
    fitted([(X[USED], Y[USED], W[USED])], None, batch_size=64, trainer=other)
    assert state(trainer) == state(other)


def test_targets_of_weight_0_hold_anything(tmp_path):
    """Numbers, one-hot rows, a memory map, and labels of a class of weight 0."""
    x, _ = spoiled()
    targets = RNG.normal(size=(N, 2))
    bad = np.where(USED[:, np.newaxis], targets, np.nan)
    np.save(tmp_path / "y.npy", bad)
    on_disk = np.load(tmp_path / "y.npy", mmap_mode="r")
    expected = state(fitted(X[USED], targets[USED], sample_weight=W[USED], trainer=make_trainer(MeanSquaredError(), 2)))
    for y in (bad, bad.tolist(), on_disk, on_disk[:]):
        assert state(fitted(x, y, sample_weight=W, trainer=make_trainer(MeanSquaredError(), 2))) == expected
    one = fitted(X, np.where(USED, Y, -1), class_weight={-1: 0.0})
    assert state(one) == state(fitted(X[USED], Y[USED]))


def test_only_rows_of_weight_0_hold_anything():
    x, y = spoiled()
    there = np.where(np.arange(N) == np.flatnonzero(~USED)[2], 1.0, W)
    with pytest.raises(ValueError, match=rf"^X: .*NaN or infinity \(first in example {np.flatnonzero(~USED)[2]}\)"):
        make_trainer().fit(x, Y, sample_weight=there, verbose=0)
    with pytest.raises(ValueError, match=r"^y: expected labels from 0 to 2"):
        make_trainer().fit(X, y, sample_weight=there, verbose=0)


@pytest.mark.parametrize("early_stopping", [False, True])
def test_estimators_take_rows_of_weight_0(early_stopping):
    x, y = spoiled()
    options = {"epochs": 3, "batch_size": 16, "random_state": 0, "early_stopping": early_stopping}
    expected = SequentialClassifier(**options).fit(X[USED], Y[USED], sample_weight=W[USED]).predict_proba(X)
    for rows in (x, x.tolist(), sparse.csr_matrix(x)):
        found = SequentialClassifier(**options).fit(rows, y, sample_weight=W).predict_proba(X)
        assert np.array_equal(found, expected)
    named = np.array(["a", "b", "c", None])[y]
    assert np.array_equal(SequentialClassifier(**options).fit(x, named, sample_weight=W).predict_proba(X), expected)
    target = np.where(USED, X[:, 0], np.nan)
    expected = SequentialRegressor(**options).fit(X[USED], X[USED, 0], sample_weight=W[USED]).predict(X)
    assert np.array_equal(SequentialRegressor(**options).fit(x, target, sample_weight=W).predict(X), expected)


def test_estimators_still_refuse_nan_in_other_rows():
    x = np.where(USED[:, np.newaxis], X, np.nan)
    for weights, options in ((None, {}), (np.ones(N), {}), (None, {"class_weight": "balanced"})):
        with pytest.raises(ValueError, match="NaN"):
            SequentialClassifier(epochs=1, **options).fit(x, Y, sample_weight=weights)
    with pytest.raises(ValueError, match="NaN"):
        SequentialRegressor(epochs=1).fit(X, np.full(N, np.nan), sample_weight=np.ones(N))


# ---- rows without a label


@pytest.mark.parametrize("native", [True, False])
def test_rows_without_a_label_do_not_count(native):
    """A step on them and others is that on the others, weights or not, in kernels and in NumPy."""
    loss = SoftmaxCrossEntropy(ignore_index=255)
    rule = loss if native else _InNumPy(loss)
    images, labels = RNG.normal(size=(20, 1, 4, 4)), RNG.integers(0, 2, (20, 4, 4))
    labels[3:17, :2], labels[5:9] = 255, 255
    there = np.flatnonzero((labels != 255).any(axis=(1, 2)))
    weights = RNG.choice([0.5, 2.0], 20)
    result = []
    for rows in (np.arange(20), there):
        trainer = Trainer(Sequential([Conv2D(2, 3, padding=1)], (1, 4, 4), dtype="float64"), rule, SGD(0.1))
        trainer.train_batch(images[rows], labels[rows])
        trainer.train_batch(images[rows], labels[rows], weights[rows])
        fitted(images[rows], labels[rows], batch_size=20, sample_weight=weights[rows], trainer=trainer)
        result.append(params(trainer))
    np.testing.assert_allclose(*result, rtol=1e-12)


class _InNumPy:
    """The same loss as a function, whose steps run segment by segment."""

    def __init__(self, loss):
        self.loss, self.ignore_index = loss, loss.ignore_index

    def __call__(self, scores, y):
        return self.loss(scores, y)


def test_a_fit_without_any_label_is_refused():
    trainer = make_trainer(SoftmaxCrossEntropy(ignore_index=9))
    for y in (np.full(N, 9), np.where(USED, 9, Y)):  # also if rows of weight 0 have labels
        with pytest.raises(ValueError, match=r"^y: expected a label other than 9, which the loss ignores"):
            trainer.fit(X, y, sample_weight=W, verbose=0)
    assert trainer.step == 0


def test_no_examples_are_refused_as_such_where_labels_are_ignored():
    trainer = make_trainer(SoftmaxCrossEntropy(ignore_index=9))
    with pytest.raises(ValueError, match=r"^X: expected at least one example in a batch, got none"):
        trainer.train_batch(X[:0], Y[:0])
    with pytest.raises(ValueError, match=r"^validation_data: expected at least one example, got none"):
        trainer.fit(X, Y, validation_data=(X[:0], Y[:0]), verbose=0)


def test_a_step_without_any_label_changes_nothing():
    loss = SoftmaxCrossEntropy(ignore_index=9)
    trainer = make_trainer(loss, optimizer=SGD(0.1))
    before = state(trainer)
    assert np.isnan(trainer.train_batch(X, np.full(N, 9))) and trainer.step == 1 and state(trainer) == before


# ---- weights as they are


def gradient_of(run):
    trainer = make_trainer(optimizer=SGD(0.1))
    run(trainer)
    return trainer.model.params["0.weight"].grad.copy()


def test_batches_take_weights_as_they_are():
    """sum(w g) / n, with n of the rows of positive weight: twice the weights give twice the gradient."""
    g = make_trainer().per_example_gradients(X, Y)["0.weight"]
    expected = np.tensordot(W, g, 1) / USED.sum()
    ways = (
        lambda t, w: t.train_batch(X, Y, w),
        lambda t, w: t.fit([(X, Y, w)], verbose=0),
        lambda t, w: t.fit(X, Y, batch_size=N, sample_weight=w, normalize_weights=False, shuffle=False, verbose=0),
    )
    for way in ways:
        np.testing.assert_allclose(gradient_of(lambda t, way=way: way(t, W)), expected, rtol=1e-12)
        np.testing.assert_allclose(gradient_of(lambda t, way=way: way(t, 2 * W)), 2 * expected, rtol=1e-12)
    divided = gradient_of(lambda t: t.fit(X, Y, batch_size=N, sample_weight=2 * W, verbose=0))
    np.testing.assert_allclose(divided, expected / W[USED].mean(), rtol=1e-12)


def test_partial_fit_takes_weights_as_they_are():
    """A chunk of equal weights has them. Divided by their mean, a chunk of the rare class would have none."""
    found = []
    for weight in (1.0, 50.0):
        classifier = SequentialClassifier([Dense(3)], optimizer=SGD(0.1), random_state=0, batch_size=N)
        classifier.partial_fit(X, Y, classes=[0, 1, 2], sample_weight=np.full(N, weight))
        found.append(classifier.model_.params["0.weight"].grad)
    np.testing.assert_allclose(found[1], 50 * found[0], rtol=1e-12)


def test_a_change_of_normalize_weights_is_another_fit():
    class Stop:
        def on_step_end(self, trainer, step, loss):
            raise KeyboardInterrupt

    trainer = make_trainer()
    with pytest.raises(KeyboardInterrupt):
        fitted(X, Y, sample_weight=W, callbacks=[Stop()], trainer=trainer)
    assert "normalize_weights" in trainer.interrupted.arguments
    with pytest.raises(TypeError, match=r"^normalize_weights: expected True or False"):
        trainer.fit(X, Y, normalize_weights="no")
    with pytest.raises(ValueError, match=r"^normalize_weights: expected it to be left out with batches"):
        trainer.fit([(X, Y)], normalize_weights=False)


def test_early_stopping_sees_weighted_validation_losses():
    validation = (X[:20], Y[:20], 1e-30 * W[:20])
    trainer = fitted(X, Y, validation_data=validation, callbacks=[EarlyStopping("val_loss", 5)])
    assert trainer.history["val_loss"][-1] == pytest.approx(trainer.evaluate(X[:20], Y[:20], W[:20])["loss"])


# ---- report


def test_report_names_a_weight_that_outweighs_a_batch():
    weights = np.where(np.arange(N) == 7, 100.0, 1.0)
    found = fitted(X, Y, sample_weight=weights, batch_size=8).report()
    assert [one.measured for one in found if one.symptom == "large weight"] == [pytest.approx(100 / weights.mean())]
    assert "large weight" not in [one.symptom for one in fitted(X, Y, sample_weight=weights, batch_size=60).report()]
    assert "large weight" not in [one.symptom for one in fitted(X, Y, sample_weight=W, batch_size=8).report()]
