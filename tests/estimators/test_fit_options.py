"""Options of a fit: random state, threads, callbacks, output, Ctrl-C, concurrency."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from minidl.callbacks import CSVLogger, EarlyStopping, ExponentialMovingAverage
from minidl.estimators import SequentialClassifier, SequentialRegressor
from minidl.layers import Dense, Dropout, ReLU

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(300, 6)).astype("float32"), RNG.integers(0, 3, 300)


def make_classifier(**options):
    layers = [Dense(16), ReLU(), Dropout(0.3), Dense(3)]
    return SequentialClassifier(layers, **{"epochs": 3, "batch_size": 32, "random_state": 0, **options})


def bits(fitted):
    return {name: value.tobytes() for name, value in fitted.model_.state_dict().items()}


# ---- random numbers
def test_an_int_random_state_determines_the_model():
    first, second, third = (make_classifier(random_state=seed).fit(X, Y) for seed in (0, 0, np.int64(0)))
    assert bits(first) == bits(second) == bits(third)
    assert bits(make_classifier(random_state=1).fit(X, Y)) != bits(make_classifier().fit(X, Y))


def test_a_generator_advances():
    same = np.random.RandomState(7)
    first, second = (make_classifier(random_state=same).fit(X, Y) for _ in range(2))
    assert bits(first) != bits(second)
    again = np.random.RandomState(7)
    assert bits(make_classifier(random_state=again).fit(X, Y)) == bits(first)


def test_without_random_state_numpys_global_seed_applies():
    """As in scikit-learn; with one, NumPy's global generator is not used."""
    np.random.seed(5)  # noqa: NPY002
    first, second = (make_classifier(random_state=None).fit(X, Y) for _ in range(2))
    np.random.seed(5)  # noqa: NPY002
    again = make_classifier(random_state=None).fit(X, Y)
    assert bits(first) == bits(again) != bits(second)
    before = np.random.get_state()[1].tobytes()  # noqa: NPY002
    make_classifier().fit(X, Y)
    assert np.random.get_state()[1].tobytes() == before  # noqa: NPY002


def test_weights_order_and_dropout_follow_random_state():
    start = {"epochs": 1, "lr": 0.0}
    assert bits(make_classifier(random_state=1, **start).fit(X, Y)) != bits(
        make_classifier(random_state=2, **start).fit(X, Y)
    )
    losses = [make_classifier(random_state=s, shuffle=False).fit(X, Y).loss_curve_ for s in (1, 1, 2)]
    assert losses[0] == losses[1] != losses[2]


# ---- threads
@pytest.mark.parametrize("early_stopping", [False, True])
def test_number_of_threads_changes_no_bit(early_stopping):
    one, two, three = (make_classifier(num_threads=n, early_stopping=early_stopping).fit(X, Y) for n in (1, 2, 3))
    assert bits(one) == bits(two) == bits(three)
    np.testing.assert_array_equal(one.predict_proba(X), three.predict_proba(X))
    assert one.trainer_.num_threads == 1


def test_concurrent_fits_in_two_threads_equal_sequential_ones():
    from joblib import Parallel, delayed

    alone = [make_classifier(random_state=s, epochs=20).fit(X, Y) for s in range(4)]
    together = Parallel(n_jobs=2, backend="threading")(
        delayed(make_classifier(random_state=s, epochs=20).fit)(X, Y) for s in range(4)
    )
    assert [bits(fitted) for fitted in together] == [bits(fitted) for fitted in alone]


def test_many_threads_can_predict_at_once():
    fitted = make_classifier().fit(X, Y)
    expected = fitted.predict_proba(X)
    with ThreadPoolExecutor(8) as pool:
        for result in pool.map(lambda _: fitted.predict_proba(X), range(50)):
            np.testing.assert_array_equal(result, expected)


# ---- callbacks and output
def test_callbacks_get_the_trainer_and_may_stop_it(tmp_path):
    class StopAfterTwo:
        """Stops after the second epoch."""

        def on_epoch_end(self, trainer, epoch, logs):
            trainer.should_stop = epoch == 1

    fitted = make_classifier(epochs=9, callbacks=[CSVLogger(tmp_path / "log.csv"), StopAfterTwo()]).fit(X, Y)
    assert fitted.n_iter_ == 2
    rows = np.genfromtxt(tmp_path / "log.csv", delimiter=",", names=True)
    np.testing.assert_array_equal(rows["loss"], fitted.loss_curve_)


def test_callbacks_that_change_the_model_run_before_early_stopping():
    averaged = make_classifier(callbacks=[ExponentialMovingAverage(0.9)]).fit(X, Y)
    for name, value in averaged.callbacks_[0].averages.items():
        np.testing.assert_array_equal(averaged.model_.params[name].value, value)
    stopped = make_classifier(callbacks=[ExponentialMovingAverage(0.9)], early_stopping=True).fit(X, Y)
    assert bits(stopped) == bits(make_classifier(early_stopping=True).fit(X, Y))


@pytest.mark.parametrize("early_stopping", [False, True])
def test_a_users_early_stopping_decides(early_stopping):
    """The loss of random labels hardly falls, so the estimator's own rule would end after two epochs."""
    options = {"epochs": 9, "tol": 10.0, "n_iter_no_change": 1, "early_stopping": early_stopping}
    labels = np.random.default_rng(0).permutation(Y)
    assert make_classifier(**options).fit(X, labels).n_iter_ == 2
    assert make_classifier(**options, callbacks=[EarlyStopping("loss", patience=20)]).fit(X, labels).n_iter_ == 9


@pytest.mark.parametrize("verbose, lines", [(0, 0), (1, 3), (False, 0), (True, 3)])
def test_output_by_verbosity(verbose, lines, capfd):
    make_classifier(verbose=verbose).fit(X, Y)
    out, err = capfd.readouterr()
    assert len((out + err).splitlines()) == lines


def test_default_batches_have_200_examples_and_never_one():
    automatic = [(300, "auto", 2), (202, "auto", 2), (201, "auto", 1), (200, "auto", 1), (7, "auto", 1)]
    for n, batch_size, steps in (*automatic, (300, 100, 3), (300, 1000, 1)):
        fitted = make_classifier(epochs=1, batch_size=batch_size).fit(X[:n], Y[:n])
        assert fitted.trainer_.step == steps
    batch_size = SequentialClassifier()._batch_size
    assert batch_size(400) == 200 and batch_size(40_201) == 202 and batch_size(200 * 201 * 202 + 1) == 203
    assert all(n % batch_size(n) != 1 for n in range(2, 5000))


def test_shuffle():
    in_order = make_classifier(shuffle=False).fit(X, Y)
    assert bits(in_order) != bits(make_classifier().fit(X, Y))


# ---- interrupts
def test_ctrl_c_ends_a_fit_and_leaves_nothing():
    class Interrupter:
        def on_fit_begin(self, trainer):
            threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()

    fresh = make_classifier(epochs=10**6, tol=None, callbacks=[Interrupter()])
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(X, Y)
    assert not hasattr(fresh, "trainer_") and not hasattr(fresh, "n_features_in_")
    assert fresh.set_params(epochs=2, callbacks=[]).fit(X, Y).n_iter_ == 2


def test_a_non_finite_loss_is_located():
    for lr, message in (
        (1e12, "step 1: the loss of examples .* is infinite"),
        (1e30, "step 1: layer 2, Dense: its out"),
    ):
        fresh = SequentialRegressor([Dense(4), ReLU(), Dense(1)], optimizer="sgd", lr=lr, random_state=0)
        with pytest.raises(FloatingPointError, match=message):
            fresh.fit(X, 1e3 * X[:, 0])
        assert not hasattr(fresh, "trainer_")
