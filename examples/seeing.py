"""All plots of a training run: learning curves, filters, feature maps, mistakes, saliency, gradients of a max-pool.

Run it with: python examples/seeing.py [folder]

Trains a small net on the embedded digits for some seconds and writes eight PNG files into the folder, by default
"pictures". Needs matplotlib: pip install "minidl[plot]".
"""

import argparse
from importlib.util import find_spec
from pathlib import Path

from minidl import Sequential, Trainer, plots
from minidl.datasets import load_digits
from minidl.layers import Conv2D, Dense, Dropout, Flatten, MaxPool2D, ReLU, Rescale
from minidl.optimizers import SGD, AdamW
from minidl.schedules import Cosine

EPOCHS, BATCH_SIZE = 40, 64


def main():
    """Trains, then draws."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("pictures"), help="default: pictures")
    folder = parser.parse_args().folder
    if find_spec("matplotlib") is None:
        raise SystemExit('matplotlib is not installed: pip install "minidl[plot]"')

    data = load_digits()
    model = Sequential(
        [
            Rescale(1 / 16),
            Conv2D(8, 5, padding=2), ReLU(), MaxPool2D(2),
            Flatten(),
            Dropout(0.3), Dense(32), ReLU(),
            Dense(10),
        ],
        input_shape=(1, 8, 8),
        seed=0,
    )  # fmt: skip
    steps = EPOCHS * -(-len(data.X_train) * 4 // 5 // BATCH_SIZE)
    optimizer = AdamW(Cosine(0.005, total_steps=steps, min_lr=1e-5), weight_decay=0.01)
    trainer = Trainer(model, "softmax_cross_entropy", optimizer, metrics=["accuracy"])
    history = trainer.fit(data.X_train, data.y_train, epochs=EPOCHS, batch_size=BATCH_SIZE, validation_split=0.2)

    overlapping = Sequential(
        [
            Rescale(1 / 16),
            Conv2D(8, 4, padding=1), ReLU(), MaxPool2D(3, stride=2),
            Flatten(),
            Dense(32), ReLU(),
            Dense(10),
        ],
        input_shape=(1, 8, 8),
        seed=0,
    )  # fmt: skip
    other = Trainer(overlapping, "softmax_cross_entropy", SGD(0.05, momentum=0.9))
    other.fit(data.X_train, data.y_train, epochs=1, verbose=0)

    pictures = {
        "history": history.plot(),
        "filters": plots.filters(model),
        "feature_maps": plots.feature_maps(model, data.X_test[:3], layer=2),
        "misclassified": plots.misclassified(model, data.X_test, data.y_test),
        "confusion_matrix": plots.confusion_matrix(model, data.X_test, data.y_test),
        "saliency": plots.saliency(model, data.X_test[:6]),
        "grad_cam": plots.grad_cam(model, data.X_test[:6], data.y_test[:6]),
        "pool_routing": plots.pool_routing(overlapping, data.X_test[:64], data.y_test[:64]),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in pictures.items():
        figure.savefig(folder / f"{name}.png", dpi=150)
    accuracy = trainer.evaluate(data.X_test, data.y_test)["accuracy"]
    print(f"\nTest accuracy {accuracy:.2%}; the pictures are in {folder}: {', '.join(pictures)}")


if __name__ == "__main__":
    main()
