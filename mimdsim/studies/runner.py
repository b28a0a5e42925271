"""A study from its file to its rows: points chosen, computed, and written as they come."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mimdsim.base.errors import MimdsimError
from mimdsim.pipeline.pipeline import Progress
from mimdsim.studies.description import Study
from mimdsim.studies.executors import WorkerPool
from mimdsim.studies.files import other_study, unknown_study, write_tables
from mimdsim.studies.metrics import Row
from mimdsim.studies.points import Point, Points, recomputed_points
from mimdsim.studies.results import shown, with_ratios
from mimdsim.studies.sampling import Design
from mimdsim.studies.scheduler import compute, done_rows
from mimdsim.studies.sensitivity import Sensitivities, sensitivity_plan
from mimdsim.studies.store import Store
from mimdsim.studies.tpe_search import search_plan

WRITE_SECONDS, WRITE_SHARE = 5.0, 0.05  # least time between tables of an unfinished study, and most share of it
Plan = Generator[list[Design], list[list[Row]], Any]
"""Designs to compute, then their rows by design (one for each workload), until the plan returns what it found."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StudyResult:
    """A study and its results so far.

    rows: one for every point, in order: workload, changes, results, "seconds_by_source". designs: points
    asked for. found: what a sensitivity found. reference: rows of the machine that ratios are to, one for each
    workload.
    """

    study: Study
    rows: tuple[Row, ...]
    designs: int
    found: Sensitivities | None = None
    reference: tuple[Row, ...] = ()
    warnings: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()

    @property
    def complete(self) -> bool:
        return len(self.rows) == self.designs * len(self.study.workloads)

    @property
    def failed(self) -> int:
        """Points without result."""
        return sum(row["fits"] is None for row in self.rows)


def run_study(study: Study, folder: Path, pool: WorkerPool, progress: Progress, as_is: bool = False) -> StudyResult:
    """Compute every point of a study that `folder` lacks, and keep tables of all in it (`files.py`).

    as_is: compute nothing; the rows are those that are there. Raises DescriptionError for a study that does not fit its
    machine or workloads, MimdsimError for a folder of a run or of a study whose rows would be dropped, and the first
    problem if no point has a result.
    """
    points = Points(study)
    other = other_study(study, folder)
    if other and not as_is:
        raise MimdsimError(other)
    with Store(folder) as store:
        running = _StudyRun(study, points, store, pool, progress, as_is)
        running.again += [f"nothing is written: {other}"] if other else unknown_study(folder)
        running.writes = not other
        return running.run()


class _StudyRun:
    def __init__(self, study: Study, points: Points, store: Store, pool: WorkerPool, progress: Progress, as_is: bool):
        self.study, self.points, self.store, self.pool = study, points, store, pool
        self.progress, self.as_is = progress, as_is
        self.asked: list[Point] = []
        self.without: dict[str, Row] = {}  # points without result, by key
        self.again: list[str] = []
        self.writes = True
        self.next_write = time.monotonic() + WRITE_SECONDS

    def run(self) -> StudyResult:
        self.reference = self.points.of_reference()
        self._compute(self.reference)
        plan = sampling_plan(self.study, self.points)
        found = None
        try:
            designs = next(plan)
            while True:
                made = self.points.of(designs)
                self.asked += made
                rows = self._compute(made)
                if any(row is None for row in rows):
                    break  # an unfinished study as it is: the next stage is not known
                width = len(self.study.workloads)
                known = [row for row in self._rows() if row is not None][-len(made) :]
                designs = plan.send([known[at : at + width] for at in range(0, len(known), width)])
        except StopIteration as end:
            found = end.value
        rows = self._rows()
        studied = StudyResult(
            study=self.study,
            rows=tuple(row for row in rows if row is not None),
            designs=len(self.asked) // len(self.study.workloads),
            found=found,
            reference=tuple(row for row in done_rows(self.store, self.reference) if row is not None),
            warnings=(*self.again, *self.store.damaged.values()),
        )
        if not self.writes:
            return studied
        return replace(studied, files=tuple(write_tables(studied.rows, self.study, self.store.folder)))

    def _compute(self, points: Sequence[Point]) -> Sequence[Row | None]:
        self.again += [line for line in recomputed_points(points, self.store.rows) if line not in self.again]
        if self.as_is:
            return done_rows(self.store, points)
        rows = compute(points, self.store, self.pool, self.progress, self._write_now_and_then)
        self.without |= {point.key: row for point, row in zip(points, rows, strict=True) if row["fits"] is None}
        return rows

    def _write_now_and_then(self) -> None:
        """The tables of what is done, now and then."""
        begun = time.monotonic()
        if begun > self.next_write:
            write_tables([row for row in self._rows() if row is not None], self.study, self.store.folder)
            took = time.monotonic() - begun
            self.next_write = begun + max(WRITE_SECONDS, took / WRITE_SHARE)

    def _rows(self) -> list[Row | None]:
        """A row for every point asked for so far: what it is of, and its results with their ratio to the reference."""
        names = list(self.study.workloads)
        done = [
            row or self.without.get(point.key)
            for point, row in zip(self.asked, done_rows(self.store, self.asked), strict=True)
        ]
        reference = dict(zip(names, done_rows(self.store, self.reference), strict=False))
        rows: list[Row | None] = [None] * len(done)
        for place, name in enumerate(names):
            places = [at for at in range(place, len(done), len(names)) if done[at] is not None]
            with_ratio = with_ratios([done[at] or {} for at in places], reference.get(name))
            for at, row in zip(places, with_ratio, strict=True):
                changes = {key: shown(value) for key, value in self.asked[at].changes}
                rows[at] = {"workload": name, **changes, **row}
        return rows


def sampling_plan(study: Study, points: Points) -> Plan:
    """How the points of a study are chosen."""
    if study.sampling.kind == "sensitivity":
        return sensitivity_plan(study, points.varied)
    if study.sampling.kind == "search":
        return search_plan(study, points.varied)
    return _all_at_once(points)


def _all_at_once(points: Points) -> Plan:
    yield points.designs()
    return None
