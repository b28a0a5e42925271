"""The main findings: does it fit, how long does it take, which machine is faster, what wastes time; and the
same for scripts."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from mimdsim.base.units import counted, show_bytes
from mimdsim.profile import FIRING, InferenceTime, RunProfile, TiledProfile
from mimdsim.report.formatting import (
    changed_fields,
    duration,
    interval,
    milliseconds,
    reach,
    share,
    significant,
    thousands,
)
from mimdsim.report.machine_comparison import (
    GPU_PARTS,
    PARTS,
    Contender,
    by_operation,
    contenders,
    gpu_of,
    seconds_by_part,
    strongest_gpu,
)
from mimdsim.report.tables_machines import inference_verdict

OF_SPIKES = ("time", "advice", "machine", "GPU", "inference")  # subjects whose numbers depend on what layers fire
MOST_ADVICE = 3  # pieces of it in the summary; the others are in a table
UNBALANCED = 0.5  # share of the time that balance would save, from which on it is bad news; assumed
FULL_LISTS_WARNING = 0.01  # assumed: below one list in a hundred, dropped spikes do not move the accuracy visibly


class Verdict(NamedTuple):
    """One finding: subject ('memory', 'time', ...), mood ('good', 'bad', 'note'), the sentence, and where the page
    shows it: words of the sentence and the fragment of an address; those with '=' are selections of the walk. command:
    what carries advice out, '' for none."""

    subject: str
    mood: str
    text: str
    links: tuple[tuple[str, str], ...] = ()
    command: str = ""


Said = tuple[str, str]  # mood and sentence
Links = tuple[tuple[str, str], ...]


def verdicts(profile: RunProfile) -> tuple[Verdict, ...]:
    """The findings of a profile, most important first."""
    found: list[Verdict] = []
    others = contenders(profile)
    found += [Verdict(one.name, one.mood, one.text) for one in profile.findings]
    ready = [one for one in others if (one.tiled or one.strongest) and one.fits and not one.against]
    if len(ready) > 2 and any(one.reference for one in ready):  # a question of machines, which is answered first
        ready.sort(key=lambda one: one.seconds)
        order = ", ".join(f"{one.title} {milliseconds(one.seconds)} ms" for one in ready)
        rest = [one for one in others if one.tiled and one not in ready]
        unfit = "; ".join(one.title for one in rest if not one.fits)
        unknown = "; ".join(one.title for one in rest if one.fits)
        said = f"Fastest first: {order}." + f" Does not fit: {unfit}." * bool(unfit)
        said += f" Time unknown: {unknown}." * bool(unknown)
        found.append(Verdict("machines", "note", said, (("Fastest first", "comparison"),)))
    if profile.tiled is not None:
        if not any(one.name == "memory" for one in profile.findings):
            found.append(Verdict("memory", *_memory(profile.tiled), _peak_links(profile.tiled)))
        found.append(Verdict("time", *_time(profile.tiled, profile.batch), (("interval", "table-doubts"),)))
    advice = () if profile.tiled is not None and profile.tiled.incomparable else profile.advice
    found += [
        Verdict("advice", "note", f"{one}.", ((one.what, "table-advice"),), one.command) for one in advice[:MOST_ADVICE]
    ]
    found += [
        Verdict("machine", *_other_machine(one, reference))
        for reference in others
        if reference.reference
        for one in others
        if one.tiled and not one.reference
    ]
    rival = strongest_gpu(others)
    if rival is not None:
        found.append(Verdict("GPU", *_comparison(rival, profile.tiled), ((rival.label, "comparison"),)))
        found += [
            Verdict("GPU", "note", _behind(one, rival), ((one.label, "comparison"),))
            for one in others
            if one.strongest and not one.tiled and one is not rival
        ]
        if why := _by_kernel(rival, profile):
            found.append(Verdict("GPU", "note", why, (("difference", "table-operations"),)))
    found += [
        Verdict("GPU memory", "bad", f"{one.label} needs {one.bytes_of_memory}: does not fit.")
        for one in others
        if not one.tiled and not one.fits
    ]
    found += [Verdict("inference", *inference_verdict(one)) for one in profile.inference[:1]]
    found += _training(profile)
    if profile.tiled is not None and profile.tiled.spans and not profile.tiled.unknown:
        found += [_bottleneck(profile.tiled), _balance(profile.tiled)]
    found += _spikes(profile)
    if any(one.name == FIRING and not one.passed for one in profile.findings):
        caveat = f" This holds for these spikes only: see {FIRING}."
        found = [one._replace(mood="bad", text=one.text + caveat) if one.subject in OF_SPIKES else one for one in found]
    return tuple(sorted(found, key=lambda one: (one.subject, one.mood) != ("accuracy", "bad")))  # that first


def waiting_cycles(tiled: TiledProfile) -> float:
    """Compute cycles that perfect balance over the used tiles would save: slowest tile less mean tile, summed."""
    if not tiled.tiles_used:
        return 0.0
    return max(tiled.compute_cycles - sum(span.busy_cycles for span in tiled.spans) / tiled.tiles_used, 0.0)


def _memory(tiled: TiledProfile) -> Said:
    memory = tiled.memory
    if memory.fits:
        used = share(memory.peak_bytes, memory.limit_bytes)
        return "good", f"Fits: peak {memory.peak_of_limit} ({used}) on tile {thousands(memory.peak_tile)}."
    if memory.peak_bytes <= memory.limit_bytes:
        return "bad", "Does NOT fit: code and vertex state need more than the executable region of a tile."
    if memory.code_alone:
        return "bad", f"Does NOT fit: {memory.code_alone}."
    over = show_bytes(memory.peak_bytes - memory.limit_bytes)
    text = f"Does NOT fit: tile {thousands(memory.peak_tile)} needs {memory.peak_of_limit}, {over} too much."
    if memory.largest_on_peak_tile:
        name, category, nbytes = memory.largest_on_peak_tile[0]
        text += f" Largest there: {name} ({category}), {show_bytes(nbytes)}."
    return "bad", text


def _peak_links(tiled: TiledProfile) -> Links:
    """The fullest tile, in the superstep in which it is fullest."""
    memory = tiled.memory
    sizes = [point.fullest_tile_bytes for point in memory.liveness if point.fullest_tile == memory.peak_tile]
    at = [point.fullest_tile_bytes for point in memory.liveness].index(max(sizes)) if sizes else -1
    where = f"tile={memory.peak_tile}" + (f"&superstep={at}" if at >= 0 else "")
    return ((f"tile {thousands(memory.peak_tile)}", f"{where}&measure=memory"),)


def _time(tiled: TiledProfile, batch: int) -> Said:
    seconds = tiled.seconds_per_training_step
    rate = f", {significant(batch / seconds)} samples per second" if seconds and tiled.trains else ""
    rate = rate if tiled.trains else f", {significant(1e6 * seconds)} microseconds,"
    if tiled.unknown:
        whole = f"{duration(tiled, seconds)} per {tiled.run_name} on {tiled.title}"
        return "bad", f"Unknown: {tiled.unknown}; with them {whole}."
    return "note", f"{duration(tiled, seconds)} per {tiled.run_name} (interval {reach(tiled)}){rate} on {tiled.title}."


def _why(one: Contender, reference: Contender) -> str:
    """What makes most of the difference between two machines of a kind: ', mostly by exchange (0.60 and 0.21 ms)'."""
    slower, faster = (one, reference) if one.seconds > reference.seconds else (reference, one)
    parts = list(zip(PARTS if one.tiled else GPU_PARTS, slower.parts, faster.parts, strict=True))
    name, much, little = max(parts, key=lambda part: part[1] - part[2])
    if slower.seconds <= 0 or much - little <= 0.05 * slower.seconds:
        return ""
    name = name if one.tiled else f"{name}-bound kernels"
    both = f" and {milliseconds(little)} ms" if little else " ms; the faster has none"
    return f", mostly by {name} ({milliseconds(much)}{both})"


def _other_machine(one: Contender, reference: Contender) -> Said:
    fits = "" if one.fits else f", which it does not fit ({one.lacks})"
    if one.against and not one.unknown:
        of_reference = "the reference's " * (one.against == reference.unknown)
        why = f", because {of_reference}{one.against}" if one.fits else ": a time with more memory, not compared"
        text = f"{milliseconds(one.seconds)} ms on {one.title}{fits}{' is not compared' if one.fits else ''}{why}."
        return "bad", text
    if one.unknown:
        text = f"Unknown against the reference: {one.unknown}; with them {milliseconds(one.seconds)} ms on {one.title}"
        return "bad", f"{text}{fits}."
    if not one.decided:
        against = f"undecided against the reference ({one.margin_words})"
    else:
        against = f"{'the reference' if (one.ratio or 0) > 1 else 'it'} is {one.margin_words}{_why(one, reference)}"
    span = f"{milliseconds(one.seconds)} ms (interval {interval(one.low, one.high)} ms)"
    return "note" if one.fits else "bad", f"{span} on {one.title}{fits}: {against}."


def _comparison(rival: Contender, tiled: TiledProfile | None) -> Said:
    span = f"{milliseconds(rival.seconds)} ms, interval {interval(rival.low, rival.high)} ms"
    if tiled is None or not rival.ratio:
        return "note", f"Strongest GPU strategy: {rival.label} ({span})."
    strongest = f"strongest GPU strategy, {rival.label} ({span})"
    if rival.against:
        return "bad", f"Unknown against the {strongest}: {rival.against}."
    if not rival.decided:
        return "note", f"Undecided against the {strongest}: {rival.margin_words}."
    if rival.ratio > 1:
        return "good", f"The tiled machine is {rival.margin_words} than the {strongest}."
    return "bad", f"The {strongest}, is {rival.margin_words} than the tiled machine."


def _behind(one: Contender, strongest: Contender) -> str:
    """The time of another GPU, and what of it the strongest spends less on."""
    span = f"{milliseconds(one.seconds)} ms (interval {interval(one.low, one.high)} ms)"
    slower = f"{significant(one.seconds / strongest.seconds, 2)}× the time of the strongest{_why(one, strongest)}"
    return f"{span} on {one.label}: {f'{one.ratio_words}; ' if one.ratio else ''}{slower}."


def _by_kernel(rival: Contender, profile: RunProfile) -> str:
    """Where most of the difference to a GPU is made, operation by operation, and what bounds its kernels: 'Most
    of the difference: ...'; '' where their operations cannot be told apart."""
    if profile.tiled is None or rival.against or not rival.ratio:
        return ""
    gpu = gpu_of(rival, profile)
    rows = by_operation(profile.tiled, gpu)
    sign = 1 if profile.tiled.seconds_per_training_step > gpu.seconds_per_training_step else -1
    most = sorted(rows, key=lambda row: sign * (row.gpu_seconds - row.tiled_seconds))[:2]
    told = [
        f"{row.words} ({milliseconds(row.tiled_seconds)} ms on the tiles, {milliseconds(row.gpu_seconds)} on the GPU)"
        for row in most
        if sign * (row.tiled_seconds - row.gpu_seconds) > 0
    ]
    if not told:
        return ""
    bound = max(GPU_PARTS, key=lambda part: rival.parts[GPU_PARTS.index(part)])
    over = share(rival.parts[GPU_PARTS.index(bound)], rival.seconds)
    by = {"memory": "its memory", "host": "its host", "launch": "launching kernels", "compute": "arithmetic"}[bound]
    return f"Most of the difference: {' and '.join(told)}; {over} of the GPU's time is bound by {by}."


def _training(profile: RunProfile) -> list[Verdict]:
    training = profile.training
    if training is None:
        return []
    wrong = next((index for index, loss in enumerate(training.loss) if not math.isfinite(loss)), None)
    if wrong is not None:
        text = f"Loss is not finite from training step {thousands(wrong + 1)} on; lower the learning rate."
        return [Verdict("training", "bad", text)]
    trained = f"after {counted(training.training_steps, 'training step')} of batch {thousands(training.batch)}"
    if training.test_accuracy is not None:
        text = f"Test accuracy {training.test_accuracy:.1%} on {counted(training.test_samples, 'sample')} {trained}"
    elif training.train_accuracy is not None:
        text = f"Training accuracy {training.train_accuracy:.1%} {trained}; no test split was evaluated"
    elif training.loss:
        text = f"Last loss {significant(training.loss[-1])} {trained}; no accuracy was evaluated"
    else:
        return []
    mood = "note"
    if training.test_accuracy_all_spikes is not None:
        text += f"; {training.test_accuracy_all_spikes:.1%} where no list drops a spike, as in PyTorch or a NIR file"
    if training.lists_matter:
        mood = "bad"
        short = [f"'{layer.layer}'" for layer in profile.activity if layer.dropped] or ["the lists that are full"]
        text += (
            f". The weights are right with these lists only: raise the capacity of {', '.join(short)}, or train with "
            "lists that hold every spike"
        )
    return [Verdict("accuracy", mood, text.replace("%", " %") + ".")]


def _is_of_the_host(tiled: TiledProfile) -> bool:
    """Whether the host, which streams batches ahead, takes longer than the device, and so as long as the step."""
    return tiled.host_exposed_seconds > 0 and tiled.host_seconds >= tiled.seconds_per_training_step * (1 - 1e-6)


def _bottleneck(tiled: TiledProfile) -> Verdict:
    compute, exchange, *others = (*seconds_by_part(tiled, tiled.spans), tiled.host_exposed_seconds)
    behind = tiled.seconds(tiled.memory_cycles)
    parts = (compute, exchange - behind, *others, behind)
    names = ("compute", "internal exchange", "sync", "exposed host exchange", "memory behind the tiles")
    total = tiled.seconds_per_training_step
    name, seconds = max(zip(names, parts, strict=True), key=lambda part: part[1])
    span = max(tiled.spans, key=lambda one: one.cycles)
    if _is_of_the_host(tiled):
        device = duration(tiled, total - tiled.host_exposed_seconds)
        waits = share(tiled.host_exposed_seconds, total)
        text = f"The host: the device needs {device} and waits for {waits} of the time; a faster one saves nothing."
        return Verdict("bottleneck", "bad", text)
    text = (
        f"{name.capitalize()} takes {share(seconds, total)} of the time; the longest superstep, {span.name} "
        f"({span.phase}), takes {share(tiled.seconds(span.cycles), total)}."
    )
    tile = f"&tile={span.slowest_tile}" if span.compute_cycles else ""
    return Verdict("bottleneck", "note", text, ((span.name, f"superstep={tiled.spans.index(span)}{tile}"),))


def _balance(tiled: TiledProfile) -> Verdict:
    busy = tiled.tile_columns.busy_cycles
    busiest = max(range(len(busy)), key=lambda tile: busy[tile], default=0)
    saved = 0.0 if _is_of_the_host(tiled) else tiled.seconds(waiting_cycles(tiled))
    text = (
        f"Tile balance {tiled.tile_balance:.2f} (mean over busiest, tile {thousands(busiest)}); perfect balance in "
        f"every superstep would save at most {duration(tiled, saved)} "
        f"({share(saved, tiled.seconds_per_training_step)})."
    )
    if not tiled.trains and tiled.tiles_used < tiled.tiles:
        left = tiled.tiles - tiled.tiles_used
        idle = f"{thousands(left)} of {counted(tiled.tiles, 'tile')} ({share(left, tiled.tiles)})"
        text += f" {idle} are idle, which balance leaves out."
    mood = "bad" if saved > UNBALANCED * tiled.seconds_per_training_step else "note"
    links = ((f"tile {thousands(busiest)}", f"tile={busiest}"), ("perfect balance", "table-balance"))
    return Verdict("balance", mood, text, links)


def _spikes(profile: RunProfile) -> list[Verdict]:
    found = []
    for layer in profile.activity:
        everything_fits = layer.capacity >= layer.neurons  # a full list then holds every neuron, and nothing is lost
        if layer.dropped or (layer.full_lists > FULL_LISTS_WARNING and not everything_fits):
            text = f"Layer {layer.layer}: {share(layer.full_lists, 1)} of its spike lists are full, "
            if layer.dropped:
                text += (
                    f"{counted(layer.dropped, 'spike')} dropped; a capacity above {thousands(layer.capacity)} keeps "
                    "more, but takes longer."
                )
            else:
                text += (
                    "no spike is dropped, but neurons near the threshold get no gradient then; a capacity above "
                    f"{thousands(layer.capacity)} lists more of them, but takes longer."
                )
            found.append(Verdict("spikes", "bad" if layer.dropped else "note", text))
    return found


# ---- the headline figures of a run as one record, for scripts: `mimdsim run --json`, documented in docs/using.md.
#
# Keys stay as they are; more may be added. A figure has a `value`, its `unit`, and where they are known the ends `low`
# and `high` of its interval.


VERSION = 1  # of the document; raised if a key is removed or changes its meaning
Record = dict[str, Any]


def figure(value: float | None, unit: str, low: float | None = None, high: float | None = None, **more: Any) -> Record:
    """A number with its unit; low, high: the ends of its interval."""
    ends = {} if low is None or high is None else {"low": low, "high": high}
    return {"value": value, "unit": unit, **ends, **more}


def headline_record(profile: RunProfile) -> Record:
    """What the console says first, as texts and numbers; None where there is nothing to say."""
    tiled, training = profile.tiled, profile.training
    accuracy = None if training is None else training.test_accuracy
    return {
        "version": VERSION,
        "workload": profile.workload,
        "network": profile.network,
        "timesteps": profile.timesteps,
        "batch": profile.batch,
        "seed": profile.seed,
        "changes": dict(changed_fields(profile)),
        "config_sha256": profile.config_sha256,
        **(_of_machine(tiled, profile.batch) if tiled is not None else {}),
        "test_accuracy": figure(accuracy, "share") if accuracy is not None else None,
        "machines": [_of_contender(one) for one in contenders(profile) if one.tiled or one.strongest],
        "inference": [
            {"batch": each.batch, **_latency(each.tiled), "gpus": [_latency(gpu) for gpu in each.gpus]}
            for each in profile.inference
        ],
        "advice": [
            {"what": one.what, "command": one.command, "saves": figure(one.gain, "share", one.gain_low, one.gain_high)}
            for one in profile.advice
        ],
        "verdicts": [one._asdict() for one in verdicts(profile)],
        "warnings": list(profile.all_warnings),
    }


def _of_machine(tiled: TiledProfile, batch: int) -> Record:
    seconds = tiled.seconds_per_training_step
    memory, energy, known = tiled.memory, tiled.energy, not tiled.unknown
    parts = {part: figure(getattr(tiled, f"{part}_cycles"), "cycles") for part in ("compute", "exchange", "sync")}
    of_energy = None if energy is None else figure(energy.joules, "J", energy.joules_low, energy.joules_high)
    return {
        "machine": tiled.machine,
        "machine_title": tiled.title,
        "chips": tiled.chips,
        "fits": memory.fits,
        "unknown": tiled.unknown,
        "time": figure(seconds, "s", *((tiled.seconds_low, tiled.seconds_high) if known else ())),
        "cycles": figure(tiled.cycles, "cycles"),
        **parts,
        "samples_per_second": figure(batch / seconds if seconds else None, "1/s"),
        "peak_memory": figure(memory.peak_bytes, "B", limit=memory.limit_bytes, tile=memory.peak_tile),
        "tiles_used": figure(tiled.tiles_used, "tiles", of=tiled.tiles),
        "tile_balance": figure(tiled.tile_balance, "share"),
        "saved_by_perfect_balance": figure(tiled.seconds(waiting_cycles(tiled)), "s"),
        "energy": of_energy,
    }


def _of_contender(one: Contender) -> Record:
    """One machine beside the reference: its time, and the ratio of it to the reference's."""
    compared = None if one.reference or one.against or not one.ratio else one.ratio
    return {
        "machine": one.title,
        "strategy": one.strategy,
        "precision": one.precision,
        "tiled": one.tiled,
        "reference": one.reference,
        "fits": one.fits,
        "time": figure(one.seconds, "s", one.low, one.high),
        "ratio_to_reference": None if compared is None else figure(compared, "1", one.ratio_low, one.ratio_high),
        "decided": compared is not None and one.decided,
        "why_not_compared": one.against,
    }


def _latency(one: InferenceTime) -> Record:
    return {"machine": one.machine, "latency": figure(one.latency_seconds, "s", one.latency_low, one.latency_high)}
