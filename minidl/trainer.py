"""Trainer: fits a model to data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numpy.typing import ArrayLike

from minidl.data import Index
from minidl.fitting import Fit, Position
from minidl.hooks import Hooks
from minidl.learner import Learner, Running
from minidl.progress import Progress
from minidl.shapes import whole
from minidl.signals import Signals
from minidl.supervised import Supervised


class Trainer(Learner):
    """Fits a model to data: epochs, shuffling, validation, history, checkpoints.

    loss: "softmax_cross_entropy", or a function `loss(scores, y) -> (losses, dscores)`.
    optimizer: such as SGD(0.1), or an object with `step(params, lr)` and `lr`.
    metrics: names ("accuracy") or functions f(y, scores), computed on the scores of a whole epoch; in training these
        are the scores that each batch had before its step, so they lag behind what `evaluate` finds.
    seed: the order of the examples is a function of it and the epoch.
    num_threads: None leaves it to minidl.get_num_threads() at each call.

    A step's gradient is sum(weight_i * gradient_i) / sum(weight_i). `step` and `epoch` count what was done so far;
    `history` is a dict of lists with an entry for each epoch. `interrupted` is the fit that the next one completes,
    after `resume`; None there begins another.
    """

    interrupted: Position | None = None
    _fit: Fit | None = None  # the last one, unless it came to its end

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        epochs: int = 1,
        batch_size: int = 64,
        validation_data: tuple[ArrayLike, ArrayLike] | None = None,
        validation_split: float = 0.0,
        shuffle: bool = True,
        sample_weight: ArrayLike | None = None,
        class_weight: dict[int, float] | str | None = None,
        callbacks: Iterable[Any] = (),
        verbose: int | None = None,
    ) -> dict[str, list[float]]:
        """Trains `epochs` more epochs and returns the history: epoch, loss, metrics, val_*, lr, images_per_second.

        X (n, *input_shape), or 2-D of the same width; y (n, ...). An unbuilt model is built for X. An epoch sees every
        example once, the last partial batch included; rows of weight 0 count as absent.
        validation_split: this share of the examples, shuffled and (for labels) stratified, is held back.
        verbose: 0 nothing, 1 a line an epoch, 2 also a bar, None: 2 on a terminal, else 1.

        The first fit of a trainer that was resumed completes the interrupted one, given the same arguments.
        Ctrl-C and SIGTERM act between two steps; SIGTERM first calls the on_terminate of callbacks.

        Raises TypeError or ValueError before the first step if anything does not fit together, and FloatingPointError
        if a loss or gradient becomes NaN or infinite: before that step's update, so the last good weights stay.
        """
        epochs, batch_size = whole("epochs", epochs, least=0), whole("batch_size", batch_size)
        hooks, progress = Hooks(callbacks), Progress(verbose, epochs)
        with self.model.unbuilt_on_error():
            data = Supervised.accept(self.model, self.loss, X, y, sample_weight, class_weight)
            if not len(data.used):
                raise ValueError("X: expected at least one example, got none")
            rows, held = data.split(validation_split, self.seed)
            validation = self._validation(data, held, validation_data)
        fit = Fit(
            self, data, rows, validation, epochs, batch_size, bool(shuffle), float(validation_split), hooks, progress
        )
        with Running(self):
            if self.interrupted is not None and self.interrupted.step == self.step:
                fit.resume(self.interrupted)
            self._fit, self.interrupted = fit, None
            with Signals() as signals:
                fit.run(signals)
            self._fit = None
        return self.history

    def _validation(
        self, data: Supervised, held: Index | None, given: Any
    ) -> tuple[Supervised, Index] | None:
        """What to evaluate on behind each epoch: the rows held back, or the data given; None: nothing."""
        if given is None:
            return None if held is None else (data, held)
        if held is not None:
            raise ValueError("validation_data and validation_split: expected one of them, got both")
        if not isinstance(given, (tuple, list)) or len(given) != 2:
            got = f"{len(given)} things" if isinstance(given, (tuple, list)) else type(given).__name__
            raise TypeError(f"validation_data: expected a pair (X, y), got {got}")
        try:
            other = Supervised.accept(self.model, self.loss, *given)
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"validation_data: {error}") from error
        return other, other.used
