"""Cases that may crash the process: they run in one of their own, so that a crash is a failure like any other."""

import os
import subprocess
import sys
from pathlib import Path

REFUSALS = (TypeError, ValueError, RuntimeError, OverflowError, MemoryError, BufferError)


def refused(call, *args, **options):
    """The call raises an error that says something."""
    try:
        call(*args, **options)
    except REFUSALS as error:
        assert str(error) or isinstance(error, MemoryError)
        return
    given = f"{str(args)[:200]}, {str(options)[:200]}"
    raise AssertionError(f"taken: {getattr(call, '__name__', call)}({given})")


class Cases(dict):
    """Functions by name, in order; `add` is the decorator. Their file is run as a script that calls `main`."""

    def add(self, function):
        """One more case."""
        self[function.__name__] = function
        return function

    def main(self, start):
        """Runs the cases from number `start` on; prints a line for each, its name first: that shows where it died."""
        for name in list(self)[start:]:
            print(name, end=" ", flush=True)
            try:
                self[name]()
            except BaseException as error:  # whatever it is, it belongs to this case
                where = error.__traceback__
                while where.tb_next is not None and where.tb_next.tb_frame.f_code is not refused.__code__:
                    where = where.tb_next
                print(f"{type(error).__name__} in line {where.tb_lineno}: {error}".replace("\n", " "), flush=True)
            else:
                print("ok", flush=True)

    def run(self, file):
        """What each case said; where the process dies, another one goes on behind that case."""
        found, path = {}, str(Path(__file__).parent)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([path, os.environ.get("PYTHONPATH", "")])}
        while len(found) < len(self):
            command = [sys.executable, file, str(len(found))]
            child = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
            for line in child.stdout.splitlines():
                name, _, said = line.partition(" ")
                found[name] = said or f"died with exit code {child.returncode}: {child.stderr[-300:]}"
            assert child.stdout, child.stderr
        return found
