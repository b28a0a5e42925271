"""Energy of a training step: what it adds up, its laws, and what the report says of it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import exp
from typing import Any

import pytest

from mimdsim.costs.area_power import Voltage, energy_profile, silicon_profile, voltage_at
from mimdsim.gpu import time_on_gpu
from mimdsim.machine import GpuMachine, MimdMachine, load_machine
from mimdsim.machine.area_power import TiledEnergy
from mimdsim.pipeline import Run, retime, simulate
from mimdsim.profile import EnergyProfile, GpuProfile, TiledProfile
from mimdsim.report.tables_machines import energy_parts_table, energy_table
from mimdsim.timing import program_loads
from mimdsim.timing.analytic import input_bytes
from mimdsim.timing.tile_cycles import TileIssue
from mimdsim.workload import load_workload

SMALL: dict[str, Any] = {
    "data.inputs": 20,
    "data.classes": 3,
    "data.timesteps": 4,
    "data.input_capacity": 6,
    "data.activity": 0.2,
    "data.train_samples": 10,
    "data.test_samples": 5,
    "network.hidden": [24, 18],
    "network.capacity": [5, 4, 3],
    "training.batch": 5,
    "training.max_training_steps": 1,
}


def machine(**changes: Any) -> MimdMachine:
    found = load_machine("tiny", {key.replace("__", "."): value for key, value in changes.items()})
    assert isinstance(found, MimdMachine)
    return found


@lru_cache(maxsize=1)
def run() -> Run:
    return simulate(load_workload("nmnist-2-random", SMALL), machine())


def profiled(**changes: Any) -> TiledProfile:
    return retime(run().compiled, machine(**changes), run().log.activity)


def energy(**changes: Any) -> EnergyProfile:
    found = profiled(**changes).energy
    assert found is not None
    return found


def part(found: EnergyProfile, name: str) -> float:
    return next((each.joules for each in found.parts if each.name == name), 0.0)


def test_each_part_is_a_coefficient_times_what_was_counted() -> None:
    tiled, found = profiled(), energy()
    per = machine().energy
    assert per is not None
    loads = program_loads(run().compiled.program, run().log.activity, TileIssue.of(machine()))
    assert part(found, "static power") == pytest.approx(per.static_watts * tiled.seconds_per_training_step)
    assert part(found, "instructions and own memory") == pytest.approx(
        per.bundle_joules * sum(load.bundles for load in loads)
    )
    assert part(found, "exchange on the chip") == pytest.approx(
        per.exchange_joules_per_byte * sum(tiled.tile_columns.bytes_received)
    )
    assert part(found, "host link") == pytest.approx(per.host_joules_per_byte * input_bytes(run().compiled.program))
    assert found.joules == pytest.approx(sum(each.joules for each in found.parts))


def test_no_tile_issues_more_bundles_than_it_has_cycles() -> None:
    loads = program_loads(run().compiled.program, run().log.activity, TileIssue.of(machine()))
    for load in loads:
        assert load.bundles <= load.busy_part.sum() + len(load.busy_part)  # one rounding a tile


def test_turns_that_no_context_takes_issue_nothing() -> None:
    """Library vertices, rows and vertices of our own issue as much where each context waits twice as long."""
    six, twice = energy(), energy(tile__issue_cycles=12)
    assert profiled(tile__issue_cycles=12).cycles > profiled().cycles
    assert part(twice, "instructions and own memory") == pytest.approx(part(six, "instructions and own memory"))


def test_twice_the_clock_halves_static_energy_and_leaves_the_rest() -> None:
    slow, fast = energy(), energy(chip__clock_hz="2 GHz")
    exposed = profiled().host_exposed_seconds, profiled(chip__clock_hz="2 GHz").host_exposed_seconds
    assert exposed == (0, 0)
    assert part(fast, "static power") == pytest.approx(part(slow, "static power") / 2)
    for each in slow.parts:
        if each.name != "static power":
            assert part(fast, each.name) == pytest.approx(each.joules)


@pytest.mark.parametrize(
    "field", ["static_watts", "bundle_joules", "arithmetic_joules_per_flop", "exchange_joules_per_byte"]
)
def test_every_coefficient_counts(field: str) -> None:
    section = machine().energy
    assert section is not None
    assert energy(**{f"energy__{field}": 2 * getattr(section, field)}).joules > energy().joules


def test_the_interval_is_as_wide_as_the_sources_are_weak() -> None:
    sources = dict.fromkeys(TiledEnergy.model_fields.keys() - {"sources"}, "assumed: x")
    numbers = dict.fromkeys(sources, 1.0)
    guessed = energy_profile(TiledEnergy(**numbers, sources=sources), (("a", "static_watts", 2.0),))
    measured = TiledEnergy(**numbers, sources={**sources, "static_watts": "measured: x"})
    known = energy_profile(measured, (("a", "static_watts", 2.0),))
    assert (guessed.joules_low, guessed.joules_high) == pytest.approx((2 / exp(0.5), 2 * exp(0.5)))
    assert (known.joules_low, known.joules_high) == pytest.approx((2 / exp(0.05), 2 * exp(0.05)))


def test_a_machine_that_says_nothing_of_energy_gets_none() -> None:
    silent = machine().model_copy(update={"energy": None})
    tiled = retime(run().compiled, silent, run().log.activity)
    assert tiled.energy is None
    assert energy_parts_table(tiled) is None


@pytest.mark.parametrize(("name", "limit_watts"), [("bow", 350.0), ("mk2", 300.0), ("c600", 185.0), ("mk1", 150.0)])
def test_a_chip_that_does_nothing_but_issue_stays_below_its_power_limit(name: str, limit_watts: float) -> None:
    """A bundle on every tile in every cycle and every wire busy: the limits of the boards leave room for more."""
    found = load_machine(name)
    assert isinstance(found, MimdMachine)
    assert found.energy is not None
    voltage = voltage_at(found)
    assert isinstance(voltage, Voltage)
    issued = found.chip.tiles * found.chip.clock_hz * voltage.squared.value
    silicon = silicon_profile(found)
    assert silicon is not None
    assert silicon.static_watts is not None
    watts = silicon.static_watts[0] + issued * found.energy.bundle_joules
    assert 0.3 * limit_watts < watts < limit_watts


# ---- GPUs


def on_gpu(strategy: str, precision: str = "tf32", gpu: str = "a100") -> GpuProfile:
    found = load_machine(gpu)
    assert isinstance(found, GpuMachine)
    return time_on_gpu(
        run().compiled.graph,
        found,
        strategy=strategy,
        precision=precision,
        activity=run().log.activity,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("strategy", ["as_published", "hoisted", "lists_as_written"])
def test_a_gpu_pays_static_power_for_every_second(strategy: str) -> None:
    profile = on_gpu(strategy)
    assert profile.energy is not None
    assert part(profile.energy, "static power") == pytest.approx(66 * profile.seconds_per_training_step)
    assert profile.energy.joules_low < profile.energy.joules < profile.energy.joules_high


def test_flops_and_bytes_of_a_gpu_are_each_charged_once() -> None:
    profile = on_gpu("hoisted")
    gpu = load_machine("a100")
    assert isinstance(gpu, GpuMachine)
    assert profile.energy is not None
    assert gpu.energy is not None
    flops = sum(span.flops for span in profile.spans)
    charged = part(profile.energy, "arithmetic") / gpu.energy.simt_joules_per_flop
    charged += part(profile.energy, "arithmetic on tensor units") / gpu.energy.tf32_joules_per_flop
    assert charged == pytest.approx(flops)
    moved = part(profile.energy, "DRAM") / gpu.energy.dram_joules_per_byte
    moved += part(profile.energy, "L2") / gpu.energy.l2_joules_per_byte
    assert moved == pytest.approx(sum(span.bytes_moved for span in profile.spans))


def test_where_there_are_no_tensor_units_products_are_charged_as_arithmetic() -> None:
    profile = on_gpu("hoisted", gpu="v100")
    assert profile.energy is not None
    assert part(profile.energy, "arithmetic on tensor units") == 0


@pytest.mark.parametrize(
    ("name", "limit_watts", "precision"),
    [("a100", 400, "fp16"), ("a100", 400, "fp32"), ("h200", 700, "fp16"), ("v100", 300, "fp16"), ("t4", 70, "fp16")],
)
def test_products_at_the_reachable_peak_stay_near_the_power_limit(
    name: str, limit_watts: float, precision: str
) -> None:
    gpu = load_machine(name)
    assert isinstance(gpu, GpuMachine)
    assert gpu.energy is not None
    per_flop = gpu.energy.simt_joules_per_flop if precision == "fp32" else gpu.energy.fp16_joules_per_flop
    share = gpu.chip.product_share if precision == "fp32" else gpu.chip.tensor_product_share
    watts = gpu.energy.static_watts + 0.8 * share * gpu.peak_flops_per_second(precision) * per_flop  # type: ignore[arg-type]
    watts += 30  # for memory, as in the sources of these figures
    assert 0.35 * limit_watts < watts < 1.1 * limit_watts


def test_the_report_sets_both_machines_side_by_side() -> None:
    profile = replace(run().profile, gpus=(on_gpu("hoisted"),))
    shown = energy_table(profile)
    assert shown is not None
    assert [row[1].text for row in shown.rows] == ["compiled to tiles", "hoisted"]
