"""What stands in the way of a graph is told as a whole; what its training would lose is told in a warning."""

import warnings

import numpy as np
import pytest
from exchange.graphs import Graph, check

from minidl.onnx import import_model

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")


def refusal(graph, folder, **options):
    with pytest.raises(ValueError) as caught:
        import_model(graph.save(folder, **options))
    return str(caught.value)


# ---- everything at once
def test_all_operators_without_a_layer_are_told_at_once(tmp_path):
    g = Graph((3, 8, 8))
    g.chain("Relu").chain("Softsign").chain("Conv", g.normal(4, 3, 3, 3)).chain("Softsign")
    g.chain("Transpose", perm=[0, 2, 3, 1]).chain("Abs")
    g.add("Mystery", g.last, domain="com.example")
    said = refusal(g, tmp_path)
    assert "node 'Softsign_1' (Softsign): no layer of minidl does that. Operators in this graph" in said
    for told in ("Softsign (2 times, first node 'Softsign_1'", "Transpose (1 times", "Abs (1", "com.example.Mystery"):
        assert told in said
    assert "Relu" not in said and "Conv" not in said


def test_arithmetic_of_shapes_does_not_hide_the_obstacle(tmp_path):
    """ShuffleNet as torchscript writes it: half of the channels, from Shape, Gather and Div, in front of a Slice."""
    g = Graph((4, 8, 8))
    channels = g.add("Gather", g.add("Shape", "x"), g.whole(1))
    half = g.add("Div", channels, g.whole(2))
    g.add("Slice", "x", g.whole(0), half, g.whole(1))
    g.chain("Relu")
    said = refusal(g, tmp_path)
    assert "Slice (1 times, first node 'Slice_3'" in said and "Gather" not in said.partition("Operators")[2]


# ---- messages that say the way out
def test_external_data_says_how_to_export(tmp_path):
    import onnx

    g = Graph().chain("Relu")
    g.chain("Conv", g.normal(4, 3, 3, 3))
    path = tmp_path / "external.onnx"
    options = {"save_as_external_data": True, "size_threshold": 0, "convert_attribute": False}
    onnx.save(g.model(), path, **options)
    with pytest.raises(ValueError, match=r"external data\): export with .*external_data=False.*onnx\.save\(onnx\.load"):
        import_model(path)
    onnx.save(onnx.load(path), tmp_path / "whole.onnx")
    import_model(tmp_path / "whole.onnx")


def test_a_domain_that_stands_twice_with_one_version_is_one(tmp_path):
    g = Graph(opset=22).chain("Relu")
    model = g.model()
    model.opset_import.add(domain="ai.onnx", version=22)
    (tmp_path / "twice.onnx").write_bytes(model.SerializeToString())
    import_model(tmp_path / "twice.onnx")
    model.opset_import.add(domain="", version=21)
    (tmp_path / "two.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match=r"expected one opset of ONNX, from 11 to 28, got \[21, 22\]"):
        import_model(tmp_path / "two.onnx")


# ---- the batch in the sizes of a Resize
@pytest.mark.parametrize("batch", ["batch", 4])
def test_a_resize_to_one_example_is_refused(batch, tmp_path):
    g = Graph((2, 3, 3), batch=batch).chain("Resize", "", "", "c0", mode="nearest")
    g.whole(1, 2, 6, 6)
    said = refusal(g, tmp_path)
    assert "expected sizes of images that keep the batch, got [1, 2, 6, 6]; write scales instead" in said


@pytest.mark.parametrize("batch", [1, 4])
def test_a_resize_to_the_batch_of_the_file(batch, tmp_path):
    g = Graph((2, 3, 3), batch=batch).chain("Resize", "", "", "c0", mode="nearest", nearest_mode="floor")
    g.nodes[0].attribute.add(name="coordinate_transformation_mode", type=3, s=b"asymmetric")
    g.whole(batch, 2, 6, 6)
    check(g, tmp_path, "Upsample2D")


# ---- parameters that are one
def shared_weight(g, way):
    weight = g.normal(3, 3, 3, 3)
    g.chain("Conv", weight, pads=[1, 1, 1, 1]).chain("Relu")
    g.chain("Conv", g.add("Identity", weight) if way == "through Identity" else weight, pads=[1, 1, 1, 1])
    if way == "through Identity":
        g.nodes[-1].input[0], g.last = "v1", g.nodes[-1].output[0]
    return g


@pytest.mark.parametrize("way", ["as it is", "through Identity"])
def test_a_weight_that_two_nodes_read_is_told(way, tmp_path):
    path = shared_weight(Graph(), way).save(tmp_path)
    with pytest.warns(UserWarning, match=r"'Conv_0' \(Conv\) and node 'Conv_\d' \(Conv\) share 'c0'.*copies part"):
        model = import_model(path)
    first, second = (model.params[f"{i}.weight"].value for i in (0, 2))
    assert np.array_equal(first, second)


def test_a_dense_weight_that_two_nodes_read_is_told(tmp_path):
    g = Graph((6,))
    weight = g.normal(6, 6)
    g.chain("MatMul", weight).chain("Relu").chain("Gemm", g.add("Transpose", weight, perm=[1, 0]), transB=1)
    g.nodes[-1].input[0] = g.nodes[1].output[0]
    with pytest.warns(UserWarning, match="share 'c0'"):
        import_model(g.save(tmp_path))


def test_what_exporters_share_by_themselves_is_not_told(tmp_path):
    """Biases of zeros, gains of ones, statistics that began alike, numbers alone, and what no parameter is made of."""
    g = Graph()
    zeros, ones = g.constant(np.zeros(3)), g.constant(np.ones(3))
    for _ in range(2):
        g.chain("Conv", g.normal(3, 3, 3, 3), zeros, pads=[1, 1, 1, 1])
        g.chain("BatchNormalization", ones, zeros, zeros, ones).chain("Mul", g.constant(0.5)).chain("Relu")
    shift = g.normal(3, 1, 1)
    g.chain("Add", shift)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        import_model(g.save(tmp_path))
