"""ArrayFitLoop: epochs on arrays, in chunks of steps between which Python looks at signals and callbacks."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from minidl.callbacks.callback_list import CallbackList
from minidl.engine.pixel_targets import moves
from minidl.training.base_trainer import BaseTrainer
from minidl.training.fit_loop import FitLoop
from minidl.training.fit_state import ArrayFitConfig
from minidl.training.mixing import Mixing, mixed, mixed_weights
from minidl.training.moved_targets import moved_in_steps
from minidl.training.progress import Progress
from minidl.utils.arrays import Array
from minidl.utils.data import Index, epoch_order
from minidl.utils.weights import weighted_mean

CHUNK_SECONDS = 0.05  # how long steps may run in C before Python looks at signals and progress again


class ChunkTimer:
    """Plans the number of steps that take about CHUNK_SECONDS."""

    def __init__(self) -> None:
        self.steps = 1

    def update(self, steps: int, seconds: float) -> None:
        """Takes the time of the last chunk; the plan at most doubles: a last, small batch was quick."""
        fitting = int(CHUNK_SECONDS * steps / max(seconds, 1e-9))
        self.steps = max(1, min(fitting, 2 * self.steps))


class ArrayFitLoop(FitLoop):
    """Runs the epochs of a fit on arrays, each in an order of its own."""

    config: ArrayFitConfig
    _order: Index  # the rows in the order of the running epoch

    def __init__(
        self, config: ArrayFitConfig, trainer: BaseTrainer, callbacks: CallbackList, progress: Progress
    ) -> None:
        super().__init__(config, trainer, callbacks, progress, config.data.examples.shape)
        self._timer = ChunkTimer()
        self._sampled = False  # whether the trainer has samples of this fit

    def _open_epoch(self) -> None:
        trainer, config, size = self.trainer, self.config, self.config.step_size
        self._order = config.rows[epoch_order(len(config.rows), trainer.seed, trainer.epoch, config.shuffle)]
        if not self._sampled:
            trainer.sample_buffer.keep_epoch(trainer.sample_key, config.data, self._order, size)
            self._sampled = True
        self.progress.begin_epoch(self.epochs_done + 1, -(-len(self._order) // size), self.seen.count // size)

    def _train(self, check: Callable[[], None]) -> None:
        while self.seen.count < len(self._order) and not self._stopping:
            self._chunk()
            check()

    def _chunk(self) -> None:
        """Does some steps without Python between them; then calls the hooks that want to see the last one."""
        trainer, config, order = self.trainer, self.config, self._order
        left = len(order) - self.seen.count
        until, planned = self.callbacks.steps_until_next(trainer.step), self._timer.steps
        mixing = self._mixing
        if mixing is not None or self._moves_targets:
            planned = min(planned, config.data.examples.chunk_size // config.step_size)  # they are copied
        steps = max(1, min(planned, until or planned, left // config.step_size))
        steps, due = trainer.comm.broadcast([steps, steps == until])  # each rank has a clock and callbacks of its own
        size = min(config.step_size, left)  # the last partial batch goes alone
        rows = order[self.seen.count : self.seen.count + steps * size]
        sized, reads = self.sized, self.seen.reads_scores
        batch = sized.batches(config.data, rows, size, config.batch_size, trainer.comm, reads)
        if mixing is not None:
            batch = mixed(batch, trainer.loss, sized.network.out_shape, mixing)
        before, began = trainer.step, time.perf_counter()
        with trainer.stepping():
            try:
                sized.run(batch)
            finally:  # also the steps before one that failed
                done = (trainer.step - before) * size
                scores = None if batch.scores is None else batch.scores[:done]
                self.seen.append(batch.losses[:done], scores, partial(self._targets, rows[:done]))
        self._timer.update(steps, time.perf_counter() - began)
        self.progress.advance(steps)
        if due:
            loss = self._mean(batch.losses[-size:], rows[-size:])
            with trainer.comm.raise_together():
                self.callbacks.step_end(trainer, trainer.step - 1, loss)
            self._call("on_save")

    def _train_logs(self) -> dict[str, float]:
        rows = self._order[: self.seen.count]
        logs: dict[str, float] = {"epoch": self.trainer.epoch, "loss": float("nan")}
        if len(rows):
            logs |= self.seen.logs(partial(self._targets, rows), partial(self._mean, rows=rows))
        return logs

    @property
    def _mixing(self) -> Mixing | None:
        """What mixes the examples of the next steps; None: nothing."""
        config = self.config
        if not config.mixup and not config.cutmix:
            return None
        return Mixing(config.mixup, config.cutmix, self.trainer.seed, config.data.examples.shape)

    @property
    def _moves_targets(self) -> bool:
        sized = self.sized
        network, loss = sized.model.network, sized.loss
        return network is not None and moves(network, loss, self.config.data.targets)

    def _targets(self, rows: Index) -> Array:
        """Returns the targets that the latest steps had, which trained on these rows."""
        config, trainer = self.config, self.sized
        network = trainer.model.network
        if network is None or not self._moves_targets:
            return config.data.reported_targets(rows)
        batch = trainer.batches(config.data, rows, config.step_size, config.batch_size)
        first = trainer.step - -(-len(rows) // config.step_size)
        return moved_in_steps(batch, network, trainer.loss, trainer.seed, first, trainer.num_threads)

    def _mean(self, losses: Array, rows: Index) -> float:
        """Returns the loss of the latest steps, which trained on these rows."""
        config, trainer = self.config, self.trainer
        weights, mixing = config.data.loss_weights(rows), self._mixing
        if mixing is not None and weights is not None:
            first = trainer.step - -(-len(rows) // config.step_size)
            weights = mixed_weights(weights, config.step_size, mixing, first)
        return weighted_mean(losses, weights)
