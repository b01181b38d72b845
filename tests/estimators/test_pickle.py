"""Pickles and copies of estimators: bit-identical now and in further training; damage is always detected."""

import copy
import pickle
import subprocess
import sys

import joblib
import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone

from minidl import Layer, callbacks
from minidl.estimators import SequentialClassifier, SequentialRegressor
from minidl.layers import BatchNorm1D, Dense, Dropout, ReLU
from minidl.losses import Huber, Pinball
from minidl.optimizers import SGD
from minidl.saving.safetensors_file import FileError
from minidl.schedules import Cosine

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 5)).astype("float32")
Y = np.array(["a", "b", "c"])[np.arange(60) % 3]


class Scale(Layer):
    """A user's layer with an argument and a parameter."""

    def __init__(self, by=1.0):
        super().__init__()
        self.by = by

    def build(self, in_shape):
        self.gain = self.param("gain", (1,), lambda rng, shape: np.ones(shape))
        return in_shape

    def forward(self, x, training):
        self.x = x
        return x * (self.by * self.gain.value)

    def backward(self, dy):
        self.gain.grad[...] = (dy * self.x).sum() * self.by
        return dy * (self.by * self.gain.value)


class Momentum:
    def __init__(self, lr):
        self.lr, self.seen = lr, {}

    def step(self, params, lr):
        for name, p in params.items():
            v = self.seen[name] = 0.9 * self.seen.get(name, 0) + p.grad
            p.value -= p.value.dtype.type(lr) * v


def squared_error(scores, y):
    error = scores - np.eye(3, dtype=scores.dtype)[y]
    return (error**2).sum(axis=1), 2 * error


def make_net(outputs):
    return [Dense(8), BatchNorm1D(), ReLU(), Dropout(0.2), Dense(outputs)]


OPTIONS = {"epochs": 3, "batch_size": 20, "random_state": 0}
CASES = {
    "the default": (SequentialClassifier(**OPTIONS), Y),
    "a function": (SequentialClassifier(make_net, **OPTIONS), Y),
    "float64": (SequentialClassifier(make_net, dtype="float64", **OPTIONS), Y),
    "a schedule": (SequentialClassifier(make_net, optimizer=SGD(Cosine(0.1, 100), momentum=0.9), **OPTIONS), Y),
    "a user's": (
        SequentialClassifier([Scale(2.0), Dense(3)], loss=squared_error, optimizer=Momentum(0.001), **OPTIONS),
        Y,
    ),
    "early stopping": (SequentialClassifier(make_net, early_stopping=True, **OPTIONS), Y),
    "many labels": (SequentialClassifier(make_net, **OPTIONS), RNG.random((60, 2)) > 0.5),
    "numbers": (SequentialRegressor(make_net, loss=Huber(2.0), **OPTIONS), RNG.normal(size=(60, 2))),
    "quantiles": (
        SequentialRegressor(make_net, loss=Pinball([0.1, 0.9]), early_stopping=True, **OPTIONS),
        RNG.normal(size=60),
    ),
    "rates": (SequentialRegressor(make_net, loss="poisson", early_stopping=True, **OPTIONS), RNG.poisson(3, 60)),
}


def by_joblib(fitted, folder):
    joblib.dump(fitted, folder / "fitted.joblib", compress=3)
    return joblib.load(folder / "fitted.joblib")


WAYS = {
    "pickle": lambda fitted, folder: pickle.loads(pickle.dumps(fitted)),
    "the oldest protocol": lambda fitted, folder: pickle.loads(pickle.dumps(fitted, protocol=0)),
    "deepcopy": lambda fitted, folder: copy.deepcopy(fitted),
    "copy": lambda fitted, folder: copy.copy(fitted),
    "joblib": by_joblib,
    "twice": lambda fitted, folder: copy.deepcopy(pickle.loads(pickle.dumps(fitted))),
}


def observe(fitted):
    """Returns everything observable about an estimator."""
    weights = {name: value.tobytes() for name, value in fitted.model_.state_dict().items()}
    history = {name: np.array(values).tobytes() for name, values in fitted.trainer_.history.items()}
    noted = (fitted.n_iter_, repr(fitted.validation_scores_), fitted.input_shape_, fitted.n_features_in_)
    return weights, history, noted, fitted.predict(X).tobytes(), fitted.trainer_.step, fitted.trainer_.seed


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("estimator, y", CASES.values(), ids=CASES)
def test_a_copy_is_the_same_now_and_later(estimator, y, way, tmp_path):
    fitted = clone(estimator).fit(X, y)
    copied = way(fitted, tmp_path)
    assert observe(copied) == observe(fitted)
    if way is WAYS["copy"]:
        return  # it shares the trainer, as shallow copies do
    for one in (fitted, copied):
        one.set_params(early_stopping=False)  # for partial_fit
    before = observe(fitted)
    copied.partial_fit(X, y)
    assert observe(fitted) == before != observe(copied)
    fitted.partial_fit(X, y)
    for trainer in (fitted.trainer_, copied.trainer_):
        del trainer.history["images_per_second"]
    assert observe(copied) == observe(fitted)


CALLBACKS = {
    "CSVLogger": lambda: callbacks.CSVLogger("log.csv", overwrite=True),
    "Checkpoint": lambda: callbacks.Checkpoint("run.safetensors"),
    "EarlyStopping": lambda: callbacks.EarlyStopping("val_loss", patience=9),
    "ExponentialMovingAverage": lambda: callbacks.ExponentialMovingAverage(0.9, start_step=5),
    "JSONLLogger": lambda: callbacks.JSONLLogger("log.jsonl", overwrite=True),
    "Receipt": lambda: callbacks.Receipt("receipt.json"),
    "ReduceLROnPlateau": lambda: callbacks.ReduceLROnPlateau("val_loss"),
    "TensorBoard": lambda: callbacks.TensorBoard("board", overwrite=True),
    "TimeLimit": lambda: callbacks.TimeLimit(60),
}


def bits(arrays):
    return {name: array.tobytes() for name, array in arrays.items()}


@pytest.mark.parametrize("name", callbacks.__all__)
def test_callbacks_of_a_fit_are_pickled_too(name, tmp_path, monkeypatch):
    if name == "TensorBoard":
        pytest.importorskip("tensorboardX")
    monkeypatch.chdir(tmp_path)
    callback = CALLBACKS[name]()
    fitted = SequentialClassifier(make_net, early_stopping=True, callbacks=[callback], **OPTIONS).fit(X, Y)
    copied = pickle.loads(pickle.dumps(fitted))
    assert observe(copied) == observe(fitted)
    ((used,), (loaded,)) = fitted.callbacks_, copied.callbacks_
    if name == "EarlyStopping":
        assert (loaded.best, loaded.best_epoch) == (used.best, used.best_epoch) != (None, None)
    if name == "ExponentialMovingAverage":
        again = pickle.loads(pickle.dumps(loaded)), copy.deepcopy(loaded)
        assert all(bits(one.averages) == bits(used.averages) and one.start_step == 5 for one in (loaded, *again))
    assert copied.fit(X, Y).n_iter_ == OPTIONS["epochs"]


@pytest.mark.parametrize("estimator, y", CASES.values(), ids=CASES)
def test_unfitted_estimators(estimator, y):
    for copied in (clone(estimator), pickle.loads(pickle.dumps(estimator)), copy.deepcopy(estimator)):
        assert not hasattr(copied, "trainer_")
        np.testing.assert_array_equal(copied.fit(X, y).predict(X), clone(estimator).fit(X, y).predict(X))


def test_a_copy_continues_after_a_refused_partial_fit():
    fitted = SequentialClassifier(make_net, **OPTIONS).fit(X, Y)
    with pytest.raises(ValueError, match="features"):
        fitted.partial_fit(X[:, :4], Y)
    copied = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copied.partial_fit(X, Y).predict(X), fitted.partial_fit(X, Y).predict(X))


def test_sparse_data_and_pickles():
    fitted = SequentialClassifier(make_net, **OPTIONS).fit(scipy.sparse.csr_matrix(X), Y)
    assert pickle.loads(pickle.dumps(fitted)).predict(X).tolist() == fitted.predict(X).tolist()


def test_a_damaged_pickle_never_gives_wrong_weights():
    """The checkpoint in it is verified like a file: a flip of any bit, in header or tensors, is detected."""
    fitted = SequentialClassifier([Dense(3)], epochs=1, random_state=0).fit(X, Y)
    content = pickle.dumps(fitted)
    begin = content.index(b'{"__metadata__"') - 8
    length = int.from_bytes(content[begin : begin + 8], "little")
    tensors = begin + 8 + length
    weight = fitted.model_.state_dict()["0.weight"].tobytes()
    assert weight in content[tensors:]
    end = content.rindex(weight) + len(weight)
    for bit in (*range(begin, tensors, 53), *range(tensors, end)):
        damaged = bytearray(content)
        damaged[bit] ^= 1 << (bit % 8)
        with pytest.raises((FileError, pickle.UnpicklingError, EOFError)):
            pickle.loads(damaged)


CHILD = """
import sys, pickle
import numpy as np
fitted, X, y = pickle.load(open(sys.argv[1], "rb"))
assert "torch" not in sys.modules
scores = fitted.model_.predict(X)
fitted.partial_fit(X, y)
pickle.dump((scores, fitted), open(sys.argv[1] + ".out", "wb"))
"""


def test_another_process_loads_it_and_trains_on(tmp_path):
    """With no import but pickle."""
    fitted = SequentialClassifier([Dense(8), BatchNorm1D(), ReLU(), Dense(3)], **OPTIONS).fit(X, Y)
    path = tmp_path / "fitted.pickle"
    path.write_bytes(pickle.dumps((fitted, X, Y)))
    subprocess.run([sys.executable, "-c", CHILD, str(path)], check=True)
    scores, trained = pickle.loads((tmp_path / "fitted.pickle.out").read_bytes())
    np.testing.assert_array_equal(scores, fitted.model_.predict(X))
    np.testing.assert_array_equal(trained.predict_proba(X), fitted.partial_fit(X, Y).predict_proba(X))


def test_lambdas_and_notebook_classes_reach_other_processes():
    """joblib's processes pickle by value what belongs to no module."""

    class Local(Scale):
        pass

    def fitted_elsewhere(by):
        model = lambda outputs: [Local(by), Dense(4), ReLU(), Dense(outputs)]  # noqa: E731
        loss = lambda scores, y: squared_error(scores, y)  # noqa: E731
        return SequentialClassifier(model, loss=loss, lr=lambda step: 0.01 / (1 + step), **OPTIONS)

    local = [fitted_elsewhere(by).fit(X, Y) for by in (1.0, 2.0)]
    there = joblib.Parallel(n_jobs=2)(joblib.delayed(fitted_elsewhere(by).fit)(X, Y) for by in (1.0, 2.0))
    for one, other in zip(local, there, strict=True):
        np.testing.assert_array_equal(one.model_.predict(X), other.model_.predict(X))
        other.partial_fit(X, Y)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(local[0])
