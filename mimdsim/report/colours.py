"""Colours that colour-blind people can distinguish, and what they stand for; figures and the page share them.

Not beside the style of figures, which imports matplotlib: writing a page need not.
"""

from __future__ import annotations

from mimdsim.profile import MemoryProfile, RunProfile

# Okabe and Ito, "Color Universal Design" (2008): eight colours distinguishable with any common colour blindness.
VERMILION, SKY, YELLOW, PURPLE = "#D55E00", "#56B4E9", "#F0E442", "#CC79A7"
BLUE, GREEN, ORANGE, BLACK = "#0072B2", "#009E73", "#E69F00", "#000000"
GREY, PALE, INK = "#8C8C8C", "#E6E6E6", "#222222"
# compute reddish, exchange pale blue, sync yellow, as in Graphcore's PopVision
PART_COLOURS = (VERMILION, SKY, YELLOW, PURPLE)
CATEGORY_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, YELLOW, GREY, "#882255", "#555555")
LAYER_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, YELLOW, "#882255")


def category_colours(memory: MemoryProfile) -> dict[str, str]:
    """The colour of every category: in the figure, and where the page shows single tiles."""
    last = len(CATEGORY_COLOURS) - 1  # the smallest categories share one
    return {memory.categories[index]: CATEGORY_COLOURS[min(at, last)] for at, index in enumerate(largest_first(memory))}


def layer_colours(profile: RunProfile) -> dict[str, str]:
    """The colour of every layer, in all figures and on the whole page; layers that are far apart share one."""
    tiled = profile.tiled
    names = [one.layer for one in profile.activity] + ([] if tiled is None else list(tiled.tile_columns.layer))
    named = [name for name in dict.fromkeys(names) if name]
    return {name: LAYER_COLOURS[at % len(LAYER_COLOURS)] for at, name in enumerate(named)}


def largest_first(memory: MemoryProfile) -> list[int]:
    """Numbers of the categories, from the largest."""
    sums = [sum(row) for row in memory.bytes_by_category_and_tile]
    return sorted(range(len(sums)), key=lambda index: (-sums[index], index))
