"""Each operator against NumPy, with and without its attributes; and the NumPy code against ONNX's evaluator."""

import numpy as np
import pytest
from onnx_models.operator_case import VECTOR, Case
from onnx_models.operator_cases import CASES, STATISTICS
from onnx_models.unsupported_cases import UNSUPPORTED

from minidl.onnx.file.model_file import to_bytes
from minidl.onnx.graph import Graph, Node, ValueInfo
from minidl.onnx.importing import build_model
from minidl.onnx.operators import FAMILIES, READ_FUNCTIONS

# Operators without attributes, constants or an order of inputs, and identities.
WITHOUT_CASES = {"Cast", "Concat", "Dropout", "Gather", "Identity", "Relu", "Sigmoid", "Sum", "Tanh"}

# ONNX's evaluator uses later opsets for some operators, reads beyond the channels in LRN, and does not implement
# grouped transposed convolutions.
WRONG_IN_REFERENCE = {
    "Softmax before 13",
    "Softmax of images before 13",
    "LogSoftmax before 13",
    "LogSoftmax of images before 13",
    "LRN",
    "LRN all",
    "BatchNormalization 11",
    "ConvTranspose group",
}


def test_families_do_not_overlap():
    """Each operator and layer is in one family: of two functions one would never be called."""
    for table in ("READ_FUNCTIONS", "WRITE_FUNCTIONS"):
        entries = [entry for family in FAMILIES for entry in getattr(family, table)]
        assert len(entries) == len(set(entries))


def check_close(found, expected):
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, 1e-6, 1e-6 * float(np.nanmax(np.abs(expected))))


@pytest.mark.parametrize("name", CASES)
def test_import_matches_numpy(name):
    case = CASES[name]
    check_close(build_model(case.graph(), None).predict(case.x()), case.y())


def check_numpy(case, dtype, run):
    y = run(to_bytes(case.graph(dtype)), {"x": case.x().astype(dtype)})
    assert y.shape == case.y().shape
    np.testing.assert_allclose(y, case.y(), 1e-4, 2e-5 * float(np.nanmax(np.abs(y))))


@pytest.mark.oracle("onnx")
@pytest.mark.parametrize("name", sorted(set(CASES) - WRONG_IN_REFERENCE))
def test_numpy_matches_onnx(name):
    from onnx.reference import ReferenceEvaluator

    dtype = "float32" if name.startswith("Group") else "float64"  # the default precision of its means
    with np.errstate(invalid="ignore"):
        check_numpy(CASES[name], dtype, lambda content, inputs: ReferenceEvaluator(content).run(None, inputs)[0])


@pytest.mark.oracle("onnx", "onnxruntime")
@pytest.mark.parametrize("name", CASES)
def test_numpy_matches_onnxruntime(name):
    from onnxruntime import InferenceSession

    def run(content, inputs):
        return InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, inputs)[0]

    check_numpy(CASES[name], "float32", run)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_operands_are_refused(name):
    case, message = UNSUPPORTED[name]
    with pytest.raises(ValueError) as error:
        build_model(case.graph(), None)
    assert f"node 'node' ({case.op}): " in str(error.value) and message in str(error.value)


def test_all_operators_have_a_case():
    assert {case.op for case in CASES.values()} | WITHOUT_CASES == set(READ_FUNCTIONS)


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
def test_training_attributes_are_imported(case, argument, value):
    (layer,) = build_model(case.graph(), None).layers
    assert getattr(layer, argument) == value


def gated_graph(**attributes):
    """Returns the graph of x * HardSigmoid(x)."""
    gate, node = Node("HardSigmoid", "gate", ["x"], ["g"], attributes), Node("Mul", "product", ["x", "g"], ["y"])
    return Graph([gate, node], {}, [ValueInfo("x", "float64", ["N", 3])], [ValueInfo("y", "float64", None)])


def test_hardswish_as_a_product():
    """The default of beta is that of Hardswish, the default of alpha is not."""
    x = np.linspace(-5, 5, 30).reshape(10, 3)
    for attributes in ({"alpha": 1 / 6}, {"alpha": 1 / 6, "beta": 0.5}):
        check_close(build_model(gated_graph(**attributes), None).predict(x), x * np.clip(x / 6 + 0.5, 0, 1))
    for attributes in ({}, {"beta": 0.5}, {"alpha": 1 / 6, "beta": 0.4}):
        (product,) = build_model(gated_graph(**attributes), None).layers
        assert product.join == "multiply"
