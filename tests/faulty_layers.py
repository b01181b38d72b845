"""NumPy layers that keep the layer contract, and layers with one fault each for check_layer to find."""

import numpy as np

from minidl import Layer
from minidl.initializers import glorot_uniform, ones, zeros


# ---- layers that keep the contract -----------------------------------------------------------------
class Scale(Layer):
    """y = gain * x + bias, feature by feature. Most faulty layers below are this one with a single change."""

    def build(self, in_shape):
        self.gain, self.bias = self.param("gain", in_shape, ones), self.param("bias", in_shape, zeros)
        return in_shape

    def forward(self, x, training):
        if training:
            self.x = x
        return x * self.gain.value + self.bias.value

    def backward(self, dy):
        self.gain.grad = (dy * self.x).sum(0)
        self.bias.grad = dy.sum(0)
        return dy * self.gain.value


class Project(Layer):
    """y = weight @ x, without a bias."""

    def __init__(self, units=2):
        self.units = units

    def build(self, in_shape):
        self.weight = self.param("weight", (self.units, *in_shape), glorot_uniform)
        return (self.units,)

    def forward(self, x, training):
        if training:
            self.x = x
        return x @ self.weight.value.T

    def backward(self, dy):
        self.weight.grad = dy.T @ self.x
        return dy @ self.weight.value


class Drop(Layer):
    """Dropout with masks from self.rng."""

    def forward(self, x, training):
        if not training:
            return x
        self.mask = (2 * (self.rng.random(x.shape) < 0.5)).astype(x.dtype)
        return x * self.mask

    def backward(self, dy):
        return dy * self.mask


class Center(Layer):
    """x minus the batch mean: examples depend on each other, as in batch norm."""

    def forward(self, x, training):
        return x - x.mean(0) if len(x) else x

    def backward(self, dy):
        return dy - dy.mean(0) if len(dy) else dy


class Pool(Layer):
    """Max-pooling (c, n) -> (c, n - 2) over windows of three with stride 1."""

    def build(self, in_shape):
        return (in_shape[0], in_shape[1] - 2)

    def forward(self, x, training):
        windows = np.lib.stride_tricks.sliding_window_view(x, 3, axis=2)
        if training:
            self.winner = windows.argmax(-1) + np.arange(windows.shape[2])
        return windows.max(-1)

    def backward(self, dy):
        dx = np.zeros((*dy.shape[:2], self.in_shape[1]), dy.dtype)
        n, c, _ = np.ogrid[: dy.shape[0], : dy.shape[1], : dy.shape[2]]
        self.hand_back(dx, (n, c, self.winner), dy)
        return dx

    def hand_back(self, dx, places, dy):
        np.add.at(dx, places, dy)


class SharingPool(Pool):
    """Of equal maxima each one has the same share of the gradient."""

    def forward(self, x, training):
        if training:
            self.x = x
        return super().forward(x, training)

    def backward(self, dy):
        dx = np.zeros((*dy.shape[:2], self.in_shape[1]), dy.dtype)
        windows = np.lib.stride_tricks.sliding_window_view(self.x, 3, axis=2)
        shares = self.shares(windows == windows.max(-1, keepdims=True)) * dy[..., None]
        for i in range(3):
            dx[:, :, i : i + dy.shape[2]] += shares[..., i]
        return dx

    def shares(self, winners):
        return winners / winners.sum(-1, keepdims=True).astype(self.dtype)


class Columns(Layer):
    """Returns the features from `start` to `stop` as a view."""

    def __init__(self, start, stop):
        self.start, self.stop = start, stop

    def build(self, in_shape):
        return (self.stop - self.start, *in_shape[1:])

    def forward(self, x, training):
        return x[:, self.start : self.stop]

    def backward(self, dy):
        dx = np.zeros((len(dy), *self.in_shape), dy.dtype)
        dx[:, self.start : self.stop] = dy
        return dx


class Embedding(Layer):
    """Maps word indices (l,) from 0 to vocabulary - 1 to vectors (l, units)."""

    def __init__(self, vocabulary, units):
        self.vocabulary, self.units = vocabulary, units

    def build(self, in_shape):
        self.table = self.param("table", (self.vocabulary, self.units), glorot_uniform)
        return (*in_shape, self.units)

    def forward(self, x, training):
        words = x.astype(int)
        if training:
            self.words = words
        return self.table.value[words]

    def backward(self, dy):
        self.table.grad = np.zeros_like(self.table.value)
        np.add.at(self.table.grad, self.words, dy)
        return np.zeros((len(dy), *self.in_shape), dy.dtype)


# ---- layers with a fault -------------------------------------------------------------------------
class WrongDx(Scale):
    def backward(self, dy):
        return 1.001 * super().backward(dy)


class WrongSingleDx(Scale):
    def backward(self, dy):
        dx = super().backward(dy)
        dx[-1:, -1:] *= 0.99
        return dx


class ForgottenFactor(Project):
    def backward(self, dy):
        self.weight.grad = dy.T @ self.x / max(len(dy), 1)  # the mean instead of the sum
        return dy @ self.weight.value


class WrongGrad(Scale):
    def backward(self, dy):
        dx = super().backward(dy)
        self.gain.grad = (dy * np.abs(self.x)).sum(0)
        return dx


class ForgottenBias(Scale):
    def backward(self, dy):
        self.gain.grad = (dy * self.x).sum(0)
        return dy * self.gain.value


class HalfGrad(Scale):
    def backward(self, dy):
        self.gain.grad = (dy * self.x).sum(0)
        self.bias.grad[1:] = dy.sum(0)[1:]
        return dy * self.gain.value


class Accumulates(Scale):
    def backward(self, dy):
        self.gain.grad = (dy * self.x).sum(0)
        self.bias.grad += dy.sum(0)
        return dy * self.gain.value


class AccumulatesInOwnBuffer(Scale):
    total = 0.0

    def backward(self, dy):
        dx = super().backward(dy)
        self.total = self.total + dy.sum(0)
        self.bias.grad = self.total
        return dx


class RemembersInInference(Scale):
    def forward(self, x, training):
        self.seen = x
        return super().forward(x, True)


class CountsInInference(Scale):
    calls = 0

    def forward(self, x, training):
        self.calls += 1
        return super().forward(x, training)


class LogsInInference(Scale):
    """Changes one of many numbers of an array in a list, which repr abbreviates."""

    def build(self, in_shape):
        self.log = [np.zeros(2000)]
        return super().build(in_shape)

    def forward(self, x, training):
        if not training:
            self.log[0][1000] += 1
        return super().forward(x, training)


class KeepsStateInAnAttribute(Scale):
    """Its running mean is no buffer, so copies and files lose it."""

    def build(self, in_shape):
        self.mean = np.zeros(in_shape)
        return super().build(in_shape)

    def forward(self, x, training):
        if training:
            self.mean = x.mean(axis=0)
        return super().forward(x, training) - (0 if training else self.mean)


class ChangesItsArgument(Layer):
    """Each copy doubles the factor again."""

    def __init__(self, factor=1.0):
        self.factor = 2 * factor

    def forward(self, x, training):
        return self.factor * x

    def backward(self, dy):
        return self.factor * dy


class DriftsInInference(Scale):
    def forward(self, x, training):
        y = super().forward(x, training)
        if not training and len(x):
            self.bias.value += 0.1
        return y


class DrawsInInference(Drop):
    def forward(self, x, training):
        return super().forward(x, True)


class PeeksForward(Scale):
    def forward(self, x, training):
        return super().forward(x, training) + x.sum(0)


class PeeksInTraining(Scale):
    def forward(self, x, training):
        return super().forward(x, training) + (x.sum(0) if training else x)


class PeeksAndDraws(Drop):
    def forward(self, x, training):
        return super().forward(x + x.sum(0) if training else x, training)


class PeeksBackward(Scale):
    def backward(self, dy):
        return super().backward(dy) + 0.1 * dy.sum(0)


class ReadsOtherDy(Scale):
    def backward(self, dy):
        return super().backward(dy) * (1 + 0.1 * np.abs(dy).sum(0))


class WritesIntoX(Scale):
    def forward(self, x, training):
        x *= self.gain.value
        return x


class WritesIntoXLater(Scale):
    def backward(self, dy):
        self.bias.grad = dy.sum(0)
        self.x *= dy
        self.gain.grad = self.x.sum(0)
        return dy * self.gain.value


class WritesIntoDy(Scale):
    def backward(self, dy):
        super().backward(dy)
        dy *= self.gain.value
        return dy


class LazyWithoutDx(Scale):
    def backward(self, dy):
        if not self.needs_dx:
            return dy
        return super().backward(dy)


class CachesInInference(Scale):
    """Keeps what backward needs in a separate object, also in inference."""

    def build(self, in_shape):
        self.box = Box()
        return super().build(in_shape)

    def forward(self, x, training):
        y = super().forward(x, training)
        self.box.x = x
        return y

    def backward(self, dy):
        dx = super().backward(dy)
        self.gain.grad = (dy * self.box.x).sum(0)
        return dx


class Box:
    def __repr__(self):
        return "Box()"


class WrongBeyondTheBound(Layer):
    def forward(self, x, training):
        if training:
            self.x = x
        return x.clip(-5, 5)

    def backward(self, dy):
        return dy


class WrongShape(Scale):
    def build(self, in_shape):
        super().build(in_shape)
        return (*in_shape, 1)


class WrongDxShape(Project):
    def backward(self, dy):
        super().backward(dy)
        return dy


class ReturnsNothing(Scale):
    def backward(self, dy):
        super().backward(dy)


class BatchInShape(Scale):
    def forward(self, x, training):
        return super().forward(x, training).reshape(3, *self.out_shape)


class WrongDtype(Scale):
    def forward(self, x, training):
        return super().forward(x, training).astype("float32")


class LosesOverlap(Pool):
    def hand_back(self, dx, places, dy):
        dx[places] = dy


class GivesToAllEquals(SharingPool):
    def shares(self, winners):
        return winners.astype(self.dtype)


class WidensDtype(Scale):
    def forward(self, x, training):
        return super().forward(x, training).astype("float64")


class WidensDxDtype(Scale):
    def backward(self, dy):
        return super().backward(dy).astype("float64")


class WrongInFloat32(Scale):
    def forward(self, x, training):
        return super().forward(x, training) * (1.01 if self.dtype == "float32" else 1)


class WrongAfterSixteen(Scale):
    """A layer that is only correct for the first tile of 16 examples."""

    def forward(self, x, training):
        y = super().forward(x, training)
        y[16:] = 0
        return y


class WrongGradAfterSixteen(Scale):
    def backward(self, dy):
        dx = super().backward(dy)
        self.bias.grad = dy[:16].sum(0)
        return dx


class ThreeExamples(Scale):
    def forward(self, x, training):
        y = super().forward(x, training)
        for i in range(3):
            y[i] = x[i] * self.gain.value + self.bias.value
        return y


class GlobalRandomNumbers(Drop):
    def forward(self, x, training):
        if not training:
            return x
        self.mask = 1 + np.random.random(x.shape).astype(x.dtype)  # noqa: NPY002
        return x * self.mask


class SeedsTheGlobalGenerator(GlobalRandomNumbers):
    def forward(self, x, training):
        np.random.seed(0)  # noqa: NPY002
        return super().forward(x, training)


class ReplacesBuffer(Scale):
    """A running mean that is a new array after each training forward."""

    def build(self, in_shape):
        self.mean = self.buffer("mean", in_shape, zeros)
        return super().build(in_shape)

    def forward(self, x, training):
        if training and len(x):
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return super().forward(x, training)


class LosesRepeats(Embedding):
    """Keeps only the last gradient of a repeated word."""

    def backward(self, dy):
        dx = super().backward(dy)
        self.table.grad[...] = 0
        self.table.grad[self.words] = dy
        return dx


class OffByOne(Embedding):
    def backward(self, dy):
        dx = super().backward(dy)
        self.table.grad = np.roll(self.table.grad, 1, axis=0)
        return dx


class NoDx(Embedding):
    def backward(self, dy):
        super().backward(dy)


class WidensVectors(Embedding):
    def forward(self, x, training):
        return super().forward(x, training).astype("float64")


class ReadsNeighbors(Embedding):
    def forward(self, x, training):
        return super().forward(x, training) + x.sum(dtype=x.dtype)


class RejectsEmptyBatch(Scale):
    """Fails on an empty batch."""

    def forward(self, x, training):
        return super().forward(x, training).reshape(len(x), -1)
