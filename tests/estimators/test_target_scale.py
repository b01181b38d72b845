"""The scale of a regressor's targets: which rows decide on it, what keeps it, and which attributes have which unit."""

import copy
import pickle

import numpy as np
import pytest
from c_export.compiled import Compiled, same_bits
from sklearn.metrics import r2_score

from minidl import Layer, Sequential, Trainer
from minidl.callbacks import Checkpoint
from minidl.estimators import EnsembleRegressor, SequentialRegressor
from minidl.estimators.targets import RegressionTargets
from minidl.initializers import zeros
from minidl.layers import BatchNorm2D, Conv2D, Dense, Flatten, Normalize, Parallel, PReLU, ReLU, Rescale, Softplus
from minidl.losses import Huber
from minidl.optimizers import SGD

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 4))
Y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
BOTH = np.stack([300 + 20 * Y, 0.01 * X[:, 3] - 4], axis=1)  # two scales
WEIGHTS = RNG.integers(0, 4, 80).astype(float)


def make(model=None, **options):
    return SequentialRegressor(model, **{"epochs": 15, "lr": 0.02, "random_state": 0, **options})


def last(fitted):
    """Returns the factor and the offset of the last layer of model_, which has one target."""
    assert type(fitted.model_[-1]) is Rescale and len(fitted.model_) == len(fitted.trainer_.model) + 1
    return fitted.model_[-1].scale, fitted.model_[-1].offset


# ---- predictions have the unit of y
@pytest.mark.parametrize("loss", ["auto", "mean_absolute_error", Huber(0.5)])
@pytest.mark.parametrize("factor, offset", [(1000.0, 5e4), (-0.001, 3.0), (1e300, 0.0), (1e-300, 0.0), (1.0, 1e6)])
def test_predictions_follow_a_linear_change_of_y(loss, factor, offset):
    expected, far = make(loss=loss).fit(X, Y).predict(X), make(loss=loss).fit(X, factor * Y + offset).predict(X)
    if factor < 0:  # the net of -y is another one
        expected = -make(loss=loss).fit(X, -Y).predict(X)
    np.testing.assert_allclose((far - offset) / factor, expected, atol=1e-6)


def test_mean_and_deviation_are_those_of_numpy():
    scale, offset = last(make().fit(X, 7 + 3 * Y))
    assert scale == pytest.approx(3 * Y.std(), rel=1e-12) and offset == pytest.approx(7 + 3 * Y.mean(), rel=1e-12)


def test_each_target_has_a_scale_of_its_own():
    fitted = make(epochs=200).fit(X, BOTH)
    errors = fitted.predict(X) - BOTH
    assert (errors.std(axis=0) < 0.3 * BOTH.std(axis=0)).all()
    inverse = fitted.model_[-1]
    assert isinstance(inverse, Normalize)
    np.testing.assert_allclose(1 / np.array(inverse.std), BOTH.std(axis=0), rtol=1e-12)
    np.testing.assert_allclose(-np.array(inverse.mean) / inverse.std, BOTH.mean(axis=0), rtol=1e-12)
    units = BOTH * [1e-3, 1e5]
    np.testing.assert_allclose(make(epochs=200).fit(X, units).predict(X), fitted.predict(X) * [1e-3, 1e5], rtol=1e-6)


@pytest.mark.parametrize("constant", [0.0, 3.0, -1e7, 0.1])
def test_a_constant_target_is_predicted(constant):
    options = {"optimizer": "sgd", "lr": 0.1, "epochs": 300, "tol": None}
    fitted = make([Dense(1)], **options).fit(X, np.full(80, constant))
    assert last(fitted) == (1.0, constant)
    np.testing.assert_allclose(fitted.predict(X), constant, atol=1e-6)
    beside = make([Dense(2)], **options).fit(X, np.stack([Y, np.full(80, constant)], axis=1))
    np.testing.assert_allclose(beside.predict(X)[:, 1], constant, atol=1e-6)


def test_a_target_that_is_constant_up_to_rounding_has_a_scale_of_1():
    noise = np.where(np.arange(80) % 2, 0.3, 0.1 + 0.2)
    assert np.ptp(noise) > 0 and last(make(epochs=1).fit(X, noise))[0] == 1.0
    assert last(make(epochs=1).fit(X, 1e9 + 0.01 * Y))[0] == pytest.approx(0.01 * Y.std(), rel=1e-4)


@pytest.mark.parametrize("y", [2**62 + (1e15 * Y).astype(np.int64), (1e4 + 100 * Y).astype(np.float16), Y > 0])
def test_targets_of_other_dtypes_are_scaled_in_float64(y):
    scale, offset = last(make(epochs=60).fit(X, y))
    numbers = y.astype(np.float64)
    assert scale == pytest.approx(numbers.std(), rel=1e-9) and offset == pytest.approx(numbers.mean(), rel=1e-12)


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("size", [1e-300, 1e-39, 1e37, 8e37, 1e39, 1e305])
def test_targets_of_any_size_are_learned_or_refused(size, columns):
    """In float32, what it cannot hold is refused, and what it has no normal numbers for has a scale of 1."""
    y = size * np.stack([Y, -Y], axis=1).clip(-4, 4)
    y = y if columns == 2 else y[:, 0]
    for dtype in ("float32", "float64"):
        regressor = make(dtype=dtype, epochs=60)
        if np.abs(y).max() > np.finfo(dtype).max:
            with pytest.raises(ValueError, match="y: expected values that float32 can hold, got larger ones"):
                regressor.fit(X, y)
            continue
        result = regressor.fit(X, y).predict(X).reshape(80, columns)
        assert np.isfinite(result).all() and result.dtype == dtype
        if size > np.finfo(dtype).tiny:
            assert r2_score(y.reshape(80, columns) / size, result / size) > 0.8
        else:
            assert regressor._targets.scale == (1.0,) * columns


# ---- which rows decide
def test_weights_count_in_the_scale():
    used = np.repeat(np.arange(80), WEIGHTS.astype(int))
    options = {"dtype": "float64", "batch_size": 1000, "optimizer": "sgd"}
    weighted, repeated = make(**options).fit(X, Y, WEIGHTS), make(**options).fit(X[used], Y[used])
    np.testing.assert_allclose(last(weighted), last(repeated), rtol=1e-12)
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-9)
    assert last(weighted)[0] != pytest.approx(Y.std(), rel=1e-3)


@pytest.mark.parametrize("scale", [1.0, 1e-320, 1e308])
def test_weights_of_one_size_change_no_bit(scale):
    targets = RegressionTargets(1, True)
    expected = targets.scaled_by(Y[:, np.newaxis], None, "float64")
    assert targets.scaled_by(Y[:, np.newaxis], np.full(80, scale), "float64") == expected


@pytest.mark.parametrize("y", [Y, BOTH], ids=["one target", "two"])
@pytest.mark.parametrize("anything", [1e6, np.nan, np.inf])
def test_rows_of_weight_zero_are_absent(y, anything):
    there, hidden = WEIGHTS > 0, y.copy()
    hidden[~there] = anything
    weighted, without = make().fit(X, hidden, WEIGHTS), make().fit(X[there], y[there], WEIGHTS[there])
    np.testing.assert_array_equal(weighted.predict(X), without.predict(X))


def test_nan_is_refused_with_weights_too():
    for y in (Y, BOTH):
        with pytest.raises(ValueError, match="y"):
            make().fit(X, np.where(y > y.mean(), np.nan, y), sample_weight=WEIGHTS)


def test_rows_for_validation_have_the_scale_of_the_rows_of_fit():
    fitted = make(metrics=["mae"]).fit(X, Y, X_val=X[:30], y_val=5 * Y[:30] + 100)
    assert last(fitted) == last(make().fit(X, Y))
    away = np.abs(5 * Y[:30] + 100 - fitted.predict(X[:30])).mean() / Y.std()
    assert fitted.trainer_.history["val_mae"][-1] == pytest.approx(away)
    stopped = make(early_stopping=True).fit(X, 1000 * Y)
    assert last(stopped)[0] == pytest.approx(1000 * Y.std())  # also of the rows that are held out
    np.testing.assert_allclose(stopped.validation_scores_, make(early_stopping=True).fit(X, Y).validation_scores_)


# ---- what is not scaled
def test_counts_are_not_scaled():
    counts = RNG.poisson(np.exp(1 + X[:, 0]))
    fitted = make(loss="poisson").fit(X, counts)
    assert fitted.model_ is fitted.trainer_.model
    rates = fitted.predict(X)
    assert fitted.trainer_.evaluate(X, counts)["loss"] == pytest.approx((rates - counts * np.log(rates)).mean())
    np.testing.assert_array_equal(fitted.predict(X), np.exp(fitted.model_.predict(X)[:, 0]))


ENDS = {
    "activation": [Dense(2), Softplus()],
    "unit": [Dense(2), Rescale(1.0)],
    "branches": [Parallel([Dense(1)], [Dense(1), ReLU()])],
    "nested": [Sequential([Dense(2), ReLU()])],
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_outputs_with_a_unit_of_their_own_are_those_of_y(end):
    """An activation at the end has a range, of which scaled targets would leave out a part."""
    fitted = make([Dense(8), ReLU(), *end]).fit(X, np.abs(BOTH))
    assert fitted.model_ is fitted.trainer_.model
    error = np.square(fitted.predict(X) - np.abs(BOTH)).mean()
    assert fitted.trainer_.evaluate(X, np.abs(BOTH))["loss"] == pytest.approx(error)


@pytest.mark.parametrize("end", [[Dense(1)], [Sequential([ReLU(), Dense(1)])], [Dense(1), PReLU()]])
def test_outputs_of_weights_are_scaled(end):
    last(make([Dense(8), *end]).fit(X, Y))


# ---- fits that go on
def test_partial_fit_keeps_the_scale_of_the_first_call():
    fitted = make().partial_fit(X[:40], 100 * Y[:40])
    first = last(fitted)
    assert first == last(make().fit(X[:40], 100 * Y[:40]))
    for lr in (0.02, 0.01):
        fitted.set_params(lr=lr).partial_fit(X[40:], 1e5 + Y[40:])
    assert last(fitted) == last(pickle.loads(pickle.dumps(fitted))) == first
    assert fitted.loss_curve_[1] == pytest.approx((1e5 / first[0]) ** 2, rel=0.1)


def test_partial_fit_learns_on_from_a_single_row():
    fitted = make(lr=0.05).partial_fit(X[:1], [5.0])
    assert last(fitted) == (1.0, 5.0)
    for _ in range(100):
        fitted.partial_fit(X, 5 + Y)
    assert fitted.score(X, 5 + Y) > 0.8


def test_a_warm_start_keeps_the_scale_of_the_first_fit():
    """The weights were trained for it."""
    fitted = make(warm_start=True).fit(X, Y)
    first, losses = last(fitted), fitted.loss_curve_
    fitted.fit(X, Y)
    assert fitted.loss_curve_[0] < losses[0] / 2
    fitted.fit(X, 1000 * Y)
    assert last(fitted) == first
    assert last(fitted.set_params(warm_start=False).fit(X, 1000 * Y)) == pytest.approx(
        (1000 * first[0], 1000 * first[1])
    )


def test_a_warm_start_with_counts_is_not_scaled():
    fitted = make(warm_start=True).fit(X, np.abs(Y)).set_params(loss="poisson").fit(X, np.abs(Y))
    assert fitted.model_ is fitted.trainer_.model


def test_the_model_of_a_fit_goes_on_in_another():
    fitted = make().fit(X, 1000 * Y)
    again = make(fitted.model_, epochs=1, lr=1e-9).fit(X, 1000 * Y)
    np.testing.assert_allclose(again.predict(X), fitted.predict(X), rtol=1e-5)


def test_a_checkpoint_goes_on_with_scaled_targets(tmp_path):
    make(callbacks=[Checkpoint(tmp_path / "run.safetensors")], epochs=5).fit(X, 1000 * Y)
    fitted = make(epochs=8, tol=None).fit(X, 1000 * Y)
    resumed = Trainer.resume(tmp_path / "run.safetensors")
    scale, offset = last(fitted)
    resumed.fit(X, (1000 * Y - offset) / scale, epochs=3, batch_size=80, verbose=0)
    np.testing.assert_array_equal(resumed.predict(X), fitted.trainer_.predict(X))


# ---- units of attributes, files and pickles
@pytest.mark.parametrize("y", [1000 * Y, BOTH], ids=["one target", "two"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_c_file_has_the_bits_of_predict(y, dtype, tmp_path):
    rows = X.astype(dtype)
    fitted = make(dtype=dtype).fit(rows, y)
    expected = fitted.predict(rows).reshape(80, -1)
    assert same_bits(Compiled(fitted.model_, tmp_path).predict(rows), expected)
    fitted.model_.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(Sequential.load(tmp_path / "model.safetensors").predict(rows), expected)


def test_the_trainer_has_scaled_targets():
    fitted = make().fit(X, 1000 * Y)
    scale, offset = last(fitted)
    scores = fitted.trainer_.predict(X)[:, 0]
    np.testing.assert_allclose(scores * scale + offset, fitted.predict(X), rtol=1e-12)
    error = fitted.trainer_.evaluate(X, (1000 * Y - offset) / scale)["loss"]
    assert error == pytest.approx(np.square(fitted.predict(X) - 1000 * Y).mean() / scale**2)
    np.testing.assert_array_equal(fitted.transform(X, layer=-1)[:, 0], scores)
    assert fitted.transform(X).shape == (80, 100)


def test_the_model_shares_the_weights_of_the_trainer():
    fitted = make([Dense(3), ReLU(), Dense(1)]).fit(X, 1000 * Y)
    model = fitted.model_
    before = model.predict(X)
    fitted.partial_fit(X, 1000 * Y)
    assert fitted.model_ is model and not np.array_equal(model.predict(X), before)
    model.load_state_dict({name: np.zeros_like(value) for name, value in model.state_dict().items()})
    np.testing.assert_array_equal(fitted.predict(X), last(fitted)[1])
    assert not fitted.trainer_.predict(X).any()
    Trainer(model, "mean_squared_error", SGD(0.01)).fit(X, Y, epochs=1, verbose=0)
    assert fitted.trainer_.predict(X).any()


def test_the_model_follows_all_weights_and_buffers():
    """Also those that inference keeps in another form, Winograd's, and buffers of a layer in NumPy."""

    class Centre(Layer):
        def build(self, in_shape):
            self.mean = self.buffer("mean", in_shape, zeros)
            return in_shape

        def forward(self, x, training):
            if training:
                self.mean[...] = x.mean(axis=0)
            return x - self.mean

        def backward(self, dy):
            return dy

    images = RNG.normal(size=(40, 3, 8, 8)).astype("float32")
    layers = [Conv2D(16, 3, padding=1, use_bias=False), BatchNorm2D(), ReLU(), Flatten(), Centre(), Dense(1)]
    fitted, y = make(layers, epochs=2), 1e4 + 1e3 * images[:, 0].mean(axis=(1, 2))
    for call in (fitted.fit, fitted.partial_fit, fitted.partial_fit):
        scale, offset = last(call(images, y))
        expected = fitted.trainer_.predict(images)[:, 0] * np.float32(scale) + np.float32(offset)
        np.testing.assert_array_equal(fitted.predict(images), expected)


def test_settings_and_metadata_of_the_model_are_kept():
    given = Sequential([Dense(3), ReLU(), Dense(1)], input_shape=(4,))
    given.lr_mult, given.metadata, given.layers[0].trainable = 0.5, {"unit": "EUR"}, False
    model = make(given).fit(X, Y).model_
    assert model.lr_mult == 0.5 and model.metadata == {"unit": "EUR"} and not model.layers[0].trainable


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda fitted: pickle.loads(pickle.dumps(fitted))])
def test_copies_keep_the_scale(copied):
    fitted = make().fit(X, 1000 * Y)
    other = copied(fitted)
    np.testing.assert_array_equal(other.predict(X), fitted.predict(X))
    other.partial_fit(X, 1000 * Y), fitted.partial_fit(X, 1000 * Y)
    assert last(other) == last(fitted)
    np.testing.assert_array_equal(other.predict(X), fitted.predict(X))
    assert len(pickle.dumps(fitted)) < 1.2 * len(pickle.dumps(fitted.trainer_)) + 4000  # no weights twice


def test_a_pickle_from_before_targets_were_scaled_predicts_as_then():
    fitted = make().fit(X, 1000 * Y)
    state = fitted.__getstate__()
    old = object.__new__(RegressionTargets)
    old.__dict__.update(outputs=1, flat=True)  # its fields then
    loaded = SequentialRegressor.__new__(SequentialRegressor)
    loaded.__setstate__(pickle.loads(pickle.dumps({**state, "_targets": old})))
    np.testing.assert_array_equal(loaded.predict(X), fitted.trainer_.predict(X)[:, 0])
    assert loaded.model_ is loaded.trainer_.model
    np.testing.assert_array_equal(loaded.partial_fit(X, Y).predict(X), loaded.trainer_.predict(X)[:, 0])


def test_an_ensemble_has_the_unit_of_y():
    ensemble = EnsembleRegressor(make(), n_estimators=3, random_state=0).fit(X, 1e4 + 1e3 * Y)
    assert ensemble.score(X, 1e4 + 1e3 * Y) > 0.5
    _, deviation = ensemble.predict(X, return_std=True)
    assert 1 < deviation.mean() < 1e3
