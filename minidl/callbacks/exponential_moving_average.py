"""ExponentialMovingAverage: an exponential moving average of the weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from minidl.callbacks.state_checks import arrays_like, check_state, optional
from minidl.utils.arrays import Array
from minidl.utils.hints import answers
from minidl.utils.validation import check_bool, check_count, check_fraction, check_int
from minidl_c.optimizers.average import average

OF_MODEL = {"_names", "_parameters", "_live"}  # attributes that a copy does not have
WARMED_UP = 2**62  # updates, of files of earlier versions: their decay was constant


@answers({})
class ExponentialMovingAverage:
    """Exponential moving average of the weights over a fit, which often predicts better than the last weights.

    `average += (1 - decay) * (weights - average)`, starting from the weights of the first averaged step.

    Parameters
    ----------
    decay : float, default 0.999
        In [0, 1). It averages over about `1 / (1 - decay)` averaged steps.
    every_n_steps : int, default 1
        Averages after every n-th step of the trainer: after steps whose number is a multiple of n. 1 returns to Python
        after every step.
    apply : bool, default True
        Whether to copy the averages into the model when the fit ends.
    warmup : bool, default True
        Whether the decay begins lower, so that the first weights are soon forgotten: the n-th update of the averages
        has `min(decay, (1 + n) / (10 + n))`, as `tf.train.ExponentialMovingAverage` with `num_updates`. False: the same
        decay in each update; after 460 of them, 0.999 still gives the first weights a share of 0.63.
    start_step : int, default 0
        The number of finished steps, counted over the trainer's life, from which on weights are averaged: the average
        is then one of the last part of training. It begins with the weights of the first such step, the first multiple
        of `every_n_steps` that is at least `start_step`. If no step of the fit is, the model keeps its own weights.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid.

    Notes
    -----
    Only parameters are averaged. Buffers are copied from the last averaged step, as in
    torch.optim.swa_utils.AveragedModel and in Keras: running statistics are averages already. The optimizer's state is
    not changed. The averages are reset at the start of each fit, and are in a checkpoint. If an exception interrupts
    the fit, the model keeps its own weights.

    To evaluate the averages after each epoch, load them into a copy of the model: in the `on_epoch_end` of a callback,
    `copy.load_state_dict(average.averages)`.

    References
    ----------
    Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging" (1992).
    The warm-up: https://www.tensorflow.org/api_docs/python/tf/train/ExponentialMovingAverage.

    Examples
    --------
    >>> from minidl import Sequential, Trainer
    >>> from minidl.callbacks import ExponentialMovingAverage
    >>> from minidl.layers import Dense
    >>> from minidl.optimizers import SGD
    >>> model = Sequential([Dense(1)], input_shape=(1,))
    >>> model.load_state_dict({"0.weight": [[0]], "0.bias": [0]})
    >>> average = ExponentialMovingAverage(decay=0.5, apply=False, warmup=False)
    >>> trainer = Trainer(model, "mean_squared_error", SGD(0.25))
    >>> history = trainer.fit([[0.0]], [1.0], epochs=2, callbacks=[average], verbose=0)
    >>> model.params["0.bias"].value, average.averages["0.bias"]
    (array([0.75], dtype=float32), array([0.625], dtype=float32))

    The last tenth of 1000 steps:

    >>> ExponentialMovingAverage(0.99, start_step=900)
    ExponentialMovingAverage(0.99, every_n_steps=1, apply=True, warmup=True, start_step=900)
    """

    def __init__(
        self,
        decay: float = 0.999,
        every_n_steps: int = 1,
        apply: bool = True,
        warmup: bool = True,
        start_step: int = 0,
    ) -> None:
        self.decay, self.every_n_steps = check_fraction("decay", decay), check_int("every_n_steps", every_n_steps)
        self.apply, self.warmup = check_bool("apply", apply), check_bool("warmup", warmup)
        self.start_step = check_int("start_step", start_step, minimum=0)
        self._updates = 0  # of the averages
        self._flat: Array | None = None  # the averages, in the layout of the model's flat parameters
        self._buffers: dict[str, Array] = {}
        self._kept: dict[str, Array] = {}  # the averages of a copy, which has no model
        self._like = arrays_like({})

    def __getstate__(self) -> dict[str, Any]:
        """Returns arguments and averages: a copy, or a pickle, has no part of the trained model."""
        own = {name: value for name, value in vars(self).items() if name not in OF_MODEL}
        return own | {"_flat": None, "_buffers": {}, "_kept": self._kept if self._flat is None else self.averages}

    def on_fit_begin(self, trainer: Any) -> None:
        """Looks up the weights.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.
        """
        model = trainer.model
        self._names, self._parameters = list(model.params), model.network.parameters
        self._live = {f"{i}.{name}": b for i, layer in enumerate(model.layers) for name, b in layer.buffers.items()}
        self._like = arrays_like(trainer.model.state_dict())

    def on_step_end(self, trainer: Any, step: int, loss: float) -> None:
        """Updates the averages with the weights of this step, unless it comes before `start_step`.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.
        step : int
            Number of the step, from 0.
        loss : float
            Loss of the step.
        """
        if step + 1 < self.start_step:
            return
        weights = self._parameters.values
        if self._flat is None:
            self._flat = weights.copy()
        else:
            self._updates += 1
            warm = (1 + self._updates) / (10 + self._updates) if self.warmup else 1.0
            average(self._flat, weights, 1 - min(self.decay, warm))
        self._buffers = {name: buffer.copy() for name, buffer in self._live.items()}

    def on_fit_end(self, trainer: Any) -> None:
        """Copies the averages into the model, if `apply` is set and a step was averaged.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.
        """
        if self.apply and self._flat is not None:
            trainer.model.load_state_dict(self.averages)

    @property
    def averages(self) -> dict[str, Array]:
        """Copies of averages and buffers by name, for `load_state_dict`.

        Raises
        ------
        ValueError
            Before the first averaged step.
        """
        if self._flat is None:
            if not self._kept:
                raise ValueError("averages: expected a fit with an averaged step, got none")
            return {name: array.copy() for name, array in self._kept.items()}
        views = zip(self._names, self._parameters.views(self._flat), strict=True)
        return {name: np.array(array, order="C") for name, array in [*views, *self._buffers.items()]}

    @property
    def state_key(self) -> str:
        """The key by which a resume finds this callback's state."""
        start = f", start_step={self.start_step}" if self.start_step else ""  # files of earlier versions have none
        return f"ExponentialMovingAverage({self.decay}, {self.every_n_steps}{start})"

    def state_dict(self) -> dict[str, Any]:
        """Returns the averages and the buffers, and the number of their updates.

        Returns
        -------
        dict
            The state.
        """
        has_some = self._flat is not None or self._kept
        return {"averages": self.averages if has_some else None, "updates": self._updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a state.

        Parameters
        ----------
        state : dict
            What `state_dict` returned.

        Raises
        ------
        TypeError, ValueError
            If the state is invalid.
        """
        checks = {"averages": optional(self._like), "updates": check_count}
        state = check_state(state, checks, updates=WARMED_UP)
        self._flat, self._buffers, self._kept, self._updates = None, {}, {}, state["updates"]
        if state["averages"] is not None:
            self._flat = np.zeros_like(self._parameters.values)
            for name, view in zip(self._names, self._parameters.views(self._flat), strict=True):
                view[...] = state["averages"][name]
            self._buffers = {name: state["averages"][name].copy() for name in self._live}

    def __repr__(self) -> str:
        options = f"every_n_steps={self.every_n_steps}, apply={self.apply}, warmup={self.warmup}"
        return f"ExponentialMovingAverage({self.decay}, {options}, start_step={self.start_step})"
