"""Each operator beside NumPy, with and without its attributes; and the NumPy beside ONNX's own evaluator."""

import numpy as np
import pytest
from onnx_models.operator_cases import CASES, REFUSED, STATISTICS, VECTOR, Case

from minidl.onnx.graph import Graph, Node, Value
from minidl.onnx.importing import to_model
from minidl.onnx.model_file import to_bytes
from minidl.onnx.operators import READ

# Operators without attributes, constants or an order, and those that leave examples as they are.
PLAIN = {"Cast", "Concat", "Dropout", "Identity", "Relu", "Sigmoid", "Sum", "Tanh"}

# ONNX's evaluator takes some operators as they are in later opsets, and knows no groups of transposed convolutions.
WRONG_IN_REFERENCE = {"Softmax before 13", "BatchNormalization 11", "ConvTranspose group"}


def close(found, expected):
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, 1e-6, 1e-6 * float(np.abs(expected).max()))


@pytest.mark.parametrize("name", CASES)
def test_beside_numpy(name):
    case = CASES[name]
    close(to_model(case.graph(), None).predict(case.x()), case.y())


def check_numpy(case, dtype, run):
    y = run(to_bytes(case.graph(dtype)), {"x": case.x().astype(dtype)})
    assert y.shape == case.y().shape
    np.testing.assert_allclose(y, case.y(), 1e-4, 2e-5 * float(np.abs(y).max()))


@pytest.mark.oracle("onnx")
@pytest.mark.parametrize("name", sorted(set(CASES) - WRONG_IN_REFERENCE))
def test_numpy_beside_onnx(name):
    from onnx.reference import ReferenceEvaluator

    dtype = "float32" if name.startswith("Group") else "float64"  # by default its means are float32
    check_numpy(CASES[name], dtype, lambda content, inputs: ReferenceEvaluator(content).run(None, inputs)[0])


@pytest.mark.oracle("onnx", "onnxruntime")
@pytest.mark.parametrize("name", CASES)
def test_numpy_beside_onnxruntime(name):
    from onnxruntime import InferenceSession

    def run(content, inputs):
        return InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, inputs)[0]

    check_numpy(CASES[name], "float32", run)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    case, told = REFUSED[name]
    with pytest.raises(ValueError) as error:
        to_model(case.graph(), None)
    assert f"node 'node' ({case.op}): " in str(error.value) and told in str(error.value)


def test_all_operators_are_in_the_table():
    assert {case.op for case in CASES.values()} | PLAIN == set(READ)


@pytest.mark.parametrize(
    ("case", "argument", "value"),
    [
        (Case("BatchNormalization", None, STATISTICS), "momentum", 0.1),
        (Case("BatchNormalization", None, STATISTICS, {"momentum": 0.7}), "momentum", 0.3),
        (Case("BatchNormalization", None, STATISTICS), "eps", 1e-5),
        (Case("Dropout", None, (), shape=VECTOR, opset=11), "rate", 0.5),
        (Case("Dropout", None, (), {"ratio": 0.2}, shape=VECTOR, opset=11), "rate", 0.2),
        (Case("Dropout", None, (), shape=VECTOR), "rate", 0.5),
        (Case("Dropout", None, (np.array(0.2),), shape=VECTOR), "rate", 0.2),
        (Case("Dropout", None, (None, np.array(0)), shape=VECTOR), "rate", 0.5),
    ],
)
def test_what_matters_in_training_alone(case, argument, value):
    (layer,) = to_model(case.graph(), None).layers
    assert getattr(layer, argument) == value


def product(**attributes):
    """x * HardSigmoid(x)."""
    gate, node = Node("HardSigmoid", "gate", ["x"], ["g"], attributes), Node("Mul", "product", ["x", "g"], ["y"])
    return Graph([gate, node], {}, [Value("x", "float64", ["N", 3])], [Value("y", "float64", None)])


def test_a_product_that_is_hardswish():
    """The default of beta is that of Hardswish, that of alpha is not."""
    x = np.linspace(-5, 5, 30).reshape(10, 3)
    for attributes in ({"alpha": 1 / 6}, {"alpha": 1 / 6, "beta": 0.5}):
        close(to_model(product(**attributes), None).predict(x), x * np.clip(x / 6 + 0.5, 0, 1))
    for attributes in ({}, {"beta": 0.5}, {"alpha": 1 / 6, "beta": 0.4}):
        with pytest.raises(ValueError, match=r"node 'product' \(Mul\): expected branches that join"):
            to_model(product(**attributes), None)
