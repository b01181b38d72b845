"""LeNet-5 on MNIST
===================

LeNet-5 reads handwritten digits: MNIST to 99 % in five epochs or, without MNIST, 8x8 digits.

Run it with: `python examples/mnist_lenet.py` (`--help` lists the options)

The net is defined in `models.py`. The program prints a confusion matrix and the most confident mistakes, and saves the
model.
"""

import argparse
import math
import time
from pathlib import Path

import numpy as np
from models import lenet5

from minidl import Sequential, Trainer
from minidl.datasets import DatasetUnavailable, load_digits, load_mnist
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU, Rescale
from minidl.optimizers import SGD


def small_lenet(seed):
    """Returns a smaller net for the embedded digits, 8x8 pixels from 0 to 16: 13,706 parameters."""
    return Sequential(
        [
            Rescale(1 / 16),
            Conv2D(16, 3, padding=1), ReLU(), MaxPool2D(2),
            Conv2D(32, 3, padding=1), ReLU(), MaxPool2D(2),
            Flatten(),
            Dense(64), ReLU(),
            Dense(10),
        ],
        input_shape=(1, 8, 8),
        seed=seed,
    )  # fmt: skip


def one_cycle(peak, steps, warm_up=0.2):
    """Returns a schedule that rises to `peak` in the first fifth of `steps` and then falls to zero."""

    def lr(step):
        done = min((step + 1) / steps, 1)
        if done < warm_up:
            return peak * done / warm_up
        return peak * (1 + math.cos(math.pi * (done - warm_up) / (1 - warm_up))) / 2

    return lr


def confusion_table(y, predicted):
    """Returns a table of how often each digit (row) was predicted as each digit (column)."""
    counts = np.bincount(10 * y + predicted, minlength=100).reshape(10, 10)
    lines = ["      " + "".join(f"{digit:6d}" for digit in range(10))]
    for digit, row in enumerate(counts):
        cells = "".join(f"{count:6d}" if count else "     ." for count in row)
        lines.append(f"{digit:6d}{cells}")
    return "\n".join(lines)


def text_art(image):
    """Returns an image as lines of text, with denser characters for lighter pixels.

    Characters are twice as high as wide: a line is two rows of pixels, or a pixel of a small image is two characters.
    """
    large = len(image) > 14
    image = image.reshape(-1, 2, image.shape[1]).mean(axis=1) if large else image.repeat(2, axis=1)
    shades = np.array(list(" .:-=+*#%@"))
    return ["".join(row) for row in shades[(image * 9.99 / image.max()).astype(int)]]


def show_mistakes(X, y, probabilities, count=3):
    """Prints the images that were misclassified with the greatest confidence, side by side."""
    predicted = probabilities.argmax(axis=1)
    wrong = np.flatnonzero(predicted != y)
    surest = wrong[np.argsort(-probabilities[wrong, predicted[wrong]])][:count]
    captions, pictures = [], []
    for i in surest:
        art = text_art(X[i, 0])
        caption = f"{y[i]}, read as {predicted[i]} ({probabilities[i, predicted[i]]:.2%})"
        width = max(len(art[0]), len(caption))
        captions.append(caption.ljust(width))
        pictures.append([line.ljust(width) for line in art])
    for line in [captions, *zip(*pictures, strict=True)]:
        print("   ".join(line).rstrip())


def load(digits):
    """Returns the data, a function that makes the net for it, and the number of epochs."""
    if not digits:
        try:
            print("Loading MNIST (the first time takes up to a minute) ...", flush=True)
            return load_mnist(), lenet5, 5
        except DatasetUnavailable as error:
            print(f"MNIST is out of reach: {error}\nSo this run learns the embedded 8x8 digits.")
    return load_digits(), small_lenet, 20


def main():
    """Trains, tests and shows the mistakes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, help="default: 5 for MNIST, 20 for the 8x8 digits")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="default: every core this process may use")
    parser.add_argument("--save", default="lenet5.safetensors", metavar="PATH", help="default: %(default)s")
    parser.add_argument("--digits", action="store_true", help="the embedded 8x8 digits, not MNIST")
    args = parser.parse_args()
    if not Path(args.save).resolve().parent.is_dir():
        parser.error(f"--save: no folder {Path(args.save).resolve().parent}")
    if args.epochs is not None and args.epochs < 1:
        parser.error(f"--epochs: expected at least 1, got {args.epochs}")

    data, network, epochs = load(args.digits)
    epochs = args.epochs or epochs
    begin = time.perf_counter()

    model = network(seed=args.seed)
    print(model.summary())
    steps = epochs * math.ceil(len(data.X_train) / args.batch_size)
    trainer = Trainer(
        model,
        loss="softmax_cross_entropy",
        optimizer=SGD(one_cycle(0.05, steps), momentum=0.9),
        metrics=["accuracy"],
        seed=args.seed,
        num_threads=args.threads,
    )
    trainer.fit(
        data.X_train,
        data.y_train,
        epochs=epochs,
        batch_size=args.batch_size,
        validation_data=(data.X_test, data.y_test),
    )

    result = trainer.evaluate(data.X_test, data.y_test)
    seconds = time.perf_counter() - begin
    print(f"\nTest accuracy {result['accuracy']:.2%} after {epochs} epoch{'s' * (epochs > 1)}, {seconds:.1f} s in all")

    probabilities = model.predict_proba(data.X_test)
    print("\nConfusion matrix, digit (row) and prediction (column):\n")
    print(confusion_table(data.y_test, probabilities.argmax(axis=1)))
    print("\nThe most confident mistakes:\n")
    show_mistakes(data.X_test, data.y_test, probabilities)

    model.save(args.save)
    print(f"\nThe model is in {args.save}: load it with Sequential.load({args.save!r}).")


if __name__ == "__main__":
    main()
