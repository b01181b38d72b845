"""Parameters that are set between calls of partial_fit, or of fit with warm_start: they count, or are refused."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.metrics import f1_score

from minidl import Sequential
from minidl.callbacks import ReduceLROnPlateau
from minidl.estimators import SequentialClassifier
from minidl.layers import Dense, Normalize, ReLU
from minidl.losses import SoftmaxCrossEntropy
from minidl.optimizers import SGD, Adam
from minidl.schedules import Cosine

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4)).astype("float32")
Y = (X[:, 0] + RNG.normal(size=60) > 0).astype(int)


def begun(**options):
    return SequentialClassifier(**{"lr": 0.01, "random_state": 0, **options}).partial_fit(X, Y, classes=[0, 1])


def state(fitted):
    trainer = fitted.trainer_
    moments = {name: value.tobytes() for name, value in trainer.steps().update.state.items()}
    weights = {name: value.tobytes() for name, value in fitted.model_.state_dict().items()}
    given = trainer.optimizer.lr, trainer.num_threads, list(trainer.metrics), trainer.step, repr(trainer.history)
    return weights, moments, given


# ---- the learning rate


@pytest.mark.parametrize("through", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_rate_that_is_set_counts_and_moments_are_kept(through):
    """As in a Trainer whose optimizer gets another rate."""
    fitted, other = through(begun()), begun()
    fitted.set_params(lr=1e-5).partial_fit(X, Y).partial_fit(X, Y)
    other.trainer_.optimizer.lr = 1e-5
    other.partial_fit(X, Y).partial_fit(X, Y)
    assert fitted.trainer_.history["lr"] == [0.01, 1e-5, 1e-5]
    assert state(fitted)[:2] == state(other)[:2]


@pytest.mark.parametrize("through", [lambda one: one, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_lowered_rate_stays_until_lr_is_set(through):
    fitted = begun(callbacks=[ReduceLROnPlateau("loss", factor=0.1, patience=1, threshold=0.9)])
    fitted = through(fitted.partial_fit(X, Y).partial_fit(X, Y))
    lowered = fitted.trainer_.optimizer.lr
    assert lowered < 0.01
    fitted.set_params(callbacks=[], lr=0.01).partial_fit(X, Y)  # the same as before
    assert fitted.trainer_.optimizer.lr == lowered
    assert fitted.set_params(lr=0.02).partial_fit(X, Y).trainer_.optimizer.lr == 0.02


@pytest.mark.parametrize(
    "first, then, rate",
    [({"optimizer": SGD(0.1, momentum=0.9)}, {"optimizer": SGD(0.2, momentum=0.9)}, 0.2),
     ({"optimizer": SGD(0.1, momentum=0.9)}, {"lr": 0.3}, 0.3),
     ({"optimizer": "sgd"}, {"lr": 0.3}, 0.3),
     ({"optimizer": "sgd", "lr": 0.3}, {"lr": None}, 0.01),
     ({}, {"lr": Cosine(0.5, 10)}, Cosine(0.5, 10)(1))],
)  # fmt: skip
def test_where_a_rate_comes_from(first, then, rate):
    fitted = begun(**{"lr": None, **first}).set_params(**then).partial_fit(X, Y)
    assert fitted.trainer_.history["lr"][-1] == pytest.approx(rate)


def test_the_rate_of_an_optimizer_may_be_set_in_place():
    fitted = begun(lr=None, optimizer=SGD(0.1))
    fitted.optimizer.lr = 0.05
    assert fitted.partial_fit(X, Y).trainer_.history["lr"] == [0.1, 0.05]


# ---- other parameters


def test_metrics_and_threads_count():
    fitted = begun(metrics=["accuracy"])
    fitted.set_params(metrics=["f1"], num_threads=1).partial_fit(X, Y)
    assert fitted.trainer_.num_threads == 1
    assert fitted.trainer_.history["f1"][1] == pytest.approx(f1_score(Y, begun().predict(X)))  # before the one step
    assert np.isnan(fitted.trainer_.history["accuracy"][1])


OTHERS = {
    "model": [Dense(2)],
    "input_shape": (4,),
    "dtype": "float64",
    "loss": SoftmaxCrossEntropy(label_smoothing=0.1),
    "optimizer": "sgd",
    "random_state": 1,
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("after", ["fit", "partial_fit"])
def test_what_began_with_the_training_is_refused(name, after):
    fitted = begun(epochs=2)
    if after == "fit":
        fitted.fit(X, Y)
    before = state(fitted)
    first = getattr(fitted, name)
    with pytest.raises(ValueError, match=rf"^{name}: expected the one that the model was trained with for partial_fit"):
        fitted.set_params(**{name: OTHERS[name]}).partial_fit(X, Y)
    assert state(fitted) == before
    fitted.set_params(**{name: first}).partial_fit(X, Y)
    fitted.set_params(**{name: OTHERS[name]}).fit(X, Y)


@pytest.mark.parametrize("through", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_layers_that_are_changed_in_place_are_refused(through):
    """Rather than trained as they were before."""
    fitted = through(begun(model=[Dense(3), Dense(2)]))
    fitted.partial_fit(X, Y)
    first, before = fitted.model[0], state(fitted)
    for change in ({"trainable": False}, {"lr_mult": 0.5}, {"decay_mult": {"bias": 0}}):
        old = {name: getattr(first, name) for name in change}
        vars_of(first, change)
        with pytest.raises(ValueError, match=r"^model: expected the layers that were trained for partial_fit"):
            fitted.partial_fit(X, Y)
        vars_of(first, old)
    first.lr_mult = {"weight": 2, "bias": 3}
    fitted.fit(X, Y).partial_fit(X, Y)
    first.lr_mult, before = {"bias": 3, "weight": 2}, state(fitted)  # the same
    fitted.partial_fit(X, Y)
    assert state(fitted) != before
    before = state(fitted)
    fitted.model[0] = Dense(7)
    with pytest.raises(ValueError, match=r"^model: expected the layers that were trained"):
        fitted.partial_fit(X, Y)
    assert state(fitted) == before
    fitted.model[0] = first
    fitted.partial_fit(X, Y)


@pytest.mark.parametrize("built", [False, True])
@pytest.mark.parametrize("through", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_with_a_sequential_goes_on(through, built):
    """Its layers are others, with the same settings."""
    model = Sequential([Dense(3), Dense(2)], (4,) if built else None)
    fitted = begun(model=model)
    copied = through(fitted).partial_fit(X, Y)
    assert state(copied)[:2] == state(fitted.partial_fit(X, Y))[:2]  # weights and moments, without times
    copied.model.layers[0].trainable = False
    with pytest.raises(ValueError, match=r"^model: expected the layers that were trained for partial_fit"):
        copied.partial_fit(X, Y)


def vars_of(layer, values):
    for name, value in values.items():
        setattr(layer, name, value)


def test_layers_differ_in_what_their_repr_does_not_show():
    frozen, slow, many = [Dense(3), Dense(2)], [Dense(3), Dense(2)], np.arange(4.0)
    frozen[0].trainable, slow[0].lr_mult = False, 0.5
    fitted = begun(model=[Dense(3), Dense(2)])
    for model in (frozen, slow):
        with pytest.raises(ValueError, match=r"^model: expected the one"):
            fitted.set_params(model=model).partial_fit(X, Y)
    fitted = begun(model=[Normalize(many, many + 1), Dense(2)])
    with pytest.raises(ValueError, match=r"^model: expected the one"):
        fitted.set_params(model=[Normalize(many, many + np.array([1, 1, 1, 2])), Dense(2)]).partial_fit(X, Y)
    fitted.set_params(model=[Normalize(many, many + 1), Dense(2)]).partial_fit(X, Y)


def test_equal_numbers_and_shapes_are_the_same():
    fitted = begun(input_shape=(4,)).set_params(random_state=np.int64(0), input_shape=[4])
    assert fitted.partial_fit(X, Y).n_iter_ == 2


def test_an_optimizer_of_other_settings_is_refused():
    fitted = begun(lr=None, optimizer=SGD(0.1, momentum=0.9))
    with pytest.raises(ValueError, match=r"^optimizer: .*, SGD\(lr=0.1, momentum=0.9, .*got SGD\(lr=0.1, momentum=0.5"):
        fitted.set_params(optimizer=SGD(0.1, momentum=0.5)).partial_fit(X, Y)


def test_equal_layers_losses_and_optimizers_are_the_same():
    def given():
        return {
            "model": [Dense(5), ReLU(), Dense(2)],
            "loss": SoftmaxCrossEntropy(label_smoothing=0.1),
            "optimizer": Adam(0.01),
        }

    fitted, other = begun(lr=None, **given()), begun(lr=None, **given())
    assert state(fitted.set_params(**given()).partial_fit(X, Y))[:2] == state(other.partial_fit(X, Y))[:2]


@pytest.mark.parametrize(
    "change", [{"lr": -1.0}, {"num_threads": 0}, {"metrics": ["f2"]}, {"batch_size": 0}, {"class_weight": {3: 1.0}}]
)
def test_a_refused_call_sets_nothing(change):
    fitted = begun()
    before = state(fitted)
    with pytest.raises(ValueError, match=next(iter(change))):
        fitted.set_params(**{"lr": 0.5, "num_threads": 2, "metrics": ["f1"], **change}).partial_fit(X, Y)
    assert state(fitted) == before
    fitted.set_params(lr=0.5, num_threads=2, metrics=["f1"], batch_size="auto", class_weight=None)
    with pytest.raises(ValueError, match="NaN"):
        fitted.partial_fit(X * np.nan, Y)
    assert state(fitted) == before
    fitted.partial_fit(X, Y)
    assert fitted.trainer_.optimizer.lr == 0.5 and list(fitted.trainer_.metrics) == ["f1"]


@pytest.mark.parametrize("name", ["model", "input_shape", "dtype"])
def test_a_warm_start_needs_the_same_model(name):
    fitted = begun(warm_start=True, epochs=2)
    with pytest.raises(ValueError, match=rf"^{name}: .* for warm_start=True"):
        fitted.set_params(**{name: OTHERS[name]}).fit(X, Y)
    fitted.set_params(warm_start=False).fit(X, Y)


@pytest.mark.parametrize("name", ["loss", "optimizer", "random_state"])
def test_a_warm_start_takes_all_else_anew(name):
    fitted = begun(warm_start=True, epochs=2).set_params(**{name: OTHERS[name], "lr": 0.125}).fit(X, Y)
    assert fitted.trainer_.history["lr"] == [0.125, 0.125]


def test_whole_data_arguments_name_their_remedy():
    with pytest.raises(ValueError, match=r"class_weight: .*, got 'balanced'; compute_class_weight of scikit-learn"):
        begun(class_weight="balanced")
    with pytest.raises(ValueError, match=r"early_stopping: .*: score each batch before it is learned"):
        begun(early_stopping=True)
