"""Which entries of a sequence "@t" names while a program runs, and whether they exist."""

from __future__ import annotations

from mimdsim.program.records import Variable
from mimdsim.program.repeats import Stretch

IN_REPEAT = "timestep in repeat"


def entries_taken(variable: Variable, shift: int, timesteps: range) -> tuple[int, int]:
    """(least, most) index on the first axis that "@t" and a shift name in these timesteps."""
    # all segments are alike; all other entries ascend with time
    some = timesteps[: variable.segment] if variable.entries == "segment" else (timesteps[0], timesteps[-1])
    entries = [variable.entry(t, shift) for t in some]
    return min(entries), max(entries)


def unfit_entries(variable: Variable, shift: int, stretch: Stretch, *, writes: bool) -> str:
    """What is wrong with taking "@t" and a shift of a variable in a stretch, or ''.

    Reading before the first timestep is legal and gives zero; no such entry exists to be written, nor does one before
    the first segment.
    """
    name, held = f"'{variable.name}'", variable.shape[0] if variable.shape else 0
    if not stretch.repeats and held != 1:
        return f"takes the timestep of {name} outside a repeat; it has {held}; put the superstep into a Repeat"
    least, most = entries_taken(variable, shift, stretch.timesteps)
    if most >= held:
        last = f"the last is {held - 1}" if held else "it has none"
        return f"takes entry {most} of {name} within its repeat, {last}; let it run less often or give {name} more"
    if least < 0 and (writes or variable.entries != "timesteps"):
        verb = "writes" if writes else "reads"
        return f"{verb} entry {least} of {name}, which has none before 0; take '@t' without that shift, or later"
    return ""
