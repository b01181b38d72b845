"""model.summary(): a table of layers, shapes, parameters, multiply-adds and memory, and the time of an epoch."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidl.engine.network import BranchSegment, Network
from minidl.engine.param_groups import ParamGroup, param_groups
from minidl.engine.segments import NativeSegment, ParamGroups, Segment
from minidl.layers.base import Layer
from minidl.layers.container import Container, title
from minidl.layers.outputs import Outputs
from minidl.utils.factors import Factors
from minidl.utils.validation import Shape

HEADER = ("layer", "output", "parameters", "multiply-adds", "memory")
WIDTH = 100  # columns of the table, unless the numbers take more than half of it


@dataclass(frozen=True)
class Row:
    """One layer: its index and repr, output shape, number of parameters, multiply-adds and bytes of one example.

    output: of Outputs, the shapes by name.
    depth: how many containers it is in; the numbers of a container are those of the layers in it, together.
    trainable: how many of the parameters a step changes.
    macs: multiply-adds of a forward pass through convolutions and dense layers, taps on padding included.
    example_bytes: of the layer's output.
    lr_mult: factor of the learning rate: the layer's own times those of the containers and the model that it is in; a
        dict, by the name of each parameter, if the layer's own is one. decay_mult: that of the weight decay.
    """

    name: str
    depth: int
    output: Shape | dict[str, Shape]
    parameters: int
    trainable: int
    macs: int
    example_bytes: int
    lr_mult: Factors = 1.0
    decay_mult: Factors = 1.0


@dataclass(frozen=True)
class Summary:
    """What `summary()` returns; prints as a table, and shows as one in a notebook. It has the methods of a str.

    The table has about 100 columns; a layer with many arguments takes several lines.

    step_bytes: what a training step on `batch_size` examples takes for all outputs, their gradients and sums. Kernels
        share memory where they can; where a batch norm needs the whole batch, all outputs of all examples are kept.
        (With layers in NumPy it is an estimate: all arrays between layers, but not what such a layer keeps for itself.)
    epoch_seconds: how long an epoch of `examples` takes on `num_threads`; None: only `Trainer.summary` measures it.
    """

    input: Shape
    rows: tuple[Row, ...]
    parameter_bytes: int
    batch_size: int
    step_bytes: int
    epoch_seconds: float | None = None
    examples: int | None = None
    num_threads: int | None = None

    @property
    def parameters(self) -> int:
        """The number of parameters of the whole model."""
        return sum(row.parameters for row in self.rows if row.depth == 0)

    @property
    def trainable(self) -> int:
        """The number of parameters that a step changes: those of layers that are not frozen."""
        return sum(row.trainable for row in self.rows if row.depth == 0)

    @property
    def macs(self) -> int:
        """Multiply-adds of one example's forward; a training step takes about three times as many."""
        return sum(row.macs for row in self.rows if row.depth == 0)

    @property
    def training_bytes(self) -> int:
        """Bytes of memory that training takes: parameters, their gradients and a step, without the data.

        An optimizer keeps more: SGD with momentum as much as the parameters have, Adam twice as much.
        """
        return 2 * self.parameter_bytes + self.step_bytes

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(str, name):
            raise AttributeError(f"{type(self).__name__} has no {name!r}")
        return getattr(str(self), name)

    def _cells(self) -> list[tuple[int, tuple[str, ...]]]:
        """Returns for each line of the table its depth and its cells."""
        cells: list[tuple[int, tuple[str, ...]]] = [(0, ("input", str(self.input), "", "", ""))]
        for row in self.rows:
            frozen = ", frozen" if row.trainable < row.parameters and not row.trainable else ""
            factors = {"lr_mult": row.lr_mult, "decay_mult": row.decay_mult} if row.trainable else {}
            rate = "".join(f", {name} {_factors(one)}" for name, one in factors.items() if one != 1)
            numbers = (f"{row.parameters:,}", f"{row.macs:,}", size(row.example_bytes))
            cells.append((row.depth, (row.name + frozen + rate, _shapes(row.output), *numbers)))
        return cells

    def _footer(self) -> str:
        trainable = "" if self.trainable == self.parameters else f", {self.trainable:,} of them trainable"
        return (
            f"{self.parameters:,} parameters ({size(self.parameter_bytes)}){trainable}, "
            f"{self.macs:,} multiply-adds an example; "
            f"training with batches of {self.batch_size}: {size(self.training_bytes)}{self._time()}"
        )

    def _time(self) -> str:
        if self.epoch_seconds is None:
            return ""
        threads = "1 thread" if self.num_threads == 1 else f"{self.num_threads} threads"
        return f", about {float(f'{self.epoch_seconds:.2g}'):g} s an epoch of {self.examples:,} examples on {threads}"

    def __str__(self) -> str:
        cells = [(0, HEADER), *self._cells()]
        widths = [max(len(row[i]) for _, row in cells) for i in range(1, len(HEADER))]
        width = max(WIDTH - sum(widths) - 2 * len(widths), WIDTH // 2)
        table = []
        for depth, (name, *rest) in cells:
            indent = "  " * depth
            first, *more = textwrap.wrap(name, width, initial_indent=indent, subsequent_indent=indent + "    ")
            table += [(first, *rest), *((line, *[""] * len(rest)) for line in more)]
        widths = [max(len(row[0]) for row in table), *widths]
        lines = []
        for row in table:
            left, right = row[:2], row[2:]
            padded = [f"{cell:<{width}}" for cell, width in zip(left, widths, strict=False)]
            padded += [f"{cell:>{width}}" for cell, width in zip(right, widths[2:], strict=True)]
            lines.append("  ".join(padded))
        rule = "-" * max(map(len, lines))
        return "\n".join([lines[0], rule, *lines[1:], rule, self._footer()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def line(cells: Sequence[str], tag: str, depth: int = 0) -> str:
            left, right = "text-align: left", "text-align: right"  # which notebooks do not agree about
            styles = [f"{left}; padding-left: {0.5 + 1.5 * depth}em", left, right, right, right]
            pairs = zip(styles, cells, strict=True)
            shown = "".join(f'<{tag} style="{style}">{html.escape(cell)}</{tag}>' for style, cell in pairs)
            return f"<tr>{shown}</tr>"

        body = "".join(line(cells, "td", depth) for depth, cells in self._cells())
        table = f"<table><thead>{line(HEADER, 'th')}</thead><tbody>{body}</tbody></table>"
        return f"{table}<p>{html.escape(self._footer())}</p>"


def summarize(network: Network, batch_size: int, num_threads: int | None) -> Summary:
    """Returns the Summary of a built model."""
    item = np.dtype(network.dtype).itemsize
    groups = param_groups(network.layers, ParamGroup(lr_scale=network.lr_mult))
    rows = tuple(row for i, layer in enumerate(network.layers) for row in _rows(str(i), layer, 0, item, groups))
    parameter_bytes = item * sum(row.parameters for row in rows if row.depth == 0)
    step_bytes = _step_bytes(network, batch_size, num_threads)
    return Summary(network.layers[0].in_shape, rows, parameter_bytes, batch_size, step_bytes)


def _rows(path: str, layer: Layer, depth: int, item: int, groups: ParamGroups) -> Iterator[Row]:
    """Yields the rows of a layer and of the layers in it."""
    trained = [leaf for leaf in layer.leaves() if not groups[id(leaf)].frozen]
    parameters, trainable = _count([layer]), _count(trained)
    name, output = f"{path} {title(layer)}", layer.out_shape
    group, numbers = groups[id(layer)], (parameters, trainable, layer.macs, item * math.prod(output))
    shape = layer.layout.shapes if isinstance(layer, Outputs) else output
    yield Row(name, depth, shape, *numbers, group.lr_scale, group.decay_scale)
    if isinstance(layer, Container):
        for place, part in layer.named_children():
            yield from _rows(f"{path}.{place}", part, depth + 1, item, groups)


def _factors(factors: Factors) -> str:
    return (
        " ".join(f"{name}={one:g}" for name, one in factors.items()) if isinstance(factors, Mapping) else f"{factors:g}"
    )


def _shapes(output: Shape | dict[str, Shape]) -> str:
    return ", ".join(map(str, output.values())) if isinstance(output, dict) else str(output)


def _count(layers: Sequence[Layer]) -> int:
    return sum(param.value.size for layer in layers for param in layer.params.values())


def _step_bytes(network: Network, batch_size: int, num_threads: int | None) -> int:
    """Returns the bytes that the segments of a network take in a training step."""
    if network.native:
        (stage,) = network.segments
        assert isinstance(stage, NativeSegment)
        return int(stage.plan.step_bytes(batch_size, num_threads))
    item = np.dtype(network.dtype).itemsize

    def bytes_of(stage: Segment) -> int:
        between = 2 * batch_size * item * math.prod(stage.out_shape)  # its output, and the gradient of it
        if isinstance(stage, NativeSegment):
            return between + int(stage.plan.step_bytes(batch_size, num_threads, manual=True))
        if isinstance(stage, BranchSegment):
            return between + sum(bytes_of(inner) for one in stage.networks for inner in one.segments)
        return between

    return sum(map(bytes_of, network.segments))


def size(count: float) -> str:
    """Returns a number of bytes with a unit.

    >>> size(246824)
    '247 kB'
    """
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count = count / 1000
    return f"{count:.3g} GB"
