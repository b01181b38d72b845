"""Receipts: what a fit follows from and what came out, as JSON. verification.py trains again and compares."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

from minidl import callbacks as our_callbacks
from minidl.callbacks.recorder import weights_hash
from minidl.callbacks.time_limit import TimeLimit
from minidl.saving import atomic, canonical_json
from minidl.saving.atomic import Path
from minidl.saving.json_codec import decode, encode
from minidl.saving.object_codec import ObjectCodec
from minidl.saving.safetensors_file import FileError
from minidl.training.base_trainer import BaseTrainer
from minidl.training.checkpoint_content import OURS, run_config
from minidl.training.fit_loop import FitLoop
from minidl.training.fit_state import ADDED, ArrayFitConfig
from minidl.utils.arrays import Array
from minidl.utils.config import show_config
from minidl.utils.data import CHUNK, Index
from minidl.utils.validation import MAX_INT64, check_counter

FORMAT = 1
MAX_BYTES = 2**26  # of a file that is read
CALLBACKS = {made.__name__: made for made in vars(our_callbacks).values() if isinstance(made, type)}
DATA = ("X", "y", "sample_weight", "validation_data")
BUILD = ("minidl", "commit", "instruction_set", "numpy", "python", "platform")  # of show_config()
NUMBERS = (  # arguments of fit
    *("epochs", "batch_size", "gradient_accumulation_steps", "shuffle", "validation_split", "class_weight", "mixup"),
    *("cutmix", "normalize_weights"),
)
PARTS = {  # the objects of a receipt, and what each needs to have
    "build": ("minidl", "instruction_set", "numpy"),
    "run": ("model", "loss", "metrics", "optimizer", "seed", "clip", "callbacks", "left_out", "epoch", "step"),
    "fit": NUMBERS,
    "data": DATA,
    "weights": ("first", "epochs", "last"),
    "results": (),
}

Receipt = dict[str, Any]


# ---- of a running fit


def origin(trainer: BaseTrainer, loop: FitLoop | None) -> Receipt:
    """Returns what a fit follows from; "is_whole": whether it is at its beginning.

    Raises ValueError for a fit on batches, TypeError for what JSON cannot hold.
    """
    config = None if loop is None else loop.config
    if loop is None or not isinstance(config, ArrayFitConfig):
        raise ValueError("Receipt: expected a fit on arrays X and y, got batches, which are read only once")
    build, custom = dataclasses.asdict(show_config()), dict[str, Any]()
    left_out = [one for one in loop.callbacks if getattr(one, "rank_zero_only", False) or type(one) is TimeLimit]
    needed = [one for one in loop.callbacks if not any(one is other for other in left_out)]
    try:
        run = run_config(trainer, ObjectCodec(OURS, custom), custom)
        run["callbacks"] = ObjectCodec(CALLBACKS, custom).encode(needed, "callbacks")
    except (TypeError, ValueError) as error:
        raise type(error)(f"Receipt: {error}") from error
    hashes = config.describe(trainer.outputs, MAX_INT64)  # of all rows
    return {
        "minidl_receipt": FORMAT,
        "build": {name: build[name] for name in BUILD},
        "run": run | {"left_out": len(left_out) > 1, "epoch": trainer.epoch, "step": trainer.step},
        "fit": {name: _plain(value) for name, value in config.numbers().items()},
        "data": {name: hashes[name] for name in DATA},
        "is_whole": not loop.epochs_done and not loop.in_epoch,
    }


def outcome(trainer: Any, loop: FitLoop | None) -> Receipt:
    """Returns what has come out of a fit at its end."""
    assert loop is not None and isinstance(loop.config, ArrayFitConfig)
    names = ("epoch", *trainer.measures, "lr") if loop.epochs_done else ()
    return {
        "last": weights_hash(trainer),
        "epochs_done": loop.epochs_done,
        "step": trainer.step,
        "stopped": trainer.should_stop,
        "results": {name: _plain(trainer.history[name][-1]) for name in names},
        "predictions": _predictions_hash(loop.sized, loop.config.data.examples, loop.config.data.active_rows),
    }


def _predictions_hash(trainer: BaseTrainer, examples: Any, rows: Index) -> str:
    digest = hashlib.sha256()
    for start in range(0, len(rows), CHUNK):
        scores: Array = trainer.scores_of(examples, rows[start : start + CHUNK])
        digest.update(scores.astype(scores.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


# ---- of a file


def read(path: Path) -> Receipt:
    """Returns the receipt in a file, with the arguments of fit decoded; raises FileError for another content."""
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
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("got no JSON") from None
    if isinstance(value, (dict, list)):
        canonical_json.check_depth(value)
    return value


def _checked(receipt: Any) -> Receipt:
    """Returns a receipt with the arguments of fit decoded; raises TypeError or ValueError if it is none."""
    if not isinstance(receipt, dict) or "minidl_receipt" not in receipt:
        raise ValueError("got other JSON")
    version = receipt["minidl_receipt"]
    if type(version) is not int or version != FORMAT:
        got = f"got format {version!r:.20}, which another version of minidl may write"
        raise ValueError(f"expected format {FORMAT}, {got}")
    for part, names in PARTS.items():
        found = receipt.get(part)
        if not isinstance(found, dict) or (lacking := sorted(set(names) - found.keys() - ADDED.keys())):
            got = f"none with {lacking[0]!r}" if isinstance(found, dict) else "none"
            raise ValueError(f"expected an object {part!r}, got {got}")
    for name in ("epochs_done", "step"):
        check_counter(name, receipt.get(name))
    for name in ("epoch", "step"):
        check_counter(f"run: {name}", receipt["run"][name])
    hashes = receipt["weights"]["epochs"]
    if not isinstance(hashes, list) or len(hashes) != receipt["epochs_done"]:
        raise ValueError(f"expected the hashes of {receipt['epochs_done']} epochs in 'weights', got another number")
    if unknown := sorted(receipt["fit"].keys() - set(NUMBERS)):
        raise ValueError(f"expected arguments of fit that this version has, got {', '.join(unknown)[:100]}")
    if not isinstance(receipt["run"]["callbacks"], list) or "predictions" not in receipt:
        raise ValueError("expected a list 'callbacks' in 'run', and 'predictions'")
    return receipt | {"fit": {name: decode(value, _nothing_else) for name, value in receipt["fit"].items()}}


def _plain(value: Any) -> Any:
    return encode(value, "receipt", lambda value, where: None)


def _nothing_else(kind: str, content: Any) -> Any:
    raise ValueError(f"expected a value of JSON, got {kind!r:.50}")
