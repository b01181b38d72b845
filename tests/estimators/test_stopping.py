"""When a fit ends: the plateau rule against a naive loop, early stopping against scores computed by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_iris, make_friedman1, make_multilabel_classification
from sklearn.metrics import accuracy_score, r2_score

from minidl.callbacks import EarlyStopping
from minidl.estimators import SequentialClassifier, SequentialRegressor
from minidl.estimators.stopping import NoImprovement
from minidl.layers import Dense, ReLU
from minidl.training.labeled_data import LabeledData

X, Y = load_iris(return_X_y=True)
X = (X - X.mean(axis=0)) / X.std(axis=0)


class FakeTrainer:
    should_stop = False


def epochs_until(losses, tol, patience):
    """Returns after how many epochs the rule stops, by definition: none of the last few improved on earlier ones."""
    for end in range(1, len(losses) + 1):
        last = range(end - patience, end)
        if end >= patience and not any(losses[i] < min(losses[:i], default=math.inf) - tol for i in last):
            return end
    return len(losses)


@given(
    st.lists(st.integers(0, 8).map(float), min_size=1, max_size=25),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(1, 4),
)
def test_the_plateau_rule_matches_the_naive_one(losses, tol, patience):
    rule, trainer, seen = NoImprovement(tol, patience), FakeTrainer(), 0
    while seen < len(losses) and not trainer.should_stop:
        rule.on_epoch_end(trainer, seen, {"loss": losses[seen]})
        seen += 1
    assert seen == epochs_until(losses, tol, patience)


def test_a_fit_ends_by_that_rule_and_keeps_the_last_weights():
    options = {"lr": 0.05, "random_state": 0}
    long = SequentialClassifier(epochs=100, tol=None, **options).fit(X, Y)
    for tol, patience in ((1e-3, 2), (1e-2, 3), (0.0, 5)):
        fitted = SequentialClassifier(epochs=100, tol=tol, n_iter_no_change=patience, **options).fit(X, Y)
        assert fitted.n_iter_ == epochs_until(long.loss_curve_, tol, patience)
        assert fitted.loss_curve_ == long.loss_curve_[: fitted.n_iter_]
        full = SequentialClassifier(epochs=fitted.n_iter_, tol=None, **options).fit(X, Y)
        np.testing.assert_array_equal(fitted.predict_proba(X), full.predict_proba(X))
    assert long.n_iter_ == len(long.loss_curve_) == 100
    assert long.validation_scores_ is None and long.best_validation_score_ is None


class ModelRecorder:
    """A callback that keeps the model of each epoch."""

    def __init__(self):
        self.models = []

    def __deepcopy__(self, memo):
        return self

    def on_epoch_end(self, trainer, epoch, logs):
        self.models.append(trainer.model[:])


def split_rows(fitted, given, y):
    """Returns the training rows and the held-out rows."""
    data = LabeledData.from_arrays(fitted.model_, fitted.trainer_.loss, given, y)
    return data.split(fitted.validation_fraction, fitted.trainer_.seed)


def test_early_stopping_holds_out_a_stratified_part_and_keeps_the_best_weights():
    noisy = np.where(np.random.default_rng(0).random(150) < 0.3, (Y + 1) % 3, Y)
    seen = ModelRecorder()
    names = np.array(["x", "a", "m"])
    fitted = SequentialClassifier(
        [Dense(16), ReLU(), Dense(3)], lr=0.05, epochs=60, early_stopping=True, validation_fraction=0.2, random_state=0,
        n_iter_no_change=6, tol=0.0, callbacks=[seen],
    ).fit(X, names[noisy])  # fmt: skip

    encoded = np.searchsorted(fitted.classes_, names[noisy])
    train, held = split_rows(fitted, X, encoded)
    assert len(held) == 30 and len(train) == 120 and not set(train) & set(held)
    shares = np.bincount(encoded[held]) / 30 - np.bincount(encoded) / 150
    assert np.abs(shares).max() < 1 / 30  # stratified

    expected = [accuracy_score(encoded[held], model.predict(X[held]).argmax(axis=1)) for model in seen.models]
    assert fitted.validation_scores_ == pytest.approx(expected, abs=0) and len(expected) == fitted.n_iter_
    best = int(np.argmax(expected))
    assert fitted.n_iter_ == best + 1 + 6 < 60
    np.testing.assert_array_equal(fitted.model_.predict(X), seen.models[best].predict(X))
    assert fitted.score(X[held], names[noisy][held]) == max(expected) == fitted.best_validation_score_

    blank = np.where(np.isin(np.arange(150), held)[:, np.newaxis], 0, X)  # not used in any step
    losses = SequentialClassifier(**{**fitted.get_params(), "callbacks": []}).fit(blank, names[noisy]).loss_curve_
    both = min(len(losses), fitted.n_iter_)
    assert losses[:both] == fitted.loss_curve_[:both]


def test_the_batch_size_is_chosen_for_the_rows_that_are_left():
    """Of 224 rows 23 are held out: the other 201 are one batch, instead of one of 200 and one of a single example."""
    rows = np.arange(224) % 150
    fitted = SequentialClassifier([Dense(3)], epochs=2, early_stopping=True, validation_fraction=0.1)
    assert fitted.fit(X[rows], Y[rows]).trainer_.step == 2


@pytest.mark.parametrize("make, loss", [(SequentialClassifier, "auto"), (SequentialRegressor, "mean_absolute_error")])
def test_an_early_stopping_callback_chooses_the_weights_in_place_of_the_estimators_own(make, loss):
    """Its monitor, patience and min_delta count; tol and n_iter_no_change do not."""
    y = np.where(np.random.default_rng(0).random(150) < 0.3, (Y + 1) % 3, Y)
    seen = ModelRecorder()
    options = {"loss": loss, "lr": 0.02, "early_stopping": True, "validation_fraction": 0.3, "random_state": 0}
    fitted = make(**options, tol=1.0, n_iter_no_change=2, callbacks=[EarlyStopping("val_loss", patience=7), seen]).fit(
        X, y
    )
    chosen = fitted.callbacks_[0]

    losses = fitted.trainer_.history["val_loss"]
    best = int(np.argmin(losses))
    assert chosen.best_epoch == best and chosen.stopped_epoch == fitted.n_iter_ - 1 == best + 7
    np.testing.assert_array_equal(fitted.trainer_.predict(X), seen.models[best].predict(X))
    _, held = split_rows(fitted, X, y)
    learned = y if make is SequentialClassifier else (y - y.mean()) / y.std()
    assert fitted.trainer_.evaluate(X[held], learned[held])["loss"] == pytest.approx(min(losses), rel=1e-12)

    assert int(np.argmax(fitted.validation_scores_)) != best  # the estimator's own choice is another epoch
    assert fitted.best_validation_score_ == max(fitted.validation_scores_) > fitted.validation_scores_[best]


def test_held_out_accuracy_ignores_weights_and_held_out_loss_has_them():
    """Class weights multiply sample weights; metrics are computed without weights."""
    weights = np.random.default_rng(1).uniform(0.1, 5.0, 150)
    fitted = SequentialClassifier(
        lr=0.02, early_stopping=True, validation_fraction=0.3, class_weight={0: 9.0, 1: 1.0, 2: 0.5}, random_state=0,
        callbacks=[EarlyStopping("val_loss", patience=5)],
    ).fit(X, Y, sample_weight=weights)  # fmt: skip
    _, held = split_rows(fitted, X, Y)
    epoch = int(np.argmin(fitted.trainer_.history["val_loss"]))
    assert fitted.validation_scores_[epoch] == fitted.score(X[held], Y[held])
    both = weights * np.array([9.0, 1.0, 0.5])[Y]
    weighted = fitted.trainer_.evaluate(X[held], Y[held], sample_weight=both[held])["loss"]
    assert min(fitted.trainer_.history["val_loss"]) == weighted


def test_two_classes_with_one_score():
    y = Y == 2
    fitted = SequentialClassifier(
        [Dense(8), ReLU(), Dense(1)], lr=0.02, early_stopping=True, validation_fraction=0.3, random_state=0
    ).fit(X, y)
    _, held = split_rows(fitted, X, y.astype(int))
    assert max(fitted.validation_scores_) == fitted.score(X[held], y[held])
    assert y[held].sum() == 15


def test_multilabel_rows_are_correct_only_if_all_labels_are():
    inputs, labels = make_multilabel_classification(200, 8, n_classes=3, random_state=0)
    fitted = SequentialClassifier(lr=0.02, epochs=50, early_stopping=True, random_state=0).fit(inputs, labels)
    _, held = split_rows(fitted, inputs, labels)
    assert len(held) == 20
    assert max(fitted.validation_scores_) == accuracy_score(labels[held], fitted.predict(inputs[held]))
    assert 0 < max(fitted.validation_scores_) < 1


@pytest.mark.parametrize("loss", ["auto", "huber", "poisson"])
def test_a_regressor_uses_r2(loss):
    inputs, y = make_friedman1(200, random_state=0)
    fitted = SequentialRegressor(lr=0.02, epochs=80, loss=loss, early_stopping=True, random_state=0).fit(inputs, y)
    _, held = split_rows(fitted, inputs, y)
    best = r2_score(y[held], fitted.predict(inputs[held]))
    assert max(fitted.validation_scores_) == pytest.approx(best, abs=1e-12) and best > 0.3


def test_without_tol_early_stopping_still_ends_a_stagnant_fit():
    fitted = SequentialClassifier(lr=0.05, epochs=500, early_stopping=True, tol=None, random_state=0).fit(X, Y)
    scores = fitted.validation_scores_
    assert fitted.n_iter_ == int(np.argmax(scores)) + 1 + 10


@pytest.mark.parametrize("tol", [0.0, 0.02, 0.2])
def test_early_stopping_requires_improvements_above_tol(tol):
    fitted = SequentialClassifier(
        lr=0.002, epochs=200, early_stopping=True, validation_fraction=0.4, tol=tol, n_iter_no_change=4, random_state=1
    ).fit(X, Y)
    counted, wait, epochs = -math.inf, 0, 0
    while wait < 4:
        score = fitted.validation_scores_[epochs]
        counted, wait, epochs = (score, 0, epochs + 1) if score > counted + tol else (counted, wait + 1, epochs + 1)
    assert fitted.n_iter_ == epochs
    best = fitted.score(*(a[split_rows(fitted, X, Y)[1]] for a in (X, Y)))
    assert best == max(fitted.validation_scores_)


@pytest.mark.parametrize("share", [0.0, 1.0, 1.5, -0.1, 0.005, "half", None])
def test_invalid_validation_fractions_are_refused(share):
    """0.005 of 150 is one row, too few for a score."""
    for estimator in (SequentialClassifier, SequentialRegressor):
        with pytest.raises((TypeError, ValueError), match="validation_fraction"):
            estimator(early_stopping=True, validation_fraction=share).fit(X, Y)
        estimator(validation_fraction=share, epochs=1).fit(X, Y)  # as in scikit-learn, unused arguments are not checked


def test_a_class_too_small_to_hold_out():
    y = Y.copy()
    y[0] = 7
    with pytest.raises(ValueError, match="least populated class"):
        SequentialClassifier(early_stopping=True).fit(X, y)


def test_a_class_too_small_to_split_is_named_with_the_estimators_argument():
    with pytest.raises(ValueError, match=r"^validation_fraction: .*least populated class"):
        SequentialClassifier(early_stopping=True).fit(X, np.r_[5, Y[1:]])
