"""Tables of tile memory: categories, largest variables, liveness."""

from __future__ import annotations

from mimdsim.base.phases import in_order
from mimdsim.base.units import show_bytes
from mimdsim.profile import MemoryProfile
from mimdsim.report.formatting import thousands
from mimdsim.report.tables import Table, count, percent, shown, table, text


def categories_table(memory: MemoryProfile) -> Table:
    """Bytes by category on the fullest tile, and over all tiles."""
    rows = []
    for category, by_tile in zip(memory.categories, memory.bytes_by_category_and_tile, strict=True):
        here = by_tile[memory.peak_tile] if memory.peak_tile < len(by_tile) else 0
        most = max(by_tile, default=0)
        mean = sum(by_tile) / len(by_tile) if by_tile else 0.0
        rows.append(
            (
                text(category),
                shown(show_bytes(here), here),
                percent(here, memory.limit_bytes),
                shown(show_bytes(mean), mean),
                shown(show_bytes(most), most),
                count(by_tile.index(most)) if most else text("–"),
                shown(show_bytes(sum(by_tile)), sum(by_tile)),
            )
        )
    rows.sort(key=lambda row: -(row[1].value or 0.0))
    return table(
        "categories",
        f"Memory by category; fullest tile is {thousands(memory.peak_tile)}",
        ("category", "fullest tile", "of limit", "mean tile", "largest", "on tile", "all tiles"),
        rows,
        f"Peak {memory.peak_of_limit}; tiles.csv has every tile.",
    )


def variables_table(memory: MemoryProfile) -> Table:
    """The largest variables on the fullest tile."""
    rows = [
        (text(name), text(category), shown(show_bytes(nbytes), nbytes), percent(nbytes, memory.limit_bytes))
        for name, category, nbytes in memory.largest_on_peak_tile
    ]
    caption = f"Largest variables on the fullest tile, {thousands(memory.peak_tile)}"
    return table("variables", caption, ("variable", "category", "memory", "of limit"), rows)


def liveness_table(memory: MemoryProfile) -> Table:
    """The fullest superstep of every phase."""
    rows = []
    for phase in in_order(point.phase for point in memory.liveness):
        points = [point for point in memory.liveness if point.phase == phase]
        most = max(points, key=lambda point: point.fullest_tile_bytes)
        total = max(point.total_bytes for point in points)
        rows.append(
            (
                text(phase),
                shown(show_bytes(most.fullest_tile_bytes), most.fullest_tile_bytes),
                percent(most.fullest_tile_bytes, memory.limit_bytes),
                count(most.fullest_tile),
                text(most.superstep),
                shown(show_bytes(total), total),
            )
        )
    return table(
        "liveness",
        "The fullest moment of every phase",
        ("phase", "fullest tile", "of limit", "tile", "in superstep", "all tiles, at most"),
        rows,
        "liveness.csv has every superstep.",
    )
