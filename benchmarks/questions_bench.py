"""What the pages of open questions are made with: recorded spikes, variants compiled and timed, tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mimdsim.base.units import UNCERTAINTY
from mimdsim.compiler import Compiled
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import compile_workload, open_data, retime, train_workload
from mimdsim.profile import TiledProfile, ratio_of
from mimdsim.program import RecordedActivity
from mimdsim.workload import Workload, load_workload

Changes = dict[str, Any]
INPUT_IDS = 12.7  # per timestep: mean over N-MNIST recordings in 1 ms bins at capacity 32
INPUTS = {"nmnist": (2312, 10), "shd": (700, 20)}  # neurons, classes
CAPACITIES = {"nmnist-2": (14, 72, 146), "nmnist-4": (6, 36, 72)}  # as published
NETWORKS = tuple(CAPACITIES)
SMALL, LARGE = "nmnist-2 S 14", "nmnist-2 S 146"
CASES = {f"{name} S {slots}": (name, slots) for name in NETWORKS for slots in CAPACITIES[name][::2]}


class Bench:
    """Compiles and times workloads; `shrink` divides widths, batch, timesteps and tiles, for tests."""

    def __init__(self, data: str = "", shrink: int = 1):
        self.data, self.shrink = data, shrink
        self.recorded: dict[tuple[str, int], RecordedActivity] = {}
        self.profiles: dict[str, TiledProfile] = {}

    def workload(self, name: str, slots: int = 0, changes: Changes | None = None) -> Workload:
        """The workload with `slots` ids in every hidden layer's lists (0: as described), one training step."""
        given = load_workload(name)
        hidden = [max(2, width // self.shrink // 4 * 4) if self.shrink > 1 else width for width in given.network.hidden]
        hidden *= (changes or {}).get("layers times", 1)
        neurons, classes = INPUTS[given.data.source]
        batch = max(6, given.training.batch // self.shrink)
        table: Changes = {
            "data.source": "random", "data.path": "", "data.inputs": neurons, "data.classes": classes,
            "data.activity": INPUT_IDS / neurons, "data.train_samples": batch, "data.test_samples": 1,
            "data.timesteps": max(3, given.data.timesteps // self.shrink), "network.hidden": hidden,
            "training.batch": batch, "training.max_training_steps": 1,
        }  # fmt: skip
        if self.data and given.data.source == "nmnist":
            for key in ("data.inputs", "data.classes", "data.activity"):  # the recordings have their own
                del table[key]
            table |= {"data.source": "nmnist", "data.path": self.data}
        if slots:
            table["network.capacity"] = [min(slots, width) for width in hidden] + [2]
        table |= {key: value for key, value in (changes or {}).items() if key != "layers times"}
        return load_workload(name, table)

    def machine(self, changes: Changes | None = None) -> MimdMachine:
        """Bow, changed."""
        tiles = {"chip.tiles": 1472 // self.shrink + 24} if self.shrink > 1 else {}
        machine = load_machine("bow", {**tiles, **(changes or {})})
        assert isinstance(machine, MimdMachine)
        return machine

    def compiled(
        self, name: str, slots: int = 0, changes: Changes | None = None, machine: Changes | None = None
    ) -> Compiled:
        return compile_workload(self.workload(name, slots, changes), self.machine(machine), must_fit=False)

    def activity(self, name: str, slots: int = 0) -> RecordedActivity:
        """Spikes of one training step; those of a smaller capacity where no list was full there."""
        for (other, fewer), known in self.recorded.items():
            roomy = all(counts.max() < known.ids[layer].shape[2] for layer, counts in hidden_counts(known))
            if other == name and (fewer == slots or (fewer < slots and roomy)):
                return known
        workload = self.workload(name, slots)
        compiled = compile_workload(workload, self.machine(), must_fit=False)
        self.recorded[name, slots] = train_workload(workload, compiled, open_data(workload)).activity
        return self.recorded[name, slots]

    def timed(
        self, name: str, slots: int = 0, changes: Changes | None = None, machine: Changes | None = None
    ) -> TiledProfile:
        """The profile of a variant; a longer sequence, a larger batch or more layers repeat the recorded spikes."""
        key = f"{name} {slots} {changes or {}} {machine or {}}"
        if key not in self.profiles:
            compiled = self.compiled(name, slots, changes, machine)
            spikes = fitted(self.activity(name, slots), compiled)
            self.profiles[key] = retime(compiled, self.machine(machine), spikes)
        return self.profiles[key]


def hidden_counts(activity: RecordedActivity) -> list[tuple[str, np.ndarray]]:
    return [(layer, counts) for layer, counts in activity.counts.items() if layer.startswith("hidden")]


def fitted(activity: RecordedActivity, compiled: Compiled) -> RecordedActivity:
    """The activity cut or repeated to the timesteps, the batch and the hidden layers of a program."""
    network, layers = compiled.network, len(hidden_counts(activity))
    first = next(iter(activity.counts.values()))
    when = np.arange(network.timesteps) % first.shape[0]
    which = np.arange(network.batch) % first.shape[1]
    source = {layer.name: layer.name for layer in network.layers} | {"input": "input"}
    source |= {name: f"hidden{int(name[6:]) % layers}" for name in source if name.startswith("hidden")}
    ids = {name: activity.ids[old][when][:, which] for name, old in source.items()}
    counts = {name: activity.counts[old][when][:, which] for name, old in source.items()}
    return RecordedActivity(ids=ids, counts=counts, dropped={})


def full_lists(compiled: Compiled) -> RecordedActivity:
    """Every list full of true spikes: random ids, the dearest activity a capacity allows."""
    network, rng = compiled.network, np.random.default_rng(1)
    sizes = [("input", network.inputs, network.input_capacity)]
    sizes += [(layer.name, layer.neurons, layer.capacity) for layer in network.layers]
    ids, counts = {}, {}
    for name, neurons, capacity in sizes:
        chances = rng.random((network.timesteps, network.batch, neurons), np.float32)
        ids[name] = np.sort(chances.argpartition(capacity - 1, axis=2)[..., :capacity], axis=2).astype(np.int32)
        counts[name] = np.full((network.timesteps, network.batch, 2), capacity, np.int32)
    return RecordedActivity(ids=ids, counts=counts, dropped={})


# ---- words and tables


def table(header: Iterable[object], rows: Iterable[Iterable[object]]) -> list[str]:
    head = [str(cell) for cell in header]
    lines = [head, ["---"] * len(head), *([str(cell) for cell in row] for row in rows)]
    return ["", *("| " + " | ".join(line) + " |" for line in lines), ""]


def ms(profile: TiledProfile, interval: bool = False) -> str:
    middle = f"{1e3 * profile.seconds_per_training_step:.2f}"
    return f"{middle} ({1e3 * profile.seconds_low:.2f}-{1e3 * profile.seconds_high:.2f})" if interval else middle


def change(profile: TiledProfile, base: TiledProfile) -> str:
    return f"{profile.seconds_per_training_step / base.seconds_per_training_step - 1:+.1%}"


def with_change(profile: TiledProfile, base: TiledProfile) -> str:
    """Milliseconds, the change in per cent against the base, and its interval: what both share errs alike."""
    if profile.seconds_per_training_step == base.seconds_per_training_step:
        return ms(profile)
    times = ratio_of(profile, base)
    low, middle, high = (100 * (end - 1) for end in (times.low, times.middle, times.high))
    return f"{ms(profile)} ({middle:+.1f}, {low:+.1f} to {high:+.1f} %)"


def turns(profile: TiledProfile) -> int:
    return max(span.times for span in profile.spans)


def per_timestep(profile: TiledProfile, starts: str | tuple[str, ...], part: str = "cycles") -> float:
    """A part of the spans inside the loops whose names begin so, per timestep."""
    spans = [span for span in profile.spans if span.name.startswith(starts) and span.times > 1]
    return float(sum(getattr(span, part) for span in spans) / turns(profile))


def kib(number: float) -> str:
    return f"{number / 1024:,.0f}"


def rests_on(profile: TiledProfile) -> str:
    """Of which kinds of numbers the cycles are, and the half width that follows."""
    whole = sum(doubt.cycles for doubt in profile.doubts)
    kinds = [
        f"{sum(doubt.cycles for doubt in profile.doubts if doubt.kind == kind) / whole:.0%} {kind}"
        for kind in UNCERTAINTY
        if any(doubt.kind == kind for doubt in profile.doubts)
    ]
    half = (profile.seconds_high - profile.seconds_low) / 2 / profile.seconds_per_training_step
    return f"Cycles by kind of source: {', '.join(kinds)}; the interval is ±{half:.0%}."


def crossing(at: list[int], one: list[float], other: list[float]) -> str:
    """Where `other` becomes cheaper than `one`, by straight lines between the points."""
    gaps = [b - a for a, b in zip(one, other, strict=True)]
    for left in range(len(at) - 1):
        if gaps[left] > 0 >= gaps[left + 1]:
            share = gaps[left] / (gaps[left] - gaps[left + 1])
            return f"at about {at[left] + share * (at[left + 1] - at[left]):.0f}"
    return f"already at {at[0]}" if gaps[0] <= 0 else f"nowhere up to {at[-1]}"
