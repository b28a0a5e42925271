"""The records of a profile. Units are in the names; cycles are integers of the machine's clock.

Cycles are converted to seconds only here (`TiledProfile.seconds`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from mimdsim.base.residuals import Residuals, combined, interval
from mimdsim.base.shown import Sheet, Shown, brief
from mimdsim.base.units import bytes_of, show_bytes, show_quantity


@dataclass(frozen=True, kw_only=True)
class SiliconPart:
    """A share of an area (mm2) or of watts, the least certain kind of source in it, how far it may be off."""

    name: str
    value: float
    kind: str
    half_width: float


@dataclass(frozen=True, kw_only=True)
class SiliconProfile(Shown):
    """One chip: process, mm2 by part, and the watts that it draws without work by part; unknown: why watts are not
    known, '' where they are. full_load: watts of a chip that is fully busy, static ones included."""

    process: str
    area: tuple[SiliconPart, ...]
    static: tuple[SiliconPart, ...] = ()
    volts_low: float = 0.0
    volts_high: float = 0.0
    full_load: SiliconPart | None = None
    unknown: str = ""

    @property
    def area_mm2(self) -> tuple[float, float]:
        """Of one chip, and how far it may be off."""
        return _sum(self.area)

    @property
    def static_watts(self) -> tuple[float, float] | None:
        """Of one chip, and how far they may be off; None if unknown."""
        return None if self.unknown else _sum(self.static)


def _sum(parts: tuple[SiliconPart, ...]) -> tuple[float, float]:
    return sum(part.value for part in parts), sum(part.half_width for part in parts)


SCHEMA_VERSION = 8
OLDER_VERSIONS = (3, 4, 5, 6, 7)  # that are still read; what they lack has its default
FIRING = "firing"  # the finding of a run whose layers never fire, or always
STATIC = "static power"  # the part of an energy that does not depend on what is done


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """A number the result depends on: its name, value with unit, kind of source and origin."""

    name: str
    value: str
    kind: str
    source: str


UNKNOWN_TIMES = "! Times are unknown: {}; what follows is by the costs that there are."
MAPPING_FILE = "mapping file"  # key of the change that is a file of options instead of a field


@dataclass(frozen=True, kw_only=True)
class Change:
    """A field that was changed for one run: its dotted key, its value as TOML text; or a mapping file by its name."""

    key: str
    value: str


@dataclass(frozen=True, kw_only=True)
class NamedFile:
    """A file or folder that a description names: in which key, the path as given, and the sha256 of its contents; ''
    where nothing is there."""

    key: str
    path: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One result of a check: what was checked, whether it passed, and the finding in words.

    warning: it passed, but says what its author should look at.
    """

    name: str
    passed: bool
    text: str
    warning: bool = False

    @property
    def mood(self) -> str:
        """ "good", "bad", or "note" for a warning."""
        return "bad" if not self.passed else "note" if self.warning else "good"


@dataclass(frozen=True, kw_only=True)
class SpanPart:
    """What one operation of one layer takes of the compute cycles of a superstep, by its share of the busy cycles."""

    operation: str
    layer: str
    compute_cycles: int


@dataclass(frozen=True, kw_only=True)
class Span:
    """One superstep of the program, summed over its `times` executions in one training step.

    compute_cycles: slowest tile of each execution, summed. busy_cycles: cycles in which a tile had work, summed over
    tiles and executions. bytes_received: over all tiles and executions. link_cycles: the part of exchange_cycles that
    goes over links between chips, memory_cycles: the part in which transfers of the memory behind the tiles take longer
    than compute; hidden_cycles: what goes on of the exchange while supersteps before it compute, no part of
    exchange_cycles. With several chips a superstep counts only if its chip is the slowest between barriers.
    exchange_tile: the tile that one exchange on the chip waits for, with the bytes of its wire and the cycles of its
    control instructions, the longer of which sets the exchange (a schedule of messages may take longer); -1 where
    nothing moves. parts: of its compute_cycles, which they sum to; empty where there are none, and in profiles from
    before they were kept.
    """

    name: str
    op: str
    phase: str
    times: int
    compute_cycles: int
    exchange_cycles: int
    sync_cycles: int
    busy_cycles: int
    bytes_received: int
    flops: int
    slowest_tile: int
    link_cycles: int = 0
    exchange_tile: int = -1
    exchange_tile_bytes: int = 0
    exchange_tile_control_cycles: int = 0
    memory_cycles: int = 0
    hidden_cycles: int = 0
    parts: tuple[SpanPart, ...] = ()

    @property
    def cycles(self) -> int:
        return self.compute_cycles + self.exchange_cycles + self.sync_cycles

    @property
    def synchronises(self) -> bool:
        """Whether tiles wait for others before its compute; each waits for transfers of its own memory alone."""
        return self.exchange_cycles + self.hidden_cycles - self.memory_cycles + self.sync_cycles > 0


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """Cycles that share a source: how many, and by how many that source may be off. common: what that has in common
    with others, which are then off together; "" if it is independent of them."""

    name: str
    kind: str
    cycles: int
    half_width_cycles: int
    common: str = ""

    @property
    def source(self) -> str:
        """All doubts of which are off together."""
        return self.common or f"{self.name} ({self.kind})"


def half_width_cycles(doubts: Iterable[Doubt]) -> float:
    """By how many cycles doubts leave their sum off together: sources are independent, so that squares add up."""
    together: dict[str, int] = {}
    for doubt in doubts:
        together[doubt.source] = together.get(doubt.source, 0) + doubt.half_width_cycles
    return combined(together.values())


@dataclass(frozen=True, kw_only=True)
class EnergyPart:
    """Joules of one training step that share a cause: how many, the kind of source, how far they may be off."""

    name: str
    joules: float
    kind: str
    half_width_joules: float


@dataclass(frozen=True, kw_only=True)
class EnergyProfile(Shown):
    """Energy of one training step, static power included."""

    parts: tuple[EnergyPart, ...]
    residuals: Residuals | None = None  # of its class; None where no energies were published

    @property
    def joules(self) -> float:
        return sum(part.joules for part in self.parts)

    @property
    def static(self) -> tuple[float, float]:
        """Joules of static power, and how far they may be off."""
        return self._of(True)

    @property
    def dynamic(self) -> tuple[float, float]:
        """Joules of what is done, static power left out, and how far they may be off."""
        return self._of(False)

    def _of(self, static: bool) -> tuple[float, float]:
        parts = [part for part in self.parts if (part.name == STATIC) is static]
        return sum(part.joules for part in parts), sum(part.half_width_joules for part in parts)

    @property
    def propagated(self) -> float:
        """How far its sources leave it off, as a share: parts share processes and boards, so theirs add plainly."""
        return sum(part.half_width_joules for part in self.parts) / self.joules if self.joules else 0.0

    @property
    def joules_low(self) -> float:
        return self._interval[0]

    @property
    def joules_high(self) -> float:
        return self._interval[1]

    @property
    def _interval(self) -> tuple[float, float]:
        return interval(self.joules, self.propagated, self.residuals.factor if self.residuals else 1.0)


@dataclass(frozen=True, kw_only=True)
class TileColumns(Shown):
    """Per-tile totals of one training step, index = tile number; tiles lie on a grid of `grid_columns` columns."""

    grid_columns: int
    busy_cycles: tuple[int, ...]
    bytes_sent: tuple[int, ...]
    bytes_received: tuple[int, ...]
    peak_bytes: tuple[int, ...]
    always_live_bytes: tuple[int, ...]
    layer: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Liveness:
    """Memory in use at one superstep, in program order: on the fullest tile and on all tiles together."""

    superstep: str
    phase: str
    fullest_tile: int
    fullest_tile_bytes: int
    total_bytes: int


def code_without_room(code_bytes: int, limit_bytes: int) -> str:
    """Said where the code of a tile leaves no room for variables; else ''."""
    if code_bytes <= limit_bytes:
        return ""
    code, limit = show_bytes(code_bytes, limit_bytes), show_bytes(limit_bytes, code_bytes)
    return f"the code alone, {code} (tile.code_bytes, codelets and exchanges), is more than the {limit} of a tile"


@dataclass(frozen=True, kw_only=True)
class MemoryProfile(Shown):
    """Tile memory: limit, the fullest tile, bytes by category on every tile, and the curve over the program."""

    limit_bytes: int
    peak_tile: int
    peak_bytes: int
    categories: tuple[str, ...]
    bytes_by_category_and_tile: tuple[tuple[int, ...], ...]  # at the superstep where the fullest tile peaks
    peak_bytes_by_tile: tuple[int, ...]
    always_live_bytes_by_tile: tuple[int, ...]
    largest_on_peak_tile: tuple[tuple[str, str, int], ...]  # variable, category, bytes
    liveness: tuple[Liveness, ...]
    code_fits: bool = True  # code and vertex state of every tile lie in its executable region

    @property
    def fits(self) -> bool:
        """Whether the program can run on these tiles."""
        return self.peak_bytes <= self.limit_bytes and self.code_fits

    @property
    def code_alone(self) -> str:
        """See `code_without_room`."""
        code = dict(zip(self.categories, self.bytes_by_category_and_tile, strict=True)).get("code", ())
        return code_without_room(max(code, default=0), self.limit_bytes)

    @property
    def peak_of_limit(self) -> str:
        """'143.2 KiB of 624.0 KiB'."""
        return bytes_of(self.peak_bytes, self.limit_bytes)


@dataclass(frozen=True, kw_only=True)
class Sparsity:
    """Shares of zeros for which a layer's lists save work, in the recorded training step.

    Mean over timesteps and samples. forward: neurons that emit no spike. state_gradient: neurons that are not listed,
    whose state gets no gradient through their spikes. weight_gradient: weights that get no gradient, because their
    presynaptic neuron emitted no spike (of a convolution, none of the plane that they read). untouched_weights: weights
    without gradient in any timestep and sample.
    dropped_share: of the true spikes, those beyond the capacity.
    """

    forward: float
    state_gradient: float
    weight_gradient: float
    untouched_weights: float
    dropped_share: float


@dataclass(frozen=True, kw_only=True)
class Activity(Shown):
    """Spikes of one layer in the recorded training step.

    spikes, listed: mean over the batch per timestep (true spikes; entries listed, gradient entries included).
    raster: (timestep, neuron) pairs of one sample. dropped: spikes beyond capacity, whole batch and sequence.
    sends: lists, dense spikes, or numbers of cells, of which `spikes` are those that are not zero. reads: the layers,
    itself or the input whose spikes it reads, at whatever ages; () in runs of before this was kept.
    """

    layer: str
    neurons: int
    capacity: int
    spikes_by_timestep: tuple[float, ...]
    listed_by_timestep: tuple[float, ...]
    full_lists: float  # share of (timestep, sample) lists that are full
    dropped: int
    raster: tuple[tuple[int, int], ...]
    sparsity: Sparsity | None = None  # of layers; the input has no weights
    sends: Literal["lists", "dense", "numbers"] = "lists"
    reads: tuple[str, ...] = ()


ACCURACY_MATTERS = 0.01  # assumed: nobody chooses otherwise for less than a percentage point


@dataclass(frozen=True, kw_only=True)
class Training(Shown):
    """Results of the training: loss per training step, and accuracies (None if that split was not evaluated)."""

    training_steps: int
    samples: int
    batch: int
    loss: tuple[float, ...]
    train_accuracy: float | None
    test_accuracy: float | None
    test_samples: int
    test_accuracy_by_epoch: tuple[float, ...]
    train_accuracy_by_epoch: tuple[float, ...] = ()  # of the batches as they were trained on
    validation_accuracy_by_epoch: tuple[float, ...] = ()
    validation_samples: int = 0
    best_epoch: int | None = None  # counted from 0, where its weights were kept
    scheduled: tuple[tuple[str, tuple[float, ...]], ...] = ()  # learning rate and second thresholds by training step
    engine: Literal["", "whole_tensors", "program"] = ""  # what trained; '': not recorded (0.1.0)
    # of the same samples and weights in float32 with lists that drop no spike; None: none can, or it was not evaluated
    test_accuracy_all_spikes: float | None = None

    @property
    def lists_matter(self) -> bool:
        """Whether the test accuracy is another where no list drops a spike."""
        listed, every = self.test_accuracy, self.test_accuracy_all_spikes
        return listed is not None and every is not None and abs(listed - every) >= ACCURACY_MATTERS

    @property
    def said_of_lists(self) -> str:
        """'94.4 % of the test samples with the lists that they were trained with, 91.9 % without'; '' where both are
        the same."""
        if not self.lists_matter:
            return ""
        return (
            f"{100 * (self.test_accuracy or 0):.1f} % of the test samples with the lists that they were trained with, "
            f"{100 * (self.test_accuracy_all_spikes or 0):.1f} % where no list drops a spike"
        )

    @property
    def loss_by_epoch(self) -> tuple[float, ...]:
        """Mean over the training steps of each whole epoch."""
        epochs = len(self.train_accuracy_by_epoch)
        per_epoch = len(self.loss) // epochs if epochs else 0
        return tuple(sum(self.loss[k * per_epoch : (k + 1) * per_epoch]) / per_epoch for k in range(epochs))


@dataclass(frozen=True, kw_only=True)
class TiledProfile(Shown):
    """One training step, or one run of a program of another kind, on a tiled machine."""

    machine: str
    title: str
    clock_hz: float
    tiles: int
    tiles_used: int
    worker_contexts: int
    spans: tuple[Span, ...]
    tile_columns: TileColumns
    memory: MemoryProfile
    host_seconds: float  # streaming one batch in, whether hidden or not
    host_exposed_seconds: float  # the part that compute does not hide
    seconds_low: float  # interval of seconds_per_training_step
    seconds_high: float
    assumptions: tuple[Assumption, ...]
    doubts: tuple[Doubt, ...] = ()  # what its sources leave off, widest first
    residuals: Residuals | None = None  # of its class; None in profiles from before classes had any
    exchange_cycles_other_model: int = 0  # by the exchange model that is not selected
    chips: int = 1
    energy: EnergyProfile | None = None  # None if the machine's description has no energy section
    run_name: Literal["training step", "run"] = "training step"  # the name for one run of the program
    # codelets whose costs are those of another instruction set than the machine's: its times are then unknown
    costs_of_another: tuple[str, ...] = ()
    silicon: SiliconProfile | None = None  # of one chip; None if the machine's description has no area

    def _sheet(self) -> Sheet:
        times = [1e3 * each for each in (self.seconds_per_training_step, self.seconds_low, self.seconds_high)]
        reach = f"unknown: {self.unknown}" if self.unknown else f"{times[1]:.3g} to {times[2]:.3g}"
        title = (
            f"{self.machine}: {self.cycles:,} cycles ({times[0]:.3g} ms, {reach}) a {self.run_name}, "
            f"{self.tiles_used:,} of {self.tiles:,} tiles, fullest tile {self.memory.peak_of_limit}"
            + ("" if self.memory.fits else ": does not fit")
        )
        by_part = {"compute": self.compute_cycles, "exchange": self.exchange_cycles, "sync": self.sync_cycles}
        rows = [(part, f"{many:,} cycles ({many / max(self.cycles, 1):.0%})") for part, many in by_part.items()]
        rows.append(("host, exposed", show_quantity(self.host_exposed_seconds, "seconds")))
        rows.append(("tile balance, use of time", f"{self.tile_balance:.2f}, {self.time_utilisation:.1%}"))
        longest = sorted(self.spans, key=lambda span: -span.cycles)[:8]
        rows += [(one.name, f"superstep, {one.cycles:,} cycles in {one.times:,} executions") for one in longest]
        return Sheet(title, rows)

    def seconds(self, cycles: float) -> float:
        """Cycles of this machine's clock in seconds."""
        return cycles / self.clock_hz

    @property
    def propagated(self) -> float:
        """How far its doubts together leave its cycles off, as a share."""
        return half_width_cycles(self.doubts) / self.cycles if self.cycles else 0.0

    @property
    def device_ends(self) -> tuple[float, float]:
        """The interval of its seconds without those that the host is waited for."""
        device = self.seconds(self.cycles)
        if self.residuals is not None:
            return interval(device, self.propagated, self.residuals.factor)
        off = self.seconds(sum(doubt.half_width_cycles for doubt in self.doubts))  # of versions that added plainly
        return device - off, device + off

    @property
    def unknown(self) -> str:
        """Why its times, and ratios to them, cannot be told; '' if they can."""
        return "costs are those of another instruction set" if self.costs_of_another else ""

    @property
    def incomparable(self) -> str:
        """Why its time cannot be compared with another; '' if it can. Every sentence that says which of two is faster,
        and by how much, asks this of both."""
        return self.unknown or ("" if self.memory.fits else "does not fit its memory")

    @property
    def trains(self) -> bool:
        return self.run_name == "training step"

    @property
    def compute_cycles(self) -> int:
        return sum(span.compute_cycles for span in self.spans)

    @property
    def exchange_cycles(self) -> int:
        return sum(span.exchange_cycles for span in self.spans)

    @property
    def sync_cycles(self) -> int:
        return sum(span.sync_cycles for span in self.spans)

    @property
    def memory_cycles(self) -> int:
        """Part of exchange_cycles: of transfers of the memory behind the tiles that compute does not hide."""
        return sum(span.memory_cycles for span in self.spans)

    @property
    def hidden_cycles(self) -> int:
        """No part of exchange_cycles: of exchange that goes on while tiles compute."""
        return sum(span.hidden_cycles for span in self.spans)

    @property
    def cycles(self) -> int:
        return self.compute_cycles + self.exchange_cycles + self.sync_cycles

    @property
    def seconds_per_training_step(self) -> float:
        return self.seconds(self.cycles) + self.host_exposed_seconds

    @property
    def area_mm2(self) -> tuple[float, float] | None:
        """Of all chips, and how far it may be off; None where unknown."""
        return None if self.silicon is None else _times(self.silicon.area_mm2, self.chips)

    @property
    def static_watts(self) -> tuple[float, float] | None:
        """Of all chips, and how far they may be off: those of its energy, else of its silicon; None where unknown."""
        seconds = self.seconds_per_training_step
        if self.energy is not None and seconds:
            joules, off = self.energy.static
            return joules / seconds, off / seconds
        found = None if self.silicon is None else self.silicon.static_watts
        return None if found is None else _times(found, self.chips)

    @property
    def dynamic_watts(self) -> tuple[float, float] | None:
        """Watts of what the chips do, mean over the run, and how far they may be off; None where unknown."""
        seconds = self.seconds_per_training_step
        if self.energy is None or self.unknown or not seconds:
            return None
        joules, off = self.energy.dynamic
        return joules / seconds, off / seconds

    @property
    def tile_balance(self) -> float:
        """Mean over max of the busy cycles of the tiles that have any work."""
        busy = [cycles for cycles in self.tile_columns.busy_cycles if cycles]
        return sum(busy) / len(busy) / max(busy) if busy else 0.0

    @property
    def time_utilisation(self) -> float:
        """Share of all tiles' cycles in which the tile had work."""
        return sum(self.tile_columns.busy_cycles) / (self.tiles * self.cycles) if self.cycles else 0.0


def _times(pair: tuple[float, float], chips: int) -> tuple[float, float]:
    return pair[0] * chips, pair[1] * chips


@dataclass(frozen=True, kw_only=True)
class KernelSpan:
    """One kind of kernel launch on a GPU, summed over its `times` launches in one training step.

    bound: what determines its time: 'compute', 'memory', 'launch' or 'host'.
    """

    name: str
    op: str
    phase: str
    times: int
    seconds: float
    flops: int
    bytes_moved: int
    bound: str


@dataclass(frozen=True, kw_only=True)
class GpuProfile(Shown):
    """One training step on a GPU under one lowering strategy and precision."""

    machine: str
    title: str
    strategy: str
    precision: str
    description: str
    spans: tuple[KernelSpan, ...]
    host_seconds: float
    host_exposed_seconds: float
    seconds_low: float
    seconds_high: float
    bytes_needed: int
    memory_bytes: int
    assumptions: tuple[Assumption, ...]
    energy: EnergyProfile | None = None  # None if the machine's description has no energy section
    never_built: bool = False  # a bound rather than a program: drawn, but never the strongest
    residuals: Residuals | None = None  # of its class; None in profiles from before classes had any

    def _sheet(self) -> Sheet:
        title = f"{self.machine}, {self.strategy}, {self.precision}: {1e3 * self.seconds_per_training_step:.3g} ms"
        return Sheet(title, super()._sheet().rows)

    @property
    def seconds_per_training_step(self) -> float:
        return sum(span.seconds for span in self.spans) + self.host_exposed_seconds


@dataclass(frozen=True, kw_only=True)
class WhatIf(Shown):
    """What one change would make of a run's training step with the same spikes, compiled and timed again.

    kind: "mapping", which a user can choose, or "machine". command: runs it; '' if no command can. gain: the share of
    the time that it saves, negative where it costs some, with its interval: costs that both share are off by the same
    factor. more_bytes: on the fullest tile. superstep: the one that becomes shorter by most cycles, with these before
    and after.
    """

    what: str
    kind: Literal["mapping", "machine"]
    command: str
    cycles: int
    gain: float
    gain_low: float
    gain_high: float
    more_bytes: int
    superstep: str
    before: int
    after: int

    def _sheet(self) -> Sheet:
        return Sheet(str(self), [(self.command,)] if self.command else [])

    def __str__(self) -> str:
        """What it makes of time and memory; not the command."""
        sign = -1 if self.gain < 0 else 1
        low, high = sorted((100 * sign * self.gain_low, 100 * sign * self.gain_high))
        if not self.gain and not self.more_bytes:
            return f"{self.what}: the same time and memory"
        time = f"{100 * abs(self.gain):.1f} % {'more' if self.gain < 0 else 'less'} time"
        bytes_ = f"{show_bytes(abs(self.more_bytes))} {'more' if self.more_bytes > 0 else 'less'} on the fullest tile"
        return f"{self.what}: {time} ({low:.1f} to {high:.1f} %){f', {bytes_}' if self.more_bytes else ''}"


@dataclass(frozen=True, kw_only=True)
class InferenceTime(Shown):
    """The forward pass of one batch on one machine, mean over the batches that were run.

    how: how it is lowered. device_seconds: without the host, with its interval. host_seconds: streaming one batch in,
    and its scores out; exposed_seconds: the part that the batch before does not hide. timestep_seconds: of a timestep,
    where one is taken after another, as `timestep_how` says (None: no such program is known); timestep_host_seconds:
    its input in, its output out. joules: of one batch; None if the machine's description has no energy section.
    """

    machine: str
    title: str
    how: str
    device_seconds: float
    device_low: float
    device_high: float
    host_seconds: float
    exposed_seconds: float
    timestep_seconds: float | None
    timestep_host_seconds: float
    timestep_how: str
    joules: float | None
    joules_low: float
    joules_high: float

    @property
    def latency_seconds(self) -> float:
        """From the first byte of a batch to its scores; nothing is hidden behind another batch."""
        return self.device_seconds + self.host_seconds

    @property
    def latency_low(self) -> float:
        return self.device_low + self.host_seconds

    @property
    def latency_high(self) -> float:
        return self.device_high + self.host_seconds

    @property
    def timestep_latency_seconds(self) -> float | None:
        """From a timestep's spikes at the host to its output there."""
        return None if self.timestep_seconds is None else self.timestep_seconds + self.timestep_host_seconds

    @property
    def seconds_per_batch(self) -> float:
        """When batches follow each other, each streamed in while the one before is computed."""
        return self.device_seconds + self.exposed_seconds


@dataclass(frozen=True, kw_only=True)
class Inference(Shown):
    """Inference on trained weights by the forward program alone, in batches of `batch`; GPUs on the same graph.

    runs: batches of test samples whose spikes were timed; slowest_seconds: latency of the slowest of them.
    fixed_seconds: of device_seconds what is outside of the timesteps. peak_bytes: of the fullest tile. incomparable:
    why the tiled machine's times cannot be compared with others, '' if they can.
    """

    batch: int
    timesteps: int
    runs: int
    peak_bytes: int
    limit_bytes: int
    tiles_used: int
    slowest_seconds: float
    fixed_seconds: float
    incomparable: str
    tiled: InferenceTime
    gpus: tuple[InferenceTime, ...]


@dataclass(frozen=True, kw_only=True)
class RunProfile(Shown):
    """All results of one run; what `profile.json` holds. For a kernel: no network, one timestep, a batch of 1.

    config_sha256: of the resolved descriptions and the contents of the files that they name, which `inputs` lists;
    code_sha256: of the sources that made it, '' in profiles of versions before 7, where neither is known;
    earlier_code_sha256: of others that computed training steps before it was resumed, 'unknown' where a checkpoint did
    not say.
    """

    schema_version: int
    tool_version: str
    config_sha256: str
    seed: int
    workload: str
    workload_title: str
    network: str  # "2312-1466-1466-10"
    timesteps: int
    batch: int
    tiled: TiledProfile | None
    gpus: tuple[GpuProfile, ...]
    training: Training | None
    activity: tuple[Activity, ...]
    warnings: tuple[str, ...]
    tiled_beside: tuple[TiledProfile, ...] = ()  # other tiled machines, on the spikes that `tiled` recorded
    # of the check of a kernel; of a run: what its samples, its spikes and its training came to, where that is no news
    findings: tuple[Finding, ...] = ()
    changes: tuple[Change, ...] = ()  # of the workload, by key; those of a machine are assumptions of its profile
    inputs: tuple[NamedFile, ...] = ()
    code_sha256: str = ""
    earlier_code_sha256: tuple[str, ...] = ()
    advice: tuple[WhatIf, ...] = ()  # changes that save time, most first; empty where none was looked for
    inference: tuple[Inference, ...] = ()  # by batch, one sample first; empty where it was not asked for

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """What is wrong with inputs, spikes or training, most important first."""
        return (*(f"{one.name}: {one.text}" for one in self.findings if one.mood != "good"), *self.warnings)

    def _sheet(self) -> Sheet:
        machines = [each for each in (self.tiled, *self.tiled_beside, *self.gpus) if each is not None]
        wrong = [(f"! {one.name}", one.text) for one in self.findings if not one.passed]
        rows = [*wrong, *(brief(each).split(": ", 1) for each in machines)]
        return Sheet(f"{self.workload}: {self.workload_title}", rows)
