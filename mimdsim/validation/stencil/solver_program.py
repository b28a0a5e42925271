"""The published solvers of partial differential equations on Mk2 chips: their codelets, and programs made of them.

Instructions are counted from the C++ codelets of simehaa/IPU (HeatEquation2D, HeatEquation3D, AlievPanfilovModel) and
TszwangKo/FYP_IPU_DEVITO (DiffusionEquation3D, WaveEquation3D) by one rule: every load, store and operation as written,
with common subexpressions once; an index and a branch a turn; row pointers that the registers cannot hold are loaded
again every turn. Which operations share a bundle with a load or store is up to the compiler: `pairable` says how many
could, `tile.compiled_dual_issue` how many do.

Fields lie in blocks on tiles, halos come by exchange. A vertex takes its slice of a field as a list of rows, each one
piece of memory. A row with a halo at its ends lies in pieces, so the compiler keeps a second copy of such rows: what a
tile holds of them is copied there by its contexts, what others hold is received there. What is computed on a tile but
held by another (`boxes.py`) goes through a copy of its own on the way back. Both copies cost as those of the blur
(`boxes.py`), taken over as they were.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.compiler import plan_exchanges
from mimdsim.kernels.parts import box_of
from mimdsim.machine import MimdMachine
from mimdsim.program import (
    Codelet,
    Column,
    Field,
    Program,
    ProgramBuilder,
    Superstep,
    Term,
    Variable,
    VertexTable,
    WorkerBundles,
)
from mimdsim.validation.stencil.boxes import (
    CONTEXTS,
    OWN,
    Boxes,
    CutGrid,
    computed,
    copies,
    copy_codelet,
    held,
    least_surface,
    squarest,
)

# a worker has 12 general registers for addresses (Tile Vertex ISA); stack pointer, index and end of the loop take three
POINTER_REGISTERS = 9
VALUE_REGISTERS = 8  # a0 to a7
POINTER_BUNDLES = 2  # of one row: its number in the list of rows, and the pointer that lies there
LOOP_BUNDLES = 4  # of one row: count, branch and index of the loop over rows, count of the inner one
STATE_BUNDLES = 16  # of a vertex: pointers to rows and extents are loaded, derived constants computed
DIVIDE = 3  # cycles of a division of one float, as everywhere in this package (PopLibs operation tables)


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Instructions of one turn of the inner loop: `rows` distinct row pointers, `constants` kept or loaded again."""

    loads: int
    stores: int
    operations: int
    rows: int
    constants: int

    def term(self, extent: str, *, reloaded: bool = False, control: int = 2) -> Term:
        """Bundles of a turn; control: index and branch; reloaded: no constant survives in a register beside the three
        values that are worked on."""
        moves = self.loads + self.stores + control + max(self.rows - POINTER_REGISTERS, 0)
        moves += max(self.constants + 3 - VALUE_REGISTERS, 0) + self.rows if reloaded else 0
        return Term(
            bundles=moves + self.operations, extents=(extent,), pairable=min(self.loads + self.stores, self.operations)
        )


@dataclass(frozen=True, kw_only=True)
class Solver:
    """One published program: its vertex, axes of its grid, cells that its stencil reaches (pad), fields in turn.

    reads: field of the codelet -> cells around the own ones that its slice has; constant: those of them that no step
    writes; updated: fields changed in place; loop: its inner loop, one cell a turn, or two in `pairs`, whose cells at
    either end come first, one by one as by `loop`. boundary: steps copy the edges of the grid first.
    """

    vertex: str
    axes: int
    pad: int = 1
    turning: int = 2
    reads: dict[str, int] = field(default_factory=lambda: {"old": 1})
    compute: Callable[..., None]
    loop: Loop
    pairs: Loop | None = None
    constant: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    boundary: bool = False
    flops: int
    source: str


def _faces(around: np.ndarray, pad: int, reach: int) -> list[np.ndarray]:
    """Per axis, the sum of the two neighbours `reach` cells away, of the cells that are `pad` from every edge."""
    own = [slice(pad, extent - pad) for extent in around.shape]
    found = []
    for axis, extent in enumerate(around.shape):
        before, after = own.copy(), own.copy()
        before[axis] = slice(pad - reach, extent - pad - reach)
        after[axis] = slice(pad + reach, extent - pad + reach)
        found.append(around[tuple(before)] + around[tuple(after)])
    return found


ALPHA = np.float32(0.1)  # any stable one; cycles do not depend on it


def heat(new: np.ndarray, old: np.ndarray, *_turns: int) -> None:
    """One vertex: old has a cell more than new on every side; alpha = 0.1."""
    inner = (slice(1, -1),) * old.ndim
    beta = np.float32(1 - 2 * old.ndim * ALPHA)
    new[...] = beta * old[inner] + ALPHA * np.add.reduce(_faces(old, 1, 1))


# weights of the second derivative by distance, beginning with the cell itself
WEIGHTS = {
    1: (-2.0, 1.0),
    2: (-2.5, 1.33333333, -8.33333333e-2),
    4: (-2.84722222, 1.6, -2.0e-1, 2.53968254e-2, -1.78571429e-3),
}


def diffusion(new: np.ndarray, old: np.ndarray, *_turns: int, pad: int) -> None:
    """One vertex of order 2 pad, spacing 1 and step 0.1. (As published, order 8 takes four neighbours along the last
    axis from a row three further: a slip that changes values, not instructions.)"""
    own, laplacian = _with_laplacian(old, pad)
    new[...] = own + ALPHA * laplacian


def _with_laplacian(around: np.ndarray, pad: int) -> tuple[np.ndarray, np.ndarray]:
    """The cells that are `pad` from every edge, and the sum of their second derivatives to order 2 pad."""
    own = around[(slice(pad, -pad),) * around.ndim]
    laplacian = around.ndim * np.float32(WEIGHTS[pad][0]) * own
    for reach, weight in enumerate(WEIGHTS[pad][1:], start=1):
        laplacian = laplacian + np.float32(weight) * np.add.reduce(_faces(around, pad, reach))
    return own, laplacian


def wave(
    new: np.ndarray, now: np.ndarray, before: np.ndarray, damp: np.ndarray, velocity: np.ndarray, *_turns: int
) -> None:
    """One vertex of order 4, spacing 1 and step 0.1; before, damp and velocity may have two cells more, too."""
    before, damp, velocity = (
        field if field.shape == new.shape else field[2:-2, 2:-2, 2:-2] for field in (before, damp, velocity)
    )
    own, laplacian = _with_laplacian(now, 2)
    rate, square = np.float32(1 / ALPHA), np.float32(1 / (ALPHA * ALPHA))
    slowness = 1 / (velocity * velocity)
    damped = rate * damp
    new[...] = (damped * own + slowness * square * (2 * own - before) + laplacian) / (square * slowness + damped)


def aliev_panfilov(new: np.ndarray, recovery: np.ndarray, old: np.ndarray, *_turns: int) -> None:
    """One vertex of excitation (old to new) and recovery (in place); constants of the published program."""
    delta, k, a, b, epsilon, mu1, mu2, step = (np.float32(value) for value in (50, 8, 0.1, 0.1, 0.01, 0.07, 0.3, 1e-3))
    own = old[1:-1, 1:-1]
    rate = delta * (np.add.reduce(_faces(old, 1, 1)) - 4 * own) - k * own * (own - a) * (own - 1) - own * recovery
    new[...] = own + rate * step
    recovery += step * (-epsilon - mu1 * recovery / (mu2 + own)) * (recovery + k * own * (own - b - 1))


SOURCE = "instructions of the C++ codelet in {}, one bundle each"
_heat_2d = Loop(loads=5, stores=1, operations=6, rows=4, constants=2)
_heat_3d = Loop(loads=7, stores=1, operations=8, rows=6, constants=2)
_wave = Loop(loads=16, stores=1, operations=32 + 2 * (DIVIDE - 1), rows=13, constants=8)


def _diffusion(pad: int, operations: int, constants: int) -> Solver:
    return Solver(
        vertex="DiffusionEquationSimple",
        axes=3,
        pad=pad,
        reads={"old": pad},
        compute=partial(diffusion, pad=pad),
        loop=Loop(loads=6 * pad + 1, stores=1, operations=operations, rows=4 * pad + 2, constants=constants),
        flops=operations,
        source=SOURCE.format(f"TszwangKo/FYP_IPU_DEVITO, DiffusionEquation3D of order {2 * pad}"),
    )


def _heat(axes: int, loop: Loop, pairs: Loop | None) -> Solver:
    return Solver(
        vertex="HeatEquationSimple" if pairs is None else "HeatEquationOptimized",
        axes=axes,
        compute=heat,
        loop=loop,
        pairs=pairs,
        flops=2 * axes + 2,
        source=SOURCE.format(f"simehaa/IPU, HeatEquation{axes}D"),
    )


def _wave_solver(vertex: str, pad: int) -> Solver:
    return Solver(
        vertex=vertex,
        axes=3,
        pad=2,
        turning=3,
        reads={"now": 2, "before": pad, "damp": pad, "velocity": pad},
        constant=("damp", "velocity"),
        compute=wave,
        loop=_wave,
        flops=32,
        source=SOURCE.format("TszwangKo/FYP_IPU_DEVITO, WaveEquation3D"),
    )


_aliev_panfilov = Solver(
    vertex="AlievPanfilov",
    axes=2,
    updated=("recovery",),
    compute=aliev_panfilov,
    # as written 12 loads, stores and control, 26 operations and a division: 41 bundles. The published assembly
    # has 54 instructions in 38 issue slots
    loop=Loop(loads=8, stores=2, operations=26 + DIVIDE, rows=7, constants=10),
    boundary=True,
    flops=28,
    source=SOURCE.format("simehaa/IPU, AlievPanfilovModel"),
)
# problem of the tables and one of its programs, whose order is twice its pad
_PROGRAMS = (
    ("heat2d", _heat(2, _heat_2d, None)),
    ("heat2d", _heat(2, _heat_2d, Loop(loads=5, stores=2, operations=7, rows=4, constants=2))),
    ("heat3d", _heat(3, _heat_3d, None)),
    ("heat3d", _heat(3, _heat_3d, Loop(loads=7, stores=2, operations=9, rows=6, constants=2))),
    ("diffusion", _diffusion(1, operations=16, constants=7)),
    ("diffusion", _diffusion(2, operations=28, constants=9)),
    ("diffusion", _diffusion(4, operations=46, constants=11)),
    ("wave", _wave_solver("WaveEquationSimple", 2)),
    ("wave", _wave_solver("WaveEquationOptimised", 0)),
    ("aliev_panfilov", _aliev_panfilov),
)
SOLVERS = {(problem, 2 * solver.pad, solver.vertex): solver for problem, solver in _PROGRAMS}


def codelet_of(solver: Solver, *, reloaded: bool = False) -> Codelet:
    """Its vertex; reloaded: with constants and row pointers loaded again every turn, the slowest reading of the C++."""
    own, around = box_of(solver.axes, OWN), box_of(solver.axes, REACHED)
    rows = (solver.pairs or solver.loop).rows * POINTER_BUNDLES + LOOP_BUNDLES
    if solver.pairs is None:
        terms = [solver.loop.term("cells", reloaded=reloaded)]
    else:  # rows are walked twice: cells at the ends, then pairs
        rows *= 2
        terms = [solver.pairs.term("pairs", reloaded=reloaded), solver.loop.term("ends", reloaded=reloaded, control=0)]
    return Codelet(
        name=solver.vertex,
        fields=(
            Field(name="new", access="write", box=own),
            *(Field(name=name, access="update", box=own) for name in solver.updated),
            *(Field(name=name, access="read", box=around if pad else own) for name, pad in solver.reads.items()),
        ),
        columns=("rows", "cells", "ends", "pairs"),
        compute=solver.compute,
        form="vertex",
        cost=WorkerBundles(
            fixed=STATE_BUNDLES,
            terms=(*terms, Term(bundles=rows, extents=("rows",))),
            kind="derived",
            source=solver.source,
        ),
        flops=(Term(bundles=solver.flops, extents=("cells",)),),
        extents={name: Column(name) for name in ("rows", "cells", "ends", "pairs")},
    )


REACHED = ("before", "after")  # columns of cells with what the stencil reaches around them
WRITTEN = "computed in rows"
ITEM_BYTES = 4
MOST_CELLS = 1 << 33


class _Turn:
    """Steps of one turn of a solver's loop. work, own: boxes that every context computes, and that it copies of what
    its tile holds. moved: whether some cells are computed on another tile than the one that holds them. gathered:
    variable of gathered rows -> the role of which it holds them; rows on their own tile without a halo need none."""

    def __init__(self, solver: Solver, shape: tuple[int, ...], computing: CutGrid, holding: CutGrid):
        self.solver, self.codelet, self.shape = solver, codelet_of(solver), shape
        self.work, self.own = (grid.boxes().split(CONTEXTS[solver.axes]) for grid in (computing, holding))
        edges = zip(computing.edges, holding.edges, strict=True)
        self.moved = any((a[1:-1] != b[1:-1]).any() for a, b in edges)
        self.gathered = {f"{role} in rows": role for role, pad in solver.reads.items() if pad or self.moved}

    def step(self, turning: tuple[str, ...], number: int) -> list[Superstep]:
        """Steps from turning[-2] to turning[-1]; a role before that reads turning[-3]."""
        solver = self.solver
        varying = [role for role in solver.reads if role not in solver.constant]
        fields = dict(zip(varying, turning[-2::-1], strict=False)) | {role: role for role in solver.constant}
        operands = (
            fields | {role: name for name, role in self.gathered.items()} | {name: name for name in solver.updated}
        )
        operands["new"] = WRITTEN if self.moved else turning[-1]
        rows = copy_codelet(ITEM_BYTES, box_of(solver.axes, OWN), solver.axes - 1)
        body = self._boundary(turning[-2], number) if solver.boundary else []
        before = (copies(rows, self.own, fields[role], name) for name, role in self.gathered.items())
        body.append(_superstep("pre copies", number, tuple(itertools.chain(*before))))
        body.append(_superstep("compute", number, (self._vertices(operands),)))
        if self.moved:
            back = copies(rows, self.own.inside(solver.pad, self.shape), WRITTEN, turning[-1])
            body.append(_superstep("post copies", number, back))
        return body

    def _vertices(self, operands: dict[str, str]) -> VertexTable:
        lengths = self.work.lengths
        rows, along = lengths[:, :-1].prod(axis=1), lengths[:, -1]
        in_pairs = (
            self.solver.pairs is not None
        )  # both ends of a row one by one, or the first alone if that leaves pairs
        ends = (2 - along % 2) * rows if in_pairs else 0 * rows
        columns = {"rows": rows, "cells": rows * along, "ends": ends, "pairs": (rows * along - ends) // 2}
        columns |= self.work.columns(OWN) | self.work.columns(REACHED, reach=self.solver.pad)
        return VertexTable(codelet=self.codelet, tiles=self.work.tiles, operands=operands, columns=columns)

    def _boundary(self, field: str, number: int) -> list[Superstep]:
        """The four copies before a step: each edge of the grid without its corners becomes the line two further
        inside."""
        high, wide = self.shape
        whole = self.own.inside(1, self.shape)
        found = []
        for stage, axis, target, source in (
            ("north", 0, 0, 2),
            ("south", 0, high - 1, high - 3),
            ("west", 1, 0, 2),
            ("east", 1, wide - 1, wide - 3),
        ):
            beside = 1 if target == 0 else self.shape[axis] - 2  # the first line inside lies on the tile of the edge
            at = np.flatnonzero((whole.bounds[:, axis, 0] <= beside) & (beside < whole.bounds[:, axis, 1]))
            columns: dict[str, np.ndarray] = {}
            for part, line in (("target", target), ("source", source)):
                lines = whole.bounds[at].copy()
                lines[:, axis] = line, line + 1
                columns |= Boxes(bounds=lines, tiles=whole.tiles[at]).columns((f"{part} low", f"{part} high"))
            codelet = copy_codelet(ITEM_BYTES, box_of(2, ("target low", "target high")), row_axes=1 - axis)
            operands = {"source": field, "target": field}
            table = VertexTable(codelet=codelet, tiles=whole.tiles[at], operands=operands, columns=columns)
            found.append(_superstep(f"{stage} edge", number, (table,)))
        return found


def solver_program(solver: Solver, grid: tuple[int, ...], machine: MimdMachine, chips: int = 1) -> Program:
    """One turn of the loop: `solver.turning` steps, after which every field has its role again; exchanges planned.

    grid: cells of the published figure; with `solver.boundary`, copied edges come on top. Inputs and outputs are
    the fields that take turns (the last one holds the result of a turn), those that are updated and constants; each
    float32[grid]. Raises MappingError for grids of another
    number of axes, too small to be cut, or of more than 2^33 cells.
    """
    if len(grid) != solver.axes or min(grid) < 1 or np.prod(grid, dtype=float) > MOST_CELLS:
        size = "x".join(map(str, grid))
        raise MappingError(f"a grid of {size}: {solver.axes} axes of at least 1 cell, at most 2^33 cells, are needed")
    tiles, strips = machine.chip.tiles, chips
    shape = grid
    if solver.boundary:  # this program takes the tiles of all chips for those of one
        tiles, strips = tiles * chips, 1
        shape, splits = tuple(extent + 2 for extent in grid), squarest(grid, tiles)
    else:
        splits = least_surface(grid, tiles, chips)
    computing = computed(shape, solver.pad, splits, strips, tiles)
    holding = held(shape, splits, strips, tiles)
    turn = _Turn(solver, shape, computing, holding)
    turning = tuple(f"field {number}" for number in range(solver.turning))
    fields = (*turning, *solver.updated, *solver.constant)
    mappings = dict.fromkeys((*fields, *turn.gathered), holding.mapping())
    if turn.moved:
        mappings[WRITTEN] = computing.filling(shape).mapping()
    made = ProgramBuilder(
        tiles=strips * tiles,
        chips=chips,
        variables={
            name: Variable(name=name, shape=shape, dtype="float32", mapping=mapping, category="neuron states")
            for name, mapping in mappings.items()
        },
        inputs={name: name for name in fields},
        outputs={name: name for name in (*turning, *solver.updated)},
    )
    with made.repeat(1):
        for number in range(solver.turning):
            made.body.extend(turn.step(turning[number:] + turning[:number], number))
    return plan_exchanges(made.program())


def _superstep(stage: str, number: int, tables: tuple[VertexTable, ...]) -> Superstep:
    return Superstep(
        name=f"{stage}, step {number}", op="stencil", phase="forward", stage=stage, tables=tables, mergeable=False
    )
