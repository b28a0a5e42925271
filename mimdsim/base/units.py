"""Numbers with units at the boundary; plain SI base units inside.

A field's name ends in its unit (`sram_bytes`, `clock_hz`). A description gives the number in that base unit, or a
string with a unit of the same dimension ("624 KiB"). Decimal byte sizes ("KB") are refused because readers disagree
whether they mean 1000 or 1024; bandwidths follow the vendors' decimal use (1 GB/s = 1e9 bytes per second).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from mimdsim.base.errors import MimdsimError, shortened

# dimension (= suffix of the field name) -> unit -> factor to the base unit
UNITS: dict[str, dict[str, float]] = {
    "bytes_per_second": {"B/s": 1.0, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12, "Gbit/s": 1e9 / 8},
    "bytes_per_cycle": {"B/cycle": 1.0},
    "flops_per_second": {"FLOP/s": 1.0, "GFLOP/s": 1e9, "TFLOP/s": 1e12},
    "flops_per_cycle": {"FLOP/cycle": 1.0},
    "joules_per_byte": {"J/B": 1.0, "pJ/B": 1e-12},
    "joules_per_flop": {"J/FLOP": 1.0, "pJ/FLOP": 1e-12},
    "bytes": {"B": 1.0, "KiB": 1024.0, "MiB": 1024.0**2, "GiB": 1024.0**3},
    "seconds": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9},
    "hz": {"Hz": 1.0, "kHz": 1e3, "MHz": 1e6, "GHz": 1e9},
    "joules": {"J": 1.0, "mJ": 1e-3, "uJ": 1e-6, "nJ": 1e-9, "pJ": 1e-12},
    "watts_per_mm2": {"W/mm2": 1.0, "mW/mm2": 1e-3},
    "watts": {"W": 1.0, "kW": 1e3},
    "mm2": {"mm2": 1.0},
    "volts": {"V": 1.0, "mV": 1e-3},
    "cycles": {"cycles": 1.0, "cycle": 1.0},
}
Powers = Mapping[str, float]  # exponents of base units: bytes per second are bytes ** 1 and seconds ** -1
_POWERS: dict[str, Powers] = {  # of units that are not base units; cycles and operations are counts
    "hz": {"seconds": -1.0},
    "watts": {"joules": 1.0, "seconds": -1.0},
    "cycles": {},
    "flops": {},
}
ONLY_READ = ("Gbit/s", "cycle")  # units that no number is shown in
MOST_IN_UNIT = 1024  # of a unit, that numbers beside each other share
REFUSED_BYTES = {"KB", "kB", "MB", "GB", "TB", "K", "M", "G"}
MOST_CHARACTERS = 100  # of a number with its unit
_QUANTITY = re.compile(r"([+-]?(?:[0-9]+(?:[._][0-9]+)*|[0-9]*\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*((?:[A-Za-z/]+2?)?)")


def parse_numbers(text: str, count: int, what: str) -> Iterator[int]:
    """The numbers below `count` of a list such as '0, 7, 40-47' or 'all'; what: what they number, for the MimdsimError
    that says how to write one."""
    if text.strip() == "all":
        yield from range(count)
        return
    for part in filter(None, (each.strip() for each in text.split(","))):
        first, _, last = part.partition("-")
        if not (first.strip().isdecimal() and (last.strip().isdecimal() or "-" not in part)):
            raise MimdsimError(f"{what}: '{part[:40]}' is no number; write numbers such as 0,7,40-47 or all")
        begin, end = int(first[:12]), int((last or first)[:12])
        if end < begin:
            raise MimdsimError(f"{what}: '{part[:40]}' ends before it begins; write the lower number first")
        if end >= count:
            raise MimdsimError(f"{what}: '{part[:40]}': they are 0 to {count - 1}")
        yield from range(begin, end + 1)


def exact_product(*factors: float) -> Fraction:
    """The product of numbers as they are written in decimal: 0.29 of 100 is 29, not the 28.999999999999996 of floats,
    so that a whole number is made of it by a rule of its own (`math.floor`, `round`)."""
    return math.prod((Fraction(str(factor)) for factor in factors), start=Fraction(1))


@lru_cache(maxsize=4096)
def dimension(field: str) -> str | None:
    """The unit a field's name ends in, or None for a count."""
    for suffix in UNITS:
        if field == suffix or field.endswith("_" + suffix):
            return suffix
    return None


def powers_of(field: str) -> Powers:
    """What the unit that a field's name ends in is made of; empty for a count."""
    found: Powers = {}
    for place, name in enumerate((dimension(field) or "").split("_per_")):
        plural = name if name in UNITS or f"{name}s" not in (*UNITS, *_POWERS) else f"{name}s"
        found = multiply_units(found, _POWERS.get(plural, {plural: 1.0}) if name else {}, -1 if place else 1)
    return found


def multiply_units(one: Powers, other: Powers, times: float = 1) -> Powers:
    """The unit of one * other ** times."""
    found = {name: one.get(name, 0) + times * other.get(name, 0) for name in (*one, *other)}
    return {name: power for name, power in found.items() if power}


def show_powers(powers: Powers) -> str:
    """'bytes', 'bytes per second', 'bytes^2 volts'; empty for a count."""
    named = [name for name in UNITS if powers and powers_of(name) == powers]
    if named:
        return min(named, key=len).replace("_", " ")
    return " ".join(name if power == 1 else f"{name}^{power:g}" for name, power in powers.items())


def parse_quantity(text: str, field: str, *, bare: bool = True) -> float:
    """The number in the base unit of `field`; bare: a number alone is in that unit, else it is refused.

    Raises ValueError that names the text, the unit found and the units that fit.
    """
    match = _QUANTITY.fullmatch(text.strip()) if len(text) <= MOST_CHARACTERS else None
    if match is None:
        raise ValueError(f"'{shortened(text)}' is not a number with a unit")
    number, unit = float(match.group(1).replace("_", "")), match.group(2)
    suffix = dimension(field)
    if not unit and not bare and powers_of(field):
        raise ValueError(f"'{text}' has no unit; write it with one of {', '.join(UNITS[suffix or ''])}")
    if not unit:
        return number
    if suffix is None:
        raise ValueError(f"'{text}': {field} is a plain count and takes no unit")
    if suffix == "bytes" and unit in REFUSED_BYTES:
        raise ValueError(f"'{text}': '{unit}' is ambiguous (1000 or 1024?); write KiB, MiB, GiB or plain bytes")
    if unit not in UNITS[suffix]:
        raise ValueError(f"'{text}': unit '{unit}' does not fit {field}; use one of {', '.join(UNITS[suffix])}")
    return number * UNITS[suffix][unit]


def common_unit(field: str, numbers: Iterable[float]) -> tuple[float, str]:
    """Factor and name of the largest unit of `field` in which none of the numbers but zero is below one; 1 and '' for a
    count."""
    units = UNITS.get(dimension(field) or "", {})
    sizes = [abs(number) for number in numbers if number and math.isfinite(number)]
    ascending = sorted((factor, unit) for unit, factor in units.items() if unit not in ONLY_READ)
    if not ascending:
        return 1.0, ""
    if not sizes:
        return next((factor, unit) for unit, factor in units.items())
    return max((pair for pair in ascending if pair[0] <= min(sizes)), default=ascending[0])


def unit_beside(field: str, number: float, beside: Iterable[float], *, tenths: bool) -> tuple[float, str]:
    """A unit of a number and those that it stands beside, of which none is below one (or a tenth, where there is none
    like that); where these are too far apart, that of the number."""
    sizes = [abs(each) for each in beside if each and math.isfinite(each)]
    for times in (1, 10)[: 1 + tenths] if sizes else ():
        factor, unit = common_unit(field, (times * min(sizes),))
        if max(sizes) <= MOST_IN_UNIT * factor:
            return factor, unit
    return common_unit(field, (number,))


def with_unit(number: str, unit: str) -> str:
    """'1.85 GHz'; '1 cycle'."""
    return f"{number} {'cycle' if (number, unit) == ('1', 'cycles') else unit}".strip()


def show_quantity(number: float, field: str) -> str:
    """A number of `field` for people, in the largest of its units that leaves at least one: '1.85 GHz'."""
    factor, unit = common_unit(field, (number,))
    return with_unit(f"{number / factor:g}", unit)


def counted(count: int, one: str, many: str = "") -> str:
    """How many there are of something: '1 superstep', '1,472 tiles'. many: the plural, if it is not one + 's'."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def distinct_texts(
    values: Sequence[Any], say: Callable[[Any, int], str], digits: Sequence[int] = (5, 8, 12, 17)
) -> list[str]:
    """Each value as `say` shows it in so many digits; those that would look like a different one in more."""
    shown = [say(value, digits[0]) for value in values]
    for more in digits[1:]:
        alike: dict[str, set[Any]] = {}
        for value, text in zip(values, shown, strict=True):
            alike.setdefault(text, set()).add(value)
        if all(len(same) == 1 for same in alike.values()):
            break
        shown = [say(value, more) if len(alike[text]) > 1 else text for value, text in zip(values, shown, strict=True)]
    return shown


def show_bytes(count: float, *beside: float) -> str:
    """Bytes for people: '624.0 KiB'; to the byte where one `beside`, which it is compared with, would look the same."""
    return distinct_texts([count, *beside], _bytes_in, (1, 0))[0]


def bytes_of(part: float, whole: float) -> str:
    """'143.2 KiB of 624.0 KiB'; to the byte where these would look alike."""
    return f"{show_bytes(part, whole)} of {show_bytes(whole, part)}"


def _bytes_in(count: float, digits: int) -> str:
    if not digits:
        return f"{count:,.0f} B"
    for unit, factor in (("GiB", 1024.0**3), ("MiB", 1024.0**2), ("KiB", 1024.0)):
        if abs(count) >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count:.0f} B"


# relative uncertainty of a number by the kind of its source; widens the interval of every total (assumed: our estimate)
UNCERTAINTY = {"measured": 0.05, "published": 0.10, "derived": 0.30, "assumed": 0.50}
SOURCE_KINDS = tuple(UNCERTAINTY)
_WITHIN = re.compile(rf"({'|'.join(SOURCE_KINDS)}) within (\d{{1,3}}(?:\.\d{{1,6}})?) %")
HOW = (
    f"must begin with one of {', '.join(SOURCE_KINDS)} and a colon, or with a share too: 'measured within 3 %:'; then "
    "say where from, e.g. 'assumed: as on the predecessor'"
)


def kind_of(source: str) -> str:
    """What a source says before its colon: one of SOURCE_KINDS, or such a kind "within" a share of its own."""
    return source.partition(":")[0]


def is_kind(kind: str) -> bool:
    """Whether `uncertainty` knows it: no share above 100 %."""
    found = _WITHIN.fullmatch(kind)
    return kind in UNCERTAINTY or (found is not None and float(found[2]) <= 100)


def is_source(text: str) -> bool:
    """Whether it has a kind, a colon and what says where from."""
    return is_kind(kind_of(text)) and bool(text.partition(":")[2].strip())


def has_own_share(kind: str) -> bool:
    return kind not in UNCERTAINTY


def within(kind: str, share: float) -> str:
    """`kind` with a share of its own, which is rounded up to a hundredth of a per cent."""
    hundredths = min(math.ceil(exact_product(share, 10_000)), 10_000)
    return f"{kind} within {hundredths / 100:g} %"


def uncertainty(kind: str) -> float:
    """How far a number may be off either way, as a share of it; raises ValueError for what is no kind."""
    if kind in UNCERTAINTY:
        return UNCERTAINTY[kind]
    found = _WITHIN.fullmatch(kind)
    if found is None:
        raise ValueError(f"'{kind}' is no kind of source: it {HOW}")
    return float(found[2]) / 100


def less_certain(*kinds: str) -> str:
    """The kind that may be off by most."""
    return max(kinds, key=uncertainty)
