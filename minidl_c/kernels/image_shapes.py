"""What may be done to the pixels of images, told before anything of it is built: frames, blocks, pieces, units.

Each function returns the numbers that an op keeps, in one tuple, or raises TypeError or ValueError.
"""

from math import prod

from numpy import finfo

from minidl_c.op import product_of, whole_numbers

MOST_PIXELS = 2**24  # of an image that is cut at random: 16 times as many have numbers of 32 bits


def padded(in_shape, padding):
    """C, H, W, OH, OW, top, left of images in a frame of (top, bottom, left, right) pixels."""
    c, h, w = whole_numbers("input shape", in_shape, 3, 1)
    top, bottom, left, right = whole_numbers("padding", padding, 4, 0)
    product_of("output shape", (c, top + h + bottom, left + w + right))
    return c, h, w, top + h + bottom, left + w + right, top, left


def upsampled(in_shape, scale):
    """C, H, W, OH, OW, and the (vertical, horizontal) scale."""
    c, h, w = whole_numbers("input shape", in_shape, 3, 1)
    vertical, horizontal = whole_numbers("scale", scale, 2, 1)
    product_of("output shape", (c, h * vertical, w * horizontal))
    return c, h, w, h * vertical, w * horizontal, vertical, horizontal


def pieces(in_shape, size, first, last):
    """C, H, W, OH, OW, first row, first column, choices of rows, choices of columns."""
    c, h, w = whole_numbers("input shape", in_shape, 3, 1)
    size = whole_numbers("size", size, 2, 1)
    first = whole_numbers("first", first, 2, -MOST_PIXELS)
    last = whole_numbers("last", last, 2, -MOST_PIXELS)
    if max(h * w, prod(size), *last) > MOST_PIXELS:
        raise ValueError(f"size: expected at most {MOST_PIXELS} pixels, got {size} of {h} x {w}, beginning at {last}")
    if first[0] > last[0] or first[1] > last[1]:
        raise ValueError(f"first: expected places in front of {last}, got {first}")
    return c, h, w, *size, *first, last[0] - first[0] + 1, last[1] - first[1] + 1


def units(mean, std, channels, dtype):
    """The means of all channels, then their standard deviations, as floats."""
    if len(mean) != channels or len(std) != channels:
        raise ValueError(f"mean and std: expected {channels} numbers, one a channel, got {len(mean)} and {len(std)}")
    least, most = float(finfo(dtype).tiny), float(finfo(dtype).max)  # what is smaller is flushed to zero
    for m, s in zip(mean, std, strict=True):
        # the last one is what lanes without an example hold
        if not (abs(m) <= most and least <= s <= most and abs(m) / s <= most):
            raise ValueError(f"mean and std: expected numbers that {dtype} can hold and divide, got {m!r} and {s!r}")
    return *map(float, mean), *map(float, std)
