"""Model and checkpoint files: safetensors files in which every changed bit is detected.

A file is the length of its header in 8 bytes, the header, which is JSON padded with spaces, and the tensors' bytes. The
header's `__metadata__` holds, all as strings: `sha256`, the digest of length and header with zeros in place of its 64
digits; `format`; `kind`, the kind of file; `config`, JSON with sorted keys; `about`, if there is any, JSON of what the
user says of the model; and `sha256:NAME` of every tensor.

The same content gives the same bytes, and a header that differs from what `write` would produce is rejected. A file
contains no code, no path and no module name.
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
from minidl.utils.optional import needs

Array = NDArray[Any]
Json = dict[str, Any]
Content = tuple[Json, dict[str, Array], Json]  # config, tensors, about

FORMAT = "minidl 1"
MAGIC = b'{"__metadata__":{"sha256":"'
SEAL = slice(8 + len(MAGIC), 8 + len(MAGIC) + 64)  # the position of the header's own digest
DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1",
}  # fmt: skip
NAMES = {np.dtype(code): name for name, code in DTYPES.items()}

ABOUT = ("classes", "metadata")  # what a user may say of a model

READ_FLAGS = os.O_RDONLY | atomic.BINARY | getattr(os, "O_NONBLOCK", 0)  # do not wait for a writer of a FIFO

MAX_HEADER = 2**23  # bytes: 5,000 dense layers with Adam have 7 MB
MAX_AXES = 32  # of a tensor: the limit of the oldest NumPy
MAX_BYTES = 2**62  # of a tensor

READER_HINTS = {  # by the expected and the actual kind of file
    ("model", "checkpoint"): ": Trainer.resume(path).model is the model in it",
    ("checkpoint", "model"): ": Sequential.load(path) reads it",
    ("model", "quantized model"): ": minidl.quantization.QuantizedModel.load(path) reads it",
    ("checkpoint", "quantized model"): ": minidl.quantization.QuantizedModel.load(path) reads it",
    ("quantized model", "model"): ": Sequential.load(path) reads it",
    ("quantized model", "checkpoint"): ": Trainer.resume(path).model is the model in it, which quantize takes",
}


class FileError(ValueError):
    """The content of a file is invalid: damaged, of another kind, or not written by minidl.

    It is a ValueError, whose message names the path.

    Examples
    --------
    >>> import os, tempfile
    >>> from minidl import FileError, Sequential
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.safetensors")
    ...     with open(path, "wb") as file:
    ...         _ = file.write(b"something else")
    ...     try:
    ...         Sequential.load(path)
    ...     except FileError as error:
    ...         print(str(error).removeprefix(f"{path}: "))
    expected a file of minidl, got 14 bytes that start with b'somethin'
    """


# ---- writing


def write(path: Path, kind: str, config: Json, tensors: Mapping[str, Array], about: Json | None = None) -> None:
    """Writes a file of this kind ("model", "checkpoint"): `config`, of JSON's own types, and tensors by name.

    about: what the user says of the model, by the names of ABOUT; None or {}: nothing, and no byte of it.

    The write is atomic: see `atomic.write`. Raises OSError naming the path. Raises TypeError or ValueError, before
    anything is written, for unsupported content: tensors that are neither integer nor real, NaN in the config, a header
    beyond 8 MB.
    """
    try:
        parts = _encode_parts(kind, config, tensors, about)
    except FileError as error:
        raise ValueError(f"{atomic.text(path)}: {error}") from error
    atomic.write(path, parts)


def check(kind: str, config: Json, tensors: Mapping[str, Array], about: Json | None = None) -> None:
    """Raises the errors of `write` for unsupported content, without writing."""
    try:
        _encode_parts(kind, config, tensors, about)
    except FileError as error:
        raise ValueError(str(error)) from error


def to_bytes(kind: str, config: Json, tensors: Mapping[str, Array], about: Json | None = None) -> bytes:
    """Returns the content of such a file. Raises as `write`."""
    return b"".join(_encode_parts(kind, config, tensors, about))


def _encode_parts(kind: str, config: Json, tensors: Mapping[str, Array], about: Json | None) -> list[memoryview]:
    arrays = {name: _as_little_endian(name, array) for name, array in tensors.items()}
    head = _make_header(kind, config, arrays, about)
    _load_config(_parse_header(head)[0])  # checks that it can be read again
    return [memoryview(head), *map(_bytes, arrays.values())]


def _as_little_endian(name: str, array: Array) -> Array:
    dtype = np.asarray(array).dtype.newbyteorder("<")
    if dtype not in NAMES:
        raise TypeError(f"tensor {name!r}: expected integers or real numbers of 8 to 64 bits, got {dtype}")
    return np.asarray(array, dtype, order="C")


def _bytes(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _make_header(kind: str, config: Json, arrays: Mapping[str, Array], about: Json | None) -> bytes:
    metadata = {"sha256": "0" * 64, "format": FORMAT, "kind": kind, "config": dump(config, sort_keys=True)}
    metadata |= {"about": dump(about)} if about else {}
    metadata |= {f"sha256:{name}": _sha256(_bytes(array)) for name, array in arrays.items()}
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, array in arrays.items():
        if name in header or not isinstance(name, str):
            raise ValueError(f"tensors: expected a name other than {name!r}")
        name.encode()  # strings in a file are Unicode: this raises for lone surrogates
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [begin, end]}
    return _seal(_add_length(dump(header).encode()))


def _add_length(text: bytes) -> bytes:
    """Returns the header after its length, padded so that the tensors start at a multiple of 8."""
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _seal(head: bytes) -> bytes:
    """Returns length and header with their digest filled in."""
    blank = head[: SEAL.start] + b"0" * 64 + head[SEAL.stop :]
    return blank[: SEAL.start] + _sha256(blank).encode() + blank[SEAL.stop :]


def _sha256(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()


# ---- reading


def read(path: Path, kind: str) -> Content:
    """Returns config, tensors and `about` of a file; the tensors are new arrays in native byte order.

    Opens only `path`, and takes no more memory than the file and twice its tensors. Raises FileError naming the path
    for invalid content, OSError if it cannot be read or is not a regular file.
    """
    name = atomic.text(path)
    with open_regular(name) as file:
        try:
            return _read(file, os.fstat(file.fileno()).st_size, kind)
        except FileError as error:
            raise FileError(f"{name}: {error}") from error
        except OSError as error:
            raise OSError(error.errno, error.strerror, name) from error


def from_bytes(content: bytes, kind: str) -> Content:
    """Returns the config, tensors and `about` passed to `to_bytes`. Raises FileError for invalid content."""
    return _read(io.BytesIO(content), len(content), kind)


def open_regular(name: str) -> io.BufferedReader:
    """Opens a regular file for reading; raises OSError naming it for others."""
    file = os.open(name, READ_FLAGS)
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


def _read(file: BinaryIO, size: int, kind: str) -> Content:
    head = _read_head(file, size)
    metadata, entries = _parse_header(head)
    if metadata["kind"] != kind:
        hint = READER_HINTS.get((kind, metadata["kind"]), "")
        raise FileError(f"expected a {kind} file, got a {metadata['kind']!r} file{hint}")
    end = len(head) + max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    if size != end:
        raise FileError(f"expected {end} bytes, the size in its header, got {size}")
    file.seek(0)
    content = file.read(size)
    if len(content) != size or not content.startswith(head):
        raise FileError("expected a file that does not change while it is read, got one that does")
    arrays = _read_tensors(content)
    for name, array in arrays.items():
        if not _digests_match(metadata[f"sha256:{name}"], _sha256(_bytes(array))):
            raise FileError(f"tensor {name!r}: expected the bytes that were written, got others: the file is damaged")
    config, about = _load_config(metadata)
    return config, {name: arrays[name].astype(arrays[name].dtype.newbyteorder("=")) for name in entries}, about


def _load_config(metadata: Mapping[str, str]) -> tuple[Json, Json]:
    """Returns what a header says beside its tensors: config, and `about`, which is empty if it says nothing."""
    config = _load_json("config", metadata["config"], sort_keys=True)
    about = _load_json("about", metadata["about"]) if "about" in metadata else None
    if about is not None and (list(about) != [key for key in ABOUT if key in about] or not all(about.values())):
        raise FileError(f"about: expected some of {', '.join(ABOUT)}, in this order, got {list(about)!r:.100}")
    return config, about or {}


def _read_head(file: BinaryIO, size: int) -> bytes:
    """Returns length and header, after verifying their digest."""
    head = file.read(8)
    length = int.from_bytes(head, "little")
    if len(head) < 8 or not SEAL.stop - 8 <= length <= min(size - 8, MAX_HEADER):
        hint = ""
        if head[:2] in (b"PK", b"\x80\x02"):  # a ZIP archive or a pickle, as torch.save writes
            hint = "; load PyTorch's weights by model.load_state_dict({name: tensor.numpy() for name, tensor in ...})"
        elif head[:1] == b"\x08":  # protobuf field 1: the version in an ONNX file
            hint = "; minidl.onnx.import_model(path) reads ONNX files"
        raise FileError(f"expected a file of minidl, got {size} bytes that start with {head!r}{hint}")
    head += file.read(length)
    if not head.startswith(MAGIC, 8):
        raise FileError("expected a file that minidl wrote, got another one (or a damaged one)")
    if not _digests_match(head[SEAL].decode("latin-1"), _seal(head)[SEAL].decode()):
        raise FileError("header: expected the bytes that were written, got others: the file is damaged")
    return head


def _digests_match(expected: str, actual: str) -> bool:
    """Returns True if two digests are equal. The only such comparison: a conformance test disables it."""
    return expected == actual


def _parse_header(head: bytes) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Returns the metadata and each tensor's entry; raises FileError for a header that `write` would not produce."""
    if len(head) - 8 > MAX_HEADER:
        hint = "use fewer tensors, layers, or numbers and strings in a state_dict (arrays add little)"
        raise FileError(f"header: expected at most {MAX_HEADER} bytes, got {len(head) - 8}: {hint}")
    text = head[8:].rstrip(b" ")
    if _add_length(text) != head:
        raise FileError("header: expected spaces up to a multiple of 8 bytes, got others")
    entries = _load_json("header", text.decode("latin-1"))
    metadata = entries.pop("__metadata__")
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise FileError("header: expected __metadata__ of strings, got others")
    if metadata.get("format") != FORMAT:
        raise FileError(f"expected format {FORMAT!r}, got {metadata.get('format')!r} (of another version of minidl?)")
    about = ["about"] if "about" in metadata else []
    expected = ["sha256", "format", "kind", "config", *about, *(f"sha256:{name}" for name in entries)]
    if list(metadata) != expected:
        raise FileError(f"header: expected the metadata {expected[:9]} ..., got {list(metadata)[:9]} ...")
    end = 0
    for name, entry in entries.items():
        end = _check_entry(name, entry, end)
    return metadata, entries


def _check_entry(name: str, entry: Any, begin: int) -> int:
    """Checks a tensor's entry, which must start at `begin`, and returns its end."""
    if not isinstance(entry, dict) or list(entry) != ["dtype", "shape", "data_offsets"]:
        raise FileError(f"tensor {name!r}: expected dtype, shape and data_offsets, got other keys")
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


def _load_json(name: str, text: str, sort_keys: bool = False) -> dict[str, Any]:
    """Returns a JSON object in the form that `write` produces; raises FileError, starting with `name`, for others."""
    try:
        return load(text, sort_keys)
    except ValueError as error:
        raise FileError(f"{name}: {error}") from error


def _read_tensors(content: bytes) -> dict[str, Array]:
    """Returns the tensors as parsed by the safetensors library, which validates the header independently."""
    with needs("safetensors", "reading a model or a checkpoint"):
        from safetensors import SafetensorError, deserialize
    try:
        tensors = deserialize(content)
    except SafetensorError as error:
        raise FileError(f"expected a safetensors file: {error}") from error
    return {
        name: np.frombuffer(tensor["data"], DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
        for name, tensor in tensors
    }
