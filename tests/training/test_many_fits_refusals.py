"""fit_many: what it refuses before the first fit, and what nets may share."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from minidl import Sequential, Trainer, fit_many
from minidl.callbacks import EarlyStopping
from minidl.estimators import SequentialClassifier
from minidl.layers import Dense, ReLU
from minidl.losses import SoftmaxCrossEntropy
from minidl.optimizers import SGD

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(90, 6)).astype("float32"), RNG.integers(0, 3, 90)
FIT = {"epochs": 3, "batch_size": 8}


def of_layers(layers, optimizer=None):
    return Trainer(Sequential(layers), "softmax_cross_entropy", optimizer or SGD(0.1))


def make_trainer(seed=0, optimizer=None):
    return of_layers([Dense(8), ReLU(), Dense(3)], optimizer)


SHARED, CALLBACK = make_trainer(), EarlyStopping("loss")
TWO = [make_trainer(1), make_trainer(2)]
OPTIMIZER, SHARED_STEP = SGD(0.1), SequentialClassifier()
LAYERS, ONCE = [Dense(8), ReLU(), Dense(3)], iter([(X, Y)])


@pytest.mark.parametrize(
    ("trainers", "arguments", "message"),
    [
        (SHARED, {}, "trainers: expected a list or a dict of them, got <"),
        ([SHARED, SHARED], {}, "trainers: expected its own trainer for each net, got one for 0 and 1"),
        ([SHARED, Trainer(SHARED.model, "mean_squared_error", SGD(0.1))], {}, "expected its own model for each net"),
        ([make_trainer(optimizer=OPTIMIZER), make_trainer(optimizer=OPTIMIZER)], {}, "expected its own optimizer for"),
        ([make_pipeline(StandardScaler(), SHARED_STEP), make_pipeline(SHARED_STEP)], {}, "expected its own step 'seq"),
        ([SHARED_STEP, make_pipeline(StandardScaler(), SHARED_STEP)], {}, "expected its own step 'seq"),
        (
            [of_layers(LAYERS), of_layers(LAYERS)],
            {},
            r"expected its own layer 0, Dense\(.*, for each net, got one",
        ),
        (TWO, {"each": [{"X": ONCE}, {"X": ONCE}], "y": None}, "expected its own iterator X for each net"),
        (TWO, {"callbacks": [CALLBACK]}, r"expected its own callback EarlyStopping\(.* for each net, got one for 0"),
        ([Trainer], {}, r"trainers: expected a Trainer .* as net 0, got .*; pass an object, Trainer\(...\)"),
        ([make_trainer().model], {}, "trainers: expected a Trainer or an estimator as net 0, got Sequential"),
        (TWO, {"epoch": 3}, "Trainer.fit, for net 0: .*unexpected keyword argument 'epoch'"),
        (TWO, {"each": {0: {}, 1: {}}}, "each: expected a list in the order of trainers, got dict"),
        ({"a": TWO[0]}, {"each": [{}]}, "each: expected a dict with the names of trainers, got list"),
        (TWO, {"each": [{}]}, "each: expected arguments for each of 2 nets, got 1"),
        ({"a": TWO[0]}, {"each": {"b": {}}}, "each: expected arguments for each of 1 nets, got others: 'a', 'b'"),
        (TWO, {"each": [{}, X]}, "each: expected a dict of arguments for net 1, got ndarray"),
        (TWO, {"X": iter([(X, Y)])}, "X: expected arrays, or batches .*, got the iterator"),
        (TWO, {"n_jobs": 0}, "n_jobs: expected"),
        (TWO, {"n_jobs": 1.5}, "n_jobs: expected"),
        (TWO, {"verbose": 3}, "verbose: expected"),
        (TWO, {"return_exceptions": 1}, "return_exceptions: expected"),
    ],
)
def test_refusals_come_before_the_first_fit(trainers, arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        fit_many(trainers, **{"X": X, "y": Y, **arguments})
    assert SHARED.step == 0 and all(trainer.step == 0 and trainer.model.network is None for trainer in TWO)


def test_callbacks_without_a_state_may_be_shared():
    seen = []

    class Counts:
        def on_epoch_end(self, trainer, epoch, logs):
            seen.append(epoch)

    fit_many([make_trainer(k) for k in range(4)], X, Y, callbacks=[Counts()], n_jobs=2, verbose=0, **FIT)
    assert sorted(seen) == [0] * 4 + [1] * 4 + [2] * 4


def test_layers_that_no_net_trains_alone_may_repeat_in_one_net_and_losses_may_be_shared():
    loss = SoftmaxCrossEntropy()
    trainers = [Trainer(Sequential([Dense(3), ReLU(), Dense(3)]), loss, SGD(0.1)) for _ in range(2)]
    assert len(fit_many(trainers, X, Y, verbose=0, **FIT)) == 2


@pytest.mark.parametrize("own", [False, True])
def test_callbacks_of_an_iterator_are_called(own):
    seen = []

    class Counts:
        def on_epoch_end(self, trainer, epoch, logs):
            seen.append(epoch)

    callbacks = {"callbacks": iter([Counts()])}
    trainers = [make_trainer(k) for k in range(1 if own else 2)]
    fit_many(trainers, X, Y, **({"each": [callbacks]} if own else callbacks), n_jobs=1, verbose=0, **FIT)
    assert seen == [0, 1, 2] * len(trainers)


def test_a_trainer_of_several_ranks_is_refused():
    trainer = make_trainer()
    trainer.comm = type("Ranks", (), {"size": 2})()
    with pytest.raises(ValueError, match="distributed: expected None for net 0"):
        fit_many([trainer], X, Y)
