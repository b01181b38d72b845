"""Checks an installed wheel in an environment without a compiler, beside scikit-learn and, if it is installed, PyTorch.

`make wheel` runs this in a folder with copies of tests/ and examples/, without the source of minidl.
"""

import importlib.metadata
import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import minidl
import minidl_c

TESTS = ["tests/native/runtime/test_thread_pool.py", "tests/native/runtime/test_usage_guard.py"]
TESTS += ["tests/test_thread_safety.py", "tests/test_reproducibility.py", "tests/utils", "tests/saving"]

# Libraries that bring threads of their own: OpenMP of PyTorch and of scikit-learn, and minidl's pool.
LIBRARIES = {
    "minidl": """
from minidl import Sequential, Trainer
from minidl.layers import Conv2D, Dense, Flatten, ReLU
from minidl.optimizers import SGD
model = Sequential([Conv2D(8, 3), ReLU(), Flatten(), Dense(10)], input_shape=(1, 12, 12), seed=0)
trainer = Trainer(model, "softmax_cross_entropy", SGD(0.05), num_threads=2, seed=0)
trainer.fit(X, y, epochs=2, verbose=0)
scores = model.predict(X, num_threads=2)
""",
    "sklearn": """
from sklearn.ensemble import HistGradientBoostingClassifier
HistGradientBoostingClassifier(max_iter=5).fit(X.reshape(len(X), -1), y).predict(X.reshape(len(X), -1))
""",
    "torch": """
import torch
images = torch.from_numpy(X).requires_grad_()
torch.nn.functional.conv2d(images, torch.ones(4, 1, 3, 3)).square().sum().backward()
""",
}
DATA = """
import hashlib, numpy as np
rng = np.random.default_rng(0)
X, y = rng.normal(size=(192, 1, 12, 12)).astype(np.float32), rng.integers(0, 10, 192)
"""
FORKS = """
import multiprocessing, warnings
import joblib
from minidl.estimators import SequentialClassifier
from sklearn.model_selection import GridSearchCV
warnings.simplefilter("ignore")  # Python warns of forks beside threads
def digest(_):
    return hashlib.sha256(model.predict(X, num_threads=2).tobytes()).hexdigest()
expected = digest(0)
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(digest, range(4)) == [expected] * 4
for backend in ("loky", "threading"):
    found = joblib.Parallel(n_jobs=2, backend=backend)(joblib.delayed(model.predict)(X) for _ in range(4))
    assert all(np.array_equal(scores, found[0]) for scores in found)
classifier = SequentialClassifier([Flatten(), Dense(10)], epochs=2)
GridSearchCV(classifier, {"lr": [0.001, 0.01]}, n_jobs=2, cv=3, error_score="raise").fit(X, y)
print("forks and joblib")
"""


def run(code: str) -> str:
    """Runs a program in a new process; returns its output."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    if done.returncode:
        sys.exit(f"{code}\n{done.stderr}")
    return done.stdout.strip()


def check_files(isas: str) -> None:
    """Checks that the wheel is installed, has every instruction set if isas is "all", and no compiler is in reach."""
    package = Path(minidl_c.__file__).parent
    assert package.is_relative_to(sys.prefix), f"{package} is not in {sys.prefix}"
    assert not any(map(shutil.which, ("cc", "gcc", "clang", "c++"))), os.environ["PATH"]
    info = minidl_c.build_info()
    assert not info["openmp"], info
    assert info["limited_api"], info
    built = [isa for isa in minidl_c.cpu.known() if (package / isa / "build.json").exists()]
    assert built == minidl_c.cpu.known() or isas != "all", built
    files = importlib.metadata.files("minidl") or []
    assert any(path.name == "LICENSE" for path in files), "no LICENSE"
    [bill] = [json.loads(path.read_text()) for path in files if "sboms" in path.parts]  # auditwheel grafts nothing
    assert bill["metadata"]["component"]["version"] == minidl.__version__, bill
    assert info["commit"] in str(bill["metadata"]["component"]["properties"]), bill
    tags = (importlib.metadata.distribution("minidl").read_text("WHEEL") or "").split("\n")
    print(*(line for line in tags if line.startswith("Tag")), f"{len(files)} files", sep="\n")


def check_orders() -> None:
    """Imports the libraries in every order, lets each one compute, and compares minidl's bits before and after."""
    names = [name for name in LIBRARIES if importlib.util.find_spec(name)]
    digest = "print(hashlib.sha256(scores.tobytes()).hexdigest()[:16])"
    found = set()
    for order in itertools.permutations(names):
        again = LIBRARIES["minidl"] + digest
        found |= set(run(DATA + "".join(LIBRARIES[name] for name in order) + digest + again).split())
    assert len(found) == 1, found
    print(f"{', '.join(names)} in every order: {found.pop()}")


def main() -> None:
    """Runs all checks; stops at the first that fails. Argument: the instruction sets that the wheel has."""
    print(minidl.show_config())
    check_files(sys.argv[1])
    subprocess.run([sys.executable, "-m", "pip", "check"], check=True)
    check_orders()
    print(run(DATA + LIBRARIES["minidl"] + FORKS))
    subprocess.run([sys.executable, "examples/mnist_lenet.py"], check=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", "not slow and not oracle", *TESTS]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
