"""Products over the last axis as TensorFlow writes them, and other products between two Reshapes."""

import pytest
from onnx_models.graphs import Graph, check

from minidl.onnx import import_model

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")

TO_LAST, TO_FIRST = [0, 2, 3, 1], [0, 3, 1, 2]


def tensordot(g, x, rows, weight, shape):
    """Adds the nodes; rows, shape: sizes, or names of constants."""
    rows, shape = (name if isinstance(name, str) else g.integers(*name) for name in (rows, shape))
    return g.add("Reshape", g.add("MatMul", g.add("Reshape", x, rows), weight), shape)


def computed_shapes(g, x, filters):
    """Adds the nodes that compute both shapes from that of x, as 32-bit integers."""
    sizes = g.add("Cast", g.add("Shape", x), to=6)
    lead = g.add("Gather", sizes, g.constant([0, 1, 2], "int32"), axis=0)
    pixels = g.add("Unsqueeze", g.add("ReduceProd", lead, axes=[0], keepdims=0), g.integers(0))
    last = g.add("Gather", sizes, g.constant([3], "int32"), axis=0)
    shape = g.add("Concat", lead, g.constant([filters], "int32"), axis=0)
    rows = g.add("Concat", pixels, last, axis=0)
    return g.add("Cast", rows, to=7), g.add("Cast", shape, to=7)


@pytest.mark.parametrize("kind", ["any batch", "batch of 2", "computed"])
def test_a_product_over_the_last_axis_is_a_convolution(tmp_path, kind):
    g = Graph((3, 4, 5), batch=2 if kind == "batch of 2" else "N")
    y = g.add("Transpose", "x", perm=TO_LAST)
    rows, shape = {"any batch": ((-1, 3), (-1, 4, 5, 7)), "batch of 2": ((40, 3), (2, 4, 5, 7))}.get(kind, (None, None))
    if rows is None:
        rows, shape = computed_shapes(g, y, 7)
    y = g.add("Add", tensordot(g, y, rows, g.normal(3, 7), shape), g.normal(7))
    g.add("Transpose", g.add("Relu", y), perm=TO_FIRST)
    conv, _ = check(g, tmp_path, "Conv2D", "ReLU").layers
    assert conv.use_bias and conv.kernel_size == 1


def test_a_product_over_the_features_of_a_signal(tmp_path):
    g = Graph((3, 6))
    y = tensordot(g, g.add("Transpose", "x", perm=[0, 2, 1]), (-1, 3), g.normal(3, 4), (-1, 6, 4))
    g.add("Transpose", y, perm=[0, 2, 1])
    check(g, tmp_path, "Conv1D")


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((-1, 5, 4, 7), r"expected a product over the last axis, with shape \[1, 4, 5, 7\], got \[-1, 5, 4, 7\]"),
        ((-1, 20, 7), r"expected a shape that keeps examples of \(4, 5, 3\) separate, got \[-1, 3\]"),
        ((-1, 4, 35), r"expected a shape that keeps examples of \(4, 5, 3\) separate, got \[-1, 3\]"),
        ((-1, 4, 7, 5), r"expected a shape that keeps examples of \(4, 5, 3\) separate, got \[-1, 3\]"),
    ],
)
def test_other_shapes_of_the_product_are_refused(tmp_path, shape, message):
    """Rows and columns exchanged or merged, or the product not last: a layer for it would need another Reshape."""
    g = Graph((3, 4, 5))
    tensordot(g, g.add("Transpose", "x", perm=TO_LAST), (-1, 3), g.normal(3, 7), shape)
    with pytest.raises(ValueError, match=message):
        import_model(g.save(tmp_path))


def test_rows_of_other_channels_are_refused(tmp_path):
    """A matrix as wide as the channels, but of another batch in the file."""
    g = Graph((3, 4, 5), batch=2)
    y = g.add("Transpose", "x", perm=TO_LAST)
    tensordot(g, y, (20, 6), g.normal(6, 7), (2, 2, 5, 7))
    with pytest.raises(ValueError, match=r"\(MatMul, .*\): expected shape \(3, 'any'\)"):
        import_model(g.save(tmp_path))


def test_a_dense_layer_between_reshapes_stays_one(tmp_path):
    """Whole examples as rows, with and without Transposes in the graph; and an inner value that is used elsewhere."""
    g = Graph((3, 4, 5))
    y = tensordot(g, g.add("Relu", "x"), (-1, 60), g.normal(60, 12), (-1, 3, 2, 2))
    check(g, tmp_path, "ReLU", "Flatten", "Dense", "Reshape")
    y = tensordot(g, g.add("Transpose", y, perm=[0, 1, 3, 2]), (-1, 12), g.normal(12, 4), (-1, 4, 1, 1))
    g.add("Flatten", y)
    names = [type(layer).__name__ for layer in check(g, tmp_path).layers]
    assert names.count("Dense") == 2 and "Conv2D" not in names
    g = Graph((3, 4, 5))
    flat = g.add("Reshape", "x", g.integers(-1, 60))
    y = g.add("Reshape", g.add("MatMul", flat, g.normal(60, 60)), g.integers(-1, 3, 4, 5))
    g.add("Add", g.add("Flatten", y), flat)
    check(g, tmp_path, "Flatten", "Residual")


def test_a_product_of_whole_examples_after_a_transpose(tmp_path):
    """As channels-last nets flatten: the last axis of the matrix is not that of the image. Also with one column."""
    for columns in (6, 1):
        g = Graph((3, 4, 5))
        y = g.add("Transpose", "x", perm=TO_LAST)
        tensordot(g, y, (-1, 60), g.normal(60, columns), (-1, columns, 1, 1))
        check(g, tmp_path, "Permute", "Flatten", "Dense", "Reshape")
    g = Graph((3, 4, 5))
    y = g.add("Transpose", "x", perm=TO_LAST)
    tensordot(g, y, (-1, 60), g.normal(60, 60), g.add("Shape", y))  # the shape of a value that is moved
    check(g, tmp_path, "Permute", "Flatten", "Dense", "Reshape")


def test_two_products_with_one_reshape_between_them(tmp_path):
    """The Reshape is the last node of the one and the first of the other."""
    g = Graph((3, 4, 5))
    y = tensordot(g, g.add("Transpose", "x", perm=TO_LAST), (-1, 60), g.normal(60, 12), (-1, 12))
    g.add("Reshape", g.add("MatMul", y, g.normal(12, 6)), g.integers(-1, 3, 2))
    check(g, tmp_path, "Permute", "Flatten", "Dense", "Dense", "Reshape")


@pytest.mark.parametrize("index", [1, 2])
def test_a_matrix_that_is_used_elsewhere_is_refused(index, tmp_path):
    """There is no layer for the rows: the batch is no longer an axis."""
    g = Graph((3, 4, 5))
    y = tensordot(g, g.add("Transpose", "x", perm=TO_LAST), (-1, 3), g.normal(3, 3), (-1, 4, 5, 3))
    g.add("Add", y, g.add("Reshape", f"v{index}", g.integers(-1, 4, 5, 3)))
    with pytest.raises(ValueError, match=r"expected a shape that keeps examples of \(4, 5, 3\) separate"):
        import_model(g.save(tmp_path))


@pytest.mark.parametrize("shape", [(5, 3), (2, 5, 3)])
def test_a_product_over_the_last_axis_of_rows(shape, tmp_path):
    """As a Linear of PyTorch on several axes, with a bias: a convolution between Permutes."""
    g = Graph(shape)
    g.append("MatMul", g.normal(3, 4)).append("Add", g.normal(4)).append("Relu")
    g.append("MatMul", g.normal(4, 2))
    conv = f"Conv{len(shape) - 1}D"
    model = check(g, tmp_path, "Permute", conv, "Permute", "ReLU", "Permute", conv, "Permute")
    assert model.layers[1].use_bias and model.layers[1].trainable
    g.append("Add", g.normal(shape[-2], 1)).append("MatMul", g.normal(2, 2)).append("Mul", g.normal(2))
    check(g, tmp_path)
