"""The machines of a profile side by side: time, interval, ratio to the tiled machine, what limits the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mimdsim.base.units import bytes_of
from mimdsim.profile import GpuProfile, RunProfile, Span, TiledProfile, ratio_of, ratio_to_gpu
from mimdsim.profile.records import KernelSpan
from mimdsim.report.formatting import significant

BOUND = " (a bound)"  # appended to strategies that have never been built
PARTS = ("compute", "exchange", "sync", "host")
GPU_PARTS = ("compute", "memory", "launch", "host")
LOOP = {"repeat": "loop", "count": "loop"}  # what a tiled machine does for a loop over timesteps


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One machine under one strategy; times are seconds per training step.

    parts: seconds by PARTS on a tiled machine, by GPU_PARTS (what bounds each kernel) on a GPU.
    strongest: the fastest strategy of its machine that fits its memory and could be built. ratio: its seconds over
    those of the reference, the tiled machine that was trained on; None where there is none. For a GPU the
    interval of the ratio pairs opposite ends of both intervals. Another tiled machine is costed by the same formulas,
    each of which is off by the same factor on both (`profile/ratios.py`). A machine without codelet costs of its own
    instruction set, or whose memory it does not fit, has no ratio that means anything, and nothing has one to it:
    `against` says why.
    """

    title: str
    strategy: str
    precision: str
    description: str
    tiled: bool
    reference: bool
    seconds: float
    low: float
    high: float
    parts: tuple[float, ...]
    phases: tuple[tuple[str, float], ...]
    bytes_needed: int
    memory_bytes: int
    strongest: bool
    ratio: float | None
    ratio_low: float
    ratio_high: float
    unknown: str = ""  # why its time cannot be told; '' if it can
    against: str = ""  # why it cannot be compared with the reference: a time is unknown, or one of them cannot run
    runs: bool = True  # fits, its code too

    @property
    def fits(self) -> bool:
        return self.runs and self.bytes_needed <= self.memory_bytes

    @property
    def bytes_of_memory(self) -> str:
        """'143.2 KiB of 624.0 KiB'."""
        return bytes_of(self.bytes_needed, self.memory_bytes)

    @property
    def lacks(self) -> str:
        """What does not fit a tiled machine."""
        over = self.bytes_needed > self.memory_bytes
        return f"{self.bytes_of_memory} on its fullest tile" if over else "its code and vertex state"

    @property
    def label(self) -> str:
        return self.title if self.tiled else f"{self.title}, {self.strategy}, {self.precision}"

    @property
    def decided(self) -> bool:
        """Whether the interval of the ratio leaves no doubt about which is faster."""
        return not self.against and not self.ratio_low <= 1 <= self.ratio_high

    @property
    def margin_words(self) -> str:
        """How much faster the faster of the two is, with interval: '1.6× faster (1.1–2.4)'."""
        if self.against:
            return f"unknown: {self.against}"
        if not self.ratio:
            return "–"
        if not self.decided:
            pair = "it/reference" if self.tiled else "GPU/tiled"
            return f"{pair} {significant(self.ratio_low, 2)}–{significant(self.ratio_high, 2)}"
        return times_faster(self.ratio_low, self.ratio, self.ratio_high)

    @property
    def ratio_words(self) -> str:
        """Which is faster and by how much, with interval; 'undecided' if the interval allows both answers."""
        if self.reference:
            return "reference"
        if not self.ratio or self.against:
            return self.margin_words
        slower, faster = ("reference", "it") if self.tiled else ("tiled", "GPU")
        who = "undecided:" if not self.decided else slower if self.ratio > 1 else faster
        return f"{who} {self.margin_words}"


def times_faster(low: float, best: float, high: float) -> str:
    """A ratio of two times with its interval, or its inverse if that is above 1: '1.6× faster (1.1–2.4)'."""
    if best < 1:
        low, best, high = inverse(high), inverse(best), inverse(low)
    digits = 2 if best >= 1.1 else 3  # not '1.0× faster'
    return f"{significant(best, digits)}× faster ({significant(low, digits)}–{significant(high, digits)})"


def inverse(value: float) -> float:
    """1 / value, and infinity for 0 (an interval that reaches down to zero time)."""
    return 1 / value if value else float("inf")


def contenders(profile: RunProfile) -> tuple[Contender, ...]:
    """The reference, other tiled machines as given, then GPUs: fastest machine first, its fastest strategy first."""
    tiled = profile.tiled
    found = [] if tiled is None else [_of_tiled(one, tiled) for one in (tiled, *profile.tiled_beside)]
    strongest = {gpu.machine: gpu for gpu in sorted(profile.gpus, key=_rank, reverse=True)}
    machines = sorted(strongest, key=lambda name: (_rank(strongest[name]), name))
    for name in machines:
        strategies = sorted((gpu for gpu in profile.gpus if gpu.machine == name), key=_rank)
        able = [gpu for gpu in strategies if gpu.bytes_needed <= gpu.memory_bytes and not gpu.never_built]
        fastest = able[0] if able else None
        found += [_of_gpu(gpu, tiled, gpu is fastest) for gpu in strategies]
    return tuple(found)


def strongest_gpu(found: tuple[Contender, ...]) -> Contender | None:
    """The fastest GPU strategy that fits its memory, over all GPUs."""
    able = [one for one in found if one.strongest and not one.tiled]
    return min(able, key=lambda one: one.seconds) if able else None


def seconds_by_part(tiled: TiledProfile, spans: Sequence[Span]) -> tuple[float, ...]:
    """Seconds of compute, exchange and sync of some spans together."""
    return tuple(tiled.seconds(sum(getattr(span, f"{part}_cycles") for span in spans)) for part in PARTS[:3])


def gpu_of(one: Contender, profile: RunProfile) -> GpuProfile:
    """The GPU's profile that a contender was made of."""
    named = (one.title, one.strategy.removesuffix(BOUND), one.precision)
    return next(gpu for gpu in profile.gpus if (gpu.title, gpu.strategy, gpu.precision) == named)


class Operations(NamedTuple):
    """Operations of a phase that share kernels on a GPU: seconds on the tiled machine, and on the GPU with the number
    of launches and what bounds most of it."""

    phase: str
    ops: tuple[str, ...]
    tiled_seconds: float
    gpu_seconds: float
    launches: int
    bound: str

    @property
    def words(self) -> str:
        return " + ".join(self.ops).replace("_", " ")


def by_operation(tiled: TiledProfile, gpu: GpuProfile) -> tuple[Operations, ...]:
    """Both machines operation by operation, largest difference first; operations that a GPU fuses into one kernel are
    told together, in each phase."""
    groups: dict[tuple[str, str], set[str]] = {}
    every: list[Span | KernelSpan] = [*gpu.spans, *tiled.spans]
    for one in every:
        phase, together = one.phase, _kinds(one)
        for op in tuple(together):
            together |= groups.get((phase, op), set())
        groups |= {(phase, op): together for op in together}
    rows = []
    for (phase, _), ops in {(phase, min(ops)): ops for (phase, _), ops in groups.items()}.items():
        cycles = sum(one.cycles for one in tiled.spans if one.phase == phase and not ops.isdisjoint(_kinds(one)))
        kernels = [one for one in gpu.spans if one.phase == phase and not ops.isdisjoint(_kinds(one))]
        times: dict[str, float] = {}
        for one in kernels:
            times[one.bound] = times.get(one.bound, 0.0) + one.seconds
        launches, bound = sum(one.times for one in kernels), max(times, key=times.__getitem__, default="")
        rows.append(Operations(phase, tuple(sorted(ops)), tiled.seconds(cycles), sum(times.values()), launches, bound))
    return tuple(sorted(rows, key=lambda one: -abs(one.tiled_seconds - one.gpu_seconds)))


def _kinds(span: Span | KernelSpan) -> set[str]:
    """The operations that a superstep or a kernel does the work of."""
    return {LOOP.get(kind, kind) for kind in span.op.split("+")}


def _rank(gpu: GpuProfile) -> tuple[bool, float, str, str]:
    """Sort key: what fits first, then by time; names break ties so that the order is fixed."""
    return gpu.bytes_needed > gpu.memory_bytes, gpu.seconds_per_training_step, gpu.strategy, gpu.precision


def _of_tiled(tiled: TiledProfile, reference: TiledProfile) -> Contender:
    phases: dict[str, float] = {}
    for span in tiled.spans:
        phases[span.phase] = phases.get(span.phase, 0.0) + tiled.seconds(span.cycles)
    phases["host"] = tiled.host_exposed_seconds
    ratio = ratio_of(tiled, reference)
    return Contender(
        title=tiled.title,
        strategy="compiled to tiles",
        precision="",
        description=f"{tiled.tiles_used:,} of {tiled.tiles:,} tiles",
        tiled=True,
        reference=tiled is reference,
        seconds=tiled.seconds_per_training_step,
        low=tiled.seconds_low,
        high=tiled.seconds_high,
        parts=(*seconds_by_part(tiled, tiled.spans), tiled.host_exposed_seconds),
        phases=tuple(phases.items()),
        bytes_needed=tiled.memory.peak_bytes,
        memory_bytes=tiled.memory.limit_bytes,
        strongest=False,
        ratio=ratio.middle,
        ratio_low=ratio.low,
        ratio_high=ratio.high,
        unknown=tiled.unknown,
        against=tiled.incomparable or _of_reference(reference),
        runs=tiled.memory.fits,
    )


def _of_gpu(gpu: GpuProfile, tiled: TiledProfile | None, strongest: bool) -> Contender:
    fits = gpu.bytes_needed <= gpu.memory_bytes
    parts = dict.fromkeys(GPU_PARTS, 0.0)
    phases: dict[str, float] = {}
    for span in gpu.spans:
        # a bound unknown to this version counts as waiting for the host
        parts[span.bound if span.bound in parts else "host"] += span.seconds
        phases[span.phase] = phases.get(span.phase, 0.0) + span.seconds
    parts["host"] += gpu.host_exposed_seconds
    phases["host"] = gpu.host_exposed_seconds
    seconds, base = gpu.seconds_per_training_step, tiled.seconds_per_training_step if tiled else 0.0
    ratio = ratio_to_gpu(gpu, tiled) if tiled and base else None
    return Contender(
        title=gpu.title,
        strategy=gpu.strategy + (BOUND if gpu.never_built else ""),
        precision=gpu.precision,
        description=gpu.description,
        tiled=False,
        reference=False,
        seconds=seconds,
        low=gpu.seconds_low,
        high=gpu.seconds_high,
        parts=tuple(parts.values()),
        phases=tuple(phases.items()),
        bytes_needed=gpu.bytes_needed,
        memory_bytes=gpu.memory_bytes,
        strongest=strongest,
        ratio=ratio.middle if ratio else None,
        ratio_low=ratio.low if ratio else 0.0,
        ratio_high=ratio.high if ratio else 0.0,
        unknown=tiled.unknown if tiled else "",
        against="does not fit its memory" if not fits else _of_reference(tiled) if tiled else "",
    )


def _of_reference(tiled: TiledProfile) -> str:
    """Why nothing can be compared with the reference."""
    return tiled.unknown or (f"the reference {tiled.incomparable}" if tiled.incomparable else "")
