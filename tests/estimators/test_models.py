"""Models given to an estimator: how each form is used, and that the given objects are not changed."""

import functools

import numpy as np
import pytest

from minidl import Layer, Sequential, Trainer
from minidl.estimators import SequentialClassifier, SequentialRegressor
from minidl.layers import BatchNorm1D, Conv2D, Dense, Dropout, Flatten, MaxPool2D, ReLU, Residual
from minidl.losses import SoftmaxCrossEntropy
from minidl.optimizers import SGD, Adagrad, Adam, AdamW, RMSprop
from minidl.schedules import Cosine

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 4)).astype("float32"), np.arange(60) % 3
FIT = {"epochs": 4, "tol": None, "batch_size": 16, "random_state": 0}


def make_classifier(model=None, **options):
    return SequentialClassifier(model, **{**FIT, **options})


def layers(outputs=3):
    return [Dense(6), ReLU(), Dropout(0.2), Dense(outputs)]


def state(estimator):
    return {name: value.tobytes() for name, value in estimator.model_.state_dict().items()}


def train_by_trainer(fitted, model, **options):
    """Trains without an estimator, with the estimator's seed."""
    trainer = Trainer(model, "softmax_cross_entropy", Adam(), seed=fitted.trainer_.seed)
    trainer.fit(X, Y, epochs=4, batch_size=16, verbose=0, **options)
    return {name: value.tobytes() for name, value in trainer.model.state_dict().items()}


class Net:
    """A callable object that returns a model."""

    def __init__(self, width):
        self.width = width

    def __call__(self, outputs):
        return [Dense(self.width), ReLU(), Dropout(0.2), Dense(outputs)]


def with_options(outputs, width=6, *more, **options):
    return layers(outputs)


WAYS = {
    "a list": layers(),
    "a tuple": tuple(layers()),
    "an unbuilt model": Sequential(layers(), seed=5),
    "a function": layers,
    "no argument": lambda: layers(),
    "input shape": lambda input_shape: layers() if input_shape == (4,) else None,
    "outputs": lambda outputs: tuple(layers(outputs)),
    "both arguments": lambda outputs, input_shape: layers(outputs) if input_shape == (4,) else None,
    "both arguments, reversed": lambda input_shape, outputs: Sequential(layers(outputs)),
    "keyword-only": lambda *, outputs: layers(outputs),
    "with options": with_options,
    "a partial function": functools.partial(with_options, width=6),
    "a method": Net(6).__call__,
    "an object": Net(6),
}


@pytest.mark.parametrize("model", WAYS.values(), ids=WAYS)
def test_all_forms_give_the_same_model(model):
    """All are the model that a Trainer trains, with initial weights from the estimator's seed."""
    fitted = make_classifier(model).fit(X, Y)
    seed = fitted.trainer_.seed
    assert state(fitted) == train_by_trainer(fitted, Sequential(layers(), (4,), seed))
    again = make_classifier(model).fit(X, Y)  # the same list gives the same model
    assert state(again) == state(fitted)
    assert again.model_ is not fitted.model_


def test_given_layers_stay_unbuilt():
    given = layers()
    make_classifier(given).fit(X, Y)
    assert not any(layer.built for layer in given)
    model = Sequential(given)
    make_classifier(model).fit(X, Y)
    assert model.network is None and not any(layer.built for layer in given)
    Sequential(given, (9,))  # they belong to no model


def test_parameters_are_the_given_objects():
    given = {"model": layers(), "optimizer": SGD(0.1, momentum=0.9), "loss": SoftmaxCrossEntropy(), "callbacks": []}
    estimator = make_classifier(**given)
    estimator.fit(X, Y)
    assert all(estimator.get_params()[name] is value for name, value in given.items())


def test_a_built_model_is_the_start_and_is_not_changed():
    model = Sequential(layers(), (4,), seed=9)
    model.layers[0].trainable = False
    model.layers[3].lr_mult = 0.25
    before = {name: value.tobytes() for name, value in model.state_dict().items()}
    fitted = make_classifier(model).fit(X, Y)
    assert {name: value.tobytes() for name, value in model.state_dict().items()} == before
    copy = model[:]
    assert not copy.layers[0].trainable and copy.layers[3].lr_mult == 0.25
    assert state(fitted) == train_by_trainer(fitted, copy)
    assert state(fitted)["0.weight"] == before["0.weight"] and state(fitted)["3.weight"] != before["3.weight"]
    assert not fitted.model_.layers[0].trainable and fitted.model_.layers[3].lr_mult == 0.25


def test_settings_of_unbuilt_layers_are_kept():
    given = layers()
    given[0].trainable, given[3].lr_mult = False, 0.25
    fitted = make_classifier(given).fit(X, Y)
    assert not fitted.model_.layers[0].trainable and fitted.model_.layers[3].lr_mult == 0.25
    fresh = Sequential(layers(), (4,), fitted.trainer_.seed)
    assert state(fitted)["0.weight"] == fresh.state_dict()["0.weight"].tobytes()


def test_a_pretrained_part():
    """A built model as the first layer of a list: its weights are used."""
    pretrained = SequentialRegressor([Dense(5), ReLU(), Dense(1)], **FIT).fit(X, X[:, 0]).model_[:2]
    pretrained.trainable = False
    fitted = make_classifier([pretrained, Dense(3)]).fit(X, Y)
    for name, value in pretrained.state_dict().items():
        np.testing.assert_array_equal(fitted.model_.state_dict()[f"0.{name}"], value)


# ---- dtype
@pytest.mark.parametrize("function", [False, True], ids=["itself", "by a function"])
@pytest.mark.parametrize("built", [False, True], ids=["unbuilt", "built"])
def test_a_float64_model_is_computed_in_float64(built, function):
    made = Sequential(layers(), (4,) if built else None, dtype="float64")
    given = (lambda: made) if function else made
    assert make_classifier(given).fit(X, Y).model_.dtype == "float64"
    if built:
        with pytest.raises(ValueError, match="model: expected one of dtype 'float32', as the estimator's, got one"):
            make_classifier(given, dtype="float32").fit(X, Y)
    else:
        assert make_classifier(given, dtype="float32").fit(X, Y).model_.dtype == "float32"


def test_a_built_float32_model_stays_float32_for_float64_data():
    model = Sequential(layers(), (4,))
    assert make_classifier(model).fit(X.astype(float), Y).model_.dtype == "float32"
    assert make_classifier(layers()).fit(X.astype(float), Y).model_.dtype == "float64"


# ---- without a model
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 3, 3), (1, 2, 50), (3, 64, 64), (2, 4, 4), (1, 5, 9)], ids=str)
def test_images_of_any_size(shape):
    images = RNG.normal(size=(6, *shape)).astype("float32")
    fitted = make_classifier(epochs=1).fit(images, np.arange(6) % 2)
    kinds = [type(layer) for layer in fitted.model_.layers]
    assert kinds.count(Conv2D) == 2 and kinds.count(Dense) == 2 and fitted.model_.input_shape == shape
    assert kinds.count(MaxPool2D) == sum(min(shape[1:]) >= size for size in (4, 8))
    assert fitted.transform(images).shape == (6, 100) and fitted.predict(images).shape == (6,)


def test_tables():
    kinds = [type(layer) for layer in make_classifier(epochs=1).fit(X, Y).model_.layers]
    assert kinds == [Flatten, Dense, ReLU, Dense]
    assert make_classifier(epochs=1).fit(X[:, :1], Y).model_.input_shape == (1,)


# ---- refused models
class Wrong(Layer):
    """A user's layer that raises its own error."""

    class Error(ValueError):
        def __init__(self, one, two):
            super().__init__(f"{one} and {two}")

    def build(self, in_shape):
        raise self.Error("this", "that")


def broken(outputs):
    raise KeyError("a bug in a custom layer")


REFUSED = {
    "a layer": (Dense(3), TypeError, r"model: expected a Sequential, a list of layers, a function .* got Dense"),
    "no layers": ([], ValueError, "model: layers: expected at least one"),
    "no layer": ([Dense(3), "relu"], TypeError, "model: layers"),
    "a repeated layer": ([ReLU()] * 2 + [Dense(3)], ValueError, "model: layer 1, ReLU: appears twice"),
    "for images": (
        [Conv2D(2, 3), Flatten(), Dense(3)],
        ValueError,
        r"model: layer 0, Conv2D, input \(4,\).* set input_shape=\(channels, height, width\)",
    ),
    "a layer's own error": ([Wrong(), Dense(3)], ValueError, "model: layer 0, Wrong, .*this and that"),
    "a function with another argument": (
        lambda width: layers(),
        TypeError,
        r"model: expected a function of input_shape",
    ),
    "a function that returns nothing": (lambda: None, TypeError, "model: expected a Sequential.* got None"),
    "a function that returns a function": (lambda: layers, TypeError, "model: expected a Sequential"),
    "a function with a bug": (broken, KeyError, "a bug in a custom layer"),
    "a class": (Sequential, TypeError, "model: expected a function of input_shape and outputs, got one that needs"),
    "no parameters": ([Flatten(), ReLU()], ValueError, "model"),
}


@pytest.mark.parametrize("model, kind, message", REFUSED.values(), ids=REFUSED)
def test_invalid_models_are_refused(model, kind, message):
    given = make_classifier(model)
    with pytest.raises(kind, match=message):
        given.fit(X, Y)
    assert given.get_params()["model"] is model and vars(given) == vars(make_classifier(model))
    assert not isinstance(model, list) or not any(getattr(layer, "built", False) for layer in model)


# ---- optimizers and learning rates
@pytest.mark.parametrize(
    "name, made",
    [("adam", Adam()), ("adamw", AdamW()), ("adagrad", Adagrad()), ("rmsprop", RMSprop()), ("sgd", SGD(0.01, 0.9))],
)
def test_optimizers_by_name_equal_the_objects(name, made):
    by_name = make_classifier(layers(), optimizer=name).fit(X, Y)
    assert repr(by_name.trainer_.optimizer) == repr(made)
    assert state(by_name) == state(make_classifier(layers(), optimizer=made).fit(X, Y))


RATES = {"number": 0.03, "function": lambda step: 0.1 / (1 + step), "schedule": Cosine(0.1, 10)}


@pytest.mark.parametrize("lr", RATES.values(), ids=RATES)
def test_lr_sets_the_optimizers_rate(lr):
    by_name = make_classifier(layers(), optimizer="sgd", lr=lr).fit(X, Y)
    assert state(by_name) == state(make_classifier(layers(), optimizer=SGD(lr, momentum=0.9)).fit(X, Y))
    given = SGD(0.5, momentum=0.9)
    assert state(by_name) == state(make_classifier(layers(), optimizer=given, lr=lr).fit(X, Y))
    assert given.lr == 0.5
    assert state(by_name) != state(make_classifier(layers(), optimizer="sgd").fit(X, Y))


class Momentum:
    """A custom optimizer with state."""

    def __init__(self, lr):
        self.lr, self.seen = lr, {}

    def step(self, params, lr):
        for name, p in params.items():
            v = self.seen[name] = 0.9 * self.seen.get(name, 0) + p.grad
            p.value -= p.value.dtype.type(lr) * v


def test_a_custom_optimizer_starts_from_scratch_in_every_fit():
    given = Momentum(0.01)
    first, second = (make_classifier(layers(), optimizer=given).fit(X, Y) for _ in range(2))
    assert given.seen == {} and state(first) == state(second)
    assert sorted(first.trainer_.optimizer.seen) == sorted(first.model_.params)
    with pytest.raises(TypeError, match="lr: expected None with an optimizer that has its own"):
        make_classifier(layers(), optimizer=given, lr=0.1).fit(X, Y)


def squared_error(scores, y):
    error = scores - np.eye(3, dtype=scores.dtype)[y]
    return (error**2).sum(axis=1), 2 * error


class Double(Layer):
    """A custom NumPy layer."""

    def forward(self, x, training):
        return 2 * x

    def backward(self, dy):
        return 2 * dy


def test_custom_layers_and_losses():
    fitted = make_classifier([Double(), Dense(3)], loss=squared_error).fit(X, Y)
    trainer = Trainer(
        Sequential([Double(), Dense(3)], (4,), fitted.trainer_.seed), squared_error, Adam(), seed=fitted.trainer_.seed
    )
    trainer.fit(X, Y, epochs=4, batch_size=16, verbose=0)
    np.testing.assert_array_equal(fitted.model_.predict(X), trainer.model.predict(X))


def test_containers_and_running_statistics():
    model = [Dense(6), BatchNorm1D(), ReLU(), Residual(Dense(6), ReLU()), Dense(3)]
    fitted = make_classifier(model, batch_size=20).fit(X, Y)
    assert np.abs(fitted.model_.state_dict()["1.running_mean"]).max() > 0
    np.testing.assert_array_equal(fitted.predict(X[:7]), fitted.predict(X)[:7])


@pytest.mark.parametrize(
    "n, early_stopping",
    [(201, False), (401, False), (1001, False), (40_201, False), (201, True), (401, True), (1001, True)],
)
def test_batch_norm_never_gets_a_single_example(n, early_stopping):
    X = np.random.default_rng(0).normal(size=(n + 100 * early_stopping, 4))
    options = {"early_stopping": early_stopping, "validation_fraction": 100 / len(X), "epochs": 2}
    layers = [Dense(4), BatchNorm1D(), Dense(2)]
    SequentialClassifier(layers, **options).fit(X, X[:, 0] > 0)
    SequentialClassifier(layers).partial_fit(X[:n], X[:n, 0] > 0, classes=[False, True])
    with pytest.raises(ValueError, match="BatchNorm1D: expected at least 2 examples"):
        SequentialClassifier(layers, batch_size=200, **options).fit(X, X[:, 0] > 0)


def test_metadata_and_classes_of_an_unbuilt_model_are_kept():
    model = Sequential([Dense(3)])
    model.metadata, given = {"source": "a"}, {"epochs": 1, "random_state": 0}
    assert SequentialClassifier(model, **given).fit(np.eye(3), [0, 1, 2]).model_.metadata == {"source": "a"}
