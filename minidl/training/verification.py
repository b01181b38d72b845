"""Verification of a receipt: the fit is trained again, and compared hash by hash."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from minidl.engine.layer_list import OUR_LAYERS
from minidl.saving.object_codec import check_names
from minidl.saving.object_codec import decode as decode_object
from minidl.sequential import Sequential
from minidl.training.base_trainer import BaseTrainer
from minidl.training.checkpoint_content import OURS, as_file_error, parse_config
from minidl.training.provenance import CALLBACKS, provenance, weights_hash
from minidl.training.receipt import DATA, Receipt, data_loop, predictions_hash, results
from minidl.utils.config import show_config

FIRST = "they are not those of the seed; if the fit began with loaded weights, start from a checkpoint of before it"


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
        self.parts[part] = "equal" if same else "differs" + (f": {why}" if why else "")
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


class _Watch:
    """Compares the weights after each epoch, and ends the fit at the first difference, and after the last step.

    It is the last callback, so it sees an epoch as the receipt does.
    """

    def __init__(self, found: Verification, expected: list[str], last_step: int) -> None:
        self.found, self.expected, self.every_n_steps = found, expected, max(last_step, 1)
        self.count = 0

    def on_step_end(self, trainer: Any, step: int, loss: float) -> None:
        trainer.should_stop = True  # where the clock, which is not repeated, ended the fit

    def on_epoch_end(self, trainer: Any, epoch: int, logs: dict[str, float]) -> None:
        expected = self.expected[self.count] if self.count < len(self.expected) else None
        self.count += 1
        why = "" if expected else f"the run of the receipt ended after epoch {self.count - 1}"
        if not self.found.compare(f"epoch {self.count}", weights_hash(trainer.model), expected, why):
            trainer.should_stop = True


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
    if not _starts_equal(found, trainer, receipt, data, callbacks):
        return found
    watch = _Watch(found, receipt["weights"]["epochs"], run["step"] + receipt["steps"])
    trainer.interrupted = None  # a checkpoint of a complete fit with the same arguments would have nothing left to do
    trainer.fit(**data, **receipt["fit"], callbacks=[*callbacks, watch], verbose=verbose)
    _compare_end(found, trainer, receipt, data, watch.count)
    return found


def _new_trainer(make: Callable[..., Any], run: Mapping[str, Any], custom: Mapping[str, Any]) -> Any:
    objects = [*run["model"]["layers"], *(run[name] for name in ("loss", "optimizer", "metrics", "callbacks"))]
    check_names(objects, OURS | OUR_LAYERS | CALLBACKS, custom)
    return make(Sequential.from_config(run["model"], None, custom), **parse_config(run, custom))


def _notes(build: Mapping[str, Any]) -> list[str]:
    """Returns what differs between the build of the receipt and this one, and may change bits."""
    here, notes = show_config(), []
    if build["minidl"] != here.minidl:
        notes.append(f"version: the receipt is of minidl {build['minidl']}, this is {here.minidl}")
    if build["numpy"] != here.numpy:
        notes.append(f"NumPy {build['numpy']} then, {here.numpy} here: it draws first weights and orders")
    if "v2" in (isas := (build["instruction_set"], here.instruction_set)) and isas[0] != isas[1]:
        notes.append(f"instruction set {isas[0]} then, {isas[1]} here: v2 has other bits")
    return notes


def _starts_equal(
    found: Verification, trainer: BaseTrainer, receipt: Receipt, data: Mapping[str, Any], callbacks: list[Any]
) -> bool:
    """Compares what the fit begins with: configuration, data and weights."""
    run, here = receipt["run"], provenance(trainer, callbacks)
    names = [name for name in run if here.get("run", {}).get(name) != run[name]]
    if names:
        return found.compare("configuration", names, [], f"the checkpoint has another {', '.join(names)}")
    hashes = data_loop(trainer, data, receipt["fit"]).arguments
    names = [name for name in DATA if hashes[name] != receipt["data"][name]]
    if not found.compare("data", names, [], f"{', '.join(names)} (shape, dtype or numbers)"):
        return False
    return found.compare("first weights", here["first"], receipt["weights"]["first"], FIRST)


def _compare_end(
    found: Verification, trainer: BaseTrainer, receipt: Receipt, data: Mapping[str, Any], count: int
) -> None:
    """Compares what the fit has ended with, unless an epoch differed."""
    expected = len(receipt["weights"]["epochs"])
    if found.equal and count < expected:
        found.compare(f"epoch {count + 1}", count, expected, f"the fit ended after epoch {count} here")
    if found.equal:
        found.compare("last weights", weights_hash(trainer.model), receipt["weights"]["last"])
    if found.equal:
        here, there = results(trainer), receipt["results"]
        names = sorted(name for name in here | there if here.get(name) != there.get(name))
        found.compare("results", names, [], ", ".join(f"{name} is {here.get(name)}" for name in names))
    if found.equal:
        found.compare("predictions", predictions_hash(trainer, data["X"]), receipt["predictions"])
