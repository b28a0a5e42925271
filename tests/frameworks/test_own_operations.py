"""Neurons of frameworks that are read by their own operations, since no model of them does what the module does: three
training steps beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch_training import check_by_operations, check_steps

import mimdsim
from mimdsim.base.errors import MimdsimError
from mimdsim.workload import network_of

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
zoo = pytest.importorskip("torch_networks")
frameworks = pytest.importorskip("mimdsim.frameworks")
jelly = pytest.importorskip("spikingjelly.activation_based.neuron")
nn, snn, norse = zoo.nn, zoo.snn, zoo.norse

INPUTS, HIDDEN, CLASSES = 12, 10, 5
SPIKES = (torch.rand(9, 4, INPUTS, generator=torch.Generator().manual_seed(1)) < 0.4).float()


class Two(nn.Module):  # type: ignore[misc, name-defined]
    """Two layers of which the second's potential is returned. hidden, read: what weights read of the first, and what is
    returned of the second, of (what they sent, their state)."""

    def __init__(self, last: Any, first: Any = None, hidden: Any = None, read: Any = None, scale: float = 4.0):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.first, self.last = first or snn.Leaky(beta=0.9), last
        self.hidden, self.read = hidden or (lambda sent, _: sent), read or (lambda _, potential: potential)
        with torch.no_grad():
            self.fc1.weight.mul_(scale)
            self.fc2.weight.mul_(scale)

    def gathered(self, out: list[Any]) -> Any:
        return torch.stack(out)

    def forward(self, x: Any) -> Any:
        states: list[tuple[Any, ...]] = [(), ()]
        out = []
        for step in x:
            for at, (weights, cells) in enumerate(((self.fc1, self.first), (self.fc2, self.last))):
                current = weights(self.hidden(*step) if at else step)
                if not states[at] and hasattr(cells, "reset_mem"):
                    begun = cells.reset_mem()
                    states[at] = begun if isinstance(begun, tuple) else (begun,)
                sent, *states[at] = made if isinstance(made := cells(current, *states[at]), tuple) else (made,)
                step = sent, potential_of(cells, states[at])
                states[at] = [sent, *states[at]] if isinstance(cells, (snn.RLeaky, snn.RSynaptic)) else states[at]
            out.append(self.read(*step))
        return self.gathered(out)


def potential_of(cells: Any, states: Any) -> Any:
    """What a cell of each framework calls so."""
    return cells.v if hasattr(cells, "v") else getattr(states[-1], "v", states[-1])


LAST: dict[str, Callable[[], Any]] = {
    "recurrent": lambda: snn.RLeaky(beta=0.9, linear_features=CLASSES),
    "recurrent, reset to zero": lambda: snn.RLeaky(beta=0.9, linear_features=CLASSES, reset_mechanism="zero"),
    "recurrent, never reset": lambda: snn.RLeaky(beta=0.9, linear_features=CLASSES, reset_mechanism="none"),
    "recurrent, beta of each, learned": lambda: snn.RLeaky(
        beta=torch.linspace(0.3, 0.9, CLASSES), linear_features=CLASSES, learn_beta=True
    ),
    "recurrent, with currents": lambda: snn.RSynaptic(alpha=0.8, beta=0.9, linear_features=CLASSES),
    "thresholds of its own": lambda: snn.Leaky(beta=0.8, threshold=torch.linspace(0.5, 1.5, CLASSES)),
    "a threshold that is learned": lambda: snn.Leaky(beta=0.8, learn_threshold=True),
    "norse LIF": norse.LIFCell,
    "norse LSNN": norse.LSNNCell,
    "norse LIF, recurrent": lambda: norse.LIFRecurrentCell(CLASSES, CLASSES),
    "spikingjelly LIF": lambda: jelly.LIFNode(tau=2.0),
    "spikingjelly LIF, soft reset": lambda: jelly.LIFNode(tau=2.0, v_reset=None),
    "spikingjelly IF": jelly.IFNode,
    "spikingjelly PLIF": jelly.ParametricLIFNode,
}


@pytest.mark.first(5)
@pytest.mark.parametrize("name", LAST)
def test_potentials_of_neurons_that_spike_are_read_as_pytorch_trains_them(name: str) -> None:
    torch.manual_seed(0)
    check_steps(Two(LAST[name](), scale=20.0 if "norse" in name else 4.0), SPIKES)


def test_both_are_read_of_what_is_asked_for() -> None:
    """Of a module that returns spikes and potentials of a recurrent layer."""

    class Both(Two):
        def gathered(self, out: list[Any]) -> Any:
            return torch.stack([spikes for spikes, _ in out]), torch.stack([potential for _, potential in out])

    torch.manual_seed(0)
    module = Both(LAST["recurrent"](), read=lambda *both: both)
    for output, loss, read in (
        ("", "", "spikes"),
        ("spikes", "", "spikes"),
        ("membrane", "", "membrane"),
        ("", "mse_membrane_loss", "membrane"),
    ):
        made = frameworks.from_torch(module, SPIKES, output=output, loss=loss)
        assert made.network.output == read
        assert made.network.neuron[-1] == ("rleaky" if read == "spikes" else "neuron_of_output")


class Written(nn.Module):  # type: ignore[misc, name-defined]
    """Neurons that are written out, whose own weights read their spikes. read: what is returned of a timestep."""

    def __init__(self, read: Callable[[Any, Any], Any]):
        super().__init__()
        self.fc, self.own, self.spike = nn.Linear(INPUTS, CLASSES), nn.Linear(CLASSES, CLASSES), snn.surrogate.atan()
        self.read = read

    def forward(self, x: Any) -> Any:
        potential = spikes = torch.zeros(x.shape[1], CLASSES)
        out = []
        for step in x:
            potential = 0.8 * potential + 3 * self.fc(step) + self.own(spikes) - spikes.detach()
            spikes = self.spike(potential - 1)
            out.append(self.read(spikes, potential))
        return torch.stack(out)


@pytest.mark.parametrize("what", ["spikes", "potential"])
def test_what_written_neurons_return_is_read_and_not_what_their_own_weights_read(what: str) -> None:
    """The spikes were read in place of the potential."""
    torch.manual_seed(0)
    module = Written(lambda spikes, potential: spikes if what == "spikes" else potential)
    check_steps(module, SPIKES)
    (cell,) = frameworks.from_torch(module, SPIKES).network.cells.values()
    assert (cell.recurrent_of == "output") == (what == "spikes")


def test_states_of_cells_that_are_returned_in_place_of_what_they_send_are_refused() -> None:
    class State(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.LSTMCell(INPUTS, CLASSES)

        def forward(self, x: Any) -> Any:
            sent = state = torch.zeros(x.shape[1], CLASSES)
            out = []
            for step in x:
                sent, state = self.cell(step, (sent, state))
                out.append(state)
            return torch.stack(out)

    with pytest.raises(MimdsimError, match="what is read of 'cell' is not what weights read of it"):
        frameworks.from_torch(State(), SPIKES)


HIDDEN_READ: dict[str, tuple[Any, str]] = {
    "potentials of a hidden layer": (
        lambda _, potential: potential,
        "'last' reads a state of 'first'; layers read spikes",
    ),
    "half of the spikes, less half of the potential": (lambda z, v: z / 2 - v / 2, "'fc2.weight' is multiplied by"),
    "spikes times potentials": (lambda spikes, potential: spikes * potential, "'fc2.weight' is multiplied by what"),
    "squares": (lambda _, potential: potential * potential, "'fc2.weight' is multiplied by what"),
}


@pytest.mark.parametrize("name", HIDDEN_READ)
def test_what_hidden_neurons_send_besides_spikes_is_read_by_their_operations(name: str) -> None:
    torch.manual_seed(0)
    hidden, said = HIDDEN_READ[name]
    module = Two(snn.Leaky(beta=0.9), hidden=hidden, read=lambda sent, _: sent, scale=2.0)
    check_by_operations(said, module, SPIKES)


def test_constants_of_each_neuron_beside_learned_ones_are_frozen() -> None:
    """As in snnTorch's regression tutorials: beta is learned, the thresholds are drawn once."""
    torch.manual_seed(0)
    first = snn.Leaky(beta=torch.rand(HIDDEN), threshold=0.5 + torch.rand(HIDDEN), learn_beta=True)
    last = snn.Leaky(beta=torch.rand(1), learn_beta=True, reset_mechanism="none")
    module = Two(last, first)
    made = frameworks.from_torch(module, SPIKES)
    assert made.network.learned == {"hidden0": ("beta", "threshold"), "output": ("beta",)}
    assert made.training.frozen == ("hidden0.threshold",)
    check_steps(module, SPIKES)


def test_hooks_on_neurons_are_refused_in_either_way() -> None:
    module = Two(snn.Leaky(beta=0.9), hidden=lambda _, potential: potential)
    module.first.register_forward_hook(lambda *_: None)
    with pytest.raises(MimdsimError, match=r"'first' \(Leaky\) has hooks"):
        frameworks.from_torch(module, SPIKES)


def test_warnings_are_those_of_the_way_that_was_taken_and_point_to_the_caller() -> None:
    module = Two(snn.Leaky(beta=0.9), hidden=lambda _, potential: potential, scale=0.0)
    with pytest.warns(UserWarning, match="sends no spikes|by their own operations") as told:
        frameworks.from_torch(module, SPIKES)
    assert {each.filename for each in told} == {__file__}
    assert len({str(each.message) for each in told}) == len(told)


class Reader(nn.Module):  # type: ignore[misc, name-defined]
    """Spikes of one layer, and a linear layer that reads them at its end, in the order of `read`."""

    def __init__(self, read: Callable[[Any, list[Any]], Any], inputs: int = HIDDEN, axis: int = 0):
        super().__init__()
        self.fc, self.cells, self.drop = nn.Linear(INPUTS, HIDDEN), snn.Leaky(beta=0.9), nn.Dropout(0.5)
        self.out, self.read, self.axis = nn.Linear(inputs, CLASSES), read, axis
        with torch.no_grad():
            self.fc.weight.mul_(4)

    def forward(self, x: Any) -> Any:
        state, sent = self.cells.reset_mem(), []
        for step in x.unbind(self.axis):
            spikes, state = self.cells(self.fc(step), state)
            sent.append(spikes)
        return self.read(self, sent)


SLICES: dict[str, Callable[[Any, list[Any]], Any]] = {
    "in every timestep": lambda own, sent: torch.stack([own.out(each[:, 2:8]) for each in sent]),
    "averaged": lambda own, sent: torch.stack([own.out(each[:, 2:8]) for each in sent]).mean(0),
    "of the mean": lambda own, sent: own.out(torch.stack(sent)[:, :, 2:8].mean(0)),
}


@pytest.mark.parametrize("name", SLICES)
def test_a_linear_layer_reads_some_neurons(name: str) -> None:
    torch.manual_seed(0)
    made = frameworks.from_torch(Reader(SLICES[name], 6), SPIKES)
    assert (made.network.neuron, made.training.pruned) == (("leaky", "li"), {"output": 0.0})
    check_steps(Reader(SLICES[name], 6), SPIKES)


DROPPED: dict[str, tuple[Callable[[Any, list[Any]], Any], str]] = {
    "in every timestep, then averaged": (
        lambda own, sent: own.out(torch.stack([own.drop(each) for each in sent]).mean(0)),
        "timestep",
    ),
    "of all timesteps, then averaged": (lambda own, sent: own.out(own.drop(torch.stack(sent)).mean(0)), "timestep"),
    "of the mean": (lambda own, sent: own.out(own.drop(torch.stack(sent).mean(0))), "sequence"),
}


@pytest.mark.parametrize("name", DROPPED)
def test_dropout_before_a_linear_layer_is_drawn_as_often_as_the_module_does(name: str) -> None:
    read, per = DROPPED[name]
    network = frameworks.from_torch(Reader(read), SPIKES).network
    assert (network.dropout, network.dropout_per) == ((0.0, 0.5), per)


def test_dropout_twice_before_a_linear_layer_is_refused() -> None:
    twice = Reader(lambda own, sent: own.out(own.drop(own.drop(torch.stack(sent)).mean(0))))
    with pytest.raises(MimdsimError):
        frameworks.from_torch(twice, SPIKES)


def test_time_may_be_the_last_axis() -> None:
    torch.manual_seed(0)
    module = Reader(lambda own, sent: own.out(sum(sent)), axis=-1)
    program = frameworks.torch_function(frameworks.from_torch(module, SPIKES.permute(1, 2, 0)), "tiny")
    torch.testing.assert_close(program(SPIKES), module(SPIKES.permute(1, 2, 0)), rtol=1e-5, atol=1e-5)


def test_a_list_of_later_timesteps_of_neurons_that_are_written_out_has_a_burn_in() -> None:
    class Late(Written):
        def forward(self, x: Any) -> Any:
            potential, out = torch.zeros(x.shape[1], CLASSES), []
            for t, step in enumerate(x):
                potential = 0.8 * potential + self.fc(step)
                if t >= 4:
                    out.append(potential)
            return torch.stack(out)

    torch.manual_seed(0)
    module = Late(lambda *_: None)
    module.own = None
    assert frameworks.from_torch(module, SPIKES).training.burn_in == 4
    check_steps(module, SPIKES)


def test_few_timesteps_are_said_to_be_few() -> None:
    module = Written(lambda spikes, _: spikes)
    with pytest.raises(MimdsimError, match="nearest: an example of 4 timesteps or more"):
        frameworks.from_torch(module, SPIKES[:2])


def test_copies_of_a_parameter_without_axes_are_no_views_of_some_of_it() -> None:
    class Gated(Written):
        def __init__(self) -> None:
            super().__init__(lambda spikes, _: spikes)
            self.gate = nn.Parameter(torch.tensor(0.3))

        def forward(self, x: Any) -> Any:
            return super().forward(x) * self.gate.clone().detach().gt(0.0).float()

    with pytest.raises(MimdsimError):
        frameworks.from_torch(Gated(), SPIKES)


def test_filters_between_layers_are_neurons_by_their_operations() -> None:
    torch.manual_seed(0)
    layers = pytest.importorskip("spikingjelly.activation_based.layer")

    class Filtered(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.cells = nn.Linear(INPUTS, HIDDEN), jelly.LIFNode()
            self.filter, self.out = layers.SynapseFilter(tau=5.0, learnable=True), nn.Linear(HIDDEN, CLASSES)
            with torch.no_grad():
                self.fc.weight.mul_(8)

        def forward(self, x: Any) -> Any:
            zoo.functional.reset_net(self)
            return torch.stack([self.out(self.filter(self.cells(self.fc(step)))) for step in x])

    check_steps(Filtered(), SPIKES)


class Feedback(nn.Module):  # type: ignore[misc, name-defined]
    """Two written layers, of which the first reads the second's spikes of before, added one current after another."""

    def __init__(self, last: bool):
        super().__init__()
        self.last, self.spike = last, snn.surrogate.fast_sigmoid()
        self.fc, self.back = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.out = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        with torch.no_grad():
            for each in (self.fc, self.up):
                each.weight.mul_(5)

    def forward(self, x: Any) -> Any:
        low, high, spikes, sent, out = *torch.zeros(4, x.shape[1], HIDDEN), []
        for step in x:
            low = 0.9 * low + self.fc(step) - spikes + self.back(sent) if self.last else (
                0.9 * low + self.fc(step) + self.back(sent) - spikes
            )  # fmt: skip
            spikes = self.spike(low - 1)
            high = 0.8 * high + self.up(spikes) - sent
            sent = self.spike(high - 1)
            out.append(self.out(sent))
        return torch.stack(out)


@pytest.mark.parametrize("last", [False, True])
def test_currents_of_later_layers_are_added_one_after_another(last: bool) -> None:
    torch.manual_seed(0)
    check_steps(Feedback(last), SPIKES)


class Reservoir(nn.Module):  # type: ignore[misc, name-defined]
    """Weights that are not trained, kept as buffers; a mask beside them stays one."""

    def __init__(self, spiking: bool):
        super().__init__()
        self.out, self.spike = nn.Linear(HIDDEN, CLASSES, bias=False), snn.surrogate.atan() if spiking else torch.tanh
        self.register_buffer("given", 3 * torch.rand(HIDDEN, INPUTS) - 1)
        self.register_buffer("own", torch.rand(HIDDEN, HIDDEN) - 0.5)
        self.register_buffer("mask", (torch.rand(CLASSES, HIDDEN) < 0.7).float())

    def forward(self, x: Any) -> Any:
        state = sent = torch.zeros(x.shape[1], HIDDEN)
        every = []
        for step in x:
            state = 0.7 * state + step @ self.given.T + sent @ self.own.T
            sent = self.spike(state - 1.0)
            every.append(nn.functional.linear(sent, self.out.weight * self.mask))
        return torch.stack(every)


@pytest.mark.parametrize("spiking", [False, True])
def test_buffers_are_weights_that_are_not_trained(spiking: bool) -> None:
    torch.manual_seed(0)
    module = Reservoir(spiking)
    held = {name: values.clone() for name, values in module.state_dict().items()}
    workload = mimdsim.from_torch(module, SPIKES)
    assert workload.training.frozen[:2] == ("hidden0", "hidden0.recurrent")
    assert {name: values.tolist() for name, values in module.state_dict().items()} == {
        name: values.tolist() for name, values in held.items()
    }
    assert not dict(module.named_parameters()).keys() & {"given", "own"}
    check_steps(module, SPIKES)


class Otherwise(nn.Module):  # type: ignore[misc, name-defined]
    """Recurrent rates, one function of which is written where it is read, products with a bias by `addmm`."""

    def __init__(self, size: Any = lambda _: 1.0):
        super().__init__()
        self.fc, self.rec = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.out, self.size = nn.Linear(HIDDEN, CLASSES), size
        self.decay = nn.Parameter(torch.linspace(2.0, 4.0, HIDDEN))

    def forward(self, x: Any) -> Any:
        state, out, size = torch.zeros(x.shape[1], HIDDEN), [], self.size(x)
        for step in x:
            current = torch.addmm(self.fc.bias, step, self.fc.weight.T) + self.rec(torch.tanh(state))
            state = state + (current / size - state) / self.decay
            out.append(self.out(torch.tanh(state)))
        return torch.stack(out)


class Braked(Otherwise):
    """One function with a gradient, and without."""

    def forward(self, x: Any) -> Any:
        state, rates, out = *torch.zeros(2, x.shape[1], HIDDEN), []
        for step in x:
            state = 0.8 * state + self.fc(step) + self.rec(rates)
            rates = torch.tanh(state)
            with torch.no_grad():
                brake = torch.tanh(state)
            state = state - 0.5 * brake / self.decay
            out.append(self.out(rates))
        return torch.stack(out)


def test_a_function_without_gradients_is_another() -> None:
    torch.manual_seed(0)
    check_steps(Braked(), SPIKES)


def test_a_function_that_is_written_twice_is_one() -> None:
    torch.manual_seed(0)
    module = Otherwise()
    check_steps(module, SPIKES)
    found = mimdsim.check(mimdsim.from_torch(module, SPIKES), "tiny", timesteps=3, batch=2)
    assert found.passed, found  # its constants begin where they are in the module, not at 0


def test_numbers_of_the_input_are_not_taken_as_they_are() -> None:
    with pytest.raises(
        MimdsimError, match=r"called again, with other weights and input, the module is another network \(cells"
    ):
        mimdsim.from_torch(Otherwise(lambda x: float(x.sum())), SPIKES)


class Counting(nn.Module):  # type: ignore[misc, name-defined]
    """Weights over a number that calls move: a count of calls, an average, what the first call found."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.fc, self.out, self.kind = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES), kind
        self.calls, self.scale = 0, None
        self.register_buffer("moved", torch.ones(()))

    def forward(self, x: Any) -> Any:
        largest = float(self.fc.weight.abs().max())
        if self.kind == "count":
            self.calls += 1
            by = 1.0 + self.calls
        elif self.kind == "average":
            self.moved.mul_(0.9).add_(0.1 * largest)
            by = float(self.moved)
        else:
            self.scale = by = self.scale or largest
        state, out = torch.zeros(x.shape[1], HIDDEN), []
        for step in x:
            state = torch.tanh(0.5 * state + nn.functional.linear(step, self.fc.weight / by, self.fc.bias))
            out.append(self.out(state))
        return torch.stack(out)


@pytest.mark.parametrize("kind", ["count", "average"])
def test_numbers_that_calls_move_are_not_taken_as_they_are(kind: str) -> None:
    torch.manual_seed(0)
    with pytest.raises(MimdsimError, match=r"called again, with other weights and input, the module is another"):
        mimdsim.from_torch(Counting(kind), SPIKES)


def test_a_number_that_the_first_call_leaves_stays() -> None:
    torch.manual_seed(0)
    check_steps(Counting("first"), SPIKES)


class Compared(nn.Module):  # type: ignore[misc, name-defined]
    """Constants of neurons through which no gradient goes."""

    def __init__(self, of: Callable[[Any], Any]) -> None:
        super().__init__()
        self.fc, self.out, self.of = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES), of
        self.decay = nn.Parameter(torch.linspace(-0.5, 0.9, HIDDEN))

    def forward(self, x: Any) -> Any:
        state, out = torch.zeros(x.shape[1], HIDDEN), []
        for step in x:
            state = self.of(self.decay) * state + torch.tanh(self.fc(step))
            out.append(self.out(state))
        return torch.stack(out)


@pytest.mark.parametrize("of", [lambda decay: decay.detach(), lambda decay: (decay > 0.0).float()])
def test_constants_without_a_gradient_stay_as_they_are(of: Callable[[Any], Any]) -> None:
    torch.manual_seed(0)
    told = check_steps(Compared(of), SPIKES)
    assert "'decay' gets no gradient, and stays as it is" in told


class Rounded(torch.autograd.Function):  # type: ignore[misc, name-defined]
    @staticmethod
    def forward(_: Any, weights: Any, unit: float) -> Any:
        return torch.round(weights / unit) * unit

    @staticmethod
    def backward(_: Any, gradient: Any) -> Any:
        return gradient, None


class Quantised(nn.Module):  # type: ignore[misc, name-defined]
    """Weights of int8, with the unit of the largest weight in the first call, or now."""

    def __init__(self, first: bool) -> None:
        super().__init__()
        self.fc, self.out, self.unit, self.first = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES), 0.0, first

    def forward(self, x: Any) -> Any:
        largest = float(self.fc.weight.abs().max())
        self.unit = self.unit if self.first and self.unit else largest / 127
        weights, state, out = Rounded.apply(self.fc.weight, self.unit), torch.zeros(x.shape[1], HIDDEN), []
        for step in x:
            state = torch.tanh(0.5 * state + nn.functional.linear(step, weights, self.fc.bias))
            out.append(self.out(state))
        return torch.stack(out)


def test_a_unit_that_is_kept_from_the_first_call_is_not_that_of_every_step() -> None:
    torch.manual_seed(0)
    check_steps(Quantised(first=False), SPIKES)
    with pytest.raises(MimdsimError, match="the module is read no more"):
        mimdsim.from_torch(Quantised(first=True), SPIKES)


class Bare(nn.Module):  # type: ignore[misc, name-defined]
    """A bias behind several products."""

    def __init__(self) -> None:
        super().__init__()
        self.given, self.own = nn.Parameter(torch.randn(HIDDEN, INPUTS)), nn.Parameter(torch.randn(HIDDEN, HIDDEN) / 4)
        self.bias, self.out = nn.Parameter(torch.randn(HIDDEN)), nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Any) -> Any:
        state, out = torch.zeros(x.shape[1], HIDDEN), []
        for step in x:
            state = 0.5 * state + 0.5 * torch.tanh(state @ self.own.T + step @ self.given.T + self.bias)
            out.append(self.out(state))
        return torch.stack(out)


def test_a_bias_is_added_to_several_products() -> None:
    torch.manual_seed(0)
    check_steps(Bare(), SPIKES)


BIASED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "beside that of a layer": lambda net, x, _: net.fc(x) + net.more,
    "two of them": lambda net, x, _: net.fc(x) + net.more + net.other,
    "with a recurrence": lambda net, x, sent: net.fc(x) + net.rec(sent) + net.more,
    "of some neurons": lambda net, x, _: torch.cat([net.left(x) + net.few, net.right(x)], 1),
}


@pytest.mark.first(2)
@pytest.mark.parametrize("what", BIASED)
@pytest.mark.parametrize("written", [False, True])
def test_parameters_that_are_added_to_a_product_with_a_bias_are_biases(what: str, written: bool) -> None:
    """Also to the read-out; that gradients are PyTorch's is checked as they are read."""
    used = {name for const in (BIASED[what].__code__,) for name in const.co_names}

    class Biased(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            held = {"fc": nn.Linear(INPUTS, 6), "rec": nn.Linear(6, 6, bias=False)}
            held |= {"left": nn.Linear(INPUTS, 3), "right": nn.Linear(INPUTS, 3)}
            held |= {name: nn.Parameter(torch.rand(6) / 2) for name in ("more", "other")}
            held |= {"few": nn.Parameter(torch.rand(3) / 2)}
            for name in used & held.keys():
                setattr(self, name, held[name])
            self.out, self.shift, self.lif = (
                nn.Linear(6, CLASSES),
                nn.Parameter(torch.rand(CLASSES)),
                snn.Leaky(beta=0.9),
            )
            self.spike = snn.surrogate.atan()

        def forward(self, x: Any) -> Any:
            potential, sent, out = self.lif.init_leaky(), torch.zeros(x.shape[1], 6), []
            own = torch.zeros(x.shape[1], 6)
            for step in x:
                current = BIASED[what](self, 4 * step, sent)
                if written:
                    own = 0.9 * own * (1 - sent.detach()) + current
                    sent = self.spike(own - 1.0)
                else:
                    sent, potential = self.lif(current, potential)
                out.append(self.out(sent) + self.shift)
            return torch.stack(out)

    made = mimdsim.from_torch(Biased(), SPIKES)
    assert [int(layer.bias) for layer in network_of(made).layers] == [3 if what == "two of them" else 2, 2]


class Convolved(nn.Module):  # type: ignore[misc, name-defined]
    """Planes that read themselves, by currents that are added one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.rec = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1, bias=False)
        self.out, self.spike = nn.Linear(48, CLASSES), snn.surrogate.atan()
        with torch.no_grad():
            self.conv.weight.mul_(3)

    def forward(self, x: Any) -> Any:
        potential, spikes, out = *torch.zeros(2, x.shape[1], 3, 4, 4), []
        for step in x:
            potential = 0.7 * potential * (1 - spikes) + self.conv(step) + self.rec(spikes)
            spikes = self.spike(potential - 0.5)
            out.append(self.out(spikes.flatten(1)))
        return torch.stack(out)


def test_convolutions_of_own_spikes_are_added_one_after_another() -> None:
    torch.manual_seed(0)
    check_steps(Convolved(), (torch.rand(6, 3, 2, 4, 4) < 0.4).float())


class Shares(nn.Module):  # type: ignore[misc, name-defined]
    """A gated cell whose currents are made of the whole sequence, and of which some are read out."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.out = nn.Linear(INPUTS, 2 * HIDDEN), nn.Linear(HIDDEN - 3, CLASSES)

    def forward(self, x: Any) -> Any:
        wanted, gate = self.fc(x).chunk(2, -1)
        state, every = torch.zeros(x.shape[1], HIDDEN), []
        for t in range(len(x)):
            state = state + torch.sigmoid(gate[t]) * (wanted[t] - state)
            every.append(state)
        return self.out(torch.stack(every)[:, :, 3:])


def test_shares_of_whole_sequences_are_read() -> None:
    torch.manual_seed(0)
    check_steps(Shares(), SPIKES)


class Rates(nn.Module):  # type: ignore[misc, name-defined]
    """Recurrent rates through an activation, which is a module."""

    def __init__(self, activation: Any):
        super().__init__()
        self.fc, self.rec = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.activation, self.out = activation, nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Any) -> Any:
        rates, out = torch.zeros(x.shape[1], HIDDEN), []
        for step in x:
            rates = 0.8 * rates + 0.2 * self.activation(self.fc(step) + self.rec(rates))
            out.append(self.out(rates))
        return torch.stack(out)


ACTIVATIONS = (
    nn.ReLU(),
    nn.LeakyReLU(0.1),
    nn.LeakyReLU(),
    nn.SiLU(),
    nn.Softsign(),
    nn.Hardsigmoid(),
    nn.ELU(),
    nn.PReLU(),
    nn.Softplus(),
    nn.Tanh(),
    nn.Softplus(),
)


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
def test_activations_are_modules(activation: Any) -> None:
    torch.manual_seed(0)
    check_steps(Rates(activation), SPIKES)


@pytest.mark.parametrize("place", ["before weights", "before neurons", "behind neurons"])
def test_activations_lie_between_layers(place: str) -> None:
    torch.manual_seed(0)
    neurons = [snn.Leaky(beta=0.9, init_hidden=True) for _ in range(2)]
    layers = {
        "before weights": [nn.Linear(INPUTS, 7), nn.ReLU(), nn.Linear(7, HIDDEN), neurons[0]],
        "before neurons": [nn.Linear(INPUTS, HIDDEN), nn.LeakyReLU(0.2), neurons[0]],
        "behind neurons": [nn.Linear(INPUTS, HIDDEN), neurons[0], nn.ReLU()],
    }
    module = nn.Sequential(*layers[place], nn.Linear(HIDDEN, CLASSES), neurons[1])
    with torch.no_grad():
        for each in module.parameters():
            each.mul_(4)
    check_steps(module, SPIKES, timesteps=len(SPIKES))


class First(nn.Module):  # type: ignore[misc, name-defined]
    """Neurons that are written out and spike by their potential of the timestep before, at a threshold that may be a
    parameter."""

    def __init__(self, threshold: Any):
        super().__init__()
        self.fc, self.out = nn.Linear(INPUTS, HIDDEN, bias=False), nn.Linear(HIDDEN, CLASSES)
        self.threshold, self.spike = threshold, snn.surrogate.atan()
        with torch.no_grad():
            self.fc.weight.mul_(6)

    def forward(self, x: Any) -> Any:
        potential, out = torch.zeros(x.shape[1], HIDDEN), []
        for step in x:
            spikes = self.spike(potential - self.threshold)
            potential = 0.9 * potential + self.fc(step) - spikes.detach()
            out.append(self.out(spikes))
        return torch.stack(out)


THRESHOLDS: dict[str, Callable[[], Any]] = {
    "a number": lambda: 1.0,
    "learned": lambda: nn.Parameter(torch.linspace(0.5, 1.5, HIDDEN)),
    "fixed": lambda: nn.Parameter(torch.linspace(0.5, 1.5, HIDDEN), requires_grad=False),
    "learned, of which some are below rest": lambda: nn.Parameter(torch.linspace(-0.3, 1.0, HIDDEN)),
}


@pytest.mark.parametrize("name", THRESHOLDS)
def test_spikes_before_anything_was_read_are_those_of_thresholds_alone(name: str) -> None:
    torch.manual_seed(0)
    check_steps(First(THRESHOLDS[name]()), SPIKES)


class Told(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any, height: Any) -> Any:
        ctx.save_for_backward(x, height)
        return (x > 0).to(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, height = ctx.saved_tensors
        return gradient * height * torch.relu(1 - x.abs()), None


@pytest.mark.parametrize("learned", [False, True])
def test_constants_of_a_surrogate_may_be_parameters_that_get_no_gradient(learned: bool) -> None:
    torch.manual_seed(0)
    height = nn.Parameter(torch.tensor([0.7]), requires_grad=learned)
    module = Written(lambda spikes, _: spikes)
    module.height, module.spike = height, lambda x: Told.apply(x, height)
    told = check_steps(module, SPIKES)
    assert ("'height' gets no gradient, and stays as it is" in told) is learned


class Returns(Two):
    """What is made of the spikes and of the potentials of all timesteps."""

    def __init__(self, ends: Callable[[Any, Any], Any], **of_last: Any):
        super().__init__(snn.Leaky(beta=0.8, **of_last), read=lambda *both: both)
        self.ends = ends

    def gathered(self, out: list[Any]) -> Any:
        return self.ends(torch.stack([sent for sent, _ in out]), torch.stack([potential for _, potential in out]))


SCALES: dict[str, tuple[Callable[[Any, Any], Any], dict[str, str], float, float]] = {
    "rates and potentials": (lambda z, v: (z.sum(0) / 9, v), {"output": "membrane"}, 1.0, 1.0),
    "rates of both": (lambda z, v: (z.sum(0) / 9, v), {}, 1.0, 1 / 9),
    "potentials and rates": (lambda z, v: (v, z.sum(0) / 9), {"output": "spikes"}, 1.0, 1 / 9),
    "tenths of spikes and potentials": (lambda z, v: (z / 10, v), {"loss": "ce_max_membrane_loss"}, 1.0, 1.0),
    "larger spikes and potentials": (lambda z, v: (z, v), {"output": "membrane"}, 1.5, 1.0),
    "potentials and larger spikes": (lambda z, v: (v, z), {"output": "spikes"}, 1.5, 1.5),
}


@pytest.mark.parametrize("name", SCALES)
def test_the_scale_is_that_of_the_output_which_is_read(name: str) -> None:
    ends, asked, size, scale = SCALES[name]
    torch.manual_seed(0)
    made = frameworks.from_torch(Returns(ends, graded_spikes_factor=size), SPIKES, **asked)
    assert made.training.logit_scale == pytest.approx(scale)


def test_the_reading_is_that_of_the_output_which_is_read() -> None:
    """Of neurons that are read by their operations, the first of two outputs is of another kind."""
    torch.manual_seed(0)
    module = Returns(lambda z, v: (z.sum(0) / 9, v), reset_delay=False)
    training = frameworks.from_torch(module, SPIKES, output="membrane").training
    assert (training.reading, training.logit_scale) == ("sum", 1.0)


class Clamped(nn.Module):  # type: ignore[misc, name-defined]
    """Clamped in some timesteps, with a bound that the example does not reach."""

    def __init__(self, when: Callable[[int], float]):
        super().__init__()
        self.fc, self.when = nn.Linear(INPUTS, CLASSES), when

    def forward(self, x: Any) -> Any:
        potential, out = torch.zeros(x.shape[1], CLASSES), []
        for t, step in enumerate(x):
            potential = 0.8 * potential + self.fc(step)
            if bound := self.when(t):
                potential = potential.clamp(max=bound)
            out.append(potential)
        return torch.stack(out)


@pytest.mark.parametrize(
    ("when", "said"),
    [
        (lambda t: 99.0 * (t < 3), "'clamp' acts in some timesteps and not in the last"),
        (lambda t: 99.0 * (t == 3), "acts in some timesteps|of other things than"),
        (lambda t: 98.0 if t in (1, 3) else 99.0, "of other things than"),
        (lambda t: 99.0 * (t != 7), "of other things than"),
    ],
)
def test_what_acts_in_some_timesteps_is_refused_where_the_example_does_not_show_it(
    when: Callable[[int], float], said: str
) -> None:
    with pytest.raises(MimdsimError, match=said):
        frameworks.from_torch(Clamped(when), SPIKES)


def test_a_network_in_which_nothing_spikes_is_checked() -> None:
    workload = frameworks.from_torch(Clamped(lambda _: 0.0), SPIKES)
    assert all(each.passed for each in mimdsim.check(workload, "tiny").findings)


@pytest.mark.parametrize("name", ["g", "dw", "random", "delay"])
def test_names_that_programs_have_are_given_to_no_parameter(name: str) -> None:
    class Named(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.spike = nn.Linear(INPUTS, CLASSES), snn.surrogate.atan()
            self.register_parameter(name, nn.Parameter(torch.linspace(0.3, 0.8, CLASSES)))

        def forward(self, x: Any) -> Any:
            dw, out = torch.zeros(x.shape[1], CLASSES), []
            for step in x:
                dw = getattr(self, name) * dw + 3 * self.fc(step)
                out.append(self.spike(dw - 1))
            return torch.stack(out)

    torch.manual_seed(0)
    check_steps(Named(), SPIKES)


def test_a_function_of_the_spikes_of_all_timesteps_is_read() -> None:
    class Behind(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.cells = nn.Linear(INPUTS, HIDDEN), jelly.QIFNode(step_mode="m")
            self.fc2 = nn.Linear(HIDDEN, CLASSES)

        def forward(self, x: Any) -> Any:
            zoo.functional.reset_net(self)
            return self.fc2(self.cells(self.fc1(x)).relu())

    torch.manual_seed(0)
    check_steps(Behind(), SPIKES)
