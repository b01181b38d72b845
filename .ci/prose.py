"""Lints the prose of code and docs: words that CONTRIBUTING.md rules out, each with what to write instead.

Of Python files it reads docstrings, other strings and comments; of all others the whole text.
"""

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

RULES = {
    r"behind|in front of": "after, before",
    r"nobody|somebody|anybody|everybody|whoever|(?-i:(?<![\"`])he)|his": "name the code, or use the passive",
    r"so many": "a name for the count: n, the number of ...",
    r"anew": "again, from scratch",
    r"but for|but where|apart": "except, unless, separately",
}
SUFFIXES = {".py", ".pyx", ".pxd", ".h", ".c", ".md", ".toml"}
EXCEPT = {".ci/prose.py"}  # it has to name them


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the lines to lint, with their numbers."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield from enumerate(token.string.splitlines(), token.start[0])


def main() -> int:
    """Prints each finding; returns their number, at most 1."""
    files = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split()
    found = 0
    for name in sorted(set(files) - EXCEPT):
        if Path(name).suffix in SUFFIXES and Path(name).exists():
            for number, line in prose(Path(name)):
                for pattern, advice in RULES.items():
                    if match := re.search(rf"\b({pattern})\b", line, re.IGNORECASE):
                        found += 1
                        print(f"{name}:{number}: {match[0]!r}: write {advice}")
    print(f"prose: {found} findings")
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main())
