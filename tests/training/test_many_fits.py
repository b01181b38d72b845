"""fit_many: nets in threads have the bits of their own fits; errors have names; signals stop all nets between steps."""

import os
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from interrupted_fits import InterruptAfter
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from minidl import Layer, Sequential, Trainer, fit_many, get_num_threads
from minidl.callbacks import Checkpoint
from minidl.estimators import SequentialClassifier
from minidl.layers import BatchNorm1D, Dense, Dropout, ReLU
from minidl.optimizers import SGD, Adam
from minidl.training.progress import Progress
from minidl.training.signals import current_relay
from minidl_c.runtime.threads import limit_thread

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(90, 6)).astype("float32"), RNG.integers(0, 3, 90)
FIT = {"epochs": 3, "batch_size": 8}


class Squares(Layer):
    """A layer in NumPy."""

    def forward(self, x, training):
        self.x = x
        return x * x

    def backward(self, dy):
        return 2 * self.x * dy


def make_trainer(seed=0, layers=(), optimizer=None):
    model = Sequential([Dense(8), *layers, ReLU(), Dropout(0.2), Dense(3)], seed=seed)
    return Trainer(model, "softmax_cross_entropy", optimizer or SGD(0.1, momentum=0.9), ["accuracy"], seed=seed)


def state(trainer):
    """Returns what a fit decides: weights, history, steps, what predictions are."""
    history = {name: np.array(values).tobytes() for name, values in trainer.history.items() if name[:6] != "images"}
    weights = {name: value.tobytes() for name, value in trainer.model.state_dict().items()}
    return weights, history, trainer.step, trainer.model.predict(X).tobytes()


class Threads:
    """Notes the number of threads of a call in each epoch, and the thread that it runs in."""

    def __init__(self):
        self.numbers, self.ids = set(), set()

    def on_epoch_end(self, trainer, epoch, logs):
        self.numbers.add(get_num_threads())
        self.ids.add(threading.get_ident())


class Fails:
    """Raises an error in an epoch."""

    def __init__(self, error, epoch=1):
        self.error, self.epoch = error, epoch

    def on_epoch_begin(self, trainer, epoch):
        if epoch == self.epoch:
            raise self.error


# ---- results


@pytest.mark.parametrize("n_jobs", [1, 2, 5])
def test_nets_have_the_bits_of_their_own_fits(n_jobs, frequent_thread_switches):
    def makers():
        layers = [list, lambda: [BatchNorm1D()], lambda: [Squares()]]
        optimizers = [lambda: SGD(0.05, momentum=0.9), lambda: Adam(0.01)]
        return [make_trainer(k, layers[k % 3](), optimizers[k % 2]()) for k in range(12)]

    weights = np.linspace(0, 1, 90)
    alone, together = makers(), makers()
    for trainer in alone:
        trainer.fit(X, Y, sample_weight=weights, validation_split=0.2, verbose=0, **FIT)
    histories = fit_many(together, X, Y, sample_weight=weights, validation_split=0.2, n_jobs=n_jobs, verbose=0, **FIT)
    assert [state(trainer) for trainer in together] == [state(trainer) for trainer in alone]
    assert all(history is trainer.history for history, trainer in zip(histories, together, strict=True))


def test_each_net_may_have_arguments_of_its_own():
    """Here by name; what a net does not have itself is shared."""
    halves = {"first": slice(0, 45), "second": slice(45, 90)}
    alone, together = ({name: make_trainer() for name in halves} for _ in range(2))
    for name, rows in halves.items():
        alone[name].fit(X[rows], Y[rows], epochs=2 + (name == "second"), batch_size=8, verbose=0)
    own = {name: {"X": X[rows], "y": Y[rows]} for name, rows in halves.items()}
    own["second"]["epochs"] = 3
    histories = fit_many(together, each=own, epochs=2, batch_size=8, n_jobs=2, verbose=0)
    assert {name: state(trainer) for name, trainer in together.items()} == {n: state(t) for n, t in alone.items()}
    assert {name: len(history["loss"]) for name, history in histories.items()} == {"first": 2, "second": 3}


def test_estimators_and_pipelines():
    def make():
        nets = [SequentialClassifier([Dense(8), ReLU(), Dense(3)], epochs=3, random_state=k) for k in range(3)]
        return [*nets, make_pipeline(StandardScaler(), SequentialClassifier(epochs=2, random_state=0))]

    alone = [net.fit(X, Y).predict_proba(X).tobytes() for net in make()]
    fitted = fit_many(make(), X, Y, n_jobs=-1, verbose=0)
    assert [net.predict_proba(X).tobytes() for net in fitted] == alone


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("num_threads", [None, 2])
def test_each_fit_has_one_thread_and_changes_no_setting(n_jobs, num_threads):
    before, notes = get_num_threads(), [Threads() for _ in range(4)]
    trainers = [make_trainer(k) for k in range(4)]
    for trainer in trainers:
        trainer.num_threads = num_threads
    fit_many(trainers, X, Y, each=[{"callbacks": [note]} for note in notes], n_jobs=n_jobs, verbose=0, **FIT)
    assert all(note.numbers == {1} for note in notes)
    assert len(set().union(*(note.ids for note in notes))) <= n_jobs
    assert (threading.get_ident() in notes[0].ids) == (n_jobs == 1)
    assert get_num_threads() == before and all(trainer.num_threads == num_threads for trainer in trainers)


def test_the_limit_of_a_thread_is_its_own():
    seen = []
    before = limit_thread(1)
    try:
        thread = threading.Thread(target=lambda: seen.append(limit_thread(3)))
        thread.start()
        thread.join()
        assert (before, seen, get_num_threads()) == (0, [0], 1)
    finally:
        assert limit_thread(before) == 1


def test_a_list_within_a_fit_runs_in_its_thread():
    class Inner(Threads):
        def on_fit_end(self, trainer):
            notes, nets = [Threads() for _ in range(2)], [make_trainer(k) for k in range(2)]
            fit_many(nets, X, Y, each=[{"callbacks": [note]} for note in notes], n_jobs=2, verbose=0)
            assert notes[0].ids == notes[1].ids == self.ids

    inner = [Inner(), Inner()]
    fit_many([make_trainer(), make_trainer()], X, Y, each=[{"callbacks": [i]} for i in inner], n_jobs=2, verbose=0)


def test_arrays_are_not_copied():
    class Source(np.ndarray):
        """Would be copied by a conversion."""

    large = np.zeros((20_000, 6), "float32")
    large.flags.writeable = False
    trainers = [make_trainer(k) for k in range(3)]
    owners = []

    class Looks:
        def on_epoch_begin(self, trainer, epoch):
            owners.append(trainer._fits._loop.config.data.examples._array.base is large)

    fit_many(
        trainers,
        large[:],
        np.zeros(20_000, int),
        each=[{"callbacks": [Looks()]} for _ in trainers],
        n_jobs=2,
        verbose=0,
    )
    assert owners == [True] * 3


def test_no_net_is_no_work(capsys):
    assert fit_many([], X, Y) == [] and fit_many({}, X, Y) == {}


@pytest.mark.parametrize("verbose", [0, 1, 2])
def test_progress(verbose, capsys):
    trainers = [make_trainer(k) for k in range(3)]
    own = [{"callbacks": [Fails(ValueError("no"))]}, {}, {}]
    fit_many(trainers, X, Y, each=own, epochs=2, n_jobs=2, verbose=verbose, return_exceptions=True)
    printed, bar = capsys.readouterr()
    assert printed.startswith("2 nets fitted, 1 failed, ") == (verbose > 0) and printed.count("\n") == (verbose > 0)
    assert bar.startswith("\rnets: ") == (verbose == 2)


def test_a_bar_shows_how_many_failed():
    progress = Progress(2, 0)
    progress.begin("nets", "net", 3)
    progress.advance(1, failed=1)
    assert (progress._bar.n, progress._bar.total, progress._bar.postfix) == (1, 3, "failed=1")
    progress.close()


# ---- failures


def test_errors_have_names_and_the_others_are_fitted():
    trainers = {name: make_trainer(k) for k, name in enumerate("abcd")}
    trainers["b"].optimizer.lr = 1e30
    own = {name: {} for name in "abcd"} | {"d": {"callbacks": [Fails(OSError("disk"))]}}
    with pytest.raises(
        ExceptionGroup, match=r"2 of 4 nets failed: 'b' \(FloatingPointError\), 'd' \(OSError\)$"
    ) as caught:
        fit_many(trainers, X, Y, each=own, n_jobs=2, verbose=0, **FIT)
    notes = {type(error): error.__notes__ for error in caught.value.exceptions}
    assert notes == {FloatingPointError: ["In the fit of net 'b'"], OSError: ["In the fit of net 'd'"]}
    assert trainers["a"].epoch == trainers["c"].epoch == 3 and trainers["d"].epoch == 1


def test_errors_can_be_returned_in_place_of_results():
    own = [{}, {"callbacks": [Fails(OSError("disk"))]}]
    first, second = fit_many(
        [make_trainer(), make_trainer()], X, Y, each=own, n_jobs=2, verbose=0, return_exceptions=True, **FIT
    )
    assert len(first["loss"]) == 3 and isinstance(second, OSError)


def test_long_messages_are_cut():
    trainers = [make_trainer(k) for k in range(13)]
    with pytest.raises(ExceptionGroup, match=r"13 of 13 nets failed: .* and 3 more$"):
        fit_many(trainers, X, Y[:5], n_jobs=2, verbose=0)


def test_warning_filters_stay():
    """Also if a net restores those that another one has set meanwhile."""
    barrier = threading.Barrier(2)

    class Ignores:
        def __init__(self, first):
            self.first = first

        def on_fit_begin(self, trainer):
            if not self.first:
                barrier.wait(60)
            with warnings.catch_warnings(action="ignore"):
                barrier.wait(60)
                barrier.wait(60)
            if self.first:
                barrier.wait(60)

    before = list(warnings.filters)
    own = [{"callbacks": [Ignores(first)]} for first in (True, False)]
    fit_many([make_trainer(), make_trainer()], X, Y, each=own, n_jobs=2, verbose=0)
    assert warnings.filters == before


# ---- signals


class Raises:
    """Sends a signal to this process in an epoch of a net, while the others run."""

    def __init__(self, number, epoch=1):
        self.number, self.epoch = number, epoch

    def on_epoch_end(self, trainer, epoch, logs):
        if epoch == self.epoch:
            os.kill(os.getpid(), self.number)
            while not current_relay()._signals.pending:  # until the main thread has it
                threading.Event().wait(0.001)


class Saved:
    """Notes the steps at which SIGTERM lets a net save."""

    def __init__(self):
        self.steps = []

    def on_terminate(self, trainer):
        self.steps.append(trainer.step)


class Together:
    """Waits in an epoch until all of its nets are in it."""

    def __init__(self, nets):
        self.barrier = threading.Barrier(nets)

    def on_epoch_begin(self, trainer, epoch):
        if epoch == 1:
            self.barrier.wait(60)


def stopped_list(number, error, callbacks=((),) * 6):
    """Returns six trainers, of which the first sends a signal while two others run, their callbacks and the error."""
    trainers, saved, together = [make_trainer(k) for k in range(6)], [Saved() for _ in range(6)], Together(3)
    own = [{"callbacks": [*callbacks[k], saved[k], together]} for k in range(6)]
    own[0]["callbacks"].append(Raises(number))
    with pytest.raises(error) as caught:
        fit_many(trainers, X, Y, each=own, n_jobs=3, verbose=0, epochs=10**6, batch_size=8)
    return trainers, saved, caught.value


def test_ctrl_c_stops_all_nets_between_two_steps():
    trainers, saved, _ = stopped_list(signal.SIGINT, KeyboardInterrupt)
    running = [trainer for trainer in trainers if trainer.step]
    assert running == trainers[:3] and running[0].epoch >= 2 and not any(one.steps for one in saved)
    assert all(trainer.interrupted is not None and trainer.interrupted.step == trainer.step for trainer in running)
    assert all(trainer.model.network is None for trainer in trainers if not trainer.step)
    for trainer in running:  # whole steps were made, those of its own fit
        own = make_trainer(trainer.seed)
        with pytest.raises(KeyboardInterrupt):
            own.fit(X, Y, 10**6, batch_size=8, verbose=0, callbacks=[InterruptAfter(trainer.step - 1)])
        assert own.step == trainer.step and state(own)[0] == state(trainer)[0]


def test_sigterm_lets_all_nets_save_and_leaves_with_143(tmp_path):
    checkpoints = [[Checkpoint(tmp_path / str(k), every_n_steps=10**9)] for k in range(6)]
    trainers, saved, error = stopped_list(signal.SIGTERM, SystemExit, callbacks=checkpoints)
    assert error.code == 143
    for k, trainer in enumerate(trainers):
        assert saved[k].steps == ([trainer.step] if trainer.step else [])
        assert (tmp_path / str(k)).exists() == bool(trainer.step)
        if trainer.step:
            assert state(Trainer.resume(tmp_path / str(k))) == state(trainer)


def test_a_sigterm_during_a_fit_inside_a_callback_lets_the_outer_net_save():
    """The inner fit goes on to its end, as in a fit of the main thread; so does one that on_terminate begins."""
    saved, inner = [Saved() for _ in range(2)], []

    class Probes:
        """Fits a net in each epoch, and when the process is to end."""

        def on_epoch_end(self, trainer, epoch, logs):
            callbacks = [Raises(signal.SIGTERM, 0)] if epoch == 1 and trainer.seed == 0 else []
            inner.append(len(make_trainer(5).fit(X, Y, 2, callbacks=callbacks, verbose=0)["loss"]))

        def on_terminate(self, trainer):
            inner.append(len(make_trainer(6).fit(X, Y, 3, verbose=0)["loss"]))

    together = Together(2)
    own = [{"callbacks": [saved[k], together, Probes()]} for k in range(2)]
    with pytest.raises(SystemExit) as left:
        fit_many([make_trainer(k) for k in range(2)], X, Y, each=own, n_jobs=2, verbose=0, epochs=10**6, batch_size=8)
    assert left.value.code == 143 and all(len(one.steps) == 1 for one in saved)
    assert inner.count(3) == 2 and set(inner) == {2, 3}


def test_a_stopped_list_is_completed_by_the_same_call():
    whole = [make_trainer(k) for k in range(4)]
    fit_many(whole, X, Y, n_jobs=2, verbose=0, **FIT)
    trainers = [make_trainer(k) for k in range(4)]
    together = Together(2)  # of nets 1 and 2: net 0 is fitted then
    own = [{}, {"callbacks": [together, Raises(signal.SIGINT)]}, {"callbacks": [together]}, {}]
    with pytest.raises(KeyboardInterrupt):
        fit_many(trainers, X, Y, each=own, n_jobs=2, verbose=0, **FIT)
    left = [trainer for trainer in trainers if trainer.epoch < FIT["epochs"]]
    assert trainers[0] not in left and trainers[1] in left
    fit_many(left, X, Y, n_jobs=2, verbose=0, **FIT)
    assert [state(trainer) for trainer in trainers] == [state(trainer) for trainer in whole]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_handler_that_returns_lets_all_nets_go_on(number):
    """It is called in the main thread, while all nets wait between two steps."""
    trainers, saved = [make_trainer(k) for k in range(4)], [Saved() for _ in range(4)]
    own, seen = [{"callbacks": [one]} for one in saved], []
    own[0]["callbacks"] += [Raises(number, 0), Raises(number, 1)]

    def handler(received, frame):
        steps = [trainer.step for trainer in trainers]
        for trainer in trainers:
            trainer.check_between_steps("handler")
        threading.Event().wait(0.05)
        seen.append((received, threading.get_ident(), [trainer.step for trainer in trainers] == steps))

    before = signal.signal(number, handler)
    try:
        fit_many(trainers, X, Y, each=own, n_jobs=2, verbose=0, **FIT)
    finally:
        assert signal.signal(number, before) is handler
    assert seen == 2 * [(number, threading.get_ident(), True)]
    assert all(trainer.epoch == 3 for trainer in trainers)
    assert len(saved[0].steps) == 2 * (number == signal.SIGTERM)


def test_ctrl_c_between_two_fits_of_other_estimators():
    """They have no steps: those that run are fitted to their end."""
    fitted, lock = [], threading.Lock()

    class Other:
        def fit(self, X, y):
            if len(fitted) >= 2 and lock.acquire(blocking=False):  # once
                Raises(signal.SIGINT, 0).on_epoch_end(None, 0, {})
            fitted.append(self)

    with pytest.raises(KeyboardInterrupt):
        fit_many([Other() for _ in range(9)], X, Y, n_jobs=2, verbose=0)
    assert 3 <= len(fitted) <= 5


def test_an_exit_in_a_net_stops_all():
    trainers = [make_trainer(k) for k in range(2)]
    together = Together(2)
    own = [{"callbacks": [together, Fails(SystemExit(7))]}, {"callbacks": [together]}]
    with pytest.raises(SystemExit) as left:
        fit_many(trainers, X, Y, each=own, n_jobs=2, verbose=0, epochs=10**6)
    assert left.value.code == 7 and trainers[1].interrupted is not None


@pytest.mark.parametrize("number", [2, 3])
def test_a_second_ctrl_c_acts_at_once(number):
    """Also while a net is in a long step: the list is left as soon as that ends, and no sooner."""
    in_step, go = threading.Barrier(3), threading.Event()

    class Long(Squares):
        def forward(self, x, training):
            if training and not go.is_set():
                in_step.wait(60)
                assert go.wait(60)
            return super().forward(x, training)

    def send():
        in_step.wait(60)
        for _ in range(number):
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(0.1)
        go.set()

    sender = threading.Thread(target=send)
    sender.start()
    trainers = [make_trainer(0, [Long()]), make_trainer(1, [Long()])]
    with pytest.raises(KeyboardInterrupt):
        fit_many(trainers, X, Y, n_jobs=2, verbose=0, **FIT)
    sender.join()
    assert [trainer.step for trainer in trainers] == [1, 1]
    for trainer in trainers:
        trainer.model.predict(X)  # refused while a thread trains


PROGRAM = """
import sys, threading, numpy as np
from minidl import Sequential, Trainer, fit_many
from minidl.layers import Dense
from minidl.optimizers import SGD
both = threading.Barrier(2)
class Ready:
    def on_epoch_begin(self, trainer, epoch):
        if epoch == 1 and both.wait() == 0:
            print("ready", flush=True)
def make(seed):
    return Trainer(Sequential([Dense(2)], seed=seed), "softmax_cross_entropy", SGD(0.5))
X, y = np.zeros((1000, 3)), np.zeros(1000, int)
try:
    fit_many([make(k) for k in range(4)], X, y, callbacks=[Ready()], epochs=10**9, n_jobs=2, verbose=0)
finally:
    print("finally", threading.active_count(), flush=True)
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_a_process_exits_soon_and_cleanly(number, status):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        out, _ = process.communicate(timeout=300)
    assert (out, process.returncode) == ("finally 1\n", status)
