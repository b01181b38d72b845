"""The loss and the metrics of examples, chunk by chunk: only what metrics need is kept of their scores."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from minidl.distributed.communicator import Communicator
from minidl.engine.pixel_targets import at_rest
from minidl.losses import checked_loss
from minidl.training.labeled_data import LabeledData
from minidl.utils.data import Index


def evaluate_rows(
    trainer: Any, data: LabeledData, rows: Index, between: Callable[[], None], comm: Communicator
) -> dict[str, float]:
    """Returns what BaseTrainer.evaluate_rows does."""
    step, dtype, local = data.examples.chunk_size, trainer.model.dtype, comm.local_slice(len(rows))
    targets = data.reported_targets(rows)
    seen = trainer.nothing_seen()
    for start in range(local.start, local.start - (-len(rows) // comm.size), step):  # as often in all processes
        here = slice(start, min(start + step, local.stop))
        with comm.raise_together():
            scores = trainer.scores_of(data.examples, rows[here])
            y = at_rest(trainer.network, trainer.loss, targets[here], trainer.num_threads)
            of_loss = scores if targets.dtype == data.targets.dtype else scores.astype(targets.dtype)
            losses = checked_loss(trainer.loss, of_loss, y)[0] if len(y) else np.empty(0, dtype)
            seen.append(losses, scores, partial(np.asarray, y))
        between()
    seen.gather(comm, len(rows), targets[:0])
    with comm.raise_together():
        whole = partial(at_rest, trainer.network, trainer.loss, targets, trainer.num_threads)
        return seen.logs(whole, partial(data.mean, rows=rows))
