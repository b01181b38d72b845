"""model.lr_mult multiplies those of containers and layers: in steps, copies, files, nested models, estimators."""

import copy
import pickle

import numpy as np
import pytest
from faulty_layers import Scale

from minidl import Sequential, Trainer
from minidl.estimators import SequentialClassifier
from minidl.layers import Conv2D, Dense, Flatten, Parallel, ReLU, Residual
from minidl.onnx import export, import_model
from minidl.optimizers import SGD

RNG = np.random.default_rng(11)
SHAPE = (2, 5, 5)
X, Y = RNG.standard_normal((50, *SHAPE)).astype("f4"), RNG.integers(0, 3, 50)
LOSS = "softmax_cross_entropy"


def make_net(extra=(), shape=SHAPE):
    """Factors 0.5 in a branch of a Parallel in a Residual, 4 of the Residual, 0.25 of the last layer."""
    branches = Parallel(Conv2D(2, 1), [Conv2D(2, 3, padding=1), ReLU()], join="concat")
    model = Sequential([Conv2D(4, 3), Residual(branches, *extra), Flatten(), Dense(3)], shape)
    branches.branches[0][0].lr_mult, model.layers[1].lr_mult, model.layers[3].lr_mult = 0.5, 4, 0.25
    return model


def factors(model, whole):
    own = {"0": 1, "1": 4, "3": 0.25}
    return {name: whole * (2 if "branches.0.0" in name else own[name[0]]) for name in model.params}


def assert_steps(trainer, expected):
    """Without momentum a step is -lr * factor * grad, with one rounding of the rate."""
    before = {name: param.value.copy() for name, param in trainer.model.params.items()}
    trainer.train_batch(X, Y)
    for name, param in trainer.model.params.items():
        rate = param.value.dtype.type(0.1 * expected[name])
        assert np.array_equal(param.value, before[name] - rate * param.grad), name


@pytest.mark.parametrize("extra", [[], [Scale()]], ids=["kernels", "NumPy"])
def test_the_factors_of_model_containers_and_layers_multiply(extra):
    model = make_net([copy.deepcopy(one) for one in extra])
    assert sorted(set(factors(model, 1).values())) == [0.25, 1, 2, 4]
    trainer = Trainer(model, LOSS, SGD(0.1))
    for whole in (0.5, 2, 1):  # it may change between two steps
        model.lr_mult = whole
        assert_steps(trainer, factors(model, whole))
    model.lr_mult = 0
    before = model.state_dict()
    trainer.train_batch(X, Y)
    assert all(np.array_equal(value, before[name]) for name, value in model.state_dict().items() if "steps" not in name)


def test_a_factor_set_before_the_build_counts():
    model = make_net(shape=None)
    model.lr_mult = 0.5
    model.build(SHAPE)
    assert_steps(Trainer(model, LOSS, SGD(0.1)), factors(model, 0.5))


def test_a_model_with_a_factor_trains_as_one_with_another_rate():
    ends = []
    for whole, rate in ((0.5, 0.1), (1, 0.05)):
        model = make_net()
        model.lr_mult = whole
        Trainer(model, LOSS, SGD(rate, momentum=0.9)).fit(X, Y, epochs=2, verbose=0)
        ends.append({name: value.tobytes() for name, value in model.state_dict().items()})
    assert ends[0] == ends[1]


def test_copies_files_and_checkpoints_keep_it(tmp_path):
    model = make_net()
    model.lr_mult = 0.5
    trainer = Trainer(model, LOSS, SGD(0.1))
    model.save(tmp_path / "m")
    trainer.save_checkpoint(tmp_path / "c")
    into = make_net()
    into.lr_mult = 3
    copies = {
        "load": Sequential.load(tmp_path / "m"),
        "slice": model[:],
        "copy": copy.deepcopy(model),
        "pickle": pickle.loads(pickle.dumps(model)),
        "resume": Trainer.resume(tmp_path / "c").model,
        "resume into": Trainer.resume(tmp_path / "c", model=into).model,
        "trainer": copy.deepcopy(trainer).model,
    }
    for way, other in copies.items():
        assert other.lr_mult == 0.5, way
        assert_steps(Trainer(other, LOSS, SGD(0.1)), factors(other, 0.5))
    unbuilt = make_net(shape=None)
    unbuilt.lr_mult = 0.5
    assert unbuilt[1:].lr_mult == copy.deepcopy(unbuilt).lr_mult == 0.5
    assert "lr_mult" not in make_net().get_config()  # the bytes of other files stay


def test_a_checkpoint_without_a_factor_has_one_of_1(tmp_path):
    Trainer(make_net(), LOSS, SGD(0.1)).save_checkpoint(tmp_path / "c")
    into = make_net()
    into.lr_mult = 3
    assert Trainer.resume(tmp_path / "c", model=into).model.lr_mult == 1.0


@pytest.mark.oracle("onnx")
def test_an_onnx_file_of_minidl_keeps_it(tmp_path):
    model = make_net()
    model.lr_mult = 0.5
    export(model, tmp_path / "m.onnx")
    assert import_model(tmp_path / "m.onnx").lr_mult == 0.5


def test_a_nested_model_keeps_it_as_a_block():
    base = make_net()[:-1]
    base.lr_mult = 0.5
    model = Sequential([base, Dense(3)], SHAPE)
    assert model.layers[0].lr_mult == 0.5
    model.lr_mult = 2
    expected = {f"0.{name}": value for name, value in factors(base, 1.0).items()}
    assert_steps(Trainer(model, LOSS, SGD(0.1)), {**expected, "1.weight": 2, "1.bias": 2})


@pytest.mark.parametrize("build", [True, False])
def test_estimators_keep_it(build):
    given = Sequential([Flatten(), Dense(3)], SHAPE if build else None)
    given.lr_mult = 0.5
    slow = SequentialClassifier(given, optimizer=SGD(0.1), epochs=2, random_state=0, warm_start=True).fit(X, Y)
    assert slow.model_.lr_mult == 0.5
    given.lr_mult = 1.0
    fast = SequentialClassifier(given, optimizer=SGD(0.05), epochs=2, random_state=0).fit(X, Y)
    assert np.array_equal(slow.model_.predict(X), fast.model_.predict(X))
    assert slow.fit(X, Y).model_.lr_mult == 0.5


def test_the_summary_shows_the_products():
    model = make_net()
    model.lr_mult = 0.5
    model.layers[3].trainable = False
    summary = model.summary()
    assert [row.lr_mult for row in summary.rows if row.parameters] == [0.5, 2, 2, 1, 2, 0.125]
    lines = str(summary).splitlines()
    assert "Conv2D(filters=4, kernel_size=3), lr_mult 0.5  " in lines[3] and ", lr_mult 2  " in lines[4]
    assert not any("lr_mult" in line for line in lines if "Flatten" in line or "frozen" in line)
    assert "lr_mult" not in str(Sequential([Dense(3)], (2,)).summary())


@pytest.mark.parametrize(("value", "error"), [(-1, ValueError), (float("nan"), ValueError), ("x", TypeError)])
def test_invalid_factors_are_refused(value, error):
    model = make_net()
    with pytest.raises(error, match=r"^lr_mult: "):
        model.lr_mult = value
    assert model.lr_mult == 1
    with pytest.raises(error, match="lr_mult"):
        Sequential.from_config(model.get_config() | {"lr_mult": value}, model.state_dict(), {})


def test_an_optimizer_in_python_refuses_it():
    class PlainSGD:
        lr = 0.1

        def step(self, params, lr):
            raise AssertionError

    model = Sequential([Flatten(), Dense(3)], SHAPE)
    model.lr_mult = 0.5
    with pytest.raises(ValueError, match="lr_mult: expected an optimizer of minidl"):
        Trainer(model, LOSS, PlainSGD()).train_batch(X, Y)


def test_a_report_makes_the_step_with_it():
    """A layer that the factor 0 holds still does not learn too slowly."""
    found = {}
    for whole in (1.0, 0.0):
        model = make_net()
        model.lr_mult = whole
        trainer = Trainer(model, LOSS, SGD(1e-9))
        trainer.train_batch(X, Y)
        found[whole] = {finding.symptom for finding in trainer.report()}
    assert found[1.0] - found[0.0]
