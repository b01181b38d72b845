"""The costs of a plan's ops, in multiply-adds: of a tile, of a part of a tile, and of an example in the blocked layout."""
from libc.math cimport sqrt

from minidl_c.op cimport LANES, REACHES_ALL, blocks_of, is_distributable
from minidl_c.runtime.blocked_form cimport has_work, is_converted, reach_of, splits_patches

# The cost of reading a weight for each example, in multiply-adds; a tile reads it once. Fitted to the nets of benchmarks/inference.py.
cdef double CACHED_READ = 3, MEMORY_READ = 19
cdef Py_ssize_t CACHED_WEIGHTS = 2**22
cdef double CONVERTED_EXAMPLE = 2       # the copies of an example to and from the tile of a converted op
cdef double READ_SHARE = 0.25           # of an example's work, above which weights of joint ops are read once for some examples
cdef double JOINT_SHARE = 10            # weights that are read once for all examples, for each element of a value
cdef double CHUNK_SHARE = 0.85          # of the work, in joint ops with full lanes
cdef Py_ssize_t MIN_CHUNK = 4           # examples of a thread that reads all weights from its cache, instead of its share of them
cdef double JOINT_REST = 60             # a weight of a joint op in the rest of a step: it is transposed for dx, and has one more gradient
cdef double READ_CHANNELS = 2           # channels of y that take as long as reading x


cdef inline double waste_of(Py_ssize_t channels) noexcept:
    """The number of lanes for each channel."""
    return <double> (blocks_of(channels) * LANES) / channels


cdef void measure_joint(costs *c, const op *ops, int n_ops) noexcept:
    """Sets `together` if reading the weights of joint ops once saves more than keeping the values of all examples costs.

    If joint ops do nearly all the work, also sets that tiles are no better.
    """
    cdef double weights = 0, elements = 0, work = 0
    cdef int k
    for k in range(n_ops):
        elements += ops[k].out_size
        if ops[k].blocked.joint:
            weights += ops[k].n_param
            work += ops[k].work / waste_of(ops[k].out_channels)
    c.together = weights > JOINT_SHARE * elements
    c.in_chunks = c.together and work > CHUNK_SHARE * c.work
    c.min_chunk = MIN_CHUNK if weights < CACHED_WEIGHTS else 2 * LANES


cdef void measure_blocked(costs *c, const op *ops, int n_ops) noexcept:
    """Sets the costs of ops that fit the blocked layout, and the number of examples up to which it costs less than a tile."""
    cdef double lanes = 0, blocked = 0, least = 0, waste, weights = 0, joint_weights = 0
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
            blocked += o.work * waste * sqrt(waste)           # loads are wasted too
            weights += 0 if training or o.blocked.joint else o.n_param
        joint_weights += o.n_param if o.blocked.joint else 0
    c.rest = JOINT_REST * joint_weights if training else 0
    blocked += weights * (CACHED_READ if weights < CACHED_WEIGHTS else MEMORY_READ)
    c.reads = joint_weights * (CACHED_READ if joint_weights < CACHED_WEIGHTS else MEMORY_READ) > READ_SHARE * blocked
    c.tile, c.example = LANES * lanes, blocked
    c.limit = <Py_ssize_t> min(<double> LANES, c.tile / blocked) if blocked else 0
    if c.limit == 0 and least <= c.tile:                      # one example alone is no slower
        c.limit = 1
    c.mixes = training and c.limit > 0
    for k in range(n_ops - training):
        c.mixes = c.mixes and is_distributable(&ops[k])       # the sums of tiles and those of the rest are combined


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
