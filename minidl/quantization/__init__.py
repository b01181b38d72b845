"""Quantization: trained models as programs of eight-bit integers."""

from minidl.layers.fake_quantize import FakeQuantize, QuantizationAware
from minidl.quantization.model import QuantizedModel
from minidl.quantization.preparing import convert, prepare
from minidl.quantization.quantizing import quantize

__all__ = ["FakeQuantize", "QuantizationAware", "QuantizedModel", "convert", "prepare", "quantize"]
