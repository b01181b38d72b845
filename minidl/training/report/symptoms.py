"""Symptoms in a model's layers and data, one function each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from minidl.engine import channel_order, layer_list
from minidl.metrics.counts import ACTUAL, PREDICTED, Counts
from minidl.training.report import thresholds
from minidl.training.report.findings import Finding
from minidl.training.report.instrument import LayerStats
from minidl.training.report.probe import Probe


def not_finite(probe: Probe) -> Iterator[Finding]:
    """Finds losses or gradients that are NaN or infinite."""
    bad = int((~np.isfinite(probe.losses)).sum())
    if bad or not probe.finite:
        what = f"the losses of {bad} of {probe.count} examples are" if bad else "the gradient of a step is"
        advice = f"start again, or from an earlier checkpoint, with a smaller lr than {probe.rate:.3g}"
        message = f"{what} NaN or infinite, expected finite numbers: {advice}, and check that X has no huge numbers"
        yield Finding("not finite", "", float(bad), message)


def unmovable_targets(probe: Probe) -> Iterator[Finding]:
    """Finds targets of pixels that cannot move with the pixels that a layer moves: `fit` refuses them."""
    if probe.unmovable:
        name, separator, message = probe.unmovable.partition(": expected ")
        yield Finding("unmovable targets", name, math.nan, separator.removeprefix(": ") + message)


def dead_units(probe: Probe) -> Iterator[Finding]:
    """Finds units of ReLU and similar functions that are off for every example: they get no gradient and stay off."""
    for seen in probe.seen:
        if seen.off is None or probe.count < thresholds.MIN_EXAMPLES or _has_ends(seen):
            continue
        share, count = float(seen.off.mean()), int(seen.off.sum())
        if share > thresholds.DEAD_UNITS:
            message = f"{count} of {seen.off.size} units ({share:.0%}) are off for all {probe.count} examples looked at"
            advice = f"start again with a smaller lr than {probe.largest_rate:.3g}, put a BatchNorm before it, or take "
            message += f", expected at most {thresholds.DEAD_UNITS:.0%}: they learn nothing any more; {advice}LeakyReLU"
            yield Finding("dead units", seen.name, share, message)


def saturated_units(probe: Probe) -> Iterator[Finding]:
    """Finds Sigmoid and Tanh layers that saturate. (The last layer may have to.)"""
    last = probe.last_layers
    for seen in probe.seen:
        if probe.count < thresholds.MIN_EXAMPLES or not _has_ends(seen) or id(seen.layer) in last:
            continue
        share = seen.flat / max(seen.values, 1)
        if share > thresholds.SATURATED:
            message = (
                f"{share:.0%} of its outputs are at the ends of their range, where the slope is close to 0, expected "
            )
            advice = "scale the inputs, begin with smaller weights (glorot_uniform) and a smaller lr than "
            message += (
                f"at most {thresholds.SATURATED:.0%}: {advice}{probe.largest_rate:.3g}, or put a BatchNorm before it"
            )
            yield Finding("saturated units", seen.name, share, message)


def update_sizes(probe: Probe) -> Iterator[Finding]:
    """Finds updates that are tiny or huge compared with the weights."""
    low, high = thresholds.SMALL_UPDATE, thresholds.LARGE_UPDATE
    sizes = {seen.name: seen.update for seen in probe.seen if seen.update is not None}
    expected = f"expected from {low:.0e} to {high:.1g}"
    small = {name: size for name, size in sizes.items() if size < low}
    if small and not probe.learned > thresholds.MUCH_TO_LEARN and not _blocked(probe):
        name = min(small, key=lambda name: small[name])
        message = f"a step changes its weights by {small[name]:.1e} of their size{_others(small)}, {expected}"
        yield Finding("small updates", name, small[name], f"{message}: try a larger lr than {probe.largest_rate:.3g}")
    share = probe.rate / probe.largest_rate if probe.largest_rate else 0.0
    large = {name: size * share for name, size in sizes.items() if size * share > high}
    if large:
        name = max(large, key=lambda name: large[name])
        message = f"a step changes its weights by {large[name]:.2g} of their size{_others(large)}, {expected}"
        advice = f"try a smaller lr than {probe.rate:.3g}, or clip_norm=1.0"
        yield Finding("large updates", name, large[name], f"{message}: {advice}")


def gradient_sizes(probe: Probe) -> Iterator[Finding]:
    """Finds gradients that vanish or explode from the last layer with weights to the first."""
    low, high = thresholds.VANISHING, thresholds.EXPLODING
    ratios = {} if _is_dead(probe) else _gradients(probe)
    last = "the last layers" if probe.heads else next(reversed(ratios), "")
    expected = f"times that of {last}, expected from {low:.0e} to {high:.0e}"
    if ratios and (minimum := min(ratios.values())) < low:
        advice = "put BatchNorm or Residual between the layers, take ReLU in place of Sigmoid and Tanh, or begin with "
        message = f"the gradient of its output is {minimum:.1e} {expected}: {advice}larger weights (he_uniform)"
        yield Finding("vanishing gradients", min(ratios, key=lambda name: ratios[name]), minimum, message)
    if ratios and (largest := max(ratios.values())) > high:
        advice = "begin with smaller weights (damped_he_uniform), "
        advice += "put BatchNorm between the layers, or take clip_norm=1.0"
        message = f"the gradient of its output is {largest:.1e} {expected}: {advice}"
        yield Finding("exploding gradients", max(ratios, key=lambda name: ratios[name]), largest, message)


def inputs(probe: Probe) -> Iterator[Finding]:
    """Finds inputs of the first layers with weights that are too large, too small, far from 0, or constant."""
    for seen in (seen for seen in probe.seen if seen.input is not None):
        spread = seen.input
        assert spread is not None
        alone = probe.count == 1
        if spread.deviation == 0 and not alone:
            message = f"its input is the same for all {probe.count} examples, expected examples that differ: look at X"
            yield Finding("constant inputs", seen.name, 0.0, message + ", and at the layers before it")
        elif seen.layer.takes_categories:
            continue
        elif spread.size > thresholds.LARGE_INPUT:
            message = f"the root mean square of its inputs is {spread.size:.3g} (up to {spread.largest:.3g})"
            scale = "Normalize.from_data(X)" + (" or Rescale(1 / 255)" if 100 < spread.largest <= 255 else "")
            expected = f"expected about 1, at most {thresholds.LARGE_INPUT:.3g}: make {scale} the first layer"
            yield Finding("unscaled inputs", seen.name, spread.size, f"{message}, {expected}")
        elif spread.largest < thresholds.SMALL_INPUT:
            message = f"its inputs are at most {spread.largest:.2g}, expected numbers of about 1"
            advice = "make Normalize.from_data(X) the first layer, and check that nothing is scaled twice"
            yield Finding("unscaled inputs", seen.name, spread.largest, f"{message}: {advice}")
        elif spread.centre > thresholds.OFF_CENTRE * spread.deviation and not alone:
            times = spread.centre / spread.deviation
            message = f"the means of its inputs are {times:.3g} standard deviations from 0"
            expected = f"expected at most {thresholds.OFF_CENTRE:.3g}: make Normalize.from_data(X) the first layer"
            yield Finding("unscaled inputs", seen.name, times, f"{message}, {expected}")


def channels_last(probe: Probe) -> Iterator[Finding]:
    """Finds images in NHWC order, whose channels are taken for their width."""
    model = probe.trainer.model
    name = (
        channel_order.first_look(layer_list.named_layers(model.layers))
        if channel_order.last(model.input_shape)
        else None
    )
    if name is not None:
        yield Finding("channels last", name, float(model.input_shape[-1]), channel_order.advice(model.input_shape))


def unshuffled_labels(probe: Probe) -> Iterator[Finding]:
    """Finds batches with fewer classes than random batches would have."""
    batches = probe.sample.batches
    for output in probe.outputs:
        if (labels := output.classes) is None or batches is None:
            continue
        _, labels = np.unique(labels, return_inverse=True)
        table = np.zeros((batches.max() + 1, labels.max() + 1))
        np.add.at(table, (batches, labels), 1)
        table = table[table.any(axis=1)]
        shares, sizes = table.sum(axis=0) / table.sum(), table.sum(axis=1, keepdims=True)
        expected = (1 - (1 - shares) ** sizes).sum(axis=1) - 1  # beside the class of the first example
        found = (table > 0).sum(axis=1) - 1
        if expected.sum() > thresholds.MIN_MIXED and (share := found.sum() / expected.sum()) < thresholds.MIXED:
            message = (
                f"{sizes.mean():.0f} examples looked at in each batch are of {found.mean() + 1:.1f} classes on average"
            )
            advice = "each step unlearns the one before; fit with shuffle=True, or mix the examples before train_batch"
            message += f", expected {expected.mean() + 1:.1f}"
            yield Finding("unshuffled labels", output.label, float(share), f"{message}: {advice}")


def one_class(probe: Probe) -> Iterator[Finding]:
    """Finds labels that are all, or nearly all, of one class."""
    for output in probe.outputs:
        if (labels := output.classes) is None or probe.count < thresholds.MIN_EXAMPLES:
            continue
        shares = np.bincount(labels, probe.weights)
        shares = shares / shares.sum()
        label, share = int(shares.argmax()), float(shares.max())
        if share == 1:
            message = f"all {probe.count} labels looked at are {label}, expected at least two classes: look at y"
            yield Finding("one class", output.label, share, message)
        elif share > thresholds.ONE_CLASS:
            message = f"{share:.0%} of the labels are {label}, expected at most {thresholds.ONE_CLASS:.0%}: a model "
            advice = "that always says so is right as often; "
            if not output.label:  # several outputs have no class weights
                advice += 'give fit class_weight="balanced", and '
            yield Finding("imbalanced labels", output.label, share, f"{message}{advice}look at more than accuracy")


def classes_of_pixels(probe: Probe) -> Iterator[Finding]:
    """Finds labels of pixels that are all of one class, and classes of them that are not predicted after training."""
    for output in probe.outputs:
        if (counts := output.pixels) is None or probe.count < thresholds.MIN_IMAGES:
            continue
        if counts[ACTUAL].max() == (total := int(counts[ACTUAL].sum())):
            what = f"{total:,} labels of pixels looked at are {counts[ACTUAL].sum(axis=0).argmax()}"
            message = (
                f"all {what if total else 'pixels looked at are ignored'}, expected at least two classes: look at y"
            )
            yield Finding("one class", output.label, 1.0, message)
        elif probe.trainer.step >= thresholds.MIN_STEPS and np.isfinite(output.scores).all():
            yield from _unpredicted(output.label, counts)


def _unpredicted(label: str, counts: Counts) -> Iterator[Finding]:
    """Finds the class that is predicted least, of those that are in the labels of pixels."""
    actual, shares = counts[ACTUAL], counts[ACTUAL] / np.maximum(counts[ACTUAL].sum(axis=1, keepdims=True), 1)
    ratios = np.where(actual >= thresholds.MIN_PIXELS, counts[PREDICTED] / np.maximum(actual, 1), math.inf)
    score, found = np.unravel_index(int(ratios.argmin()), ratios.shape)
    share, ratio, largest = float(shares[score, found]), float(ratios[score, found]), float(shares[score].max())
    where = f" of score {score}" if len(actual) > 1 else ""
    message = f"{share:.2%} of the labels of pixels{where} are {found}, and {share * ratio:.2%} of the predictions"
    weigh = "give the loss a weight or pos_weight of classes, or take Dice()"
    if largest > thresholds.ONE_CLASS and ratio < thresholds.HARDLY_PREDICTED:
        message += f", expected at least {thresholds.HARDLY_PREDICTED:.0%} as many: {weigh}, and look at iou"
        yield Finding("imbalanced labels", label, largest, message)
    elif ratio < thresholds.NOT_PREDICTED:
        yield Finding("unpredicted class", label, share, f"{message}, expected about as many: train longer, or {weigh}")


def large_weight(probe: Probe) -> Iterator[Finding]:
    """Finds a weight that makes the step of a single example as large as that of a whole batch."""
    largest, size = probe.sample.largest_weight, probe.sample.size
    if largest > size:
        message = f"the largest weight of an example is {largest:.3g} times their mean, expected at most the {size} "
        advice = f"take batches of at least {int(np.ceil(largest))}, a smaller lr, or more even weights"
        yield Finding("large weight", "", largest, f"{message}examples of a step, which it outweighs: {advice}")


def _has_ends(seen: LayerStats) -> bool:
    """Whether a function is flat at both ends, on either side of 0."""
    low, high = seen.layer.active_range or (-math.inf, math.inf)
    return low < 0 and high < math.inf


def _others(layers: dict[str, float]) -> str:
    """Returns text on the number of layers concerned, if there are several."""
    return "" if len(layers) == 1 else f" (the worst of {len(layers)} layers)"


def _gradients(probe: Probe) -> dict[str, float]:
    """Returns, by layer with weights that learn, the size of its output's gradient relative to the last layer's.

    The last layer is that of its own output; for layers that several outputs share, the one of the largest gradient.
    """
    heads = probe.heads
    found = [(one.name, heads.get(id(one.layer), ""), one.gradient or 0.0) for one in probe.seen if _learns(one)]
    last = {head: gradient for _, head, gradient in found}
    last[""] = max((last[head] for head in last if head), default=last.get("", 0.0))
    return {name: gradient / last[head] for name, head, gradient in found if last[head]}


def _learns(seen: LayerStats) -> bool:
    """Whether a layer has weights that learn, and a gradient came to it."""
    return seen.learns and bool(seen.weights) and seen.gradient is not None


def _is_dead(probe: Probe) -> bool:
    """Whether a layer lets no gradient through because all its units are off."""
    return any(seen.off is not None and bool(seen.off.all()) for seen in probe.seen)


def _blocked(probe: Probe) -> bool:
    """Whether updates are small for a reason other than a small learning rate, which has its own finding."""
    vanish = min(_gradients(probe).values(), default=1.0) < thresholds.VANISHING
    return vanish or next(itertools.chain(dead_units(probe), saturated_units(probe)), None) is not None
