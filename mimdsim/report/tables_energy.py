"""Energy of one training step: machines side by side, and a breakdown for the tiled machine."""

from __future__ import annotations

from mimdsim.profile import GpuProfile, RunProfile, TiledProfile
from mimdsim.report.formatting import plain, significant
from mimdsim.report.tables import Cell, Table, percent, shown, table, text


def energy_table(profile: RunProfile) -> Table | None:
    """Every machine and strategy whose description has energies; None if none has."""
    rows = []
    owners: list[tuple[str, str, str, TiledProfile | GpuProfile]] = []
    if profile.tiled is not None:
        tiled = (profile.tiled, *profile.tiled_beside)
        owners += [(one.title, "compiled to tiles", "–", one) for one in tiled]
    owners += [(gpu.title, gpu.strategy, gpu.precision, gpu) for gpu in profile.gpus]
    for title, strategy, precision, owner in owners:
        energy = owner.energy
        seconds = owner.seconds_per_training_step
        if energy is None or not energy.joules or not seconds:
            continue
        rows.append(
            (
                text(title),
                text(strategy),
                text(precision),
                shown(_millijoules(energy.joules), energy.joules),
                shown(f"{_millijoules(energy.joules_low)}–{_millijoules(energy.joules_high)}", energy.joules_low),
                shown(significant(energy.joules / seconds), energy.joules / seconds),
                shown(_millijoules(energy.joules / profile.batch), energy.joules / profile.batch),
                percent(energy.static[0], energy.joules),
            )
        )
    if not rows:
        return None
    return table(
        "energy",
        "Energy of one training step",
        ("machine", "strategy", "precision", "mJ", "interval mJ", "mean W", "mJ a sample", "static"),
        rows,
        "The chip or board only, without host, cooling and power supply. Coefficients and their sources are listed "
        "under 'What is modelled'; most of a tiled machine's are assumed, so look at its interval first.",
    )


def energy_parts_table(tiled: TiledProfile) -> Table | None:
    """The parts of the tiled machine's energy, largest first; None if its description has none."""
    if tiled.energy is None:
        return None
    parts = sorted(tiled.energy.parts, key=lambda part: -part.joules)
    rows = [
        (
            text(part.name),
            text(part.kind),
            shown(_millijoules(part.joules), part.joules),
            percent(part.joules, tiled.energy.joules),
            shown(_millijoules(part.half_width_joules), part.half_width_joules),
        )
        for part in parts
    ]
    caption = f"Energy of one {tiled.run_name} on {tiled.title}"
    return table("energy_parts", caption, ("part", "kind of source", "mJ", "share", "plus or minus mJ"), rows)


def _millijoules(joules: float) -> str:
    return significant(1e3 * joules)


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
