"""The summary of a quantized net: a table of its operations, their bytes and their noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from minidl.engine.summary import size
from minidl.quantization.noise import Noise
from minidl.quantization.program import Operation, Program, Value, multiply_adds

HEADER = ("operation", "kind", "output", "multiply-adds", "constants", "SNR")


@dataclass(frozen=True)
class Row:
    """One operation: the layers that it comes from, its output, and what it costs for one example.

    constant_bytes: of weights, biases, factors and tables. snr: the ratio of signal and noise in dB; None: unknown.
    """

    label: str
    kind: str
    output: tuple[int, int, int]
    macs: int
    constant_bytes: int
    snr: float | None


@dataclass(frozen=True)
class QuantizedSummary:
    """What `QuantizedModel.summary` returns; prints as a table."""

    input: tuple[int, int, int]
    rows: tuple[Row, ...]
    advice: str

    @property
    def macs(self) -> int:
        """Multiply-adds of integers for one example."""
        return sum(row.macs for row in self.rows)

    @property
    def constant_bytes(self) -> int:
        """Bytes of weights, biases, factors and tables."""
        return sum(row.constant_bytes for row in self.rows)

    def __str__(self) -> str:
        cells = [HEADER, ("input", "", str(self.input), "", "", "")]
        cells += [(row.label, row.kind, str(row.output), *_numbers(row)) for row in self.rows]
        widths = [max(len(row[i]) for row in cells) for i in range(len(HEADER))]
        lines = []
        for row in cells:
            left = [f"{cell:<{width}}" for cell, width in zip(row[:3], widths[:3], strict=True)]
            right = [f"{cell:>{width}}" for cell, width in zip(row[3:], widths[3:], strict=True)]
            lines.append("  ".join(left + right).rstrip())
        rule = "-" * max(map(len, lines))
        total = f"{size(self.constant_bytes)} of constants, {self.macs:,} multiply-adds an example"
        return "\n".join([lines[0], rule, *lines[1:], rule, total, *([self.advice] if self.advice else [])])

    __repr__ = __str__


def _numbers(row: Row) -> tuple[str, str, str]:
    snr = "" if row.snr is None else f"{row.snr:.1f} dB"
    return f"{row.macs:,}" if row.macs else "", size(row.constant_bytes) if row.constant_bytes else "", snr


def rows_of(program: Program, noise: Sequence[Noise]) -> tuple[Row, ...]:
    """Returns the row of each operation. noise: of some of them, by the layers that they come from."""
    ratios = {one.label: one.snr for one in noise}
    pairs = zip(program.operations, program.values[1:], strict=True)
    return tuple(_row(operation, value, ratios.get(operation.label)) for operation, value in pairs)


def _row(o: Operation, value: Value, snr: float | None) -> Row:
    arrays = [getattr(o, field.name) for field in fields(o)]
    constant_bytes = sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
    return Row(o.label, o.kind, value.shape, multiply_adds(o, value), constant_bytes, snr)
