"""Trainer: epochs, history, validation, evaluation. Interrupted fits are tested in training/test_steps.py."""

import numpy as np
import pytest
import reference
import reference_optimizers as formulas

from minidl import Layer, Sequential, Trainer
from minidl.datasets import load_digits
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU, Rescale
from minidl.losses import SoftmaxCrossEntropy
from minidl.optimizers import SGD

DIGITS = load_digits()
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(53, 4)), RNG.integers(0, 3, 53)


def make_trainer(metrics=(), seed=0, optimizer=None, dtype="float64", first_layers=(), **options):
    model = Sequential([*first_layers, Dense(6), ReLU(), Dense(3)], (4,), dtype=dtype)
    optimizer = optimizer or SGD(0.2, momentum=0.9)
    return Trainer(model, "softmax_cross_entropy", optimizer, metrics, seed, **options)


def weights(trainer):
    return {name: value.tobytes() for name, value in trainer.model.state_dict().items()}


class RowRecorder(Layer):
    """A first layer that records the first value of every row, in training and not."""

    def __init__(self):
        self.trained, self.looked_at = [], []

    def forward(self, x, training):
        (self.trained if training else self.looked_at).append(x[:, 0].tolist())
        return x

    def backward(self, dy):
        return dy


def numbered_rows(n):
    """Returns rows whose first value is their index."""
    return np.column_stack([np.arange(n), np.zeros((n, 3))])


# ---- learning
def test_learns_digits():
    layers = [Rescale(1 / 16), Conv2D(8, 3, padding=1), ReLU(), MaxPool2D(2), Flatten(), Dense(10)]
    trainer = Trainer(Sequential(layers), "softmax_cross_entropy", SGD(0.1, momentum=0.9), ["accuracy"])
    history = trainer.fit(DIGITS.X_train, DIGITS.y_train, epochs=12, verbose=0)
    assert history["loss"][-1] < 0.2 * history["loss"][0]
    assert trainer.evaluate(DIGITS.X_test, DIGITS.y_test)["accuracy"] > 0.95


def test_it_predicts_as_its_model():
    trainer = make_trainer(num_threads=2)
    assert np.array_equal(trainer.predict(X), trainer.model.predict(X))
    assert np.array_equal(trainer.predict_proba(X), trainer.model.predict_proba(X))
    trainer.num_threads = 1
    assert np.array_equal(trainer.predict(X), trainer.model.predict(X))
    with pytest.raises(ValueError, match="the model is not built yet"):
        Trainer(Sequential([Dense(3)]), "softmax_cross_entropy", SGD(0.1)).predict(X)


@pytest.mark.parametrize("nesterov", [False, True])
def test_matches_numpy_step_by_step(nesterov):
    """One dense layer and softmax, written out: order of rows, last partial batch, loss, rate."""
    model = Sequential([Dense(3)], input_shape=(4,), dtype="float64")
    w, b = model.state_dict().values()
    vw, vb = {"velocity": np.zeros_like(w)}, {"velocity": np.zeros_like(b)}

    def rate(step):
        return 0.5 / (1 + step)

    trainer = Trainer(model, "softmax_cross_entropy", SGD(rate, 0.9, nesterov))
    history = trainer.fit(X, Y, epochs=3, batch_size=20, shuffle=False, verbose=0)
    step = 0
    for epoch in range(3):
        total = 0
        for start in (0, 20, 40):
            x, y = X[start : start + 20], Y[start : start + 20]
            scores = x @ w.T + b
            total += reference.softmax_cross_entropy_forward(scores, y).sum()
            d = reference.softmax_cross_entropy_backward(scores, y, np.full(len(x), 1 / len(x)))
            w, vw = formulas.sgd(w, d.T @ x, vw, rate(step), step, 0.9, nesterov)
            b, vb = formulas.sgd(b, d.sum(axis=0), vb, rate(step), step, 0.9, nesterov)
            step += 1
        assert history["loss"][epoch] == pytest.approx(total / 53, rel=1e-12)
        assert history["lr"][epoch] == rate(step - 1)
    np.testing.assert_allclose(model.params["0.weight"].value, w, rtol=1e-12)
    np.testing.assert_allclose(model.params["0.bias"].value, b, rtol=1e-12)
    assert trainer.step == 9 and trainer.epoch == 3


# ---- history, metrics, evaluation
def test_history_is_a_dict_of_lists_that_later_fits_extend():
    def wrong(y, scores):
        return (scores.argmax(axis=1) != y).mean()

    trainer = make_trainer(["accuracy", wrong])
    history = trainer.fit(X, Y, 2, validation_data=(X[:9], Y[:9]), verbose=0)
    names = ["epoch", "loss", "accuracy", "wrong", "val_loss", "val_accuracy", "val_wrong"]
    assert list(history) == [*names, "lr", "images_per_second"]
    assert trainer.fit(X, Y, 3, validation_data=(X[:9], Y[:9]), verbose=0) is history
    assert history is trainer.history and history["epoch"] == [0, 1, 2, 3, 4]
    for name, values in history.items():
        assert len(values) == 5 and all(type(v) in (int, float) for v in values), name
    np.testing.assert_allclose(np.add(history["accuracy"], history["wrong"]), 1)
    result = trainer.evaluate(X[:9], Y[:9])
    assert {f"val_{name}": value for name, value in result.items()} == {
        name: values[-1] for name, values in history.items() if name.startswith("val_")
    }
    assert min(history["images_per_second"]) > 0


def test_history_has_an_entry_for_every_epoch_even_if_fits_differ():
    trainer = make_trainer()
    trainer.fit(X, Y, epochs=2, verbose=0)
    history = trainer.fit(X, Y, epochs=1, validation_data=(X, Y), verbose=0)
    assert {name: len(values) for name, values in history.items()} == dict.fromkeys(history, 3)
    np.testing.assert_array_equal(np.isnan(history["val_loss"]), [True, True, False])


def test_validation_data_may_have_weights():
    weights = np.arange(9.0)
    history = make_trainer(["accuracy"]).fit(X, Y, epochs=2, validation_data=(X[:9], Y[:9], weights), verbose=0)
    twin = make_trainer(["accuracy"])
    for loss, accuracy in zip(history["val_loss"], history["val_accuracy"], strict=True):
        twin.fit(X, Y, epochs=1, verbose=0)
        assert twin.evaluate(X[:9], Y[:9], weights) == {"loss": loss, "accuracy": accuracy}
        assert twin.evaluate(X[:9], Y[:9])["loss"] != loss


def test_metrics_get_the_scores_of_each_step_in_order():
    seen = []

    def look(y, scores):
        seen.append((y.copy(), scores.copy()))
        return 0

    trainer, twin = make_trainer([look]), make_trainer()
    trainer.fit(X, Y, batch_size=20, shuffle=False, verbose=0)
    np.testing.assert_array_equal(seen[0][0], Y)
    for start in (0, 20, 40):
        rows = slice(start, start + 20)
        np.testing.assert_array_equal(seen[0][1][rows], twin.model.predict(X[rows]))
        twin.train_batch(X[rows], Y[rows])


def test_evaluate_is_the_mean_over_all_rows():
    trainer = make_trainer(["accuracy"])
    scores = trainer.model.predict(X)
    losses = reference.softmax_cross_entropy_forward(scores, Y)
    before = weights(trainer)
    result = trainer.evaluate(X, Y)
    assert result["loss"] == pytest.approx(losses.mean(), rel=1e-12)
    assert result["accuracy"] == (scores.argmax(axis=1) == Y).mean()
    w = RNG.uniform(0, 2, 53)
    result = trainer.evaluate(X, Y, sample_weight=w)
    assert result["loss"] == pytest.approx((w * losses).sum() / w.sum(), rel=1e-12)
    assert weights(trainer) == before and trainer.step == 0


# ---- the order of the data, validation_split
def test_every_epoch_has_each_example_once_in_an_order_of_seed_and_epoch():
    def orders(seed, shuffle=True):
        trainer = make_trainer(seed=seed, first_layers=[RowRecorder()])
        state = np.random.get_state()[1].copy()  # noqa: NPY002
        trainer.fit(numbered_rows(53), Y, 2, batch_size=20, shuffle=shuffle, verbose=0)
        np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
        return trainer.model.layers[0].trained

    batches = orders(0)
    assert [len(batch) for batch in batches] == [20, 20, 13] * 2
    first, second = np.concatenate(batches[:3]), np.concatenate(batches[3:])
    np.testing.assert_array_equal(np.sort(first), np.arange(53))
    np.testing.assert_array_equal(np.sort(second), np.arange(53))
    assert (first != second).sum() > 40
    assert batches == orders(0) != orders(1)
    assert orders(0, shuffle=False) == 2 * [[*range(20)], [*range(20, 40)], [*range(40, 53)]]


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_validation_split_is_stratified_and_never_trained_on(share):
    n = 200
    y = np.repeat([0, 1, 2], [100, 60, 40])

    def split(seed):
        trainer = make_trainer(seed=seed, first_layers=[RowRecorder()])
        history = trainer.fit(numbered_rows(n), y, 2, validation_split=share, verbose=0)
        watch = trainer.model.layers[0]
        assert len(history["val_loss"]) == 2
        held = np.concatenate(watch.looked_at).astype(int).reshape(2, -1)
        trained = np.concatenate(watch.trained).reshape(2, -1)
        np.testing.assert_array_equal(np.sort(held[0]), np.sort(held[1]))
        np.testing.assert_array_equal(np.sort(trained[0]), np.sort(trained[1]))
        assert sorted([*trained[0], *held[0]]) == list(range(n))
        return np.sort(held[0])

    held = split(0)
    np.testing.assert_array_equal(np.bincount(y[held]), share * np.array([100, 60, 40]))
    np.testing.assert_array_equal(held, split(0))
    assert (held != split(1)).any()
    assert (np.diff(held) > 1).sum() > 10  # shuffled, not the end of the data


def test_validation_split_of_non_labels_is_not_stratified():
    """Integer targets of a custom loss are not classes: nothing to stratify."""

    def squares(scores, y):
        return (scores[:, 0] - y) ** 2, 2 * (scores - y[:, None])

    for y in (np.arange(40), np.arange(40) / 7):
        model = Sequential([Dense(1)], input_shape=(4,))
        history = Trainer(model, squares, SGD(1e-6)).fit(numbered_rows(40), y, validation_split=0.25, verbose=0)
        assert np.isfinite(history["val_loss"]).all()


# ---- small and empty data
def test_zero_epochs_change_nothing():
    trainer = make_trainer()
    before = weights(trainer)
    assert trainer.fit(X, Y, epochs=0, verbose=0) == {}
    assert weights(trainer) == before and trainer.step == trainer.epoch == 0
    fresh = Trainer(Sequential([Dense(3)]), "softmax_cross_entropy", SGD(0.1))
    fresh.fit(X, Y, epochs=0, verbose=0)
    assert fresh.model.input_shape == (4,)


def test_an_empty_data_set_is_refused():
    trainer = make_trainer(["accuracy"])
    before = weights(trainer)
    none = np.zeros((0, 4)), np.zeros(0, int)
    with pytest.raises(ValueError, match="X: expected at least one example"):
        trainer.fit(*none, epochs=2, verbose=0)
    assert weights(trainer) == before and trainer.step == 0 and trainer.history == {}
    assert all(np.isnan(value) for value in trainer.evaluate(*none).values())
    with pytest.raises(ValueError, match="X: expected at least one example"):
        trainer.train_batch(*none)


def test_a_batch_larger_than_the_data_is_all_of_it():
    one, other = make_trainer(), make_trainer()
    one.fit(X, Y, batch_size=10_000, shuffle=False, verbose=0)
    other.train_batch(X, Y)
    assert weights(one) == weights(other)


def test_an_unbuilt_model_is_built_for_its_first_data():
    trainer = Trainer(Sequential([Flatten(), Dense(3)]), "softmax_cross_entropy", SGD(0.1))
    trainer.fit(np.zeros((6, 2, 5)), Y[:6], verbose=0)
    assert trainer.model.input_shape == (2, 5)
    trainer.fit(np.zeros((6, 10)), Y[:6], verbose=0)
    before = weights(trainer)
    with pytest.raises(ValueError, match=r"X: expected shape \(n, 2, 5\) or \(n, 10\), got"):
        trainer.fit(np.zeros((6, 5, 2)), Y[:6], verbose=0)
    assert weights(trainer) == before and trainer.epoch == 2


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"model": "lenet"}, TypeError, "model: expected a Sequential, got 'lenet'"),
        ({"loss": "mse"}, ValueError, "loss: .*got 'mse'"),
        ({"optimizer": SGD}, TypeError, "optimizer: .*such as SGD.*got <class"),
        ({"optimizer": 0.1}, TypeError, r"optimizer: .*got 0\.1"),
        ({"metrics": ["auc"]}, ValueError, "metrics: .*got 'auc'"),
        ({"metrics": "accuracy"}, TypeError, "metrics: .*got 'accuracy'"),
        ({"seed": -1}, ValueError, "seed: .*got -1"),
        ({"num_threads": 0}, ValueError, "num_threads: .*got 0"),
        ({"num_threads": 5000}, ValueError, "num_threads: .*5000"),
        ({"num_threads": "2"}, TypeError, "num_threads: .*got '2'"),
    ],
    ids=str,
)
def test_invalid_arguments(arguments, error, message):
    right = {"model": Sequential([Dense(3)]), "loss": "softmax_cross_entropy"}
    with pytest.raises(error, match=message):
        Trainer(**right | {"optimizer": SGD(0.1)} | arguments)


# ---- changes between fits
def test_an_optimizer_can_be_replaced_but_its_momentum_is_fixed():
    one, other = make_trainer(), make_trainer()
    one.optimizer = SGD(0.25)
    other.optimizer = SGD(0.25)
    one.train_batch(X, Y)
    one.optimizer = SGD(0.0, momentum=0.5)
    one.train_batch(X, Y)
    other.train_batch(X, Y)
    assert weights(one) == weights(other)
    with pytest.raises(AttributeError, match="momentum"):
        one.optimizer.momentum = 0.0


def test_a_loss_subclass_that_overrides_call_is_used():
    class DoubledLoss(SoftmaxCrossEntropy):
        def __call__(self, scores, y):
            losses, dscores = super().__call__(scores, y)
            return 2 * losses, 2 * dscores

    once, twice = make_trainer(), make_trainer()
    twice.loss = DoubledLoss()
    expected = 2 * once.train_batch(X, Y)
    assert twice.train_batch(X, Y) == pytest.approx(expected, rel=1e-6)
    assert weights(once) != weights(twice)


def test_scores_are_read_only():
    def spoils(scores, y):
        scores -= 1
        return (scores**2).sum(axis=1), 2 * scores

    with pytest.raises(ValueError, match="read-only"):
        Trainer(make_trainer().model, spoils, SGD(0.1)).train_batch(X, Y)

    def sorts(y, scores):
        scores.sort(axis=1)
        return 0.0

    with pytest.raises(ValueError, match="read-only"):
        make_trainer([sorts]).evaluate(X, Y)


@pytest.mark.parametrize("returned", [([1.0], [[0.0]]), 1.0, (np.ones(1), np.ones((40, 3)))])
def test_a_loss_is_checked_in_evaluate_as_in_fit(returned):
    trainer = Trainer(make_trainer().model, lambda scores, y: returned, SGD(0.1))
    for call in (trainer.train_batch, trainer.evaluate):
        with pytest.raises((TypeError, ValueError), match="loss: expected"):
            call(X, Y)


def test_values_the_dtype_cannot_hold_are_refused_before_the_first_step():
    trainer = make_trainer(dtype="float32")
    before = weights(trainer)
    for weight in (1e39, 1e-40):
        with pytest.raises(ValueError, match=r"sample_weight.*float32"):
            trainer.train_batch(X, Y, sample_weight=np.full(len(X), weight))
    trainer.optimizer = SGD(1e39)
    with pytest.raises(ValueError, match=r"lr: expected a number that float32 can hold"):
        trainer.fit(X, Y, verbose=0)
    assert weights(trainer) == before and trainer.step == 0


@pytest.mark.parametrize("seed", [2**33, 2**62])
def test_large_seeds(seed):
    model = Sequential([Dense(3)], input_shape=(4,), seed=seed)
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1), seed=seed)
    assert len(trainer.fit(X, Y, validation_split=0.25, verbose=0)["val_loss"]) == 1
    with pytest.raises(ValueError, match="seed: expected at most"):
        Trainer(model, "softmax_cross_entropy", SGD(0.1), seed=2**70)


def test_without_shuffling_a_split_keeps_the_order_of_the_data():
    seen = []

    def noting(scores, y):
        seen.extend(y)
        return ((scores - y[:, None]) ** 2).sum(axis=1), 2 * (scores - y[:, None])

    X, y = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30.0)
    Trainer(Sequential([Dense(1)], (4,)), noting, SGD(1e-6)).fit(X, y, shuffle=False, validation_split=0.2, verbose=0)
    trained, held = seen[:24], seen[24:]
    assert trained == sorted(trained) and held == sorted(held) and sorted(seen) == y.tolist()
