"""Constant folding, with and without attributes, against NumPy."""

import numpy as np
import pytest
from onnx_models.graphs import Graph as File
from onnx_models.graphs import check

from minidl.onnx.constant_folding import FOLD_FUNCTIONS, Constants
from minidl.onnx.graph import ANY_BATCH, Graph, Node, ValueInfo

MATRIX, ROW = np.arange(12.0, dtype="f4").reshape(3, 4), np.array([2, -7, 5])


IMAGE = np.random.default_rng(0).standard_normal((2, 3, 5)).astype("f4")
STATISTICS = [np.array(values, "f4") for values in ([1, 2, 3], [0.5, 0, -1], [0.1, 0.2, 0.3], [1, 2, 0.5])]


def integers(*numbers):
    return np.array(numbers, "int64")


def normalize(x, mean, variance):
    scale, bias, mean, variance = (array[:, None] for array in (*STATISTICS[:2], mean, variance))
    return scale * (x - mean) / np.sqrt(variance + np.float32(1e-3)) + bias


CASES = {
    "Add": ([MATRIX, MATRIX[0]], {}, MATRIX + MATRIX[0]),
    "BatchNormalization": ([IMAGE, *STATISTICS], {"epsilon": 1e-3}, normalize(IMAGE, *STATISTICS[2:])),
    "BatchNormalization training_mode": (
        [IMAGE, *STATISTICS],
        {"epsilon": 1e-3, "training_mode": 1},
        normalize(IMAGE, IMAGE.mean((0, 2)), IMAGE.var((0, 2))),
    ),
    "Cast": ([ROW], {"to": 6}, ROW.astype("int32")),
    "Cast to real": ([ROW], {"to": 1}, ROW.astype("f4")),
    "Cast to integers": ([MATRIX / 3], {"to": 7}, (MATRIX / 3).astype("int64")),
    "Ceil": ([MATRIX / 3], {}, np.ceil(MATRIX / 3)),
    "Clip": ([ROW, np.array(-3), np.array(4)], {}, integers(2, -3, 4)),
    "Clip above": ([ROW, None, np.array(4)], {}, integers(2, -7, 4)),
    "Clip below": ([ROW, np.array(3)], {}, integers(3, 3, 5)),
    "Clip of no order": ([ROW, np.array(3), np.array(1)], {}, integers(1, 1, 1)),
    "Concat": ([MATRIX, MATRIX], {"axis": 1}, np.concatenate([MATRIX, MATRIX], 1)),
    "Constant": ([], {"value_floats": [0.5, 2.0]}, np.array([0.5, 2.0], "f4")),
    "Constant of integers": ([], {"value_ints": [3, 4]}, integers(3, 4)),
    "Constant of a tensor": ([], {"value": MATRIX}, MATRIX),
    "ConstantOfShape": ([integers(2, 3)], {}, np.zeros((2, 3), "f4")),
    "ConstantOfShape value": ([integers(2)], {"value": integers(7)}, integers(7, 7)),
    "DequantizeLinear": (
        [np.array([-5, 3], "int8"), np.array(0.5, "f4"), np.array(1, "int8")],
        {},
        np.float32([-3, 1]),
    ),
    "Div": ([MATRIX, MATRIX[:1, 3:]], {}, MATRIX / MATRIX[0, 3]),
    "Div of integers": ([ROW, np.array(2)], {}, integers(1, -3, 2)),
    "Equal": ([ROW, np.array(5)], {}, ROW == 5),
    "Floor": ([MATRIX / 3], {}, np.floor(MATRIX / 3)),
    "Gather": ([MATRIX, integers(2, 0)], {}, MATRIX[[2, 0]]),
    "Gather axis": ([MATRIX, integers(2, 0)], {"axis": 1}, MATRIX[:, [2, 0]]),
    "Gather of one": ([ROW, np.array(1)], {}, ROW[1]),
    "Identity": ([MATRIX], {}, MATRIX),
    "Max": ([ROW, np.array(1), np.array(3)], {}, integers(3, 3, 5)),
    "Min": ([ROW, np.array(1)], {}, integers(1, -7, 1)),
    "Mul": ([ROW, ROW], {}, ROW * ROW),
    "Neg": ([ROW], {}, -ROW),
    "QuantizeLinear": ([np.float32([-3, 9]), np.array(2, "f4"), np.array(1, "uint8")], {}, np.uint8([0, 5])),
    "Range": ([np.array(1), np.array(8), np.array(3)], {}, integers(1, 4, 7)),
    "ReduceMean": ([IMAGE, integers(0, 2)], {"keepdims": 0}, IMAGE.mean((0, 2))),
    "ReduceMean before 18": ([MATRIX], {"axes": [1]}, MATRIX.mean(1, keepdims=True)),
    "ReduceMean without axes": ([MATRIX], {}, MATRIX.mean(keepdims=True)),
    "ReduceMean noop_with_empty_axes": ([MATRIX, integers()], {"noop_with_empty_axes": 1}, MATRIX),
    "ReduceProd": ([ROW], {"keepdims": 0}, np.array(-70)),
    "ReduceProd axes": ([MATRIX, integers(0)], {}, MATRIX.prod(0, keepdims=True)),
    "Reshape": ([MATRIX, integers(0, 2, -1)], {}, MATRIX.reshape(3, 2, 2)),
    "Reshape allowzero": ([np.zeros((0, 4), "f4"), integers(2, 0)], {"allowzero": 1}, np.zeros((2, 0), "f4")),
    "Slice": ([MATRIX, integers(1), integers(9)], {}, MATRIX[1:]),
    "Slice of both": ([MATRIX, integers(0, 1), integers(2, 3)], {}, MATRIX[0:2, 1:3]),
    "Slice axes": ([MATRIX, integers(1), integers(3), integers(1)], {}, MATRIX[:, 1:3]),
    "Slice steps": ([MATRIX, integers(3), integers(-9), integers(-1), integers(-2)], {}, MATRIX[:, 3::-2]),
    "Slice steps without axes": ([ROW, integers(0), integers(3), None, integers(2)], {}, ROW[::2]),
    "Sqrt": ([MATRIX], {}, np.sqrt(MATRIX)),
    "Squeeze": ([MATRIX[None, :, None]], {}, MATRIX),
    "Squeeze axes": ([MATRIX[None, :, None], integers(0)], {}, MATRIX[:, None]),
    "Squeeze axes before 13": ([MATRIX[None, :, None]], {"axes": [2]}, MATRIX[None]),
    "Sub": ([ROW, np.array(1)], {}, ROW - 1),
    "Transpose": ([MATRIX.reshape(2, 3, 2)], {}, MATRIX.reshape(2, 3, 2).T),
    "Transpose perm": ([MATRIX.reshape(2, 3, 2)], {"perm": [0, 2, 1]}, MATRIX.reshape(2, 3, 2).swapaxes(1, 2)),
    "Unsqueeze": ([ROW, integers(0, -1)], {}, ROW[None, :, None]),
    "Unsqueeze before 13": ([ROW], {"axes": [1]}, ROW[:, None]),
    "Where": ([ROW > 0, ROW, np.array(0)], {}, integers(2, 0, 5)),
    "Shape": ([MATRIX], {}, integers(3, 4)),
    "Shape start": ([MATRIX], {"start": 1}, integers(4)),
    "Shape end": ([MATRIX], {"end": -1}, integers(3)),
}


def fold(op, arrays, attributes):
    tensors = {f"c{i}": array for i, array in enumerate(arrays) if array is not None}
    inputs = [f"c{i}" if array is not None else "" for i, array in enumerate(arrays)]
    value = ValueInfo("x", "float32", ["N", 3])
    return Constants(Graph([Node(op, "n", inputs, ["y"], attributes)], tensors, [value], [value]))


@pytest.mark.parametrize("name", CASES)
def test_folding_matches_numpy(name):
    arrays, attributes, expected = CASES[name]
    found = fold(name.partition(" ")[0], arrays, attributes)["y"]
    assert np.array_equal(found, expected) and found.dtype == expected.dtype and found.shape == np.shape(expected)


@pytest.mark.oracle("onnx")
@pytest.mark.parametrize("name", CASES)
def test_numpy_matches_onnx(name):
    from onnx import helper, numpy_helper
    from onnx.reference import ReferenceEvaluator

    def info(name, array):
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype), None)

    arrays, attributes, expected = CASES[name]
    if "value" in attributes:
        attributes = {"value": numpy_helper.from_array(attributes["value"])}
    inputs = {f"c{i}": array for i, array in enumerate(arrays) if array is not None}
    names = [f"c{i}" if array is not None else "" for i, array in enumerate(arrays)]
    node = helper.make_node(name.partition(" ")[0], names, ["y"], **attributes)
    opset = helper.make_opsetid("", 12 if "before" in name else 21)
    graph = helper.make_graph([node], "one", [info(*item) for item in inputs.items()], [info("y", expected)])
    (y,) = ReferenceEvaluator(helper.make_model(graph, opset_imports=[opset])).run(None, inputs)
    assert np.array_equal(y, expected)


def test_all_foldable_operators_have_a_case():
    assert {name.partition(" ")[0] for name in CASES} == {*FOLD_FUNCTIONS, "Shape"}


@pytest.mark.parametrize(("op", "arrays", "attributes", "message"), [
    ("Cast", [ROW], {"to": 8}, "expected numbers, and to in [1, 6, 7, 9, 11], got int64 and to=8"),
    ("Cast", [integers(ANY_BATCH)], {"to": 1}, "expected values that do not depend on the batch size"),
    ("Add", [integers(ANY_BATCH), integers(1)], {}, "expected values that do not depend on the batch size"),
    ("Mul", [np.ones((4097, 1)), np.ones(2)], {}, "at most 4096 elements in a folded constant, got 8194"),
    ("ReduceProd", [integers(ANY_BATCH, 3)], {}, "expected values that do not depend on the batch size"),
    ("Clip", [integers(ANY_BATCH), integers(3)], {}, "expected values that do not depend on the batch size"),
    ("BatchNormalization", [np.ones((9, 1)), *[np.ones(999)] * 4], {}, "at most 4096 elements"),
    ("Div", [integers(1), integers(0)], {}, "expected divisors other than 0"),
    ("Range", [np.array(0), np.array(9999), np.array(1)], {}, "expected at most 4096 numbers"),
    ("Range", [np.array(0), np.array(9), np.array(0)], {}, "expected at most 4096 numbers"),
    ("Constant", [], {"value_string": "a"}, "expected numbers, got value_string"),
    ("ConstantOfShape", [integers(-1)], {}, "expected a shape of at most 4096 elements"),
    ("ConstantOfShape", [integers(64, 65)], {}, "expected a shape of at most 4096 elements"),
    ("Gather", [np.ones((2, 4000)), integers(0, 1, 0)], {}, "at most 4096 elements in a folded constant, got 12000"),
    ("Gather", [ROW, integers(3)], {}, "out of bounds"),
    ("Reshape", [MATRIX, integers(5, -1)], {}, "cannot reshape"),
    ("Transpose", [MATRIX], {"perm": [-1, 0]}, "expected a permutation of 2 axes, got [-1, 0]"),
    ("Reshape", [MATRIX, integers(1, ANY_BATCH)], {}, "expected values that do not depend on the batch size"),
    ("Slice", [ROW, *[integers(0)] * 3, integers(ANY_BATCH)], {}, "expected values that do not depend on the batch"),
    ("Mul", [integers(ANY_BATCH // 2), integers(2)], {}, f"expected other integers than {ANY_BATCH}"),
    ("Constant", [], {"value_int": ANY_BATCH}, f"expected other integers than {ANY_BATCH}"),
])  # fmt: skip
def test_unfoldable_constants_are_refused(op, arrays, attributes, message):
    with pytest.raises(ValueError, match=r"node 'n' \(\w+\): expected a foldable constant: .*") as error:
        fold(op, arrays, attributes)["y"]
    assert message in str(error.value)


# ---- large constants


def graph_of(nodes, **tensors):
    value = ValueInfo("x", "float32", ["N", 3])
    return Graph(nodes, tensors, [value], [value])


def chain(length):
    """Returns nodes that each add a large constant, a00, to the value of the one before."""
    return [Node("Add", "n", [f"a{i:02}", "a00"], [f"a{i + 1:02}"]) for i in range(length)]


def test_large_constants_are_computed_from_those_of_the_file_and_not_kept():
    constants = Constants(graph_of(chain(2), a00=np.arange(5000.0)))
    first, second = constants["a02"], constants["a02"]
    assert np.array_equal(first, 3 * np.arange(5000.0)) and np.array_equal(first, second) and first is not second
    small = Constants(graph_of(chain(2), a00=np.arange(5.0)))
    assert small["a02"] is small["a02"]


def test_a_large_constant_is_kept_until_its_last_reader():
    sums = {"b": ["a", "a"], "c": ["b", "a"], "d": ["b", "c"]}
    nodes = [Node("Add", "n", inputs, [name]) for name, inputs in sums.items()]
    assert np.array_equal(Constants(graph_of(nodes, a=np.arange(5000.0)))["d"], 5 * np.arange(5000.0))


def test_the_work_for_large_constants_is_limited():
    """A small file could ask for much of it."""
    assert Constants(graph_of(chain(21), a00=np.ones(5000)))["a21"][0] == 22
    with pytest.raises(ValueError, match=r"node 'n' \(Add\): .* expected less work to compute large constants"):
        Constants(graph_of(chain(22), a00=np.ones(5000)))["a22"]


def test_a_concat_of_large_constants_is_work_before_it_is_computed():
    (joined,) = nodes = [Node("Concat", "n", ["a"] * 32, ["b"], {"axis": 0})]
    assert Constants(graph_of(nodes, a=np.ones(5000)))["b"].shape == (160_000,)
    joined.inputs *= 4000
    with pytest.raises(ValueError, match=r"node 'n' \(Concat\): .* expected less work to compute large constants"):
        Constants(graph_of(nodes, a=np.ones(5000)))["b"]


def test_values_of_constant_nodes_are_those_of_the_file():
    """They count for the limit as tensors do, and no more: it is still a limit."""
    attributes = {"value": np.ones(5000), "value_floats": [1.0] * 5000}
    for name, value in attributes.items():
        node = Node("Constant", "w", [], ["a00"], {name: value})
        assert Constants(graph_of([node, *chain(21)]))["a21"][0] == 22
        with pytest.raises(ValueError, match=r"node 'n' \(Add\): .* expected less work to compute large constants"):
            Constants(graph_of([node, *chain(22)]))["a22"]


@pytest.mark.oracle("onnx", "onnxruntime")
def test_weights_in_constant_nodes(tmp_path):
    """A file without any initializer, as Paddle writes it; weights are transposed and scaled by nodes."""
    from onnx import numpy_helper

    def constant(array):
        return g.add("Constant", value=numpy_helper.from_array(array.astype("f4")))

    g = File((90,))
    turned = g.add("Transpose", constant(g.rng.standard_normal((60, 90))), perm=[1, 0])
    scaled = g.add("Mul", turned, g.add("Constant", value_float=0.5))
    y = g.add("MatMul", "x", scaled)
    g.add("Add", y, g.add("Constant", value_floats=g.rng.standard_normal(60).tolist()))
    assert not g.tensors
    check(g, tmp_path, "Dense")


def test_only_the_first_output_of_a_batch_norm_is_a_constant():
    names = ["x", "scale", "bias", "mean", "variance"]
    for attributes, constant in (({"training_mode": 1}, True), ({}, False)):
        node = Node("BatchNormalization", "n", names, ["y", "m", "v"], attributes)
        constants = Constants(graph_of([node], **dict(zip(names, [IMAGE, *STATISTICS], strict=True))))
        assert ("y" in constants, "m" in constants) == (constant, False)
