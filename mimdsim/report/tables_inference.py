"""Inference in words and as a table: one sample at a time, and in batches, on tiles and on GPUs."""

from __future__ import annotations

from mimdsim.base.units import counted, show_bytes
from mimdsim.profile import Inference, InferenceTime, RunProfile
from mimdsim.report.formatting import interval, milliseconds, significant, thousands
from mimdsim.report.machine_comparison import inverse, times_faster
from mimdsim.report.tables import Table, Value, shown, table, text


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
        f"{show_bytes(each.peak_bytes, each.limit_bytes)} of {show_bytes(each.limit_bytes, each.peak_bytes)}"
        if tiled
        else "–",
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
