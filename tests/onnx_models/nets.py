"""Models to export: the layers of contract/ and whole nets; and other runtimes to run the files with."""

import sys
from pathlib import Path

import numpy as np
from contract.every_layer import DRAWS

from minidl import Sequential, layers
from minidl.layers import (
    BatchNorm2D,
    Block,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    GlobalAvgPool2D,
    MaxPool2D,
    Parallel,
    RandomCrop,
    RandomFlip,
    ReLU,
    Rescale,
    Residual,
    SiLU,
)

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import models

DTYPES = ("float32", "float64")


def draw_model(name, index, dtype="float32"):
    """Returns a model of one layer with random parameters and buffers, and examples for it."""
    rng = np.random.default_rng([index, *name.encode()])
    case = DRAWS[name](rng)
    model = randomize(Sequential([case.layer], input_shape=case.in_shape, dtype=dtype), rng)
    return model, case.values(rng, (1000, *case.in_shape)).astype(dtype)


def randomize(model, rng):
    """Randomizes all parameters and buffers of a model; variances stay positive. Returns the model."""
    state = {}
    for name, array in model.state_dict().items():
        positive = name.endswith(("running_var", "num_batches_tracked"))
        values = rng.uniform(0.5, 2, array.shape) if positive else array + 0.3 * rng.standard_normal(array.shape)
        state[name] = np.round(values) if name.endswith("num_batches_tracked") else values
    model.load_state_dict(state)
    return model


def mlp():
    return Sequential([Rescale(1 / 255), Flatten(), Dense(64), ReLU(), Dropout(0.2), Dense(10)], (1, 28, 28))


def inception():
    """Nested branches, after augmentation."""
    inner = Residual(Conv2D(4, 3, padding="same"), BatchNorm2D(), shortcut=Conv2D(4, 1))
    branches = (Conv2D(4, 1), [Conv2D(4, 1), ReLU(), inner], [MaxPool2D(3, 1, padding=1), Conv2D(4, 1)], [])
    first = [Rescale(1 / 255), RandomCrop(14, padding=2), RandomFlip()]
    return Sequential([*first, Parallel(*branches), SiLU(), GlobalAvgPool2D(), Dense(10)], (3, 16, 16))


def nested_blocks():
    """A Block in a Block, and a Sequential in another."""
    features = Sequential([Conv2D(4, 3), Block(BatchNorm2D(), Block(ReLU(), MaxPool2D(2)))], (1, 12, 12), seed=3)
    return Sequential([features, Residual(Block(Conv2D(4, 3, padding=1))), Flatten(), Dense(10)], (1, 12, 12))


NETS = {
    "lenet5": models.lenet5,
    "mlp": mlp,
    "vgg_bn": models.vgg_bn,
    "resnet20": models.resnet20,
    "mobilenet": models.mobilenet,
    "inception": inception,
    "nested_blocks": nested_blocks,
}


def make_net(name):
    """Returns a net with plausible running statistics, and 1,000 images for it."""
    rng = np.random.default_rng(len(name))
    model = NETS[name]()
    state = {}
    for key, array in model.state_dict().items():
        values = rng.uniform(0.5, 2, array.shape) if key.endswith("running_var") else array
        state[key] = rng.normal(0, 0.1, array.shape) if key.endswith(("running_mean", "bias")) else values
    model.load_state_dict(state)
    return model, rng.integers(0, 256, (1000, *model.input_shape)).astype("f4")


def run_onnxruntime(path, x):
    """Returns the scores of onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 2, 2
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (y,) = session.run(["scores"], {"input": x})
    return y


def run_reference(path, x):
    """Returns the scores of ONNX's reference evaluator, which is in NumPy."""
    from onnx.reference import ReferenceEvaluator

    (y,) = ReferenceEvaluator(str(path)).run(["scores"], {"input": x})
    return y


def relative_error(a, b):
    """Returns the largest difference, relative to the scale of the values."""
    assert a.shape == b.shape and a.dtype == b.dtype
    return float(np.abs(a - b).max()) / max(1.0, float(np.abs(b).max()))


PUBLIC_LAYERS = set(layers.__all__)
