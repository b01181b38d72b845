"""Parallel: branches that share one input; Block: a sequence of layers as one layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minidl.layers.base import Layer
from minidl.layers.container import Branch, Container, as_branch
from minidl.layers.join import CONCAT, JOINS
from minidl.utils.arrays import Array
from minidl.utils.constructors import readonly_argument
from minidl.utils.validation import Shape, check_choice

MAX_BRANCHES = 256


class Parallel(Container):
    """Parallel branches: their outputs are concatenated along the channels, added, or multiplied.

    branches: each a layer, or a list of layers in order; an empty list is the identity.
    join: "concat", as in Inception and DenseNet, "add", or "multiply". In a product a branch may return (c, 1, 1) for
        images of (c, h, w): a gate, one factor per channel.

    Parameters: those of the layers, named by branch and index: "branches.0.0.weight".
    Raises TypeError unless all are layers, ValueError for any other join or, in build, outputs whose shapes mismatch.
    """

    def __init__(self, *branches: Layer | list[Layer] | tuple[Layer, ...], join: str = CONCAT) -> None:
        check_choice("join", join, *JOINS)
        if not branches:
            raise ValueError("branches: expected at least one, got none")
        if len(branches) > MAX_BRANCHES:
            raise ValueError(f"branches: expected at most {MAX_BRANCHES}, got {len(branches)}")
        self._branches = tuple(as_branch(f"branches[{i}]", branch) for i, branch in enumerate(branches))
        self._join = join

    branches, join = readonly_argument("branches"), readonly_argument("join")

    def named_branches(self) -> dict[str, Branch]:
        return {f"branches.{i}": branch for i, branch in enumerate(self.branches)}


class Block(Container):
    """A sequence of layers as one layer: a Sequential inside another model becomes a Block.

    Parameters: those of the layers, named "0.weight". Raises TypeError unless all are layers, ValueError without any.
    """

    _weights: Mapping[str, Array] | None = None  # initial values that replace those of the initializers

    def __init__(self, *layers: Layer) -> None:
        self._layers = as_branch("layers", layers)
        if not layers:
            raise ValueError("layers: expected at least one, got none")

    layers = readonly_argument("layers")

    @classmethod
    def of(cls, layers: Sequence[Layer], weights: Mapping[str, Array] | None) -> Block:
        """Returns a Block with these initial parameters and buffers, by name; None: those of the initializers."""
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
        self._weights = rest.pop("weights", None)
        super().take_settings(rest)
