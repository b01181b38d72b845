"""Custom optimizers with unusual state: resumed bit for bit, or refused when saved. Saving while a thread trains."""

import copy
import threading

import numpy as np
import pytest
from interrupted_fits import FIT, X, Y, batchnorm_trainer, full_state

from minidl import Sequential, Trainer
from minidl.layers import Conv2D, Dense, Flatten
from minidl.optimizers import SGD, Adam
from minidl.schedules import Cosine


class Plain:
    """w -= lr * g, with additional attributes set by a test."""

    def __init__(self, lr=0.1):
        self.lr = lr

    def step(self, params, lr):
        for param in params.values():
            param.value = param.value - lr * param.grad


def constant_rate(step):
    return 0.1


class Wrapper(Plain):
    """Wraps an optimizer that it makes itself."""

    def __init__(self, lr=0.1, momentum=0.9):
        super().__init__(lr)
        self.momentum, self.base = momentum, SGD(lr, momentum)

    def step(self, params, lr):
        self.base.step(params, self.base.lr if not callable(self.base.lr) else self.base.lr(1))


class TwoOptimizers(Plain):
    """Holds the same optimizer twice, as made by its constructor."""

    def __init__(self, lr=0.1):
        super().__init__(lr)
        self.first = self.second = SGD(lr, 0.9)

    def step(self, params, lr):
        for i, (name, param) in enumerate(params.items()):
            (self.first, self.second)[i % 2].step({name: param}, lr)


class Log:
    def __init__(self):
        self.seen = [1.0]


class SharedList(Plain):
    """One list, shared by this object and by an inner one."""

    def __init__(self, lr=0.1):
        super().__init__(lr)
        self.log = Log()
        self.seen = self.log.seen


class TwoNames(Plain):
    """Holds an object with a list under two names, as made by its constructor."""

    def __init__(self, lr=0.1):
        super().__init__(lr)
        self.log = self.same = Log()

    def step(self, params, lr):
        self.log.seen.append(lr)
        super().step(params, lr * len(self.same.seen))


class Function:
    def __init__(self, function, best=float("nan"), arrays=()):
        self.function, self._best, self._arrays = function, best, arrays

    best, arrays = property(lambda self: self._best), property(lambda self: self._arrays)


class ArgumentHolder(Plain):
    """An object with arguments of all kinds, which is restored as it was."""

    def __init__(self, lr=0.1):
        super().__init__(lr)
        self.inner = Function(np.sign, arrays=[np.ones(2), {"a": np.zeros(3)}])


class OwnFunction(Plain):
    """Holds an object with a function that each call of the constructor makes."""

    def __init__(self, lr=0.1):
        super().__init__(lr)
        self.inner = Function(lambda x: x)


class OwnState(Plain):
    """Has a list of optimizers under two names, which its load_state_dict makes one again."""

    def __init__(self, optimizers, lr=0.1):
        super().__init__(lr)
        self.optimizers = self._optimizers = optimizers

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        self._optimizers = self.optimizers


class Warm(Plain):
    """Starts with a small step; then the attribute `warm` is deleted."""

    def __init__(self, lr=0.1):
        super().__init__(lr)
        self.warm = True

    def step(self, params, lr):
        super().step(params, 0.1 * lr if hasattr(self, "warm") else lr)
        if hasattr(self, "warm"):
            del self.warm


def trained(optimizer, change=lambda made: None):
    """Returns a trainer after three steps and a change of its optimizer."""
    model = Sequential([Conv2D(2, 3), Flatten(), Dense(3)], (1, 6, 6))
    trainer = Trainer(model, "softmax_cross_entropy", optimizer)
    for _ in range(3):
        trainer.train_batch(X, Y)
    change(trainer.optimizer)
    return trainer


def put(**attributes):
    return lambda made: vars(made).update(attributes)


def momentum_of_its_own(made):
    made.base = SGD(0.1, 0.5)


CLASSES = (Plain, Wrapper, Warm, ArgumentHolder, Function, TwoNames, OwnFunction, OwnState)


@pytest.mark.parametrize(
    ("optimizer", "change"),
    [
        (Warm(), lambda made: None),
        (Wrapper(), lambda made: setattr(made.base, "lr", 0.003)),
        (Wrapper(Cosine(0.1, 10)), lambda made: setattr(made.base.lr, "lr", 0.02)),
        (Plain(), put(m=np.asfortranarray(np.ones((3, 4))), v=np.arange(6.0).reshape(2, 3))),
        (Plain(), put(m=np.arange(24.0).reshape(2, 3, 4).transpose(0, 2, 1), v=np.ones((1, 5, 1)))),
        (Plain(), put(halves=list(np.arange(10.0).reshape(2, 5)))),  # adjacent in memory
        (ArgumentHolder(), lambda made: None),
        (Wrapper(constant_rate), lambda made: setattr(made.base, "lr", 0.02)),
        (Plain(), put(empty=np.zeros((0, 3)), other=np.zeros(0))),
        (TwoNames(), lambda made: None),
        (OwnFunction(), lambda made: None),
        (OwnState([SGD(0.1)]), lambda made: None),
    ],
)
def test_resuming_gives_the_same_bits(optimizer, change, tmp_path):
    trainer = trained(copy.deepcopy(optimizer), change)
    trainer.save_checkpoint(tmp_path / "a")
    resumed = Trainer.resume(
        tmp_path / "a",
        custom_objects={kind.__name__: kind for kind in CLASSES} | {"constant_rate": constant_rate},
    )
    assert vars(resumed.optimizer).keys() == vars(trainer.optimizer).keys()
    for _ in range(4):
        assert trainer.train_batch(X, Y) == resumed.train_batch(X, Y)
    for name, value in trainer.model.state_dict().items():
        assert resumed.model.state_dict()[name].tobytes() == value.tobytes()


def flat_and_views(made):
    made.flat = np.zeros(10)
    made.views = {"a": made.flat[:4], "b": made.flat[4:]}


@pytest.mark.parametrize(
    ("optimizer", "change", "message"),
    [
        (Plain(), flat_and_views, r"views.*'a'.*shares memory with Plain.*flat"),
        (Plain(), put(m=np.ones((4, 6))[:, ::2]), "m.*expected an array of NumPy, in one piece"),
        (Plain(), put(m=np.ones(3).view(np.recarray)), "m.*expected an array of NumPy, and no recarray"),
        (SharedList(), lambda made: None, r"seen.*cannot be saved: it is also .*seen"),
        (TwoOptimizers(), put(second=SGD(0.1, 0.9)), r"\.second: .* it is not TwoOptimizers\.first; a resume"),
        (Wrapper(), put(base=Adam(0.1)), "expected the Adam that was saved"),
        (Wrapper(), put(base=type("SGD", (Plain,), {})()), "SGD"),
        (Wrapper(), lambda made: setattr(made.base, "lr", lambda step: 0.1), "Wrapper.base: .*its lr is <function.*"),
        (ArgumentHolder(), put(inner=Function(np.tanh)), r"\.inner: .*: its function is .*tanh.* make it"),
        (ArgumentHolder(), put(inner=Function(np.sign, arrays=[np.ones(2), {"a": np.ones(3)}])), ": its arrays is"),
        (TwoNames(), put(log=type("Log", (Log,), {})()), r"\.log: .*a resume would make a Log instead"),
        (Wrapper(), momentum_of_its_own, "Wrapper.base: .*: its momentum is 0.5, .* make it with 0.9"),
    ],
)  # fmt: skip
def test_state_that_would_be_restored_differently_is_refused(optimizer, change, message, tmp_path):
    trainer = trained(copy.deepcopy(optimizer), change)
    with pytest.raises(TypeError, match=message):
        trainer.save_checkpoint(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_two_objects_can_be_made_with_one_list(tmp_path):
    class Milestones(Plain):
        def __init__(self, lr, milestones):
            super().__init__(lr)
            self.milestones = milestones

    class Holder(Plain):
        def __init__(self, lr=0.1, milestones=(1, 2)):
            super().__init__(lr)
            self.milestones = milestones
            self.parts = [Milestones(lr, milestones), Milestones(lr, milestones)]

    trained(Holder(milestones=[3, 4])).save_checkpoint(tmp_path / "a")
    custom = {"Holder": Holder, "Milestones": Milestones}
    assert Trainer.resume(tmp_path / "a", custom_objects=custom).optimizer.parts[1].milestones == [3, 4]


# ---- the position in the fit
def interrupted():
    class Stopper:
        def on_step_end(self, trainer, step, loss):
            if step == 3:
                raise KeyboardInterrupt

    trainer = batchnorm_trainer()
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(X, Y, **FIT | {"epochs": 2}, callbacks=[Stopper()])
    return trainer


def test_a_fit_whose_metrics_were_replaced_is_saved_only_once_abandoned(tmp_path):
    trainer = interrupted()
    trainer.metrics = []
    with pytest.raises(
        TypeError, match="fit: cannot be saved: its model or metrics were replaced; set interrupted = None"
    ):
        trainer.save_checkpoint(tmp_path / "a")
    trainer.interrupted = None
    trainer.save_checkpoint(tmp_path / "a")
    assert Trainer.resume(tmp_path / "a").interrupted is None


def test_after_a_complete_fit_metrics_can_be_replaced(tmp_path):
    trainer = batchnorm_trainer()
    trainer.fit(X, Y, **FIT | {"epochs": 1})
    trainer.metrics = []
    trainer.save_checkpoint(tmp_path / "a")
    resumed = Trainer.resume(tmp_path / "a")
    for one in (trainer, resumed):
        one.fit(X, Y, **FIT | {"epochs": 1})
    assert full_state(resumed) == full_state(trainer)


@pytest.mark.parametrize("values", [[2**70], [1j], ["a"], [[1.0]], [None, {}], 3.0])
def test_a_history_of_non_numbers_is_refused(values, tmp_path):
    trainer = trained(SGD(0.1))
    trainer.history["mine"] = values
    with pytest.raises(TypeError, match="history: expected a list of numbers for 'mine'"):
        trainer.save_checkpoint(tmp_path / "a")


def test_an_object_in_a_callbacks_state_is_refused(tmp_path):
    class ArgumentHolder:
        def on_fit_end(self, trainer):
            trainer.save_checkpoint(tmp_path / "a")

        def state_dict(self):
            return {"log": Log()}

        def load_state_dict(self, state):
            raise AssertionError

    with pytest.raises(
        TypeError, match=r"callback ArgumentHolder: what its state_dict\(\) returns\['log'\]: cannot be saved"
    ):
        batchnorm_trainer().fit(X, Y, **FIT | {"epochs": 1}, callbacks=[ArgumentHolder()])


# ---- threads
@pytest.mark.usefixtures("frequent_thread_switches")
def test_saving_while_a_thread_trains_is_consistent_or_refused(tmp_path):
    """Step, weights and the optimizer's step count are from the same moment."""
    steps, twin = 1000, trained(Adam(0.01))
    weights = {3: twin.model.state_dict()["2.weight"].tobytes()}
    for step in range(4, steps + 1):
        twin.train_batch(X, Y)
        weights[step] = twin.model.state_dict()["2.weight"].tobytes()
    trainer, saved = trained(Adam(0.01)), 0

    def train():
        while trainer.step < steps:
            try:
                trainer.train_batch(X, Y)
            except RuntimeError:
                continue  # saving reads the model

    thread = threading.Thread(target=train)
    thread.start()
    while thread.is_alive() or not saved:
        try:
            trainer.save_checkpoint(tmp_path / "a")
        except RuntimeError:
            continue
        saved += 1
        resumed = Trainer.resume(tmp_path / "a")
        assert weights[resumed.step] == resumed.model.state_dict()["2.weight"].tobytes()
        assert resumed.steps().update.steps == resumed.step
    thread.join()
