"""Parsing a graph as a series-parallel graph: nodes in sequence, and branches that fork and join."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from functools import reduce
from typing import NoReturn

from minidl.engine.layer_list import MAX_NESTING
from minidl.onnx.graph import Graph, Node, refuse

NO_CONSTANT = "expected inputs that depend on the examples, or constants that can be computed at import, got another"
INPUT = -1  # in place of the index of a node


@dataclass
class Join:
    """A node in which branches join. They fork at the end of the series before it; a branch may be empty."""

    node: Node
    branches: list[Series]


Series = list[Node | Join]


def parse_graph(graph: Graph, constants: Container[str]) -> Series:
    """Returns the nodes from the graph's input to its output, without those that compute constants.

    Raises ValueError, naming the node, unless the graph is series-parallel.
    """
    return _DominatorTree(graph, constants).parse()


def merge_concats(nodes: list[Node]) -> list[Node]:
    """Returns the nodes, where each Concat reads an earlier Concat of its first inputs: [[a, b], c] for [a, b, c].

    This makes a DenseNet series-parallel.
    """
    merged, concatenated = list[Node](), dict[tuple[str, str, str], str]()
    for node in nodes:
        if node.op == "Concat" and not node.domain:
            axis, (first, *rest) = str(node.attributes.get("axis")), node.inputs
            while rest and (first, rest[0], axis) in concatenated:
                first = concatenated[first, rest.pop(0), axis]
            if len(rest) == 1:
                concatenated[first, rest[0], axis] = node.outputs[0]
            node = replace(node, inputs=[first, *rest])
        merged.append(node)
    return merged


class _DominatorTree:
    """The predecessors and the immediate dominator of each node that depends on the input.

    The immediate dominator is the last other node on all paths from the input to a node (Cooper, Harvey, Kennedy: "A
    simple, fast dominance algorithm", 2001): the fork of the branches that join there. In a series-parallel graph, the
    paths from a join back to its fork have no node in common.
    """

    def __init__(self, graph: Graph, constants: Container[str]) -> None:
        self.nodes, self.constants, self.output = merge_concats(graph.nodes), constants, graph.outputs[0].name
        self.producers, self.other_outputs = {graph.inputs[0].name: INPUT}, dict[str, Node]()
        self.predecessors: dict[int, list[int]] = {}
        self.idom, self.dom_depth = {INPUT: INPUT}, {INPUT: 0}
        self.visited: set[int] = set()
        for i, node in enumerate(self.nodes):
            self._add(i, node, [name for name in node.inputs if name and name not in constants])

    def _add(self, i: int, node: Node, names: list[str]) -> None:
        self.other_outputs.update(dict.fromkeys(node.outputs[1:], node))
        if not node.outputs or not names or any(name not in self.producers for name in names):
            return  # if the output depends on it, `_refuse_output` says what is wrong
        self.predecessors[i] = [self.producers[name] for name in names]
        common = reduce(self.common_dominator, self.predecessors[i])
        self.idom[i], self.dom_depth[i] = common, self.dom_depth[common] + 1
        self.producers[node.outputs[0]] = i

    def common_dominator(self, a: int, b: int) -> int:
        """Returns the last node on all paths to both nodes."""
        while a != b:
            if self.dom_depth[a] >= self.dom_depth[b]:
                a = self.idom[a]
            else:
                b = self.idom[b]
        return a

    def parse(self) -> Series:
        """Returns the series from input to output. Raises UnsupportedNodeError, ValueError."""
        if self.output not in self.producers:
            self._refuse_output()
        return self.series(INPUT, self.producers[self.output], 0)

    def series(self, start: int, end: int, depth: int) -> Series:
        """Returns the nodes after `start`, up to and including `end`."""
        found: Series = []
        at = end
        while at != start:
            node = self.nodes[at]
            if at in self.visited:
                refuse(
                    node,
                    "its output goes to branches that do not fork there: no container of minidl has that structure",
                )
            self.visited.add(at)
            if len(self.predecessors[at]) == 1:
                found.append(node)
            else:
                found.append(self.join(node, self.idom[at], self.predecessors[at], depth))
            at = self.idom[at]
        return found[::-1]

    def join(self, node: Node, start: int, ends: list[int], depth: int) -> Join:
        """Returns the join of branches from `start` that end in the nodes `ends`."""
        if depth == MAX_NESTING:
            refuse(node, f"expected branches nested at most {MAX_NESTING} deep, got more")
        regroups = node.op == "Concat" and len(ends) == len(node.inputs)  # a regrouped sum would be rounded differently
        groups = self.group_neighbours(start, ends) if regroups else [[end] for end in ends]
        branches = []
        for group in groups:
            common = reduce(self.common_dominator, group)
            branch = self.series(start, common, depth + 1)
            if len(group) > 1:
                inner = replace(node, inputs=[""] * len(group), outputs=[""])
                branch.append(self.join(inner, common, group, depth + 1))
            branches.append(branch)
        return Join(replace(node, inputs=node.inputs[: len(groups)]) if len(groups) < len(ends) else node, branches)

    def group_neighbours(self, start: int, ends: list[int]) -> list[list[int]]:
        """Groups neighbours that fork after the others: [a, b, c] is [[a], [b, c]] if b and c share more nodes."""
        found, common = [[ends[0]]], ends[0]
        for end in ends[1:]:
            common = self.common_dominator(common, end)
            if common == start:
                found.append([end])
                common = end
            else:
                found[-1].append(end)
        return found

    def _refuse_output(self) -> NoReturn:
        """Raises ValueError for an output that cannot be reached, naming the first node that blocks the path."""
        needed, blocked = {self.output}, None
        for i, node in reversed(list(enumerate(self.nodes))):
            if needed & set(node.outputs):
                needed |= set(node.inputs)
                blocked = node if i not in self.predecessors and node.outputs[0] not in self.constants else blocked
        if used := [name for name in self.other_outputs if name in needed]:
            refuse(self.other_outputs[used[0]], f"expected only its first output to be used, got {used[0]!r}")
        if blocked is not None:
            refuse(blocked, NO_CONSTANT)
        raise ValueError(f"output {self.output!r}: expected one that is computed from the input, got a constant")
