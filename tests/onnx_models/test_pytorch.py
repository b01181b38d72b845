"""Files from PyTorch's exporters: weights in a second file, further training, shared modules: docs/how-to/onnx.md."""

import warnings

import numpy as np
import pytest

from minidl.onnx import import_model

pytestmark = pytest.mark.oracle("torch", "onnx")

TORCHSCRIPT_EXPORTER = {"dynamo": False, "input_names": ["x"], "dynamic_axes": {"x": {0: "N"}}}


def export_module(module, shape, path, **options):
    """Exports a module; returns inputs and outputs."""
    import torch

    x = torch.randn(5, *shape, generator=torch.Generator().manual_seed(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the TorchScript exporter is deprecated
        torch.onnx.export(module, (x,), str(path), verbose=False, **options)
    with torch.no_grad():
        return x.numpy(), module(x).numpy()


def small_module(training=False):
    """Returns convolution, batch norm and dropout, with random weights and statistics."""
    from torch import manual_seed, nn, no_grad

    manual_seed(0)
    front = (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3))
    net = nn.Sequential(*front, nn.Flatten(), nn.Linear(64, 5))
    with no_grad():
        for name, array in net.state_dict().items():
            if array.is_floating_point():
                array.uniform_(0.5, 1.5) if name == "1.running_var" else array.normal_(0, 0.3)
    return net.train(training)


def layer_names(model):
    return [type(layer).__name__ for layer in model.layers]


def test_export_for_further_training(tmp_path):
    import torch

    training_options = {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
    x, y = export_module(small_module(), (3, 6, 6), tmp_path / "kept.onnx", **TORCHSCRIPT_EXPORTER, **training_options)
    model = import_model(tmp_path / "kept.onnx")
    assert layer_names(model) == ["Conv2D", "BatchNorm2D", "ReLU", "Flatten", "Dense"]
    np.testing.assert_allclose(model.predict(x), y, 1e-5, 1e-5)
    assert np.array_equal(model.state_dict()["1.running_mean"], small_module().state_dict()["1.running_mean"].numpy())
    export_module(small_module(), (3, 6, 6), tmp_path / "folded.onnx", **TORCHSCRIPT_EXPORTER)
    assert layer_names(import_model(tmp_path / "folded.onnx")) == ["Conv2D", "ReLU", "Flatten", "Dense"]
    with pytest.raises(ValueError, match="expected training_mode=0, got 1"):
        training_options["training"] = torch.onnx.TrainingMode.TRAINING
        export_module(small_module(), (3, 6, 6), tmp_path / "training.onnx", **TORCHSCRIPT_EXPORTER, **training_options)
        import_model(tmp_path / "training.onnx")


@pytest.mark.oracle("torch", "onnx", "onnxscript")
def test_the_default_export(tmp_path):
    x, y = export_module(small_module(), (3, 6, 6), tmp_path / "two.onnx")
    with pytest.raises(ValueError, match="external_data=False"):
        import_model(tmp_path / "two.onnx")
    export_module(small_module(), (3, 6, 6), tmp_path / "one.onnx", external_data=False)
    model = import_model(tmp_path / "one.onnx")
    np.testing.assert_allclose(model.predict(x), y, 1e-5, 1e-5)
    assert layer_names(model) == ["Conv2D", "ReLU", "Flatten", "Dense"]


def repeated_layers(tied):
    """Returns layers with zero biases twice: one module applied twice if tied, else two."""
    from torch import manual_seed, nn

    manual_seed(0)
    layers = [nn.Linear(6, 6), nn.LayerNorm(6), nn.PReLU()]
    again = layers if tied else [nn.Linear(6, 6), nn.LayerNorm(6), nn.PReLU()]
    for layer in (layers[0], again[0]):
        nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers, *again).eval()


@pytest.mark.parametrize("tied", [False, True])
def test_a_module_applied_twice(tied, tmp_path):
    """The exporter also deduplicates equal arrays of separate modules, which is no reason to warn."""
    import onnx

    x, y = export_module(repeated_layers(tied), (6,), tmp_path / "net.onnx", **TORCHSCRIPT_EXPORTER)
    graph = onnx.load(tmp_path / "net.onnx").graph
    assert len(graph.initializer) < 8
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = import_model(tmp_path / "net.onnx")
    np.testing.assert_allclose(model.predict(x), y, 1e-5, 1e-5)
    assert len(caught) == tied
    if tied:
        assert str(caught[0].message).count(" in node ") == 1 and "(Gemm) and node '" in str(caught[0].message)
