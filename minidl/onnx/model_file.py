"""ONNX files: graphs as bytes and back. Only this module uses the package onnx.

Features of ONNX that a Graph does not have are refused here: subgraphs, sparse tensors, tensors in other files.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minidl.onnx.graph import IR, MAX_OPSET, MIN_OPSET, Graph, Node, Value
from minidl.saving.safetensors_file import FileError
from minidl.utils.arrays import Array
from minidl_c import __version__

PRODUCER = "minidl"
MAX_NODES = 20_000
MAX_BYTES = 2**31 - 1  # of a protobuf message
CONVERT = "convert it with onnx.version_converter, or export it for another opset"
LITTLE_ENDIAN = {"float32": "<f4", "float64": "<f8", "int64": "<i8"}


def import_onnx() -> Any:
    """Returns the module onnx. Raises ImportError with the command that installs it."""
    try:
        import onnx
    except ImportError as error:
        raise ImportError('minidl.onnx needs onnx: pip install "minidl[onnx]"') from error
    return onnx


# ---- to bytes


def to_bytes(graph: Graph) -> bytes:
    """Returns the graph as the content of a file; the same graph gives the same bytes.

    Raises ValueError for more than 2 GB.
    """
    onnx = import_onnx()
    size = sum(array.nbytes for array in graph.tensors.values())
    if size > MAX_BYTES:
        raise ValueError(
            f"model: expected parameters of less than 2 GB, which is what an ONNX file holds, got {size} bytes"
        )
    graph_proto = onnx.helper.make_graph(
        [_to_node(onnx, node) for node in graph.nodes],
        PRODUCER,
        [_to_value(onnx, value) for value in graph.inputs],
        [_to_value(onnx, value) for value in graph.outputs],
        [_to_tensor(onnx, name, array) for name, array in graph.tensors.items()],
    )
    model = onnx.helper.make_model(
        graph_proto,
        ir_version=IR,
        opset_imports=[onnx.helper.make_opsetid("", graph.opset)],
        producer_name=PRODUCER,
        producer_version=__version__,
        doc_string="A model of minidl, for inference",
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


def _to_value(onnx: Any, value: Value) -> Any:
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
    return onnx.helper.make_tensor_value_info(value.name, kind, value.shape)


def _to_tensor(onnx: Any, name: str, array: Array) -> Any:
    kind, little = onnx.helper.np_dtype_to_tensor_dtype(array.dtype), np.asarray(array, LITTLE_ENDIAN[array.dtype.name])
    return onnx.helper.make_tensor(name, kind, array.shape, little.tobytes(), raw=True)


# ---- from bytes


def from_bytes(content: bytes) -> Graph:
    """Returns the graph in the content of a file.

    Raises FileError for invalid ONNX, ValueError for features that a Graph does not have.
    """
    onnx = import_onnx()
    from google.protobuf.message import DecodeError

    try:
        return _from_model(onnx, onnx.load_model_from_string(content))
    except (DecodeError, UnicodeDecodeError) as error:
        raise FileError(f"expected an ONNX file, got a damaged one or another format: {error}") from error
    except onnx.checker.ValidationError as error:
        raise FileError(f"expected a valid ONNX graph: {_first_line(error)}") from error


def _from_model(onnx: Any, model: Any) -> Graph:
    if not model.graph.node or not model.opset_import:
        raise FileError("expected an ONNX file with a graph, got one without")
    if model.functions:
        raise ValueError(
            f"expected only ONNX's operators, got the function {model.functions[0].name!r} defined in the file"
        )
    _normalize_domain(model)
    opset = _check_opset(model)
    _check_plain(onnx, model.graph)
    onnx.checker.check_model(model)
    tensors = {utf8(tensor.name): _from_tensor(onnx, tensor, tensor.name) for tensor in model.graph.initializer}
    return Graph(
        [_from_node(onnx, node) for node in model.graph.node],
        tensors,
        [_from_value(onnx, value) for value in model.graph.input if value.name not in tensors],
        [_from_value(onnx, value) for value in model.graph.output],
        opset,
        {utf8(entry.key): utf8(entry.value) for entry in model.metadata_props},
        {utf8(value.name): _sizes(value.type.tensor_type) for value in model.graph.value_info},
    )


def _normalize_domain(model: Any) -> None:
    """Renames the domain "ai.onnx" to "": both mean ONNX's operators, but the checker of onnx knows only the second."""
    for named in (*model.opset_import, *model.graph.node):
        if named.domain == "ai.onnx":
            named.domain = ""


def _check_opset(model: Any) -> int:
    """Returns the version of ONNX's operators. Raises ValueError for several, or one that is not supported."""
    versions = sorted({int(entry.version) for entry in model.opset_import if not entry.domain})
    found = " and ".join(map(str, versions)) or "none"
    if len(versions) > 1:
        raise ValueError(f"expected one version of ONNX's operators, got {found} in one file: export it again")
    if not versions or not MIN_OPSET <= versions[0] <= MAX_OPSET:
        raise ValueError(f"expected an opset of ONNX, from {MIN_OPSET} to {MAX_OPSET}, got {found}: {CONVERT}")
    return versions[0]


def _check_plain(onnx: Any, graph: Any) -> None:
    """Raises ValueError for features that a Graph does not have, before the file is parsed further."""
    if len(graph.node) > MAX_NODES:
        raise ValueError(f"expected at most {MAX_NODES} nodes, got {len(graph.node)}")
    if graph.sparse_initializer:
        raise ValueError(f"expected dense tensors, got {graph.sparse_initializer[0].values.name!r}, a sparse one")
    if graph.quantization_annotation:
        raise ValueError(f"expected no quantized tensors, got {graph.quantization_annotation[0].tensor_name!r}")
    kinds = onnx.AttributeProto
    plain = (kinds.INT, kinds.FLOAT, kinds.STRING, kinds.TENSOR, kinds.INTS, kinds.FLOATS, kinds.STRINGS)
    for tensor in graph.initializer:
        _check_embedded(onnx, tensor, tensor.name)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type not in plain:
                found = Node(node.op_type, node.name, [], list(node.output), domain=node.domain)
                raise ValueError(
                    f"{found}: expected numbers, strings or a tensor for {attribute.name!r}, got another kind"
                )
            if attribute.type == kinds.TENSOR:
                _check_embedded(onnx, attribute.t, node.output[0] if node.output else node.name)


def _check_embedded(onnx: Any, tensor: Any, name: str) -> None:
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
        raise ValueError(
            f"tensor {name!r}: expected its data in this file, got a reference to another (external data): "
            "export with torch.onnx.export(..., external_data=False), or merge both files with "
            "onnx.save(onnx.load(path), other)"
        )


def utf8(value: str | bytes) -> str:
    """Returns a string of a file. Raises FileError for bytes, which protobuf gives if it is not UTF-8."""
    if isinstance(value, bytes):
        raise FileError(f"expected names in UTF-8, got {value[:100]!r}")
    return value


def _from_node(onnx: Any, node: Any) -> Node:
    attributes = {utf8(attribute.name): _from_attribute(onnx, attribute) for attribute in node.attribute}
    inputs, outputs, domain = list(map(utf8, node.input)), list(map(utf8, node.output)), utf8(node.domain)
    return Node(utf8(node.op_type), utf8(node.name), inputs, outputs, attributes, utf8(node.doc_string), domain)


def _from_attribute(onnx: Any, attribute: Any) -> Any:
    kinds = onnx.AttributeProto
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.type == kinds.TENSOR:
        return _from_tensor(onnx, value, attribute.name)
    if attribute.type == kinds.FLOAT:
        return _shortest_float(value)
    if attribute.type == kinds.STRING:
        return value.decode(errors="replace")
    if attribute.type == kinds.FLOATS:
        return [_shortest_float(one) for one in value]
    return list(value) if attribute.type in (kinds.INTS, kinds.STRINGS) else value


def _shortest_float(value: float) -> float:
    """Returns the shortest decimal with the same float32, as of ONNX's attributes: 0.1 for 0.10000000149011612."""
    return float(str(np.float32(value)))


def _from_value(onnx: Any, value: Any) -> Value:
    if value.type.WhichOneof("value") != "tensor_type":
        raise ValueError(f"{value.name!r}: expected a tensor, got {value.type.WhichOneof('value')}")
    tensor = value.type.tensor_type
    dtype = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    dtype = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    return Value(utf8(value.name), dtype, _sizes(tensor))


def _sizes(tensor: Any) -> list[int | str | None] | None:
    if not tensor.HasField("shape"):
        return None
    return [one.dim_value if one.HasField("dim_value") else one.dim_param or None for one in tensor.shape.dim]


def _from_tensor(onnx: Any, tensor: Any, name: str) -> Array:
    try:
        array: Array = np.array(onnx.numpy_helper.to_array(tensor))
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise FileError(f"tensor {name!r}: expected numbers for its shape: {_first_line(error)}") from error
    return array


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
