"""A drawn figure and the tables of a page as lines of text: what is shown, where and in which colours, in full numbers.

Nothing is rendered. What matplotlib decides by itself (ticks that nobody set, where the layout puts things) is left
out, so that the lines are the same under every version of it. Long columns of numbers are told by length, ends, sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, QuadMesh
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation, Text
from matplotlib.ticker import AutoLocator, FuncFormatter, LogLocator, NullLocator

from mimdsim.report.tables import Table

FEW = 6  # numbers that are told one by one
FEW_ROWS = 16  # of a table; of longer ones the first and last
PLAIN_TEXT = {"ha": "left", "va": "baseline", "size": "9.5", "weight": "normal", "colour": "#222222ff"}


def number(value: Any) -> str:
    return str(value) if isinstance(value, str) else "none" if value is None else f"{float(value):.9g}"


def numbers(values: Iterable[Any]) -> str:
    """Few numbers one by one; of many the length, the ends, the sum and the sum weighted by place."""
    found = np.ma.filled(np.ma.asarray(values, float), np.nan).ravel()
    if len(found) <= FEW:
        return " ".join(map(number, found))
    known = np.nan_to_num(found)
    weighted = float((known * np.arange(len(known))).sum())
    ends = f"{number(found[0])} {number(found[1])} .. {number(found[-2])} {number(found[-1])}"
    missing = int(np.isnan(found).sum())
    return f"{len(found)}: {ends}, sum {known.sum():.9g}, weighted {weighted:.9g}" + (
        f", {missing} missing" if missing else ""
    )


def colour(value: Any, alpha: float | None = None) -> str:
    return "none" if isinstance(value, str) and value == "none" else to_hex((value, alpha) if alpha else value, True)


def figure_lines(figure: Figure) -> Iterator[str]:
    width, height = figure.get_size_inches()
    layout: Any = figure.get_layout_engine()
    room = "" if layout is None else f", room {number(layout.get()['w_pad'])} {number(layout.get()['h_pad'])}"
    yield f"figure {number(width)} x {number(height)} inches{room}"
    if figure.get_suptitle():
        (title,) = figure.texts
        yield f"  heading{_text(title)}"
    for axes in figure.axes:
        yield from (f"  {line}" for line in _axes(axes))
    for legend in figure.legends:
        yield from (f"  {line}" for line in _legend(legend))


def _axes(axes: Axes) -> Iterator[str]:
    if not axes.axison:
        yield "panel without axes"
        if axes.get_legend() is not None:
            yield from (f"  {line}" for line in _legend(axes.get_legend()))
        return
    place: Any = axes.get_subplotspec()
    if place is None:
        yield "panel"
    else:
        grid = place.get_gridspec()
        ratios = f"{numbers(grid.get_height_ratios())} by {numbers(grid.get_width_ratios())}"
        shared = "".join(f", shares {name}" for name in "xy" if _shared(axes, name))
        yield f"panel {place.num1} of {ratios}{shared}"
    title = axes.get_title(loc="left")
    if title:
        yield f"  title{_text(axes._left_title)}"
    for name in "xy":
        yield from (f"  {line}" for line in _axis(axes, name))
    spines = [f"{name} {colour(one.get_edgecolor())}" for name, one in axes.spines.items() if one.get_visible()]
    yield f"  spines {', '.join(spines) or 'none'}; background {colour(axes.get_facecolor())}"
    for line in axes.lines:
        yield f"  line {_line(line)}"
    for collection in axes.collections:
        if isinstance(collection, QuadMesh):  # the colours beside a map
            continue
        yield f"  {_collection(collection)}"
    for look, alike in groupby(axes.patches, _look):
        yield f"  patches {look}: {_sides(list(alike))}"
    for image in axes.images:
        yield f"  image {image.get_array().shape}: {numbers(image.get_array())}"
        palette = image.get_cmap()
        colours = " ".join(colour(one) for one in getattr(palette, "colors", ())) if palette.N < 20 else palette.name
        limits = " ".join("open" if end is None else number(end) for end in image.get_clim())
        nearest = (
            ", nearest" if image.get_interpolation() == "nearest" else ""
        )  # what is usual has other names elsewhere
        yield f"    {colours}, limits {limits}{nearest}"
    for text in filter(Text.get_text, axes.texts):
        yield f"  text{_text(text)}"
    if axes.get_legend() is not None:
        yield from (f"  {line}" for line in _legend(axes.get_legend()))


def _shared(axes: Axes, name: str) -> bool:
    group = axes.get_shared_x_axes() if name == "x" else axes.get_shared_y_axes()
    return len(group.get_siblings(axes)) > 1


def _axis(axes: Axes, name: str) -> Iterator[str]:
    axis = axes.xaxis if name == "x" else axes.yaxis
    low, high = axes.get_xlim() if name == "x" else axes.get_ylim()
    fixed = not (axes.get_autoscalex_on() if name == "x" else axes.get_autoscaley_on())
    said = [f"{name}: {axis.get_scale()}"]
    if axis.get_inverted():
        said.append("from the top" if name == "y" else "from the right")
    if fixed:
        said.append(f"{number(low)} to {number(high)}")
    locator, formatter = axis.get_major_locator(), axis.get_major_formatter()
    if not isinstance(locator, AutoLocator | LogLocator):
        ticks = locator.tick_values(low, high)
        where = "nowhere" if isinstance(locator, NullLocator) else numbers(ticks)
        said.append(f"ticks {where}")
        labels = [formatter(value, place) for place, value in enumerate(ticks)]
        said.append("named " + " | ".join(labels))
    elif isinstance(formatter, FuncFormatter):
        said.append("named " + " | ".join(formatter(value, 0) for value in (-2.5, 0, 0.00125, 20.5, 1234567)))
    if isinstance(axis.get_minor_locator(), NullLocator):
        said.append("no minor ticks")
    look = axis.get_tick_params()
    said += [f"{key} {number(look[key])}" for key in ("length", "labelsize") if key in look]
    if look.get("gridOn", look.get("grid_on")):
        said.append(f"grid {' '.join(sorted({colour(line.get_color()) for line in axis.get_gridlines()}))}")
    weights = [label.get_fontweight() for label in axis.get_ticklabels()] if "bold" in _weights(axis) else []
    said += [f"weights {' '.join(map(str, weights))}"] if weights else []
    yield ", ".join(said)
    if axis.get_label_text():
        yield f"  named{_text(axis.label, placed=False)}"


def _weights(axis: Any) -> set[str]:
    return {str(tick.label1.get_fontweight()) for tick in axis.majorTicks}


def _text(text: Text, *, placed: bool = True) -> str:
    """Where and how, as far as it is not usual, and the words."""
    look = {
        "ha": text.get_ha(),
        "va": text.get_va(),
        "size": number(text.get_fontsize()),
        "weight": str(text.get_fontweight()),
        "colour": colour(text.get_color()),
    }
    said = [f"{key} {value}" for key, value in look.items() if value != PLAIN_TEXT[key] and (placed or key == "size")]
    if placed and isinstance(text, Annotation):
        said.append(f"at {numbers(text.xy)} moved {numbers(text.xyann)} {text.anncoords}")
    elif placed and text.axes is not None and text not in (text.axes.title, text.axes._left_title):
        said.append(f"at {_along(text)} {numbers(text.get_position())}")
    elif placed and text.axes is None:
        said.append(f"at {numbers(text.get_position())}")
    box = text.get_bbox_patch()
    if box is not None:
        around = number(box.get_boxstyle().pad * text.get_fontsize())
        said.append(f"box {colour(box.get_facecolor())} edge {colour(box.get_edgecolor())} {around} around")
    if text.get_parse_math():
        said.append("parsed as mathematics")
    how = f" ({', '.join(said)})" if said else ""
    return f"{how} {text.get_text()}"


def _along(artist: Any) -> str:
    """Whether a place counts in data or in shares of the panel, by axis."""
    x, y = artist.get_transform().contains_branch_seperately(artist.axes.transData)
    return "".join("data"[0] if one else "panel"[0] for one in (x, y))


def _line(line: Line2D) -> str:
    dashes = getattr(line, "_unscaled_dash_pattern", (0, None))
    style = line.get_linestyle() if dashes[1] is None else f"{dashes[0]:g} {[round(float(d), 6) for d in dashes[1]]}"
    if line.get_linestyle() in ("None", "none", " ", ""):
        style = "no line"
    said = [f"{style} {number(line.get_linewidth())} {colour(line.get_color())}"]
    if str(line.get_marker()).lower() != "none":
        size = f"{number(line.get_markersize())} edge {number(line.get_markeredgewidth())}"
        said.append(f"marker {line.get_marker()} {size} {colour(line.get_markerfacecolor())}")
    if line.get_rasterized():
        said.append("as pixels")
    if not line.get_clip_on():
        said.append("not clipped")
    if not str(line.get_label()).startswith("_"):
        said.append(f"'{line.get_label()}'")
    along = "dd" if line.axes is None else _along(line)
    x, y = line.get_data(orig=True)
    return f"{', '.join(said)}; {along} x {numbers(np.atleast_1d(x))}; y {numbers(np.atleast_1d(y))}"


def _collection(collection: Any) -> str:
    if isinstance(collection, LineCollection):
        ends = " | ".join(numbers(np.ravel(segment)) for segment in collection.get_segments())
        return f"strokes {' '.join(map(colour, collection.get_colors()))} {numbers(collection.get_linewidth())}: {ends}"
    said = [" ".join(map(colour, collection.get_facecolor())), f"edge {numbers(collection.get_linewidth())}"]
    if not str(collection.get_label()).startswith("_"):
        said.append(f"'{collection.get_label()}'")
    return f"area {', '.join(said)}: {_corners(collection.get_paths())}"


def _look(patch: Any) -> str:
    label = "" if str(patch.get_label()).startswith("_") else f" '{patch.get_label()}'"
    return (
        f"{colour(patch.get_facecolor())} edge {colour(patch.get_edgecolor())} {number(patch.get_linewidth())}{label}"
    )


def _sides(patches: list[Any]) -> str:
    """Bars, spans and steps by the box they fill: of a bar that is all."""
    boxes = []
    for patch in patches:
        if isinstance(patch, Rectangle):
            boxes.append((patch.get_x(), patch.get_y(), patch.get_width(), patch.get_height()))
        else:  # what older versions draw for a span
            corners = patch.get_path().vertices
            boxes.append((*corners.min(axis=0), *np.ptp(corners, axis=0)))
    names = ("x", "y", "width", "height")
    return "; ".join(f"{name} {numbers(sides)}" for name, sides in zip(names, zip(*boxes, strict=True), strict=True))


def _corners(paths: list[Any]) -> str:
    """Versions close an outline in different places: its different corners, in order, are the same."""
    found = [np.unique(np.round(path.vertices, 9), axis=0) for path in paths]
    return " | ".join(f"x {numbers(each[:, 0])}; y {numbers(each[:, 1])}" for each in found)


def _legend(legend: Legend) -> Iterator[str]:
    outside: Any = getattr(legend, "_outside_loc", None)
    place = f"outside {outside}" if outside else f"place {legend._loc}"
    frame = "framed" if legend.get_frame_on() else "no frame"
    title = legend.get_title().get_text()
    titled = f", titled {title}" if title else ""
    yield f"legend {place}, {legend._ncols} columns, {frame}{titled}"
    for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
        if handle is None:
            look = "nothing"
        elif isinstance(handle, Line2D):
            look = f"line {colour(handle.get_color())} {handle.get_linestyle()} {handle.get_marker()}"
        else:
            face: Any = np.asarray(handle.get_facecolor(), float)
            look = f"area {colour(face.reshape(-1, 4)[0])}"
        yield f"  {look} (size {number(text.get_fontsize())}): {text.get_text()}"


def table_lines(table: Table) -> Iterator[str]:
    last = ", last is the total" if table.last_is_total else ""
    yield f"table {table.name}: {table.caption}{last}"
    yield f"  numbers: {' '.join(name for name, is_one in zip(table.headers, table.numeric, strict=True) if is_one)}"
    yield f"  {' | '.join(table.headers)}"
    rows: Sequence[Any] = table.rows
    for place, row in enumerate(rows):
        if len(rows) <= FEW_ROWS or place < FEW or place >= len(rows) - 2:
            yield f"  {' | '.join(_cell(cell) for cell in row)}"
    if len(rows) > FEW_ROWS:
        yield f"  {len(rows)} rows"
    if table.note:
        yield f"  note: {table.note}"


def _cell(cell: Any) -> str:
    value = "" if cell.value is None else f" ={number(cell.value)}"
    return f"{cell.text}{value}{f' [{cell.tag}]' if cell.tag else ''}"
