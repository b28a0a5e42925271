"""A training on disk: everything that decides how it goes on, in one NPZ file, written whole or not at all.

What is kept: all persistent variables (weights, moments, training step), the curves so far, the best weights, and at
the end the recorded activity. The order of samples and all schedules follow from seed and number of training steps.
Nothing is unpickled. Members are stored, not packed, so a file takes no more memory than it has bytes; one that claims
more is refused before it is read. A digest of all that is kept tells a file that was changed, by damage or by hand.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mimdsim.base.errors import DataFileError, shortened
from mimdsim.base.files import parse_json, write_atomically
from mimdsim.base.identity import Input, by_file, changed_files
from mimdsim.base.npz_reader import NpzFile
from mimdsim.execution.execute import Executor
from mimdsim.program import RecordedActivity

SCHEMA = 2
UNKNOWN_CODE = "unknown"  # of a checkpoint that was written before code was recorded
CURVES = ("train", "validation", "test")
MAX_TEXT_BYTES = 1 << 20
MAX_TRAINING_STEPS = 1 << 27
DAMAGE = (OSError, RuntimeError, ValueError, OverflowError, KeyError, TypeError, AttributeError, MemoryError)


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Where a training is written, and what it belongs to.

    resume: go on from what the file has; accept_other_code: though of other sources. A run fills in the others: digest,
    of all descriptions that decide it but the engine; earlier: digests that 0.1.0 wrote, with their engine; inputs: the
    files that they name; described: those that they are from; code: digest of the sources.
    """

    path: Path
    digest: str = ""
    earlier: Mapping[str, str] = field(default_factory=dict)
    inputs: tuple[Input, ...] = ()
    described: tuple[Input, ...] = ()
    code: str = ""
    resume: bool = False
    accept_other_code: bool = False


@dataclass
class Course:
    """A training so far: training steps done, their loss and scheduled scalars, accuracies by epoch ('train': of the
    batches as they were trained on), the best weights, digests of other sources that computed some of it."""

    done: int = 0
    right: int = 0  # samples of this epoch that were classified correctly while trained on
    loss: list[float] = field(default_factory=list)
    scheduled: dict[str, list[float]] = field(default_factory=dict)
    curves: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in CURVES})
    best_epoch: int = -1
    best: dict[str, np.ndarray] = field(default_factory=dict)
    activity: RecordedActivity | None = None
    earlier_code: tuple[str, ...] = ()

    def add(self, loss: float, right: int, scalars: dict[str, np.ndarray]) -> None:
        """One training step."""
        self.done += 1
        self.loss.append(loss)
        self.right += right
        for name, value in scalars.items():
            self.scheduled.setdefault(name, []).append(float(value[0]))

    def end_epoch(self, training_steps: int, batch: int) -> float:
        """The accuracy on the batches of the epoch; the count starts anew."""
        share, self.right = self.right / (training_steps * batch), 0
        return share

    def end_evaluation(self, accuracies: dict[str, float]) -> bool:
        """Append to the curves; whether the accuracy on the validation samples is better than ever before."""
        for name, value in accuracies.items():
            self.curves[name].append(value)
        reached = self.curves["validation"]
        if "validation" not in accuracies or (self.best_epoch >= 0 and reached[-1] <= reached[self.best_epoch]):
            return False
        self.best_epoch = len(reached) - 1
        return True


def write_checkpoint(checkpoints: Checkpoints, executor: Executor, course: Course, engine: str = "program") -> None:
    """Write everything at once, by a temporary name beside the file. engine: what trains."""
    about = {
        "schema": SCHEMA, "digest": checkpoints.digest, "done": course.done, "right": course.right,
        "best_epoch": course.best_epoch, "curves": course.curves, "scheduled": sorted(course.scheduled),
        "finished": course.activity is not None,
        "dropped": course.activity.dropped if course.activity is not None else {},
        "inputs": by_file(checkpoints.inputs), "described": by_file(checkpoints.described),
        "code": checkpoints.code, "earlier_code": course.earlier_code, "engine": engine,
    }  # fmt: skip
    members: dict[str, np.ndarray] = {"loss": np.array(course.loss, np.float64)}
    members |= {f"scheduled/{name}": np.array(values, np.float64) for name, values in course.scheduled.items()}
    members |= {f"memory/{name}": executor.arrays[name] for name in _persistent(executor)}
    members |= {f"best/{name}": value for name, value in course.best.items()}
    if course.activity is not None:
        members |= {f"ids/{name}": value for name, value in course.activity.ids.items()}
        members |= {f"counts/{name}": value for name, value in course.activity.counts.items()}
    about["content"] = _content_digest(about, members)
    members["about"] = np.frombuffer(json.dumps(about, sort_keys=True).encode(), np.uint8)
    packed = io.BytesIO()
    np.savez(packed, **members)  # type: ignore[arg-type]
    write_atomically(checkpoints.path, packed.getvalue())


def read_checkpoint(checkpoints: Checkpoints, executor: Executor, weights: tuple[str, ...]) -> Course:
    """The course of the training, with the executor's persistent variables set.

    Raises DataFileError for a file that is missing, damaged, of another format or of another training.
    """
    with _opened(checkpoints) as (members, about):
        course = Course(
            done=about["done"], right=about["right"], best_epoch=about["best_epoch"], curves=about["curves"]
        )
        course.earlier_code = _earlier_code(checkpoints, about)
        steps = (course.done,)
        course.loss = members.read("loss", "<f8", steps).tolist()
        for name in about["scheduled"]:
            course.scheduled[name] = members.read(f"scheduled/{name}", "<f8", steps).tolist()
        memory = {name: members.like(f"memory/{name}", executor.arrays[name]) for name in _persistent(executor)}
        if any(name.startswith("best/") for name in members.infos):
            inputs = executor.program.inputs
            course.best = {name: members.like(f"best/{name}", executor.arrays[inputs[name]]) for name in weights}
        if about["finished"]:
            course.activity = _activity(members, executor, about["dropped"])
        if _content_digest(about, members.found) != about["content"]:
            raise DataFileError(checkpoints.path, "was changed after it was written; leave out --resume to start again")
        members.refuse_others()
    for name, value in memory.items():
        executor.arrays[name][...] = value
    return course


def engine_of(checkpoints: Checkpoints) -> str:
    """What trained so far, 'whole_tensors' or 'program'; raises DataFileError as `read_checkpoint` does."""
    with _opened(checkpoints) as (_, about):
        engine = about.get("engine", checkpoints.earlier.get(about["digest"], "program"))
        if engine not in ("whole_tensors", "program"):
            raise ValueError(f"its engine is {shortened(repr(engine))}")
        return str(engine)


@contextmanager
def _opened(checkpoints: Checkpoints) -> Iterator[tuple[_Members, dict[str, Any]]]:
    """The archive and its description; whatever is wrong with what is read of them is a DataFileError."""
    path = checkpoints.path
    with NpzFile(path, "a checkpoint", "no such checkpoint; leave out --resume to start again") as file:
        try:
            members = _Members(path, file)
            yield members, _about(checkpoints, members)
        except DAMAGE as problem:
            raise DataFileError(path, f"is not a checkpoint, or damaged: {shortened(repr(problem), 300)}") from None


def _persistent(executor: Executor) -> list[str]:
    return sorted(name for name, variable in executor.program.variables.items() if variable.persistent)


def _activity(members: _Members, executor: Executor, dropped: dict[str, int]) -> RecordedActivity:
    """The spikes of the last training step."""
    ids, counts = {}, {}
    recorded, passing = executor.program.recorded, executor.program.observables.passing
    for layer, names in (recorded | passing).items():
        every = () if layer in recorded else (executor.timesteps,)  # of which one is kept at a time
        shape, *counted = ((*every, *executor.arrays[name].shape) for name in names)
        if counted:
            counts[layer] = members.read(f"counts/{layer}", "<i4", counted[0])
        else:  # dense spikes, listed as many as there are in any timestep of a sample
            samples = shape[-2] // executor.program.observables.positions.get(layer, 1)
            counts[layer] = members.read(f"counts/{layer}", "<i4", (executor.timesteps, samples, 2))
            shape = (executor.timesteps, samples, max(1, min(int(counts[layer].max(initial=0)), math.prod(shape))))
        ids[layer] = members.read(f"ids/{layer}", "<i4", shape)
    if not dropped.keys() <= ids.keys() or not all(_is_whole(count, 0, 1 << 62) for count in dropped.values()):
        raise ValueError(f"'dropped' is {shortened(repr(dropped))}")
    return RecordedActivity(ids=ids, counts=counts, dropped=dropped)


def _content_digest(about: dict[str, Any], members: dict[str, np.ndarray]) -> str:
    """sha256 of the description, less its own entry of the digest, and of all arrays but itself."""
    said = {name: value for name, value in about.items() if name != "content"}
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode())
    for name in sorted(members):
        array = members[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _recorded(about: dict[str, Any], what: str) -> dict[str, str]:
    """Files and their sha256 as a description records them; empty where it was written before."""
    found = about.get(what, {})
    if not isinstance(found, dict) or not all(isinstance(known, str) for known in found.values()):
        raise ValueError(f"'{what}' are no files")
    return found


def _check_training(checkpoints: Checkpoints, about: dict[str, Any]) -> None:
    """Raise DataFileError for a checkpoint of another training, which names the files that are others."""
    path, again = checkpoints.path, "or leave out --resume to start again"
    if about.get("digest") not in (checkpoints.digest, *checkpoints.earlier):
        described = _recorded(about, "described")
        which = "; ".join(changed_files(described, by_file(checkpoints.described))) if described else ""
        raise DataFileError(
            path,
            f"belongs to another workload or machine (digest {str(about.get('digest'))[:12]}, this one "
            f"{checkpoints.digest[:12]}{which and '; '}{which}): give the same descriptions and --set, {again}",
        )
    if "inputs" in about and (changed := changed_files(_recorded(about, "inputs"), by_file(checkpoints.inputs))):
        raise DataFileError(
            path, f"was written with other inputs: since then {'; '.join(changed)}: give the same files, {again}"
        )


def _earlier_code(checkpoints: Checkpoints, about: dict[str, Any]) -> tuple[str, ...]:
    """Digests of the sources other than the present ones that computed a part of the training, the latest last."""
    earlier = about.get("earlier_code", [])
    code = about.get("code", UNKNOWN_CODE)
    if not isinstance(earlier, list) or not all(isinstance(each, str) for each in (*earlier, code)):
        raise ValueError("its code is no digest")
    if code not in (checkpoints.code, UNKNOWN_CODE) and not checkpoints.accept_other_code:
        raise DataFileError(
            checkpoints.path,
            f"was written by other sources of mimdsim (code {code[:12]}, these {checkpoints.code[:12]}), so the values "
            "of the rest may not be those that the whole would have: add --accept-other-code to go on all the same, "
            "which the profile will say, or leave out --resume to start again",
        )
    return tuple(dict.fromkeys(each for each in (*earlier, code) if each != checkpoints.code))


def _about(checkpoints: Checkpoints, members: _Members) -> dict[str, Any]:
    """The description, checked for its format and for the training it belongs to."""
    path = checkpoints.path
    text = members.within("about", MAX_TEXT_BYTES)
    about = parse_json(text.tobytes().decode())
    if text.dtype != np.uint8 or not isinstance(about, dict):
        raise ValueError("its description is not one of ours")
    if about.get("schema") != SCHEMA:
        raise DataFileError(
            path, f"is a checkpoint of format {shortened(repr(about.get('schema')))}; this mimdsim reads {SCHEMA}"
        )
    _check_training(checkpoints, about)
    whole = {"done": (0, MAX_TRAINING_STEPS), "right": (0, 1 << 62), "best_epoch": (-1, MAX_TRAINING_STEPS)}
    for name, (least, most) in whole.items():
        if not _is_whole(about[name], least, most):
            raise ValueError(f"'{name}' is {shortened(repr(about[name]))}")
    if set(about["curves"]) != set(CURVES):
        raise ValueError(f"its curves are {sorted(about['curves'])}")
    for curve in about["curves"].values():
        if not isinstance(curve, list) or not all(isinstance(value, float) and 0 <= value <= 1 for value in curve):
            raise ValueError("a curve holds something else than shares")
    if about["best_epoch"] >= len(about["curves"]["validation"]):
        raise ValueError(f"its best epoch is {about['best_epoch']:,}, which its curves lack")
    names = about["scheduled"]
    if not isinstance(names, list) or len(set(names)) != len(names) or not isinstance(about["finished"], bool):
        raise ValueError("its description is not one of ours")
    return dict(about)


def _is_whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


class _Members:
    """The arrays of an archive, each held against what it must be; `found` are those read so far."""

    def __init__(self, path: Path, file: NpzFile):
        self.path, self.file, self.infos = path, file, {info.filename: info for info in file.infos}
        self.found: dict[str, np.ndarray] = {}

    def refuse_others(self) -> None:
        """Raise ValueError for a member that has not been read: a checkpoint has no others."""
        others = sorted(self.infos.keys() - {f"{name}.npy" for name in (*self.found, "about")})
        if others or len(self.infos) < len(self.file.infos):
            what = f"'{shortened(others[0])}', which no checkpoint has" if others else "a member twice"
            raise ValueError(f"it holds {what}")

    def like(self, name: str, held: np.ndarray) -> np.ndarray:
        """An array of the dtype and shape of `held`."""
        return self.read(name, held.dtype, held.shape)

    def read(self, name: str, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
        """An array of this dtype and shape; raises DataFileError for another one, or values that are not finite."""
        kind = np.dtype(dtype)
        expected = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        array = self.found[name] = self.within(name, expected)
        if array.dtype != kind or array.shape != shape:
            needed = f"{kind}{list(shape)} is needed"
            raise DataFileError(self.path, f"'{name}' is {array.dtype}{list(array.shape)}, {needed}")
        if kind.kind == "f" and not np.isfinite(array).all():
            raise DataFileError(
                self.path, f"'{name}' holds values that are not finite: the training diverged; start again"
            )
        return array

    def within(self, name: str, most_bytes: int) -> np.ndarray:
        """An array of at most so many bytes; raises ValueError for any other."""
        info = self.infos[f"{name}.npy"]
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise ValueError(f"'{name}' is packed, which mimdsim never does")
        if info.header_offset + info.file_size > self.path.stat().st_size:
            raise ValueError(f"'{name}' says it has {info.file_size:,} bytes, more than the file")
        expected = f"at most {most_bytes:,} bytes in rows were expected"
        try:
            member = self.file.member(info)
            if member.by_column or member.entries * member.dtype.itemsize > most_bytes:
                raise ValueError(f"'{name}' is {member.dtype}{list(member.shape)}, {expected}")
            return self.file.whole(member)
        except DataFileError as problem:
            raise ValueError(f"{problem.reason}; {expected}") from None
