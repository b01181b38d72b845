"""Values of tensors that the onnx package does not read: large ones, and those in other files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from minidl.onnx.file.external_data import read_external
from minidl.saving.safetensors_file import FileError
from minidl.utils.arrays import Array

RAW_DTYPES = {"FLOAT": "<f4", "DOUBLE": "<f8", "FLOAT16": "<f2", "INT32": "<i4", "INT64": "<i8", "UINT8": "|u1"}
RAW_DTYPES |= {"INT8": "|i1", "INT16": "<i2", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "BOOL": "|b1"}
DATA_FIELDS = ("float_data", "double_data", "int32_data", "int64_data", "uint64_data", "string_data", "raw_data")


def check_utf8(value: str | bytes) -> str:
    """Returns a string from a file; raises FileError for bytes, which protobuf gives for invalid UTF-8."""
    if isinstance(value, bytes):
        raise FileError(f"expected names in UTF-8, got {value[:100]!r}")
    return value


def load_tensors(onnx: Any, graph: Any, large: dict[int, Array], folder: str | None) -> dict[str, Array]:
    """Returns the initializers whose bytes are in `large`, by index, or in other files; makes them inputs of `graph`.

    So onnx's checker, which would copy them, checks their uses. External tensors in attributes become normal ones.
    folder: of external data; None: not to be read.

    Raises ValueError for external data without a folder; FileError, naming the tensor, for invalid external data and
    for two tensors of one name.
    """
    _check_names(graph)
    for name, tensor in _attribute_tensors(onnx, graph):
        if _is_external(onnx, tensor):
            tensor.raw_data = _read_external(onnx, tensor, name, folder).tobytes()
            del tensor.external_data[:]
            tensor.data_location = onnx.TensorProto.DEFAULT
    read, declared = {}, {value.name for value in graph.input}
    for i in reversed(range(len(graph.initializer))):
        tensor = graph.initializer[i]
        if _is_external(onnx, tensor):
            raw = _read_external(onnx, tensor, tensor.name, folder, has_values=i in large)
        elif i not in large:
            continue
        elif not _matches(onnx, tensor, raw := large.pop(i)):
            tensor.raw_data = raw.tobytes()  # the checker finds what is wrong, or onnx converts another dtype
            continue
        read[tensor.name] = _as_array(onnx, tensor, raw)
        if tensor.name not in declared:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        del graph.initializer[i]
    return read


def _check_names(graph: Any) -> None:
    names = set[str]()
    for tensor in graph.initializer:
        if check_utf8(tensor.name) in names:
            raise FileError(f"tensor {tensor.name!r}: expected one of this name, got two")
        names.add(tensor.name)


def _attribute_tensors(onnx: Any, graph: Any) -> Iterator[tuple[str, Any]]:
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield node.output[0] if node.output else node.name, attribute.t


def _is_external(onnx: Any, tensor: Any) -> bool:
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data)


def _read_external(onnx: Any, tensor: Any, name: str, folder: str | None, has_values: bool = False) -> Array:
    if folder is None:
        raise ValueError(
            f"tensor {name!r}: expected its values in this file, got a reference to another file (external data): "
            "export with torch.onnx.export(..., external_data=False), or merge both files with "
            "onnx.save(onnx.load(path), other), or pass external_data=True"
        )
    if has_values or any(getattr(tensor, field) for field in DATA_FIELDS):
        raise FileError(f"tensor {name!r}: expected its values once, got them here and in another file")
    if (size := _size(onnx, tensor)) is None:
        got = f"{_dtype_name(onnx, tensor)} of shape {list(tensor.dims)[:9]}"
        raise FileError(f"tensor {name!r}: expected external data of numbers, and a shape of sizes, got {got}")
    entries = [(check_utf8(entry.key), check_utf8(entry.value)) for entry in tensor.external_data]
    try:
        return read_external(folder, entries, size)
    except FileError as error:
        raise FileError(f"tensor {name!r}: {error}") from error


def _as_array(onnx: Any, tensor: Any, raw: Array) -> Array:
    try:
        return raw.view(RAW_DTYPES[_dtype_name(onnx, tensor)]).reshape(tensor.dims)
    except ValueError as error:  # NumPy's limits on axes and sizes
        raise FileError(f"tensor {tensor.name!r}: expected a shape that NumPy can hold: {error}") from error


def _matches(onnx: Any, tensor: Any, raw: Array) -> bool:
    return _size(onnx, tensor) == raw.nbytes and not any(getattr(tensor, field) for field in DATA_FIELDS)


def _size(onnx: Any, tensor: Any) -> int | None:
    """Returns the bytes of a tensor; None for dtypes that NumPy does not have, and for negative sizes."""
    dtype = RAW_DTYPES.get(_dtype_name(onnx, tensor))
    return None if dtype is None or min(tensor.dims, default=0) < 0 else math.prod(tensor.dims) * int(dtype[2:])


def _dtype_name(onnx: Any, tensor: Any) -> str:
    known: dict[int, str] = {number: name for name, number in onnx.TensorProto.DataType.items()}
    return known.get(tensor.data_type, str(tensor.data_type))
