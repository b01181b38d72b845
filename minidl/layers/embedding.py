"""Embedding: a learned vector for each category of integer columns."""

from __future__ import annotations

from minidl.initializers import Init, check_initializer, standard_normal
from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_int
from minidl_c.kernels.embedding import EmbeddingOp


class Embedding(Layer):
    """y[d][i] = weight[x[i]][d]: integers (length,) to their vectors (dim, length), channels first as for a convolution.

    x holds whole numbers from 0 to categories - 1 in any dtype, such as columns of scikit-learn's OrdinalEncoder. All columns
    share the vectors; for columns with categories of their own, use one layer for each:
    Parallel([Columns(0, 1), Embedding(7, 3), Flatten()], [Columns(1, 9), Dense(16)]).

    Any other number (NaN, -1, 0.5) gives a vector of NaN, so that training stops before its first update. For categories that
    only occur in later data, reserve one: OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=7) and
    Embedding(8, 3). Its vector keeps the initial values unless training has examples of it.

    The gradient with respect to x is zero. That of a vector is the sum over all places of the batch with its category, with the
    bits of a Dense layer on one-hot columns; it is zero for other categories, and optimizers with momentum or weight decay
    update these all the same.

    initializer: a function f(rng, shape), such as those of minidl.initializers.

    Parameters: weight (categories, dim), standard normal, as in torch.nn.Embedding.
    Raises TypeError or ValueError in build for sizes below 1, more categories than the dtype has whole numbers (2**24 in float32),
    or an input that is no vector.
    """

    def __init__(self, categories: int, dim: int, *, initializer: Init = standard_normal) -> None:
        self.categories, self.dim, self.initializer = categories, dim, initializer

    def build(self, in_shape: Shape) -> Shape:
        categories, dim = check_int("categories", self.categories), check_int("dim", self.dim)
        if len(in_shape) != 1:
            raise ValueError(f"expected (length,), the indices of categories, got {in_shape}: put a Flatten() before it")
        self.op = EmbeddingOp(in_shape, categories, dim, self.dtype)
        self.weight = self.param("weight", (categories, dim), check_initializer("initializer", self.initializer))
        return self.op.out_shape
