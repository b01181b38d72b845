"""What tests share: a random generator, MNIST where it is at hand, skipping without PyTorch."""

import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest


def pytest_collection_modifyitems(items):
    if find_spec("torch") is None:
        for item in items:
            if item.get_closest_marker("oracle"):
                item.add_marker(pytest.mark.skip(reason="compares with PyTorch, which is missing"))


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def mnist():
    """MNIST from the local cache. Skips where there is none: a test never downloads."""
    home = Path(os.environ.get("SCIKIT_LEARN_DATA") or "~/scikit_learn_data").expanduser()
    if not any(home.glob("minidl/mnist_784*")) and not any(home.glob("openml/**/*mnist_784*")):
        pytest.skip(f"no MNIST in {home}")
    from minidl.datasets import load_mnist

    return load_mnist()
