"""Claims of publications beside what is computed for them: `references/claims.toml`, verdicts, and how they are told.

A verdict is of intervals alone: confirmed where every value of ours is one that was claimed, contradicted where none
is, undecided where our interval holds both.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from mimdsim.base import __version__
from mimdsim.base.console import Progress, silent
from mimdsim.base.errors import DescriptionError, MimdsimError, suggest
from mimdsim.base.schema import Section, build, read_toml
from mimdsim.base.search_path import files_of, several
from mimdsim.profile.ratios import Ratio
from mimdsim.validation.markdown_page import apart, cell, heads, line
from mimdsim.validation.reproduction.predictors import PREDICTORS, LacksData

FILE = "claims.toml"
DATA = Path("data")  # where workloads look for recordings
COLUMNS = 80
Verdict = Literal["confirmed", "contradicted", "cannot be said", "needs data that is not here", "failed"]


class Claim(Section):
    """One claim; low and high bound what is claimed, None: no bound. small, full: settings of its predictor `kind`."""

    name: str
    topic: str
    paper: str
    where: str
    claim: str
    quantity: str
    low: float | None = None
    high: float | None = None
    reading: str
    kind: Literal[tuple(PREDICTORS)]  # type: ignore[valid-type]
    small: dict[str, Any] = Field({})
    full: dict[str, Any] = Field({})

    @property
    def claimed(self) -> str:
        """'5 to 10', 'at least 37.5'."""
        low, high = (None if end is None else f"{end:g}" for end in (self.low, self.high))
        if low is None or high is None:
            return f"at least {low}" if high is None else f"at most {high}"
        return low if low == high else f"{low} to {high}"

    def verdict(self, found: Ratio) -> Verdict:
        """What the interval of our figure says of the claim."""
        low = float("-inf") if self.low is None else self.low
        high = float("inf") if self.high is None else self.high
        if low <= found.low and found.high <= high:
            return "confirmed"
        return "contradicted" if found.high < low or found.low > high else "cannot be said"


class _Claims(Section):
    claim: tuple[Claim, ...]


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A claim and what was found; found: None if nothing could be computed; note: why."""

    claim: Claim
    found: Ratio | None
    verdict: Verdict
    note: str = ""

    @property
    def figure(self) -> str:
        """'4.52 (2.64-7.8)'; without an interval where there is none."""
        if self.found is None:
            return "–"
        middle = f"{self.found.middle:.3g}"
        same = self.found.low == self.found.high
        return middle if same else f"{middle} ({self.found.low:.3g}-{self.found.high:.3g})"

    @property
    def record(self) -> dict[str, Any]:
        """As JSON."""
        about = self.claim.model_dump(mode="json", include={"name", "topic", "paper", "where", "claim", "quantity"})
        found = {end: None if self.found is None else getattr(self.found, end) for end in ("low", "middle", "high")}
        claimed = {"low": self.claim.low, "high": self.claim.high, "reading": self.claim.reading}
        return about | {"claimed": claimed, "found": found, "verdict": self.verdict, "note": self.note}


def claims() -> tuple[Claim, ...]:
    """All claims; raises DescriptionError with every problem of the table."""
    path = files_of("references")[FILE]
    given, text = read_toml(path)
    return build(_Claims, given, where=path.name, text=text).claim


def reproduce(
    names: str | Sequence[str] = (),
    *,
    full: bool = False,
    data: str | Path | None = None,
    progress: Progress = silent,
) -> list[Reproduction]:
    """Compute what claims of the two papers say, and compare.

    names: of claims (default: all). full: with the sizes, seeds and searches of the docs instead of the quick ones.
    data: a folder that holds recordings by the names that workloads have for them, nmnist, shd and dvs-gesture
    (default: data). Raises DescriptionError for a name that is no claim's.
    """
    known = {claim.name: claim for claim in claims()}
    wanted = several(names) or tuple(known)
    if unknown := [name for name in wanted if name not in known]:
        raise DescriptionError("reproduce", [f"no claim '{name}'{suggest(name, tuple(known))}" for name in unknown])
    found = []
    for number, name in enumerate(wanted):
        progress(f"reproducing {name}", number, len(wanted))
        found.append(_computed(known[name], full, DATA if data is None else Path(data)))
    return found


def _computed(claim: Claim, full: bool, data: Path) -> Reproduction:
    settings = {**claim.small, **(claim.full if full else {})}
    if claim.kind == "sparse_over_dense":
        settings["data"] = data
    try:
        found = PREDICTORS[claim.kind](**settings)
    except LacksData as lacking:
        return Reproduction(claim=claim, found=None, verdict="needs data that is not here", note=lacking.reason)
    except MimdsimError as problem:
        return Reproduction(claim=claim, found=None, verdict="failed", note=str(problem))
    return Reproduction(claim=claim, found=found, verdict=claim.verdict(found))


def list_lines(known: Iterable[Claim]) -> Iterator[str]:
    """Names and claims, by paper."""
    for paper, of_paper in groupby(known, key=lambda claim: claim.paper):
        yield f"arXiv {paper}"
        for claim in of_paper:
            yield from _wrapped(f"  {claim.name:<23} ", claim.claim)


def said_lines(made: Reproduction) -> Iterator[str]:
    """One claim and its verdict, for a console of COLUMNS."""
    claim = made.claim
    yield from _wrapped("", f"{claim.name}: {made.verdict}")
    for head, text in (
        ("claim", f"{claim.claim} [arXiv {claim.paper}, {claim.where}]"),
        ("figure", claim.quantity),
        ("claimed", claim.claimed),
        ("found", made.note if made.found is None else made.figure),
        ("reading", claim.reading),
    ):
        yield from _wrapped(f"  {head:<8} ", text)


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(text, COLUMNS, initial_indent=head, subsequent_indent=" " * len(head))


def page_text(made: Sequence[Reproduction], command: str) -> str:
    """A page of Markdown: a table, and what was made of every claim."""
    lines = [*apart("# Claims of the two papers", *HEAD, f"Made by mimdsim {__version__}: `{command}`.")]
    counts = [
        (verdict, sum(one.verdict == verdict for one in made)) for verdict in dict.fromkeys(x.verdict for x in made)
    ]
    lines += apart("Of " + f"{len(made)} claims: " + ", ".join(f"{count} {verdict}" for verdict, count in counts) + ".")
    lines += heads("claim", "about", "figure", "*claimed", "*found (interval)", "verdict")
    for one in made:
        claim = one.claim
        lines.append(line(f"`{claim.name}`", claim.topic, cell(claim.quantity), claim.claimed, one.figure, one.verdict))
    lines += ["", *apart("## What was claimed, and how it was read")]
    for one in made:
        claim = one.claim
        lines.append(f"- `{claim.name}` (arXiv {claim.paper}, {claim.where}): {claim.claim} {claim.reading}")
        lines += [f"  {one.verdict.capitalize()}: {cell(one.note)}."] if one.note else []
    return "\n".join(lines) + "\n"


HEAD = (
    "What the abstracts of the two papers say that this project begins from, and what mimdsim computes for it: "
    "*Harnessing Manycore Processors with Distributed Memory for Accelerated Training of Sparse and Recurrent Models* "
    "([arXiv 2311.04386](https://arxiv.org/abs/2311.04386)) and *Intelligence Processing Units Accelerate Neuromorphic "
    "Learning* ([arXiv 2211.10725](https://arxiv.org/abs/2211.10725)).",
    "Their tables and figures were not available, only abstracts, quotations and the code of their authors: where a "
    "claim has no number, or a network is not named, its reading is ours and stands below. Measured times of the first "
    "paper's code are in [predicted-and-measured.md](predicted-and-measured.md).",
    "`mimdsim reproduce NAME` computes one, in less than two minutes; `--full` takes more networks, seeds and "
    "searches.",
    "*Confirmed*: all of our interval lies within what was claimed. *Contradicted*: none of it. *Cannot be said*: some "
    "of it does. No verdict is typed.",
)
