"""The layer contract: what a layer writes, and what it finds on itself."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minidl.initializers import Init, checked
from minidl.layers.param import Param
from minidl.utils.arguments import constructor_arguments, parameters
from minidl.utils.arrays import Array, as_array, as_dtype
from minidl.utils.validation import Shape, check_bool, check_int, check_non_negative
from minidl_c.op import Op


class Layer:
    """The base of every layer. A layer brings an op (`self.op`), or writes `forward` and `backward` in NumPy.

    Several ops, one behind the other, are a tuple. They read the parameters in the order in which `build` made them;
    the buffers are the last one's.

    Its constructor only stores its arguments, in attributes of the same names. It finds on itself: `dtype` (in build
    and later), `in_shape` and `out_shape` (without the batch axis), `params` (name to Param), `buffers` (name to
    array), `rng` (in a training forward), and `needs_dx`: whether anybody uses what `backward` returns.

    A batch may have any number of examples, also none: `predict` of an empty array gives one.
    """

    op: Any = None  # an Op, or a tuple of them
    min_batch_size: int = 1  # in a batch of training
    macs: int = 0  # multiply-adds of one example's forward, for `summary`: a build that knows sets it
    needs_dx: bool = True
    in_shape: Shape
    out_shape: Shape
    dtype: str
    params: dict[str, Param]
    buffers: dict[str, Array]
    _given: dict[str, Array] | None = None
    _config: dict[str, Any] | None = None
    _trainable: bool = True
    _lr_factor: float = 1.0
    _rng: np.random.Generator | None = None
    _step: int = 0
    _part: int = 0

    # ---- what a layer writes

    def build(self, in_shape: Shape) -> Shape:
        """Returns the output shape for this input shape, both without the batch axis; creates parameters and the op.

        Raises ValueError if the layer cannot take such an input. The default leaves the shape as it is.
        """
        return in_shape

    def forward(self, x: Array, training: bool) -> Array:
        """Returns y for x, the batch first, in x's dtype; views will do.

        Never writes into x; without `training` changes nothing.
        """
        raise NotImplementedError(f"{type(self).__name__} has neither an op nor a forward")

    def backward(self, dy: Array) -> Array:
        """Returns dx, in dy's dtype, for the gradient dy of the last training forward's y. Overwrites every grad."""
        raise NotImplementedError(f"{type(self).__name__} has neither an op nor a backward")

    @property
    def ops(self) -> tuple[Op, ...]:
        """The op, or all of them; none for a layer in NumPy."""
        return () if self.op is None else self.op if isinstance(self.op, tuple) else (self.op,)

    @property
    def native(self) -> bool:
        """Whether it has a kernel."""
        return self.op is not None

    def leaves(self) -> list[Layer]:
        """The layers that it is made of: itself, if it is no container."""
        return [self]

    # ---- what a user may change between two steps

    @property
    def trainable(self) -> bool:
        """Whether steps change its parameters and buffers, and those of all layers in it; else it is frozen.

        A frozen layer with a kernel and parameters or buffers computes as in inference: batch norm with its running
        statistics. One without any, such as Dropout, goes on.
        """
        return self._trainable

    @trainable.setter
    def trainable(self, trainable: bool) -> None:
        self._trainable = check_bool("trainable", trainable)

    @property
    def lr_mult(self) -> float:
        """What the learning rate is multiplied by for its parameters, and those of all layers in it."""
        return self._lr_factor

    @lr_mult.setter
    def lr_mult(self, factor: float) -> None:
        self._lr_factor = check_non_negative("lr_mult", factor, "float32")

    @property
    def settings(self) -> dict[str, Any]:
        """What copies and files keep of it beside the constructor's arguments: those of the two that were changed."""
        changed: dict[str, Any] = {} if self._trainable else {"trainable": False}
        return changed if self._lr_factor == 1 else {**changed, "lr_mult": self._lr_factor}

    def take_settings(self, settings: Mapping[str, Any]) -> None:
        """Those of another layer, instead of its own; raises TypeError or ValueError for what no layer has."""
        if unknown := sorted(set(settings) - {"trainable", "lr_mult"}):
            raise ValueError(f"{type(self).__name__}: expected trainable or lr_mult, got {', '.join(unknown)[:100]}")
        self.trainable, self.lr_mult = settings.get("trainable", True), settings.get("lr_mult", 1.0)

    # ---- what a layer uses

    def param(self, name: str, shape: Shape, init: Init, order: str = "C") -> Param:
        """Creates a parameter, in `build`. init(rng, shape) gives its first value.

        order "F" lays it out transposed in memory. Raises ValueError for a name that exists, or an init of another
        shape.
        """
        first = self._first("param", name, tuple(shape), init)
        self.params[name] = Param(np.array(first, dtype=self.dtype, order="F" if order == "F" else "C"))
        return self.params[name]

    def buffer(self, name: str, shape: Shape, init: Init) -> Array:
        """Creates, in `build`, an array that belongs to the model's state but is not trained: a running mean, say.

        A training forward writes into it in place (`self.mean[...] = `); a new array would not be the model's. It is
        part of `state_dict`, of copies and of files. Raises ValueError as `param`; the two share their names.
        """
        self.buffers[name] = np.array(self._first("buffer", name, tuple(shape), init), dtype=self.dtype, order="C")
        return self.buffers[name]

    @property
    def rng(self) -> np.random.Generator:
        """Random numbers that depend on seed, place and step alone; made anew in each training forward."""
        if self._rng is None:
            self._rng = self._generator(f"step {self._step}" + (f".{self._part}" if self._part else ""))
        return self._rng

    # ---- what the model calls

    def setup(
        self, in_shape: Shape, dtype: str, seed: int, path: str, given: Mapping[str, Array] | None = None
    ) -> Shape:
        """Builds the layer once for its place in a model; not to be overridden.

        given: the values of all parameters and buffers, where they are not to be made by their init. Then nothing is
        allocated that `given` does not hold.
        """
        self.params, self.buffers = {}, {}
        self._given = None if given is None else dict(given)
        self.dtype, self._seed, self._path = dtype, seed, path
        self._step, self._rng = 0, None
        self.in_shape = in_shape
        out_shape = self.build(in_shape)
        if self._given:
            raise ValueError(f"expected no values but those of its params and buffers, got {sorted(self._given)}")
        self._given = None
        if not isinstance(out_shape, (tuple, list)):
            raise TypeError(f"build: expected it to return a shape, got {out_shape!r}")
        out_shape = tuple(check_int("build: a size of the shape it returns", size) for size in out_shape)
        if self.op is not None:
            self._check_ops(out_shape)
            with contextlib.suppress(TypeError):  # one that keeps no arguments cannot be saved, but be used
                self._config = copy.deepcopy(constructor_arguments(self))
        self.out_shape = out_shape
        return out_shape

    def unbuild(self) -> None:
        """Undoes `setup`."""
        for what in ("params", "buffers", "_config"):
            self.__dict__.pop(what, None)

    @property
    def built(self) -> bool:
        """Whether it belongs to a model."""
        return "params" in self.__dict__

    def begin_step(self, step: int, seed: int, part: int = 0) -> None:
        """Tells the layer which training step comes, and which of its micro-batches, for `rng`."""
        self._step, self._part, self._seed, self._rng = step, part, seed, None

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, from the attributes of the same names; raises TypeError if one is missing.

        Of a layer with an op, what they were when it was built: the op knows nothing of later changes.
        """
        return constructor_arguments(self) if self._config is None else copy.deepcopy(self._config)

    def __repr__(self) -> str:
        """The constructor's call; arguments that have their default are left out, as in scikit-learn."""
        told = (f"{k}={getattr(v, '__name__', repr(v))}" for k, v in self._told().items())
        return f"{type(self).__name__}({', '.join(told)})"

    def _told(self) -> dict[str, Any]:
        """The constructor's arguments that do not have their default."""
        defaults = parameters(type(self))
        return {k: v for k, v in self.config().items() if repr(v) != repr(defaults[k].default)}

    def _first(self, kind: str, name: str, shape: Shape, init: Init) -> Array:
        """The first value of a param or buffer: the given one, or that of its init."""
        if not self.built:
            raise RuntimeError(f"{kind}: call it in build, where shapes are known, and not in the constructor")
        if not isinstance(name, str):
            raise TypeError(f"{kind}: expected a string for its name, got {name!r}")
        if name in self.params or name in self.buffers:
            raise ValueError(f"{kind} {name!r} exists already")
        if self._given is None:
            source = f"init of {name!r}"
            first = as_array(checked(source, init)(self._generator(name), shape), source)
            if not np.isfinite(first).all():
                raise ValueError(f"{source}: expected finite numbers, got NaN or infinity")
        elif name in self._given:
            first, source = self._given.pop(name), f"{kind} {name!r}"
        else:
            raise ValueError(f"{kind} {name!r}: expected a value, got none")
        if first.shape != shape:
            raise ValueError(f"{source}: expected shape {shape}, got {first.shape}")
        return as_dtype(first, self.dtype, source)

    def _generator(self, name: str) -> np.random.Generator:
        return np.random.default_rng([self._seed, *f"{self._path}/{name}".encode()])

    def _check_ops(self, out_shape: Shape) -> None:
        size = math.prod(self.in_shape)
        for op in self.ops:
            if not isinstance(op, Op):
                raise TypeError(f"op: expected an Op of minidl_c, got {op!r}")
            if op.dtype != self.dtype:
                raise ValueError(f"op: expected one for {self.dtype}, got {op.dtype}: give it self.dtype")
            if math.prod(op.in_shape) != size:
                raise ValueError(f"the op takes {op.in_shape}, in front of it are {size} numbers")
            size = math.prod(op.out_shape)
        if size != math.prod(out_shape):
            raise ValueError(f"the op gives {self.ops[-1].out_shape}, the layer {out_shape}")
        count, state = sum(p.value.size for p in self.params.values()), sum(b.size for b in self.buffers.values())
        if sum(op.n_param for op in self.ops) != count:
            raise ValueError(f"the op reads {sum(op.n_param for op in self.ops)} parameters, the layer has {count}")
        if [op.n_state for op in self.ops] != [0] * (len(self.ops) - 1) + [state]:
            raise ValueError(f"the last op, and no other, has to keep the layer's buffers: {state} numbers")
        for method in ("forward", "backward"):
            if getattr(type(self), method) is not getattr(Layer, method):
                raise TypeError(f"{method} would never be called: the layer brings an op; expected one of the two")


def drew(layer: Layer) -> bool:
    """Whether a layer in NumPy took random numbers in its last training forward."""
    return layer._rng is not None
