"""What all ops on int8 words share: their structs in C, and the checks of their arguments."""
from libc.stdint cimport int32_t, int64_t, uint32_t

from minidl_c.op cimport Op, tile_function

cdef extern from "minidl_c/integer/words.h" nogil:
    const int WORD_CHANNELS, OFFSET
    const int64_t SHIFT_OFFSET
    ctypedef struct rescaling:
        int64_t multiplier[4]
        int64_t add[4]
        int64_t shift[4]
        int32_t limit[4]
        uint32_t excess[4]
    ctypedef struct byte_range:
        int zero, low, high, has_limits

cdef int init_words(Op self, tuple in_shape, tuple out_shape, object back, tile_function forward) except -1
cdef int set_second(Op self, tuple shape, object back) except -1
cdef int set_range(byte_range *r, object zero_point, object low, object high) except -1
cdef int set_factor(rescaling *r, int channel, byte_range *b, object multiplier, object shift) except -1
cdef tuple words_of(tuple shape)
cdef tuple check_image(str name, object shape)
cdef object check_number(str name, object value, object low, object high)
cdef object check_integers(str name, object array, str dtype, tuple shape)
cdef void *allocate(Py_ssize_t n, size_t size) except NULL
