"""A study from its file to its rows: points chosen, computed, and written as they come.

Spikes do not depend on the machine, so they are recorded once per network and data, and every point is compiled and
timed with them. A row is kept when its batch is done; a study that was cut goes on from there.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mimdsim.base.console import Progress
from mimdsim.base.errors import MimdsimError, of_the_machine
from mimdsim.base.shown import Sheet, Shown
from mimdsim.studies.description import Study
from mimdsim.studies.executors import Batch, Work, WorkerPool
from mimdsim.studies.files import other_study, write_tables
from mimdsim.studies.metrics import Row
from mimdsim.studies.points import Point, Points, recomputed_points
from mimdsim.studies.results import POINT_RESULTS, table_value, with_ratios
from mimdsim.studies.sampling import Design
from mimdsim.studies.sensitivity import Sensitivities, sensitivity_plan
from mimdsim.studies.store import Store
from mimdsim.studies.tpe_search import search_plan
from mimdsim.studies.worker import best_mapping, record, run_on_same_inputs, time_points

if TYPE_CHECKING:
    from mimdsim.studies.page_data import StudyPlots

WRITE_SECONDS, WRITE_SHARE = 5.0, 0.05  # least time between tables of an unfinished study, and most share of it
MOST_IN_A_BATCH = 20  # points: as many as a process can lose
POLL_SECONDS = 0.3  # between looks at what another process is doing
Plan = Generator[list[Design], list[list[Row]], Any]
"""Designs to compute, then their rows by design (one for each workload), until the plan returns what it found."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StudyResult(Shown):
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

    @cached_property
    def answer(self) -> tuple[str, ...]:
        """The sentences that answer the question, the most important first."""
        from mimdsim.studies.answer_text import answer  # which takes results
        from mimdsim.studies.pareto import rank

        return tuple(answer(rank(self)))

    @property
    def plot(self) -> StudyPlots:
        """Its figures: plot.best(), plot.effects(), plot.lines(), plot.crossover()."""
        from mimdsim.studies.page_data import StudyPlots

        return StudyPlots(self)

    def _sheet(self) -> Sheet:
        return Sheet(self.study.question or "study", [(line,) for line in (*self.answer, *self.warnings)])

    @property
    def complete(self) -> bool:
        """Whether all points that were asked for have a row."""
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
    other, warnings = other_study(study, folder)
    if other and not as_is:
        raise MimdsimError(other)
    with Store(folder) as store:
        warnings += [f"nothing is written: {other}"] if other else []
        result = _StudyRun(study, points, store, pool, progress, as_is, warnings).run()
        return result if other else replace(result, files=tuple(write_tables(result.rows, study, folder)))


@dataclass(eq=False)
class _StudyRun:
    """A study on its way. problems: why there is no result, by the key of an activity or of a point."""

    study: Study
    points: Points
    store: Store
    pool: WorkerPool
    progress: Progress
    as_is: bool
    warnings: list[str]
    asked: list[Point] = field(default_factory=list)
    problems: dict[str, Exception] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)
    next_write: float = field(default_factory=lambda: time.monotonic() + WRITE_SECONDS)

    def run(self) -> StudyResult:
        self.reference = self.points.of_reference()
        self._compute(self.reference)
        plans = {"sensitivity": sensitivity_plan, "search": search_plan}
        chosen = plans.get(self.study.sampling.kind)
        plan: Plan = chosen(self.study, self.points.varied) if chosen else _all_at_once(self.points)
        found = None
        try:
            designs = next(plan)
            while True:
                stage = self.points.of(designs)
                self.asked += stage
                if None in self._compute(stage):
                    break  # an unfinished study as it is: the next stage is not known
                width, known = len(self.study.workloads), self._rows()[-len(stage) :]
                designs = plan.send([known[at : at + width] for at in range(0, len(known), width)])
        except StopIteration as end:
            found = end.value
        return StudyResult(
            study=self.study,
            rows=tuple(self._rows()),
            designs=len(self.asked) // len(self.study.workloads),
            found=found,
            reference=tuple(filter(None, (self.store.rows.get(point.key) for point in self.reference))),
            warnings=(*self.warnings, *self.store.damaged.values()),
        )

    def _compute(self, points: Sequence[Point]) -> list[Row | None]:
        """A row for every point, in order; computes what the folder lacks. None: not done yet, in a study as it is.

        A point that fails (a damaged file, missing data, a killed process) gets a row without results and with a note;
        the others continue. Raises the first reason if there is no result at all, and internal errors.
        """
        self.warnings += [line for line in recomputed_points(points, self.store.rows) if line not in self.warnings]
        for point in points:
            self.store.require_columns(point.key, point.columns)
        if not self.as_is:
            self._record(points)
            self._search(points)
            self._time(points)
        rows = [self._row(point) for point in points]
        if rows and all(row is not None and row["fits"] is None for row in rows):
            raise next(filter(None, map(self._problem, points)))
        return rows

    def _write_now_and_then(self) -> None:
        """The tables of what is done, now and then."""
        begun = time.monotonic()
        if begun > self.next_write:
            write_tables(self._rows(), self.study, self.store.folder)
            took = time.monotonic() - begun
            self.next_write = begun + max(WRITE_SECONDS, took / WRITE_SHARE)

    def _rows(self) -> list[Row]:
        """A row for every point that is done: what it is of, and its results with their ratio to the reference."""
        names = list(self.study.workloads)
        named = zip(itertools.cycle(names), self.asked, strict=False)
        done = [(name, point, row) for name, point in named if (row := self._row(point)) is not None]
        reference = {name: self.store.rows.get(of.key) for name, of in zip(names, self.reference, strict=False)}
        rows = {
            name: iter(with_ratios([row for of, _, row in done if of == name], reference.get(name))) for name in names
        }
        return [
            {"workload": name, **{key: table_value(value) for key, value in point.changes}, **next(rows[name])}
            for name, point, _ in done
        ]

    def _problem(self, point: Point) -> Exception | None:
        return self.problems.get(point.activity_key) or self.problems.get(point.key)

    def _row(self, point: Point) -> Row | None:
        """None: not done yet. Only in a row without results `fits` is None."""
        if point.key in self.store.rows or (problem := self._problem(point)) is None:
            return self.store.rows.get(point.key)
        return dict.fromkeys((*POINT_RESULTS, *point.columns)) | {"note": " ".join(str(problem).split())}

    def _record(self, points: Sequence[Point]) -> None:
        roomiest: dict[str, Point] = {}  # values do not depend on the machine, but some machines have too few tiles
        for point in points:
            known = roomiest.setdefault(point.activity_key, point)
            if point.machine.chip.tiles > known.machine.chip.tiles:
                roomiest[point.activity_key] = point
        needed = {point.activity_key for point in self._open(points) if point.fill is None}
        waiting = {key: point for key, point in roomiest.items() if key in needed}

        save = self.store.save_activity
        self._each(record, waiting, "recording spikes", self.store.has_activity, lambda keys, it: save(keys[0], it))

    def _search(self, points: Sequence[Point]) -> None:
        waiting = {point.key: point for point in self._open(points) if point.best_mapping}
        save = self.store.save_mapping
        self._each(
            best_mapping, waiting, "searching mappings", self.store.has_mapping, lambda keys, it: save(keys[0], it)
        )

    def _time(self, points: Sequence[Point]) -> None:
        waiting = {point.key: point for point in self._open(points)}

        def keep(keys: list[str], found: Any) -> None:
            rows = dict(zip(keys, found, strict=True))
            failed = {key: row for key, row in rows.items() if isinstance(row, Exception)}
            self.problems |= failed
            self.store.add_rows({key: row | waiting[key].origin for key, row in rows.items() if key not in failed})
            self._write_now_and_then()

        most = max(1, min(MOST_IN_A_BATCH, len(waiting) // (4 * self.pool.workers)))
        mappings = self.store.mappings() if any(point.best_mapping for point in waiting.values()) else []
        self._each(time_points, waiting, "timing points", self._is_timed, keep, most, mappings)

    def _open(self, points: Sequence[Point]) -> list[Point]:
        """Points without row, each once, those of one program after each other."""
        left = {point.key: point for point in points if self._row(point) is None}
        workloads: dict[int, int] = {}  # loaded once each, so the same one is the same object
        for point in left.values():
            workloads.setdefault(id(point.workload), len(workloads))
        return sorted(left.values(), key=lambda point: (workloads[id(point.workload)], _shape(point)))

    def _is_timed(self, key: str) -> bool:
        if key not in self.store.rows:
            self.store.read_new_rows()
        return key in self.store.rows

    def _each(
        self,
        work: Work,
        waiting: Mapping[str, Point],
        doing: str,
        is_done: Callable[[str], bool],
        keep: Callable[[list[str], Any], None],
        most: int = 1,
        *more: Any,
    ) -> None:
        """Work on points by key until all are done, by this process or by another one with the same folder."""
        names = {point: key for key, point in waiting.items()}
        left = {key: point for key, point in waiting.items() if not is_done(key)}
        total = len(left)
        while left:
            worked = False
            claimed = self._claim_batches(left, most, is_done)
            with contextlib.closing(self.pool.each(partial(run_on_same_inputs, work), claimed, *more)) as all_done:
                for done in all_done:
                    worked = True
                    keys = [names[point] for point in done.batch.points]
                    if done.problem is None:
                        keep(keys, done.found)
                    else:
                        self.problems |= dict.fromkeys(keys, done.problem)
                    self.store.release(keys)
                    left = {key: point for key, point in left.items() if key not in keys}
                    self.progress(doing, total - len(left), total)
            left = {key: point for key, point in left.items() if not is_done(key)}
            if left and not worked:  # another process is at the rest
                time.sleep(POLL_SECONDS)
        ours = (problem for problem in self.problems.values() if not isinstance(problem, MimdsimError))
        for problem in ours:
            if not of_the_machine(problem):
                raise problem

    def _claim_batches(self, left: Mapping[str, Point], most: int, is_done: Callable[[str], bool]) -> Iterator[Batch]:
        """Batches of points that nobody else has claimed, claimed when they are taken."""
        chosen: list[Point] = []
        for key, point in list(left.items()):
            if self.store.claim(key):
                if is_done(key):  # since we looked
                    self.store.release([key])
                else:
                    chosen.append(point)
            if len(chosen) == most:
                yield self._batch(chosen)
                chosen = []
        if chosen:
            yield self._batch(chosen)

    def _batch(self, points: Sequence[Point]) -> Batch:
        keys = {point.activity_key for point in points if point.fill is None}
        paths = {key: self.store.activity_path(key) for key in keys}
        for key, path in paths.items():
            if key not in self.shared and path.exists():
                self.shared[key] = self.pool.share(path)
        return Batch(points=tuple(points), spikes={key: self.shared[key] for key in keys if key in self.shared})


def _all_at_once(points: Points) -> Plan:
    yield points.designs()
    return None


def _shape(point: Point) -> str:
    """What mostly decides the program: points with the same are done one after the other, as it is compiled once."""
    machine = point.machine
    return f"{machine.chip.tiles} {dict(machine.tile)} {machine.links.chips} {dict(machine.matrix or {})}"
