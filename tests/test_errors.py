"""Checks docs/reference/errors.md: each mistake on that page raises the error it quotes, word for word."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
CODE, TEXT = re.compile(r"^```python\n(.*?)^```$", re.M | re.S), re.compile(r"^```text\n(.*?)\n```$", re.M | re.S)
PREAMBLE, *MISTAKES = re.split(r"^## ", PAGE, flags=re.M)


def test_the_page_has_twenty_mistakes():
    assert len(MISTAKES) >= 20


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda text: text.partition("\n")[0])
def test_a_mistake_raises_the_quoted_error(mistake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program, names = CODE.findall(PREAMBLE)[0], {}
    exec(program, names)
    with pytest.raises(Exception) as raised:
        exec(CODE.findall(mistake)[0], names)
    assert [f"{raised.type.__name__}: {raised.value}"] == TEXT.findall(mistake)
