"""Trainer: fits a model to data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any

from numpy.typing import ArrayLike

from minidl.callbacks.callback_list import CallbackList
from minidl.distributed.communicator import Communicator
from minidl.saving import safetensors_file
from minidl.saving.atomic import Path, clean, text
from minidl.saving.object_codec import checked_custom
from minidl.sequential import Sequential
from minidl.training import checked_attributes as checked
from minidl.training import checkpoint_content
from minidl.training.base_trainer import BaseTrainer
from minidl.training.consistency import check_call
from minidl.training.fit_arguments import make_loop
from minidl.training.fit_loop import FitLoop
from minidl.training.fit_record import FitRecord
from minidl.training.fit_state import FitState
from minidl.training.history import History
from minidl.training.per_example import per_example_gradients
from minidl.training.progress import Progress
from minidl.training.report import report
from minidl.training.report.findings import Findings
from minidl.training.signals import Signals
from minidl.utils.arrays import Array
from minidl.utils.hints import known_arguments
from minidl.utils.validation import check_int


class Trainer(BaseTrainer):
    """Fits a model to data: epochs, shuffling, validation, history, checkpoints.

    loss: a name such as "softmax_cross_entropy", an object of minidl.losses such as Huber(2.0), or a function
        `loss(scores, y) -> (losses, dscores)`.
    optimizer: such as SGD(0.1), or an object with `step(params, lr)` and `lr`.
    metrics: names ("accuracy"; see minidl.metrics) or functions f(y, scores), computed on the scores of a whole epoch;
        in training these are the scores that each batch had before its step, so they trail those of `evaluate`.
        Labels that the loss ignores count in none of minidl's or scikit-learn's; other functions get them as well.
    seed: the order of the examples is a function of it and the epoch.
    clip_norm, clip_value: the largest norm of a step's gradient (over all layers), and the largest absolute value of
        its elements; None: any. Values are clipped first (torch.nn.utils.clip_grad_value_, clip_grad_norm_).
    per_example_clip_norm: C, the largest norm of each example's own gradient, before they are summed (as in Abadi et
        al. 2016, arXiv:1607.00133, without its noise): sum(weight_i * min(1, C / norm_i) * gradient_i) / sum(weight_i),
        norm_i being that of gradient_i, without the weight. A pass for the norms comes before each step. Layers must
        not couple examples, as batch norm does.
    num_threads: None leaves it to minidl.get_num_threads() at each call.
    distributed: minidl.distributed.MPI(): all ranks of the job share each step. Call fit and train_batch in all of
        them, with the same arguments; everything else runs in each rank by itself, except that only rank 0 prints,
        writes checkpoints and has callbacks with rank_zero_only.

    A step's gradient is sum(weight_i * gradient_i) / sum(weight_i). `step` and `epoch` are the numbers of steps and
    epochs so far; `history` is a History, a dict of lists with an entry for each epoch; its `plot` draws them.
    """

    @cached_property
    def _fits(self) -> FitRecord:
        return FitRecord()

    @known_arguments
    def fit(
        self,
        X: ArrayLike | Iterable[Any],
        y: ArrayLike | None = None,
        epochs: int = 1,
        *,
        batch_size: int = 64,
        validation_data: tuple[ArrayLike, ...] | None = None,
        validation_split: float = 0.0,
        shuffle: bool = True,
        sample_weight: ArrayLike | None = None,
        class_weight: dict[int, float] | str | None = None,
        callbacks: Iterable[Any] = (),
        verbose: int | None = None,
        gradient_accumulation_steps: int = 1,
        mixup: float = 0.0,
        steps_per_epoch: int | None = None,
    ) -> History:
        """Trains `epochs` more epochs and returns the history: epoch, loss, metrics, val_*, lr, images_per_second.

        X (n, *input_shape), or 2-D of the same width; y (n, ...), as the loss takes it. Builds an unbuilt model for X.
        Without y, X gives batches (X, y) or (X, y, sample_weight), each of which is a step: an iterable, which each
        epoch reads again, or an iterator (see docs/how-to/data.md). Arguments about single examples must then be left out.
        batch_size: the number of examples in a step. An epoch sees every example once, the last partial batch included.
        shuffle: whether each epoch draws another order of the examples; it depends on the trainer's seed.
        sample_weight (n,): a weight for each example; those of weight 0 count as absent. class_weight: a dict of
            weights by label, or "balanced"; both multiply.
        validation_data: (X, y) or (X, y, sample_weight) to evaluate on after each epoch.
        validation_split: the fraction of the examples to hold out for that: random rows, stratified for labels.
        gradient_accumulation_steps: the number of batches whose gradients are summed for one step. It equals a step on
            one large batch, bit for bit, and needs as much memory, unless layers with batch statistics or in NumPy see
            each batch alone.
        mixup: alpha; above 0, each step trains on mixtures lambda a + (1 - lambda) b of its examples a with others of
            the step, and of their targets and weights, lambda ~ Beta(alpha, alpha) (Zhang et al. 2018,
            arXiv:1710.09412). Labels are mixed as one-hot rows. Metrics of training compare the scores of a mixture
            with the label of its larger part. No augmentation comes before it.
        steps_per_epoch: the number of batches of an epoch, with an X of batches; several epochs of an iterator need it.
        callbacks: objects with hooks, called in this order: see minidl.callbacks.
        verbose: 0 prints nothing, 1 a line for each epoch, 2 also a bar; None: 2 on a terminal, else 1.

        The next fit with the same arguments completes an interrupted one. After `resume`, others are rejected.
        Ctrl-C and SIGTERM act between two steps; SIGTERM first calls the on_terminate of callbacks.

        Raises TypeError or ValueError before the first step for invalid or inconsistent arguments, FloatingPointError
        if a loss or gradient becomes NaN or infinite: before that step's update, so the last good weights stay. The
        message names the layer, the tensor and the examples. RuntimeError while another thread uses the model.
        """
        options = {
            "batch_size": batch_size,
            "validation_split": validation_split,
            "shuffle": shuffle,
            "sample_weight": sample_weight,
            "class_weight": class_weight,
            "gradient_accumulation_steps": gradient_accumulation_steps,
            "mixup": mixup,
        }
        was_unbuilt = self.model.network is None
        with self.model.unbuilt_on_error():
            with self.comm.raise_together():
                is_first = self.comm.rank == 0
                epochs = check_int("epochs", epochs, minimum=0)
                hooks = CallbackList(callbacks, is_first)
                progress = Progress(verbose if is_first else 0, epochs)
                loop = make_loop(self, X, y, epochs, validation_data, steps_per_epoch, options, hooks, progress)
            self._check_ranks_agree(loop)
        running = self._fits.session(loop, was_unbuilt)
        with self.model.usage.training("fit"), self.comm.abort_on_error(), running, Signals() as signals:
            loop.begin()
            loop.run(signals)
        return self.history

    def _check_ranks_agree(self, loop: FitLoop) -> None:
        """Raises ValueError in all processes unless they are about to do the same fit."""
        if self.comm.size > 1:
            state = self._fits.state(self.step)
            where = None if state is None else [state.step, state.epochs_done, state.in_epoch]
            facts = {**loop.arguments, "interrupted fit": where}
            check_call(self.comm, facts, loop.callbacks, *checkpoint_content.describe_trainer(self))

    # ---- inspection

    def report(self, X: ArrayLike | None = None, y: ArrayLike | None = None) -> Findings:
        """Prints what looks wrong with the training, and returns the findings: a list, empty if nothing does.

        It examines the history, a few hundred examples of the last fit or train_batch (or X and y, as fit takes them),
        and a step on copies of layers and optimizer. Nothing changes: training goes on with the same bits. In a
        callback it reports on the running fit so far. The thresholds stand in training/report/thresholds.py.

        Raises ValueError for a model that is not built, and without X and y if nothing was trained (after `resume`,
        for example); TypeError or ValueError for X and y as evaluate; TypeError for layers, a loss or an optimizer of
        yours that cannot be copied; RuntimeError in the middle of a step, and while another thread trains.
        """
        return report(self, X, y)

    def per_example_gradients(
        self,
        X: ArrayLike,
        y: ArrayLike,
        layers: int | str | Sequence[int | str] | None = None,
        reduce: str | None = None,
        sample_weight: ArrayLike | None = None,
        training: bool = True,
    ) -> dict[str, Array]:
        """Returns the gradients of each example's weight_i * loss_i, by the names of `model.params`; changes nothing.

        Each array has the shape (n, *param.value.shape), in the model's dtype; rows of weight 0 are zeros, and values
        that are not finite stay in their rows. `minidl.batch_sum` sums the rows as a step does.
        training: True: with the random numbers that train_batch would draw now for the same batch, by position in it;
            False: as in inference, without dropout and shifts, and with batch norm frozen: to compare examples with
            each other, and not with a step. Then, or without random layers, no bit of a row depends on other examples.
        layers: an index such as 2 or -1, a name such as "3.body.0", or a list of them; None: all that are trained.
        reduce: "norm" returns the Euclidean norm of each example's gradient, (n,), without the memory of the gradients
            (except, for each thread, of 16 examples in the largest convolution): of a dense layer |x dy^T| = |x| |dy|
            (Goodfellow 2015, arXiv:1510.01799). That of all parameters is np.linalg.norm(list(norms.values()), axis=0).

        Kernels compute them for a batch at once. Through a layer in NumPy with parameters, examples go one by one, each
        with the random numbers of a batch of one; a layer without parameters sees the batch, and must not mix examples.

        Raises TypeError or ValueError as evaluate, for layers without trained parameters, and for layers that couple
        examples, as batch norm does (unless it is frozen); RuntimeError in a step, or while another thread trains.
        """
        return per_example_gradients(self, X, y, layers, reduce, sample_weight, training)

    # ---- checkpoints

    def save_checkpoint(self, path: Path) -> None:
        """Writes the whole state of the training into one file, which has the old content or the new, never a mixture.

        In callbacks, and after a fit that was interrupted, this includes the state of the fit; after its end, that
        it is complete. Of several ranks only rank 0 writes, and the others do not wait for it; any number of
        ranks can resume. Raises ValueError for a model that is not built, TypeError for an object that cannot be saved,
        OSError if the file cannot be written, RuntimeError in the middle of a step (from a signal handler or an
        optimizer) or while another thread trains.
        """
        self.check_between_steps("save_checkpoint")
        with self.model.usage.reading("save_checkpoint"):
            content = checkpoint_content.pack(self, self._fits.to_save(self.step))
        if self.comm.rank == 0:
            safetensors_file.write(path, checkpoint_content.KIND, *content)

    def check_savable(self) -> None:
        """Raises what `save_checkpoint` would raise, except for errors of the disk."""
        safetensors_file.check(checkpoint_content.KIND, *checkpoint_content.pack(self, self._fits.state(self.step)))

    @property
    def measures(self) -> list[str]:
        """The names of the losses and metrics of an epoch of the running fit: "loss", "accuracy", "val_loss" ..."""
        names = ["loss", *self.metrics]
        return names + [f"val_{name}" for name in names if self._fits.validates]

    @property
    def interrupted(self) -> FitState | None:
        """Where a fit stands that did not come to its end, and that the next one completes. None begins another."""
        return self._fits.interrupted(self.step)

    @interrupted.setter
    def interrupted(self, nothing: None) -> None:
        if nothing is not None:
            raise TypeError(f"interrupted: expected None, to begin another fit, got {nothing!r}")
        self._fits.clear()

    @classmethod
    def resume(
        cls,
        path: Path,
        model: Sequential | None = None,
        custom_objects: Mapping[str, Any] | None = None,
        num_threads: int | None = None,
        distributed: Communicator | None = None,
    ) -> Trainer:
        """Returns a trainer as it was when the checkpoint was saved; its next fit completes the interrupted one.

        model: takes the weights and what is frozen, one of the same layers, shape, seed and dtype; None: a new one.
        custom_objects: layers, losses, metrics, optimizers and schedules that are not minidl's own, by their names. The
            file brings no code, and nothing is imported.
        num_threads, distributed: as in the constructor; they are not saved.

        Raises FileError (a ValueError) for a file that is damaged or no checkpoint, or whose objects are not all given.
        """
        model = None if model is None else checked.model_of("model", model)
        content = safetensors_file.read(path, checkpoint_content.KIND)
        clean(path)  # temporary files of killed saves
        return cls._of(content, text(path), model, checked_custom(custom_objects), num_threads, distributed)

    @classmethod
    def _of(
        cls,
        content: tuple[dict[str, Any], dict[str, Array]],
        where: str,
        model: Sequential | None,
        custom: Mapping[str, Any],
        num_threads: int | None,
        distributed: Communicator | None = None,
    ) -> Trainer:
        """Returns a trainer made from a checkpoint's content; where: its source, for errors."""
        config, tensors = content
        with checkpoint_content.as_file_error(where), nullcontext() if model is None else model.unbuilt_on_error():
            made = checkpoint_content.model_of(config, tensors, custom, model)
            options = checkpoint_content.parse_config(config, custom)
            trainer = cls(made, **options, num_threads=num_threads, distributed=distributed)
            trainer._fits.resume(checkpoint_content.restore(trainer, config, tensors))
            if model is not None:
                model.load_state_dict(checkpoint_content.states(tensors))
                checkpoint_content.take_settings(model, config)
        return trainer

    def __reduce__(self) -> tuple[Any, ...]:
        """Supports copy and pickle: returns a checkpoint, and the classes and functions needed to resume from it.

        If the model is not built, there is no checkpoint, and the constructor's arguments are returned. Further
        attributes of a subclass are not included, nor is `distributed`: a copy trains alone.
        """
        if self.model.network is None:
            given = (self.model, self.loss, self.optimizer, list(self.metrics.values()), self.seed, self.num_threads)
            return type(self), (*given, self.clip_norm, self.clip_value, self.per_example_clip_norm)
        self.check_between_steps("pickle")
        custom: dict[str, Any] = {}
        with self.model.usage.reading("pickle"):
            content = safetensors_file.to_bytes(
                checkpoint_content.KIND, *checkpoint_content.pack(self, self._fits.state(self.step), custom)
            )
        return _resumed, (type(self), content, custom, self.num_threads)


def _resumed(cls: type[Trainer], content: bytes, custom: dict[str, Any], num_threads: int | None) -> Trainer:
    """Returns the trainer of a pickled checkpoint, which is checked like a file."""
    return cls._of(safetensors_file.from_bytes(content, checkpoint_content.KIND), "pickle", None, custom, num_threads)
