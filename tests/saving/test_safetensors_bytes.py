"""File content in memory: the same bytes and the same checks as for files."""

import numpy as np
import pytest

from minidl.saving import safetensors_file
from minidl.saving.safetensors_file import FileError

CONFIG = {"a": [1, None, "ä"], "b": {"deep": [[]]}}
TENSORS = {
    "0.weight": np.arange(6, dtype="f4").reshape(2, 3),
    "big": np.arange(4, dtype=">i8"),
    "strided": np.arange(20.0)[::3],
    "scalar": np.array(2.5),
    "none": np.zeros((0, 3)),
}


def test_they_equal_the_bytes_of_the_file(tmp_path):
    safetensors_file.write(tmp_path / "file", "model", CONFIG, TENSORS)
    assert safetensors_file.to_bytes("model", CONFIG, TENSORS) == (tmp_path / "file").read_bytes()
    (tmp_path / "other").write_bytes(safetensors_file.to_bytes("checkpoint", CONFIG, TENSORS))
    assert safetensors_file.read(tmp_path / "other", "checkpoint")[0] == CONFIG


def test_round_trip():
    config, tensors, _ = safetensors_file.from_bytes(safetensors_file.to_bytes("model", CONFIG, TENSORS), "model")
    assert config == CONFIG and list(tensors) == list(TENSORS)
    for name, array in tensors.items():
        np.testing.assert_array_equal(array, TENSORS[name])
        assert array.dtype.isnative and array.flags.writeable and array.flags.owndata


def test_any_bytes_like_object_is_accepted():
    content = safetensors_file.to_bytes("model", CONFIG, TENSORS)
    for kind in (bytearray, memoryview):
        np.testing.assert_array_equal(safetensors_file.from_bytes(kind(content), "model")[1]["big"], TENSORS["big"])


def test_every_flipped_bit_is_detected():
    content = safetensors_file.to_bytes("model", {}, {"w": np.arange(2, dtype="f4")})
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FileError):
            safetensors_file.from_bytes(bytes(damaged), "model")


def test_wrong_lengths_and_kinds_are_refused():
    content = safetensors_file.to_bytes("model", CONFIG, TENSORS)
    for wrong in (b"", content[:7], content[:100], content[:-1], content + b"\0", b"\0" * 1000):
        with pytest.raises(FileError):
            safetensors_file.from_bytes(wrong, "model")
    with pytest.raises(FileError, match="expected a checkpoint file, got a 'model' file"):
        safetensors_file.from_bytes(content, "checkpoint")


def test_unsupported_content_is_refused():
    with pytest.raises(TypeError, match="tensor 'w': expected integers or real numbers"):
        safetensors_file.to_bytes("model", {}, {"w": np.array(["a"])})
    with pytest.raises(ValueError, match=r"(?i)nan|range"):
        safetensors_file.to_bytes("model", {"x": float("nan")}, {})
