"""Array sources and the order of an epoch; every kind of array that must work."""

import warnings

import numpy as np
import pytest

from minidl import InputError, Sequential, Trainer
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU, Rescale
from minidl.optimizers import SGD
from minidl.utils.data import ArraySource, epoch_order

PIXELS = np.random.default_rng(0).integers(0, 17, (40, 1, 3, 4)).astype(np.uint8)
X, Y = PIXELS.astype("float32"), np.random.default_rng(1).integers(0, 3, 40)
ROWS = np.array([3, 39, 0, 3, 17])


def matrix(rows):
    with warnings.catch_warnings(action="ignore", category=PendingDeprecationWarning):
        return np.asmatrix(rows)


def make_spoiled(index, value=np.nan, dtype="float32"):
    X = PIXELS.astype(dtype)
    X[index] = value
    return X


def unaligned(X):
    return np.frombuffer(b"?" + X.tobytes(), X.dtype, offset=1).reshape(X.shape)


def make_trainer(dtype="float32"):
    layers = [Rescale(1 / 16), Conv2D(3, 2), ReLU(), MaxPool2D((1, 3)), Flatten(), Dense(3)]
    model = Sequential(layers, input_shape=(1, 3, 4), dtype=dtype)
    return Trainer(model, "softmax_cross_entropy", SGD(0.1, momentum=0.9), ["accuracy"], num_threads=1)


def state(trainer):
    params = trainer.model.params
    return {name: (p.value.tobytes(), p.grad.tobytes()) for name, p in params.items()}, trainer.step


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "X",
    [
        PIXELS,
        PIXELS.reshape(40, 12),
        PIXELS.tolist(),
        PIXELS.astype(">f4"),
        PIXELS.astype("f2"),
        PIXELS.astype("i8"),
        np.asfortranarray(PIXELS.astype("f8")),
        np.repeat(PIXELS, 2, axis=2)[:, :, ::2],
        PIXELS[::-1].copy()[::-1],
        unaligned(PIXELS.astype("f4")),
        np.longdouble(PIXELS),
    ],
    ids=lambda X: f"{X.dtype}{X.shape}" if isinstance(X, np.ndarray) else "list",
)
def test_every_way_to_read_gives_the_same_numbers(X, dtype):
    examples = ArraySource(X, (1, 3, 4), dtype)
    expected = PIXELS.reshape(40, 12)
    assert len(examples) == 40
    copied = examples.gather_copy(ROWS)
    np.testing.assert_array_equal(copied, expected[ROWS])
    assert copied.dtype == dtype and copied.flags.c_contiguous and copied.flags.aligned
    array, rows, _ = examples.gather(ROWS)
    np.testing.assert_array_equal(array[rows], expected[ROWS])
    block = examples.chunk(33, 50)  # past the end
    np.testing.assert_array_equal(block, expected[33:])
    for kernel_input in (array, block):
        assert kernel_input.dtype.name in ("uint8", "float32", "float64")
        assert kernel_input.dtype.isnative and kernel_input.flags.aligned
        assert kernel_input.flags.c_contiguous


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_plain_arrays_are_read_without_a_copy(dtype):
    X = PIXELS.astype(dtype)
    examples = ArraySource(X, (1, 3, 4), "float32")
    array, rows, _ = examples.gather(ROWS)
    assert np.shares_memory(array, X) and rows is ROWS
    assert np.shares_memory(examples.chunk(5, 9), X)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_values_are_refused_at_once(value, dtype):
    for index in ((0, 0, 0, 0), (39, 0, 2, 3)):
        with pytest.raises(ValueError, match="X: expected finite values"):
            ArraySource(make_spoiled(index, value, dtype), (1, 3, 4), "float32")


def test_a_number_that_overflows_the_models_dtype_is_refused():
    X = make_spoiled((7, 0, 0, 0), 1e300, "float64")
    assert len(ArraySource(X, (1, 3, 4), "float64")) == 40
    with pytest.raises(ValueError, match="X: "):
        ArraySource(X, (1, 3, 4), "float32")


@pytest.mark.parametrize("dtype", ["<f4", ">f8"])
def test_a_memory_map_is_checked_as_it_is_read(dtype, tmp_path):
    make_spoiled((20, 0, 1, 1), dtype=dtype).tofile(tmp_path / "X")
    mapped = np.memmap(tmp_path / "X", dtype, "r", shape=PIXELS.shape)
    for X in (mapped, mapped[:, :, :, :], np.asarray(mapped)):  # views of a map are maps
        examples = ArraySource(X, (1, 3, 4), "float32")
        np.testing.assert_array_equal(examples.gather_copy(ROWS), PIXELS.reshape(40, 12)[ROWS])
        examples.chunk(0, 20)
        examples.gather(ROWS)
        bad = np.array([1, 20])
        for name, rows in (("gather_copy", (bad,)), ("gather", (bad,)), ("chunk", (18, 22))):
            with pytest.raises(ValueError, match="X: expected finite values"):
                getattr(examples, name)(*rows)


def test_a_vector_is_refused_with_its_shape():
    with pytest.raises(ValueError, match=r"^X: expected shape \(n, 7\), got \(5, 8\)$"):
        ArraySource(np.zeros((5, 8)), (7,), "float32")
    with pytest.raises(ValueError, match=r"\(n, 1, 3, 4\) or \(n, 12\), got \(5, 3, 4\): for one channel, X"):
        ArraySource(np.zeros((5, 3, 4)), (1, 3, 4), "float32")


# ---- the order of an epoch
def test_order_is_a_function_of_seed_and_epoch():
    order = epoch_order(100, 3, 4, True)
    np.testing.assert_array_equal(np.sort(order), np.arange(100))  # every example exactly once
    np.testing.assert_array_equal(order, epoch_order(100, 3, 4, True))
    for other in (epoch_order(100, 3, 5, True), epoch_order(100, 4, 4, True), np.arange(100)):
        assert (order != other).sum() > 80
    np.testing.assert_array_equal(epoch_order(100, 3, 4, False), np.arange(100))
    assert len(epoch_order(0, 3, 4, True)) == 0


# ---- a memory map is read batch by batch
@pytest.mark.parametrize("kind", ["native", ">f4"])
def test_nan_in_a_memory_map_is_found_before_its_step(kind, tmp_path):
    kind = "<f4" if kind == "native" else kind
    make_spoiled((20, 0, 1, 1), dtype=kind).tofile(tmp_path / "X")
    mapped = np.memmap(tmp_path / "X", kind, "r", shape=X.shape)
    trainer, twin = make_trainer(), make_trainer()
    with pytest.raises(ValueError, match="X: expected finite values"):
        trainer.fit(mapped, Y, 3, batch_size=8, shuffle=False, verbose=0)
    assert trainer.step <= 2
    for step in range(trainer.step):
        twin.train_batch(X[step * 8 : step * 8 + 8], Y[step * 8 : step * 8 + 8])
    assert state(trainer) == state(twin)
    for call in (trainer.model.predict, lambda m: trainer.evaluate(m, Y)):
        with pytest.raises(ValueError, match="X: expected finite values"):
            call(mapped)


# ---- arrays that must work
def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def mapped(array, order="C"):
    def make(folder):
        result = np.memmap(folder / "X", array.dtype, "w+", shape=array.shape, order=order)
        result[...] = array
        result.flush()
        return np.memmap(folder / "X", array.dtype, "r", shape=array.shape, order=order)

    return make


def saved(folder):
    np.save(folder / "X.npy", PIXELS)
    return np.load(folder / "X.npy", mmap_mode="r")


GOOD = {
    "float32": X,
    "float64": X.astype("f8"),
    "float16": X.astype("f2"),
    "longdouble": X.astype(np.longdouble),
    "big-endian f4": X.astype(">f4"),
    "big-endian f8": X.astype(">f8"),
    "big-endian i2": X.astype(">i2"),
    **{name: X.astype(name) for name in ("int8", "uint16", "int32", "uint64", "int64")},
    "flat": PIXELS.reshape(40, 12),
    "Fortran": np.asfortranarray(PIXELS),
    "Fortran f4": np.asfortranarray(X),
    "every other": np.repeat(PIXELS, 2, axis=3)[..., ::2],
    "backwards": PIXELS[::-1].copy()[::-1],
    "transposed": PIXELS.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2),
    "read-only": read_only(PIXELS),
    "read-only f4": read_only(X),
    "unaligned f4": unaligned(X),
    "unaligned f8": unaligned(X.astype("f8")),
    "list": PIXELS.tolist(),
    "list of arrays": list(PIXELS),
    "tuple": tuple(PIXELS.tolist()),
    "np.matrix": matrix(PIXELS.reshape(40, 12)),
    "memory map": mapped(PIXELS),
    "memory map f4": mapped(X),
    "memory map f8": mapped(X.astype("f8")),
    "memory map big-endian": mapped(X.astype(">f4")),
    "memory map Fortran": mapped(X, "F"),
    "memory map .npy": saved,
}


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", GOOD)
def test_supported_arrays_give_the_results_of_plain_ones(name, dtype, tmp_path):
    """Predictions, evaluation and training are bit-identical to those of the plain uint8 array."""
    given = GOOD[name](tmp_path) if callable(GOOD[name]) else GOOD[name]
    results = []
    for data in (PIXELS, given):
        trainer = make_trainer(dtype)
        result = [trainer.model.predict(data).tobytes(), trainer.evaluate(data, Y)]
        result.append(trainer.model.forward(data, training=True).tobytes())
        result.append(trainer.model.backward(np.ones((40, 3))).tobytes())
        history = trainer.fit(data, Y, 2, batch_size=16, validation_split=0.2, verbose=0)
        history.pop("images_per_second")
        results.append([*result, history, state(trainer)])
    assert results[0] == results[1]


@pytest.mark.parametrize(
    "y",
    [Y.astype(kind) for kind in ("int8", "uint8", ">i4", "uint64")]
    + [Y.tolist(), tuple(Y), np.repeat(Y, 3)[::3], read_only(Y), unaligned(Y)],
    ids=lambda y: f"{y.dtype}" if isinstance(y, np.ndarray) else type(y).__name__,
)
def test_supported_labels(y):
    one, other = make_trainer(), make_trainer()
    one.fit(X, Y, 2, batch_size=16, verbose=0)
    other.fit(X, y, 2, batch_size=16, verbose=0)
    assert state(one) == state(other)


def test_user_arrays_are_not_modified():
    """Plain arrays are read without a copy, so this could happen."""
    for x in (PIXELS.copy(), X.copy(), X.astype("f8")):
        before, y, weight = x.copy(), Y.copy(), np.ones(40)
        trainer = make_trainer()
        trainer.fit(x, y, 2, batch_size=16, sample_weight=weight, verbose=0)
        trainer.model.forward(x, training=True)
        dy = np.ones((40, 3), "float32")
        trainer.model.backward(dy)
        trainer.model.predict_proba(x)
        np.testing.assert_array_equal(x, before)
        np.testing.assert_array_equal(y, Y)
        assert (weight == 1).all() and (dy == 1).all()


def test_each_seed_and_epoch_has_its_own_order():
    orders = {tuple(epoch_order(20, seed, epoch, True)) for seed in range(12) for epoch in range(12)}
    assert len(orders) == 144


@pytest.mark.parametrize("value", [1e39, -1e39])
def test_integers_not_exact_in_float32_are_refused(value):
    with pytest.raises(ValueError, match=r"X: expected values of at most 3\.4e\+38 \(float32\), got larger ones"):
        ArraySource(np.array([[0.0, value]]), (2,), "float32")
    ArraySource(np.array([[0.0, value]]), (2,), "float64")


SIGNAL, TABLE = np.zeros((50, 1, 200), "f4"), np.zeros((50, 5))


@pytest.mark.parametrize(
    ("inputs", "got"),
    [
        ([SIGNAL, TABLE], r"got a list of 2 inputs, \(50, 1, 200\) and \(50, 5\)"),
        ((SIGNAL[:, 0], TABLE, TABLE), r"got a tuple of 3 inputs, \(50, 200\) and \(50, 5\) and \(50, 5\)"),
        ({"signal": SIGNAL, "table": TABLE}, r"got a dict of 2 inputs, \(50, 1, 200\) and \(50, 5\)"),
        ({"one": TABLE, "other": TABLE}, r"got a dict of 2 inputs, \(50, 5\) and \(50, 5\)"),
        ([np.zeros((50, 5)), np.zeros((50, 200))], r"got a list of 2 inputs, \(50, 5\) and \(50, 200\)"),
    ],
)
def test_several_inputs_are_told_to_stand_side_by_side(inputs, got):
    trainer = Trainer(Sequential([Dense(2)], (205,)), "softmax_cross_entropy", SGD(0.1))
    unbuilt = Trainer(Sequential([Dense(2)]), "softmax_cross_entropy", SGD(0.1))
    y = np.zeros(50, int)
    remedy = r"X: expected one array, GOT: put them side by side, np\.hstack\(.*\), .* Parallel with Columns, as in"
    for call in (trainer.model.predict, lambda X: trainer.fit(X, y), lambda X: unbuilt.fit(X, y)):
        with pytest.raises(InputError, match=remedy.replace("GOT", got)):
            call(inputs)
    assert unbuilt.model.network is None


def test_two_inputs_of_one_shape():
    model = Sequential([Dense(2)], (10,))
    with pytest.raises(InputError, match=r"X: expected shape \(n, 10\), got \(2, 50, 5\), a list of 2 inputs, .*"):
        model.predict([TABLE, TABLE])
    with pytest.raises(InputError, match=r"X: expected shape \(n, 10\), got \(2, 50, 6\)$"):
        model.predict([np.zeros((50, 6))] * 2)


def test_the_remedy_for_several_inputs_works():
    rows = np.hstack([x.reshape(len(x), -1) for x in [SIGNAL, TABLE]])
    assert Sequential([Dense(2)], (205,)).predict(rows).shape == (50, 2)
