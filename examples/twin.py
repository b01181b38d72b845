"""The twin: a LeNet in plain Python
=================================

A small net trained without any library ends with every bit of minidl's: the same SHA-256 of all weights.

Run it with: `python examples/twin.py`

If minidl is installed, it trains the same net. Bits depend on three things: a sum of products is a `chain` of fused
multiply-adds, a sum over the batch is a tree, and `twin_numbers.py` has exp, log and random numbers as minidl and NumPy
compute them. The page docs/explanation/twin.md reads this file paragraph by paragraph.
"""

import hashlib
import struct
from itertools import chain as joined
from itertools import zip_longest
from math import fsum, sqrt
from pathlib import Path

from twin_numbers import Generator, exp, fma, log

IMAGES, BATCH, EPOCHS, RATE, MOMENTUM, SEED = 300, 60, 6, 0.05, 0.9, 0
LANES, SLOTS = 16, 16  # examples of a tile, and the most slots of a batch


def chain(start, factors, others):
    """start + a[0] b[0] + a[1] b[1] + ...: one fused multiply-add after the other."""
    for a, b in zip(factors, others):
        start = fma(a, b, start)
    return start


def added(numbers):
    """The numbers added in order, from zero. (Python's `sum` compensates for rounding since version 3.12.)"""
    total = 0.0
    for number in numbers:
        total += number
    return total


def each(function, *nested):
    """The function of all numbers in nested lists of one form."""
    if isinstance(nested[0], (list, tuple)):
        return [each(function, *parts) for parts in zip(*nested)]
    return function(*nested)


# ---- layers: forward and backward of one example. An image is a list of channels, a channel a list of rows.


class Conv2D:
    """y[k][i][j] = b[k] + the sum of w[k][c][r][s] x[c][i + r][j + s] over channels c, rows r and columns s."""

    def __init__(self, name, channels, filters, size):
        self.size = size
        self.w = initial_weights(name, filters, channels * size**2, min(1.0, filters / channels))
        self.b = [0.0] * filters

    def forward(self, x):
        n = len(x[0]) - self.size + 1
        patches = [[self.patch(x, i, j) for j in range(n)] for i in range(n)]
        y = [[[chain(b, w, patch) for patch in row] for row in patches] for w, b in zip(self.w, self.b)]
        return y, (x, patches)

    def patch(self, x, i, j):
        """The inputs of output (i, j), in the order of a filter's weights."""
        return [value for channel in x for row in channel[i : i + self.size] for value in row[j : j + self.size]]

    def backward(self, saved, dy):
        x, patches = saved
        taps = list(zip(*joined(*patches)))  # for each weight of a filter, the input that it met at each output
        dw = [[chain(0.0, joined(*dy_k), tap) for tap in taps] for dy_k in dy]
        db = [pixel_sum(list(joined(*dy_k))) for dy_k in dy]
        side = range(len(x[0]))
        return [[[self.gradient(dy, c, h, w) for w in side] for h in side] for c in range(len(x))], (dw, db)

    def gradient(self, dy, c, h, w):
        """The gradient of x[c][h][w]: a chain over all outputs that read it."""
        size, n = self.size, len(dy[0])
        taps = [(r, s) for r in range(size) for s in range(size) if 0 <= h - r < n and 0 <= w - s < n]
        reads = [(self.w[k][(c * size + r) * size + s], dy[k][h - r][w - s]) for k in range(len(dy)) for r, s in taps]
        return chain(0.0, *zip(*reads))

    def batch_gradients(self, examples):
        """The sums over the batch: the gradients of all examples meet here, and not before."""
        dws, dbs = zip(*examples)
        return [[batch_sum(dw) for dw in zip(*rows)] for rows in zip(*dws)], [batch_sum(db) for db in zip(*dbs)]


class MaxPool2D:
    """The largest value of each window of 2 x 2; its gradient goes to the first pixel that has this value."""

    def forward(self, x):
        n = len(x[0]) // 2
        winners = [[[self.winner(x_c, 2 * i, 2 * j) for j in range(n)] for i in range(n)] for x_c in x]
        y = [[[x_c[h][w] for h, w in row] for row in rows] for x_c, rows in zip(x, winners)]
        return y, (x, winners)

    def winner(self, channel, h, w):
        pixels = [(h, w), (h, w + 1), (h + 1, w), (h + 1, w + 1)]
        return max(pixels, key=lambda pixel: channel[pixel[0]][pixel[1]])  # the first of equal ones

    def backward(self, saved, dy):
        x, winners = saved
        dx = [[[0.0] * len(row) for row in channel] for channel in x]
        for dx_c, dy_c, winners_c in zip(dx, dy, winners):
            for (h, w), gradient in zip(joined(*winners_c), joined(*dy_c)):
                dx_c[h][w] = gradient  # windows do not overlap: else it would be +=
        return dx, None


class ReLU:
    """The larger one of x and 0; the gradient passes where x is above 0."""

    def forward(self, x):
        return each(lambda value: max(value, 0.0), x), x

    def backward(self, x, dy):
        return each(lambda value, gradient: gradient if value > 0 else 0.0, x, dy), None


class Flatten:
    """All pixels in one list."""

    def forward(self, x):
        return [value for channel in x for row in channel for value in row], x

    def backward(self, x, dy):
        gradients = iter(dy)
        return each(lambda value: next(gradients), x), None


class Dense:
    """y[k] = b[k] + the sum of w[k][c] x[c] over c."""

    def __init__(self, name, inputs, outputs):
        self.w = initial_weights(name, outputs, inputs, min(1.0, outputs / inputs))
        self.b = [0.0] * outputs

    def forward(self, x):
        return [chain(b, w, x) for w, b in zip(self.w, self.b)], x

    def backward(self, x, dy):
        return [chain(0.0, column, dy) for column in zip(*self.w)], (x, dy)

    def batch_gradients(self, examples):
        """The gradient of w[k][c] is dy[k] x[c] for each example; its product and its sum are one multiply-add."""
        xs, dys = (list(zip(*of)) for of in zip(*examples))  # for each input and each output: its values in the batch
        return [[product_sum(dy, x) for x in xs] for dy in dys], [batch_sum(dy) for dy in dys]


def cross_entropy(scores, label):
    """The loss -log(softmax(scores)[label]) and its gradient: softmax(scores), less 1 for the label."""
    top = max(scores)
    powers = [exp(score - top) for score in scores]
    total = added(powers)
    return log(total) - (scores[label] - top), [power / total - (k == label) for k, power in enumerate(powers)]


# ---- sums over the batch, and over the pixels of a channel


def slots_of(numbers):
    """The tiles of 16 examples, the last one partial, in at most 16 runs: the slots."""
    tiles = [numbers[i : i + LANES] for i in range(0, len(numbers), LANES)]
    slots = min(len(tiles), SLOTS)
    first = [len(tiles) * slot // slots for slot in range(slots + 1)]
    return [tiles[i:j] for i, j in zip(first, first[1:])]


def tile_sum(tile):
    """The lanes of a tile are added by halving; empty lanes hold zeros."""
    lanes = [*tile, *[0.0] * (LANES - len(tile))]
    while len(lanes) > 1:
        lanes = [a + b for a, b in zip(lanes, lanes[len(lanes) // 2 :])]
    return lanes[0]


def tree(sums):
    """The slots are added in pairs, then the pairs in pairs; a last one without a partner moves up."""
    while len(sums) > 1:
        sums = [added(sums[k : k + 2]) for k in range(0, len(sums), 2)]
    return sums[0]


def batch_sum(numbers):
    """The sum of a number of each example."""
    return tree([added(map(tile_sum, slot)) for slot in slots_of(numbers)])


def product_sum(dy, x):
    """The sum of a product of each example: one chain for each slot."""
    return tree([chain(0.0, joined(*a), joined(*b)) for a, b in zip(slots_of(dy), slots_of(x))])


def pixel_sum(pixels):
    """The sum over the pixels of a channel, of at most 128: four sums of every fourth pixel, added in pairs."""
    a, b, c, d = (added(pixels[k::4]) for k in range(4))
    return (a + b) + (c + d)


# ---- training


def initial_weights(name, outputs, fan_in, ratio):
    """He's uniform weights, damped by the fourth root of a ratio. Each parameter has a generator for its name."""
    generator, limit, damping = Generator([SEED, *name.encode()]), sqrt(6 / fan_in), sqrt(sqrt(ratio))
    return [[generator.uniform(-limit, limit) * damping for _ in range(fan_in)] for _ in range(outputs)]


def lenet():
    """A LeNet for images of 8 x 8, with maps of 6 x 6, 3 x 3, 2 x 2 and 1 x 1; weights are named after their layers."""
    convolutions = [Conv2D("0/weight", 1, 6, 3), MaxPool2D(), ReLU(), Conv2D("3/weight", 6, 20, 2), MaxPool2D()]
    return [*convolutions, Flatten(), Dense("6/weight", 20, 32), ReLU(), Dense("8/weight", 32, 10)]


def backpropagate(layers, image, label):
    """The loss of one example, and its gradients of each layer's parameters: all that it computes is its own."""
    x, saved = image, []
    for layer in layers:
        x, needed = layer.forward(x)
        saved.append(needed)
    loss, dx = cross_entropy(x, label)
    gradients = []
    for layer, needed in zip(reversed(layers), reversed(saved)):
        dx, own = layer.backward(needed, dx)
        gradients.append(own)
    return loss, gradients[::-1]


def step(layers, velocities, images, labels):
    """One step of SGD with momentum, on the mean of the examples' gradients; returns the mean loss."""
    n = len(images)
    losses, gradients = zip(*(backpropagate(layers, *example) for example in zip(images, labels)))
    for layer, velocity, examples in zip(layers, velocities, zip(*gradients)):
        if velocity is not None:
            mean = each(lambda total: total / n, layer.batch_gradients(examples))
            velocity[:] = each(lambda v, g: MOMENTUM * v + g, velocity, mean)
            layer.w, layer.b = each(lambda w, v: w - RATE * v, [layer.w, layer.b], velocity)
    return fsum(losses) / n


def train(images, labels):
    """Yields the loss and the hash after each step. The order of an epoch has a generator of its own."""
    layers = lenet()
    velocities = [each(lambda w: 0.0, [a.w, a.b]) if hasattr(a, "w") else None for a in layers]
    for epoch in range(EPOCHS):
        order = Generator([SEED, epoch]).permutation(len(images))
        for first in range(0, len(order), BATCH):
            rows = order[first : first + BATCH]
            loss = step(layers, velocities, [images[i] for i in rows], [labels[i] for i in rows])
            yield loss, digest(layers)


def digest(layers):
    """SHA-256 of all weights and biases, in the order of minidl's `state_dict`."""
    flat = []
    for layer in layers:
        each(flat.append, [layer.w, layer.b] if hasattr(layer, "w") else [])
    return hashlib.sha256(struct.pack(f"<{len(flat)}d", *flat)).hexdigest()


def load_digits():
    """The first digits of scikit-learn, 8 x 8 pixels from 0 to 1, and their labels: a line for each."""
    lines = (Path(__file__).parent / "twin_digits.txt").read_text("ascii").splitlines()[:IMAGES]
    pixels = [[int(character, 17) / 16 for character in line[2:]] for line in lines]
    return [[[row[i : i + 8] for i in range(0, 64, 8)]] for row in pixels], [int(line[0]) for line in lines]


def train_minidl(images, labels, num_threads=None):
    """The same run with minidl: the loss and the hash after each step; none without minidl."""
    try:
        import minidl
        from minidl import layers as fast
    except ImportError:
        return []
    net = [fast.Conv2D(6, 3), fast.MaxPool2D(2), fast.ReLU(), fast.Conv2D(20, 2), fast.MaxPool2D(2), fast.Flatten()]
    net += [fast.Dense(32), fast.ReLU(), fast.Dense(10)]
    model, sgd = minidl.Sequential(net, (1, 8, 8), SEED, "float64"), minidl.optimizers.SGD(RATE, MOMENTUM)
    trainer = minidl.Trainer(model, "softmax_cross_entropy", sgd, seed=SEED, num_threads=num_threads)
    steps = []

    class Record:
        def on_step_end(self, trainer, step, loss):
            weights = b"".join(value.tobytes() for value in model.state_dict().values())
            steps.append((loss, hashlib.sha256(weights).hexdigest()))

    trainer.fit(images, labels, epochs=EPOCHS, batch_size=BATCH, verbose=0, callbacks=[Record()])
    return steps


def main():
    examples = load_digits()
    for (loss, hashed), fast in zip_longest(train(*examples), train_minidl(*examples)):
        print(f"loss {loss!r}, minidl {fast and fast[0]!r}")
    print(f"twin    {hashed}\nminidl  {fast[1] if fast else 'is not installed'}")


if __name__ == "__main__":
    main()
