"""Several batches per optimizer step, and gradient clipping, in fit."""

import numpy as np
import pytest

from minidl import Layer, Sequential, Trainer
from minidl.layers import BatchNorm1D, BatchNorm2D, Conv2D, Dense, Dropout, Flatten, MaxPool2D, ReLU
from minidl.losses import softmax_cross_entropy
from minidl.optimizers import SGD

RNG = np.random.default_rng(7)
SHAPE = (2, 8, 8)
X, Y = RNG.standard_normal((110, *SHAPE)).astype("f4"), RNG.integers(0, 3, 110)
WEIGHTS = RNG.uniform(0.5, 2, 110)


class SizeRecorder(Layer):
    """A NumPy identity layer that records the batch sizes."""

    def __init__(self):
        self.sizes = []

    def forward(self, x, training):
        if training:
            self.sizes.append(len(x))
        return x.copy()

    def backward(self, dy):
        return dy.copy()


class Noise(Layer):
    def forward(self, x, training):
        return x + self.rng.standard_normal(x.shape).astype(x.dtype) if training else x

    def backward(self, dy):
        return dy


def python_loss(scores, y):
    return softmax_cross_entropy(scores, y)


def make_net(extra=(), dtype="float32"):
    layers = [Conv2D(5, 3), *extra, ReLU(), MaxPool2D(2), Dropout(0.2), Flatten(), Dense(20), ReLU(), Dense(3)]
    return Sequential(layers, SHAPE, dtype=dtype)


def fitted(model, loss="softmax_cross_entropy", clip=None, X=X, **options):
    trainer = Trainer(model, loss, SGD(0.05, momentum=0.9), **clip or {})
    trainer.fit(X.astype(model.dtype), Y[: len(X)], epochs=2, verbose=0, **options)
    return trainer


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("loss", ["softmax_cross_entropy", python_loss])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_accumulation_equals_the_large_batch(loss, weights, dtype):
    """Bit for bit, with a partial last step, a partial last batch, dropout and weights."""
    options = {"sample_weight": weights, "clip": {"clip_norm": 0.5, "clip_value": 0.1}}
    large, small = make_net(dtype=dtype), make_net(dtype=dtype)
    large_batch = fitted(large, loss, batch_size=48, **options)
    parts = fitted(small, loss, batch_size=16, gradient_accumulation_steps=3, **options)
    assert large_batch.step == parts.step == 6
    assert same(large, small)
    assert large_batch.history["loss"] == parts.history["loss"]


def test_numpy_layers_see_the_batches():
    layer = SizeRecorder()
    model, large = make_net([layer], "float64"), make_net([SizeRecorder()], "float64")
    trainer = fitted(model, batch_size=16, gradient_accumulation_steps=3)
    assert layer.sizes == [16] * 6 + [14] + [16] * 6 + [14]
    assert trainer.step == 6
    fitted(large, batch_size=48)
    for name, value in large.state_dict().items():
        np.testing.assert_allclose(model.state_dict()[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


def test_random_numbers_of_numpy_layers_differ_between_batches():
    seen = []

    class RecordedNoise(Noise):
        def forward(self, x, training):
            seen.append(self.rng.standard_normal(3).tolist())
            return x

    fitted(make_net([RecordedNoise()]), batch_size=16, gradient_accumulation_steps=3)
    assert len({tuple(draw) for draw in seen}) == len(seen) == 14


@pytest.mark.oracle
@pytest.mark.parametrize("extra", [False, True])
def test_batch_statistics_are_those_of_each_batch(extra):
    """As in PyTorch when the gradients of a step's batches are summed."""
    torch = pytest.importorskip("torch")
    from torch import nn
    from torch.nn.functional import cross_entropy

    more = [SizeRecorder()] if extra else []
    model = Sequential([Conv2D(6, 3), BatchNorm2D(), ReLU(), *more, Flatten(), Dense(3)], SHAPE, dtype="float64")
    parts = [
        nn.Conv2d(2, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        *[nn.Identity() for _ in more],
        nn.Flatten(),
        nn.Linear(216, 3),
    ]
    other = nn.Sequential(*parts).double()
    other.load_state_dict({name: torch.tensor(value) for name, value in model.state_dict().items()}, strict=False)
    optimizer, x, y, w = (
        torch.optim.SGD(other.parameters(), 0.05, 0.9),
        *map(torch.tensor, (X.astype("f8"), Y, WEIGHTS)),
    )
    for _ in range(2):
        for start in range(0, 110, 48):
            end, total = min(start + 48, 110), len(WEIGHTS[start : start + 48]) * WEIGHTS.mean()
            optimizer.zero_grad()
            for a in range(start, end, 16):
                chunk = slice(a, min(a + 16, end))
                ((cross_entropy(other(x[chunk]), y[chunk], reduction="none") * w[chunk]).sum() / total).backward()
            optimizer.step()
    fitted(model, batch_size=16, gradient_accumulation_steps=3, shuffle=False, sample_weight=WEIGHTS)
    result = other.state_dict()
    for name, value in model.state_dict().items():
        np.testing.assert_allclose(value, result[name].numpy(), rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("extra", [[], [BatchNorm2D]])
def test_number_of_threads_changes_no_bit(extra):
    nets = []
    for threads in (1, 2, 3):
        model = make_net([cls() for cls in extra])
        trainer = Trainer(model, "softmax_cross_entropy", SGD(0.05), num_threads=threads, clip_norm=0.3)
        trainer.fit(X, Y, batch_size=20, gradient_accumulation_steps=2, verbose=0)
        nets.append(model)
    assert same(nets[0], nets[1]) and same(nets[0], nets[2])


@pytest.mark.parametrize("extra", [[], [BatchNorm2D]])
@pytest.mark.parametrize("at", [0, 2, 3])
def test_resuming_gives_the_same_bits(extra, at, tmp_path):
    options = {"epochs": 2, "batch_size": 16, "gradient_accumulation_steps": 3, "verbose": 0}

    class Stopper:
        def on_step_end(self, trainer, step, loss):
            if step == at:
                raise KeyboardInterrupt

    uninterrupted, broken = (
        Trainer(make_net([cls() for cls in extra]), "softmax_cross_entropy", SGD(0.05), clip_norm=0.3, clip_value=0.1)
        for _ in range(2)
    )
    uninterrupted.fit(X, Y, **options)
    with pytest.raises(KeyboardInterrupt):
        broken.fit(X, Y, callbacks=[Stopper()], **options)
    broken.save_checkpoint(tmp_path / "c.safetensors")
    again = Trainer.resume(tmp_path / "c.safetensors")
    assert (again.clip_norm, again.clip_value) == (0.3, 0.1)
    with pytest.raises(ValueError, match="gradient_accumulation_steps: expected 3"):
        again.fit(X, Y, **{**options, "gradient_accumulation_steps": 2})
    again.fit(X, Y, **options)
    assert same(uninterrupted.model, again.model)


def test_clipping_limits_the_gradient():
    """The gradient after a step is the clipped one."""
    model = make_net()
    fitted(model, clip={"clip_norm": 0.01}, batch_size=110)
    grads = model.network.parameters.grads.astype("f8")
    np.testing.assert_allclose(np.sqrt((grads * grads).sum()), 0.01, rtol=1e-4)
    trainer = fitted(model, clip={"clip_value": 1e-4}, batch_size=110)
    assert np.abs(model.network.parameters.grads).max() == np.float32(1e-4)
    trainer.clip_value = None
    trainer.train_batch(X, Y)
    assert np.abs(model.network.parameters.grads).max() > 1e-3


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [("clip_norm", 0, ValueError), ("clip_value", -1.0, ValueError), ("clip_norm", "1", TypeError)],
)
def test_invalid_limits_are_refused(name, value, error):
    with pytest.raises(error, match=rf"^{name}: "):
        Trainer(make_net(), "softmax_cross_entropy", SGD(0.1), **{name: value})


@pytest.mark.parametrize("value", [0, 1.5, None])
def test_accumulation_steps_must_be_a_positive_integer(value):
    with pytest.raises((TypeError, ValueError), match=r"^gradient_accumulation_steps: "):
        fitted(make_net(), gradient_accumulation_steps=value)


def test_a_batch_too_small_for_batch_norm_is_refused():
    model = Sequential([Flatten(), Dense(4), BatchNorm1D(), ReLU(), Dense(3)], SHAPE)
    with pytest.raises(ValueError, match="layer 2, BatchNorm1D: expected at least 2 examples"):
        fitted(model, X=X[:49], batch_size=16, gradient_accumulation_steps=3)
