"""Sequential.soft_update: values move a part of the way, with the bits of the formula; copies; every refusal."""

import copy
import threading
import tracemalloc

import numpy as np
import pytest

from minidl import Layer, Sequential, Trainer
from minidl.initializers import zeros
from minidl.layers import BatchNorm2D, Conv2D, Dense, Dropout, Flatten, Outputs, PReLU, ReLU, Residual, Tanh
from minidl.optimizers import Adam

RNG = np.random.default_rng(0)
X = RNG.normal(size=(16, 3, 8, 8))


class Counting(Layer):
    """A layer in NumPy with a parameter, a running mean, and a buffer of integers."""

    def build(self, in_shape):
        self.param("shift", (1,), zeros)
        self.buffer("mean", (1,), zeros)
        self.buffers["calls"] = np.zeros(1, np.int64)
        return in_shape

    def forward(self, x, training):
        if training:
            self.buffers["calls"] += 1
            self.buffers["mean"] += 0.1 * (x.mean() - self.buffers["mean"])
        return x + self.params["shift"].value

    def backward(self, dy):
        self.params["shift"].grad[...] = dy.sum()
        return dy


def make(*more, dtype="float32", seed=0):
    layers = [Conv2D(16, 3, padding=1), BatchNorm2D(), PReLU(), Residual(Conv2D(16, 3, padding=1), BatchNorm2D())]
    outputs = Outputs(policy=[Dense(4), *more], value=Dense(1))
    return Sequential([*layers, Flatten(), Dense(5), Tanh(), outputs], (3, 8, 8), seed, dtype)


def trained(*more, seed=1, **options):
    """Returns a model with running statistics, and a trainer of it."""
    model = make(*more, seed=seed, **options)
    trainer = Trainer(model, {"policy": "mean_squared_error", "value": "mean_squared_error"}, Adam(0.01))
    for _ in range(2):
        trainer.train_batch(X, {"policy": RNG.normal(size=(16, 4)), "value": RNG.normal(size=(16, 1))})
    return model, trainer


def bits(state):
    return {name: array.tobytes() for name, array in state.items()}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tau", [0.005, 0.5, 0.0, 1.0, 1])
def test_it_has_the_bits_of_the_formula(tau, dtype):
    """Of parameters and running statistics; predictions are those of the new weights, also by Winograd's algorithm."""
    target, (model, trainer) = make(dtype=dtype), trained(dtype=dtype)
    target.trainable = False  # as that of a target network may be
    target.predict(X)  # weights that were transformed before
    old, new, moments = target.state_dict(), model.state_dict(), trainer.steps().update.state["mean"].copy()
    target.soft_update(model, tau)
    rate = np.dtype(dtype).type(tau)
    expected = new if tau == 1 else {name: old[name] + rate * (new[name] - old[name]) for name in old}
    assert bits(target.state_dict()) == bits(expected)
    assert bits(model.state_dict()) == bits(new) and np.array_equal(trainer.steps().update.state["mean"], moments)
    loaded = make(dtype=dtype)
    loaded.load_state_dict(expected)
    assert bits(loaded.predict(X)) == bits(target.predict(X))
    assert not target.trainable


def test_the_optimizer_goes_on_with_its_state():
    (model, trainer), (other, _) = trained(), trained(seed=2)
    before = {name: array.copy() for name, array in trainer.steps().update.state.items()}
    model.soft_update(other)
    assert bits(trainer.steps().update.state) == bits(before) and trainer.step == 2
    assert bits(model.state_dict()) == bits(other.state_dict())


def test_buffers_of_layers_in_numpy():
    """Integers are copied, as an average of counts is none, but not by a tau of 0."""
    target, (model, _) = make(Counting()), trained(Counting())
    own, theirs = target.layers[-1].branches["policy"][-1], model.layers[-1].branches["policy"][-1]
    mean, shift = theirs.buffers["mean"].copy(), theirs.params["shift"].value.copy()
    target.soft_update(model, 0)
    assert own.buffers["calls"] == own.buffers["mean"] == 0
    target.soft_update(model, 0.5)
    assert own.buffers["calls"] == 2 and own.buffers["mean"] == np.float32(0.5) * mean
    assert own.params["shift"].value == np.float32(0.5) * shift != 0
    target.soft_update(model)
    assert own.buffers["mean"] == mean and bits(target.state_dict()) == bits(model.state_dict())


def test_many_updates_arrive_and_take_no_memory():
    target, (model, _) = make(), trained()
    target.soft_update(model, 0.5)
    tracemalloc.start()
    for _ in range(200):
        target.soft_update(model, 0.5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < target.network.parameters.values.nbytes / 2
    for name, value in model.state_dict().items():
        np.testing.assert_allclose(target.state_dict()[name], value, rtol=1e-5, atol=1e-30)


def dense(*layers, **options):
    return Sequential([Dense(4), *layers], input_shape=(3,), **options)


REFUSED = {
    "class": (
        dense(ReLU()),
        r"^other: expected the layers of this model, layer 1, Tanh, got layer 1, ReLU$",
    ),
    "units": (
        Sequential([Dense(5), Tanh()], input_shape=(3,)),
        r"layer 0, Dense \(weight float32 \(4, 3\), bias float32 \(4,\)\), got layer 0, Dense \(weight",
    ),
    "input": (Sequential([Dense(4), Tanh()], input_shape=(2,)), r"got layer 0, Dense \(weight float32 \(4, 2\)"),
    "bias": (Sequential([Dense(4, use_bias=False), Tanh()], (3,)), r"got layer 0, Dense \(weight float32 \(4, 3\)\)$"),
    "dtype": (dense(Tanh(), dtype="float64"), r"got layer 0, Dense \(weight float64 \(4, 3\), bias float64 \(4,\)\)$"),
    "more": (dense(Tanh(), Tanh()), r"this model, no further layer, got layer 2, Tanh$"),
    "fewer": (dense(), r"this model, layer 1, Tanh, got no further layer$"),
    "unbuilt": (Sequential([Dense(4), Tanh()]), r"^other: expected a built model: give it an input_shape, or fit it"),
}


@pytest.mark.parametrize("other, message", REFUSED.values(), ids=REFUSED)
def test_other_models_are_refused(other, message):
    model = dense(Tanh())
    before = bits(model.state_dict())
    with pytest.raises(ValueError, match=message):
        model.soft_update(other)
    assert bits(model.state_dict()) == before


def test_outputs_in_another_order_are_refused():
    """They would get the weights of each other; so would a layer in a container those of one outside."""
    model, other = [
        Sequential([Outputs(**{name: [Dense(1)] for name in names})], input_shape=(2,)) for names in ("ab", "ba")
    ]
    before = bits(model.state_dict())
    with pytest.raises(ValueError, match=r"^other: expected the tensors of this model, '0.a.0.weight', got '0.b.0"):
        model.soft_update(other)
    with pytest.raises(ValueError, match=r"^other: expected the tensors of this model, '0.weight', got '0.+0.weight'"):
        Sequential([Dense(6), ReLU()], (6,)).soft_update(Sequential([Residual(Dense(6), ReLU())], (6,)))
    assert bits(model.state_dict()) == before


def test_other_arguments_are_refused():
    model, other = dense(Tanh()), dense(Tanh(), seed=1)
    before = bits(model.state_dict())
    for tau in (-0.1, 1.1, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"^tau: expected a (finite )?number"):
            model.soft_update(other, tau)
    for tau in ("a", None, [0.5], 1j):
        with pytest.raises(TypeError, match=r"^tau: expected a number"):
            model.soft_update(other, tau)
    for wrong in (None, other.state_dict(), other.layers, Trainer(other, "mean_squared_error", Adam(0.1))):
        with pytest.raises(TypeError, match=r"^other: expected a Sequential, got"):
            model.soft_update(wrong)
    with pytest.raises(ValueError, match=r"^other: expected another model, got this one$"):
        model.soft_update(model)
    with pytest.raises(ValueError, match=r"^the model is not built yet"):
        Sequential([Dense(4), Tanh()]).soft_update(other)
    assert bits(model.state_dict()) == before


def test_a_target_may_have_another_dropout_rate():
    target, model = dense(Dropout(0.0)), dense(Dropout(0.5), seed=1)
    target.soft_update(model)
    assert bits(target.state_dict()) == bits(model.state_dict())


def in_thread(function):
    errors = []

    def run():
        try:
            function()
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return errors


def test_models_in_use_are_refused():
    """The other model may predict meanwhile, and this one may be updated from inside a fit of the other."""
    model, other = dense(), dense(seed=1)
    for guard, refused in ((model.usage.reading, 1), (model.usage.writing, 1), (other.usage.writing, 1)):
        with guard("work"):
            assert len(in_thread(lambda: model.soft_update(other))) == refused
    with other.usage.reading("work"):
        assert in_thread(lambda: model.soft_update(other)) == []

    class Follow:
        def on_step_end(self, trainer, step, loss):
            model.soft_update(trainer.model, 0.5)

    start, first = copy.deepcopy(model).state_dict(), other.state_dict()
    Trainer(other, "mean_squared_error", Adam(0.01)).fit(
        np.ones((4, 3)), np.ones((4, 4)), batch_size=4, callbacks=[Follow()], verbose=0
    )
    for name, value in model.state_dict().items():
        half = np.float32(0.5)
        assert value.tobytes() == (start[name] + half * (other.state_dict()[name] - start[name])).tobytes()
        assert not np.array_equal(first[name], other.state_dict()[name])
