"""Sizes: what a model of images of any size keeps: for each size met last, a model with the same weights."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, TypeVar

from minidl.utils.errors import InputError
from minidl.utils.validation import Shape, check_int

FreeShape = tuple[int | None, ...]  # of an example, with None for a size that may be any
Model = TypeVar("Model")
KEPT = 8  # sizes; building the layers of another one takes milliseconds
KEPT_PIXELS = 2**22  # of all of them together: the memory of a prediction stays with its plan
MOST_PIXELS = 2**24  # of an example, by default
FIRST = (64, 32, 128, 256, 512)  # heights and widths that a model is built with, of which the first that fits is taken


def check_free_shape(name: str, value: Any) -> FreeShape:
    """Returns the shape of one example, in which sizes after the channels may be None: any size.

    Raises TypeError or ValueError for anything else.
    """
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"{name}: expected a tuple such as (1, 28, 28), got {value!r}")
    if not value:
        raise ValueError(f"{name}: expected at least one size, got ()")
    if None in value and (len(value) not in (2, 3) or value[0] is None):
        expected = "expected None only for height and width, (3, None, None), or for the length of a signal, (3, None)"
        raise ValueError(f"{name}: {expected}, got {tuple(value)}")
    return tuple(None if size is None else check_int(name, size) for size in value)


class Sizes(Generic[Model]):
    """The models of single sizes, each made when it is first asked for, under a lock; the ones used last are kept.

    declared: the shape of one example, with None for any size. make: returns the model of a shape.
    """

    def __init__(self, declared: FreeShape, make: Callable[[Shape], Model]) -> None:
        self.declared, self._make = declared, make
        self.first = FIRST[0]  # the height and width that the layers were built with
        self.output_shape: Any = None  # as of a model, with None for sizes that depend on the input's
        self._made: OrderedDict[Shape, Model] = OrderedDict()
        self._lock = Lock()

    def try_first(self, build: Callable[[Shape], None]) -> None:
        """Calls `build` with shapes until it succeeds; raises its first ValueError if it never does."""
        refused: ValueError | None = None
        for self.first in FIRST:
            try:
                return build(self.with_size(self.first))
            except ValueError as error:
                refused = refused or error
        assert refused is not None
        raise refused

    def first_two(self) -> tuple[Model, Model]:
        """Returns the models of the size that the layers were built with, and of twice that."""
        return self.at(self.with_size(self.first)), self.at(self.with_size(2 * self.first))

    def take_outputs(self, one: Any, other: Any) -> None:
        """Takes the output shapes of models of two sizes: what differs depends on the size."""
        if isinstance(one, dict):
            self.output_shape = {name: common(one[name], other[name]) for name in one}
        else:
            self.output_shape = common(one, other)

    def with_size(self, size: int) -> Shape:
        """Returns the declared shape with this height and width."""
        return tuple(size if one is None else one for one in self.declared)

    def check(self, shape: Any, max_pixels: int) -> Shape:
        """Returns a shape of this kind; raises TypeError or InputError for another one, or for more pixels."""
        if not isinstance(shape, (tuple, list)):
            raise TypeError(f"input_shape: expected a tuple such as (1, 28, 28), got {shape!r}")
        shape = tuple(check_int("input_shape", size, minimum=0) for size in shape)
        sizes = zip(self.declared, shape, strict=False)
        if len(shape) != len(self.declared) or any(one not in (None, size) for one, size in sizes):
            expected = ", ".join("any size" if one is None else str(one) for one in self.declared)
            got = f"(n{''.join(f', {size}' for size in shape)})"
            raise InputError(f"X: expected shape (n, {expected}), got {got}{self._hint(shape)}")
        if 0 in shape:
            raise InputError(f"X: expected images of at least one pixel, got {'x'.join(map(str, shape[1:]))}")
        if math.prod(shape[1:]) > max_pixels:
            got = f"got {'x'.join(map(str, shape[1:]))}"
            raise InputError(f"X: expected at most {max_pixels} pixels, the max_pixels of the model, {got}")
        return shape

    def _hint(self, shape: Shape) -> str:
        """Returns the remedy for a common mistake in the shape of examples, or an empty string."""
        if len(shape) == len(self.declared) and shape[-1] == self.declared[0]:
            return ": channels come first, np.moveaxis(X, -1, 1)"
        if len(shape) == len(self.declared) - 1:
            grey = "X[:, np.newaxis] if there is one; " if self.declared[0] == 1 else ""
            return f": examples have channels, {grey}a single example is X[np.newaxis]"
        return ""

    def at(self, shape: Shape) -> Model:
        """Returns the model of a shape; raises InputError if its layers cannot be built for it."""
        with self._lock:
            if shape not in self._made:
                try:
                    self._made[shape] = self._make(shape)
                except ValueError as error:
                    size = "x".join(map(str, shape[1:]))
                    hint = "a net that halves sizes k times may need multiples of 2**k: pad, or crop"
                    raise InputError(f"images of {size} do not fit: {error}; {hint}") from error
            self._made.move_to_end(shape)
            while len(self._made) > 1 and (len(self._made) > KEPT or self._pixels() > KEPT_PIXELS):
                self._made.popitem(last=False)
            return self._made[shape]

    def _pixels(self) -> int:
        return sum(math.prod(shape[1:]) for shape in self._made)


def common(one: Shape, other: Shape) -> FreeShape:
    """Returns a shape with None where two shapes differ."""
    return tuple(a if a == b else None for a, b in zip(one, other, strict=True))
