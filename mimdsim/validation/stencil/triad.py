"""The published STREAM triad, a = b + q c, of every context on its own elements: nothing is exchanged.

As in simehaa/IPU, STREAMTriad: a compiled loop over single elements, or one of two elements a bundle in assembly.
"""

from __future__ import annotations

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.machine import MimdMachine
from mimdsim.program import (
    Codelet,
    Column,
    Field,
    Program,
    Repeat,
    Superstep,
    Term,
    TileMapping,
    Variable,
    VertexTable,
    WorkerBundles,
)

FACTOR = np.float32(3)
STATE_BUNDLES = 16  # three pointers and lengths and the factor are loaded, as of the solvers' vertices
AROUND_LOOP = 7  # three bundles fill the pipeline, two empty it; nop and rpt
MOST_ELEMENTS = 1 << 24  # of a context; a tile of this kind holds less than 2^18 floats


def triad(a: np.ndarray, b: np.ndarray, c: np.ndarray, *_turns: int) -> None:
    """One vertex: each [1, 1, elements]."""
    a[...] = b + FACTOR * c


def turns_of(elements: int, assembly: bool) -> int:
    """Turns of the loop: pairs but for the first two, or single elements."""
    return elements // 2 - 2 if assembly else elements


def turn_bundles(assembly: bool) -> int:
    """Compiled: two loads, a store, two operations, index and branch for one element."""
    return 1 if assembly else 7


def triad_codelet(*, assembly: bool) -> Codelet:
    """The vertex of one context."""
    turn = Term(bundles=turn_bundles(assembly), extents=("turns",), pairable=0 if assembly else 2)
    return Codelet(
        name="TriadVertexAssembly" if assembly else "TriadVertex",
        fields=tuple(
            Field(name=name, access="write" if name == "a" else "read", box=("one", "context", ":")) for name in "abc"
        ),
        columns=("turns",),
        compute=triad,
        form="vertex",
        cost=WorkerBundles(
            fixed=STATE_BUNDLES + (AROUND_LOOP if assembly else 0),
            terms=(turn,),
            kind="derived",
            source="instructions of STREAMTriad in simehaa/IPU (codelets.cpp), the assembly bundle by bundle",
        ),
        flops=(Term(bundles=4 if assembly else 2, extents=("turns",)),),
        extents={"turns": Column("turns")},
    )


def triad_program(machine: MimdMachine, elements: int, *, assembly: bool) -> Program:
    """One pass over `elements` of every context; inputs 'b' and 'c', output 'a', float32[tiles, contexts, elements].

    Raises MappingError for fewer than 4 elements (the assembly's loop needs them) or more than 2^24.
    """
    if not 4 <= elements <= MOST_ELEMENTS:
        raise MappingError(f"{elements} elements for a context; give 4 to {MOST_ELEMENTS:,}")
    tiles, contexts = machine.chip.tiles, machine.tile.worker_contexts
    mapping = TileMapping.evenly(0, tiles, np.arange(tiles))
    number = np.arange(tiles * contexts)
    table = VertexTable(
        codelet=triad_codelet(assembly=assembly),
        layer="",
        tiles=number // contexts,
        operands={name: name for name in "abc"},
        columns={
            "one": number // contexts,
            "context": number % contexts,
            "turns": np.full(len(number), turns_of(elements, assembly)),
        },
    )
    step = Superstep(name="triad", op="triad", phase="forward", stage="triad", tables=(table,), mergeable=False)
    return Program(
        tiles=tiles,
        variables={
            name: Variable(
                name=name, shape=(tiles, contexts, elements), dtype="float32", mapping=mapping, category="neuron states"
            )
            for name in "abc"
        },
        body=(Repeat(times=1, body=(step,)),),
        inputs={"b": "b", "c": "c"},
        outputs={"a": "a"},
    )
