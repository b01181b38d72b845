"""Checks of the arguments of convolutions and poolings, and the sizes that follow from them."""

from math import prod

from minidl_c.op import check_element_count, check_ints

MAX_SIZE = 2**24  # of the padded input of a convolution, along one axis: limits the time to build an op
MAX_WEIGHTS = 2**20  # of a filter
MAX_CELLS = 2**31 - 1  # of a window: an index has 32 bits
MAX_WINDOWS = 2**24  # of a pooling along one axis: limits the time and memory to build an op


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
    if max(padded) > MAX_SIZE:
        raise ValueError(f"padded input: expected at most {MAX_SIZE} pixels along an axis, got {padded}")
    if C // groups * prod(kernel) > MAX_WEIGHTS:
        raise ValueError(
            f"kernel_size: expected at most {MAX_WEIGHTS} weights a filter, got {C // groups * prod(kernel)}"
        )
    check_element_count("padded input", (C, *padded))
    check_element_count("weights", (filters, C // groups, *kernel))
    stride = [min(s, n) for s, n in zip(stride, padded, strict=True)]  # a longer stride leaves the same single window
    dilation = [min(e, n) for e, n in zip(dilation, padded, strict=True)]  # only a kernel of 1 can have a longer one
    return (C, H, W), filters, groups, kernel, stride, padding, dilation, padded, window


def pooling(in_shape, pool_size, stride, padding, ceil_mode, dilation):
    """Returns the sizes of a pooling: (C, H, W), (OH, OW), kernel, stride, padding, dilation.

    padding: a (vertical, horizontal) pair or four sides; returned as ((top, bottom), (left, right)).
    Output sizes are PyTorch's: with ceil_mode, a window may reach beyond the padded input by less than a stride, and a
    last window that would start in the padding after the input is dropped. Raises TypeError, ValueError.
    """
    C, *size = check_ints("input shape", in_shape, 3, 1)
    check_element_count("input shape", (C, *size))
    kernel, stride = check_ints("pool_size", pool_size, 2, 1), check_ints("stride", stride, 2, 1)
    dilation, padding = check_ints("dilation", dilation, 2, 1), _sides(padding)
    if prod(kernel) > MAX_CELLS:
        raise ValueError(f"pool_size: expected fewer than 2**31 cells in a window, got {kernel}")
    axes = zip(("height", "width"), size, kernel, stride, padding, dilation, strict=True)
    windows = [_windows(*axis, ceil_mode) for axis in axes]
    check_window_count(windows)
    padded = [n + sum(p) for n, p in zip(size, padding, strict=True)]
    stride = [min(s, n) for s, n in zip(stride, padded, strict=True)]  # a longer stride leaves the same single window
    dilation = [min(e, n) for e, n in zip(dilation, padded, strict=True)]  # a longer one: only the first cell is inside
    return (C, *size), windows, kernel, stride, padding, dilation


def adaptive_pooling(in_shape, size):
    """Returns the sizes of an adaptive pooling: (C, H, W), (OH, OW). Raises TypeError, ValueError."""
    in_shape, size = check_ints("input shape", in_shape, 3, 1), check_ints("size", size, 2, 1)
    check_element_count("input shape", in_shape)
    check_window_count(size)
    check_element_count("output shape", (in_shape[0], *size))
    longest = [-(-n // m) + 1 for n, m in zip(in_shape[1:], size, strict=True)]
    if prod(longest) > MAX_CELLS:
        raise ValueError(f"size: expected fewer than 2**31 cells in a window, got {size} of {in_shape[1:]}")
    return in_shape, size


def check_window_count(windows):
    """Raises ValueError if one of the numbers of windows along an axis is above MAX_WINDOWS."""
    if max(windows) > MAX_WINDOWS:
        raise ValueError(f"output shape: expected at most {MAX_WINDOWS} windows along an axis, got {tuple(windows)}")


def _sides(padding):
    """Returns a pair or four sides as ((top, bottom), (left, right))."""
    if isinstance(padding, (tuple, list)) and len(padding) == 4:
        top, bottom, left, right = check_ints("padding", padding, 4, 0)
    else:
        top, left = bottom, right = check_ints("padding", padding, 2, 0)
    return (top, bottom), (left, right)


def _windows(name, size, kernel, stride, padding, dilation, ceil_mode):
    """Returns the number of windows along one axis.

    Raises ValueError if no window fits, or a window could lie in the padding.
    """
    span = (kernel - 1) * dilation + 1
    window = f"{kernel}" if span == kernel else f"{kernel} with a dilation of {dilation}"
    if 2 * max(padding) > kernel:
        raise ValueError(f"padding ({name}): expected at most half the pool_size of {kernel}, got {max(padding)}")
    room = size + sum(padding) - span
    n = (-(-room // stride) if ceil_mode else room // stride) + 1
    n -= bool(ceil_mode) and (n - 1) * stride >= size + padding[0]
    if n < 1:
        equal = padding[0] == padding[1]
        room = f"{size} of {name} with padding {padding[0] if equal else padding}"
        room += f" and ceil_mode, which adds less than the stride of {stride}" if ceil_mode else ""
        raise ValueError(f"pool_size: a window of {window} does not fit into {room}")
    return n


def transposed(in_shape, filters, kernel_size, stride, padding, output_padding, dilation, groups):
    """Returns the output shape of a transposed convolution, and its padding in the form of `convolution`.

    padding: rows and columns cropped from the output, a pair or four sides.
    Raises TypeError or ValueError. `convolution`, from output to input, checks the rest.
    """
    C, H, W = check_ints("input shape", in_shape, 3, 1)
    (filters,), (groups,) = check_ints("filters", (filters,), 1, 1), check_ints("groups", (groups,), 1, 1)
    kernel, stride = check_ints("kernel_size", kernel_size, 2, 1), check_ints("stride", stride, 2, 1)
    padding, dilation = _sides(padding), check_ints("dilation", dilation, 2, 1)
    output_padding = check_ints("output_padding", output_padding, 2, 0)
    if C % groups or filters % groups:
        raise ValueError(f"groups: expected a divisor of {C} input channels and {filters} filters, got {groups}")
    if any(extra >= max(s, e) for extra, s, e in zip(output_padding, stride, dilation, strict=True)):
        less = f"less than the stride {stride} or the dilation {dilation}"
        raise ValueError(f"output_padding: expected {less}, got {output_padding}")
    size = [
        (n - 1) * s - sum(p) + (k - 1) * e + 1 + extra
        for n, s, p, k, e, extra in zip((H, W), stride, padding, kernel, dilation, output_padding, strict=True)
    ]
    if min(size) < 1:
        padding = tuple(p[0] if p[0] == p[1] else p for p in padding)
        raise ValueError(f"padding: expected to keep at least 1 x 1, got {padding}, which keeps {size[0]} x {size[1]}")
    return (filters, *size), (*padding[0], *padding[1])
