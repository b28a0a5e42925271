"""What the vertices of a program load and store, in place of their costs: for tiles whose memory port is a limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mimdsim.base.cache import PerObject
from mimdsim.costs.core_costs import OUTSIDE, instructions_of, vectors_of_fields
from mimdsim.machine.codelet_costs import NATIVE_VECTOR_BYTES, NATIVE_VERTEX_BUNDLES
from mimdsim.program import Codelet, Program, TileFormula, Vectors, WorkerBundles
from mimdsim.program.instruction_mix import Mix

WORD = 4  # bytes of what is loaded or stored outside vectors; fewer take the port as long
_MOVED: PerObject[Program] = PerObject()


def with_moved_bytes(program: Program) -> Program:
    """`program` as compiled, with bytes for bundles; cycles of library vertices are those of their fields."""
    return _MOVED.get(program, None, lambda: program.map_codelets(moving_codelet))


def moving_codelet(codelet: Codelet) -> Codelet:
    """A codelet that costs the bytes it loads and stores."""
    kind, source = codelet.cost.kind, "bytes loaded and stored"
    if isinstance(codelet.cost, TileFormula):
        each = vectors_of_fields(codelet, 1)
        moved = [
            name for name, field in zip(each, codelet.fields, strict=True) for _ in range(field.reads + field.writes)
        ]

        def cycles(extents: dict[str, Any], _contexts: int, _vector_bytes: int) -> Any:
            return codelet.value_bytes * sum(np.asarray(extents[name], np.float64) for name in moved)

        cost = TileFormula(cycles=cycles, kind=kind, source=source)
        return replace(codelet, cost=cost, extents={**codelet.extents, **each})
    terms = []
    for term in codelet.cost.terms:
        wide = any(isinstance(codelet.extents.get(name), Vectors) for name in term.extents)
        bytes_ = _moves(instructions_of(codelet, term)) * (NATIVE_VECTOR_BYTES if wide else WORD)
        terms.append(replace(term, bundles=bytes_, pairable=0.0, mix=None))
    outside = WORD * _moves(OUTSIDE) * max(codelet.cost.fixed - NATIVE_VERTEX_BUNDLES, 0)
    return replace(codelet, cost=WorkerBundles(fixed=outside, terms=tuple(terms), kind=kind, source=source))


def _moves(mix: Mix) -> float:
    return mix.load + mix.store
