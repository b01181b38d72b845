"""Residual: a block whose layers are added to its input."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.layers.container import Branch, Container, as_branch
from minidl.utils.constructors import readonly_argument


class Residual(Container):
    """Residual block: layers whose output is added to their input.

    Computes `y = body(x) + shortcut(x)`. Without a shortcut, x itself is added, and the body must keep its shape.

    Parameters
    ----------
    *layers : layers
        The layers of the body, in order.
    shortcut : layer, list of layers or None, default None
        What is added, such as a Conv2D of kernel 1 where the body changes the shape; None: x.

    Raises
    ------
    TypeError
        Unless all are layers.
    ValueError
        In `build`, if the shapes of body and shortcut differ.

    See Also
    --------
    Parallel : Any number of branches, also concatenated or multiplied.

    Notes
    -----
    Learned parameters: those of the layers, named "body.0.weight", "shortcut.0.weight".

    References
    ----------
    He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition" (2015), arXiv:1512.03385.

    Examples
    --------
    A block that halves the image and doubles the channels:

    >>> from minidl import Sequential
    >>> from minidl.layers import Conv2D, ReLU, Residual
    >>> body = Conv2D(32, 3, stride=2, padding=1), ReLU(), Conv2D(32, 3, padding=1)
    >>> model = Sequential([Residual(*body, shortcut=Conv2D(32, 1, stride=2))], input_shape=(16, 8, 8))
    >>> model.output_shape
    (32, 4, 4)
    >>> [name for name in model.params if name.endswith("weight")]
    ['0.body.0.weight', '0.body.2.weight', '0.shortcut.0.weight']
    """

    def __init__(self, *layers: Layer, shortcut: Layer | list[Layer] | tuple[Layer, ...] | None = None) -> None:
        self._layers = as_branch("layers", layers)
        self._shortcut = None if shortcut is None else as_branch("shortcut", shortcut)

    layers, shortcut = readonly_argument("layers"), readonly_argument("shortcut")

    def named_branches(self) -> dict[str, Branch]:
        return {"body": self.layers, "shortcut": self.shortcut or ()}
