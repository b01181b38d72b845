"""All that keeps a graph from becoming layers, told at once: a user sees whether it can come over at all."""

from __future__ import annotations

import re
from collections.abc import Callable

from minidl.onnx.branches import NO_CONSTANT, Chain, Join
from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import Graph, Node, Refused
from minidl.onnx.joins import branches_of, composed
from minidl.onnx.operators import READ
from minidl.utils.validation import Shape

UNKNOWN = "no layer of minidl does that"
MOST_TOLD = 12
LONGEST = 3  # nodes before a product that are one layer with it
BY_NUMBER = {"Abs", "Clip", "Erf", "Exp", "HardSigmoid", "LogSoftmax", "Mish", "Neg", "Selu", "Softplus", "Sqrt"}

Try = Callable[[Node, Shape], Shape]


class Survey:
    """Looks at each node that the output needs, whatever is wrong with those in front.

    tried: gives the shape behind a node with one input from the examples; raises Refused. Where a shape is not known,
    as what stands in front has no layer and the file does not tell, only the operator is looked at.
    """

    def __init__(self, graph: Graph, constants: Constants, batch: int, tried: Try) -> None:
        self.graph, self.constants, self.batch, self.tried = graph, constants, batch, tried
        self.shapes: dict[str, Shape | None] = {}  # of values that are computed from the examples
        self.makers: dict[str, Node] = {}  # of these values
        self.lost: set[str] = set()  # values that depend on nothing that is known
        self.found: dict[int, Refused] = {}
        self.blind = False

    def told(self, first: Refused, shape: Shape) -> str:
        """What is in the way, one line for each kind; `first` alone if that is all. shape: of an example."""
        self._know(self.graph.inputs[0].name, shape)
        for node in self._needed():
            self._look(node)
        found = list(self.found.values())
        if not any(str(one.node) == str(first.node) for one in found):
            found.insert(0, first)
        kinds: dict[tuple[str, str, str], list[Refused]] = {}
        for one in found:
            kinds.setdefault((one.node.domain, one.node.op, _kind(one.why)), []).append(one)
        lines = [f"{one}{f' ({len(more) + 1} such nodes)' if more else ''}" for one, *more in kinds.values()]
        more = [f"and {len(lines) - MOST_TOLD} other kinds"] if len(lines) > MOST_TOLD else []
        blind = ["where shapes are not known, only operators were looked at"] if self.blind else []
        head = f"expected nodes that layers can stand for, got {len(lines)} kinds of others:"
        return "\n  ".join([*[head][: len(lines) - 1], *lines[:MOST_TOLD], *more, *blind])

    def _needed(self) -> list[Node]:
        """The nodes that the output is computed from, in their order, but those of constants."""
        needed, kept = {self.graph.outputs[0].name}, list[Node]()
        for node in reversed(self.graph.nodes):
            if needed & set(node.outputs) and not any(name in self.constants for name in node.outputs):
                needed |= set(node.inputs)
                kept.append(node)
        self.used = needed
        return kept[::-1]

    def _look(self, node: Node) -> None:
        names = [name for name in node.inputs if name in self.shapes]
        shape = None
        try:
            if names:
                shape = self._behind(node, names)
            elif not self.lost & set(node.inputs):
                raise Refused(node, NO_CONSTANT)
        except Refused as error:
            if error.node.op != "Shape":  # of a value whose shape is not known here: not what is in the way
                self.found[id(node)] = error
        if not names:
            self.lost.update(node.outputs)
            return
        for name in node.outputs:
            self.makers[name] = node
            self._know(name, (shape if name == node.outputs[0] else None) or self._told_by_file(name))

    def _know(self, name: str, shape: Shape | None) -> None:
        self.shapes[name] = shape
        if shape is not None:
            self.constants.shapes[name] = (self.batch, *shape)

    def _behind(self, node: Node, names: list[str]) -> Shape | None:
        """The shape behind a node, None if it is not known; raises Refused."""
        if len(names) > 1:
            return self._met(node, names)
        if node.domain or node.op not in READ:
            same = node.op in BY_NUMBER and not node.domain
            self.found[id(node)] = Refused(node, UNKNOWN)
            return self.shapes[names[0]] if same else None
        if others := [name for name in node.outputs[1:] if name in self.used]:
            raise Refused(node, f"expected its first output alone to be used, got {others[0]!r}")
        shape = self.shapes[names[0]]
        if shape is None or self.lost & set(node.inputs):
            self.blind = True
            return None
        return self.tried(node, shape)

    def _met(self, node: Node, names: list[str]) -> Shape | None:
        """The shape behind a node in which branches meet."""
        if node.op == "Mul" and not node.domain and len(names) == 2:
            for start, end in (names, names[::-1]):
                branch = self._between(start, end)
                if branch is not None and composed(Join(node, [[], branch]), self.constants) is not None:
                    for one in branch:
                        self.found.pop(id(one), None)
                    return self.shapes[start]
        shapes = [self.shapes[name] for name in names]
        known = [shape for shape in shapes if shape is not None]
        branches_of(Join(node, [[] for _ in names]), len(known[0]) + 1 if known else 0)
        if node.op != "Concat":
            return known[0] if known else None
        if len(known) < len(shapes):
            return None
        return sum(shape[0] for shape in known), *known[0][1:]

    def _between(self, start: str, end: str) -> Chain | None:
        """The few nodes that lead from one value to another."""
        chain: Chain = []
        while end != start:
            node = self.makers.get(end)
            if node is None or len(chain) == LONGEST:
                return None
            chain.insert(0, node)
            (end, *others) = [name for name in node.inputs if name in self.shapes]
            if others:
                return None
        return chain

    def _told_by_file(self, name: str) -> Shape | None:
        """What the file says of a value, without the batch."""
        sizes = (self.graph.shapes.get(name) or [])[1:]
        known = tuple(size for size in sizes if isinstance(size, int) and size > 0)
        return known if sizes and len(known) == len(sizes) else None


def _kind(why: str) -> str:
    """A reason without the names and numbers that make it that of one node."""
    return re.sub(r"'[^']*'|\(?-?\d[-\d., ()]*", "#", why)
