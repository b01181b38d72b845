"""Checks that a tag names the version of this source, and that the changelog has its section.

python build_tools/check_tag.py v0.2.0
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def problems(tag: str, root: Path = ROOT) -> list[str]:
    """Returns a line for each reason not to release `root` under this tag."""
    source = (root / "minidl_c" / "__init__.py").read_text(encoding="utf-8")
    [version] = re.findall(r'^__version__ = "(.+)"$', source, re.M)
    found = []
    if tag != f"v{version}":
        found.append(f"the tag {tag} does not name the version of minidl_c/__init__.py, {version}")
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        found.append(f"{version} is not a release: expected three numbers")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", (root / "CHANGELOG.md").read_text(), re.M):
        found.append(f"CHANGELOG.md has no section [{version}] with a date")
    return found


if __name__ == "__main__":
    if found := problems(sys.argv[1]):
        sys.exit("\n".join(found))
