"""Norms of samples in networks written in PyTorch: what they are read as, what is refused, weights back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mimdsim
from mimdsim.base.errors import DescriptionError
from mimdsim.workload import network_of
from mimdsim.workload.interchange.layers import given_weights

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
zoo = pytest.importorskip("torch_networks")
nn, jelly, neuron = zoo.nn, zoo.jelly, zoo.neuron


@pytest.mark.parametrize(("name", "per"), [("layer norm", "sample"), ("RMSNorm", "root_mean_square")])
def test_a_layer_norm_is_read_alike_in_eval_and_written_back(name: str, per: str) -> None:
    module, spikes, _ = zoo.example(zoo.ZOO[f"snntorch, {name}"])
    workload = mimdsim.from_torch(module, spikes, loss="ce_count_loss")
    assert network_of(workload) == network_of(mimdsim.from_torch(module.eval(), spikes, loss="ce_count_loss"))
    assert workload.network.batch_norm in (per, (per, per))
    program = mimdsim.torch_function(workload, "tiny")
    before = {name: each.detach().clone() for name, each in module.named_parameters()}
    with torch.no_grad():
        for number, each in enumerate(program.parameters()):
            each += 0.125 * (number + 1)
    mimdsim.to_torch(module, program)
    moved = {name: (each.detach() - before[name]).unique() for name, each in module.named_parameters()}
    assert all(len(each.mul(8).round().unique()) == 1 and each[0] > 0.1 for each in moved.values())
    assert len({float(each[0].mul(8).round()) for each in moved.values()}) == len(moved)


def test_groups_are_those_of_the_module() -> None:
    name = "spikingjelly, group and instance norm in time"
    module, spikes, _ = zoo.example(zoo.ZOO[name])
    network = network_of(mimdsim.from_torch(module, spikes, loss="ce_count_loss"))
    assert [layer.norm and layer.norm.groups for layer in network.layers] == [2, 6, None]
    assert [layer.bias for layer in network.layers] == [True, False, True]


def test_currents_that_hardly_differ_are_those_of_pytorch_as_far_as_it_computes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch norm of two samples: float32 rounds what it divides by next to nothing."""
    torch.manual_seed(1)
    net = in_time(jelly.BatchNorm2d(4))
    net[0] = jelly.Conv2d(2, 4, 6, bias=False, step_mode="m")
    net[4] = jelly.Linear(4, 3, step_mode="m")
    with torch.no_grad():
        net[0].weight.mul_(0.01).add_(10.0)
        net[0].weight[:, 0, 0, 0] = 0.003
    spikes = torch.ones(4, 2, 2, 6, 6)
    spikes[0, 0, 0, 0, 0] = 0.0
    network = network_of(mimdsim.from_torch(net, spikes))
    assert network.layers[0].norm
    monkeypatch.setattr("mimdsim.frameworks.reading.largest_of_norm", lambda *_: np.zeros(4))
    with pytest.raises(DescriptionError, match="layer '2' gets currents that differ by up to"):
        mimdsim.from_torch(net, spikes)


def in_time(norm: Any) -> Any:
    net = nn.Sequential(
        jelly.Conv2d(2, 4, 3), norm, neuron.IFNode(detach_reset=True), jelly.Flatten(), jelly.Linear(64, 3),
        neuron.IFNode(detach_reset=True),
    )  # fmt: skip
    for each in net:
        if hasattr(each, "step_mode"):
            each.step_mode = "m"
    return net


OF_TIMESTEPS = {
    "TemporalEffectiveBatchNorm2d": ("a batch norm for each", lambda: jelly.TemporalEffectiveBatchNorm2d(5, 4)),
    "BatchNormThroughTime2d": ("the same with step_mode='s'", lambda: jelly.BatchNormThroughTime2d(5, 4)),
}


@pytest.mark.parametrize("name", OF_TIMESTEPS)
def test_norms_of_timesteps_that_take_a_sequence_are_refused_by_name(name: str) -> None:
    nearest, make = OF_TIMESTEPS[name]
    said = rf"'1' \({name}\) is not among the layers that run here; nearest: {nearest}"
    with pytest.raises(DescriptionError, match=said):
        mimdsim.from_torch(in_time(make()), (torch.rand(5, 3, 2, 6, 6) < 0.4).float())


class Through(nn.Module):  # type: ignore[misc, name-defined]
    """norms: of timesteps."""

    def __init__(self, norms: Any) -> None:
        super().__init__()
        self.fc, self.norms, self.cell = nn.Linear(9, 4), nn.ModuleList(norms), zoo.snn.Leaky(beta=0.9)

    def forward(self, x: Any) -> Any:
        mem, out = self.cell.reset_mem(), []
        for step, norm in zip(x, self.norms, strict=True):
            spikes, mem = self.cell(norm(self.fc(step)), mem)
            out.append(spikes)
        return torch.stack(out)


def test_norms_of_each_timestep_are_read_and_written_back() -> None:
    spikes = (torch.rand(5, 3, 9) < 0.4).float()
    module = Through(nn.BatchNorm1d(4) for _ in range(5))
    with torch.no_grad():
        for number, each in enumerate(module.norms):
            each.running_mean.fill_(number)
    workload = mimdsim.from_torch(module, spikes)
    norm = network_of(workload).layers[0].norm
    assert norm
    assert (norm.per, norm.rows) == ("each_timestep", 5)
    program = mimdsim.torch_function(workload, "tiny")
    before = {name: each.detach().clone() for name, each in module.named_parameters()}
    with torch.no_grad():
        for each in filter(lambda each: each.requires_grad, program.parameters()):
            each += torch.arange(len(each))[:, None] if len(each) == 5 else 0.0
    mimdsim.to_torch(module, program)
    for number, each in enumerate(module.norms):
        for role in ("weight", "bias"):
            moved = getattr(each, role) - before[f"norms.{number}.{role}"]
            assert (moved - number).abs().max() < 1e-6, (number, role)
        assert (each.running_mean - number).abs().max() < 1e-6


def test_a_norm_without_averages_is_trained_like_one_with_them() -> None:
    module, spikes, _ = zoo.example(zoo.ZOO["snntorch, batch norm of timesteps"])
    tracked = mimdsim.from_torch(module, spikes)
    module.bn1 = nn.BatchNorm1d(zoo.HIDDEN, track_running_stats=False)
    module.bn1.load_state_dict({name: torch.full((zoo.HIDDEN,), 3.0) for name in ("weight", "bias")})
    with pytest.warns(
        UserWarning, match=r"'bn1' \(BatchNorm1d\) keeps no running averages and normalises by the batch"
    ):
        workload = mimdsim.from_torch(module, spikes)
    network = network_of(workload)
    assert network == network_of(tracked)
    held, other = (given_weights(each, network) for each in (workload, tracked))
    assert all(np.array_equal(held[name], other[name]) for name in held if not name.endswith("hidden0"))
    assert [float(held[f"{role}.hidden0"].mean()) for role in ("gain", "b", "mean", "variance")] == [3.0, 3.0, 0.0, 1.0]
    program = mimdsim.torch_function(workload, "tiny")
    with torch.no_grad():
        for each in program.parameters():
            each += 0.5
    mimdsim.to_torch(module, program)
    assert all((module.bn1.get_parameter(name) == 3.5).all() for name in ("weight", "bias"))


def test_norms_of_timesteps_that_differ_or_take_turns_are_refused() -> None:
    spikes, one = (torch.rand(5, 3, 9) < 0.4).float(), nn.BatchNorm1d(4)
    for norms in (
        [nn.BatchNorm1d(4, eps=10.0**-each) for each in range(1, 6)],
        [one, nn.BatchNorm1d(4), one, one, one],
    ):
        with pytest.raises(DescriptionError, match=r"layer 'cell' has several norms, 'norms\.0' among them"):
            mimdsim.from_torch(Through(norms), spikes)


class Residual(nn.Module):  # type: ignore[misc, name-defined]
    """A block of MS-ResNet: normalised currents are added up, and no spikes."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.norm1, self.cell1 = nn.Linear(9, 8), nn.BatchNorm1d(8), zoo.snn.Leaky(beta=0.9)
        self.fc2, self.norm2, self.cell2 = nn.Linear(8, 8), nn.BatchNorm1d(8), zoo.snn.Leaky(beta=0.9)

    def forward(self, x: Any) -> Any:
        one, two, out = self.cell1.reset_mem(), self.cell2.reset_mem(), []
        for step in x:
            current = self.norm1(self.fc1(step))
            spikes, one = self.cell1(current, one)
            spikes, two = self.cell2(current + self.norm2(self.fc2(spikes)), two)
            out.append(spikes)
        return torch.stack(out)


@pytest.mark.filterwarnings("ignore:'norm. .BatchNorm1d. is in eval")
def test_normalised_currents_that_are_added_up_are_layers_that_send_them() -> None:
    for module, norms in ((Residual(), ("timestep", "none", "timestep", "none")), (Residual().eval(), "none")):
        network = mimdsim.from_torch(module, (torch.rand(5, 3, 9) < 0.4).float()).network
        assert network.neuron == ("current", "leaky", "current", "leaky")
        assert network.unweighted == ("hidden1", "output")
        assert network.sources == {"output": ("hidden0 + hidden2",)}
        assert network.batch_norm == norms


def test_norms_of_sequences_come_before_weights_and_others_read_the_same_spikes() -> None:
    """A DenseNet with its norms first, all timesteps at once: gradients of the program are those of PyTorch."""
    torch.manual_seed(0)
    module = zoo.PreActivation("m")
    with torch.no_grad():
        for conv in (*module.stem, *module.convs, module.last):
            conv.weight.mul_(4)
    spikes, labels = (torch.rand(4, 3, 2, 4, 4) < 0.4).float(), torch.tensor([1, 4, 2])
    workload = mimdsim.from_torch(module, spikes)
    assert any(each.startswith("concat(") for read in workload.network.sources.values() for each in read)
    program = mimdsim.torch_function(workload, "mk2")
    found = program(spikes.flatten(2))
    made = module.double()(spikes.double()).sum(0)
    assert float((found - made).abs().max()) == 0
    for scores in (found, made):
        nn.functional.cross_entropy(scores, labels).backward()
    assert float(made.std()) > 0
    for mine, theirs in ((program.hidden0, module.stem[0].weight), (program.output, module.last.weight)):
        wanted = theirs.grad.reshape(len(theirs), -1).T
        assert float(wanted.abs().max()) > 1e-3
        assert float((mine.grad - wanted).abs().max()) < 1e-4 * float(wanted.abs().max())
