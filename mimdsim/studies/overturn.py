"""What would change a study's answer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mimdsim.base.units import counted
from mimdsim.report.formatting import chance, field_value
from mimdsim.studies.pareto import Judged
from mimdsim.studies.phrases import in_words, name_of
from mimdsim.studies.runner import Studied
from mimdsim.studies.sensitivity import Sensitivities

MOST_NAMED = 5
LIKELY = 0.1  # a rival that is better with more than this probability is named


def would_change(studied: Studied, found: Judged) -> list[str]:
    """Constraints that bind, rivals, the doubt that decides, ends of axes, and what is not known."""
    said: list[str] = []
    if not isinstance(studied.found, Sensitivities):  # which is not about the best point
        said += _binding(found)
        said += [*_rivals(found), *_ends(found)] if found.best is not None else []
    else:
        said.append("Every effect is over the range that was given, the other fields as the machine and the study say.")
    if not studied.complete:
        said.append(f"{counted(studied.designs - len(found.designs), 'point is', 'points are')} not done yet.")
    if studied.failed:
        said.append(f"{counted(studied.failed, 'point')} failed; the notes say why.")
    said += [f"The {metric.name} of no point is known." for metric in found.unknown]
    if studied.study.fill is not None:
        said.append(f"Every list of spikes is filled to {studied.study.fill:.0%}; recorded spikes may differ by layer.")
    else:
        said.append("Spikes are those of one training; no interval includes how they vary from training to training.")
    return said


def _binding(found: Judged) -> Iterator[str]:
    best = found.best
    for place in (None, *range(len(found.study.limits))):
        other = found.best_but_for(place)
        if other is None or (best is not None and not found.signed(0)[other] < found.signed(0)[best]):
            continue
        limit = "the memory of a tile" if place is None else str(found.study.limits[place])
        more = ""
        if best is not None and found.middle[0, best] > 0 and found.middle[0, other] > 0:
            times = found.middle[0, best] / found.middle[0, other]
            more = f", {times if times > 1 else 1 / times:.3g} times better"
        lacks = _lacking(found, other) if place is None else ""
        yield f"Without {limit}, best would be {name_of(found, other)}: {in_words(found, 0, other)}{more}{lacks}."
    if best is not None and found.study.limits and found.keeps_p[best] < 1:
        likely = np.argsort(-found.best_p, kind="stable")
        after = next((int(at) for at in likely if at != best and found.best_p[at] > 0), None)
        instead = "" if after is None else f"; else the likeliest best is {name_of(found, after)}"
        yield f"The answer keeps to the constraints with probability {chance(float(found.keeps_p[best]))}{instead}."


def _lacking(found: Judged, at: int) -> str:
    over = max(row["peak_bytes"] - row["limit_bytes"] for row in found.designs[at].rows)
    what = f"{field_value('bytes', over)} on the fullest tile" if over > 0 else "executable memory"
    return f"; it lacks {what}"


def _rivals(found: Judged) -> Iterator[str]:
    best = found.best
    assert best is not None
    others = np.flatnonzero(found.kept & (np.arange(len(found.designs)) != best))
    if not len(others):
        return
    wins, ties = found.compared(best, others)
    others, better = others[ties < 1], (1 - wins - ties / 2)[ties < 1]
    order = np.lexsort((found.signed(0)[others], -better))
    likely: dict[tuple[float, float], list[int]] = {}  # points as good as each other are told as one
    for at in map(int, order):
        if better[at] > LIKELY:
            likely.setdefault((float(better[at]), float(found.middle[0, others[at]])), []).append(int(others[at]))
    for (p, _), alike in list(likely.items())[:MOST_NAMED]:
        more = f" (and {len(alike) - 1:,} exactly as good)" if len(alike) > 1 else ""
        yield f"{name_of(found, alike[0])}{more} is better with probability {chance(p)}."
    if len(likely) > MOST_NAMED:
        yield f"{len(likely) - MOST_NAMED:,} more are better with a probability over {LIKELY:.0%}."
    decided = found.decided_by(best, int(others[order[0]])) if len(order) else None
    if decided is not None and abs(decided[1] - decided[2]) > 0.01:
        name, low, high = decided
        yield (
            f"What decides most between the answer and its strongest rival is {name}: in the lowest quarter of its "
            f"interval the answer is better with probability {chance(low)}, in the highest {chance(high)}."
        )


def _ends(found: Judged) -> Iterator[str]:
    """Fields whose best value is the first or last that was looked at."""
    best = found.best
    for name in found.study.varied:
        values = [design.rows[0][name] for design in found.designs]
        numbers = sorted({value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)})
        if best is None or len(numbers) < 2 or len(set(map(str, values))) > len(numbers):
            continue
        near = 0.02 * (numbers[-1] - numbers[0])  # points that fill a space have no point on its edge
        low, high = (abs(values[best] - end) <= near for end in (numbers[0], numbers[-1]))
        if low or high:
            word = "smallest" if low else "largest"
            value = field_value(name, values[best])
            yield f"{name} = {value} is about the {word} value looked at; beyond may be better."
