"""Packages that not all of minidl needs: what is called without one of them names it, and how it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

PACKAGES = {  # a module's package, and what pip installs; of others, both have the module's name
    "PIL": ("Pillow", '"minidl[images]"'),
    "matplotlib": ("matplotlib", '"minidl[plot]"'),
    "mpi4py": ("mpi4py", '"minidl[mpi]"'),
    "onnx": ("onnx", '"minidl[onnx]"'),
    "sklearn": ("scikit-learn", "scikit-learn"),
    "tensorboardX": ("tensorboardX", '"minidl[tensorboard]"'),
}


@contextmanager
def needs(module: str, what: str) -> Iterator[None]:
    """A context that imports a module: without it, the ImportError says what needs its package."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != module:
            raise
        package, installed = PACKAGES.get(module, (module, module))
        raise ImportError(f"{what} needs {package}: pip install {installed}") from error
