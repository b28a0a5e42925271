"""What would make a training step faster, with the commands that do it."""

from __future__ import annotations

from mimdsim.profile import RunProfile
from mimdsim.report.tables import Table, count, shown, table, text

NOTE = (
    "the interval is that of the ratio, in which costs that both share are off alike. A change of the machine says "
    "what the machine would gain, not that it can be built. Changes do not add up"
)


def advice_table(profile: RunProfile) -> Table:
    """Changes that save time, most first."""
    rows = [
        (
            text(one.what),
            text(one.kind),
            shown(f"{100 * one.gain:.1f} %", one.gain),
            shown(f"{100 * one.gain_low:.1f} to {100 * one.gain_high:.1f} %", one.gain_low),
            count(one.cycles),
            count(one.more_bytes),
            text(one.superstep),
            count(one.before),
            count(one.after),
            text(one.command),
        )
        for one in profile.advice
    ]
    headers = (
        *("change", "of the", "time saved", "interval", "cycles", "more bytes on the fullest tile"),
        *("shortens most", "its cycles", "then", "command"),
    )
    note = f"Each change was compiled and timed with the same spikes; {NOTE}; mimdsim place looks for the best mapping."
    if profile.tiled is not None and not profile.tiled.trains:
        note = f"For each change the kernel was built, checked and timed again; {NOTE}."
    return table("advice", "What would save time", headers, rows, note)
