"""The prose lint finds the words that it rules out, where they are prose, and nothing else."""

import runpy
from pathlib import Path

import pytest

findings = runpy.run_path(str(Path(__file__).parents[1] / ".ci" / "prose.py"))["findings"]

WORDS = ["behind", "in front of", "nobody", "Whoever", "he", "his", "so many", "anew", "but for", "apart"]
PLACES = {
    "docstring": ('def f():\n    """Adds one {} the other."""\n', ".py", 2),
    "comment": ("x = 1\ny = 2  # one {} the other\n", ".py", 2),
    "message": ('raise ValueError(f"{{x}} stands {} y")\n', ".py", 1),
    "Cython": ("cdef int n  # one {} the other\n", ".pyx", 1),
    "line of C": ("int n; // one {} the other\n", ".h", 1),
    "block of C": ("int n;\n/* the first\n   {} the other */\n", ".c", 3),
    "Markdown": ("# Title\n\nOne {} the other.\n", ".md", 3),
    "Markdown's Python": ("```python\nx = 1  # one {} the other\n```\n", ".md", 2),
    "Markdown's text": ("```text\none {} the other\n```\n", ".md", 2),
    "Makefile": ("help: ## one {} the other\n", "", 1),
}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("place", PLACES)
def test_word_is_found(place, word):
    text, suffix, line = PLACES[place]
    assert [found[:2] for found in findings(text.format(word), suffix)] == [(line, word)]


@pytest.mark.parametrize(
    ("text", "suffix"),
    [
        ('"""Takes so\n    many steps."""\n', ".py"),
        ("# takes so\n# many steps\n", ".py"),
        ("It takes so\nmany steps.\n", ".md"),
    ],
)
def test_words_over_two_lines_are_found(text, suffix):
    assert [found[:2] for found in findings(text, suffix)] == [(1, "so many")]


@pytest.mark.parametrize(
    ("text", "suffix"),
    [
        ("behind = apart(anew, he=his)\nnobody.behind += 1\n", ".py"),
        ('inits = {"he": 1, "damped": 2}\nfound["apart"]\n', ".py"),
        ('f"{behind:.1f} points, {apart} of them"\n', ".py"),
        ('"""`tile.apart` is the stride; ``behind`` as well."""\n', ".py"),
        ("cdef int apart = his\n", ".pyx"),
        ("static int behind(int apart) { return 'x'; }\n", ".h"),
        ("| `tile.apart` | `tile.sum_stride` |\n", ".md"),
        ("```python\nbehind(apart)\n```\n\n    python run.py --inits he\n", ".md"),
        ("This is theirs; others shape and anneal it. He-uniform weights.\n", ".md"),
    ],
)
def test_names_and_code_are_not_found(text, suffix):
    assert not findings(text, suffix)


def test_string_with_a_quote_inside_ends_where_it_ends():
    text = "x = \"it's\"; behind = 1; y = 'all \\' of it'; apart = 2\n"
    assert not findings(text, ".py")
