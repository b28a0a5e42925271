"""What is said of a program that does not fit, with savings that are given: what is tried, and what of it is told."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from by_hand import tiny
from networks import ADAM, small_network

from mimdsim.base.errors import DoesNotFit
from mimdsim.compiler.memory_report import check_fits, refuse_hopeless, remedies
from mimdsim.graph import Adam, Sgd, SpikingNetwork
from mimdsim.machine import MimdMachine
from mimdsim.numerics.optimisers import Optimiser, TorchAdam
from mimdsim.workload import MappingOptions

NETWORK = small_network(
    (32, 9, 6, 4), timesteps=12, batch=7, capacities=(8, 3, 4), input_capacity=20, recurrence="all_to_all"
)


def machine(sram: int, executable: int = 0, tiles: int = 16) -> MimdMachine:
    made = tiny(chip_tiles=tiles)
    return made.model_copy(
        update={"tile": made.tile.model_copy(update={"sram_bytes": sram, "executable_bytes": executable or sram})}
    )


def tried(network: SpikingNetwork, **options: Any) -> dict[str, tuple[SpikingNetwork, MappingOptions]]:
    return {advice: (other, chosen) for advice, other, chosen in remedies(network, MappingOptions(**options))}


def test_each_remedy_changes_what_it_names() -> None:
    found = tried(replace(NETWORK, optimiser=ADAM))
    fewer, sgd, recurrence, inputs, stash, timesteps, batch, hidden = found
    assert fewer == "mapping.weight_gradient_replicas = 2 instead of 6 (fewer contexts add in parallel)"
    assert found[fewer][1].weight_gradient_replicas == 2
    assert sgd == 'training.optimiser = "sgd" instead of "adam"'
    assert found[sgd][0].optimiser == replace(NETWORK.optimiser, learning_rate=ADAM.learning_rate)
    assert recurrence == 'network.recurrence = "one_to_one" instead of "all_to_all"'
    assert {layer.recurrence for layer in found[recurrence][0].layers} == {"one_to_one"}
    assert inputs == "18 inputs instead of 32 (3/4 of a sensor's width and height)"
    smaller = found[inputs][0]
    assert (smaller.inputs, smaller.input_capacity, smaller.layers[1:]) == (18, 18, NETWORK.layers[1:])
    # states kept: 12 / K between segments and K within one; 3 and 4 keep 7, the smaller is taken
    assert stash == 'mapping.stash = "every:3" instead of "everything" (states of segments; neurons run again)'
    assert found[stash][1].stash == "every:3"
    assert timesteps == "data.timesteps = 6 instead of 12"
    assert found[timesteps][0].timesteps == 6
    assert batch == "training.batch = 3 instead of 7"
    assert found[batch][0].batch == 3
    assert hidden == "network.hidden = [4, 3], half as wide"
    narrow = [(layer.inputs, layer.neurons, layer.selection.capacity) for layer in found[hidden][0].layers]
    assert narrow == [(32, 4, 4), (4, 3, 3), (3, 4, 4)]
    assert found[fewer][0] == replace(NETWORK, optimiser=ADAM)


@pytest.mark.parametrize(
    ("optimiser", "advice"),
    [
        (Adam(learning_rate=0.1, weight_decay=0.1), 'training.optimiser = "sgd" instead of "adamw"'),
        (TorchAdam(learning_rate=0.1), 'training.optimiser = "sgd" instead of "torch_adam"'),
        (Sgd(learning_rate=0.1, momentum=0.9), "training.momentum = 0 instead of 0.9"),
    ],
)
def test_what_any_optimiser_keeps_can_be_saved(optimiser: Optimiser, advice: str) -> None:
    (network, _) = tried(replace(NETWORK, optimiser=optimiser))[advice]
    assert network.optimiser == Sgd(learning_rate=0.1)
    assert not [said for said in tried(network) if "sgd" in said or "momentum" in said]


def test_what_cannot_be_less_is_not_tried() -> None:
    least = small_network((1, 3), timesteps=1, batch=1)
    assert not tried(least, weight_gradient_replicas=1)
    assert list(tried(least)) == ["mapping.weight_gradient_replicas = 2 instead of 6 (fewer contexts add in parallel)"]
    two = [advice.split(" = ")[0] for advice in tried(small_network((2, 3), timesteps=3, batch=2))]
    assert two[1:] == ["1 inputs instead of 2 (3/4 of a sensor's width and height)", "data.timesteps", "training.batch"]
    dense = [advice.split(" = ")[0] for advice in tried(replace(NETWORK, spikes="dense"))]
    assert "mapping.stash" not in dense
    assert "mapping.weight_gradient_replicas" not in dense
    for options in ({"stash": "carry"}, {"spike_exchange": "dense"}):
        assert not any(advice.startswith("mapping.stash") for advice in tried(NETWORK, **options))
    # 2 replicas become 1; half of 12 timesteps in whole segments of 4 is 4; one of 12 has no half
    kept = tried(NETWORK, stash="every:4", weight_gradient_replicas=2)
    assert [advice for advice in kept if "instead of" in advice and "mapping" in advice] == [
        "mapping.weight_gradient_replicas = 1 instead of 2 (fewer contexts add in parallel)"
    ]
    assert "data.timesteps = 4 instead of 12" in kept
    assert not any("timesteps" in advice for advice in tried(NETWORK, stash="every:12"))


def told(savings: dict[str, int], peak: list[int], on: MimdMachine | None = None) -> str:
    """The refusal where tiles need `peak` bytes and a remedy that begins so saves so much."""
    needed = max(peak)
    memory = SimpleNamespace(
        peak_bytes=needed, peak_tile=peak.index(needed), peak_by_tile=np.array(peak), peak_superstep=1,
        names=["one", "two"], largest=lambda _tile, _count: [("w", 700)], code=np.array([10, 30, 20]),
        vertices=np.array([5, 40, 60]),
    )  # fmt: skip
    program = SimpleNamespace(
        tiles=3, layer_of_tile=["", "hidden0", ""], variables={"w": SimpleNamespace(category="weights")}
    )
    options = MappingOptions()

    def peak_of(other: SpikingNetwork, chosen: MappingOptions) -> int:
        for advice, tried_network, tried_options in remedies(NETWORK, options):
            if (tried_network, tried_options) == (other, chosen):
                return needed - next((saved for name, saved in savings.items() if advice.startswith(name)), 0)
        raise AssertionError(other)

    check_fits(program, memory, on or machine(1000), NETWORK, options, peak_of)  # type: ignore[arg-type]
    return ""


def test_the_three_that_save_most_are_told() -> None:
    savings = {"training.batch": 200, "data.timesteps": 499, "network.hidden": 500, "network.rec": 10}
    with pytest.raises(DoesNotFit) as refused:
        told(savings, [900, 1500, 1001])
    assert str(refused.value).splitlines() == [
        "does not fit tiny: tile 1 (hidden0) needs 1,500 bytes (1.5 KiB) and has 1,000 (1000 B); 2 of 3 tiles are "
        "over.",
        "  largest there: w, 700 bytes (weights), in superstep 'two'",
        "  three things to change (each tried on its own):",
        "  - network.hidden = [4, 3], half as wide: saves 500 bytes (500 B), then it fits",
        "  - data.timesteps = 6 instead of 12: saves 499 bytes (499 B), still 1 B over",
        "  - training.batch = 3 instead of 7: saves 200 bytes (200 B), still 300 B over",
        "  or another mapping of the same: mimdsim place looks for one that fits",
    ]
    with pytest.raises(DoesNotFit, match=r"tile 2 \(no neurons\) needs 1,600 bytes .* 1 of 3 tiles are over"):
        told({}, [900, 1000, 1600])
    assert told({}, [900, 1000, 1]) == ""  # as much as there is


def test_code_and_vertices_must_lie_where_tiles_run_them() -> None:
    assert told({}, [1, 1, 1], machine(1000, 80)) == ""
    with pytest.raises(DoesNotFit, match=r"tile 2 \(no neurons\) needs 20 bytes of code and 60 of vertex state, the "):
        told({}, [1, 1, 1], machine(1000, 79))


def test_what_is_far_beyond_all_tiles_is_refused_before_it_is_placed() -> None:
    # 32 x 9 + 9 x 6 + 6 x 4 weights are 1464 bytes; states are 12 x 7 x 19 of 4 bytes, 6384
    network = replace(NETWORK, layers=tuple(replace(layer, recurrence="none") for layer in NETWORK.layers))
    assert sum(layer.inputs * layer.neurons for layer in network.layers) * 4 == 1464

    def refused(sram: int, must_fit: bool = True, **options: Any) -> str:
        try:
            refuse_hopeless(network, machine(sram, tiles=1), MappingOptions(**options), must_fit)
        except DoesNotFit as failure:
            return str(failure)
        return ""

    assert refused(3192) == ""
    assert "1,596 neuron states (12 timesteps kept for the backward pass, batch 7) are 6.2 KiB" in refused(3191)
    assert refused(3191, must_fit=False) == ""
    assert refused(1596, value_bytes=2) == ""
    assert refused(1064, stash="every:3") == ""  # four states of twelve
    assert "(4 timesteps kept" in refused(1063, stash="every:3")
    assert "366 weights are 1.4 KiB, all its tiles together have 146 B" in refused(146, stash="every:12")
    assert "weights" not in refused(147, stash="every:12")
    # where that is only told, what no known system holds: 2 x 16 GiB of states
    for batch, text in ((2**33, ""), (2**33 + 1, "does not fit")):
        huge = small_network((1, 1), timesteps=1, batch=batch)
        if text:
            with pytest.raises(DoesNotFit, match=text):
                refuse_hopeless(huge, machine(1000), MappingOptions(), must_fit=False)
        else:
            refuse_hopeless(huge, machine(1000), MappingOptions(), must_fit=False)
