"""What a fit of an estimator is measured on: rows of a splitter, groups, X_val; metrics that callbacks monitor."""

import numpy as np
import pytest
import sklearn
from sklearn.datasets import load_iris
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from sklearn.model_selection import GroupKFold, GroupShuffleSplit, KFold, StratifiedKFold, TimeSeriesSplit
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight

from minidl import InputError, Sequential, Trainer
from minidl.callbacks import EarlyStopping
from minidl.estimators import SequentialClassifier, SequentialRegressor
from minidl.layers import Dense
from minidl.optimizers import Adam

pd = pytest.importorskip("pandas")

X, Y = (part[np.random.default_rng(0).permutation(150)] for part in load_iris(return_X_y=True))
GROUPS = np.random.default_rng(1).integers(0, 15, 150)
NAMES = np.array(["x", "a", "m"])
OPTIONS = {"lr": 0.02, "epochs": 4, "random_state": 0, "tol": None}


def make(cls=SequentialClassifier, **options):
    return cls([Dense(3 if cls is SequentialClassifier else 1)], **{**OPTIONS, **options})


def probabilities(fitted):
    return fitted.model_.predict(X)


class FirstOf:
    """A splitter that records what it is given, and returns one split."""

    def __init__(self, *parts):
        self.parts = parts

    def __deepcopy__(self, memo):
        return self

    def split(self, X, y, groups=None):
        self.seen = X, y, groups
        yield self.parts


# ---- which rows


@pytest.mark.parametrize(
    "splitter, groups",
    [(GroupKFold(3), GROUPS), (StratifiedKFold(5), None), (TimeSeriesSplit(3, gap=20), None), (KFold(4), None)],
)
def test_a_splitter_says_which_rows_are_held_out(splitter, groups):
    """The fit is that of a Trainer on the first part of its first split, validated on the second."""
    train, held = next(iter(splitter.split(X, Y, groups)))
    fitted = make(early_stopping=True, splitter=splitter, n_iter_no_change=9).fit(X, NAMES[Y], groups=groups)
    y = np.searchsorted(fitted.classes_, NAMES[Y])
    seed = fitted.trainer_.seed
    trainer = Trainer(
        Sequential([Dense(3)], (4,), seed, "float64"), "softmax_cross_entropy", Adam(0.02), ["accuracy"], seed
    )
    callbacks = [EarlyStopping("val_accuracy", 9, lower_is_better=False)]
    history = trainer.fit(
        X[train], y[train], epochs=4, batch_size=200, validation_data=(X[held], y[held]), callbacks=callbacks, verbose=0
    )
    np.testing.assert_array_equal(probabilities(fitted), trainer.predict(X))
    for name in ("loss", "val_loss", "val_accuracy"):
        assert fitted.trainer_.history[name] == history[name]
    assert fitted.validation_scores_ == history["val_accuracy"]


def test_groups_are_held_out_as_a_whole():
    fitted = make(early_stopping=True, validation_fraction=0.3).fit(X, Y, groups=GROUPS)
    splitter = GroupShuffleSplit(1, test_size=0.3, random_state=fitted.trainer_.seed)
    seen = FirstOf(*next(splitter.split(X, Y, GROUPS)))
    same = make(early_stopping=True, splitter=seen).fit(X, Y, groups=GROUPS.tolist())
    np.testing.assert_array_equal(probabilities(fitted), probabilities(same))
    assert fitted.trainer_.history["val_loss"] == same.trainer_.history["val_loss"]
    assert not set(GROUPS[seen.parts[0]]) & set(GROUPS[seen.parts[1]])
    np.testing.assert_array_equal(seen.seen[2], GROUPS)


def test_rows_of_weight_0_reach_no_splitter():
    weights = np.where(np.arange(150) % 3, np.linspace(1, 3, 150), 0.0)
    used = np.flatnonzero(weights)
    seen, alone = FirstOf(np.arange(70), np.arange(80, 100)), FirstOf(np.arange(70), np.arange(80, 100))
    dirty, groups = np.where(weights[:, np.newaxis] > 0, X, np.nan), np.where(weights > 0, GROUPS, np.nan)
    fitted = make(early_stopping=True, splitter=seen).fit(dirty, Y, weights, groups=groups)
    other = make(early_stopping=True, splitter=alone).fit(X[used], Y[used], weights[used], groups=GROUPS[used])
    np.testing.assert_array_equal(probabilities(fitted), probabilities(other))
    assert fitted.trainer_.history["val_loss"] == other.trainer_.history["val_loss"]
    assert fitted.loss_curve_ != make(early_stopping=True, splitter=alone).fit(X[used], Y[used]).loss_curve_
    for mine, theirs in zip(seen.seen, (X[used], Y[used], GROUPS[used]), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_rows_that_are_held_out_are_named_as_those_of_x():
    dirty = np.where(np.arange(150)[:, np.newaxis] == 120, np.nan, X)
    splitter = FirstOf(np.arange(100), np.arange(100, 150))
    with pytest.raises(InputError, match=r"^X: expected finite values, got NaN or infinity \(first in example 120\)"):
        make(early_stopping=True, splitter=splitter).fit(dirty, Y, np.linspace(1, 2, 150))


def test_a_splitter_that_draws_is_not_changed():
    fitted = make(early_stopping=True, splitter=GroupShuffleSplit(1, random_state=np.random.RandomState(0)))
    first = fitted.fit(X, Y, groups=GROUPS).trainer_.history["val_loss"]
    assert fitted.fit(X, Y, groups=GROUPS).trainer_.history["val_loss"] == first


def test_masks_are_rows_too():
    mask = np.arange(150) < 100
    by_mask = make(early_stopping=True, splitter=FirstOf(mask, ~mask)).fit(X, Y)
    by_index = make(early_stopping=True, splitter=FirstOf(np.arange(100), np.arange(100, 150))).fit(X, Y)
    np.testing.assert_array_equal(probabilities(by_mask), probabilities(by_index))


@pytest.mark.parametrize(
    "splitter, message",
    [(5, "splitter: expected an object with `split`, such as .*, got 5"), ("word", "got 'word'"), (KFold, "got <class"),
     (GroupKFold(3), "splitter: The 'groups' parameter should not be None.; fit takes groups="),
     (FirstOf(np.arange(10)), r"splitter: expected it to yield \(train, test\) indices of rows"),
     (FirstOf(np.arange(10), np.arange(9, 20)), "got 10 and 11, of which 1 are in both"),
     (FirstOf(np.arange(10), []), "splitter: expected it to yield indices of rows, got float64"),
     (FirstOf(np.arange(10), np.arange(0)), "got 10 and 0"),
     (FirstOf(np.arange(10), [150]), "splitter: expected indices of rows from 0 to 149, got 150 to 150"),
     (FirstOf(np.arange(10), [-1]), "from 0 to 149, got -1"),
     (FirstOf(np.array([1, 1]), [2]), "splitter: expected each row once"),
     (FirstOf(np.ones(9, bool), np.arange(3)), r"got bool \(9,\)")],
)  # fmt: skip
def test_other_splitters_are_refused(splitter, message):
    fitted = make(early_stopping=True).fit(X, Y)
    before = fitted.trainer_
    with pytest.raises((TypeError, ValueError), match=message):
        fitted.set_params(splitter=splitter).fit(X, Y)
    assert fitted.trainer_ is before


@pytest.mark.parametrize(
    "options, arguments, error, message",
    [({}, {"groups": GROUPS}, ValueError, "groups: expected None unless early_stopping holds out some of them"),
     ({"early_stopping": True}, {"groups": GROUPS, "X_val": X, "y_val": Y}, ValueError, "got groups with X_val"),
     ({"early_stopping": True}, {"groups": GROUPS[1:]}, InputError, "groups: expected one for each row of X"),
     ({"early_stopping": True}, {"groups": X}, InputError, "groups: expected one for each row of X"),
     ({"early_stopping": True}, {"groups": [None] * 150}, InputError, "got NaN or None"),
     ({"early_stopping": True}, {"groups": np.full(150, np.nan)}, InputError, "got NaN or None"),
     ({"early_stopping": True}, {"groups": np.full(150, "NaT", "M8[s]")}, InputError, "got NaN or None"),
     ({"early_stopping": True}, {"groups": np.zeros(150)}, ValueError, "^groups: ")],
)  # fmt: skip
def test_groups_that_cannot_be_held_out_are_refused(options, arguments, error, message):
    with pytest.raises(error, match=message):
        make(**options).fit(X, Y, **arguments)


# ---- data to measure on


@pytest.mark.parametrize("early_stopping", [False, True])
def test_x_val_is_measured_after_each_epoch_and_trains_nothing(early_stopping):
    weights = np.linspace(0, 2, 50)
    options = {"early_stopping": early_stopping, "n_iter_no_change": 20}
    fitted = make(**options).fit(
        X[:100], NAMES[Y][:100], X_val=X[50:100], y_val=NAMES[Y][50:100], sample_weight_val=weights
    )
    alone = make().fit(X[:100], NAMES[Y][:100])
    assert fitted.loss_curve_ == alone.loss_curve_ and alone.validation_scores_ is None
    y = np.searchsorted(fitted.classes_, NAMES[Y])
    expected = fitted.trainer_.evaluate(X[50:100], y[50:100], weights)
    assert len(fitted.validation_scores_) == fitted.n_iter_ == 4
    if not early_stopping:
        assert fitted.trainer_.history["val_loss"][-1] == expected["loss"]
        np.testing.assert_array_equal(probabilities(fitted), probabilities(alone))
    scored = accuracy_score(NAMES[Y][51:100], fitted.predict(X[51:100]))  # the row of weight 0 counts in no metric
    assert scored == (fitted.best_validation_score_ if early_stopping else fitted.validation_scores_[-1])


def test_a_regressor_scores_x_val_by_r2():
    fitted = make(SequentialRegressor, metrics=["mae"]).fit(X[:, :3], X[:, 3], X_val=X[:50, :3], y_val=X[:50, 3])
    assert fitted.validation_scores_[-1] == pytest.approx(r2_score(X[:50, 3], fitted.predict(X[:50, :3])))
    error = np.abs(X[:50, 3] - fitted.predict(X[:50, :3])).mean() / X[:, 3].std()
    assert fitted.trainer_.history["val_mae"][-1] == pytest.approx(error)


def test_class_weights_count_in_the_loss_of_x_val():
    weighted = make(class_weight={0: 1.0, 1: 3.0, 2: 0.5}).fit(X, Y, X_val=X[::2], y_val=Y[::2])
    loss = weighted.trainer_.evaluate(X[::2], Y[::2], np.array([1.0, 3.0, 0.5])[Y[::2]])["loss"]
    assert weighted.trainer_.history["val_loss"][-1] == loss


def test_balanced_weights_are_those_of_the_training_labels():
    y, y_val = np.where(np.arange(150) < 120, 0, 1 + np.arange(150) % 2), np.where(np.arange(50) < 5, 0, 1)
    weights = np.linspace(0, 2, 150)
    for sample_weight in (None, weights):
        own = np.ones(150) if sample_weight is None else weights
        totals = np.bincount(y, own)
        by_class = dict(enumerate(totals.sum() / (3 * totals)))
        losses = [
            make(class_weight=class_weight)
            .fit(X, y, sample_weight, X_val=X[:50], y_val=y_val)
            .trainer_.history["val_loss"]
            for class_weight in ("balanced", by_class)
        ]
        np.testing.assert_allclose(*losses, rtol=1e-12)
    many, rows = np.stack([y > 0, y > 1], axis=1), np.arange(0, 150, 3)
    fitted = make(class_weight="balanced").set_params(model=[Dense(2)]).fit(X, many, X_val=X[rows], y_val=many[rows])
    expected = compute_sample_weight("balanced", many)[rows]
    loss = fitted.trainer_.evaluate(X[rows], many[rows].astype(float), expected)["loss"]
    np.testing.assert_allclose(fitted.trainer_.history["val_loss"][-1], loss, rtol=1e-12)


@pytest.mark.parametrize(
    "arguments, message",
    [({"X_val": X}, "y_val: expected X_val and y_val or neither, got None"),
     ({"y_val": Y}, "X_val: expected X_val and y_val or neither, got None"),
     ({"sample_weight_val": np.ones(150)}, "X_val: expected X_val and y_val"),
     ({"X_val": X[:, :3], "y_val": Y}, "X_val has 3 features, but SequentialClassifier is expecting 4"),
     ({"X_val": X * np.nan, "y_val": Y}, "Input X_val contains NaN"),
     ({"X_val": X[:9], "y_val": Y[:8]}, r"X_val, y_val: .*inconsistent numbers of samples: \[9, 8\]"),
     ({"X_val": X, "y_val": Y + 1}, r"y_val: expected classes \[0, 1, 2\], got \[3\] as well"),
     ({"X_val": X, "y_val": NAMES[Y]}, "y_val: expected classes"),
     ({"X_val": X, "y_val": Y, "sample_weight_val": np.zeros(150)}, "X_val, y_val: Sample weights must contain"),
     ({"X_val": X, "y_val": Y, "sample_weight_val": np.full(150, np.nan)}, "Input sample_weight_val contains NaN"),
     ({"X_val": X[:0], "y_val": Y[:0]}, "X_val, y_val: Found array with 0 sample"),
     ({"X_val": np.ma.masked_array(X), "y_val": Y}, "X_val: ")],
)  # fmt: skip
def test_validation_data_are_named_as_in_fit(arguments, message):
    fitted = make().fit(X, Y)
    before = dict(vars(fitted))
    with pytest.raises(ValueError if "y_val" in message or "X_val" in message else InputError, match=message):
        fitted.fit(X, Y, **arguments)
    assert vars(fitted) == before


def test_errors_of_the_trainer_name_x_val():
    with pytest.raises(InputError, match=r"^X_val: expected values of at most 3.4e\+38 \(float32\)"):
        make(dtype="float32").fit(X, Y, X_val=X * 1e300, y_val=Y)


def test_frames_need_the_same_columns_in_the_same_order():
    frame = pd.DataFrame(X, columns=list("abcd"))
    fitted = make().fit(frame, Y, X_val=frame[:50], y_val=pd.Series(Y[:50]))
    assert (
        fitted.trainer_.history["val_loss"] == make().fit(X, Y, X_val=X[:50], y_val=Y[:50]).trainer_.history["val_loss"]
    )
    with pytest.raises(InputError, match="X_val, y_val: The feature names should match"):
        make().fit(frame, Y, X_val=frame[list("badc")], y_val=Y)


def test_a_pipeline_transforms_x_val():
    """By scikit-learn's transform_input, as for HistGradientBoostingClassifier."""
    with sklearn.config_context(enable_metadata_routing=True):
        net = make().set_fit_request(X_val=True, y_val=True)
        pipeline = Pipeline([("scale", StandardScaler()), ("net", net)], transform_input=["X_val"])
        pipeline.fit(X[:100], Y[:100], X_val=X[60:], y_val=np.minimum(Y[60:], 1))
    scaler = StandardScaler().fit(X[:100])
    scaled = make().fit(scaler.transform(X[:100]), Y[:100], X_val=scaler.transform(X[60:]), y_val=np.minimum(Y[60:], 1))
    assert pipeline["net"].trainer_.history["val_loss"] == scaled.trainer_.history["val_loss"]


# ---- metrics


def test_metrics_are_monitored():
    stop = EarlyStopping("val_roc_auc", patience=2)
    fitted = make(metrics=["roc_auc", "accuracy"], early_stopping=True, callbacks=[stop]).set_params(model=[Dense(2)])
    fitted.fit(X, Y > 0, groups=GROUPS)
    assert list(fitted.trainer_.metrics) == ["accuracy", "roc_auc"]
    assert max(fitted.trainer_.history["val_roc_auc"]) == fitted.callbacks_[0].best
    assert fitted.validation_scores_ == fitted.trainer_.history["val_accuracy"]

    without = make(metrics=["roc_auc"]).set_params(model=[Dense(2)]).fit(X, Y > 0)
    after = roc_auc_score(Y > 0, without.predict_proba(X)[:, 1])
    assert without.trainer_.evaluate(X, (Y > 0).astype(int))["roc_auc"] == pytest.approx(after, abs=1e-12)
    assert without.validation_scores_ is None and len(without.trainer_.history["roc_auc"]) == 4


@pytest.mark.parametrize(
    "metrics, message",
    [
        (iter(["f1"]), "metrics: expected a list or a tuple"),
        ("f1", "expected a list such as"),
        (["f2"], "metrics: expected one of"),
    ],
)
def test_other_metrics_are_refused(metrics, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make(metrics=metrics).fit(X, Y)
