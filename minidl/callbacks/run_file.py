"""RunFile: where the log of a run lies, and the parameters of the run beside it."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Callable
from typing import Any

from minidl.saving import atomic
from minidl.saving.atomic import Path, check_writable, text
from minidl.utils.validation import check_bool

FIELD = "{run}"
MAX_PARAMETERS = 2**24  # bytes of a file of parameters that is read


class RunFile:
    """The path of a log, which belongs to one run: a trainer with all of its fits. PATH.json has its parameters.

    path: it may contain "{run}", in whose place each run has the first number that is free. A resumed run finds its own
    by the id in its checkpoint, which is in PATH.json. overwrite: whether the log of another run may be replaced.
    """

    def __init__(self, path: Path, overwrite: bool, argument: str = "path") -> None:
        self._argument, self.path = argument, text(path, argument)
        self.overwrite = check_bool("overwrite", overwrite)
        self.name: str | None = None  # without "{run}"; None: no number has been chosen yet
        self._run: str | None = None  # the id of the run that `name` belongs to
        self._fit: dict[str, Any] = {}  # the parameters of the running fit

    def begin(self, trainer: Any) -> None:
        """Begins a fit: finds `name`, but writes nothing; raises OSError if nothing can be written."""
        self._fit = trainer.run_parameters()
        if FIELD not in self.path:
            self.name = self.path
        elif self._run != trainer.run_id:
            self.name = self._of_run(trainer.run_id) if trainer.step else None
        self._run = trainer.run_id
        folder = os.path.dirname(self.path[: self.path.find(FIELD)])  # that of a number may be made later
        check_writable(os.path.join(folder, ".minidl") if self.name is None else f"{self.name}.json")

    def check_owner(self, found: str, is_ours: Callable[[], bool]) -> None:
        """Raises ValueError for the log of another run.

        found: a log that is there, or "". is_ours: whether it is that of this trainer, if no parameters are beside it.
        """
        if self.name is None:
            return
        known = run_of(self.name)
        if self.overwrite or known == self._run:
            return
        if os.path.lexists(self.name + ".json") and known is None:
            expected = f"expected no file {self.name}.json, or the parameters of a run of minidl"
            raise ValueError(f"{self._argument}: {expected}, got another file; overwrite=True replaces it")
        if found and (known is not None or not is_ours()):
            expected = f"expected a new one or that of this run, got {found!r}, the log of another run"
            remedy = "to keep both, put {run} into the path, where each run has a number; overwrite=True replaces it"
            raise ValueError(f"{self._argument}: {expected}; {remedy}")

    def open(self) -> str:
        """Returns the path to write to, and writes the parameters beside it."""
        if self.name is None:
            self.name = self._reserve()
        found, mine = _read(self.name), self._fit
        fits = found["fits"] if found is not None and run_of(self.name) == self._run and _has_fits(found) else []
        kept = [fit for fit in fits if fit["first_epoch"] <= mine["first_epoch"]]
        last = kept[-1] if kept else {}
        if last.get("first_epoch") != mine["first_epoch"] and last | {"first_epoch": 0} != mine | {"first_epoch": 0}:
            kept.append(mine)  # a fit that was resumed stays as it began
        parameters = {"run_id": self._run, "fits": kept}
        if found != parameters:
            content = json.dumps(parameters, indent=1, allow_nan=False) + "\n"
            atomic.write(self.name + ".json", [memoryview(content.encode())])
        return self.name

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
            if not os.path.lexists(name):
                try:
                    os.close(os.open(name + ".json", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
                    return name
                except FileExistsError:
                    pass
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
