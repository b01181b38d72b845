"""JSONLLogger: the history as a JSON Lines file."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from minidl.callbacks.history_file import HistoryFile
from minidl.utils.hints import answers


@answers({})
class JSONLLogger(HistoryFile):
    """Keeps the history in a JSON Lines file: one object per epoch, {"epoch": 0, "loss": 0.5, ...}.

    Epochs are counted from 0. NaN and infinities, which JSON cannot represent, are null. Otherwise as CSVLogger.
    """

    opening = b'{"epoch"'

    def line(self, names: Sequence[str], values: Sequence[float]) -> str:
        """Returns the object."""
        finite = (value if math.isfinite(value) else None for value in values)
        return json.dumps(dict(zip(names, finite, strict=True)), allow_nan=False) + "\n"

    def __repr__(self) -> str:
        return f"JSONLLogger({self.path!r})"
