"""The memory of a compiled program as profile records."""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary

from mimdsim.base.compressed_columns import numbers
from mimdsim.compiler.out_of_memory import fits_executable
from mimdsim.compiler.passes.liveness import Memory
from mimdsim.machine import MimdMachine
from mimdsim.profile import Liveness, MemoryProfile
from mimdsim.program import Program

_KNOWN: WeakKeyDictionary[Memory, MemoryProfile] = WeakKeyDictionary()  # for re-timing


def memory_profile(program: Program, memory: Memory, machine: MimdMachine) -> MemoryProfile:
    """The compiler's memory measurement as profile records, beside the limit of `machine`."""
    known = _KNOWN.get(memory)
    limit, code_fits = machine.tile.sram_bytes, fits_executable(memory, machine)
    if known is None or (known.limit_bytes, known.code_fits) != (limit, code_fits):
        made = _profile(program, memory, limit) if known is None else known
        _KNOWN[memory] = replace(made, limit_bytes=limit, code_fits=code_fits)
    return _KNOWN[memory]


def _profile(program: Program, memory: Memory, limit_bytes: int) -> MemoryProfile:
    peak_tile = memory.peak_tile
    largest = tuple((name, program.variables[name].category, size) for name, size in memory.largest(peak_tile, 12))
    curve = tuple(
        Liveness(
            superstep=name,
            phase=phase,
            fullest_tile=int(tile),
            fullest_tile_bytes=int(fullest),
            total_bytes=int(total),
        )
        for name, phase, tile, fullest, total in zip(
            memory.names, memory.phases, memory.fullest_tile, memory.fullest_bytes, memory.total_bytes, strict=True
        )
    )
    return MemoryProfile(
        limit_bytes=limit_bytes,
        peak_tile=peak_tile,
        peak_bytes=memory.peak_bytes,
        categories=memory.categories,
        bytes_by_category_and_tile=tuple(numbers(row) for row in memory.by_category),
        peak_bytes_by_tile=numbers(memory.peak_by_tile),
        always_live_bytes_by_tile=numbers(memory.always),
        largest_on_peak_tile=largest,
        liveness=curve,
    )
