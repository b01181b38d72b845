"""Writing a file whole or not at all: its path never holds half a file, whenever process or machine stop."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress

Path = str | os.PathLike[str]


def text(path: Path) -> str:
    """`path` as a string; raises TypeError or ValueError for anything that is no path."""
    try:
        name = os.fsdecode(path)
    except TypeError:
        raise TypeError(f"path: expected a str or os.PathLike, got {path!r}") from None
    if "\0" in name:
        raise ValueError(f"path: expected no null character, got {name!r}")
    return name


def check_writable(path: Path) -> None:
    """Raises the OSError that `write` would raise, as far as that can be told before."""
    name = text(path)
    try:
        target, _ = _target(name)
    except OSError as error:
        raise OSError(error.errno, error.strerror, name) from error
    folder = os.path.dirname(target)
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise OSError(f"path: expected a folder to write into, got {folder!r}")


def write(path: Path, parts: Iterable[memoryview]) -> None:
    """Makes `path` a file of these bytes, in the place of what was there.

    They go to a temporary file beside it (.minidl-*.tmp, which only a killed process leaves behind), and to the disk,
    before that takes the name. The file gets the permissions of the one it replaces, else what the umask allows; a
    symbolic link stays one. Raises OSError naming the path, and then leaves the old file as it was. (Where the disk
    fails as the very last thing, the new name itself may not outlive a loss of power, and the new file is in place.)
    """
    name = text(path)
    try:
        _replace(name, parts)
    except OSError as error:
        raise OSError(error.errno, error.strerror, name) from error


def _replace(name: str, parts: Iterable[memoryview]) -> None:
    target, mode = _target(name)
    folder = os.path.dirname(target)
    temporary = os.path.join(folder, f".minidl-{os.urandom(8).hex()}.tmp")
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            try:
                if mode is not None:
                    os.fchmod(file, mode)
                for part in parts:
                    while len(part):
                        part = part[os.write(file, part) :]
                os.fsync(file)
            finally:
                os.close(file)
            os.rename(temporary, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        os.fsync(directory)
    finally:
        os.close(directory)


def _target(name: str) -> tuple[str, int | None]:
    """Where the file really is, behind symbolic links, and its permissions if there is one."""
    try:
        target = os.path.realpath(name, strict=True)
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return os.path.realpath(name), None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "expected a regular file")
    if not os.access(target, os.W_OK):  # renaming could replace it, but somebody said that it is to stay
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return target, stat.S_IMODE(mode)
