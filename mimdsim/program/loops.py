"""Loops of vertices: how often they run (extents), and what their instructions are (`Mix`).

Costs name extents, and the codelet declares once what determines each.

Most follow from the boxes: `Length`, `Size`, `Column`. Those determined by recorded spikes are declared by `Lists`,
and every table says which layer's spikes and when: `Spikes`, `Listed`, `SpikesOver`, `Hits`, `Within`. A table itself
gives only extents that follow from nothing else. Extents that depend on data other than spikes are counted as the
codelet runs: `Turns`.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields


@dataclass(frozen=True)
class Length:
    """Entries of the field's box along `axis` (an index into `Field.box`), `per` of them per turn, rounded up.

    after: the constant of the table that says how many entries at the beginning the vertex skips.
    """

    field: str
    axis: int
    per: int = 1
    after: str = ""


@dataclass(frozen=True)
class Vectors(Length):
    """A length in vectors of 64 bits, `per` entries each: a machine of other vectors takes more or fewer in a turn."""


@dataclass(frozen=True)
class Size:
    """Elements of the field's box (of one timestep if it is taken at "@t"), `per` of them per turn, rounded up."""

    field: str
    per: int = 1


@dataclass(frozen=True)
class Column:
    """The values of a column that is also passed to `compute`, divided by `per` and rounded up."""

    name: str
    per: int = 1


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """Determined by what a run recorded of `layer` ('input' for the network input) at t + shift."""

    layer: str
    shift: int = 0


@dataclass(frozen=True, kw_only=True)
class Spikes(Recorded):
    """True spikes that the layer listed for the vertex's `sample`."""


@dataclass(frozen=True, kw_only=True)
class Listed(Recorded):
    """Listed ids, gradient entries included, of the vertex's `sample`."""


@dataclass(frozen=True, kw_only=True)
class SpikesOver(Recorded):
    """True spikes summed over the samples `sample_start` to `sample_stop` of the vertex."""


@dataclass(frozen=True, kw_only=True)
class Hits(Recorded):
    """Ids of the vertex's `sample`, or of its samples `sample_start` to `sample_stop`, from `start` to `stop`;
    which: 'listed', 'spikes' (true ones) or 'gradient' (entries below the threshold)."""

    which: str = "listed"


@dataclass(frozen=True, kw_only=True)
class Within(Recorded):
    """1 when the vertex's `slot` is below the listed count of its `sample`, else 0."""


@dataclass(frozen=True, kw_only=True)
class Turns(Recorded):
    """Turns that the codelet counts itself in every execution (`Codelet.count`); layer: the name of their record, in
    which the vertices of the table are the samples."""


RECORDED = (Spikes, Listed, SpikesOver, Hits, Within, Turns)


@dataclass(frozen=True)
class Lists:
    """Determined by recorded spikes and counted as by `kind`: a table gives a recorded extent of this kind.

    which: the `Hits.which` of a loop over hits; if several, the column `by` holds the index into `which`.
    """

    kind: type[Recorded]
    which: tuple[str, ...] = ()
    by: str = ""


Derived = Length | Size | Column
Extent = Derived | Lists


# ---- what the instructions of a loop are, so that every core can price them: `Mix`.
#
# Costs of codelets are counted in bundles of "colossus", where a division or an exponential takes three and everything
# else one: a mix gives these bundles, and what another core takes for the same turn follows from its table
# (`machine/codelet_costs.py`).


NATIVE_SLOTS = {"divide": 3, "function": 3}  # bundles of an instruction of "colossus"; one of all other classes


@dataclass(frozen=True, kw_only=True)
class Mix:
    """Instructions of a turn by class, as compiled: vectors in loops over vectors, else one element each.

    add: additions, differences, absolute values, conversions; compare: comparisons, selects, maxima; function:
    exponentials and the like; integer: addresses, counters and ids; branch: of a decision; loop: what closes a turn
    (one instruction that counts and branches), which hardware loops do not need.
    """

    load: float = 0
    store: float = 0
    add: float = 0
    multiply: float = 0
    compare: float = 0
    divide: float = 0
    function: float = 0
    integer: float = 0
    branch: float = 0
    loop: float = 0

    def items(self) -> tuple[tuple[str, float], ...]:
        return tuple(zip(CLASSES, astuple(self), strict=True))

    @property
    def bundles(self) -> float:
        """On "colossus", each instruction alone."""
        return sum(number * NATIVE_SLOTS.get(name, 1) for name, number in self.items())

    def __add__(self, other: Mix) -> Mix:
        return Mix(**{name: number + getattr(other, name) for name, number in self.items()})

    def __mul__(self, times: float) -> Mix:
        return Mix(**{name: number * times for name, number in self.items()})


CLASSES = tuple(one.name for one in fields(Mix))
