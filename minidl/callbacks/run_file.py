"""RunFile: where the log of a run lies, and the parameters of the run beside it."""

from __future__ import annotations

import glob
import json
import os
import re
import threading
from collections.abc import Callable
from typing import Any

from minidl.saving import atomic
from minidl.saving.atomic import Path, check_writable, text
from minidl.utils.validation import check_bool

FIELD = "{run}"
MAX_FITS = 16  # fits of a run whose parameters are kept: the first one and the last ones
MAX_PARAMETERS = 2**28  # bytes of a file of parameters that is read
_opening = threading.Lock()


class RunFile:
    """The path of a log, which belongs to one run: a trainer with all of its fits. PATH.json has its parameters.

    path: it may contain "{run}", in whose place each run has the first number that is free. A resumed run finds its own
    by the id in its checkpoint, which is in PATH.json. overwrite: whether the log of another run may be replaced.
    is_taken: whether a log is at a path.
    """

    def __init__(
        self, path: Path, overwrite: bool, argument: str = "path", is_taken: Callable[[str], bool] = os.path.lexists
    ) -> None:
        self._argument, self.path, self._is_taken = argument, text(path, argument), is_taken
        self.overwrite = check_bool("overwrite", overwrite)
        self.name: str | None = None  # without "{run}"; None: no number has been chosen yet
        self._run: str | None = None  # the id of the run that `name` belongs to
        self._fit: dict[str, Any] = {}  # the parameters of the running fit
        self._is_open = False  # whether it has written
        self._left: str | None = None  # the id of a run whose parameters are there without its log

    def begin(self, trainer: Any) -> None:
        """Begins a fit: finds `name`, but writes nothing; raises OSError if nothing can be written."""
        self._fit, self._is_open = trainer.run_parameters(), False
        if FIELD not in self.path:
            self.name = self.path
        elif self._run != trainer.run_id:
            self.name = self._of_run(trainer.run_id) if trainer.step else None
        self._run = trainer.run_id
        folder = os.path.dirname(self.path[: self.path.find(FIELD)])
        while FIELD in os.path.dirname(self.path) and not os.path.lexists(folder or "."):  # made with that of a number
            folder = os.path.dirname(folder)
        check_writable(os.path.join(folder, ".minidl") if self.name is None else f"{self.name}.json")

    def check_owner(self, found: str, is_ours: Callable[[], bool]) -> None:
        """Raises ValueError for the log of another run.

        found: a log that is there, or "". is_ours: whether it is that of this trainer, if no parameters are beside it.
        """
        self._left = None
        if self.name is None or self.overwrite:
            return
        if not found:
            self._left = run_of(self.name)
        if not self._is_beside(self.name) and found and not is_ours():
            raise self._of_another(found)

    def open(self) -> str:
        """Returns the path to write to, and writes the parameters beside it.

        Raises ValueError if another run has taken the path since the fit began, or since the last call.
        """
        with _opening:
            if self.name is None:
                self.name = self._reserve()
            elif not self._claim(self.name, [self._fit]):
                may_replace = self.overwrite and not self._is_open
                is_ours = run_of(self.name) == self._run if may_replace else self._is_beside(self.name)
                self._add_fit(self.name, is_ours)
            self._is_open, self._left = True, None
            return self.name

    def _is_beside(self, name: str) -> bool:
        """Whether the parameters of this run are beside a log; raises ValueError for those of another that has one."""
        known = run_of(name)
        if known is None and os.path.lexists(f"{name}.json"):
            expected = f"expected no file {name}.json, or the parameters of a run of minidl"
            raise ValueError(f"{self._argument}: {expected}, got another file; overwrite=True replaces it")
        if known is not None and known not in (self._run, self._left):
            raise self._of_another(name)
        return known == self._run

    def _of_another(self, found: str) -> ValueError:
        expected = f"expected a new one or that of this run, got {found!r}, the log of another run"
        remedy = "to keep both, put {run} into the path, where each run has a number; overwrite=True replaces it"
        return ValueError(f"{self._argument}: {expected}; {remedy}")

    def _add_fit(self, name: str, is_ours: bool) -> None:
        """Writes the parameters with those of the running fit, unless they are there."""
        found, mine = _read(name), self._fit
        fits = found["fits"] if found is not None and is_ours and _has_fits(found) else []
        kept = [fit for fit in fits if fit["first_epoch"] <= mine["first_epoch"]]
        last = kept[-1] if kept else {}
        if last.get("first_epoch") != mine["first_epoch"] and last | {"first_epoch": 0} != mine | {"first_epoch": 0}:
            kept.append(mine)  # a fit that was resumed stays as it began
        content = self._content(kept[:1] + kept[1:][1 - MAX_FITS :])
        if found != json.loads(content):
            atomic.write(f"{name}.json", [memoryview(content)])

    def _content(self, fits: list[dict[str, Any]]) -> bytes:
        """Returns the parameters of these fits as a file."""
        return (json.dumps({"run_id": self._run, "fits": fits}, indent=1, allow_nan=False) + "\n").encode()

    def _claim(self, name: str, fits: list[dict[str, Any]]) -> bool:
        """Writes the parameters beside a log; False: they are there, maybe by another process."""
        path = f"{name}.json"
        return not os.path.lexists(path) and atomic.create(path, [memoryview(self._content(fits))])

    def _of_run(self, run: str) -> str | None:
        """Returns the path of this run, with its number; None if it has none."""
        parts = [re.escape(part) for part in self.path.split(FIELD)]
        pattern = re.compile(r"(?P<n>\d+)".join(parts[:2]) + "".join(f"(?P=n){part}" for part in parts[2:]))
        for found in glob.iglob(FIELD.join(map(glob.escape, self.path.split(FIELD))).replace(FIELD, "*") + ".json"):
            name = found.removesuffix(".json")
            if pattern.fullmatch(name) and run_of(name) == run:
                return name
        return None

    def _reserve(self) -> str:
        """Returns the path with the first free number, which no other process gets."""
        number = 0
        while True:
            name = self.path.replace(FIELD, str(number))
            os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
            if not self._is_taken(name) and self._claim(name, [self._fit]):
                return name
            number += 1


def run_of(path: str) -> str | None:
    """Returns the id of the run in the parameters beside a log; None if there are none."""
    run = (_read(path) or {}).get("run_id")
    return run if isinstance(run, str) else None


def _read(path: str) -> dict[str, Any] | None:
    try:
        with open(path + ".json", "rb") as file:
            found = json.loads(file.read(MAX_PARAMETERS))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _has_fits(found: dict[str, Any]) -> bool:
    """Whether these parameters are as `RunFile.open` writes them, as far as it reads them."""
    fits = found.get("fits")
    return isinstance(fits, list) and all(
        isinstance(fit, dict) and isinstance(fit.get("first_epoch"), int) for fit in fits
    )
