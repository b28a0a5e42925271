"""Compute what a study lacks: record spikes once per network and data, search mappings, time batches of points.

Spikes do not depend on the machine, so they are recorded once and every point is compiled and timed with them. A row is
kept when its batch is done; a study that was cut goes on from there.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from mimdsim.base.errors import MimdsimError, of_the_machine
from mimdsim.pipeline.pipeline import Progress
from mimdsim.studies.executors import Batch, Work, WorkerPool
from mimdsim.studies.metrics import Row
from mimdsim.studies.points import Point
from mimdsim.studies.results import POINT_RESULTS, gpu_columns
from mimdsim.studies.store import Store
from mimdsim.studies.worker import best_mapping, record, run_on_same_inputs, time_points

MOST_IN_A_BATCH = 20  # points: as many as a process can lose
POLL_SECONDS = 0.3  # between looks at what another process is doing


def done_rows(store: Store, points: Iterable[Point]) -> list[Row | None]:
    """What a folder holds of points, in their order; None: not done yet."""
    found = []
    for point in points:
        store.need(point.key, (name for gpu in point.gpus for name in gpu_columns(gpu.name)))
        found.append(store.rows.get(point.key))
    return found


def compute(
    points: Sequence[Point],
    store: Store,
    pool: WorkerPool,
    progress: Progress,
    on_rows: Callable[[], None] = lambda: None,
) -> list[Row]:
    """A row for every point, in order; computes what `store` lacks and calls `on_rows` whenever there is more.

    A point that fails (a damaged file, missing data, a killed process) gets a row without results and with a note; the
    others continue. Raises the first reason if there is no result at all, and internal errors.
    """
    done_rows(store, points)  # those with all columns
    study = _Scheduler(points, store, pool, progress, on_rows)
    study.record()
    study.search()
    study.time()
    found = [study.row(point) for point in points]
    if study.problems and all(row["fits"] is None for row in found):
        raise next(iter(study.problems.values()))
    return found


class _Scheduler:
    """The points of a study that are not done; `problems`: by the key of an activity or of a point."""

    def __init__(
        self, points: Sequence[Point], store: Store, pool: WorkerPool, progress: Progress, on_rows: Callable[[], None]
    ):
        self.points, self.store, self.pool, self.progress, self.on_rows = points, store, pool, progress, on_rows
        self.problems: dict[str, Exception] = {}
        self.shared: dict[str, Any] = {}

    def record(self) -> None:
        roomiest: dict[str, Point] = {}  # values do not depend on the machine, but some machines have too few tiles
        for point in self.points:
            known = roomiest.setdefault(point.activity_key, point)
            if point.machine.chip.tiles > known.machine.chip.tiles:
                roomiest[point.activity_key] = point
        needed = {point.activity_key for point in self._open() if point.fill is None}
        waiting = {key: point for key, point in roomiest.items() if key in needed}

        def keep(keys: list[str], spikes: Any) -> None:
            if spikes is not None:
                self.store.keep_activity(keys[0], spikes)

        self._each(record, waiting, "recording spikes", self.store.has_activity, keep)

    def search(self) -> None:
        waiting = {point.key: point for point in self._open() if point.best_mapping}

        def keep(keys: list[str], mapping: Any) -> None:
            self.store.keep_mapping(keys[0], mapping)

        self._each(best_mapping, waiting, "searching mappings", self.store.has_mapping, keep)

    def time(self) -> None:
        waiting = {point.key: point for point in self._open()}

        def keep(keys: list[str], found: Any) -> None:
            rows = dict(zip(keys, found, strict=True))
            failed = {key: row for key, row in rows.items() if isinstance(row, Exception)}
            self.problems |= failed
            self.store.keep({key: row | waiting[key].origin for key, row in rows.items() if key not in failed})
            self.on_rows()

        most = max(1, min(MOST_IN_A_BATCH, len(waiting) // (4 * self.pool.workers)))
        mappings = self.store.mappings() if any(point.best_mapping for point in waiting.values()) else []
        self._each(time_points, waiting, "timing points", self._is_timed, keep, most, mappings)

    def row(self, point: Point) -> Row:
        problem = self.problems.get(point.activity_key) or self.problems.get(point.key)
        return self.store.rows[point.key] if problem is None else _without_result(point, problem)

    def _open(self) -> list[Point]:
        """Points without row, each once, those of one program after each other."""
        left = {
            point.key: point
            for point in self.points
            if point.key not in self.store.rows
            and point.activity_key not in self.problems
            and point.key not in self.problems
        }
        workloads: dict[int, int] = {}  # loaded once each, so the same one is the same object
        for point in left.values():
            workloads.setdefault(id(point.workload), len(workloads))
        return sorted(left.values(), key=lambda point: (workloads[id(point.workload)], _shape(point)))

    def _is_timed(self, key: str) -> bool:
        if key not in self.store.rows:
            self.store.look()
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


def _shape(point: Point) -> str:
    """What mostly decides the program: points with the same are done one after the other, as it is compiled once."""
    machine = point.machine
    return f"{machine.chip.tiles} {machine.tile!r} {machine.links.chips} {machine.matrix!r}"


def _without_result(point: Point, problem: Exception) -> Row:
    """The row of a point without results; only there `fits` is None."""
    columns = (*POINT_RESULTS, *(column for gpu in point.gpus for column in gpu_columns(gpu.name)))
    return dict.fromkeys(columns) | {"note": " ".join(str(problem).split())}
