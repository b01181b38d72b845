"""The command line: python -m minidl prints versions and build options; its commands are export-c and inspect."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from minidl import Sequential, export_c
from minidl.utils.config import show_config
from minidl.utils.text import escape_lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command; without one, prints the properties of this installation. Ends with status 2 for invalid input.

    inspect ends with status 1 for a file that cannot be imported.
    """
    parser = argparse.ArgumentParser("python -m minidl", description="Without a command: versions and build options.")
    commands = parser.add_subparsers(dest="command")
    inspect = commands.add_parser("inspect", help="print what is in an ONNX file, and whether it can be imported")
    inspect.add_argument("path", help="the ONNX file")
    export = commands.add_parser("export-c", help="write a model as one C99 file")
    export.add_argument("model", help="a file of Sequential.save, or an ONNX file (.onnx)")
    export.add_argument("path", help="the C file, such as digits.c")
    export.add_argument("--name", help="the first part of the names in the file (default: its name without .c)")
    export.add_argument("--softmax", action="store_true", help="write probabilities instead of scores")
    memory = "argument: the caller passes the memory for values"
    export.add_argument("--arena", choices=("static", "argument"), default="static", help=memory)
    export.add_argument("--weights", choices=("text", "inc"), default="text", help="inc: in a file of their own")
    export.add_argument("--header", action="store_true", help="also write a header file")
    export.add_argument("--keep-values", action="store_true", help="keep the outputs of all layers in the arena")
    names = "the names of the classes, in a table"
    export.add_argument("--class-names", type=_names, metavar="NAME,NAME,...", default=False, help=names)
    transformed = "how Winograd's weights are written (default: tables up to 256 KiB, else memory)"
    export.add_argument("--winograd", choices=("tables", "memory", "direct"), help=transformed)
    for command in (inspect, export):
        shape = "ONNX: shape of one example, if dynamic"
        command.add_argument("--input-shape", type=_shape, metavar="N,N,...", help=shape)
        command.add_argument("--external-data", action="store_true", help="ONNX: also read tensors in other files")
        output = "an output of the model, or of ONNX any value; may be repeated (default: all outputs of the file)"
        command.add_argument("--outputs", action="append", metavar="NAME", help=output)
    given = parser.parse_args(arguments)
    if given.command is None:
        print(show_config())
        return
    options = {key: value for key, value in vars(given).items() if key not in ("command", "model", "path")}
    reading = {key: options.pop(key) for key in ("input_shape", "external_data", "outputs")}
    try:
        if given.command == "inspect":
            raise SystemExit(_inspect(given.path, reading))
        export_c(_load(given.model, reading), given.path, **options)
    except (ImportError, OSError, TypeError, ValueError) as error:
        remedy = "; export it from Python, by minidl.export_c" if "custom_objects" in str(error) else ""
        print(f"{given.command}: {escape_lines(str(error))}{remedy}", file=sys.stderr)
        raise SystemExit(2) from None


def _inspect(path: str, options: dict[str, Any]) -> int:
    """Prints what is in an ONNX file; returns 1 if it cannot be imported, else 0."""
    from minidl.onnx import inspect

    found = inspect(path, **options)
    print(found)
    return int(bool(found.obstacles))


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


if __name__ == "__main__":
    main()
