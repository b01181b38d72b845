"""The exponential moving average of flat parameters, as torch.Tensor.lerp_ computes it:

    mean = mean + rate * (values - mean)

A rate of 1 copies the values, and one of 0 changes nothing: with all their bits.
"""
from libc.string cimport memcpy

from minidl_c.array_args cimport ArrayArgs
from minidl_c.op cimport real

cdef extern from "minidl_c/simd/lanes.h" nogil:
    unsigned flush_subnormals()
    void restore_subnormals(unsigned before)


cdef void move(
    real *mean,                         # IN, OUT
    const real *values,                 # IN
    Py_ssize_t size, double rate,
) noexcept nogil:
    cdef real t = <real> rate
    cdef Py_ssize_t i
    for i in range(size):
        mean[i] = mean[i] + t * (values[i] - mean[i])


def average(mean, values, double rate):
    """Moves a flat array `mean`, IN and OUT, by a rate from 0 to 1 towards `values`, IN, of the same size and dtype.

    Raises TypeError or ValueError for other arrays, and for another rate.
    """
    cdef ArrayArgs arguments = ArrayArgs()
    cdef char *m = arguments.acquire(mean, None, -1, 1, True, "mean")
    cdef Py_ssize_t size = arguments.rows
    cdef str kind = arguments.kind
    cdef char *v = arguments.acquire(values, kind, size, 1, False, "values")
    if kind not in ("float32", "float64"):
        raise TypeError(f"mean: expected float32 or float64, got {kind}")
    if not 0 <= rate <= 1:
        raise ValueError(f"rate: expected a number from 0 to 1, got {rate}")
    arguments.check_no_overlap()
    cdef int real_bytes = 4 if kind == "float32" else 8
    cdef unsigned before
    with nogil:
        if rate == 1:
            memcpy(m, v, size * real_bytes)
        elif rate > 0:
            before = flush_subnormals()
            if real_bytes == 4:
                move[float](<float *> m, <const float *> v, size, rate)
            else:
                move[double](<double *> m, <const double *> v, size, rate)
            restore_subnormals(before)
