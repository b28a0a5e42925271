"""Who works: this process, local processes, or a Dask cluster. All take batches as they become free and give back what
was found of each; a batch of a process that was killed is done again."""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
import re
import sys
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from mimdsim.base.errors import MimdsimError, MissingExtra, shortened
from mimdsim.base.identity import code_digest
from mimdsim.base.processes import ENDED, process_pool
from mimdsim.studies.points import Point
from mimdsim.studies.store import MAX_ACTIVITY_BYTES, checked_result, load_activity

AHEAD = 2  # batches per process that are handed out: none waits for the next
Work = Callable[..., Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Points done by one process one after the other, with their spikes as an engine shares them, by activity key."""

    points: tuple[Point, ...]
    spikes: Mapping[str, Any]


class BatchResult(NamedTuple):
    """A batch and what its work returned, or why it returned nothing."""

    batch: Batch
    found: Any
    problem: Exception | None


class WorkerPool(Protocol):
    """Does work on batches."""

    workers: int

    def share(self, path: Path) -> Any:
        """Spikes of a study's folder as its workers take them."""

    def close(self) -> None:
        """No more work."""

    def each(self, work: Work, batches: Iterable[Batch], *more: Any) -> Generator[BatchResult, None, None]:
        """`work(points, spikes, *more)` of every batch, as they are done; batches are taken when there is room."""


class Local:
    """Processes of this computer, by default one for each processor, which end with this one and keep what they have
    compiled from one call to the next; with one, the work is done here."""

    def __init__(self, processes: int | None = None):
        self.workers = processes or os.cpu_count() or 1
        self._held = contextlib.ExitStack()
        self._pool: ProcessPoolExecutor | None = None

    def share(self, path: Path) -> Path:
        return path

    def close(self) -> None:
        self._pool = None
        self._held.close()

    def each(self, work: Work, batches: Iterable[Batch], *more: Any) -> Generator[BatchResult, None, None]:
        """If a process is killed, the batches in work are lost and tried again; if that happens again, point by point
        by one process, so that the point at fault is known."""
        if self.workers <= 1:
            yield from (_attempt(each, partial(work, each.points, each.spikes, *more)) for each in batches)
            return
        source, again, broken = iter(batches), deque[Batch](), 0
        try:
            while True:
                lost, alone = deque[Batch](), broken > 1
                if alone:
                    again = deque(replace(batch, points=(point,)) for batch in again for point in batch.points)
                if self._pool is None:
                    self._pool = self._held.enter_context(process_pool(1 if alone else self.workers))
                submit = partial(_submit, self._pool, work, more)
                room = 1 if alone else AHEAD * self.workers  # one: the batch at fault is the one in work
                pending = _pending(again, iter(()) if alone else source, lost)
                for done in _run_batches(
                    pending, room, submit, _first_done, lambda batch, future: _attempt(batch, future.result)
                ):
                    if isinstance(done.problem, BrokenProcessPool):
                        lost.append(done.batch)
                    else:
                        yield done
                if alone or lost:
                    self.close()
                if alone and lost:
                    yield BatchResult(lost.popleft(), None, MimdsimError(ENDED))
                elif not alone and not lost:
                    return
                broken = 0 if alone else broken + 1
                again = lost + again
        except BaseException:  # nobody wants what is in work
            self._pool = None
            self._held.__exit__(*sys.exc_info())
            raise


def _pending(again: deque[Batch], source: Iterator[Batch], lost: deque[Batch]) -> Iterator[Batch]:
    """What is to be done again, then the rest, until a batch is lost."""
    while not lost and (batch := again.popleft() if again else next(source, None)) is not None:
        yield batch


def _run_batches(
    batches: Iterator[Batch],
    room: int,
    submit: Callable[[Batch], Any],
    first_done: Callable[[list[Any]], Collection[Any]],
    outcome: Callable[[Batch, Any], BatchResult],
    running: dict[Any, Batch] | None = None,
) -> Iterator[BatchResult]:
    """Batches as they are done, by the futures of `concurrent.futures` or of Dask; running: those in work."""
    running = {} if running is None else running
    while True:
        for batch in itertools.islice(batches, max(0, room - len(running))):
            running[submit(batch)] = batch
        if not running:
            return
        finished = first_done(list(running))
        yield from [outcome(running.pop(future), future) for future in list(running) if future in finished]


def _submit(pool: ProcessPoolExecutor, work: Work, more: tuple[Any, ...], batch: Batch) -> Future[Any]:
    try:
        return pool.submit(work, batch.points, batch.spikes, *more)
    except BrokenProcessPool as broken:  # since we looked
        future = Future[Any]()
        future.set_exception(broken)
        return future


def _first_done(running: list[Future[Any]]) -> Collection[Future[Any]]:
    """Those that are done; when a process was killed, all of them: some may have been done just before."""
    finished = wait(running, return_when=FIRST_COMPLETED).done
    return running if any(isinstance(future.exception(), BrokenProcessPool) for future in finished) else finished


def _attempt(batch: Batch, work: Callable[[], Any]) -> BatchResult:
    try:
        return BatchResult(batch, work(), None)
    except Exception as problem:
        return BatchResult(batch, None, problem)


def run_if_same_sources(digest: str, work: Work, *given: Any) -> Any:
    """`work(*given)` where the sources of mimdsim have this digest: rows are kept as results of those."""
    if code_digest() != digest:
        raise MimdsimError(f"a worker on {platform.node()} has another mimdsim; install the same on every node")
    return work(*given)


class Dask:
    """The workers of a Dask scheduler, which gives the batches of a lost worker to another one.

    They need mimdsim of the same version and no folder in common with this process. What they return is checked like
    rows from disk (`store.py`), but Dask itself unpickles what comes over the network: who reaches scheduler or
    workers can run code here and there. Raises MimdsimError if there is no scheduler at the address (as long as Dask's
    `distributed.comm.timeouts.connect`), it has no workers, or it ends.
    """

    def __init__(self, address: str):
        try:
            from distributed import Client
        except ImportError:
            raise MissingExtra("distributed", "dask", f"--dask {address}") from None
        if not re.fullmatch(r"(\w+://)?[^/\s]+:\d+", address):  # Dask would wait for the end of a client without one
            raise MimdsimError(f"--dask '{shortened(address)}' is no address; write  tcp://HOST:PORT")
        try:
            self.client = Client(address, set_as_default=False)
        except (OSError, ValueError, TypeError) as problem:
            raise MimdsimError(
                f"--dask {address}: no scheduler answers ({problem}); start one with  dask scheduler"
            ) from None
        self.address = address
        self.workers = sum(self.client.nthreads().values())
        if not self.workers:
            self.client.close()
            raise MimdsimError(
                f"--dask {address}: the scheduler has no workers; start some with  dask worker {address}"
            )

    def share(self, path: Path) -> Any:
        """As the result of a task: done again when all workers that hold it are lost, which scattered data is not."""
        from dask import config

        with config.set({"distributed.admin.large-graph-warning-threshold": MAX_ACTIVITY_BYTES}):
            return self.client.submit(tuple, load_activity(path), pure=False)  # the same tuple

    def each(self, work: Work, batches: Iterable[Batch], *more: Any) -> Generator[BatchResult, None, None]:
        from distributed import CancelledError

        running = dict[Any, Batch]()

        def submit(batch: Batch) -> Any:
            given = code_digest(), work, batch.points, dict(batch.spikes), *more
            return self.client.submit(run_if_same_sources, *given, pure=False)

        try:
            room = AHEAD * self.workers
            yield from _run_batches(iter(batches), room, submit, self._first_done, self._outcome, running)
        except CancelledError as lost:
            raise MimdsimError(f"--dask {self.address}: the scheduler has ended, or lost a batch ({lost})") from None
        finally:
            with contextlib.suppress(Exception):  # without a scheduler there is nothing to cancel
                self.client.cancel(list(running))

    def _first_done(self, running: list[Any]) -> Collection[Any]:
        from distributed import wait

        with self.client.as_current():
            done: set[Any] = wait(running, return_when=FIRST_COMPLETED).done
        return done

    def _outcome(self, batch: Batch, future: Any) -> BatchResult:
        from distributed import CancelledError
        from distributed.scheduler import KilledWorker

        try:
            return BatchResult(batch, checked_result(future.result(), [point.key for point in batch.points]), None)
        except CancelledError:
            raise
        except KilledWorker as ended:
            reason = f"{ENDED}; on Dask, raise distributed.scheduler.allowed-failures ({ended})"
            return BatchResult(batch, None, MimdsimError(reason))
        except Exception as problem:
            return BatchResult(batch, None, problem)

    def close(self) -> None:
        self.client.close()
