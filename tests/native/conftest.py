"""Fixture `check`: guarded arrays, comparisons that name the geometry, and invalid calls."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

MARGIN = 67  # guard elements on each side of an array; odd, so that no row is aligned to a vector
GUARD = -12345.0
FOREIGN = ("f8", "f4", "f2", "i8", "i4", "u2", "c8", "O")  # dtypes that no single argument may have


@dataclass(frozen=True)
class Call:
    """A valid call of a kernel, whose arguments are then invalidated one at a time."""

    kernel: Callable
    arguments: dict
    outputs: tuple

    @property
    def arrays(self):
        names, arguments = self.arguments, self.arguments.values()
        return [n for n, a in zip(names, arguments, strict=True) if isinstance(a, np.ndarray)]

    def __str__(self):
        return self.kernel.__name__


def describe(changes):
    """Returns the arguments in one line; for an array its dtype, shape, strides and writability."""
    parts = []
    for name, value in changes.items():
        if isinstance(value, np.ndarray):
            lock = "" if value.flags.writeable else " read-only"
            value = f"{value.dtype.str} {value.shape} strides {value.strides}{lock}"
        parts.append(f"{name}={str(value)[:80]}")
    return ", ".join(parts)


class Check:
    """Allocates arrays for kernels and checks what the kernels did with them."""

    def __init__(self, compared):
        self.compared = compared

    def call(self, kernel, outputs, /, **arguments):
        """Returns a valid call, its outputs filled with sevens so that a write is noticed."""
        for name in outputs:
            arguments[name][...] = 7
        return Call(kernel, arguments, outputs)

    def input(self, values, dtype):
        """Returns a read-only copy of `values` between NaNs: an out-of-bounds read corrupts the result."""
        outside = np.nan if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).max
        buffer = np.full(values.size + 2 * MARGIN, outside, dtype)
        array = buffer[MARGIN : MARGIN + values.size].reshape(values.shape)
        array[...] = values
        array.flags.writeable = False
        return array

    def output(self, shape, dtype):
        """Returns an array of NaN, which a kernel must overwrite, between guard elements, which it must not."""
        buffer = np.full(int(np.prod(shape)) + 2 * MARGIN, GUARD, dtype)
        array = buffer[MARGIN : buffer.size - MARGIN].reshape(shape)
        array[...] = np.nan
        return array

    def close(self, got, expected, bound, what):
        """Checks |got - expected| <= bound elementwise, NaN where expected, and intact guard elements."""
        __tracebackhide__ = True
        self._comparable(got, expected, what)
        with np.errstate(invalid="ignore"):
            near = np.abs(got - expected) <= bound
        good = near | (got == expected) | (np.isnan(got) & np.isnan(expected))
        if not good.all():
            first = tuple(int(i) for i in np.argwhere(~good)[0])
            allowed = np.broadcast_to(bound, got.shape)[first]
            pytest.fail(
                f"{what}: {np.sum(~good)} of {got.size} entries differ, first at {first}: "
                f"got {got[first]!r}, expected {expected[first]!r}, allowed +-{allowed:.3g}"
            )

    def equal(self, got, expected, what):
        """Checks for equal values, with NaN at the same positions."""
        __tracebackhide__ = True
        self.close(got, expected, 0, what)

    def same_bits(self, got, expected, what):
        """Checks for equal bytes, including signs of zeros and payloads of NaNs."""
        __tracebackhide__ = True
        self._comparable(got, expected, what)
        if got.tobytes() != np.asarray(expected).tobytes():
            differ = got != expected
            pytest.fail(f"{what}: {np.sum(differ)} of {got.size} entries differ in their bits")

    def _comparable(self, got, expected, what):
        __tracebackhide__ = True
        if got.base is not None and got.base.size == got.size + 2 * MARGIN:
            margins = np.concatenate([got.base[:MARGIN], got.base[-MARGIN:]])
            assert (margins == GUARD).all(), f"{what}: written outside the array"
        assert got.shape == expected.shape, f"{what}: {got.shape} against {expected.shape}"

    def refused(self, call, changes, match=None):
        """Checks that the call with `changes` raises ValueError or TypeError and leaves its outputs unchanged."""
        __tracebackhide__ = True
        arguments = call.arguments | changes
        arrays = {name: arguments[name] for name in call.outputs}
        before = {name: np.copy(array) for name, array in arrays.items()}
        try:
            call.kernel(**arguments)
        except (ValueError, TypeError, OverflowError) as error:
            message = str(error)
        else:
            pytest.fail(f"{call} took {describe(changes)}")
        if match and not re.search(match, message):
            pytest.fail(f"{call} with {describe(changes)}: no {match!r} in the error: {message}")
        for name, array in arrays.items():
            if not np.array_equal(array, before[name]):
                pytest.fail(f"{call} refused {describe(changes)} but wrote into {name}")

    def refuses_invalid_shapes(self, call, name):
        """Checks that wrong axis lengths and numbers of axes are refused by an error that names an array."""
        __tracebackhide__ = True
        array, arrays = call.arguments[name], "|".join(call.arrays)
        for axis, length in enumerate(array.shape):
            for size in {0, length - 1, length + 1}:
                shape = (*array.shape[:axis], size, *array.shape[axis + 1 :])
                named = rf"\b({arrays})\b" if size else None
                self.refused(call, {name: np.ones(shape, array.dtype)}, match=named)
        for wrong in (array[None], np.array(array[0]), np.empty((0,) * (array.ndim + 1))):
            self.refused(call, {name: wrong.astype(array.dtype)})

    def refuses_invalid_arrays(self, call, name, optional=False, dtypes=FOREIGN):
        """Checks that other dtypes, byte orders and layouts, lists, None and read-only outputs are refused."""
        __tracebackhide__ = True
        array = call.arguments[name]
        wrong = [np.ones(array.shape, dtype) for dtype in dtypes if np.dtype(dtype) != array.dtype]
        wrong += [np.repeat(array, 2, axis=-1)[..., ::2], array.tolist()]
        if array.itemsize > 1:
            wrong.append(array.astype(array.dtype.newbyteorder()))
        if array.ndim > 1:
            wrong.append(np.asfortranarray(array))
        if not optional:
            wrong.append(None)
        if name in call.outputs:
            wrong.append(array.copy())
            wrong[-1].flags.writeable = False
        for value in wrong:
            self.refused(call, {name: value})

    def count(self, operation, dtype):
        """Counts one compared geometry of the operation in this dtype."""
        self.compared[operation, np.dtype(dtype).name] += 1


@pytest.fixture(scope="session")
def check(compared):
    return Check(compared)
