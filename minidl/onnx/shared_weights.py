"""Warning about weights that several nodes of a graph share: each layer gets its own copy."""

from __future__ import annotations

import warnings

from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import Node
from minidl.utils.arrays import Array

MAX_SHOWN = 5
INITIAL_VALUES = (0.0, 0.25, 1.0)  # of single weights before any training: PReLU's slope is 0.25


def warn_shared_weights(sources: list[tuple[Node, str]], constants: Constants) -> None:
    """Warns about constants that become parameters of more than one node.

    sources: nodes, and the names of their constants that become parameters. PyTorch trains a module that is applied
    twice with the sum of both gradients. Initial values are not reported: see `is_initial_value`.
    """
    readers: dict[str, dict[int, Node]] = {}
    for node, name in sources:
        readers.setdefault(constants.origin(name), {})[id(node)] = node
    shared = {name: list(nodes.values()) for name, nodes in readers.items() if len(nodes) > 1}
    warned = [
        f"{name!r} in {_list_nodes(nodes)}" for name, nodes in shared.items() if not is_initial_value(constants[name])
    ]
    if warned:
        more = [f"and {len(warned) - MAX_SHOWN} more"] if len(warned) > MAX_SHOWN else []
        warnings.warn(
            "weights that nodes of the graph share are copied for each layer: predictions are the same, but training "
            "changes each copy separately, unlike a framework that ties them: " + "; ".join(warned[:MAX_SHOWN] + more),
            stacklevel=5,  # the caller of import_model
        )


def is_initial_value(array: Array) -> bool:
    """Returns True if layers that share nothing may have these values, so that an exporter wrote them only once.

    Before training, biases are zeros and scales of norms ones; both exporters of PyTorch keep one of such equal arrays.
    """
    one = array.reshape(-1)[:1]
    return bool((array == one).all()) and (array.size != 1 or float(one[0]) in INITIAL_VALUES)


def _list_nodes(nodes: list[Node]) -> str:
    first, *rest = map(str, nodes)
    if len(rest) == 1:
        return f"{first} and {rest[0]}"
    return f"{first}, {rest[0]} and {len(rest) - 1} more"
