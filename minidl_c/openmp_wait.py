"""How long OpenMP's threads wait for each other before they sleep: shortly, which leaves the cores to other programs.

GNU's libgomp spins for milliseconds by default. Beside a busy process, the threads that wait keep the core from the one
that they wait for. libgomp reads the environment once, when it is loaded, so this module sets GOMP_SPINCOUNT for as
long as that takes. Python, child processes and a libgomp of other packages (PyTorch and scikit-learn bring their own)
see nothing of it; who shares this libgomp waits shortly, too.
"""

import ctypes
import os
import sys
from importlib import import_module

SPINS = 3000  # about 30 us: a comment in libgomp's source counts 100,000 a millisecond, of which it does 3 by default
VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def load_openmp() -> str:
    """Imports the first module that needs OpenMP; returns how threads wait, and why."""
    for name in VARIABLES:
        if name in os.environ:
            return f"as {name}={os.environ[name]} says"
    if is_gnu():
        return "as libgomp by itself: another package had loaded it"
    os.environ["GOMP_SPINCOUNT"] = str(SPINS)
    try:
        import_module("minidl_c.runtime.threads")
    finally:
        del os.environ["GOMP_SPINCOUNT"]
    return f"shortly, {SPINS} spins" if is_gnu() else "as the compiler's OpenMP does by itself"


def is_gnu() -> bool:
    """Whether this process has loaded GNU's libgomp."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        ctypes.CDLL("libgomp.so.1", os.RTLD_NOLOAD)
    except OSError:
        return False
    return True
