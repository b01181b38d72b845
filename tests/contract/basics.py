"""Cases of Dense, ReLU, Rescale, Normalize and Scale."""

from contract.case import Case, any_shape, functional

from minidl.layers import Dense, Normalize, ReLU, Rescale, Scale


def dense(rng):
    inputs, units = (int(n) for n in rng.integers(1, 40, 2))
    layer = Dense(units, use_bias=bool(rng.random() < 0.8))
    return Case(layer, (inputs,), lambda x, weight, bias=None: functional().linear(x, weight, bias))


def relu(rng):
    return Case(ReLU(), any_shape(rng), lambda x: functional().relu(x))


def rescale(rng):
    scale, offset = (float(n) for n in rng.standard_normal(2))
    return Case(Rescale(scale, offset), any_shape(rng), lambda x: x * scale + offset)


def normalize(rng):
    shape = any_shape(rng)
    mean, std = rng.standard_normal(shape[0]), rng.random(shape[0]) + 0.1
    if rng.random() < 0.5:
        mean[:], std[:] = mean[0], std[0]
        layer = Normalize(float(mean[0]), float(std[0]))
    else:
        layer = Normalize(mean.tolist(), std.tolist())
    column = (-1,) + (1,) * (len(shape) - 1)
    return Case(layer, shape, lambda x: (x - x.new_tensor(mean.reshape(column))) / x.new_tensor(std.reshape(column)))


def scale(rng):
    shape, use_bias = any_shape(rng), bool(rng.integers(2))
    axes = sorted(int(axis) for axis in rng.choice(len(shape), rng.integers(1, len(shape) + 1), replace=False))
    if rng.random() < 0.5:
        axes = [0]
    sizes = [size if axis in axes else 1 for axis, size in enumerate(shape)]

    def torch(x, weight, bias=None):
        y = x * weight.reshape(sizes)
        return y if bias is None else y + bias.reshape(sizes)

    layer = Scale(float(rng.standard_normal()), use_bias=use_bias, axis=axes[0] if len(axes) == 1 else axes)
    return Case(layer, shape, torch)


DRAWS = {"Dense": dense, "Normalize": normalize, "ReLU": relu, "Rescale": rescale, "Scale": scale}
