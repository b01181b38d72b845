"""Images with channels last: the first function to read them warns, once, at the user's line; nothing else does."""

import warnings

import numpy as np
import pytest
from contract.every_layer import DRAWS

from minidl import Layer, Sequential, Trainer
from minidl.layers import (
    AvgPool2D,
    BatchNorm2D,
    Block,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Flatten,
    GlobalAvgPool2D,
    LayerNorm,
    MaxPool2D,
    Normalize,
    Pad2D,
    Parallel,
    Permute,
    PixelShuffle,
    PixelUnshuffle,
    PReLU,
    RandomCrop,
    RandomFlip,
    ReLU,
    Rescale,
    Reshape,
    Residual,
    Scale,
)  # fmt: skip
from minidl.layers.container import Container
from minidl.optimizers import SGD

SAID = r"images are \(n, channels, height, width\), with channels last X\.transpose\(0, 3, 1, 2\)"


class ToChannelsFirst(Layer):
    """Moves the channels of channels-last images to the front."""

    def build(self, in_shape):
        return (in_shape[2], *in_shape[:2])

    def forward(self, x, training):
        return x.transpose(0, 3, 1, 2)

    def backward(self, dy):
        return dy.transpose(0, 2, 3, 1)


class Halve(Layer):
    def __init__(self, images=False):
        self.images = self.takes_images = images

    def forward(self, x, training):
        return x / 2

    def backward(self, dy):
        return dy / 2


ENTRY_POINTS = {
    "conv": (lambda: [Conv2D(4, 3, padding=1)], "layer 0, Conv2D"),
    "depthwise": (lambda: [DepthwiseConv2D(3, padding=1)], "layer 0, DepthwiseConv2D"),
    "max": (lambda: [MaxPool2D((2, 1), padding=0, stride=1), Flatten()], None),
    "max square": (lambda: [MaxPool2D(3, padding=1)], "layer 0, MaxPool2D"),
    "average": (lambda: [AvgPool2D(3, padding=1)], "layer 0, AvgPool2D"),
    "global": (lambda: [GlobalAvgPool2D()], "layer 0, GlobalAvgPool2D"),
    "norm": (lambda: [BatchNorm2D()], "layer 0, BatchNorm2D"),
    "rescaled": (lambda: [Rescale(1 / 255), Dropout(0.1), Conv2D(4, 1)], "layer 2, Conv2D"),
    "normalized": (lambda: [Normalize(0.5, 0.5), ReLU(), Conv2D(4, 1)], "layer 2, Conv2D"),
    "flipped": (lambda: [RandomFlip(), Rescale(1 / 255), Conv2D(4, 1)], "layer 0, RandomFlip"),
    "padded": (lambda: [Pad2D(2), Conv2D(4, 3)], "layer 0, Pad2D"),
    "nested": (lambda: [Block(Rescale(0.1), Residual(Conv2D(8, 1), shortcut=[Conv2D(8, 1)]))],
               "layer 0, Block: 1, Residual: body.0, Conv2D"),
    "after a block": (lambda: [Block(Rescale(0.1)), Conv2D(4, 1)], "layer 1, Conv2D"),
    "parallel": (lambda: [Parallel([Rescale(2.0)], [ReLU(), Conv2D(4, 1)])],
                 "layer 0, Parallel: branches.1.1, Conv2D"),
    "learned": (lambda: [PReLU(), Scale(), LayerNorm(affine=False), Conv2D(4, 1)], "layer 3, Conv2D"),
    "custom": (lambda: [Halve(), Block(Halve()), Halve(images=True)], "layer 2, Halve"),
    "column": (lambda: [Conv2D(4, (5, 1))], None),
    "flat": (lambda: [Rescale(0.1), Flatten(), Dense(3)], None),
    "reshaped": (lambda: [Reshape((3, 16, 16)), Conv2D(4, 3)], None),
    "turned": (lambda: [ToChannelsFirst(), Conv2D(4, 3)], None),
    "turned inside": (lambda: [Block(Rescale(0.1), ToChannelsFirst()), Conv2D(4, 3)], None),
}  # fmt: skip
NAMES = pytest.mark.parametrize(("layers", "name"), ENTRY_POINTS.values(), ids=ENTRY_POINTS)


def record_warnings(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return caught


@NAMES
def test_first_use_of_channels_last_images_warns_once_at_the_users_line(layers, name):
    caught = record_warnings(lambda: Sequential(layers(), input_shape=(16, 16, 3)))
    assert len(caught) == (name is not None)
    for one in caught:
        assert one.category is UserWarning and one.filename == __file__
        assert str(one.message).startswith(
            f"{name}: an input of shape (16, 16, 3) is taken for 16 channels of 16 x 3: "
        )


def test_first_fit_of_a_model_without_a_shape_warns(rng):
    X, y = rng.random((20, 12, 16, 1)), rng.integers(0, 3, 20)
    trainer = Trainer(Sequential([Conv2D(4, 1), Flatten(), Dense(3)]), "softmax_cross_entropy", SGD(0.1))
    caught = record_warnings(lambda: trainer.fit(X, y, verbose=0))
    assert [one.filename for one in caught] == [__file__]
    assert record_warnings(lambda: trainer.fit(X, y, verbose=0)) == []
    assert next(finding.symptom for finding in trainer.report()) == "channels last"


@pytest.mark.parametrize(
    "shape",
    [(3, 32, 32), (1, 28, 28), (4, 64, 64), (64, 4, 4), (128, 7, 4), (2, 64, 1), (64, 8, 1), (1, 64, 3), (16, 16, 2)],
    ids=str,
)
def test_other_shapes_are_not_taken_for_channels_last_images(shape):
    assert record_warnings(lambda: Sequential([Conv2D(4, 1)], input_shape=shape)) == []


def test_inner_layers_do_not_warn(rng):
    """Not even where they come first in a model that was sliced, copied or loaded."""
    model = Sequential([Conv2D(16, 3, stride=(2, 8), padding=1), Conv2D(4, 1), Flatten(), Dense(3)], (1, 32, 32))
    assert model.layers[1].in_shape == (16, 16, 4)
    assert record_warnings(lambda: model[1:]) == []


@pytest.mark.filterwarnings("ignore:.*images are:UserWarning")
@NAMES
def test_report_warns_too(layers, name, rng):
    trainer = Trainer(Sequential([*layers(), Flatten(), Dense(3)], (16, 16, 3)), "softmax_cross_entropy", SGD(0.01))
    caught = {finding.symptom: finding for finding in trainer.report(rng.random((40, 16, 16, 3)), np.arange(40) % 3)}
    assert ("channels last" in caught) == (name is not None)
    if name is not None:
        assert caught["channels last"].layer == name and caught["channels last"].measured == 3
        assert "X.transpose(0, 3, 1, 2)" in caught["channels last"].message


def test_warning_raised_as_an_error_leaves_the_model_unbuilt():
    layers = [Conv2D(4, 1)]
    with pytest.raises(UserWarning, match=SAID):
        Sequential(layers, input_shape=(32, 32, 3))
    assert Sequential(layers, input_shape=(3, 32, 32)).output_shape == (4, 32, 32)


def test_a_layer_that_rejects_the_shape_warns_before_it_fails():
    for first in (Rescale(1 / 255), Block(Rescale(1 / 255))):
        with pytest.warns(UserWarning, match=SAID), pytest.raises(ValueError, match="layer 1, RandomCrop"):
            Sequential([first, RandomCrop(28), Conv2D(4, 3)], input_shape=(32, 32, 3))


def test_layers_that_take_nothing_but_images_say_so():
    """Except those of any number of axes that their arguments fix, and those that take signals as well."""
    for name, draw in DRAWS.items():
        case = draw(np.random.default_rng(0))
        layer, shape = case.layer, case.in_shape
        others = (Container, Normalize, Permute, PixelShuffle, PixelUnshuffle)
        if len(shape) == 3 and not isinstance(layer, others) and not hasattr(layer, "axis"):
            try:
                layer.setup((int(np.prod(shape)),), "float32", 0, "")
            except ValueError:
                assert layer.takes_images or layer.moves_pixels, name


def test_code_without_a_module_is_warned_too():
    program = "Sequential([Conv2D(4, 3)], (32, 32, 3))"
    with pytest.warns(UserWarning, match=SAID):
        exec(program, {"Sequential": Sequential, "Conv2D": Conv2D})
