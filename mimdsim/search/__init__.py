"""The best mapping of a network on a machine, found by search.

objective (what is best) -> neighbours (where it begins, steps) -> evaluate (estimates from some tiles, or in full) ->
layers (mappings made of layers of others) -> search_loop -> savings; multi_chip (mappings of one chip widened to
several); smallest (the smallest tile memory with a feasible mapping); render (the result as text).
"""

from mimdsim.search.evaluate import estimate, profiled, timed
from mimdsim.search.neighbours import copied
from mimdsim.search.objective import OBJECTIVES, Aims, Case, Figures, Objective, Timed, parse_limits
from mimdsim.search.savings import Saving, shortened_most
from mimdsim.search.search_loop import Found, best_of, search
from mimdsim.search.smallest import smallest_sram

__all__ = [
    "OBJECTIVES",
    "Aims",
    "Case",
    "Figures",
    "Found",
    "Objective",
    "Saving",
    "Timed",
    "best_of",
    "copied",
    "estimate",
    "parse_limits",
    "profiled",
    "search",
    "shortened_most",
    "smallest_sram",
    "timed",
]
