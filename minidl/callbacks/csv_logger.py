"""CSVLogger: the history as a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from minidl.callbacks.history_file import HistoryFile
from minidl.utils.hints import answers


@answers({})
class CSVLogger(HistoryFile):
    """Keeps the history in a CSV file: a header of names, then one row per epoch, from 0.

    A complete row is written after every epoch. A missing value is `nan`. Values are written so that reading them
    returns the same float64.

    Parameters
    ----------
    path : str or os.PathLike
        The file, which belongs to one run: a trainer with all its fits, whose epochs it holds, each exactly once. A
        resumed trainer goes on in its file, also with new columns. "{run}" in the path is the number of the run, the
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
    JSONLLogger : Writes JSON Lines.

    Notes
    -----
    `PATH.json` beside it holds the id of the run and, for the first of its fits and the last 15 that differ, the
    parameters that `Trainer.run_parameters` returns.

    Examples
    --------
    >>> import os, tempfile
    >>> from minidl import Sequential, Trainer
    >>> from minidl.callbacks import CSVLogger
    >>> from minidl.layers import Dense
    >>> from minidl.optimizers import SGD
    >>> trainer = Trainer(Sequential([Dense(1)]), "mean_squared_error", SGD(0.1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "log.csv")
    ...     history = trainer.fit([[0.0], [1.0]], [0.0, 1.0], epochs=2, callbacks=[CSVLogger(path)], verbose=0)
    ...     with open(path) as file:
    ...         lines = file.read().splitlines()
    >>> lines[0]
    'epoch,loss,lr,images_per_second'
    >>> [line.split(",")[0] for line in lines[1:]]
    ['0', '1']
    """

    opening = b"epoch"

    def header(self, names: Sequence[str]) -> str:
        """Returns the row of names.

        Parameters
        ----------
        names : list of str
            Names of the values.

        Returns
        -------
        str
            The row.
        """
        return _row(names)

    def line(self, names: Sequence[str], values: Sequence[float]) -> str:
        """Returns the row of values.

        Parameters
        ----------
        names : list of str
            Names of the values.
        values : list of float
            Values of the epoch.

        Returns
        -------
        str
            The row.
        """
        return _row(values)

    def __repr__(self) -> str:
        return f"CSVLogger({self.path!r})"


def _row(cells: Sequence[str | float]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()
