"""The report of unsupported nodes: each kind with one node, at most a fixed number of lines, and nothing else."""

import re

import pytest
from onnx_models.graphs import Graph

from minidl.onnx import import_model
from minidl.onnx.file.model_file import from_bytes
from minidl.onnx.graph import REWRITTEN, Node, ValueInfo
from minidl.onnx.graph import Graph as PlainGraph
from minidl.onnx.importing import build_model
from minidl.onnx.operators import REWRITTEN_READ_FUNCTIONS

SHAPES_UNKNOWN = "where shapes are unknown, only the operator types were checked"

pytestmark = pytest.mark.oracle("onnx")


def report_lines(graph, without_shapes=False):
    """Returns the lines of the error, without heading and indentation."""
    plain = from_bytes(graph.model(out_shape=(None,)).SerializeToString())
    if without_shapes:
        plain.shapes.clear()
    with pytest.raises(ValueError) as error:
        build_model(plain, None)
    head, *found = str(error.value).split("\n  ")
    if head.startswith("node "):
        return [head, *found]
    heading = re.fullmatch(r"expected a graph that layers can express, got (\d+) obstacles:", head)
    kinds = [line for line in found if line.startswith("node ")]
    assert int(heading[1]) == len(kinds) or len(kinds) == 12
    return found


def attention(g):
    """Adds shape arithmetic that is unknown, then unsupported nodes."""
    half = g.add("Sin", g.add("Cast", g.add("Gather", g.add("Shape", "x"), g.integers(1)), to=1))
    flat = g.add("Reshape", "x", g.add("Concat", g.integers(0), g.add("Cast", half, to=7), g.integers(-1), axis=0))
    g.add("CumSum", flat, g.integers(1))
    g.append("LayerNormalization", g.normal(3)).append("MatMul", g.normal(3, 4)).append("Sin")
    y = g.last
    g.add("MatMul", g.add("Softmax", y), g.add("CumSum", g.add("Softmax", y), g.integers(1)))


def test_nodes_after_the_first_unsupported_one(tmp_path):
    g = Graph()
    attention(g)
    assert report_lines(g) == [
        "node 'Sin_3' (Sin): expected a value computed from the graph's input, or a foldable constant, got neither",
        "node 'CumSum_7' (CumSum): no layer of minidl does that (2 such nodes)",
        "node 'Sin_10' (Sin): no layer of minidl does that",
        "node 'MatMul_14' (MatMul): expected constants for all inputs except one, got 2 computed values",
        SHAPES_UNKNOWN,
    ]


def test_the_error_begins_with_the_path(tmp_path):
    g = Graph().append("Erf").append("Transpose")
    path = g.save(tmp_path)
    with pytest.raises(ValueError) as error:
        import_model(path)
    assert str(error.value).startswith(f"{path}: expected a graph that layers can express, got 2 obstacles:\n  ")


@pytest.mark.parametrize("declared", [True, False])
def test_declared_shapes(declared):
    """With known shapes, attributes are checked too."""
    g = Graph()
    g.append("CumSum", g.integers(1)).append("Softmax", axis=0).append("MaxPool", kernel_shape=[2, 2], ceil_mode=2)
    found = report_lines(g, without_shapes=not declared)
    if not declared:
        assert found == ["node 'CumSum_0' (CumSum): no layer of minidl does that", SHAPES_UNKNOWN]
    else:
        assert [line.partition(":")[0] for line in found] == [
            "node 'CumSum_0' (CumSum)",
            "node 'Softmax_1' (Softmax)",
            "node 'MaxPool_2' (MaxPool)",
        ]
        assert "expected an axis after the batch, got 0" in found[1] and "expected ceil_mode=0 or 1" in found[2]


def test_elementwise_operators_keep_the_shape():
    g = Graph()
    g.append("Erf").append("Conv", g.normal(3, 4, 1, 1)).append("Softmax")
    assert report_lines(g, without_shapes=True)[1].startswith(
        "node 'Conv_1' (Conv): Conv2D cannot take input (3, 8, 8): "
    )


def test_nodes_that_differ_in_numbers_are_one_kind():
    g = Graph()
    for size in (8, 6, 4):
        g.append("Resize", "", g.constant([1, 1, 1.5, size]), mode="nearest").append("Relu")
    g.append("Erf")
    assert report_lines(g) == [
        "node 'Resize_0' (Resize): expected integer scales for height and width, got [1.0, 1.0, 1.5, 8.0] "
        "(3 such nodes)",
        "node 'Erf_6' (Erf): no layer of minidl does that",
    ]


def test_a_single_kind_has_no_heading():
    g = Graph()
    g.append("Erf")
    assert report_lines(g) == ["node 'Erf_0' (Erf): no layer of minidl does that"]
    assert report_lines(g.append("Erf")) == ["node 'Erf_0' (Erf): no layer of minidl does that (2 such nodes)"]


def test_the_number_of_kinds_is_limited():
    g = Graph()
    names = "Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Floor Round Sign Sin Sinh Tan"
    for op in names.split():
        g.append(op)
    found = report_lines(g)
    assert len(found) == 13 and found[-1] == "and 4 more kinds"


@pytest.mark.parametrize("batch", ["N", 4])
def test_the_shape_of_the_input_is_known(batch):
    """Values that fold from it are not reported."""
    g = Graph(batch=batch)
    shape = g.add("Concat", g.add("Slice", g.add("Shape", "x"), g.integers(0), g.integers(1)), g.integers(-1), axis=0)
    g.add("Reshape", g.add("Erf", "x"), shape)
    g.add(
        "Reshape", g.last, g.add("Concat", g.integers(7), g.add("Gather", g.add("Shape", "x"), g.integers(1)), axis=0)
    )
    first, second = report_lines(g)
    assert first == "node 'Erf_3' (Erf): no layer of minidl does that"
    assert "node 'Reshape_8' (Reshape): expected a shape" in second and "got [7, 3]" in second


def test_operators_of_other_domains():
    g = Graph().append("Erf").append("Relu", domain="com.example")
    assert report_lines(g)[1] == "node 'Relu_1' (com.example.Relu): no layer of minidl does that"
    g.add("Relu", "v0", g.add("Tanh", "x"), domain="com.example")
    assert report_lines(g)[1] == "node 'Relu_3' (com.example.Relu): no layer of minidl does that"


@pytest.mark.parametrize("op", REWRITTEN_READ_FUNCTIONS)
def test_operators_of_the_passes_are_refused_in_a_file(op):
    """Their attributes are not those of a file: a layer, or a node."""
    node = Node(op, "hostile", ["x"], ["y"], {"layer": "ReLU", "last": 1}, domain=REWRITTEN)
    plain = PlainGraph([node], {}, [ValueInfo("x", "float32", ["N", 3])], [ValueInfo("y", "float32", None)])
    with pytest.raises(ValueError, match=rf"^node 'hostile' \(minidl.{op}\): no layer of minidl does that$"):
        build_model(plain, None)


def test_supported_nodes_are_not_reported():
    """Operators that form one layer, nodes that the output does not need, branches, constants."""
    g = Graph()
    g.add("Sin", "x")
    x = g.add("Mul", "x", g.add("HardSigmoid", "x", alpha=1 / 6))
    one = g.add("Add", g.add("Erf", g.add("Div", x, g.constant(2**0.5))), g.constant(1))
    y = g.add("Mul", g.add("Mul", x, one), g.constant(0.5))
    y = g.add("Concat", y, g.add("Mul", g.add("Sigmoid", y), y), axis=1)
    y = g.add("Add", g.add("Relu", y), g.add("Tanh", y))
    g.add(
        "Reshape",
        y,
        g.add("Concat", g.add("Slice", g.add("Shape", y), g.integers(0), g.integers(1)), g.integers(-1), axis=0),
    )
    g.append("Erf").append("Gemm", g.normal(384, 2)).append("Sin")
    assert [line.partition(":")[0] for line in report_lines(g, without_shapes=True)] == [
        "node 'Erf_18' (Erf)",
        "node 'Sin_20' (Sin)",
    ]


def test_joins_and_second_outputs():
    g = Graph()
    gate = g.add("Mod", "x", g.add("Sigmoid", g.add("Tanh", "x")))
    rows = g.add("Concat", gate, g.add("Relu", gate), axis=0)
    g.add("MaxPool", rows, outputs=["y", "places"], kernel_shape=[2, 2])
    g.add("Add", "y", g.add("Cast", "places", to=1))
    found = report_lines(g)
    assert [line.partition(":")[0] for line in found] == [
        "node 'Mod_2' (Mod)",
        "node 'Concat_4' (Concat)",
        "node 'MaxPool_5' (MaxPool)",
    ]
    assert "expected branches joined" in found[0] and "after the batch, got 0" in found[1] and "'places'" in found[2]


def test_a_node_is_reported_once():
    """An operator fails first for its second output, then as an operator."""
    g = Graph((4, 8, 8))
    g.add("TopK", "x", g.integers(4), outputs=["a", "b"], axis=1)
    g.add("Concat", "a", g.add("Cast", "b", to=1), axis=1)
    (found,) = report_lines(g)
    assert found.startswith("node 'TopK_0' (TopK): no layer of minidl does that: name the values before it")


def test_branches_that_do_not_nest_are_not_reported():
    """Only what no layer does, inside of them and after them."""
    g = Graph()
    a, b = g.add("Relu", "x"), g.add("Erf", "x")
    g.add("Add", g.add("Add", a, b), b)
    g.append("Erf")
    assert report_lines(g) == ["node 'Erf_1' (Erf): no layer of minidl does that (2 such nodes)"]
