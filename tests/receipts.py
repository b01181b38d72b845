"""Three runs whose receipts are in tests/receipts, and how to write them again: python tests/receipts.py"""

import json
import os
import tempfile
from pathlib import Path

from minidl import Sequential, Trainer
from minidl.callbacks import EarlyStopping, ExponentialMovingAverage, Receipt, ReduceLROnPlateau
from minidl.datasets import load_digits
from minidl.layers import (
    BatchNorm2D,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Flatten,
    GlobalAvgPool2D,
    MaxPool2D,
    Outputs,
    RandomShift,
    ReLU,
    Rescale,
    Tanh,
)
from minidl.optimizers import SGD, AdamW
from minidl.schedules import Cosine

FOLDER = Path(__file__).with_name("receipts")


def digits():
    """Returns X, y and validation data."""
    data = load_digits()
    return {"X": data.X_train[:600], "y": data.y_train[:600], "validation_data": (data.X_test, data.y_test)}


def small_lenet():
    """Convolutions and pools, float32, SGD with momentum, dropout, a partial last batch."""
    layers = [
        Rescale(1 / 16),
        Conv2D(6, 3),
        ReLU(),
        MaxPool2D(2),
        Conv2D(8, 2),
        Tanh(),
        Flatten(),
        Dropout(0.2),
        Dense(10),
    ]
    trainer = Trainer(Sequential(layers), "softmax_cross_entropy", SGD(0.05, momentum=0.9), ["accuracy"])
    return trainer, {"epochs": 4, "batch_size": 32}, []


def normalized():
    """Batch norm, shifted images, mixup, weights by class, a schedule and an average of the weights."""
    convolutions = [Conv2D(8, 3, padding=1), BatchNorm2D(), ReLU(), DepthwiseConv2D(3), BatchNorm2D(), ReLU()]
    layers = [Rescale(1 / 16), RandomShift(1), *convolutions, GlobalAvgPool2D(), Dense(10)]
    trainer = Trainer(Sequential(layers, seed=3), "softmax_cross_entropy", AdamW(Cosine(0.01, 60)), seed=4)
    fit = {"epochs": 3, "batch_size": 30, "mixup": 0.2, "class_weight": {0: 2.0, 8: 0.5}}
    return trainer, fit, [ExponentialMovingAverage(0.9)]


def stopped():
    """float64, two outputs, accumulated gradients, clipping; stops early, with the weights of the best epoch."""
    heads = Outputs(digit=Dense(10), odd=[Dense(4), ReLU(), Dense(1)])
    model = Sequential([Rescale(1 / 16), Flatten(), Dense(24), ReLU(), heads], dtype="float64")
    loss = {"digit": "softmax_cross_entropy", "odd": "binary_cross_entropy"}
    trainer = Trainer(model, loss, SGD(0.3, momentum=0.9), clip_norm=2.0, loss_weights={"odd": 0.5}, seed=1)
    fit = {"epochs": 60, "batch_size": 16, "gradient_accumulation_steps": 3}
    return trainer, fit, [ReduceLROnPlateau(patience=2), EarlyStopping(patience=4)]


RUNS = {run.__name__: run for run in (small_lenet, normalized, stopped)}
ALL_THREADS = [(name, num_threads) for name in RUNS for num_threads in (1, 3)]


def data_of(name):
    """Returns the data of a run."""
    data = digits()
    if name == "stopped":
        both = [{"digit": y, "odd": y % 2} for y in (data["y"], data["validation_data"][1])]
        data |= {"y": both[0], "validation_data": (data["validation_data"][0], both[1])}
    return data


def verified(trainer, **data):
    """Fits; returns the hashes of the receipt, and what verifying it says, from the trainer before the fit."""
    with tempfile.TemporaryDirectory() as folder:
        start, path = os.path.join(folder, "start.safetensors"), os.path.join(folder, "receipt.json")
        trainer.save_checkpoint(start)
        trainer.fit(**data, callbacks=[Receipt(path)], verbose=0)
        found = Trainer.verify(path, **data, start=start)
        receipt = json.loads(Path(path).read_text())
    return receipt["weights"], receipt["predictions"], str(found)


def verify(name, num_threads):
    """Returns the verification of a run."""
    return Trainer.verify(FOLDER / f"{name}.json", **data_of(name), num_threads=num_threads)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, run in RUNS.items():
        trainer, fit, callbacks = run()
        trainer.fit(**data_of(name), **fit, callbacks=[*callbacks, Receipt(FOLDER / f"{name}.json")], verbose=1)
