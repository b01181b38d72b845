"""Training with several outputs: a loss for each. The losses themselves: tests/losses/test_output_losses.py."""

import pickle

import numpy as np
import pytest
from interrupted_fits import InterruptAfter
from threaded_ranks import run_ranks

import minidl
from minidl import Sequential, Trainer
from minidl.callbacks import Checkpoint, CSVLogger, EarlyStopping
from minidl.estimators import SequentialClassifier
from minidl.layers import BatchNorm1D, Conv2D, Dense, Dropout, Flatten, Outputs, RandomCrop, RandomFlip, ReLU, Sigmoid
from minidl.losses import SoftmaxCrossEntropy
from minidl.metrics import accuracy
from minidl.optimizers import SGD, Adam

RNG = np.random.default_rng(0)
N, SHAPE = 70, (2, 5, 4)
X = RNG.standard_normal((N, *SHAPE))
MASK = np.where(RNG.random((N, 5, 4)) < 0.2, 255, RNG.integers(0, 3, (N, 5, 4)))
Y = {"policy": RNG.integers(0, 4, N), "mask": MASK, "value": RNG.standard_normal(N)}
WEIGHTS = RNG.integers(0, 3, N) / 2
LOSSES = {
    "policy": "softmax_cross_entropy",
    "value": "mean_squared_error",
    "mask": SoftmaxCrossEntropy(ignore_index=255),
}
FIT = {"epochs": 2, "batch_size": 17, "verbose": 0}


def absolute(scores, y):
    """A loss in Python, of targets with columns that scores do not have."""
    error = scores - y[:, :1]
    return np.abs(error)[:, 0], np.sign(error)


def make(dtype="float32", **given):
    outputs = Outputs(
        policy=[Flatten(), Dropout(0.2), Dense(4)],
        mask=Conv2D(3, 1),
        unused=[Flatten(), Dense(6), BatchNorm1D(), Dense(2)],
        value=[Flatten(), Dense(1)],
    )
    model = Sequential([Conv2D(5, 3, padding=1), ReLU(), outputs], SHAPE, seed=3, dtype=dtype)
    arguments = {
        "loss": LOSSES, "optimizer": Adam(0.01), "loss_weights": {"value": 0.3}, "seed": 5,
        "metrics": {"policy": ["accuracy"], "mask": [accuracy]},
    }  # fmt: skip
    return Trainer(model, **(arguments | given))


def some(y, rows):
    return {name: array[rows] for name, array in y.items()}


def state(trainer):
    history = {name: np.array(values).tobytes() for name, values in trainer.history.items() if name[:6] != "images"}
    return {name: array.tobytes() for name, array in trainer.model.state_dict().items()}, history, trainer.step


@pytest.mark.oracle
@pytest.mark.parametrize("in_python", [False, True])
def test_gradients_are_those_of_pytorch(in_python):
    """One body, weights of losses, ignored labels, weights of rows, and an output without a loss."""
    import torch
    from torch.nn import functional

    loss = LOSSES | ({"value": lambda scores, y: ((scores - y)[:, 0] ** 2, 2 * (scores - y))} if in_python else {})
    branches = {"policy": [Flatten(), Dense(4)], "mask": Conv2D(3, 1), "unused": [Flatten(), Dense(2)]}
    outputs = Outputs(**branches, value=[Flatten(), Dense(1)])
    model = Sequential([Conv2D(5, 3, padding=1), ReLU(), outputs], SHAPE, seed=3, dtype="float64")
    trainer = Trainer(model, loss, SGD(0.0), loss_weights={"value": 0.3, "policy": 2})
    y = Y | {"value": Y["value"][:, np.newaxis]}
    found = trainer.train_batch(X, y, WEIGHTS)
    p = {name: torch.tensor(param.value, requires_grad=True) for name, param in model.params.items()}
    conv, x = functional.conv2d, torch.tensor(X)
    body = conv(x, p["0.weight"], p["0.bias"], padding=1).relu()
    policy = body.flatten(1) @ p["2.policy.1.weight"].T + p["2.policy.1.bias"]
    value = body.flatten(1) @ p["2.value.1.weight"].T + p["2.value.1.bias"]
    mask = conv(body, p["2.mask.0.weight"], p["2.mask.0.bias"])
    pixels = functional.cross_entropy(mask, torch.tensor(MASK), ignore_index=255, reduction="none").sum((1, 2))
    losses = (
        2 * functional.cross_entropy(policy, torch.tensor(Y["policy"]), reduction="none")
        + pixels / torch.tensor((MASK != 255).sum((1, 2)))
        + 0.3 * (value[:, 0] - torch.tensor(Y["value"])) ** 2
    )
    total = (losses * torch.tensor(WEIGHTS)).sum()
    assert found == pytest.approx(total.item() / WEIGHTS.sum(), rel=1e-9)
    (total / np.count_nonzero(WEIGHTS)).backward()
    for name, param in model.params.items():
        expected = np.zeros_like(param.grad) if p[name].grad is None else p[name].grad.numpy()
        np.testing.assert_allclose(param.grad, expected, rtol=1e-9, atol=1e-12, err_msg=name)
        assert ("unused" in name) == (p[name].grad is None)


def test_history_and_evaluate_have_the_names_of_keras():
    trainer = make()
    history = trainer.fit(X, Y, **FIT, validation_split=0.2)
    own = ["policy_loss", "mask_loss", "value_loss", "policy_accuracy", "mask_accuracy"]
    names = ["loss", *own]
    assert list(history) == ["epoch", *names, *(f"val_{name}" for name in names), "lr", "images_per_second"]
    values, plain = trainer.evaluate(X, Y, WEIGHTS), trainer.evaluate(X, Y)
    assert list(values) == list(plain) == names
    scores = trainer.predict(X)
    for name, weight in (("policy", 1), ("mask", 1), ("value", 0.3)):
        alone = Trainer(trainer.model[name], LOSSES[name], SGD(0.1)).evaluate(X, Y[name], WEIGHTS)
        assert values[f"{name}_loss"] == pytest.approx(alone["loss"], rel=1e-6)
        assert trainer.loss_weights[name] == weight
    total = values["policy_loss"] + values["mask_loss"] + 0.3 * values["value_loss"]
    assert values["loss"] == pytest.approx(total, rel=1e-6)
    assert plain["policy_accuracy"] == (scores["policy"].argmax(axis=1) == Y["policy"]).mean()
    known = MASK != 255
    assert plain["mask_accuracy"] == (scores["mask"].argmax(axis=1) == MASK)[known].mean()
    assert history.plot().axes and np.allclose(trainer.predict_proba(X, output="policy").sum(axis=1), 1)
    with pytest.raises(ValueError, match="predict_proba: output: expected one of policy, mask, value, got 'unused'"):
        trainer.predict_proba(X, output="unused")


def test_the_losses_of_an_epoch_are_those_of_its_steps():
    trainer = make(optimizer=SGD(0.0))
    history = trainer.fit(X, Y, **FIT | {"epochs": 1}, sample_weight=WEIGHTS)
    trainer.model.layers[-1].branches["policy"][1].rate = 0
    plain = trainer.evaluate(X, Y, WEIGHTS)  # without dropout
    for name in ("mask_loss", "value_loss", "mask_accuracy"):
        counted = plain[name] if "loss" in name else trainer.evaluate(X[WEIGHTS > 0], some(Y, WEIGHTS > 0))[name]
        assert history[name] == [pytest.approx(counted, rel=1e-6)], name


def test_an_output_without_a_loss_stays_as_it_is():
    trainer = make(optimizer=SGD(0.1, momentum=0.9, weight_decay=0.1))
    before = trainer.model.state_dict()
    trainer.fit(X, Y, **FIT)
    for name, array in trainer.model.state_dict().items():
        assert np.array_equal(array, before[name]) == ("unused" in name), name
    without = make(optimizer=SGD(0.1, momentum=0.9, weight_decay=0.1))
    model = without.model[["policy", "mask", "value"]]
    without.model = model
    without.fit(X, Y, **FIT)
    assert all(np.array_equal(array, trainer.model.state_dict()[name]) for name, array in model.state_dict().items())


def test_a_loss_may_be_added_later():
    """The optimizer does not count the steps that an output had no loss in."""
    trainer = make(optimizer=Adam(0.01))
    trainer.train_batch(X, Y)
    trainer.loss = LOSSES | {"unused": "mean_absolute_error"}
    assert trainer.skipped_steps == [*[0] * 6, *[1] * 4, *[0] * 2]
    before = trainer.model.state_dict()["2.unused.1.weight"]
    trainer.train_batch(X, Y | {"unused": np.zeros((N, 2))})
    moved = np.abs(trainer.model.state_dict()["2.unused.1.weight"] - before)
    assert moved.max() == pytest.approx(0.01, rel=1e-3)  # Adam's first step


@pytest.mark.parametrize("kind", ["kernels", "python"])
def test_threads_and_ranks_change_no_bit(kind):
    def run(threads, comm=None, batch_size=17):
        given = {"loss": LOSSES | {"value": absolute}} if kind == "python" else {}
        trainer = make(**given, num_threads=threads, distributed=comm)
        y = Y | ({"value": np.stack([Y["value"], Y["value"]], axis=1)} if kind == "python" else {})
        trainer.fit(X, y, **FIT | {"batch_size": batch_size}, sample_weight=WEIGHTS, validation_split=0.2)
        return state(trainer)

    expected = run(1)
    for threads in (2, 3, 8):
        assert run(threads) == expected
    for ranks in (1, 2, 3, 4):
        results, _ = run_ranks(ranks, lambda comm: run(1, comm))
        assert all(result == expected for result in results), ranks
    for batch_size in (1, 15, 16, 33):
        assert run(3, None, batch_size) == run(1, None, batch_size)


def test_the_plan_has_the_bits_of_numpy():
    """A member in Python makes all of the steps Python's."""
    fused, python = (
        make(),
        make(loss=LOSSES | {"policy": lambda scores, y: minidl.losses.softmax_cross_entropy(scores, y)}),
    )
    for trainer in (fused, python):
        trainer.fit(X, Y, **FIT, sample_weight=WEIGHTS)
    assert (type(fused.steps()).__name__, type(python.steps()).__name__) == ("FusedSteps", "SegmentedSteps")
    assert state(fused) == state(python)


def test_a_model_of_one_named_output_trains_as_without_the_name():
    named = Sequential([Flatten(), Outputs(policy=Dense(4))], SHAPE, seed=1)
    trainer = Trainer(named, {"policy": "softmax_cross_entropy"}, Adam(0.01), {"policy": ["accuracy"]})
    alone = Trainer(named["policy"], "softmax_cross_entropy", Adam(0.01), ["accuracy"])
    histories = trainer.fit(X, {"policy": Y["policy"]}, **FIT), alone.fit(X, Y["policy"], **FIT)
    assert histories[0]["loss"] == histories[0]["policy_loss"] == histories[1]["loss"]
    assert histories[0]["policy_accuracy"] == histories[1]["accuracy"]
    pairs = zip(named.state_dict().values(), alone.model.state_dict().values(), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize(
    "options", [{}, {"sample_weight": WEIGHTS, "gradient_accumulation_steps": 2}, {"batches": True}]
)
@pytest.mark.parametrize("step", [0, 4, 7])
def test_an_interrupted_fit_is_resumed_with_the_same_bits(step, options, tmp_path):
    options = dict(options)
    fit = FIT | {"validation_data": (X[:9], some(Y, slice(9)))}
    if options.pop("batches", False):
        fit.pop("batch_size")
        arguments = ([(X[i : i + 17], some(Y, slice(i, i + 17))) for i in range(0, N, 17)],)
    else:
        arguments = X, Y
    whole, interrupted = make(), make()
    whole.fit(*arguments, **fit, **options)
    path = tmp_path / "run.ckpt"
    step = min(step, whole.step - 2)
    with pytest.raises(KeyboardInterrupt):
        interrupted.fit(
            *arguments, **fit, **options, callbacks=[Checkpoint(path, every_n_steps=1), InterruptAfter(step)]
        )
    resumed = Trainer.resume(path, num_threads=3)
    assert resumed.step == step + 1 and repr(resumed.loss) == repr(whole.loss)
    resumed.fit(*arguments, **fit, **options)
    assert state(resumed) == state(whole)
    again = pickle.loads(pickle.dumps(resumed))
    assert state(again) == state(whole) and again.metrics.keys() == whole.metrics.keys()


def test_batches_are_as_arrays():
    """Also of labels in one batch and probabilities in another, whose metrics are of one array."""
    arrays, batches = make(), make()
    arrays.fit(X, Y, **FIT, shuffle=False)
    batches.fit([(X[i : i + 17], some(Y, slice(i, i + 17))) for i in range(0, N, 17)], epochs=2, verbose=0)
    assert state(arrays) == state(batches)
    rows = some(Y, slice(17)) | {"policy": np.eye(4)[Y["policy"][:17]]}
    history = make().fit([(X[:17], some(Y, slice(17))), (X[:17], rows)], epochs=1, verbose=0)
    assert 0 <= history["policy_accuracy"][0] <= 1


def test_per_example_gradients_and_clipping():
    trainer = make("float64", metrics=())
    trainer.model.layers[-1].branches["policy"][1].rate = 0
    gradients = trainer.per_example_gradients(X, Y, training=False)
    assert not any("unused" in name for name in gradients)
    for i in (0, 5):
        one = trainer.per_example_gradients(X[i : i + 1], some(Y, slice(i, i + 1)), training=False)
        assert all(np.array_equal(one[name][0], gradients[name][i]) for name in gradients)
    norms = trainer.per_example_gradients(X, Y, reduce="norm", training=False)
    assert np.allclose(norms["0.weight"], np.linalg.norm(gradients["0.weight"].reshape(N, -1), axis=1))
    clipped = [make(per_example_clip_norm=0.1, num_threads=threads) for threads in (1, 3)]
    for one in clipped:
        one.fit(X, Y, **FIT)
    assert state(clipped[0]) == state(clipped[1]) != state(make())


def test_weights_of_losses_can_change_between_steps():
    trainer, other = make(), make(loss_weights={"policy": 2, "mask": 0})
    trainer.loss_weights = {"policy": 2, "mask": 0}
    assert trainer.loss_weights == {"policy": 2, "mask": 0, "value": 1} == other.loss_weights
    assert trainer.train_batch(X, Y) == other.train_batch(X, Y) and state(trainer)[0] == state(other)[0]
    with pytest.raises(
        ValueError, match="loss_weights: expected names of the outputs policy, mask, value, got 'unused'"
    ):
        trainer.loss_weights = {"unused": 1}
    with pytest.raises(ValueError, match="loss_weights: expected None, as the model has one output"):
        Trainer(trainer.model["policy"], "softmax_cross_entropy", SGD(0.1), loss_weights={"policy": 1})


def test_callbacks_watch_an_output(tmp_path):
    path = tmp_path / "log.csv"
    stopping = EarlyStopping("val_policy_accuracy", patience=1)
    trainer = make()
    callbacks = [stopping, EarlyStopping("mask_loss", patience=9), CSVLogger(path)]
    trainer.fit(X, Y, **FIT | {"epochs": 9}, validation_split=0.2, callbacks=callbacks)
    assert "val_mask_accuracy" in path.read_text().splitlines()[0]
    for monitor, message in (
        ("unused_loss", "monitor: expected one of"),
        ("policy_gini", "monitor: expected one of loss"),
    ):
        with pytest.raises(ValueError, match=message):
            make().fit(X, Y, **FIT, callbacks=[EarlyStopping(monitor)])


@pytest.mark.parametrize("first", [np.float64, np.int64, np.bool_])
def test_batches_of_other_kinds_of_targets(first):
    """Metrics and losses of an epoch see numbers of all batches, also where the first batch has whole ones."""

    def squared(scores, y):
        return (scores[:, 0] - y) ** 2, 2 * (scores[:, 0] - y)[:, np.newaxis]

    def mean(y, scores):
        return float(y.mean())

    trainer = Trainer(Sequential([Outputs(b=Dense(1))], (2,)), {"b": squared}, SGD(0.0), {"b": [mean]})
    trainer.model.params["0.b.0.weight"].value[...] = 0
    ones = np.ones((4, 2))
    batches = [(ones, {"b": np.ones(4, first)}), (ones, {"b": np.full(4, 2.5)})]
    history = trainer.fit(batches, epochs=1, verbose=0)
    assert history["loss"] == history["b_loss"] == [(1 + 6.25) / 2] and history["b_mean"] == [1.75]


def test_batches_of_other_shapes_of_targets():
    def loss(scores, y):
        return np.zeros(len(y)), np.zeros_like(scores)

    trainer = Trainer(Sequential([Outputs(b=Dense(1))], (2,)), {"b": loss}, SGD(0.0), {"b": [lambda y, scores: 0.0]})
    batches = [(np.ones((4, 2)), {"b": np.ones((4, *shape))}) for shape in ((2, 3), (3, 2))]
    with pytest.raises(ValueError, match=r"batch 1 of epoch 0: y: output 'b': .* one shape .* \(2, 3\) and \(3, 2\)"):
        trainer.fit(batches, epochs=1, verbose=0)


def test_no_rows_have_no_loss():
    trainer = make()
    assert all(np.isnan(value) for value in trainer.evaluate(X[:0], some(Y, slice(0))).values())


def test_names_of_metrics_that_a_history_has_itself():
    def per_second(y, scores):
        return 1.0

    model = Sequential([Outputs(images=Dense(1))], (2,))
    with pytest.raises(ValueError, match="metrics: expected a unique name for each, got 'images_per_second'"):
        Trainer(model, {"images": "mean_squared_error"}, SGD(0.1), {"images": [per_second]})


def test_arguments_of_outputs_and_losses_are_copies():
    trainer = make()
    trainer.model.layers[-1].branches.pop("mask")
    trainer.loss.weights["value"] = 9.0
    assert "mask" in trainer.model.output_names and trainer.loss_weights["value"] == 0.3


def test_pixels_that_layers_crop():
    model = Sequential([RandomCrop(4), Outputs(mask=Conv2D(3, 1))], (2, 6, 6))
    trainer = Trainer(model, {"mask": "softmax_cross_entropy"}, SGD(0.1))
    with pytest.raises(ValueError, match=r"RandomCrop: expected targets without pixels .* move examples and targets"):
        trainer.train_batch(np.ones((4, 2, 6, 6)), {"mask": np.zeros((4, 4, 4), int)})


def test_report_names_outputs():
    """Each output is compared with itself: the gradients of one say nothing of those of another."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((640, 6))
    y = {"policy": (np.arange(640) % 50 == 0).astype(int), "value": 5000 + x[:, :1]}
    model = Sequential([Outputs(policy=[Dense(8), ReLU(), Dense(7)], value=Dense(1))], (6,), seed=0)
    trainer = Trainer(model, {"policy": "softmax_cross_entropy", "value": "mean_squared_error"}, SGD(1e-5))
    trainer.fit(x, y, epochs=25, shuffle=False, verbose=0)
    found = {finding.symptom: finding.layer for finding in trainer.report()}
    assert found["imbalanced labels"] == "output 'policy'" and found["unscaled targets"] == "output 'value'"
    assert "vanishing gradients" not in found and "exploding gradients" not in found
    trainer.fit(x, y | {"policy": np.arange(640) // 160}, epochs=1, shuffle=False, verbose=0)
    assert {finding.symptom: finding.layer for finding in trainer.report()}["unshuffled labels"] == "output 'policy'"


def test_report_finds_gradients_that_vanish_before_outputs():
    shared = [layer for _ in range(12) for layer in (Dense(16), Sigmoid())]
    model = Sequential([*shared, Outputs(policy=Dense(3), value=Dense(1))], (6,), seed=0)
    trainer = Trainer(model, {"policy": "softmax_cross_entropy", "value": "mean_squared_error"}, SGD(0.01))
    x = np.random.default_rng(0).standard_normal((320, 6))
    trainer.fit(x, {"policy": np.arange(320) % 3, "value": x[:, :1]}, epochs=1, verbose=0)
    (found,) = [finding for finding in trainer.report() if finding.symptom == "vanishing gradients"]
    assert found.layer == "layer 0, Dense" and "times that of the last layers" in found.message


def test_weights_of_losses_are_set_as_a_whole():
    trainer = make()
    with pytest.raises(TypeError):
        trainer.loss_weights["value"] = 2.0
    trainer.loss_weights = trainer.loss_weights | {"value": 2.0}
    assert trainer.loss_weights == {"policy": 1.0, "mask": 1.0, "value": 2.0}


def test_report_and_nan():
    trainer = make()
    trainer.fit(X, Y, **FIT)
    assert trainer.report() == trainer.report(X, Y) == []
    broken = make(loss=LOSSES | {"value": lambda scores, y: (scores[:, 0] * np.nan, scores)})
    with pytest.raises(FloatingPointError, match="the loss of output 'value' of examples"):
        broken.fit(X, Y, **FIT)


def test_refusals():
    trainer = make()
    short = Trainer(trainer.model["policy"], "softmax_cross_entropy", SGD(0.1))
    before = state(trainer)
    for call, message in (
        (lambda: trainer.fit(X, Y["policy"]), "y: expected a dict of targets for the outputs policy, mask, value"),
        (lambda: trainer.fit(X, Y | {"valu": Y["value"]}), "got 'valu', which has no loss"),
        (lambda: trainer.train_batch(X, {"policy": Y["policy"]}), "y: expected targets .*, got none for 'mask'"),
        (lambda: trainer.evaluate(X[:5], Y), "y: output 'policy': expected 5 targets"),
        (
            lambda: trainer.fit(X, Y, sample_weight={"policy": WEIGHTS}),
            "sample_weight: expected one weight for each row",
        ),
        (lambda: trainer.fit(X, Y, class_weight="balanced"), "class_weight: expected None for several outputs"),
        (lambda: trainer.fit(X, Y, mixup=0.2), "mixup: expected a model of one output"),
        (lambda: trainer.fit(X, Y, cutmix=0.2), "cutmix: expected a model of one output"),
        (lambda: trainer.fit(X, Y, validation_data=(X, Y["policy"])), "validation_data: y: expected a dict"),
        (lambda: trainer.fit([(X, Y["policy"])]), "batch 0: y: expected a dict"),
        (lambda: short.fit(X, Y), "y: expected"),
        (lambda: make(loss="huber"), "loss: expected a dict of losses for the outputs policy, mask, unused, value"),
        (lambda: make(loss={"speed": "huber"}), "loss: expected names of the outputs .*, got 'speed'"),
        (lambda: Trainer(short.model, LOSSES, SGD(0.1)), "loss: expected one loss, as the model has one output"),
        (
            lambda: make(metrics=["accuracy"]),
            r"metrics: expected metrics by output, such as \{\"policy\": \[\"accuracy\"\]\}, got 'accuracy' alone",
        ),
        (
            lambda: make(metrics={"unused": ["mae"]}),
            "metrics: expected names of outputs that have a loss, policy, mask, value, got 'unused'",
        ),
        (lambda: make(metrics={"policy": ["acuracy"]}), "metrics: output 'policy': expected one of"),
        (lambda: Trainer(short.model, "huber", SGD(0.1), {"policy": ["mae"]}), "metrics: expected metrics of the one"),
        (lambda: SequentialClassifier(trainer.model).fit(X, Y["policy"]), "model: expected one output, got policy"),
        (lambda: minidl.plots.saliency(trainer.model, X), r"model: expected one output, .*: pass model\['policy'\]"),
        (lambda: minidl.plots.confusion_matrix(trainer.model, X, Y["policy"]), "model: expected one output"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            call()
    assert state(trainer) == before


def test_layers_that_move_pixels_take_outputs_without_pixels():
    layers = [RandomFlip(), Conv2D(3, 3, padding=1), Outputs(mask=Conv2D(3, 1), policy=[Flatten(), Dense(4)])]
    model = Sequential(layers, SHAPE)
    policy = {"policy": "softmax_cross_entropy"}
    Trainer(model, policy, SGD(0.1)).fit(X, {"policy": Y["policy"]}, **FIT)
    trainer = Trainer(model, policy | {"mask": LOSSES["mask"]}, SGD(0.1))
    with pytest.raises(
        ValueError, match=r"layer 0, RandomFlip: expected targets without pixels .*, got shape \(5, 4\)"
    ):
        trainer.fit(X, {name: Y[name] for name in ("policy", "mask")}, **FIT)
