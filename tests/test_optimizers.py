"""SGD by hand and inside a plan, its arguments, and learning rates."""

import numpy as np
import pytest
import reference

from minidl import Param, Sequential, Trainer
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU
from minidl.optimizers import SGD, rate_at

FORMS = [(0.0, False), (0.9, False), (0.9, True)]


def model_of(dtype="float64"):
    return Sequential([Dense(5), ReLU(), Dense(3)], input_shape=(4,), dtype=dtype)


@pytest.mark.parametrize(("momentum", "nesterov"), FORMS)
def test_steps_by_hand_follow_the_formula(momentum, nesterov, rng):
    model, sgd = model_of(), SGD(0.1, momentum, nesterov)
    expected = {name: (p.value.copy(), np.zeros(p.value.shape)) for name, p in model.params.items()}
    for lr in (0.1, 0.03, 0.2):
        for name, param in model.params.items():
            param.grad = grad = rng.normal(size=param.value.shape)
            w, v = expected[name]
            expected[name] = reference.sgd_update(w, grad, v, lr, momentum, nesterov)
        sgd.step(model.params, lr)
    for name, param in model.params.items():
        np.testing.assert_allclose(param.value, expected[name][0], rtol=1e-13, err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("momentum", "nesterov"), FORMS)
def test_by_hand_and_inside_the_plan_are_the_same_bits(momentum, nesterov, dtype, rng):
    """An object with `step` alone runs in Python, so both forms are seen."""

    class ByHand:
        def __init__(self):
            self.lr = 0.1
            self.sgd = SGD(0.1, momentum, nesterov)

        def step(self, params, lr):
            self.sgd.step(params, lr)

    X, y = rng.normal(size=(20, 4)), rng.integers(0, 3, 20)
    states = []
    for optimizer in (SGD(0.1, momentum, nesterov), ByHand()):
        model = model_of(dtype)
        trainer = Trainer(model, "softmax_cross_entropy", optimizer)
        for _ in range(4):
            trainer.train_batch(X, y)
        states.append({name: value.tobytes() for name, value in model.state_dict().items()})
    assert states[0] == states[1]


@pytest.mark.oracle
@pytest.mark.parametrize(("momentum", "nesterov"), FORMS)
def test_twenty_steps_are_pytorchs(momentum, nesterov, rng):
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
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1, momentum, nesterov))
    sgd = torch.optim.SGD(twin.parameters(), 0.1, momentum, nesterov=nesterov)
    inputs, targets = torch.from_numpy(x), torch.from_numpy(y)
    for step in range(20):
        part = slice(step % 3 * 20, step % 3 * 20 + 20)  # 20, 20 and 10 examples
        sgd.zero_grad()
        loss = nn.functional.cross_entropy(twin(inputs[part]), targets[part])
        loss.backward()
        sgd.step()
        assert trainer.train_batch(x[part], y[part]) == pytest.approx(loss.item(), rel=1e-10)
    for name, param in twin.named_parameters():
        value, grad = model.params[name].value, model.params[name].grad
        np.testing.assert_allclose(value, param.detach().numpy(), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(grad, param.grad.numpy(), rtol=1e-8, atol=1e-12)


def test_two_models_of_one_optimizer_do_not_share_velocity(rng):
    X, y = rng.normal(size=(8, 4)), rng.integers(0, 3, 8)
    shared, states = SGD(0.1, momentum=0.9), []
    for optimizer in (shared, shared, SGD(0.1, momentum=0.9)):
        model = model_of()
        Trainer(model, "softmax_cross_entropy", optimizer).fit(X, y, epochs=3, verbose=0)
        states.append(model.state_dict()["0.weight"].tobytes())
    assert states[0] == states[1] == states[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"lr": -0.1}, "lr: .*got -0.1"),
        ({"lr": np.nan}, "lr: .*got nan"),
        ({"lr": np.inf}, "lr: .*got inf"),
        ({"momentum": 1}, r"momentum: .*\[0, 1\), got 1"),
        ({"momentum": -0.1}, "momentum: .*got -0.1"),
        ({"momentum": np.nan}, "momentum: .*got nan"),
        ({"nesterov": True}, "nesterov: .*momentum above 0"),
    ],
)
def test_refuses(arguments, said):
    with pytest.raises(ValueError, match=said):
        SGD(**{"lr": 0.1} | arguments)


@pytest.mark.parametrize("arguments", [{"lr": "0.1"}, {"lr": None}, {"momentum": "0.9"}], ids=str)
def test_refuses_what_is_no_number(arguments):
    with pytest.raises(TypeError, match=next(iter(arguments))):
        SGD(**{"lr": 0.1} | arguments)


def test_rate_of_a_step():
    assert rate_at(SGD(0.25), 7) == 0.25
    assert rate_at(SGD(lambda step: 1 / (step + 1)), 3) == 0.25
    assert type(rate_at(SGD(np.float32(0.25)), 0)) is float
    with pytest.raises(ValueError, match=r"lr: .*got -1"):
        rate_at(SGD(lambda step: -1), 0)
    with pytest.raises(TypeError, match="attribute lr"):
        rate_at(object(), 0)


def test_a_subclass_that_overrides_step_is_heard():
    class Frozen(SGD):
        def step(self, params, lr):
            super().step({name: param for name, param in params.items() if name == "1.bias"}, lr)

    model = Sequential([Dense(4), Dense(3)], input_shape=(2,))
    before = model.state_dict()
    Trainer(model, "softmax_cross_entropy", Frozen(0.5)).train_batch(np.ones((2, 2)), np.array([0, 1]))
    changed = [name for name, value in model.state_dict().items() if not np.array_equal(value, before[name])]
    assert changed == ["1.bias"]


def test_a_schedule_has_to_take_a_step():
    with pytest.raises(TypeError, match=r"lr: expected a function of the step"):
        SGD(lambda: 0.1)


def test_a_refused_step_by_hand_changes_no_parameter():
    optimizer = SGD(0.5, momentum=0.9)
    first, second = Param(np.ones(3)), Param(np.ones(4))
    optimizer.step({"a": first, "b": second}, 0.5)
    before = first.value.copy()
    for wrong, error in ((Param(np.ones(5)), ValueError), (Param(np.ones(4, "f4")), ValueError), (3, TypeError)):
        with pytest.raises(error, match=r"params\['b'\]"):
            optimizer.step({"a": first, "b": wrong}, 0.5)
        assert np.array_equal(first.value, before)
