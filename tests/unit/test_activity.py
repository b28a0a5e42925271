"""How sparse the passes of a recorded training step are, by layer, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mimdsim.execution.activity import activity_profiles
from mimdsim.profile import Sparsity
from mimdsim.program import RecordedActivity
from mimdsim.workload import load_workload, network_of

# ids of four neurons in three timesteps of one sample
FIRST, SECOND = [[0], [], [0, 1]], [[0, 2], [3], []]


def _of_output(sources: list[str]) -> Sparsity:
    changes = {"network.hidden": [4, 4], "network.sources": {"output": sources}, "network.spikes": "dense"}
    changes |= {"data.timesteps": 3, "training.batch": 1}
    network = network_of(load_workload("digits", changes))
    spikes = {"input": [[]] * 3, "hidden0": FIRST, "hidden1": SECOND, "output": [[0], [], []]}
    ids, counts = {}, {}
    for name, by_timestep in spikes.items():
        ids[name] = np.array([[[*each, *[0] * (10 - len(each))]] for each in by_timestep], np.int32)
        counts[name] = np.array([[[len(each)] * 2] for each in by_timestep], np.int32)
    profiles = activity_profiles(network, RecordedActivity(ids=ids, counts=counts, dropped={}))
    (found,) = (each.sparsity for each in profiles if each.layer == "output")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("sources", "read", "touched", "presynaptic"),
    [
        (["hidden1@t"], 3, 3, 4),
        (["hidden1@t-1"], 3, 3, 4),  # what spikes last is never read
        (["hidden1@t-2"], 2, 2, 4),
        (["hidden0@t", "hidden1@t"], 3 + 3, 2 + 3, 8),  # a matrix for each
        (["hidden0@t + hidden1@t"], 2 + 1 + 2, 4, 4),  # neuron 0 of both spikes in the first timestep
        (["hidden0@t-1 + hidden1@t"], 2 + 2 + 0, 3, 4),
    ],
)
def test_all_that_a_layer_reads_is_counted(sources: list[str], read: int, touched: int, presynaptic: int) -> None:
    found = _of_output(sources)
    assert found.weight_gradient == pytest.approx(1 - read / 3 / presynaptic, abs=1e-6)
    assert found.untouched_weights == pytest.approx(1 - touched / presynaptic, abs=1e-6)
    assert found.forward == pytest.approx(1 - 1 / 3 / 10, abs=1e-6)
