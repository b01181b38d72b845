"""ONNX files with free height and width: every layer at several sizes in onnxruntime, or refused by name."""

import numpy as np
import pytest
from contract.every_layer import DRAWS

from minidl import Sequential, onnx
from minidl.layers import (
    AdaptiveAvgPool2D,
    BatchNorm2D,
    Conv2D,
    Dense,
    GlobalAvgPool2D,
    MaxPool2D,
    Outputs,
    Parallel,
    RandomCrop,
    ReLU,
    Rescale,
    Upsample2D,
)

pytestmark = pytest.mark.oracle
SIZES = [(5, 5), (8, 11), (13, 4), (16, 16), (31, 17), (40, 41), (9, 30)]
WITHOUT = {  # no size is free, or no file has it
    *(
        "AdaptiveMaxPool2D",
        "BatchNorm1D",
        "ChannelShuffle",
        "Columns",
        "Dense",
        "Embedding",
        "LayerNorm",
        "OneHot",
        "PiecewiseLinearEncoding",
        "RandomCrop",
        "Reshape",
    ),
}


def run(path, x):
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})


@pytest.mark.parametrize("name", sorted(DRAWS))
@pytest.mark.filterwarnings("ignore:layer 0")  # of channels that look like the last ones
def test_every_layer_is_equal_at_several_sizes_or_refused_by_name(name, tmp_path):
    path, equal = tmp_path / "m.onnx", 0
    for number in range(8):
        case, rng = DRAWS[name](np.random.default_rng([number, *name.encode()])), np.random.default_rng(number)
        if len(case.in_shape) not in (2, 3) or case.categories:
            continue
        try:
            model = Sequential([case.layer], (case.in_shape[0], *[None] * (len(case.in_shape) - 1)))
        except ValueError:
            continue
        try:
            onnx.export(model, path)
        except ValueError as error:
            assert "model of one size" in str(error) and f"layer 0, {name}" in str(error)
            continue
        for size in SIZES:
            x = case.values(rng, (2, case.in_shape[0], *size[: len(case.in_shape) - 1])).astype("f4")
            try:
                expected = model.predict(x)
            except ValueError:  # a size that the layer cannot take
                continue
            (found,) = run(path, x)
            assert found.shape == expected.shape, f"{case.layer} of {x.shape}"
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=f"{case.layer} of {x.shape}")
            equal += 1
    assert equal >= 3 or name in WITHOUT


def make_net():
    wide = [MaxPool2D(2), Conv2D(6, 3, padding="same"), BatchNorm2D(), ReLU(), Upsample2D(2, mode="bilinear")]
    body = [Rescale(1 / 255), Conv2D(4, 3, padding=1, stride=2), Parallel([], wide, join="concat")]
    return Sequential([*body, Conv2D(3, 3, padding="same", stride=2)], (2, None, None), max_pixels=2**20)


def test_a_net_is_exported_and_imported_with_free_sizes(tmp_path):
    model, path = make_net(), tmp_path / "m.onnx"
    onnx.export(model, path)
    same = onnx.import_model(path)
    assert (same.input_shape, same.output_shape) == ((2, None, None), (3, None, None))
    for height, width in ((20, 24), (36, 60), (64, 64)):
        x = np.random.default_rng(0).integers(0, 256, (2, 2, height, width)).astype("f4")
        assert np.array_equal(same.predict(x), model.predict(x))
        np.testing.assert_allclose(run(path, x)[0], model.predict(x), rtol=1e-4, atol=1e-5)
    assert onnx.import_model(path, input_shape=(2, 20, 24)).input_shape == (2, 20, 24)
    shown = str(onnx.inspect(path))
    assert "(N, 2, height, width)" in shown and "(N, 3, scores_1, scores_2)" in shown


def test_several_outputs_name_their_free_sizes(tmp_path):
    heads = Outputs(mask=[Conv2D(1, 1)], kind=[GlobalAvgPool2D(), Dense(4)])
    model, path = Sequential([Conv2D(4, 3, padding=1), ReLU(), heads], (1, None, None)), tmp_path / "m.onnx"
    assert model.output_shape == {"mask": (1, None, None), "kind": (4,)}
    onnx.export(model, path)
    assert "(N, 1, height, width)" in str(onnx.inspect(path))
    x = np.random.default_rng(0).normal(size=(2, 1, 9, 14)).astype("f4")
    expected, found = model.predict(x), run(path, x)
    for one, other in zip(expected.values(), found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "layer",
    [
        Conv2D(2, 3, stride=2, padding="same", dilation=2),  # which onnxruntime refuses with auto_pad
        RandomCrop(16),
        MaxPool2D(3, ceil_mode=True),
        AdaptiveAvgPool2D(3),
    ],
)
def test_nodes_that_depend_on_the_size_are_refused(layer, tmp_path):
    model = Sequential([ReLU(), layer], (1, None, None))
    with pytest.raises(
        ValueError, match=rf"one size, model\.at\(\(1, 128, 128\)\), got layer 1, {type(layer).__name__}"
    ):
        onnx.export(model, tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()
    onnx.export(model.at((1, 30, 30)), tmp_path / "m.onnx")


def test_probabilities_of_pixels_are_exported_by_another_layer(tmp_path):
    with pytest.raises(ValueError, match=r"softmax: .*; export Sequential\(\[model, Softmax\(\)\], model\.input"):
        onnx.export(make_net(), tmp_path / "m.onnx", softmax=True)
