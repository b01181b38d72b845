"""Gaussian noise: y = x + std * z with z of a standard normal distribution, in training; in inference, y = x. dx = dy.

z depends only on seed, the layer's path, step, the example's index in the data and the element's index in the example. All except
the last form the example's key (`keys_of_examples` in threefry.h):

    threefry(key, j) = the bits a, b of the example's elements 2j and 2j + 1, of which Box and Muller's method makes

    sqrt(-2 log((a + 1/2) / 2**32)) times the cosine, and the sine, of 2 pi b / 2**32

in float64, for either dtype.
"""
from libc.stdint cimport uint32_t, uint64_t

from minidl_c.kernels.identity cimport copy_elements, copy_part
from minidl_c.kernels.path_hash import hash_path
from minidl_c.kernels.threefry cimport keys_of_examples, lane_keys, threefry_lanes
from minidl_c.op cimport LANES, Op, by_dtype, elements_by_dtype, init_op, op, real, split_range, tile_f32, tile_f64, typed_tile

cdef extern from "minidl_c/kernels/noise_tiles.h" nogil:
    void normal_numbers(const uint32_t *bits, double *normal)
    void add_noise(const double *normal, double std, const void *x, void *y, Py_ssize_t n)

ctypedef struct noise_dims:
    uint64_t path                       # hash of the layer's path in the model
    double std


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void noise_tile(
    const lane_keys *keys,              # IN  of each example
    double std,
    const real *x,                      # IN  [size][16]
    real *y,                            # OUT [size][16]; may be x
    Py_ssize_t size,
    Py_ssize_t pair0, Py_ssize_t pair1, # only elements 2 * pair0 to 2 * pair1
) noexcept nogil:
    cdef uint32_t bits[2 * 16]
    cdef double normal[2 * 16]
    cdef Py_ssize_t pair, n, at
    for pair in range(pair0, pair1):
        threefry_lanes(keys, pair, bits)
        normal_numbers(bits, normal)
        n, at = LANES * min(<Py_ssize_t> 2, size - 2 * pair), 2 * LANES * pair
        add_noise(normal, std, x + at, y + at, n)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const noise_dims *d = <const noise_dims *> o.dims
    cdef Py_ssize_t pair0 = 0, pair1 = 0
    cdef lane_keys keys
    if not t.training:
        copy_part(o, t, t.x, t.y)
        return
    keys = keys_of_examples(t.seed, d.path, t.step, t.example_ids, t.examples)
    split_range((o.in_size + 1) // 2, t.part, t.parts, &pair0, &pair1)
    noise_tile(&keys, d.std, t.x, t.y, o.in_size, pair0, pair1)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    if t.dx != NULL:
        copy_part(o, t, t.dy, t.dx)


cdef class NoiseOp(Op):
    """Gaussian noise on any shape, in place where the plan allows it.

    std: its standard deviation, at least 0 and at most a tenth of the dtype's largest number; path: the layer's path in the model.
    Raises ValueError for any other std.
    """

    cdef noise_dims d

    def __cinit__(self, in_shape, double std, path="", dtype="float32"):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        if not 0 <= std <= (3e37 if dtype == "float32" else 1e307):
            raise ValueError(f"std: expected at least 0 and a number that {dtype} can hold ten times, got {std!r}")
        self.d.path, self.d.std = hash_path(path), std
        self.c.draws = self.c.splits = self.c.memory.in_place = 1
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.blocked.elements = elements_by_dtype(&self.c, copy_elements[tile_f32], copy_elements[tile_f64])
        self.c.dims = &self.d
