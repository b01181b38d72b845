"""ONNX files: graphs as bytes and back. The one place that knows the library onnx.

What ONNX can say and a Graph cannot is refused here: subgraphs, sparse tensors, tensors in other files.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minidl.onnx.graph import IR, LEAST_OPSET, MOST_OPSET, Graph, Node, Value
from minidl.saving.safetensors_file import FileError
from minidl.utils.arrays import Array
from minidl_c import __version__

PRODUCER = "minidl"
MOST_NODES = 20_000
MOST_BYTES = 2**31 - 1  # of a protobuf message
CONVERT = "convert it with onnx.version_converter, or export it for another opset"
LITTLE = {"float32": "<f4", "float64": "<f8", "int64": "<i8"}


def library() -> Any:
    """The module onnx; raises ImportError saying how to get it."""
    try:
        import onnx
    except ImportError as error:
        raise ImportError('minidl.onnx needs onnx: pip install "minidl[onnx]"') from error
    return onnx


# ---- to bytes


def to_bytes(graph: Graph) -> bytes:
    """The graph as the content of a file; the same graph gives the same bytes.

    Raises ValueError for more than 2 GB.
    """
    onnx = library()
    size = sum(array.nbytes for array in graph.tensors.values())
    if size > MOST_BYTES:
        raise ValueError(
            f"model: expected parameters of less than 2 GB, which is what an ONNX file holds, got {size} bytes"
        )
    inside = onnx.helper.make_graph(
        [_to_node(onnx, node) for node in graph.nodes],
        PRODUCER,
        [_to_value(onnx, value) for value in graph.inputs],
        [_to_value(onnx, value) for value in graph.outputs],
        [_to_tensor(onnx, name, array) for name, array in graph.tensors.items()],
    )
    model = onnx.helper.make_model(
        inside,
        ir_version=IR,
        opset_imports=[onnx.helper.make_opsetid("", graph.opset)],
        producer_name=PRODUCER,
        producer_version=__version__,
        doc_string="A model of minidl, for inference: numbers in, scores out",
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
    kind, little = onnx.helper.np_dtype_to_tensor_dtype(array.dtype), np.asarray(array, LITTLE[array.dtype.name])
    return onnx.helper.make_tensor(name, kind, array.shape, little.tobytes(), raw=True)


# ---- from bytes


def from_bytes(content: bytes) -> Graph:
    """The graph in a file's content.

    Raises FileError for what is no valid ONNX, ValueError for what a Graph does not hold.
    """
    onnx = library()
    from google.protobuf.message import DecodeError

    try:
        return _from_model(onnx, onnx.load_model_from_string(content))
    except (DecodeError, UnicodeDecodeError) as error:
        raise FileError(f"expected an ONNX file, got a damaged or another one: {error}") from error
    except onnx.checker.ValidationError as error:
        raise FileError(f"expected a valid ONNX graph: {_first_line(error)}") from error


def _from_model(onnx: Any, model: Any) -> Graph:
    if not model.graph.node or not model.opset_import:
        raise FileError("expected an ONNX file, got one that holds no graph")
    if model.functions:
        raise ValueError(
            f"expected ONNX's operators alone, got the function {model.functions[0].name!r} of the file's own"
        )
    _name_domain(model)
    opset = _checked_opset(model)
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


def _name_domain(model: Any) -> None:
    """Calls ONNX's own operators "", as the library onnx does: files may say "ai.onnx", which its checker refuses."""
    for named in (*model.opset_import, *model.graph.node):
        if named.domain == "ai.onnx":
            named.domain = ""


def _checked_opset(model: Any) -> int:
    """The version of ONNX's operators, which may be told twice; nodes of other domains are refused where they stand."""
    versions = sorted({int(entry.version) for entry in model.opset_import if not entry.domain})
    told = " and ".join(map(str, versions)) or "none"
    if len(versions) > 1:
        raise ValueError(f"expected one version of ONNX's operators, got {told} in one file: export it again")
    if not versions or not LEAST_OPSET <= versions[0] <= MOST_OPSET:
        raise ValueError(f"expected an opset of ONNX, from {LEAST_OPSET} to {MOST_OPSET}, got {told}: {CONVERT}")
    return versions[0]


def _check_plain(onnx: Any, graph: Any) -> None:
    """Raises ValueError for what a Graph does not hold, before anything looks at it more closely."""
    if len(graph.node) > MOST_NODES:
        raise ValueError(f"expected at most {MOST_NODES} nodes, got {len(graph.node)}")
    if graph.sparse_initializer:
        raise ValueError(f"expected dense tensors, got {graph.sparse_initializer[0].values.name!r}, a sparse one")
    if graph.quantization_annotation:
        raise ValueError(f"expected no quantized tensors, got {graph.quantization_annotation[0].tensor_name!r}")
    kinds = onnx.AttributeProto
    plain = (kinds.INT, kinds.FLOAT, kinds.STRING, kinds.TENSOR, kinds.INTS, kinds.FLOATS, kinds.STRINGS)
    for tensor in graph.initializer:
        _check_inside(onnx, tensor, tensor.name)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type not in plain:
                told = Node(node.op_type, node.name, [], list(node.output), domain=node.domain)
                raise ValueError(
                    f"{told}: expected numbers, strings or a tensor for {attribute.name!r}, got another kind"
                )
            if attribute.type == kinds.TENSOR:
                _check_inside(onnx, attribute.t, node.output[0] if node.output else node.name)


def _check_inside(onnx: Any, tensor: Any, name: str) -> None:
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
        raise ValueError(
            f"tensor {name!r}: expected its numbers in this file, got a reference to another (external data): "
            "export with torch.onnx.export(..., external_data=False), or bring all into one file with "
            "onnx.save(onnx.load(path), other)"
        )


def utf8(value: str | bytes) -> str:
    """A string of a file; protobuf gives bytes for what is no UTF-8."""
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
        return _shortest(value)
    if attribute.type == kinds.STRING:
        return value.decode(errors="replace")
    if attribute.type == kinds.FLOATS:
        return [_shortest(one) for one in value]
    return list(value) if attribute.type in (kinds.INTS, kinds.STRINGS) else value


def _shortest(value: float) -> float:
    """ONNX's attributes are float32: 0.1 for the 0.10000000149011612 that was meant to be 0.1."""
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
