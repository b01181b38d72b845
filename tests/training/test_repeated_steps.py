"""Repeated steps of train_batch: what changes between two calls has its effect; bits and refusals are as before.

Two trainers are compared: one with repeated steps, one that goes the general way each time.
"""

import copy
import sys
import threading
import weakref

import numpy as np
import pytest

from minidl import Layer, Sequential, Trainer
from minidl.layers import BatchNorm1D, Dense, Dropout, Flatten, Outputs, ReLU
from minidl.losses import MeanSquaredError, SoftmaxCrossEntropy
from minidl.optimizers import SGD, Adam
from minidl.training.labeled_data import LabeledData

RNG = np.random.default_rng(0)
X, LABELS = RNG.standard_normal((40, 6)).astype("float32"), RNG.integers(0, 3, 40)
NUMBERS, WEIGHTS = RNG.random((40, 3)), RNG.uniform(0.5, 2, 40)
TARGETS = {"softmax_cross_entropy": LABELS, "mean_squared_error": NUMBERS, "binary_cross_entropy": NUMBERS}


class Never:
    """In place of a trainer's RepeatedSteps."""

    def run(self, *_):
        return None

    remember = run


def net(dtype="float32", last=3):
    return Sequential([Dense(8), BatchNorm1D(), ReLU(), Dropout(0.25), Dense(last)], (6,), dtype=dtype, seed=3)


def without_batch_norm(dtype):
    return Sequential([Dense(8), ReLU(), Dropout(0.25), Dense(3)], (6,), dtype=dtype, seed=3)


def two_outputs(dtype):
    return Sequential([Dense(8), ReLU(), Outputs(a=[Dense(3)], b=[Dense(1)])], (6,), dtype=dtype)


def pair(loss="softmax_cross_entropy", optimizer=lambda: Adam(0.01), dtype="float32", make=net, **options):
    """Returns two equal trainers, of which the second takes the general way."""
    trainers = [Trainer(make(dtype), loss, optimizer(), **options) for _ in range(2)]
    trainers[1]._repeated = Never()
    return trainers


def state(trainer):
    grads = {name: param.grad.tobytes() for name, param in trainer.model.params.items()}
    return {name: value.tobytes() for name, value in trainer.model.state_dict().items()}, grads, trainer.step


def train(trainer, y, rows=8, steps=3, x=X, weights=None):
    """Makes some steps; returns their losses."""
    losses = []
    for k in range(steps):
        here = slice(k * rows, (k + 1) * rows)
        losses.append(trainer.train_batch(x[here], y[here], *([] if weights is None else [weights[here]])))
    return losses


@pytest.fixture
def general(monkeypatch):
    """A list that grows with each step that takes the general way."""
    calls, from_arrays = [], LabeledData.from_arrays.__func__

    def counted(cls, *args, **kwargs):
        calls.append(1)
        return from_arrays(cls, *args, **kwargs)

    monkeypatch.setattr(LabeledData, "from_arrays", classmethod(counted))
    monkeypatch.setattr("minidl.training.sample_buffer.MIN_BATCHES", 0)  # sampled batches make one as well
    monkeypatch.setattr("minidl.training.sample_buffer.SAMPLED", 0)
    return calls


# ---- the same bits


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("loss", TARGETS)
@pytest.mark.parametrize("options", [{}, {"clip_norm": 0.5}, {"clip_value": 0.01, "num_threads": 3}])
def test_repeated_steps_have_the_bits_of_the_general_way(loss, dtype, options, general):
    y = TARGETS[loss]
    fast, slow = pair(loss, dtype=dtype, **options)
    for rows in (5, 16, 5, 17, 16, 5):
        for x in (X, X.astype("float64")):
            assert train(fast, y, rows, 2, x) == train(slow, y, rows, 2, x)
    assert state(fast) == state(slow)
    before = len(general)
    train(fast, y, 5)
    assert len(general) == before, "this form was seen, so no step takes the general way"


@pytest.mark.parametrize(
    "rows", [X, (100 * X).astype("uint8"), X.astype("float64"), X.astype("float16"), X.astype("int32"), X[::-1, ::-1]]
)
@pytest.mark.parametrize(
    "y", [LABELS, LABELS.astype("uint8"), LABELS.tolist(), np.eye(3)[LABELS], np.eye(3, dtype="float32")[LABELS]]
)
def test_any_form_of_examples_and_targets(rows, y):
    fast, slow = pair()
    assert train(fast, y, x=rows) == train(slow, y, x=rows)
    assert state(fast) == state(slow)


def test_weights_of_examples(general):
    fast, slow = pair()
    with_zeros = WEIGHTS * (np.arange(40) % 5 > 0)
    for weights in (WEIGHTS, None, with_zeros, WEIGHTS.astype("float32"), WEIGHTS):
        assert train(fast, LABELS, weights=weights) == train(slow, LABELS, weights=weights)
    assert state(fast) == state(slow)
    before = len(general)
    train(fast, LABELS, weights=WEIGHTS)
    assert len(general) == before


def test_several_outputs_and_ignored_labels(general):
    ignored = np.where(np.arange(40) % 3, LABELS, -1)
    fast, slow = pair({"a": SoftmaxCrossEntropy(ignore_index=-1), "b": "huber"}, make=two_outputs)
    for k in range(4):
        here = slice(8 * k, 8 * k + 8)
        y = {"a": ignored[here], "b": NUMBERS[here, 0]}
        assert fast.train_batch(X[here], y) == slow.train_batch(X[here], y)
    assert state(fast) == state(slow)
    assert len(general) == 1 + 4


def test_examples_without_a_label_do_not_count():
    y, (fast, slow) = np.where(np.arange(40) % 4, LABELS, -1), pair(SoftmaxCrossEntropy(ignore_index=-1))
    assert (train(fast, y), state(fast)) == (train(slow, y), state(slow))


def test_images_as_flat_rows(general):
    flat, results = np.ascontiguousarray(X[:, :4]), []
    for rows in (flat, flat.reshape(-1, 1, 2, 2)):
        model = Sequential([Flatten(), Dense(3)], input_shape=(1, 2, 2), seed=1)
        trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1))
        results.append((train(trainer, LABELS, x=rows), state(trainer)))
    assert results[0] == results[1]
    assert len(general) == 2


def test_samples_of_a_report_are_the_same():
    fast, slow = pair()
    for trainer in (fast, slow):
        for _ in range(60):
            train(trainer, LABELS, 5, 2)
    samples = [trainer.sample_buffer.sample(trainer.sample_key) for trainer in (fast, slow)]
    assert np.array_equal(samples[0].X, samples[1].X)
    assert np.array_equal(samples[0].y, samples[1].y)


# ---- what changes between two calls


def _freeze(trainer):
    trainer.model[0].trainable = False


def _freeze_and_thaw(trainer):
    _freeze(trainer)
    trainer.train_batch(X[:8], LABELS[:8])
    trainer.model[0].trainable = True


def _load(trainer):
    trainer.model.load_state_dict({name: value * 0.5 for name, value in trainer.model.state_dict().items()})


def _resume(trainer, folder=None):
    trainer.save_checkpoint(folder / "checkpoint")
    train(trainer, LABELS)
    trainer.resume(folder / "checkpoint")


def _multiply(trainer):
    trainer.model.params["0.weight"].value *= 2


def _rebuild(trainer):
    trainer.model.discard()
    trainer.model.build((6,))


def _fail(trainer):
    with pytest.raises(ValueError, match="finite"):
        trainer.train_batch(np.full((8, 6), np.nan, "float32"), LABELS[:8])


def _rate(factor):
    return lambda step: factor / (1 + step)


CHANGES = {
    "the loss": lambda t: setattr(t, "loss", SoftmaxCrossEntropy(label_smoothing=0.5)),
    "the optimizer": lambda t: setattr(t, "optimizer", SGD(0.1, momentum=0.5)),
    "the optimizer, to one in NumPy": lambda t: setattr(t, "optimizer", Plain()),
    "the rate": lambda t: setattr(t.optimizer, "lr", 0.25),
    "the rate, to a schedule": lambda t: setattr(t.optimizer, "lr", _rate(0.5)),
    "the rate, to NumPy's": lambda t: setattr(t.optimizer, "lr", np.float32(0.25)),
    "clip_norm": lambda t: setattr(t, "clip_norm", 0.01),
    "clip_value": lambda t: setattr(t, "clip_value", 0.001),
    "per_example_clip_norm": lambda t: setattr(t, "per_example_clip_norm", 0.01),
    "the seed": lambda t: setattr(t, "seed", 7),
    "the step": lambda t: setattr(t, "step", 70),
    "num_threads": lambda t: setattr(t, "num_threads", 3),
    "a frozen layer": _freeze,
    "a thawed layer": _freeze_and_thaw,
    "the rate of a layer": lambda t: setattr(t.model[0], "lr_mult", 0.1),
    "the rate of the model": lambda t: setattr(t.model, "lr_mult", 0.1),
    "the model": lambda t: setattr(t, "model", net(last=4)),
    "the model, built again": _rebuild,
    "the weights": _load,
    "a parameter": _multiply,
    "metrics": lambda t: setattr(t, "metrics", ["accuracy"]),
    "a resumed checkpoint": _resume,
    "a fit": lambda t: t.fit(X, LABELS, epochs=1, batch_size=7, verbose=0),
    "a refused batch": _fail,
    "a prediction in training mode": lambda t: t.model.forward(X, training=True),
}


class Plain:
    """An optimizer in NumPy."""

    lr = 0.1

    def step(self, params, lr):
        for param in params.values():
            param.value -= lr * param.grad


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_between_two_calls_has_its_effect(change, tmp_path):
    results = []
    make = without_batch_norm if change == "per_example_clip_norm" else net
    for number, trainer in enumerate(pair(make=make)):
        losses = train(trainer, LABELS)
        if change == "a resumed checkpoint":
            (tmp_path / str(number)).mkdir()
            _resume(trainer, tmp_path / str(number))
        else:
            CHANGES[change](trainer)
        results.append((losses, train(trainer, LABELS), state(trainer)))
    assert results[0] == results[1]


def test_the_number_of_steps_that_a_layer_was_frozen():
    results = []
    for trainer in pair():
        _freeze_and_thaw(trainer)
        losses = train(trainer, LABELS)
        trainer.skipped_steps = [0] * len(trainer.skipped_steps)
        results.append((losses, train(trainer, LABELS), state(trainer)))
    assert results[0] == results[1]


def test_the_weights_of_the_losses_of_outputs():
    results = []
    for trainer in pair({"a": "softmax_cross_entropy"}, make=two_outputs):
        y = {"a": LABELS[:8]}
        losses = [trainer.train_batch(X[:8], y) for _ in range(3)]
        trainer.loss_weights = {"a": 3.0}
        results.append((losses, [trainer.train_batch(X[:8], y) for _ in range(3)], state(trainer)))
    assert results[0] == results[1]


class Counting(Trainer):
    """A trainer with steps of its own."""

    runs = 0

    def run(self, batch):
        self.runs += 1
        return super().run(batch)


def test_a_subclass_keeps_its_steps():
    trainer = Counting(net(), "softmax_cross_entropy", SGD(0.1))
    train(trainer, LABELS)
    assert trainer.runs == 3


class OwnSettings(Dense):
    """A layer whose `trainable` changes without being set."""

    frozen_now = False

    @property
    def trainable(self):
        return not type(self).frozen_now

    @trainable.setter
    def trainable(self, value):
        pass


def test_a_layer_that_freezes_itself():
    model = Sequential([OwnSettings(4), ReLU(), Dense(3)], input_shape=(6,))
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1))
    train(trainer, LABELS)
    before = model.params["0.weight"].value.copy()
    OwnSettings.frozen_now = True
    try:
        train(trainer, LABELS)
    finally:
        OwnSettings.frozen_now = False
    assert np.array_equal(before, model.params["0.weight"].value)


def test_targets_of_a_loss_of_ones_own_are_asked_for_in_each_step():
    class Halved(MeanSquaredError):
        factor = 1.0

        def targets(self, y, shape, dtype):
            return super().targets(y * self.factor, shape, dtype)

    loss = Halved()
    results = []
    for trainer in pair(loss):
        loss.factor = 1.0
        losses = train(trainer, NUMBERS)
        loss.factor = 0.5
        results.append(losses + train(trainer, NUMBERS))
    assert results[0] == results[1]


# ---- refusals


def _refused(trainer, *batch):
    weights, grads, step = state(trainer)
    with pytest.raises(Exception) as error:
        trainer.train_batch(*batch)
    after = state(trainer)
    assert (weights, step) == (after[0], after[2]), "a refused call changes nothing"
    assert grads == after[1] or error.type is FloatingPointError  # of which the gradients can be looked at
    return type(error.value), str(error.value)


def _with(array, value, dtype=None):
    array = np.array(array, dtype)
    array.flat[-1] = value
    return array


N = 8
BAD = {
    "NaN": (_with(X[:N], np.nan), LABELS[:N]),
    "infinity": (_with(X[:N], np.inf), LABELS[:N]),
    "too large": (_with(X[:N], 1e39, "float64"), LABELS[:N]),
    "a label above": (X[:N], _with(LABELS[:N], 3)),
    "a label below": (X[:N], _with(LABELS[:N], -1)),
    "NaN of probabilities": (X[:N], _with(np.eye(3)[LABELS[:N]], np.nan)),
    "negative probabilities": (X[:N], _with(np.eye(3)[LABELS[:N]], -1)),
    "a weight below 0": (X[:N], LABELS[:N], _with(WEIGHTS[:N], -1)),
    "weights of another length": (X[:N], LABELS[:N], WEIGHTS[: N - 1]),
    "no weight above 0": (X[:N], LABELS[:N], np.zeros(N)),
    "a weight that float32 cannot hold": (X[:N], LABELS[:N], _with(WEIGHTS[:N], 1e300)),
    "another width": (X[:N, :5], LABELS[:N]),
    "fewer targets": (X[:N], LABELS[: N - 1]),
    "no example": (X[:0], LABELS[:0]),
    "one example, for batch norm": (X[:1], LABELS[:1]),
    "dates": (X[:N], np.zeros(N, "datetime64[s]")),
    "a mask": (np.ma.masked_array(X[:N], X[:N] > 0), LABELS[:N]),
}


@pytest.mark.parametrize("bad", BAD)
def test_refusals_are_the_same_word_for_word(bad):
    results = []
    for trainer in pair():
        for good in ((X, LABELS), (X.astype("float64"), LABELS), (X, np.eye(3)[LABELS])):
            train(trainer, good[1], N, 2, good[0])
        results.append(_refused(trainer, *BAD[bad]))
        train(trainer, LABELS)
    assert results[0] == results[1]


def test_a_step_that_is_not_finite_is_explained_and_changes_nothing():
    results = []
    for trainer in pair("mean_squared_error", lambda: SGD(0.1)):
        train(trainer, NUMBERS)
        results.append(_refused(trainer, np.full((N, 6), 1e38, "float32"), NUMBERS[:N]))
    assert results[0] == results[1]
    assert results[0][0] is FloatingPointError


@pytest.mark.parametrize("rate", [-1.0, np.nan, 1e300, "fast"])
def test_a_rate_that_is_invalid(rate):
    results = []
    for trainer in pair():
        train(trainer, LABELS)
        trainer.optimizer.lr = lambda step: rate
        results.append(_refused(trainer, X[:N], LABELS[:N]))
        trainer.optimizer.lr = 0.1
        train(trainer, LABELS)
    assert results[0] == results[1]


def test_a_schedule_that_writes_into_the_targets():
    trainer, y = pair()[0], LABELS[:N].copy()
    train(trainer, LABELS)
    trainer.optimizer.lr = lambda step: y.fill(10**9) or 0.1
    with pytest.raises(ValueError, match="targets: expected numbers from 0 to 2"):
        trainer.train_batch(X[:N], y)


def test_a_schedule_that_raises_or_trains_leaves_the_model_unlocked():
    trainer = pair()[0]
    train(trainer, LABELS)

    def trains(step):
        trainer.train_batch(X[:N], LABELS[:N])

    def fails(step):
        raise KeyboardInterrupt

    for rate, error in ((trains, RuntimeError), (fails, KeyboardInterrupt)):
        trainer.optimizer.lr = rate
        with pytest.raises(error):
            trainer.train_batch(X[:N], LABELS[:N])
        trainer.check_between_steps("test")
    trainer.optimizer.lr = 0.1
    train(trainer, LABELS)


def test_two_threads_are_refused_as_before():
    trainer = pair()[0]
    train(trainer, LABELS)
    inside, leave = threading.Event(), threading.Event()

    def rate(step):
        inside.set()
        leave.wait(60)
        return 0.1

    trainer.optimizer.lr = rate
    thread = threading.Thread(target=trainer.train_batch, args=(X[:N], LABELS[:N]))
    thread.start()
    inside.wait(60)
    with pytest.raises(RuntimeError, match="train_batch: another thread is at work on this model, in train_batch"):
        trainer.train_batch(X[:N], LABELS[:N])
    with pytest.raises(RuntimeError, match="predict: another thread is at work on this model, in train_batch"):
        trainer.predict(X[:N])
    leave.set()
    thread.join()
    assert trainer.step == 4


def test_no_batch_is_kept_alive():
    trainer = pair()[0]
    train(trainer, LABELS)
    x, y, weights = X[:N].copy(), LABELS[:N].copy(), WEIGHTS[:N].copy()
    references = [weakref.ref(array) for array in (x, y, weights)]
    counts = [sys.getrefcount(array) for array in (x, y, weights)]
    trainer.train_batch(x, y, weights)
    assert [sys.getrefcount(array) for array in (x, y, weights)] == counts
    del x, y, weights
    assert [reference() for reference in references] == [None] * 3


def test_few_forms_are_kept():
    trainer = pair()[0]
    for rows in range(2, 30):
        train(trainer, LABELS, rows, 1)
    assert len(trainer._repeated._known) <= 8


def test_a_copy_trains_on():
    fast, slow = pair()
    for trainer in (fast, slow):
        train(trainer, LABELS)
    twin = copy.deepcopy(fast)
    assert train(twin, LABELS) == train(slow, LABELS) == train(fast, LABELS)
    assert state(twin) == state(slow) == state(fast)


def test_layers_in_numpy_and_losses_in_python_take_the_general_way():
    class Double(Layer):
        def forward(self, x, training):
            return 2 * x

        def backward(self, dy):
            return 2 * dy

    def loss(scores, y):
        return SoftmaxCrossEntropy()(scores, y)

    for given in ({"make": lambda dtype: Sequential([Double(), Dense(3)], (6,), dtype=dtype)}, {"loss": loss}):
        fast, slow = pair(**given)
        assert train(fast, LABELS) == train(slow, LABELS)
        assert not fast._repeated._known
