"""Rules of the repository's structure: import layers, mirrored names, one place for flags."""

import ast
import graphlib
import re
from pathlib import Path

import pytest
from in_turn import in_turn

ROOT = Path(__file__).parents[1]
MAX_LINES, MAX_TEST_LINES = 300, 500
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
CYTHON_DOCSTRING = re.compile(r'(?:\A|:\n) *(""".*?""")', re.S)

# Imports between folders (and top-level files) of minidl/ only point down this list.
FLOORS = (
    {"utils"},
    {"initializers", "datasets"},
    {"layers", "metrics", "distributed"},
    {"losses", "optimizers", "saving"},
    {"schedules", "callbacks", "engine"},
    {"sequential"},
    {"quantization", "training"},
    {"trainer", "plots", "onnx"},
    {"estimators", "testing", "c_export"},
    {"minidl"},  # __init__.py
    {"__main__"},
)
FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names}
# Upward imports inside functions: what users expect there, implemented elsewhere.
LATE = {
    ("minidl.training.history", "minidl.plots.curves"),
    ("minidl.engine.network", "minidl.quantization.aware"),  # what QuantizationAware layers predict by
}

# The same for cimports and includes of minidl_c/.
COMPILED_FLOORS = (
    {"simd", "cpu_level"},
    {"cpu", "openmp_wait"},
    {"op", "minidl_c"},
    {"array_args", "layouts"},
    {"integer", "kernels", "optimizers"},
    {"losses"},
    {"runtime"},
    {"functional"},
)
COMPILED_FLOOR = {name: number for number, names in enumerate(COMPILED_FLOORS) for name in names}

FOLDERS = ("minidl", "minidl_c", "build_tools", "tests", "examples", "benchmarks", ".ci")
CODE = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".pyx", ".pxd", ".pxi", ".h", ".c"}
)
CODE += [ROOT / "setup.py", *sorted((ROOT / "docs").glob("*.py"))]
SHIPPED = [path for path in CODE if path.is_relative_to(ROOT / "minidl") and path.suffix == ".py"]
COMPILED = [path for path in CODE if path.is_relative_to(ROOT / "minidl_c")]
KERNELS = [path for path in COMPILED if path.suffix == ".pyx"]
LAYERS = [
    path
    for path in SHIPPED
    if path.parent.name == "layers" and path.stem not in ("__init__", "base", "container", "join", "param")
]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


each = {"ids": name_of}


def module_name(path: Path) -> str:
    """Returns the module name of a Python file: "minidl.layers.dense"."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def folder_of(module: str) -> str:
    """Returns the folder of a module of minidl, or the name of a top-level module."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def compiled_folder_of(name: str) -> str:
    """Returns the folder of a module or header of minidl_c, or the name of a top-level one."""
    parts = re.split("[./]", name)
    return parts[1] if len(parts) > 1 else parts[0]


def imported_modules(path: Path) -> set[str]:
    """Returns every module that a Python file imports, including inside functions and for type checkers."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno}: a relative import"
            names |= {submodule(node.module, alias.name) for alias in node.names}
    return names


def submodule(package: str, name: str) -> str:
    """Resolves `from package import name` to the module package.name if there is one."""
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


def test_sources_are_found():
    assert SHIPPED
    assert KERNELS
    assert LAYERS


def python_imports() -> dict[str, set[str]]:
    """Returns the modules of minidl that each module of minidl imports."""
    modules = {module_name(path): imported_modules(path) for path in SHIPPED}
    return {
        module: {imported for imported in others if imported.split(".")[0] == "minidl"}
        for module, others in modules.items()
    }


def test_imports_point_down():
    edges = {
        (module, imported)
        for module, others in python_imports().items()
        for imported in others
        if folder_of(module) != folder_of(imported)
    }
    assert {folder_of(module) for pair in edges for module in pair} <= set(FLOOR), (
        f"add its folder to FLOORS in {Path(__file__).name}"
    )
    assert {
        (module, imported) for module, imported in edges if FLOOR[folder_of(imported)] >= FLOOR[folder_of(module)]
    } == LATE


def test_python_imports_have_no_cycles():
    graph = {
        module: others - {imported for late, imported in LATE if late == module}
        for module, others in python_imports().items()
    }
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


@pytest.mark.parametrize(
    "path", [path for path in LAYERS if "minidl.layers.container" not in imported_modules(path)], **each
)
def test_layer_file_and_kernel_file_share_a_name(path):
    kernels = {
        name.removeprefix("minidl_c.kernels.") for name in imported_modules(path) if name.startswith("minidl_c.")
    }
    assert {name for name in kernels if not name.startswith(f"{path.stem}_")} <= {path.stem}
    assert (ROOT / "minidl_c" / "kernels" / f"{path.stem}.pyx").exists()


def lists_of(classes: set[str], source: str) -> list[int]:
    """Returns the lines of code that lists several of these classes, in a collection, the keys of a dict or a union."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts) | ast.Dict(keys=parts):
                pass
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                parts = [left, right]
            case _:
                continue
        if len(classes.intersection(getattr(part, "id", getattr(part, "attr", "")) for part in parts)) > 1:
            lines.append(node.lineno)
    return sorted(lines)


def test_facts_of_layers_are_in_the_layers():
    """A list of their classes elsewhere would be closed to users' layers: an attribute of Layer or Op is not."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in LAYERS]
    classes = {node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}
    listed = "isinstance(x, (ReLU, ours.Conv2D))\n{Dense: 1, Conv2D: 2}\nisinstance(x, Dense | Scale)\n[Dense, ReLU]"
    assert lists_of(classes, f"{listed}\n(Dense, Param)\n[Dense(3), ReLU()]") == [1, 2, 3, 4]
    translators = {"layers", "onnx", "c_export", "quantization"}  # class by class into nodes, C, or integers
    plotted = {"minidl/plots/receptive_fields.py"}  # a picture of these two layers
    assert [
        f"{name_of(path)}:{line}"
        for path in SHIPPED
        if folder_of(module_name(path)) not in translators and name_of(path) not in plotted
        for line in lists_of(classes, path.read_text(encoding="utf-8"))
    ] == []


def compiled_imports() -> dict[str, set[str]]:
    """Returns the modules that each module of minidl_c cimports, imports or includes; a .pxd and its .pyx are one."""
    pattern = re.compile(r'^\s*(?:(?:from|cimport|import)\s+(minidl_c[\w.]*)|.*"(minidl_c/[\w/]+[.]h)")', re.M)
    result: dict[str, set[str]] = {}
    for path in COMPILED:
        module = name_of(path) if path.suffix == ".h" else module_name(path)
        others = {a or b for a, b in pattern.findall(path.read_text(encoding="utf-8"))} - {module, "minidl_c"}
        result.setdefault(module, set()).update(others)
    return result


def test_cimports_and_includes_point_down():
    edges = {(module, imported) for module, others in compiled_imports().items() for imported in others}
    folders = {
        (module, imported): (compiled_folder_of(module), compiled_folder_of(imported)) for module, imported in edges
    }
    assert {folder for pair in folders.values() for folder in pair} <= set(COMPILED_FLOOR)
    crossing = {pair: (a, b) for pair, (a, b) in folders.items() if a != b}
    assert [pair for pair, (a, b) in crossing.items() if COMPILED_FLOOR[b] >= COMPILED_FLOOR[a]] == []


def test_the_picture_of_the_house_has_these_floors():
    drawing = (ROOT / "docs" / "images" / "house.svg").read_text(encoding="utf-8")
    drawn = [set(words.split(", ")) for words in re.findall(r'<text class="code"[^>]*>([^<]*)</text>', drawing)]
    not_drawn = {"cpu_level", "minidl_c"}  # a header of simd, and __init__.py
    floors = [{"__init__"} if names == {"minidl"} else names for names in reversed(FLOORS)]
    assert drawn == floors + [names - not_drawn for names in reversed(COMPILED_FLOORS)]


def test_cimports_have_no_cycles():
    graphlib.TopologicalSorter(compiled_imports()).prepare()  # raises CycleError, which names the modules


@pytest.mark.parametrize("path", [path for path in COMPILED if path.suffix == ".pxd"], **each)
def test_every_pxd_is_cimported(path):
    others = [
        imported for imported in CODE if imported.suffix in {".pyx", ".pxd"} and imported != path.with_suffix(".pyx")
    ]
    assert lines_matching(rf"^\s*(from|cimport)\s+{module_name(path)}\b", others) != []


def test_folders_of_minidl_c_are_namespace_packages():
    """An empty __init__.py would make kernels shadow v4/kernels: see minidl_c/__init__.py."""
    assert [name_of(path) for path in COMPILED if path.name == "__init__.py"] == ["minidl_c/__init__.py"]


def test_minidl_c_does_not_import_minidl():
    assert lines_matching(r"^\s*(from|import|cimport)\s+minidl(\.|\s|$)", COMPILED) == []


def test_sklearn_and_extras_are_imported_only_inside_functions():
    """`import minidl` must not load them; minidl.estimators, which needs scikit-learn, is imported separately."""
    others = [path for path in SHIPPED if path.parent.name != "estimators"]
    assert lines_matching(r"^(from|import)\s+(sklearn|scipy)\b", others) == []
    assert lines_matching(r"^(from|import)\s+(google|matplotlib|onnx|PIL|tensorboardX)\b", SHIPPED) == []


def test_directives_and_flags_are_only_in_setup_py():
    sources = [path for path in CODE if path.suffix in {".pyx", ".pxd", ".pxi"}]
    assert lines_matching(r"^\s*#\s*(cython|distutils)\s*:", sources) == []
    elsewhere = [path for path in SHIPPED + COMPILED if path.suffix != ".py"]
    assert lines_matching(r"#pragma\s+GCC\s+optimize|__attribute__.*optimize", elsewhere) == []


def test_no_dangerous_constructs():
    """No code made from data, no arithmetic that depends on the compiler's choices."""
    shipped = [*SHIPPED, *COMPILED, ROOT / "setup.py", ROOT / "Makefile"]
    assert lines_matching(r"^\s*(from|import|cimport)\s+(c?pickle|marshal|shelve)\b", shipped) == []
    assert lines_matching(r"(?<![.\w])(eval|exec)\(|allow_pickle\s*=\s*True", shipped) == []
    assert lines_matching(r"-ffast-math|-Ofast|#pragma\s+omp.*reduction", shipped) == []


def docstring_lines(path: Path) -> int:
    """Returns the number of lines of the docstrings of a Python or Cython file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, DOCUMENTED) and ast.get_docstring(node)]
        return sum(node.body[0].end_lineno - node.body[0].lineno + 1 for node in nodes)
    return sum(found[1].count("\n") + 1 for found in CYTHON_DOCSTRING.finditer(text))


@in_turn("path", CODE)
def test_files_are_short(path):
    """Docstrings do not count, except in tests."""
    lines = len(path.read_text(encoding="utf-8").splitlines())
    if "tests" in path.relative_to(ROOT).parts:
        assert lines <= MAX_TEST_LINES
    else:
        assert lines - docstring_lines(path) <= MAX_LINES


def test_paths_in_text_exist():
    """Paths in code, docs and scripts: files such as docs/index.md, quoted folders of tests; x stands for any name."""
    texts = [*CODE, *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "Makefile", ROOT / ".ci" / "run"]
    top = "(?:tests|minidl|minidl_c|examples|benchmarks|docs)"
    files = re.compile(rf"(?<![\w/.-]){top}/[\w/-]+\.(?:py|pyx|pxd|h|c|md|png)\b")
    folders = re.compile(r'"(tests/[\w/]+)"')
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in texts
        for name in files.findall(path.read_text()) + folders.findall(path.read_text())
        if not (ROOT / name).exists() and not re.search(r"/(?:test_)?x\.", name)
    }
    assert not missing
