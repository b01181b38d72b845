"""Paths of layers."""

import numpy as np
import pytest
from faulty_layers import Scale

from minidl import Sequential
from minidl.engine.layer_paths import layer_paths, resolve_path
from minidl.layers import BatchNorm2D, Block, Conv2D, Dense, Flatten, MaxPool2D, Parallel, ReLU, Residual


def branched(custom=False):
    """Returns a model of nested containers; `custom` puts a NumPy layer into the innermost one."""
    inner = Parallel(Conv2D(2, 1), [ReLU(), Scale() if custom else ReLU(), Conv2D(3, 3, padding=1)])
    block = Residual(Conv2D(4, 3, padding=1), BatchNorm2D(), Block(ReLU(), inner), shortcut=Conv2D(5, 1))
    return Sequential([Conv2D(4, 3), block, MaxPool2D(2), Flatten(), Dense(3)], (3, 8, 8))


def test_every_parameter_is_named_after_its_layer():
    model = branched()
    result = layer_paths(model.layers)
    assert {name.rpartition(".")[0] for name in model.state_dict()} <= set(result)
    for name, param in model.params.items():
        layer, _, custom = name.rpartition(".")
        assert result[layer][-1].params[custom] is param


@pytest.mark.parametrize(
    ("path", "name"), [(0, "0"), (-1, "4"), (np.int64(2), "2"), ("1.body.2.0", "1.body.2.0"), ("3", "3")]
)
def test_paths_resolve_to_names(path, name):
    assert resolve_path(layer_paths(branched().layers), path) == name


@pytest.mark.parametrize("path", [5, -6, "5", "1.body", "body.0", "1.body.2.1.branches.2.0", ""])
def test_unknown_paths_are_refused_with_the_valid_ones(path):
    with pytest.raises(
        ValueError, match=r"layer: expected an index from -5 to 4, or the path of an inner layer such as '1.body.0"
    ):
        resolve_path(layer_paths(branched().layers), path)
    with pytest.raises(ValueError, match=r"from -1 to 0, got 7$"):
        resolve_path(layer_paths(Sequential([ReLU()], (3,)).layers), 7)


@pytest.mark.parametrize("path", [1.0, True, None, ReLU()])
def test_other_types_are_refused(path):
    with pytest.raises(TypeError, match="layer: expected an index or a path such as"):
        resolve_path(layer_paths(branched().layers), path)
