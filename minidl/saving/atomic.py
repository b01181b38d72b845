"""Atomic file writes: a path never holds a partial file, even if the process is killed or the machine fails."""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache

if sys.platform != "win32":  # there, an open file cannot be removed, which takes the place of its lock
    import fcntl

Path = str | os.PathLike[str]
BINARY = getattr(os, "O_BINARY", 0)  # of Windows, where files are otherwise opened as text


def text(path: Path, argument: str = "path") -> str:
    """Returns `path` as a string; raises TypeError or ValueError, naming the argument, for an invalid one."""
    try:
        name = os.fsdecode(path)
    except TypeError:
        raise TypeError(f"{argument}: expected a str or os.PathLike, got {path!r}") from None
    if "\0" in name:
        raise ValueError(f"{argument}: expected no null character, got {name!r}")
    return name


def check_writable(path: Path) -> None:
    """Raises the OSError that `write` would raise, as far as it can be known in advance."""
    name = text(path)
    try:
        target, _ = _resolve_target(name)
    except OSError as error:
        raise OSError(error.errno, error.strerror, name) from error
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "path: expected an existing folder to write into", folder)
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, "path: expected a folder with permission to write into it", folder)


def write(path: Path, parts: Iterable[memoryview]) -> None:
    """Writes these bytes to `path`, replacing its content.

    The bytes are written to a temporary file in the same folder and flushed to disk before it is renamed. A process
    killed before that leaves the temporary file, .minidl-*.tmp, which the next call for this path removes (see
    `clean`). The file keeps the permissions of the one it replaces; a new file has those that the umask allows. A
    symbolic link stays one.

    Raises OSError naming the path, and then leaves the old file unchanged. (Exception: if the final flush of the folder
    fails, the new file is in place, but the rename may be lost in a power failure.)

    On Windows, folders cannot be flushed: a power failure may restore the old file. An open file cannot be replaced
    there, and another process that saves to the same path at the same time may remove the temporary file: both raise
    PermissionError or FileNotFoundError. The new file has the permissions of its folder.
    """
    name = text(path)
    try:
        _replace(name, parts)
    except OSError as error:
        raise OSError(error.errno, error.strerror, name) from error


def create(path: Path, parts: Iterable[memoryview]) -> bool:
    """Writes these bytes to `path`, as `write`; returns False, and writes nothing, if there is a file by then."""
    name = text(path)
    try:
        _replace(name, parts, _link)
    except FileExistsError:
        return False
    except OSError as error:
        raise OSError(error.errno, error.strerror, name) from error
    return True


def _link(temporary: str, target: str) -> None:
    """Renames a file, unless the target exists: that is a FileExistsError."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links: others may see an empty file in between
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        os.replace(temporary, target)
    else:
        os.unlink(temporary)


def _replace(name: str, parts: Iterable[memoryview], place: Callable[[str, str], None] | None = None) -> None:
    target, mode = _resolve_target(name)
    _remove_stale(target)
    with _flushed(os.path.dirname(target)):
        lock, temporary = _create_temporary(target)
        try:
            # Closed before the rename, since close may fail; the lock is held until later, where it is one.
            file = lock if sys.platform == "win32" else os.dup(lock)
            try:
                if mode is not None and sys.platform != "win32":
                    os.fchmod(file, mode)
                for part in parts:
                    while len(part):
                        part = part[os.write(file, part) :]
                os.fsync(file)
            finally:
                os.close(file)
            (place or os.replace)(temporary, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        finally:
            if sys.platform != "win32":
                os.close(lock)


@contextmanager
def _flushed(folder: str) -> Iterator[None]:
    """A context that flushes a folder to disk at its end, unless it raises. Windows cannot open folders."""
    if sys.platform == "win32":
        yield
        return
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield
        os.fsync(directory)
    finally:
        os.close(directory)


def clean(path: Path) -> None:
    """Removes the temporary files of this path that killed processes of this machine left, and nothing else.

    A process holds a lock (flock) on its temporary file while it lives. Files of other machines on a shared file system
    are not removed, because their locks may be invisible here; neither are files from before this machine's last boot.
    Without support for locks, and without permission to remove a file, nothing happens.
    """
    with suppress(OSError):
        _remove_stale(_resolve_target(text(path))[0])


def _remove_stale(target: str) -> None:
    folder, prefix = os.path.dirname(target), _temporary_prefix(target)
    with suppress(OSError):
        for name in [entry.name for entry in os.scandir(folder) if entry.name.startswith(prefix)]:
            with suppress(OSError):
                _remove_unlocked(os.path.join(folder, name))


def _remove_unlocked(name: str) -> None:
    """Removes a file; raises OSError while the process that writes it lives."""
    if sys.platform == "win32":
        os.unlink(name)
        return
    file = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(name)
    finally:
        os.close(file)


def _create_temporary(target: str) -> tuple[int, str]:
    """Creates and locks a temporary file for `target`; returns its descriptor and name."""
    while True:
        name = os.path.join(os.path.dirname(target), f"{_temporary_prefix(target)}{os.urandom(8).hex()}.tmp")
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, 0o666)
        try:
            if sys.platform != "win32":
                with suppress(OSError):  # a file system without locks
                    fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink:
                return file, name
        except BaseException:
            os.close(file)
            with suppress(OSError):
                os.unlink(name)
            raise
        os.close(file)  # another process removed it as stale before it was locked


def _temporary_prefix(target: str) -> str:
    """Returns the prefix of the names of a path's temporary files that are written on this machine."""
    path, machine = os.fsencode(os.path.basename(target)), _machine_id().encode()
    return f".minidl-{hashlib.sha256(path).hexdigest()[:16]}-{hashlib.sha256(machine).hexdigest()[:16]}-"


@cache
def _machine_id() -> str:
    """Returns an id shared by exactly the processes that see each other's locks; host names may not be unique."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read()
    return platform.node()


def _resolve_target(name: str) -> tuple[str, int | None]:
    """Returns the real path, with symbolic links resolved, and the file's permissions if it exists."""
    try:
        target = os.path.realpath(name, strict=True)
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return os.path.realpath(name), None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "expected a regular file")
    if not os.access(target, os.W_OK):  # a rename could replace it, but read-only files are protected on purpose
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return target, stat.S_IMODE(mode)
