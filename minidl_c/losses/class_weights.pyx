"""Weights of the classes, or of the channels, of a loss."""
from math import isinf

from libc.stdlib cimport malloc


cdef double *class_weights_of(str name, object weights, Py_ssize_t classes, str dtype) except? NULL:
    """Returns the weights of classes as an array, which the caller frees; NULL: none.

    Raises ValueError unless there is a number for each, at least 0 and finite in the dtype.
    """
    cdef double *out
    cdef Py_ssize_t k
    if weights is None:
        return NULL
    numbers = tuple([float(weight) for weight in weights])
    if len(numbers) != classes:
        raise ValueError(f"{name}: expected {classes} numbers, one for each channel of the outputs, got {len(numbers)}")
    for number in numbers:
        held = number if dtype == "float64" else <double> <float> number
        if not 0 <= held or isinf(held):
            raise ValueError(f"{name}: expected numbers of at least 0 that {dtype} can hold, got {number!r}")
    out = <double *> malloc(classes * sizeof(double))
    if out == NULL:
        raise MemoryError()
    for k in range(classes):
        out[k] = numbers[k]
    return out
