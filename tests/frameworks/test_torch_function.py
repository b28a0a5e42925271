"""The compiled program as a module of PyTorch: any loss and optimiser train it as they train the network it is from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mimdsim
from mimdsim.base.errors import DescriptionError, MappingError, MimdsimError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
snn = pytest.importorskip("snntorch")

TIMESTEPS, SAMPLES, INPUTS, CLASSES = 12, 8, 30, 5
READ: dict[str, Callable[[Any], Any]] = {
    "sum": lambda stack: stack.sum(0),
    "mean": lambda stack: stack.mean(0),
    "last": lambda stack: stack[-1],
    "max": lambda stack: stack.max(0).values,
    "every": lambda stack: stack,
}


def network(*, membrane: bool = False, recurrent: bool = False) -> Any:
    """Two layers of Leaky or RLeaky; returns spikes or membranes of the second, timesteps first."""

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2 = torch.nn.Linear(INPUTS, 20), torch.nn.Linear(20, CLASSES)
            kind = {"beta": 0.9}
            self.lif1 = snn.RLeaky(**kind, linear_features=20) if recurrent else snn.Leaky(**kind)
            self.lif2 = snn.Leaky(**kind, reset_mechanism="none" if membrane else "subtract")

        def forward(self, x: Any) -> Any:
            state = self.lif1.init_rleaky() if recurrent else (self.lif1.init_leaky(),)
            second, found = self.lif2.init_leaky(), []
            for now in x:
                if recurrent:
                    spikes, v = self.lif1(self.fc1(now), *state)
                    state = (spikes, v)
                else:
                    spikes, v = self.lif1(self.fc1(now), *state)
                    state = (v,)
                out, second = self.lif2(self.fc2(spikes), second)
                found.append(second if membrane else out)
            return torch.stack(found)

    torch.manual_seed(1)
    made = Net()
    with torch.no_grad():
        made.fc1.weight.mul_(4)
        made.fc2.weight.mul_(4)
    return made


def example() -> tuple[Any, Any]:
    draw = torch.Generator().manual_seed(2)
    spikes = (torch.rand((TIMESTEPS, SAMPLES, INPUTS), generator=draw) < 0.3).float()
    return spikes, torch.randint(CLASSES, (SAMPLES,), generator=draw)


def loss_of(reading: Any, labels: Any) -> Any:
    """A loss that mimdsim does not have."""
    totals = reading if reading.ndim == 2 else reading.mean(0)
    return torch.nn.functional.multi_margin_loss(totals, labels) + 0.05 * (reading**3).mean()


def program_of(module: Any, reading: str, **changes: Any) -> Any:
    given = {"loss": "cross_entropy", "reading": reading}
    return mimdsim.torch_function(mimdsim.from_torch(module, example()[0], loss=given, changes=changes), "bow")


@pytest.mark.parametrize(
    ("reading", "options", "changes"),
    [
        ("sum", {}, {}),
        ("last", {}, {}),
        ("every", {}, {}),
        ("sum", {"recurrent": True}, {}),
        ("max", {"membrane": True}, {}),
        ("mean", {"membrane": True}, {}),
        ("every", {"membrane": True}, {}),
        ("sum", {}, {"network.spikes": "dense"}),
        ("sum", {}, {"mapping.program": "best"}),
    ],
)
def test_gradients_are_those_of_autograd(reading: str, options: dict[str, bool], changes: dict[str, Any]) -> None:
    module, (spikes, labels) = network(**options), example()
    program = program_of(module, reading, **changes)
    scores, wanted = program(spikes), READ[reading](module(spikes))
    assert scores.shape == wanted.shape
    assert float((scores - wanted).detach().abs().max()) < 1e-5
    mine, theirs = loss_of(scores, labels), loss_of(wanted, labels)
    mine.backward()
    theirs.backward()
    assert float(mine.detach()) == pytest.approx(float(theirs.detach()), rel=1e-5)
    pairs = [(program.hidden0, module.fc1.weight), (program.output, module.fc2.weight)]
    pairs += [(program.hidden0_recurrent, module.lif1.recurrent.weight)] if options.get("recurrent") else []
    for own, given in pairs:
        assert float(given.grad.abs().max()) > 0
        assert float((own.grad.T - given.grad).abs().max()) < 2e-6 * float(given.grad.abs().max())


def test_optimisers_train_both_alike_and_weights_go_back() -> None:
    module, (spikes, labels) = network(), example()
    program = program_of(module, "sum")
    ours, theirs = (torch.optim.RMSprop(each.parameters(), lr=1e-3) for each in (program, module))
    losses = []
    for _ in range(5):
        for optimiser, run in ((ours, program), (theirs, module)):
            optimiser.zero_grad()
            out = run(spikes)
            loss = loss_of(out if run is program else out.sum(0), labels)
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
    assert losses[::2] == pytest.approx(losses[1::2], rel=1e-4)
    assert losses[-1] < losses[0]
    assert program.profile().cycles > 0
    expected = module.fc1.weight.detach().clone()
    back = mimdsim.to_torch(network(), program)
    assert float((back.fc1.weight - expected).abs().max()) < 1e-5


def test_a_backward_pass_of_an_earlier_step_runs_that_step_again() -> None:
    (spikes, labels), program = example(), program_of(network(), "sum")
    loss_of(program(spikes), labels).backward()
    expected = program.hidden0.grad.clone()
    program.zero_grad()
    first = program(spikes)
    program(torch.zeros_like(spikes))
    loss = loss_of(first, labels)
    loss.backward(retain_graph=True)
    loss.backward()
    assert torch.equal(program.hidden0.grad, 2 * expected)


def test_a_smaller_batch_is_filled_with_silent_samples() -> None:
    (spikes, labels), program = example(), program_of(network(), "sum")
    scores = program(spikes[:, :3])
    assert scores.shape == (3, CLASSES)
    assert torch.equal(scores, program(spikes)[:3])
    loss_of(program(spikes[:, :3]), labels[:3]).backward()
    module = network()
    loss_of(module(spikes[:, :3]).sum(0), labels[:3]).backward()
    found, wanted = program.hidden0.grad.T, module.fc1.weight.grad
    assert float((found - wanted).abs().max()) < 2e-6 * float(wanted.abs().max())


def test_halves_round_what_pytorch_hands_back() -> None:
    program = program_of(network(), "sum", **{"mapping.value_bytes": 2})
    loss_of(program(example()[0]), example()[1]).backward()
    assert 0 < float(program.hidden0.grad.abs().max()) < np.inf


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: x[:5], "input of shape [5, 8, 30]; [12, 1 to 8, 30] is needed"),
        (lambda x: x[:, :, :7], "[12, 1 to 8, 30] is needed"),
        (lambda x: torch.cat([x, x], 1), "input of shape [12, 16, 30]"),
        (lambda x: x * 0.5, "spikes must be 0 or 1"),
        (lambda x: x * torch.nan, "spikes must be 0 or 1"),
        (lambda x: x.requires_grad_(), "no gradient of its input"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(change: Callable[[Any], Any], said: str) -> None:
    program = program_of(network(), "sum")
    with pytest.raises(DescriptionError) as refusal:
        program(change(example()[0]))
    assert said in str(refusal.value)


def test_what_lists_cannot_hold_and_losses_of_the_workload_are_refused() -> None:
    program = program_of(network(), "sum", **{"data.input_capacity": 4})
    with pytest.raises(DescriptionError, match=r"spikes in a timestep of a sample; data\.input_capacity is 4"):
        program(example()[0])
    with pytest.raises(DescriptionError, match=r"training\.firing_strength adds to a loss"):
        program_of(network(), "sum", **{"training.firing_strength": 0.5})
    with pytest.raises(MappingError, match="nothing has run yet"):
        program.profile()
    with pytest.raises(MimdsimError, match="is a GPU; give a tiled machine"):
        mimdsim.torch_function("digits", "a100")


def test_dropout_is_off_in_eval_as_in_pytorch() -> None:
    spikes = (torch.rand(TIMESTEPS, SAMPLES, INPUTS) < 0.3).float()
    changes = {"network.spikes": "dense", "network.dropout": 0.5}
    program = mimdsim.torch_function(mimdsim.from_torch(network(), spikes, changes=changes), "tiny")
    first, second = program(spikes), program(spikes)
    assert not torch.equal(first, second)
    program.eval()
    assert torch.equal(program(spikes), program(spikes))
    plain = mimdsim.from_torch(network(), spikes, changes={"network.spikes": "dense"})
    assert torch.equal(program(spikes), mimdsim.torch_function(plain, "tiny")(spikes))


def test_a_training_step_that_runs_again_in_eval_has_its_masks() -> None:
    (spikes, labels), found = example(), []
    workload = mimdsim.from_torch(network(), spikes, changes={"network.spikes": "dense", "network.dropout": 0.5})
    for evaluated in (False, True):
        program = mimdsim.torch_function(workload, "tiny")
        scores = program(spikes)
        if evaluated:
            program.eval()(spikes)
        loss_of(scores, labels).backward()
        found.append(program.hidden0.grad)
    assert torch.equal(*found)
