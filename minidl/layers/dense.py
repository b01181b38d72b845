"""Dense: a fully connected layer."""

from __future__ import annotations

from minidl.initializers import Init, check_initializer, damped_he_uniform, zeros
from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_bool, check_int
from minidl_c.kernels.dense import DenseOp


class Dense(Layer):
    """Fully connected layer: each output is a weighted sum of all inputs.

    Maps (inputs,) to (units,), by `y = weight x + bias`.

    Parameters
    ----------
    units : int
        Number of outputs.
    use_bias : bool, default True
        False omits the bias.
    kernel_initializer : callable, default damped_he_uniform
        Function f(rng, shape) that returns the initial weight, such as those of `minidl.initializers`.
    bias_initializer : callable, default zeros
        Likewise for the bias.

    Raises
    ------
    TypeError, ValueError
        In `build`, for `units` below 1, or an input that is no vector (put a Flatten before it).

    Notes
    -----
    Learned parameters: `weight` (units, inputs), damped He-uniform; `bias` (units,), zero.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Dense
    >>> model = Sequential([Dense(2)], input_shape=(3,))
    >>> model.params["0.weight"].value[...] = [[1, 1, 1], [0, 0, 2]]
    >>> model.params["0.bias"].value[...] = [10, 20]
    >>> print(model.predict([[1, 2, 3]]))  # 1 + 2 + 3 + 10 and 2 * 3 + 20
    [[16. 26.]]
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
