"""lr_mult and decay_mult by parameter: steps, choices of parameters, copies, files and resumed fits."""

import copy
import pickle

import numpy as np
import pytest
import reference_optimizers as formulas
from faulty_layers import Scale

from minidl import Sequential, Trainer, fit_many
from minidl.callbacks import Checkpoint
from minidl.estimators import SequentialClassifier
from minidl.initializers import ones
from minidl.layers import BatchNorm2D, Conv2D, Dense, Flatten, Outputs, PReLU, ReLU, Residual
from minidl.losses import softmax_cross_entropy
from minidl.optimizers import SGD, Adagrad, Adam, AdamW, RMSprop

RNG = np.random.default_rng(5)
SHAPE = (2, 5, 5)
X, Y = RNG.standard_normal((50, *SHAPE)).astype("f4"), RNG.integers(0, 3, 50)
LOSS = "softmax_cross_entropy"
DECAY = {"weight_decay": 0.3}
OPTIMIZERS = {
    "SGD": (SGD(0.02, momentum=0.9, **DECAY), formulas.sgd, {"momentum": 0.9, **DECAY}),
    "Adagrad": (Adagrad(0.02, **DECAY), formulas.adagrad, DECAY),
    "RMSprop": (RMSprop(0.02, **DECAY), formulas.rmsprop, DECAY),
    "Adam": (Adam(0.02, **DECAY), formulas.adam, DECAY),
    "AdamW": (AdamW(0.02, **DECAY), formulas.adam, {"decoupled": True, **DECAY}),
}


def make_net(extra=(), shape=SHAPE):
    body = [Conv2D(4, 3, padding=1), BatchNorm2D(), PReLU()]
    return Sequential([Conv2D(4, 3), BatchNorm2D(), ReLU(), *extra, Residual(*body), Flatten(), Dense(3)], shape)


def set_factors(model):
    """Biases have 64 times the rate, norms no decay; the container's factors multiply those of its layers."""
    model.set_param_group("bias", lr_mult=64, decay_mult=0)
    model.set_param_group(BatchNorm2D, decay_mult=0)
    container = next(layer for layer in model.layers if isinstance(layer, Residual))
    container.lr_mult, container.decay_mult = 0.5, 4
    model.set_param_group(lambda path, layer, name: path == "0" and name == "weight", decay_mult=2)


def expected_factors(model):
    found = {}
    for name in model.params:
        index, last = int(name.split(".")[0]), name.split(".")[-1]
        inside = isinstance(model.layers[index], Residual)
        is_norm = index == 1 or "body.1" in name
        lr = (64 if last == "bias" else 1) * (0.5 if inside else 1)
        decay = 0 if last == "bias" or is_norm else 2 if name == "0.weight" else 4 if inside else 1
        found[name] = lr, decay
    return found


class Expected:
    """The steps of a formula in NumPy, for each parameter with its own rate and decay."""

    def __init__(self, trainer, formula, arguments):
        self.trainer, self.formula, self.arguments = trainer, formula, arguments
        self.state, self.steps = {}, 0

    def check(self, factors):
        params = self.trainer.model.params
        before = {name: param.value.copy() for name, param in params.items()}
        self.trainer.train_batch(X, Y)
        for name, param in params.items():
            zeros = dict.fromkeys(("velocity", "squares", "mean"), np.zeros_like(before[name]))
            lr, decay = factors[name]
            its = self.arguments | {"weight_decay": self.arguments["weight_decay"] * decay}
            given = before[name], param.grad, self.state.get(name, zeros), self.trainer.optimizer.lr * lr, self.steps
            value, self.state[name] = self.formula(*given, **its)
            assert np.array_equal(param.value, value), name
        self.steps += 1


@pytest.mark.parametrize("kind", ["fused", "loss in Python", "layer in NumPy", "clipped"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_has_the_rate_and_the_decay_of_each_parameter(kind, name):
    optimizer, formula, arguments = OPTIMIZERS[name]
    model = make_net([Scale()] if kind == "layer in NumPy" else [])
    loss = (lambda scores, y: softmax_cross_entropy(scores, y)) if kind == "loss in Python" else LOSS
    trainer = Trainer(model, loss, optimizer, clip_norm=0.1 if kind == "clipped" else None)
    expected, usual = Expected(trainer, formula, arguments), dict.fromkeys(model.params, (1, 1))
    expected.check(usual)
    set_factors(model)  # between two steps
    for _ in range(3):
        expected.check(expected_factors(model))
    model.set_param_group(lambda *_: True, lr_mult=1, decay_mult=1)
    residual = next(layer for layer in model.layers if isinstance(layer, Residual))
    residual.lr_mult = residual.decay_mult = 1
    expected.check(usual)
    assert all(layer.settings == {} for layer in model.layers)


@pytest.mark.oracle("torch")
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_steps_are_those_of_pytorchs_parameter_groups(name):
    torch = pytest.importorskip("torch")
    model = Sequential([Flatten(), Dense(8), ReLU(), Dense(3)], SHAPE, dtype="float64")
    model.set_param_group("bias", lr_mult=8, decay_mult=0)
    model[3].lr_mult = {"weight": 0.5, "bias": 8}
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(50, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    module.double().load_state_dict({key: torch.tensor(value) for key, value in model.state_dict().items()})
    groups = [
        {"params": [module[1].weight]},
        {"params": [module[3].weight], "lr": 0.01},
        {"params": [module[1].bias, module[3].bias], "lr": 0.16, "weight_decay": 0},
    ]
    options = {"momentum": 0.9} if name == "SGD" else {}
    theirs = getattr(torch.optim, name)(groups, lr=0.02, weight_decay=0.3, **options)
    trainer = Trainer(model, LOSS, {"SGD": SGD, "AdamW": AdamW}[name](0.02, weight_decay=0.3, **options))
    for _ in range(10):
        trainer.train_batch(X, Y)
        theirs.zero_grad()
        torch.nn.functional.cross_entropy(module(torch.tensor(X).double()), torch.tensor(Y)).backward()
        theirs.step()
    for key, value in module.state_dict().items():
        np.testing.assert_allclose(model.state_dict()[key], value.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("threads", [1, 3])
def test_accumulated_steps_and_fits_in_threads_have_the_same_bits(threads):
    ends, whole = [], {"batch_size": 20}
    for options in (whole, {"batch_size": 5, "gradient_accumulation_steps": 4}, whole):
        model = Sequential([Conv2D(4, 3), PReLU(), Flatten(), Dense(3)], SHAPE)
        model.set_param_group("bias", lr_mult=64, decay_mult=0)
        trainer = Trainer(model, LOSS, OPTIMIZERS["AdamW"][0], num_threads=threads)
        fit = trainer.fit if len(ends) < 2 else lambda *data, one=trainer, **given: fit_many([one], *data, **given)
        fit(X[:40], Y[:40], epochs=2, verbose=0, **options)
        ends.append({name: value.tobytes() for name, value in model.state_dict().items()})
    assert ends[0] == ends[1] == ends[2]


def test_numbers_that_are_equal_by_name_train_as_one():
    """One range of the flat parameters, or one for each parameter: the same bits."""
    ends = []
    for factors in (2, {"weight": 2, "bias": 2}):
        model = Sequential([Flatten(), Dense(30), ReLU(), Dense(3)], SHAPE)
        for layer in model.layers[1::2]:
            layer.lr_mult, layer.decay_mult = factors, factors
        Trainer(model, LOSS, Adam(0.01, weight_decay=0.1)).fit(X, Y, epochs=2, verbose=0)
        ends.append({name: value.tobytes() for name, value in model.state_dict().items()})
    assert ends[0] == ends[1]


def test_buffers_between_parameters_have_no_decay():
    """They are in the flat buffer, too: steps with a loss in Python give them the bits of steps inside a plan."""
    ends = []
    for loss in (LOSS, lambda scores, y: softmax_cross_entropy(scores, y)):
        model = make_net()
        Trainer(model, loss, SGD(0.1, weight_decay=0.5)).fit(X, Y, epochs=1, batch_size=50, verbose=0)
        ends.append({name: value.tobytes() for name, value in model.state_dict().items() if "running" in name})
    assert ends[0] == ends[1] and len(ends[0]) == 4


def test_choices_of_parameters():
    model, asked = make_net(), []
    model.set_param_group("3.body.0.bias", lr_mult=3)
    assert model[3].layers[0].lr_mult == {"bias": 3} and model[0].lr_mult == 1
    model.set_param_group(Conv2D, lr_mult=2)
    assert model[3].layers[0].lr_mult == model[0].lr_mult == 2
    model.set_param_group("weight", lr_mult=5)  # of the others the factors stay
    assert model[0].lr_mult == {"weight": 5, "bias": 2} and model[1].lr_mult == {"weight": 5}
    assert model[3].layers[2].lr_mult == 5 and model[3].lr_mult == 1  # PReLU has no other parameter
    model.set_param_group(lambda path, layer, name: layer.params[name].value.ndim == 1, decay_mult=0)
    assert model[0].decay_mult == model[5].decay_mult == {"bias": 0} and model[1].decay_mult == 0

    def ask(path, layer, name):
        asked.append(f"{path}.{name}")
        return layer is model[5]

    model.set_param_group(ask, lr_mult=9)
    assert asked == list(model.params) and model[5].lr_mult == 9
    model.set_param_group((Dense, PReLU), lr_mult=7)
    assert model[5].lr_mult == model[3].layers[2].lr_mult == 7 and model[0].lr_mult == {"weight": 5, "bias": 2}


def settings(model):
    return [layer.settings for layer in model.layers]


@pytest.mark.parametrize(
    ("select", "factors", "error", "message"),
    [
        ("bais", {"lr_mult": 2}, ValueError, r"^select: expected the name of a parameter \(bias, weight\).*'bais'"),
        ("99.bias", {"lr_mult": 2}, ValueError, r"^select: .* \(0\.weight, .*\), got '99\.bias'"),
        (Flatten, {"lr_mult": 2}, ValueError, r"^select: .*\(BatchNorm2D, Conv2D, Dense, PReLU\), got"),
        ((Flatten, ReLU), {"lr_mult": 2}, ValueError, "^select: expected classes of .*Conv2D.*, got .*Flatten"),
        (Residual, {"lr_mult": 2}, TypeError, "^select: expected classes of layers .* of their own, got Residual"),
        ((Dense, Residual), {"lr_mult": 2}, TypeError, "^select: expected classes of layers .* of their own"),
        (lambda *_: False, {"lr_mult": 2}, ValueError, "^select: expected a function that is true for at least one"),
        (lambda name: True, {"lr_mult": 2}, TypeError, "^select: .* of path, layer and name, got .*too many"),
        (lambda *_: np.ones(2), {"lr_mult": 2}, TypeError, r"^select: expected True or False for 0\.weight, got array"),
        (3, {"lr_mult": 2}, TypeError, "^select: expected the name of a parameter, a class of layers, or .*got 3"),
        (int, {"lr_mult": 2}, TypeError, "^select: "),
        ((), {"lr_mult": 2}, TypeError, "^select: "),
        ((Dense, 3), {"lr_mult": 2}, TypeError, "^select: "),
        (Dense(3), {"lr_mult": 2}, TypeError, "^select: "),
        (["weight"] * 99, {"lr_mult": 2}, TypeError, "^select: .{,250}$"),
        ("bias" * 99, {"lr_mult": 2}, ValueError, "^select: .{,250}$"),
        ("bias", {"lr": 2}, TypeError, r"^Sequential\.set_param_group: expected arguments .*got lr=; use lr_mult="),
        ("bias", {"weight_decay": 0}, TypeError, "got weight_decay=; use decay_mult="),
        ("bias", {}, ValueError, "^lr_mult, decay_mult: "),
        ("bias", {"lr_mult": 2, "decay_mult": -1}, ValueError, "^decay_mult: expected a number of at least 0, got -1"),
        ("bias", {"lr_mult": np.nan}, ValueError, "^lr_mult: "),
        ("bias", {"lr_mult": {"bias": 1}, "decay_mult": 0}, TypeError, "^lr_mult: expected a number"),
    ],
)
def test_invalid_groups_change_nothing(select, factors, error, message):
    model = make_net()
    set_factors(model)
    before = settings(model)
    with pytest.raises(error, match=message):
        model.set_param_group(select, **factors)
    assert settings(model) == before


@pytest.mark.parametrize("name", ["lr_mult", "decay_mult"])
@pytest.mark.parametrize(
    ("factors", "error", "message"),
    [
        ({"weight": 2, "bais": 2}, ValueError, "expected names from weight, bias, got 'bais'"),
        ({"weight": 2, 1: 2}, TypeError, "expected names of parameters, got 1"),
        ({"weight": 2, "bias": -1}, ValueError, None),
        ({"weight": 2, "bias": np.inf}, ValueError, None),
        ({"weight": 2, "bias": "x"}, TypeError, None),
        ([2, 2], TypeError, r"expected a number, or a dict from names of parameters to numbers, got \[2, 2\]"),
    ],
)
def test_invalid_factors_of_a_layer_change_nothing(name, factors, error, message):
    model = make_net()
    setattr(model[5], name, {"bias": 3})
    with pytest.raises(error, match=f"^{name}: {message}" if message else rf"^{name}\['bias'\]: expected "):
        setattr(model[5], name, factors)
    assert getattr(model[5], name) == {"bias": 3}


@pytest.mark.parametrize("name", ["lr_mult", "decay_mult"])
def test_names_are_checked_when_the_layer_is_built(name):
    layer = Dense(3)
    setattr(layer, name, {"bais": 2})
    with pytest.raises(ValueError, match=f"Dense.*{name}: expected names from weight, bias, got 'bais'"):
        Sequential([Flatten(), layer], SHAPE)
    setattr(layer, name, {"bias": 2})
    assert getattr(Sequential([Flatten(), layer], SHAPE)[1], name) == {"bias": 2}
    with pytest.raises(TypeError, match="does not support item assignment"):
        getattr(layer, name)["bias"] = 3  # would not be noticed
    with pytest.raises(TypeError, match=f"^{name}: expected a number, got"):
        setattr(Residual(Dense(3)), name, {"bias": 2})
    with pytest.raises(ValueError, match="the model is not built"):
        make_net(shape=None).set_param_group("bias", **{name: 2})


@pytest.mark.parametrize("name", ["lr_mult", "decay_mult"])
def test_an_optimizer_in_python_is_refused(name):
    class Plain:
        lr = 0.1

        def step(self, params, lr):
            raise AssertionError

    model = make_net()
    setattr(model[0], name, {"bias": 0})
    with pytest.raises(ValueError, match=f"^{name}: expected an optimizer of minidl.*got Plain"):
        Trainer(model, LOSS, Plain()).train_batch(X, Y)


def test_copies_files_and_checkpoints_keep_them(tmp_path):
    model = make_net()
    set_factors(model)
    trainer = Trainer(model, LOSS, SGD(0.1, weight_decay=0.1))
    model.save(tmp_path / "m")
    trainer.save_checkpoint(tmp_path / "c")
    copies = {
        "load": Sequential.load(tmp_path / "m"),
        "slice": model[:],
        "copy": copy.deepcopy(model),
        "pickle": pickle.loads(pickle.dumps(model)),
        "nested": Sequential([model], SHAPE)[0],
        "resume": Trainer.resume(tmp_path / "c").model,
        "resume into": Trainer.resume(tmp_path / "c", model=make_net()).model,
        "trainer": copy.deepcopy(trainer).model,
    }
    for way, other in copies.items():
        assert settings(other) == settings(model) != settings(make_net()), way
    assert settings(model)[0] == {"lr_mult": {"bias": 64}, "decay_mult": {"weight": 2, "bias": 0}}


@pytest.mark.parametrize(
    "wrong", [{"lr_mult": {"x": 2}}, {"decay_mult": {"bias": -1}}, {"decay_mult": [1]}, {"decay": 1}]
)
def test_invalid_factors_in_a_file_are_refused(wrong):
    model = Sequential([Dense(3)], (4,))
    config = model.get_config()
    ((kind, content),) = config["layers"][0].items()
    with pytest.raises((TypeError, ValueError), match=r"Dense|decay|settings"):
        Sequential.from_config(config | {"layers": [{kind: [*content, wrong]}]}, model.state_dict(), {})


class Custom(Scale):
    """Its parameters have names that mean something in a file."""

    def build(self, in_shape):
        self.param("custom", (1,), ones)
        self.param("minidl", (1,), ones)
        return in_shape


def test_a_parameter_may_have_any_name(tmp_path):
    model = Sequential([Custom(), Dense(3)], (4,))
    model.set_param_group("custom", decay_mult=0)
    model[0].lr_mult = {"custom": 2}
    model.save(tmp_path / "m")
    assert Sequential.load(tmp_path / "m", custom_objects={"Custom": Custom})[0].lr_mult == {"custom": 2}
    model.set_param_group("minidl", lr_mult=2)
    assert model[0].lr_mult == 2  # one factor for all of its parameters


def test_a_resumed_fit_has_the_same_bits(tmp_path):
    def trained(epochs, **options):
        model = make_net()
        set_factors(model)
        trainer = Trainer(model, LOSS, OPTIMIZERS["AdamW"][0])
        trainer.fit(X, Y, epochs=epochs, batch_size=20, verbose=0, **options)
        return trainer

    straight = trained(3)
    trained(1, callbacks=[Checkpoint(tmp_path / "c")])
    resumed = Trainer.resume(tmp_path / "c")
    resumed.fit(X, Y, epochs=2, batch_size=20, verbose=0)
    ours, theirs = straight.model.state_dict(), resumed.model.state_dict()
    assert all(value.tobytes() == theirs[name].tobytes() for name, value in ours.items())


def test_a_slice_of_an_output_takes_its_factors():
    model = Sequential([Flatten(), Outputs(a=[Dense(4), ReLU(), Dense(3)], b=Dense(1))], SHAPE)
    model[1].lr_mult, model[1].decay_mult, model[1].branches["a"][0].lr_mult = 0.5, 3, {"bias": 64}
    alone, both = model["a"], model[["a"]]
    assert alone[1].lr_mult == {"weight": 0.5, "bias": 32} and alone[3].lr_mult == 0.5 and alone[1].decay_mult == 3
    assert both[1].lr_mult == 0.5 and both[1].decay_mult == 3
    unbuilt = Sequential([Flatten(), Outputs(a=Dense(4))])
    unbuilt[1].lr_mult, unbuilt[1].branches["a"][0].lr_mult = 0.5, {"bias": 64}
    with pytest.raises(ValueError, match="lr_mult: expected a built model"):
        unbuilt["a"]


def test_frozen_layers_stay_and_thawed_ones_take_their_factors():
    model = make_net()
    set_factors(model)
    model[0].trainable = False
    before = model.state_dict()
    trainer = Trainer(model, LOSS, SGD(0.1, weight_decay=0.1))
    trainer.train_batch(X, Y)
    assert np.array_equal(before["0.bias"], model.params["0.bias"].value)
    model[0].trainable = True
    bias = model.params["0.bias"]
    old = bias.value.copy()
    trainer.train_batch(X, Y)
    assert np.array_equal(bias.value, old - np.float32(6.4) * bias.grad)


def test_any_size_and_the_summary():
    model = Sequential([Conv2D(4, 3, padding=1), ReLU(), Conv2D(2, 1)], (1, None, None))
    model.set_param_group("bias", lr_mult=64, decay_mult=0)
    assert model.at((1, 6, 7))[0].lr_mult == {"bias": 64}
    model = make_net()
    set_factors(model)
    rows = {row.name.split()[0]: row for row in model.summary().rows}
    assert rows["0"].lr_mult == {"weight": 1, "bias": 64} and rows["0"].decay_mult == {"weight": 2, "bias": 0}
    assert rows["3.body.0"].lr_mult == {"weight": 0.5, "bias": 32} and rows["3.body.1"].decay_mult == 0
    text = " ".join(str(model.summary()).split())
    assert "lr_mult weight=1 bias=64, decay_mult" in text and "decay_mult 4" in text
    assert "_mult" not in str(make_net().summary())


def test_estimators_take_them():
    given = [Flatten(), Dense(4), ReLU(), Dense(3)]
    given[1].decay_mult = {"bias": 0}
    options = {"optimizer": SGD(0.1, weight_decay=5.0), "epochs": 2}
    fitted = SequentialClassifier(given, **options).fit(X, Y)
    plain = SequentialClassifier([Flatten(), Dense(4), ReLU(), Dense(3)], **options)
    assert fitted.model_[1].decay_mult == {"bias": 0}
    assert not np.array_equal(fitted.model_.params["1.bias"].value, plain.fit(X, Y).model_.params["1.bias"].value)
    begun = SequentialClassifier(given, **options).partial_fit(X, Y, classes=[0, 1, 2])
    for copied in (copy.deepcopy(begun), pickle.loads(pickle.dumps(begun))):
        assert copied.partial_fit(X, Y).model_[1].decay_mult == {"bias": 0}
