"""The optimizers: SGD, Adagrad, RMSprop, Adam and AdamW, with the formulas and the defaults of torch.optim.

Each takes `lr`, a number or a function of the step, such as those of minidl/schedules.py; only lr can be changed later.
weight_decay adds weight_decay * w to the gradient of every parameter w, including biases, except in AdamW.
"""

from minidl.optimizers.adaptive import Adagrad, Adam, AdamW, RMSprop
from minidl.optimizers.base import Optimizer, Rate
from minidl.optimizers.sgd import SGD

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Optimizer", "RMSprop", "Rate"]
