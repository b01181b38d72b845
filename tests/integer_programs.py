"""Random programs of quantized nets, with branches, and how they run: natively, and by the reference."""

import itertools
from dataclasses import replace

import numpy as np
import reference_integer

from minidl import Sequential
from minidl.quantization import program as p
from minidl.quantization.integer_net import IntegerNet

MOST_ELEMENTS = 1500  # of a value of a program that is random as a whole
LARGEST = 2**31 - 1
KINDS = (
    *("sum_of_products", "sum_of_products", "max_pool", "average", "sum", "product", "lookup"),
    *("concatenate", "rearrange"),
)


def random_program(rng, operations=8):
    """Returns a program of one random operation or more, and at most `operations`, on random branches."""
    drawn = grown(rng, operations, extreme=rng.random() < 0.05)
    channels = drawn.values[0].shape[0]
    factors, offsets = rng.uniform(0.3, 2, channels), rng.uniform(-128, 20, channels)
    if rng.random() < 0.5:  # equal channels
        factors[:], offsets[:] = factors[0], offsets[0]
    if rng.random() < 0.2:  # bytes are shifted alone
        factors[:], offsets[:] = 1, -128
    return replace(drawn.program, input=p.QuantizeInput(factors, offsets))


def grown(rng, operations, extreme=False):
    """Returns what random_program is made of, whose input is int8 numbers as they are."""
    drawn = Drawn(rng, tuple(int(k) for k in rng.integers(1, (9, 12, 12))), extreme, MOST_ELEMENTS)
    count = int(rng.integers(1, operations + 1))
    while len(drawn.operations) < count:
        drawn.any_operation()
    return drawn


class Drawn:
    """A program that grows by random operations. The input is int8 numbers as they are: one times x, plus 0.

    extreme: whether bytes and zero points are -128 or 127 alone, and sums as large as they may be.
    """

    def __init__(self, rng, shape, extreme=False, most_elements=None):
        self.rng, self.extreme, self.most_elements = rng, extreme, most_elements
        self.values = [p.Value(shape, p.Quantization(1.0, self.zero_point()))]
        self.operations = []

    @property
    def program(self):
        c = self.values[0].shape[0]
        return p.Program(p.QuantizeInput(np.ones(c), np.zeros(c)), tuple(self.values), tuple(self.operations))

    def add(self, operation, shape, quantization):
        """Adds an operation and returns the index of its value, unless it is too large."""
        shape = tuple(int(n) for n in shape)
        if self.most_elements is not None and np.prod(shape) > self.most_elements:
            return None
        self.operations.append(operation)
        self.values.append(p.Value(shape, quantization))
        return len(self.operations)

    def any_operation(self):
        """Adds an operation of any of the values before it."""
        kind, x = str(self.rng.choice(KINDS)), self.pick()
        shape, made = self.values[x].shape, self.values[x].quantization
        more = range(int(self.rng.integers(0, 4)))
        if kind == "sum":
            self.sum(x, *(self.pick(lambda value: value.shape == shape) for _ in more))
        elif kind == "product":
            self.product(x, self.pick(lambda value: value.shape in (shape, (shape[0], 1, 1))))
        elif kind == "concatenate":
            self.concatenate(x)
        elif kind == "rearrange":
            self.rearrange([x, *(self.pick(lambda value: value.quantization == made) for _ in more[1:])])
        else:
            getattr(self, kind)(x)

    # ---- parts of operations

    def pick(self, fits=lambda value: True):
        """Returns the index of a value that fits, the last one more often than others."""
        fitting = [k for k, value in enumerate(self.values) if fits(value)]
        return fitting[-1] if self.rng.random() < 0.6 else int(self.rng.choice(fitting))

    def zero_point(self):
        if self.extreme:
            return int(self.rng.choice([-128, 127]))
        return int(self.rng.choice([-128, 127, 0, *self.rng.integers(-128, 128, 3)]))

    def quantization(self):
        """Returns that of one of the values, or another one."""
        if self.rng.random() < 0.5:
            return self.values[int(self.rng.integers(len(self.values)))].quantization
        return p.Quantization(float(self.rng.uniform(0.001, 0.5)), self.zero_point())

    def bytes(self, size):
        """Returns int8 numbers, or only the extreme ones."""
        numbers = self.rng.choice([-128, 127], size) if self.extreme else self.rng.integers(-128, 128, size)
        return numbers.astype(np.int8)

    def factor(self, sum_of):
        """Returns a multiplier and a shift, mostly for some 60 from sums of about this size; small ones make ties."""
        kind = self.rng.random()
        if kind < 0.15:
            multiplier = self.rng.choice([0, 1, 12345, 2**30, LARGEST, self.rng.integers(LARGEST)])
            return int(multiplier), int(self.rng.choice([1, 2, 30, 31, 32, 62, self.rng.integers(1, 63)]))
        real = float(self.rng.uniform(20, 100)) / max(sum_of, 1)
        digits = 31 if kind < 0.6 else int(self.rng.integers(1, 4))
        shift = int(np.clip(digits - 1 - int(np.floor(np.log2(real))), 1, 62))
        return min(max(round(real * 2.0**shift), 1), LARGEST), shift

    def limits(self, made):
        """Returns low and high: of all numbers, from the zero point on, or any."""
        low, high = sorted(int(k) for k in self.rng.integers(-128, 128, 2))
        chosen = int(self.rng.choice(3, p=(0.6, 0.3, 0.1)))
        return ((p.LOW, p.HIGH), (made.zero_point, p.HIGH), (low, high))[chosen]

    def windows(self, size, least):
        """Returns ranges along an axis: those of a pool, of a global one, or any of at least `least` cells."""
        if (kind := self.rng.random()) < 0.25:
            return ((0, size),)
        if kind < 0.6:
            starts = self.rng.integers(0, size + 1 - least, int(self.rng.integers(1, 6)))
            return tuple((int(a), int(self.rng.integers(a + least, size + 1))) for a in starts)
        kernel, stride = (int(n) for n in self.rng.integers(1, 4, 2))
        before = int(self.rng.integers(0, kernel))
        starts = range(-before, max(size - kernel + before, 0) + 1, stride)
        found = [(max(start, 0), min(start + kernel, size)) for start in starts]
        return tuple((first, end) for first, end in found if first < end)

    # ---- operations: each returns the index of its value

    def sum_of_products(self, x, **fixed):
        """Adds a convolution of random geometry, except for what is given, or a dense layer."""
        rng, (c, h, w) = self.rng, self.values[x].shape
        if not fixed and rng.random() < 0.2:
            ones, none = (1, 1), (0, 0, 0, 0)
            fixed = {"kernel": (h, w), "groups": 1, "padding": none, "dilation": ones, "stride": ones}
        groups = fixed.get("groups", int(rng.choice([g for g in range(1, c + 1) if c % g == 0])))
        outputs = fixed.get("outputs", groups * int(rng.integers(1, max(2, 13 // groups))))
        sides = [0, 0, 0, 0] if rng.random() < 0.4 else rng.integers(0, 4, 4)
        padding = fixed.get("padding", tuple(int(k) for k in sides))
        dilation = fixed.get("dilation", tuple(int(k) for k in rng.integers(1, 3, 2)))
        stride = fixed.get("stride", tuple(int(k) for k in rng.integers(1, 4, 2)))
        sides = h + padding[0] + padding[1], w + padding[2] + padding[3]
        most = [min(5, (side - 1) // d + 1) for side, d in zip(sides, dilation, strict=True)]
        if rng.random() < 0.2:
            most = [1, 1]
        kernel = fixed.get("kernel", tuple(int(rng.integers(1, k + 1)) for k in most))
        weights = np.maximum(self.bytes((outputs, c // groups, *kernel)), -p.LARGEST_WEIGHT)
        spread = 70 * 70 * weights[0].size ** 0.5
        biases = np.round(rng.normal(0, spread, outputs)).astype(np.int64)
        room = p.SUM_LIMIT - np.abs(weights.astype(int)).sum(axis=(1, 2, 3)) * 256
        largest = rng.random(outputs) < (1.0 if self.extreme else 0.1)  # so that the largest sum is the largest number
        biases[largest] = (rng.choice([-1, 1], outputs) * room)[largest]
        factors = np.array([self.factor(p.SUM_LIMIT if self.extreme else spread) for _ in range(outputs)])
        out = [(side - (k - 1) * d - 1) // s + 1 for side, k, d, s in zip(sides, kernel, dilation, stride, strict=True)]
        made = self.quantization()
        operation = p.SumOfProducts(
            f"{len(self.operations)}, Conv2D", (x,), weights, biases.astype(np.int32), *factors.astype(np.int32).T,
            stride, padding, dilation, groups, *self.limits(made),
        )  # fmt: skip
        return self.add(operation, (outputs, *out), made)

    def max_pool(self, x):
        c, h, w = self.values[x].shape
        rows, columns = self.windows(h, 1), self.windows(w, 1)
        steps = tuple(int(k) for k in self.rng.integers(1, 3, 2))
        shape = c, len(rows), len(columns)
        return self.add(p.MaxPool("MaxPool2D", (x,), rows, columns, steps), shape, self.values[x].quantization)

    def average(self, x):
        c, h, w = self.values[x].shape
        axes = [self.windows(size, 0) for size in (h, w)]
        counts = [tuple(max(end - first + int(self.rng.integers(0, 2)), 1) for first, end in axis) for axis in axes]
        divisors = {a * b for a, b in itertools.product(*counts)}
        factors = {d: self.factor(70 * d) for d in sorted(divisors)}
        operation = p.AveragePool("AvgPool2D", (x,), *axes, *counts, factors)
        return self.add(operation, (c, *map(len, axes)), self.quantization())

    def sum(self, *xs):
        shift, made = int(self.rng.integers(1, self.rng.choice([6, 31]))), self.quantization()  # small ones make ties
        most = (p.SUM_LIMIT - 2 ** (shift - 1)) // (255 * len(xs))
        wanted = min(most, max(2**shift // len(xs), 1))
        multipliers = self.rng.choice([-most, most], len(xs))
        if not self.extreme:
            multipliers = self.rng.integers(-wanted, wanted + 1, len(xs))
        operation = p.Add("Add", xs, tuple(int(k) for k in multipliers), shift, *self.limits(made))
        return self.add(operation, self.values[xs[0]].shape, made)

    def product(self, a, b):
        factor = self.factor(255 * 255 if self.extreme else 5000)
        return self.add(p.Multiply("SqueezeExcite", (a, b), *factor), self.values[a].shape, self.quantization())

    def lookup(self, x, made=None):
        operation = p.Lookup("Sigmoid", (x,), self.bytes(256))
        return self.add(operation, self.values[x].shape, made or self.quantization())

    def alike(self, x):
        """Adds a table of x; returns its value, of the quantization of x."""
        return self.lookup(x, self.values[x].quantization)

    def rearrange(self, xs, shape=None, index=None):
        """Adds a copy of values of one quantization: of those of an index, or any that `moved` or a draw chooses."""
        size = sum(int(np.prod(self.values[x].shape)) for x in xs)
        if index is None:
            index = self.rng.integers(-1, size, self.rng.integers(1, 7, 3))
            if len(xs) == 1 and self.rng.random() < 0.7:
                index = self.moved(np.arange(size).reshape(self.values[xs[0]].shape))
            shape = index.shape
        operation = p.Rearrange("Copy", tuple(xs), index.ravel().astype(np.int32))
        return self.add(operation, shape, self.values[xs[0]].quantization)

    def moved(self, places):
        """Returns places (c, h, w) flattened, padded, cropped, as larger pixels, or in another order."""
        rng = self.rng
        amounts = [tuple(int(n) for n in rng.integers(0, 3, 2)) for _ in range(3)]
        changes = [
            lambda: places.reshape(-1, 1, 1),
            lambda: np.pad(places, amounts, constant_values=-1),
            lambda: places[:, min(amounts[1][0], places.shape[1] - 1) :, : places.shape[2] - amounts[2][1] or 1],
            lambda: places.transpose(rng.permutation(3)),
            lambda: places.repeat(2, axis=1).repeat(int(rng.integers(1, 4)), axis=2),
            lambda: places[rng.permutation(places.shape[0])],
            lambda: rng.permutation(places.ravel()).reshape(places.shape),
        ]
        found = changes[int(rng.integers(len(changes)))]()
        return found if found.size else places

    def concatenate(self, x):
        """Adds a copy of x and others of its quantization, along the channels or as one vector."""
        made, image = self.values[x].quantization, self.values[x].shape[1:]
        same_image = self.rng.random() < 0.7

        def fits(value):
            return value.quantization == made and (value.shape[1:] == image or not same_image)

        xs = [x, *(self.pick(fits) for _ in range(int(self.rng.integers(1, 3))))]
        size = sum(int(np.prod(self.values[k].shape)) for k in xs)
        shape = (size // int(np.prod(image)), *image) if same_image else (size, 1, 1)
        return self.rearrange(xs, shape, np.arange(size))


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
