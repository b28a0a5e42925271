"""Slices of what a layer of a PyTorch module sent, and currents of some of its neurons: what is one array here, and
what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from mimdsim.base.errors import MimdsimError
from mimdsim.workload import network_of
from mimdsim.workload.interchange.layers import given_weights

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
zoo = pytest.importorskip("torch_networks")
frameworks = pytest.importorskip("mimdsim.frameworks")

nn, snn = zoo.nn, zoo.snn
SPIKES = (torch.rand(zoo.TIMESTEPS, zoo.BATCH, zoo.INPUTS, generator=torch.Generator().manual_seed(1)) < 0.3).float()


class Sliced(nn.Module):  # type: ignore[misc, name-defined]
    """A layer of 12 neurons, and one of 6 that reads it by `how`(module, spikes), of which `a` has weights of 8 sources
    and `b` of 4."""

    def __init__(self, how: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.a, self.b, self.how = nn.Linear(zoo.INPUTS, 12), nn.Linear(8, 6), nn.Linear(4, 6), how
        self.lif1, self.lif2 = snn.Leaky(beta=0.9), snn.Leaky(beta=0.8)
        self.first.weight.data.mul_(4)

    def forward(self, x: Any) -> Any:
        one, two, out = self.lif1.reset_mem(), self.lif2.reset_mem(), []
        for step in x:
            spikes, one = self.lif1(self.first(step), one)
            spikes, two = self.lif2(self.how(self, spikes), two)
            out.append(spikes)
        return torch.stack(out)


def both(module: Any, z: Any) -> Any:
    return module.a(z[:, :8]) + module.b(z[:, 8:])


def test_weights_of_slices_are_rows_of_one_array() -> None:
    module = Sliced(both)
    workload = frameworks.from_torch(module, SPIKES)
    assert (workload.network.bias, workload.training.pruned) == ((1, 2), {})
    made = given_weights(workload, network_of(workload))
    assert made is not None
    wanted = torch.cat([module.a.weight, module.b.weight], 1).T
    assert (made["w.output"] == wanted.detach().numpy()).all()


def test_biases_of_some_neurons_are_one_row_and_places_without_weights_stay_zero() -> None:
    def beside(module: Any, z: Any) -> Any:
        return torch.cat([module.a(z[:, 4:]), module.b(z[:, 8:])], 1)

    module = Sliced(beside)
    workload = frameworks.from_torch(module, SPIKES)
    assert workload.network.layers == ("hidden0", "output")
    assert (workload.network.bias, list(workload.training.pruned)) == ((1, 1), ["output"])
    made = given_weights(workload, network_of(workload))
    assert made is not None
    assert not made["w.output"][:4].any()
    assert not made["w.output"][4:8, 6:].any()
    assert (made["b.output"].reshape(-1) == torch.cat([module.a.bias, module.b.bias]).detach().numpy()).all()


@pytest.mark.parametrize(
    "how",
    [
        lambda module, z: both(module, module.drop(z)),
        lambda module, z: module.a(module.drop(z[:, :8])) + module.b(module.drop(z[:, 8:])),
    ],
)
def test_dropout_before_or_behind_a_slice_is_that_of_the_layer(how: Any) -> None:
    module = Sliced(how)
    module.drop = nn.Dropout(0.5)
    assert frameworks.from_torch(module, SPIKES).network.dropout == (0.0, 0.5)


def gated() -> Any:
    module = part(lambda module, z: module.a(module.cell(z[:, 2:10])))
    module.cell = nn.GRUCell(8, 8)
    return module


def fixed(module: Any) -> Any:
    module.b.weight.requires_grad_(False)
    return module


def narrowed(module: Any) -> Any:
    module.b = nn.Linear(4, 1, bias=False)
    return module


def with_zero(module: Any) -> Any:
    nn.init.zeros_(module.a.weight[:1])
    return module


def of(function: Any, other: Any = torch.abs) -> Any:
    def how(module: Any, z: Any) -> Any:
        return z[:, :8] @ function(module.a.weight).T + z[:, 8:] @ other(module.b.weight).T

    module = Sliced(how)
    module.a.bias = module.b.bias = None
    return module


def part(how: Any) -> Any:
    module = Sliced(how)
    module.b = None
    return module


REFUSED = {
    "adds up several products of 'lif1@t'; one of each neuron can run": lambda: Sliced(
        lambda module, z: module.a(z[:, :8]) + module.b(z[:, 7:11])
    ),
    "reads 8 of 12 values of what 'lif1' sends; all can run": lambda: part(
        lambda module, z: module.a(z[:, [0, 1, 2, 3, 4, 5, 6, 7]])
    ),
    "are other functions of their parameters, or have other factors or signs": lambda: of(torch.abs, torch.relu),
    "reads some neurons of a layer by 'exp' of a parameter": lambda: part(
        lambda module, z: nn.functional.linear(z[:, 4:], module.a.weight.exp(), module.a.bias)
    ),
    "'b.weight' is a part of weights of which others are trained": lambda: fixed(Sliced(both)),
    "8 values of 'a.weight' are 0 beside places without weights, and would stay 0": lambda: with_zero(
        part(lambda module, z: module.a(z[:, 2:10]))
    ),
    "multiplies several sources by the same weights": lambda: part(
        lambda module, z: module.a(z[:, :8]) + nn.functional.linear(z[:, 4:], module.a.weight)
    ),
    "adds up several products of 'lif1@t'; one": lambda: Sliced(
        lambda module, z: module.a(z[:, :8]) + module.b(z[:, 4:][:, 1:5])
    ),
    "'b.weight' reads some of what is not neurons; nearest: [samples, neurons]": lambda: Sliced(
        lambda module, z: module.a(z[:, :8]) + module.b(z.unflatten(1, (4, 3))[..., :1].flatten(1))
    ),
    "'b.weight' makes 1 of 6 currents; nearest: one for each": lambda: narrowed(Sliced(both)),
    "layer 'cell' reads some neurons of another; nearest: all of them": gated,
    "reads neurons of 'lif1' with dropout of several kinds": lambda: Sliced(
        lambda module, z: module.a(nn.functional.dropout(z[:, :8])) + module.b(z[:, 8:])
    ),
    "'a.weight' is multiplied by what 'mul' made": lambda: Sliced(
        lambda module, z: module.a(z[:, :8] * torch.arange(8.0)) + module.b(z[:, 8:])
    ),
}


@pytest.mark.parametrize("said", REFUSED)
def test_slices_that_make_no_array_are_refused_by_name(said: str) -> None:
    with pytest.raises(MimdsimError) as refused:
        frameworks.from_torch(REFUSED[said](), SPIKES)
    assert said in str(refused.value), str(refused.value)
