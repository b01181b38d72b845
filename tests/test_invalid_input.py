"""Invalid input is refused by name and changes nothing. Arrays that must work: utils/test_data.py.

Layers' own arguments are tested in tests/layers/. After each refusal a step is compared with that of a twin trainer
that never saw the bad call, so a change of weights, velocity, counters or history would show.
"""

import re

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from minidl import Sequential, Trainer
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU, Rescale
from minidl.optimizers import SGD

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 17, (40, 1, 6, 6)).astype(np.uint8)
X, Y = PIXELS.astype("float32"), RNG.integers(0, 3, 40)
RAGGED = [[1, 2], [3]]


def changed_at(array, index, value):
    array = np.array(array)
    array[index] = value
    return array


def make_trainer(dtype="float32", shape=(1, 6, 6)):
    layers = [Rescale(1 / 16), Conv2D(3, 3), ReLU(), MaxPool2D(2), Flatten(), Dense(3)]
    model = Sequential(layers, input_shape=shape, dtype=dtype)
    return Trainer(model, "softmax_cross_entropy", SGD(0.1, momentum=0.9), ["accuracy"], num_threads=1)


def state(trainer):
    params = trainer.model.params
    arrays = {name: (p.value.tobytes(), p.grad.tobytes()) for name, p in params.items()}
    return arrays, trainer.step, trainer.epoch, {k: list(v) for k, v in trainer.history.items()}


@pytest.fixture
def refuses():
    """Makes calls with a trained trainer; checks the error, and that it left no trace."""

    def check(call, error, message):
        __tracebackhide__ = True
        trainer, twin = make_trainer(), make_trainer()
        for each in (trainer, twin):
            each.train_batch(X, Y)
        before = state(trainer)
        with pytest.raises(error, match=message):
            call(trainer)
        assert state(trainer) == before
        for each in (trainer, twin):
            each.train_batch(X, Y)
        assert state(trainer) == state(twin)

    return check


# ---- X
BAD_X = [
    (None, TypeError, "got None"),
    (3, ValueError, r"got shape \(\)"),
    (X[0, 0, 0], ValueError, r"got shape \(6,\)"),
    (X[0], ValueError, r"expected shape \(n, 1, 6, 6\) or \(n, 36\), got \(1, 6, 6\)"),
    (X[:, 0], ValueError, r"\(n, 1, 6, 6\) or \(n, 36\), got \(40, 6, 6\)"),
    (X[..., None], ValueError, r"got \(40, 1, 6, 6, 1\)"),
    (X[:, :, 1:], ValueError, r"got \(40, 1, 5, 6\)"),
    (np.repeat(X, 2, axis=1), ValueError, r"got \(40, 2, 6, 6\)"),
    (X.transpose(0, 2, 3, 1), ValueError, r"got \(40, 6, 6, 1\)"),
    (X.reshape(40, 36)[:, :-1], ValueError, r"got \(40, 35\)"),
    (np.zeros((40, 0)), ValueError, r"got \(40, 0\)"),
    (changed_at(X, (39, 0, 5, 5), np.nan), ValueError, "finite values, got NaN"),
    (changed_at(X, (0, 0, 0, 0), np.inf), ValueError, "finite values"),
    (changed_at(X, 7, -np.inf).astype("f2"), ValueError, "finite values"),
    (X.astype(complex), TypeError, "real numbers, got dtype complex128"),
    (X.astype(object), TypeError, "real numbers, got dtype object"),
    (X.astype(str), TypeError, "real numbers, got dtype <U"),
    (np.zeros((40, 1, 6, 6), "M8[s]"), TypeError, "real numbers, got dtype datetime64"),
    (np.zeros((40, 36), [("a", "f4")]), TypeError, "real numbers, got dtype"),
    ("X.csv", TypeError, "real numbers"),
    ({"a": X}, TypeError, "real numbers"),
    ((row for row in X), TypeError, "generator"),
    (RAGGED, ValueError, ""),
    (np.ma.masked_array(X, X > 8), TypeError, "masked"),
    (csr_matrix(X.reshape(40, 36)[:, :30]), ValueError, r"shape \(n, 1, 6, 6\) or \(n, 36\), got \(40, 30\)"),
    (csr_matrix(X.reshape(40, 36).astype(complex)), TypeError, "real numbers, got dtype complex128"),
    (csr_matrix(changed_at(X, (0, 0, 0, 0), np.nan).reshape(40, 36)), ValueError, "finite values, got NaN"),
]
ENTRIES = {
    "predict": lambda trainer, X: trainer.model.predict(X),
    "predict_proba": lambda trainer, X: trainer.model.predict_proba(X),
    "forward": lambda trainer, X: trainer.model.forward(X, training=True),
    "evaluate": lambda trainer, X: trainer.evaluate(X, Y),
    "train_batch": lambda trainer, X: trainer.train_batch(X, Y),
    "fit": lambda trainer, X: trainer.fit(X, Y, verbose=0),
}


def case_id(value):
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}"
    return type(value).__name__


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(("bad", "error", "message"), BAD_X, ids=case_id)
def test_x(refuses, entry, bad, error, message):
    refuses(lambda trainer: ENTRIES[entry](trainer, bad), error, f"^X: .*{message}")


# ---- y, weights
BAD_Y = [
    (None, TypeError, "got None"),
    (1, ValueError, "40 targets.*got a single number"),
    (Y[:-1], ValueError, "40 targets.*got 39"),
    (np.r_[Y, 0], ValueError, "40 targets.*got 41"),
    ([], ValueError, "40 targets.*got 0"),
    (changed_at(Y, 39, 3), ValueError, r"labels from 0 to 2 .*3 outputs.* got labels from 0 to 3"),
    (changed_at(Y, 0, -1), ValueError, "got labels from -1 to 2"),
    (Y.astype(float), TypeError, "integer labels, got dtype float64"),
    (Y.astype(str), TypeError, "integer labels, got dtype <U"),
    (Y.astype(object), TypeError, "integer labels, got dtype object"),
    (Y[:, None], ValueError, r"one label per example.*got \(40, 1\)"),
    (np.eye(4, dtype=int)[Y], ValueError, r"one label per example.*got \(40, 4\)"),
    (-np.eye(3)[Y], ValueError, "probabilities of at least 0, got -1"),
    (changed_at(np.eye(3)[Y], (5, 0), np.nan), ValueError, "finite values, got NaN"),
]
TRAINING = ["fit", "train_batch", "evaluate"]


@pytest.mark.parametrize("entry", TRAINING)
@pytest.mark.parametrize(("bad", "error", "message"), BAD_Y, ids=case_id)
def test_y(refuses, entry, bad, error, message):
    options = {"verbose": 0} if entry == "fit" else {}
    refuses(lambda t: getattr(t, entry)(X, bad, **options), error, f"^y: expected .*{message}")


@pytest.mark.parametrize("entry", TRAINING)
@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (np.ones(39), ValueError, r"expected shape \(40,\), got \(39,\)"),
        (np.ones((40, 1)), ValueError, r"got \(40, 1\)"),
        (1.0, ValueError, r"got \(\)"),
        (changed_at(np.ones(40), 3, -1), ValueError, "finite weights of at least 0"),
        (changed_at(np.ones(40), 3, np.nan), ValueError, "finite weights"),
        (changed_at(np.ones(40), 3, np.inf), ValueError, "finite weights"),
        (np.zeros(40), ValueError, "above 0, got zeros"),
        (np.full(40, "1"), TypeError, "real numbers, got dtype <U1"),
        (np.ones(40, complex), TypeError, "real numbers, got dtype complex128"),
        (np.ones(40, object), TypeError, "real numbers, got dtype object"),
    ],
    ids=case_id,
)
def test_sample_weight(refuses, entry, bad, error, message):
    refuses(lambda t: getattr(t, entry)(X, Y, sample_weight=bad), error, f"^sample_weight: .*{message}")


# ---- other arguments of fit
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"epochs": -1}, ValueError, "epochs: .*got -1"),
        ({"epochs": 1.5}, TypeError, r"epochs: .*got 1\.5"),
        ({"epochs": None}, TypeError, "epochs: .*got None"),
        ({"batch_size": 0}, ValueError, "batch_size: .*got 0"),
        ({"batch_size": "8"}, TypeError, "batch_size: .*got '8'"),
        ({"batch_size": None}, TypeError, "batch_size: .*got None"),
        ({"validation_split": -0.1}, ValueError, r"validation_split: .*got -0\.1"),
        ({"validation_split": 1}, ValueError, "validation_split: .*got 1"),
        ({"validation_split": np.nan}, ValueError, "validation_split: .*got nan"),
        ({"validation_split": "half"}, TypeError, "validation_split: .*half"),
        ({"validation_split": 0.01}, ValueError, "validation_split: "),  # fewer rows than classes
        ({"validation_split": 0.2, "validation_data": (X, Y)}, ValueError, "got both"),
        ({"validation_data": X}, TypeError, "validation_data: "),
        ({"validation_data": (X,)}, (TypeError, ValueError), "validation_data: "),
        ({"validation_data": (None, Y)}, TypeError, "validation_data.*got None"),
        ({"validation_data": (X[:, 0], Y)}, ValueError, r"validation_data.*\(40, 6, 6\)"),
        ({"validation_data": (X, Y + 1)}, ValueError, "validation_data.*labels from 1 to 3"),
        ({"validation_data": (X, Y[:-1])}, ValueError, "validation_data.*40 targets"),
        ({"validation_data": 3}, TypeError, "validation_data: "),
        (
            {"validation_data": (X, Y, Y, Y)},
            TypeError,
            r"expected \(X, y\) or \(X, y, sample_weight\), got a tuple of 4",
        ),
        ({"validation_data": (X, Y, np.ones(39))}, ValueError, r"validation_data: sample_weight.* \(40,\)"),
        ({"class_weight": "even"}, TypeError, "class_weight: .*got 'even'"),
        ({"class_weight": [1, 2, 3]}, TypeError, "class_weight: "),
        ({"class_weight": {0: -1}}, ValueError, "class_weight: "),
        ({"class_weight": {0: np.nan}}, ValueError, "class_weight: "),
        ({"class_weight": {0: "a"}}, (TypeError, ValueError), "class_weight: "),
        ({"class_weight": dict.fromkeys(range(3), 0)}, ValueError, "class_weight: "),
        ({"class_weight": {3: 2.0}}, ValueError, "class_weight: .*3"),
        ({"class_weight": {0: 0}, "sample_weight": Y == 0}, ValueError, "weight"),
        ({"callbacks": [print]}, TypeError, "callbacks: "),
        ({"callbacks": 3}, TypeError, "callbacks: "),
        ({"verbose": 3}, ValueError, "verbose: .*got 3"),
    ],
    ids=lambda value: str(list(value)) if isinstance(value, dict) else None,
)
def test_arguments_of_fit(refuses, options, error, message):
    refuses(lambda t: t.fit(X, Y, **{"verbose": 0} | options), error, message)


@pytest.mark.parametrize(
    ("lr", "error"), [(lambda s: -1, ValueError), (lambda s: np.nan, ValueError), ("x", TypeError)]
)
def test_invalid_learning_rates(refuses, lr, error):
    def call(trainer):
        good, trainer.optimizer.lr = trainer.optimizer.lr, lr
        try:
            trainer.train_batch(X, Y)
        finally:
            trainer.optimizer.lr = good

    refuses(call, error, "lr: ")


@pytest.mark.parametrize(
    ("threads", "error"), [(0, ValueError), (-1, ValueError), (5000, ValueError), (1.5, TypeError)]
)
def test_num_threads(refuses, threads, error):
    message = f"num_threads: .*got {re.escape(str(threads))}"
    refuses(lambda t: t.model.predict(X, num_threads=threads), error, message)


# ---- by hand
@pytest.mark.parametrize(
    ("dy", "error", "message"),
    [
        (None, TypeError, "got"),
        (np.ones((39, 3)), ValueError, r"expected shape \(40, 3\), got \(39, 3\)"),
        (np.ones((40, 4)), ValueError, r"got \(40, 4\)"),
        (np.ones(3), ValueError, r"got \(3,\)"),
        (1.0, ValueError, r"got \(\)"),
        (np.ones((40, 3), complex), TypeError, "real numbers, got dtype complex128"),
        (np.full((40, 3), "a"), TypeError, "real numbers, got dtype <U1"),
    ],
    ids=case_id,
)
def test_dy(refuses, dy, error, message):
    def call(trainer):
        trainer.model.forward(X, training=True)
        trainer.model.backward(dy)

    refuses(call, error, f"^dy: .*{message}")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda s: s.pop("1.bias"), ValueError, r"missing \['1\.bias'\], unknown \[\]"),
        (lambda s: s.update({"9.bias": 0}), ValueError, r"missing \[\], unknown \['9\.bias'\]"),
        (lambda s: s.update({"5.bias": np.zeros(4)}), ValueError, r"'5\.bias'.*\(3,\), got \(4,\)"),
        (lambda s: s.update({"5.bias": 0.0}), ValueError, r"'5\.bias'.*\(3,\), got \(\)"),
        (lambda s: s.update({"5.weight": s["5.weight"].T}), ValueError, r"'5\.weight'.*got \(12, 3"),
        (lambda s: s.update({"5.bias": [None] * 3}), TypeError, r"'5\.bias'.*real numbers"),
        (lambda s: s.update({"5.bias": ["a"] * 3}), TypeError, r"'5\.bias'.*real numbers"),
    ],
)
def test_load_state_dict(refuses, change, error, message):
    def call(trainer):
        changed = {name: value + 1 for name, value in trainer.model.state_dict().items()}
        change(changed)
        trainer.model.load_state_dict(changed)

    refuses(call, error, f"state.*{message}")


# ---- an unbuilt model stays unbuilt
@pytest.mark.parametrize(
    ("data", "options"),
    [
        ((X[:, 0, 0, 0], Y), {}),
        ((np.zeros((40, 1, 0, 6)), Y), {}),
        ((X[:, :, :2], Y), {}),  # the kernel does not fit
        ((changed_at(X, 3, np.nan), Y), {}),
        ((X, Y + 1), {}),
        ((X, Y[1:]), {}),
        ((X, Y), {"sample_weight": -np.ones(40)}),
        ((X, Y), {"epochs": -1}),
        ((X, Y), {"validation_split": 2}),
        ((X, Y), {"validation_data": (X, None)}),
        ((X, Y), {"callbacks": [3]}),
        ((X, Y), {"verbose": 7}),
    ],
)
def test_an_error_in_the_first_fit_leaves_the_model_unbuilt(data, options):
    model = Sequential([Conv2D(3, 3), Flatten(), Dense(3)])
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1))
    with pytest.raises((TypeError, ValueError)):
        trainer.fit(*data, **{"verbose": 0} | options)
    with pytest.raises(ValueError, match="not built yet"):
        _ = model.params
    trainer.fit(np.zeros((6, 2, 5, 5)), Y[:6], verbose=0)  # another shape: nothing was kept
    assert model.input_shape == (2, 5, 5)


def test_layer_errors_name_path_class_expected_and_got():
    for layers, message in (
        ([Conv2D(3, 3), Flatten(), Conv2D(2, 3)], r"layer 2, Conv2D.*\(48,\).*\(channels, height"),
        ([Conv2D(3, 3), ReLU(), Conv2D(2, 5)], r"layer 2, Conv2D.*\(3, 4, 4\).*5.*4"),
        ([MaxPool2D(4), MaxPool2D(2)], r"layer 1, MaxPool2D.*\(1, 1, 1\).*2.*1"),
        ([Flatten(), Dense(3), MaxPool2D(2)], r"layer 2, MaxPool2D.*\(3,\)"),
        ([Conv2D(3, 3), Dense(3)], r"layer 1, Dense.*\(3, 4, 4\).*Flatten"),
    ):
        with pytest.raises(ValueError, match=message):
            Sequential(layers, input_shape=(1, 6, 6))
