"""A counter-based random number generator. See threefry.h."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from "minidl_c/simd/threefry.h" nogil:
    ctypedef struct lane_keys:
        pass
    lane_keys keys_of_examples(uint64_t seed, uint64_t path, uint64_t step, const int64_t *example_ids,
                               Py_ssize_t examples)
    void threefry_lanes(const lane_keys *keys, uint64_t counter, uint32_t *bits)
