"""Parallel: branches that all read one input; Block: layers one behind the other, as one layer."""

from __future__ import annotations

from minidl.container import ADD, CONCAT, Branch, Container, chain
from minidl.layer import Layer


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
        self.branches = branches
        self.join = join

    def ways(self) -> dict[str, Branch]:
        lists = [way if isinstance(way, (list, tuple)) else [way] for way in self.branches]
        return {f"branches.{i}": chain(f"branches[{i}]", way) for i, way in enumerate(lists)}


class Block(Container):
    """Layers one behind the other, as one layer: what a Sequential inside another becomes.

    Parameters: those of the layers, named "0.weight". Raises TypeError for what is no layer, ValueError for none.
    """

    def __init__(self, *layers: Layer) -> None:
        self.layers = chain("layers", layers)
        if not layers:
            raise ValueError("layers: expected at least one, got none")

    def ways(self) -> dict[str, Branch]:
        return {"": self.layers}
