"""build_tools: archives of a release depend on the files alone."""

import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from setuptools import Distribution

import minidl_c

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


# ---- commit.py


@pytest.fixture
def commit(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from build_tools.commit import commit

    return commit


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    if shutil.which("git") is None:
        pytest.skip("needs git")
    folder = tmp_path / "checkout"
    (folder / "inner").mkdir(parents=True)
    (folder / "a.txt").write_text("first")
    git(folder, "init", "--quiet")
    git(folder, "add", "a.txt")
    git(folder, "commit", "--quiet", "--message", "one")
    return folder


def test_a_build_names_its_commit_and_whether_files_have_changed(commit, checkout, monkeypatch):
    head = git(checkout, "rev-parse", "HEAD")
    git(checkout, "tag", "-a", "v1", "-m", "a tag")
    (checkout / "untracked").write_text("a build's own files")
    monkeypatch.setenv("GIT_DIR", "/missing")  # as in a hook of another repository
    assert commit(checkout) == head
    (checkout / "a.txt").write_text("second")
    assert commit(checkout) == f"{head}-dirty"
    (checkout / "a.txt").write_text("first")
    assert commit(checkout) == head


def test_without_git_and_inside_of_another_repository_there_is_no_commit(commit, checkout, tmp_path, monkeypatch):
    assert commit(checkout / "inner") == commit(tmp_path) == ""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit(checkout) == ""


def test_an_sdist_has_the_commit_also_inside_of_another_repository(commit, checkout, monkeypatch):
    from build_tools.reproducible import ReproducibleSdist

    head = git(checkout, "rev-parse", "HEAD")
    monkeypatch.chdir(checkout)
    command = ReproducibleSdist(Distribution())
    command.ensure_finalized()
    command.make_release_tree("inner/pack-1.0", ["a.txt"])
    assert commit(Path("inner/pack-1.0")) == head
    monkeypatch.chdir(checkout / "inner" / "pack-1.0")
    command.make_release_tree("pack-1.0", ["a.txt"])  # an sdist of an sdist
    assert commit(Path("pack-1.0")) == head


# ---- check_site.py

GOOD = '<h1 id="top">A</h1><a href="other.html#there">b</a><img src="data:," alt="c"><link rel="canonical" href="https://x">'
OTHER = '<p id="there"><a href="index.html">a</a> <a href="https://example.org">elsewhere</a>'


def site_problems(monkeypatch, folder, pages):
    monkeypatch.syspath_prepend(ROOT)
    from build_tools.check_site import problems

    for name, text in pages.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return problems(folder)


def test_a_site_without_problems_has_none(monkeypatch, tmp_path):
    assert site_problems(monkeypatch, tmp_path, {"index.html": GOOD, "other.html": OTHER}) == []


def test_an_empty_folder_is_no_site(monkeypatch, tmp_path):
    assert site_problems(monkeypatch, tmp_path, {}) == [f"{tmp_path}: no pages"]


@pytest.mark.parametrize(
    ("added", "problem"),
    [
        ('<a href="missing.html">', "no file for the link missing.html"),
        ('<a href="other.html#here">', "no anchor for the link other.html#here"),
        ('<input name="field"><a href="#field">', "no anchor for the link #field"),
        ('<img src="other.html">', "no alt text for other.html"),
        ('<img src="missing.png" alt="a">', "no file for the link missing.png"),
        ('<script src="https://x.org/a.js">', "loads https://x.org/a.js"),
        ('<img src="other.html" srcset="other.html 1x, //x.org/a.png 2x" alt="a">', "loads //x.org/a.png"),
        ('<video poster="http://x.org/a">', "loads http://x.org/a"),
        ('<link rel="stylesheet" href="https://x.org/a.css">', "loads https://x.org/a.css"),
        ("<style>@import 'https://x.org/a.css';</style>", "loads https://x.org/a.css"),
        ('<p style="background: url(//x.org/a.png)">', "loads //x.org/a.png"),
    ],
)
def test_each_problem_of_a_page_is_found(monkeypatch, tmp_path, added, problem):
    pages = {"index.html": GOOD + added, "other.html": OTHER}
    assert site_problems(monkeypatch, tmp_path, pages) == [f"index.html: {problem}"]


def test_a_style_sheet_that_loads_from_elsewhere_is_found(monkeypatch, tmp_path):
    pages = {"index.html": GOOD, "other.html": OTHER, "_static/a.css": "a { background: url('https://x.org/a.png') }"}
    assert site_problems(monkeypatch, tmp_path, pages) == ["_static/a.css: loads https://x.org/a.png"]


# ---- check_tag.py


@pytest.mark.parametrize(
    ("tag", "version", "changelog", "problems"),
    [
        ("v0.2.0", "0.2.0", "## [0.2.0] - 2027-01-31\n", []),
        ("v0.2.0", "0.2.1", "## [0.2.1] - 2027-01-31\n", ["the tag v0.2.0 does not name"]),
        ("v0.2.0.dev0", "0.2.0.dev0", "## [0.2.0.dev0] - 2027-01-31\n", ["0.2.0.dev0 is not a release"]),
        ("v0.2.0", "0.2.0", "## [Unreleased]\n## [0.2.0]\n", ["CHANGELOG.md has no section [0.2.0] with a date"]),
        ("v0.2.0", "0x2.0", "", ["the tag v0.2.0", "0x2.0 is not a release", "CHANGELOG.md has no section [0x2.0]"]),
    ],
)
def test_a_tag_names_the_version_which_the_changelog_has(monkeypatch, tmp_path, tag, version, changelog, problems):
    monkeypatch.syspath_prepend(ROOT)
    from build_tools import check_tag

    (tmp_path / "minidl_c").mkdir()
    (tmp_path / "minidl_c" / "__init__.py").write_text(f'"""Kernels."""\n\n__version__ = "{version}"\n')
    (tmp_path / "CHANGELOG.md").write_text(changelog)
    found = check_tag.problems(tag, tmp_path)
    assert len(found) == len(problems) and all(map(str.startswith, found, problems))


def test_the_version_of_this_source_is_found(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from build_tools import check_tag

    assert check_tag.problems("v0.0.0")[0].endswith(minidl_c.__version__)


# ---- compare.py


def write_wheel(path, members):
    """Writes a wheel of pairs of name and text, with a date and permissions for each."""
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text, date, permissions in members:
            info = zipfile.ZipInfo(name, date_time=date)
            info.external_attr = permissions << 16
            wheel.writestr(info, text)
    return path


DATE = (2020, 1, 1, 0, 0, 0)
A, B = ("pack/a.py", "a", DATE, 0o644), ("pack/b.py", "b", DATE, 0o644)


@pytest.mark.parametrize(
    ("second", "problems"),
    [
        ([A, B], []),
        ([A], ["pack/b.py: only in first.whl"]),
        ([A, ("pack/b.py", "B", DATE, 0o644)], ["pack/b.py: content"]),
        ([A, ("pack/b.py", "b", (2021, 1, 1, 0, 0, 0), 0o755)], ["pack/b.py: date and permissions"]),
        ([B, A], ["the order of the files, or their compression"]),
        (
            [("pack/c.py", "a", DATE, 0o644), B],
            ["pack/a.py: only in first.whl", "pack/c.py: only in second.whl"],
        ),
    ],
)
def test_files_that_differ_between_two_builds_are_named(monkeypatch, tmp_path, second, problems):
    monkeypatch.syspath_prepend(ROOT)
    from build_tools import compare

    monkeypatch.chdir(tmp_path)
    paths = write_wheel(Path("first.whl"), [A, B]), write_wheel(Path("second.whl"), second)
    assert compare.differences(*paths) == problems
    if problems:
        with pytest.raises(SystemExit, match=rf"two builds of first.whl differ:\n{problems[0]}"):
            compare.main(*paths)


def test_differences_of_archives_are_named(monkeypatch, make_archive, tmp_path):
    from build_tools import compare

    first = make_archive(tmp_path / "first", 1_000_000_000, 0o600)
    other = make_archive(tmp_path / "other", 1_000_000_000, 0o600, {"a.txt": "First"})
    assert compare.differences(first, other) == ["pack-1.0/a.txt: content"]


# ---- sbom.py


def test_the_bill_of_a_wheel_names_what_was_compiled_into_it(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from build_tools import sbom

    build = {"cython": "3.3.1", "compiler": "gcc (Debian 12.2.0-14+deb12u1) 12.2.0", "commit": "abc"}
    bill = sbom.bill("0.2.0", [build | {"isa": "v3"}, build | {"isa": "v4"}])
    assert bill == sbom.bill("0.2.0", [build | {"isa": "v4"}])  # neither a date nor a random number
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/minidl@0.2.0"
    assert bill["metadata"]["component"]["properties"] == [{"name": "minidl:commit", "value": "abc"}]
    parts = [(part["name"], part["version"], part["scope"]) for part in bill["components"]]
    assert parts == [("Cython", "3.3.1", "required"), ("gcc", "12.2.0", "excluded")]
    zig = sbom.compiler("clang version 21.1.0 (https://codeberg.org/ziglang/zig-bootstrap 1.2.3)")
    assert (zig["name"], zig["version"]) == ("clang", "21.1.0")


def test_wheels_have_the_bill_and_fixed_permissions(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT)
    from build_tools.reproducible import ReproducibleWheel

    command = ReproducibleWheel(Distribution({"name": "pack", "version": "1.0"}))
    command.ensure_finalized()
    info = tmp_path / "pack-1.0.dist-info"
    info.mkdir()
    command.write_wheelfile(str(info))
    assert [path.name for path in info.iterdir()] == ["WHEEL"]  # an editable install
    (tmp_path / "minidl_c" / "v3").mkdir(parents=True)
    build = {"cython": "3.3.1", "compiler": "gcc 12.2.0", "commit": ""}
    (tmp_path / "minidl_c" / "v3" / "build.json").write_text(json.dumps(build))
    (tmp_path / "a.py").touch(0o600)
    (tmp_path / "a.so").touch(0o775)
    command.write_wheelfile(str(info))
    bill = json.loads((info / "sboms" / "minidl.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a.py", "a.so", "minidl_c")] == [0o644, 0o755, 0o755]


# ---- site_versions.py


@pytest.fixture
def add_version(monkeypatch, tmp_path):
    """Returns a function that builds a site of one page, and adds it to the site in the folder `pages`."""
    monkeypatch.syspath_prepend(ROOT)
    from build_tools.site_versions import add

    def build_and_add(version, text):
        built = tmp_path / "built"
        shutil.rmtree(built, ignore_errors=True)
        (built / "how-to").mkdir(parents=True)
        (built / "index.html").write_text('<a href="how-to/a.html">a</a>')
        (built / "how-to" / "a.html").write_text(f'{text} <a href="../index.html">up</a>')
        add(built, tmp_path / "pages", version, "/minidl/")

    (tmp_path / "pages").mkdir()
    return build_and_add


def test_versions_of_the_site_are_beside_each_other_and_stable_is_the_newest_release(add_version, tmp_path):
    pages = tmp_path / "pages"
    add_version("dev", "dev")
    assert json.loads((pages / "switcher.json").read_text()) == [{"version": "dev", "url": "/minidl/dev/"}]
    assert not (pages / "stable").exists() and "url=dev/" in (pages / "index.html").read_text()
    for version in ("0.9", "0.10"):
        add_version(version, version)
    add_version("0.9", "0.9.1")  # a patch of the older release
    texts = {folder: (pages / folder / "how-to" / "a.html").read_text() for folder in ("0.9", "0.10", "stable", "dev")}
    found = {folder: text.split()[0] for folder, text in texts.items()}
    assert found == {"0.9": "0.9.1", "0.10": "0.10", "stable": "0.10", "dev": "dev"}
    assert json.loads((pages / "switcher.json").read_text()) == [
        {"version": "0.10", "url": "/minidl/stable/", "name": "0.10 (stable)", "preferred": True},
        {"version": "0.9", "url": "/minidl/0.9/"},
        {"version": "dev", "url": "/minidl/dev/"},
    ]
    from build_tools.check_site import problems

    assert "url=stable/" in (pages / "index.html").read_text() and problems(pages) == []


def test_other_names_of_versions_are_refused(add_version):
    with pytest.raises(ValueError, match=r"version: expected dev or two numbers such as 0.2, got 'v0.2.0'"):
        add_version("v0.2.0", "")
