"""Findings: what a report found, as text."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

WIDTH = 100  # columns of what is printed


@dataclass(frozen=True)
class Finding:
    """One symptom of a training; `str` of it is the sentence that was printed.

    symptom: its name, such as "dead units"; layer: its name as in errors, that of an output, such as "output 'value'",
    or "" for the whole training;
    measured: the value that is out of range; message: that value, what was expected, and what to do.
    """

    symptom: str
    layer: str
    measured: float
    message: str

    def __str__(self) -> str:
        return f"{self.symptom}: {self.layer + ': ' if self.layer else ''}{self.message}"


class Findings(list[Finding]):
    """A list of findings, empty if nothing looks wrong; `str` of it is the text that was printed.

    Its repr is one short line: a notebook shows it after trainer.report() has printed the text.
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
