"""Initial weights scaled until every layer fires as often as asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from networks import compiled, small_network
from test_training_course import Samples

from mimdsim.base.errors import DescriptionError
from mimdsim.execution import Executor, InitialActivity, initial_weights, scaled_to_activity
from mimdsim.execution.trainer import load_batch
from mimdsim.pipeline import compile_workload, open_data, train_workload
from mimdsim.pipeline.overrides import load_tiled
from mimdsim.workload import load_workload

NETWORK = small_network((20, 40, 30, 10), timesteps=12, batch=8)


@pytest.mark.parametrize("scale", [0.02, 1.0, 50.0])
@pytest.mark.parametrize("wanted", [0.05, 0.2])
def test_every_layer_fires_as_wanted(scale: float, wanted: float) -> None:
    weights = initial_weights(NETWORK, seed=1, scale=scale, offset=0.001)
    data = Samples(NETWORK, 8)  # one batch, whatever its order
    asked = InitialActivity(share=wanted, tolerance=0.1)
    made = scaled_to_activity(compiled(NETWORK).program, NETWORK, data, weights, asked, seed=3)
    executor = Executor(compiled(NETWORK).program)
    executor.write(made)
    load_batch(executor, data, np.arange(8))
    executor.run(phases=("forward",))
    for layer in NETWORK.layers:
        share = executor.activity().counts[layer.name][..., 0].mean() / layer.neurons
        assert share == pytest.approx(wanted, rel=0.1), layer.name
        factors = made[f"w.{layer.name}"] / weights[f"w.{layer.name}"]
        assert np.ptp(factors) <= 1e-5 * factors.max()  # one factor for all
    again = scaled_to_activity(compiled(NETWORK).program, NETWORK, data, weights, asked, seed=3)
    for name, weight in made.items():
        assert weight.tobytes() == again[name].tobytes()


def test_what_cannot_be_reached_is_said() -> None:
    program = compiled(NETWORK).program
    data = Samples(NETWORK, 8)
    weights = initial_weights(NETWORK, seed=1, scale=1.0, offset=0.001)
    silent = {**weights, "w.hidden1": -np.abs(weights["w.hidden1"])}
    with pytest.raises(
        DescriptionError, match=r"layer 'hidden1' does not get to 0\.1 of its neurons .*: 0 at a factor"
    ):
        scaled_to_activity(program, NETWORK, data, silent, InitialActivity(share=0.1), seed=3)
    narrow = small_network((20, 40, 10), timesteps=12, batch=8, capacities=(4, 10))
    with pytest.raises(DescriptionError, match="more than its capacity of 4 of 40: raise the capacity"):
        scaled_to_activity(
            compiled(narrow).program, narrow, data, initial_weights(narrow, 1, 1.0, 0.0), InitialActivity(share=0.2), 3
        )


def test_a_layer_that_does_not_spike_keeps_its_weights() -> None:
    *hidden, output = NETWORK.layers
    network = replace(NETWORK, layers=(*hidden, replace(output, spiking=False)))
    weights = initial_weights(network, seed=1, scale=1.0, offset=0.001)
    data, asked = Samples(network, 8), InitialActivity(share=0.02)
    made = scaled_to_activity(compiled(network).program, network, data, weights, asked, seed=3)
    np.testing.assert_array_equal(made["w.output"], weights["w.output"])
    assert not np.array_equal(made["w.hidden0"], weights["w.hidden0"])


@pytest.mark.slow
def test_a_workload_starts_from_the_activity_it_asks_for() -> None:
    pytest.importorskip("sklearn")
    workload = load_workload(
        "digits",
        {
            "data.train_samples": 96, "data.test_samples": 48, "training.max_training_steps": 1,
            "training.initial_activity": 0.05, "training.learning_rate": 1e-9, "network.hidden": [64, 32],
        },
    )  # fmt: skip
    compiled_workload = compile_workload(workload, load_tiled("bow", {}))
    log = train_workload(workload, compiled_workload, open_data(workload))
    for layer in compiled_workload.network.layers[:-1]:
        share = log.activity.counts[layer.name][..., 0].mean() / layer.neurons
        assert share == pytest.approx(0.05, rel=0.4), layer.name  # another batch than the one it was settled on
