"""array_args: an unusual array as any argument is refused before any write, or gives the right result."""

import importlib
import inspect
import sys
from pathlib import Path

import numpy as np
import pytest
from odd_arrays import KINDS, NEVER, plain
from plans import OUT, SIZE, N, dense_plan, loss_plan, predicting, training
from plans import train as train_plan
from subprocess_cases import REFUSALS, Cases

import minidl_c
from minidl_c.array_args import all_finite, are_labels, is_readable
from minidl_c.kernels.conv2d import Conv2DOp
from minidl_c.losses.elementwise_losses import ElementwiseLossOp
from minidl_c.losses.softmax_cross_entropy import SoftmaxCrossEntropyOp
from minidl_c.optimizers.sgd import SGDUpdate
from minidl_c.runtime.single_op import backward_batch, forward_batch, loss_batch

RNG = np.random.default_rng(0)


def given(*shape, dtype="f4"):
    """Returns integers, which every dtype represents exactly."""
    return RNG.integers(0, 2, shape).astype(dtype)


POOL = {"pool_size": (2, 2), "stride": (2, 2)}
IMAGE, FILTERS = (3, 2, 5, 5), (4, 2, 3, 3)
# Valid arguments, and which of them are outputs.
FUNCTIONS = {
    "optimizers.clip.clip": ({"grad": given(20), "clip_value": 0.5}, "grad"),
    "optimizers.average.average": ({"mean": given(20), "values": given(20), "rate": 0.5}, "mean"),
    "functional.conv2d_forward": (
        {"x": given(*IMAGE), "w": given(*FILTERS), "b": given(4), "y": given(3, 4, 3, 3)}, "y"),
    "functional.conv2d_backward": (
        {"dy": given(3, 4, 3, 3), "x": given(*IMAGE), "w": given(*FILTERS), "dx": given(*IMAGE), "dw": given(*FILTERS),
         "db": given(4)}, "dx dw db"),
    "functional.dense_forward": ({"x": given(20, 3), "w": given(3, 4), "b": given(4), "y": given(20, 4)}, "y"),
    "functional.dense_backward": (
        {"dy": given(20, 4), "x": given(20, 3), "w": given(3, 4), "dx": given(20, 3), "dw": given(3, 4),
         "db": given(4)}, "dx dw db"),
    "array_args.all_finite": ({"x": given(20, 3)}, ""),
    "runtime.per_example.batch_sum": ({"x": given(20, 3), "total": given(3)}, "total"),
    "runtime.gather.pack_tiles": (
        {"x": given(5, 3), "rows": given(20, dtype="i8"), "tiles": given(2, 3, 16)}, "tiles"),
    "runtime.gather.unpack_tiles": ({"tiles": given(2, 3, 16), "y": given(20, 3)}, "y"),
    "functional.maxpool2d_forward": ({"x": given(3, 2, 4, 4), "y": given(3, 2, 2, 2), **POOL}, "y"),
    "functional.maxpool2d_backward": (
        {"dy": given(3, 2, 2, 2), "x": given(3, 2, 4, 4), "dx": given(3, 2, 4, 4), **POOL}, "dx"),
}  # fmt: skip
WITHOUT_ARRAYS = {
    "array_args.is_readable", "array_args.are_labels",        # which return False for what others refuse
    "cpu.has_vnni", "cpu.known", "cpu.supported",
    "op.check_ints", "op.check_element_count", "runtime.threads.openmp", "runtime.threads.check_num_threads",
    "runtime.threads.set_num_threads", "runtime.threads.set_thread_choice", "kernels.permute.rearranging_ops",
    "runtime.threads.get_num_threads", "runtime.threads.limit_default", "runtime.threads.limit_thread",
    "runtime.partition.local_range",
}  # fmt: skip


def function(name):
    module, _, name = name.rpartition(".")
    return getattr(importlib.import_module(f"minidl_c.{module}"), name)


def predict(**arguments):
    dense_plan().predict(**arguments)


def forward(x, param, y, example_ids):
    dense_plan().forward(x, param, y, 2, 0, 0, example_ids)


def backward(dy, dx, param, grad):
    plan, right = dense_plan(), predicting()
    plan.backward(plan.forward(right["x"], right["param"], right["y"], 2), dy, dx, param, grad)


def backward_examples(dy, dx, param, weights, bias, squares):
    plan, right = dense_plan(), predicting()
    kept, outputs = (
        plan.forward(right["x"], right["param"], right["y"], 2),
        [(0, 4 * OUT, weights, squares), (4 * OUT, OUT, bias, None)],
    )
    plan.backward_examples(kept, dy, dx, param, outputs)


def train(**arguments):
    train_plan(loss_plan(), update=SGDUpdate(SIZE, "float32", 0.5), **arguments)


def convolve(weight, bias, **arguments):
    forward_batch(Conv2DOp(IMAGE[1:], 4, (3, 3)), params=(weight, bias), num_threads=2, training=True, **arguments)


def convolve_back(weight, bias, dw, db, **arguments):
    op = Conv2DOp(IMAGE[1:], 4, (3, 3))
    backward_batch(op, params=(weight, bias), grads=(dw, db), num_threads=2, **arguments)


def label_loss(**arguments):
    loss_batch(SoftmaxCrossEntropyOp((3,)), **arguments)


def position_loss(**arguments):
    loss_batch(SoftmaxCrossEntropyOp((3, 2)), **arguments)


def number_loss(**arguments):
    loss_batch(ElementwiseLossOp((3,), "huber"), **arguments)


SCORED = {"scores": given(20, 3), "losses": given(20), "dscores": given(20, 3), "weights": given(20)}


def apply(param, grad, step_counter):
    SGDUpdate(SIZE, "float32", 0.5).apply(param, grad, 0.5, step_counter)


def transform(weight):
    Conv2DOp((16, 10, 10), 32, (3, 3)).transformed_weights(weight)


METHODS = {
    "Conv2DOp.transformed_weights": (transform, {"weight": given(16, 3, 3, 32)}, ""),
    "runtime.single_op.forward_batch": (
        convolve, {"x": given(*IMAGE), "y": given(3, 4, 3, 3), "weight": given(*FILTERS), "bias": given(4),
                   "example_ids": np.arange(3)}, "y"),
    "runtime.single_op.backward_batch": (
        convolve_back, {"dy": given(3, 4, 3, 3), "x": given(*IMAGE), "dx": given(*IMAGE), "weight": given(*FILTERS),
                        "bias": given(4), "dw": given(*FILTERS), "db": given(4), "example_ids": np.arange(3)},
        "dx dw db"),
    "runtime.single_op.loss_batch": (label_loss, SCORED | {"targets": given(20, dtype="i8")}, "losses dscores"),
    "runtime.single_op.loss_batch,positions": (
        position_loss, SCORED | {"scores": given(20, 3, 2), "dscores": given(20, 3, 2),
                                 "targets": given(20, 2, dtype="u1")}, "losses dscores"),
    "runtime.single_op.loss_batch,probabilities": (label_loss, SCORED | {"targets": given(20, 3)}, "losses dscores"),
    "runtime.single_op.loss_batch,numbers": (number_loss, SCORED | {"targets": given(20, 3)}, "losses dscores"),
    "Plan.predict": (predict, predicting(), "y"),
    "Plan.forward": (forward, {k: v for k, v in predicting().items() if k in ("x", "param", "y")}
                     | {"example_ids": np.arange(N)}, "y"),
    "Plan.backward": (backward, {"dy": given(N, OUT), "dx": given(N, 4), "param": given(SIZE), "grad": given(SIZE)},
                      "dx grad"),
    "Plan.backward_examples": (
        backward_examples, {"dy": given(N, OUT), "dx": given(N, 4), "param": given(SIZE), "weights": given(N, 4 * OUT),
                            "bias": given(N, OUT), "squares": given(N, dtype="f8")}, "dx weights bias squares"),
    "Plan.train": (
        train, {k: v for k, v in training().items() if k != "update"}, "losses scores param grad step_counter"),
    "Update.apply": (
        apply, {"param": given(SIZE), "grad": given(SIZE), "step_counter": given(1, dtype="i8")}, "param step_counter"),
}  # fmt: skip
CALLS = {name: (function(name), *rest) for name, rest in FUNCTIONS.items()} | METHODS
ACCEPTED = (
    "read-only",
    "memory map",
    "subclass",
    "view of a freed parent",
)  # the same values in the same memory layout
CASES = Cases()


def outcome(call, arguments, outputs):
    """Returns the outputs of a call, or the error that refused it, which must leave all arrays unchanged."""
    arrays = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
    before = {name: np.copy(value) for name, value in arrays.items() if value.size < 10**6}
    try:
        call(**arguments)
    except REFUSALS as error:
        for name, value in before.items():
            assert np.array_equal(arguments[name], value, equal_nan=value.dtype.kind == "f"), f"{error}: changed {name}"
        return error
    return [None if arguments[name] is None else np.asarray(arguments[name]) for name in outputs]


def copies(arguments):
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in arguments.items()}


def check(call, right, outputs, name, kind):
    clean = right[name]
    odd = KINDS[kind](clean)
    numbers = clean.copy() if odd is None else None if kind in NEVER else plain(odd, clean.dtype)
    found = outcome(call, copies(right) | {name: odd}, outputs)
    if isinstance(found, Exception):
        assert str(found)
        assert kind not in ACCEPTED or name in outputs, f"{kind} for {name} was refused: {found}"
        return
    assert kind not in NEVER, f"{kind} for {name} was accepted"
    assert numbers is not None, f"{kind} for {name} was accepted"
    expected = outcome(call, copies(right) | {name: numbers}, outputs)
    assert not isinstance(expected, Exception), f"{kind} for {name} was accepted, its plain copy is not: {expected}"
    if odd is None:
        return  # an optional argument: the tests of the function cover None
    for output, a, b in zip(outputs, found, expected, strict=True):
        assert a.dtype == b.dtype or output == name, f"{kind} for {name}: {output} is {a.dtype}"
        assert np.array_equal(a, b, equal_nan=True), f"{kind} for {name}: wrong {output}"


def add(function_name, name):
    def case():
        call, right, outputs = CALLS[function_name]
        found = outcome(call, copies(right), outputs.split())
        assert not isinstance(found, Exception), f"the valid arrays are refused: {found}"
        for kind in KINDS:
            check(call, right, outputs.split(), name, kind)

    case.__name__ = f"{function_name}:{name}"
    CASES.add(case)


for function_name, (_, right, _) in CALLS.items():
    for name, value in right.items():
        if isinstance(value, np.ndarray):
            add(function_name, name)


@pytest.fixture(scope="module")
def results():
    return CASES.run(__file__)


@pytest.mark.parametrize("name", CASES)
def test_unusual_arrays_are_refused_or_give_the_right_result(name, results):
    assert results[name] == "ok"


def test_every_public_function_is_covered():
    found = {}
    package = Path(minidl_c.__file__).parent
    for path in package.rglob("*.pyx"):
        short = ".".join(path.relative_to(package).with_suffix("").parts)
        module = importlib.import_module(f"minidl_c.{short}")
        for name, value in vars(module).items():
            ours = name[0] != "_" and getattr(value, "__module__", "") == module.__name__
            if ours and callable(value) and not isinstance(value, type):
                found[f"{short}.{name}"] = value
    batch = {name.partition(",")[0] for name in METHODS if name.startswith("runtime.single_op.")}
    assert set(found) == {*FUNCTIONS, *WITHOUT_ARRAYS, *batch}
    plain_ones = {
        "dtype",
        "num_threads",
        "padding",
        "dilation",
        "groups",
        "stride",
        "ceil_mode",
        "offset",
        "seed",
        "step",
        "path",
        "clip_norm",
    }
    for name, (right, _) in FUNCTIONS.items():
        assert set(inspect.signature(found[name]).parameters) - set(right) <= plain_ones, name


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_each_number_that_is_not_finite_is_found(dtype):
    """Vectors and the numbers after the last whole one, in every lane."""
    largest = np.finfo(dtype).max
    for n in (0, 1, 15, 31, 64, 67, 150):
        x = np.resize([largest, -largest, 0, -0.0, np.finfo(dtype).smallest_subnormal], n).astype(dtype)
        assert all_finite(x)
        for position in range(n):
            for bad in (np.nan, np.inf, -np.inf):
                changed = x.copy()
                changed[position] = bad
                assert not all_finite(changed), (n, position, bad)


def test_numbers_that_float32_cannot_hold_are_found():
    largest = float(np.finfo("float32").max)
    for n in (1, 7, 64, 67):
        for position in range(n):
            x = np.full(n, -largest)
            assert all_finite(x, "float32")
            for bad in (np.nan, -np.inf, np.nextafter(largest, np.inf), -np.nextafter(largest, np.inf)):
                x[position] = bad
                assert not all_finite(x, "float32")
                assert not is_readable(x, "float32")


class Subclass(np.ndarray):
    """An array that may compute anything."""


X32 = np.ones((4, 3), "float32")
READABLE = [X32, X32.astype("float64"), X32.astype("uint8"), X32[:0], X32[1:], np.asfortranarray(X32[:1])]
UNREADABLE = [
    *[X32.tolist(), None, 1.0, X32[:, 1:], X32.T, X32.view(Subclass), np.ma.masked_array(X32), X32.astype(">f4")],
    *[X32.astype("float16"), X32.astype("int64"), X32.astype("int8"), X32 > 0, np.zeros(3, "f4,f4")],
    *[np.zeros(3, "datetime64[s]"), np.array(["a"]), np.array([None]), memoryview(X32)],
    np.zeros(13, "uint8")[1:].view("float32"),
]


def test_readable_arrays():
    assert [is_readable(x, "float32") for x in READABLE] == [True] * len(READABLE)
    assert [is_readable(x, "float32") for x in UNREADABLE] == [False] * len(UNREADABLE)


def test_labels():
    labels = np.arange(3)
    assert all(are_labels(y, 3) for y in (labels, labels.astype("uint8"), labels[:0], labels.reshape(1, 3)))
    outside = (np.arange(4), np.array([-1]), np.array([0, 2**62]), np.array([255], "uint8"))
    unknown = (labels.astype("int32"), labels[::2], labels.tolist(), labels.astype(">i8"), labels.view(Subclass), X32)
    assert not any(are_labels(y, 3) for y in (*outside, *unknown))


if __name__ == "__main__":
    CASES.main(sys.argv[1:])
