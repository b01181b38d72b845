"""partial_fit and warm_start: what continues, what starts over, and that refused calls change nothing."""

import copy

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.estimators import SequentialClassifier, SequentialRegressor
from minidl.layers import BatchNorm1D, Dense, Dropout, ReLU
from minidl.optimizers import Adam

RNG = np.random.default_rng(0)
X = RNG.normal(size=(70, 5)).astype("float32")
Y = np.array(["a", "b", "c"])[RNG.integers(0, 3, 70)]
NUMBERS = RNG.normal(size=70)
MANY = RNG.random((70, 3)) > 0.5
CLASSES = ["a", "b", "c"]


def layers(outputs=3):
    return [Dense(8), BatchNorm1D(), ReLU(), Dropout(0.3), Dense(outputs)]


def make_classifier(**options):
    return SequentialClassifier(layers, **{"batch_size": 16, "random_state": 3, "epochs": 3, "tol": None, **options})


def make_regressor(**options):
    return SequentialRegressor(layers, **{"batch_size": 16, "random_state": 3, "epochs": 3, "tol": None, **options})


def full_state(fitted):
    """Returns all state of a fitted estimator, except the timings of its trainer."""
    trainer = fitted.trainer_
    weights = {name: value.tobytes() for name, value in fitted.model_.state_dict().items()}
    moments = {name: value.tobytes() for name, value in trainer.steps().update.state.items()}
    history = {name: list(values) for name, values in trainer.history.items() if "_per_" not in name}
    noted = {name: value for name, value in vars(fitted).items() if name.endswith("_") and name != "trainer_"}
    return weights, moments, history, trainer.step, trainer.epoch, repr(noted), repr(fitted._targets)


# ---- one more epoch of the same trainer
@pytest.mark.parametrize("options", [{}, {"optimizer": "sgd"}, {"shuffle": False}, {"batch_size": "auto"}], ids=str)
def test_n_calls_on_all_data_equal_a_fit_of_n_epochs(options):
    """Moments, order and dropout continue: the same bits."""
    for make, y, first in (
        (make_classifier, Y, {"classes": CLASSES}),
        (make_classifier, MANY, {}),
        (make_regressor, NUMBERS, {}),
    ):
        at_once, by_and_by = make(**options).fit(X, y), make(**options)
        for _ in range(3):
            assert by_and_by.partial_fit(X, y, **first) is by_and_by
        assert full_state(by_and_by) == full_state(at_once)
        assert by_and_by.n_iter_ == 3 and len(by_and_by.loss_curve_) == 3


def test_a_call_equals_one_epoch_of_a_trainer():
    fitted = make_classifier()
    model = None
    for rows in (slice(0, 30), slice(10, 70), slice(5, 6 + 33)):
        fitted.partial_fit(X[rows], Y[rows], CLASSES)
        if model is None:
            model = Sequential(layers(), (5,), fitted.trainer_.seed)
            trainer = Trainer(model, "softmax_cross_entropy", Adam(), seed=fitted.trainer_.seed)
        trainer.fit(X[rows], np.searchsorted(CLASSES, Y[rows]), batch_size=16, verbose=0)
    np.testing.assert_array_equal(fitted.predict_proba(X), model.predict_proba(X))
    assert fitted.trainer_.step == trainer.step


def test_weights_are_taken_as_they_are():
    """Not relative to their mean, as in fit: this batch is a part of the data. Weights of 2 are twice the rate."""
    twice = make_classifier(optimizer="sgd", lr=0.01).partial_fit(X, Y, CLASSES, sample_weight=np.full(70, 2.0))
    faster = make_classifier(optimizer="sgd", lr=0.02).partial_fit(X, Y, CLASSES)
    np.testing.assert_array_equal(twice.predict_proba(X), faster.predict_proba(X))


def test_partial_fit_continues_after_fit():
    longer = make_classifier(epochs=4).fit(X, Y)
    assert full_state(make_classifier().fit(X, Y).partial_fit(X, Y)) == full_state(longer)


def test_fit_starts_over_after_partial_fit():
    assert full_state(make_classifier().partial_fit(X[:40], Y[:40], CLASSES).fit(X, Y)) == full_state(
        make_classifier().fit(X, Y)
    )


def test_classes_that_appear_later():
    only_two = np.isin(Y, ["a", "c"])
    fitted = make_classifier(lr=0.02).partial_fit(X[only_two], Y[only_two], classes=["c", "a", "b", "a"])
    assert fitted.classes_.tolist() == CLASSES and fitted.predict_proba(X).shape == (70, 3)
    for _ in range(200):
        fitted.partial_fit(X, Y)
    assert set(fitted.predict(X)) == set(CLASSES)
    fitted.partial_fit(X[:1].repeat(2, axis=0), Y[:1].repeat(2))  # of one class


def test_classes_may_be_repeated_but_not_changed():
    fitted = make_classifier().partial_fit(X, Y, CLASSES).partial_fit(X, Y, classes=np.array(["b", "a", "c"]))
    before = full_state(fitted)
    for wrong in (["a", "b"], ["a", "b", "d"], [0, 1, 2]):
        with pytest.raises(ValueError, match=r"classes: expected \['a', 'b', 'c'\], got"):
            fitted.partial_fit(X, Y, wrong)
    assert full_state(fitted) == before


def test_multilabel_targets_need_no_classes():
    with_classes = make_classifier().partial_fit(X, MANY, classes=[0, 1, 2])  # as for MLPClassifier
    assert full_state(with_classes) == full_state(make_classifier().partial_fit(X, MANY))
    with pytest.raises(ValueError, match=r"classes: expected \[0, 1, 2\], got \[0, 1, 2, 3\]"):
        make_classifier().partial_fit(X, MANY, classes=range(4))


def test_class_weights_for_classes_missing_in_this_batch():
    """They weigh the classes that are there, as the same sample weights do."""
    weights = {"a": 3.0, "b": 0.5}
    weighted, plain = (make_classifier(class_weight=w).partial_fit(X, Y, CLASSES) for w in (weights, weights))
    some = Y == "b"
    weighted.partial_fit(X[some], Y[some])
    plain.set_params(class_weight=None).partial_fit(X[some], Y[some], sample_weight=np.full(some.sum(), 0.5))
    assert full_state(weighted)[0] == full_state(plain)[0]
    with pytest.raises(ValueError, match=r"class_weight: expected labels of \['a', 'b', 'c'\], got \{'d'\}"):
        make_classifier(class_weight={"a": 1.0, "d": 2.0}).partial_fit(X, Y, CLASSES)


# ---- refused calls
def refusals(fitted, y, **more):
    def call(X=X, y=y, **options):
        return lambda: fitted.partial_fit(X, y, **options)

    invalid = X.copy()
    invalid[3, 2] = np.nan
    return {
        "a different number of features": call(X[:, :4]),
        "NaN": call(invalid),
        "one row fewer": call(X[1:]),
        "no rows": call(X[:0], y[:0]),
        "weights of zero": call(sample_weight=np.zeros(70)),
        "negative weights": call(sample_weight=-np.ones(70)),
        "a masked array": call(np.ma.masked_array(X)),
        **{name: call(**arguments) for name, arguments in more.items()},
    }


CASES = [
    (make_classifier, Y, {"an unknown label": {"y": np.where(Y == "a", "z", Y)}, "numbers": {"y": np.arange(70) % 3},
                     "an indicator matrix": {"y": MANY}}),
    (make_classifier, MANY, {"one label per row": {"y": Y}, "a different number of labels": {"y": MANY[:, :2]},
                        "classes": {"y": np.stack([np.arange(70) % 3] * 3, axis=1)}}),
    (make_regressor, NUMBERS, {"two targets": {"y": np.stack([NUMBERS] * 2, axis=1)}, "strings": {"y": Y}}),
]  # fmt: skip


@pytest.mark.parametrize("make, y, more", CASES, ids=["labels", "many labels", "numbers"])
def test_a_refused_call_changes_nothing(make, y, more):
    fitted = make().fit(X, y)
    before, predicted = full_state(fitted), fitted.predict(X)
    for what, call in refusals(fitted, y, **more).items():
        with pytest.raises((ValueError, TypeError)):
            call()
            pytest.fail(f"{what} was accepted")
        assert full_state(fitted) == before, what
    np.testing.assert_array_equal(fitted.predict(X), predicted)
    assert full_state(fitted.partial_fit(X, y)) == full_state(make(epochs=4).fit(X, y))


def test_a_first_call_without_classes_is_refused():
    fresh = make_classifier()
    with pytest.raises(ValueError, match="classes: expected all labels of all calls, in the first call"):
        fresh.partial_fit(X, Y)
    with pytest.raises(ValueError, match=r"classes: expected at least two classes, got one class, \['a'\]"):
        fresh.partial_fit(X, Y, classes=["a"])
    with pytest.raises(ValueError, match=r"y: expected classes \['a', 'b'\], got \['c'\] as well"):
        fresh.partial_fit(X, Y, classes=["a", "b"])
    assert vars(fresh) == vars(make_classifier())


@pytest.mark.parametrize(
    "make, options, message",
    [(make_classifier, {"early_stopping": True}, "early_stopping: expected False for partial_fit"),
     (make_regressor, {"early_stopping": True}, "early_stopping: expected False for partial_fit"),
     (make_classifier, {"class_weight": "balanced"}, "class_weight: expected weights by class for partial_fit")],
)  # fmt: skip
def test_options_that_need_all_data_are_refused(make, options, message):
    first = {"classes": CLASSES} if make is make_classifier else {}
    with pytest.raises(ValueError, match=message):
        make(**options).partial_fit(X, Y if first else NUMBERS, **first)


def test_early_stopping_must_be_bool():
    with pytest.raises(TypeError, match="early_stopping: expected True or False, got 'no'"):
        make_regressor(early_stopping="no").partial_fit(X, NUMBERS)


# ---- interrupts
class Interrupt:
    """Interrupts after the n-th step of a trainer."""

    def __init__(self, n):
        self.n = n

    def on_step_end(self, trainer, step, loss):
        if step + 1 == self.n:
            raise KeyboardInterrupt


def test_an_interrupted_call_is_not_completed_by_the_next():
    """Its steps count; the next call is a new epoch on any data, even after pickling."""
    fitted = make_classifier().fit(X, Y)  # 15 steps
    fitted.set_params(callbacks=[Interrupt(17)])
    with pytest.raises(KeyboardInterrupt):
        fitted.partial_fit(X, Y)
    assert fitted.trainer_.step == 17 and fitted.n_iter_ == 3 and fitted.trainer_.interrupted is None
    fitted.set_params(callbacks=[])
    for again in (copy.deepcopy(fitted), fitted):
        again.partial_fit(X[:40], Y[:40])
        assert again.trainer_.step == 17 + 3 and again.n_iter_ == 4


def test_an_interrupted_fit_leaves_the_previous_one():
    fitted = make_classifier().fit(X, Y)
    before = full_state(fitted)
    too_fast = {"optimizer": "sgd", "lr": 1e30}
    for options, error in (({"callbacks": [Interrupt(2)]}, KeyboardInterrupt), (too_fast, FloatingPointError)):
        for warm in (False, True):
            fitted.set_params(warm_start=warm, **options)
            with pytest.raises(error):
                fitted.fit(10 * X, Y)
            fitted.set_params(**make_classifier().get_params(deep=False))
            assert full_state(fitted) == before


def test_a_refused_fit_leaves_the_previous_one():
    """Including the number and names of its features."""
    fitted = make_classifier().fit(X, Y)
    before = full_state(fitted)
    for given, y in ((X[:, :3], NUMBERS), (X[:, :3], np.where(Y == "a", "b", "b")), (X[:, :3], Y[1:]), (X, None)):
        with pytest.raises(ValueError):
            fitted.fit(given, y)
        assert full_state(fitted) == before
    assert fitted.predict(X).shape == (70,)


# ---- warm_start
def test_warm_start_begins_with_the_previous_weights():
    """With a new trainer: moments, steps and seed are its own."""
    fitted = make_classifier(warm_start=True, random_state=np.random.RandomState(0)).fit(X, Y)
    start, old = fitted.model_[:], fitted.trainer_
    kept = {name: value.tobytes() for name, value in old.model.state_dict().items()}
    fitted.set_params(optimizer="adam", lr=0.01, epochs=5).fit(X, Y)

    trainer = Trainer(start, "softmax_cross_entropy", Adam(0.01), seed=fitted.trainer_.seed)
    trainer.fit(X, np.searchsorted(CLASSES, Y), epochs=5, batch_size=16, verbose=0)
    np.testing.assert_array_equal(fitted.model_.predict(X), start.predict(X))
    assert fitted.n_iter_ == 5 and len(fitted.loss_curve_) == 5
    assert {name: value.tobytes() for name, value in old.model.state_dict().items()} == kept  # it is not changed
    assert fitted.trainer_.seed != old.seed


def test_without_warm_start_a_fit_repeats_the_first_one():
    fitted = make_classifier().fit(X, Y)
    before = full_state(fitted)
    assert full_state(fitted.fit(X, Y)) == before
    assert fitted.fit(X[:, :4], Y).n_features_in_ == 4


def test_frozen_layers_stay_frozen_in_a_warm_start():
    fitted = make_classifier(warm_start=True).fit(X, Y)
    fitted.model_.layers[0].trainable = False
    before = fitted.model_.state_dict()["0.weight"].tobytes()
    fitted.fit(X, Y)
    assert fitted.model_.state_dict()["0.weight"].tobytes() == before
    assert not fitted.model_.layers[0].trainable


def test_a_warm_start_on_incompatible_data_is_refused():
    fitted = make_classifier(warm_start=True).fit(X, Y)
    before = full_state(fitted)
    for given, y, message in (
        (X[:, :4], Y, "4 features"),
        (X, np.where(Y == "a", "z", Y), r"y: expected classes \['a', 'b', 'c'\], got \['z'\] as well"),
        (X, MANY, "y: expected one label per row, as before"),
    ):
        with pytest.raises(ValueError, match=message):
            fitted.fit(given, y)
        assert full_state(fitted) == before
    some = Y != "b"
    assert fitted.fit(X[some], Y[some]).classes_.tolist() == CLASSES


def test_the_first_fit_with_warm_start_is_an_ordinary_fit():
    assert full_state(make_classifier(warm_start=True).fit(X, Y))[:5] == full_state(make_classifier().fit(X, Y))[:5]


def test_an_interrupted_first_call_keeps_its_steps():
    class Interrupt:
        def on_step_end(self, trainer, step, loss):
            if step == 1:
                raise KeyboardInterrupt

    interrupted = make_classifier(callbacks=[Interrupt()], batch_size=10)
    with pytest.raises(KeyboardInterrupt):
        interrupted.partial_fit(X, Y, classes=np.unique(Y))
    assert interrupted.trainer_.step == 2
    interrupted.set_params(callbacks=()).partial_fit(X, Y)
    assert interrupted.trainer_.step > 2


def test_an_iterator_of_callbacks_is_refused():
    for call in (SequentialClassifier.fit, lambda *args: SequentialClassifier.partial_fit(*args, np.unique(Y))):
        estimator = make_classifier(callbacks=iter([]))
        with pytest.raises(TypeError, match="callbacks: expected a list or a tuple, got the iterator"):
            call(estimator, X, Y)
        assert not hasattr(estimator, "trainer_")
