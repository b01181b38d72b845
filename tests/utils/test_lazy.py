"""Lazy arrays, read batch by batch, by the rules of h5py: slices, or increasing indices without repetition."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from minidl import Sequential, Trainer
from minidl.layers import Dense, Flatten, ReLU, Rescale
from minidl.optimizers import SGD
from minidl.utils.data import ArraySource
from minidl.utils.lazy import LazyRows, is_lazy

DIGITS, LABELS = load_digits(return_X_y=True)
X, Y = DIGITS[:200].astype("uint8").reshape(-1, 1, 8, 8), LABELS[:200]


class Dataset:
    """An array as strict as h5py's, which counts the rows that are read, and the most of them at a time."""

    def __init__(self, array):
        self._data, self.shape, self.dtype = array, array.shape, array.dtype
        self.rows_read = self.largest = self.by_index = 0

    def __len__(self):
        return len(self._data)

    def __getitem__(self, key):
        if isinstance(key, (int, np.integer)):
            raise AssertionError("read row by row")
        if isinstance(key, slice):
            assert key.step in (None, 1)
            assert 0 <= key.start < key.stop <= len(self)
        else:
            self.by_index += 1
            indices = np.asarray(key)
            assert indices.dtype.kind == "i"
            assert indices.ndim == 1
            assert (np.diff(indices) > 0).all(), "Indexing elements must be in increasing order"
            assert indices[0] >= 0
            assert indices[-1] < len(self)
        block = np.array(self._data[key])
        self.rows_read += len(block)
        self.largest = max(self.largest, len(block))
        return block


class Orthogonal:
    """As zarr's: rows by indices with `oindex`; plain indexing takes slices only."""

    def __init__(self, array):
        self._data, self.shape, self.dtype, self.oindex = array, array.shape, array.dtype, Dataset(array)

    def __len__(self):
        return len(self._data)

    def __getitem__(self, key):
        assert isinstance(key, slice)
        return self._data[key]


def make_trainer(dtype="float32"):
    model = Sequential([Rescale(1 / 16), Flatten(), Dense(16), ReLU(), Dense(10)], input_shape=(1, 8, 8), dtype=dtype)
    return Trainer(model, "softmax_cross_entropy", SGD(0.1, momentum=0.9), ["accuracy"], num_threads=2)


@pytest.mark.parametrize("kind", [Dataset, Orthogonal])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16", "float32", ">f4", "float64"])
def test_trains_as_the_array_bit_for_bit(kind, dtype):
    lazy, array = make_trainer(), make_trainer()
    data = X.astype(dtype)
    for trainer, given in ((lazy, kind(data)), (array, data)):
        trainer.fit(given, Y, epochs=3, batch_size=17, validation_split=0.2, class_weight="balanced", verbose=0)
    for name, param in lazy.model.params.items():
        np.testing.assert_array_equal(param.value, array.model.params[name].value)
    assert lazy.evaluate(kind(data), Y) == array.evaluate(data, Y)
    np.testing.assert_array_equal(lazy.model.predict(kind(data)), array.model.predict(data))
    batch = kind(data[:20])
    assert lazy.train_batch(batch, Y[:20]) == array.train_batch(data[:20], Y[:20])


def test_rows_are_read_when_they_are_needed():
    data = Dataset(np.tile(X, (50, 1, 1, 1)))
    trainer, labels = make_trainer(), np.tile(Y, 50)

    class Look:
        every_n_steps = 1

        def on_fit_begin(self, trainer):
            self.before = data.rows_read

        def on_step_end(self, trainer, step, loss):
            self.after = data.rows_read

    look = Look()
    trainer.fit(data, labels, epochs=1, batch_size=64, callbacks=[look], verbose=0)
    assert look.before == 0
    assert look.after <= len(data) + 512  # and some examples for `report`
    assert data.largest <= 512
    data.rows_read = data.by_index = 0
    trainer.model.predict(data)
    assert data.rows_read == len(data)
    assert data.by_index == 0  # neighbours by slices: files read them fastest
    assert data.largest <= 4096


def test_an_unbuilt_model_and_flat_rows():
    model = Sequential([Dense(3)])
    Trainer(model, "softmax_cross_entropy", SGD(0.1)).fit(Dataset(X.reshape(-1, 64)), Y % 3, verbose=0)
    assert model.input_shape == (64,)
    assert make_trainer().model.predict(Dataset(X.reshape(-1, 64))).shape == (200, 10)
    assert make_trainer().model.predict(Dataset(X[:0])).shape == (0, 10)


def test_any_order_of_rows():
    rows = LazyRows(Dataset(X), "X")
    for wanted in ([3, 199, 0, 3, 17], [0], [], [5, 6, 7], [7, 6, 5], [4, 4, 4], list(range(200))):
        np.testing.assert_array_equal(rows[np.array(wanted, int)], X[np.array(wanted, int)])
    for wanted in (slice(None), slice(3, 9), slice(9, 3), slice(0, 20, 3), slice(190, 500)):
        np.testing.assert_array_equal(rows[wanted], X[wanted])


def test_a_fit_resumes_on_a_lazy_array(tmp_path):
    whole, killed = make_trainer(), make_trainer()
    whole.fit(X, Y, epochs=2, batch_size=16, verbose=0)

    class Crash:
        def on_step_end(self, trainer, step, loss):
            if step == 15:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        killed.fit(Dataset(X), Y, epochs=2, batch_size=16, callbacks=[Crash()], verbose=0)
    killed.save_checkpoint(tmp_path / "c")
    resumed = Trainer.resume(tmp_path / "c")
    with pytest.raises(ValueError, match="X: expected the same data"):
        Trainer.resume(tmp_path / "c").fit(Dataset(X[::-1].copy()), Y, epochs=2, batch_size=16, verbose=0)
    resumed.fit(Dataset(X), Y, epochs=2, batch_size=16, verbose=0)
    for name, param in whole.model.params.items():
        np.testing.assert_array_equal(param.value, resumed.model.params[name].value)


def test_what_is_lazy():
    assert is_lazy(Dataset(X))
    assert not is_lazy(Dataset(Y))  # one axis: converted at once
    assert not is_lazy(X)
    assert not is_lazy(X.tolist())
    assert not is_lazy(np.float32(3))
    assert not is_lazy(None)


def test_refusals():
    with pytest.raises(TypeError, match="X: expected real numbers, got dtype complex64"):
        ArraySource(Dataset(X.astype("complex64")), (1, 8, 8), "float32")
    with pytest.raises(ValueError, match=r"X: expected shape \(n, 1, 8, 8\) or \(n, 64\), got \(200, 8, 8\)"):
        ArraySource(Dataset(X[:, 0]), (1, 8, 8), "float32")
    spoiled = X.astype("float32")
    spoiled[199] = np.nan
    trainer = make_trainer()
    with pytest.raises(ValueError, match="X: expected finite values"):
        trainer.fit(Dataset(spoiled), Y, shuffle=False, verbose=0)
    short = Dataset(X)
    short.shape = (300, 1, 8, 8)
    with pytest.raises(ValueError, match="X: expected 300 rows, as in its shape, got 200"):
        ArraySource(short, (1, 8, 8), "float32")
    other = Dataset(X)
    other.dtype = np.dtype("float32")
    with pytest.raises(ValueError, match=r"X: expected it to return rows of float32 \(200, 1, 8, 8\), got uint8"):
        trainer.model.predict(other)


class Rows:
    """Rows by index, without a shape."""

    def __len__(self):
        return len(X)

    def __getitem__(self, key):
        return X[key]


def with_attributes(**attributes):
    return type("Part", (Rows,), attributes)()


@pytest.mark.parametrize(
    ("value", "lacking"),
    [
        (Rows(), "a tuple shape of at least two axes and a NumPy dtype"),
        (with_attributes(shape=X.shape), "a NumPy dtype"),
        (with_attributes(shape=X.shape, dtype="uint8"), "a NumPy dtype"),
        (with_attributes(shape=list(X.shape), dtype=X.dtype), "a tuple shape of at least two axes"),
        (with_attributes(shape=(200,), dtype=X.dtype), "a tuple shape of at least two axes"),
    ],
)
def test_a_message_names_what_a_lazy_array_lacks(value, lacking):
    trainer, kind = make_trainer(), type(value).__name__
    found = f"X: expected an array, got {kind}; only `fit` takes batches; as a lazy array, it lacks {lacking}$"
    for call in (trainer.model.predict, lambda X: trainer.fit(X, Y), lambda X: trainer.evaluate(X, Y)):
        with pytest.raises(TypeError, match=found):
            call(value)


def test_an_error_of_a_lazy_array_says_what_it_was_asked_for():
    class Slices(Dataset):
        def __getitem__(self, key):
            if not isinstance(key, slice):
                raise TypeError("expected a slice")
            return super().__getitem__(key)

    with pytest.raises(TypeError, match="expected a slice") as raised:
        make_trainer().fit(Slices(X), Y, verbose=0)
    note = "X: a lazy array, which is asked for slices, and for NumPy arrays of increasing indices: Slices"
    assert raised.value.__notes__ == [note]
