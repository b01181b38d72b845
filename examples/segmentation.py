"""Segmenting cells
================

A small U-Net finds cells in fluorescence images, which are one pixel in thirty. It trains on crops, and predicts whole
images of any size.

Run it with: `python examples/segmentation.py`

The images are generated: bright ellipses of various sizes on an uneven background, as 16-bit numbers, with spots of
dirt that are no cells. As in masks that people draw, the edges of cells are not labelled, nor is a strip of some
images: these pixels have the label 255, which the loss and the metrics leave out.

The net is a list of layers. `Parallel` with `join="concat"` keeps an image beside what a coarser level makes of it:
these are the skip connections of a U-Net (Ronneberger, Fischer and Brox 2015, arXiv:1505.04597). It trains on crops of
64 x 64, which are flipped and shifted with their masks. The layers after the crop, with their weights, are a model of
images of any size. It takes half a minute on two cores.
"""

import argparse
import hashlib
from time import perf_counter

import numpy as np

from minidl import Sequential, Trainer
from minidl.layers import (
    BatchNorm2D,
    Conv2D,
    MaxPool2D,
    Normalize,
    Parallel,
    RandomCrop,
    RandomFlip,
    ReLU,
    Upsample2D,
)
from minidl.losses import SoftmaxCrossEntropy
from minidl.optimizers import Adam
from minidl.schedules import Cosine

IGNORED = 255
CROP = 64
LEVELS = 3  # the second and the third halve height and width: sizes are multiples of 4


def draw_cells(n, size, seed):
    """Returns n images, uint16 (n, 1, height, width), and their masks, uint8 (n, height, width): 0, 1 and IGNORED."""
    rng = np.random.default_rng(seed)
    height, width = size
    rows, columns = np.mgrid[:height, :width]
    images, masks = np.empty((n, 1, *size), np.uint16), np.zeros((n, *size), np.uint8)
    for image, mask in zip(images[:, 0], masks, strict=True):
        waves = np.sin(rows / rng.uniform(20, 60) + rng.uniform(0, 6)) * np.cos(columns / rng.uniform(20, 60))
        light = 300 + 200 * waves
        for is_cell in [True] * rng.poisson(height * width / 3000) + [False] * rng.poisson(height * width / 2000):
            distance = ellipse(rows - rng.uniform(0, height), columns - rng.uniform(0, width), is_cell, rng)
            light += rng.uniform(300, 900) * np.clip(1.5 - distance, 0, 1)
            if is_cell:
                mask[(distance < 1.15) & (mask != 1)] = IGNORED  # the edge
                mask[distance < 0.9] = 1
        image[...] = np.clip(light + rng.normal(0, 60, size), 0, 65535)
        if rng.random() < 0.3:
            mask[:, : width // 5] = IGNORED  # not labelled
    return images, masks


def ellipse(rows, columns, is_cell, rng):
    """Returns the distance of each pixel from the centre, 1 at the edge of a cell, or of a smaller spot of dirt."""
    angle, long = rng.uniform(0, np.pi), rng.uniform(5, 8) if is_cell else rng.uniform(1, 2.5)
    along = rows * np.cos(angle) + columns * np.sin(angle)
    across = columns * np.cos(angle) - rows * np.sin(angle)
    return np.hypot(along / long, across / (long * rng.uniform(0.6, 0.9)))


def block(filters):
    """Returns a convolution, batch norm and ReLU."""
    return [Conv2D(filters, 3, padding=1, use_bias=False), BatchNorm2D(), ReLU()]


def unet(filters=12, levels=LEVELS):
    """Returns the layers of a U-Net: each level sees its input, and what the levels below make of half of it."""
    if levels == 1:
        return [*block(filters), *block(filters)]
    below = [MaxPool2D(2), *unet(2 * filters, levels - 1), Upsample2D(2)]
    return [*block(filters), Parallel([], below, join="concat"), *block(filters)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=60, help="to train on")
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num-threads", type=int)
    args = parser.parse_args()
    X, y = draw_cells(args.images, (96, 128), seed=10 + args.seed)
    print(f"{(y == 1).sum() / (y != IGNORED).sum():.1%} of the labelled pixels are cells")

    layers = [RandomCrop(CROP, padding=8), RandomFlip(vertical=True), Normalize(400.0, 200.0), *unet(), Conv2D(2, 1)]
    model = Sequential(layers, input_shape=(1, None, None), seed=args.seed)
    steps = args.epochs * -(-len(X) // 8)
    loss = SoftmaxCrossEntropy(weight=[1.0, 5.0], ignore_index=IGNORED)
    trainer = Trainer(model, loss, Adam(Cosine(0.01, steps)), ["iou"], seed=args.seed, num_threads=args.num_threads)
    start = perf_counter()
    history = trainer.fit(X, y, epochs=args.epochs, batch_size=8, verbose=0)
    print(f"{steps} steps in {perf_counter() - start:.1f} s, IoU of the last epoch's crops {history['iou'][-1]:.3f}")

    whole = Sequential([model[2:]], input_shape=(1, None, None))  # without RandomCrop and RandomFlip
    tester = Trainer(whole, loss, Adam(0.01), ["iou", "dice"], num_threads=args.num_threads)
    for size in ((96, 128), (200, 200), (64, 256)):
        found = tester.evaluate(*draw_cells(10, size, seed=1000))
        print(f"{size[0]:4} x {size[1]}: IoU {found['iou']:.3f}, Dice {found['dice']:.3f}")
    print(f"Weights {hashlib.sha256(b''.join(p.value.tobytes() for p in model.params.values())).hexdigest()[:16]}")


if __name__ == "__main__":
    main()
