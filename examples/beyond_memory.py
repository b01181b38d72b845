"""Data that does not fit into memory
=====================================

A generator makes batches for `train_batch`: it can read them from anywhere. This one draws new images without end.

Run it with: `python examples/beyond_memory.py`

An array on a disk needs no generator: `fit` reads a memory map, `np.load(path, mmap_mode="r")`, batch by batch.
"""

import itertools

import numpy as np

from minidl import Sequential, Trainer
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU
from minidl.optimizers import Adam
from minidl.schedules import Cosine

STEPS, BATCH_SIZE, SIZE = 1000, 64, 16

# %%
# The generator
# -------------
# It never ends. A generator of your own could read files, a database or a camera.


def draw_batches(seed):
    """Yields batches of bright discs and squares, of random size and position, in noise; and their labels."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    while True:
        y = rng.integers(0, 2, BATCH_SIZE)
        radius = rng.uniform(2, 5, (BATCH_SIZE, 1, 1))
        down, across = (rng.uniform(4, SIZE - 5, (BATCH_SIZE, 1, 1)) for _ in range(2))
        v, u = np.abs(rows - down), np.abs(columns - across)
        disc, square = np.hypot(v, u) < radius, np.maximum(v, u) < radius * 0.886  # of the same area
        images = np.where(y[:, None, None], square, disc) + rng.normal(0, 0.3, (BATCH_SIZE, SIZE, SIZE))
        yield images[:, np.newaxis].astype(np.float32), y


# %%
# Training
# --------
# `train_batch` takes one step, and returns the loss before it.

model = Sequential(
    [Conv2D(8, 5), ReLU(), MaxPool2D(2), Conv2D(16, 3), ReLU(), Flatten(), Dense(32), ReLU(), Dense(2)],
    input_shape=(1, SIZE, SIZE),
)
trainer = Trainer(model, "softmax_cross_entropy", Adam(Cosine(0.005, STEPS)), ["accuracy"])
losses = []
for X, y in itertools.islice(draw_batches(seed=0), STEPS):
    losses.append(trainer.train_batch(X, y))
    if trainer.step % 200 == 0:
        print(f"step {trainer.step}: loss {np.mean(losses[-200:]):.4f}")

# %%
# The test images come from the same generator with another seed.

X, y = (np.concatenate(parts) for parts in zip(*itertools.islice(draw_batches(seed=1), 20), strict=True))
print(f"Test accuracy {trainer.evaluate(X, y)['accuracy']:.2%} on {len(X):,} new images")
