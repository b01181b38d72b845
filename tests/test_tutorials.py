"""What the lessons of docs/tutorials/ promise, and test_docs.py, which runs each page as it is, does not see."""

import re
from pathlib import Path

import minidl.datasets
from minidl.datasets import DatasetUnavailable

LESSONS = Path(__file__).parents[1] / "docs" / "tutorials"


def program_of(page):
    """Returns the Python blocks of a page as one program."""
    return "".join(re.findall(r"^```python\n(.*?)^```$", (LESSONS / page).read_text(encoding="utf-8"), re.M | re.S))


def test_mnist_runs_without_a_network(monkeypatch, tmp_path, capsys):
    """On the digits of scikit-learn, enlarged."""

    def fail():
        raise DatasetUnavailable("MNIST is not here")

    monkeypatch.setattr(minidl.datasets, "load_mnist", fail)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "lesson"}
    exec(compile(program_of("mnist.md"), "mnist.md", "exec"), names)
    printed = capsys.readouterr().out
    assert printed.startswith("MNIST is not here\n(1442, 1, 28, 28) uint8\n240\n")
    assert float(re.search(r"^(\d+\.\d+)%$", printed, re.M)[1]) > 90
    assert {path.name for path in tmp_path.iterdir()} == {"lenet5.safetensors", "mnist_misread.png"}
