"""Write the factors of intervals from the residuals of published figures, and say how often intervals hold.

    python benchmarks/residuals.py                 tables of references/: a table of the classes, the factors
    python benchmarks/residuals.py TABLE.csv ...   other tables: how often the intervals hold there
    python benchmarks/residuals.py --write         the factors go to mimdsim/base/residuals.py
    python benchmarks/residuals.py --also TABLE    factors from a table that is not in references/ as well

Nothing is drawn, so there is no seed. Coverage is that of intervals
at 90 %: of the rows that gave the factor; and of each source by the factor of all other sources, where these have at
least ten rows. The band is that of 90 % in so many independent rows (binomial, 95 %); rows of a source are not quite
independent.
"""

from __future__ import annotations

import argparse
import math
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from statistics import median

from mimdsim.base.residuals import FEWEST_ROWS, FEWEST_SOURCES, LEVEL, RESIDUALS, WIDER, quantile
from mimdsim.validation import Row, validate

TARGET = Path(__file__).parent.parent / "mimdsim" / "base" / "residuals.py"


def members(rows: Sequence[Row], figures: str) -> list[Row]:
    """The rows of a class and of those that it is the wider one of."""
    return [row for row in rows if row.score is not None and figures in (row.figures, WIDER[row.figures])]


def lenders(rows: Sequence[Row], figures: str) -> tuple[str, list[Row]]:
    """The class that gives the factor, and its rows."""
    own, wider = members(rows, figures), WIDER[figures]
    if not wider or (len(own) >= FEWEST_ROWS and len({row.origin for row in own}) >= FEWEST_SOURCES):
        return figures, own
    others = members(rows, wider)
    further = len(own) >= FEWEST_ROWS and quantile(scores(own)) > quantile(scores(others))
    return (figures, own) if further else (wider, others)


def scores(rows: Sequence[Row]) -> list[float]:
    return [row.score for row in rows if row.score is not None]


def by_source(rows: Sequence[Row]) -> Iterator[tuple[str, int, int, float]]:
    """Source, its rows, those inside by the factor of all others, that factor."""
    for origin in sorted({row.origin for row in rows}):
        ours, others = ([row for row in rows if (row.origin == origin) is same] for same in (True, False))
        if len(others) >= FEWEST_ROWS:
            factor = quantile(scores(others))
            yield origin, len(ours), sum(score <= factor for score in scores(ours)), factor


def band(count: int) -> tuple[int, int]:
    """The fewest and most of `count` rows inside that 95 % of draws of independent rows at LEVEL have."""
    ways = [math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) for k in range(count + 1)]
    odds = math.log(LEVEL), math.log(1 - LEVEL)
    below = list(accumulate(math.exp(many + k * odds[0] + (count - k) * odds[1]) for k, many in enumerate(ways)))
    return bisect_right(below, 0.025), bisect_left(below, 0.975)


def class_rows(rows: Sequence[Row]) -> Iterator[str]:
    """The table of classes."""
    yield "| class | factor from | rows | sources | factor | median half width, 90 % | inside |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for figures in WIDER:
        lent, giving = lenders(rows, figures)
        own = [row for row in rows if row.figures == figures and row.score is not None]
        if not giving:
            continue
        factor = quantile(scores(giving))
        widths, inside = "–", "–"
        if own:
            known = RESIDUALS[figures].factor
            reach = [math.sqrt((row.high / row.low) ** (factor / known)) - 1 for row in own if row.low and row.high]
            found, (low, high) = sum(score <= factor for score in scores(own)), band(len(own))
            widths, inside = f"{median(reach):.0%}", f"{found} of {len(own)} (band {low} to {high})"
        sources = len({row.origin for row in giving})
        yield f"| {figures} | {lent} | {len(giving):,} | {sources} | {factor:.3g} | {widths} | {inside} |"


def source_rows(rows: Sequence[Row]) -> Iterator[str]:
    """The table of sources left out."""
    yield "| class | source left out | rows | inside by the others' factor | that factor |"
    yield "| --- | --- | ---: | ---: | ---: |"
    for figures in dict.fromkeys(lenders(rows, each)[0] for each in WIDER):
        for origin, count, inside, factor in by_source(members(rows, figures)):
            yield f"| {figures} | {origin} | {count:,} | {inside:,} ({inside / count:.0%}) | {factor:.3g} |"


def factors(rows: Sequence[Row]) -> Iterator[str]:
    """The lines of `RESIDUALS`."""
    for figures in WIDER:
        lent, giving = lenders(rows, figures)
        if not giving:
            raise SystemExit(f"class '{figures}' has no rows")
        sources = len({row.origin for row in giving})
        factor = float(f"{quantile(scores(giving)):.3g}")
        yield f'        _known("{figures}", "{lent}", {factor!r}, {len(giving)}, {sources}),'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", type=Path)
    parser.add_argument("--also", nargs="*", type=Path, default=())
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    if asked.tables:
        found = defaultdict(list)
        for row in validate(tuple(asked.tables)):
            if row.score is not None:
                found[row.figures].append(row)
        for figures, rows in found.items():
            inside, (low, high) = sum(bool(row.inside) for row in rows), band(len(rows))
            print(f"{figures}: {inside} of {len(rows)} inside ({inside / len(rows):.1%}; band {low} to {high})")
        return
    rows = [*validate(), *(validate(asked.also) if asked.also else ())]
    print("\n".join([*class_rows(rows), "", *source_rows(rows)]))
    if asked.write:
        text = re.sub(
            r"(?<=    for each in \(\n).*?(?=\n    \))", "\n".join(factors(rows)), TARGET.read_text(), flags=re.DOTALL
        )
        TARGET.write_text(text)


if __name__ == "__main__":
    main()
