"""What a sensitivity found, in words and as tables."""

from __future__ import annotations

from collections.abc import Iterator

from mimdsim.base.units import counted
from mimdsim.studies.metrics import METRICS, Metric
from mimdsim.studies.results import NO_EFFECT
from mimdsim.studies.sensitivity import Effect, Sensitivities, Sensitivity

MOST_LISTED = 20
STEADY = 0.9  # share of its size that the mean of an effect has if it goes one way


def sensitivity_words(found: Sensitivities) -> list[str]:
    """What matters most for each metric, then what is not known."""
    said = [line for each in found.metrics for line in _words(each)]
    if found.constant:
        said.append(f"{', '.join(found.constant)}: the range rounds to a single value, so its effect is not known.")
    return said


def how_found(found: Sensitivities) -> str:
    """What the numbers of the tables are."""
    blocks = (
        f" Shares of the variance come from {found.blocks} blocks of points (Sobol), in which the axes without a share "
        "stay at their base values; half-widths of 95 % intervals."
        if found.blocks
        else ""
    )
    shares = [index[0] for each in found.metrics for effect in each.effects for index in _indices(effect) if index]
    if any(not 0 <= round(share, 2) <= 1 for share in shares):
        blocks += f" Shares under 0 or over 1 cannot be: {found.blocks} blocks estimate them no better; more points do."
    return (
        f"Effects are means over {found.trajectories} trajectories through the ranges (Morris), from one end of a "
        f"range to the other; percentages are of the median over the points.{blocks}"
    )


def _amount(metric: Metric, value: float) -> str:
    return metric.shown(float(f"{value:.3g}"))


def _percent(share: float) -> str:
    return f"{abs(share):.2g} %" if abs(share) < 10 else f"{abs(share):.0f} %"


def _words(found: Sensitivity) -> Iterator[str]:
    metric = METRICS[found.metric]
    name = metric.name.replace("_", " ")
    if not found.effects:
        yield f"The {name} is known at too few points for the effect of any axis."
        return
    first = found.effects[0]
    if not first.size:
        yield f"Nothing that was varied changes the {name} ({_amount(metric, found.median)})."
    else:
        yield f"{first.axis} matters most for the {name}: {_said(first, found, metric)}."
        second = found.effects[1] if len(found.effects) > 1 else None
        if second is not None and second.size:
            yield f"Then {second.axis}: {_said(second, found, metric)}."
    hardly = [
        effect.axis for effect in found.effects if abs(found.percent(effect.size)) < 100 * NO_EFFECT and first.size
    ]
    if hardly:
        yield f"These change the {name} by less than {NO_EFFECT:.1%}: {', '.join(hardly)}."
    if any(found.missing):
        count = " and ".join(f"{missing:,}" for missing in found.missing)
        stages = "in the two stages " if len(found.missing) > 1 else ""
        points = "point" if found.missing == (1,) else "points"
        yield f"Left out, as they have no {name} or do not fit: {count} {points} {stages}".rstrip() + "."
    if found.unknown:
        yield f"{', '.join(found.unknown)}: too few points on both sides have a {name}; effect unknown."


def _said(effect: Effect, found: Sensitivity, metric: Metric) -> str:
    low, high = effect.ends
    median = _amount(metric, found.median)
    if effect.mean is None:
        size = _amount(metric, effect.size)
        return f"from one of its values to another it changes by {size}, {_share(effect.size, found)} of {median}"
    verb = "falls" if effect.mean < 0 else "rises"
    turns = "" if _is_steady(effect) else "on the whole "
    size = f"{_amount(metric, abs(effect.mean))}, {_share(effect.mean, found)} of the median {median}"
    return f"from {low} to {high} it {turns}{verb} by {size}"


def _matters(effect: Effect, found: Sensitivity) -> bool:
    return abs(found.percent(effect.size)) >= 100 * NO_EFFECT


def _share(value: float, found: Sensitivity) -> str:
    return _percent(found.percent(value))


def _is_steady(effect: Effect) -> bool:
    return effect.mean is not None and abs(effect.mean) >= STEADY * effect.size


def effects_table(found: Sensitivity) -> tuple[list[str], list[list[str]], str]:
    """Header, cells and what is left out: axis, ends, effect, how far it spreads, and shares of the variance."""
    metric = METRICS[found.metric]
    header = ["axis", "from", "to", "effect", "of the median", "spread", "alone", "with others"]
    rows = []
    for effect in found.effects[:MOST_LISTED]:
        if effect.mean is None or not _is_steady(effect):
            sign, value = "±", effect.size
        else:
            sign, value = "+" if effect.mean > 0 else "-", abs(effect.mean)
        rows.append(
            [
                effect.axis,
                *effect.ends,
                f"{sign}{_amount(metric, value)}" if value else "none",
                f"{sign}{_share(value, found)}" if value else "-",
                _share(effect.spread, found),
                *("-" if index is None else f"{index[0]:.2f} ±{index[1]:.2f}" for index in _indices(effect)),
            ]
        )
    if not any(_indices(effect)[0] for effect in found.effects):
        header, rows = header[:-2], [row[:-2] for row in rows]
    more = len(found.effects) - MOST_LISTED
    less = counted(more, "more axis", "more axes")
    return header, rows, f"Left out: {less} with smaller effects." if more > 0 else ""


def _indices(effect: Effect) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
    return effect.first_order, effect.total
