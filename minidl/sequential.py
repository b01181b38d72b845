"""Sequential: layers one after the other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from minidl import losses
from minidl.engine import channel_order, layer_list
from minidl.engine.flat_parameters import FlatParameters
from minidl.engine.manual import ManualPass
from minidl.engine.network import Network
from minidl.engine.state import check_dtype, copies, load
from minidl.engine.summary import Summary, summarize
from minidl.layers.base import Layer
from minidl.layers.parallel import Block
from minidl.layers.param import Param
from minidl.saving import safetensors_file
from minidl.saving.atomic import Path
from minidl.saving.object_codec import checked_custom
from minidl.utils.arguments import Validated
from minidl.utils.arrays import Array
from minidl.utils.data import ArraySource
from minidl.utils.validation import Shape, check_count, check_input_shape, check_int
from minidl_c.runtime.usage_guard import UsageGuard

CHUNK = 1024  # examples that NumPy layers, or data that has to be converted, go through predict with


class Sequential:
    """Layers one after the other; shapes are inferred, so layers only name their output sizes.

    layers: Layer objects, each for this model alone; a Sequential among them becomes a Block of copies of its layers,
        with its weights if it is built.
    input_shape: of one example, (channels, height, width) or (features,); None: taken from the data of the first fit.
    seed: the initial weights are a function of it and of each layer's place.
    dtype: "float32", or "float64" throughout.

    Raises TypeError or ValueError, naming layer and place, if the layers do not fit together.

    >>> from minidl.layers import Dense, ReLU
    >>> model = Sequential([Dense(4), ReLU(), Dense(2)], input_shape=(3,))
    >>> model.predict(np.zeros((5, 3))).shape
    (5, 2)
    """

    seed = Validated(
        check_count, doc="The initial weights are a function of it, and what is random in a forward by hand."
    )
    dtype = Validated(
        layer_list.dtype_of, layer_list.check_dtype, "The dtype of weights and outputs; it stays in a built model."
    )

    def __init__(
        self, layers: Sequence[Layer], input_shape: Shape | None = None, seed: int = 0, dtype: str = "float32"
    ) -> None:
        self.layers = layer_list.check_layers(layers)
        self.dtype, self.seed = dtype, seed
        self.network: Network | None = None
        self.busy = UsageGuard()  # who is at work on the model: it predicts in many threads, and trains in one
        self._manual: ManualPass | None = None
        self._claimed = False  # whether the layers are this model's
        if input_shape is not None:
            self.build(input_shape)

    def build(self, input_shape: Shape) -> None:
        """Infers all shapes, makes all parameters; warns of channels last. Raises as the constructor, and if built."""
        if self.network is None:
            channel_order.warn(layer_list.named_layers(self.layers), check_input_shape(input_shape))
        self._build(input_shape, None)

    def _build(self, input_shape: Shape, state: Mapping[str, Array] | None) -> None:
        """Builds the model with new parameters, or with `state`; then nothing larger than that is allocated."""
        if self.network is not None:
            raise ValueError(f"the model is built already, for inputs of shape {self.input_shape}")
        shape = check_input_shape(input_shape)
        layer_list.check_unbuilt(self.layers)
        self._claimed = True
        names = [name for _, name in layer_list.named_layers(self.layers)]
        with self.unbuilt_on_error():
            layer_list.build(self.layers, shape, self.dtype, self.seed, state)
            self.network = Network(self.layers, names, FlatParameters(self.layers, self.dtype))

    @contextmanager
    def unbuilt_on_error(self) -> Iterator[None]:
        """A context: if it ends in an error, a model that was not built before is not built after it."""
        if self.network is not None:
            yield
            return
        with self.busy.writing("build"):
            try:
                yield
            except BaseException:
                self.discard()
                raise

    def discard(self) -> None:
        """Undoes `build`: shapes and parameters are forgotten."""
        self.network = self._manual = None
        if self._claimed:
            layer_list.unbuild(self.layers)
        self._claimed = False

    def _built(self) -> Network:
        if self.network is None:
            raise ValueError("the model is not built yet: give it an input_shape, or fit it first")
        return self.network

    @property
    def input_shape(self) -> Shape:
        """The shape of one example. Raises ValueError before the model is built, as all that needs shapes."""
        self._built()
        return self.layers[0].in_shape

    @property
    def output_shape(self) -> Shape:
        """The shape of one example's output."""
        self._built()
        return self.layers[-1].out_shape

    @property
    def trainable(self) -> bool:
        """Whether no layer is frozen; setting it freezes or thaws them all (see Layer.trainable)."""
        return all(layer.trainable for layer in self.layers)

    @trainable.setter
    def trainable(self, trainable: bool) -> None:
        for layer in self.layers:
            layer.trainable = trainable

    @property
    def params(self) -> dict[str, Param]:
        """All parameters by name, "0.weight" being the weight of layer 0."""
        self._built()
        return {f"{i}.{name}": p for i, layer in enumerate(self.layers) for name, p in layer.params.items()}

    # ---- computing

    def predict(self, X: ArrayLike, num_threads: int | None = None) -> Array:
        """The outputs (scores) for X: (n, *output_shape). Row i does not depend on the other rows, to the last bit.

        X: real numbers (n, *input_shape), or 2-D of the same width, then also sparse. Raises TypeError or ValueError.
        Many threads may predict at the same time; while another one trains this model, it is a RuntimeError.
        """
        network = self._built()
        examples = ArraySource(X, self.input_shape, self.dtype)
        out = np.empty((len(examples), *self.output_shape), self.dtype)
        with self.busy.reading("predict"):
            for here, block in examples.chunks(CHUNK):
                out[here] = network.predict(block.reshape(-1, *self.input_shape), num_threads)
        return out

    def predict_proba(self, X: ArrayLike, num_threads: int | None = None) -> Array:
        """softmax of the scores: (n, classes), rows that sum to 1. Raises ValueError for outputs of another shape.

        Of a single score s, as binary_cross_entropy has it, (n, 2): 1 - sigmoid(s) and sigmoid(s).
        """
        if len(self.output_shape) != 1:
            raise ValueError(f"predict_proba: expected a model with outputs (classes,), got {self.output_shape}")
        return losses.probabilities(self.predict(X, num_threads))

    def forward(self, X: ArrayLike, training: bool = False) -> Array:
        """The outputs for a batch X, by hand. With `training`, what `backward` needs is kept until the next forward."""
        network = self._built()
        examples = ArraySource(X, self.input_shape, self.dtype)
        x = examples.chunk(0, len(examples)).reshape(len(examples), *self.input_shape)
        if not training:
            with self.busy.reading("forward"):
                return network.predict(x)
        with self.busy.writing("forward"):
            if self._manual is None:
                self._manual = ManualPass(network)
            return self._manual.forward(x, self.seed)

    def backward(self, dy: ArrayLike) -> Array:
        """The gradient dx of the last training forward's X, from the gradient dy of its outputs.

        Every param.grad becomes the plain sum over the batch. Raises RuntimeError without a training forward before it,
        TypeError or ValueError for a dy of another kind or shape.
        """
        network = self._built()
        with self.busy.writing("backward"):
            return (self._manual or ManualPass(network)).backward(dy)

    # ---- weights

    def state_dict(self) -> dict[str, Array]:
        """Copies of all parameters and buffers by name, in PyTorch's names and layouts."""
        self._built()
        with self.busy.reading("state_dict"):
            return copies(self.layers)

    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Copies parameters and buffers by name.

        Raises ValueError for missing, unknown or misshapen ones and for numbers too large for the model's dtype,
        TypeError for numbers that are not real, and then changes nothing.
        """
        self._built()
        with self.busy.writing("load_state_dict"):
            load(self.layers, state)

    # ---- files

    def save(self, path: Path) -> None:
        """Writes the model, layers and weights, to a safetensors file; its path holds the whole old or new one.

        Of a layer, the class's name and the constructor's arguments are kept: JSON values, tuples, NumPy scalars and
        layers. Raises TypeError naming layer and argument for others, ValueError for a model that is not built, OSError
        naming the path.
        """
        safetensors_file.write(path, "model", self.get_config(), self.state_dict())

    @classmethod
    def load(cls, path: Path, custom_objects: Mapping[str, Any] | None = None) -> Sequential:
        """The model that `save` wrote; it predicts the same, to the last bit.

        custom_objects: classes of layers that are not minidl's, by name. Only they are made; the file brings no code.
        Raises `minidl.FileError`, a ValueError, naming the path for whatever is wrong with its content; OSError if it
        cannot be read.
        """
        classes = checked_custom(custom_objects)
        recipe, tensors = safetensors_file.read(path, "model")
        try:
            return cls.from_config(recipe, tensors, classes)
        except (TypeError, ValueError, OverflowError) as error:
            raise safetensors_file.FileError(f"{os.fsdecode(path)}: {error}") from error

    def get_config(self, custom_objects: dict[str, Any] | None = None) -> dict[str, Any]:
        """What this model is besides its state, as JSON; `custom_objects` takes a user's classes. Raises as `save`."""
        layers = layer_list.get_config(self.layers, custom_objects)
        return {"layers": layers, "input_shape": list(self.input_shape), "seed": self.seed, "dtype": self.dtype}

    @classmethod
    def from_config(
        cls, recipe: dict[str, Any], state: Mapping[str, Array], custom_objects: Mapping[str, Any]
    ) -> Sequential:
        """A model of new layers with this state. Raises TypeError or ValueError, and allocates no more than `state`."""
        if set(recipe) != {"layers", "input_shape", "seed", "dtype"}:
            raise ValueError(f"expected the recipe of a model, got {sorted(recipe)}")
        model = cls(layer_list.from_config(recipe["layers"], custom_objects), None, recipe["seed"], recipe["dtype"])
        check_dtype(state, model.dtype)
        model._build(recipe["input_shape"], state)
        return model

    def summary(self, batch_size: int = 64, num_threads: int | None = None) -> Summary:
        """Layers, shapes, parameters, multiply-adds and memory, as an object that prints as a table.

        batch_size, num_threads: of the training whose memory is told; None: the threads that a fit takes by default.
        """
        return summarize(self._built(), check_int("batch_size", batch_size), num_threads)

    def __len__(self) -> int:
        return len(self.layers)

    @overload
    def __getitem__(self, place: int) -> Layer: ...
    @overload
    def __getitem__(self, place: slice) -> Sequential: ...
    def __getitem__(self, place: int | slice) -> Layer | Sequential:
        """model[i] is a layer; model[a:b] a new model of copies of these layers, with their weights."""
        if not isinstance(place, slice):
            return layer_list.layer_at(self.layers, place)
        chosen = self.layers[place]
        if self.network is None:
            return _rebuilt(layer_list.to_spec(chosen), None, self.seed, self.dtype, {})
        layer_list.check_slice(chosen, place)
        shape = chosen[0].in_shape if chosen else None
        with self.busy.reading("a slice"):
            state = copies(chosen)
        return _rebuilt(layer_list.to_spec(chosen), shape, self.seed, self.dtype, state)

    def __reduce__(self) -> tuple[Any, ...]:
        """For copy and pickle: layers by class and arguments, and copies of the state."""
        state, shape = ({}, None) if self.network is None else (self.state_dict(), self.input_shape)
        return _rebuilt, (layer_list.to_spec(self.layers), shape, self.seed, self.dtype, state)

    def as_layer(self) -> Block:
        """Copies of the layers as one layer of another model, which begins with this one's weights if it is built."""
        state = None if self.network is None else self.state_dict()
        return Block.of(layer_list.from_spec(layer_list.to_spec(self.layers)), state)

    def __repr__(self) -> str:
        lines = [f"({i}): {layer!r}" for i, layer in enumerate(self.layers)]
        return "Sequential(" + "".join(f"\n{line}" for line in lines).replace("\n", "\n  ") + "\n)"


def _rebuilt(
    parts: tuple[layer_list.LayerSpec, ...], shape: Shape | None, seed: int, dtype: str, state: Mapping[str, Array]
) -> Sequential:
    """A model of new layers with this state; not built where shape is None."""
    model = Sequential(layer_list.from_spec(parts), None, seed, dtype)
    if shape is not None:
        model._build(shape, state)
    return model
