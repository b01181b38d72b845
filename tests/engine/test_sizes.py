"""Models of images of any size: the bits of models rebuilt for a size, with shared weights, in threads and in fits."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from batch_fits import Crash
from contract.every_layer import DRAWS

from minidl import Layer, Sequential, Trainer, batch_sum, export_c
from minidl.callbacks import Checkpoint
from minidl.engine.sizes import KEPT
from minidl.initializers import ones
from minidl.layers import (
    BatchNorm2D,
    Conv1D,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    GlobalAvgPool1D,
    GlobalAvgPool2D,
    LayerNorm,
    MaxPool2D,
    Outputs,
    Parallel,
    RandomCrop,
    RandomFlip,
    ReLU,
    Rescale,
    Reshape,
    Upsample2D,
)
from minidl.losses import SoftmaxCrossEntropy
from minidl.optimizers import SGD, Adam

RNG = np.random.default_rng(0)
LOSS = SoftmaxCrossEntropy(ignore_index=255)


class Shift(Layer):
    """A layer in NumPy with a parameter and a buffer."""

    def build(self, in_shape):
        self.shift = self.param("shift", in_shape[:1], ones)
        self.count = self.buffer("count", (1,), ones)
        return in_shape

    def forward(self, x, training):
        self.shape = x.shape
        if training:
            self.count += 1
        return x + self.shift.value[:, np.newaxis, np.newaxis]

    def backward(self, dy):
        self.shift.grad[...] = batch_sum(dy.sum(axis=(2, 3)))
        return dy


def layers(*others):
    wide = [MaxPool2D(2), Conv2D(6, 3, padding=1), BatchNorm2D(), ReLU(), Upsample2D(2)]
    body = [Conv2D(5, 3, padding=1), BatchNorm2D(), ReLU(), Parallel([], wide, join="concat"), Dropout(0.2)]
    return [Rescale(1 / 255), *others, *body, Conv2D(3, 1)]


def batch(height, width, n=5, rng=RNG):
    x = rng.integers(0, 256, (n, 2, height, width), dtype=np.uint8)
    y = rng.integers(0, 3, (n, height, width), dtype=np.uint8)
    y[rng.random(y.shape) < 0.1] = 255
    return x, y


def any_size(*others, shape=(2, None, None), **options):
    return Sequential(layers(*others), shape, **options)


def rebuilt(model, shape, *others):
    other = Sequential(layers(*others), shape, seed=model.seed, dtype=model.dtype)
    other.load_state_dict(model.state_dict())
    return other


def weights(model):
    return {name: value.tobytes() for name, value in model.state_dict().items()}


# ---- predictions
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_thirty_sizes_in_eight_threads_are_those_of_rebuilt_models(dtype):
    model = any_size(Shift(), dtype=dtype)
    sizes = [(2 * int(h), 2 * int(w)) for h, w in RNG.integers(1, 30, (30, 2))]
    data = [batch(*size, n=3)[0] for size in sizes]
    expected = [rebuilt(model, x.shape[1:], Shift()).predict(x, num_threads=1) for x in data]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            order = RNG.permutation(len(data))
            found = list(pool.map(lambda i: model.predict(data[i]), order))
            for i, y in zip(order, found, strict=True):
                assert np.array_equal(y, expected[i]), sizes[i]
    assert len(model.sizes._made) <= KEPT


@pytest.mark.parametrize("name", sorted(DRAWS))
@pytest.mark.filterwarnings("ignore:layer 0")  # of channels that look like the last ones
def test_every_layer_takes_any_size_as_when_built_for_it_or_is_refused_by_name(name):
    taken = 0
    for number in range(6):
        case = DRAWS[name](np.random.default_rng([number, *name.encode()]))
        if len(case.in_shape) not in (2, 3) or case.categories:
            continue
        declared = (case.in_shape[0], *[None] * (len(case.in_shape) - 1))
        again = DRAWS[name](np.random.default_rng([number, *name.encode()])).layer
        try:
            model = Sequential([case.layer], declared)
        except ValueError as error:
            assert f"layer 0, {name}" in str(error)
            continue
        for size in (1, 2, 3):
            shape = (case.in_shape[0], *(size * side + 1 for side in case.in_shape[1:]))
            try:
                other = Sequential([copy.deepcopy(again)], shape)
            except ValueError:
                with pytest.raises(ValueError, match=f"layer 0, {name}"):
                    model.at(shape)
                continue
            other.load_state_dict(model.state_dict())
            x = case.values(RNG, (2, *shape)).astype("f4")
            assert np.array_equal(model.predict(x), other.predict(x), equal_nan=True)
            assert len(model.output_shape) == len(other.output_shape)
            taken += 1
    assert taken or name in REFUSED, name


REFUSED = {"BatchNorm1D", "Columns", "Dense", "Embedding", "Flatten", "OneHot", "PiecewiseLinearEncoding", "Reshape"}


def test_signals_of_any_length():
    model = Sequential([Conv1D(4, 3, padding=1), ReLU(), GlobalAvgPool1D(), Dense(2)], (3, None))
    assert model.input_shape == (3, None) and model.output_shape == (2,)
    x = RNG.normal(size=(4, 3, 17)).astype("f4")
    other = Sequential([Conv1D(4, 3, padding=1), ReLU(), GlobalAvgPool1D(), Dense(2)], (3, 17))
    other.load_state_dict(model.state_dict())
    assert np.array_equal(model.predict(x), other.predict(x))
    assert np.array_equal(model.predict_proba(x), other.predict_proba(x))
    assert np.array_equal(model.predict(x.tolist()), other.predict(x))


def test_a_model_of_any_size_knows_its_shapes():
    model = any_size()
    assert model.input_shape == (2, None, None) and model.output_shape == (3, None, None)
    assert model.at((2, 10, 12)).output_shape == (3, 10, 12)
    assert any_size(RandomCrop(16)).output_shape == (3, 16, 16)
    assert model[1:].input_shape == (2, None, None) and model[4:].input_shape == (5, None, None)
    assert any_size(RandomCrop(16))[2:].input_shape == (2, 16, 16)
    fixed = Sequential(layers(), (2, 8, 8))
    assert fixed.at((2, 8, 8)) is fixed
    with pytest.raises(ValueError, match=r"input_shape: expected \(2, 8, 8\), of the model, got \(2, 8, 9\)"):
        fixed.at((2, 8, 9))


def test_a_model_of_one_size_names_the_way_to_others():
    with pytest.raises(ValueError, match=r": a model with input_shape=\(2, None, None\) takes any size"):
        Sequential(layers(), (2, 8, 8)).predict(np.zeros((1, 2, 8, 9)))


def test_the_initial_weights_are_those_of_any_size():
    assert weights(any_size()) == weights(Sequential(layers(), (2, 24, 40)))


# ---- refusals
@pytest.mark.parametrize(
    ("made", "message"),
    [
        ([Conv2D(4, 3), Flatten(), Dense(2)], r"layer 2, Dense: param 'weight': expected shape \(2, .*\), got \(2, "),
        ([LayerNorm()], "layer 0, LayerNorm: param 'weight'"),
        ([Conv2D(4, 1), Reshape((4, 4096))], "layer 1, Reshape"),
    ],
)
def test_layers_that_fix_the_size_are_refused_by_name(made, message):
    with pytest.raises(ValueError, match=r"^input_shape: expected layers that take any size for \(3, None, None\)"):
        Sequential(made, (3, None, None))
    with pytest.raises(ValueError, match=message):
        Sequential(made, (3, None, None))
    assert not any(layer.built for layer in made)


@pytest.mark.parametrize(
    ("shape", "error"),
    [((None, 8, 8), ValueError), ((None,), ValueError), ((3, 0, None), ValueError), ((3, "a", None), TypeError)],
)
def test_invalid_shapes(shape, error):
    with pytest.raises(error, match=r"^input_shape: expected"):
        Sequential([ReLU()], shape)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 3, 8, 8), r"X: expected shape \(n, 2, any size, any size\), got \(n, 3, 8, 8\)"),
        ((1, 128), r"X: expected shape \(n, 2, any size, any size\), got \(n, 128\)$"),
        ((2, 8, 8), r"got \(n, 8, 8\): examples have channels, a single example is X\[np\.newaxis\]"),
        ((3, 8, 8, 2), r"got \(n, 8, 8, 2\): channels come first, np\.moveaxis\(X, -1, 1\)"),
        ((1, 2, 0, 8), "X: expected images of at least one pixel, got 0x8"),
        ((1, 2, 7, 8), "layer 4, Parallel"),
        ((1, 2, 1, 1), "layer 4, Parallel: branches.1.0, MaxPool2D"),
        ((1, 2, 202, 2), "X: expected at most 400 pixels, the max_pixels of the model, got 202x2"),
    ],
)
def test_hostile_sizes(shape, message):
    model = any_size(max_pixels=400)
    with pytest.raises(ValueError, match=message):
        model.predict(np.zeros(shape, np.uint8))
    assert model.predict(np.zeros((0, 2, 8, 8))).shape == (0, 3, 8, 8)


def test_a_hundred_thousand_pixels_on_a_side_take_no_memory():
    huge = np.broadcast_to(np.zeros(1, np.uint8), (1, 2, 100_000, 100_000))
    with pytest.raises(ValueError, match=r"expected at most 16777216 pixels, .* got 100000x100000"):
        any_size().predict(huge)


def test_what_needs_one_size_says_how_to_get_it(tmp_path):
    model, (x, y) = any_size(), batch(8, 8)
    trainer = Trainer(model, LOSS, SGD(0.1))
    calls = {
        "forward": lambda: model.forward(x),
        "input_gradient": lambda: model.input_gradient(x, y, LOSS),
        "train_batch": lambda: trainer.train_batch(x, y),
        "per_example_gradients": lambda: trainer.per_example_gradients(x, y),
        "export_c": lambda: export_c(model, tmp_path / "net.c"),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=r"expected a model of one size: model\.at\("):
            call()
            raise AssertionError(name)
    sized = model.at((2, 8, 8))
    assert sized.input_gradient(x, y, LOSS).shape == x.shape
    export_c(sized, tmp_path / "net.c")
    alone = Sequential([Conv2D(3, 1)], (2, None, None)).at((2, 8, 8))
    assert len(Trainer(alone, LOSS, SGD(0.1)).per_example_gradients(x, y)["0.bias"]) == len(x)


# ---- one set of weights
def test_all_sizes_have_the_same_weights():
    model, (x, y) = any_size(Shift()), batch(8, 10)
    one, other = model.at((2, 8, 10)), model.at((2, 16, 16))
    for a, b, c in zip(*(each.params.values() for each in (model, one, other)), strict=True):
        assert a is b is c
    before = model.predict(x)
    Trainer(one, LOSS, SGD(0.5)).train_batch(x, y)
    assert not np.array_equal(model.predict(x), before)
    assert weights(model) == weights(one) == weights(other)
    model.load_state_dict({name: np.zeros_like(value) for name, value in model.state_dict().items()})
    assert not model.predict(batch(16, 16)[0]).any()


def test_copies_and_files_take_any_size(tmp_path):
    model, (x, _) = any_size(max_pixels=500), batch(12, 8)
    Trainer(model, LOSS, SGD(0.1)).fit([batch(8, 8)], verbose=0)
    model.save(tmp_path / "m")
    for other in (Sequential.load(tmp_path / "m"), copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model[:]):
        assert np.array_equal(other.predict(x), model.predict(x))
        assert (other.input_shape, other.max_pixels) == (model.input_shape, 500)


# ---- fits
SIZES = [(8, 8), (16, 10), (8, 8), (6, 20), (16, 10)]
BATCHES = [batch(*size, n=4 + k) for k, size in enumerate(SIZES)]


def test_a_fit_on_batches_of_several_sizes_is_that_of_rebuilt_models():
    """Step by step, with the weights carried over; the metrics are those of all pixels."""
    model = any_size(RandomFlip(True, True))
    trainer = Trainer(model, LOSS, SGD(0.3), ["accuracy", "iou"], seed=3)
    before = copy.deepcopy(model)
    history = trainer.fit(BATCHES, epochs=2, validation_data=BATCHES[1], verbose=0)
    counter, state = 0, before.state_dict()
    for k, (x, y) in enumerate(BATCHES * 2):
        one = rebuilt(before, x.shape[1:], RandomFlip(True, True))
        one.load_state_dict(state)
        by_hand = Trainer(one, LOSS, SGD(0.3), seed=3)
        by_hand.step = k
        counter = 0 if k % 5 == 0 else counter + len(BATCHES[k % 5 - 1][0])
        by_hand.fit([(x, y)], verbose=0) if not counter else _step_with_ids(by_hand, x, y, counter)
        state = one.state_dict()
    assert {name: value.tobytes() for name, value in state.items()} == weights(model)
    evaluated = trainer.evaluate(*BATCHES[1])
    assert {name: history[f"val_{name}"][-1] for name in evaluated} == evaluated


def _step_with_ids(trainer, x, y, first):
    """A step whose random numbers are those of rows from `first` on, as in the middle of an epoch of batches."""
    import dataclasses

    from minidl.training.labeled_data import LabeledData

    data = LabeledData.from_arrays(trainer.model, trainer.loss, x, y).for_steps()
    made = trainer.batches(data, data.active_rows, len(x))
    trainer.run(dataclasses.replace(made, example_ids=made.example_ids + first))


@pytest.mark.parametrize("optimizer", [SGD(0.1, momentum=0.9), Adam(0.01)])
def test_a_fit_on_arrays_of_one_size_is_that_of_a_model_of_that_size(optimizer):
    x, y = batch(8, 12, n=40)
    one, other = any_size(), Sequential(layers(), (2, 8, 12))
    histories = [
        Trainer(model, LOSS, copy.deepcopy(optimizer), ["iou"]).fit(
            x, y, 3, batch_size=8, validation_split=0.2, verbose=0
        )
        for model in (one, other)
    ]
    assert weights(one) == weights(other)
    assert all(histories[0][name] == histories[1][name] for name in ("loss", "iou", "val_loss", "val_iou"))


def test_the_optimizers_state_is_that_of_all_sizes():
    """Momentum and Adam's averages go on from size to size, as they do for one size in the same steps."""
    x, y = batch(8, 8, n=4)
    blank = np.zeros((4, 2, 8, 16), np.uint8), np.full((4, 8, 16), 255, np.uint8)
    blank[0][..., :8], blank[1][..., :8] = x, y
    head = [Rescale(1 / 255), Conv2D(3, 1)]
    for optimizer in (SGD(0.1, momentum=0.9), Adam(0.01)):
        result = []
        for data in ([(x, y)] * 4, [(x, y), blank] * 2):
            model = Sequential(copy.deepcopy(head), (2, None, None), dtype="float64")
            Trainer(model, LOSS, copy.deepcopy(optimizer)).fit(data, epochs=3, verbose=0)
            result.append(model.state_dict())
        for name, value in result[0].items():
            np.testing.assert_allclose(result[1][name], value, rtol=1e-9)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupted_fit_of_several_sizes_is_completed(threads, tmp_path):
    def make_trainer():
        return Trainer(any_size(RandomFlip()), LOSS, Adam(0.01), ["accuracy", "iou"], num_threads=threads)

    whole, path = make_trainer(), tmp_path / "c"
    whole.fit(BATCHES, epochs=3, validation_data=BATCHES[3], verbose=0)
    with pytest.raises(KeyboardInterrupt):
        callbacks = [Checkpoint(path, every_n_steps=1), Crash(8)]
        make_trainer().fit(BATCHES, epochs=3, validation_data=BATCHES[3], callbacks=callbacks, verbose=0)
    resumed = Trainer.resume(path)
    resumed.fit(BATCHES, epochs=3, validation_data=BATCHES[3], verbose=0)
    assert weights(resumed.model) == weights(whole.model)
    for name in ("loss", "accuracy", "iou", "val_loss", "val_iou"):
        assert resumed.history[name] == whole.history[name]


def test_settings_hold_for_all_sizes():
    model = any_size()
    model.layers[1].trainable = False
    model.layers[4].branches[1][1].lr_mult = 0.0
    model.layers[-1].lr_mult = 2.0
    before, trainer = model.state_dict(), Trainer(model, LOSS, SGD(0.1))
    trainer.fit(BATCHES, verbose=0)
    changed = {name for name, value in model.state_dict().items() if not np.array_equal(value, before[name])}
    assert "2.weight" in changed and not {"1.weight", "1.bias", "4.branches.1.1.weight"} & changed
    model.layers[1].trainable, model.lr_mult = True, 0.0
    before = model.state_dict()
    trainer.fit(BATCHES, verbose=0)
    assert all(np.array_equal(p.value, before[name]) for name, p in model.params.items())


def test_metrics_that_need_all_scores_are_refused_with_batches_and_not_with_arrays():
    def kept(y, scores):
        return float(len(y))

    trainer = Trainer(any_size(), LOSS, SGD(0.1), ["iou", kept])
    with pytest.raises(
        ValueError, match=r"^metrics: expected metrics of labels, .* for batches of several sizes, got kept"
    ):
        trainer.fit(BATCHES, verbose=0)
    assert trainer.fit(*batch(8, 8), verbose=0)["kept"] == [5.0]


def test_validation_in_batches_is_refused():
    with pytest.raises(TypeError, match=r"validation_data: expected arrays \(X, y\), got batches of them"):
        Trainer(any_size(), LOSS, SGD(0.1)).fit(BATCHES, validation_data=BATCHES[:2], verbose=0)


def test_a_report_looks_at_the_latest_size():
    trainer = Trainer(any_size(), LOSS, SGD(0.1, momentum=0.9), ["iou"])
    trainer.fit(BATCHES, epochs=2, verbose=0)
    assert "16 examples looked at" not in str(trainer.report())
    trainer.report(*BATCHES[3])


def test_a_wrong_batch_is_named_and_changes_nothing():
    trainer = Trainer(any_size(), LOSS, SGD(0.1))
    with pytest.raises(ValueError, match=r"^batch 1 of epoch 0: images of 7x8 do not fit: layer 4, .*pad, or crop$"):
        trainer.fit([BATCHES[0], batch(7, 8)], verbose=0)
    assert trainer.step == 1


def test_a_model_of_any_size_averages_over_pixels_of_its_own_size():
    model = Sequential([Conv2D(4, 3, padding=1), ReLU(), GlobalAvgPool2D(), Dense(3)], (2, None, None))
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.01), ["accuracy"])
    data = [(x, np.arange(len(x)) % 3) for x, _ in BATCHES]
    assert len(trainer.fit(data, epochs=2, verbose=0)["accuracy"]) == 2


# ---- what changes during a fit
class At:
    """Calls a function with the trainer at the beginning of an epoch."""

    def __init__(self, epoch, change):
        self.epoch, self.change = epoch, change

    def on_epoch_begin(self, trainer, epoch):
        if epoch == self.epoch:
            self.change(trainer)


CHANGES = {
    "frozen": lambda trainer: setattr(trainer.model.layers[1], "trainable", False),
    "lr_mult": lambda trainer: setattr(trainer.model, "lr_mult", 0.5),
    "optimizer": lambda trainer: setattr(trainer, "optimizer", Adam(0.01)),
    "clip_norm": lambda trainer: setattr(trainer, "clip_norm", 0.1),
    "loss": lambda trainer: setattr(trainer, "loss", SoftmaxCrossEntropy(0.1, ignore_index=255)),
    "metrics": lambda trainer: setattr(trainer, "metrics", ["accuracy", "dice"]),
    "no metrics": lambda trainer: setattr(trainer, "metrics", []),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("in_batches", [False, True])
def test_what_callbacks_change_holds_as_in_a_model_of_one_size(change, in_batches):
    x, y = batch(8, 10, n=12)
    data = [(x[:6], y[:6]), (x[6:], y[6:])] if in_batches else x
    options = {"epochs": 3, "verbose": 0, **({} if in_batches else {"y": y, "batch_size": 6})}
    result = []
    for shape in ((2, None, None), (2, 8, 10)):
        model = Sequential(layers(), shape)
        trainer = Trainer(model, LOSS, SGD(0.1, momentum=0.9), ["iou"])
        history = trainer.fit(data, callbacks=[At(1, change)], validation_data=(x, y), **options)
        result.append((weights(model), repr({k: v for k, v in history.items() if k != "images_per_second"})))
    assert result[0] == result[1]


def test_frozen_layers_are_skipped_by_the_steps_of_all_sizes():
    """Adam's corrections of a layer that was frozen while another size was trained."""
    a, b = BATCHES[0], BATCHES[1]
    result = []
    for forget in (False, True):
        trainer = Trainer(any_size(), LOSS, Adam(0.01))
        trainer.fit([a, b], verbose=0)
        trainer.model.layers[1].trainable = False
        trainer.fit([a] * 5, verbose=0)
        trainer.model.layers[1].trainable = True
        if forget:
            trainer.skipped_steps = trainer.skipped_steps  # makes all steps again
        trainer.fit([b], verbose=0)
        result.append((weights(trainer.model), trainer.skipped_steps))
    assert result[0] == result[1] and result[0][1][1] == 5


def test_several_outputs_of_pixels():
    model = Sequential([Conv2D(4, 3, padding=1), Outputs(a=Conv2D(3, 1), b=Conv2D(1, 1))], (2, None, None))
    losses = {"a": LOSS, "b": "binary_cross_entropy"}
    trainer = Trainer(model, losses, Adam(0.05), {"a": ["iou"]})
    x, y = batch(8, 9, n=20)
    targets = {"a": y, "b": y == 1}
    fixed = Trainer(model.at((2, 8, 9)), losses, Adam(0.05), {"a": ["iou"]})
    assert trainer.evaluate(x, targets) == fixed.evaluate(x, targets)
    assert len(trainer.fit(x, targets, epochs=2, batch_size=8, verbose=0)["a_iou"]) == 2
    trainer.report(x, targets)
    with pytest.raises(ValueError, match=r"for batches of several sizes, got the losses of several outputs"):
        trainer.fit([(x, targets)], verbose=0)


@pytest.mark.parametrize(
    ("shape", "error"), [(5, TypeError), ((2, True, 5), TypeError), ((2, "5", 5), TypeError), ((2, -5, 5), ValueError)]
)
def test_invalid_shapes_of_at(shape, error):
    with pytest.raises(error, match=r"input_shape: expected"):
        any_size().at(shape)


def test_the_pixels_of_kept_sizes_are_limited():
    model = Sequential([Conv2D(1, 1)], (1, None, None))
    for side in (1600, 1601, 1602, 1603):
        model.at((1, side, np.int64(side)))
    assert sum(height * width for _, height, width in model.sizes._made) <= 2**22
    model.max_pixels = 100
    with pytest.raises(ValueError, match="expected at most 100 pixels"):
        model.at((1, 11, 11))
