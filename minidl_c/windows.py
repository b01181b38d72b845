"""Windows that slide over images: what a convolution may be, told before anything of it is built."""

from math import prod

from minidl_c.op import product_of, whole_numbers

MOST_TAPS = 2**24  # of a kernel over one axis of its input: building an op walks over them
MOST_WEIGHTS = 2**20  # of a filter


def convolution(in_shape, filters, kernel, stride, padding, dilation, groups):
    """The checked arguments of a convolution, with the padded input and the size of its window.

    Returns ((C, H, W), filters, groups, kernel, stride, padding, dilation, room, window); raises TypeError, ValueError.
    """
    C, H, W = whole_numbers("input shape", in_shape, 3, 1)
    filters, groups = whole_numbers("filters and groups", (filters, groups), 2, 1)
    kernel, stride = whole_numbers("kernel", kernel, 2, 1), whole_numbers("stride", stride, 2, 1)
    padding, dilation = whole_numbers("padding", padding, 4, 0), whole_numbers("dilation", dilation, 2, 1)
    if C % groups or filters % groups:
        raise ValueError(f"groups: expected a divisor of {C} input channels and {filters} filters, got {groups}")
    room = H + padding[0] + padding[1], W + padding[2] + padding[3]
    window = [(k - 1) * e + 1 for k, e in zip(kernel, dilation, strict=True)]
    if window[0] > room[0] or window[1] > room[1]:
        spans = f"a window of {window[0]} x {window[1]}"
        raise ValueError(f"kernel: {spans} does not fit into an input of {H} x {W} with padding {padding}")
    if max(kernel[0] * room[0], kernel[1] * room[1]) > MOST_TAPS:
        raise ValueError(f"padding: an input of {H} x {W} with padding {padding} is too large for {kernel}")
    if C // groups * prod(kernel) > MOST_WEIGHTS:
        raise ValueError(
            f"kernel: expected at most {MOST_WEIGHTS} weights a filter, got {C // groups * prod(kernel)}"
        )
    product_of("padded input", (C, *room))
    product_of("weights", (filters, C // groups, *kernel))
    stride = [min(s, r) for s, r in zip(stride, room, strict=True)]  # a longer one leaves the same single window
    dilation = [min(e, r) for e, r in zip(dilation, room, strict=True)]  # a longer one belongs to a kernel of 1
    return (C, H, W), filters, groups, kernel, stride, padding, dilation, room, window
