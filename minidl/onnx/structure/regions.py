"""Branches that do not nest: which values are computed in which step, from those of earlier steps.

In such a region some values are read by branches that fork elsewhere. A layer tree has no names for values, but it
can carry them along: each step is a Parallel that passes on what later steps read and adds what it computes. As much
as possible is in one branch of a step: chains, and joins of branches that fork in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from minidl.engine.layer_list import MAX_NESTING
from minidl.onnx.graph import Node

Source = int  # the index of the node that computes a value


@dataclass
class Join:
    """A node that joins branches. They fork at the end of the series before it; a branch may be empty."""

    node: Node
    branches: list[Series]


@dataclass
class Computed:
    """A value: branches, each from a value of an earlier step, their join if there are several, and what follows."""

    branches: list[tuple[Source, Series]]
    join: Node | None
    rest: Series

    def then(self, items: Series) -> Computed:
        """Returns it with more nodes."""
        if self.join is not None:
            return replace(self, rest=[*self.rest, *items])
        ((source, series),) = self.branches
        return Computed([(source, [*series, *items])], None, [])


@dataclass
class Region:
    """Branches that do not nest. start: of the value that all of them begin with; node: the last one.

    steps: the values that each step computes, by the index of their nodes.
    """

    node: Node
    start: Source
    steps: list[dict[Source, Computed]]

    def read_later(self) -> list[set[Source]]:
        """Returns for each step the values that later steps read."""
        by_step, later = list[set[Source]](), set[Source]()
        for step in reversed(self.steps):
            by_step.append(set(later))
            later |= {source for value in step.values() for source, _ in value.branches}
        return by_step[::-1]


Series = list[Node | Join | Region]


def plan_region(
    nodes: Sequence[Node], indices: Sequence[int], start: Source, predecessors: Mapping[int, list[int]]
) -> Region:
    """Returns the region of the nodes with these indices, in order, of which the last one joins the others.

    predecessors: of each node, those that it reads: `start`, or nodes of the region.
    """
    reducer = _Reducer(nodes, start)
    for i in indices:
        for source in predecessors[i]:
            reducer.uses[source] = reducer.uses.get(source, 0) + 1
    for i in indices:
        reducer.add(i, predecessors[i])
    return Region(nodes[indices[-1]], start, reducer.schedule())


class _Reducer:
    """Series-parallel reduction: merges chains, and branches that fork and join, into one value.

    uses: how often each value is read.
    """

    def __init__(self, nodes: Sequence[Node], start: Source) -> None:
        self.nodes, self.start = nodes, start
        self.uses: dict[Source, int] = {}
        self.values: dict[Source, Computed] = {}

    def add(self, i: int, sources: list[Source]) -> None:
        """Adds the node of index i, which reads `sources`."""
        node, inputs = self.nodes[i], [self._follow(source) for source in sources]
        if _nesting([Join(node, [series for _, series in inputs])]) >= MAX_NESTING:  # a step is one more level
            inputs = [(source, []) for source in sources]
        for source, (earlier, _) in zip(sources, inputs, strict=True):
            if source != earlier:
                del self.values[source]
        first = inputs[0][0]
        if any(source != first for source, _ in inputs):
            self.values[i] = Computed(inputs, node, [])
            return
        item = node if len(inputs) == 1 else Join(node, [series for _, series in inputs])
        items: Series = [*inputs[0][1], item] if len(inputs) == 1 else [item]
        if first != self.start and self.uses[first] == len(inputs):
            self.values[i] = self.values.pop(first).then(items)
        else:
            self.uses[first] -= len(inputs) - 1
            self.values[i] = Computed([(first, items)], None, [])

    def _follow(self, source: Source) -> tuple[Source, Series]:
        """Returns a value that is read once as nodes after an earlier one, if it is computed from only one."""
        if source != self.start and self.uses[source] == 1 and self.values[source].join is None:
            (branch,) = self.values[source].branches
            return branch
        return source, []

    def schedule(self) -> list[dict[Source, Computed]]:
        """Returns the values of each step: each as soon as those that it is computed from are there."""
        step_of, steps = {self.start: 0}, list[dict[Source, Computed]]()
        for i, value in self.values.items():
            step_of[i] = 1 + max(step_of[source] for source, _ in value.branches)
            while len(steps) < step_of[i]:
                steps.append({})
            steps[step_of[i] - 1][i] = value
        return steps


def _nesting(series: Series) -> int:
    joins = [item for item in series if isinstance(item, Join)]
    return max((1 + max(map(_nesting, join.branches)) for join in joins), default=0)
