"""A graph as plain data: what an ONNX file says, without the library onnx."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn

from minidl.utils.arrays import Array

LEAST_OPSET, OPSET, MOST_OPSET = 11, 21, 28  # that can be read, that is written, that can be read
IR = 10
BATCH = -(2**40)  # the batch's size, in shapes: any number of examples


@dataclass
class Node:
    """One operation. Values have names; an input that is left out is ""."""

    op: str
    name: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any] = field(default_factory=dict)  # int, float, str, lists of these, or an array
    doc: str = ""
    domain: str = ""

    def __str__(self) -> str:
        """What errors call it."""
        place = f"node {self.name!r}" if self.name else f"the node of {self.outputs[0] if self.outputs else ''!r}"
        return f"{place} ({self.domain}.{self.op})" if self.domain else f"{place} ({self.op})"


@dataclass
class Value:
    """An input or output: a name, and the sizes of its axes, the batch first; None where the file does not say."""

    name: str
    dtype: str
    shape: list[int | str | None] | None


@dataclass
class Graph:
    """Nodes in the order in which they can be computed, and the constants that they read."""

    nodes: list[Node]
    tensors: dict[str, Array]
    inputs: list[Value]
    outputs: list[Value]
    opset: int = OPSET
    metadata: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, list[int | str | None] | None] = field(default_factory=dict)  # of values, as the file tells them


class Refused(ValueError):
    """A node that no layer can stand for, and why."""

    def __init__(self, node: Node, why: object) -> None:
        super().__init__(f"{node}: {why}")
        self.node, self.why = node, str(why)


def refuse(node: Node, why: object) -> NoReturn:
    """Raises the error for a node that no layer can stand for."""
    raise Refused(node, why)
