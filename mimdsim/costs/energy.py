"""Joules of one training step: static power times its seconds, plus every counted event.

Each part carries the kind of source of its coefficient; the interval is the sum of the parts' intervals.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mimdsim.profile import EnergyPart, EnergyProfile
from mimdsim.program.codelet import UNCERTAINTY


def energy_profile(section: Any, counted: Iterable[tuple[str, str, float]]) -> EnergyProfile:
    """Energy from (name, field of `section` that holds the coefficient, count) of each part.

    The coefficient times the count is joules: watts times seconds, joules per byte times bytes, and so on. Raises
    KeyError for a coefficient without a source.
    """
    parts = []
    for name, field, amount in counted:
        coefficient = float(getattr(section, field))
        joules = coefficient * amount
        if not joules:
            continue
        kind, _, _ = section.sources[field].partition(":")
        parts.append(EnergyPart(name=name, joules=joules, kind=kind, half_width_joules=joules * UNCERTAINTY[kind]))
    return EnergyProfile(parts=tuple(parts))
