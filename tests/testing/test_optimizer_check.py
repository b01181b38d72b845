"""check_optimizer: passes optimizers that keep the contract, among them all of minidl's, and names each fault."""

from weakref import WeakKeyDictionary

import numpy as np
import pytest
from contract.optimizers import DRAWS

from minidl import Param
from minidl.optimizers import SGD, Optimizer
from minidl.testing import check_optimizer
from minidl_c.optimizers.sgd import SGDUpdate


# ---- correct optimizers
class Plain:
    def __init__(self, lr=0.1):
        self.lr = lr

    def step(self, params, lr):
        for p in params.values():
            p.value -= lr * p.grad


class Momentum(Plain):
    def __init__(self, lr=0.1, momentum=0.9):
        super().__init__(lr)
        self.momentum, self.v = momentum, {}

    def step(self, params, lr):
        for name, p in params.items():
            self.v[name] = self.momentum * self.v.get(name, 0) + p.grad
            p.value = p.value - lr * self.v[name]


class Lion(Momentum):
    def step(self, params, lr):
        for name, p in params.items():
            m = self.v.get(name, 0)
            p.value -= lr * np.sign(0.9 * m + 0.1 * p.grad)
            self.v[name] = 0.99 * m + 0.01 * p.grad


class Noisy(Momentum):
    """Its random numbers depend on its seed, the name and the count of steps, which are saved."""

    def step(self, params, lr):
        for name, p in params.items():
            self.v[name] = t = self.v.get(name, 0) + 1
            rng = np.random.default_rng([t, *name.encode()])
            p.value -= lr * (p.grad + 0.1 * rng.standard_normal(p.grad.shape))


class Snapshots(Momentum):
    def state_dict(self):
        return {name: v.copy() for name, v in self.v.items()}

    def load_state_dict(self, state):
        self.v = {name: v.copy() for name, v in state.items()}


class Derived(Optimizer):
    """Its step is its own, so the state_dict that it inherits has nothing to save."""

    def __init__(self, lr=0.1):
        super().__init__(lr)
        self.v, self.momentum = {}, 0.9

    def step(self, params, lr):
        Momentum.step(self, params, lr)


class Wrapper(Plain):
    def __init__(self, base, lr=0.1):
        super().__init__(lr)
        self.base = base

    def step(self, params, lr):
        self.base.step(params, lr)


class Normed(Plain):
    """The norm of all gradients divides them."""

    def step(self, params, lr):
        norm = np.sqrt(sum((p.grad**2).sum() for p in params.values()))
        for p in params.values():
            p.value -= lr * p.grad / (norm + 1e-6)


@pytest.mark.parametrize("kind", DRAWS)
def test_minidls_optimizers_pass(kind):
    check_optimizer(kind(0.1))
    for seed in range(5):
        check_optimizer(kind(0.1, **DRAWS[kind](np.random.default_rng(seed))), seed=seed)


@pytest.mark.parametrize(
    "optimizer",
    [
        Plain(),
        Momentum(),
        Lion(),
        Noisy(),
        Snapshots(),
        Derived(),
        Wrapper(SGD(0.1, 0.9)),
        Wrapper(Wrapper(Momentum())),
    ],
    ids=lambda optimizer: type(optimizer).__name__,
)
def test_correct_optimizers_pass(optimizer):
    before = repr(vars(optimizer))
    check_optimizer(optimizer)
    assert repr(vars(optimizer)) == before


def test_coupled_parameters():
    check_optimizer(Normed(), couples_params=True)
    with pytest.raises(AssertionError, match=r"^Normed: the step of '0\.weight' depends on the other parameters"):
        check_optimizer(Normed())


# ---- faults
class NoRate(Plain):
    def __init__(self):
        pass


class NegativeRate(Plain):
    def __init__(self):
        super().__init__(-0.1)


class FixedRate(Plain):
    lr = property(lambda self: 0.1, lambda self, lr: None)


class ReadOnlyRate(Plain):
    lr = property(lambda self: 0.1)

    def __init__(self):
        pass


class Fails(Plain):
    def step(self, params):
        pass


class Adds(Plain):
    def step(self, params, lr):
        for p in params.values():
            p.value += lr * p.grad


class OwnRate(Plain):
    def step(self, params, lr):
        for p in params.values():
            p.value -= self.lr * p.grad


class IgnoresRate(Plain):
    def step(self, params, lr):
        super().step(params, 0.01)


class Rebinds(Plain):
    def step(self, params, lr):
        for p in params.values():
            value = p.value
            value = value - lr * p.grad


class WritesIntoACopy(Plain):
    def step(self, params, lr):
        for p in params.values():
            p.value.reshape(-1)[:] -= lr * p.grad.reshape(-1)  # weights are in another order in memory


class WritesIntoGrad(Plain):
    def step(self, params, lr):
        for p in params.values():
            p.grad *= lr
            p.value -= p.grad


class ReplacesParams(Plain):
    def step(self, params, lr):
        for name, p in params.items():
            params[name] = Param(p.value - lr * p.grad)


class DividesByZero(Plain):
    def step(self, params, lr):
        with np.errstate(invalid="ignore"):
            for p in params.values():
                p.value -= lr * p.grad / np.abs(p.grad)


class GlobalRandom(Plain):
    def step(self, params, lr):
        for p in params.values():
            p.value -= lr * p.grad * np.random.rand()  # noqa: NPY002


class OneVelocity(Momentum):
    def step(self, params, lr):
        for p in params.values():
            self.v["all"] = 0.9 * self.v.get("all", 0) + p.grad.mean()
            p.value -= lr * (self.v["all"] + p.grad)


class ByShape(Momentum):
    def step(self, params, lr):
        super().step({str(p.value.shape): p for p in params.values()}, lr)


class VelocityByShape(Momentum):
    def step(self, params, lr):
        for p in params.values():
            super().step({str(p.value.shape): p}, lr)


class KeepsGrad(Momentum):
    def step(self, params, lr):
        for name, p in params.items():
            p.value -= lr * (p.grad + 0.9 * self.v.get(name, 0))
            self.v[name] = p.grad


class KeepsValue(Momentum):
    def step(self, params, lr):
        for name, p in params.items():
            p.value -= lr * (p.grad + 0.1 * (p.value - self.v.get(name, 0)))
            self.v[name] = p.value


class Rounds(Plain):
    def step(self, params, lr):
        for p in params.values():
            p.value -= lr * p.grad * (1.01 if p.value.dtype == "float32" else 1)


class CountsAll(Momentum):
    """The bias correction of an Adam, with one count for all."""

    def __init__(self, lr=0.1):
        super().__init__(lr)
        self.steps = 0

    def step(self, params, lr):
        self.steps += 1
        for name, p in params.items():
            self.v[name] = 0.9 * self.v.get(name, 0) + 0.1 * p.grad
            p.value -= lr * self.v[name] / (1 - 0.9**self.steps)


class MovesFrozen(Momentum):
    """Keeps all parameters, and moves those that are frozen, too."""

    def __init__(self, lr=0.1):
        super().__init__(lr)
        self.all = {}

    def step(self, params, lr):
        self.all.update(params)
        super().step(self.all, lr)


class ByPosition(Momentum):
    def step(self, params, lr):
        super().step({str(i): p for i, p in enumerate(params.values())}, lr)


class ById(Momentum):
    def step(self, params, lr):
        super().step({str(id(p)): p for p in params.values()}, lr)


HIDDEN = WeakKeyDictionary()


class HiddenState(Plain):
    """Its velocities are not in its attributes."""

    def step(self, params, lr):
        velocities = HIDDEN.setdefault(self, {})
        for name, p in params.items():
            velocities[name] = 0.9 * velocities.get(name, 0) + p.grad
            p.value -= lr * velocities[name]


class UnknownArgument(Plain):
    def __init__(self, lr=0.1, factor=1.0):
        super().__init__(lr)
        self._scale = factor


class LiveState(Snapshots):
    def step(self, params, lr):
        for name, p in params.items():
            v = self.v.setdefault(name, np.zeros_like(p.value))
            v *= 0.9
            v += p.grad
            p.value -= lr * v

    def state_dict(self):
        return self.v


class ForgetsState(Snapshots):
    def load_state_dict(self, state):
        self.v = {}


class FailsToLoad(Snapshots):
    def load_state_dict(self, state):
        raise KeyError("velocity")


class HalfState(Momentum):
    def state_dict(self):
        return self.v


class OtherUpdate(SGD):
    """Its form inside the plan has a momentum."""

    def __init__(self, lr=0.1):
        super().__init__(lr)

    def update(self, size, dtype):
        return SGDUpdate(size, dtype, 0.9, False, 0.0)

    def step(self, params, lr):
        Plain.step(self, params, lr)


class Ungrouped(SGDUpdate):
    def apply(self, param, grad, rate, step_counter=None, ranges=None):
        super().apply(param, grad, rate, step_counter, None)


class IgnoresFrozen(SGD):
    def __init__(self, lr=0.1):
        super().__init__(lr, 0.9)

    def update(self, size, dtype):
        return Ungrouped(size, dtype, 0.9, False, 0.0)


class IgnoresRates(SGD):
    def __init__(self, lr=0.1):
        super().__init__(lr)

    def update(self, size, dtype):
        return Ungrouped(size, dtype, 0.0, False, 0.0)


class IgnoresDecay(SGD):
    def __init__(self, lr=0.1, weight_decay=0.1):
        super().__init__(lr, weight_decay=weight_decay)

    def update(self, size, dtype):
        return SGDUpdate(size, dtype, 0.0, False, 0.1)


FIRST, ANY = r"'0\.weight'", r"'\d\.\w+'"
FAULTS = [
    (NoRate, "its lr: optimizer: expected an attribute lr, but NoRate has none"),
    (NegativeRate, "its lr: lr: expected a finite number of at least 0, got -0.1"),
    (FixedRate, r"its lr was set to 0\.5, and gives \[0\.1, 0\.1\]"),
    (ReadOnlyRate, r"its lr, set to 0\.5: property"),
    (Fails, r"a step failed: Fails\.step\(\) takes 2 positional arguments but 3 were given"),
    (Adds, "expected 100 steps with a rate of 0.01 to lead down, .*; a step must subtract"),
    (OwnRate, f"a step uses the attribute lr for {FIRST}; it must use the rate that it gets"),
    (IgnoresRate, "a step ignores the rate that it gets"),
    (Rebinds, f"a step leaves the value of {FIRST} as it was; it must write into the array"),
    (WritesIntoACopy, f"a step leaves the value of {FIRST} as it was; it must write into the array"),
    (WritesIntoGrad, "writes into grad; it must compute in arrays of its own"),
    (ReplacesParams, "changes the dict of parameters; it must write into their value"),
    (DividesByZero, f"expected finite values of {FIRST}, got nan for a gradient of 0"),
    (GlobalRandom, f"the same steps, made again, give another value of {FIRST}"),
    (OneVelocity, f"the step of {ANY} depends on the other parameters; each needs a state of its own, by name"),
    (ByShape, f"a step leaves the value of {FIRST} as it was"),
    (VelocityByShape, f"the step of {ANY} depends on the other parameters; each needs a state of its own, by name"),
    (KeepsGrad, rf"KeepsGrad\.v\['0\.weight'\] is the array of the grad of {FIRST}, which .*; it must store a copy"),
    (KeepsValue, rf"KeepsValue\.v\['0\.weight'\] is the array of the value of {FIRST}"),
    (Rounds, f"float32 gives another value of {FIRST} than float64"),
    (CountsAll, f"after its layer was frozen, {ANY} does not move as if .*: keep and count by the names in params"),
    (MovesFrozen, f"after its layer was frozen, {ANY} does not move as if"),
    (ByPosition, "a step of a Trainer without the frozen layer failed: operands could not be broadcast"),
    (ById, f"after a checkpoint and a resume, steps give another value of {FIRST}"),
    (
        HiddenState,
        r"after a checkpoint and a resume, steps give .*: its attributes, or its state_dict\(\), must have all of",
    ),
    (UnknownArgument, "a checkpoint failed: optimizer: cannot be saved: .* takes 'factor' and must store it"),
    (LiveState, r"a later step changes state_dict\(\)\['0\.weight'\]; state_dict\(\) must return copies"),
    (ForgetsState, f"after load_state_dict, steps give another value of {FIRST}"),
    (FailsToLoad, r"load_state_dict\(state\) failed: 'velocity'"),
    (HalfState, r"a checkpoint failed: HalfState: expected state_dict\(\) and load_state_dict\(state\), or neither"),
    (OtherUpdate, f"in a Trainer, {FIRST} does not move as by hand"),
    (IgnoresFrozen, f"after its layer was frozen, {ANY} does not move as if"),
    (IgnoresRates, r"lr_mult of a layer is not applied to '1\.weight'"),
    (IgnoresDecay, r"decay_mult of a layer is not applied to '1\.weight'"),
]


@pytest.mark.parametrize(("kind", "message"), FAULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_faults_are_found(kind, message):
    with pytest.raises(AssertionError, match=rf"^{kind.__name__}: {message}"):
        check_optimizer(kind())


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ((SGD,), TypeError, r"optimizer: expected an object with step.*; pass an object, SGD\(...\), not its class"),
    (("adam",), TypeError, r"optimizer: expected an object with step\(params, lr\), such as SGD\(0.1\), got 'adam'"),
    ((Plain(), 1), TypeError, "couples_params: expected"),
    ((Plain(), False, -1), ValueError, "seed: expected at least 0"),
])  # fmt: skip
def test_invalid_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        check_optimizer(*arguments)
