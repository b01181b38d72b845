"""What all ops on int8 words share: the checks of their arguments.

An op gets the shapes (c, h, w) of its values, with their channels; its own in_shape and out_shape are those of the words that hold
them (words.h). back: how many values before the last one its input was written, 0: its input is the value of the op before it.
"""
from operator import index

from libc.stdlib cimport calloc
from numpy import ascontiguousarray, ndarray
from numpy.ma import MaskedArray

from minidl_c.op cimport BEFORE, init_op
from minidl_c.op import check_element_count, check_ints

cdef object MAX_BACK = 2**24


cdef int init_words(Op self, tuple in_shape, tuple out_shape, object back, tile_function forward) except -1:
    """Makes an op of words; every constructor calls this first."""
    init_op(self, in_shape, out_shape, "float32")
    self.c.forward_tile, self.c.no_backward, self.c.splits = forward, 1, 1
    self.c.plan.input = BEFORE(check_number("back", back, 0, MAX_BACK))
    return 0


cdef int set_second(Op self, tuple shape, object back) except -1:
    """Sets the second input, of words of a shape."""
    cdef Py_ssize_t size = 1
    for length in shape:
        size *= length
    self.c.branch.skip, self.c.branch.skip_size = BEFORE(check_number("second back", back, 0, MAX_BACK)), size
    return 0


cdef object check_number(str name, object value, object low, object high):
    """Returns a whole number from low to high; raises TypeError or ValueError."""
    try:
        value = index(value)
    except TypeError:
        raise TypeError(f"{name}: expected a whole number, got {value!r}") from None
    if not low <= value <= high:
        raise ValueError(f"{name}: expected a number from {low} to {high}, got {value}")
    return value


cdef object check_integers(str name, object array, str dtype, tuple shape):
    """Returns an array of a dtype and a shape, in which -1 is any length, as int64 in a new array, or raises TypeError or ValueError."""
    if not isinstance(array, ndarray) or isinstance(array, MaskedArray) or array.dtype != dtype:
        got = array.dtype if isinstance(array, ndarray) and not isinstance(array, MaskedArray) else type(array).__name__
        raise TypeError(f"{name}: expected an array of {dtype}, got {got}")
    if array.ndim != len(shape) or any([wanted not in (-1, length) for wanted, length in zip(shape, array.shape)]):
        expected = ", ".join("any" if length < 0 else str(length) for length in shape)
        raise ValueError(f"{name}: expected shape ({expected}), got {array.shape}")
    return ascontiguousarray(array, "float64" if dtype == "float64" else "int64").copy()


cdef tuple check_image(str name, object shape):
    """Returns (c, h, w)."""
    shape = check_ints(name, tuple(shape) if isinstance(shape, list) else shape, 3, 1)
    check_element_count(name, shape)
    return shape


cdef tuple words_of(tuple shape):
    """The shape of the words of (c, h, w)."""
    return (-(-shape[0] // WORD_CHANNELS), *shape[1:])


cdef int set_range(byte_range *r, object zero_point, object low, object high) except -1:
    """Sets what a result is moved by and clipped to, as bytes."""
    r.zero = check_number("zero_point", zero_point, -128, 127) + OFFSET
    r.low, r.high = check_number("low", low, -128, 127) + OFFSET, check_number("high", high, -128, 127) + OFFSET
    if r.low > r.high:
        raise ValueError(f"high: expected at least low, {low}, got {high}")
    return 0


cdef int set_factor(rescaling *r, int channel, byte_range *b, object multiplier, object shift) except -1:
    """Sets the factor multiplier / 2**shift of a channel.

    Beyond `limit`, a result has more than 16 bits, and is clipped anyway; without it, the result of a shift below 31 may exceed 32 bits.
    """
    multiplier, shift = check_number("multiplier", multiplier, 0, 2**31 - 1), check_number("shift", shift, 1, 62)
    r.multiplier[channel], r.shift[channel] = multiplier, shift
    r.add[channel], r.excess[channel] = SHIFT_OFFSET + 2**(shift - 1), (SHIFT_OFFSET >> shift) % 2**32
    r.limit[channel] = 2**31 - 1
    if shift < 31:
        b.has_limits = 1
        r.limit[channel] = min(2**31 - 1, 2**(shift + 16) // max(multiplier, 1) + 1)
    return 0


cdef void *allocate(Py_ssize_t n, size_t size) except NULL:
    """Returns zeroed memory for n items, or raises MemoryError."""
    cdef void *memory = calloc(max(n, 1), size)
    if memory == NULL:
        raise MemoryError()
    return memory
