"""From the work of a tile in a superstep to its cycles: what the engine counts and what an explanation tells.

A tile issues one bundle per cycle, each worker context at most one every `issue_cycles`: with up to that many contexts
this is a strict round robin, in which idle ones waste their turns; with more, the others take over idle turns. So a
superstep takes a tile

    max(issue_cycles * longest context, all bundles together)  +  cycles of its library vertices
    + arranged fragments * arrange_fragment_bundles, shared by the contexts, + arranged bytes at the copy's rate

Another number of the machine that limits compute is a field of `TileIssue` and a term of `tile_cycles`;
`mimdsim.timing.explain` fails until it has rows for it. What memory ports add: `mimdsim.timing.worker_cycles`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mimdsim.base.units import has_own_share, kind_of, less_certain
from mimdsim.machine import MimdMachine
from mimdsim.numerics.columns import worker_load as numerics
from mimdsim.program import Codelet, Exchange
from mimdsim.program.codelet import formula_cycles

ARRANGING_KIND = "derived"


@dataclass(frozen=True, kw_only=True)
class TileIssue:
    """The properties of a machine's tiles that compute cycles depend on."""

    contexts: int
    issue_cycles: int
    vector_bytes: int
    arrange_fragment_bundles: float
    copy_bytes_per_cycle: float = 8.0
    compiled_dual_issue: float = 0.0
    arranging_kind: str = ARRANGING_KIND  # of source, of arrange_fragment_bundles

    @classmethod
    def of(cls, machine: MimdMachine) -> TileIssue:
        kind = kind_of(machine.exchange.sources.get("arrange_fragment_bundles", ARRANGING_KIND))
        return cls(
            arranging_kind=kind
            if has_own_share(kind) and less_certain(kind, ARRANGING_KIND) != kind
            else ARRANGING_KIND,
            contexts=machine.tile.worker_contexts,
            issue_cycles=machine.tile.issue_cycles,
            vector_bytes=machine.tile.vector_bytes,
            arrange_fragment_bundles=machine.exchange.arrange_fragment_bundles,
            copy_bytes_per_cycle=machine.tile.copy_bytes_per_cycle,
            compiled_dual_issue=machine.tile.compiled_dual_issue,
        )

    @property
    def working(self) -> int:
        """Contexts that share work spread over them: more than the issue interval would add no throughput."""
        return min(self.contexts, self.issue_cycles)


def tile_cycles(workers: np.ndarray, beside: np.ndarray) -> np.ndarray:
    """float64: all cycles of tiles, from those of their workers [..., tiles] and those beside them [tiles]."""
    if not beside.any():
        return workers
    result: np.ndarray = beside + workers
    return result


def worker_cycles(bundles: np.ndarray, issue: TileIssue) -> np.ndarray:
    """float64[tiles]: cycles of workers from the bundles [tiles, contexts] of their contexts."""
    cycles = np.empty(len(bundles))
    load = np.ascontiguousarray(bundles.T).reshape(-1)
    numerics.barrel(cycles, load, len(bundles), issue.contexts, issue.issue_cycles, np.empty(len(bundles)))
    return cycles


def library_cycles(codelet: Codelet, extents: dict[str, np.ndarray], issue: TileIssue, vertices: int) -> np.ndarray:
    """float64[vertices], or float64 for all: tile cycles of library vertices, which spread their work over the
    contexts themselves.

    The vendor's formulas multiply the longest worker by its six contexts; six is also the issue interval there.
    Fewer contexts leave issue slots empty; more than the interval add no throughput, and a library would not start
    them (derived). Raises MappingError as `formula_cycles`.
    """
    cycles = formula_cycles(codelet, extents, issue.working, issue.vector_bytes, vertices)
    return cycles * issue.issue_cycles / issue.working


def arranging_cycles(exchange: Exchange, issue: TileIssue) -> np.ndarray:
    """float64[taking part]: cycles of arranging rows, shared by the contexts."""
    pieces, volume = arranging_parts(exchange, issue)
    cycles: np.ndarray = (pieces + volume) * issue.issue_cycles / issue.working
    return cycles


def arranging_parts(exchange: Exchange, issue: TileIssue) -> tuple[np.ndarray, np.ndarray]:
    """float64[taking part], twice: cycles of a tile that issues whenever it can, for the pieces gathered into rows and
    for their bytes."""
    pieces: np.ndarray = exchange.column("fragments_arranged") * issue.arrange_fragment_bundles
    volume: np.ndarray = exchange.column("bytes_arranged") / issue.copy_bytes_per_cycle
    return pieces, volume
