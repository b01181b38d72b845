"""The schedule of a call: the layout of its examples, its threads, and what stays in memory. All of it is chosen in this file.

    form         layout    a thread computes                                       an array has a copy for each
    IN_TILES     tiles     all ops of a stage on one tile, then on the next        thread; tile, if a later stage reads it
      left over            a part of some ops on one tile                          thread; tile, if a later stage reads it
    BY_EXAMPLE   blocked   all ops on one example, then on the next                thread
      shared               a part of some ops on one example                       example
    TOGETHER     blocked   a part of a joint op on all examples; between joint     example
                           ops, all or a part of an example
    IN_CHUNKS    blocked   all ops on some examples (32), joint ops on all of      thread and example of a chunk
                           them, then on the next

Examples are shared if there are at least two threads for each; such a schedule has fewer examples than threads. Of the tiles of a batch,
each thread first computes as many; the last ones, fewer than threads, are shared if that costs less (`divide_tiles`). Threads take whole
slots of tiles if each has as many, else tiles, which then have sums of their own (lane_sums.pyx).

A call may have a number of threads, and uses as many as the model finds to be faster (`choose_step`, threads.pyx).

    call                                                                           form
    predict, if the plan has chunks and n > 16                                     blocked
    predict, if there are as many tiles as threads or more
      the examples of full tiles                                                   IN_TILES
      the last n % 16 examples (all n, if n <= limit)                              blocked if at most `limit`, else IN_TILES
    predict, if there are fewer tiles than threads                                 blocked if it costs less, else IN_TILES
    the blocked part of a prediction
      if joint ops read many weights and it has at least 2 examples                TOGETHER
      the same, with at least `min_chunk` examples for each thread                 IN_CHUNKS, if the plan has chunks
      otherwise, first the same number of examples for each thread                 BY_EXAMPLE
                 then what is left over                                            BY_EXAMPLE, shared if possible
    train, if n <= limit, or n <= 16 and it costs less on several threads          TOGETHER; all examples are one slot
    train otherwise, or in several processes                                       IN_TILES
    forward and backward, or a loss alone                                          IN_TILES

`limit` is 0 if an op does not fit the blocked layout. What costs less is decided by a model of the costs, which are found once for
each plan. All forms give the same bits.
"""
from libc.math cimport sqrt

from minidl_c.op cimport LANES, REACHES_ALL, SMALL_BATCH, blocks_of
from minidl_c.runtime.blocked_form cimport has_work, is_converted, reach_of, splits_patches
from minidl_c.runtime.threads cimport chooses_threads, threads_for, threads_of_prediction

# The cost of reading a weight for each example, in multiply-adds; a tile reads it once. Fitted to the nets of benchmarks/inference.py.
cdef double CACHED_READ = 3, MEMORY_READ = 19
cdef Py_ssize_t CACHED_WEIGHTS = 2**22
cdef double CONVERTED_EXAMPLE = 2       # the copies of an example to and from the tile of a converted op
cdef double JOINT_SHARE = 10            # weights that are read once for all examples, for each element of a value
cdef double CHUNK_SHARE = 0.85          # of the work, in joint ops with full lanes
cdef Py_ssize_t MIN_CHUNK = 4           # examples of a thread that reads all weights from its cache, instead of its share of them
cdef double TRANSPOSED_WORK = 1.5       # a multiply-add of a dense layer in training, which transposes its weights for dx
cdef double BLOCKED_TRAINING = 1.05     # a tile, compared with the same examples in the blocked layout
# Fitted to LeNet-5, a CNN and an MLP on two threads, with batches of 48 and 80 (one of the tiles is shared) and without sharing:
cdef double SHARED_TILE = 1.35          # a tile that threads share: they read from each other's caches
cdef double READ_CHANNELS = 2           # channels of y that take as long as reading x
cdef double WORTHWHILE = 0.97           # a schedule that is less simple has to take less time than this
cdef double BARRIER = 2e5, BARRIER_THREAD = 4e3        # of all threads, and for each, in multiply-adds
cdef enum:
    MAX_PARTS = 16                      # of a tile
    STEP_PHASES = 5                     # of a step, in one stage: PREPARE, TILES, REDUCE, CHECK, UPDATE
cdef double UPDATE_WORK = 6             # of a parameter, in multiply-adds: the sums of its gradient, and the optimizer


# ---- costs

cdef inline double waste_of(Py_ssize_t channels) noexcept:
    """The number of lanes for each channel."""
    return <double> (blocks_of(channels) * LANES) / channels


cdef void measure_joint(costs *c, const op *ops, int n_ops) noexcept:
    """Sets `together` if reading the weights of joint ops once saves more than keeping the values of all examples costs.

    If joint ops do nearly all the work, also sets how many examples form a chunk.
    """
    cdef double weights = 0, elements = 0, work = 0
    cdef int k
    for k in range(n_ops):
        elements += ops[k].out_size
        if ops[k].blocked.joint:
            weights += ops[k].n_param
            work += ops[k].work / waste_of(ops[k].out_channels)
    c.together = weights > JOINT_SHARE * elements
    c.chunk = 2 * LANES if c.together and work > CHUNK_SHARE * c.work else 0
    c.min_chunk = MIN_CHUNK if weights < CACHED_WEIGHTS else c.chunk


cdef void measure_blocked(costs *c, const op *ops, int n_ops) noexcept:
    """Sets the costs of ops that fit the blocked layout, and the number of examples up to which it costs less than a tile."""
    cdef double lanes = 0, blocked = 0, least = 0, waste, weights = 0
    cdef bint training = c.trains, has_trained = False
    cdef const op *o
    cdef int k
    measure_joint(c, ops, n_ops)
    for k in range(n_ops - training):
        o = &ops[k]
        waste = waste_of(o.out_channels)
        if is_converted(o, training):
            waste = CONVERTED_EXAMPLE if training else 2 * LANES
        elif has_trained:                                     # backward computes dx as well
            waste = (2 * waste + waste_of(o.in_channels)) / 3
        has_trained |= training and o.n_param > 0
        if has_work(o, training):
            lanes, least = lanes + o.work, least + o.work * waste
            # loads are wasted too: powers of 1.5 and, in training, 1.75 (pow would need glibc 2.29)
            blocked += o.work * waste * sqrt(waste) * (sqrt(sqrt(waste)) if training else 1) * (
                TRANSPOSED_WORK if training and o.blocked.joint and o.memory.prepare_dx == NULL else 1)
            weights += 0 if training or c.together and o.blocked.joint else o.n_param
    blocked += weights * (CACHED_READ if weights < CACHED_WEIGHTS else MEMORY_READ)
    c.tile, c.example = LANES * lanes, blocked
    c.limit = <Py_ssize_t> min(<double> LANES, c.tile / blocked) if blocked else 0
    if c.limit == 0 and least <= c.tile:                      # one example alone is no slower
        c.limit = 1


cdef double work_of(const costs *c, Py_ssize_t examples) noexcept:
    """The multiply-adds of one forward: those of whole tiles, except for a few examples."""
    return c.work * <double> (examples if examples <= SMALL_BATCH else (examples + LANES - 1) // LANES * LANES)


cdef int threads_of(const costs *c, object num_threads, Py_ssize_t examples, int sweeps, Py_ssize_t n_steps) except -1:
    """Returns the number of threads for n_steps training steps of `examples` examples, each `sweeps` times through the ops."""
    return threads_for(num_threads, sweeps * work_of(c, examples) + UPDATE_WORK * c.n_flat, n_steps)


# ---- tiles

cdef inline Py_ssize_t rounds_of(Py_ssize_t tasks, Py_ssize_t threads) noexcept:
    """The number of tasks of the thread that has the most."""
    return (tasks + threads - 1) // threads


cdef double barrier_work(Py_ssize_t threads) noexcept:
    """The cost of waiting for all threads, in multiply-adds."""
    return BARRIER + BARRIER_THREAD * threads if threads > 1 else 0


cdef void measure_parts(costs *c, const op *ops, int n_ops) noexcept:
    """Sets what it costs to share a tile: its phases, and the work of the largest of its parts."""
    cdef double work, share, back
    cdef Py_ssize_t parts
    cdef const op *o
    cdef int k
    for k in range(n_ops):
        c.phases += reach_of(&ops[k], False) == REACHES_ALL or splits_patches(&ops[k])
    for parts in range(1, MAX_PARTS + 1):
        work = 0
        for k in range(n_ops):
            o = &ops[k]
            share, back = largest_part(o.out_channels, 1, parts), largest_part(o.in_channels, 1, parts)
            if splits_patches(o):                             # only the gradient of the weights is split by channels
                share, back = 1.0 / parts, (1.0 / parts + largest_part(o.out_channels // LANES, LANES, parts)) / 2
            elif not o.splits:
                share = back = 1
            work += o.work * (share + 2 * back if c.trains else share)
        c.largest[parts] = work / (c.work * (3 if c.trains else 1))


cdef double largest_part(Py_ssize_t groups, Py_ssize_t channels, Py_ssize_t parts) noexcept:
    """The share of the work of the largest of some parts of groups of channels; to read takes as long as some channels."""
    return (rounds_of(groups, parts) * channels + READ_CHANNELS) / (groups * channels + READ_CHANNELS)


cdef inline Py_ssize_t ranges_of(Py_ssize_t threads) noexcept:
    """The number of ranges of parameters: more, and smaller ones, where 16 are not the same number for each thread."""
    return 16 if 16 % threads == 0 else 64


cdef Py_ssize_t most_tiles(const schedule *s, Py_ssize_t threads) noexcept:
    """The number of tiles of the thread that has the most, if each takes whole slots."""
    cdef Py_ssize_t shares = min(threads, s.slots), k, most = 0
    for k in range(shares):
        most = max(most, s.starts[s.slots * (k + 1) // shares] - s.starts[s.slots * k // shares])
    return most


cdef double divide_tiles(const costs *c, schedule *s, Py_ssize_t threads) noexcept:
    """Decides which tiles threads share, and in how many parts; returns the work of the thread that has the most, in tiles.

    Each thread first computes as many whole tiles; those that are left over are shared if it costs less.
    """
    cdef Py_ssize_t rest = s.tiles % threads, parts
    cdef double tile_work = c.work * LANES * (3 if s.with_backward else 1)
    cdef double barriers = c.phases * (2 if s.with_backward else 1) * barrier_work(threads) / tile_work
    cdef double by_slot = most_tiles(s, threads), least, time
    s.whole, s.parts, least = s.tiles, 1, rounds_of(s.tiles, threads)
    s.by_tile = least < WORTHWHILE * by_slot
    if not s.by_tile:
        least = by_slot
    for parts in range(2, min(threads, <Py_ssize_t> MAX_PARTS) + 1 if rest else 0):
        time = s.tiles // threads + rounds_of(rest * parts, threads) * c.largest[parts] * SHARED_TILE + barriers
        if time < WORTHWHILE * least:
            s.whole, s.parts, s.by_tile, least = s.tiles - rest, parts, True, time
    if rest and not chooses_threads():                        # as tests want it, whose ops are too small for the model
        s.whole, s.parts, s.by_tile = s.tiles - rest, min(threads, <Py_ssize_t> MAX_PARTS), True
    return least


# ---- schedules

cdef schedule in_tiles(const costs *c, Py_ssize_t examples, int threads, bint keep_all, bint with_backward, Py_ssize_t rank,
                       Py_ssize_t size) noexcept:
    """Divides a batch into tiles and slots; process `rank` of `size` has a contiguous range of the slots."""
    cdef schedule s
    cdef Py_ssize_t starts[17]
    cdef Py_ssize_t slots = find_slots((examples + LANES - 1) // LANES, starts), i
    cdef Py_ssize_t s0 = slots * rank // size, s1 = slots * (rank + 1) // size
    for i in range(s0, s1 + 1):
        s.starts[i - s0] = starts[i] - starts[s0]
    s.form, s.first_tile, s.tiles, s.slots = IN_TILES, starts[s0], starts[s1] - starts[s0], s1 - s0
    s.total_examples = examples
    s.examples = max(min(examples, starts[s1] * LANES) - starts[s0] * LANES, <Py_ssize_t> 0)
    s.chunk, s.copies, s.keep_all, s.with_backward = 0, max(s.tiles, <Py_ssize_t> 1), keep_all, with_backward
    divide_tiles(c, &s, threads)
    s.threads = threads if s.whole < s.tiles else max(1, min(<Py_ssize_t> threads, s.tiles if s.by_tile else s.slots))
    s.ranges = ranges_of(s.threads) if size == 1 else 16      # of processes with different numbers of threads, the same
    return s


cdef schedule in_blocks(form form, Py_ssize_t first, Py_ssize_t examples, int threads, Py_ssize_t chunk) noexcept:
    """Returns the schedule of predicting some examples, from `first` on, in the blocked layout."""
    cdef schedule s
    s.form, s.first_tile, s.chunk, s.with_backward = form, first, chunk, False
    s.tiles = s.total_examples = s.examples = examples
    s.slots = find_slots(examples, s.starts)
    s.whole, s.parts, s.by_tile = examples, 1, False          # how examples are shared, phases.pyx says
    s.threads = threads if form != BY_EXAMPLE or 2 * examples <= threads else min(<Py_ssize_t> threads, s.slots)
    s.copies, s.keep_all, s.ranges = chunk * threads if chunk else examples, form != BY_EXAMPLE, ranges_of(s.threads)
    return s


cdef Py_ssize_t blocked_examples(const costs *c, Py_ssize_t n, int threads) noexcept:
    """Returns how many of n examples, the last ones, to predict in the blocked layout."""
    cdef Py_ssize_t tiles = (n + LANES - 1) // LANES, rest = n if n <= c.limit else n % LANES
    cdef schedule s
    if c.chunk and c.limit and n > LANES:
        return n
    if c.limit == 0 or n == 0 or tiles >= threads:
        return rest if rest <= c.limit else 0
    s = in_tiles(c, n, threads, False, False, 0, 1)
    return n if rounds_of(n, threads) * c.example <= divide_tiles(c, &s, threads) * c.tile else 0


cdef bint trains_blocked(const costs *c, Py_ssize_t n, int threads) noexcept:
    """Whether a batch of n examples is trained in the blocked layout."""
    if n <= c.limit or c.limit == 0 or n > LANES:
        return n <= c.limit
    return threads > 1 and n * c.example <= c.tile * BLOCKED_TRAINING


cdef int choose_prediction(const costs *c, Py_ssize_t n, object num_threads, schedule *parts) except -1:
    """Sets the schedules of the parts of a prediction of n examples, one after the other; returns their number, at most 3."""
    cdef int k = 0, threads = threads_of_prediction(num_threads, work_of(c, n))
    cdef Py_ssize_t rest = blocked_examples(c, n, threads), first = n - rest, shared, chunk
    if first:
        parts[k] = in_tiles(c, first, threads_of_prediction(num_threads, work_of(c, first)), False, False, 0, 1)
        k += 1
    threads = threads_of_prediction(num_threads, work_of(c, rest))
    if c.together and rest > 1:
        chunk = c.chunk if rest >= c.min_chunk * threads else 0
        parts[k] = in_blocks(IN_CHUNKS if chunk else TOGETHER, first, rest, threads, chunk)
        return k + 1
    shared = rest % threads if 2 * (rest % threads) <= threads else 0
    if rest > shared:
        parts[k] = in_blocks(BY_EXAMPLE, first, rest - shared, threads, 0)
        k += 1
    if shared:
        parts[k] = in_blocks(BY_EXAMPLE, n - shared, shared, threads, 0)
        k += 1
    return k


cdef schedule step_on(const costs *c, Py_ssize_t n, int threads, bint manual, Py_ssize_t rank, Py_ssize_t size, double *time) noexcept:
    """Returns the schedule of a training step on a number of threads; time OUT: that of the model, in multiply-adds."""
    cdef schedule s
    cdef int phases = STEP_PHASES + 2 * c.barriers
    if manual or size > 1 or not c.trains or not trains_blocked(c, n, threads):
        s = in_tiles(c, n, threads, manual or c.barriers > 0, True, rank, size)
        time[0] = divide_tiles(c, &s, threads) * 3 * LANES * c.work
    else:
        s = in_blocks(TOGETHER, 0, n, threads, 0)
        s.slots, s.starts[0], s.starts[1] = 1, 0, 1           # all examples are one slot, as the lanes of a tile
        s.keep_all, s.with_backward = False, True
        time[0], phases = 3 * n * c.example / threads, phases + 2 * c.phases
    time[0] += UPDATE_WORK * c.n_flat / threads + phases * barrier_work(threads)
    return s


cdef schedule choose_step(const costs *c, Py_ssize_t n, object num_threads, Py_ssize_t n_steps, bint manual, Py_ssize_t rank,
                          Py_ssize_t size) except *:
    """Returns the schedule of training steps of n examples in process `rank` of `size`; manual: of forward and backward."""
    cdef int most = threads_of(c, num_threads, n, 3, n_steps), threads = 1 if chooses_threads() else most
    cdef double least = 0, time = 0
    cdef schedule best = step_on(c, n, threads, manual, rank, size, &least), s
    while threads < most:
        threads = min(2 * threads, most)
        s = step_on(c, n, threads, manual, rank, size, &time)
        if time < WORTHWHILE * least:
            best, least = s, time
    return best
