"""The headline figures of a run as one record, for scripts: `mimdsim run --json`, documented in docs/using.md.

Keys stay as they are; more may be added. A figure has a `value`, its `unit`, and where they are known the ends `low`
and `high` of its interval.
"""

from __future__ import annotations

from typing import Any

from mimdsim.profile import InferenceTime, RunProfile, TiledProfile
from mimdsim.report.formatting import changed_fields
from mimdsim.report.headline import verdicts, waiting_cycles
from mimdsim.report.machine_comparison import Contender, contenders

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
