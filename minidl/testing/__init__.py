"""check_layer and check_loss: tests of the contracts of layers and losses, for built-in ones and your own."""

from minidl.testing.layer_check import check_layer
from minidl.testing.loss_check import check_loss

__all__ = ["check_layer", "check_loss"]
