"""Softmax cross-entropy, from logits and labels or probabilities, at each position of an example.

    q[k] = w[k] ((1 - smoothing) t[k] + smoothing / classes), with t[k] = (1 if k == label else 0) for a label
    loss = share log(sum over k of exp(x[k] - max)) - sum over k of q[k] (x[k] - max), with share = sum over k of q[k]
    dx[k] = weight * (share softmax(x)[k] - q[k])

w[k] is the weight of a class. For a label without weights, share is 1. The loss of an example is the mean over its positions,
without those of the ignored label; dx has the same divisor, which is their number and not the sum of their weights. If all are
ignored, loss and dx are 0.

Subtracting the maximum prevents overflow (Blanchard, Higham and Higham, "Accurately computing the log-sum-exp and softmax
functions", 2021). Label smoothing: Szegedy et al., "Rethinking the Inception Architecture", 2016. Forward writes dx without the
weight to y, so the targets are gathered only once.
"""
from libc.stdint cimport int64_t
from libc.stdlib cimport free

from minidl_c.losses.class_weights cimport class_weights_of
from minidl_c.op cimport LANES, READS_Y, Op, by_dtype, init_op, op, real, tile_f32, tile_f64, typed_tile

cdef extern from "minidl_c/losses/softmax_cross_entropy_tiles.h" nogil:
    void softmax_cross_entropy_rows(const void *x, const int64_t *labels, const void *t, const double *class_weights,
                                    Py_ssize_t classes, Py_ssize_t positions, double smoothing, int64_t ignored, void *e, void *slope,
                                    void *loss)

cdef extern from "minidl_c/losses/weigh_rows_tiles.h" nogil:
    void weigh_rows(const void *slope, const void *weights, Py_ssize_t size, void *dx)

ctypedef struct softmax_cross_entropy_dims:
    Py_ssize_t classes, positions
    double smoothing
    int64_t ignored                     # -1: none
    double *class_weights               # [classes], or NULL: ones


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void softmax_cross_entropy_forward_tile(
    const softmax_cross_entropy_dims *d,
    const real *x,                      # IN  [classes][positions][16]
    const int64_t *labels,              # IN  [positions][16], or NULL
    const real *targets,                # IN  [classes][positions][16], without labels
    real *exponentials,                 # OUT [classes][16] memory for one position
    real *slope,                        # OUT [classes][positions][16]; may be x
    real *losses,                       # OUT [16]
) noexcept nogil:
    softmax_cross_entropy_rows(x, labels, targets, d.class_weights, d.classes, d.positions, <real> d.smoothing, d.ignored,
                               exponentials, slope, losses)


cdef void softmax_cross_entropy_backward_tile(
    const real *slope,                  # IN  [size][16]
    const real *weights,                # IN  [16], 0 in lanes without an example
    Py_ssize_t size,
    real *dx,                           # OUT [size][16]
) noexcept nogil:
    weigh_rows(slope, weights, size, dx)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const softmax_cross_entropy_dims *d = <const softmax_cross_entropy_dims *> o.dims
    softmax_cross_entropy_forward_tile(d, t.x, t.labels, t.targets, t.scratch, t.y, t.losses)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    softmax_cross_entropy_backward_tile(t.y, t.weights, o.in_size, t.dx)


cdef class SoftmaxCrossEntropyOp(Op):
    """The loss of logits (classes, *positions). A plan's last op: its value is the slope.

    Targets are labels (n, *positions), int64 or uint8, or numbers (n, classes, *positions). ignored_label: one that counts
    nothing; None: none. weight: a number for each class; None: ones. Raises ValueError for a label_smoothing outside [0, 1], and
    for weights that are negative or not finite in the dtype.
    """

    cdef softmax_cross_entropy_dims d

    def __cinit__(self, in_shape, double label_smoothing=0.0, dtype="float32", ignored_label=None, weight=None):
        cdef softmax_cross_entropy_dims *d = &self.d
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        d.classes = self.in_shape[0]
        d.positions = self.c.in_size // d.classes
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"label_smoothing: expected a number in [0, 1], got {label_smoothing!r}")
        d.smoothing = label_smoothing
        d.ignored = -1 if ignored_label is None else ignored_label
        d.class_weights = class_weights_of("weight", weight, d.classes, dtype)
        self.c.work = 20 * self.c.in_size                     # an exponential is about 20 multiply-adds
        self.c.loss.n_target, self.c.loss.n_labels, self.c.loss.classes = self.c.in_size, d.positions, d.classes
        self.c.loss.ignores_label, self.c.loss.ignored_label = ignored_label is not None, d.ignored
        self.c.memory.scratch = d.classes * LANES * self.c.real_bytes
        self.c.reads, self.c.memory.in_place, self.c.loss.is_loss = READS_Y, 1, 1
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.dims = d

    def __dealloc__(self):
        free(self.d.class_weights)
