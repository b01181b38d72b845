"""Random calls of every kernel that Python can call, for fuzz.py: a function a kernel yields a block of trials."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
import formulas
import reference as ref
import reference_images as images
from geometries import CONV_FORMS, POOL_FORMS, conv_cases, pool_cases
from kernels.test_groupnorm import bounds as norm_bounds
from kernels.test_groupnorm import geometries as norm_geometries
from kernels.test_softmax import expected as softmax_expected
from kernels.test_softmax_cross_entropy import bounds as softmax_bounds
from reference_activations import FUNCTIONS as ACTIVATIONS
from reference_activations import error as activation_error

from minidl_c.activations import ActivationOp
from minidl_c.adaptive import AdagradUpdate, AdamUpdate, RMSpropUpdate
from minidl_c.augment import AugmentOp
from minidl_c.avgpool2d import AvgPool2DOp
from minidl_c.batch import backward_batch, forward_batch
from minidl_c.conv2d import conv2d_backward, conv2d_forward
from minidl_c.dense import dense_backward, dense_forward
from minidl_c.dropout import DropoutOp
from minidl_c.flatten import FlattenOp
from minidl_c.gather import gather_backward, gather_forward
from minidl_c.groupnorm import GroupNormOp
from minidl_c.maxpool2d import maxpool2d_backward, maxpool2d_forward
from minidl_c.normalize import NormalizeOp
from minidl_c.pad2d import Pad2DOp
from minidl_c.prelu import PReLUOp
from minidl_c.relu import ReLUOp
from minidl_c.rescale import RescaleOp
from minidl_c.sgd import SGDUpdate
from minidl_c.softmax import SoftmaxOp
from minidl_c.softmax_cross_entropy import softmax as probabilities
from minidl_c.softmax_cross_entropy import softmax_cross_entropy_backward, softmax_cross_entropy_forward
from minidl_c.upsample2d import Upsample2DOp

SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 3e38, -3e38, 1e-40, -1e-45)


@dataclass
class Trial:
    """So many calls of a kernel. `run` gets arrays by name; `oracle` yields name, exact numbers, allowed error."""

    about: str
    dtype: str
    inputs: dict[str, np.ndarray]
    outputs: dict[str, tuple[int, ...]]
    run: Callable[[SimpleNamespace, int], None]
    calls: int
    oracle: Callable[[], Iterator[tuple[str, np.ndarray, np.ndarray | float]]] | None = None


def alone(trial: Trial) -> SimpleNamespace:
    """Its arrays, each in memory of its own."""
    arrays = {name: values.copy() for name, values in trial.inputs.items()}
    return SimpleNamespace(**arrays, **{n: np.full(s, 7, trial.dtype) for n, s in trial.outputs.items()})


# ---- values --------------------------------------------------------------------------------------
def draw_values(rng, shapes):
    """Arrays, exact in float32, and what they hold: whole numbers (ties; sums are exact), normal or special ones."""
    kind = str(rng.choice(["whole", "normal", "special"]))
    if kind == "whole":
        return kind, [rng.integers(-4, 5, shape).astype("f4") for shape in shapes]
    values = [rng.standard_normal(shape, "f4") for shape in shapes]
    if kind == "special":
        values = [np.where(rng.random(v.shape) < 0.1, rng.choice(SPECIAL, v.shape), v).astype("f4") for v in values]
    return kind, values


def named(names, values, dtype):
    return {name: value.astype(dtype) for name, value in zip(names.split(), values, strict=True)}


def draw_dtype(rng):
    return str(rng.choice(["float32", "float64"]))


def within_rounding(names, results, terms, dtype, kind):
    """What an oracle yields, for sums of so many terms; `results` are the exact numbers, and those of |x|, |w| ..."""
    for name, exact, magnitude, count in zip(names.split(), *results, terms, strict=True):
        yield name, exact, 0 if kind == "whole" else ref.rounding(count, dtype) * magnitude


def small_batch(rng, case):
    return replace(case, batch=int(rng.integers(0, 41))) if rng.random() < 0.5 else case


def sizes(rng):
    """n, and numbers of an example."""
    return int(rng.integers(0, 41)), int(rng.integers(1, 40))


def both_ways(op, a, threads):
    """Forward and backward of an op without parameters."""
    forward_batch(op, a.x, a.y, num_threads=threads)
    backward_batch(op, a.dy, a.x, a.dx, num_threads=threads)


# ---- the kernels: each yields the trials of a block ----------------------------------------------
def conv2d(rng):
    for case in conv_cases(int(rng.integers(2**32)), len(CONV_FORMS)):
        yield conv2d_trial(rng, small_batch(rng, case))


def conv2d_trial(rng, case):
    dtype, options = draw_dtype(rng), case.options
    kind, values = draw_values(rng, (case.x_shape, case.w_shape, (case.filters,), case.y_shape))

    def run(a, threads):
        conv2d_forward(a.x, a.w, a.b, a.y, **options, num_threads=threads)
        conv2d_backward(a.dy, a.x, a.w, a.dx, a.dw, a.db, **options, num_threads=threads)

    def oracle():
        results = []
        for x, w, b, dy in (values, [np.abs(v) for v in values]):
            results.append((ref.conv2d_forward(x, w, b, case), *ref.conv2d_backward(dy, x, w, case)))
        pixels = int(np.prod(case.y_shape)) // case.filters
        terms = (case.terms + 1, case.terms * case.filters, pixels, pixels)
        return within_rounding("y dx dw db", results, terms, dtype, kind)

    inputs = named("x w b dy", values, dtype)
    outputs = {"y": case.y_shape, "dx": case.x_shape, "dw": case.w_shape, "db": (case.filters,)}
    return Trial(f"{kind} {case}", dtype, inputs, outputs, run, 2, None if kind == "special" else oracle)


def dense(rng):
    for _ in range(10):
        yield dense_trial(rng)


def dense_trial(rng):
    (n, inputs), outputs, dtype = sizes(rng), int(rng.integers(1, 70)), draw_dtype(rng)
    shapes = (n, inputs), (inputs, outputs), (outputs,), (n, outputs)
    kind, values = draw_values(rng, shapes)

    def run(a, threads):
        dense_forward(a.x, a.w, a.b, a.y, threads)
        dense_backward(a.dy, a.x, a.w, a.dx, a.dw, a.db, threads)

    def oracle():
        results = []
        for x, w, b, dy in (values, [np.abs(v) for v in values]):
            results.append((ref.dense_forward(x, w, b), *ref.dense_backward(dy, x, w)))
        return within_rounding("y dx dw db", results, (inputs + 1, outputs, n, n), dtype, kind)

    out = {"y": shapes[3], "dx": shapes[0], "dw": shapes[1], "db": shapes[2]}
    about = f"{kind} n={n} {inputs}->{outputs}"
    return Trial(about, dtype, named("x w b dy", values, dtype), out, run, 2, None if kind == "special" else oracle)


def maxpool2d(rng):
    for case in pool_cases(int(rng.integers(2**32)), len(POOL_FORMS)):
        yield maxpool2d_trial(rng, small_batch(rng, case))


def maxpool2d_trial(rng, case):
    dtype = draw_dtype(rng)
    kind, (x,) = draw_values(rng, (case.x_shape,))
    dy = rng.integers(-9, 10, case.y_shape).astype("f4")  # sums without rounding
    x[np.abs(x) < np.finfo("f4").tiny] = 0  # flushed, subnormal numbers would tie with it

    def run(a, threads):
        maxpool2d_forward(a.x, a.y, **case.options, num_threads=threads)
        maxpool2d_backward(a.dy, a.x, a.dx, **case.options, num_threads=threads)

    def oracle():
        y, winner = ref.maxpool2d_forward(x, case)
        yield "y", y, 0
        yield "dx", ref.maxpool2d_backward(dy, winner, case), 0

    inputs, outputs = named("x dy", (x, dy), dtype), {"y": case.y_shape, "dx": case.x_shape}
    return Trial(f"{kind} {case}", dtype, inputs, outputs, run, 2, oracle)


def relu(rng):
    (n, size), dtype = sizes(rng), draw_dtype(rng)
    kind, (x, dy) = draw_values(rng, ((n, size),) * 2)

    def run(a, threads):
        both_ways(ReLUOp((size,), dtype), a, threads)

    def oracle():
        yield "y", np.maximum(x, 0).astype(dtype), 0
        yield "dx", np.where(x > 0, dy, 0).astype(dtype), 0

    inputs, outputs = named("x dy", (x, dy), dtype), {"y": x.shape, "dx": x.shape}
    yield Trial(f"{kind} {x.shape}", dtype, inputs, outputs, run, 2, oracle if kind != "special" else None)


def rescale(rng):
    (n, size), dtype = sizes(rng), draw_dtype(rng)
    kind, (x, dy) = draw_values(rng, ((n, size),) * 2)
    scale, offset = (float(v) for v in rng.standard_normal(2))

    def run(a, threads):
        both_ways(RescaleOp((size,), scale, offset, dtype), a, threads)

    def oracle():
        wide, dwide = x.astype("f8"), dy.astype("f8")
        yield "y", wide * scale + offset, ref.rounding(3, dtype) * (np.abs(wide * scale) + abs(offset))
        yield "dx", dwide * scale, ref.rounding(2, dtype) * np.abs(dwide * scale)

    inputs, outputs = named("x dy", (x, dy), dtype), {"y": x.shape, "dx": x.shape}
    yield Trial(f"{kind} {x.shape} {scale}", dtype, inputs, outputs, run, 2, oracle if kind != "special" else None)


def activations(rng):
    for name in ACTIVATIONS:
        yield activation_trial(rng, name)


def activation_trial(rng, name):
    (n, size), dtype, argument = sizes(rng), draw_dtype(rng), float(rng.choice([0, 0.25, 2]))
    kind, (x, dy) = draw_values(rng, ((n, size),) * 2)

    def run(a, threads):
        both_ways(ActivationOp((size,), name, argument, dtype), a, threads)

    def oracle():
        (f, slope), wide = ACTIVATIONS[name], x.astype("f8")
        y_bound, slope_bound = activation_error(name, wide, argument, dtype)
        yield "y", f(wide, argument), y_bound
        yield "dx", dy * slope(wide, argument), slope_bound * np.abs(dy)

    inputs, outputs = named("x dy", (x, dy), dtype), {"y": x.shape, "dx": x.shape}
    about = f"{kind} {x.shape} {name} {argument}"
    return Trial(about, dtype, inputs, outputs, run, 2, oracle if kind != "special" else None)


def prelu(rng):
    (n, channels), pixels, dtype, shared = sizes(rng), int(rng.integers(1, 20)), draw_dtype(rng), bool(rng.integers(2))
    kind, (x, dy, weight) = draw_values(rng, (*((n, channels, pixels),) * 2, (1 if shared else channels,)))

    def run(a, threads):
        op = PReLUOp((channels, pixels), shared, dtype)
        forward_batch(op, a.x, a.y, (a.weight,), threads)
        backward_batch(op, a.dy, a.x, a.dx, (a.weight,), (a.dweight,), threads)

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


def softmax(rng):
    (n, classes), pixels, dtype = sizes(rng), int(rng.integers(1, 20)), draw_dtype(rng)
    kind, (x, dy) = draw_values(rng, ((n, classes, pixels),) * 2)

    def run(a, threads):
        both_ways(SoftmaxOp((classes, pixels), dtype), a, threads)

    def oracle():
        y, dx, units, dx_units = softmax_expected(x, dy.astype("f8"))
        unit, flushed = ref.rounding(1, dtype), 4 * classes * np.finfo(dtype).tiny
        yield "y", y, unit * units + flushed
        yield "dx", dx, unit * dx_units + flushed * np.abs(dy).max(initial=0)

    inputs, outputs = named("x dy", (x, dy), dtype), {"y": x.shape, "dx": x.shape}
    yield Trial(f"{kind} {x.shape}", dtype, inputs, outputs, run, 2, oracle if kind != "special" else None)


def flatten(rng):
    dtype, shape = draw_dtype(rng), (int(rng.integers(0, 41)), *(int(v) for v in rng.integers(1, 6, 3)))
    kind, (x, dy) = draw_values(rng, (shape, (shape[0], int(np.prod(shape[1:])))))

    def run(a, threads):
        both_ways(FlattenOp(shape[1:], dtype), a, threads)

    def oracle():
        yield "y", x.reshape(dy.shape).astype(dtype), 0
        yield "dx", dy.reshape(x.shape).astype(dtype), 0

    inputs, outputs = named("x dy", (x, dy), dtype), {"y": dy.shape, "dx": shape}
    yield Trial(f"{kind} {shape}", dtype, inputs, outputs, run, 2, oracle)


def gather(rng):
    (n, size), dtype = sizes(rng), draw_dtype(rng)
    m = int(rng.integers(0, 50)) if n else 0
    x_dtype = str(rng.choice(["uint8", "float32", dtype]))
    x = rng.integers(0, 256, (n, size)).astype(x_dtype)
    rows = rng.integers(0, max(n, 1), m)

    def run(a, threads):
        gather_forward(a.x, a.rows, a.tiles)
        gather_backward(a.tiles, a.y)

    def oracle():
        yield "y", x[rows].astype(dtype), 0

    outputs = {"tiles": (-(-m // 16), size, 16), "y": (m, size)}
    yield Trial(f"{x_dtype} {x.shape} m={m}", dtype, {"x": x, "rows": rows}, outputs, run, 2, oracle)


def draw_optimizer(rng):
    """A class of updates, its formula and arguments of both."""
    decay, flag, other = float(rng.choice([0, 0.1])), bool(rng.integers(2)), bool(rng.integers(2))
    momentum = float(rng.choice([0, 0.5, 0.9]))
    drawn = (
        (SGDUpdate, formulas.sgd, {"momentum": momentum, "nesterov": flag}),
        (AdagradUpdate, formulas.adagrad, {"lr_decay": momentum}),
        (RMSpropUpdate, formulas.rmsprop, {"momentum": momentum, "centered": flag}),
        (AdamUpdate, formulas.adam, {"amsgrad": flag, "decoupled": other}),
    )
    kind, formula, arguments = drawn[rng.integers(len(drawn))]
    return kind, formula, arguments | {"weight_decay": decay}


def optimizers(rng):
    (_, size), dtype = sizes(rng), draw_dtype(rng)
    kind, values = draw_values(rng, ((size,),) * 5)
    w, g, *states = (value.astype(dtype) for value in values)
    make, formula, arguments = draw_optimizer(rng)
    lr, step = float(rng.random()), int(rng.integers(1000))
    names = list(make(size, dtype, **arguments).state)
    state = {name: np.abs(value) for name, value in zip(names, states, strict=False)}

    def run(a, threads):
        a.w[...] = w
        update = make(size, dtype, **arguments)
        update.steps = step
        for name, array in update.state.items():
            array[...] = state[name]
        update.apply(a.w, a.g, lr)
        for name, array in update.state.items():
            vars(a)[name][...] = array

    def oracle():
        exact, after = formula(w, g, state, lr, step, **arguments)
        for name, array in {"w": exact, **after}.items():
            yield name, array, 0

    about = f"{kind} {make.__name__} size={size} lr={lr} step={step} {arguments}"
    outputs = dict.fromkeys(["w", *names], w.shape)
    yield Trial(about, dtype, {"g": g}, outputs, run, 1, None if kind == "special" else oracle)


def softmax_cross_entropy(rng):
    (n, classes), dtype = sizes(rng), draw_dtype(rng)
    kind, (scores, weights) = draw_values(rng, ((n, classes), (n,)))
    labels, weights = rng.integers(0, classes, n), np.abs(weights)

    def run(a, threads):
        softmax_cross_entropy_forward(a.scores, a.labels, a.losses, threads)
        softmax_cross_entropy_backward(a.scores, a.labels, a.weights, a.dscores, threads)
        probabilities(a.scores, a.probabilities, threads)

    def oracle():
        loss_bound, p_bound = softmax_bounds(scores, labels, dtype)
        yield "losses", ref.softmax_cross_entropy_forward(scores, labels), loss_bound
        yield "probabilities", ref.softmax(scores), p_bound
        exact = ref.softmax_cross_entropy_backward(scores, labels, weights)
        yield "dscores", exact, (p_bound + ref.rounding(2, dtype)) * weights[:, None]

    inputs = {**named("scores weights", (scores, weights), dtype), "labels": labels}
    outputs = {"losses": (n,), "dscores": scores.shape, "probabilities": scores.shape}
    yield Trial(f"{kind} {scores.shape}", dtype, inputs, outputs, run, 3, None if kind == "special" else oracle)


def dropout(rng):
    (n, size), dtype, rate = sizes(rng), draw_dtype(rng), float(rng.random() * 0.9)
    kind, values = draw_values(rng, ((n, size),) * 2)
    seed, step, path = int(rng.integers(2**62)), int(rng.integers(2**40)), str(rng.integers(99))
    numbers = rng.integers(0, 2**40, n)

    def run(a, threads):
        options = {"seed": seed, "step": step, "numbers": a.numbers, "num_threads": threads}
        forward_batch(DropoutOp((size,), rate, path, dtype), a.x, a.y, training=True, **options)
        backward_batch(DropoutOp((size,), rate, path, dtype), a.dy, a.x, a.dx, **options)

    def oracle():
        for name, value in zip(("y", "dx"), values, strict=True):
            yield name, ref.dropout(value.astype(dtype), rate, rows=numbers, seed=seed, step=step, path=path), 0

    inputs, outputs = named("x dy", values, dtype) | {"numbers": numbers}, {"y": (n, size), "dx": (n, size)}
    yield Trial(f"{kind} {(n, size)} {rate}", dtype, inputs, outputs, run, 2, None if kind == "special" else oracle)


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

    def oracle():
        exact = ref.groupnorm_forward(x, w, b, groups, 0.1), *ref.groupnorm_backward(dy, x, w, groups, 0.1)
        bounds = norm_bounds(x, dy, w, b, groups, 0.1, dtype)
        yield from list(zip(("y", "dx", "dw", "db"), exact, bounds, strict=True))[: 4 if affine else 2]

    outputs = {"y": x.shape, "dx": x.shape} | ({"dw": w.shape, "db": w.shape} if affine else {})
    about = f"{kind} {x.shape} groups={groups} affine={affine}"
    inputs = named("x dy w b", (x, dy, w, b), dtype)
    return Trial(about, dtype, inputs, outputs, run, 2, None if kind == "special" else oracle)


# ---- of images -----------------------------------------------------------------------------------
def moving_trial(rng, op, about, forward, backward):
    """An op that computes nothing: forward(x) and backward(dy) are exact."""
    n, dtype = int(rng.integers(0, 41)), op.dtype
    kind, (x, dy) = draw_values(rng, ((n, *op.in_shape), (n, *op.out_shape)))
    x[np.abs(x) < np.finfo("f4").tiny] = 0  # flushed, where it is divided

    def run(a, threads):
        both_ways(op, a, threads)

    def oracle():
        yield "y", forward(x.astype(dtype)), 0
        yield "dx", backward(dy.astype(dtype)), 0

    outputs = {"y": dy.shape, "dx": x.shape}
    return Trial(f"{kind} n={n} {about}", dtype, named("x dy", (x, dy), dtype), outputs, run, 2, oracle)


def image_shape(rng):
    return tuple(int(v) for v in rng.integers(1, 9, 3))


def pad2d(rng):
    shape, (top, bottom, left, right) = image_shape(rng), (int(v) for v in rng.integers(0, 5, 4))
    value, (_, h, w) = float(np.float32(rng.standard_normal())), shape
    op = Pad2DOp(shape, (top, bottom, left, right), value, draw_dtype(rng))
    frame = ((0, 0), (0, 0), (top, bottom), (left, right))
    yield moving_trial(
        rng, op, f"{shape} {frame[2:]}",
        lambda x: np.pad(x, frame, constant_values=value), lambda dy: dy[:, :, top : top + h, left : left + w],
    )  # fmt: skip


def avgpool2d(rng):
    for case in pool_cases(int(rng.integers(2**32)), len(POOL_FORMS)):
        yield avgpool2d_trial(rng, small_batch(rng, case))


def avgpool2d_trial(rng, case):
    dtype, count = draw_dtype(rng), bool(rng.integers(2))
    kind, values = draw_values(rng, (case.x_shape, case.y_shape))
    op = AvgPool2DOp(case.x_shape[1:], **case.options, count_include_pad=count, dtype=dtype)

    def run(a, threads):
        both_ways(op, a, threads)

    def oracle():
        results = []
        for x, dy in (values, [np.abs(v) for v in values]):
            wide = x.astype("f8"), dy.astype("f8")
            backward = images.avgpool2d_backward(wide[1], case, count)
            results.append((images.avgpool2d_forward(wide[0], case, count), backward))
        terms = int(np.prod(case.kernel)) + 2
        return within_rounding("y dx", results, (terms, terms), dtype, "divided")

    inputs, outputs = named("x dy", values, dtype), {"y": case.y_shape, "dx": case.x_shape}
    return Trial(f"{kind} {count} {case}", dtype, inputs, outputs, run, 2, None if kind == "special" else oracle)


def upsample2d(rng):
    dtype, (n, *shape) = draw_dtype(rng), (int(rng.integers(0, 41)), *image_shape(rng))
    scale = tuple(int(v) for v in rng.integers(1, 5, 2))
    op = Upsample2DOp(shape, scale, dtype)
    kind, (x, dy) = draw_values(rng, ((n, *shape), (n, *op.out_shape)))

    def run(a, threads):
        both_ways(op, a, threads)

    def oracle():
        yield "y", x.repeat(scale[0], axis=2).repeat(scale[1], axis=3), 0
        blocks = dy.astype("f8").reshape(n, *shape[:2], scale[0], shape[2], scale[1])
        bound = ref.rounding(int(np.prod(scale)) + 1, dtype) * np.abs(blocks).sum(axis=(3, 5))
        yield "dx", blocks.sum(axis=(3, 5)), bound

    inputs, outputs = named("x dy", (x, dy), dtype), {"y": dy.shape, "dx": x.shape}
    yield Trial(f"{kind} {x.shape} {scale}", dtype, inputs, outputs, run, 2, None if kind == "special" else oracle)


def normalize(rng):
    shape, dtype = image_shape(rng), draw_dtype(rng)
    mean, std = rng.standard_normal(shape[0]), rng.random(shape[0]) + 0.1
    m, s = (v.astype(dtype).reshape(-1, 1, 1) for v in (mean, std))
    op = NormalizeOp(shape, mean.tolist(), std.tolist(), dtype)
    yield moving_trial(rng, op, f"{shape}", lambda x: (x - m) / s, lambda dy: dy / s)


def augment(rng):
    dtype, (n, *shape) = draw_dtype(rng), (int(rng.integers(0, 41)), *image_shape(rng))
    size, first = (tuple(int(v) for v in rng.integers(low, 9, 2)) for low in (1, -9))
    last = tuple(int(f + v) for f, v in zip(first, rng.integers(0, 7, 2), strict=True))
    flips = tuple(bool(v) for v in rng.integers(0, 2, 2))
    what = {"seed": int(rng.integers(2**62)), "step": int(rng.integers(2**40))}
    op = AugmentOp(shape, size, first, last, flips, "1", dtype)
    kind, (x, dy) = draw_values(rng, ((n, *shape), (n, *op.out_shape)))
    numbers = rng.integers(0, 2**40, n)

    def run(a, threads):
        forward_batch(op, a.x, a.y, training=True, **what, numbers=a.numbers, num_threads=threads)
        backward_batch(op, a.dy, a.x, a.dx, **what, numbers=a.numbers, num_threads=threads)

    def oracle():
        draws = images.augment_draws(numbers, first, last, flips, **what, path="1")
        if n:
            yield "y", images.pieces(x, size, draws), 0
        yield "dx", images.pieces_backward(dy, shape, draws), 0

    inputs, outputs = named("x dy", (x, dy), dtype) | {"numbers": numbers}, {"y": dy.shape, "dx": x.shape}
    yield Trial(f"{kind} {x.shape} {size} {first} {last}", dtype, inputs, outputs, run, 2, oracle)


KERNELS = (
    *(conv2d, dense, relu, dropout, maxpool2d, rescale, conv2d, flatten, gather, groupnorm, optimizers),
    *(softmax_cross_entropy, activations, prelu, softmax, pad2d, avgpool2d, upsample2d, normalize, augment),
)
