"""fit(mixup=...): against steps on mixtures made by hand, resumed, and what it refuses."""

import numpy as np
import pytest
from scipy.stats import beta, kstest

from minidl import Layer, Sequential, Trainer
from minidl.layers import Columns, Conv2D, Dense, Dropout, Embedding, Flatten, OneHot, Parallel, ReLU
from minidl.losses import BinaryCrossEntropy, SoftmaxCrossEntropy
from minidl.optimizers import SGD
from minidl.training.mixup import draw
from minidl.utils.data import epoch_order

RNG = np.random.default_rng(0)
X, Y, W = RNG.random((50, 1, 4, 4), "f4"), RNG.integers(0, 3, 50), RNG.choice([0.5, 1, 2], 50)
REAL = RNG.random((50, 3))


def make_trainer(loss="softmax_cross_entropy", threads=None, dropout=0.0, metrics=("accuracy",), **options):
    layers = [Conv2D(4, 3, padding=1), ReLU(), Flatten(), Dropout(dropout), Dense(3)]
    return Trainer(Sequential(layers, (1, 4, 4)), loss, SGD(0.1, momentum=0.9), metrics, 5, threads, **options)


def outcome(trainer):
    history = {name: values for name, values in trainer.history.items() if name != "images_per_second"}
    return [param.value.tobytes() for param in trainer.model.params.values()], history


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_the_larger_share_has_its_distribution(alpha):
    shares = np.array([draw(alpha, 3, step, 1)[0] for step in range(2000)])
    assert shares.min() >= 0.5 and shares.max() <= 1
    assert kstest(shares, lambda share: 1 - 2 * beta(alpha, alpha).cdf(1 - share)).pvalue > 0.01
    assert ((shares.astype("f4") == shares) & ((1 - shares).astype("f4") == 1 - shares)).all()


def test_draws_are_a_function_of_seed_and_step():
    """The numbers are fixed: they may not change with a version of NumPy or SciPy."""
    share, partner = draw(0.4, 0, 0, 5)
    assert (share, partner.tolist()) == (0.5927289128303528, [3, 1, 4, 2, 0])
    assert draw(0.4, 0, 1, 5)[0] != share != draw(0.4, 1, 0, 5)[0]
    assert draw(1e-300, 0, 0, 5)[0] == 1
    assert draw(1e6, 0, 0, 5)[0] == pytest.approx(0.5, abs=0.002)


@pytest.mark.parametrize("loss", ["softmax_cross_entropy", "mean_squared_error"])
@pytest.mark.parametrize("weights", [None, W])
def test_a_step_is_one_on_a_mixture(loss, weights):
    """Bit for bit: partial batches, targets and weights as well."""
    y = Y if loss == "softmax_cross_entropy" else REAL
    numbers = np.eye(3)[Y] if y is Y else REAL.astype("f4")
    trainer, other = make_trainer(loss, metrics=()), make_trainer(loss, metrics=())
    trainer.fit(X, y, 2, batch_size=16, sample_weight=weights, mixup=0.5, verbose=0)
    for epoch in range(2):
        order, losses, total = epoch_order(50, 5, epoch, True), [], []
        for start in range(0, 50, 16):
            rows = order[start : start + 16]
            share, partner = draw(0.5, 5, other.step, len(rows))
            share = np.float32(share)
            x = share * X[rows] + (1 - share) * X[rows][partner]
            u = (np.ones(50) if weights is None else weights / weights.mean()).astype("f4")[rows]
            own, others = share * u, (1 - share) * u[partner]
            y = own[:, np.newaxis] * numbers[rows].astype("f4") + others[:, np.newaxis] * numbers[rows][partner].astype(
                "f4"
            )
            w = own + others
            losses.append(other.train_batch(x, y / w[:, np.newaxis], None if weights is None else w) * w.sum())
            total.append(w.sum())
        assert trainer.history["loss"][epoch] == pytest.approx(sum(losses) / sum(total), rel=1e-6)
    assert outcome(trainer)[0] == outcome(other)[0]


def test_number_of_threads_and_chunks_change_no_bit(monkeypatch):
    result = []
    for threads, most in ((1, 4096), (2, 4096), (3, 16), (8, 1)):
        monkeypatch.setattr("minidl.utils.data.CHUNK", most)
        trainer = make_trainer(threads=threads, dropout=0.3)
        trainer.fit(X, Y, 3, batch_size=8, sample_weight=W, mixup=0.4, verbose=0)
        result.append(outcome(trainer))
    assert all(other == result[0] for other in result)


def test_kinds_of_data_and_accumulated_batches_give_the_same_mixtures():
    result = []
    for data, size, micro in ((X, 16, 1), (X.reshape(50, 16), 16, 1), (X.astype("f8"), 16, 1), (X, 8, 2)):
        trainer = make_trainer()
        trainer.fit(data, Y, 2, batch_size=size, mixup=0.4, gradient_accumulation_steps=micro, verbose=0)
        result.append(outcome(trainer))
    assert all(other == result[0] for other in result)


def test_without_mixup_nothing_changes():
    one, other = make_trainer(), make_trainer()
    one.fit(X, Y, 2, batch_size=16, mixup=0, verbose=0)
    other.fit(X, Y, 2, batch_size=16, verbose=0)
    assert outcome(one) == outcome(other)


class Stop:
    def on_step_end(self, trainer, step, loss):
        if step == 5:
            raise KeyboardInterrupt


def test_an_interrupted_fit_is_completed(tmp_path):
    options = {"epochs": 3, "batch_size": 16, "sample_weight": W, "mixup": 0.4, "verbose": 0}
    whole, trainer = make_trainer(), make_trainer()
    whole.fit(X, Y, **options)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(X, Y, callbacks=[Stop()], **options)
    trainer.save_checkpoint(tmp_path / "run.safetensors")
    with pytest.raises(ValueError, match=r"mixup: expected 0.4, as in the fit that was interrupted, got 0.0"):
        Trainer.resume(tmp_path / "run.safetensors").fit(X, Y, **options | {"mixup": 0.0})
    resumed = Trainer.resume(tmp_path / "run.safetensors", num_threads=2)
    resumed.fit(X, Y, **options)
    assert outcome(resumed) == outcome(whole)


def test_metrics_compare_with_the_label_of_the_larger_part():
    seen = []

    def metric(y, scores):
        seen.append(np.array(y))
        return 0.0

    make_trainer(metrics=[metric]).fit(X, Y, 1, batch_size=16, mixup=0.4, verbose=0)
    np.testing.assert_array_equal(seen[-1], Y[epoch_order(50, 5, 0, True)])


def test_a_custom_loss_gets_mixtures_of_numbers():
    def squared(scores, y):
        return ((scores - y) ** 2).mean(axis=1), 2 / 3 * (scores - y)

    trainer, other = make_trainer(squared, metrics=()), make_trainer("mean_squared_error", metrics=())
    trainer.fit(X, REAL, 2, batch_size=16, mixup=0.4, verbose=0)
    other.fit(X, REAL, 2, batch_size=16, mixup=0.4, verbose=0)
    np.testing.assert_allclose(trainer.history["loss"], other.history["loss"], rtol=1e-5)


def test_clipped_gradients_of_examples_are_those_of_mixtures():
    trainer, other = make_trainer(per_example_clip_norm=1e6), make_trainer()
    for one in (trainer, other):
        one.fit(X, Y, 2, batch_size=16, sample_weight=W, mixup=0.4, verbose=0)
    assert outcome(trainer) == outcome(other)


def test_a_step_that_is_not_finite_names_the_examples():
    def broken(scores, y):
        return np.where(np.arange(len(y)) == 3, np.nan, 0.0), np.zeros_like(scores)

    with pytest.raises(FloatingPointError, match=f"example {epoch_order(50, 5, 0, True)[3]} of X"):
        make_trainer(broken, metrics=()).fit(X, REAL, 1, batch_size=16, mixup=0.4, verbose=0)


@pytest.mark.parametrize(
    ("mixup", "error", "message"),
    [
        (-0.1, ValueError, "mixup: expected a number of at least 0"),
        (np.inf, ValueError, "mixup: expected a finite number"),
        (1e7, ValueError, "mixup: expected at most 1e"),
        ("0.2", TypeError, "mixup: expected a number"),
        (True, TypeError, "mixup: expected a number"),
        (None, TypeError, "mixup: expected a number"),
    ],
)
def test_invalid_alpha(mixup, error, message):
    trainer = make_trainer()
    with pytest.raises(error, match=message):
        trainer.fit(X, Y, mixup=mixup, verbose=0)
    assert trainer.step == 0


def test_losses_that_take_no_mixtures():
    with pytest.raises(ValueError, match="mixup: expected a loss without ignore_index"):
        make_trainer(SoftmaxCrossEntropy(ignore_index=2)).fit(X, Y, mixup=0.2, verbose=0)
    for loss in (BinaryCrossEntropy().__call__, lambda scores, y: (scores[:, 0], scores)):
        with pytest.raises(TypeError, match=r"mixup: expected a loss of numbers, got int64 targets"):
            make_trainer(loss, metrics=()).fit(X, Y, mixup=0.2, verbose=0)


class Codes(Layer):
    """A layer for categories, which copies them."""

    takes_categories = True

    def forward(self, x, training):
        return x

    def backward(self, dy):
        return dy


@pytest.mark.parametrize(("kind", "arguments"), [(Embedding, (7, 3)), (OneHot, (7,)), (Codes, ())])
@pytest.mark.parametrize("nested", [False, True])
def test_models_that_take_no_mixtures(nested, kind, arguments):
    """Between two categories there is none: some mixtures would train other categories, others give NaN or zeros."""
    categories = RNG.integers(0, 7, (50, 4))
    layer, word = kind(*arguments), kind.__name__
    layers = [Parallel([Columns(0, 2), layer, Flatten()], [Columns(2, 4)])] if nested else [layer]
    model = Sequential([*layers, Flatten(), Dense(3)])
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1))
    name = f"layer 0.*{word}" if nested else f"layer 0, {word}"
    with pytest.raises(ValueError, match=f"mixup: expected a model without {word}, got {name}.*: mixed categories"):
        trainer.fit(categories, Y, mixup=0.2, verbose=0)
    assert trainer.step == 0 and trainer.interrupted is None
    trainer.fit(categories, Y, verbose=0)
