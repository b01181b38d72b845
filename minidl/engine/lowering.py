"""Lowering: from layers to the ops of a plan. Forks and joins of branches are ops as well: kernels/branches.pyx."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from minidl.engine.param_groups import ParamGroup
from minidl.layers.base import Layer
from minidl.layers.container import Branch, Container
from minidl.layers.join import ADD, CONCAT, FLATTEN, MULTIPLY
from minidl.utils.validation import Shape
from minidl_c.kernels.branches import AddOp, ConcatOp, RecallOp, SplitOp
from minidl_c.kernels.flatten import FlattenOp
from minidl_c.kernels.join import JoinOp
from minidl_c.op import Op
from minidl_c.runtime.plan import Plan


def plan_of(
    layers: Sequence[Layer],
    offsets: Mapping[int, int],
    groups: Mapping[int, ParamGroup],
    loss: Op | None = None,
) -> Plan:
    """Returns the plan of layers with kernels, and of a loss after them.

    offsets: for each layer, where its parameters begin in the flat buffer. groups: its ParamGroup, which says whether
    it is trained. Both are keyed by the layer's id.
    """
    lowering = Lowering(offsets, groups)
    lowering.chain(layers)
    if not lowering.ops:  # branches that are nothing but the input
        lowering.add(FlattenOp(layers[0].in_shape, layers[0].dtype))
    if loss is not None:
        lowering.add(loss)
    return Plan(lowering.ops, lowering.op_offsets, loss is not None, lowering.frozen)


class Lowering:
    """A list of ops that grows. Op k writes value k + 1; value 0 is the input."""

    def __init__(self, offsets: Mapping[int, int], groups: Mapping[int, ParamGroup]) -> None:
        self.offsets, self.groups = offsets, groups
        self.ops: list[Any] = []
        self.op_offsets: list[int] = []  # of each op's parameters
        self.frozen: list[bool] = []

    @property
    def value(self) -> int:
        """The index of the value that was written last."""
        return len(self.ops)

    def add(self, op: Op | None, offset: int = 0, frozen: bool = False) -> int:
        """Appends an op, or a placeholder (None); returns its index."""
        self.ops.append(op)
        self.op_offsets.append(offset)
        self.frozen.append(frozen)
        return len(self.ops) - 1

    def chain(self, layers: Sequence[Layer]) -> None:
        """Appends the ops of layers, in order."""
        for layer in layers:
            if isinstance(layer, Container):
                self.branches(layer, list(layer.named_branches().values()))
            else:
                offset, frozen = self.offsets[id(layer)], self.groups[id(layer)].frozen
                for op in layer.ops:
                    self.add(op, offset, frozen)
                    offset += op.n_param

    def branches(self, layer: Container, branches: list[Branch]) -> Shape:
        """Appends the ops of branches that fork from the last value; returns the shape of their join."""
        shape, dtype = layer.in_shape, layer.dtype
        *others, last = branches
        if not others:
            return self.branch(layer, last)
        if layer.join == MULTIPLY and not branches[0] and len(branches) == 2:
            others, last = [last], branches[0]  # a b = b a: the branch that is the input itself needs no Recall
        split = self.add(None)
        source = self.value
        first_shape = self.branches(layer, others)
        first = self.value
        adds = layer.join == ADD and first_shape == shape
        if not last and (adds or layer.join == MULTIPLY):  # the input itself: nothing to go back for
            meeting = _join_op(layer, shape, first_shape, source)
            factor = {} if adds else {"factor": first, "factor_shape": first_shape}
            self.ops[split] = SplitOp(shape, self.add(meeting) + 1, dtype, **factor)
        else:
            recall = self.add(None)
            shape_of_last = self.branch(layer, last)
            end = self.value
            meeting = _join_op(layer, first_shape, shape_of_last, first)
            self.add(meeting)
            size, how = math.prod(meeting.out_shape), dict[str, Any]()
            if layer.join in (CONCAT, FLATTEN):
                how = {"axis": layer.axis % len(shape_of_last)}
            elif not isinstance(meeting, AddOp):
                how = {"join": layer.join, "factor": end, "factor_shape": shape_of_last}
            self.ops[recall] = RecallOp(first_shape, shape, source, self.value, size, dtype, **how)
            self.ops[split] = SplitOp(shape, recall + 1, dtype)
        out_shape: Shape = meeting.out_shape
        return out_shape

    def branch(self, layer: Container, layers: Branch) -> Shape:
        """Appends the ops of one branch; returns the shape of its output, as it is joined."""
        self.chain(layers)
        out_shape = layers[-1].out_shape if layers else layer.in_shape
        if layer.join != FLATTEN or len(out_shape) == 1:
            return out_shape
        self.add(FlattenOp(out_shape, layer.dtype))
        return (math.prod(out_shape),)


def _join_op(layer: Container, first_shape: Shape, shape: Shape, first: int) -> Any:
    """Returns the op that joins the value `first`, of first_shape, with the last one."""
    if layer.join in (CONCAT, FLATTEN):
        return ConcatOp(first_shape, shape, first, layer.dtype, axis=layer.axis % len(shape))
    if layer.join == ADD and first_shape == shape:
        return AddOp(shape, first, layer.dtype)
    return JoinOp(layer.join, first_shape, shape, first, layer.dtype)
