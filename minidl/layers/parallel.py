"""Parallel: branches that share one input; Block: a sequence of layers as one layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minidl.layers.base import Layer
from minidl.layers.container import Branch, Container, as_branch
from minidl.layers.join import CONCAT, JOINS
from minidl.utils.arrays import Array
from minidl.utils.constructors import readonly_argument
from minidl.utils.validation import MAX_INT64, Shape, check_choice, check_int

MAX_BRANCHES = 256


class Parallel(Container):
    """Parallel branches: their outputs are concatenated, or joined element by element, such as added or multiplied.

    Parameters
    ----------
    *branches : layers, or lists of layers
        A layer, or a list of layers in order, for each branch; an empty list is the identity. At most 256 branches.
    join : "concat", "add", "multiply", "divide", "maximum", "minimum" or "power", default "concat"
        How outputs are joined: "concat" as in Inception and DenseNet. The other joins take outputs element by element,
        from the left: the first one divided by the second, or to the power of it, then the result by the third. An
        axis of size 1 is broadcast as in NumPy: a branch may return (c, 1, 1) for images of (c, h, w), a gate with one
        factor per channel, or (1, h, w), one per pixel.
    axis : int, default 0
        The axis of "concat", counted as in `Permute`, without the batch axis: 0 is that of the channels; a negative
        number counts from the end. Keras and PyTorch count the batch axis: their axis 1 is 0 here, their -1 is -1.

    Raises
    ------
    TypeError
        Unless all branches are made of layers, and `axis` is an integer.
    ValueError
        For any other join, axis or number of branches, and in `build` for outputs whose shapes do not match.

    See Also
    --------
    Residual : A sum of layers and their own input.
    SqueezeExcite : A gate computed from the means of all channels.

    Notes
    -----
    Learned parameters: those of the layers, named by branch and index: "branches.0.0.weight".

    "maximum" and "minimum" pass the gradient to the branch that was chosen, and half of it to each of two equal
    numbers, as PyTorch does.

    "power" is that of IEEE 754, with PyTorch's gradients: a negative base has a result if the exponent is an integer,
    else NaN, and the gradient of its exponent is NaN. Compute bases by a layer such as Exp or Softplus.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Conv2D, Parallel, ReLU
    >>> inception = Parallel(Conv2D(16, 1), [Conv2D(8, 1), ReLU(), Conv2D(24, 3, padding="same")])
    >>> Sequential([inception], input_shape=(3, 32, 32)).output_shape
    (40, 32, 32)

    With an empty list, the input keeps its channels, as in DenseNet:

    >>> Sequential([Parallel([], Conv2D(12, 3, padding="same"))], input_shape=(3, 32, 32)).output_shape
    (15, 32, 32)

    Below itself, along the rows:

    >>> Sequential([Parallel([], [], axis=1)], input_shape=(3, 32, 32)).output_shape
    (3, 64, 32)
    """

    def __init__(self, *branches: Layer | list[Layer] | tuple[Layer, ...], join: str = CONCAT, axis: int = 0) -> None:
        check_choice("join", join, *JOINS)
        if check_int("axis", axis, minimum=-MAX_INT64) != 0 and join != CONCAT:
            raise ValueError(f"axis: expected 0 for join={join!r}, which has none, got {axis}")
        if not branches:
            raise ValueError("branches: expected at least one, got none")
        if len(branches) > MAX_BRANCHES:
            raise ValueError(f"branches: expected at most {MAX_BRANCHES}, got {len(branches)}")
        self._branches = tuple(as_branch(f"branches[{i}]", branch) for i, branch in enumerate(branches))
        self._join, self._axis = join, int(axis)

    branches, join = readonly_argument("branches"), readonly_argument("join")
    axis = readonly_argument("axis")

    def named_branches(self) -> dict[str, Branch]:
        return {f"branches.{i}": branch for i, branch in enumerate(self.branches)}


class Block(Container):
    """A sequence of layers as one layer.

    A Sequential inside another model becomes a Block, with copies of its weights if it is built.

    Parameters
    ----------
    *layers : layers
        The layers in order, at least one.

    Raises
    ------
    TypeError
        Unless all are layers.
    ValueError
        Without any layer.

    Notes
    -----
    Learned parameters: those of the layers, named by index: "0.weight".

    Examples
    --------
    A Block is frozen, or given another learning rate, as a whole:

    >>> from minidl import Sequential
    >>> from minidl.layers import Block, Dense, ReLU
    >>> encoder = Block(Dense(8), ReLU())
    >>> encoder.trainable = False
    >>> model = Sequential([encoder, Dense(2)], input_shape=(4,))
    >>> list(model.params), [layer.trainable for layer in model.layers]
    (['0.0.weight', '0.0.bias', '1.weight', '1.bias'], [False, True])
    """

    _weights: Mapping[str, Array] | None = None  # initial values that replace those of the initializers

    def __init__(self, *layers: Layer) -> None:
        self._layers = as_branch("layers", layers)
        if not layers:
            raise ValueError("layers: expected at least one, got none")

    layers = readonly_argument("layers")

    @classmethod
    def of(cls, layers: Sequence[Layer], weights: Mapping[str, Array] | None) -> Block:
        """Returns a Block with given initial parameters and buffers.

        Parameters
        ----------
        layers : sequence of layers
            The layers in order.
        weights : mapping from str to array, or None
            Initial parameters and buffers, by name; None: those of the initializers.

        Returns
        -------
        Block
            A Block of these layers, not built.
        """
        block = cls(*layers)
        block._weights = weights
        return block

    def named_branches(self) -> dict[str, Branch]:
        return {"": self.layers}

    def setup(self, in_shape: Shape, dtype: str, seed: int, path: str, given: dict[str, Array] | None = None) -> Shape:
        own = None if self._weights is None else dict(self._weights)
        return super().setup(in_shape, dtype, seed, path, own if given is None else given)

    @property
    def settings(self) -> dict[str, Any]:
        """As Layer.settings, with the initial weights until the block is built."""
        weights = {} if self._weights is None or self.built else {"weights": self._weights}
        return {**super().settings, **weights}

    def take_settings(self, settings: Mapping[str, Any]) -> None:
        rest = dict(settings)
        weights = rest.pop("weights", None)
        super().take_settings(rest)
        self._weights = weights

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        super()._check_settings({name: one for name, one in settings.items() if name != "weights"})
