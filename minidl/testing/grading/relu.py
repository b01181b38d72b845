"""The exercise ReLU: y = max(x, 0), and the mistakes that are known."""

from __future__ import annotations

import numpy as np

from minidl.layers.relu import ReLU
from minidl.testing.grading.layer_exercise import LayerExercise

# Examples x (6, 2, 5) with zeros, and numbers from -9 to 9.
RELU = LayerExercise(
    ReLU,
    (),
    lambda rng: rng.integers(-9, 10, (6, 2, 5)) * rng.integers(0, 2, (6, 2, 5)) * 1.0,
    {
        "y": [
            ("nothing is cut off: numbers below 0 stay",
             lambda c: c.x),
            ("numbers below 0 change their sign, which is the absolute value; they become 0",
             lambda c: np.abs(c.x)),
            ("the wrong side is cut off: numbers above 0 stay, those below become 0",
             lambda c: np.minimum(c.x, 0)),
            ("numbers below 0 keep a small slope, which is a leaky ReLU; they become 0",
             lambda c: np.where(c.x > 0, c.x, 0.01 * c.x)),
            ("numbers above 6 are cut off, too, which is ReLU6",
             lambda c: np.clip(c.x, 0, 6)),
            ("numbers above 0 become 1, which is a step; they stay as they are",
             lambda c: (c.x > 0) * 1.0),
            ("numbers below 1 become 1: the bound is 0",
             lambda c: np.maximum(c.x, 1)),
            ("the signs of the first example decide for all; each example has its own",
             lambda c: c.x * (c.x[0] > 0)),
            ("an example is cut off as a whole; each of its numbers has a sign of its own",
             lambda c: c.x * (c.x.sum((1, 2), keepdims=True) > 0)),
            ("the result is the largest number of each place in the batch; examples know nothing of each other",
             lambda c: np.broadcast_to(np.maximum(c.x.max(0), 0), c.x.shape)),
        ],
        "dx": [
            ("dy is passed on as it is; the slope is missing, which is 0 where x is below 0",
             lambda c: c.dy),
            ("dx is the slope alone; by the chain rule it is multiplied by dy",
             lambda c: (c.x > 0) * 1.0),
            ("the sign of dy decides; that of x does, as in forward",
             lambda c: np.maximum(c.dy, 0)),
            ("dy passes where x is exactly 0; there the slope is 0, as at the left",
             lambda c: c.dy * (c.x >= 0)),
            ("dy is multiplied by the output; the slope is 1 where x is above 0",
             lambda c: c.dy * c.y),
            ("dy is multiplied by x; the slope is 0 or 1",
             lambda c: c.dy * c.x),
            ("dy passes on the wrong side, where x is below 0",
             lambda c: c.dy * (c.x < 0)),
            ("the slope is -1 where x is below 0, which is that of the absolute value",
             lambda c: c.dy * np.sign(c.x)),
            ("the slope is 0.01 where x is below 0, which is that of a leaky ReLU",
             lambda c: c.dy * np.where(c.x > 0, 1, 0.01)),
            ("the signs of the first example decide for all; each example has its own",
             lambda c: c.dy * (c.x[0] > 0)),
            ("dx is divided by the number of examples; an example's dx is its own",
             lambda c: c.dx / c.n),
            ("dx is summed over the batch; only gradients of parameters are, and this layer has none",
             lambda c: np.broadcast_to(c.dx.sum(0), c.x.shape)),
            ("the sign of dx is the other one; the optimizer subtracts",
             lambda c: -c.dx),
        ],
    },
    others=[((), (7,))],
)  # fmt: skip
