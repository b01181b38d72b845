"""Graphs that compute one example without a batch axis become nets of any batch; others are refused as before."""

import numpy as np
import pytest
from onnx_models.graphs import Graph

from minidl.onnx import import_model

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")


class Single(Graph):
    """A graph whose input has exactly the given shape."""

    def model(self, **options):
        model = super().model(**options)
        shape = model.graph.input[0].type.tensor_type.shape
        del shape.dim[0], model.graph.value_info[:]
        model.graph.output[0].type.tensor_type.ClearField("shape")
        return model


def check(g, folder, *layers, n=5):
    """Checks the layers, and each example of a batch against onnxruntime."""
    import onnxruntime

    path = g.save(folder, out_shape=(None,))
    model = import_model(path)
    assert [type(layer).__name__ for layer in model.layers] == list(layers)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (value,) = session.get_inputs()
    examples = g.rng.integers(0, 5, (n, *value.shape)) if g.categories else g.rng.standard_normal((n, *value.shape))
    examples = examples.astype(g.indices if g.categories else g.dtype)
    expected = np.stack([session.run(None, {value.name: x})[0].reshape(model.output_shape) for x in examples])
    found = model.predict(examples.reshape(n, *model.input_shape))
    np.testing.assert_allclose(found, expected, 1e-5, 1e-6 * np.abs(expected).max())
    return model


def vectors(g):
    g.append("MatMul", g.normal(6, 8)).append("Add", g.normal(8)).append("Relu")
    return g.append("MatMul", g.normal(8, 3)).append("Softmax", axis=0)


def test_an_input_of_one_axis(tmp_path):
    assert check(vectors(Single((6,))), tmp_path, "Dense", "ReLU", "Dense", "Softmax").input_shape == (6,)


def test_an_input_of_one_number(tmp_path):
    g = Single((1,))
    check(
        g.append("MatMul", g.normal(1, 4)).append("Tanh").append("Mul", g.normal(4)), tmp_path, "Dense", "Tanh", "Scale"
    )


def test_an_input_of_indices(tmp_path):
    g = Single((7,), categories=5, indices="int64")
    g.add("Gather", g.normal(5, 4), "x")
    g.append("Reshape", g.integers(28)).append("MatMul", g.normal(28, 3))
    check(g, tmp_path, "Embedding", "Permute", "Flatten", "Dense")


@pytest.mark.parametrize("size", [-1, 96])
def test_a_reshape_that_drops_the_axis(size, tmp_path):
    g = Graph((3, 8, 8), batch=1)
    g.append("Conv", g.normal(6, 3, 3, 3), strides=[2, 2], pads=[0, 0, 1, 1]).append("Reshape", g.integers(size))
    g.append("MatMul", g.normal(96, 4)).append("Add", g.normal(4))
    check(g, tmp_path, "Conv2D", "Flatten", "Dense")


def test_back_and_forth(tmp_path):
    """Shapes of examples, of vectors, and with the axis."""
    g = Single((48,))
    g.append("Reshape", g.integers(3, 4, 4)).append("Relu").append("Unsqueeze", g.integers(0))
    g.append("Conv", g.normal(2, 3, 3, 3)).append("Reshape", g.integers(8)).append("Reshape", g.integers(1, -1))
    check(g.append("Gemm", g.normal(8, 2), g.normal(2)), tmp_path, "Reshape", "ReLU", "Conv2D", "Flatten", "Dense")


def test_an_input_whose_axis_is_added_first(tmp_path):
    g = Single((3, 6, 6))
    check(g.append("Unsqueeze", g.integers(0)).append("Conv", g.normal(2, 3, 3, 3)), tmp_path, "Conv2D")


def test_a_squeeze_of_the_axis(tmp_path):
    g = Graph((3, 6, 6), batch=1)
    check(
        g.append("Conv", g.normal(2, 3, 3, 3)).append("Squeeze", g.integers(0)).append("Relu"),
        tmp_path,
        "Conv2D",
        "ReLU",
    )


def test_branches_without_the_axis(tmp_path):
    g = Single((6,))
    a = g.add("Relu", g.add("MatMul", "x", g.normal(6, 4)))
    g.add("Concat", a, g.add("Tanh", a), axis=0)
    check(g.append("MatMul", g.normal(8, 2)), tmp_path, "Dense", "ReLU", "Parallel", "Dense")


def test_a_transpose_of_an_example(tmp_path):
    g = Single((12,))
    g.append("Reshape", g.integers(3, 4)).append("Transpose", perm=[1, 0]).append("Flatten", axis=0)
    check(g, tmp_path, "Reshape", "Permute", "Flatten")


def test_a_constant_with_the_axis(tmp_path):
    g = Single((6,))
    check(g.append("Add", g.normal(1, 6)).append("Gemm", g.normal(6, 2)), tmp_path, "Normalize", "Dense")


@pytest.mark.parametrize("opset", [9, 17])
def test_flatten_of_a_batch_of_one(opset, tmp_path):
    g = Graph((3, 4, 4), batch=1, opset=opset)
    check(g.append("Relu").append("Flatten", axis=0), tmp_path, "ReLU", "Flatten")


REFUSED = {
    "a batch of four": lambda: Graph((6,), batch=4).append("Flatten", axis=0),
    "a batch of any size": lambda: Graph((6,)).append("Relu").append("Flatten", axis=0),
    "a reduction": lambda: Single((6,)).append("Relu").append("ReduceMean"),
    "a shape": lambda: Single((6,)).append("Shape").append("Cast", to=1),
    "a matrix": lambda: (g := Single((6,))).append("Reshape", g.integers(2, 3)).append("Gemm", g.normal(3, 2)),
    "images that may be a batch": lambda: (g := Single((3, 6, 6))).append("Conv", g.normal(2, 3, 3, 3)),
    "a constant of more axes": lambda: (g := Single((6,))).append("Add", g.normal(2, 2, 6)),
    "another domain": lambda: Single((6,)).append("Relu", domain="com.example"),
    "a product with itself": lambda: (g := Single((6,))).add("MatMul", "x", "x") and g,
    "a product from the left": lambda: (g := Single((6,))).add("MatMul", g.normal(2, 6), "x") and g,
    "dynamic sizes": lambda: Single(("n",)).append("Relu"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name, tmp_path):
    with pytest.raises(ValueError, match=r"expected|no layer"):
        import_model(REFUSED[name]().save(tmp_path, out_shape=(None,)))
