"""How a fit runs: random numbers, threads, callbacks, what is printed, Ctrl-C, many at a time."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from minidl.callbacks import CSVLogger, ExponentialMovingAverage
from minidl.estimators import SequentialClassifier, SequentialRegressor
from minidl.layers import Dense, Dropout, ReLU

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(300, 6)).astype("float32"), RNG.integers(0, 3, 300)


def classifier(**options):
    layers = [Dense(16), ReLU(), Dropout(0.3), Dense(3)]
    return SequentialClassifier(layers, **{"epochs": 3, "batch_size": 32, "random_state": 0, **options})


def bits(fitted):
    return {name: value.tobytes() for name, value in fitted.model_.state_dict().items()}


# ---- random numbers
def test_an_int_is_the_same_every_time_and_another_one_another_model():
    first, second, third = (classifier(random_state=seed).fit(X, Y) for seed in (0, 0, np.int64(0)))
    assert bits(first) == bits(second) == bits(third)
    assert bits(classifier(random_state=1).fit(X, Y)) != bits(classifier().fit(X, Y))


def test_a_generator_goes_on():
    same = np.random.RandomState(7)
    first, second = (classifier(random_state=same).fit(X, Y) for _ in range(2))
    assert bits(first) != bits(second)
    again = np.random.RandomState(7)
    assert bits(classifier(random_state=again).fit(X, Y)) == bits(first)


def test_without_one_numpys_own_seed_governs():
    """As in scikit-learn; with one, NumPy's generator is left alone."""
    np.random.seed(5)  # noqa: NPY002
    first, second = (classifier(random_state=None).fit(X, Y) for _ in range(2))
    np.random.seed(5)  # noqa: NPY002
    again = classifier(random_state=None).fit(X, Y)
    assert bits(first) == bits(again) != bits(second)
    before = np.random.get_state()[1].tobytes()  # noqa: NPY002
    classifier().fit(X, Y)
    assert np.random.get_state()[1].tobytes() == before  # noqa: NPY002


def test_weights_order_and_dropout_follow_it():
    start = {"epochs": 1, "lr": 0.0}
    assert bits(classifier(random_state=1, **start).fit(X, Y)) != bits(classifier(random_state=2, **start).fit(X, Y))
    losses = [classifier(random_state=s, shuffle=False).fit(X, Y).loss_curve_ for s in (1, 1, 2)]
    assert losses[0] == losses[1] != losses[2]


# ---- threads
@pytest.mark.parametrize("early_stopping", [False, True])
def test_threads_change_no_bit(early_stopping):
    one, two, three = (classifier(num_threads=n, early_stopping=early_stopping).fit(X, Y) for n in (1, 2, 3))
    assert bits(one) == bits(two) == bits(three)
    np.testing.assert_array_equal(one.predict_proba(X), three.predict_proba(X))
    assert one.trainer_.num_threads == 1


def test_two_fits_in_two_threads_are_those_of_one():
    from joblib import Parallel, delayed

    alone = [classifier(random_state=s, epochs=20).fit(X, Y) for s in range(4)]
    together = Parallel(n_jobs=2, backend="threading")(
        delayed(classifier(random_state=s, epochs=20).fit)(X, Y) for s in range(4)
    )
    assert [bits(fitted) for fitted in together] == [bits(fitted) for fitted in alone]


def test_many_threads_predict_at_the_same_time():
    fitted = classifier().fit(X, Y)
    expected = fitted.predict_proba(X)
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: fitted.predict_proba(X), range(50)):
            np.testing.assert_array_equal(found, expected)


# ---- callbacks and what is printed
def test_callbacks_see_the_trainer_and_may_stop_it(tmp_path):
    class Two:
        """Stops behind the second epoch."""

        def on_epoch_end(self, trainer, epoch, logs):
            trainer.should_stop = epoch == 1

    fitted = classifier(epochs=9, callbacks=[CSVLogger(tmp_path / "log.csv"), Two()]).fit(X, Y)
    assert fitted.n_iter_ == 2
    rows = np.genfromtxt(tmp_path / "log.csv", delimiter=",", names=True)
    np.testing.assert_array_equal(rows["loss"], fitted.loss_curve_)


def test_callbacks_that_write_into_the_model_come_before_early_stopping():
    average = ExponentialMovingAverage(0.9)
    averaged = classifier(callbacks=[average]).fit(X, Y)
    for name, value in average.averages.items():
        np.testing.assert_array_equal(averaged.model_.params[name].value, value)
    stopped = classifier(callbacks=[ExponentialMovingAverage(0.9)], early_stopping=True).fit(X, Y)
    assert bits(stopped) == bits(classifier(early_stopping=True).fit(X, Y))


@pytest.mark.parametrize("verbose, lines", [(0, 0), (1, 3), (False, 0), (True, 3)])
def test_what_is_printed(verbose, lines, capfd):
    classifier(verbose=verbose).fit(X, Y)
    out, err = capfd.readouterr()
    assert len((out + err).splitlines()) == lines


def test_batches_are_of_200_and_of_no_example_alone():
    automatic = [(300, "auto", 2), (202, "auto", 2), (201, "auto", 1), (200, "auto", 1), (7, "auto", 1)]
    for n, batch_size, steps in (*automatic, (300, 100, 3), (300, 1000, 1)):
        fitted = classifier(epochs=1, batch_size=batch_size).fit(X[:n], Y[:n])
        assert fitted.trainer_.step == steps


def test_shuffle():
    in_order = classifier(shuffle=False).fit(X, Y)
    assert bits(in_order) != bits(classifier().fit(X, Y))


# ---- broken off
def test_ctrl_c_ends_a_fit_and_leaves_nothing():
    class Interrupted:
        def on_fit_begin(self, trainer):
            threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()

    fresh = classifier(epochs=10**6, tol=None, callbacks=[Interrupted()])
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(X, Y)
    assert not hasattr(fresh, "trainer_") and not hasattr(fresh, "n_features_in_")
    assert fresh.set_params(epochs=2, callbacks=[]).fit(X, Y).n_iter_ == 2


def test_a_loss_that_is_not_finite_says_where():
    for lr, said in ((1e9, "step 1: the loss of examples .* is infinite"), (1e30, "step 1: layer 2, Dense: its out")):
        fresh = SequentialRegressor([Dense(4), ReLU(), Dense(1)], optimizer="sgd", lr=lr, random_state=0)
        with pytest.raises(FloatingPointError, match=said):
            fresh.fit(X, 1e3 * X[:, 0])
        assert not hasattr(fresh, "trainer_")
