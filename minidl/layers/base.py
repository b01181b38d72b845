"""Layer: the base class of all layers, with the methods to override and the attributes that the model sets."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from minidl.initializers import Init, check_initializer
from minidl.layers.param import Param, Shared
from minidl.utils.arrays import Array, as_array, as_dtype, copy_into, is_zeros_view, with_memory_order
from minidl.utils.constructors import constructor_arguments, parameters
from minidl.utils.factors import Factors, check_factors, copied
from minidl.utils.hints import answer_arguments
from minidl.utils.validation import Shape, check_bool, check_int
from minidl_c.op import Op


class Layer:
    """Base class of all layers. A subclass sets an op (`self.op`), or implements `forward` and `backward` in NumPy.

    The constructor only stores its arguments, in attributes of the same names. `build` receives the shape of the input,
    creates parameters, and returns the shape of the output; shapes are without the batch axis. A batch may have any
    number of examples, including none: `predict` of an empty array passes an empty batch.

    A layer made of several ops sets `op` to a tuple of them, in order. They read the parameters in the order in which
    `build` created them; the buffers belong to the last op.

    The rules for layers are in docs/how-to/custom-layers.md, those for ops in docs/how-to/custom-kernels.md.

    Attributes
    ----------
    op : Op, tuple of Op, or None, default None
        The kernel, which `build` creates; None for a layer in NumPy.
    min_batch_size : int, default 1
        Smallest number of examples in a batch of training.
    macs : int, default 0
        Multiply-adds of one example's forward, for `summary`; `build` sets it where it is known.
    moves_pixels : bool, default False
        Whether, in training, outputs (c, h, w) show pixels of other places of the input: targets with its height and
        width then move with them. A layer with an op defines `target_op`; the `forward` of a layer in NumPy is called
        with the targets, too, which have channels of their own: it must copy pixels, or put 0 for those from outside.
    shows_outside : bool, default False
        Whether some of these pixels may lie outside the input. `build` sets it.
    takes_images : bool, default False
        Whether an input (c, h, w) is an image. A model warns if the input of the first such layer looks like (h, w, c).
    takes_categories : bool, default False
        Whether its inputs are the indices of categories, between which there are none: mixup and CutMix refuse the
        model.
    takes_missing : bool, default False
        Whether NaN in its input is a missing value. X of a model with such a layer at its beginning, or at that of a
        branch, also after Columns, may hold NaN. `build` sets it.
    active_range : (float, float) or None, default None
        Of an activation, the inputs between which its slope is not close to 0. `Trainer.report` looks for units that
        are always outside.
    output_kind : "scores", "probabilities" or "other", default "scores"
        What the outputs are of a model that ends with this layer: scores, of which a softmax or a sigmoid makes
        probabilities; these; or neither.
    needs_dx : bool
        False if the result of `backward` is discarded. Set by the model.
    in_shape, out_shape : tuple of int
        Shapes of input and output, without the batch axis. Set by the model.
    dtype : "float32" or "float64"
        Dtype of the computation. Set by the model, before `build`.
    params : dict of str to Param
        The parameters, by name. Set by the model.
    buffers : dict of str to array
        State that is not trained, by name. Set by the model.

    Examples
    --------
    A layer in NumPy with a learned factor for each feature. `check_layer` compares its gradients with finite
    differences:

    >>> import numpy as np
    >>> from minidl import Layer, Sequential
    >>> from minidl.initializers import ones
    >>> from minidl.testing import check_layer
    >>> class Gain(Layer):
    ...     def build(self, in_shape):
    ...         self.gain = self.param("gain", in_shape, ones)
    ...         return in_shape
    ...
    ...     def forward(self, x, training):
    ...         if training:
    ...             self.x = x
    ...         return x * self.gain.value
    ...
    ...     def backward(self, dy):
    ...         self.gain.grad[...] = (dy * self.x).sum(axis=0)  # over the batch
    ...         return dy * self.gain.value
    >>> check_layer(Gain(), in_shape=(3,))
    >>> model = Sequential([Gain()], input_shape=(3,))
    >>> model.params["0.gain"].value[...] = [1, 10, 100]
    >>> print(model.predict([[1, 2, 3]]))
    [[  1.  20. 300.]]
    """

    op: Any = None  # an Op, or a tuple of them
    min_batch_size: int = 1  # in training
    macs: int = 0  # multiply-adds of one example's forward, for `summary`; set by build where it is known
    moves_pixels: bool = False  # in training: see `target_op`
    shows_outside: bool = False  # whether it also moves pixels from outside the image into it; set by build
    takes_images: bool = False
    takes_categories: bool = False
    takes_missing: bool = False
    active_range: tuple[float, float] | None = None  # outside, its slope is at most a twentieth of the largest one
    output_kind: str = "scores"  # or "probabilities", or "other"
    ends_model: bool = False  # whether it can only be the last layer of a model, as `Outputs`
    not_saved: str = ""  # why the file of a model cannot hold it; empty: it can
    needs_dx: bool = True
    in_shape: Shape
    out_shape: Shape
    dtype: str
    params: dict[str, Param]
    buffers: dict[str, Array]
    _given: dict[str, Array] | None = None
    _config: dict[str, Any] | None = None
    _settings_version: ClassVar[int] = 0  # changes whenever a setting of a layer is set
    _trainable: bool = True
    _lr_mult: Factors = 1.0
    _decay_mult: Factors = 1.0
    _rng: np.random.Generator | None = None
    _step: int = 0
    _part: int = 0

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        answer_arguments(cls)

    # ---- for a layer to override

    def build(self, in_shape: Shape) -> Shape:
        """Returns the shape of the output for the shape of the input; creates parameters and the op.

        The default returns `in_shape`. A layer overrides it; only the model calls it, through `setup`.

        Parameters
        ----------
        in_shape : tuple of int
            Shape of one example, without the batch axis.

        Returns
        -------
        tuple of int
            Shape of the output, without the batch axis.

        Raises
        ------
        TypeError, ValueError
            If the layer does not accept this input shape, or its arguments.
        """
        return in_shape

    def forward(self, x: Array, training: bool) -> Array:
        """Returns the output for a batch. A layer without an op overrides it.

        It must not write to `x`, and must not change the layer unless `training` is True.

        Parameters
        ----------
        x : array of shape `(n, *in_shape)`
            The batch, in the layer's dtype.
        training : bool
            True in a training step: the layer then keeps what `backward` needs.

        Returns
        -------
        array of shape `(n, *out_shape)`
            The output, in the dtype of `x`; may be a view.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither an op nor forward")

    def backward(self, dy: Array) -> Array:
        """Returns the gradient of the input of the last training forward. A layer without an op overrides it.

        It overwrites the `grad` of every parameter with the sum over the batch, and must not write to `dy`.

        Parameters
        ----------
        dy : array of shape `(n, *out_shape)`
            Gradient of the output of the last training forward.

        Returns
        -------
        array of shape `(n, *in_shape)`
            The gradient of its input, in the dtype of `dy`; may be a view.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither an op nor backward")

    def target_op(self, channels: int, dtype: str, nearest: bool) -> Op:
        """Returns the op that moves targets as this layer's op moves its input. A layer with `moves_pixels` defines it.

        It draws the same random numbers, so that an example's targets stay those of its pixels.

        Parameters
        ----------
        channels : int
            Number of channels of the targets; height and width are those of the input.
        dtype : "float32" or "float64"
            Dtype of the targets.
        nearest : bool
            True for labels: each pixel of the output is that of the nearest pixel, or 0 outside the image. False: as
            the input.

        Returns
        -------
        minidl_c.op.Op
            A new op without parameters.
        """
        raise NotImplementedError(f"{type(self).__name__} moves pixels, but defines no target_op for their targets")

    @property
    def ops(self) -> tuple[Op, ...]:
        """The ops in order, as a tuple; empty for a layer in NumPy."""
        return () if self.op is None else self.op if isinstance(self.op, tuple) else (self.op,)

    @property
    def native(self) -> bool:
        """True if the layer has a kernel."""
        return self.op is not None

    def leaves(self) -> list[Layer]:
        """Returns the layers without children: the layer itself, unless it is a container.

        Returns
        -------
        list of Layer
            The layers, in order.
        """
        return [self]

    # ---- what a user may change between steps

    @property
    def trainable(self) -> bool:
        """Whether steps update the parameters and buffers of this layer; False: frozen.

        A frozen layer with a kernel and parameters or buffers computes as in inference: batch norm uses its running
        statistics. A layer without any, such as Dropout, is not affected. A container has no setting of its own: see
        Container.trainable.
        """
        return self._trainable

    @trainable.setter
    def trainable(self, trainable: bool) -> None:
        self._trainable = check_bool("trainable", trainable)
        Layer._settings_version += 1

    @property
    def lr_mult(self) -> Factors:
        """Multiplier of the learning rate for the parameters of this layer and of all layers in it.

        A number, or a dict from names of the layer's parameters to numbers, such as {"bias": 2}: the factors of the
        others are 1. A container has a number.
        """
        return _read_only(self._lr_mult)

    @lr_mult.setter
    def lr_mult(self, factors: Factors) -> None:
        self._lr_mult = self._checked("lr_mult", factors)
        Layer._settings_version += 1

    @property
    def decay_mult(self) -> Factors:
        """Multiplier of the optimizer's weight decay, as `lr_mult` of the learning rate; 0: no decay."""
        return _read_only(self._decay_mult)

    @decay_mult.setter
    def decay_mult(self, factors: Factors) -> None:
        self._decay_mult = self._checked("decay_mult", factors)
        Layer._settings_version += 1

    def _checked(self, argument: str, factors: Any) -> Factors:
        return check_factors(argument, factors, self.params if self.built else None)

    @staticmethod
    def settings_version() -> int:
        """Returns a number that changes whenever `trainable`, `lr_mult` or `decay_mult` of any layer is set.

        Returns
        -------
        int
            The number of changes so far, in this process.
        """
        return Layer._settings_version

    @property
    def settings(self) -> dict[str, Any]:
        """`trainable`, `lr_mult`, `decay_mult` unless they are the defaults: saved with the constructor's arguments."""
        changed: dict[str, Any] = {} if self._trainable else {"trainable": False}
        factors = {"lr_mult": self._lr_mult, "decay_mult": self._decay_mult}
        return changed | {name: copied(factor) for name, factor in factors.items() if factor != 1}

    def take_settings(self, settings: Mapping[str, Any]) -> None:
        """Replaces the settings by those of another layer.

        Parameters
        ----------
        settings : dict
            What `settings` of the other layer returned. A missing one gets its default.

        Raises
        ------
        TypeError, ValueError
            Without any change, for unknown names, or invalid values.
        """
        self._check_settings(settings)
        self.trainable = settings.get("trainable", True)
        self.lr_mult, self.decay_mult = settings.get("lr_mult", 1.0), settings.get("decay_mult", 1.0)

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        """Raises as `take_settings`, and changes nothing."""
        if unknown := sorted(set(settings) - {"trainable", "lr_mult", "decay_mult"}):
            expected = "expected trainable, lr_mult or decay_mult"
            raise ValueError(f"{type(self).__name__}: {expected}, got {', '.join(unknown)[:100]}")
        check_bool("trainable", settings.get("trainable", True))
        for name in ("lr_mult", "decay_mult"):
            self._checked(name, settings.get(name, 1.0))

    # ---- for a layer to call

    def param(self, name: str, shape: Shape, init: Init, order: tuple[int, ...] | None = None) -> Param:
        """Creates a parameter; call it in `build`.

        Parameters
        ----------
        name : str
            Name of the parameter in the layer; in a model it is "0.weight" for the "weight" of layer 0.
        shape : tuple of int
            Shape of the parameter.
        init : callable
            Function f(rng, shape) that returns the initial value.
        order : tuple of int or None, default None
            Axes in the order of memory, the outermost first, as the op reads them; None: as in the shape.

        Returns
        -------
        Param
            The parameter, with its initial value; also in `params`.

        Raises
        ------
        TypeError
            For a name that is not a string, or an `init` that is not an initializer.
        ValueError
            For a duplicate name, an initial value of another shape or that is not finite, or an order that is no
            permutation.
        RuntimeError
            In the constructor, where shapes are not known.

        Examples
        --------
        >>> from minidl import Layer, Sequential
        >>> from minidl.initializers import zeros
        >>> class Shift(Layer):
        ...     def build(self, in_shape):
        ...         self.shift = self.param("shift", in_shape[:1], zeros)  # one per channel
        ...         return in_shape
        >>> Sequential([Shift()], input_shape=(3, 8, 8)).params
        {'0.shift': Param(shape=(3,), dtype=float32)}
        """
        first = self._first_value("param", name, tuple(shape), init)
        if isinstance(first, Shared):
            assert isinstance(first.value, Param)
            self.params[name] = first.value
            return first.value
        order = tuple(range(len(shape))) if order is None else tuple(order)
        if sorted(order) != list(range(len(shape))):
            raise ValueError(f"param {name!r}: order: expected a permutation of {len(shape)} axes, got {order}")
        value = with_memory_order(np.zeros(first.size, self.dtype), tuple(shape), order)
        if not is_zeros_view(first):  # else the new zeros remain memory that is reserved, but not used
            copy_into(value, first)
        self.params[name] = Param(value)
        return self.params[name]

    def buffer(self, name: str, shape: Shape, init: Init) -> Array:
        """Creates an array of state that is not trained, such as a running mean; call it in `build`.

        A training forward writes into it in place (`self.mean[...] = value`); a new array would not belong to the
        model. Buffers are part of `state_dict`, copies and files.

        Parameters
        ----------
        name : str
            Name of the buffer in the layer; it differs from those of all buffers and parameters.
        shape : tuple of int
            Shape of the buffer.
        init : callable
            Function f(rng, shape) that returns the initial value.

        Returns
        -------
        array
            The buffer, in the layer's dtype; also in `buffers`.

        Raises
        ------
        TypeError, ValueError, RuntimeError
            As `param`.
        """
        first = self._first_value("buffer", name, tuple(shape), init)
        if isinstance(first, Shared):
            assert isinstance(first.value, np.ndarray)
            self.buffers[name] = first.value
            return first.value
        self.buffers[name] = np.array(first, dtype=self.dtype, order="C")
        return self.buffers[name]

    @property
    def rng(self) -> np.random.Generator:
        """A random generator that depends only on seed, path and step; created again for each training forward."""
        if self._rng is None:
            self._rng = self._generator(f"step {self._step}" + (f".{self._part}" if self._part else ""))
        return self._rng

    # ---- for the model to call

    def setup(self, in_shape: Shape, dtype: str, seed: int, path: str, given: dict[str, Array] | None = None) -> Shape:
        """Builds the layer once for its path in a model. Not to be overridden.

        Parameters
        ----------
        in_shape : tuple of int
            Shape of one example.
        dtype : "float32" or "float64"
            Dtype of the layer.
        seed : int
            Seed of initial values and of `rng`.
        path : str
            Place of the layer in the model, such as "0", or "2.body.1" in a container.
        given : dict of str to array, or None, default None
            Initial values of all parameters and buffers, which replace those of the initializers, and are taken out of
            `given`. Then nothing is allocated beyond what it holds; those that are `Shared` are used as they are.

        Returns
        -------
        tuple of int
            Shape of the output.

        Raises
        ------
        TypeError, ValueError
            As `build`; or if its shape, its op or `given` do not fit the layer.
        """
        self.params, self.buffers = {}, {}
        self._given = given
        self.dtype, self._seed, self._path = dtype, seed, path
        self._step, self._rng = 0, None
        self.in_shape = in_shape
        out_shape = self.build(in_shape)
        if self._given:
            raise ValueError(f"expected values of its params and buffers only, got {sorted(self._given)}")
        self._given = None
        if not isinstance(out_shape, (tuple, list)):
            raise TypeError(f"build: expected it to return a shape, got {out_shape!r}")
        out_shape = tuple(check_int("build: sizes of the returned shape", size) for size in out_shape)
        if self.op is not None:
            self._check_ops(out_shape)
            with contextlib.suppress(TypeError):  # without its arguments a layer cannot be saved, but it can be used
                self._config = copy.deepcopy(constructor_arguments(self))
        self.out_shape = out_shape
        for name in ("lr_mult", "decay_mult"):  # of which a class may have its own
            self._checked(name, getattr(self, name))
        return out_shape

    def unbuild(self) -> None:
        """Reverts `setup`: the layer belongs to no model any more, and can be built again."""
        for attribute in ("params", "buffers", "_config"):
            self.__dict__.pop(attribute, None)

    @property
    def built(self) -> bool:
        """True if the layer belongs to a model."""
        return "params" in self.__dict__

    def begin_step(self, step: int, seed: int, part: int = 0) -> None:
        """Sets the training step on which `rng` depends.

        Parameters
        ----------
        step : int
            Number of the step.
        seed : int
            Seed of the run.
        part : int, default 0
            Number of the micro-batch, if several make one step.
        """
        self._step, self._part, self._seed, self._rng = step, part, seed, None

    def config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, from attributes of the same names.

        For a layer with an op, these are the arguments at the time of `build`: the op does not see later changes.

        Returns
        -------
        dict
            The arguments by name.

        Raises
        ------
        TypeError
            If an attribute is missing.

        Examples
        --------
        >>> from minidl.layers import Dropout
        >>> Dropout(0.25).config()
        {'rate': 0.25}
        """
        return constructor_arguments(self) if self._config is None else copy.deepcopy(self._config)

    def __repr__(self) -> str:
        """The constructor's call without the arguments that have their defaults, as in scikit-learn."""
        arguments = (f"{k}={getattr(v, '__name__', repr(v))}" for k, v in self._non_default_arguments().items())
        return f"{type(self).__name__}({', '.join(arguments)})"

    def _non_default_arguments(self) -> dict[str, Any]:
        defaults = parameters(type(self))
        return {k: v for k, v in self.config().items() if repr(v) != repr(defaults[k].default)}

    def _first_value(self, kind: str, name: str, shape: Shape, init: Init) -> Array | Shared:
        """Returns the initial value of a param or buffer: the given one, or that of its initializer."""
        if not self.built:
            raise RuntimeError(f"{kind}: call it in build, where shapes are known, and not in the constructor")
        if not isinstance(name, str):
            raise TypeError(f"{kind}: expected a string as its name, got {name!r}")
        if name in self.params or name in self.buffers:
            raise ValueError(f"{kind} {name!r} already exists")
        if self._given is None:
            source = f"init of {name!r}"
            first = as_array(check_initializer(source, init)(self._generator(name), shape), source)
            if not np.isfinite(first).all():
                raise ValueError(f"{source}: expected finite values, got NaN or infinity")
        elif name in self._given:
            first, source = self._given.pop(name), f"{kind} {name!r}"
        else:
            raise ValueError(f"{kind} {name!r}: expected a value, got none")
        if first.shape != shape:
            raise ValueError(f"{source}: expected shape {shape}, got {first.shape}")
        if isinstance(first, Shared):
            return first
        return first if first.dtype == self.dtype else as_dtype(first, self.dtype, source)

    def _generator(self, name: str) -> np.random.Generator:
        return np.random.default_rng([self._seed, *f"{self._path}/{name}".encode()])

    def _check_ops(self, out_shape: Shape) -> None:
        sizes = [math.prod(self.in_shape)]  # of all values
        for op in self.ops:
            if not isinstance(op, Op):
                raise TypeError(f"op: expected an Op of minidl_c, got {op!r}")
            if op.dtype != self.dtype:
                raise ValueError(f"op: expected one for {self.dtype}, got {op.dtype}: give it self.dtype")
            size = sizes[max(len(sizes) - 1 - op.back, 0)]
            if math.prod(op.in_shape) != size:
                raise ValueError(f"op: takes an input of shape {op.in_shape}, but gets {size} elements")
            sizes.append(math.prod(op.out_shape))
        if sizes[-1] != math.prod(out_shape):
            raise ValueError(f"op: returns shape {self.ops[-1].out_shape}, but the layer returns {out_shape}")
        count, state = sum(p.value.size for p in self.params.values()), sum(b.size for b in self.buffers.values())
        if sum(op.n_param for op in self.ops) != count:
            raise ValueError(f"op: reads {sum(op.n_param for op in self.ops)} parameters, but the layer has {count}")
        if [op.n_state for op in self.ops] != [0] * (len(self.ops) - 1) + [state]:
            raise ValueError(f"op: only the last op must keep the layer's buffers, {state} elements")
        for method in ("forward", "backward"):
            if getattr(type(self), method) is not getattr(Layer, method):
                raise TypeError(f"{method}: never called, because the layer has an op; expected one of the two")


def _read_only(factors: Factors) -> Factors:
    return MappingProxyType(factors) if isinstance(factors, dict) else factors


def factors_of(layer: Layer, setting: str) -> Factors:
    """Returns `lr_mult` or `decay_mult` of a built layer; raises TypeError or ValueError for others of its class."""
    factors: Factors = getattr(layer, setting)
    if getattr(type(layer), setting) is getattr(Layer, setting):
        return factors
    return layer._checked(f"{type(layer).__name__}.{setting}", factors)


def used_rng(layer: Layer) -> bool:
    """True if a layer in NumPy used its random generator in its last training forward."""
    return layer._rng is not None
