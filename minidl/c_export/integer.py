"""C files of quantized nets: from a Program to C of integers, whose scores are those of the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from minidl.c_export.code_writer import CProgram, Tensor
from minidl.c_export.examples import Examples, random_bytes
from minidl.c_export.writers import integers
from minidl.quantization.evaluation import quantize_input
from minidl.quantization.program import HIGH, LOW, Int8, Program, QuantizeInput
from minidl.utils.arrays import Array

EXAMPLES = 8  # of the test in the file, of which example 1 is passed as bytes


def generate(program: Program, name: str) -> tuple[CProgram, Tensor, Mapping[str, Tensor]]:
    """Returns the C program of a quantized net, its input and its output. name: the first part of all its names in C.

    Raises ValueError, naming the layer, for sums that may not fit 32 bits.
    """
    c_program = CProgram(name, "int8")
    c_program.arrays |= byte_tables(name, program.input)
    tensors = [c_program.new_tensor(program.values[0].shape)]
    for number, operation in enumerate(program.operations):
        writer = integers.OperationWriter(c_program, program, number)
        c_program.statements.append(integers.title(operation, writer.inputs, writer.output))
        try:
            y = integers.WRITE[type(operation)](writer, operation, *(tensors[k] for k in operation.inputs))
        except ValueError as error:
            raise ValueError(f"{operation.label}: {error}") from error
        tensors.append(y)
        c_program.outputs.append((operation.label, y))
    return c_program, tensors[0], {"scores": tensors[-1]}


def byte_tables(name: str, made: QuantizeInput) -> dict[str, Array]:
    """Returns the tables, by their names, of what bytes become: none if they are shifted alone.

    Several ones follow each other; another table says where that of each channel begins.
    """
    distinct, channels = np.unique(quantized_bytes(made), axis=0, return_inverse=True)
    if len(distinct) == 1 and (distinct[0] == np.arange(LOW, HIGH + 1)).all():
        return {}
    starts = {f"{name}_starts": (256 * channels).astype(np.int32)} if len(distinct) > 1 else {}
    return {f"{name}_bytes": distinct} | starts


def quantized_bytes(made: QuantizeInput) -> Int8:
    """Returns what bytes become in each channel: (c, 256)."""
    all_bytes = np.broadcast_to(np.arange(256), (1, len(made.factors), 1, 256))
    return quantize_input(made, all_bytes)[0, :, 0]


def draw(program: Program, predict: Callable[[Int8], Int8]) -> Examples:
    """Returns the scores of the examples in the file, from a function of quantized inputs (n, c, h, w)."""
    shape = program.values[0].shape
    bytes_ = np.array([random_bytes(k, int(np.prod(shape))) for k in range(EXAMPLES)]).reshape(EXAMPLES, *shape)
    inputs = (bytes_ - 128).astype(np.int8)
    inputs[1] = quantized_bytes(program.input)[np.arange(shape[0])[:, None, None], bytes_[1]]
    return Examples((), (), np.asarray(predict(inputs)))
