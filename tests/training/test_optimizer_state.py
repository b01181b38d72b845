"""Nested state of optimizers and schedules is restored from a checkpoint at any depth, or the save is refused."""

import numpy as np
import pytest
from interrupted_fits import FIT, X, Y, full_state, interrupt_fit

from minidl import Sequential, Trainer
from minidl.layers import Conv2D, Dense, Flatten, ReLU
from minidl.optimizers import SGD, Adam, RMSprop
from minidl.schedules import Cosine
from minidl.training.optimizer_state import MAX_DEPTH


class Lookahead:
    """Zhang, Lucas, Hinton, Ba (2019): slow weights that follow those of another optimizer."""

    def __init__(self, inner, k=5, alpha=0.5):
        self.inner, self.k, self.alpha, self.slow, self.n = inner, k, alpha, {}, 0

    lr = property(lambda self: self.inner.lr)

    def step(self, params, lr):
        if not self.slow:
            self.slow = {name: param.value.copy() for name, param in params.items()}
        self.inner.step(params, lr)
        self.n += 1
        if self.n % self.k == 0:
            for name, param in params.items():
                self.slow[name] += self.alpha * (param.value - self.slow[name])
                param.value = self.slow[name]


class Alternating:
    """Several optimizers, in a list, a tuple or a dict, each used for one step in turn."""

    def __init__(self, several, lr=0.01):
        self.several, self.lr, self.n = several, lr, 0

    def step(self, params, lr):
        several = list(self.several.values()) if isinstance(self.several, dict) else self.several
        several[self.n % len(several)].step(params, lr)
        self.n += 1


class InnerFromConstructor:
    """Makes another optimizer in its constructor."""

    def __init__(self, lr):
        self.lr, self._adam = lr, Adam(lr)

    def step(self, params, lr):
        self._adam.step(params, lr)


class InnerFromFirstStep(InnerFromConstructor):
    """Makes another optimizer in its first step, so the constructor alone cannot restore it."""

    def __init__(self, lr):
        self.lr, self._adam = lr, None

    def step(self, params, lr):
        self._adam = self._adam or Adam(lr)
        super().step(params, lr)


class CountingSchedule:
    """A schedule that counts its calls."""

    def __init__(self, lr):
        self.lr, self.asked = lr, 0

    def __call__(self, step):
        self.asked += 1
        return self.lr / self.asked


class LookaheadWithState(Lookahead):
    """The same with a state_dict of its own that includes the inner one."""

    def state_dict(self):
        return {"inner": self.inner.state_dict(), "slow": self.slow, "n": self.n}

    def load_state_dict(self, state):
        self.inner.load_state_dict(state["inner"])
        self.slow, self.n = state["slow"], state["n"]


CUSTOM = {
    cls.__name__: cls
    for cls in (Lookahead, Alternating, InnerFromConstructor, InnerFromFirstStep, CountingSchedule, LookaheadWithState)
}
NESTED = {
    "Lookahead around Adam": lambda: Lookahead(Adam(0.005)),
    "around momentum": lambda: Lookahead(SGD(0.05, momentum=0.9)),
    "around Lookahead around RMSprop": lambda: Lookahead(Lookahead(RMSprop(0.001, momentum=0.5), k=2), k=3),
    "around a built-in schedule": lambda: Lookahead(Adam(Cosine(0.01, 40))),
    "around a schedule with state": lambda: Lookahead(SGD(CountingSchedule(0.1), momentum=0.9)),
    "a list": lambda: Alternating([Adam(0.005), SGD(0.05, momentum=0.9)]),
    "a tuple": lambda: Alternating((Adam(0.005), Lookahead(Adam(0.01)))),
    "a dict": lambda: Alternating({"a": Adam(0.005), "b": InnerFromConstructor(0.01)}),
    "made by its constructor": lambda: InnerFromConstructor(0.01),
    "with a state_dict": lambda: LookaheadWithState(Adam(0.005)),
}


def make_trainer(optimizer):
    model = Sequential([Conv2D(2, 3), Flatten(), Dense(5), ReLU(), Dense(3)], (1, 6, 6))
    return Trainer(model, "softmax_cross_entropy", optimizer)


@pytest.mark.parametrize("optimizer", NESTED.values(), ids=NESTED)
def test_a_nested_optimizer_is_resumed(tmp_path, optimizer):
    uninterrupted = make_trainer(optimizer())
    uninterrupted.fit(X, Y, **FIT)
    interrupt_fit(make_trainer(optimizer()), 13).save_checkpoint(tmp_path / "ck")
    resumed = Trainer.resume(tmp_path / "ck", custom_objects=CUSTOM)
    resumed.fit(X, Y, **FIT)
    assert full_state(resumed) == full_state(uninterrupted)


def test_state_not_made_by_the_constructor_refuses_the_save(tmp_path):
    trainer = interrupt_fit(make_trainer(InnerFromFirstStep(0.01)), 3)
    with pytest.raises(
        TypeError, match=r"cannot be saved: .*InnerFromFirstStep\._adam: expected the Adam that was saved"
    ):
        trainer.save_checkpoint(tmp_path / "ck")
    assert not list(tmp_path.iterdir())


def test_self_references_refuse_the_save(tmp_path):
    trainer = make_trainer(InnerFromConstructor(0.01))
    trainer.optimizer._adam.owner = trainer.optimizer
    with pytest.raises(TypeError, match=f"nested at most {MAX_DEPTH} deep"):
        trainer.save_checkpoint(tmp_path / "ck")


# ---- state that would be restored differently
class TwoOptimizers:
    """Two optimizers that take each step one after the other, with a rate of their own."""

    def __init__(self, first, second, lr=0.01):
        self.first, self.second, self.lr = first, second, lr

    def step(self, params, lr):
        self.first.step(params, lr)
        self.second.step(params, lr)


class Aliased(InnerFromConstructor):
    """Its constructor stores one optimizer in two attributes."""

    def __init__(self, lr):
        super().__init__(lr)
        self.same = self._adam

    def step(self, params, lr):
        self._adam.step(params, lr)
        self.same.step(params, lr)


class Silent(Lookahead):
    """Has a state_dict that omits the inner optimizer."""

    def state_dict(self):
        return {"slow": self.slow, "n": self.n}

    def load_state_dict(self, state):
        self.slow, self.n = state["slow"], state["n"]


class SilentPlain:
    """The same without an inner optimizer; its rate may have state."""

    def __init__(self, lr):
        self.lr, self.n = lr, 0

    def step(self, params, lr):
        self.n += 1
        for param in params.values():
            param.value = param.value - lr * param.grad

    def state_dict(self):
        return {"n": self.n}

    def load_state_dict(self, state):
        self.n = state["n"]


class Slotted:
    """A schedule with state but without a __dict__."""

    __slots__ = ("asked", "lr")

    def __init__(self, lr):
        self.lr, self.asked = lr, 0

    __call__ = CountingSchedule.__call__


def shared(part):
    return TwoOptimizers(SGD(part, momentum=0.9), SGD(0.05), part)


CUSTOM |= {cls.__name__: cls for cls in (TwoOptimizers, Aliased, Silent, SilentPlain)}


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: Aliased(0.01),
        lambda: Silent(Adam(0.005)),
        lambda: Silent(Lookahead(SGD(CountingSchedule(0.1), momentum=0.9))),
        lambda: SilentPlain(CountingSchedule(0.1)),
        lambda: shared(Cosine(0.1, 60)),
    ],
    ids=["aliased", "silent", "silent, nested", "schedule with state", "one built-in schedule in two places"],
)
def test_shared_or_omitted_objects_are_resumed(tmp_path, optimizer):
    test_a_nested_optimizer_is_resumed(tmp_path, optimizer)


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (
            lambda: TwoOptimizers(*[Adam(0.01)] * 2),
            r"TwoOptimizers\.second: cannot be saved: it is also TwoOptimizers\.first",
        ),
        (
            lambda: Alternating([Adam(0.01)] * 2),
            r"Alternating\.several\[1\]: cannot be saved: it is also Alternating\.several\[0\]",
        ),
        (
            lambda: shared(CountingSchedule(0.1)),
            r"cannot be saved: it is also TwoOptimizers\.\S*; a resume would make two",
        ),
        (lambda: SGD(Slotted(0.1)), "Slotted: cannot be saved: its class has __slots__"),
    ],
    ids=["twice", "twice in a list", "one schedule with state", "slots"],
)
def test_objects_that_resuming_would_duplicate_refuse_the_save(tmp_path, optimizer, message):
    trainer = interrupt_fit(make_trainer(optimizer()), 3)
    with pytest.raises(TypeError, match=message):
        trainer.save_checkpoint(tmp_path / "ck")
    assert not list(tmp_path.iterdir())


# ---- training loops by hand
def two_models():
    rng = np.random.default_rng(0)
    models = [Sequential([Dense(4), ReLU(), Dense(2)], (3,), seed=seed) for seed in (0, 1)]
    return models, rng.normal(size=(8, 3)).astype("float32"), rng.normal(size=(8, 2)).astype("float32")


def by_hand(models, optimizers, X, dy, steps):
    """Trains two models in turn."""
    for k in range(steps):
        model, optimizer = models[k % 2], optimizers[k % 2]
        model.forward(X, training=True)
        model.backward(dy)
        optimizer.step(model.params, 0.01)


@pytest.mark.parametrize(
    "make", [lambda: SGD(0.1, momentum=0.9), lambda: Adam(0.1, amsgrad=True), lambda: RMSprop(0.1), lambda: SGD(0.1)]
)
def test_a_training_loop_by_hand_is_resumed(make):
    models, X, dy = two_models()
    uninterrupted = [make(), make()]
    by_hand(models, uninterrupted, X, dy, 6)
    weights, states = [model.state_dict() for model in models], [optimizer.state_dict() for optimizer in uninterrupted]
    by_hand(models, uninterrupted, X, dy, 4)
    again, _, _ = two_models()
    resumed = [make(), make()]
    for model, state, optimizer, memory in zip(again, weights, resumed, states, strict=True):
        model.load_state_dict(state)
        optimizer.load_state_dict(memory)
    by_hand(again, resumed, X, dy, 4)
    for one, other in zip(models, again, strict=True):
        assert all(np.array_equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


def test_a_state_is_a_copy():
    models, X, dy = two_models()
    optimizer = SGD(0.1, momentum=0.9)
    by_hand(models, [optimizer] * 2, X, dy, 1)
    state = optimizer.state_dict()
    assert {name: sorted(entry) for name, entry in state.items()} == {
        name: ["steps", "velocity"] for name in models[0].params
    }
    state["0.weight"]["velocity"][...] = 7
    assert not (optimizer.state_dict()["0.weight"]["velocity"] == 7).any()
    optimizer.load_state_dict(state)
    state["0.weight"]["velocity"][...] = 8
    assert (optimizer.state_dict()["0.weight"]["velocity"] == 7).all()


ZEROS = np.zeros((4, 3), "float32")


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        (None, TypeError, "state: expected a dict"),
        ({3: {"steps": 1}}, TypeError, r"state\[3\]: expected a dict, by the name of a parameter"),
        ({"w": 3}, TypeError, r"state\['w'\]: expected a dict, by the name of a parameter, got int"),
        ({"w": {"steps": 1}}, ValueError, r"state\['w'\]: expected \['steps', 'mean', 'squares'\], got \['steps'\]"),
        ({"w": {"steps": -1, "mean": ZEROS, "squares": ZEROS}}, ValueError, "steps.*: expected at least 0, got -1"),
        ({"w": {"steps": 1.0, "mean": ZEROS, "squares": ZEROS}}, TypeError, "steps.*: expected an integer"),
        ({"w": {"steps": 1, "mean": ZEROS, "squares": ZEROS[1:]}}, ValueError, r"squares.*, got float32 \(3, 3\)"),
        ({"w": {"steps": 1, "mean": ZEROS, "squares": [1.0]}}, TypeError, r"squares.*expected an array of float32"),
        ({"w": {"steps": 1, "mean": ZEROS.astype(int), "squares": ZEROS}}, TypeError, "mean.*expected an array"),
    ],
    ids=str,
)
def test_an_invalid_state_is_refused_and_changes_nothing(state, error, message):
    models, X, dy = two_models()
    optimizer = Adam(0.1)
    by_hand(models, [optimizer] * 2, X, dy, 1)
    before = optimizer.state_dict()
    with pytest.raises(error, match=message):
        optimizer.load_state_dict(state)
    for name, entry in optimizer.state_dict().items():
        assert all(np.array_equal(entry[key], before[name][key]) for key in entry)
