"""The argument `outputs` of import_model: which values of a graph are the model's outputs."""

import numpy as np
import pytest
from onnx_models.graphs import Graph, run_both

from minidl.onnx import import_model, inspect

X = np.random.default_rng(0).standard_normal((5, 4)).astype("f4")
pytestmark = pytest.mark.oracle("onnx", "onnxruntime")


def classifier_as_skl2onnx_writes_it():
    """Its first output is labels, which no layer computes."""
    g = Graph((4,))
    g.append("Gemm", g.normal(4, 3)).append("Softmax")
    g.add("Identity", g.last, outputs=["probabilities"])
    g.add("ArgMax", "probabilities", outputs=["label"], axis=1, keepdims=0)
    return g


@pytest.mark.parametrize("outputs", ["probabilities", ["probabilities"]])
def test_the_outputs_that_are_wanted(outputs, tmp_path):
    g = classifier_as_skl2onnx_writes_it()
    g.outputs = ["probabilities"]
    expected, found, only = run_both(g, g.save(tmp_path))
    np.testing.assert_allclose(found, expected, 1e-5)
    g.outputs = ["label", "probabilities"]
    path = g.save(tmp_path)
    with pytest.raises(ValueError, match="ArgMax"):
        import_model(path)
    assert np.array_equal(import_model(path, outputs=outputs).predict(X), only.predict(X))
    assert inspect(path).obstacles and not inspect(path, outputs=outputs).obstacles
    assert not inspect(path, outputs=iter(["probabilities"])).obstacles


def test_inputs_that_no_wanted_output_needs(tmp_path):
    from onnx import TensorProto, helper

    g = Graph((4,))
    g.add("Relu", "x", outputs=["a"])
    model = g.model()
    model.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["batch", 4]))
    model.graph.node.append(helper.make_node("Tanh", ["z"], ["b"]))
    model.graph.output.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, ["batch", 4]))
    path = tmp_path / "graph.onnx"
    path.write_bytes(model.SerializeToString())
    for name, expected in (("a", np.maximum(X, 0)), ("b", np.tanh(X))):
        np.testing.assert_allclose(import_model(path, outputs=name).predict(X), expected, 1e-5)
        assert [value[0] for value in inspect(path, outputs=name).inputs] == ["x" if name == "a" else "z"]
    with pytest.raises(ValueError, match="expected a graph of one input, and outputs, got"):
        import_model(path, outputs=["a", "b"])


def test_values_inside_the_graph(tmp_path):
    g = classifier_as_skl2onnx_writes_it()
    g.outputs = ["probabilities"]
    model = import_model(g.save(tmp_path), outputs=["v0", "probabilities"])
    assert model.output_shape == {"v0": (3,), "probabilities": (3,)}


@pytest.mark.parametrize("outputs", ["label", [], ["v0", "v0"], "x", "c0", ""])
def test_unknown_outputs(outputs, tmp_path):
    g = Graph((4,))
    g.append("Gemm", g.normal(4, 3))
    with pytest.raises(
        ValueError, match="outputs: expected names of values that nodes compute, each once: v0, or inner"
    ):
        import_model(g.save(tmp_path), outputs=outputs)


def test_a_name_that_is_close_to_another_one(tmp_path):
    path = Graph((4,)).append("Relu").save(tmp_path)
    with pytest.raises(ValueError, match="got v_0; did you mean 'v0'"):
        import_model(path, outputs="v_0")


def test_outputs_that_are_no_names(tmp_path):
    path = Graph((4,)).append("Relu").save(tmp_path)
    with pytest.raises(TypeError, match=r"outputs: expected names of values, got \[1\]"):
        import_model(path, outputs=[1])
