"""Mesh, torus and crossbar with links as wide as makes them equal in bisection, in wires, or in area.

Usage: python benchmarks/fabrics_at_equal_cost.py [WORKLOAD ...] [--machine bow-mesh]
"""

from __future__ import annotations

import argparse

import numpy as np

from mimdsim.machine import MimdMachine, changed_machine, tiled_machine
from mimdsim.pipeline import Programs, retime
from mimdsim.workload import filled_activity, load_workload

PITCH_MM = 1e-4  # of wires; assumed
TILE_MM = 0.75  # from tile to tile; a Bow's area over its tiles
GRIDS = ("mesh", "torus", "crossbar")


def links_of(grid: str, columns: int, rows: int) -> tuple[float, float, float]:
    """(links across the narrowest cut, length of all in tiles, mm2 of switches per byte squared), one direction. Rings
    are folded, so that their links are two tiles long but at the ends; a crossbar has one switch, in the middle."""
    tiles = columns * rows
    if grid == "crossbar":
        away = sum(tiles * np.abs(np.arange(n) - (n - 1) / 2).mean() for n in (columns, rows))
        return tiles / 2, away, (tiles * 8 * PITCH_MM) ** 2
    wires = (columns - 1) * rows + (rows - 1) * columns
    folds = 1 + (grid == "torus")
    return folds * min(columns, rows), folds * wires, tiles * (5 * 8 * PITCH_MM) ** 2


def area_mm2(grid: str, columns: int, rows: int, width: float) -> float:
    """Of wires, both directions, and switches, for links of `width` bytes."""
    _, length, switch = links_of(grid, columns, rows)
    return 2 * length * TILE_MM * 8 * width * PITCH_MM + switch * width**2


def widths(columns: int, rows: int, mesh: float) -> dict[str, dict[str, float]]:
    """Bytes a cycle of links by what is equal and grid, where those of the mesh have so many."""
    of = {grid: links_of(grid, columns, rows) for grid in GRIDS}
    made = {what: {g: mesh * of["mesh"][n] / of[g][n] for g in GRIDS} for n, what in enumerate(("bisection", "wires"))}
    budget, tried = area_mm2("mesh", columns, rows, mesh), np.geomspace(0.01, 100, 20_001)
    made["area"] = {g: float(tried[np.searchsorted(area_mm2(g, columns, rows, tried), budget)]) for g in GRIDS}
    return made | {"width of links": dict.fromkeys(GRIDS, mesh)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workloads", nargs="*", default=["digits", "nmnist-2-random", "shd-3"])
    parser.add_argument("--machine", default="bow-mesh")
    given = parser.parse_args()
    machine: MimdMachine = tiled_machine(given.machine, "")
    columns = machine.chip.grid_columns
    wide = widths(columns, machine.chip.tiles // columns, machine.exchange.link_bytes_per_cycle or 1.0)
    for name in given.workloads:
        print(f"| {name}: equal | " + " | ".join(GRIDS) + " |\n|---|---|---|---|")
        programs, described = Programs(), [load_workload(name, {"mapping.strip_columns": n}) for n in (0, 8)]
        for what, widths_of in wide.items():
            cells = []
            for grid, width in widths_of.items():
                on = changed_machine(machine, {"chip.grid": grid, "exchange.link_bytes_per_cycle": width})
                made = [programs.compiled(one, on) for one in described]
                times = [retime(one, on, filled_activity(one.network, 0.5)).seconds_per_training_step for one in made]
                cells.append(f"{1e3 * min(times):.3g} ms ({width:.3g} B)")
            print(f"| {what} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
