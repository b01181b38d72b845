"""Random calls of the losses."""

import numpy as np
import reference as ref
from conformance.trial import Trial, draw_dtype, draw_values, named, sizes
from native.losses.test_elementwise_losses import bounds as elementwise_bounds
from native.losses.test_softmax_cross_entropy import SMOOTHING
from native.losses.test_softmax_cross_entropy import bounds as softmax_bounds
from reference_losses import FUNCTIONS, mean_of

from minidl_c.losses.elementwise_losses import ElementwiseLossOp
from minidl_c.losses.softmax_cross_entropy import SoftmaxCrossEntropyOp
from minidl_c.runtime.single_op import loss_batch


def softmax_cross_entropy(rng):
    (n, classes), dtype, smoothing = sizes(rng), draw_dtype(rng), float(rng.choice(SMOOTHING))
    kind, (scores, weights) = draw_values(rng, ((n, classes), (n,)))
    labels, weights = rng.integers(0, classes, n), np.abs(weights)

    def run(a, threads):
        op = SoftmaxCrossEntropyOp((classes,), smoothing, dtype)
        loss_batch(op, a.scores, a.labels, a.losses, a.dscores, a.weights, threads)

    def oracle():
        loss_bound, p_bound = softmax_bounds(scores, labels, dtype, smoothing)
        yield "losses", ref.softmax_cross_entropy_forward(scores, labels, smoothing), loss_bound
        exact = ref.softmax_cross_entropy_backward(scores, labels, weights, smoothing)
        yield "dscores", exact, (p_bound + ref.rounding(4, dtype)) * weights[:, None]

    inputs = {**named("scores weights", (scores, weights), dtype), "labels": labels}
    outputs = {"losses": (n,), "dscores": scores.shape}
    about = f"{kind} {scores.shape} {smoothing}"
    yield Trial(about, dtype, inputs, outputs, run, 1, None if kind == "special" else oracle)


def elementwise_losses(rng):
    for name in FUNCTIONS:
        yield elementwise_trial(rng, name)


def elementwise_trial(rng, name):
    (n, size), dtype, delta = sizes(rng), draw_dtype(rng), float(rng.choice([0.25, 1, 2]))
    kind, (scores, targets, weights) = draw_values(rng, ((n, size), (n, size), (n,)))
    weights = np.abs(weights)

    def run(a, threads):
        op = ElementwiseLossOp((size,), name, delta, dtype)
        loss_batch(op, a.scores, a.targets, a.losses, a.dscores, a.weights, threads)

    def oracle():
        losses, slopes = mean_of(name, scores, targets, delta)
        loss_bound, slope_bound = elementwise_bounds(name, scores, targets, delta, dtype)
        yield "losses", losses, loss_bound
        yield "dscores", slopes * weights[:, None], slope_bound * weights[:, None]

    inputs = named("scores targets weights", (scores, targets, weights), dtype)
    outputs = {"losses": (n,), "dscores": scores.shape}
    about = f"{kind} {scores.shape} {name} {delta}"
    return Trial(about, dtype, inputs, outputs, run, 1, None if kind == "special" else oracle)


LOSSES = (softmax_cross_entropy, elementwise_losses)
