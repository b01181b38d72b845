"""The commit that a build is made of, as far as it is known."""

import os
import subprocess
from pathlib import Path

IN_SDIST = "COMMIT"  # a file that an sdist has, and a checkout has not


def commit(root: Path) -> str:
    """Returns the commit of a checkout of git, with "-dirty" if its files have changed since, or that of an sdist.

    It is "" where neither is known: without git, and in a copy inside another repository.
    """
    root = root.resolve()
    if (root / IN_SDIST).is_file():
        return (root / IN_SDIST).read_text(encoding="ascii").strip()
    try:
        if Path(_git(root, "rev-parse", "--show-toplevel")).resolve() != root:
            return ""
        return _git(root, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.CalledProcessError):  # such as the checkout of another user
        return ""


def _git(root: Path, *arguments: str) -> str:
    """Returns what git prints; variables of a hook that runs this, which name another repository, do not count."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(root), *arguments]
    done = subprocess.run(command, env=env | {"GIT_OPTIONAL_LOCKS": "0"}, capture_output=True, text=True, check=True)
    return done.stdout.strip()
