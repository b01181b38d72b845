"""Example ids passed to kernels: indices in the fitted X without rows of weight 0, for any way of training.

Random masks depend on them. The custom op of user_kernel/number.pyx writes them to its output.
"""

import numpy as np
import pytest

from minidl import Layer, Sequential, Trainer
from minidl.initializers import ones
from minidl.layers import Rescale
from minidl.losses import softmax_cross_entropy
from minidl.optimizers import SGD

N = 150
X = np.stack([np.zeros(N), np.arange(N), np.zeros(N)], axis=1)  # the second score of a row is its index
Y = np.arange(N) % 3
WEIGHTS = np.random.default_rng(0).choice([0.0, 1.0, 2.0], N)


class Identity(Layer):
    """A NumPy identity layer: before or after a kernel, it makes steps run segment by segment."""

    def forward(self, x, training):
        return x.copy()

    def backward(self, dy):
        return dy.copy()


@pytest.fixture
def number(user):
    class Number(Layer):
        def build(self, in_shape):
            self.op = user.number.NumberOp(in_shape, self.dtype)
            self.param("gain", (1,), ones)
            return in_shape

    return Number


@pytest.fixture
def memory_map(tmp_path):
    def make(dtype):
        X.astype(dtype).tofile(tmp_path / dtype)
        return np.memmap(tmp_path / dtype, dtype, "r", shape=X.shape)

    return make


def wrapped_loss(scores, y):
    return softmax_cross_entropy(scores, y)


class ScoreRecorder:
    """A metric that records the scores of every epoch."""

    __name__ = "watch"

    def __init__(self):
        self.seen = []

    def __call__(self, y, scores):
        self.seen.append(np.array(scores))
        return 0.0


def fitted(layers, data, loss="softmax_cross_entropy", **options):
    """Returns the scores of two epochs, and the resulting weight and gradient."""
    watch = ScoreRecorder()
    model = Sequential(layers, input_shape=(3,), dtype="float64")
    trainer = Trainer(model, loss, SGD(1e-3), [watch], num_threads=2)
    trainer.fit(data, Y, epochs=2, batch_size=37, verbose=0, **options)
    kernel = next(p for p in model.params.values())
    return watch.seen, kernel.value.tobytes(), kernel.grad.tobytes()


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
def test_ids_are_the_same_for_every_way_into_a_step(number, memory_map, weights):
    ways = {
        "read without a copy": ([number()], X),
        "converted": ([number()], X.astype(">f8")),
        "strided": ([number()], np.repeat(X, 2, axis=1)[:, ::2]),
        "memory map": ([number()], memory_map("f8")),
        "memory map, converted": ([number()], memory_map("i4")),
        "stages": ([Identity(), number()], X),
        "stages, converted": ([number(), Identity()], X.astype("i8")),
        "segments, memory map": ([Rescale(1.0), Identity(), number()], memory_map("u1")),
        "Python loss": ([number()], X, wrapped_loss),
    }
    used = np.ones(N, bool) if weights is None else weights > 0
    numbers = np.cumsum(used) - 1
    expected = None
    for name, way in ways.items():
        result = fitted(*way, sample_weight=weights)
        for scores in result[0]:
            assert np.array_equal(scores[:, 0], numbers[scores[:, 1].astype(int)]), name
            assert not np.array_equal(scores[:, 0], np.sort(scores[:, 0]))  # shuffled
        expected = expected or result
        assert result[1:] == expected[1:], name


@pytest.mark.parametrize("first_layers", [[], [Identity]], ids=["plan", "segments"])
def test_by_hand_ids_count_from_0(number, first_layers):
    model = Sequential([*(layer() for layer in first_layers), number()], input_shape=(3,), dtype="float64")
    assert np.array_equal(model.forward(X[7:], training=True)[:, 0], np.arange(N - 7))
    dy = np.random.default_rng(0).standard_normal((N - 7, 3))
    model.backward(dy)
    (param,) = model.params.values()
    np.testing.assert_allclose(param.grad, [(dy[:, 0] * np.arange(N - 7)).sum()], rtol=1e-12)


@pytest.mark.parametrize("first_layers", [[], [Identity]], ids=["plan", "segments"])
def test_a_network_passes_them_to_forward_and_backward(number, first_layers, rng):
    network = Sequential([*(layer() for layer in first_layers), number()], input_shape=(3,), dtype="float64").network
    numbers, dy = rng.permutation(10**6)[:N], rng.standard_normal((N, 3))
    kept = numbers.copy()
    y, tape = network.forward(X, example_ids=numbers)
    assert np.array_equal(y[:, 0], numbers)
    numbers[:] = 0  # the caller may overwrite its array
    network.backward(tape, dy, want_dx=False)
    np.testing.assert_allclose(network.parameters.grads[0], (dy[:, 0] * kept).sum(), rtol=1e-12)


def test_inference_passes_none(number):
    model = Sequential([number()], input_shape=(3,))
    assert (model.predict(X)[:, 0] == -1).all()
