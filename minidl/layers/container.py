"""Container: a layer that is made of layers, in branches that part from its input and meet in its output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from minidl.layers.base import Layer
from minidl.layers.param import Param
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape

ADD, CONCAT = "add", "concat"
Branch = tuple[Layer, ...]  # one behind the other; none: the input itself


class Container(Layer):
    """The base of layers made of layers. A subclass says in `ways` which they are, and in `join` how they meet.

    Its parameters and buffers are those of its layers, by the names of branch and place: "body.0.weight".
    """

    join: str = ADD  # or CONCAT, along the first axis of an example

    def named_branches(self) -> dict[str, Branch]:
        """The layers of each branch, by the name that their parameters get."""
        raise NotImplementedError

    def child_names(self, branch: str) -> list[str]:
        """What errors call the layers of a branch: "body.0, Conv2D"."""
        return [f"{child_path(branch, i)}, {type(one).__name__}" for i, one in enumerate(self.named_branches()[branch])]

    # ---- what the model asks of any layer

    @property
    def native(self) -> bool:
        """Whether all layers in it have kernels."""
        return all(layer.native for _, layer in self.named_children())

    def leaves(self) -> list[Layer]:
        """All layers in it that are not containers, in order."""
        return [leaf for _, layer in self.named_children() for leaf in layer.leaves()]

    @property
    def params(self) -> dict[str, Param]:  # type: ignore[override]
        """The parameters of all layers in it."""
        return {
            f"{path}.{name}": param for path, layer in self.named_children() for name, param in layer.params.items()
        }

    @property
    def buffers(self) -> dict[str, Array]:  # type: ignore[override]
        """The buffers of all layers in it."""
        return {
            f"{path}.{name}": array for path, layer in self.named_children() for name, array in layer.buffers.items()
        }

    @property
    def macs(self) -> int:  # type: ignore[override]
        """The multiply-adds of all layers in it."""
        return sum(layer.macs for layer in self.leaves())

    @property
    def min_batch_size(self) -> int:  # type: ignore[override]
        """The most that a layer in it wants."""
        return max((layer.min_batch_size for layer in self.leaves()), default=1)

    def setup(
        self, in_shape: Shape, dtype: str, seed: int, path: str, given: Mapping[str, Array] | None = None
    ) -> Shape:
        """As Layer.setup: builds every layer in it."""
        self.dtype, self.in_shape = dtype, in_shape
        rest = None if given is None else dict(given)
        shapes = {}
        for name, layers in self.named_branches().items():
            shape = in_shape
            for i, layer in enumerate(layers):
                place = child_path(name, i)
                try:
                    shape = layer.setup(shape, dtype, seed, f"{path}.{place}", _taken(rest, place))
                except (TypeError, ValueError) as error:
                    kind = TypeError if isinstance(error, TypeError) else ValueError
                    raise kind(f"{place}, {type(layer).__name__}: {error}") from error
            shapes[name or "0"] = shape
        if rest:
            raise ValueError(f"expected no values but those of its layers, got {sorted(rest)}")
        self.out_shape = self._met(shapes)
        return self.out_shape

    @property
    def settings(self) -> dict[str, Any]:
        """As Layer.settings, and those of the layers in it, by their places."""
        inner = {path: layer.settings for path, layer in self.named_children() if layer.settings}
        return {**super().settings, "layers": inner} if inner else super().settings

    def take_settings(self, settings: Mapping[str, Any]) -> None:
        """As Layer.take_settings, of all layers in it too."""
        rest = dict(settings)
        inner, parts = rest.pop("layers", {}), dict(self.named_children())
        if unknown := sorted(set(inner) - set(parts)):
            raise ValueError(f"{type(self).__name__}: expected settings of its layers, got {', '.join(unknown)[:100]}")
        super().take_settings(rest)
        for path, layer in parts.items():
            layer.take_settings(inner.get(path, {}))

    def unbuild(self) -> None:
        """Undoes `setup`."""
        for _, layer in self.named_children():
            layer.unbuild()
        for what in ("dtype", "in_shape", "out_shape"):
            self.__dict__.pop(what, None)

    @property
    def built(self) -> bool:
        """Whether it, or a layer in it, belongs to a model."""
        return any(layer.built for _, layer in self.named_children()) or "in_shape" in self.__dict__

    def __repr__(self) -> str:
        """A line for each argument, and for each layer, with the name that its parameters get."""
        lines = [f"{name}={value!r}" for name, value in self._told().items()]
        lines += [f"({path}): {layer!r}" for path, layer in self.named_children()]
        inside = "".join(f"\n{line}" for line in lines).replace("\n", "\n  ")
        return f"{type(self).__name__}({inside}\n)"

    def _told(self) -> dict[str, Any]:
        return {name: value for name, value in super()._told().items() if not _is_made_of_layers(value)}

    def named_children(self) -> Iterator[tuple[str, Layer]]:
        """The layers right in it, by the name that their parameters get: "body.0"."""
        for name, layers in self.named_branches().items():
            for i, layer in enumerate(layers):
                yield child_path(name, i), layer

    def _met(self, shapes: dict[str, Shape]) -> Shape:
        """The shape in which the branches meet; raises ValueError if they do not fit together."""
        first, *others = shapes.values()
        same = first[1:] if self.join == CONCAT else first
        if any((shape[1:] if self.join == CONCAT else shape) != same or len(shape) != len(first) for shape in others):
            told = ", ".join(f"{name} gives {shape}" for name, shape in shapes.items())
            how = "that differ in the first axis alone" if self.join == CONCAT else "that are equal"
            raise ValueError(f"expected branches with outputs {how}: {told}")
        return (sum(shape[0] for shape in shapes.values()), *first[1:]) if self.join == CONCAT else first


def title(layer: Layer) -> str:
    """A layer in one line: the constructor's call, of a container without the layers in it."""
    return Layer.__repr__(layer) if isinstance(layer, Container) else repr(layer)


def _is_made_of_layers(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_made_of_layers, value))
    return isinstance(value, Layer)


def child_path(branch: str, i: int) -> str:
    """What the i-th layer of a branch is called, in names of parameters and in errors: "body.0"."""
    return f"{branch}.{i}" if branch else str(i)


def as_layer(part: Any, name: str, place: int) -> Layer:
    """A layer, or what can become one (a Sequential); raises TypeError for anything else."""
    made = part.as_layer() if hasattr(part, "as_layer") and not isinstance(part, type) else part
    if not isinstance(made, Layer):
        raise TypeError(f"{name}: expected Layer objects, got {part!r} at place {place}")
    return made


def as_branch(name: str, layers: Any) -> Branch:
    """The layers of a branch, from a list of them or a single one; raises TypeError for what is none."""
    parts = layers if isinstance(layers, (list, tuple)) else [layers]
    return tuple(as_layer(part, name, i) for i, part in enumerate(parts))


def named_leaves(layer: Layer, name: str) -> Iterator[tuple[Layer, str]]:
    """All layers in it that are no containers, each with what errors call it."""
    if not isinstance(layer, Container):
        yield layer, name
        return
    for path, part in layer.named_children():
        yield from named_leaves(part, f"{name}: {path}, {type(part).__name__}")


def depth(layer: Layer) -> int:
    """How many levels of containers it is."""
    return (
        1 + max((depth(part) for _, part in layer.named_children()), default=0) if isinstance(layer, Container) else 0
    )


def join_outputs(join: str, outputs: Sequence[Array]) -> Array:
    """The outputs of branches, as they meet: (n, ...)."""
    if join == CONCAT:
        return np.concatenate(outputs, axis=1)
    total = outputs[0]
    for output in outputs[1:]:
        total = total + output
    return total


def _taken(given: dict[str, Array] | None, place: str) -> dict[str, Array] | None:
    """The values that belong to a place, taken out of `given`."""
    if given is None:
        return None
    names = [name for name in given if name.startswith(f"{place}.")]
    return {name.removeprefix(f"{place}."): given.pop(name) for name in names}
