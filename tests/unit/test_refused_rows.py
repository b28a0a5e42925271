"""Tables of published figures with rows that cannot be read: those are refused with their place, others predicted."""

from __future__ import annotations

import pytest
from reference_rows import given

from mimdsim.validation.gpus.networks import NETWORKS
from mimdsim.validation.markdown_page import rows_as_json
from mimdsim.validation.reference_table import Asked, ReferenceTable, Row
from mimdsim.validation.tables import FORMATS

LARGE = "9" * 400
ACCESSES = {
    "tensix_tiles": "10", "pairing": "with care", "dram_channels": "2", "direction": "read", "virtual_channel": "same",
    "noc": "0", "GB_per_s": "50",
}  # fmt: skip


def of_memory(row: dict[str, str]) -> Row:
    (form,) = (form for form in FORMATS if "tensix_tiles" in form.needed)
    (found,) = form.rows(given(row), Asked())
    return found


def test_a_column_that_only_some_tables_have_is_asked_for() -> None:
    found = of_memory(ACCESSES)
    assert (found.name, found.predicted) == ("line 2", None)
    assert found.note == "no column 'bytes_per_tile': add it, with a whole number in every row"
    assert of_memory(ACCESSES | {"bytes_per_tile": "65536"}).predicted is not None


@pytest.mark.first(30)
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: min(form.needed))
def test_columns_that_may_be_missing_or_empty_stop_no_table(form: ReferenceTable) -> None:
    """Cells that hold nothing are refused or have a default; whatever a row says, no reader fails."""
    for cells in (form.needed, form.read):
        for text in ("", "1", "inf", LARGE):
            rows = form.rows(given(dict.fromkeys(sorted(cells), text)), Asked())
            assert all(row.predicted is not None or row.note for row in rows)
            rows_as_json(rows)


@pytest.mark.first(3)
@pytest.mark.parametrize("source", ["", " ", "a paper"])
def test_a_network_without_a_source_is_predicted(source: str) -> None:
    row = {
        "gpu": "A100", "framework": "snnTorch", "metric": "forward", "neurons_or_layers": "512", "value_s": "0.01",
        "source": source, "task": "1x Linear(N;N) + LIF", "batch_B": "16", "steps_T": "10", "exec_style": "time loop",
    }  # fmt: skip
    (found,) = NETWORKS.rows(given(row), Asked())
    assert found.predicted is not None
    assert found.origin == source.strip().partition(" ")[0]
