"""Cases of layers that choose, reorder or reduce channels and axes."""

from contract.case import Case, any_shape

from minidl.layers import ChannelShuffle, Columns, Permute, Reduce


def columns(rng):
    """Draws a range of columns, counted from the start or from the end, often beyond one block of 16."""
    shape = (int(rng.integers(1, 50)), *any_shape(rng)[1:])
    start = int(rng.integers(shape[0]))
    stop = int(rng.integers(start + 1, shape[0] + 1))
    layer = Columns(start, stop)
    if rng.random() < 0.3:
        layer = Columns(start - shape[0], None if stop == shape[0] else stop - shape[0])
    return Case(layer, shape, lambda x: x[:, start:stop])


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


DRAWS = {"ChannelShuffle": channel_shuffle, "Columns": columns, "Permute": permute, "Reduce": reduce}
