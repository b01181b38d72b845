"""Validation of array arguments: every buffer that a function reads or writes is checked here; errors name the argument.

Accepted are NumPy arrays as they lie in memory: numbers of a dtype that kernels know, in this machine's byte order, C-contiguous
and aligned, without a mask or fields, writable if they are outputs. An output shares no memory with any other argument.
"""
from cpython.buffer cimport Py_buffer, PyBuffer_IsContiguous, PyBuffer_Release
from libc.float cimport FLT_MAX
from libc.stdint cimport int64_t, uint8_t, uint64_t
from numpy import asarray, ndarray
from numpy.ma import MaskedArray


cdef extern from *:
    """
    /* Without an exception on the way, which Cython saves in the stable ABI by calls of Python. */
    static int has_buffer(PyObject *array, Py_buffer *view) {
      if (PyObject_GetBuffer(array, view, PyBUF_FORMAT | PyBUF_STRIDES) == 0) return 1;
      PyErr_Clear();
      return 0;
    }
    """
    bint has_buffer(object array, Py_buffer *view)


cdef str kind_of(const Py_buffer *view):
    """Returns the name of a dtype that kernels know, or None; formats of other byte orders and fields have several letters."""
    cdef char code = view.format[0]
    if code == 0 or view.format[1] != 0:
        return None
    if (code == c"l" or code == c"q") and view.itemsize == 8:
        return "int64"
    return "float32" if code == c"f" else "float64" if code == c"d" else "uint8" if code == c"B" else None


cdef str dtype_name(object array):
    """Returns the name of an array's dtype, if kernels know it; None for other objects, too."""
    cdef Py_buffer view
    if not isinstance(array, ndarray) or not has_buffer(array, &view):
        return None
    kind = kind_of(&view)
    PyBuffer_Release(&view)
    return kind


cdef int check_plain(object array, str name) except -1:
    """Raises TypeError for anything that is not an array, and for arrays with a mask or fields."""
    if not isinstance(array, ndarray):
        raise TypeError(f"{name}: expected an array, got {type(array).__name__}")
    if isinstance(array, MaskedArray):
        raise TypeError(f"{name}: expected an array without a mask, got a masked array: fill it first")
    if array.dtype.names is not None:
        raise TypeError(f"{name}: expected plain numbers, got {array.dtype}")
    return 0


cdef class ArrayArgs:
    """The arrays of one call. Until `release`, it holds their buffers: NumPy cannot free or resize them."""

    def __cinit__(self):
        self.names = [None] * MAX_ARRAYS

    def __dealloc__(self):
        self.release()

    cdef void release(self) noexcept:
        """Releases all buffers."""
        while self.n:
            self.n -= 1
            PyBuffer_Release(&self.views[self.n])

    cdef char *acquire(self, object array, str kind, Py_ssize_t rows, Py_ssize_t width, bint write, str name) except? NULL:
        """Returns the address of an array with this dtype and size: `rows` rows of `width` elements.

        kind None: any dtype that kernels know; rows -1, width -1: any number. Raises TypeError or ValueError for other arrays.
        """
        cdef Py_buffer *view = &self.views[self.n]
        cdef Py_ssize_t numbers
        if type(array) is not ndarray:
            check_plain(array, name)
        if self.n == MAX_ARRAYS:
            raise ValueError(f"{name}: expected at most {MAX_ARRAYS} arrays in a call")
        if not has_buffer(array, view):                       # dates have none
            check_plain(array, name)
            raise TypeError(f"{name}: expected {kind or 'real numbers'}, got {array.dtype}")
        self.writes[self.n] = write
        self.names[self.n] = name
        self.n += 1
        self.kind = kind_of(view)
        if self.kind is None:
            check_plain(array, name)
        if view.itemsize and <size_t> view.buf % view.itemsize or not PyBuffer_IsContiguous(view, c"C"):
            raise ValueError(f"{name}: expected an aligned C-contiguous array, got strides {array.strides}")
        if self.kind is None or kind is not None and self.kind != kind:
            raise TypeError(f"{name}: expected {kind or 'uint8, float32 or float64'}, got {array.dtype}")
        if write and view.readonly:
            raise ValueError(f"{name}: expected a writable array, got a read-only one")
        numbers = view.len // view.itemsize
        self.rows = view.shape[0] if view.ndim else -1
        if self.rows < 0 or rows >= 0 and self.rows != rows or width >= 0 and (
                numbers if self.rows == 0 else numbers % self.rows or numbers // self.rows != width):
            raise ValueError(f"{name}: expected {rows if rows >= 0 else 'n'} rows of {width}, got shape {array.shape}")
        return <char *> view.buf

    cdef int check_no_overlap(self) except -1:
        """Raises ValueError if an output shares memory with another argument."""
        return self.check_no_overlap_with(self)

    cdef int check_no_overlap_with(self, ArrayArgs other) except -1:
        """Raises ValueError if an output here shares memory with an argument there."""
        cdef int i, k
        cdef const Py_buffer *a
        cdef const Py_buffer *b
        for i in range(self.n):
            for k in range(other.n if self.writes[i] else 0):
                a, b = &self.views[i], &other.views[k]
                if a != b and <char *> a.buf < <char *> b.buf + b.len and <char *> b.buf < <char *> a.buf + a.len:
                    raise ValueError(f"{self.names[i]}: expected memory of its own, got some that belongs to {other.names[k]}")
        return 0


cdef extern from "minidl_c/simd/finite.h" nogil:
    bint all_finite_f32(const float *x, Py_ssize_t n)
    bint all_finite_f64(const double *x, Py_ssize_t n)
    bint all_within_f64(const double *x, Py_ssize_t n, double limit)


cdef bint holds(const Py_buffer *view, str kind, bint to_float32) noexcept:
    """Whether float32 (else float64) holds all numbers of a contiguous array of this kind as finite ones."""
    cdef Py_ssize_t n = view.len // view.itemsize
    if kind == "float32":
        return all_finite_f32(<const float *> view.buf, n)
    if kind == "float64":
        return all_within_f64(<const double *> view.buf, n, FLT_MAX) if to_float32 else all_finite_f64(<const double *> view.buf, n)
    return True


cdef str take_plain(object x, Py_buffer *view):
    """Takes the buffer of an ndarray that is C-contiguous and aligned, and returns its kind; None, and nothing, for any other object."""
    if type(x) is not ndarray or not has_buffer(x, view):
        return None
    kind = kind_of(view)
    if kind is None or <size_t> view.buf % view.itemsize or not PyBuffer_IsContiguous(view, c"C"):
        PyBuffer_Release(view)
        return None
    return kind


def all_finite(x, str dtype="float64"):
    """Returns whether all numbers of a C-contiguous array of float32 or float64 are finite, also in another dtype.

    Raises TypeError for other arrays.
    """
    cdef ArrayArgs arguments = ArrayArgs()
    arguments.acquire(x, None, -1, -1, False, "x")
    if arguments.kind not in ("float32", "float64"):
        raise TypeError(f"x: expected float32 or float64, got {arguments.kind}")
    return holds(&arguments.views[0], arguments.kind, dtype == "float32")


def is_readable(x, str dtype):
    """Returns whether a plan in this dtype can read x as it is, without another check of its numbers.

    Then x is an ndarray of uint8, float32 or float64, C-contiguous and aligned, and all numbers are finite in the dtype.
    """
    cdef Py_buffer view
    cdef str kind = take_plain(x, &view)
    if kind is None:
        return False
    cdef bint result = kind != "int64" and holds(&view, kind, dtype == "float32")
    PyBuffer_Release(&view)
    return result


def are_labels(x, Py_ssize_t classes):
    """Returns whether x is an ndarray of int64 or uint8, C-contiguous and aligned, of labels from 0 to classes - 1."""
    cdef Py_buffer view
    cdef Py_ssize_t i
    cdef int64_t label
    cdef str kind = take_plain(x, &view)
    if kind is None:
        return False
    cdef bint result = kind == "int64" or kind == "uint8", is_byte = kind == "uint8"
    for i in range(view.len // view.itemsize if result else 0):
        label = (<const uint8_t *> view.buf)[i] if is_byte else (<const int64_t *> view.buf)[i]
        result &= <uint64_t> label < <uint64_t> classes
    PyBuffer_Release(&view)
    return result


cdef list check_arrays(dict inputs, dict outputs):
    """Returns the arrays of a kernel's typed memoryviews, checked as those of a plan; None stays None."""
    cdef ArrayArgs arguments = ArrayArgs()
    found = []
    for name, view in [*inputs.items(), *outputs.items()]:
        if view is not None:
            check_plain(view.base, name)
            view = asarray(view.base)
            arguments.acquire(view, None, -1, -1, name in outputs, name)
        found.append(view)
    arguments.check_no_overlap()
    return found
