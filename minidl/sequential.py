"""Sequential: a model made of a list of layers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast, overload

from numpy.typing import ArrayLike

from minidl.engine import build_warnings, description, layer_list
from minidl.engine.base_model import BaseModel
from minidl.engine.flat_parameters import FlatParameters, SharedParameters
from minidl.engine.network import Network
from minidl.engine.sizes import MOST_PIXELS, Sizes, check_free_shape, common
from minidl.engine.soft_update import check_same_layers, soft_update
from minidl.engine.state import check_dtype, check_mapping, copies, load, shared
from minidl.engine.summary import Summary, summarize
from minidl.layers.base import Layer
from minidl.layers.container import any_trainable, take_factors
from minidl.layers.parallel import Block
from minidl.layers.param import Param
from minidl.saving import safetensors_file
from minidl.saving.atomic import Path
from minidl.saving.object_codec import checked_custom
from minidl.utils.arrays import Array
from minidl.utils.constructors import Validated
from minidl.utils.foreign_words import MODEL
from minidl.utils.hints import answers, class_hint
from minidl.utils.validation import Shape, check_count, check_int, check_non_negative, check_real


@answers(MODEL)
class Sequential(BaseModel):
    """A model that applies its layers in order.

    Shapes are inferred, so layers only name their output sizes. `len(model)` is the number of layers, `model[i]` a
    layer, and `model[a:b]` a new model of copies of these layers, with their weights. With `Outputs` at the end,
    `model["name"]` and `model[["name", "other"]]` are such models of one output or some.

    Parameters
    ----------
    layers : list of Layer
        Layers that no other model uses. A Sequential in the list becomes a Block with copies of its layers, and of its
        weights if it is built.
    input_shape : tuple of int or None, default None
        Shape of one example, such as (channels, height, width) or (features,). None: inferred by the first fit. With
        (channels, None, None), or (channels, None) for signals, the model takes examples of any size in `predict`,
        `Trainer.evaluate` and the batches of a fit, one size in each call or batch; `at` returns the model of one size.
        Layers whose parameters depend on the size, such as Dense after Flatten, are refused.
    seed : int, default 0
        Determines the initial weights, together with each layer's position.
    dtype : "float32" or "float64", default "float32"
        Dtype of all computations.
    max_pixels : int, default 16777216
        The most pixels (height * width) of an example, for a model of images of any size: memory grows with them.

    Attributes
    ----------
    layers : tuple of Layer
        The layers, in order.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid, or if the layers do not fit together. The message names the layer and its position.

    See Also
    --------
    Trainer : Fits a model to data.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import Dense, ReLU
    >>> model = Sequential([Dense(4), ReLU(), Dense(2)], input_shape=(3,))
    >>> model.predict(np.zeros((5, 3))).shape
    (5, 2)
    >>> model[:-1].output_shape
    (4,)
    """

    seed = Validated(check_count, doc="Determines the initial weights, and the random numbers of a forward by hand.")
    dtype = Validated(
        layer_list.dtype_of, layer_list.check_dtype, "The dtype of weights and outputs; fixed once the model is built."
    )

    max_pixels = Validated(check_int, doc="The most pixels of an example, for a model of images of any size.")

    def __init__(
        self,
        layers: Sequence[Layer],
        input_shape: Sequence[int | None] | None = None,
        seed: int = 0,
        dtype: str = "float32",
        max_pixels: int = MOST_PIXELS,
    ) -> None:
        self.layers = layer_list.check_layers(layers)
        self.dtype, self.seed, self.max_pixels = dtype, seed, max_pixels
        super().__init__()
        self._lr_mult = 1.0
        self._claimed = False  # True once `build_from` has taken the layers for this model
        self._followed: object = None  # the settings that were taken last of a model of any size
        if input_shape is not None:
            self.build(input_shape)

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Infers all shapes and creates all parameters.

        The first `fit` of an unbuilt model calls it. A UserWarning tells of a shape with the channels last, and of a
        first convolution whose arguments are in PyTorch's order.

        Parameters
        ----------
        input_shape : tuple of int
            Shape of one example, in which height and width may be None: see Sequential.

        Raises
        ------
        TypeError, ValueError
            If the shape is invalid, if the layers do not fit together, or if the model is built already.

        Examples
        --------
        >>> from minidl import Sequential
        >>> from minidl.layers import Dense
        >>> model = Sequential([Dense(2)])
        >>> model.build((3,))
        >>> model.params["0.weight"].value.shape
        (2, 3)
        """
        self.build_from(input_shape, None)

    def build_from(self, input_shape: Sequence[int | None], state: dict[str, Array] | None) -> None:
        """Builds the model with given values, allocating no more memory than they need.

        Parameters
        ----------
        input_shape : tuple of int
            Shape of one example.
        state : dict of str to array, or None
            Parameters and buffers by name; None: new ones. The call empties the dict: an array is released when its
            layer has copied it.

        Raises
        ------
        TypeError, ValueError
            As `build`, and if names or shapes in `state` are not those of the layers.
        """
        if self.network is not None:
            raise ValueError(f"the model is built already, for inputs of shape {self.input_shape}")
        shape = check_free_shape("input_shape", input_shape)
        layer_list.check_unbuilt(self.layers)
        if None in shape:
            self._build_for_any_size(Sizes(shape, self._sharing), state)
        else:
            self._build_for(cast(Shape, shape), state)

    def _build_for(self, shape: Shape, state: dict[str, Any] | None, owner: Sequential | None = None) -> None:
        """Builds the model for one shape; owner: a model with the same layers, whose state is shared."""
        self._claimed = True
        named = layer_list.named_layers(self.layers)
        with self.unbuilt_on_error():
            try:
                layer_list.build(self.layers, shape, self.dtype, self.seed, state)
            finally:
                if state is None:
                    build_warnings.warn(named, shape)
            if owner is None or owner.network is None:
                home = FlatParameters(self.layers, self.dtype)
            else:
                home = SharedParameters(owner.network.parameters, owner.layers, self.layers)
            self.network = Network(self.layers, [name for _, name in named], home, lr_mult=self._lr_mult)

    def _build_for_any_size(self, sizes: Sizes[Sequential], state: dict[str, Array] | None) -> None:
        """Builds the model for the first of some sizes that fits, and checks that a larger one can share its state."""
        sizes.try_first(lambda shape: self._build_for(shape, None if state is None else dict(state)))
        self.sizes = sizes
        try:
            sizes.take_outputs(*(model.output_shape for model in sizes.first_two()))
        except (TypeError, ValueError) as error:
            self.discard()
            expected = f"expected layers that take any size for {sizes.declared}, as GlobalAvgPool2D before Dense"
            raise ValueError(f"input_shape: {expected}, got {error}") from error

    def _sharing(self, shape: Shape, *more: Layer) -> Sequential:
        """Returns a model for examples of one shape, whose layers share the parameters and buffers of this one.

        more: layers that come after them, without parameters.
        """
        model = Sequential([*layer_list.from_spec(layer_list.to_spec(self.layers)), *more], None, self.seed, self.dtype)
        model._build_for(shape, shared(self.layers), self)
        model.usage, model._changes = self.usage, self._changes
        return model

    def at(self, input_shape: Sequence[int]) -> Sequential:
        """Returns the model for examples of one shape, if this one takes images of any size.

        It shares all weights and buffers with this model: a step of either changes both. It has its settings
        (`trainable`, `lr_mult`, `decay_mult`) as they are when `at` is called. Its results are those of a model that
        was built for this shape, bit for bit, and it can do what a model of any size cannot: input gradients, a forward
        by hand, an export for C. The models of the sizes used last are kept.

        Parameters
        ----------
        input_shape : tuple of int
            Shape of one example.

        Returns
        -------
        Sequential
            A model of one size; itself if it has this shape.

        Raises
        ------
        ValueError
            If the layers do not fit this shape, if it has more than `max_pixels` pixels, or if the model is not built.

        Examples
        --------
        >>> import numpy as np
        >>> from minidl import Sequential
        >>> from minidl.layers import Conv2D
        >>> model = Sequential([Conv2D(2, 3, padding=1)], input_shape=(1, None, None))
        >>> model.predict(np.zeros((1, 1, 20, 30))).shape, model.predict(np.zeros((1, 1, 7, 7))).shape
        ((1, 2, 20, 30), (1, 2, 7, 7))
        >>> model.at((1, 20, 30)).output_shape
        (2, 20, 30)
        """
        self._built()
        if self.sizes is None:
            if tuple(input_shape) != self.input_shape:
                raise ValueError(f"input_shape: expected {self.input_shape}, of the model, got {tuple(input_shape)}")
            return self
        model = self.sizes.at(self.sizes.check(input_shape, self.max_pixels))
        model._follow(self)
        model._metadata, model._classes = self._metadata, self._classes
        return model

    def _follow(self, owner: Sequential) -> None:
        """Takes the settings of the model that it shares its parameters with."""
        if self._followed == (Layer.settings_version(), owner.lr_mult, self.lr_mult):
            return
        for own, theirs in zip(self.layers, owner.layers, strict=True):
            if own.settings != theirs.settings:
                own.take_settings(theirs.settings)
        self.lr_mult = owner.lr_mult
        self._followed = Layer.settings_version(), owner.lr_mult, self.lr_mult

    @contextmanager
    def unbuilt_on_error(self) -> Iterator[None]:
        """Returns a context that undoes a build if its block raises.

        A model that was already built stays built.

        Returns
        -------
        context manager
            For a `with` statement, in which the model may be built.
        """
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
        self.network = self._manual = self._inference = self.sizes = self._classes = None
        if self._claimed:
            layer_list.unbuild(self.layers)
        self._claimed = False

    @property
    def trainable(self) -> bool:
        """True if a layer is trainable. Setting it freezes or unfreezes all layers, whatever they were before.

        Once the model is built, layers without parameters and buffers do not count, unless there are no others.
        """
        return any_trainable(self.layers)

    @trainable.setter
    def trainable(self, trainable: bool) -> None:
        for layer in self.layers:
            layer.trainable = trainable

    @property
    def lr_mult(self) -> float:
        """Multiplier of the learning rate of all layers, which multiplies their own `lr_mult`."""
        return self._lr_mult

    @lr_mult.setter
    def lr_mult(self, factor: float) -> None:
        self._lr_mult = check_non_negative("lr_mult", factor, "float32")
        if self.network is not None:
            self.network.lr_mult = self._lr_mult

    @property
    def params(self) -> dict[str, Param]:
        """All parameters by name, as a dict of Param; "0.weight" is the weight of layer 0.

        Raises
        ------
        ValueError
            If the model is not built.

        Examples
        --------
        >>> from minidl import Sequential
        >>> from minidl.layers import Dense, ReLU
        >>> list(Sequential([Dense(4), ReLU(), Dense(2)], input_shape=(3,)).params)
        ['0.weight', '0.bias', '2.weight', '2.bias']
        """
        self._built()
        return {f"{i}.{name}": p for i, layer in enumerate(self.layers) for name, p in layer.params.items()}

    # ---- weights

    def state_dict(self) -> dict[str, Array]:
        """Returns copies of all parameters and buffers by name, with PyTorch's names and layouts.

        Returns
        -------
        dict of str to array
            "0.weight" is the weight of layer 0, "1.running_mean" a buffer of layer 1. The arrays are in row-major
            order.

        Raises
        ------
        ValueError
            If the model is not built.
        RuntimeError
            If another thread trains the model.

        Examples
        --------
        >>> from minidl import Sequential
        >>> from minidl.layers import Dense
        >>> state = Sequential([Dense(2)], input_shape=(3,)).state_dict()
        >>> {name: array.shape for name, array in state.items()}
        {'0.weight': (2, 3), '0.bias': (2,)}
        """
        self._built()
        with self.usage.reading("state_dict"):
            return copies(self.layers)

    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Copies parameters and buffers into the model, by name. The model is unchanged if it raises.

        No other thread may use the model meanwhile, not even to predict. A service gets other weights by a new model
        in place of the old one, `live = Sequential.load(path)`: a call that has begun goes on with the old one.

        Parameters
        ----------
        state : dict of str to array-like
            A value for each name of `state_dict`, of the same shape.

        Raises
        ------
        TypeError
            If `state` is not a mapping, or if its numbers are not real.
        ValueError
            If the model is not built, if names are missing or unknown, if a shape is wrong, or if a number is too large
            for the dtype of the model.
        RuntimeError
            If another thread uses the model, also by `predict`.

        Examples
        --------
        >>> import numpy as np
        >>> from minidl import Sequential
        >>> from minidl.layers import Dense
        >>> model = Sequential([Dense(1)], input_shape=(2,))
        >>> model.load_state_dict({"0.weight": [[2, 3]], "0.bias": [1]})
        >>> model.predict([[10, 100]])
        array([[321.]], dtype=float32)
        """
        self._built()
        with self.usage.writing("load_state_dict"):
            load(self.layers, state)
            self.changes += 1

    def soft_update(self, other: Sequential, tau: float = 1.0) -> None:
        """Moves parameters and buffers a part of the way to those of another model: `w += tau * (w_other - w)`.

        It needs no memory, and a `tau` of 1 copies every bit. So a target network follows the network that is trained
        (Polyak averaging), and a copy gets new weights. Frozen layers move as well; the settings of layers, and the
        states of optimizers, stay.

        Parameters
        ----------
        other : Sequential
            Another model of the same layers, shapes and dtype.
        tau : float, default 1.0
            The part of the way, from 0 to 1.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid, if a model is not built, or if the layers differ: the message names the first
            layer that does.
        RuntimeError
            If another thread uses this model, or trains the other one.

        See Also
        --------
        minidl.callbacks.ExponentialMovingAverage : Averages the weights during a fit.

        Notes
        -----
        Running statistics are averaged like weights, `num_batches_tracked` of batch norms as well, which so becomes a
        fraction; integers in the buffers of a layer in NumPy are copied. Layers are
        the same if their classes, and names and shapes of their tensors, are; so a target may have another dropout
        rate. `load_state_dict` is for all other pairs.

        Examples
        --------
        >>> import copy
        >>> from minidl import Sequential
        >>> from minidl.layers import Dense
        >>> model = Sequential([Dense(1)], input_shape=(1,))
        >>> target = copy.deepcopy(model)
        >>> model.load_state_dict({"0.weight": [[4]], "0.bias": [2]})
        >>> target.load_state_dict({"0.weight": [[0]], "0.bias": [0]})
        >>> target.soft_update(model, tau=0.25)
        >>> target.params["0.weight"].value, target.params["0.bias"].value
        (array([[1.]], dtype=float32), array([0.5], dtype=float32))
        """
        if not isinstance(other, Sequential):
            raise TypeError(f"other: expected a Sequential, got {other!r}{class_hint(other)}")
        if other is self:
            raise ValueError("other: expected another model, got this one")
        if not 0 <= check_real("tau", tau) <= 1:
            raise ValueError(f"tau: expected a number from 0 to 1, got {tau}")
        network = self._built()
        if other.network is None:
            raise ValueError("other: expected a built model: give it an input_shape, or fit it first")
        check_same_layers(network, other.network)
        with other.usage.reading("soft_update"), self.usage.writing("soft_update"):
            soft_update(network, other.network, float(tau))
            self.changes += 1

    # ---- files

    def save(self, path: Path, metadata: Mapping[str, Any] | None = None, classes: ArrayLike | None = None) -> None:
        """Writes layers and weights to a safetensors file, atomically.

        A failed save leaves an existing file unchanged. A layer is stored as the name of its class and its
        constructor's arguments.

        Parameters
        ----------
        path : str or os.PathLike
            The file.
        metadata : dict or None, default None
            What the loaded model has as its `metadata`: JSON's values by strings. None: that of this model.
        classes : list of str or int, or None, default None
            What the loaded model has as its `classes`: one for each output, two for a single score. None: those of
            this model.

        Raises
        ------
        TypeError
            If an argument of a layer is none of JSON's values, tuples, NumPy scalars and layers. The message names
            both. If `metadata` has a value that JSON does not have, or `classes` other values than strings or ints.
        ValueError
            If the model is not built, or if `metadata` or `classes` are invalid: see the attributes of these names.
        OSError
            If the file cannot be written.

        See Also
        --------
        Trainer.save_checkpoint : Saves the state of the training as well.

        Examples
        --------
        >>> import os, tempfile
        >>> from minidl import Sequential
        >>> from minidl.layers import Dense
        >>> model = Sequential([Dense(2)], input_shape=(3,))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "model.safetensors")
        ...     model.save(path, metadata={"author": "Ada"}, classes=["cat", "dog"])
        ...     same = Sequential.load(path)
        >>> bool((same.predict([[1, 2, 3]]) == model.predict([[1, 2, 3]])).all())
        True
        >>> same.classes, same.metadata["author"]
        (('cat', 'dog'), 'Ada')
        """
        about = description.about(self, metadata, classes)
        safetensors_file.write(path, "model", self.get_config(), self.state_dict(), about)

    @classmethod
    def load(cls, path: Path, custom_objects: Mapping[str, Any] | None = None) -> Sequential:
        """Returns the model that `save` wrote; its predictions are the same, bit for bit.

        The file brings no code: only minidl's layers and those of `custom_objects` are created.

        Parameters
        ----------
        path : str or os.PathLike
            A file that `save` wrote.
        custom_objects : dict of str to class, or None, default None
            Classes of layers that are not minidl's, by name.

        Returns
        -------
        Sequential
            A new model, which is built.

        Raises
        ------
        minidl.FileError
            If the content of the file is invalid. It is a ValueError that names the path.
        OSError
            If the file cannot be read.

        Examples
        --------
        >>> import os, tempfile
        >>> from minidl import Layer, Sequential
        >>> class Twice(Layer):
        ...     def forward(self, x, training):
        ...         return 2 * x
        ...     def backward(self, dy):
        ...         return 2 * dy
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "model.safetensors")
        ...     Sequential([Twice()], input_shape=(3,)).save(path)
        ...     model = Sequential.load(path, custom_objects={"Twice": Twice})
        >>> model.predict([[1, 2, 3]])
        array([[2., 4., 6.]], dtype=float32)
        """
        classes = checked_custom(custom_objects)
        config, tensors, about = safetensors_file.read(path, "model")
        try:
            model = cls.from_config(config, tensors, classes)
            description.describe(model, about)
            return model
        except (TypeError, ValueError, OverflowError) as error:
            raise safetensors_file.FileError(f"{os.fsdecode(path)}: {error}") from error

    def get_config(self, custom_objects: dict[str, Any] | None = None) -> dict[str, Any]:
        """Returns everything except the state as JSON.

        Parameters
        ----------
        custom_objects : dict or None, default None
            Receives the classes of layers that are not minidl's, by name.

        Returns
        -------
        dict
            `layers`, `input_shape`, `seed` and `dtype`, for `from_config`; `lr_mult` and `max_pixels` if they are not
            the defaults.

        Raises
        ------
        TypeError, ValueError
            As `save`.
        """
        layers = layer_list.get_config(self.layers, custom_objects)
        config = {"layers": layers, "input_shape": list(self.input_shape), "seed": self.seed, "dtype": self.dtype}
        if self._lr_mult != 1:
            config["lr_mult"] = self._lr_mult
        return config if self.max_pixels == MOST_PIXELS else config | {"max_pixels": self.max_pixels}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], state: Mapping[str, Array] | None, custom_objects: Mapping[str, Any]
    ) -> Sequential:
        """Returns a new model, with this state: then it allocates no more memory than `state`.

        Parameters
        ----------
        config : dict
            What `get_config` returned.
        state : dict of str to array, or None
            Parameters and buffers by name; None: new ones, from the seed.
        custom_objects : dict of str to class
            Classes of layers that are not minidl's, by name.

        Returns
        -------
        Sequential
            A new model, which is built.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid, or if `state` does not fit the layers.
        """
        layer_list.check_config(config)
        custom = checked_custom(custom_objects)
        made = layer_list.from_config(config["layers"], custom)
        model = cls(made, None, config["seed"], config["dtype"], config.get("max_pixels", MOST_PIXELS))
        model.lr_mult = config.get("lr_mult", 1.0)
        if state is not None:
            check_mapping(state)
            check_dtype(state, model.dtype)
        model.build_from(config["input_shape"], None if state is None else dict(state))
        return model

    def summary(self, batch_size: int = 64, num_threads: int | None = None) -> Summary:
        """Returns layers, shapes, parameters, multiply-adds and memory, as an object that prints as a table.

        Parameters
        ----------
        batch_size : int, default 64
            Number of examples in a step, for the memory of training.
        num_threads : int or None, default None
            Number of threads, for the memory of training. None: the default of a fit.

        Returns
        -------
        Summary
            It prints as a table, and shows as one in a notebook. `parameters` is the number of parameters, `trainable`
            that of those that a step changes, `macs` the number of multiply-adds of one example's forward.
            `parameter_bytes`, `step_bytes` and `training_bytes` are memory of parameters, of a step, and of training
            without data and optimizer. `rows` has for each layer `name`, `depth`, `output` (a shape), `parameters`,
            `trainable`, `macs`, `example_bytes`, the size of its output, and `lr_mult` and `decay_mult`, with those of
            what it is in.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid, or if the model is not built.

        See Also
        --------
        Trainer.summary : Also says how long an epoch takes.

        Examples
        --------
        >>> from minidl import Sequential
        >>> from minidl.layers import Dense, ReLU
        >>> summary = Sequential([Dense(4), ReLU(), Dense(2)], input_shape=(3,)).summary()
        >>> summary.parameters, summary.macs
        (26, 20)
        >>> [row.output for row in summary.rows]
        [(4,), (4,), (2,)]
        """
        return summarize(self._built(), check_int("batch_size", batch_size), num_threads)

    def __len__(self) -> int:
        return len(self.layers)

    @overload
    def __getitem__(self, index: int) -> Layer: ...
    @overload
    def __getitem__(self, index: slice | str | list[str]) -> Sequential: ...
    def __getitem__(self, index: int | slice | str | list[str]) -> Layer | Sequential:
        """Returns the layer model[i], or a new model of copies of some layers, with their weights.

        model[a:b]: these layers. model["policy"], model[["policy", "value"]]: all that one or some of its `Outputs`
        need.
        """
        if isinstance(index, slice):
            chosen = self.layers[index]
        elif isinstance(index, (str, list)):
            chosen = layer_list.of_outputs(self.layers, index)
        else:
            return layer_list.layer_at(self.layers, index)
        shape, state = None, dict[str, Array]()
        if self.network is not None:
            layer_list.check_slice(chosen, index)
            shape = self._shape_before(chosen[0]) if chosen else None
            with self.usage.reading("a slice"):
                state = copies(chosen)
        about = description.about_slice(self, isinstance(index, slice) and chosen[-1:] == self.layers[-1:])
        spec = layer_list.to_spec(chosen)
        model = _rebuild(spec, shape, self.seed, self.dtype, state, self._lr_mult, self.max_pixels, about)
        if isinstance(index, str):
            take_factors(model.layers[len(self) - 1 :], self.layers[-1])
        return model

    def __reduce__(self) -> tuple[Any, ...]:
        """Supports copy and pickle: stores layers by class and arguments, and a copy of the state."""
        state, shape = ({}, None) if self.network is None else (self.state_dict(), self.input_shape)
        spec, about = layer_list.to_spec(self.layers), description.about(self)
        return _rebuild, (spec, shape, self.seed, self.dtype, state, self._lr_mult, self.max_pixels, about)

    def _shape_before(self, layer: Layer) -> Shape:
        """Returns the shape of an example before a layer, with None for sizes that depend on that of the input."""
        if self.sizes is None or layer not in self.layers:
            return layer.in_shape
        place = self.layers.index(layer)
        return cast(Shape, common(*(model.layers[place].in_shape for model in self.sizes.first_two())))

    def as_layer(self) -> Block:
        """Returns copies of the layers as one layer for another model.

        Returns
        -------
        Block
            It has the weights of this model if the model is built.

        Examples
        --------
        >>> from minidl import Sequential
        >>> from minidl.layers import Dense, ReLU
        >>> body = Sequential([Dense(4), ReLU()], input_shape=(3,))
        >>> model = Sequential([body.as_layer(), Dense(2)], input_shape=(3,))
        >>> list(model.params)
        ['0.0.weight', '0.0.bias', '1.weight', '1.bias']
        """
        state = None if self.network is None else self.state_dict()
        block = Block.of(layer_list.from_spec(layer_list.to_spec(self.layers)), state)
        block.lr_mult = self._lr_mult
        return block

    def __repr__(self) -> str:
        lines = [f"({i}): {layer!r}" for i, layer in enumerate(self.layers)]
        return f"{type(self).__name__}(" + "".join(f"\n{line}" for line in lines).replace("\n", "\n  ") + "\n)"


def _rebuild(
    specs: tuple[layer_list.LayerSpec, ...],
    shape: Shape | None,
    seed: int,
    dtype: str,
    state: Mapping[str, Array],
    lr_mult: float,
    max_pixels: int = MOST_PIXELS,
    about: Mapping[str, Any] | None = None,
) -> Sequential:
    """Returns a model of new layers with this state; it is not built if shape is None."""
    model = Sequential(layer_list.from_spec(specs), None, seed, dtype, max_pixels)
    model.lr_mult = lr_mult
    if shape is not None:
        model.build_from(shape, dict(state))
    description.describe(model, about or {})
    return model
