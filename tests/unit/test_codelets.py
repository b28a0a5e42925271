"""Codelets: what does not build, costs and sources of all, and the per-vertex form."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from codelet_families import CODELETS, FAMILIES
from networks import Outcome, assert_same_bits, assert_same_spikes, compiled, executed, given_values, small_network

from mimdsim.base.errors import MappingError
from mimdsim.codelets.formats import in_format
from mimdsim.codelets.neurons import DECAY_GRADIENT, LIF_UPDATE
from mimdsim.codelets.spikes import COMBINE_TILES, FLAG_SPIKES
from mimdsim.compiler import Compiled
from mimdsim.execution.execute import VertexFailure
from mimdsim.graph.linear_neurons import constants_of
from mimdsim.program import Codelet, Field, Term, TileFormula, WorkerBundles, fields_of, shared_bundles, terms_of
from mimdsim.program.codelet import UNCERTAINTY, now_shift

NETWORK = small_network((6, 5, 3), timesteps=3, batch=3, capacities=(4, 3))


def nothing(*_arrays: Any) -> None:
    """Computes nothing."""


def codelet(**changes: Any) -> Codelet:
    given: dict[str, Any] = {
        "name": "Try", "fields": (Field(name="x", access="read", box=(":",)),), "columns": (), "compute": nothing,
        "cost": WorkerBundles(fixed=1, terms=(), kind="assumed", source="a guess"),
    }  # fmt: skip
    return Codelet(**(given | changes))


def test_a_codelet_without_a_source_does_not_build() -> None:
    with pytest.raises(MappingError, match="codelet 'Try': its cost names no source"):
        codelet(cost=WorkerBundles(fixed=1, terms=(), kind="assumed", source=""))
    with pytest.raises(MappingError, match="codelet 'Try': its cost names no source"):
        codelet(cost=TileFormula(cycles=nothing, kind="assumed", source=""))


def test_a_codelet_of_unknown_kind_or_form_does_not_build() -> None:
    with pytest.raises(MappingError, match="kind of source 'heard' must be one of measured, published"):
        codelet(cost=WorkerBundles(fixed=1, terms=(), kind="heard", source="someone"))
    with pytest.raises(MappingError, match="form 'row' must be 'table' or 'vertex'"):
        codelet(form="row")
    with pytest.raises(ValueError, match="field 'x': access 'see' must be one of read, write, update"):
        Field(name="x", access="see", box=(":",))
    for box in (("a:b,:",), "a:b, :"):
        said = re.escape(f"field 'x': box {box!r} must have one entry for each axis, as ('a:b', ':')")
        with pytest.raises(ValueError, match=said):
            Field(name="x", access="read", box=box)  # type: ignore[arg-type]


def test_fields_and_terms_by_their_signatures() -> None:
    assert fields_of("update v[sample, start:stop]; read w[@t-1, :] as one row; read ids[:] in part") == (
        Field(name="v", access="update", box=("sample", "start:stop")),
        Field(name="w", access="read", box=("@t-1", ":"), one_row=True),
        Field(name="ids", access="read", box=(":",), in_part=True),
    )
    assert fields_of("") == ()
    (offset,) = fields_of("read timestep[tile] by entry of sequence")
    assert offset.entry_of == "sequence"
    with pytest.raises(ValueError, match=r"'read v' is not a field: access name\[box\] is needed"):
        fields_of("read w[:]; read v")
    assert terms_of({"spikes pairs": (4, 1), "neurons": 15}) == (
        Term(bundles=4, extents=("spikes", "pairs"), pairable=1),
        Term(bundles=15, extents=("neurons",)),
    )


class Eights(dict[str, np.ndarray]):
    """Every extent is 8."""

    def __missing__(self, name: str) -> np.ndarray:
        self[name] = np.full(2, 8)
        return self[name]


@pytest.mark.parametrize("name", sorted(CODELETS))
def test_every_codelet_costs_something_and_says_where_that_comes_from(name: str) -> None:
    record = CODELETS[name]
    assert record.name == name
    assert record.cost.source
    assert record.cost.kind in UNCERTAINTY
    assert record.code_bytes > 0
    if isinstance(record.cost, WorkerBundles):
        assert record.cost.fixed > 0
        assert all(term.bundles > 0 and term.extents for term in record.cost.terms)
    else:
        asked = Eights()
        cycles = np.asarray(record.cost.cycles(asked, 6, 8))
        assert (cycles > 0).all()
        more = {name: np.full(2, 32) for name in asked}
        assert (np.asarray(record.cost.cycles(more, 6, 8)) > cycles).all()
    assert all(isinstance(term, Term) and term.bundles > 0 for term in record.flops)


@pytest.mark.parametrize("name", sorted(CODELETS))
def test_every_extent_of_a_cost_is_declared(name: str) -> None:
    record = CODELETS[name]
    asked = Eights()
    if isinstance(record.cost, TileFormula):
        record.cost.cycles(asked, 6, 8)
    terms = (*record.flops, *(record.cost.terms if isinstance(record.cost, WorkerBundles) else ()))
    assert {*asked, *(extent for term in terms for extent in term.extents)} == set(record.extents)


@pytest.mark.parametrize("name", sorted(CODELETS))
def test_boxes_name_columns_of_their_codelet(name: str) -> None:
    record = CODELETS[name]
    assert any(item.writes for item in record.fields)
    for item in record.fields:
        entries = [entry for entry in item.box if entry != ":" and now_shift(entry) is None]
        # the offset of a slice is the compiler's own column: which tile's counter
        assert set(":".join(entries).split(":")) - {""} <= {*record.columns, "tile"}, item.name


def with_codelet(record: Codelet) -> tuple[Outcome, Outcome]:
    """The training step with `record` in the place of its namesake, and without."""
    made, values = compiled(NETWORK), given_values(NETWORK, 1)
    changed: Compiled = replace(made, program=made.program.with_codelet(record.name, record))
    return executed(changed, values), executed(made, values)


@pytest.mark.slow
def test_per_vertex_form_gets_views_columns_and_constants() -> None:
    seen: list[tuple[tuple[int, ...], int, int, float]] = []

    def decay(dv: np.ndarray, factor: np.ndarray, start: int, stop: int) -> None:
        assert factor.shape == (stop - start,)
        seen.append((dv.shape, start, stop, float(factor[0])))
        dv *= factor

    one, other = with_codelet(replace(DECAY_GRADIENT, form="vertex", compute=decay))
    assert_same_bits(one, other)
    layer_tiles = sum(-(-layer.neurons // 2) for layer in NETWORK.layers)
    assert len(seen) == NETWORK.timesteps * layer_tiles
    for shape, start, stop, factor in seen:
        assert shape == (NETWORK.batch, stop - start)
        assert type(start) is int
        assert factor == float(constants_of(NETWORK.layers[0].neuron).decay)


@pytest.mark.slow
def test_per_vertex_form_drops_the_axis_of_a_single_index() -> None:
    def lif(
        v: np.ndarray, w: np.ndarray, ids: np.ndarray, counts: np.ndarray, sample: int, start: int, stop: int,
        decay: np.float32, scale: np.float32, threshold: np.float32,
    ) -> None:  # fmt: skip
        assert 0 <= sample < NETWORK.batch
        assert v.shape == (stop - start,)
        assert ids.ndim == counts.ndim == 1
        kept = np.where(v > threshold, np.float32(0), decay * v)
        v[:] = kept + scale * w[ids[: counts[0]]].sum(axis=0)

    one, other = with_codelet(replace(LIF_UPDATE, form="vertex", compute=lif))
    assert_same_spikes(one, other)
    assert other.counts.sum() > 0


@pytest.mark.slow
def test_a_box_of_single_indices_stays_writable() -> None:
    def flag(v: np.ndarray, flags: np.ndarray, _sample: int, _neuron: int, threshold: float, second: float) -> None:
        assert v.shape == (1,)
        assert flags.shape == (2,)
        flags[0], flags[1] = v[0] > threshold, second < v[0] <= threshold

    assert_same_bits(*with_codelet(replace(FLAG_SPIKES, form="vertex", compute=flag)))


def test_per_vertex_form_is_the_same_in_strict_execution() -> None:
    def decay(dv: np.ndarray, factor: np.ndarray, _start: int, _stop: int) -> None:
        dv *= factor

    made, values = compiled(NETWORK), given_values(NETWORK, 2)
    record = replace(DECAY_GRADIENT, form="vertex", compute=decay)
    changed = replace(made, program=made.program.with_codelet("DecayGradient", record))
    assert_same_bits(executed(changed, values, strict=True), executed(made, values))


@pytest.mark.parametrize("strict", [False, True])
def test_an_index_beyond_the_view_names_the_vertex(strict: bool) -> None:
    def beyond(dv: np.ndarray, factor: np.ndarray, start: int, stop: int) -> None:
        if start == 4:
            dv[:, stop - start] *= factor[0]

    made, values = compiled(NETWORK), given_values(NETWORK, 1)
    record = replace(DECAY_GRADIENT, form="vertex", compute=beyond)
    changed = replace(made, program=made.program.with_codelet("DecayGradient", record))
    pattern = r"superstep 'decay gradient hidden0', timestep 2: vertex 2 of DecayGradient \(hidden0\) on tile 3 left"
    with pytest.raises(VertexFailure, match=pattern) as failure:
        executed(changed, values, strict=strict)
    assert (failure.value.vertex, failure.value.tile) == (2, 3)


def test_writing_what_may_only_be_read_names_the_vertex() -> None:
    def write_ids(
        tile_ids: np.ndarray, _tile_counts: np.ndarray, _ids: np.ndarray, _counts: np.ndarray, *_columns: int
    ) -> None:
        tile_ids[:] = 0

    with pytest.raises(VertexFailure, match=r"vertex 0 of CombineTiles \(\w+\) on tile \d+ left.*read-only"):
        with_codelet(replace(COMBINE_TILES, form="vertex", compute=write_ids))


def test_an_absent_codelet_cannot_be_replaced() -> None:
    with pytest.raises(MappingError, match=r"no vertex of codelet 'Adam' in the program; known: .*LifUpdate"):
        compiled(NETWORK).program.with_codelet("Adam", CODELETS["Adam"])


@pytest.mark.parametrize("field", ["start", "elsewhere"])
def test_strict_execution_finds_a_table_codelet_that_leaves_its_slices(field: str) -> None:
    """`start`: scales the neuron before its own (poison); `elsewhere`: writes it."""

    def leave(dv: np.ndarray, factor: np.ndarray, start: np.ndarray, stop: np.ndarray) -> None:
        for first, last in zip(start, stop, strict=True):
            if field == "start" and first > 0:
                dv[:, first:last] *= dv[:, first - 1 : first]
            elif first > 0:
                dv[:, first - 1] = factor[first]

    made, values = compiled(NETWORK), given_values(NETWORK, 1)
    record = replace(DECAY_GRADIENT, compute=leave)
    changed = replace(made, program=made.program.with_codelet("DecayGradient", record))
    pattern = "poison reached 'dv'" if field == "start" else r"writes .*, outside its slice dv\.output"
    with pytest.raises(MappingError, match=rf"vertex 1 of DecayGradient \(output\) on tile 5 .*{pattern}"):
        executed(changed, values, strict=True)


def test_a_multi_vertex_splits_one_extent_over_the_contexts() -> None:
    cost = shared_bundles(
        supervisor_cycles=11,
        fixed=20,
        terms=(Term(bundles=3, extents=("rows", "columns")), Term(bundles=2, extents=("columns",))),
        split="rows",
        kind="assumed",
        source="a test",
    )
    extents = {"rows": np.array([12, 13, 0]), "columns": np.array([5, 5, 5])}
    # 12 rows over 6 contexts are 2 each, 13 are 3 for the longest
    expected = [11 + 6 * (20 + 3 * 2 * 5 + 10), 11 + 6 * (20 + 3 * 3 * 5 + 10), 11 + 6 * (20 + 10)]
    assert cost.cycles(extents, 6, 8).tolist() == expected
    assert cost.cycles(extents, 1, 8).tolist()[0] == 11 + 20 + 3 * 12 * 5 + 10


def bundles(record: Codelet, **turns: int) -> float:
    """Of a worker's vertex whose loops turn so often."""
    assert isinstance(record.cost, WorkerBundles)
    found = record.cost.fixed
    for term in record.cost.terms:
        found += term.bundles * math.prod(turns[name] for name in term.extents)
    return found


def cycles(record: Codelet, **turns: int) -> int:
    """Of a library vertex on six contexts with vectors of 8 bytes."""
    assert isinstance(record.cost, TileFormula)
    (found,) = np.atleast_1d(record.cost.cycles({name: np.array([each]) for name, each in turns.items()}, 6, 8))
    return int(found)


def halves(name: str) -> Codelet:
    return in_format(CODELETS[name], id_bytes=4, value_bytes=2, moved_bytes=2)


@pytest.mark.parametrize(
    ("name", "turns", "expected"),
    [
        # launch 12, frame 8, three scalars 6, four vectors 6; 4 a spike and pair, 15 a neuron
        ("LifUpdate", {"spikes": 3, "pairs": 3, "neurons": 5}, 32 + 36 + 75),
        # launch, frame, four scalars, five vectors; 4 an id, of a hit 2 and a surrogate of 17
        ("StateGradient", {"listed": 10, "hits": 2}, 35.5 + 40 + 38),
        # launch, frame, two scalars, four vectors; 3.5 an id, 6 a list
        ("CombineTiles", {"listed": 10, "lists": 4}, 30 + 35 + 24),
        # the same twice: 6 more a list, 3 more an id, 2 for the second lap
        ("CombineTilesFrom", {"listed": 10, "lists": 4}, 30 + 35 + 24 + 24 + 30 + 2),
        # 20 to begin, 20 a class
        ("CrossEntropy", {"classes": 10}, 28 + 20 + 200),
        # launch, frame, a scalar, two vectors; 3 a number
        ("PoolClasses", {"elements": 40}, 25 + 120),
        # the root 5, a division 3, three more; 2 a weight
        ("ClipFactor", {"weights": 7}, 27 + 11 + 14),
        # 3 for every 8 neurons cleared; 4 a spike and 8 to put its byte into a word
        ("SpikesToDense", {"vectors": 5, "spikes": 3}, 26.5 + 15 + 36),
    ],
)
def test_bundles_by_hand(name: str, turns: dict[str, int], expected: float) -> None:
    assert bundles(CODELETS[name], **turns) == expected


@pytest.mark.parametrize(
    ("name", "turns", "floats", "of_halves"),
    [
        # of 1000 elements a context takes 84 vectors of two floats, or 42 of four halves
        ("Sgd", {"elements": 1000}, 11 + 6 * (29 + 3 * 84), 11 + 6 * (29 + 3 * 42)),
        # 17 a vector; an element's root 5 and division 3; halves converted there and back, two at a time
        ("Adam", {"elements": 1000}, 11 + 6 * (29 + 33 * 84), 11 + 6 * (29 + 53 * 42)),
        ("AdamAtRate", {"elements": 1000}, 11 + 6 * (29 + 34 * 84) + 12, 11 + 6 * (29 + 54 * 42) + 12),
        ("SumSquares", {"elements": 1000}, 11 + 6 * (16 + 2 * 84) + 36, 11 + 6 * (16 + 3 * 42) + 36),
        # 20 results, 4 a context; 3 + 5 + 3 a vector and one for each group but the first; halves store in 8
        ("ReduceGroups", {"outputs": 20, "groups": 5}, 11 + 6 * (16 + 2 * 15), 11 + 6 * (16 + 18)),
        # 9 vectors of floats a context, 5 of halves; one a replica and 3 to store, or 6
        ("SumReplicas", {"elements": 100, "replicas": 6}, 11 + 6 * (16 + 9 * 9), 11 + 6 * (16 + 5 * 12)),
        ("CopyColumns", {"elements": 100}, 288 + 400 // 8, 288 + 200 // 8),
        ("CountTimestep", {"elements": 1}, 11 + 6 * (58 + 7), None),
    ],
)
def test_cycles_by_hand(name: str, turns: dict[str, int], floats: int, of_halves: int | None) -> None:
    assert cycles(CODELETS[name], **turns) == floats
    if of_halves is not None:
        assert cycles(halves(name), **turns) == of_halves


def test_every_codelet_has_a_name_of_its_own() -> None:
    assert len(CODELETS) == sum(len(family) for family in FAMILIES.values())
