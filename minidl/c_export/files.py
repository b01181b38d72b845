"""The files of an export: their names, and how they are written."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from minidl.c_export.exported import Export
from minidl.c_export.identifiers import check_stem, name_from
from minidl.c_export.interface import header_file
from minidl.c_export.source_file import render
from minidl.saving import atomic
from minidl.saving.atomic import Path
from minidl.utils.validation import check_bool, check_choice


@dataclass(frozen=True)
class Files:
    """Where files are written: path without ".c"; the first part of the names in them; what they contain."""

    path: str
    name: str
    static_arena: bool
    separate_tables: bool
    header: bool
    keeps_values: bool

    @property
    def stem(self) -> str:
        """The name of the files, without a folder and ".c"."""
        return os.path.basename(self.path)


def files_for(path: Path, name: Any, arena: Any, weights: Any, header: Any, keep_values: Any) -> Files:
    """Returns what these arguments of `export_c` say; raises TypeError or ValueError for others."""
    target = atomic.text(path)
    prefix = name_from(name, target)
    static = check_choice("arena", arena, "static", "argument") == "static"
    separate = check_choice("weights", weights, "text", "inc") == "inc"
    if check_bool("keep_values", keep_values) and static:
        raise ValueError('keep_values: expected arena="argument" with it, got "static"')
    check_bool("header", header)
    files = Files(target.removesuffix(".c"), prefix, static, separate, header, keep_values)
    check_stem(files.stem, header, separate)
    return files


def write(files: Files, export: Export) -> None:
    """Writes the files of an export, or none. Raises OSError if one cannot be written."""
    source, words = render(export)
    contents = {".inc": words, ".h": header_file(export) if files.header else "", ".c": source}
    written = {f"{files.path}{suffix}": content for suffix, content in contents.items() if content}
    for file in written:
        atomic.check_writable(file)
    for file, content in written.items():
        atomic.write(file, [memoryview(content.encode())])
