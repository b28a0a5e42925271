"""Claims of the two papers: their table, the verdicts, and what the command says where data lack."""

from __future__ import annotations

import inspect
import json
import re
import time
from pathlib import Path

import pytest
from commands import mimdsim

from mimdsim.profile.ratios import Ratio
from mimdsim.validation import reproduce
from mimdsim.validation.claims import PREDICTORS, Claim, claims

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reproduce.md"
NAMES = [claim.name for claim in claims()]
MOST_SECONDS = 120


@pytest.mark.parametrize("claim", claims(), ids=NAMES)
def test_settings_are_those_of_the_predictor(claim: Claim) -> None:
    more = {"data": Path()} if claim.kind == "sparse_over_dense" else {}
    signature = inspect.signature(PREDICTORS[claim.kind])
    signature.bind(**claim.small, **more)
    signature.bind(**{**claim.small, **claim.full}, **more)
    assert claim.low is not None or claim.high is not None
    assert NAMES.count(claim.name) == 1


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (5, 10, "confirmed"),
        (6, 7, "confirmed"),
        (4, 6, "cannot be said"),
        (9, 12, "cannot be said"),
        (4, 12, "cannot be said"),
        (1, 4.9, "contradicted"),
        (11, 12, "contradicted"),
    ],
)
def test_a_verdict_is_of_intervals(low: float, high: float, verdict: str) -> None:
    both = claims()[0]
    assert (both.low, both.high) == (5, 10)
    found = Ratio(low=low, middle=(low + high) / 2, high=high)
    assert both.verdict(found) == verdict
    open_ended = both.model_copy(update={"high": None})
    assert open_ended.verdict(found) == ("confirmed" if low >= 5 else "contradicted" if high < 5 else "cannot be said")


def test_a_claim_is_computed_and_told(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    (told,) = json.loads(mimdsim("reproduce", "half-precision", "--json", "--page", str(page)))
    assert told["verdict"] == "confirmed"
    assert 1 < told["found"]["low"] < told["found"]["middle"] < told["found"]["high"]
    assert re.search(r"^\| `half-precision` \| half precision \| .* \| at least 1 \| 1\.\d+ .* \| confirmed \|$",
                     page.read_text(), re.MULTILINE)  # fmt: skip
    assert "--page page.md" in page.read_text()


def test_data_that_are_not_here_are_named(tmp_path: Path) -> None:
    text = mimdsim("reproduce", "accuracy-shd", "--data", str(tmp_path))
    assert "accuracy-shd: needs data that is not here" in text
    assert "no recordings 'shd': give the folder that holds them by --data DIR" in " ".join(text.split())


def test_claims_are_listed_and_misspelt_ones_refused() -> None:
    text = mimdsim("reproduce")
    assert all(f"\n  {name} " in text for name in NAMES)
    assert "no claim 'neuron'; did you mean 'neurons'?" in mimdsim("reproduce", "neuron", code=2)
    assert "leave out the names" in mimdsim("reproduce", "neurons", "--all", code=2)
    assert "name a claim" in mimdsim("reproduce", "--json", code=2)


def test_the_page_has_every_claim() -> None:
    assert re.findall(r"^\| `([\w-]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE) == NAMES


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_small_settings_are_quick(name: str) -> None:
    begun = time.process_time()
    (made,) = reproduce(name)
    assert made.verdict != "failed", made.note
    assert time.process_time() - begun < MOST_SECONDS
