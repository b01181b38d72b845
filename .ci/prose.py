"""Lints the prose of code and docs: words that CONTRIBUTING.md rules out, each with what to write instead.

Prose is docstrings, comments and strings of Python, Cython and C files, and the whole text of other files. Not prose:
names, strings of a single word (keys), replacement fields of f-strings, and what stands between backticks.
"""

import re
import subprocess
import sys
from pathlib import Path

RULES = {
    r"behind|in front of": "after, before",
    r"nobody|somebody|anybody|everybody|whoever|(?-i:he)|his": "the name of the code, or the passive",
    r"so many": "a name for the count: n, the number of ...",
    r"anew": "again, from scratch",
    r"but for|but where|apart": "except, unless, separately",
}
PATTERNS = {
    re.compile(r"\b(" + words.replace(" ", r"\s+") + r")\b", re.IGNORECASE): advice for words, advice in RULES.items()
}
PYTHON = re.compile(
    r"""
    \#(?P<comment>[^\n]*)
    | (?P<f>\b[br]*f[br]*)? (?P<quote>'{3}|"{3}|['"]) (?P<string>(?:\\.|(?!(?P=quote)).)*) (?P=quote)
    """,
    re.I | re.S | re.X,
)
C = re.compile(
    r"""
    //(?P<comment>[^\n]*)
    | /\*(?P<block>.*?)\*/
    | "(?P<string>(?:\\.|[^"\\\n])*)"
    | '(?:\\.|[^'\\\n])+'
    """,
    re.S | re.X,
)
LANGUAGES = {".py": PYTHON, ".pyx": PYTHON, ".pxd": PYTHON, ".h": C, ".c": C}
FENCES = {"python": PYTHON, "cython": PYTHON, "c": C, "": PYTHON}  # and indented blocks: shell, mostly
MARKDOWN_CODE = re.compile(r"^```(\w*)\n(.*?)^```$|^(?: {4,}[^\n]*\n)+", re.M | re.S)
WHOLE = {".md", ".toml"}
WHOLE_FILES = {"Makefile", ".ci/run"}
EXCEPT = {".ci/prose.py", "tests/test_prose.py"}  # they have to name the words


def blank(text: str) -> str:
    """Returns spaces of the same length; line ends stay, and with them line numbers."""
    return re.sub(r"[^\n]", " ", text)


def prose_of_code(text: str, language: re.Pattern[str]) -> str:
    """Returns the text with everything except comments and strings blanked."""
    kept, end = [], 0
    for match in language.finditer(text):
        group = match.lastgroup
        words = match[group] or "" if group else ""
        if group == "string":
            if match.groupdict().get("f"):
                words = re.sub(r"\{[^{}]*\}", lambda field: blank(field[0]), words)
            if not re.search(r"\s", words):
                words = blank(words)
        start = match.start(group) if group else match.end()
        kept += [blank(text[end:start]), words]
        end = start + len(words)
    return "".join([*kept, blank(text[end:])])


def prose_of_block(block: re.Match[str]) -> str:
    """Returns the prose of a code block in Markdown; a block of plain text is prose as a whole."""
    language = FENCES.get(block[1] or "")
    return prose_of_code(block[0], language) if language else block[0]


def prose(text: str, suffix: str) -> str:
    """Returns the text of a file with everything except its prose blanked."""
    if language := LANGUAGES.get(suffix):
        text = prose_of_code(text, language)
    elif suffix == ".md":
        text = MARKDOWN_CODE.sub(prose_of_block, text)
    return re.sub(r"(`+)[^`\n]+\1", lambda code: blank(code[0]), text)


def findings(text: str, suffix: str) -> list[tuple[int, str, str]]:
    """Returns line number, words and advice of each finding, in the order of the lines."""
    text = prose(text, suffix)
    return sorted(
        (text.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), advice)
        for pattern, advice in PATTERNS.items()
        for match in pattern.finditer(text)
    )


def main() -> int:
    """Prints all findings in tracked files; returns 1 if there are any."""
    files = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.splitlines()
    count = 0
    for name in sorted(set(files) - EXCEPT):
        path = Path(name)
        if (path.suffix in LANGUAGES.keys() | WHOLE or name in WHOLE_FILES) and path.exists():
            for line, words, advice in findings(path.read_text(encoding="utf-8"), path.suffix):
                print(f"{name}:{line}: {words!r}: write {advice}")
                count += 1
    print(f"prose: {count} findings")
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
