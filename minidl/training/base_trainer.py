"""BaseTrainer: a trainer without epochs: single steps, evaluation and the record of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from minidl.distributed.communicator import SINGLE_PROCESS, Communicator
from minidl.engine.network import Network
from minidl.engine.per_example import check_no_coupling
from minidl.engine.pixel_targets import check_movable
from minidl.engine.probabilities import link_of, one_output, predicted_probabilities
from minidl.engine.views import Views
from minidl.losses import Loss
from minidl.losses.output_losses import OutputLosses, bound, by_output
from minidl.metrics import Metric
from minidl.optimizers.base import rate_at
from minidl.sequential import Sequential
from minidl.training import checked_attributes as checked
from minidl.training.batch_feed import BatchFeed
from minidl.training.consistency import check_data
from minidl.training.diagnosis import explain
from minidl.training.evaluation import evaluate_rows
from minidl.training.history import History
from minidl.training.labeled_data import LabeledData
from minidl.training.measurement import is_counted
from minidl.training.moved_targets import with_moved_targets
from minidl.training.per_example_steps import ClippedSteps
from minidl.training.repeated_steps import RepeatedSteps
from minidl.training.sample_buffer import SampleBuffer
from minidl.training.seen_examples import SeenExamples, keeps_scores
from minidl.training.signals import Signals
from minidl.training.step_cache import StepCache, StepKey
from minidl.training.steps import StepBatches, Steps, check_trainable
from minidl.training.trained_network import TrainedNetwork
from minidl.utils.arrays import Array
from minidl.utils.constructors import Validated
from minidl.utils.data import ArraySource, Index, shape_of_examples
from minidl.utils.errors import InputError
from minidl.utils.foreign_words import TRAINER
from minidl.utils.hints import answers, class_hint, known_arguments
from minidl.utils.validation import Shape, check_bool, check_count, check_counter, check_limit

Targets = ArrayLike | Mapping[str, ArrayLike]


@answers(TRAINER)
class BaseTrainer:
    """A model, a loss and an optimizer, and the state of their training. The arguments are those of Trainer."""

    model = Validated(checked.model_of, checked.check_outputs, "The model that is trained.")
    loss = Validated(checked.loss_of, checked.check_outputs, "The loss that is minimized; of several outputs, theirs.")
    optimizer = Validated(checked.optimizer_of, doc="The optimizer that makes the steps.")
    metrics = Validated(checked.metrics_of, checked.check_outputs, "Metric functions by name, as in the constructor.")
    seed = Validated(check_count, doc="The seed of the order of the examples and of everything random in training.")
    num_threads = Validated(checked.threads_of, doc="The number of threads; None: minidl.get_num_threads().")
    clip_norm = Validated(check_limit, doc="The maximum norm of a step's gradient, over all layers; None: no limit.")
    clip_value = Validated(check_limit, doc="The maximum absolute value in a step's gradient; None: no limit.")
    per_example_clip_norm = Validated(
        check_limit, doc="The maximum norm of an example's gradient in a step; None: no limit."
    )
    epoch = Validated(check_counter, doc="The number of epochs completed so far.")
    should_stop = Validated(check_bool, doc="True ends the fit after the hook that sets it.")
    history = Validated(checked.history_of, doc="A dict of lists with an entry for each epoch.")

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
        distributed: Communicator | None = None,
        loss_weights: Mapping[str, float] | None = None,
    ) -> None:
        self.model, self.optimizer, self.num_threads = model, optimizer, num_threads
        if distributed is not None and not isinstance(distributed, Communicator):
            raise TypeError(
                f"distributed: expected a minidl.distributed.MPI() or None, "
                f"got {distributed!r}{class_hint(distributed)}"
            )
        self.comm = SINGLE_PROCESS if distributed is None else distributed
        self.loss = loss
        if loss_weights is not None:
            self.loss_weights = loss_weights
        self.metrics, self.seed = metrics, seed
        self.clip_norm, self.clip_value, self.per_example_clip_norm = clip_norm, clip_value, per_example_clip_norm
        self.epoch, self.should_stop = 0, False
        self.history = History()
        self.sample_buffer = SampleBuffer()
        self.refused_feed: BatchFeed | None = None  # the feed of a fit that was refused after it had read a batch
        self.step_counter = np.zeros(1, np.int64)
        self._stepping, self._repeated = False, RepeatedSteps()
        self.step_cache = StepCache()
        self._trained = TrainedNetwork()
        self._checked: tuple[object, ...] = (None, None, None)  # what check_trainable last accepted

    @property
    def step(self) -> int:
        """The number of steps completed so far."""
        return int(self.step_counter[0])

    @step.setter
    def step(self, step: int) -> None:
        self.step_counter[0] = check_counter("step", step)

    @property
    def loss_weights(self) -> Mapping[str, float] | None:
        """The weights of the losses of several outputs, by name; None for one output. Setting it makes other losses.

        What it returns is read-only: set the attribute to a dict.
        """
        return MappingProxyType(self.loss.weights) if isinstance(self.loss, OutputLosses) else None

    @loss_weights.setter
    def loss_weights(self, weights: Mapping[str, float] | None) -> None:
        if not isinstance(self.loss, OutputLosses):
            raise ValueError("loss_weights: expected None, as the model has one output, got weights")
        self.loss = by_output(self.loss.losses, weights)

    def train_batch(self, X: ArrayLike, y: Targets, sample_weight: ArrayLike | None = None) -> float:
        """Makes a step on this batch; returns the loss before it.

        Every `param.grad` is then the gradient of the step, of the mean loss, after clipping.

        Parameters
        ----------
        X : array-like or sparse matrix of shape `(n, *input_shape)`
            The examples of the step.
        y : array-like of shape (n, ...)
            Targets, as the loss takes them.
        sample_weight : array-like of shape (n,) or None, default None
            A weight for each example; those of weight 0 count as absent.

        Returns
        -------
        float
            Weighted mean loss of the batch before the step.

        Raises
        ------
        InputError
            If X, y or weights are invalid or inconsistent, or if the batch is empty.
        FloatingPointError
            If a loss or gradient is NaN or infinite: before the update, so the weights stay.
        RuntimeError
            If another thread uses the model.

        Examples
        --------
        >>> from minidl import Sequential, Trainer
        >>> from minidl.layers import Dense
        >>> from minidl.optimizers import SGD
        >>> model = Sequential([Dense(1)], input_shape=(1,), dtype="float64")
        >>> model.load_state_dict({"0.weight": [[0]], "0.bias": [0]})
        >>> trainer = Trainer(model, "mean_squared_error", SGD(0.25))
        >>> trainer.train_batch([[1], [3]], [2, 2])
        4.0
        >>> model.params["0.weight"].grad, model.params["0.weight"].value
        (array([[-8.]]), array([[2.]]))
        """
        if self.comm.size == 1:
            loss = self._repeated.run(self, X, y, sample_weight)
            return self._train_batch(X, y, sample_weight) if loss is None else loss
        with Signals() as signals:  # between two steps, on all ranks: none waits for a rank that a signal has stopped
            loss = self._train_batch(X, y, sample_weight)
            signals.check(lambda: None, self.comm)
        return loss

    def _train_batch(self, X: ArrayLike, y: Targets, sample_weight: ArrayLike | None) -> float:
        with self.comm.raise_together():
            data = LabeledData.from_arrays(self.model, self.loss, X, y, sample_weight).for_steps()
            if not len(data.active_rows):
                raise InputError("X: expected at least one example in a batch, got none")
            self.network.check_batch(len(data.active_rows))
            self.check_trainable()
            self.check_targets(data)
        check_data(self.comm, data, self.step)
        with self.model.usage.training("train_batch"), self.stepping(), self.comm.abort_on_error():
            if self.sample_buffer.takes_next():
                self.sample_buffer.keep_batch(self.sample_key, data)
            batch = self.run(self.batches(data, data.active_rows, len(data.active_rows), comm=self.comm))
            self._repeated.remember(self, X, y)
        return data.mean(batch.losses, data.active_rows)

    @known_arguments
    def evaluate(self, X: ArrayLike, y: Targets, sample_weight: ArrayLike | None = None) -> dict[str, float]:
        """Returns the weighted mean loss and the metrics of the model as it is now.

        Parameters
        ----------
        X : array-like or sparse matrix of shape `(n, *input_shape)`
            Real numbers, or 2-D rows of the same size.
        y : array-like of shape (n, ...)
            Targets, as the loss takes them.
        sample_weight : array-like of shape (n,) or None, default None
            A weight for each example in the loss; those of weight 0 count as absent. Metrics have no weights.

        Returns
        -------
        dict of str to float
            "loss", and the metrics by name.

        Raises
        ------
        InputError
            If X, y or weights are invalid or inconsistent.
        RuntimeError
            If another thread trains the model.

        Examples
        --------
        >>> from minidl import Sequential, Trainer
        >>> from minidl.layers import Dense
        >>> from minidl.optimizers import SGD
        >>> model = Sequential([Dense(1)], input_shape=(1,))
        >>> model.load_state_dict({"0.weight": [[1]], "0.bias": [0]})
        >>> trainer = Trainer(model, "mean_squared_error", SGD(0.1), metrics=["mae"])
        >>> trainer.evaluate([[1], [2]], [1, 4])
        {'loss': 2.0, 'mae': 1.0}
        """
        sized = self if self.model.sizes is None else self.at(shape_of_examples(X))
        data = LabeledData.from_arrays(sized.model, sized.loss, X, y, sample_weight)
        with self.model.usage.reading("evaluate"):
            return sized.evaluate_rows(data, data.active_rows)

    @known_arguments
    def predict(self, X: ArrayLike, views: Views | None = None) -> Any:
        """Returns the scores of the model as it is now, as `Sequential.predict`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape `(n, *input_shape)`
            Real numbers, or 2-D rows of the same size.
        views : "flip", "flip+shift", callable or None, default None
            As for `Sequential.predict`.

        Returns
        -------
        array of shape `(n, *output_shape)`, or dict of arrays
            Scores in the dtype of the model; of several `Outputs`, by name.

        Raises
        ------
        TypeError, ValueError, RuntimeError
            As `Sequential.predict`.
        """
        return self.model.predict(X, self.num_threads, views)

    @known_arguments
    def predict_proba(self, X: ArrayLike, output: str | None = None, views: Views | None = None) -> Array:
        """Returns probabilities, as the loss makes them of the scores.

        With softmax_cross_entropy, they are the softmax of the scores. With binary_cross_entropy, they are the sigmoid
        of each score; for a single score s, the two columns are 1 - sigmoid(s) and sigmoid(s). A loss of your own says
        what it applies by its attribute `applies`, "Softmax" or "Sigmoid".

        Parameters
        ----------
        X : array-like or sparse matrix of shape `(n, *input_shape)`
            Real numbers, or 2-D rows of the same size.
        output : str or None, default None
            The name of one of several `Outputs`, which has a loss.
        views : "flip", "flip+shift", callable or None, default None
            As for `Sequential.predict`: the probabilities of mean scores.

        Returns
        -------
        array of shape (n, classes)
            Probabilities in the dtype of the model. Each row sums to 1, except those of several independent labels.

        Raises
        ------
        InputError, TypeError, ValueError, RuntimeError
            As `Sequential.predict_proba`; ValueError also for a loss without probabilities, such as mean_squared_error,
            and if the outputs are not of shape (classes,).

        Examples
        --------
        Scores of two independent labels:

        >>> from minidl import Sequential, Trainer
        >>> from minidl.layers import Dense
        >>> from minidl.optimizers import SGD
        >>> model = Sequential([Dense(2)], input_shape=(1,), dtype="float64")
        >>> model.load_state_dict({"0.weight": [[0.0], [1.0]], "0.bias": [0.0, 0.0]})
        >>> Trainer(model, "binary_cross_entropy", SGD(0.1)).predict_proba([[0.0], [5.0]]).round(3)
        array([[0.5  , 0.5  ],
               [0.5  , 0.993]])
        """
        _ = self.model.output_shape  # raises
        layers, shape = one_output("predict_proba", self.network, output)
        loss = self.loss.losses[output] if isinstance(self.loss, OutputLosses) and output is not None else self.loss
        link, scores = link_of("predict_proba", layers, shape, loss), self.predict(X, views)
        return predicted_probabilities(scores if output is None else scores[output], link, self.network)

    def at(self, shape: Shape) -> Self:
        """Returns the trainer for examples of one shape: itself, unless the model takes images of any size.

        Parameters
        ----------
        shape : tuple of int
            Shape of one example.

        Returns
        -------
        BaseTrainer
            A trainer of the model of that size, which shares everything else with this one.

        Raises
        ------
        ValueError
            If the model cannot take this shape.
        """
        if self.model.sizes is None:
            return self
        sized = object.__new__(type(self))
        vars(sized).update(vars(self), model=self.model.at(shape))
        vars(sized)["loss"] = bound(self.loss, sized.model)
        return sized

    # ---- for fit: data that was checked before

    def check_trainable(self) -> None:
        """Raises ValueError if no step could change a parameter, or not with the rates of the layers.

        Raises
        ------
        ValueError
            If there is nothing to train, or if layers couple examples that `per_example_clip_norm` clips.
        """
        network = self.network
        what = network.trained, self.optimizer, self.per_example_clip_norm
        if all(a is b for a, b in zip(what, self._checked, strict=True)):
            return
        check_trainable(network, self.optimizer)
        if self.per_example_clip_norm is not None:
            check_no_coupling(network)
        self._checked = what

    def check_targets(self, data: LabeledData) -> None:
        """Raises TypeError or ValueError, naming the layer, if it moves pixels, but cannot move their targets.

        Parameters
        ----------
        data : LabeledData
            Checked data to train on.

        Raises
        ------
        TypeError, ValueError
            If the targets of pixels would not be those of the pixels any more.
        """
        check_movable(self.network, self.loss, data.targets, data.active_rows)

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """Returns a context in which steps run: signal handlers and a user's code see an inconsistent state in it.

        Returns
        -------
        context manager
            For a `with` statement.
        """
        self._stepping = True
        try:
            yield
        finally:
            self._stepping = False

    @property
    def keeps_scores(self) -> bool:
        """Whether a fit keeps the scores of an epoch: for losses of several outputs, and metrics that do not count."""
        return keeps_scores(self.loss, self.metrics)

    @property
    def outputs(self) -> str:
        """Describes what a fit keeps: the loss of each example, scores if `keeps_scores`, and counts of metrics."""
        shape: Any = self.loss.layout.shapes if isinstance(self.loss, OutputLosses) else self.network.out_shape
        counted = ", ".join(name for name, metric in self.metrics.items() if is_counted(metric))
        return f"{self.model.dtype} {shape if self.keeps_scores else 'loss'}{counted and f', counts of {counted}'}"

    def nothing_seen(self) -> SeenExamples:
        """Returns the record of an epoch, or of an evaluation, before its first example.

        Returns
        -------
        SeenExamples
            A new one.
        """
        return SeenExamples(self.loss, self.metrics, self.network.out_shape, self.model.dtype)

    def check_between_steps(self, what: str) -> None:
        """Raises RuntimeError in the middle of a step.

        Parameters
        ----------
        what : str
            Name of the caller, for the message.

        Raises
        ------
        RuntimeError
            If a step is being done.
        """
        if self._stepping:
            raise RuntimeError(f"{what}: a step is being done; call it between two steps, in the on_save of a callback")

    def steps(self, in_parts: bool = False) -> Steps | ClippedSteps:
        """Returns the steps of this model, loss and optimizer.

        Parameters
        ----------
        in_parts : bool, default False
            Whether steps see their micro-batches one by one, if that makes a difference.

        Returns
        -------
        Steps or ClippedSteps
            An object whose `run` does steps.
        """
        network, of_model = self.network, self.model.network
        assert of_model is not None
        in_parts, max_norm = in_parts and network.couples_examples, self.per_example_clip_norm
        key = StepKey(network, of_model, self.optimizer, self.loss, network.trained, in_parts, max_norm)
        return self.step_cache.get(self.model, key, self.seed)

    @property
    def skipped_steps(self) -> list[int]:
        """For each layer that is not a container, the number of optimizer steps made while it was frozen."""
        self.steps()
        return self.step_cache.skipped_steps()

    @skipped_steps.setter
    def skipped_steps(self, skipped: list[int]) -> None:
        self.steps()
        self.step_cache.set_skipped_steps(self.model, self.seed, skipped)

    @property
    def sample_key(self) -> tuple[object, ...]:
        """The weights and loss that the samples were checked with; if one is replaced, they are no longer used."""
        assert self.model.network is not None
        return self.model.network.parameters.values, self.loss

    @property
    def network(self) -> Network:
        """The network that steps train, of a built model: that of the model, without outputs that have no loss."""
        return self._trained.of(self.model, self.loss)

    def scores_of(self, examples: ArraySource, rows: Index) -> Array:
        """Returns the scores of some examples, of several outputs as one array.

        Parameters
        ----------
        examples : ArraySource
            Checked examples.
        rows : array of int64
            Indices of some of them.

        Returns
        -------
        array of shape `(n, *out_shape)` of the network
            Its outputs.
        """
        source = ArraySource(examples.gather_copy(rows), self.model.input_shape, self.model.dtype, check=False)
        return self.network.predict_all(source, self.num_threads)

    def rate_at(self, step: int) -> float:
        """Returns the learning rate at a step.

        Parameters
        ----------
        step : int
            Number of steps before it.

        Returns
        -------
        float
            A rate that the model's dtype can hold.

        Raises
        ------
        TypeError, ValueError
            For one that is invalid.
        """
        return rate_at(self.optimizer, step, self.model.dtype)

    def batches(
        self,
        data: LabeledData,
        rows: Index,
        size: int,
        micro: int | None = None,
        comm: Communicator = SINGLE_PROCESS,
        reads_scores: bool = False,
    ) -> StepBatches:
        """Returns the batches of steps on these rows.

        Parameters
        ----------
        data : LabeledData
            Checked examples, targets and weights.
        rows : array of int64
            Indices of the examples, in order.
        size : int
            Number of examples in a step.
        micro : int or None, default None
            Number of examples in a micro-batch; None: all of a step.
        comm : Communicator, default SINGLE_PROCESS
            The processes that do each step together.
        reads_scores : bool, default False
            Whether the steps also return their scores.

        Returns
        -------
        StepBatches
            The arguments of `run`.
        """
        dtype = self.model.dtype
        assert data.weights is None or data.step_weights is not None
        return StepBatches(
            examples=data.examples,
            targets=data.targets,
            weights=data.step_weights,
            rows=rows,
            example_ids=data.example_ids(rows),
            source_rows=rows,
            batch_size=size,
            micro_batch_size=micro if micro is not None and self.network.couples_examples else size,
            rate_at=self.rate_at,
            rate_varies=callable(getattr(self.optimizer, "lr", None)),
            step_counter=self.step_counter,
            losses=np.zeros(len(rows), dtype),
            scores=np.zeros((len(rows), *self.network.out_shape), dtype) if reads_scores else None,
            labeled=data.labeled,
            comm=comm,
            clip={name: limit for name in ("clip_norm", "clip_value") if (limit := getattr(self, name)) is not None},
        )

    def run(self, batch: StepBatches) -> StepBatches:
        """Runs these steps. Targets of pixels move with the pixels that layers move.

        Parameters
        ----------
        batch : StepBatches
            What `batches` returned.

        Returns
        -------
        StepBatches
            The same steps, with the targets that they had.

        Raises
        ------
        FloatingPointError
            At the first step that is not finite.
        """
        with batch.comm.raise_together():
            self.check_trainable()
            batch = with_moved_targets(batch, self.network, self.loss, self.seed, self.num_threads)
            steps = self.steps(in_parts=batch.micro_batch_size < batch.batch_size)
            batch.comm.mark(self.step)
        self.model.changes += 1
        with batch.comm.raise_together() if not steps.is_distributable else nullcontext():
            done = steps.run(batch, self.num_threads)
            batch.comm.mark(self.step)
        if done < batch.steps:
            with batch.comm.raise_together():
                raise FloatingPointError(explain(self.network, self.loss, batch, done, self.seed, self.num_threads))
        return batch

    def evaluate_rows(
        self,
        data: LabeledData,
        rows: Index,
        between: Callable[[], None] = lambda: None,
        comm: Communicator = SINGLE_PROCESS,
    ) -> dict[str, float]:
        """Returns loss and metrics of these rows.

        Parameters
        ----------
        data : LabeledData
            Checked examples, targets and weights.
        rows : array of int64
            Indices of the examples.
        between : callable, default does nothing
            It is called repeatedly.
        comm : Communicator, default SINGLE_PROCESS
            The processes that share the rows.

        Returns
        -------
        dict of str to float
            As `evaluate`.
        """
        return evaluate_rows(self, data, rows, between, comm)
