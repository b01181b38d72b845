"""The layer contract: what a layer writes, and what it finds on itself."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minidl.arguments import constructor_arguments, parameters
from minidl.arrays import as_array, as_dtype
from minidl.shapes import whole
from minidl_c.op import Op

Array = NDArray[Any]
Shape = tuple[int, ...]
Init = Callable[[np.random.Generator, Shape], ArrayLike]


class Param:
    """One tensor of parameters and its gradient, both views of the model's flat buffers.

    `value` and `grad` may be written in place; assigning to them copies. A dense weight lies in memory as its kernel
    reads it, (in, out), and `value` is the transposed view.
    """

    def __init__(self, value: Array) -> None:
        if type(value) is not np.ndarray or value.dtype not in (np.float32, np.float64) or not value.flags.writeable:
            got = f"{type(value).__name__} of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
            raise TypeError(f"value: expected a writable array of float32 or float64, got {got}")
        self._value = value
        self._grad: Array | None = None
        self._grads: Callable[[], Array] | None = None

    @property
    def value(self) -> Array:
        """The parameters; what is written into this array is what the next step uses."""
        return self._value

    @value.setter
    def value(self, value: ArrayLike) -> None:
        self._value[...] = _same_shape("value", value, self._value)

    @property
    def grad(self) -> Array:
        """The gradient, of the shape of `value`: after `backward` a plain sum, after a training step divided."""
        if self._grad is None:
            if self._grads is None:
                self._grad = np.zeros_like(self._value)
            else:
                self._grad = self._grads()
        return self._grad

    @grad.setter
    def grad(self, grad: ArrayLike) -> None:
        self.grad[...] = _same_shape("grad", grad, self._value)

    def move(self, value: Array, grads: Callable[[], Array]) -> None:
        """Makes `value` (of the same shape) the parameters' new home, and `grads()` that of the gradient."""
        value[...] = self._value
        self._value, self._grad, self._grads = value, None, grads

    def __repr__(self) -> str:
        return f"Param(shape={self._value.shape}, dtype={self._value.dtype})"


def _same_shape(name: str, new: ArrayLike, old: Array) -> Array:
    array = as_array(new, name)
    if array.shape != old.shape:
        raise ValueError(f"{name}: expected shape {old.shape}, got {array.shape}")
    return as_dtype(array, old.dtype.name, name)


class Layer:
    """The base of every layer. A layer brings an op (`self.op`), or writes `forward` and `backward` in NumPy.

    Several ops, one behind the other, are a tuple. They read the parameters in the order in which `build` made them;
    the buffers are the last one's.

    Its constructor only stores its arguments, in attributes of the same names. It finds on itself: `dtype` (in build
    and later), `in_shape` and `out_shape` (without the batch axis), `params` (name to Param), `buffers` (name to
    array), `rng` (in a training forward), and `needs_dx`: whether anybody uses what `backward` returns.
    """

    op: Any = None  # an Op, or a tuple of them
    least_examples: int = 1  # in a batch of training
    needs_dx: bool = True
    in_shape: Shape
    out_shape: Shape
    dtype: str
    params: dict[str, Param]
    buffers: dict[str, Array]
    _given: dict[str, Array] | None = None
    _config: dict[str, Any] | None = None
    _rng: np.random.Generator | None = None
    _step: int = 0

    # ---- what a layer writes

    def build(self, in_shape: Shape) -> Shape:
        """Returns the output shape for this input shape, both without the batch axis; creates parameters and the op.

        Raises ValueError if the layer cannot take such an input. The default leaves the shape as it is.
        """
        return in_shape

    def forward(self, x: Array, training: bool) -> Array:
        """Returns y for x, the batch first, in x's dtype. Never writes into x; without `training` changes nothing."""
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
            self._rng = self._generator(f"step {self._step}")
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
        out_shape = tuple(whole("build: a size of the shape it returns", size) for size in out_shape)
        if self.op is not None:
            self._check_ops(out_shape)
            with contextlib.suppress(TypeError):  # one that keeps no arguments cannot be saved, but be used
                self._config = copy.deepcopy(constructor_arguments(self))
        self.out_shape = out_shape
        return out_shape

    def forget(self) -> None:
        """Undoes `setup`."""
        for what in ("params", "buffers", "_config"):
            self.__dict__.pop(what, None)

    @property
    def built(self) -> bool:
        """Whether it belongs to a model."""
        return "params" in self.__dict__

    def begin_step(self, step: int, seed: int) -> None:
        """Tells the layer which training step comes, for `rng`."""
        self._step, self._seed, self._rng = step, seed, None

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, from the attributes of the same names; raises TypeError if one is missing.

        Of a layer with an op, what they were when it was built: the op knows nothing of later changes.
        """
        return constructor_arguments(self) if self._config is None else copy.deepcopy(self._config)

    def __repr__(self) -> str:
        """The constructor's call; arguments that have their default are left out, as in scikit-learn."""
        defaults = parameters(type(self))
        told = (f"{k}={v!r}" for k, v in self.config().items() if repr(v) != repr(defaults[k].default))
        return f"{type(self).__name__}({', '.join(told)})"

    def _first(self, kind: str, name: str, shape: Shape, init: Init) -> Array:
        """The first value of a param or buffer: the given one, or that of its init."""
        if not isinstance(name, str):
            raise TypeError(f"{kind}: expected a string for its name, got {name!r}")
        if name in self.params or name in self.buffers:
            raise ValueError(f"{kind} {name!r} exists already")
        if self._given is None:
            source = f"init of {name!r}"
            first = as_array(init(self._generator(name), shape), source)
        elif name in self._given:
            first, source = self._given.pop(name), f"{kind} {name!r}"
        else:
            raise ValueError(f"{kind} {name!r}: expected a value, got none")
        if first.shape != shape:
            raise ValueError(f"{source}: expected shape {shape}, got {first.shape}")
        return first

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
