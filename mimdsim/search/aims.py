"""What is best, and what a mapping must keep to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from mimdsim.base.errors import DescriptionError, shortened, suggest
from mimdsim.base.units import parse_quantity
from mimdsim.search.case import Figures

Objective = Literal["time", "memory", "energy", "product"]
OBJECTIVES = get_args(Objective)
_LIMIT = re.compile(r"\s*max\s+([a-z]+)\s+(\S.*?)\s*")
UNITS = {"memory": "bytes", "tiles": "tiles", "time": "seconds", "cycles": "cycles", "energy": "joules"}
BEYOND = float("inf")


@dataclass(frozen=True, kw_only=True)
class Aims:
    """What is to be least: time, the bytes of the fullest tile, energy, or the product of time and these bytes; and
    limits by what they are of, in base units (`UNITS`)."""

    objective: Objective = "time"
    within: tuple[tuple[str, float], ...] = ()
    sram_bytes: int
    clock_hz: float

    def rank(self, found: Figures | None) -> tuple[float, float, int]:
        """Least for the best mapping: by how much it exceeds limits (as shares of them), then the objective; energy
        that is not known counts as time."""
        if found is None:
            return BEYOND, BEYOND, 0
        seconds = found.cycles / self.clock_hz
        known = {
            "memory": found.peak_bytes,
            "tiles": found.tiles,
            "time": seconds,
            "cycles": found.cycles,
            "energy": 0.0 if found.joules is None else found.joules,
        }
        limits = (("memory", self.sram_bytes), *self.within)
        excess = sum(max(0.0, known[of] / most - 1) if most else BEYOND for of, most in limits)
        aim = {
            "time": seconds,
            "memory": found.peak_bytes,
            "energy": seconds if found.joules is None else found.joules,
            "product": seconds * found.peak_bytes,
        }
        return excess, aim[self.objective], found.cycles


def parse_limits(text: str) -> tuple[tuple[str, float], ...]:
    """'max memory 400 KiB, max tiles 1000' -> what is limited, and to how much; raises DescriptionError."""
    found: dict[str, float] = {}
    for part in filter(str.strip, text.split(",")):
        match = _LIMIT.fullmatch(part)
        if match is None:
            problem = f"{shortened(part.strip())!r} is no limit; write e.g.  max memory 400 KiB, max tiles 1000"
            raise DescriptionError("--within", [problem])
        of, most = match.groups()
        if of not in UNITS:
            raise DescriptionError("--within", [f"no limit of '{of}'{suggest(of, UNITS)}; known: {', '.join(UNITS)}"])
        if of in found:
            raise DescriptionError("--within", [f"max {of} is given twice; give it one value"])
        try:
            found[of] = parse_quantity(most, UNITS[of])
        except ValueError as problem:
            raise DescriptionError("--within", [f"max {of}: {problem}"]) from None
        if not found[of] > 0:
            raise DescriptionError("--within", [f"max {of}: {most} must be more than 0"])
    return tuple(found.items())
