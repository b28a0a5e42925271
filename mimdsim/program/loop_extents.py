"""Extents: how often a loop of a vertex runs. Costs name them, and the codelet declares once what determines each.

Most follow from the boxes: `Length`, `Size`, `Column`. Those determined by recorded spikes are declared by `Lists`,
and every table says which layer's spikes and when: `Spikes`, `Listed`, `SpikesOver`, `Hits`, `Within`. A table itself
gives only extents that follow from nothing else. Extents that depend on data other than spikes are counted as the
codelet runs: `Turns`.
"""

from __future__ import annotations

from dataclasses import dataclass


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
