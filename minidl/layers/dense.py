"""Dense: a fully connected layer."""

from __future__ import annotations

from minidl.initializers import Init, check_initializer, damped_he_uniform, zeros
from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_bool, check_int
from minidl_c.kernels.dense import DenseOp


class Dense(Layer):
    """y = weight x + bias: (inputs,) -> (units,).

    use_bias: False omits the bias.
    kernel_initializer, bias_initializer: functions f(rng, shape), such as those of minidl.initializers.

    Parameters: weight (units, inputs), damped He-uniform; bias (units,), zero.
    Raises TypeError or ValueError in build for units below 1 or an input that is no vector (put a Flatten before it).
    """

    def __init__(
        self,
        units: int,
        use_bias: bool = True,
        kernel_initializer: Init = damped_he_uniform,
        bias_initializer: Init = zeros,
    ) -> None:
        self.units = units
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = bias_initializer

    def build(self, in_shape: Shape) -> Shape:
        units, use_bias = check_int("units", self.units), self.use_bias
        if type(use_bias) is int:  # as in PyTorch's Linear(in_features, out_features)
            inferred = f"the number of inputs is inferred: Dense({use_bias})"
            raise TypeError(f"use_bias: expected True or False, got {use_bias}; {inferred}")
        use_bias = check_bool("use_bias", use_bias)
        if len(in_shape) != 1:
            raise ValueError(f"expected (inputs,), got {in_shape}: put a Flatten() before it")
        self.op = DenseOp(in_shape, units, self.dtype, use_bias=use_bias)
        init = check_initializer("kernel_initializer", self.kernel_initializer)
        self.weight = self.param("weight", (units, in_shape[0]), init, order=(1, 0))
        if use_bias:
            self.bias = self.param("bias", (units,), check_initializer("bias_initializer", self.bias_initializer))
        self.macs = self.weight.value.size
        return (units,)
