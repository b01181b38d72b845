"""Symptoms in learning curves: losses that do not fall, that jump, or that diverge from the validation loss.

Falls, rises and gaps are compared with `span`, the difference between the losses of guessing and of right answers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from minidl.losses import Huber, MeanAbsoluteError, MeanSquaredError, Pinball
from minidl.training.report import thresholds
from minidl.training.report.findings import Finding
from minidl.training.report.probe import Probe

Series = NDArray[np.float64]


def stuck_loss(probe: Probe) -> Iterator[Finding]:
    """Finds a loss that is no better than guessing and does not fall."""
    if probe.baseline is None or not _knows_nothing(probe) or next(unscaled_targets(probe), None) is not None:
        return
    (losses,) = _series(probe, "loss")
    if len(losses) > 1 and losses[(len(losses) - 1) // 2] - losses[-1] > thresholds.FALLING * probe.baseline.span:
        return
    message = (
        f"the loss is {probe.mean_loss:.3g} after {probe.trainer.step} steps, expected well below that of guessing"
    )
    broken = probe.learned < -1 or any(  # much worse than any beginning
        seen.off is not None and seen.off.mean() > thresholds.DEAD_UNITS for seen in probe.seen
    )
    advice = f"start again with a smaller lr than {probe.largest_rate:.3g}"
    if not broken:
        advice = f"try another lr (now {probe.rate:.3g}), a larger one first"
        if probe.rate < probe.largest_rate / 2:  # lowered since: that it is small now may not be the cause
            advice = f"start again with another lr than {probe.largest_rate:.3g} (now {probe.rate:.3g})"
    advice += ", and check that X and y match"
    yield Finding("stuck loss", "", probe.mean_loss, f"{message}, {probe.baseline.guess:.3g}: {advice}")


def unscaled_targets(probe: Probe) -> Iterator[Finding]:
    """Finds targets so large, or so far from 0, that the outputs have not come near them, after any number of steps."""
    for output in probe.outputs if probe.learned < thresholds.LEARNED else ():
        if not isinstance(output.loss, (Huber, MeanAbsoluteError, MeanSquaredError, Pinball)):
            continue
        size = float(np.sqrt(np.mean(np.square(output.targets, dtype=np.float64))))
        if size > thresholds.LARGE_TARGETS:
            message = f"the root mean square of y is {size:.3g}, expected about 1, and the loss, {probe.mean_loss:.3g},"
            message += f" is no better than guessing after {probe.trainer.step} steps"
            yield Finding("unscaled targets", output.label, size, f"{message}: learn (y - y.mean()) / y.std()")


def diverging_loss(probe: Probe) -> Iterator[Finding]:
    """Finds a training loss that was much lower before."""
    (losses,) = _series(probe, "loss")
    if probe.baseline is None or len(losses) < 2 or _oscillates(losses, probe.baseline.span):
        return
    best, last = int(losses.argmin()), len(losses) - 1
    if (rise := float(losses[last] - losses[best])) > thresholds.JUMP * probe.baseline.span:
        message = (
            f"the training loss rose from {losses[best]:.3g} in epoch {best} to {losses[last]:.3g} in epoch {last}"
        )
        advice = f"start again with a smaller lr than {probe.rate:.3g}, or with clip_norm=1.0"
        yield Finding("diverging loss", "", rise, f"{message}, expected a loss that falls: {advice}")


def oscillating_loss(probe: Probe) -> Iterator[Finding]:
    """Finds a training loss that goes up and down."""
    losses = _series(probe, "loss")[0][-thresholds.JUMPING :]
    if probe.baseline is not None and _oscillates(losses, probe.baseline.span):
        rises = _rises(losses)
        message = f"in the last {len(losses)} epochs the training loss rose {(rises > 0).sum()} times, by "
        message += f"{rises.sum():.3g} altogether, expected at most {thresholds.JUMPS * probe.baseline.span:.3g}"
        advice = f"try a smaller lr than {probe.rate:.3g}, one that decays (minidl.schedules), or larger batches"
        yield Finding("oscillating loss", "", float(rises.sum()), f"{message}: {advice}")


def overfitting(probe: Probe) -> Iterator[Finding]:
    """Finds validation scores much worse than those of training, in accuracy or else in loss."""
    losses, validation = _series(probe, "loss", "val_loss")
    right, val_right = _series(probe, "accuracy", "val_accuracy")
    if probe.baseline is None or len(losses) < thresholds.MIN_EPOCHS or not _is_apart(probe, validation):
        return
    loss_gap = thresholds.GAP * probe.baseline.span
    augment = "augment it (RandomShift, RandomFlip), " if len(probe.trainer.model.input_shape) == 3 else ""
    advice = f"get more data, {augment}add Dropout or weight_decay, or take a smaller model"
    for what, train, held, gaps, limit in (
        ("accuracy", right, val_right, right - val_right, thresholds.ACCURACY_GAP),
        ("loss", losses, validation, validation - losses, loss_gap),
    ):
        if len(gaps) >= thresholds.MIN_EPOCHS and (gaps[-thresholds.LAST :] > limit).all():
            message = f"the {what} is {train[-1]:.3g} in training and {held[-1]:.3g} in validation"
            message += f", expected at most {limit:.2g} between them"
            yield Finding("overfitting", "", float(gaps[-1]), f"{message}: {advice}")
            return


def rising_validation(probe: Probe) -> Iterator[Finding]:
    """Finds a validation loss that has risen since its best epoch while the training loss went on falling."""
    losses, validation = _series(probe, "loss", "val_loss")
    if (
        probe.baseline is None or len(losses) < thresholds.MIN_EPOCHS or probe.trainer.should_stop
    ):  # stopped early: all is well
        return
    if not _is_apart(probe, validation):
        return
    best = int(validation.argmin())
    rise = float(validation[-thresholds.LAST :].min() - validation[best])
    lasts = best < len(losses) - thresholds.LAST and losses[-1] < losses[best]
    if lasts and rise > thresholds.RISE * probe.baseline.span:
        message = (
            f"val_loss was {validation[best]:.3g} in epoch {best} and has risen to {validation[-1]:.3g}, while the "
        )
        message += f"training loss fell from {losses[best]:.3g} to {losses[-1]:.3g}, expected both to fall"
        advice = "the model memorizes its examples; callbacks=[EarlyStopping(patience=5)] keeps the best epoch"
        yield Finding("rising validation loss", "", rise, f"{message}: {advice}")


def _knows_nothing(probe: Probe) -> bool:
    """Whether the loss is no better than guessing after enough steps."""
    return probe.trainer.step >= thresholds.MIN_STEPS and probe.learned < thresholds.LEARNED


def _is_apart(probe: Probe, validation: Series) -> bool:
    """Whether the loss in inference is lower for training examples than for validation examples."""
    span = 0.0 if probe.baseline is None else probe.baseline.span
    return bool(validation[-1] - probe.inferred > thresholds.INFERRED_GAP * span)


def _series(probe: Probe, *names: str) -> tuple[Series, ...]:
    """Returns these series of the history, without epochs in which one is not finite; empty if one is missing."""
    history = probe.trainer.history
    if any(name not in history for name in names):
        return tuple(np.empty(0) for _ in names)
    table = np.array([history[name] for name in names], np.float64)
    return tuple(table[:, np.isfinite(table).all(axis=0)])


def _rises(losses: Series) -> Series:
    """Returns the increase of each epoch's loss over the previous one; 0 where it fell."""
    return np.maximum(np.diff(losses), 0.0)


def _oscillates(losses: Series, span: float) -> bool:
    """Whether the last losses rise again and again, and fall between."""
    last = losses[-thresholds.JUMPING :]
    rises, falls = _rises(last), _rises(-last)
    up, down = rises.sum() > thresholds.JUMPS * span, falls.sum() > thresholds.JUMPS * span
    return bool(up and down and (rises > 0).sum() > 1)
