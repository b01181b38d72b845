"""Graphs of branches that fork and join, as series and as containers; nothing here needs the onnx package."""

import numpy as np
import pytest

from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import ANY_BATCH, Graph, Node, ValueInfo
from minidl.onnx.importing import build_model
from minidl.onnx.structure.branches import parse_graph
from minidl.onnx.structure.regions import Join, Region


def graph(*nodes, tensors=None, opset=21):
    """Returns a graph. nodes: such as "y = Op(a, b)"; the input is x, the output that of the last node."""
    graph_nodes = []
    for i, text in enumerate(nodes):
        output, call = text.split(" = ")
        op, inputs = call.rstrip(")").split("(")
        attributes = {"axis": 1} if op == "Concat" else {}
        graph_nodes.append(Node(op, f"n{i}", [name for name in inputs.split(", ") if name], [output], attributes))
    value = ValueInfo("x", "float32", ["N", 2, 4, 4])
    return Graph(graph_nodes, tensors or {}, [value], [ValueInfo(graph_nodes[-1].outputs[0], "float32", None)], opset)


def to_text(chain):
    """Returns a series as text: operators, with the branches of a join in brackets before it."""
    parts = []
    for item in chain:
        if isinstance(item, Join):
            parts.append(f"[{' | '.join(map(to_text, item.branches))}]{item.node.op}")
        elif isinstance(item, Region):
            parts.append(f"<{'; '.join(', '.join(map(value_text, step.items())) for step in item.steps)}>")
        else:
            parts.append(item.op)
    return " ".join(parts)


def value_text(item):
    """Returns a value of a region as text: its node, and what it is computed from."""
    index, value = item
    branches = " | ".join(f"{source}: {to_text(series)}".strip() for source, series in value.branches)
    join = f"[{branches}]{value.join.op} {to_text(value.rest)}" if value.join else branches
    return f"{index} = {join}".strip()


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (["y = Relu(x)"], "Relu"),
        (["a = Relu(x)", "b = Tanh(a)", "y = Elu(b)"], "Relu Tanh Elu"),
        (["a = Relu(x)", "b = Tanh(a)", "y = Add(b, a)"], "Relu [Tanh | ]Add"),
        (["a = Relu(x)", "y = Add(a, a)"], "Relu [ | ]Add"),
        (["a = Relu(x)", "b = Tanh(x)", "c = Elu(b)", "y = Concat(a, x, c)"], "[Relu |  | Tanh Elu]Concat"),
        (["a = Relu(x)", "b = Add(a, x)", "c = Tanh(b)", "y = Add(c, b)"], "[Relu | ]Add [Tanh | ]Add"),
        (["a = Relu(x)", "b = Add(a, x)", "c = Tanh(b)", "y = Add(c, x)"], "[[Relu | ]Add Tanh | ]Add"),
        (
            ["a = Relu(x)", "b = Tanh(a)", "c = Elu(a)", "d = Add(b, c)", "y = Sum(d, x)"],
            "[Relu [Tanh | Elu]Add | ]Sum",
        ),
        (
            ["a = Relu(x)", "b = Tanh(a)", "c = Elu(a)", "d = Sigmoid(x)", "y = Concat(d, b, c, x)"],
            "[Sigmoid | Relu [Tanh | Elu]Concat | ]Concat",
        ),
        (
            [
                "a = Relu(x)",
                "p = Concat(x, a)",
                "b = Tanh(p)",
                "q = Concat(x, a, b)",
                "c = Elu(q)",
                "y = Concat(x, a, b, c)",
            ],
            "[ | Relu]Concat [ | Tanh]Concat [ | Elu]Concat",
        ),
        (["a = Relu(x)", "b = Concat(x, a)", "c = Concat(x, a)", "y = Tanh(c)"], "[ | Relu]Concat Concat Tanh"),
        (["z = Tanh(x)", "a = Relu(x)"], "Relu"),  # not needed by the output
        (["z = Shape(x)", "y = Reshape(x, z)"], "Reshape"),
    ],
)
def test_parse_graph(nodes, expected):
    g = graph(*nodes)
    assert to_text(parse_graph(g, Constants(g))) == expected


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (
            ["a = Relu(x)", "b = Tanh(x)", "c = Add(a, b)", "y = Add(c, b)"],
            "<1 = -1: Tanh; 2 = [-1: Relu | 1:]Add; 3 = [2: | 1:]Add>",
        ),
        (  # x + (b + c) rounds differently
            ["a = Relu(x)", "b = Tanh(a)", "c = Elu(a)", "y = Sum(x, b, c)"],
            "<0 = -1: Relu; 3 = [-1: | 0: Tanh | 0: Elu]Sum>",
        ),
        (  # a chain, and a join of branches that nest, are in one step
            ["a = Relu(x)", "b = Tanh(a)", "c = Elu(b)", "d = Add(b, c)", "e = Add(d, x)", "y = Mul(e, b)"],
            "<1 = -1: Relu Tanh; 4 = [1: [ | Elu]Add | -1:]Add; 5 = [4: | 1:]Mul>",
        ),
        (  # a value whose readers are merged one after the other
            [
                "a = Relu(x)",
                "b = Tanh(a)",
                "c = Add(a, b)",
                "d = Mul(c, a)",
                "p = Exp(x)",
                "q = Add(p, d)",
                "y = Mul(q, p)",
            ],
            "<4 = -1: Exp; 5 = [4: | -1: Relu [[ | Tanh]Add | ]Mul]Add; 6 = [5: | 4:]Mul>",
        ),
        (  # what follows a join before it is read twice
            [
                "a = Relu(x)",
                "b = Tanh(x)",
                "c = Add(a, b)",
                "d = Exp(c)",
                "e = Elu(d)",
                "f = Mul(d, e)",
                "g = Add(f, b)",
                "y = Add(g, a)",
            ],
            "<0 = -1: Relu, 1 = -1: Tanh; 5 = [0: | 1:]Add Exp [ | Elu]Mul; 6 = [5: | 1:]Add; 7 = [6: | 0:]Add>",
        ),
    ],
)
def test_branches_that_do_not_nest_are_a_region(nodes, expected):
    g = graph(*nodes)
    assert to_text(parse_graph(g, Constants(g))) == expected


def test_a_region_inside_a_branch():
    """Only the innermost join whose branches do not nest becomes a region."""
    g = graph("a = Relu(x)", "b = Tanh(a)", "c = Elu(a)", "d = Add(b, c)", "e = Add(d, c)", "y = Mul(e, x)")
    assert to_text(parse_graph(g, Constants(g))) == "[Relu <2 = 0: Elu; 3 = [0: Tanh | 2:]Add; 4 = [3: | 2:]Add> | ]Mul"


def test_a_region_of_an_outer_join():
    """d nests, but b is also read outside of it."""
    g = graph("a = Relu(x)", "b = Tanh(a)", "c = Elu(a)", "d = Add(b, c)", "y = Sum(d, b, x)")
    expected = "<0 = -1: Relu; 1 = 0: Tanh; 3 = [1: | 0: Elu]Add; 4 = [3: | 1: | -1:]Sum>"
    assert to_text(parse_graph(g, Constants(g))) == expected


def layer_lines(model):
    return [line.strip() for line in repr(model).splitlines()[1:-1] if line.strip() != ")"]


@pytest.mark.parametrize(
    ("nodes", "layers"),
    [
        (["a = Relu(x)", "y = Add(a, x)"], ["(0): Residual(", "(body.0): ReLU()"]),
        (["a = Relu(x)", "y = Add(x, a)"], ["(0): Residual(", "(body.0): ReLU()"]),
        (
            ["a = Relu(x)", "b = Tanh(a)", "c = Sigmoid(x)", "y = Add(c, b)"],
            ["(0): Residual(", "(body.0): ReLU()", "(body.1): Tanh()", "(shortcut.0): Sigmoid()"],
        ),
        (
            ["a = Relu(x)", "b = Tanh(x)", "c = Add(a, b)", "d = Sigmoid(x)", "y = Add(d, c)"],
            [
                "(0): Parallel(",
                "join='add'",
                "(branches.0.0): ReLU()",
                "(branches.1.0): Tanh()",
                "(branches.2.0): Sigmoid()",
            ],
        ),
        (["a = Relu(x)", "y = Concat(x, a)"], ["(0): Parallel(", "(branches.1.0): ReLU()"]),
        (["a = Sigmoid(x)", "y = Mul(a, x)"], ["(0): SiLU()"]),
    ],
)
def test_joins_become_containers(nodes, layers):
    assert layer_lines(build_model(graph(*nodes), None)) == layers


@pytest.mark.parametrize(
    ("axis", "shape"), [(1, (4, 4, 4)), (-3, (4, 4, 4)), (-2, (2, 8, 4)), (2, (2, 8, 4)), (-1, (2, 4, 8))]
)
def test_concat_along_any_axis_of_an_example(axis, shape, rng):
    g, x = graph("a = Relu(x)", "y = Concat(x, a)"), rng.standard_normal((3, 2, 4, 4))
    g.nodes[1].attributes["axis"] = axis
    g.outputs[0].shape = None
    assert build_model(g, None).predict(x).shape == (3, *shape)


@pytest.mark.parametrize("axis", [0, -4, 4])
def test_concat_along_another_axis(axis):
    g = graph("a = Relu(x)", "y = Concat(x, a)")
    g.nodes[1].attributes["axis"] = axis
    with pytest.raises(ValueError, match=rf"node 'n1' \(Concat\): expected an axis from 1 to 3, after .*, got {axis}"):
        build_model(g, None)


def test_a_concat_of_the_same_inputs_along_another_axis():
    """Must not be merged into a Concat of channels."""
    g = graph("a = Relu(x)", "r = Concat(x, a)", "b = Tanh(a)", "y = Concat(x, a, b)")
    g.nodes[1].attributes["axis"] = 2  # which the output does not need
    assert to_text(parse_graph(g, Constants(g))) == "[ | Relu [ | Tanh]Concat]Concat"
    assert len(build_model(g, None).layers) == 1


def test_nested_sums_keep_their_order(rng):
    """(a + b) + c, not a + (b + c), with values that round differently."""
    g = graph("a = Mul(x, k)", "b = Mul(x, l)", "s = Add(a, b)", "y = Add(x, s)",
              tensors={"k": np.float32(1e8).reshape(1), "l": np.float32(-1e8).reshape(1)})  # fmt: skip
    x = rng.standard_normal((3, 2, 4, 4)).astype("f4")
    expected = x + (x * np.float32(1e8) + x * np.float32(-1e8))
    assert np.array_equal(build_model(g, None).predict(x), expected)


def test_group_normalization_before_opset_21_is_refused():
    g = graph("y = GroupNormalization(x, w, w)", tensors={"w": np.ones(2, "f4")}, opset=20)
    with pytest.raises(ValueError, match=r"GroupNormalization.*expected opset 21 or later, got 20"):
        build_model(g, None)


# ---- constants


def test_shapes_fold_once_they_are_known():
    g = graph("a = Relu(x)", "s = Shape(a)", "y = Reshape(x, s)")
    constants = Constants(g)
    assert set(constants) == {"s"} and len(constants) == 1 and "a" not in constants
    with pytest.raises(ValueError, match=r"node 'n1' \(Shape\): .*the shape of 'a' is not known"):
        constants["s"]
    constants.shapes["a"] = (ANY_BATCH, 2, 4, 4)
    assert constants["s"].tolist() == [ANY_BATCH, 2, 4, 4]
    with pytest.raises(KeyError):
        constants["a"]


def test_the_batch_size_cannot_be_computed_with():
    """A reshape that moves the batch size to another axis is refused."""
    tensors = {"i": np.array([0]), "j": np.array([1, 2, 3])}
    g = graph(
        "s = Shape(x)", "n = Gather(s, i)", "r = Gather(s, j)", "t = Concat(r, n)", "y = Reshape(x, t)", tensors=tensors
    )
    g.nodes[3].attributes["axis"] = 0
    with pytest.raises(ValueError, match="that keeps examples of "):
        build_model(g, None)


def test_large_folded_constants_are_refused():
    nodes = ["c0 = Concat(k, k)", *(f"c{i} = Concat(c{i - 1}, c{i - 1})" for i in range(1, 40)), "y = Reshape(x, c39)"]
    g = graph(*nodes, tensors={"k": np.ones(2, "i8")})
    for node in g.nodes:
        node.attributes = {"axis": 0} if node.op == "Concat" else {}
    with pytest.raises(ValueError, match=r"node 'n1\d' \(Concat\): .*less work to compute large constants"):
        build_model(g, None)
