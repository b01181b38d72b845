"""How a plan runs an op in the blocked layout; `training` says whether a backward follows."""
from minidl_c.op cimport ALIAS_NONE, ALIAS_X, REACHES_ALL, REACHES_ELEMENT, op


cdef inline bint has_forward(const op *o) noexcept nogil:
    return o.blocked.elements != NULL or o.blocked.forward != NULL


cdef inline bint has_backward(const op *o) noexcept nogil:
    return o.blocked.backward_elements != NULL or o.blocked.backward != NULL


cdef inline bint is_repacked(const op *o) noexcept nogil:
    """Whether y is x with other axes: only in the blocked layout does that move elements. (`moves` in optimize.h.)"""
    return o.forward_tile == NULL and o.branch.skip < 0 and o.in_channels != o.out_channels


cdef inline bint is_converted(const op *o, bint training) noexcept nogil:
    """Whether an op lacks a form for the blocked layout, so that it runs on a tile: with one example, in training with all."""
    if o.memory.y_alias != ALIAS_NONE or o.forward_tile == NULL:
        return False
    return not has_forward(o) or training and o.backward_tile != NULL and not has_backward(o)


cdef inline bint can_train(const op *o) noexcept nogil:
    """Whether an op can be trained in the blocked layout: any without parameters and statistics can on a tile."""
    if o.forward_tile != NULL and not has_forward(o) or o.backward_tile != NULL and not has_backward(o):
        return o.reduce.n_items == 0 and is_converted(o, True)
    if o.reduce.n_items == 0:
        return True
    if not has_backward(o) or o.reduce.forward != NULL and o.reduce.n_sums > 0:
        return False
    if o.blocked.gradient != NULL:
        return True
    if o.reduce.n_sums > 0:
        return o.blocked.backward != NULL and o.blocked.backward_elements == NULL
    return o.n_param == 0 and o.reduce.backward == NULL


cdef inline bint keeps_layout(const op *o, bint training) noexcept nogil:
    """Whether an op's y and dx have the layout of memory that they share with x and dy."""
    cdef bint shares = o.memory.in_place or o.memory.y_alias == ALIAS_X or training and o.backward_tile == NULL
    return o.in_channels == o.out_channels or o.branch.skip >= 0 or is_repacked(o) or not shares


cdef inline bint has_work(const op *o, bint training) noexcept nogil:
    """Whether an op does anything in forward: in inference, one whose output has the memory of its input or skip does not."""
    return o.forward_tile != NULL and (training or o.memory.y_alias == ALIAS_NONE) or is_repacked(o)


cdef inline bint adds_sums(const op *o) noexcept nogil:
    """Whether an op's `backward` computes sums of each example."""
    return o.reduce.n_sums > 0 and o.blocked.gradient == NULL


cdef inline int reach_of(const op *o, bint training) noexcept nogil:
    """What an element of an op's output depends on."""
    if o.blocked.elements != NULL or not has_work(o, training):
        return REACHES_ELEMENT
    return o.blocked.reach if o.blocked.forward != NULL else REACHES_ALL


cdef inline int reach_back(const op *o) noexcept nogil:
    """What an element of dx, or of an example's sums, depends on."""
    if o.blocked.backward_elements != NULL or o.backward_tile == NULL and not is_repacked(o):
        return REACHES_ELEMENT
    return o.blocked.reach if o.blocked.backward != NULL else REACHES_ALL


cdef inline bint splits_patches(const op *o) noexcept nogil:
    """Whether the parts of y and dx of a tile are patches of pixels: those of a convolution by Winograd's algorithm (winograd.pyx)."""
    return o.reduce.sums_lanes and o.memory.prepare != NULL


cdef inline bint can_split_rows(const op *o, bint back) noexcept nogil:
    """Whether an op may compute some rows of pixels alone."""
    if back:
        return o.blocked.backward_elements != NULL or o.blocked.splits_rows_back
    return o.blocked.elements != NULL or o.blocked.splits_rows
