"""The BLAS has one thread while layers, losses, metrics and optimizers in NumPy run, and its own number again after."""

import os
import sys
import threading

import numpy as np
import pytest
import threadpoolctl

from minidl import Layer, Sequential, Trainer
from minidl.layers import Dense, ReLU
from minidl.optimizers import SGD
from minidl.utils.threadpool import OneBlasThread, at_most, one_blas_thread
from minidl_c.runtime.threads import get_num_threads, limit_thread, set_num_threads

X, Y = np.ones((40, 3), "f4"), np.arange(40) % 2
BLAS = threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers
OWN = [getattr(one, "threading_layer", None) != "openmp" for one in BLAS]
pytestmark = pytest.mark.skipif(not OWN or not all(OWN), reason="no BLAS with threads of its own")


@pytest.fixture(autouse=True)
def three_threads():
    with threadpoolctl.threadpool_limits(3, user_api="blas"):
        yield
        assert threads() == 3


def threads():
    (number,) = {library.get_num_threads() for library in BLAS}
    return number


class Part(Layer):
    """Sees the number of threads: as a layer, and as a loss, metric or optimizer."""

    lr = 0.1

    def __init__(self, seen, fails=False):
        self.seen, self.fails = seen, fails

    def see(self, where):
        if self.fails:
            raise RuntimeError("fails")
        self.seen.append((where, threads()))

    def forward(self, x, training):
        self.see("forward" if training else "predict")
        return x

    def backward(self, dy):
        self.see("backward")
        return dy

    def step(self, params, lr):
        self.see("step")

    def loss(self, scores, y):
        self.see("loss")
        return scores.sum(axis=1), np.ones_like(scores)

    def metric(self, y, scores):
        self.see("metric")
        return 0.0


def sees(part, name):
    """Returns a trainer in which only one kind of part is a user's."""
    layers = [Dense(4), part, Dense(2)] if name == "layer" else [Dense(4), ReLU(), Dense(2)]
    loss = part.loss if name == "loss" else "softmax_cross_entropy"
    metrics = [part.metric] if name == "metric" else []
    return Trainer(Sequential(layers, (3,)), loss, part if name == "optimizer" else SGD(0.1), metrics)


EXPECTED = {
    "layer": {"predict", "forward", "backward"},
    "loss": {"loss"},
    "metric": {"metric"},
    "optimizer": {"step"},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_part_runs_on_one_thread(name):
    seen = []
    trainer = sees(Part(seen), name)
    if name == "layer":
        trainer.model.layers[1].seen = seen  # the model's own copy
    trainer.fit(X, Y, batch_size=10, validation_split=0.5, verbose=0, callbacks=[After()])
    trainer.train_batch(X, Y)
    trainer.evaluate(X, Y)
    trainer.model.forward(X, training=True)
    trainer.model.backward(np.ones((40, 2)))
    trainer.predict(X)
    assert {where for where, _ in seen} == EXPECTED[name] and {number for _, number in seen} == {1}


class After:
    def on_step_end(self, trainer, step, loss):
        assert threads() == 3  # a user's callback has what it had

    def on_epoch_end(self, trainer, epoch, logs):
        assert threads() == 3


@pytest.mark.parametrize("name", EXPECTED)
def test_an_error_restores_the_threads(name):
    trainer = sees(Part([], fails=True), name)
    with pytest.raises(RuntimeError, match="fails"):
        trainer.fit(X, Y, verbose=0)
    assert threads() == 3


def test_a_part_may_take_threads_back():
    with one_blas_thread:
        with threadpoolctl.threadpool_limits(2, user_api="blas"):
            assert threads() == 2
        assert threads() == 1


def test_users_of_several_threads_of_python():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with one_blas_thread:
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with one_blas_thread:
        thread.start()
        assert inside.wait(60) and threads() == 1
    assert threads() == 1  # the other one has not ended
    leave.set()
    thread.join()
    assert threads() == 3


def test_another_thread_than_the_first_that_set_a_limit():
    """As long as the first one lives, threadpoolctl ignores others."""
    seen = []
    trainer = sees(Part(seen), "loss")
    thread = threading.Thread(target=lambda: trainer.fit(X, Y, verbose=0))
    thread.start()
    thread.join()
    assert {number for _, number in seen} == {1} and threads() == 3
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        assert threads() == 2


def test_a_limit_of_one_is_kept():
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        with one_blas_thread:
            assert threads() == 1
        assert threads() == 1


def test_calls_take_at_most_some_threads():
    set_num_threads(4)
    before = limit_thread(2)
    try:
        for number, expected in ((1, 1), (3, 2), (None, 2)):
            with pytest.raises(KeyError), at_most(number):
                assert get_num_threads() == expected
                raise KeyError
            assert get_num_threads() == 2
    finally:
        limit_thread(before)
        set_num_threads(None)


def test_models_of_kernels_do_not_touch_the_blas(monkeypatch):
    def fail(self):
        raise AssertionError

    monkeypatch.setattr(OneBlasThread, "__enter__", fail)
    trainer = Trainer(Sequential([Dense(4), ReLU(), Dense(2)], (3,)), "softmax_cross_entropy", SGD(0.1), ["accuracy"])
    trainer.fit(X, Y, validation_split=0.5, verbose=0)
    trainer.predict(X)


def test_a_blas_with_threads_of_openmp_is_left_alone(monkeypatch):
    monkeypatch.setattr(threadpoolctl, "ThreadpoolController", lambda: Found([Library("openmp")]))
    with OneBlasThread():
        assert threads() == 3


def test_a_blas_that_is_loaded_later_is_limited(monkeypatch):
    """As SciPy's, which has one of its own."""
    loaded = []
    monkeypatch.setattr(threadpoolctl, "ThreadpoolController", lambda: Found(loaded))
    one = OneBlasThread()
    with one:
        pass
    loaded.append(late := Library("pthreads"))
    monkeypatch.setitem(sys.modules, "a module that was imported since", None)
    with one:
        assert late.number == 1
    assert late.number == 3


class Library:
    number = 3

    def __init__(self, threading_layer):
        self.threading_layer = threading_layer

    def get_num_threads(self):
        return self.number

    def set_num_threads(self, number):
        self.number = number


class Found:
    def __init__(self, lib_controllers):
        self.lib_controllers = lib_controllers

    def select(self, user_api):
        return self


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_is_not_locked():
    own = OneBlasThread()
    with own._lock:
        child = os.fork()
        if child == 0:
            with own:
                os._exit(threads() != 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
