"""Memory safety: no sequence of calls from Python, with any arguments, crashes or accesses memory outside an array.

A crash would end pytest too, so the cases run in a subprocess, with this file as its script.
"""

import gc
import sys

import numpy as np
import pytest
from plans import (
    IN,
    OUT,
    SIZE,
    N,
    back,
    dense_plan,
    kept,
    loss_plan,
    predicting,
    regression,
    regression_plan,
    train,
    training,
)
from subprocess_cases import REFUSALS, Cases, refused

from minidl_c.functional import dense_forward
from minidl_c.kernels.dense import DenseOp
from minidl_c.kernels.relu import ReLUOp
from minidl_c.kernels.softmax import SoftmaxOp
from minidl_c.losses.elementwise_losses import ElementwiseLossOp
from minidl_c.losses.softmax_cross_entropy import SoftmaxCrossEntropyOp
from minidl_c.optimizers.adaptive import AdagradUpdate, AdamUpdate, RMSpropUpdate
from minidl_c.optimizers.sgd import SGDUpdate
from minidl_c.optimizers.update import Update
from minidl_c.runtime.gather import pack_tiles, unpack_tiles
from minidl_c.runtime.plan import Plan
from minidl_c.runtime.single_op import backward_batch, forward_batch, loss_batch
from minidl_c.runtime.threads import check_num_threads, set_num_threads

CASES = Cases()
case = CASES.add


def invalid_arrays(array):
    """Yields None, other objects, and arrays of a wrong length, shape, dtype or layout, or read-only."""
    yield from (None, 3, [1.0] * array.size, "x", array.tolist(), object(), array.tobytes())
    yield from (array[:-1].copy(), np.resize(array, (len(array) + 1, *array.shape[1:])), array[:0].copy())
    yield from (np.array(1, array.dtype), array.reshape(-1)[0], array[None, ::2].copy())
    yield from (array.astype("f2"), array.astype("c8"), array.astype("O"), array.astype("i2"), array.astype("?"))
    yield array.astype(array.dtype.newbyteorder())
    yield np.repeat(array, 2, axis=0)[::2]
    yield array[::-1]
    yield np.frombuffer(b"?" + array.tobytes(), array.dtype, offset=1).reshape(array.shape)
    yield np.ma.masked_array(array, array == array)
    yield array.view([("a", array.dtype)])
    yield np.broadcast_to(array[:1], array.shape)


def longer(wrong, array):
    """True if `wrong` is a valid array with one row more."""
    shape = (len(array) + 1, *array.shape[1:])
    return type(wrong) is np.ndarray and wrong.dtype == array.dtype and wrong.shape == shape


@case
def valid_calls_succeed():
    plan, given = dense_plan(), predicting()
    plan.predict(**given)
    assert (given["y"] == 5).all()
    trained = training()
    assert train(loss_plan(), **trained) == 5 and trained["step_counter"][0] == 5


@case
def predict_refuses_invalid_arrays():
    for name in ("x", "rows", "param", "y"):
        for wrong in invalid_arrays(predicting()[name]):
            if (name == "rows" and wrong is None) or (name in ("x", "param") and longer(wrong, predicting()[name])):
                continue
            refused(dense_plan().predict, **predicting() | {name: wrong})
            gc.collect()


@case
def forward_and_backward_refuse_invalid_arrays():
    for name in ("x", "param", "y"):
        for wrong in invalid_arrays(predicting()[name]):
            given = predicting() | {name: wrong}
            if name == "param" and longer(wrong, predicting()["param"]):
                continue
            refused(dense_plan().forward, given["x"], given["param"], given["y"], 2)
    for name in ("dy", "dx", "grad", "param"):
        plan, p, given = kept()
        shapes = {"dy": (N, OUT), "dx": (N, IN), "grad": (SIZE,), "param": (SIZE,)}
        for wrong in invalid_arrays(np.ones(shapes[name], "f4")):
            if name != "dx" or wrong is not None:
                refused(back, plan, p, given, **{name: wrong})
        back(plan, p, given)  # a refused call keeps the execution context


@case
def train_refuses_invalid_arrays():
    train_with_invalid_arrays(
        loss_plan, training, [n for n, v in training().items() if isinstance(v, np.ndarray) and v.size > 1]
    )


@case
def train_refuses_invalid_regression_targets():
    given = regression()
    assert train(regression_plan(), **given) == 5
    train_with_invalid_arrays(regression_plan, regression, ["x", "targets"])
    for targets in (np.ones((N, OUT)), np.ones((N, OUT + 1), "f4"), np.arange(N), np.ones((OUT, N), "f4").T):
        refused(train, regression_plan(), **regression() | {"targets": targets})
    refused(train, regression_plan(), **regression() | {"targets": given["x"], "x": given["targets"]})
    refused(train, regression_plan(), **given | {"scores": given["targets"]})


def train_with_invalid_arrays(plan, right, names):
    optional = ("rows", "weights", "scores", "example_ids")
    for name in names:
        for wrong in invalid_arrays(right()[name]):
            if name in optional and wrong is None:
                continue
            given = right()
            before = given["param"].copy(), given["step_counter"].copy()
            if name == "x" and longer(wrong, given["x"]):
                continue
            refused(train, plan(), **given | {name: wrong})
            assert np.array_equal(given["param"], before[0]) and given["step_counter"][0] == 0


@case
def out_of_range_rows_and_labels():
    for bad in (-1, N, 2**62, -(2**62)):
        rows = np.arange(N)
        rows[-1] = bad
        refused(dense_plan().predict, **predicting() | {"rows": rows})
        refused(train, loss_plan(), **training() | {"rows": rows})
        refused(train, loss_plan(), **training() | {"targets": np.where(np.arange(N) == 7, bad, 0)})
        train(loss_plan(), **training() | {"example_ids": rows})  # ids are only passed to ops, never used as an index
    refused(train, loss_plan(), **training() | {"targets": np.full(N, OUT)})


@case
def labels_of_unused_rows_are_not_read():
    given = training() | {"targets": np.where(np.arange(N) < 8, 0, 99), "rows": np.arange(N) % 8}
    assert train(loss_plan(), **given) == 5


@case
def invalid_batch_sizes():
    for batch in (0, -1, -8, 7, 41, 2**62, -(2**62), 2**63, None, "8", 8.5):
        refused(train, loss_plan(), **training() | {"batch": batch})
    empty = {name: value[:0] if isinstance(value, np.ndarray) else value for name, value in training().items()}
    for batch in (0, 1, 8):
        refused(train, loss_plan(), **empty | {"batch": batch, "step_counter": np.zeros(1, "i8")})


@case
def invalid_seeds_threads_and_counts():
    for name in ("num_threads", "seed"):
        for wrong in ("a", 1.5, 2**80, object()):
            refused(train, loss_plan(), **training() | {name: wrong})
    for wrong in (np.zeros(0, "i8"), np.zeros(2, "i8"), None, 0):
        refused(train, loss_plan(), **training() | {"step_counter": wrong})


@case
def updates_for_other_parameters():
    for update in (
        Update(), SGDUpdate(SIZE - 1, "float32"), SGDUpdate(SIZE + 1, "float32"), SGDUpdate(0, "float32"),
        SGDUpdate(SIZE, "float64"), Update.__new__(Update), 3, "sgd",
    ):  # fmt: skip
        given = training()
        refused(train, loss_plan(), **given | {"update": update})
        assert not given["param"].any()
    train(loss_plan(), **training() | {"update": None})


@case
def updates_with_invalid_arguments():
    for kind in (SGDUpdate, AdagradUpdate, RMSpropUpdate, AdamUpdate):
        for size in (-1, 2**56 + 1, 2**62, 2**64, None, 1.5):
            refused(kind, size, "float32")
        for dtype in ("f2", "i8", "c8", "O", ">f4", None, 3):
            refused(kind, 3, dtype)
        refused(kind)
        refused(kind.__new__, kind)
    update = AdamUpdate(3, "float32")
    for steps in (-1, 2**62, 2**64, None, 1.5, "x"):
        refused(setattr, update, "steps", steps)
    assert update.steps == 0


@case
def apply_refuses_invalid_arrays():
    def apply(update, **changes):
        given = {"param": np.ones(6, "f4"), "grad": np.ones(6, "f4"), "step_counter": np.zeros(1, "i8")} | changes
        update.apply(given["param"], given["grad"], 0.1, given["step_counter"])

    apply(SGDUpdate(6, "float32"))
    for name in ("param", "grad"):
        for wrong in invalid_arrays(np.ones(6, "f4")):
            refused(apply, SGDUpdate(6, "float32"), **{name: wrong})
    for wrong in (np.zeros(0, "i8"), np.zeros(2, "i8"), 3):
        refused(apply, SGDUpdate(6, "float32"), step_counter=wrong)
    refused(apply, Update())
    same = np.ones(6, "f4")
    refused(apply, SGDUpdate(6, "float32"), param=same, grad=same)


@case
def a_velocity_cannot_be_resized():
    update = SGDUpdate(SIZE, "float32", 0.9)
    for what in (update.state["velocity"], update.state["velocity"].base):
        for size in (0, 10**7):
            try:
                what.resize(size, refcheck=False)
            except (*REFUSALS, AttributeError):
                pass
    assert train(loss_plan(), **training() | {"update": update}) == 5


# ---- arguments that share memory
@case
def outputs_of_a_plan_that_share_memory():
    square = Plan([DenseOp((3,), 3)], [0])
    data = np.zeros(200, "f4")
    x, y, param = data[:60].reshape(20, 3), data[30:90].reshape(20, 3), data[60:72]
    refused(square.predict, x, np.arange(20), np.zeros(12, "f4"), y, 1)
    refused(square.predict, np.zeros((20, 3), "f4"), np.arange(20), param, y, 1)
    refused(square.forward, x, np.zeros(12, "f4"), y, 1)
    given = training()
    for a, b in (("losses", "weights"), ("losses", "param"), ("grad", "param"), ("scores", "x"), ("scores", "losses")):
        sizes = {name: given[name].size for name in (a, b)}
        room = np.zeros(max(sizes.values()), "f4")
        shared = {name: room[:size].reshape(given[name].shape) for name, size in sizes.items()}
        refused(train, loss_plan(), **given | shared)
    rates = np.zeros(5)
    refused(train, loss_plan(), **given | {"lrs": rates, "losses": rates.view("f4").repeat(4)[:0]})
    plan, p, given = kept()
    refused(back, plan, p, given, dx=data[: N * IN].reshape(N, IN), dy=data[: N * OUT].reshape(N, OUT))
    refused(back, plan, p, given, grad=given["param"])


@case
def outputs_of_kernels_that_share_memory():
    a = np.ones((20, 3), "f4")
    refused(forward_batch, ReLUOp((3,)), a, a)
    refused(forward_batch, ReLUOp((3,)), a[:-1], a[1:])
    refused(backward_batch, ReLUOp((3,)), a, np.ones_like(a), a)
    loss, labels, losses = SoftmaxCrossEntropyOp((3,)), np.zeros(20, "i8"), np.zeros(20, "f4")
    refused(loss_batch, loss, a, labels, losses, a)
    refused(loss_batch, loss, a, labels, a.reshape(-1)[:20])
    refused(loss_batch, loss, a, labels, losses, np.ones_like(a), losses)
    refused(loss_batch, loss, a, labels, labels.view("f4")[:20])
    loss = ElementwiseLossOp((3,), "huber")
    refused(loss_batch, loss, a, np.ones_like(a), losses, a)
    refused(loss_batch, loss, a, losses, losses)
    refused(loss_batch, ReLUOp((3,)), a, np.ones_like(a), losses)
    refused(dense_forward, a, np.ones((3, 3), "f4"), np.ones(3, "f4"), a)
    flat = np.ones(60, "f4")
    update = SGDUpdate(60, "float32", 0.9)
    refused(update.apply, flat, flat, 0.1)
    refused(update.apply, flat, update.state["velocity"], 0.1)
    refused(update.apply, update.state["velocity"], flat, 0.1)
    room = np.zeros((2, 3, 16), "f4")
    refused(pack_tiles, room.reshape(-1)[:60].reshape(20, 3), np.arange(20), room)
    refused(unpack_tiles, room, room.reshape(-1)[:60].reshape(20, 3))


# ---- threads
class ChangingNumber:
    """An integer whose value changes each time it is converted."""

    def __init__(self):
        self.reads = 0

    def __index__(self):
        self.reads += 1
        return 2 if self.reads < 2 else -5

    __int__ = __index__

    def __le__(self, other):
        return True

    __ge__ = __lt__ = __gt__ = __le__


@case
def invalid_thread_counts():
    for wrong in (0, -1, 1025, 2**31, 2**70, -(2**70), 1.5, "2", True, None):
        if wrong is not None:
            refused(dense_plan().predict, **predicting() | {"num_threads": wrong})
            refused(set_num_threads, wrong)
        refused(check_num_threads, wrong)
    assert check_num_threads(ChangingNumber()) in range(1, 1025)


@case
def large_thread_counts():
    for threads in (17, 64, 1024):
        given = predicting()
        dense_plan().predict(**given | {"num_threads": threads})
        assert (given["y"] == 5).all()
        trained = training()
        assert train(loss_plan(), **trained | {"num_threads": threads}) == 5
        out = np.zeros((N, OUT), "f4")
        forward_batch(SoftmaxOp((OUT,)), np.zeros((N, OUT), "f4"), out, num_threads=threads)
        assert np.allclose(out, 1 / OUT)


# ---- the subprocess
@pytest.fixture(scope="module")
def results():
    return CASES.run(__file__)


@pytest.mark.parametrize("name", CASES)
def test_case_passes_in_a_subprocess(name, results):
    assert results[name] == "ok"


if __name__ == "__main__":
    CASES.main(sys.argv[1:])
