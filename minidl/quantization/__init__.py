"""Quantization: trained models as programs of eight-bit integers."""

from minidl.quantization.quantizing import Quantized, quantize

__all__ = ["Quantized", "quantize"]
