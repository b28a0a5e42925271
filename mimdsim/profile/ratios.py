"""The uncertainty of the ratio of two times that depend on the same costs.

A cost that is counted too low is too low in both, so most of the uncertainty of a time cancels in a ratio. Every
source is assumed to be off by the same factor in both times, anywhere between its bounds, and independently of the
others: the interval is that of the worst combination.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mimdsim.profile.records import TiledProfile


@dataclass(frozen=True, kw_only=True)
class UncertainSeconds:
    """Seconds that share a source, and the most seconds by which they may be off."""

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
    parts = [
        UncertainSeconds(
            source=f"{doubt.name} ({doubt.kind})",
            seconds=profile.seconds(doubt.cycles),
            half_width=profile.seconds(doubt.half_width_cycles),
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
    """Our seconds over theirs; infinity if theirs may be zero."""
    ours, theirs = tuple(ours), tuple(theirs)
    middle = _over(sum(part.seconds for part in ours), sum(part.seconds for part in theirs))
    inverse = _largest(theirs, ours)
    low, high = 1 / inverse if inverse else float("inf"), _largest(ours, theirs)
    return Ratio(low=min(low, middle), middle=middle, high=max(high, middle))  # sums of parts round past each other


def ratio_of(ours: TiledProfile, theirs: TiledProfile) -> Ratio:
    """Our training step's time as a multiple of theirs."""
    return ratio(seconds_by_source(ours), seconds_by_source(theirs))


def _largest(above: tuple[UncertainSeconds, ...], below: tuple[UncertainSeconds, ...]) -> float:
    """The largest ratio: sources that weigh more in the numerator are slow there, the others are fast.

    The largest ratio itself determines which weigh more, so sources change sides one by one in order of weight.
    """
    reach_above = {part.source: part.half_width for part in above}
    reach_below = {part.source: part.half_width for part in below}
    sources = [*reach_above, *(source for source in reach_below if source not in reach_above)]
    pairs = [(reach_above.get(source, 0.0), reach_below.get(source, 0.0)) for source in sources]
    pairs.sort(key=lambda pair: -(pair[0] / pair[1] if pair[1] else float("inf")))
    top = sum(part.seconds for part in above) - sum(reach_above.values())
    bottom = sum(part.seconds for part in below) - sum(reach_below.values())
    best = _over(top, bottom)
    for more, less in pairs:
        top, bottom = top + 2 * more, bottom + 2 * less
        best = max(best, _over(top, bottom))
    return best


def _over(top: float, bottom: float) -> float:
    """top / bottom for times, which are never negative despite rounding; zero over zero is 1."""
    top, bottom = max(top, 0.0), max(bottom, 0.0)
    if bottom:
        return top / bottom
    return float("inf") if top else 1.0
