"""The optimizers: SGD, Adagrad, RMSprop, Adam and AdamW, with the formulas and the defaults of torch.optim.

Each one takes `lr`, a number or a function of the step, such as those of minidl/schedules.py. All else stays as it was
given. weight_decay adds weight_decay * w to the gradient of every parameter w, biases too, but for AdamW's.
"""

from minidl.optimizers.adaptive import Adagrad, Adam, AdamW, RMSprop
from minidl.optimizers.base import Optimizer, Rate
from minidl.optimizers.sgd import SGD

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Optimizer", "RMSprop", "Rate"]
