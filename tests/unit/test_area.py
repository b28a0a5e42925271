"""Area and power of a chip: closed forms by hand, laws, what is unknown or refused, the published chips."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mimdsim.base.errors import DescriptionError
from mimdsim.costs.area_power import (
    NOTHING,
    Estimate,
    Voltage,
    chip_area,
    links_of,
    silicon_profile,
    voltage_at,
)
from mimdsim.machine import MimdMachine, find_machine, load_machine
from mimdsim.pipeline import Run, retime, simulate
from mimdsim.pipeline.warnings import unscaled_energy
from mimdsim.profile import SiliconProfile, load_profile, save_profile
from mimdsim.report.console import summary_lines
from mimdsim.report.tables_machines import silicon_parts_table, silicon_table
from mimdsim.validation.tables import check_files, default_files
from mimdsim.workload import load_workload

GRAPHCORE = ("mk1", "mk2", "bow", "c600")
# round numbers on the machine for tests: 16 tiles of 624 KiB, 4 bytes a cycle, 1 GHz
BY_HAND = """
[area]
process = "made up"
sram_um2_per_bit = 0.1
logic_um2_per_transistor = 0.02
tile_transistors = 5e6
crosspoint_transistors = 10
link_mm2 = "0.5 mm2"
io_mm2 = "2 mm2"
spare_tiles_share = 0.25
[area.sources]
sram_um2_per_bit = "measured: by hand"
logic_um2_per_transistor = "derived: by hand"
tile_transistors = "published: by hand"
crosspoint_transistors = "assumed: by hand"
link_mm2 = "published: by hand"
io_mm2 = "published: by hand"
spare_tiles_share = "measured: by hand"

[power]
static_watts_per_mm2 = "50 mW/mm2"
clock_share = 0.4
leakage_exponent = 3
reference_volts = "0.8 V"
reference_hz = "2 GHz"
volts = "0.8 V"
volts_hz = "1 GHz"
range_volts = [0.5, 1.2]
voltage_follows = "nothing"
matrix_joules_per_flop = "1 pJ/FLOP"
[power.sources]
static_watts_per_mm2 = "measured: by hand"
clock_share = "measured: by hand"
leakage_exponent = "assumed: by hand"
reference_volts = "published: by hand"
reference_hz = "published: by hand"
volts = "measured: by hand"
volts_hz = "published: by hand"
range_volts = "published: by hand"
voltage_follows = "published: by hand"
matrix_joules_per_flop = "measured: by hand"
"""
SMALL: dict[str, Any] = {
    "data.inputs": 20, "data.classes": 3, "data.timesteps": 4, "data.input_capacity": 6, "data.activity": 0.2,
    "data.train_samples": 10, "data.test_samples": 5, "network.hidden": [24, 18], "network.capacity": [5, 4, 3],
    "training.batch": 5, "training.max_training_steps": 1,
}  # fmt: skip


def tiled(name: str, **changes: Any) -> MimdMachine:
    machine = load_machine(name, {key.replace("__", "."): value for key, value in changes.items()})
    assert isinstance(machine, MimdMachine)
    return machine


def described(folder: Path, *replaced: tuple[str, str]) -> str:
    """The path of `tiny` with BY_HAND instead of its static watts, some text replaced."""
    text = find_machine("tiny").read_text()
    text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("static_watts")) + BY_HAND
    for old, new in replaced:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path = folder / "hand.toml"
    path.write_text(text)
    return str(path)


def area(machine: MimdMachine) -> float:
    return sum(chip_area(machine).values(), NOTHING).value


def static(machine: MimdMachine) -> float:
    return static_and_off(machine)[0]


def static_and_off(machine: MimdMachine) -> tuple[float, float]:
    found = known(machine).static_watts
    assert found is not None
    return found


def static_part(machine: MimdMachine, name: str) -> float:
    return next(part.value for part in known(machine).static if part.name == name)


def known(machine: MimdMachine) -> SiliconProfile:
    found = silicon_profile(machine)
    assert found is not None
    return found


# ---- closed forms


def test_area_is_what_a_pencil_gives(tmp_path: Path) -> None:
    found = chip_area(tiled(described(tmp_path)))
    built = 16 * 1.25
    by_hand = {
        "SRAM": built * 624 * 1024 * 8 * 0.1e-6,  # 10.22
        "logic of tiles": built * 5e6 * 0.02e-6,  # 2
        "exchange": 16 * 16 * 32 * 10 * 0.02e-6,
        "links": 2 * 1 * 0.5,  # a ring, one link an edge
        "host link and rim": 2.0,
    }
    assert {name: each.value for name, each in found.items()} == pytest.approx(by_hand)
    # half widths: of a product the root of the squares of its factors' shares; 0.25 of a spare share is 1/25 of 1.25
    spare = 0.05 * 0.25 / 1.25
    shares = {
        "SRAM": (0.05**2 + spare**2) ** 0.5,
        "logic of tiles": (0.3**2 + 0.1**2 + spare**2) ** 0.5,
        "exchange": (0.3**2 + 0.5**2) ** 0.5,
        "links": 0.1,
        "host link and rim": 0.1,
    }
    assert {name: each.off / each.value for name, each in found.items()} == pytest.approx(shares)
    assert {name: each.kind for name, each in found.items()} == {
        "SRAM": "measured",
        "logic of tiles": "derived",
        "exchange": "assumed",
        "links": "published",
        "host link and rim": "published",
    }


def test_watts_are_what_a_pencil_gives(tmp_path: Path) -> None:
    machine = tiled(described(tmp_path))
    assert static_part(machine, "leakage") == pytest.approx(0.05 * area(machine) * 0.6)
    assert static_part(machine, "clock tree") == pytest.approx(0.05 * area(machine) * 0.4 / 2)  # 1 of 2 GHz
    # 22 pJ a bundle and 128 flops of 1 pJ, 16 tiles at 1 GHz
    full = known(machine).full_load
    assert full is not None
    assert full.value == pytest.approx(16e9 * (22e-12 + 128e-12) + static(machine))
    # three contexts take three of six turns
    few = known(machine.model_copy(update={"tile": machine.tile.model_copy(update={"worker_contexts": 3})})).full_load
    assert few is not None
    assert full.value - few.value == pytest.approx(16e9 * 11e-12)


@pytest.mark.parametrize(
    ("follows", "clock", "volts"),
    [
        ("nothing", 1.25, (0.8, 0.8)), ("clock", 1.25, (1.0, 1.0)), ("unknown", 1.25, (0.8, 1.0)),
        ("clock", 0.75, (0.6, 0.6)), ("unknown", 0.75, (0.6, 0.8)), ("clock", 0.1, (0.5, 0.5)),
        ("unknown", 9, (0.8, 1.2)), ("nothing", 9, (0.8, 0.8)),
    ],
)  # fmt: skip
def test_voltage_follows_the_clock_as_the_machine_says(
    tmp_path: Path, follows: str, clock: float, volts: tuple[float, float]
) -> None:
    path = described(tmp_path, ('voltage_follows = "nothing"', f'voltage_follows = "{follows}"'))
    machine, slow = tiled(path, chip__clock_hz=clock * 1e9), tiled(path)
    found = voltage_at(machine)
    assert isinstance(found, Voltage)
    assert (found.low, found.high) == pytest.approx(volts)
    low, high = ((each / 0.8) ** 2 for each in volts)
    assert (found.squared.value, found.squared.off) == pytest.approx(((low + high) / 2, (high - low) / 2))
    low, high = ((each / 0.8) ** 3 for each in volts)
    leaks = static_part(machine, "leakage") / static_part(slow, "leakage")
    assert leaks == pytest.approx((low + high) / 2)
    turns = static_part(machine, "clock tree") / static_part(slow, "clock tree")
    assert turns == pytest.approx(clock * found.squared.value)


def test_an_error_of_the_clocks_share_moves_watts_and_makes_none(tmp_path: Path) -> None:
    """At the reference, leakage and clock tree scale alike: it does not matter which of them a watt is."""
    sure = tiled(described(tmp_path), chip__clock_hz="2 GHz")
    doubted = tiled(described(tmp_path, ('clock_share = "measured: by hand"', 'clock_share = "assumed: x"')))
    at_reference = sure.model_copy(update={"power": doubted.power})
    assert static_and_off(at_reference)[1] == pytest.approx(static_and_off(sure)[1])
    slower = tiled(described(tmp_path))
    assert static_and_off(doubted)[1] > 1.1 * static_and_off(slower)[1]


def test_products_and_sums_of_estimates() -> None:
    one, other = Estimate(value=10, off=3, kind="derived"), Estimate(value=2, off=1, kind="assumed")
    assert one * other == Estimate(value=20, off=(6**2 + 10**2) ** 0.5, kind="assumed")
    assert (one + other).off == 4
    assert (Estimate(value=1, off=1) * Estimate(value=1, off=1)).off == 1  # nothing is below 0


# ---- laws


@pytest.mark.parametrize("name", GRAPHCORE)
@pytest.mark.parametrize(
    "more",
    [
        {"tile__sram_bytes": "2 MiB"}, {"chip__tiles": 3000}, {"area__tile_transistors": 2e7},
        {"exchange__bytes_per_cycle": 16}, {"area__io_mm2": "90 mm2"}, {"area__spare_tiles_share": 0.5},
    ],
)  # fmt: skip
def test_more_of_anything_takes_more_area_and_static_watts(name: str, more: dict[str, Any]) -> None:
    small, large = tiled(name), tiled(name, **more)
    assert area(large) > area(small)
    assert static(large) / static(small) == pytest.approx(area(large) / area(small))


def test_more_links_take_area_where_the_topology_has_edges() -> None:
    assert area(tiled("bow", links__links_per_edge=8)) - area(tiled("bow")) == pytest.approx(3 * 6 * 1.6)
    edges = {"line": 2, "ring": 2, "ladder": 3, "torus": 4, "all_to_all": 3}
    for topology, each in edges.items():
        assert links_of(tiled("bow", links__topology=topology, links__chips=4).links) == 2 * each


@pytest.mark.parametrize(("group", "widest"), [(1, 3), (2, 10), (4, 10), (9, 10)])
def test_links_inside_groups_take_area_too(group: int, widest: int) -> None:
    """Chips are alike, so each has as many links as an edge of the wider kind that there is takes."""
    fields = {"chips": 4, "topology": "line", "links_per_edge": 3, "group_chips": group, "group_links_per_edge": 10}
    assert links_of(tiled("bow", **{f"links__{name}": value for name, value in fields.items()}).links) == 2 * widest


def test_the_exchange_grows_with_the_square_of_the_tiles() -> None:
    grown = chip_area(tiled("bow", chip__tiles=2944))["exchange"].value / chip_area(tiled("bow"))["exchange"].value
    assert grown == pytest.approx(4)


@pytest.mark.parametrize("name", GRAPHCORE)
def test_a_faster_clock_takes_more_watts_and_no_area(name: str) -> None:
    slow, fast = tiled(name), tiled(name, chip__clock_hz="3 GHz")
    assert area(fast) == area(slow)
    assert static(fast) > static(slow)
    assert known(fast).volts_high > known(slow).volts_high
    assert known(fast).static_watts[1] > known(slow).static_watts[1]  # type: ignore[index]


# ---- in runs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return simulate(load_workload("nmnist-2-random", SMALL), tiled(described(tmp_path_factory.mktemp("hand"))))


def test_static_energy_is_static_watts_times_seconds_and_dynamic_goes_by_the_voltage(run: Run, tmp_path: Path) -> None:
    profile = run.tiled
    assert profile.static_watts == pytest.approx(static_and_off(run.machine))
    assert profile.area_mm2 == pytest.approx((area(run.machine), sum(chip_area(run.machine).values(), NOTHING).off))
    lower = tiled(described(tmp_path), power__volts="0.6 V")
    found = retime(run.compiled, lower, run.log.activity)
    assert found.cycles == profile.cycles
    assert profile.energy is not None
    assert found.energy is not None
    scaled = {"instructions and own memory", "arithmetic", "exchange on the chip"}
    pairs = {part.name: part.joules for part in found.energy.parts}
    for part in profile.energy.parts[1:]:
        factor = (0.6 / 0.8) ** 2 if part.name in scaled else 1
        assert pairs[part.name] == pytest.approx(factor * part.joules)
    assert scaled <= pairs.keys()
    watts = profile.dynamic_watts
    assert watts is not None
    assert watts[0] + profile.static_watts[0] == pytest.approx(  # type: ignore[index]
        profile.energy.joules / profile.seconds_per_training_step
    )


def test_static_watts_that_are_given_stand_in_place_of_the_computed(run: Run, tmp_path: Path) -> None:
    given = retime(run.compiled, tiled(described(tmp_path), energy__static_watts="7 W"), run.log.activity)
    assert given.static_watts == pytest.approx((7, 3.5))
    none = retime(run.compiled, tiled(described(tmp_path), energy__static_watts=0), run.log.activity)
    assert none.static_watts == (0, 0)
    assert none.area_mm2 == run.tiled.area_mm2


def test_profile_page_and_console_show_area_and_watts(run: Run, tmp_path: Path) -> None:
    save_profile(tmp_path / "profile.json", run.profile)
    assert load_profile(tmp_path / "profile.json") == run.profile
    shown = silicon_table(run.profile)
    assert shown is not None
    ((_, process, volts, size, *_),) = shown.rows
    assert (process.text, volts.text, size.value) == ("made up", "0.80–0.80", pytest.approx(area(run.machine)))
    parts = silicon_parts_table(run.tiled)
    assert parts is not None
    assert len(parts.rows) == 7
    assert any(line.startswith("Area and power") for line in summary_lines(run.profile))


def test_a_machine_without_area_or_power_says_unknown(run: Run) -> None:
    """Its energy is what it was: static watts as given, joules as described."""
    without = retime(run.compiled, tiled("tiny"), run.log.activity)
    assert without.silicon is None
    assert without.area_mm2 is None
    assert without.static_watts == pytest.approx((1, 0.5))
    shown = silicon_table(replace(run.profile, tiled=without))
    assert shown is not None
    assert [cell.text for cell in shown.rows[0][3:5]] == ["unknown", "unknown"]
    assert "Unknown: tiny has no [area] in its description." in shown.note
    assert silicon_parts_table(without) is None
    silent = retime(run.compiled, run.machine.model_copy(update={"energy": None}), run.log.activity)
    assert silent.energy is None
    assert silent.static_watts == pytest.approx(static_and_off(run.machine))
    assert silent.dynamic_watts is None


def test_a_clock_that_needs_more_volts_than_there_are_has_unknown_watts(run: Run, tmp_path: Path) -> None:
    path = described(tmp_path, ('voltage_follows = "nothing"', 'voltage_follows = "clock"'))
    machine = tiled(path, chip__clock_hz="2 GHz")
    assert voltage_at(machine) == "2 GHz would need 1.60 to 1.60 V, above the 1.2 V of power.range_volts"
    profile = retime(run.compiled, machine, run.log.activity)
    assert profile.energy is None
    assert profile.static_watts is None
    assert profile.area_mm2 == run.tiled.area_mm2
    shown = silicon_table(replace(run.profile, tiled=profile))
    assert shown is not None
    assert [cell.text for cell in shown.rows[0][5:]] == ["unknown"] * 4
    assert "2 GHz would need" in shown.note


def test_what_does_not_follow_a_change_is_told() -> None:
    assert not [*unscaled_energy(tiled("bow"), ["chip.clock_hz"])]
    (said,) = unscaled_energy(tiled("bow"), ["chip.clock_hz", "tile.sram_bytes"])
    assert said.startswith("energy: tile.sram_bytes changed: area and static power follow, joules per bundle and byte")
    (said,) = unscaled_energy(tiled("tiny"), ["chip.clock_hz"])
    assert said.startswith("energy: chip.clock_hz changed, but static power stays at 1 W and joules")
    assert not [*unscaled_energy(tiled("tiny"), ["chip.clock_hz", "energy.static_watts"])]


# ---- what is refused


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("sram_um2_per_bit = 0.1", "sram_um2_per_bit = 0", "'area.sram_um2_per_bit' (line"),
        ("tile_transistors = 5e6", "tile_transistors = 5", "'area.tile_transistors' (line"),
        ('link_mm2 = "0.5 mm2"', 'link_mm2 = "0.5 um2"', "unit 'um2' does not fit link_mm2; use one of mm2"),
        ('io_mm2 = "2 mm2"', "io_mm2 = 1e9", "is not plausible; expected 0.0001 mm2 to 100000 mm2"),
        ("clock_share = 0.4", "clock_share = 1.4", "'power.clock_share' (line"),
        ('volts = "0.8 V"\nvolts_hz', 'volts = "1.4 V"\nvolts_hz', "volts = [1.4, 1.4] are outside range_volts = [0.5"),
        ('volts = "0.8 V"\nvolts_hz', "volts = [0.9, 0.7]\nvolts_hz", "volts = [0.9, 0.7]: give the lowest first"),
        ('volts = "0.8 V"\nvolts_hz', "volts = [0.9]\nvolts_hz", "takes one voltage or two; write [lowest"),
        ('volts = "0.8 V"\nvolts_hz', 'volts = "0.8 W"\nvolts_hz', "unit 'W' does not fit volts; use one of V, mV"),
        ('volts = "0.8 V"\nvolts_hz', "volts = true\nvolts_hz", "is a boolean; a voltage is needed"),
        ("range_volts = [0.5, 1.2]", "range_volts = [0.5, 800]", "both from 0.2 to 2 V"),
        ('voltage_follows = "nothing"', 'voltage_follows = "maybe"', "must be 'clock', 'nothing' or 'unknown'"),
        ('\nvolts = "measured: by hand"', "", "'volts' has no entry in 'sources'"),
        ('\nio_mm2 = "published: by hand"', "", "'io_mm2' has no entry in 'sources'"),
        (BY_HAND, "", "[energy] has no static_watts: give it, or [area] and [power] that it follows from"),
        (BY_HAND[: BY_HAND.index("[power]")], "\n", "[power] gives watts per mm2, but there is no [area]"),
    ],
)
def test_bad_values_are_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        load_machine(described(tmp_path, (old, new)))
    assert said in str(refused.value)
    assert "hand.toml" in str(refused.value)


# ---- published chips


def test_published_areas_and_watts_are_within_their_intervals() -> None:
    """Held out: none of these gave a number to a description (references/chips.csv says which did)."""
    (table,) = (path for path in default_files() if path.name == "chips.csv")
    rows = check_files((table,), None, lambda *_: None)
    assert {row.name.split()[0] for row in rows} >= {"GC2", "GC200", "Bow", "D1", "ET-SoC-1"}
    for row in rows:
        assert row.predicted is not None, row.note
        assert row.low is not None
        assert row.high is not None
        assert row.published is not None
        assert row.low < row.published < row.high, row.name
    areas = [row.error for row in rows if row.kind == "area_mm2, held out"]
    assert len(areas) == 5
    assert sum(areas) / 5 < 0.25


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("area_mm2,800", "area_mm2,-1", "column 'value': '-1' is not a number above 0"),
        (",0.3,held out", ",nan,held out", "column 'tolerance': 'nan' is not a number above 0"),
    ],
)
def test_a_table_of_chips_with_bad_numbers_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    row = _checked(tmp_path, old, new)
    assert (row.name, row.note, row.predicted) == ("line 2", said, None)


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        ("mk1,,area", "wormhole,,area", "unknown: wormhole has no [area] in its description"),
        ("mk1,,area", "a100,,area", "unknown: a100 has no [area] in its description"),
        ("mk1,,area", "nothing,,area", "nothing"),
        ("mk1,,area", "mk1,chip.tiles,area", "changes: 'chip.tiles' is not key=value; write section.key=value;..."),
        ("mk1,,area", "mk1,chip.tile=4,area", "did you mean 'tiles'?"),
        ("area_mm2,800,mm2", "area_mm2,800,um2", "no prediction for 'area_mm2' in 'um2'; known: area_mm2 in mm2"),
    ],
)
def test_rows_that_cannot_be_predicted_say_why(tmp_path: Path, old: str, new: str, note: str) -> None:
    row = _checked(tmp_path, old, new)
    assert row.predicted is None
    assert note in row.note


def _checked(folder: Path, old: str, new: str) -> Any:
    """The first row of the table, changed."""
    (table,) = (path for path in default_files() if path.name == "chips.csv")
    header, first, *_ = table.read_text().splitlines()
    assert old in first
    path = folder / "chips.csv"
    path.write_text(f"{header}\n{first.replace(old, new, 1)}\n")
    (row,) = check_files((path,), None, lambda *_: None)
    return row


# ---- the page


def test_the_table_in_docs_is_that_of_the_descriptions() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "area-and-power.md").read_text(encoding="utf-8")
    for name in GRAPHCORE:
        assert _line(name) in page.splitlines()


def _line(name: str) -> str:
    def reach(middle: float, off: float, bold: str = "**") -> str:
        return f"{bold}{middle:.0f}{bold} ({middle - off:.0f}–{middle + off:.0f})"

    chip = known(tiled(name))
    assert chip.static_watts is not None
    assert chip.full_load is not None
    parts = " | ".join(f"{part.value:.0f}" for part in chip.area)
    static_parts = " + ".join(f"{part.value:.0f}" for part in chip.static)
    return (
        f"| {name} | {parts} | {reach(*chip.area_mm2)} | {chip.volts_low:.2f}–{chip.volts_high:.2f} | {static_parts} = "
        f"{reach(*chip.static_watts)} | {reach(chip.full_load.value, chip.full_load.half_width, '')} |"
    )
