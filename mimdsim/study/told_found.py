"""What a sensitivity or a search found, as lines of text: first in words, then the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mimdsim.study.best import NEAR_END, Best, Tried
from mimdsim.study.description import Study
from mimdsim.study.metrics import METRICS, Metric
from mimdsim.study.places import shown_value
from mimdsim.study.results import NO_EFFECT
from mimdsim.study.sensitivity import Effect, Sensitivities, Sensitivity

MOST_LISTED = 20
STEADY = 0.9  # share of its size that the mean of an effect has if it goes one way


def found_lines(found: Any, study: Study) -> Iterator[str]:
    """Lines for what `Studied.found` holds; none for points that were not chosen by results."""
    if isinstance(found, Sensitivities):
        yield from _sensitivity_lines(found)
    elif isinstance(found, Best):
        yield from _best_lines(found, [METRICS[name] for name in study.metrics])


def _amount(metric: Metric, value: float) -> str:
    return metric.shown(float(f"{value:.3g}"))


def _percent(share: float) -> str:
    return f"{abs(share):.2g} %" if abs(share) < 10 else f"{abs(share):.0f} %"


def _sensitivity_lines(found: Sensitivities) -> Iterator[str]:
    for each in found.metrics:
        yield from _of_metric(each)
    yield (
        f"Effects are means over {found.trajectories} trajectories through the ranges (Morris), from one end of a "
        "range to the other; percentages are of the median over the points."
    )
    if found.blocks:
        yield (
            f"Shares of the variance come from {found.blocks} blocks of points (Sobol), in which the axes without a "
            "share stay at their base values; half-widths of 95 % intervals."
        )
    if found.constant:
        yield f"! {', '.join(found.constant)}: the range rounds to a single value, so nothing is known of its effect"


def _of_metric(found: Sensitivity) -> Iterator[str]:
    metric = METRICS[found.metric]
    name = metric.name.replace("_", " ")
    if not found.effects:
        yield f"! {name}: known at too few points for the effect of any axis"
        return
    first = found.effects[0]
    if not first.size:
        yield f"Nothing that was varied changes the {name} ({_amount(metric, found.median)})."
    else:
        yield f"{first.axis} matters most for the {name}: {_said(first, found, metric)}."
    yield from _table(found, metric)
    hardly = [effect.axis for effect in found.effects if first.size and not _matters(effect, found)]
    if hardly:
        yield f"= changes the {name} by less than {NO_EFFECT:.1%}: {', '.join(hardly)}"
    if any(found.missing):
        count = " and ".join(f"{missing:,}" for missing in found.missing)
        stages = "in the two stages " if len(found.missing) > 1 else ""
        yield f"! {count} points {stages}have no {name} or do not fit; their effects are left out"
    if found.unknown:
        yield f"! {', '.join(found.unknown)}: too few points on both sides have a {name}; effect unknown"


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


def _table(found: Sensitivity, metric: Metric) -> Iterator[str]:
    """Axis, ends, effect, how far it spreads, and shares of the variance."""
    cells = [["axis", "from", "to", "effect", "of the median", "spread", "alone", "with others"]]
    listed = [effect for effect in found.effects if _matters(effect, found)]
    if not listed:
        return
    for effect in listed[:MOST_LISTED]:
        if effect.mean is None or not _is_steady(effect):
            sign, value = "±", effect.size
        else:
            sign, value = "+" if effect.mean > 0 else "-", abs(effect.mean)
        cells.append(
            [
                effect.axis,
                *effect.ends,
                f"{sign}{_amount(metric, value)}",
                f"{sign}{_share(value, found)}",
                _share(effect.spread, found),
                *("-" if index is None else f"{index[0]:.2f} ±{index[1]:.2f}" for index in _indices(effect)),
            ]
        )
    if not any(_indices(effect)[0] for effect in listed):
        cells = [line[:-2] for line in cells]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    for line in cells:
        yield "  " + "  ".join(
            cell.ljust(width) if column < 3 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
    if len(listed) > MOST_LISTED:
        yield f"  and {len(listed) - MOST_LISTED} more axes with smaller effects"


def _indices(effect: Effect) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
    return effect.first_order, effect.total


def _best_lines(found: Best, metrics: Sequence[Metric]) -> Iterator[str]:
    counted = f"{found.different:,} different points" + (
        f" ({found.asked:,} asked for)" if found.asked != found.different else ""
    )
    if not found.points:
        assert found.nearest is not None
        outside = ", ".join(f"{limit} (by {_percent(100 * by)})" for limit, by in found.nearest.outside.items())
        yield f"None of {counted} keeps to all limits. The nearest is outside of: {outside}; it has"
        yield from _design_lines(found.nearest)
    elif len(metrics) == 1:
        yield from _one_best(found, metrics[0], counted)
    else:
        yield (
            f"{len(found.points)} of {counted} are best: no other point within the limits is better in one of "
            f"{', '.join(metric.name for metric in metrics)} and no worse in the rest."
        )
        for point in found.points[:MOST_LISTED]:
            values = ", ".join(f"{metric.name} {_amount(metric, point.values[metric.name])}" for metric in metrics)
            yield f"  {values}: {_design(point)}"
        if len(found.points) > MOST_LISTED:
            yield f"  and {len(found.points) - MOST_LISTED} more, in results.csv"
    if found.points:
        yield f"{found.feasible:,} of them keep to all limits."
    for limit, count in found.broken.items():
        yield f"  not kept: {limit}, by {count:,}"


def _one_best(found: Best, metric: Metric, counted: str) -> Iterator[str]:
    best, base = found.points[0], found.base
    name = metric.name.replace("_", " ")
    value, before = best.values[metric.name], base.values[metric.name]
    line = f"The best of {counted} has a {name} of {_amount(metric, value)}"
    if base.outside:
        line += f"; the base point does not keep to: {', '.join(base.outside)}"
    elif best.design == base.design:
        line += ", which is the base point: no other is better"
    elif before:
        line += f", {_percent(100 * (value / before - 1))} {'less' if value < before else 'more'} than the base point's"
        line += f" {_amount(metric, before)}"
    yield line + ":"
    yield from _design_lines(best)
    if best.at_ends:
        yield (
            f"! {', '.join(best.at_ends)}: at an end of its range (within {NEAR_END:.0%}); a wider one may hold better "
            "points"
        )
    yield f"It was point {best.number} of {found.asked:,}."
    for point in found.points[1:]:
        yield f"  next: {_amount(metric, point.values[metric.name])}: {_design(point)}"


def _design_lines(point: Tried) -> Iterator[str]:
    for key, value in point.design.items():
        yield f"  {key} = {shown_value(key, value)}"


def _design(point: Tried) -> str:
    return ", ".join(f"{key} = {shown_value(key, value)}" for key, value in point.design.items())
