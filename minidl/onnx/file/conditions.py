"""Conditions that are constants: the nodes of the branch that is taken, in place of an If."""

from __future__ import annotations

from typing import Any


def inline_conditions(onnx: Any, graph: Any) -> None:
    """Puts the nodes of one branch in place of each If whose condition is an initializer or in a Constant node.

    A branch is a graph of its own, which reads values of the outer one; its own names get a suffix if others have them.
    """
    if not any(node.op_type == "If" and not node.domain for node in graph.node):
        return
    constants = {tensor.name: tensor for tensor in graph.initializer}
    taken = {name for node in graph.node for name in (*node.input, *node.output)} | constants.keys()
    taken.update(value.name for value in (*graph.input, *graph.output))
    nodes, pending = list[Any](), list(graph.node)[::-1]
    while pending:
        node = pending.pop()
        if node.op_type == "Constant" and len(node.attribute) == len(node.output) == 1:
            constants[node.output[0]] = node.attribute[0].t
        branch = _find_branch(onnx, node, constants)
        if branch is None:
            nodes.append(node)
            continue
        tensors, inner, ends = _rename(onnx, branch, taken)
        graph.initializer.extend(tensors)
        constants |= {tensor.name: tensor for tensor in tensors}
        ends = [onnx.helper.make_node("Identity", [end], [name]) for end, name in zip(ends, node.output, strict=True)]
        pending += [*inner, *ends][::-1]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _find_branch(onnx: Any, node: Any, constants: dict[str, Any]) -> Any:
    """Returns the graph that an If becomes; None for other nodes, and for conditions that are not known."""
    if node.op_type != "If" or node.domain or len(node.input) != 1 or node.input[0] not in constants:
        return None
    condition = constants[node.input[0]]
    if condition.data_type != onnx.TensorProto.BOOL or [*condition.dims] not in ([], [1]):
        return None
    try:
        wanted = "then_branch" if onnx.numpy_helper.to_array(condition).all() else "else_branch"
    except ValueError:  # damaged, as onnx's checker will say
        return None
    found = [attribute.g for attribute in node.attribute if attribute.name == wanted and attribute.HasField("g")]
    return found[0] if len(found) == 1 and len(found[0].output) == len(node.output) and not found[0].input else None


def _rename(onnx: Any, branch: Any, taken: set[str]) -> tuple[list[Any], list[Any], list[str]]:
    """Returns copies of a branch's initializers and nodes, and the names of its outputs, new where they are taken."""
    names = dict[str, str]()
    own = [tensor.name for tensor in branch.initializer] + [name for node in branch.node for name in node.output]
    for name in own:
        new = name
        while name and new in taken:
            new += "_"
        taken.add(new)
        names[name] = new
    copy = onnx.GraphProto.FromString(branch.SerializeToString())
    for tensor in copy.initializer:
        tensor.name = names[tensor.name]
    _rename_in(copy, names)
    return list(copy.initializer), list(copy.node), [names.get(value.name, value.name) for value in branch.output]


def _rename_in(graph: Any, names: dict[str, str]) -> None:
    """Renames values that the nodes of a graph read and write, also in their own branches."""
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename_in(attribute.g, names)
                for value in attribute.g.output:
                    value.name = names.get(value.name, value.name)
