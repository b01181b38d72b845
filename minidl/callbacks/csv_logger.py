"""CSVLogger: the history as a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from minidl.callbacks.history_file import HistoryFile
from minidl.utils.hints import answers


@answers({})
class CSVLogger(HistoryFile):
    """Keeps the history in a CSV file: a header of names, then one row per epoch, from 0. A missing value is `nan`.

    path: of the file, which belongs to one trainer and holds the epochs of all its fits. An existing file is continued
        from the last epoch in the trainer's history; a new trainer overwrites it. After a resume every epoch appears
        exactly once.

    A complete row is written after every epoch. Values are written so that reading them returns the same float64.

    fit raises before its first step: OSError for a path that cannot be written, ValueError for a file of another kind.
    """

    opening = b"epoch"

    def header(self, names: Sequence[str]) -> str:
        """Returns the row of names."""
        return _row(names)

    def line(self, names: Sequence[str], values: Sequence[float]) -> str:
        """Returns the row of values."""
        return _row(values)

    def __repr__(self) -> str:
        return f"CSVLogger({self.path!r})"


def _row(cells: Sequence[str | float]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()
