"""The file container: exact round trips, detection of every flipped bit, and refusal of hostile files.

tests/conformance/files.py flips every bit, and tries thousands of hostile headers.
"""

import copy
import json
import os
import random
import re
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from safetensors import safe_open

from minidl.saving import safetensors_file
from minidl.saving.safetensors_file import FileError

CONFIG = {"b": [1, 2.5, None, True, "ä"], "a": {"deep": [[]]}}
TENSORS = {
    "0.weight": np.arange(6, dtype="f4").reshape(2, 3),
    "scalar": np.array(2.5),
    "none": np.zeros((0, 3), "f8"),
    "größe": np.arange(5, dtype="u1"),
    "steps": np.array([-(2**63), 2**63 - 1]),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.safetensors"


@pytest.fixture
def content(path):
    safetensors_file.write(path, "model", CONFIG, TENSORS)
    return path.read_bytes()


def parts(content):
    """Splits a file into header and tensors."""
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def seal(header, data=b""):
    """Returns a file whose header has a correct digest, whatever the header says."""
    text = header if isinstance(header, str) else json.dumps(header, separators=(",", ":"))
    return safetensors_file._seal(safetensors_file._add_length(text.encode())) + data


def assert_refused(path, content, message, kind="model"):
    path.write_bytes(content)
    with pytest.raises(FileError, match=f"^{re.escape(str(path))}: .*{message}"):
        safetensors_file.read(path, kind)


# ---- round trips
def test_a_round_trip_keeps_everything(path, content):
    config, tensors, _ = safetensors_file.read(path, "model")
    assert config == CONFIG and list(tensors) == list(TENSORS)
    for name, array in tensors.items():
        expected = TENSORS[name]
        assert array.dtype == expected.dtype and array.dtype.isnative and array.shape == expected.shape
        assert array.tobytes() == expected.tobytes()
        assert array.flags.writeable and array.flags.owndata and array.flags.aligned and array.flags.c_contiguous


@pytest.mark.parametrize("code", safetensors_file.DTYPES.values())
def test_every_dtype_and_any_layout(path, code):
    values = (np.arange(24) % 128).astype(code).reshape(2, 3, 4)
    given = {"C": values, "F": np.asfortranarray(values), "big": values.astype(values.dtype.newbyteorder(">"))}
    given |= {"strided": np.repeat(values, 2, axis=2)[:, :, ::2], "reversed": values[::-1, :, ::-1]}
    safetensors_file.write(path, "model", {}, given)
    for name, array in safetensors_file.read(path, "model")[1].items():
        np.testing.assert_array_equal(array, given[name])
        assert array.dtype == values.dtype


def test_non_finite_values_are_kept_bit_for_bit(path):
    bits = np.array([0x7FC00001, 0xFFC12345, 0x7F800000, 0x80000000, 1], "u4")
    safetensors_file.write(path, "model", {}, {"x": bits.view("f4")})
    np.testing.assert_array_equal(safetensors_file.read(path, "model")[1]["x"].view("u4"), bits)


def test_the_safetensors_library_reads_it(path, content):
    with safe_open(path, "np") as file:
        assert set(file.keys()) == set(TENSORS)
        assert json.loads(file.metadata()["config"]) == CONFIG
        for name, expected in TENSORS.items():
            np.testing.assert_array_equal(file.get_tensor(name), expected)


def test_the_same_content_gives_the_same_bytes(path, content, tmp_path):
    twin = tmp_path / "twin"
    safetensors_file.write(
        twin, "model", dict(reversed(CONFIG.items())), {name: a.copy("F") for name, a in TENSORS.items()}
    )
    assert twin.read_bytes() == content
    config, tensors, _ = safetensors_file.read(path, "model")
    safetensors_file.write(twin, "model", config, tensors)
    assert twin.read_bytes() == content
    assert len(content) == 8 + int.from_bytes(content[:8], "little") + sum(a.nbytes for a in TENSORS.values())
    assert int.from_bytes(content[:8], "little") % 8 == 0


def test_no_tensors_at_all(path):
    safetensors_file.write(path, "checkpoint", {}, {})
    assert safetensors_file.read(path, "checkpoint") == ({}, {}, {})


def test_kinds_are_distinguished(path, content):
    with pytest.raises(FileError, match=f"{re.escape(str(path))}: expected a checkpoint file, got a 'model' file"):
        safetensors_file.read(path, "checkpoint")


@pytest.mark.parametrize(
    ("config", "tensors", "error", "message"),
    [
        ({"x": float("nan")}, {}, ValueError, "not JSON compliant"),
        ({"x": [float("inf")]}, {}, ValueError, "not JSON compliant"),
        ({"x": {1}}, {}, TypeError, "not JSON serializable"),
        ({}, {"x": np.ones(2, complex)}, TypeError, "tensor 'x': expected integers or real numbers.*complex128"),
        ({}, {"x": np.array([None])}, TypeError, "tensor 'x'.*object"),
        ({}, {"x": np.array(["a"])}, TypeError, "tensor 'x'.*U1"),
        ({}, {"x": np.array([True])}, TypeError, "tensor 'x'.*bool"),
        ({}, {"__metadata__": np.ones(2)}, ValueError, "tensors: .*__metadata__"),
        ({}, {"\ud800": np.ones(2)}, ValueError, "surrogates"),
        ({"x": "y" * safetensors_file.MAX_HEADER}, {}, ValueError, "header: expected at most"),
        ({"x": [[]] * 40_000}, {}, ValueError, "expected JSON that takes less than"),
        ({"x": 10**400}, {}, ValueError, "expected numbers of at most 400 digits, got 401"),
        ({"x": json.loads("[" * 110 + "]" * 110)}, {}, ValueError, "config: expected JSON at most 100 deep"),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_unsupported_content_is_refused_before_anything_is_written(path, config, tensors, error, message):
    path.write_bytes(b"old")
    with pytest.raises(error, match=message):
        safetensors_file.write(path, "model", config, tensors)
    assert path.read_bytes() == b"old" and len(os.listdir(path.parent)) == 1


# ---- damage
def test_flipped_bits_are_detected(path, content):
    for bit in random.Random(0).sample(range(8 * len(content)), 1500):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        assert_refused(path, damaged, "")


def test_every_wrong_length_is_detected(path, content):
    for size in range(0, len(content), 7):
        assert_refused(path, content[:size], "")
    for more in (b"\0", b" " * 8, content):
        assert_refused(path, content + more, r"expected \d+ bytes, the size in its header, got \d+")


def test_the_error_locates_the_damage(path, content):
    end = 8 + int.from_bytes(content[:8], "little")
    assert_refused(
        path, content[:end] + b"\1" + content[end + 1 :], "tensor '0.weight': expected the bytes that were written"
    )
    assert_refused(path, content[:200] + b"\1" + content[201:], "header: expected the bytes that were written")
    upper = (
        content[: safetensors_file.SEAL.start]
        + content[safetensors_file.SEAL].upper()
        + content[safetensors_file.SEAL.stop :]
    )
    assert_refused(path, upper, "header: expected the bytes")
    assert_refused(path, b"", "expected a file of minidl")
    assert_refused(path, b"PK\3\4" + content, r"expected a file of minidl, got .* load PyTorch's weights by")
    assert_refused(
        path, b"\x08\n\x12\x06" + content, r"expected a file of minidl, got .* minidl\.onnx\.import_model\(path\)"
    )


# ---- hostile files: the digest is correct, the content is not
def test_a_sealed_header_is_read(path, content):
    header, data = parts(content)
    assert seal(header, data) == content


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"shape": [10**8, 10**8]}, "expected its bytes at"),
        ({"shape": [2**62, 2**62]}, "expected a shape"),
        ({"shape": [0, 2**62, 2**62], "data_offsets": [0, 0]}, "expected a shape"),
        ({"shape": [1] * 33}, "expected a shape"),
        ({"shape": [-2, -3]}, "expected a shape"),
        ({"shape": [2.0, 3]}, "expected a shape"),
        ({"shape": [True, 6]}, "expected a shape"),
        ({"shape": "23"}, "expected a shape"),
        ({"shape": [3, 3]}, "expected its bytes at"),
        ({"dtype": "F33"}, "expected a dtype"),
        ({"dtype": "BF16"}, "expected a dtype"),
        ({"dtype": ["F32"]}, "expected a dtype"),
        ({"data_offsets": [0, 25]}, "expected its bytes at"),
        ({"data_offsets": [4, 28]}, "expected its bytes at"),
        ({"data_offsets": [0.0, 24.0]}, "expected its bytes at"),
        ({"data_offsets": [24, 0]}, "expected its bytes at"),
        ({"data_offsets": None}, "expected its bytes at"),
        ({"more": 1}, "expected dtype, shape and data_offsets"),
    ],
    ids=str,
)
def test_hostile_tensors(path, content, entry, message):
    header, data = parts(content)
    header["0.weight"] |= entry
    assert_refused(path, seal(header, data), f"tensor '0.weight': {message}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "minidl 2"}, r"expected format 'minidl 1', got 'minidl 2' \(of another version of minidl\?\)"),
        ({"kind": "modell"}, "expected a model file, got a 'modell' file"),
        ({"more": "x"}, "expected the metadata"),
        ({"kind": 1}, "__metadata__ of strings"),
        ({"config": "[1]"}, "config: expected JSON as minidl writes it"),
        ({"config": '{"b":1,"a":2}'}, "config: expected JSON as"),
        ({"config": '{"a":1,"a":1}'}, "config: expected JSON as"),
        ({"config": '{"a": 1}'}, "config: expected JSON as"),
        ({"config": '{"a":NaN}'}, "config: expected JSON as"),
        ({"config": '{"a":1e999}'}, "config: expected JSON as"),
        ({"config": '{"a":' + "9" * 5000 + "}"}, "config: expected JSON as"),
        ({"config": "{"}, "config: expected JSON as"),
        ({"config": '{"a":' + "[" * 200 + "]" * 200 + "}"}, "config: .*100 deep"),
        ({"config": "[" * 30000 + "]" * 30000}, "config: expected JSON as|header: expected less"),
        ({"config": '{"a":[' + "{}," * 60000 + "{}]}"}, "expected JSON that takes less than"),
        ({"sha256:0.weight": "0" * 64}, "tensor '0.weight': expected the bytes that were written"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_hostile_metadata(path, content, change, message):
    header, data = parts(content)
    header["__metadata__"] |= change
    assert_refused(path, seal(header, data), message)


def test_missing_entries(path, content):
    header, data = parts(content)
    for name in ("format", "kind", "config", "sha256:scalar"):
        less = copy.deepcopy(header)
        del less["__metadata__"][name]
        assert_refused(path, seal(less, data), "expected")
    del header["scalar"]
    assert_refused(path, seal(header, data), "expected the metadata")


def test_hostile_json(path, content):
    header, data = parts(content)
    text = json.dumps(header, separators=(",", ":"))
    last = text[:-1] + ',"scalar":' + json.dumps(header["scalar"], separators=(",", ":")) + "}"
    for hostile in (last, text.replace(":[2,3]", ": [2,3]"), text + "x", text[:-1], text.replace("2,3", "2,03"),
                 text.replace("\\u00f6", "ö"), text.replace("[2,3]", "[" * 3000 + "]" * 3000)):  # fmt: skip
        assert hostile != text
        assert_refused(path, seal(hostile, data), "")
    assert_refused(path, seal(text + " " * 8, data), "spaces up to a multiple of 8")
    assert_refused(path, seal(text + " " * safetensors_file.MAX_HEADER, data), "expected a file of minidl, got 8")


def test_a_sparse_terabyte_file_is_refused_unread(path, content):
    path.write_bytes(content)
    os.truncate(path, 2**40)
    tracemalloc.start()
    with pytest.raises(FileError, match=r"expected \d+ bytes, the size in its header, got 1099511627776"):
        safetensors_file.read(path, "model")
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


# ---- the path
def test_a_missing_file_is_an_oserror_that_names_it(path):
    with pytest.raises(FileNotFoundError, match=re.escape(repr(str(path)))):
        safetensors_file.read(path, "model")
    with pytest.raises(IsADirectoryError, match=re.escape(repr(str(path.parent)))):
        safetensors_file.read(path.parent, "model")
    os.mkfifo(path)
    with pytest.raises(OSError, match=f"expected a regular file: {re.escape(repr(str(path)))}"):
        safetensors_file.read(path, "model")
    with pytest.raises(OSError, match="expected a regular file"):
        safetensors_file.read("/dev/zero", "model")
    with pytest.raises(TypeError, match=r"path: expected a str or .*, got 3"):
        safetensors_file.read(3, "model")


def test_the_library_is_imported_only_when_a_file_is_read():
    code = "import sys, minidl; assert 'safetensors' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
