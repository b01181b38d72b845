"""check_loss: a test of the contract of losses, for built-in ones and your own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from minidl import losses
from minidl.losses import Loss, check_targets, checked_loss
from minidl.testing.finite_differences import Function, check_gradient, check_ties
from minidl.testing.layer_contract import ATOL, RTOL
from minidl.testing.samples import Samples
from minidl.utils.arrays import Array, as_array
from minidl.utils.validation import Shape, check_count, check_shape

BATCH = 12  # examples
SHOWN = 5  # scores in an error
SUMMED = "; an example's loss and row of dscores are its own: neither is divided by the number of examples"


def check_loss(
    loss: str | Loss, out_shape: Shape, y: ArrayLike, seed: int = 0, scores: ArrayLike | None = None
) -> None:
    """Checks the contract and the gradient of a loss; raises AssertionError naming what is wrong.

    These are the checks, of up to 12 examples with scores in float64 and float32:

    - `loss(scores, y)` returns the loss of each example (n,) and dscores of the shape of scores, both finite. Losses
      are not rounded to a smaller dtype than that of scores.
    - It changes neither of its arguments, and gives the same result again.
    - Examples are independent: an example alone has the same loss and the same row of dscores, in any batch.
    - Row i of dscores is the gradient of `losses[i]`, not of the mean: every element equals central differences in
      float64. At a kink or a tie, it is checked as in `check_layer`.
    - float32 gives the numbers of float64.
    - If the loss has a method `targets`, what it returns is unchanged when passed again.

    Parameters
    ----------
    loss : str or loss
        A function `loss(scores, y)`, an object that can be called so, or a name.
    out_shape : tuple of int
        Shape of the scores of one example, such as (10,) for ten classes.
    y : array-like of shape (n, ...)
        Targets of at least two examples, as `Trainer.fit` takes them. Include those that the loss treats specially.
    seed : int, default 0
        Determines the scores, and which examples are taken.
    scores : array-like of shape `(n, *out_shape)` or None, default None
        Scores of the examples; None: normally distributed numbers, some of them up to about 20.

    Raises
    ------
    AssertionError
        If the loss breaks the contract.
    TypeError, ValueError
        If an argument is invalid.

    See Also
    --------
    check_layer : The same for layers.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl.testing import check_loss
    >>> y = np.array([0, 2, 1, 1])
    >>> check_loss("softmax_cross_entropy", (3,), y)
    >>> def squared_error(scores, y):
    ...     error = scores - np.eye(3)[y]
    ...     return (error**2).sum(axis=1), error
    >>> check_loss(squared_error, (3,), y)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    AssertionError: squared_error: dscores[0, 0]: expected ... (finite differences), got ..., a relative error of 0.5...
    """
    loss = losses.get(loss)
    name = getattr(loss, "__name__", type(loss).__name__)
    out_shape, rng = check_shape("out_shape", out_shape), np.random.default_rng(check_count("seed", seed))
    targets = as_array(y, "y")
    if targets.ndim == 0 or len(targets) < 2:
        raise ValueError(f"y: expected targets of at least two examples, got shape {targets.shape}")
    chosen = rng.permutation(len(targets))[:BATCH]
    if scores is not None:
        given = Samples(out_shape, rng, scores, "scores").given
        assert given is not None
        if len(given) != len(targets):
            raise ValueError(f"scores: expected a row for each of {len(targets)} targets, got {len(given)}")
        scores = given[chosen].astype("float64")
    samples = Samples(out_shape, rng)
    batch = samples.few(len(chosen)) if scores is None else np.asarray(scores)
    tied = samples.tied(len(chosen)) if scores is None else batch
    _Check(name, loss, targets[chosen]).run(batch, tied, rng)


class _Check:
    """The checks of one loss with these targets."""

    def __init__(self, name: str, loss: Loss, y: Array) -> None:
        self.name, self.loss, self.y = name, loss, y

    def run(self, scores: Array, tied: Array, rng: np.random.Generator) -> None:
        targets = check_targets(self.loss, self.y, len(scores), scores.shape[1:], "float64")
        self._check_again(targets, scores.shape[1:])
        found = self._call(scores, targets)
        self._check_equal("a second call", self._call(scores, targets), found)
        self._check_rows(scores, targets, found)
        for values, check in ((scores, lambda f: check_gradient(f, rng)), (tied, check_ties)):
            with self._translated(len(scores)):
                check(self._function(values, targets))
        self._check_float32(scores)

    def _function(self, scores: Array, targets: Array) -> Function:
        n = len(scores)
        losses_of, dscores_of = (lambda values, i=i: self._call(values, targets)[i] for i in (0, 1))
        return Function(f"{self.name}: dscores", scores, losses_of, dscores_of, np.ones(n), n)

    @contextmanager
    def _translated(self, n: int) -> Iterator[None]:
        """Turns an exception of the loss into an AssertionError; one of a check names a mistake of the user's."""
        try:
            yield
        except AssertionError:
            raise
        except Exception as error:
            if "read-only" in str(error):
                raise AssertionError(f"{self.name}: writes into scores; it must create its own array") from error
            raise AssertionError(f"{self.name}: a batch of {n} failed: {error}") from error

    def _call(self, scores: Array, targets: Array) -> tuple[Array, Array]:
        """Returns losses and dscores; raises AssertionError for a result that breaks the contract."""
        own, dtype = targets.copy(), scores.dtype
        with self._translated(len(scores)):
            found = checked_loss(self.loss, scores, own)
        assert found[0].dtype.itemsize >= dtype.itemsize, (
            f"{self.name}: expected losses of {dtype} for scores of {dtype}, got {found[0].dtype}, which rounds them"
        )
        assert np.array_equal(own, targets, equal_nan=own.dtype.kind == "f"), f"{self.name}: writes into y"
        for what, array in zip(("losses", "dscores"), found, strict=True):
            bad = np.argwhere(~np.isfinite(array))
            if len(bad):
                row = [round(float(score), 3) for score in scores[bad[0][0]].reshape(-1)[:SHOWN]]
                raise AssertionError(
                    f"{self.name}: expected finite {what} of finite scores, got {array[tuple(bad[0])]} in {dtype}, for "
                    f"an example whose scores begin with {row}"
                )
        return np.array(found[0]), np.array(found[1])

    def _check_equal(
        self, what: str, found: Any, expected: Any, rtol: float = RTOL, atol: float = ATOL, remedy: str = ""
    ) -> None:
        for kind, one, other in zip(("losses", "dscores"), found, expected, strict=True):
            scale = max(float(np.abs(other).max(initial=0)), 1.0)
            assert np.allclose(one, other, rtol, atol * scale), f"{self.name}: {what} gives other {kind}{remedy}"

    def _check_rows(self, scores: Array, targets: Array, found: tuple[Array, Array]) -> None:
        for i in range(len(scores)):
            alone = self._call(scores[i : i + 1], targets[i : i + 1])
            expected = found[0][i : i + 1], found[1][i : i + 1]
            self._check_equal(f"example {i} alone, without the batch around it,", alone, expected, remedy=SUMMED)

    def _check_again(self, targets: Array, shape: Shape) -> None:
        again = check_targets(self.loss, targets, len(targets), shape, "float64")
        assert again.dtype == targets.dtype and np.array_equal(again, targets, equal_nan=again.dtype.kind == "f"), (
            f"{self.name}: its targets() changes what it has returned itself"
        )

    def _check_float32(self, scores: Array) -> None:
        single, results = scores.astype("float32"), []
        for dtype in ("float32", "float64"):
            targets = check_targets(self.loss, self.y, len(scores), scores.shape[1:], dtype)
            results.append(self._call(single.astype(dtype), targets))
        self._check_equal("float32", results[0], results[1], rtol=1e-4, atol=1e-4)
