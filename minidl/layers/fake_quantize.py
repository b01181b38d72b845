"""FakeQuantize: numbers rounded as those of 8-bit integers; QuantizationAware: layers that are trained with it."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.layers.parallel import Block
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape, check_int, check_real
from minidl_c.kernels.fake_quantize import FakeQuantizeOp

__all__ = ["FakeQuantize", "QuantizationAware"]  # names of minidl.quantization


class FakeQuantize(Layer):
    """Rounds each number to one that an 8-bit integer stands for, for quantization-aware training.

    Computes `y = scale * (q - zero_point)` with `q = clip(floor(x / scale + zero_point + 0.5), -128, 127)`. Any shape,
    which is unchanged. The gradient is straight-through: that of y where q is not clipped, and 0 elsewhere.

    Parameters
    ----------
    scale : float
        The step between two numbers.
    zero_point : int
        The integer from -128 to 127 that stands for 0.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless `scale` is a positive number, of which float32 has 256 times, and `zero_point` such an
        integer.

    See Also
    --------
    minidl.quantization.prepare : Puts these layers into a trained model.

    References
    ----------
    Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference" (2017),
    arXiv:1712.05877.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.quantization import FakeQuantize
    >>> model = Sequential([FakeQuantize(0.5, -128)], input_shape=(4,))  # from 0 to 127.5
    >>> model.forward([[-1, 0.2, 0.3, 200]], training=True).tolist()
    [[0.0, 0.0, 0.5, 127.5]]
    >>> model.backward([[1, 1, 1, 1]]).tolist()
    [[0.0, 1.0, 1.0, 0.0]]
    """

    def __init__(self, scale: float, zero_point: int) -> None:
        self.scale = scale
        self.zero_point = zero_point

    def build(self, in_shape: Shape) -> Shape:
        scale, zero_point = check_real("scale", self.scale), check_int("zero_point", self.zero_point, -128, 127)
        self.op = FakeQuantizeOp(in_shape, scale, zero_point, self.dtype)
        return in_shape


class QuantizationAware(Block):
    """A sequence of layers that is trained with the rounding of 8-bit integers, and predicts by these integers.

    In training, forward and backward compute with rounded weights: the nearest multiples of a scale for each output
    channel of a convolution or dense layer, the largest weight over 127. The gradient is straight-through: the
    optimizer gets that of the rounded weights, and changes the weights themselves, which files keep. FakeQuantize
    layers round the values between layers. Everywhere else, as in `predict` and `evaluate`, the layers compute as the
    `QuantizedModel` that `minidl.quantization.convert` makes of them, to the last byte.

    `minidl.quantization.prepare` makes one of a trained model.

    Parameters
    ----------
    *layers : layers
        The layers in order. Each value that becomes int8 has a FakeQuantize after the layers that it comes from.

    Raises
    ------
    TypeError, ValueError
        Unless all are layers, and in `build` for another dtype than float32. Where integers are computed: for layers
        that these cannot compute, and values without a FakeQuantize, named by the layer that they come from.

    See Also
    --------
    minidl.quantization.FakeQuantize : The rounding of values.

    Notes
    -----
    Gradients in inference, as of `input_gradient`, are those of training without dropout: straight-through. Biases are
    not rounded in training; their integers are finer than those of the sums that they are added to.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import Dense, ReLU
    >>> from minidl.quantization import FakeQuantize, QuantizationAware
    >>> body = FakeQuantize(1 / 128, 0), Dense(4), ReLU(), FakeQuantize(1 / 64, -128)
    >>> model = Sequential([QuantizationAware(*body, Dense(2), FakeQuantize(1 / 32, 0))], input_shape=(3,))
    >>> scores = model.predict([[0.1, 0.2, 0.3]])
    >>> bool((scores * 32 == np.rint(scores * 32)).all())
    True
    """

    native = False  # it computes otherwise in inference: see QuantizedSegment

    def setup(self, in_shape: Shape, dtype: str, seed: int, path: str, given: dict[str, Array] | None = None) -> Shape:
        if dtype != "float32":
            raise ValueError(f"dtype: expected 'float32', which the input and the scores have, got {dtype!r}")
        return super().setup(in_shape, dtype, seed, path, given)
