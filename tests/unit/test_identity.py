"""What results belong to: contents of inputs and code, for points of studies, checkpoints, profiles and kernels."""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from event_file_writing import nmnist_bytes, unit_arrays, write_events, write_gestures, write_shd
from pydantic import BaseModel

import mimdsim
from mimdsim.base import identity
from mimdsim.base.atomic_folder import HELD, refuse_other
from mimdsim.base.errors import DataFileError, DescriptionError, MimdsimError
from mimdsim.base.identity import LEFT_OUT, changed_files, code_digest, file_digest, files_below, meaning
from mimdsim.base.search_path import NAMES_FILES
from mimdsim.execution import checkpoint as checkpoints
from mimdsim.graph.layer import Source
from mimdsim.machine import MimdMachine, description_files
from mimdsim.machine.calibrated import CalibrationFile
from mimdsim.numerics import compiled as kernels
from mimdsim.pipeline import config_digest, descriptions_of
from mimdsim.profile import load_profile, save_profile
from mimdsim.studies import Local, make_study, run_study
from mimdsim.studies.points import Points
from mimdsim.workload import Workload, inputs_of, load_workload
from mimdsim.workload.data.dataset import SOURCES
from mimdsim.workload.description.sections import Data
from mimdsim.workload.interchange.model_file import Dynamics, ImportedNetwork, Population, write_model

PACKAGE = Path(mimdsim.__file__).parent
TINY = """
title = "Tiny"
[data]
{data}
timesteps = 3
input_capacity = 6
[network]
hidden = [5]
capacity = [5, 2]
{network}
[training]
batch = 2
epochs = 2
learning_rate = 0.01
evaluate = "never"
{training}
"""
RANDOM = 'source = "random"\ninputs = 7\nclasses = 2\nactivity = 0.3\ntrain_samples = 8\ntest_samples = 2'
EVENTS = 'source = "events"\ninputs = 7\nclasses = 2\npath = "{}"'


def described(folder: Path, data: str = RANDOM, network: str = "", training: str = "") -> str:
    path = folder / "own.toml"
    path.write_text(TINY.format(data=data, network=network, training=training))
    return str(path)


def recordings(path: Path, seed: int = 0) -> Path:
    """Eight samples, each with three events."""
    rng = np.random.default_rng(seed)
    return write_events(
        path,
        unit_arrays(
            offsets=np.arange(9) * 3,
            t_seconds=np.sort(rng.random((8, 3)).astype(np.float32) * 0.003, axis=1).ravel(),
            unit=rng.integers(0, 7, 24).astype(np.uint16),
            labels=np.arange(8) % 2,
        ),
    )


def weights(path: Path, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    shapes = {"w.hidden0": (7, 5), "w.output": (5, 2)}
    np.savez(path, **{name: rng.random(shape).astype(np.float32) for name, shape in shapes.items()})  # type: ignore[arg-type]
    return path


def model(path: Path, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)

    def population(source: str, inputs: int, neurons: int) -> Population:
        one = np.ones(neurons)
        dynamics = Dynamics(decay=0.9 * one, gain=one, rest=0 * one, threshold=one, reset="zero", reset_value=0 * one)
        reads = ((Source(name=source, neurons=inputs, lag=0), rng.random((inputs, neurons))),)
        return Population(node="n", kind="LIF", reads=reads, dynamics=dynamics)

    populations = population("input", 7, 5), population("hidden0", 5, 2)
    write_model(path, ImportedNetwork(populations=populations, dt_seconds=1e-3))
    return path


Made = tuple[str, Callable[[], object], str]  # a workload, what changes its input, what names the input


def with_file(folder: Path) -> Made:
    path = recordings(folder / "rec.npz")
    return described(folder, EVENTS.format(path)), lambda: recordings(path, 1), "rec.npz"


def behind_home(folder: Path) -> Made:
    path = recordings(folder / "rec.npz")
    return described(folder, EVENTS.format("~/rec.npz")), lambda: recordings(path, 1), "~/rec.npz"


def behind_a_link(folder: Path) -> Made:
    (folder / "far").mkdir()
    path = recordings(folder / "far" / "rec.npz")
    (folder / "link.npz").symlink_to(path)
    return described(folder, EVENTS.format(folder / "link.npz")), lambda: recordings(path, 1), "link.npz"


def in_a_linked_folder(folder: Path) -> Made:
    (folder / "far").mkdir()
    for half in ("train", "test"):
        recordings(folder / "far" / f"{half}.npz")
    (folder / "link").symlink_to(folder / "far")
    change = lambda: recordings(folder / "far" / "train.npz", 1)  # noqa: E731
    return described(folder, EVENTS.format(folder / "link")), change, "link/train.npz"


def with_weights(folder: Path) -> Made:
    path = weights(folder / "start.npz")
    return described(folder, training=f'initial_weights = "{path}"'), lambda: weights(path, 1), "start.npz"


def with_a_model(folder: Path) -> Made:
    path = model(folder / "model.safetensors")
    return described(folder, network=f'imported = "{path}"'), lambda: model(path, 1), "model.safetensors"


KINDS = (with_file, behind_home, behind_a_link, in_a_linked_folder, with_weights, with_a_model)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def made(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setenv("HOME", str(tmp_path))
    return request.param(tmp_path)  # type: ignore[no-any-return]


def study_of(workload: str, **more: Any) -> Any:
    given = {"workloads": [workload], "machine": "tiny", "fill": 0.5, "training_steps": 0, **more}
    return make_study("test", **given)


def studied(workload: str, folder: Path, **more: Any) -> Any:
    return run_study(study_of(workload, **more), folder, Local(1), lambda *_: None)


def test_other_contents_are_other_points_and_other_results(made: Made) -> None:
    workload, change, _ = made

    def known() -> list[str]:
        trained = study_of(workload, fill=None)
        (point,) = Points(trained).of([{}])
        loaded = load_workload(workload)
        return [point.key, point.activity_key, config_digest(loaded)]

    before = known()
    for path in Path(workload).parent.rglob("*.npz"):
        os.utime(path)  # touched, not changed
    assert known() == before
    change()
    assert not set(known()) & set(before)


def test_a_study_computes_points_of_other_contents_again_and_says_so(made: Made, tmp_path: Path) -> None:
    workload, change, named = made
    first = studied(workload, tmp_path / "study")
    assert studied(workload, tmp_path / "study").warnings == ()
    assert len(list((tmp_path / "study" / "points").iterdir())) == 1
    change()
    again = studied(workload, tmp_path / "study")
    assert len(again.warnings) == 1
    assert "1 point computed again" in again.warnings[0]
    assert f"{named} has changed" in again.warnings[0]
    assert len(list((tmp_path / "study" / "points").iterdir())) == 2
    assert again.rows[0]["digest"] != first.rows[0]["digest"]


def test_a_training_goes_on_only_with_the_same_contents(made: Made, tmp_path: Path) -> None:
    workload, change, named = made

    def run(**more: Any) -> Any:
        return mimdsim.run(workload, "tiny", gpus=(), checkpoint=tmp_path / "c", **more).profile

    before = run()
    assert any(each.path.endswith(named.split("/")[-1]) or named.startswith(each.path[-4:]) for each in before.inputs)
    assert run(resume=True).config_sha256 == before.config_sha256
    change()
    with pytest.raises(DataFileError, match="leave out --resume") as refused:
        run(resume=True)
    assert f"{named} has changed" in str(refused.value)
    after = run()
    assert after.config_sha256 != before.config_sha256
    assert {each.sha256 for each in after.inputs} != {each.sha256 for each in before.inputs}
    assert after.code_sha256 == before.code_sha256 == code_digest()


@pytest.mark.slow
def test_descriptions_that_are_others_are_named(tmp_path: Path) -> None:
    """The files of workload, mapping and machine, though what is compared are their values."""
    workload, mapping, machine = described(tmp_path), tmp_path / "map.toml", tmp_path / "mine.toml"
    text = next(path for path in description_files("tiny")).read_text()
    machine.write_text(text)
    mapping.write_text("[mapping]\ntiles = 8\n")

    def run(**more: Any) -> Any:
        given = {"mapping": mapping, "gpus": (), "checkpoint": tmp_path / "c"}
        return mimdsim.run(workload, str(machine), **given, **more)

    run()
    mapping.write_text("# only said otherwise\n[mapping]\ntiles = 8\n")
    run(resume=True)
    mapping.write_text("[mapping]\ntiles = 4\n")
    with pytest.raises(DataFileError, match=r"another workload or machine .*map\.toml has changed"):
        run(resume=True)
    mapping.write_text("[mapping]\ntiles = 8\n")
    machine.write_text(text.replace("sram_bytes", "sram_bytes", 1) + "\n")
    run(resume=True)
    (point,) = Points(study_of(workload, mapping=str(mapping), machine=str(machine))).of([{}])
    assert {name.partition(":")[0] for name in point.inputs} == {"workload", "mapping", "machine"}
    assert descriptions_of("digits", ("bow", "a100")) == ()  # those of the package are known by their values


@pytest.mark.slow
def test_other_code_is_refused_unless_it_is_accepted_which_the_profile_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = described(tmp_path)

    def run(code: str, **more: Any) -> Any:
        monkeypatch.setattr("mimdsim.pipeline.pipeline.code_digest", lambda: code)
        return mimdsim.run(workload, "tiny", gpus=(), checkpoint=tmp_path / "c", **more).profile

    with pytest.raises(DescriptionError, match="add  --resume"):
        run("a" * 64, accept_other_code=True)
    assert run("a" * 64).earlier_code_sha256 == ()
    with pytest.raises(DataFileError, match=r"code aaaaaaaaaaaa, these bbbbbbbbbbbb.*--accept-other-code"):
        run("b" * 64, resume=True)
    after = run("b" * 64, resume=True, accept_other_code=True)
    assert after.earlier_code_sha256 == ("a" * 64,)
    assert after.code_sha256 == "b" * 64
    assert "--accept-other-code accepted" in after.warnings[0]
    save_profile(tmp_path / "profile.json", after)
    assert load_profile(tmp_path / "profile.json") == after
    assert run("a" * 64, resume=True).earlier_code_sha256 == ()  # nothing was written by the other sources


def test_points_of_other_code_are_computed_again_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = described(tmp_path)
    studied(workload, tmp_path / "s")
    monkeypatch.setattr("mimdsim.studies.points.code_digest", lambda: "c" * 64)
    assert "the sources of mimdsim are others" in studied(workload, tmp_path / "s").warnings[0]
    assert studied(workload, tmp_path / "s").warnings == ()


def without_origin(path: Path) -> None:
    """A checkpoint as it was written before inputs and code were recorded."""
    with np.load(path) as file:
        members = {name: file[name] for name in file.files}
    about = json.loads(members.pop("about").tobytes())
    for name in ("inputs", "described", "code", "earlier_code", "content"):
        del about[name]
    about["content"] = checkpoints._content_digest(about, members)
    members["about"] = np.frombuffer(json.dumps(about, sort_keys=True).encode(), np.uint8)
    with path.open("wb") as written:
        np.savez(written, **members)


def test_what_is_unknown_of_older_files_is_said(tmp_path: Path) -> None:
    workload = described(tmp_path, training="max_training_steps = 6")
    made = mimdsim.run(workload, "tiny", gpus=(), checkpoint=tmp_path / "c").profile
    without_origin(tmp_path / "c")
    resumed = mimdsim.run(workload, "tiny", gpus=(), checkpoint=tmp_path / "c", resume=True).profile
    assert "written before inputs and code were recorded" in resumed.warnings[0]
    assert resumed.earlier_code_sha256 == ("unknown",)
    assert resumed.training == made.training

    table = json.loads(json.dumps(dataclasses.asdict(made)))
    for name in ("inputs", "code_sha256", "earlier_code_sha256"):
        del table[name]
    (tmp_path / "profile.json").write_text(json.dumps(table | {"schema_version": 6}))
    older = load_profile(tmp_path / "profile.json")
    assert (older.inputs, older.code_sha256) == ((), "")

    from mimdsim.base.checksummed import read_sealed_json, write_sealed_json

    studied(workload, tmp_path / "s")
    (rows,) = (tmp_path / "s" / "points").iterdir()
    kept = read_sealed_json(rows, 1 << 20, "")["rows"]
    rows.unlink()
    for row in kept.values():
        for name in ("asked", "inputs", "code"):
            del row[name]
    key = "0" * 64
    write_sealed_json(rows.with_name("old.json"), {"rows": {key: next(iter(kept.values())) | {"digest": key}}})
    assert "this folder holds 1 row from before inputs were recorded" in studied(workload, tmp_path / "s").warnings[0]


def test_inputs_that_change_under_way_give_no_row(tmp_path: Path) -> None:
    path = weights(tmp_path / "start.npz")
    workload = described(tmp_path, training=f'initial_weights = "{path}"')
    (point,) = Points(study_of(workload)).of([{}])
    point.check()
    with pytest.raises(MimdsimError, match="the sources of mimdsim have changed since the point was made"):
        dataclasses.replace(point, code="other").check()
    weights(path, 1)
    with pytest.raises(MimdsimError, match=r"start\.npz has changed since the point was made"):
        point.check()


def test_a_run_whose_inputs_change_under_way_says_so(tmp_path: Path) -> None:
    path = weights(tmp_path / "start.npz")
    workload = described(tmp_path, training=f'initial_weights = "{path}"')
    changed = mimdsim.run(workload, "tiny", gpus=(), progress=lambda *_: weights(path, 1) and None).profile
    assert "while this run was under way" in changed.warnings[0]
    assert "start.npz has changed" in changed.warnings[0]


def test_weights_that_are_not_there_are_named_with_their_key(tmp_path: Path) -> None:
    workload = described(tmp_path, training='initial_weights = "absent.npz"')
    with pytest.raises(MimdsimError, match=r"absent\.npz: no such file, though training\.initial_weights names it"):
        mimdsim.run(workload, "tiny", gpus=())


def texts(section: type[BaseModel], above: str = "") -> dict[str, Any]:
    """Every field of text of a section and of those in it."""
    found: dict[str, Any] = {}
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found |= texts(field.annotation, f"{above}{name}.")
        elif field.annotation is str:
            found[f"{above}{name}"] = field
    return found


def test_every_field_that_names_files_says_so() -> None:
    """A new one is found by its name or type, so that no result forgets it."""
    looks = ("path", "file", "folder", "imported", "weights", "directory", "recording")
    for section in (Workload, MimdMachine, CalibrationFile):
        for name, field in texts(section).items():
            if any(word in name.rpartition(".")[2] for word in looks):
                assert NAMES_FILES in field.metadata, name
    marked = {name for name, field in texts(Workload).items() if NAMES_FILES in field.metadata}
    assert marked == {"data.path", "network.imported", "network.models", "training.initial_weights"}
    sources = set(get_args(Data.model_fields["source"].annotation))
    assert sources == set(SOURCES)


def test_sources_list_the_files_that_they_read(tmp_path: Path) -> None:
    def files(source: str, path: Path | str = "") -> set[str]:
        data = Data(source=source, path=str(path), timesteps=3, input_capacity=4)
        wanted = load_workload("digits").model_copy(update={"data": data})
        (found,) = inputs_of(wanted)
        return set(found.files)

    (tmp_path / "Train" / "0").mkdir(parents=True)
    (tmp_path / "far").mkdir()
    (tmp_path / "Test").symlink_to(tmp_path / "far")
    for name in ("Train/0/a.bin", "far/b.bin"):
        (tmp_path / name).write_bytes(nmnist_bytes([(1, 2, 1, 3)]))
    (tmp_path / "far" / "again").symlink_to(tmp_path / "far")  # a link back
    (tmp_path / "notes").write_text("")
    assert files("nmnist", tmp_path) == {"Train/0/a.bin", "Test/b.bin"} | {"far/b.bin"} & files("nmnist", tmp_path)
    write_gestures(tmp_path / "far")
    found = files("dvs_gesture", tmp_path / "far")
    assert found == {"user01_led.aedat", "user01_led_labels.csv", "trials_to_train.txt"}
    write_shd(tmp_path / "shd_train.h5")
    assert files("shd", tmp_path) == {"shd_train.h5"}  # the other is not there
    assert files("digits") == {"digits.csv.gz"}
    assert files("nmnist", tmp_path / "nowhere") == set()


def test_what_is_no_file_is_refused_and_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(DataFileError, match="is not a regular file"):
            file_digest(path)
    with pytest.raises(DataFileError, match="is a folder"):
        file_digest(tmp_path)
    assert file_digest(tmp_path / "none") == file_digest(tmp_path / "pipe" / "below") == ""
    workload = described(tmp_path, training=f'initial_weights = "{tmp_path / "pipe"}"')
    with pytest.raises(DataFileError, match="pipe: is not a regular file"):
        mimdsim.run(workload, "tiny", gpus=())


def test_contents_are_hashed_once_as_long_as_a_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1" * 100)
    hashed: list[object] = []
    plain = identity.hashlib.file_digest
    monkeypatch.setattr(identity.hashlib, "file_digest", lambda *given: hashed.append(given) or plain(*given))
    first = file_digest(path)
    assert file_digest(path) == first
    assert len(hashed) == 1
    before = path.stat()
    path.write_bytes(b"2" * 100)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # of the same length and age
    assert file_digest(path) != first


def test_many_files_are_named_by_their_folder(tmp_path: Path) -> None:
    for number in range(identity.MOST_FILES + 1):
        (tmp_path / f"{number}.bin").write_text("")
    many = identity.input_of("data.path", "here", files_below(tmp_path))
    assert list(many.by_file) == ["data.path: here"]
    (tmp_path / "0.bin").write_text("1")
    changed = identity.input_of("data.path", "here", files_below(tmp_path))
    assert changed_files(many.by_file, changed.by_file) == ["data.path: here has changed"]
    assert changed_files({"a": "1", "b": "2"}, {"a": "1", "c": "3"}) == ["b is gone", "c is new"]


def tree(text: str) -> str:
    """The syntax tree without docstrings, and without what the test puts in their place."""
    found = ast.parse(text)
    for node in ast.walk(found):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:]
    return ast.dump(found)


def instead(found: Any) -> str:
    """What is kept, with something in the place of docstrings, so that it can be parsed."""
    return found["text"] or ("" if found["head"] is None else f"{found['head']}{found['indent']}...\n")


FAST = ("base", "numerics")


@pytest.mark.parametrize("fast", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["some", "all"])
def test_nothing_but_comments_and_docstrings_is_left_out_of_code(fast: bool) -> None:
    """Of every file of the package and of the tests."""
    folders = [PACKAGE / name for name in FAST] if fast else [PACKAGE, Path(__file__).resolve().parents[1]]
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        text = path.read_text()
        assert tree(LEFT_OUT.sub(instead, f"{text}\n")) == tree(text), path


CODE = '''"""A module."""

import os

LIMIT = 3  # of something


def of(x: str = "# no comment") -> str:
    """What it does."""
    # why
    text = """# not
        a comment"""
    return text + x


class Held:
    """A class."""

    value = 1
'''


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("# of something", "# of something else", True),
        ("  # of something", "", True),
        ('"""What it does."""', '"""What else\n\n    it does."""', True),
        ('    """What it does."""\n', "", True),
        ('"""A module."""\n', "", True),
        ('    """A class."""\n', "", True),
        ("    # why\n", "\n\n", True),
        ("LIMIT = 3", "LIMIT = 4", False),
        ("# no comment", "# no Comment", False),
        ("# not", "# Not", False),
        ("value = 1", "value = 10", False),
        ("text + x", "x + text", False),
    ],
)
def test_code_differs_by_what_it_does(before: str, after: str, same: bool) -> None:
    assert before in CODE
    assert (meaning(CODE.replace(before, after)) == meaning(CODE)) == same


def test_the_digest_of_code_is_that_of_packages_that_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(**texts: str) -> str:
        for name, text in texts.items():
            path = tmp_path / name / "one.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        code_digest.cache_clear()
        return code_digest()

    assert all((identity.PACKAGE / package).is_dir() for package in identity.SAYS)
    monkeypatch.setattr(identity, "PACKAGE", tmp_path)
    try:
        first = found(timing="a = 1\n", report="b = 1\n")
        assert found(report="b = 2\n") == first
        assert found(timing="a = 1  # seconds\n") == first
        assert found(timing="a = 2\n") != first
        assert found(timing="a = 1\n") == first
        known = identity._known_file()
        for damage in (b"", b"{}", known.read_bytes()[:-9], known.read_bytes().replace(first[:9].encode(), b"0" * 9)):
            known.write_bytes(damage)
            assert found() == first
        known.unlink()
        known.mkdir()  # cannot be written
        assert found() == first
        monkeypatch.setattr(identity, "_versions", lambda: ["numpy 99"])
        assert found() != first
    finally:
        code_digest.cache_clear()


# Folders that hold other results


@pytest.mark.parametrize(("name", "what"), HELD.items())
def test_a_folder_of_one_kind_is_refused_to_others(tmp_path: Path, name: str, what: str) -> None:
    (tmp_path / name).write_text("")
    refuse_other(tmp_path, what)
    for other in {*HELD.values()} - {what}:
        with pytest.raises(MimdsimError, match="choose another folder with --out"):
            refuse_other(tmp_path, other)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"axes": {"chip.clock_hz": [1e9]}}, "here over chip.clock_hz"),
        ({"axes": {"tile.worker_contexts": [3]}}, "other values of tile.worker_contexts"),
        ({"fill": 0.25}, "fill = 0.5, here 0.25"),
        ({"changes": {"training.batch": 4}}, "changes = "),
        ({"machine": "bow"}, "machine = 'tiny', here 'bow'"),
    ],
)
def test_a_folder_of_another_sweep_is_refused_and_stays(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    workload = described(tmp_path)
    folder, axes = tmp_path / "s", {"tile.worker_contexts": [3, 6]}
    studied(workload, folder, axes=axes)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(MimdsimError, match="holds another study or sweep") as refused:
        studied(workload, folder, **{"axes": axes, **more})
    assert said in str(refused.value)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    (folder / "study.toml").unlink()
    assert "is unknown" in studied(workload, folder, **{"axes": axes, **more}).warnings[0]


def test_a_sweep_goes_on_with_more_values_in_its_folder(tmp_path: Path) -> None:
    workload = described(tmp_path)
    studied(workload, tmp_path / "s", axes={"tile.worker_contexts": [3]})
    more = studied(workload, tmp_path / "s", axes={"tile.worker_contexts": [2, 3]}, question="How many?")
    assert (len(more.rows), more.warnings) == (2, ())


@pytest.mark.slow
def test_runs_and_sweeps_do_not_take_each_others_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mimdsim.report.page.FIGURES", ())
    workload = described(tmp_path)
    mimdsim.run(workload, "tiny", gpus=(), report=tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text()
    assert f"code {code_digest()}" in page
    assert f"workload = {workload}: {file_digest(Path(workload))}" in page
    with pytest.raises(MimdsimError, match="holds the weights and report of a run"):
        studied(workload, tmp_path / "run")
    studied(workload, tmp_path / "s")
    for call in (mimdsim.run, mimdsim.compare):
        with pytest.raises(MimdsimError, match="holds a study or sweep"):
            call(workload, report=tmp_path / "s")
    mimdsim.run(workload, "tiny", gpus=(), report=tmp_path / "run")


# Compiled kernels


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where kernels of a test are kept."""
    if kernels.CONFIG.DISABLE_JIT:
        pytest.skip("nothing is compiled")
    monkeypatch.setattr(kernels, "folder", lambda: tmp_path)
    return tmp_path


def doubled(value: Any) -> Any:
    return value * 2


def kept(function: Callable[[Any], Any] = doubled) -> Any:
    """A kernel as a new process finds it."""
    return kernels.compiled(function)


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def sealed_garbage(path: Path) -> None:
    """What no digest tells: of another version, or made so."""
    content = b"\x80\x04garbage"
    path.write_bytes(kernels.hashlib.sha256(content).digest() + content)


def a_folder(path: Path) -> None:
    path.unlink()
    (path / "below").mkdir(parents=True)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "short": lambda path: path.write_bytes(path.read_bytes()[:-7]),
    "long": lambda path: path.write_bytes(path.read_bytes() + b"1"),
    "zeroed": zeroed,
    "garbage": sealed_garbage,
    "a folder": a_folder,
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_kernel_is_compiled_again(folder: Path, damage: Callable[[Path], object]) -> None:
    assert not kernels.is_kept(kept())
    assert kept()(3) == 6
    (path,) = folder.iterdir()
    found = kept()
    assert kernels.is_kept(found)
    assert found(3) == 6
    assert sum(found.stats.cache_hits.values()) == 1
    damage(path)
    again = kept()
    assert again(3) == 6
    assert sum(again.stats.cache_hits.values()) == 0
    assert path.is_file()
    assert sum(map(bool, [found := kept(), found(3) == 6, found.stats.cache_hits])) == 3


def test_a_kernel_that_cannot_be_kept_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise MimdsimError("no room")

    monkeypatch.setattr(kernels, "write_atomically", full)
    assert kept()(3) == 6
    assert list(folder.iterdir()) == []


def test_folders_of_kernels_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernels.CONFIG.DISABLE_JIT:
        pytest.skip("nothing is compiled")
    monkeypatch.setattr(kernels.CONFIG, "CACHE_DIR", str(tmp_path / "kernels"))
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "numbas own").mkdir()
    find = kernels.folder.__wrapped__
    made = []
    for number in range(kernels.MOST_FOLDERS + 3):
        monkeypatch.setattr(kernels, "code_digest", lambda _, number=number: f"{number:064}"[::-1])
        made.append(find())
        os.utime(made[-1], (number, number))
    left = {path.name for path in (tmp_path / "kernels").iterdir()}
    assert "numbas own" in left
    assert len(left) == kernels.MOST_FOLDERS + 1
    assert made[-1].name in left
    made[-1].rmdir()
    made[-1].write_text("")  # a file in its place
    assert find().is_dir()


def test_every_kernel_is_kept_with_all_sources() -> None:
    """By `compiled`, not by numba's own cache, which looks at one file."""
    for path in (PACKAGE / "numerics").rglob("*.py"):
        if path.name != "compiled.py":
            text = path.read_text()
            assert "njit" not in text, path
            assert "cache=True" not in text, path


PROBE = """
from mimdsim.numerics import equations
from mimdsim.numerics.compiled import compiled


@compiled
def probe(v):
    return equations.integrated(v, 1.0, 0.5, 1.0, 10.0, 0.0)


value = probe(4.0)
print(value, sum(probe.stats.cache_hits.values()))
"""


@pytest.mark.slow
def test_an_edit_of_what_is_inlined_gives_other_kernels(tmp_path: Path) -> None:
    """A copy of the package is edited as by an editor, or by `git pull`."""
    copy = tmp_path / "mimdsim"
    for path in (PACKAGE / "__init__.py", *(PACKAGE / "base").rglob("*.py"), *(PACKAGE / "numerics").rglob("*.py")):
        target = copy / path.relative_to(PACKAGE)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    (copy / "numerics" / "probe.py").write_text(PROBE)
    equations = copy / "numerics" / "equations.py"
    text, sum_of = equations.read_text(), "return kept + scale * current"
    assert sum_of in text

    def told() -> list[str]:
        command = [sys.executable, "-m", "mimdsim.numerics.probe"]
        where = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        where |= {"NUMBA_CACHE_DIR": str(tmp_path / "kernels"), "NUMBA_DISABLE_JIT": "0"}
        done = subprocess.run(command, cwd=tmp_path, env=where, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert told() == ["3.0", "0"]
    assert told() == ["3.0", "1"]
    equations.write_text(text.replace(sum_of, f"{sum_of} + 1"))
    assert told() == ["4.0", "0"]
    equations.write_text(text.replace(sum_of, f"{sum_of}  # said"))
    assert told() == ["3.0", "1"]  # of the first sources


@pytest.mark.slow
def test_numerics_and_a_run_are_the_same_interpreted(tmp_path: Path) -> None:
    """With NUMBA_DISABLE_JIT=1."""
    tests = ["tests/unit/test_numerics.py", "tests/unit/test_precompile.py"]
    where = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=PACKAGE.parent, env=where, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    workload = described(tmp_path)
    for name, more in (("compiled", {}), ("interpreted", {"NUMBA_DISABLE_JIT": "1"})):
        command = ["run", workload, "tiny", "--quiet", "--gpu", "none", "--out", str(tmp_path / name)]
        done = subprocess.run(
            [sys.executable, "-m", "mimdsim", *command],
            env=os.environ | more,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
    one, other = ((tmp_path / name / "weights.safetensors").read_bytes() for name in ("compiled", "interpreted"))
    assert one == other
    assert zipfile.is_zipfile(tmp_path / "interpreted" / "detail.npz")
