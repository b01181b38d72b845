"""Runs examples as in a fresh installation: `run`, `start_example`."""

import re
import socket
import sys
from pathlib import Path

import pytest
from scripts import run_script

from minidl import Trainer

ROOT = Path(__file__).parents[1]


def start_example(name, *args, home, epochs=99, before=None):
    """Starts an example as in a fresh installation: data only in `home`, no external network, few epochs."""
    fit, getaddrinfo = Trainer.fit, socket.getaddrinfo

    def short_fit(trainer, *args, epochs, **options):
        return fit(trainer, *args, epochs=min(epochs, most), **options)

    def nearby(host, *args, **options):
        if host == "127.0.0.1":
            return getaddrinfo(host, *args, **options)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    most = epochs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "fit", short_fit)
        patch.setattr(socket, "getaddrinfo", nearby)
        patch.setenv("SCIKIT_LEARN_DATA", str(home))
        if before is not None:
            before(patch)
        return run_script(ROOT / "examples" / name, *args, folder=home)


def without(module):
    return lambda patch: patch.setitem(sys.modules, module, None)


def run(*args, **options):
    """Runs an example; returns what it prints."""
    done = start_example(*args, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def accuracy_in(output):
    return float(re.search(r"Test accuracy ([\d.]+)%", output)[1])
