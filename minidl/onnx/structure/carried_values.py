"""Values of a region of branches that do not nest, which its steps carry along as one array."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from minidl.layers import Columns, Flatten, Reshape
from minidl.onnx.node_reader import LayerWithWeights
from minidl.onnx.structure.regions import Source
from minidl.utils.validation import Shape


class CarriedValues:
    """Values one after another: concatenated along the channels if all other axes are the same, else flattened.

    shapes: of the values, in order. shape: of all together.
    """

    def __init__(self, shapes: dict[Source, Shape]) -> None:
        self.shapes = shapes
        first, *others = shapes.values()
        self.flattens = any(shape[1:] != first[1:] for shape in others)
        sizes = [math.prod(shape) if self.flattens else shape[0] for shape in shapes.values()]
        self.ends = dict(zip(shapes, itertools.accumulate(sizes), strict=True))
        self.starts = {i: end - size for (i, end), size in zip(self.ends.items(), sizes, strict=True)}
        self.shape = (sum(sizes),) if self.flattens else (sum(sizes), *first[1:])

    def select(self, first: Source, last: Source) -> list[LayerWithWeights]:
        """Returns the layers that take neighbouring values out of the array, still as one array."""
        start, stop = self.starts[first], self.ends[last]
        return [] if (start, stop) == (0, self.shape[0]) else [LayerWithWeights(Columns(start, stop))]

    def unpack(self, source: Source) -> list[LayerWithWeights]:
        """Returns the layers that take one value out of the array, in its own shape."""
        shape = self.shapes[source]
        restored = [LayerWithWeights(Reshape(shape))] if self.flattens and len(shape) > 1 else []
        return [*self.select(source, source), *restored]

    def pack(self, shape: Shape) -> list[LayerWithWeights]:
        """Returns the layers that bring a value of this shape into that of the array."""
        return [LayerWithWeights(Flatten())] if self.flattens and len(shape) > 1 else []

    def pass_on(self, kept: Sequence[Source], following: CarriedValues) -> list[list[LayerWithWeights]]:
        """Returns branches with the values that `following` begins with: one for all that are neighbours here."""
        runs = list[list[Source]]()
        for source in kept:
            if runs and self.ends[runs[-1][-1]] == self.starts[source]:
                runs[-1].append(source)
            else:
                runs.append([source])
        return [[*self.select(run[0], run[-1]), *self._convert(run, following)] for run in runs]

    def _convert(self, run: Sequence[Source], following: CarriedValues) -> list[LayerWithWeights]:
        """Returns the layer that flattens values, or no longer flattens them, if `following` does otherwise."""
        rest = self.shapes[run[0]][1:]
        if self.flattens == following.flattens or not rest:
            return []
        channels = following.ends[run[-1]] - following.starts[run[0]]
        return [LayerWithWeights(Flatten() if following.flattens else Reshape((channels, *rest)))]
