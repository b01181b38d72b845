"""Figures: new ones or given ones, and sizes and colours for a notebook and a printed page."""

from __future__ import annotations

import io
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

WIDTH = 6.9  # inches: both columns of a printed page, and 690 pixels of a notebook
PAD = 0.06  # inches around the content
TEXT, SMALL = 8.0, 7.0  # points: of titles, of other text
BLUE, VERMILLION, GREY = "#0072B2", "#D55E00", "#707070"  # Okabe and Ito: safe for colour-blind readers


def figure_size(figure: Figure | SubFigure | None) -> tuple[float, float | None]:
    """Returns width and height of a figure in inches; (width, None) for a new one.

    Raises ImportError without matplotlib, TypeError unless it is a figure, ValueError unless it is empty.
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
        raise ValueError("figure: expected an empty one, got one with content: call its clear()")
    return figure.bbox.width / figure.dpi, figure.bbox.height / figure.dpi


def prepare_figure(figure: Figure | SubFigure | None, width: float, height: float) -> Any:
    """Returns the given figure, with constrained layout unless it has a layout engine; or a new one of this size."""
    if figure is None:
        return _new(width, height)
    root: Any = figure.figure
    if root.get_layout_engine() is None:
        root.set_layout_engine("constrained")
    return figure


def _new(width: float, height: float) -> Figure:
    """Returns a figure that is not registered in pyplot: it need not be closed, and a notebook shows it once."""
    from matplotlib.figure import Figure

    figure = Figure((width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=PAD, h_pad=PAD)  # type: ignore[union-attr,call-arg]
    # IPython can show a Figure only after pyplot was imported.
    figure._repr_png_ = partial(_png, figure)  # type: ignore[attr-defined]
    return figure


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def text_width(text: str, size: float = SMALL) -> float:
    """Returns the width of a line of text in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)
    return float(width) / 72


def shorten(text: Any, width: float, size: float = SMALL) -> str:
    """Returns text as one line, shortened to at most `width` inches."""
    line = " ".join(str(text).split())
    if text_width(line, size) <= width:
        return line
    while line and text_width(line + "…", size) > width:
        line = line[:-1].rstrip()
    return line + "…"


def count_label(n: int, what: str, shown: int | None = None) -> str:
    """Returns a label with a count, and the number shown if it is smaller.

    >>> count_label(1, "filter"), count_label(64, "filter", 16)
    ('1 filter', 'the first 16 of 64 filters')
    """
    return ("" if shown in (None, n) else f"the first {shown} of ") + f"{n} {what}" + "s" * (n != 1)


def wrap(text: str, width: float, size: float = TEXT) -> str:
    """Returns text in lines of at most `width` inches, broken between words."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if text_width(longer, size) > width and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = longer
    return "\n".join(lines)
