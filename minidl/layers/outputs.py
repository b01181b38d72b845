"""Outputs: the branches at the end of a model that are its outputs, each with its own name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from minidl.layers.base import Layer
from minidl.layers.container import Branch, Container, as_branch
from minidl.layers.join import FLATTEN
from minidl.layers.parallel import MAX_BRANCHES
from minidl.utils.arrays import Array, as_array, as_dtype
from minidl.utils.constructors import readonly_argument
from minidl.utils.validation import Shape


class Outputs(Container):
    """Several outputs, by name: the branches at the end of a model, which share the layers before them.

    It is the last layer of a model, whose `predict` then returns a dict of arrays. Trainer takes a loss for each
    output, and targets by name. `model["policy"]` is a model of one output, `model[["policy", "value"]]` one of some.

    Parameters
    ----------
    **branches : layer, or list of layers
        A layer, or a list of layers in order, for each output, by its name; an empty list is the input of the branches.
        Names that are no identifiers are passed as `Outputs(**{"wind speed": Dense(1)})`.

    Raises
    ------
    TypeError
        Unless all branches are made of layers.
    ValueError
        Without any output, for more than 256, and for names that are empty, contain a dot, or begin with `val_`, as
        names of validation do in a history.

    See Also
    --------
    Parallel : Branches that are joined into one value.

    Notes
    -----
    Learned parameters: those of the layers, named by output and index: "policy.0.weight". Inside a model, the outputs
    are flattened and concatenated into one vector.

    Examples
    --------
    An actor and a critic share their first layers:

    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import Dense, Outputs, ReLU
    >>> model = Sequential([Dense(32), ReLU(), Outputs(policy=Dense(2), value=Dense(1))], input_shape=(4,))
    >>> model.output_shape
    {'policy': (2,), 'value': (1,)}
    >>> scores = model.predict(np.zeros((5, 4)))
    >>> scores["policy"].shape, scores["value"].shape
    ((5, 2), (5, 1))
    >>> model["policy"].output_shape
    (2,)
    """

    ends_model = True
    join = FLATTEN

    def __init__(self, /, **branches: Layer | list[Layer] | tuple[Layer, ...]) -> None:
        if not 0 < len(branches) <= MAX_BRANCHES:
            raise ValueError(f"outputs: expected 1 to {MAX_BRANCHES}, got {len(branches)}")
        for name in branches:
            if not name or "." in name or name == "val" or name.startswith("val_"):
                expected = 'without a dot, not "val" and without "val_" at its beginning, as names of validation'
                raise ValueError(f"outputs: expected a name that is not empty, {expected}, got {name!r}")
        self._branches = {name: as_branch(name, layers) for name, layers in branches.items()}

    branches = readonly_argument("branches")

    def named_branches(self) -> dict[str, Branch]:
        return dict(self._branches)

    @property
    def layout(self) -> OutputLayout:
        """Where each output lies in the vector of all, once the layer is built."""
        ends = self._branches.items()
        return OutputLayout({name: layers[-1].out_shape if layers else self.in_shape for name, layers in ends})

    def keep(self, names: Sequence[str]) -> Outputs:
        """Returns some of the outputs, in the order that they have here, with the same layers.

        Parameters
        ----------
        names : sequence of str
            Their names.

        Returns
        -------
        Outputs
            Built if these are.

        Raises
        ------
        ValueError
            For a name that is not here.
        """
        check_names("outputs", names, self._branches)
        kept = Outputs(**{name: layers for name, layers in self._branches.items() if name in names})
        kept._lr_mult, kept._decay_mult = self._lr_mult, self._decay_mult
        if self.built:
            kept.dtype, kept.in_shape = self.dtype, self.in_shape
            kept.out_shape = (kept.layout.size,)
        return kept


@dataclass(frozen=True)
class OutputLayout:
    """Where outputs, flattened and concatenated, lie in the vector of all. shapes: by name, without the batch axis."""

    shapes: dict[str, Shape]

    @cached_property
    def places(self) -> dict[str, slice]:
        """The elements of each output."""
        places, start = {}, 0
        for name, shape in self.shapes.items():
            places[name] = slice(start, start + math.prod(shape))
            start = places[name].stop
        return places

    @property
    def size(self) -> int:
        """The number of elements of all outputs."""
        return sum(map(math.prod, self.shapes.values()))

    def split(self, joined: Array) -> dict[str, Array]:
        """Returns copies of all outputs from (n, size), by name: (n, *shape)."""
        return {name: self.part(joined, name).copy() for name in self.shapes}

    def part(self, joined: Array, name: str) -> Array:
        """Returns one output from (n, size): (n, *shape)."""
        return joined[:, self.places[name]].reshape(len(joined), *self.shapes[name])

    def join(self, given: Any, n: int, dtype: str, argument: str) -> Array:
        """Returns arrays by name as (n, size); zeros for names that are missing.

        Raises TypeError or ValueError, naming the argument and the output, for anything else.
        """
        if not isinstance(given, Mapping):
            expected = f"expected a dict of arrays for the outputs {', '.join(self.shapes)}"
            raise TypeError(f"{argument}: {expected}, got {type(given).__name__}")
        check_names(argument, given, self.shapes)
        joined = np.zeros((n, self.size), dtype)
        for name, value in given.items():
            called, shape = f"{argument}: output {name!r}", (n, *self.shapes[name])
            array = as_array(value, called)
            if array.shape != shape:
                raise ValueError(f"{called}: expected shape {shape}, got {array.shape}")
            joined[:, self.places[name]] = as_dtype(array, dtype, called).reshape(n, math.prod(shape[1:]))
        return joined


def check_names(argument: str, given: Any, known: Any) -> None:
    """Raises ValueError for a name that no output has."""
    if unknown := [name for name in given if name not in known]:
        raise ValueError(f"{argument}: expected names of the outputs {', '.join(known)}, got {unknown[0]!r}")


def check_output(name: str, outputs: OutputLayout | None, output: str | None) -> None:
    """Raises ValueError, beginning with `name`, unless `output` names one of several outputs, or is None for one."""
    if outputs is None and output is not None:
        raise ValueError(f"{name}: output: expected None for a model of one output, got {output!r}")
    if outputs is not None and not (isinstance(output, str) and output in outputs.shapes):
        raise ValueError(f"{name}: output: expected one of {', '.join(outputs.shapes)}, got {output!r}")
