"""Softmax cross-entropy, from logits and integer labels.

    loss = log(sum over k of exp(x[k] - max)) - (x[label] - max)
    dx[k] = weight * (softmax(x)[k] - (1 if k == label else 0))

Subtracting the maximum keeps it finite for logits of any size (Blanchard, Higham and Higham, "Accurately computing the
log-sum-exp and softmax functions", 2021).
"""
from libc.stdint cimport int64_t
from numpy import empty

from minidl_c.buffers cimport arrays
from minidl_c.op cimport LANES, READS_Y, Op, aligned, describe, op, real, tile
from minidl_c.threads cimport threads_for

cdef extern from "softmax_tiles.h" nogil:
    void softmax_rows_f32(const float *, Py_ssize_t, Py_ssize_t, const int64_t *, float *, float *)
    void softmax_rows_f64(const double *, Py_ssize_t, Py_ssize_t, const int64_t *, double *, double *)

cdef extern from "team.h" nogil:
    ctypedef void (*team_work)(void *, Py_ssize_t, Py_ssize_t, Py_ssize_t, int) noexcept nogil
    void team_run(team_work work, void *job, Py_ssize_t rounds, const Py_ssize_t *items, Py_ssize_t phases, int threads)


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void softmax_cross_entropy_forward_tile(
    const real *x,                      # IN  [classes][16]
    Py_ssize_t classes,
    const int64_t *labels,              # IN  [16]
    real *p,                            # OUT [classes][16] the probabilities; may be x
    real *losses,                       # OUT [16]
) noexcept nogil:
    if real is float:
        softmax_rows_f32(x, classes, LANES, labels, p, losses)
    else:
        softmax_rows_f64(x, classes, LANES, labels, p, losses)


cdef void softmax_cross_entropy_backward_tile(
    const real *p,                      # IN  [classes][16]
    Py_ssize_t classes,
    const int64_t *labels,              # IN  [16]
    const real *weights,                # IN  [16], 0 in lanes without an example
    real *dx,                           # OUT [classes][16]
) noexcept nogil:
    cdef Py_ssize_t k, lane
    for k in range(classes):
        for lane in range(LANES):
            dx[k * LANES + lane] = weights[lane] * (p[k * LANES + lane] - (1 if labels[lane] == k else 0))


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const tile *t) noexcept nogil:
    if o.real_bytes == 4:
        softmax_cross_entropy_forward_tile(<const float *> t.x, o.in_size, t.labels, <float *> t.y, <float *> t.losses)
    else:
        softmax_cross_entropy_forward_tile(<const double *> t.x, o.in_size, t.labels, <double *> t.y, <double *> t.losses)


cdef void backward(const op *o, const tile *t) noexcept nogil:
    if o.real_bytes == 4:
        softmax_cross_entropy_backward_tile(<const float *> t.y, o.in_size, t.labels, <const float *> t.weights,
                                            <float *> t.dx)
    else:
        softmax_cross_entropy_backward_tile(<const double *> t.y, o.in_size, t.labels, <const double *> t.weights,
                                            <double *> t.dx)


cdef class SoftmaxCrossEntropyOp(Op):
    """The loss of scores (classes,). A plan's last op: its value is the probabilities."""

    def __cinit__(self, in_shape, dtype="float32"):
        classes, = in_shape
        describe(self, (classes,), (classes,), dtype)
        self.c.reads, self.c.in_place, self.c.is_loss = READS_Y, 1, 1
        self.c.forward_tile, self.c.backward_tile = forward, backward


# ---- the batch: check, then run the tiles in parallel ----------------------------------------------------------------------

cdef int check_labels(const int64_t[::1] labels, Py_ssize_t n, Py_ssize_t classes) except -1:
    cdef Py_ssize_t i
    if labels.shape[0] != n:
        raise ValueError(f"labels: expected {n}, one for each row of scores, got {labels.shape[0]}")
    for i in range(n):
        if labels[i] < 0 or labels[i] >= classes:
            raise ValueError(f"labels: expected numbers from 0 to {classes - 1}, got {labels[i]} at position {i}")
    return 0


ctypedef struct batch:                  # what the threads work on: rows of arrays that may be NULL
    int real_bytes, gradient
    Py_ssize_t n, classes, room_bytes
    const void *scores
    const int64_t *labels
    const void *weights
    void *losses
    void *out                           # the probabilities, or the gradient
    char *room                          # one tile and two rows for each thread


cdef void run_tile(const batch *j, const real *scores, const real *weights, real *losses, real *out, Py_ssize_t t,
                   real *p) noexcept nogil:
    """Rows 16 t .. 16 t + 15, by way of the tile p."""
    cdef Py_ssize_t first = t * LANES, live = min(<Py_ssize_t> LANES, j.n - first), k, lane
    cdef real *loss = p + j.classes * LANES
    cdef real *weight = loss + LANES
    cdef int64_t labels[16]
    for lane in range(LANES):
        labels[lane] = j.labels[first + lane] if j.labels != NULL and lane < live else 0
        weight[lane] = 0 if lane >= live else 1 if weights == NULL else weights[first + lane]
        for k in range(j.classes):
            p[k * LANES + lane] = scores[(first + lane) * j.classes + k] if lane < live else 0
    softmax_cross_entropy_forward_tile(<const real *> p, j.classes, labels, p, loss)
    if j.gradient:
        softmax_cross_entropy_backward_tile(<const real *> p, j.classes, labels, <const real *> weight, p)
    for lane in range(live):
        if losses != NULL:
            losses[first + lane] = loss[lane]
        if out != NULL:
            for k in range(j.classes):
                out[(first + lane) * j.classes + k] = p[k * LANES + lane]


cdef void work(void *job, Py_ssize_t round, Py_ssize_t phase, Py_ssize_t item, int thread) noexcept nogil:
    cdef const batch *j = <const batch *> job
    cdef char *room = aligned(j.room + thread * j.room_bytes)
    if j.real_bytes == 4:
        run_tile(j, <const float *> j.scores, <const float *> j.weights, <float *> j.losses, <float *> j.out,
                 item, <float *> room)
    else:
        run_tile(j, <const double *> j.scores, <const double *> j.weights, <double *> j.losses, <double *> j.out,
                 item, <double *> room)


cdef int run(const real[:, ::1] scores, const int64_t[::1] labels, const real[::1] weights, real[::1] losses,
             real[:, ::1] out, int gradient, object num_threads) except -1:
    """Softmax of every row; then its loss, its probabilities or its gradient."""
    cdef batch j
    cdef Py_ssize_t tiles = (scores.shape[0] + LANES - 1) // LANES
    cdef int threads = threads_for(num_threads, 20 * tiles * LANES * scores.shape[1], 1)       # an exp is about 20 of them
    if scores.shape[0] == 0 or scores.shape[1] == 0:
        return 0
    j.real_bytes, j.gradient, j.n, j.classes = sizeof(real), gradient, scores.shape[0], scores.shape[1]
    j.scores, j.labels = &scores[0, 0], &labels[0] if labels is not None else NULL
    j.weights, j.losses = &weights[0] if weights is not None else NULL, &losses[0] if losses is not None else NULL
    j.out = &out[0, 0] if out is not None else NULL
    threads = <int> min(<Py_ssize_t> threads, tiles)
    j.room_bytes = (j.classes + 2) * LANES * sizeof(real) + 64
    cdef unsigned char[::1] room = empty(threads * j.room_bytes, "uint8")
    j.room = <char *> &room[0]
    with nogil:
        team_run(work, &j, 1, &tiles, 1, threads)
    return 0


def _check_out(name, shape, expected):
    if shape != expected:
        raise ValueError(f"softmax cross-entropy: {name}: expected shape {expected}, got {shape}")


def softmax_cross_entropy_forward(
    const real[:, ::1] scores not None,        # IN  (n, classes)
    const int64_t[::1] labels not None,        # IN  (n,)
    real[::1] losses not None,                 # OUT (n,)
    num_threads=1,
):
    """losses = the cross-entropy of every row. Raises ValueError for labels outside the classes or shapes that differ."""
    scores_, _, losses_ = arrays({"scores": scores, "labels": labels}, {"losses": losses})
    check_labels(labels, scores.shape[0], scores.shape[1])
    _check_out("losses", losses_.shape, scores_.shape[:1])
    run[real](scores, labels, None, losses, None, False, num_threads)


def softmax_cross_entropy_backward(
    const real[:, ::1] scores not None,        # IN  (n, classes)
    const int64_t[::1] labels not None,        # IN  (n,)
    const real[::1] weights,                   # IN  (n,), or None for ones
    real[:, ::1] dscores not None,             # OUT (n, classes)
    num_threads=1,
):
    """dscores = row i the gradient of weight_i * loss_i. Raises as softmax_cross_entropy_forward."""
    scores_, _, weights_, dscores_ = arrays({"scores": scores, "labels": labels, "weights": weights}, {"dscores": dscores})
    check_labels(labels, scores.shape[0], scores.shape[1])
    _check_out("dscores", dscores_.shape, scores_.shape)
    if weights is not None:
        _check_out("weights", weights_.shape, scores_.shape[:1])
    run[real](scores, labels, weights, None, dscores, True, num_threads)


def softmax(
    const real[:, ::1] scores not None,        # IN  (n, classes)
    real[:, ::1] probabilities not None,       # OUT (n, classes)
    num_threads=1,
):
    """probabilities = softmax of every row. Raises ValueError if the shapes differ."""
    scores_, probabilities_ = arrays({"scores": scores}, {"probabilities": probabilities})
    _check_out("probabilities", probabilities_.shape, scores_.shape)
    run[real](scores, None, None, None, probabilities, False, num_threads)
