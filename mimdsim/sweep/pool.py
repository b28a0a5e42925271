"""Processes that compute points: a failure of one of them, or of their parent, does not harm the others."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

from mimdsim.base.errors import MimdsimError, of_the_machine
from mimdsim.base.processes import ENDED, process_pool
from mimdsim.sweep.points import Point

Work = Callable[[Point, Path], None]


class Done(NamedTuple):
    """A computed point; problem: why it has no result."""

    point: Point
    problem: Exception | None


def each_point(work: Work, points: list[Point], folder: Path, processes: int) -> Generator[Done, None, None]:
    """Every point once, as they are done.

    If a process is killed, the points being computed are lost and tried again, by one process at a time if that happens
    again, so that the point at fault is known. Processes end with this one, however it ends. Failures that are neither
    the user's nor the system's are raised after all other points have been computed.
    """
    ours: Exception | None = None
    for done in _all_done(work, points, folder, processes):
        problem = done.problem
        if problem is not None and not isinstance(problem, MimdsimError) and not of_the_machine(problem):
            ours = ours or problem
        yield done
    if ours is not None:
        raise ours


def _all_done(work: Work, points: list[Point], folder: Path, processes: int) -> Generator[Done, None, None]:
    if processes <= 1 or len(points) <= 1:
        for point in points:
            yield _here(work, point, folder)
        return
    left, broken = dict(enumerate(points)), 0
    while left:
        alone = broken > 1
        with process_pool(1 if alone else min(processes, len(left))) as pool:
            futures = {pool.submit(work, point, folder): number for number, point in left.items()}
            for future in as_completed(futures):
                problem = future.exception()
                if not isinstance(problem, BrokenProcessPool):
                    yield Done(left.pop(futures[future]), problem if isinstance(problem, Exception) else None)
        broken += 1
        if alone and left:  # one process takes them in order, so it was computing the first remaining one
            yield Done(left.pop(min(left)), MimdsimError(ENDED))
            broken = 0


def _here(work: Work, point: Point, folder: Path) -> Done:
    try:
        work(point, folder)
    except Exception as problem:
        return Done(point, problem)
    return Done(point, None)
