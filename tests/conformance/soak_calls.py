"""Valid calls of the public API on a random model, and the comparisons of their results; for soak.py."""

import contextlib
import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from contract.every_layer import DRAWS
from sklearn.base import clone

import minidl
from minidl import Layer, Sequential, Trainer, callbacks, schedules
from minidl import layers as nn
from minidl.engine.layer_list import from_spec, to_spec
from minidl.estimators import SequentialClassifier
from minidl.optimizers import SGD, Adagrad, Adam, AdamW, Muon, RMSprop
from minidl_c.runtime.threads import set_thread_choice

set_thread_choice(False)  # predictions use all threads that they are asked to
EXPORTS = True
try:
    from minidl.onnx import export, import_model
except ImportError:  # the ONNX extra is not installed
    EXPORTS = False

MOST_NUMBERS = 1500  # elements of one example between two layers
TRIES = 5  # layers drawn for each of a chain: many do not fit
THREADS = (1, 2, 3)


class Doubled(Layer):
    """A user-defined layer in NumPy."""

    def forward(self, x, training):
        return 2 * x

    def backward(self, dy):
        return 2 * dy


CUSTOM = {"Doubled": Doubled}


def draw_layer(rng, axes):
    """Draws a layer for examples of that many axes, or the user-defined one."""
    while True:
        name = str(rng.choice([*DRAWS, *CUSTOM]))
        if name in CUSTOM:
            return CUSTOM[name]()
        case = DRAWS[name](rng)
        if len(case.in_shape) == axes:
            break
    if case.categories:  # other layers compute no categories but a constant
        return nn.Block(nn.Rescale(0.0, case.categories - 1), case.layer)
    return case.layer


def random_layers(rng, shape, depth):
    """Draws a chain of layers, leaving out those that do not fit; returns them and their output shape."""
    made = []
    for _ in range(TRIES * depth):
        layer = draw_layer(rng, len(shape))
        try:
            out = Sequential([copy.deepcopy(layer)], shape).output_shape
        except ValueError:
            continue
        if np.prod(out) <= MOST_NUMBERS:
            made.append(layer)
            shape = out
        if len(made) == depth:
            break
    return made, shape


def random_optimizer(rng):
    lr = schedules.Cosine(0.01, 50) if rng.random() < 0.3 else 0.01
    made = (
        SGD(lr),
        SGD(lr, momentum=0.9, nesterov=True),
        Adagrad(lr),
        RMSprop(lr),
        Adam(lr),
        AdamW(lr, weight_decay=0.1),
        Muon(lr),
    )
    return made[rng.integers(len(made))]


class World:
    """A random model with a trainer, data and a folder, determined by the seed."""

    def __init__(self, seed, folder):
        self.rng = rng = np.random.default_rng(seed)
        self.folder = Path(folder)
        shape = tuple(int(v) for v in rng.integers((1, 4, 4), (4, 9, 9)))[int(rng.choice(3, p=(0.6, 0.2, 0.2))) :]
        self.classes, self.dtype = int(rng.integers(2, 6)), str(rng.choice(["float32", "float64"]))
        body, out = random_layers(rng, shape, int(rng.integers(0, 8)))
        head = [nn.Flatten()] * (len(out) > 1) + [nn.Dense(self.classes)]
        self.model = Sequential([*body, *head], shape, int(rng.integers(9)), self.dtype)
        n = int(rng.integers(2, 80))
        self.X, self.y = rng.standard_normal((n, *shape)).astype("float32"), rng.integers(0, self.classes, n)
        clip = float(rng.uniform(0.5, 2)) if rng.random() < 0.2 else None
        self.trainer = Trainer(
            self.model, "softmax_cross_entropy", random_optimizer(rng), ["accuracy"], clip_norm=clip, num_threads=2
        )

    def some(self, minimum=2):
        """Returns a few examples and their labels."""
        n = int(self.rng.integers(minimum, len(self.X) + 1))
        return self.X[:n], self.y[:n]

    def path(self, suffix="safetensors"):
        return self.folder / f"file-{self.rng.integers(4)}.{suffix}"

    def state(self):
        """Returns the bits of all parameters and buffers, and the number of steps."""
        weights = self.model.state_dict().items()
        return self.trainer.step, [(name, value.shape, value.tobytes()) for name, value in weights]


class DifferenceError(Exception):
    """Raised if two results that must be bit-identical differ."""


def same(what, one, other):
    one, other = np.asarray(one), np.asarray(other)
    if not np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
        raise DifferenceError(what)


def same_predictions(w, other, what):
    same(what, w.model.predict(w.X), other.predict(w.X))


# ---- the calls -----------------------------------------------------------------------------------
def fit(w):
    rng, n = w.rng, len(w.X)
    options = {
        "batch_size": int(rng.integers(2, 40)),
        "gradient_accumulation_steps": int(rng.integers(1, 3)),
        "shuffle": rng.random() < 0.8,
    }
    options["sample_weight"] = rng.uniform(0, 2, n) if rng.random() < 0.3 else None
    options["class_weight"] = "balanced" if rng.random() < 0.2 else None
    if rng.random() < 0.3:
        options["validation_data"] = w.some()
    several = [callbacks.CSVLogger(w.path("csv"), True), callbacks.JSONLLogger(w.path("jsonl"), True)]
    several += [callbacks.ExponentialMovingAverage(0.9), callbacks.TimeLimit(60), callbacks.EarlyStopping("loss")]
    several += [callbacks.Checkpoint(w.folder / "run-{epoch}.safetensors", max_to_keep=1)]
    chosen = [one for one in several if rng.random() < 0.2]
    w.trainer.fit(w.X, w.y, int(rng.integers(0, 3)), callbacks=chosen, verbose=0, **options)


def train_batch(w):
    w.trainer.train_batch(*w.some())


def predict(w):
    whole = w.model.predict(w.X, 1)
    for threads in THREADS[1:]:
        same(f"predict on 1 and {threads} threads", whole, w.model.predict(w.X, threads))
    X, _ = w.some(1)
    same("predict of some rows, and of all", whole[: len(X)], w.model.predict(X))
    w.model.predict(w.X[:0])


def several_callers(w):
    whole, found = w.model.predict(w.X, 1), {}
    sizes = [int(n) for n in w.rng.integers(1, len(w.X) + 1, 4)]

    def call(number):
        found[number] = [w.model.predict(w.X[: sizes[number]], 1 + number % 2) for _ in range(3)]

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(sizes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, scores in found.items():
        for one in scores:
            same(f"predict of {sizes[number]} rows beside other threads", whole[: sizes[number]], one)


def left_over(w):
    """A step with as many examples as possible in the blocked layout has the bits of one in tiles."""
    X, y = w.some(min(17, len(w.X)))
    rate, found = SGD(0.01, momentum=0.9), []
    for limit, threads in ((0, 1), (16, 1), (16, 3)):
        trainer = Trainer(copy.deepcopy(w.model), "softmax_cross_entropy", copy.copy(rate), num_threads=threads)
        if w.model.network.native:
            plan = trainer.steps().plan
            plan.blocked_limit = min(limit, plan.blocked_limit and 16)
        loss = trainer.train_batch(X, y)
        found.append([np.asarray(loss), *trainer.model.state_dict().values()])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            same(f"a step of {len(X)} examples in both layouts", a, b)


def any_size(w):
    """A model of images of any size, after a fit of several sizes, predicts in threads as models of each size."""
    axes = int(w.rng.integers(1, 3))
    shape = (int(w.rng.integers(1, 5)), *[12] * axes)
    body, _ = random_layers(w.rng, shape, int(w.rng.integers(1, 6)))
    try:
        model = Sequential(body, (shape[0], *[None] * axes), int(w.rng.integers(9)), w.dtype)
    except ValueError:  # a layer fixes the size
        return
    sizes = {tuple(int(side) for side in w.rng.integers(1, 24, axes)) for _ in range(10)}
    data, twins = {}, {}
    for size in sizes:
        try:
            model.at((shape[0], *size))
        except ValueError:  # a size that the layers cannot take
            continue
        twins[size] = Sequential(from_spec(to_spec(model.layers)), (shape[0], *size), model.seed, w.dtype)
        x = w.rng.standard_normal((int(w.rng.integers(2, 20)), shape[0], *size)).astype("float32")
        data[size] = x, np.zeros((len(x), *twins[size].output_shape))
    if model.params and data and not model.network.moves_pixels:
        with contextlib.suppress(FloatingPointError):
            Trainer(model, "mean_squared_error", SGD(1e-4), num_threads=2).fit(list(data.values()), verbose=0)
    for twin in twins.values():
        twin.load_state_dict(model.state_dict())
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda size: model.predict(data[size][0], 2), [*data, *data]))
    for size, scores in zip([*data, *data], found, strict=True):
        same(f"predict of size {size}", twins[size].predict(data[size][0], 1), scores)


def predict_proba(w):
    same("predict_proba on 1 and 3 threads", w.model.predict_proba(w.X, 1), w.model.predict_proba(w.X, 3))


def evaluate(w):
    one, other = w.trainer.evaluate(w.X, w.y), w.trainer.evaluate(w.X, w.y)
    same("evaluate, twice", list(one.values()), list(other.values()))


def by_hand(w):
    X, _ = w.some()
    dy, found = w.rng.standard_normal((len(X), w.classes)), []
    for model, threads in ((copy.deepcopy(w.model), 1), (copy.deepcopy(w.model), 3)):
        minidl.set_num_threads(threads)
        found.append([model.forward(X, training=True), model.backward(dy)])
        found[-1] += [param.grad for param in model.params.values() if param.grad is not None]
    for one, other in zip(*found, strict=True):
        same("forward and backward by hand on 1 and 3 threads", one, other)


def cut(w):
    k = int(w.rng.integers(len(w.model)))
    last = w.model[k:]
    same(
        f"two slices at {k}, and the whole", last.predict(w.model[:k].predict(w.X) if k else w.X), w.model.predict(w.X)
    )


def freeze(w):
    layer = w.model[int(w.rng.integers(len(w.model)))]
    layer.trainable = False
    try:
        before = [param.value.tobytes() for param in layer.params.values()]
        w.trainer.train_batch(*w.some())
        if before != [param.value.tobytes() for param in layer.params.values()]:
            raise DifferenceError("a frozen layer was trained")
    finally:
        layer.trainable = len(w.model) == 1 or w.rng.random() < 0.8


def save_and_load(w):
    path = w.path()
    w.model.save(path)
    same_predictions(w, Sequential.load(path, custom_objects=CUSTOM), "a model, saved and loaded")


def checkpoint_and_resume(w):
    path, (X, y) = w.path(), w.some()
    w.trainer.save_checkpoint(path)
    twin = Trainer.resume(path, custom_objects=CUSTOM, num_threads=3)
    same("the loss after a resume", w.trainer.train_batch(X, y), twin.train_batch(X, y))
    same_predictions(w, twin.model, "a trainer, and its checkpoint resumed, after a step")


def pickled(w):
    same_predictions(w, pickle.loads(pickle.dumps(w.model)), "a model, pickled and back")


def copied(w):
    twin, batch = copy.deepcopy(w.trainer), w.some()
    same("the loss of a copy", w.trainer.train_batch(*batch), twin.train_batch(*batch))
    same_predictions(w, twin.model, "a trainer and its copy, after a step")


def per_example(w):
    X, y = w.some(1)
    each = w.trainer.per_example_gradients(X, y)
    norms = w.trainer.per_example_gradients(X, y, reduce="norm")
    for name, gradients in each.items():
        long = np.linalg.norm(gradients.reshape(len(X), -1).astype("float64"), axis=1)
        if not np.allclose(long, norms[name], rtol=1e-3, atol=1e-6, equal_nan=True):
            raise DifferenceError(f"norms of the gradients of {name}")
    minidl.batch_sum(each)


def states(w):
    twin = copy.deepcopy(w.model)
    for param in twin.params.values():
        param.value[...] = 0
    twin.load_state_dict(w.model.state_dict())
    same_predictions(w, twin, "a model, and another with its state_dict")


def to_onnx_and_back(w):
    path = w.path("onnx")
    export(w.model, path)
    found, expected = import_model(path).predict(w.X), w.model.predict(w.X)
    if not np.allclose(found, expected, rtol=1e-3, atol=1e-4 * max(1, np.abs(expected).max()), equal_nan=True):
        raise DifferenceError("a model, exported to ONNX and imported")


def told(w):
    str(w.model.summary(int(w.rng.integers(1, 99)))), repr(w.model), str(w.trainer.report(w.X, w.y))


def threads_set(w):
    minidl.set_num_threads(int(w.rng.choice(THREADS)))
    minidl.get_num_threads()


def estimator(w):
    rng, names = w.rng, np.array([*"abcdefgh"])
    rows, labels = w.X.reshape(len(w.X), -1), names[w.y]
    body = [nn.Dense(5), nn.ReLU(), nn.Dropout(0.1), nn.Dense(len(np.unique(labels)))]
    made = SequentialClassifier(body, epochs=2, random_state=int(rng.integers(99)))
    first, second = made.fit(rows, labels), clone(made).fit(rows, labels)
    same("an estimator and its clone", first.predict_proba(rows), second.predict_proba(rows))
    made.partial_fit(rows, labels), made.score(rows, labels), made.transform(rows)
    same("an estimator, pickled and back", pickle.loads(pickle.dumps(made)).predict(rows), made.predict(rows))


CALLS = [fit, train_batch, predict, several_callers, left_over, any_size, predict_proba, evaluate, by_hand, cut, freeze]
CALLS += [save_and_load, checkpoint_and_resume, pickled, copied, per_example, states, told, threads_set, estimator] + [
    to_onnx_and_back
] * EXPORTS
