"""Over thirty kinds of array that a caller may pass; a function must reject each or return the correct result."""

import tempfile

import numpy as np

HUGE = 2**45  # rows, made by broadcasting one: a copy would exceed the address space


class Subclass(np.ndarray):
    """A trivial ndarray subclass."""


def read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


def unaligned(a):
    room = np.zeros(a.nbytes + 1, np.uint8)
    shifted = room[1:].view(a.dtype).reshape(a.shape)
    shifted[...] = a
    return shifted


def memory_map(a):
    with tempfile.NamedTemporaryFile() as file:
        file.write(a.tobytes())
        file.flush()
        return np.memmap(file.name, a.dtype, "c", shape=a.shape)


def with_last_value(value):
    def kind(a):
        a = a.astype(a.dtype if a.dtype.kind == "f" else "f4")
        a[(-1,) * a.ndim] = value
        return a

    return kind


def view_of_freed_parent(a):
    parent = np.concatenate([a, a, a])
    view = parent[len(a) : 2 * len(a)]
    del parent
    return view


KINDS = {
    "None": lambda a: None,
    "read-only": read_only,
    "Fortran order": lambda a: np.asfortranarray(a.copy()),
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "negative stride": lambda a: a[::-1].copy()[::-1],
    "stride 0": lambda a: np.broadcast_to(a[:1], a.shape),
    "byte-swapped": lambda a: a.astype(a.dtype.newbyteorder()),
    "float16": lambda a: a.astype("f2"),
    "other float": lambda a: a.astype("f4" if a.dtype == "f8" else "f8"),
    "long double": lambda a: a.astype("g"),
    "int32": lambda a: a.astype("i4"),
    "bool": lambda a: a.astype("?"),
    "object": lambda a: a.astype(object),
    "complex": lambda a: a.astype("c8"),
    "datetime": lambda a: a.astype("i8").astype("M8[s]"),
    "masked": lambda a: np.ma.masked_array(a.copy(), np.arange(a.size).reshape(a.shape) % 3 == 0),
    "masked array without masked values": lambda a: np.ma.masked_array(a.copy()),
    "structured": lambda a: a.copy().view([("a", a.dtype)]),
    "unaligned": unaligned,
    "memory map": memory_map,
    "no rows": lambda a: a[:0].copy(),
    "no axes": lambda a: a.reshape(-1)[0:1].reshape(()).copy(),
    "one axis fewer": lambda a: a[0].copy(),
    "one axis more": lambda a: a[None].copy(),
    "one row more": lambda a: np.concatenate([a, a[:1]]),
    "list": lambda a: a.tolist(),
    "ragged list": lambda a: [[1.0], [1.0, 2.0]],
    "string": lambda a: "array",
    "array of strings": lambda a: a.astype(str),
    "huge": lambda a: np.broadcast_to(a.astype("u1")[:1], (HUGE, *a.shape[1:])),
    "subclass": lambda a: a.copy().view(Subclass),
    "NaN": with_last_value(np.nan),
    "infinity": with_last_value(np.inf),
    "view of a freed parent": view_of_freed_parent,
}
# These hold no real numbers: no result is correct.
NEVER = (
    "object",
    "complex",
    "datetime",
    "masked",
    "masked array without masked values",
    "structured",
    "string",
    "array of strings",
    "ragged list",
)
# These hold the same numbers: they must work wherever Python code reads an array.
ALWAYS = (
    "read-only", "Fortran order", "strided", "negative stride", "byte-swapped", "unaligned", "memory map", "subclass",
    "view of a freed parent",
)  # fmt: skip


def plain(odd, dtype):
    """Returns the numbers of an odd array as a contiguous array of this dtype, or None if that is impossible."""
    if odd is None or getattr(odd, "size", 0) > 10**6:
        return None
    with np.errstate(all="ignore"):
        return np.array(odd, dtype, order="C", subok=False)


class Lazy:
    """A lazy array that records in `asked` which rows it was asked for, and must not be read as a whole."""

    def __init__(self, array):
        self.array, self.shape, self.dtype, self.asked = array, array.shape, array.dtype, set()

    def __len__(self):
        return len(self.array)

    def __getitem__(self, rows):
        self.asked |= set(np.arange(len(self))[rows].tolist())
        return self.array[rows]

    def __array__(self, dtype=None, copy=None):
        raise AssertionError("read as a whole")
