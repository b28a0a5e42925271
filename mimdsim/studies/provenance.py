"""Where a study's answer comes from: versions, seeds and digests, its widest doubts, and the sources of the machine's
numbers that they rest on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from mimdsim.base.units import counted
from mimdsim.pipeline.overrides import load_tiled
from mimdsim.report.formatting import field_value, quantity
from mimdsim.report.tables import Table, shown, table, text
from mimdsim.studies.pareto import Judged
from mimdsim.studies.runner import Studied

MOST_DOUBTS = 10
SECTIONS_OF = {"exchange": "exchange", "sync": "sync", "loop": "sync"}  # first word of a source: the machine's section


def facts_of(studied: Studied, found: Judged) -> list[tuple[str, str]]:
    study, rows = studied.study, studied.rows
    digests = hashlib.sha256("".join(str(row["digest"]) for row in rows if row.get("digest")).encode()).hexdigest()
    drawn = f"{counted(found.draws.count, 'draw')} of doubts with seed {found.draws.seed}"
    said = [
        ("mimdsim", ", ".join(sorted({str(row["tool_version"]) for row in rows if row.get("tool_version")}))),
        ("machine", f"{study.machine}: {load_tiled(study.machine).title}"),
        ("seeds", f"workloads {_seeds(rows)}; points of the study {study.sampling.seed}; {drawn}"),
        ("digest of all points", f"{digests} (of each: column 'digest' of results.csv)"),
        ("beside this page", "results.csv, results.parquet (with the seconds of every source), study.toml"),
    ]
    together = ("workloads together", "weighted geometric mean; of area, power, memory and tiles the largest")
    return [*said, together] if len(study.workloads) > 1 else said


def _seeds(rows: Sequence[Any]) -> str:
    seeds = sorted({row["seed"] for row in rows if row.get("seed") is not None})
    return ", ".join(map(str, seeds[:6])) + (f" and {len(seeds) - 6} more" if len(seeds) > 6 else "")


def doubts_table(found: Judged) -> Table:
    """The sources that the answer's time is most in doubt of, over all workloads."""
    headers = ("source of doubt (kind)", "of the time", "plus or minus", "of the interval")
    if found.best is None:
        return table("doubts", "", headers, [])
    at = found.best * found.draws.width + np.arange(found.draws.width)
    reach, whole = found.draws.reach[at], found.draws.seconds[at].sum()
    seconds: dict[str, float] = {}
    for row in found.designs[found.best].rows:
        for name, part, _ in row["seconds_by_source"] or ():
            seconds[name] = seconds.get(name, 0.0) + part
    each, total = reach.sum(axis=0), reach.sum() or 1.0
    order = [int(place) for place in np.argsort(-each, kind="stable") if each[place] > 0]
    rows = []
    for place in order[:MOST_DOUBTS]:
        name = found.draws.sources[place]
        rows.append(
            [
                text(name),
                shown(f"{100 * seconds[name] / whole:.1f} %", seconds[name]),
                shown(quantity("seconds", *[float(each[place])] * 3), float(each[place])),
                shown(f"{100 * each[place] / total:.1f} %", float(each[place])),
            ]
        )
    left = len(order) - len(rows)
    note = f"{left:,} smaller doubts are left out." if left else ""
    return table("doubts", "What the answer's time is in doubt of, widest first", headers, rows, note)


def numbers_table(found: Judged) -> Table:
    """The machine's numbers that the study varies or the widest doubts rest on, with their sources."""
    machine = load_tiled(found.study.machine)
    wide = [name.split()[0].rstrip(",") for name in _widest(found)]
    sections = {SECTIONS_OF[word] for word in wide if word in SECTIONS_OF}
    rows = []
    for section in type(machine).model_fields:
        part = getattr(machine, section)
        for field, said in getattr(part, "sources", {}).items():
            name = f"{section}.{field}"
            if section in sections or name in found.study.varied:
                rows.append([text(name), text(field_value(field, getattr(part, field, ""))), text(said)])
    note = "Values of the machine before the study changed them. Costs of codelets have their kind of source in the "
    note += "table above; docs/model.md tells of them."
    title = f"Numbers of {found.study.machine} that are varied or most in doubt"
    return table("numbers", title, ("number", "value", "source"), rows, note)


def _widest(found: Judged) -> list[str]:
    doubts = doubts_table(found)
    return [row[0].text for row in doubts.rows]
