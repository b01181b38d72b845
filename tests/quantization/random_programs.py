"""Random programs of quantized nets, with branches, for tests of what computes them."""

import itertools

import numpy as np

from minidl.quantization import program as p

MAX_ELEMENTS = 1500  # of a value
LARGEST = 2**31 - 1


def random_program(rng, operations=8):
    """Returns a program of at least one random operation and at most `operations`, on random branches."""
    shape = tuple(int(n) for n in rng.integers(1, (7, 11, 11)))
    factors, offsets = rng.uniform(0.3, 2, shape[0]), rng.uniform(-128, 20, shape[0])
    if rng.random() < 0.5:  # equal channels
        factors[:], offsets[:] = factors[0], offsets[0]
    if rng.random() < 0.2:  # bytes are shifted alone
        factors[:], offsets[:] = 1, -128
    return Draw(rng, shape).program(p.QuantizeInput(factors, offsets), int(rng.integers(1, operations + 1)))


class Draw:
    """The values and operations that are drawn so far."""

    def __init__(self, rng, shape):
        self.rng, self.operations = rng, []
        self.values = [p.Value(shape, self.quantization([]))]

    def program(self, made, count):
        while len(self.operations) < count:
            KINDS[int(self.rng.integers(len(KINDS)))](self)
        return p.Program(made, tuple(self.values), tuple(self.operations))

    # ---- parts of operations

    def quantization(self, values):
        """Returns that of one of the values, or another one."""
        if values and self.rng.random() < 0.5:
            return values[int(self.rng.integers(len(values)))].quantization
        zero = int(self.rng.choice([-128, 127, 0, self.rng.integers(-128, 128)]))
        return p.Quantization(float(self.rng.uniform(0.001, 0.5)), zero)

    def pick(self, fits=lambda value: True):
        """Returns the index of a value, the last one more often than others; None if none fits."""
        fitting = [k for k, value in enumerate(self.values) if fits(value)]
        if not fitting:
            return None
        return fitting[-1] if self.rng.random() < 0.6 else int(self.rng.choice(fitting))

    def add(self, kind, inputs, shape, fields, quantization=None):
        """Adds an operation, unless its value were too large."""
        if 0 < np.prod(shape) <= MAX_ELEMENTS:
            quantization = quantization or self.quantization(self.values)
            self.operations.append(kind(f"{len(self.operations)}, {kind.kind}", tuple(inputs), *fields(quantization)))
            self.values.append(p.Value(tuple(int(n) for n in shape), quantization))

    def factor(self, spread):
        """Returns a multiplier and a shift, mostly for some 60 from sums of `spread`; small ones make ties."""
        kind = self.rng.random()
        if kind < 0.1:
            return int(self.rng.choice([0, 1, LARGEST, self.rng.integers(LARGEST)])), int(self.rng.integers(1, 63))
        real = float(self.rng.uniform(20, 100)) / max(spread, 1)
        digits = 31 if kind < 0.6 else int(self.rng.integers(1, 4))
        exponent = int(np.floor(np.log2(real))) + 1 - digits
        shift = int(np.clip(-exponent, 1, 62))
        return min(max(round(real * 2.0**shift), 1), LARGEST), shift

    def bounds(self, zero):
        """Returns low and high: of all numbers, from the zero point on, or any."""
        low, high = sorted(int(n) for n in self.rng.integers(-128, 128, 2))
        return [(-128, 127), (zero, 127), (low, high)][int(self.rng.integers(3))]

    def windows(self, size, dilated):
        """Returns the ranges of windows along an axis, and the step between their cells."""
        step = int(self.rng.integers(1, 3)) if dilated else 1
        if self.rng.random() < 0.3:  # of a global pool
            return ((0, size),), step
        kernel, stride = (int(n) for n in self.rng.integers(1, 4, 2))
        before = int(self.rng.integers(0, kernel))
        starts = range(-before, max(size - kernel + before, 0) + 1, stride)
        found = [(max(start, 0), min(start + kernel, size)) for start in starts]
        return tuple((first, end) for first, end in found if first < end), step


def sum_of_products(draw):
    """A convolution of any groups, or a dense layer."""
    rng, source = draw.rng, draw.pick()
    c, h, w = draw.values[source].shape
    if rng.random() < 0.25:
        kernel, stride, padding, dilation, groups = (h, w), (1, 1), (0, 0, 0, 0), (1, 1), 1
    else:
        kernel, stride, dilation = (tuple(int(n) for n in rng.integers(1, k, 2)) for k in (4, 3, 3))
        padding = tuple(int(n) for n in rng.integers(0, 3, 4)) if rng.random() < 0.6 else (0, 0, 0, 0)
        if rng.random() < 0.2:
            kernel, padding, stride = (1, 1), (0, 0, 0, 0), ((1, 1), stride)[int(rng.integers(2))]
        groups = int(rng.choice([n for n in range(1, c + 1) if c % n == 0]))
    outputs = groups * int(rng.integers(1, 5))
    sides = zip((h, w), kernel, stride, (sum(padding[:2]), sum(padding[2:])), dilation, strict=True)
    image = [(size + more - (k - 1) * d - 1) // s + 1 for size, k, s, more, d in sides]
    weights = rng.integers(-127, 128, (outputs, c // groups, *kernel)).astype(np.int8)
    spread = 70 * 70 * np.sqrt(weights[0].size)
    biases = np.round(rng.normal(0, spread, outputs)).astype(np.int64)
    room = LARGEST - 256 * np.abs(weights.reshape(outputs, -1).astype(np.int64)).sum(axis=1)
    extreme = rng.random(outputs) < 0.1
    biases[extreme] = (room * rng.choice([-1, 1], outputs))[extreme]
    factors = np.array([draw.factor(spread) for _ in range(outputs)]).T.astype(np.int32)
    if min(image) > 0:
        draw.add(
            p.SumOfProducts, [source], (outputs, *image),
            lambda q: (weights, biases.astype(np.int32), *factors, stride, padding, dilation, groups,
                       *draw.bounds(q.zero_point)),
        )  # fmt: skip


def max_pool(draw):
    source = draw.pick()
    c, *image = draw.values[source].shape
    (rows, row_step), (columns, column_step) = (draw.windows(size, True) for size in image)
    fields = rows, columns, (row_step, column_step)
    draw.add(p.MaxPool, [source], (c, len(rows), len(columns)), lambda q: fields)


def average_pool(draw):
    """Over the cells inside, or with more."""
    source = draw.pick()
    c, *image = draw.values[source].shape
    axes = [draw.windows(size, False)[0] for size in image]
    counts = [tuple(end - first + int(draw.rng.integers(0, 2)) for first, end in ranges) for ranges in axes]
    factors = {a * b: draw.factor(70 * a * b) for a, b in itertools.product(*counts)}
    draw.add(p.AveragePool, [source], (c, *map(len, axes)), lambda q: (*axes, *counts, factors))


def add(draw):
    """Of a value and others of its shape, or of itself."""
    source = draw.pick()
    shape = draw.values[source].shape
    count = int(draw.rng.integers(2, 4))
    inputs = [source, *(draw.pick(lambda value: value.shape == shape) for _ in range(count - 1))]
    shift = int(draw.rng.integers(1, 22))
    multipliers = [int(n) for n in draw.rng.integers(-(2**shift), 2**shift + 1, count)]
    draw.add(p.Add, inputs, shape, lambda q: (tuple(multipliers), shift, *draw.bounds(q.zero_point)))


def multiply(draw):
    source = draw.pick()
    shape = draw.values[source].shape
    other = draw.pick(lambda value: value.shape in (shape, (shape[0], 1, 1)))
    draw.add(p.Multiply, [source, other], shape, lambda q: draw.factor(70 * 70))


def lookup(draw):
    source = draw.pick()
    table = draw.rng.integers(-128, 128, 256).astype(np.int8)
    draw.add(p.Lookup, [source], draw.values[source].shape, lambda q: (table,))


def concatenate(draw):
    """Along the channels, or as vectors, of values of one quantization."""
    source = draw.pick()
    quantization, image = draw.values[source].quantization, draw.values[source].shape[1:]
    same_image = draw.rng.random() < 0.7

    def fits(value):
        return value.quantization == quantization and (value.shape[1:] == image or not same_image)

    inputs = [source, *(draw.pick(fits) for _ in range(int(draw.rng.integers(1, 3))))]
    size = sum(int(np.prod(draw.values[k].shape)) for k in inputs)
    shape = (size // int(np.prod(image)), *image) if same_image else (size, 1, 1)
    draw.add(p.Rearrange, inputs, shape, lambda q: (np.arange(size, dtype=np.int32),), quantization=quantization)


def rearrange(draw):
    """Flattening, padding, a crop, other axes, larger pixels, or any order."""
    rng, source = draw.rng, draw.pick()
    value = draw.values[source]
    places = np.arange(np.prod(value.shape), dtype=np.int32).reshape(value.shape)
    amounts = [tuple(int(n) for n in rng.integers(0, 3, 2)) for _ in range(3)]
    changes = [
        lambda: places.reshape(-1, 1, 1),
        lambda: np.pad(places, amounts, constant_values=-1),
        lambda: places[:, amounts[1][0] :, : places.shape[2] - amounts[2][1] or 1],
        lambda: places.transpose(rng.permutation(3)),
        lambda: places.repeat(2, axis=1).repeat(int(rng.integers(1, 4)), axis=2),
        lambda: places[rng.permutation(places.shape[0])],
        lambda: rng.permutation(places.ravel()).reshape(places.shape),
    ]
    index = changes[int(rng.integers(len(changes)))]()
    draw.add(p.Rearrange, [source], index.shape, lambda q: (index.ravel(),), quantization=value.quantization)


KINDS = [sum_of_products, sum_of_products, max_pool, average_pool, add, multiply, lookup, concatenate, rearrange]
