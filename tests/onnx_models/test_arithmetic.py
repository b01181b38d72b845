"""Constants in sums, products, quotients and powers become layers, with onnxruntime's outputs."""

import numpy as np
import pytest
from onnx_models.graphs import Graph, check

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")

VECTOR = (12,)


def test_scales(tmp_path):
    g = Graph()
    g.append("Mul", g.constant(1 / 255)).append("Add", g.constant(-0.5)).append("Relu")
    g.add("Mul", g.constant([[[2.0]]]), g.last)
    model = check(g, tmp_path, "Rescale", "ReLU", "Rescale")
    assert (model.layers[0].scale, model.layers[0].offset) == (float(np.float32(1 / 255)), -0.5)


@pytest.mark.parametrize("shape", [(3, 8, 8), VECTOR])
def test_sub_and_div_per_channel(shape, tmp_path):
    g = Graph(shape)
    column = (shape[0], *(1,) * (len(shape) - 1))
    g.append("Sub", g.normal(*column)).append("Div", g.constant(0.5 + g.rng.random(column)))
    check(g, tmp_path, "Normalize")


def test_factor_and_offset_per_channel(tmp_path):
    g = Graph()
    model = check(g.append("Mul", g.normal(3, 1, 1)).append("Add", g.normal(3, 1, 1)), tmp_path, "Scale")
    assert model.layers[0].use_bias


@pytest.mark.parametrize("shape", [(3, 8, 8), (3, 9), VECTOR])
def test_factors_per_channel(shape, tmp_path):
    g = Graph(shape)
    column = (shape[0], *(1,) * (len(shape) - 1))
    model = check(g.append("Relu").append("Mul", g.normal(*column)), tmp_path, "ReLU", "Scale")
    assert list(model.params) == ["1.weight"]


CONSTANTS = [(1, 3, 4, 5), (4, 5), (1, 1, 1, 5), (1, 4, 1), (3, 1, 5)]


@pytest.mark.parametrize("constant", [*CONSTANTS, (3, 1, 1), (1,)], ids=str)
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
def test_constants_that_broadcast_against_an_example(op, constant, tmp_path):
    """Sums and quotients are constants, and frozen; factors are trained."""
    for first in (False, True):
        g = Graph((3, 4, 5))
        c = g.constant(g.rng.uniform(0.5, 2, constant) * g.rng.choice([-1, 1], constant))
        g.add(op, *((c, "x") if first else ("x", c)))
        model = check(g, tmp_path)
        names = ["Rescale"] * (op == "Sub" and first) + ["Reciprocal"] * (op == "Div" and first)
        found = [layer for layer in model.layers if type(layer).__name__ not in names]
        if constant in CONSTANTS:
            assert [(type(layer).__name__, layer.trainable) for layer in found] == [
                ("Scale", op == "Mul" or (op == "Div" and first))
            ]


def test_an_image_of_zeros_is_not_subtracted(tmp_path):
    g = Graph((3, 4, 5))
    check(g.append("Sub", g.constant(np.zeros((1, 3, 4, 5)))).append("Relu"), tmp_path, "ReLU")


def test_factor_and_offset_of_each_element_are_one_layer(tmp_path):
    g = Graph((3, 4, 5))
    model = check(g.append("Mul", g.normal(4, 5)).append("Add", g.normal(4, 5)), tmp_path, "Scale")
    assert model.layers[0].trainable and list(model.params) == ["0.weight", "0.bias"]
    g = Graph((3, 4, 5))
    check(g.append("Mul", g.normal(4, 5)).append("Add", g.normal(5)), tmp_path, "Scale", "Scale")


@pytest.mark.parametrize(
    ("op", "numbers", "layers"),
    [
        ("Max", [0.0], ["ReLU"]),
        ("Max", [-0.5, 0.25], ["Hardtanh"]),
        ("Min", [0.5], ["Hardtanh"]),
        ("Pow", [2], ["Square"]),
        ("Pow", [3.0], ["Parallel"]),
        ("Pow", [-4], ["Square", "Square", "Reciprocal"]),
        ("Pow", [1], []),
    ],
)
def test_bounds_and_exponents(op, numbers, layers, tmp_path):
    g = Graph((3, 4, 5))
    g.append("Tanh").append(op, *(g.constant(n, "int64" if isinstance(n, int) else None) for n in numbers))
    check(g, tmp_path, "Tanh", *layers)


@pytest.mark.parametrize("op", ["Abs", "Log", "Reciprocal", "Sqrt"])
def test_elementary_functions(op, tmp_path):
    g = Graph((3, 4, 5))
    check(g.append("Softplus").append(op), tmp_path, "Softplus", op)
