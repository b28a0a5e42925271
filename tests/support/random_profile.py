"""A profile of random numbers as large as those of a real machine, and what reads the pages made of it."""

from __future__ import annotations

import html.parser
import math

import numpy as np

from mimdsim.profile import (
    Activity,
    Assumption,
    GpuProfile,
    KernelSpan,
    Liveness,
    MemoryProfile,
    RunProfile,
    Span,
    TileColumns,
    TiledProfile,
    Training,
)

TILES, LIMIT = 1_472, 624 * 1024
LAYERS = (("hidden0", 1_466, 640), ("hidden1", 1_466, 640), ("output", 10, 16))
CATEGORIES = (
    "weights", "neuron state", "stored activations", "gradients", "optimiser", "spike lists", "exchange buffers",
    "vertex code", "control code", "input", "stack",
)  # fmt: skip
KINDS = ("measured", "published", "derived", "assumed")


def make_spans(random: np.random.Generator) -> tuple[Span, ...]:
    """40 supersteps: the same thirteen operations forward and backward, per layer, then loss and update."""
    parts = [("input", "stream events in", 1)]
    for layer, _, _ in LAYERS:
        parts += [
            ("forward", f"{layer}/{op}", 100)
            for op in ("spread spikes", "gather weights", "leak and fire", "list spikes")
        ]
        parts += [("forward", f"{layer}/stash state", 100)]
    parts += [("loss", "softmax", 1), ("loss", "sum over samples", 1)]
    for layer, _, _ in reversed(LAYERS):
        parts += [("backward", f"{layer}/{op}", 100) for op in ("spread gradients", "surrogate", "transposed product")]
        parts += [("backward", f"{layer}/outer product", 100)]
    parts += [
        ("update", f"{layer}/{op}", 1) for layer, _, _ in LAYERS for op in ("reduce gradients", "Adam", "check norm")
    ]
    spans = []
    for phase, name, times in parts:
        compute = int(times * random.integers(300, 9_000) * (0.06 if "output" in name else 1.0))
        spans.append(
            Span(
                name=name,
                op=name.split("/")[-1],
                phase=phase,
                times=times,
                compute_cycles=compute,
                exchange_cycles=int(times * random.integers(100, 4_000)),
                sync_cycles=times * 172,
                busy_cycles=int(compute * TILES * random.uniform(0.3, 0.95)),
                bytes_received=int(times * random.integers(10_000, 4_000_000)),
                flops=int(compute * 900),
                slowest_tile=int(random.integers(TILES)),
            )
        )
    return tuple(spans)


def make_memory(random: np.random.Generator) -> MemoryProfile:
    base = 1_024 * np.array([[92], [14], [120], [61], [47], [22], [35], [28], [12], [9], [4]])
    table = (base * random.uniform(0.96, 1.04, size=(len(CATEGORIES), TILES))).astype(int)
    table[:4, 730:1_460] = (table[:4, 730:1_460] * 1.3).astype(int)
    table[:6, 1_460:] //= 6
    totals = table.sum(axis=0)
    peak = int(totals.argmax())
    phases = ["input"] + ["forward"] * 15 + ["loss"] * 2 + ["backward"] * 12 + ["update"] * 9
    top = int(totals[peak])
    shape = [0.5 + 0.5 * math.exp(-(((index - 18) / 9.0) ** 2)) for index in range(len(phases))]
    return MemoryProfile(
        limit_bytes=LIMIT,
        peak_tile=peak,
        peak_bytes=top,
        categories=CATEGORIES,
        bytes_by_category_and_tile=tuple(tuple(row) for row in table.tolist()),
        peak_bytes_by_tile=tuple(table.sum(axis=0).tolist()),
        always_live_bytes_by_tile=tuple(table[0].tolist()),
        largest_on_peak_tile=(
            ("hidden1/weights", "weights", int(table[0, peak])),
            ("hidden1/stash", "stored activations", 31_000),
        ),
        liveness=tuple(
            Liveness(
                superstep=f"superstep {index}",
                phase=phase,
                fullest_tile=peak if index == 18 else int(random.integers(TILES)),
                fullest_tile_bytes=int(top * shape[index]),
                total_bytes=int(totals.sum() * shape[index]),
            )
            for index, phase in enumerate(phases)
        ),
    )


def make_assumptions(count: int, machine: str) -> tuple[Assumption, ...]:
    return tuple(
        Assumption(
            name=f"{machine}.exchange.number_{index}",
            value=f"{4 + index} bytes/cycle",
            kind=KINDS[index % 4],
            source="invented for this test; long enough that the cell of the table has to be folded in two",
        )
        for index in range(count)
    )


def make_tiled(random: np.random.Generator) -> TiledProfile:
    spans = make_spans(random)
    total = sum(span.cycles for span in spans)
    layer = ["hidden0"] * 730 + ["hidden1"] * 730 + ["output"] * 10 + [""] * 2
    mean = np.where(np.arange(TILES) < 730, 0.28, 0.42) * total
    busy = (mean * random.normal(1.0, 0.07, TILES)).astype(int)
    busy[1_460:1_470] //= 5
    busy[1_470:] = 0
    memory = make_memory(random)
    totals = np.asarray(memory.bytes_by_category_and_tile).sum(axis=0)
    seconds = total / 1.33e9 + 0.0002
    return TiledProfile(
        machine="ipu-mk2",
        title="Graphcore IPU Mk2 (GC200)",
        clock_hz=1.33e9,
        tiles=TILES,
        tiles_used=1_470,
        worker_contexts=6,
        spans=spans,
        tile_columns=TileColumns(
            grid_columns=46,
            busy_cycles=tuple(busy.tolist()),
            bytes_sent=tuple(random.integers(1_000, 900_000, TILES).tolist()),
            bytes_received=tuple(random.integers(1_000, 4_000_000, TILES).tolist()),
            peak_bytes=tuple(totals.tolist()),
            always_live_bytes=tuple((totals * 0.45).astype(int).tolist()),
            layer=tuple(layer),
        ),
        memory=memory,
        host_seconds=0.0011,
        host_exposed_seconds=0.0002,
        seconds_low=seconds * 0.87,
        seconds_high=seconds * 1.22,
        assumptions=make_assumptions(24, "ipu"),
    )


def make_gpu(
    title: str, strategy: str, precision: str, seconds: float, *, needed_gib: float = 3.2, gib: int = 40
) -> GpuProfile:
    parts = (("forward", "spike product", "memory", 0.3), ("forward", "neuron update", "launch", 0.15),
             ("loss", "softmax", "launch", 0.01), ("backward", "weight gradient", "compute", 0.4),
             ("update", "Adam", "memory", 0.1), ("input", "wait for batch", "host", 0.02))  # fmt: skip
    return GpuProfile(
        machine=title.lower().replace(" ", "-"),
        title=title,
        strategy=strategy,
        precision=precision,
        description=f"{strategy} kernels, one launch a timestep, replayed as a graph",
        spans=tuple(
            KernelSpan(
                name=f"{name} kernel",
                op=name,
                phase=phase,
                times=100,
                seconds=seconds * part,
                flops=10**9,
                bytes_moved=10**8,
                bound=bound,
            )
            for phase, name, bound, part in parts
        ),
        host_seconds=seconds * 0.05,
        host_exposed_seconds=seconds * 0.02,
        seconds_low=seconds * 0.8,
        seconds_high=seconds * 1.3,
        bytes_needed=int(needed_gib * 2**30),
        memory_bytes=gib * 2**30,
        assumptions=make_assumptions(10, title),
    )


def make_activity(random: np.random.Generator) -> tuple[Activity, ...]:
    found = []
    for layer, neurons, capacity in LAYERS:
        rates = neurons * (0.06 + 0.05 * np.sin(np.arange(100) / 12)) * random.uniform(0.9, 1.1, 100)
        pairs = [(t, int(n)) for t in range(100) for n in np.sort(random.choice(neurons, int(rates[t]), replace=False))]
        found.append(
            Activity(
                layer=layer,
                neurons=neurons,
                capacity=capacity,
                spikes_by_timestep=tuple(rates.tolist()),
                listed_by_timestep=tuple((rates * 2.1).tolist()),
                full_lists=0.031 if layer == "hidden0" else 0.0,
                dropped=12_345 if layer == "hidden0" else 0,
                raster=tuple(pairs),
            )
        )
    return tuple(found)


def make_profile() -> RunProfile:
    """A plausible run. Every number is invented: nothing here says how fast any real machine is."""
    random = np.random.default_rng(7)
    loss = 0.25 + 2.05 * np.exp(-np.arange(1_200) / 260) * random.uniform(0.8, 1.2, 1_200)
    return RunProfile(
        schema_version=1,
        tool_version="0.1.0",
        config_sha256="ab" * 32,
        seed=42,
        workload="nmnist",
        workload_title="N-MNIST, two hidden layers, surrogate gradients through 100 timesteps",
        network="2312-1466-1466-10",
        timesteps=100,
        batch=48,
        tiled=make_tiled(random),
        gpus=(
            make_gpu("NVIDIA A100 SXM 40 GB", "fused", "tf32", 0.021),
            make_gpu("NVIDIA A100 SXM 40 GB", "sparse gather", "fp32", 0.034),
            make_gpu("NVIDIA A100 SXM 40 GB", "dense per timestep", "fp32", 0.058),
            make_gpu("NVIDIA H100 SXM", "fused", "tf32", 0.0082, gib=80),
            make_gpu("NVIDIA H100 SXM", "dense per timestep", "fp32", 0.031, needed_gib=96, gib=80),
        ),
        training=Training(
            training_steps=1_200,
            samples=57_600,
            batch=48,
            loss=tuple(loss.tolist()),
            train_accuracy=0.971,
            test_accuracy=0.953,
            test_samples=10_000,
            test_accuracy_by_epoch=(0.81, 0.90, 0.93, 0.944, 0.953),
        ),
        activity=make_activity(random),
        warnings=("tile 12 sends 3.2 times the mean; the exchange waits for it",),
    )


class Reader(html.parser.HTMLParser):
    """Collects tags and what they load, and checks that tags close in order."""

    VOID = frozenset({"meta", "img", "br", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "srcset", "data", "poster", "action"):
                self.loads.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
