"""Softmax cross-entropy, from logits and integer labels.

    q[k] = (1 - smoothing) (1 if k == label else 0) + smoothing / classes
    loss = log(sum over k of exp(x[k] - max)) - sum over k of q[k] (x[k] - max)
    dx[k] = weight * (softmax(x)[k] - q[k])

Subtracting the maximum prevents overflow (Blanchard, Higham and Higham, "Accurately computing the log-sum-exp and softmax
functions", 2021). Label smoothing: Szegedy et al., "Rethinking the Inception Architecture", 2016.
"""
from libc.stdint cimport int64_t

from minidl_c.op cimport LANES, READS_Y, Op, init_op, op, real, tile

cdef extern from "minidl_c/kernels/softmax_tiles.h" nogil:
    void softmax_rows(const void *x, Py_ssize_t classes, Py_ssize_t stride, const int64_t *labels, double smoothing, void *p,
                      void *loss)
    void softmax_loss_gradient(const void *p, Py_ssize_t classes, const int64_t *labels, double own, double other,
                               const void *weights, void *dx)

ctypedef struct softmax_cross_entropy_dims:
    Py_ssize_t classes
    double smoothing


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void softmax_cross_entropy_forward_tile(
    const softmax_cross_entropy_dims *d,
    const real *x,                      # IN  [classes][16]
    const int64_t *labels,              # IN  [16]
    real *p,                            # OUT [classes][16] the probabilities; may be x
    real *losses,                       # OUT [16]
) noexcept nogil:
    softmax_rows(x, d.classes, LANES, labels, <real> d.smoothing, p, losses)


cdef void softmax_cross_entropy_backward_tile(
    const softmax_cross_entropy_dims *d,
    const real *p,                      # IN  [classes][16]
    const int64_t *labels,              # IN  [16]
    const real *weights,                # IN  [16], 0 in lanes without an example
    real *dx,                           # OUT [classes][16]
) noexcept nogil:
    cdef double other = d.smoothing / d.classes, own = 1 - d.smoothing + other
    softmax_loss_gradient(p, d.classes, labels, <real> own, <real> other, weights, dx)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const tile *t) noexcept nogil:
    cdef const softmax_cross_entropy_dims *d = <const softmax_cross_entropy_dims *> o.dims
    if o.real_bytes == 4:
        softmax_cross_entropy_forward_tile(d, <const float *> t.x, t.labels, <float *> t.y, <float *> t.losses)
    else:
        softmax_cross_entropy_forward_tile(d, <const double *> t.x, t.labels, <double *> t.y, <double *> t.losses)


cdef void backward(const op *o, const tile *t) noexcept nogil:
    cdef const softmax_cross_entropy_dims *d = <const softmax_cross_entropy_dims *> o.dims
    if o.real_bytes == 4:
        softmax_cross_entropy_backward_tile(d, <const float *> t.y, t.labels, <const float *> t.weights, <float *> t.dx)
    else:
        softmax_cross_entropy_backward_tile(d, <const double *> t.y, t.labels, <const double *> t.weights, <double *> t.dx)


cdef class SoftmaxCrossEntropyOp(Op):
    """The loss of logits (classes,). A plan's last op: its value is the probabilities.

    Raises ValueError for a label_smoothing outside [0, 1].
    """

    cdef softmax_cross_entropy_dims d

    def __cinit__(self, in_shape, double label_smoothing=0.0, dtype="float32"):
        cdef softmax_cross_entropy_dims *d = &self.d
        d.classes, = in_shape
        init_op(self, (d.classes,), (d.classes,), dtype)
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"label_smoothing: expected a number in [0, 1], got {label_smoothing!r}")
        d.smoothing = label_smoothing
        self.c.work = 20 * d.classes                          # an exponential is about 20 multiply-adds
        self.c.reads, self.c.memory.in_place, self.c.loss.is_loss = READS_Y, 1, 1
        self.c.forward_tile, self.c.backward_tile = forward, backward
        self.c.dims = d
