"""Figures: new ones, or those to draw into; sizes and colours for a notebook and for a printed page."""

from __future__ import annotations

import io
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

WIDTH = 6.9  # inches: both columns of a printed page, and 690 pixels of a notebook
PAD = 0.06  # inches around everything in it
TEXT, SMALL = 8.0, 7.0  # points: of titles, and of all other text
BLUE, VERMILLION, GREY = "#0072B2", "#D55E00", "#707070"  # Okabe and Ito: everybody can tell them apart


def room(figure: Figure | SubFigure | None) -> tuple[float, float | None]:
    """Width and height, in inches, of the figure to draw into; of a new one (None) the width alone.

    Raises ImportError without matplotlib, TypeError for what is no figure, ValueError for one with something in it.
    """
    try:
        from matplotlib.figure import Figure, SubFigure
    except ImportError as error:
        raise ImportError('plots need matplotlib: pip install "minidl[plot]"') from error
    if figure is None:
        return WIDTH, None
    if not isinstance(figure, (Figure, SubFigure)):
        raise TypeError(f"figure: expected a Figure or SubFigure of matplotlib, or None, got {type(figure).__name__}")
    if figure.axes or figure.texts or figure.subfigs:
        raise ValueError("figure: expected an empty one, got one with something in it: call its clear()")
    return figure.bbox.width / figure.dpi, figure.bbox.height / figure.dpi


def ready(figure: Figure | SubFigure | None, width: float, height: float) -> Any:
    """The figure to draw into, or a new one of that size; one that has no layout engine gets the constrained layout."""
    if figure is None:
        return _new(width, height)
    root: Any = figure.figure
    if root.get_layout_engine() is None:
        root.set_layout_engine("constrained")
    return figure


def _new(width: float, height: float) -> Figure:
    """A figure that pyplot does not know: nobody has to close it, and a notebook shows it once."""
    from matplotlib.figure import Figure

    figure = Figure((width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=PAD, h_pad=PAD)  # type: ignore[union-attr,call-arg]
    # Notebooks know how to show a Figure only if somebody has imported pyplot.
    figure._repr_png_ = partial(_png, figure)  # type: ignore[attr-defined]
    return figure


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def inches(text: str, size: float = SMALL) -> float:
    """How wide a line of text will be."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)
    return float(width) / 72


def shortened(text: Any, width: float, size: float = SMALL) -> str:
    """One line of text, cut where it would be wider than so many inches."""
    line = " ".join(str(text).split())
    if inches(line, size) <= width:
        return line
    while line and inches(line + "…", size) > width:
        line = line[:-1].rstrip()
    return line + "…"


def counted(n: int, what: str, shown: int | None = None) -> str:
    """How many of something there are, and how many of them are shown.

    >>> counted(1, "filter"), counted(64, "filter", 16)
    ('1 filter', 'the first 16 of 64 filters')
    """
    return ("" if shown in (None, n) else f"the first {shown} of ") + f"{n} {what}" + "s" * (n != 1)


def wrapped(text: str, width: float, size: float = TEXT) -> str:
    """Text in lines that are no wider than so many inches, where its words allow it."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if inches(longer, size) > width and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = longer
    return "\n".join(lines)
