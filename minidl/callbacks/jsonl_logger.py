"""JSONLLogger: the history as lines of JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from minidl.callbacks.history_file import HistoryFile


class JSONLLogger(HistoryFile):
    """Keeps the history in a JSON Lines file: an object an epoch, {"epoch": 0, "loss": 0.5, ...}.

    Epochs are counted from 0. NaN and infinities, for which JSON has no word, are null. All else is as in CSVLogger.
    """

    opening = b'{"epoch"'

    def line(self, names: Sequence[str], values: Sequence[float]) -> str:
        """The object."""
        numbers = (value if math.isfinite(value) else None for value in values)
        return json.dumps(dict(zip(names, numbers, strict=True)), allow_nan=False) + "\n"

    def __repr__(self) -> str:
        return f"JSONLLogger({self.path!r})"
