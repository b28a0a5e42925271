"""Dropout and batch norm of PyTorch networks: what is left out with the masks of the program, what eval() folds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mimdsim
from mimdsim.base.errors import DescriptionError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
snn = pytest.importorskip("snntorch")
nn = torch.nn
TIMESTEPS, SAMPLES = 8, 6
Build = Callable[[], Any]


class Net(nn.Module):  # type: ignore[misc]
    """A convolution, a pool and a linear layer, each with what a test puts between."""

    def __init__(self, between: Build = nn.Identity, *, norm: bool = False, pooled: Build = nn.Identity) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.pool = nn.Conv2d(2, 4, 3), nn.MaxPool2d(2)
        self.bn = nn.BatchNorm2d(4) if norm else nn.Identity()
        self.bn2 = nn.BatchNorm1d(5) if norm else nn.Identity()
        self.pooled, self.between = pooled(), between()
        self.fc = nn.Linear(16, 5)
        self.lif1, self.lif2 = snn.Leaky(beta=0.9), snn.Leaky(beta=0.9)
        with torch.no_grad():
            self.conv.weight.mul_(4)
            self.fc.weight.mul_(4)

    def forward(self, x: Any) -> Any:
        first, second, found = self.lif1.init_leaky(), self.lif2.init_leaky(), []
        for now in x:
            spikes, first = self.lif1(self.pooled(self.pool(self.bn(self.conv(now)))), first)
            out, second = self.lif2(self.bn2(self.fc(self.between(spikes.flatten(1)))), second)
            found.append(out)
        return torch.stack(found)


def example() -> tuple[Any, Any]:
    torch.manual_seed(3)
    return (torch.rand(TIMESTEPS, SAMPLES, 2, 6, 6) < 0.3).float(), torch.randint(0, 5, (SAMPLES,))


def gradients(program: Any, module: Any, spikes: Any, labels: Any) -> list[tuple[Any, Any]]:
    """(ours, theirs) of losses and of what is trained of the linear layer."""
    losses = []
    for run in (lambda: program(spikes.flatten(2)), lambda: module(spikes).sum(0)):
        loss = nn.functional.cross_entropy(run(), labels)
        loss.backward()
        losses.append(loss.detach())
    return [(losses[0], losses[1]), (program.output.grad.T, module.fc.weight.grad)]


def test_dropout_leaves_out_what_the_masks_of_the_program_say(monkeypatch: pytest.MonkeyPatch) -> None:
    spikes, labels = example()
    module = Net(lambda: nn.Dropout(0.4))
    workload = mimdsim.from_torch(module, spikes)
    assert workload.network.dropout == (0.0, 0.4)
    assert workload.network.dropout_per == "timestep"
    program = mimdsim.torch_function(workload, "tiny")
    program(spikes.flatten(2))
    masks = iter(program._executor.arrays["mask.output.of.hidden0.every"].copy())
    program = mimdsim.torch_function(workload, "tiny")  # which begins with the same masks

    def masked(given: Any, *_: Any, **__: Any) -> Any:
        mask = next(masks).reshape(SAMPLES, 4, 4)  # [samples * positions, channels] -> [samples, channels, positions]
        return given * torch.from_numpy(np.ascontiguousarray(mask.transpose(0, 2, 1))).reshape(given.shape)

    monkeypatch.setattr(nn.functional, "dropout", masked)
    for ours, theirs in gradients(program, module, spikes, labels):
        assert float((ours - theirs).abs().max()) < 2e-6 * float(theirs.abs().max())


def test_functions_and_modules_of_spikingjelly_say_how_often_they_draw() -> None:
    layer = pytest.importorskip("spikingjelly.activation_based.layer")
    spikes, _ = example()

    class Functional(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return nn.functional.dropout(x, 0.25, self.training)

    class InPlace(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            nn.functional.dropout(x, 0.25, inplace=True)
            return x

    for build, share, per in (
        (Functional, 0.25, "timestep"),
        (InPlace, 0.25, "timestep"),
        (lambda: layer.Dropout(0.5), 0.5, "sequence"),
        (lambda: nn.Dropout(0.0), 0.0, "timestep"),
    ):
        workload = mimdsim.from_torch(Net(build), spikes)
        found = workload.network.dropout
        assert (found[-1] if isinstance(found, tuple) else found, workload.network.dropout_per) == (share, per)


class Planes(Net):
    """What leaves out planes is between neurons and the linear layer, before it reads them flat."""

    def forward(self, x: Any) -> Any:
        first, second, found = self.lif1.init_leaky(), self.lif2.init_leaky(), []
        for now in x:
            spikes, first = self.lif1(self.pool(self.conv(now)), first)
            out, second = self.lif2(self.fc(self.between(spikes).flatten(1)), second)
            found.append(out)
        return torch.stack(found)


def test_dropout_of_planes_leaves_out_what_the_masks_of_the_program_say(monkeypatch: pytest.MonkeyPatch) -> None:
    spikes, labels = example()
    module = Planes(lambda: nn.Dropout2d(0.4))
    workload = mimdsim.from_torch(module, spikes)
    assert workload.network.dropout == (0.0, 0.4)
    assert (workload.network.dropout_per, workload.network.dropout_of) == ("timestep", ("neuron", "plane"))
    program = mimdsim.torch_function(workload, "tiny")
    program(spikes.flatten(2))
    masks = iter(program._executor.arrays["mask.output.of.hidden0.every"].copy())
    program = mimdsim.torch_function(workload, "tiny")

    def masked(given: Any, *_: Any, **__: Any) -> Any:
        mask = next(masks).reshape(SAMPLES, 4, 4)
        assert (mask == mask[:, :1]).all() and len(np.unique(mask)) == 2  # noqa: PT018
        return given * torch.from_numpy(mask[:, 0].copy())[:, :, None, None]

    monkeypatch.setattr(nn.functional, "dropout2d", masked)
    for ours, theirs in gradients(program, module, spikes, labels):
        assert float((ours - theirs).abs().max()) < 2e-6 * float(theirs.abs().max())


def test_dropout_of_planes_is_read_of_spikingjelly_and_functions_and_of_planes_alone() -> None:
    layer = pytest.importorskip("spikingjelly.activation_based.layer")
    spikes, _ = example()

    class Functional(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return nn.functional.dropout2d(x, 0.25, self.training)

    for build, share, per in ((Functional, 0.25, "timestep"), (lambda: layer.Dropout2d(0.5), 0.5, "sequence")):
        network = mimdsim.from_torch(Planes(build), spikes).network
        assert (network.dropout, network.dropout_per) == ((0.0, share), per)
        assert network.dropout_of == ("neuron", "plane")
    for flat in (lambda: nn.Dropout2d(0.5), lambda: layer.Dropout2d(0.5), Functional):
        with pytest.raises(DescriptionError, match=r"reads \[6, 16\]; nearest: \[samples, channels, height, width\]"):
            mimdsim.from_torch(Net(flat), spikes)


def test_dropout_that_eval_turns_off_is_said_and_left_out() -> None:
    spikes, _ = example()
    module = Net(lambda: nn.Dropout(0.5)).eval()
    with pytest.warns(UserWarning, match=r"'between' \(Dropout\) is off in eval\(\), and so left out; call train\(\)"):
        workload = mimdsim.from_torch(module, spikes)
    assert workload.network.dropout == 0.0


def normed() -> Any:
    """With statistics, gains and shifts unlike those of the beginning, in eval()."""
    module, (spikes, _) = Net(norm=True), example()
    with torch.no_grad():
        for _ in range(4):
            module(spikes)
        for each in (module.bn, module.bn2):
            each.weight.uniform_(0.5, 1.5)
            each.bias.uniform_(0.0, 0.5)
    return module.eval()


@pytest.mark.filterwarnings("ignore:.*is folded into:UserWarning")
def test_batch_norm_in_eval_is_folded_and_its_weights_go_back() -> None:
    module, (spikes, labels) = normed(), example()
    with pytest.warns(UserWarning, match=r"'bn' \(BatchNorm2d\) is in eval\(\) and is folded into 'conv\.weight'"):
        workload = mimdsim.from_torch(module, spikes)
    program = mimdsim.torch_function(workload, "tiny")
    losses, _ = gradients(program, module, spikes, labels)
    assert float(losses[0]) == pytest.approx(float(losses[1]), rel=1e-6)
    scale = (module.bn.weight / torch.sqrt(module.bn.running_var + module.bn.eps)).detach()
    pairs = [
        (program.hidden0_bias.grad.reshape(-1), module.bn.bias.grad),
        (program.output_bias.grad.reshape(-1), module.bn2.bias.grad),
        ((program.hidden0.grad * scale).T.reshape(module.conv.weight.shape), module.conv.weight.grad),
    ]
    for ours, theirs in pairs:
        assert float(theirs.abs().max()) > 1e-3
        assert float((ours - theirs).abs().max()) < 2e-6 * float(theirs.abs().max())
    kept = module.bn.weight.detach().clone(), module.conv.bias.detach().clone()
    with torch.no_grad():
        for parameter in program.parameters():
            parameter += 0.05 * torch.rand_like(parameter)
    scores = program(spikes.flatten(2))
    mimdsim.to_torch(module, program)
    assert float((module(spikes).sum(0) - scores).abs().max()) == 0
    assert torch.equal(module.bn.weight, kept[0])
    assert torch.equal(module.conv.bias, kept[1])


REFUSED: dict[str, tuple[Build, str]] = {
    "twice": (lambda: Net(lambda: nn.Sequential(nn.Dropout(0.2), nn.Dropout(0.3))), "nearest: one dropout for both"),
    "an axis of samples": (
        lambda: along_samples(),
        "'bn2.1' normalises along another axis than that of 'lif2's 5 neurons",
    ),
    "a bias after it": (lambda: Recurrent(bias=True), "layer 'lif1' adds a bias to what batch norm makes"),
    "of all batches": (lambda: of_all_batches(), r"momentum=None\); nearest: momentum=0.1"),
    "after a pool": (lambda: Net(pooled=lambda: nn.BatchNorm2d(4)).eval(), "nearest: right after it"),
    "neurons of planes": (
        lambda: Net(lambda: nn.BatchNorm1d(16)),
        "'between' normalises 16 neurons of planes of 4 x 2 x 2 by themselves; nearest: a norm of channels, before",
    ),
    "a norm of spikes in eval": (
        lambda: Net(lambda: nn.BatchNorm1d(16)).eval(),
        "does not follow a convolution or linear layer at once",
    ),
    "without a shift": (
        lambda: without_shift(),
        "nearest: track_running_stats=True and affine=True",
    ),
    "channels": (lambda: Net(lambda: nn.Dropout1d(0.5)), r"reads \[6, 16\]; nearest: \[samples, channels"),
    "all of it": (lambda: Net(lambda: nn.AlphaDropout(0.5)), "nearest: torch.nn.Dropout, neuron by neuron"),
    "everything": (lambda: Net(lambda: nn.Dropout(1.0)), "dropout with p = 1 leaves nothing"),
}


def of_all_batches() -> Any:
    module = Net(norm=True)
    module.bn.momentum = None
    return module


def along_samples() -> Any:
    module = Net(norm=True)
    module.bn2 = nn.Sequential(nn.Unflatten(0, (1, SAMPLES)), nn.BatchNorm1d(SAMPLES), nn.Flatten(0, 1))
    return module


def without_shift() -> Any:
    module = Net(norm=True)
    module.bn = nn.BatchNorm2d(4, affine=False)
    return module.eval()


def test_dropout_of_currents_is_that_of_a_layer_without_weights() -> None:
    network = mimdsim.from_torch(Net(pooled=lambda: nn.Dropout(0.5)), example()[0]).network
    assert (network.neuron[:2], network.unweighted, network.dropout) == (
        ("current", "leaky"),
        ("hidden1",),
        (0, 0.5, 0),
    )


@pytest.mark.parametrize(("build", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_understood_is_refused_with_what_comes_near(build: Build, message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        mimdsim.from_torch(build(), example()[0])


class Recurrent(nn.Module):  # type: ignore[misc]
    """A norm of every timestep, and a recurrent current that is added after it."""

    def __init__(self, bias: bool = False) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.fc, self.bn, self.rec = nn.Linear(72, 8), nn.BatchNorm1d(8, momentum=0.3), nn.Linear(8, 8, bias=bias)
        self.out, self.bn2 = nn.Linear(8, 5, bias=False), nn.BatchNorm1d(5)
        self.lif1, self.lif2 = snn.Leaky(beta=0.8), snn.Leaky(beta=0.9)

    def forward(self, x: Any) -> Any:
        first, second, found = self.lif1.init_leaky(), self.lif2.init_leaky(), []
        spikes = torch.zeros(x.shape[1], 8, dtype=x.dtype)
        for now in x.flatten(2):
            spikes, first = self.lif1(self.bn(self.fc(now)) + self.rec(spikes), first)
            out, second = self.lif2(self.bn2(self.out(spikes)), second)
            found.append(out)
        return torch.stack(found)


class InTime(nn.Module):  # type: ignore[misc]
    """SpikingJelly's blocks in multi-step mode: statistics of all timesteps."""

    def __init__(self) -> None:
        super().__init__()
        from spikingjelly.activation_based import functional, layer, neuron

        torch.manual_seed(2)
        self.net = nn.Sequential(
            layer.Conv2d(2, 4, 3), layer.BatchNorm2d(4, momentum=0.6), neuron.LIFNode(detach_reset=True),
            layer.MaxPool2d(2, 2), layer.Flatten(), layer.Linear(16, 5, bias=False),
            layer.BatchNorm1d(5, momentum=0.6), neuron.LIFNode(detach_reset=True),
        )  # fmt: skip
        with torch.no_grad():
            for each in (self.net[1], self.net[6]):
                each.weight.fill_(3.0)
        self.begin = lambda: functional.reset_net(self.net)
        functional.set_step_mode(self.net, "m")

    def forward(self, x: Any) -> Any:
        self.begin()
        return self.net(x)


class BeforeWeights(InTime):
    """Norms of spikes, which weights read, all timesteps at once or one by one."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        from spikingjelly.activation_based import functional, layer, neuron

        self.net = nn.Sequential(
            layer.Conv2d(2, 4, 3), neuron.LIFNode(tau=1.5, detach_reset=True), layer.BatchNorm2d(4, momentum=0.6),
            layer.Conv2d(4, 3, 4), neuron.LIFNode(tau=1.5, detach_reset=True), layer.Flatten(),
            layer.BatchNorm1d(3, momentum=0.6), layer.Linear(3, 5), neuron.LIFNode(tau=1.5, detach_reset=True),
        )  # fmt: skip
        with torch.no_grad():
            for each in (0, 3, 7):
                self.net[each].weight.mul_(4)
        self.mode = mode
        functional.set_step_mode(self.net, mode)

    def forward(self, x: Any) -> Any:
        self.begin()
        return self.net(x) if self.mode == "m" else torch.stack([self.net(step) for step in x])


@pytest.mark.parametrize("make", [lambda: Net(norm=True), Recurrent, InTime], ids=["snntorch", "recurrent", "in time"])
def test_batch_norm_in_train_is_trained_as_pytorch_does(make: Build) -> None:
    pytest.importorskip("spikingjelly")
    module, (spikes, labels) = make(), example()
    before = {name: each.clone() for name, each in module.named_buffers()}
    workload = mimdsim.from_torch(module, spikes)
    assert all(torch.equal(each, before[name]) for name, each in module.named_buffers())
    per = "sequence" if isinstance(module, InTime) else "timestep"
    assert workload.network.batch_norm == (per, per)
    program = mimdsim.torch_function(workload, "tiny")
    losses = []
    for run in (lambda: program(spikes.flatten(2)), lambda: module(spikes).sum(0)):
        loss = nn.functional.cross_entropy(run(), labels)
        loss.backward()
        losses.append(float(loss))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    held, compared = dict(module.named_parameters()) | dict(module.named_buffers()), 0
    from mimdsim.frameworks.torch_weights import parameter_names, public_name

    for name, array, turned, _, bias in parameter_names(workload):
        mine = program.get_parameter(public_name(array).replace(".", "_"))
        theirs = held[name]
        if "running" in name:
            kept = theirs - (held[bias].detach() if bias else 0)
            assert float((mine.reshape(-1) - kept).abs().max()) < 1e-5 * float(kept.abs().max())
            continue
        found = mine.grad.T if turned and mine.shape[0] > 1 else mine.grad
        error = float((found.reshape(theirs.shape) - theirs.grad).abs().max())
        assert error < 2e-5 * float(theirs.grad.abs().max()), name
        compared += 1
    assert compared == len({name for name, each in module.named_parameters() if each.ndim > 1 or "bn" in name}) or (
        isinstance(module, InTime) and compared == 6
    )


@pytest.mark.filterwarnings("ignore:.*is folded into:UserWarning")
@pytest.mark.parametrize(
    "make",
    [lambda: Net(norm=True), Recurrent, InTime, lambda: BeforeWeights("m"), lambda: BeforeWeights("s")],
    ids=["snntorch", "recurrent", "in time", "before weights, in time", "before weights"],
)
def test_what_was_trained_is_judged_as_the_module_in_eval(make: Build) -> None:
    """Weights and running averages go back, and the folded network has the scores of the module."""
    pytest.importorskip("spikingjelly")
    from mimdsim.graph import inference_graph, inference_network, interpret
    from mimdsim.graph.norms import folded
    from mimdsim.workload import network_of

    module, (spikes, labels) = make(), example()
    workload = mimdsim.from_torch(module, spikes)
    program = mimdsim.torch_function(workload, "tiny")
    optimiser = torch.optim.SGD(program.parameters(), lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        nn.functional.cross_entropy(program(spikes.flatten(2)), labels).backward()
        optimiser.step()
    mimdsim.to_torch(module, program)
    network = network_of(workload)
    public = {each.public: name for name, each in network.parameters.items()}
    weights = folded(network.layers, {public[key]: value for key, value in program.weights.items()})
    forward = inference_network(network, network.batch)
    made = interpret(inference_graph(forward), {"input": spikes.flatten(2).numpy(), **weights})
    scores = module.eval()(spikes).sum(0).detach().numpy()
    assert scores.sum() > 0
    np.testing.assert_array_equal(made["counts"], scores)
    with pytest.raises(DescriptionError, match="eval\\(\\) normalises by running averages"):
        program.eval()(spikes.flatten(2))
    with pytest.raises(DescriptionError, match="a batch norm needs all"):
        program.train()(spikes.flatten(2)[:, :2])
