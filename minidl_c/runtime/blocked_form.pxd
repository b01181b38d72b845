"""How a plan runs an op in the blocked layout."""
from minidl_c.op cimport ALIAS_NONE, REACHES_ALL, REACHES_ELEMENT, has_blocked_form, op


cdef inline bint is_converted(const op *o) noexcept nogil:
    """Whether an op has no form for the blocked layout, so that it runs on a tile with one example."""
    return not has_blocked_form(o) and o.memory.y_alias == ALIAS_NONE and o.forward_tile != NULL


cdef inline bint has_work(const op *o) noexcept nogil:
    """Whether an op does anything: one whose output has the memory of its input or skip does not."""
    return has_blocked_form(o) or is_converted(o) or o.in_channels != o.out_channels and o.branch.skip < 0


cdef inline int reach_of(const op *o) noexcept nogil:
    """What an element of an op's output depends on."""
    if o.blocked.elements != NULL or not has_work(o):
        return REACHES_ELEMENT
    return o.blocked.reach if o.blocked.forward != NULL else REACHES_ALL


cdef inline bint can_split_rows(const op *o) noexcept nogil:
    """Whether an op may compute some rows of pixels alone."""
    return o.blocked.elements != NULL or o.blocked.splits_rows
