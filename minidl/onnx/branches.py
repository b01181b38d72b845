"""A graph as layers know it: one node behind the other, and branches that part and meet again."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from functools import reduce
from typing import NoReturn

from minidl.engine.layer_list import MAX_NESTING
from minidl.onnx.graph import Graph, Node, refuse

NO_CONSTANT = "expected examples, or constants that can be computed here, got something else"
INPUT = -1  # in place of a node's number


@dataclass
class Join:
    """A node in which branches meet. They part where the chain in front of it ends; one may have no node."""

    node: Node
    branches: list[Chain]


Chain = list[Node | Join]


def series(graph: Graph, constants: Container[str]) -> Chain:
    """All that lies between the graph's input and its output, `constants` and what makes them apart.

    Raises ValueError, naming the node, where that is not made of branches that part and meet.
    """
    return _Graph(graph, constants).whole()


def shared(nodes: list[Node]) -> list[Node]:
    """The nodes, each Concat of what another one has concatenated before reading that: [[a, b], c] for [a, b, c].

    So a DenseNet becomes one that parts and meets.
    """
    made, known = list[Node](), dict[tuple[str, str, str], str]()
    for node in nodes:
        if node.op == "Concat" and not node.domain:
            axis, (first, *rest) = str(node.attributes.get("axis")), node.inputs
            while rest and (first, rest[0], axis) in known:
                first = known[first, rest.pop(0), axis]
            if len(rest) == 1:
                known[first, rest[0], axis] = node.outputs[0]
            node = replace(node, inputs=[first, *rest])
        made.append(node)
    return made


class _Graph:
    """For each node that examples go through: what it reads, and where the branches that meet in it have parted.

    That is its immediate dominator: the last node that all ways from the input to it go through. In a graph whose
    branches part and meet, the ways back from a node to its dominator have no node in common.
    """

    def __init__(self, graph: Graph, constants: Container[str]) -> None:
        self.nodes, self.constants, self.output = shared(graph.nodes), constants, graph.outputs[0].name
        self.makers, self.others = {graph.inputs[0].name: INPUT}, dict[str, Node]()
        self.sources: dict[int, list[int]] = {}
        self.parting, self.depth = {INPUT: INPUT}, {INPUT: 0}
        self.seen: set[int] = set()
        for i, node in enumerate(self.nodes):
            self._add(i, node, [name for name in node.inputs if name and name not in constants])

    def _add(self, i: int, node: Node, names: list[str]) -> None:
        self.others.update(dict.fromkeys(node.outputs[1:], node))
        if not node.outputs or not names or any(name not in self.makers for name in names):
            return  # if somebody needs it, `_refuse_output` says what is wrong
        self.sources[i] = [self.makers[name] for name in names]
        common = reduce(self._common, self.sources[i])
        self.parting[i], self.depth[i] = common, self.depth[common] + 1
        self.makers[node.outputs[0]] = i

    def _common(self, a: int, b: int) -> int:
        """The last node that all ways to both go through."""
        while a != b:
            if self.depth[a] >= self.depth[b]:
                a = self.parting[a]
            else:
                b = self.parting[b]
        return a

    def whole(self) -> Chain:
        if self.output not in self.makers:
            self._refuse_output()
        return self.chain(INPUT, self.makers[self.output], 0)

    def chain(self, start: int, end: int, depth: int) -> Chain:
        """The nodes behind `start`, up to and with `end`."""
        found: Chain = []
        at = end
        while at != start:
            node = self.nodes[at]
            if at in self.seen:
                refuse(node, "its output goes into branches that do not part there: no containers of minidl say that")
            self.seen.add(at)
            if len(self.sources[at]) == 1:
                found.append(node)
            else:
                found.append(self.join(node, self.parting[at], self.sources[at], depth))
            at = self.parting[at]
        return found[::-1]

    def join(self, node: Node, start: int, ends: list[int], depth: int) -> Join:
        """The branches from `start` that end in these nodes, and meet in this one."""
        if depth == MAX_NESTING:
            refuse(node, f"expected branches in branches at most {MAX_NESTING} deep, got more")
        regroups = node.op == "Concat" and len(ends) == len(node.inputs)  # sums would be rounded otherwise
        groups = self.groups(start, ends) if regroups else [[end] for end in ends]
        branches = []
        for group in groups:
            common = reduce(self._common, group)
            branch = self.chain(start, common, depth + 1)
            if len(group) > 1:
                inner = replace(node, inputs=[""] * len(group), outputs=[""])
                branch.append(self.join(inner, common, group, depth + 1))
            branches.append(branch)
        return Join(replace(node, inputs=node.inputs[: len(groups)]) if len(groups) < len(ends) else node, branches)

    def groups(self, start: int, ends: list[int]) -> list[list[int]]:
        """Neighbours that part later than the others: [a, b, c] is [a, [b, c]] if b and c have more in common."""
        found, common = [[ends[0]]], ends[0]
        for end in ends[1:]:
            common = self._common(common, end)
            if common == start:
                found.append([end])
                common = end
            else:
                found[-1].append(end)
        return found

    def _refuse_output(self) -> NoReturn:
        """Raises the ValueError for an output to which no way leads, naming the first node that bars it."""
        needed, barred = {self.output}, None
        for i, node in reversed(list(enumerate(self.nodes))):
            if needed & set(node.outputs):
                needed |= set(node.inputs)
                barred = node if i not in self.sources and node.outputs[0] not in self.constants else barred
        if used := [name for name in self.others if name in needed]:
            refuse(self.others[used[0]], f"expected its first output alone to be used, got {used[0]!r}")
        if barred is not None:
            refuse(barred, NO_CONSTANT)
        raise ValueError(f"output {self.output!r}: expected one that is computed from the input, got a constant")
