"""per_example_clip_norm: each example's gradient is clipped before the sum."""

import numpy as np
import pytest

from minidl import Layer, Sequential, Trainer
from minidl.layers import BatchNorm2D, Conv2D, Dense, Dropout, Flatten, MaxPool2D, ReLU
from minidl.losses import checked_loss, softmax_cross_entropy
from minidl.optimizers import SGD, Adam

SHAPE, CLASSES = (1, 8, 8), 4
X = np.random.default_rng(0).standard_normal((50, *SHAPE))
Y = np.random.default_rng(1).integers(0, CLASSES, 50)
WEIGHTS = np.random.default_rng(2).uniform(0.2, 3, 50)


class Scaled(Layer):
    def build(self, in_shape):
        self.param("weight", in_shape, lambda rng, shape: 1 + rng.random(shape))
        return in_shape

    def forward(self, x, training):
        self.x = x
        return x * self.params["weight"].value

    def backward(self, dy):
        self.params["weight"].grad = (self.x * dy).sum(axis=0)
        return dy * self.params["weight"].value


def native():
    return [Conv2D(4, 3), ReLU(), MaxPool2D(2), Flatten(), Dropout(0.3), Dense(9), ReLU(), Dense(CLASSES)]


def numpy_layers():
    return [Conv2D(4, 3), ReLU(), Scaled(), Flatten(), Dense(CLASSES)]


def python_loss(scores, y):
    return checked_loss(softmax_cross_entropy, scores, y)


def make_trainer(limit, layers=native, optimizer=None, loss="softmax_cross_entropy", dtype="float64", **options):
    model = Sequential(layers(), SHAPE, seed=1, dtype=dtype)
    optimizer = SGD(0.3, momentum=0.9) if optimizer is None else optimizer
    return Trainer(model, loss, optimizer, seed=2, per_example_clip_norm=limit, **options)


def weights_of(trainer):
    return trainer.model.state_dict()


def assert_same(a, b):
    for name, value in weights_of(a).items():
        assert np.array_equal(value, weights_of(b)[name]), name


@pytest.mark.parametrize("layers", [native, numpy_layers])
@pytest.mark.parametrize("limit", [0.05, 1.0, 3.0])
@pytest.mark.parametrize("sample_weight", [None, WEIGHTS])
def test_a_step_matches_the_formula(layers, limit, sample_weight):
    trainer = make_trainer(limit, layers)
    g = trainer.per_example_gradients(X, Y)
    norms = np.sqrt(sum(np.square(array.reshape(50, -1)).sum(axis=1) for array in g.values()))
    factors = np.minimum(1, limit / norms) * (1 if sample_weight is None else sample_weight)
    assert (norms > limit).any()
    loss = trainer.train_batch(X, Y, sample_weight)
    assert loss == make_trainer(None, layers).train_batch(X, Y, sample_weight)  # which is not clipped
    for name, param in trainer.model.params.items():
        expected = np.tensordot(factors, g[name], 1) / 50
        assert np.allclose(param.grad, expected, 1e-10, 1e-13)


def test_no_example_moves_a_step_by_more_than_the_limit():
    trainer = make_trainer(0.01, optimizer=SGD(1.0))
    before = weights_of(trainer)
    trainer.train_batch(1e3 * X[:1], Y[:1])
    moved = np.sqrt(sum(np.square(value - before[name]).sum() for name, value in weights_of(trainer).items()))
    assert 0 < moved <= 0.01 * (1 + 1e-9)


def test_a_weight_of_two_repeats_the_example():
    layers = lambda: [Conv2D(3, 3), ReLU(), Flatten(), Dense(CLASSES)]  # noqa: E731
    twice, weighted = make_trainer(0.5, layers), make_trainer(0.5, layers)
    weights = 1 + np.arange(50) % 2
    twice.fit(np.repeat(X, weights, axis=0), np.repeat(Y, weights), batch_size=75, verbose=0)
    weighted.fit(X, Y, batch_size=50, sample_weight=weights, verbose=0)
    for name, value in weights_of(weighted).items():
        assert np.allclose(value, weights_of(twice)[name], 1e-9, 1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_limit_that_is_not_reached_changes_no_bit(dtype):
    plain, clipped = make_trainer(None, dtype=dtype), make_trainer(1e9, dtype=dtype)
    for trainer in (plain, clipped):
        trainer.fit(X, Y, epochs=2, batch_size=17, sample_weight=WEIGHTS, verbose=0)
    assert_same(plain, clipped)
    assert plain.history["loss"] == clipped.history["loss"]


@pytest.mark.parametrize("optimizer", [SGD(0.1, momentum=0.9), Adam(0.01)])
def test_threads_and_a_python_loss_change_no_bit(optimizer):
    fits = [make_trainer(0.3, optimizer=optimizer, num_threads=threads, metrics=["accuracy"]) for threads in (1, 3)]
    fits.append(make_trainer(0.3, optimizer=optimizer, loss=python_loss, metrics=["accuracy"]))
    for trainer in fits:
        trainer.fit(X, Y, epochs=2, batch_size=20, verbose=0)
    for other in fits[1:]:
        assert_same(fits[0], other)
        assert other.history["accuracy"] == fits[0].history["accuracy"]


def test_other_limits_apply_afterwards():
    both = make_trainer(0.5, clip_norm=0.01)
    both.train_batch(X, Y)
    norm = np.sqrt(sum(np.square(param.grad).sum() for param in both.model.params.values()))
    assert np.isclose(norm, 0.01, 1e-3)


def test_accumulated_batches_equal_one():
    large_batches, parts = make_trainer(0.3), make_trainer(0.3)
    large_batches.fit(X, Y, batch_size=48, verbose=0)
    parts.fit(X, Y, batch_size=16, gradient_accumulation_steps=3, verbose=0)
    assert_same(large_batches, parts)


def test_it_may_change_between_fits():
    changed, fresh = make_trainer(None, optimizer=SGD(0.1)), make_trainer(0.2, optimizer=SGD(0.1))
    changed.fit(X, Y, verbose=0)
    fresh.model.load_state_dict(weights_of(changed))
    fresh.step, fresh.epoch = changed.step, changed.epoch
    changed.per_example_clip_norm = 0.2
    for trainer in (changed, fresh):
        trainer.fit(X, Y, verbose=0)
    assert_same(changed, fresh)
    changed.per_example_clip_norm = None
    assert changed.per_example_clip_norm is None


class Noise(Layer):
    def forward(self, x, training):
        return x + self.rng.standard_normal(x.shape) if training else x

    def backward(self, dy):
        return dy.copy()


@pytest.mark.parametrize(("n", "accumulate"), [(64, 1), (300, 1), (16, 4)])
def test_a_numpy_layer_draws_the_same_for_norm_and_step(n, accumulate):
    """Equal rows, none longer than the limit: then their mean is not longer either."""
    trainer = make_trainer(0.1, lambda: [Noise(), Flatten(), Dense(CLASSES)], SGD(1.0))
    x, y = np.repeat(X[:1], n * accumulate, axis=0), np.repeat(Y[:1], n * accumulate)
    before = weights_of(trainer)
    trainer.fit(x, y, batch_size=n, gradient_accumulation_steps=accumulate, verbose=0)
    moved = np.sqrt(sum(np.square(value - before[name]).sum() for name, value in weights_of(trainer).items()))
    assert 0 < moved <= 0.1 * (1 + 1e-9)


def test_a_numpy_layer_that_draws_and_learns_is_refused():
    class LearningNoise(Scaled):
        def forward(self, x, training):
            return super().forward(x + self.rng.standard_normal(x.shape) if training else x, training)

    trainer = make_trainer(0.1, lambda: [LearningNoise(), Flatten(), Dense(CLASSES)])
    before = weights_of(trainer)
    with pytest.raises(ValueError, match=r"per_example_clip_norm: expected no random numbers .* LearningNoise draws"):
        trainer.fit(X, Y, verbose=0)
    assert trainer.step == 0 and all(np.array_equal(v, before[name]) for name, v in weights_of(trainer).items())


def test_a_changed_seed_applies_to_the_norms():
    changed, fresh = make_trainer(0.2, optimizer=SGD(0.3)), make_trainer(0.2, optimizer=SGD(0.3))
    changed.train_batch(X, Y)
    changed.model.load_state_dict(weights_of(fresh))
    changed.step, changed.seed, fresh.seed = 0, 9, 9
    for trainer in (changed, fresh):
        trainer.train_batch(X, Y)
    assert_same(changed, fresh)


def test_frozen_layers_do_not_count_in_the_norm():
    trainer = make_trainer(0.1)
    trainer.model.layers[0].trainable = False
    g = trainer.per_example_gradients(X, Y)
    norms = np.sqrt(sum(np.square(array.reshape(50, -1)).sum(axis=1) for array in g.values()))
    trainer.train_batch(X, Y)
    expected = np.tensordot(np.minimum(1, 0.1 / norms), g["7.weight"], 1) / 50
    assert np.allclose(trainer.model.params["7.weight"].grad, expected, 1e-10, 1e-13)


def test_a_checkpoint_keeps_it_and_a_resumed_fit_equals_the_whole_one(tmp_path):
    class Stopper:
        def on_epoch_end(self, trainer, epoch, logs):
            trainer.save_checkpoint(tmp_path / "half")
            raise KeyboardInterrupt

    uninterrupted, broken = make_trainer(0.2), make_trainer(0.2)
    uninterrupted.fit(X, Y, epochs=3, batch_size=20, verbose=0)
    with pytest.raises(KeyboardInterrupt):
        broken.fit(X, Y, epochs=3, batch_size=20, verbose=0, callbacks=[Stopper()])
    resumed = Trainer.resume(tmp_path / "half")
    assert resumed.per_example_clip_norm == 0.2
    resumed.fit(X, Y, epochs=3, batch_size=20, verbose=0)
    assert_same(uninterrupted, resumed)


def test_batch_norm_is_refused_before_the_first_step():
    def layers():
        return [Conv2D(3, 3), BatchNorm2D(), ReLU(), Flatten(), Dense(CLASSES)]

    trainer = make_trainer(0.1, layers)
    before = weights_of(trainer)
    for call in (lambda: trainer.fit(X, Y, verbose=0), lambda: trainer.train_batch(X, Y)):
        with pytest.raises(ValueError, match=r"layer 1, BatchNorm2D: expected layers that see each example alone"):
            call()
    assert all(np.array_equal(value, before[name]) for name, value in weights_of(trainer).items())
    trainer.model.layers[1].trainable = False
    trainer.fit(X, Y, verbose=0)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_non_finite_gradient_stops_the_fit_before_the_update():
    trainer = make_trainer(0.1)
    trainer.train_batch(X, Y)
    before = weights_of(trainer)
    bad = X.copy()
    bad[7] *= 1e307
    trainer.model.params["0.weight"].value *= 1e5
    changed = weights_of(trainer)
    with pytest.raises(FloatingPointError, match=r"step 1: .* example 7"):
        trainer.train_batch(bad, Y)
    assert trainer.step == 1 and before.keys() == changed.keys()
    assert all(np.array_equal(value, changed[name]) for name, value in weights_of(trainer).items())


@pytest.mark.parametrize("limit", [0, -1, np.nan, np.inf, "1", True, [1]])
def test_invalid_limits_are_refused(limit):
    with pytest.raises((TypeError, ValueError), match="per_example_clip_norm: expected"):
        make_trainer(limit)
    trainer = make_trainer(0.5)
    with pytest.raises((TypeError, ValueError), match="per_example_clip_norm: expected"):
        trainer.per_example_clip_norm = limit
    assert trainer.per_example_clip_norm == 0.5
