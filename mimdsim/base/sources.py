"""Where a number comes from, and how far it may be off: "derived: ...", or with a share of its own, "measured within
3 %: ...".
"""

from __future__ import annotations

import math
import re

from mimdsim.base.units import exact_product

# relative uncertainty of a number by the kind of its source; widens the interval of every total (assumed: our estimate)
UNCERTAINTY = {"measured": 0.05, "published": 0.10, "derived": 0.30, "assumed": 0.50}
SOURCE_KINDS = tuple(UNCERTAINTY)
_WITHIN = re.compile(rf"({'|'.join(SOURCE_KINDS)}) within (\d{{1,3}}(?:\.\d{{1,6}})?) %")
HOW = f"must begin with one of {', '.join(SOURCE_KINDS)} and a colon, or with a share too: 'measured within 3 %:'"


def kind_of(source: str) -> str:
    """What a source says before its colon: one of SOURCE_KINDS, or such a kind "within" a share of its own."""
    return source.partition(":")[0]


def is_kind(kind: str) -> bool:
    """Whether `uncertainty` knows it: no share above 100 %."""
    found = _WITHIN.fullmatch(kind)
    return kind in UNCERTAINTY or (found is not None and float(found[2]) <= 100)


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
