"""Pads before max pools, which are the pool's own where the result is the same."""

import numpy as np
import pytest
from onnx_models.graphs import Graph, check

from minidl.onnx import import_model

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")

LOWEST = np.finfo("float32").min


def padded_pool(g, x, around, value=-np.inf, **pool):
    sides = (0, 0, *around[: len(around) // 2], 0, 0, *around[len(around) // 2 :])
    y = g.add("Pad", x, g.integers(*sides), *([] if value is None else [g.constant(value)]))
    return g.add("MaxPool", y, **{"kernel_shape": [3, 3], "strides": [2, 2], **pool})


@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (0, 0, 1, 1), (1, 0, 0, 1), (0, 1, 0, 0), (0, 0, 0, 0)])
@pytest.mark.parametrize("value", [-np.inf, LOWEST])
def test_minus_infinity_is_the_padding_of_the_pool(pads, value, tmp_path):
    g = Graph((3, 7, 8))
    padded_pool(g, "x", pads, value)
    check(g, tmp_path, "MaxPool2D")


def test_pads_of_both_nodes_are_added(tmp_path):
    g = Graph((3, 9, 8))
    padded_pool(g, "x", (1, 0, 1, 2), kernel_shape=[5, 4], pads=[1, 1, 0, 0])
    check(g, tmp_path, "MaxPool2D")
    g = Graph((3, 9))
    padded_pool(g, "x", (1, 0), kernel_shape=[3], strides=[2])
    check(g, tmp_path, "MaxPool1D")


@pytest.mark.parametrize("value", [None, 0.0, -0.0])
def test_zeros_after_an_activation_without_negative_numbers(value, tmp_path):
    g = Graph((3, 8, 8))
    padded_pool(g, g.add("Relu", "x"), (0, 0, 1, 1), value)
    check(g, tmp_path, "ReLU", "MaxPool2D")
    g = Graph((3, 8, 8))  # onnxruntime 1.31.1 merges zeros after any operator, unless its optimizations are off
    padded_pool(g, g.add("Tanh", "x"), (0, 0, 1, 1), value)
    model = import_model(g.save(tmp_path))
    assert [type(layer).__name__ for layer in model.layers] == ["Tanh", "Pad2D", "MaxPool2D"]
    assert model.predict(np.full((1, 3, 8, 8), -1.0, "f4"))[..., -1, -1].tolist() == [[0.0] * 3]


def test_channels_last(tmp_path):
    g = Graph((8, 8, 3))
    y = g.add("Pad", g.add("Relu", "x"), g.integers(0, 0, 0, 0, 0, 1, 1, 0), g.constant(-np.inf))
    y = g.add("MaxPool", g.add("Transpose", y, perm=[0, 3, 1, 2]), kernel_shape=[3, 3], strides=[2, 2])
    g.add("Transpose", y, perm=[0, 2, 3, 1])
    check(g, tmp_path, "Permute", "ReLU", "MaxPool2D", "Permute")


@pytest.mark.parametrize(
    ("value", "pool", "layers"),
    [
        (0.5, {}, ["Pad2D", "MaxPool2D"]),
        (LOWEST, {"pads": [1, 1, 1, 1]}, ["Pad2D", "MaxPool2D"]),  # more than half the window
        (LOWEST, {"kernel_shape": [1, 3], "pads": [0, 0, 0, 0]}, ["Pad2D", "MaxPool2D"]),
        (LOWEST, {"auto_pad": "SAME_UPPER"}, ["Pad2D", "MaxPool2D"]),
    ],
)
def test_other_pads_stay(value, pool, layers, tmp_path):
    g = Graph((3, 8, 8))
    padded_pool(g, "x", (1, 1, 1, 1), value, **pool)
    check(g, tmp_path, *layers)


def test_a_pad_that_others_read_stays(tmp_path):
    g = Graph((3, 8, 8))
    y = g.add("Pad", "x", g.integers(0, 0, 1, 1, 0, 0, 1, 1), g.constant(LOWEST))
    g.add(
        "Concat",
        g.add("MaxPool", y, kernel_shape=[3, 3]),
        g.add("AveragePool", g.add("Relu", y), kernel_shape=[3, 3]),
        axis=1,
    )
    check(g, tmp_path, "Parallel")


@pytest.mark.parametrize(
    ("pads", "pool"), [((2, 2, 2, 2), {}), ((1, 1, 1, 1), {"pads": [1, 1, 1, 1]}), ((0, 0, 1, 1), {"ceil_mode": 1})]
)
def test_infinite_pads_that_no_pool_has_are_refused(pads, pool, tmp_path):
    g = Graph((3, 9, 9))
    padded_pool(g, "x", pads, **pool)
    message = r"\(Pad\): expected a finite value, or -inf before a MaxPool, up to half its window, got -inf"
    with pytest.raises(ValueError, match=message):
        import_model(g.save(tmp_path))
