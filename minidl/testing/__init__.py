"""check_layer: the layer contract as a test, for our layers and for yours."""

from minidl.testing.layer_check import check_layer

__all__ = ["check_layer"]
