"""Opsets 1 to 10: the operators have the meaning that they had then."""

from contextlib import suppress

import numpy as np
import pytest
from onnx_models.graphs import Graph, check

from minidl.onnx import import_model
from minidl.onnx.graph import ANY_BATCH

pytestmark = pytest.mark.oracle("onnx")

IMAGES, VECTORS, BATCH = (3, 4, 5), (5,), 2


class OldGraph(Graph):
    """A graph whose output has no shape: onnx infers few in old opsets."""

    def model(self, **options):
        model = super().model(**options)
        model.graph.output[0].type.tensor_type.ClearField("shape")
        return model


def ones_like(g, *shape):
    return g.constant(1 + np.arange(np.prod(shape)).reshape(shape) / 10)


def relu(g):
    return g.append("Relu", **consumed(g))


def consumed(g, *which):
    return {"consumed_inputs": list(which or (0,))} if g.opset < 6 else {}


def batch_norm(g, **attributes):
    four = [ones_like(g, g.shape[0]) for _ in range(4)]
    return g.append("BatchNormalization", *four, **consumed(g, 0, 0, 0, 1, 1), **attributes)


def flat(x):
    return x.reshape(len(x), -1)


def along(axis, rank=4):
    """The three channels of a constant of `ones_like`, aligned from an axis on."""
    return (1 + np.arange(3) / 10).reshape(3, *[1] * (rank - axis - 1))


# opset: build, what NumPy computes; shape of an example
UNTIL_6 = {
    "Add of channels": (lambda g: g.append("Add", ones_like(g, 3), broadcast=1, axis=1), lambda x: x + along(1)),
    "Sub of channels": (lambda g: g.append("Sub", ones_like(g, 3), broadcast=1, axis=1), lambda x: x - along(1)),
    "Mul of channels": (lambda g: g.append("Mul", ones_like(g, 3), broadcast=1, axis=1), lambda x: x * along(1)),
    "Div of channels": (lambda g: g.append("Div", ones_like(g, 3), broadcast=1, axis=1), lambda x: x / along(1)),
    "Add of (c, 1, 1)": (lambda g: g.append("Add", ones_like(g, 3, 1, 1), broadcast=1), lambda x: x + along(1)),
    "Mul by a number": (lambda g: g.append("Mul", g.constant(2.5), broadcast=1), lambda x: 2.5 * x),
    "Mul from the last axis": (lambda g: g.append("Mul", g.constant([2.5]), broadcast=1, axis=-1), lambda x: 2.5 * x),
    "Mul by a gate": (
        lambda g: g.add(
            "Mul", "x", g.add("Squeeze", g.add("GlobalAveragePool", "x"), axes=[2, 3]), broadcast=1, axis=0
        ),
        lambda x: x * x.mean((2, 3), keepdims=True),
    ),
    "PRelu of channels": (
        lambda g: g.append("PRelu", ones_like(g, 3), **consumed(g)),
        lambda x: np.where(x < 0, x * along(1), x),
    ),
    "PRelu of one slope": (lambda g: g.append("PRelu", g.constant([0.3])), lambda x: np.where(x < 0, 0.3 * x, x)),
    "BatchNormalization": (
        lambda g: batch_norm(g, is_test=1, spatial=1),
        lambda x: along(1) * (x - along(1)) / np.sqrt(along(1) + 1e-5) + along(1),
    ),
    "Dropout": (lambda g: relu(g.append("Dropout", is_test=1, ratio=0.3)), lambda x: np.maximum(x, 0)),
    "Relu": (relu, lambda x: np.maximum(x, 0)),
}  # fmt: skip
UNTIL_5 = {
    "Cast by name": (lambda g: relu(g.append("Cast", to="FLOAT")), lambda x: np.maximum(x, 0)),
    "Cast of lower case": (lambda g: relu(g.append("Cast", to="float")), lambda x: np.maximum(x, 0)),
    "Selu": (
        lambda g: g.append("Selu"),
        lambda x: np.where(x > 0, 1.0507 * x, 1.0507 * 1.6732 * np.expm1(np.minimum(x, 0))),
    ),
}
UNTIL_4 = {"Reshape by attribute": (lambda g: g.append("Reshape", shape=[0, -1]), flat)}
UNTIL_3 = {
    "Concat of channels": (
        lambda g: g.add("Concat", relu(g).last, g.add("Sigmoid", "x", **consumed(g))),
        lambda x: np.concatenate([np.maximum(x, 0), 1 / (1 + np.exp(-x))], 1),
    ),
}
ONLY_1 = {
    "Pad": (
        lambda g: g.append("Pad", paddings=[0, 0, 1, 2, 0, 0, 3, 1], value=0.5),
        lambda x: np.pad(x, [(0, 0), (0, 0), (1, 3), (2, 1)], constant_values=0.5),
    ),
    "Split": (
        lambda g: g.add(
            "Tanh", g.add("Split", "x", g.constant([1, 2]), outputs=["a", "b"], axis=1) and "b", **consumed(g)
        ),
        lambda x: np.tanh(x[:, 1:]),
    ),
    "Upsample": (
        lambda g: g.append("Upsample", height_scale=2.0, width_scale=3.0),
        lambda x: x.repeat(2, 2).repeat(3, 3),
    ),
}  # fmt: skip
CASES = [
    (name, opset, *case)
    for cases, opsets in ((UNTIL_6, (1, 6)), (UNTIL_5, (1, 5)), (UNTIL_4, (1, 4)), (UNTIL_3, (1, 3)), (ONLY_1, (1,)))
    for name, case in cases.items()
    for opset in opsets
]


@pytest.mark.parametrize(("name", "opset", "build", "expected"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES])
def test_before_opset_7(name, opset, build, expected, tmp_path):
    """onnxruntime does not run most of them."""
    g = OldGraph(IMAGES, opset=opset)
    build(g)
    x = np.random.default_rng(0).standard_normal((BATCH, *IMAGES))
    np.testing.assert_allclose(import_model(g.save(tmp_path)).predict(x), expected(x), 1e-5, 1e-6)


FROM_7 = {
    "Clip": lambda g: g.append("Clip", min=-0.5, max=0.25),
    "Clip below": lambda g: g.append("Clip", max=0.25),
    "Clip to all float32": lambda g: g.append("Clip", min=0.0, max=3.4028234663852886e38),
    "Pad": lambda g: g.append("Pad", pads=[0, 0, 1, 2, 0, 0, 3, 1], value=0.5),
    "BatchNormalization": batch_norm,
    "Dropout": lambda g: g.append("Dropout").append("Relu"),
    "Softmax of vectors": lambda g: g.append("Flatten").append("Softmax"),
    "AveragePool": lambda g: g.append("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    "Gemm": lambda g: g.append("Flatten").append("Gemm", g.normal(7, 60), g.normal(7), transB=1),
    "shape arithmetic": lambda g: g.add(
        "Reshape",
        "x",
        g.add("Concat", g.add("Unsqueeze", g.add("Gather", g.add("Shape", "x"), g.constant(0, "int64")), axes=[0]),
              g.integers(-1), axis=0),
    ),
    "ReduceMean": lambda g: g.append("ReduceMean", axes=[2, 3], keepdims=0),
}  # fmt: skip
FROM_7_ONLY = {  # the opsets of the form
    "Slice": ((7, 9), lambda g: g.append("Slice", starts=[1], ends=[1000], axes=[3])),
    "Slice of a shape": (
        (9,),
        lambda g: g.add(
            "Reshape",
            "x",
            g.add("Concat", g.add("Slice", g.add("Shape", "x"), starts=[0], ends=[1]), g.integers(-1), axis=0),
        ),
    ),
    "Upsample by attribute": ((7, 8), lambda g: g.append("Upsample", scales=[1.0, 1.0, 3.0, 2.0])),
    "Upsample": ((9,), lambda g: g.append("Upsample", g.constant([1, 1, 3, 2]))),
    "Resize": ((10,), lambda g: g.append("Resize", g.constant([1, 1, 3, 2]))),
}  # fmt: skip
CASES_FROM_7 = [(name, opset, build) for name, build in FROM_7.items() for opset in (7, 10)]
CASES_FROM_7 += [(name, opset, build) for name, (opsets, build) in FROM_7_ONLY.items() for opset in opsets]


@pytest.mark.parametrize(("name", "opset", "build"), CASES_FROM_7, ids=[f"{c[0]}-{c[1]}" for c in CASES_FROM_7])
def test_from_opset_7_beside_onnxruntime(name, opset, build, tmp_path):
    g = OldGraph(IMAGES, opset=opset)
    build(g)
    check(g, tmp_path)


REFUSED = {
    "BatchNormalization in training": (6, batch_norm, "(BatchNormalization): expected is_test=1, got 0"),
    "Dropout in training": (6, lambda g: g.append("Dropout"), "(Dropout): expected is_test=1, got 0"),
    "statistics of elements": (8, lambda g: batch_norm(g, spatial=0), "expected spatial=1, got 0"),
    "an axis that is none": (
        6,
        lambda g: g.append("Add", ones_like(g, 3), broadcast=1, axis=4),
        "(Add): expected operands of known ranks, aligned at an axis, got 4, 1 and axis=4",
    ),
    "a linear Upsample": (
        9,
        lambda g: g.append("Upsample", g.constant([1, 1, 2, 2]), mode="linear"),
        "(Upsample): expected linear in mode half_pixel or align_corners, got asymmetric",
    ),
    "a linear Resize": (
        10,
        lambda g: g.append("Resize", g.constant([1, 1, 2, 2]), mode="linear"),
        "(Resize): expected linear in mode half_pixel or align_corners, got asymmetric",
    ),
    "huge scales": (7, lambda g: g.append("Upsample", scales=[1.0, 1.0, 1e30, 1e30]), "(Upsample): expected integer"),
    "a huge image": (7, lambda g: g.append("Upsample", scales=[1.0, 1.0, 2.0**20, 2.0**20]), "Upsample2D cannot"),
    "huge pads": (9, lambda g: g.append("Pad", pads=[0, 0, 2**50, 0, 0, 0, 0, 0]), "(Pad): Pad2D cannot take input"),
    "a huge shape": (4, lambda g: g.append("Reshape", shape=[0, 2**40, 2**40]), "expected a shape that keeps"),
    "a huge constant": (
        9,
        lambda g: g.add("Add", "x", g.add("ConstantOfShape", g.integers(2**40, 2**40))),
        "(ConstantOfShape): expected a foldable constant: expected a shape of at most 4096 elements",
    ),
    "a number that stands for the batch": (
        4,
        lambda g: g.append("Reshape", shape=[ANY_BATCH, 60]),
        f"expected constants of other integers than {ANY_BATCH}",
    ),
    "a name that is no dtype": (5, lambda g: g.append("Cast", to="COMPLEX"), "(Cast): expected to of another type"),
    "an operator of a later opset": (9, lambda g: g.append("Gelu"), "(Gelu): ONNX has no such operator in the file's"),
    "an operator that is gone": (10, lambda g: g.append("Upsample", g.constant(2)), "(Upsample): ONNX has no"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name, tmp_path):
    opset, build, message = REFUSED[name]
    g = OldGraph(IMAGES, opset=opset)
    build(g)
    with pytest.raises(ValueError) as error:
        import_model(g.save(tmp_path))
    assert message in str(error.value)


def test_batch_norm_of_vectors_with_statistics_of_elements(tmp_path):
    """They are those of channels."""
    g = OldGraph(VECTORS, opset=8)
    check(batch_norm(g, spatial=0), tmp_path, "BatchNorm1D")


def test_names_that_the_file_has_already(tmp_path):
    """Constants that were attributes get other names than those of the file."""
    g = OldGraph(IMAGES, opset=8)
    g.nodes, g.tensors = [], {"y.scales": np.full((3, 1, 1), 7, "float32")}
    g.add("Upsample", "x", outputs=["y"], scales=[1.0, 1.0, 2.0, 2.0])
    check(g.append("Mul", "y.scales"), tmp_path, "Upsample2D", "Scale")


@pytest.mark.parametrize("seed", range(3))
def test_damaged_nodes(seed, tmp_path):
    """Attributes of other types, other opsets, inputs that are gone or other constants: refused, or a net."""
    from onnx import helper

    rng = np.random.default_rng(seed)
    for _ in range(40):
        _, opset, build, *_ = (CASES + CASES_FROM_7)[rng.integers(len(CASES + CASES_FROM_7))]
        g = OldGraph(IMAGES, opset=opset)
        build(g)
        model = g.model()
        node = model.graph.node[rng.integers(len(model.graph.node))]
        match rng.integers(5):
            case 0 if node.attribute:
                values = (3, -1.5, "x", [1, 2], [0.5], [-(2**63)], [2**62, 0], helper.make_tensor("t", 1, [2], [1, 2]))
                name = node.attribute[0].name
                node.attribute[0].CopyFrom(helper.make_attribute(name, values[rng.integers(len(values))]))
            case 1 if node.input:
                del node.input[-1]
            case 2:
                model.opset_import[0].version = int(rng.integers(1, 22))
            case 3 if model.graph.initializer:
                arrays = (np.zeros(0), np.array(2.0), np.array([np.inf, 1]), np.array(["a"], object), np.array([2**62]))
                tensor = model.graph.initializer[0]
                tensor.CopyFrom(_tensor(arrays[rng.integers(len(arrays))], tensor.name))
            case _:
                node.op_type = str(
                    rng.choice(["Clip", "Pad", "Slice", "Upsample", "Reshape", "PRelu", "Split", "Cast"])
                )
        path = tmp_path / "graph.onnx"
        path.write_bytes(model.SerializeToString())
        with suppress(ValueError):
            import_model(path)


def _tensor(array, name):
    from onnx import numpy_helper

    return numpy_helper.from_array(array, name)
