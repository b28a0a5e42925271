"""How far predictions were off, by class of figures: what intervals are made of beside the doubts of single numbers.

What the sources of a prediction's numbers make it doubt is its propagated half width, a share: parts of it that come
from different sources are independent and add as squares. How often it is right is another matter, and measured: the
score of a published row is |ln(measured / predicted)| over the propagated half width of its prediction, and the factor
of a class is the score that `LEVEL` of its rows stay below (split conformal prediction: of n scores the one in place
ceil((n + 1) LEVEL), at most the largest). An interval is the prediction times exp(+-factor x half width). A class with
fewer than `FEWEST_ROWS` rows, or from one source alone, takes all rows of the wider class that it belongs to, unless
its own are further off; the widest takes what there is. `benchmarks/residuals.py` writes `RESIDUALS` and says how many
rows of a source lie inside where the factor comes from all others (docs/intervals.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mimdsim.base.units import counted

LEVEL = 0.9
WIDEST = 100.0  # half width of an interval, which numbers of a damaged file may exceed
FEWEST_ROWS, FEWEST_SOURCES = 10, 2
# figures: the wider class that lends its rows
WIDER = {
    "training step": "program on tiles",
    "step of a framework": "program on tiles",
    "solver step": "program on tiles",
    "several chips": "program on tiles",
    "program on tiles": "",
    "vertex": "part of a program",
    "exchange or copy": "part of a program",
    "product on tiles": "part of a program",
    "sparse product on tiles": "part of a program",
    "part of a program": "",
    "transfer over routers": "",
    "GPU kernel": "GPU",
    "GPU training step": "GPU",
    "GPU": "",
    "energy of a GPU": "",
}


@dataclass(frozen=True, kw_only=True)
class Residuals:
    """What is known of a class of figures. of: the class whose rows gave the factor, itself or a wider one."""

    figures: str
    of: str
    factor: float
    rows: int
    sources: int

    @property
    def text(self) -> str:
        """Where the factor comes from, as part of a sentence."""
        lent = "" if self.of == self.figures else f", as '{self.figures}' alone has too few"
        return (
            f"the score that {100 * LEVEL:.0f} % of {self.rows:,} published figures of the class '{self.of}' from "
            f"{counted(self.sources, 'source')} stay below{lent}"
        )


def combined(shares: Iterable[float]) -> float:
    """The half width of a sum or product whose parts, of these half widths, are independent."""
    return math.hypot(*shares)


def interval(middle: float, half_width: float, factor: float = 1.0) -> tuple[float, float]:
    """The ends of the interval of a number of at least 0; half_width: a share."""
    reach = math.exp(min(factor * half_width, WIDEST))
    return middle / reach, middle * reach


def quantile(scores: Sequence[float]) -> float:
    """The score that a further one stays below with a chance of LEVEL, or the largest where there are too few."""
    ranked = sorted(scores)
    return ranked[min(math.ceil((len(ranked) + 1) * LEVEL), len(ranked)) - 1]


def residuals_of(figures: str) -> Residuals:
    """Of a class of `WIDER`; raises KeyError for another."""
    return RESIDUALS[figures]


def _known(figures: str, of: str, factor: float, rows: int, sources: int) -> Residuals:
    return Residuals(figures=figures, of=of, factor=factor, rows=rows, sources=sources)


RESIDUALS = {
    each.figures: each
    for each in (
        _known("training step", "training step", 1.34, 18, 1),
        _known("step of a framework", "program on tiles", 1.14, 56, 5),
        _known("solver step", "solver step", 0.989, 15, 3),
        _known("several chips", "several chips", 0.552, 17, 3),
        _known("program on tiles", "program on tiles", 1.14, 56, 5),
        _known("vertex", "vertex", 0.316, 88, 2),
        _known("exchange or copy", "exchange or copy", 0.258, 36, 2),
        _known("product on tiles", "product on tiles", 0.386, 41, 2),
        _known("sparse product on tiles", "sparse product on tiles", 1.93, 49, 2),
        _known("part of a program", "part of a program", 0.689, 214, 8),
        _known("transfer over routers", "transfer over routers", 1.06, 3634, 2),
        _known("GPU kernel", "GPU kernel", 1.71, 604, 2),
        _known("GPU training step", "GPU training step", 0.888, 204, 2),
        _known("GPU", "GPU", 1.5, 808, 2),
        _known("energy of a GPU", "energy of a GPU", 1.85, 200, 1),
    )
}
