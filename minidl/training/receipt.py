"""Receipts: what a fit was made of and what came out, as a small JSON file. verification.py trains again and compares.

A fit keeps the provenance of its weights (provenance.py). Data are hashed only when a receipt is written.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from minidl.callbacks.callback_list import CallbackList
from minidl.saving import atomic
from minidl.saving.atomic import Path
from minidl.saving.json_codec import decode, encode
from minidl.saving.safetensors_file import FileError
from minidl.training.base_trainer import BaseTrainer
from minidl.training.fit_arguments import FitArguments, make_loop
from minidl.training.fit_loop import FitLoop
from minidl.training.fit_state import FitState
from minidl.training.progress import Progress
from minidl.training.provenance import arrays_hash, weights_hash
from minidl.utils.config import show_config
from minidl.utils.errors import InputError
from minidl.utils.validation import check_counter

FORMAT = 1
MAX_BYTES = 2**24  # of a file that is read
DATA = ("X", "y", "sample_weight", "validation_data")
BUILD = ("minidl", "commit", "instruction_set", "numpy", "python", "platform")  # of show_config()
PARTS = {  # the objects of a receipt, and what each needs to have
    "build": ("minidl", "instruction_set", "numpy"),
    "run": ("model", "loss", "metrics", "optimizer", "seed", "clip", "callbacks", "epoch", "step"),
    "fit": ("epochs",),
    "data": DATA,
    "weights": ("first", "epochs", "last"),
    "results": (),
}

Receipt = dict[str, Any]


def make(trainer: BaseTrainer, fit: FitState | None, data: Mapping[str, Any]) -> Receipt:
    """Returns the receipt of a complete fit on these data, by the names of DATA.

    Raises TypeError or ValueError for a fit that has none, and InputError for data that are not those of the fit.
    """
    if fit is None or not fit.is_complete:
        expected = "a fit that came to its end, after which nothing was trained and no metric replaced"
        raise ValueError(f"receipt: expected {expected}, got none")
    if "batches" in fit.arguments:
        raise ValueError("receipt: expected a fit on arrays X and y, got one on batches, which are not kept")
    origin = fit.provenance
    if origin is None:
        raise ValueError("receipt: expected a fit of this version, got one that began in an earlier version")
    if "refused" in origin:
        raise TypeError(f"receipt: cannot be written: {origin['refused']}")
    numbers = {name: fit.arguments[name] for name in fit.arguments.keys() & NUMBERS}
    loop = data_loop(trainer, data, numbers)
    _check_data(fit.arguments, loop.config.describe(trainer.outputs, fit.arguments["rows_hashed"]))
    build = dataclasses.asdict(show_config())
    return {
        "minidl_receipt": FORMAT,
        "build": {name: build[name] for name in BUILD},
        "run": origin["run"],
        "fit": {name: _plain(numbers[name]) for name in sorted(numbers)},
        "data": {name: loop.arguments[name] for name in DATA},
        "weights": {name: origin[name] for name in ("first", "epochs")} | {"last": weights_hash(trainer.model)},
        "steps": trainer.step - origin["run"]["step"],
        "results": results(trainer),
        "predictions": predictions_hash(trainer, data["X"]),
    }


NUMBERS = {field.name for field in dataclasses.fields(FitArguments)} - set(DATA)


def data_loop(trainer: BaseTrainer, data: Mapping[str, Any], numbers: Mapping[str, Any]) -> FitLoop:
    """Returns the loop of a fit on arrays, for the hashes of its data."""
    return make_loop(trainer, FitArguments(**data, **numbers), CallbackList(()), Progress(0, 0))


def _check_data(expected: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    for name in DATA:
        if found[name] != expected[name]:
            got = "none" if found[name] is None else "other data (shape, dtype or numbers)"
            was = "none" if expected[name] is None else "the same data"
            raise InputError(f"{name}: expected {was}, as in the last fit, got {got}")


def results(trainer: BaseTrainer) -> dict[str, Any]:
    """Returns the numbers of the last epoch, except its speed."""
    last = {name: values[-1] for name, values in trainer.history.items() if values}
    return {name: _plain(value) for name, value in last.items() if name != "images_per_second"}


def predictions_hash(trainer: BaseTrainer, X: Any) -> str:
    """Returns the SHA-256 of the predictions for X, of all outputs in order."""
    scores = trainer.predict(X)
    return arrays_hash(scores.values() if isinstance(scores, Mapping) else [scores])


def write(path: Path, receipt: Receipt) -> None:
    """Writes a receipt, atomically, with a line for each value."""
    atomic.write(path, [memoryview((json.dumps(receipt, indent=1, allow_nan=False) + "\n").encode())])


def read(path: Path) -> Receipt:
    """Returns the receipt in a file; raises FileError for another content, and OSError."""
    name = atomic.text(path)
    with open(name, "rb") as file:
        content = file.read(MAX_BYTES + 1)
    try:
        if len(content) > MAX_BYTES:
            raise ValueError(f"expected at most {MAX_BYTES} bytes, got more")
        return _checked(_parsed(content))
    except (TypeError, ValueError) as error:
        raise FileError(f"{name}: expected a receipt of minidl: {error}") from None


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("got no JSON") from None


def _checked(receipt: Any) -> Receipt:
    """Returns a receipt with the arguments of fit decoded; raises ValueError if it is none."""
    if not isinstance(receipt, dict) or "minidl_receipt" not in receipt:
        raise ValueError("got other JSON")
    if receipt["minidl_receipt"] != FORMAT:
        got = f"got format {receipt['minidl_receipt']!r:.20}, which another version of minidl writes"
        raise ValueError(f"expected format {FORMAT}, {got}")
    for part, names in PARTS.items():
        found = receipt.get(part)
        if not isinstance(found, dict) or (lacking := sorted(set(names) - found.keys())):
            got = f"none with {lacking[0]!r}" if isinstance(found, dict) else "none"
            raise ValueError(f"expected an object {part!r}, got {got}")
    check_counter("steps", receipt.get("steps"))
    for name in ("epoch", "step"):
        check_counter(f"run: {name}", receipt["run"][name])
    if not isinstance(receipt["weights"]["epochs"], list):
        raise ValueError("expected a list of hashes in 'weights'")
    if unknown := sorted(receipt["fit"].keys() - NUMBERS):
        raise ValueError(f"expected arguments of fit that this version has, got {', '.join(unknown)[:100]}")
    return receipt | {"fit": {name: decode(value, _nothing_else) for name, value in receipt["fit"].items()}}


def _plain(value: Any) -> Any:
    return encode(value, "receipt", lambda value, where: None)


def _nothing_else(kind: str, content: Any) -> Any:
    raise ValueError(f"expected a value of JSON, got {kind!r:.50}")
