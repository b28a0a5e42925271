"""What is said of the samples before the numbers: how many events of recordings are used, classes that never occur."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mimdsim.base.units import counted
from mimdsim.execution.trainer import split
from mimdsim.profile import Finding
from mimdsim.workload import SpikeDataset, Workload

FEW = 0.5  # assumed: share of the events below which it is worth saying; recordings may be cut on purpose
ALMOST_NONE = 0.05  # assumed: share of the events below which a network sees another recording than its user thinks
MANY_EMPTY = 0.1  # assumed: share of the samples with events that is worth saying if none of theirs is used
CROWDED = 20  # assumed: events of a sample in one of so many parts of the timesteps hardly have the unit that was meant
MOST_RANGES = 4  # of numbers of classes in a message


def event_findings(workload: Workload, data: tuple[SpikeDataset, SpikeDataset]) -> tuple[Finding, ...]:
    """How many of the events of recordings are used, and what is wrong where it is few of them, or all at once; nothing
    of samples that are made."""
    text, noted, wrong = _describe_events(workload, data)
    return (Finding(name="events", passed=not wrong, warning=noted, text=f"{text}."),) if text else ()


def _describe_events(workload: Workload, data: tuple[SpikeDataset, SpikeDataset]) -> tuple[str, bool, bool]:
    """Without a full stop; whether something is worth a note, and whether something is wrong."""
    said, noted, wrong = [], [], []
    for name, part in zip(("training", "test"), data, strict=True):
        use = part.use
        if use is None or not part.samples:
            continue
        used, read = int(use.used.sum()), int(use.read.sum())
        said.append(f"{used:,} of {read:,} ({100 * use.share:.1f} %) in {name} samples")
        noted += [f"{name}: {problem}" for problem in _unused_events(workload, part)] if use.share < FEW else []
        wrong += [f"{name}: {problem}" for problem in _suspicious_events(workload, part)]
        wrong += noted[-1:] if use.share < ALMOST_NONE else []
    text = "; ".join(dict.fromkeys([f"Events used: {', '.join(said)}", *noted, *wrong])) if said else ""
    return text, bool(noted), bool(wrong)


def _unused_events(workload: Workload, part: SpikeDataset) -> list[str]:
    """Why events are not used."""
    use, data = part.use, workload.data
    assert use is not None
    late = int(use.late.sum())
    filtered = int((use.read - use.used - use.late).sum())
    parts = []
    if late:
        ends = use.shown(use.covered)
        parts.append(f"{late:,} come after the {counted(data.timesteps, 'timestep')}, which end at {ends}")
    if filtered:
        parts.append(f"{filtered:,} are filtered out (data.denoise_seconds, data.crop)")
    raised = "data.timesteps" if use.unit == "rows" else "data.bin_seconds or data.timesteps"
    advice = f": raise {raised}" if late else ""
    return [f"{' and '.join(parts)}, the last event is at {use.ends()[1]}{advice}"]


def _suspicious_events(workload: Workload, part: SpikeDataset) -> list[str]:
    """Why the events that are used are not those that were recorded."""
    use, data, found = part.use, workload.data, []
    assert use is not None
    first, last = use.ends()
    empty, there = int(((use.read > 0) & (use.used == 0)).sum()), int((use.read > 0).sum())
    if empty > MANY_EMPTY * there:
        found.append(f"no event is used of {empty:,} of {there:,} samples: times count from the start of each sample")
    filled, few = int((part.counts > 0).sum(axis=1).max()), max(1, data.timesteps // CROWDED)
    if data.timesteps > 1 and filled <= few < use.used.max():
        found.append(
            f"no sample has events in more than {filled} of {counted(data.timesteps, 'timestep')} (times are from "
            f"{first} to {last}): look at the unit of the times, or lower data.bin_seconds"
        )
    return found


def sample_warnings(workload: Workload, data: tuple[SpikeDataset, SpikeDataset]) -> tuple[str, ...]:
    """All that is wrong with the samples, for points that have no report."""
    text, noted, wrong = _describe_events(workload, data)
    return (*([text] if noted or wrong else []), *absent_classes(workload, data))


def absent_classes(workload: Workload, data: tuple[SpikeDataset, SpikeDataset]) -> Iterator[str]:
    """Said of classes without a sample to train on, or to test with."""
    train, test = data
    kept, _ = split(train.samples, workload.training.validation_share, workload.seed)
    untrained, untested = (
        np.flatnonzero(np.bincount(labels, minlength=train.classes)[: train.classes] == 0)
        for labels in (train.labels[kept], test.labels)
    )
    if untrained.size:
        never = np.array_equal(untrained, untested)
        which = "neither to train on nor to test with" if never else "to train on"
        yield f"{_classes(untrained, train.classes)} no sample {which}: {_advice(workload, untrained, train)}"
    # labels of random samples are random too, and no accuracy is worth anything
    if test.samples and untested.size and not np.array_equal(untrained, untested) and workload.data.source != "random":
        yield f"{_classes(untested, train.classes)} no sample to test with, so the test accuracy says nothing of them"


def _classes(absent: np.ndarray, classes: int) -> str:
    """'3 of 10 classes (0 and 8 to 9) have'."""
    pieces = np.split(absent, np.flatnonzero(np.diff(absent) > 1) + 1)
    ranges = [f"{one[0]}" if one.size == 1 else f"{one[0]} to {one[-1]}" for one in pieces]
    more = f" and {len(ranges) - MOST_RANGES:,} more" if len(ranges) > MOST_RANGES else ""
    have = "has" if absent.size == 1 else "have"
    return f"{absent.size:,} of {counted(classes, 'class', 'classes')} ({', '.join(ranges[:MOST_RANGES])}{more}) {have}"


def _advice(workload: Workload, absent: np.ndarray, train: SpikeDataset) -> str:
    """What to change so that every class has a sample."""
    data = workload.data
    if data.train_samples and data.train_samples <= train.samples:
        return f"raise data.train_samples = {data.train_samples:,}"
    if data.source == "events" and absent.tolist() == [0]:
        return "if the labels of the file count from 1, subtract 1 and lower data.classes"
    if data.source == "events":
        return "the network learns never to choose them; lower data.classes, or add samples of them"
    return "the network learns never to choose them"
