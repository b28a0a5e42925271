"""What a module returns of its last layer: all of it or a reading over all timesteps, and nothing else."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
from torch_training import check_by_operations

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
zoo = pytest.importorskip("torch_networks")
frameworks = pytest.importorskip("mimdsim.frameworks")
from mimdsim.base.errors import DescriptionError  # noqa: E402


class Returns(zoo.Loop):  # type: ignore[misc, name-defined]
    """A function of the list of outputs."""

    def __init__(self, of: Any, reset: str = "subtract"):
        super().__init__(zoo.snn.Leaky(beta=0.9), zoo.snn.Leaky(beta=0.9, reset_mechanism=reset))
        self.of, self.part = of, int(reset == "none")

    def forward(self, x: Any) -> Any:
        return self.of([*super().forward(x)[self.part]])


def given(of: Any, **more: Any) -> tuple[Any, Any, Any]:
    return zoo.example(zoo.TorchNetwork(make=lambda: Returns(of, **more), judge=zoo.of_counts))


WHOLE: dict[str, Any] = {
    "a list": (list, "sum", 1.0),
    "samples first": (lambda out: torch.stack(out, 1), "sum", 1.0),
    "timesteps last": (lambda out: torch.stack(out, 2), "sum", 1.0),
    "mean of timesteps last": (lambda out: torch.stack(out, 2).mean(-1), "sum", 1 / zoo.TIMESTEPS),
    "a tenth of the sum": (lambda out: torch.stack(out).sum(0) / 10, "sum", 0.1),
    "the last": (lambda out: torch.stack(out)[-1], "last", 1.0),
}
LATE: dict[str, Any] = {
    "the mean of the last timesteps": (lambda out: torch.stack(out[5:]).mean(0), "sum", 1 / (zoo.TIMESTEPS - 5)),
    "a slice, added up": (lambda out: torch.stack(out)[5:].sum(0), "sum", 1.0),
    "a slice of a slice, added up": (lambda out: torch.stack(out)[2:][3:].sum(0), "sum", 1.0),
    "samples first": (lambda out: torch.stack(out, 1)[:, 5:].sum(1), "sum", 1.0),
    "a list without the first": (lambda out: out[5:], "sum", 1.0),
    "all but the first": (lambda out: torch.stack(out[5:]), "sum", 1.0),
    "added up one by one": (lambda out: sum(out[6:], out[5]), "sum", 1.0),
}
OTHER: dict[str, Any] = {
    "without the last timesteps": lambda out: torch.stack(out[:-5]).mean(0),
    "the first timesteps of the last": lambda out: torch.stack(out)[5:][:3].sum(0),
    "a slice of the first timesteps": lambda out: torch.stack(out)[:5].sum(0),
    "every other timestep": lambda out: torch.stack(out)[::2].sum(0),
    "the mean of samples": lambda out: torch.stack(out).mean(1),
    "some classes": lambda out: torch.stack(out).sum(0)[:, :4],
    "neighbours of two sizes": lambda out: torch.stack(out).sum(0)[:, :4].view(zoo.BATCH, 2, 2).sum(-1),
    "the last counted twice": lambda out: torch.stack(out).sum(0) + out[-1],
    "backwards": lambda out: torch.stack(out[::-1]),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_all_timesteps_make_is_read(name: str) -> None:
    of, reading, scale = WHOLE[name]
    module, spikes, _ = given(of)
    training = frameworks.from_torch(module, spikes).training
    assert (training.reading, training.logit_scale) == (reading, pytest.approx(scale))


@pytest.mark.parametrize("name", LATE)
def test_a_burn_in_is_left_out(name: str) -> None:
    of, reading, scale = LATE[name]
    training = frameworks.from_torch(*given(of)[:2]).training
    assert (training.reading, training.burn_in) == (reading, 5)
    assert training.logit_scale == pytest.approx(scale)
    if reading == "sum" and scale == 1:
        training = frameworks.from_torch(*given(of)[:2], loss="ce_count_loss").training
        assert (training.reading, training.burn_in) == ("sum", 5)


def test_a_burn_in_is_left_out_of_potentials() -> None:
    of: dict[str, Any] = {
        "max": lambda out: torch.stack(out)[4:].amax(0),
        "mean": lambda out: torch.stack(out)[4:].mean(0),
        "softmax": lambda out: torch.stack(out)[4:].softmax(-1).sum(0),
    }
    for reading, made in of.items():
        training = frameworks.from_torch(*given(made, reset="none")[:2]).training
        assert (training.reading, training.burn_in) == (reading, 4)
    returned = given(lambda out: torch.stack(out[4:]), reset="none")[:2]
    training = frameworks.from_torch(*returned, loss="ce_rate_loss").training
    assert (training.reading, training.over_timesteps, training.burn_in) == ("every", "mean", 4)


def test_the_highest_may_grow_by_a_timestep_after_another() -> None:
    training = frameworks.from_torch(*given(lambda out: reduce(torch.maximum, out), reset="none")[:2]).training
    assert (training.reading, training.burn_in) == ("max", 0)
    training = frameworks.from_torch(*given(lambda out: reduce(torch.maximum, out[2:]), reset="none")[:2]).training
    assert (training.reading, training.burn_in) == ("max", 2)
    module, spikes, _ = given(lambda out: torch.maximum(out[-1], out[-2]) + out[-1], reset="none")
    with pytest.raises(DescriptionError, match="neither all of what 'lif2' made nor a reading of it"):
        frameworks.from_torch(module, spikes)
    grown: tuple[Any, ...] = (
        lambda out: reduce(torch.max, out),
        lambda out: reduce(torch.max, out, torch.full_like(out[0], -torch.inf)),
        lambda out: torch.max(torch.stack(out[:5]).amax(0), torch.stack(out[5:]).amax(0)),
    )
    for of in grown:
        training = frameworks.from_torch(*given(of, reset="none")[:2]).training
        assert (training.reading, training.burn_in) == ("max", 0)
    others: tuple[Any, ...] = (
        lambda out: torch.max(out[-1], other=torch.zeros(())),
        lambda out: torch.maximum(out[-1], torch.zeros(())),
        lambda out: torch.max(out[-1], torch.zeros(())),
        lambda out: torch.maximum(torch.stack(out).sum(0), torch.zeros(())),
    )
    for of in others:
        module, spikes, _ = given(of, reset="none")
        with torch.no_grad():  # with which the highest is above 0
            module.fc2.weight.abs_()
        with pytest.raises(DescriptionError, match=r"the output goes through 'max(imum)?'"):
            frameworks.from_torch(module, spikes)
    module, spikes, _ = given(lambda out: reduce(torch.maximum, out, torch.zeros_like(out[0])), reset="none")
    check_by_operations("the output goes through 'maximum'", module, spikes)  # a state that begins at 0


LEFT: dict[str, tuple[Any, int]] = {  # of what the first is read, where nobody fires at first
    "of a slice of a list": (lambda out: torch.stack(out[2:])[3:].sum(0), 5),
    "one of a slice": (lambda out: torch.stack(out)[8:][0], -1),
    "the last of a slice": (lambda out: torch.stack(out)[8:][-1], 0),
    "several outputs": (lambda out: (torch.stack(out)[5:].sum(0), torch.stack(out)[2:]), 5),
    "the middle": (lambda out: torch.stack(out)[5:].sum(0) + 0 * out[0], 0),
}


@pytest.mark.parametrize("how", LEFT)
def test_a_burn_in_is_that_of_what_is_read(how: str) -> None:
    of, burn_in = LEFT[how]
    module, spikes, _ = given(of)
    with torch.no_grad():
        for layer in (module.fc1, module.fc2):
            layer.bias.zero_()
    spikes[:5] = 0.0
    if burn_in < 0 or how == "the middle":
        with pytest.raises(DescriptionError, match=r"neither all of what 'lif2' made nor a reading of it|goes through"):
            frameworks.from_torch(module, spikes)
    else:
        assert frameworks.from_torch(module, spikes).training.burn_in == burn_in


@pytest.mark.parametrize("loss", ["", "ce_count_loss"])
@pytest.mark.parametrize("name", OTHER)
def test_what_is_of_some_timesteps_or_classes_is_refused(name: str, loss: str) -> None:
    module, spikes, _ = given(OTHER[name])
    cut = "the output goes through 'a slice'"
    with pytest.raises(DescriptionError, match=f"neither all of what 'lif2' made nor a reading of it|{cut}"):
        frameworks.from_torch(module, spikes, loss=loss)


def test_a_log_softmax_of_classes_is_undone_by_cross_entropy_alone() -> None:
    module, spikes, _ = given(lambda out: torch.stack(out).amax(0).log_softmax(-1), reset="none")
    assert frameworks.from_torch(module, spikes).training.reading == "max"
    with pytest.raises(DescriptionError, match="'log_softmax', which only loss = 'cross_entropy'"):
        frameworks.from_torch(module, spikes, loss={"loss": "mean_squared_error"})
    module, spikes, _ = given(lambda out: torch.stack(out).amax(0).log_softmax(0), reset="none")
    with pytest.raises(DescriptionError, match="goes through 'log_softmax'"):  # of samples
        frameworks.from_torch(module, spikes)


def test_a_softmax_of_every_timestep_is_read_as_its_sum() -> None:
    """Which the module returns, or a loss makes of all timesteps; not one over samples, or of what is added up."""
    scales = {"sum": 1.0, "mean": 1 / zoo.TIMESTEPS}
    for how, scale in scales.items():
        module, spikes, _ = given(lambda out, how=how: getattr(torch.stack(out).softmax(-1), how)(0), reset="none")
        training = frameworks.from_torch(module, spikes).training
        assert (training.reading, training.logit_scale) == ("softmax", pytest.approx(scale))
    module, spikes, _ = given(torch.stack, reset="none")
    training = frameworks.from_torch(module, spikes, loss={"reading": "softmax"}).training
    assert (training.reading, training.logit_scale) == ("softmax", 1.0)
    for of in (lambda out: torch.stack(out).softmax(1).sum(0), lambda out: torch.stack(out).sum(0).softmax(-1)):
        module, spikes, _ = given(of, reset="none")
        with pytest.raises(DescriptionError, match="neither all of what 'lif2' made nor a reading of it"):
            frameworks.from_torch(module, spikes)


REDUCED: dict[str, Any] = {
    "a mean over time": lambda out: torch.stack(out).mean(0),
    "the last timestep": lambda out: torch.stack(out)[-1],
}


@pytest.mark.parametrize("said", REDUCED)
def test_a_loss_of_another_reading_than_the_module_returns_is_refused(said: str) -> None:
    """It was taken, as if the module had returned every timestep: of a mean, counts are so many times too large."""
    module, spikes, _ = given(REDUCED[said])
    for loss in ("ce_count_loss", "ce_rate_loss", {"loss": "mean_squared_error", "reading": "sum"}):
        with pytest.raises(DescriptionError, match=f"returns is {said}, and this loss reads .*leave out loss"):
            frameworks.from_torch(module, spikes, loss=loss)


def test_keys_of_a_loss_without_a_reading_leave_that_of_the_module() -> None:
    module, spikes, _ = given(REDUCED["a mean over time"])
    training = frameworks.from_torch(module, spikes, loss={"loss": "cross_entropy"}).training
    assert training.reading == "sum"
    assert training.logit_scale == pytest.approx(1 / zoo.TIMESTEPS)


def test_counts_of_the_last_timesteps_are_no_counts_of_all() -> None:
    network = zoo.TorchNetwork(make=lambda: zoo.CountsInALoop("sum", late=4), judge=zoo.of_counts)
    training = frameworks.from_torch(*zoo.example(network)[:2]).training
    assert (training.reading, training.burn_in) == ("sum", 4)


def test_populations_that_do_not_lie_side_by_side_are_refused() -> None:
    class Apart(zoo.ClassPopulations):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return zoo.Loop.forward(self, x)[0].sum(0).view(-1, self.each, zoo.CLASSES).mean(1)

    module, spikes, _ = zoo.example(zoo.TorchNetwork(make=lambda: Apart("mean"), judge=zoo.of_counts))
    with pytest.raises(DescriptionError, match="the output is neither all of what 'lif2' made"):
        frameworks.from_torch(module, spikes)


ADDED_UP: dict[str, Any] = {
    "a mean": (0.0, lambda total: total / zoo.TIMESTEPS, "mean", 1.0),
    "a share": (None, lambda total: 0.1 * total, "last", 0.1),
}


@pytest.mark.parametrize("of", ADDED_UP)
def test_currents_that_a_loop_adds_up_are_divided_at_the_end(of: str) -> None:
    """From 0, of which PyTorch keeps nothing, or from zeros, with which they are a neuron."""
    start, end, reading, scale = ADDED_UP[of]

    class AddsUp(zoo.ReadOut):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            mem = self.lif1.init_leaky()
            total = torch.zeros(x.shape[1], zoo.CLASSES) if start is None else start
            for step in x:
                spk, mem = self.lif1(self.fc1(step), mem)
                total = total + self.fc2(spk)
            return end(total)

    module, spikes, _ = zoo.example(zoo.TorchNetwork(make=lambda: AddsUp(""), judge=zoo.of_counts))
    training = frameworks.from_torch(module, spikes).training
    assert (training.reading, training.logit_scale) == (reading, pytest.approx(scale))


def test_a_linear_read_out_of_a_mean_is_one_where_nobody_fires() -> None:
    """Its values are those of the bias, whatever timesteps it reads; gradients of surrogates tell."""
    module, spikes, _ = zoo.example(zoo.ZOO["a linear read-out of mean rates"])
    with torch.no_grad():
        for parameter in module.fc1.parameters():
            parameter.mul_(0.01)
    with pytest.warns(UserWarning, match="sends no spikes"):
        training = frameworks.from_torch(module, spikes).training
    assert (training.reading, training.logit_scale) == ("mean", 1.0)


def test_gradients_that_add_up_to_nothing_are_those_of_pytorch() -> None:
    """Nobody fires, and every class is the label of as many samples: what is left of a bias's gradient is rounding."""

    class Silent(zoo.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2 = zoo.nn.Linear(zoo.INPUTS, zoo.HIDDEN), zoo.nn.Linear(zoo.HIDDEN, 5, bias=False)
            self.norm = zoo.nn.BatchNorm1d(5)

        def forward(self, x: Any) -> Any:
            v, out = torch.zeros(x.shape[1], zoo.HIDDEN, dtype=x.dtype), 0.0
            for step in x:
                v = 0.9 * v + self.fc1(step)
                spikes = zoo.Rectangle.apply(v - 1000.0)
                v = v * (1 - spikes)
                out = out + torch.softmax(self.norm(self.fc2(spikes)), 1)
            return out

    module, spikes, _ = zoo.example(zoo.TorchNetwork(make=Silent, judge=zoo.of_counts))
    with pytest.warns(UserWarning, match="sends no spikes"):
        frameworks.from_torch(module, spikes)


LEFT_OUT: dict[str, Any] = {
    "a list": lambda out: sum(out[5:]),
    "a list, stacked": lambda out: torch.stack(out[5:]).sum(0),
    "a slice": lambda out: torch.stack(out)[5:].sum(0),
    "narrowed": lambda out: torch.stack(out).narrow(0, 5, zoo.TIMESTEPS - 5).sum(0),
}


@pytest.mark.parametrize("how", [*LEFT_OUT, "a loop"])
def test_a_burn_in_is_found_where_nobody_fires(how: str) -> None:
    """Nothing comes in before the sixth timestep, so that values are the same with the first five and without."""
    if how == "a loop":
        network = zoo.TorchNetwork(make=lambda: zoo.CountsInALoop("sum", late=5), judge=zoo.of_counts)
    else:
        network = zoo.TorchNetwork(make=lambda: Returns(LEFT_OUT[how]), judge=zoo.of_counts)
    module, spikes, _ = zoo.example(network)
    with torch.no_grad():
        for layer in (module.fc1, module.fc2):
            layer.bias.zero_()
    spikes[:5] = 0.0
    assert frameworks.from_torch(module, spikes).training.burn_in == 5


def test_votes_that_a_loop_adds_up_are_votes() -> None:
    """As SpikingJelly's tutorials average what a network sends."""

    class AddsUp(zoo.nn.Sequential):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            rate = 0.0
            for step in x:
                rate = rate + super().forward(step)
            return rate / len(x)

    module, spikes, _ = zoo.example(
        zoo.TorchNetwork(
            make=lambda: AddsUp(
                zoo.nn.Linear(zoo.INPUTS, 12), zoo.neuron.LIFNode(tau=2.0), zoo.nn.Linear(12, 12),
                zoo.neuron.LIFNode(tau=2.0), zoo.jelly.VotingLayer(2),
            ),
            judge=zoo.of_counts, scale=3.0,
        )
    )  # fmt: skip
    workload = frameworks.from_torch(module, spikes)
    assert (workload.network.neurons_per_class, workload.training.reading) == (2, "sum")
    assert workload.training.logit_scale == pytest.approx(0.5 / zoo.TIMESTEPS)


def test_the_highest_along_an_axis_by_its_number() -> None:
    module, spikes, _ = given(lambda out: torch.stack(out, 1).max(1)[0], reset="none")
    assert frameworks.from_torch(module, spikes).training.reading == "max"
