"""The figure at the head of 'Predicted and measured': the ratio of every row, one line per group, worst first."""

from __future__ import annotations

import math
from html import escape

from mimdsim.validation.console_table import files_of, kinds_of, summarised
from mimdsim.validation.tables import Row

LABELS, PLOT, FIGURES = 320, 440, 190  # widths in pixels: left of the dots, the dots, right of the dots
HEAD, LINE, FOOT = 34, 20, 26
TICKS = (0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4, 2.0)
LOW, HIGH = 0.5, 2.0  # ratios beyond are drawn at the edge
WITHIN, OUT, PALE = "#0072b2", "#d55e00", "#d0d0d0"


def ratios_svg(rows: list[Row]) -> str:
    """An SVG picture of predicted over published; the same rows give the same text."""
    groups = []
    for file, of_file in files_of(rows):
        for kind, chosen in kinds_of(of_file):
            found = summarised(chosen, kind)
            if found.mean_error is not None:
                name = f"{file.rpartition('.')[0].replace('_', ' ')}{', ' + kind if kind else ''}"
                groups.append((found.mean_error, name, found.within, [row for row in chosen if row.ratio is not None]))
    groups.sort(key=lambda group: (-group[0], group[1]))
    width, height = LABELS + PLOT + FIGURES, HEAD + LINE * len(groups) + FOOT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LABELS}" y="16" font-weight="bold">predicted / published, every row</text>',
        f'<text x="{LABELS + PLOT + 14}" y="16" font-weight="bold">mean error, within</text>',
    ]
    bottom = HEAD + LINE * len(groups)
    for tick in TICKS:
        colour = "#606060" if tick == 1 else PALE
        lines.append(f'<line x1="{_x(tick)}" y1="{HEAD - 8}" x2="{_x(tick)}" y2="{bottom}" stroke="{colour}"/>')
        lines.append(f'<text x="{_x(tick)}" y="{bottom + 16}" text-anchor="middle">{tick:g}</text>')
    for number, (error, name, within, chosen) in enumerate(groups):
        y = HEAD + LINE * number + LINE // 2
        lines.append(f'<text x="{LABELS - 10}" y="{y + 4}" text-anchor="end">{escape(name)}</text>')
        for row in sorted(chosen, key=lambda row: row.within is False):  # dots that are out are drawn on top
            colour = OUT if row.within is False else WITHIN
            lines.append(
                f'<circle cx="{_x(row.ratio or LOW)}" cy="{y}" r="3.5" fill="{colour}" fill-opacity="0.55">'
                f"<title>{escape(row.name)}: {row.ratio:.3f}</title></circle>"
            )
        lines.append(f'<text x="{LABELS + PLOT + 14}" y="{y + 4}">{error:.1%}, {within} of {len(chosen)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _x(ratio: float) -> str:
    share = math.log(min(max(ratio, LOW), HIGH) / LOW) / math.log(HIGH / LOW)
    return f"{LABELS + PLOT * share:.1f}"
