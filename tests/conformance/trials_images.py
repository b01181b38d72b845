"""Random calls of image kernels: padding, pooling, upsampling, normalization and augmentation."""

import numpy as np
import reference as ref
import reference_augment
import reference_images as images
from conformance.trial import Trial, both_ways, draw_dtype, draw_values, named, small_batch, within_rounding
from geometries import POOL_FORMS, pool_cases

from minidl_c.kernels.affine import AffineOp
from minidl_c.kernels.augment import AugmentOp, QuarterTurnOp
from minidl_c.kernels.avgpool2d import AvgPool2DOp
from minidl_c.kernels.color_jitter import ColorJitterOp
from minidl_c.kernels.columns import ColumnsOp
from minidl_c.kernels.cutout import CutoutOp
from minidl_c.kernels.noise import NoiseOp
from minidl_c.kernels.normalize import NormalizeOp
from minidl_c.kernels.pad2d import Pad2DOp
from minidl_c.kernels.permute import ChannelShuffleOp, PermuteOp
from minidl_c.kernels.upsample2d import Upsample2DOp
from minidl_c.runtime.single_op import backward_batch, forward_batch


def moving_trial(rng, op, about, forward, backward):
    """Returns a trial of an op that only moves values, so forward(x) and backward(dy) are exact."""
    n, dtype = int(rng.integers(0, 41)), op.dtype
    kind, (x, dy) = draw_values(rng, ((n, *op.in_shape), (n, *op.out_shape)))
    x[np.abs(x) < np.finfo("f4").tiny] = 0  # subnormals would be flushed by a division

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


def columns(rng):
    shape = (int(rng.integers(1, 40)), *image_shape(rng)[1:])
    start = int(rng.integers(shape[0]))
    stop = int(rng.integers(start + 1, shape[0] + 1))
    rest = ((0, 0), (start, shape[0] - stop), (0, 0), (0, 0))
    op = ColumnsOp(shape, start, stop, draw_dtype(rng))
    yield moving_trial(rng, op, f"{shape} {start} {stop}", lambda x: x[:, start:stop], lambda dy: np.pad(dy, rest))


def permute(rng):
    axes = tuple(int(axis) for axis in rng.permutation(3))
    shape, groups = image_shape(rng), int(rng.integers(1, 5))
    op, (a, b, c) = PermuteOp(shape, axes, draw_dtype(rng)), np.argsort(axes) + 1
    order = (0, *(axis + 1 for axis in axes))
    yield moving_trial(rng, op, f"{shape} {axes}", lambda x: x.transpose(order), lambda dy: dy.transpose(0, a, b, c))
    op = ChannelShuffleOp((groups * shape[0], *shape[1:]), groups, draw_dtype(rng))
    new = np.arange(groups * shape[0]).reshape(groups, -1).T.ravel()  # the channel of x of each channel of y
    yield moving_trial(rng, op, f"{shape} {groups}", lambda x: x[:, new], lambda dy: dy[:, np.argsort(new)])


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
    mode, every = str(rng.choice(["constant", "replicate"])), int(rng.choice([0, 1, 2**38]))  # of borders of any size
    what = {"seed": int(rng.integers(2**62)), "step": int(rng.integers(2**40))}
    op = AugmentOp(shape, size, first, last, flips, "1", dtype, mode=mode, alternate_every=every)
    kind, (x, dy) = draw_values(rng, ((n, *shape), (n, *op.out_shape)))
    dy[np.abs(dy) < np.finfo("f4").tiny] = 0  # subnormals would be flushed by a sum
    numbers = rng.integers(0, 2**40, n)

    def run(a, threads):
        forward_batch(op, a.x, a.y, training=True, **what, example_ids=a.example_ids, num_threads=threads)
        backward_batch(op, a.dy, a.x, a.dx, **what, example_ids=a.example_ids, num_threads=threads)

    def oracle():
        draws = images.augment_draws(numbers, first, last, flips, every, **what, path="1")
        if n:
            yield "y", images.pieces(x, size, draws, mode), 0
        yield "dx", images.pieces_backward(dy.astype(dtype), shape, draws, mode), 0

    inputs, outputs = named("x dy", (x, dy), dtype) | {"example_ids": numbers}, {"y": dy.shape, "dx": x.shape}
    yield Trial(f"{kind} {x.shape} {size} {first} {last} {mode}", dtype, inputs, outputs, run, 2, oracle)


def random_trial(rng, make, shape, oracle_of):
    """Returns a trial of a random op of images; make(path, dtype): the op.

    oracle_of(x, dy, what): name, result and bound of y and dx, in float64; what: of dropout_bits in reference.py.
    """
    dtype, n = draw_dtype(rng), int(rng.integers(0, 41))
    what = {"seed": int(rng.integers(2**62)), "step": int(rng.integers(2**40))}
    op, numbers = make("1", dtype), rng.integers(0, 2**40, n)
    kind, (x, dy) = draw_values(rng, ((n, *shape),) * 2)

    def run(a, threads):
        forward_batch(op, a.x, a.y, training=True, **what, example_ids=a.example_ids, num_threads=threads)
        backward_batch(op, a.dy, a.x, a.dx, **what, example_ids=a.example_ids, num_threads=threads)

    def oracle():
        yield from oracle_of(x.astype(dtype), dy.astype(dtype), what | {"rows": numbers, "path": "1"})

    inputs, outputs = named("x dy", (x, dy), dtype) | {"example_ids": numbers}, {"y": x.shape, "dx": x.shape}
    about = f"{kind} {type(op).__name__} {x.shape}"
    return Trial(about, dtype, inputs, outputs, run, 2, None if kind == "special" else oracle)


def quarter_turn(rng):
    shape = int(rng.integers(1, 9)), *(int(rng.integers(1, 20)),) * 2

    def oracle(x, dy, what):
        quarters = images.quarter_turns(**what)
        if len(x):
            yield "y", images.turned(x, quarters), 0
            yield "dx", images.turned(dy, [-quarter for quarter in quarters]), 0

    yield random_trial(rng, lambda path, dtype: QuarterTurnOp(shape, path, dtype), shape, oracle)


def cutout(rng):
    shape, size, rate = image_shape(rng), tuple(int(v) for v in rng.integers(1, 9, 2)), float(rng.random())

    def oracle(x, dy, what):
        inside = reference_augment.cutout_boxes(shape=shape, size=size, rate=rate, **what)
        yield "y", np.where(inside, x.dtype.type(0.3), x), 0
        yield "dx", np.where(inside, dy.dtype.type(0), dy), 0

    yield random_trial(rng, lambda path, dtype: CutoutOp(shape, size, 0.3, rate, path, dtype), shape, oracle)


def affine(rng):
    shape, degrees, zoom = image_shape(rng), np.sort(rng.uniform(-360, 360, 2)), np.sort(rng.uniform(0.2, 4, 2))

    def oracle(x, dy, what):
        draws = reference_augment.affine_draws(degrees=degrees, zoom=zoom, **what)
        matrices, error = reference_augment.affine_matrices(shape, draws), ref.rounding(12, x.dtype)
        most = np.abs(x).max(axis=(1, 2, 3), keepdims=True, initial=0.3)
        yield "y", reference_augment.affine_forward(x, matrices, 0.3), (error * 4 + 1e-12) * most
        touched = reference_augment.affine_backward(np.abs(dy), matrices > 0)
        most = np.abs(dy).max(axis=(1, 2, 3), keepdims=True, initial=0)
        yield "dx", reference_augment.affine_backward(dy, matrices), error * touched + 1e-12 * most

    def make(path, dtype):
        return AffineOp(shape, degrees, zoom, 0.3, path, dtype)

    yield random_trial(rng, make, shape, oracle)


def color_jitter(rng):
    shape = int(rng.choice([1, 3])), *(int(v) for v in rng.integers(1, 9, 2))
    ranges = [np.sort(rng.uniform(0, 2, 2)) for _ in range(2)] + [(0.5, 1.5) if shape[0] == 3 else (1, 1)]

    def oracle(x, dy, what):
        factors = reference_augment.jitter_factors(ranges=ranges, **what)
        for name, value, function in (("y", x, "jitter_colors"), ("dx", dy, "jitter_colors_gradient")):
            most = np.abs(value).max(axis=(1, 2, 3), keepdims=True, initial=0)
            yield name, getattr(reference_augment, function)(value, factors), 32 * ref.rounding(30, x.dtype) * most

    yield random_trial(rng, lambda path, dtype: ColorJitterOp(shape, *ranges, path, dtype), shape, oracle)


def noise(rng):
    shape, std = image_shape(rng), float(rng.random())

    def oracle(x, dy, what):
        added = std * reference_augment.normal_numbers(int(np.prod(shape)), **what).reshape(x.shape)
        yield "y", x + added, 1e-11 + ref.rounding(2, x.dtype) * (np.abs(x) + np.abs(added))
        yield "dx", dy, 0

    yield random_trial(rng, lambda path, dtype: NoiseOp(shape, std, path, dtype), shape, oracle)


IMAGES = (
    *(pad2d, columns, permute, avgpool2d, upsample2d, normalize),
    *(augment, quarter_turn, cutout, affine, color_jitter, noise),
)
