"""Functions of all timesteps at once, and embeddings, as they are written before and behind recurrent layers: three
training steps beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch_training import check_steps

import mimdsim
from mimdsim.base.errors import MimdsimError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
zoo = pytest.importorskip("torch_networks")
nn, snn, functional = zoo.nn, zoo.snn, torch.nn.functional

INPUTS, HIDDEN, CLASSES = 12, 10, 5
SPIKES = (torch.rand(9, 4, INPUTS, generator=torch.Generator().manual_seed(1)) < 0.4).float()


class Around(nn.Module):  # type: ignore[misc, name-defined]
    """A recurrent layer with what is before and behind it."""

    def __init__(self, before: Any, cells: Any, behind: Callable[..., Any]):
        super().__init__()
        self.before, self.cells, self.behind = before, cells, behind
        self.out = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Any) -> Any:
        given = self.before(x)
        return self.out(self.behind(self.cells(given)[0], given))


class Looped(nn.Module):  # type: ignore[misc, name-defined]
    """A loop over what a function made of all timesteps, which lie along an axis."""

    def __init__(self, axis: int):
        super().__init__()
        self.given, self.own, self.out = (
            nn.Linear(INPUTS, HIDDEN),
            nn.Linear(HIDDEN, HIDDEN),
            nn.Linear(HIDDEN, CLASSES),
        )
        self.axis = axis

    def forward(self, x: Any) -> Any:
        current, out = torch.tanh(self.given(x)), []
        state = torch.zeros(x.shape[1 - self.axis], HIDDEN)
        for t in range(x.shape[self.axis]):
            state = torch.tanh(self.own(state) + current.select(self.axis, t))
            out.append(self.out(state))
        return torch.stack(out)


class Spiking(nn.Module):  # type: ignore[misc, name-defined]
    """Neurons of a framework that read what a function made of all timesteps."""

    def __init__(self) -> None:
        super().__init__()
        self.given, self.fc, self.out = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.lif = snn.Leaky(beta=0.9)

    def forward(self, x: Any) -> Any:
        rates, potential, out = functional.relu(4.0 * self.given(x)), self.lif.init_leaky(), []
        for rate in rates:
            spikes, potential = self.lif(self.fc(rate), potential)
            out.append(self.out(spikes))
        return torch.stack(out)


class Head(nn.Module):  # type: ignore[misc, name-defined]
    """Layers behind a recurrent one that run once, on what is read of it."""

    def __init__(self, read: Callable[..., Any]):
        super().__init__()
        self.cells, self.read = nn.GRU(INPUTS, HIDDEN), read
        self.head = nn.Sequential(
            nn.Linear(HIDDEN, 8), nn.ReLU(), nn.Linear(8, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES)
        )

    def forward(self, x: Any) -> Any:
        return self.head(self.read(*self.cells(x)))


class Gated(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.given, self.gate = nn.Linear(INPUTS, HIDDEN), nn.Linear(INPUTS, HIDDEN)

    def forward(self, x: Any) -> Any:
        return torch.tanh(self.given(x)) * torch.sigmoid(self.gate(x))


def encoder(*functions: Any) -> Any:
    return nn.Sequential(nn.Linear(INPUTS, HIDDEN), *functions)


def as_it_is(sent: Any, _: Any) -> Any:
    return sent


MODULES: dict[str, Callable[[], Any]] = {
    "relu before a GRU": lambda: Around(encoder(nn.ReLU(inplace=True)), nn.GRU(HIDDEN, HIDDEN), as_it_is),
    "two layers before an LSTM": lambda: Around(
        encoder(nn.LeakyReLU(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh()), nn.LSTM(HIDDEN, HIDDEN), as_it_is
    ),
    "a norm before it": lambda: Around(encoder(nn.LayerNorm(HIDDEN), nn.ReLU()), nn.RNN(HIDDEN, HIDDEN), as_it_is),
    "relu behind a GRU": lambda: Around(
        nn.Identity(), nn.GRU(INPUTS, HIDDEN, num_layers=2), lambda sent, _: functional.relu(sent)
    ),
    "numbers": lambda: Around(encoder(nn.ReLU()), nn.GRU(HIDDEN, HIDDEN), lambda sent, _: 1 - torch.tanh(sent) / 2),
    "skip": lambda: Around(encoder(nn.ReLU()), nn.GRU(HIDDEN, HIDDEN), lambda sent, given: sent + given),
    "gates": lambda: Around(Gated(), nn.GRU(HIDDEN, HIDDEN), as_it_is),
    "the last of all": lambda: Around(
        encoder(nn.ReLU()), nn.LSTM(HIDDEN, HIDDEN), lambda sent, _: functional.relu(sent)[-1]
    ),
    "relu of the last": lambda: Around(
        nn.Identity(), nn.GRU(INPUTS, HIDDEN), lambda sent, _: functional.relu(sent[-1])
    ),
    "a head of several layers": lambda: Head(lambda sent, state: sent[-1]),
    "a head of the last state": lambda: Head(lambda sent, state: state[0]),
    "loop": lambda: Looped(0),
    "spiking": Spiking,
}


@pytest.mark.parametrize("name", MODULES)
def test_functions_of_all_timesteps_are_read_in_each(name: str) -> None:
    torch.manual_seed(0)
    check_steps(MODULES[name](), SPIKES)


def test_timesteps_may_lie_behind_samples() -> None:
    torch.manual_seed(0)
    first = SPIKES.transpose(0, 1).contiguous()
    check_steps(Looped(1), first)

    class Last(Around):
        def forward(self, x: Any) -> Any:
            return super().forward(x)[:, -1]

    check_steps(Last(encoder(nn.ReLU()), nn.GRU(HIDDEN, HIDDEN, batch_first=True), as_it_is), first)


@pytest.mark.parametrize("read", [lambda sent, state: sent[0], lambda sent, state: sent.mean(0)])
def test_a_function_of_something_else_than_the_last_timestep_is_refused(read: Callable[..., Any]) -> None:
    with pytest.raises(MimdsimError, match=r"'relu' .* or the last of what it makes in every timestep"):
        mimdsim.from_torch(Head(read), SPIKES)


def test_what_a_function_in_place_leaves_is_not_read_without_it() -> None:
    class InPlace(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.cells, self.out = (
                nn.Linear(INPUTS, HIDDEN),
                nn.GRU(HIDDEN, HIDDEN),
                nn.Linear(HIDDEN, CLASSES),
            )

        def forward(self, x: Any) -> Any:
            current = self.fc(x)
            functional.relu(current, inplace=True)
            return self.out(self.cells(current)[0])

    with pytest.raises(MimdsimError, match="is multiplied by what 'relu' made"):
        mimdsim.from_torch(InPlace(), SPIKES)


class Reader(nn.Module):  # type: ignore[misc, name-defined]
    """Words through an embedding."""

    def __init__(self, options: dict[str, Any], loops: bool):
        super().__init__()
        self.words, self.cells, self.loops = nn.Embedding(INPUTS, HIDDEN, **options), nn.GRU(HIDDEN, HIDDEN), loops
        self.out = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Any) -> Any:
        rows = torch.stack([self.words(each) for each in x]) if self.loops else torch.tanh(self.words(x))
        return self.out(self.cells(rows)[0])


@pytest.mark.parametrize(("loops", "options"), [(False, {}), (True, {}), (False, {"padding_idx": 3})])
def test_words_are_spikes_of_an_input_each(loops: bool, options: dict[str, Any]) -> None:
    words = torch.randint(0, INPUTS, (9, 4), generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    module = Reader(options, loops)
    workload = mimdsim.from_torch(module, words)
    assert workload.data.activity == pytest.approx(1 / INPUTS)
    program = mimdsim.torch_function(workload, "tiny")
    spikes = functional.one_hot(words, INPUTS).float()
    losses: list[list[float]] = []
    for own, run in ((module, lambda: module(words).sum(0)), (program, lambda: program(spikes))):
        trained = torch.optim.SGD(own.parameters(), lr=0.1)
        made = []
        for _ in range(3):
            loss = functional.cross_entropy(run(), torch.arange(4))
            made.append(float(loss.detach()))
            trained.zero_grad()
            loss.backward()
            trained.step()
        losses.append(made)
    assert losses[1] == pytest.approx(losses[0], rel=2e-4)


@pytest.mark.parametrize(("option", "value"), [("max_norm", 1.0), ("scale_grad_by_freq", True)])
def test_options_of_embeddings_are_refused(option: str, value: Any) -> None:
    words = torch.randint(0, INPUTS, (9, 4), generator=torch.Generator().manual_seed(1))
    with pytest.raises(MimdsimError, match=f"'words.weight' is an embedding with {option}; nearest"):
        mimdsim.from_torch(Reader({option: value}, False), words)


def test_a_row_of_padding_that_is_not_zeros_is_refused() -> None:
    module, words = Reader({"padding_idx": 0}, False), torch.zeros(9, 4, dtype=torch.int64)
    with torch.no_grad():
        module.words.weight[0] = 1.0
    with pytest.raises(MimdsimError, match=r"'words\.weight' has a row for padding_idx that is not zeros"):
        mimdsim.from_torch(module, words)
