"""examples/twin.py: plain Python with the bits of minidl; each of its rules is broken once, and other bits come."""

import ast
import ctypes
import functools
import re
import runpy
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets
from scripts import run_script

import minidl_c
from minidl.c_export import HAS_FMA

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SOURCE = (EXAMPLES / "twin.py").read_text("utf-8")
SLOW_FMA = sys.version_info < (3, 13) and HAS_FMA
HASH = "ffa8e2395b976dca5c8171297c2cba17d9164462403b5de6ff6a148e0af1addb"  # of `python examples/twin.py`

pytestmark = pytest.mark.skipif(minidl_c.isa == "v2", reason="v2 has no fused multiply-add: other bits")


def native_fma():
    """Returns fma of the C library; the one in plain Python is exact, and too slow for many steps."""
    function = ctypes.CDLL(None).fma
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double] * 3
    return function


def load(source):
    """Returns the module of a source of twin.py, with a fast fma."""
    module = types.ModuleType("twin")
    module.__file__ = str(EXAMPLES / "twin.py")
    numbers = runpy.run_path(str(EXAMPLES / "twin_numbers.py"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "twin_numbers", types.SimpleNamespace(**numbers))
        exec(compile(source, module.__file__, "exec"), vars(module))
    if SLOW_FMA:
        module.fma = numbers["polynomial"].__globals__["fma"] = native_fma()
    return module


@pytest.fixture
def twin():
    return load(SOURCE)


def few(twin, images, batch, epochs):
    """Sets the sizes of a run; returns its examples."""
    twin.IMAGES, twin.BATCH, twin.EPOCHS = images, batch, epochs
    return twin.load_digits()


# ---- the same bits


@pytest.mark.parametrize(
    ("images", "batch", "epochs"),
    [(120, 60, 1), (37, 16, 1), (2, 1, 1), pytest.param(300, 300, 1, marks=pytest.mark.slow)],
    ids=["4 tiles, one partial", "a batch of 5", "batches of 1", "19 tiles in 16 slots"],
)
def test_losses_and_weights_are_those_of_minidl_after_each_step(twin, images, batch, epochs):
    examples = few(twin, images, batch, epochs)
    steps = list(twin.train(*examples))
    for threads in (1, 2):
        assert twin.train_minidl(*examples, num_threads=threads) == steps
    assert len(steps) == -(-images // batch) * epochs


@pytest.mark.slow
def test_the_program_prints_the_documented_hash_twice(tmp_path, monkeypatch):
    if SLOW_FMA:
        monkeypatch.setattr("math.fma", native_fma(), raising=False)
    lines = run_script(EXAMPLES / "twin.py", folder=tmp_path).stdout.splitlines()
    assert lines[-2:] == [f"twin    {HASH}", f"minidl  {HASH}"] and len(lines) == 32
    assert all(line.split()[1].rstrip(",") == line.split()[-1] for line in lines[:-2])


def test_the_numbers_are_compared_with_those_of_numpy(tmp_path):
    own, numpys = run_script(EXAMPLES / "twin_numbers.py", folder=tmp_path).stdout.splitlines()
    assert own.removeprefix("here  ") == numpys.removeprefix("NumPy ")


def test_the_page_has_the_hash():
    """And all functions and classes of the program, as they are."""
    page = (ROOT / "docs/explanation/twin.md").read_text("utf-8")
    assert page.count(HASH) == 2
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    assert [block for block in blocks if block not in SOURCE] == []
    shown = "".join(blocks)
    hidden = [
        node.name for node in ast.parse(SOURCE).body if getattr(node, "name", None) and f" {node.name}" not in shown
    ]
    assert hidden == ["load_digits", "train_minidl", "main"]


# ---- each rule, broken: what is replaced in the source, and by what

MUTANT_RUN = (120, 60, 1)  # images, batch, epochs
QUICK = ("the last of equal maxima", "average before the backward pass", "slots in order")
MUTANTS = {
    "products round twice": ("start = fma(a, b, start)", "start = a * b + start"),
    "convolution from zero, bias last": ("chain(b, w, patch) for patch", "chain(0.0, w, patch) + b for patch"),
    "taps column by column": (
        "for row in channel[i : i + self.size] for value in row[j : j + self.size]",
        "for row in list(zip(*channel[i : i + self.size]))[j : j + self.size] for value in row",
    ),
    "weight gradient from the last pixel": (
        "chain(0.0, joined(*dy_k), tap)",
        "chain(0.0, [*joined(*dy_k)][::-1], tap[::-1])",
    ),
    "bias gradient in one chain": ("return (a + b) + (c + d)", "return added(pixels)"),
    "input gradient from the last filter": ("k in range(len(dy)) for r, s", "k in reversed(range(len(dy))) for r, s"),
    "the last of equal maxima": ("max(pixels, key", "max(pixels[::-1], key"),
    "ReLU passes at zero": ("gradient if value > 0 else", "gradient if value >= 0 else"),
    "dense from zero, bias last": ("[chain(b, w, x) for w, b", "[chain(0.0, w, x) + b for w, b"),
    "dense input gradient from the last output": ("chain(0.0, column, dy)", "chain(0.0, column[::-1], dy[::-1])"),
    "dense weight gradient in tiles": (
        "tree([chain(0.0, joined(*a), joined(*b)) for a, b in zip(slots_of(dy), slots_of(x))])",
        "batch_sum([a * b for a, b in zip(dy, x)])",
    ),
    "softmax times 1 / total": ("power / total -", "power * (1 / total) -"),
    "exp of the C library": ("powers = [exp(", "powers = [__import__('math').exp("),
    "average before the backward pass": (
        "power / total - (k == label) for",
        "(power / total - (k == label)) / BATCH for",
    ),
    "lanes in order": ("added(map(tile_sum, slot))", "added(map(added, slot))"),
    "slots in order": ("return sums[0]", "return sums[0]\n\n\ntree = added"),
    "one slot": ("LANES, SLOTS = 16, 16", "LANES, SLOTS = 16, 1"),
    "mean times 1 / n": ("total / n,", "total * (1 / n),"),
    "velocity by a multiply-add": ("MOMENTUM * v + g", "fma(MOMENTUM, v, g)"),
    "weights by a multiply-add": ("w - RATE * v", "fma(-RATE, v, w)"),
    "limit damped before drawing": (
        "generator.uniform(-limit, limit) * damping",
        "generator.uniform(-limit * damping, limit * damping)",
    ),
    "names with a dot": ("name.encode()", "name.replace('/', '.').encode()"),
    "epochs from 1": ("Generator([SEED, epoch])", "Generator([SEED, epoch + 1])"),
}


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in MUTANTS]
)
def test_a_broken_rule_changes_the_bits(name):
    old, new = MUTANTS[name]
    assert SOURCE.count(old) == 1
    mutant = load(SOURCE.replace(old, new))
    steps = list(mutant.train(*few(mutant, *MUTANT_RUN)))
    assert steps[-1][1] != reference()


@functools.cache
def reference():
    twin = load(SOURCE)
    return twin.train_minidl(*few(twin, *MUTANT_RUN))[-1][1]


def test_the_table_of_sums_names_each_broken_rule():
    """And no other one; its files exist."""
    page = (ROOT / "docs/explanation/reproducibility.md").read_text("utf-8")
    lines = re.search(r"^\| result .*\n((?:\|.*\n)+)", page, re.M)[1].splitlines()[1:]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert {len(row) for row in rows} == {7}
    assert {name for *_, names in rows for name in names.split("; ") if name} == MUTANTS.keys()
    files = [file for _, cell, *_ in rows for file in re.findall(r"`([^`]+)`", cell)]
    assert [file for file in files if not (ROOT / file).exists() and not (ROOT / "minidl_c" / file).exists()] == []


# ---- the files


@pytest.mark.parametrize(("name", "most"), [("twin.py", 300), ("twin_numbers.py", 150)])
def test_the_files_are_short_and_need_python_alone(name, most):
    text = (EXAMPLES / name).read_text("utf-8")
    assert len(text.splitlines()) <= most
    top = [node for node in ast.parse(text).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    modules = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in top}
    assert modules <= sys.stdlib_module_names | {"twin_numbers"}


def test_the_digits_are_those_of_scikit_learn(twin):
    images, labels = twin.load_digits()
    X, y = sklearn.datasets.load_digits(return_X_y=True)
    np.testing.assert_array_equal(np.reshape(images, (-1, 64)), X[: len(labels)] / 16)
    assert labels == y[: len(labels)].tolist() and len(labels) == 300


@pytest.mark.parametrize("entropy", [[0], [7, 1], [0, *b"4/weight"], [2**32 - 1] * 9], ids=len)
def test_random_numbers_are_those_of_numpy(twin, entropy):
    own, numpys = twin.Generator(entropy), np.random.default_rng(entropy)
    assert [own.uniform(-2, 3) for _ in range(20)] == [numpys.uniform(-2, 3) for _ in range(20)]
    for n in (1, 2, 37, 300):
        assert own.permutation(n) == numpys.permutation(n).tolist()


def test_fma_of_plain_python_rounds_once():
    source = (EXAMPLES / "twin_numbers.py").read_text("utf-8")
    (guarded,) = [node for node in ast.parse(source).body if isinstance(node, ast.Try)]
    defined = {}
    exec(compile(ast.Module(guarded.handlers[0].body, []), "twin_numbers.py", "exec"), defined)
    rng, fma = np.random.default_rng(0), native_fma()
    for a, b, c in (rng.normal(size=(500, 3)) * 2.0 ** rng.integers(-60, 60, (500, 3))).tolist():
        for third in (c, -a * b):
            assert defined["fma"](a, b, third) == fma(a, b, third)
