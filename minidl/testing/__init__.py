"""check_layer, check_loss, check_optimizer: tests of the contracts of layers, losses and optimizers, also your own."""

from minidl.testing.layer_check import check_layer
from minidl.testing.loss_check import check_loss
from minidl.testing.optimizer_check import check_optimizer

__all__ = ["check_layer", "check_loss", "check_optimizer"]
