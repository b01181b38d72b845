"""Docstrings of public names: each argument is described, an example exists, and the reference has a page."""

import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest
from in_turn import in_turn

API = Path(__file__).parents[1] / "docs" / "reference" / "api"
SECTIONS = ["Parameters", "Attributes", "Returns", "Yields", "Raises", "See Also", "Notes", "References", "Examples"]
MODULES = [path.stem for path in sorted(API.glob("*.rst"))]
HEADING = re.compile(r"^(\w[\w ]*)\n-+\n", re.M)


def listed(page):
    """Returns the module of a page of the reference, and the names that it lists."""
    text = (API / f"{page}.rst").read_text(encoding="utf-8")
    module = re.search(r"currentmodule:: (\S+)", text)[1]
    return module, re.findall(r"^   ([\w.]+)$", text, re.M)


PUBLIC = {
    f"{module}.{name}": getattr(import_module(module), name) for module, names in map(listed, MODULES) for name in names
}


def members():
    """Yields all public names, and the methods of public classes that minidl defines, once each."""
    seen = set()
    for name, value in PUBLIC.items():
        yield name, value
        for base in value.__mro__ if inspect.isclass(value) else ():
            for attribute, member in vars(base).items():
                function = inspect.unwrap(getattr(member, "__func__", member))
                if attribute[0] == "_" or not inspect.isroutine(function) or not base.__module__.startswith("minidl"):
                    continue
                if not callable(function):  # scikit-learn's set_fit_request and such, with a docstring of their own
                    continue
                if function.__doc__ and function not in seen:
                    seen.add(function)
                    yield f"{base.__module__}.{base.__name__}.{attribute}", function


MEMBERS = dict(members())


def sections(value):
    """Returns the text of each section of a docstring, in its order; the summary is ""."""
    parts = HEADING.split("\n" + inspect.getdoc(value) + "\n")
    return {"": parts[0]} | dict(zip(parts[1::2], parts[2::2], strict=True))


def described(text):
    """Returns the names of the entries of a section."""
    entries = re.findall(r"^(\S[^:\n]*?)(?: : .+)?$", text, re.M)
    return [name.strip() for entry in entries for name in entry.split(",")]


def arguments(value):
    """Returns the names of the arguments, with their stars; none for a class with the constructor of a built-in one."""
    if inspect.isclass(value) and issubclass(value, (dict, Exception)):
        return []
    return [
        "*" * (p.kind is p.VAR_POSITIONAL) + "**" * (p.kind is p.VAR_KEYWORD) + p.name
        for p in inspect.signature(value).parameters.values()
        if p.name not in ("self", "cls")
    ]


@in_turn("name", MEMBERS)
def test_every_argument_is_described(name):
    assert described(sections(MEMBERS[name]).get("Parameters", "")) == arguments(MEMBERS[name])


@in_turn("name", MEMBERS)
def test_sections_are_known_and_in_order(name):
    found = [section for section in sections(MEMBERS[name]) if section]
    assert found == [section for section in SECTIONS if section in found]


@in_turn("name", PUBLIC)
def test_every_public_name_has_an_example(name):
    assert ">>> " in sections(PUBLIC[name]).get("Examples", ""), "no example"


@pytest.mark.parametrize(
    "name", [name for name, value in PUBLIC.items() if not inspect.isfunction(value) and not inspect.isclass(value)]
)
def test_examples_of_compiled_functions_run(name):
    """The other ones are found by pytest."""
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(PUBLIC[name]), {}, name, None, None)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0


SKIPPED = "# doctest: +SKIP"
NEED_ONNX = {"minidl.onnx.export", "minidl.onnx.import_model", "minidl.onnx.inspect"}
NEED_RIVER = {f"minidl.estimators.river.Online{name}" for name in ("Classifier", "Regressor")}
DOWNLOAD = {f"minidl.datasets.load_{name}" for name in ("mnist", "fashion_mnist", "cifar10")}


def test_no_other_example_is_skipped():
    skipped = {name for name, value in MEMBERS.items() if SKIPPED in inspect.getdoc(value)}
    assert skipped == {*NEED_ONNX, *NEED_RIVER, *DOWNLOAD, "minidl.datasets.DatasetUnavailable"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.oracle("onnx")) for name in sorted(NEED_ONNX)]
    + [pytest.param(name, marks=pytest.mark.oracle("river")) for name in sorted(NEED_RIVER)],
)
def test_examples_of_optional_packages_run(name):
    text = inspect.getdoc(PUBLIC[name]).replace(SKIPPED, "")
    assert doctest.DocTestRunner().run(doctest.DocTestParser().get_doctest(text, {}, name, None, None)).failed == 0


@pytest.mark.parametrize("page", MODULES)
def test_the_reference_lists_every_public_name(page):
    """On this page, or, under another name, on another."""
    module, names = listed(page)
    values = {name: getattr(import_module(module), name) for name in import_module(module).__all__}
    public = [name for name, value in values.items() if inspect.isclass(value) or inspect.isroutine(value)]
    assert set(names) <= set(public)
    assert {name for name in public if values[name] not in PUBLIC.values()} == set()
