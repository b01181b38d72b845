"""Writes the notebooks of the course: each has the cells of the script beside it.

python build_tools/notebooks.py

A script is in percent format: a line `# %%` begins a cell of code, `# %% [markdown]` one of text in comments.
"""

import json
import re
from pathlib import Path

EXERCISES = Path(__file__).parents[1] / "docs" / "teaching" / "exercises"
MARK = re.compile(r"^# %%(.*)\n", re.M)
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def notebook(script: str) -> str:
    """Returns the text of the notebook with the cells of a script."""
    start, *parts = MARK.split(script)
    if start.strip():
        raise ValueError(f"expected a script that begins with '# %%', got {start[:40]!r}")
    cells = [cell(number, *pair) for number, pair in enumerate(zip(parts[::2], parts[1::2], strict=True), 1)]
    content = {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def cell(number: int, kind: str, text: str) -> dict[str, object]:
    """Returns a cell. kind: what follows the mark, " [markdown]" or nothing."""
    text = text.strip("\n")
    common: dict[str, object] = {"id": f"cell-{number}", "metadata": {}}
    if kind.strip() == "[markdown]":
        text = re.sub(r"^# ?", "", text, flags=re.M)
        return {"cell_type": "markdown", **common, "source": text.splitlines(keepends=True)}
    if kind.strip():
        raise ValueError(f"expected '# %%' or '# %% [markdown]', got '# %%{kind}'")
    source = text.splitlines(keepends=True)
    return {"cell_type": "code", "execution_count": None, **common, "outputs": [], "source": source}


def main() -> None:
    """Writes the notebook of each exercise."""
    for path in sorted(EXERCISES.glob("*.py")):
        path.with_suffix(".ipynb").write_text(notebook(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
