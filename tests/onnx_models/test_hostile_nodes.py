"""Damaged and hostile nodes of the readers of slices, pads, shuffles and joins: refused by name, with little memory."""

import re
import tracemalloc

import numpy as np
import pytest

from minidl.onnx.graph import Graph, Node, ValueInfo
from minidl.onnx.importing import build_model

MOST, LEAST = 2**63 - 1, -(2**63)
SHAPE = (4, 6, 7)


def build(*nodes, shape=SHAPE):
    """Builds a graph of nodes (operator, inputs, attributes), numbered; arrays and lists of integers are constants."""
    tensors, made = {}, []
    for i, (op, inputs, attributes) in enumerate(nodes):
        names = [value if isinstance(value, str) else f"c{i}.{j}" for j, value in enumerate(inputs)]
        for name, value in zip(names, inputs, strict=True):
            if not isinstance(value, str):
                tensors[name] = (
                    np.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else np.array(value, "int64")
                )
        made.append(Node(op, f"n{i}", names, [f"v{i}"], attributes))
    ends = [ValueInfo("x", "float32", ["N", *shape])], [ValueInfo(made[-1].outputs[0], "float32", None)]
    return build_model(Graph(made, tensors, *ends, 21), None)


def slices(*constants):
    return [("Slice", ["x", *constants], {})]


def pads(*constants, **attributes):
    return [("Pad", ["x", *constants], attributes)]


def padded_pool(sides, value=-np.inf, **attributes):
    pool = {"kernel_shape": [3, 3], **attributes}
    return [("Pad", ["x", sides, np.float32(value)], {}), ("MaxPool", ["v0"], pool)]


def join(op, first="Relu", second="Tanh", constants=(), **attributes):
    return [(first, ["x"], {}), (second, ["x"], {}), (op, ["v0", "v1", *constants], attributes)]


def shuffle(merged=(-1, 2, 42), parted=(2, -1, 2, 6, 7), index=0, perm=(1, 0, 2)):
    nodes = [("Reshape", ["x", list(merged)], {}), ("Transpose", ["v0"], {"perm": list(perm)})]
    return [*nodes, ("Reshape", ["v1", list(parted)], {}), ("Gather", ["v2", index], {"axis": 0})]


SLICES = {
    "no starts": (slices(), "Slice): expected an input 1, got none"),
    "fewer ends": (
        slices([0, 0], [1], [1, 2]),
        "Slice): expected a start, an end and a step other than 0 for each of axes",
    ),
    "fewer steps": (
        slices([0, 0], [1, 1], [1, 2], [1]),
        "Slice): expected a start, an end and a step other than 0 for each of axes",
    ),
    "real starts": (
        slices(np.ones(1, "f4"), [2], [1]),
        "Slice): expected integers for input 1, got float32 of shape (1,)",
    ),
    "starts in rows": (slices([[0, 0]], [2], [1]), "Slice): expected integers for input 1, got int64 of shape (1, 2)"),
    "an axis too far": (slices([0], [1], [4]), "Slice): expected an axis from -4 to 3, got 4"),
    "an axis too far back": (slices([0], [1], [-5]), "Slice): expected an axis from -4 to 3, got -5"),
    "the largest axis": (slices([0], [1], [MOST]), "Slice): expected an axis from -4 to 3, got 9223372036854775807"),
    "steps of 0": (
        slices([0], [6], [2], [0]),
        "Slice): expected a start, an end and a step other than 0 for each of axes",
    ),
    "steps of the least number": (
        slices([0], [6], [2], [LEAST]),
        "Slice): expected a range of at least one element, got 0 to 5 of axis 2 of",
    ),
    "an end before the start": (
        slices([5], [5], [2]),
        "Slice): expected a range of at least one element, got 5 to 5 of axis 2 of",
    ),
    "the least start, backwards": (
        slices([LEAST], [MOST], [2], [-1]),
        "Slice): expected a range of at least one element, got -1 to 5 of axis 2 of",
    ),
    "the examples backwards": (
        slices([MOST], [LEAST], [0], [-1]),
        "Slice): expected all examples, or axes after the batch, got",
    ),
    "every second example": (
        slices([0], [MOST], [0], [2]),
        "Slice): expected all examples, or axes after the batch, got 0 to",
    ),
    "a computed start": (
        [("Relu", ["x"], {}), ("Slice", ["x", "v0", [1]], {})],
        "Slice): expected constants for all inputs except one, got 2 computed values",
    ),
    "five inputs and one more": (
        slices([0], [1], [1], [1], [1]),
        "Slice): expected no input 'c0.5': no layer of minidl has that",
    ),
    "an attribute": (
        [("Slice", ["x", [0], [1], [1]], {"axes": [1]})],
        "Slice): expected no axes: no layer of minidl has that",
    ),
}
PADS = {
    "no pads": (pads(), "Pad): expected an input 1, got none"),
    "fewer pads": (pads([1] * 7), "Pad): expected two pads for each of axes [0, 1, 2, 3], got [1, 1, 1, 1, 1,"),
    "more pads": (
        pads([0] * 6 + [1] * 4),
        "Pad): expected two pads for each of axes [0, 1, 2, 3], got [0, 0, 0, 0, 0,",
    ),
    "real pads": (pads(np.ones(8, "f4")), "Pad): expected integers for input 1, got float32 of shape (8,)"),
    "pads in rows": (pads([[0] * 4, [1] * 4]), "Pad): expected integers for input 1, got int64 of shape (2, 4)"),
    "the largest pad": (
        pads([0, 0, MOST, 0, 0, 0, 0, 0]),
        "Pad): Pad2D cannot take input (4, 6, 7): output shape: expected at most",
    ),
    "many large pads": (
        pads([0, 0, 2**31, 2**31, 0, 0, 2**31, 2**31]),
        "Pad): Pad2D cannot take input (4, 6, 7): output shape: expected at most",
    ),
    "the least pad": (pads([0, 0, LEAST, 0, 0, 0, 0, 0]), "Pad): expected pads that leave some of 6 elements, got"),
    "pads of examples": (
        pads([1, 0, 0, 0, 0, 0, 0, 0]),
        "Pad): expected pads after the batch axis, of at least 0 unless constant,",
    ),
    "examples taken away": (
        pads([0, 0, 0, 0, -1, 0, 0, 0]),
        "Pad): expected pads after the batch axis, of at least 0 unless constant,",
    ),
    "NaN": (
        pads([0, 0, 1, 0, 0, 0, 0, 0], np.float32(np.nan)),
        "Pad): expected a finite value, or -inf before a MaxPool, up to half its",
    ),
    "infinity": (
        pads([0, 0, 1, 0, 0, 0, 0, 0], np.float32(np.inf)),
        "Pad): expected a finite value, or -inf before a MaxPool, up to half its",
    ),
    "two values": (
        pads([0, 0, 1, 0, 0, 0, 0, 0], np.ones(2, "f4")),
        "Pad): expected one real number for input 2, got float32 of shape (2,)",
    ),
    "an integer": (
        pads([0, 0, 1, 0, 0, 0, 0, 0], np.array(1)),
        "Pad): expected one real number for input 2, got int64 of shape ()",
    ),
    "another mode": (
        pads([0, 0, 1, 0, 0, 0, 0, 0], mode="mirror"),
        "Pad): expected mode='constant' or 'reflect' or 'edge' or 'wrap', got",
    ),
    "a number as mode": (pads([0, 0, 1, 0, 0, 0, 0, 0], mode=1), "Pad): expected mode of another type, got 1"),
    "wrapped further than once": (
        pads([0, 0, 7, 0, 0, 0, 0, 0], mode="wrap"),
        "Pad): Pad2D cannot take input (4, 6, 7): padding: expected at most 6 for",
    ),
    "an axis twice": (
        pads([1, 1, 1, 1], np.float32(0), [2, -2]),
        "Pad): expected two pads for each of axes [2, 2], got [1, 1, 1, 1]",
    ),
    "an axis that is not there": (pads([1, 1], np.float32(0), [4]), "Pad): expected an axis from -4 to 3, got 4"),
    "infinity before another pool": (
        [*padded_pool([0, 0, 1, 1, 0, 0, 1, 1])[:1], ("AveragePool", ["v0"], {"kernel_shape": [3, 3]})],
        "Pad): expected a finite value, or -inf before a MaxPool, up to half its",
    ),
    "infinity wider than the pool": (
        padded_pool([0, 0, 2, 2, 0, 0, 2, 2]),
        "Pad): expected a finite value, or -inf before a MaxPool, up to half its",
    ),
    "the largest pads before a pool": (
        padded_pool([0, 0, MOST, MOST, 0, 0, MOST, MOST]),
        "Pad): expected a finite value, or -inf before a MaxPool, up to half its",
    ),
    "pads of the largest pool": (
        padded_pool([0, 0, 1, 1, 0, 0, 1, 1], kernel_shape=[MOST, MOST]),
        "MaxPool): MaxPool2D cannot take input (4, 6, 7): pool_size: expected fewer",
    ),
    "pads of both that overflow": (
        padded_pool([0, 0, 1, 1, 0, 0, 1, 1], pads=[MOST] * 4),
        "Pad): expected a finite value, or -inf before a MaxPool, up to half its",
    ),
    "the least pads of a pool": (
        padded_pool([0, 0, 1, 1, 0, 0, 1, 1], pads=[LEAST] * 4),
        "Pad): expected a finite value, or -inf before a MaxPool, up to half its",
    ),
    "fewer pads of a pool": (
        padded_pool([0, 0, 1, 1, 0, 0, 1, 1], pads=[0]),
        "Pad): expected a finite value, or -inf before a MaxPool, up to half its",
    ),
    "a pool without a kernel": (
        padded_pool([0, 0, 1, 1, 0, 0, 1, 1], kernel_shape=[]),
        "Pad): expected a finite value, or -inf before a MaxPool, up to half its",
    ),
}
SHUFFLES = {
    "other pixels": (
        shuffle(parted=(2, -1, 2, 7, 6)),
        "Reshape): expected images of (4, 7, 6), in a batch of any size, got (4, 6,",
    ),
    "other channels": (
        shuffle(parted=(2, -1, 4, 6, 7)),
        "Reshape): expected images of (8, 6, 7), in a batch of any size, got (4, 6,",
    ),
    "more groups than channels": (
        shuffle((-1, 8, 42), (8, -1, 1, 6, 7)),
        "Reshape): expected images of (8, 6, 7), in a batch of any size, got (4, 6,",
    ),
    "no groups": (
        shuffle((-1, 0, 42), (0, -1, 2, 6, 7)),
        "Transpose): expected a permutation that leaves the batch first, got (1, 0,",
    ),
    "the largest groups": (
        shuffle((-1, MOST, 42), (MOST, -1, 2, 6, 7)),
        "Reshape): expected images of (18446744073709551614, 6, 7), in a batch of",
    ),
    "the largest batch": (
        shuffle((MOST, 2, 42), (2, MOST, 2, 6, 7)),
        "Reshape): expected a shape that keeps examples of (4, 6, 7) separate, got",
    ),
    "a batch of its own": (
        shuffle((6, 2, 42)),
        "Reshape): expected images of (4, 6, 7), in a batch of any size, got (4, 6,",
    ),
    "an index too far": (shuffle(index=2), "Reshape): expected a shape that keeps examples of (4, 6, 7) separate, got"),
    "the least index": (
        shuffle(index=LEAST),
        "Reshape): expected a shape that keeps examples of (4, 6, 7) separate, got",
    ),
    "a real index": (
        shuffle(index=np.float32(0)),
        "Reshape): expected a shape that keeps examples of (4, 6, 7) separate, got",
    ),
    "another order": (
        shuffle(perm=(0, 2, 1)),
        "Reshape): expected a shape that keeps examples of (4, 6, 7) separate, got",
    ),
    "four axes": (
        shuffle(parted=(2, -1, 12, 7)),
        "Reshape): expected a shape that keeps examples of (4, 6, 7) separate, got",
    ),
}
JOINS = {
    "along the batch": (join("Concat", axis=0), "Concat): expected an axis from 1 to 3, after the batch, got 0"),
    "along an axis too far": (join("Concat", axis=4), "Concat): expected an axis from 1 to 3, after the batch, got 4"),
    "along an axis too far back": (
        join("Concat", axis=-5),
        "Concat): expected an axis from 1 to 3, after the batch, got -5",
    ),
    "along the largest axis": (
        join("Concat", axis=MOST),
        "Concat): expected an axis from 1 to 3, after the batch, got",
    ),
    "along no axis": (join("Concat"), "Concat): expected an axis from 1 to 3, after the batch, got None"),
    "along a real axis": (join("Concat", axis=1.0), "Concat): expected an axis from 1 to 3, after the batch, got 1.0"),
    "of other sizes": (
        join("Concat", second="GlobalMaxPool", axis=1),
        "Concat): expected branches with outputs that differ in axis 0 only: input",
    ),
    "with a constant": (
        join("Concat", constants=[np.ones((1, 4, 6, 7), "f4")], axis=1),
        "Concat): expected branches only, got a constant among them",
    ),
    "a sum with a constant": (
        join("Sum", constants=[np.float32(1)]),
        "Sum): expected branches only, got a constant among them",
    ),
    "a maximum with a constant": (
        join("Max", constants=[np.float32(1)]),
        "Max): expected branches only, got a constant among them",
    ),
    "a power with a constant": (
        join("Pow", constants=[np.float32(1)]),
        "Pow): expected branches only, got a constant among them",
    ),
    "a product of other ranks": (
        join("Mul", second="Flatten"),
        "Mul): expected branches with outputs of equal shapes, or with a size of 1",
    ),
    "a quotient of other ranks": (
        join("Div", second="Flatten"),
        "Div): expected branches with outputs of equal shapes, or with a size of 1",
    ),
    "a power of other ranks": (
        join("Pow", first="Flatten"),
        "Pow): expected branches with outputs of equal shapes, or with a size of 1",
    ),
    "a product of matrices": (
        join("MatMul"),
        "MatMul): expected constants for all inputs except one, got 2 computed values",
    ),
    "a remainder": (join("Mod", fmod=1), "Mod): expected branches joined by Add, Concat, Div, Max, Min, Mul, Pow,"),
    "of itself": (
        [("Relu", ["v1"], {}), ("Add", ["v0", "x"], {})],
        "Relu): expected a value computed from the graph's input, or a foldable",
    ),
    "of too many branches": (
        [*(("Neg", ["x"], {}) for _ in range(257)), ("Concat", [f"v{i}" for i in range(257)], {"axis": 1})],
        "Concat): branches: expected at most 256, got 257",
    ),
    "of doubled sizes": (
        [("Concat", [f"v{i - 1}" if i else "x"] * 2, {"axis": 2}) for i in range(60)],
        "Concat): expected at most 67108864 rows and columns in all layers, got more",
    ),
}
HOSTILE = {
    f"{reader}: {name}": case
    for reader, table in (("slice", SLICES), ("pad", PADS), ("shuffle", SHUFFLES), ("join", JOINS))
    for name, case in table.items()
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_nodes_are_refused(name):
    nodes, message = HOSTILE[name]
    tracemalloc.start()
    try:
        with pytest.raises(ValueError) as error:
            build(*nodes)
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()
    assert re.match(r"(expected a graph .*:\n  )?node 'n\d+' \(", str(error.value))
    assert f"({message}" in str(error.value)


def test_the_same_nodes_are_read_where_they_are_sound():
    for nodes in (
        slices([0], [5], [2]), pads([0, 0, 1, 0, 0, 0, 0, 0]), padded_pool([0, 0, 1, 1, 0, 0, 1, 1]), shuffle(),
        join("Concat", axis=1), join("Pow"),
    ):  # fmt: skip
        assert build(*nodes).output_shape
