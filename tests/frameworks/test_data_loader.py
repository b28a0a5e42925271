"""Batches of a PyTorch DataLoader, dense and sparse, become the spikes that they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_from_events import spikes_of

import mimdsim

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("shape", ["batch first", "time first"])
def test_a_data_loader(sparse: bool, shape: str) -> None:
    spikes = torch.rand((7, 12, 2, 3), generator=torch.Generator().manual_seed(1)) < 0.2
    labels = torch.arange(7)

    def collated(samples: list[Any]) -> tuple[Any, Any]:
        stacked = torch.stack([one for one, _ in samples], int(shape == "time first")).float()
        return stacked.to_sparse() if sparse else stacked, torch.stack([label for _, label in samples])

    data = torch.utils.data.TensorDataset(spikes, labels)
    loader = torch.utils.data.DataLoader(data, batch_size=3, collate_fn=collated)
    workload = mimdsim.from_events(loader, loader, time_axis=int(shape == "batch first"))
    assert (workload.data.inputs, workload.data.timesteps, workload.data.classes) == (6, 12, 7)
    for label in range(7):
        assert (spikes_of(workload, label) == np.asarray(spikes[label]).reshape(12, 6)).all()
