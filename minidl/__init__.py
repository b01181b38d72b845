"""minidl: convolutional networks and MLPs on CPUs, with custom layers in NumPy or Cython.

>>> import minidl
>>> from minidl.layers import Dense, ReLU
>>> model = minidl.Sequential([Dense(16), ReLU(), Dense(3)], input_shape=(4,))
>>> len(model)
3
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from minidl import callbacks, datasets, testing
from minidl.engine.batch_sum import batch_sum
from minidl.layers.base import Layer
from minidl.layers.param import Param
from minidl.saving.safetensors_file import FileError
from minidl.sequential import Sequential
from minidl.trainer import Trainer
from minidl.training.many_fits import fit_many
from minidl.utils.config import show_config
from minidl.utils.errors import InputError
from minidl.utils.foreign_words import PACKAGE as _PACKAGE
from minidl.utils.hints import unknown_names as _unknown_names
from minidl.utils.threadpool import register as _register_thread_pool
from minidl_c import __version__
from minidl_c.runtime.threads import get_num_threads, set_num_threads

if TYPE_CHECKING:
    from minidl.c_export import export_c
    from minidl.quantization import quantize

__all__ = [
    "FileError",
    "InputError",
    "Layer",
    "Param",
    "Sequential",
    "Trainer",
    "__version__",
    "batch_sum",
    "callbacks",
    "datasets",
    "export_c",
    "fit_many",
    "get_num_threads",
    "quantize",
    "set_num_threads",
    "show_config",
    "testing",
]


_register_thread_pool()

_LAZY_MODULES = ("estimators", "onnx", "plots")


def __getattr__(name: str) -> Any:
    """Imports optional modules on first access, which keeps `import minidl` fast."""
    if name in _LAZY_MODULES:
        return _import_module(f"minidl.{name}")
    if name == "export_c":
        return _import_module("minidl.c_export").export_c
    if name == "quantize":
        return _import_module("minidl.quantization").quantize
    return _unknown_names(__name__, _PACKAGE, __all__)(name)
