"""Programs of quantized nets as C, compiled as shared libraries and called by ctypes."""

import ctypes

import numpy as np
import reference_integer
from c_export.compiled import compile_c, numbers

from minidl.c_export.export_program import export_program
from minidl.quantization import program as p

STRICT = ("-Wconversion", "-Wstrict-prototypes", "-Wshadow")
TYPES = {"predict": np.int8, "predict_uint8": np.uint8}


def scores_of(program):
    """Returns the function of quantized inputs that the reference computes."""
    return lambda q: reference_integer.run(program, q)[-1]


def write(program, path, **arguments):
    export_program(program, scores_of(program), path, **arguments)
    return path


def half_to_even(text):
    """Returns a C file that rounds a half to the even number: the last bit of the quotient is cleared there."""
    for quotient, kind in (("((dividend >> (shift - 1)) + 1) >> 1", "uint64_t"),
                           ("((upper >> (shift - 33)) + 1) >> 1", "uint32_t")):  # fmt: skip
        is_half = "dividend << (64 - shift) == (uint64_t)1 << 63"
        text = text.replace(f"({quotient})", f"(({quotient}) & ~({kind})({is_half} ? 1 : 0))")
    return text


class CompiledProgram:
    """The functions of an exported program. flags: of the compiler; edit: what changes the text of the C file."""

    def __init__(self, program, folder, *flags, edit=None):
        path = write(program, folder / f"net{next(numbers)}.c", name="net")
        if edit:
            path.write_text(edit(path.read_text()))
        options = (*STRICT, *(flags or ("-O1",)), "-DNET_TEST", "-DNET_FLOAT")
        self.library = ctypes.CDLL(str(compile_c(path, *options)))
        self.test, self.program = self.library.net_test, program

    def predict(self, x):
        """Returns the scores of int8 inputs or bytes."""
        function = self.library["net_predict" if x.dtype == np.int8 else "net_predict_uint8"]
        x, scores = np.ascontiguousarray(x), np.full((len(x), *self.program.values[-1].shape), 7, np.int8)
        for one, of_one in zip(x, scores, strict=True):
            function(one.ctypes.data_as(ctypes.c_void_p), of_one.ctypes.data_as(ctypes.c_void_p))
        return scores


def draw_inputs(rng, program, n, dtype=np.int8):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, (n, *program.values[0].shape)).astype(dtype)


def program_of(shape, *steps, zero=-3, factors=None, offsets=None):
    """Returns a program whose values have one quantization. steps: (function of the inputs, indices, shape of y)."""
    quantization = p.Quantization(0.25, zero)
    shapes = [shape, *(step[2] for step in steps)]
    made = p.QuantizeInput(
        np.ones(shape[0]) if factors is None else factors, np.full(shape[0], -128.0) if offsets is None else offsets
    )
    operations = tuple(make(f"{k}, Layer", inputs) for k, (make, inputs, _) in enumerate(steps))
    return p.Program(made, tuple(p.Value(of, quantization) for of in shapes), operations)


def convolution(weights, biases=0, multiplier=1, shift=1, padding=(0, 0, 0, 0), groups=1):
    """Returns a function (label, inputs) of a convolution with these weights, as a step of `program_of`."""
    weights = np.asarray(weights, np.int8)
    biases, multipliers, shifts = (np.zeros(len(weights), np.int32) + np.int32(n) for n in (biases, multiplier, shift))
    return lambda label, inputs: p.SumOfProducts(
        label, inputs, weights, biases, multipliers, shifts, (1, 1), padding, (1, 1), groups, p.LOW, p.HIGH
    )
