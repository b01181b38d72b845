"""What is computed of constants, with and without attributes, beside NumPy; nothing here needs the library onnx."""

import numpy as np
import pytest

from minidl.onnx.constant_folding import FOLDS, Constants
from minidl.onnx.graph import Graph, Node, Value

MATRIX, ROW = np.arange(12.0, dtype="f4").reshape(3, 4), np.array([2, -7, 5])


def whole(*numbers):
    return np.array(numbers, "int64")


FOLDED = {
    "Cast": ([ROW], {"to": 6}, ROW.astype("int32")),
    "Concat": ([MATRIX, MATRIX], {"axis": 1}, np.concatenate([MATRIX, MATRIX], 1)),
    "Constant": ([], {"value_floats": [0.5, 2.0]}, np.array([0.5, 2.0], "f4")),
    "Constant of integers": ([], {"value_ints": [3, 4]}, whole(3, 4)),
    "Constant of a tensor": ([], {"value": MATRIX}, MATRIX),
    "ConstantOfShape": ([whole(2, 3)], {}, np.zeros((2, 3), "f4")),
    "ConstantOfShape value": ([whole(2)], {"value": whole(7)}, whole(7, 7)),
    "Gather": ([MATRIX, whole(2, 0)], {}, MATRIX[[2, 0]]),
    "Gather axis": ([MATRIX, whole(2, 0)], {"axis": 1}, MATRIX[:, [2, 0]]),
    "Gather of one": ([ROW, np.array(1)], {}, ROW[1]),
    "Identity": ([MATRIX], {}, MATRIX),
    "Reshape": ([MATRIX, whole(0, 2, -1)], {}, MATRIX.reshape(3, 2, 2)),
    "Reshape allowzero": ([np.zeros((0, 4), "f4"), whole(2, 0)], {"allowzero": 1}, np.zeros((2, 0), "f4")),
    "Slice": ([MATRIX, whole(1), whole(9)], {}, MATRIX[1:]),
    "Slice of both": ([MATRIX, whole(0, 1), whole(2, 3)], {}, MATRIX[0:2, 1:3]),
    "Slice axes": ([MATRIX, whole(1), whole(3), whole(1)], {}, MATRIX[:, 1:3]),
    "Slice steps": ([MATRIX, whole(3), whole(-9), whole(-1), whole(-2)], {}, MATRIX[:, 3::-2]),
    "Slice steps without axes": ([ROW, whole(0), whole(3), None, whole(2)], {}, ROW[::2]),
    "Squeeze": ([MATRIX[None, :, None]], {}, MATRIX),
    "Squeeze axes": ([MATRIX[None, :, None], whole(0)], {}, MATRIX[:, None]),
    "Squeeze axes before 13": ([MATRIX[None, :, None]], {"axes": [2]}, MATRIX[None]),
    "Transpose": ([MATRIX.reshape(2, 3, 2)], {}, MATRIX.reshape(2, 3, 2).T),
    "Transpose perm": ([MATRIX.reshape(2, 3, 2)], {"perm": [0, 2, 1]}, MATRIX.reshape(2, 3, 2).swapaxes(1, 2)),
    "Unsqueeze": ([ROW, whole(0, -1)], {}, ROW[None, :, None]),
    "Unsqueeze before 13": ([ROW], {"axes": [1]}, ROW[:, None]),
    "Shape": ([MATRIX], {}, whole(3, 4)),
    "Shape start": ([MATRIX], {"start": 1}, whole(4)),
    "Shape end": ([MATRIX], {"end": -1}, whole(3)),
}


def constants(op, arrays, attributes):
    tensors = {f"c{i}": array for i, array in enumerate(arrays) if array is not None}
    inputs = [f"c{i}" if array is not None else "" for i, array in enumerate(arrays)]
    value = Value("x", "float32", ["N", 3])
    return Constants(Graph([Node(op, "n", inputs, ["y"], attributes)], tensors, [value], [value]))


@pytest.mark.parametrize("name", FOLDED)
def test_beside_numpy(name):
    arrays, attributes, expected = FOLDED[name]
    found = constants(name.partition(" ")[0], arrays, attributes)["y"]
    assert np.array_equal(found, expected) and found.dtype == expected.dtype and found.shape == np.shape(expected)


@pytest.mark.oracle("onnx")
@pytest.mark.parametrize("name", FOLDED)
def test_numpy_beside_onnx(name):
    from onnx import helper, numpy_helper
    from onnx.reference import ReferenceEvaluator

    def info(name, array):
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype), None)

    arrays, attributes, expected = FOLDED[name]
    if "value" in attributes:
        attributes = {"value": numpy_helper.from_array(attributes["value"])}
    inputs = {f"c{i}": array for i, array in enumerate(arrays) if array is not None}
    names = [f"c{i}" if array is not None else "" for i, array in enumerate(arrays)]
    node = helper.make_node(name.partition(" ")[0], names, ["y"], **attributes)
    opset = helper.make_opsetid("", 12 if "before" in name else 21)
    graph = helper.make_graph([node], "one", [info(*item) for item in inputs.items()], [info("y", expected)])
    (y,) = ReferenceEvaluator(helper.make_model(graph, opset_imports=[opset])).run(None, inputs)
    assert np.array_equal(y, expected)


def test_all_operators_are_in_the_table():
    assert {name.partition(" ")[0] for name in FOLDED} == {*FOLDS, "Shape"}


@pytest.mark.parametrize(("op", "arrays", "attributes", "told"), [
    ("Cast", [MATRIX], {"to": 7}, "expected integers and to=6 or 7, got float32"),
    ("Cast", [ROW], {"to": 1}, "got int64 and to=1"),
    ("Constant", [], {"value_string": "a"}, "expected numbers, got value_string"),
    ("ConstantOfShape", [whole(-1)], {}, "expected a shape of at most 4096 numbers"),
    ("ConstantOfShape", [whole(64, 65)], {}, "expected a shape of at most 4096 numbers"),
    ("Concat", [np.ones(4097)], {"axis": 0}, "at most 4096 numbers"),
    ("Gather", [ROW, whole(3)], {}, "out of bounds"),
    ("Reshape", [MATRIX, whole(5, -1)], {}, "cannot reshape"),
])  # fmt: skip
def test_refused(op, arrays, attributes, told):
    with pytest.raises(ValueError, match=r"node 'n' \(\w+\): cannot be computed from constants: .*") as error:
        constants(op, arrays, attributes)["y"]
    assert told in str(error.value)
