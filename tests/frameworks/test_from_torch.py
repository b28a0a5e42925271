"""Networks as their authors write them in PyTorch: read, and trained by the compiled program as PyTorch does."""

from __future__ import annotations

import copy
import operator
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from networks import Given, compiled, executed
from torch_training import check_by_operations, check_steps

from mimdsim.base.errors import MimdsimError
from mimdsim.cli import main
from mimdsim.graph import SparseSpikes, SpikingNetwork
from mimdsim.workload import network_of
from mimdsim.workload.interchange.layers import given_weights

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
zoo = pytest.importorskip("torch_networks")
frameworks = pytest.importorskip("mimdsim.frameworks")
torch_weights = pytest.importorskip("mimdsim.frameworks.torch_weights")


def given_to(network: SpikingNetwork, weights: Any, spikes: np.ndarray, labels: np.ndarray) -> Given:
    """One training step's inputs with these weights and spikes [timesteps, batch, inputs or planes]."""
    spikes = spikes.reshape(*spikes.shape[:2], -1)
    arrays: dict[str, np.ndarray] = {}
    for name, parameter in network.parameters.items():
        arrays[name] = weights[name].reshape(parameter.shape).astype(np.float32)
        for state in network.optimiser.state if parameter.name in network.trained else ():
            arrays[parameter.kept(state)] = np.full(parameter.shape, 1e-3, np.float32)
    ids = np.zeros((*spikes.shape[:2], network.input_capacity), np.int32)
    counts = np.zeros((*spikes.shape[:2], 2), np.int32)
    for place in np.ndindex(*spikes.shape[:2]):
        listed = np.flatnonzero(spikes[place])
        ids[place][: listed.size], counts[place] = listed, listed.size
    held = SparseSpikes(ids=ids, counts=counts)
    dense = (spikes[0] if network.steady_input else spikes).astype(np.float64)
    return Given(spikes=held, dense=dense, labels=labels.astype(np.int32), arrays=arrays)


def off(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize("name", zoo.ZOO)
def test_gradients_are_those_of_pytorch(name: str) -> None:
    """No further from PyTorch in float64 than PyTorch in float32 is, or than what rounding of constants leaves."""
    made = zoo.ZOO[name]
    module, spikes, labels = zoo.example(made)
    workload = frameworks.from_torch(
        module, spikes, loss=made.loss, timesteps=zoo.TIMESTEPS if made.single else None, **made.options
    )
    network = network_of(workload)
    weights = given_weights(workload, network)
    given = given_to(network, weights, zoo.in_time(made, spikes).numpy(), labels.numpy())
    outcome = executed(compiled(network), given)
    loss32, single = zoo.gradients_of(made, module, spikes, labels)
    loss64, double = zoo.gradients_of(made, copy.deepcopy(module).double(), spikes.double(), labels)
    assert outcome.loss == pytest.approx(loss64, rel=1e-5, abs=abs(loss32 - loss64))
    links = torch_weights.parameter_names(workload)
    learning = {name for name, each in module.named_parameters() if each.requires_grad}
    assert {parameter for parameter, *_ in links if parameter in learning} == set(double)
    assert set(network.trained) == {array for parameter, array, *_ in links if parameter in learning}
    axis = 0 if made.batch_first or made.input == "image" else 1
    _, turned = zoo.gradients_of(made, module, spikes.flip(axis), labels.flip(0))  # the same sums in another order
    worst = max(off(each[name], double[name]) for each in (single, turned) for name in double)
    for parameter, array, transposed, row, norm in links:
        if parameter not in learning:
            continue
        mine = outcome.gradients[array.removeprefix("w.")][torch_weights.index_in(norm)].astype(np.float64)
        every = (zoo.as_here(each[parameter], transposed, mine, norm) for each in (double, single))
        wanted, rounded = (each[row : row + len(mine)] for each in every)
        assert np.abs(wanted).max() > 0
        assert off(rounded, wanted) < 1e-4, array  # else nothing would be held against anything
        least = 1e-5 if mine.size == 1 else 2e-6  # one number that PyTorch rounds little may be so by chance
        assert off(mine, wanted) <= max(2 * off(rounded, wanted), worst, least), array


def refusal(module: Any, spikes: Any, **more: Any) -> str:
    with pytest.raises(MimdsimError) as refused:
        frameworks.from_torch(module, spikes, **more)
    return str(refused.value)


SPIKES = (torch.rand(zoo.TIMESTEPS, zoo.BATCH, zoo.INPUTS, generator=torch.Generator().manual_seed(1)) < 0.3).float()
nn, snn = zoo.nn, zoo.snn


def loop(first: Any = None, last: Any = None) -> Any:
    torch.manual_seed(0)
    return zoo.Loop(first or snn.Leaky(beta=0.9), last or snn.Leaky(beta=0.9))


def between(function: Any) -> Any:
    """The first layer's spikes go through a function on their way to the second."""

    class Between(zoo.Loop):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            one, two, out = self.lif1.reset_mem(), self.lif2.reset_mem(), []
            for step in x:
                spk, one = self.lif1(self.fc1(step), one)
                spk2, two = self.lif2(self.fc2(function(spk)), two)
                out.append(spk2)
            return torch.stack(out)

    torch.manual_seed(0)
    return Between(snn.Leaky(beta=0.9), snn.Leaky(beta=0.9))


class BegunLstm(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.cell = snn.SLSTM(zoo.INPUTS, zoo.INPUTS, threshold=0.1)

    def forward(self, x: Any) -> Any:
        syn, mem, sent = torch.ones(zoo.BATCH, zoo.INPUTS), torch.zeros(zoo.BATCH, zoo.INPUTS), []
        for step in x:
            spk, syn, mem = self.cell(step, syn, mem)
            sent.append(spk)
        return torch.stack(sent)


class OwnNorm(nn.BatchNorm1d):  # type: ignore[misc, name-defined]
    """Statistics that are constants to the gradient."""

    def forward(self, x: Any) -> Any:
        super().forward(x)
        mean, variance = x.detach().mean(0), x.detach().var(0, unbiased=False)
        return (x - mean) / (variance + self.eps).sqrt() * self.weight + self.bias


class OwnLinear(nn.Linear):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        return nn.functional.linear(x, self.weight, self.bias.detach())


class HalfGradient(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, weight: Any) -> Any:
        return weight.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return 0.5 * gradient


class OwnGradient(nn.Linear):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        return nn.functional.linear(x, HalfGradient.apply(self.weight), self.bias)


def in_autocast(module: Any) -> Any:
    module.forward = torch.autocast("cpu", dtype=torch.bfloat16)(module.forward)
    return module


def without_numbers(module: Any) -> Any:
    torch.nn.init.constant_(module.fc1.weight, torch.nan)
    return module


class MembraneOf(zoo.Loop):  # type: ignore[misc, name-defined]
    """The membrane potential of the last neurons is returned alone."""

    def __init__(self, last: Any = None, part: int | None = None) -> None:
        super().__init__(snn.Leaky(beta=0.9), last or snn.Leaky(beta=0.9))
        self.part = part

    def forward(self, x: Any) -> Any:
        mems = super().forward(x)[1]
        return mems if self.part is None else mems[self.part]


class Squashed(zoo.Loop):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        return sum(torch.tanh(each) for each in super().forward(x)[0].unbind())


def votes(*more: Any) -> Any:
    """SpikingJelly, two outputs for a class."""
    cells = [zoo.neuron.LIFNode(detach_reset=True) for _ in range(2)]
    net = nn.Sequential(nn.Linear(zoo.INPUTS, 8), cells[0], nn.Linear(8, 12), cells[1], zoo.jelly.VotingLayer(2), *more)
    net[0].weight.data.mul_(9)
    net[2].weight.data.mul_(9)
    return net


READ = {"last": lambda y: y[-1], "max": lambda y: torch.stack(y).amax(0), "mean": lambda y: torch.stack(y).mean(0)}


@pytest.mark.parametrize(("reading", "of"), [*READ.items(), ("sum", sum), ("sum", list)])
def test_neurons_of_spikingjelly_that_never_spike_are_read_as_the_module_reads_them(reading: str, of: Any) -> None:
    net = nn.Sequential(nn.Linear(zoo.INPUTS, 8), zoo.neuron.LIFNode(step_mode="m"), nn.Linear(8, 4))

    class Read(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net, self.last = net, zoo.neuron.NonSpikingLIFNode(tau=3.0)

        def forward(self, x: Any) -> Any:
            return of(self.last(self.net(x)))

    made = frameworks.from_torch(Read(), SPIKES)
    assert (made.network.output, made.training.reading) == ("membrane", reading)


DECODES = {"max-mem": "max", "mean-mem": "mean", "last_mem": "last", None: "sum", "last-mem": "sum"}


@pytest.mark.parametrize("node", ["NonSpikingLIFNode", "NonSpikingIFNode"])
@pytest.mark.parametrize("decode", DECODES)
def test_what_neurons_that_never_spike_decode_is_how_they_are_read(node: str, decode: str | None) -> None:
    """SpikingJelly's code knows 'last_mem', and returns all potentials for what it does not know, as 'last-mem'."""
    torch.manual_seed(0)
    last = getattr(zoo.neuron, node)(decode=decode)
    net = nn.Sequential(nn.Linear(zoo.INPUTS, 8), zoo.neuron.LIFNode(step_mode="m"), nn.Linear(8, 4), last)
    net(SPIKES)  # leaves a potential, with which no call begins
    zoo.functional.reset_net(net)
    made = frameworks.from_torch(net, SPIKES)
    assert (made.network.output, made.training.reading) == ("membrane", DECODES[decode])
    assert last.decode == decode


@pytest.mark.parametrize("mode", ["s", "m"])
def test_neurons_of_spikingjelly_that_never_reach_their_threshold_are_read_by_their_potential(mode: str) -> None:
    import mimdsim

    class Read(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(zoo.INPUTS, 8), zoo.neuron.LIFNode(step_mode=mode), nn.Linear(8, 4))
            self.last = zoo.neuron.LIFNode(v_threshold=1e9, step_mode=mode, store_v_seq=mode == "m")

        def forward(self, x: Any) -> Any:
            self.last(self.net(x))
            return self.last.v_seq if mode == "m" else self.last.v

    torch.manual_seed(0)
    module = Read()
    module.net[0].weight.data.mul_(6)
    made = frameworks.from_torch(module, SPIKES, timesteps=zoo.TIMESTEPS if mode == "s" else None)
    assert (made.network.output, made.network.reset, made.training.reading) == ("membrane", ("zero", "none"), "sum")
    zoo.functional.reset_net(module)
    wanted = module(SPIKES).sum(0) if mode == "m" else sum(map(module, SPIKES))
    assert torch.allclose(mimdsim.torch_function(made, "tiny")(SPIKES), wanted, atol=1e-5)


@pytest.mark.parametrize("reset", [None, 0.0])
def test_neurons_of_spikingjelly_fire_where_they_meet_their_threshold(reset: float | None) -> None:
    """Weights of quarters, so that potentials of neurons that do not leak meet 1 exactly, again and again."""
    net = nn.Sequential(nn.Linear(zoo.INPUTS, 8, bias=False), zoo.neuron.IFNode(v_reset=reset))
    torch.manual_seed(2)
    net[0].weight.data = torch.randint(-2, 4, net[0].weight.shape) / 4
    workload = frameworks.from_torch(net, SPIKES, timesteps=len(SPIKES))
    assert workload.network.neuron == ("if",)


def test_constants_that_are_not_trained_stay_constants() -> None:
    cells = snn.Leaky(beta=0.8, learn_beta=True, learn_threshold=True)
    cells.beta.requires_grad_(False)
    assert frameworks.from_torch(loop(cells), SPIKES).network.learned == {"hidden0": ("threshold",)}


def test_the_mean_of_votes_is_what_a_loss_of_ones_own_reads() -> None:
    given = {"loss": "cross_entropy", "reading": "every"}
    made = frameworks.from_torch(votes(), SPIKES, timesteps=zoo.TIMESTEPS, loss=given)
    assert (made.training.logit_scale, made.network.neurons_per_class) == (0.5, 2)


def test_a_module_that_returns_its_last_timestep_is_read_there() -> None:
    class Last(zoo.Loop):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            one, two = self.lif1.reset_mem(), self.lif2.reset_mem()
            for step in x:
                spk, one = self.lif1(self.fc1(step), mem=one)
                spk, two = self.lif2(self.fc2(spk), mem=two)
            return (spk, two)[self.part]

    for part, output in enumerate(("spikes", "membrane_of_spiking")):
        module = Last(snn.Leaky(beta=0.9), snn.Leaky(beta=0.9))
        module.part = part
        made = frameworks.from_torch(module, SPIKES)
        assert (made.network.output, made.training.reading) == (output, "last")


class TwoHeads(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(zoo.INPUTS, 4), nn.Linear(zoo.INPUTS, 4)
        self.one, self.two = snn.Leaky(beta=0.9, init_hidden=True), snn.Leaky(beta=0.9, init_hidden=True)

    def forward(self, x: Any) -> Any:
        return torch.stack([self.one(self.a(step)) + self.two(self.b(step)) for step in x])


class Truncated(zoo.Loop):  # type: ignore[misc, name-defined]
    """States are detached, so that gradients go back one timestep only."""

    def forward(self, x: Any) -> Any:
        one, two, out = self.lif1.reset_mem(), self.lif2.reset_mem(), []
        for step in x:
            spk, one = self.lif1(self.fc1(step), one.detach())
            spk2, two = self.lif2(self.fc2(spk), two)
            out.append(spk2)
        return torch.stack(out)


def with_hook(path: str, how: str) -> Any:
    module = loop()
    getattr(operator.attrgetter(path)(module), f"register_{how}_hook")(lambda *_: None)
    return module


def sequential(*between_them: Any) -> Any:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(zoo.INPUTS, 8), *between_them, snn.Leaky(beta=0.9, init_hidden=True),
        nn.Linear(8, 4), snn.Leaky(beta=0.9, init_hidden=True),
    )  # fmt: skip


class Adaptive(snn.Leaky):  # type: ignore[misc, name-defined]
    """A neuron of the user's own that calls itself Leaky."""

    def _base_sub(self, input_: Any) -> Any:
        return self._base_state_function(input_) - 0.5 * self.reset * self.threshold


Adaptive.__name__, Adaptive.__module__ = "Leaky", "snntorch._neurons.leaky"


class Tied(nn.Module):  # type: ignore[misc, name-defined]
    """One matrix between three layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.tied = nn.Linear(zoo.INPUTS, 8), nn.Linear(8, 8)
        self.cells = nn.ModuleList([snn.Leaky(beta=0.9, init_hidden=True) for _ in range(3)])

    def forward(self, x: Any) -> Any:
        one, two, three = self.cells
        return torch.stack([three(self.tied(two(self.tied(one(self.first(step)))))) for step in x])


class Added(zoo.Skip):  # type: ignore[misc, name-defined]
    """Spikes of a layer are added to themselves."""

    def forward(self, x: Any) -> Any:
        one, two, out = self.lif1.reset_mem(), self.lif3.reset_mem(), []
        for step in x:
            spk, one = self.lif1(self.fc1(step), one)
            spk2, two = self.lif3(self.fc2(spk + spk.clone()), two)
            out.append(spk2)
        return torch.stack(out)


def called_twice() -> Any:
    cell = snn.Leaky(beta=0.9, init_hidden=True)
    return nn.Sequential(nn.Linear(zoo.INPUTS, zoo.INPUTS), cell, nn.Linear(zoo.INPUTS, zoo.INPUTS), cell)


def parametrized(by: Any, name: str = "weight") -> Any:
    net = nn.Sequential(nn.Flatten(), nn.Linear(zoo.INPUTS, 4), snn.Leaky(beta=0.9))
    if by == "norm":
        torch.nn.utils.parametrizations.weight_norm(net[1])
    else:
        torch.nn.utils.parametrize.register_parametrization(net[1], name, by)
    return net


class OfWeights(zoo.Loop):  # type: ignore[misc, name-defined]
    """Weights that are made of parameters by hand."""

    def __init__(self, function: Any, zero: bool = False) -> None:
        super().__init__(snn.Leaky(beta=0.9), snn.Leaky(beta=0.9))
        self.function = function
        with torch.no_grad():
            self.fc1.weight.mul_(torch.ones(()) - zero * torch.eye(*self.fc1.weight.shape))

    def forward(self, x: Any) -> Any:
        made = self.function(self.fc1.weight)
        return torch.stack([self.lif2(self.lif1(step @ made.T)[0] @ self.fc2.weight.T)[0] for step in x])


class Int8(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """Whole numbers, whose gradients go straight through."""

    @staticmethod
    def forward(ctx: Any, w: Any) -> Any:
        scale = w.abs().max() / 127
        return torch.round(w / scale) * scale

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


MADE = {
    "half": lambda w: 0.5 * w,
    "divided": lambda w: -w / 12**0.5,
    "clamped": lambda w: torch.clamp(w, min=0),
    "half the size": lambda w: w.abs() * 0.5,
    "squared": lambda w: w**2,
    "sigmoid": lambda w: 0.2 * torch.sigmoid(w),
    "tanh": torch.tanh,
    "masked": lambda w: w.masked_fill(torch.eye(*w.shape, dtype=torch.bool), 0.0),
    "a triangle": lambda w: torch.triu(w, -3),
    "rounded to float16": lambda w: (w.half().float() - w).detach() + w,
    "rounded to int8": Int8.apply,
}


@pytest.mark.parametrize("function", MADE.values(), ids=MADE)
def test_weights_that_are_made_of_a_parameter_train(function: Any) -> None:
    torch.manual_seed(1)
    module = OfWeights(function)
    with torch.no_grad():
        module.fc1.weight.mul_(5)
        module.fc2.weight.mul_(3)
    check_steps(module, zoo.example(zoo.ZOO["bare parameters"])[1])


SIGNS = torch.sign(torch.randn(zoo.HIDDEN, zoo.INPUTS, generator=torch.Generator().manual_seed(1)))


def same_parameter(one: str, other: str, role: str) -> Any:
    module = loop(snn.Leaky(beta=0.9, learn_threshold=True), snn.Leaky(beta=0.9, learn_threshold=True))
    setattr(module.get_submodule(other), role, getattr(module.get_submodule(one), role))
    return module


class HalvedNorm(zoo.NormedLoop):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        return super().forward(0.5 * x)


class Meddled(nn.Module):  # type: ignore[misc, name-defined]
    """In a timestep the state that neurons keep is changed, by what makes no other spikes, or an older one is given."""

    def __init__(self, change: Any = None, older: bool = False) -> None:
        super().__init__()
        self.fc, self.change, self.older = nn.Linear(zoo.INPUTS, zoo.CLASSES), change, older
        self.cells = snn.Leaky(beta=0.9, init_hidden=not older)

    def forward(self, x: Any) -> Any:
        states, out = [torch.zeros(x.shape[1], zoo.CLASSES)], []
        for t, step in enumerate(x):
            if t == 3 and self.change:
                self.change(self.cells)
            made = self.cells(self.fc(step), states[-1 - (t == 3)]) if self.older else (self.cells(self.fc(step)), 0)
            states.append(made[1])
            out.append(made[0])
        return torch.stack(out)


class DetachNet(nn.Module):  # type: ignore[misc, name-defined]
    """SpikingJelly's truncated backpropagation."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(zoo.INPUTS, 4), zoo.neuron.LIFNode())

    def forward(self, x: Any) -> Any:
        out = []
        for t, step in enumerate(x):
            if t == 7:
                zoo.functional.detach_net(self.net)
            out.append(self.net(step))
        return torch.stack(out)


def hooked_weight() -> Any:
    net = nn.Sequential(nn.Flatten(), nn.Linear(zoo.INPUTS, 4), snn.Leaky(beta=0.9))
    net[1].weight.register_hook(lambda gradient: 0.5 * gradient)
    return net


class Copied(nn.Module):  # type: ignore[misc, name-defined]
    """Gates that share their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.lif = nn.Parameter(torch.randn(2, zoo.INPUTS)), snn.Leaky(beta=0.9)

    def forward(self, x: Any) -> Any:
        mem, out = self.lif.reset_mem(), []
        for step in x:
            spk, mem = self.lif(step @ self.w.repeat(2, 1).t(), mem)
            out.append(spk)
        return torch.stack(out)


class PartOfParameter(nn.Module):  # type: ignore[misc, name-defined]
    """A decay of every timestep."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.conduct = nn.Linear(zoo.INPUTS, 4), nn.Parameter(torch.full((zoo.TIMESTEPS,), 0.5))

    def forward(self, x: Any) -> Any:
        v, out = 0.0, []
        for t in range(len(x)):
            v = self.conduct[t] * v + self.fc(x[t])
            out.append(v)
        return torch.stack(out)


REFUSED = {
    "'tied.weight' is shared by several layers": Tied,
    "'fc2.weight' is 'fc1.weight' as well; nearest: weights of its own": lambda: same_parameter("fc1", "fc2", "weight"),
    "'lif2.threshold' is 'lif1.threshold' as well": lambda: same_parameter("lif1", "lif2", "threshold"),
    "'bn1' normalises a product of weights that are a function, or of spikes times a number": HalvedNorm,
    "'cells' (Leaky) gets a state that comes from a call of 'cells' before": lambda: Meddled(older=True),
    "reads nothing but itself": called_twice,
    "(PSN) is not among the layers that run here; nearest: spikingjelly SlidingPSN": lambda: zoo.FirstOf(
        nn.Sequential(nn.Linear(zoo.INPUTS, 4), zoo.neuron.PSN(T=zoo.TIMESTEPS))
    ),
    "(PopulationEncoder) is not among the layers that run here; nearest: encode the example": lambda: nn.Sequential(
        zoo.norse.PopulationEncoder(3), nn.Flatten(2), nn.Linear(3 * zoo.INPUTS, 4), snn.Leaky(beta=0.9)
    ),
    "'1.weight' has a hook on its gradient": hooked_weight,
    "a state that neurons keep is detached": DetachNet,
    "multiplies by what 'softsign' made of '1.parametrizations.weight.original'": lambda: parametrized(nn.Softsign()),
    "multiplies by what '_weight_norm' made of": lambda: parametrized("norm"),
    "; or torch.nn.utils.parametrize.remove_parametrizations(1, 'weight') before, which": lambda: parametrized("norm"),
    "computes its 'bias' of others (parametrizations)": lambda: parametrized(nn.ReLU(), "bias"),
    "multiplies by what 'cos' made of 'fc1.weight'; nearest: identity, abs": lambda: OfWeights(torch.cos),
    "multiplies by what 'add' made of 'fc1.weight'": lambda: OfWeights(
        lambda w: w + (w.round(decimals=1) - w).detach()
    ),
    "multiplies by what 'clamp' made of 'fc1.weight'": lambda: OfWeights(lambda w: w.clamp(min=-0.1)),
    "clamps 'fc1.weight', in which weights are 0; nearest: relu": lambda: OfWeights(
        lambda w: w.clamp(min=0), zero=True
    ),
    "multiplies by what 'abs' made of 'fc1.weight'": lambda: OfWeights(lambda w: w.exp().abs()),
    "multiplies by what 'softplus()' made of": lambda: OfWeights(lambda w: nn.functional.softplus(w, beta=2.0)),
    "multiplies by what numbers of several sizes made of": lambda: OfWeights(lambda w: w.abs() * (2 + SIGNS)),
    "gives weights of one source several signs": lambda: OfWeights(lambda w: w.abs() * SIGNS),
    "has a mask beside 'exp' of 'fc1.weight'; nearest: abs": lambda: OfWeights(lambda w: w.exp() * (SIGNS > 0)),
    "multiplies by what 'detach' made of 'fc1.weight'; ": lambda: OfWeights(lambda w: w.detach().abs()),
    "'1' (AlphaDropout) is not among the layers that run here; nearest: torch.nn.Dropout": lambda: sequential(
        nn.AlphaDropout(0.2)
    ),
    "'1' (LocalResponseNorm) is not among the layers that run here; nearest: torch.nn.LayerNorm, RMSNorm": lambda: (
        sequential(nn.LocalResponseNorm(8))
    ),
    "'1' (BatchNorm1d) does not follow a convolution or linear layer at once; nearest: an example that": lambda: (
        nn.Sequential(nn.Flatten(), nn.BatchNorm1d(zoo.INPUTS), *sequential())
    ),
    "'1' (BatchNorm1d) averages over all batches (momentum=None); nearest: momentum=0.1": lambda: sequential(
        nn.BatchNorm1d(8, momentum=None)
    ),
    "'1' (ElementWiseRecurrentContainer) is not among the layers that run here; nearest: spiking": lambda: sequential(
        zoo.jelly.ElementWiseRecurrentContainer(zoo.neuron.IFNode(), torch.add)
    ),
    "'1' (GELU) is not among the layers that run here; nearest: ReLU, LeakyReLU": lambda: sequential(nn.GELU()),
    "'fc1.weight' is multiplied by a mask that is worked out of weights": lambda: OfWeights(
        lambda w: w * (w.abs() > 0.1)
    ),
    "called again, with other weights and input, the module is another network (weight_fun": lambda: OfWeights(
        lambda w: w / float(w.norm())
    ),
    "'' is TorchScript, whose operations are not seen": lambda: torch.jit.script(nn.Linear(zoo.INPUTS, 4)),
    "learns its beta": lambda: loop(snn.Lapicque(beta=0.8, learn_beta=True)),
    "the output is neither all of what 'lif2' made nor a reading of it": lambda: MembraneOf(part=3),
    "has no surrogate gradient (surrogate_disable": lambda: loop(snn.Leaky(beta=0.9, surrogate_disable=True)),
    "the output goes through 'tanh'": lambda: Squashed(snn.Leaky(beta=0.9), snn.Leaky(beta=0.9)),
    "reads a tensor of layout torch.sparse_coo": lambda: between(lambda spikes: spikes.to_sparse()),
    "votes on what another made of votes": lambda: votes(zoo.jelly.VotingLayer(3)),
    "has inhibition": lambda: loop(snn.Leaky(beta=0.9, inhibition=True)),
    "'1' (IFNode) sends what its surrogate function makes, and no spikes (spiking=False)": lambda: nn.Sequential(
        nn.Linear(zoo.INPUTS, 4), zoo.neuron.IFNode(surrogate_function=zoo.jelly_surrogate.ATan(spiking=False))
    ),
    "'1' (LIFCell) learns its constant 'tau_mem_inv', which is fixed here": lambda: nn.Sequential(
        nn.Linear(zoo.INPUTS, 4),
        zoo.norse.LIFCell(zoo.norse.LIFParameters(tau_mem_inv=nn.Parameter(torch.tensor(90.0)))),
    ),
    "'lif1' (Leaky) has inhibition": lambda: loop(snn.Leaky(beta=0.9, inhibition=True, reset_delay=False)),
    "'lif1' (Leaky) rounds its state (state_quant)": lambda: loop(snn.Leaky(beta=0.9, state_quant=torch.round)),
    "or one of these times a number above 0": lambda: loop(snn.Leaky(beta=0.9, graded_spikes_factor=-2.0)),
    "'lif1' (Leaky) has hooks": lambda: with_hook("lif1", "forward"),
    "'fc2' (Linear) has hooks": lambda: with_hook("fc2", "full_backward_pre"),
    "'fc2.weight' has a hook on its gradient": lambda: with_hook("fc2.weight", "post_accumulate_grad"),
    "what 'relu' made": lambda: between(torch.relu),
    "'fc2.weight' is multiplied by what 'neg' made; a layer reads": lambda: between(lambda spikes: -spikes),
    "what 'unflatten without gradients' made": lambda: between(
        torch.no_grad()(lambda spikes: spikes.unflatten(1, (2, -1)).flatten(1))
    ),
    "layer 'lif1' computes in torch.bfloat16; nearest: float32, without autocast": lambda: in_autocast(loop()),
    "'fc1.weight' of the module holds numbers that are not finite": lambda: without_numbers(loop()),
    "module is a Loop that torch.compile made; give module._orig_mod": lambda: torch.compile(loop(), backend="eager"),
    "layer '2' reads what 'hardtanh' made; neurons of a framework read products": lambda: sequential(nn.Hardtanh()),
    "'0.weight' gets a gradient on the example that differs by up to": lambda: sequential(OwnNorm(8)),
    "'0.bias' gets a gradient on the example that differs by up to": lambda: nn.Sequential(
        OwnLinear(30, 8), *sequential()[1:]
    ),
    "'dropout' runs without gradients (no_grad)": lambda: between(torch.no_grad()(nn.functional.dropout)),
    "'avg_pool1d' pools without gradients (no_grad); nearest: requires_grad = False": lambda: between(
        torch.no_grad()(lambda spikes: nn.functional.avg_pool1d(spikes[:, None], 1)[:, 0])
    ),
    "'Leaky' (Leaky) runs without gradients (no_grad)": lambda: between(torch.no_grad()(snn.Leaky(beta=0.9))),
    "what 'detach' made": lambda: between(lambda spikes: spikes.detach()),
    "a state that comes from detach": lambda: Truncated(snn.Leaky(beta=0.9), snn.Leaky(beta=0.9)),
    "the output mixes what 'two' sent with what 'one' sent": TwoHeads,
    "layer 'lif3' reads a sum that has 'lif1@t' twice; each once can run": Added,
    "an option of it is not known": lambda: loop(Adaptive(beta=0.9)),
    "no neurons of snntorch, norse or spikingjelly": lambda: nn.Sequential(nn.Linear(zoo.INPUTS, 4)),
    "surrogate gradient is none of": lambda: loop(snn.Leaky(beta=0.9, spike_grad=zoo.surrogate.SFS(slope=5, B=2))),
    "(SConv2dLSTM) is not among the layers that run here; nearest: torch.nn.RNN": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 5, 6)), snn.SConv2dLSTM(1, 2, 3, init_hidden=True)
    ),
    "has 4 values of threshold for 4 neurons; nearest: one for all of them": lambda: nn.Sequential(
        snn.SLSTM(zoo.INPUTS, 4, init_hidden=True, threshold=torch.full((4,), 0.1), learn_threshold=True)
    ),
    "'0' (SLSTM) has no surrogate gradient (surrogate_disable": lambda: nn.Sequential(
        snn.SLSTM(zoo.INPUTS, 4, init_hidden=True, surrogate_disable=True)
    ),
    "reads the potential that is furthest from 0 (decode='max-abs-mem'); nearest: 'max-mem'": lambda: nn.Sequential(
        nn.Linear(zoo.INPUTS, 4), zoo.neuron.NonSpikingIFNode(decode="max-abs-mem")
    ),
    "'cell' (SLSTM) begins with a state that is not the one it begins with by itself": BegunLstm,
    "'1' (ILIFNode) is not among the layers that run here": lambda: nn.Sequential(
        nn.Linear(zoo.INPUTS, 4), zoo.neuron.ILIFNode()
    ),
    "'matmul' multiplies by what 'copies of w' made of 'w'; nearest: identity, abs": Copied,
    "of other things than a timestep earlier; nearest: a loop that does the same": PartOfParameter,
}


BY_OPERATIONS = (
    "has no surrogate gradient (surrogate_disable",
    "the output goes through 'tanh'",
    "or one of these times a number above 0",
    "what 'relu' made",
    "'fc2.weight' is multiplied by what 'neg' made; a layer reads",
    "what 'detach' made",
    "a state that comes from detach",
    "the output mixes what 'two' sent with what 'one' sent",
    "an option of it is not known",
    "layer 'lif3' reads a sum that has 'lif1@t' twice; each once can run",
)


@pytest.mark.parametrize("said", [each for each in REFUSED if each not in BY_OPERATIONS])
def test_what_is_not_understood_is_refused_by_name(said: str) -> None:
    module = REFUSED[said]()
    single = isinstance(module, nn.Sequential)
    text = refusal(module, SPIKES, timesteps=zoo.TIMESTEPS if single else None)
    assert said in text, text


@pytest.mark.parametrize("said", BY_OPERATIONS)
def test_neurons_whose_models_do_not_do_it_are_read_by_their_own_operations(said: str) -> None:
    torch.manual_seed(0)
    module = REFUSED[said]()
    single = isinstance(module, nn.Sequential)
    check_by_operations(said, module, SPIKES, **({"timesteps": zoo.TIMESTEPS} if single else {}))


@pytest.mark.filterwarnings("ignore:.*sends no spikes on the example")
def test_values_that_are_reordered_are_found_where_weights_hide_it() -> None:
    """Of weights that are 0, as often of what is added to a network, no current tells what they read."""
    for order in (torch.arange(zoo.HIDDEN), torch.arange(zoo.HIDDEN).flip(0)):
        module = between(lambda spikes, order=order: spikes[:, order])
        nn.init.zeros_(module.fc2.weight)
        if order[0]:
            assert "'fc2.weight' gets a gradient on the example that differs" in refusal(module, SPIKES)
        else:
            assert frameworks.from_torch(module, SPIKES).network.layers == ("hidden0", "output")
        assert not module.fc2.weight.any()
    module = Again(lambda module, first, _: module.last(first)[:, [1, 0, 2, 3, 4, 5]])
    module.own, module.last.weight.data = None, (torch.arange(6.0) / 4).expand(6, 6).clone()
    assert "'last.weight' gets a gradient on the example that differs" in refusal(module, SPIKES)


class AddedAgain(nn.Module):  # type: ignore[misc, name-defined]
    """A current that is made of itself, again and again."""

    def __init__(self, of_itself: Any, times: int):
        super().__init__()
        self.fc, self.of_itself, self.times = nn.Linear(zoo.INPUTS, zoo.HIDDEN), of_itself, times

    def forward(self, x: Any) -> Any:
        current = self.fc(x)
        for _ in range(self.times):
            current = self.of_itself(current)
        return current


def adding_again(of_itself: Any, times: int) -> Any:
    module = loop()
    module.fc1 = AddedAgain(of_itself, times)
    return module


def test_a_current_that_is_added_to_itself_is_one_product() -> None:
    for of_itself, times, factor in (
        (lambda current: 0.5 * current + 0.5 * current, 40, None),
        (lambda current: 1.5 * current - current * 0.25, 2, 1.5625),
        (lambda current: current - 3 * current, 1, -2.0),
    ):
        functions = frameworks.from_torch(adding_again(of_itself, times), SPIKES).network.weight_functions
        assert (functions["hidden0"].factor if functions else None) == factor
    check_by_operations("layer 'lif1' reads what", adding_again(lambda current: current - 1.0 * current, 1), SPIKES)


def test_a_potential_at_its_threshold_falls_on_either_side_and_so_do_resets_after_it() -> None:
    """0.8 * 0.7 + 0.44 is 1 in float32, which is no spike, and above it in float64."""
    module = nn.Sequential(nn.Linear(3, 4, bias=False), snn.Leaky(beta=0.8), nn.Linear(4, 2), snn.Leaky(beta=0.9))
    for cell in (module[1], module[3]):
        cell.init_hidden, cell.output = True, False
    beta, first = np.float64(0.8), np.float64(np.float32(0.7))
    second = next(
        each
        for each in np.float32(0.44) + np.arange(-9, 9, dtype=np.float32) * np.float32(2**-26)
        if np.float32(np.float32(beta) * np.float32(first)) + each == 1 < beta * first + np.float64(each)
    )
    with torch.no_grad():
        module[0].weight[:] = torch.tensor([first, float(second), 0.9])
    spikes = torch.eye(3)[:, None].expand(3, 2, 3)
    assert len(network_of(frameworks.from_torch(module, spikes, timesteps=3)).layers) == 2


class PartOf(zoo.Loop):  # type: ignore[misc, name-defined]
    def __init__(self, part: int, reset: str, first: Any) -> None:
        super().__init__(snn.Leaky(beta=0.9), snn.Leaky(beta=0.9, reset_mechanism=reset))
        self.part, self.fc1 = part, first

    def forward(self, x: Any) -> Any:
        return super().forward(x)[self.part]


@pytest.mark.parametrize(("part", "output"), [(0, "membrane"), (1, "spikes")])
def test_gradients_are_those_of_what_the_module_returns_whatever_the_loss_reads(part: int, output: str) -> None:
    torch.manual_seed(0)
    whole, cut = (PartOf(part, "none", kind(zoo.INPUTS, zoo.HIDDEN)) for kind in (nn.Linear, OwnLinear))
    assert frameworks.from_torch(whole, SPIKES, output=output).network.output == output
    assert "'fc1.bias' gets a gradient on the example that differs" in refusal(cut, SPIKES, output=output)


@pytest.mark.filterwarnings("ignore:.*is in eval")
def test_gradients_of_weights_with_a_batch_norm_folded_in_are_compared() -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(zoo.HIDDEN)
    norm.running_var.mul_(4.0)
    module = PartOf(0, "subtract", nn.Sequential(nn.Linear(zoo.INPUTS, zoo.HIDDEN), norm)).eval()
    assert frameworks.from_torch(module, SPIKES).network.bias[0]
    module.fc1[0] = OwnGradient(zoo.INPUTS, zoo.HIDDEN)
    assert "'fc1.0.weight' gets a gradient on the example that differs" in refusal(module, SPIKES)


def test_an_example_of_numbers_becomes_an_input_of_numbers() -> None:
    moving, steady = (
        frameworks.from_torch(loop(), given) for given in (SPIKES * 0.5, SPIKES[:1].expand_as(SPIKES) * 0.5)
    )
    assert [each.data.encoding for each in (moving, steady)] == ["values", "image"]
    assert moving.network.spikes == "dense"


class Backwards(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.loop = loop()

    def forward(self, x: Any) -> Any:
        return self.loop(torch.flip(x, [0]))


def test_timesteps_of_a_module_that_loops_itself_are_those_of_the_example() -> None:
    alike = [network_of(frameworks.from_torch(loop(), SPIKES, **given)) for given in ({}, {"timesteps": len(SPIKES)})]
    assert alike[0] == alike[1]
    said = refusal(Backwards(), SPIKES, timesteps=len(SPIKES))
    assert said.index("is multiplied by what 'flip' made") < said.index("called once a timestep: ")


def test_what_a_module_raises_by_itself_is_said_to_be_its_own() -> None:
    said = (
        "the module itself raises RuntimeError where it gets [14, 5, 20] of torch.float32: mat1 and mat2 shapes cannot"
    )
    assert said in refusal(loop(), SPIKES[..., :20])
    assert "of torch.uint8: mat1 and mat2 must have the same dtype" in refusal(loop(), SPIKES.byte())


def test_examples_losses_and_lengths_that_are_not_understood_are_refused() -> None:
    assert "holds numbers that are not finite" in refusal(loop(), SPIKES / 0)
    assert "loss 'ce'" in refusal(loop(), SPIKES, loss="ce")
    assert "timesteps is '10'; give a whole number, 1 or more" in refusal(loop(), SPIKES, timesteps="10")
    said = f"the module reads {zoo.INPUTS} inputs, and the data of 'digits' have 512"
    assert said in refusal(loop(), SPIKES, workload="digits")


def test_a_timestep_is_not_taken_for_a_sequence_and_a_quotient_of_counts_is_a_rate() -> None:
    stateful = zoo.nn.Sequential(zoo.nn.Linear(zoo.INPUTS, 5), snn.Leaky(beta=0.9, init_hidden=True, output=True))
    assert "if it takes one a call, say how many: timesteps=10" in refusal(stateful, SPIKES[0])
    said = "gets currents [24], which have no axis of samples: give the example with one, as example.unsqueeze(1)"
    assert said in refusal(loop(), SPIKES[:, 0])

    class Rates(zoo.Loop):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            counts = super().forward(x)[0].sum(0)
            return counts / len(x) if self.divides else 0.5 * counts

    torch.manual_seed(0)
    for divides, scale in ((True, 1 / zoo.TIMESTEPS), (False, 0.5)):
        module = Rates(snn.Leaky(beta=0.9), snn.Leaky(beta=0.9))
        module.divides = divides
        workload = frameworks.from_torch(module, SPIKES)
        assert workload.training.logit_scale == scale
        assert workload.training.reading == "sum"


def test_a_trained_network_goes_back_into_its_module() -> None:
    import mimdsim

    module = loop()
    before = {name: each.detach().clone() for name, each in module.named_parameters()}
    workload = mimdsim.from_torch(module, SPIKES, changes={"training.max_training_steps": 2})
    made = mimdsim.run(workload, "tiny", gpus=())
    assert mimdsim.to_torch(module, made) is module
    for name, each in module.named_parameters():
        assert not torch.equal(each, before[name]), name
    again = mimdsim.from_torch(module, SPIKES)
    network = network_of(again)
    for name, values in (given_weights(again, network) or {}).items():
        layer = name[2:] + {"w": "", "b": ".bias"}[name[0]]
        np.testing.assert_array_equal(values.reshape(made.weights[layer].shape), made.weights[layer])


@pytest.mark.parametrize(
    "name",
    [
        "skip, side by side",
        "DenseNet, planes side by side",
        "Inception over one dimension",
        "excitatory and inhibitory",
        "inhibition that is subtracted",
        "input and own spikes in one matrix",
        "neurons written out: two compartments",
        *(each for each in zoo.ZOO if each.startswith("slices of a layer")),
    ],
)
def test_arrays_that_share_a_matrix_go_back_into_it(name: str) -> None:
    import mimdsim

    module, spikes, _ = zoo.example(zoo.ZOO[name])
    workload = mimdsim.from_torch(module, spikes, changes={"training.max_training_steps": 2})
    made = mimdsim.run(workload, "tiny", gpus=())
    mimdsim.to_torch(module, made)
    again = mimdsim.from_torch(module, spikes)
    found = given_weights(again, network_of(again))
    assert found is not None
    for name, parameter in network_of(again).parameters.items():
        np.testing.assert_array_equal(found[name], made.weights[parameter.public].reshape(parameter.shape))


def test_a_description_is_written_that_commands_take(tmp_path: Any) -> None:
    from mimdsim.workload import load_workload

    made = frameworks.from_torch(loop(), SPIKES, out=tmp_path / "mine", loss="ce_rate_loss")
    assert load_workload(tmp_path / "mine" / "network.toml") == made
    assert made.data.timesteps == zoo.TIMESTEPS
    assert (made.training.reading, made.training.over_timesteps) == ("every", "mean")
    assert made.data.activity == pytest.approx(float(SPIKES.mean()))
    changes = {"training.epochs": 3, "network.neuron": "synaptic", "training.optimiser_parameters": {"beta1": 0.5}}
    changed = frameworks.from_torch(loop(), SPIKES, out=tmp_path / "changed", changes=changes)
    assert changed.training.epochs == 3
    assert load_workload(tmp_path / "changed" / "network.toml") == changed


NET = """
import torch, snntorch as snn
from torch import nn
def build():
    net = nn.Sequential(nn.Linear(30, 8), snn.Leaky(beta=0.9, init_hidden=True))
    return net, (torch.rand(9, 3, 30) < 0.3).float(), {"timesteps": 9}
def wrong():
    return 3
def other():
    return *build()[:2], {"timestep": 9}
def fails():
    raise ValueError("no such layer")
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wrong", "wrong() returns int; it must return a module, an example input"),
        ("other", "other() returns 'timestep'; did you mean 'timesteps'"),
        ("fails", "ValueError: no such layer"),
        ("built", "defines no function built()"),
    ],
)
def test_a_file_that_builds_no_network_is_refused(tmp_path: Any, name: str, said: str) -> None:
    (tmp_path / "net.py").write_text(NET)
    result = CliRunner().invoke(main, ["import", f"{tmp_path}/net.py:{name}", "--out", str(tmp_path / "mine")])
    assert result.exit_code != 0
    assert said in f"{result.output}{result.exception}"


def test_a_file_that_builds_a_network_becomes_a_workload(tmp_path: Any) -> None:
    from mimdsim.workload import load_workload

    (tmp_path / "net.py").write_text(NET)
    result = CliRunner().invoke(main, ["import", f"{tmp_path}/net.py:build", "--out", str(tmp_path / "mine")])
    assert result.exit_code == 0, result.output
    assert "net.py is run: import only files that you trust." in result.output
    made = load_workload(tmp_path / "mine" / "network.toml")
    assert (made.data.timesteps, made.data.inputs, made.network.hidden) == (9, 30, ())


def test_what_is_no_module_or_tensor_is_refused() -> None:
    assert "module is int; give a torch.nn.Module" in refusal(3, SPIKES)
    assert "example_input is list; give a torch.Tensor" in refusal(loop(), [1])
    assert "has the shape [4]" in refusal(loop(), torch.zeros(4))


def test_a_network_is_checked_and_placed_as_one_of_a_file() -> None:
    import mimdsim

    workload = frameworks.from_torch(loop(), SPIKES)
    assert mimdsim.check(workload, "tiny", strict=True).passed
    assert mimdsim.place(workload, "tiny", candidates=4).best.figures.cycles > 0


class Again(nn.Module):  # type: ignore[misc, name-defined]
    """A second layer that reads the first and itself by `how`(module, first, itself), of weights and a bias of 0."""

    def __init__(self, how: Any) -> None:
        super().__init__()
        self.first, self.last, self.how = nn.Linear(zoo.INPUTS, zoo.CLASSES), nn.Linear(zoo.CLASSES, zoo.CLASSES), how
        self.own, self.lif1, self.lif2 = copy.deepcopy(self.last.weight), snn.Leaky(beta=0.9), snn.Leaky(beta=0.8)
        nn.init.zeros_(self.last.bias)

    def forward(self, x: Any) -> Any:
        one, two, out = self.lif1.reset_mem(), self.lif2.reset_mem(), []
        spikes = torch.zeros(x.shape[1], zoo.CLASSES)
        for step in x:
            first, one = self.lif1(self.first(step), one)
            spikes, two = self.lif2(self.how(self, first, spikes), two)
            out.append(spikes)
        return torch.stack(out)


def of_own(module: Any, spikes: Any) -> Any:
    return nn.functional.linear(spikes, module.own, module.last.bias)


def test_weights_and_biases_that_a_layer_uses_twice_are_refused() -> None:
    """Whose currents may be those of weights of their own, of which gradients are not."""
    said = refusal(Again(lambda module, first, own: module.last(first) + own @ module.last.weight.T), SPIKES)
    assert "layer 'lif2' multiplies several sources by the same weights" in said
    for how in (
        lambda module, first, own: module.last(first) + of_own(module, own),
        lambda module, first, own: module.last(first) - of_own(module, own),
    ):
        assert "adds or subtracts the bias 'last.bias' several times" in refusal(Again(how), SPIKES)


class Started(nn.Module):  # type: ignore[misc, name-defined]
    """Neurons whose state is set `at` a timestep, to what makes no other spikes: there are none."""

    def __init__(self, cells: Any, at: int, begin: float = 0.1) -> None:
        super().__init__()
        self.fc, self.cells, self.at, self.begin = nn.Linear(zoo.INPUTS, zoo.CLASSES), cells, at, begin
        self.fc.weight.data.mul_(0.01)

    def forward(self, x: Any) -> Any:
        state, out = None, []
        for t, step in enumerate(x):
            current = self.fc(step)
            if t == self.at:
                value = torch.full_like(current, self.begin)
                if hasattr(self.cells, "v"):
                    self.cells.v = value
                else:
                    state = self.cells.initial_state(current)._replace(v=value) if norse_cells(self.cells) else value
            state = torch.zeros_like(current) if state is None and isinstance(self.cells, snn.Leaky) else state
            made = self.cells(current) if hasattr(self.cells, "v") else self.cells(current, state)
            spikes, state = made if isinstance(made, tuple) else (made, None)
            out.append(spikes)
        return torch.stack(out)


CHANGES = {
    "another": lambda cells: setattr(cells, "mem", 0.9999 * cells.mem),
    "in place": lambda cells: cells.mem.data.mul_(0.9),
}


@pytest.mark.parametrize("how", CHANGES)
def test_kept_states_that_are_changed_are_no_states_of_models(how: str) -> None:
    torch.manual_seed(0)
    said = "'cells' (Leaky) has a potential that is set from outside"
    if how == "in place":
        assert said in refusal(Meddled(CHANGES[how]), SPIKES)
    else:
        check_by_operations(said, Meddled(CHANGES[how]), SPIKES)
    assert frameworks.from_torch(Meddled(lambda _: None), SPIKES).network.layers == ("output",)


def norse_cells(cells: Any) -> bool:
    return type(cells).__module__.startswith("norse")


CELLS = {
    "snntorch": lambda: snn.Leaky(beta=0.9),
    "spikingjelly": lambda: zoo.neuron.LIFNode(detach_reset=True),
    "norse": zoo.norse.LIFCell,
}


@pytest.mark.filterwarnings("ignore:.*sends no spikes on the example")
@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize("of", CELLS)
def test_states_that_are_set_from_outside_are_those_of_equations_or_refused(of: str, at: int) -> None:
    torch.manual_seed(0)
    known = (
        "has a potential that is set" if of == "spikingjelly" else "begins with a state" if at == 0 else "not return"
    )
    if at:
        assert known in refusal(Started(CELLS[of](), at), SPIKES)
    else:
        module = Started(CELLS[of](), at)
        module.fc.weight.data.mul_(400.0)
        check_by_operations(known, module, SPIKES)
        assert frameworks.from_torch(Started(CELLS[of](), at, 0.0), SPIKES).network.layers == ("output",)
