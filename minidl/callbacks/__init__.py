"""The callbacks that come with minidl, a file each. What a callback is: callback_list.py."""

from minidl.callbacks.checkpoint import Checkpoint
from minidl.callbacks.csv_logger import CSVLogger
from minidl.callbacks.early_stopping import EarlyStopping
from minidl.callbacks.jsonl_logger import JSONLLogger
from minidl.callbacks.reduce_on_plateau import ReduceOnPlateau
from minidl.callbacks.tensorboard import TensorBoard
from minidl.callbacks.time_limit import TimeLimit
from minidl.callbacks.weight_average import WeightAverage

__all__ = [
    "CSVLogger",
    "Checkpoint",
    "EarlyStopping",
    "JSONLLogger",
    "ReduceOnPlateau",
    "TensorBoard",
    "TimeLimit",
    "WeightAverage",
]
