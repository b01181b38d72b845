"""Runs a script as `python script.py` does, but in this process: a new one takes seconds to import scikit-learn."""

import io
import os
import runpy
import sys
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

from minidl_c.runtime import threads


@contextmanager
def restored(*folders):
    """Restores afterwards what a script may change for the whole process; forgets the modules that lie in `folders`."""
    environment, path, arguments, chosen = os.environ.copy(), sys.path.copy(), sys.argv, threads._num_threads
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:], sys.argv = path, arguments
        threads.set_num_threads(chosen)
        for name, module in list(sys.modules.items()):
            if Path(getattr(module, "__file__", None) or "/").parent in folders:
                del sys.modules[name]
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close("all")


def run_script(script, *args, folder):
    """Runs a script in `folder`; returns its `returncode`, `stdout` and `stderr`. Errors that it raises are raised."""
    stdout, stderr, status, beside = io.StringIO(), io.StringIO(), 0, Path(script).parent
    with restored(folder, beside), chdir(folder), redirect_stdout(stdout), redirect_stderr(stderr):
        sys.argv = [str(script), *map(str, args)]
        sys.path.insert(0, str(beside))
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
            if status and not isinstance(end.code, int):
                print(end.code, file=stderr)
    return SimpleNamespace(returncode=status, stdout=stdout.getvalue(), stderr=stderr.getvalue())
