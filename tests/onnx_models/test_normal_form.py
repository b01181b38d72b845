"""What files leave open, or write in several ways: opsets, order of nodes, missing shapes, local functions."""

import time
from contextlib import suppress

import numpy as np
import pytest
from onnx_models.graphs import Graph, check, run_both

from minidl import FileError
from minidl.onnx import import_model
from minidl.onnx.graph import MAX_NODES

pytestmark = pytest.mark.oracle("onnx")

MY = "com.example"  # the domain of local functions


def save(model, folder):
    path = folder / "graph.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def modified(graph, change):
    """Returns the graph, whose model is changed by a function when it is saved."""
    make = graph.model

    def model(**options):
        proto = make(**options)
        change(proto)
        return proto

    graph.model = model
    return graph


def net():
    g = Graph()
    g.append("Conv", g.normal(2, 3, 3, 3)).append("Relu").append("Flatten").append("Gemm", g.normal(72, 4), g.normal(4))
    return g


def refused(model, folder, kind=ValueError):
    """Returns the message; checks that it takes little time."""
    started = time.perf_counter()
    with pytest.raises(kind) as error:
        import_model(save(model, folder))
    assert time.perf_counter() - started < 20
    return str(error.value)


# ---- opsets


def with_opsets(*entries):
    def change(model):
        del model.opset_import[:]
        for domain, version in entries:
            model.opset_import.add(domain=domain, version=version)

    return change


@pytest.mark.parametrize("domains", [("", ""), ("ai.onnx", ""), ("", "ai.onnx")])
@pytest.mark.parametrize("versions", [(12, 13), (13, 12)])
def test_the_last_of_two_opsets_counts(domains, versions, tmp_path):
    """As in onnxruntime: a Softmax is over all that follows its axis in opset 12."""
    g = modified(Graph((2, 3)).append("Softmax", axis=1), with_opsets(*zip(domains, versions, strict=True)))
    (softmax,) = check(g, tmp_path, "Softmax").layers
    assert softmax.axis == (0 if versions[-1] == 13 else (0, 1))


@pytest.mark.parametrize("ir", [1, 2])
def test_files_before_opsets(ir, tmp_path):
    def change(model):
        del model.opset_import[:]
        model.ir_version = ir
        model.graph.output[0].type.tensor_type.ClearField("shape")

    g = modified(Graph(opset=1).append("Reshape", shape=[0, -1]).append("Softmax"), change)
    x = g.rng.standard_normal((2, *g.shape)).astype("f4")
    e = np.exp(x.reshape(2, -1))
    found = import_model(save(g.model(), tmp_path)).predict(x)
    np.testing.assert_allclose(found, e / e.sum(1, keepdims=True), 1e-5)


def test_a_file_of_ir_3_without_an_opset(tmp_path):
    def change(model):
        del model.opset_import[:]
        model.ir_version = 3

    assert "expected an opset of ONNX, from 1 to 28, got none" in refused(modified(net(), change).model(), tmp_path)


def test_initializers_that_are_no_inputs_in_ir_3(tmp_path):
    check(modified(net(), lambda model: setattr(model, "ir_version", 3)), tmp_path)


def test_all_operators_that_onnx_does_not_have_are_listed(tmp_path):
    g = Graph().append("Relu").append("Foo").append("Bar").append("Relu", domain="com.example")
    message = refused(g.model(), tmp_path)
    assert "node 'Foo_1' (Foo): ONNX has no such operator in the file's opset" in message
    assert "node 'Bar_2' (Bar): ONNX has no such operator" in message and "(com.example.Relu): no layer" in message


# ---- order, and shapes


@pytest.mark.parametrize("order", ["reversed", "shuffled"])
def test_nodes_in_any_order(order, tmp_path):
    def change(model):
        nodes = list(model.graph.node)
        nodes = nodes[::-1] if order == "reversed" else [nodes[i] for i in (2, 0, 3, 1)]
        copies = [type(nodes[0]).FromString(node.SerializeToString()) for node in nodes]
        del model.graph.node[:]
        model.graph.node.extend(copies)

    check(modified(net(), change), tmp_path, "Conv2D", "ReLU", "Flatten", "Dense")


@pytest.mark.parametrize("length", [1, 2, 1000])
def test_a_cycle_is_refused_by_name(length, tmp_path):
    g = Graph()
    g.add("Add", "x", f"v{length - 1}" if length > 1 else "v0")
    for _ in range(length - 1):
        g.append("Relu")
    assert "expected nodes without a cycle" in refused(g.model(), tmp_path, FileError)


@pytest.mark.parametrize("which", ["output", "input"])
def test_missing_shapes(which, tmp_path):
    g = modified(net(), lambda model: getattr(model.graph, which)[0].type.tensor_type.ClearField("shape"))
    if which == "output":
        check(g, tmp_path)
        return
    assert "input 'x': expected a batch axis and the sizes of all other axes, got None: pass" in refused(
        g.model(), tmp_path
    )
    assert import_model(save(g.model(), tmp_path), g.shape).output_shape == (4,)


# ---- weights in Constant nodes


def with_constant_nodes(graph):
    """Returns the graph with all tensors in Constant nodes, as Paddle writes them."""
    from onnx import helper

    def change(model):
        nodes = [helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in model.graph.initializer]
        nodes += list(model.graph.node)
        copies = [type(nodes[0]).FromString(node.SerializeToString()) for node in nodes]
        del model.graph.initializer[:], model.graph.node[:]
        model.graph.node.extend(copies)

    return modified(graph, change)


@pytest.mark.parametrize("width", [4, 400])
def test_weights_in_constant_nodes(width, tmp_path):
    g = Graph()
    g.append("Flatten").append("MatMul", g.normal(192, width)).append("Add", g.normal(width))
    check(with_constant_nodes(g), tmp_path, "Flatten", "Dense")


def test_large_constant_nodes_that_are_left_to_onnx(tmp_path):
    """An unknown attribute, none, two outputs, and a value that is not large."""
    from onnx import helper, numpy_helper

    large = numpy_helper.from_array(np.ones((192, 400), "f4"), "")
    for change in (
        lambda node: setattr(node.attribute[0], "name", "values"),
        lambda node: node.attribute.append(node.attribute[0]),
        lambda node: node.output.append("another"),
        lambda node: setattr(node, "op_type", "Foo"),
        lambda node: setattr(node, "domain", "com.example"),
        lambda node: node.output.pop(),
        lambda node: node.attribute[0].t.dims.append(2),
        lambda node: setattr(node.attribute[0].t, "data_type", 99),
    ):
        node = helper.make_node("Constant", [], ["w"], "large", value=large)
        change(node)
        g = Graph().append("Flatten")
        g.add("MatMul", "v0", "w")
        refused(
            modified(g, lambda model, node=node: model.graph.node.insert(0, node)).model(out_shape=(None,)), tmp_path
        )


def test_a_constant_node_of_the_name_of_a_tensor(tmp_path):
    from onnx import helper, numpy_helper

    g = Graph().append("Flatten")
    weight = g.normal(192, 400)
    g.append("MatMul", weight)
    g.nodes.insert(
        0, helper.make_node("Constant", [], [weight], value=numpy_helper.from_array(np.ones((192, 400), "f4")))
    )
    assert "tensor 'c0': expected one of this name, got two" in refused(g.model(out_shape=(None,)), tmp_path, FileError)


# ---- local functions


def function(name, inputs, outputs, nodes, attributes=(), domain=MY):
    from onnx import helper

    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MY, 1)]
    return helper.make_function(domain, name, inputs, outputs, nodes, opsets, attributes)


def calling(graph, *functions):
    """Returns the graph with these local functions."""

    return modified(graph, lambda model: model.functions.extend(functions))


def call(name, inputs, outputs, **attributes):
    from onnx import helper

    return helper.make_node(name, inputs, outputs, domain=MY, **attributes)


def scaled(name, inner):
    """A function that adds its input to what a node computes from it."""
    from onnx import helper

    return function(name, ["a"], ["b"], [inner, helper.make_node("Add", ["a", "t"], ["b"])])


def leaky(name="Leaky"):
    from onnx import AttributeProto, helper

    node = helper.make_node("LeakyRelu", ["a"], ["b"])
    node.attribute.append(AttributeProto(name="alpha", type=AttributeProto.FLOAT, ref_attr_name="slope"))
    return function(name, ["a"], ["b"], [node], ["slope"])


def test_local_functions_are_inlined(tmp_path):
    g = Graph()
    g.add("Leaky", "x", domain=MY, slope=0.3)
    g.append("Twice", domain=MY).append("Flatten")
    expected, found, model = run_both(
        calling(g, leaky(), scaled("Twice", call("Leaky", ["a"], ["t"], slope=0.1))),
        g.save(tmp_path, out_shape=(None, None)),
    )
    np.testing.assert_allclose(found, expected, 1e-5)
    assert [type(layer).__name__ for layer in model.layers] == ["LeakyReLU", "Residual", "Flatten"]


def test_unused_local_functions_are_ignored(tmp_path):
    check(calling(net(), leaky(), function("Relu", ["a"], ["b"], [call("Leaky", ["a"], ["b"])])), tmp_path)


def doubling(n):
    """Functions of which each calls the one before twice."""
    yield scaled("F0", call("Leaky", ["a"], ["t"], slope=0.1))
    for i in range(1, n):
        calls = [call(f"F{i - 1}", ["a"], ["t"]), call(f"F{i - 1}", ["t"], ["b"])]
        yield function(f"F{i}", ["a"], ["b"], calls)


def in_a_branch(n):
    """The same, with the calls in graphs of attributes."""
    from onnx import TensorProto, helper

    yield from doubling(1)
    for i in range(1, n):
        inner = [call(f"F{i - 1}", ["a"], ["t"]), call(f"F{i - 1}", ["t"], ["u"])]
        graph = helper.make_graph(inner, "g", [], [helper.make_tensor_value_info("u", TensorProto.FLOAT, None)])
        yield function(
            f"F{i}", ["a"], ["b"], [helper.make_node("If", ["a"], ["b"], then_branch=graph, else_branch=graph)]
        )


def chain(n):
    yield leaky("F0")
    for i in range(1, n):
        yield function(f"F{i}", ["a"], ["b"], [call(f"F{i - 1}", ["a"], ["b"])])


LIMIT = f"expected at most {MAX_NODES} nodes after local functions are inlined, got more"
RECURSION = "expected local functions that do not call themselves, nested at most 32 deep, got"
HOSTILE = {
    "recursive": (lambda: [scaled("F", call("F", ["a"], ["t"]))], "F", RECURSION),
    "in turn": (lambda: [scaled("F", call("G", ["a"], ["t"])), scaled("G", call("F", ["a"], ["t"]))], "F", RECURSION),
    "exponential": (lambda: doubling(30), "F29", LIMIT),
    "exponential in branches": (lambda: in_a_branch(30), "F29", LIMIT),
    "deep": (lambda: chain(3000), "F2999", RECURSION),
    "of ONNX's domain": (
        lambda: [function("Relu", ["a"], ["b"], [call("Relu", ["a"], ["b"])], domain="")],
        "Relu",
        "expected local functions of other domains than ONNX's, got 'Relu'",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_local_functions(name, tmp_path):
    functions, called, message = HOSTILE[name]
    g = Graph().append(called, domain="" if called == "Relu" else MY)
    model = calling(g, *functions()).model(out_shape=(None,))
    assert message in refused(model, tmp_path)


def test_a_recursive_function_in_a_branch(tmp_path):
    from onnx import helper

    g = Graph()
    graph = helper.make_graph([call("F", ["x"], ["t"])], "g", [], [])
    g.add("If", g.constant(True, "bool"), then_branch=graph, else_branch=graph)
    model = calling(g, scaled("F", call("F", ["a"], ["t"]))).model(out_shape=(None,))
    assert RECURSION in refused(model, tmp_path)


@pytest.mark.parametrize("seed", range(2))
def test_damaged_local_functions(seed, tmp_path):
    """Missing and additional inputs, outputs, attributes and domains: refused, or a net."""
    rng = np.random.default_rng(seed)
    g = Graph()
    g.add("Leaky", "x", domain=MY, slope=0.3)
    good = calling(g.append("Twice", domain=MY), leaky(), scaled("Twice", call("Leaky", ["a"], ["t"], slope=0.1)))
    for _ in range(25):
        model = good.model()
        nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
        lists = [field for node in nodes for field in (node.input, node.output, node.attribute)]
        lists += [
            field for function in model.functions for field in (function.input, function.output, function.opset_import)
        ]
        for _ in range(rng.integers(1, 3)):
            field = lists[rng.integers(len(lists))]
            if len(field) and rng.random() < 0.6:
                del field[-1]
            elif len(field) and rng.random() < 0.5:
                field.append(field[0])
            else:
                nodes[rng.integers(len(nodes))].op_type = str(rng.choice(["Leaky", "Twice", "Relu", ""]))
        with suppress(ValueError):
            import_model(save(model, tmp_path))
