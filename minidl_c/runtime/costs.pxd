"""What the ops of a plan cost, by which calls choose a schedule. See costs.pyx."""
from minidl_c.op cimport op

cdef enum:
    MAX_PARTS = 16                      # of a tile

ctypedef struct costs:                  # of a plan's ops, in multiply-adds
    Py_ssize_t n_flat                   # elements of the flat buffer, at least
    bint trains                         # the plan ends in a loss
    double work                         # of one example's forward, about
    double tile, example                # of a tile, and of an example in the blocked layout
    double rest                         # of a step that has examples in both layouts, whatever their number
    Py_ssize_t limit                    # blocked_limit; 0: the ops do not fit the blocked layout, or it does not pay
    bint together                       # joint ops read many weights: predictions in the blocked layout read them once for all
    bint reads                          # joint ops read enough weights that small chunks pay in predictions of few examples
    bint mixes                          # a training step may have tiles, and a rest in the blocked layout
    bint in_chunks                      # joint ops do nearly all the work: large predictions are IN_CHUNKS
    Py_ssize_t min_chunk                # examples for each thread, at least: fewer go TOGETHER
    int phases                          # of a tile that threads share, in one direction
    int barriers                        # ops that reduce over the batch within a step
    double largest[17]                  # [p]: the work of the largest of p parts of a tile, of that of the tile


cdef inline Py_ssize_t rounds_of(Py_ssize_t tasks, Py_ssize_t threads) noexcept:
    """The number of tasks of the thread that has the most."""
    return (tasks + threads - 1) // threads


cdef void measure_parts(costs *c, const op *ops, int n_ops) noexcept
cdef void measure_blocked(costs *c, const op *ops, int n_ops) noexcept
