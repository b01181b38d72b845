"""External data: values of tensors that are in another file, in the folder of the ONNX file.

The reference is not trusted: it must stay in the folder, and name as many bytes as the tensor needs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from minidl.onnx.file.large_tensors import read_bytes
from minidl.saving.safetensors_file import FileError, open_regular
from minidl.utils.arrays import Array

WHOLE_NUMBER = re.compile("[0-9]{1,19}")


def read_external(folder: str, entries: Iterable[tuple[str, str]], size: int) -> Array:
    """Returns the bytes of a tensor as an array of uint8.

    entries: of TensorProto.external_data: location, a path relative to `folder`; offset, by default 0, and length, by
    default `size`, in bytes. size: bytes that the tensor needs.

    Raises FileError for a location outside the folder, directly or by symbolic links, for a file that is missing or not
    a regular one, and for other numbers of bytes.
    """
    fields: dict[str, str] = {}
    for key, value in entries:
        if key in fields:
            raise FileError(f"external data: expected one {key}, got two")
        fields[key] = value
    location = fields.get("location", "")
    path = _resolve(folder, location)
    offset, length = _whole_number(fields, "offset", 0), _whole_number(fields, "length", size)
    if length != size:
        raise FileError(
            f"external data in {location!r}: expected {size} bytes, for its shape, got a length of {length}"
        )
    try:
        with open_regular(path) as file:
            available = os.fstat(file.fileno()).st_size
            if offset + length > available:
                raise FileError(
                    f"external data in {location!r}: expected bytes at [{offset}, {offset + length}], "
                    f"got a file of {available}"
                )
            return read_bytes(file, offset, offset + length)
    except OSError as error:
        raise FileError(f"external data: expected a readable file {location!r}, got: {error}") from error


def _resolve(folder: str, location: str) -> str:
    """Returns the real path of a location; raises FileError unless it is inside the folder."""
    inside = location and "\0" not in location and not os.path.isabs(location) and ".." not in location.split("/")
    if not inside:
        raise FileError(f"external data: expected a path inside the model's folder, got {location[:200]!r}")
    root = os.path.realpath(folder or os.curdir)
    path = os.path.realpath(os.path.join(root, location))
    if os.path.commonpath([root, path]) != root or path == root:
        raise FileError(f"external data: expected a path inside the model's folder, got a link to {path!r}")
    return path


def _whole_number(fields: dict[str, str], key: str, default: int) -> int:
    text = fields.get(key)
    if text is None:
        return default
    if not WHOLE_NUMBER.fullmatch(text):
        raise FileError(f"external data: expected a whole number as {key}, got {text[:50]!r}")
    return int(text)
