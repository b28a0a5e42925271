"""The uncertainty of the ratio of two times that depend on the same costs.

A cost that is counted too low is too low in both, so most of the uncertainty of a time cancels in a ratio: every source
is off by the same factor in both times. Sources are independent of each other, and what is left of them adds as
squares. What widens or narrows the intervals of a class of figures (`base/residuals.py`) does so for its part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from mimdsim.base.residuals import combined, interval
from mimdsim.profile.records import GpuProfile, TiledProfile


@dataclass(frozen=True, kw_only=True)
class UncertainSeconds:
    """Seconds that share a source, and by how many seconds it leaves the whole off, at the level of intervals."""

    source: str
    seconds: float
    half_width: float


def seconds_by_source(profile: TiledProfile) -> tuple[UncertainSeconds, ...]:
    """Every source's part of the seconds of a training step; the rest is taken as certain (a host stream not hidden).

    A profile that does not say what its interval is made of counts as a single source that nothing else shares.
    """
    whole = profile.seconds_per_training_step
    if not profile.doubts:
        reach = profile.seconds_high - whole
        return (UncertainSeconds(source=f"all of {profile.machine}", seconds=whole, half_width=reach),)
    factor = profile.residuals.factor if profile.residuals else 1.0
    parts = [
        UncertainSeconds(
            source=doubt.source,
            seconds=profile.seconds(doubt.cycles),
            half_width=factor * profile.seconds(doubt.half_width_cycles),
        )
        for doubt in profile.doubts
    ]
    rest = whole - sum(part.seconds for part in parts)
    return (*parts, UncertainSeconds(source="", seconds=rest, half_width=0.0))


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """The ratio of two times, and its bounds."""

    low: float
    middle: float
    high: float


def ratio(ours: Iterable[UncertainSeconds], theirs: Iterable[UncertainSeconds]) -> Ratio:
    """Our seconds over theirs; infinity if theirs are zero, 1 if both are."""
    ours, theirs = tuple(ours), tuple(theirs)
    one, other = (sum(part.seconds for part in parts) for parts in (ours, theirs))
    if one <= 0 or other <= 0:
        middle = 1.0 if one <= other else math.inf
        return Ratio(low=middle, middle=middle, high=middle)
    shares: dict[str, float] = {}
    for part in ours:
        shares[part.source] = shares.get(part.source, 0.0) + part.half_width / one
    for part in theirs:
        shares[part.source] = shares.get(part.source, 0.0) - part.half_width / other
    low, high = interval(one / other, combined(shares.values()))
    return Ratio(low=low, middle=one / other, high=high)


def ratio_of(ours: TiledProfile, theirs: TiledProfile) -> Ratio:
    """Our training step's time as a multiple of theirs."""
    return ratio(seconds_by_source(ours), seconds_by_source(theirs))


Ends = tuple[float, float, float]  # a number, and its interval


def independent_ratio(ours: Ends, theirs: Ends) -> Ratio:
    """The ratio of two numbers above 0 that share no source, each with an interval; `theirs` may be infinitely wide."""

    def reach(end: float, middle: float) -> float:
        return abs(math.log(end / middle)) if end > 0 else math.inf

    (one, low, high), (other, least, most) = ours, theirs
    middle = one / other
    down, up = (reach(low, one), reach(most, other)), (reach(high, one), reach(least, other))
    return Ratio(low=middle * math.exp(-combined(down)), middle=middle, high=middle * math.exp(combined(up)))


def ratio_to_gpu(gpu: GpuProfile, tiled: TiledProfile) -> Ratio:
    """A GPU's time as a multiple of a tiled machine's."""
    ends = ((one.seconds_per_training_step, one.seconds_low, one.seconds_high) for one in (gpu, tiled))
    return independent_ratio(*ends)
