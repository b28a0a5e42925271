"""Energy of one training step: machines side by side, and a breakdown for the tiled machine."""

from __future__ import annotations

from mimdsim.profile import GpuProfile, RunProfile, TiledProfile
from mimdsim.report.formatting import significant
from mimdsim.report.tables import Table, percent, shown, table, text


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
