"""Writing a file whole or not at all: its path never holds half a file, whenever process or machine stop."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from functools import cache

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
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "path: expected a folder that is there, to write into", folder)
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, "path: expected a folder with permission to write into it", folder)


def write(path: Path, parts: Iterable[memoryview]) -> None:
    """Makes `path` a file of these bytes, in the place of what was there.

    They go to a temporary file beside it, and to the disk, before that takes the name. A process that is killed then
    leaves the temporary file, .minidl-*.tmp, which the next call for this path removes (see `clean`). The file gets the
    permissions of the one it replaces, else what the umask allows; a symbolic link stays one. Raises OSError naming the
    path, and then leaves the old file as it was. (Where the disk fails as the very last thing, the new name itself may
    not outlive a loss of power, and the new file is in place.)
    """
    name = text(path)
    try:
        _replace(name, parts)
    except OSError as error:
        raise OSError(error.errno, error.strerror, name) from error


def _replace(name: str, parts: Iterable[memoryview]) -> None:
    target, mode = _target(name)
    _clean(target)
    directory = os.open(os.path.dirname(target), os.O_RDONLY | os.O_DIRECTORY)
    try:
        lock, temporary = _temporary(target)
        try:
            file = os.dup(lock)  # closed before the rename, since that may tell of an error; the lock lasts beyond
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
        finally:
            os.close(lock)
        os.fsync(directory)
    finally:
        os.close(directory)


def clean(path: Path) -> None:
    """Removes the temporary files of this path that killed processes of this machine left, and nothing else.

    A process holds a lock on its temporary file (flock) as long as it lives. Files of other machines on a shared file
    system stay, for their locks may not be seen here, and so do those of a machine before it was started again. Where
    there are no locks, and for files that are not ours to remove, nothing happens.
    """
    with suppress(OSError):
        _clean(_target(text(path))[0])


def _clean(target: str) -> None:
    folder, start = os.path.dirname(target), _start(target)
    with suppress(OSError):
        for name in [entry.name for entry in os.scandir(folder) if entry.name.startswith(start)]:
            with suppress(OSError):
                file = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused while its process lives
                    os.unlink(os.path.join(folder, name))
                finally:
                    os.close(file)


def _temporary(target: str) -> tuple[int, str]:
    """A new file for what shall become `target`, open and locked, and its name."""
    while True:
        name = os.path.join(os.path.dirname(target), f"{_start(target)}{os.urandom(8).hex()}.tmp")
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink:
                return file, name
        except BaseException:
            os.close(file)
            with suppress(OSError):
                os.unlink(name)
            raise
        os.close(file)  # another process found it before it was locked, and took it for a dead one's


def _start(target: str) -> str:
    """What the names of temporary files begin with that belong to a path, and are written on this machine."""
    path, machine = os.fsencode(os.path.basename(target)), _machine().encode()
    return f".minidl-{hashlib.sha256(path).hexdigest()[:16]}-{hashlib.sha256(machine).hexdigest()[:16]}-"


@cache
def _machine() -> str:
    """What is the same for all processes that see each other's locks: the name of a host may be that of another too."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read()
    return os.uname().nodename


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
