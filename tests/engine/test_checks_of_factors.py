"""lr_mult and decay_mult that are refused: products, those of classes, settings; and models without decay_mult."""

import copy

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.layers import Block, Dense, Outputs, Residual
from minidl.losses import mean_squared_error
from minidl.optimizers import SGD, AdamW

X, Y = np.ones((4, 3), "f4"), np.zeros((4, 3), "f4")
LOSS = "mean_squared_error"


def train_batch(trainer):
    trainer.train_batch(X, Y)


def repeated(trainer):
    """The second step on batches of one form takes a shorter way."""
    rate = trainer.optimizer.lr
    trainer.optimizer.lr = 0.0
    trainer.train_batch(X, Y)
    trainer.optimizer.lr = rate
    trainer.train_batch(X, Y)


def fit(trainer):
    trainer.fit(X, Y, epochs=1, verbose=0)


def backward_step(trainer):
    trainer.model.forward(X, training=True)
    trainer.backward_step(X)


WAYS = {"train_batch": train_batch, "repeated": repeated, "fit": fit, "backward_step": backward_step}


def check_refusal(trainer, way, message):
    before = trainer.model.state_dict()
    with pytest.raises(ValueError, match=message):
        WAYS[way](trainer)
    assert all(value.tobytes() == before[name].tobytes() for name, value in trainer.model.state_dict().items())


def nested(name, factor, levels=8):
    layer = Dense(3)
    for _ in range(levels):
        layer = Residual(layer)
        setattr(layer, name, factor)
    return layer


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["lr_mult", "decay_mult"])
def test_products_of_containers_are_refused(name, way):
    trainer = Trainer(Sequential([Dense(3), nested(name, 3e38)], (3,)), LOSS, SGD(0.1, weight_decay=0.1))
    check_refusal(trainer, way, rf"^layer 1, Residual: .*body\.0, Dense: {name}: .*float32 can hold, times")
    trainer.model[1].trainable = False  # has no factors
    WAYS[way](trainer)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("loss", [LOSS, lambda scores, y: mean_squared_error(scores, y)], ids=["fused", "Python"])
@pytest.mark.parametrize("rate", [1e20, lambda step: 1e20], ids=["number", "schedule"])
def test_rates_beyond_the_dtype_are_refused(loss, rate, way):
    model = Sequential([Dense(3)], (3,))
    model[0].lr_mult = {"bias": 1e20}
    check_refusal(Trainer(model, loss, SGD(rate)), way, r"^lr: .*float32 can hold times lr_mult, 1e\+20, got 1e\+20")
    model = Sequential([Dense(3)], (3,), dtype="float64")
    model[0].lr_mult = {"bias": 1e20}
    WAYS[way](Trainer(model, loss, SGD(rate)))


@pytest.mark.parametrize("way", WAYS)
def test_decays_beyond_the_dtype_are_refused(way):
    model = Sequential([Dense(3)], (3,))
    model[0].decay_mult = {"bias": 1e20}
    trainer = Trainer(model, LOSS, AdamW(0.1, weight_decay=1e20))
    check_refusal(trainer, way, "^layer 0, Dense: decay_mult: .*float32 can hold, times the weight_decay 1e")


def test_factors_of_one_need_no_kernel():
    class Plain:
        lr = 0.1

        def step(self, params, lr):
            for param in params.values():
                param.value -= lr * param.grad

    model = Sequential([Residual(Dense(3))], (3,))
    model[0].lr_mult, model[0].layers[0].lr_mult = 0.5, {"weight": 2, "bias": 2}
    before = model.state_dict()
    Trainer(model, LOSS, Plain()).train_batch(X, Y)
    assert not np.array_equal(before["0.body.0.weight"], model.state_dict()["0.body.0.weight"])


def test_settings_are_copies():
    model = Sequential([Dense(3)], (3,))
    model[0].lr_mult = model[0].decay_mult = {"bias": 2}
    ((_, content),) = model.get_config()["layers"][0].items()
    for given in (model[0].settings, content[2]):
        given["lr_mult"]["bias"] = given["decay_mult"]["bias"] = -1.0
    assert model[0].settings == {"lr_mult": {"bias": 2}, "decay_mult": {"bias": 2}}


@pytest.mark.parametrize("wrong", [{"decay_mult": -1}, {"lr_mult": {"bais": 1}}, {"trainable": 2}, {"rate": 1}])
def test_refused_settings_change_nothing(wrong):
    dense, block = Dense(3), Block(Dense(3), Residual(Dense(3)))
    Sequential([dense, block], (3,))
    dense.lr_mult = block.lr_mult = block.layers[0].lr_mult = block.layers[1].layers[0].lr_mult = 3
    for layer, settings in (
        (dense, wrong),
        (block, wrong),
        (block, {"lr_mult": 2, "layers": {"0": {"lr_mult": 2}, "1": {"lr_mult": 2, "layers": {"body.0": wrong}}}}),
        (block, {"lr_mult": 2, "layers": {"0": {"lr_mult": 2}, "2": {}}}),
    ):
        before = layer.settings
        with pytest.raises((TypeError, ValueError)):
            layer.take_settings({"trainable": False, "lr_mult": 2, **settings})
        assert layer.settings == before


def test_refused_settings_keep_the_weights_of_a_block():
    weights = Sequential([Dense(3)], (3,)).as_layer()
    before = weights.settings
    with pytest.raises(ValueError, match="decay_mult"):
        weights.take_settings({"decay_mult": -1})
    assert weights.settings == before != {}


@pytest.mark.parametrize("name", ["lr_mult", "decay_mult"])
@pytest.mark.parametrize(
    ("factors", "error"), [({"nope": 3.0}, ValueError), ({"weight": "abc"}, TypeError), (-1, ValueError)]
)
def test_factors_of_a_class_are_checked(name, factors, error):
    own = type("Own", (Dense,), {name: factors})
    with pytest.raises(error, match=rf"layer 0, Own.*{name}"):
        Sequential([own(3)], (3,))
    inner = type("OwnBlock", (Block,), {name: {"0.weight": 3}})
    with pytest.raises(TypeError, match=rf"^OwnBlock\.{name}: expected a number"):
        Sequential([inner(Dense(3))], (3,))


def test_factors_of_a_class_that_change_are_checked():
    class Own(Dense):
        factor = 1.0

        @property
        def lr_mult(self):
            return self.factor

    model = Sequential([Own(3)], (3,))
    trainer = Trainer(model, LOSS, SGD(0.1))
    trainer.train_batch(X, Y)
    for Own.factor in ({"nope": 3.0}, "abc", -1):
        for _ in range(2):
            with pytest.raises((TypeError, ValueError), match=r"^Own\.lr_mult: "):
                trainer.train_batch(X, Y)
    Own.factor = {"bias": 0}
    before = model.state_dict()["0.bias"]
    trainer.train_batch(X, Y)
    assert np.array_equal(before, model.state_dict()["0.bias"])


@pytest.mark.parametrize("own", [property(lambda layer: 1.0), 0.5])
def test_groups_leave_factors_of_a_class_alone(own):
    model = Sequential([Dense(3), type("Own", (Dense,), {"decay_mult": own})(3)], (3,))
    with pytest.raises(ValueError, match=r"^select: expected layers whose decay_mult .*, got layer 1, Own"):
        model.set_param_group("bias", lr_mult=2, decay_mult=0)
    assert model[0].settings == model[1].settings == {}
    model.set_param_group("bias", lr_mult=2)
    assert model[1].lr_mult == {"bias": 2}


def test_an_output_of_an_unbuilt_model_keeps_factors_by_name():
    model = Sequential([Outputs(a=Dense(4))])
    model[0].branches["a"][0].lr_mult = {"bias": 64}
    assert model["a"][0].lr_mult == {"bias": 64}


def test_models_have_no_decay_mult():
    model = Sequential([Dense(3)], (3,))
    with pytest.raises(AttributeError, match=r"^model\.decay_mult: expected .*set_param_group"):
        model.decay_mult = 0
    assert not hasattr(model, "decay_mult") and not hasattr(copy.deepcopy(model), "decay_mult")
