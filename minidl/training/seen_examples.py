"""SeenExamples: what an epoch, or an evaluation, keeps of its examples to report losses and metrics of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from minidl.distributed.communicator import Communicator
from minidl.losses import Loss
from minidl.losses.output_losses import OutputLosses
from minidl.metrics import Metric
from minidl.training.measurement import CountsByName, added, counts_of, is_counted, measure_outputs
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape

PENDING = 2**18  # scores that wait to be counted together: a count of few takes longer than a small step


def keeps_scores(loss: Loss, metrics: Mapping[str, Metric]) -> bool:
    """Whether the scores of all examples are kept: for metrics that do not count, and for losses of several outputs."""
    return isinstance(loss, OutputLosses) or not all(map(is_counted, metrics.values()))


class SeenExamples:
    """The losses of examples, in their order; counts of the metrics that count; scores, if others need them.

    shape, dtype: of an example's scores. The loss and the metrics stay those of its beginning.
    """

    def __init__(self, loss: Loss, metrics: Mapping[str, Metric], shape: Shape, dtype: str) -> None:
        self._loss, self._metrics, self._none = loss, dict(metrics), np.empty((0, *shape), dtype)
        self._counts_any = any(map(is_counted, metrics.values()))
        self.keeps_scores = keeps_scores(loss, metrics)
        self._losses = [np.empty(0, dtype)]
        self._scores = [self._none] if self.keeps_scores else []
        self._counts = CountsByName()
        self._pending: list[tuple[Array, Array]] = []  # targets and scores that are not counted yet
        self._wrong: TypeError | ValueError | None = None  # what a metric said to targets of a step that is done
        self.count = 0

    @property
    def reads_scores(self) -> bool:
        """Whether it needs the scores of each step."""
        return self.keeps_scores or self._counts_any

    def restore(self, losses: Array, scores: Array | None, counts: CountsByName) -> None:
        """Takes what another one had."""
        self._losses, self._scores = [losses], [] if scores is None else [scores]
        self._counts, self.count = counts, len(losses)

    def append(self, losses: Array, scores: Array | None, targets: Callable[[], Array]) -> None:
        """Adds more examples; scores: as it reads them. For targets that a metric refuses, `logs` raises."""
        self._losses.append(losses)
        self.count += len(losses)
        if scores is None or not len(losses):
            return
        if self.keeps_scores:
            self._scores.append(scores)
        if self._counts_any:
            self._pending.append((np.asarray(targets()), scores))
            if sum(waiting.size for _, waiting in self._pending) > PENDING:
                self._count_pending()

    def _count_pending(self) -> None:
        pending, self._pending = self._pending, []
        kinds = {(targets.shape[1:], targets.dtype, scores.shape[1:]) for targets, scores in pending}
        if len(kinds) == 1:
            pending = [(np.concatenate([one[0] for one in pending]), np.concatenate([one[1] for one in pending]))]
        try:
            for targets, scores in pending:
                self._counts = added(self._counts, counts_of(self._loss, self._metrics, targets, scores))
        except (TypeError, ValueError) as error:
            self._wrong, self._counts = self._wrong or error, {}

    @property
    def counts(self) -> CountsByName:
        """The counts of the metrics that count; none if a metric has refused targets."""
        self._count_pending()
        return self._counts

    @property
    def losses(self) -> Array:
        """The losses, an array of shape (count,)."""
        return np.concatenate(self._losses)

    @property
    def scores(self) -> Array | None:
        """The scores, an array of shape (count, *output_shape); None unless all are kept."""
        return np.concatenate(self._scores) if self._scores else None

    def gather(self, comm: Communicator, n: int, no_targets: Array) -> None:
        """Gathers in all processes what each has seen of its `local_slice` of n examples."""
        if comm.size > 1 or not n:
            counts = counts_of(self._loss, self._metrics, no_targets, self._none)
            self._counts = added(counts, self.counts or counts)  # also in a process without examples
        if comm.size == 1:
            return
        with comm.raise_together():
            self._raise_wrong()
        self._losses, scores = [_gathered(comm, self.losses.astype(np.float64), n)], self.scores
        self._scores = [] if scores is None else [_gathered(comm, scores, n)]
        self._counts = {
            name: _gathered(comm, own[np.newaxis], comm.size).sum(axis=0) for name, own in self.counts.items()
        }

    def logs(self, targets: Callable[[], Array], mean: Callable[[Array], float]) -> dict[str, float]:
        """Returns the mean loss, the losses of several outputs, and the metrics, by names such as "policy_accuracy".

        targets: those of all examples, for metrics that do not count. mean: the mean of losses (count,). Raises
        TypeError or ValueError for what a metric refuses.
        """
        logs, scores, counts = {"loss": mean(self.losses)}, self.scores, self.counts
        self._raise_wrong()
        if scores is None:
            return logs | measure_outputs(self._loss, self._metrics, counts)
        scores.flags.writeable = False
        y = np.asarray(targets())
        if isinstance(self._loss, OutputLosses):
            of_loss = scores.astype(np.result_type(y.dtype, scores.dtype), copy=False)
            logs |= {f"{name}_loss": mean(losses) for name, losses, _ in self._loss.each(of_loss, y)}
        return logs | measure_outputs(self._loss, self._metrics, counts, y, scores)

    def _raise_wrong(self) -> None:
        if self._wrong is not None:
            raise self._wrong


def _gathered(comm: Communicator, rows: Array, n: int) -> Array:
    """Returns n rows, of which each process has its `local_slice`."""
    whole = np.empty((n, *rows.shape[1:]), rows.dtype)
    whole[comm.local_slice(n)] = rows
    comm.allgather_rows(whole)
    return whole
