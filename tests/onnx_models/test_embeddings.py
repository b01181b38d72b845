"""Lookups of rows at integers become embeddings."""

import pytest
from onnx_models.graphs import Graph, check

from minidl.onnx import import_model

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")


@pytest.mark.parametrize("indices", ["float32", "int32", "int64"])
def test_embedding(indices, tmp_path):
    g = Graph((5,), categories=9, indices=indices)
    g.append("Cast", to=7)
    g.add("Gather", g.normal(9, 3), g.last)
    check(g.append("Transpose", perm=[0, 2, 1]), tmp_path, "Embedding")
    g = Graph((5,), categories=9, indices=indices, dtype="float64" if indices == "int32" else "float32")
    g.append("Cast", to=6).append("Cast", to=7)
    g.add("Gather", g.normal(9, 3), g.last, axis=0)
    model = check(g.append("Flatten"), tmp_path, "Embedding", "Permute", "Flatten")
    assert (model.layers[0].categories, model.layers[0].dim, model.dtype) == (9, 3, g.dtype)


def test_embeddings_of_columns(tmp_path):
    """Columns of integers, each with vectors of its own; others become floats."""
    g, vectors = Graph((3,), categories=4, indices="int64"), []
    for i in range(2):
        column = g.add("Slice", "x", g.integers(i), g.integers(i + 1), g.integers(1))
        vectors.append(g.add("Flatten", g.add("Gather", g.normal(4, 3 + i), column)))
    number = g.add("Cast", g.add("Slice", "x", g.integers(2), g.integers(3), g.integers(1)), to=1)
    g.add("Concat", *vectors, number, axis=1)
    model = check(g.append("Gemm", g.normal(8, 5)), tmp_path, "Parallel", "Dense")
    names = [type(layer).__name__ for layer in model.layers[0].branches[1]]
    assert names == ["Columns", "Embedding", "Permute", "Flatten"]


def test_one_hot_rows_times_a_matrix(tmp_path):
    g = Graph((5,), categories=9, indices="int64")
    g.append("OneHot", g.constant(9, "int64"), g.constant([0, 1])).append("MatMul", g.normal(9, 3))
    check(g, tmp_path, "Embedding", "Permute", out_shape=(None, 5, 3))


@pytest.mark.parametrize(
    ("depth", "values", "axis"), [(8, [0, 1], -1), (9, [0, 2], -1), (9, [1, 0], -1), (9, [0, 1], 1)], ids=str
)
def test_other_one_hot_rows_are_refused(depth, values, axis, tmp_path):
    """Without a matrix of as many rows, of other values, and along another axis."""
    g = Graph((9,), categories=9, indices="int64")
    g.append("OneHot", g.constant(depth, "int64"), g.constant(values), axis=axis)
    g.append("MatMul", g.normal(9 if axis == 1 else depth + (depth == 8), 3))
    with pytest.raises(ValueError, match=r"\(OneHot\): no layer of minidl does that"):
        import_model(g.save(tmp_path, out_shape=(None, 9, 3)))


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_embedding_of_bytes(dtype, tmp_path):
    """Indices are int32 or int64 in ONNX; an input of other integers has a Cast."""
    g = Graph((5,), categories=9, indices=dtype)
    g.add("Gather", g.normal(9, 3), g.add("Cast", "x", to=7))
    check(g.append("Transpose", perm=[0, 2, 1]), tmp_path, "Embedding")


def test_rows_at_indices_of_another_shape_are_refused(tmp_path):
    g = Graph((3, 2), categories=4, indices="int64")
    g.add("Gather", g.normal(4, 3), "x")
    with pytest.raises(ValueError, match=r"\(Gather\): Embedding cannot take input \(3, 2\): expected \(length,\)"):
        import_model(g.save(tmp_path))
    g = Graph((3,), categories=4, indices="int64")
    g.add("Gather", g.normal(4, 3), "x", axis=1)
    with pytest.raises(ValueError, match="input 'x': expected float or double, got int64"):
        import_model(g.save(tmp_path))


@pytest.mark.parametrize("indices", ["float32", "int64", "uint8"])
def test_computed_indices_are_refused(indices, tmp_path):
    """A Cast to integers drops fractions, and integers divide and overflow otherwise than floats."""
    for before in (lambda g: g.add("Mul", "x", "x"), lambda g: g.add("Relu", "x"), lambda g: g.add("Cast", "x", to=3)):
        g = Graph((5,), categories=9, indices=indices)
        first = g.add("Gather", g.normal(9, 3), g.add("Cast", "x", to=7))
        second = g.add("Gather", g.normal(9, 3), g.add("Cast", before(g), to=7))
        g.add("Add", first, second)
        with pytest.raises(ValueError, match=r"\(Gather\): expected rows at elements|\(Cast\): expected|unsupported"):
            import_model(g.save(tmp_path))


def test_indices_that_are_moved_or_of_another_dtype(tmp_path):
    g = Graph((4, 3), categories=9, indices="int32")
    y = g.add("Transpose", g.add("Cast", "x", to=1), perm=[0, 2, 1])
    column = g.add("Squeeze", g.add("Slice", y, g.integers(1), g.integers(2), g.integers(1)), g.integers(1))
    g.add("Gather", g.normal(9, 3), g.add("Cast", column, to=7))
    check(g.append("Flatten"), tmp_path)
