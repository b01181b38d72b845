"""build_tools: archives of a release depend on the files alone."""

import os
import tarfile
from pathlib import Path

import pytest
from setuptools import Distribution

ROOT = Path(__file__).parents[1]
FILES = {"a.txt": "first", "folder/b.txt": "second", "folder/run": "#!/bin/sh"}


@pytest.fixture
def make_archive(monkeypatch):
    """Returns a function that writes FILES, with dates and permissions, and archives them; it returns the path."""
    monkeypatch.syspath_prepend(ROOT)
    from build_tools.reproducible import ReproducibleSdist

    def archive(folder, date, mode, changes=None):
        (folder / "pack-1.0" / "folder").mkdir(parents=True)
        for name, text in (FILES | (changes or {})).items():
            path = folder / "pack-1.0" / name
            path.write_text(text)
            path.chmod(mode | 0o100 * (name == "folder/run"))
            os.utime(path, (date, date))
        monkeypatch.chdir(folder)
        return folder / ReproducibleSdist(Distribution()).make_archive("pack-1.0", "gztar", base_dir="pack-1.0")

    return archive


def test_dates_and_permissions_change_no_byte(make_archive, tmp_path):
    first = make_archive(tmp_path / "first", 1_000_000_000, 0o600)
    second = make_archive(tmp_path / "second", 1_700_000_000, 0o664)
    other = make_archive(tmp_path / "other", 1_000_000_000, 0o600, {"a.txt": "First"})
    assert first.read_bytes() == second.read_bytes() != other.read_bytes()


def test_archives_hold_all_files_and_which_are_programs(make_archive, tmp_path):
    path = make_archive(tmp_path, 1_000_000_000, 0o600)
    with tarfile.open(path) as archive:
        members = {member.name: member for member in archive.getmembers()}
        assert {name: archive.extractfile(f"pack-1.0/{name}").read().decode() for name in FILES} == FILES
    assert set(members) == {"pack-1.0", "pack-1.0/folder", *(f"pack-1.0/{name}" for name in FILES)}
    assert members["pack-1.0/folder/run"].mode == members["pack-1.0/folder"].mode == 0o755
    assert members["pack-1.0/a.txt"].mode == 0o644


def test_other_formats_are_refused(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from build_tools.reproducible import ReproducibleSdist

    with pytest.raises(ValueError, match="sdist: expected the format gztar, got zip"):
        ReproducibleSdist(Distribution()).make_archive("pack-1.0", "zip")
