"""Detection of the instruction sets that this processor supports. This module runs on every processor of its architecture."""

cdef extern from "minidl_c/cpu_level.h":
    int x86_64_level()                  # 1 to 4; 0 on other processors
    int has_avx512_vnni()


def known():
    """Returns the names of the instruction sets for this architecture, best first."""
    return ["v4", "v3", "v2"] if x86_64_level() else ["base"]


def supported():
    """Returns those of `known()` that this processor can run, best first."""
    return [isa for isa in known() if isa == "base" or int(isa[1]) <= x86_64_level()]


def has_vnni():
    """Returns whether this processor has AVX-512's products of bytes, which the kernels of v4 use if they are there."""
    return bool(has_avx512_vnni())
