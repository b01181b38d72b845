"""Targets of pixels move with the pixels that layers move: tasks whose exact answer is known, in every way to train."""

from copy import deepcopy

import numpy as np
import pytest
from moving_layers import Roll

from minidl import Sequential, Trainer, batch_sum
from minidl.callbacks import Checkpoint
from minidl.engine.pixel_targets import Draw, moved
from minidl.layers import (
    Block,
    ColorJitter,
    Conv2D,
    Cutout,
    Dense,
    Flatten,
    GaussianNoise,
    MaxPool2D,
    Parallel,
    RandomCrop,
    RandomFlip,
    RandomRotate90,
    RandomRotation,
    RandomShift,
    RandomZoom,
    Reshape,
    Residual,
    Scale,
    Upsample2D,
)
from minidl.losses import BinaryCrossEntropy, SoftmaxCrossEntropy
from minidl.optimizers import SGD
from minidl.training.labeled_data import LabeledData
from minidl.training.report.probe import Probe
from minidl.training.sample_buffer import Sample

RNG = np.random.default_rng(0)
N, SIZE = 45, 8
X = RNG.normal(size=(N, 2, SIZE, SIZE)).astype("f4")
LABELS = RNG.integers(0, 3, (N, SIZE, SIZE))
ONE_HOT = np.moveaxis(np.eye(3, dtype="f4")[LABELS], -1, 1)
MOVES = {
    "crop": lambda: [RandomCrop(5)],
    "padded crop": lambda: [RandomCrop(SIZE, padding=2)],
    "crop to a wide image": lambda: [RandomCrop((4, 10), padding=(0, 2))],
    "flip": lambda: [RandomFlip(True, True)],
    "alternating flip": lambda: [RandomFlip(True, True, alternate_every=2)],
    "shift": lambda: [RandomShift((3, 1))],
    "reflected border": lambda: [RandomCrop(SIZE, 2, "reflect"), RandomShift((0, 8), "circular")],
    "quarter turn": lambda: [RandomRotation((90, 90))],
    "random quarter turns": lambda: [RandomRotate90()],
    "rotation": lambda: [RandomRotation(40, value=0.5)],
    "zoom": lambda: [RandomZoom((0.5, 2))],
    "several": lambda: [RandomRotation(20), RandomFlip(), RandomCrop(6, padding=1), RandomZoom(0.2), RandomShift(1)],
    "a block": lambda: [Block(RandomFlip(), RandomShift(1)), Block(RandomCrop(7))],
    "others among them": lambda: [RandomShift(2), Scale(), RandomFlip()],
    "in NumPy": lambda: [Roll(3), RandomFlip(), Roll(5)],
}
every = pytest.mark.parametrize("name", MOVES)


class Recorder:
    """A loss that keeps scores and targets. Its gradients are 0, so the model stays the identity."""

    ignore_index = -1

    def __init__(self):
        self.calls = []

    def __call__(self, scores, y):
        self.calls.append((scores.copy(), y.copy()))
        return np.zeros(len(scores)), np.zeros_like(scores)


def identity(name, shape=X.shape[1:], dtype="float32"):
    return Sequential([*MOVES[name](), Scale()], input_shape=shape, dtype=dtype, seed=3)


# ---- the exact answer
@every
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_identity_reproduces_its_input(name, dtype):
    """An autoencoder whose targets are its inputs has a loss of 0, in every way to train."""
    trainer = Trainer(identity(name, dtype=dtype), "mean_squared_error", SGD(0.1), ["mae"], seed=5)
    trainer.fit(X, X, 2, batch_size=16, verbose=0)
    trainer.fit(X, X, 1, batch_size=7, gradient_accumulation_steps=3, verbose=0)
    trainer.fit([(X[:20], X[:20]), (X[20:], X[20:])], epochs=2, verbose=0)
    assert trainer.history["loss"] == trainer.history["mae"] == [0.0] * 5
    assert trainer.fit(X, X, 1, batch_size=16, mixup=0.5, verbose=0)["loss"][-1] == 0.0
    assert trainer.train_batch(X, X, np.arange(N) % 2) == 0.0
    assert trainer.evaluate(X, X) == {"loss": 0.0, "mae": 0.0}
    gradients = trainer.per_example_gradients(X, X).values()
    assert not any(gradient.any() for gradient in gradients)
    assert not any(gradient.any() for gradient in trainer.per_example_gradients(X, X, training=False).values())


@every
def test_labels_are_those_of_the_nearest_pixels(name):
    """Labels number the pixels of images with the channels row, column and 1, which show where a pixel is from."""
    rows, columns = np.indices((SIZE, SIZE))
    places = np.stack([rows, columns, np.ones_like(rows)]).astype("f8")[None].repeat(N, 0)
    loss = Recorder()
    trainer = Trainer(identity(name, places.shape[1:], "float64"), loss, SGD(0.1), seed=2)
    trainer.fit(places, np.broadcast_to(rows * SIZE + columns, (N, SIZE, SIZE)), batch_size=17, verbose=0)
    (h, w, inside), label = (
        np.moveaxis(np.concatenate([scores for scores, _ in loss.calls]), 1, 0),
        np.concatenate([y for _, y in loss.calls]),
    )
    assert len(label) == N and (label[inside == 0] == -1).all()
    near = 1.5 if name == "several" else 0.5 + 1e-9  # rounded to a pixel up to three times
    whole = inside > 1 - 1e-12  # of pixels from inside the image alone, whose places bilinear weights give exactly
    assert whole.sum() > 5 * N and (label[whole] >= 0).mean() > 0.99
    known = whole & (label >= 0)
    assert (abs(label // SIZE - h)[known] <= near).all() and (abs(label % SIZE - w)[known] <= near).all()
    assert ((label == -1) == (inside == 0)).all() or name in ("rotation", "zoom", "several")


@every
@pytest.mark.parametrize("kind", ["int64", "uint8"])
def test_a_net_that_solves_the_task_has_no_loss(name, kind):
    """A 1x1 convolution of one-hot images; bilinear weights leave the nearest label the highest in most pixels."""
    model = Sequential([*MOVES[name](), Conv2D(3, 1, use_bias=False)], input_shape=ONE_HOT.shape[1:])
    weight = f"{len(model.layers) - 1}.weight"
    model.params[weight].value[...] = 40 * np.eye(3).reshape(3, 3, 1, 1)
    trainer = Trainer(model, SoftmaxCrossEntropy(ignore_index=255), SGD(0.0), ["accuracy"])
    validation = ONE_HOT, LABELS
    trainer.fit(ONE_HOT, LABELS.astype(kind), 2, batch_size=16, verbose=0, validation_data=validation)
    history = trainer.fit([(ONE_HOT, LABELS.astype(kind))], epochs=1, verbose=0)
    exact = not {"rotation", "zoom", "several"} & {name}
    assert min(history["accuracy"]) == 1.0 if exact else min(history["accuracy"]) > 0.8
    assert max(history["loss"]) < 1e-6 or not exact
    assert history["val_accuracy"][0] == 1.0 and history["val_loss"][0] < 1e-6
    data = LabeledData.from_arrays(model, trainer.loss, ONE_HOT, LABELS)
    probe = Probe(trainer, data, Sample(ONE_HOT, LABELS, None, None, 16))
    assert not probe.unmovable and (probe.mean_loss < 1e-6 or not exact) and probe.inferred < 1e-6


def test_ignored_labels_stay_ignored_whatever_their_number():
    y = LABELS - 5
    y[:, :4] = -(2**63)
    loss = Recorder()
    loss.ignore_index = -(2**63)
    trainer = Trainer(identity("flip"), loss, SGD(0.1))
    trainer.fit(X, y, batch_size=N, shuffle=False, verbose=0)
    ((_, moved),) = loss.calls
    assert moved.dtype == np.int64
    assert sorted(np.unique(moved)) == [-(2**63), -5, -4, -3] and (moved == -(2**63)).sum() == (y == -(2**63)).sum()


def test_uint8_labels_with_an_ignored_label_below_0():
    trainer = Trainer(
        Sequential([RandomShift(2), Conv2D(3, 1)], input_shape=(2, SIZE, SIZE)),
        SoftmaxCrossEntropy(ignore_index=-100),
        SGD(0.1),
    )
    other = Trainer(deepcopy(trainer.model), trainer.loss, SGD(0.1))
    for one, kind in ((trainer, "uint8"), (other, "int64")):
        one.fit(X, LABELS.astype(kind), 2, verbose=0)
    assert trainer.history["loss"] == other.history["loss"]


@pytest.mark.parametrize("shape", [(3, 20), (3, 1, 20)])
@pytest.mark.parametrize("layer", [RandomFlip, lambda: RandomShift((0, 4)), lambda: RandomCrop((1, 12))])
def test_signals(layer, shape):
    """Outputs (classes, length), whose labels (n, length) have no height, and images of height 1."""
    y = RNG.integers(0, 3, (N, 20))
    signals = np.moveaxis(np.eye(3, dtype="f4")[y], -1, 1).reshape(N, 3, 1, 20)
    labels, moving = (y if len(shape) == 2 else y[:, None]), layer()
    ends = [Reshape((3, -1))] if len(shape) == 2 else []
    model = Sequential([moving, Conv2D(3, 1, use_bias=False), *ends], input_shape=(3, 1, 20))
    model.params["1.weight"].value[...] = 40 * np.eye(3).reshape(3, 3, 1, 1)
    trainer = Trainer(model, SoftmaxCrossEntropy(ignore_index=9), SGD(0.0), ["accuracy"])
    history = trainer.fit(signals, labels, batch_size=10, verbose=0, validation_data=(signals, labels))
    assert history["accuracy"] == history["val_accuracy"] == [1.0] and history["loss"][0] < 1e-6
    numbers = signals.reshape(N, *shape)
    ends[:] = [Reshape((3, -1))] if len(shape) == 2 else []
    auto = Trainer(Sequential([layer(), Scale(), *ends], input_shape=(3, 1, 20)), "mean_squared_error", SGD(0.1))
    assert auto.fit(signals, numbers, batch_size=10, verbose=0)["loss"] == [0.0]


def test_float_masks_are_labels_and_grey_values_are_images():
    """Of binary_cross_entropy: masks take the nearest pixel and stay 0 or 1, grey values are interpolated."""
    network = Sequential([RandomZoom((1.3, 1.7))], input_shape=X.shape[1:]).network
    masks, grey = (X[:, :1] > 0).astype("f4"), RNG.random((N, 1, SIZE, SIZE), "f4")
    turned = [moved(network, BinaryCrossEntropy(), y, Draw(0, 0, np.arange(N))) for y in (masks, grey, masks[:9])]
    assert np.isin(turned[0], [0, 1]).all() and turned[0].mean((2, 3)).std() > 0
    assert turned[2].tobytes() == turned[0][:9].tobytes()  # what a mask is does not depend on the other examples
    model = Sequential([RandomZoom((1.3, 1.7))], input_shape=(1, SIZE, SIZE))
    assert turned[1].tobytes() == model.forward(grey, training=True).tobytes()


# ---- the bits
def trained(threads=None, callbacks=(), epochs=3, batch_size=12, fit=None, **options):
    """Returns the bits of a net and its history after a fit."""
    layers = [RandomRotation(15), RandomFlip(), Conv2D(4, 3), Conv2D(4, 3, padding=2), RandomCrop(7, padding=1)]
    model = Sequential([*layers, Conv2D(3, 1)], input_shape=X.shape[1:], seed=1)
    loss = SoftmaxCrossEntropy(ignore_index=255)
    trainer = Trainer(model, loss, SGD(0.1, momentum=0.9), ["accuracy"], 4, threads, **options)
    if fit is None:
        trainer.fit(X, LABELS, epochs, batch_size=batch_size, callbacks=callbacks, verbose=0)
    else:
        fit(trainer)
    return bits(trainer)


def bits(trainer):
    history = {name: values for name, values in trainer.history.items() if name != "images_per_second"}
    return [param.value.tobytes() for param in trainer.model.params.values()], history


class Watcher:
    """Sees each step, so that none runs in one chunk with others."""

    every_n_steps = 1

    def on_step_end(self, trainer, step, loss):
        assert np.isfinite(loss)


def test_a_black_image_among_grey_ones_is_an_image():
    """An autoencoder's targets are its inputs, also where all of an image is 0, and the outside is grey."""
    images = X[:, :1].clip(0, 1)
    images[3] = 0
    kept = Kept(BinaryCrossEntropy())
    model = Sequential([RandomRotation(40, value=0.5), Scale()], input_shape=images.shape[1:])
    Trainer(model, kept, SGD(0.0)).fit(images, images, batch_size=N, shuffle=False, verbose=0)
    np.testing.assert_array_equal(kept.scores[3], kept.y[3])
    assert kept.y[3].any()


def test_masks_among_images_move_with_their_own_image():
    images = X[:, :1].clip(0, 1)
    images[::3] = images[::3] > 0.5
    kept = Kept(BinaryCrossEntropy())
    model = Sequential([RandomFlip(True, True), RandomCrop(6), Scale()], input_shape=images.shape[1:])
    Trainer(model, kept, SGD(0.0)).fit(images, images, batch_size=N, shuffle=False, verbose=0)
    np.testing.assert_array_equal(kept.scores, kept.y)


class Kept:
    """A loss of classes without a method `labels`, which keeps its arguments."""

    classes = True

    def __init__(self, loss):
        self.loss = loss

    def __call__(self, scores, y):
        self.scores, self.y = scores.copy(), y.copy()
        return self.loss(scores, y)


def test_bits_do_not_depend_on_threads_chunks_or_accumulation():
    first = trained()
    assert all(trained(threads) == first for threads in (1, 2, 3))
    assert trained(callbacks=[Watcher()]) == first
    assert (
        trained(fit=lambda one: one.fit(X, LABELS, 3, batch_size=4, gradient_accumulation_steps=3, verbose=0)) == first
    )
    assert trained(per_example_clip_norm=1e9) == first


def test_batches_and_steps_by_hand_have_the_bits_of_arrays():
    cut = [(X[start : start + 12], LABELS[start : start + 12]) for start in range(0, N, 12)]
    first = trained(fit=lambda one: one.fit(X, LABELS, 2, batch_size=12, shuffle=False, verbose=0))
    assert trained(fit=lambda one: one.fit(cut, epochs=2, verbose=0)) == first
    whole = trained(fit=lambda one: one.fit(X, LABELS, 2, batch_size=N, shuffle=False, verbose=0))
    by_hand = trained(fit=lambda one: [one.train_batch(X, LABELS) for _ in range(2)])
    assert by_hand[0] == whole[0]


def test_rows_of_weight_0_count_as_absent():
    kept = np.flatnonzero(np.arange(N) % 3)
    first = trained(fit=lambda one: one.train_batch(X[kept], LABELS[kept]))
    assert trained(fit=lambda one: one.train_batch(X, LABELS, np.arange(N) % 3 > 0)) == first


def test_a_resumed_fit_has_the_same_bits(tmp_path):
    class Stop(Exception):
        pass

    class Failing:
        every_n_steps = 1

        def on_step_end(self, trainer, step, loss):
            if step == 6:
                raise Stop

    path = tmp_path / "run.ckpt"
    save = Checkpoint(path, every_n_steps=1)
    with pytest.raises(Stop):
        trained(callbacks=[save, Failing()])
    resumed = Trainer.resume(path)
    resumed.fit(X, LABELS, 3, batch_size=12, callbacks=[Checkpoint(path, every_n_steps=1)], verbose=0)
    assert bits(resumed) == trained()


def test_gradients_of_examples_are_those_of_the_step():
    layers = [RandomShift(2), RandomFlip(), Conv2D(3, 1)]
    model = Sequential(layers, input_shape=X.shape[1:], dtype="float64")
    trainer = Trainer(model, SoftmaxCrossEntropy(ignore_index=255), SGD(0.1), seed=7)
    for _ in range(2):
        rows = trainer.per_example_gradients(X, LABELS)
        trainer.train_batch(X, LABELS)
        for name, param in model.params.items():
            np.testing.assert_allclose(batch_sum(rows[name]) / N, param.grad, rtol=1e-12, atol=1e-15)


def test_an_example_that_loses_all_its_labels_does_not_count():
    y = np.where(np.arange(SIZE)[:, None] == 0, LABELS, 255)  # the first row alone, which a shift may move out
    model = Sequential([RandomShift((4, 0)), Conv2D(3, 1)], input_shape=X.shape[1:], dtype="float64")
    trainer = Trainer(model, SoftmaxCrossEntropy(ignore_index=255), SGD(0.1))
    rows = trainer.per_example_gradients(X, y)["1.bias"]
    counted = rows.any(axis=1).sum()
    trainer.train_batch(X, y)
    assert 0 < counted < N
    np.testing.assert_allclose(model.params["1.bias"].grad, rows.sum(axis=0) / counted, rtol=1e-12)


def test_rows_of_weight_0_decide_nothing():
    """Numbers in them that are no labels do not make images of masks."""
    y = (X[:, :1] > 0).astype("f4")
    y[0] = np.nan
    model = Sequential([RandomShift(1), Conv2D(1, 1)], input_shape=X.shape[1:])
    with pytest.raises(ValueError, match=r"layer 0, RandomShift: .*ignore"):
        Trainer(model, "binary_cross_entropy", SGD(0.1)).fit(X, y, sample_weight=np.arange(N) > 0, verbose=0)


def test_input_gradients_take_the_targets_of_the_centre():
    model = Sequential([RandomCrop(4), Conv2D(3, 1)], input_shape=X.shape[1:], dtype="float64")
    found = model.input_gradient(X, LABELS, loss="softmax_cross_entropy")
    inner = Sequential([Conv2D(3, 1)], input_shape=(2, 4, 4), dtype="float64")
    inner.load_state_dict({name.replace("1.", "0.", 1): value for name, value in model.state_dict().items()})
    centre = (slice(None), slice(None), slice(2, 6), slice(2, 6))
    expected = inner.input_gradient(X[centre], LABELS[:, 2:6, 2:6], loss="softmax_cross_entropy")
    assert found[centre].tobytes() == expected.tobytes() and np.count_nonzero(found) == np.count_nonzero(expected)


# ---- refusals
IGNORING = SoftmaxCrossEntropy(ignore_index=255)
REFUSED = {  # layers, loss, y: the error
    "no ignored label": (lambda: [RandomShift(1)], "softmax_cross_entropy", LABELS, "layer 0, RandomShift: .*ignore"),
    "padding": (lambda: [RandomCrop(8, padding=1)], "softmax_cross_entropy", LABELS, "layer 0, RandomCrop: .*ignore"),
    "rotation": (
        lambda: [RandomFlip(), RandomRotation(1)],
        "softmax_cross_entropy",
        LABELS,
        "layer 1, RandomRotation: ",
    ),
    "zoom": (lambda: [RandomZoom(0.1)], "softmax_cross_entropy", LABELS, "layer 0, RandomZoom: .*ignore"),
    "masks": (lambda: [RandomShift(1)], "binary_cross_entropy", ONE_HOT, "layer 0, RandomShift: .*ignore"),
    "one-hot rows": (
        *(lambda: [RandomShift(1)], "softmax_cross_entropy", ONE_HOT),
        "layer 0, RandomShift: expected a loss that can ignore labels, .*take labels or masks",
    ),
    "probabilities": (
        *(lambda: [RandomFlip()], BinaryCrossEntropy(ignore_index=255), ONE_HOT / 2),
        "layer 0, RandomFlip: expected masks of 0, 1 and ignore_index=255",
    ),
    "a value that is no target": (
        *(lambda: [RandomRotation(9, value=-1)], "binary_cross_entropy", ONE_HOT / 2),
        "layer 0, RandomRotation: its value.*probabilities",
    ),
    "a branch": (lambda: [Residual(RandomFlip())], IGNORING, LABELS, "layer 0, Residual: body.0, RandomFlip: .*branch"),
    "branches": (
        *(lambda: [Parallel([], [Block(RandomShift(1))], join="add")], IGNORING, LABELS),
        "layer 0, Parallel: branches.1.0, Block: 0, RandomShift: .*branch",
    ),
    "after pooling": (
        *(lambda: [MaxPool2D(2), RandomFlip(), Upsample2D(2)], IGNORING, LABELS),
        r"layer 1, RandomFlip: expected targets of the size of its input, 4 x 4, got shape \(n, 8, 8\)",
    ),
    "between sizes": (
        *(lambda: [RandomFlip(), MaxPool2D(2), RandomFlip(), Upsample2D(2)], IGNORING, LABELS),
        "layer 2, RandomFlip: expected the size of its input, 4 x 4",
    ),
    "coarse labels": (
        *(lambda: [RandomFlip(), MaxPool2D(2)], IGNORING, LABELS[:, ::2, ::2]),
        r"layer 0, RandomFlip: expected targets of the size of its input, 8 x 8, got shape \(n, 4, 4\)",
    ),
    "cropped, then enlarged": (
        lambda: [RandomCrop(4), Upsample2D(2)],
        IGNORING,
        LABELS,
        "layer 0, RandomCrop: expected outputs of 4 x 4, the size of the targets that it crops, got 8 x 8",
    ),
    "cropped labels": (
        lambda: [RandomCrop(4)],
        IGNORING,
        LABELS[:, 2:6, 2:6],
        r"shape \(n, 8, 8\).*layer 0, RandomCrop",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_move_is_refused_before_the_first_step(case):
    layers, loss, y, message = REFUSED[case]
    model = Sequential([*layers(), Conv2D(3, 1)], input_shape=X.shape[1:])
    trainer, before = Trainer(model, loss, SGD(0.1)), {name: one.value.copy() for name, one in model.params.items()}
    calls = [
        lambda: trainer.fit(X, y, verbose=0, callbacks=[Watcher()]),
        lambda: trainer.fit([(X, y)], verbose=0),
        lambda: trainer.train_batch(X, y),
        lambda: trainer.per_example_gradients(X, y),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=message):
            call()
    assert trainer.step == 0 and all((before[name] == param.value).all() for name, param in model.params.items())
    if case == "cropped, then enlarged":
        with pytest.raises(ValueError, match=message):
            trainer.evaluate(X, y)
    elif case != "cropped labels":
        assert "loss" in trainer.evaluate(X, y)  # nothing moves there
        finding = {one.symptom: one for one in trainer.report(X, y)}["unmovable targets"]
        assert finding.layer and str(finding).startswith(f"unmovable targets: {finding.layer}: ")


def test_a_quarter_turn_of_a_wide_image_shows_what_is_outside():
    layers, y = [RandomRotation((90, 90)), Conv2D(3, 1)], LABELS[:, :6]
    trainer = Trainer(Sequential(layers, input_shape=(2, 6, SIZE)), "softmax_cross_entropy", SGD(0.1))
    with pytest.raises(ValueError, match="layer 0, RandomRotation: expected a loss that can ignore labels"):
        trainer.fit(X[:, :, :6], y, verbose=0)


def test_an_error_in_a_step_names_the_example():
    x = X.copy()
    x[41] = 3e38
    trainer = Trainer(Sequential([RandomFlip(), Conv2D(3, 3, padding=1)], X.shape[1:]), IGNORING, SGD(0.1))
    with pytest.raises(FloatingPointError, match="example 41"):
        trainer.fit(x, LABELS, batch_size=8, shuffle=False, sample_weight=np.arange(N) > 30, verbose=0)


@pytest.mark.parametrize(
    ("layers", "loss", "y", "shape"),
    [
        (lambda: [Flatten(), Dense(128)], "mean_squared_error", X.reshape(N, 128), "2, 8, 8"),
        (lambda: [Flatten(), Dense(64)], "binary_cross_entropy", (X[:, 0] > 0).reshape(N, 64), "1, 8, 8"),
        (lambda: [Conv2D(3, 1), Reshape((3, 64))], IGNORING, LABELS.reshape(N, 64), "3, 8, 8"),
        (lambda: [Conv2D(3, 1), Reshape((3, 64))], "softmax_cross_entropy", ONE_HOT.reshape(N, 3, 64), "3, 8, 8"),
    ],
)
def test_flat_images_are_refused(layers, loss, y, shape):
    model = Sequential([RandomFlip(), *layers()], input_shape=X.shape[1:])
    with pytest.raises(ValueError, match=rf"layer 0, RandomFlip: .*Reshape\(\({shape}\)\)"):
        Trainer(model, loss, SGD(0.1)).fit(X, y, verbose=0)


@pytest.mark.parametrize(
    ("layers", "y"),
    [
        ([RandomCrop(6, padding=1), Flatten(), Dense(3)], LABELS[:, 0, 0]),
        ([RandomShift(2), Flatten(), Dense(3)], ONE_HOT[:, :, 0, 0]),
        ([Residual(RandomShift(1)), Flatten(), Dense(15), Reshape((3, 5))], LABELS[:, 0, :5]),  # five letters
        ([RandomRotation(9), Conv2D(3, 8)], LABELS[:, :1, :1]),
        ([RandomFlip(), Flatten(), Dense(64)], LABELS.reshape(N, 64).argmax(axis=1)),
        ([RandomFlip(), Flatten(), Dense(64)], np.eye(64)[LABELS.reshape(N, 64).argmax(axis=1)]),  # as many as pixels
    ],
)
def test_targets_without_pixels_stay(layers, y):
    trainer = Trainer(Sequential(layers, input_shape=X.shape[1:]), "softmax_cross_entropy", SGD(0.1), ["accuracy"])
    trainer.fit(X, y, verbose=0)
    trainer.train_batch(X, y)
    assert "unmovable targets" not in {one.symptom for one in trainer.report()}


@pytest.mark.parametrize(
    "layer",
    [
        *(RandomFlip(), RandomCrop(6), RandomZoom((1, 2)), RandomRotation((-180, -180)), RandomRotate90()),
        *(RandomCrop(SIZE, 3, "reflect"), RandomShift(4, "replicate"), RandomFlip(alternate_every=2)),
    ],
)
def test_labels_without_an_ignored_one_may_move_inside_the_image(layer):
    trainer = Trainer(Sequential([layer, Conv2D(3, 1)], input_shape=X.shape[1:]), "softmax_cross_entropy", SGD(0.1))
    for y in (LABELS, ONE_HOT):
        trainer.fit(X, y, 2, verbose=0)


def test_cutout_noise_and_colours_leave_targets_as_they_are():
    layers = [Cutout(3), GaussianNoise(0.1), ColorJitter(0.1), Scale()]
    loss = Recorder()
    Trainer(Sequential(layers, input_shape=(1, SIZE, SIZE)), loss, SGD(0.1)).fit(
        X[:, :1], LABELS, shuffle=False, batch_size=N, verbose=0
    )
    assert (loss.calls[0][1] == LABELS).all() and (loss.calls[0][0] != X[:, :1]).any()


def test_a_layer_in_numpy_that_interpolates_labels_is_refused():
    class Blur(Roll):
        def forward(self, x, training):
            return (super().forward(x, training) + x) / 2 if training else x

    model = Sequential([Blur(3), Conv2D(3, 1)], input_shape=X.shape[1:])
    with pytest.raises(ValueError, match="layer 0, Blur: expected labels of pixels to be copied"):
        Trainer(model, IGNORING, SGD(0.1)).fit(X, LABELS, verbose=0)
