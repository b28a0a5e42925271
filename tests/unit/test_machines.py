"""The tiled machines that ship: they load, every number names its source, and mistakes are named with their line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mimdsim
from mimdsim.base.errors import DescriptionError
from mimdsim.base.units import is_kind
from mimdsim.machine import GpuMachine, MimdMachine, find_machine, list_machines, load_machine

FOREIGN = ("blackhole", "spinnaker2", "wormhole", "wse2")
TILED = ("bow", "bow-mesh", "c600", "mk1", "mk2", "tiny", *FOREIGN)
# tiles, clock in GHz, KiB per tile (Graphcore's product briefs; Jia et al. 2019 for Mk1). tiny is ours.
PUBLISHED = {"mk1": (1216, 1.6, 256), "mk2": (1472, 1.33, 624), "bow": (1472, 1.85, 624), "tiny": (16, 1.0, 624)}
SECTIONS = ("chip", "tile", "exchange", "sync", "host")


def tiled(name: str, changes: dict[str, object] | None = None) -> MimdMachine:
    machine = load_machine(name, changes)
    assert isinstance(machine, MimdMachine)
    return machine


def changed(tmp_path: Path, *changes: tuple[str, str]) -> tuple[Path, str]:
    """A copy of mk2 with some text replaced, and its text."""
    text = find_machine("mk2").read_text()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path, text


def complaint(tmp_path: Path, *changes: tuple[str, str]) -> str:
    path, _ = changed(tmp_path, *changes)
    with pytest.raises(DescriptionError) as caught:
        load_machine(str(path))
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_what_ships() -> None:
    machines = {name: load_machine(name) for name in list_machines()}
    assert all(isinstance(machine, MimdMachine | GpuMachine) for machine in machines.values())
    assert {name for name, machine in machines.items() if isinstance(machine, MimdMachine)} == set(TILED)
    assert all(machine.name == name for name, machine in machines.items())


@pytest.mark.parametrize("name", PUBLISHED)
def test_constants_are_the_published_ones(name: str) -> None:
    machine = tiled(name)
    tiles, clock_ghz, kib = PUBLISHED[name]
    assert machine.chip.tiles == tiles
    assert machine.chip.clock_hz == pytest.approx(clock_ghz * 1e9)
    assert machine.tile.sram_bytes == kib * 1024
    assert (machine.tile.worker_contexts, machine.tile.issue_cycles) == (6, 6)


@pytest.mark.parametrize("name", TILED)
def test_every_number_names_its_source(name: str) -> None:
    machine = tiled(name)
    assert (machine.area is None) == (machine.power is None) == (name in ("tiny", *FOREIGN))
    for section in (*SECTIONS, *(each for each in ("area", "power") if getattr(machine, each) is not None)):
        part = getattr(machine, section)
        needed = {field for field, about in type(part).model_fields.items() if about.is_required()}
        assert needed <= part.model_fields_set - {"sources"} == set(part.sources), section
        for field, source in part.sources.items():
            kind, _, text = source.partition(":")
            assert is_kind(kind), f"{section}.{field}"
            assert text.strip(), f"{section}.{field}"


def test_a_misspelt_key_is_refused_with_suggestion_and_line(tmp_path: Path) -> None:
    _, text = changed(tmp_path, ('sram_bytes = "624 KiB"', 'sram_byte = "624 KiB"'))
    line = next(number for number, row in enumerate(text.splitlines(), start=1) if row.startswith("sram_byte ="))
    message = complaint(tmp_path, ('sram_bytes = "624 KiB"', 'sram_byte = "624 KiB"'))
    assert f"unknown key 'tile.sram_byte' (line {line}); did you mean 'sram_bytes'?" in message
    assert "missing key 'tile.sram_bytes'" in message
    assert "did you mean 'exchange'?" in complaint(tmp_path, ("[exchange]", "[exchnge]"))


def test_decimal_bytes_are_refused(tmp_path: Path) -> None:
    message = complaint(tmp_path, ('sram_bytes = "624 KiB"', 'sram_bytes = "624 KB"'))
    assert "'624 KB': 'KB' is ambiguous (1000 or 1024?); write KiB, MiB, GiB or plain bytes" in message


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('clock_hz = "1.33 GHz"', 'clock_hz = "1.33 GiB"', "unit 'GiB' does not fit clock_hz"),
        ("tiles = 1472", 'tiles = "1472 Hz"', "tiles is a plain count and takes no unit"),
        ("tiles = 1472", "tiles = 0", "greater than 0"),
        ("tiles = 1472", "tiles = 1472.5", "'chip.tiles' (line 5)"),
        ('request_seconds = "70 us"', 'request_seconds = "-70 us"', "greater than or equal to 0"),
        ('kind = "mimd"', 'kind = "cpu"', "must be one of mimd, gpu"),
        ('kind = "mimd"', "", 'there is neither base nor kind; begin with base = "bow"'),
        ('sram_bytes = "624 KiB"', "sram_bytes = 624 KiB", "is not TOML"),
    ],
)
def test_wrong_values_are_refused(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert problem in complaint(tmp_path, (old, new))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("chip.clock_hz", 1.85, '1.85 Hz is not plausible; expected 1 MHz to 1000 GHz; did you mean "1.85 GHz"?'),
        ("chip.clock_hz", "5 THz", "'5 THz'"),
        ("chip.clock_hz", 1e13, "10000 GHz is not plausible; expected 1 MHz to 1000 GHz"),
        ("chip.clock_hz", 800, 'did you mean "800 MHz"?'),
        ("tile.sram_bytes", 624, 'did you mean "624 KiB"?'),
        ("host.bytes_per_second", 8, 'did you mean "8 GB/s"?'),
        ("links.hop_seconds", 15, 'did you mean "15 us"?'),
        ("energy.bundle_joules", 22, 'did you mean "22 pJ"?'),
        ("energy.static_watts", 1e6, "1000 kW is not plausible; expected 0.001 W to 100 kW"),
        ("chip.grid_columns", 10**8, "expected at most 10,000,000"),
        ("sync.internal_cycles", 10**10, "1e+10 cycles is not plausible"),
    ],
)
def test_a_number_that_only_a_missing_unit_explains_is_refused_with_its_bounds(
    key: str, value: object, said: str
) -> None:
    with pytest.raises(DescriptionError) as caught:
        load_machine("bow", {key: value})
    assert f"'{key}' (as changed)" in str(caught.value)
    assert said in str(caught.value)


def test_an_implausible_number_of_a_file_is_named_with_its_line(tmp_path: Path) -> None:
    message = complaint(tmp_path, ('clock_hz = "1.33 GHz"', "clock_hz = 1.33"))
    assert "'chip.clock_hz' (line 7): 1.33 Hz is not plausible" in message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("chip.clock_hz", "100 GHz"), ("chip.clock_hz", "10 MHz"), ("tile.sram_bytes", "1 KiB"),
        ("exchange.bytes_per_cycle", 1e12), ("exchange.fixed_cycles", 0), ("energy.static_watts", 0),
        ("links.bytes_per_second", 1e7), ("host.request_seconds", 0), ("sync.external_cycles", 10**6),
    ],
)  # fmt: skip
def test_bold_what_if_questions_pass(key: str, value: object) -> None:
    tiled("bow", {key: value})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"tile.executable_bytes": "700 KiB"},
            "'tile.executable_bytes' (as changed): 700 KiB is more than 'tile.sram_bytes' (line 14), 624 KiB; give",
        ),
        (
            {"tile.executable_bytes": "200 KiB", "tile.sram_bytes": "100 KiB"},
            "'tile.executable_bytes' (as changed): 200 KiB is more than 'tile.sram_bytes' (as changed), 100 KiB",
        ),
        (
            {"chip.grid_columns": 2000},
            "'chip.grid_columns' (as changed): 2000 is more than 'chip.tiles' (line 5), 1472; give at most that",
        ),
    ],
)
def test_a_part_larger_than_its_whole_is_refused_with_both_numbers(changes: dict[str, object], said: str) -> None:
    with pytest.raises(DescriptionError) as caught:
        load_machine("bow", changes)
    assert said in str(caught.value)


def test_a_part_that_is_the_whole_stays_it_where_the_whole_is_changed() -> None:
    """Code lies anywhere in the memory of a core, however large; a ring of one row stays one."""
    anywhere = tiled("wse2").tile.sources["executable_bytes"]
    for kib in (24, 96):
        larger = tiled("wse2", {"tile.sram_bytes": f"{kib} KiB"})
        written = mimdsim.Machine("wse2", tile={"sram_bytes": kib * 1024, "sources": {"sram_bytes": "assumed: more"}})
        again = mimdsim.Machine(mimdsim.Machine("wse2", {"tile.sram_bytes": "8 KiB"}), {"tile.sram_bytes": kib * 1024})
        for machine in (larger, written, again):
            assert (machine.tile.executable_bytes, machine.tile.sources["executable_bytes"]) == (kib * 1024, anywhere)
    ring = mimdsim.Machine("tiny", {"chip.tiles": 24, "chip.grid_columns": 24})
    assert mimdsim.Machine(ring, {"chip.tiles": 48}).chip.grid_columns == 48
    assert tiled("wse2", {"tile.sram_bytes": "96 KiB", "tile.executable_bytes": "8 KiB"}).tile.executable_bytes == 8192
    cut = mimdsim.Machine("bow", {"tile.sram_bytes": "100 KiB"})  # which says nothing of where code may lie in more
    assert mimdsim.Machine(cut, {"tile.sram_bytes": "1 MiB"}).tile.executable_bytes == 100 * 1024


def test_a_part_larger_than_its_whole_is_refused_in_a_file_with_both_lines(tmp_path: Path) -> None:
    message = complaint(tmp_path, ('sram_bytes = "624 KiB"', 'sram_bytes = "200 KiB"'))
    assert re.search(
        r"'tile.executable_bytes' \(line \d+\): 208 KiB is more than 'tile.sram_bytes' \(line \d+\)", message
    )


def test_a_whole_that_is_made_smaller_takes_its_part_with_it() -> None:
    machine = tiled("bow", {"tile.sram_bytes": "100 KiB", "chip.tiles": 8})
    assert (machine.tile.executable_bytes, machine.chip.grid_columns) == (100 * 1024, 8)
    assert machine.tile.sources["executable_bytes"] == "assumed: what-if value 100 KiB, all of sram_bytes"
    assert machine.chip.sources["grid_columns"] == "assumed: what-if value 8, all of tiles"
    smaller = tiled("bow", {"tile.sram_bytes": "208 KiB"})  # as much as the part: nothing follows
    assert smaller.tile.sources["executable_bytes"] == tiled("bow").tile.sources["executable_bytes"]


def test_a_number_without_source_is_refused(tmp_path: Path) -> None:
    source = 'tiles = "published: Graphcore GC200; osmarks/ipu-stack topology"\n'
    assert "'tiles' has no entry in 'sources'" in complaint(tmp_path, (source, ""))
    unknown = complaint(tmp_path, (source, source.replace("published", "guessed")))
    assert "sources.tiles: must begin with one of measured, published, derived, assumed" in unknown
    for text in ("assumed", "published:", "measured within 3 %: "):
        assert "sources.tiles: must begin with one of" in complaint(tmp_path, (source, f'tiles = "{text}"\n'))
    misspelt = complaint(tmp_path, (source, source.replace("tiles", "tile")))
    assert "sources: no field 'tile'; did you mean 'tiles'?" in misspelt


def test_numbers_without_sources_are_named_in_the_order_of_the_keys() -> None:
    keys = ("sram_bytes", "executable_bytes", "worker_contexts", "issue_cycles", "vector_bytes")
    with pytest.raises(DescriptionError) as caught:
        mimdsim.Machine("tiny", tile=dict.fromkeys(reversed(keys), 8192) | {"worker_contexts": 4, "issue_cycles": 4})
    places = [str(caught.value).index(f"'{key}' has no entry") for key in keys]
    assert places == sorted(places)


def test_an_unknown_machine_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match=r"no such machine in .*models/ \(package\); did you mean 'mk2'\?"):
        load_machine("mk3x2")
    with pytest.raises(DescriptionError, match=r"known: .*bow.*tiny"):
        load_machine("zzzzzz")
    with pytest.raises(DescriptionError, match="no such file"):
        load_machine(str(tmp_path / "absent.toml"))


def test_a_what_if_change_is_recorded_as_assumed() -> None:
    machine = tiled("bow", {"tile.sram_bytes": "1248 KiB", "sync.internal_cycles": 10})
    assert machine.tile.sram_bytes == 1248 * 1024
    assert machine.tile.sources["sram_bytes"] == "assumed: what-if value 1248 KiB"
    assert machine.sync.sources["internal_cycles"] == "assumed: what-if value 10"
    assert machine.chip == tiled("bow").chip  # and nothing else changes
    assert tiled("bow").tile.sram_bytes == 624 * 1024


def test_a_misspelt_what_if_is_refused() -> None:
    with pytest.raises(DescriptionError, match=r"unknown key 'tile\.sram_byte'.*did you mean 'sram_bytes'\?"):
        load_machine("bow", {"tile.sram_byte": 1})
    with pytest.raises(DescriptionError, match=r"unknown field 'clock_hz'; write section\.key"):
        load_machine("bow", {"clock_hz": 1})
    with pytest.raises(DescriptionError, match=r"unknown field 'chip\.tiles\.x'; write section\.key"):
        load_machine("bow", {"chip.tiles.x": 1})
