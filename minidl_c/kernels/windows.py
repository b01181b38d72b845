"""Checks of the arguments of convolutions and poolings, and the sizes that follow from them."""

from math import prod

from minidl_c.op import check_element_count, check_ints

MAX_TAPS = 2**24  # kernel size times input size, along one axis: limits the time to build an op
MAX_WEIGHTS = 2**20  # of a filter
MAX_CELLS = 2**31 - 1  # of a window: an index has 32 bits


def convolution(in_shape, filters, kernel_size, stride, padding, dilation, groups):
    """Checks the arguments of a convolution.

    Returns ((C, H, W), filters, groups, kernel_size, stride, padding, dilation, padded, window); the last two are
    the sizes of the padded input and of the dilated kernel. Raises TypeError, ValueError.
    """
    C, H, W = check_ints("input shape", in_shape, 3, 1)
    (filters,), (groups,) = check_ints("filters", (filters,), 1, 1), check_ints("groups", (groups,), 1, 1)
    kernel, stride = check_ints("kernel_size", kernel_size, 2, 1), check_ints("stride", stride, 2, 1)
    padding, dilation = check_ints("padding", padding, 4, 0), check_ints("dilation", dilation, 2, 1)
    if C % groups or filters % groups:
        raise ValueError(f"groups: expected a divisor of {C} input channels and {filters} filters, got {groups}")
    padded = H + padding[0] + padding[1], W + padding[2] + padding[3]
    window = [(k - 1) * e + 1 for k, e in zip(kernel, dilation, strict=True)]
    if window[0] > padded[0] or window[1] > padded[1]:
        spans = f"a window of {window[0]} x {window[1]}"
        raise ValueError(f"kernel_size: {spans} does not fit into an input of {H} x {W} with padding {padding}")
    if max(kernel[0] * padded[0], kernel[1] * padded[1]) > MAX_TAPS:
        products = [k * n for k, n in zip(kernel, padded, strict=True)]
        raise ValueError(f"padded input times kernel: expected at most {MAX_TAPS} along an axis, got {products}")
    if C // groups * prod(kernel) > MAX_WEIGHTS:
        raise ValueError(
            f"kernel_size: expected at most {MAX_WEIGHTS} weights a filter, got {C // groups * prod(kernel)}"
        )
    check_element_count("padded input", (C, *padded))
    check_element_count("weights", (filters, C // groups, *kernel))
    stride = [min(s, n) for s, n in zip(stride, padded, strict=True)]  # a longer stride leaves the same single window
    dilation = [min(e, n) for e, n in zip(dilation, padded, strict=True)]  # only a kernel of 1 can have a longer one
    return (C, H, W), filters, groups, kernel, stride, padding, dilation, padded, window


def pooling(in_shape, pool_size, stride, padding, ceil_mode):
    """Returns the sizes of a pooling: C, H, W, OH, OW, then kernel, stride, padding, and whether it is tiled.

    Tiled: each cell is in exactly one window. Output sizes are PyTorch's: with ceil_mode, a window may reach beyond the
    padded input by less than a stride, and a last window that would start in the padding after the input is dropped.
    Raises TypeError, ValueError.
    """
    C, *size = check_ints("input shape", in_shape, 3, 1)
    check_element_count("input shape", (C, *size))
    kernel, stride = check_ints("pool_size", pool_size, 2, 1), check_ints("stride", stride, 2, 1)
    padding = check_ints("padding", padding, 2, 0)
    if prod(kernel) > MAX_CELLS:
        raise ValueError(f"pool_size: expected fewer than 2**31 cells in a window, got {kernel}")
    axes = zip(("height", "width"), size, kernel, stride, padding, strict=True)
    windows = [_windows(*axis, ceil_mode) for axis in axes]
    stride = [min(s, n + p) for s, n, p in zip(stride, size, padding, strict=True)]  # a longer one: one window too
    tiled = list(kernel) == stride and padding == (0, 0)
    tiled = tiled and all(n * k >= s for n, k, s in zip(windows, kernel, size, strict=True))
    return C, *size, *windows, *kernel, *stride, *padding, tiled


def _windows(name, size, kernel, stride, padding, ceil_mode):
    """Returns the number of windows along one axis.

    Raises ValueError if no window fits, or a window could lie in the padding.
    """
    if 2 * padding > kernel:
        raise ValueError(f"padding ({name}): expected at most half the pool_size of {kernel}, got {padding}")
    room = size + 2 * padding - kernel
    n = (-(-room // stride) if ceil_mode else room // stride) + 1
    n -= bool(ceil_mode) and (n - 1) * stride >= size + padding
    if n < 1:
        room = f"{size} of {name} with padding {padding}"
        room += f" and ceil_mode, which adds less than the stride of {stride}" if ceil_mode else ""
        raise ValueError(f"pool_size: a window of {kernel} does not fit into {room}")
    return n


def transposed(in_shape, filters, kernel_size, stride, padding, output_padding, dilation, groups):
    """Returns the output shape of a transposed convolution, and its padding in the form of `convolution`.

    Raises TypeError or ValueError. `convolution`, from output to input, checks the rest.
    """
    C, H, W = check_ints("input shape", in_shape, 3, 1)
    (filters,), (groups,) = check_ints("filters", (filters,), 1, 1), check_ints("groups", (groups,), 1, 1)
    kernel, stride = check_ints("kernel_size", kernel_size, 2, 1), check_ints("stride", stride, 2, 1)
    padding, dilation = check_ints("padding", padding, 2, 0), check_ints("dilation", dilation, 2, 1)
    output_padding = check_ints("output_padding", output_padding, 2, 0)
    if C % groups or filters % groups:
        raise ValueError(f"groups: expected a divisor of {C} input channels and {filters} filters, got {groups}")
    if any(extra >= max(s, e) for extra, s, e in zip(output_padding, stride, dilation, strict=True)):
        less = f"less than the stride {stride} or the dilation {dilation}"
        raise ValueError(f"output_padding: expected {less}, got {output_padding}")
    size = [
        (n - 1) * s - 2 * p + (k - 1) * e + 1 + extra
        for n, s, p, k, e, extra in zip((H, W), stride, padding, kernel, dilation, output_padding, strict=True)
    ]
    if min(size) < 1:
        raise ValueError(f"padding: expected to keep at least 1 x 1, got {padding}, which keeps {size[0]} x {size[1]}")
    return (filters, *size), (padding[0], padding[0], padding[1], padding[1])
