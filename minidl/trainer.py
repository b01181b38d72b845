"""Trainer: fits a model to data."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from minidl import losses
from minidl.callbacks import Callbacks
from minidl.data import Index, epoch_order
from minidl.layer import Array
from minidl.losses import Loss, checked_loss
from minidl.metrics import Metric
from minidl.metrics import get as found_metrics
from minidl.optimizers import rate_at
from minidl.progress import Progress
from minidl.sequential import Sequential
from minidl.shapes import whole
from minidl.steps import Batches, Steps, make_steps
from minidl.supervised import Supervised
from minidl_c.threads import check_num_threads

CHUNK_SECONDS = 0.05  # how long steps may run in C before Python looks at signals and progress again


class Trainer:
    """Fits a model to data: epochs, shuffling, validation, history.

    loss: "softmax_cross_entropy", or a function `loss(scores, y) -> (losses, dscores)`.
    optimizer: such as SGD(0.1), or an object with `step(params, lr)` and `lr`.
    metrics: names ("accuracy") or functions f(y, scores), computed on the scores of a whole epoch; in training these
        are the scores that each batch had before its step, so they lag behind what `evaluate` finds.
    seed: the order of the examples is a function of it and the epoch.
    num_threads: None leaves it to minidl.get_num_threads() at each call.

    A step's gradient is sum(weight_i * gradient_i) / sum(weight_i). `step` and `epoch` count what was done so far;
    `history` is a dict of lists with an entry for each epoch.
    """

    def __init__(
        self,
        model: Sequential,
        loss: str | Loss,
        optimizer: Any,
        metrics: Sequence[str | Metric] = (),
        seed: int = 0,
        num_threads: int | None = None,
    ) -> None:
        if not isinstance(model, Sequential):
            raise TypeError(f"model: expected a Sequential, got {model!r}")
        if isinstance(optimizer, type) or not hasattr(optimizer, "step"):
            raise TypeError(f"optimizer: expected an object with step(params, lr), such as SGD(0.1), got {optimizer!r}")
        self.model, self.optimizer, self.num_threads = model, optimizer, num_threads
        if num_threads is not None:
            check_num_threads(num_threads)
        self.loss = losses.get(loss)
        self.metrics = found_metrics(metrics)
        self.seed = whole("seed", seed, least=0)
        self.epoch = 0
        self._count = np.zeros(1, np.int64)
        self.stop = False
        self.history: dict[str, list[float]] = {}
        self._steps: Steps | None = None
        self._parts: tuple[Any, ...] = ()  # what the steps were made of
        self._running = False

    @property
    def step(self) -> int:
        """How many steps were done so far."""
        return int(self._count[0])

    # ---- training

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

        Raises TypeError or ValueError before the first step if anything does not fit together, and FloatingPointError
        if a loss or gradient becomes NaN or infinite: before that step's update, so the last good weights stay.
        """
        epochs, batch_size = whole("epochs", epochs, least=0), whole("batch_size", batch_size)
        called, progress = Callbacks(callbacks), Progress(verbose, epochs)
        with self.model.unbuilt_on_error():
            data = Supervised.accept(self.model, self.loss, X, y, sample_weight, class_weight)
            if not len(data.used):
                raise ValueError("X: expected at least one example, got none")
            rows, held = data.split(validation_split, self.seed)
            validation = self._validation(data, held, validation_data)
        with _Running(self):
            called.call("on_fit_begin", self)
            try:
                for number in range(1, epochs + 1):
                    if not self.stop:
                        called.call("on_epoch_begin", self, self.epoch)
                    if self.stop:
                        break
                    progress.begin_epoch(number, -(-len(rows) // batch_size))
                    logs = self._epoch(data, rows, batch_size, shuffle, called, progress)
                    speed = logs.pop("images_per_second")
                    if validation is not None:
                        found = self._evaluate(*validation)
                        logs.update({f"val_{name}": value for name, value in found.items()})
                    logs["lr"] = rate_at(self.optimizer, max(self.step - 1, 0))
                    logs["images_per_second"] = speed
                    self._record(logs)
                    progress.end_epoch(logs)
                    called.call("on_epoch_end", self, self.epoch - 1, logs)
            finally:
                progress.close()
            called.call("on_fit_end", self)
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

    def _record(self, logs: dict[str, float]) -> None:
        """One more epoch in the history; every list has an entry for every epoch, NaN where a name was missing."""
        missing = [float("nan")] * len(self.history.get("epoch", []))
        for name in [*self.history, *(name for name in logs if name not in self.history)]:
            self.history.setdefault(name, list(missing)).append(logs.get(name, float("nan")))
        self.epoch += 1

    def train_batch(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """One step on this batch; returns its loss before the update. Every param.grad then is the divided gradient.

        Raises as fit, and ValueError for an empty batch.
        """
        data = Supervised.accept(self.model, self.loss, X, y, sample_weight)
        if not len(data.used):
            raise ValueError("X: expected at least one example in a batch, got none")
        with _Running(self):
            batch = self._run(data, data.used, len(data.used), 1)
        return data.mean(batch.losses, data.used)

    def evaluate(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> dict[str, float]:
        """The weighted mean loss and the metrics of the model as it is now: {"loss": ..., "accuracy": ...}."""
        data = Supervised.accept(self.model, self.loss, X, y, sample_weight)
        return self._evaluate(data, data.used)

    # ---- one epoch, one chunk of steps

    def _epoch(
        self,
        data: Supervised,
        rows: Index,
        batch_size: int,
        shuffle: bool,
        called: Callbacks,
        progress: Progress,
    ) -> dict[str, float]:
        order = rows[epoch_order(len(rows), self.seed, self.epoch, shuffle)]
        each_step = called.wants("on_step_end")
        kept: list[Batches] = []
        done, steps, began = 0, 1, time.perf_counter()
        while done < len(order) and not self.stop:
            whole_batches = (len(order) - done) // batch_size
            steps = min(steps, whole_batches)
            size = batch_size if steps else len(order) - done  # the last partial batch goes alone
            start = time.perf_counter()
            batch = self._run(data, order[done : done + max(steps, 1) * size], size, max(steps, 1))
            seconds = time.perf_counter() - start
            kept.append(batch)
            done += len(batch.rows)
            progress.advance(len(batch.rates))
            if each_step:
                called.call(
                    "on_step_end",
                    self,
                    self.step - 1,
                    data.mean(batch.losses, batch.rows),
                )
            else:
                steps = max(1, int(CHUNK_SECONDS * len(batch.rates) / max(seconds, 1e-9)))
        elapsed = max(time.perf_counter() - began, 1e-9)
        logs: dict[str, float] = {"epoch": self.epoch, "loss": float("nan")}
        if kept:
            seen = np.concatenate([batch.rows for batch in kept])
            logs["loss"] = data.mean(np.concatenate([batch.losses for batch in kept]), seen)
            if self.metrics:
                scores = np.concatenate([batch.scores for batch in kept if batch.scores is not None])
                logs.update(self._measure(data.targets[seen], scores))
        logs["images_per_second"] = done / elapsed
        return logs

    def _run(self, data: Supervised, rows: Index, size: int, steps: int) -> Batches:
        """`steps` steps on these rows; raises FloatingPointError at the first that is not finite."""
        parts = (self.model.network, self.loss, self.optimizer)
        if self._steps is None or any(a is not b for a, b in zip(parts, self._parts, strict=True)):
            self._steps, self._parts = make_steps(self.model, self.loss, self.optimizer, self.seed), parts
        dtype, scores = self.model.dtype, None
        if self.metrics:
            scores = np.empty((len(rows), *self.model.output_shape), dtype)
        rates = np.array([rate_at(self.optimizer, self.step + k) for k in range(steps)])
        if rates.max() > np.finfo(dtype).max:
            raise ValueError(f"lr: expected a number that {dtype} can hold, got {rates.max()}")
        weights = None if data.weights is None else data.weights.astype(dtype)
        batch = Batches(
            data.examples,
            data.targets,
            weights,
            rows,
            size,
            rates,
            self._count,
            np.empty(len(rows), dtype),
            scores,
        )
        done = self._steps.run(batch, self.num_threads)
        if done < steps:
            raise FloatingPointError(self._not_finite(batch, done))
        return batch

    def _not_finite(self, batch: Batches, done: int) -> str:
        rows = slice(done * batch.size, (done + 1) * batch.size)
        where = [name for name, param in self.model.params.items() if not np.isfinite(param.grad).all()]
        what = f"the gradient of {', '.join(where)}" if where else "the loss"
        bad = batch.rows[rows][~np.isfinite(batch.losses[rows])]
        examples = f"; the loss of examples {bad[:5].tolist()} of X as well" if where and len(bad) else ""
        return (
            f"step {self.step}: {what} is NaN or infinite{examples}. "
            "The weights are those before this step; try a smaller lr"
        )

    def _evaluate(self, data: Supervised, rows: Index) -> dict[str, float]:
        scores = np.concatenate(
            [np.empty((0, *self.model.output_shape), self.model.dtype)]
            + [
                self.model.predict(data.examples.copy(rows[start : start + 4096]), self.num_threads)
                for start in range(0, len(rows), 4096)
            ]
        )
        targets = data.targets[rows]
        found = {"loss": data.mean(checked_loss(self.loss, scores, targets)[0], rows)}
        found.update(self._measure(targets, scores))
        return found

    def _measure(self, targets: Array, scores: Array) -> dict[str, float]:
        scores.flags.writeable = False
        found = {name: metric(targets, scores) for name, metric in self.metrics.items()}
        for name, value in found.items():
            if np.ndim(value) != 0 or not isinstance(value, (int, float, np.number, np.ndarray)):
                got = f"shape {np.shape(value)}" if np.ndim(value) else repr(value)
                raise TypeError(f"metrics: expected {name} to return a number, got {got}")
        return {name: float(value) for name, value in found.items()}


class _Running:
    """Marks a trainer as busy; raises RuntimeError if it is already."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def __enter__(self) -> None:
        if self.trainer._running:
            raise RuntimeError("this trainer is training already; wait for its fit to end")
        self.trainer._running, self.trainer.stop = True, False

    def __exit__(self, *error: object) -> None:
        self.trainer._running = False
