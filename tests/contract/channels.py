"""Cases of layers that choose or reorder channels and axes."""

from contract.case import Case, any_shape

from minidl.layers import ChannelShuffle, Columns, Permute


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


DRAWS = {"ChannelShuffle": channel_shuffle, "Columns": columns, "Permute": permute}
