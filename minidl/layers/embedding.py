"""Embedding: a learned vector for each category of integer columns."""

from __future__ import annotations

from minidl.initializers import Init, check_initializer, small_uniform
from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_int
from minidl_c.kernels.embedding import EmbeddingOp

CATEGORIES_HINT = "an Embedding has NaN for what is no whole number from 0 to its categories - 1: encode X accordingly"


class Embedding(Layer):
    """Learned vector for each category of integer columns.

    Maps integers (length,) to vectors (dim, length), with their numbers as channels: `y[d][i] = weight[x[i]][d]`. `x`
    holds whole numbers from 0 to categories - 1 in any dtype, such as a column of scikit-learn's OrdinalEncoder. All
    columns share the vectors. For columns with categories of their own, use a layer for each:
    `Parallel([Columns(0, 1), Embedding(7, 3), Flatten()], [Columns(1, 9), Dense(16)])`.

    Parameters
    ----------
    categories : int
        Number of categories.
    dim : int
        Size of a vector.
    initializer : callable, default small_uniform
        Function f(rng, shape) that returns the initial vectors, such as those of `minidl.initializers`.

    Raises
    ------
    TypeError, ValueError
        In `build`, for sizes below 1, an input that is no vector, or more categories than the dtype has whole numbers
        in sequence (2**24 in float32).

    Notes
    -----
    Any other number (NaN, -1, 0.5) gives a vector of NaN, so that training stops before its first update. Reserve a
    category for those that only occur in later data: `OrdinalEncoder(handle_unknown="use_encoded_value",
    unknown_value=7)` and `Embedding(8, 3)`. Its vector keeps the initial values unless training has examples of it.

    The gradient with respect to `x` is zero. The gradient of a vector is the sum over all places of the batch with its
    category, with the bits of a Dense layer on one-hot columns. Other vectors get zero, and like all parameters are
    still moved by momentum and weight decay.

    Learned parameters: `weight` (categories, dim), as in torch.nn.Embedding. The initial values are those of Keras,
    uniform from -0.05 to 0.05: in a table, they train better than standard normal ones (see docs/reference/layers.md).

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Embedding
    >>> model = Sequential([Embedding(3, 2)], input_shape=(4,))
    >>> model.params["0.weight"].value[...] = [[0, 1], [10, 11], [20, 21]]
    >>> print(model.predict([[0, 2, 2, 1]])[0])  # a column is a vector
    [[ 0. 20. 20. 10.]
     [ 1. 21. 21. 11.]]
    >>> print(model.predict([[0, -1, 0.5, 3]])[0])
    [[ 0. nan nan nan]
     [ 1. nan nan nan]]
    """

    takes_categories = True

    def __init__(self, categories: int, dim: int, *, initializer: Init = small_uniform) -> None:
        self.categories, self.dim, self.initializer = categories, dim, initializer

    def build(self, in_shape: Shape) -> Shape:
        categories, dim = check_int("categories", self.categories), check_int("dim", self.dim)
        if len(in_shape) != 1:
            raise ValueError(f"expected (length,), the indices of categories, got {in_shape}: put a Flatten before it")
        self.op = EmbeddingOp(in_shape, categories, dim, self.dtype)
        self.weight = self.param("weight", (categories, dim), check_initializer("initializer", self.initializer))
        return self.op.out_shape
