"""Tables of machines side by side: time, energy, area and power; the assumptions under them; changes that save time;
inference."""

from __future__ import annotations

from mimdsim.base.shown import in_order
from mimdsim.base.units import SOURCE_KINDS, bytes_of, counted
from mimdsim.profile import GpuProfile, Inference, InferenceTime, RunProfile, TiledProfile
from mimdsim.report.formatting import interval, milliseconds, plain, significant, thousands
from mimdsim.report.machine_comparison import (
    PARTS,
    by_operation,
    contenders,
    gpu_of,
    inverse,
    strongest_gpu,
    times_faster,
)
from mimdsim.report.tables import Cell, Table, Value, aligned_ms, percent, shown, size, table, text, three_digits

PART_WORDS = {"compute": "compute-bound", "memory": "memory-bound", "launch": "launch-bound", "host": "host"}


def comparison_table(profile: RunProfile) -> Table:
    """Every machine and strategy; the strongest of each GPU is marked."""
    rows = []
    for one in contenders(profile):
        tag = "strong" if one.tiled or one.strongest else ""
        names = PARTS if one.tiled else tuple(PART_WORDS.values())
        part = max(range(len(one.parts)), key=lambda index: one.parts[index])
        ratio = shown("1" if one.reference else significant(one.ratio), one.ratio) if one.ratio else "–"
        rows.append(
            (
                text(("★ " if one.strongest else "") + one.title, tag),
                text(one.strategy, tag),
                one.precision or "–",
                Cell(text=milliseconds(one.seconds), value=one.seconds, tag=tag),
                "unknown" if one.unknown and one.tiled else shown(interval(one.low, one.high), one.low),
                "–" if one.against else ratio,
                text(one.ratio_words if one.fits else "does not fit its memory", tag),
                f"{names[part]} {percent(one.parts[part], one.seconds).text}",
                shown(one.bytes_of_memory, one.bytes_needed),
                one.description,
            )
        )
    more = ", but for two tiled machines the same ends, because their cycles have the same sources"
    return table(
        "comparison",
        "Milliseconds per training step on every machine and strategy",
        (
            "machine", "strategy", "precision", "ms", "interval ms", "ratio", "who is faster (interval)",
            "mostly", "memory", "how",
        ),
        rows,
        "★ is the fastest strategy of its GPU that fits. Ratio: GPU over tiled; its interval pairs opposite ends of "
        f"both intervals{more if profile.tiled_beside else ''}; the memory of the tiled machine is that of its fullest "
        "tile.",
        title="Comparison, ms per training step",
        page_only=("ratio", "mostly", "memory", "how"),
        said=("", "* the fastest strategy of its GPU that fits"),
    )  # fmt: skip


def phase_comparison_table(profile: RunProfile) -> Table | None:
    """Milliseconds by phase: the tiled machine and the strongest strategy of every GPU; None if there is no pair."""
    found = [one for one in contenders(profile) if one.tiled or one.strongest]
    if len(found) < 2:
        return None
    by_phase = [dict(one.phases) for one in found]
    phases = [*in_order(name for table in by_phase for name in table if name != "host")]
    phases += ["host"] * any(table.get("host") for table in by_phase)
    longest = max(one.seconds for one in found)
    rows: list[list[Value]] = [
        [phase, *(aligned_ms(seconds.get(phase, 0.0), longest) for seconds in by_phase)] for phase in phases
    ]
    whole: list[Value] = ["all", *(aligned_ms(one.seconds, longest) for one in found)]
    headers = ("phase", *(f"{one.label}, ms" for one in found))
    caption = "The same training step phase by phase (strongest strategies)"
    return table("phase_comparison", caption, headers, rows, total=whole)


def operations_table(profile: RunProfile) -> Table | None:
    """The tiled machine and the strongest GPU strategy, operation by operation; None without both."""
    rival = strongest_gpu(contenders(profile))
    if rival is None or profile.tiled is None or not rival.ratio or rival.against:
        return None
    longest = max(rival.seconds, profile.tiled.seconds_per_training_step)
    rows = [
        (
            one.words,
            one.phase,
            aligned_ms(one.tiled_seconds, longest),
            aligned_ms(one.gpu_seconds, longest),
            aligned_ms(one.tiled_seconds - one.gpu_seconds, longest),
            one.launches,
            one.bound or "–",
        )
        for one in by_operation(profile.tiled, gpu_of(rival, profile))
    ]
    return table(
        "operations",
        f"Where {rival.label}, is faster or slower, operation by operation",
        ("operations", "phase", "tiles ms", "GPU ms", "difference ms", "launches", "GPU bound by"),
        rows,
        "Operations that one kernel or one superstep does are told together. Tiles: with exchange and sync; what only "
        "one of the machines does has no time on the other.",
    )


def kernels_table(profile: RunProfile, most: int) -> Table | None:
    """The kernels of the strongest GPU strategy, longest first; None without one."""
    rival = strongest_gpu(contenders(profile))
    if rival is None:
        return None
    spans = sorted(gpu_of(rival, profile).spans, key=lambda span: -span.seconds)
    rows = [
        (
            span.name,
            span.op,
            span.phase,
            span.times,
            aligned_ms(span.seconds, rival.seconds),
            percent(span.seconds, rival.seconds),
            span.bound,
            shown(significant(span.flops / 1e6), span.flops),
            size(span.bytes_moved),
        )
        for span in spans[:most]
    ]
    left = len(spans) - len(rows)
    return table(
        "kernels",
        f"Kernels of {rival.label}, longest first",
        ("kernel", "operation", "phase", "launches", "ms", "share", "bound by", "MFLOP", "moved"),
        rows,
        f"{thousands(left)} shorter kernels are left out." if left else "",
    )


def _owners(profile: RunProfile) -> list[tuple[str, str, TiledProfile | GpuProfile]]:
    """Strategy, precision and profile of every machine, the tiled ones first."""
    tiled = () if profile.tiled is None else (profile.tiled, *profile.tiled_beside)
    gpus = ((gpu.strategy, gpu.precision, gpu) for gpu in profile.gpus)
    return [*(("compiled to tiles", "–", one) for one in tiled), *gpus]


def energy_table(profile: RunProfile) -> Table | None:
    """Every machine and strategy whose description has energies; None if none has."""
    rows: list[tuple[Value, ...]] = []
    for strategy, precision, owner in _owners(profile):
        energy, seconds = owner.energy, owner.seconds_per_training_step
        if energy is None or not energy.joules or not seconds:
            continue
        ends = shown(f"{_millijoules(energy.joules_low)}–{_millijoules(energy.joules_high)}", energy.joules_low)
        a_sample = energy.joules / profile.batch
        rows.append(
            (
                owner.title,
                strategy,
                precision,
                shown(_millijoules(energy.joules), energy.joules),
                ends,
                three_digits(energy.joules / seconds),
                shown(_millijoules(a_sample), a_sample),
                percent(energy.static[0], energy.joules),
            )
        )
    if not rows:
        return None
    return table(
        "energy",
        "Energy of one training step",
        ("machine", "strategy", "precision", "mJ", "interval mJ", "mean W", "mJ a sample", "static"),
        rows,
        "The chip or board only, without host, cooling and power supply. Coefficients and their sources are listed "
        "under 'What is modelled'; most of a tiled machine's are assumed, so look at its interval first.",
        title="Energy of one training step, boards only",
        page_only=("mJ a sample",),
    )


def energy_parts_table(tiled: TiledProfile) -> Table | None:
    """The parts of the tiled machine's energy, largest first; None if its description has none."""
    if tiled.energy is None:
        return None
    rows = [
        (
            part.name,
            part.kind,
            shown(_millijoules(part.joules), part.joules),
            percent(part.joules, tiled.energy.joules),
            shown(_millijoules(part.half_width_joules), part.half_width_joules),
        )
        for part in sorted(tiled.energy.parts, key=lambda part: -part.joules)
    ]
    caption = f"Energy of one {tiled.run_name} on {tiled.title}"
    return table("energy_parts", caption, ("part", "kind of source", "mJ", "share", "plus or minus mJ"), rows)


def _millijoules(joules: float) -> str:
    return significant(1e3 * joules)


def silicon_table(profile: RunProfile) -> Table | None:
    """Area, static and dynamic watts of every tiled machine, all its chips together; None without a tiled machine."""
    if profile.tiled is None:
        return None
    rows: list[list[Value]] = []
    reasons = []
    for one in (profile.tiled, *profile.tiled_beside):
        silicon = one.silicon
        known = silicon is not None and not silicon.unknown
        volts = (
            shown(f"{silicon.volts_low:.2f}–{silicon.volts_high:.2f}", silicon.volts_low) if silicon and known else "–"
        )
        rows.append([one.title, silicon.process if silicon else "–", volts])
        for pair in (one.area_mm2, one.static_watts, one.dynamic_watts):
            if pair is None:
                rows[-1] += ["unknown", "unknown"]
            else:
                low, high = pair[0] - pair[1], pair[0] + pair[1]
                rows[-1] += [three_digits(pair[0]), shown(f"{significant(low)}–{significant(high)}", low)]
        if silicon is None:
            reasons.append(f"{one.machine} has no [area] in its description")
        elif silicon.unknown:
            reasons.append(silicon.unknown)
        elif one.dynamic_watts is None:
            reasons.append(f"{one.machine}: {one.unknown or 'no [energy] in its description'}")
    unknown = "; ".join(map(plain, dict.fromkeys(reasons)))
    return table(
        "silicon",
        "Area and power",
        ("machine", "process", "volts", "mm2", "interval mm2", "static W", "interval W", "dynamic W", "its interval W"),
        rows,
        "All chips of the run. Static: leakage and clock tree, drawn whatever runs; dynamic: everything else that the "
        f"run spends, as a mean over it.{f' Unknown: {unknown}.' if unknown else ''}",
        title="Area and power, all chips",
        page_only=("process",),
        said=("unknown: ", f"{unknown}.") if unknown else ("", ""),
    )


def silicon_parts_table(tiled: TiledProfile) -> Table | None:
    """What area and static power of one chip are made of; None where nothing is known."""
    if tiled.silicon is None:
        return None
    rows = [
        (
            what,
            part.name,
            part.kind,
            shown(f"{significant(part.value)} {unit}", part.value),
            percent(part.value, sum(each.value for each in parts)),
            shown(f"{significant(part.half_width)} {unit}", part.half_width),
        )
        for what, unit, parts in (("area", "mm2", tiled.silicon.area), ("static power", "W", tiled.silicon.static))
        for part in parts
    ]
    caption = f"Area and static power of one chip of {tiled.title}"
    headers = ("of", "part", "least certain source", "size", "share", "plus or minus")
    return table("silicon_parts", caption, headers, rows)


def assumptions_table(profile: RunProfile) -> Table:
    """Every number the results depend on, by machine, once; an assumption that strategies share is not repeated."""
    rows = {
        (owner.title, one.name, one.value, one.kind, one.source): None
        for _, _, owner in _owners(profile)
        for one in owner.assumptions
    }
    kinds = [_kind(kind) for _, _, _, kind, _ in rows]
    counts = [f"{thousands(kinds.count(kind))} {kind}" for kind in SOURCE_KINDS]
    counts += [f"{thousands(kinds.count('other'))} of another kind"] if "other" in kinds else []
    return table(
        "assumptions",
        "The numbers the results rest on",
        ("machine", "name", "value", "kind", "source"),
        [(*row[:3], text(row[3], kind), row[4]) for row, kind in zip(rows, kinds, strict=True)],
        f"{thousands(len(rows))} numbers: {', '.join(counts)}.",
    )


def _kind(kind: str) -> str:
    """The kind of source alone, where it comes with a share of its own ("measured within 3 %")."""
    alone = kind.partition(" within ")[0]
    return alone if alone in SOURCE_KINDS else "other"


NOTE = (
    "the interval is that of the ratio, in which costs that both share are off alike. A change of the machine says "
    "what the machine would gain, not that it can be built. Changes do not add up"
)


def advice_table(profile: RunProfile) -> Table:
    """Changes that save time, most first."""
    rows = [
        (
            one.what,
            one.kind,
            shown(f"{100 * one.gain:.1f} %", one.gain),
            shown(f"{100 * one.gain_low:.1f} to {100 * one.gain_high:.1f} %", one.gain_low),
            one.cycles,
            one.more_bytes,
            one.superstep,
            one.before,
            one.after,
            one.command,
        )
        for one in profile.advice
    ]
    headers = (
        *("change", "of the", "time saved", "interval", "cycles", "more bytes on the fullest tile"),
        *("shortens most", "its cycles", "then", "command"),
    )
    note = f"Each change was compiled and timed with the same spikes; {NOTE}; mimdsim place looks for the best mapping."
    if profile.tiled is not None and not profile.tiled.trains:
        note = f"For each change the kernel was built, checked and timed again; {NOTE}."
    return table("advice", "What would save time", headers, rows, note)


# ---- inference in words and as a table: one sample at a time, and in batches, on tiles and on GPUs


def inference_table(profile: RunProfile) -> Table:
    """Every batch size on every machine."""
    rows = [_row(each, one) for each in profile.inference for one in (each.tiled, *each.gpus)]
    shortest = profile.inference[0]
    return table(
        "inference",
        "Inference: the forward pass alone, with the spikes of test samples on the trained weights",
        (
            "batch", "machine", "how", "ms", "interval ms", "us a timestep", "on the device", "one by one",
            "samples/s", "mJ a sample", "memory", "tiles",
        ),
        rows,
        "ms: from a batch at the host to its scores there. us a timestep: from a timestep's spikes at the "
        "host to its output there, where one timestep is taken after another; on the device: without the copies. "
        "Samples per second: copies hidden behind the batch before. "
        f"Outside of the timesteps the program takes {_microseconds(shortest.fixed_seconds)} at batch "
        f"{shortest.batch}. Means of {counted(shortest.runs, 'run')}; memory: of the fullest tile.",
        title="Inference, the forward pass alone",
        page_only=("on the device", "one by one", "memory", "tiles"),
    )  # fmt: skip


def _row(each: Inference, one: InferenceTime) -> list[Value]:
    tiled = one is each.tiled
    latency, step, alone = one.latency_seconds, one.timestep_latency_seconds, one.timestep_seconds
    unknown = tiled and bool(each.incomparable)
    return [
        each.batch,
        text(one.title, "strong" if tiled else ""),
        one.how,
        shown(milliseconds(latency), latency),
        each.incomparable if unknown else shown(interval(one.latency_low, one.latency_high), one.latency_low),
        "–" if step is None else shown(significant(1e6 * step), step),
        "–" if alone is None else shown(significant(1e6 * alone), alone),
        one.timestep_how or "–",
        shown(significant(each.batch / one.seconds_per_batch), each.batch / one.seconds_per_batch),
        "–" if one.joules is None else shown(significant(1e3 * one.joules / each.batch), one.joules / each.batch),
        bytes_of(each.peak_bytes, each.limit_bytes) if tiled else "–",
        thousands(each.tiles_used) if tiled else "–",
    ]


def inference_verdict(each: Inference) -> tuple[str, str]:
    """Mood and sentence on one batch size."""
    ours = each.tiled
    what = "One sample takes" if each.batch == 1 else f"A batch of {thousands(each.batch)} takes"
    step = ours.timestep_latency_seconds
    said = (
        f"{what} {milliseconds(ours.latency_seconds)} ms (interval {interval(ours.latency_low, ours.latency_high)} ms) "
        f"by the forward pass alone, {_microseconds(step or 0.0)} a timestep if its spikes arrive one by one, "
        f"{_microseconds(ours.timestep_host_seconds)} of these for the host; "
        f"{significant(each.batch / ours.seconds_per_batch)} samples per second"
    )
    if ours.joules is not None:
        said += f", {significant(1e3 * ours.joules / each.batch)} mJ each"
    if each.incomparable:
        return "bad", f"Not compared, because its time is {each.incomparable}; with it: {said}."
    return "note", f"{said}.{_against_gpus(each)}"


def _against_gpus(each: Inference) -> str:
    if not each.gpus:
        return ""
    ours, best = each.tiled, min(each.gpus, key=lambda one: one.latency_seconds)
    ratio = best.latency_seconds * inverse(ours.latency_seconds)
    low, high = best.latency_low * inverse(ours.latency_high), best.latency_high * inverse(ours.latency_low)
    name = f"{best.title}, {best.how} ({milliseconds(best.latency_seconds)} ms)"
    if low <= 1 <= high:
        sentence = f" Undecided against {name}: GPU/tiled {significant(low, 2)}–{significant(high, 2)}."
    else:
        faster = "The tiled machine is" if ratio > 1 else f"{name}, is"
        than = f" than {name}" if ratio > 1 else ""
        sentence = f" {faster} {times_faster(low, ratio, high)}{than}."
    step = min((one.timestep_latency_seconds for one in each.gpus if one.timestep_latency_seconds), default=None)
    return sentence if step is None else f"{sentence} A timestep takes a GPU {_microseconds(step)}."


def _microseconds(seconds: float) -> str:
    return f"{significant(1e6 * seconds)} us"
