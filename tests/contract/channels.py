"""Cases of layers that choose, reorder or reduce channels and axes."""

from contract.case import Case, any_shape, functional

from minidl.layers import ChannelShuffle, Columns, Permute, PixelShuffle, PixelUnshuffle, Reduce


def columns(rng):
    """Draws a range of columns, counted from the start or from the end, often beyond one block of 16; or of an axis."""
    if rng.random() < 0.5:
        return columns_of_an_axis(rng)
    shape = (int(rng.integers(1, 50)), *any_shape(rng)[1:])
    start = int(rng.integers(shape[0]))
    stop = int(rng.integers(start + 1, shape[0] + 1))
    layer = Columns(start, stop)
    if rng.random() < 0.3:
        layer = Columns(start - shape[0], None if stop == shape[0] else stop - shape[0])
    return Case(layer, shape, lambda x: x[:, start:stop])


def columns_of_an_axis(rng):
    """Draws some columns in steps, also backwards, of any axis."""
    shape = (int(rng.integers(1, 40)), *any_shape(rng))
    axis, step = int(rng.integers(len(shape))), int(rng.choice([-3, -2, -1, 2, 3]))
    size = shape[axis]
    chosen = range(int(rng.integers(size)), int(rng.choice([-1, size])), step)
    if not chosen:
        chosen = range(size)[::step]
    layer = Columns(chosen.start, None if chosen.stop < 0 else chosen.stop, step, axis - len(shape))

    def by_torch(x):
        import torch

        return x.index_select(axis + 1, torch.tensor(list(chosen)))

    return Case(layer, shape, by_torch)


def spatial(rng):
    """Draws the sizes of an image or of a signal."""
    return tuple(int(n) for n in rng.integers(1, 6, rng.integers(1, 3)))


def pixel_shuffle(rng):
    sizes, r, channels, crd = spatial(rng), int(rng.integers(1, 4)), int(rng.integers(1, 6)), rng.random() < 0.5
    n = len(sizes)

    def by_torch(x):
        if not crd:
            x = x.unflatten(1, (r**n, channels)).transpose(1, 2).flatten(1, 2)
        if n == 2:
            return functional().pixel_shuffle(x, r)
        return x.unflatten(1, (channels, r)).transpose(2, 3).flatten(2)

    return Case(PixelShuffle(r, "CRD" if crd else "DCR"), (channels * r**n, *sizes), by_torch)


def pixel_unshuffle(rng):
    sizes, r, channels, crd = spatial(rng), int(rng.integers(1, 4)), int(rng.integers(1, 6)), rng.random() < 0.5
    n = len(sizes)

    def by_torch(x):
        y = functional().pixel_unshuffle(x, r) if n == 2 else x.unflatten(2, (-1, r)).transpose(2, 3).flatten(1, 2)
        return y if crd else y.unflatten(1, (channels, r**n)).transpose(1, 2).flatten(1, 2)

    shape = (channels, *(size * r for size in sizes))
    return Case(PixelUnshuffle(r, "CRD" if crd else "DCR"), shape, by_torch)


def permute(rng):
    axes = [int(axis) for axis in rng.permutation(int(rng.integers(1, 5)))]
    shape = tuple(int(n) for n in rng.integers(1, 6, len(axes)))
    return Case(Permute(axes), shape, lambda x: x.permute(0, *(axis + 1 for axis in axes)))


def channel_shuffle(rng):
    groups = int(rng.integers(1, 6))
    shape = (groups * int(rng.integers(1, 9)), *any_shape(rng)[1:])

    def by_torch(x):
        return x.reshape(len(x), groups, -1, *x.shape[2:]).transpose(1, 2).reshape(x.shape)

    return Case(ChannelShuffle(groups), shape, by_torch)


def reduce(rng):
    """Draws a reduction; of a maximum in PyTorch, over one axis after the other, the first one gets the gradient."""
    shape, function = any_shape(rng), str(rng.choice(["mean", "sum", "max", "min", "l2"]))
    axes = sorted(int(axis) for axis in rng.choice(len(shape), rng.integers(1, len(shape) + 1), replace=False))
    keepdims = bool(rng.integers(2))
    axis = axes[0] - len(shape) if len(axes) == 1 else axes

    def torch(x):
        dims = [axis + 1 for axis in axes]
        if function == "l2":
            y = x.square().sum(dims, keepdim=keepdims).sqrt()
        else:
            name = {"max": "amax", "min": "amin"}.get(function, function)
            y = getattr(x, name)(dims, keepdim=keepdims)
        return y.reshape(len(x), 1) if y.ndim == 1 else y

    return Case(Reduce(function, axis, keepdims=keepdims), shape, torch)


DRAWS = {
    "ChannelShuffle": channel_shuffle,
    "Columns": columns,
    "Permute": permute,
    "PixelShuffle": pixel_shuffle,
    "PixelUnshuffle": pixel_unshuffle,
    "Reduce": reduce,
}
