"""Sequential: a model made of a list of layers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, overload

from numpy.typing import ArrayLike

from minidl.engine import build_warnings, layer_list
from minidl.engine.base_model import BaseModel
from minidl.engine.flat_parameters import FlatParameters
from minidl.engine.network import Network
from minidl.engine.state import check_dtype, check_mapping, copies, load
from minidl.engine.summary import Summary, summarize
from minidl.layers.base import Layer
from minidl.layers.container import any_trainable
from minidl.layers.parallel import Block
from minidl.layers.param import Param
from minidl.saving import safetensors_file
from minidl.saving.atomic import Path
from minidl.saving.object_codec import checked_custom
from minidl.utils.arrays import Array
from minidl.utils.constructors import Validated
from minidl.utils.foreign_words import MODEL
from minidl.utils.hints import answers
from minidl.utils.validation import Shape, check_count, check_int, check_shape


@answers(MODEL)
class Sequential(BaseModel):
    """A model that applies its layers in order. Shapes are inferred, so layers only name their output sizes.

    layers: Layer objects that no other model uses. A Sequential in the list becomes a Block with copies of its layers,
        and of its weights if it is built.
    input_shape: the shape of one example, (channels, height, width) or (features,); None: inferred by the first fit.
    seed: determines the initial weights, together with each layer's position.
    dtype: "float32" or "float64", for all computations.

    Raises TypeError or ValueError, naming the layer and its position, if the layers do not fit together.

    >>> import numpy as np
    >>> from minidl.layers import Dense, ReLU
    >>> model = Sequential([Dense(4), ReLU(), Dense(2)], input_shape=(3,))
    >>> model.predict(np.zeros((5, 3))).shape
    (5, 2)
    """

    seed = Validated(check_count, doc="Determines the initial weights, and the random numbers of a forward by hand.")
    dtype = Validated(
        layer_list.dtype_of, layer_list.check_dtype, "The dtype of weights and outputs; fixed once the model is built."
    )

    def __init__(
        self, layers: Sequence[Layer], input_shape: Shape | None = None, seed: int = 0, dtype: str = "float32"
    ) -> None:
        self.layers = layer_list.check_layers(layers)
        self.dtype, self.seed = dtype, seed
        super().__init__()
        self._claimed = False  # True once `build_from` has taken the layers for this model
        if input_shape is not None:
            self.build(input_shape)

    def build(self, input_shape: Shape) -> None:
        """Infers all shapes, creates all parameters; warns of channels last. Raises as the constructor; or if built."""
        if self.network is None:
            build_warnings.warn(layer_list.named_layers(self.layers), check_shape("input_shape", input_shape))
        self.build_from(input_shape, None)

    def build_from(self, input_shape: Shape, state: dict[str, Array] | None) -> None:
        """Builds the model with the values of `state` (None: new ones), allocating no more memory than they need.

        It empties `state`: an array is released when its layer has copied it. Raises as `build`.
        """
        if self.network is not None:
            raise ValueError(f"the model is built already, for inputs of shape {self.input_shape}")
        shape = check_shape("input_shape", input_shape)
        layer_list.check_unbuilt(self.layers)
        self._claimed = True
        names = [name for _, name in layer_list.named_layers(self.layers)]
        with self.unbuilt_on_error():
            layer_list.build(self.layers, shape, self.dtype, self.seed, state)
            self.network = Network(self.layers, names, FlatParameters(self.layers, self.dtype))

    @contextmanager
    def unbuilt_on_error(self) -> Iterator[None]:
        """Returns a context that undoes a build if its block raises; a model that was already built stays so."""
        if self.network is not None:
            yield
            return
        with self.usage.writing("build"):
            try:
                yield
            except BaseException:
                self.discard()
                raise

    def discard(self) -> None:
        """Undoes `build`: discards shapes and parameters."""
        self.network = self._manual = self._inference = None
        if self._claimed:
            layer_list.unbuild(self.layers)
        self._claimed = False

    @property
    def trainable(self) -> bool:
        """True if a layer is trainable; setting it freezes or unfreezes all layers (see Container.trainable)."""
        return any_trainable(self.layers)

    @trainable.setter
    def trainable(self, trainable: bool) -> None:
        for layer in self.layers:
            layer.trainable = trainable

    @property
    def params(self) -> dict[str, Param]:
        """All parameters by name; "0.weight" is the weight of layer 0."""
        self._built()
        return {f"{i}.{name}": p for i, layer in enumerate(self.layers) for name, p in layer.params.items()}

    # ---- weights

    def state_dict(self) -> dict[str, Array]:
        """Returns copies of all parameters and buffers by name, with PyTorch's names and layouts."""
        self._built()
        with self.usage.reading("state_dict"):
            return copies(self.layers)

    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Copies parameters and buffers into the model, by name.

        Raises ValueError for missing or unknown names, wrong shapes and numbers too large for the model's dtype;
        TypeError for numbers that are not real. The model is then unchanged.
        """
        self._built()
        with self.usage.writing("load_state_dict"):
            load(self.layers, state)

    # ---- files

    def save(self, path: Path) -> None:
        """Writes layers and weights to a safetensors file, atomically: a failed save leaves an existing file unchanged.

        A layer is stored as class name and constructor arguments: JSON values, tuples, NumPy scalars and layers. Raises
        TypeError, naming layer and argument, for others; ValueError if the model is not built; OSError with the path.
        """
        safetensors_file.write(path, "model", self.get_config(), self.state_dict())

    @classmethod
    def load(cls, path: Path, custom_objects: Mapping[str, Any] | None = None) -> Sequential:
        """Returns the model that `save` wrote; its predictions are the same, bit for bit.

        custom_objects: classes of layers that are not minidl's, by name. Only these and minidl's layers are created.
        Raises `minidl.FileError`, a ValueError that names the path, for invalid content; OSError for unreadable files.
        """
        classes = checked_custom(custom_objects)
        config, tensors = safetensors_file.read(path, "model")
        try:
            return cls.from_config(config, tensors, classes)
        except (TypeError, ValueError, OverflowError) as error:
            raise safetensors_file.FileError(f"{os.fsdecode(path)}: {error}") from error

    def get_config(self, custom_objects: dict[str, Any] | None = None) -> dict[str, Any]:
        """Returns everything except the state as JSON; adds users' classes to `custom_objects`. Raises as `save`."""
        layers = layer_list.get_config(self.layers, custom_objects)
        return {"layers": layers, "input_shape": list(self.input_shape), "seed": self.seed, "dtype": self.dtype}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], state: Mapping[str, Array], custom_objects: Mapping[str, Any]
    ) -> Sequential:
        """Returns a new model with this state. Raises TypeError or ValueError, and allocates no more than `state`."""
        if not isinstance(config, Mapping) or set(config) != {"layers", "input_shape", "seed", "dtype"}:
            got = sorted(map(str, config)) if isinstance(config, Mapping) else type(config).__name__
            raise ValueError(f"config: expected what get_config returns, got {got}")
        check_mapping(state)
        custom = checked_custom(custom_objects)
        model = cls(layer_list.from_config(config["layers"], custom), None, config["seed"], config["dtype"])
        check_dtype(state, model.dtype)
        model.build_from(config["input_shape"], dict(state))
        return model

    def summary(self, batch_size: int = 64, num_threads: int | None = None) -> Summary:
        """Returns layers, shapes, parameters, multiply-adds and memory, as an object that prints as a table.

        batch_size, num_threads: for the memory of training; num_threads=None: the default of a fit.
        """
        return summarize(self._built(), check_int("batch_size", batch_size), num_threads)

    def __len__(self) -> int:
        return len(self.layers)

    @overload
    def __getitem__(self, index: int) -> Layer: ...
    @overload
    def __getitem__(self, index: slice) -> Sequential: ...
    def __getitem__(self, index: int | slice) -> Layer | Sequential:
        """Returns the layer model[i], or a new model model[a:b] of copies of these layers, with their weights."""
        if not isinstance(index, slice):
            return layer_list.layer_at(self.layers, index)
        chosen = self.layers[index]
        if self.network is None:
            return _rebuild(layer_list.to_spec(chosen), None, self.seed, self.dtype, {})
        layer_list.check_slice(chosen, index)
        shape = chosen[0].in_shape if chosen else None
        with self.usage.reading("a slice"):
            state = copies(chosen)
        return _rebuild(layer_list.to_spec(chosen), shape, self.seed, self.dtype, state)

    def __reduce__(self) -> tuple[Any, ...]:
        """Supports copy and pickle: stores layers by class and arguments, and a copy of the state."""
        state, shape = ({}, None) if self.network is None else (self.state_dict(), self.input_shape)
        return _rebuild, (layer_list.to_spec(self.layers), shape, self.seed, self.dtype, state)

    def as_layer(self) -> Block:
        """Returns copies of the layers as one Block for another model, with this model's weights if it is built."""
        state = None if self.network is None else self.state_dict()
        return Block.of(layer_list.from_spec(layer_list.to_spec(self.layers)), state)

    def __repr__(self) -> str:
        lines = [f"({i}): {layer!r}" for i, layer in enumerate(self.layers)]
        return "Sequential(" + "".join(f"\n{line}" for line in lines).replace("\n", "\n  ") + "\n)"


def _rebuild(
    specs: tuple[layer_list.LayerSpec, ...], shape: Shape | None, seed: int, dtype: str, state: Mapping[str, Array]
) -> Sequential:
    """Returns a model of new layers with this state; it is not built if shape is None."""
    model = Sequential(layer_list.from_spec(specs), None, seed, dtype)
    if shape is not None:
        model.build_from(shape, dict(state))
    return model
