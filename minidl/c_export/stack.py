"""The stack of a prediction, which depends on the functions of C that a model needs.

The compiler chooses it; the numbers are those of GCC 12 for x86-64, whose frames are larger than those of a Cortex-M.
tests/c_export/test_stack.py compares them with the compiler's.
"""

from __future__ import annotations

from minidl.c_export.code_writer import CProgram, Statement

FUNCTIONS = {  # bytes of a function and of those that it calls: -O2; -O3 with vectors, at most those of AVX-512
    "convolve": (848, 768),
    "convolve_channels": (368, 208),
    "convolve_winograd": (936, 2696),
    "dense": (640, 560),
    "group_norm": (320, 304),
    "layer_norm": (496, 528),
    **dict.fromkeys(("gru", "gru_reset_before", "lstm", "simple_rnn"), (880, 880)),
}
OTHER = (256, 288)  # the largest of all other functions
CALLER = (224, 320)  # the functions before them: digits_predict to digits_layers
ELEMENTWISE = 32  # each kind of statement in digits_layers that computes elements

INTEGERS = {  # the same of functions of integers
    "convolve_channels_int8": (192, 192),
    "convolve_int8": (208, 272),
    "max_pool_int8": (96, 96),
    "multiply_int8": (80, 144),
}
OTHER_INTEGERS = (96, 96)
CALLER_INTEGERS = (128, 208)
MANY_ARGUMENTS = ("add_int8", "average_pool_int8", "multiply_int8")  # each passes them in memory, in digits_layers
ARGUMENTS = 56


def stack_bytes(program: CProgram) -> tuple[int, int]:
    """Returns the bytes that a prediction needs at most, without a custom layer's own: with -O2, and with vectors."""
    statements = [s for s in program.statements if isinstance(s, Statement)]
    if program.dtype == "int8":
        names = {_function(str(part)) for s in statements for part in s.parts if isinstance(part, str)}
        called = {INTEGERS.get(name, OTHER_INTEGERS) for name in names} | {OTHER_INTEGERS}
        callers, more = CALLER_INTEGERS, ARGUMENTS * len(names.intersection(MANY_ARGUMENTS))
    else:
        kinds = {str(s.parts[2]) for s in statements if str(s.parts[0]).startswith("EACH")}
        called = {FUNCTIONS.get(_function(str(s.parts[0])), OTHER) for s in statements} | {OTHER}
        callers, more = CALLER, ELEMENTWISE * len(kinds)
    plain, vectors = (caller + max(sizes) for caller, sizes in zip(callers, zip(*called, strict=True), strict=True))
    return plain + more, vectors + more


def _function(text: str) -> str:
    """Returns the name of the function that is called there."""
    return text.partition("(")[0].rpartition(" ")[2]
