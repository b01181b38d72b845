"""The state of one call of a plan, as its threads see it: structs alone, which all of the runtime reads."""
from libc.stdint cimport int64_t

from minidl_c.op cimport op
from minidl_c.optimizers.clip cimport clipping
from minidl_c.optimizers.update cimport optimizer
from minidl_c.runtime.arena cimport room, value

ctypedef enum instr_kind:
    GATHER_X                            # rows of x into tiles
    FORWARD
    SCATTER_Y                           # the last value (of a plan with a loss: the one before) out to y
    GATHER_DY                           # rows of dy into tiles
    BACKWARD
    SCATTER_DX                          # the gradient of value 0 out to dx

ctypedef enum phase_kind:
    PREPARE                             # items: ops
    TILES                               # items: slots, each a run of tiles, all instructions of a stage depth first
    SPLIT_TILES                         # items: (tile, part of the channels), one instruction: fewer tiles than threads
    PARTIALS                            # items: those of REDUCE, of what a process has of them, before the exchange
    COMBINE                             # items: those of REDUCE, of what came in the exchange
    REDUCE                              # items: ranges of the reduction of every op of the stage
    CLIP                                # items: blocks of the flat gradient
    CHECK                               # one item: was all of it finite?
    UPDATE                              # items: those of REDUCE
    COMMIT                              # items: ops

ctypedef enum number_kind:
    UINT8
    FLOAT32
    FLOAT64

cdef enum:
    RANGES = 16                         # items of REDUCE and UPDATE: never a matter of threads
    ITEMS_AT_ONCE = 8                   # of an op's reduction, which a range does not split

ctypedef struct instr:
    instr_kind kind
    int op

ctypedef struct phase:
    phase_kind kind
    int first, last                     # instructions first..last
    Py_ssize_t items
    Py_ssize_t at[17]                   # REDUCE of a shared batch: where each item's bytes begin, and where the last ends

ctypedef struct program_state:          # what is run
    const op *ops
    const value *values
    const int *wanted                   # by value: whether its gradient is needed
    int n_ops, real_bytes, n_instrs, n_phases
    instr *instrs
    phase *phases
    Py_ssize_t *items                   # of each phase

ctypedef struct memory_state:           # of this call
    room *data
    room *grad
    room *saved
    char **packed
    char *scratch
    char *sums                          # of each thread, or of each slot: [n_sums][16]
    char *slot_sums                     # of each slot: [n_sums]
    char *batch_sums                    # [n_sums]
    char **combined                     # of each op with reduce.partial: [n_items][partial_bytes]
    Py_ssize_t scratch_bytes, sums_bytes, slot_sums_bytes

ctypedef struct example_output:         # where a parameter's gradients go, example by example: see per_example.pyx
    int op
    Py_ssize_t start, size              # which of the op's parameters
    char *grads                         # [examples][size] OUT, or NULL
    double *squares                     # [examples] OUT, or NULL: the sum of the squares of each one's

ctypedef struct per_example_state:
    const example_output *outputs       # NULL: gradients are summed
    int n_outputs
    char *lanes                         # of each thread, with outputs: [n_param][16] of an op
    Py_ssize_t lanes_bytes

ctypedef struct batch_state:            # arrays of the caller
    Py_ssize_t total_examples, examples # rows of a step, and those of this process
    number_kind x_kind
    const char *x
    const int64_t *rows
    const int64_t *example_ids          # by position: tile.example_ids
    const int64_t *labels               # by row of x
    const char *targets                 # by row of x: n_target elements, for a loss without labels
    const char *weights                 # by row of x, or NULL
    char *losses                        # by position; NULL: the last op is no loss
    char *y                             # by position, or NULL
    const char *dy
    char *dx

ctypedef struct partition:              # a batch's slots, divided among processes
    Py_ssize_t rank, size               # of this process, and the number of processes
    Py_ssize_t n_own, n_all
    Py_ssize_t own[17]                  # the first of this process's slots in each of its nodes, and their end
    Py_ssize_t all[17]                  # the first of the batch's slots in the nodes of all processes, and their end
    char *local                         # what PARTIALS, the exchange and COMBINE leave: see partition.pyx
    char *remote
    char *combined

ctypedef struct part_state:             # the tiles of this process
    Py_ssize_t tiles, slots
    Py_ssize_t first_tile
    Py_ssize_t starts[17]               # of each slot: its first tile, counted from first_tile; and where the last one ends
    const partition *partition          # NULL: they are the whole batch

ctypedef struct train_state:
    int training
    int64_t seed, first_step
    char *param
    char *grad
    Py_ssize_t n                        # elements of each of the two
    clipping clip
    const optimizer *update             # NULL: the parameters stay
    const double *lrs                   # by step
    const double *total_weights         # by step: what the sums are divided by; NULL: they stay sums
    int not_finite[16]                  # by item of REDUCE: whether a gradient was not finite
    Py_ssize_t stopped                  # the step that was not finite and changed nothing, or -1

ctypedef struct run_state:
    program_state program
    memory_state memory
    per_example_state per_example
    batch_state batch
    part_state part
    train_state train
    int threads
    Py_ssize_t step_offset              # of the steps and phases that the threads run now: see exchange.pyx
    int phase_offset
