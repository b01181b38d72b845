"""Files of models and checkpoints: safetensors files that tell when a single bit of them has changed.

A file is the length of its header in 8 bytes, the header, which is JSON padded with spaces, and the tensors' bytes. In
the header's `__metadata__` stand, all as strings: `sha256`, of length and header with zeros in the place of these 64
digits; `format`; `kind`, what the file is; `config`, JSON with sorted keys; and `sha256:NAME` of every tensor. The same
content gives the same bytes, and a header that is not as `write` makes it is refused. A file holds no code, no path
and no name of a module.
"""

from __future__ import annotations

import errno
import hashlib
import io
import math
import os
import stat
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from minidl.saving import atomic
from minidl.saving.atomic import Path
from minidl.saving.canonical_json import dump, load

Array = NDArray[Any]

FORMAT = "minidl 1"
OPENING = b'{"__metadata__":{"sha256":"'
SEAL = slice(8 + len(OPENING), 8 + len(OPENING) + 64)  # where the header's own digest stands
DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1",
}  # fmt: skip
NAMES = {np.dtype(code): name for name, code in DTYPES.items()}

MAX_HEADER = 2**23  # bytes: 5,000 dense layers with Adam have 7 MB
MAX_AXES = 32  # of a tensor: what every NumPy can have
MAX_BYTES = 2**62  # of a tensor

INSTEAD = {  # what reads a file that was given to the wrong reader
    ("model", "checkpoint"): ": Trainer.resume(path).model is the model in it",
    ("checkpoint", "model"): ": Sequential.load(path) reads it",
}


class FileError(ValueError):
    """A file does not hold what it should: it is damaged, of another kind, or nothing that minidl wrote."""


# ---- writing


def write(path: Path, kind: str, config: dict[str, Any], tensors: Mapping[str, Array]) -> None:
    """Writes a file of this kind ("model", "checkpoint"): `config`, of JSON's own types, and tensors by name.

    The path holds a whole old or a whole new file at any time: see `atomic.write`. Raises OSError naming the path;
    TypeError or ValueError, before anything is written, for what a file cannot hold: numbers that are neither
    integers nor real, NaN in the config, a header beyond 8 MB.
    """
    try:
        parts = _parts(kind, config, tensors)
    except FileError as error:
        raise ValueError(f"{atomic.text(path)}: {error}") from error
    atomic.write(path, parts)


def check(kind: str, config: dict[str, Any], tensors: Mapping[str, Array]) -> None:
    """Raises what `write` would raise for what a file cannot hold."""
    try:
        _parts(kind, config, tensors)
    except FileError as error:
        raise ValueError(str(error)) from error


def to_bytes(kind: str, config: dict[str, Any], tensors: Mapping[str, Array]) -> bytes:
    """The content of such a file. Raises as `write`."""
    return b"".join(_parts(kind, config, tensors))


def _parts(kind: str, config: dict[str, Any], tensors: Mapping[str, Array]) -> list[memoryview]:
    arrays = {name: _little_endian(name, array) for name, array in tensors.items()}
    head = _header(kind, config, arrays)
    _strict("config", _parsed(head)[0]["config"], sort_keys=True)  # what is written can be read
    return [memoryview(head), *map(_bytes, arrays.values())]


def _little_endian(name: str, array: Array) -> Array:
    dtype = np.asarray(array).dtype.newbyteorder("<")
    if dtype not in NAMES:
        raise TypeError(f"tensor {name!r}: expected integers or real numbers of 8 to 64 bits, got {dtype}")
    return np.asarray(array, dtype, order="C")


def _bytes(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _header(kind: str, config: dict[str, Any], arrays: Mapping[str, Array]) -> bytes:
    metadata = {"sha256": "0" * 64, "format": FORMAT, "kind": kind, "config": dump(config, sort_keys=True)}
    metadata |= {f"sha256:{name}": _sha256(_bytes(array)) for name, array in arrays.items()}
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, array in arrays.items():
        if name in header or not isinstance(name, str):
            raise ValueError(f"tensors: expected another name than {name!r}")
        name.encode()  # a file's strings are Unicode: lone surrogates are refused here
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [begin, end]}
    return _seal(_framed(dump(header).encode()))


def _framed(text: bytes) -> bytes:
    """The header with its length in front, padded so that the tensors begin on a multiple of 8."""
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _seal(head: bytes) -> bytes:
    """The same length and header, with their digest in its place."""
    blank = head[: SEAL.start] + b"0" * 64 + head[SEAL.stop :]
    return blank[: SEAL.start] + _sha256(blank).encode() + blank[SEAL.stop :]


def _sha256(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()


# ---- reading


def read(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """What `write` wrote: config and tensors, which are new arrays in this machine's byte order.

    Opens nothing but `path`, and takes no more memory than the file and twice its tensors. Raises FileError naming the
    path for whatever is wrong with its content, OSError if it cannot be read or is no regular file.
    """
    name = atomic.text(path)
    with _opened(name) as file:
        try:
            return _read(file, os.fstat(file.fileno()).st_size, kind)
        except FileError as error:
            raise FileError(f"{name}: {error}") from error
        except OSError as error:
            raise OSError(error.errno, error.strerror, name) from error


def from_bytes(content: bytes, kind: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """What `to_bytes` was given. Raises FileError for whatever is wrong with it."""
    return _read(io.BytesIO(content), len(content), kind)


def content_of(path: Path, most: int) -> bytes:
    """All bytes of a file; raises FileError for more than `most`, OSError as `read`."""
    name = atomic.text(path)
    with _opened(name) as file:
        try:
            size = os.fstat(file.fileno()).st_size
            content = file.read(size + 1) if size <= most else b""
        except OSError as error:
            raise OSError(error.errno, error.strerror, name) from error
    if size > most:
        raise FileError(f"{name}: expected at most {most} bytes, got {size} bytes")
    if len(content) != size:
        raise FileError(f"{name}: expected a file that stays as it is")
    return content


def _opened(name: str) -> BinaryIO:
    file = os.open(name, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO must not make us wait for its other end
    try:
        mode = os.fstat(file).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "expected a regular file", name)
        return open(file, "rb")
    except BaseException:
        os.close(file)
        raise


def _read(file: BinaryIO, size: int, kind: str) -> tuple[dict[str, Any], dict[str, Array]]:
    head = _read_head(file, size)
    metadata, entries = _parsed(head)
    if metadata["kind"] != kind:
        hint = INSTEAD.get((kind, metadata["kind"]), "")
        raise FileError(f"expected a {kind} file, got a {metadata['kind']!r} file{hint}")
    end = len(head) + max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    if size != end:
        raise FileError(f"expected {end} bytes, as its header says, got {size}")
    file.seek(0)
    content = file.read(size)
    if len(content) != size or not content.startswith(head):
        raise FileError("expected a file that stays as it is, got one that changes while it is read")
    arrays = _tensors(content)
    for name, array in arrays.items():
        if not _equal(metadata[f"sha256:{name}"], _sha256(_bytes(array))):
            raise FileError(f"tensor {name!r}: expected the bytes that were written, got others: the file is damaged")
    config = _strict("config", metadata["config"], sort_keys=True)
    return config, {name: arrays[name].astype(arrays[name].dtype.newbyteorder("=")) for name in entries}


def _read_head(file: BinaryIO, size: int) -> bytes:
    """Length and header, whose digest is right."""
    head = file.read(8)
    length = int.from_bytes(head, "little")
    if len(head) < 8 or not SEAL.stop - 8 <= length <= min(size - 8, MAX_HEADER):
        hint = ""
        if head[:2] in (b"PK", b"\x80\x02"):  # a ZIP archive, a pickle: torch.save
            hint = "; PyTorch's weights move by model.load_state_dict({name: tensor.numpy() for name, tensor in ...})"
        elif head[:1] == b"\x08":  # protobuf, the version of ONNX's format: a tag of field 1
            hint = "; minidl.onnx.import_model(path) reads a file of ONNX"
        raise FileError(f"expected a file of minidl, got {size} bytes that begin with {head!r}{hint}")
    head += file.read(length)
    if not head.startswith(OPENING, 8):
        raise FileError("expected a file that minidl wrote, got another one (or a damaged one)")
    if not _equal(head[SEAL].decode("latin-1"), _seal(head)[SEAL].decode()):
        raise FileError("header: expected the bytes that were written, got others: the file is damaged")
    return head


def _equal(told: str, found: str) -> bool:
    """Every comparison of digests, in one place: a conformance test takes it away to see damage pass."""
    return told == found


def _parsed(head: bytes) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Metadata, and what the header says of each tensor; raises FileError for all that `write` does not write."""
    if len(head) - 8 > MAX_HEADER:
        many = "fewer tensors, layers, or numbers and strings in a state_dict (arrays count little)"
        raise FileError(f"header: expected at most {MAX_HEADER} bytes, got {len(head) - 8}: a file wants {many}")
    text = head[8:].rstrip(b" ")
    if _framed(text) != head:
        raise FileError("header: expected spaces up to a multiple of 8 bytes, got others")
    entries = _strict("header", text.decode("latin-1"))
    metadata = entries.pop("__metadata__")
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise FileError("header: expected __metadata__ of strings, got others")
    if metadata.get("format") != FORMAT:
        raise FileError(f"expected format {FORMAT!r}, got {metadata.get('format')!r} (of another version of minidl?)")
    expected = ["sha256", "format", "kind", "config", *(f"sha256:{name}" for name in entries)]
    if list(metadata) != expected:
        raise FileError(f"header: expected the metadata {expected[:9]} ..., got {list(metadata)[:9]} ...")
    end = 0
    for name, entry in entries.items():
        end = _end(name, entry, end)
    return metadata, entries


def _end(name: str, entry: Any, begin: int) -> int:
    """Where the tensor of this entry ends; it has to begin where the one before it ends."""
    if not isinstance(entry, dict) or list(entry) != ["dtype", "shape", "data_offsets"]:
        raise FileError(f"tensor {name!r}: expected dtype, shape and data_offsets, got something else")
    dtype, shape = entry["dtype"], entry["shape"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise FileError(f"tensor {name!r}: expected a dtype of {', '.join(DTYPES)}, got another one")
    sizes = isinstance(shape, list) and len(shape) <= MAX_AXES and all(type(n) is int and n >= 0 for n in shape)
    if not sizes or math.prod(n or 1 for n in shape) * 8 > MAX_BYTES:
        raise FileError(f"tensor {name!r}: expected a shape of at most {MAX_AXES} sizes, got another one")
    end = begin + math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize
    if entry["data_offsets"] != [begin, end] or not all(type(n) is int for n in entry["data_offsets"]):
        raise FileError(f"tensor {name!r}: expected its bytes at [{begin}, {end}], got others")
    return end


def _strict(what: str, text: str, sort_keys: bool = False) -> dict[str, Any]:
    """A JSON object written as `write` does it; raises FileError, saying what it is, for any other."""
    try:
        return load(text, sort_keys)
    except ValueError as error:
        raise FileError(f"{what}: {error}") from error


def _tensors(content: bytes) -> dict[str, Array]:
    """The tensors, found by the safetensors library: a second opinion on the header."""
    from safetensors import SafetensorError, deserialize

    try:
        found = deserialize(content)
    except SafetensorError as error:
        raise FileError(f"expected a safetensors file: {error}") from error
    return {
        name: np.frombuffer(tensor["data"], DTYPES[tensor["dtype"]]).reshape(tensor["shape"]) for name, tensor in found
    }
