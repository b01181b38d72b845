"""Optimizers by hand and inside a plan, their arguments, and learning rates."""

import copy
import inspect

import numpy as np
import pytest
import reference_optimizers as formulas
from contract.optimizers import DRAWS

from minidl import Param, Sequential, Trainer, optimizers
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU
from minidl.optimizers import SGD, Adagrad, Adam, AdamW, Muon, RMSprop
from minidl.optimizers.base import Optimizer, rate_at

# each with PyTorch's class for it: the arguments are the same
FORMS = [
    *((SGD, arguments) for arguments in ({}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True})),
    (SGD, {"momentum": 0.5, "weight_decay": 0.05}),
    *((Adagrad, arguments) for arguments in ({}, {"lr_decay": 0.1, "weight_decay": 0.05, "eps": 1e-4})),
    (Adagrad, {"initial_accumulator_value": 0.1}),
    *((RMSprop, arguments) for arguments in ({}, {"alpha": 0.9, "weight_decay": 0.05}, {"centered": True})),
    (RMSprop, {"momentum": 0.9, "centered": True, "eps": 1e-3}),
    *((Adam, arguments) for arguments in ({}, {"weight_decay": 0.05}, {"amsgrad": True, "betas": (0.8, 0.95)})),
    *((AdamW, arguments) for arguments in ({}, {"weight_decay": 0.1, "amsgrad": True, "eps": 1e-4})),
]
each_form = pytest.mark.parametrize(("kind", "arguments"), FORMS, ids=[f"{k.__name__}({a})" for k, a in FORMS])
KINDS = tuple(DRAWS)


def make_model(dtype="float64"):
    return Sequential([Dense(5), ReLU(), Dense(3)], input_shape=(4,), dtype=dtype)


def formula_of(kind, arguments):
    """Returns the NumPy formula with the arguments that it knows by name."""
    named = dict(arguments)
    if "betas" in named:
        named["beta1"], named["beta2"] = named.pop("betas")
    if kind is AdamW:
        named = {"weight_decay": 0.01, "decoupled": True} | named
    named.pop("initial_accumulator_value", None)
    formula = getattr(formulas, {AdamW: "adam"}.get(kind, kind.__name__.lower()))
    return lambda *given: formula(*given, **named)


def bits(model):
    return {name: value.tobytes() for name, value in model.state_dict().items()}


# ---- formulas
@each_form
def test_steps_by_hand_match_the_formula(kind, arguments, rng):
    model, optimizer, formula = make_model(), kind(0.1, **arguments), formula_of(kind, arguments)
    values = {name: p.value.copy() for name, p in model.params.items()}
    states = {n: {k: a.copy() for k, a in optimizer.update(v.size, "float64").state.items()} for n, v in values.items()}
    for step, lr in enumerate((0.1, 0.03, 0.2)):
        for name, param in model.params.items():
            param.grad = grad = rng.normal(size=param.value.shape)
            flat, states[name] = formula(values[name].reshape(-1), grad.reshape(-1), states[name], lr, step)
            values[name] = flat.reshape(grad.shape)
        optimizer.step(model.params, lr)
    for name, param in model.params.items():
        np.testing.assert_allclose(param.value, values[name], rtol=1e-13, err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@each_form
def test_by_hand_and_inside_the_plan_give_the_same_bits(kind, arguments, dtype, rng):
    """An object that only has `step` runs in Python, so both forms are tested."""

    class StepOnly:
        def __init__(self):
            self.lr, self.inner = 0.1, kind(0.1, **arguments)

        def step(self, params, lr):
            self.inner.step(params, lr)

    X, y = rng.normal(size=(20, 4)), rng.integers(0, 3, 20)
    states = []
    for optimizer in (kind(0.1, **arguments), StepOnly()):
        model = make_model(dtype)
        trainer = Trainer(model, "softmax_cross_entropy", optimizer)
        for _ in range(4):
            trainer.train_batch(X, y)
        states.append(bits(model))
    assert states[0] == states[1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@each_form
def test_threads_and_chunks_change_no_bit(kind, arguments, dtype):
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(100, 4)), rng.integers(0, 3, 100)

    class StepHook:  # a hook for every step makes every step a call of its own
        def on_step_end(self, trainer, step, loss):
            pass

    result = []
    for threads, callbacks in ((1, []), (2, []), (3, []), (8, []), (2, [StepHook()])):
        model = Sequential([Dense(70), ReLU(), Dense(3)], input_shape=(4,), dtype=dtype)
        trainer = Trainer(model, "softmax_cross_entropy", kind(0.01, **arguments), num_threads=threads)
        trainer.fit(X, y, epochs=3, batch_size=33, callbacks=callbacks, verbose=0)
        result.append(bits(model))
    assert all(one == result[0] for one in result)


def test_no_optimizer_is_missing():
    public = [made for made in vars(optimizers).values() if isinstance(made, type) and issubclass(made, Optimizer)]
    assert set(DRAWS) == set(public) - {Optimizer}


# ---- PyTorch
@pytest.mark.oracle
@pytest.mark.parametrize("kind", KINDS)
def test_five_hundred_random_cases_match_pytorch(kind, monkeypatch):
    """Random arguments, sizes and gradients, five steps each. Muon has float64, where PyTorch has bfloat16."""
    import torch

    def in_float64(u, *arguments):
        return torch.from_numpy(formulas.orthogonalized(u.numpy(), *arguments))

    monkeypatch.setattr("torch.optim._muon._zeropower_via_newtonschulz", in_float64)
    for number in range(500):
        rng = np.random.default_rng([number, *kind.__name__.encode()])
        arguments, size = DRAWS[kind](rng), rng.integers(1, 9, 2) if kind is Muon else rng.integers(1, 40)
        param = Param(rng.normal(size=size))
        twin = torch.tensor(param.value, requires_grad=True)
        ours, theirs = kind(0.1, **arguments), getattr(torch.optim, kind.__name__)([twin], lr=0.1, **arguments)
        for lr in rng.uniform(0, 0.2, 5):
            param.grad = rng.normal(size=param.value.shape) * 10 ** rng.uniform(-3, 3)
            twin.grad = torch.tensor(param.grad)
            theirs.param_groups[0]["lr"] = lr
            ours.step({"w": param}, lr)
            theirs.step()
        np.testing.assert_allclose(param.value, twin.detach().numpy(), rtol=1e-9, atol=1e-12, err_msg=str(ours))


@pytest.mark.oracle
@each_form
def test_steps_on_a_net_match_pytorch(kind, arguments, rng):
    import torch
    from torch import nn

    layers = [Conv2D(4, 3, padding=1), ReLU(), MaxPool2D(2), Flatten(), Dense(12), ReLU()]
    model = Sequential([*layers, Dense(10)], input_shape=(1, 8, 8), dtype="float64")
    twin = nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10)),
    ).double()
    state = {name: torch.from_numpy(value) for name, value in model.state_dict().items()}
    twin.load_state_dict(state)
    x, y = rng.normal(size=(50, 1, 8, 8)), rng.integers(0, 10, 50)
    trainer = Trainer(model, "softmax_cross_entropy", kind(0.01, **arguments))
    theirs = getattr(torch.optim, kind.__name__)(twin.parameters(), lr=0.01, **arguments)
    inputs, targets = torch.from_numpy(x), torch.from_numpy(y)
    for step in range(50):
        part = slice(step % 3 * 20, step % 3 * 20 + 20)  # 20, 20 and 10 examples
        theirs.zero_grad()
        loss = nn.functional.cross_entropy(twin(inputs[part]), targets[part])
        loss.backward()
        theirs.step()
        assert trainer.train_batch(x[part], y[part]) == pytest.approx(loss.item(), rel=1e-9)
    for name, param in twin.named_parameters():
        value, grad = model.params[name].value, model.params[name].grad
        np.testing.assert_allclose(value, param.detach().numpy(), rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(grad, param.grad.numpy(), rtol=1e-7, atol=1e-10)


@pytest.mark.oracle
@each_form
def test_five_hundred_steps_on_a_quadratic_match_pytorch(kind, arguments, rng):
    """(w - c)' A (w - c) / 2 with random curvature and noise; the rate decays."""
    import torch

    a = rng.normal(size=(20, 20)) / 4
    curvature, center = a @ a.T + np.eye(20) / 10, rng.normal(size=20)
    param = Param(rng.normal(size=20))
    twin = torch.tensor(param.value, requires_grad=True)
    ours, theirs = kind(**{"lr": 0.05} | arguments), getattr(torch.optim, kind.__name__)([twin], lr=0.05, **arguments)
    for step in range(500):
        noise, lr = rng.normal(size=20) / 10, 0.05 / (1 + step / 100)
        param.grad = curvature @ (param.value - center) + noise
        twin.grad = torch.from_numpy(curvature @ (twin.detach().numpy() - center) + noise)
        theirs.param_groups[0]["lr"] = lr
        ours.step({"w": param}, lr)
        theirs.step()
        np.testing.assert_allclose(param.value, twin.detach().numpy(), rtol=1e-9, atol=1e-12, err_msg=str(step))


@pytest.mark.oracle
@pytest.mark.parametrize("kind", KINDS)
def test_defaults_match_pytorch(kind):
    import torch

    theirs = getattr(torch.optim, kind.__name__)([torch.zeros(1, 1, requires_grad=True)]).defaults
    for name, parameter in inspect.signature(kind).parameters.items():
        if (kind, name) not in ((SGD, "lr"), (Muon, "exclude")):
            assert parameter.default == theirs[name], name


# ---- step counts
def test_a_non_finite_step_does_not_count(rng):
    X, y = rng.normal(size=(8, 4)), rng.integers(0, 3, 8)
    result = []
    for bad in (False, True):
        model = make_model()
        trainer = Trainer(model, "softmax_cross_entropy", Adam(0.01))
        for step in range(6):
            if bad and step % 2:
                with pytest.raises(FloatingPointError):
                    trainer.train_batch(np.full((8, 4), 1e308), y)
            trainer.train_batch(X, y)
        assert trainer.step == trainer.steps().update.steps == 6
        result.append(bits(model))
    assert result[0] == result[1]


@pytest.mark.parametrize("kind", [Adam, AdamW])
def test_a_new_optimizer_counts_from_its_own_first_step(kind, rng):
    """With the run's count, its bias correction would be missing: steps of more than 3 times the rate."""
    X, y = rng.normal(size=(8, 4)), rng.integers(0, 3, 8)
    trainer = Trainer(make_model(), "softmax_cross_entropy", SGD(0.01))
    for _ in range(100):
        trainer.train_batch(X, y)
    trainer.optimizer = kind(0.01, weight_decay=0)
    before = trainer.model.state_dict()
    trainer.train_batch(X, y)
    changes = [np.abs(value - before[name]) for name, value in trainer.model.state_dict().items()]
    assert 0.009 < max(change.max() for change in changes) <= 0.01 * (1 + 1e-9)
    assert (trainer.step, trainer.steps().update.steps) == (101, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_two_models_of_one_optimizer_share_no_state(kind, rng):
    X, y = rng.normal(size=(8, 4)), rng.integers(0, 3, 8)
    shared, states = kind(0.1), []
    for optimizer in (shared, shared, kind(0.1), copy.deepcopy(shared)):
        model = make_model()
        Trainer(model, "softmax_cross_entropy", optimizer).fit(X, y, epochs=3, verbose=0)
        states.append(bits(model))
    assert all(state == states[0] for state in states)


# ---- arguments
@pytest.mark.parametrize(
    ("kinds", "arguments", "message"),
    [
        (KINDS, {"lr": -0.1}, "lr: .*got -0.1"),
        (KINDS, {"lr": np.nan}, "lr: .*got nan"),
        (KINDS, {"lr": np.inf}, "lr: .*got inf"),
        (KINDS, {"weight_decay": -0.1}, "weight_decay: .*at least 0, got -0.1"),
        (KINDS, {"weight_decay": 1e39}, "weight_decay: .*float32 can hold, got 1e"),
        ((SGD, RMSprop), {"momentum": 1}, r"momentum: .*\[0, 1\), got 1"),
        ((SGD, RMSprop), {"momentum": -0.1}, "momentum: .*got -0.1"),
        ((SGD, RMSprop), {"momentum": np.nan}, "momentum: .*got nan"),
        ((SGD,), {"nesterov": True}, "nesterov: .*momentum above 0"),
        ((Adagrad,), {"lr_decay": -1}, "lr_decay: .*got -1"),
        ((Adagrad,), {"initial_accumulator_value": -1}, "initial_accumulator_value: .*got -1"),
        ((RMSprop,), {"alpha": 1.0}, r"alpha: .*\[0, 1\), got 1"),
        (KINDS[1:], {"eps": 0}, "eps: .*at least 1.175e-38, got 0"),
        (KINDS[1:], {"eps": 1e-39}, "eps: .*got 1e-39"),
        ((Adam, AdamW), {"betas": (0.9, 1.0)}, r"betas: .*\[0, 1\), got 1"),
        ((Adam, AdamW), {"betas": (-0.1, 0.9)}, "betas: .*got -0.1"),
    ],
)
def test_invalid_arguments_are_refused(kinds, arguments, message):
    for kind in kinds:
        with pytest.raises(ValueError, match=message):
            kind(**{"lr": 0.1} | arguments)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [(kind, arguments) for kind in KINDS for arguments in ({"lr": "0.1"}, {"lr": None}, {"weight_decay": "0"})]
    + [(SGD, {"momentum": "0.9"}), (RMSprop, {"alpha": None}), (Adagrad, {"eps": True}), (Adam, {"eps": "1"})]
    + [(AdamW, {"betas": betas}) for betas in (0.9, (0.9,), (0.9, 0.9, 0.9), "ab", (0.9, None))],
    ids=str,
)
def test_non_numbers_are_refused(kind, arguments):
    with pytest.raises(TypeError, match=next(iter(arguments))):
        kind(**{"lr": 0.1} | arguments)


@each_form
def test_arguments_are_kept_and_shown(kind, arguments):
    optimizer = kind(0.5, **arguments)
    for name, value in arguments.items():
        assert getattr(optimizer, name) == value
        with pytest.raises(AttributeError):
            setattr(optimizer, name, value)
    assert repr(eval(repr(optimizer))) == repr(optimizer)
    assert repr(optimizer).startswith(f"{kind.__name__}(lr=0.5, ")
    optimizer.lr = 0.25
    assert rate_at(optimizer, 3) == 0.25


def test_rate_of_a_step():
    assert rate_at(SGD(0.25), 7) == 0.25
    assert rate_at(SGD(lambda step: 1 / (step + 1)), 3) == 0.25
    assert type(rate_at(SGD(np.float32(0.25)), 0)) is float
    with pytest.raises(ValueError, match=r"lr: .*got -1"):
        rate_at(SGD(lambda step: -1), 0)
    with pytest.raises(TypeError, match="attribute lr"):
        rate_at(object(), 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_subclass_that_overrides_step_is_used(kind):
    class Frozen(kind):
        def step(self, params, lr):
            super().step({name: param for name, param in params.items() if name == "1.bias"}, lr)

    model = Sequential([Dense(4), Dense(3)], input_shape=(2,))
    before = model.state_dict()
    Trainer(model, "softmax_cross_entropy", Frozen(0.5)).train_batch(np.ones((2, 2)), np.array([0, 1]))
    changed = [name for name, value in model.state_dict().items() if not np.array_equal(value, before[name])]
    assert changed == ["1.bias"]


def test_a_schedule_must_accept_a_step():
    with pytest.raises(TypeError, match=r"lr: expected a function of the step"):
        SGD(lambda: 0.1)


@pytest.mark.parametrize("optimizer", [SGD(0.5, momentum=0.9), Adam(0.5), RMSprop(0.5), Adagrad(0.5)])
def test_a_refused_step_by_hand_changes_no_parameter(optimizer):
    first, second = Param(np.ones(3)), Param(np.ones(4))
    optimizer.step({"a": first, "b": second}, 0.5)
    before = first.value.copy()
    for wrong, error in ((Param(np.ones(5)), ValueError), (Param(np.ones(4, "f4")), ValueError), (3, TypeError)):
        with pytest.raises(error, match=r"params\['b'\]"):
            optimizer.step({"a": first, "b": wrong}, 0.5)
        assert np.array_equal(first.value, before)


@pytest.mark.parametrize("params", [None, [Param(np.zeros(2))], Param(np.zeros(2))])
def test_a_step_by_hand_takes_a_dict(params):
    with pytest.raises(TypeError, match=r"params: expected a dict, such as model\.params, got (NoneType|list|Param)"):
        SGD(0.1).step(params, 0.1)


@pytest.mark.parametrize("optimizer", [SGD(0.5, momentum=0.9), Adam(0.5)])
def test_a_refused_step_by_hand_changes_nothing(optimizer):
    first, second = Param(np.ones(3, "f4")), Param(np.ones(4, "f4"))
    second.value.flags.writeable = False
    with pytest.raises(ValueError, match=r"params\['b'\]: expected a writable array, got a read-only one"):
        optimizer.step({"a": first, "b": second}, 0.5)
    with pytest.raises(ValueError, match=r"lr: expected a finite number that float32 can hold, got 1e\+300"):
        optimizer.step({"a": first}, 1e300)
    with pytest.raises(TypeError, match="params: expected strings as names, got 1"):
        optimizer.step({"a": first, 1: first}, 0.5)
    assert (first.value == 1).all() and optimizer.state_dict() == {}


def test_masked_state_is_refused_and_byte_swapped_state_accepted():
    optimizer, param = SGD(0.5, momentum=0.9), Param(np.ones(2, "f4"))
    with pytest.raises(TypeError, match=r"state\['a'\]\['velocity'\]: expected an array of float32 or float64"):
        optimizer.load_state_dict({"a": {"steps": 1, "velocity": np.ma.masked_equal(np.zeros(2, "f4"), 0)}})
    optimizer.load_state_dict({"a": {"steps": 1, "velocity": np.ones(2, ">f4")}})
    optimizer.step({"a": param}, 0.5)
    np.testing.assert_allclose(param.value, 1 - 0.5 * 0.9)
