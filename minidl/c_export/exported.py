"""Export: a program of C, and how it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from minidl.c_export.arena import OVERREAD, place
from minidl.c_export.code_writer import CProgram, Statement, Tensor
from minidl.c_export.examples import Examples
from minidl.quantization.program import Program
from minidl.utils.arrays import Array

C_TYPE = {"float32": "float", "float64": "double", "int8": "int8_t"}


@dataclass(frozen=True)
class Export:
    """A program with its input and outputs, and how it is written.

    outputs: by their names in C, "scores" if there is one. output_names: their names in Python.

    stem: the file's name without ".c". function: the method of Python that returns the same scores. classes: the names
    of the outputs, or none. metadata: what the user says of the model. state: the model's parameters and buffers.
    static_arena: whether the file has memory of its own for the values, else the functions take it. keeps_values:
    whether the outputs of all layers stay in the arena. names_classes: whether the names of the classes are a table.
    separate_tables: whether the tables are in a file of their own. sums_directly: whether convolutions are direct sums,
    also where the model uses Winograd's algorithm. test: the inputs that the test in the file draws, and their scores,
    or None. quantized: the program of integers, unless the numbers are floats.
    """

    stem: str
    function: str
    classes: Sequence[str]
    metadata: Mapping[str, Any]
    program: CProgram
    input: Tensor
    outputs: Mapping[str, Tensor]
    output_names: Sequence[str]
    state: Mapping[str, Array]
    static_arena: bool
    keeps_values: bool
    names_classes: bool
    separate_tables: bool
    sums_directly: bool
    test: Examples | None
    quantized: Program | None = None

    @property
    def name(self) -> str:
        """The first part of the names of functions and tables."""
        return self.program.name

    @property
    def macro(self) -> str:
        """The same, of macros and constants."""
        return self.program.name.upper()

    @property
    def c_type(self) -> str:
        """float or double, or int8_t."""
        return C_TYPE[self.program.dtype]

    @property
    def element(self) -> str:
        """The type of the numbers in the arena, as the functions of the file name it."""
        return "real" if self.quantized is None else self.c_type

    @property
    def memory(self) -> dict[str, int]:
        """The memory that the functions compute in, and its size in numbers: that of values, and that of what is
        computed once, if there is any.
        """
        transformed = self.program.transformed
        return {"arena": self.arena_size} | ({"transformed": transformed} if transformed else {})

    @cached_property
    def arena(self) -> tuple[list[int], int]:
        """The offset of each storage in the arena, and the size of the arena, in numbers."""
        accesses = [s.access for s in self.program.statements if isinstance(s, Statement)]
        live_out = {tensor.storage for tensor in self.outputs.values()}
        if self.keeps_values:
            live_out |= {tensor.storage for _, tensor in self.program.outputs}
        overread = OVERREAD if self.quantized is None else 0
        return place(self.program.sizes, accesses, live_out, overread)

    @property
    def output_size(self) -> int:
        """The number of scores of all outputs."""
        return sum(tensor.size for tensor in self.outputs.values())

    def offset_of(self, tensor: Tensor) -> int:
        """Returns where a tensor begins in the arena."""
        return self.arena[0][tensor.storage]

    @property
    def arena_size(self) -> int:
        """The size of the arena, in numbers."""
        return self.arena[1]

    @property
    def prototypes(self) -> list[str]:
        """The heads of the functions that predict, and of the one that the caller calls once, if there is one."""
        memory, once = "", []
        if not self.static_arena:
            memory = "".join(f", {self.parameter(part, self.c_type)}" for part in self.memory)
            if "transformed" in self.memory:
                once = [f"void {self.name}_transform({self.c_type} *transformed)"]
        scores = ", ".join(f"{self.c_type} *{name}" for name in self.outputs)
        return [
            *once,
            f"void {self.name}_predict(const {self.c_type} *x, {scores}{memory})",
            f"void {self.name}_predict_uint8(const uint8_t *x, {scores}{memory})",
        ]

    def parameter(self, part: str, kind: str) -> str:
        """Returns the parameter of a function for a part of the memory, which may be written there."""
        is_read = part == "transformed" and not self.static_arena
        return f"{'const ' if is_read else ''}{kind} *{part}"
