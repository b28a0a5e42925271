"""Numbers and names for people: thousands separators, three significant digits, units, no control characters; and the
colours of figures and the page."""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Iterable
from typing import Any

from mimdsim.base.units import common_unit, distinct_texts, unit_beside, with_unit
from mimdsim.profile import MAPPING_FILE, MemoryProfile, RunProfile, TiledProfile

LONGEST_VALUE = 60  # characters of a changed value; the profile has all of them


def thousands(count: float) -> str:
    """A whole number with separators: '1,472'."""
    return f"{round(count):,}" if math.isfinite(count) else str(count)  # an integer first: no '-0'


def significant(value: float, digits: int = 3) -> str:
    """`value` to `digits` significant digits, never with an exponent: '6.76', '1,234', '0.0123'."""
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])  # after rounding: 9.996 is 10.0, not 10.00
    decimals = digits - 1 - exponent
    return f"{value:,.{min(max(decimals, 0), 9)}f}"


def milliseconds(seconds: float) -> str:
    """Seconds as milliseconds without unit, for columns headed ms: '6.76'."""
    return significant(seconds * 1e3)


def aligned_milliseconds(seconds: float, whole: float) -> str:
    """Milliseconds with enough decimals to give `whole` five digits, so that its parts line up."""
    if not math.isfinite(seconds) or not math.isfinite(whole) or whole <= 0:
        return milliseconds(seconds)
    decimals = min(max(4 - math.floor(math.log10(whole * 1e3)), 0), 9)
    shown = f"{seconds * 1e3:,.{decimals}f}"
    smallest = f"{10.0**-decimals:.{decimals}f}"
    return f"<{smallest}" if seconds > 0 and float(shown.replace(",", "")) == 0 else shown


def interval(low: float, high: float) -> str:
    """An interval of seconds in milliseconds: '5.90–8.10'."""
    return f"{milliseconds(low)}–{milliseconds(high)}"


def unit_of(tiled: TiledProfile) -> str:
    """The unit of times: milliseconds for training steps, cycles for kernels, which are much shorter."""
    return "ms" if tiled.trains else "cycles"


def in_unit(tiled: TiledProfile, seconds: float) -> float:
    """Seconds in that unit."""
    return 1e3 * seconds if tiled.trains else seconds * tiled.clock_hz


def duration(tiled: TiledProfile, seconds: float) -> str:
    """Seconds in that unit, with it: '6.76 ms', '1,234 cycles'."""
    if not tiled.trains:
        return f"{thousands(in_unit(tiled, seconds))} cycles"
    return f"{milliseconds(seconds)} ms"


def reach(tiled: TiledProfile) -> str:
    """The interval of a run in that unit: '5.90–8.10 ms'; 'unknown' without costs of its instruction set."""
    if tiled.unknown:
        return "unknown"
    if not tiled.trains:
        low, high = (thousands(in_unit(tiled, end)) for end in (tiled.seconds_low, tiled.seconds_high))
        return f"{low}–{high} cycles"
    return f"{interval(tiled.seconds_low, tiled.seconds_high)} ms"


def share(part: float, whole: float) -> str:
    """`part` of `whole` as a percentage; a dash where there is no whole."""
    if not whole:
        return "–"
    percent = 100 * part / whole
    if 0 < percent < 0.05:
        return "<0.1 %"
    return f"{percent:.1f} %"


def percent_of(share: float) -> str:
    """A share in percent, to two digits below ten: '2.5 %', '25 %'."""
    return f"{share:.2g} %" if share < 10 else f"{share:.0f} %"


def plain(text: str) -> str:
    """`text` on one line without control, bidirectional or unpaired surrogate characters.

    Names come from files that other people write; a terminal or a page must not interpret what they hide.
    """
    return "".join(letter if letter.isprintable() else " " if letter.isspace() else "" for letter in text)


def clipped(text: str, width: int) -> str:
    """`text` in at most `width` characters; a cut is marked by '..'."""
    text = plain(text)
    return text if len(text) <= width else text[: max(width - 2, 0)] + ".."


def rounded(value: float, digits: int = 3) -> str:
    """`value` to at most `digits` significant digits, without zeros at its end or an exponent: '1.5', '1,140'."""
    return f"{float(f'{value:.{digits}g}'):,.10g}"


def quantity(field: str, middle: float, low: float, high: float, *, beside: Iterable[float] = ()) -> str:
    """A number of `field` with its interval, if it has one, in one unit, that of others `beside` it if it can be:
    '1.12 ms (0.83 to 1.4)'."""
    factor, unit = unit_beside(field, middle, beside, tenths=True)
    shown = [rounded(end / factor, 4) for end in (middle, low, high)]
    return with_unit(shown[0], unit) + (f" ({shown[1]} to {shown[2]})" if low != high else "")


def field_value(key: str, value: Any, beside: Iterable[Any] = ()) -> str:
    """The value of a field of a description, with its unit where it was given as a number: '1.5 GHz'; in as many digits
    as tell it from other values `beside` it."""
    return field_values(key, [value, *beside])[0]


def field_values(key: str, values: Iterable[Any]) -> list[str]:
    """All values of a field, of which different ones look different; in one unit if they can be."""
    values = list(values)
    numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]

    def say(value: Any, digits: int) -> str:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return str(value)
        every = digits > sys.float_info.dig  # in the base unit, as another may round two to one
        field = key.rsplit(".", 1)[-1]
        factor, unit = common_unit(field, ()) if every else unit_beside(field, value, numbers, tenths=False)
        whole = every or (isinstance(value, int) and factor == 1.0)
        number = str(value) if whole else f"{float(f'{value / factor:.{digits}g}'):.15g}"
        return with_unit(number, unit)

    return distinct_texts([value if isinstance(value, Hashable) else str(value) for value in values], say)


def changed_fields(profile: RunProfile) -> list[tuple[str, str]]:
    """(key, value) of every field of workload or machine that was changed for this run, as both are shown; a file
    with the end of its path."""
    return [
        (
            plain(one.key),
            clipped(one.value[::-1], LONGEST_VALUE)[::-1]
            if one.key == MAPPING_FILE
            else clipped(one.value, LONGEST_VALUE),
        )
        for one in profile.changes
    ]


def chance(p: float) -> str:
    """A probability from draws: '83 %'; never more certain than so many draws can tell."""
    if p in (0.0, 1.0) or 0.01 <= p <= 0.99:
        return f"{100 * p:.0f} %" if 0 < p < 1 else "over 99.9 %" if p else "under 0.1 %"
    return f"{100 * p:.1f} %"


# ---- colours that colour-blind people can distinguish, and what they stand for; figures and the page share them.
#
# Not beside the style of figures, which imports matplotlib: writing a page need not.


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
