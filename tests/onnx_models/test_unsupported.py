"""What keeps a graph from becoming layers is told at once: each kind with one node, bounded, and nothing else."""

import re

import pytest
from onnx_models.graphs import Graph

from minidl.onnx import import_model
from minidl.onnx.importing import to_model
from minidl.onnx.model_file import from_bytes

BLIND = "nodes with unknown input shapes: only their operators were checked"

pytestmark = pytest.mark.oracle("onnx")


def lines(graph, without_shapes=False):
    """What the import says, without the head and spaces."""
    plain = from_bytes(graph.model(out_shape=(None,)).SerializeToString())
    if without_shapes:
        plain.shapes.clear()
    with pytest.raises(ValueError) as error:
        to_model(plain, None)
    head, *found = str(error.value).split("\n  ")
    if head.startswith("node "):
        return [head, *found]
    told = re.fullmatch(r"expected nodes that layers compute, got (\d+) kinds of unsupported nodes:", head)
    kinds = [line for line in found if line.startswith("node ")]
    assert int(told[1]) == len(kinds) or len(kinds) == 12
    return found


def attention(g):
    """Shape arithmetic first, as in exports with an open batch; then what no layer does."""
    half = g.add("Div", g.add("Gather", g.add("Shape", "x"), g.whole(1)), g.whole(2))
    flat = g.add("Reshape", "x", g.add("Concat", g.whole(0), half, g.whole(-1), axis=0))
    g.add("Transpose", flat, perm=[0, 2, 1])
    g.chain("LayerNormalization", g.normal(3)).chain("MatMul", g.normal(3, 4)).chain("Clip")
    y = g.last
    g.add("MatMul", g.add("Softmax", y), g.add("Transpose", g.add("Softmax", y), perm=[0, 2, 1]))


def test_what_hides_after_the_first(tmp_path):
    g = Graph()
    attention(g)
    assert lines(g) == [
        "node 'Div_2' (Div): expected inputs that depend on the examples, or constants that can be computed at import, "
        "got another",
        "node 'Transpose_5' (Transpose): no layer of minidl does that (2 such nodes)",
        "node 'Clip_8' (Clip): no layer of minidl does that",
        "node 'MatMul_12' (MatMul): expected branches that join in Add, Sum or Concat: "
        "no container of minidl does that",
        BLIND,
    ]


def test_the_file_is_told_of_by_its_name(tmp_path):
    g = Graph().chain("Clip").chain("Transpose")
    path = g.save(tmp_path)
    with pytest.raises(ValueError) as error:
        import_model(path)
    assert str(error.value).startswith(
        f"{path}: expected nodes that layers compute, got 2 kinds of unsupported nodes:\n  "
    )


@pytest.mark.parametrize("told", [True, False])
def test_shapes_that_the_file_tells(told):
    """Then attributes are looked at too."""
    g = Graph()
    g.chain("Transpose", perm=[0, 2, 3, 1]).chain("Softmax").chain("MaxPool", kernel_shape=[2, 2], dilations=[2, 2])
    found = lines(g, without_shapes=not told)
    if not told:
        assert found == ["node 'Transpose_0' (Transpose): no layer of minidl does that", BLIND]
    else:
        assert [line.partition(":")[0] for line in found] == [
            "node 'Transpose_0' (Transpose)",
            "node 'Softmax_1' (Softmax)",
            "node 'MaxPool_2' (MaxPool)",
        ]
        assert "expected axis=1, the channels, got 3" in found[1] and "expected dilations=(1, 1)" in found[2]


def test_shapes_that_an_activation_keeps():
    g = Graph()
    g.chain("Clip").chain("Conv", g.normal(3, 4, 1, 1)).chain("Softmax")
    assert lines(g, without_shapes=True)[1].startswith("node 'Conv_1' (Conv): Conv2D cannot take input (3, 8, 8): ")


def test_kinds_are_counted_whatever_their_numbers():
    g = Graph()
    for size in (8, 6, 4):
        g.chain("Resize", "", g.constant([1, 1, 1.5, size]), mode="nearest").chain("Relu")
    g.chain("Clip")
    assert lines(g) == [
        "node 'Resize_0' (Resize): expected integer scales for height and width, got [1.0, 1.0, 1.5, 8.0] "
        "(3 such nodes)",
        "node 'Clip_6' (Clip): no layer of minidl does that",
    ]


def test_one_kind_is_told_as_it_is():
    g = Graph()
    g.chain("Clip")
    assert lines(g) == ["node 'Clip_0' (Clip): no layer of minidl does that"]
    assert lines(g.chain("Clip")) == ["node 'Clip_0' (Clip): no layer of minidl does that (2 such nodes)"]


def test_many_kinds_are_bounded():
    g = Graph()
    names = "Abs Ceil Clip Cos Erf Exp Floor HardSigmoid Log LogSoftmax Neg Round Selu Sign Sin Softplus"
    for op in names.split():
        g.chain(op)
    found = lines(g)
    assert len(found) == 13 and found[-1] == "and 4 other kinds"


@pytest.mark.parametrize("batch", ["N", 4])
def test_shapes_of_the_input_are_known(batch):
    """Of what could be computed from them, nothing is in the way."""
    g = Graph(batch=batch)
    shape = g.add("Concat", g.add("Slice", g.add("Shape", "x"), g.whole(0), g.whole(1)), g.whole(-1), axis=0)
    g.add("Reshape", g.add("Clip", "x"), shape)
    g.add("Reshape", g.last, g.add("Concat", g.whole(7), g.add("Gather", g.add("Shape", "x"), g.whole(1)), axis=0))
    first, second = lines(g)
    assert first == "node 'Clip_3' (Clip): no layer of minidl does that"
    assert "node 'Reshape_8' (Reshape): expected a shape" in second and "got [7, 3]" in second


def test_operators_of_other_domains():
    g = Graph().chain("Clip").chain("Relu", domain="com.example")
    assert lines(g)[1] == "node 'Relu_1' (com.example.Relu): no layer of minidl does that"


def test_what_is_no_obstacle():
    """Operators that are one layer together, what the output does not need, branches, constants."""
    g = Graph()
    g.add("Sin", "x")
    x = g.add("Mul", "x", g.add("HardSigmoid", "x", alpha=1 / 6))
    one = g.add("Add", g.add("Erf", g.add("Div", x, g.constant(2**0.5))), g.constant(1))
    y = g.add("Mul", g.add("Mul", x, one), g.constant(0.5))
    y = g.add("Concat", y, g.add("Mul", g.add("Sigmoid", y), y), axis=1)
    y = g.add("Add", g.add("Relu", y), g.add("Tanh", y))
    g.add("Reshape", y, g.add("Concat", g.add("Slice", g.add("Shape", y), g.whole(0), g.whole(1)), g.whole(-1), axis=0))
    g.chain("Clip").chain("Gemm", g.normal(384, 2)).chain("Softsign")
    assert [line.partition(":")[0] for line in lines(g, without_shapes=True)] == [
        "node 'Clip_18' (Clip)",
        "node 'Softsign_20' (Softsign)",
    ]


def test_branches_and_outputs():
    g = Graph()
    gate = g.add("Mul", "x", g.add("Sigmoid", g.add("GlobalAveragePool", "x")))
    rows = g.add("Concat", gate, g.add("Relu", gate), axis=2)
    g.add("MaxPool", rows, outputs=["y", "places"], kernel_shape=[2, 2])
    g.add("Add", "y", g.add("Cast", "places", to=1))
    found = lines(g)
    assert [line.partition(":")[0] for line in found] == [
        "node 'Mul_2' (Mul)",
        "node 'Concat_4' (Concat)",
        "node 'MaxPool_5' (MaxPool)",
    ]
    assert "expected branches that join" in found[0] and "expected axis=1" in found[1] and "'places'" in found[2]


def test_a_node_is_told_once():
    """What is first seen of a Split is that its second output is used."""
    g = Graph((4, 8, 8))
    g.add("Split", "x", outputs=["a", "b"], axis=1)
    g.add("Concat", "a", g.add("Relu", "b"), axis=1)
    assert lines(g) == ["node 'Split_0' (Split): no layer of minidl does that"]


def test_branches_that_do_not_nest_come_first():
    g = Graph()
    a, b = g.add("Relu", "x"), g.add("Tanh", "x")
    g.add("Add", g.add("Add", a, b), b)
    g.chain("Clip")
    assert [line.partition(":")[0] for line in lines(g)] == ["node 'Tanh_1' (Tanh)", "node 'Clip_4' (Clip)"]
