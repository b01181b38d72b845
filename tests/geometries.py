"""Geometries of convolutions and max-pooling: hand-picked forms and thousands of random cases."""

from dataclasses import dataclass, replace

import numpy as np

BATCHES = (0, 1, 1, 2, 3, 15, 15, 16, 16, 17, 17, 33, 33)  # around the tile size of 16 examples


def four_sides(padding):
    """Returns (rows, columns) or (top, bottom, left, right) as ((top, bottom), (left, right))."""
    if len(padding) == 4:
        return padding[:2], padding[2:]
    return (padding[0],) * 2, (padding[1],) * 2


@dataclass(frozen=True)
class Conv:
    """A convolution; padding is (top, bottom, left, right)."""

    batch: int
    channels: int
    height: int
    width: int
    filters: int
    kernel: tuple
    stride: tuple = (1, 1)
    padding: tuple = (0, 0, 0, 0)
    dilation: tuple = (1, 1)
    groups: int = 1

    @property
    def x_shape(self):
        return (self.batch, self.channels, self.height, self.width)

    @property
    def w_shape(self):
        return (self.filters, self.channels // self.groups, *self.kernel)

    @property
    def has_windows(self):
        return min(self.spare) >= 0

    @property
    def spare(self):
        """How far the dilated kernel can move in the padded input, (rows, columns)."""
        top, bottom, left, right = self.padding
        padded = (self.height + top + bottom, self.width + left + right)
        reach = [d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True)]
        return (padded[0] - reach[0], padded[1] - reach[1])

    @property
    def out_size(self):
        return tuple(s // step + 1 for s, step in zip(self.spare, self.stride, strict=True))

    @property
    def y_shape(self):
        return (self.batch, self.filters, *self.out_size)

    @property
    def terms(self):
        """The number of products per output pixel."""
        return int(np.prod(self.w_shape[1:]))

    @property
    def options(self):
        return {name: getattr(self, name) for name in ("stride", "padding", "dilation", "groups")}


@dataclass(frozen=True)
class Transposed:
    """A transposed convolution; output_padding is (rows, columns), padding too, or (top, bottom, left, right)."""

    batch: int
    channels: int
    height: int
    width: int
    filters: int
    kernel: tuple
    stride: tuple = (1, 1)
    padding: tuple = (0, 0)
    output_padding: tuple = (0, 0)
    dilation: tuple = (1, 1)
    groups: int = 1

    @property
    def x_shape(self):
        return (self.batch, self.channels, self.height, self.width)

    @property
    def w_shape(self):
        return (self.channels, self.filters // self.groups, *self.kernel)

    @property
    def sides(self):
        """((top, bottom), (left, right))."""
        return four_sides(self.padding)

    @property
    def spread(self):
        """The rows and columns of the output before its padding is cropped."""
        parts = zip(self.x_shape[2:], self.stride, self.dilation, self.kernel, self.output_padding, strict=True)
        return tuple((n - 1) * step + d * (k - 1) + 1 + extra for n, step, d, k, extra in parts)

    @property
    def y_shape(self):
        return (self.batch, self.filters, *(n - sum(p) for n, p in zip(self.spread, self.sides, strict=True)))

    @property
    def options(self):
        names = ("stride", "padding", "output_padding", "dilation", "groups")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Pool:
    """A pooling; padding is (rows, columns), the same on both sides, or (top, bottom, left, right)."""

    batch: int
    channels: int
    height: int
    width: int
    kernel: tuple
    stride: tuple
    padding: tuple = (0, 0)
    ceil_mode: bool = False
    dilation: tuple = (1, 1)

    @property
    def x_shape(self):
        return (self.batch, self.channels, self.height, self.width)

    @property
    def has_windows(self):
        """Whether at least one window fits, and every window has a cell in the image.

        In ceil mode a window may extend past the padding by less than a stride.
        """
        return min(self.out_size) > 0 and all(
            ((places >= 0) & (places < size)).any(axis=1).all()
            for places, size in zip((self.places(0), self.places(1)), (self.height, self.width), strict=True)
        )

    @property
    def sides(self):
        """((top, bottom), (left, right))."""
        return four_sides(self.padding)

    def places(self, axis):
        """Returns the coordinate of each cell of each window along an axis, (windows, cells)."""
        starts = np.arange(self.out_size[axis]) * self.stride[axis] - self.sides[axis][0]
        return starts[:, None] + np.arange(self.kernel[axis]) * self.dilation[axis]

    @property
    def reach(self):
        """The rows and columns that a window spans."""
        return tuple(d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True))

    @property
    def spare(self):
        sizes = zip((self.height, self.width), self.sides, self.reach, strict=True)
        return tuple(size + sum(sides) - reach for size, sides, reach in sizes)

    @property
    def out_size(self):
        """Rounded up in ceil mode, except that no window starts in the end padding (as in PyTorch)."""
        sizes = []
        for axis, size in enumerate((self.height, self.width)):
            spare, stride = self.spare[axis], self.stride[axis]
            count = spare // stride + 1
            next_start = count * stride - self.sides[axis][0]
            if self.ceil_mode and spare % stride and next_start < size:
                count += 1
            sizes.append(count)
        return tuple(sizes)

    @property
    def y_shape(self):
        return (self.batch, self.channels, *self.out_size)

    @property
    def options(self):
        names = ("stride", "padding", "ceil_mode", "dilation")
        return {"pool_size": self.kernel} | {name: getattr(self, name) for name in names}


# ---- random geometries ---------------------------------------------------------------------------
def _ints(values):
    return tuple(int(value) for value in values)


def _draw_conv(rng):
    return Conv(
        batch=int(rng.choice(BATCHES)),
        channels=int(rng.integers(1, 6)),
        height=int(rng.integers(1, 13)),
        width=int(rng.integers(1, 13)),
        filters=int(rng.integers(1, 10)),
        kernel=_ints(rng.integers(1, 6, 2)),
        stride=_ints(rng.integers(1, 4, 2)),
        padding=_ints(rng.integers(0, 3, 4) * rng.integers(2)),
    )


def _draw_winograd(rng):
    return Conv(
        batch=int(rng.choice((3, 5, 16, 17, 19))),
        channels=16 * int(rng.integers(1, 6)),
        height=int(rng.integers(1, 9)),
        width=int(rng.integers(1, 9)),
        filters=16 * int(rng.integers(1, 6)),
        kernel=(3, 3),
        padding=_ints(rng.integers(0, 4, 4)),
    )


def _draw_pool(rng):
    kernel = _ints(rng.integers(1, 6, 2))
    return Pool(
        batch=int(rng.choice(BATCHES)),
        channels=int(rng.integers(1, 6)),
        height=int(rng.integers(1, 14)),
        width=int(rng.integers(1, 14)),
        kernel=kernel,
        stride=_ints(rng.integers(1, 5, 2)),
        padding=_ints(rng.integers(0, k // 2 + 1) for k in kernel),
        ceil_mode=bool(rng.integers(2)),
    )


def _beyond(rng, kernel):
    return _ints(k + rng.integers(1, 4) for k in kernel)


def _grouped(rng, c):
    groups = int(rng.integers(2, 4))
    return {"groups": groups, "channels": groups * c.channels, "filters": groups * c.filters}


CONV_FORMS = {  # what each form fixes in a random geometry
    "plain": lambda rng, c: {"stride": (1, 1)},
    "strided": lambda rng, c: {"stride": _ints(rng.integers(2, 4, 2))},
    "stride > kernel": lambda rng, c: {"stride": _beyond(rng, c.kernel)},
    "dilated": lambda rng, c: {"dilation": _ints(rng.integers(1, 4, 2))},
    "grouped": _grouped,
    "grouped, strided and dilated": lambda rng, c: {
        **_grouped(rng, c),
        "stride": _ints(rng.integers(1, 3, 2)),
        "dilation": _ints(rng.integers(1, 3, 2)),
    },
    "depthwise": lambda rng, c: {
        "groups": c.channels,
        "filters": c.channels * int(rng.integers(1, 4)),
    },
    "1xN": lambda rng, c: {"height": 1, "width": c.width + 8, "kernel": (1, c.kernel[1])},
    "Nx1": lambda rng, c: {"height": c.height + 8, "width": 1, "kernel": (c.kernel[0], 1)},
    "1x1": lambda rng, c: {"kernel": (1, 1)},
    "kernel = input": lambda rng, c: {"kernel": (c.height, c.width), "padding": (0, 0, 0, 0)},
    "padding > kernel": lambda rng, c: {"padding": _beyond(rng, np.repeat(c.kernel, 2))},
    "one-sided": lambda rng, c: {"padding": _ints(rng.permutation([4, 0, 1, 0]))},
    "many channels": lambda rng, c: {
        "channels": int(rng.integers(8, 40)),
        "filters": int(rng.integers(8, 50)),
    },
    "long rows": lambda rng, c: {"width": int(rng.integers(16, 70)), "stride": (1, c.stride[1])},
}

WINOGRAD_FORMS = {
    "plain": lambda rng, c: {"padding": (1, 1, 1, 1)},
    "one pixel": lambda rng, c: {"height": 1, "width": 1, "padding": _ints(rng.integers(1, 4, 4))},
    "one output": lambda rng, c: {"height": 3, "width": 3, "padding": (0, 0, 0, 0)},
    "one row": lambda rng, c: {"height": 1, "width": c.width + 4, "padding": (0, 2, 0, 0)},
    "padding > kernel": lambda rng, c: {"padding": _beyond(rng, np.repeat(c.kernel, 2))},
    "uneven": lambda rng, c: {},
}

POOL_FORMS = {
    "plain": lambda rng, c: {"stride": c.kernel},
    "overlapping": lambda rng, c: {"kernel": _ints(rng.integers(2, 6, 2)), "stride": (1, 2)},
    "gaps": lambda rng, c: {"stride": _beyond(rng, c.kernel)},
    "2x2": lambda rng, c: {"kernel": (2, 2), "stride": (2, 2), "width": c.width + 8},
    "3x3 by 2": lambda rng, c: {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1)},
    "1xN": lambda rng, c: {"height": 1, "kernel": (1, c.kernel[1]), "padding": (0, c.padding[1])},
    "kernel = input": lambda rng, c: {"kernel": (c.height, c.width), "padding": (0, 0)},
    "most padding": lambda rng, c: {"padding": _ints(k // 2 for k in c.kernel)},
    "large window": lambda rng, c: {  # more cells than a byte can index
        "height": c.height + 17,
        "width": c.width + 17,
        "kernel": _ints(rng.integers(16, 20, 2)),
    },
    "dilated": lambda rng, c: {
        "height": c.height + 5,
        "width": c.width + 5,
        "dilation": _ints(rng.integers(1, 5, 2)),
    },
    "four sides": lambda rng, c: {
        "padding": _ints(rng.integers(0, k // 2 + 1) for k in np.repeat(c.kernel, 2)),
        "dilation": _ints(rng.integers(1, 3, 2)),
    },
    "beyond the padding": lambda rng, c: {
        "kernel": (kernel := _beyond(rng, (c.height + 2 * c.padding[0], c.width + 2 * c.padding[1]))),
        "stride": kernel,
        "ceil_mode": True,
    },
}


def _cases(draw, forms, seed, count, fits):
    """Returns `count` geometries, cycling through the forms; redraws what does not fit or costs too much."""
    rng = np.random.default_rng(seed)
    fixed = list(forms.values())
    for index in range(count):
        case = None
        while case is None or not case.has_windows or not fits(case):
            case = draw(rng)
            case = replace(case, **fixed[index % len(fixed)](rng, case))
        yield case


def conv_cases(seed, count):
    """Returns random convolutions: each form of CONV_FORMS in turn, the rest of the geometry random."""
    return _cases(_draw_conv, CONV_FORMS, seed, count, lambda c: np.prod(c.y_shape) * c.terms <= 300_000)


def winograd_cases(seed, count):
    """Returns random convolutions of small images for Winograd's algorithm: each form of WINOGRAD_FORMS in turn."""
    return _cases(_draw_winograd, WINOGRAD_FORMS, seed, count, lambda c: True)


def pool_cases(seed, count):
    """Returns random max-pooling cases: each form of POOL_FORMS in turn, the rest of the geometry random."""
    return _cases(
        _draw_pool,
        POOL_FORMS,
        seed,
        count,
        lambda c: (
            all(2 * max(sides) <= k for sides, k in zip(c.sides, c.kernel, strict=True))
            and np.prod(c.y_shape) * np.prod(c.kernel) <= 100_000
        ),
    )


def depthwise_cases(seed, count):
    """Returns the geometries of `conv_cases` as depthwise convolutions: one group per channel, 1 to 3 filters each."""
    rng = np.random.default_rng(seed)
    for case in conv_cases(seed, count):
        yield replace(case, groups=case.channels, filters=case.channels * int(rng.choice([1, 1, 2, 3])))


def transposed_cases(seed, count):
    """Returns the geometries of `conv_cases` transposed: from their output shapes back to their inputs."""
    rng = np.random.default_rng(seed)
    for case in conv_cases(seed, count):
        extra = _ints(rng.integers(0, max(s, d)) for s, d in zip(case.stride, case.dilation, strict=True))
        same = {name: getattr(case, name) for name in ("batch", "kernel", "stride", "dilation", "groups")}
        height, width = case.out_size
        back = Transposed(
            channels=case.filters, height=height, width=width, filters=case.channels, output_padding=extra, **same
        )
        yield replace(back, padding=_ints(rng.integers(0, min((n - 1) // 2, 4) + 1) for n in back.spread))


def cropped_cases(seed, count):
    """Returns the geometries of `transposed_cases` with a padding of its own on each side."""
    rng = np.random.default_rng(seed)
    for case in transposed_cases(seed, count):
        (tall, wide), sides = case.spread, np.zeros(4, int)
        sides[:2] = rng.multinomial(rng.integers(0, min(tall, 6)), (0.5, 0.5))
        sides[2:] = rng.multinomial(rng.integers(0, min(wide, 6)), (0.5, 0.5))
        yield replace(case, padding=_ints(sides))
