"""layer.trainable and layer.lr_factor: what a step leaves alone, and how fast it changes the rest."""

import numpy as np
import pytest

from minidl import Layer, Sequential, Trainer
from minidl.initializers import ones, zeros
from minidl.layers import BatchNorm2D, Conv2D, Dense, Dropout, Flatten, ReLU, Residual
from minidl.losses import softmax_cross_entropy
from minidl.optimizers import SGD, Adam

RNG = np.random.default_rng(11)
SHAPE = (2, 5, 5)
X, Y = RNG.standard_normal((50, *SHAPE)).astype("f4"), RNG.integers(0, 3, 50)


class Scale(Layer):
    """In NumPy: a parameter, and a buffer that each training forward changes."""

    def build(self, in_shape):
        self.gain, self.steps = self.param("gain", (1,), ones), self.buffer("steps", (1,), zeros)
        return in_shape

    def forward(self, x, training):
        if training:
            self.x = x
            self.steps[...] = self.steps + 1
        return x * self.gain.value

    def backward(self, dy):
        self.gain.grad = [(dy * self.x).sum()]
        return dy * self.gain.value


class PlainSGD:
    """A user's optimizer in Python, that notes which parameters it was given."""

    def __init__(self, lr):
        self.lr = lr

    def step(self, params, lr):
        self.given = list(params)
        for param in params.values():
            param.value = param.value - lr * param.grad


def python_loss(scores, y):
    return softmax_cross_entropy(scores, y)


def net(extra=()):
    body = [Conv2D(4, 3, padding=1), BatchNorm2D(), ReLU()]
    return Sequential([Conv2D(4, 3), BatchNorm2D(), ReLU(), *extra, Residual(*body), Flatten(), Dense(3)], SHAPE)


def fitted(model, loss="softmax_cross_entropy", optimizer=None, **options):
    trainer = Trainer(model, loss, optimizer or SGD(0.1, momentum=0.9, weight_decay=0.01))
    trainer.fit(X, Y, epochs=2, batch_size=20, verbose=0, **options)
    return trainer


def changed(model, before):
    return {name for name, value in model.state_dict().items() if not np.array_equal(value, before[name])}


KINDS = {"fused": "softmax_cross_entropy", "staged": python_loss}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("frozen", [(), (0,), (1,), (0, 1, 3), (5,), (3, 5)])
def test_a_step_leaves_frozen_layers_alone(kind, frozen):
    model = net()
    for i in frozen:
        model.layers[i].trainable = False
    before = model.state_dict()
    fitted(model, KINDS[kind])
    assert changed(model, before) == {name for name in before if int(name[0]) not in frozen}


@pytest.mark.parametrize("optimizer", [SGD(0.1), Adam(0.01), PlainSGD(0.1)])
def test_frozen_layers_in_numpy(optimizer):
    model = net([Scale()])
    model.layers[3].trainable = model.layers[0].trainable = False
    before = model.state_dict()
    fitted(model, optimizer=optimizer)
    assert changed(model, before) == {name for name in before if name[0] not in "03"}
    if isinstance(optimizer, PlainSGD):
        assert optimizer.given == [name for name in model.params if name[0] not in "03"]


def test_frozen_batch_norm_computes_as_in_inference():
    model = Sequential([BatchNorm2D()], SHAPE)
    fitted(Sequential([Flatten(), Dense(3)], SHAPE))
    model.layers[0].buffers["running_mean"][...] = [1, -1]
    model.layers[0].buffers["running_var"][...] = [4, 9]
    model.layers[0].trainable = False
    assert np.array_equal(model.forward(X, training=True), model.predict(X))
    dx = model.backward(X)
    np.testing.assert_allclose(dx, X / np.sqrt(np.array([4, 9], "f4") + 1e-5).reshape(2, 1, 1), rtol=1e-6)
    assert not model.params["0.weight"].grad.any()
    model.layers[0].trainable = True
    assert not np.array_equal(model.forward(X, training=True), model.predict(X))


def test_what_has_nothing_to_freeze_goes_on():
    model = Sequential([Residual(Dropout(0.5)), Flatten(), Dense(3)], SHAPE)
    model.layers[0].trainable = False
    assert not np.array_equal(model.forward(X, training=True), model.predict(X))


def test_freezing_and_thawing_between_steps():
    """What the optimizer remembers of the others goes on; a thawed layer goes on where it stood."""
    model, other = net(), net()
    trainer, straight = (Trainer(m, "softmax_cross_entropy", SGD(0.05, momentum=0.9)) for m in (model, other))
    for t in (trainer, straight):
        t.train_batch(X[:20], Y[:20])
    model.layers[0].trainable = False
    kept = model.params["0.weight"].value.copy()
    trainer.train_batch(X[20:40], Y[20:40])
    straight.train_batch(X[20:40], Y[20:40])
    assert np.array_equal(model.params["0.weight"].value, kept)
    assert np.array_equal(model.params["5.weight"].value, other.params["5.weight"].value)  # velocity and all
    model.layers[0].trainable = True
    trainer.train_batch(X[20:40], Y[20:40])
    assert not np.array_equal(model.params["0.weight"].value, kept)


@pytest.mark.parametrize("kind", KINDS)
def test_a_container_freezes_all_that_is_in_it(kind):
    model = net()
    model.layers[3].trainable = False
    assert model.layers[3].layers[0].trainable  # its own setting stays
    before = model.state_dict()
    fitted(model, KINDS[kind])
    assert not {name for name in changed(model, before) if name.startswith("3.")}


@pytest.mark.parametrize("kind", KINDS)
def test_factors_of_the_rate(kind):
    """Without momentum a step is -lr * factor * grad; factors of a container and of what is in it are multiplied."""
    model = net()
    model.layers[0].lr_factor, model.layers[3].lr_factor, model.layers[3].layers[0].lr_factor = 0.5, 3, 0.25
    model.layers[5].lr_factor = 0
    before = {name: param.value.copy() for name, param in model.params.items()}
    Trainer(model, KINDS[kind], SGD(0.1)).train_batch(X, Y)
    factors = {"0": 0.5, "1": 1, "5": 0}
    for name, param in model.params.items():
        factor = factors.get(name[0], 0.75 if name.startswith("3.body.0") else 3)
        rate = np.float32(0.1 * factor)
        assert np.array_equal(param.value, before[name] - rate * param.grad), name


def test_a_users_optimizer_knows_one_rate():
    model = net()
    model.layers[0].lr_factor = 0.5
    with pytest.raises(ValueError, match=r"lr_factor: expected an optimizer of minidl.*got PlainSGD"):
        fitted(model, optimizer=PlainSGD(0.1))


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("trainable", 0, TypeError),
        ("trainable", None, TypeError),
        ("lr_factor", -1, ValueError),
        ("lr_factor", float("nan"), ValueError),
        ("lr_factor", "x", TypeError),
    ],
)
def test_settings_that_make_no_sense(name, value, error):
    layer = Dense(3)
    with pytest.raises(error, match=f"^{name}: "):
        setattr(layer, name, value)
    assert layer.settings == {}


def test_copies_files_and_checkpoints_keep_the_settings(tmp_path):
    model = net([Scale()])
    model.layers[1].trainable, model.layers[4].layers[0].lr_factor = False, 0.5
    trainer = fitted(model)
    model.save(tmp_path / "m.safetensors")
    trainer.save_checkpoint(tmp_path / "c.safetensors")
    custom = {"Scale": Scale}
    copies = [
        *(Sequential.load(tmp_path / "m.safetensors", custom=custom), model[:]),
        Trainer.resume(tmp_path / "c.safetensors", custom=custom).model,
    ]
    for other in copies:
        assert not other.layers[1].trainable and other.layers[0].trainable
        assert other.layers[4].layers[0].lr_factor == 0.5 and other.layers[4].lr_factor == 1


def test_all_layers_frozen_is_refused():
    model = net()
    for layer in model.layers:
        layer.trainable = False
    with pytest.raises(ValueError, match="model: expected a layer that is trainable, all are frozen"):
        fitted(model)
