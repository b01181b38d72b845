"""README.md is true: its Python runs and prints what it says, what it quotes and names exists.

The blocks of a chapter are one program, run in a folder of its own. A block whose first line is `# name.ext` is a file
of that name. A comment behind a print is what it prints, a text block what the Python in front of it prints by itself.
"""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import minidl_c

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
FILE = re.compile(r"# (\w+\.\w+)\n")
PRINTED = re.compile(r"^\s*print\(.*\) +# (.*)$", re.M)


def chapters():
    """Title -> its blocks, as pairs of language and text."""
    found = {}
    for chapter in re.split(r"^## ", README.removeprefix("# "), flags=re.M):
        blocks = BLOCK.findall(chapter)
        if any(language == "python" for language, _ in blocks):
            found[chapter.partition("\n")[0]] = blocks
    return found


CHAPTERS = chapters()
needs_fma = pytest.mark.skipif(minidl_c.isa == "v2", reason="v2 gives bits of its own")
BUILDS = [title for title, blocks in CHAPTERS.items() if any(language == "cython" for language, _ in blocks)]


def python(*args, cwd):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *args],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_chapter(title, folder):
    """Runs a chapter's program and compares what it prints."""
    program, expected = [], []
    for language, text in CHAPTERS[title]:
        name = FILE.match(text)
        if name:
            (folder / name[1]).write_text(text, encoding="utf-8")
        elif language == "python":
            program.append(text)
            expected += PRINTED.findall(text)
        elif language == "text":  # what the block before it prints by itself, behind all else
            expected += text.splitlines()
    if (folder / "setup.py").exists():
        python("setup.py", "--quiet", "build_ext", "--inplace", cwd=folder)
    source = "".join(program)
    (folder / "chapter.py").write_text(source, encoding="utf-8")
    printed = [line for line in python("chapter.py", cwd=folder).splitlines() if not line.startswith("epoch ")]
    assert printed == expected


def test_all_chapters_are_found():
    assert next(iter(CHAPTERS)) == "minidl"
    assert len(BUILDS) == 1
    assert len(CHAPTERS) >= 5


@needs_fma
def test_mnist(mnist, tmp_path):
    run_chapter("minidl", tmp_path)


def runs(title):
    """A chapter as a parameter; one about ONNX or dask is for where that is installed."""
    program = "".join(text for _, text in CHAPTERS[title])
    marks = [pytest.mark.oracle("onnx")] if "minidl.onnx" in program else []
    if "from distributed import" in program:
        marks.append(pytest.mark.skipif(find_spec("distributed") is None, reason="dask is missing"))
    return pytest.param(title, marks=marks)


@pytest.mark.parametrize("title", [runs(title) for title in CHAPTERS if title != "minidl" and title not in BUILDS])
def test_chapter(title, tmp_path):
    run_chapter(title, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("title", BUILDS)
def test_chapter_with_a_kernel(title, tmp_path):
    run_chapter(title, tmp_path)


@needs_fma
def test_weights_have_the_hash_that_is_promised(tmp_path):
    title = next(title for title in CHAPTERS if title.startswith("What is promised"))
    run_chapter(title, tmp_path)
    hashes = {python("weights.py", str(threads), cwd=tmp_path).strip() for threads in (1, 2, 3, 8)}
    assert len(hashes) == 1
    promised = re.search(r"python weights\.py .*# (\w+)", README)[1]
    assert hashes == {promised}


@pytest.mark.parametrize("line", [text.strip() for language, text in BLOCK.findall(README) if language == "c"])
def test_quoted_line_is_in_the_code(line):
    assert sum(path.read_text(encoding="utf-8").count(line) for path in ROOT.glob("minidl_c/**/*.h")) == 1


@pytest.mark.parametrize("name", ["silu.pyx", "setup.py"])
def test_the_kernel_shown_is_that_of_the_example(name):
    (block,) = [text for _, text in CHAPTERS["Layers of your own"] if text.startswith(f"# {name}\n")]
    assert block.partition("\n")[2] == (ROOT / "examples" / "custom_kernel" / name).read_text(encoding="utf-8")


def test_every_target_of_make_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:`|^    )make\s+(\w[\w-]*)", README, re.M))
    assert {"mnist", "test", "bench", "oracles"} <= named
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_every_file_it_names_exists():
    for path in re.findall(r"`((?:minidl_c|examples|benchmarks)/[\w.]+)`", README):
        assert (ROOT / path).exists(), path
