"""Object safety: no construction, reinitialization, sharing or mutation of minidl_c's objects makes a call crash.

The cases run in a subprocess, as those of test_memory_safety.py.
"""

import contextlib
import copy
import gc
import pickle
import sys
import threading
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from plans import IN, OUT, SIZE, N, back, dense_plan, kept, loss_plan, predicting, train, training
from subprocess_cases import REFUSALS, Cases, refused

import minidl_c
from minidl_c.kernels.activations import ActivationOp
from minidl_c.kernels.affine import AffineOp
from minidl_c.kernels.augment import AugmentOp
from minidl_c.kernels.avgpool2d import AdaptiveAvgPool2DOp, AvgPool2DOp
from minidl_c.kernels.batchnorm import BatchNormOp
from minidl_c.kernels.batchnorm_statistics import BatchStatisticsOp
from minidl_c.kernels.branches import AddOp, ConcatOp, RecallOp, SplitOp
from minidl_c.kernels.color_jitter import ColorJitterOp
from minidl_c.kernels.columns import ColumnsOp
from minidl_c.kernels.conv2d import Conv2DOp
from minidl_c.kernels.conv_transpose2d import ConvTranspose2DOp
from minidl_c.kernels.cutout import CutoutOp
from minidl_c.kernels.dense import DenseOp
from minidl_c.kernels.depthwise_conv2d import DepthwiseConv2DOp
from minidl_c.kernels.embedding import EmbeddingOp
from minidl_c.kernels.flatten import FlattenOp
from minidl_c.kernels.groupnorm import GroupNormOp
from minidl_c.kernels.join import JoinOp
from minidl_c.kernels.layernorm import LayerNormOp
from minidl_c.kernels.lrn import LRNOp
from minidl_c.kernels.maxpool2d import AdaptiveMaxPool2DOp, MaxPool2DOp
from minidl_c.kernels.noise import NoiseOp
from minidl_c.kernels.normalize import NormalizeOp
from minidl_c.kernels.one_hot import OneHotOp
from minidl_c.kernels.pad2d import Pad2DOp
from minidl_c.kernels.permute import ChannelShuffleOp, PermuteOp
from minidl_c.kernels.piecewise_linear_encoding import PiecewiseLinearEncodingOp
from minidl_c.kernels.prelu import PReLUOp
from minidl_c.kernels.reduce import ReduceOp
from minidl_c.kernels.relu import ReLUOp
from minidl_c.kernels.rescale import RescaleOp
from minidl_c.kernels.scale import ScaleOp
from minidl_c.kernels.softmax import SoftmaxOp
from minidl_c.kernels.upsample2d import BilinearUpsample2DOp, Upsample2DOp
from minidl_c.losses.elementwise_losses import ElementwiseLossOp
from minidl_c.losses.softmax_cross_entropy import SoftmaxCrossEntropyOp
from minidl_c.op import Op
from minidl_c.optimizers.adaptive import AdamUpdate
from minidl_c.optimizers.sgd import SGDUpdate
from minidl_c.optimizers.update import Update
from minidl_c.runtime.arena import Arena
from minidl_c.runtime.execution_context import ExecutionContext
from minidl_c.runtime.plan import Plan

CASES = Cases()
case = CASES.add


def every_class():
    """Returns the extension types of all modules of minidl_c."""
    package = Path(minidl_c.__file__).parent
    names = [".".join(path.relative_to(package).with_suffix("").parts) for path in package.rglob("*.pyx")]
    modules = [import_module(f"minidl_c.{name}") for name in names]
    found = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    return {cls for cls in found if cls.__module__.startswith("minidl_c")}


# ---- construction
@case
def invalid_plans_are_refused():
    dense, loss = DenseOp((IN,), OUT), SoftmaxCrossEntropyOp((OUT,))
    for ops in (None, [], [None], [dense, None], [None, dense], [3], [dense, "relu"], [Op()], [dense, Op()], 3, [Op]):
        refused(Plan, ops, [0] * (len(ops) if isinstance(ops, list) else 1))
    for offsets in (None, [], [0, 0], [None], ["a"], [2**70], [-1], [-(2**62)], [1.5], 3):
        refused(Plan, [dense], offsets)
    for offsets in ([0, 0], [0, 14], [4, 0], [4, 18], [2**62, 2**62]):
        refused(Plan, [dense, DenseOp((OUT,), OUT)], offsets)
    Plan([dense, DenseOp((OUT,), OUT)], [12, 0])  # any order without overlap
    refused(Plan, [dense, DenseOp((OUT + 1,), OUT)], [0, 15])
    refused(Plan, [dense, DenseOp((OUT,), OUT, "float64")], [0, 15])
    refused(Plan, [dense, loss], [0, 0])
    refused(Plan, [loss, dense], [0, 0], has_loss=True)
    refused(Plan, [dense], [0], has_loss=True)
    refused(Plan.__new__, Plan)
    refused(Plan)


@case
def parameters_beyond_the_end_of_the_buffer():
    for offset in (1, 16, 2**40, 2**62, 2**63 - 1, 2**63 - SIZE - 1):
        try:
            plan = Plan([DenseOp((IN,), OUT)], [offset])
        except REFUSALS:
            continue
        given = predicting()
        refused(plan.predict, **given)
        refused(plan.forward, given["x"], given["param"], given["y"], 1)
    plan, p, given = kept()
    refused(back, plan, p, given, grad=np.zeros(SIZE - 1, "f4"), param=given["param"][:-1])
    refused(train, loss_plan(), **training() | {"param": np.zeros(3, "f4"), "grad": np.zeros(3, "f4")})


@case
def python_subclasses_with_contradicting_attributes():
    class Contradicting(DenseOp):
        dtype, n_param, in_shape, out_shape = "float32", 0, (1,), (1,)

    op, x = Contradicting((400,), 300, "float64"), np.ones((64, 400), "f4")
    refused(Plan([op], [0]).predict, x, None, np.ones(401 * 300, "f4"), np.empty((64, 300), "f4"), 1)
    refused(Plan, [op, DenseOp((300,), 2)], [0, 401 * 300])


@case
def rows_overwritten_by_another_thread():
    n = 100_000
    plan, x, param = Plan([DenseOp((64,), 64)], [0]), np.ones((n, 64), "f4"), np.ones(65 * 64, "f4")
    for delay in (0.0, 0.001, 0.003):
        rows, y = np.arange(n), np.empty((n, 64), "f4")
        thread = threading.Timer(delay, rows.fill, (2**45,))
        thread.start()
        with contextlib.suppress(ValueError):  # overwritten before they were copied
            plan.predict(x, rows, param, y, 1)
        thread.join()


@case
def a_plan_with_a_loss_only_trains():
    given = predicting()
    refused(loss_plan().predict, **given)
    refused(loss_plan().forward, given["x"], given["param"], given["y"], 1)
    refused(train, dense_plan(), **training())


@case
def calling_init_again_changes_nothing():
    """Objects are made in __cinit__, which cannot be called again; no class has an __init__ of its own."""
    assert {cls for cls in every_class() if cls.__init__ is not object.__init__} == set()
    plan, conv = dense_plan(), Conv2DOp((1, 4, 4), 2, (3, 3))
    for thing, other in ((plan, ([DenseOp((900,), 800)], [0])), (conv, ((1, 90, 90), 2, (3, 3)))):
        for _ in range(3):
            with contextlib.suppress(REFUSALS):
                thing.__init__(*other)
    assert conv.in_shape == (1, 4, 4)
    given = predicting()
    plan.predict(**given)
    assert (given["y"] == 5).all()
    x, y = np.ones((2, 16), "f4"), np.zeros((2, 8), "f4")
    Plan([conv], [0]).predict(x, np.arange(2), np.ones(20, "f4"), y, 1)
    assert (y == 10).all()


@case
def objects_without_init_are_refused():
    for cls in (cls for cls in every_class() if issubclass(cls, Op)):
        try:
            op = cls.__new__(cls)
        except TypeError:
            continue
        repr((op.dtype, op.n_param, op.in_shape))
        refused(Plan, [op], [0])
    for args in ((), (1,), (-1,), (-2,), (2**31 - 1,), (2**70,)):
        for cls in (Arena, ExecutionContext):
            try:
                thing = cls(*args)
            except REFUSALS:
                continue
            if cls is ExecutionContext:
                plan, _, given = kept()
                refused(back, plan, thing, given)
                plan.release(thing)


@case
def failed_constructors_release_their_memory():
    for _ in range(50):
        refused(Conv2DOp, (1, 4, 4), 2, (9, 9))
        refused(Conv2DOp, (1, 4, 4), 2, (3, 3), dtype="float16")
        refused(ConvTranspose2DOp, (1, 4, 4), 2, (3, 3), dtype="float16")
        refused(ConvTranspose2DOp, (1, 4, 4), 2, (3, 3), padding=(3, 3))
        refused(DepthwiseConv2DOp, (2, 4, 4), (9, 9))
        refused(DepthwiseConv2DOp, (2, 4, 4), (3, 3), dtype="float16")
        refused(DenseOp, (4,), 0)
        refused(EmbeddingOp, (4,), 2**25, 3)
        refused(MaxPool2DOp, (1, 4, 4), (9, 9), (1, 1))
        refused(MaxPool2DOp, (1, 4, 4), (2, 2), (1, 1), dtype="float16")
        refused(AvgPool2DOp, (1, 4, 1), (2, 2), (1, 1), (0, 1), dilation=(1, 2))
        refused(AdaptiveAvgPool2DOp, (1, 4, 4), (2, 3), "float16")
        refused(AdaptiveMaxPool2DOp, (1, 4, 4), (2, 3), "float16")
        refused(BilinearUpsample2DOp, (1, 4, 4), (6, 6), (1.5, 1.5), False, "float16")
        refused(NormalizeOp, (1000, 4), [0] * 1000, [0] * 1000)
        refused(NormalizeOp, (1000, 4), [0] * 1000, [2**1100] * 1000)
        refused(PiecewiseLinearEncodingOp, (1000,), [[0, 1]] * 999 + [[1, 0]], [True] * 1000)
        refused(OneHotOp, (1000,), [2] * 999 + [2**24 + 1])


@case
def bools_that_change():
    """An indicator that is not there when it is counted, but when it is written."""

    class Changing:
        answers = iter([False, True] * 50_000)

        def __bool__(self):
            return next(self.answers)

    for _ in range(50):
        op = PiecewiseLinearEncodingOp((100,), [[0, 1]] * 100, [Changing() for _ in range(100)])
        assert len(op.bins) == op.out_shape[0] == 150


@case
def sizes_that_overflow():
    big, most = 2**40, 2**63 - 1
    for call in (
        lambda: DenseOp((2**32 - 1,), 2**32), lambda: DenseOp((most,), most), lambda: DenseOp((big,), big),
        lambda: ReLUOp((np.int64(2**32), np.int64(2**32))), lambda: ReLUOp((most, 2)), lambda: ReLUOp((2**200,)),
        lambda: Conv2DOp((65536, 1, 1), 1, (2**24, 2**24), padding=(2**24 - 1, 0, 2**24 - 1, 0)),
        lambda: Conv2DOp((1, 2**21, 2**21), 1, (1, 1), groups=1, padding=(0, 0, 0, 2**63 - 1)),
        lambda: Conv2DOp((2**20, 1, 1), 2**30, (1, 1)),
        lambda: Conv2DOp((1, 1, 1), 2**40, (2**23, 1), padding=(2**22, 2**22, 0, 0)),
        lambda: Conv2DOp((1, 4, 4), most, (2, 2)),
        lambda: ConvTranspose2DOp((1, 2**21, 2**21), 1, (1, 1)),
        lambda: ConvTranspose2DOp((1, 4, 4), most, (2, 2)),
        lambda: ConvTranspose2DOp((1, 4, 4), 1, (2, 2), stride=(most, most)),
        lambda: ConvTranspose2DOp((1, 1, 1), 1, (1, 1), dilation=(most, 1), output_padding=(most - 1, 0)),
        lambda: ConvTranspose2DOp((1, 4, 4), 1, (2, 2), padding=(most, most)),
        lambda: DepthwiseConv2DOp((2**20, 2**20, 4), (1, 1)),
        lambda: DepthwiseConv2DOp((4, 4, 4), (1, 1), multiplier=most),
        lambda: DepthwiseConv2DOp((4, 4, 4), (most, 1), padding=(most, 0, 0, 0)),
        lambda: MaxPool2DOp((1, most, most), (1, 1), (1, 1)),
        lambda: MaxPool2DOp((1, 4, 4), (most, most), (1, 1), (most // 2, most // 2)),
        lambda: AvgPool2DOp((1, most, most), (1, 1), (1, 1)),
        lambda: AvgPool2DOp((1, 4, 4), (most, most), (1, 1), (most // 2, most // 2)),
        lambda: AvgPool2DOp((1, most, 1), (2, 1), (1, 1), (1, 0)),
        lambda: MaxPool2DOp((1, 4, 4), (2, 2), (1, 1), dilation=(most, most)),
        lambda: AvgPool2DOp((1, 4, 4), (2, 2), (1, 1), (most, most), dilation=(most, most)),
        lambda: AdaptiveAvgPool2DOp((1, 4, 4), (most, most)), lambda: AdaptiveAvgPool2DOp((1, 2**39, 1), (1, 1)),
        lambda: AdaptiveMaxPool2DOp((1, 2**18, 2**18), (1, 1)), lambda: AdaptiveMaxPool2DOp((most, 1, 1), (2, 2)),
        lambda: Pad2DOp((1, 4, 4), (most, most, most, most)), lambda: Pad2DOp((most, 1, 1), (1, 1, 1, 1)),
        lambda: BilinearUpsample2DOp((1, 4, 4), (most, most), (1.0, 1.0), True),
        lambda: BilinearUpsample2DOp((1, 4, 4), (6, 6), (1e300, 1e-300), False),
        lambda: Upsample2DOp((1, 4, 4), (most, most)), lambda: Upsample2DOp((1, 1, 2**40), (1, 2)),
        lambda: NormalizeOp((most, 2), [0], [1]), lambda: NormalizeOp((2, 2), [10**400] * 2, [1, 1]),
        lambda: AugmentOp((1, 4, 4), (most, most)), lambda: AugmentOp((1, 4, 4), (4, 4), (-most, 0), (most, 0)),
        lambda: AugmentOp((most, 4, 4), (4, 4)), lambda: AugmentOp((2**36, 4, 4), (2**12, 2**12)),
        lambda: CutoutOp((1, 4, 4), (most, most)), lambda: CutoutOp((most, 4, 4), (4, 4)),
        lambda: AffineOp((most, 4, 4)), lambda: AffineOp((1, 4, 4), (0, 10**400)), lambda: AffineOp((1, 4, 4), None),
        lambda: ColorJitterOp((3, most, 4)), lambda: ColorJitterOp((3, 4, 4), (0, 10**400)), lambda: ColorJitterOp(3),
        lambda: NoiseOp((2**21, 2**21), 0.1), lambda: NoiseOp((2,), 10**400), lambda: NoiseOp(None, 0.1),
        lambda: BatchNormOp((2**21, 2**21)), lambda: BatchStatisticsOp((most, 2)), lambda: BatchNormOp(()),
        lambda: AddOp((4,), -1), lambda: SplitOp((most, 2), 1), lambda: RecallOp((4,), (4,), 0, 2, 0),
        lambda: ConcatOp((2**40,), (2**40,), 0), lambda: ConcatOp((2, 3), (2, 4), 0),
        lambda: JoinOp("multiply", (2**40, 2), (2**40, 1), 0), lambda: JoinOp("add", (2**30, 1), (1, 2**30), 0),
        lambda: JoinOp("divide", (), (), 0), lambda: JoinOp("modulo", (2,), (2,), 0),
        lambda: JoinOp(None, (2,), (2,), 0), lambda: JoinOp("add", None, (2,), 0),
        lambda: JoinOp("add", (2, 3), (2, 4), 0), lambda: JoinOp("maximum", (4,), (4,), -1),
        lambda: JoinOp("add", ("a",), (2,), 0), lambda: JoinOp("add", (0,), (2,), 0),
        lambda: SplitOp((4,), 3, factor=2**40, factor_shape=(4,)), lambda: SplitOp((4,), 1, factor=1),
        lambda: RecallOp((4,), (4,), 0, 2, 4, join="add"), lambda: RecallOp((4, 2), (4,), 0, 2, 12, axis=2),
        lambda: RecallOp((4, 2), (4,), 0, 2, 13, axis=1), lambda: RecallOp((4, 2), (4,), 0, 2, 4, axis=1),
        lambda: ConcatOp((2, 3), (2, 4), 0, axis=2), lambda: ConcatOp((2, 3), (2, 4), 0, axis=-1),
        lambda: ConcatOp((2, 3), (2, 4, 1), 0, axis=1), lambda: ConcatOp((2, 3), (2, 2**40), 0, axis=1),
        lambda: ColumnsOp((4,), 0, 2**62), lambda: ColumnsOp((4,), 3, 3), lambda: ColumnsOp((), 0, 1),
        lambda: ColumnsOp((2**40, 2), 0, 1), lambda: PermuteOp((1,) * 9, tuple(range(9))),
        lambda: PermuteOp((4, 2), (0, 0)),
        lambda: PermuteOp((2**21, 2**21), (1, 0)), lambda: PermuteOp((), ()), lambda: ChannelShuffleOp((), 1),
        lambda: ChannelShuffleOp((4,), 3), lambda: ChannelShuffleOp((2**21, 2**21), 1),
        lambda: ChannelShuffleOp((4,), most),
        lambda: EmbeddingOp((most,), 2, most), lambda: EmbeddingOp((2,), 2**24, 2**20), lambda: EmbeddingOp((), 2, 2),
        lambda: EmbeddingOp((2**40,), 2, 2), lambda: EmbeddingOp((2,), most, 1, "float64"),
        lambda: PiecewiseLinearEncodingOp((most,), [[0, 1]], [0]), lambda: PiecewiseLinearEncodingOp((), [], []),
        lambda: PiecewiseLinearEncodingOp((1,), [[0, 10**400]], [0]),
        lambda: OneHotOp((most,), [2]), lambda: OneHotOp((2,), [most, most]), lambda: OneHotOp((), []),
        lambda: OneHotOp((1,), [2**40 + 1], "float64"), lambda: OneHotOp((1,), [2**70]), lambda: OneHotOp((1,), None),
        lambda: FlattenOp((2**21, 2**21)), lambda: SoftmaxCrossEntropyOp((2**60,)),
        lambda: ElementwiseLossOp((2**21, 2**21), "huber"), lambda: ElementwiseLossOp(None, "huber"),
        lambda: ElementwiseLossOp((2,), None), lambda: ElementwiseLossOp((2,), "huber", 10**400),
        lambda: ElementwiseLossOp((2,), "binary_cross_entropy", 1.0, "float32", [1]),
        lambda: ElementwiseLossOp((2,), "binary_cross_entropy", 1.0, "float32", None, ["a", 1]),
        lambda: SoftmaxCrossEntropyOp((2,), 0.0, "float32", "a"),
        lambda: SoftmaxCrossEntropyOp((2,), 0.0, "float32", 2**63),
        lambda: SoftmaxCrossEntropyOp(()), lambda: SoftmaxCrossEntropyOp(None),
        lambda: GroupNormOp((2**20,), most, most), lambda: GroupNormOp((2**21, 2**21), 1, 2**42),
        lambda: LayerNormOp((2**20,), most), lambda: LayerNormOp((2**21, 2**21), 2**42), lambda: LayerNormOp((), 0),
        lambda: ScaleOp((1, 2**28), axes=(1,)), lambda: ScaleOp((1, 2**19, 2**19), axes=(0, 2)),
        lambda: ScaleOp((3, 2**28), axes=(0, 1)), lambda: ScaleOp((3,), axes=(most,)), lambda: ScaleOp((3,), axes="0"),
        lambda: ReduceOp((2**28,), "sum", (0,), (1,)), lambda: ReduceOp((2**28, 2), "max", (1,), (2**28,)),
        lambda: ReduceOp((2, 2), "sum", (most,), (2,)), lambda: ReduceOp((2, 2), b"sum", (0,), (2,)),
        lambda: ReduceOp((2, 2), "sum", (0,), (-2,)), lambda: ReduceOp((2, 2), "sum", 0, (2,)),
        lambda: LRNOp((2,), 2**70 + 1), lambda: LRNOp((), 3), lambda: LRNOp((2, 0), 3),
        lambda: LRNOp((2,), 3, "a"), lambda: LRNOp((2**21, 2**21), 3),
        lambda: SoftmaxOp((4,), "float32", "softmax", most, most), lambda: SoftmaxOp((4,), "float32", "softmax", 0, 2),
        lambda: ScaleOp((most, 2)), lambda: ScaleOp(()), lambda: ScaleOp((2, 0), True), lambda: ScaleOp(None),
        lambda: FlattenOp((2.0, 2)), lambda: ReLUOp((-1, -1)), lambda: ReLUOp((0,)), lambda: ReLUOp("ab"),
        lambda: ActivationOp((2**21, 2**21), "tanh"), lambda: PReLUOp((most, 2)), lambda: PReLUOp(()),
        lambda: SoftmaxOp(()), lambda: SoftmaxOp((0, 2)), lambda: PReLUOp((2, 0), True),
        lambda: ActivationOp(None, "elu"), lambda: ActivationOp((4,), "hardtanh", 1, 0),
        lambda: SoftmaxOp((4,), "f4", b""),
        lambda: SoftmaxOp((4,), "float32", b""), lambda: SoftmaxOp((4,), "float32", "elu"),
        lambda: RescaleOp((True, "a"), 1.0), lambda: ReLUOp((4,), ["float32"]), lambda: ReLUOp(None),
    ):  # fmt: skip
        refused(call)


@case
def outputs_larger_than_memory():
    for size in (2**38, 2**40):
        plan = Plan([ReLUOp((size,)), ReLUOp((size,))], [0, 0])
        x, nothing = np.zeros((0, 1), "f4"), np.zeros(0, "f4")
        refused(plan.predict, x, np.zeros(2**10, "i8"), nothing, nothing, 1)
        refused(plan.predict, x, np.zeros(2**24, "i8"), nothing, np.zeros((2**24, 0), "f4"), 1)
        refused(plan.forward, np.zeros((2**24, 0), "f4"), nothing, np.zeros((2**24, 0), "f4"), 1)
        refused(plan.forward, np.zeros((2**60, 0), "f4"), nothing, np.zeros((2**60, 0), "f4"), 1)


# ---- execution contexts
@case
def execution_contexts_of_other_plans():
    plan, p, given = kept()
    for other in (None, 3, ExecutionContext.__new__(ExecutionContext), "pass"):
        refused(back, plan, other, given)
        if not isinstance(other, ExecutionContext):
            refused(plan.release, other)
    refused(back, dense_plan(), p, given)
    dense_plan().release(p)  # the context of another plan: ignored
    back(plan, p, given)
    plan.release(p)
    refused(back, plan, p, given)
    plan.release(p)


@case
def a_released_context_does_not_alias_a_new_one():
    plan, first, given = kept()
    plan.release(first)
    x = np.arange(N * IN, dtype="f4").reshape(N, IN)
    second = plan.forward(x, given["param"], given["y"], 1)
    refused(back, plan, first, given)
    plan.release(first)
    grad = np.zeros(SIZE, "f4")
    back(plan, second, given, grad=grad)
    assert np.array_equal(grad[:OUT], np.full(OUT, x[:, 0].sum()))


@case
def execution_contexts_shared_by_threads():
    plan, shared, given = kept()
    wrong = []

    def work(number):
        for k in range(60):
            if k % 3 == 0:
                mine = predicting()
                plan.predict(**mine)
                wrong.extend([] if (mine["y"] == 5).all() else ["predict"])
            with contextlib.suppress(RuntimeError):
                back(plan, shared, given)
            p = plan.forward(given["x"], given["param"], np.zeros((N, OUT), "f4"), 1)
            back(plan, p, given)
            plan.release(p)
            if number == 0 and k == 30:
                plan.release(shared)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@case
def ops_stay_alive_while_a_plan_uses_them():
    plan = dense_plan()
    with contextlib.suppress(AttributeError):
        plan.sources.clear()
    gc.collect()
    junk = [bytearray(400) for _ in range(1000)]
    given = predicting()
    plan.predict(**given)
    assert (given["y"] == 5).all() and junk


@case
def copying_and_pickling_are_refused():
    plan, p, _ = kept()
    updates = SGDUpdate(4, "float32"), AdamUpdate(4, "float32"), Update()
    for thing in (plan, p, DenseOp((4,), 3), ReLUOp((4,)), *updates, Op()):
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            refused(way, thing)


# ---- the process of their own
@pytest.fixture(scope="module")
def results():
    return CASES.run(__file__)


@pytest.mark.parametrize("name", CASES)
def test_case_passes_in_a_subprocess(name, results):
    assert results[name] == "ok"


if __name__ == "__main__":
    CASES.main(sys.argv[1:])
