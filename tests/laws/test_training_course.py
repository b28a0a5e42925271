"""A training from epoch to epoch: validation samples, best weights, schedules, checkpoints that go on exactly."""

from __future__ import annotations

import json
import struct
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hostile.limits import peak_bytes
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import compiled, given_values, small_network

from mimdsim.base.errors import DataFileError, DescriptionError
from mimdsim.cli import main
from mimdsim.execution import Checkpoints, Evaluation, RateSchedule, TrainingLog, TrainingPlan, initial_weights, train
from mimdsim.execution.checkpoint import _content_digest
from mimdsim.execution.trainer import split
from mimdsim.graph import Adam, Sgd, SpikingNetwork
from mimdsim.graph.spikes import ThresholdSchedule
from mimdsim.machine import load_machine
from mimdsim.pipeline.identity import course_digest
from mimdsim.workload import load_workload

NETWORK = small_network(
    (10, 9, 4), timesteps=5, batch=4, optimiser=Adam(learning_rate=0.02, weight_decay=0.1, scheduled=True),
    threshold_schedule=ThresholdSchedule(start=-5.0),
)  # fmt: skip
MADE = compiled(NETWORK)
RATE = RateSchedule(warm_up_training_steps=3, final_share=0.1)
JUDGED = Evaluation(validation_share=0.2, keep_best=True)


class Samples:
    """Random input spikes whose number of events tells the class."""

    def __init__(self, network: SpikingNetwork, samples: int):
        many = given_values(replace(network, batch=samples), 8)
        self.spikes, self.labels = many.spikes, many.labels

    def batch(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.spikes.ids[:, indices], self.spikes.counts[:, indices, 0], self.labels[indices]


class Stopped(Exception):
    """The process ended here."""


DATA = Samples(NETWORK, 25)


def trained(checkpoints: Checkpoints | None = None, *, stop_after: int = 0, **more: Any) -> TrainingLog:
    def progress(_what: str, done: int, _total: int) -> None:
        if done == stop_after:
            raise Stopped

    given: dict[str, Any] = {"epochs": 4, "evaluation": JUDGED, "rate": RATE} | more
    plan = TrainingPlan(seed=5, **given)
    weights = initial_weights(NETWORK, seed=3, scale=2.0, offset=0.2)
    return train(MADE.program, NETWORK, DATA, DATA, plan, weights=weights, checkpoints=checkpoints, progress=progress)


def same(one: TrainingLog, other: TrainingLog) -> None:
    """Every field, bit for bit."""
    for name in ("loss", "test_accuracy_by_epoch", "train_accuracy", "train_accuracy_by_epoch", "scheduled"):
        assert getattr(one, name) == getattr(other, name), name
    assert one.validation_accuracy_by_epoch == other.validation_accuracy_by_epoch
    assert (one.best_epoch, one.test_samples) == (other.best_epoch, other.test_samples)
    for name in one.weights:
        assert one.weights[name].tobytes() == other.weights[name].tobytes()
    for name in one.activity.ids:
        assert one.activity.ids[name].tobytes() == other.activity.ids[name].tobytes()
        assert one.activity.counts[name].tobytes() == other.activity.counts[name].tobytes()
    assert one.activity.dropped == other.activity.dropped


@pytest.mark.first(2)
@pytest.mark.parametrize("stop_after", [5, 7, 10, 19])
def test_a_resumed_training_is_an_unbroken_one(tmp_path: Path, stop_after: int) -> None:
    whole = trained()
    assert len(whole.loss) == 20
    assert len(whole.validation_accuracy_by_epoch) == len(whole.train_accuracy_by_epoch) == 4
    file = Checkpoints(path=tmp_path / "training.npz", digest="one")
    with pytest.raises(Stopped):
        trained(file, stop_after=stop_after)
    same(trained(replace(file, resume=True)), whole)
    # what is finished is read, not trained again
    same(trained(replace(file, resume=True), stop_after=20), whole)
    assert [path.name for path in tmp_path.iterdir()] == ["training.npz"]


@pytest.mark.parametrize("optimiser", [Sgd(learning_rate=0.02), Sgd(learning_rate=0.02, momentum=0.9)])
def test_other_optimisers_resume_too(tmp_path: Path, optimiser: Any) -> None:
    network = replace(NETWORK, optimiser=optimiser, threshold_schedule=None)
    program = compiled(network).program
    file = Checkpoints(path=tmp_path / "training.npz", digest="one")
    logs = []
    for epochs, resume in ((4, False), (2, False), (4, True)):
        weights = initial_weights(network, seed=3, scale=2.0, offset=0.2)
        # the second stops where an interruption would have
        checkpoints = None if (epochs, resume) == (4, False) else replace(file, resume=resume)
        stop = [10 if epochs == 2 else 0]

        def progress(_what: str, done: int, _total: int, stop: list[int] = stop) -> None:
            if done == stop[0]:
                raise Stopped

        try:
            logs.append(
                train(
                    program, network, DATA, None, TrainingPlan(epochs=4, seed=5), weights=weights,
                    checkpoints=checkpoints, progress=progress,
                )
            )  # fmt: skip
        except Stopped:
            assert file.path.exists()
    same(logs[1], logs[0])


def test_a_finished_training_goes_on_for_more_epochs_as_if_it_had_been_asked_for_them(tmp_path: Path) -> None:
    file = Checkpoints(path=tmp_path / "training.npz", digest="one")
    trained(file, epochs=2, rate=None)
    same(trained(replace(file, resume=True), rate=None), trained(rate=None))
    with pytest.raises(DataFileError, match=r"holds 20 training steps, 10 are asked for: raise training\.epochs"):
        trained(replace(file, resume=True), epochs=2, rate=None)


def test_what_a_checkpoint_is_held_against_leaves_out_the_length_where_no_training_step_depends_on_it() -> None:
    machine = load_machine("bow")

    def digest(**more: object) -> str:
        changes = {f"training.{key}": value for key, value in more.items()}
        return course_digest(load_workload("digits", changes), machine)

    assert digest(epochs=5) == digest(epochs=7) == digest(epochs=7, max_training_steps=9)
    assert digest(epochs=5) != digest(epochs=5, learning_rate=0.5)
    assert digest(epochs=5, engine="whole_tensors") == digest(epochs=7, engine="whole_tensors")
    assert digest(epochs=5, schedule="cosine") != digest(epochs=7, schedule="cosine")


def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    file = Checkpoints(path=tmp_path / "training.npz", digest="a" * 64)
    trained(file, epochs=1)
    with pytest.raises(DataFileError, match=r"training\.npz: belongs to another workload or machine \(digest aaaaaaaa"):
        trained(Checkpoints(path=file.path, digest="b" * 64, resume=True))
    with pytest.raises(DataFileError, match="no such checkpoint; leave out --resume to start again"):
        trained(Checkpoints(path=tmp_path / "none.npz", digest="a", resume=True))


def rewritten(path: Path, changes: dict[str, bytes | None]) -> None:
    """The archive with members replaced, or left out where None is given."""
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (members | changes).items():
            if content is not None:
                archive.writestr(name, content)


def packed(array: np.ndarray) -> bytes:
    import io

    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=True)
    return file.getvalue()


def test_damaged_checkpoints_are_refused_by_name_and_reason(tmp_path: Path) -> None:
    file = Checkpoints(path=tmp_path / "training.npz", digest="a", resume=True)
    trained(replace(file, resume=False), epochs=1)
    good = file.path.read_bytes()
    with zipfile.ZipFile(file.path) as archive:
        about = json.loads(archive.read("about.npy")[128:])
    text = lambda **changed: packed(np.frombuffer(json.dumps(about | changed).encode(), np.uint8))  # noqa: E731
    cases: list[tuple[dict[str, bytes | None], str]] = [
        ({"about.npy": None}, "is not a checkpoint, or damaged"),
        ({"about.npy": text(schema=9)}, "is a checkpoint of format 9; this mimdsim reads 2"),
        ({"about.npy": text(done=-7)}, "'done' is -7"),
        ({"about.npy": text(curves={})}, "its curves are"),
        ({"about.npy": packed(np.array([{}], object))}, "is not a checkpoint, or damaged"),
        ({"memory/w.output.npy": None}, "w.output"),
        (
            {"memory/w.output.npy": packed(np.zeros((3, 3), np.float32))},
            "'memory/w.output' is float32.3, 3., float32.9",
        ),
        ({"memory/w.output.npy": packed(np.zeros((900, 900), np.float32))}, "at most 144 bytes"),
        ({"memory/w.output.npy": packed(np.array([[{}]], object))}, "at most 144 bytes"),
        ({"loss.npy": b"\x93NUMPY"}, "is not a checkpoint, or damaged"),
        ({"memory/w.output.npy": packed(np.ones((9, 4), np.float32))}, "was changed after it was written"),
        ({"memory/w.output.npy": packed(np.full((9, 4), np.nan, np.float32))}, "values that are not finite"),
        ({"about.npy": text(right=3)}, "was changed after it was written"),
        ({"about.npy": text(finished=False)}, "was changed after it was written"),
        ({"about.npy": text(dropped=[1])}, "is not a checkpoint, or damaged"),
    ]
    for changes, message in cases:
        file.path.write_bytes(good)
        rewritten(file.path, changes)
        with pytest.raises(DataFileError, match=message):
            trained(file, epochs=1)
    with zipfile.ZipFile(file.path, "w", compression=zipfile.ZIP_LZMA) as archive:
        archive.writestr("about.npy", text())
    damaged = bytearray(file.path.read_bytes())
    damaged[60:90] = bytes(30)
    file.path.write_bytes(damaged)
    with pytest.raises(DataFileError, match=r"is not a checkpoint, or damaged: .*'about' is packed"):
        trained(file, epochs=1)
    file.path.write_bytes(good)
    same(trained(file, epochs=1), trained(epochs=1))


def test_a_checkpoint_takes_no_more_memory_than_it_has_bytes(tmp_path: Path) -> None:
    """Forged with a right digest: losses that unpack to a thousand times the file, and a directory that lies."""
    file = Checkpoints(path=tmp_path / "training.npz", digest="a", resume=True)
    trained(replace(file, resume=False), epochs=1)
    with np.load(file.path) as stored:
        members = {name: stored[name] for name in stored.files}
    about = json.loads(members.pop("about").tobytes()) | {"done": 1 << 22}
    members |= {name: np.zeros(1 << 22) for name in members if name == "loss" or name.startswith("scheduled/")}
    about["content"] = _content_digest(about, members)
    said = {"about": np.frombuffer(json.dumps(about).encode(), np.uint8)}
    np.savez_compressed(file.path, **members, **said)  # type: ignore[arg-type]
    assert file.path.stat().st_size < 1 << 20
    peak_bytes(again=True)
    before = peak_bytes()
    with pytest.raises(DataFileError, match="is packed, which mimdsim never does"):
        trained(file, epochs=1)
    assert peak_bytes() - before < 1 << 24
    np.savez(file.path, loss=np.zeros(4), **said)  # type: ignore[arg-type]
    content = bytearray(file.path.read_bytes())
    place = content.rindex(b"PK\x01\x02", 0, content.rindex(b"about.npy"))
    struct.pack_into("<II", content, place + 20, 1 << 30, 1 << 30)
    file.path.write_bytes(content)
    with pytest.raises(DataFileError, match=r"is not a checkpoint, or damaged: .*more than the file"):
        trained(file, epochs=1)


@pytest.mark.parametrize("examples", [15, 60])
def test_a_mutated_checkpoint_is_refused_or_read(tmp_path_factory: Any, examples: int) -> None:
    """Cut short or with a byte changed: a clear refusal, or what was written."""

    @settings(derandomize=True, database=None, deadline=None, max_examples=examples)
    @given(data=st.data())
    def law(data: Any) -> None:
        file = Checkpoints(path=tmp_path_factory.mktemp("mutated") / "training.npz", digest="a", resume=True)
        trained(replace(file, resume=False), epochs=1, evaluation=Evaluation(when="never"))
        good = bytearray(file.path.read_bytes())
        if data.draw(st.booleans()):
            good = good[: data.draw(st.integers(0, len(good) - 1))]
        else:
            good[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
        file.path.write_bytes(bytes(good))
        try:
            log = trained(file, epochs=1, evaluation=Evaluation(when="never"))
        except DataFileError:
            return  # refused; anything else that is raised fails the test
        assert len(log.loss) == 6

    law()


def test_validation_samples_are_not_trained_on() -> None:
    kept, held_out = split(25, 0.2, seed=5)
    assert len(held_out) == 5
    assert sorted([*kept, *held_out]) == list(range(25))
    np.testing.assert_array_equal(split(25, 0.2, seed=5)[1], held_out)
    assert not np.array_equal(split(25, 0.2, seed=6)[1], held_out)
    seen: list[int] = []

    class Watched(Samples):
        def batch(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            seen.extend(indices.tolist())
            return super().batch(indices)

    weights = initial_weights(NETWORK, seed=3, scale=2.0, offset=0.2)
    plan = TrainingPlan(epochs=2, seed=5, evaluation=Evaluation(when="never", validation_share=0.2))
    train(MADE.program, NETWORK, Watched(NETWORK, 25), None, plan, weights=weights)
    assert set(seen) == set(kept.tolist())


def test_the_weights_of_the_best_epoch_are_left() -> None:
    by_epochs = [trained(epochs=epochs, rate=None) for epochs in (1, 2, 3, 4)]
    log = by_epochs[-1]
    assert log.validation_samples == 5
    best = int(np.argmax(log.validation_accuracy_by_epoch))
    assert log.best_epoch == best
    last = trained(epochs=best + 1, rate=None, evaluation=Evaluation(validation_share=0.2))
    for name, weight in log.weights.items():
        np.testing.assert_array_equal(weight, last.weights[name])


def test_evaluation_at_the_end_or_never() -> None:
    each, end = trained(), trained(evaluation=Evaluation(when="end", validation_share=0.2))
    never = trained(evaluation=Evaluation(when="never"))
    assert len(each.test_accuracy_by_epoch) == 4
    assert end.test_accuracy_by_epoch == each.test_accuracy_by_epoch[-1:]
    assert never.test_accuracy_by_epoch == ()
    assert never.train_accuracy is None


def test_schedules_are_in_the_log() -> None:
    log = trained()
    rates = log.scheduled["learning_rate"]
    assert rates[:3] == pytest.approx([0.02 / 3, 0.04 / 3, 0.02])
    assert rates[3] == pytest.approx(0.02)
    assert min(rates[3:]) == rates[-1] > 0.002
    thresholds = log.scheduled["second_threshold.hidden0"]
    assert thresholds[:3] == pytest.approx([-5.0, -2.25, -0.875])
    assert thresholds[-1] == pytest.approx(0.5, abs=1e-4)


@pytest.mark.parametrize(("number", "expected"), [(0, 0.25), (3, 1.0), (4, 1.0), (12, 0.55), (20, 0.1), (99, 0.1)])
def test_the_rate_rises_and_falls_along_a_cosine(number: int, expected: float) -> None:
    schedule = RateSchedule(warm_up_training_steps=4, final_share=0.1)
    assert schedule.at(number, 20, 1.0) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimiser": "adamw", "momentum": 0.9}, 'training.momentum: is for optimiser "sgd"'),
        ({"weight_decay": 0.1}, 'write optimiser = "adamw"'),
        ({"warm_up_training_steps": 3}, 'is for schedule = "cosine"'),
        ({"keep_best": True}, "give validation_share and"),
    ],
)
def test_recipes_that_do_not_agree_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        load_workload("digits", {f"training.{key}": value for key, value in changes.items()})


def test_a_schedule_of_the_second_threshold_needs_sparse_spikes() -> None:
    with pytest.raises(DescriptionError, match="dense spikes have no second threshold to schedule"):
        load_workload("digits", {"network.spikes": "dense", "training.second_threshold_share": 0.5})


@pytest.mark.slow
def test_run_resumes_from_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mimdsim.report.page.FIGURES", ())  # drawn from the profile, which is compared here
    keys = (
        "data.train_samples=96", "data.test_samples=48", "training.epochs=2", "training.validation_share=0.25",
        "training.keep_best=true", "training.second_threshold_share=0.5", "training.schedule=cosine",
        "training.largest_gradient_norm=1.0", "training.optimiser=adamw", "training.weight_decay=0.01",
    )  # fmt: skip
    set_all = [part for key in keys for part in ("--set", key)]
    file, one, other = tmp_path / "training.npz", tmp_path / "one", tmp_path / "other"
    for folder, more in ((one, ()), (other, ("--resume",))):
        arguments = ["run", "digits", "bow", "--out", str(folder), "--checkpoint", str(file), *more, *set_all]
        result = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
    assert (one / "profile.json").read_bytes() == (other / "profile.json").read_bytes()
    result = CliRunner().invoke(main, ["run", "digits", "bow", "--resume", *set_all])
    assert result.exit_code == 2
    assert "add  --checkpoint FILE" in result.output


def test_epochs_are_counted_and_right_guesses_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 25 samples 20 are trained on, in 5 batches of 4; the guesses are right in every batch but the first."""
    training: Any = sys.modules[split.__module__]
    load, epochs, labels = training.load_batch, [], []

    def watched(runner: Any, data: Any, indices: np.ndarray, *, epoch: int | None = None) -> np.ndarray:
        found = load(runner, data, indices, epoch=epoch)
        epochs.append(epoch)
        labels[:] = found
        return found

    def right_but_once(_runner: Any) -> np.ndarray:
        return (np.array(labels) + (len(epochs) == 1)) % 4

    monkeypatch.setattr(training, "load_batch", watched)
    monkeypatch.setattr(training, "predictions", right_but_once)
    plan = TrainingPlan(epochs=3, seed=5, evaluation=Evaluation(when="never", validation_share=0.2), engine="program")
    weights = initial_weights(NETWORK, seed=3, scale=2.0, offset=0.2)
    log = train(MADE.program, NETWORK, DATA, DATA, plan, weights=weights)
    assert epochs == [0] * 5 + [1] * 5 + [2] * 5
    assert log.train_accuracy_by_epoch == (16 / 20, 1.0, 1.0)
