"""The product of two values of as many channels. See product.pyx."""
from minidl_c.op cimport op, tile

ctypedef struct factors:                # of y = a b + plus
    const void *a
    const void *b
    const void *plus                    # or NULL
    void *y
    Py_ssize_t channels                 # 1 if a, b and y have one shape: then all elements count as pixels of one channel
    Py_ssize_t a_pixels, b_pixels, y_pixels     # of a channel

cdef factors factors_of(Py_ssize_t channels, const void *a, Py_ssize_t a_size, const void *b, Py_ssize_t b_size, const void *plus,
                        void *y, Py_ssize_t y_size) noexcept nogil
cdef void product_tile(const op *o, const tile *t, const factors *f) noexcept nogil
cdef void product_blocked(const op *o, const tile *t, const factors *f) noexcept nogil
cdef void product_elements(const op *o, const factors *f, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil
