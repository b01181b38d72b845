"""layer.trainable and layer.lr_mult: which layers a step updates, and how fast."""

import copy

import numpy as np
import pytest

from minidl import Layer, Sequential, Trainer
from minidl.initializers import ones, zeros
from minidl.layers import BatchNorm1D, BatchNorm2D, Block, Conv2D, Dense, Dropout, Flatten, ReLU, Residual
from minidl.losses import softmax_cross_entropy
from minidl.optimizers import SGD, Adagrad, Adam, AdamW, RMSprop
from minidl.testing import check_layer

RNG = np.random.default_rng(11)
SHAPE = (2, 5, 5)
X, Y = RNG.standard_normal((50, *SHAPE)).astype("f4"), RNG.integers(0, 3, 50)


class Scale(Layer):
    """A NumPy layer with a parameter and a buffer that each training forward changes."""

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
    """A user's Python optimizer that records the parameters it was given."""

    def __init__(self, lr):
        self.lr = lr

    def step(self, params, lr):
        self.given = list(params)
        for param in params.values():
            param.value = param.value - lr * param.grad


def python_loss(scores, y):
    return softmax_cross_entropy(scores, y)


def make_net(extra=()):
    body = [Conv2D(4, 3, padding=1), BatchNorm2D(), ReLU()]
    return Sequential([Conv2D(4, 3), BatchNorm2D(), ReLU(), *extra, Residual(*body), Flatten(), Dense(3)], SHAPE)


def fitted(model, loss="softmax_cross_entropy", optimizer=None, **options):
    trainer = Trainer(model, loss, optimizer or SGD(0.1, momentum=0.9, weight_decay=0.01))
    trainer.fit(X, Y, epochs=2, batch_size=20, verbose=0, **options)
    return trainer


def changed(model, before):
    return {name for name, value in model.state_dict().items() if not np.array_equal(value, before[name])}


KINDS = {"fused": "softmax_cross_entropy", "segmented": python_loss}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("frozen", [(), (0,), (1,), (0, 1, 3), (5,), (3, 5)])
def test_a_step_leaves_frozen_layers_alone(kind, frozen):
    model = make_net()
    for i in frozen:
        model.layers[i].trainable = False
    before = model.state_dict()
    fitted(model, KINDS[kind])
    assert changed(model, before) == {name for name in before if int(name[0]) not in frozen}


@pytest.mark.parametrize("optimizer", [SGD(0.1), Adam(0.01), PlainSGD(0.1)])
def test_frozen_numpy_layers(optimizer):
    model = make_net([Scale()])
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


def test_layers_without_parameters_can_be_frozen():
    model = Sequential([Residual(Dropout(0.5)), Flatten(), Dense(3)], SHAPE)
    model.layers[0].trainable = False
    assert not np.array_equal(model.forward(X, training=True), model.predict(X))


def test_freezing_and_thawing_between_steps():
    """The optimizer's state of the other layers is kept up; a thawed layer continues with its old state."""
    model, other = make_net(), make_net()
    trainer, straight = (Trainer(m, "softmax_cross_entropy", SGD(0.05, momentum=0.9)) for m in (model, other))
    for t in (trainer, straight):
        t.train_batch(X[:20], Y[:20])
    model.layers[0].trainable = False
    kept = model.params["0.weight"].value.copy()
    trainer.train_batch(X[20:40], Y[20:40])
    straight.train_batch(X[20:40], Y[20:40])
    assert np.array_equal(model.params["0.weight"].value, kept)
    assert np.array_equal(model.params["5.weight"].value, other.params["5.weight"].value)  # including its velocity
    model.layers[0].trainable = True
    trainer.train_batch(X[20:40], Y[20:40])
    assert not np.array_equal(model.params["0.weight"].value, kept)


@pytest.mark.parametrize("kind", KINDS)
def test_freezing_a_container_freezes_its_layers(kind):
    model = make_net()
    model.layers[3].trainable = False
    assert not any(layer.trainable for layer in model.layers[3].layers)
    before = model.state_dict()
    fitted(model, KINDS[kind])
    assert not {name for name in changed(model, before) if name.startswith("3.")}


@pytest.mark.parametrize("kind", KINDS)
def test_learning_rate_multipliers(kind):
    """Without momentum a step is -lr * factor * grad; the factors of a container and of its layers multiply."""
    model = make_net()
    model.layers[0].lr_mult, model.layers[3].lr_mult, model.layers[3].layers[0].lr_mult = 0.5, 3, 0.25
    model.layers[5].lr_mult = 0
    before = {name: param.value.copy() for name, param in model.params.items()}
    Trainer(model, KINDS[kind], SGD(0.1)).train_batch(X, Y)
    factors = {"0": 0.5, "1": 1, "5": 0}
    for name, param in model.params.items():
        factor = factors.get(name[0], 0.75 if name.startswith("3.body.0") else 3)
        rate = np.float32(0.1 * factor)
        assert np.array_equal(param.value, before[name] - rate * param.grad), name


def test_lr_mult_needs_a_built_in_optimizer():
    model = make_net()
    model.layers[0].lr_mult = 0.5
    with pytest.raises(ValueError, match=r"lr_mult: expected an optimizer of minidl.*got PlainSGD"):
        fitted(model, optimizer=PlainSGD(0.1))


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("trainable", 0, TypeError),
        ("trainable", None, TypeError),
        ("lr_mult", -1, ValueError),
        ("lr_mult", float("nan"), ValueError),
        ("lr_mult", "x", TypeError),
    ],
)
def test_invalid_settings_are_refused(name, value, error):
    for layer in (Dense(3), Block(Dense(3)), Residual()):
        with pytest.raises(error, match=f"^{name}: "):
            setattr(layer, name, value)
        assert layer.settings == {}


def test_copies_files_and_checkpoints_keep_the_settings(tmp_path):
    model = make_net([Scale()])
    model.layers[1].trainable, model.layers[4].layers[0].lr_mult = False, 0.5
    trainer = fitted(model)
    model.save(tmp_path / "m.safetensors")
    trainer.save_checkpoint(tmp_path / "c.safetensors")
    custom = {"Scale": Scale}
    copies = [
        *(Sequential.load(tmp_path / "m.safetensors", custom_objects=custom), model[:]),
        Trainer.resume(tmp_path / "c.safetensors", custom_objects=custom).model,
    ]
    for other in copies:
        assert not other.layers[1].trainable and other.layers[0].trainable
        assert other.layers[4].layers[0].lr_mult == 0.5 and other.layers[4].lr_mult == 1


def test_freezing_all_layers_is_refused():
    model = make_net()
    for layer in model.layers:
        layer.trainable = False
    with pytest.raises(ValueError, match="model: expected a layer that is trainable, all are frozen"):
        fitted(model)


class Bottleneck(Residual):
    """A user's container that makes its layers itself."""

    def __init__(self, channels):
        self.channels = channels
        super().__init__(Conv2D(channels, 1), ReLU())


def test_settings_inside_a_custom_container_are_kept(tmp_path):
    model = Sequential([Bottleneck(2), Flatten(), Dense(3)], SHAPE)
    model.layers[0].layers[0].trainable, model.layers[0].lr_mult = False, 0.5
    trainer = fitted(model)
    model.save(tmp_path / "m.safetensors")
    trainer.save_checkpoint(tmp_path / "c.safetensors")
    for other in (
        *(
            copy.deepcopy(model),
            model[:],
            Sequential.load(tmp_path / "m.safetensors", custom_objects={"Bottleneck": Bottleneck}),
        ),
        Trainer.resume(tmp_path / "c.safetensors", custom_objects={"Bottleneck": Bottleneck}).model,
    ):
        assert not other.layers[0].layers[0].trainable
        assert other.layers[0].lr_mult == 0.5 and other.layers[0].layers[1].trainable


@pytest.mark.parametrize(
    "settings", [[], {"weights": {}}, {"layers": []}, {"layers": {"body.0": {"trainable": 1}}}, {"layers": {"x": {}}}]
)
def test_invalid_settings_in_a_file_are_refused(settings):
    layer = {"minidl": ["Residual", {"layers": {"tuple": [{"minidl": ["ReLU", {}]}]}, "shortcut": None}, settings]}
    config = {"layers": [layer], "input_shape": [2, 5, 5], "seed": 0, "dtype": "float32"}
    with pytest.raises((TypeError, ValueError), match=r"setting|trainable|class and its arguments"):
        Sequential.from_config(config, {}, {})


class Thaw:
    """Unfreezes layer 0 at an epoch."""

    def __init__(self, epoch, stop=None):
        self.epoch, self.stop = epoch, stop

    def on_epoch_begin(self, trainer, epoch):
        if epoch == self.epoch:
            trainer.model.layers[0].trainable = True

    def on_step_end(self, trainer, step, loss):
        if step == self.stop:
            raise KeyboardInterrupt


@pytest.mark.parametrize("optimizer", [SGD(0.05, momentum=0.9), Adam(0.01)])
@pytest.mark.parametrize("stop", [1, 4, 5, 8])
def test_resuming_restores_which_layers_were_thawed(optimizer, stop, tmp_path):
    """With the program's own model, which starts frozen each time, as in docs/how-to/saving.md."""

    def make_trainer():
        model = make_net()
        model.layers[0].trainable = False
        return model

    fit = {"epochs": 4, "batch_size": 20, "verbose": 0}
    uninterrupted = Trainer(make_trainer(), "softmax_cross_entropy", copy.deepcopy(optimizer))
    uninterrupted.fit(X, Y, callbacks=[Thaw(1)], **fit)
    broken = Trainer(make_trainer(), "softmax_cross_entropy", copy.deepcopy(optimizer))
    with pytest.raises(KeyboardInterrupt):
        broken.fit(X, Y, callbacks=[Thaw(1, stop)], **fit)
    broken.save_checkpoint(tmp_path / "c.safetensors")
    for model in (make_trainer(), None):
        again = Trainer.resume(tmp_path / "c.safetensors", model=model)
        assert again.model.layers[0].trainable == (stop > 2)
        again.fit(X, Y, callbacks=[Thaw(1)], **fit)
        assert not changed(again.model, uninterrupted.model.state_dict())


def test_resuming_with_a_different_model_names_the_layer(tmp_path):
    trainer = fitted(make_net())
    trainer.save_checkpoint(tmp_path / "c.safetensors")
    other = Sequential([Conv2D(4, 3), BatchNorm2D(eps=1e-3)], SHAPE)
    with pytest.raises(ValueError, match="model: expected the checkpoint's 6 layers, got 2"):
        Trainer.resume(tmp_path / "c.safetensors", model=other)
    layers = [Conv2D(4, 3), BatchNorm2D(eps=1e-3), ReLU(), Residual(ReLU()), Flatten(), Dense(3)]
    with pytest.raises(ValueError, match=r"checkpoint, BatchNorm2D\(eps=1e-05\), got BatchNorm2D\(eps=0.001\)"):
        Trainer.resume(tmp_path / "c.safetensors", model=Sequential(layers, SHAPE))


@pytest.mark.oracle
@pytest.mark.parametrize("kind", ["fused", "segmented", "resumed"])
@pytest.mark.parametrize(
    ("optimizer", "name", "arguments"),
    [
        (Adam(0.001), "Adam", {"lr": 0.001}),
        (AdamW(0.001, amsgrad=True), "AdamW", {"lr": 0.001, "amsgrad": True}),
        (Adagrad(0.01, lr_decay=0.1), "Adagrad", {"lr": 0.01, "lr_decay": 0.1}),
        (RMSprop(0.001, momentum=0.9), "RMSprop", {"lr": 0.001, "momentum": 0.9}),
        (SGD(0.05, momentum=0.9), "SGD", {"lr": 0.05, "momentum": 0.9}),
    ],
)
def test_steps_are_counted_per_layer(optimizer, name, arguments, kind, tmp_path):
    """Trains, freezes and thaws at different steps; compares with PyTorch parameters whose requires_grad is toggled."""
    torch = pytest.importorskip("torch")
    from torch import nn

    model = Sequential([Dense(6), ReLU(), Dense(5), ReLU(), Dense(3)], (4,), dtype="float64")
    twin = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    twin.load_state_dict({key: torch.tensor(value) for key, value in model.state_dict().items()})
    theirs = getattr(torch.optim, name)(twin.parameters(), **arguments)
    trainer = Trainer(model, KINDS["segmented" if kind == "segmented" else "fused"], copy.deepcopy(optimizer))
    rng = np.random.default_rng(0)
    for step in range(60):
        frozen = {0: step < 20 or 40 <= step < 50, 2: 10 <= step < 30}
        for i, is_frozen in frozen.items():
            trainer.model.layers[i].trainable = not is_frozen
            twin[i].requires_grad_(not is_frozen)
        x, y = rng.normal(size=(8, 4)), rng.integers(0, 3, 8)
        theirs.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(twin(torch.tensor(x)), torch.tensor(y)).backward()
        theirs.step()
        trainer.train_batch(x, y)
        if kind == "resumed" and step in (5, 25, 45):
            trainer.save_checkpoint(tmp_path / "c.safetensors")
            trainer = Trainer.resume(tmp_path / "c.safetensors")
    for key, value in twin.state_dict().items():
        np.testing.assert_allclose(trainer.model.state_dict()[key], value.numpy(), rtol=1e-9, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("thawed", [False, True], ids=["still frozen", "thawed"])
@pytest.mark.parametrize("make", [lambda: Adam(0.01), lambda: AdamW(0.01), lambda: Adagrad(0.1, lr_decay=0.1)])
def test_a_new_optimizer_counts_no_earlier_steps(make, thawed, kind):
    """Steps while a layer was frozen belong to the first optimizer; the second one counts from its own first step."""
    model = make_net()
    trainer = Trainer(model, KINDS[kind], make())
    trainer.train_batch(X[:20], Y[:20])
    model.layers[0].trainable = False
    for _ in range(3):
        trainer.train_batch(X[:20], Y[:20])
    model.layers[0].trainable = thawed
    trainer.train_batch(X[:20], Y[:20])
    twin = copy.deepcopy(model)
    fresh = Trainer(twin, KINDS[kind], make())
    trainer.optimizer = make()
    assert trainer.skipped_steps == [0] * len(model.network.leaves)
    for frozen in (not thawed, True, False, False):
        for one in (trainer, fresh):
            one.model.layers[0].trainable = not frozen
            one.train_batch(X[20:], Y[20:])
        assert changed(model, twin.state_dict()) == set()
        assert trainer.skipped_steps == fresh.skipped_steps


def test_frozen_batch_norm_takes_a_single_example():
    model = Sequential([Flatten(), Residual(BatchNorm1D())], SHAPE)
    with pytest.raises(ValueError, match=r"layer 1, Residual: body\.0, BatchNorm1D: expected at least 2 examples"):
        model.forward(X[:1], training=True)
    model.layers[1].trainable = False
    assert np.array_equal(model.forward(X[:1], training=True), model.predict(X[:1]))


@pytest.mark.parametrize("fault", ["frozen", "lr_mult"])
def test_a_refused_fit_changes_nothing(fault):
    model = make_net()
    trainer = Trainer(model, "softmax_cross_entropy", PlainSGD(0.1) if fault == "lr_mult" else SGD(0.1))
    if fault == "frozen":
        for layer in model.layers:
            layer.trainable = False
    else:
        model.layers[0].lr_mult = 0.5

    class Hooked:
        def on_fit_begin(self, trainer):
            raise AssertionError("must not begin")

    for call in (lambda: trainer.fit(X, Y, callbacks=[Hooked()]), lambda: trainer.train_batch(X, Y)):
        with pytest.raises(ValueError, match=r"all are frozen|lr_mult"):
            call()
    assert trainer.interrupted is None and trainer.step == 0
    trainer.check_savable()


def test_a_frozen_trainer_can_be_saved(tmp_path):
    trainer = fitted(make_net())
    for layer in trainer.model.layers:
        layer.trainable = False
    trainer.save_checkpoint(tmp_path / "c.safetensors")
    assert not changed(Trainer.resume(tmp_path / "c.safetensors").model, trainer.model.state_dict())


def test_check_layer_works_on_a_thawed_copy():
    for layer in (Dense(3), Residual(Dense(4))):
        layer.trainable = False
        check_layer(layer, (4,))
        assert not layer.trainable
