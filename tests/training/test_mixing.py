"""fit(mixup=..., cutmix=...): against steps on mixtures made by hand, resumed, and what is refused."""

import json

import numpy as np
import pytest
from scipy.special import betaincinv
from scipy.stats import beta, kstest
from threaded_ranks import run_ranks

from minidl import Layer, Sequential, Trainer, fit_many
from minidl.callbacks import Receipt
from minidl.layers import (
    Columns,
    Conv2D,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    GlobalAvgPool2D,
    OneHot,
    Parallel,
    ReLU,
    Scale,
)
from minidl.losses import BinaryCrossEntropy, SoftmaxCrossEntropy
from minidl.optimizers import SGD
from minidl.saving import safetensors_file
from minidl.training.mixing import Mixing
from minidl.utils.data import epoch_order

RNG = np.random.default_rng(0)
X, Y, W = RNG.random((50, 1, 4, 4), "f4"), RNG.integers(0, 3, 50), RNG.choice([0.5, 1, 2], 50)
REAL = RNG.random((50, 3))
RULES = [{"mixup": 0.4}, {"cutmix": 1.0}, {"mixup": 0.4, "cutmix": 1.0}]
every_rule = pytest.mark.parametrize("rule", RULES, ids=" ".join)


def draw(alpha, seed, step, size):
    """Returns the share and the partners of a step with mixup."""
    return Mixing(alpha, 0.0, seed, (16,)).draw(step, size)[:2]


def make_trainer(loss="softmax_cross_entropy", threads=None, dropout=0.0, metrics=("accuracy",), **options):
    layers = [Conv2D(4, 3, padding=1), ReLU(), Flatten(), Dropout(dropout), Dense(3)]
    return Trainer(Sequential(layers, (1, 4, 4)), loss, SGD(0.1, momentum=0.9), metrics, 5, threads, **options)


def outcome(trainer):
    history = {name: values for name, values in trainer.history.items() if name != "images_per_second"}
    return [param.value.tobytes() for param in trainer.model.params.values()], history


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_the_larger_share_has_its_distribution(alpha):
    shares = np.array([draw(alpha, 3, step, 1)[0] for step in range(2000)])
    assert shares.min() >= 0.5 and shares.max() <= 1
    assert kstest(shares, lambda share: 1 - 2 * beta(alpha, alpha).cdf(1 - share)).pvalue > 0.01
    assert ((shares.astype("f4") == shares) & ((1 - shares).astype("f4") == 1 - shares)).all()


def test_draws_are_a_function_of_seed_and_step():
    """The numbers are fixed: they may not change with a version of NumPy or SciPy."""
    share, partner = draw(0.4, 0, 0, 5)
    assert (share, partner.tolist()) == (0.5927289128303528, [3, 1, 4, 2, 0])
    assert draw(0.4, 0, 1, 5)[0] != share != draw(0.4, 1, 0, 5)[0]
    assert draw(1e-300, 0, 0, 5)[0] == 1
    assert draw(1e6, 0, 0, 5)[0] == pytest.approx(0.5, abs=0.002)


def reference_box(area, shape, centre):
    """Returns the box of CutMix, as rand_bbox of its authors' code."""
    height, width = shape
    cut_h, cut_w = int(height * np.sqrt(area)), int(width * np.sqrt(area))
    cy, cx = int(centre[0] * height), int(centre[1] * width)
    y1, y2 = np.clip(cy - cut_h // 2, 0, height), np.clip(cy + cut_h // 2, 0, height)
    x1, x2 = np.clip(cx - cut_w // 2, 0, width), np.clip(cx + cut_w // 2, 0, width)
    return y1, y2, x1, x2


def reference_mixture(rule, step, x):
    """Returns the mixed images of a step of the seed 5, the share of the example itself, and the partners."""
    rng = np.random.default_rng([5, step, 1])
    uniform, partner = rng.random(), rng.permutation(len(x))
    cuts = "cutmix" in rule and ("mixup" not in rule or rng.random() < 0.5)
    alpha = rule["cutmix" if cuts else "mixup"]
    share = round(betaincinv(alpha, alpha, uniform) * 2**24) / 2**24
    if not cuts:
        share = np.float32(max(share, 1 - share))
        return share * x + (1 - share) * x[partner], share, partner
    y1, y2, x1, x2 = reference_box(1 - share, x.shape[2:], rng.random(2))
    share = 1 - (y2 - y1) * (x2 - x1) / (x.shape[2] * x.shape[3])
    below, pasted = (x, x[partner]) if share >= 0.5 else (x[partner], x)
    images = below.copy()
    images[:, :, y1:y2, x1:x2] = pasted[:, :, y1:y2, x1:x2]
    return images, np.float32(max(share, 1 - share)), partner


@every_rule
@pytest.mark.parametrize("loss", ["softmax_cross_entropy", "mean_squared_error"])
@pytest.mark.parametrize("weights", [None, W])
def test_a_step_is_one_on_a_mixture(loss, weights, rule):
    """Bit for bit: partial batches, targets and weights as well."""
    y = Y if loss == "softmax_cross_entropy" else REAL
    numbers = np.eye(3)[Y] if y is Y else REAL.astype("f4")
    trainer, other = make_trainer(loss, metrics=()), make_trainer(loss, metrics=())
    trainer.fit(X, y, 2, batch_size=16, sample_weight=weights, **rule, verbose=0)
    for epoch in range(2):
        order, losses, total = epoch_order(50, 5, epoch, True), [], []
        for start in range(0, 50, 16):
            rows = order[start : start + 16]
            x, share, partner = reference_mixture(rule, other.step, X[rows])
            u = (np.ones(50) if weights is None else weights / weights.mean()).astype("f4")[rows]
            own, others = share * u, (1 - share) * u[partner]
            y = own[:, np.newaxis] * numbers[rows].astype("f4") + others[:, np.newaxis] * numbers[rows][partner].astype(
                "f4"
            )
            w = own + others
            losses.append(other.train_batch(x, y / w[:, np.newaxis], None if weights is None else w) * w.sum())
            total.append(w.sum())
        assert trainer.history["loss"][epoch] == pytest.approx(sum(losses) / sum(total), rel=1e-6)
    assert outcome(trainer)[0] == outcome(other)[0]


@every_rule
def test_number_of_threads_and_chunks_change_no_bit(monkeypatch, rule):
    result = []
    for threads, most in ((1, 4096), (2, 4096), (3, 16), (8, 1)):
        monkeypatch.setattr("minidl.utils.data.CHUNK", most)
        trainer = make_trainer(threads=threads, dropout=0.3)
        trainer.fit(X, Y, 3, batch_size=8, sample_weight=W, **rule, verbose=0)
        result.append(outcome(trainer))
    assert all(other == result[0] for other in result)


@every_rule
def test_ranks_and_nets_side_by_side_have_the_same_mixtures(rule):
    def fit(comm=None):
        trainer = make_trainer(dropout=0.3, distributed=comm)
        trainer.fit(X, Y, 2, batch_size=16, sample_weight=W, **rule, verbose=0)
        return outcome(trainer)

    several = [make_trainer(dropout=0.3) for _ in range(2)]
    fit_many(several, X, Y, epochs=2, batch_size=16, sample_weight=W, **rule, verbose=0)
    assert all(other == fit() for other in [*run_ranks(3, fit)[0], *map(outcome, several)])


@every_rule
def test_kinds_of_data_and_accumulated_batches_give_the_same_mixtures(rule):
    result = []
    for data, size, micro in ((X, 16, 1), (X.reshape(50, 16), 16, 1), (X.astype("f8"), 16, 1), (X, 8, 2)):
        trainer = make_trainer()
        trainer.fit(data, Y, 2, batch_size=size, **rule, gradient_accumulation_steps=micro, verbose=0)
        result.append(outcome(trainer))
    assert all(other == result[0] for other in result)


def test_without_mixtures_nothing_changes():
    one, other = make_trainer(), make_trainer()
    one.fit(X, Y, 2, batch_size=16, mixup=0, cutmix=0, verbose=0)
    other.fit(X, Y, 2, batch_size=16, verbose=0)
    assert outcome(one) == outcome(other)


class Stop:
    def on_step_end(self, trainer, step, loss):
        if step == 5:
            raise KeyboardInterrupt


@every_rule
def test_an_interrupted_fit_is_completed(tmp_path, rule):
    options = {"epochs": 3, "batch_size": 16, "sample_weight": W, **rule, "verbose": 0}
    whole, trainer = make_trainer(), make_trainer()
    whole.fit(X, Y, **options)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(X, Y, callbacks=[Stop()], **options)
    trainer.save_checkpoint(tmp_path / "run.safetensors")
    for name, alpha in rule.items():
        with pytest.raises(ValueError, match=f"{name}: expected {alpha}, as in the fit that was interrupted, got 0.0"):
            Trainer.resume(tmp_path / "run.safetensors").fit(X, Y, **options | {name: 0.0})
    resumed = Trainer.resume(tmp_path / "run.safetensors", num_threads=2)
    resumed.fit(X, Y, **options)
    assert outcome(resumed) == outcome(whole)


def test_a_checkpoint_of_before_cutmix_is_one_without_it(tmp_path):
    options, path = {"epochs": 3, "batch_size": 16, "mixup": 0.4, "verbose": 0}, tmp_path / "run.safetensors"
    whole, trainer = make_trainer(), make_trainer()
    whole.fit(X, Y, **options)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(X, Y, callbacks=[Stop()], **options)
    trainer.save_checkpoint(path)
    config, tensors, about = safetensors_file.read(path, "checkpoint")
    ((_, arguments), *_) = config["fit"]["dict"]
    arguments["dict"].remove(["cutmix", 0.0])
    safetensors_file.write(path, "checkpoint", config, tensors, about)
    with pytest.raises(ValueError, match=r"cutmix: expected 0.0, as in the fit that was interrupted, got 1.0"):
        Trainer.resume(path).fit(X, Y, **options, cutmix=1.0)
    resumed = Trainer.resume(path)
    resumed.fit(X, Y, **options)
    assert outcome(resumed) == outcome(whole)


@every_rule
def test_a_receipt_is_verified(tmp_path, rule):
    """Also one of before cutmix."""
    path = tmp_path / "receipt.json"
    make_trainer().fit(X, Y, 2, batch_size=16, **rule, callbacks=[Receipt(path)], verbose=0)
    assert Trainer.verify(path, X, Y).equal
    receipt = json.loads(path.read_text())
    del receipt["fit"]["cutmix"]
    path.write_text(json.dumps(receipt))
    assert Trainer.verify(path, X, Y).equal == ("cutmix" not in rule)


@every_rule
def test_metrics_compare_with_the_label_of_the_larger_part(rule):
    seen = []

    def metric(y, scores):
        seen.append(np.array(y))
        return 0.0

    make_trainer(metrics=[metric]).fit(X, Y, 1, batch_size=16, **rule, verbose=0)
    np.testing.assert_array_equal(seen[-1], Y[epoch_order(50, 5, 0, True)])


def test_a_custom_loss_gets_mixtures_of_numbers():
    def squared(scores, y):
        return ((scores - y) ** 2).mean(axis=1), 2 / 3 * (scores - y)

    trainer, other = make_trainer(squared, metrics=()), make_trainer("mean_squared_error", metrics=())
    trainer.fit(X, REAL, 2, batch_size=16, mixup=0.4, verbose=0)
    other.fit(X, REAL, 2, batch_size=16, mixup=0.4, verbose=0)
    np.testing.assert_allclose(trainer.history["loss"], other.history["loss"], rtol=1e-5)


@every_rule
def test_clipped_gradients_of_examples_are_those_of_mixtures(rule):
    trainer, other = make_trainer(per_example_clip_norm=1e6), make_trainer()
    for one in (trainer, other):
        one.fit(X, Y, 2, batch_size=16, sample_weight=W, **rule, verbose=0)
    assert outcome(trainer) == outcome(other)


@every_rule
def test_a_step_that_is_not_finite_names_the_examples(rule):
    def broken(scores, y):
        return np.where(np.arange(len(y)) == 3, np.nan, 0.0), np.zeros_like(scores)

    with pytest.raises(FloatingPointError, match=f"example {epoch_order(50, 5, 0, True)[3]} of X"):
        make_trainer(broken, metrics=()).fit(X, REAL, 1, batch_size=16, **rule, verbose=0)


# ---- boxes


def boxes(shape, alpha=1.0, steps=500):
    """Returns the mixtures of some steps, with kept numbers in the shape of an example."""
    found = [Mixing(0.0, alpha, 3, shape).draw(step, 7) for step in range(steps)]
    return [one._replace(kept=one.kept.reshape(shape)) for one in found]


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 9, 5), (2, 1, 12), (2, 12, 1), (4, 12), (1, 3, 3)])
def test_the_share_is_the_area_that_is_kept(shape):
    """All channels have the same pixels, either those of a box or all others; the target has exactly their part."""
    found = boxes(shape)
    for share, _, kept in found:
        assert (kept == kept[0]).all() and 0.5 <= share == kept.sum() / kept.size
        assert is_box(kept[0]) or is_box(~kept[0])
    assert len({kept.tobytes() for _, _, kept in found}) > 2


def is_box(pixels):
    """Whether these pixels, if there are any, are all between their first and last rows and columns."""
    return not pixels.any() or pixels[tuple(slice(axis.min(), axis.max() + 1) for axis in np.nonzero(pixels))].all()


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_shares_have_the_mean_of_the_reference(alpha):
    rng, areas = np.random.default_rng(1), []
    for _ in range(4000):
        y1, y2, x1, x2 = reference_box(1 - rng.beta(alpha, alpha), (32, 24), rng.random(2))
        areas.append((y2 - y1) * (x2 - x1) / (32 * 24))
    expected = np.maximum(areas, 1 - np.array(areas))
    shares = [one.share for one in boxes((1, 32, 24), alpha, 4000)]
    assert np.mean(shares) == pytest.approx(expected.mean(), abs=5 * expected.std() / 4000**0.5)


def test_boxes_are_a_function_of_seed_and_step():
    """The numbers are fixed, as those of mixup."""
    share, partner, kept = Mixing(0.0, 1.0, 0, (1, 6, 6)).draw(0, 5)
    assert partner.tolist() == draw(0.4, 0, 0, 5)[1].tolist() == [3, 1, 4, 2, 0]
    assert share == 1 - 6 / 36
    np.testing.assert_array_equal(np.flatnonzero(~kept), [0, 1, 2, 6, 7, 8])


def test_with_both_a_coin_chooses_the_rule_of_a_step():
    """A step of mixup then has the numbers of mixup alone."""
    cuts = 0
    for step in range(400):
        share, partner, kept = Mixing(0.4, 1.0, 5, (1, 8, 8)).draw(step, 6)
        if kept is None:
            assert (share, partner.tolist()) == (draw(0.4, 5, step, 6)[0], draw(0.4, 5, step, 6)[1].tolist())
        cuts += kept is not None
    assert 160 < cuts < 240


@every_rule
@pytest.mark.parametrize("shape", [(3, 6, 7), (3, 1, 9), (3, 9)])
def test_a_mixture_of_flat_images_has_the_mean_of_its_target(shape, rule):
    """Images of one colour, whose channels are their target: whatever is mixed, the loss of their means is 0."""
    pixels = np.broadcast_to(np.eye(3)[Y].reshape(50, 3, *[1] * (len(shape) - 1)), (50, *shape))

    def of_means(scores, y):
        return np.abs(scores.reshape(len(y), 3, -1).mean(axis=2) - y).max(axis=1), np.zeros_like(scores)

    trainer = Trainer(Sequential([Flatten(), Scale()], shape, dtype="float64"), of_means, SGD(0.1), seed=5)
    assert max(trainer.fit(pixels, np.eye(3)[Y], 3, batch_size=8, **rule, verbose=0)["loss"]) < 1e-15


def test_pixels_of_several_sizes_are_cut_in_their_size():
    model = Sequential([Conv2D(3, 3, padding=1), GlobalAvgPool2D()], (1, None, None))
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1), seed=5)
    one_size = Trainer(model.at((1, 4, 4)), "softmax_cross_entropy", SGD(0.1), seed=5)
    state = {name: value.copy() for name, value in model.state_dict().items()}
    losses = trainer.fit(X, Y, 2, cutmix=1.0, verbose=0)["loss"]
    model.load_state_dict(state)
    assert one_size.fit(X, Y, 2, cutmix=1.0, verbose=0)["loss"] == losses


# ---- refused


@pytest.mark.parametrize("name", ["mixup", "cutmix"])
@pytest.mark.parametrize(
    ("alpha", "error", "message"),
    [
        (-0.1, ValueError, "expected a number of at least 0"),
        (np.inf, ValueError, "expected a finite number"),
        (1e7, ValueError, "expected at most 1e"),
        ("0.2", TypeError, "expected a number"),
        (True, TypeError, "expected a number"),
        (None, TypeError, "expected a number"),
    ],
)
def test_invalid_alpha(name, alpha, error, message):
    trainer = make_trainer()
    with pytest.raises(error, match=f"^{name}: {message}"):
        trainer.fit(X, Y, **{name: alpha}, verbose=0)
    assert trainer.step == 0


@pytest.mark.parametrize("name", ["mixup", "cutmix"])
def test_losses_that_take_no_mixtures(name):
    with pytest.raises(ValueError, match=f"^{name}: expected a loss without ignore_index"):
        make_trainer(SoftmaxCrossEntropy(ignore_index=2)).fit(X, Y, **{name: 0.2}, verbose=0)
    for loss in (BinaryCrossEntropy().__call__, lambda scores, y: (scores[:, 0], scores)):
        with pytest.raises(TypeError, match=f"^{name}: expected a loss of numbers, got int64 targets"):
            make_trainer(loss, metrics=()).fit(X, Y, **{name: 0.2}, verbose=0)


@pytest.mark.parametrize(
    ("layers", "shape", "y", "message"),
    [
        ([Dense(3)], (16,), Y, r"expected images .* or signals .*, got examples of shape \(16,\)"),
        ([Flatten(), Dense(3)], (16, 1, 1), Y, r".* sides of at least three pixels .*, got .* \(16, 1, 1\)"),
        ([Flatten(), Dense(3)], (1, 8, 2), Y, r".* sides of at least three pixels .*, got .* \(1, 8, 2\)"),
        ([Flatten(), Dense(3)], (2, 2, 2, 2), Y, r".* got examples of shape \(2, 2, 2, 2\)"),
        ([Conv2D(3, 1)], (1, 4, 4), np.zeros((50, 4, 4), int), r"expected .* one axis of outputs, got .*3, 4, 4"),
    ],
)
def test_cutmix_needs_images_and_a_target_for_each(layers, shape, y, message):
    trainer, x = Trainer(Sequential(layers), "softmax_cross_entropy", SGD(0.1)), X.reshape(50, *shape)
    with pytest.raises(ValueError, match=f"^cutmix: {message}"):
        trainer.fit(x, y, cutmix=1.0, verbose=0)
    assert trainer.model.network is None and trainer.step == 0 and trainer.interrupted is None and not trainer.history
    trainer.fit(x, y, cutmix=0.0, verbose=0)


class Codes(Layer):
    """A layer for categories, which copies them."""

    takes_categories = True

    def forward(self, x, training):
        return x

    def backward(self, dy):
        return dy


@pytest.mark.parametrize(("kind", "arguments"), [(Embedding, (7, 3)), (OneHot, (7,)), (Codes, ())])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("mixes", ["mixup", "cutmix"])
def test_models_that_take_no_mixtures(mixes, nested, kind, arguments):
    """Between two categories there is none: some mixtures would train other categories, others give NaN or zeros."""
    categories = RNG.integers(0, 7, (50, 4))
    layer, word = kind(*arguments), kind.__name__
    layers = [Parallel([Columns(0, 2), layer, Flatten()], [Columns(2, 4)])] if nested else [layer]
    model = Sequential([*layers, Flatten(), Dense(3)])
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1))
    name = f"layer 0.*{word}" if nested else f"layer 0, {word}"
    with pytest.raises(ValueError, match=f"^{mixes}: expected a model without {word}, got {name}.*: mixed categories"):
        trainer.fit(categories, Y, **{mixes: 0.2}, verbose=0)
    assert trainer.step == 0 and trainer.interrupted is None
    trainer.fit(categories, Y, verbose=0)
