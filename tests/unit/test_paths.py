"""Names, paths and single values wherever the API takes them, and files that a workload names."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

import mimdsim
from mimdsim.base.errors import MimdsimError
from mimdsim.base.search_path import files_of, possible_path, several
from mimdsim.pipeline.overrides import load_line_up, load_tiled
from mimdsim.studies import make_study
from mimdsim.studies.points import Points
from mimdsim.workload import Workload, load_workload
from mimdsim.workload.description.workload import PATHS

SHORT = {
    "training.max_training_steps": 1,
    "training.evaluate": "never",
    "data.train_samples": 48,
}


def copied(folder: Path, kind: Any, name: str) -> Path:
    path = folder / f"{name}.toml"
    path.write_bytes(files_of(kind)[path.name].read_bytes())
    return path


def test_one_or_several() -> None:
    machine = mimdsim.load_machine("a100")
    for one in ("a100", Path("a.toml"), 3, 0.5, machine):
        assert several(one) == (one,)
    assert several(["a", "b"]) == several(("a", "b")) == several(iter("ab")) == ("a", "b")
    np.testing.assert_array_equal(several(np.arange(2)), (0, 1))


@pytest.mark.slow
def test_paths_and_single_names_are_taken_by_every_function(tmp_path: Path) -> None:
    digits, bow, a100 = (
        copied(tmp_path, kind, name) for kind, name in (("workloads", "digits"), ("models", "bow"), ("models", "a100"))
    )
    made = mimdsim.run(
        digits, bow, gpus=a100, changes=SHORT, window=1, dump=str(tmp_path / "dump"), report=tmp_path / "run",
        checkpoint=str(tmp_path / "kept"),
    )  # fmt: skip
    assert [entry.machine for entry in made.profile.gpus][:1] == ["a100"]
    again = mimdsim.run("digits", "bow", gpus="a100", changes=SHORT)
    assert again.profile.config_sha256 == made.profile.config_sha256
    assert made.explain("update weights").tile == mimdsim.explain(
        made.compiled.program, bow, "update weights", activity=made.log.activity
    ).tile  # fmt: skip
    assert mimdsim.compare(digits, bow, changes=SHORT).cycles == made.cycles
    assert mimdsim.compare(digits, [bow, a100], changes=SHORT).profile.gpus
    mapping = tmp_path / "mapping.toml"
    mimdsim.place(digits, bow, candidates=4, processes=1, out=mapping)
    rows = mimdsim.sweep(
        digits,
        bow,
        {"tile.worker_contexts": 3},
        gpus=a100,
        fill=0.5,
        mapping=mapping,
        processes=1,
        folder=tmp_path / "s",
    )
    assert len(rows) == 1
    assert mimdsim.check(digits, bow, changes=SHORT, timesteps=2, batch=2).passed
    assert mimdsim.load_profile(tmp_path / "run" / "profile.json") == made.profile


def test_a_tiled_machine_given_as_a_path_is_no_gpu(tmp_path: Path) -> None:
    bow, a100 = copied(tmp_path, "models", "bow"), copied(tmp_path, "models", "a100")
    tiled, gpus = load_line_up([a100, bow], {"tile.worker_contexts": 3})
    assert [one.tile.worker_contexts for one in tiled] == [3]
    assert [one.name for one in gpus] == ["a100"]
    assert load_tiled(bow, {"tile.worker_contexts": 3}) == tiled[0]
    with pytest.raises(MimdsimError, match="is a GPU"):
        load_tiled(a100)
    with pytest.raises(MimdsimError, match="is a tiled machine"):
        mimdsim.run("digits", bow, gpus=bow)


def test_a_study_of_single_names_and_paths(tmp_path: Path) -> None:
    digits, bow = copied(tmp_path, "workloads", "digits"), copied(tmp_path, "models", "bow")
    given = {"metrics": "time", "constraints": "max area 826 mm2", "gpus": "a100", "fill": 0.5}
    made = make_study("study", workloads=digits, machine=bow, axes={"tile.worker_contexts": [3, 6]}, **given)
    assert (made.metrics, made.gpus, len(made.constraints)) == (("time",), ("a100",), 1)
    assert len(Points(made).of(Points(made).designs())) == 2


def path_keys(model: type[BaseModel], before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, field in model.model_fields.items():
        if any(getattr(each, "func", None) is possible_path for each in field.metadata):
            found.append((*before, key))
        for kind in (field.annotation, *typing.get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found += path_keys(kind, (*before, key))
    return found


def test_every_key_that_names_a_file_is_looked_up_beside_the_description() -> None:
    assert sorted(PATHS) == sorted(path_keys(Workload))


# one of models is run where it is found: test_own_models.py
@pytest.mark.parametrize("key", [key for key in PATHS if key != ("network", "models")], ids=".".join)
def test_files_are_found_beside_the_description_then_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: tuple[str, str]
) -> None:
    beside, working = tmp_path / "mine", tmp_path / "working"
    for folder in (beside, working):
        folder.mkdir()
        (folder / "both.npz").touch()
    (beside / "recordings").mkdir()
    (working / "only-here.npz").touch()
    monkeypatch.chdir(working)
    text = {
        ("data", "path"): 'source = "events"\npath = "{}"\ninputs = 4\nclasses = 2',
        ("network", "imported"): 'imported = "{}"',
        ("training", "initial_weights"): 'initial_weights = "{}"',
    }
    tables = {
        "data": "timesteps = 2\ninput_capacity = 4"
        + ('\nsource = "random"\ninputs = 4\nclasses = 2' * (key[0] != "data")),
        "network": "hidden = [4]\ncapacity = [4, 2]",
        "training": "batch = 2\nlearning_rate = 0.1",
    }
    for named, found in {
        "both.npz": beside / "both.npz",
        "recordings": beside / "recordings",
        "only-here.npz": Path("only-here.npz"),
        "nowhere.npz": Path("nowhere.npz"),
    }.items():
        sections = "\n".join(
            f"[{section}]\n{lines}\n{text[key].format(named) if section == key[0] else ''}"
            for section, lines in tables.items()
        )
        (beside / "it.toml").write_text(f'title = "t"\n{sections}\n', encoding="utf-8")
        made = load_workload(beside / "it.toml")
        assert Path(getattr(getattr(made, key[0]), key[1])) == found
