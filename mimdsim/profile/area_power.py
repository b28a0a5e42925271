"""The record of what a chip is: area and power that do not depend on the program."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SiliconPart:
    """A share of an area (mm2) or of watts, the least certain kind of source in it, how far it may be off."""

    name: str
    value: float
    kind: str
    half_width: float


@dataclass(frozen=True, kw_only=True)
class SiliconProfile:
    """One chip: process, mm2 by part, and the watts that it draws without work by part; unknown: why watts are not
    known, '' where they are. full_load: watts of a chip that is fully busy, static ones included."""

    process: str
    area: tuple[SiliconPart, ...]
    static: tuple[SiliconPart, ...] = ()
    volts_low: float = 0.0
    volts_high: float = 0.0
    full_load: SiliconPart | None = None
    unknown: str = ""

    @property
    def area_mm2(self) -> tuple[float, float]:
        """Of one chip, and how far it may be off."""
        return _sum(self.area)

    @property
    def static_watts(self) -> tuple[float, float] | None:
        """Of one chip, and how far they may be off; None if unknown."""
        return None if self.unknown else _sum(self.static)


def _sum(parts: tuple[SiliconPart, ...]) -> tuple[float, float]:
    return sum(part.value for part in parts), sum(part.half_width for part in parts)
