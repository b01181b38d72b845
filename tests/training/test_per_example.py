"""Trainer.per_example_gradients: one batch gives the gradient that each example alone would give."""

import threading

import numpy as np
import pytest
import scipy.sparse

import minidl
from minidl import Layer, Sequential, Trainer
from minidl.initializers import he_uniform
from minidl.layers import (
    BatchNorm2D,
    Conv2D,
    ConvTranspose2D,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Flatten,
    GroupNorm,
    LayerNorm,
    MaxPool2D,
    Parallel,
    PReLU,
    RandomCrop,
    ReLU,
    Rescale,
    Residual,
)
from minidl.losses import checked_loss, softmax_cross_entropy
from minidl.optimizers import SGD
from minidl_c.kernels.dense import DenseOp

RNG = np.random.default_rng(0)
SHAPE, CLASSES = (2, 9, 8), 4


class Scaled(Layer):
    """A NumPy layer: multiplies each value by its own weight, and adds noise on request."""

    def __init__(self, noise=0.0):
        self.noise = noise

    def build(self, in_shape):
        self.param("weight", in_shape, lambda rng, shape: 1 + rng.random(shape))
        self.seen = self.buffer("seen", (1,), lambda rng, shape: np.zeros(shape))
        return in_shape

    def forward(self, x, training):
        if training:
            self.x = x + self.noise * self.rng.standard_normal(x.shape).astype(x.dtype)
            self.seen += len(x)
            x = self.x
        return x * self.params["weight"].value

    def backward(self, dy):
        self.params["weight"].grad = (self.x * dy).sum(axis=0)
        return dy * self.params["weight"].value


class Noise(Layer):
    """A NumPy layer with random numbers, without parameters."""

    def forward(self, x, training):
        return x + self.rng.standard_normal(x.shape).astype(x.dtype) if training else x

    def backward(self, dy):
        return dy.copy()


class Doubled(Layer):
    """A NumPy layer without parameters."""

    def forward(self, x, training):
        return x + x

    def backward(self, dy):
        return dy + dy


class UnsupportedOp(DenseOp):
    """A kernel that cannot compute per-example gradients."""

    has_per_example_grad = False


class Unsupported(Layer):
    def build(self, in_shape):
        self.param("weight", (5, *in_shape), he_uniform, order=(1, 0))
        self.op = UnsupportedOp(in_shape, 5, self.dtype, use_bias=False)
        return (5,)


def make_lenet():
    return [
        *(Rescale(1 / 255), Conv2D(6, 3, padding=1), ReLU(), MaxPool2D(2), Conv2D(5, 2), ReLU(), Flatten()),
        *(Dense(20), ReLU(), Dense(CLASSES)),
    ]


def all_layer_kinds():
    body = [DepthwiseConv2D(3, padding=1), GroupNorm(2), PReLU(), Conv2D(6, 1, groups=2, use_bias=False)]
    branches = [Conv2D(3, 1), Dropout(0.3)], [MaxPool2D(3, 1, padding=1), ConvTranspose2D(2, 3, padding=1)]
    return [
        *(Rescale(1 / 255), RandomCrop(8), Conv2D(6, 3, stride=2), Residual(*body), Parallel(*branches), Flatten()),
        *(LayerNorm(), Dense(11), Dropout(0.2), Dense(CLASSES, use_bias=False)),
    ]


def numpy_layers():
    inner = Residual(Conv2D(4, 1), Scaled(), ReLU())
    return [Rescale(1 / 255), Conv2D(4, 3), Doubled(), inner, Flatten(), Scaled(), Dense(6), ReLU(), Dense(CLASSES)]


def unsupported_net():
    return [Rescale(1 / 255), Conv2D(4, 3), Flatten(), Unsupported(), ReLU(), Dense(CLASSES)]


NETS = {
    "lenet": make_lenet,
    "all kinds": all_layer_kinds,
    "numpy": numpy_layers,
    "no per-example kernel": unsupported_net,
}


def make_trainer(layers, dtype="float32", threads=2, loss="softmax_cross_entropy", shape=SHAPE, **options):
    model = Sequential(layers, shape, seed=1, dtype=dtype)
    rng = np.random.default_rng(5)
    for param in model.params.values():
        param.value = param.value + 0.1 * rng.standard_normal(param.value.shape)
    return Trainer(model, loss, SGD(0.1), num_threads=threads, seed=3, **options)


def data(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, *SHAPE), dtype=np.uint8), rng.integers(0, CLASSES, n)


def step_gradients(trainer, *batch):
    """Returns the gradients of a step of a trainer whose weights and step counter do not change."""
    before = trainer.model.state_dict()
    trainer.train_batch(*batch)
    result = {name: param.grad.copy() for name, param in trainer.model.params.items()}
    trainer.model.load_state_dict(before)
    trainer.step -= 1
    return result


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("net", NETS)
def test_each_row_has_the_bits_of_the_example_alone(net, dtype):
    trainer, (X, y) = make_trainer(NETS[net](), dtype), data(19)
    trainer.step = 4
    g = trainer.per_example_gradients(X, y)
    assert list(g) == list(trainer.model.params)
    for i in (0, 1, 15, 16, 18):
        # its id determines random masks: the preceding rows are present with negligible weight
        weights = np.where(np.arange(19) == i, 1, 1e-30)
        alone = trainer.per_example_gradients(X, y, sample_weight=weights)
        for name, param in trainer.model.params.items():
            assert g[name].shape == (19, *param.value.shape) and g[name].dtype == dtype
            assert np.array_equal(g[name][i], alone[name][i])
        if net in ("lenet", "no per-example kernel", "numpy"):
            for name, grad in step_gradients(trainer, X[i : i + 1], y[i : i + 1]).items():
                assert np.array_equal(g[name][i], grad), f"{name} of example {i}"


@pytest.mark.parametrize(("dtype", "near"), [("float32", 1e-5), ("float64", 1e-13)])
@pytest.mark.parametrize("net", ["lenet", "all kinds", "no per-example kernel"])
@pytest.mark.parametrize("n", [3, 50, 300])
def test_their_sum_is_the_gradient_of_the_batch(net, n, dtype, near):
    """Bit for bit except for dense weights, whose kernel rounds once where multiply and add round twice."""
    trainer, (X, y), weights = make_trainer(NETS[net](), dtype), data(n), np.linspace(0.5, 2, n)
    trainer.step = 4  # the step uses its masks
    dense = {f"{i}.weight" for i, layer in enumerate(trainer.model.layers) if isinstance(layer, (Dense, Unsupported))}
    for sample_weight in (None, weights):
        g = minidl.batch_sum(trainer.per_example_gradients(X, y, sample_weight=sample_weight))
        for name, grad in step_gradients(trainer, X, y, sample_weight).items():
            result = g[name] / np.dtype(dtype).type(n)
            if name in dense:
                assert np.abs(result - grad).max() <= near * np.abs(grad).max(), name
            else:
                assert np.array_equal(result, grad), name


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("net", NETS)
def test_norms_match_the_gradients(net, dtype):
    trainer, (X, y) = make_trainer(NETS[net](), dtype), data(40)
    norms = trainer.per_example_gradients(X, y, reduce="norm")
    for name, g in trainer.per_example_gradients(X, y).items():
        expected = np.sqrt(np.square(g, dtype="f8").reshape(40, -1).sum(axis=1))
        assert norms[name].shape == (40,) and norms[name].dtype == dtype
        assert np.allclose(norms[name], expected, 1e-5 if dtype == "float32" else 1e-12, 1e-30)


def with_statistics():
    return [*all_layer_kinds()[:3], BatchNorm2D(), Residual(Conv2D(6, 1), BatchNorm2D()), *all_layer_kinds()[5:]]


@pytest.mark.parametrize("net", [all_layer_kinds, with_statistics])
def test_in_inference_mode_nothing_is_drawn_and_batch_norm_is_frozen(net):
    """Compares with reordered examples, and with differences of the losses in inference."""
    trainer, (X, y) = make_trainer(net(), "float64"), data(40)
    if net is with_statistics:
        trainer.train_batch(X, y)
    before = state(trainer)
    g = trainer.per_example_gradients(X, y, training=False)
    assert state(trainer) == before
    assert ("3.weight" in g, "4.body.1.weight" in g) == (False, False)
    order = np.random.default_rng(0).permutation(40)
    turned = trainer.per_example_gradients(X[order], y[order], training=False)
    assert all(np.array_equal(rows[order], turned[name]) for name, rows in g.items())
    value, step, losses = trainer.model.params["2.weight"].value, 1e-6, []
    for moved in (step, -2 * step):
        value[1, 0, 2, 1] += moved
        losses.append(softmax_cross_entropy(trainer.model.predict(X), y)[0])
    assert np.allclose(g["2.weight"][:, 1, 0, 2, 1], (losses[0] - losses[1]) / (2 * step), 1e-5, 1e-8)


def test_numbers_of_threads_and_blocks_change_no_bit():
    X, y = data(530)  # blocks of 256
    result = [make_trainer(all_layer_kinds(), threads=threads).per_example_gradients(X, y) for threads in (1, 3)]
    some = make_trainer(all_layer_kinds()).per_example_gradients(X[:300], y[:300])
    for name, g in result[0].items():
        assert np.array_equal(g, result[1][name]) and np.array_equal(g[:300], some[name])


def test_rows_of_weight_zero_have_zero_gradients():
    """Later rows keep the example ids, and so the dropout masks, that they would have without them."""
    trainer, (X, y) = make_trainer(all_layer_kinds()), data(30)
    weights = np.ones(30)
    weights[[0, 7, 20]] = 0
    kept = weights > 0
    for reduce in (None, "norm"):
        g = trainer.per_example_gradients(X, y, reduce=reduce, sample_weight=weights)
        expected = trainer.per_example_gradients(X[kept], y[kept], reduce=reduce)
        for name in g:
            assert not g[name][~kept].any() and np.array_equal(g[name][kept], expected[name])


@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_no_rows_give_empty_gradients(net):
    trainer, (X, y) = make_trainer(net()), data(0)
    g, norms = trainer.per_example_gradients(X, y), trainer.per_example_gradients(X, y, reduce="norm")
    for name, param in trainer.model.params.items():
        assert g[name].shape == (0, *param.value.shape) and norms[name].shape == (0,)


def test_layers_are_selected_by_path():
    trainer, (X, y) = make_trainer(all_layer_kinds()), data(20)
    every = trainer.per_example_gradients(X, y)
    inner = [name for name in every if name.startswith("3.body.")]
    for layers, names in (
        (2, ["2.weight", "2.bias"]),
        ("3", inner),
        (3, inner),
        ("3.body.1", ["3.body.1.weight", "3.body.1.bias"]),
        (-1, ["9.weight"]),
        ([-1, "3.body.2"], ["3.body.2.weight", "9.weight"]),
        ((2, 2, "2"), ["2.weight", "2.bias"]),
        (np.array([2]), ["2.weight", "2.bias"]),
        (range(2, 4), ["2.weight", "2.bias", *inner]),
    ):
        g = trainer.per_example_gradients(X, y, layers)
        assert list(g) == names
        assert all(np.array_equal(g[name], every[name]) for name in names)


@pytest.mark.parametrize(
    ("layers", "error", "message"),
    [
        (1, ValueError, "layers: expected layers with parameters that are trained, got 1 RandomCrop"),
        ([2, 8], ValueError, "got 8 Dropout"),
        (10, ValueError, "layers: expected an index from -10 to 9"),
        ("3.body.9", ValueError, "layers: expected an index"),
        (2.0, TypeError, "layers: expected an index or a path such as 1"),
        (np.array(2.0), TypeError, "layers: expected an index or a path such as 1"),
        ([None], TypeError, "layers: expected an index or a path such as 1"),
        ([True], TypeError, "layers: expected an index or a path such as 1"),
        ([], ValueError, "layers: expected at least one index or path"),
        (b"0", TypeError, "layers: expected an index or a path such as 1"),
    ],
)
def test_paths_without_trainable_parameters_are_refused(layers, error, message):
    trainer, (X, y) = make_trainer(all_layer_kinds()), data(20)
    with pytest.raises(error, match=message):
        trainer.per_example_gradients(X, y, layers)


def test_frozen_layers_have_no_gradients():
    trainer, (X, y) = make_trainer(make_lenet()), data(20)
    every = trainer.per_example_gradients(X, y)
    trainer.model.layers[1].trainable = False
    some = trainer.per_example_gradients(X, y)
    assert list(some) == list(every)[2:] and all(np.array_equal(g, every[name]) for name, g in some.items())
    with pytest.raises(ValueError, match="layers: expected layers with parameters that are trained, got 1 Conv2D"):
        trainer.per_example_gradients(X, y, 1)
    for layer in trainer.model.layers:
        layer.trainable = False
    with pytest.raises(ValueError, match="model: expected parameters that are trained, it has none, or all are frozen"):
        trainer.per_example_gradients(X, y)


class Coupled(Doubled):
    min_batch_size = 2

    def forward(self, x, training):
        return x - x.mean(axis=0) if training else x


def test_a_numpy_layer_that_couples_examples_is_refused_even_if_frozen():
    """A training forward runs it all the same."""
    trainer, (X, y) = make_trainer([Coupled(), Flatten(), Dense(CLASSES)]), data(20)
    for trainable in (True, False):
        trainer.model.layers[0].trainable = trainable
        with pytest.raises(
            ValueError, match=r"layer 0, Coupled: .* this one has min_batch_size=2, so no example has a"
        ):
            trainer.per_example_gradients(X, y)


def test_batch_norm_is_refused_unless_frozen():
    layers = [Residual(Conv2D(2, 3, padding=1), BatchNorm2D()), Flatten(), Dense(CLASSES)]
    trainer, (X, y) = make_trainer(layers), data(20)
    with pytest.raises(
        ValueError, match=r"layer 0, Residual: body.1, BatchNorm2D: .* computes with the statistics of a"
    ):
        trainer.per_example_gradients(X, y, layers=-1)
    layers[0].layers[1].trainable = False
    g = trainer.per_example_gradients(X, y)
    for i in (0, 17):
        assert np.array_equal(
            g["0.body.0.weight"][i], step_gradients(trainer, X[i : i + 1], y[i : i + 1])["0.body.0.weight"]
        )


def state(trainer):
    model = trainer.model
    kept = {name: array.tobytes() for name, array in model.state_dict().items()}
    grads = {name: param.grad.tobytes() for name, param in model.params.items()}
    return kept, grads, trainer.step, trainer.epoch, dict(trainer.history), trainer.interrupted


@pytest.mark.parametrize("net", NETS)
def test_the_trainer_is_unchanged(net):
    trainer, (X, y) = make_trainer(NETS[net]()), data(20)
    trainer.train_batch(X, y)
    before, state_of_rng = state(trainer), repr(np.random.get_state())  # noqa: NPY002
    trainer.per_example_gradients(X, y)
    trainer.per_example_gradients(X, y, reduce="norm", sample_weight=np.arange(20))
    assert state(trainer) == before and repr(np.random.get_state()) == state_of_rng  # noqa: NPY002


def test_the_trainer_is_unchanged_if_a_layer_fails():
    class Failing(Scaled):
        def backward(self, dy):
            super().backward(dy)
            raise RuntimeError("broken")

    trainer, (X, y) = make_trainer([Conv2D(3, 3), Scaled(), Failing(), Flatten(), Dense(CLASSES)]), data(20)
    before = state(trainer)
    with pytest.raises(RuntimeError, match="broken"):
        trainer.per_example_gradients(X, y)
    assert state(trainer) == before
    trainer.model.predict(X)  # and the model is free again


def test_python_losses_and_targets_of_any_shape_work():
    """The gradients of a custom loss, and of one over images."""
    X, y = data(20)

    def own(scores, y):
        losses, dscores = checked_loss(softmax_cross_entropy, scores, y)
        return losses, dscores

    native, python = make_trainer(make_lenet()), make_trainer(make_lenet(), loss=own)
    for name, g in native.per_example_gradients(X, y).items():
        assert np.array_equal(g, python.per_example_gradients(X, y)[name])
    trainer = make_trainer([Conv2D(2, 3, padding=1)], "float64", loss="mean_squared_error")
    x, targets = RNG.standard_normal((5, *SHAPE)), RNG.standard_normal((5, *SHAPE))
    g = trainer.per_example_gradients(x, targets)
    for i in range(5):
        alone = step_gradients(trainer, x[i : i + 1], targets[i : i + 1])
        assert all(np.array_equal(g[name][i], grad) for name, grad in alone.items())


def test_X_may_be_anything_that_fit_takes(tmp_path):
    trainer, (X, y) = make_trainer(make_lenet()), data(20)
    expected = trainer.per_example_gradients(X, y)
    mapped = np.memmap(tmp_path / "X", "u1", "w+", shape=X.shape)
    mapped[:] = X
    flat = X.reshape(20, -1)
    for other in (X.astype("f8"), X[::-1][::-1], flat, mapped, scipy.sparse.csr_array(flat.astype("f4")), X.tolist()):
        result = trainer.per_example_gradients(other, list(y))
        assert all(np.array_equal(result[name], g) for name, g in expected.items())
    none = trainer.per_example_gradients(X[:0], y[:0])
    assert none["1.weight"].shape == (0, 6, 2, 3, 3) and none["1.weight"].dtype == np.float32
    assert trainer.per_example_gradients(X[:0], y[:0], reduce="norm")["1.bias"].shape == (0,)


def test_dense_weights_are_views_and_all_arrays_are_writable():
    trainer, (X, y) = make_trainer(make_lenet()), data(3)
    g = trainer.per_example_gradients(X, y)
    assert g["1.weight"].transpose(0, 2, 3, 4, 1).flags.c_contiguous  # as the kernels read them
    assert g["7.weight"].transpose(0, 2, 1).flags.c_contiguous
    for array in g.values():
        array[...] = 0
    assert trainer.per_example_gradients(X, y)["7.weight"].any()


def test_nan_stays_with_its_example():
    trainer, (X, y) = make_trainer(make_lenet(), "float64"), data(20)
    X = X.astype("f8")
    trainer.model.params["1.weight"].value *= 1e6
    expected = trainer.per_example_gradients(X, y)
    X[3] *= 1e305
    with np.errstate(all="ignore"):
        g = trainer.per_example_gradients(X, y)
    others = np.arange(20) != 3
    for name, array in g.items():
        assert np.array_equal(array[others], expected[name][others])
    assert not all(np.isfinite(array[3]).all() for array in g.values())


def test_an_unbuilt_model_is_built_but_not_by_a_refused_call():
    X, y = data(10)
    trainer = Trainer(Sequential([Conv2D(3, 3), Flatten(), Dense(CLASSES)]), "softmax_cross_entropy", SGD(0.1))
    for wrong in ({"reduce": "sum"}, {"layers": 1}, {"layers": 7}, {"sample_weight": np.ones(3)}):
        with pytest.raises(ValueError):
            trainer.per_example_gradients(X, y, **wrong)
        assert trainer.model.network is None
    assert trainer.per_example_gradients(X, y)["0.bias"].shape == (10, 3)


@pytest.mark.parametrize("reduce", ["sum", True, 1, "NORM", np.linalg.norm, np.array(["norm", "x"])])
def test_another_reduction_is_refused(reduce):
    trainer, (X, y) = make_trainer(make_lenet()), data(3)
    with pytest.raises(ValueError, match="reduce: expected None or 'norm', got"):
        trainer.per_example_gradients(X, y, reduce=reduce)


def test_it_is_refused_within_a_step():
    class CallingCallback:
        lr = 0.1

        def step(self, params, lr):
            with pytest.raises(RuntimeError, match="per_example_gradients: a step is being done"):
                trainer.per_example_gradients(X, y)
            asked.append(lr)

    asked, (X, y) = [], data(20)
    trainer = Trainer(Sequential(make_lenet(), SHAPE), "softmax_cross_entropy", CallingCallback())
    trainer.train_batch(X, y)
    assert asked == [0.1]


def test_a_numpy_layer_draws_what_a_step_would_draw():
    """In a batch larger than the block size of kernels."""
    trainer, (X, y) = (
        make_trainer([Rescale(1 / 255), Doubled(), Noise(), Flatten(), Dense(CLASSES)], "float64"),
        data(300),
    )
    trainer.step = 3
    g = minidl.batch_sum(trainer.per_example_gradients(X, y))
    for name, grad in step_gradients(trainer, X, y).items():
        assert np.allclose(g[name] / 300, grad, 1e-12, 1e-14)


@pytest.mark.parametrize("layers", [[Dense(CLASSES)], [Scaled(), Dense(CLASSES)]], ids=["kernel", "NumPy"])
def test_squares_of_large_gradients_do_not_overflow(layers):
    trainer, (X, y) = make_trainer([Flatten(), *layers]), data(20)
    g = trainer.per_example_gradients(X * np.float32(1e30), y)["1.weight"].astype("f8")
    norms = trainer.per_example_gradients(X * np.float32(1e30), y, reduce="norm")["1.weight"]
    assert np.allclose(norms, np.sqrt((g * g).reshape(20, -1).sum(axis=1)), 1e-6) and norms.max() > 1e30


def test_callbacks_may_call_it_and_other_threads_may_not():
    X, y = data(40)
    seen = []

    class CallingCallback:
        def on_step_end(self, trainer, step, loss):
            seen.append(trainer.per_example_gradients(X[:5], y[:5], reduce="norm")["1.bias"])
            other = threading.Thread(target=self.refused, args=(trainer,))
            other.start()
            other.join()

        def refused(self, trainer):
            with pytest.raises(RuntimeError, match="per_example_gradients"):
                trainer.per_example_gradients(X, y)
            seen.append("refused")

    asked, plain = make_trainer(make_lenet()), make_trainer(make_lenet())
    asked.fit(X, y, batch_size=20, verbose=0, callbacks=[CallingCallback()])
    plain.fit(X, y, batch_size=20, verbose=0)
    assert len(seen) == 4 and seen[1] == "refused" and not np.array_equal(seen[0], seen[2])
    for name, value in plain.model.state_dict().items():
        assert np.array_equal(value, asked.model.state_dict()[name])
