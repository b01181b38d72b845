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
}
OTHER = (256, 288)  # the largest of all other functions
CALLER = (224, 320)  # the functions before them: digits_predict to digits_layers
ELEMENTWISE = 32  # each kind of statement in digits_layers that computes elements


def stack_bytes(program: CProgram) -> tuple[int, int]:
    """Returns the bytes that a prediction needs at most, without a custom layer's own: with -O2, and with vectors."""
    heads = [str(s.parts[0]) for s in program.statements if isinstance(s, Statement)]
    kinds = {
        str(s.parts[2]) for s in program.statements if isinstance(s, Statement) and str(s.parts[0]).startswith("EACH")
    }
    called = {FUNCTIONS.get(head.partition("(")[0], OTHER) for head in heads} | {OTHER}
    plain, vectors = (caller + max(sizes) for caller, sizes in zip(CALLER, zip(*called, strict=True), strict=True))
    return plain + ELEMENTWISE * len(kinds), vectors + ELEMENTWISE * len(kinds)
