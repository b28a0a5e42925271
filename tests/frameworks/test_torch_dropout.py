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

    for build, share, per in (
        (Functional, 0.25, "timestep"),
        (lambda: layer.Dropout(0.5), 0.5, "sequence"),
        (lambda: nn.Dropout(0.0), 0.0, "timestep"),
    ):
        workload = mimdsim.from_torch(Net(build), spikes)
        found = workload.network.dropout
        assert (found[-1] if isinstance(found, tuple) else found, workload.network.dropout_per) == (share, per)


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
    "batch norm in train()": (lambda: Net(norm=True), r"'bn' \(BatchNorm2d\) is not among.*nearest: module.eval\(\)"),
    "after a pool": (lambda: Net(pooled=lambda: nn.BatchNorm2d(4)).eval(), "nearest: right after it"),
    "without a shift": (
        lambda: without_shift(),
        "nearest: track_running_stats=True and affine=True",
    ),
    "channels": (lambda: Net(lambda: nn.Dropout1d(0.5)), "nearest: torch.nn.Dropout, neuron by neuron"),
    "everything": (lambda: Net(lambda: nn.Dropout(1.0)), "dropout with p = 1 leaves nothing"),
    "of currents": (lambda: Net(pooled=lambda: nn.Dropout(0.5)), "reads what dropout leaves of a product"),
}


def without_shift() -> Any:
    module = Net(norm=True)
    module.bn = nn.BatchNorm2d(4, affine=False)
    return module.eval()


@pytest.mark.parametrize(("build", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_understood_is_refused_with_what_comes_near(build: Build, message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        mimdsim.from_torch(build(), example()[0])
