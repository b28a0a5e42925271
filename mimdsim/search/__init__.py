"""The best mapping of a network on a machine, found by search.

objective (what is best) -> neighbours (where it begins, steps) -> evaluate (estimates from some tiles, or in full) ->
layers (mappings made of layers of others) -> search_loop -> savings; multi_chip (mappings of one chip widened to
several); smallest (the smallest tile memory with a feasible mapping); render (the result as text).
"""

from mimdsim.search.evaluate import compile_and_time, estimate, time_mapping
from mimdsim.search.neighbours import replicate_layers
from mimdsim.search.objective import Aims, Case, Figures, Objective, TimedMapping, parse_limits
from mimdsim.search.search_loop import SearchResult, best_of, most_shortened, search
from mimdsim.search.smallest import smallest_sram

__all__ = [
    "Aims",
    "Case",
    "Figures",
    "Objective",
    "SearchResult",
    "TimedMapping",
    "best_of",
    "compile_and_time",
    "estimate",
    "most_shortened",
    "parse_limits",
    "replicate_layers",
    "search",
    "smallest_sram",
    "time_mapping",
]
