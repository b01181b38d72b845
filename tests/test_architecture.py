"""The house rules that a machine can hold: floors, mirrored names, one place for flags."""

import ast
import graphlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAX_LINES, MAX_TEST_LINES = 300, 500

# Imports between folders (and single files) of minidl/ only point down this list.
FLOORS = (
    {"utils"},
    {"initializers", "datasets"},
    {"layers", "metrics", "distributed"},
    {"losses", "optimizers", "saving"},
    {"schedules", "callbacks", "engine"},
    {"sequential"},
    {"testing", "onnx", "training"},
    {"trainer", "plots"},
    {"estimators"},
    {"minidl"},  # __init__.py
    {"__main__"},
)
FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names}
# Upward, inside a function: a method that users look for there, whose code is elsewhere.
LATE = {("minidl.training.history", "minidl.plots.curves")}

# The same for cimports and includes of minidl_c/.
COMPILED_FLOORS = (
    {"simd", "cpu"},
    {"op", "minidl_c"},
    {"array_args"},
    {"kernels", "optimizers"},
    {"losses"},
    {"runtime"},
    {"functional"},
)
COMPILED_FLOOR = {name: number for number, names in enumerate(COMPILED_FLOORS) for name in names}

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
LAYERS = [
    path
    for path in SHIPPED
    if path.parent.name == "layers" and path.stem not in ("__init__", "base", "container", "param")
]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


each = {"ids": name_of}


def module_name(path: Path) -> str:
    """The module of a Python file: "minidl.layers.dense"."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """The folder of a module of minidl, or the file that stands beside the folders."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def compiled_room(name: str) -> str:
    """The folder of a module or header of minidl_c, or the file that stands beside the folders."""
    parts = re.split("[./]", name)
    return parts[1] if len(parts) > 1 else parts[0]


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


def arrows() -> dict[str, set[str]]:
    """What each module of minidl imports of minidl."""
    modules = {module_name(path): imported(path) for path in SHIPPED}
    return {one: {other for other in others if other.split(".")[0] == "minidl"} for one, others in modules.items()}


def test_imports_point_down():
    across = {(one, other) for one, others in arrows().items() for other in others if room_of(one) != room_of(other)}
    assert {room_of(one) for pair in across for one in pair} <= set(FLOOR), f"give it a floor in {Path(__file__).name}"
    assert {(one, other) for one, other in across if FLOOR[room_of(other)] >= FLOOR[room_of(one)]} == LATE


def test_no_modules_import_each_other_in_a_circle():
    graph = {one: others - {other for late, other in LATE if late == one} for one, others in arrows().items()}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names them


@pytest.mark.parametrize("path", [path for path in LAYERS if "minidl.layers.container" not in imported(path)], **each)
def test_layer_file_and_kernel_file_share_their_word(path):
    kernels = {name.removeprefix("minidl_c.kernels.") for name in imported(path) if name.startswith("minidl_c.")}
    assert {name for name in kernels if not name.startswith(f"{path.stem}_")} <= {path.stem}
    assert (ROOT / "minidl_c" / "kernels" / f"{path.stem}.pyx").exists()


def compiled_arrows() -> dict[str, set[str]]:
    """What each module of minidl_c cimports, imports and includes of minidl_c; a .pxd and its .pyx are one module."""
    pattern = re.compile(r'^\s*(?:(?:from|cimport|import)\s+(minidl_c[\w.]*)|.*"(minidl_c/[\w/]+[.]h)")', re.M)
    found: dict[str, set[str]] = {}
    for path in COMPILED:
        one = name_of(path) if path.suffix == ".h" else module_name(path)
        others = {a or b for a, b in pattern.findall(path.read_text(encoding="utf-8"))} - {one, "minidl_c"}
        found.setdefault(one, set()).update(others)
    return found


def test_cimports_and_includes_point_down():
    across = {(one, other) for one, others in compiled_arrows().items() for other in others}
    rooms = {(one, other): (compiled_room(one), compiled_room(other)) for one, other in across}
    assert {room for pair in rooms.values() for room in pair} <= set(COMPILED_FLOOR)
    apart = {pair: (a, b) for pair, (a, b) in rooms.items() if a != b}
    assert [pair for pair, (a, b) in apart.items() if COMPILED_FLOOR[b] >= COMPILED_FLOOR[a]] == []


def test_no_modules_cimport_each_other_in_a_circle():
    graphlib.TopologicalSorter(compiled_arrows()).prepare()  # raises CycleError, which names them


@pytest.mark.parametrize("path", [path for path in COMPILED if path.suffix == ".pxd"], **each)
def test_every_pxd_is_cimported(path):
    others = [other for other in CODE if other.suffix in {".pyx", ".pxd"} and other != path.with_suffix(".pyx")]
    assert lines_matching(rf"^\s*(from|cimport)\s+{module_name(path)}\b", others) != []


def test_folders_of_minidl_c_are_namespace_packages():
    """An empty __init__.py would hide v4/kernels behind kernels: see minidl_c/__init__.py."""
    assert [name_of(path) for path in COMPILED if path.name == "__init__.py"] == ["minidl_c/__init__.py"]


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
