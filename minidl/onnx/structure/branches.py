"""Structure of a graph: nodes in series, and branches that fork and join again."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from functools import reduce
from typing import NoReturn

from minidl.engine.layer_list import MAX_NESTING
from minidl.onnx.graph import Graph, Node, UnsupportedNodeError, not_computable, refuse
from minidl.onnx.structure.regions import Join, Region, Series, plan_region

INPUT_INDEX = -1  # stands for the graph's input among the indices of nodes


class NestingError(UnsupportedNodeError):
    """A value that is read by branches that do not fork there."""


class DepthError(NestingError):
    """Branches that are nested deeper than layers can be."""


def parse_graph(graph: Graph, constants: Container[str]) -> Series:
    """Returns the nodes between the graph's input and output as a series, without `constants` and their producers.

    Branches that do not nest are in a Region. Raises ValueError for nodes that the output cannot be computed by.
    """
    return _DominatorTree(graph, constants).parse()


def merge_concats(nodes: list[Node]) -> list[Node]:
    """Returns the nodes; a Concat that repeats inputs of an earlier one reads its output: [[a, b], c] for [a, b, c].

    This turns the dense connections of a DenseNet into nested branches.
    """
    merged, partial_concats = list[Node](), dict[tuple[str, str, str], str]()
    for node in nodes:
        if node.op == "Concat" and not node.domain:
            axis, (first, *rest) = str(node.attributes.get("axis")), node.inputs
            while rest and (first, rest[0], axis) in partial_concats:
                first = partial_concats[first, rest.pop(0), axis]
            if len(rest) == 1:
                partial_concats[first, rest[0], axis] = node.outputs[0]
            node = replace(node, inputs=[first, *rest])
        merged.append(node)
    return merged


class _DominatorTree:
    """Immediate dominators of the nodes that are computed from the input (Cooper, Harvey and Kennedy, 2001).

    The immediate dominator of a node is the last node on all paths from the input to it: where the branches that it
    joins have forked. If branches nest, the paths from a node back to its dominator share no other node.

    predecessors: the nodes that each node reads. idom, dom_depth: its immediate dominator, and its depth in the tree.
    """

    def __init__(self, graph: Graph, constants: Container[str]) -> None:
        self.nodes, self.constants, self.output = merge_concats(graph.nodes), constants, graph.outputs[0].name
        self.producers, self.secondary_outputs = {graph.inputs[0].name: INPUT_INDEX}, dict[str, Node]()
        self.predecessors: dict[int, list[int]] = {}
        self.idom, self.dom_depth = {INPUT_INDEX: INPUT_INDEX}, {INPUT_INDEX: 0}
        self.visited: dict[int, None] = {}  # in order
        for i, node in enumerate(self.nodes):
            self._add_node(i, node, [name for name in node.inputs if name and name not in constants])

    def _add_node(self, i: int, node: Node, names: list[str]) -> None:
        self.secondary_outputs.update(dict.fromkeys(node.outputs[1:], node))
        if not node.outputs or not names or any(name not in self.producers for name in names):
            return  # if the output needs it, `_refuse_output` reports the reason
        self.predecessors[i] = [self.producers[name] for name in names]
        common = reduce(self.common_dominator, self.predecessors[i])
        self.idom[i], self.dom_depth[i] = common, self.dom_depth[common] + 1
        self.producers[node.outputs[0]] = i

    def common_dominator(self, a: int, b: int) -> int:
        """Returns the lowest common ancestor in the tree: the last node on all paths to both."""
        while a != b:
            if self.dom_depth[a] >= self.dom_depth[b]:
                a = self.idom[a]
            else:
                b = self.idom[b]
        return a

    def parse(self) -> Series:
        """Returns the whole graph as a series."""
        if self.output not in self.producers:
            self._refuse_output()
        return self.parse_series(INPUT_INDEX, self.producers[self.output], 0)

    def parse_series(self, start: int, end: int, depth: int) -> Series:
        """Returns the nodes after `start` up to and including `end`. depth: the nesting level of branches."""
        series: Series = []
        current = end
        while current != start:
            node = self.nodes[current]
            if current in self.visited:
                raise NestingError(node, "its output feeds branches that do not fork there")
            self.visited[current] = None
            if len(self.predecessors[current]) == 1:
                series.append(node)
            else:
                series.append(self.parse_branches(current, depth))
            current = self.idom[current]
        return series[::-1]

    def parse_branches(self, end: int, depth: int) -> Join | Region:
        """Returns the join of branches that ends with the node `end`; if they do not nest, or too deep, a region."""
        n_visited = len(self.visited)
        try:
            return self.parse_join(self.nodes[end], self.idom[end], self.predecessors[end], depth)
        except NestingError as error:
            while len(self.visited) > n_visited:
                self.visited.popitem()
            region = self.find_region(end)
            if any(i in self.visited for i in region) or (depth and isinstance(error, DepthError)):
                raise  # to an outer join, whose branches do not nest, or which is the first level
        self.visited.update(dict.fromkeys(region))
        return plan_region(self.nodes, [*region, end], self.idom[end], self.predecessors)

    def find_region(self, end: int) -> list[int]:
        """Returns the nodes between a join and the value that its branches begin with, in order."""
        region, pending = set[int](), list(self.predecessors[end])
        while pending:
            current = pending.pop()
            if current != self.idom[end] and current not in region:
                region.add(current)
                pending += self.predecessors[current]
        return sorted(region)

    def parse_join(self, node: Node, start: int, ends: list[int], depth: int) -> Join:
        """Returns the join of the branches that fork at `start` and end in the nodes `ends`."""
        if depth == MAX_NESTING:
            raise DepthError(node, f"expected branches nested at most {MAX_NESTING} deep, got more")
        regroups = node.op == "Concat" and len(ends) == len(node.inputs)  # regrouping a sum would change its rounding
        groups = self.group_branches(start, ends) if regroups else [[end] for end in ends]
        branches = []
        for group in groups:
            common = reduce(self.common_dominator, group)
            branch = self.parse_series(start, common, depth + 1)
            if len(group) > 1:
                inner = replace(node, inputs=[""] * len(group), outputs=[""])
                branch.append(self.parse_join(inner, common, group, depth + 1))
            branches.append(branch)
        return Join(replace(node, inputs=node.inputs[: len(groups)]) if len(groups) < len(ends) else node, branches)

    def group_branches(self, start: int, ends: list[int]) -> list[list[int]]:
        """Groups neighbours that fork after `start`: [a, b, c] is [a, [b, c]] if b and c fork later."""
        groups, common = [[ends[0]]], ends[0]
        for end in ends[1:]:
            common = self.common_dominator(common, end)
            if common == start:
                groups.append([end])
                common = end
            else:
                groups[-1].append(end)
        return groups

    def _refuse_output(self) -> NoReturn:
        """Raises ValueError for an output without a path from the input, naming the first node that blocks it."""
        needed, blocker = {self.output}, None
        for i, node in reversed(list(enumerate(self.nodes))):
            if needed & set(node.outputs):
                needed |= set(node.inputs)
                blocker = node if i not in self.predecessors and node.outputs[0] not in self.constants else blocker
        if used := [name for name in self.secondary_outputs if name in needed]:
            refuse(self.secondary_outputs[used[0]], f"expected only its first output to be used, got {used[0]!r}")
        if blocker is not None:
            refuse(blocker, not_computable(blocker))
        raise ValueError(f"output {self.output!r}: expected a value computed from the input, got a constant")
