"""Tests of the contracts of layers, losses and optimizers, also of your own; the grading of the course."""

from minidl.testing.grading import grade
from minidl.testing.layer_check import check_layer
from minidl.testing.loss_check import check_loss
from minidl.testing.optimizer_check import check_optimizer

__all__ = ["check_layer", "check_loss", "check_optimizer", "grade"]
