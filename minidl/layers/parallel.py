"""Parallel: branches that all read one input; Block: layers one behind the other, as one layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minidl.layers.base import Layer
from minidl.layers.container import ADD, CONCAT, Branch, Container, as_branch
from minidl.utils.arguments import readonly_argument
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape

MOST_BRANCHES = 256


class Parallel(Container):
    """Branches side by side: their outputs are added up, or put one behind the other along the channels.

    branches: each a layer, or a list of them; an empty list is the input itself.
    join: "concat", as in Inception and DenseNet, or "add".

    Parameters: those of the layers, named "branches.0.0.weight": branch, then place in it.
    Raises TypeError for what is no layer, ValueError for another join or, in build, outputs that do not fit together.
    """

    def __init__(self, *branches: Layer | list[Layer] | tuple[Layer, ...], join: str = CONCAT) -> None:
        if join not in (ADD, CONCAT):
            raise ValueError(f"join: expected 'add' or 'concat', got {join!r}")
        if not branches:
            raise ValueError("branches: expected at least one, got none")
        if len(branches) > MOST_BRANCHES:
            raise ValueError(f"branches: expected at most {MOST_BRANCHES}, got {len(branches)}")
        self._branches = tuple(as_branch(f"branches[{i}]", branch) for i, branch in enumerate(branches))
        self._join = join

    branches, join = readonly_argument("branches"), readonly_argument("join")

    def named_branches(self) -> dict[str, Branch]:
        return {f"branches.{i}": way for i, way in enumerate(self.branches)}


class Block(Container):
    """Layers one behind the other, as one layer: what a Sequential inside another becomes.

    Parameters: those of the layers, named "0.weight". Raises TypeError for what is no layer, ValueError for none.
    """

    _weights: Mapping[str, Array] | None = None  # what it begins with, instead of its layers' inits

    def __init__(self, *layers: Layer) -> None:
        self._layers = as_branch("layers", layers)
        if not layers:
            raise ValueError("layers: expected at least one, got none")

    layers = readonly_argument("layers")

    @classmethod
    def of(cls, layers: Sequence[Layer], weights: Mapping[str, Array] | None) -> Block:
        """A Block that begins with these parameters and buffers, by name; None: with those of the inits."""
        block = cls(*layers)
        block._weights = weights
        return block

    def named_branches(self) -> dict[str, Branch]:
        return {"": self.layers}

    def setup(
        self, in_shape: Shape, dtype: str, seed: int, path: str, given: Mapping[str, Array] | None = None
    ) -> Shape:
        return super().setup(in_shape, dtype, seed, path, self._weights if given is None else given)

    @property
    def settings(self) -> dict[str, Any]:
        """As Layer.settings, and the weights that it begins with, as long as it has not begun."""
        weights = {} if self._weights is None or self.built else {"weights": self._weights}
        return {**super().settings, **weights}

    def take_settings(self, settings: Mapping[str, Any]) -> None:
        rest = dict(settings)
        self._weights = rest.pop("weights", None)
        super().take_settings(rest)
