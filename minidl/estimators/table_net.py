"""The network of a table: an encoding of its columns, and hidden layers."""

from __future__ import annotations

from collections.abc import Sequence

from minidl.estimators.table_encoder import TableEncoder
from minidl.initializers import he_normal
from minidl.layers import Columns, Dense, Dropout, OneHot, Parallel, PiecewiseLinearEncoding, ReLU
from minidl.layers.base import Layer
from minidl.sequential import Sequential


def table_net(
    encoder: TableEncoder, outputs: int, hidden: Sequence[int], dropout: float, seed: int, dtype: str
) -> Sequential:
    """Returns a built network for the inputs of an encoder, whose first layer is `encoding(encoder)`."""
    layers = [encoding(encoder)]
    for units in hidden:
        layers += [Dense(units, kernel_initializer=he_normal), ReLU(), Dropout(dropout)]
    return Sequential([*layers, Dense(outputs)], (encoder.n_inputs,), seed, dtype)


def encoding(encoder: TableEncoder) -> Layer:
    """Returns the layer that makes places in bins of numbers, and one-hot vectors of categories."""
    numbers, categories = encoder.numbers.values(), encoder.categories.values()
    branches: list[list[Layer]] = []
    if numbers:
        bins = PiecewiseLinearEncoding([column.edges for column in numbers], [column.has_missing for column in numbers])
        branches.append([Columns(0, len(numbers)), bins])
    if categories:
        branches.append([Columns(len(numbers)), OneHot([column.n_codes for column in categories])])
    return Parallel(*branches)
