"""JSONLLogger: the history as a JSON Lines file."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from minidl.callbacks.history_file import HistoryFile
from minidl.utils.hints import answers


@answers({})
class JSONLLogger(HistoryFile):
    """Keeps the history in a JSON Lines file: one object per epoch, `{"epoch": 0, "loss": 0.5, ...}`.

    A complete line is written after every epoch. Epochs are counted from 0. NaN and infinities, which JSON cannot
    represent, are null.

    Parameters
    ----------
    path : str or os.PathLike
        The file, which belongs to one run: a trainer with all its fits, whose epochs it holds, each exactly once. A
        resumed trainer goes on in its file, also with new names. "{run}" in the path is the number of the run, the
        first from 0 that is free; other braces stay. The attribute `file` is the path with the number.
    overwrite : bool, default False
        Whether the log of another run is replaced. False refuses it.

    Raises
    ------
    TypeError, ValueError
        If the path is invalid. `fit` raises before its first step: OSError for a path that cannot be written,
        ValueError for a file of another kind, or of another run.

    See Also
    --------
    CSVLogger : Writes CSV.

    Notes
    -----
    `PATH.json` beside it holds the id of the run and, for the first of its fits and the last 15 that differ, the
    parameters that `Trainer.run_parameters` returns.

    Examples
    --------
    >>> import json, os, tempfile
    >>> from minidl import Sequential, Trainer
    >>> from minidl.callbacks import JSONLLogger
    >>> from minidl.layers import Dense
    >>> from minidl.optimizers import SGD
    >>> trainer = Trainer(Sequential([Dense(1)]), "mean_squared_error", SGD(0.1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "log.jsonl")
    ...     history = trainer.fit([[0.0], [1.0]], [0.0, 1.0], epochs=2, callbacks=[JSONLLogger(path)], verbose=0)
    ...     with open(path) as file:
    ...         epochs = [json.loads(line) for line in file]
    >>> [epoch["loss"] for epoch in epochs] == history["loss"]
    True
    """

    opening = b'{"epoch"'

    def line(self, names: Sequence[str], values: Sequence[float]) -> str:
        """Returns one epoch as a line of JSON; values that are not finite become null.

        Parameters
        ----------
        names : list of str
            Names of the values.
        values : list of float
            Values of the epoch.

        Returns
        -------
        str
            The line, with a newline at its end.
        """
        finite = (value if math.isfinite(value) else None for value in values)
        return json.dumps(dict(zip(names, finite, strict=True)), allow_nan=False) + "\n"

    def __repr__(self) -> str:
        return f"JSONLLogger({self.path!r})"
