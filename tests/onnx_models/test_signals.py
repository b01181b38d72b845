"""Graphs of signals, (channels, length), from other programs: the imported model agrees with onnxruntime."""

import pytest
from onnx_models.graphs import Graph, check

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")


@pytest.mark.parametrize(
    ("attributes", "arguments"),
    [
        ({}, "filters=4, kernel_size=3, padding=0"),
        ({"pads": [1, 1], "strides": [2]}, "filters=4, kernel_size=3, stride=2, padding=1"),
        ({"pads": [4, 0], "dilations": [2]}, "filters=4, kernel_size=3, padding='causal', dilation=2"),
        ({"pads": [2, 1]}, "filters=4, kernel_size=3, padding=(2, 1)"),
        ({"pads": [0, 1], "strides": [2]}, "filters=4, kernel_size=3, stride=2, padding='same'"),
        ({"auto_pad": "SAME_UPPER", "strides": [2]}, "filters=4, kernel_size=3, stride=2, padding='same'"),
        ({"auto_pad": "SAME_LOWER", "strides": [2]}, "filters=4, kernel_size=3, stride=2, padding=(1, 0)"),
    ],
)
def test_conv_of_signals(attributes, arguments, tmp_path):
    g = Graph((3, 16))
    model = check(g.append("Conv", g.normal(4, 3, 3), g.normal(4), **attributes), tmp_path, "Conv1D")
    assert repr(model.layers[0]) == f"Conv1D({arguments})"


def test_a_net_of_signals(tmp_path):
    """As PyTorch writes Conv1d, pools, ConvTranspose1d and a maximum over time."""
    g = Graph((4, 32))
    g.append("Conv", g.normal(8, 1, 3), g.normal(8), group=4, pads=[1, 1]).append("Relu")
    g.append("MaxPool", kernel_shape=[3], strides=[2], pads=[1, 1]).append("Conv", g.normal(6, 8, 1))
    g.append("AveragePool", kernel_shape=[2], strides=[2], pads=[0, 1], count_include_pad=1)
    g.append("ConvTranspose", g.normal(6, 5, 4), strides=[2], pads=[1, 2], output_padding=[1])
    g.append("GlobalMaxPool").append("Flatten").append("Gemm", g.normal(5, 3))
    layers = [
        "DepthwiseConv1D",
        "ReLU",
        "MaxPool1D",
        "Conv1D",
        "AvgPool1D",
        "ConvTranspose1D",
        "GlobalMaxPool1D",
        "Dense",
    ]
    check(g, tmp_path, *layers)


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceMax"])
def test_reductions_of_signals(op, tmp_path):
    layer = "GlobalAvgPool1D" if op == "ReduceMean" else "GlobalMaxPool1D"
    check(Graph((4, 32), opset=13).append(op, axes=[2], keepdims=0), tmp_path, layer)
    check(Graph((4, 32), opset=13).append(op, axes=[-1]), tmp_path, layer, "Reshape")
