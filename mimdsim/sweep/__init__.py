"""Many runs as one table: its points, their timing, and the files written."""

from mimdsim.base.called import make_called
from mimdsim.sweep.points import (
    load_gpu,
    load_line_up,
    load_tiled,
    parse_axis,
    parse_changes,
    parse_value,
    points_of,
    split_changes,
)
from mimdsim.sweep.results import note_lines, table_lines, write_results
from mimdsim.sweep.running import default_processes, load_activity, run_sweep

__all__ = [
    "default_processes",
    "load_activity",
    "load_gpu",
    "load_line_up",
    "load_tiled",
    "note_lines",
    "parse_axis",
    "parse_changes",
    "parse_value",
    "points_of",
    "run_sweep",
    "split_changes",
    "table_lines",
    "write_results",
]

make_called(__name__)
