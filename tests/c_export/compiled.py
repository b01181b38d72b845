"""Exported models, compiled as shared libraries and called by ctypes."""

import ctypes
import itertools
import subprocess
import sysconfig
from pathlib import Path

import numpy as np

from minidl.c_export import export_c

CC = (sysconfig.get_config_var("CC") or "cc").split()[0]
STRICT = ("-std=c99", "-ffp-contract=off", "-Wall", "-Wextra", "-pedantic", "-Werror")
numbers = itertools.count()


def compile_c(source: Path, *flags: str, shared: bool = True) -> Path:
    """Compiles a C file without warnings; returns the library, or the program."""
    output = source.with_suffix(".so" if shared else ".program")
    kind = ("-shared", "-fPIC") if shared else ()
    command = [CC, *STRICT, *flags, *kind, str(source), "-o", str(output), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, f"{' '.join(command)}\n{done.stderr[:3000]}"
    return output


class Compiled:
    """The functions of an exported model. flags: of the compiler, -DX for -DNAME_X; arguments: of export_c."""

    def __init__(self, model, folder: Path, *flags: str, **arguments) -> None:
        name = f"net{next(numbers)}"
        self.source = folder / f"{name}.c"
        export_c(model, self.source, **arguments)
        own = [flag.replace("-D", f"-D{name.upper()}_") for flag in (*(flags or ("-O1",)), "-DTEST")]
        library = ctypes.CDLL(str(compile_c(self.source, *own)))
        self.functions = {"predict": library[f"{name}_predict"], "predict_uint8": library[f"{name}_predict_uint8"]}
        self.test = library[f"{name}_test"]
        self.model = model

    def predict(self, X, function="predict"):
        """Returns the scores of examples, which are of the model's dtype, or bytes."""
        shapes = self.model.output_shape
        shapes = {"scores": shapes} if isinstance(shapes, tuple) else shapes
        x, scores = np.ascontiguousarray(X), {k: np.full((len(X), *s), 7, self.model.dtype) for k, s in shapes.items()}
        for i, example in enumerate(x):
            arrays = (example, *(array[i] for array in scores.values()))
            self.functions[function](*(array.ctypes.data_as(ctypes.c_void_p) for array in arrays))
        return scores if self.model.output_names else scores["scores"]


def same_bits(a, b):
    """True if two arrays have the same bits; every NaN equals every other."""
    known = a == a
    equal = np.array_equal(known, b == b) and a[known].tobytes() == b[known].tobytes()
    return a.dtype == b.dtype and a.shape == b.shape and equal
