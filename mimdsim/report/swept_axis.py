"""The x axis of a sweep's figures: positions, scale and labels of the values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from mimdsim.base.units import dimension, parse_quantity
from mimdsim.report.formatting import field_values

WIDE = 8  # times from the least to the largest value: a logarithmic axis from there on
MOST_LABELS = 10


@dataclass(frozen=True, kw_only=True)
class SweptAxis:
    """places: the position of each value of the field; names: what stands there. numbers: whether positions are the
    values themselves (in the base unit if given with units), or consecutive as for names."""

    key: str
    places: dict[str, float]
    names: dict[str, str]
    numbers: bool

    def at(self, row: dict[str, Any]) -> float:
        return self.places[str(row[self.key])]

    def ascending(self, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows in the order of the axis, so that a line never runs backwards, whatever the order of the given
        values."""
        return sorted(rows, key=self.at)

    def draw(self, panel: Axes) -> None:
        """Scale, ticks and name of the panel's x axis."""
        panel.set_xlabel(self.key)
        places = sorted(self.places.values())
        wide = self.numbers and len(places) > 2 and places[0] > 0 and places[-1] / places[0] > WIDE
        if wide:
            panel.set_xscale("log")
        units = self.numbers and any(name != value or not _plain(name) for value, name in self.names.items())
        if (wide or units or not self.numbers) and len(places) <= MOST_LABELS:
            panel.set_xticks(list(self.places.values()), [self.names[value] for value in self.places])
            panel.minorticks_off()


def swept_axis(key: str, rows: Iterable[dict[str, Any]]) -> SweptAxis:
    """The axis of the field `key` over the values that rows have."""
    values = list(dict.fromkeys(str(row[key]) for row in rows))
    given = {str(row[key]): row[key] for row in rows}
    names = dict(zip(values, field_values(key, [given[value] for value in values]), strict=True))
    numbers = [number_of(given[value], key) for value in values]
    if any(number is None for number in numbers):
        return SweptAxis(
            key=key, names=names, places={value: float(place) for place, value in enumerate(values)}, numbers=False
        )
    places = {value: number for value, number in zip(values, numbers, strict=True) if number is not None}
    return SweptAxis(key=key, names=names, places=places, numbers=True)


def number_of(value: Any, key: str) -> float | None:
    """A number in the base unit of its field; None for names, lists and booleans."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    field = key.rsplit(".", 1)[-1]
    if isinstance(value, str) and dimension(field):
        try:
            return parse_quantity(value, field)
        except ValueError:
            return None
    return None


def _plain(value: str) -> bool:
    """Whether it was written without a unit."""
    try:
        float(value)
    except ValueError:
        return False
    return True
