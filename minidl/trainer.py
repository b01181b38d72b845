"""Trainer: fits a model to data."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from typing import Any

from numpy.typing import ArrayLike

from minidl.callbacks.callback_list import CallbackList
from minidl.callbacks.state_checks import check_run
from minidl.distributed.communicator import Communicator
from minidl.engine.description import describe
from minidl.engine.summary import Summary
from minidl.losses.output_losses import OutputLosses
from minidl.saving import safetensors_file
from minidl.saving.atomic import Path, clean, text
from minidl.saving.object_codec import checked_custom
from minidl.sequential import Sequential
from minidl.training import checked_attributes as checked
from minidl.training import checkpoint_content
from minidl.training import receipt as receipts
from minidl.training.backward_step import backward_step
from minidl.training.base_trainer import BaseTrainer, Targets
from minidl.training.consistency import check_call
from minidl.training.fit_arguments import FitArguments, make_loop
from minidl.training.fit_loop import FitLoop
from minidl.training.fit_record import FitRecord
from minidl.training.fit_state import FitState
from minidl.training.history import History
from minidl.training.pace import summary_of_epoch
from minidl.training.per_example import per_example_gradients
from minidl.training.progress import Progress
from minidl.training.report import report
from minidl.training.report.findings import Findings
from minidl.training.run_parameters import run_parameters
from minidl.training.signals import Signals
from minidl.training.verification import Verification, verify
from minidl.utils.arrays import Array
from minidl.utils.hints import known_arguments
from minidl.utils.validation import check_int


class Trainer(BaseTrainer):
    """Fits a model to data: epochs, shuffling, validation, history, checkpoints.

    A step's gradient is `sum(u_i * gradient_i) / n` over the n examples of its batch. `u_i` is the weight of example i;
    `fit` on arrays divides the weights by their mean over all its examples first.

    Parameters
    ----------
    model : Sequential
        The model that is trained. An unbuilt one is built by the first fit.
    loss : str, loss, or dict of these
        A name such as "softmax_cross_entropy", an object of minidl.losses such as `Huber(2.0)`, or a function
        `loss(scores, y) -> (losses, dscores)`. For a model that ends with `Outputs`, a dict of losses by output: the
        loss of an example is their weighted sum. An output without a loss is only predicted: its layers stay as they
        are, and their gradients are zero.
    optimizer : Optimizer or object
        Such as `SGD(0.1)`, or an object with `step(params, lr)` and `lr`.
    metrics : list of str or function, or dict of these, default ()
        Names ("accuracy"; see minidl.metrics) or functions `f(y, scores)`, computed on the scores of a whole epoch. In
        training these are the scores that each batch had before its step, so they trail those of `evaluate`. Labels
        that the loss ignores count in none of minidl's or scikit-learn's; other functions get them as well. Of several
        outputs, a dict of such lists by output.
    seed : int, default 0
        The order of the examples is a function of it and the epoch.
    num_threads : int or None, default None
        Number of threads; None: that of `get_num_threads` at each call.
    clip_norm : float or None, default None
        Largest norm of a step's gradient, over all layers, as `torch.nn.utils.clip_grad_norm_`; None: any.
    clip_value : float or None, default None
        Largest absolute value of the elements of a step's gradient, as `torch.nn.utils.clip_grad_value_`; None: any.
        Values are clipped before the norm.
    per_example_clip_norm : float or None, default None
        C, the largest norm of each example's own gradient, before they are summed; None: any. The gradient is then
        `sum(u_i * min(1, C / norm_i) * gradient_i) / n`, where `norm_i` is the norm of `gradient_i`, without the
        weight. A pass for the norms comes before each step. Layers must not couple examples, as batch norm
        does.
    distributed : minidl.distributed.MPI or None, default None
        All ranks of the job share each step. Call `fit` and `train_batch` in all of them, with the same arguments.
        Everything else runs in each rank by itself, except that only rank 0 prints, writes checkpoints and has
        callbacks with `rank_zero_only`.
    loss_weights : dict of str to float, or None, default None
        Factors of the losses of several outputs, by output; 1 where one is missing. Setting the attribute changes them
        for the steps that follow.

    Attributes
    ----------
    epoch : int
        Number of epochs completed so far.
    step : int
        Number of optimizer steps made so far.
    history : History
        What `fit` returns: a dict of lists with an entry for each epoch; its `plot` draws them.
    run_id : str
        The id of this run, 32 hexadecimal digits, read-only. Checkpoints keep it: a resumed trainer has the same.
    should_stop : bool
        True ends the fit after the hook of a callback that sets it.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid, or if the last layer of the model applies what the loss itself applies to the scores.

    Notes
    -----
    The arguments are attributes too, which can be set between two steps, except `distributed`. They are checked as in
    the constructor.

    References
    ----------
    Abadi et al., "Deep Learning with Differential Privacy" (2016), arXiv:1607.00133: per-example clipping, here without
    its noise.

    Examples
    --------
    >>> from minidl import Sequential, Trainer
    >>> from minidl.datasets import load_digits
    >>> from minidl.layers import Dense, Flatten, ReLU, Rescale
    >>> from minidl.optimizers import SGD
    >>> data = load_digits()
    >>> model = Sequential([Rescale(1 / 16), Flatten(), Dense(32), ReLU(), Dense(10)])
    >>> trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1, momentum=0.9), metrics=["accuracy"])
    >>> history = trainer.fit(data.X_train, data.y_train, epochs=5, verbose=0)
    >>> trainer.evaluate(data.X_test, data.y_test)["accuracy"] > 0.9
    True
    """

    _run_id: str | None = None  # of run_id; None: nothing has asked for it

    @cached_property
    def _fits(self) -> FitRecord:
        return FitRecord()

    @known_arguments
    def fit(
        self,
        X: ArrayLike | Iterable[Any],
        y: Targets | None = None,
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
        cutmix: float = 0.0,
        steps_per_epoch: int | None = None,
        normalize_weights: bool = True,
    ) -> History:
        """Trains `epochs` more epochs and returns the history.

        Builds an unbuilt model for X. Without `y`, X gives batches `(X, y)` or `(X, y, sample_weight)`, each of which
        is a step: an iterable, which each epoch reads again, or an iterator (see docs/how-to/data.md). Arguments about
        single examples must then be left out.

        The next fit with the same arguments completes an interrupted one. After `resume`, others are rejected. Ctrl-C
        and SIGTERM act between two steps; SIGTERM first calls the `on_terminate` of callbacks.

        Parameters
        ----------
        X : array-like or sparse matrix of shape `(n, *input_shape)`, or iterable of batches
            Real numbers, or 2-D rows of the same size.
        y : array-like of shape (n, ...), dict of these, or None, default None
            Targets, as the loss takes them; of several outputs, by name.
        epochs : int, default 1
            Number of epochs.
        batch_size : int, default 64
            Number of examples in a step. An epoch sees every example once, the last partial batch included.
        validation_data : tuple of array-like, or None, default None
            `(X, y)` or `(X, y, sample_weight)` to evaluate on after each epoch.
        validation_split : float, default 0.0
            Fraction of the examples to hold out for that: random rows, stratified for labels, which may be 0.0 and 1.0
            or one-hot rows.
        shuffle : bool, default True
            Whether each epoch draws another order of the examples; it depends on the trainer's seed.
        sample_weight : array-like of shape (n,) or None, default None
            A weight for each example. Those of weight 0 count as absent, and may hold anything.
        class_weight : dict of int to float, "balanced" or None, default None
            Weights by label, which multiply `sample_weight`; labels that are not in the dict have weight 1. "balanced"
            gives each class the same total weight. With `validation_split`, they also weight "val_loss".
        callbacks : iterable of objects, default ()
            Objects with hooks, called in this order: see minidl.callbacks.
        verbose : 0, 1, 2 or None, default None
            0 prints nothing, 1 a line for each epoch, 2 also a bar; None: 2 on a terminal, else 1.
        gradient_accumulation_steps : int, default 1
            Number of batches whose gradients are summed for one step. It equals a step on one large batch, bit for bit,
            and needs as much memory, unless layers with batch statistics or in NumPy see each batch alone.
        mixup : float, default 0.0
            alpha; above 0, each step trains on mixtures `lambda * a + (1 - lambda) * b` of its examples a with others
            of the step, and of their targets and weights, with lambda ~ Beta(alpha, alpha). Labels are mixed as one-hot
            rows, those of pixels as well. Metrics of training compare the scores of a mixture with the label of its
            larger part. No augmentation comes before it; layers that move pixels move a mixture and its target.
        cutmix : float, default 0.0
            alpha; above 0, each step on images `(c, h, w)` or signals `(c, length)` pastes a box of one example into
            another one of the step: a box of `1 - lambda` of the area around a uniform centre, with
            lambda ~ Beta(alpha, alpha), cut at the border. Targets and weights are mixed as by `mixup`, in the
            proportion of the areas. With both, a coin for each step chooses one of them.
        steps_per_epoch : int or None, default None
            Number of batches of an epoch, with an X of batches, which goes on where the last epoch ended and begins
            again after its end; None: all of them. Several epochs of an iterator need it.
        normalize_weights : bool, default True
            Whether the weights are divided by their mean over the examples to train on, so that a factor common to all
            of them changes nothing. False takes them as they are, as `train_batch` does: for data that are fitted chunk
            by chunk.

        Returns
        -------
        History
            The trainer's `history`: a dict of lists with an entry for each epoch. Its keys are "epoch" (from 0),
            "loss", the names of the metrics, "val_loss" and the like with validation, "lr", "images_per_second", and
            what callbacks have added.
            `history.plot()` draws them with Matplotlib.

        Raises
        ------
        InputError
            Before the first step, if X, y or weights are invalid or inconsistent.
        TypeError, ValueError
            Before the first step, if other arguments are.
        FloatingPointError
            If a loss or gradient becomes NaN or infinite: before that step's update, so the last good weights stay. The
            message names the layer, the tensor and the examples.
        RuntimeError
            If another thread uses the model.

        References
        ----------
        Zhang et al., "mixup: Beyond Empirical Risk Minimization" (2018), arXiv:1710.09412. Yun et al., "CutMix:
        Regularization Strategy to Train Strong Classifiers with Localizable Features" (2019), arXiv:1905.04899.

        Examples
        --------
        >>> import numpy as np
        >>> from minidl import Sequential, Trainer
        >>> from minidl.layers import Dense
        >>> from minidl.optimizers import SGD
        >>> X = np.linspace(-1, 1, 64).reshape(-1, 1)
        >>> trainer = Trainer(Sequential([Dense(1)]), "mean_squared_error", SGD(0.1))
        >>> history = trainer.fit(X, 3 * X + 1, epochs=20, batch_size=8, verbose=0)
        >>> trainer.predict([[0], [1]]).round(2)
        array([[1.],
               [4.]], dtype=float32)
        >>> len(history["loss"]), list(history)
        (20, ['epoch', 'loss', 'lr', 'images_per_second'])
        """
        was_unbuilt = self.model.network is None
        with self.model.unbuilt_on_error():
            with self.comm.raise_together():
                is_first = self.comm.rank == 0
                given = FitArguments(
                    X=X,
                    y=y,
                    epochs=check_int("epochs", epochs, minimum=0),
                    batch_size=batch_size,
                    validation_data=validation_data,
                    validation_split=validation_split,
                    shuffle=shuffle,
                    sample_weight=sample_weight,
                    class_weight=class_weight,
                    gradient_accumulation_steps=gradient_accumulation_steps,
                    mixup=mixup,
                    cutmix=cutmix,
                    steps_per_epoch=steps_per_epoch,
                    normalize_weights=normalize_weights,
                )
                hooks = CallbackList(callbacks, is_first)
                self.comm.mark(self.step, hooks.checkpoints)
                progress = Progress(verbose if is_first else 0, given.epochs)
                loop = make_loop(self, given, hooks, progress)
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

    def backward_step(self, dscores: ArrayLike | Mapping[str, ArrayLike]) -> None:
        """Makes a step that follows the gradient of an objective of your own with respect to the scores.

        The scores are those of the last `model.forward(X, training=True)`, which the step uses up. The objective's
        gradient is followed as it is: the sum over the batch, which is never divided. So an objective that is a mean
        has the factor `1 / n` in `dscores`. Everything else is as in `train_batch`: clipping, rates, frozen layers, the
        count of steps. Every `param.grad` is then the gradient of the step, after clipping.

        Parameters
        ----------
        dscores : array-like of shape `(n, *output_shape)`, or dict of these
            Gradient of the objective with respect to the scores; of several `Outputs`, by name: a missing one is zero.

        Raises
        ------
        TypeError, ValueError
            If `dscores` is of another kind or shape, for an output without a loss, with `per_example_clip_norm`, and in
            a job of several ranks.
        FloatingPointError
            If `dscores` or a gradient is NaN or infinite: before the update, so the weights stay.
        RuntimeError
            If there was no training forward since the last step of this kind, if since then layers were frozen or
            thawed, or a step, `load_state_dict` or `soft_update` changed the weights, or if another thread uses the
            model.

        See Also
        --------
        Sequential.backward : The gradients without a step.

        Notes
        -----
        The weights must still be those of the forward; what you write into them by hand is not noticed. Running
        statistics change in the forward, even if no step follows. The random numbers of dropout are those of
        `Sequential.forward`: they depend on the seed of the model and the number of training forwards. The loss of the
        trainer is not used; `"mean_squared_error"` suits any output.

        Examples
        --------
        A step on the mean of `(score - 2) ** 2` over two examples:

        >>> from minidl import Sequential, Trainer
        >>> from minidl.layers import Dense
        >>> from minidl.optimizers import SGD
        >>> model = Sequential([Dense(1)], input_shape=(1,), dtype="float64")
        >>> model.load_state_dict({"0.weight": [[0]], "0.bias": [0]})
        >>> trainer = Trainer(model, "mean_squared_error", SGD(0.25))
        >>> scores = model.forward([[1], [3]], training=True)
        >>> trainer.backward_step(2 * (scores - 2) / 2)
        >>> model.params["0.weight"].grad, model.params["0.weight"].value
        (array([[-8.]]), array([[2.]]))
        """
        backward_step(self, dscores)

    # ---- inspection

    @known_arguments
    def summary(self, X: ArrayLike, y: Targets, batch_size: int = 64, examples: int | None = None) -> Summary:
        """Returns the table of `model.summary`, and how long an epoch takes, before training.

        A copy of the trainer trains on these data for about a second, or for two steps if they take longer. Nothing
        changes: this trainer trains with the same bits afterwards, and an unbuilt model stays unbuilt.

        Parameters
        ----------
        X : array-like or sparse matrix of shape `(n, *input_shape)`
            Examples, as `fit` takes them. Those of one step are enough.
        y : array-like of shape (n, ...), or dict of these
            Their targets.
        batch_size : int, default 64
            Number of examples in a step.
        examples : int or None, default None
            Number of examples of an epoch; None: that of X.

        Returns
        -------
        Summary
            As of `model.summary`, with `epoch_seconds`, `examples` and `num_threads`. The seconds are those of the
            steps, from their median in this process: without validation, metrics and callbacks.

        Raises
        ------
        InputError, TypeError, ValueError
            As `fit`; TypeError also if a layer, loss or optimizer of yours cannot be copied.
        FloatingPointError
            If a loss or gradient of the first step is NaN or infinite.
        RuntimeError
            In the middle of a step, and if another thread trains the model.

        See Also
        --------
        Sequential.summary : The same table without time and data.

        Examples
        --------
        >>> import numpy as np
        >>> from minidl import Sequential, Trainer
        >>> from minidl.layers import Dense
        >>> from minidl.optimizers import SGD
        >>> X = np.linspace(-1, 1, 640).reshape(-1, 1)
        >>> trainer = Trainer(Sequential([Dense(1)]), "mean_squared_error", SGD(0.1), num_threads=1)
        >>> summary = trainer.summary(X, 3 * X, examples=50_000)
        >>> 0 < summary.epoch_seconds < 3600
        True
        >>> str(summary).splitlines()[-1].split(" s ")[-1]
        'an epoch of 50,000 examples on 1 thread'
        """
        return summary_of_epoch(self, X, y, batch_size, examples)

    def report(self, X: ArrayLike | None = None, y: Targets | None = None) -> Findings:
        """Prints what looks wrong with the training, and returns the findings.

        It examines the history, a few hundred examples of the last `fit` or `train_batch`, and a step on copies of
        layers and optimizer. Nothing changes: training goes on with the same bits. In a callback it reports on the
        running fit so far. The thresholds stand in `minidl/training/report/thresholds.py`.

        Parameters
        ----------
        X : array-like of shape `(n, *input_shape)` or None, default None
            Examples to look at, as `fit` takes them; None: those of the last training.
        y : array-like of shape (n, ...) or None, default None
            Their targets.

        Returns
        -------
        Findings
            A list, empty if nothing looks wrong; `str` of it is the text that was printed. Each finding has `symptom`,
            a name such as "dead units", `layer`, the layer's name or "", `measured`, the value that is out of range,
            and `message`, with that value, what was expected and what to do.

        Raises
        ------
        TypeError, ValueError
            If the model is not built, if nothing was trained and there is no X (after `resume`, for example), if X and
            `y` are invalid as in `evaluate`, or if a layer, loss or optimizer of yours cannot be copied.
        RuntimeError
            In the middle of a step, and if another thread trains the model.

        Examples
        --------
        The inputs have not been scaled:

        >>> from minidl import Sequential, Trainer
        >>> from minidl.layers import Dense
        >>> from minidl.optimizers import SGD
        >>> model = Sequential([Dense(1)], input_shape=(2,))
        >>> trainer = Trainer(model, "mean_squared_error", SGD(1e-9))
        >>> loss = trainer.train_batch([[1000, 3000], [2000, 1000]], [1, 2])
        >>> findings = trainer.report()
        - unscaled inputs: layer 0, Dense: the root mean square of its inputs is 1.94e+03 (up to 3e+03),
          expected about 1, at most 5: make Normalize.from_data(X) the first layer
        >>> [finding.symptom for finding in findings]
        ['unscaled inputs']
        """
        return report(self, X, y)

    def per_example_gradients(
        self,
        X: ArrayLike,
        y: Targets,
        layers: int | str | Sequence[int | str] | None = None,
        reduce: str | None = None,
        sample_weight: ArrayLike | None = None,
        training: bool = True,
    ) -> dict[str, Array]:
        """Returns the gradients of each example's `weight_i * loss_i`, by the names of `model.params`; changes nothing.

        `batch_sum` sums the rows as a step does.

        Parameters
        ----------
        X : array-like of shape `(n, *input_shape)`
            Examples, as in `evaluate`.
        y : array-like of shape (n, ...)
            Targets, as the loss takes them.
        layers : int, str, list of these or None, default None
            An index such as 2 or -1, a name such as "3.body.0", or a list of them; None: all that are trained.
        reduce : "norm" or None, default None
            "norm" returns the Euclidean norm of each example's gradient instead. It does without the memory of the
            gradients, except, for each thread, that of 16 examples in the largest convolution.
        sample_weight : array-like of shape (n,) or None, default None
            A weight for each example. Rows of weight 0 are zeros.
        training : bool, default True
            True: with the random numbers that `train_batch` would draw now for the same batch, by position in it.
            False: as in inference, to compare examples with each other and not with a step. Layers whose kernels draw
            random numbers or couple examples, as dropout and batch norm, are frozen. Then, or without random layers,
            no bit of a row depends on other examples.

        Returns
        -------
        dict of str to array
            Arrays of shape `(n, *param.value.shape)`, or (n,) with `reduce="norm"`, in the dtype of the model. Values
            that are not finite stay in their rows. The norm of all parameters is `np.linalg.norm(list(norms.values()),
            axis=0)`.

        Raises
        ------
        TypeError, ValueError
            As `evaluate`, for layers without trained parameters, and for layers that couple examples, as batch norm
            does (unless it is frozen). With `training=False`, if gradients pass through a layer in NumPy that computes
            something else in training.
        RuntimeError
            In a step, and if another thread uses the model.

        Notes
        -----
        Kernels compute the gradients for a batch at once; the norm of the gradient of a dense layer's weight is that of
        two vectors, `|x dy^T| = |x| |dy|`. Through a layer in NumPy with parameters, examples go one by one, each with
        the random numbers of a batch of one. A layer without parameters sees the batch, and must not mix examples.

        References
        ----------
        Goodfellow, "Efficient Per-Example Gradient Computations" (2015), arXiv:1510.01799.

        Examples
        --------
        >>> from minidl import Sequential, Trainer
        >>> from minidl.layers import Dense
        >>> from minidl.optimizers import SGD
        >>> model = Sequential([Dense(1)], input_shape=(2,))
        >>> model.load_state_dict({"0.weight": [[0, 0]], "0.bias": [0]})
        >>> trainer = Trainer(model, "mean_squared_error", SGD(0.1))
        >>> gradients = trainer.per_example_gradients([[3, 4], [6, 8]], [1, 1])
        >>> gradients["0.bias"]
        array([[-2.],
               [-2.]], dtype=float32)
        >>> trainer.per_example_gradients([[3, 4], [6, 8]], [1, 1], reduce="norm")["0.weight"]
        array([10., 20.], dtype=float32)
        """
        return per_example_gradients(self, X, y, layers, reduce, sample_weight, training)

    # ---- checkpoints

    def save_checkpoint(self, path: Path) -> None:
        """Writes the whole state of the training into one file, which has the old content or the new, never a mixture.

        In callbacks, and after a fit that was interrupted, this includes the state of the fit; after its end, that it
        is complete. Of several ranks only rank 0 writes, and the others do not wait for it; any number of ranks can
        resume.

        Parameters
        ----------
        path : str or os.PathLike
            The file.

        Raises
        ------
        ValueError
            If the model is not built.
        TypeError
            If an object cannot be saved.
        OSError
            If the file cannot be written.
        RuntimeError
            In the middle of a step (from a signal handler or an optimizer), and if another thread trains the model.

        See Also
        --------
        minidl.callbacks.Checkpoint : Saves during a fit.

        Examples
        --------
        >>> import os, tempfile
        >>> from minidl import Sequential, Trainer
        >>> from minidl.layers import Dense
        >>> from minidl.optimizers import SGD
        >>> trainer = Trainer(Sequential([Dense(1)]), "mean_squared_error", SGD(0.1))
        >>> history = trainer.fit([[1.0], [2.0]], [1.0, 2.0], epochs=3, verbose=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "run.safetensors")
        ...     trainer.save_checkpoint(path)
        ...     resumed = Trainer.resume(path)
        >>> resumed.epoch, resumed.step, resumed.history == history
        (3, 3, True)
        """
        self.check_between_steps("save_checkpoint")
        with self.model.usage.reading("save_checkpoint"):
            content = checkpoint_content.pack(self, self._fits.to_save(self.step))
        if self.comm.rank == 0:
            safetensors_file.write(path, checkpoint_content.KIND, *content)

    def check_savable(self) -> None:
        """Raises what `save_checkpoint` would raise, except for errors of the disk.

        Raises
        ------
        TypeError, ValueError
            If an object cannot be saved.
        """
        safetensors_file.check(checkpoint_content.KIND, *checkpoint_content.pack(self, self._fits.state(self.step)))

    @property
    def measures(self) -> list[str]:
        """The names of the losses and metrics of an epoch of the running fit: "loss", "accuracy", "val_loss" ..."""
        of_outputs = self.loss.losses if isinstance(self.loss, OutputLosses) else ()
        names = ["loss", *(f"{name}_loss" for name in of_outputs), *self.metrics]
        return names + [f"val_{name}" for name in names if self._fits.validates]

    @property
    def run_id(self) -> str:
        """The id of this run, 32 hexadecimal digits, which checkpoints and pickles keep: a resumed trainer has it, too.

        A copy (`copy.copy`, `copy.deepcopy`) is another run.
        """
        if self._run_id is None:
            self._run_id = uuid.uuid4().hex
        return self._run_id

    def run_parameters(self) -> dict[str, Any]:
        """Returns what this run is, as strict JSON can hold it: the parameters of model, training and running fit.

        Loggers write it beside their files; call it in the `on_fit_begin` of a callback of yours.

        Returns
        -------
        dict
            `first_epoch` is the number of the fit's first epoch, `fit` has its numbers, such as `epochs` and
            `batch_size`, None outside of a fit, `validation_examples` is the number of them. Then follow `callbacks`,
            `loss`, `loss_weights`, `metrics`, `optimizer` with its arguments, `seed`, the limits of the gradient, the
            number of `ranks`, the lines of the model's summary in `model`, its `dtype` and `model_seed`, and in
            `environment` what `minidl.show_config` returns. Objects are texts.

        Examples
        --------
        >>> from minidl import Sequential, Trainer
        >>> from minidl.layers import Dense
        >>> from minidl.optimizers import SGD
        >>> trainer = Trainer(Sequential([Dense(1)]), "mean_squared_error", SGD(0.1), seed=3)
        >>> parameters = trainer.run_parameters()
        >>> parameters["optimizer"]["lr"], parameters["seed"], parameters["environment"]["instruction_set"][:1]
        (0.1, 3, 'v')
        """
        return run_parameters(self, self._fits.running)

    @property
    def may_measure_more(self) -> bool:
        """Whether a callback of the running fit, of a class that is not minidl's, may add numbers to an epoch's."""
        return self._fits.may_add_numbers

    @property
    def interrupted(self) -> FitState | None:
        """Where a fit stands that did not come to its end, and that the next one completes; None: there is none.

        Its `step` and `epochs_done` count the steps of the trainer and the epochs of the fit. Setting None begins
        another fit.

        Raises
        ------
        TypeError
            If another value is set.
        """
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

        The file brings no code, and nothing is imported.

        Parameters
        ----------
        path : str or os.PathLike
            A file that `save_checkpoint` or a `Checkpoint` wrote.
        model : Sequential or None, default None
            Takes the weights and what is frozen: one of the same layers, shape, seed and dtype. None: a new one.
        custom_objects : dict of str to object, or None, default None
            Layers, losses, metrics, optimizers and schedules that are not minidl's own, by their names.
        num_threads : int or None, default None
            As in the constructor; it is not saved.
        distributed : minidl.distributed.MPI or None, default None
            As in the constructor; it is not saved.

        Returns
        -------
        Trainer
            A new trainer.

        Raises
        ------
        minidl.FileError
            If the file is damaged or no checkpoint, or if its objects are not all given. It is a ValueError that names
            the path.
        TypeError, ValueError
            If an argument is invalid.
        OSError
            If the file cannot be read.

        Examples
        --------
        >>> import os, tempfile
        >>> from minidl import Sequential, Trainer
        >>> from minidl.layers import Dense
        >>> from minidl.optimizers import SGD
        >>> trainer = Trainer(Sequential([Dense(1)]), "mean_squared_error", SGD(0.1))
        >>> loss = trainer.train_batch([[1.0], [2.0]], [1.0, 2.0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "run.safetensors")
        ...     trainer.save_checkpoint(path)
        ...     resumed = Trainer.resume(path)
        >>> resumed.optimizer, resumed.step
        (SGD(lr=0.1, momentum=0.0, nesterov=False, weight_decay=0.0), 1)
        """
        model = None if model is None else checked.model_of("model", model)
        content = safetensors_file.read(path, checkpoint_content.KIND)
        clean(path)  # temporary files of killed saves
        return cls._of(content, text(path), model, checked_custom(custom_objects), num_threads, distributed)

    @classmethod
    def _of(
        cls,
        content: safetensors_file.Content,
        where: str,
        model: Sequential | None,
        custom: Mapping[str, Any],
        num_threads: int | None,
        distributed: Communicator | None = None,
    ) -> Trainer:
        """Returns a trainer made from a checkpoint's content; where: its source, for errors."""
        config, tensors, about = content
        with checkpoint_content.as_file_error(where), nullcontext() if model is None else model.unbuilt_on_error():
            made = checkpoint_content.model_of(config, tensors, custom, model)
            describe(made, about)
            options = checkpoint_content.parse_config(config, custom)
            trainer = cls(made, **options, num_threads=num_threads, distributed=distributed)
            trainer._fits.resume(checkpoint_content.restore(trainer, config, tensors))
            trainer._run_id = check_run("run_id", config["run_id"]) if "run_id" in config else None
            if model is not None:
                model.load_state_dict(checkpoint_content.states(tensors))
                checkpoint_content.take_settings(model, config)
        return trainer

    # ---- receipts

    def fit_origin(self) -> dict[str, Any]:
        """Returns what the running fit follows from, for a receipt.

        Returns
        -------
        dict
            Values of JSON.

        Raises
        ------
        TypeError, ValueError
            If the fit has something that a receipt cannot hold.
        """
        return receipts.origin(self, self._fits.running)

    def fit_outcome(self) -> dict[str, Any]:
        """Returns what has come out of the running fit, for a receipt.

        Returns
        -------
        dict
            Values of JSON.
        """
        return receipts.outcome(self, self._fits.running)

    @classmethod
    def verify(
        cls,
        path: Path,
        X: ArrayLike,
        y: Targets,
        *,
        sample_weight: ArrayLike | None = None,
        validation_data: tuple[ArrayLike, ...] | None = None,
        start: Path | None = None,
        custom_objects: Mapping[str, Any] | None = None,
        num_threads: int | None = None,
        verbose: int | None = 0,
    ) -> Verification:
        """Trains again as a receipt says, and returns what is equal, or where the two runs part.

        Data, first weights and each epoch are compared in this order, and then the last weights, the numbers of the
        last epoch and the predictions for X; after the first difference nothing is trained. The file brings no code.

        Parameters
        ----------
        path : str or os.PathLike
            A file that the callback `Receipt` wrote.
        X, y, sample_weight, validation_data : array-like
            The data of the fit.
        start : str, os.PathLike or None, default None
            A checkpoint of the trainer before the fit, if it did not begin with new weights.
        custom_objects : dict of str to object, or None, default None
            Layers, losses, metrics, optimizers, schedules and callbacks that are not minidl's own, by their names.
        num_threads : int or None, default None
            As in the constructor: no bit depends on it.
        verbose : 0, 1, 2 or None, default 0
            As in `fit`.

        Returns
        -------
        Verification
            It prints as a table. `equal` is whether all is equal, `parts` a dict of what was compared, in order
            ("data", "first weights", "epoch 1", ...), `first_difference` the name of the first part that differs, or
            None, and `notes` lists other versions and builds, which may explain a difference.

        Raises
        ------
        minidl.FileError
            If the file is no receipt of this format, or if its objects are not all given. It is a ValueError that names
            the path.
        InputError, TypeError, ValueError
            If the data are invalid, or an argument is.
        OSError
            If a file cannot be read.

        See Also
        --------
        minidl.callbacks.Receipt : Writes the file.

        Examples
        --------
        >>> import os, tempfile
        >>> from minidl import Sequential, Trainer
        >>> from minidl.callbacks import Receipt
        >>> from minidl.layers import Dense
        >>> from minidl.optimizers import SGD
        >>> X, y = [[1.0], [2.0]], [1.0, 2.0]
        >>> trainer = Trainer(Sequential([Dense(1)]), "mean_squared_error", SGD(0.1))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "receipt.json")
        ...     history = trainer.fit(X, y, epochs=2, callbacks=[Receipt(path)], verbose=0)
        ...     Trainer.verify(path, [[1.0], [3.0]], y)
        data  differs: X (shape, dtype or numbers)
        not equal: the runs part at data
        """
        custom, content = checked_custom(custom_objects), receipts.read(path)
        num_threads = checked.threads_of("num_threads", num_threads)
        if y is None:
            raise TypeError("y: expected the targets of the fit, got None")
        begun = None if start is None else cls.resume(start, None, custom, num_threads)
        data = {"X": X, "y": y, "sample_weight": sample_weight, "validation_data": validation_data}
        return verify(partial(cls, num_threads=num_threads), begun, content, data, custom, verbose, text(path))

    def __reduce__(self) -> tuple[Any, ...]:
        """Supports pickle and copy: returns a checkpoint, and the classes and functions needed to resume from it.

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

    def __copy__(self) -> Trainer:
        return self._another_run(copy.copy(_Reduced(self)))

    def __deepcopy__(self, memo: dict[int, Any]) -> Trainer:
        return self._another_run(copy.deepcopy(_Reduced(self), memo))

    @staticmethod
    def _another_run(copied: Any) -> Trainer:
        copied._run_id = None
        return copied


class _Reduced:
    """Is copied as a trainer without `__copy__` and `__deepcopy__` would be."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._trainer.__reduce_ex__(protocol)


def _resumed(cls: type[Trainer], content: bytes, custom: dict[str, Any], num_threads: int | None) -> Trainer:
    """Returns the trainer of a pickled checkpoint, which is checked like a file."""
    return cls._of(safetensors_file.from_bytes(content, checkpoint_content.KIND), "pickle", None, custom, num_threads)
