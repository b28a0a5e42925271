"""The adjoint of the published neuron in one pass over its rows: what reaches it at listed ids, the gradient of the
currents, and its decay. The same numbers as by the tables in turn, without writing and reading rows in between."""

from __future__ import annotations

from typing import Any

import numpy as np

from mimdsim.functional.calls import Call
from mimdsim.functional.shares import WORTH_A_THREAD
from mimdsim.functional.shortcuts import Adjoint, Instead, Memory, Substitute
from mimdsim.functional.uses import Use, Uses
from mimdsim.numerics.arrays import dense
from mimdsim.numerics.fused.gradients import adjoint
from mimdsim.numerics.lists import neurons
from mimdsim.program import VertexTable
from mimdsim.program.rows import boxes_of


def take_adjoints(uses: Uses, memory: Memory, instead: Instead) -> None:
    """Every adjoint of a repeat that four tables make; the pass is made where the first of them stands."""
    for use, first in uses.computed_by(neurons.state_gradient):
        dv = first.operands["dv"]
        copied = _of(uses, dense.copy_columns, "source", dv)
        faded = _of(uses, neurons.scale_unless_spiked, "dv", dv) + _of(uses, neurons.scale_in_place, "dv", dv)
        if len(copied) != 1 or len(faded) != 1 or not isinstance(copied[0].item, VertexTable):
            continue
        q = copied[0].item.operands["target"]
        scaled = _of(uses, neurons.scale_in_place, "q", q)
        known = [use, *copied, *scaled, *faded]
        if len(scaled) == 1 and _one_pass(uses, memory, known, dv, q):
            _take(memory, instead, known)


def _of(uses: Uses, compute: Any, field: str, variable: str) -> list[Use]:
    """Tables that compute so, with a variable in a field."""
    return [use for use, table in uses.computed_by(compute) if table.operands.get(field) == variable]


def _one_pass(uses: Uses, memory: Memory, known: list[Use], dv: str, q: str) -> bool:
    """Whether the tables work on all of float32 rows, none of them in sequences of timesteps, and nothing else sees or
    changes what they work on meanwhile."""
    places = [use.place for use in known]
    ours = {id(use) for use in known}
    if known[0].repeat is None or len({(use.repeat, use.superstep.phase) for use in known}) != 1:
        return False
    if places != sorted(places):
        return False
    read_later = frozenset().union(*(use.reads for use in known[1:]))
    for name, last in ((dv, places[-1]), (q, places[2]), *((name, places[-1]) for name in read_later - {dv, q})):
        between = [use for use in uses.of[name] if use.repeat is known[0].repeat and places[0] <= use.place <= last]
        if any(id(use) not in ours and (name in (dv, q) or name in use.writes) for use in between):
            return False
    for use in known:
        table = use.item
        assert isinstance(table, VertexTable)
        for item in table.codelet.fields:
            variable = uses.program.variables[table.operands[item.name]]
            if len(variable.shape) > 2:
                return False
            boxes = boxes_of(table, item, variable) if item.writes else None
            if boxes is not None and (boxes[..., 1] - boxes[..., 0]).prod(axis=1).sum() != np.prod(variable.shape):
                return False
            if item.name not in ("ids", "counts") and memory.arrays[table.operands[item.name]].dtype != np.float32:
                return False
    return True


def _take(memory: Memory, instead: Instead, known: list[Use]) -> None:
    first, _, scaled, last = (use.item for use in known)
    assert isinstance(first, VertexTable)
    assert isinstance(scaled, VertexTable)
    assert isinstance(last, VertexTable)
    dv, v, g, ids, counts = (first.operands[name] for name in ("dv", "v", "g", "ids", "counts"))
    q, gain, decay = scaled.operands["q"], scaled.operands["gain"], last.operands["decay"]
    before = last.operands.get("v_previous", v)  # without a mask any rows, of which none is above infinity
    names = q, dv, v, g, ids, counts, gain, decay, before
    fired = last.constants.get("threshold", np.float32(np.inf))
    constants: Any = first.constants["threshold"], first.constants["slope"], fired
    compute: Any = adjoint

    def run(_t: int, *arrays: np.ndarray) -> None:
        count = len(arrays[0])
        if arrays[0].size < WORTH_A_THREAD:
            compute(*arrays, *constants, 0, count)
        else:
            memory.share(count, lambda low, high: compute(*arrays, *constants, low, high))

    instead.tables |= {id(use.item): None for use in known}
    instead.tables[id(first)] = Substitute(
        call=Call(run=run, names=names),
        reads=frozenset(names[1:]),
        writes=frozenset([dv, q]),
        fills=frozenset([q]),
        adjoint=Adjoint(known=known, names=names, constants=constants),
    )
