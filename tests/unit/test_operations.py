"""Cycles by operation, layer and phase, however supersteps are merged; and what supersteps may be called."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest
from random_profile import make_profile

from mimdsim.base.errors import MappingError
from mimdsim.pipeline import compile_workload, retime
from mimdsim.pipeline.overrides import load_tiled
from mimdsim.profile import RunProfile, TiledProfile
from mimdsim.profile.operations import AT_ONCE, MERGED, cycles_by_operation, find_supersteps, under_same_names
from mimdsim.report.console import difference_record
from mimdsim.report.tables_difference import difference_tables
from mimdsim.workload import filled_activity, load_workload

SMALL = {"data.timesteps": 4, "training.batch": 8, "network.hidden": [24, 12], "network.capacity": [8, 8, 10]}


@cache
def timed(program: str) -> TiledProfile:
    workload, machine = load_workload("digits", {**SMALL, "mapping.program": program}), load_tiled("bow", {})
    made = compile_workload(workload, machine)
    return retime(made, machine, filled_activity(made.network, 0.5))


@pytest.mark.parametrize("program", ["published", "best"])
def test_operations_sum_to_the_run(program: str) -> None:
    tiled = timed(program)
    for span in tiled.spans:
        assert not span.parts or sum(part.compute_cycles for part in span.parts) == span.compute_cycles
    for by_part in (True, False):
        found = cycles_by_operation(tiled, by_part=by_part)
        for part in ("compute", "exchange", "sync"):
            assert sum(getattr(each, part) for each in found.values()) == getattr(tiled, f"{part}_cycles")


def test_merged_supersteps_are_compared_by_what_they_consist_of() -> None:
    published, best = cycles_by_operation(timed("published")), cycles_by_operation(timed("best"))
    merged = [span.name for span in timed("best").spans if MERGED.search(span.name)]
    assert merged
    assert not any(MERGED.search(key.name) for key in best)
    heavy = sorted(published, key=lambda key: -published[key].compute)[:10]
    assert sum(key in best for key in heavy) >= 8  # under the same name, merged or not
    before, after = under_same_names(published, best)
    assert sum(each.total for each in before.values()) == sum(each.total for each in published.values())
    assert after == best
    apart = [each.total for key, each in published.items() if key.name in AT_ONCE["gradient of currents"]]
    both = [sum(each.total for key, each in of.items() if key.name == "gradient of currents") for of in (before, after)]
    assert both[0] == sum(apart) > both[1] > 0
    one, other = (dataclasses.replace(make_profile(), tiled=timed(each)) for each in ("published", "best"))
    _, table = difference_tables(one, other)
    assert table.headers[:3] == ("operation", "layer", "phase")
    assert difference_record(one, other)["totals"][0]["quantity"] == "cycles"
    told = [tuple(cell.text for cell in row[:2]) for row in table.rows[:3]]
    currents = "gradient of currents"
    assert told == [(currents, "output"), (currents, "hidden1"), ("state gradient", "hidden0")]
    assert "–" not in (table.rows[0][3].text, table.rows[0][4].text)


def test_profiles_without_parts_are_compared_by_name() -> None:
    def without(profile: RunProfile) -> RunProfile:
        assert profile.tiled is not None
        spans = tuple(dataclasses.replace(span, parts=()) for span in profile.tiled.spans)
        return dataclasses.replace(profile, tiled=dataclasses.replace(profile.tiled, spans=spans))

    new = dataclasses.replace(make_profile(), tiled=timed("published"))
    _, table = difference_tables(without(new), new)
    assert "did not keep their parts" in table.note
    assert all(row[5].value == 0 for row in table.rows)


def test_supersteps_are_found_by_what_people_call_them() -> None:
    spans = timed("published").spans
    (lif,) = (at for at, span in enumerate(spans) if span.name == "LIF update")
    for said in ("LIF update", "lif update", "lif_update", "Lif-Update", str(lif), "LIF update hidden0"):
        assert find_supersteps(spans, said) == [lif]
    assert find_supersteps(spans, "backward") == [at for at, span in enumerate(spans) if span.phase == "backward"]
    of_layer = [spans[at].name for at in find_supersteps(spans, "selection of hidden0")]
    assert "scan flags" in of_layer
    assert not {"LIF update", "state gradient"} & set(of_layer)
    assert [spans[at].name for at in find_supersteps(spans, "select gradient hidden0")] == ["state gradient"]
    (gradient,) = find_supersteps(timed("best").spans, "input gradient")
    assert MERGED.search(timed("best").spans[gradient].name)
    with pytest.raises(MappingError, match="no superstep 'LIF upday' in the program; did you mean 'LIF update'"):
        find_supersteps(spans, "LIF upday")
