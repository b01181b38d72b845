"""Op: what a layer brings to a plan. The structs are explained in op.h."""
from libc.stdint cimport int64_t

ctypedef fused real:
    float
    double

cdef extern from "minidl_c/simd/lanes.h" nogil:
    const int LANES
    const int FEW

cdef extern from "minidl_c/op.h" nogil:
    enum:
        READS_X
        READS_Y
        SUMS_ARE_ENOUGH
        ADDS_BY_SLOTS
        NEW
        THE_FIRST
        THE_SECOND
        CUT_FORWARD
        CUT_BACKWARD
    ctypedef struct op
    ctypedef struct tile:
        const void *x
        const void *skip
        void *y
        const void *dy
        const void *dskip
        void *dx
        void *saved
        void *scratch
        const void *param
        const void *packed
        void *sums
        Py_ssize_t apart
        const int64_t *labels
        const void *targets
        const void *weights
        void *losses
        const int64_t *rows
        Py_ssize_t index, examples
        Py_ssize_t part, parts
        int64_t seed, step
        int training
    ctypedef struct whole:
        const void *x
        const void *dy
        const void *saved
        Py_ssize_t x_tile, dy_tile, saved_tile
        const void *param
        void *packed
        void *grad
        const Py_ssize_t *starts
        Py_ssize_t tiles, slots, examples
        int training
    ctypedef struct op:
        size_t size
        int real_bytes
        void (*prepare)(const op *, const void *, void *) noexcept nogil
        void (*forward_tile)(const op *, const tile *) noexcept nogil
        void (*backward_tile)(const op *, const tile *) noexcept nogil
        void (*relu_forward_tile)(const op *, const tile *) noexcept nogil
        void (*relu_backward_tile)(const op *, const tile *) noexcept nogil
        void (*forward_rows)(const op *, const whole *, Py_ssize_t, Py_ssize_t) noexcept nogil
        void (*slot_rows)(const op *, const whole *, Py_ssize_t, Py_ssize_t, void *) noexcept nogil
        void (*join_rows)(const op *, const void *, const void *, void *) noexcept nogil
        void (*backward_rows)(const op *, const whole *, Py_ssize_t, Py_ssize_t) noexcept nogil
        void (*example_gradient)(const op *, const tile *, Py_ssize_t, Py_ssize_t, Py_ssize_t, void *) noexcept nogil
        void (*example_squares)(const op *, const tile *, Py_ssize_t, Py_ssize_t, double *) noexcept nogil
        void (*end_step)(const op *, const whole *, void *) noexcept nogil
        int cut, splits, in_place, y_is, dx_is, is_relu, is_loss, reads, frozen, shares_packed
        double rate
        int64_t late
        Py_ssize_t in_size, out_size
        int input "in"
        int skip
        int output "out"
        int dskip
        Py_ssize_t skip_size, dskip_size, n_target
        Py_ssize_t param, n_param, n_state, lane, n_lane
        int sums_lanes
        Py_ssize_t rows, summary
        Py_ssize_t saved, scratch, packed, work
        const void *dims


cdef class Op:
    cdef op c
    cdef readonly tuple in_shape, out_shape
    cdef int check_shapes(self, tuple in_shape, tuple out_shape, object dtype) except -1
    cdef int check(self, str name, int real_bytes) except -1


cdef inline str dtype_of(int real_bytes):
    return "float32" if real_bytes == 4 else "float64"


cdef inline int describe(Op self, tuple in_shape, tuple out_shape, object dtype) except -1:
    """Sets an op's shapes (without the batch axis) and dtype; every op's constructor calls this first, and but once."""
    self.check_shapes(in_shape, out_shape, dtype)
    self.c.size = sizeof(op)             # as the calling module was compiled: a plan refuses any other size
    return 0


cdef inline bint tells_examples(const op *o) noexcept nogil:
    """Whether an op with parameters tells what each example of a tile adds to their gradient: in its lanes, or by itself."""
    return o.rows > 0 and (o.example_gradient != NULL
                           or o.backward_rows == NULL and o.forward_rows == NULL and o.n_lane == o.n_param)


cdef inline void share(Py_ssize_t n, Py_ssize_t part, Py_ssize_t parts, Py_ssize_t *start, Py_ssize_t *end) noexcept nogil:
    """start..end: part `part` of `parts` of n things."""
    start[0] = n * part // parts
    end[0] = n * (part + 1) // parts


cdef inline char *aligned(void *room) noexcept nogil:
    """The first address in `room` where a tile may begin; leave 64 bytes for it. All arrays an op sees begin on such."""
    return <char *> ((<size_t> room + 63) // 64 * 64)
