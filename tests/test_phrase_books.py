"""The phrase books in docs/coming-from/: code of minidl and scikit-learn in a row runs, with scikit-learn's numbers.

tests/oracles/test_phrases_torch.py and test_phrases_keras.py do the same for PyTorch and Keras.
"""

import inspect
import re

import numpy as np
import pytest
from phrase_books import ALL, ROWS, arrays, minidl_names, place, rows
from sklearn.neural_network import MLPClassifier, MLPRegressor

from minidl import Sequential
from minidl.estimators import SequentialClassifier, SequentialRegressor
from minidl.layers import Dense, Tanh
from minidl.optimizers import SGD
from minidl.utils import foreign_words
from minidl.utils.hints import plain

__all__ = ["place"]  # a fixture


def test_there_are_many_rows():
    assert len(ALL) > 200
    assert {row.library for row in ALL} == {"PyTorch", "torchvision", "Keras", "MLPClassifier"}


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.page[:-3]}: {' '.join(row.ours)}") for row in ALL])
def test_minidl_code_runs(row, place):
    for code in row.ours:
        assert not re.match(r"\w+ ?=", code), "an argument is shown in a call, where its name is checked"
        exec(code, minidl_names())


# ---- the answers to foreign words say the same

TABLES = {
    "layers": foreign_words.LAYERS,
    "losses": foreign_words.LOSSES,
    "metrics": foreign_words.METRICS,
    "optimizers": foreign_words.OPTIMIZERS,
    "optim": foreign_words.OPTIMIZERS,
    "schedules": foreign_words.SCHEDULES,
    "lr_scheduler": foreign_words.SCHEDULES,
    "callbacks": foreign_words.CALLBACKS,
    "model": foreign_words.MODEL,
    "module": foreign_words.MODEL,
    "nn": foreign_words.LAYERS | {f"{name}loss": answer for name, answer in foreign_words.LOSSES.items()},
}


def answered():
    """Returns the code in minidl of all rows that begin with a foreign word, by the answer to it."""
    found = {}
    for row in ALL:
        module, _, rest = (row.theirs or [""])[0].partition(".")
        word = re.match(r"\w*", rest)[0].lower().replace("_", "")
        words = TABLES.get(module, {})
        if row.ours and (answer := words.get(word) or words.get(plain(word))):
            found.setdefault(answer, []).extend(row.ours)
    return found


def names_in(text):
    """Returns the names that are called, quoted or attributes, in lower case without underscores."""
    return {name.lower().replace("_", "") for name in re.findall(r"(?:(?<=[.'\"])|(?=\w+\())([A-Za-z]\w+)", text)}


def test_many_answers_are_compared():
    assert len(answered()) > 60


@pytest.mark.parametrize(("answer", "ours"), answered().items())
def test_errors_answer_as_the_books_do(answer, ours):
    assert names_in(answer) & names_in(" ".join(ours)), ours


# ---- scikit-learn's numbers


def sklearn_names():
    X, y = arrays()
    mlp = MLPClassifier((8,), max_iter=2, random_state=0)
    return {"MLPClassifier": MLPClassifier, "MLPRegressor": MLPRegressor, "mlp": mlp.fit(X, y), "X": X, "y": y}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("row", rows("MLPClassifier"))
def test_sklearn_code_runs(row):
    for code in row.theirs:
        exec(code, sklearn_names())


def test_every_parameter_of_sklearn_networks_is_translated():
    shown = {
        name
        for row in ALL
        if row.library == "MLPClassifier"
        for code in row.theirs
        for name in re.findall(r"(\w+)=", code)
    }
    for estimator in (MLPClassifier, MLPRegressor):
        assert set(inspect.signature(estimator).parameters) <= shown


def one_fit(estimator, y, alpha, epochs, ours, optimizer):
    """Fits both from the same weights by steps on all rows; returns their weights."""
    X, _ = arrays()
    X = X.astype(float)
    settings = {"solver": "sgd", "learning_rate_init": 0.1, "batch_size": ROWS, "alpha": alpha, "warm_start": True}
    theirs = estimator(
        hidden_layer_sizes=(8,), activation="tanh", max_iter=1, random_state=0, shuffle=False, **settings
    ).fit(X, y)
    theirs.intercepts_ = [0 * bias for bias in theirs.intercepts_]
    model = Sequential([Dense(8), Tanh(), Dense(theirs.n_outputs_)], input_shape=(64,), dtype="float64")
    for i in (0, 1):
        model.params[f"{2 * i}.weight"].value[:] = theirs.coefs_[i].T
    theirs.set_params(max_iter=epochs, n_iter_no_change=epochs).fit(X, y)
    ours = ours(model, optimizer=optimizer, batch_size=ROWS, epochs=epochs, tol=None, shuffle=False).fit(X, y)
    return theirs.coefs_, [ours.model_.params[f"{2 * i}.weight"].value.T for i in (0, 1)]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_classifiers_take_sklearn_steps():
    y = arrays()[1]
    for expected, weights in zip(
        *one_fit(MLPClassifier, y, 0, 9, SequentialClassifier, SGD(0.1, 0.9, nesterov=True)), strict=True
    ):
        np.testing.assert_allclose(weights, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_penalty_is_weight_decay_divided_by_the_batch():
    """Of weights; in one step from zero, biases do not decay."""
    optimizer = SGD(0.1, 0.9, nesterov=True, weight_decay=5 / ROWS)
    for expected, weights in zip(
        *one_fit(MLPClassifier, arrays()[1], 5, 1, SequentialClassifier, optimizer), strict=True
    ):
        np.testing.assert_allclose(weights, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_regressors_minimize_half_of_the_squared_error():
    y = arrays()[0][:, 0]
    y = (y - y.mean()) / y.std()  # as the targets of SequentialRegressor are
    for expected, weights in zip(
        *one_fit(MLPRegressor, y, 0, 9, SequentialRegressor, SGD(0.05, 0.9, nesterov=True)), strict=True
    ):
        np.testing.assert_allclose(weights, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_inverse_scaling_has_sklearn_rates(place, rng):
    """At the beginning of each epoch: scikit-learn keeps the rate of an epoch."""
    (row,) = [row for row in ALL if "invscaling" in "".join(row.theirs)]
    ours = eval(row.ours[0], minidl_names()).lr
    theirs = eval(row.theirs[0], sklearn_names()).set_params(solver="sgd", max_iter=1, warm_start=True)
    X = rng.standard_normal((400, 4))
    for epoch in range(1, 5):
        theirs.fit(X, np.arange(400) % 2)
        assert theirs._optimizer.learning_rate == pytest.approx(ours(2 * theirs.t_ // 400))
        assert theirs.t_ == 400 * epoch
