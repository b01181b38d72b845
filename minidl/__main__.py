"""The command line: python -m minidl prints versions and build options; commands: export-c, grade, inspect, verify."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from minidl import Sequential, Trainer, export_c
from minidl.utils.config import show_config
from minidl.utils.text import escape_lines

DATA = ("X", "y", "sample_weight", "X_val", "y_val", "sample_weight_val")  # arrays of --data


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command; without one, prints the properties of this installation. Ends with status 2 for invalid input.

    Ends with status 1 for a file that cannot be imported (inspect), a wrong solution (grade), and a run that is not
    equal (verify).
    """
    parser = argparse.ArgumentParser("python -m minidl", description="Without a command: versions and build options.")
    commands = parser.add_subparsers(dest="command")
    for add in (_add_inspect, _add_export, _add_grade, _add_verify):
        add(commands)
    options = vars(parser.parse_args(arguments))
    name = options.pop("command")
    if name is None:
        print(show_config())
        return
    try:
        status = options.pop("run")(**options)
    except (ImportError, OSError, TypeError, ValueError) as error:
        remedy = f"; {REMEDIES[name]}" if "custom_objects" in str(error) and name in REMEDIES else ""
        print(f"{name}: {escape_lines(str(error))}{remedy}", file=sys.stderr)
        raise SystemExit(2) from None
    if status is not None:
        raise SystemExit(status)


REMEDIES = {  # a command has no classes of the user's
    "export-c": "export it from Python, by minidl.export_c",
    "verify": "verify it from Python, by Trainer.verify",
}


# ---- models


def _add_inspect(commands: Any) -> None:
    command = commands.add_parser("inspect", help="print what is in an ONNX file, and whether it can be imported")
    command.add_argument("path", help="the ONNX file")
    _add_reading(command)
    command.set_defaults(run=_inspect)


def _add_export(commands: Any) -> None:
    command = commands.add_parser("export-c", help="write a model as one C99 file")
    command.add_argument("model", help="a file of Sequential.save, or an ONNX file (.onnx)")
    command.add_argument("path", help="the C file, such as digits.c")
    command.add_argument("--name", help="the first part of the names in the file (default: its name without .c)")
    command.add_argument("--softmax", action="store_true", help="write probabilities instead of scores")
    memory = "argument: the caller passes the memory for values"
    command.add_argument("--arena", choices=("static", "argument"), default="static", help=memory)
    command.add_argument("--weights", choices=("text", "inc"), default="text", help="inc: in a file of their own")
    command.add_argument("--header", action="store_true", help="also write a header file")
    command.add_argument("--keep-values", action="store_true", help="keep the outputs of all layers in the arena")
    names = "the names of the classes, in a table"
    command.add_argument("--class-names", type=_names, metavar="NAME,NAME,...", default=False, help=names)
    transformed = "how Winograd's weights are written (default: tables up to 256 KiB, else memory)"
    command.add_argument("--winograd", choices=("tables", "memory", "direct"), help=transformed)
    _add_reading(command)
    command.set_defaults(run=_export)


def _add_reading(command: Any) -> None:
    shape = "ONNX: shape of one example, if dynamic"
    command.add_argument("--input-shape", type=_shape, metavar="N,N,...", help=shape)
    command.add_argument("--external-data", action="store_true", help="ONNX: also read tensors in other files")
    output = "an output of the model, or of ONNX any value; may be repeated (default: all outputs of the file)"
    command.add_argument("--outputs", action="append", metavar="NAME", help=output)
    command.add_argument("--dequantize", action="store_true", help="ONNX of 8-bit integers: as a model of floats")


def _inspect(path: str, **reading: Any) -> int:
    """Prints what is in an ONNX file; returns 1 if it cannot be imported, else 0."""
    from minidl.onnx import inspect

    found = inspect(path, **reading)
    print(found)
    return int(bool(found.obstacles))


def _export(model: str, path: str, **options: Any) -> None:
    """Writes a model as a C file."""
    reading = {name: options.pop(name) for name in ("input_shape", "external_data", "outputs", "dequantize")}
    export_c(_load(model, reading), path, **options)


def _shape(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected sizes such as 3,224,224, got {text!r}") from None


def _names(text: str) -> list[str]:
    return text.split(",")


def _load(path: str, options: dict[str, Any]) -> Sequential:
    """Returns the model in a file. options: arguments of `import_model`, of which other files take `outputs` alone."""
    if path.endswith(".onnx"):
        from minidl.onnx import import_model

        return import_model(path, **options)
    outputs = options.pop("outputs")
    for name, value in options.items():
        if value:
            raise ValueError(f"--{name.replace('_', '-')}: expected an ONNX file (.onnx) with it, got {path!r}")
    model = Sequential.load(path)
    return model[outputs[0] if len(outputs) == 1 else outputs] if outputs else model


# ---- the course


def _add_grade(commands: Any) -> None:
    command = commands.add_parser("grade", help="run solutions of the course's exercises, and say what is wrong")
    command.add_argument("paths", nargs="+", metavar="path", help="a script or a notebook, such as dense.ipynb")
    command.set_defaults(run=_grade)


def _grade(paths: Sequence[str]) -> int:
    """Grades files with exercises; returns 0 if all is right, 1 if something is wrong, 2 if one has no exercise."""
    from minidl.testing.grading.files import grade_file

    status = 0
    for path in paths:
        try:
            status = max(status, int(not grade_file(path)))
        except (OSError, ValueError) as error:
            print(f"grade: {escape_lines(str(error))}", file=sys.stderr)
            status = 2
    return status


# ---- receipts


def _add_verify(commands: Any) -> None:
    command = commands.add_parser("verify", help="train again as a receipt says, and compare every bit")
    command.add_argument("receipt", help="a file of the callback Receipt")
    arrays = f"a file of numpy.savez with the arrays of the fit: {', '.join(DATA)}; of several outputs y.NAME"
    command.add_argument("--data", required=True, metavar="FILE", help=arrays)
    command.add_argument("--start", metavar="FILE", help="the checkpoint that the fit began with, if it had one")
    command.set_defaults(run=_verify)


def _verify(receipt: str, data: str, start: str | None) -> int:
    """Prints what is equal; returns 1 if the runs part, else 0."""
    found = Trainer.verify(receipt, **_read_data(data), start=start, verbose=None if sys.stdout.isatty() else 0)
    print(found)
    return int(not found.equal)


def _read_data(path: str) -> dict[str, Any]:
    """Returns the arguments of `Trainer.verify` that are in a file; raises ValueError for another file."""
    with open(path, "rb") as file:
        try:
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise TypeError("one array")
            arrays = {name: archive[name] for name in archive.files}
        except Exception as error:  # of zipfile, zlib and NumPy's reader; also MemoryError for a forged shape
            what = f"{type(error).__name__}: {escape_lines(str(error))[:200]}"
            raise ValueError(f"--data: expected a file of numpy.savez, whole and without objects, got {what}") from None
    for name in ("y", "y_val"):
        outputs = {key[len(name) + 1 :]: arrays.pop(key) for key in list(arrays) if key.startswith(f"{name}.")}
        if outputs and name in arrays:
            raise ValueError(f"--data: expected {name}, or {name}.NAME for each output, got both")
        arrays |= {name: outputs} if outputs else {}
    unknown, missing = sorted(arrays.keys() - set(DATA)), sorted({"X", "y"} - arrays.keys())
    if unknown or missing:
        got = f"got {escape_lines(', '.join(unknown))}" if unknown else f"{' and '.join(missing)} missing"
        raise ValueError(f"--data: expected the arrays {', '.join(DATA)}, of which X and y are needed: {got}")
    held = [arrays.pop(name, None) for name in DATA[3:]]
    if (held[0] is None) != (held[1] is None) or (held[2] is not None and held[0] is None):
        raise ValueError("--data: expected X_val and y_val together, and sample_weight_val only with them")
    return arrays | {"validation_data": tuple(one for one in held if one is not None) or None}


if __name__ == "__main__":
    main()
