"""Activations of several nodes: every form that exporters write, what must not be taken for one, and shared values."""

import math
import time

import numpy as np
import pytest
from onnx_models.graphs import Graph, check, run_both

from minidl import layers as ours
from minidl.onnx import import_model
from minidl.onnx.file.model_file import from_bytes
from minidl.onnx.importing import build_model
from minidl.onnx.passes.activation_patterns import fuse_activations
from minidl.onnx.passes.expressions import MAX_DEPTH

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")


def hardswish(g, x, c=3, high=6, six=6):
    return g.add("Clip", g.add("Add", x, g.constant(c)), g.constant(0), g.constant(high)), g.constant(six)


def hardswish_of_quotient(g, x):
    clipped, six = hardswish(g, x)
    return g.add("Mul", x, g.add("Div", clipped, six))


def hardswish_times_sixth(g, x):
    clipped, _ = hardswish(g, x)
    return g.add("Mul", g.add("Mul", g.constant(1 / 6), clipped), x)


def hardswish_divided(g, x, **numbers):
    clipped, six = hardswish(g, x, **numbers)
    return g.add("Div", g.add("Mul", x, clipped), six)


def gelu(g, x, half_first=False, factor=1.0):
    one = g.add("Add", g.add("Erf", g.add("Mul", g.constant(factor * 0.5**0.5), x)), g.constant(1))
    if half_first:
        return g.add("Mul", g.add("Mul", x, g.constant(0.5)), one)
    return g.add("Mul", g.constant(0.5), g.add("Mul", one, x))


def gelu_tanh(g, x, cube=None, cubic=0.044715):
    cube = cube or g.add("Mul", x, g.add("Mul", x, x))
    inner = g.add("Add", x, g.add("Mul", g.constant(cubic), cube))
    tanh = g.add("Tanh", g.add("Mul", g.constant(math.sqrt(2 / math.pi)), inner))
    return g.add("Mul", g.constant(0.5), g.add("Mul", x, g.add("Add", g.constant(1), tanh)))


def hardshrink(g, x, low=-0.3):
    above, below = g.add("Greater", x, g.constant(0.3)), g.add("Less", x, g.constant(low))
    either = g.add("Or", g.add("Cast", above, to=9), g.add("Cast", below, to=9))
    return g.add("Where", either, x, g.constant(0))


def softshrink(g, x, other=0.3):
    above = g.add("Where", g.add("Greater", x, g.constant(0.3)), g.add("Sub", x, g.constant(0.3)), g.constant(0))
    below = g.add("Where", g.add("Less", x, g.constant(-0.3)), g.add("Add", x, g.constant(other)), g.constant(0))
    return g.add("Add", above, below)


def threshold(g, x):
    return g.add("Where", g.add("Greater", x, g.constant(0.25)), x, g.constant(0.75))


def softplus(g, x, divisor=2):
    return g.add("Div", g.add("Softplus", g.add("Mul", x, g.constant(2))), g.constant(divisor))


def squareplus(g, x, b=4):
    root = g.add("Sqrt", g.add("Add", g.add("Pow", x, g.constant(2)), g.constant(b)))
    return g.add("Div", g.add("Add", x, root), g.constant(2))


FORMS = {
    "SiLU": (lambda g, x: g.add("Mul", g.add("Sigmoid", x), x), "SiLU()"),
    "Mish": (lambda g, x: g.add("Mul", x, g.add("Tanh", g.add("Softplus", x))), "Mish()"),
    "Hardswish": (lambda g, x: g.add("Mul", x, g.add("HardSigmoid", x, alpha=1 / 6)), "Hardswish()"),
    "Hardswish, divided last": (hardswish_divided, "Hardswish()"),
    "Hardswish, divided first": (hardswish_of_quotient, "Hardswish()"),
    "Hardswish, times 1/6": (hardswish_times_sixth, "Hardswish()"),
    "GELU": (gelu, "GELU()"),
    "GELU, half of x": (lambda g, x: gelu(g, x, half_first=True), "GELU()"),
    "GELU, tanh": (gelu_tanh, "GELU(approximate='tanh')"),
    "GELU, tanh and Pow": (lambda g, x: gelu_tanh(g, x, g.add("Pow", x, g.constant(3))), "GELU(approximate='tanh')"),
    "Softplus": (softplus, "Softplus(beta=2.0)"),
    "LogSigmoid": (lambda g, x: g.add("Log", g.add("Sigmoid", x)), "LogSigmoid()"),
    "Tanhshrink": (lambda g, x: g.add("Sub", x, g.add("Tanh", x)), "Tanhshrink()"),
    "Softsign": (lambda g, x: g.add("Div", x, g.add("Add", g.add("Abs", x), g.constant(1))), "Softsign()"),
    "Squareplus": (squareplus, "Squareplus()"),
    "Threshold": (threshold, "Threshold(threshold=0.25, value=0.75)"),
    "Hardshrink": (hardshrink, "Hardshrink(lambd=0.3)"),
    "Softshrink": (softshrink, "Softshrink(lambd=0.3)"),
}
OTHERS = {
    "GELU of another scale": lambda g, x: gelu(g, x, factor=1.001),
    "Hardshrink, not symmetric": lambda g, x: hardshrink(g, x, low=-0.4),
    "Softshrink, not symmetric": lambda g, x: softshrink(g, x, other=0.2),
}
PRODUCTS = {  # products, quotients and differences of branches, and no activation
    "Softsign of other constant": lambda g, x: g.add("Div", x, g.add("Add", g.add("Abs", x), g.constant(2))),
    "SiLU of another value": lambda g, x: g.add("Mul", g.add("Sigmoid", g.add("Relu", x)), x),
    "Hardswish of 2": lambda g, x: hardswish_divided(g, x, c=2),
    "Hardswish to 5": lambda g, x: hardswish_divided(g, x, high=5),
    "Hardswish by 5": lambda g, x: hardswish_divided(g, x, six=5),
    "GELU of another cubic": lambda g, x: gelu_tanh(g, x, cubic=0.0447),
    "tanh(x) - x": lambda g, x: g.add("Sub", g.add("Tanh", x), x),
    "a gate per channel": lambda g, x: g.add("Mul", x, g.add("Sigmoid", g.add("Mul", x, g.normal(3, 1, 1)))),
}


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_one_layer(name, opset, tmp_path):
    form, expected = FORMS[name]
    g = Graph(opset=opset)
    form(g, "x")
    assert str(check(g, tmp_path).layers[0]) == expected
    g = Graph(opset=opset)
    form(g, form(g, g.add("Sigmoid", "x")))  # of a value that is part of other patterns
    model = check(g, tmp_path)
    assert [str(layer) for layer in model.layers] == ["Sigmoid()", expected, expected]


@pytest.mark.parametrize("name", OTHERS)
def test_other_functions_are_refused(name):
    g = Graph()
    OTHERS[name](g, "x")
    with pytest.raises(
        ValueError, match=r"no layer of minidl does that|no container of minidl|computed from the graph"
    ):
        build_model(from_bytes(g.model(out_shape=(None,)).SerializeToString()), None)


@pytest.mark.parametrize("name", PRODUCTS)
def test_other_products_stay_branches(name, tmp_path):
    g = Graph()
    PRODUCTS[name](g, "x")
    names = {type(layer).__name__ for layer in check(g, tmp_path).layers}
    assert names & {"Parallel", "Residual"}


def test_another_divisor_stays_a_layer_of_its_own(tmp_path):
    g = Graph()
    softplus(g, "x", divisor=3)
    check(g, tmp_path, "Rescale", "Softplus", "Normalize")


def test_values_of_an_activation_may_be_used_elsewhere(tmp_path):
    g = Graph()
    sigmoid = g.add("Sigmoid", "x")
    g.add("Concat", g.add("Mul", "x", sigmoid), sigmoid, axis=1)
    (layer,) = check(g, tmp_path, "Parallel").layers
    assert [str(branch) for branch in layer.named_branches().values()] == ["(SiLU(),)", "(Sigmoid(),)"]


def test_branches_of_activations(tmp_path):
    """The sum of a residual block is no activation, whatever its branches are."""
    g = Graph()
    g.add("Add", gelu_tanh(g, g.add("Relu", "x")), hardswish_divided(g, "x"))
    check(g, tmp_path, "Residual")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arguments_are_exact(dtype, tmp_path):
    g = Graph(dtype=dtype)
    g.add("Where", g.add("LessOrEqual", "x", g.constant(0.1)), g.constant(0.3), "x")
    expected, found, model = run_both(g, g.save(tmp_path))
    assert str(model.layers[0]) == "Threshold(threshold=0.1, value=0.3)"
    np.testing.assert_array_equal(found, expected)


def test_an_activation_of_invalid_arguments_is_refused(tmp_path):
    g = Graph()
    squareplus(g, "x", b=-1)
    with pytest.raises(ValueError, match=r"Squareplus cannot take input .*b: expected at least"):
        import_model(g.save(tmp_path))


def test_long_chains_take_linear_time(tmp_path):
    """Each product doubles the factors of the one before."""
    g = Graph()
    x = "x"
    for _ in range(1000):
        x = g.add("Mul", x, x)
    assert MAX_DEPTH < 1000
    assert len(import_model(g.save(tmp_path)).layers) == 1000


def test_random_sums_take_linear_time(tmp_path):
    """Thousands of nodes, each a sum of two values before it, in seconds."""
    g = Graph((4,))
    values = [g.add("Relu", "x")]
    for i in range(4000):
        values.append(g.add("Add", values[-1], values[g.rng.integers(len(values))] if i % 3 else values[-1]))
    graph = from_bytes(g.model().SerializeToString())
    start = time.perf_counter()
    assert len(fuse_activations(graph).nodes) == 4001
    assert time.perf_counter() - start < 10


def test_constants_of_more_axes_than_the_value_are_refused(tmp_path):
    """They would give the result a further axis."""
    for axes in (2, 3):
        g = Graph((4,))
        one = g.constant(np.ones((1,) * axes))
        g.add("Flatten", g.add("Div", "x", g.add("Add", g.add("Abs", "x"), one)))
        if axes == 2:
            check(g, tmp_path, "Softsign")
        else:
            with pytest.raises(ValueError, match=r"\(Div\): expected constants of at most 2 axes, got 3"):
                import_model(g.save(tmp_path))


def test_all_layers_are_public():
    assert all(hasattr(ours, expected.partition("(")[0]) for _, expected in FORMS.values())
