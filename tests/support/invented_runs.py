"""Profiles and rows of sweeps whose every number is invented: what the report shows of them follows from the report.

`WHOLE` has all there is to be shown. The others lack something or lie exactly on a bound at which the report decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mimdsim.profile import (
    Activity,
    Assumption,
    Change,
    Doubt,
    EnergyPart,
    EnergyProfile,
    Finding,
    GpuProfile,
    KernelSpan,
    Liveness,
    MemoryProfile,
    RunProfile,
    SiliconPart,
    SiliconProfile,
    Span,
    Sparsity,
    TileColumns,
    TiledProfile,
    Training,
    WhatIf,
)

KIB = 1024
PHASES = ("input", "forward", "forward", "loss", "backward", "backward", "update")


def span(place: int, **changes: Any) -> Span:
    compute = 1_000 * (place * 7 % 17)
    op = ("gather", "fire", "list", "outer product")[place % 4]
    usual = Span(
        name=f"part{place}/{op}",
        op=op,
        phase=PHASES[place * len(PHASES) // 15 % len(PHASES)],
        times=1 + place % 3,
        compute_cycles=compute,
        exchange_cycles=310 * (place * 5 % 11),
        sync_cycles=40 + place,
        busy_cycles=compute * 6,
        bytes_received=1_500 * place,
        flops=900_000 * place,
        slowest_tile=place % 12,
        exchange_tile=(place * 3) % 12,
        exchange_tile_bytes=70 * place,
        exchange_tile_control_cycles=3 * place,
    )
    return replace(usual, **changes)


def memory(
    tiles: int,
    *,
    categories: int = 12,
    limit: int = 200 * KIB,
    phases: Sequence[str] = PHASES,
    peak: int | None = None,
    top: int = 0,
) -> MemoryProfile:
    """A wave over the tiles; the second category is empty everywhere. top: superstep at which most is in use."""
    rows = [
        tuple(0 if row == 1 else 700 * (categories - row) + 90 * ((tile * (row + 3)) % 13) for tile in range(tiles))
        for row in range(categories)
    ]
    totals = [sum(column) for column in zip(*rows, strict=True)]
    fullest = totals.index(max(totals)) if peak is None else peak
    points = tuple(
        Liveness(
            superstep=f"superstep {at}",
            phase=phase,
            fullest_tile=(fullest + 2 * abs(at - top)) % tiles,
            fullest_tile_bytes=totals[fullest] - 1_100 * abs(at - top),
            total_bytes=sum(totals) - 9_000 * abs(at - top - 1),
        )
        for at, phase in enumerate(phases)
    )
    return MemoryProfile(
        limit_bytes=limit,
        peak_tile=fullest,
        peak_bytes=totals[fullest],
        categories=tuple(f"category {row}" for row in range(categories)),
        bytes_by_category_and_tile=tuple(rows),
        peak_bytes_by_tile=tuple(totals),
        always_live_bytes_by_tile=tuple(total // 3 for total in totals),
        largest_on_peak_tile=(("hidden0/weights", "category 0", 9_000), ("hidden0/stash", "category 3", 7_001)),
        liveness=points,
    )


def energy(joules: float) -> EnergyProfile:
    return EnergyProfile(
        parts=(
            EnergyPart(name="arithmetic", joules=joules / 4, kind="assumed", half_width_joules=joules / 10),
            EnergyPart(name="static power", joules=joules / 2, kind="published", half_width_joules=joules / 20),
            EnergyPart(name="exchange", joules=joules / 8, kind="derived", half_width_joules=joules / 16),
        )
    )


SILICON = SiliconProfile(
    process="invented 5 nm",
    area=(
        SiliconPart(name="SRAM", value=300.0, kind="derived", half_width=60.0),
        SiliconPart(name="logic of tiles", value=150.0, kind="assumed", half_width=40.0),
    ),
    static=(
        SiliconPart(name="leakage", value=20.0, kind="assumed", half_width=10.0),
        SiliconPart(name="clock tree", value=12.5, kind="assumed", half_width=2.5),
    ),
    volts_low=0.65,
    volts_high=0.8,
    full_load=SiliconPart(name="fully busy", value=200.0, kind="assumed", half_width=80.0),
)
TWICE: dict[str, Any] = {"chips": 2, "silicon": SILICON}  # two such chips


def assumptions(owner: str) -> tuple[Assumption, ...]:
    kinds = ("measured", "published", "published", "derived", "assumed", "guessed")
    return tuple(
        Assumption(name=f"{owner}.number_{at}", value=f"{at + 4} bytes/cycle", kind=kind, source=f"invented {at % 2}")
        for at, kind in enumerate(kinds)
    )


def tiled(
    tiles: int = 12, grid_columns: int = 5, idle: int = 2, layers: Sequence[str] = ("a", "b"), **changes: Any
) -> Any:
    """`idle` tiles at the end have no work; the others belong to the layers in turn."""
    used = tiles - idle
    busy = tuple(0 if tile >= used else 9_000 + 800 * ((tile * 7) % 9) for tile in range(tiles))
    kept = changes.pop("memory", None) or memory(tiles)
    spans = changes.pop("spans", None)
    spans = tuple(span(place) for place in range(15)) if spans is None else spans
    usual = TiledProfile(
        machine="invented",
        title="Invented machine",
        clock_hz=1.6e6,
        tiles=tiles,
        tiles_used=used,
        worker_contexts=6,
        spans=spans,
        tile_columns=TileColumns(
            grid_columns=grid_columns,
            busy_cycles=busy,
            bytes_sent=tuple(300 * (tile % 4) for tile in range(tiles)),
            bytes_received=tuple(2_000 + 37 * tile for tile in range(tiles)),
            peak_bytes=kept.peak_bytes_by_tile,
            always_live_bytes=kept.always_live_bytes_by_tile,
            layer=tuple(layers[tile * len(layers) // used] if tile < used and layers else "" for tile in range(tiles)),
        ),
        memory=kept,
        host_seconds=0.011,
        host_exposed_seconds=0.004,
        seconds_low=0.082,
        seconds_high=0.125,
        assumptions=assumptions("chip"),
    )
    return replace(usual, **changes)


def gpu(title: str, strategy: str, seconds: float, **changes: Any) -> GpuProfile:
    """Kernels take `seconds` in all but what the host adds."""
    parts = (
        ("forward", "spikes", "memory", 0.375), ("forward", "neurons", "launch", 0.125),
        ("backward", "weights", "compute", 0.25), ("update", "Adam", "memory", 0.125),
        ("input", "wait", "host", 0.0625), ("loss", "softmax", "something else", 0.0625),
    )  # fmt: skip
    usual = GpuProfile(
        machine=title.lower(),
        title=title,
        strategy=strategy,
        precision="fp32",
        description=f"{strategy} kernels",
        spans=tuple(
            KernelSpan(
                name=f"{op} kernel", op=op, phase=phase, times=10 + at, seconds=seconds * share, flops=10**7 * at,
                bytes_moved=10**6 * (at + 1), bound=bound,
            )
            for at, (phase, op, bound, share) in enumerate(parts)
        ),
        host_seconds=seconds / 16,
        host_exposed_seconds=seconds / 32,
        seconds_low=seconds * 0.75,
        seconds_high=seconds * 1.5,
        bytes_needed=3 * 2**30,
        memory_bytes=40 * 2**30,
        assumptions=assumptions(title),
    )  # fmt: skip
    return replace(usual, **changes)


def activity(layer: str, neurons: int, timesteps: int, *, capacity: int, spikes: int = 0, **changes: Any) -> Activity:
    """spikes: of the raster; a layer without has no raster."""
    fired = tuple(neurons * (1 + at % 4) / 40 for at in range(timesteps))
    usual = Activity(
        layer=layer,
        neurons=neurons,
        capacity=capacity,
        spikes_by_timestep=fired,
        listed_by_timestep=tuple(2.5 * each for each in fired),
        full_lists=0.0,
        dropped=0,
        raster=tuple((at * timesteps // spikes, at * 7 % neurons) for at in range(spikes)),
    )
    return replace(usual, **changes)


SPARSE = Sparsity(
    forward=0.93, state_gradient=0.82, weight_gradient=0.9375, untouched_weights=0.25, dropped_share=0.0004
)
TRAINING = Training(
    training_steps=60,
    samples=480,
    batch=8,
    loss=tuple(2.5 / (1 + at / 12) + 0.03 * (at % 5) for at in range(60)),
    train_accuracy=0.97,
    test_accuracy=0.9375,
    test_samples=1_200,
    test_accuracy_by_epoch=(0.5, 0.75, 0.9375),
    train_accuracy_by_epoch=(0.45, 0.8, 0.99),
    validation_accuracy_by_epoch=(0.4, 0.9, 0.85),
    validation_samples=300,
    best_epoch=1,
    scheduled=(("learning_rate", (0.02, 0.01, 0.004)), ("hidden0.second_threshold", (-3.0, 0.5))),
)
WHOLE = RunProfile(
    schema_version=4,
    tool_version="0.1.0",
    config_sha256="ab" * 32,
    seed=42,
    workload="invented",
    workload_title="Nothing of this was ever run",
    network="40-120-60",
    timesteps=25,
    batch=8,
    tiled=tiled(
        layers=("input", "hidden0", "hidden1"),
        spans=(
            *(span(place) for place in range(13)),
            span(13, compute_cycles=0, busy_cycles=0, exchange_cycles=9_000),
            span(14, compute_cycles=0, busy_cycles=0, exchange_cycles=8_000, exchange_tile=-1),
            span(15, name="no operation in its name", phase="update"),
        ),
        chips=3,
        energy=energy(0.8),
        silicon=SILICON,
        doubts=tuple(
            Doubt(name=f"doubt {at}", kind="assumed", cycles=30_000 - 4_000 * at, half_width_cycles=7_000 - 1_100 * at)
            for at in range(6)
        ),
        exchange_cycles_other_model=40_000,
    ),
    gpus=(
        gpu("Gamma", "fused", 0.05, energy=energy(0.3)),
        gpu("Gamma", "sparse", 0.04, bytes_needed=50 * 2**30),
        gpu("Gamma", "ideal", 0.01, never_built=True),
        gpu("Alpha", "fused", 0.5, precision="tf32"),
        gpu("Alpha", "dense", 1.5),
        gpu("Delta", "fused", 0.09),
    ),
    training=TRAINING,
    activity=(
        activity("input", 40, 25, capacity=20, spikes=30),
        activity("hidden0", 120, 25, capacity=40, spikes=450, full_lists=0.25, dropped=1_234, sparsity=SPARSE),
        activity("hidden1", 60, 25, capacity=30, full_lists=0.25, sparsity=replace(SPARSE, forward=0.5)),
        activity("output", 10, 25, capacity=90, full_lists=0.75),
    ),
    advice=(
        WhatIf(
            what="twice as many of everything",
            kind="mapping",
            command="mimdsim run invented machine --set mapping.program=best",
            cycles=4_000,
            gain=0.25,
            gain_low=-0.05,
            gain_high=0.5,
            more_bytes=2_048,
            superstep="step 3",
            before=900,
            after=0,
        ),
        WhatIf(
            what="no sync",
            kind="machine",
            command="mimdsim run invented machine --set sync.internal_cycles=0",
            cycles=5_000,
            gain=0.0123,
            gain_low=0.01,
            gain_high=0.0321,
            more_bytes=-300,
            superstep="step 4",
            before=70,
            after=60,
        ),
    ),
    warnings=("tile 12 sends 3.2 times the mean", "x" * 130),
    changes=(Change(key="network.hidden", value="[120, 60]"), Change(key="data.path", value="'" + "p" * 70 + "'")),
)


def several_machines() -> RunProfile:
    """Tiled machines side by side, one too small; the reference does not fit; no GPU strategy can be had."""
    reference = tiled(memory=memory(12, limit=30 * KIB, phases=PHASES * 2, top=9), clock_hz=1.0e6)
    twin = replace(reference, title="Faster clock", machine="faster", clock_hz=2.0e6, energy=energy(0.1))
    twin = replace(twin, silicon=replace(SILICON, static=(), full_load=None, unknown="3 GHz would need 2 V"))
    slow = replace(
        twin, title="Slower", machine="slower", clock_hz=0.5e6, seconds_low=0.3, seconds_high=0.5, silicon=SILICON,
        energy=None,
    )  # fmt: skip
    near = replace(twin, title="Near", machine="near", clock_hz=1.01e6, memory=memory(12))
    training = replace(
        TRAINING, test_accuracy=None, test_accuracy_by_epoch=(), validation_accuracy_by_epoch=(), scheduled=(),
        train_accuracy_by_epoch=(0.5, 0.75), best_epoch=None,
    )  # fmt: skip
    return replace(
        WHOLE,
        tiled=reference,
        tiled_beside=(twin, slow, near),
        gpus=(gpu("Gamma", "fused", 0.05, memory_bytes=2**30),),
        training=training,
        activity=(),
        warnings=(),
        changes=(),
    )


def kernel(**changes: Any) -> RunProfile:
    """A program without network that needs little memory; its check found something."""
    small = tiled(
        layers=(), run_name="run", host_seconds=0.0, host_exposed_seconds=0.0, clock_hz=1.33e9, seconds_low=7.5e-5,
        seconds_high=12.5e-5, memory=memory(12, categories=4, limit=624 * KIB, phases=("load", "work", "work"), top=1),
        spans=tuple(span(place, phase=("load", "work")[place % 2], op="other") for place in range(4)),
    )  # fmt: skip
    of = replace(
        WHOLE, network="", timesteps=1, batch=1, tiled=small, gpus=(), training=None, activity=(), warnings=(),
        changes=(),
        findings=(
            Finding(name="memory", passed=True, text="Memory is well."),
            Finding(name="values", passed=False, text="y is off by 3 at 7."),
        ),
    )  # fmt: skip
    return replace(of, **changes)


def many() -> RunProfile:
    """More than is drawn or listed one by one: tiles, layers, supersteps, kernels, training steps, lines."""
    tiles = 2_051
    most = gpu("Alpha", "fused", 2.0)
    spans = tuple(replace(most.spans[at % 6], seconds=0.001 * (at % 10 + 1)) for at in range(403))
    learnt = replace(
        TRAINING, training_steps=9_001, samples=72_008, loss=tuple(1 + (at * 7 % 11) / 10 for at in range(9_001)),
        train_accuracy=None, best_epoch=None, train_accuracy_by_epoch=(0.5,), validation_accuracy_by_epoch=(0.5,),
        test_accuracy_by_epoch=(0.5, 0.625),
    )  # fmt: skip
    layers = [f"layer {at}" for at in range(9)]
    return replace(
        WHOLE,
        tiled=tiled(tiles, 64, 3, layers, memory=memory(tiles), spans=tuple(span(at) for at in range(403))),
        gpus=(replace(most, spans=spans),),
        training=learnt,
        activity=tuple(activity(name, 30 + 80 * (at % 3), 12, capacity=70, spikes=9) for at, name in enumerate(layers)),
    )


def on_the_bounds() -> RunProfile:
    """Where the report decides by more or less, exactly as much."""
    kept = memory(5, categories=11, phases=("forward",) * 24 + ("loss",), top=1)
    kept = replace(kept, limit_bytes=kept.peak_bytes)
    busy = (4_000, 3_000, 2_000, 1_000, 500)
    reference = tiled(
        5, 5, 0, [f"layer {at}" for at in range(5)], memory=kept, host_seconds=0.0, host_exposed_seconds=0.0,
        spans=(span(1), span(2)),
    )  # fmt: skip
    columns = replace(reference.tile_columns, busy_cycles=busy, always_live_bytes=(0,) * 5)
    return replace(
        WHOLE,
        tiled=replace(reference, tile_columns=columns, seconds_low=0.005, seconds_high=0.02),
        gpus=(
            gpu("Alpha", "fused", 0.01, seconds_low=0.02, bytes_needed=2**30, memory_bytes=2**30),
            gpu("Beta", "fused", 0.01, seconds_high=0.005),
        ),
        training=replace(TRAINING, loss=(-0.5, 2.5), train_accuracy_by_epoch=(), test_accuracy=0.0, scheduled=()),
        activity=(
            activity("at four times", 100, 25, capacity=100, spikes=400, full_lists=0.5),
            activity("full", 99, 25, capacity=50, spikes=399, full_lists=0.01),
            *(activity(f"more {at}", 20, 25, capacity=5, spikes=3) for at in range(6)),
        ),
    )


def a_tenth_full() -> RunProfile:
    """Memory of exactly a tenth of the limit, ten categories, eight layers, half of the supersteps on the right."""
    kept = memory(8, categories=10, phases=("a", "b", "b", "b", "c"), top=3)
    kept = replace(kept, limit_bytes=10 * kept.peak_bytes, always_live_bytes_by_tile=(5,) * 8)
    layers = [f"layer {at}" for at in range(8)]
    return replace(WHOLE, tiled=tiled(8, 1, 0, layers, memory=kept), gpus=(), training=None, activity=())


def diverged() -> RunProfile:
    """No machine at all; the loss was lost, and one curve has more timesteps than the other."""
    loss = (2.5, 2.0, math.inf, math.nan)
    return replace(
        WHOLE,
        tiled=None,
        gpus=(gpu("Alpha", "fused", 0.01), gpu("Beta", "fused", 0.01, never_built=True)),
        training=replace(TRAINING, loss=loss, test_accuracy=None, best_epoch=None, train_accuracy_by_epoch=()),
        activity=(activity("silent", 10, 25, capacity=5, spikes_by_timestep=(), listed_by_timestep=()),),
    )


def nothing() -> RunProfile:
    """A machine on which nothing was done, a training without a step."""
    idle = tiled(
        2, 2, 2, spans=(), host_seconds=0.0, host_exposed_seconds=0.0, seconds_low=0.0, seconds_high=0.0,
        memory=MemoryProfile(
            limit_bytes=100, peak_tile=2, peak_bytes=0, categories=("weights",), bytes_by_category_and_tile=((0, 0),),
            peak_bytes_by_tile=(0, 0), always_live_bytes_by_tile=(0, 0), largest_on_peak_tile=(), liveness=(),
        ),
    )  # fmt: skip
    untrained = replace(TRAINING, loss=(), train_accuracy=None, test_accuracy=None, validation_accuracy_by_epoch=())
    return replace(
        WHOLE, tiled=idle, training=untrained, gpus=(gpu("Alpha", "fused", 0.0),), activity=(), changes=(), warnings=()
    )


PROFILES = {
    "whole": lambda: WHOLE,
    "several machines": several_machines,
    "kernel": kernel,
    "kernel not timed": lambda: kernel(tiled=None, findings=()),
    "many": many,
    "on the bounds": on_the_bounds,
    "a tenth full": a_tenth_full,
    "diverged": diverged,
    "nothing": nothing,
}


def swept(number_of: int, *, axis: str, values: Sequence[Any], others: Sequence[Any] = ("",)) -> list[dict[str, Any]]:
    """Rows of a sweep over `axis` and `mapping.stash`; every `number_of`-th does not fit, the last has no time."""
    rows = []
    for place, (value, other) in enumerate((value, other) for other in others for value in values):
        ms = 4.0 + place * 5 % 7
        timed = place < len(values) * len(others) - 1
        row: dict[str, Any] = {
            axis: value, "mapping.stash": other, "ms_per_training_step": ms if timed else None, "ms_low": ms * 0.75,
            "ms_high": ms * 1.5, "ratio": ms / 4, "ratio_low": ms / 5, "ratio_high": ms / 2.5,
            "compute_cycles": 1_000 * (place + 1), "exchange_cycles": 700, "sync_cycles": 300,
            "peak_bytes": 10_240 + 1_024 * place, "limit_bytes": 12_288, "fits": place % number_of != 0, "note": "",
        }  # fmt: skip
        for at, gpu_name in enumerate(("a100", "h100")):
            best = None if place % 4 == 3 else 9.0 + at + place
            row |= {f"{gpu_name} published_ms": 30.0 + place if at == 0 else None, f"{gpu_name} strongest_ms": best}
            row |= {f"{gpu_name} strongest_low_ms": 6.0, f"{gpu_name} strongest_high_ms": 20.0}
        rows.append(row if timed else row | {"fits": None})
    return rows
