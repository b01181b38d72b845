"""Weights that several nodes of a graph share: layers have a copy each, which matters in training."""

from __future__ import annotations

import warnings

from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import Node
from minidl.utils.arrays import Array

MOST_TOLD = 5
FIRST_NUMBERS = (0.0, 0.25, 1.0)  # single weights as layers have them before any training: PReLU's slope is 0.25


def warn_of_shared(sources: list[tuple[Node, str]], constants: Constants) -> None:
    """Warns of constants that are parameters of layers of more than one node.

    sources: nodes, and the names of the constants that are parameters there. PyTorch trains a module that is applied
    twice with the sum of both gradients. Not told are arrays of one number, as `fresh` says.
    """
    readers: dict[str, dict[int, Node]] = {}
    for node, name in sources:
        readers.setdefault(constants.origin(name), {})[id(node)] = node
    shared = {name: list(nodes.values()) for name, nodes in readers.items() if len(nodes) > 1}
    told = [f"{name!r} in {_told(nodes)}" for name, nodes in shared.items() if not fresh(constants[name])]
    if told:
        more = [f"and {len(told) - MOST_TOLD} more"] if len(told) > MOST_TOLD else []
        warnings.warn(
            "weights that nodes of the graph share become a copy for each layer: predictions are the same, but "
            "training changes each copy by itself, and differs from a framework that ties them: "
            + "; ".join(told[:MOST_TOLD] + more),
            stacklevel=5,  # where import_model is called
        )


def fresh(array: Array) -> bool:
    """Whether layers that share nothing may have these numbers, so that an exporter has written them once.

    Biases are zeros before training, factors of norms ones; both exporters of PyTorch drop all but one of such arrays.
    """
    one = array.reshape(-1)[:1]
    return bool((array == one).all()) and (array.size != 1 or float(one[0]) in FIRST_NUMBERS)


def _told(nodes: list[Node]) -> str:
    first, *rest = map(str, nodes)
    if len(rest) == 1:
        return f"{first} and {rest[0]}"
    return f"{first}, {rest[0]} and {len(rest) - 1} more"
