"""Large tensors of an ONNX file: each is read into an array of its own, before the onnx package parses the rest.

Parsed by onnx, a tensor would be copied several times. A protobuf message is a series of fields; a field is a tag (its
number times 8, plus its wire type) and a value. `split` follows ModelProto.graph, GraphProto.initializer and
TensorProto.raw_data, and leaves the rest as it is; a Constant node that is large becomes an initializer. It never
rejects a file: what it does not expect stays in the rest, and onnx decides whether that is valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedIOBase

import numpy as np

from minidl.saving.safetensors_file import FileError
from minidl.utils.arrays import Array

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types
GRAPH, NODE, INITIALIZER, TENSOR_NAME, RAW_DATA = 7, 1, 5, 8, 9  # numbers of the fields
OUTPUT, OP_TYPE, ATTRIBUTE, DOMAIN = 2, 4, 5, 7  # of a node
ATTRIBUTE_NAME, ATTRIBUTE_TENSOR = 1, 5
LARGE = 2**16  # bytes of a tensor that is read separately
MAX_FIELDS = 2**20  # to look at: a hostile file could hold a billion


@dataclass
class Field:
    """One field of a message; its positions in the file. number: 0 for the remainder of a message."""

    number: int
    begin: int
    value: int
    end: int


def split(file: BufferedIOBase, size: int) -> tuple[bytes, dict[int, Array]]:
    """Returns the content of an ONNX file without its large tensors, and their bytes by index among the initializers.

    Raises FileError if the file is shorter than `size`.
    """
    splitter = Splitter(file)
    return splitter.split_model(size), splitter.large


def read_bytes(file: BufferedIOBase, begin: int, end: int) -> Array:
    """Returns bytes of a file as a new array of uint8; raises FileError if the file ends before."""
    array = np.empty(end - begin, np.uint8)
    file.seek(begin)
    if file.readinto(array.data) != len(array):
        raise FileError("expected a file that does not change while it is read")
    return array


class Splitter:
    """Walks through the messages of a file."""

    def __init__(self, file: BufferedIOBase) -> None:
        self.file = file
        self.large: dict[int, Array] = {}
        self.n_fields = self.n_initializers = 0

    def split_model(self, size: int) -> bytes:
        """Returns the ModelProto without large tensors."""
        parts = []
        for field in self.fields(0, size):
            parts.append(self.split_graph(field) if field.number == GRAPH else self.read(field.begin, field.end))
        return b"".join(parts)

    def split_graph(self, graph: Field) -> bytes:
        """Returns a field that is a GraphProto, without large tensors."""
        parts = []
        for field in self.fields(graph.value, graph.end):
            tensor = None
            if field.number == INITIALIZER:
                tensor = self.split_tensor(field) or self.read(field.begin, field.end)
            elif field.number == NODE and field.end - field.value >= LARGE:
                tensor = self.split_constant(field)
            parts.append(tensor or self.read(field.begin, field.end))
            self.n_initializers += tensor is not None
        return make_field(GRAPH, b"".join(parts))

    def split_tensor(self, tensor: Field, name: bytes | None = None) -> bytes | None:
        """Returns an initializer, named `name`, without its raw_data; None unless that is large and occurs once."""
        fields = list(self.fields(tensor.value, tensor.end)) if tensor.end - tensor.value >= LARGE else []
        values = [field for field in fields if field.number == RAW_DATA]
        if len(values) != 1 or values[0].end - values[0].value < LARGE or fields[-1].number == 0:
            return None
        self.large[self.n_initializers] = read_bytes(self.file, values[0].value, values[0].end)
        without = (RAW_DATA,) if name is None else (RAW_DATA, TENSOR_NAME)
        rest = [self.read(field.begin, field.end) for field in fields if field.number not in without]
        return make_field(INITIALIZER, b"".join(rest if name is None else [*rest, make_field(TENSOR_NAME, name)]))

    def split_constant(self, node: Field) -> bytes | None:
        """Returns a Constant node as an initializer; None unless it is one whose only value is a large tensor."""
        (_, output), (_, op), (attribute, _), (_, domain) = (
            self.find(node, number) for number in (OUTPUT, OP_TYPE, ATTRIBUTE, DOMAIN)
        )
        if op != b"Constant" or domain or not output or attribute is None:
            return None
        (_, name), (tensor, _) = (self.find(attribute, number) for number in (ATTRIBUTE_NAME, ATTRIBUTE_TENSOR))
        return self.split_tensor(tensor, output) if name == b"value" and tensor is not None else None

    def find(self, message: Field, number: int) -> tuple[Field | None, bytes]:
        """Returns the only field of this number, and its value if that is short; None unless there is one."""
        found = [field for field in self.fields(message.value, message.end) if field.number == number]
        if len(found) != 1:
            return None, b""
        (field,) = found
        return field, self.read(field.value, field.end) if field.end - field.value < LARGE else b""

    def fields(self, begin: int, end: int) -> Iterator[Field]:
        """Yields the fields of a message that holds bytes, and those of other types, as number 0.

        What cannot be parsed, and what follows, is one field of number 0.
        """
        while begin < end:
            self.n_fields += 1
            field = self.parse_field(begin, end) if self.n_fields <= MAX_FIELDS else None
            yield field or Field(0, begin, begin, end)
            if field is None:
                return
            begin = field.end

    def parse_field(self, begin: int, end: int) -> Field | None:
        """Returns the field that begins here; None if it is not valid, or would exceed the message."""
        tag, value = self.parse_varint(begin, end)
        number, kind = divmod(tag, 8)
        if kind == VARINT:
            _, stop = self.parse_varint(value, end)
        elif kind == BYTES:
            length, value = self.parse_varint(value, end)
            stop = value + length
        else:
            stop = value + {FIXED64: 8, FIXED32: 4}.get(kind, end)
        if number < 1 or not begin < value <= stop <= end:
            return None
        return Field(number if kind == BYTES else -number, begin, value, stop)

    def parse_varint(self, begin: int, end: int) -> tuple[int, int]:
        """Returns an integer of 7 bits per byte, the lowest first, and its end; an end after `end` if it has none."""
        number = 0
        self.file.seek(begin)
        for i, byte in enumerate(self.file.read(min(10, max(end - begin, 0)))):
            number |= (byte & 127) << 7 * i
            if byte < 128:
                return number, begin + i + 1
        return 0, end + 1

    def read(self, begin: int, end: int) -> bytes:
        """Returns bytes of the file."""
        return read_bytes(self.file, begin, end).tobytes()


def make_field(number: int, value: bytes) -> bytes:
    """Returns a field that holds bytes."""
    return make_varint(8 * number + BYTES) + make_varint(len(value)) + value


def make_varint(number: int) -> bytes:
    """Returns an integer as `parse_varint` reads it."""
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])
