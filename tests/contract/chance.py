"""Layers that draw random numbers: PyTorch draws others."""

from contract.case import Case, any_shape

from minidl.layers import Dropout


def dropout(rng):
    return Case(Dropout(float(rng.choice([0.1, 0.5, 0.9]))), any_shape(rng))


DRAWS = {"Dropout": dropout}
