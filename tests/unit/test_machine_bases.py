"""Machines described by what differs from a base: files, `mimdsim.Machine`, and what is told of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from commands import mimdsim as command

import mimdsim
from mimdsim.base.errors import DescriptionError
from mimdsim.gpu.gemm import gemm_seconds
from mimdsim.machine import (
    GpuMachine,
    MimdMachine,
    description_files,
    find_machine,
    load_machine,
    machine_notes,
    sourced_machine,
)
from mimdsim.machine.numbers import OF_GPUS
from mimdsim.studies import make_study, read_study
from mimdsim.studies.description import write_study

ROOT = Path(__file__).parents[2]
HALF = 'base = "bow"\ntitle = "Half a Bow"\n[chip]\ntiles = 736\nsources.tiles = "assumed: half of them"\n'
GROQ = """
base = "wormhole"
title = "One row of memories, like a Groq TSP (88 tiles, 900 MHz)"
[chip]
tiles = 88
grid_columns = 88
grid = "mesh"
clock_hz = "900 MHz"
[chip.sources]
tiles = "published: 88 slices of SRAM, 44 on either side (Abts et al. 2020)"
grid_columns = "published: slices lie in one row"
clock_hz = "published: Abts et al. 2020"
[tile]
instruction_set = "tsp"
sram_bytes = "2560 KiB"
vector_bytes = "320 B"
[tile.sources]
instruction_set = "published: Abts et al. 2020"
sram_bytes = "published: 220 MiB in 88 slices"
vector_bytes = "published: 20 superlanes of 16 bytes"
[exchange]
bytes_per_cycle = 320
hop_cycles = 1
sources = { bytes_per_cycle = "published: a stream of 320 bytes", hop_cycles = "assumed: a register for each slice" }
"""
DOJO = """
base = "wormhole"
title = "Like a Dojo D1 (354 tiles, 2 GHz)"
[chip]
tiles = 354
grid_columns = 18
grid = "mesh"
clock_hz = "2 GHz"
sources = { tiles = "published: Hot Chips 34", grid_columns = "assumed: 18 x 20", clock_hz = "published: Hot Chips 34" }
[tile]
instruction_set = "dojo"
sram_bytes = "1280 KiB"
worker_contexts = 4
vector_bytes = "64 B"
[tile.sources]
instruction_set = "published: Hot Chips 34"
sram_bytes = "published: 1.25 MB a node"
worker_contexts = "published: four threads"
vector_bytes = "published: SIMD of 64 bytes"
[exchange]
bytes_per_cycle = 64
hop_cycles = 1
sources = { bytes_per_cycle = "published: 64 bytes each way", hop_cycles = "published: one cycle a node" }
"""


def of_page(place: int) -> str:
    """A machine of the page: half a Bow, a chip like Epiphany-IV."""
    page = (ROOT / "docs" / "other-machines.md").read_text(encoding="utf-8")
    return [block for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "base =" in block][place]


def written(folder: Path, text: str, name: str = "mine") -> str:
    (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    return str(folder / f"{name}.toml")


def problem(folder: Path, text: str) -> str:
    path = written(folder, text)
    with pytest.raises(DescriptionError) as caught:
        load_machine(path)
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value)


def tiled(machine: MimdMachine | GpuMachine) -> MimdMachine:
    assert isinstance(machine, MimdMachine)
    return machine


def test_all_but_what_is_given_is_that_of_the_base(tmp_path: Path) -> None:
    bow, half = tiled(load_machine("bow")), tiled(load_machine(written(tmp_path, HALF)))
    assert (half.name, half.title, half.chip.tiles) == ("mine", "Half a Bow", 736)
    assert half.chip.sources == bow.chip.sources | {"tiles": "assumed: half of them"}
    assert half.model_copy(update={"name": "bow", "title": bow.title, "chip": bow.chip}) == bow.with_outdated(
        half.outdated
    )
    assert half.model_fields_set == bow.model_fields_set
    changed = tiled(load_machine(str(tmp_path / "mine.toml"), {"chip.tiles": 368}))
    assert (changed.title, changed.chip.tiles) == ("Half a Bow (changed)", 368)


def test_bases_are_followed_beside_the_file_and_up(tmp_path: Path) -> None:
    written(tmp_path, HALF)
    top = written(tmp_path, 'base = "mine.toml"\ntitle = "Small memory"\n[tile]\nsram_bytes = "128 KiB"\n'
                  'sources.sram_bytes = "assumed: less"\n', "top")  # fmt: skip
    made = tiled(load_machine(top))
    assert (made.chip.tiles, made.tile.sram_bytes, made.tile.executable_bytes) == (736, 128 * 1024, 128 * 1024)
    assert made.tile.sources["executable_bytes"] == "assumed: 128 KiB, all of sram_bytes"
    assert description_files(top) == (Path(top), tmp_path / "mine.toml", find_machine("bow"))


@pytest.mark.parametrize("text", [GROQ, DOJO, of_page(1)], ids=["groq", "dojo", "page"])
def test_a_machine_of_a_newcomer_is_short(text: str, tmp_path: Path) -> None:
    assert len(text.strip().splitlines()) <= 25
    made = tiled(load_machine(written(tmp_path, text)))
    assert made.links == tiled(load_machine("wormhole")).links
    assert all(re.match("published: |assumed: ", source) for source in made.chip.sources.values())
    assert not machine_notes(made)


def test_the_machine_in_ten_lines(tmp_path: Path) -> None:
    assert len(of_page(0).strip().splitlines()) <= 10
    made = tiled(load_machine(written(tmp_path, of_page(0))))
    assert (made.chip.tiles, made.tile.sram_bytes) == (736, 1248 * 1024)


def test_a_machine_of_a_newcomer_has_times_that_are_unknown(tmp_path: Path) -> None:
    small = {"data.timesteps": 2, "training.max_training_steps": 1, "training.evaluate": "never", "training.batch": 4}
    made = mimdsim.run("digits", written(tmp_path, GROQ), changes=small, gpus=()).profile
    assert made.tiled.unknown == "costs are those of another instruction set"
    assert made.tiled.memory.limit_bytes == 2560 * 1024


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HALF.replace("tiles = 736", "tile = 736"), "unknown key 'chip.tile' (line 4); did you mean 'tiles'?"),
        (HALF.replace("tiles = 736", "tiles = 0"), "'chip.tiles' (line 4): must be greater than 0"),
        (HALF.partition("sources")[0], "'tiles' has no entry in 'sources'"),
        ('base = "bow"\nchip.tiles = 1e9\ntitle = "x"', "'chip.tiles' (line 2)"),
        ('base = "bow"', "missing key 'title'"),
        ('base = "bwo"\ntitle = "x"', "'base' (line 1): no such machine in"),
        ('title = "x"\nbase = "other/bow.toml"', "'base' (line 2): no such file: other/bow.toml"),
        ("base = 3", "'base' (line 1): must be the name of a machine"),
        (HALF + "[launch]\n", "'launch' (line 6): is of kind 'gpu', but the base 'bow' is of kind 'mimd'"),
        ('base = "a100"\ntitle = "x"\n[tile]\n', "'tile' (line 3): is of kind 'mimd', but the base 'a100'"),
        ('base = "bow"\nkind = "gpu"', "'kind' (line 2): 'gpu', but the base 'bow' is of kind 'mimd'"),
        ('base = "bow"\nwithout = ["matrx"]', "'without' (line 2): 'matrx' is no section of 'bow'; did you mean 'mat"),
        ('base = "bow"\nwithout = ["sync"]\ntitle = "x"', "missing key 'sync'"),
        ('base = "bow"\nwithout = ["area"]\ntitle = "x"', "[power] gives watts per mm2, but there is no [area]"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_file_and_key(text: str, said: str, tmp_path: Path) -> None:
    assert said in problem(tmp_path, text)


def test_a_shipped_file_has_the_shipped_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "bow.toml").write_text(HALF.replace('"bow"', '"mk1"'))
    monkeypatch.chdir(tmp_path)
    assert load_machine("bow").chip.tiles == 736
    assert load_machine("bow-mesh").chip.tiles == 1472
    assert [path.parent.parent for path in description_files("bow-mesh")] == [ROOT, ROOT]


def test_sections_that_the_base_lacks_may_be_left_out_too(tmp_path: Path) -> None:
    made = load_machine(written(tmp_path, HALF.replace("[chip]", 'without = ["memory", "matrix"]\n[chip]')))
    assert (tiled(made).memory, tiled(made).matrix) == (None, None)


def test_one_key_takes_the_place_of_the_other_of_a_base(tmp_path: Path) -> None:
    """Memory behind the tiles is shared by all of a chip, or by clusters."""
    clusters = 'base = "wormhole"\ntitle = "x"\n[memory]\ntiles_per_channel = 8\n'
    clusters += 'sources.tiles_per_channel = "assumed: a test"\n'
    for made in (load_machine(written(tmp_path, clusters)), load_machine("wormhole", {"memory.tiles_per_channel": 8})):
        memory = tiled(made).memory
        assert memory is not None
        assert (memory.channels, memory.tiles_per_channel, "channels" in memory.sources) == (None, 8, False)
    both = clusters.replace("= 8\n", '= 8\nchannels = 4\nsources.channels = "assumed: a test"\n')
    assert "give either channels" in problem(tmp_path, both)


def test_what_cores_issue_side_by_side_is_in_their_table() -> None:
    (note,) = machine_notes(load_machine("wormhole", {"tile.compiled_dual_issue": 0.5}))
    assert note.startswith("tile.compiled_dual_issue: has no effect, because [costs.core]")
    assert not machine_notes(load_machine("bow", {"tile.compiled_dual_issue": 0.5}))


def test_what_a_base_says_of_buses_is_not_told_of_routers(tmp_path: Path) -> None:
    routed = HALF + '[exchange]\nmodel = "routed"\nlink_bytes_per_cycle = 4\n'
    routed += 'sources = { model = "assumed: a test", link_bytes_per_cycle = "assumed: a test" }\n'
    made = tiled(load_machine(written(tmp_path, routed)))
    assert made.exchange.tiles_per_bus == 1
    assert not [note for note in machine_notes(made) if "has no effect" in note]


def test_bases_end(tmp_path: Path) -> None:
    assert "a machine cannot be its own base" in problem(tmp_path, 'base = "mine.toml"')
    for level in range(12):
        written(tmp_path, f'base = "level{level + 1}.toml"\ntitle = "x"', f"level{level}")
    with pytest.raises(DescriptionError, match=r"level8.toml: 1 problem\n  - 'base': at most 8 bases are followed: "):
        load_machine(tmp_path / "level0.toml")


def test_what_is_narrowed_is_no_base_of_what_is_narrowed_again(tmp_path: Path) -> None:
    """Its tables would count twice; and a circle over a file of narrowed numbers is none."""
    table = f'[[table]]\nfile = "x"\nsha256 = "{"0" * 64}"\n'
    written(tmp_path, f'kind = "narrowed"\nmachine = "mine.toml"\nmachine_sha256 = "{"0" * 64}"\n{table}', "numbers")
    circle = written(tmp_path, 'base = "numbers.toml"\ntitle = "x"')
    with pytest.raises(DescriptionError, match="is narrowed already"):
        load_machine(circle)
    written(tmp_path, 'base = "bow"\ntitle = "x"\nnarrowed = "numbers.toml"')
    above = written(tmp_path, 'base = "mine.toml"\ntitle = "x"', "above")
    with pytest.raises(DescriptionError, match="is narrowed already"):
        sourced_machine(above)


def test_a_gpu_can_be_a_base(tmp_path: Path) -> None:
    text = 'base = "a100"\ntitle = "Fast DRAM"\n[memory]\ndram_bytes_per_second = "3 TB/s"\n'
    made = load_machine(written(tmp_path, text + 'sources.dram_bytes_per_second = "assumed: twice"'))
    assert isinstance(made, GpuMachine)
    assert made.memory.dram_bytes_per_second == 3e12
    assert made.launch == load_machine("a100").launch  # type: ignore[union-attr]


def test_costs_are_merged_codelet_by_codelet(tmp_path: Path) -> None:
    one = '[costs.codelets.{}]\nfixed = {}\nterms = []\nsource = "assumed: a test"\n'
    written(tmp_path, HALF + one.format("A", 1) + one.format("B", 2), "first")
    made = tiled(load_machine(written(tmp_path, 'base = "first.toml"\ntitle = "x"\n' + one.format("B", 3))))
    assert made.costs is not None
    assert {name: cost.fixed for name, cost in made.costs.codelets.items()} == {"A": 1, "B": 3}


def test_sources_that_name_another_number_are_told(tmp_path: Path) -> None:
    (note,) = machine_notes(load_machine(written(tmp_path, HALF)))
    assert "area.tile_transistors (of chip.tiles 1,472, here 736)" in note
    whole = HALF + '[area]\ntile_transistors = 9e6\nsources.tile_transistors = "assumed: as before"\n'
    assert not machine_notes(load_machine(written(tmp_path, whole)))


def test_sources_are_told_up_a_chain_until_their_numbers_are_given(tmp_path: Path) -> None:
    written(tmp_path, HALF)
    less = 'base = "mine.toml"\ntitle = "x"\n[chip]\ntiles = 368\nsources.tiles = "assumed: a quarter of 1,472"\n'
    (note,) = machine_notes(load_machine(written(tmp_path, less, "less")))
    assert ": area.tile_transistors (of chip.tiles 1,472, here 368):" in note
    whole = less + '[area]\ntile_transistors = 9e6\nsources.tile_transistors = "assumed: as before"\n'
    assert not machine_notes(load_machine(written(tmp_path, whole, "less")))
    assert not machine_notes(load_machine(written(tmp_path, less.replace("368", "1472"), "less")))


def test_a_machine_in_python(tmp_path: Path) -> None:
    named = {"name": "mine", "title": "Half a Bow"}
    of_file = load_machine(written(tmp_path, HALF))
    chip = {"tiles": 736, "sources": {"tiles": "assumed: half of them"}}
    assert mimdsim.Machine("bow", chip=chip, **named) == of_file  # type: ignore[arg-type]
    made = tiled(mimdsim.Machine(of_file, {"tile.sram_bytes": "128 KiB"}, without=["matrix"]))
    assert (made.name, made.title, made.matrix, made.chip.tiles) == ("mine", "Half a Bow (changed)", None, 736)
    assert made.tile.sources["sram_bytes"] == "assumed: what-if value 128 KiB"
    for wrong, said in (
        ({"launch": {}}, "'launch': is of kind 'gpu'"),
        ({"chip": {"tiles": 3}}, "'tiles' has no entry in 'sources'"),
        ({"chips": {}}, "unknown key 'chips'; did you mean 'chip'?"),
    ):  # fmt: skip
        with pytest.raises(DescriptionError, match=r"Machine.'bow'.: 1 problem") as caught:
            mimdsim.Machine("bow", None, **wrong)  # type: ignore[arg-type]
        assert said in str(caught.value)
    with pytest.raises(DescriptionError, match=r"unknown key 'chip.tile'"):
        mimdsim.Machine("bow", {"chip.tile": 3})


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"links.group_links_per_edge": 4}, "links.group_links_per_edge"),
        ({"links.topology": "switch", "links.group_chips": 2}, "links.group_chips"),
        ({"chip.grid": "torus"}, "chip.grid"),
    ],
)  # fmt: skip
def test_keys_that_nothing_reads_are_told(changes: dict[str, Any], key: str) -> None:
    (note,) = machine_notes(load_machine("bow", changes))
    assert note.startswith(f"{key}: has no effect, because ")
    run = mimdsim.run("digits", "bow", changes=changes | {"training.max_training_steps": 1}, gpus=())
    assert note in run.warnings
    read = {"links.group_chips": 4, "links.topology": "ladder", "sync.hop_cycles": 1}
    assert not machine_notes(load_machine("bow", changes | read))


def test_who_waits_has_no_effect_without_barriers() -> None:
    scope = {"sync.scope": "all", "links.chips": 2}
    assert not machine_notes(load_machine("tiny", scope))
    assert not machine_notes(
        load_machine("tiny", {"sync.model": "dataflow", "links.chips": 2, "sync.internal_cycles": 0})
    )
    barrier, note = machine_notes(load_machine("tiny", scope | {"sync.model": "dataflow"}))
    assert barrier.startswith("sync.internal_cycles: has no effect, because a chip has no barriers")
    assert note.startswith("sync.scope: has no effect, because chips wait for each other only over links")


def test_costs_of_packets_and_fragments_that_nothing_reads_are_told() -> None:
    routed = {"exchange.model": "routed", "exchange.link_bytes_per_cycle": 4, "exchange.tiles_per_bus": 1}
    (note,) = machine_notes(load_machine("tiny", routed | {"exchange.packet_bytes": 64}))
    assert note.startswith("exchange.packet_bytes: has no effect, because packets have no header_bytes")
    for read in ({"exchange.header_bytes": 8}, {"exchange.acknowledge_bytes": 8}, {"exchange.multicast": "reserved"}):
        assert not machine_notes(load_machine("tiny", routed | {"exchange.packet_bytes": 64} | read))
    planner = machine_notes(load_machine("tiny", {"exchange.model": "planner"}))
    assert [note.partition(":")[0] for note in planner] == [
        "exchange.send_fragment_cycles", "exchange.receive_fragment_cycles",
    ]  # fmt: skip


def test_no_barrier_of_a_chip_is_planned_for_without_barriers() -> None:
    on = load_machine("tiny", {"sync.model": "dataflow"})
    assert isinstance(on, MimdMachine)
    assert on.barrier_cycles(all_chips=False) == 0
    assert on.barrier_cycles(all_chips=True) == on.sync.external_cycles


def test_a_gpu_with_arrays_reads_nothing_of_tensor_units() -> None:
    other: dict[str, Any] = dict.fromkeys(OF_GPUS[0].keys, 0.5)
    other |= {"chip.tensor_clock_hz": 1e9, "compute.tf32_flops_per_cycle": 7.0, "chip.tensor_tile_edge": 64}
    other |= {"chip.tensor_k_in_flight": 64, "chip.cluster_multiprocessors": 2}
    tpu, changed = load_machine("tpu-v3"), load_machine("tpu-v3", other)
    assert isinstance(tpu, GpuMachine)
    assert isinstance(changed, GpuMachine)
    assert len(machine_notes(changed)) == len(other)
    for precision in ("fp32", "tf32", "fp16"):
        both = [gemm_seconds(one, 300, 200, 100, precision=precision, aligned=False) for one in (tpu, changed)]
        assert both[0] == both[1]


@pytest.mark.parametrize("name", mimdsim.list_machines())
def test_all_that_is_said_of_a_machine_is_listed(name: str) -> None:
    machine, lines = load_machine(name), command("list", "--machine", name).splitlines()
    assert max(map(len, lines)) <= 100
    assert not machine_notes(machine)
    listed = json.loads(command("list", "--machine", name, "--json"))
    values = {f"{row['section']}.{row['key']}": row for row in listed["values"]}
    for section in type(machine).model_fields:
        for key, source in getattr(getattr(machine, section), "sources", {}).items():
            row = values[f"{section}.{key}"]
            assert row["enters"]
            assert row["source"] == source
    assert "  clock_hz  " in "\n".join(lines)


def test_costs_of_codelets_are_listed(tmp_path: Path) -> None:
    cost = '[costs.codelets.AVeryLongNameOfACodelet]\nfixed = 1\nterms = []\nsource = "assumed: a test"\n'
    lines = command("list", "--machine", written(tmp_path, HALF + cost)).splitlines()
    assert any(re.match(r"  codelets.AVeryLongNameOfACodelet +\{ fixed = 1", line) for line in lines), lines
    assert max(map(len, lines)) <= 100
    assert "(of chip.tiles 1,472, here 736)" in " ".join(lines[-3:])
    assert "--json is for" in command("list", "--json", code=2)


@pytest.mark.slow
def test_studies_take_a_machine_itself(tmp_path: Path) -> None:
    half = mimdsim.Machine("tiny", {"exchange.bytes_per_cycle": 8}, name="wide")
    axes = {"tile.worker_contexts": [3, 6]}
    small: dict[str, Any] = {"fill": 0.5, "training_steps": 1}
    rows = mimdsim.sweep("digits", half, axes, folder=tmp_path / "o", **small)
    assert rows == mimdsim.sweep("digits", half, axes, folder=tmp_path / "o", **small)
    plain = mimdsim.sweep("digits", "tiny", axes, **small)
    assert [row["exchange_cycles"] < other["exchange_cycles"] for row, other in zip(rows, plain, strict=True)] == [1, 1]
    study = make_study("test", workloads=["digits"], machine=half, axes=axes)
    assert study.machine_name == "wide"
    write_study(study, tmp_path / "study.toml")
    assert read_study(tmp_path / "study.toml").machine == half
    noted = mimdsim.Machine("bow", {"chip.tiles": 736})
    write_study(make_study("test", workloads=["digits"], machine=noted, axes=axes), tmp_path / "noted.toml")
    assert read_study(tmp_path / "noted.toml").machine == noted.with_outdated(())
    with pytest.raises(DescriptionError, match="'machine': must be text: the name of a machine or its file; or a til"):
        make_study("test", workloads=["digits"], machine=load_machine("a100"), axes=axes)


@pytest.mark.parametrize(("key", "least"), [("exchange.ring_columns", 8), ("exchange.ring_rows", 10)])
def test_a_ring_with_fewer_places_than_tiles_is_told(key: str, least: int) -> None:
    (note,) = machine_notes(load_machine("wormhole", {key: least - 1}))
    assert note.startswith(f"{key}: has no effect, because ")
    assert not machine_notes(load_machine("wormhole", {key: least}))


def test_a_list_says_which_base_a_number_is_of(tmp_path: Path) -> None:
    """The machine whose file gives it, of all bases; what is given again is the machine's own."""
    (tmp_path / "half.toml").write_text(HALF)
    own = 'base = "half.toml"\ntitle = "Ours"\n[tile]\nsram_bytes = "600 KiB"\nsources.sram_bytes = "assumed: ours"\n'
    path = written(tmp_path, own)
    values = json.loads(command("list", "--machine", path, "--json"))["values"]
    bases = {f"{each['section']}.{each['key']}": each["base"] for each in values}
    of = [bases[key] for key in ("tile.sram_bytes", "chip.tiles", "chip.clock_hz", "tile.sram_port_bytes_per_cycle")]
    assert of == ["", "half", "bow", ""]
    lines = [line.strip() for line in command("list", "--machine", path).splitlines()]
    assert "from half: assumed: half of them" in lines
    assert "assumed: ours" in lines
