"""One style for every figure: fixed fonts, fixed bytes."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image  # which matplotlib brings

from mimdsim.report.formatting import GREY, INK, PALE, thousands

LABEL_BOX = {"facecolor": "white", "edgecolor": PALE, "pad": 1.5}

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that letters are the same on every machine
    "font.size": 9.5,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "figure.titlesize": 11,
    "figure.titleweight": "bold",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.axisbelow": True,
    "grid.color": PALE,
    "text.color": INK,
    "text.parse_math": False,  # a dollar in a layer's name is taken literally
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.dpi": 100,
}
PNG_DOTS_PER_INCH = 130
NOTE_ROOM = 1.3  # the axis extends beyond the longest bar, to leave room for its note


# decorators of functions that draw: the user's own matplotlib settings do not count
styled = matplotlib.style.context(STYLE, after_reset=True)
# of figures in which no axis has an exponent, which would stand above the panel: titles need no look at what does
styled_plain = matplotlib.style.context(STYLE | {"axes.titley": 1.0}, after_reset=True)


_new_figure: ContextVar[Callable[..., Figure]] = ContextVar("_new_figure", default=Figure)


@contextmanager
def on_pyplot() -> Iterator[Callable[[Figure], None]]:
    """Figures that are made meanwhile are pyplot's, which notebooks show; yields what closes one."""
    from matplotlib import pyplot

    token = _new_figure.set(pyplot.figure)
    try:
        yield pyplot.close
    finally:
        _new_figure.reset(token)


def panels(
    rows: int = 1, columns: int = 1, *, ax: Axes | None = None, width: float = 9.6, height: float, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure of rows x columns axes, row by row; width and height in inches. ax: axes that are there instead."""
    if ax is not None:
        return cast(Figure, ax.figure), [ax]
    figure = _new_figure.get()(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, list(axes.flat)


@styled
def picture(figure: Figure) -> bytes:
    """`figure` as the bytes of a PNG file without date and program version: the same figure gives the same bytes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a title may be in any script
        figure.dpi = PNG_DOTS_PER_INCH
        # not by savefig, which draws everything a first time just to see how much room it takes
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
    png = io.BytesIO()
    Image.fromarray(np.asarray(canvas.buffer_rgba())[:, :, :3]).save(png, "PNG")
    return png.getvalue()


def heading(figure: Figure, title: str, ax: Axes | None = None) -> None:
    """A title over the whole width, for figures whose labels take much of it; or of the axes `ax`."""
    if ax is not None:
        ax.set_title("\n".join(textwrap.fill(line, 52) for line in title.split("\n")), loc="left", fontsize=9.5)
    else:
        figure.suptitle(title, x=0.01, ha="left")


def legend_beside(
    figure: Figure, axes: Axes, where: str, *, within: bool, columns: int = 1, reverse: bool = False
) -> None:
    """The legend of `axes` outside of it, at that side of its figure; or in the axes, where the figure has others."""
    handles, labels = axes.get_legend_handles_labels()
    order = slice(None, None, -1 if reverse else 1)
    where_and_how: dict[str, Any] = {"loc": f"outside {where}", "ncols": columns}
    if within:
        where_and_how = {"loc": "best", "fontsize": 7.5, "frameon": True}
    (axes if within else figure).legend(handles[order], labels[order], **where_and_how)


def thousands_axis(axis: Any, most: int = 8) -> None:
    """Whole numbers with separators along `axis`, at most so many steps."""
    axis.set_major_locator(MaxNLocator(integer=True, nbins=most))
    axis.set_major_formatter(FuncFormatter(lambda value, _: thousands(value)))


def plain_axis(axis: Any) -> None:
    """Decimal numbers along `axis`, no exponents."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def stacked_bars(
    axes: Axes, rows: Sequence[Sequence[float]], labels: Sequence[str], colours: Sequence[str], notes: Sequence[str]
) -> None:
    """Horizontal stacked bars from zero, first row on top; `notes` are placed at the ends of the bars."""
    lefts = [0.0] * len(rows)
    heights = list(range(len(rows)))
    for part, (label, colour) in enumerate(zip(labels, colours, strict=True)):
        values = [row[part] for row in rows]
        axes.barh(heights, values, left=lefts, color=colour, edgecolor="white", linewidth=0.4, label=label, height=0.7)
        lefts = [left + value for left, value in zip(lefts, values, strict=True)]
    longest = max(lefts, default=0.0)
    for height, end, note in zip(heights, lefts, notes, strict=True):
        axes.text(end + 0.008 * longest, height, note, va="center", fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(0, NOTE_ROOM * longest or 1.0)
    plain_axis(axes.xaxis)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
