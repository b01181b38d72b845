"""The built-in callbacks, one file each. callback_list.py defines the hooks."""

import typing

from minidl.callbacks.checkpoint import Checkpoint
from minidl.callbacks.csv_logger import CSVLogger
from minidl.callbacks.early_stopping import EarlyStopping
from minidl.callbacks.exponential_moving_average import ExponentialMovingAverage
from minidl.callbacks.jsonl_logger import JSONLLogger
from minidl.callbacks.receipt import Receipt
from minidl.callbacks.reduce_lr_on_plateau import ReduceLROnPlateau
from minidl.callbacks.tensorboard import TensorBoard
from minidl.callbacks.time_limit import TimeLimit
from minidl.utils import foreign_words, hints

__all__ = [
    "CSVLogger",
    "Checkpoint",
    "EarlyStopping",
    "ExponentialMovingAverage",
    "JSONLLogger",
    "Receipt",
    "ReduceLROnPlateau",
    "TensorBoard",
    "TimeLimit",
]


if not typing.TYPE_CHECKING:  # for which an unknown name is an error of its own
    __getattr__ = hints.unknown_names(__name__, foreign_words.CALLBACKS, __all__)
