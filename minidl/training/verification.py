"""Verification of a receipt: the fit is trained again, and compared hash by hash."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from minidl.callbacks.recorder import Recorder
from minidl.engine.layer_list import OUR_LAYERS
from minidl.saving.object_codec import check_names
from minidl.saving.object_codec import decode as decode_object
from minidl.sequential import Sequential
from minidl.training.checkpoint_content import OURS, as_file_error, parse_config
from minidl.training.receipt import CALLBACKS, DATA, Receipt
from minidl.utils.config import show_config
from minidl.utils.text import escape

FIRST = "they are not those of the seed; if the fit began with loaded weights, start from a checkpoint of before it"
MAX_TEXT = 300  # characters of a line, of which parts are from the file


@dataclass
class Verification:
    """The result of `Trainer.verify`; prints as a table, one line for each part of the receipt that was compared.

    Attributes
    ----------
    parts : dict of str to str
        What was compared, in order: "data", "first weights", "epoch 1", ..., "last weights", "results", "predictions";
        "equal", or how it differs.
    notes : list of str
        Differences of version and build, which may explain others.
    first_difference : str or None
        The name of the first part that differs; nothing was compared after it. None: all are equal.
    equal : bool
        Whether all parts are equal.
    """

    parts: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    first_difference: str | None = None

    @property
    def equal(self) -> bool:
        """Whether all parts are equal."""
        return self.first_difference is None

    def compare(self, part: str, found: Any, expected: Any, why: str = "") -> bool:
        """Adds a part; returns whether it is equal.

        Parameters
        ----------
        part : str
            Its name.
        found, expected : object
            What is compared.
        why : str
            What may be the reason of a difference.

        Returns
        -------
        bool
            Whether it is equal.
        """
        same = bool(found == expected)
        self.parts[part] = "equal" if same else "differs" + (f": {_shown(why)}" if why else "")
        if not same:
            self.first_difference = part
        return same

    def __str__(self) -> str:
        width = max(map(len, [*self.parts, "note"]))
        lines = [f"{'note':{width}}  {note}" for note in self.notes]
        lines += [f"{part:{width}}  {text}" for part, text in self.parts.items()]
        last = "equal, in every bit" if self.equal else f"not equal: the runs part at {self.first_difference}"
        return "\n".join([*lines, last])

    __repr__ = __str__


class _Watch(Recorder):
    """Compares a fit with a receipt as it goes, and ends it at the first difference."""

    def __init__(self, receipt: Receipt, found: Verification, starts: bool) -> None:
        super().__init__()
        self.receipt, self.found, self.starts = receipt, found, starts
        stops = receipt.get("stopped") and receipt["run"]["left_out"]  # the clock, or a callback that is not here
        self.every_n_steps = max(receipt["step"], 1) if stops else None

    def on_fit_begin(self, trainer: Any) -> None:
        super().on_fit_begin(trainer)
        ours, theirs = self._origin, self.receipt
        compared = ours["run"].keys() - {"left_out", "callbacks"}  # the callbacks are those of the receipt
        names = [name for name in ours["run"] if name in compared and ours["run"][name] != theirs["run"][name]]
        if self.starts and names:
            self.found.compare("configuration", names, [], f"the checkpoint has another {', '.join(names)}")
        else:
            names = [name for name in DATA if ours["data"][name] != theirs["data"][name]]
            if self.found.compare("data", names, [], f"{', '.join(names)} (shape, dtype or numbers)"):
                self.found.compare("first weights", ours["weights"]["first"], theirs["weights"]["first"], FIRST)
        self._stop_unless_equal(trainer)

    def on_step_end(self, trainer: Any, step: int, loss: float) -> None:
        trainer.should_stop = True  # at the last step of the receipt

    def on_save(self, trainer: Any) -> None:
        before = len(self._epochs)
        super().on_save(trainer)
        if len(self._epochs) > before and self.found.equal:
            expected = self.receipt["weights"]["epochs"]
            why = "" if before < len(expected) else f"the fit of the receipt ended after epoch {before}"
            self.found.compare(f"epoch {before + 1}", self._epochs[before], (*expected, None)[before], why)
            self._stop_unless_equal(trainer)

    def _stop_unless_equal(self, trainer: Any) -> None:
        if not self.found.equal:
            trainer.should_stop = True

    def _finish(self, trainer: Any) -> None:
        if not self.found.equal:
            return
        found, theirs, ours = self.found, self.receipt, trainer.fit_outcome()
        done, expected = (len(self._epochs), trainer.step), (theirs["epochs_done"], theirs["step"])
        if done != expected:
            ends = [f"epoch {epoch}, step {step}" for epoch, step in (done, expected)]
            why = f"the fit ended after {ends[0]}; that of the receipt after {ends[1]}"
            found.compare(f"epoch {done[0] + 1}", done, expected, why)
        elif found.compare("last weights", ours["last"], theirs["weights"]["last"]):
            mine, others = ours["results"], theirs["results"]
            names = sorted(name for name in mine | others if mine.get(name) != others.get(name))
            if found.compare("results", names, [], ", ".join(f"{name} is {mine.get(name)}" for name in names)):
                found.compare("predictions", ours["predictions"], theirs["predictions"])


def verify(
    make: Callable[..., Any],
    start: Any,
    receipt: Receipt,
    data: Mapping[str, Any],
    custom: Mapping[str, Any],
    verbose: int | None,
    path: str,
) -> Verification:
    """Trains as a receipt says, and returns what is equal.

    make: Trainer. start: the trainer to go on from; None: a new one. custom: the user's objects in the receipt. path:
    that of the receipt, for errors.
    """
    run = receipt["run"]
    with as_file_error(path, "verify this receipt"):
        trainer = _new_trainer(make, run, custom) if start is None else start
        callbacks = decode_object(run["callbacks"], CALLBACKS, custom)
    if (trainer.epoch, trainer.step) != (run["epoch"], run["step"]):
        expected = f"expected a checkpoint of epoch {run['epoch']}, step {run['step']}, where the fit began"
        got = "none" if start is None else f"one of epoch {trainer.epoch}, step {trainer.step}"
        raise ValueError(f"start: {expected}, got {got}")
    found = Verification(notes=_notes(receipt["build"]))
    given, was = (one["validation_data"] is not None for one in (data, receipt["data"]))
    if given != was:  # which a monitor or validation_split would refuse, without naming the reason
        expected = "those of the fit" if was else "none, as in the fit"
        found.compare("data", given, was, f"validation_data: expected {expected}")
        return found
    watch = _Watch(receipt, found, start is not None)
    trainer.interrupted = None  # a checkpoint of a complete fit with the same arguments would have nothing left to do
    fit = receipt["fit"] | ({"epochs": 0} if receipt["step"] == run["step"] else {})  # stopped before its first step
    try:
        trainer.fit(**data, **fit, callbacks=[*callbacks, watch], verbose=verbose)
    except FloatingPointError as error:
        found.compare(f"epoch {trainer.epoch - run['epoch'] + 1}", str(error), "", str(error))
    return found


def _new_trainer(make: Callable[..., Any], run: Mapping[str, Any], custom: Mapping[str, Any]) -> Any:
    objects = [*run["model"]["layers"], *(run[name] for name in ("loss", "optimizer", "metrics", "callbacks"))]
    check_names(objects, OURS | OUR_LAYERS | CALLBACKS, custom)
    try:
        return make(Sequential.from_config(run["model"], None, custom), **parse_config(run, custom))
    except (MemoryError, RecursionError) as error:
        raise ValueError(f"model: expected one that fits into memory, got {type(error).__name__}") from error


def _notes(build: Mapping[str, Any]) -> list[str]:
    """Returns what differs between the build of the receipt and this one, and may change bits."""
    here, notes = show_config(), []
    if build["minidl"] != here.minidl:
        notes.append(f"version: the receipt is of minidl {build['minidl']}, this is {here.minidl}")
    elif build.get("commit") != here.commit:
        notes.append(f"commit: the receipt is of {build.get('commit')}, the kernels here are of {here.commit}")
    if build["numpy"] != here.numpy:
        notes.append(f"NumPy {build['numpy']} then, {here.numpy} here: it draws first weights and orders")
    if "v2" in (isas := (build["instruction_set"], here.instruction_set)) and isas[0] != isas[1]:
        notes.append(f"instruction set {isas[0]} then, {isas[1]} here: v2 has other bits")
    return list(map(_shown, notes))


def _shown(text: str) -> str:
    """Returns a text of a file as one short line."""
    return escape(text)[:MAX_TEXT]
