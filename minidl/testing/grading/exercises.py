"""The six exercises by the name of the class or function that they ask for."""

from __future__ import annotations

from minidl.testing.grading.convolution import CONVOLUTION
from minidl.testing.grading.dense import DENSE
from minidl.testing.grading.layer_exercise import LayerExercise
from minidl.testing.grading.loss import LOSS, LossExercise
from minidl.testing.grading.max_pool import MAX_POOL
from minidl.testing.grading.optimizer import OPTIMIZER, OptimizerExercise
from minidl.testing.grading.relu import RELU

EXERCISES: dict[str, LayerExercise | LossExercise | OptimizerExercise] = {
    "Dense": DENSE,
    "ReLU": RELU,
    "MaxPool2D": MAX_POOL,
    "Conv2D": CONVOLUTION,
    "softmax_cross_entropy": LOSS,
    "SGD": OPTIMIZER,
}
