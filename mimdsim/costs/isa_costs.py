"""A program with the codelet costs of the machine that it is timed on.

Codelets carry costs counted for one instruction set ("colossus") and vectors of 64 bits. A machine of other vectors
takes as many turns fewer or more of the loops over vectors; a machine with costs of its own replaces those of the
codelets, prices their instructions by a table of its core (`core_costs.py`), or scales them. A machine of another
instruction set that brings none, or not all, has times whose costs are not its own: `costs_of_another` names the
codelets.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mimdsim.base.cache import PerObject
from mimdsim.base.errors import MappingError, near
from mimdsim.costs.core_costs import VECTORS, on_core, vectors_of_fields
from mimdsim.machine import MimdMachine
from mimdsim.machine.codelet_costs import NATIVE, NATIVE_VECTOR_BYTES, CodeletCosts, CountedCodelet
from mimdsim.program import (
    Codelet,
    Length,
    Lists,
    Program,
    Term,
    TileFormula,
    Vectors,
    WorkerBundles,
)

ELEMENT_BYTES = 4  # of the vectors of a library vertex
_WITH_COSTS: PerObject[Program] = PerObject()


def with_machine_costs(program: Program, machine: MimdMachine) -> Program:
    """`program` with the machine's costs; itself if these are its codelets' own. To be applied once.

    Raises MappingError where the machine's costs name an extent that a codelet does not have.
    """
    costs, width = machine.costs, machine.tile.vector_bytes
    if costs is None and width == NATIVE_VECTOR_BYTES:
        return program

    return _WITH_COSTS.get(
        program, (costs, width), lambda: program.map_codelets(lambda codelet: with_machine_cost(codelet, machine))
    )


def with_machine_cost(codelet: Codelet, machine: MimdMachine) -> Codelet:
    """A single codelet of `with_machine_costs`."""
    costs, width = machine.costs, machine.tile.vector_bytes
    return _scale_cost(_with_costs(_with_vector_width(codelet, width), costs, width, machine.name), costs)


def costs_of_another(program: Program, machine: MimdMachine) -> tuple[str, ...]:
    """The codelets of `program`, sorted, that have no costs of the machine's instruction set."""
    if machine.tile.instruction_set == NATIVE:
        return ()
    codelets = _codelets(program).items()
    return tuple(sorted(name for name, codelet in codelets if not _has_own_cost(codelet, machine.costs)))


def unmatched_cost_names(program: Program, machine: MimdMachine) -> tuple[str, ...]:
    """Every name in the machine's costs that no codelet of `program` has, with what may have been meant."""
    if machine.costs is None:
        return ()
    names = sorted(_codelets(program))
    return tuple(f"'{name}'{near(name, names)}" for name in sorted(set(machine.costs.codelets) - set(names)))


def _codelets(program: Program) -> dict[str, Codelet]:
    return {table.codelet.name: table.codelet for step, _, _ in program.supersteps() for table in step.tables}


def _has_own_cost(codelet: Codelet, costs: CodeletCosts | None) -> bool:
    if costs is None or codelet.name in costs.codelets:
        return costs is not None
    priced = costs.core is not None or costs.bundles_per_operation is not None
    return priced and not _depends_on_spikes(codelet)


def _depends_on_spikes(codelet: Codelet) -> bool:
    """Whether it is a library vertex whose operations only spikes tell, which formulas do not see."""
    named = {name for term in codelet.flops for name in term.extents}
    return isinstance(codelet.cost, TileFormula) and any(
        isinstance(codelet.extents.get(name), Lists) or name not in codelet.extents for name in named
    )


def _with_vector_width(codelet: Codelet, vector_bytes: int) -> Codelet:
    """The codelet on vectors of another width; itself if none of its loops is over vectors."""
    wide = {name for name, one in codelet.extents.items() if isinstance(one, Vectors)}
    if vector_bytes == NATIVE_VECTOR_BYTES or not wide:
        return codelet
    extents = {name: one for name, one in codelet.extents.items() if name not in wide}
    for name in wide:
        one = codelet.extents[name]
        assert isinstance(one, Vectors)
        extents[VECTORS] = Length(one.field, one.axis, one.per * vector_bytes // NATIVE_VECTOR_BYTES, one.after)

    def renamed(terms: tuple[Term, ...]) -> tuple[Term, ...]:
        return tuple(
            replace(term, extents=tuple(VECTORS if name in wide else name for name in term.extents)) for term in terms
        )

    cost = codelet.cost
    if isinstance(cost, WorkerBundles):
        cost = replace(cost, terms=renamed(cost.terms))
    return replace(codelet, cost=cost, flops=renamed(codelet.flops), extents=extents)


def _with_costs(codelet: Codelet, costs: CodeletCosts | None, vector_bytes: int, machine: str) -> Codelet:
    if costs is None:
        return codelet
    if codelet.name in costs.codelets:
        return _with_counted_cost(codelet, costs.codelets[codelet.name], machine)
    if _depends_on_spikes(codelet):
        return codelet
    if costs.core is not None:
        return on_core(codelet, costs.core, vector_bytes)
    if costs.bundles_per_operation is None:
        return codelet
    if isinstance(codelet.cost, TileFormula):
        return _with_library_rate(codelet, costs, vector_bytes)
    terms = tuple(term.times(costs.bundles_per_operation) for term in codelet.cost.terms)
    assert costs.vertex_bundles is not None  # given with the rate
    cost = WorkerBundles(fixed=costs.vertex_bundles, terms=terms, kind=costs.rate_kind, source=_source(costs))
    return replace(codelet, cost=cost)


def _scale_cost(codelet: Codelet, costs: CodeletCosts | None) -> Codelet:
    """The codelet at the machine's factor; itself if it has none."""
    scaled = None if costs is None else costs.scaled.get(codelet.name)
    if scaled is None:
        return codelet
    factor, cost, (kind, _, where) = scaled.factor, codelet.cost, scaled.source.partition(":")
    source = f"{where.strip()}; times {factor:g}, of: {cost.source}"
    if isinstance(cost, WorkerBundles):
        terms = tuple(term.times(factor) for term in cost.terms)
        return replace(codelet, cost=replace(cost, fixed=factor * cost.fixed, terms=terms, kind=kind, source=source))
    formula = cost.cycles

    def cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
        return factor * np.asarray(formula(extents, worker_contexts, vector_bytes), np.float64)

    return replace(codelet, cost=TileFormula(cycles=cycles, kind=kind, source=source))


def _with_counted_cost(codelet: Codelet, counted: CountedCodelet, machine: str) -> Codelet:
    """The codelet at the bundles of the machine's own count."""
    extents = dict(codelet.extents)
    over_vectors = [name for name, one in extents.items() if isinstance(one, Vectors)]
    if over_vectors:
        extents[VECTORS] = extents[over_vectors[0]]
    levels = codelet.cost.terms if isinstance(codelet.cost, WorkerBundles) else ()
    known = {*extents, *(name for term in (*levels, *codelet.flops) for name in term.extents)}
    for term in counted.terms:
        for name in term.extents:
            if name not in known:
                raise MappingError(
                    f"machine '{machine}', costs.codelets.{codelet.name}: no loop of the codelet has the extent "
                    f"'{name}'{near(name, known)}; it has {', '.join(sorted(known))}"
                )
    kind, _, where = counted.source.partition(":")
    terms = tuple(Term(bundles=term.bundles, extents=term.extents) for term in counted.terms)
    return replace(
        codelet,
        cost=WorkerBundles(fixed=counted.fixed, terms=terms, kind=kind, source=where.strip()),
        extents=extents,
    )


def _with_library_rate(codelet: Codelet, costs: CodeletCosts, vector_bytes: int) -> Codelet:
    """A library vertex by its operations: every vector that it loads, computes or stores, spread over the contexts."""
    lanes = max(vector_bytes // ELEMENT_BYTES, 1)
    vectors = vectors_of_fields(codelet, lanes)
    extents = {**codelet.extents, **vectors}
    moved = [f"{VECTORS} of {field.name}" for field in codelet.fields for _ in range(field.reads + field.writes)]
    rate, outside = costs.bundles_per_operation, costs.vertex_bundles
    assert rate is not None
    assert outside is not None

    def cycles(extents: dict[str, Any], worker_contexts: int, _vector_bytes: int) -> Any:
        operations: Any = sum(np.asarray(extents[name], np.float64) for name in moved)
        for term in codelet.flops:
            operations = operations + np.ceil(term.bundles * term.turns(extents) / lanes)
        return worker_contexts * outside + rate * operations

    cost = TileFormula(cycles=cycles, kind=costs.rate_kind, source=_source(costs))
    return replace(codelet, cost=cost, extents=extents)


def _source(costs: CodeletCosts) -> str:
    said = ("vertex_bundles", "bundles_per_operation")
    each = (f"{key} = {getattr(costs, key):g}: {costs.sources[key].partition(':')[2].strip()}" for key in said)
    return f"the machine's rate ({'; '.join(each)})"
