"""Compares parts of a training step in NumPy whose BLAS has one thread, as minidl sets it, with all of its threads.

A step at a time: the parts are a dense layer with `@`, small and wide, and the optimizer Muon. README.md describes the
method.
"""

import argparse
import statistics
from contextlib import ExitStack
from unittest import mock

import numpy as np
from conditions import busy_neighbours
from measure import PAUSE, Side, alternate, machine, positive, print_machine, settle, usable_cores, write_json

from minidl import Layer, Sequential, Trainer
from minidl.initializers import damped_he_uniform, zeros
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU
from minidl.optimizers import SGD
from minidl.utils.threadpool import OneBlasThread


class NumpyDense(Layer):
    """Dense in NumPy."""

    def __init__(self, units):
        self.units = units

    def build(self, in_shape):
        self.weight = self.param("weight", (self.units, *in_shape), damped_he_uniform)
        self.bias = self.param("bias", (self.units,), zeros)
        return (self.units,)

    def forward(self, x, training):
        if training:
            self.x = x
        return x @ self.weight.value.T + self.bias.value

    def backward(self, dy):
        self.weight.grad[...] = dy.T @ self.x
        self.bias.grad[...] = dy.sum(axis=0)
        return dy @ self.weight.value


class Muon:
    """Momentum whose matrices are made orthogonal by five steps of Newton and Schulz (Jordan et al. 2024)."""

    def __init__(self, lr=0.02, momentum=0.95):
        self.lr, self.momentum, self.velocity = lr, momentum, {}

    def step(self, params, lr):
        for name, param in params.items():
            velocity = self.velocity.setdefault(name, np.zeros_like(param.value))
            velocity *= self.momentum
            velocity += param.grad
            change = velocity
            if velocity.ndim > 1:
                m = velocity.reshape(len(velocity), -1)
                m = m / (np.linalg.norm(m) + 1e-7)
                for _ in range(5):
                    square = m @ m.T
                    m = 3.4445 * m + (-4.7750 * square + 2.0315 * square @ square) @ m
                change = m.reshape(velocity.shape)
            param.value -= lr * change


def small_layer():
    model = Sequential([Conv2D(8, 3), ReLU(), MaxPool2D(2), Flatten(), NumpyDense(128), ReLU(), Dense(10)], (1, 28, 28))
    return model, SGD(0.01), 64


def wide_layer():
    return Sequential([NumpyDense(2048), ReLU(), NumpyDense(2048), ReLU(), Dense(10)], (784,)), SGD(0.01), 256


def optimizer():
    return Sequential([Dense(256), ReLU(), Dense(256), ReLU(), Dense(10)], (784,)), Muon(), 64


PARTS = {"small layer": small_layer, "wide layer": wide_layer, "optimizer": optimizer}


def sides_of(part, threads):
    """Returns the sides of a part: steps inside `fit`."""

    def run(limited):
        def steps(count):
            with ExitStack() as stack:
                if not limited:
                    for method in ("__enter__", "__exit__"):
                        stack.enter_context(mock.patch.object(OneBlasThread, method, lambda *arguments: None))
                trainer.fit(X[: count * batch], y[: count * batch], batch_size=batch, verbose=0)

        return steps

    model, made, batch = PARTS[part]()
    trainer = Trainer(model, "softmax_cross_entropy", made, num_threads=threads)
    rng, count = np.random.default_rng(0), 200 * batch
    X, y = rng.random((count, *model.input_shape), dtype="float32"), rng.integers(0, 10, count)
    return [Side("one BLAS thread", run(True)), Side("all BLAS threads", run(False))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--busy", nargs="+", type=int, default=[0, 1], help="numbers of busy processes")
    parser.add_argument("--threads", nargs="+", type=positive, default=[1, usable_cores()], help="of minidl")
    parser.add_argument("--rounds", type=positive, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each round")
    parser.add_argument("--steps", type=positive, default=69, help="at most, of each round")
    parser.add_argument("--json", help="file for the results")
    args = parser.parse_args()
    results = {"machine": machine()}
    print_machine(results["machine"])
    print(f"\nmean milliseconds per step; a pause of {PAUSE} s before each round\n")
    for busy in args.busy:
        for threads in args.threads:
            for part in args.parts:
                sides = sides_of(part, threads)
                with busy_neighbours(busy):
                    settle(sides, args.steps, args.seconds)
                    alternate(sides, args.rounds)
                name = f"{busy} busy, {threads} threads, {part}"
                results[name] = {side.name: side.rounds for side in sides}
                one, all_of_them = (statistics.fmean(side.rounds) for side in sides)
                print(f"{name:36}{one:9.3f} /{all_of_them:9.3f}  {all_of_them / one:6.2f}x", flush=True)
                write_json(args.json, results)


if __name__ == "__main__":
    main()
