"""Random models of random layers, for tests of exported files."""

import copy

import numpy as np
from contract.every_layer import DRAWS

from minidl import Sequential
from minidl.engine.layer_list import from_spec, to_spec

ALL = sorted(DRAWS)
MAX_ELEMENTS = 3000  # of a value: a chain of upsampling layers grows


def randomize(model, rng):
    """Draws all parameters and buffers, variances above 0."""
    state = model.state_dict()
    for name, array in state.items():
        values = rng.standard_normal(array.shape) * (0.5 if array.ndim > 1 else 1)
        state[name] = (np.abs(values) + 0.1 if name.endswith("running_var") else values).astype(array.dtype)
    model.load_state_dict(state)
    return model


def random_model(rng, dtype, layers=8, names=ALL):
    """Returns a model of at most `layers` random layers, and a function (n) that draws inputs for its first one.

    names: those of the layers' classes.
    """
    case = DRAWS[str(rng.choice(names))](rng)
    chain = [case.layer]
    for _ in range(rng.integers(layers)):
        name = str(rng.choice(names))
        other = DRAWS[name](rng).layer
        if name == "Embedding":  # of categories, which no other layer returns
            continue
        try:
            shape = Sequential(from_spec(to_spec([*chain, other])), case.in_shape).output_shape
        except (TypeError, ValueError):  # it takes other shapes
            continue
        if np.prod(shape) <= MAX_ELEMENTS:
            chain.append(other)
    model = randomize(Sequential(from_spec(to_spec(chain)), case.in_shape, dtype=dtype), rng)
    if np.isnan(model.predict(case.values(copy.deepcopy(rng), (3, *case.in_shape)).astype(dtype))).all():
        return random_model(rng, dtype, layers, names)  # scores that are NaN, as by Sqrt after LogSigmoid, test nothing
    return model, lambda n: case.values(rng, (n, *case.in_shape)).astype(dtype)
