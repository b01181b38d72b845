"""Text that quotes files."""

import pytest

from minidl.utils.text import escape, escape_lines


@pytest.mark.parametrize("char", ["\x1b", "\x07", "\r", "\n", "\x9b", "\u202e", "\u2028", "\udc80", "\U000e0001"])
def test_characters_that_are_not_printable_are_escaped(char):
    assert escape(f"a{char}'\"") == f"a{repr(char)[1:-1]}'\"" and escape(char).isprintable()


def test_printable_characters_stay():
    assert escape("caf\u00e9 \\ '\u4e2d'") == "caf\u00e9 \\ '\u4e2d'"


def test_lines_stay():
    assert escape_lines("a\n  b\r\n") == "a\n  b\\r\n"
