"""Random programs of quantized nets, and how they run: natively, and by the reference."""

import numpy as np
import reference_integer

from minidl import Sequential
from minidl.quantization import program as p
from minidl.quantization.integer_net import IntegerNet


class Drawn:
    """A program that grows by random operations. The input is int8 numbers as they are: one times x, plus 0."""

    def __init__(self, rng, shape, extreme=False):
        self.rng, self.extreme = rng, extreme
        self.values = [p.Value(shape, self.quantization(1.0))]
        self.operations = []

    def quantization(self, scale=0.5):
        return p.Quantization(
            scale, int(self.rng.choice([-128, 127]) if self.extreme else self.rng.integers(-128, 128))
        )

    def add(self, operation, shape, quantization=None):
        """Adds an operation; returns the index of its value."""
        self.operations.append(operation)
        self.values.append(p.Value(shape, quantization or self.quantization()))
        return len(self.operations)

    @property
    def program(self):
        c = self.values[0].shape[0]
        return p.Program(p.QuantizeInput(np.ones(c), np.zeros(c)), tuple(self.values), tuple(self.operations))

    def bytes(self, size):
        """Returns int8 numbers, or only the extreme ones."""
        return (self.rng.choice([-128, 127], size) if self.extreme else self.rng.integers(-128, 128, size)).astype(
            np.int8
        )

    def factors(self, count, sum_of):
        """Returns multipliers and shifts that bring sums of about this size to 8 bits, and others."""
        shifts = self.rng.integers(31, 45, count)
        wanted = 60 / max(sum_of, 1) * 2.0**shifts
        multipliers = np.clip(wanted, 1, 2**31 - 1)
        odd = self.rng.random(count) < 0.2
        multipliers = np.where(odd, self.rng.choice([0, 1, 12345, 2**30, 2**31 - 1], count), multipliers)
        shifts = np.where(
            odd & (self.rng.random(count) < 0.6), self.rng.choice([1, 2, 20, 30, 31, 32, 62], count), shifts
        )
        return multipliers.astype(np.int32), shifts.astype(np.int32)

    def limits(self):
        return sorted(int(k) for k in self.rng.integers(-128, 128, 2)) if self.rng.random() < 0.3 else (p.LOW, p.HIGH)

    def sum_of_products(self, x, **fixed):
        """Adds a convolution of random geometry, except for what is given."""
        rng, (c, h, w) = self.rng, self.values[x].shape
        groups = fixed.get("groups", int(rng.choice([g for g in range(1, c + 1) if c % g == 0])))
        outputs = fixed.get("outputs", groups * int(rng.integers(1, max(2, 13 // groups))))
        padding = fixed.get("padding", tuple(int(k) for k in rng.integers(0, 4, 4)))
        dilation = fixed.get("dilation", tuple(int(k) for k in rng.integers(1, 3, 2)))
        stride = fixed.get("stride", tuple(int(k) for k in rng.integers(1, 4, 2)))
        sides = h + padding[0] + padding[1], w + padding[2] + padding[3]
        most = [min(5, (side - 1) // d + 1) for side, d in zip(sides, dilation, strict=True)]
        kernel = fixed.get("kernel", tuple(int(rng.integers(1, k + 1)) for k in most))
        weights = np.maximum(self.bytes((outputs, c // groups, *kernel)), -p.LARGEST_WEIGHT)
        size = np.prod(weights.shape[1:])
        biases = rng.integers(-3000, 3000, outputs)
        if self.extreme:  # so that the largest sum is the largest number
            bound = np.abs(weights.astype(int)).sum(axis=(1, 2, 3)) * 255
            biases = np.where(rng.random(outputs) < 0.5, -1, 1) * (p.SUM_LIMIT - bound)
        multipliers, shifts = self.factors(outputs, p.SUM_LIMIT if self.extreme else 60 * 60 * size**0.5)
        out = [(side - (k - 1) * d - 1) // s + 1 for side, k, d, s in zip(sides, kernel, dilation, stride, strict=True)]
        low, high = self.limits()
        made = p.SumOfProducts(
            f"{len(self.operations)}, Conv2D", (x,), weights, biases.astype(np.int32), multipliers, shifts,
            stride, padding, dilation, groups, low, high,
        )  # fmt: skip
        return self.add(made, (outputs, *out))

    def ranges(self, size, least):
        count = int(self.rng.integers(1, 6))
        starts = self.rng.integers(0, size + 1 - least, count)
        return tuple((int(a), int(self.rng.integers(a + least, size + 1))) for a in starts)

    def max_pool(self, x):
        c, h, w = self.values[x].shape
        rows, columns = self.ranges(h, 1), self.ranges(w, 1)
        steps = tuple(int(k) for k in self.rng.integers(1, 3, 2))
        shape = c, len(rows), len(columns)
        return self.add(p.MaxPool("MaxPool2D", (x,), rows, columns, steps), shape, self.values[x].quantization)

    def average(self, x):
        c, h, w = self.values[x].shape
        rows, columns = self.ranges(h, 0), self.ranges(w, 0)
        counts = [tuple(int(k) for k in self.rng.integers(1, 5, len(of))) for of in (rows, columns)]
        divisors = {a * b for a in counts[0] for b in counts[1]}
        factors = {d: tuple(int(of[0]) for of in self.factors(1, 60 * d)) for d in sorted(divisors)}
        return self.add(p.AveragePool("AvgPool2D", (x,), rows, columns, *counts, factors), (c, len(rows), len(columns)))

    def sum(self, *xs):
        shift, most = int(self.rng.integers(1, 31)), p.SUM_LIMIT
        most = (most - 2 ** (shift - 1)) // (255 * len(xs))
        wanted = min(most, max(2**shift // len(xs), 1))
        multipliers = tuple(int(k) for k in self.rng.integers(-wanted, wanted + 1, len(xs)))
        if self.extreme:
            multipliers = tuple(int(k) for k in self.rng.choice([-most, most], len(xs)))
        return self.add(p.Add("Add", xs, multipliers, shift, *self.limits()), self.values[xs[0]].shape)

    def product(self, a, b):
        factor = (int(of[0]) for of in self.factors(1, 255 * 255 if self.extreme else 5000))
        return self.add(p.Multiply("SqueezeExcite", (a, b), *factor), self.values[a].shape)

    def lookup(self, x):
        return self.add(p.Lookup("Sigmoid", (x,), self.bytes(256)), self.values[x].shape)

    def rearrange(self, xs, shape=None, index=None):
        """Adds a copy of values of one quantization: of any elements, or those of an index."""
        size = sum(int(np.prod(self.values[x].shape)) for x in xs)
        shape = shape or tuple(int(k) for k in self.rng.integers(1, 7, 3))
        index = self.rng.integers(-1, size, int(np.prod(shape))) if index is None else index
        return self.add(
            p.Rearrange("Concat", tuple(xs), index.astype(np.int32)), shape, self.values[xs[0]].quantization
        )

    def alike(self, x):
        """Adds a table of x; returns its value, of the quantization of x."""
        return self.add(p.Lookup("ReLU", (x,), self.bytes(256)), self.values[x].shape, self.values[x].quantization)


def model_of(program):
    return Sequential([IntegerNet(program)], input_shape=program.values[0].shape)


def check(drawn, n=None, num_threads=1):
    """Compares the last value with the reference, for random examples."""
    program = drawn.program
    n = int(drawn.rng.integers(1, 40)) if n is None else n
    q = drawn.bytes((n, *program.values[0].shape))
    model = model_of(program)
    scores = model.predict(q.astype(np.float32), num_threads=num_threads)
    expected = reference_integer.run(program, q)[-1].reshape(scores.shape)
    np.testing.assert_array_equal(model.layers[0].quantized(scores), expected)
    scale, zero_point = np.float32(program.values[-1].quantization.scale), program.values[-1].quantization.zero_point
    np.testing.assert_array_equal(scores, scale * (expected.astype(np.float32) - np.float32(zero_point)))
    return scores
