"""Muon: its steps in NumPy and in PyTorch, parameter groups, threads, odd gradients, interrupted steps, and errors."""

import numpy as np
import pytest
import reference_optimizers as formulas

import minidl
from minidl import Param, Sequential, Trainer
from minidl.layers import BatchNorm2D, Conv2D, Dense, Flatten, ReLU
from minidl.optimizers import SGD, Muon, muon
from minidl.testing import check_optimizer

COEFFICIENTS = (3.4445, -4.775, 2.0315)
SHAPES = [(6, 25), (25, 6), (64, 150), (1, 9), (9, 1), (40, 40)]
FORMS = [
    {},
    {"nesterov": False, "adjust_lr_fn": "original", "weight_decay": 0.0},
    {"momentum": 0.5, "ns_steps": 2, "eps": 10.0},
    {"momentum": 0.0, "adjust_lr_fn": "match_rms_adamw", "ns_coefficients": (1.5, -0.5, 0.0)},
]
RNG = np.random.default_rng(3)
X, Y = RNG.standard_normal((40, 2, 6, 6)), RNG.integers(0, 3, 40)


def make_trainer(optimizer, dtype="float64", threads=None):
    layers = [Conv2D(5, 3), BatchNorm2D(), ReLU(), Conv2D(24, 3), ReLU(), Flatten(), Dense(20), ReLU(), Dense(3)]
    return Trainer(
        Sequential(layers, X.shape[1:], dtype=dtype), "softmax_cross_entropy", optimizer, num_threads=threads
    )


def bits(trainer):
    state = trainer.steps().update.state
    return [array.tobytes() for array in (*trainer.model.state_dict().values(), *state.values())]


# ---- formulas
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-13), ("float32", 3e-6)])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_orthogonalized_changes_the_singular_values_alone(shape, dtype, tolerance):
    u = RNG.normal(size=shape).astype(dtype)
    for factor, steps, eps in ((1.0, 5, 1e-7), (1e-3, 1, 1.0), (1e25, 7, 1e-7)):
        scaled = u * u.dtype.type(factor)
        expected = formulas.orthogonalized(scaled.astype("f8"), COEFFICIENTS, steps, eps)
        found = muon._orthogonalized(scaled, COEFFICIENTS, steps, eps, muon._new_product())
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("arguments", FORMS, ids=str)
def test_check_optimizer_accepts_it(arguments):
    check_optimizer(Muon(**arguments))
    check_optimizer(Muon(**arguments, exclude=["0.weight"]))


@pytest.mark.parametrize("arguments", FORMS, ids=str)
def test_steps_of_a_net_match_the_formula(arguments):
    """Filters of two convolutions and two dense weights, one excluded; factors of rates and decays; a frozen layer."""
    trainer = make_trainer(Muon(0.05, **arguments, exclude=["8.weight"]))
    model, state = trainer.model, {}
    model.set_param_group("bias", lr_mult=3, decay_mult=0)
    model.set_param_group("3.weight", lr_mult=0.5, decay_mult=2)
    for step in range(6):
        model.layers[6].trainable = step not in (1, 2)
        before = {name: param.value.copy() for name, param in model.params.items()}
        trainer.train_batch(X, Y)
        for name, param in model.params.items():
            if name.startswith("6.") and step in (1, 2):
                assert np.array_equal(param.value, before[name])
                continue
            lr_mult, decay_mult = (3, 0) if name.endswith("bias") else (0.5, 2) if name == "3.weight" else (1, 1)
            its = {"is_matrix": param.value.ndim > 1 and name != "8.weight"}
            its["weight_decay"] = decay_mult * arguments.get("weight_decay", 0.1)
            zeros = {"velocity": np.zeros_like(param.value)}
            given = before[name], param.grad, state.get(name, zeros), 0.05 * lr_mult, step
            expected, state[name] = formulas.muon(*given, **arguments | its)
            np.testing.assert_allclose(param.value, expected, rtol=1e-9, atol=1e-11, err_msg=name)


def test_the_scale_depends_on_the_filters_as_rows():
    for kind, expected in ((None, [1.0, 2.0]), ("match_rms_adamw", [0.2 * 6, 0.2 * 8])):
        params = {"wide": Param(np.zeros((3, 4, 3, 3))), "high": Param(np.zeros((64, 4, 2, 2)))}
        for param in params.values():
            param.grad = RNG.normal(size=param.value.shape)
        Muon(adjust_lr_fn=kind).step(params, 1.0)
        sizes = [np.linalg.svd(p.value.reshape(len(p.value), -1))[1].mean() for p in params.values()]
        np.testing.assert_allclose(sizes, expected, rtol=0.3)


# ---- bits
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_by_hand_and_in_a_trainer_steps_have_the_same_bits(dtype):
    trainer, by_hand = make_trainer(Muon(0.05), dtype), Muon(0.05)
    twins = {name: Param(np.array(param.value)) for name, param in trainer.model.params.items()}
    for _ in range(3):
        trainer.train_batch(X, Y)
        for name, twin in twins.items():
            twin.grad = trainer.model.params[name].grad
        by_hand.step(twins, 0.05)
    for name, twin in twins.items():
        assert twin.value.tobytes() == trainer.model.params[name].value.tobytes(), name
        views = trainer.network.parameters.named_views(trainer.steps().update.state["velocity"])
        assert by_hand.state_dict()[name]["velocity"].tobytes() == views[name].tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_threads_change_no_bit(dtype):
    result = []
    try:
        for threads in (1, 2, 3, 8):
            minidl.set_num_threads(threads)
            trainer = make_trainer(Muon(0.05), dtype, threads)
            trainer.fit(X, Y, epochs=3, batch_size=17, verbose=0)
            u = np.random.default_rng(0).normal(size=(70, 300)).astype(dtype)
            result.append(
                [*bits(trainer), muon._orthogonalized(u, COEFFICIENTS, 5, 1e-7, muon._new_product()).tobytes()]
            )
    finally:
        minidl.set_num_threads(None)
    assert all(one == result[0] for one in result)


@pytest.mark.parametrize("threads", [1, 2])
def test_steps_take_at_most_the_threads_of_the_trainer(threads, monkeypatch):
    seen, orthogonalized = [], muon._orthogonalized

    def watched(*arguments):
        seen.append(minidl.get_num_threads())
        return orthogonalized(*arguments)

    monkeypatch.setattr(muon, "_orthogonalized", watched)
    minidl.set_num_threads(3)
    try:
        trainer = make_trainer(Muon(0.05), threads=threads)
        trainer.train_batch(X, Y)
        trainer.backward_step(trainer.model.forward(X, training=True))
        assert seen == [threads] * 8 and minidl.get_num_threads() == 3
    finally:
        minidl.set_num_threads(None)


# ---- odd gradients, interrupted steps
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_odd_gradients_have_finite_steps(dtype):
    """Zero, some rows of zeros, of rank one; squares that overflow, or are zero."""
    rows, ones = np.zeros((4, 9)), np.ones((4, 9))
    rows[1] = 1
    for grad, size in (
        (0 * ones, 0.0),
        (rows, 1.0),
        (ones, 1.0),
        (1e30 * ones, 1.0),
        (1e-25 * ones, 0.0),
        (rows * 1e-36, 0.0),
    ):
        param, optimizer = Param(np.zeros((4, 9), dtype)), Muon(weight_decay=0)
        for _ in range(3):
            before, param.grad = param.value.copy(), grad
            optimizer.step({"w": param}, 1.0)
            assert np.linalg.norm(param.value - before, 2) == pytest.approx(size, abs=0.35)
    empty = Param(np.zeros((0, 3), dtype))
    Muon().step({"w": empty}, 1.0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_velocity_that_overflows_gives_no_warning(dtype):
    """As in the native optimizers: the next step of a trainer says which weights are not finite."""
    param, optimizer = Param(np.zeros((2, 3), dtype)), Muon()
    param.grad = np.full((2, 3), np.finfo(dtype).max)
    optimizer.step({"w": param}, 1.0)
    optimizer.step({"w": param}, 1.0)
    assert not np.isfinite(param.value).any()


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_step_changes_nothing(error, monkeypatch):
    trainer, orthogonalized, calls = make_trainer(Muon(0.05)), muon._orthogonalized, []
    trainer.train_batch(X, Y)
    before = bits(trainer)

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise error
        return orthogonalized(*arguments)

    monkeypatch.setattr(muon, "_orthogonalized", interrupted)
    with pytest.raises(error):
        trainer.train_batch(X, Y)
    assert bits(trainer) == before and trainer.step == trainer.steps().update.steps == 1
    trainer.train_batch(X, Y)
    assert bits(trainer) != before and trainer.step == trainer.steps().update.steps == 2


def test_a_state_dict_continues():
    param, twin, optimizer, other = Param(np.ones((3, 4))), Param(np.ones((3, 4))), Muon(), Muon()
    for step in range(4):
        param.grad = twin.grad = RNG.normal(size=(3, 4))
        optimizer.step({"w": param}, 0.1)
        if step == 1:
            other.load_state_dict(optimizer.state_dict())
            twin.value = param.value
        elif step > 1:
            other.step({"w": twin}, 0.1)
    assert optimizer.state_dict()["w"]["steps"] == 4
    assert param.value.tobytes() == twin.value.tobytes()
    with pytest.raises(ValueError, match=r"state\['w'\]: expected \['steps', 'velocity'\], got \['mean', 'steps'\]"):
        other.load_state_dict({"w": {"steps": 1, "mean": np.ones(3)}})


# ---- arguments
def test_names_that_are_excluded():
    """Full names or last parts; a whole net without matrices moves as with SGD."""
    trainers = [make_trainer(made) for made in (Muon(0.05, 0, 0.9, exclude=["weight"]), SGD(0.05, 0.9, nesterov=True))]
    for trainer in trainers:
        trainer.train_batch(X, Y)
    for name, param in trainers[0].model.params.items():
        np.testing.assert_allclose(param.value, trainers[1].model.params[name].value, rtol=1e-12, err_msg=name)
    for name in ("8.wieght", "eight", "8"):
        with pytest.raises(
            ValueError, match=rf"exclude: expected names of parameters of the model \(0.weight, .*'{name}'"
        ):
            make_trainer(Muon(exclude=["8.weight", name])).train_batch(X, Y)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"momentum": 1.0}, ValueError, r"momentum: .*\[0, 1\), got 1"),
        ({"nesterov": 1}, TypeError, "nesterov: "),
        ({"ns_coefficients": (1, 2)}, TypeError, r"ns_coefficients: expected three numbers, got \(1, 2\)"),
        ({"ns_coefficients": 3}, TypeError, "ns_coefficients: expected three numbers, got 3"),
        ({"ns_coefficients": (1, 2, np.inf)}, ValueError, "ns_coefficients: .*got inf"),
        ({"ns_steps": 0}, ValueError, "ns_steps: expected at least 1, got 0"),
        ({"ns_steps": 100}, ValueError, "ns_steps: expected at most 99, got 100"),
        ({"ns_steps": 5.0}, TypeError, "ns_steps: expected an integer, got 5.0"),
        ({"adjust_lr_fn": "rms"}, ValueError, "adjust_lr_fn: .*match_rms_adamw.*got 'rms'"),
        ({"exclude": "8.weight"}, TypeError, "exclude: expected a list of names of parameters, got '8.weight'"),
        ({"exclude": [8]}, TypeError, r"exclude: expected a list of names of parameters, got \[8\]"),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Muon(**arguments)


@pytest.mark.parametrize("arguments", FORMS, ids=str)
def test_arguments_are_kept_and_shown(arguments):
    made = Muon(0.5, **arguments, exclude=["8.weight", "gain"])
    assert repr(eval(repr(made))) == repr(made)
    assert made.exclude == ("8.weight", "gain") and all(getattr(made, name) == arguments[name] for name in arguments)
    with pytest.raises(AttributeError):
        made.ns_steps = 3


# ---- PyTorch
@pytest.mark.oracle
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_steps_match_pytorch_at_its_precision(shape):
    """PyTorch orthogonalizes in bfloat16, with 8 bits; test_optimizers.py compares the rest in float64."""
    import torch

    param = Param(RNG.normal(size=shape))
    twin = torch.tensor(param.value, requires_grad=True)
    ours, theirs = Muon(0.1), torch.optim.Muon([twin], lr=0.1)
    for _ in range(5):
        param.grad = RNG.normal(size=shape)
        twin.grad = torch.tensor(param.grad)
        before = param.value.copy()
        ours.step({"w": param}, 0.1)
        theirs.step()
        assert np.linalg.norm(param.value - twin.detach().numpy()) < 0.03 * np.linalg.norm(param.value - before)
        param.value = twin.detach().numpy()
