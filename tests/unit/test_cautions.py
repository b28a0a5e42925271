"""What is said before the numbers when a training run went wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from invented_training import log

from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import compile_workload
from mimdsim.pipeline.warnings import beyond_sources, fewer_slots, loss_warning, repeated_samples, rounded_tiles
from mimdsim.workload import SpikeDataset, load_workload, network_of


@pytest.mark.parametrize("tiles", [16, 3000])
@pytest.mark.parametrize("sync", [0.0, 2.0])
@pytest.mark.parametrize("exchange", [0.0, 0.01, 3.0])
def test_hops_do_not_silence_what_is_not_modelled(tiles: int, sync: float, exchange: float) -> None:
    """Distance may be given; that links are never full remains to be said."""
    changes = {"chip.tiles": tiles, "sync.hop_cycles": sync, "exchange.hop_cycles": exchange}
    machine = load_machine("tiny", changes)
    assert isinstance(machine, MimdMachine)
    said = [*beyond_sources(machine)]
    without = [key for key, cycles in changes.items() if not cycles]
    if tiles > 1472 and without:
        assert said[0].endswith(f"do not grow with distance; set {' and '.join(without)}")
    assert any("links are never full here" in one for one in said) == bool(exchange)
    assert len(said) == bool(exchange) + bool(tiles > 1472 and without)


def test_a_loss_that_rises_is_said() -> None:
    (said,) = loss_warning(log(np.linspace(2, 5, 40).tolist()))
    assert "the loss rose from 2.269 (first fifth of 40 training steps) to 4.731 (last)" in said


@pytest.mark.parametrize(
    "loss",
    [
        [],
        [2.3],
        [2.3, 9.0],  # too few to tell
        np.linspace(3, 1, 40).tolist(),
        [2.3 + 0.05 * (step % 3) for step in range(40)],
        np.linspace(-3, -4, 40).tolist(),
        np.linspace(0.001, 0.02, 40).tolist(),  # learned already
    ],
)
def test_other_losses_say_nothing(loss: list[float]) -> None:
    assert not [*loss_warning(log(loss))]


def test_capacities_beyond_the_neurons_are_said() -> None:
    workload = load_workload("digits", {"network.capacity": [300, 12, 11]})
    (said,) = fewer_slots(workload, network_of(workload))
    assert "network.capacity: 300 for the 256 neurons of hidden0, 11 for the 10 neurons of output:" in said
    by_activity = {"network.capacity": [], "network.activity": 0.1, "network.output_capacity": 40}
    workload = load_workload("digits", by_activity)
    (said,) = fewer_slots(workload, network_of(workload))
    assert "network.output_capacity: 40 for the 10 neurons of output" in said


@pytest.mark.parametrize("changes", [{}, {"network.capacity": [256, 128, 10]}, {"network.spikes": "dense"}])
def test_capacities_within_the_neurons_say_nothing(changes: dict[str, Any]) -> None:
    workload = load_workload("digits", changes)
    assert not [*fewer_slots(workload, network_of(workload))]


@pytest.mark.parametrize(
    ("samples", "changes", "said"),
    [
        (2, {"training.batch": 5}, "training.batch = 5, but there are 2 samples to train on: every batch"),
        (
            20,
            {"training.batch": 16, "training.validation_share": 0.25, "data.train_samples": 20},
            "are 15 samples to train on (data.train_samples = 20, training.validation_share = 0.25): every batch",
        ),
        (20, {"training.batch": 15, "training.validation_share": 0.25}, ""),
        (5, {"training.batch": 5}, ""),
    ],
)
def test_a_batch_larger_than_the_samples_is_said(samples: int, changes: dict[str, Any], said: str) -> None:
    data = SpikeDataset(
        ids=np.zeros((samples, 1, 1), np.uint16),
        counts=np.zeros((samples, 1), np.int32),
        labels=np.zeros(samples, np.int32),
        inputs=128,
        classes=10,
        surplus_events=0,
    )
    found = [*repeated_samples(load_workload("digits", changes), data)]
    assert len(found) == bool(said)
    assert said in "".join(found)


@pytest.mark.slow
def test_a_cliff_of_the_published_rule_is_told() -> None:
    """One tile less than two neurons a tile need, and neurons per tile that halves round."""
    workload = load_workload("nmnist-2-random")
    said = {}
    for tiles in (1472, 1471):
        device = load_machine("bow", {"chip.tiles": tiles})
        assert isinstance(device, MimdMachine)
        said[tiles] = [*rounded_tiles(workload, compile_workload(workload, device).placement)]
    assert said[1472] == []
    (told,) = said[1471]
    assert told.startswith("733 of 1,471 tiles hold no neurons: the published rule gives every tile the same number")
    halves = load_workload("nmnist-2-random", {"mapping.value_bytes": 2, "mapping.neurons_unit": 2})
    device = load_machine("bow")
    assert isinstance(device, MimdMachine)
    first, *_ = rounded_tiles(halves, compile_workload(halves, device).placement)
    assert first.startswith("mapping.value_bytes = 2 makes neurons per tile a multiple of 4 instead of 2")
