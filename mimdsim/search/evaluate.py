"""Mappings estimated, and timed in full, by several processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import TypeVar

from mimdsim.base.errors import DoesNotFit, MappingError, MimdsimError
from mimdsim.base.processes import ENDED, process_pool
from mimdsim.compiler import Compiled, compile_graph, memory_profile
from mimdsim.profile import TiledProfile
from mimdsim.search.objective import Case, Figures, Timed
from mimdsim.search.sampled_estimate import Candidate, estimate
from mimdsim.timing import time_program
from mimdsim.workload.description.mapping import MappingOptions

T = TypeVar("T")
_CASE: list[Case] = []  # of a worker process


class Evaluator:
    """Evaluates mappings of a case, in the order in which they are given."""

    def __init__(self, case: Case, pool: ProcessPoolExecutor | None, joules: bool = False):
        self.case, self._pool, self._joules = case, pool, joules

    def estimates(self, mappings: Sequence[MappingOptions]) -> list[Candidate | None]:
        """None: it cannot be placed."""
        return self._each(partial(_estimated, joules=self._joules), mappings)

    def timings(self, mappings: Sequence[MappingOptions]) -> list[Timed | None]:
        return self._each(_timed, mappings)

    def _each(self, work: Callable[[MappingOptions], T], mappings: Sequence[MappingOptions]) -> list[T]:
        if self._pool is None or len(mappings) < 2:
            _begin(self.case)
            return [work(mapping) for mapping in mappings]
        try:
            return list(self._pool.map(work, mappings))
        except BrokenProcessPool:
            raise MimdsimError(ENDED) from None


@contextlib.contextmanager
def evaluator(case: Case, processes: int, joules: bool = False) -> Iterator[Evaluator]:
    """An evaluator with its processes; one process: this one. joules: energy is estimated too."""
    if processes <= 1:
        yield Evaluator(case, None, joules)
        return
    with process_pool(processes, _begin, (case,)) as pool:
        yield Evaluator(case, pool, joules)


def _begin(case: Case) -> None:
    _CASE[:] = [case]


def _estimated(options: MappingOptions, joules: bool) -> Candidate | None:
    try:
        return estimate(_CASE[0], options, joules)
    except (DoesNotFit, MappingError):
        return None


def _timed(options: MappingOptions) -> Timed | None:
    try:
        return timed(_CASE[0], options)
    except DoesNotFit:
        return None


def profiled(case: Case, options: MappingOptions) -> tuple[Compiled, TiledProfile]:
    """A mapping compiled and timed in full, whether it fits the tile memory or not; raises DoesNotFit for too few tiles
    and MappingError for a mapping that cannot be."""
    machine = case.machine
    made = compile_graph(case.graph, case.network, machine, options, must_fit=False)
    memory = memory_profile(made.program, made.memory, machine)
    return made, time_program(made.program, machine, case.activity, memory, must_fit=False)


def timed(case: Case, options: MappingOptions) -> Timed:
    """A mapping compiled and timed in full; raises DoesNotFit for too few tiles."""
    made, profile = profiled(case, options)
    layers = made.placement.layers
    return Timed(
        options=options,
        figures=Figures(
            cycles=profile.cycles,
            peak_bytes=made.memory.peak_bytes,
            tiles=profile.tiles_used,
            joules=None if profile.energy is None else profile.energy.joules,
        ),
        unknown=profile.unknown,
        seconds=profile.seconds_per_training_step,
        spans=tuple((span.name, span.cycles) for span in profile.spans),
        fits=profile.memory.fits,
        shares=tuple(
            (layer.name, layer.copies, layer.fan_in_parts, len(layer.starts), layer.replicas) for layer in layers
        ),
        chips=made.placement.chips,
    )
