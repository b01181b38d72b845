"""Container: a layer made of layers, in branches that share its input and are joined into its output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from minidl.layers.base import Layer
from minidl.layers.join import ADD, joined_shape
from minidl.layers.param import Param
from minidl.utils.arrays import Array
from minidl.utils.errors import kind_of
from minidl.utils.factors import scaled
from minidl.utils.hints import class_hint
from minidl.utils.validation import Shape, check_bool, check_non_negative

Branch = tuple[Layer, ...]  # in order; empty: the identity


class Container(Layer):
    """Base class of layers made of layers. A subclass defines `named_branches`, and in `join` how outputs are joined.

    Its parameters and buffers are those of its layers, named by branch and index: "body.0.weight".
    """

    join: str = ADD  # one of `minidl.layers.join.JOINS`
    axis: int = 0  # of a concatenation, without the batch axis

    def named_branches(self) -> dict[str, Branch]:
        """Returns the layers of each branch.

        Returns
        -------
        dict of str to tuple of Layer
            The layers in order, by the prefix of their parameters' names.
        """
        raise NotImplementedError

    def child_names(self, branch: str) -> list[str]:
        """Returns the names of a branch's layers in error messages.

        Parameters
        ----------
        branch : str
            A key of `named_branches`.

        Returns
        -------
        list of str
            Path and class of each layer: "body.0, Conv2D".
        """
        return [
            f"{child_path(branch, i)}, {type(layer).__name__}" for i, layer in enumerate(self.named_branches()[branch])
        ]

    # ---- the interface of Layer

    @property
    def native(self) -> bool:
        """True if all layers in it have kernels."""
        return all(layer.native for _, layer in self.named_children())

    def leaves(self) -> list[Layer]:
        """Returns all layers in it that are not containers.

        Returns
        -------
        list of Layer
            The layers, in order.
        """
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
        """The largest minimum of the layers in it."""
        return max((layer.min_batch_size for layer in self.leaves()), default=1)

    @property
    def trainable(self) -> bool:
        """True if a layer in it is trainable; setting it sets it in all layers in it, whatever they were before.

        Once it is built, layers without parameters and buffers do not count, unless there are no others.
        """
        return any_trainable([self])

    @trainable.setter
    def trainable(self, trainable: bool) -> None:
        check_bool("trainable", trainable)
        for _, layer in self.named_children():
            layer.trainable = trainable

    def setup(self, in_shape: Shape, dtype: str, seed: int, path: str, given: dict[str, Array] | None = None) -> Shape:
        """Builds every layer in it, as Layer.setup builds one.

        Parameters
        ----------
        in_shape : tuple of int
            Shape of one example.
        dtype : "float32" or "float64"
            Dtype of the layers.
        seed : int
            Seed of initial values and of `rng`.
        path : str
            Place of the container in the model.
        given : dict of str to array, or None, default None
            Initial values of all parameters and buffers, by the container's names; they are taken out of it.

        Returns
        -------
        tuple of int
            Shape of the joined output.

        Raises
        ------
        TypeError, ValueError
            If a layer cannot be built, naming it; if the outputs of the branches do not fit together; for values of no
            layer.
        """
        self.dtype, self.in_shape = dtype, in_shape
        shapes = {}
        for name, layers in self.named_branches().items():
            shape = in_shape
            for i, layer in enumerate(layers):
                child = child_path(name, i)
                try:
                    shape = layer.setup(shape, dtype, seed, f"{path}.{child}", _pop_values(given, child))
                except (TypeError, ValueError) as error:
                    raise kind_of(error)(f"{child}, {type(layer).__name__}: {error}") from error
            shapes[name or "0"] = shape
        if given:
            raise ValueError(f"expected values of its layers only, got {sorted(given)}")
        self.out_shape = joined_shape(self.join, shapes, self.axis)
        return self.out_shape

    @property
    def settings(self) -> dict[str, Any]:
        """`lr_mult` and `decay_mult` as in Layer.settings, and the settings of the layers in it, by path."""
        inner = {path: layer.settings for path, layer in self.named_children() if layer.settings}
        return {**super().settings, "layers": inner} if inner else super().settings

    def take_settings(self, settings: Mapping[str, Any]) -> None:
        """Replaces the settings by those of another container, and those of all layers in it.

        Parameters
        ----------
        settings : dict
            What `settings` of the other container returned.

        Raises
        ------
        TypeError, ValueError
            Without any change, for unknown names or layers, or invalid values.
        """
        self._check_settings(settings)
        rest = dict(settings)
        inner = rest.pop("layers", {})
        super().take_settings(rest)
        for path, layer in self.named_children():
            layer.take_settings(inner.get(path, {}))
        if not rest.get("trainable", True):  # files of earlier versions: it froze all layers in it
            self.trainable = False

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        """Raises as `take_settings`, and changes nothing."""
        rest = dict(settings)
        inner, children = rest.pop("layers", {}), dict(self.named_children())
        if unknown := sorted(set(inner) - set(children)):
            raise ValueError(f"{type(self).__name__}: expected settings of its layers, got {', '.join(unknown)[:100]}")
        super()._check_settings(rest)
        for path, given in inner.items():
            children[path]._check_settings(given)

    def _checked(self, argument: str, factors: Any) -> float:
        return check_non_negative(argument, factors, "float32")

    def unbuild(self) -> None:
        """Reverts `setup`."""
        for _, layer in self.named_children():
            layer.unbuild()
        for attribute in ("dtype", "in_shape", "out_shape"):
            self.__dict__.pop(attribute, None)

    @property
    def built(self) -> bool:
        """True if it, or a layer in it, belongs to a model."""
        return any(layer.built for _, layer in self.named_children()) or "in_shape" in self.__dict__

    def __repr__(self) -> str:
        """A line for each argument, and for each layer, with the prefix of its parameters' names."""
        lines = [f"{name}={value!r}" for name, value in self._non_default_arguments().items()]
        lines += [f"({path}): {layer!r}" for path, layer in self.named_children()]
        inside = "".join(f"\n{line}" for line in lines).replace("\n", "\n  ")
        return f"{type(self).__name__}({inside}\n)"

    def _non_default_arguments(self) -> dict[str, Any]:
        return {k: v for k, v in super()._non_default_arguments().items() if not _is_made_of_layers(v)}

    def named_children(self) -> Iterator[tuple[str, Layer]]:
        """Yields the direct children.

        Yields
        ------
        (str, Layer)
            The prefix of its parameters' names, such as "body.0", and the layer.
        """
        for name, layers in self.named_branches().items():
            for i, layer in enumerate(layers):
                yield child_path(name, i), layer


def title(layer: Layer) -> str:
    """Returns a layer in one line: the constructor's call, without the layers in a container."""
    return Layer.__repr__(layer) if isinstance(layer, Container) else repr(layer)


def _is_made_of_layers(value: Any) -> bool:
    if isinstance(value, (list, tuple, dict)):
        return all(map(_is_made_of_layers, value.values() if isinstance(value, dict) else value))
    return isinstance(value, Layer)


def child_path(branch: str, i: int) -> str:
    """Returns the name of the i-th layer of a branch in parameter names and errors: "body.0"."""
    return f"{branch}.{i}" if branch else str(i)


def as_layer(value: Any, name: str, index: int) -> Layer:
    """Returns a layer, converting what has `as_layer` (a Sequential); raises TypeError for anything else."""
    layer = value.as_layer() if hasattr(value, "as_layer") and not isinstance(value, type) else value
    if not isinstance(layer, Layer):
        raise TypeError(f"{name}: expected Layer objects, got {value!r} at index {index}{class_hint(value)}")
    return layer


def check_inner(layer: Layer, name: str) -> None:
    """Raises ValueError for a layer that ends a model, and cannot be in a container."""
    if layer.ends_model:
        expected = f"expected {type(layer).__name__} as the last layer of a model"
        raise ValueError(
            f"{name}: {expected}, got it inside another layer; nest a slice without it, such as model[:-1]"
        )


def as_branch(name: str, layers: Any) -> Branch:
    """Returns the layers of a branch, from a list of them or a single one; raises TypeError for anything else."""
    values = layers if isinstance(layers, (list, tuple)) else [layers]
    branch = tuple(as_layer(value, name, i) for i, value in enumerate(values))
    for layer in branch:
        check_inner(layer, name)
    return branch


def named_leaves(layer: Layer, name: str) -> Iterator[tuple[Layer, str]]:
    """Yields all layers in it that are not containers, each with its name in error messages."""
    if not isinstance(layer, Container):
        yield layer, name
        return
    for path, child in layer.named_children():
        yield from named_leaves(child, f"{name}: {path}, {type(child).__name__}")


def any_trainable(layers: Sequence[Layer]) -> bool:
    """True if one of these layers, or a layer in them, is trainable: see Container.trainable."""
    leaves = [leaf for layer in layers for leaf in layer.leaves()]
    counted = [leaf for leaf in leaves if not leaf.built or leaf.params or leaf.buffers] or leaves
    return not leaves or any(leaf.trainable for leaf in counted)


def take_factors(layers: Sequence[Layer], outer: Layer) -> None:
    """Multiplies the factors of layers by those of the container that they were in."""
    for layer in layers:
        for name in ("lr_mult", "decay_mult"):
            factor, own = getattr(outer, name), getattr(layer, name)
            if factor == 1:
                continue
            if isinstance(own, Mapping) and not layer.built:
                raise ValueError(f"{name}: expected a built model, as layer {layer!r} has factors by name")
            setattr(layer, name, scaled(factor, own, layer.params if layer.built else ()))


def depth(layer: Layer) -> int:
    """Returns the number of nested levels of containers; 0 for any other layer."""
    if not isinstance(layer, Container):
        return 0
    return 1 + max((depth(child) for _, child in layer.named_children()), default=0)


def _pop_values(given: dict[str, Array] | None, path: str) -> dict[str, Array] | None:
    """Removes the values of the layer at `path` from `given` and returns them, by their names in the layer."""
    if given is None:
        return None
    names = [name for name in given if name.startswith(f"{path}.")]
    return {name.removeprefix(f"{path}."): given.pop(name) for name in names}
