"""What a report finds, and how it is said."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

WIDTH = 100  # columns of what is printed


@dataclass(frozen=True)
class Finding:
    """One thing that looks wrong; `str` of it is the sentence that was printed.

    symptom: what it is, such as "dead units"; layer: where, as errors name layers, or "" for the whole training;
    measured: the number that is out of its range; message: that number, what was expected, and what to do about it.
    """

    symptom: str
    layer: str
    measured: float
    message: str

    def __str__(self) -> str:
        return f"{self.symptom}: {self.layer + ': ' if self.layer else ''}{self.message}"


class Findings(list[Finding]):
    """A list of findings, empty where nothing looks wrong; `str` of it is what was printed.

    Its repr is one short line: behind trainer.report() in a notebook's cell the text stands there already.
    """

    def __init__(self, findings: list[Finding], looked_at: str) -> None:
        super().__init__(findings)
        self.looked_at = looked_at

    def __str__(self) -> str:
        if not self:
            return textwrap.fill(f"Nothing looks wrong ({self.looked_at}).", WIDTH)
        return "\n".join(textwrap.fill(f"- {finding}", WIDTH, subsequent_indent="  ") for finding in self)

    def __repr__(self) -> str:
        return f"<{len(self) or 'no'} finding{'' if len(self) == 1 else 's'}>"
