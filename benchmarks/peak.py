"""Peak multiply-add throughput of this machine, measured in the same run as everything else.

The measuring code, probe.pyx, is compiled on first use for the instruction set in use, and kept in the user's cache
folder. Like building minidl, this needs Cython, setuptools and a C compiler.
"""

import hashlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import minidl_c

SOURCE = Path(__file__).with_name("probe.pyx")
SETUP = """
import json
from Cython.Build import cythonize
from setuptools import Extension, setup
flags, directives = json.load(open("flags.json"))
flags["define_macros"] = [tuple(macro) for macro in flags["define_macros"]]
probe = Extension("probe", ["probe.pyx"], **flags)
setup(
    name="probe",
    script_args=["--quiet", "build_ext", "--inplace"],
    ext_modules=cythonize(probe, include_path=flags["include_dirs"], compiler_directives=directives, quiet=True),
)
"""
DIRECTIVES = {"language_level": 3, "boundscheck": False, "wraparound": False, "cdivision": True}


def cache_folder():
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "minidl-benchmarks"


def fingerprint(flags):
    """Returns a hash of everything that the compiled probe depends on."""
    folder = Path(minidl_c.__file__).parent
    parts = [path.read_bytes() for path in [SOURCE, *sorted(folder.glob("op.*")), folder / "simd" / "lanes.h"]]
    parts.append(json.dumps([flags, DIRECTIVES, sys.version]).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def build_probe():
    """Returns the module `probe`, compiling it if necessary. Raises RuntimeError if it cannot be built."""
    flags = minidl_c.build_flags(minidl_c.isa)
    built = cache_folder() / fingerprint(flags) / "probe.so"
    if not built.exists():
        print("Building the probe ...", flush=True)
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as folder:
            compile_in(Path(folder), flags)
            (module,) = Path(folder).glob("probe.*.so")
            os.replace(module, built)  # atomic
    spec = importlib.util.spec_from_file_location("probe", built)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_in(folder, flags):
    """Compiles probe.pyx in `folder`."""
    (folder / "probe.pyx").write_text(SOURCE.read_text())
    (folder / "flags.json").write_text(json.dumps([flags, DIRECTIVES]))
    run = subprocess.run([sys.executable, "-c", SETUP], cwd=folder, capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"probe.pyx: {(run.stdout + run.stderr).strip().splitlines()[-1]}")


def probe_or_notice():
    """Returns the probe; if it cannot be built, prints a notice and returns None."""
    try:
        return build_probe()
    except (RuntimeError, OSError) as error:
        print(f"The peak is not measured: {error}")
        return None


class Peak:
    """Peak float32 FLOP/s of `threads` concurrent threads; `measure` adds a round, `flops` is the median of the rounds.

    Without a probe nothing is measured, and `flops` is None.
    """

    def __init__(self, probe, threads, seconds=0.05):
        self.probe, self.threads, self.seconds, self.rounds = probe, threads, seconds, []

    def measure(self):
        if self.probe is None:
            return
        found, start = [], threading.Barrier(self.threads)

        def work():
            start.wait()
            found.append(self.probe.peak(self.seconds))

        workers = [threading.Thread(target=work) for _ in range(self.threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.rounds.append(sum(found))

    @property
    def flops(self):
        return statistics.median(self.rounds) if self.rounds else None
