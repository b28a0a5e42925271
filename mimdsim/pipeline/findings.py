"""What is said before the numbers: of the samples, how many events of recordings are used, and classes that never
occur; of layers, those that never fire, or always; of a training, that it taught nothing."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from mimdsim.base.console import Progress
from mimdsim.base.errors import MimdsimError
from mimdsim.base.rng import stream
from mimdsim.base.units import counted
from mimdsim.compiler import Compiled
from mimdsim.execution import Executor, TrainingLog, constant_layers, scheduled_values
from mimdsim.execution.activity import Firing, run_recorded, spike_shares
from mimdsim.execution.trainer import draw_randomness, load_batch, split
from mimdsim.graph import SpikingNetwork
from mimdsim.graph.names import INPUT
from mimdsim.profile import FIRING, Finding
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


# ---- layers that never fire, or always: said before any time, with a setting that was tried and mends it.
#
# What a network's lists hold decides its times, so those of a network that does nothing answer no question.


MOST_NAMED = 6  # layers in a message
# batches, and samples, that are looked at where a layer is silent in those that are timed
LEAST_BATCHES, LEAST_SAMPLES = 4, 64
LONGEST_TRIED = 5  # training steps with a setting
LONGEST_WHOLE = 30  # training steps of a training that is tried again as a whole
SHARE = 0.05  # of the neurons in a timestep: as in the authors' accuracy study (`execution/initial.py`)
FACTORS = (4.0, 32.0, 256.0, 4096.0)  # on the scale of the weights, or of the threshold
LENGTH = ("training", "max_training_steps")
Changes = dict[tuple[str, str], Any]  # by section and key
Again = Callable[[Workload, int], TrainingLog]  # so many training steps of a changed workload, on the same samples


def firing_findings(
    workload: Workload, compiled: Compiled, data: SpikeDataset, log: TrainingLog, again: Again, progress: Progress
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """What is wrong with layers whose spikes tell nothing, and what mends it; and a warning of layers of which only the
    training step that is timed has no spikes."""
    network = compiled.network
    constant = constant_layers(network, log.activity)
    if not constant:
        return (), ()
    batches = max(LEAST_BATCHES, -(-LEAST_SAMPLES // network.batch))
    others = _other_batches(compiled, data, log.weights, batches)
    chance = {name: how for name, how in constant.items() if any(found.get(name) != how for found in others)}
    constant = {name: how for name, how in constant.items() if name not in chance}
    warnings = [f"{line}, but not in each of {batches} other batches" for line in constant_layer_texts(network, chance)]
    if not constant:
        return (), tuple(warnings)
    said = [*constant_layer_texts(network, constant), f"{batches} other batches show the same"]
    if INPUT in constant:
        more = f"data.activity = {workload.data.activity:g} is the chance of a spike: raise it"
        where = "Look at data.bin_seconds, data.timesteps and the filters of data"
        said.append(more if workload.data.source == "random" else where)
    else:
        said += _out_of_reach(network, constant)
        said += _remedy(workload, network, log, constant, again, progress)
    said.append("Times, ratios and advice hold for these spikes, not for those of a network that works")
    return (Finding(name=FIRING, passed=False, text=f"{'. '.join(said)}."),), tuple(warnings)


def constant_layer_texts(network: SpikingNetwork, constant: Mapping[str, Firing]) -> Iterator[str]:
    """Which layers never fire and which always do in a training step, without a full stop."""
    timed = "in the training step that is timed"
    if INPUT in constant:
        yield f"The input never spikes {timed}"
    silent, full = (
        [layer.name for layer in network.layers if constant.get(layer.name) == how] for how in ("never", "always")
    )
    if silent:
        yield f"{_layer_names(silent)} never {'fires' if len(silent) == 1 else 'fire'} {timed}"
    if full:
        each = "all of its neurons spike" if len(full) == 1 else "all of their neurons spike"
        yield f"{_layer_names(full)} always {'fires' if len(full) == 1 else 'fire'}: {each} in every timestep {timed}"


def _layer_names(names: list[str]) -> str:
    return f"{'Layer' if len(names) == 1 else 'Layers'} {_names(names)}"


def _names(names: list[str]) -> str:
    """'hidden0, hidden1 and output'."""
    shown, left = names[:MOST_NAMED], len(names) - MOST_NAMED
    if left > 0:
        return f"{', '.join(shown)} and {counted(left, 'more layer')}"
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def _other_batches(
    compiled: Compiled, data: SpikeDataset, weights: Mapping[str, np.ndarray], batches: int
) -> list[dict[str, Firing]]:
    """The layers that never fire, or always, in batches of the training samples, with the trained weights."""
    network = compiled.network
    executor = Executor(compiled.program, rounded=True)
    executor.write({**weights, **scheduled_values(network, None, 0, 1)})
    rng = stream(0, "other batches")
    found = []
    for number in range(batches):
        load_batch(executor, data, np.resize(rng.permutation(data.samples), network.batch))
        draw_randomness(executor, "other batches", number)
        found.append(constant_layers(network, run_recorded(executor, network, ("forward",))))
    return found


def _out_of_reach(network: SpikingNetwork, constant: Mapping[str, Firing]) -> Iterator[str]:
    """Layers whose first input comes after the last timestep."""
    names = [layer.name for layer in unreachable_layers(network) if constant.get(layer.name) == "never"]
    if names:
        yield (
            f"No input spike gets to {_names(names)} in {counted(network.timesteps, 'timestep')}: from layer to layer "
            f"it takes one; data.timesteps must be over {max(input_distances(network).values()):,}, or network.delay 0"
        )


def unreachable_layers(network: SpikingNetwork) -> list[Any]:
    """The layers that are further from the input than the sequence is long."""
    far = input_distances(network)
    return [layer for layer in network.layers if far[layer.name] >= network.timesteps]


def input_distances(network: SpikingNetwork) -> dict[str, int]:
    """Of every layer, how many timesteps after a spike of the input it may fire first."""
    far = {INPUT: 0} | {layer.name: network.timesteps + len(network.layers) for layer in network.layers}
    for _ in network.layers:
        for layer in network.layers:
            ways = (far[source.name] + (source.lag or 0) for source in network.terms(layer))
            far[layer.name] = min(far[layer.name], *ways)
    return {layer.name: far[layer.name] for layer in network.layers}


def _remedy(
    workload: Workload,
    network: SpikingNetwork,
    log: TrainingLog,
    constant: Mapping[str, Firing],
    again: Again,
    progress: Progress,
) -> Iterator[str]:
    """A setting with which all layers that can fire do, found by training with it; or what was tried."""
    expected = {layer.name for layer in unreachable_layers(network)}
    if constant.keys() <= expected:
        return
    settings, steps = list(_settings(workload, network, constant)), min(len(log.loss), LONGEST_TRIED)
    begun = _train_with(workload, network, expected, again, {}, 1) if len(log.loss) > 1 else None
    if begun is not None:
        yield f"With the initial weights they do otherwise ({begun[0]} of the neurons spike in a timestep)"
        settings = [{("training", "learning_rate"): workload.training.learning_rate / 10}, *settings]
        steps = min(len(log.loss), LONGEST_WHOLE)
    for place, changes in enumerate(settings):
        progress("looking for a setting at which layers fire", place, len(settings))
        found = _train_with(workload, network, expected, again, changes, changes.get(LENGTH, steps))
        if found is not None:
            shares, length = found
            typed = " ".join(f"--set {'.'.join(key)}={value:g}" for key, value in changes.items())
            of = f" of {len(log.loss):,}" if length < len(log.loss) else ""
            tried = f"tried for {length:,}{of} training step{'s' if length != 1 or of else ''}"
            which = "all other layers" if expected else "all layers"
            yield f"With  {typed}  {which} work ({tried}; neurons that spike in a timestep: {shares})"
            return
    names = dict.fromkeys(".".join(key) for changes in settings for key in changes)
    yield f"No value that was tried of {', '.join(names)} mends it: look at the inputs and the neurons"


def _settings(workload: Workload, network: SpikingNetwork, constant: Mapping[str, Firing]) -> Iterator[Changes]:
    """Changes that may mend it, the mildest first."""
    recipe = workload.training
    if 0 < recipe.max_training_steps < LONGEST_WHOLE:
        yield {LENGTH: LONGEST_WHOLE}
    room = min(network.most_spikes(layer) / layer.neurons for layer in network.layers if layer.spiking)
    share = min(SHARE, float(f"{room / 2:.1g}"))  # lists that are full on average drop spikes in every other timestep
    yield {("training", "initial_activity"): share}
    yield {("training", "initial_activity"): share, ("training", "initial_activity_tolerance"): 0.5}
    offset = type(recipe).model_fields["weight_offset"].default
    if recipe.weight_offset != offset:
        yield {("training", "weight_offset"): offset, ("training", "initial_activity"): share}
    silent = "never" in constant.values()
    if not recipe.initial_weights and not workload.network.imported:
        for factor in FACTORS:
            scale = recipe.weight_scale * (factor if silent else 1 / factor)
            yield {("training", "weight_scale"): float(f"{scale:.4g}")}
    threshold = workload.network.threshold
    if workload.network.neuron == "lif" and not workload.network.imported and isinstance(threshold, float | int):
        second = workload.network.second_threshold
        for factor in (1 / each if silent else each for each in FACTORS):
            below = {("network", "second_threshold"): float(f"{second * factor:.4g}")} if silent and second > 0 else {}
            yield {("network", "threshold"): float(f"{threshold * factor:.4g}"), **below}


def _train_with(
    workload: Workload, network: SpikingNetwork, expected: set[str], again: Again, changes: Changes, steps: int
) -> tuple[str, int] | None:
    """What share of the neurons of each layer spikes in a timestep after at most so many training steps with the
    changes, and how many there were; None if some layer still never fires, or always."""
    sections: dict[str, dict[str, Any]] = {}
    for (section, name), value in changes.items():
        sections.setdefault(section, {})[name] = value
    update = {section: getattr(workload, section).model_copy(update=keys) for section, keys in sections.items()}
    with contextlib.suppress(MimdsimError):
        log = again(workload.model_copy(update=update), steps)
        if constant_layers(network, log.activity).keys() <= expected:
            shares = [(name, one) for name, one in spike_shares(network, log.activity).items() if name not in expected]
            more = f" and {counted(len(shares) - MOST_NAMED, 'more layer')}" if len(shares) > MOST_NAMED else ""
            said = ", ".join(f"{name} {_percent(one)}" for name, one in shares[:MOST_NAMED])
            return f"{said}{more}", len(log.loss)
    return None


def _percent(share: float) -> str:
    digits = max(1, -math.floor(math.log10(100 * share))) if share else 1
    return f"{100 * share:.{digits}f} %"


LEAST_TRAINED = 20  # assumed: training steps before which no accuracy is expected
LEAST_LOSSES = 100  # whose first and last fifths tell whether the loss moves
EXACT = 1e-6  # of the loss: scores that are all equal, within float32 rounding
STILL = 0.01  # of the loss: what it must have moved by
NEAR_GUESSING = 0.9  # of the loss of a guess: what a trained network that stays as good is below
MARGIN = 0.15  # assumed: how far above guessing an accuracy may be by chance and samples still tell
SURE = 1.645  # standard errors: one side of a normal distribution, 95 %


def learning_findings(
    workload: Workload, data: tuple[SpikeDataset, SpikeDataset], log: TrainingLog
) -> tuple[Finding, ...]:
    """What is wrong with a loss and an accuracy that no training brought about; nothing where labels are random."""
    found = [loss_plateau(workload, data[0].classes, np.asarray(log.loss, np.float64))]
    if workload.data.source != "random":
        found.append(chance_accuracy(data, log))
    text = ". ".join(filter(None, found))
    return (Finding(name="learning", passed=False, text=f"{text}."),) if text else ()


def label_warning(workload: Workload, data: tuple[SpikeDataset, SpikeDataset], log: TrainingLog) -> Iterator[str]:
    """Said of random samples, on which an accuracy is that of guessing."""
    if workload.data.source == "random" and chance_accuracy(data, log, sure=False):
        why = "labels do not depend on spikes, so the test accuracy can only be that of guessing"
        yield f'data.source = "random": {why}'


def loss_plateau(workload: Workload, classes: int, loss: np.ndarray) -> str:
    """Said of a loss that is that of guessing from first to last, or certainly moves by less than `STILL`."""
    recipe = workload.training
    guess = math.log(classes) * (workload.data.timesteps - recipe.burn_in if recipe.reading == "every" else 1)
    entropy = recipe.loss == "cross_entropy" and not recipe.firing_strength
    named = f"ln {classes:,} = {math.log(classes):.4g}" + (" per timestep" if recipe.reading == "every" else "")
    if entropy and classes > 1 and len(loss) > 1 and (np.abs(loss - guess) <= EXACT * guess).all():
        return (
            f"The loss is that of a guess, {named}, in all {len(loss):,} training steps: the outputs are the same for "
            "every class"
        )
    part = len(loss) // 5
    if len(loss) < LEAST_LOSSES:
        return ""
    first, last = loss[:part], loss[-part:]
    fell = float(first.mean() - last.mean())
    off = math.sqrt((first.var() + last.var()) / part)
    if abs(fell) + SURE * off > STILL * abs(first.mean()) or (entropy and last.mean() < NEAR_GUESSING * guess):
        return ""
    against = f"; a guess has {named}" if entropy else ""
    return (
        f"The loss does not move: {first.mean():.4g} in the first fifth of {len(loss):,} training steps, "
        f"{last.mean():.4g} in the last{against}"
    )


def chance_accuracy(data: tuple[SpikeDataset, SpikeDataset], log: TrainingLog, *, sure: bool = True) -> str:
    """Said of a test accuracy that naming the most frequent class reaches too, as far as so many samples can tell (or
    may reach, unless `sure`)."""
    curve = log.test_accuracy_by_epoch
    labels = data[1].labels
    if not curve or not len(labels) or (sure and len(log.loss) < LEAST_TRAINED):
        return ""
    accuracy = curve[-1 if log.best_epoch is None else log.best_epoch]
    chance = float(np.bincount(labels).max() / len(labels))
    beyond = chance + SURE * math.sqrt(chance * (1 - chance) / len(labels))
    too_few = beyond - chance > MARGIN or beyond >= (1 + chance) / 2
    if accuracy > beyond or (sure and too_few):
        return ""
    return (
        f"The test accuracy, {accuracy:.1%} on {counted(len(labels), 'sample')}, is no better than naming the most "
        f"frequent class every time ({chance:.1%})"
    ).replace("%", " %") + f", after {counted(len(log.loss), 'training step')}"
