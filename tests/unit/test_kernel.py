"""A kernel is held against its reference before it meets hardware: what is wrong is found, its author named."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import mimdsim

from mimdsim.base.errors import DescriptionError
from mimdsim.checking import check_kernel
from mimdsim.compiler import plan_exchanges
from mimdsim.machine import MimdMachine
from mimdsim.profile import load_profile
from mimdsim.program import (
    Codelet,
    Field,
    Program,
    Repeat,
    Superstep,
    Term,
    TileMapping,
    Variable,
    VertexTable,
    WorkerBundles,
)

TILES, EACH = 4, 8
CELLS = TILES * EACH
STARTS = np.arange(TILES) * EACH
COST = WorkerBundles(fixed=20, terms=(Term(bundles=3, extents=("cells",)),), kind="assumed", source="a test")


def scale(out: np.ndarray, cells: np.ndarray) -> None:
    out[:] = np.where(cells >= 1, 2 * cells, cells)


def scaling(
    compute: Callable[..., None] = scale, access: str = "write", dtype: str = "float32", times: int = 1, **held: Any
) -> Program:
    """out = cells doubled where they are at least 1, a vertex a tile; `times` turns of the same."""
    box = ("start:stop",)
    codelet = Codelet(
        name="Scale",
        fields=(Field(name="out", access=access, box=box), Field(name="cells", access="read", box=box)),
        columns=(),
        compute=compute,
        form="vertex",
        cost=COST,
    )
    table = VertexTable(
        codelet=codelet,
        tiles=np.arange(TILES),
        operands={"out": "new", "cells": "old"},
        columns={"start": STARTS, "stop": STARTS + EACH},
        extents={"cells": np.full(TILES, EACH)},
    )
    mapping = TileMapping.split(0, np.arange(TILES), STARTS, STARTS + EACH)
    variables = {
        name: Variable(name=name, shape=(CELLS,), dtype=dtype, mapping=mapping, category="cells", **more)
        for name, more in (("old", {}), ("new", held))
    }
    step = Superstep(name="scale", phase="scaling", tables=(table,))
    body = (step,) if times == 1 else (Repeat(times=times, body=(step,)),)
    return plan_exchanges(
        Program(tiles=TILES, variables=variables, body=body, inputs={"cells": "old"}, outputs={"scaled": "new"})
    )


def expected(cells: np.ndarray) -> np.ndarray:
    return np.where(cells >= 1, 2 * cells, cells)


def check(program: Program, reference: Callable[..., Any] = expected, **options: Any) -> dict[str, Any]:
    """Findings by name."""
    result = check_kernel(lambda _: program, machine="tiny", reference=reference, **options)
    return {finding.name: finding for finding in result.findings}


# ---- what holds, and what does not


def test_a_right_kernel_passes_in_three_lines() -> None:
    result = check_kernel(lambda machine: scaling(), machine="tiny", reference=expected)
    assert result.passed, result
    assert [finding.name for finding in result.findings] == ["rules", "memory", "values", "again", "strict", "time"]
    assert result.cycles == (20 + 3 * EACH) * 6
    assert str(result).startswith("ok    rules: 4 vertices in 1 superstep:")


def test_the_first_wrong_element_is_told_with_its_vertex() -> None:
    def compute(out: np.ndarray, cells: np.ndarray) -> None:
        out[:] = expected(cells)
        out[3] += 1

    found = check(scaling(compute))["values"]
    assert not found.passed
    wanted = (
        r"superstep 'scale': vertex 0 of Scale on tile 0 leaves new\[3\] = \S+, the reference gives \S+; 4 of 32 "
        r"elements of 'scaled' are wrong \(inputs 1 of 5\)"
    )
    assert re.fullmatch(wanted, found.text)


def test_slices_that_are_left_are_told_beside_the_wrong_value() -> None:
    """An index of -1 reads another element of a numpy array, and other memory on a tile."""

    def compute(out: np.ndarray, cells: np.ndarray) -> None:
        out[:] = cells[np.arange(len(out)) - 1]

    said = check(scaling(compute))["values"].text
    assert "leaves new[" in said
    assert "; and vertex by vertex: superstep 'scale'" in said
    assert "of field 'cells'" in said
    assert "index -1" in said
    assert "vertex by vertex" not in check(scaling(compute), strict=False)["values"].text


def test_the_vertex_that_wrote_last_is_named_with_its_timestep() -> None:
    def compute(out: np.ndarray, cells: np.ndarray) -> None:
        out[:] = expected(cells) + (np.arange(EACH) == 5)

    text = check(scaling(compute, times=3))["values"].text
    assert text.startswith("superstep 'scale', timestep 2: vertex 0 of Scale on tile 0 leaves new[5] =")


def test_a_comparison_that_is_off_at_a_tie_is_found_by_the_draws() -> None:
    def compute(out: np.ndarray, cells: np.ndarray) -> None:
        out[:] = np.where(cells > 1, 2 * cells, cells)

    found = check(scaling(compute))["values"]
    assert not found.passed
    assert "(inputs 2 of 5)" in found.text  # whole numbers, of which some are 1


def test_what_an_earlier_run_left_must_not_matter() -> None:
    def compute(out: np.ndarray, cells: np.ndarray) -> None:
        out += expected(cells)

    result = check_kernel(lambda _: scaling(compute, "update"), machine="tiny", reference=expected, strict=False)
    assert not result.passed


def test_persistent_variables_may_count_over_runs() -> None:
    def compute(out: np.ndarray, cells: np.ndarray) -> None:
        out += expected(cells)

    start = np.broadcast_to(np.float32(0), (CELLS,))
    result = check_kernel(
        lambda _: scaling(compute, "update", persistent=True, values=start), machine="tiny", reference=expected
    )
    assert result.passed, result


def test_whole_numbers_must_be_equal_and_are_not_drawn() -> None:
    program = scaling(dtype="int32")
    with pytest.raises(DescriptionError, match=r"input 'cells' holds int32: define inputs\(rng\) that returns it"):
        check(program)
    given = {"inputs": lambda rng: {"cells": rng.integers(-5, 5, CELLS)}}
    assert check(program, **given)["values"].passed
    off = check(program, lambda cells: expected(cells) + (np.arange(CELLS) == 9), **given)["values"]
    assert "vertex 1 of Scale on tile 1 leaves new[9]" in off.text


def test_the_tolerance_is_of_the_largest_value() -> None:
    def nearly(cells: np.ndarray) -> np.ndarray:
        return expected(cells) * (1 + 1e-4)

    assert not check(scaling(), nearly)["values"].passed
    assert check(scaling(), nearly, tolerance=1e-3)["values"].passed


def test_a_program_that_breaks_a_rule_is_not_run() -> None:
    program = scaling()
    (table,) = next(program.supersteps())[0].tables
    moved = program.map_supersteps(lambda step: replace(step, tables=(replace(table, tiles=table.tiles[::-1]),)))
    found = check(moved)
    assert not found["rules"].passed
    assert found["values"].text == "not run: fix what breaks the rules first"
    assert "time" not in found


# ---- functions that do not fit


def test_the_users_own_line_is_named() -> None:
    def build(machine: MimdMachine) -> Program:
        return machine.chips  # type: ignore[attr-defined,no-any-return]

    with pytest.raises(DescriptionError, match=r"build\(machine\)") as told:
        check_kernel(build, machine="tiny", reference=expected)
    assert "(test_kernel.py, line" in str(told.value)
    assert "return machine.chips" in str(told.value)

    def wrong_size(machine: MimdMachine) -> Program:
        return scaling(values=np.zeros(3, np.float32))

    with pytest.raises(DescriptionError, match="is loaded with"):
        check_kernel(wrong_size, machine="tiny", reference=expected)
    with pytest.raises(DescriptionError, match="must return a Program, returned NoneType"):
        check_kernel(lambda _: None, machine="tiny", reference=expected)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (lambda cell: cell, "parameter 'cell' is not an input of the program; inputs: cells"),
        (lambda cells: {"scale": cells}, "returns no output 'scaled'"),
        (lambda cells: {"scaled": cells, "more": cells}, "returns 'more', which is not an output"),
        (lambda cells: cells[1:], r"output 'scaled' has shape \(31,\), the program's has \(32,\)"),
        (lambda cells: cells[99], "IndexError: .*\n.*test_kernel.py, line"),
        (lambda cells: cells * np.nan, r"output 'scaled' is nan at \[0\]: give inputs for which it is a number"),
    ],
)
def test_a_reference_that_does_not_fit_is_refused(reference: Callable[..., Any], message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        check(scaling(), reference)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (lambda rng: {"cell": rng.random(CELLS)}, "no input 'cell'; did you mean 'cells'"),
        (lambda rng: {"cells": rng.random(3)}, r"input 'cells' has shape \(3,\), the program takes \(32,\)"),
        (lambda rng: rng.random(3), "must return a dict of arrays, returned ndarray"),
        (lambda rng: {"cells": np.full(CELLS, "x")}, "input 'cells' is <U1, the program takes float32"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: Callable[..., Any], message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        check(scaling(), inputs=inputs)


# ---- the command and its report


FILE = f'''"""Cells doubled from 1 on.

More words."""
import numpy as np
import sys
sys.path.insert(0, {str(Path(__file__).parents[1] / "support")!r})
from test_kernel import expected as reference, scaling

TOLERANCE = 1e-6


def build(machine):
    return scaling()


def half(cells):
    return reference(cells) / 2
'''


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "doubled.py"
    path.write_text(FILE)
    return path


def test_a_file_is_checked(kernel: Path) -> None:
    output = mimdsim("check", str(kernel), "tiny", "--strict")
    assert "ok    values: scaled: 32 elements match the reference, for 5 draws of inputs" in output
    assert "ok    strict" in output
    assert "FAIL  values" in mimdsim("check", str(kernel), "tiny", "--reference", "half", code=1)
    assert "defines no function hlaf(...)" in mimdsim("check", str(kernel), "tiny", "--reference", "hlaf", code=2)
    assert "a kernel has no workload; only fields of its machine" in mimdsim(
        "check", str(kernel), "tiny", "--set", "training.epochs=2", code=2
    )
    assert "no such Python file" in mimdsim("check", str(kernel.with_name("other.py")), "tiny", code=2)


def test_a_file_that_cannot_be_read_is_told_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "wrong.py"
    path.write_text("import numpy as np\nx = np.zros(3)\n")
    output = mimdsim("check", str(path), "tiny", code=2)
    assert "cannot be imported: AttributeError" in output
    assert "(wrong.py, line 2: x = np.zros(3))" in output
    path.write_text(
        'from mimdsim.kernels import WorkerBundles\n\nCOST = WorkerBundles(fixed=1, kind="none", source="")\n'
    )
    monkeypatch.chdir(tmp_path)
    for given in (str(path), "wrong.py", "./wrong.py"):
        assert "(wrong.py, line 3: COST = WorkerBundles(" in mimdsim("check", given, "tiny", code=2)
    path.write_text("def build(machine:\n    pass\n")
    assert "SyntaxError" in mimdsim("check", str(path), "tiny", code=2)
    path.write_text("from mimdsim.kernels import Field\n\n\ndef make():\n    pass\n")
    assert "no function build(machine) that returns a Program; known: make" in mimdsim(
        "check", str(path), "tiny", code=2
    )


@pytest.mark.slow
def test_advice_for_a_kernel_gains_what_it_says(tmp_path: Path) -> None:
    path = Path(__file__).resolve().parents[2] / "examples" / "kernels" / "csr_product.py"
    mimdsim("check", str(path), "tiny", "--out", str(tmp_path))
    (faster,) = (one for one in load_profile(tmp_path / "profile.json").advice if one.what == "no wait at a sync")
    assert faster.command.startswith(f"mimdsim check {path} tiny --set ")
    assert f" {faster.cycles:,} cycles " in mimdsim(*faster.command.split()[1:])


@pytest.mark.slow
def test_a_kernels_report_has_no_word_of_training(kernel: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    mimdsim("check", str(kernel), "tiny", "--out", str(out))
    page = (out / "report.html").read_text()
    seen = re.sub(r"<script>.*?</script>|<style>.*?</style>|data:image[^\"]*", "", page, flags=re.S)
    modelled = seen.index('id="modelled"')  # sources of numbers may speak of what they were measured on
    for word in ("training", "samples", "spike", "loss", "epoch", "batch", "neuron", "workload"):
        assert word not in seen[:modelled].lower(), word
    for word in ("Cells doubled from 1 on", "Kernel <b>doubled</b>", "scaling", "cells", "264 cycles per run"):
        assert word in seen, word
    assert "run_cycles" in (out / "tiles.csv").read_text().splitlines()[0]
    profile = load_profile(out / "profile.json")
    assert profile.tiled is not None
    assert profile.tiled.run_name == "run"
    assert [finding.name for finding in profile.findings] == ["rules", "memory", "values", "again"]
    told = mimdsim("report", str(out / "profile.json"))
    assert "training" not in told
    assert "scaling" in told


def test_a_kernel_that_was_not_timed_still_has_a_page(kernel: Path, tmp_path: Path) -> None:
    kernel.write_text(
        FILE.replace("return scaling()", "import dataclasses\n    return dataclasses.replace(scaling(), tiles=2)")
    )
    out = tmp_path / "report"
    assert "FAIL  rules" in mimdsim("check", str(kernel), "tiny", "--out", str(out), code=1)
    assert "The kernel was not timed." in (out / "report.html").read_text()


def test_a_kernel_streams_nothing_unless_it_says_so() -> None:
    resident = check_kernel(lambda _: scaling(), machine="bow", reference=expected).tiled
    streaming = replace(scaling(), streamed={"cells": 4 * CELLS})
    streamed = check_kernel(lambda _: streaming, machine="bow", reference=expected).tiled
    assert resident is not None
    assert streamed is not None
    assert resident.host_seconds == resident.host_exposed_seconds == 0
    assert streamed.host_seconds == pytest.approx(4 * CELLS / 8e9 + 70e-6)
    assert streamed.spans == resident.spans


def test_a_kernel_is_explained_on_the_command_line(kernel: Path) -> None:
    listed = mimdsim("explain", str(kernel), "tiny")
    assert "264 cycles a run on tiny" in listed
    told = mimdsim("explain", str(kernel), "tiny", "scale", "--tile", "2")
    assert "vertex 2 of Scale: 20 + 3 x 8 cells = 44 bundles" in told
    assert "no superstep 'scael' in the program; did you mean 'scale'?" in mimdsim(
        "explain", str(kernel), "tiny", "scael", code=2
    )
    other = ("--set", "tile.instruction_set=another")
    for asked in ((), ("scale",)):
        first = mimdsim("explain", str(kernel), "tiny", *asked, *other).splitlines()[0]
        assert first.startswith("! Times are unknown: costs are those of another instruction set")


def test_a_workload_is_explained_on_the_command_line() -> None:
    listed = mimdsim("explain", "digits", "bow").splitlines()
    assert listed[0] == "at 6 timesteps and batch 8, for random spikes"
    cycles = [int(line.split()[-2].replace(",", "")) for line in listed[3:]]
    assert cycles == sorted(cycles, reverse=True)
    assert listed[1] == f"{sum(cycles):,} cycles a training step on bow"
    number = listed[3].split()[0]
    assert f"takes {cycles[0]:,} cycles on bow" in mimdsim("explain", "digits", "bow", number)


@pytest.mark.parametrize("off", [9e-6, -1e-3, 1.0, np.nan])
def test_a_reference_of_zeros_is_held_to_a_floor_that_is_said(off: float) -> None:
    def nearly(out: np.ndarray, cells: np.ndarray) -> None:
        out[:] = off

    def rounded(out: np.ndarray, cells: np.ndarray) -> None:
        out[:] = (cells * np.float32(1 / 3)) * 3 - cells

    assert not check(scaling(nearly), lambda cells: 0 * cells)["values"].passed
    found = check(scaling(rounded), lambda cells: 0 * cells)["values"]
    assert found.passed, found
    assert re.search(r"to 1e-05 of the largest \(of zeros alone: to \d\.\de-0\d\)", found.text)


@pytest.mark.parametrize(
    ("dtype", "wrong", "said"),
    [
        ("float32", lambda cells: cells.astype(np.float64) * 1e39, "but float32 holds numbers from 1.18e-38 to 3.4e"),
        ("float32", lambda cells: cells.astype(np.float64) * 1e-60, "but float32 holds numbers from 1.18e-38"),
        ("float16", lambda cells: cells.astype(np.float64) * 1e6, "but float16 holds numbers from 6.1e-05 to 6.55e"),
        ("int32", lambda cells: cells.astype(np.int64) + 2**40, "but int32 holds whole numbers from -2,147,483,648"),
        ("int32", lambda cells: cells + 0.5, "but int32 holds whole numbers"),
        ("float32", lambda cells: cells / 0.0, "inf at"),
    ],
)
def test_a_reference_that_the_format_cannot_hold_is_refused(dtype: str, wrong: Callable[..., Any], said: str) -> None:
    whole = {"inputs": lambda rng: {"cells": rng.integers(1, 5, CELLS)}}
    with np.errstate(all="ignore"), pytest.raises(DescriptionError, match=re.escape(said)):
        check(scaling(dtype=dtype), wrong, **whole)


TABLE = np.zeros(1000, np.float32)  # of no tile


def from_nowhere(out: np.ndarray, cells: np.ndarray) -> None:
    out[:] = np.where(cells >= 1, 2 * cells, cells) + TABLE[: len(cells)]


def test_an_array_that_no_tile_holds_breaks_the_rules() -> None:
    found = check(scaling(from_nowhere))
    assert not found["rules"].passed
    assert "vertex 0 of Scale on tile 0 reads 'TABLE', 3.9 KiB that lie on no tile" in found["rules"].text


def test_what_outlives_a_vertex_is_not_called_a_read() -> None:
    """Neither a count that vertices keep among themselves nor random numbers are memory of a tile."""
    kept = [0.0]

    def counting(out: np.ndarray, cells: np.ndarray) -> None:
        kept[0] += 1e-9
        out[:] = np.where(cells >= 1, 2 * cells, cells) + np.float32(kept[0])

    draw = np.random.default_rng(0)

    def drawing(out: np.ndarray, cells: np.ndarray) -> None:
        out[:] = np.where(cells >= 1, 2 * cells, cells) + draw.random(len(out)) * 1e-7

    again = check(scaling(drawing), strict=False)["again"].text
    assert "runs on fresh memory differ too: a codelet draws random numbers" in again
    one, other = re.search(r"leaves new\[\d+\] = (\S+), the first run leaves (\S+);", again).groups()  # type: ignore[union-attr]
    assert one != other
    kept[0] = 1.0
    strict = check(scaling(drawing))
    said = " ".join(finding.text for finding in strict.values())
    assert "draws random numbers" in said
    assert "declared" not in said


def test_small_elements_that_the_largest_hides_are_said() -> None:
    def halved(out: np.ndarray, cells: np.ndarray) -> None:
        out[:] = np.where(np.abs(cells) > 1e5, cells, cells / 2)

    def inputs(rng: np.random.Generator) -> dict[str, Any]:
        return {"cells": np.append(rng.random(CELLS - 1) + 0.5, 1e6).astype(np.float32)}

    found = check(scaling(halved), reference=lambda cells: cells, inputs=inputs)["values"]
    assert not found.passed
    text = found.text
    assert f"{CELLS - 1} of {CELLS} elements of 'scaled' are wrong, off by over 1% of their own size" in text
    assert "which the largest, 1000000, hides" in text
    assert "leaves new[0] =" in text
    assert "hides" not in check(scaling())["values"].text


IN_A_FILE = """
from __future__ import annotations

from dataclasses import dataclass

from test_kernel import scaling

calls = []


@dataclass
class Size:
    turns: int = 1


def scale(out, cells):
    calls.append(1)
    out[:] = 2 * cells


def build(machine):
    return scaling(scale, times=Size().turns)


def reference(cells):
    return 2 * cells
"""


def test_a_file_named_like_a_library_is_its_writers(tmp_path: Path) -> None:
    path = tmp_path / "glob.py"
    path.write_text(IN_A_FILE)
    assert "Scale changes 'calls', which is around its function" in mimdsim(
        "check", str(path), "tiny", "--strict", code=1
    )
    path.write_text(IN_A_FILE.replace("    calls.append(1)\n", ""))
    mimdsim("check", str(path), "tiny", "--strict")
