"""show_config and python -m minidl, the number of threads, and the cost of an import."""

import os
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import minidl
import minidl_c
from minidl_c import openmp_wait

ROOT = Path(__file__).parents[2]


def run_python(*args, **env):
    """Runs code in a fresh interpreter with this minidl; returns its standard output."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    inherited = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, *args],
        env={**inherited, "PYTHONPATH": path, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout


def parse_facts(text):
    return dict(line.split("  ", 1) for line in text.strip().splitlines())


@pytest.fixture
def default_threads():
    yield
    minidl.set_num_threads(None)


def test_show_config_describes_the_environment(default_threads):
    minidl.set_num_threads(3)
    config = minidl.show_config()
    output = {name: value.strip() for name, value in parse_facts(str(config)).items()}
    assert output["minidl"] == minidl.__version__ == minidl_c.__version__
    assert output["numpy"] == np.__version__
    assert output["python"].split(",")[0] == sys.version.split()[0]
    assert ("free-threaded" in output["python"]) == bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    assert output["instruction set"] == minidl_c.isa
    assert "-ffp-contract=off" in output["compiler flags"].split()
    assert config.openmp == minidl_c.build_info()["openmp"]
    assert config.threads == 3
    of_openmp = f"OpenMP; they wait {config.thread_wait}"
    assert output["threads"] == f"3 by default, of {of_openmp if config.openmp else 'minidl itself'}"
    assert repr(config) == str(config)
    assert config.commit == minidl_c.build_info()["commit"] == output.get("commit", "")
    assert config.packages["safetensors"] == metadata.version("safetensors")
    assert output["packages"] == ", ".join(f"{name} {version}" for name, version in config.packages.items())
    assert hash(config) == hash(minidl.show_config())


def test_show_config_imports_nothing_and_names_the_commit():
    code = """
import sys, minidl, minidl_c
before = set(sys.modules)
config = minidl.show_config()
assert not {"pandas", "onnx", "torch", "matplotlib", "mpi4py"} & (set(sys.modules) - before)
assert "scikit-learn" in config.packages and "missing" not in config.packages
import minidl.utils.config as module
from dataclasses import replace
print(replace(config, commit="1a2b-dirty", packages={}))
"""
    lines = run_python("-c", code).splitlines()
    assert lines[1] == "commit           1a2b-dirty" and lines[4] == "packages         none"


WAIT = """
import os, subprocess, sys
before = dict(os.environ)
{first}
import minidl
assert dict(os.environ) == before
child = subprocess.run([sys.executable, "-c", "import os; print(sorted(os.environ))"], capture_output=True, text=True)
assert child.stdout.strip() == str(sorted(before)), child.stdout
print(minidl.show_config().thread_wait)
"""
LIBGOMP_FIRST = 'import ctypes; ctypes.CDLL("libgomp.so.1")'
VERBOSE = {"OMP_DISPLAY_ENV": "verbose"}  # libgomp prints its settings to stderr


def waits(first="", **env):
    """Returns how threads wait in a new process, and the spins that libgomp read."""
    code = WAIT.format(first=first) + "sys.stdout.flush()"
    chosen = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env={**chosen, "PYTHONPATH": str(ROOT), **VERBOSE, **env}, capture_output=True, text=True, check=True
    )
    spins = [line.split("'")[1] for line in done.stderr.splitlines() if "GOMP_SPINCOUNT" in line]
    return done.stdout.strip(), spins


@pytest.mark.skipif(not (minidl.show_config().openmp and openmp_wait.is_gnu()), reason="needs GNU's OpenMP")
def test_threads_of_openmp_wait_shortly_unless_the_environment_or_another_package_says_otherwise():
    """The environment, and that of child processes, is the same after the import."""
    assert waits() == ("shortly, 3000 spins", ["3000"])
    assert waits(GOMP_SPINCOUNT="77") == ("as GOMP_SPINCOUNT=77 says", ["77"])
    said, (spins,) = waits(OMP_WAIT_POLICY="passive")
    assert said == "as OMP_WAIT_POLICY=passive says" and spins != "3000"
    said, (spins,) = waits(LIBGOMP_FIRST)
    assert said == "as libgomp by itself: another package had loaded it" and spins != "3000"


def test_running_the_module_prints_the_config():
    output = parse_facts(run_python("-m", "minidl"))
    assert next(iter(output)) == "minidl"
    assert output["minidl"].strip() == minidl.__version__


def test_import_loads_neither_scikit_learn_nor_scipy():
    code = "import sys, minidl; print([m for m in ('sklearn', 'scipy') if m in sys.modules])"
    assert run_python("-c", code).strip() == "[]"


def test_training_loads_neither_scikit_learn_nor_scipy():
    code = """if True:
        import sys, numpy as np
        from minidl import Sequential, Trainer
        from minidl.layers import Dense
        from minidl.optimizers import SGD
        trainer = Trainer(Sequential([Dense(2)]), "softmax_cross_entropy", SGD(0.1), ["accuracy"])
        X, y = np.zeros((4, 3)), [0, 1, 0, 1]
        trainer.fit(X, y, verbose=0, validation_data=(X, y))
        print([m for m in ("sklearn", "scipy") if m in sys.modules])
    """
    assert run_python("-c", code).strip() == "[]"


def test_number_of_threads_can_be_set(default_threads):
    for count in (1, 2, 5):
        minidl.set_num_threads(count)
        assert minidl.get_num_threads() == count
    with pytest.raises(ValueError, match=r"num_threads: .*got 0"):
        minidl.set_num_threads(0)
    with pytest.raises(TypeError, match=r"num_threads: .*got 1\.5"):
        minidl.set_num_threads(1.5)
    assert minidl.get_num_threads() == 5


def test_omp_num_threads_is_respected():
    code = "import minidl; print(minidl.get_num_threads())"
    assert run_python("-c", code, OMP_NUM_THREADS="5").strip() == "5"
    assert run_python("-c", code, OMP_NUM_THREADS=" 3,2").strip() == "3"
    default = run_python("-c", code)
    for invalid in ("0", "abc", ""):
        assert run_python("-c", code, OMP_NUM_THREADS=invalid) == default
    assert run_python("-c", code, OMP_NUM_THREADS="9" * 5000) in (default, "1024\n")  # OpenMP and minidl differ


@pytest.mark.parametrize("number", ["1025", "100000", "99999999999"])
def test_omp_num_threads_has_the_bounds_of_num_threads(number):
    assert run_python("-c", "import minidl; print(minidl.get_num_threads())", OMP_NUM_THREADS=number).strip() == "1024"


def test_default_is_limited_to_the_processors_of_this_process():
    code = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); import minidl; print(minidl.get_num_threads())"  # noqa: E501
    env = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**env, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.strip() == "1"


COUNT_THREADS = """
import os
import numpy as np
from minidl import Sequential, Trainer
from minidl.layers import Dense
from minidl.optimizers import SGD

def started(units, num_threads, trains=False):
    model, x = Sequential([Dense(units)], input_shape=(1000,)), np.ones((64, 1000))
    before = len(os.listdir("/proc/self/task"))
    if trains:
        Trainer(model, "mean_squared_error", SGD(0.1), num_threads=num_threads).train_batch(x, np.ones((64, units)))
    else:
        model.predict(x, num_threads)
    return len(os.listdir("/proc/self/task")) > before

print(started(1, None), started(1000, 1), started(10, 2), started(10, 2, True), started(4000, None))
"""


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_little_work_runs_on_one_thread_and_much_on_several():
    expected = "False False False False True\n"
    default = COUNT_THREADS.replace("10, 2, True", "10, None, True")
    too_late = default.replace("print(", 'os.environ["OMP_NUM_THREADS"] = "2"\nprint(')  # OpenMP has its own setting
    trains = COUNT_THREADS.replace("started(4000, None)", "started(1000, 2, True)")
    for code in (COUNT_THREADS, default, too_late, trains):
        assert run_python("-c", code) == expected
    assert run_python("-c", default, OMP_NUM_THREADS="2") == expected


def test_a_missing_instruction_set_is_refused():
    code = """if True:
        try:
            import minidl
        except ImportError as error:
            print(error)
    """
    output = run_python("-c", code, MINIDL_ISA="v9")
    assert output.startswith("MINIDL_ISA=v9: this installation of minidl has")
    assert minidl_c.isa in output
