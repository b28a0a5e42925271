"""What a forward pass does besides its products and neurons: read, told or refused, and never left out in silence."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import mimdsim
from mimdsim.base.errors import DescriptionError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
snn = pytest.importorskip("snntorch")
nn, functional = torch.nn, torch.nn.functional
TIMESTEPS, SAMPLES, INPUTS, HIDDEN, CLASSES = 10, 4, 20, 16, 5
LABELS = torch.tensor([0, 3, 1, 4])


def spikes(share: float = 0.3) -> Any:
    torch.manual_seed(3)
    return (torch.rand(TIMESTEPS, SAMPLES, INPUTS) < share).float()


class Net(nn.Module):  # type: ignore[misc]
    """Two layers of Leaky; `before` runs first, `hidden` acts on spikes, `ends` makes what is returned."""

    def __init__(
        self,
        before: Callable[[Any], Any] = lambda _: None,
        hidden: Callable[[Any, Any], Any] = lambda _, sent: sent,
        ends: Callable[[Any, Any], Any] = lambda sent, _: torch.stack(sent),
        back: Callable[[Any, Any], Any] | None = None,
        **of_output: Any,
    ):
        super().__init__()
        torch.manual_seed(0)
        self.fc1, self.fc2 = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.rec, self.drop = nn.Linear(HIDDEN, HIDDEN, bias=False) if back else None, nn.Dropout(0.5)
        self.lif1, self.lif2 = snn.Leaky(beta=0.9), snn.Leaky(beta=0.8, **of_output)
        self.before, self.hidden, self.ends, self.back = before, hidden, ends, back
        with torch.no_grad():
            self.fc1.weight.mul_(4)
            self.fc2.weight.mul_(4)

    def forward(self, x: Any) -> Any:
        self.before(self)
        first, second, found, potentials = self.lif1.init_leaky(), self.lif2.init_leaky(), [], []
        sent = torch.zeros(x.shape[1], HIDDEN)
        for now in x:
            current = self.fc1(now) + self.back(self, sent) if self.back else self.fc1(now)
            sent, first = self.lif1(current, first)
            out, second = self.lif2(self.fc2(self.hidden(self, sent)), second)
            found.append(out)
            potentials.append(second)
        return self.ends(found, potentials)


def without_gradients(change: Callable[[Any], Any]) -> Callable[[Any], None]:
    def before(module: Any) -> None:
        with torch.no_grad():
            change(module)

    return before


def _mask(module: Any) -> None:
    module.fc1.weight.data = module.fc1.weight.data * (module.fc1.weight.data > 0)


def _clamp(module: Any) -> None:
    module.fc1.weight.clamp_(0)


def _adapt(module: Any) -> None:
    module.lif1.threshold.add_(0.1)


def _draw_once(module: Any, sent: Any) -> Any:
    return sent * module.kept


def _keep(module: Any) -> None:
    module.kept = module.drop(torch.ones(SAMPLES, HIDDEN))


def _half_at_random(_: Any, sent: Any) -> Any:
    return 0.5 * sent if torch.rand(1).item() < 0.5 else sent


def _keep_a_view(module: Any) -> None:
    module.kept = module.drop(torch.ones(1, SAMPLES, HIDDEN))[0]


def _drop_nobody(_: Any, sent: Any) -> Any:
    """Branches that are left out with a probability at which the example shows none."""
    return sent * sent.new_empty(SAMPLES, 1).bernoulli_(1 - 1e-9).div_(1 - 1e-9)


def _divided(by: Callable[[Any], float]) -> Any:
    """A module whose output is divided by what it works out of itself."""
    held: list[float] = []
    return Net(lambda module: held.append(by(module)), ends=lambda sent, _: torch.stack(sent).sum(0) / held[-1])


class Recording(Net):
    """It keeps what it sent, scales its input by its weights, and was called before."""

    def __init__(self) -> None:
        super().__init__(hidden=lambda module, sent: sent / float(module.fc1.weight.abs().max().detach()))
        self.record = self(spikes())

    def forward(self, x: Any) -> Any:
        self.record = super().forward(x)
        return self.record


class Clamped(Net):
    """Weights within bounds, of a checkpoint in float16."""

    def __init__(self) -> None:
        super().__init__()
        self.half().float()

    def forward(self, x: Any) -> Any:
        first, out = self.lif1.init_leaky(), []
        for now in x:
            sent, first = self.lif1(functional.linear(now, self.fc1.weight.clamp(-9, 9), self.fc1.bias), first)
            out.append(self.fc2(sent))
        return torch.stack(out).sum(0)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "dropout of what is fed back": (
        lambda: Net(back=lambda module, sent: module.rec(module.drop(sent))), "'lif1' reads itself through dropout",
    ),
    "one mask for all timesteps": (lambda: Net(_keep, _draw_once), "reads random numbers that the module draws"),
    "a view of one mask": (lambda: Net(_keep_a_view, _draw_once), "reads random numbers that the module draws"),
    "a mask that leaves nothing out": (lambda: Net(hidden=_drop_nobody), "random numbers that .* never left out"),
    "a norm of weights divides the output": (
        lambda: _divided(lambda module: float(module.fc2.weight.norm())), r"another network \(what divides the output",
    ),
    "a norm of weights divides spikes, of a module that keeps what it made": (Recording, "another network"),
    "weights of a checkpoint in float16 are clamped": (Clamped, "multiplies by what 'clamp' made of 'fc1.weight'"),
    "random numbers decide": (lambda: Net(hidden=_half_at_random), "'item' reads random numbers"),
    "weights are clamped": (lambda: Net(without_gradients(_clamp)), "changes 'fc1.weight' in its forward pass"),
    "weights are masked": (lambda: Net(_mask), "changes 'fc1.weight' in its forward pass"),
    "thresholds adapt": (lambda: Net(without_gradients(_adapt)), "changes 'lif1.threshold' in its forward pass"),
    "nothing is returned": (lambda: Net(ends=lambda *_: None), "returns a NoneType and no tensor"),
    "no values": (lambda: Net().to("meta"), "on the device 'meta'"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_would_be_left_out_is_refused(what: str) -> None:
    make, said = REFUSED[what]
    module = make()
    before = {name: each.clone() for name, each in module.state_dict().items()}
    with pytest.raises(DescriptionError, match=said):
        mimdsim.from_torch(module, spikes())
    for name, each in module.state_dict().items():
        assert each.is_meta or torch.equal(each, before[name]), name


def _mask_again(module: Any) -> None:
    module.fc1.weight.data *= module.mask


@pytest.mark.parametrize("changes", ["a mask", "bounds", "far bounds", "signs"])
def test_changes_of_weights_that_do_nothing_on_the_example_are_refused(changes: str) -> None:
    """A module that has been called has weights as its forward pass leaves them."""
    low = 0 if changes == "signs" else -9
    module = Net(_mask_again if changes == "a mask" else without_gradients(lambda own: own.fc1.weight.clamp_(low, 9)))
    module.mask = (torch.rand_like(module.fc1.weight) < 0.5).float()
    if changes == "bounds":
        with torch.no_grad():
            module.fc1.weight[0, 0] = 20.0
    module(spikes())
    before = module.fc1.weight.detach().clone()
    with pytest.raises(DescriptionError, match=r"changes 'fc1.weight' in its forward pass"):
        mimdsim.from_torch(module, spikes())
    assert torch.equal(module.fc1.weight, before)


def test_parameters_that_nothing_uses_are_told_and_those_that_something_does_are_refused() -> None:
    module = Net()
    module.other = nn.Linear(3, 3)
    with pytest.warns(UserWarning, match=r"PyTorch gives 'other.weight', 'other.bias' no gradient"):
        mimdsim.from_torch(module, spikes())
    used = Net(ends=lambda sent, _: torch.stack(sent) + 0 * used.other.weight.sum())
    used.other = nn.Linear(3, 3, bias=False)
    with pytest.raises(DescriptionError):
        mimdsim.from_torch(used, spikes())
    module = Net(ends=lambda _, v: torch.stack(v), reset_mechanism="none", learn_threshold=True)
    with pytest.warns(UserWarning, match=r"PyTorch gives 'lif2.threshold' no gradient"):
        mimdsim.from_torch(module, spikes())


class Drawn(nn.Module):  # type: ignore[misc]
    """States that begin at random, as in sparch; masked: spikes are left out by hand."""

    def __init__(self, draw: Callable[..., Any], masked: bool = False):
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.own, self.draw, self.masked = (
            nn.Linear(INPUTS, CLASSES),
            nn.Linear(CLASSES, CLASSES),
            draw,
            masked,
        )
        self.spike = snn.surrogate.atan()
        with torch.no_grad():
            self.fc.weight.mul_(8)

    def forward(self, x: Any) -> Any:
        potential, sent = self.draw(x.shape[1], CLASSES), self.draw(x.shape[1], CLASSES)
        out = []
        for now in x:
            potential = 0.9 * (potential - sent) + self.fc(now) + self.own(sent)
            sent = self.spike(potential - 1)
            if self.masked:
                sent = sent * (self.draw(x.shape[1], CLASSES) < 0.5).float()
            out.append(sent)
        return torch.stack(out)


def _uniform(*shape: int) -> Any:
    return torch.empty(shape).uniform_()


@pytest.mark.parametrize("draw", [torch.rand, torch.randn, _uniform])
def test_states_that_are_drawn_begin_at_0_where_that_is_asked_for(draw: Callable[..., Any]) -> None:
    with pytest.raises(DescriptionError, match=r"states that begin at 0 \(zero_states=True\)"):
        mimdsim.from_torch(Drawn(draw), spikes())
    workload = mimdsim.from_torch(Drawn(draw), spikes(), zero_states=True)
    made = mimdsim.torch_function(workload, "tiny")(spikes())
    torch.testing.assert_close(made, Drawn(torch.zeros)(spikes()).sum(0))
    with pytest.raises(DescriptionError, match="reads random numbers that the module draws"):
        mimdsim.from_torch(Drawn(draw, masked=True), spikes(), zero_states=True)


DECIDES: dict[str, Callable[[Any], Any]] = {
    "of a view": lambda z: z * (torch.rand(CLASSES).unsqueeze(0) < 0.8),
    "of a product": lambda z: z * (torch.rand(z.shape) * 1.0 < 0.8),
    "by name": lambda z: z * torch.lt(input=torch.rand(z.shape), other=0.8),
    "made whole": lambda z: z * torch.floor(torch.rand(z.shape[0], 1) + 0.8) / 0.8,
    "taken out": lambda z: z if torch.rand(1).item() < 0.5 else 2 * z,
}


@pytest.mark.parametrize("what", DECIDES)
def test_drawn_numbers_that_decide_are_refused_all_the_same(what: str) -> None:
    module = Net(hidden=lambda _, sent: sent, ends=lambda sent, _: torch.stack([DECIDES[what](each) for each in sent]))
    with pytest.raises(DescriptionError, match="reads random numbers that the module draws"):
        mimdsim.from_torch(module, spikes(), zero_states=True)


def test_states_that_are_drawn_may_be_leaves() -> None:
    module = Drawn(lambda *shape: torch.rand(*shape, requires_grad=True))
    assert mimdsim.from_torch(module, spikes(), zero_states=True).network.spikes == "dense"


def test_the_winner_of_the_example_is_no_mask() -> None:
    module = Net()
    module.lif2.inhibition = True
    with torch.no_grad():
        module.fc2.bias[1] = 99.0
    with pytest.raises(DescriptionError, match="has inhibition"):
        mimdsim.from_torch(module, spikes()[:, :1])


def test_neurons_that_are_no_part_of_the_module_are_not_read_by_their_potential() -> None:
    class Held(Net):
        def __init__(self) -> None:
            super().__init__(ends=lambda _, v: torch.stack(v), threshold=torch.linspace(0.5, 1.5, CLASSES))
            self.held, cells = [self.lif2], self.lif2
            del self._modules["lif2"]
            object.__setattr__(self, "lif2", cells)

    with pytest.raises(DescriptionError, match="is no part of the module"):
        mimdsim.from_torch(Held(), spikes())


def test_warnings_that_are_errors_reach_the_caller() -> None:
    module = Net(ends=lambda sent, _: functional.log_softmax(sum(sent), -1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="log_softmax"):
            mimdsim.from_torch(module, spikes())


def test_log_softmax_is_said_to_be_in_the_loss() -> None:
    module = Net(ends=lambda sent, _: functional.log_softmax(sum(sent), -1))
    with pytest.warns(UserWarning, match="goes through 'log_softmax', which the cross-entropy has in it"):
        mimdsim.from_torch(module, spikes())


class _Cell(nn.Module):  # type: ignore[misc]
    """A GRU, and what stands between it and a linear layer."""

    def __init__(self, between: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.cell, self.out = nn.GRU(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.norm, self.drop, self.between = nn.LayerNorm(HIDDEN), nn.Dropout(0.5), between

    def forward(self, x: Any) -> Any:
        return self.out(self.between(self, self.cell(x)[0]))


class _TwoHeads(Net):
    """What is trained beside the output, from the same spikes."""

    def __init__(self) -> None:
        super().__init__()
        self.fc3, self.lif3 = nn.Linear(HIDDEN, CLASSES), snn.Leaky(beta=0.9)

    def forward(self, x: Any) -> Any:
        first, second, third = self.lif1.init_leaky(), self.lif2.init_leaky(), self.lif3.init_leaky()
        found, also = [], []
        for now in x:
            sent, first = self.lif1(self.fc1(now), first)
            out, second = self.lif2(self.fc2(sent), second)
            more, third = self.lif3(self.fc3(sent), third)
            found.append(out)
            also.append(more)
        return torch.stack(found), torch.stack(also)


def _reset_first() -> Any:
    """A GRU that is written by hand, whose reset gate comes before the product with the state."""

    class ByHand(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.gates, self.new = nn.Linear(INPUTS + HIDDEN, 2 * HIDDEN), nn.Linear(INPUTS + HIDDEN, HIDDEN)
            self.out = nn.Linear(HIDDEN, CLASSES)

        def forward(self, x: Any) -> Any:
            h, every = torch.zeros(x.shape[1], HIDDEN), []
            for now in x:
                z, r = torch.sigmoid(self.gates(torch.cat([now, h], 1))).chunk(2, 1)
                h = (1 - z) * h + z * torch.tanh(self.new(torch.cat([now, r * h], 1)))
                every.append(h)
            return self.out(torch.stack(every)).mean(0)

    return ByHand()


def _normed(net: Any) -> Any:
    with warnings.catch_warnings(action="ignore"):
        nn.utils.weight_norm(net.fc1)
    return net


def _shown(change: Callable[[Any], Any]) -> Any:
    """A module that changes its example first."""
    net = Net()
    plain = net.forward
    net.forward = lambda x: plain(change(x))  # type: ignore[method-assign]
    return net


NAMED: dict[str, tuple[Callable[[], Any], str]] = {
    "a norm": (lambda: _Cell(lambda made, sent: made.norm(sent[-1])), "of 'out.weight' with what 'norm' made"),
    "attention": (
        lambda: _Cell(lambda _, sent: (torch.softmax(sent, 0) * sent).sum(0)), "sent, but what 'softmax' made of it",
    ),
    "two outputs": (_TwoHeads, r"leads to nothing that 'lif[23]' gets, whose output is read; nearest: "),
    "another size of the example": (
        lambda: _shown(lambda x: functional.interpolate(x[..., :10], scale_factor=2)),
        "'fc1.weight' is multiplied by what 'interpolate' made; nearest: a module that gets the example as this makes",
    ),
    "an older weight norm": (
        lambda: _normed(Net()), r"'fc1' \(Linear\) has hooks.*torch.nn.utils.remove_weight_norm",
    ),
    "products of gates": (_reset_first, "read 'new.weight' apart from 'gates.weight'"),
}  # fmt: skip


@pytest.mark.parametrize("what", NAMED)
def test_a_refusal_names_what_is_in_the_way(what: str) -> None:
    make, said = NAMED[what]
    with pytest.raises(DescriptionError, match=said):
        mimdsim.from_torch(make(), spikes())


CHANGES: dict[str, Callable[[Any], Any]] = {
    "bounds": lambda x: x.clamp(0, 1),
    "a threshold": lambda x: (x > 0.5).float(),
    "the largest": lambda x: x / x.max(),
    "timestep by timestep": lambda x: torch.stack([each.clamp(0, 1) for each in x]),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_leaves_spikes_as_they_are_is_told(what: str) -> None:
    with pytest.warns(UserWarning, match="makes of the example what its layers read"):
        found = mimdsim.from_torch(_shown(CHANGES[what]), spikes())
    assert torch.allclose(mimdsim.torch_function(found, "bow")(spikes()), Net()(spikes()).sum(0))


@pytest.mark.parametrize(
    "change", [lambda x: x.clamp(0.2, 0.8), lambda x: (x - x.mean()) / x.std(), lambda x: x.roll(1, 2)]
)
def test_what_makes_something_else_of_the_example_is_refused(change: Callable[[Any], Any]) -> None:
    said = "'fc1.weight' is multiplied by what '.*' made; nearest: a module that gets the example as this makes it"
    with pytest.raises(DescriptionError, match=said):
        mimdsim.from_torch(_shown(change), spikes())


def test_a_number_that_multiplies_the_example_is_one_of_the_weights() -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="the module makes of the example")
        assert "hidden0" in mimdsim.from_torch(_shown(lambda x: x / 0.5), spikes()).network.weight_functions


def test_a_loop_that_is_called_once_a_timestep_is_told_so() -> None:
    with pytest.raises(DescriptionError, match="if the module loops over time itself, leave timesteps out"):
        mimdsim.from_torch(Net(), spikes(), timesteps=99)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_drawn_decides_nothing(seed: int) -> None:
    def hidden(_: Any, sent: Any) -> Any:
        return sent if torch.randint(0, 2, (1,)).item() else 0.5 * sent

    torch.manual_seed(seed)
    with pytest.raises(DescriptionError, match="'item' reads random numbers that the module draws"):
        mimdsim.from_torch(Net(hidden=hidden), spikes())


def test_a_module_is_afterwards_what_it_was() -> None:
    """Though its forward pass keeps a log, returns more each time, or meets layers without sizes."""

    class Logs(Net):
        def __init__(self) -> None:
            super().__init__()
            self.log: list[Any] = []

        def forward(self, x: Any) -> Any:
            out = super().forward(x)
            self.log.append(out.detach())
            return out, torch.cat(self.log)

    module, drawn = Logs(), torch.get_rng_state()
    with pytest.warns(UserWarning, match="when it is called again"):
        mimdsim.from_torch(module, spikes())
    assert len(module.log) == 1
    state = torch.get_rng_state()
    torch.set_rng_state(drawn)
    spikes()
    assert torch.equal(torch.get_rng_state(), state)
    lazy = Net()
    lazy.fc1 = nn.LazyLinear(HIDDEN)
    assert mimdsim.from_torch(lazy, spikes()).network.hidden == (HIDDEN,)


def test_a_module_that_is_wrapped_or_cannot_be_copied_is_left_as_it_was() -> None:
    module = Net()
    module.norm = nn.BatchNorm1d(HIDDEN)
    module.hidden = lambda own, sent: own.norm(sent)
    inner, module.kept = module.forward, None

    def keeps(x: Any) -> Any:
        out = inner(x)
        return out

    module.forward = keeps
    before = {name: each.clone() for name, each in module.state_dict().items()}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*when it is called again")
        mimdsim.from_torch(module, spikes())
    for name, each in module.state_dict().items():
        assert torch.equal(each, before[name]), name

    class Sums(Net):
        def forward(self, x: Any) -> Any:
            out = super().forward(x)
            self.seen = getattr(self, "seen", 0.0) + out.sum()
            return out, self.seen

    adds = Sums()
    adds(spikes())  # now with a state that cannot be copied
    seen = adds.seen
    with pytest.warns(UserWarning, match="when it is called again"):
        mimdsim.from_torch(adds, spikes())
    assert adds.seen is seen


def _replace(module: Any) -> None:
    module.lif1.threshold = module.lif1.threshold + 0.5


def _resize(module: Any) -> None:
    module.extra.data = torch.zeros(4)


def test_what_is_replaced_is_a_change() -> None:
    module = Net(_resize)
    module.extra = nn.Parameter(torch.zeros(2))
    for each, said in ((module, "changes 'extra'"), (Net(_replace), "changes 'lif1.threshold'")):
        with pytest.raises(DescriptionError, match=said):
            mimdsim.from_torch(each, spikes())
    assert module.extra.shape == (2,)


def test_packed_sequences_are_refused_by_name() -> None:
    class Packed(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.out = nn.LSTM(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES)

        def forward(self, x: Any) -> Any:
            packed = nn.utils.rnn.pack_padded_sequence(x, torch.full((x.shape[1],), TIMESTEPS), enforce_sorted=False)
            return self.out(nn.utils.rnn.pad_packed_sequence(self.cell(packed)[0])[0][-1])

    with pytest.raises(DescriptionError, match=r"'cell' \(LSTM\) reads a PackedSequence; nearest: a tensor"):
        mimdsim.from_torch(Packed(), spikes())


def test_decisions_by_values_of_tensors_are_told() -> None:
    with pytest.warns(UserWarning, match="decides by values of tensors"):
        mimdsim.from_torch(Net(hidden=lambda _, sent: 0.5 * sent if sent.mean() > 0.3 else sent), spikes(0.1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mimdsim.from_torch(Net(), spikes())


def test_numbers_that_are_taken_out_of_tensors_and_penalties_are_told() -> None:
    with pytest.warns(UserWarning, match=r"takes numbers out of tensors \('item'\)"):
        mimdsim.from_torch(Net(hidden=lambda _, sent: (1.0 if sent.sum().item() < 1e9 else 2.0) * sent), spikes())
    with pytest.warns(UserWarning, match=r"also returns a number that is learned from.*training.firing_strength"):
        mimdsim.from_torch(
            Net(ends=lambda sent, potentials: (torch.stack(sent), potentials[-1].square().mean())), spikes()
        )


def test_gradients_of_pytorch_that_are_not_finite_are_refused() -> None:
    net = Net()
    net.lif1.spike_grad = snn.surrogate.sigmoid(slope=25)
    with torch.no_grad():
        net.fc1.weight.mul_(1000)
    with pytest.raises(DescriptionError, match="gets a gradient from PyTorch on the example that is not finite"):
        mimdsim.from_torch(net, spikes())


def test_states_that_are_kept_from_call_to_call_are_told() -> None:
    class Keeps(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net, self.kept = Net(), None

        def forward(self, x: Any) -> Any:
            first = self.net.lif1.init_leaky() if self.kept is None else self.kept.detach()
            second, found = self.net.lif2.init_leaky(), []
            for now in x:
                sent, first = self.net.lif1(self.net.fc1(now), first)
                out, second = self.net.lif2(self.net.fc2(sent), second)
                found.append(out)
            self.kept = first
            return torch.stack(found)

    module = Keeps()
    with pytest.warns(UserWarning, match="makes something else of the same example when it is called again"):
        mimdsim.from_torch(module, spikes())
    assert module.kept is None


def test_pruned_weights_get_no_gradient_of_a_loss_of_ones_own() -> None:
    module = Net()
    nn.utils.prune.random_unstructured(module.fc1, "weight", 0.5)
    program = mimdsim.torch_function(mimdsim.from_torch(module, spikes()), "tiny")
    mask, optimiser = module.fc1.weight_mask.T == 0, torch.optim.SGD(program.parameters(), lr=0.1)
    theirs = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(3):
        losses = []
        for each, run in ((optimiser, program), (theirs, lambda x: module(x).sum(0))):
            each.zero_grad()
            loss = functional.cross_entropy(run(spikes()), LABELS)
            loss.backward()
            each.step()
            losses.append(float(loss.detach()))
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
        assert not program.hidden0.detach()[mask].any()


def test_dropout_before_a_linear_read_out_is_drawn_as_often_as_there() -> None:
    """Anew in every timestep, of spikes; once, of their sum."""

    class ReadOut(nn.Module):  # type: ignore[misc]
        def __init__(self, summed: bool) -> None:
            super().__init__()
            self.net, self.summed = Net(), summed

        def forward(self, x: Any) -> Any:
            first, found = self.net.lif1.init_leaky(), []
            for now in x:
                sent, first = self.net.lif1(self.net.fc1(now), first)
                found.append(sent if self.summed else self.net.fc2(self.net.drop(sent)))
            every = torch.stack(found).sum(0)
            return self.net.fc2(self.net.drop(every)) if self.summed else every

    for summed, per in ((False, "timestep"), (True, "sequence")):
        network = mimdsim.from_torch(ReadOut(summed), spikes()).network
        assert (network.dropout, network.dropout_per) == ((0.0, 0.5), per)


def test_squares_of_mean_rates_are_those_of_pytorch() -> None:
    """As SpikingJelly's first tutorial trains, in a loss of the workload."""
    module = Net(ends=lambda sent, _: sum(sent) / TIMESTEPS)
    workload = mimdsim.from_torch(module, spikes(), loss={"loss": "mean_squared_error"})
    training = workload.training
    assert (training.loss, training.reading, training.logit_scale) == ("mean_squared_error", "mean", 1.0)
    for loss in ("mse_count_loss", {"loss": "mean_squared_error", "reading": "sum"}):  # of counts, by name
        with pytest.raises(DescriptionError, match="of a mean of outputs have no loss here"):
            mimdsim.from_torch(module, spikes(), loss=loss)
    everything = Net(ends=lambda sent, _: sum(sent) / 3)
    with pytest.raises(DescriptionError, match="of a mean of outputs have no loss here"):
        mimdsim.from_torch(everything, spikes(), loss={"loss": "mean_squared_error"})


def test_spikes_of_several_layers_are_added_up_to_one_rate() -> None:
    class Skips(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net, self.fc, self.lif = Net(), nn.Linear(HIDDEN, HIDDEN), snn.Leaky(beta=0.9)
            with torch.no_grad():
                self.fc.weight.mul_(4)

        def forward(self, x: Any) -> Any:
            first, second, total = self.net.lif1.init_leaky(), self.lif.init_leaky(), 0.0
            for now in x:
                sent, first = self.net.lif1(self.net.fc1(now), first)
                also, second = self.lif(self.fc(sent), second)
                total = total + sent + also
            return self.net.fc2(total / TIMESTEPS)

    made = mimdsim.from_torch(Skips(), spikes())
    assert made.network.sources["output"] == ("hidden0 + hidden1",)
    assert made.training.reading == "sum"
    assert made.network.weight_functions["output"].factor == pytest.approx(1 / TIMESTEPS)
