"""The tornado figure: what every varied field does to a number over its range, largest on top."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from mimdsim.report.colours import BLUE, GREY, INK, ORANGE, PALE
from mimdsim.report.formatting import clipped
from mimdsim.report.style import STYLE, heading, panels, plain_axis

MOST_BARS = 20
LONGEST_NAME = 48
LEAST_SHARE = 0.005  # of the longest bar; shorter ones cannot be seen
BOTH_SIGNS = 0.98  # share of its size that the mean has at most where effects visibly have both signs
NEITHER = "#BDBDBD"


def draw_tornado(rows: Sequence[dict[str, Any]], *, title: str, of: str, notes: Sequence[str] = ()) -> Figure | None:
    """One bar per field, from zero to its mean effect; whiskers: a standard deviation to each side.

    rows: axis, ends (low and high, as text), mean (with sign; None: the field has no direction), size (mean of the
    sizes), spread, first_order and total (index and half-width, or None), largest first; effects in percent. An outline
    reaches as far as the mean size where effects have both signs, to both sides where a field has no direction. The
    second panel has the shares of the variance, if there are any. of: what the effects are percent of. notes: more
    lines on top. None if no field has an effect.
    """
    drawn = [row for row in rows if row["size"] > 0][:MOST_BARS]
    if not drawn:
        return None
    visible = [row for row in drawn if row["size"] >= LEAST_SHARE * drawn[0]["size"]]
    shares = any(row["total"] for row in visible)
    with matplotlib.style.context(STYLE, after_reset=True):
        figure, axes = panels(
            1,
            1 + shares,
            width=12.0 if shares else 9.6,
            height=2.1 + 0.42 * len(visible) + 0.2 * len(notes),
            sharey=True,
            width_ratios=[2, 1] if shares else [1],
        )
        looks = _effects(axes[0], visible, of) + (_shares(axes[1], visible) if shares else [])
        heading(figure, title)
        figure.legend(handles=looks, loc="outside lower center", ncols=4)
        axes[0].set_title("\n".join([*_left_out(rows, visible), *notes]), fontsize=8.5, fontweight="normal")
    return figure


def _effects(panel: Axes, rows: Sequence[dict[str, Any]], of: str) -> list[Any]:
    """Draws the bars; returns what the legend says of them."""
    for height, row in enumerate(rows):
        mean, size = row["mean"], row["size"]
        if mean is None:
            panel.barh(height, 2 * size, left=-size, height=0.62, color=NEITHER, edgecolor=GREY)
            sign, edge = "±", size
        else:
            side = 1 if mean > 0 else -1
            panel.barh(height, side * size, height=0.62, color="none", edgecolor=GREY)
            panel.barh(height, mean, height=0.62, color=ORANGE if mean > 0 else BLUE)
            panel.errorbar(mean, height, xerr=row["spread"], color=INK, linewidth=1.0, capsize=3)
            sign, edge = "+" if mean > 0 else "−", side * max(size, abs(mean) + row["spread"])
        note = f"{sign}{_percent(size if mean is None else abs(mean))}"
        panel.annotate(
            note,
            (edge, height),
            xytext=(4 if edge >= 0 else -4, 0),
            textcoords="offset points",
            va="center",
            ha="left" if edge >= 0 else "right",
            fontsize=9,
        )
    panel.axvline(0, color=INK, linewidth=0.8)
    panel.set_yticks(range(len(rows)), [_label(row) for row in rows])
    panel.tick_params(axis="y", length=0)
    panel.set_ylim(len(rows) - 0.4, -0.6)
    panel.margins(x=0.16)
    plain_axis(panel.xaxis)
    panel.grid(axis="x")
    panel.set_xlabel(f"change from the first to the last value, % of {of}")
    looks: list[Any] = [Patch(color=BLUE, label="falls"), Patch(color=ORANGE, label="rises")]
    if any(row["mean"] is not None and abs(row["mean"]) < BOTH_SIGNS * row["size"] for row in rows):
        looks.append(Patch(facecolor="white", edgecolor=GREY, label="falls here, rises there: mean size"))
    if any(row["mean"] is None for row in rows):
        looks.append(Patch(facecolor=NEITHER, edgecolor=GREY, label="has no direction: mean size"))
    looks.append(Line2D([], [], color=INK, linewidth=1.0, marker="|", label="standard deviation of the effects"))
    return looks


def _shares(panel: Axes, rows: Sequence[dict[str, Any]]) -> list[Any]:
    for height, row in enumerate(rows):
        if row["total"] is None:
            panel.text(0.01, height, "at its base value", color=GREY, va="center", fontsize=8.5)
            continue
        (first, first_width), (total, total_width) = row["first_order"], row["total"]
        panel.barh(height, total, height=0.62, color=PALE, edgecolor=GREY)
        panel.errorbar(total, height - 0.15, xerr=total_width, color=GREY, linewidth=1.0, capsize=3)
        panel.errorbar(first, height + 0.15, xerr=first_width, color=INK, marker="o", markersize=5, capsize=3)
    left, right = panel.get_xlim()
    panel.set_xlim(min(0.0, left), max(1.0, right))
    panel.tick_params(axis="y", length=0)
    panel.grid(axis="x")
    panel.set_xlabel("share of the variance (95 % intervals)")
    return [
        Patch(facecolor=PALE, edgecolor=GREY, label="variance with its interactions"),
        Line2D([], [], color=INK, marker="o", markersize=5, label="variance alone"),
    ]


def _label(row: dict[str, Any]) -> str:
    low, high = row["ends"]
    name = clipped(row["axis"], LONGEST_NAME)
    return f"{name}\n{clipped(f'{low} to {high}', LONGEST_NAME)}"


def _percent(size: float) -> str:
    return f"{size:.2g} %" if size < 10 else f"{size:.0f} %"


def _left_out(rows: Sequence[dict[str, Any]], visible: Sequence[dict[str, Any]]) -> list[str]:
    """What is not drawn, and how large it is at most."""
    rest = rows[len(visible) :]
    if not rest:
        return []
    largest = max(row["size"] for row in rest)
    size = f"at most {_percent(largest)} each" if largest else "no effect"
    names = ", ".join(row["axis"] for row in rest[:2])
    more = f" and {len(rest) - 2} more" if len(rest) > 2 else ""
    return [f"Not drawn, {size}: {names}{more}"]
