"""The least value of the first axis of numbers whose points fit and keep to the constraints, what it costs, and from
where on more gains nothing."""

from __future__ import annotations

from mimdsim.base.units import counted, show_bytes
from mimdsim.report.formatting import field_value
from mimdsim.report.tables import Table, table
from mimdsim.studies.pareto import Ranking
from mimdsim.studies.questions.kind import (
    QuestionKind,
    curves,
    factor_text,
    lacks_numbers,
    number_axes,
    threshold_text,
)


class Least:
    """Along a curve, designs: the least that is kept, the one below it (None: none was looked at) and why that is not
    kept, the best in the first metric, and the least from which on no design is worse than it by more than no practical
    difference. last: the one with the most that is kept. above: designs above the least that are not kept."""

    def __init__(self, ranking: Ranking, name: str, those: list[int], kept: list[int]):
        place = those.index(kept[0])
        self.name, self.at, self.last = name, kept[0], kept[-1]
        self.below = those[place - 1] if place else None
        self.why = "" if self.below is None else _why_not(ranking, self.below)
        self.above = len(those) - place - len(kept)
        self.best = self.enough = min(kept, key=lambda at: float(ranking.signed(0)[at]))
        for at in reversed(kept):
            if at not in (self.best, *ranking.alike(self.best, [at])):
                break
            self.enough = at


def least_of(ranking: Ranking) -> tuple[list[Least], list[str]]:
    """Of every curve with a kept design, and the names of those without."""
    found, none = [], []
    for name, those in curves(ranking, number_axes(ranking.study)[0], range(len(ranking.designs))).items():
        if kept := [at for at in those if ranking.kept[at]]:
            found.append(Least(ranking, name, those, kept))
        else:
            none.append(name)
    return found, none


def _why_not(ranking: Ranking, at: int) -> str:
    """Why a design is not kept, and for which workloads."""
    rows = ranking.designs[at]
    out = [row["workload"] for row in rows if not row["fits"]]
    only = f" ({', '.join(out)})" if len(out) > 0 and len(rows) > 1 else ""
    return f"{', '.join(ranking.problems(at))}{only}"


def answer(ranking: Ranking) -> list[str]:
    found, none = least_of(ranking)
    along = number_axes(ranking.study)[0]
    said = [_words(ranking, along, each) for each in found[:3]]
    if len(found) > len(said):
        said.append(f"{counted(len(found) - len(said), 'more curve is', 'more curves are')} in the table.")
    if none and none != [""]:
        said.append(f"No value of {along} fits: {'; '.join(none[:3])}{' and more' if len(none) > 3 else ''}.")
    return said


def _words(ranking: Ranking, along: str, least: Least) -> str:
    at, best, enough = (_value(ranking, each) for each in (least.at, least.best, least.enough))
    where = f" where {least.name}" if least.name else ""
    below = "the least that was looked at, so less may fit too"
    if least.below is not None:
        below = f"{_value(ranking, least.below)}: {least.why}"
    need = _need(ranking, least.at)
    said = f"{along} = {at} is the least that fits{where} ({below}), with {need} needed on the fullest tile"
    metric = ranking.metrics[0].name
    if least.at == least.last:
        return f"{said}, and the most that was looked at."
    if least.enough == least.at:
        return f"{said}, and more makes {threshold_text(ranking.study)} in {metric}."
    factor = factor_text(*ranking.ratio(least.at, least.best))
    said += f", at {factor} the {metric} of the best, {best}"
    if least.enough == least.last:
        return f"{said}, the most that was looked at, beyond which more may gain more."
    return f"{said}; from {enough} on, more makes {threshold_text(ranking.study)}."


def _need(ranking: Ranking, at: int) -> str:
    """The memory that a design takes of its fullest tile, of the workload that takes most."""
    return show_bytes(max(row["peak_bytes"] for row in ranking.designs[at]))


def _value(ranking: Ranking, at: int) -> str:
    along = number_axes(ranking.study)[0]
    return field_value(along, ranking.column(along)[at])


def tables(ranking: Ranking) -> list[Table]:
    """The least of each curve, and what each workload alone needs."""
    along = number_axes(ranking.study)[0]
    found, none = least_of(ranking)
    over = f"{ranking.metrics[0].name} of the least over the best's"
    headers = ["curve", f"least {along}", "fullest tile", "below it", "best", over, "enough", "kept above"]
    rows = []
    for each in found:
        at, best, enough = (_value(ranking, one) for one in (each.at, each.best, each.enough))
        below = "-" if each.below is None else f"{_value(ranking, each.below)}: {each.why}"
        factor, above = factor_text(*ranking.ratio(each.at, each.best)), f"not {each.above}" if each.above else "all"
        rows.append([each.name or "-", at, _need(ranking, each.at), below, best, factor, enough, above])
    rows += [[name or "-", "none", *["-"] * 6] for name in none]
    made = [table("least", "The least that fits", headers, rows)] if rows else []
    return [*made, *_of_workloads(ranking, along)]


def _of_workloads(ranking: Ranking, along: str) -> list[Table]:
    """The least that fits each workload alone on each curve, whatever the constraints."""
    if len(ranking.study.workloads) < 2:
        return []
    rows = []
    for curve, those in curves(ranking, along, range(len(ranking.designs))).items():
        for place, name in enumerate(ranking.study.workloads):
            values = [ranking.column(along)[at] for at in those if ranking.designs[at][place]["fits"]]
            least = field_value(along, min(values)) if values else "none"
            rows.append((curve or "-", name, least))
    headers = ["curve", "workload", f"least {along}"]
    return [table("least-workloads", "What each workload alone fits into", headers, rows)]


def would_change(ranking: Ranking) -> list[str]:
    """How far apart the values are that the answer lies between."""
    said = list[str]()
    for each in least_of(ranking)[0][:3] if ranking.metrics else []:
        if each.below is not None:
            low, high = (_value(ranking, at) for at in (each.below, each.at))
            name = f" ({each.name})" if each.name else ""
            said.append(f"The least that fits lies between {low} and {high}{name}, two values that were looked at.")
    return said


KIND = QuestionKind(
    name="least-that-fits", lacks=lacks_numbers, answer=answer, tables=tables, would_change=would_change
)
