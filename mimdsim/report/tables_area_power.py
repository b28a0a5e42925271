"""Area and power of the tiled machines of a run: side by side, and the parts of one chip."""

from __future__ import annotations

from mimdsim.profile import RunProfile, TiledProfile
from mimdsim.report.formatting import plain, significant
from mimdsim.report.tables import Cell, Table, percent, shown, table, text


def silicon_table(profile: RunProfile) -> Table | None:
    """Area, static and dynamic watts of every tiled machine, all its chips together; None without a tiled machine."""
    if profile.tiled is None:
        return None
    machines = (profile.tiled, *profile.tiled_beside)
    why = dict.fromkeys(reason for one in machines for reason in _reasons(one))
    rows = [_row(one) for one in machines]
    return table(
        "silicon",
        "Area and power",
        ("machine", "process", "volts", "mm2", "interval mm2", "static W", "interval W", "dynamic W", "its interval W"),
        rows,
        "All chips of the run. Static: leakage and clock tree, drawn whatever runs; dynamic: everything else that the "
        f"run spends, as a mean over it.{' Unknown: ' if why else ''}{'; '.join(plain(each) for each in why)}"
        f"{'.' if why else ''}",
    )


def silicon_parts_table(tiled: TiledProfile) -> Table | None:
    """What area and static power of one chip are made of; None where nothing is known."""
    if tiled.silicon is None:
        return None
    named = [("area", "mm2", tiled.silicon.area), ("static power", "W", tiled.silicon.static)]
    rows = [
        (
            text(what),
            text(part.name),
            text(part.kind),
            shown(f"{significant(part.value)} {unit}", part.value),
            percent(part.value, sum(each.value for each in parts)),
            shown(f"{significant(part.half_width)} {unit}", part.half_width),
        )
        for what, unit, parts in named
        for part in parts
    ]
    caption = f"Area and static power of one chip of {tiled.title}"
    return table(
        "silicon_parts", caption, ("of", "part", "least certain source", "size", "share", "plus or minus"), rows
    )


def _row(one: TiledProfile) -> tuple[Cell, ...]:
    silicon = one.silicon
    known = silicon is not None and not silicon.unknown
    return (
        text(one.title),
        text(silicon.process if silicon else "–"),
        shown(f"{silicon.volts_low:.2f}–{silicon.volts_high:.2f}", silicon.volts_low)
        if silicon and known
        else text("–"),
        *_pair(one.area_mm2),
        *_pair(one.static_watts),
        *_pair(one.dynamic_watts),
    )


def _pair(found: tuple[float, float] | None) -> tuple[Cell, Cell]:
    if found is None:
        return text("unknown"), text("unknown")
    low, high = found[0] - found[1], found[0] + found[1]
    return shown(significant(found[0]), found[0]), shown(f"{significant(low)}–{significant(high)}", low)


def _reasons(one: TiledProfile) -> tuple[str, ...]:
    if one.silicon is None:
        return (f"{one.machine} has no [area] in its description",)
    if one.silicon.unknown:
        return (one.silicon.unknown,)
    if one.dynamic_watts is None:
        return (f"{one.machine}: {one.unknown or 'no [energy] in its description'}",)
    return ()
