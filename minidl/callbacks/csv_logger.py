"""CSVLogger: the history as a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from minidl.callbacks.history_file import HistoryFile


class CSVLogger(HistoryFile):
    """Keeps the history in a CSV file: a header with the names, a row an epoch (the first is 0), `nan` for no number.

    path: of the file, which belongs to one trainer: it holds the epochs of all its fits. One that is there is gone on
    with, as far as the trainer knows its epochs; a new trainer begins it anew. A resume therefore leaves no epoch
    twice and none out.

    A row is there, whole, behind its epoch. Numbers are written so that reading gives the same float64.

    fit raises before its first step: OSError for a path that cannot be written, ValueError for a file of another kind.
    """

    opening = b"epoch"

    def header(self, names: Sequence[str]) -> str:
        """The names."""
        return _row(names)

    def line(self, names: Sequence[str], values: Sequence[float]) -> str:
        """The values."""
        return _row(values)

    def __repr__(self) -> str:
        return f"CSVLogger({self.path!r})"


def _row(cells: Sequence[str | float]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()
