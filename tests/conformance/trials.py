"""Random calls of every kernel, for fuzz.py: one function per kernel, which yields a block of trials."""

from functools import partial

import numpy as np
import reference as ref
import reference_optimizers as formulas
from conformance.trial import Trial, both_ways, draw_dtype, draw_values, named, sizes, small_batch, within_rounding
from conformance.trials_images import IMAGES
from conformance.trials_losses import LOSSES
from conformance.trials_pointwise import POINTWISE
from conformance.trials_tables import TABLES
from geometries import CONV_FORMS, POOL_FORMS, conv_cases, depthwise_cases, pool_cases, transposed_cases
from per_example_checks import check_sums

from minidl_c.functional import (
    conv2d_backward,
    conv2d_forward,
    dense_backward,
    dense_forward,
    maxpool2d_backward,
    maxpool2d_forward,
)
from minidl_c.kernels.conv2d import Conv2DOp
from minidl_c.kernels.conv_transpose2d import ConvTranspose2DOp
from minidl_c.kernels.dense import DenseOp
from minidl_c.kernels.depthwise_conv2d import DepthwiseConv2DOp
from minidl_c.kernels.dropout import DropoutOp
from minidl_c.kernels.flatten import FlattenOp
from minidl_c.kernels.relu import ReLUOp
from minidl_c.kernels.rescale import RescaleOp
from minidl_c.optimizers.adaptive import AdagradUpdate, AdamUpdate, RMSpropUpdate
from minidl_c.optimizers.sgd import SGDUpdate
from minidl_c.runtime.gather import pack_tiles, unpack_tiles
from minidl_c.runtime.single_op import backward_batch, forward_batch


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
        op = Conv2DOp(case.x_shape[1:], case.filters, case.kernel, **options, dtype=dtype)
        check_sums(op, a.dy, a.x, a.dx, (a.w, a.b), (a.dw, a.db), threads)

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


def depthwise_conv2d(rng):
    for case in depthwise_cases(int(rng.integers(2**32)), len(CONV_FORMS)):
        window = (case.kernel, case.stride, case.padding, case.dilation, case.filters // case.channels)
        yield conv_trial(rng, small_batch(rng, case), partial(DepthwiseConv2DOp, case.x_shape[1:], *window), CONV2D)


def conv_transpose2d(rng):
    for case in transposed_cases(int(rng.integers(2**32)), len(CONV_FORMS)):
        make = partial(ConvTranspose2DOp, case.x_shape[1:], case.filters, case.kernel, **case.options)
        yield conv_trial(rng, small_batch(rng, case), make, CONV_TRANSPOSE2D)


CONV2D = (ref.conv2d_forward, ref.conv2d_backward)
CONV_TRANSPOSE2D = (ref.conv_transpose2d_forward, ref.conv_transpose2d_backward)


def conv_trial(rng, case, make, reference):
    """Returns a trial of the op that make(dtype=...) returns, with or without a bias."""
    dtype, biased = draw_dtype(rng), bool(rng.integers(2))
    kind, values = draw_values(rng, (case.x_shape, case.w_shape, (case.filters,), case.y_shape))
    names = ("w", "b") if biased else ("w",)

    def run(a, threads):
        op, params = make(dtype=dtype, use_bias=biased), [getattr(a, name) for name in names]
        grads = [getattr(a, f"d{name}") for name in names]
        forward_batch(op, a.x, a.y, params, threads)
        backward_batch(op, a.dy, a.x, a.dx, params, grads, threads)
        check_sums(op, a.dy, a.x, a.dx, params, grads, threads)

    def oracle():
        results = []
        for x, w, b, dy in (values, [np.abs(v) for v in values]):
            results.append((reference[0](x, w, b * biased, case), *reference[1](dy, x, w, case)))
        terms = (values[1].size + 1, values[1].size, values[3].size, values[3].size)
        found = within_rounding("y dx dw db", results, terms, dtype, kind)
        return (part for part in found if biased or part[0] != "db")

    outputs = {"y": case.y_shape, "dx": case.x_shape} | {f"d{n}": values["xwb".index(n)].shape for n in names}
    inputs = named("x w b dy", values, dtype)
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
        check_sums(DenseOp((inputs,), outputs, dtype), a.dy, a.x, a.dx, (a.w, a.b), (a.dw, a.db), threads)

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
    dy = rng.integers(-9, 10, case.y_shape).astype("f4")  # exact sums
    x[np.abs(x) < np.finfo("f4").tiny] = 0  # flushed to zero, subnormals would create ties

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
        pack_tiles(a.x, a.rows, a.tiles)
        unpack_tiles(a.tiles, a.y)

    def oracle():
        yield "y", x[rows].astype(dtype), 0

    outputs = {"tiles": (-(-m // 16), size, 16), "y": (m, size)}
    yield Trial(f"{x_dtype} {x.shape} m={m}", dtype, {"x": x, "rows": rows}, outputs, run, 2, oracle)


def draw_optimizer(rng):
    """Draws an Update class, its formula and the arguments of both."""
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


def dropout(rng):
    (n, size), dtype, rate = sizes(rng), draw_dtype(rng), float(rng.random() * 0.9)
    kind, values = draw_values(rng, ((n, size),) * 2)
    seed, step, path = int(rng.integers(2**62)), int(rng.integers(2**40)), str(rng.integers(99))
    numbers, group = rng.integers(0, 2**40, n), int(rng.choice([d for d in range(1, size + 1) if size % d == 0]))

    def run(a, threads):
        options = {"seed": seed, "step": step, "example_ids": a.example_ids, "num_threads": threads}
        forward_batch(DropoutOp((size,), rate, path, dtype, group), a.x, a.y, training=True, **options)
        backward_batch(DropoutOp((size,), rate, path, dtype, group), a.dy, a.x, a.dx, **options)

    def oracle():
        what = {"rows": numbers, "seed": seed, "step": step, "path": path}
        for name, value in zip(("y", "dx"), values, strict=True):
            yield name, ref.dropout(value.astype(dtype), rate, group, **what), 0

    inputs, outputs = named("x dy", values, dtype) | {"example_ids": numbers}, {"y": (n, size), "dx": (n, size)}
    about = f"{kind} {(n, size)} {rate} {group}"
    yield Trial(about, dtype, inputs, outputs, run, 2, None if kind == "special" else oracle)


KERNELS = (
    *(conv2d, dense, relu, dropout, maxpool2d, rescale, conv2d, flatten, gather, optimizers),
    *(depthwise_conv2d, conv_transpose2d, *LOSSES, *POINTWISE, *IMAGES, *TABLES),
)
