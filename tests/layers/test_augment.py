"""RandomCrop, RandomFlip, RandomRotate90, RandomShift: functions of seed, layer path, step and example id."""

import numpy as np
import pytest
import reference_images as images

from minidl import Sequential, Trainer
from minidl.layers import (
    Conv2D,
    Dense,
    Flatten,
    GlobalAvgPool2D,
    Pad2D,
    RandomCrop,
    RandomFlip,
    RandomRotate90,
    RandomShift,
    ReLU,
)
from minidl.optimizers import SGD

DTYPES = ("float32", "float64")
SHAPE = (2, 6, 5)
N = 90
NONE = ((0, 0), (0, 0))
LAYERS = {  # name -> (layer, size, first, last, flips)
    "crop": (lambda: RandomCrop(4), (4, 4), (0, 0), (2, 1), (0, 0)),
    "crop with padding": (lambda: RandomCrop((6, 5), padding=(2, 1)), (6, 5), (-2, -1), (2, 1), (0, 0)),
    "crop larger than the image": (lambda: RandomCrop((8, 3), padding=1), (8, 3), (-1, -1), (-1, 3), (0, 0)),
    "flip": (lambda: RandomFlip(), (6, 5), *NONE, (0, 1)),
    "vertical flip": (lambda: RandomFlip(horizontal=False, vertical=True), (6, 5), *NONE, (1, 0)),
    "both flips": (lambda: RandomFlip(True, True), (6, 5), *NONE, (1, 1)),
    "no flip": (lambda: RandomFlip(False), (6, 5), *NONE, (0, 0)),
    "shift": (lambda: RandomShift(2), (6, 5), (-2, -2), (2, 2), (0, 0)),
    "shift to the sides": (lambda: RandomShift((0, 7)), (6, 5), (0, -7), (0, 7), (0, 0)),
}
every = pytest.mark.parametrize("name", LAYERS)


# ---- by hand -----------------------------------------------------------------------------------------
@every
@pytest.mark.parametrize("dtype", DTYPES)
def test_agrees_with_numpy(name, dtype, rng):
    """Each training forward by hand is a new step; backward inverts the crop of its forward."""
    layer, size, *choices = LAYERS[name]
    model = Sequential([layer()], input_shape=SHAPE, dtype=dtype, seed=4)
    x, dy = rng.normal(size=(17, *SHAPE)).astype(dtype), rng.normal(size=(17, 2, *size)).astype(dtype)
    for step in range(3):
        draws = images.augment_draws(range(17), *choices, seed=4, step=step, path="0")
        assert model.forward(x, training=True).tobytes() == images.pieces(x, size, draws).tobytes()
        assert model.backward(dy).tobytes() == images.pieces_backward(dy, SHAPE, draws).tobytes()
    assert model.params == {} and model.output_shape == (2, *size)


@every
@pytest.mark.parametrize("dtype", DTYPES)
def test_inference_uses_the_center(name, dtype, rng):
    layer, size, *_ = LAYERS[name]
    x = rng.normal(size=(33, *SHAPE)).astype(dtype)
    model = Sequential([layer()], input_shape=SHAPE, dtype=dtype)
    centre = (SHAPE[1] - size[0]) // 2, (SHAPE[2] - size[1]) // 2
    expected = images.pieces(x, size, [(*centre, 0, 0)] * 33)
    assert model.predict(x).tobytes() == model.forward(x).tobytes() == expected.tobytes()
    assert name.startswith("crop") or expected.tobytes() == x.tobytes()


def test_two_of_them_in_a_net_differ(rng):
    x = rng.normal(size=(64, *SHAPE)).astype("f4")
    model = Sequential([RandomFlip(), RandomFlip()], input_shape=SHAPE)
    stayed = (model.forward(x, training=True) == x).all(axis=(1, 2, 3)).sum()
    assert 16 < stayed < 48  # if they were equal, nothing would have changed


@pytest.mark.parametrize("dtype", DTYPES)
def test_quarter_turns_agree_with_numpy(dtype, rng):
    model = Sequential([RandomRotate90()], input_shape=(2, 5, 5), dtype=dtype, seed=4)
    x, dy = (rng.normal(size=(40, 2, 5, 5)).astype(dtype) for _ in range(2))
    for step in range(3):
        quarters = images.quarter_turns(range(40), seed=4, step=step, path="0")
        assert set(quarters) == {0, 1, 2, 3}
        assert model.forward(x, training=True).tobytes() == images.turned(x, quarters).tobytes()
        assert model.backward(dy).tobytes() == images.turned(dy, [-quarter for quarter in quarters]).tobytes()
    assert model.predict(x).tobytes() == model.forward(x).tobytes() == x.tobytes()
    assert model.params == {} and model.output_shape == (2, 5, 5)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 33])
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_border_is_that_of_pad2d(dtype, mode, n, rng):
    """The same bits as a crop after Pad2D, at the same path."""
    x, padding = rng.normal(size=(n, *SHAPE)).astype(dtype), (4, 3)
    for size, layer in (
        ((6, 5), RandomShift(padding, mode)),
        ((7, 4), RandomCrop((7, 4), padding, mode)),
        ((14, 11), RandomCrop((14, 11), padding, mode)),
    ):
        pairs = (Pad2D(padding, mode=mode), RandomCrop(size)), (Pad2D(0), layer)
        separate, one = (
            Sequential([*pair, RandomFlip(True, True)], input_shape=SHAPE, dtype=dtype, seed=2) for pair in pairs
        )
        dy = rng.normal(size=(n, 2, *size)).astype(dtype)
        for _ in range(3):
            assert one.forward(x, training=True).tobytes() == separate.forward(x, training=True).tobytes()
            assert one.backward(dy).tobytes() == separate.backward(dy).tobytes()
        assert one.predict(x).tobytes() == separate.predict(x).tobytes()


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("size", [(14, 11), (7, 3), (4, 4)])
def test_inference_has_the_gradient_of_a_border(size, mode, rng):
    x = rng.normal(size=(17, *SHAPE)).astype("f4")
    pairs = (Pad2D((4, 3), mode=mode), RandomCrop(size)), (Pad2D(0), RandomCrop(size, (4, 3), mode))
    models = [Sequential([*pair, Flatten(), Dense(1)], input_shape=SHAPE) for pair in pairs]
    first, second = (model.input_gradient(x, np.zeros((17, 1)), "mean_squared_error") for model in models)
    assert first.tobytes() == second.tobytes()


# ---- in training -------------------------------------------------------------------------------------
def make_net(seed=0):
    layers = [RandomCrop(8, padding=2), RandomFlip(), Conv2D(4, 3), ReLU(), RandomShift(1)]
    return Sequential([*layers, GlobalAvgPool2D(), Dense(10)], input_shape=(1, 8, 8), seed=seed)


def weights_after(X, y, seed=0, **options):
    trainer = Trainer(make_net(), "softmax_cross_entropy", SGD(0.05, momentum=0.9), seed=seed, **options)
    trainer.fit(X, y, epochs=3, batch_size=17, verbose=0)
    return b"".join(array.tobytes() for array in trainer.model.state_dict().values())


def test_fit_is_reproducible_for_any_number_of_threads(rng):
    X, y = rng.integers(0, 256, (N, 1, 8, 8), np.uint8), rng.integers(0, 10, N)
    first = weights_after(X, y)
    for threads in (1, 2, 3):
        assert weights_after(X, y, num_threads=threads) == first
    assert weights_after(X.astype("f4"), y) == first
    assert weights_after(X, y, seed=1) != first


class ScoreRecorder:
    """A metric that records labels and scores of every epoch, in step order."""

    __name__ = "watch"

    def __init__(self):
        self.seen = []

    def __call__(self, y, scores):
        self.seen.append((np.array(y), np.array(scores)))
        return 0.0


@pytest.mark.parametrize("batch_size", [1, 16, 23, N])
@pytest.mark.parametrize("shuffle", [True, False])
def test_augmentation_depends_on_the_example_however_it_reaches_a_step(batch_size, shuffle, rng):
    """Labels identify rows; a dense layer of ones, hardly changed, sums what is left of each image."""
    X, watch = rng.integers(0, 256, (N, 1, 4, 4)).astype("f4"), ScoreRecorder()
    model = Sequential([RandomShift(3), Flatten(), Dense(N)], input_shape=(1, 4, 4))
    weight, bias = model.params.values()
    weight.value, bias.value = np.ones(weight.value.shape), np.zeros(N)
    trainer = Trainer(model, "softmax_cross_entropy", SGD(1e-30), [watch], seed=3)
    trainer.fit(X, np.arange(N), epochs=2, batch_size=batch_size, shuffle=shuffle, verbose=0)
    steps = -(-N // batch_size)
    for epoch, (rows, scores) in enumerate(watch.seen):
        assert np.array_equal(rows, np.arange(N)) is not shuffle
        for k in range(steps):
            batch = slice(k * batch_size, (k + 1) * batch_size)
            what = {"seed": 3, "step": epoch * steps + k, "path": "0"}
            draws = images.augment_draws(rows[batch], (-3, -3), (3, 3), (0, 0), **what)
            left = images.pieces(X[rows[batch]], (4, 4), draws).sum(axis=(1, 2, 3))  # integers
            assert np.array_equal(scores[batch], np.repeat(left[:, None], N, axis=1))


@pytest.mark.parametrize("batch_size", [16, N])
def test_alternating_flips_show_each_image_from_both_sides(batch_size, rng):
    """In each pair of epochs, in shuffled batches, also of a fit that is continued."""
    watch = ScoreRecorder()
    flip = RandomFlip(alternate_every=-(-N // batch_size))
    model = Sequential([flip, Flatten(), Dense(N, use_bias=False)], input_shape=(1, 1, 2))
    model.params["2.weight"].value = np.tile([1.0, 0.0], (N, 1))  # the left pixel
    trainer = Trainer(model, "softmax_cross_entropy", SGD(1e-30), [watch])
    for epochs in (1, 3):
        trainer.fit(np.tile([1.0, 2.0], (N, 1, 1, 1)), np.arange(N), epochs=epochs, batch_size=batch_size, verbose=0)
    sides = np.stack([scores[np.argsort(rows), 0] for rows, scores in watch.seen])
    assert (sides[0] != sides[1]).all() and (sides[:2] == sides[2:]).all()
    assert 20 < (sides[0] == 2).sum() < 70


def test_models_saved_before_the_arguments_existed_are_loaded():
    layers = [RandomCrop(4, 1, "reflect"), RandomShift(1, "circular"), RandomFlip(alternate_every=7)]
    config = Sequential(layers, input_shape=SHAPE).get_config()
    assert repr(Sequential.from_config(config, None, {}).layers) == repr(tuple(layers))
    for layer, argument in zip(config["layers"], ("mode", "mode", "alternate_every"), strict=True):
        del layer["minidl"][1][argument]
    old = RandomCrop(4, 1), RandomShift(1), RandomFlip()
    assert repr(Sequential.from_config(config, None, {}).layers) == repr(old)


# ---- arguments ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("layer", "error", "message"),
    [
        (RandomCrop(7), ValueError, r"size: \(7, 7\) does not fit into an image of 6 x 5 with padding \(0, 0\)"),
        (RandomCrop((6, 8), padding=1), ValueError, r"size: \(6, 8\) does not fit"),
        (RandomCrop(0), ValueError, "size: expected at least 1, got 0"),
        (RandomCrop(2, padding=-1), ValueError, "padding: expected at least 0, got -1"),
        (RandomCrop(2.5), TypeError, "size: expected an integer, got 2.5"),
        (RandomShift(-1), ValueError, "max_shift: expected at least 0, got -1"),
        (RandomShift((1, 2, 3)), ValueError, "max_shift: expected an integer or a pair"),
        (RandomShift(2**40), ValueError, "max_shift: expected at most 16777216, got 1099511627776"),
        (RandomRotate90(), ValueError, "expected a square image, got 6 x 5: crop or pad it first"),
        (RandomCrop(2, padding=2**40), ValueError, "padding: expected at most 16777216, got 1099511627776"),
        (RandomCrop(2, mode="edge"), ValueError, "mode: expected 'constant', 'reflect', .* or 'circular', got 'edge'"),
        (RandomShift(1, mode=1), ValueError, "mode: expected 'constant', .* got 1"),
        (
            RandomCrop(2, (0, 5), "reflect"),
            ValueError,
            "padding: expected at most 4 for mode 'reflect' and a width of 5, got 5",
        ),
        (
            RandomShift(7, "circular"),
            ValueError,
            "max_shift: expected at most 6 for mode 'circular' and a height of 6, got 7",
        ),
        (RandomFlip(alternate_every=0), ValueError, "alternate_every: expected at least 1, got 0"),
        (RandomFlip(alternate_every=-3), ValueError, "alternate_every: expected at least 1, got -3"),
        (RandomFlip(alternate_every=True), TypeError, "alternate_every: expected an integer, got True"),
        (RandomFlip(alternate_every=2.0), TypeError, "alternate_every: expected an integer, got 2.0"),
        (RandomFlip(alternate_every=2**63), ValueError, "alternate_every: expected at most .*, got more"),
    ],
    ids=str,
)
def test_invalid_arguments(layer, error, message):
    with pytest.raises(error, match=rf"layer 0, Random.*{message}"):
        Sequential([layer], input_shape=SHAPE)


@pytest.mark.parametrize("layer", [RandomCrop(2), RandomFlip(), RandomRotate90(), RandomShift(1)], ids=str)
def test_needs_an_image(layer):
    with pytest.raises(ValueError, match=r"layer 0, Random.*\(channels, height, width\)"):
        Sequential([layer], input_shape=(8,))


def test_reprs():
    assert repr(RandomCrop(32, padding=4)) == "RandomCrop(size=32, padding=4)"
    assert repr(RandomRotate90()) == "RandomRotate90()"
    assert [repr(RandomFlip()), repr(RandomShift(2))] == ["RandomFlip()", "RandomShift(max_shift=2)"]
