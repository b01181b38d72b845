"""Damaged and hostile files, and other formats: an error, without a crash, reads of other files or excessive memory."""

import os
import threading

import numpy as np
import pytest
from onnx_models.graphs import Graph
from onnx_models.nets import models

from minidl import FileError, Sequential
from minidl.layers import Dense, ReLU
from minidl.onnx import export, import_model

pytestmark = pytest.mark.oracle("onnx")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.onnx"


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    return path


def small_model():
    return Sequential([Dense(3), ReLU(), Dense(2)], input_shape=(4,))


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 100, b"not an ONNX file at all", b"{}", b"\x08\x0a", os.urandom(1000)]
)
def test_other_formats(content, path):
    with pytest.raises(FileError, match=r"model\.onnx: expected "):
        import_model(write(path, content))


def test_a_graph_without_nodes(path):
    model = Graph().append("Relu").model(output="x")
    del model.graph.node[:]
    with pytest.raises(ValueError, match=r"model\.onnx: expected a graph with nodes, got inputs and outputs alone"):
        import_model(write(path, model))


def test_model_files_and_onnx_files_are_told_apart(path):
    small_model().save(path)
    with pytest.raises(FileError):
        import_model(path)
    export(small_model(), path)
    with pytest.raises(FileError):
        Sequential.load(path)


def test_truncated_files(path):
    export(small_model(), path)
    content = path.read_bytes()
    for length in range(0, len(content), 7):
        with pytest.raises((FileError, ValueError)):
            import_model(write(path, content[:length]))
    path.write_bytes(content[:-1])
    with pytest.raises(FileError):
        import_model(path)


def test_random_bit_flips(path):
    """A flipped bit may give another valid graph: the result is a model, a FileError or a ValueError."""
    export(small_model(), path)
    content, rng, outcomes = bytearray(path.read_bytes()), np.random.default_rng(0), []
    for _ in range(3000):
        damaged = bytearray(content)
        for place in rng.integers(0, len(content), rng.integers(1, 4)):
            damaged[place] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        try:
            model = import_model(path)
        except ValueError as error:
            outcomes.append(type(error))
            assert str(error).startswith(f"{path}: ") or isinstance(error, FileError)
        else:
            outcomes.append(Sequential)
            assert model.predict(np.zeros((2, *model.input_shape))).shape == (2, *model.output_shape)
    assert set(outcomes) == {FileError, ValueError, Sequential}


def test_names_that_are_not_utf8(path):
    content = Graph().append("LeakyRelu", alpha=0.5).model().SerializeToString()
    for name in (b"alpha", b"LeakyRelu_0", b"v0"):
        with pytest.raises(FileError):
            import_model(write(path, content.replace(name, b"\xff" * len(name))))


def test_missing_tensor_values(path):
    g = Graph((4,))
    model = g.append("MatMul", g.normal(4, 2)).model()
    tensor = model.graph.initializer[0]
    tensor.dims[:] = [2**40, 2**20]
    with pytest.raises(FileError):
        import_model(write(path, model))
    tensor.dims[:] = [4, 2]
    tensor.raw_data = b""
    with pytest.raises(FileError):
        import_model(write(path, model))


def test_undefined_inputs(path):
    with pytest.raises(FileError, match="expected a valid ONNX graph"):
        import_model(write(path, Graph().append("Relu").append("Conv", "nothing").model()))


@pytest.mark.parametrize("where", ["initializer", "attribute"])
def test_external_data_is_not_read(where, path, tmp_path):
    from onnx import TensorProto, helper

    (tmp_path / "weights.bin").write_bytes(np.ones(8, "f4").tobytes())
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="weights.bin")
    g = Graph((4,))
    if where == "attribute":
        g.nodes.append(helper.make_node("Constant", [], ["w"], value=tensor))
    model = g.append("MatMul", "w").model(out_shape=(None, 2))
    if where == "initializer":
        model.graph.initializer.append(tensor)
    with pytest.raises(ValueError, match=r"tensor 'w': expected its values in this file, got a reference to") as error:
        import_model(write(path, model))
    message = str(error.value)
    assert "torch.onnx.export(..., external_data=False)" in message and "onnx.save(onnx.load(path), other)" in message


def test_external_data_can_be_merged_as_the_error_says(path, tmp_path, rng):
    import onnx

    model, x = small_model(), rng.random((5, 4)).astype("f4")
    export(model, path)
    external, merged = tmp_path / "spread.onnx", tmp_path / "one.onnx"
    onnx.save(onnx.load(path), external, save_as_external_data=True, location="weights", size_threshold=0)
    with pytest.raises(ValueError, match="external data"):
        import_model(external)
    onnx.save(onnx.load(external), merged)
    assert np.array_equal(import_model(merged).predict(x), model.predict(x))


def test_sparse_tensors(path):
    from onnx import SparseTensorProto, numpy_helper

    model = Graph((4,)).append("Relu").model()
    values = numpy_helper.from_array(np.ones(1, "f4"), "sparse")
    sparse = SparseTensorProto(values=values, indices=numpy_helper.from_array(np.zeros(1, "i8")), dims=[4])
    model.graph.sparse_initializer.append(sparse)
    with pytest.raises(ValueError, match="expected dense tensors, got the sparse tensor 'sparse'"):
        import_model(write(path, model))


def test_metadata_of_a_huge_model(path):
    """Metadata must not allocate more than the tensors of the file."""
    import onnx

    export(small_model(), path)
    model = onnx.load(str(path))
    (entry,) = model.metadata_props
    entry.value = entry.value.replace('"units":3', '"units":3000000000000')
    assert "3000000000000" in entry.value
    found = import_model(write(path, model))
    assert [layer.units for layer in found.layers if isinstance(layer, Dense)] == [3, 2]
    for value in (entry.value.replace('"float32"', '"V4000000000000"'), '{"counters":' + "[" * 10**7):
        entry.value = value
        assert len(import_model(write(path, model)).layers) == 3


@pytest.mark.parametrize("shape", [(3, 2**40, 2**40), (2**40, 2, 2), (2**62,)])
def test_a_huge_input_shape(shape, path):
    g = Graph(shape)
    if len(shape) == 3:
        g.append("MaxPool", kernel_shape=[2, 2]).append("GlobalAveragePool")
    g.append("Relu")
    with pytest.raises(ValueError, match=r"node '\w+_0' \(\w+\): expected at most|cannot take input"):
        import_model(write(path, g.model(out_shape=(None,))))


def test_a_limit_on_pixels_over_all_layers(path):
    g = Graph((1, 2**24, 1))
    for _ in range(5):
        g.append("Relu")
    with pytest.raises(ValueError, match=r"node 'Relu_3' \(Relu\): expected at most 67108864 rows and columns"):
        import_model(write(path, g.model()))


def test_more_rows_than_a_float32_counts(path):
    """Nothing is allocated for them before a prediction."""
    g = Graph((1, 2**24, 1))
    for _ in range(3):
        g.append("Relu")
    assert import_model(write(path, g.model())).output_shape == (1, 2**24, 1)


def test_a_limit_on_nodes(path, monkeypatch):
    g = Graph((4,))
    for _ in range(20_001):
        g.append("Relu")
    with pytest.raises(ValueError, match="expected at most 20000 nodes, got 20001"):
        import_model(write(path, g.model()))


def test_deep_graphs_do_not_recurse(path):
    g = Graph((4,))
    for _ in range(3000):
        g.append("Relu")
    shape = g.integers(0, 4)
    for _ in range(3000):
        shape = g.add("Identity", shape)
    g.add("Reshape", "v2999", shape)
    assert len(import_model(write(path, g.model())).layers) == 3000


def test_a_fifo_does_not_block(path):
    os.mkfifo(path)
    errors = []

    def run():
        try:
            import_model(path)
        except OSError as error:
            errors.append(str(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(300)
    assert errors and "expected a regular file" in errors[0]


def test_string_paths(path, tmp_path, monkeypatch):
    model = models.lenet5()
    monkeypatch.chdir(tmp_path)
    export(model, "model.onnx")
    assert repr(import_model("model.onnx")) == repr(import_model(path)) == repr(model)
