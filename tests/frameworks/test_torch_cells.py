"""GRU and LSTM of PyTorch and SLSTM of snnTorch as layers of cells: what is read, refused, and put back."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from torch_networks import (
    BATCH,
    CLASSES,
    HIDDEN,
    INPUTS,
    TIMESTEPS,
    ZOO,
    Gated,
    GatedLoop,
    example,
    nn,
    snn,
    surrogate,
    torch,
)

import mimdsim
from mimdsim.base.errors import DescriptionError
from mimdsim.frameworks.network_table import reading_of
from mimdsim.workload import network_of


def spikes() -> Any:
    torch.manual_seed(1)
    return (torch.rand(TIMESTEPS, BATCH, INPUTS) < 0.3).float()


def read(module: Any, **options: Any) -> Any:
    return network_of(mimdsim.from_torch(module, spikes(), **options))


def test_layers_are_cells_and_a_linear_layer_reads_them() -> None:
    workload = mimdsim.from_torch(GatedLoop(), spikes())
    network = network_of(workload)
    assert [layer.neuron.model for layer in network.layers] == ["gru", "lstm", "li"]
    assert [layer.gates for layer in network.layers] == [3, 4, 1]
    assert workload.training.reading == "mean"
    assert network.spikes == "dense"


@pytest.mark.parametrize("name", ["GRU", "GRU without biases, samples first", "GRU, its last state", "LSTM"])
def test_the_last_timestep_is_what_is_read(name: str) -> None:
    made = ZOO[name]
    module, given, _ = example(made)
    workload = mimdsim.from_torch(module, given)
    assert workload.training.reading == "last"
    assert workload.data.timesteps == TIMESTEPS
    assert network_of(workload).layers[0].bias == ("without" not in name)


@pytest.mark.parametrize(
    ("returned", "reading"),
    [(lambda y: y, "sum"), (lambda y: y[-1], "last"), (lambda y: y.mean(0), "mean"), (lambda y: y.amax(0), "max")],
)
def test_cells_at_the_end_are_read_themselves(returned: Any, reading: str) -> None:
    class Alone(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.GRU(INPUTS, CLASSES)

        def forward(self, x: Any) -> Any:
            return returned(self.cells(input=x)[0])

    workload = mimdsim.from_torch(Alone(), spikes())
    network = network_of(workload)
    assert [layer.neuron.model for layer in network.layers] == ["gru"]
    assert not network.layers[0].spiking
    assert workload.training.reading == reading


def test_the_highest_is_told_from_the_last_where_outputs_only_rise() -> None:
    rising = np.arange(12.0).reshape(4, 1, 3)
    assert [reading_of(rising[-1], rising, given) for given in ({"max"}, {"amax"}, ())] == ["max", "max", "last"]


def test_dropout_of_a_mean_over_time_is_drawn_once() -> None:
    for before, after, per in ((True, False, "sequence"), (False, True, "timestep")):
        drop = nn.Dropout(0.3)

        def change(net: Any, x: Any, before: bool = before, after: bool = after, drop: Any = drop) -> Any:
            sent = net.cells(x)[0]
            made = net.out(drop(sent.mean(0) if before else sent))
            return made.mean(0) if after else made

        network = mimdsim.from_torch(Changed(change), spikes()).network
        assert (network.dropout, network.dropout_per) == ((0.0, 0.3), per)


def test_trained_weights_go_back_into_the_module() -> None:
    module = Gated(nn.GRU(INPUTS, HIDDEN))
    before = copy.deepcopy(module.state_dict())
    workload = mimdsim.from_torch(module, spikes(), changes={"training.max_training_steps": 2})
    result = mimdsim.run(workload, "tiny")
    mimdsim.to_torch(module, result)
    held = {name: each.detach().numpy() for name, each in module.named_parameters()}
    assert all(not np.array_equal(held[name], before[name].numpy()) for name in held)
    np.testing.assert_array_equal(held["cells.weight_hh_l0"], result.weights["hidden0.recurrent"].T)
    np.testing.assert_array_equal(held["cells.bias_hh_l0"], result.weights["hidden0.recurrent_bias"].reshape(-1))
    np.testing.assert_array_equal(held["cells.bias_ih_l0"], result.weights["hidden0.bias"].reshape(-1))


def test_a_spiking_lstm_of_another_width_than_its_input_keeps_nothing() -> None:
    torch.manual_seed(0)
    grad = surrogate.fast_sigmoid(slope=10)
    cells = snn.SLSTM(INPUTS, HIDDEN, threshold=0.05, reset_mechanism="zero", spike_grad=grad, init_hidden=True)
    module = nn.Sequential(cells, nn.Linear(HIDDEN, CLASSES), snn.Leaky(beta=0.9, init_hidden=True))
    with pytest.warns(UserWarning, match=f"{INPUTS} inputs and {HIDDEN} neurons keeps nothing"):
        workload = mimdsim.from_torch(module, spikes(), timesteps=TIMESTEPS, changes={"training.max_training_steps": 2})
    layer = network_of(workload).layers[0]
    assert (layer.neuron.model, layer.neuron.values["memory"]) == ("slstm_zero", 0.0)
    assert (layer.selection.surrogate, layer.selection.slope) == ("superspike", pytest.approx(10.0))
    result = mimdsim.run(workload, "tiny")
    assert not result.gradients["hidden0.recurrent"].any()
    assert result.gradients["hidden0"].any()


class Changed(nn.Module):  # type: ignore[misc]
    def __init__(self, change: Any):
        super().__init__()
        self.cells, self.out, self.change = nn.GRU(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES), change

    def forward(self, x: Any) -> Any:
        return self.change(self, x)


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (Gated(nn.GRU(INPUTS, HIDDEN // 2, bidirectional=True)), "nearest: one direction"),
        (Gated(nn.LSTM(INPUTS, HIDDEN + 1, proj_size=HIDDEN)), "nearest: torch.nn.Linear after it"),
        (
            Gated(nn.RNN(INPUTS, HIDDEN, num_layers=2, dropout=0.1)),
            "has dropout between its layers; nearest: torch.nn.Dropout",
        ),
        (Changed(lambda net, x: net.out(net.cells(x)[0][3])), "nor its last, mean, highest or summed value"),
        (
            Changed(lambda net, x: net.out(net.cells(x, torch.ones(1, BATCH, HIDDEN))[0][-1])),
            "sends what differs by up to .* from what a 'gru' sends",
        ),
        (Changed(lambda net, x: net.out(torch.erf(net.cells(x)[0])[-1])), "sent, but what 'erf' made of it"),
    ],
)
def test_what_is_not_known_is_refused(module: Any, text: str) -> None:
    with pytest.raises(DescriptionError, match=text):
        read(module)


def test_a_step_without_a_gradient_is_read_as_such() -> None:
    class Events(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weights, self.own = nn.Linear(INPUTS, 3 * HIDDEN), nn.Linear(HIDDEN, 3 * HIDDEN)

        def forward(self, x: Any) -> Any:
            y = c = torch.zeros(BATCH, HIDDEN)
            for step in x:
                z, r, g = torch.chunk(self.weights(step), 3, 1)
                z_own, r_own, g_own = torch.chunk(self.own(y), 3, 1)
                z = torch.sigmoid(z + z_own)
                c = z * c + (1 - z) * torch.tanh(g + torch.sigmoid(r + r_own) * g_own)
                event = (c > 0.1).float()
                y, c = event * c, c - 0.1 * event
            return y

    equations = mimdsim.from_torch(Events(), spikes()).network.cells["neuron_of_output"].equations
    assert {"a = spike(c - 0.1)", "output = detach(a) * c", "c_2 = c - 0.1 * detach(a)"} <= set(equations)
