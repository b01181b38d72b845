"""Steps from gradients of a user's own, `Trainer.backward_step`: the bits of train_batch, and every refusal."""

import threading

import numpy as np
import pytest
from threaded_ranks import run_ranks

import minidl
from minidl import Layer, Sequential, Trainer
from minidl.layers import BatchNorm1D, Conv2D, Dense, Dropout, Flatten, Outputs, ReLU, Tanh
from minidl.losses import softmax_cross_entropy
from minidl.optimizers import SGD, Adam
from minidl.schedules import Exponential

RNG = np.random.default_rng(0)
N = 32  # a power of two: the division by it is exact
X, Y = RNG.normal(size=(N, 1, 6, 6)), RNG.integers(0, 3, N)


class Twice(Layer):
    """A layer in NumPy."""

    def forward(self, x, training):
        return 2 * x

    def backward(self, dy):
        return 2 * dy


class Plain:
    """An optimizer in NumPy, which can be told to fail in the middle of a step."""

    def __init__(self, lr=0.25):
        self.lr, self.fails = lr, False

    def step(self, params, lr):
        for param in params.values():
            param.value -= lr * param.grad
            if self.fails:
                raise KeyError("no")


def make(dtype="float64", optimizer=Adam, layer=ReLU, **options):
    layers = [Conv2D(3, 3), layer(), Flatten(), Dense(8), BatchNorm1D(), Tanh(), Dense(3)]
    model = Sequential(layers, input_shape=(1, 6, 6), dtype=dtype)
    return Trainer(model, "softmax_cross_entropy", optimizer(0.01), **options)


def gradient(trainer, X=X, y=Y):
    """Returns the gradient of the mean loss in the scores of a new forward."""
    return softmax_cross_entropy(trainer.model.forward(X, training=True), y)[1] / len(X)


def state(trainer):
    grads = {f"gradient of {name}": param.grad.copy() for name, param in trainer.model.params.items()}
    return trainer.model.state_dict() | grads | {"step": trainer.step}


def different(one, other):
    return [name for name in one if not np.array_equal(one[name], other[name])]


def parameters(trainer):
    return b"".join(param.value.tobytes() for param in trainer.model.params.values())


CASES = {
    "Adam": {},
    "clipped": {"clip_norm": 0.3, "clip_value": 0.1},
    "schedule": {"optimizer": lambda lr: SGD(Exponential(lr, 0.5), momentum=0.9)},
    "NumPy optimizer": {"optimizer": Plain},
    "NumPy layer": {"layer": Twice},
    "both, clipped": {"optimizer": Plain, "layer": Twice, "clip_norm": 0.3},
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_it_has_the_bits_of_train_batch(options, dtype):
    """With layers that are frozen, have another rate, and are thawed again; mixed with train_batch."""
    batch, own, mixed = (make(dtype, **options) for _ in range(3))
    rates = options.get("optimizer") is not Plain
    for step in range(6):
        for trainer in (batch, own, mixed):
            trainer.model[0].trainable = step not in (2, 3)
            trainer.model[3].lr_mult = 0.5 if rates and step > 3 else 1
        batch.train_batch(X, Y)
        own.backward_step(gradient(own))
        if step % 2:
            mixed.train_batch(X, Y)
        else:
            mixed.backward_step(gradient(mixed))
        assert different(state(batch), state(own)) == different(state(batch), state(mixed)) == []
    assert own.step == 6


def test_the_sum_is_not_divided_and_other_batches_agree_to_rounding():
    batch, own, whole = (make(optimizer=lambda lr: SGD(lr)) for _ in range(3))
    rows = slice(0, 10)
    batch.train_batch(X[rows], Y[rows])
    own.backward_step(gradient(own, X[rows], Y[rows]))
    whole.backward_step(10 * gradient(whole, X[rows], Y[rows]))
    for name, value in state(batch).items():
        np.testing.assert_allclose(state(own)[name], value, rtol=1e-12, atol=1e-15)
    for name, param in whole.model.params.items():
        np.testing.assert_allclose(param.grad, 10 * batch.model.params[name].grad, rtol=1e-12, atol=1e-14)


def test_threads_change_no_bit():
    found, before = [], minidl.get_num_threads()
    try:
        for threads in (1, 2, 3):
            minidl.set_num_threads(threads)
            trainer = make("float32")
            for _ in range(3):
                trainer.backward_step(gradient(trainer))
            found.append(state(trainer))
    finally:
        minidl.set_num_threads(before)
    assert different(found[0], found[1]) == different(found[0], found[2]) == []


def with_outputs(**options):
    outputs = Outputs(policy=Dense(2), value=[Dense(3), ReLU(), Dense(1)], aside=[Dense(4), BatchNorm1D(), Dense(1)])
    model = Sequential([Dense(6), Tanh(), outputs], input_shape=(4,), dtype="float64")
    losses = {"policy": "softmax_cross_entropy", "value": "mean_squared_error"}
    return Trainer(model, losses, Adam(0.01, weight_decay=0.1), **options)


def test_several_outputs():
    """Gradients come by name; an output without a loss stays as it is, and takes none."""
    x, labels, values = RNG.normal(size=(16, 4)), RNG.integers(0, 2, 16), RNG.normal(size=(16, 1))
    batch, own = with_outputs(loss_weights={"value": 0.25}), with_outputs()
    before = own.model.params["2.aside.0.weight"].value.copy()
    for _ in range(3):
        batch.train_batch(x, {"policy": labels, "value": values})
        scores = own.model.forward(x, training=True)
        policy = softmax_cross_entropy(scores["policy"], labels)[1] / 16
        own.backward_step({"policy": policy, "value": 0.25 * 2 * (scores["value"] - values) / 16})
    params = {name: param.value for name, param in batch.model.params.items()}
    assert different(params, {name: param.value for name, param in own.model.params.items()}) == []
    np.testing.assert_array_equal(own.model.params["2.aside.0.weight"].value, before)
    own.model.forward(x, training=True)
    with pytest.raises(ValueError, match=r"^dscores: expected outputs that have a loss in this trainer, got 'aside'$"):
        own.backward_step({"aside": np.ones((16, 1))})
    with pytest.raises(TypeError, match=r"^dscores: expected a dict of arrays for the outputs policy, value, aside"):
        own.backward_step(np.ones((16, 4)))
    own.backward_step({"value": np.ones((16, 1))})  # a missing one is zero
    assert own.model.params["2.policy.0.weight"].grad.tolist() == np.zeros((2, 6)).tolist()
    assert own.step == 4


def test_dropout_is_that_of_the_forward():
    model = Sequential([Dropout(0.5), Dense(1)], input_shape=(8,), dtype="float64")
    trainer = Trainer(model, "mean_squared_error", SGD(1.0))
    for _ in range(3):
        weight = model.params["1.weight"].value.copy()
        scores = model.forward(np.ones((1, 8)), training=True)
        trainer.backward_step([[1.0]])
        dropped = model.params["1.weight"].grad[0]
        assert set(dropped) <= {0.0, 2.0}
        bias = model.params["1.bias"].value + 1
        np.testing.assert_allclose(scores[0], weight[0] @ dropped + bias)


REFUSED = {
    "shape": (lambda d: d[:5], ValueError, r"^dscores: expected shape \(32, 3\), got \(5, 3\)$"),
    "one number": (lambda d: 1.0, ValueError, r"^dscores: expected shape \(32, 3\), got \(\)$"),
    "None": (lambda d: None, TypeError, "^dscores: expected an array, got None$"),
    "words": (lambda d: np.full(d.shape, "a"), TypeError, "^dscores: expected real numbers, got dtype <U1$"),
    "complex": (lambda d: d * 1j, TypeError, "^dscores: expected real numbers, got dtype complex128$"),
    "mask": (lambda d: np.ma.masked_array(d), TypeError, "^dscores: expected an array without a mask"),
    "too large": (lambda d: d + 1e300, ValueError, "^dscores: expected values that float32 can hold"),
    "NaN": (lambda d: d * np.nan, FloatingPointError, "^dscores: expected finite gradients, got NaN or infinity"),
    "infinite": (lambda d: d - np.inf, FloatingPointError, "^dscores: expected finite gradients, got NaN or infinity"),
}


@pytest.mark.parametrize("change, error, message", REFUSED.values(), ids=REFUSED)
def test_refused_gradients_change_nothing(change, error, message):
    """The forward stays: another gradient can follow."""
    trainer, other = make("float32"), make("float32")
    scale, before = gradient(trainer), state(trainer)
    with pytest.raises(error, match=message):
        trainer.backward_step(change(scale.astype("float64")))
    assert different(before, state(trainer)) == []
    trainer.backward_step(scale)
    other.backward_step(gradient(other))
    assert different(state(trainer), state(other)) == []


def test_an_infinite_gradient_changes_no_weight():
    trainer = make("float32")
    scale, before = gradient(trainer), parameters(trainer)
    with pytest.raises(FloatingPointError, match=r"^step 0: the gradient of .*0\.weight.* is NaN or infinite\. The w"):
        trainer.backward_step(np.full_like(scale, 3e38))
    assert parameters(trainer) == before and trainer.step == 0
    trainer.backward_step(gradient(trainer))
    assert trainer.step == 1


def test_a_step_needs_a_forward_of_its_own():
    trainer, needed = make(), r"^backward_step: expected a forward\(X, training=True\) before it$"
    with pytest.raises(RuntimeError, match=needed):
        trainer.backward_step(np.ones((N, 3)))
    scale = gradient(trainer)
    trainer.model.backward(scale)  # gradients in X may be asked for before the step
    trainer.backward_step(scale)
    before = state(trainer)
    with pytest.raises(RuntimeError, match=needed):
        trainer.backward_step(scale)
    trainer.model.forward(X)
    with pytest.raises(RuntimeError, match=needed):
        trainer.backward_step(scale)
    assert different(before, state(trainer)) == []


CHANGES = {
    "train_batch": lambda t: t.train_batch(X[:8], Y[:8]),
    "fit": lambda t: t.fit(X, Y, epochs=1, batch_size=8, verbose=0),
    "load_state_dict": lambda t: t.model.load_state_dict(t.model.state_dict()),
    "soft_update": lambda t: t.model.soft_update(make().model, 0.5),
    "a resumed checkpoint": lambda t: Trainer.resume(CHECKPOINT[0], model=t.model),
}
CHECKPOINT = []


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_weights_that_changed_since_the_forward_are_refused(change, repeated, tmp_path):
    """The gradient would be neither that before the change nor that after it. A backward is refused, too."""
    trainer = make()
    for _ in range(2 if repeated else 0):
        trainer.train_batch(X[:8], Y[:8])
    CHECKPOINT[:] = [tmp_path / "checkpoint"]
    trainer.save_checkpoint(CHECKPOINT[0])
    scale = gradient(trainer)
    change(trainer)
    before = state(trainer)
    for refused in (trainer.backward_step, trainer.model.backward):
        with pytest.raises(RuntimeError, match=r"^backward(_step)?: expected the weights of the forward, but a step"):
            refused(scale)
    assert different(before, state(trainer)) == []
    trainer.backward_step(gradient(trainer))


def test_layers_that_were_frozen_since_the_forward_are_refused():
    trainer = make()
    scale = gradient(trainer)
    trainer.model[0].trainable = False
    before = state(trainer)
    with pytest.raises(
        RuntimeError, match=r"^backward_step: expected the trainable, lr_mult and decay_mult of all layers as in"
    ):
        trainer.backward_step(scale)
    assert different(before, state(trainer)) == []
    trainer.backward_step(gradient(trainer))
    trainer.model.trainable = False
    with pytest.raises(ValueError, match=r"^model: expected a layer that is trainable, all are frozen$"):
        trainer.backward_step(scale)


def test_what_it_cannot_do_is_refused():
    unbuilt = Trainer(Sequential([Dense(1)]), "mean_squared_error", SGD(0.1))
    with pytest.raises(ValueError, match=r"^the model is not built yet"):
        unbuilt.backward_step([[1.0]])
    trainer = make()
    trainer.model.forward(X[:0], training=True)
    with pytest.raises(ValueError, match=r"^dscores: expected gradients of at least one example, got none$"):
        trainer.backward_step(np.ones((0, 3)))
    trainer.per_example_clip_norm = 1.0
    with pytest.raises(ValueError, match=r"^per_example_clip_norm: expected None for backward_step, .* got 1.0$"):
        trainer.backward_step(np.ones((0, 3)))
    assert trainer.step == 0


def test_several_ranks_are_refused():
    def process(comm):
        trainer = make(distributed=comm)
        scale, before = gradient(trainer), parameters(trainer)
        with pytest.raises(
            ValueError, match=r"^distributed: expected one process for backward_step, got 2: use train_b"
        ):
            trainer.backward_step(scale)
        return parameters(trainer) == before

    assert run_ranks(2, process)[0] == [True, True]


def test_an_optimizer_that_fails_changes_nothing():
    trainer = make(optimizer=Plain)
    scale, before = gradient(trainer), parameters(trainer)
    trainer.optimizer.fails = True
    with pytest.raises(KeyError):
        trainer.backward_step(scale)
    assert parameters(trainer) == before and trainer.step == 0
    trainer.check_between_steps("a step is over")


def test_other_threads_and_callbacks_are_refused():
    """A model that another thread uses; and one that trains: a step inside a fit would follow other gradients."""
    trainer, errors = make(), []
    scale = gradient(trainer)

    def step():
        try:
            trainer.backward_step(scale)
        except RuntimeError as error:
            errors.append(str(error))

    with trainer.model.usage.reading("predict"):
        thread = threading.Thread(target=step)
        thread.start()
        thread.join()

    class InFit:
        def on_step_end(self, trainer, step_number, loss):
            step()

    trainer.fit(X, Y, epochs=1, batch_size=N, callbacks=[InFit()], verbose=0)
    predicting, training = errors
    assert predicting.startswith("backward_step: this model is predicting just now")
    assert training.startswith("backward_step: this model is training already, in fit")
    assert trainer.step == 1


def test_a_checkpoint_continues_with_the_same_bits(tmp_path):
    whole, path = make("float32"), tmp_path / "half.safetensors"
    for step in range(6):
        if step == 3:
            whole.save_checkpoint(path)
        whole.backward_step(gradient(whole))
    resumed = Trainer.resume(path)
    for _ in range(3):
        resumed.backward_step(gradient(resumed))
    assert different(state(whole), state(resumed)) == []


@pytest.mark.oracle
def test_an_objective_of_torch():
    """The clipped surrogate of two outputs, whose gradients PyTorch computes, and its Adam."""
    import torch

    x, action = torch.tensor(RNG.normal(size=(24, 4))), torch.tensor(RNG.integers(0, 2, 24))
    before, gain = torch.tensor(RNG.normal(size=24) / 5 - 0.7), torch.tensor(RNG.normal(size=24))
    own = Trainer(
        Sequential([Dense(6), Tanh(), Outputs(policy=Dense(2), value=Dense(1))], (4,), dtype="float64"),
        {"policy": "mean_squared_error", "value": "mean_squared_error"},
        Adam(0.01),
        clip_norm=0.5,
    )
    tensors = {name: torch.tensor(value, requires_grad=True) for name, value in own.model.state_dict().items()}
    optimizer = torch.optim.Adam(tensors.values(), 0.01)

    def objective(policy, value):
        ratio = (torch.log_softmax(policy, 1)[torch.arange(24), action] - before).exp()
        surrogate = torch.minimum(ratio * gain, ratio.clip(0.8, 1.2) * gain)
        return -surrogate.mean() + 0.5 * ((value[:, 0] - gain) ** 2).mean()

    for _ in range(5):
        hidden = torch.tanh(x @ tensors["0.weight"].T + tensors["0.bias"])
        loss = objective(
            *(hidden @ tensors[f"2.{n}.0.weight"].T + tensors[f"2.{n}.0.bias"] for n in ("policy", "value"))
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(tensors.values(), 0.5)
        optimizer.step()
        scores = {n: torch.tensor(s, requires_grad=True) for n, s in own.model.forward(x, training=True).items()}
        objective(**scores).backward()
        own.backward_step({name: score.grad for name, score in scores.items()})
        for name, value in own.model.state_dict().items():
            np.testing.assert_allclose(value, tensors[name].detach(), rtol=1e-9, atol=1e-12)
