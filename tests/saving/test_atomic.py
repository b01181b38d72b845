"""Files are written completely or not at all. tests/conformance/saves.py stops a save at every system call."""

import errno
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from minidl.saving import atomic

posix = pytest.mark.skipif(sys.platform == "win32", reason="a property of POSIX")
OLD, NEW = b"old", [memoryview(b"new "), memoryview(b""), memoryview(b"content")]


def write(path):
    atomic.write(path, NEW)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


@pytest.fixture
def umask():
    before = os.umask(0o027)
    yield
    os.umask(before)


def test_str_and_pathlike_and_a_name_in_the_current_folder(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    for name in (path, str(path), "file", Path("file"), os.fsencode(path)):
        path.unlink(missing_ok=True)
        write(name)
        assert path.read_bytes() == b"new content"
        write(name)
        assert os.listdir(path.parent) == ["file"]


@pytest.mark.parametrize("links", [True, False])
def test_a_file_is_created_once(path, links, umask, monkeypatch):
    if not links:
        monkeypatch.setattr(os, "link", lambda *names: os.open("/missing/folder", os.O_RDONLY))
    assert atomic.create(path, NEW) is True
    assert atomic.create(path, [memoryview(b"another")]) is False
    assert path.read_bytes() == b"new content" and os.listdir(path.parent) == ["file"]
    assert sys.platform == "win32" or stat.S_IMODE(path.stat().st_mode) == 0o640
    with pytest.raises(FileNotFoundError, match="missing"):
        atomic.create(path.parent / "missing" / "file", NEW)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [(3, TypeError, "path: expected a str or os.PathLike, got 3"), (None, TypeError, "path: .*None"),
     ("a\0b", ValueError, "path: expected no null character")],
)  # fmt: skip
def test_non_paths_are_refused(name, error, message):
    with pytest.raises(error, match=message):
        write(name)


@posix
def test_permissions_are_those_of_the_umask_or_of_the_file_replaced(path, umask):
    write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o604)
    write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


def test_a_symbolic_link_is_kept(tmp_path):
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to(Path("there") / "file")
    for _ in range(2):  # dangling, then not
        write(link)
        assert link.is_symlink() and (tmp_path / "there" / "file").read_bytes() == b"new content"
    assert os.listdir(tmp_path / "there") == ["file"]


def test_a_hard_link_keeps_the_old_content(path):
    path.write_bytes(OLD)
    other = path.with_name("other")
    os.link(path, other)
    write(path)
    assert other.read_bytes() == OLD and path.read_bytes() == b"new content"


def assert_refused(path, code):
    folder = path.parent
    before = sorted(os.listdir(folder)) if folder.is_dir() else None
    with pytest.raises(OSError) as caught:
        write(path)
    assert caught.value.errno == code and caught.value.filename == str(path)
    assert type(caught.value) is type(OSError(code, "", ""))
    assert before is None or sorted(os.listdir(folder)) == before


@posix
def test_unwritable_places(path):
    assert_refused(path / "in" / "a" / "missing" / "folder", errno.ENOENT)
    assert_refused(path.parent, errno.EISDIR)
    path.write_bytes(OLD)
    assert_refused(path / "below a file", errno.ENOTDIR)
    os.mkfifo(path.with_name("fifo"))
    assert_refused(path.with_name("fifo"), errno.EINVAL)
    loop = path.with_name("loop")
    loop.symlink_to(loop)
    assert_refused(loop, errno.ELOOP)
    assert_refused(path.with_name("x" * 300), errno.ENAMETOOLONG)
    write(path.with_name("y" * 255))  # the temporary file's name does not get longer


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission(path):
    path.write_bytes(OLD)
    path.chmod(0o444)
    assert_refused(path, errno.EACCES)
    path.parent.chmod(0o555)
    assert_refused(path.with_name("new"), errno.EACCES)
    path.parent.chmod(0o755)


def test_a_read_only_file_is_kept(path, monkeypatch):
    path.write_bytes(OLD)
    monkeypatch.setattr(os, "access", lambda name, mode: False)  # the error for any user but root
    assert_refused(path, errno.EACCES)
    assert path.read_bytes() == OLD


@pytest.mark.parametrize("call", ["open", pytest.param("fchmod", marks=posix), "write", "fsync", "close", "replace"])
def test_a_failure_names_the_path_and_leaves_the_old_file(path, call, monkeypatch):
    path.write_bytes(OLD)
    real = getattr(os, call)

    def fail(*args, **options):
        if call == "close":
            real(*args)
        raise OSError(errno.EIO, "Input/output error", "elsewhere")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(OSError, match=f"Input/output error.*{re.escape(repr(str(path)))}") as caught:
            write(path)
    assert caught.value.errno == errno.EIO
    assert path.read_bytes() == OLD and os.listdir(path.parent) == ["file"]


def test_an_interrupt_leaves_the_old_file(path, monkeypatch):
    path.write_bytes(OLD)

    def interrupt(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "fsync", interrupt)
        write(path)
    assert path.read_bytes() == OLD and os.listdir(path.parent) == ["file"]


def test_short_writes_are_continued(path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, part: real(file, part[:3]))
    write(path)
    assert path.read_bytes() == b"new content"


@posix
def test_content_is_synced_before_the_rename_and_the_folder_after(path, monkeypatch):
    calls = []

    def recording(call):
        real = getattr(os, call)

        def tell(*args, **options):
            folder = call == "fsync" and stat.S_ISDIR(os.fstat(args[0]).st_mode)
            calls.append(f"{call} folder" if folder else call)
            return real(*args, **options)

        return tell

    for call in ("write", "fsync", "replace"):
        monkeypatch.setattr(os, call, recording(call))
    write(path)
    assert calls == ["write", "write", "fsync", "replace", "fsync folder"]


# ---- checks before a save
def test_the_check_of_a_writable_path_creates_nothing(path):
    atomic.check_writable(path)
    assert not path.exists()
    path.write_bytes(OLD)
    atomic.check_writable(path)
    assert path.read_bytes() == OLD


@pytest.mark.parametrize("wrong", [".", "missing/file", "file/file", "/dev/null"])
def test_unwritable_paths_are_reported_in_advance(path, wrong):
    path.write_bytes(OLD)
    with pytest.raises(OSError, match=r"directory|expected an existing folder|regular file|Not a dir"):
        atomic.check_writable(path.parent / wrong)
    with pytest.raises(OSError):
        write(path.parent / wrong)


def test_a_folder_without_permission_is_reported_in_advance(path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda name, mode: False)  # the error for any user but root
    with pytest.raises(
        PermissionError, match=f"a folder with permission to write into it: {re.escape(repr(str(path.parent)))}"
    ) as caught:
        atomic.check_writable(path)
    assert caught.value.errno == errno.EACCES


# ---- leftovers of killed processes
KILLED = """
import os, signal, sys
from minidl.saving import atomic
os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)
atomic.write(sys.argv[1], [memoryview(b"half")])
"""


def leave_temporary_file(path):
    """Leaves the temporary file of a killed save; returns its name."""
    before = set(os.listdir(path.parent))
    process = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert process.returncode == -signal.SIGKILL
    (name,) = set(os.listdir(path.parent)) - before
    assert name.startswith(".minidl-") and name.endswith(".tmp")
    return name


@posix
@pytest.mark.parametrize("remove", [write, atomic.clean])
def test_leftovers_of_killed_processes_are_removed_by_the_next_save(path, remove):
    write(path)
    for _ in range(2):
        leave_temporary_file(path)
    other = leave_temporary_file(path.parent / "other")  # of another path
    temporary = path.parent / ".minidl-0123456789abcdef.tmp"
    temporary.write_bytes(b"of no save")
    remove(path)
    assert sorted(os.listdir(path.parent)) == sorted(["file", other, temporary.name])
    assert path.read_bytes() == b"new content"


@posix
def test_a_named_pipe_in_place_of_a_leftover_does_not_block(path):
    os.mkfifo(path.parent / (atomic._temporary_prefix(str(path)) + "0123456789abcdef.tmp"))
    script = f"from minidl.saving import atomic; atomic.write({str(path)!r}, [memoryview(b'new')])"
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True)  # in case it hangs
    assert path.read_bytes() == b"new"


@posix
def test_files_of_another_machine_are_kept(path, monkeypatch):
    """Locks may be local to a machine: a file without one may belong to a save that is still running."""
    with monkeypatch.context() as patch:
        patch.setattr(atomic, "_machine_id", lambda: "another one")
        theirs = os.path.basename(atomic._temporary_prefix(str(path))) + "0123456789abcdef.tmp"
    (path.parent / theirs).write_bytes(b"half")
    temporary = leave_temporary_file(path)
    assert temporary.startswith(atomic._temporary_prefix(str(path)))
    atomic.clean(path)
    write(path)
    assert sorted(os.listdir(path.parent)) == sorted([theirs, "file"])


@posix
def test_files_of_a_live_process_are_kept(path, monkeypatch):
    """Another thread saves to the same path while the file is written, synced and renamed."""
    for call in ("write", "fsync", "replace"):
        real, seen = getattr(os, call), []

        def meanwhile(*args, real=real, seen=seen, **options):
            if not seen:
                seen.append([name for name in os.listdir(path.parent) if name.endswith(".tmp")])
                atomic.clean(path)
            return real(*args, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, meanwhile)
            write(path)
        assert len(seen[0]) == 1
        assert path.read_bytes() == b"new content" and os.listdir(path.parent) == ["file"]
        path.write_bytes(OLD)


@posix
def test_a_temporary_file_removed_before_it_was_locked_is_recreated(path, monkeypatch):
    import fcntl

    real, calls = fcntl.flock, []

    def late(file, operation):
        calls.append(operation)
        if len(calls) == 1:  # the new file is not locked yet: another process takes it for a leftover
            (name,) = os.listdir(path.parent)
            os.unlink(path.parent / name)
        return real(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    write(path)
    assert len(calls) == 2 and os.listdir(path.parent) == ["file"]
