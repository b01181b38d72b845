"""The built-in callbacks, one file each. callback_list.py defines the hooks."""

from minidl.callbacks.checkpoint import Checkpoint
from minidl.callbacks.csv_logger import CSVLogger
from minidl.callbacks.early_stopping import EarlyStopping
from minidl.callbacks.exponential_moving_average import ExponentialMovingAverage
from minidl.callbacks.jsonl_logger import JSONLLogger
from minidl.callbacks.reduce_lr_on_plateau import ReduceLROnPlateau
from minidl.callbacks.tensorboard import TensorBoard
from minidl.callbacks.time_limit import TimeLimit

__all__ = [
    "CSVLogger",
    "Checkpoint",
    "EarlyStopping",
    "ExponentialMovingAverage",
    "JSONLLogger",
    "ReduceLROnPlateau",
    "TensorBoard",
    "TimeLimit",
]
