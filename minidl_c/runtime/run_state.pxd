"""The state of one call of a plan, as its threads see it: structs alone, which all of the runtime reads."""
from libc.stdint cimport int64_t

from minidl_c.op cimport op
from minidl_c.optimizers.clip cimport clipping
from minidl_c.optimizers.update cimport optimizer
from minidl_c.runtime.arena cimport room, value

ctypedef enum call_kind:
    GATHER                              # rows of x into tiles
    FORWARD
    SCATTER                             # the last value (a loss: the one in front) out to y
    TAKE                                # rows of dy into tiles
    BACKWARD
    GIVE                                # the gradient of value 0 out to dx

ctypedef enum phase_kind:
    PREPARE                             # items: ops
    TILES                               # items: slots, each a run of tiles, all calls of a stage depth first
    SHARES                              # items: (tile, share of the channels), one call: fewer tiles than threads
    NODES                               # items: those of ROWS, of what a process has of them, before it exchanges that
    JOIN                                # items: those of ROWS, of what it got
    ROWS                                # items: ranges of the rows of every op of the stage
    CLIP                                # items: blocks of the flat gradient
    CHECK                               # one item: was all of it finite?
    UPDATE                              # items: those of ROWS
    END                                 # items: ops

ctypedef enum number_kind:
    UINT8
    FLOAT32
    FLOAT64

cdef enum:
    RANGES = 16                         # items of ROWS and UPDATE: never a matter of threads
    ROWS_AT_ONCE = 8                    # which an item does not split

ctypedef struct call:
    call_kind kind
    int op

ctypedef struct phase:
    phase_kind kind
    int first, last                     # calls first..last
    Py_ssize_t items
    Py_ssize_t at[17]                   # ROWS of a shared batch: where each item's bytes begin, and where the last ends

ctypedef struct sharing:                # a batch's slots, shared out over processes
    Py_ssize_t rank, ranks              # which of so many this one is
    Py_ssize_t n_own, n_all
    Py_ssize_t own[17]                  # the first of this process's slots in each of its nodes, and their end
    Py_ssize_t all[17]                  # the first of the batch's slots in the nodes of all processes, and their end
    char *mine                          # what NODES, the others and JOIN leave: see partition.pyx
    char *everyones
    char *joined

ctypedef struct example_output:         # where a parameter's gradients go, example by example: see per_example.pyx
    int op
    Py_ssize_t start, size              # which of the op's parameters
    char *grads                         # [examples][size] OUT, or NULL
    double *squares                     # [examples] OUT, or NULL: the sum of the squares of each one's

ctypedef struct job:
    const op *ops
    const value *values
    const int *wanted                   # by value: whether anybody wants its gradient
    int n_ops, threads, real_bytes, n_calls, n_phases
    call *calls
    phase *phases
    Py_ssize_t *items                   # of each phase
    # the memory of this call
    room *data
    room *grad
    room *saved
    char **packed
    char *scratch
    char *sums                          # of each thread, or of each slot: [n_lane][16]
    char *parts                         # of each slot: [n_lane]
    char *totals                        # [n_lane]
    char **joined                       # of each op with slot_rows: [rows][summary]
    Py_ssize_t scratch_bytes, sums_bytes, parts_bytes
    const example_output *outputs       # NULL: gradients are summed
    int n_outputs
    char *lanes                         # of each thread, with outputs: [n_param][16] of an op
    Py_ssize_t lanes_bytes
    # the batch: of `all_examples` rows a round, what this process does: all of it, if share is NULL
    Py_ssize_t all_examples, examples, tiles, slots
    Py_ssize_t first_tile
    Py_ssize_t starts[17]               # of each slot: its first tile, counted from first_tile; and where the last one ends
    const sharing *share
    Py_ssize_t first_round              # of this part of the job
    int first_phase
    int training
    number_kind x_kind
    const char *x
    const int64_t *rows
    const int64_t *numbers              # by position: what tile.rows tells an op
    const int64_t *labels               # by row of x
    const char *targets                 # by row of x: n_target numbers, where the loss does not want labels
    const char *weights                 # by row of x, or NULL
    char *losses                        # by position; NULL: the last op is no loss
    char *y                             # by position, or NULL
    const char *dy
    char *dx
    int64_t seed, step
    # what is trained
    char *param
    char *grad_flat
    Py_ssize_t n_flat                   # numbers in each of the two
    clipping clip
    const optimizer *update             # NULL: leave the parameters alone
    const double *rates                 # by round
    const double *totals_weight         # by round: what the sums are divided by; NULL: they stay sums
    int not_finite[16]                  # by item of ROWS: whether a gradient was not finite
    Py_ssize_t stopped                  # the round that was not finite and changed nothing, or -1
