"""The compute of a tile in a superstep, as rows of cycles: workers by loop level, library vertices, arranged rows."""

from __future__ import annotations

import numpy as np

from mimdsim.program import Superstep
from mimdsim.timing.explanation import Context, Row, Work, cycles_text
from mimdsim.timing.tile_cycles import Barrel, arranging_parts, worker_cycles
from mimdsim.timing.tile_work import Level, TableWork


class Workers:
    """The worker contexts of the tile; cycles float64[executions], a single entry if all are equal."""

    def __init__(self, work: list[TableWork], times: int, barrel: Barrel):
        self.tables, self.times, self.barrel = work, times, barrel
        self.executions = max((len(each.turns) for one in work for each in one.levels), default=1)
        self.bundles = np.zeros((self.executions, barrel.contexts))
        for one in work:
            context = one.place % barrel.contexts
            for of_vertex, vertex in zip(context.tolist(), one.bundles().T, strict=True):
                self.bundles[:, of_vertex] += vertex
        self.deciding = self.bundles.argmax(axis=1)
        longest, whole = barrel.issue_cycles * self.bundles.max(axis=1), self.bundles.sum(axis=1)
        self.by_longest = longest >= whole
        self.cycles = worker_cycles(self.bundles, barrel)

    def rows(self) -> list[Row]:
        """Every loop level of the decisive vertices: those of the longest context, or all if issue slots are the
        limit."""
        found = []
        for by_longest in (True, False):
            chosen = self.by_longest == by_longest
            factor = self.barrel.issue_cycles if by_longest else 1
            for one in self.tables if chosen.any() else ():
                context = one.place % self.barrel.contexts
                runs = (context == self.deciding[:, None]) if by_longest else np.ones((1, len(context)), bool)
                counts = chosen[:, None] & runs
                for level in one.levels:
                    each = (level.turns * counts).sum(axis=1)
                    if not (level.bundles * each).any():
                        continue
                    found.append(
                        Row(
                            what=f"{one.title}, {level.title}",
                            how=self._how(level, each, factor),
                            cycles=float(each.sum()) * level.bundles * factor * self.times / self.executions,
                            note="in the longest context" if by_longest else "in all contexts",
                        )
                    )
        return found

    def _how(self, level: Level, each: np.ndarray, factor: int) -> str:
        """How a level's cycles come about; each float64[executions]: turns."""
        alike = bool((each == each[0]).all())
        turns = each[0] if alike else each.sum()
        one, several = ("turn", "turns") if level.extents else ("vertex", "vertices")
        said = f"{level.bundles:g} bundles" + (f" ({level.paired:g} paired away)" if level.paired else "")
        said += f" x {turns:,.10g} {one if turns == 1 else several}" + (
            f" x {factor} issue cycles" if factor > 1 else ""
        )
        if alike:
            return said + (f" x {self.times:,} executions" if self.times > 1 else "")
        count = np.count_nonzero(each)
        return f"{said}, in {count:,} {'execution' if count == 1 else 'executions'}"

    def contexts(self, execution: int) -> tuple[Context, ...]:
        """The vertices that every context runs, round after round."""
        at = min(execution, self.executions - 1)
        ran: list[list[tuple[int, str]]] = [[] for _ in range(self.barrel.contexts)]
        for one in self.tables:
            for place, row in zip(one.place.tolist(), one.rows.tolist(), strict=True):
                ran[place % self.barrel.contexts].append((place, f"{row} of {one.title}"))
        return tuple(
            Context(number=number, vertices=tuple(name for _, name in sorted(names)), bundles=float(bundles))
            for number, (names, bundles) in enumerate(zip(ran, self.bundles[at], strict=True))
            if names
        )

    def work(self, execution: int) -> tuple[Work, ...]:
        """The cost of each vertex, with equal ones grouped."""
        at = min(execution, self.executions - 1)
        alike: dict[tuple[str, str], list[int]] = {}
        for one in self.tables:
            bundles = one.bundles()
            for column, row in enumerate(one.rows.tolist()):
                terms = " + ".join(level.at(at, column) for level in one.levels)
                said = f"{terms} = {bundles[min(at, len(bundles) - 1), column]:,g} bundles"
                alike.setdefault((one.title, said), []).append(row)
        return tuple(Work(codelet=name, vertices=tuple(rows), how=how) for (name, how), rows in alike.items())


def library_row(one: TableWork, barrel: Barrel) -> Row:
    """Library vertices of a table, each in turn on all contexts."""
    extents = ", ".join(
        f"{name} {column.min():g}" + (f" to {column.max():g}" if column.min() < column.max() else "")
        for name, column in one.extents.items()
    )
    many = f"{len(one.rows)} vertices, one after another," if len(one.rows) > 1 else "1 vertex"
    note = f"{many} on {barrel.working} contexts, by the codelet's formula" + (f" for {extents}" if extents else "")
    cycles = float(one.cycles.sum())
    return Row(what=one.title, how=f"{cycles_text(cycles)} cycles", cycles=cycles, note=note)


def arranging_rows(superstep: Superstep, tile: int, barrel: Barrel) -> tuple[Row, ...]:
    exchange = superstep.exchange
    if exchange is None:
        return ()
    at = np.flatnonzero(exchange.tiles == tile)
    if not len(at) or not exchange.column("fragments_arranged")[at[0]]:
        return ()
    slots = barrel.issue_cycles / barrel.working
    pieces, volume = (float(part[at[0]]) * slots for part in arranging_parts(exchange, barrel))
    many, size = (int(exchange.column(name)[at[0]]) for name in ("fragments_arranged", "bytes_arranged"))
    shared = f" x {barrel.issue_cycles} / {working}" if (working := barrel.working) < barrel.issue_cycles else ""
    each = f"{many:,} pieces x {barrel.arrange_fragment_bundles:g} bundles{shared}"
    rate = f"{size:,} bytes / {barrel.copy_bytes_per_cycle:g} a cycle{shared}"
    return (
        Row(what="arranging rows, pieces", how=each, cycles=pieces),
        Row(what="arranging rows, bytes", how=rate, cycles=volume),
    )
