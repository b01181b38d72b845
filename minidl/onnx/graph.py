"""A graph as plain data: the content of an ONNX file, without the library onnx."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn

from minidl.utils.arrays import Array

MIN_OPSET, OPSET, MAX_OPSET = 11, 21, 28  # the oldest read, the one written, the newest read
IR = 10
BATCH = -(2**40)  # the batch size in shapes: any number of examples


@dataclass
class Node:
    """One operation. Values have names; an omitted input is ""."""

    op: str
    name: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any] = field(default_factory=dict)  # int, float, str, lists of these, or an array
    doc: str = ""
    domain: str = ""

    def __str__(self) -> str:
        """The name of the node in error messages."""
        place = f"node {self.name!r}" if self.name else f"the node of {self.outputs[0] if self.outputs else ''!r}"
        return f"{place} ({self.domain}.{self.op})" if self.domain else f"{place} ({self.op})"


@dataclass
class Value:
    """An input or output: its name and shape, batch first; None for a size that the file leaves open."""

    name: str
    dtype: str
    shape: list[int | str | None] | None


@dataclass
class Graph:
    """Nodes in topological order, and the constants that they read."""

    nodes: list[Node]
    tensors: dict[str, Array]
    inputs: list[Value]
    outputs: list[Value]
    opset: int = OPSET
    metadata: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, list[int | str | None] | None] = field(default_factory=dict)  # of values, as declared in the file


class UnsupportedNodeError(ValueError):
    """A node that no layer computes, and the reason."""

    def __init__(self, node: Node, why: object) -> None:
        super().__init__(f"{node}: {why}")
        self.node, self.why = node, str(why)


def refuse(node: Node, why: object) -> NoReturn:
    """Raises UnsupportedNodeError for a node that no layer computes."""
    raise UnsupportedNodeError(node, why)
