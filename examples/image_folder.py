"""A CNN on a folder of images
==============================

The folder has a sub-folder for each class. Validation images choose the augmentation.

Run it with: `python examples/image_folder.py`. It draws its own images; `--folder FOLDER` takes yours.

A folder has `train/CLASS/*.png` and `test/CLASS/*.png`, a usual layout of CIFAR-10 as image files. Without `--folder`,
scikit-learn's digits are drawn in random colours over parts of its two photos. The same net is trained without
augmentation, with it, and with mirrored images, too. A mirrored car is a car, but a mirrored 3 is no digit: a fifth of
the training images, held out for validation, decides what helps. The test images are used once, at the end, for the
accuracy of the chosen net. It takes less than a minute on two cores.
"""

import argparse
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split

from minidl import Sequential, Trainer
from minidl.datasets import load_digits, load_images
from minidl.layers import (
    BatchNorm2D,
    ColorJitter,
    Conv2D,
    Cutout,
    Dense,
    GlobalMaxPool2D,
    MaxPool2D,
    Normalize,
    RandomCrop,
    RandomFlip,
    ReLU,
)
from minidl.optimizers import AdamW
from minidl.schedules import Cosine

BATCH_SIZE = 32
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
AUGMENTATIONS = ("none", "colours, crop, cutout", "the same and mirrored")


def draw_folder(folder, size, seed=0):
    """Writes digits at random places as PNG files: over the left halves of photos for training, else the right ones."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    rng, data, photos = np.random.default_rng(seed), load_digits(), load_sample_images().images
    middle = photos[0].shape[1] // 2
    parts = {
        "train": (data.X_train, data.y_train, [photo[:, :middle] for photo in photos]),
        "test": (data.X_test, data.y_test, [photo[:, middle:] for photo in photos]),
    }
    for part, (X, y, backgrounds) in parts.items():
        for name in NAMES:
            (folder / part / name).mkdir(parents=True)
        for i, (digit, label) in enumerate(zip(X[:, 0], y, strict=True)):
            photo = backgrounds[rng.integers(len(backgrounds))]
            top, left = rng.integers(0, np.array(photo.shape[:2]) - size + 1)
            image = Image.fromarray(photo[top : top + size, left : left + size])
            side = int(size * rng.uniform(0.6, 0.9))
            mask = Image.fromarray(digit * 15).resize((side, side))
            colour = rng.integers(0, 100, 3) + (156 if np.mean(image) < 128 else 0)  # light on dark, dark on light
            image.paste(tuple(colour.tolist()), tuple(rng.integers(0, size - side + 1, 2).tolist()), mask)
            image.save(folder / part / NAMES[label] / f"{i}.png")


def make_net(augmentation, X, classes, seed):
    """Returns four convolutions after layers of augmentation, which change the images in training only."""
    size = X.shape[2]
    layers = [Normalize.from_data(X)]
    if augmentation != "none":  # after Normalize, the zeros of crop and cutout are the mean colour
        layers = [ColorJitter(0.2, 0.2, 0.5), *layers, RandomCrop(size, padding=size // 8), Cutout(size // 4)]
    if augmentation == "the same and mirrored":
        layers.append(RandomFlip())
    for filters in (16, 32, 64, 128):
        layers += [Conv2D(filters, 3, padding=1, use_bias=False), BatchNorm2D(), ReLU(), MaxPool2D(2)]
    return Sequential([*layers, GlobalMaxPool2D(), Dense(classes)], input_shape=X.shape[1:], seed=seed)


def compare(train, test, epochs, seed):
    """Trains a net with each augmentation, and tests the one with the best validation accuracy."""
    fitted, held_out = train_test_split(np.arange(len(train.y)), test_size=0.2, stratify=train.y, random_state=seed)
    X, y = train.X[fitted], train.y[fitted]
    steps = epochs * -(-len(X) // BATCH_SIZE)
    trainers, scores = {}, {}
    for name in AUGMENTATIONS:
        net = make_net(name, X, len(train.class_names), seed)
        optimizer = AdamW(Cosine(0.005, steps, warmup_steps=steps // 10), weight_decay=0.01)
        trainers[name] = Trainer(net, "softmax_cross_entropy", optimizer, ["accuracy"], seed)
        trainers[name].fit(X, y, epochs=epochs, batch_size=BATCH_SIZE, verbose=0)
        scores[name] = trainers[name].evaluate(train.X[held_out], train.y[held_out])["accuracy"]
        seen = trainers[name].evaluate(X, y)["accuracy"]
        print(f"{name:<24}training {seen:6.1%}, validation {scores[name]:.1%}", flush=True)
    best = max(scores, key=scores.get)
    accuracy = trainers[best].evaluate(test.X, test.y)["accuracy"]
    print(f"\nAugmentation: {best}. Test accuracy {accuracy:.2%} of {len(test.y):,} images")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, help="has train/CLASS/*.png and test/CLASS/*.png; default: drawn digits")
    parser.add_argument("--size", type=int, default=32, help="to which images are scaled; default: 32")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if find_spec("PIL") is None:
        raise SystemExit('Pillow is not installed: pip install "minidl[images]"')

    with tempfile.TemporaryDirectory() as temporary:
        folder, home = args.folder, None
        if folder is None:
            folder = home = Path(temporary)  # home: where load_images keeps the decoded pixels
            draw_folder(folder, args.size)
        try:
            train, test = (load_images(folder / part, args.size, data_home=home) for part in ("train", "test"))
        except (OSError, ValueError) as error:
            raise SystemExit(str(error)) from None
        if list(train.class_names) != list(test.class_names):
            raise SystemExit(f"{folder}: expected the same classes in train and test")
        print(f"{len(train.y):,} training images of {len(train.class_names)} classes: {', '.join(train.class_names)}\n")
        compare(train, test, args.epochs, args.seed)


if __name__ == "__main__":
    main()
