"""Sparse matrices as X: read a few rows at a time, bit-identical to dense ones."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse

from minidl import Sequential, Trainer
from minidl.layers import Conv2D, Dense, Flatten, ReLU
from minidl.optimizers import SGD
from minidl.utils.data import ArraySource
from minidl.utils.sparse import SparseRows, is_sparse

RNG = np.random.default_rng(0)
DENSE = np.where(RNG.random((50, 12)) > 0.7, RNG.integers(-4, 5, (50, 12)), 0).astype("float32")
Y = RNG.integers(0, 3, 50)
KINDS = [f"{name}_{form}" for name in ("csr", "csc", "coo", "lil", "dok", "bsr", "dia") for form in ("matrix", "array")]
pytestmark = pytest.mark.filterwarnings("ignore::scipy.sparse.SparseEfficiencyWarning")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint64", "bool"])
def test_rows_match_the_dense_matrix(kind, dtype):
    dense = abs(DENSE).astype(dtype)
    matrix = getattr(scipy.sparse, kind)(dense)
    rows = SparseRows(matrix, "X")
    assert is_sparse(matrix) and len(rows) == 50 and rows.shape == (50, 12) and rows.dtype == dtype
    for chosen in (slice(3, 9), np.array([7, 0, 7, 49]), np.array([], int)):
        assert rows[chosen].dtype == dtype and rows[chosen].flags.c_contiguous
        np.testing.assert_array_equal(rows[chosen], dense[chosen])
    for computed in ("float32", "float64"):
        on_sparse, on_dense = ArraySource(matrix, (12,), computed), ArraySource(dense, (3, 2, 2), computed)
        np.testing.assert_array_equal(on_sparse.chunk(10, 60), on_dense.chunk(10, 60))
        np.testing.assert_array_equal(on_sparse.gather_copy(np.array([5, 1])), on_dense.gather_copy(np.array([5, 1])))
        assert on_sparse.gather_copy(np.array([5, 1])).dtype == computed


def test_duplicate_entries_are_summed_and_explicit_zeros_are_allowed():
    matrix = scipy.sparse.csr_matrix((np.array([1.0, 2.0, 0.0]), np.array([1, 1, 0]), np.array([0, 2, 3])), (2, 3))
    np.testing.assert_array_equal(SparseRows(matrix, "X")[0:2], [[0, 3, 0], [0, 0, 0]])
    assert matrix.nnz == 3  # the given matrix is not changed
    unsorted = scipy.sparse.csr_matrix((np.array([1.0, 2.0]), np.array([2, 0]), np.array([0, 2])), (1, 3))
    np.testing.assert_array_equal(SparseRows(unsorted, "X")[0:1], [[2, 0, 1]])


def test_a_sum_that_overflows_the_dtype_is_refused():
    huge = np.full(2, 3e38, "float32")
    matrix = scipy.sparse.csr_matrix((huge, np.array([1, 1]), np.array([0, 2])), (1, 3))
    with np.errstate(over="ignore"), pytest.raises(ValueError, match="X: expected finite values"):
        ArraySource(matrix, (3,), "float32")


@pytest.mark.parametrize("shape", [(12,), (5, 3, 4)])
def test_other_numbers_of_axes_are_refused(shape):
    with pytest.raises(ValueError, match="X: expected a sparse matrix of two axes, got shape"):
        ArraySource(scipy.sparse.coo_array(np.ones(shape)), (12,), "float32")


def train(X, **options):
    layers = [Conv2D(2, 2), ReLU(), Flatten(), Dense(3)]
    trainer = Trainer(Sequential(layers, (3, 2, 2)), "softmax_cross_entropy", SGD(0.1, 0.9), ["accuracy"])
    trainer.fit(X, Y, epochs=3, batch_size=16, verbose=0, **options)
    return trainer


@pytest.mark.parametrize(
    "options", [{}, {"validation_split": 0.2}, {"gradient_accumulation_steps": 2}, {"shuffle": False}], ids=str
)
def test_training_and_prediction_match_dense_input_bit_for_bit(options):
    matrix = scipy.sparse.csr_array(DENSE)
    on_sparse, on_dense = train(matrix, **options), train(DENSE, **options)
    assert {k: v for k, v in on_sparse.history.items() if "_per_" not in k} == {
        k: v for k, v in on_dense.history.items() if "_per_" not in k
    }
    np.testing.assert_array_equal(on_sparse.model.predict(matrix), on_dense.model.predict(DENSE))
    np.testing.assert_array_equal(on_sparse.model.forward(matrix), on_dense.model.predict(DENSE))
    assert on_sparse.evaluate(matrix, Y) == on_dense.evaluate(DENSE, Y)
    assert on_sparse.train_batch(matrix, Y) == on_dense.train_batch(DENSE, Y)


def test_validation_data():
    matrix = scipy.sparse.csr_array(DENSE)
    first, second = (train(DENSE, validation_data=(held, Y)).history for held in (matrix, DENSE))
    assert first["val_loss"] == second["val_loss"] and len(first["val_accuracy"]) == 3


def test_an_unbuilt_model_is_built_for_the_number_of_columns():
    model = Sequential([Dense(3)])
    Trainer(model, "softmax_cross_entropy", SGD(0.1)).fit(scipy.sparse.csr_matrix(DENSE), Y, verbose=0)
    assert model.input_shape == (12,)


class Interrupt:
    def on_step_end(self, trainer, step, loss):
        if step == 2:
            raise KeyboardInterrupt


def test_a_fit_is_completed_only_with_the_same_matrix():
    """The same numbers in another format count as the same; different numbers are detected."""
    matrix = scipy.sparse.csr_matrix(DENSE)
    trainer = Trainer(Sequential([Dense(3)], (12,)), "softmax_cross_entropy", SGD(0.1))
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(matrix, Y, batch_size=10, verbose=0, callbacks=[Interrupt()])
    other, unsorted = matrix.copy(), matrix.copy()
    other.data[3] += 1
    for start, end in itertools.pairwise(matrix.indptr):
        for array in (unsorted.indices, unsorted.data):
            array[start:end] = array[start:end][::-1].copy()
    unsorted.has_sorted_indices = False
    np.testing.assert_array_equal(unsorted.toarray(), DENSE)
    arguments = trainer.interrupted.arguments
    same_ones, others = (matrix.tocsc(), matrix.tocoo(), unsorted), (other, matrix.astype(float))
    for given, same in (*((one, True) for one in same_ones), *((one, False) for one in others)):
        assert (ArraySource(given, (12,), "float32").fingerprint() == arguments["X"]) is same
    trainer.fit(matrix.tocsc(), Y, batch_size=10, verbose=0)
    assert trainer.step == 5 and trainer.epoch == 1


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_are_refused(value):
    matrix = scipy.sparse.csr_matrix(DENSE)
    matrix.data[4] = value
    with pytest.raises(ValueError, match=r"^X: expected finite values, got NaN or infinity$"):
        ArraySource(matrix, (12,), "float32")


def test_anything_but_a_real_matrix_is_refused():
    for given, kind, message in (
        (scipy.sparse.csr_matrix(DENSE * 1j), TypeError, "X: expected real numbers, got dtype complex64"),
        (scipy.sparse.csr_matrix(DENSE[:, :11]), ValueError, r"X: expected shape \(n, 12\), got \(50, 11\)"),
        (scipy.sparse.csr_matrix(DENSE.astype(float) * 1e300), ValueError, "X: expected values of at most"),
    ):
        with pytest.raises(kind, match=message):
            ArraySource(given, (12,), "float32")
    assert not is_sparse(DENSE) and not is_sparse(None) and not is_sparse([[1]])


def test_targets_and_weights_must_be_dense():
    model = Sequential([Dense(12)], (12,))
    with pytest.raises(TypeError, match="y: expected a dense array, got csr_matrix: call its toarray"):
        Trainer(model, "mean_squared_error", SGD(0.1)).fit(DENSE, scipy.sparse.csr_matrix(DENSE), verbose=0)


def test_fewer_rows_are_read_at_once_where_rows_are_large():
    few = ArraySource(scipy.sparse.csr_matrix((10_000, 2**20), dtype="float32"), (2**20,), "float32")
    assert few.chunk_size == 16
    assert [block.shape for _, block in few.chunks(1024)][:1] == [(16, 2**20)]


def test_scipy_is_not_imported_for_it():
    code = "import sys, minidl; minidl.utils.data.ArraySource([[1]], (1,), 'float32'); print('scipy' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
