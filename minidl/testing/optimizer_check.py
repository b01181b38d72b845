"""check_optimizer: a test of the contract of optimizers, for built-in ones and your own."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from minidl.layers.dense import Dense
from minidl.layers.param import Param
from minidl.losses import Loss
from minidl.optimizers.base import Optimizer, rate_at
from minidl.schedules import Exponential
from minidl.sequential import Sequential
from minidl.trainer import Trainer
from minidl.training.checked_attributes import optimizer_of
from minidl.training.checkpoint_content import pack
from minidl.training.native_update import has_update
from minidl.utils.arrays import Array
from minidl.utils.constructors import construct, constructor_arguments, parameters
from minidl.utils.validation import check_bool, check_count

SHAPES = {"0.weight": (4, 3), "0.bias": (4,), "1.weight": (4, 3)}  # two of one shape: a state by shape would mix them
RATES = (0.1, 0.02, 0.2, 0.05)  # of steps by hand
SCHEDULE = Exponential(0.1, 0.5)  # of steps of a Trainer
DESCENT = 100, 0.01  # steps along one slope, and their rate
RTOL, ATOL = 1e-9, 1e-12


def check_optimizer(optimizer: Any, couples_params: bool = False, seed: int = 0) -> None:
    """Checks the contract of an optimizer; raises AssertionError naming what is wrong.

    The optimizer itself is not changed: copies of it make steps by hand and in a Trainer. These are the checks:

    - `lr` is a number or a function of the step, and can be set to either.
    - `step(params, lr)` changes the values of all parameters, and nothing else: `grad` is only read. It uses the rate
      that it gets, not the attribute. Values stay finite where a gradient is 0.
    - The same steps give the same bits again. 100 small steps along a slope lead down.
    - Parameters are independent, unless `couples_params`: each has a state of its own, by its name, and moves as it
      would alone.
    - No state is the array of a value or a gradient, which the next step overwrites.
    - float32 gives the numbers of float64.
    - A layer that was frozen in a Trainer continues as if these steps had not been made, and starts with its first step
      if it was frozen before.
    - A Trainer that is saved and resumed continues with the same bits; so does what `load_state_dict` gets from
      `state_dict`, if the optimizer has them.
    - With `update`, which runs inside the plan, steps are those of `step`, also with the `lr_mult` and the `decay_mult`
      of layers. (A Trainer refuses these factors for an optimizer without `update`.)

    Parameters
    ----------
    optimizer : object
        The optimizer, with `lr` and `step(params, lr)`.
    couples_params : bool, default False
        Whether the step of a parameter depends on the others, as with a norm of all gradients.
    seed : int, default 0
        Determines values and gradients.

    Raises
    ------
    AssertionError
        If the optimizer breaks the contract.
    TypeError, ValueError
        If an argument is invalid.

    See Also
    --------
    check_layer : The same for layers.
    check_loss : The same for losses.

    Examples
    --------
    >>> from minidl.optimizers import Adam
    >>> from minidl.testing import check_optimizer
    >>> check_optimizer(Adam())
    >>> class Momentum:
    ...     def __init__(self, lr):
    ...         self.lr, self.velocity = lr, 0
    ...
    ...     def step(self, params, lr):
    ...         for param in params.values():
    ...             self.velocity = 0.9 * self.velocity + param.grad.sum()
    ...             param.value -= lr * self.velocity
    >>> check_optimizer(Momentum(0.1))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    AssertionError: Momentum: the step of '0.weight' depends on the other parameters; each needs a state of its own...
    """
    optimizer_of("optimizer", optimizer)
    check = _Check(optimizer, check_count("seed", seed))
    check.rate()
    check.steps_by_hand(check_bool("couples_params", couples_params))
    check.state_dict()
    check.in_trainer(couples_params)


class _Hand:
    """Steps by hand of a copy of an optimizer. A gradient depends on its parameter's name and on the step alone."""

    def __init__(self, optimizer: Any, seed: int, dtype: str = "float64", names: Iterable[str] = SHAPES) -> None:
        self.name, self.optimizer, self.seed = type(optimizer).__name__, copy.deepcopy(optimizer), seed
        self.params = {key: Param(np.array(self._draw(key, len(RATES)), dtype, order="F")) for key in names}

    def _draw(self, key: str, step: int) -> Array:
        return np.random.default_rng([self.seed, list(SHAPES).index(key), step]).standard_normal(SHAPES[key])

    def take(self, steps: Iterable[int] = range(len(RATES)), factor: float = 1.0) -> dict[str, Array]:
        """Makes steps, with rates times a factor; returns copies of the values."""
        for step in steps:
            grads = {key: self._draw(key, step) for key in self.params}
            for grad in grads.values():
                grad.flat[0] = 0.0
            self.step(grads, RATES[step] * factor)
        return {key: np.array(param.value) for key, param in self.params.items()}

    def step(self, grads: dict[str, Array], rate: float) -> None:
        """Makes one step with these gradients, which are read-only for the optimizer."""
        given = {key: self.params[key] for key in grads}
        for key, param in given.items():
            param.grad.flags.writeable = True
            param.grad = grads[key]
            param.grad.flags.writeable = False
        passed = dict(given)
        with _translated(self.name):
            self.optimizer.step(passed, rate)
        assert passed.keys() == given.keys() and all(passed[key] is given[key] for key in given), (
            f"{self.name}: changes the dict of parameters; it must write into their value"
        )
        for key, param in given.items():
            bad = np.argwhere(~np.isfinite(param.value))
            if len(bad):
                grad = float(param.grad[tuple(bad[0])])
                got = f"got {param.value[tuple(bad[0])]} for a gradient of {grad:.3g}"
                raise AssertionError(f"{self.name}: expected finite values of {key!r}, {got}")


class _Check:
    """The checks of one optimizer."""

    def __init__(self, optimizer: Any, seed: int) -> None:
        self.name, self.optimizer, self.seed = type(optimizer).__name__, optimizer, seed

    def rate(self) -> None:
        """Checks the attribute lr."""
        twin = copy.deepcopy(self.optimizer)
        for lr in (None, 0.5, SCHEDULE):
            try:
                if lr is not None:
                    twin.lr = lr
                rates = [rate_at(twin, step) for step in range(2)]
            except (AttributeError, TypeError, ValueError) as error:
                what = "its lr" if lr is None else f"its lr, set to {lr!r}"
                raise AssertionError(f"{self.name}: {what}: {error}") from error
            expected = rates if lr is None else [0.5, 0.5] if lr == 0.5 else [SCHEDULE(0), SCHEDULE(1)]
            assert rates == expected, f"{self.name}: its lr was set to {lr!r}, and gives {rates}, expected {expected}"

    def steps_by_hand(self, couples_params: bool) -> None:
        """Checks steps with given gradients."""
        hand = _Hand(self.optimizer, self.seed)
        before = hand.take(())
        values = hand.take()
        for key, value in values.items():
            unchanged = "it must write into the array, as in p.value -= ..."
            assert (value != before[key]).any(), (
                f"{self.name}: a step leaves the value of {key!r} as it was; {unchanged}"
            )
        for place, array in _arrays(hand.optimizer, self.name):
            for key, param in hand.params.items():
                for what, living in (("value", param.value), ("grad", param.grad)):
                    assert not np.shares_memory(array, living), (
                        f"{self.name}: {place} is the array of the {what} of {key!r}, which the next step overwrites; "
                        "it must store a copy"
                    )
        self._same(
            _Hand(self.optimizer, self.seed).take(), values, "the same steps, made again, give another value of {!r}"
        )
        other = _Hand(self.optimizer, self.seed)
        other.optimizer.lr = 0.7
        self._same(other.take(), values, "a step uses the attribute lr for {!r}; it must use the rate that it gets")
        faster = _Hand(self.optimizer, self.seed).take(factor=2.0)
        assert any((faster[key] != values[key]).any() for key in values), (
            f"{self.name}: a step ignores the rate that it gets"
        )
        for key in () if couples_params else SHAPES:
            alone = _Hand(self.optimizer, self.seed, names=(key,)).take()
            own = "each needs a state of its own, by name"
            self._same(alone, {key: values[key]}, "the step of {!r} depends on the other parameters; " + own)
        single = _Hand(self.optimizer, self.seed, "float32").take()
        self._same(single, values, "float32 gives another value of {!r} than float64", rtol=1e-3, atol=1e-4)
        self._check_descent()

    def _check_descent(self) -> None:
        hand = _Hand(self.optimizer, self.seed, names=("0.bias",))
        param, (steps, rate) = hand.params["0.bias"], DESCENT
        before = float((param.value**2).sum())
        for _ in range(steps):
            hand.step({"0.bias": np.array(param.value)}, rate)
        after = float((param.value**2).sum())
        assert after < before, (
            f"{self.name}: expected {steps} steps with a rate of {rate} to lead down, got a sum of squares that grows "
            f"from {before:.3g} to {after:.3g}; a step must subtract"
        )

    def state_dict(self) -> None:
        """Checks that a state is a snapshot, with which another optimizer continues."""
        kind = type(self.optimizer)
        inherited = isinstance(self.optimizer, Optimizer) and kind.state_dict is Optimizer.state_dict
        if not hasattr(kind, "load_state_dict") or (inherited and kind.step is not Optimizer.step):
            return  # the inherited one is of steps by the inherited `step`
        hand, other = _Hand(self.optimizer, self.seed), _Hand(self.optimizer, self.seed)
        middle = hand.take(range(2))
        with _translated(self.name, "state_dict() failed"):
            state = hand.optimizer.state_dict()
        kept = copy.deepcopy(state)
        values = hand.take(range(2, len(RATES)))
        for (place, array), (_, old) in zip(_arrays(state, "state_dict()"), _arrays(kept, ""), strict=True):
            same = np.array_equal(array, old, equal_nan=True)
            assert same, f"{self.name}: a later step changes {place}; state_dict() must return copies"
        for key, param in other.params.items():
            param.value = middle[key]
        with _translated(self.name, "load_state_dict(state) failed"):
            other.optimizer.load_state_dict(kept)
        after = "after load_state_dict, steps give another value of {!r}"
        self._same(other.take(range(2, len(RATES))), values, after)

    def in_trainer(self, couples_params: bool) -> None:
        """Checks steps inside a Trainer."""
        for loss in ("mean_squared_error", _squared_error):  # the first one runs inside the plan, if all else does
            self._compare(_Run(self, loss, couples_params), "in a Trainer, {!r} does not move as by hand")
            if couples_params:
                continue
            expected = "after its layer was frozen, {!r} does not move as if these steps had not been made"
            by_name = "keep and count by the names in params"
            self._compare(_Run(self, loss, frozen=((0,), (1,), (1,), ())), f"{expected}: {by_name}")
            for setting in ("lr_mult", "decay_mult") if has_update(self.optimizer) else ():
                self._compare(
                    _Run(self, loss, factors={setting: 0.5}), f"{setting} of a layer is not applied to {{!r}}"
                )
        whole, resumed = _Run(self, _squared_error), _Run(self, _squared_error)
        whole.take(range(len(RATES)))
        resumed.take(range(2))
        resumed.save_and_resume()
        resumed.take(range(2, len(RATES)))
        again = "after a checkpoint and a resume, steps give another value of {!r}"
        where = "its attributes, or its state_dict(), must have all of its state"
        self._same(resumed.values(), whole.values(), f"{again}: {where}")

    def _compare(self, run: _Run, message: str) -> None:
        for step in range(len(RATES)):
            run.take([step])
            self._same(run.values(), run.by_hand(step), message, RTOL, ATOL)

    def _same(
        self, found: dict[str, Array], expected: dict[str, Array], message: str, rtol: float = 0.0, atol: float = 0.0
    ) -> None:
        for key, value in found.items():
            if not np.allclose(value, expected[key], rtol, atol):
                raise AssertionError(f"{self.name}: {message.format(key)}")


class _Run:
    """A Trainer of three layers with a copy of the optimizer, and the same steps by hand.

    together: one optimizer makes the steps by hand, else one for each parameter. frozen: for each step, the layers that
    are frozen. factors: settings of layer 1.
    """

    def __init__(
        self,
        check: _Check,
        loss: str | Loss,
        together: bool = False,
        frozen: Sequence[Collection[int]] = ((),) * len(RATES),
        factors: dict[str, float] | None = None,
    ) -> None:
        self.name, self.frozen, self.factors = check.name, frozen, factors or {}
        rng = np.random.default_rng(check.seed)
        self.X, self.y = rng.standard_normal((6, 3)), rng.standard_normal((6, 2))
        model = Sequential([Dense(4), Dense(3), Dense(2)], (3,), seed=check.seed, dtype="float64")
        optimizer = copy.deepcopy(check.optimizer)
        optimizer.lr = SCHEDULE
        self.trainer = Trainer(model, loss, optimizer)
        for setting, factor in self.factors.items():
            setattr(model[1], setting, factor)
        self.twins = {key: Param(np.array(param.value)) for key, param in model.params.items()}
        groups = [tuple(self.twins)] if together else [(key,) for key in self.twins]
        self.hands = {names: self._hand(check.optimizer, names[0]) for names in groups}

    def _hand(self, optimizer: Any, key: str) -> Any:
        """Returns an optimizer for steps by hand of a parameter."""
        factor = self.factors.get("decay_mult", 1.0) if key.startswith("1.") else 1.0
        if factor != 1 and "weight_decay" in parameters(type(optimizer)):
            arguments = constructor_arguments(optimizer)
            return construct(type(optimizer), arguments | {"weight_decay": factor * arguments["weight_decay"]})
        return copy.deepcopy(optimizer)

    def take(self, steps: Iterable[int]) -> None:
        """Makes steps of the Trainer."""
        for step in steps:
            for number, layer in enumerate(self.trainer.model.layers):
                layer.trainable = number not in self.frozen[step]
            without = " without the frozen layer" if self.frozen[step] else ""
            with _translated(self.name, f"a step of a Trainer{without} failed"):
                self.trainer.train_batch(self.X, self.y)

    def by_hand(self, step: int) -> dict[str, Array]:
        """Makes the Trainer's last step by hand, with its gradients; returns the values."""
        for names, optimizer in self.hands.items():
            layer = int(names[0][0])
            if layer in self.frozen[step]:
                continue
            for key in names:
                self.twins[key].grad = self.trainer.model.params[key].grad
            rate = SCHEDULE(step) * (self.factors.get("lr_mult", 1.0) if layer == 1 else 1.0)
            with _translated(self.name):
                optimizer.step({key: self.twins[key] for key in names}, rate)
        return {key: twin.value for key, twin in self.twins.items()}

    def values(self) -> dict[str, Array]:
        """Returns the model's parameters."""
        return {key: param.value for key, param in self.trainer.model.params.items()}

    def save_and_resume(self) -> None:
        """Replaces the Trainer by one from its checkpoint."""
        custom: dict[str, Any] = {}
        with tempfile.TemporaryDirectory() as folder, _translated(self.name, "a checkpoint failed"):
            pack(self.trainer, None, custom)
            self.trainer.save_checkpoint(Path(folder, "run.safetensors"))
            self.trainer = Trainer.resume(Path(folder, "run.safetensors"), custom_objects=custom)


@contextmanager
def _translated(name: str, failure: str = "a step failed") -> Iterator[None]:
    """Turns an exception of the optimizer into an AssertionError that names the mistake."""
    try:
        yield
    except Exception as error:
        if "read-only" in str(error):
            raise AssertionError(f"{name}: writes into grad; it must compute in arrays of its own") from error
        raise AssertionError(f"{name}: {failure}: {error}") from error


def _arrays(value: Any, place: str, depth: int = 4) -> Iterator[tuple[str, Array]]:
    """Yields the arrays in the attributes of an object, and in dicts and lists there, each with its place."""
    if isinstance(value, np.ndarray):
        yield place, value
    elif depth and isinstance(value, dict):
        for key, one in value.items():
            yield from _arrays(one, f"{place}[{key!r}]", depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for number, one in enumerate(value):
            yield from _arrays(one, f"{place}[{number}]", depth - 1)
    elif depth and hasattr(value, "__dict__") and not isinstance(value, (type, Param)):
        for key, one in vars(value).items():
            yield from _arrays(one, f"{place}.{key}", depth - 1)


def _squared_error(scores: Array, y: Array) -> tuple[Array, Array]:
    return ((scores - y) ** 2).sum(axis=1), 2 * (scores - y)
