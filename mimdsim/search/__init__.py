"""The best mapping of a network on a machine, found by search.

case -> splits (seeds) and moves -> sampled (estimates from some tiles) -> layers (mappings made of layers of others) ->
walk (the search) -> evaluate (in full) -> savings; chips (mappings of one chip widened to several); smallest (the least
tile memory that fits).
"""

from mimdsim.search.evaluate import profiled, timed
from mimdsim.search.neighbours import copied
from mimdsim.search.objective import OBJECTIVES, Aims, Case, Figures, Objective, Timed, parse_limits
from mimdsim.search.sampled_estimate import estimate
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
