"""The optimizers: SGD, Adagrad, RMSprop, Adam, AdamW and Muon, with the formulas and the defaults of torch.optim.

Each takes `lr`, a number or a function of the step, such as those of minidl/schedules.py; only lr can be changed later.
weight_decay adds weight_decay * w to the gradient of every parameter w, including biases, except in AdamW and Muon.
"""

import typing

from minidl.optimizers.adaptive import Adagrad, Adam, AdamW, RMSprop
from minidl.optimizers.base import Optimizer, Rate
from minidl.optimizers.muon import Muon
from minidl.optimizers.sgd import SGD
from minidl.utils import foreign_words, hints

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Muon", "Optimizer", "RMSprop", "Rate"]
CLASSES = (SGD, Adagrad, RMSprop, Adam, AdamW, Muon)


if not typing.TYPE_CHECKING:  # for which an unknown name is an error of its own
    __getattr__ = hints.unknown_names(__name__, foreign_words.SCHEDULES, __all__)
