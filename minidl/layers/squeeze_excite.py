"""SqueezeExcite: a learned gate for each channel."""

from __future__ import annotations

from minidl.layers.activations import Sigmoid
from minidl.layers.avgpool2d import GlobalAvgPool2D
from minidl.layers.base import Layer
from minidl.layers.container import Branch, Container, as_branch
from minidl.layers.conv2d import Conv2D
from minidl.layers.flatten import Reshape
from minidl.layers.join import MULTIPLY
from minidl.layers.relu import ReLU
from minidl.utils.arrays import Array
from minidl.utils.constructors import readonly_argument
from minidl.utils.validation import Shape


class SqueezeExcite(Container):
    """Squeeze-and-excitation: multiplies each channel of an image by a gate, computed from the means of all channels.

    Computes `y = x * gate(conv2(activation(conv1(mean of each channel of x))))`, with convolutions of 1x1 to
    `squeeze_channels`, and back. The shape (c, h, w) is unchanged.

    Parameters
    ----------
    squeeze_channels : int
        Number of output channels of the first convolution; Hu et al. take a sixteenth of the channels.
    activation : layer or None, default None
        None: ReLU. EfficientNet has a SiLU.
    gate : layer or None, default None
        None: Sigmoid. MobileNetV3 has a HardSigmoid.

    Raises
    ------
    TypeError
        Unless `activation` and `gate` are layers.
    TypeError, ValueError
        In `build`, for other invalid arguments, or an input that is not an image.

    Notes
    -----
    Learned parameters: those of the convolutions, "gate.2.weight" (squeeze_channels, c, 1, 1), "gate.2.bias",
    "gate.4.weight" (c, squeeze_channels, 1, 1), "gate.4.bias".

    References
    ----------
    Hu, Shen, Albanie, Sun and Wu, "Squeeze-and-Excitation Networks" (2017), arXiv:1709.01507.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import HardSigmoid, SqueezeExcite
    >>> model = Sequential([SqueezeExcite(4, gate=HardSigmoid())], input_shape=(64, 8, 8))
    >>> model.output_shape
    (64, 8, 8)
    >>> [param.value.shape for param in model.params.values()]
    [(4, 64, 1, 1), (4,), (64, 4, 1, 1), (64,)]
    """

    join = MULTIPLY

    def __init__(self, squeeze_channels: int, activation: Layer | None = None, gate: Layer | None = None) -> None:
        self._squeeze_channels, self._activation, self._gate = squeeze_channels, activation, gate
        self._expand = Conv2D(1, 1)  # `setup` knows the number of channels
        squeeze = (GlobalAvgPool2D(), Reshape((-1, 1, 1)), Conv2D(squeeze_channels, 1))
        middle = as_branch("activation", ReLU() if activation is None else activation)
        end = as_branch("gate", Sigmoid() if gate is None else gate)
        self._layers = (*squeeze, *middle, self._expand, *end)

    squeeze_channels, activation = readonly_argument("squeeze_channels"), readonly_argument("activation")
    gate = readonly_argument("gate")

    def named_branches(self) -> dict[str, Branch]:
        return {"x": (), "gate": self._layers}

    def setup(self, in_shape: Shape, dtype: str, seed: int, path: str, given: dict[str, Array] | None = None) -> Shape:
        self._expand.filters = in_shape[0]
        return super().setup(in_shape, dtype, seed, path, given)
