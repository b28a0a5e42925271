"""The figure of the comparison: milliseconds per training step on every machine and strategy, with intervals."""

from __future__ import annotations

from matplotlib.figure import Figure

from mimdsim.profile import RunProfile
from mimdsim.report.colours import INK, PART_COLOURS
from mimdsim.report.formatting import clipped, milliseconds
from mimdsim.report.machine_comparison import contenders
from mimdsim.report.style import heading, panels, stacked_bars, styled

LEGEND = ("compute (GPU: bound by it)", "exchange (GPU: memory-bound)", "sync (GPU: launch-bound)", "host")


@styled
def draw_comparison(profile: RunProfile) -> Figure | None:
    """Bars of milliseconds per training step, split by what limits the time, with intervals and ratios."""
    found = contenders(profile)
    if not profile.gpus and not profile.tiled_beside:
        return None
    rows = [[1e3 * part for part in one.parts] for one in found]
    figure, (axes,) = panels(height=1.5 + 0.42 * len(rows))
    # inches: on the page the letters are a little wider than in the layout
    figure.set_layout_engine("constrained", w_pad=0.18)
    stacked_bars(axes, rows, LEGEND, PART_COLOURS, [""] * len(rows))
    longest = max((1e3 * max(one.high, one.seconds) for one in found), default=0.0)
    for height, one in enumerate(found):
        low, high = min(one.low, one.seconds), max(one.high, one.seconds)
        reach = [[1e3 * (one.seconds - low)], [1e3 * (high - one.seconds)]]
        axes.errorbar(1e3 * one.seconds, height, xerr=reach, color=INK, capsize=3, linewidth=1.1)
        words = one.ratio_words if one.fits else "does not fit its memory"
        note = f"{milliseconds(one.seconds)} ms" + ("" if words == "–" else f" · {words}")
        beside = axes.get_yaxis_transform()  # a column to the right of the bars, for which the layout leaves room
        axes.text(1.01, height, note, va="center", fontsize=9, transform=beside)
    stars = ["★ " if one.strongest else "" for one in found]
    names = [star + clipped(one.label, 64) for star, one in zip(stars, found, strict=True)]
    axes.set_yticks(range(len(found)), names)
    for label, one in zip(axes.get_yticklabels(), found, strict=True):
        label.set_fontweight("bold" if one.tiled or one.strongest else "normal")
    heading(figure, "One training step on every machine (★ strongest strategy of its GPU; whiskers: interval)")
    axes.set_xlabel("milliseconds per training step")
    axes.set_xlim(0, 1.03 * longest or None)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure
