"""Quantization: trained models as programs of eight-bit integers."""

from minidl.quantization.model import QuantizedModel
from minidl.quantization.quantizing import quantize

__all__ = ["QuantizedModel", "quantize"]
