"""OutputLosses: the losses of several outputs as one."""

import copy
import pickle

import numpy as np
import pytest
from contract.losses import DRAWS

from minidl.layers import Outputs, Reshape
from minidl.losses import MeanSquaredError, NativeLoss, SoftmaxCrossEntropy, checked_loss
from minidl.losses.output_losses import NativeOutputLosses, by_output
from minidl_c.losses.output_losses import OutputLossesOp
from minidl_c.runtime.single_op import loss_batch

DTYPES = ("float32", "float64")


class Function:
    """A loss in Python, around another one."""

    def __init__(self, loss):
        self.loss = loss

    def __call__(self, scores, y):
        return self.loss(scores, y)


def bound(losses, shapes, weights=None):
    """Returns the losses of outputs of these shapes."""
    made = by_output(losses, weights)
    outputs = Outputs(**{name: Reshape(shape) for name, shape in shapes.items()})
    outputs._branches = {name: (Stub(shape),) for name, shape in shapes.items()}
    made.bind(outputs)
    return made


class Stub:
    """A layer of which only the shape of its output is known."""

    def __init__(self, shape):
        self.out_shape = shape


def draw(seed):
    """Returns random losses of random outputs, their scores and their targets."""
    rng = np.random.default_rng(seed)
    names = rng.choice(sorted(DRAWS), int(rng.integers(1, 5)))
    cases = {f"{name} {i}": DRAWS[name](rng) for i, name in enumerate(names)}
    n = int(rng.choice([1, 15, 16, 17, 33]))
    weights = {name: float(rng.choice([0, 0.3, 1, 2.5])) for name in cases}
    losses = bound({k: case.loss for k, case in cases.items()}, {k: case.shape for k, case in cases.items()}, weights)
    return (
        losses,
        {k: case.scores(rng, n) for k, case in cases.items()},
        {k: c.targets(rng, n) for k, c in cases.items()},
    )


def joined(losses, scores, dtype):
    return np.concatenate([scores[name].reshape(len(scores[name]), -1) for name in losses.losses], axis=1).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_total_is_the_weighted_sum_in_numpy_and_in_the_kernel(dtype):
    for seed in range(60):
        losses, scores, y = draw(seed)
        n, x = len(next(iter(y.values()))), joined(losses, scores, dtype)
        targets = losses.targets(losses.rows_by_output(y, n), x.shape[1:], dtype)
        total, dscores = checked_loss(losses, x, targets)
        expected, start, weigh = np.zeros(n, dtype), 0, np.dtype(dtype).type
        for name, loss in losses.losses.items():
            own, gradient = loss(scores[name].astype(dtype), y[name])
            expected = expected + weigh(losses.weights[name]) * own
            part = dscores[:, start : (start := start + gradient[0].size)]
            assert np.array_equal(part, (weigh(losses.weights[name]) * gradient).reshape(n, -1)), name
        assert np.array_equal(total, expected)
        weights = np.random.default_rng(seed).choice([0, 0.7, 1], n).astype(dtype)
        for weight in (None, weights):
            found, gradient = np.empty_like(total), np.empty_like(x)
            loss_batch(losses.op(x.shape[1:], dtype), x, targets, found, gradient, weight, num_threads=2)
            assert np.array_equal(found, total)
            assert np.array_equal(gradient, dscores if weight is None else weight[:, None] * dscores)


@pytest.mark.parametrize("dtype", DTYPES)
def test_targets_are_taken_apart_again(dtype):
    for seed in range(40):
        losses, scores, y = draw(seed)
        functions = bound({k: Function(v) for k, v in losses.losses.items()}, losses.layout.shapes)
        n = len(next(iter(y.values())))
        for one in (losses, functions):
            parts = one.split(one.targets(one.rows_by_output(y, n), (), dtype))
            for name, loss in one.losses.items():
                shape = one.layout.shapes[name]
                expected = loss.targets(y[name], shape, dtype) if one is losses else y[name]
                assert np.array_equal(parts[name], expected.astype(dtype) if expected.dtype.kind == "f" else expected)
                assert parts[name].dtype.kind == expected.dtype.kind.replace("u", "i")
        x = joined(losses, scores, dtype)
        native = checked_loss(losses, x, losses.targets(y, (), dtype))
        weights = dict(losses.weights)
        mixed = bound({k: Function(v) if i % 2 else v for i, (k, v) in enumerate(losses.losses.items())},
                      losses.layout.shapes, weights)  # fmt: skip
        in_python = checked_loss(mixed, x, mixed.targets(y, (), dtype))
        if dtype == "float64":  # float32 rounds the numbers of a function
            assert all(np.array_equal(a, b) for a, b in zip(native, in_python, strict=True))


def test_labels_and_probabilities_of_different_batches():
    losses = bound({"a": SoftmaxCrossEntropy(), "b": MeanSquaredError()}, {"a": (3, 2), "b": (1,)})
    labels, rows = np.array([[0, 2], [0, 1]]), np.random.default_rng(0).random((2, 3, 2))
    first = losses.targets({"a": labels, "b": np.ones(2)}, (), "float32")
    second = losses.targets({"a": rows, "b": np.ones(2)}, (), "float32")
    assert np.array_equal(losses.split(first)["a"], labels)
    found = losses.split(np.concatenate([first, second]))["a"]
    assert np.allclose(found[2:], rows) and found[1].tolist() == [[1, 0], [0, 1], [0, 0]]


def test_rows_with_a_label():
    a, b = SoftmaxCrossEntropy(ignore_index=-1), SoftmaxCrossEntropy(ignore_index=5)
    losses = bound({"a": a, "b": b}, {"a": (3,), "b": (5, 2)})
    y = {"a": np.array([0, -1, -1]), "b": np.array([[5, 5], [5, 5], [1, 5]])}
    assert losses.labeled(losses.targets(y, (), "float32")).tolist() == [True, False, True]
    y["b"][1, 0] = 0
    assert losses.labeled(losses.targets(y, (), "float32")) is None
    assert bound({"a": a, "b": MeanSquaredError()}, {"a": (3,), "b": (1,)}).labeled(
        bound({"a": a, "b": MeanSquaredError()}, {"a": (3,), "b": (1,)}).targets(
            {"a": np.array([-1]), "b": np.zeros(1)}, (), "float32"
        )
    ) is None  # fmt: skip


def test_refusals_name_the_output():
    losses = bound({"a": SoftmaxCrossEntropy(), "b": MeanSquaredError()}, {"a": (3,), "b": (2,)})
    a, b = np.array([0, 1]), np.zeros((2, 2))
    for y, message in (
        (a, "y: expected a dict of targets for the outputs a, b, got ndarray"),
        ({"a": a}, "y: expected targets for the outputs a, b, got none for 'b'"),
        ({"a": a, "b": b, "c": b}, "y: expected targets for the outputs a, b, got 'c', which has no loss"),
        ({"a": a[:1], "b": b}, "y: output 'a': expected 2 targets, one for each example of X, got 1"),
        ({"a": a + 2, "b": b}, r"y: output 'a': expected labels from 0 to 2 .*, got labels from 2 to 3"),
        ({"a": a + 0.5, "b": b}, "y: output 'a': expected integer labels, got dtype float64"),
        ({"a": a, "b": b[:, :1]}, r"y: output 'b': expected shape \(n, 2\)"),
        ({"a": a, "b": b + np.nan}, "y: output 'b': expected finite values"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            losses.targets(losses.rows_by_output(y, 2), (), "float32")
    ignored = bound({"a": SoftmaxCrossEntropy(ignore_index=2**24 + 1)}, {"a": (3,)})
    with pytest.raises(ValueError, match="y: output 'a': expected whole numbers from -16777216 to 16777216"):
        ignored.targets({"a": np.array([2**24 + 1])}, (), "float32")
    assert ignored.split(ignored.targets({"a": np.array([2**24 + 1])}, (), "float64"))["a"].tolist() == [2**24 + 1]
    for given, weights, message in (
        ({}, None, "loss: expected a loss for at least one output, got none"),
        ({"a": "softmax"}, None, "loss: output 'a': expected one of"),
        ({1: "huber"}, None, "loss: expected losses by the names of outputs, got 1"),
        ({"a": "huber"}, 3, "loss_weights: expected a dict of numbers by output, got 3"),
        ({"a": "huber"}, {"b": 1}, "loss_weights: expected names of the outputs a, got 'b'"),
        ({"a": "huber"}, {"a": -1}, "loss_weights: output 'a': expected"),
        ({"a": "huber"}, {"a": np.inf}, "loss_weights: output 'a': expected"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            by_output(given, weights)


def test_copies():
    losses = by_output({"a": SoftmaxCrossEntropy(0.1), "b": "huber"}, {"b": 2})
    for twin in (copy.deepcopy(losses), pickle.loads(pickle.dumps(losses))):
        assert isinstance(twin, NativeOutputLosses) and repr(twin) == repr(losses) and twin.weights == {"a": 1, "b": 2}


class Halved(NativeLoss):
    """A subclass that overrides the call alone is a loss in Python."""

    def op(self, shape, dtype):
        return MeanSquaredError().op(shape, dtype)


class InPython(Halved):
    def __call__(self, scores, y):
        return np.zeros(len(scores)), np.zeros_like(scores)


def test_which_losses_run_in_the_plan():
    assert isinstance(by_output({"a": Halved()}), NativeOutputLosses)
    assert not isinstance(by_output({"a": Halved(), "b": InPython()}), NativeOutputLosses)


def test_the_op_refuses_other_ops():
    loss, layer = MeanSquaredError().op((2,), "float32"), Outputs(a=Reshape((2,)))
    layer.setup((2,), "float32", 0, "0")
    for losses, weights, dtype, message in (
        ([], [], "float32", "weights: expected one for each of 0 losses"),
        ([loss], [1, 2], "float32", "weights: expected one for each of 1 losses"),
        ([3], [1], "float32", "losses: expected ops, got 3"),
        ([loss], [-1], "float32", "weights: expected finite numbers of at least 0, got -1"),
        ([loss], [float("nan")], "float32", "weights: expected finite numbers"),
        ([loss], [1], "float64", "loss 0, ElementwiseLossOp: expected float64, got float32"),
        ([layer.branches["a"][0].op], [1], "float32", "loss 0, FlattenOp: expected a loss"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            OutputLossesOp(losses, weights, dtype)
