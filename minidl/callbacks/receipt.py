"""Receipt: a small file with which a fit can be verified."""

from __future__ import annotations

import json
from typing import Any

from minidl.callbacks.recorder import Recorder
from minidl.saving import atomic
from minidl.saving.atomic import Path, check_writable, text
from minidl.utils.hints import answers


@answers({})
class Receipt(Recorder):
    """Writes a receipt at the end of a fit: all that is needed to train again and compare, except the data.

    It is a JSON file of some kilobytes, with layers and all arguments, the version and build of minidl, and SHA-256
    hashes of the data, of the weights before the first step, after each epoch and at the end, and of the predictions
    for the data. `Trainer.verify` and `python -m minidl verify` train again, and say where two runs part.

    Parameters
    ----------
    path : str or os.PathLike
        The file, such as "receipt.json". A fit replaces that of the fit before.

    Raises
    ------
    TypeError, ValueError
        If the path is invalid. `fit` raises before its first step: OSError for a path that cannot be written,
        ValueError for a fit on batches, TypeError for an object that JSON cannot hold.

    See Also
    --------
    minidl.Trainer.verify : Trains again, and compares.

    Notes
    -----
    The file contains the arguments of callbacks, except of those with `rank_zero_only`, without which training is the
    same, and of TimeLimit. Each epoch costs a hash of the weights, and the beginning of a fit one of the data.

    Examples
    --------
    >>> import os, tempfile
    >>> from minidl import Sequential, Trainer
    >>> from minidl.callbacks import Receipt
    >>> from minidl.layers import Dense
    >>> from minidl.optimizers import SGD
    >>> X, y = [[1.0], [2.0]], [1.0, 2.0]
    >>> trainer = Trainer(Sequential([Dense(1)]), "mean_squared_error", SGD(0.1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "receipt.json")
    ...     history = trainer.fit(X, y, epochs=3, callbacks=[Receipt(path)], verbose=0)
    ...     Trainer.verify(path, X, y).equal
    True
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = text(path)

    def on_fit_begin(self, trainer: Any) -> None:
        """Checks the path, and records configuration, data and first weights.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.

        Raises
        ------
        OSError
            If the path cannot be written.
        TypeError, ValueError
            If the fit has something that a receipt cannot hold.
        """
        check_writable(self.path)
        super().on_fit_begin(trainer)

    def _finish(self, trainer: Any) -> None:
        outcome = trainer.fit_outcome()
        weights = {**self._origin["weights"], "epochs": self._epochs, "last": outcome.pop("last")}
        origin = {name: value for name, value in self._origin.items() if name != "is_whole"}
        receipt = {**origin, "weights": weights, **outcome}
        atomic.write(self.path, [memoryview((json.dumps(receipt, indent=1, allow_nan=False) + "\n").encode())])

    def __repr__(self) -> str:
        return f"Receipt({self.path!r})"
