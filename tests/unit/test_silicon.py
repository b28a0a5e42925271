"""Single vertices, compiled loops and a gather beside what chips took: figures, other rows, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_page import make_row, page_of

from mimdsim.base.errors import MappingError
from mimdsim.costs.library.elementwise import binary_1d_cycles
from mimdsim.costs.library.reductions import multi_slice_cycles
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.validation.markdown_page import Summary, verdict
from mimdsim.validation.reference_table import Row
from mimdsim.validation.silicon import vertices as handwritten_vertices
from mimdsim.validation.silicon.gather import gather_phases, plan_gather
from mimdsim.validation.silicon.transfers import Slots
from mimdsim.validation.silicon.vertices import LAUNCH_CYCLES, TIMER_CYCLES
from mimdsim.validation.tables import check_files, find_table

SHARED = Path(__file__).resolve().parents[3] / "shared" / "references" / "silicon"
TABLES = ("tessellate_cycles.csv", "worker_loop_cycles.csv", "multislice.csv")
VERTEX = "id,vertex,operation,dtype,N,in_channels,out_channels,tiles,cycles,what_cycles_cover,certainty\n"
LOOP = "id,language,tiles,workers_per_tile,iterations_per_tile,unroll_factor,tile_cycles_max\n"
GATHER = "id,operation,table_rows,row_floats,dtype,lookups,tiles,lookups_per_tile,time_ms\n"


def rows_of(*files: Path) -> list[Row]:
    return check_files(files, None, lambda *_: None)


def rows_of_text(folder: Path, text: str) -> list[Row]:
    path = folder / "mine.csv"
    path.write_text(text, encoding="utf-8")
    return rows_of(path)


# ---- the tables carried


@pytest.mark.parametrize(
    ("table", "kind", "rows", "mean", "worst"),
    [
        ("tessellate_cycles.csv", "matrix unit", 72, 0.005, 0.02),
        ("tessellate_cycles.csv", "element-wise", 8, 0.03, 0.05),
        ("tessellate_cycles.csv", "own vertices", 3, 0.02, 0.03),
        ("worker_loop_cycles.csv", "one bundle a turn", 5, 0.001, 0.005),
        ("worker_loop_cycles.csv", "issue slots", 5, 0.12, 0.16),
        ("multislice.csv", "gather", 2, 0.02, 0.02),
        ("multislice.csv", "gather and copy", 1, 0.02, 0.02),
    ],
)
def test_groups_come_out_as_near_as_the_page_says(table: str, kind: str, rows: int, mean: float, worst: float) -> None:
    chosen = [row for row in rows_of(find_table(table)) if row.kind == kind]
    errors = [row.error for row in chosen if row.ratio is not None]
    assert len(errors) == rows
    assert np.mean(errors) < mean
    assert max(errors) < worst
    assert all(row.low is not None and row.high is not None and row.low <= row.high for row in chosen)


def test_products_on_the_matrix_unit_are_within_two_percent() -> None:
    rows = [row for row in rows_of(find_table("tessellate_cycles.csv")) if row.kind == "matrix unit"]
    assert all(row.tolerance == 0.02 and row.within for row in rows)


def test_no_upper_bound_is_exceeded_and_whole_programs_say_why_not() -> None:
    rows = rows_of(find_table("tessellate_cycles.csv"))
    bounds = [row for row in rows if row.upper_bound and row.predicted is not None]
    assert len(bounds) == 7
    assert all(row.within and row.error == 0 for row in bounds)
    left = {row.name: row.note for row in rows if row.predicted is None}
    assert set(left) == {"timer_overhead", "qr_32", "hessenberg_32"}
    assert all(left.values())


def test_counted_slots_lie_in_their_range() -> None:
    rows = [row for row in rows_of(find_table("worker_loop_cycles.csv")) if row.kind == "issue slots"]
    for row in rows:
        assert row.score is not None
        assert row.score <= 1


@pytest.mark.skipif(not SHARED.exists(), reason="needs the folder of outside references")
def test_the_tables_as_they_were_collected_are_recognised() -> None:
    for name in TABLES:
        mine = {row.name: row.predicted for row in rows_of(find_table(name))}
        assert {row.name: row.predicted for row in rows_of(SHARED / name)} == mine


# ---- other rows of the same columns


def test_vertices_are_known_by_name_and_others_are_not_guessed(tmp_path: Path) -> None:
    rows = rows_of_text(
        tmp_path,
        VERTEX
        + "a,popops BinaryElementwise1D mul,x,float16,4096,,,1,9999,with timers,printed\n"
        + "b,popops BinaryElementwise1D mul,x,float16,4096,,,1,9999,45 already subtracted,printed\n"
        + "c,popops BinaryElementwise1D nand,x,float32,64,,,1,99,with timers,printed\n"
        + "d,my own vertex,sorts,float32,64,,,1,99,with timers,printed\n"
        + "e,custom MultiVertex,dot product,float16,64,,,1,99,with timers,printed\n"
        + 'f,"poplin ConvPartial1x1 (AMP, f32 in, f32 partials)",x,float32,96,8,16,4,9999,subtracted,printed\n'
        + 'g,"poplin ConvPartial1x1 (AMP, f16 in, f16 partials)",x,float16,96,32,16,4,9999,subtracted,printed\n'
        + "h,custom MultiVertex,dot product,float32,many,,,1,99,with timers,printed\n",
    )
    found = {row.name: row for row in rows}
    vertex = binary_1d_cycles(4096, op="MULTIPLY", dtype="f16")
    assert found["a"].predicted == TIMER_CYCLES + LAUNCH_CYCLES + vertex
    assert found["b"].predicted == LAUNCH_CYCLES + vertex
    assert "no formula for 'nand'" in found["c"].note
    assert "no formula and no count" in found["d"].note
    assert "is that for float32" in found["e"].note
    assert found["f"].predicted is not None
    assert "multiples of 8 out" in found["g"].note
    assert "whole numbers" in found["h"].note
    assert all(found[name].predicted is None for name in "cdegh")


@pytest.mark.parametrize(
    "count",
    [
        handwritten_vertices.householder,
        handwritten_vertices.rotation,
        handwritten_vertices.dot_product,
        handwritten_vertices.copy_by_one,
    ],
)
def test_counted_vertices_cost_their_bundles_for_every_further_vector(count: object) -> None:
    assert callable(count)
    few, more = count(120, 6).bundles, count(120 + 6 * handwritten_vertices.VECTOR, 6).bundles
    a_vector = {"householder": 3, "rotation": 4, "dot_product": 2, "copy_by_one": 12}[count.__name__]
    assert more - few == a_vector


def test_a_time_at_another_issue_rate_fits_no_whole_number_of_slots(tmp_path: Path) -> None:
    trips = 1_000_000
    rows = rows_of_text(
        tmp_path, LOOP + f"six,C,1,1,{trips},1,{6 * 14 * trips}\nfive,C,1,1,{trips},1,{5 * 15 * trips}\n"
    )
    within = {row.name: row.within for row in rows if row.kind == "one bundle a turn"}
    assert within == {"six, C: whole slots": True, "five, C: whole slots": False}


def test_unrolling_leaves_fewer_slots_an_element() -> None:
    for unroll in (1, 2, 4, 12):
        slots = Slots(unroll)
        assert slots.least < slots.counted < slots.most
    each = [Slots(unroll).counted / unroll for unroll in (2, 4, 12, 100)]
    assert each == sorted(each, reverse=True)


# ---- gathers


def machine() -> MimdMachine:
    found = load_machine("c600")
    assert isinstance(found, MimdMachine)
    return found


@pytest.mark.parametrize(("rows", "width", "lookups"), [(44000, 15, 576000), (500, 1, 64), (1 << 20, 64, 4096)])
def test_a_plan_covers_table_and_lookups_with_the_tiles_there_are(rows: int, width: int, lookups: int) -> None:
    plan = plan_gather(machine(), rows, width, lookups)
    assert plan.width_parts * plan.table_parts * plan.lookup_parts <= machine().chip.tiles
    assert plan.width_parts * plan.floats >= width
    assert plan.table_parts * plan.table_rows >= rows
    assert plan.lookup_parts * plan.lookups >= lookups
    assert plan.table_parts * plan.second_lookups >= plan.lookups
    phases = gather_phases(machine(), plan, lookups)
    assert ("selection" in phases) == plan.staged
    assert min(phases.values()) > 0


def test_the_published_gather_scans_selects_and_divides() -> None:
    """By hand: 9,443 look-ups of 2 floats on a tile, a third of them found; 392 indices of its own to divide."""
    plan = plan_gather(machine(), 44000, 15, 576000)
    phases = gather_phases(machine(), plan, 576000)
    assert (plan.width_parts, plan.table_parts, plan.lookup_parts, plan.lookups) == (8, 3, 61, 9443)
    assert phases["look-up"] == 6 * (30 + 525 * (19 + 2) + (1574 - 525) * 8)
    assert phases["selection"] == multi_slice_cycles(2, 525)
    each = 66  # of 392 indices, per context
    divided = 11 + 6 * (20 + 260 * each)
    assert phases["indices of the second stage"] == divided + 2 * (11 + 6 * (26 + 7 * each))


def test_a_gather_that_fits_no_tile_is_refused() -> None:
    with pytest.raises(MappingError, match="serial split"):
        plan_gather(machine(), 1 << 20, 512, 1 << 24)


def test_gathers_of_other_operations_are_not_guessed(tmp_path: Path) -> None:
    rows = rows_of_text(
        tmp_path,
        GATHER
        + "frame,whole renderer,,,float32,,,,1.5\n"
        + "g,popops::multiSlice,1000,8,float32,5000,100,50,0.1\n"
        + "h,popops::multiSlice + copy to 50 rows,1000,8,float32,5000,100,50,0.2\n",
    )
    found = {row.name: row for row in rows}
    assert "no program for 'whole renderer'" in found["frame"].note
    alone = found["copy alone: with it less without"]
    assert alone.published == pytest.approx(0.1)
    assert found["h"].predicted == pytest.approx((found["g"].predicted or 0) + (alone.predicted or 0))


# ---- bounds and refusals


def test_an_upper_bound_counts_as_within_and_has_no_error() -> None:
    below, above = make_row("below", 3.0, upper_bound=True), make_row("above", 13.0, upper_bound=True, tolerance=0.0)
    assert (below.within, above.within) == (True, False)
    assert (below.error, above.error) == (0.0, pytest.approx(0.3))
    found = Summary([below, above])
    assert (found.compared, found.within, found.mean_error) == (2, 1, None)
    assert verdict(found) == "1 of 2 at most the bound"
    assert "| below | 3 | 10 | ms | 0.300 | bound | within |" in page_of([below])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (VERTEX + "a,b,c,float32,1,,,1,none,with timers,printed\n", "column 'cycles': 'none' is not a number above 0"),
        (VERTEX + "a,b,c,float32,1,,,1,-3,with timers,printed\n", "column 'cycles': '-3' is not a number above 0"),
        (LOOP + "a,C,1,1,1000,0,90000\n", "column 'unroll_factor': '0' is not a whole number of at least 1"),
        (LOOP + "a,C,1,1,10.5,1,90000\n", "column 'iterations_per_tile': '10.5' is not a whole number of at least 1"),
        (GATHER + "a,popops::multiSlice,1,1,float32,1,1,1,inf\n", "column 'time_ms': 'inf' is not a number above 0"),
    ],
)
def test_bad_numbers_are_refused_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    (row,) = rows_of_text(tmp_path, text)
    assert (row.name, row.note, row.predicted) == ("line 2", message, None)


# ---- figures that cannot be

PRODUCT = (
    "operation,machine,dtype,m,k,n,variant,metric,value,unit,tolerance\nmatmul,bow,f16,4096,4096,4,poplibs,tflops,"
)


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ("-5,TFLOP/s,", "a measured -5 TFLOP/s is not above 0"),
        ("0,TFLOP/s,", "a measured 0 TFLOP/s is not above 0"),
        ("18.8,GFLOP/s,", "tflops is in TFLOP/s, not in 'GFLOP/s'"),
        ("18.8,TFLOP/s,-0.15", "a tolerance of -0.15 is not from 0 to 1"),
        ("18.8,TFLOP/s,1e12", "a tolerance of 1e+12 is not from 0 to 1"),
    ],
)
def test_what_no_measurement_gives_is_not_compared(tmp_path: Path, cells: str, said: str) -> None:
    (row,) = rows_of_text(tmp_path, PRODUCT + cells + "\n")
    assert (row.predicted, row.note) == (None, said)
    (right,) = rows_of_text(tmp_path, PRODUCT + "18.8,TFLOP/s,0.15\n")
    assert right.within


def test_another_measurement_does_not_acquit_one_that_is_far_off(tmp_path: Path) -> None:
    head, first, *_ = find_table("devito_ipu.csv").read_text(encoding="utf-8").splitlines()
    cells = dict(zip(head.split(","), first.split(","), strict=True))
    (row,) = rows_of_text(tmp_path, f"{head}\n{first}\n".replace(cells["us_per_iteration"], "5000"))
    assert (row.published, row.within) == (5000, False)


def test_a_row_that_no_training_step_has_does_not_stop_the_others(tmp_path: Path) -> None:
    head = "hidden,max_activity,dense,sparse,batch,T,second_threshold,ms_total,ms_keras,ms_median,final_loss\n"
    row = "2,0.01,20-8-8-3,4-4-4-3,{batch},2,0.9,7.2,6.9,6.0,1.3\n"
    wrong, *rest = rows_of_text(tmp_path, head + row.format(batch=0) + row.format(batch=4))
    assert (wrong.name, wrong.note) == ("line 2", "column 'batch': '0' is not a whole number of at least 1")
    assert rest[0].predicted is not None


def test_the_fewest_slots_grow_with_what_is_written_out() -> None:
    """Once the trip's own instructions are outweighed, each copy of the body adds as many."""
    least = [Slots(unroll).least for unroll in (1, 8, 16, 24)]
    assert all(Slots(unroll).least <= Slots(unroll).counted for unroll in (1, 8, 16, 24))
    assert least[2] - least[1] == least[3] - least[2] > 0


@pytest.mark.parametrize("column", ["iterations_per_tile", "unroll_factor", "workers_per_tile", "tile_cycles_max"])
def test_loops_of_nothing_are_refused(column: str, tmp_path: Path) -> None:
    header, row = find_table("worker_loop_cycles.csv").read_text(encoding="utf-8").splitlines()[:2]
    values = dict(zip(header.split(","), row.split(","), strict=True)) | {column: "0"}
    path = tmp_path / "loops.csv"
    path.write_text(header + "\n" + ",".join(values.values()) + "\n", encoding="utf-8")
    (refused,) = check_files((path,), None, lambda *_: None)
    assert refused.name == "line 2"
    assert refused.note.startswith(f"column '{column}': '0' is not a")
