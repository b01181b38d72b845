"""trainer.report(): planted faults are named, healthy runs have no findings, and update sizes are those of fit."""

import dataclasses

import numpy as np
import pytest
from slow_marks import slow_after

from minidl import Sequential, Trainer
from minidl.callbacks import ReduceLROnPlateau
from minidl.datasets import load_digits
from minidl.initializers import he_uniform, zeros
from minidl.layers import (
    BatchNorm1D,
    BatchNorm2D,
    Block,
    Conv2D,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    GlobalAvgPool2D,
    Hardswish,
    LayerNorm,
    MaxPool2D,
    Normalize,
    Parallel,
    RandomShift,
    ReLU,
    Rescale,
    Reshape,
    Residual,
    Sigmoid,
    Tanh,
)  # fmt: skip
from minidl.losses import Pinball
from minidl.optimizers import SGD, Adam, AdamW, Muon, RMSprop
from minidl.schedules import Cosine
from minidl.training.report import thresholds

DATA = load_digits()
X, Y = DATA.X_train, DATA.y_train
SEEDS = (0, 1, 2)
TO_ONE = 1 / 16


def make_mlp(*units, activation=ReLU, scale=TO_ONE, **options):
    layers = [layer for n in units for layer in (Dense(n, **options), activation())]
    return [Rescale(scale), Flatten(), *layers, Dense(10)]


def make_trainer(
    layers, optimizer, seed=0, dtype="float32", loss="softmax_cross_entropy", metrics=("accuracy",), **more
):
    return Trainer(Sequential(layers, (1, 8, 8), seed=seed, dtype=dtype), loss, optimizer, metrics, seed=seed, **more)


def fitted(layers, optimizer, epochs=5, seed=0, X=X, y=Y, dtype="float32", fit=None, **more):
    trainer = make_trainer(layers, optimizer, seed, dtype, **more)
    trainer.fit(X, y, epochs=epochs, verbose=0, **(fit or {}))
    return trainer


def findings_of(trainer, *args):
    """Returns the findings by symptom, the last of each."""
    return {finding.symptom: finding for finding in trainer.report(*args)}


# ---- healthy runs

HEALTHY = {
    "mlp": lambda: make_mlp(64, 32),
    "tanh": lambda: make_mlp(64, activation=Tanh),
    "lenet": lambda: [
        *(Rescale(TO_ONE), Conv2D(6, 5, padding=2), ReLU(), MaxPool2D(2), Conv2D(16, 3), ReLU()),
        *(Flatten(), Dense(120), ReLU(), Dense(84), ReLU(), Dense(10)),
    ],
    "batch norm": lambda: [
        *(Rescale(TO_ONE), Conv2D(16, 3, padding=1, use_bias=False), BatchNorm2D(), ReLU(), MaxPool2D(2)),
        *(Residual(Conv2D(16, 3, padding=1), BatchNorm2D(), ReLU()), GlobalAvgPool2D(), Dense(10)),
    ],
    "augmented": lambda: [
        *(
            Normalize.from_data(X),
            RandomShift(1),
            Conv2D(8, 3),
            Hardswish(),
            Flatten(),
            Dropout(0.2),
            Dense(64),
            ReLU(),
        ),
        Dense(10),
    ],
}
OPTIMIZERS = {
    "momentum": lambda: SGD(0.05, momentum=0.9),
    "adam": lambda: Adam(0.001),
    "adamw": lambda: AdamW(0.003),
    "muon": lambda: Muon(0.02),
    "rmsprop": lambda: RMSprop(0.001),
}


@pytest.mark.parametrize("optimizer", slow_after(4, OPTIMIZERS))
@pytest.mark.parametrize("layers", HEALTHY)
def test_no_findings_for_a_healthy_run(layers, optimizer, capsys):
    trainer = make_trainer(HEALTHY[layers](), OPTIMIZERS[optimizer]())
    for more in (1, 4, 15):
        trainer.fit(X, Y, epochs=more, validation_data=(DATA.X_test, DATA.y_test), verbose=0)
        assert trainer.report() == []
        output = capsys.readouterr().out
        leaves = len([leaf for layer in trainer.model.layers for leaf in layer.leaves()])
        assert output.startswith(
            f"Nothing looks wrong ({leaves} layers and 242 examples looked at, {trainer.step} steps"
        )
    assert trainer.history["val_accuracy"][-1] > 0.9


def test_no_findings_for_fifty_epochs_and_a_rate_that_decays_to_zero():
    trainer = fitted(
        make_mlp(64), SGD(Cosine(0.1, total_steps=50 * 19), momentum=0.9), 50, fit={"validation_split": 0.2}
    )
    assert trainer.history["lr"][-1] < 1e-5
    assert trainer.report() == []


def test_no_findings_if_the_rate_decays_before_learning_ends():
    trainer = fitted(make_mlp(64), SGD(Cosine(0.02, total_steps=46)), 2)
    assert trainer.history["lr"][-1] < 1e-4
    assert trainer.evaluate(X, Y)["loss"] > 2
    assert trainer.report() == []


def test_no_findings_for_healthy_batches():
    trainer = make_trainer(make_mlp(64), SGD(0.05, momentum=0.9))
    rng = np.random.default_rng(0)
    for step in range(400):
        rows = rng.integers(0, len(X), 32)
        trainer.train_batch(X[rows], Y[rows])
        if step in (0, 3, 50):
            assert trainer.report() == []
    assert trainer.report() == []
    assert trainer.history == {}


@pytest.mark.parametrize("build", [Adam, lambda: SGD(0.1)])
def test_no_findings_for_given_examples_before_training(build):
    assert make_trainer(make_mlp(64, 32), build()).report(X, Y) == []


# ---- planted faults


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", SEEDS)
def test_dead_units(seed, dtype):
    trainer = fitted(make_mlp(64), SGD(5.0), seed=seed, dtype=dtype)
    finding = findings_of(trainer)["dead units"]
    sample = trainer.sample_buffer.sample(trainer.sample_key).X.reshape(-1, 1, 8, 8)
    share = float((trainer.model[:4].predict(sample) == 0).all(axis=0).mean())
    assert finding.layer == "layer 3, ReLU"
    assert finding.measured == share > thresholds.DEAD_UNITS
    assert f"{share * 64:.0f} of 64 units ({share:.0%}) are off for all 242 examples" in finding.message
    assert "smaller lr than 5" in finding.message


@pytest.mark.parametrize("container", [Residual, Block, lambda *layers: Parallel([*layers], [], join="add")])
@pytest.mark.parametrize("activation", [ReLU, Hardswish])
def test_dead_units_in_a_container_are_channels(container, activation):
    inner = Block(Conv2D(4, 3, padding=1), activation())
    layers = [Rescale(TO_ONE), Conv2D(4, 3, padding=1), container(inner), Flatten(), Dense(10)]
    trainer = make_trainer(layers, SGD(0.01))
    inner.layers[0].params["bias"].value[:3] = -100
    finding = findings_of(trainer, X, Y)["dead units"]
    path = {"Residual": "body.0", "Block": "0", "Parallel": "branches.0.0"}[type(layers[2]).__name__]
    assert finding.layer == f"layer 2, {type(layers[2]).__name__}: {path}, Block: 1, {activation.__name__}"
    assert finding.measured == 0.75
    assert "3 of 4 units (75%)" in finding.message


@pytest.mark.parametrize("activation", [Sigmoid, Tanh])
@pytest.mark.parametrize("seed", SEEDS)
def test_saturated_units(seed, activation):
    wide = lambda rng, shape: 100 * he_uniform(rng, shape)  # noqa: E731
    trainer = fitted(make_mlp(64, activation=activation, kernel_initializer=wide), SGD(0.01), seed=seed)
    finding = findings_of(trainer)["saturated units"]
    sample = trainer.sample_buffer.sample(trainer.sample_key).X.reshape(-1, 1, 8, 8)
    outputs = trainer.model[:4].predict(sample).astype(float)
    slopes = outputs * (1 - outputs) * 4 if activation is Sigmoid else 1 - outputs**2
    assert finding.layer == f"layer 3, {activation.__name__}"
    assert finding.measured == pytest.approx((slopes < 0.05).mean(), abs=0.01)


def test_a_sigmoid_output_may_saturate():
    black = np.zeros_like(X)
    low = lambda rng, shape: zeros(rng, shape) - 9  # noqa: E731
    layers = [Rescale(TO_ONE), Flatten(), Dense(64, bias_initializer=low), Reshape((1, 8, 8)), Sigmoid()]
    trainer = fitted(layers, Adam(), y=black, loss="mean_squared_error", metrics=())
    assert "saturated units" not in findings_of(trainer)


@pytest.mark.parametrize("seed", SEEDS)
def test_update_sizes(seed):
    small = findings_of(fitted(make_mlp(64), SGD(1e-6), seed=seed))["small updates"]
    assert small.measured < 1e-5 and "larger lr than 1e-06" in small.message and "worst of 2 layers" in small.message
    large = findings_of(fitted(make_mlp(64, activation=Tanh), SGD(2.0), 1, seed=seed))["large updates"]
    assert large.measured > 0.1 and "smaller lr than 2" in large.message and large.layer.endswith(", Dense")


def test_small_updates_with_another_cause_have_another_finding():
    learned = fitted(make_mlp(64), SGD(0.05, momentum=0.9), 5)
    learned.optimizer, learned.history = SGD(1e-9), {}
    assert findings_of(learned) == {}
    for layers, optimizer in ((make_mlp(*[32] * 10, activation=Sigmoid), SGD(0.1)), (make_mlp(64), SGD(50.0))):
        findings = findings_of(fitted(layers, optimizer, 5))
        assert findings
        assert "small updates" not in findings


def test_frozen_layers_have_no_updates():
    trainer = make_trainer(make_mlp(64, 32), SGD(1e-7))
    trainer.model.layers[2].trainable = False
    trainer.model.layers[4].lr_mult = 0
    trainer.fit(X, Y, epochs=3, verbose=0)
    assert [f.layer for f in trainer.report()] == ["layer 6, Dense"]
    trainer.model.trainable = False
    assert trainer.report() == []


@pytest.mark.parametrize("seed", SEEDS)
def test_vanishing_and_exploding_gradients(seed):
    vanishing = findings_of(fitted(make_mlp(*[32] * 10, activation=Sigmoid), SGD(0.1), seed=seed))[
        "vanishing gradients"
    ]
    assert vanishing.layer == "layer 2, Dense"
    assert vanishing.measured < 1e-3 and "that of layer 22, Dense" in vanishing.message
    wide = lambda rng, shape: 4 * he_uniform(rng, shape)  # noqa: E731
    exploding = findings_of(make_trainer(make_mlp(*[48] * 8, kernel_initializer=wide), SGD(1e-4), seed=seed), X, Y)
    assert exploding["exploding gradients"].measured > 1e3


@pytest.mark.parametrize(
    ("first_layers", "symptom", "phrase"),
    [
        ([], "unscaled inputs", "root mean square of its inputs is 7.7"),
        ([Rescale(16)], "unscaled inputs", "up to 256"),
        ([Rescale(TO_ONE), RandomShift(1), Rescale(1 / 255)], "unscaled inputs", "its inputs are at most 0.0039"),
        ([Rescale(TO_ONE, 50.0), Normalize(0, 30)], "unscaled inputs", "standard deviations from 0"),
        ([Rescale(0.0, 1.0)], "constant inputs", "its input is the same for all 256 examples"),
    ],
)  # fmt: skip
def test_inputs(first_layers, symptom, phrase):
    trainer = make_trainer([*first_layers, Conv2D(4, 3), ReLU(), Flatten(), Dense(10)], SGD(0.001))
    finding = findings_of(trainer, X, Y)[symptom]
    assert finding.layer == f"layer {len(first_layers)}, Conv2D"
    assert phrase in finding.message


def test_categories_need_no_scale():
    table = np.random.default_rng(0).integers(0, 40, (200, 2))
    model = Sequential([Embedding(40, 4), Flatten(), Dense(10)], input_shape=(2,))
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.01))
    assert findings_of(trainer, table, table[:, 0] % 10) == {}
    assert list(findings_of(trainer, table * 0 + 3, table[:, 0] % 10)) == ["constant inputs"]


@pytest.mark.parametrize("norm", [LayerNorm, BatchNorm1D, lambda: LayerNorm(affine=False)])
def test_inputs_before_a_normalization_count_as_scaled(norm):
    assert findings_of(make_trainer([Flatten(), norm(), Dense(10)], SGD(0.01)), X, Y) == {}


@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.parametrize("seed", SEEDS)
def test_unshuffled_labels(seed, classes):
    y = Y % classes
    order = np.argsort(y, kind="stable")
    trainer = make_trainer(make_mlp(16), SGD(0.05), seed=seed)
    trainer.fit(X[order], y[order], shuffle=False, verbose=0)
    assert "shuffle=True" in findings_of(trainer)["unshuffled labels"].message
    trainer.fit(X[order], y[order], verbose=0)
    assert "unshuffled labels" not in findings_of(trainer)
    trainer.fit(X, y, shuffle=False, verbose=0)
    assert "unshuffled labels" not in findings_of(trainer)
    for step in range(100):
        rows = np.flatnonzero(y == step % classes)[:32]
        trainer.train_batch(X[rows], y[rows])
    assert "unshuffled labels" in findings_of(trainer)


def test_unshuffled_labels_of_one_score():
    y = np.sort(Y % 2)
    trainer = fitted(
        [*make_mlp(16)[:-1], Dense(1)], SGD(0.05), 1, y=y, loss="binary_cross_entropy", fit={"shuffle": False}
    )
    assert "are of 1.0 classes" in findings_of(trainer)["unshuffled labels"].message.replace("1.1", "1.0")


def test_imbalanced_labels():
    rows = np.flatnonzero((Y == 3) | (np.arange(len(Y)) % 700 == 0))
    few = fitted(make_mlp(16), SGD(0.05), X=X[rows], y=Y[rows])
    assert "are 3, expected at most 95%" in findings_of(few)["imbalanced labels"].message
    balanced = fitted(make_mlp(16), SGD(0.05), X=X[rows], y=Y[rows], fit={"class_weight": "balanced"})
    assert "imbalanced labels" not in findings_of(balanced)
    assert (
        "all 64 labels" in findings_of(fitted(make_mlp(16), SGD(0.05), y=Y[:96] * 0 + 3, X=X[:96]))["one class"].message
    )


def test_tables_are_not_to_be_augmented():
    rng = np.random.default_rng(0)
    table, y = rng.normal(size=(60, 12)), rng.integers(0, 2, 60)
    model = Sequential([Dense(128), ReLU(), Dense(2)], input_shape=(12,), seed=0)
    trainer = Trainer(model, "softmax_cross_entropy", Adam(0.003), ["accuracy"])
    trainer.fit(table[:30], y[:30], epochs=100, validation_data=(table[30:], y[30:]), verbose=0)
    message = findings_of(trainer)["overfitting"].message
    assert "get more data, add Dropout" in message


@pytest.mark.parametrize("seed", SEEDS)
def test_overfitting_and_a_rising_validation_loss(seed):
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(X))[:60]
    y = np.where(rng.random(60) < 0.3, rng.integers(0, 10, 60), Y[rows])
    fit = {"batch_size": 16, "validation_data": (DATA.X_test, DATA.y_test)}
    trainer = fitted(make_mlp(128, 64), Adam(0.003), 100, seed, X[rows], y, fit=fit)
    findings, history = findings_of(trainer), trainer.history
    gap = history["accuracy"][-1] - history["val_accuracy"][-1]
    assert findings["overfitting"].measured == gap > 0.1
    assert "augment it (RandomShift, RandomFlip)" in findings["overfitting"].message
    assert findings["rising validation loss"].measured == min(history["val_loss"][-3:]) - min(history["val_loss"])
    trainer.metrics, trainer.history = {}, {k: v for k, v in history.items() if "acc" not in k}
    assert "the loss is" in findings_of(trainer)["overfitting"].message


@pytest.mark.parametrize("seed", SEEDS)
def test_losses_that_do_not_fall(seed):
    shuffled = np.random.default_rng(seed).permutation(Y)
    stuck = findings_of(fitted(make_mlp(16), SGD(0.01), 12, seed, y=shuffled))["stuck loss"]
    assert "expected well below that of guessing, 2." in stuck.message
    assert stuck.measured == pytest.approx(np.log(10), abs=0.1)
    diverging = fitted(make_mlp(64), SGD(0.05, momentum=0.9), 5, seed)
    diverging.optimizer.lr = 4.0
    diverging.fit(X, Y, verbose=0)
    losses = diverging.history["loss"]
    assert findings_of(diverging)["diverging loss"].measured == losses[-1] - min(losses)
    trainer = make_trainer(make_mlp(16), SGD(0.05))
    trainer.fit(X, Y, verbose=0)
    trainer.history["loss"] = [2.0, 1.0, 1.9, 0.8, 1.7, 0.9]
    assert findings_of(trainer)["oscillating loss"].measured == pytest.approx(1.8)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_advice_to_increase_a_rate_that_is_too_large(seed):
    findings = findings_of(fitted(make_mlp(64), SGD(3.0), 12, seed))
    assert {"stuck loss", "dead units"} <= findings.keys()
    assert "with a smaller lr than 3," in findings["stuck loss"].message
    assert "larger one first" in findings_of(fitted(make_mlp(16), SGD(1e-5), 12, seed))["stuck loss"].message
    shuffled = np.random.default_rng(seed).permutation(Y)
    lowered = {
        "callbacks": [ReduceLROnPlateau("loss", factor=0.5, patience=0, threshold=1.0)]
    }  # after each epoch but the first
    stuck = findings_of(fitted(make_mlp(16), SGD(0.016), 12, seed, y=shuffled, fit=lowered))["stuck loss"]
    assert "start again with another lr than 0.016 (now 7.81e-06), and check" in stuck.message


@pytest.mark.parametrize("seed", SEEDS)
def test_targets_out_of_reach_of_the_outputs(seed):
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(640, 5))
    targets = inputs @ rng.normal(size=5)

    def after(scale, shift, epochs=40, rate=0.001, loss="mean_squared_error"):
        model = Sequential([Dense(64), ReLU(), Dense(1)], (5,), seed)
        trainer = Trainer(model, loss, Adam(rate), seed=seed)
        trainer.fit(inputs, scale * targets + shift, epochs=epochs, verbose=0)
        return findings_of(trainer)

    assert after(1, 0) == {}
    far = after(1, 2000)
    assert list(far) == ["unscaled targets"]
    assert far["unscaled targets"].measured == pytest.approx(np.hypot(2000, targets.std()), rel=0.01)
    assert list(after(1000, 0)) == list(after(1, 2000, loss=Pinball([0.9]))) == ["unscaled targets"]
    for epochs in (1, 5):  # 10 and 50 steps
        assert "unscaled targets" in after(20000, 0, epochs) and "unscaled targets" not in after(1, 0, epochs)
    assert "unscaled targets" not in after(30, 0, rate=0.1)  # which it has learned


def test_a_slow_start_is_not_stuck():
    trainer = fitted(make_mlp(16), SGD(0.01), 12, y=np.random.default_rng(0).permutation(Y))
    trainer.history["loss"] = list(np.linspace(2.6, 2.3, 12))
    assert "stuck loss" not in findings_of(trainer)


def test_a_gap_that_training_examples_also_have_in_inference_is_not_overfitting():
    trainer = fitted(make_mlp(16), SGD(1e-3), 1)  # as when batch norm's running statistics lag
    trainer.history = {"loss": [2.0, 1.0, 0.5, 0.3, 0.2, 0.1], "val_loss": [2.0, 1.0, 2.3, 2.3, 2.3, 2.3]}
    assert findings_of(trainer) == {}


def test_a_non_finite_step():
    trainer = make_trainer(make_mlp(16, scale=1.0), SGD(1e30))
    with pytest.raises(FloatingPointError):
        trainer.fit(X, Y, epochs=3, verbose=0)
    trainer.model.params["4.weight"].value[:] = 1e38
    assert "losses of" in findings_of(trainer)["not finite"].message


# ---- wording


def test_a_finding_is_a_sentence():
    (finding,) = make_trainer(make_mlp(64, scale=1.0), SGD(0.001)).report(X, Y)
    assert str(finding) == f"unscaled inputs: layer 2, Dense: {finding.message}"
    with pytest.raises(dataclasses.FrozenInstanceError):
        finding.layer = "another"


def test_printed_and_returned_report(capsys):
    findings = make_trainer(make_mlp(64, scale=1.0), SGD(0.001)).report(X, Y)
    output = capsys.readouterr().out
    assert output == f"{findings}\n"
    assert output.startswith("- unscaled inputs: layer 2, Dense: ")
    assert all(len(line) <= 100 for line in output.splitlines()) and "\n  " in output
    assert " ".join(output[2:].split()) == str(findings[0])
    assert repr(findings) == "<1 finding>"
    nothing = make_trainer(make_mlp(64), SGD(0.001)).report(X, Y)
    assert (repr(nothing), bool(nothing), isinstance(nothing, list)) == ("<no findings>", False, True)
