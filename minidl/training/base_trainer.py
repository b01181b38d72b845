"""Learner: what a trainer knows and does in single steps, without epochs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from minidl.distributed.communicator import ALONE, Alone
from minidl.engine.network import Network
from minidl.engine.per_example import check_apart
from minidl.losses import Loss, checked_loss
from minidl.metrics import NAMES as METRICS
from minidl.metrics import Metric, is_scikits, measure
from minidl.optimizers.base import rate_at
from minidl.sequential import Sequential
from minidl.training import checked_attributes as checked
from minidl.training.consistency import check_data
from minidl.training.diagnosis import explain
from minidl.training.history import History
from minidl.training.labeled_data import Supervised
from minidl.training.per_example_steps import ClippedSteps
from minidl.training.sample_buffer import Kept
from minidl.training.steps import Batches, Steps, check_trainable, make_steps
from minidl.utils.arguments import CheckedAttribute
from minidl.utils.arrays import Array
from minidl.utils.data import Index
from minidl.utils.validation import check_bool, check_count, check_counter, check_limit
from minidl_c.optimizers.update import Update

TRIED = 256  # examples whose scores metrics of scikit-learn are tried with, before they are asked for


class Learner:
    """A model, a loss and an optimizer, and how far they have come. The arguments are those of Trainer."""

    model = CheckedAttribute(checked.model_of, checked.check_scores, "The model that is trained.")
    loss = CheckedAttribute(checked.loss_of, checked.check_scores, "What is minimized: a name or a function.")
    optimizer = CheckedAttribute(checked.optimizer_of, doc="What makes the steps.")
    metrics = CheckedAttribute(
        checked.metrics_of, doc="What is measured: functions by name, or what the constructor takes."
    )
    seed = CheckedAttribute(
        check_count, doc="The order of the examples, and all that is random in training, is a function of it."
    )
    num_threads = CheckedAttribute(
        checked.threads_of, doc="How many threads are used; None: as minidl.get_num_threads() says."
    )
    clip_norm = CheckedAttribute(
        check_limit, doc="The largest norm that a step's gradient, of all layers, may have; None: any."
    )
    clip_value = CheckedAttribute(
        check_limit, doc="The largest size that a number in a step's gradient may have; None: any."
    )
    per_example_clip_norm = CheckedAttribute(
        check_limit, doc="The largest norm that an example's gradient may have in a step; None: any."
    )
    epoch = CheckedAttribute(check_counter, doc="How many epochs were done so far.")
    should_stop = CheckedAttribute(check_bool, doc="True ends the fit after the hook that sets it.")
    history = CheckedAttribute(checked.history_of, doc="A dict of lists with an entry for each epoch.")

    def __init__(
        self,
        model: Sequential,
        loss: str | Loss,
        optimizer: Any,
        metrics: Sequence[str | Metric] = (),
        seed: int = 0,
        num_threads: int | None = None,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        per_example_clip_norm: float | None = None,
        distributed: Alone | None = None,
    ) -> None:
        self.model, self.optimizer, self.num_threads = model, optimizer, num_threads
        if distributed is not None and not isinstance(distributed, Alone):
            raise TypeError(f"distributed: expected a minidl.distributed.MPI() or None, got {distributed!r}")
        self.team = ALONE if distributed is None else distributed
        self.loss, self.metrics, self.seed = loss, metrics, seed
        self.clip_norm, self.clip_value, self.per_example_clip_norm = clip_norm, clip_value, per_example_clip_norm
        self.epoch = 0
        self.should_stop = False
        self.history = History()
        self.kept = Kept()
        self._count = np.zeros(1, np.int64)
        self._stepping = False
        self._steps: Steps | ClippedSteps | None = None
        self._parts: tuple[Any, ...] = ()  # what the steps were made of
        self._late: dict[int, int] = {}  # by the id of a layer: see `late`
        self._counted = 0  # the optimizer's steps that are in there

    @property
    def step(self) -> int:
        """How many steps were done so far."""
        return int(self._count[0])

    @step.setter
    def step(self, step: int) -> None:
        self._count[0] = check_counter("step", step)

    def train_batch(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """One step on this batch; returns its loss before the update. Every param.grad then is the divided gradient.

        Raises as fit, and ValueError for an empty batch.
        """
        with self.team.together():
            data = Supervised.accept(self.model, self.loss, X, y, sample_weight)
            if not len(data.used):
                raise ValueError("X: expected at least one example in a batch, got none")
            self.check_batch(len(data.used))
            self.check_trainable()
        check_data(self.team, data, self.step)
        with self.model.busy.training("train_batch"), self.stepping(), self.team.awaited():
            self.kept.keep_batch(self.task, data)
            batch = self.batches(data, data.used, len(data.used), team=self.team)
            self.run(batch)
        return data.mean(batch.losses, data.used)

    def evaluate(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> dict[str, float]:
        """The weighted mean loss and the metrics of the model as it is now: {"loss": ..., "accuracy": ...}."""
        data = Supervised.accept(self.model, self.loss, X, y, sample_weight)
        with self.model.busy.reading("evaluate"):
            return self.evaluated(data, data.used)

    # ---- for fit: data that was checked before

    def check_batch(self, size: int) -> None:
        """Raises ValueError, naming the layer, if no layer can be trained with a batch of so many examples."""
        self._network().check_batch(size)

    def check_trainable(self) -> None:
        """Raises ValueError if no step could change anything, or not as the layers ask for."""
        network = self._network()
        check_trainable(self.model, self.optimizer)
        if self.per_example_clip_norm is not None:
            check_apart(network)

    def check_metrics(self, data: Supervised) -> None:
        """Raises what ours would for these targets, and scikit-learn's for labels; a user's may remember calls."""
        targets = data.targets[data.used]
        scores = np.broadcast_to(
            np.zeros(self.model.output_shape, self.model.dtype), (len(targets), *self.model.output_shape)
        )
        for metric in (metric for metric in self.metrics.values() if metric in METRICS.values()):
            metric(targets, scores)
        theirs = {name: metric for name, metric in self.metrics.items() if is_scikits(metric)}
        if theirs and data.labels is not None:
            some = self.model.predict(data.examples.copy(data.used[:TRIED]), self.num_threads)
            with warnings.catch_warnings(action="ignore"):
                measure(theirs, targets, np.resize(some, scores.shape))

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """A context in which steps are done and noted: what a signal or a user's code sees in it is no whole state."""
        self._stepping = True
        try:
            yield
        finally:
            self._stepping = False

    @property
    def outputs(self) -> str:
        """What a fit keeps of each example: a loss, and if there are metrics scores."""
        return f"{self.model.dtype} {self.model.output_shape if self.metrics else 'loss'}"

    def check_between_steps(self, what: str) -> None:
        """Raises RuntimeError in the middle of a step."""
        if self._stepping:
            raise RuntimeError(f"{what}: a step is being done; call it between two steps, in the on_save of a callback")

    def steps(self, in_parts: bool = False) -> Steps | ClippedSteps:
        """How this model, loss and optimizer make their steps: made anew when one of them was exchanged.

        in_parts: whether steps see their micro-batches apart, if that makes a difference.
        """
        network = self._network()
        most = self.per_example_clip_norm
        parts = (network, self.optimizer, self.loss, network.trained, in_parts and network.couples, most)
        if self._steps is None or any(a is not b for a, b in zip(parts, self._parts, strict=True)):
            same = self._steps is not None and all(a is b for a, b in zip(parts[:2], self._parts[:2], strict=True))
            if same:
                self._count_late()
            else:
                self._late, self._counted = {}, 0
            self._parts = parts
            self._make_steps(self._steps.update if self._steps is not None and same else None)
        assert self._steps is not None
        self._steps.seed = self.seed
        return self._steps

    def _make_steps(self, update: Update | None) -> None:
        """Makes them anew; update: what the optimizer remembers, whatever is frozen now."""
        network, optimizer, loss, trained, in_parts, most = self._parts
        late = {key: replace(training, late=self._late.get(key, 0)) for key, training in trained.items()}
        steps = make_steps(self.model, loss, optimizer, self.seed, update, in_parts, late)
        self._steps = steps if most is None else ClippedSteps(steps, network, loss, most)

    def _count_late(self) -> None:
        """Counts, for layers that were frozen, the optimizer's steps that went by: its formulas do not know them."""
        update = self._steps.update if self._steps is not None else None
        if update is not None:
            network, trained = self._parts[0], self._parts[3]
            for leaf in (leaf for leaf in network.leaves if trained[id(leaf)].frozen):
                self._late[id(leaf)] = self._late.get(id(leaf), 0) + update.steps - self._counted
            self._counted = update.steps

    @property
    def late(self) -> list[int]:
        """For each layer that is no container, the optimizer's steps that went by while it was frozen."""
        self.steps()
        self._count_late()
        return [self._late.get(id(leaf), 0) for leaf in self._network().leaves]

    @late.setter
    def late(self, late: list[int]) -> None:
        update, leaves = self.steps().update, self._network().leaves
        most = 0 if update is None else update.steps
        if not isinstance(late, list) or len(late) != len(leaves) or any(check_count("late", n) > most for n in late):
            raise ValueError(f"late: expected for each of {len(leaves)} layers at most {most} steps")
        self._late, self._counted = {id(leaf): n for leaf, n in zip(leaves, late, strict=True)}, most
        self._make_steps(update)

    @property
    def task(self) -> tuple[object, ...]:
        """What the examples in `kept` were checked for; if one of these is exchanged, they are not used any more."""
        return self.model.network, self.loss

    def _network(self) -> Network:
        """The built model's network, as its layers are frozen now."""
        network = self.model.network
        assert network is not None
        network.refresh()
        return network

    def _rate(self, step: int) -> float:
        """The learning rate at a step, asked for as late as may be; raises for one that is none."""
        rate, dtype = rate_at(self.optimizer, step), self.model.dtype
        if rate > float(np.finfo(dtype).max):
            raise ValueError(f"lr: expected a number that {dtype} can hold, got {rate}")
        return rate

    def batches(
        self, data: Supervised, rows: Index, size: int, micro: int | None = None, team: Alone = ALONE
    ) -> Batches:
        """What the steps on these rows are given: `size` of them each, `micro` of these together (None: all)."""
        dtype = self.model.dtype
        return Batches(
            data.examples,
            data.targets,
            None if data.weights is None else data.weights.astype(dtype),
            rows,
            data.numbers(rows),
            size,
            micro if micro is not None and self._network().couples else size,
            self._rate,
            self._count,
            losses=np.zeros(len(rows), dtype),
            scores=np.zeros((len(rows), *self.model.output_shape), dtype) if self.metrics else None,
            team=team,
            clip={name: most for name in ("clip_norm", "clip_value") if (most := getattr(self, name)) is not None},
        )

    def run(self, batch: Batches) -> None:
        """Does these steps; raises FloatingPointError at the first that is not finite."""
        with batch.team.together():
            self.check_trainable()
            steps = self.steps(in_parts=batch.micro < batch.size)
        with batch.team.together() if not steps.shares else nullcontext():
            done = steps.run(batch, self.num_threads)
        if done < batch.steps:
            with batch.team.together():
                raise FloatingPointError(explain(self.model, self.loss, batch, done, self.seed, self.num_threads))

    def evaluated(
        self, data: Supervised, rows: Index, between: Callable[[], None] = lambda: None, team: Alone = ALONE
    ) -> dict[str, float]:
        """The loss and the metrics of these rows; calls `between` now and then. team: who does a part of them each."""
        step = data.examples.at_once
        scores = np.empty((len(rows), *self.model.output_shape), self.model.dtype)
        mine, ours = scores[team.part(len(rows))], rows[team.part(len(rows))]
        for start in range(0, -(-len(rows) // team.size), step):  # in all processes equally often
            here = slice(start, start + step)
            with team.together():
                mine[here] = self.model.predict(data.examples.copy(ours[here]), self.num_threads)
            between()
        team.gather_rows(scores)
        with team.together():
            targets = data.targets[rows]
            found = {"loss": data.mean(checked_loss(self.loss, scores, targets)[0], rows)}
            found.update(self.measured(targets, scores))
        return found

    def measured(self, targets: Array, scores: Array) -> dict[str, float]:
        """The metrics of these scores."""
        scores.flags.writeable = False
        return measure(self.metrics, targets, scores)

    def record(self, logs: dict[str, float]) -> None:
        """One more epoch in the history; every list has an entry for every epoch, NaN where a name was missing."""
        missing = [float("nan")] * len(self.history.get("epoch", []))
        for name in [*self.history, *(name for name in logs if name not in self.history)]:
            self.history.setdefault(name, list(missing)).append(logs.get(name, float("nan")))
        self.epoch += 1
