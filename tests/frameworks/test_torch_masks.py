"""Weights that stay zero in networks of PyTorch: masks multiplied by hand, and torch.nn.utils.prune."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import compiled, executed
from test_from_torch import given_to, off

import mimdsim
from mimdsim.base.errors import MimdsimError
from mimdsim.workload import network_of
from mimdsim.workload.interchange.start import given_weights

torch = pytest.importorskip("torch")
snn = pytest.importorskip("snntorch")
zoo = pytest.importorskip("torch_networks")
frameworks = pytest.importorskip("mimdsim.frameworks")
nn: Any = torch.nn
prune: Any = pytest.importorskip("torch.nn.utils.prune")
SHORT = {"training.max_training_steps": 6, "training.evaluate": "never", "training.learning_rate": 0.02}

pytestmark = pytest.mark.torch


def pruned() -> Any:
    """Two linear layers, of which the first and its bias lose weights."""
    torch.manual_seed(3)
    module = zoo.Loop(snn.Leaky(beta=0.9), snn.Leaky(beta=0.95))
    with torch.no_grad():
        module.fc1.weight.mul_(4)
        module.fc2.weight.mul_(4)
    prune.random_unstructured(module.fc1, "weight", amount=0.6)
    prune.random_unstructured(module.fc1, "bias", amount=0.5)
    return module


def example() -> tuple[Any, Any]:
    draw = torch.Generator().manual_seed(5)
    spikes = (torch.rand(zoo.TIMESTEPS, zoo.BATCH, zoo.INPUTS, generator=draw) < 0.3).float()
    return spikes, torch.randint(zoo.CLASSES, (zoo.BATCH,), generator=draw)


def test_pruned_layers_have_the_gradients_of_pytorch_and_keep_their_zeros(tmp_path: Path) -> None:
    module, (spikes, labels) = pruned(), example()
    workload = frameworks.from_torch(module, spikes, loss="ce_count_loss", changes=SHORT, out=tmp_path)
    assert workload.training.pruned == {"hidden0": 0.0, "hidden0.bias": 0.0}
    network = network_of(workload)
    weights = given_weights(workload, network)
    outcome = executed(compiled(network), given_to(network, weights, spikes.numpy(), labels.numpy()))
    torch.nn.functional.cross_entropy(module(spikes)[0].sum(0), labels).backward()
    for name, parameter in (("hidden0", "weight_orig"), ("b.hidden0", "bias_orig")):
        wanted = getattr(module.fc1, parameter).grad.numpy()
        mine = outcome.gradients[name].reshape(wanted.T.shape)
        assert off(mine, wanted.T) < 2e-6
        assert (mine == 0).sum() >= (getattr(module.fc1, parameter.replace("orig", "mask")) == 0).sum() > 0
    before = module.fc1.weight_orig.detach().clone()
    made = mimdsim.run(workload, "bow", gpus=())
    gone = module.fc1.weight_mask.numpy().T == 0
    assert not made.weights["hidden0"][gone].any()
    assert made.weights["hidden0"][~gone].all()
    mimdsim.to_torch(module, made)
    module(spikes)
    np.testing.assert_array_equal(module.fc1.weight.detach().numpy(), made.weights["hidden0"].T)
    assert not torch.equal(module.fc1.weight_orig, before)


def test_a_pruned_convolution_is_read() -> None:
    torch.manual_seed(2)
    module = nn.Sequential(
        nn.Conv2d(2, 4, 3), snn.Leaky(beta=0.9, init_hidden=True), nn.Flatten(), nn.Linear(64, 3),
        snn.Leaky(beta=0.9, init_hidden=True, output=True),
    )  # fmt: skip
    prune.ln_structured(module[0], "weight", amount=0.5, n=2, dim=0)
    spikes = (torch.rand(5, 2, 2, 6, 6) < 0.4).float()
    workload = frameworks.from_torch(module, spikes, timesteps=5, loss="ce_count_loss")
    weights = given_weights(workload, network_of(workload))["w.hidden0"]
    assert workload.training.pruned == {"hidden0": 0.0}
    assert (weights == 0).all(axis=0).sum() == 2  # of four channels


class Twice(zoo.Masked):  # type: ignore[misc]
    """Uses weights in a way that no mask does."""

    def __init__(self, how: str):
        super().__init__()
        self.how = how
        if how == "zeros":
            with torch.no_grad():
                self.first.weight[:, 3] = 0

    def forward(self, x: Any) -> Any:
        mem1, out = self.lif1.reset_mem(), []
        for t, step in enumerate(x):
            mask = self.mask
            if self.how == "moving":
                mask = mask.roll(t, 0)
            if self.how == "scaled":
                mask = 0.5 * mask
            weight = self.first.weight * mask
            if self.how == "both" and t % 2:
                weight = self.first.weight
            spk, mem1 = self.lif1(torch.nn.functional.linear(step, weight, self.first.bias), mem1)
            out.append(spk)
        return torch.stack(out)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("moving", "'first.weight' is multiplied by masks that differ"),
        ("both", "'first.weight' is used with a mask and without"),
        ("scaled", "'linear'|is no weight of a layer"),
        ("zeros", "values of 'first.weight' are 0 where its mask is 1, and would stay 0"),
    ],
)
def test_what_no_mask_does_is_refused(how: str, message: str) -> None:
    torch.manual_seed(1)
    module = Twice(how)
    del module.last, module.lif2
    with pytest.raises(MimdsimError, match=message):
        frameworks.from_torch(module, example()[0], loss="ce_count_loss")


def test_other_hooks_are_refused_beside_pruning() -> None:
    module = pruned()
    module.fc1.register_forward_pre_hook(lambda *_: None)
    with pytest.raises(MimdsimError, match=r"'fc1' .Linear. has hooks"):
        frameworks.from_torch(module, example()[0], loss="ce_count_loss")
