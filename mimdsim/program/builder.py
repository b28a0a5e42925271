"""What every program is written through, by hand or by the compiler: variables, vertices in supersteps, repeats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mimdsim.base.shown import Shown
from mimdsim.program.codelet import Codelet
from mimdsim.program.loop_extents import Recorded
from mimdsim.program.program import Program, Repeat
from mimdsim.program.records import Superstep, Variable, VertexTable


@dataclass(kw_only=True, eq=False)
class ProgramBuilder(Shown):
    """A program in the making on `tiles` tiles, those of `chips` chips one after another.

    What is added goes to the open superstep or, as one of its own, to the innermost open repeat. A kernel
    (`mimdsim.kernels`) adds library vertices and refuses mistakes by the caller's line; the lowering of a network
    (`mimdsim.compiler`) adds where its layers lie.
    """

    tiles: int
    chips: int = 1
    variables: dict[str, Variable] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)  # what the host writes -> variable
    outputs: dict[str, str] = field(default_factory=dict)  # what the host reads -> variable
    bodies: list[list[Superstep | Repeat]] = field(default_factory=lambda: [[]])  # the program's, then open repeats'
    open_superstep: Superstep | None = None

    @property
    def body(self) -> list[Superstep | Repeat]:
        """What supersteps are appended to."""
        return self.bodies[-1]

    def add(self, more: Superstep) -> None:
        """Vertices and copies to the open superstep, or as a superstep of their own."""
        held = self.open_superstep
        if held is None:
            self.body.append(more)
        else:
            tables, copies = (*held.tables, *more.tables), (*held.copies, *more.copies)
            self.open_superstep = replace(held, tables=tables, copies=copies, defines=(*held.defines, *more.defines))

    def add_vertices(
        self,
        superstep: Superstep,
        codelet: Codelet,
        tiles: np.ndarray,
        operands: Mapping[str, str],
        columns: Mapping[str, np.ndarray],
        *,
        layer: str = "",
        extents: Mapping[str, np.ndarray | Recorded] | None = None,
        constants: Mapping[str, Any] | None = None,
    ) -> None:
        """One vertex of `codelet` for every entry of `tiles`, in `superstep` unless one is open."""
        table = VertexTable(
            codelet=codelet,
            layer=layer,
            tiles=tiles,
            operands=dict(operands),
            columns=dict(columns),
            extents=dict(extents or {}),
            constants=dict(constants or {}),
        )
        self.add(replace(superstep, tables=(table,)))

    def open_repeat(self) -> None:
        """What is added until `close_repeat` is the body of a loop."""
        self.bodies.append([])

    def close_repeat(self, times: int, *, reverse: bool) -> None:
        """What was added since `open_repeat` runs `times` times, "@t" from last to first if `reverse`."""
        body = self.bodies.pop()
        self.body.append(Repeat(times=times, body=tuple(body), reverse=reverse))

    @contextmanager
    def repeat(self, times: int, *, reverse: bool = False) -> Iterator[None]:
        """What is added within runs `times` times, "@t" from last to first if `reverse`."""
        self.open_repeat()
        yield
        self.close_repeat(times, reverse=reverse)

    def program(self, **about: Any) -> Program:
        """The program; about: fields that say more of it."""
        return Program(
            tiles=self.tiles,
            chips=self.chips,
            variables=dict(self.variables),
            body=tuple(self.bodies[0]),
            inputs=dict(self.inputs),
            outputs=dict(self.outputs),
            **about,
        )
