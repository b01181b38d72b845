"""What a node means that says no more than it must: ONNX's defaults, and both orders of what has one."""

import numpy as np
import pytest
from exchange.graphs import Graph, check

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")

SMALL = 1e-4  # of inputs whose variance is no more than an epsilon


def small(g):
    return g.chain("Mul", g.constant(SMALL**0.5))


def batch_norm(g):
    variance = g.constant(np.full(3, 1e-5))
    return g.chain("BatchNormalization", g.normal(3), g.normal(3), g.normal(3), variance)


NODES = {
    "BatchNormalization's epsilon": batch_norm,
    "Elu's alpha": lambda g: g.chain("Elu"),
    "LeakyRelu's alpha": lambda g: g.chain("LeakyRelu"),
    "Gelu's approximate": lambda g: g.chain("Gelu"),
    "InstanceNormalization's epsilon": lambda g: small(g).chain("InstanceNormalization", g.normal(3), g.normal(3)),
    "GroupNormalization's epsilon": lambda g: small(g).chain(
        "GroupNormalization", g.normal(3), g.normal(3), num_groups=3
    ),
    "MaxPool's strides and pads": lambda g: g.chain("MaxPool", kernel_shape=[3, 2]),
    "AveragePool's strides and pads": lambda g: g.chain("AveragePool", kernel_shape=[3, 2]),
    "AveragePool's count_include_pad": lambda g: g.chain("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "AveragePool's ceil_mode": lambda g: g.chain("AveragePool", kernel_shape=[3, 3], strides=[2, 2]),
    "Conv's strides, pads, dilations, group": lambda g: g.chain("Conv", g.normal(4, 3, 3, 2)),
    "ConvTranspose's strides and the rest": lambda g: g.chain("ConvTranspose", g.normal(3, 4, 3, 2)),
    "ConvTranspose's output_padding": lambda g: g.chain("ConvTranspose", g.normal(3, 4, 3, 3), strides=[2, 2]),
    "Pad's value": lambda g: g.chain("Add", g.constant(1.0)).chain("Pad", g.whole(0, 0, 1, 0, 0, 0, 0, 1)),
    "Flatten's axis": lambda g: g.chain("Flatten"),
    "Gemm's transB": lambda g: g.chain("Flatten").chain("Gemm", g.normal(192, 4), g.normal(4)),
    "Gemm without a bias": lambda g: g.chain("Flatten").chain("Gemm", g.normal(192, 4)),
    "Softmax's axis": lambda g: g.chain("Flatten").chain("Gemm", g.normal(192, 4)).chain("Softmax"),
    "LayerNormalization's epsilon": lambda g: small(g).chain("Flatten").chain(
        "LayerNormalization", g.normal(192), g.normal(192)
    ),
    "x - c": lambda g: g.chain("Sub", g.constant(3.0)),
    "x / c": lambda g: g.chain("Div", g.constant(4.0)),
    "x + c": lambda g: g.chain("Add", g.constant(3.0)),
    "c * x": lambda g: (g.add("Mul", g.constant(3.0), g.last), g)[1],
}


@pytest.mark.parametrize("build", NODES.values(), ids=NODES)
def test_it_computes_what_onnxruntime_does(build, tmp_path):
    check(build(Graph((3, 8, 8), opset=21)), tmp_path, out_shape=("batch", 3, 8, 8))


@pytest.mark.parametrize("op", ["Sub", "Div"])
@pytest.mark.parametrize("shape", [(), (3, 1, 1)])
def test_the_other_order_is_refused(op, shape, tmp_path):
    g = Graph()
    g.add(op, g.normal(*shape), "x")
    with pytest.raises(ValueError, match=rf"'{op}_0' \({op}\): expected what is computed from the examples as its"):
        check(g, tmp_path)


@pytest.mark.parametrize(("ratio", "expected"), [(None, 0.5), (0.25, 0.25)])
def test_dropout(ratio, expected, tmp_path):
    """What inference does not show: the rate of training on."""
    for opset in (11, 17):
        g = Graph(opset=opset).chain("Relu")
        if opset < 12:
            g.chain("Dropout", **({} if ratio is None else {"ratio": ratio}))
        else:
            g.chain("Dropout", *([] if ratio is None else [g.constant(ratio, "float32")]))
        model = check(g, tmp_path, "ReLU", "Dropout")
        assert model.layers[1].rate == expected


def test_softmax_before_opset_13(tmp_path):
    check(Graph((4, 1, 1), opset=11).chain("Softmax"), tmp_path, "Softmax")


def test_what_training_on_would_use_of_batch_norm(tmp_path):
    layer = check(batch_norm(Graph()), tmp_path, "BatchNorm2D").layers[0]
    assert (layer.eps, layer.momentum) == (1e-5, pytest.approx(0.1))
