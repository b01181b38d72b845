"""Warns about weights shared by several nodes: each layer gets a copy, which matters in training."""

from __future__ import annotations

import warnings

from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import Node
from minidl.utils.arrays import Array

MAX_NAMED = 5  # weights in one warning
INITIAL_VALUES = (0.0, 0.25, 1.0)  # of single weights before training: PReLU's slope is 0.25


def warn_about_shared_weights(sources: list[tuple[Node, str]], constants: Constants) -> None:
    """Warns about constants that are parameters of more than one node.

    PyTorch would train a module that is applied twice with the sum of both gradients. Weights that may have their
    initial values are not reported, see `may_be_initial`.

    sources: nodes, and the names of the constants that are their parameters.
    """
    readers: dict[str, dict[int, Node]] = {}
    for node, name in sources:
        readers.setdefault(constants.origin(name), {})[id(node)] = node
    shared = {name: list(nodes.values()) for name, nodes in readers.items() if len(nodes) > 1}
    messages = [
        f"{name!r} in {_format_nodes(nodes)}" for name, nodes in shared.items() if not may_be_initial(constants[name])
    ]
    if messages:
        more = [f"and {len(messages) - MAX_NAMED} more"] if len(messages) > MAX_NAMED else []
        warnings.warn(
            "weights shared by several nodes become one copy per layer: predictions are the same, but "
            "training updates each copy separately, unlike a framework that ties them: "
            + "; ".join(messages[:MAX_NAMED] + more),
            stacklevel=5,  # the caller of import_model
        )


def may_be_initial(array: Array) -> bool:
    """True if unrelated layers may have these values before training, so that an exporter has written them once.

    Biases start as zeros and the weights of norms as ones; both exporters of PyTorch deduplicate equal arrays.
    """
    first = array.reshape(-1)[:1]
    return bool((array == first).all()) and (array.size != 1 or float(first[0]) in INITIAL_VALUES)


def _format_nodes(nodes: list[Node]) -> str:
    first, *rest = map(str, nodes)
    if len(rest) == 1:
        return f"{first} and {rest[0]}"
    return f"{first}, {rest[0]} and {len(rest) - 1} more"
