"""A refusal names the argument as its caller wrote it: no inner name, no message of NumPy's."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from minidl import Sequential, Trainer, plots, set_num_threads
from minidl.callbacks import TensorBoard
from minidl.estimators import SequentialClassifier
from minidl.initializers import glorot_normal, he_normal, he_uniform, lecun_normal, orthogonal
from minidl.layers import (
    GELU,
    AvgPool2D,
    Conv2D,
    ConvTranspose2D,
    Dense,
    DepthwiseConv2D,
    MaxPool2D,
    Parallel,
    RandomCrop,
    RandomShift,
    Tanh,
)
from minidl.onnx.exporting import convert_dtype
from minidl.optimizers import SGD
from minidl.schedules import OneCycle
from minidl.testing import check_layer
from minidl_c import build_flags

FLAGS = np.array([True, False])
X, Y = np.zeros((8, 3)), np.array([0, 1] * 4)


def image_model(layer):
    return Sequential([layer], input_shape=(1, 8, 8))


def dense_model():
    return Sequential([Dense(2)], input_shape=(3,))


def trainer():
    return Trainer(dense_model(), "softmax_cross_entropy", SGD(0.1))


def digits_fit(**options):
    return SequentialClassifier(epochs=1).fit(*load_digits(return_X_y=True), **options)


CALLS = {
    # the argument of the layer, and not that of its op
    "MaxPool2D": (lambda: image_model(MaxPool2D(9)), "pool_size: a window of 9 does not fit"),
    "AvgPool2D": (lambda: image_model(AvgPool2D(9)), "pool_size: a window of 9 does not fit"),
    "Conv2D": (lambda: image_model(Conv2D(3, 9)), "kernel_size: a window of 9 x 9 does not fit"),
    "DepthwiseConv2D": (lambda: image_model(DepthwiseConv2D(9)), "kernel_size: a window of 9 x 9 does not fit"),
    "groups": (lambda: image_model(ConvTranspose2D(4, 2, groups=3)), "groups: expected a divisor"),
    "RandomShift": (lambda: image_model(RandomShift(2**31)), "max_shift: expected at most"),
    "RandomCrop": (lambda: image_model(RandomCrop(8, padding=2**31)), "padding: expected at most"),
    "TensorBoard": (lambda: TensorBoard(3), "folder: expected a str"),
    "check_layer": (lambda: check_layer(Tanh(), -1), "in_shape: expected a tuple"),
    "check_layer, seed": (lambda: check_layer(Tanh(), (3,), seed=1.5), "seed: expected an integer"),
    # arrays and None, of which Python and NumPy would complain in their own words
    "layers": (lambda: Sequential(None), "layers: expected a list"),
    "state": (lambda: dense_model().load_state_dict(None), "state: expected arrays by name"),
    "config": (lambda: Sequential.from_config(None, {}, {}), "config: expected what get_config returns"),
    "from_config, state": (
        lambda: Sequential.from_config(dense_model().get_config(), 3, {}),
        "state: expected arrays by name",
    ),
    "nesterov": (lambda: SGD(0.1, nesterov=FLAGS), "nesterov: expected True or False"),
    "join": (lambda: Parallel(Tanh(), join=FLAGS), "join: expected 'concat', 'add', 'multiply'"),
    "approximate": (lambda: image_model(GELU(FLAGS)), "approximate: expected 'none' or 'tanh'"),
    "padding": (lambda: image_model(Conv2D(3, 3, padding=np.array([1, 2]))), "padding: expected an integer"),
    "anneal_strategy": (lambda: OneCycle(0.1, 9, anneal_strategy=FLAGS), "anneal_strategy: expected 'cos'"),
    "verbose": (lambda: trainer().fit(X, Y, verbose=FLAGS), "verbose: expected None, 0, 1 or 2"),
    "training": (lambda: dense_model().forward(X, training=FLAGS), "training: expected True or False"),
    "dtype": (lambda: convert_dtype(dense_model(), FLAGS), "dtype: expected 'float32' or 'float64'"),
    "normalize": (
        lambda: plots.confusion_matrix(dense_model(), X, Y, normalize=FLAGS),
        "normalize: expected 'true', 'pred', 'all' or None",
    ),
    "class_names": (
        lambda: plots.confusion_matrix(dense_model(), X, Y, class_names=3),
        "class_names: expected a list of names",
    ),
    "isa": (lambda: build_flags(FLAGS), "isa: expected one of"),
    "num_threads": (lambda: dense_model().predict(X, num_threads=np.zeros(2)), "num_threads: expected a whole number"),
    "set_num_threads": (lambda: set_num_threads(np.zeros(2)), "num_threads: expected a whole number"),
    "sample_weight": (lambda: digits_fit(sample_weight=float("nan")), "sample_weight: expected finite weights"),
    "validation_split": (lambda: trainer().fit(X, Y, validation_split=0.1), "validation_split: expected a fraction"),
    "resume": (lambda: Trainer.resume("missing.safetensors", model=[Dense(3)]), "model: expected a Sequential, got"),
    **{
        f"{function.__name__} {shape}": (lambda f=function, s=shape: f(np.random.default_rng(0), s), "initializer: ")
        for function in (he_uniform, he_normal, glorot_normal, lecun_normal, orthogonal)
        for shape in ((), (3,), (1, -1), (2, 0))
    },
}


@pytest.mark.parametrize("name", CALLS)
def test_a_refusal_names_the_argument(name):
    call, message = CALLS[name]
    with pytest.raises((TypeError, ValueError), match=message):
        call()
