"""Runs an op with a planted fault (canary_op.pyx) forward and backward, and prints a hash of the results."""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from conformance.nets import digest

from minidl_c.kernels.dense import DenseOp
from minidl_c.kernels.flatten import FlattenOp
from minidl_c.kernels.relu import ReLUOp
from minidl_c.losses.softmax_cross_entropy import SoftmaxCrossEntropyOp
from minidl_c.runtime.plan import Plan
from minidl_c.runtime.training_call import TrainingCall

SHAPE, SIZE, CLASSES = (16, 2, 5), 160, 5  # enough channels for threads to share a tile


def forward_and_backward(op, n: int, threads: int) -> list[np.ndarray]:
    """Runs the op between two others, forward and backward; returns y, dx and the gradients."""
    plan = Plan([ReLUOp(SHAPE), op, FlattenOp(SHAPE)], [0, 0, 0])
    x, y, dx = np.random.default_rng(0).standard_normal((3, n, SIZE)).astype("f4")
    param, grad = np.zeros((2, 512), "f4")
    kept = plan.forward(x, param, y, threads)
    plan.backward(kept, y, dx, param, grad)
    return [y, dx, grad]


def train(update, n: int, threads: int) -> list[np.ndarray]:
    """Trains a dense layer for two steps with the optimizer; returns losses and gradients."""
    plan = Plan([DenseOp((SIZE,), CLASSES), SoftmaxCrossEntropyOp((CLASSES,))], [0, 0], True)
    x, losses = np.ones((n, SIZE), "f4"), np.empty(2 * n, "f4")
    rows, labels = np.arange(2 * n) % n, np.zeros(n, np.int64)
    param, grad = np.zeros((2, (SIZE + 1) * CLASSES), "f4")
    counts, rates = np.full(2, float(n)), np.full(2, 0.1)
    done = np.zeros(1, np.int64)
    call = x, rows, n, labels, None, losses, None, counts, rates, param, grad, update, threads, 0, done
    plan.train(TrainingCall(*call))
    return [losses, grad]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fault", help='"none" or a fault of canary_op.pyx')
    parser.add_argument("--examples", type=int, default=19)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    from canary_op import CanaryOp, CanaryUpdate  # built by instrumented.py

    if options.fault == "shares update":
        found = train(CanaryUpdate((SIZE + 1) * CLASSES), options.examples, options.threads)
    else:
        found = forward_and_backward(CanaryOp(SHAPE, options.fault), options.examples, options.threads)
    print(digest(found))


if __name__ == "__main__":
    main()
