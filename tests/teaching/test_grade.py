"""grade and `python -m minidl grade`: what is printed, exit statuses, files that cannot be graded, notebooks."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
from scripts import run_script

from minidl import Layer, layers
from minidl.__main__ import main
from minidl.testing import grade
from minidl.testing.grading import loss, optimizer, report
from minidl.testing.grading.comparison import equal, made
from minidl.testing.grading.exercises import EXERCISES
from minidl.testing.grading.layer_exercise import LayerExercise

ROOT = Path(__file__).parents[2]
TEACHING = ROOT / "docs" / "teaching"
NAMES = ("dense", "relu", "max_pool", "convolution", "loss", "optimizer")
DENSE = (TEACHING / "solutions" / "dense.py").read_text(encoding="utf-8")
RELU = (TEACHING / "solutions" / "relu.py").read_text(encoding="utf-8")


def run(*paths):
    """Returns the exit status of the command."""
    with pytest.raises(SystemExit) as done:
        main(["grade", *map(str, paths)])
    return done.value.code


def write(folder, text, name="exercise.py"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def written_notebook(folder, *cells):
    cells = [{"cell_type": kind, "source": source} for kind, source in cells]
    return write(folder, json.dumps({"cells": cells}), "exercise.ipynb")


# ---- the exercises
@pytest.mark.parametrize("suffix", [".py", ".ipynb"])
@pytest.mark.parametrize("name", NAMES)
def test_unfinished_exercises_say_so(name, suffix, capsys):
    assert run(TEACHING / "exercises" / (name + suffix)) == 1
    out = capsys.readouterr().out
    assert "not written yet" in out
    assert "wrong" not in out
    assert out.count("lines are right.") == 1  # its last cell grades only if it is run


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_have_the_cells_of_the_scripts(name):
    spec = spec_from_file_location("notebooks", ROOT / "build_tools" / "notebooks.py")
    notebooks = module_from_spec(spec)
    spec.loader.exec_module(notebooks)
    path = TEACHING / "exercises" / f"{name}.py"
    expected = notebooks.notebook(path.read_text(encoding="utf-8"))
    assert path.with_suffix(".ipynb").read_text(encoding="utf-8") == expected, "run build_tools/notebooks.py"
    cells = json.loads(expected)["cells"]
    assert [cell["cell_type"] for cell in cells] == ["markdown", "code", "markdown", "code"]
    with pytest.raises(ValueError, match="begins with '# %%'"):
        notebooks.notebook("import numpy\n")
    with pytest.raises(ValueError, match=r"got '# %% \[raw\]'"):
        notebooks.notebook("# %% [raw]\n")


@pytest.mark.parametrize("name", NAMES[:4])
def test_a_layer_can_be_tried_by_hand(name):
    exercise = (TEACHING / "exercises" / f"{name}.py").read_text(encoding="utf-8")
    lines = exercise.partition("by hand")[2].partition("# %%")[0].replace("\n# ", "\n")
    code = "".join(re.findall(r"^    (.+\n)", lines, re.M))
    namespace = {"__name__": name}
    solution = (TEACHING / "solutions" / f"{name}.py").read_text(encoding="utf-8")
    exec(solution + code.replace("model.f", "y = model.f"), namespace)
    assert namespace["y"].shape == (2, *namespace["model"].layers[0].out_shape)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_finished_exercise_trains_a_net(name, tmp_path):
    cells = (TEACHING / "exercises" / f"{name}.py").read_text(encoding="utf-8").split("# %%")
    cells[2] = "\n" + (TEACHING / "solutions" / f"{name}.py").read_text(encoding="utf-8") + "\n"
    done = run_script(write(tmp_path, "# %%".join(cells)), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert float(re.search(r"'accuracy': ([\d.]+)}\n$", done.stdout)[1]) > 0.9


def catalogues():
    """Yields each list of mistakes, as pairs of a sentence and what it gives, with the right numbers."""
    for name, exercise in EXERCISES.items():
        if isinstance(exercise, LayerExercise):
            for result, mistakes in exercise.mistakes.items():
                found = [(says, made(makes, exercise.case)) for says, makes in mistakes]
                yield f"{name}: {result}", found, getattr(exercise.case, result)
    for result, mistakes in loss.MISTAKES.items():
        found = [(says, made(makes, loss.LOSS.case)) for says, makes in mistakes]
        yield result, found, getattr(loss.LOSS.case, result)
    sgd = optimizer.OPTIMIZER
    ends = [
        (says, np.concatenate([v.ravel() for v in sgd.following(rule)[-1].values()]))
        for says, rule in optimizer.MISTAKES
    ]
    yield "SGD", ends, np.concatenate([value.ravel() for value in sgd.expected[-1].values()])


@pytest.mark.parametrize(("name", "found", "right"), [pytest.param(*one, id=one[0]) for one in catalogues()])
def test_mistakes_give_other_numbers_than_each_other(name, found, right):
    for index, (says, numbers) in enumerate(found):
        assert not equal(numbers, right), says
        same = [other for other, others in found[:index] if equal(numbers, others) and other != says]
        assert not same, (says, same)


def test_the_page_quotes_what_is_said():
    page = (TEACHING / "index.md").read_text(encoding="utf-8")
    quoted = re.findall(r"^\| (.*) \| .* \|$", page.partition("## 1. A dense layer")[2], re.M)
    quoted = [cell for cell in quoted if not re.fullmatch(r"-+|\d+|minutes|what students see", cell)]
    known = "\n".join(says for _, found, _ in catalogues() for says, _ in found)
    known += "\n".join([*report.ERRORS.values(), loss.OF_BATCH, loss.OVERFLOW, optimizer.ONE, *dict(loss.SATURATED)])
    assert len(quoted) >= 36
    assert [cell for cell in quoted if cell not in known] == []


# ---- reports
def test_a_report(tmp_path, capsys):
    text = DENSE.replace("+ self.bias.value", "").replace("self.bias.grad = db", "self.bias.grad = db / len(dy)")
    assert run(write(tmp_path, text)) == 1
    out = capsys.readouterr().out
    assert out.replace(f"{tmp_path}/", "").splitlines() == [
        "exercise.py: Dense",
        "  build         right",
        "  forward       wrong: the bias is not added",
        "                y[0, 0]: expected 0.5, got 2.25; 15 of 15 numbers are wrong",
        "  dx            right",
        "  dW            right",
        "  db            wrong: db is divided by the number of examples; sum over the batch only, the Trainer divides",
        "                db[0]: expected 8, got 1.6; 3 of 3 numbers are wrong",
        "  contract      not tried: when all lines above are right, check_layer tests the rest",
        "3 of 6 lines are right.",
    ]


def test_what_backward_has_written_is_graded(tmp_path, capsys):
    text = DENSE.replace("        self.bias.grad = db\n        return dx", "        raise NotImplementedError")
    assert run(write(tmp_path, text)) == 1
    out = capsys.readouterr().out
    assert re.search("dx +not written yet\n +dW +right\n +db +not written yet\n", out)


@pytest.mark.parametrize(("old", "new", "says"), [
    ("dW += np", "dW *= 1.7\n            dW += np", r"dW +wrong: dW\[0, 0\]: expected .*, got"),
    ("self.bias.grad = db", "self.bias.grad = 3 * db", "db +wrong: all numbers are 3 times the right ones"),
    ("self.bias.grad = db", "self.bias.grad = 0 * db", "db +wrong: all numbers are 0"),
    ("self.bias.grad = db", "self.bias.grad = db * np.nan", "db +wrong: ValueError|db +wrong: there are NaN"),
    ("return dx", "return dx.T", r"dx +wrong: it is transposed\n +expected the shape \(5, 4\), got \(4, 5\)"),
    ("return dx", "return 'dx'", "dx +wrong: expected an array of numbers, got str"),
    ("return dx", "return dx.tolist()", "dx +wrong: expected an array of numbers, got a list"),
    ("return y\n", "return y.tolist()\n", "forward +wrong: expected an array of numbers, got a list"),
    ("return dx", "return dx[None] * np.ones((5, 1, 1))", "dx +wrong: there is a result for each example"),
    ("(self.units, inputs)", "(inputs, self.units)",
     r"build +wrong: expected the parameters \{'weight': \(3, 4\), 'bias': \(3,\)\}, got \{'weight': \(4, 3\)"),
    ("return (self.units,)", "return None", "build +wrong: "),
    ("def __init__(self, units)", "def __init__(self)", r"TypeError: .*got 1\n +__init__ and build stay as"),
    ("class Dense(Layer)", "class Dense", "build +wrong: expected a subclass of minidl.Layer"),
    ("class Dense(Layer):", "def Dense(units):\n    return units\nclass Other(Layer):",
     "build +wrong: expected a subclass of minidl.Layer: class Dense.Layer."),
    ("class Dense(Layer):", "import minidl.layers\nclass Dense(minidl.layers.Dense):\n    pass\nclass Other(Layer):",
     "build +wrong: expected forward and backward of your own, got the kernel of minidl's layer"),
    ("def forward", "def forwards", "forward +not written yet"),
    ("        y = np", "        assert len(x) == 3, 'three'\n        y = np",
     r"forward +wrong: AssertionError: three \(line 24: assert"),
    ("        y = np", "        raise SystemExit\n        y = np", r"forward +wrong: SystemExit \(line 24: raise"),
])  # fmt: skip
def test_other_mistakes(old, new, says, tmp_path, capsys):
    assert old in DENSE
    assert run(write(tmp_path, DENSE.replace(old, new))) == 1
    assert re.search(says, capsys.readouterr().out)


@pytest.mark.parametrize(("text", "says"), [
    ("from minidl import optimizers\nclass SGD(optimizers.SGD): pass\n", "build +wrong: expected a step of your own"),
    ("class SGD:\n    def __init__(self, lr, momentum): pass\n", "step 1 +wrong: AttributeError: .*'step'"),
    ("def SGD(lr, momentum):\n    pass\n", "step 1 +wrong: AttributeError"),
    ("class softmax_cross_entropy:\n    def __init__(self, scores, y): pass\n",
     "losses +wrong: expected it to return two arrays, .losses, dscores., got softmax_cross_entropy"),
    ("def softmax_cross_entropy(scores, y):\n    return [[1], [1, 2]], 0\n", "losses +wrong: ValueError: setting"),
    ("def softmax_cross_entropy(scores, y):\n    pass\n", "losses +wrong: .*, got nothing: is a\\s+`return` missing"),
    ("def softmax_cross_entropy(scores, y):\n    return 0 * scores[:, 0], None\n",
     "losses wrong: all numbers are 0 .* dscores not written yet"),
])  # fmt: skip
def test_other_mistakes_of_losses_and_optimizers(text, says, tmp_path, capsys):
    assert run(write(tmp_path, text)) == 1
    assert re.search(says, re.sub(r"\s+", " ", capsys.readouterr().out))


@pytest.mark.parametrize(("backward", "says"), [
    ("self.weight.grad = dy * self.x", "dx not tried: .* dW wrong: ValueError: .* db not tried: backward ends before"),
    ("dW = np.zeros((3, 4))\n        dW += dy[0] * self.x[0]",
     "dx not tried: .* dW wrong: ValueError: .* db not tried"),
    ("self.weight.grad = dy.T @ (self.x @ self.weight.value.T)",
     r"dx not tried: .* dW wrong: ValueError: grad: expected shape \(3, 4\)"),
    ("self.weight.grad = -0.1 * dy.T @ self.x\n        self.bias.grad = dy.sum(axis=0, keepdims=True)",
     "dx not tried: .* dW wrong: all numbers are -0.1 .* db wrong: ValueError: .*got \\(1, 3\\)"),
    ("own = self.bias\n        self.bias.grad[:] = self.of(dy)\n    def of(self, dy):\n        return dy[9]",
     "dx not tried: .* dW not tried: .* db wrong: IndexError: .*return dy"),
    ("dx = dy * self.x", "dx wrong: ValueError: .* dW not tried: .* db not tried"),
    ("rows = dy * self.x", "dx wrong: ValueError: .* dW not tried: .* db not tried"),
    ("if self.weight.grad == dy:\n            pass", "dx wrong: "),
    ("self.wight.grad = dy", "dx wrong: AttributeError: .* dW not tried: .* db not tried"),
])  # fmt: skip
def test_an_error_belongs_to_the_gradient_of_its_line(backward, says, tmp_path, capsys):
    start, end = DENSE.index("        dW = np.zeros"), DENSE.index("        return dx")
    assert run(write(tmp_path, DENSE[:start] + f"        {backward}\n" + DENSE[end:])) == 1
    assert re.search(says, re.sub(r"\s+", " ", capsys.readouterr().out))


@pytest.mark.parametrize(("y", "says"), [
    ("np.array([self.weight.value @ row + self.bias.value for row in x])",
     r"make the result with its shape first, np\.z"),
    ("0 * x[0, 0] + x @ self.weight.value.T + self.bias.value",
     r"loops over the examples take care of it, indices such"),
])  # fmt: skip
def test_hints_for_a_batch_of_0(y, says, tmp_path, capsys):
    text = DENSE.replace("        return y", f"        return {y}")
    assert run(write(tmp_path, text)) == 1
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert re.search(f"contract wrong: a batch of 0 failed.*: .*; {says}", said)
    assert said.count("a batch of 0") == 1 and ("such as x[0]" in said) != ("with its shape first" in said)


def test_what_the_code_prints_is_shown_shortly(tmp_path, capsys):
    text = RELU.replace("        return np.max", "        print('x', x.shape)\n        return np.max")
    text = text.replace("        return dy", "        for i in range(9):\n            print(i)\n        return dy")
    assert run(write(tmp_path, text + "print('loading')\n")) == 0
    out = capsys.readouterr().out
    assert out.count("| x (6, 2, 5)\n") == 1
    assert out.count("| 4\n                | ... and 4 more lines that the code prints\n") == 1
    assert out.count("|") == 7


def test_an_endless_loop_can_be_interrupted(tmp_path):
    started = tmp_path / "started"
    loop = f"        open({str(started)!r}, 'w').close()\n        while True:\n            pass\n        return dy"
    command = [sys.executable, "-m", "minidl", "grade", str(write(tmp_path, RELU.replace("        return dy", loop)))]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        while not started.exists() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert re.search(r"forward +right\n  dx +wrong: interrupted \(line 1[789]: .*\)\n  contract +not tried", out)
    assert (process.returncode, err) == (1, "")


# ---- files
def test_all_exercises_of_a_file_are_graded(tmp_path, capsys):
    wrong = RELU.replace("(self.x > 0)", "1")
    assert run(write(tmp_path, DENSE + RELU)) == 0
    assert run(write(tmp_path, DENSE + wrong)) == 1
    assert run(write(tmp_path, DENSE, "a.py"), write(tmp_path, wrong, "b.py")) == 1
    assert capsys.readouterr().out.count("lines are right") == 6


def test_a_notebook_names_cells(tmp_path, capsys):
    cells = ("markdown", "# Text"), ("code", ["%matplotlib inline\n", "!ls\n", "import numpy as np"]), ("code", RELU)
    assert run(written_notebook(tmp_path, *cells)) == 0
    capsys.readouterr()
    assert run(written_notebook(tmp_path, *cells[:2], ("code", RELU.replace("np.max", "np.maxi")))) == 1
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert re.search(r"AttributeError: .*\(cell 3, line 14: return np\.maxi", said)


@pytest.mark.parametrize("command", [
    "ReLU?", "??ReLU", "np.maximum??", "files = !ls", "a = %time print(1)", "if np:\n    %time print(1)\n",
    "%%time\nx = 1", "!ls\nx = [1,\n%timeit x", "%%bash\nfor i in a b; do echo $i; done", "a text of words",
])  # fmt: skip
def test_cells_of_a_notebook_that_are_no_python(command, tmp_path, capsys):
    cells = ("code", "import numpy as np"), ("code", command), ("code", RELU)
    assert run(written_notebook(tmp_path, *cells)) == 0
    out = capsys.readouterr().out
    left_out = re.findall(r"exercise.ipynb: cell 2 is left out: it is no Python \(.+: line \d\)\n", out)
    assert len(left_out) == sum(part in command for part in ("[1", "%%bash", "of words"))
    assert "All 4 lines are right." in out


def test_cells_of_python_are_left_as_they_are(tmp_path):
    text = RELU.replace("return dy", 'return 0 * float("""3\n%time\n!ls"""[:1]) \\\n  % 3 + dy')
    assert run(written_notebook(tmp_path, ("code", text))) == 0


def test_an_exercise_that_is_no_python_is_not_left_out(tmp_path, capsys):
    text = RELU.replace("return dy", "return return dy")
    assert run(written_notebook(tmp_path, ("code", "import numpy as np"), ("code", text + "ReLU?"))) == 1
    out = capsys.readouterr().out
    assert re.search(r"program +wrong: SyntaxError: .*\(cell 2, line 1\d: return return", out)
    assert "left out" not in out


@pytest.mark.parametrize("answer", [
    "softmax_cross_entropy = lambda scores, y: own(scores, y)",
    "class Loss:\n    def __call__(self, scores, y):\n        return own(scores, y)\nsoftmax_cross_entropy = Loss()",
    "softmax_cross_entropy = own",
])  # fmt: skip
def test_what_is_assigned_to_the_name_is_graded(answer, tmp_path, capsys):
    text = (TEACHING / "solutions" / "loss.py").read_text(encoding="utf-8")
    text = text.replace("softmax_cross_entropy", "own") + answer + "\n"
    end = "from minidl.testing import grade\nassert grade(softmax_cross_entropy)\n"
    assert run(write(tmp_path, text + end)) == 0
    assert capsys.readouterr().out.count("All 4 lines are right.") == 1


def test_files_next_to_it_can_be_imported(tmp_path):
    write(tmp_path, "def slope(x):\n    return x > 0\n", "helper_of_a_student.py")
    before = sys.path.copy()
    text = "from helper_of_a_student import slope\n" + RELU.replace("(self.x > 0)", "slope(self.x)")
    assert run(write(tmp_path, text)) == 0
    assert sys.path == before and "exercise" not in sys.modules


@pytest.mark.parametrize(("text", "says"), [
    ("def f(:\n", r"program +wrong: SyntaxError: .*\(line 1: def f\(:\)"),
    ("x = 1\n  y = 2\n", r"program +wrong: IndentationError: .*\(line 2: y = 2\)"),
    ("import a_module_that_is_missing\n", r"program +wrong: ModuleNotFoundError: .*\(line 1: import"),
    (RELU + "\n1 / 0\n", r"program +wrong: ZeroDivisionError: division by zero \(line 19: 1 / 0\)"),
    (RELU + "\nraise NotImplementedError\n", "program +not written yet"),
])  # fmt: skip
def test_programs_that_fail(text, says, tmp_path, capsys):
    assert run(write(tmp_path, text)) == 1
    out = capsys.readouterr().out
    assert re.search(says, out)
    assert ("All 4 lines are right." in out) == text.startswith(RELU)


@pytest.mark.parametrize(("name", "text", "says"), [
    ("a.py", "x = 1\n", "expected one of Dense, ReLU, MaxPool2D, .*, defined in this file, found none"),
    ("a.py", "from minidl.layers import Dense, ReLU\n", "expected one of Dense, .*, defined in this file, found none"),
    ("a.ipynb", "x = 1\n", "expected a Python script or a notebook, got JSONDecodeError"),
    ("a.ipynb", "[1]", "expected a Python script or a notebook, got TypeError"),
    ("a.ipynb", '{"cells": [{}]}', "expected a Python script or a notebook, got KeyError"),
])  # fmt: skip
def test_files_that_cannot_be_graded(name, text, says, tmp_path, capsys):
    assert run(write(tmp_path, text, name)) == 2
    found = capsys.readouterr()
    assert re.match(rf"grade: .*{re.escape(name)}: {says}", found.err)
    assert not found.out


def test_files_that_cannot_be_read(tmp_path, capsys):
    (tmp_path / "latin.py").write_bytes(b"# \xe9\n")
    assert run(tmp_path / "missing.py", write(tmp_path, RELU)) == 2
    assert run(tmp_path / "latin.py") == 2
    assert run(tmp_path) == 2
    found = capsys.readouterr()
    assert "All 4 lines are right." in found.out
    assert len(found.err.splitlines()) == 3


# ---- the function
class Softmax(Layer):
    pass


@pytest.mark.parametrize(("answer", "error", "says"), [
    (Softmax, ValueError, "expected a class or function with one of the names Dense, ReLU, .*, got <class"),
    (layers.Dense(3), TypeError, r"expected a class or function .*, got Dense\(.*\); pass the class Dense"),
    ("Dense", TypeError, "expected a class or function .*, got 'Dense'"),
])  # fmt: skip
def test_what_is_no_solution_is_refused(answer, error, says):
    with pytest.raises(error, match=f"^answer: {says}"):
        grade(answer)


def test_only_the_gradient_overflows(tmp_path, capsys):
    text = (TEACHING / "solutions" / "loss.py").read_text(encoding="utf-8")
    naive = "np.exp(scores[n]) / np.exp(scores[n]).sum()"
    assert run(write(tmp_path, text.replace("np.exp(log_p)", naive))) == 1
    assert re.search(
        r"large scores  wrong: exp overflows(.*\n)+ +dscores\[\d, \d\]: .*got nan", capsys.readouterr().out
    )


def test_layers_of_minidl_are_no_solutions(capsys):
    assert not grade(layers.Dense)
    assert "expected forward and backward of your own" in capsys.readouterr().out
