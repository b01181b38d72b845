"""examples/models.py: the nets have the published sizes, and they learn."""

import sys
from pathlib import Path

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.optimizers import SGD

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import models

VGG16 = ((64,) * 2, (128,) * 2, (256,) * 3, (512,) * 3, (512,) * 3)


def sizes(model):
    summary = model.summary()
    return summary.parameters, summary.macs


def test_lenet5():
    """LeCun et al. (1998) with all maps connected: 156 + 2,416 + 48,120 + 10,164 + 850."""
    assert sizes(models.lenet5()) == (61_706, 416_520)


def test_mnist_cnn():
    """1,199,882, as in Keras's summary of its mnist_cnn.py and PyTorch's examples/mnist."""
    assert sizes(models.mnist_cnn())[0] == 1_199_882


def test_vgg16():
    """Keras's VGG16 without dense layers has 14,714,688; batch norm (8,448) replaces its 4,224 biases here."""
    classifier = 512 * 10 + 10
    assert sizes(models.vgg_bn(widths=VGG16))[0] == 14_714_688 - 4_224 + 8_448 + classifier


@pytest.mark.parametrize(("blocks", "parameters"), [(3, 269_722), (5, 464_154), (9, 853_018)])
def test_resnets(blocks, parameters):
    """He et al. (2015), table 6: 0.27, 0.46 and 0.85 million, with parameter-free shortcuts; here those have 2,752."""
    assert sizes(models.resnet20(blocks=blocks))[0] == parameters + 2_752


def test_resnet20_multiply_adds():
    """40.55 million, the usual count of convolutions and dense layer, plus two shortcuts of 131,072."""
    assert sizes(models.resnet20())[1] == 40_551_040 + 2 * 131_072


@pytest.mark.parametrize(
    ("width", "parameters", "millions"), [(1.0, 4_231_976, 569), (0.75, 2_585_560, 325), (0.5, 1_331_592, 149)]
)
def test_mobilenet(width, parameters, millions):
    """Howard et al. (2017), table 6: 4.2, 2.6 and 1.3 million parameters, 569, 325 and 149 million multiply-adds.

    The exact counts are those of Keras's MobileNet (4,253,864 for width 1) minus its batch-norm statistics.
    """
    result = sizes(models.mobilenet(1000, (3, 224, 224), width, first_stride=2))
    assert result[0] == parameters
    assert round(result[1] / 1e6) == millions


@pytest.mark.parametrize("name", models.MODELS)
def test_every_net_accepts_other_classes_and_shapes_and_learns(name, rng):
    shape = (2, 28, 28) if name in ("lenet5", "mnist_cnn") else (2, 16, 16)
    make = models.MODELS[name]
    model = make(4, shape, seed=3)
    assert isinstance(model, Sequential) and model.output_shape == (4,)
    other = make(4, shape, seed=4)
    assert not np.array_equal(model.params["1.weight"].value, other.params["1.weight"].value)
    X, y = rng.integers(0, 256, (32, *shape), dtype=np.uint8), np.arange(32) % 4
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.02, momentum=0.9))
    losses = trainer.fit(X, y, epochs=40, batch_size=32, verbose=0)["loss"]
    assert losses[-1] < 0.7 * losses[0]
