"""The house rules that a machine can hold: floors, mirrored names, one place for flags."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAX_LINES, MAX_TEST_LINES = 300, 500

# Imports only point down. Modules of one floor do not know each other.
FLOORS = (
    {"arguments", "arrays", "config", "datasets", "forked", "initializers", "saving", "shapes", "training"},
    {"param", "saving.atomic", "saving.canonical", "saving.encoding", "samples", "sparse", "sums", "team"}
    | {"training.own_memory"},
    {"distributed", "layer", "saving.files", "training.signals"},
    {"callbacks.history_file", "callbacks.monitor", "callbacks.states", "container", "losses.native", "optimizer"},
    {"freezing", "plots.figures"},
    {"plots.curves", "plots.tiles"},
    {"callbacks.*", "data", "layers.*", "losses.*", "lowering", "metrics", "optimizers", "parameters", "saving.recipes"}
    | {"schedules", "state"},
    {"callbacks", "layers", "losses", "plots.windows", "stages", "training.hooks", "training.remembered"},
    {"network", "plots.panels"},
    {"by_hand", "channels", "per_example", "stack", "summary", "training.progress"},
    {"sequential"},
    {"onnx.graph", "places"},
    {"onnx.branches", "onnx.files", "onnx.reading", "onnx.writing"},
    {"onnx.constants", "onnx.joins", "onnx.merging", "onnx.operators.windows"},
    {"onnx.operators.*"},
    {"onnx.operators"},
    {"onnx.exporting", "onnx.obstacles", "onnx.sharing"},
    {"onnx.importing"},
    {"onnx"},
    {"plots.models"},
    {"plots.activations", "plots.predictions", "plots.weights"},
    {"contract", "differences", "training.steps", "training.supervised"}
    | {f"training.report.{name}" for name in ("findings", "guessing", "limits", "watch")},
    {"training.diagnosis", "training.kept", "training.per_example_steps"},
    {"training.agreement"},
    {"training.settled"},
    {"plots.routes"},
    {"plots.routing"},
    {"plots"},
    {"history"},
    {"training.given"},
    {"contract_batch", "training.learner"},
    {"testing"},
    {"training.fitting", "training.per_example", "training.report.probe"},
    {"training.checkpoints", "training.report.curves", "training.report.symptoms"},
    {"training.report"},
    {"trainer"},
    {"estimators.stopping", "estimators.targets"},
    {"estimators.inputs", "estimators.models"},
    {"estimators.base"},
    {"estimators.classifier", "estimators.regressor"},
    {"estimators"},
    {"minidl"},
    {"__main__"},
)
FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names}

FOLDERS = ("minidl", "minidl_c", "tests", "examples", "benchmarks", ".ci")
CODE = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".pyx", ".pxd", ".pxi", ".h", ".c"}
)
CODE += [ROOT / "setup.py"]
SHIPPED = [path for path in CODE if path.is_relative_to(ROOT / "minidl")]
COMPILED = [path for path in CODE if path.is_relative_to(ROOT / "minidl_c")]
KERNELS = [path for path in COMPILED if path.suffix == ".pyx"]
LAYERS = [path for path in SHIPPED if path.parent.name == "layers" and path.stem != "__init__"]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


each = {"ids": name_of}


def module_name(path: Path) -> str:
    """The module of a file below minidl/, without the leading `minidl.`: "layers.dense"."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts[1:]) or "minidl"


def floor_of(module: str) -> int:
    known = module if module in FLOOR else f"{module.rpartition('.')[0]}.*"
    assert known in FLOOR, f"{module}: give it a floor in {Path(__file__).name}"
    return FLOOR[known]


def imported(path: Path) -> set[str]:
    """Every module that a Python file imports, also inside functions and for type checkers."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno}: a relative import"
            names |= {submodule(node.module, alias.name) for alias in node.names}
    return names


def submodule(package: str, name: str) -> str:
    """`from package import name` means the module package.name where there is one."""
    path = ROOT.joinpath(*package.split("."), name)
    is_module = path.is_dir() or any(path.with_suffix(s).exists() for s in (".py", ".pyx"))
    return f"{package}.{name}" if is_module else package


def lines_matching(pattern: str, paths: list[Path]) -> list[str]:
    return [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(pattern, line)
    ]


def test_there_is_something_to_look_at():
    assert SHIPPED
    assert KERNELS
    assert LAYERS


@pytest.mark.parametrize("path", SHIPPED, **each)
def test_imports_point_down(path):
    here = floor_of(module_name(path))
    ours = {name for name in imported(path) if name.split(".")[0] == "minidl"}
    below = {name: floor_of(name.removeprefix("minidl.")) for name in ours}
    assert {name: floor for name, floor in below.items() if floor >= here} == {}


@pytest.mark.parametrize("path", [path for path in LAYERS if "minidl.container" not in imported(path)], **each)
def test_layer_file_and_kernel_file_share_their_word(path):
    kernels = {name for name in imported(path) if name.startswith("minidl_c.")}
    assert {name for name in kernels if not name.startswith(f"minidl_c.{path.stem}_")} <= {f"minidl_c.{path.stem}"}
    assert (ROOT / "minidl_c" / f"{path.stem}.pyx").exists()


@pytest.mark.parametrize("path", KERNELS, **each)
def test_every_kernel_can_be_cimported(path):
    assert path.with_suffix(".pxd").exists()


def test_kernels_do_not_know_minidl():
    assert lines_matching(r"^\s*(from|import|cimport)\s+minidl(\.|\s|$)", COMPILED) == []


def test_sklearn_and_extras_are_imported_inside_functions_alone():
    """`import minidl` must not pay for them; it does not import minidl.estimators, which derive from scikit-learn's."""
    others = [path for path in SHIPPED if path.parent.name != "estimators"]
    assert lines_matching(r"^(from|import)\s+(sklearn|scipy)\b", others) == []
    assert lines_matching(r"^(from|import)\s+(google|matplotlib|onnx|tensorboardX)\b", SHIPPED) == []


def test_directives_and_flags_stand_in_setup_py_alone():
    sources = [path for path in CODE if path.suffix in {".pyx", ".pxd", ".pxi"}]
    assert lines_matching(r"^\s*#\s*(cython|distutils)\s*:", sources) == []
    elsewhere = [path for path in SHIPPED + COMPILED if path.suffix != ".py"]
    assert lines_matching(r"#pragma\s+GCC\s+optimize|__attribute__.*optimize", elsewhere) == []


def test_nothing_dangerous():
    """No code out of data, no arithmetic that depends on the compiler's mood."""
    shipped = [*SHIPPED, *COMPILED, ROOT / "setup.py", ROOT / "Makefile"]
    assert lines_matching(r"^\s*(from|import|cimport)\s+(c?pickle|marshal|shelve)\b", shipped) == []
    assert lines_matching(r"(?<![.\w])(eval|exec)\(|allow_pickle\s*=\s*True", shipped) == []
    assert lines_matching(r"-ffast-math|-Ofast|#pragma\s+omp.*reduction", shipped) == []


@pytest.mark.parametrize("path", CODE, **each)
def test_files_stay_short(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= (MAX_TEST_LINES if "tests" in path.relative_to(ROOT).parts else MAX_LINES)
