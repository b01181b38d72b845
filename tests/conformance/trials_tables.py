"""Random calls of kernels for columns of a table: embeddings, bins and one-hot encodings."""

import numpy as np
import reference as ref
from conformance.trial import SPECIAL, Trial, both_ways, draw_dtype, draw_values, named, sizes
from per_example_checks import check_sums

from minidl_c.kernels.embedding import EmbeddingOp
from minidl_c.kernels.one_hot import OneHotOp
from minidl_c.kernels.piecewise_linear_encoding import PiecewiseLinearEncodingOp
from minidl_c.runtime.single_op import backward_batch, forward_batch


def embedding(rng):
    (n, length), dim, dtype = sizes(rng), int(rng.integers(1, 40)), draw_dtype(rng)
    categories = int(rng.integers(1, 60))
    kind, (dy, weight) = draw_values(rng, ((n, dim, length), (categories, dim)))
    wrong, x = rng.random((n, length)) < 0.1, rng.integers(0, categories, (n, length)).astype("f8")
    x[wrong] = rng.choice((np.nan, -1, 0.5, 1e30), wrong.sum())
    valid = np.isin(x, np.arange(categories))
    places = np.where(valid, x, 0).astype(int)

    def run(a, threads):
        op = EmbeddingOp((length,), categories, dim, dtype)
        forward_batch(op, a.x, a.y, (a.weight,), threads)
        backward_batch(op, a.dy, a.x, a.dx, (a.weight,), (a.dweight,), threads)
        check_sums(op, a.dy, a.x, a.dx, (a.weight,), (a.dweight,), threads)

    def oracle():
        yield "y", np.where(valid[..., None], weight.astype(dtype)[places], np.nan).transpose(0, 2, 1), 0
        yield "dx", np.zeros_like(x), 0
        total, size = np.zeros(weight.shape), np.zeros(weight.shape)
        np.add.at(total, places[valid], dy.astype("f8").transpose(0, 2, 1)[valid])
        np.add.at(size, places[valid], np.abs(dy).astype("f8").transpose(0, 2, 1)[valid])
        yield "dweight", total, 0 if kind == "whole" else ref.rounding(x.size, dtype) * size

    inputs = named("x dy weight", (x, dy, weight), dtype)
    outputs = {"y": dy.shape, "dx": x.shape, "dweight": weight.shape}
    about = f"{kind} {x.shape} {categories} categories, {dim} numbers"
    yield Trial(about, dtype, inputs, outputs, run, 2, oracle if kind != "special" else None)


def piecewise_linear_encoding(rng):
    (n, columns), dtype = sizes(rng), draw_dtype(rng)
    counts = rng.choice([0, 2, 3, 20], columns)
    edges = [np.cumsum(rng.uniform(0.1, 2, count)) - 3 for count in counts]
    missing = [True, *(rng.random(columns - 1) < 0.3).tolist()]
    op = PiecewiseLinearEncodingOp((columns,), edges, missing, dtype)
    x = np.array([rng.choice([*rng.normal(0, 4, 9), *SPECIAL[:-2], *of_column], n) for of_column in edges]).T
    kind, (dy,) = draw_values(rng, ((n, *op.out_shape),))
    inputs = named("x dy", (x, dy), dtype)

    def run(a, threads):
        both_ways(op, a, threads)

    def oracle():
        with np.errstate(over="ignore"):
            yield "y", ref.encoding_forward(inputs["x"], edges, missing).reshape(dy.shape), 0
        yield "dx", ref.encoding_backward(inputs["dy"], inputs["x"], edges, missing), 0

    outputs = {"y": dy.shape, "dx": x.shape}
    yield Trial(f"{kind} {x.shape} {counts}", dtype, inputs, outputs, run, 2, oracle if kind != "special" else None)


def one_hot(rng):
    (n, columns), dtype = sizes(rng), draw_dtype(rng)
    categories = rng.integers(1, rng.choice([3, 20, 60]), columns).tolist()
    op, x = OneHotOp((columns,), categories, dtype), rng.integers(0, categories, (n, columns)).astype("f8")
    wrong = rng.random(x.shape) < 0.1
    x[wrong] = rng.choice((*SPECIAL[:-2], -1, 0.5, *categories), wrong.sum())
    kind, (dy,) = draw_values(rng, ((n, *op.out_shape),))
    inputs = named("x dy", (x, dy), dtype)

    def run(a, threads):
        both_ways(op, a, threads)

    def oracle():
        yield "y", ref.one_hot_forward(inputs["x"], categories), 0
        yield "dx", np.zeros_like(x), 0

    outputs = {"y": dy.shape, "dx": x.shape}
    yield Trial(f"{kind} {x.shape} {categories}", dtype, inputs, outputs, run, 2, oracle)


TABLES = embedding, piecewise_linear_encoding, one_hot
