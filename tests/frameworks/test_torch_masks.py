"""Weights that stay zero in networks of PyTorch: masks multiplied by hand, and torch.nn.utils.prune."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import compiled, executed
from test_from_torch import given_to, off
from torch_training import check_by_operations, check_steps

import mimdsim
from mimdsim.base.errors import MimdsimError
from mimdsim.execution import Executor
from mimdsim.workload import network_of
from mimdsim.workload.interchange.layers import given_weights

torch = pytest.importorskip("torch")
snn = pytest.importorskip("snntorch")
zoo = pytest.importorskip("torch_networks")
frameworks = pytest.importorskip("mimdsim.frameworks")
load_trained = pytest.importorskip("mimdsim.frameworks.torch_weights").load_trained
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
        ("zeros", "values of 'first.weight' are 0 where its mask is 1, and would stay 0"),
    ],
)
def test_what_no_mask_does_is_refused(how: str, message: str) -> None:
    torch.manual_seed(1)
    module = Twice(how)
    del module.last, module.lif2
    with pytest.raises(MimdsimError, match=message):
        frameworks.from_torch(module, example()[0], loss="ce_count_loss")


def test_a_mask_may_be_scaled() -> None:
    torch.manual_seed(1)
    module = Twice("scaled")
    del module.last, module.lif2
    with torch.no_grad():
        module.first.weight.mul_(8)
    check_steps(module, example()[0])


def test_other_hooks_are_refused_beside_pruning() -> None:
    module = pruned()
    module.fc1.register_forward_pre_hook(lambda *_: None)
    with pytest.raises(MimdsimError, match=r"'fc1' .Linear. has hooks"):
        frameworks.from_torch(module, example()[0], loss="ce_count_loss")


def test_biases_that_add_up_to_scaled_ones_are_those_of_equations() -> None:
    class Halved(nn.Sequential):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            self[1].reset_mem()
            return torch.stack([self[1](self[0](step) / 2)[0] for step in x])

    cell = snn.RLeaky(beta=0.9, linear_features=zoo.CLASSES, init_hidden=True, output=True)
    said = "'1' adds up biases of products that are scaled; nearest: bias=False"
    check_by_operations(said, Halved(nn.Linear(zoo.INPUTS, zoo.CLASSES), cell), example()[0])


UPDATED = ("snntorch RLeaky", "recurrence by hand", "skip, weights of its own", "Dale's law: absolute weights",
           "Dale's law: rectified weights", "Dale's law: a mask of signs, and a parametrization",
           "currents times numbers")  # fmt: skip


@pytest.mark.parametrize("name", UPDATED)
def test_an_update_of_every_parameter_is_that_of_pytorch(name: str) -> None:
    """Several biases of a layer, and parameters of which weights are made, with gradients clipped; handed back."""
    made = zoo.ZOO[name]
    module, spikes, labels = zoo.example(made)
    changes = {"training.optimiser": "sgd", "training.learning_rate": 64.0, "training.largest_gradient_norm": 0.1}
    workload = frameworks.from_torch(
        module, spikes, loss=made.loss, changes=changes | {"training.schedule": "constant"}, **made.options
    )
    network = network_of(workload)
    given = given_to(network, given_weights(workload, network), zoo.in_time(made, spikes).numpy(), labels.numpy())
    executor = Executor(compiled(network).program)
    executor.write(given.for_program(network))
    executor.run()
    left = {each.public: executor.read(f"next.{name}") for name, each in network.parameters.items()}
    theirs = copy.deepcopy(module)
    zoo.gradients_of(made, theirs, spikes, labels)
    torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.1)
    torch.optim.SGD(theirs.parameters(), lr=64.0).step()
    before = {name: each.detach().clone() for name, each in module.named_parameters()}
    load_trained(module, workload, left)
    for name, _ in module.named_parameters():
        found, meant = (of.get_parameter(name).detach() for of in (module, theirs))
        kept = (found != 0) | (meant == 0)  # zeros are written where a mask has them
        moved = float((meant - before[name]).abs().max())
        assert moved > 0, name
        assert float((found - meant)[kept].abs().max()) < 1e-5 * moved + 2e-7 * float(meant.abs().max()), name
        assert kept.float().mean() > 0.9, name
