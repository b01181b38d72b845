"""Checks README.md and docs/: their Python code runs and prints what they say; quotes, names and links are valid.

Each page of docs/ and each chapter of README.md is one program, run in a folder of its own. A block whose first line is
`# name.ext`, or `/* name.c */`, is a file of that name. A comment after a print is its output; a text block is the
output of the Python block before it. Pages are found by location: a new one needs no change here.
"""

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib
from functools import reduce
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from scripts import run_script

import minidl_c
from minidl.callbacks import Checkpoint

ROOT = Path(__file__).parents[1]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
}
FOLDERS = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "examples").glob("*/README.md"))]
LINKING = [*PAGES, "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", *FOLDERS]
RUN_ELSEWHERE = {  # page: the test file that runs it
    "docs/reference/errors.md": "tests/test_errors.py",
    "docs/explanation/how-a-batch-is-backpropagated.md": "tests/test_max_pool_batch.py",
    "docs/explanation/twin.md": "tests/test_twin.py",
}
LONG = {  # they train many nets
    "docs/coming-from/mlpclassifier.md",
    "docs/how-to/estimators.md",
    "docs/tutorials/cifar10.md",
    "docs/tutorials/image-folder.md",
    "docs/tutorials/tables.md",
}
SCRIPTS = {  # file: the test that runs it
    "weights.py": ("tests/test_docs.py", "test_weights_have_the_documented_hash"),
    "train.py": ("tests/mpi/test_same_bits.py", "test_docs_print_what_they_say"),
    "board.c": ("tests/test_docs.py", "test_the_emulated_chip_prints_what_python_does"),
}

COPIED = {"docs/how-to/deploy.md": "examples/service.py"}  # page: the example that it tells to copy

FENCE = re.compile(r"^ *(?:```|~~~).*$", re.M)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
FILE = re.compile(r"(?:# |/\* )(\w+\.\w+)(?: \*/)?\n")
PRINTED = re.compile(r"^\s*print\(.*\) +# (.*)$", re.M)
DIRECTIVE = re.compile(r"^:link: [^\n]*$|^:::\{toctree\}\n.*?^:::$", re.M | re.S)  # these name pages without a suffix
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.M)
NAMED = re.compile(r"(?<![\w./-])((?:minidl|minidl_c|examples|benchmarks|tests)/[\w./]*\w)")

CORTEX_M = ("arm-none-eabi-gcc", "qemu-system-arm")

needs_fma = pytest.mark.skipif(minidl_c.isa == "v2", reason="v2 has different bits")


# ---- programs


def programs():
    """Returns the blocks of each program by name, as pairs of language and text."""
    result = {}
    for page, text in PAGES.items():
        chapters = re.split(r"^## ", text, flags=re.M) if page == "README.md" else [text]
        for chapter in chapters:
            title = f"{page}: {chapter.partition(chr(10))[0]}" if len(chapters) > 1 else page
            if blocks := BLOCK.findall(chapter):
                result[title] = blocks
    return result


PROGRAMS = programs()


def files_of(program):
    """Returns the text of the files that a program's blocks define, by name."""
    return {name[1]: text for _, text in PROGRAMS[program] if (name := FILE.match(text))}


def statements_of(program):
    return "".join(text for language, text in PROGRAMS[program] if language == "python" and not FILE.match(text))


def write_files(program, folder):
    for name, text in files_of(program).items():
        (folder / name).write_text(text, encoding="utf-8")
    if program in COPIED:
        shutil.copy(ROOT / COPIED[program], folder)


def run_program(program, folder):
    """Runs a program and compares what it prints."""
    expected = []
    for language, text in PROGRAMS[program]:
        if language == "python" and not FILE.match(text):
            expected += PRINTED.findall(text)
        elif language == "text":
            expected += text.splitlines()
    write_files(program, folder)
    if (folder / "setup.py").exists():
        command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    (folder / "program.py").write_text(statements_of(program), encoding="utf-8")
    done = run_script(folder / "program.py", folder=folder)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if not re.match(r"epoch \d+/", line)] == expected


def as_param(program):
    """Returns a program as a parameter; one about ONNX, river or dask needs that package."""
    statements = statements_of(program)
    marks = [pytest.mark.oracle("onnx")] if "minidl.onnx" in statements else []
    if "from river import" in statements:
        marks.append(pytest.mark.oracle("river"))
    if "from distributed import" in statements:
        marks += [pytest.mark.skipif(find_spec("distributed") is None, reason="dask is missing"), pytest.mark.slow]
    if "load_mnist" in statements:
        marks += [needs_fma, pytest.mark.slow]  # it prints the accuracy of a whole training
    if "setup.py" in files_of(program) or program in LONG:
        marks.append(pytest.mark.slow)
    if "export_c" in statements:
        marks.append(needs_fma)
    return pytest.param(program, marks=marks)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # open files
@pytest.mark.parametrize("program", [as_param(p) for p in PROGRAMS if p not in RUN_ELSEWHERE and statements_of(p)])
def test_program(program, tmp_path, request):
    if "load_mnist" in statements_of(program):
        request.getfixturevalue("mnist")
    run_program(program, tmp_path)


def test_every_block_is_run():
    """By this module, or by a test that names the page or the file."""
    assert len(PROGRAMS) >= 20 and PROGRAMS.keys() >= LONG
    for page, text in PAGES.items():
        assert len(FENCE.findall(text)) == 2 * len(BLOCK.findall(text)), f"{page}: a block without a language"
    for program, blocks in PROGRAMS.items():
        languages, statements = {language for language, _ in blocks}, statements_of(program)
        assert languages <= {"python", "cython", "text", "c"}, f"{program}: a block without a language"
        assert all(FILE.match(text) for language, text in blocks if language == "cython"), program
        if program in RUN_ELSEWHERE:
            assert Path(program).name in (ROOT / RUN_ELSEWHERE[program]).read_text(encoding="utf-8")
            continue
        assert statements or "text" not in languages, f"{program}: no Python block before this output"
        for name in files_of(program):
            use = rf"\bcc .*\b{name}\b" if name.endswith(".c") else rf"^(?:import|from) {Path(name).stem}\b"
            used = re.search(use, statements, re.M)
            assert name == "setup.py" or name in SCRIPTS or used, f"{program}: no test runs {name}"
    for name, (module, test) in SCRIPTS.items():
        body = (ROOT / module).read_text(encoding="utf-8").partition(f"def {test}(")[2].partition("\n\n\n")[0]
        assert f'"{name}"' in body, f"{name}: its test does not exist"
        assert sum(name in files_of(program) for program in PROGRAMS) == 1


@needs_fma
def test_weights_have_the_documented_hash(tmp_path):
    write_files("docs/explanation/promises.md", tmp_path)
    runs = [run_script(tmp_path / "weights.py", threads, folder=tmp_path) for threads in (1, 2, 3, 8)]
    hashes = {done.stdout.strip() for done in runs}
    assert len(hashes) == 1
    promised = re.search(r"python weights\.py .*# (\w+)", PAGES["docs/explanation/promises.md"])[1]
    assert hashes == {promised}


@needs_fma
@pytest.mark.skipif(None in map(shutil.which, CORTEX_M), reason=f"needs {' and '.join(CORTEX_M)}")
def test_the_emulated_chip_prints_what_python_does(tmp_path):
    page = "docs/tutorials/cortex-m.md"
    run_program(page, tmp_path)
    assert (tmp_path / "board.c").exists()
    commands, printed = re.findall(r"(?<=:\n\n)(?:    .*\n)+", PAGES[page])[:2]
    done = subprocess.run(["sh", "-ec", commands], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    said, expected = (re.sub(r"^\d+ inst", "n inst", text) for text in (done.stdout, printed.replace("    ", "")))
    assert said.startswith("n instructions\n") and said == expected


# ---- quotes

IN_C = [text for page in PAGES.values() for language, text in BLOCK.findall(page) if language == "c"]
QUOTED = [text.strip() for text in IN_C if not FILE.match(text)]


@pytest.mark.parametrize("line", QUOTED)
def test_quoted_line_is_in_the_code(line):
    assert sum(path.read_text(encoding="utf-8").count(line) for path in ROOT.glob("minidl_c/**/*.h")) == 1


@pytest.mark.parametrize("name", ["silu.pyx", "channel_swish.pyx", "setup.py"])
def test_the_kernel_shown_is_the_examples(name):
    shown = files_of("docs/how-to/custom-kernels.md")[name].partition("\n")[2]
    assert shown == (ROOT / "examples" / "custom_kernel" / name).read_text(encoding="utf-8")


def rows_after(page, heading):
    """Returns the rows of the first table after a heading, as lists of cells; an empty first cell repeats the last."""
    rows, first = [], None
    text = PAGES[page].partition(heading)[2]
    for line in re.search(r"(?:^\|.*\n)+", text, re.M)[0].splitlines()[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        first = cells[0] or first
        rows.append([first, *cells[1:]])
    return rows


def table(page, heading):
    """Returns these rows by the name of a net: lists of cells."""
    rows = {}
    for first, *cells in rows_after(page, heading):
        rows.setdefault(re.match(r"[\w-]+(?:, \d+x\d+)?", first)[0], []).append(cells)
    return rows


def test_speeds_of_training_steps_are_those_of_their_times():
    measured = table("docs/benchmarks/training.md", "## Small nets")
    shown = table("docs/benchmarks/index.md", "## Training steps")
    assert len(measured) == 5
    assert shown == {net: [[speed for *_, speed, _ in rows]] for net, rows in measured.items()}
    for _, ours, theirs, speed, _ in (row for rows in measured.values() for row in rows):
        assert float(theirs) / float(ours) == pytest.approx(float(speed.strip("x")), rel=0.06)


def test_speeds_of_predictions_are_those_of_their_times():
    measured = table("docs/benchmarks/predictions.md", "## Nets of minidl")
    expected = {}
    for net, [cells] in measured.items():
        times = [[float(time) for time in cell.split(" / ")] for cell in cells if cell]
        expected[net] = [f"{theirs / ours:.1f}x" for ours, theirs, _ in times]
    shown = table("docs/benchmarks/index.md", "## Predictions")
    assert len(expected) == 9
    assert {net: [cell for cell in cells if cell] for net, [cells] in shown.items()} == expected


def test_speeds_in_the_readme_are_those_of_the_benchmarks():
    steps = table("docs/benchmarks/index.md", "## Training steps")
    predictions = table("docs/benchmarks/index.md", "## Predictions")
    shown = table("README.md", "## Speed")
    assert len(shown) == 4
    for net, [cells] in shown.items():
        assert cells == [steps[net][0][0], steps[net][0][4], predictions[net][0][0], predictions[net][0][2]]


def slower_predictions():
    """Yields task, batch size and ratio of each measured prediction that takes 5 % longer than with onnxruntime."""
    for heading, name in ("## Nets of minidl", "{}"), ("## Imported nets", "{} of torchvision, imported"):
        sizes = ("1", "16", "64" if "torchvision" in name else "256")
        for net, *cells in rows_after("docs/benchmarks/predictions.md", heading):
            for size, cell in zip(sizes, cells, strict=True):
                ours, theirs, _ = map(float, cell.split(" / ")) if cell else (0, 1, 1)
                if ours / theirs >= 1.05:
                    yield f"`predict`, {name.format(net)}", size, ours / theirs


def slower_threads_and_ranks():
    for task, *cells in rows_after("docs/benchmarks/threads.md", "## OpenMP's threads"):
        net, call = task.split(", ")
        for cell, when in zip(cells, ("quiet machine", "one busy process"), strict=False):
            _, openmp, own = map(float, cell.split(" / "))
            if own / openmp >= 1.05:
                yield f"{call}, {net}, minidl's own threads, {when}", "64", own / openmp
    for net, threads, ten, _, _, hundred, *_ in rows_after("docs/benchmarks/threads.md", "## After a pause"):
        for cell, pause in ((ten, "10 ms"), (hundred, "100 ms")):
            ours, _, theirs = map(float, cell.split(" / "))
            if ours / theirs >= 1.05:
                yield f"`predict`, {net}, after {pause}, {threads} thread{'s' * (threads != '1')}", "1", ours / theirs
    for net, batch, mpi, _, _, speed, *_ in rows_after("docs/benchmarks/threads.md", "## Ranks and threads"):
        if 1 / float(speed) >= 1.05:
            name = {"`lenet`": "LeNet-5", "`cnn`": "CNN"}[net]
            yield f"`fit`, {name}, two MPI ranks ({mpi})", batch, 1 / float(speed)


def test_all_cases_in_which_minidl_is_slower_are_listed():
    measured = [*slower_predictions(), *slower_threads_and_ranks()]
    for net, _, ours, theirs, *_ in rows_after("docs/benchmarks/memory.md", "## Importing an ONNX file"):
        if float(ours) / float(theirs) >= 1.05:
            measured.append((f"`import_model`, {net}", "", float(ours) / float(theirs)))
    expected = {}
    for task, batch, ratio in measured:
        batches, times = expected.get(task, ([], []))
        expected[task] = [*batches, batch], [*times, f"{ratio:.1f}"]
    rows = rows_after("docs/benchmarks/index.md", "## Where minidl is slower")
    listed = {task: (batch.split("; "), times.split("; ")) for task, batch, times, *_ in rows}
    assert expected.items() <= listed.items()
    assert all(re.search("in some processes|the median$", task) for task in listed.keys() - expected.keys())


def test_training_steps_are_nowhere_slower():
    """The list of slower cases names none."""
    pairs = [row[2:4] for row in rows_after("docs/benchmarks/training.md", "## Small nets")]
    for heading in ("## Deep nets", "## Imported nets"):
        cells = [cell for _, *row in rows_after("docs/benchmarks/training.md", heading) for cell in row if cell]
        pairs += [re.match(r"([\d.]+) / ([\d.]+)", cell).groups() for cell in cells]
    assert len(pairs) == 47
    assert all(float(ours) < float(theirs) for ours, theirs in pairs)


# ---- tables of classes and their arguments


def calls_in(page):
    """Returns the calls in the first column of tables about a module of minidl, as pairs of module and call."""
    module = None
    for line in PAGES[page].splitlines():
        if about := re.match(r"\| `(minidl\.\w+)`", line):
            module = about[1]
        elif not line.startswith("|"):
            module = None
        elif module:
            yield from ((module, call) for call in re.findall(r"`([A-Z][\w.]*\(.*?\))`", line.split(" | ")[0]))


TABLES = ["docs/how-to/training.md", *(f"docs/reference/{page}.md" for page in ("layers", "losses", "optimizers"))]
CALLS = [pair for page in TABLES for pair in calls_in(page)]


@pytest.mark.parametrize(("module", "call"), CALLS, ids=[call for _, call in CALLS])
def test_arguments_and_defaults_in_tables(module, call):
    tree = ast.parse(call, mode="eval").body
    name = ast.unparse(tree.func)
    result = reduce(getattr, name.split("."), import_module(module))
    parameters = {p: d.default for p, d in inspect.signature(result).parameters.items()}
    named = {k.arg: ast.literal_eval(k.value) for k in tree.keywords if k.arg}
    any_name = [ast.unparse(k.value) for k in tree.keywords if not k.arg]  # of **branches
    assert {k: parameters.get(k, "missing") for k in named} == named
    if "..." not in call:
        positional = [ast.unparse(a).lstrip("*") for a in tree.args]
        below = {f"{name}initializer" for name in ("", "kernel_", "recurrent_", "bias_")}  # below the table of layers
        below.add("use_bias")
        assert [*positional, *named, *any_name] == [name for name in parameters if name in named or name not in below]


BASES = {"Layer", "Loss", "NativeLoss", "NativeOptimizer", "Optimizer", "Schedule"}  # base class


@pytest.mark.parametrize("module", sorted({module for module, _ in CALLS}))
def test_every_public_class_is_in_a_table(module):
    classes = inspect.getmembers(import_module(module), inspect.isclass)
    public = {name for name, it in classes if it.__module__.startswith("minidl.") and name[0] != "_"}
    assert public - BASES == {re.match(r"\w+", call)[0] for at, call in CALLS if at == module}


def test_arguments_of_checkpoint():
    table = PAGES["docs/how-to/saving.md"].partition("| argument of `Checkpoint`")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\w*) ?\|", table, re.M)
    parameters = inspect.signature(Checkpoint).parameters.values()
    assert rows == [(p.name, "" if p.default is p.empty else str(p.default)) for p in parameters]


READ = re.compile(r"(?:environ(?:\.get\(|\[)|getenv\()\"(\w+)\"")


def test_every_environment_variable_is_in_the_table():
    page = PAGES["docs/reference/environment.md"]
    listed = {name for cell in re.findall(r"^\| (`.*?) \|", page, re.M) for name in re.findall(r"`(\w+)`", cell)}
    assert re.findall(r"^(\w+) \?=", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    listed -= set(re.findall(r"^(\w+) \?=", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    folders = ("minidl", "minidl_c", "build_tools", "benchmarks", "docs", "tests")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".pyx", ".h")]
    read = {name for path in [ROOT / "setup.py", *files] for name in READ.findall(path.read_text(encoding="utf-8"))}
    assert listed - {"CFLAGS"} == read - {"PATH", "PYTHONPATH", "LD_PRELOAD", "MINIDL_SAVES_SHIM"}


# ---- names and links


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = {target for text in PAGES.values() for target in re.findall(r"(?:`|^    )make\s+(\w[\w-]*)", text, re.M)}
    assert {"mnist", "test", "bench", "oracles"} <= named
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.M), target


@pytest.mark.parametrize("page", PAGES)
def test_named_files_exist(page):
    for path in NAMED.findall(DIRECTIVE.sub("", BLOCK.sub("", PAGES[page]))):
        assert (ROOT / path).exists(), path


def test_named_extras_are_installable():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {extra for text in PAGES.values() for extra in re.findall(r'"(?:minidl|\.)\[(\w+)\]"', text)}
    assert named == project["optional-dependencies"].keys()


def anchors(text):
    """Returns the anchors of a page's headings, as GitHub and site generators make them."""
    headings = [re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", r"\1", title) for title in HEADING.findall(BLOCK.sub("", text))]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}


@pytest.mark.parametrize("page", LINKING)
def test_links_have_a_target(page):
    path = ROOT / page
    for link in LINK.findall(BLOCK.sub("", path.read_text(encoding="utf-8"))):
        if re.match(r"https?://|mailto:", link):
            continue
        page_name, _, anchor = link.partition("#")
        target = (path.parent / page_name).resolve() if page_name else path
        assert target.exists() and target.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target.read_text(encoding="utf-8")), link


def test_links_between_pages_stay_in_docs():
    """A site is made from docs/ alone."""
    for page in PAGES.keys() - {"README.md"}:
        links = {link for link in LINK.findall(PAGES[page]) if not link.startswith(("#", "http"))}
        targets = {((ROOT / page).parent / link).resolve() for link in links}
        assert {target for target in targets if not target.is_relative_to(ROOT / "docs")} == set(), page


# ---- README and index


def test_readme_is_short():
    assert PAGES["README.md"].count("\n") <= 200


@pytest.mark.parametrize("index", [page for page in PAGES if re.fullmatch(r"docs/[\w-]+/index.md", page)])
def test_index_lists_every_page_of_its_folder(index):
    folder = Path(index).parent.as_posix()
    linked = {f"{folder}/{link}" for link in LINK.findall(PAGES[index])}
    pages = {page for page in PAGES if page.startswith(f"{folder}/")}
    assert pages - linked == {index}


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_pages_begin_with_a_title_and_a_summary(page):
    title, blank, lead, *_ = PAGES[page].split("\n")
    assert title.startswith("# ") and not blank and re.match(r"[\w`]", lead)
