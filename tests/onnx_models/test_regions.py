"""Branches that do not nest: random graphs against NumPy, and layers of some; nothing here needs the onnx package."""

import numpy as np
import pytest

from minidl.engine.layer_list import MAX_NESTING
from minidl.onnx.graph import Graph, Node, ValueInfo
from minidl.onnx.importing import build_model
from minidl.testing import check_layer

UNARY = {"Relu": lambda x: np.maximum(x, 0), "Tanh": np.tanh, "Neg": np.negative}
BINARY = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}


def pool(x):
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))


class RandomGraph:
    """Nodes that each read any of the last values, and their values for an input x: (n, c, h, w)."""

    def __init__(self, seed, n_nodes, reach, pools=True):
        self.rng = np.random.default_rng(seed)
        self.x = self.rng.standard_normal((3, 2, 8, 8))
        self.values, self.nodes, self.tensors, self.unread = {"x": self.x}, [], {}, set()
        for _ in range(n_nodes):
            self.add_random(list(self.values)[-reach:], pools)
        for name in sorted(self.unread):  # the output depends on all nodes
            pooled = self.values[name].mean((2, 3), keepdims=True)
            self.add("GlobalAveragePool", [name], pooled)
        ends = sorted(self.unread)
        self.add("Concat", ends, np.concatenate([self.values[name] for name in ends], 1), axis=1)

    def add(self, op, inputs, value, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(Node(op, f"n{len(self.nodes)}", inputs, [name], attributes))
        self.values[name] = value
        self.unread = (self.unread | {name}) - set(inputs)

    def add_random(self, names, pools):
        first = str(self.rng.choice(names))
        a = self.values[first]
        kind = self.rng.integers(10)
        if kind < 2:
            op = str(self.rng.choice(list(UNARY)))
            self.add(op, [first], UNARY[op](a))
        elif kind == 2:
            weight = self.rng.uniform(0.5, 1, (a.shape[1], 1, 1))
            self.tensors[f"w{len(self.nodes)}"] = weight
            self.add("Mul", [first, f"w{len(self.nodes)}"], a * weight)
        elif kind == 3 and pools and a.shape[2] > 1:
            self.add("MaxPool", [first], pool(a), kernel_shape=[2, 2], strides=[2, 2])
        elif kind < 6:
            others = [name for name in names if self.values[name].shape[2:] == a.shape[2:] and name != first]
            inputs = [first, *others[:2]]
            if sum(self.values[name].shape[1] for name in inputs) < 40:
                self.add("Concat", inputs, np.concatenate([self.values[name] for name in inputs], 1), axis=1)
        else:
            others = [name for name in names if self.values[name].shape == a.shape]
            op = str(self.rng.choice(list(BINARY)))
            second = str(self.rng.choice(others))
            self.add(op, [first, second], BINARY[op](a, self.values[second]))

    def graph(self):
        inputs = [ValueInfo("x", "float64", ["N", *self.x.shape[1:]])]
        return Graph(self.nodes, self.tensors, inputs, [ValueInfo(self.nodes[-1].outputs[0], "float64", None)])


@pytest.mark.parametrize("pools", [False, True])
@pytest.mark.parametrize("reach", [3, 8])
@pytest.mark.parametrize("seed", range(25))
def test_random_graphs_match_numpy(seed, reach, pools):
    graph = RandomGraph(seed, 25, reach, pools)
    expected = graph.values[graph.nodes[-1].outputs[0]]
    model = build_model(graph.graph(), None)
    np.testing.assert_allclose(model.predict(graph.x), expected, 1e-9, 1e-9 * np.abs(expected).max())
    scales = [value for name, value in model.state_dict().items() if name.endswith("weight")]
    assert sorted(float(value.flat[0]) for value in scales) == sorted(
        float(value.flat[0]) for value in graph.tensors.values()
    )


def names_of(layers):
    """Returns the layers as text: containers with their branches."""
    parts = []
    for layer in layers:
        branches = layer.named_branches().values() if hasattr(layer, "named_branches") else ()
        inner = f"({' | '.join(map(names_of, branches))})" if branches else ""
        parts.append(f"{getattr(layer, 'join', '') if branches else ''}{inner}" or type(layer).__name__)
    return " ".join(parts)


def build(shape, *nodes, axis=1):
    attributes = {"Concat": {"axis": axis}, "MaxPool": {"kernel_shape": [2, 2], "strides": [2, 2]}}
    listed = [
        Node(op, f"n{i}", inputs.split(), [name], attributes.get(op, {})) for i, (name, op, inputs) in enumerate(nodes)
    ]
    values = [ValueInfo("x", "float64", ["N", *shape])], [ValueInfo(nodes[-1][0], "float64", None)]
    return build_model(Graph(listed, {"k": np.ones((2, 1, 1))}, *values), None)


def test_images_of_one_size_are_carried_as_channels():
    """As in Res2Net: a + b is read by the next sum and by the output."""
    model = build((2, 4, 4), ("a", "Relu", "x"), ("b", "Add", "a x"), ("c", "Mul", "b a"), ("y", "Concat", "c b"))
    carried = "concat( | ReLU) concat(Columns | add(Columns | Columns)) concat(Columns | multiply(Columns | Columns))"
    assert names_of(model.layers) == f"{carried} concat(Columns | Columns)"


def test_values_of_several_sizes_are_flattened():
    model = build((2, 4, 4), ("a", "Relu", "x"), ("p", "MaxPool", "a"), ("q", "MaxPool", "x"), ("b", "Add", "p q"),
                  ("r", "MaxPool", "a"), ("c", "Mul", "r b"), ("y", "Concat", "c p"))  # fmt: skip
    assert names_of(model.layers) == (
        "concat( | ReLU) "
        "concat(Flatten | Columns MaxPool2D Flatten) "  # a is larger than p
        "concat(Columns | add(Columns Reshape MaxPool2D | Columns Reshape) Flatten) "
        "concat(Columns Reshape | multiply(Columns Reshape MaxPool2D | Columns Reshape)) "
        "concat(Columns | Columns)"
    )


def test_a_region_can_be_trained(rng):
    """Gradients flow through all that is carried along."""
    model = build((2, 4, 4), ("a", "Tanh", "x"), ("p", "MaxPool", "a"), ("b", "Add", "a x"), ("q", "MaxPool", "b"),
                  ("c", "Mul", "p q"), ("y", "Concat", "c p q"))  # fmt: skip
    for layer in model.layers:
        check_layer(layer, layer.in_shape)


@pytest.mark.parametrize(
    ("join", "axis", "message"),
    [
        (("c", "Mod", "b a"), 1, "expected branches joined by Add, Concat, Div, Max, Min, Mul, Pow, Sub, Sum"),
        (("c", "Sum", "b a k"), 1, "expected branches only, got a constant among them"),
        (("c", "Concat", "b a"), 0, "expected an axis from 1 to 3, after the batch, got 0"),
    ],
)
def test_other_joins_are_refused(join, axis, message):
    with pytest.raises(ValueError, match=message):
        build((2, 4, 4), ("a", "Relu", "x"), ("b", "Add", "a x"), join, ("y", "Mul", "c b"), axis=axis)


def test_the_shape_of_a_join_is_known(rng):
    """It is read by a Reshape after it, in the same step."""
    model = build((2, 4, 4), ("a", "Relu", "x"), ("b", "Add", "a x"), ("s", "Shape", "b"), ("r", "Reshape", "b s"),
                  ("c", "Tanh", "r"), ("d", "Mul", "c a"), ("y", "Add", "d c"))  # fmt: skip
    x = rng.standard_normal((3, 2, 4, 4))
    c = np.tanh(np.maximum(x, 0) + x)
    np.testing.assert_allclose(model.predict(x), c * np.maximum(x, 0) + c, 1e-12)


def test_many_values_are_refused_by_the_number_of_branches():
    nodes = [(f"a{i}", "Neg", "x") for i in range(300)]
    nodes += [(f"b{i}", "Add", f"a{i} a{(i + 1) % 300}") for i in range(300)]
    with pytest.raises(ValueError, match=r"node 'n600' \(Concat\): branches: expected at most 256, got 300"):
        build((2, 2, 2), *nodes, ("y", "Concat", " ".join(f"b{i}" for i in range(300))))


def nested(levels):
    """Returns nodes for a sum of x and a function of such a sum, and so on: all branches begin with x."""
    nodes, last = [], "x"
    for i in range(levels):
        nodes += [(f"t{i}", "Neg", last), (f"s{i}", "Mul", f"t{i} x"), (f"r{i}", "Add", f"s{i} x")]
        last = f"r{i}"
    return nodes


@pytest.mark.parametrize("levels", [8, 9, 40])
def test_branches_nested_deeper_than_layers_are_a_region(levels, rng):
    """As an unrolled recurrence, each of whose steps reads the input."""
    model = build((2, 2, 2), *nested(levels))
    assert (len(model.layers) == 1) == (2 * levels <= MAX_NESTING)
    x = rng.standard_normal((3, 2, 2, 2))
    y = x
    for _ in range(levels):
        y = x - y * x
    np.testing.assert_allclose(model.predict(x), y, 1e-9, 1e-9)
