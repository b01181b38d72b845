"""ExponentialMovingAverage: an exponential moving average of the weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from minidl.callbacks.state_checks import arrays_like, check_state, optional
from minidl.utils.arrays import Array
from minidl.utils.validation import check_bool, check_fraction, check_int


class ExponentialMovingAverage:
    """Averages the weights over the steps of a fit, which mostly predicts better than the last ones (Polyak, 1992):

    average += (1 - decay) * (weights - average), and average = weights behind the first step that is seen.

    decay: in [0, 1). every_n_steps: averages behind each n-th step of the trainer; 1 costs a look by Python at each.
    apply: at the end of the fit the averages are put into the model. False: nobody touches it.

    `averages` are the averages so far, as the state_dict of a model. To measure them behind each epoch, load them into
    a copy of the model: in the on_epoch_end of a callback, `copy.load_state_dict(average.averages)`.

    Only parameters are averaged. Buffers are those of the last step that was seen, as in
    torch.optim.swa_utils.AveragedModel and in Keras: running statistics are averages already. What the optimizer
    remembers stays. Each fit begins anew, a fit that an exception breaks off keeps its own weights, and the averages
    are in a checkpoint.

    Raises TypeError or ValueError for arguments that make no sense.
    """

    def __init__(self, decay: float = 0.999, every_n_steps: int = 1, apply: bool = True) -> None:
        self.decay, self.every_n_steps = check_fraction("decay", decay), check_int("every_n_steps", every_n_steps)
        self.apply = check_bool("apply", apply)
        self._flat: Array | None = None  # the averages, laid out as the model's parameters
        self._buffers: dict[str, Array] = {}

    def on_fit_begin(self, trainer: Any) -> None:
        """Begins anew."""
        model = trainer.model
        self._names, self._parameters = list(model.params), model.network.parameters
        self._living = {f"{i}.{name}": b for i, layer in enumerate(model.layers) for name, b in layer.buffers.items()}
        self._flat, self._buffers = None, {}
        self._difference = np.empty_like(self._parameters.values)

    def on_step_end(self, trainer: Any, step: int, loss: float) -> None:
        """Adds this step's weights."""
        weights = self._parameters.values
        if self._flat is None:
            self._flat = weights.copy()
        else:
            with np.errstate(over="ignore", invalid="ignore"):  # of weights that are infinite
                np.subtract(weights, self._flat, out=self._difference)
                self._difference *= 1 - self.decay
                self._flat += self._difference
        self._buffers = {name: buffer.copy() for name, buffer in self._living.items()}

    def on_fit_end(self, trainer: Any) -> None:
        """Puts the averages into the model, if that is asked for and there are any."""
        if self.apply and self._flat is not None:
            trainer.model.load_state_dict(self.averages)

    @property
    def averages(self) -> dict[str, Array]:
        """Copies of averages and buffers by name, for load_state_dict; raises ValueError before a step was seen."""
        if self._flat is None:
            raise ValueError("averages: expected a fit in which a step was seen, got none")
        views = zip(self._names, self._parameters.views(self._flat), strict=True)
        return {name: np.array(array, order="C") for name, array in [*views, *self._buffers.items()]}

    @property
    def state_key(self) -> str:
        """A resume finds by this what was remembered."""
        return f"ExponentialMovingAverage({self.decay}, {self.every_n_steps})"

    def state_dict(self) -> dict[str, Any]:
        """The averages and the buffers."""
        return {"averages": None if self._flat is None else self.averages}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where the interrupted fit was; comes after on_fit_begin. Raises TypeError, ValueError for others."""
        zeros = zip(self._names, self._parameters.views(np.zeros_like(self._parameters.values)), strict=True)
        check_state(state, {"averages": optional(arrays_like({**dict(zeros), **self._living}))})
        if state["averages"] is not None:
            self._flat = np.zeros_like(self._parameters.values)
            for name, view in zip(self._names, self._parameters.views(self._flat), strict=True):
                view[...] = state["averages"][name]
            self._buffers = {name: state["averages"][name].copy() for name in self._living}

    def __repr__(self) -> str:
        return f"ExponentialMovingAverage({self.decay}, every_n_steps={self.every_n_steps}, apply={self.apply})"
