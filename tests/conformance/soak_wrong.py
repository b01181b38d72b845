"""Invalid calls of the public API, which must raise and leave the model unchanged, and calls with a junk argument."""

import copy
import inspect

import numpy as np

import minidl
from minidl import Sequential, Trainer
from minidl.callbacks import EarlyStopping
from minidl.estimators import SequentialClassifier
from minidl.layers import Conv2D, Dense, Dropout, GroupNorm, MaxPool2D, Reshape
from minidl.optimizers import SGD, Adam
from minidl.schedules import Cosine

try:
    from minidl.onnx import export, import_model
except ImportError:
    export = import_model = None


def garbage(w):
    """Writes a file of random bytes; returns its path."""
    path = w.folder / "garbage"
    path.write_bytes(w.rng.bytes(int(w.rng.integers(0, 300))))
    return path


def with_nan(w):
    X = w.X.copy()
    X.flat[int(w.rng.integers(X.size))] = np.nan
    return X


def changed_state(w, change):
    state = dict(w.model.state_dict())
    change(state, next(iter(state)))
    return state


def with_rate_nan(w):
    twin = copy.deepcopy(w.trainer)
    twin.optimizer.lr = float("nan")
    twin.train_batch(w.X, w.y)


def after_forward(w):
    """Returns a copy of the model after a forward, which may have updated running statistics."""
    twin = copy.deepcopy(w.model)
    twin.forward(w.X, training=True)
    return twin


def fitted(w, **arguments):
    return SequentialClassifier([Dense(3)], epochs=1).set_params(**arguments).fit(w.X.reshape(len(w.X), -1), w.y)


REFUSED = {  # the mistake: the call
    "labels below 0": lambda w: w.trainer.train_batch(w.X, w.y - 9),
    "labels above the number of classes": lambda w: w.trainer.fit(w.X, w.y + w.classes, verbose=0),
    "fractional labels": lambda w: w.trainer.evaluate(w.X, w.y + 0.5),
    "labels of strings": lambda w: w.trainer.train_batch(w.X, np.full(len(w.y), "a")),
    "too few labels": lambda w: w.trainer.train_batch(w.X, w.y[:-1]),
    "negative probabilities": lambda w: w.trainer.fit(w.X, -np.eye(w.classes)[w.y], verbose=0),
    "no examples": lambda w: w.trainer.fit(w.X[:0], w.y[:0], verbose=0),
    "X of a wrong shape": lambda w: w.model.predict(w.X[..., :-1]),
    "X with an extra axis": lambda w: w.model.predict(w.X[np.newaxis]),
    "one example as X": lambda w: w.trainer.train_batch(w.X[0], w.y[:1]),
    "complex X": lambda w: w.model.predict(w.X * 1j),
    "X of strings": lambda w: w.model.predict(w.X.astype(str)),
    "X of objects": lambda w: w.model.predict(np.array([None, w])),
    "masked X": lambda w: w.model.predict(np.ma.masked_array(w.X, w.X > 0)),
    "NaN in X": lambda w: w.trainer.fit(np.full_like(w.X, np.nan), w.y, verbose=0),
    "infinity in X": lambda w: w.trainer.train_batch(np.full_like(w.X, np.inf), w.y),
    "NaN in an estimator's X": lambda w: fitted(w).predict(with_nan(w).reshape(len(w.X), -1)),
    "negative weights": lambda w: w.trainer.fit(w.X, w.y, sample_weight=-np.ones(len(w.X)), verbose=0),
    "NaN in the weights": lambda w: w.trainer.train_batch(w.X, w.y, np.full(len(w.X), np.nan)),
    "too many weights": lambda w: w.trainer.evaluate(w.X, w.y, np.ones(len(w.X) + 1)),
    "a weight of a class that does not exist": lambda w: w.trainer.fit(w.X, w.y, class_weight={99: 1}, verbose=0),
    "batch_size 0": lambda w: w.trainer.fit(w.X, w.y, batch_size=0, verbose=0),
    "batch_size 1.5": lambda w: w.trainer.fit(w.X, w.y, batch_size=1.5, verbose=0),
    "epochs -1": lambda w: w.trainer.fit(w.X, w.y, -1, verbose=0),
    "gradient_accumulation_steps 0": lambda w: w.trainer.fit(w.X, w.y, gradient_accumulation_steps=0, verbose=0),
    "validation_split 1": lambda w: w.trainer.fit(w.X, w.y, validation_split=1.0, verbose=0),
    "validation_data that is a string": lambda w: w.trainer.fit(w.X, w.y, validation_data="abc", verbose=0),
    "a callback without hooks": lambda w: w.trainer.fit(w.X, w.y, callbacks=[3], verbose=0),
    "a monitor that does not exist": lambda w: w.trainer.fit(w.X, w.y, callbacks=[EarlyStopping("f1")], verbose=0),
    "an unknown argument": lambda w: w.trainer.fit(w.X, w.y, epoch=3),
    "an unknown loss": lambda w: Trainer(w.model, "softmax", SGD(0.1)),
    "an unknown metric": lambda w: Trainer(w.model, "huber", SGD(0.1), ["auc"]),
    "no optimizer": lambda w: Trainer(w.model, "huber", "sgd"),
    "no model": lambda w: Trainer([Dense(3)], "huber", SGD(0.1)),
    "a rate below 0": lambda w: SGD(-0.1),
    "NaN as a rate": lambda w: SGD(float("nan")),
    "a step with NaN as its rate": with_rate_nan,
    "one beta": lambda w: Adam(betas=0.9),
    "a schedule of no steps": lambda w: Cosine(0.1, 0),
    "threads 0": lambda w: minidl.set_num_threads(0),
    "threads 2.5": lambda w: w.model.predict(w.X, 2.5),
    "a gradient of a wrong shape": lambda w: after_forward(w).backward(np.zeros((len(w.X), w.classes + 1))),
    "backward without forward": lambda w: copy.deepcopy(w.model).backward(np.zeros((len(w.X), w.classes))),
    "forward of a flat array": lambda w: w.model.forward(w.X.ravel(), training=True),
    "a path that is a folder": lambda w: w.model.save(w.folder),
    "a folder that does not exist": lambda w: w.model.save(w.folder / "none" / "model"),
    "a file that does not exist": lambda w: Sequential.load(w.folder / "none"),
    "a checkpoint that does not exist": lambda w: Trainer.resume(w.folder / "none"),
    "garbage as a model": lambda w: Sequential.load(garbage(w)),
    "garbage as a checkpoint": lambda w: Trainer.resume(garbage(w)),
    "a model as a checkpoint": lambda w: (w.model.save(w.folder / "model"), Trainer.resume(w.folder / "model")),
    "a number as a path": lambda w: w.model.save(3.5),
    "a state without a parameter": lambda w: w.model.load_state_dict(changed_state(w, lambda s, name: s.pop(name))),
    "a state of a wrong shape": lambda w: w.model.load_state_dict(changed_state(w, reshaped)),
    "a state with an unknown name": lambda w: w.model.load_state_dict({**w.model.state_dict(), "x": np.ones(3)}),
    "a state that is a list": lambda w: w.model.load_state_dict([1, 2]),
    "gradients of a layer that does not exist": lambda w: w.trainer.per_example_gradients(w.X, w.y, layers=99),
    "gradients with an unknown reduction": lambda w: w.trainer.per_example_gradients(w.X, w.y, reduce="max"),
    "no filters": lambda w: Sequential([Conv2D(0, 3)], (1, 8, 8)),
    "a window larger than the image": lambda w: Sequential([MaxPool2D(9)], (1, 8, 8)),
    "a rate of 1.5": lambda w: Sequential([Dropout(1.5)], (3,)),
    "groups that do not divide": lambda w: Sequential([GroupNorm(2)], (3, 4, 4)),
    "a shape that does not fit": lambda w: Sequential([Reshape((5, -1))], (4,)),
    "an input_shape of strings": lambda w: Sequential([Dense(3)], ("a",)),
    "float16": lambda w: Sequential([Dense(3)], (4,), dtype="float16"),
    "a layer twice": lambda w: Sequential([w.model[0], w.model[0]], w.model.input_shape),
    "layers that are not layers": lambda w: Sequential([Dense, "relu"], (4,)),
    "an unfitted estimator": lambda w: SequentialClassifier([Dense(3)]).predict(w.X),
    "an estimator's loss that does not exist": lambda w: fitted(w, loss="l3"),
    "an estimator's epochs of -1": lambda w: fitted(w, epochs=-1),
    "too few classes": lambda w: SequentialClassifier([Dense(3)]).partial_fit(rows(w), w.y, classes=[99]),
}
if export:
    REFUSED["garbage as a graph"] = lambda w: import_model(garbage(w))
    REFUSED["a graph that does not exist"] = lambda w: import_model(w.folder / "none")
    REFUSED["a list as a model"] = lambda w: export([1], w.path("onnx"))
PATHS = {
    name for name in REFUSED if name.endswith("that does not exist") or name == "a path that is a folder"
}  # OSError


def rows(w):
    return w.X.reshape(len(w.X), -1)


def reshaped(state, name):
    state[name] = np.zeros((*state[name].shape, 2))


# ---- junk: right calls with one argument replaced, which may be accepted
JUNK = [
    None,
    True,
    -1,
    0,
    1.5,
    10**40,
    float("nan"),
    float("inf"),
    "x",
    "",
    "\udc80",
    b"x",
    (),
    [],
    {},
    [[]],
    {1: 2},
    "\0",
]
JUNK += [
    np.array("a"),
    np.zeros(0),
    np.float16(1),
    np.int8(-3),
    np.datetime64("now"),
    object(),
    len,
    Dense,
    range(3),
    3j,
]


def junk_call(w):
    """Draws a method of the model or the trainer with one junk argument; returns a description and the call."""
    X, y = w.X, w.y
    methods = [
        (w.trainer.fit, {"X": X, "y": y, "epochs": 1, "batch_size": 9, "verbose": 0}),
        (w.trainer.train_batch, {"X": X, "y": y}),
        (w.trainer.evaluate, {"X": X, "y": y}),
        (w.trainer.per_example_gradients, {"X": X, "y": y}),
        (w.trainer.report, {"X": X, "y": y}),
        (w.model.predict, {"X": X}),
        (w.model.predict_proba, {"X": X}),
        (w.model.forward, {"X": X}),
        (w.model.summary, {}),
        (w.model.load_state_dict, {"state": w.model.state_dict()}),
        (Trainer, {"model": w.model, "loss": "huber", "optimizer": SGD(0.1)}),
        (Sequential, {"layers": [Dense(2)], "input_shape": (3,)}),
        (SGD, {"lr": 0.1}),
        (Adam, {}),
        (Conv2D, {"filters": 2, "kernel_size": 3}),
        (SequentialClassifier([Dense(2)], epochs=1).fit, {"X": rows(w), "y": y}),
        (minidl.set_num_threads, {}),
        (minidl.batch_sum, {}),
    ]
    method, arguments = methods[w.rng.integers(len(methods))]
    name = str(w.rng.choice([*inspect.signature(method).parameters]))
    junk = JUNK[w.rng.integers(len(JUNK))]
    return f"{method.__qualname__} with {name}={junk!r}", lambda: method(**{**arguments, name: junk})
