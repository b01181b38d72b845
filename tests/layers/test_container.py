"""Containers: Residual, Parallel, Block and nested Sequentials as parts of a model."""

import copy
import pickle

import numpy as np
import pytest

from minidl import Layer, Sequential, Trainer
from minidl.initializers import ones
from minidl.layers import (
    BatchNorm1D,
    BatchNorm2D,
    Block,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    GlobalAvgPool2D,
    Parallel,
    ReLU,
    Rescale,
    Reshape,
    Residual,
    Sigmoid,
    Upsample2D,
)
from minidl.optimizers import SGD
from minidl.testing import check_layer

RNG = np.random.default_rng(5)
SHAPE = (2, 6, 6)
X, Y = RNG.standard_normal((40, *SHAPE)), RNG.integers(0, 3, 40)


class Double(Layer):
    """A NumPy layer, so that the surrounding layers cannot be one plan."""

    def forward(self, x, training):
        return x * 2

    def backward(self, dy):
        return dy * 2


class Gain(Layer):
    """A NumPy layer with a parameter and a buffer."""

    def build(self, in_shape):
        self.gain, self.seen = self.param("gain", in_shape, ones), self.buffer("seen", (1,), ones)
        return in_shape

    def forward(self, x, training):
        if training:
            self.x, self.seen[...] = x, self.seen + 1
        return x * self.gain.value

    def backward(self, dy):
        self.gain.grad = (dy * self.x).sum(axis=0)
        return dy * self.gain.value


def blocks(extra=()):
    def more():
        return [cls() for cls in extra]

    pooled = [GlobalAvgPool2D(), Reshape((-1, 1, 1))]
    return [
        Conv2D(4, 3, padding=1),
        Residual(
            Conv2D(4, 3, padding=1, use_bias=False), BatchNorm2D(), *[cls() for cls in extra], ReLU(), Conv2D(4, 1)
        ),
        Residual(Conv2D(6, 3, stride=2, padding=1), shortcut=[Conv2D(6, 1, stride=2), BatchNorm2D()]),
        Parallel(Conv2D(2, 1), [], [ReLU(), *more(), Conv2D(3, 3, padding=1)]),
        Parallel([ReLU(), *more()], [], [*pooled, Conv2D(11, 1), Sigmoid()], join="multiply"),
        Residual(Residual(ReLU(), Dropout(0.3)), Parallel([], Conv2D(11, 1), join="add")),
        *[GlobalAvgPool2D(), Dense(3)],
    ]


def trained(layers, threads=None, dtype="float32", X=X, **options):
    model = Sequential(layers, X.shape[1:], dtype=dtype)
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.005, momentum=0.9), num_threads=threads)
    trainer.fit(X.astype(dtype), Y, epochs=3, batch_size=18, verbose=0, **options)
    return model


# ---- names and shapes
def test_parameters_are_named_by_branch_and_index():
    model = Sequential(blocks(), SHAPE)
    names = [name for name in model.params if name.startswith(("1.", "2.", "3."))]
    assert names == [
        *("1.body.0.weight", "1.body.1.weight", "1.body.1.bias", "1.body.3.weight", "1.body.3.bias"),
        *("2.body.0.weight", "2.body.0.bias", "2.shortcut.0.weight", "2.shortcut.0.bias"),
        *("2.shortcut.1.weight", "2.shortcut.1.bias"),
        *("3.branches.0.0.weight", "3.branches.0.0.bias", "3.branches.2.1.weight", "3.branches.2.1.bias"),
    ]
    assert "2.shortcut.1.running_var" in model.state_dict()
    assert model.layers[3].out_shape == (2 + 6 + 3, 3, 3)
    assert model.params["1.body.0.weight"] is model.layers[1].layers[0].params["weight"]


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (Residual(Conv2D(5, 1)), r"layer 0, Residual.*body returns \(5, 6, 6\), shortcut returns \(2, 6, 6\)"),
        (Parallel(Conv2D(5, 1), Conv2D(5, 3)), r"layer 0, Parallel.*branches.0 returns .*branches.1 returns"),
        (Parallel(Conv2D(5, 1), Flatten()), "layer 0, Parallel.*that differ in axis 0 only"),
        (Residual(ReLU(), Conv2D(2, 9)), "layer 0, Residual.*body.1, Conv2D"),
        (Parallel([], [ReLU(), Block(Conv2D(2, 9))]), r"layer 0, Parallel.*branches.1.1, Block: 0, Conv2D: "),
    ],
)
def test_incompatible_layers_are_named_by_path(layer, message):
    for _ in range(2):  # refused the first time, not damaged
        with pytest.raises(ValueError, match=message):
            Sequential([layer], SHAPE)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Residual(3), TypeError, "layers: expected Layer objects, got 3 at index 0"),
        (lambda: Residual(ReLU(), shortcut=[ReLU(), "x"]), TypeError, "shortcut: .*got 'x' at index 1"),
        (lambda: Parallel([ReLU(), None]), TypeError, r"branches\[0\]: .*got None at index 1"),
        (lambda: Parallel(join="add"), ValueError, "branches: expected at least one"),
        (
            lambda: Parallel(ReLU(), join="sum"),
            ValueError,
            "join: expected 'concat', 'add', .* or 'power', got 'sum'",
        ),
        (lambda: Block(), ValueError, "layers: expected at least one"),
        (lambda: Residual(ReLU), TypeError, "layers: expected Layer objects, got <class"),
    ],
)
def test_invalid_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_layer_may_be_used_only_once():
    relu = ReLU()
    with pytest.raises(ValueError, match="layer 1, ReLU: appears twice"):
        Sequential([Residual(relu), relu], SHAPE)
    with pytest.raises(ValueError, match="appears twice"):
        Sequential([Parallel(relu, [relu])], SHAPE)
    Sequential([Residual(relu)], SHAPE)
    with pytest.raises(ValueError, match="belongs to another model"):
        Sequential([Residual(relu)], SHAPE)


# ---- arithmetic
def test_an_identity_next_to_an_empty_branch():
    x = X[:5].astype("f4")
    for layer, times in ((Residual(), 2), (Parallel([]), 1), (Parallel([], [], [], join="add"), 3)):
        model = Sequential([layer], SHAPE)
        assert np.array_equal(model.predict(x), times * x)
        model.forward(x, training=True)
        assert np.array_equal(model.backward(x), times * x)


def test_concat_keeps_the_order_of_branches():
    model = Sequential([Parallel([], ReLU(), Double())], SHAPE)
    native = Sequential([Parallel([], ReLU())], SHAPE)
    assert np.array_equal(model.predict(X)[:, :4], native.predict(X))
    assert np.array_equal(native.predict(X)[:, 2:], np.maximum(X, 0).astype("f4"))


def test_a_numpy_layer_does_not_change_its_surroundings():
    """The same net as one plan, and with branches that join in NumPy: equal to rounding, dropout masks included."""

    class Identity(Layer):
        def forward(self, x, training):
            return x.copy()

        def backward(self, dy):
            return dy.copy()

    native, mixed = (trained(blocks([cls]), dtype="float64") for cls in (lambda: Rescale(1.0), Identity))
    assert native.network.native and not mixed.network.native
    for (name, a), (_, b) in zip(native.state_dict().items(), mixed.state_dict().items(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("extra", [(), (Double, Gain)])
def test_number_of_threads_changes_no_bit(extra, dtype):
    alone, *others = (trained(blocks(extra), n, dtype).state_dict() for n in (1, 2, 3, 8))
    for other in others:
        assert all(np.array_equal(alone[name], other[name]) for name in alone)


def test_containers_pass_check_layer():
    check_layer(Residual(Conv2D(2, 3, padding=1), ReLU()), SHAPE)
    check_layer(Parallel(Gain(), [Double(), Conv2D(2, 1)]), (2, 3, 3))
    check_layer(Residual(BatchNorm2D(), Gain()), (2, 3, 3), couples_examples=True)
    gate = [GlobalAvgPool2D(), Reshape((-1, 1, 1)), Gain()]
    check_layer(Parallel(Gain(), gate, [ReLU(), Conv2D(2, 1)], join="multiply"), (2, 3, 3))
    check_layer(Parallel(gate, [], join="multiply"), (2, 3, 3))
    check_layer(Parallel([], Upsample2D(4), join="multiply"), (2, 1, 1))  # the gate is a branch's input


def test_batch_statistics_in_a_branch_need_two_values():
    model = Sequential([Flatten(), Dense(2), Residual(Block(Dense(2)))], SHAPE)
    model.forward(X[:1], training=True)
    pooled = Sequential([GlobalAvgPool2D(), Dense(2)], SHAPE)
    assert pooled.predict(X).shape == (40, 2)
    one_pixel = Sequential([Residual(BatchNorm2D())], (2, 1, 1))
    with pytest.raises(ValueError, match=r"layer 0, Residual: body.0, BatchNorm2D: expected at least 2 examples"):
        one_pixel.forward(np.zeros((1, 2, 1, 1)), training=True)


# ---- copies and files
@pytest.mark.parametrize("extra", [(), (Double, Gain)])
def test_copies_and_files_predict_the_same(extra, tmp_path):
    model = trained(blocks(extra))
    model.save(tmp_path / "m.safetensors")
    loaded = Sequential.load(tmp_path / "m.safetensors", custom_objects={cls.__name__: cls for cls in (Double, Gain)})
    for other in (loaded, model[:], copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert np.isfinite(model.predict(X)).all() and np.array_equal(other.predict(X), model.predict(X))
        assert repr(other) == repr(model)


@pytest.mark.parametrize("at", [1, 2, 4, 7])
def test_resuming_gives_the_same_bits(at, tmp_path):
    uninterrupted = trained(blocks([Gain]))

    class Stopper:
        def on_step_end(self, trainer, step, loss):
            if step == at:
                raise KeyboardInterrupt

    model = Sequential(blocks([Gain]), SHAPE)
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.005, momentum=0.9))
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(X.astype("f4"), Y, epochs=3, batch_size=18, verbose=0, callbacks=[Stopper()])
    trainer.save_checkpoint(tmp_path / "c.safetensors")
    again = Trainer.resume(tmp_path / "c.safetensors", custom_objects={"Gain": Gain})
    again.fit(X.astype("f4"), Y, epochs=3, batch_size=18, verbose=0)
    expected, result = uninterrupted.state_dict(), again.model.state_dict()
    assert all(np.array_equal(expected[name], result[name]) for name in expected)


# ---- nested Sequentials
def test_nested_sequential():
    inner = Sequential([Conv2D(2, 3, padding=1), ReLU()])
    model = Sequential([inner, Residual(inner), Parallel(inner, [inner, Sequential([ReLU()])]), Flatten()], SHAPE)
    assert isinstance(model.layers[0], Block) and model.output_shape == (4 * 36,)
    assert [name for name in model.params if name.endswith("weight")] == [
        *("0.0.weight", "1.body.0.0.weight", "2.branches.0.0.0.weight", "2.branches.1.0.0.weight")
    ]
    assert inner.network is None  # its layers were copied


def test_a_built_sequential_is_nested_with_its_weights():
    base = trained([Conv2D(3, 3), BatchNorm2D(), ReLU(), GlobalAvgPool2D(), Dense(3)])[:-1]
    model = Sequential([base, Dense(5)], SHAPE)
    assert np.array_equal(model[:1].predict(X), base.predict(X))
    assert not np.shares_memory(model.params["0.0.weight"].value, base.params["0.weight"].value)
    for late in (Sequential([base, Dense(5)]), copy.deepcopy(Sequential([base, Dense(5)])), Sequential([base])[:]):
        late.build(SHAPE)
        assert np.array_equal(late[:1].predict(X), base.predict(X))
    again = Sequential([base, Dense(5)])
    again.build(SHAPE)
    again.discard()
    again.build(SHAPE)
    assert np.array_equal(again[:1].predict(X), base.predict(X))
    with pytest.raises(ValueError, match=r"layer 0, Block.*'weight'.*expected shape"):
        Sequential([base], (5, 6, 6))


def test_nested_weights_take_the_outer_dtype():
    base = trained([Conv2D(3, 3), ReLU(), Flatten(), Dense(3)])
    model = Sequential([base], SHAPE, dtype="float64")
    np.testing.assert_array_equal(model.params["0.0.weight"].value, base.params["0.weight"].value)
    assert model.params["0.0.weight"].value.dtype == np.float64


# ---- limits
def test_layers_nest_to_the_depth_that_a_file_can_hold(tmp_path):
    def nested(levels):
        layer = Dense(3)
        for _ in range(levels):
            layer = Residual(layer)
        return layer

    model = Sequential([nested(16)], (3,))
    model.save(tmp_path / "m.safetensors")
    assert np.array_equal(
        Sequential.load(tmp_path / "m.safetensors").predict(np.ones((1, 3))), model.predict(np.ones((1, 3)))
    )
    with pytest.raises(ValueError, match="layer 0, Residual: expected layers nested at most 16 deep, got 17"):
        Sequential([nested(17)], (3,))


def test_many_branches():
    model = Sequential([Parallel(*(Dense(1) for _ in range(256)))], (3,))
    assert model.predict(np.ones((2, 3))).shape == (2, 256)
    with pytest.raises(ValueError, match="branches: expected at most 256, got 257"):
        Parallel(*(ReLU() for _ in range(257)))


@pytest.mark.parametrize(
    ("layer", "name"), [(Parallel(ReLU()), "join"), (Residual(ReLU()), "layers"), (Block(ReLU()), "layers")]
)
def test_arguments_are_read_only(layer, name):
    with pytest.raises(AttributeError):
        setattr(layer, name, "add")


def test_a_class_is_not_a_layer():
    for kind in (Sequential, Dense):
        with pytest.raises(TypeError, match="layers: expected Layer objects, got <class"):
            Sequential([kind], (3,))


def test_weights_that_overflow_the_outer_dtype_are_refused():
    base = Sequential([Dense(2)], (3,), dtype="float64")
    base.params["0.weight"].value[0, 0] = 1e300
    with pytest.raises(ValueError, match=r"layer 0, Block.*'weight'.*float32 can hold"):
        Sequential([base], (3,))


def test_it_needs_the_largest_minimum_batch_of_its_layers():
    layer = Residual(Dense(3), BatchNorm1D())
    Sequential([Dense(3), layer], (3,))
    assert layer.min_batch_size == 2
    check_layer(Residual(Dense(3), BatchNorm1D()), (3,), couples_examples=True)
