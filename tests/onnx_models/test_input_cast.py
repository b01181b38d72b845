"""Graphs that begin with bytes and a Cast."""

import numpy as np
import pytest
from onnx_models.graphs import Graph

from minidl.onnx import import_model

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")

FLOAT, FLOAT16, DOUBLE = 1, 10, 11


def save(g, folder, dtype="uint8", **options):
    from onnx import helper

    model = g.model(**options)
    model.graph.input[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    path = folder / "graph.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def run(path, x):
    """Returns the outputs of onnxruntime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "int32", "int64"])
def test_integers_with_a_cast(dtype, tmp_path, rng):
    g = Graph().append("Cast", to=FLOAT)
    g.append("Div", g.constant(255))
    g.append("Relu").append("GlobalAveragePool").append("Flatten")
    path, info = save(g, tmp_path, dtype, out_shape=(None, 3)), np.iinfo(dtype)
    x = rng.integers(max(info.min, -1000), min(info.max, 1000), (20, 3, 8, 8), dtype=dtype)
    model = import_model(path)
    assert [type(layer).__name__ for layer in model.layers][:2] == ["Normalize", "ReLU"] and model.dtype == "float32"
    np.testing.assert_allclose(model.predict(x), run(path, x), 1e-5, 1e-6)


def test_several_casts_and_the_shape_of_the_input(tmp_path, rng):
    """As exporters write them for branches, and for a Reshape to the batch size."""
    g = Graph()
    left = g.add("Relu", g.add("Cast", "x", to=FLOAT))
    total = g.add("Add", left, g.add("Cast", "x", to=FLOAT))
    size = g.add("Gather", g.add("Shape", "x"), g.integers(0))
    g.add("Reshape", total, g.add("Concat", size, g.integers(192), axis=0))
    path, x = save(g, tmp_path, out_shape=(None, 192)), rng.integers(0, 256, (4, 3, 8, 8), dtype="u1")
    np.testing.assert_allclose(import_model(path).predict(x), run(path, x), 1e-6)


def refused(g, folder, dtype, message):
    with pytest.raises(ValueError, match=message):
        import_model(save(g, folder, dtype, out_shape=(None,)))


def test_other_inputs_are_refused(tmp_path):
    cast = ", not followed by a Cast to one of them"
    refused(Graph().append("Identity"), tmp_path, "uint8", f"input 'x': expected float or double, got uint8{cast}")
    refused(Graph().append("Cast", to=FLOAT16), tmp_path, "uint8", f"got uint8{cast}")
    refused(Graph().append("Cast", to=FLOAT), tmp_path, "float16", "input 'x': expected float or double, got float16$")
    g = Graph()
    g.add("Add", g.add("Cast", "x", to=FLOAT), g.add("Cast", g.add("Cast", "x", to=DOUBLE), to=FLOAT))
    refused(g, tmp_path, "uint8", f"got uint8{cast}")
