"""The nets and images of c_compilers.py: trained for an epoch on MNIST, or on the 8x8 digits without it."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import nets

sys.path.insert(0, str(Path(__file__).parents[1]))
from contract.activations import positive
from contract.every_layer import DRAWS

from minidl import Sequential, Trainer
from minidl.datasets import DatasetUnavailable, load_digits, load_mnist
from minidl.layers import Abs, Block, Columns, Dense, Flatten, Parallel, Rescale, Reshape
from minidl.optimizers import SGD

TRAINING = 2000  # examples


def fed_by_pixels(name):
    """Returns a random layer that sees pixels: the 400th as a category, or some after the 408th as numbers up to 3."""
    rng = np.random.default_rng([*name.encode()])
    while True:
        case = DRAWS[name](rng)
        size = int(np.prod(case.in_shape))
        if size <= (8 if case.categories else 376) and (not case.categories or case.categories >= 256):
            break
    # 1 / 70 has roundings, which contraction of a multiplication and an addition changes: a canary of c_compilers.py
    scaled = [Abs(), Rescale(1 / 70, 0.5)] if case.values is positive else [Rescale(1 / 70, -1)]
    start, scaled = (400, []) if case.categories else (408, scaled)
    return Block(Flatten(), Columns(start, start + size), *scaled, Reshape(case.in_shape), case.layer, Flatten())


def every_layer():
    """Returns one branch for each of minidl's layers."""
    return [Parallel(*(fed_by_pixels(name) for name in sorted(DRAWS))), Dense(10)]


NETS = {name: nets.ALL_NETS[name] for name in ("lenet", "cnn", "mlp", "vgg", "resnet20", "mobilenet")}
NETS["every"] = nets.Net("a net with every layer", every_layer)


def load_images():
    """Returns training images with labels, and test images (n, 1, 28, 28), as bytes; True if they are MNIST's."""
    try:
        data = load_mnist()
        return (data.X_train[:TRAINING], data.y_train[:TRAINING]), data.X_test[:1000], True
    except DatasetUnavailable:
        digits = load_digits()
        X = np.pad(np.kron(digits.X_train, np.ones((3, 3), "uint8")), ((0, 0), (0, 0), (2, 2), (2, 2)))
        return (X, digits.y_train), X[:1000], False


def as_shape(images, shape):
    """Returns images of 28x28 as those of a net: padded, and in three colours, for 3x32x32."""
    if shape == (1, 28, 28):
        return images
    padded = np.pad(images, ((0, 0), (0, 0), (2, 2), (2, 2)))
    return np.concatenate([padded, padded // 2, 255 - padded], axis=1)


def trained(name, examples):
    """Returns a net after an epoch."""
    model = NETS[name].model()
    X, y = examples
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.01, momentum=0.9))
    trainer.fit(as_shape(X, model.input_shape), y, epochs=1, batch_size=32, verbose=0)
    return model


def in_dtype(name, model, dtype):
    """Returns the model with its weights in a dtype."""
    copy = Sequential(NETS[name].layers(), model.input_shape, dtype=dtype)
    copy.load_state_dict(model.state_dict())
    return copy
