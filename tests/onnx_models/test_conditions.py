"""An If whose condition is a constant becomes the nodes of the branch that is taken."""

import numpy as np
import pytest
from onnx_models.graphs import Graph, check

from minidl.onnx import import_model

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")


def branch(*nodes, tensors=(), output="t"):
    """Returns a graph: nodes are (operator, inputs, output), separated by spaces."""
    from onnx import TensorProto, helper, numpy_helper

    made = [helper.make_node(op, inputs.split(), [out]) for op, inputs, out in nodes]
    weights = [numpy_helper.from_array(np.asarray(array, "f4"), name) for name, array in tensors]
    value = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
    return helper.make_graph(made, "branch", [], [value], weights)


def condition(g, value, as_node=False):
    if not as_node:
        return g.constant(np.array(value), "bool")
    from onnx import numpy_helper

    return g.add("Constant", value=numpy_helper.from_array(np.array(value)))


@pytest.mark.parametrize("as_node", [False, True])
@pytest.mark.parametrize(("value", "layer"), [(True, "ReLU"), (False, "Tanh"), ([True], "ReLU")])
def test_the_branch_that_is_taken(value, layer, as_node, tmp_path):
    g = Graph((3, 4))
    branches = {"then_branch": branch(("Relu", "v0", "t")), "else_branch": branch(("Tanh", "v0", "t"))}
    g.add("Sigmoid", "x")
    g.add("If", condition(g, value, as_node), **branches)
    g.append("Neg")
    check(g, tmp_path, "Sigmoid", layer, "Rescale")


def test_two_branches_with_the_same_names(tmp_path):
    """Each has a weight and values of its own."""
    g = Graph((4,))
    on = condition(g, True)
    for factor in (2.0, 3.0):
        last = g.last
        parts = ("Mul", f"{last} w", "u"), ("Tanh", "u", "t")
        g.add(
            "If", on, then_branch=branch(*parts, tensors=[("w", factor)]), else_branch=branch(("Identity", last, "t"))
        )
    g.add("If", on, then_branch=branch(("Identity", g.last, "t")), else_branch=branch(("Relu", "x", "t")))
    check(g, tmp_path, "Rescale", "Tanh", "Rescale", "Tanh")


def test_a_condition_in_a_branch(tmp_path):
    """Of the outer graph, or of the branch itself; the inner branch reads a value of the outer one."""
    from onnx import helper, numpy_helper

    for own in (False, True):
        g = Graph((4,))
        inner = {
            "then_branch": branch(("Exp", "u", "s"), output="s"),
            "else_branch": branch(("Relu", "x", "s"), output="s"),
        }
        outer, name = branch(("Tanh", "x", "u")), condition(g, False)
        if own:
            outer.node.append(helper.make_node("Constant", [], ["on"], value=numpy_helper.from_array(np.array(True))))
        outer.node.append(helper.make_node("If", ["on" if own else name], ["t"], **inner))
        g.add("If", name, then_branch=branch(("Neg", "x", "t")), else_branch=outer)
        g.append("Neg")
        check(g, tmp_path, *(["Tanh", "Exp"] if own else ["ReLU"]), "Rescale")


def test_other_conditions_stay(tmp_path):
    g = Graph((4,), batch=1)
    sizes = g.add("Gather", g.add("Shape", "x"), g.constant(1, "int64"))
    on = g.add("Equal", sizes, g.constant(4, "int64"))
    g.add("If", on, then_branch=branch(("Relu", "x", "t")), else_branch=branch(("Tanh", "x", "t")))
    with pytest.raises(ValueError, match=r"\(If\): no layer of minidl does that: it runs graphs"):
        import_model(g.save(tmp_path, out_shape=(1, 4)))


def test_damaged_branches(rng, tmp_path):
    """Missing and additional nodes, names, outputs and attributes: refused, or a net."""
    g = Graph((4,))
    inner = branch(("Tanh", "x", "u"), ("Mul", "u w", "t"), tensors=[("w", 2.0)])
    g.add("If", condition(g, True), then_branch=inner, else_branch=branch(("Relu", "x", "t")))
    for _ in range(60):
        model = g.model(out_shape=(None, 4))
        (node,) = model.graph.node
        graphs = [attribute.g for attribute in node.attribute]
        lists = [node.attribute, node.input, node.output]
        for graph in graphs:
            lists += [graph.node, graph.output, graph.input, graph.initializer]
            lists += [field for other in graph.node for field in (other.input, other.output)]
        for _ in range(rng.integers(1, 3)):
            field = lists[rng.integers(len(lists))]
            if len(field) and rng.random() < 0.5:
                del field[-1]
            elif len(field):
                field.append(field[0])
        path = tmp_path / "damaged.onnx"
        path.write_bytes(model.SerializeToString())
        try:
            import_model(path)
        except ValueError as error:
            assert str(path) in str(error)
