"""What matters most, from the elementary effects and shares of the variance that a sensitivity found."""

from __future__ import annotations

from collections.abc import Iterator

from mimdsim.base.units import counted
from mimdsim.report.formatting import percent_of
from mimdsim.report.tables import Table, table
from mimdsim.studies.description import Study
from mimdsim.studies.metrics import METRICS, Metric
from mimdsim.studies.pareto import Ranking
from mimdsim.studies.questions.kind import QuestionKind
from mimdsim.studies.results import NO_EFFECT
from mimdsim.studies.sensitivity import Effect, Sensitivities, Sensitivity

MOST_EFFECTS = 20  # rows of a table
STEADY = 0.9  # share of its size that the mean of an effect has if it goes one way


def answer(ranking: Ranking) -> list[str]:
    found = ranking.result.found
    return ["No effect is known before all points are done."] if found is None else sensitivity_words(found)


def effects_tables(ranking: Ranking) -> list[Table]:
    """Effects by metric, of a sensitivity that is done."""
    found = ranking.result.found
    made = [_effects_table(each, found) for each in found.metrics] if found is not None else []
    return [each for each in made if each.rows]


def would_change(ranking: Ranking) -> list[str]:
    return ["Every effect is over the range that was given, the other fields as the machine and the study say."]


def lacks(study: Study) -> str:
    return "" if study.sampling.kind == "sensitivity" else 'sampling.kind = "sensitivity"'


def sensitivity_words(found: Sensitivities) -> list[str]:
    """What matters most for each metric, then what is not known."""
    said = [line for each in found.metrics for line in _effects_of(each)]
    if found.constant:
        said.append(f"{', '.join(found.constant)}: the range rounds to a single value, so its effect is not known.")
    return said


def _effects_of(found: Sensitivity) -> Iterator[str]:
    metric = METRICS[found.metric]
    name = metric.name.replace("_", " ")
    if not found.effects:
        yield f"The {name} is known at too few points for the effect of any axis."
        return
    first, *others = found.effects
    fitting = ", where both points fit" if any(found.missing) else ""
    if not first.size:
        yield f"Nothing that was varied changes the {name} ({_amount(metric, found.median)}){fitting}."
    else:
        yield f"{first.axis} matters most for the {name}: {_effect(first, found, metric)}."
        if others and others[0].size:
            yield f"Then {others[0].axis}: {_effect(others[0], found, metric)}."
        hardly = [effect.axis for effect in found.effects if abs(found.percent(effect.size)) < 100 * NO_EFFECT]
        if hardly:
            yield f"These change the {name} by less than {NO_EFFECT:.1%}: {', '.join(hardly)}{fitting}."
    if any(found.missing):
        count = " and ".join(f"{missing:,}" for missing in found.missing)
        stages = " in the two stages" if len(found.missing) > 1 else ""
        points = "point" if found.missing == (1,) else "points"
        yield f"Left out, as they have no {name} or do not fit: {count} {points}{stages}."
    if found.unknown:
        yield f"{', '.join(found.unknown)}: too few points on both sides have a {name}; effect unknown."


def _effect(effect: Effect, found: Sensitivity, metric: Metric) -> str:
    median = _amount(metric, found.median)
    if effect.mean is None:
        size = _amount(metric, effect.size)
        return f"from one of its values to another it changes by {size}, {_share(effect.size, found)} of {median}"
    verb = "falls" if effect.mean < 0 else "rises"
    turns = "" if _is_steady(effect) else "on the whole "
    size = f"{_amount(metric, abs(effect.mean))}, {_share(effect.mean, found)} of the median {median}"
    return f"from {effect.ends[0]} to {effect.ends[1]} it {turns}{verb} by {size}"


def _amount(metric: Metric, value: float) -> str:
    return metric.shown(float(f"{value:.3g}"))


def _share(value: float, found: Sensitivity) -> str:
    return percent_of(abs(found.percent(value)))


def _is_steady(effect: Effect) -> bool:
    return effect.mean is not None and abs(effect.mean) >= STEADY * effect.size


def _effects_table(found: Sensitivity, study: Sensitivities) -> Table:
    """Axis, ends, effect, how far it spreads, and shares of the variance."""
    metric = METRICS[found.metric]
    headers = ["axis", "from", "to", "effect", "of the median", "spread"]
    indices = any(effect.first_order for effect in found.effects)
    rows = []
    for effect in found.effects[:MOST_EFFECTS]:
        sign, value = "±", effect.size
        if effect.mean is not None and _is_steady(effect):
            sign, value = "+" if effect.mean > 0 else "-", abs(effect.mean)
        cells = [f"{sign}{_amount(metric, value)}", f"{sign}{_share(value, found)}"] if value else ["none", "-"]
        cells.append(_share(effect.spread, found))
        for index in (effect.first_order, effect.total) if indices else ():
            cells.append("-" if index is None else f"{index[0]:.2f} ±{index[1]:.2f}")
        rows.append([effect.axis, *effect.ends, *cells])
    more = len(found.effects) - MOST_EFFECTS
    left = f"Left out: {counted(more, 'more axis', 'more axes')} with smaller effects. " if more > 0 else ""
    headers += ["alone", "with others"] if indices else []
    return table(
        f"effects-{found.metric}", f"Effects on {found.metric}", headers, rows, f"{left}{how_estimated(study)}"
    )


def how_estimated(found: Sensitivities) -> str:
    """What the numbers of the tables are."""
    blocks = (
        f" Shares of the variance come from {found.blocks} blocks of points (Sobol), in which the axes without a share "
        "stay at their base values; half-widths of 95 % intervals."
        if found.blocks
        else ""
    )
    effects = [effect for each in found.metrics for effect in each.effects]
    shares = [index[0] for effect in effects for index in (effect.first_order, effect.total) if index]
    if any(not 0 <= round(share, 2) <= 1 for share in shares):
        blocks += f" Shares under 0 or over 1 cannot be: {found.blocks} blocks estimate them no better; more points do."
    return (
        f"Effects are means over {found.trajectories} trajectories through the ranges (Morris), from one end of a "
        f"range to the other; percentages are of the median over the points.{blocks}"
    )


KIND = QuestionKind(
    name="sensitivity",
    lacks=lacks,
    answer=answer,
    tables=effects_tables,
    would_change=would_change,
    of_kept=False,
)
