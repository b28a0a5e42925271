"""Sparsity of the three passes: what the profile says is what a count over dense arrays finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from networks import SEEDS, SMALL, compiled, given_values, interpreted, networks, small_network

from mimdsim.execution import Executor, activity_profiles
from mimdsim.execution.activity import dropped_spikes
from mimdsim.graph import SpikingNetwork
from mimdsim.program import RecordedActivity
from mimdsim.report.tables_run import sparsity_table


def recorded(network: SpikingNetwork, seed: int) -> RecordedActivity:
    """Activity of one training step as the interpreter finds it, for any network."""
    values = given_values(network, seed)
    found = interpreted(network, values)
    return RecordedActivity(
        ids={"input": values.spikes.ids, **found.ids},
        counts={"input": values.spikes.counts, **found.listed},
        dropped={},
    )


def dense_spikes(activity: RecordedActivity, layer: str, neurons: int, column: int) -> np.ndarray:
    """bool[timesteps, batch, neurons], one by one."""
    ids, counts = activity.ids[layer], activity.counts[layer]
    fired = np.zeros((*counts.shape[:2], neurons), bool)
    for t, b in np.ndindex(*counts.shape[:2]):
        fired[t, b, ids[t, b, : counts[t, b, column]]] = True
    return fired


@SMALL
@given(network=networks(), seed=SEEDS, delay=st.sampled_from([0, 1]))
def test_shares_of_zeros_are_those_of_the_dense_arrays(network: SpikingNetwork, seed: int, delay: int) -> None:
    network = replace(network, delay=delay)
    activity = recorded(network, seed)
    profiles = activity_profiles(network, activity)
    assert profiles[0].sparsity is None
    read, width = dense_spikes(activity, "input", network.inputs, 0), network.inputs
    for profile, layer in zip(profiles[1:], network.layers, strict=True):
        assert profile.sparsity is not None
        fired = dense_spikes(activity, layer.name, layer.neurons, 0)
        listed = dense_spikes(activity, layer.name, layer.neurons, 1)
        assert profile.sparsity.forward == pytest.approx(1 - fired.mean(), abs=1e-6)
        assert profile.sparsity.state_gradient == pytest.approx(1 - listed.mean(), abs=1e-6)
        # a weight [source, neuron] gets a gradient where its source spiked
        touched = np.broadcast_to(read[..., None], (*read.shape, layer.neurons))
        assert profile.sparsity.weight_gradient == pytest.approx(1 - touched.mean(), abs=1e-6)
        assert profile.sparsity.untouched_weights == pytest.approx(1 - touched.any(axis=(0, 1)).mean(), abs=1e-6)
        assert profile.sparsity.state_gradient <= profile.sparsity.forward
        assert profile.sparsity.untouched_weights <= profile.sparsity.weight_gradient + 1e-6
        read, width = fired, layer.neurons
        if delay:
            read = np.concatenate([np.zeros((1, *fired.shape[1:]), bool), fired[:-1]])
    assert width == network.classes


def test_dense_spikes_all_get_a_gradient() -> None:
    network = small_network((9, 8, 3), timesteps=3, batch=2)
    profile = activity_profiles(replace(network, spikes="dense"), recorded(network, 2))[1]
    assert profile.sparsity is not None
    assert profile.sparsity.state_gradient == 0.0
    assert profile.sparsity.forward > 0.0


def test_weights_that_are_untouched_have_no_gradient() -> None:
    network = small_network((30, 8, 3), timesteps=3, batch=2, input_capacity=4, second_threshold=-100.0)
    values = given_values(network, 2, activity=0.05)
    found = interpreted(network, values)
    rows = np.flatnonzero(np.abs(found.gradients["hidden0"]).sum(axis=1) == 0).size
    activity = RecordedActivity(
        ids={"input": values.spikes.ids, **found.ids},
        counts={"input": values.spikes.counts, **found.listed},
        dropped={},
    )
    sparsity = activity_profiles(network, activity)[1].sparsity
    assert sparsity is not None
    assert 0 < sparsity.untouched_weights * 30 <= rows + 1e-4


def test_dropped_spikes_are_a_share_of_all_true_ones() -> None:
    """Three slots, weights that make all of 12 neurons fire at once: three emitted, nine dropped."""
    network = small_network((4, 12, 3), timesteps=2, batch=2, capacities=(3, 3))
    values = given_values(network, 1)
    values.arrays["w.hidden0"][:] = 8.0
    values.spikes.ids[:] = np.arange(4)
    values.spikes.counts[:] = 4
    executor = Executor(compiled(network).program)
    executor.write(values.for_program(network))
    executor.run()
    activity = executor.activity()
    activity = replace(activity, dropped=dropped_spikes(executor, network, activity))
    profile = activity_profiles(network, activity)[1]
    assert profile.dropped == 2 * 2 * 9
    assert profile.sparsity is not None
    assert profile.sparsity.dropped_share == pytest.approx(0.75)
    shown = sparsity_table(activity_profiles(network, activity))
    assert shown is not None
    assert [cell.text for cell in shown.rows[0]][:3] == ["hidden0", "75.0 %", "75.0 %"]
    assert shown.rows[0][5].text == "75.0 %"


def test_no_table_where_nothing_was_recorded() -> None:
    assert sparsity_table(()) is None
    network = small_network((4, 12, 3))
    only_input = activity_profiles(network, recorded(network, 1))[:1]
    assert sparsity_table(only_input) is None
