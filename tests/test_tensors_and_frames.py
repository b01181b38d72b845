"""Tensors of PyTorch and data frames of pandas as X and y: as the arrays in them, or a refusal with its reason."""

import numpy as np
import pandas as pd
import pytest

from minidl import Sequential, Trainer
from minidl.layers import Dense, ReLU
from minidl.optimizers import SGD
from minidl.utils.arrays import as_array

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.standard_normal((40, 3)).astype("float32"), RANDOM.integers(0, 3, 40)


def fitted(X, y, **options):
    trainer = Trainer(Sequential([Dense(8), ReLU(), Dense(3)]), "softmax_cross_entropy", SGD(0.1), ["accuracy"])
    trainer.fit(X, y, epochs=2, batch_size=7, verbose=0, **options)
    return trainer


def same(one, other):
    return all(np.array_equal(p.value, other.model.params[name].value) for name, p in one.model.params.items())


FRAME = pd.DataFrame(X, columns=["a", "b", "c"])


@pytest.mark.parametrize("y", [pd.Series(Y), pd.Series(Y, index=range(40, 0, -1)), pd.Series(Y).astype("category")])
def test_data_frames(y):
    frame = fitted(FRAME, y, validation_data=(FRAME, y), sample_weight=pd.Series(np.ones(40)), class_weight="balanced")
    array = fitted(X, Y, validation_data=(X, Y), sample_weight=np.ones(40), class_weight="balanced")
    assert same(frame, array)
    assert frame.evaluate(FRAME, y) == array.evaluate(X, Y)
    np.testing.assert_array_equal(frame.model.predict(FRAME), array.model.predict(X))


def test_columns_of_several_dtypes():
    frame = pd.DataFrame({"a": Y, "b": X[:, 0], "c": Y > 1})
    assert same(fitted(frame, Y), fitted(np.column_stack([Y, X[:, 0], Y > 1]), Y))
    assert same(fitted(frame.convert_dtypes(), Y), fitted(np.column_stack([Y, X[:, 0], Y > 1]), Y))
    twice = pd.concat([frame[["a", "c"]], frame[["a"]]], axis=1)
    np.testing.assert_array_equal(as_array(twice, "X"), np.column_stack([Y, Y > 1, Y]))


def test_frames_that_are_refused():
    text = FRAME.assign(b="text")
    with pytest.raises(TypeError, match=r"X: expected columns of real numbers, got .* in column 'b'"):
        fitted(text, Y)
    with pytest.raises(TypeError, match="X: expected columns of real numbers, got category in column 'c'"):
        fitted(FRAME.assign(c=pd.Series(["u", "v"] * 20).astype("category")), Y)
    with pytest.raises(ValueError, match="X: expected finite values"):
        fitted(FRAME.where(FRAME > 0), Y)
    with pytest.raises(ValueError, match=r"y: expected one label per example.*: y\.ravel\(\)"):
        fitted(FRAME, pd.DataFrame(Y))


@pytest.mark.oracle
def test_tensors():
    import torch

    x, y = torch.tensor(X), torch.tensor(Y)
    array = fitted(X, Y, class_weight="balanced")
    for given in (x, x.clone().requires_grad_(), x.t().contiguous().t()):
        assert same(fitted(given, y, class_weight="balanced"), array)
        np.testing.assert_array_equal(array.model.predict(given), array.model.predict(X))
    assert array.evaluate(x, y, sample_weight=torch.ones(40)) == array.evaluate(X, Y)
    np.testing.assert_array_equal(array.model.predict(list(x)), array.model.predict(X))
    array.model.load_state_dict({name: torch.tensor(p) for name, p in array.model.state_dict().items()})
    assert same(fitted(x.half(), y), fitted(X.astype("float16"), Y))


@pytest.mark.oracle
def test_tensors_that_are_refused():
    import torch

    x = torch.tensor(X)
    for given, message in (
        (x.bfloat16(), "X: expected an array that NumPy can read, got torch.bfloat16"),
        (x.to_sparse(), "X: expected an array that NumPy can read, got torch.float32: .*to_dense"),
        (x.to("meta"), "X: expected an array that NumPy can read, got torch.float32: .*meta"),
        (x.to(torch.complex64), "X: expected real numbers, got dtype complex64"),
    ):
        with pytest.raises(TypeError, match=message):
            fitted(given, Y)
