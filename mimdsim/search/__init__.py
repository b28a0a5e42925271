"""The best mapping of a network on a machine, found by search.

case -> splits (seeds) and moves -> sampled (estimates from some tiles) -> layers (mappings made of layers of others) ->
walk (the search) -> evaluate (in full) -> savings.
"""

from mimdsim.search.aims import OBJECTIVES, Aims, Objective, parse_limits
from mimdsim.search.case import Case, Figures, Timed
from mimdsim.search.evaluate import timed
from mimdsim.search.quick import MUCH, gain_of_others
from mimdsim.search.sampled import estimate
from mimdsim.search.savings import Saving
from mimdsim.search.walk import Found, best_of, search

__all__ = [
    "MUCH",
    "OBJECTIVES",
    "Aims",
    "Case",
    "Figures",
    "Found",
    "Objective",
    "Saving",
    "Timed",
    "best_of",
    "estimate",
    "gain_of_others",
    "parse_limits",
    "search",
    "timed",
]
