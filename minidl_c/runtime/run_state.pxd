"""The state of one call of a plan, as its threads see it: the structs that the modules of the runtime share."""
from libc.stdint cimport int64_t

from minidl_c.op cimport op
from minidl_c.optimizers.clip cimport clipping
from minidl_c.optimizers.update cimport optimizer, param_range
from minidl_c.runtime.copies cimport copies, number_kind
from minidl_c.runtime.memory_map cimport buffer, value
from minidl_c.runtime.schedule cimport IN_TILES, schedule

ctypedef enum instr_kind:
    GATHER_X                            # packs rows of x into tiles
    FORWARD
    SCATTER_Y                           # unpacks the scores (the last value, or the one before a loss) into y
    GATHER_DY                           # packs rows of dy into tiles
    BACKWARD
    SCATTER_DX                          # unpacks the gradient of value 0 into dx

ctypedef enum phase_kind:
    PREPARE                             # a task: part of the packing of one op
    TILES                               # a task: a slot, which is a run of tiles, or one tile; all instructions of a stage, depth first.
                                        # If the batch has a rest, also one of its chunks
    SPLIT_TILES                         # a task: a part of the channels or rows of a tile that threads share. A stretch of
                                        # instructions: see phases.pyx
    JOINT                               # a task: a part of the channels of an op that takes all examples at once, in the blocked layout
    CHUNKS                              # a task: some examples, which go through all ops together in the memory of their thread
    CONVERTED                           # one task: an instruction of an op on a tile, in training in the blocked layout
    PARTIALS                            # a task is one of REDUCE: this process's partial results, before the exchange
    COMBINE                             # a task is one of REDUCE: the batch's results, from the partial results of all processes
    REDUCE                              # a task: a range of the reduction items of each op of the stage
    CLIP                                # a task: a block of the flat gradient
    CHECK                               # one task: are all losses and gradients finite?
    UPDATE                              # a task is one of REDUCE
    COMMIT                              # a task: an op

cdef enum:
    REDUCE_TASKS = 16                   # of a REDUCE phase of processes that share a batch, for any number of threads

ctypedef struct instr:
    instr_kind kind
    int op

ctypedef struct phase:
    phase_kind kind
    int first, last                     # instructions first..last
    Py_ssize_t tasks                    # the number of tasks
    bint by_rows                        # parts are rows of pixels, not channels
    Py_ssize_t offsets[17]              # of each REDUCE task in the bytes of a node, and their end: see partition.pyx

ctypedef struct program_state:          # what runs
    copies copies                       # in the plan's dtype
    const op *ops
    const value *values
    const int *wanted                   # by value: whether its gradient is needed
    int n_ops, real_bytes, n_instrs, n_prepares, n_phases
    instr *instrs
    instr *prepares                     # the ops that pack parameters: FORWARD for `prepare`, BACKWARD for `prepare_dx`
    phase *phases
    Py_ssize_t *tasks                   # the number of tasks of each phase

ctypedef struct memory_state:           # arrays in the arena
    const buffer *data                  # by value
    const buffer *grad                  # by value
    const buffer *tile_data             # by value, of converted ops: see blocked.pyx
    const buffer *tile_grad
    const buffer *saved                 # by op
    const buffer *packed                # by op
    bint keeps_packed                   # in inference: what the call before has packed is still there
    const buffer *combined              # by op: the batch's results of reduce.partial, [n_items][partial_bytes]
    buffer scratch                      # by thread
    buffer sums                         # by thread, then by shared tile: [n_sums][16]. In the blocked layout by example: [n_sums]
    buffer slot_sums                    # by slot, or by tile: [n_sums]
    buffer batch_sums                   # [n_sums]
    buffer nodes                        # by thread: items of an op in each node of a batch with examples in the blocked layout

ctypedef struct example_output:         # the destination of a parameter's per-example gradients: see per_example.pyx
    int op
    Py_ssize_t start, size              # range in the op's parameters
    char *grads                         # OUT [examples][size], or NULL
    double *squares                     # OUT [examples], or NULL: the sum of squares of each example's gradient

ctypedef struct per_example_state:
    const example_output *outputs       # NULL: gradients are summed
    int n_outputs
    char *lanes                         # by thread: the sums of an op over a tile, [n_sums][16]
    Py_ssize_t lanes_bytes

ctypedef struct batch_state:            # arrays of the caller
    Py_ssize_t total_examples, examples # examples of a step, and those of this process
    number_kind x_kind
    const char *x
    const int64_t *rows
    const int64_t *example_ids          # by position in the batch: tile.example_ids
    const char *labels                  # by row of x: one label, or n_labels; NULL: targets
    number_kind label_kind              # INT64 or UINT8
    const char *targets                 # by row of x: n_target elements
    const char *weights                 # by row of x, or NULL
    char *losses                        # by position; NULL: the last op is no loss
    char *y                             # by position, or NULL
    const char *dy
    char *dx

ctypedef struct partition:              # a batch's slots, divided among processes
    Py_ssize_t rank, size               # of this process, and the number of processes
    Py_ssize_t n_local_nodes, n_nodes
    Py_ssize_t local_nodes[17]          # the first of this process's slots in each of its nodes, and their end
    Py_ssize_t nodes[17]                # the first of the batch's slots in the nodes of all processes, and their end
    char *local                         # partial results of this process: what PARTIALS writes
    char *received                      # partial results of all processes: what COMBINE reads
    char *combined                      # the batch's results: what COMBINE writes and REDUCE reads

ctypedef struct train_state:
    int training
    int64_t seed, first_step
    char *param
    char *grad
    Py_ssize_t n                        # elements of each of the two
    clipping clip
    const optimizer *update             # NULL: parameters are not updated
    const param_range *ranges           # of the parameters that are updated
    Py_ssize_t n_ranges
    const double *lrs                   # by step
    const double *divisors              # by step: of the sums of gradients; NULL: no division
    int not_finite[64]                  # by REDUCE task: whether a gradient was not finite
    Py_ssize_t stopped                  # the step that was not finite and changed nothing, or -1

ctypedef struct run_state:
    program_state program
    memory_state memory
    per_example_state per_example
    batch_state batch
    schedule schedule                   # the tiles of this process
    const partition *partition          # NULL: they are the whole batch
    train_state train
    const run_state *rest               # of the examples after the tiles, in the blocked layout; NULL: there are none
    Py_ssize_t step_offset              # of the steps and phases that run now: see exchange.pyx
    int phase_offset


cdef inline const op *op_of(const run_state *run, const instr *i) noexcept nogil:
    """The op of a FORWARD or BACKWARD instruction."""
    return &run.program.ops[i.op]


cdef inline bint is_shared(const run_state *run, Py_ssize_t t) noexcept nogil:
    """Whether threads share tile t: the last tiles of a batch, or all."""
    return t >= run.schedule.whole


cdef inline Py_ssize_t row_of(const run_state *run, Py_ssize_t slot, Py_ssize_t t) noexcept nogil:
    """The row of the sums that tile t of a slot adds to."""
    return t if run.schedule.by_tile else slot


cdef inline const run_state *blocked_of(const run_state *run) noexcept nogil:
    """The examples of a batch that are in the blocked layout: all, the rest, or NULL."""
    return run if run.schedule.form != IN_TILES else run.rest


cdef inline bint is_blocked(const run_state *run) noexcept nogil:
    """Whether a tile is one example in the blocked layout."""
    return run.schedule.form != IN_TILES
