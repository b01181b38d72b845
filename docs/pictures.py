"""Draws docs/images/*.png of the guide to plots, and the chart of `make bench`.

Run it with: python docs/pictures.py (some minutes; needs MNIST and matplotlib). The plots are of a net for MNIST, of
a max-pool in a net for the embedded digits, and of a net that labels their ink in larger images. The chart is drawn
if there are results. The nets have the same bits on every processor with fused multiply-add, for any number of threads.
"""

import json
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from minidl import Sequential, Trainer, plots
from minidl.datasets import load_digits, load_mnist
from minidl.layers import (
    BatchNorm2D,
    Conv2D,
    Dense,
    Flatten,
    GlobalMaxPool2D,
    MaxPool2D,
    Parallel,
    ReLU,
    Rescale,
    Upsample2D,
)
from minidl.losses import SoftmaxCrossEntropy
from minidl.optimizers import SGD, Adam, AdamW
from minidl.schedules import Cosine

ROOT = Path(__file__).parents[1]
IMAGES, RESULTS = ROOT / "docs" / "images", ROOT / "build" / "bench" / "train_step.json"
EPOCHS, BATCH_SIZE = 6, 64
PAGE_WIDTH = 6.9  # inches, as of the plots


def draw_mnist():
    """Returns the plots of a net trained on MNIST, by name; strong weight decay makes its filters smooth."""
    data = load_mnist()
    model = Sequential(
        [
            Rescale(1 / 255),
            Conv2D(16, 7, padding=3), ReLU(), MaxPool2D(2),
            Conv2D(32, 5, padding=2), ReLU(), MaxPool2D(2),
            Conv2D(64, 3, padding=1), ReLU(), GlobalMaxPool2D(),
            Dense(10),
        ],
        input_shape=(1, 28, 28),
        seed=0,
    )  # fmt: skip
    steps = EPOCHS * len(data.X_train) * 4 // 5 // BATCH_SIZE
    optimizer = AdamW(Cosine(0.002, total_steps=steps, min_lr=1e-5), weight_decay=1.0)
    trainer = Trainer(model, "softmax_cross_entropy", optimizer, metrics=["accuracy"])
    history = trainer.fit(data.X_train, data.y_train, epochs=EPOCHS, batch_size=BATCH_SIZE, validation_split=0.2)
    print(trainer.evaluate(data.X_test, data.y_test))
    X, y = data.X_test, data.y_test
    page = Figure((PAGE_WIDTH, 3.8))
    plots.confusion_matrix(model, X, y, figure=page.subfigures(1, 3, width_ratios=[1, 2.4, 1])[1])
    return {
        "history": history.plot(),
        "filters": plots.filters(model),
        "feature_maps": plots.feature_maps(model, X[:2], layer=2),
        "misclassified": plots.misclassified(model, X, y, max_examples=18),
        "confusion_matrix": page,
        "saliency": plots.saliency(model, X[:6]),
        "grad_cam": plots.grad_cam(model, X[:6]),
    }


def draw_pool():
    """Returns the gradient through a max-pool with overlapping windows, in a net for the embedded digits."""
    data = load_digits()
    layers = [Rescale(1 / 16), Conv2D(8, 4, padding=1), ReLU(), MaxPool2D(3, stride=2), Flatten()]
    model = Sequential([*layers, Dense(32), ReLU(), Dense(10)], input_shape=(1, 8, 8), seed=0)
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.05, momentum=0.9))
    trainer.fit(data.X_train, data.y_train, verbose=0)
    return {"pool_routing": plots.pool_routing(model, data.X_test[:64], data.y_test[:64])}


def draw_masks():
    """Returns the masks of a net that labels the ink of digits by their class, as in docs/how-to/plots.md."""
    data, names = load_digits(), ["paper", "0 to 4", "5 to 9"]

    def draw_scenes(digits, labels, seed):
        X, y = np.zeros((len(digits), 1, 24, 24), "u1"), np.zeros((len(digits), 24, 24), "u1")
        for i, (top, left) in enumerate(np.random.default_rng(seed).integers(0, 17, (len(digits), 2))):
            X[i, :, top : top + 8, left : left + 8] = digits[i]
            y[i, top : top + 8, left : left + 8] = np.where(digits[i, 0] > 4, 1 + (labels[i] > 4), 0)
        y[:, :2] = 255
        return X, y

    def conv(filters):
        return [Conv2D(filters, 3, padding=1, use_bias=False), BatchNorm2D(), ReLU()]

    deep = [*conv(12), MaxPool2D(2), *conv(24), MaxPool2D(2), *conv(24), Upsample2D(4)]
    layers = [Rescale(1 / 16), Parallel(conv(8), deep), Conv2D(16, 3, padding=1), ReLU(), Conv2D(3, 1)]
    model = Sequential(layers, input_shape=(1, 24, 24), seed=0)
    optimizer = Adam(Cosine(0.01, total_steps=460))
    trainer = Trainer(model, SoftmaxCrossEntropy(ignore_index=255), optimizer, metrics=["iou"])
    trainer.fit(*draw_scenes(data.X_train, data.y_train, seed=0), epochs=10, batch_size=32, verbose=0)
    scenes = draw_scenes(data.X_test, data.y_test, seed=1)
    return {"masks": plots.masks(model, *scenes, names, ignore_index=255)}


def draw_speed():
    """Draws the training speed, if `make bench` was run."""
    if not RESULTS.exists():
        print(f"No chart: {RESULTS.relative_to(ROOT)} is missing: make bench")
        return
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from chart import draw

    draw(json.loads(RESULTS.read_text()), IMAGES / "train_step.png")


if __name__ == "__main__":
    for name, figure in (draw_pool() | draw_masks() | draw_mnist()).items():
        figure.savefig(IMAGES / f"{name}.png", dpi=150)
    draw_speed()
