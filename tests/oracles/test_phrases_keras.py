"""The phrase book of Keras: Keras's code of every row runs, and rows that claim equal numbers have them.

Keras has PyTorch as its backend.
"""

import itertools
import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from phrase_books import CLASSES, INPUTS, ROWS, arrays, foreign_program, minidl_names, place, rows

from minidl import Sequential, Trainer, losses, metrics
from minidl.callbacks import ReduceLROnPlateau
from minidl.layers import Dense, Dropout, Dropout2D, GaussianNoise
from minidl.optimizers import SGD

pytestmark = [pytest.mark.oracle("keras"), pytest.mark.filterwarnings("ignore")]  # warnings of Keras's own

__all__ = ["place"]  # a fixture


@pytest.fixture
def keras(monkeypatch):
    """Keras with PyTorch as its backend, computing in float64."""
    pytest.importorskip("torch")
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its imports
        keras = pytest.importorskip("keras")
    before = keras.config.floatx()
    keras.config.set_floatx("float64")
    keras.utils.set_random_seed(0)
    yield keras
    keras.config.set_floatx(before)


def keras_names(keras):
    X, y = arrays()
    inputs = keras.layers.Input((64,))
    layers = [inputs, keras.layers.Dense(32), keras.layers.Dense(CLASSES, activation="softmax")]
    model = keras.Sequential(layers)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.save("model.keras")
    return {
        "keras": keras, "layers": keras.layers, "losses": keras.losses, "optimizers": keras.optimizers,
        "schedules": keras.optimizers.schedules, "callbacks": keras.callbacks, "metrics": keras.metrics,
        "inputs": inputs, "model": model, "x": X, "y": y, "weights": np.ones(ROWS),
        "generator": (batch for batch in [(X, y)] * 2),
    }  # fmt: skip


@pytest.mark.parametrize("row", rows("Keras"))
def test_keras_code_runs(row, place, keras):
    for code in row.theirs:
        exec(code, keras_names(keras))


def to_minidl(keras, variable):
    """Returns a variable of Keras in the layout of minidl."""
    array = keras.ops.convert_to_numpy(variable)
    if "depthwise" in variable.path and "kernel" in variable.path:  # (height, width, channels, multiplier)
        return array.transpose(2, 3, 0, 1).reshape(-1, 1, *array.shape[:2])
    if "kernel" in variable.name:  # the sizes of a window, inputs, outputs
        return array.transpose(-1, -2, *range(array.ndim - 2))
    return array.ravel()


def channels_last(x):
    return np.moveaxis(x, 1, -1)


@pytest.mark.parametrize("row", rows("Keras", section="Layers", theirs="layers."))
def test_layers_compute_keras_numbers(row, place, keras, rng):
    if "Random" in row.theirs[0]:
        pytest.skip("no equal numbers are claimed")
    for shape, code in itertools.product(INPUTS, row.ours if "BatchNorm" in row.ours[0] else [", ".join(row.ours)]):
        if "from_data" in code:
            code = row.ours[0]
        try:
            layers = eval(f"[{code}]", minidl_names())
            ours = Sequential(layers, input_shape=shape, dtype="float64")
            theirs = keras.Sequential(
                [keras.layers.Input((*shape[1:], shape[0])), *eval(f"[{row.theirs[0]}]", keras_names(keras))]
            )
        except ValueError:
            continue
        break
    else:
        raise AssertionError("no input that both accept")
    for variable in theirs.weights:
        variable.assign(keras.ops.convert_to_numpy(variable) + 0.3 * rng.random(variable.shape))
    names = [name for name in ours.state_dict() if not name.endswith("num_batches_tracked")]
    state = dict(zip(names, (to_minidl(keras, variable) for variable in theirs.weights), strict=True))
    ours.load_state_dict(ours.state_dict() | state)
    x = rng.standard_normal((5, *shape))
    expected = keras.ops.convert_to_numpy(theirs(channels_last(x), training=False))
    close = {"rtol": 1e-6, "atol": 1e-6}
    np.testing.assert_allclose(channels_last(ours.predict(x)), expected, **close)
    if isinstance(ours.layers[0], (Dropout, Dropout2D, GaussianNoise)):
        return
    expected = keras.ops.convert_to_numpy(theirs(channels_last(x), training=True))
    np.testing.assert_allclose(channels_last(ours.forward(x, training=True)), expected, **close)
    for name, variable in zip(names, theirs.weights, strict=True):
        if not name.endswith("running_var"):  # unbiased in minidl
            np.testing.assert_allclose(ours.state_dict()[name], to_minidl(keras, variable), **close)


@pytest.mark.parametrize("row", rows("Keras", section="Layers", theirs="activation="))
def test_activations_compute_keras_numbers(row, place, keras, rng):
    activation = keras.activations.get(re.fullmatch(r'activation="(\w+)"', row.theirs[0])[1])
    x = 3 * rng.standard_normal((50, 9))
    ours = Sequential([eval(row.ours[0], minidl_names())], input_shape=(9,), dtype="float64")
    np.testing.assert_allclose(
        ours.predict(x), keras.ops.convert_to_numpy(activation(keras.ops.array(x))), rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize("row", rows("Keras", section="Losses and metrics", theirs="losses."))
def test_losses_compute_keras_numbers(row, place, keras, rng):
    theirs, ours = eval(row.theirs[0], keras_names(keras)), eval(row.ours[0], minidl_names())
    ours = losses.NAMES[ours] if isinstance(ours, str) else ours
    scores, y = 2 * rng.standard_normal((7, 3)), rng.random((7, 3)).round()
    if "Categorical" in row.theirs[0]:
        y = np.arange(7) % 3 if "Sparse" in row.theirs[0] else np.eye(3)[np.arange(7) % 3]
    assert ours(scores, y)[0].mean() == pytest.approx(float(theirs(y, scores)), rel=1e-6)


@pytest.mark.parametrize("row", rows("Keras", section="Losses and metrics", theirs="metrics."))
def test_metrics_are_those_of_keras(row, place, keras, rng):
    theirs, ours = eval(row.theirs[0], keras_names(keras)), eval(row.ours[0], minidl_names())
    ours = metrics.NAMES[ours] if isinstance(ours, str) else ours
    name, scores, y = type(theirs).__name__, rng.standard_normal((40, 5)), rng.integers(0, 5, 40)
    their_scores, their_y = scores, np.eye(5)[y] if name in ("CategoricalAccuracy", "F1Score") else y
    if name in ("Precision", "Recall", "AUC", "BinaryAccuracy"):
        scores, y = scores[:, :1], rng.integers(0, 2, 40)
        their_scores = scores if name == "BinaryAccuracy" else 1 / (1 + np.exp(-scores))
        y = their_y = y[:, np.newaxis] if name == "BinaryAccuracy" else y
    elif "Accuracy" not in name and name != "F1Score":
        y = their_y = scores + rng.standard_normal(scores.shape)
    theirs.update_state(their_y.reshape(40, -1), their_scores)
    rel = 0.02 if name == "AUC" else 1e-5  # Keras approximates the integral
    assert ours(y, scores) == pytest.approx(float(theirs.result()), rel=rel)


@pytest.mark.parametrize("row", rows("Keras", section="Optimizers", table=1, theirs="optimizers."))
def test_optimizers_take_keras_steps(row, place, keras, rng):
    theirs, ours = eval(row.theirs[0], keras_names(keras)), eval(row.ours[0], minidl_names())
    model = Sequential([Dense(3, use_bias=False)], input_shape=(4,), dtype="float64")
    param = model.params["0.weight"]
    variable = keras.Variable(np.array(param.value))
    for _ in range(6):
        param.grad = rng.standard_normal((3, 4)) + np.sign(rng.standard_normal((3, 4)))
        theirs.apply([keras.ops.array(param.grad)], [variable])
        ours.step(model.params, ours.lr)
        rtol = 1e-6 if "SGD" in row.theirs[0] else 1e-4
        np.testing.assert_allclose(param.value, keras.ops.convert_to_numpy(variable), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("row", rows("Keras", section="Schedules"))
def test_schedules_have_keras_rates(row, place, keras):
    theirs, ours = eval(row.theirs[0], keras_names(keras)), eval(row.ours[0], minidl_names())
    for step in range(30):
        assert ours(step) == pytest.approx(float(theirs(step)), rel=1e-5), step


PLATEAUS = [[1.0] * 20, [1.0, 0.9, 0.9, 0.9, 0.8] + [0.8] * 15, [0.5, 0.6, 0.4, 0.4] + [0.4] * 16]


@pytest.mark.parametrize("losses", PLATEAUS)
@pytest.mark.parametrize("cooldown", [0, 1, 2, 4])
@pytest.mark.parametrize("patience", [1, 2, 5])
def test_plateaus_end_when_those_of_keras_do(patience, cooldown, losses, keras):
    with_cooldown = {"patience": patience, "cooldown": cooldown}
    theirs = keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, **with_cooldown)
    keras_model = SimpleNamespace(optimizer=SimpleNamespace(learning_rate=1.0))
    theirs.set_model(keras_model)
    theirs.on_train_begin()
    model = Sequential([Dense(1)], input_shape=(1,))
    trainer = Trainer(model, "mean_squared_error", SGD(1.0))
    ours = ReduceLROnPlateau("loss", factor=0.5, patience=patience - 1, cooldown=max(cooldown - 1, 0))
    ours.on_fit_begin(trainer)
    for epoch, loss in enumerate(losses):
        theirs.on_epoch_end(epoch, {"loss": loss})
        ours.on_epoch_end(trainer, epoch, {"loss": loss})
        assert trainer.optimizer.lr == keras_model.optimizer.learning_rate, epoch


def test_keras_program_runs(tmp_path, monkeypatch, capsys, keras):
    keras.config.set_floatx("float32")
    monkeypatch.chdir(tmp_path)
    exec(foreign_program("keras.md"), {"__name__": "program"})
    assert capsys.readouterr().out == "True\n"
