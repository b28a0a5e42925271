"""What is built in Python without files is what its file would be, refused in the same words; other machines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from test_api import SMALL, made

import mimdsim
from mimdsim.base.errors import DescriptionError
from mimdsim.base.schema import toml_text
from mimdsim.studies import write_study

DATA = {"source": "random", "inputs": 30, "classes": 3, "timesteps": 4, "input_capacity": 6, "activity": 0.1}
TRAINING = {"batch": 8, "epochs": 1, "learning_rate": 0.01}


def in_file(folder: Path, table: dict[str, Any]) -> Path:
    path = folder / "mine.toml"
    path.write_text(toml_text({"title": "mine"} | table), encoding="utf-8")
    return path


SOUND: list[dict[str, Any]] = [
    {"hidden": [16], "activity": 0.25},
    {"hidden": [16, 8], "spikes": "dense", "neuron": "leaky"},
]


@pytest.mark.parametrize(
    "network",
    [
        *SOUND,
        {"hidden": [16]},
        {"hidden": 16, "activity": 0.25},
        {"hidden": ["wide"], "activity": 2.0},
        {"hiden": [16], "activity": 0.25},
        {"hidden": [16, 8], "capacity": [4]},
        {"hidden": [16], "activity": 0.25, "neuron": "lief"},
    ],
)
def test_a_network_is_what_its_file_is(network: dict[str, Any], tmp_path: Path) -> None:
    table = {"data": DATA, "network": network, "training": TRAINING}

    def said(make: Any) -> Any:
        try:
            return make()
        except DescriptionError as refusal:  # a file has lines
            return [re.sub(r" \(line \d+\)", "", problem) for problem in refusal.problems]

    read = said(lambda: mimdsim.load_workload(in_file(tmp_path, table)))
    built = said(lambda: mimdsim.Network(name="mine", title="mine", data=DATA, training=TRAINING, **network))
    assert built == read
    assert isinstance(built, list) == (network not in SOUND)


def test_a_network_on_the_data_of_another_workload() -> None:
    made = mimdsim.Network("digits", {"data.timesteps": 5}, hidden=[12], capacity=[6, 4], training={"batch": 16})
    wanted = {"data.timesteps": 5, "network.hidden": [12], "network.capacity": [6, 4], "training.batch": 16}
    loaded = mimdsim.load_workload("digits", wanted)
    assert made == loaded.model_copy(update={"title": f"{loaded.title} (changed)"})
    assert mimdsim.Network(loaded, name="other").name == "other"


def test_changes_may_be_nested() -> None:
    dotted = {"data.timesteps": 5, "network.hidden": [12], "network.capacity": [6, 4]}
    nested = {"data": {"timesteps": 5}, "network": {"hidden": [12], "capacity": [6, 4]}}
    loaded = mimdsim.load_workload("digits", dotted)
    digits = mimdsim.load_workload("digits")
    assert loaded == mimdsim.load_workload("digits", nested) == digits.with_(dotted) == digits.with_(**nested)
    assert digits.with_(seed=7).seed == 7
    contexts = {"tile": {"worker_contexts": 12}}
    assert mimdsim.load_machine("bow", contexts) == mimdsim.load_machine("bow", {"tile.worker_contexts": 12})
    assert mimdsim.Machine("bow", contexts).tile == mimdsim.load_machine("bow", contexts).tile
    with pytest.raises(DescriptionError, match=r"tile.worker_contexts given twice"):
        mimdsim.load_machine("bow", {"tile.worker_contexts": 3, **contexts})
    with pytest.raises(DescriptionError, match=r"unknown key 'network.hiden'; did you mean 'hidden'\?"):
        digits.with_(network={"hiden": [3]})
    with pytest.raises(DescriptionError, match="reads no files"):
        digits.with_(data={"path": "x"})


def test_a_study_is_what_its_file_is(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"question": "How many?", "workloads": "digits", "fill": 0.5, "metrics": "time"}
    axes = {"tile.worker_contexts": [3, 6], "chip.clock_hz": {"from": "1 GHz", "to": "2 GHz", "points": 3}}
    made = mimdsim.Study(**keys, axes=axes, gpus="a100")
    listed = keys | {"workloads": ["digits"], "metrics": ["time"]}
    assert made == mimdsim.Study(**listed, axes=axes, gpus=["a100"])
    write_study(made, tmp_path / "mine.toml")
    assert mimdsim.Study(tmp_path / "mine.toml") == made
    assert mimdsim.Study(made, fill=0.25).axes == made.axes
    assert (
        mimdsim.Study(mimdsim.Study(made, machine=mimdsim.Machine("tiny", name="own")), fill=0.3).machine_name == "own"
    )
    (tmp_path / "alone.toml").write_text('workloads = "digits"\ngpus = "a100"\n', encoding="utf-8")
    assert mimdsim.Study(tmp_path / "alone.toml").gpus == ("a100",)
    with pytest.raises(DescriptionError, match=r"Study: 1 problem\n  - unknown key 'axs'; did you mean 'axes'"):
        mimdsim.Study(workloads="digits", axs={})


def test_a_run_on_another_machine_is_a_run() -> None:
    run = made()
    contexts = run.retime({"tile": {"worker_contexts": 12}})
    named = run.retime(mimdsim.Machine(run.machine, {"tile.worker_contexts": 12}))
    assert contexts.cycles == named.cycles != run.cycles
    assert contexts.compiled.program is run.compiled.program
    assert contexts.detail.busy.sum() == sum(contexts.tiled.tile_columns.busy_cycles)
    assert contexts.profile.config_sha256 == contexts.detail.run != run.profile.config_sha256
    assert contexts.explain(0).cycles == contexts.tiled.spans[0].cycles
    assert run.retime(run.machine).tiled == run.tiled
    assert run.log is contexts.log
    changed = {one.key: one.value for one in contexts.retime({"tile.sram_bytes": "1 MiB"}).profile.changes}
    of_run = {one.key: one.value for one in run.profile.changes}
    assert changed == of_run | {"tile.worker_contexts": "12", "tile.sram_bytes": "1 MiB"}
    assert contexts.retime("tiny").profile.changes == run.profile.changes


@pytest.mark.slow
def test_a_machine_with_other_tiles_gets_a_program_of_the_same_mapping() -> None:
    run = made()
    elsewhere = run.retime("mk1")
    changes = SMALL | {"network.recurrence": "none", "network.bias": False}
    assert elsewhere.tiled == mimdsim.compare("digits", ("tiny", "mk1"), changes=changes).profile.tiled_beside[0]
    assert elsewhere.tiled.tiles == elsewhere.machine.chip.tiles == 1216
    assert elsewhere.detail.tiles == 1216
    with pytest.raises(DescriptionError, match=r"machine 'a100': 1 problem\n  - is a GPU; give a tiled machine"):
        run.retime("a100")
    with pytest.raises(DescriptionError, match=r"unknown key 'tile.worker_context'; did you mean|worker_contexts"):
        run.retime({"tile.worker_context": 3})
