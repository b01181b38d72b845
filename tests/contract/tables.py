"""Cases of layers for columns of a table: Embedding."""

from contract.case import Case, functional

from minidl.layers import Embedding


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


DRAWS = {"Embedding": embedding}
