"""Layer norms of several nodes, in the forms of PyTorch and TensorFlow, and what must not be taken for one."""

import numpy as np
import pytest
from onnx_models.graphs import Graph, check, run_both

from minidl.onnx import import_model

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")

SHAPE = (6, 4, 5)
COLUMN = (6, 1, 1)


def check_unmerged(g, folder):
    """The graph is refused, or computed without a layer norm."""
    try:
        expected, found, model = run_both(g, g.save(folder))
    except ValueError:
        return
    assert "LayerNorm" not in str(model)
    np.testing.assert_allclose(found, expected, 1e-4, 1e-4)


def means(g, x, axis=1, **attributes):
    return g.add("ReduceMean", x, axes=[axis], **attributes)


def root_of_variance(g, x, mean, axis=1, square=None, eps=1e-3):
    """Adds sqrt(mean((x - mean) ** 2) + eps); returns it and the difference."""
    centred = g.add("Sub", x, mean)
    squared = square(g, centred) if square else g.add("Mul", centred, centred)
    return g.add("Sqrt", g.add("Add", means(g, squared, axis), g.constant(eps))), centred


def divided(g, x, axis=1):
    """PyTorch's form, without a scale and bias."""
    root, centred = root_of_variance(g, x, means(g, x, axis), axis)
    return g.add("Div", centred, root)


def scaled_sum(
    g, x, axis=1, scale=COLUMN, bias=COLUMN, subtracts=False, view=None, other_mean=None, swap=False, **rest
):
    """TensorFlow's form. subtracts: bias - mean * r in place of bias + (-mean) * r; view: a shape for the mean."""
    mean = means(g, x, axis)
    viewed = g.add("Reshape", mean, g.integers(*view)) if view else mean
    root, _ = root_of_variance(g, x, viewed, axis, **rest)
    factor = g.add("Reciprocal", root)
    if scale:
        factor = g.add("Mul", factor, g.normal(*scale))
    mean = other_mean or mean
    shift = g.add("Mul", mean if subtracts else g.add("Neg", mean), factor)
    if subtracts:
        shift = g.add("Sub", g.normal(*bias), shift)
    elif bias:
        shift = g.add("Add", shift, g.normal(*bias))
    scaled = g.add("Mul", factor, x) if swap else g.add("Mul", x, factor)
    return g.add("Add", shift, scaled) if swap else g.add("Add", scaled, shift)


FORMS = {
    "as TensorFlow": {},
    "a scale of four axes": {"scale": (1, 6, 1, 1), "bias": (1, 6, 1, 1)},
    "bias - mean": {"subtracts": True},
    "without a scale": {"scale": None},
    "without a bias": {"bias": None},
    "without both": {"scale": None, "bias": None},
    "one scale": {"scale": (), "bias": (1,)},
    "a view of the means": {"view": (-1, 1, 4, 5)},
    "the other order": {"swap": True},
    "eps of four axes": {"eps": [[[[1e-3]]]]},
}
OTHERS = {
    "a scale per column": {"scale": (5,)},
    "a bias per row": {"bias": (4, 1)},
    "a bias per example": {"bias": (50, 1, 1, 1)},
    "means of other rows": {"view": (-1, 1, 5, 4)},
    "rows": {"axis": 2, "scale": (1, 4, 1)},
    "rows without a scale": {"axis": 2, "scale": None, "bias": None},
    "means for two examples": {"view": (2, 1, 4, 5)},
    "columns": {"axis": -1, "scale": (5,), "bias": (5,)},
    "eps of five axes": {"eps": [[[[[1e-3]]]]]},
    "eps per channel": {"eps": np.full(COLUMN, 1e-3)},
    "an exponent of five axes": {"square": lambda g, centred: g.add("Pow", centred, g.constant([[[[[2]]]]]))},
    "a product with another difference": {
        "square": lambda g, centred: g.add("Mul", centred, g.add("Sub", "x", means(g, "x", 2)))
    },
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_over_the_channels_is_one_layer(name, tmp_path):
    g = Graph(SHAPE)
    scaled_sum(g, "x", **FORMS[name])
    (layer,) = check(g, tmp_path, "LayerNorm").layers
    assert layer.axis == "channels" and layer.eps == pytest.approx(1e-3)
    assert layer.affine == any(FORMS[name].get(key, True) is not None for key in ("scale", "bias"))


@pytest.mark.parametrize("name", OTHERS)
def test_other_shapes_are_refused(name, tmp_path):
    g = Graph(SHAPE, batch=50)
    scaled_sum(g, "x", **OTHERS[name])
    with pytest.raises(ValueError, match=r"node '\w+' \(\w+\): "):
        import_model(g.save(tmp_path))


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("form", [divided, scaled_sum])
def test_norms_of_vectors(form, axis, tmp_path):
    g = Graph((6,))
    form(g, "x", axis) if form is divided else form(g, "x", axis, scale=(1, 6), bias=(6,))
    (layer,) = check(g, tmp_path, "LayerNorm").layers
    assert layer.axis is None


def test_a_division_over_the_channels(tmp_path):
    """With a scale and bias per channel, as another exporter than PyTorch's might write it; over columns it is none."""
    g = Graph(SHAPE)
    g.add("Add", g.add("Mul", divided(g, "x"), g.normal(*COLUMN)), g.normal(1, *COLUMN))
    check(g, tmp_path, "LayerNorm")
    g = Graph(SHAPE)
    g.add("Mul", divided(g, "x"), g.normal(5))
    with pytest.raises(ValueError, match=r"expected one number per channel of \(6, 4, 5\)"):
        import_model(g.save(tmp_path))


def test_a_division_of_values_that_are_computed_twice(tmp_path):
    """As PyTorch's exporters write x.var: with a mean and a difference of its own."""
    g = Graph(SHAPE)
    g.add("Div", g.add("Sub", "x", means(g, "x")), root_of_variance(g, "x", means(g, "x"))[0])
    check(g, tmp_path, "LayerNorm")


def test_what_follows_a_norm_stays_separate(tmp_path):
    """One number in place of a vector, a second bias, the sum with x, and two scales."""
    g = Graph(SHAPE)
    g.add("Mul", divided(g, "x"), g.constant(2))
    check(g, tmp_path, "LayerNorm", "Rescale")
    g = Graph(SHAPE)
    g.add("Add", g.add("Add", scaled_sum(g, "x"), g.normal(*COLUMN)), "x")
    check(g, tmp_path, "Residual")
    g = Graph(SHAPE)
    norm = divided(g, "x")
    g.add("Add", g.add("Mul", norm, g.normal(*COLUMN)), g.add("Relu", g.add("Mul", norm, g.normal(*COLUMN))))
    check(g, tmp_path, "LayerNorm", "Residual")


@pytest.mark.parametrize("what", ["two scales", "x as a scale", "x as a bias"])
def test_other_factors_and_biases_are_refused(what, tmp_path):
    g = Graph(SHAPE)
    mean = means(g, "x")
    factor = g.add("Reciprocal", root_of_variance(g, "x", mean)[0])
    if what == "two scales":
        factor = g.add("Mul", g.add("Mul", factor, g.normal(*COLUMN)), g.normal(*COLUMN))
    elif what == "x as a scale":
        factor = g.add("Mul", factor, g.add("Div", "x", g.constant(2)))
    total = g.add("Mul", "x", factor)
    total = g.add("Add", total, "x") if what == "x as a bias" else total
    g.add("Add", total, g.add("Mul", g.add("Neg", mean), factor))
    check_unmerged(g, tmp_path)


def test_channels_last(tmp_path):
    g = Graph(SHAPE)
    y = g.add("Transpose", "x", perm=[0, 2, 3, 1])
    y = scaled_sum(g, scaled_sum(g, y, -1, scale=(6,), bias=(1, 1, 1, 6)), 3, scale=(1, 6), bias=(6,))
    g.add("Transpose", y, perm=[0, 3, 1, 2])
    check(g, tmp_path, "LayerNorm", "LayerNorm")
    g = Graph(SHAPE)
    y = scaled_sum(g, g.add("Transpose", "x", perm=[0, 2, 3, 1]), 2, scale=(5, 1), bias=None)
    g.add("Transpose", y, perm=[0, 3, 1, 2])
    with pytest.raises(ValueError, match="expected a norm over axis 1"):
        import_model(g.save(tmp_path))


# ---- near misses: one node differs


def test_a_square_is_a_product_or_a_power(tmp_path):
    g = Graph(SHAPE)
    scaled_sum(g, "x", square=lambda g, centred: g.add("Pow", centred, g.constant(2)))
    check(g, tmp_path, "LayerNorm")


@pytest.mark.parametrize("other", ["power", "product"])
def test_another_power_is_refused(tmp_path, other):
    g = Graph(SHAPE)
    inputs = {"power": ("Pow", g.constant(3)), "product": ("Mul", "x")}
    scaled_sum(g, "x", square=lambda g, centred: g.add(inputs[other][0], centred, inputs[other][1]))
    check_unmerged(g, tmp_path)


@pytest.mark.parametrize("op", ["Relu", "Neg"])
def test_another_mean_or_input_is_refused(op, tmp_path):
    """Of the mean that is subtracted twice, or of x."""
    for change in ("mean", "mean of others", "factor", "x", "divided x"):
        g = Graph(SHAPE)
        other = g.add(op, "x")
        if change == "mean":
            scaled_sum(g, "x", other_mean=means(g, other))
        elif change == "divided x":
            g.add("Div", "x", root_of_variance(g, "x", means(g, "x"))[0])
        elif change == "mean of others":
            root, centred = root_of_variance(g, "x", means(g, other))
            g.add("Div", centred, root)
        else:
            mean = means(g, "x")
            factor = g.add("Reciprocal", root_of_variance(g, "x", mean)[0])
            second = g.add("Mul", factor, g.constant(2)) if change == "factor" else factor
            scaled = g.add("Mul", other if change == "x" else "x", factor)
            g.add("Add", scaled, g.add("Mul", g.add("Neg", mean), second))
        check_unmerged(g, tmp_path)


@pytest.mark.parametrize(
    ("first", "second"), [([1], [2]), ([2], [1]), ([1, 2, 3], [1, 2, 3]), ([1, -1], [1, -1])], ids=str
)
def test_means_over_other_axes_are_refused(tmp_path, first, second):
    g = Graph(SHAPE)
    centred = g.add("Sub", "x", g.add("ReduceMean", "x", axes=first))
    variance = g.add("ReduceMean", g.add("Mul", centred, centred), axes=second)
    g.add("Div", centred, g.add("Sqrt", g.add("Add", variance, g.constant(1e-3))))
    check_unmerged(g, tmp_path)


def test_means_without_their_axis_are_refused(tmp_path):
    """They broadcast over the examples of a batch as large as the channels."""
    g = Graph(SHAPE, batch=6)
    centred = g.add("Sub", "x", means(g, "x", keepdims=0))
    variance = means(g, g.add("Mul", centred, centred), keepdims=0)
    g.add("Div", centred, g.add("Sqrt", g.add("Add", variance, g.constant(1e-3))))
    check_unmerged(g, tmp_path)


def test_a_view_of_means_in_channels_last_is_refused(tmp_path):
    """All sizes are equal: the means are subtracted from other pixels."""
    g = Graph((4, 4, 4))
    y = scaled_sum(g, g.add("Transpose", "x", perm=[0, 2, 3, 1]), 3, scale=(4,), bias=(4,), view=(-1, 1, 4, 4))
    g.add("Transpose", y, perm=[0, 3, 1, 2])
    with pytest.raises(ValueError, match="expected a norm over axis 1"):
        import_model(g.save(tmp_path))


def test_a_layer_normalization_of_all_axes_is_none_of_the_channels(tmp_path):
    g = Graph((6, 4, 5))
    y = g.add("Transpose", "x", perm=[0, 1, 3, 2])
    g.add("Transpose", g.add("LayerNormalization", y, g.normal(6, 1, 1), axis=1), perm=[0, 1, 3, 2])
    with pytest.raises(ValueError, match=r"\(LayerNormalization\): expected shape \(6, 5, 4\) for input 1"):
        import_model(g.save(tmp_path))


def test_a_difference_in_the_wrong_order_is_refused(tmp_path):
    g = Graph(SHAPE)
    mean = means(g, "x")
    factor = g.add("Reciprocal", root_of_variance(g, "x", mean)[0])
    shift = g.add("Sub", g.add("Mul", mean, factor), g.normal(*COLUMN))
    g.add("Add", g.add("Mul", "x", factor), shift)
    check_unmerged(g, tmp_path)


@pytest.mark.parametrize("form", ["PyTorch", "TensorFlow"])
def test_a_norm_whose_inner_values_are_used_elsewhere_is_refused(form, tmp_path):
    g = Graph(SHAPE)
    if form == "PyTorch":
        root, centred = root_of_variance(g, "x", means(g, "x"))
        g.add("Add", g.add("Div", centred, root), centred)
    else:
        mean = means(g, "x")
        factor = g.add("Reciprocal", root_of_variance(g, "x", mean)[0])
        total = g.add("Add", g.add("Mul", "x", factor), g.add("Mul", g.add("Neg", mean), factor))
        g.add("Add", total, factor)
    check_unmerged(g, tmp_path)


def test_a_standardized_weight_is_folded(tmp_path):
    """The same nodes over a constant are none of the graph's values."""
    g = Graph((6, 4, 5))
    g.add("Conv", "x", divided(g, g.normal(3, 6, 1, 1)))
    check(g, tmp_path, "Conv2D")
