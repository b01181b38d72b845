"""Figures, font sizes and colours, for notebooks and printed pages."""

from __future__ import annotations

import io
from functools import partial
from typing import TYPE_CHECKING, Any

from minidl.utils.optional import needs

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

PAGE_WIDTH = 6.9  # inches: two columns of a printed page, or 690 pixels in a notebook
PAD = 0.06  # inches: padding of the layout engine
TITLE_POINTS, TEXT_POINTS = 8.0, 7.0  # font sizes: titles, all other text
# One palette, safe for colour-blind readers: blue and red of ColorBrewer's RdBu; tints and an orange for marks.
BLUE, RED, GREY = "#2166AC", "#B2182B", "#707070"
PALE_BLUE, PALE_PURPLE, ORANGE = "#92C5DE", "#C2A5CF", "#E69F00"
# Colour maps: from 0 (white) upwards; around 0 (white); numbers of errors.
SEQUENTIAL, DIVERGING, ERRORS = "Blues", "RdBu_r", "Reds"


def figure_size(figure: Figure | SubFigure | None) -> tuple[float, float | None]:
    """Returns width and height in inches of the figure to draw into; for a new one (None) only the width.

    Raises ImportError without matplotlib, TypeError unless it is a figure, ValueError unless it is empty.
    """
    with needs("matplotlib", "a plot"):
        from matplotlib.figure import Figure, SubFigure
    if figure is None:
        return PAGE_WIDTH, None
    if not isinstance(figure, (Figure, SubFigure)):
        raise TypeError(f"figure: expected a Figure or SubFigure of matplotlib, or None, got {type(figure).__name__}")
    if figure.axes or figure.texts or figure.subfigs:
        raise ValueError("figure: expected an empty one, got one with content: call its clear()")
    return figure.bbox.width / figure.dpi, figure.bbox.height / figure.dpi


def prepare_figure(figure: Figure | SubFigure | None, width: float, height: float) -> Any:
    """Returns the figure to draw into, or a new one of that size; sets the constrained layout unless it has another."""
    if figure is None:
        return _new_figure(width, height)
    root: Any = figure.figure
    if root.get_layout_engine() is None:
        root.set_layout_engine("constrained")
    return figure


def _new_figure(width: float, height: float) -> Figure:
    """Returns a figure that is not registered with pyplot: it need not be closed, and a notebook shows it once."""
    from matplotlib.figure import Figure

    figure = Figure((width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=PAD, h_pad=PAD)  # type: ignore[union-attr,call-arg]
    # Notebooks can display a Figure only after pyplot was imported.
    figure._repr_png_ = partial(_png, figure)  # type: ignore[attr-defined]
    return figure


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def text_width(text: str, size: float = TEXT_POINTS) -> float:
    """Returns the width of a line of text in inches. size: of the font, in points."""
    with needs("matplotlib", "a plot"):
        from matplotlib.font_manager import FontProperties
        from matplotlib.textpath import text_to_path
    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)
    return float(width) / 72


def truncate(text: Any, width: float, size: float = TEXT_POINTS) -> str:
    """Returns the text as one line, cut with an ellipsis to `width` inches."""
    line = " ".join(str(text).split())
    if text_width(line, size) <= width:
        return line
    while line and text_width(line + "…", size) > width:
        line = line[:-1].rstrip()
    return line + "…"


def count_label(n: int, noun: str, shown: int | None = None) -> str:
    """Returns a phrase for a count, and for how many of them are shown.

    >>> count_label(1, "filter"), count_label(1024, "filter", 16)
    ('1 filter', 'the first 16 of 1,024 filters')
    """
    return ("" if shown in (None, n) else f"the first {shown:,} of ") + f"{n:,} {noun}" + "s" * (n != 1)


def wrap(text: str, width: float, size: float = TITLE_POINTS) -> str:
    """Wraps text into lines of at most `width` inches; longer words are not broken."""
    lines = [""]
    for word in text.split():
        extended = f"{lines[-1]} {word}".strip()
        if text_width(extended, size) > width and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = extended
    return "\n".join(lines)
