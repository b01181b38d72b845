"""Test cases that may crash the process: they run in a subprocess, where a crash is an ordinary failure."""

import os
import subprocess
import sys
from pathlib import Path

REFUSALS = (TypeError, ValueError, RuntimeError, OverflowError, MemoryError, BufferError)


def refused(call, *args, **options):
    """Asserts that the call raises an error with a message."""
    try:
        call(*args, **options)
    except REFUSALS as error:
        assert str(error) or isinstance(error, MemoryError)
        return
    given = f"{str(args)[:200]}, {str(options)[:200]}"
    raise AssertionError(f"accepted: {getattr(call, '__name__', call)}({given})")


class Cases(dict):
    """Case functions by name, in order. `add` is their decorator; the file that holds them calls `main` as a script."""

    def add(self, function):
        """Registers a case."""
        self[function.__name__] = function
        return function

    def main(self, names):
        """Runs these cases. Prints each name before its case runs, which locates a crash."""
        for name in names:
            print(name, end=" ", flush=True)
            try:
                self[name]()
            except BaseException as error:  # any error belongs to this case
                where = error.__traceback__
                while where.tb_next is not None and where.tb_next.tb_frame.f_code is not refused.__code__:
                    where = where.tb_next
                print(f"{type(error).__name__} in line {where.tb_lineno}: {error}".replace("\n", " "), flush=True)
            else:
                print("ok", flush=True)

    def run(self, file, names=None):
        """Returns the results of these cases, or of all, by name. After a crash a new process continues."""
        results, names, path = {}, list(self if names is None else names), str(Path(__file__).parent)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([path, os.environ.get("PYTHONPATH", "")])}
        while len(results) < len(names):
            command = [sys.executable, file, *names[len(results) :]]
            child = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
            for line in child.stdout.splitlines():
                name, _, output = line.partition(" ")
                results[name] = output or f"died with exit code {child.returncode}: {child.stderr[-300:]}"
            assert child.stdout, child.stderr
        return results
