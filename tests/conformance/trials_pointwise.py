"""Random calls of activations and normalizations."""

import numpy as np
import reference as ref
from conformance.trial import Trial, both_ways, draw_dtype, draw_values, named, sizes
from native.kernels.test_batchnorm import bounds as batch_norm_bounds
from native.kernels.test_batchnorm import geometries as batch_norm_geometries
from native.kernels.test_groupnorm import bounds as norm_bounds
from native.kernels.test_groupnorm import geometries as norm_geometries
from native.kernels.test_layernorm import bounds as layer_norm_bounds
from native.kernels.test_layernorm import geometries as layer_norm_geometries
from native.kernels.test_softmax import expected as softmax_expected
from native.kernels.test_softmax import expected_log as log_softmax_expected
from per_example_checks import check_sums
from reference_activations import ARGUMENTS
from reference_activations import FUNCTIONS as ACTIVATIONS
from reference_activations import error as activation_error

from minidl_c.kernels.activations import ActivationOp
from minidl_c.kernels.batchnorm import BatchNormOp
from minidl_c.kernels.batchnorm_statistics import BatchStatisticsOp
from minidl_c.kernels.groupnorm import GroupNormOp
from minidl_c.kernels.layernorm import LayerNormOp
from minidl_c.kernels.prelu import PReLUOp
from minidl_c.kernels.scale import ScaleOp
from minidl_c.kernels.softmax import SoftmaxOp
from minidl_c.runtime.plan import Plan
from minidl_c.runtime.single_op import backward_batch, forward_batch


def activations(rng):
    for name in ACTIVATIONS:
        yield activation_trial(rng, name)


def activation_trial(rng, name):
    (n, size), dtype, arguments = sizes(rng), draw_dtype(rng), rng.choice(ARGUMENTS.get(name, ((0, 0),)))
    kind, (x, dy) = draw_values(rng, ((n, size),) * 2)

    def run(a, threads):
        both_ways(ActivationOp((size,), name, *arguments, dtype), a, threads)

    def oracle():
        wide, given = x.astype("f8"), np.array(arguments, dtype).astype("f8")
        with np.errstate(all="ignore"):
            y, slope = (function(wide, *given).astype(dtype) for function in ACTIVATIONS[name])
            y_bound, slope_bound = activation_error(name, wide, *given, dtype)
        yield "y", y, y_bound
        yield "dx", dy * slope, slope_bound * np.abs(dy)

    inputs, outputs = named("x dy", (x, dy), dtype), {"y": x.shape, "dx": x.shape}
    about = f"{kind} {x.shape} {name} {arguments}"
    return Trial(about, dtype, inputs, outputs, run, 2, oracle if kind != "special" else None)


def prelu(rng):
    (n, channels), pixels, dtype, shared = sizes(rng), int(rng.integers(1, 20)), draw_dtype(rng), bool(rng.integers(2))
    kind, (x, dy, weight) = draw_values(rng, (*((n, channels, pixels),) * 2, (1 if shared else channels,)))

    def run(a, threads):
        op = PReLUOp((channels, pixels), shared, dtype)
        forward_batch(op, a.x, a.y, (a.weight,), threads)
        backward_batch(op, a.dy, a.x, a.dx, (a.weight,), (a.dweight,), threads)
        check_sums(op, a.dy, a.x, a.dx, (a.weight,), (a.dweight,), threads)

    def oracle():
        x_, dy_, w = x.astype(dtype), dy.astype(dtype), weight.astype(dtype)[:, None]
        yield "y", np.where(x > 0, x_, w * x_), 0
        yield "dx", np.where(x > 0, dy_, w * dy_), 0
        terms, axes = np.where(x > 0, 0, x.astype("f8") * dy), (0, 1, 2) if shared else (0, 2)
        bound = ref.rounding(x.size, dtype) * np.abs(terms).sum(axes)
        yield "dweight", terms.sum(axes).reshape(weight.shape), bound

    inputs = named("x dy weight", (x, dy, weight), dtype)
    outputs = {"y": x.shape, "dx": x.shape, "dweight": weight.shape}
    yield Trial(f"{kind} {x.shape} {shared}", dtype, inputs, outputs, run, 2, oracle if kind != "special" else None)


def scale(rng):
    (n, channels), pixels, use_bias = sizes(rng), int(rng.integers(1, 20)), bool(rng.integers(2))
    dtype = draw_dtype(rng)
    kind, (x, dy, w, b) = draw_values(rng, ((n, channels, pixels),) * 2 + ((channels,),) * 2)

    def run(a, threads):
        op = ScaleOp((channels, pixels), use_bias, dtype)
        params, grads = ((a.w, a.b), (a.dw, a.db)) if use_bias else ((a.w,), (a.dw,))
        forward_batch(op, a.x, a.y, params, threads)
        backward_batch(op, a.dy, a.x, a.dx, params, grads, threads)
        check_sums(op, a.dy, a.x, a.dx, params, grads, threads)

    def oracle():
        wide, dy_, w_, b_ = (v.astype(dtype).astype("f8") for v in (x, dy, w[:, None], b[:, None] * use_bias))
        unit = ref.rounding(1, dtype)
        yield "y", w_ * wide + b_, unit * (np.abs(w_ * wide) + np.abs(b_))
        yield "dx", w_ * dy_, unit * np.abs(w_ * dy_)
        for name, terms in (("dw", wide * dy_), ("db", dy_))[: 1 + use_bias]:
            yield name, terms.sum((0, 2)), ref.rounding(x.size, dtype) * np.abs(terms).sum((0, 2))

    outputs = {"y": x.shape, "dx": x.shape, "dw": w.shape} | ({"db": b.shape} if use_bias else {})
    inputs = named("x dy w b", (x, dy, w, b), dtype)
    yield Trial(f"{kind} {x.shape} {use_bias}", dtype, inputs, outputs, run, 2, oracle if kind != "special" else None)


def softmax(rng):
    for function in ("softmax", "softmin", "log_softmax"):
        yield softmax_trial(rng, function)


def softmax_trial(rng, function):
    (n, classes), pixels, dtype = sizes(rng), int(rng.integers(1, 20)), draw_dtype(rng)
    kind, (x, dy) = draw_values(rng, ((n, classes, pixels),) * 2)

    def run(a, threads):
        both_ways(SoftmaxOp((classes, pixels), dtype, function), a, threads)

    def oracle():
        sign, exact = (
            -1 if function == "softmin" else 1,
            log_softmax_expected if function == "log_softmax" else softmax_expected,
        )
        y, dx, units, dx_units = exact(sign * x, dy.astype("f8"))
        unit, flushed = ref.rounding(1, dtype), 4 * classes * np.finfo(dtype).tiny
        yield "y", y, unit * units + flushed
        yield "dx", sign * dx, unit * dx_units + flushed * np.abs(dy).max(initial=0)

    inputs, outputs = named("x dy", (x, dy), dtype), {"y": x.shape, "dx": x.shape}
    about = f"{kind} {x.shape} {function}"
    return Trial(about, dtype, inputs, outputs, run, 2, oracle if kind != "special" else None)


def groupnorm(rng):
    for geometry in norm_geometries(int(rng.integers(2**32)), 10):
        yield groupnorm_trial(rng, *geometry)


def groupnorm_trial(rng, groups, channels, pixels):
    n, dtype, affine = int(rng.integers(0, 41)), draw_dtype(rng), bool(rng.integers(4))
    channels *= groups
    kind, (x, dy, w, b) = draw_values(rng, ((n, channels, pixels),) * 2 + ((channels,),) * 2)
    w, b = (w, b) if affine else (np.ones_like(w), np.zeros_like(b))

    def run(a, threads):
        op = GroupNormOp((channels, pixels), groups, channels, 0.1, affine, dtype)
        params, grads = ((a.w, a.b), (a.dw, a.db)) if affine else ((), ())
        forward_batch(op, a.x, a.y, params, threads)
        backward_batch(op, a.dy, a.x, a.dx, params, grads, threads)
        if affine:
            check_sums(op, a.dy, a.x, a.dx, params, grads, threads)

    def oracle():
        exact = ref.groupnorm_forward(x, w, b, groups, 0.1), *ref.groupnorm_backward(dy, x, w, groups, 0.1)
        bounds = norm_bounds(x, dy, w, b, groups, 0.1, dtype)
        yield from list(zip(("y", "dx", "dw", "db"), exact, bounds, strict=True))[: 4 if affine else 2]

    outputs = {"y": x.shape, "dx": x.shape} | ({"dw": w.shape, "db": w.shape} if affine else {})
    about = f"{kind} {x.shape} groups={groups} affine={affine}"
    inputs = named("x dy w b", (x, dy, w, b), dtype)
    return Trial(about, dtype, inputs, outputs, run, 2, None if kind == "special" else oracle)


def layernorm(rng):
    for geometry in layer_norm_geometries(int(rng.integers(2**32)), 10):
        yield layernorm_trial(rng, *geometry)


def layernorm_trial(rng, channels, pixels):
    n, dtype, centered, affine = int(rng.integers(0, 41)), draw_dtype(rng), bool(rng.integers(2)), bool(rng.integers(4))
    kind, (x, dy, w, b) = draw_values(rng, ((n, channels, pixels),) * 2 + ((channels,),) * 2)
    w, b = w if affine else np.ones_like(w), b if affine and centered else np.zeros_like(b)
    count = (2 if centered else 1) if affine else 0

    def run(a, threads):
        op = LayerNormOp((channels, pixels), channels, 0.1, centered, affine, dtype)
        params, grads = (a.w, a.b)[:count], (a.dw, a.db)[:count]
        forward_batch(op, a.x, a.y, params, threads)
        backward_batch(op, a.dy, a.x, a.dx, params, grads, threads)
        if affine:
            check_sums(op, a.dy, a.x, a.dx, params, grads, threads)
        for unused in (a.dw, a.db)[count:]:
            unused[...] = 0

    def oracle():
        exact = ref.layernorm_forward(x, w, b, 0.1, centered), *ref.layernorm_backward(dy, x, w, 0.1, centered)
        bounds = layer_norm_bounds(x, dy, w, b, 0.1, centered, dtype)
        yield from list(zip(("y", "dx", "dw", "db"), exact, bounds, strict=True))[: 2 + count]

    outputs = {"y": x.shape, "dx": x.shape, "dw": w.shape, "db": b.shape}
    about = f"{kind} {x.shape} centered={centered} affine={affine}"
    inputs = named("x dy w b", (x, dy, w, b), dtype)
    return Trial(about, dtype, inputs, outputs, run, 2, None if kind == "special" else oracle)


def batchnorm(rng):
    for geometry in batch_norm_geometries(int(rng.integers(2**32)), 10):
        yield batchnorm_trial(rng, *geometry)


def batchnorm_trial(rng, channels, pixels):
    """Returns a trial of both ops in a plan: a training step, then inference with the updated statistics."""
    n, dtype, eps = int(rng.choice([0, *range(2, 41)])), draw_dtype(rng), 0.1
    kind, (x, dy, w, b) = draw_values(rng, ((n, channels, pixels),) * 2 + ((channels,),) * 2)
    param = np.concatenate([w, b, np.zeros(channels), np.ones(channels), [0]])

    def run(a, threads):
        ops = [op((channels, pixels), eps, dtype=dtype) for op in (BatchStatisticsOp, BatchNormOp)]
        x, dy, y, dx, inferred = (v.reshape(n, channels * pixels) for v in (a.x, a.dy, a.y, a.dx, a.inferred))
        a.after[...], a.grad[...] = a.param, 0
        plan = Plan(ops, [0, 0])
        kept = plan.forward(x, a.after, y, threads)
        plan.backward(kept, dy, dx, a.after, a.grad)
        plan.predict(x, None, a.after, inferred, threads)

    def oracle():
        exact = ref.batchnorm_forward(x, w, b, eps), *ref.batchnorm_backward(dy, x, w, eps)
        bounds = batch_norm_bounds(x, dy, w, b, eps, dtype)
        yield "y", exact[0], bounds[0]
        yield "dx", exact[1], bounds[1]
        state = np.zeros(2 * channels + 1)
        yield "grad", np.concatenate([*exact[2:], state]), np.concatenate([*bounds[2:], state])

    outputs = dict.fromkeys(("y", "dx", "inferred"), x.shape) | dict.fromkeys(("after", "grad"), param.shape)
    inputs = named("x dy param", (x, dy, param), dtype)
    judged = kind != "special" and n > 0
    return Trial(f"{kind} {x.shape}", dtype, inputs, outputs, run, 3, oracle if judged else None)


POINTWISE = (activations, prelu, scale, softmax, groupnorm, layernorm, batchnorm)
