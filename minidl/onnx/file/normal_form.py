"""Models as the readers expect them: what files leave open, or write in several ways, in one form.

One opset of ONNX, no local functions, nodes in topological order, and shapes where onnx's checker requires them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minidl.onnx.graph import MAX_NODES, MAX_OPSET, NOT_IN_OPSET, Node
from minidl.saving.safetensors_file import FileError

OPSET_OF_IR_1 = 1  # files of IR 1 and 2 have no entry
MAX_NESTING = 32  # of local functions
IR_WITH_OPSETS, IR_WITH_INITIALIZERS = 3, 4  # the first that lists opsets, and in which initializers need not be inputs


def normalize_versions(model: Any) -> int:
    """Returns the opset of ONNX: the last one that is listed, as in onnxruntime. It is then the only one listed.

    The domain "ai.onnx" becomes its alias "", since the checker of onnx rejects the long name. Raises ValueError for
    an opset that does not exist.
    """
    for entry in (*model.opset_import, *model.graph.node, *(node for f in model.functions for node in f.node)):
        if entry.domain == "ai.onnx":
            entry.domain = ""
    versions = [int(entry.version) for entry in model.opset_import if not entry.domain]
    if not versions and 0 < model.ir_version < IR_WITH_OPSETS:
        versions = [OPSET_OF_IR_1]
    if not versions or not 1 <= versions[-1] <= MAX_OPSET:
        found = versions[-1] if versions else "none"
        raise ValueError(f"expected an opset of ONNX, from 1 to {MAX_OPSET}, got {found}: export it for another opset")
    others = {entry.domain: entry.version for entry in model.opset_import if entry.domain}
    del model.opset_import[:]
    for domain, version in {"": versions[-1], **others}.items():
        model.opset_import.add(domain=domain, version=version)
    model.ir_version = max(model.ir_version, IR_WITH_INITIALIZERS)
    return versions[-1]


def inline_functions(onnx: Any, model: Any) -> Any:
    """Returns the model with the nodes of local functions in place of calls; functions that no node calls are gone.

    Raises ValueError for functions that call themselves, and for more than MAX_NODES nodes.
    """
    functions = {(function.domain, function.name): function for function in model.functions}
    if any((node.domain, node.op_type) in functions for node in _all_nodes(model.graph.node)):
        _count_inlined(model.graph.node, functions, {}, ())
        from onnx import inliner

        try:
            model = inliner.inline_local_functions(model)
        except (RuntimeError, ValueError) as error:
            raise FileError(f"expected local functions that can be inlined: {str(error)[:200]}") from error
    del model.functions[:]
    return model


Function = tuple[str, str]  # domain and name


def _count_inlined(
    nodes: Any, functions: dict[Function, Any], known: dict[Function, int], active: tuple[Function, ...]
) -> int:
    """Returns the number of nodes after inlining; raises ValueError for recursion and for more than MAX_NODES."""
    total = 0
    for node in _all_nodes(nodes):
        total += 1
        if (key := (node.domain, node.op_type)) in functions:
            if key in active or len(active) == MAX_NESTING:
                expected = f"expected local functions that do not call themselves, nested at most {MAX_NESTING} deep"
                raise ValueError(f"{expected}, got {key[1]!r}")
            if not key[0]:
                raise ValueError(f"expected local functions of other domains than ONNX's, got {key[1]!r}")
            if key not in known:
                known[key] = _count_inlined(functions[key].node, functions, known, (*active, key))
            total += known[key]
        if total > MAX_NODES:
            raise ValueError(f"expected at most {MAX_NODES} nodes after local functions are inlined, got more")
    return total


def _all_nodes(nodes: Any) -> Iterator[Any]:
    """Yields nodes, and those of the graphs in their attributes."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs) if attribute.HasField("g") or attribute.graphs else ():
                yield from _all_nodes(graph.node)


def sort_nodes(graph: Any) -> None:
    """Sorts the nodes topologically if they are not; equal ones stay in order. Raises ValueError for a cycle."""
    producers = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    needs = [sorted({producers[name] for name in node.input if name in producers}) for node in graph.node]
    if all(not before or before[-1] < i for i, before in enumerate(needs)):
        return
    places, state = dict[int, int](), [0] * len(needs)  # 0: not visited, 1: its inputs are, 2: placed
    for first in range(len(needs)):
        pending = [first]
        while pending:
            i = pending[-1]
            if state[i] == 0:
                state[i] = 1
                if cyclic := [j for j in needs[i] if state[j] == 1]:
                    raise FileError(f"{describe(graph.node[cyclic[0]])}: expected nodes without a cycle")
                pending += [j for j in reversed(needs[i]) if state[j] == 0]
            else:
                if state[i] == 1:
                    state[i], places[i] = 2, len(places)
                pending.pop()
    order = {tuple(node.output): places[i] for i, node in enumerate(graph.node)}
    graph.node.sort(key=lambda node: order[tuple(node.output)])


def add_missing_shapes(graph: Any) -> None:
    """Adds shapes to inputs and outputs that have none, for onnx's checker, which requires them."""
    for value in (*graph.input, *graph.output):
        if value.type.WhichOneof("value") == "tensor_type" and not value.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.SetInParent()


def set_unknown_apart(onnx: Any, model: Any, opset: int) -> None:
    """Moves operators that ONNX does not have to a domain of their own: onnx's checker would report only the first."""
    known = {op: _exists(onnx, op, opset) for op in {str(node.op_type) for node in model.graph.node if not node.domain}}
    for node in model.graph.node:
        if not node.domain and not known[str(node.op_type)]:
            node.domain = NOT_IN_OPSET
    model.opset_import.add(domain=NOT_IN_OPSET, version=1)


def _exists(onnx: Any, op: str, opset: int) -> bool:
    try:
        return not onnx.defs.get_schema(op, opset, "").deprecated
    except onnx.defs.SchemaError:
        return False


def describe(node: Any) -> str:
    """Returns a node as errors name it."""
    return str(
        Node(str(node.op_type), str(node.name), [], [str(name) for name in node.output], domain=str(node.domain))
    )
