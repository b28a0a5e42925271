"""What a run's first lines say of a network besides its widths."""

from __future__ import annotations

from typing import Any

import pytest

from mimdsim.workload import load_workload, network_of


@pytest.mark.parametrize(
    ("workload", "changes", "summary"),
    [
        ("digits", {}, "512-256-128-10"),
        ("digits", {"network.spikes": "dense"}, "512-256-128-10 (dense spikes)"),
        ("digits", {"network.neuron": ["leaky", "leaky", "lif"]}, "512-256-128-10 (leaky, lif)"),
        ("digits", {"network.recurrence": "all_to_all"}, "512-256-128-10 (recurrent)"),
        (
            "digits",
            {"network.spikes": "dense", "network.batch_norm": "timestep", "network.dropout": 0.1},
            "512-256-128-10 (batch norm, dropout, dense spikes)",
        ),
        (
            "digits",
            {"network.spikes": "dense", "data.encoding": "image"},
            "64-256-128-10 (dense spikes, input of numbers)",
        ),
    ],
)
def test_what_is_not_as_usual_is_said(workload: str, changes: dict[str, Any], summary: str) -> None:
    assert network_of(load_workload(workload, changes)).summary == summary


def test_convolutions_are_said() -> None:
    assert "convolutions" in network_of(load_workload("nmnist-conv")).summary
