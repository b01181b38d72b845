"""ONNX files: conversion between a Graph and bytes, by the onnx package, which no other module imports.

It refuses features of ONNX that a Graph does not have: sparse tensors, values that are no tensors.
"""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np

from minidl.onnx.file.conditions import inline_conditions
from minidl.onnx.file.large_tensors import split
from minidl.onnx.file.normal_form import (
    add_missing_shapes,
    inline_functions,
    normalize_versions,
    set_unknown_apart,
    sort_nodes,
)
from minidl.onnx.file.tensor_values import check_utf8, load_tensors
from minidl.onnx.graph import IR_VERSION, MAX_NODES, Graph, Node, ValueInfo, shortest_float
from minidl.saving.safetensors_file import FileError, open_regular
from minidl.utils.arrays import Array
from minidl.utils.optional import needs
from minidl.utils.text import escape
from minidl_c import __version__

PRODUCER = "minidl"
MAX_BYTES = 2**31 - 1  # limit of a protobuf message


def import_onnx() -> Any:
    """Returns the module onnx; raises ImportError with the command that installs it."""
    with needs("onnx", "minidl.onnx"):
        import onnx
    return onnx


# ---- to bytes


def to_bytes(graph: Graph) -> bytes:
    """Returns the graph as the content of a file, deterministically. Raises ValueError above 2 GB."""
    onnx = import_onnx()
    size = sum(array.nbytes for array in graph.tensors.values())
    if size > MAX_BYTES:
        raise ValueError(f"model: expected parameters of less than 2 GB, the limit of an ONNX file, got {size} bytes")
    onnx_graph = onnx.helper.make_graph(
        [_to_node(onnx, node) for node in graph.nodes],
        PRODUCER,
        [_to_value(onnx, value) for value in graph.inputs],
        [_to_value(onnx, value) for value in graph.outputs],
        [_to_tensor(onnx, name, array) for name, array in graph.tensors.items()],
    )
    model = onnx.helper.make_model(
        onnx_graph,
        ir_version=IR_VERSION,
        opset_imports=[onnx.helper.make_opsetid("", graph.opset)],
        producer_name=PRODUCER,
        producer_version=__version__,
        doc_string="A minidl model for inference",
    )
    onnx.helper.set_model_props(model, graph.metadata)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _to_node(onnx: Any, node: Node) -> Any:
    attributes = {
        name: _to_tensor(onnx, "", value) if isinstance(value, np.ndarray) else value
        for name, value in node.attributes.items()
    }
    return onnx.helper.make_node(
        node.op, node.inputs, node.outputs, node.name, node.doc, domain=node.domain or None, **attributes
    )


def _to_value(onnx: Any, value: ValueInfo) -> Any:
    elem_type = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
    return onnx.helper.make_tensor_value_info(value.name, elem_type, value.shape)


def _to_tensor(onnx: Any, name: str, array: Array) -> Any:
    elem_type, little = onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.dtype.newbyteorder("<")
    return onnx.helper.make_tensor(name, elem_type, array.shape, np.asarray(array, little).tobytes(), raw=True)


def check(graph: Graph) -> None:
    """Raises ValueError, in the words of the onnx package, for a graph that is not valid or contradicts its shapes."""
    onnx = import_onnx()
    try:
        onnx.checker.check_model(onnx.load_model_from_string(to_bytes(graph)), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ValueError(f"expected valid ONNX nodes: {' '.join(str(error).split())[:500]}") from error


def evaluate(graph: Graph, values: dict[str, Array]) -> Array | None:
    """Returns the graph's output for these inputs, by onnx's evaluator; None if it does not have an operator.

    Raises ValueError, in the words of the evaluator, if it fails.
    """
    onnx = import_onnx()
    from onnx.reference import ReferenceEvaluator

    try:
        with np.errstate(all="ignore"):
            evaluator: Any = ReferenceEvaluator(onnx.load_model_from_string(to_bytes(graph)))
            output: Array = evaluator.run(None, values)[0]
    except NotImplementedError:
        return None
    except Exception as error:  # of any class: operators are NumPy code
        raise ValueError(f"expected nodes that can be evaluated: {' '.join(str(error).split())[:500]}") from error
    return output


# ---- from bytes


def read(name: str, external_data: bool) -> Graph:
    """Returns the graph in a file; external_data: whether to read tensors in other files.

    Raises FileError and ValueError as `from_file`, OSError naming the path.
    """
    with open_regular(name) as file:
        try:
            size = os.fstat(file.fileno()).st_size
            return from_file(file, size, os.path.dirname(name) if external_data else None)
        except OSError as error:
            raise OSError(error.errno, error.strerror, name) from error


def from_bytes(content: bytes) -> Graph:
    """Returns the graph in a file's content. Raises as `from_file`."""
    return from_file(io.BytesIO(content), len(content), None)


def from_file(file: io.BufferedIOBase, size: int, folder: str | None) -> Graph:
    """Returns the graph in a file of this size; large tensors are in memory once. folder: of external data, or None.

    Raises FileError for invalid ONNX, ValueError for features that a Graph does not have.
    """
    if size > MAX_BYTES:
        raise FileError(f"expected at most {MAX_BYTES} bytes, got {size} bytes")
    onnx = import_onnx()
    from google.protobuf.message import DecodeError

    content, large = split(file, size)
    try:
        return _from_model(onnx, onnx.load_model_from_string(content), large, folder)
    except (DecodeError, UnicodeDecodeError) as error:
        raise FileError(f"expected an ONNX file, got a damaged file or another format: {error}") from error
    except onnx.checker.ValidationError as error:
        raise FileError(f"expected a valid ONNX graph: {_first_line(error)}") from error


def _from_model(onnx: Any, model: Any, large: dict[int, Array], folder: str | None) -> Graph:
    if not model.graph.node and (model.graph.input or model.graph.output):
        raise ValueError("expected a graph with nodes, got inputs and outputs alone")
    if not model.graph.node:
        raise FileError("expected an ONNX file, got one without a graph")
    opset = normalize_versions(model)
    model = inline_functions(onnx, model)
    inline_conditions(onnx, model.graph)
    _check_supported(model.graph)
    sort_nodes(model.graph)
    names = [check_utf8(tensor.name) for tensor in model.graph.initializer]
    inputs, outputs = (
        [_from_value(onnx, value) for value in values] for values in (model.graph.input, model.graph.output)
    )
    read = load_tensors(onnx, model.graph, large, folder)
    add_missing_shapes(model.graph)
    set_unknown_apart(onnx, model, opset)
    onnx.checker.check_model(model)
    tensors = {tensor.name: _from_tensor(onnx, tensor, tensor.name) for tensor in model.graph.initializer} | read
    return Graph(
        [_from_node(onnx, node) for node in model.graph.node],
        {name: tensors[name] for name in names},
        [value for value in inputs if value.name not in tensors],
        outputs,
        opset,
        {check_utf8(entry.key): check_utf8(entry.value) for entry in model.metadata_props},
        {check_utf8(value.name): _axis_sizes(value.type.tensor_type) for value in model.graph.value_info},
        producer=f"{_printable(model.producer_name)} {_printable(model.producer_version)}".strip(),
    )


def _check_supported(graph: Any) -> None:
    """Raises ValueError for features that a Graph does not have, before anything is converted."""
    if len(graph.node) > MAX_NODES:
        raise ValueError(f"expected at most {MAX_NODES} nodes, got {len(graph.node)}")
    if graph.sparse_initializer:
        raise ValueError(f"expected dense tensors, got the sparse tensor {graph.sparse_initializer[0].values.name!r}")


def _from_node(onnx: Any, node: Any) -> Node:
    attributes = {check_utf8(attribute.name): _from_attribute(onnx, attribute) for attribute in node.attribute}
    inputs, outputs = list(map(check_utf8, node.input)), list(map(check_utf8, node.output))
    op, name, doc, domain = map(check_utf8, (node.op_type, node.name, node.doc_string, node.domain))
    return Node(op, name, inputs, outputs, attributes, doc, domain)


def _from_attribute(onnx: Any, attribute: Any) -> Any:
    """Returns the value of an attribute; None for graphs and other types, which no operator with layers has."""
    types = onnx.AttributeProto
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.type == types.TENSOR:
        return _from_tensor(onnx, value, attribute.name)
    if attribute.type == types.FLOAT:
        return shortest_float(np.float32(value))
    if attribute.type == types.STRING:
        return value.decode(errors="replace")
    if attribute.type == types.FLOATS:
        return [shortest_float(np.float32(dim)) for dim in value]
    if attribute.type == types.STRINGS:
        return [text.decode(errors="replace") for text in value]
    if attribute.type == types.INTS:
        return list(value)
    return value if attribute.type == types.INT else None


def _from_value(onnx: Any, value: Any) -> ValueInfo:
    if (kind := value.type.WhichOneof("value")) != "tensor_type":
        return ValueInfo(check_utf8(value.name), kind or "no type", None)
    tensor = value.type.tensor_type
    dtype = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    dtype = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    return ValueInfo(check_utf8(value.name), dtype, _axis_sizes(tensor))


def _axis_sizes(tensor: Any) -> list[int | str | None] | None:
    if not tensor.HasField("shape"):
        return None
    return [
        dim.dim_value if dim.HasField("dim_value") else _printable(dim.dim_param) or None for dim in tensor.shape.dim
    ]


def _printable(name: str | bytes) -> str:
    """Returns a name that only people read."""
    return escape(check_utf8(name))


def _from_tensor(onnx: Any, tensor: Any, name: str) -> Array:
    try:
        array: Array = onnx.numpy_helper.to_array(tensor)
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise FileError(f"tensor {name!r}: expected values that match its shape: {_first_line(error)}") from error
    return array


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
