"""Detection of the instruction sets that this processor supports.

`setup.py` also runs this file, before anything is built, so it imports nothing from the package.
"""

import platform

# CPU features of each level of x86-64, by their names in /proc/cpuinfo. A level includes those below it.
_V2 = {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}
_V3 = _V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
_V4 = _V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
_X86 = {"v4": _V4, "v3": _V3, "v2": _V2}


def known() -> list[str]:
    """Returns the names of the instruction sets for this architecture, best first."""
    return list(_X86) if platform.machine().lower() in ("x86_64", "amd64") else ["base"]


def supported() -> list[str]:
    """Returns those of `known()` that this processor can run, best first."""
    features = _features()
    if features is None:  # not Linux: the lowest level is safe on every processor since 2009
        return known()[-1:]
    return [isa for isa in known() if _X86.get(isa, set()) <= features]


def _features() -> set[str] | None:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            line = next((line for line in lines if line.startswith("flags")), "")
    except OSError:
        return None
    return set(line.split())
