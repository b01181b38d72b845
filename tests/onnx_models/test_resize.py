"""Sizes after a linear Resize by scales of float32, of other programs and of exported layers."""

import numpy as np
import pytest
from onnx_models.graphs import Graph, check

import minidl.onnx
from minidl import Sequential
from minidl.layers import GlobalMaxPool2D, Upsample2D

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")


@pytest.mark.parametrize("transform", ["half_pixel", "align_corners"])
@pytest.mark.parametrize(("height", "scale", "out"), [(5, 1.4, 7), (5, 1.8, 9), (5, 2.6, 13)])
def test_the_size_is_a_product_in_float32(transform, height, scale, out, tmp_path):
    """In float64 it would be a little less than a whole number."""
    for other in (1, 1.3):
        g, modes = Graph((2, height, 10)), {"mode": "linear", "coordinate_transformation_mode": transform}
        g.append("Resize", "", g.constant([1, 1, scale, other]), **modes)
        g.append("Relu").append("GlobalMaxPool")  # the shapes that onnx infers are those of float64
        model = check(g, tmp_path, "Upsample2D", "ReLU", "GlobalMaxPool2D", "Reshape")
        assert model.layers[0].out_shape == (2, out, int(10 * other))


@pytest.mark.parametrize(
    "layer",
    [
        Upsample2D(size=(9, 3), mode="bilinear", align_corners=True),
        Upsample2D(size=(9, 3), mode="bilinear"),
        Upsample2D(scale=(1.8, 0.45), mode="bilinear", align_corners=True),
        Upsample2D(scale=(1.8, 0.45), mode="bilinear"),
        Upsample2D(size=(10, 21)),
    ],
)
def test_an_exported_layer_without_metadata(layer, tmp_path):
    import onnx

    model, path = Sequential([layer, GlobalMaxPool2D()], input_shape=(2, 5, 7)), tmp_path / "model.onnx"
    minidl.onnx.export(model, path)
    file = onnx.load(str(path))
    del file.metadata_props[:]
    onnx.save(file, str(path))
    imported = minidl.onnx.import_model(path)
    assert imported.layers[0].out_shape == layer.out_shape
    x = np.random.default_rng(0).standard_normal((3, 2, 5, 7)).astype("float32")
    np.testing.assert_allclose(imported.predict(x), model.predict(x), 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("axes", "given"), [([2, 3], "scales"), ([3, 2], "scales"), ([-1], "scales"), ([3, 2], "sizes"), ([3], "sizes")]
)
def test_scales_and_sizes_of_some_axes(axes, given, tmp_path):
    g = Graph((2, 4, 5), opset=18)
    factors = {2: 2, 3: 3, -1: 3}
    if given == "scales":
        g.append("Resize", "", g.constant([factors[axis] for axis in axes]), mode="nearest", axes=axes)
    else:
        sizes = g.integers(*(factors[axis] * (1, 2, 4, 5)[axis] for axis in axes))
        g.append("Resize", "", "", sizes, mode="nearest", axes=axes)
    check(g, tmp_path, "Upsample2D")


def test_more_scales_than_axes(tmp_path):
    g = Graph((2, 4, 5), opset=18)
    g.append("Resize", "", g.constant([2, 2, 2]), mode="nearest", axes=[2, 3])
    with pytest.raises(ValueError, match=r"expected integer scales .*, got \[2.0, 2.0\]"):
        minidl.onnx.import_model(g.save(tmp_path, out_shape=(None,)))
