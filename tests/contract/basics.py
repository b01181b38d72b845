"""Dense and the layers without parameters that any net has."""

from contract.case import Case, any_shape, functional

from minidl.layers import Dense, Flatten, ReLU, Rescale


def dense(rng):
    inputs, units = (int(n) for n in rng.integers(1, 40, 2))
    return Case(Dense(units), (inputs,), lambda x, weight, bias: functional().linear(x, weight, bias))


def flatten(rng):
    return Case(Flatten(), any_shape(rng), lambda x: x.flatten(1))


def relu(rng):
    return Case(ReLU(), any_shape(rng), lambda x: functional().relu(x))


def rescale(rng):
    scale, offset = (float(n) for n in rng.standard_normal(2))
    return Case(Rescale(scale, offset), any_shape(rng), lambda x: x * scale + offset)


DRAWS = {"Dense": dense, "Flatten": flatten, "ReLU": relu, "Rescale": rescale}
