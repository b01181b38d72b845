"""A custom loss with a kernel, built outside the tree and trained inside the plan."""

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.layers import Dense, ReLU
from minidl.losses import MeanSquaredError, NativeLoss
from minidl.optimizers import SGD
from minidl.training.steps import FusedSteps, SegmentedSteps
from minidl_c.runtime.plan import Plan


@pytest.fixture
def log_cosh(user):
    class LogCosh(NativeLoss):
        """The sum of log(cosh(x - y)); scratch: bytes that the op requests."""

        def __init__(self, scratch=0):
            self.scratch = scratch

        def op(self, shape, dtype):
            return user.logcosh.LogCoshOp(shape, dtype, self.scratch)

    return LogCosh


def formula(scores, y):
    d = scores - y.reshape(scores.shape)
    return np.log(np.cosh(d)).sum(axis=1), np.tanh(d)


def test_it_matches_its_formula(log_cosh, rng):
    for n in (0, 1, 16, 33):
        scores, y = rng.normal(size=(n, 5)), rng.normal(size=(n, 5))
        for result, expected in zip(log_cosh()(scores, y), formula(scores, y), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [5, 37, 300])
def test_trains_inside_the_plan(log_cosh, n, dtype, rng):
    """The same bits with any number of threads, and with scratch memory before the targets."""
    X, y, weights = rng.normal(size=(n, 4)), rng.normal(size=n), rng.uniform(0.5, 2, n)
    result = []
    for threads, loss in ((1, log_cosh()), (2, log_cosh()), (3, log_cosh(1)), (1, log_cosh(1000)), (1, formula)):
        model = Sequential([Dense(8), ReLU(), Dense(1)], (4,), dtype=dtype)
        trainer = Trainer(model, loss, SGD(0.05, momentum=0.9), num_threads=threads)
        assert type(trainer.steps()) is (SegmentedSteps if loss is formula else FusedSteps)
        history = trainer.fit(X, y, 10, batch_size=32, sample_weight=weights, verbose=0)["loss"]
        result.append((history, [p.value.copy() for p in model.params.values()]))
    for history, params in result[1:-1]:
        assert history == result[0][0]
        assert all(np.array_equal(a, b) for a, b in zip(params, result[0][1], strict=True))
    np.testing.assert_allclose(result[-1][0], result[0][0], rtol=1e-4 if dtype == "float32" else 1e-11)
    assert history[-1] < history[0]


def test_a_checkpoint_needs_its_class(log_cosh, tmp_path, rng):
    X, y = rng.normal(size=(20, 4)), rng.normal(size=20)
    trainer = Trainer(Sequential([Dense(1)], (4,)), log_cosh(8), SGD(0.1))
    trainer.train_batch(X, y)
    trainer.save_checkpoint(tmp_path / "run.safetensors")
    with pytest.raises(ValueError, match=r"pass custom_objects=\{'LogCosh': LogCosh\}"):
        Trainer.resume(tmp_path / "run.safetensors")
    other = Trainer.resume(tmp_path / "run.safetensors", custom_objects={"LogCosh": log_cosh})
    assert other.loss.scratch == 8
    assert other.train_batch(X, y) == trainer.train_batch(X, y)


def test_only_losses_have_targets(user):
    with pytest.raises(ValueError, match=r"op 0, LogCoshOp: loss.n_target: expected .* for a loss, got 3"):
        Plan([user.logcosh.LogCoshOp((3,), is_loss=0)], [0])


def test_a_subclass_that_only_overrides_call_is_called():
    class Doubled(MeanSquaredError):
        def __call__(self, scores, y):
            losses, dscores = super().__call__(scores, y)
            return 2 * losses, 2 * dscores

    X, y = np.ones((20, 3)), np.arange(20.0)
    trainer = Trainer(Sequential([Dense(1)], (3,)), Doubled(), SGD(0.1))
    assert type(trainer.steps()) is SegmentedSteps
    once = Trainer(trainer.model, MeanSquaredError(), SGD(0.1)).evaluate(X, y)["loss"]
    assert trainer.evaluate(X, y)["loss"] == 2 * once


def test_a_loss_without_an_op_says_what_is_missing():
    with pytest.raises(NotImplementedError, match="NativeLoss: a native loss must define op"):
        NativeLoss()(np.zeros((3, 1)), np.zeros(3))
