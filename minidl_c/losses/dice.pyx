"""Dice loss, from logits and labels or probabilities, over the positions of an example.

    D[k] = (2 sum p[k] t[k] + smooth) / (sum p[k] + sum t[k] + smooth), over the positions that count
    loss = mean over k of (1 - D[k])
    dx = weight * p[k] (g[k] - sum over j of g[j] p[j]), with g[k] = (D[k] - 2 t[k]) / (classes (sum p[k] + sum t[k] + smooth))

p = softmax(x), and t[k] = (1 if k == label else 0) for a label. A single channel has p = sigmoid(x) and the target of label 1; then
dx = weight * p (1 - p) g. Positions of the ignored label count nothing; D of two empty sums is 1.

Milletari, Navab and Ahmadi, "V-Net", 2016, arXiv:1606.04797, with sums instead of sums of squares. Forward writes dx without the
weight to y.
"""
from libc.math cimport isfinite
from libc.stdint cimport int64_t

from minidl_c.op cimport LANES, READS_Y, Op, by_dtype, init_op, op, real, tile_f32, tile_f64, typed_tile

cdef extern from "minidl_c/losses/dice_tiles.h" nogil:
    void dice_rows(const void *x, const int64_t *labels, const void *t, Py_ssize_t channels, Py_ssize_t positions, double smooth,
                   int64_t ignored, void *sums, void *slope, void *loss)

cdef extern from "minidl_c/losses/weigh_rows_tiles.h" nogil:
    void weigh_rows(const void *slope, const void *weights, Py_ssize_t size, void *dx)

ctypedef struct dice_dims:
    Py_ssize_t channels, positions
    double smooth
    int64_t ignored                     # -1: none


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void dice_forward_tile(
    const dice_dims *d,
    const real *x,                      # IN  [channels][positions][16]
    const int64_t *labels,              # IN  [positions][16], or NULL
    const real *targets,                # IN  [channels][positions][16], without labels
    real *sums,                         # OUT [2][channels][16] memory for D, and for 1 / (sum p + sum t + smooth)
    real *slope,                        # OUT [channels][positions][16]; may be x
    real *losses,                       # OUT [16]
) noexcept nogil:
    dice_rows(x, labels, targets, d.channels, d.positions, d.smooth, d.ignored, sums, slope, losses)


cdef void dice_backward_tile(
    const real *slope,                  # IN  [size][16]
    const real *weights,                # IN  [16], 0 in lanes without an example
    Py_ssize_t size,
    real *dx,                           # OUT [size][16]
) noexcept nogil:
    weigh_rows(slope, weights, size, dx)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    dice_forward_tile(<const dice_dims *> o.dims, t.x, t.labels, t.targets, t.scratch, t.y, t.losses)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    dice_backward_tile(t.y, t.weights, o.in_size, t.dx)


cdef class DiceOp(Op):
    """The Dice loss of logits (channels, *positions). A plan's last op: its value is the slope.

    Targets are labels (n, *positions), int64 or uint8, or numbers (n, channels, *positions). ignored_label: one that counts
    nothing; None: none. Raises ValueError unless smooth is a finite number of at least 0.
    """

    cdef dice_dims d

    def __cinit__(self, in_shape, double smooth=1.0, dtype="float32", ignored_label=None):
        cdef dice_dims *d = &self.d
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        if not 0 <= smooth or not isfinite(smooth):
            raise ValueError(f"smooth: expected a finite number of at least 0, got {smooth!r}")
        d.channels, d.smooth = self.in_shape[0], smooth
        d.positions = self.c.in_size // d.channels
        d.ignored = -1 if ignored_label is None else ignored_label
        self.c.work = 25 * self.c.in_size                     # an exponential is about 20 multiply-adds
        self.c.loss.n_target, self.c.loss.n_labels, self.c.loss.classes = self.c.in_size, d.positions, max(2, d.channels)
        self.c.loss.ignores_label, self.c.loss.ignored_label = ignored_label is not None, d.ignored
        self.c.memory.scratch = 2 * d.channels * LANES * self.c.real_bytes
        self.c.reads, self.c.memory.in_place, self.c.loss.is_loss = READS_Y, 1, 1
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.dims = d
