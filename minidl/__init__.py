"""minidl: convolutional networks and MLPs on CPUs, with layers of your own in NumPy or Cython.

>>> import minidl
>>> from minidl.layers import Dense, ReLU
>>> model = minidl.Sequential([Dense(16), ReLU(), Dense(3)], input_shape=(4,))
>>> len(model)
3
"""

from typing import Any

from minidl import callbacks, datasets, plots, testing
from minidl.config import show_config
from minidl.layer import Layer
from minidl.param import Param
from minidl.saving.files import FileError
from minidl.sequential import Sequential
from minidl.trainer import Trainer
from minidl_c import __version__
from minidl_c.threads import get_num_threads, set_num_threads

__all__ = [
    "FileError",
    "Layer",
    "Param",
    "Sequential",
    "Trainer",
    "__version__",
    "callbacks",
    "datasets",
    "get_num_threads",
    "plots",
    "set_num_threads",
    "show_config",
    "testing",
]


def __getattr__(name: str) -> Any:
    """minidl.estimators is imported when it is asked for, since scikit-learn takes a second."""
    if name == "estimators":
        import minidl.estimators

        return minidl.estimators
    raise AttributeError(f"module 'minidl' has no attribute {name!r}")
