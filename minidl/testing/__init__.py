"""check_layer: a test of the layer contract, for built-in layers and your own."""

from minidl.testing.layer_check import check_layer

__all__ = ["check_layer"]
