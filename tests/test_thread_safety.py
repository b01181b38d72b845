"""One model in many threads: predictions are bit-identical, and training is exclusive."""

import threading

import numpy as np
import pytest

from minidl import Layer, Sequential, Trainer
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU, Rescale
from minidl.losses import softmax_cross_entropy
from minidl.optimizers import SGD

RNG = np.random.default_rng(0)
X, Y = RNG.integers(0, 256, (300, 1, 10, 10)).astype(np.uint8), RNG.integers(0, 4, 300)
WAIT = 300


class Center(Layer):
    """A NumPy layer whose forward keeps state only in training."""

    def forward(self, x, training):
        if training:
            self.shape = x.shape
        return x - 0.5

    def backward(self, dy):
        assert dy.shape == self.shape
        return dy


def make_net(first_layers=()):
    layers = [
        Rescale(1 / 255),
        *first_layers,
        Conv2D(6, 3),
        ReLU(),
        MaxPool2D(2),
        Flatten(),
        Dense(20),
        ReLU(),
        Dense(4),
    ]
    return Sequential(layers, input_shape=(1, 10, 10))


def make_trainer(model, seed=0):
    return Trainer(model, "softmax_cross_entropy", SGD(0.05, momentum=0.9), ["accuracy"], seed)


def weights(model):
    return {name: value.tobytes() for name, value in model.state_dict().items()}


def run_in_threads(*works):
    """Runs all functions at the same time; raises the first error."""
    errors, start = [], threading.Barrier(len(works))

    def run(work):
        try:
            start.wait(WAIT)
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


class BlockingCallback:
    """Blocks a fit in its first step until it is released."""

    def __init__(self):
        self.begun, self.go = threading.Event(), threading.Event()

    def on_step_end(self, trainer, step, loss):
        self.begun.set()
        assert self.go.wait(WAIT)


def run_during_fit(trainer, work):
    """Runs `work` while another thread is inside a fit of this trainer."""
    held = BlockingCallback()
    fit = threading.Thread(target=lambda: trainer.fit(X, Y, verbose=0, callbacks=[held]))
    fit.start()
    try:
        assert held.begun.wait(WAIT)
        work()
    finally:
        held.go.set()
        fit.join(WAIT)


# ---- prediction
@pytest.mark.parametrize("first_layers", [(), (Center,)], ids=["native", "segmented"])
def test_eight_threads_predict_like_one(first_layers, frequent_thread_switches):
    """Batches of all kinds, in a different order per thread, with one and with two threads per call."""
    model = make_net([layer() for layer in first_layers])
    jobs = [(n, num_threads) for n in (1, 3, 16, 17, 45, 300) for num_threads in (1, 2)]
    inputs = {n: [X[:n], X[:n].astype("float64"), X[::-1][:n]] for n, _ in jobs}
    expected = {n: [model.predict(x).tobytes() for x in inputs[n]] for n, _ in jobs}

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(60):
            n, num_threads = jobs[rng.integers(len(jobs))]
            kind = int(rng.integers(3))
            assert model.predict(inputs[n][kind], num_threads).tobytes() == expected[n][kind]

    run_in_threads(*(lambda seed=seed: work(seed) for seed in range(8)))


def test_other_inspection_is_thread_safe(frequent_thread_switches):
    model = make_net()
    trainer = make_trainer(model)
    expected = trainer.evaluate(X, Y)
    proba, scores, state = model.predict_proba(X), model.forward(X), weights(model)

    def work():
        for _ in range(10):
            assert trainer.evaluate(X, Y) == expected
            assert np.array_equal(model.predict_proba(X), proba)
            assert np.array_equal(model.forward(X), scores)
            assert np.array_equal(model[:-1].predict(X[:5]), model[:-1].predict(X[:5]))
            assert weights(model) == state

    run_in_threads(*[work] * 8)


def test_gradients_first_accessed_in_threads_share_one_buffer(frequent_thread_switches):
    for _ in range(30):
        model = Sequential([Dense(200), Dense(200)], input_shape=(200,))
        params = model.params
        run_in_threads(*[lambda params=params: [param.grad for param in params.values()]] * 8)
        for name, param in params.items():
            assert np.shares_memory(param.grad, model.network.parameters.grads), name


# ---- training
def test_everything_else_is_refused_during_a_fit():
    model = make_net()
    trainer, other = make_trainer(model), make_trainer(model)
    state = model.state_dict()

    def work():
        for attempt in (
            lambda: model.predict(X),
            lambda: model.predict_proba(X),
            lambda: model.forward(X),
            lambda: model.forward(X, training=True),
            lambda: model.backward(np.ones((300, 4))),
            lambda: model.state_dict(),
            lambda: model.load_state_dict(state),
            lambda: model[:-1],
            lambda: trainer.fit(X, Y, verbose=0),
            lambda: other.fit(X, Y, verbose=0),
            lambda: other.train_batch(X, Y),
            lambda: other.evaluate(X, Y),
        ):
            with pytest.raises(RuntimeError, match="another thread is at work on this model, in fit"):
                attempt()
        assert other.step == 0 and other.history == {} and trainer.step == 1

    run_during_fit(trainer, work)
    twin = make_net()
    make_trainer(twin).fit(X, Y, verbose=0)
    assert weights(model) == weights(twin)  # refused calls changed nothing
    other.fit(X, Y, verbose=0)  # and the model is free again
    model.predict(X)


def test_training_is_refused_during_predict():
    begun, go = threading.Event(), threading.Event()

    class Slow(Layer):
        def forward(self, x, training):
            begun.set()
            assert training or go.wait(WAIT)
            return x

        def backward(self, dy):
            return dy

    model = make_net([Slow()])
    trainer, before = make_trainer(model), weights(model)
    predict = threading.Thread(target=lambda: model.predict(X[:4]))
    predict.start()
    try:
        assert begun.wait(WAIT)
        for attempt in (
            lambda: trainer.fit(X, Y, verbose=0),
            lambda: trainer.train_batch(X, Y),
            lambda: model.forward(X, training=True),
            lambda: model.load_state_dict(model.state_dict()),
        ):
            with pytest.raises(RuntimeError, match="this model is predicting just now"):
                attempt()
        assert weights(model) == before and trainer.step == 0 and trainer.history == {}
    finally:
        go.set()
        predict.join(WAIT)
    trainer.train_batch(X, Y)


def test_concurrent_first_fits_build_the_model_once(frequent_thread_switches):
    """Of two first fits at once, one builds and trains; the other is refused or runs after it."""
    for _ in range(10):
        model = Sequential([Flatten(), Dense(4)])
        done = []

        def work(model=model, done=done):
            try:
                make_trainer(model).fit(X, Y, verbose=0)
                done.append(True)
            except RuntimeError as error:
                assert "another thread is at work on this model" in str(error)

        run_in_threads(*[work] * 3)
        assert done and model.predict(X).shape == (300, 4)


def test_a_model_remains_usable_after_many_conflicts(frequent_thread_switches):
    """Two threads train and two predict, as often as they are let; a refused call changes nothing."""
    model, refused = make_net(), []
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.0))
    expected = model.predict(X[:3])

    def attempt(work):
        for _ in range(500):
            try:
                work()
            except RuntimeError as error:
                refused.append(str(error))

    def train():
        trainer.train_batch(X[:3], Y[:3])

    def predict():
        assert np.array_equal(model.predict(X[:3]), expected)

    run_in_threads(*(lambda work=work: attempt(work) for work in (train, train, predict, predict)))
    assert all("this model" in message for message in refused)
    train()
    predict()


def test_callbacks_may_read_and_write_the_model():
    class ReadingCallback:
        def on_step_end(self, trainer, step, loss):
            trainer.model.predict(X[:2])

        def on_epoch_end(self, trainer, epoch, logs):
            trainer.evaluate(X, Y)
            trainer.model.load_state_dict(trainer.model.state_dict())
            scores = trainer.model.forward(X, training=True)
            trainer.model.backward(softmax_cross_entropy(scores, Y)[1])

    looked, plain = make_net(), make_net()
    make_trainer(looked).fit(X, Y, 3, callbacks=[ReadingCallback()], verbose=0)
    make_trainer(plain).fit(X, Y, 3, verbose=0)
    assert weights(looked) == weights(plain)


def test_an_interrupted_call_frees_the_model():
    class Interrupter:
        def on_step_end(self, trainer, step, loss):
            raise KeyboardInterrupt

    trainer = make_trainer(make_net())
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(X, Y, callbacks=[Interrupter()], verbose=0)
    with pytest.raises(ValueError, match="labels"):
        trainer.fit(X, Y + 1, verbose=0)
    run_in_threads(lambda: trainer.train_batch(X, Y))


def test_two_models_train_at_the_same_time(frequent_thread_switches):
    """Each has the same bits as when it trains alone; both run in threads other than the main one."""

    def trained(seed, first_layers):
        model = make_net(first_layers)
        history = make_trainer(model, seed).fit(X, Y, epochs=4, batch_size=32, validation_split=0.2, verbose=0)
        return weights(model), history["loss"], history["val_accuracy"]

    jobs = [(seed, first_layers) for seed in (0, 1) for first_layers in (False, True)]
    alone = [trained(seed, [Center()] if first_layers else []) for seed, first_layers in jobs]
    together = {}

    def work(job):
        seed, first_layers = job
        together[job] = trained(seed, [Center()] if first_layers else [])

    run_in_threads(*(lambda job=job: work(job) for job in jobs))
    assert [together[job] for job in jobs] == alone
