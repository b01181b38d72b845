"""The schedule of a call: the layout of its examples, its threads, and what stays in memory. All of it is chosen in this file.

    form         layout    a thread computes                                       an array has a copy for each
    IN_TILES     tiles     all ops of a stage on one tile, then on the next        thread; tile, if a later stage reads it
      left over            a part of some ops on one tile                          thread; tile, if a later stage reads it
      rest       blocked   as IN_CHUNKS, one chunk after its tiles                 as IN_CHUNKS
    IN_CHUNKS    blocked   all ops of a stage on some examples, joint ops on all   thread and example of a chunk; example, in
                           of them, then on the next                               training
    TOGETHER     blocked   a part of a joint op on all examples; between joint     example
                           ops, all or a part of an example
    BY_EXAMPLE   blocked   a part of some ops on one example                       example

Threads first compute as many tiles each. What is left over of a batch, they divide in the way that costs least: some of them compute one
more tile, and the others the rest in chunks; or they share tiles, if that is worth its barriers (`divide_examples`, `divide_tiles`).
Threads take whole slots of tiles if each has as many, else tiles, which then have sums of their own (lane_sums.pyx). Examples are shared if
there are at least two threads for each.

A call may have a number of threads, and uses as many as the model finds to be faster (`choose_step`, threads.pyx).

    call                                                                           form
    predict, if joint ops do nearly all the work, and n > 16                       IN_CHUNKS
    predict, if tiles cost less, or n % 16 > limit on one thread                   IN_TILES
    predict, if it costs less that the last examples are blocked                   IN_TILES with a rest
    predict, if it costs less that all are
      if joint ops read many weights and there are at least 2 examples             TOGETHER
      the same, if they do nearly all the work, with `min_chunk` for each thread   IN_CHUNKS
      otherwise, first the same number of examples for each thread                 IN_CHUNKS of 1 to 4 examples
                 then what is left over                                            BY_EXAMPLE, if there are two threads for each
    train, if n <= limit, or n <= 16 and it costs less on several threads          TOGETHER; all examples are one slot
      the same, if joint ops read few weights, for n >= threads > 1                IN_CHUNKS, if all reductions are distributable
    train, if it costs less that the last of at most 256 examples are blocked      IN_TILES with a rest, or IN_CHUNKS
    train otherwise, or in several processes                                       IN_TILES
    forward and backward, or a loss alone                                          IN_TILES

`limit` is 0 if an op does not fit the blocked layout. What costs less is decided by a model of the costs (costs.pyx), which are found
once for each plan. All forms give the same bits.
"""
from minidl_c.op cimport LANES, SMALL_BATCH
from minidl_c.runtime.costs cimport MAX_PARTS, costs, rounds_of
from minidl_c.runtime.threads cimport chooses_threads, threads_for, threads_of_prediction

cdef double BLOCKED_TRAINING = 1.05     # a tile, compared with the same examples in the blocked layout
# Fitted to LeNet-5, a CNN and an MLP on two threads, with batches of 48 and 80 (one of the tiles is shared) and without sharing:
cdef double SHARED_TILE = 1.35          # a tile that threads share: they read from each other's caches
cdef double WORTHWHILE = 0.97           # a schedule that is less simple has to take less time than this
cdef double BARRIER = 2e5, BARRIER_THREAD = 4e3        # of all threads, and for each, in multiply-adds
cdef double NEVER = 1e300               # the time of what is not possible
cdef enum:
    CHUNK = 32                          # the most examples of a prediction for which a thread has memory
    SMALL_CHUNK = 4                     # fewer examples of a task: a thread that comes late leaves more of them to the others
    STEP_PHASES = 5                     # of a step, in one stage: PREPARE, TILES, REDUCE, CHECK, UPDATE
cdef double UPDATE_WORK = 6             # of a parameter, in multiply-adds: the sums of its gradient, and the optimizer


# ---- work

cdef double work_of(const costs *c, Py_ssize_t examples) noexcept:
    """The multiply-adds of one forward: those of whole tiles, except for a few examples."""
    return c.work * <double> (examples if examples <= SMALL_BATCH else (examples + LANES - 1) // LANES * LANES)


cdef int threads_of(const costs *c, object num_threads, Py_ssize_t examples, int sweeps, Py_ssize_t n_steps) except -1:
    """Returns the number of threads for n_steps training steps of `examples` examples, each `sweeps` times through the ops."""
    return threads_for(num_threads, sweeps * work_of(c, examples) + UPDATE_WORK * c.n_flat, n_steps)


cdef double barrier_work(Py_ssize_t threads) noexcept:
    """The cost of waiting for all threads, in multiply-adds."""
    return BARRIER + BARRIER_THREAD * threads if threads > 1 else 0


# ---- the division of a batch

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


cdef double divide_examples(const costs *c, Py_ssize_t n, Py_ssize_t threads, Py_ssize_t *tiles) noexcept:
    """Finds how many whole tiles of n examples to compute; returns the work of the thread that has the most, in multiply-adds.

    All threads have as many tiles, or some of them one more; the others share the rest, which is never empty.
    """
    cdef Py_ssize_t full = n // LANES, k, more, rest, share, q
    cdef double least = NEVER, time
    for q in range(full, max(full - threads, <Py_ssize_t> -1), -1):
        k, more, rest = q // threads, q % threads, n - q * LANES
        share = rounds_of(rest, threads - more)
        if rest == 0 or threads == 1 and rest > c.limit or c.trains and share > LANES:
            continue
        time = max((k + (more > 0)) * c.tile, k * c.tile + share * c.example)
        if time < least:
            tiles[0], least = q, time
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
    s.form, s.first, s.tiles, s.slots = IN_TILES, starts[s0] * LANES, starts[s1] - starts[s0], s1 - s0
    s.total_examples = examples
    s.examples = max(min(examples, starts[s1] * LANES) - starts[s0] * LANES, <Py_ssize_t> 0)
    s.rest, s.chunks, s.chunk = 0, 0, 0
    s.copies, s.keep_all, s.with_backward = max(s.tiles, <Py_ssize_t> 1), keep_all, with_backward
    divide_tiles(c, &s, threads)
    s.threads = threads if s.whole < s.tiles else max(1, min(<Py_ssize_t> threads, s.tiles if s.by_tile else s.slots))
    s.ranges = ranges_of(s.threads) if size == 1 else 16      # of processes with different numbers of threads, the same
    return s


cdef schedule in_blocks(form form, Py_ssize_t first, Py_ssize_t examples, int threads, bint with_backward) noexcept:
    """Returns the schedule of some examples, from `first` on, in the blocked layout."""
    cdef schedule s
    cdef Py_ssize_t slot
    s.form, s.first, s.threads, s.with_backward = form, first, threads, with_backward
    s.tiles = s.total_examples = s.examples = s.copies = examples
    s.slots = min(rounds_of(examples, LANES), <Py_ssize_t> MAX_SLOTS)
    for slot in range(s.slots + 1):
        s.starts[slot] = slot
    s.whole, s.parts, s.by_tile = examples, 1, False          # how examples are shared, phases.pyx says
    s.rest, s.chunks, s.chunk, s.keep_all, s.ranges = 0, 0, 0, form == TOGETHER and not with_backward, ranges_of(threads)
    return s


cdef schedule in_chunks(Py_ssize_t first, Py_ssize_t examples, int threads, Py_ssize_t chunks, bint with_backward) noexcept:
    """Returns the schedule of some examples in at most `chunks` chunks. In training, a thread runs a whole chunk at a time."""
    cdef schedule s = in_blocks(IN_CHUNKS, first, examples, threads, with_backward)
    s.chunks = min(chunks, examples)
    s.chunk = rounds_of(examples, s.chunks)
    if not with_backward:                                     # of few sizes, so that the memory is seldom laid out again
        s.chunk = 1 if s.chunk == 1 else SMALL_CHUNK if s.chunk <= SMALL_CHUNK else LANES if s.chunk <= LANES else CHUNK
        s.copies = s.chunk * threads
    return s


cdef schedule with_rest(const costs *c, Py_ssize_t n, Py_ssize_t tiles, int threads, bint keep_all, bint with_backward) noexcept:
    """Returns the schedule of n examples of which the first are in some whole tiles, the others in the blocked layout."""
    cdef schedule s
    if tiles == 0:
        return in_chunks(0, n, threads, threads, with_backward)
    s = in_tiles(c, tiles * LANES, threads, keep_all, with_backward, 0, 1)
    s.total_examples = s.examples = n
    s.whole, s.parts, s.by_tile, s.threads, s.ranges = tiles, 1, True, threads, ranges_of(threads)
    s.rest, s.chunks = n - tiles * LANES, threads - tiles % threads
    return s


cdef schedule schedule_of_rest(const schedule *s) noexcept:
    return in_chunks(s.first + s.tiles * LANES, s.rest, s.threads, s.chunks, s.with_backward)


cdef int choose_blocked(const costs *c, Py_ssize_t n, int threads, schedule *parts) noexcept:
    """Sets the schedules of a prediction of n examples in the blocked layout; returns their number."""
    cdef Py_ssize_t shared = n % threads if 2 * (n % threads) <= threads else 0, chunks
    cdef int k = 0
    if c.together and n > 1:
        if c.in_chunks and n >= c.min_chunk * threads:
            parts[0] = in_chunks(0, n, threads, rounds_of(n, CHUNK * threads) * threads, False)
        else:
            parts[0] = in_blocks(TOGETHER, 0, n, threads, False)
        return 1
    if n > shared:
        chunks = rounds_of(n, SMALL_CHUNK * threads) * threads if c.reads else n
        parts[k] = in_chunks(0, n - shared, min(<Py_ssize_t> threads, n - shared), chunks, False)
        k += 1
    if shared:
        parts[k] = in_blocks(BY_EXAMPLE, n - shared, shared, threads, False)
        k += 1
    return k


cdef int choose_prediction(const costs *c, Py_ssize_t n, object num_threads, schedule *parts) except -1:
    """Sets the schedules of the parts of a prediction of n examples, one after the other; returns their number, at most 2."""
    cdef int threads = threads_of_prediction(num_threads, work_of(c, n))
    cdef Py_ssize_t tiles = 0
    cdef double time = NEVER
    if n == 0:
        return 0
    if n <= c.limit or c.limit and c.in_chunks and n > LANES:
        return choose_blocked(c, n, threads, parts)
    parts[0] = in_tiles(c, n, threads, False, False, 0, 1)
    if c.limit:
        time = divide_examples(c, n, threads, &tiles)
    if time > divide_tiles(c, &parts[0], threads) * c.tile:
        return 1
    if tiles == 0:
        return choose_blocked(c, n, threads, parts)
    parts[0] = with_rest(c, n, tiles, threads, False, False)
    return 1


cdef schedule step_on(const costs *c, Py_ssize_t n, int threads, bint manual, Py_ssize_t rank, Py_ssize_t size, double *time) noexcept:
    """Returns the schedule of a training step on a number of threads; time OUT: that of the model, in multiply-adds."""
    cdef bint keep_all = manual or c.barriers > 0
    cdef schedule s = in_tiles(c, n, threads, keep_all, True, rank, size)
    cdef double mixed = NEVER
    cdef Py_ssize_t tiles = 0
    cdef int phases = STEP_PHASES + 2 * c.barriers
    time[0] = divide_tiles(c, &s, threads) * 3 * LANES * c.work
    if c.trains and c.limit and not manual and size == 1:
        if n <= LANES and (threads == 1 or n < threads or c.together or not c.mixes):
            if n <= c.limit or threads > 1 and n * c.example <= c.tile * BLOCKED_TRAINING:
                s, phases = in_blocks(TOGETHER, 0, n, threads, True), phases + 2 * c.phases
                time[0] = 3 * n * c.example / threads
        elif c.mixes and n <= LANES * MAX_SLOTS and (chooses_threads() or n <= LANES or n % LANES):  # tests share whole tiles
            mixed = 3 * divide_examples(c, n, threads, &tiles) + c.rest
        if mixed < WORTHWHILE * time[0]:
            s, time[0] = with_rest(c, n, tiles, threads, keep_all, True), mixed
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
