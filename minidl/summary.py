"""model.summary(): a table of layers, shapes, parameters and memory."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minidl.layer import Layer, Shape

HEADER = ("layer", "output", "parameters", "memory")
TILE = 16  # examples that are in memory at once, for each thread


@dataclass(frozen=True)
class Row:
    """One layer: its place and repr, output shape, number of parameters, bytes of its output for a tile of examples."""

    name: str
    output: Shape
    parameters: int
    tile_bytes: int


@dataclass(frozen=True)
class Summary:
    """What `model.summary()` returns; prints as a table, and shows as one in a notebook."""

    input: Shape
    rows: tuple[Row, ...]
    parameter_bytes: int

    @property
    def parameters(self) -> int:
        """The number of parameters of the whole model."""
        return sum(row.parameters for row in self.rows)

    @property
    def tile_bytes(self) -> int:
        """Bytes of all layers' outputs for a tile of 16 examples; training needs about twice that for each thread."""
        return sum(row.tile_bytes for row in self.rows)

    def _cells(self) -> list[tuple[str, str, str, str]]:
        cells = [("input", str(self.input), "", "")]
        cells += [(r.name, str(r.output), f"{r.parameters:,}", _size(r.tile_bytes)) for r in self.rows]
        return cells

    def _footer(self) -> str:
        return (
            f"{self.parameters:,} parameters ({_size(self.parameter_bytes)}); "
            f"outputs of {TILE} examples: {_size(self.tile_bytes)}"
        )

    def __str__(self) -> str:
        table = [HEADER, *self._cells()]
        widths = [max(len(row[i]) for row in table) for i in range(4)]
        lines = [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}" for a, b, c, d in table]
        rule = "-" * max(map(len, lines))
        return "\n".join([lines[0], rule, *lines[1:], rule, self._footer()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def line(cells: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        body = "".join(line(row, "td") for row in self._cells())
        return f"<table>{line(HEADER, 'th')}{body}</table><p>{html.escape(self._footer())}</p>"


def summarize(layers: Sequence[Layer], dtype: str) -> Summary:
    """The Summary of built layers."""
    item = np.dtype(dtype).itemsize
    rows = tuple(
        Row(
            f"{i} {layer!r}",
            layer.out_shape,
            sum(p.value.size for p in layer.params.values()),
            TILE * item * math.prod(layer.out_shape),
        )
        for i, layer in enumerate(layers)
    )
    return Summary(layers[0].in_shape, rows, item * sum(row.parameters for row in rows))


def _size(count: int) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count = count / 1000  # type: ignore[assignment]
    return f"{count:.3g} GB"
