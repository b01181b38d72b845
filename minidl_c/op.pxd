"""Op: what a layer brings to a plan. The structs are explained in op.h."""
from libc.stdint cimport int64_t

ctypedef fused real:
    float
    double

cdef extern from "minidl_c/simd/lanes.h" nogil:
    const int LANES
    const int SMALL_BATCH

cdef extern from "minidl_c/op.h" nogil:
    enum:
        READS_X
        READS_Y
        ALIAS_NONE
        ALIAS_X
        ALIAS_SKIP
        REACHES_ALL
        REACHES_CHANNEL
        REACHES_ELEMENT
        BARRIER_FORWARD
        BARRIER_BACKWARD
        REDUCES_FROM_SUMS
        REDUCES_BY_SLOT
    int BEFORE(int values)
    ctypedef struct op
    ctypedef struct tile:
        const void *x
        const void *skip
        void *y
        const void *dy
        const void *dskip
        const void *factor
        void *dx
        void *saved
        void *scratch
        const void *param
        const void *packed
        void *sums
        Py_ssize_t sum_stride
        const int64_t *labels
        const void *targets
        const void *weights
        void *losses
        const int64_t *example_ids
        Py_ssize_t index, examples
        Py_ssize_t part, parts
        int blocked
        Py_ssize_t group0, group1, block0, block1, pixel0, pixel1, read_stride, write_stride
        int64_t seed, step
        int training
    # the same struct with arrays of one dtype, for kernels that are written once for both
    ctypedef struct tile_f32 "tile":
        const float *x
        const float *skip
        float *y
        const float *dy
        const float *dskip
        const float *factor
        float *dx
        float *saved
        float *scratch
        const float *param
        const float *packed
        float *sums
        Py_ssize_t sum_stride
        const int64_t *labels
        const float *targets
        const float *weights
        float *losses
        const int64_t *example_ids
        Py_ssize_t index, examples
        Py_ssize_t part, parts
        int blocked
        Py_ssize_t group0, group1, pixel0, pixel1, read_stride, write_stride
        int64_t seed, step
        int training
    ctypedef struct tile_f64 "tile":
        const double *x
        const double *skip
        double *y
        const double *dy
        const double *dskip
        const double *factor
        double *dx
        double *saved
        double *scratch
        const double *param
        const double *packed
        double *sums
        Py_ssize_t sum_stride
        const int64_t *labels
        const double *targets
        const double *weights
        double *losses
        const int64_t *example_ids
        Py_ssize_t index, examples
        Py_ssize_t part, parts
        int blocked
        Py_ssize_t group0, group1, pixel0, pixel1, read_stride, write_stride
        int64_t seed, step
        int training
    ctypedef struct batch_view:
        const void *x
        const void *dy
        const void *saved
        Py_ssize_t x_tile, dy_tile, saved_tile
        const void *param
        void *packed
        void *grad
        void *scratch
        const Py_ssize_t *starts
        Py_ssize_t tiles, slots, examples
        int blocked, training
    ctypedef struct batch_f32 "batch_view":
        const float *x
        const float *dy
        const float *saved
        Py_ssize_t x_tile, dy_tile, saved_tile
        const float *param
        void *packed
        float *grad
        float *scratch
        const Py_ssize_t *starts
        Py_ssize_t tiles, slots, examples
        int blocked, training
    ctypedef struct batch_f64 "batch_view":
        const double *x
        const double *dy
        const double *saved
        Py_ssize_t x_tile, dy_tile, saved_tile
        const double *param
        void *packed
        double *grad
        double *scratch
        const Py_ssize_t *starts
        Py_ssize_t tiles, slots, examples
        int blocked, training
    ctypedef void (*tile_function)(const op *, const tile *) noexcept nogil
    ctypedef void (*elements_function)(const op *, const tile *, Py_ssize_t, Py_ssize_t) noexcept nogil
    ctypedef void (*reduce_function)(const op *, const batch_view *, Py_ssize_t, Py_ssize_t) noexcept nogil
    ctypedef void (*partial_function)(const op *, const batch_view *, Py_ssize_t, Py_ssize_t, void *) noexcept nogil
    ctypedef void (*gradient_function)(const op *, const tile *, Py_ssize_t, Py_ssize_t, Py_ssize_t, void *) noexcept nogil
    ctypedef void (*squares_function)(const op *, const tile *, Py_ssize_t, Py_ssize_t, double *) noexcept nogil
    ctypedef void (*update_state_function)(const op *, const batch_view *, void *) noexcept nogil
    ctypedef void (*prepare_function)(const op *, const void *, void *, int, Py_ssize_t, Py_ssize_t) noexcept nogil
    ctypedef void (*prepare_dx_function)(const op *, const void *, void *, Py_ssize_t, Py_ssize_t) noexcept nogil
    ctypedef struct op_memory:
        Py_ssize_t saved, scratch, packed, packed_dx, packed_kept
        prepare_function prepare
        prepare_dx_function prepare_dx
        int shares_packed, in_place, y_alias, dx_alias
    ctypedef struct op_reduce:
        Py_ssize_t n_sums, n_items, item_block, partial_bytes
        int sums_lanes, inputs, barrier
        reduce_function forward, backward
        partial_function partial
        void (*combine)(const op *, const void *, const void *, void *) noexcept nogil
        update_state_function update_state
    ctypedef struct op_per_example:
        gradient_function gradient
        squares_function squares
    ctypedef struct op_blocked:
        elements_function elements, backward_elements
        tile_function forward, backward
        reduce_function gradient
        Py_ssize_t saved, scratch, gradient_scratch
        int reach, splits_rows, splits_rows_back, takes_flat, joint
    ctypedef struct op_fusion:
        int is_relu
        tile_function forward_tile, backward_tile
    ctypedef struct op_branch:
        int skip, dskip, factor
        Py_ssize_t skip_size, dskip_size, factor_size
    ctypedef struct op_loss:
        int is_loss, ignores_label
        Py_ssize_t n_target, n_labels, classes
        int64_t ignored_label
    ctypedef struct op_plan:
        int input, output, frozen
        Py_ssize_t param, sums
    ctypedef struct op:
        size_t size
        int real_bytes, reads, splits, no_backward, draws
        Py_ssize_t in_size, out_size, in_channels, out_channels, in_rows, out_rows, work, n_param, n_state
        tile_function forward_tile, backward_tile
        const void *dims
        op_memory memory
        op_reduce reduce
        op_per_example per_example
        op_blocked blocked
        op_fusion fusion
        op_branch branch
        op_loss loss
        op_plan plan

    # A function with fused arguments is compiled for both dtypes; an op gets the one of its dtype.
    tile_function by_dtype(
        const op *,
        void (*)(const op *, const tile_f32 *) noexcept nogil,
        void (*)(const op *, const tile_f64 *) noexcept nogil)
    elements_function elements_by_dtype "by_dtype"(
        const op *,
        void (*)(const op *, const tile_f32 *, Py_ssize_t, Py_ssize_t) noexcept nogil,
        void (*)(const op *, const tile_f64 *, Py_ssize_t, Py_ssize_t) noexcept nogil)
    reduce_function reduce_by_dtype "by_dtype"(
        const op *,
        void (*)(const op *, const batch_f32 *, Py_ssize_t, Py_ssize_t) noexcept nogil,
        void (*)(const op *, const batch_f64 *, Py_ssize_t, Py_ssize_t) noexcept nogil)
    partial_function partial_by_dtype "by_dtype"(
        const op *,
        void (*)(const op *, const batch_f32 *, Py_ssize_t, Py_ssize_t, void *) noexcept nogil,
        void (*)(const op *, const batch_f64 *, Py_ssize_t, Py_ssize_t, void *) noexcept nogil)
    gradient_function gradient_by_dtype "by_dtype"(
        const op *,
        void (*)(const op *, const tile_f32 *, Py_ssize_t, Py_ssize_t, Py_ssize_t, void *) noexcept nogil,
        void (*)(const op *, const tile_f64 *, Py_ssize_t, Py_ssize_t, Py_ssize_t, void *) noexcept nogil)
    squares_function squares_by_dtype "by_dtype"(
        const op *,
        void (*)(const op *, const tile_f32 *, Py_ssize_t, Py_ssize_t, double *) noexcept nogil,
        void (*)(const op *, const tile_f64 *, Py_ssize_t, Py_ssize_t, double *) noexcept nogil)
    update_state_function update_state_by_dtype(
        const op *,
        void (*)(const op *, const batch_view *, float *) noexcept nogil,
        void (*)(const op *, const batch_view *, double *) noexcept nogil)
    prepare_dx_function prepare_dx_by_dtype(
        const op *,
        void (*)(const op *, const float *, void *, Py_ssize_t, Py_ssize_t) noexcept nogil,
        void (*)(const op *, const double *, void *, Py_ssize_t, Py_ssize_t) noexcept nogil)
    prepare_function prepare_by_dtype(
        const op *,
        void (*)(const op *, const float *, void *, int, Py_ssize_t, Py_ssize_t) noexcept nogil,
        void (*)(const op *, const double *, void *, int, Py_ssize_t, Py_ssize_t) noexcept nogil)


ctypedef fused typed_tile:
    tile_f32
    tile_f64

ctypedef fused typed_batch:
    batch_f32
    batch_f64


cdef class Op:
    cdef op c
    cdef readonly tuple in_shape, out_shape
    cdef readonly object weight_order   # the axes of the first parameter in the order of memory; None: as in its shape
    cdef int check_shapes(self, tuple in_shape, tuple out_shape, object dtype) except -1
    cdef int check(self, str name, int real_bytes) except -1


cdef inline str dtype_of(int real_bytes):
    return "float32" if real_bytes == 4 else "float64"


cdef inline int init_op(Op self, tuple in_shape, tuple out_shape, object dtype) except -1:
    """Sets an op's shapes (without the batch axis) and dtype; every op's constructor calls this first, and only once."""
    self.check_shapes(in_shape, out_shape, dtype)
    self.c.size = sizeof(op)             # as the calling module was compiled: a plan refuses any other size
    return 0


cdef inline real *offset(const real *array, Py_ssize_t n) noexcept nogil:
    """Returns array + n, or NULL if there is no array. In C, the arrays of a tile have no type: t.x + n would count bytes."""
    return <real *> array + n if array != NULL else NULL


cdef inline bint has_per_example_grad(const op *o) noexcept nogil:
    """Whether a tile gives the gradient of each example: as lanes of its sums, or from the op's own functions."""
    cdef bint in_lanes = o.reduce.backward == NULL and o.reduce.forward == NULL and o.reduce.n_sums == o.n_param
    return o.reduce.n_items > 0 and (in_lanes or o.per_example.gradient != NULL)


cdef inline bint is_distributable(const op *o) noexcept nogil:
    """Whether the partial results of slots are all that an op's reduction reads of the batch."""
    cdef bint from_sums = o.reduce.n_sums > 0 and o.reduce.inputs & REDUCES_FROM_SUMS
    if o.reduce.forward != NULL and o.reduce.partial == NULL and not from_sums:
        return False
    if o.reduce.backward == NULL:
        return True
    return from_sums if o.reduce.n_sums and o.reduce.forward == NULL else o.reduce.inputs & REDUCES_BY_SLOT


cdef inline void split_range(Py_ssize_t n, Py_ssize_t part, Py_ssize_t parts, Py_ssize_t *start, Py_ssize_t *end) noexcept nogil:
    """Sets start..end to part `part` of `parts` nearly equal ranges of 0..n."""
    start[0] = n * part // parts
    end[0] = n * (part + 1) // parts


cdef inline Py_ssize_t blocks_of(Py_ssize_t channels) noexcept nogil:
    """The number of blocks of 16 channels."""
    return (channels + LANES - 1) // LANES


cdef inline Py_ssize_t target_bytes(const op *o) noexcept nogil:
    """Returns the bytes of a tile of a loss's targets, numbers or labels."""
    return max(o.loss.n_target * o.real_bytes, o.loss.n_labels * <Py_ssize_t> sizeof(int64_t)) * LANES


cdef inline char *aligned(void *memory) noexcept nogil:
    """The first address in `memory` that is a multiple of 64, as of all arrays of a tile; it may skip up to 63 bytes."""
    return <char *> ((<size_t> memory + 63) // 64 * 64)
