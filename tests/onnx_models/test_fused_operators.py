"""Operators of onnxruntime's optimizer become what they were made of, with its outputs; other forms are refused."""

import pytest
from onnx_models.graphs import Graph, check

from minidl.onnx import import_model

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")

MICROSOFT = {"domain": "com.microsoft"}
ACTIVATIONS = {
    "": ([], []),
    "Clip": ([-0.5, 0.75], ["Hardtanh"]),
    "HardSigmoid": ([0.25, 0.375], ["HardSigmoid"]),
    "LeakyRelu": ([0.25], ["LeakyReLU"]),
    "Relu": ([], ["ReLU"]),
    "Sigmoid": ([], ["Sigmoid"]),
    "Tanh": ([], ["Tanh"]),
}


def fused(activation):
    given, layers = ACTIVATIONS[activation]
    attributes = {"activation": activation} if activation else {}
    return {**MICROSOFT, **attributes, **({"activation_params": given} if given else {})}, layers


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("shape", "adds"), [((3, 6, 5), False), ((3, 6, 5), True), ((3, 9), False)], ids=str)
def test_convolutions(shape, adds, activation, tmp_path):
    attributes, layers = fused(activation)
    g = Graph(shape)
    weight, pads = g.normal(3, 3, *[3] * (len(shape) - 1)), [1] * (2 * len(shape) - 2)
    g.add("FusedConv", "x", weight, g.normal(3), *["x"] * adds, pads=pads, **attributes)
    first = "Residual" if adds else f"Conv{len(shape) - 1}D"
    check(g, tmp_path, first, *layers, out_shape=(None, *shape))


def test_a_product_of_transposed_matrices(tmp_path):
    g = Graph((6,))
    g.append("FusedMatMul", g.normal(6, 4), alpha=0.5, **MICROSOFT)
    g.append("FusedMatMul", g.normal(3, 4), transB=1, **MICROSOFT)
    check(g, tmp_path, "Dense", "Rescale", "Dense", out_shape=(None, 3))


def test_a_product_and_an_activation(tmp_path):
    g = Graph((6,))
    g.append(
        "FusedGemm", g.normal(4, 6), g.normal(4), transB=1, activation="LeakyRelu", activation_alpha=0.25, **MICROSOFT
    )
    check(g, tmp_path, "Dense", "LeakyReLU", out_shape=(None, 4))


def test_standardization_as_skl2onnx_writes_it(tmp_path):
    g = Graph((3,), opset=21)
    g.append("Scaler", domain="ai.onnx.ml", offset=[0.5, -1.0, 2.0], scale=[2.0, 0.25, 4.0])
    g.append("Scaler", domain="ai.onnx.ml", offset=[1.5], scale=[0.5])
    check(g, tmp_path, "Normalize", "Scale", "Rescale", out_shape=(None, 3))


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("FusedMatMul", {"transA": 1}),
        ("FusedMatMul", {"transBatchB": 1}),
        ("FusedMatMul", {"alpha": 1}),
        ("FusedConv", {"activation": "Softmax"}),
        ("FusedConv", {"activation": "Clip"}),
        ("FusedConv", {"activation": "Relu", "activation_params": [1.0]}),
        ("FusedConv", {"activation": "LeakyRelu", "activation_params": "a"}),
        ("FusedConv", {"activation": ["Relu"]}),
        ("FusedConv", {"activation": "Relu", "activation_params": 1.0}),
        ("FusedConv", {"activation_params": [1.0, 2.0]}),
        ("FusedGemm", {"activation": "LeakyRelu"}),
        ("FusedPad", {}),
    ],
)
def test_other_forms_are_refused(op, attributes, tmp_path):
    g = Graph((3, 3, 3) if op == "FusedConv" else (3,))
    g.append(op, g.normal(3, 3, 3, 3) if op == "FusedConv" else g.normal(3, 3), **attributes, **MICROSOFT)
    with pytest.raises(ValueError, match=rf"\(com.microsoft.{op}\): no layer of minidl does that: export it without"):
        import_model(g.save(tmp_path, out_shape=(None, 3)))


def test_a_batch_norm_with_epsilon_0(tmp_path):
    for variance in (1.0, 0.0):
        g = Graph((2, 3, 3))
        g.append("BatchNormalization", g.normal(2), g.normal(2), g.normal(2), g.constant([0.5, variance]), epsilon=0.0)
        if variance:
            check(g, tmp_path, "BatchNorm2D")
        else:
            with pytest.raises(ValueError, match="expected variances above 0 with epsilon=0"):
                import_model(g.save(tmp_path))
