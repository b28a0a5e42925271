"""What the interval of a tiled machine is made of, and the result of the other exchange model."""

from __future__ import annotations

from mimdsim.profile import TiledProfile
from mimdsim.report.formatting import significant, thousands, unit_of
from mimdsim.report.tables import Table, count, percent, shown, spent, table, text


def doubts_table(tiled: TiledProfile, most: int) -> Table:
    """The `most` parts of the cycles that widen the interval most, and the exchange model not selected."""
    width = sum(doubt.half_width_cycles for doubt in tiled.doubts) or 1
    rows = [
        (
            text(doubt.name),
            text(doubt.kind),
            count(doubt.cycles),
            percent(doubt.cycles, tiled.cycles or 1),
            spent(tiled, tiled.seconds(doubt.half_width_cycles)),
            shown(_whole_share(doubt.half_width_cycles, width), doubt.half_width_cycles),
        )
        for doubt in tiled.doubts[:most]
    ]
    left = len(tiled.doubts) - len(rows)
    return table(
        "doubts",
        "What the interval is made of, widest first",
        ("part", "kind of source", "cycles", "of all cycles", f"plus or minus {unit_of(tiled)}", "of the width"),
        rows,
        (f"{thousands(left)} smaller parts are left out. " if left > 0 else "") + _other_model(tiled),
    )


def _other_model(tiled: TiledProfile) -> str:
    ours, other = tiled.exchange_cycles, tiled.exchange_cycles_other_model
    if not ours or not other:
        return ""
    change = 100 * (other / ours - 1)
    percent = f"{change:+.0f} %" if abs(change) >= 1 else f"{change:+.1f} %"
    milliseconds = f", {significant(1e3 * tiled.seconds(other - ours))} ms" if tiled.trains else ""
    return (
        f"With the other exchange model (exchange.model) the exchanges would take {thousands(other)} cycles instead "
        f"of {thousands(ours)} ({percent}{milliseconds})."
    )


def _whole_share(part: float, whole: float) -> str:
    """A percentage without decimals: '24 %', '<1 %'."""
    percent = 100 * part / whole
    return "<1 %" if 0 < percent < 0.5 else f"{percent:.0f} %"
