"""`trainable` of containers and models: what it says about the layers in them, and how they are frozen and unfrozen."""

import copy
import pickle

import numpy as np
import pytest

from minidl import Layer, Sequential, Trainer
from minidl.initializers import ones
from minidl.layers import BatchNorm2D, Block, Conv2D, Dense, Flatten, Parallel, ReLU, Residual, SqueezeExcite
from minidl.optimizers import SGD

RNG = np.random.default_rng(11)
SHAPE = (2, 5, 5)
X, Y = RNG.standard_normal((20, *SHAPE)).astype("f4"), RNG.integers(0, 3, 20)


class Gain(Layer):
    """A NumPy layer with a parameter."""

    def build(self, in_shape):
        self.gain = self.param("gain", (1,), ones)
        return in_shape

    def forward(self, x, training):
        if training:
            self.x = x
        return x * self.gain.value

    def backward(self, dy):
        self.gain.grad = [(dy * self.x).sum()]
        return dy * self.gain.value


class Coupled(Layer):
    """A NumPy layer without parameters that needs two examples."""

    min_batch_size = 2

    def forward(self, x, training):
        return x


def residual_net():
    return Sequential([Residual(Conv2D(2, 3, padding=1), BatchNorm2D(), ReLU()), Flatten(), Dense(3)], SHAPE)


def changed_by_a_step(model):
    """Returns the names of the arrays that a step changes."""
    before = model.state_dict()
    Trainer(model, "softmax_cross_entropy", SGD(0.1)).train_batch(X, Y)
    return {name for name, value in model.state_dict().items() if not np.array_equal(value, before[name])}


CONTAINERS = {
    "Block": lambda: Block(Conv2D(2, 3, padding=1), Residual(BatchNorm2D()), ReLU()),
    "Residual": lambda: Residual(BatchNorm2D(), ReLU(), shortcut=Conv2D(2, 1)),
    "Parallel": lambda: Parallel([Conv2D(2, 1), ReLU()], [], Block(BatchNorm2D())),
    "SqueezeExcite": lambda: SqueezeExcite(1),
    "in NumPy": lambda: Block(Gain(), Conv2D(2, 1), ReLU()),
}


@pytest.mark.parametrize("frozen_before", [False, True], ids=["built, then frozen", "of frozen layers"])
@pytest.mark.parametrize("make", CONTAINERS.values(), ids=CONTAINERS)
def test_a_container_of_frozen_layers_can_be_unfrozen(make, frozen_before):
    """Its `trainable` is that of the layers in it, and sets theirs."""
    container = make()
    leaves = container.leaves()
    if frozen_before:
        for leaf in leaves:
            leaf.trainable = False
    model = Sequential([container, Flatten(), Dense(3)], SHAPE)
    if not frozen_before:
        container.trainable = False
    assert not container.trainable and not any(leaf.trainable for leaf in leaves) and model.trainable
    assert changed_by_a_step(model) == {"2.weight", "2.bias"}
    container.trainable = True
    assert container.trainable and all(leaf.trainable for leaf in leaves)
    assert changed_by_a_step(model) == set(model.state_dict())


def test_a_nested_model_that_was_frozen_can_be_unfrozen(tmp_path):
    """By its Block, and by the outer model; also in copies and files of it."""
    base = Sequential([Conv2D(2, 3), ReLU(), BatchNorm2D(), Residual(Conv2D(2, 1))], SHAPE)
    base.trainable = False
    outer = Sequential([base, Flatten(), Dense(3)], SHAPE)
    outer.save(tmp_path / "m.safetensors")
    Trainer(outer, "softmax_cross_entropy", SGD(0.1)).save_checkpoint(tmp_path / "c.safetensors")
    loaded, resumed = Sequential.load(tmp_path / "m.safetensors"), Trainer.resume(tmp_path / "c.safetensors").model
    for model in (outer, outer[:], copy.deepcopy(outer), pickle.loads(pickle.dumps(outer)), loaded, resumed):
        assert not model.layers[0].trainable and model.trainable and not model[:1].trainable
        assert model.summary().trainable == model.layers[2].params["weight"].value.size + 3
        assert changed_by_a_step(model) == {"2.weight", "2.bias"}
        part = model if model is loaded else model.layers[0]
        part.trainable = True
        assert part.trainable and model.summary().trainable == model.summary().parameters
        assert changed_by_a_step(model) == set(model.state_dict())
    assert not base.trainable  # its copies were trained


def test_thawing_one_layer_of_a_frozen_container():
    model = residual_net()
    block = model.layers[0]
    block.trainable = False
    block.layers[0].trainable = True
    assert block.trainable
    assert changed_by_a_step(model) == {"0.body.0.weight", "0.body.0.bias", "2.weight", "2.bias"}


def test_layers_without_parameters_do_not_make_a_built_container_trainable():
    block = Residual(Conv2D(2, 1), ReLU(), BatchNorm2D(affine=False))
    model = Sequential([block, Residual(ReLU())], SHAPE)
    block.layers[0].trainable = False
    assert block.trainable and model.trainable  # the statistics of batch norm
    block.layers[2].trainable = False
    assert not block.trainable and not model.trainable and block.layers[1].trainable
    assert model.layers[1].trainable  # nothing else in it
    model.layers[1].trainable = False
    assert not model.layers[1].trainable and not model.layers[1].layers[0].trainable
    assert Residual().trainable


def test_a_layer_without_parameters_keeps_its_own_setting_in_a_container_of_frozen_layers():
    block = Block(Conv2D(2, 1), Coupled())
    model = Sequential([block, Flatten(), Dense(3)], SHAPE)
    block.layers[0].trainable = False
    assert not block.trainable
    with pytest.raises(ValueError, match=r"layer 0, Block: 1, Coupled: expected at least 2 examples"):
        model.forward(X[:1], training=True)


def test_a_container_whose_class_freezes_it():
    class Fixed(Residual):
        trainable = False

    model = Sequential([Fixed(Conv2D(2, 1)), Flatten(), Dense(3)], SHAPE)
    assert changed_by_a_step(model) == {"2.weight", "2.bias"}


def test_a_frozen_container_in_a_file_of_an_earlier_version():
    """It had a setting of its own, which froze all layers in it."""
    model = residual_net()
    model.layers[0].lr_mult = model.layers[0].layers[0].lr_mult = 0.5
    config = model.get_config()
    ((_, content),) = config["layers"][0].items()
    assert content[2] == {"lr_mult": 0.5, "layers": {"body.0": {"lr_mult": 0.5}}}
    content[2]["trainable"] = False
    loaded = Sequential.from_config(config, model.state_dict(), {}).layers[0]
    assert not loaded.trainable and not any(layer.trainable for layer in loaded.layers)
    assert loaded.lr_mult == loaded.layers[0].lr_mult == 0.5
    loaded.trainable = True
    assert loaded.settings == {"lr_mult": 0.5, "layers": {"body.0": {"lr_mult": 0.5}}}
