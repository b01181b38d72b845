"""The number of batch sizes for which a computed value has to be checked."""

import numpy as np
import pytest

from minidl.onnx.batch_sizes import count_batch_sizes
from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import Graph, Node

TENSORS = {"0": np.array(0), "1": np.array(1), "12": np.array(12), "[0]": np.array([0]), "row": np.arange(12)}
SIZES = [Node("Shape", "", ["x"], ["shape"]), Node("Gather", "", ["shape", "0"], ["n"])]
RANGE = [Node("Range", "", ["0", "n", "1"], ["range"])]


def count(*nodes):
    nodes = [*SIZES, *nodes]
    constants = Constants(Graph(nodes, dict(TENSORS), [], []))
    constants.shapes["x"] = (1, 3, 4)
    return count_batch_sizes(nodes[-1].outputs[0], nodes, constants)


def node(op, *inputs, **attributes):
    return Node(op, "", list(inputs), ["y"], attributes)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([node("Identity", "row")], 3),
        ([node("Mul", "n", "12")], 3),
        ([node("Mul", "n", "n")], 5),
        ([*RANGE, node("Mul", "range", "12")], 3),
        ([*RANGE, node("Mul", "range", "n")], 5),
        ([*RANGE, node("Unsqueeze", "range", "[0]")], 3),
        ([node("ReduceProd", "shape")], 7),
        ([node("Min", "12", "row")], 3),
        ([Node("Unsqueeze", "", ["n", "[0]"], ["ns"]), node("Shape", "ns")], 3),
        ([node("Cast", "n", to=6)], 3),
    ],
)
def test_polynomials(nodes, expected):
    assert count(*nodes) == expected


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Min", "n", "12")],
        [node("Div", "n", "12")],
        [node("Gather", "row", "n")],
        [node("Range", "0", "12", "n")],
        [*RANGE, node("Slice", "range", "[0]", "[0]")],
        [*RANGE, node("Concat", "range", "row", axis=0)],
        [*RANGE, node("ReduceProd", "range")],
        [*RANGE, node("Shape", "range")],
        [node("Cast", "n", to=9)],
        [node("Cast", "n", to=1)],
        [Node("Mul", "", ["n", "n"], ["2"]), Node("Mul", "", ["2", "2"], ["4"]), Node("Mul", "", ["4", "4"], ["8"]),
         node("Mul", "8", "n")],
    ],
)  # fmt: skip
def test_others(nodes):
    assert count(*nodes) is None
