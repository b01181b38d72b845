"""Large tensors are read without a copy, and files with them are as valid or invalid as onnx finds them."""

import io

import numpy as np
import pytest
from onnx_models.graphs import Graph

from minidl import FileError, Sequential
from minidl.layers import Dense, ReLU
from minidl.onnx import export, import_model
from minidl.onnx.file import large_tensors
from minidl.onnx.file.large_tensors import make_field, make_varint, split
from minidl.onnx.file.model_file import from_bytes, to_bytes

pytestmark = pytest.mark.oracle("onnx")

SIZES = (180, 200)  # 144,000 bytes


def content(dtype="float32"):
    """Returns a file with two large tensors and one small, and its graph."""
    g = Graph((SIZES[0],), dtype=dtype)
    g.append("Gemm", g.normal(*SIZES), g.normal(SIZES[1])).append("Relu").append("MatMul", g.normal(*SIZES[::-1]))
    return g.model(out_shape=(None, SIZES[0])).SerializeToString(), g


def parts(data):
    return split(io.BytesIO(data), len(data))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_split_takes_exactly_the_large_tensors(dtype):
    import onnx

    data, g = content(dtype)
    rest, large = parts(data)
    assert len(rest) < 5000 and {i: raw.nbytes for i, raw in large.items()} == {
        0: g.tensors["c0"].nbytes,
        2: g.tensors["c2"].nbytes,
    }
    model = onnx.load_model_from_string(rest)
    for i, raw in large.items():
        model.graph.initializer[i].raw_data = raw.tobytes()
    assert model == onnx.load_model_from_string(data)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_graph_is_the_same_as_without_splitting(dtype, monkeypatch):
    data, g = content(dtype)
    graph = from_bytes(data)
    assert all(np.array_equal(graph.tensors[name], array) for name, array in g.tensors.items())
    monkeypatch.setattr(large_tensors, "LARGE", 2**40)
    assert list(graph.tensors) == list(from_bytes(data).tensors)
    assert to_bytes(graph) == to_bytes(from_bytes(data))


def test_varints():
    for number in (0, 1, 127, 128, 300, 2**21 - 1, 2**31, 2**63):
        encoded = make_varint(number)
        splitter = large_tensors.Splitter(io.BytesIO(b"x" + encoded + b"y"))
        assert splitter.parse_varint(1, 1 + len(encoded)) == (number, 1 + len(encoded))
        assert splitter.parse_varint(1, len(encoded)) == (0, len(encoded) + 1)  # cut off


@pytest.mark.parametrize("end", [b"", b"\x08", b"\x0b\x0c", b"\x00\x00", b"\x3a\xff\xff\xff\xff\x0f", b"\xff" * 12])
def test_what_split_does_not_expect_stays_in_the_rest(end):
    data = content()[0] + end
    rest, large = parts(data)
    assert rest.endswith(end) and len(large) == 2


def test_split_never_fails_on_damaged_files():
    data, rng = content()[0], np.random.default_rng(0)
    plain = np.frombuffer(data, "u1")
    heads = np.flatnonzero(plain[:2000])[:60]
    for trial in range(400):
        damaged = plain.copy()
        damaged[rng.choice(heads) if trial % 2 else rng.integers(len(data))] ^= 1 << rng.integers(8)
        whole = damaged[: rng.integers(len(data)) if trial % 3 == 0 else len(data)].tobytes()
        rest, large = parts(whole)
        assert len(rest) + sum(raw.nbytes for raw in large.values()) <= len(whole) + 20


def test_a_limit_on_fields(monkeypatch):
    data, _ = content()
    monkeypatch.setattr(large_tensors, "MAX_FIELDS", 3)
    assert parts(data) == (data, {})


def test_damaged_files_of_large_tensors(tmp_path):
    """Each is a FileError, a ValueError or a model, as for small ones."""
    data, rng, outcomes = content()[0], np.random.default_rng(0), set()
    path = tmp_path / "model.onnx"
    structure = [i for i in range(len(data)) if i < 60 or i > len(data) - 400]
    for trial in range(300):
        damaged = bytearray(data)
        damaged[rng.choice(structure)] ^= 1 << rng.integers(8)
        path.write_bytes(damaged[: rng.integers(len(data))] if trial % 4 == 0 else damaged)
        try:
            outcomes.add(type(import_model(path)))
        except ValueError as error:
            outcomes.add(type(error))
    assert outcomes == {FileError, ValueError, Sequential}


def edited(edit):
    import onnx

    model = onnx.load_model_from_string(content()[0])
    edit(model.graph.initializer)
    return model.SerializeToString()


REFUSED = {
    "other sizes": lambda tensors: tensors[0].dims.__setitem__(0, 181),
    "negative sizes": lambda tensors: tensors[0].dims.__setitem__(slice(None), [-180, -200]),
    "huge sizes": lambda tensors: tensors[0].dims.__setitem__(slice(None), [2**40, 2**40]),
    "values in two fields": lambda tensors: tensors[0].float_data.append(1),
    "no dtype": lambda tensors: setattr(tensors[0], "data_type", 0),
    "an unknown dtype": lambda tensors: setattr(tensors[0], "data_type", 99),
    "bytes as strings": lambda tensors: setattr(tensors[0], "data_type", 8),
    "no name": lambda tensors: setattr(tensors[0], "name", ""),
    "one name twice": lambda tensors: tensors.add().CopyFrom(tensors[0]),
    "the name of a small one": lambda tensors: tensors.add(name="c0", data_type=1, dims=[1], raw_data=bytes(4)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_invalid_large_tensors_are_refused(what):
    with pytest.raises(FileError, match="expected"):
        from_bytes(edited(REFUSED[what]))


def test_raw_data_twice_is_left_to_onnx():
    """The last one counts, in protobuf."""
    tensor = make_field(9, bytes(2**17)) + make_field(9, b"1" * 2**17)
    data = make_field(7, make_field(5, tensor))
    assert parts(data) == (data, {})


def test_graphs_in_two_parts_are_merged():
    """Protobuf merges a message that occurs twice."""
    import onnx

    data, g = content()
    model = onnx.load_model_from_string(data)
    first, second = onnx.ModelProto(), onnx.ModelProto()
    first.CopyFrom(model)
    del first.graph.initializer[1:]
    second.graph.initializer.extend(model.graph.initializer[1:])
    graph = from_bytes(first.SerializeToString() + second.SerializeToString())
    assert all(np.array_equal(graph.tensors[name], array) for name, array in g.tensors.items())


def test_a_file_that_shrinks_while_it_is_read():
    data, _ = content()
    with pytest.raises(FileError, match="expected a file that does not change while it is read"):
        split(io.BytesIO(data[:-1]), len(data))


def test_an_exported_model_of_large_tensors(tmp_path, rng):
    model = Sequential([Dense(300), ReLU(), Dense(2)], input_shape=(400,))
    export(model, tmp_path / "model.onnx")
    back, x = import_model(tmp_path / "model.onnx"), rng.random((20, 400)).astype("f4")
    assert repr(back) == repr(model) and np.array_equal(back.predict(x), model.predict(x))
    back.params["0.weight"].value[...] = 0  # the arrays are the model's own
