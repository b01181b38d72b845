"""BatchFitLoop: epochs on batches that come one after the other, each of them one step."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.callbacks.callback_list import CallbackList
from minidl.losses import Loss
from minidl.losses.output_losses import OutputLosses
from minidl.training.base_trainer import BaseTrainer
from minidl.training.fit_loop import FitLoop
from minidl.training.fit_state import BatchFitConfig, FitState
from minidl.training.labeled_data import LabeledData
from minidl.training.progress import Progress
from minidl.utils.arrays import Array
from minidl.utils.weights import weighted_mean

REMEDY = "method set_epoch(epoch) from whose number the order of the batches follows"
ROWS_HASHED = 4  # rows of each batch, which show whether an interrupted epoch is read again as it was


class BatchFitLoop(FitLoop):
    """Runs the epochs of a fit on batches. With arrays cut into the same batches, in order, the bits are the same.

    Weights are taken as they are, where arrays divide them by their mean.

    The loop keeps the losses and weights of the running epoch, and with metrics its targets and scores. A state holds
    these, the number of batches, the position in the source, and a hash of some rows of each batch up to there. A fit
    that completes it reads these batches again, and refuses others. It also holds whether the first batch of a pass
    over the source differed from that of the pass before it: then a new process may not know the order of the next one.
    """

    config: BatchFitConfig

    def __init__(
        self, config: BatchFitConfig, trainer: BaseTrainer, callbacks: CallbackList, progress: Progress
    ) -> None:
        super().__init__(config, trainer, callbacks, progress)
        self._position, self._digest = 0, ""  # the number and the hash of the batches since the source began
        self._opening, self._varies = "", False  # the hash of the first one; whether an earlier pass had another
        self._nothing_read()

    def _nothing_read(self) -> None:
        self._count = 0  # the number of batches that this epoch has trained on
        self._first: Array | None = None  # with metrics, no rows of its first targets: their shape and dtype
        self._targets: list[Array] = []  # the targets of the steps, with metrics
        self._weights: list[NDArray[np.float64]] = []

    # ---- the steps of an epoch

    def _open_epoch(self) -> None:
        self.trainer.refused_feed = None
        if not self.seen.count:
            self._nothing_read()
            self.config.feed.open(self.trainer.epoch)
        self.progress.begin_epoch(self.epochs_done + 1, self.config.feed.steps, self._count)

    def _train(self, check: Callable[[], None]) -> None:
        feed = self.config.feed
        while not self._stopping and (batch := feed.next()) is not None:
            self._step(self._read(batch))
            check()
        if not self.seen.count and not self._stopping:
            raise ValueError("X: expected at least one batch in each epoch, got none")
        feed.close()
        self._position = feed.position

    def _read(self, batch: Any) -> LabeledData:
        """Returns a batch as data; raises TypeError or ValueError, naming it, if it is invalid."""
        where = f"batch {self._count} of epoch {self.trainer.epoch}"
        data = LabeledData.from_batch(self.trainer.model, self.trainer.loss, batch, where)
        if self._first is None and self.seen.keeps_scores:
            self._first = data.targets[:1]
        elif self._first is not None:
            _check_kind(self.trainer.loss, self._first, data.targets[:1], where)
        return data

    def _step(self, data: LabeledData) -> None:
        """Does the step of a batch; then calls the hooks that want to see it."""
        trainer, sized, rows = self.trainer, self.trainer.at(data.examples.shape), data.active_rows
        due = self.callbacks.steps_until_next(trainer.step) == 1
        sized.network.check_batch(len(rows))
        if trainer.sample_buffer.takes_next():
            trainer.sample_buffer.keep_batch(trainer.sample_key, data)
        batch = sized.batches(data, rows, len(rows), reads_scores=self.seen.reads_scores)
        batch = dataclasses.replace(batch, example_ids=batch.example_ids + self.seen.count)  # as for rows of one X
        with trainer.stepping():
            ran = sized.run(batch)
            targets = data.reported_targets(rows) if ran.targets is data.targets else ran.targets[ran.rows]
            self._remember(data, targets)
            self.seen.append(batch.losses, batch.scores, lambda: targets)
        self.progress.advance(1)
        if due:
            self.callbacks.step_end(trainer, trainer.step - 1, data.mean(batch.losses, rows))
            self._call("on_save")

    def _remember(self, data: LabeledData, targets: Array) -> None:
        """Keeps what the end of the epoch, or a state, needs of a batch, with the targets of its step."""
        rows = data.active_rows
        self._count, self._position, self._digest = self._count + 1, self.config.feed.position, self._digest_with(data)
        if self._position == 1:
            self._varies |= self._opening not in ("", self._digest)
            self._opening = self._digest
        weights = data.loss_weights(rows)
        self._weights.append(np.ones(len(rows)) if weights is None else weights)
        if self.seen.keeps_scores:
            self._targets.append(targets)

    def _digest_with(self, data: LabeledData) -> str:
        """Returns the hash of the batches since the source began, of which `data` is the latest."""
        before = self._digest if self.config.feed.position > 1 else ""
        return hashlib.sha256(f"{before} {json.dumps(data.fingerprints(ROWS_HASHED))}".encode()).hexdigest()

    def _train_logs(self) -> dict[str, float]:
        logs: dict[str, float] = {"epoch": self.trainer.epoch, "loss": float("nan")}
        if self._count:
            weights = np.concatenate(self._weights)
            logs |= self.seen.logs(lambda: np.concatenate(self._targets), partial(weighted_mean, weights=weights))
        return logs

    # ---- where it stands

    def state(self) -> FitState:
        """Returns where the fit stands now."""
        feed, state = self.config.feed, super().state()
        if self.in_epoch and self.seen.count:
            targets = np.concatenate(self._targets) if self._targets else None
            weights = np.concatenate([np.empty(0), *self._weights])
            read = {"count": self._count, "position": self._position, "targets": targets, "weights": weights}
        elif not self.in_epoch and (self.is_complete or feed.is_iterator or not self._opening):
            return state
        else:
            read = {"count": 0, "position": self._position, "targets": None, "weights": np.empty(0)}
        known = {"digest": self._digest, "opening": self._opening, "varies": self._varies}
        return dataclasses.replace(state, batches=read | known)

    def difference(self, state: FitState) -> str | None:
        """See FitLoop.difference. It reads the batches that the interrupted epoch has seen."""
        if state.arguments.get("batches") == "an iterator" and not state.is_complete:
            expected = "expected a list or another iterable that begins again, as in a fit that can be completed"
            return f"X: {expected}, got an iterator: its batches cannot be read again"
        difference = super().difference(state)
        if difference is not None or state.batches is None:
            return difference
        feed, position, count = self.config.feed, state.batches["position"], state.batches["count"]
        for batch in feed.replay(position, count, self.trainer.epoch):
            self._digest = self._digest_with(self._read(batch))
            if feed.position <= position - count:
                self._first = None  # an earlier epoch may have had targets of another kind
        if feed.position == position and (not position or self._digest == state.batches["digest"]):
            return None
        feed.restart()
        hint = "" if isinstance(feed.source, (list, tuple)) else f"; give X a {REMEDY}, which fit calls first"
        if feed.takes_epoch:
            hint = "; their order has to follow from the number that set_epoch gets, and from nothing else"
        return f"X: expected the same {position} batches, as in the fit that was interrupted, got others{hint}"

    def resume(self, state: FitState) -> None:
        """See FitLoop.resume."""
        super().resume(state)
        if state.batches is not None:
            self._count, self._position = state.batches["count"], state.batches["position"]
            self._opening, self._varies = state.batches["opening"], state.batches["varies"]
            self._weights = [state.batches["weights"]]
            self._targets = [] if state.batches["targets"] is None else [state.batches["targets"]]
            self.config.feed.open(self.trainer.epoch, self._count)

    def doubt(self, state: FitState) -> str | None:
        """See FitLoop.doubt."""
        if state.batches is None or not state.batches["varies"] or self.config.feed.takes_epoch:
            return None
        known = "X: the first batch differed between epochs, and it is not known how a new process goes on"
        return f"{known}: perhaps with other batches, and bits, than without the interruption; give X a {REMEDY}"


def _check_kind(loss: Loss, first: Array, targets: Array, where: str) -> None:
    """Raises ValueError unless the metrics of an epoch can take both targets together, as one array."""
    try:
        both = np.concatenate([first, targets])
    except (TypeError, ValueError) as error:
        expected, got = (f"{y.dtype} {('n', *y.shape[1:])}".replace("'", "") for y in (first, targets))
        why = "metrics take labels or numbers for a whole epoch, not both"
        raise ValueError(f"{where}: y: expected {expected}, as in the batches before, got {got}: {why}") from error
    if isinstance(loss, OutputLosses):
        try:
            loss.split(both)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
