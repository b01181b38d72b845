"""Cases of layers for columns of a table: Embedding, OneHot, PiecewiseLinearEncoding."""

import numpy as np
from contract.case import Case, functional

from minidl.layers import Embedding, OneHot, PiecewiseLinearEncoding


def embedding(rng):
    """Draws a table of vectors, often wider than one block of 16, and the same category at several places."""
    categories, dim, length = (int(n) for n in rng.integers(1, (13, 40, 9)))
    if categories == 12:
        categories = 256  # all bytes

    def by_torch(x, weight):
        return functional().embedding(x.long(), weight).transpose(1, 2) + 0 * x[:, None]  # a dx of zeros

    def indices(rng, shape):
        return rng.integers(0, categories, shape).astype(float)

    return Case(Embedding(categories, dim), (length,), by_torch, indices, categories=categories)


def one_hot(rng):
    """Draws columns of different numbers of categories; numbers below the largest one are unknown in other columns."""
    most = int(rng.choice([1, 3, 20, 256]))  # 256: all bytes
    counts = [most, *rng.integers(1, most + 1, int(rng.integers(0, 6))).tolist()]
    rng.shuffle(counts)

    def by_torch(x):
        import torch

        columns = [functional().one_hot(v.long(), most)[:, :count] for v, count in zip(x.T, counts, strict=True)]
        return torch.cat(columns, 1) + 0 * x.sum()  # a dx of zeros

    def indices(rng, shape):
        return rng.integers(0, most, shape).astype(float)

    return Case(OneHot(counts), (len(counts),), by_torch, indices, categories=most)


def piecewise_linear_encoding(rng):
    """Draws columns of no bins to many; numbers inside the bins and outside, at a distance from all edges."""
    sizes = [0, *rng.integers(2, 30, int(rng.integers(1, 6)))]
    rng.shuffle(sizes)
    edges = [np.cumsum(rng.uniform(0.3, 2, size)) - 5 for size in sizes]
    missing = rng.random(len(edges)) < 0.5

    def by_torch(x):
        import torch

        outputs = []
        for v, of_column, has in zip(x.T, edges, missing, strict=True):
            bounds = torch.tensor(of_column, dtype=x.dtype)
            outputs.append(torch.clamp((v[:, None] - bounds[:-1]) / bounds.diff(), 0, 1))
            outputs += [v.isnan()[:, None].to(x.dtype)] * int(has)
        return torch.cat(outputs, 1) + 0 * x.sum()  # a dx of zeros, if there are no bins

    def places(rng, shape):
        x = np.empty(shape)
        for c, of_column in enumerate(edges):
            bounds = [-7, *of_column, of_column[-1] + 2] if len(of_column) else [-1, 1]
            low = rng.integers(len(bounds) - 1, size=len(x))
            x[:, c] = np.interp(low + rng.uniform(0.1, 0.9, len(x)), range(len(bounds)), bounds)
        return x

    return Case(PiecewiseLinearEncoding(edges, missing), (len(edges),), by_torch, places, limited=True)


DRAWS = {"Embedding": embedding, "OneHot": one_hot, "PiecewiseLinearEncoding": piecewise_linear_encoding}
