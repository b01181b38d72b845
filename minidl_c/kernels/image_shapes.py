"""Checks of the arguments of ops on images: padding, upsampling, augmentation, normalization.

Each function returns the sizes that the op stores, as one tuple, or raises TypeError or ValueError.
"""

from math import prod

from numpy import finfo

from minidl_c.op import check_element_count, check_ints

MAX_PIXELS = 2**24  # of an image for augmentation: an index of its elements in a tile fits in 32 bits
MODES = ("constant", "reflect", "replicate", "circular")  # of borders, in the order of borders.h
ZOOMS = 2**-10, 2**10  # beyond them, an image shows a pixel, or is one


def padded(in_shape, padding):
    """Returns C, H, W, OH, OW, top, left for a padding of (top, bottom, left, right) pixels."""
    c, h, w = check_ints("input shape", in_shape, 3, 1)
    top, bottom, left, right = check_ints("padding", padding, 4, 0)
    check_element_count("output shape", (c, top + h + bottom, left + w + right))
    return c, h, w, top + h + bottom, left + w + right, top, left


def border_mode(name, mode, image, borders):
    """Returns the index of a mode in MODES; raises ValueError unless an image has enough pixels for its borders.

    name: of the argument that the borders come from; image, borders: (vertical, horizontal) pairs.
    """
    if mode not in MODES:
        raise ValueError(f"mode: expected one of {MODES}, got {mode!r}")
    for size, side, border in zip(image, ("height", "width"), borders, strict=True):
        most = {"reflect": size - 1, "circular": size}.get(mode, border)
        if border > most:
            raise ValueError(f"{name}: expected at most {most} for mode {mode!r} and a {side} of {size}, got {border}")
    return MODES.index(mode)


def upsampled(in_shape, scale):
    """Returns C, H, W, OH, OW, and the (vertical, horizontal) scale."""
    c, h, w = check_ints("input shape", in_shape, 3, 1)
    vertical, horizontal = check_ints("scale", scale, 2, 1)
    check_element_count("output shape", (c, h * vertical, w * horizontal))
    return c, h, w, h * vertical, w * horizontal, vertical, horizontal


def interpolated(in_shape, size, scale, align_corners):
    """Returns (C, H, W), (OH, OW), and for each axis the step from output to source coordinates.

    scale: of the coordinates, a pair; without effect if align_corners, where the outer pixels keep their places.
    """
    c, *image = check_ints("input shape", in_shape, 3, 1)
    size = check_ints("size", size, 2, 1)
    if max(size) > MAX_PIXELS:
        raise ValueError(f"size: expected at most {MAX_PIXELS} pixels along an axis, got {size}")
    check_element_count("input shape", (c, *image))
    check_element_count("output shape", (c, *size))
    if not align_corners and not all(0 < s <= MAX_PIXELS and 1 / s <= MAX_PIXELS for s in scale):
        raise ValueError(f"scale: expected numbers from 1 / {MAX_PIXELS} to {MAX_PIXELS}, got {scale}")
    if align_corners:
        return (c, *image), size, [(n - 1) / (m - 1) if m > 1 else 0.0 for n, m in zip(image, size, strict=True)]
    return (c, *image), size, [1 / s for s in scale]


def cropping(in_shape, size, first, last):
    """Returns C, H, W, OH, OW, first row, first column, and the number of choices for the row and the column."""
    c, h, w = check_ints("input shape", in_shape, 3, 1)
    size = check_ints("size", size, 2, 1)
    first = check_ints("first", first, 2, -MAX_PIXELS)
    last = check_ints("last", last, 2, -MAX_PIXELS)
    if max(h * w, prod(size), *last) > MAX_PIXELS:
        raise ValueError(f"size: expected at most {MAX_PIXELS} pixels, got {size} of {h} x {w}, beginning at {last}")
    if first[0] > last[0] or first[1] > last[1]:
        raise ValueError(f"first: expected at most {last}, got {first}")
    return c, h, w, *size, *first, last[0] - first[0] + 1, last[1] - first[1] + 1


def augmented(in_shape):
    """Returns C, H, W of images for random operations."""
    c, h, w = check_ints("input shape", in_shape, 3, 1)
    if h * w > MAX_PIXELS:
        raise ValueError(f"input shape: expected at most {MAX_PIXELS} pixels, got {h} x {w}")
    check_element_count("input shape", (c, h, w))
    return c, h, w


def cutting(in_shape, size):
    """Returns C, H, W and the sizes of the box, (vertical, horizontal)."""
    size = check_ints("size", size, 2, 1)
    if max(size) > MAX_PIXELS:
        raise ValueError(f"size: expected at most {MAX_PIXELS} pixels a side, got {size}")
    return *augmented(in_shape), *size


def affine_ranges(degrees, zoom):
    """Returns the first and last angle, in turns, and the first and last zoom, as floats."""
    angles, zooms = check_range("degrees", degrees, -360, 360), check_range("zoom", zoom, *ZOOMS)
    return *(angle / 360 for angle in angles), *zooms


def color_ranges(in_shape, brightness, contrast, saturation):
    """Returns C, H, W and the (first, last) pairs of factors, as floats."""
    c, h, w = augmented(in_shape)
    if c not in (1, 3):
        raise ValueError(f"input shape: expected 1 or 3 channels, got {c}")
    named = {"brightness": brightness, "contrast": contrast, "saturation": saturation}
    ranges = [check_range(name, pair, 0, float(finfo("float32").max)) for name, pair in named.items()]
    if c == 1 and ranges[2] != (1, 1):
        raise ValueError(f"saturation: expected 3 channels, got {c}")
    return c, h, w, ranges


def check_range(name, pair, smallest, largest):
    """Returns a (first, last) pair as floats from `smallest` to `largest`; raises ValueError otherwise."""
    first, last = map(float, pair)
    if not smallest <= first <= last <= largest:
        raise ValueError(f"{name}: expected (first, last) from {smallest} to {largest}, got {(first, last)}")
    return first, last


def channel_statistics(mean, std, channels, dtype):
    """Returns the means of all channels, then their standard deviations, as floats."""
    if len(mean) != channels or len(std) != channels:
        raise ValueError(f"mean and std: expected {channels} numbers, one per channel, got {len(mean)} and {len(std)}")
    smallest, largest = float(finfo(dtype).tiny), float(finfo(dtype).max)  # subnormals are flushed to zero
    for m, s in zip(mean, std, strict=True):
        # lanes without an example hold -m / s
        if not (abs(m) <= largest and smallest <= s <= largest and abs(m) / s <= largest):
            raise ValueError(f"mean and std: expected numbers that {dtype} can hold and divide, got {m!r} and {s!r}")
    return *map(float, mean), *map(float, std)
