"""Tables of the comparison with GPUs, and of the underlying assumptions."""

from __future__ import annotations

from mimdsim.base.phases import in_order
from mimdsim.base.units import show_bytes
from mimdsim.profile import GpuProfile, RunProfile
from mimdsim.report.formatting import KINDS, interval, significant, thousands
from mimdsim.report.machine_comparison import BOUND, PARTS, Contender, contenders, strongest_gpu
from mimdsim.report.tables import Cell, Table, aligned_ms, count, ms, percent, shown, table, text

PART_WORDS = {"memory": "memory-bound", "launch": "launch-bound", "compute": "compute-bound", "host": "host"}


def comparison_table(profile: RunProfile) -> Table:
    """Every machine and strategy; the strongest of each GPU is marked."""
    rows = []
    several = bool(profile.tiled_beside)
    for one in contenders(profile):
        tag = "strong" if one.tiled or one.strongest else ""
        names = PARTS if one.tiled else tuple(PART_WORDS[part] for part in ("compute", "memory", "launch", "host"))
        part = max(range(len(one.parts)), key=lambda index: one.parts[index])
        portion = percent(one.parts[part], one.seconds).text
        rows.append(
            (
                text(("★ " if one.strongest else "") + one.title, tag),
                text(one.strategy, tag),
                text(one.precision or "–"),
                Cell(text=ms(one.seconds).text, value=one.seconds, tag=tag),
                text("unknown") if one.unknown and one.tiled else shown(interval(one.low, one.high), one.low),
                _ratio(one),
                text(one.ratio_words if one.fits else "does not fit its memory", tag),
                text(f"{names[part]} {portion}"),
                shown(one.bytes_of_memory, one.bytes_needed),
                text(one.description),
            )
        )
    return table(
        "comparison",
        "Milliseconds per training step on every machine and strategy",
        (
            "machine", "strategy", "precision", "ms", "interval ms", "ratio", "who is faster (interval)",
            "mostly", "memory", "how",
        ),
        rows,
        "★ is the fastest strategy of its GPU that fits. Ratio: GPU over tiled; its interval pairs opposite ends of "
        "both intervals"
        + (", but for two tiled machines the same ends, because their cycles have the same sources" if several else "")
        + "; the memory of the tiled machine is that of its fullest tile.",
    )  # fmt: skip


def _ratio(one: Contender) -> Cell:
    if not one.ratio or one.against:
        return text("–")
    return shown("1" if one.reference else significant(one.ratio), one.ratio)


def phase_comparison_table(profile: RunProfile) -> Table | None:
    """Milliseconds by phase: the tiled machine and the strongest strategy of every GPU; None if there is no pair."""
    found = [one for one in contenders(profile) if one.tiled or one.strongest]
    if len(found) < 2:
        return None
    by_phase = [dict(one.phases) for one in found]
    phases = in_order(name for table in by_phase for name in table if name != "host")
    longest = max(one.seconds for one in found)
    rows: list[list[Cell]] = [
        [text(phase), *(aligned_ms(seconds.get(phase, 0.0), longest) for seconds in by_phase)]
        for phase in [*phases, "host"]
    ]
    whole = [text("all"), *(aligned_ms(one.seconds, longest) for one in found)]
    headers = ("phase", *(f"{one.label}, ms" for one in found))
    caption = "The same training step phase by phase (strongest strategies)"
    return table("phase_comparison", caption, headers, rows, total=whole)


def kernels_table(profile: RunProfile, most: int) -> Table | None:
    """The kernels of the strongest GPU strategy, longest first; None without one."""
    rival = strongest_gpu(contenders(profile))
    if rival is None:
        return None
    gpu = next(gpu for gpu in profile.gpus if _same(gpu, rival))
    spans = sorted(gpu.spans, key=lambda span: -span.seconds)
    rows = [
        (
            text(span.name),
            text(span.op),
            text(span.phase),
            count(span.times),
            aligned_ms(span.seconds, rival.seconds),
            percent(span.seconds, rival.seconds),
            text(span.bound),
            shown(significant(span.flops / 1e6), span.flops),
            shown(show_bytes(span.bytes_moved), span.bytes_moved),
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


def _kind(kind: str) -> str:
    """The kind of source alone, where it comes with a share of its own ("measured within 3 %")."""
    alone = kind.partition(" within ")[0]
    return alone if alone in KINDS else "other"


def assumptions_table(profile: RunProfile) -> Table:
    """Every number the results depend on, by machine, once; an assumption that strategies share is not repeated."""
    tiled = () if profile.tiled is None else (profile.tiled, *profile.tiled_beside)
    owners = [(one.title, one.assumptions) for one in tiled]
    owners += [(gpu.title, gpu.assumptions) for gpu in profile.gpus]
    rows = {
        (title, one.name, one.value, one.kind, one.source): None for title, assumptions in owners for one in assumptions
    }
    cells = [
        (text(title), text(name), text(value), text(kind, _kind(kind)), text(source))
        for title, name, value, kind, source in rows
    ]
    counts = [f"{thousands(sum(row[3].tag == kind for row in cells))} {kind}" for kind in KINDS]
    unknown = sum(row[3].tag == "other" for row in cells)
    counts += [f"{thousands(unknown)} of another kind"] if unknown else []
    return table(
        "assumptions",
        "The numbers the results rest on",
        ("machine", "name", "value", "kind", "source"),
        cells,
        f"{thousands(len(cells))} numbers: {', '.join(counts)}.",
    )


def _same(gpu: GpuProfile, one: Contender) -> bool:
    return (gpu.title, gpu.strategy, gpu.precision) == (one.title, one.strategy.removesuffix(BOUND), one.precision)


NOTE = (
    "the interval is that of the ratio, in which costs that both share are off alike. A change of the machine says "
    "what the machine would gain, not that it can be built. Changes do not add up"
)


def advice_table(profile: RunProfile) -> Table:
    """Changes that save time, most first."""
    rows = [
        (
            text(one.what),
            text(one.kind),
            shown(f"{100 * one.gain:.1f} %", one.gain),
            shown(f"{100 * one.gain_low:.1f} to {100 * one.gain_high:.1f} %", one.gain_low),
            count(one.cycles),
            count(one.more_bytes),
            text(one.superstep),
            count(one.before),
            count(one.after),
            text(one.command),
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
