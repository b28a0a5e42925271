"""Cells: on tiles and GPUs as the interpreter means them, in float64 as PyTorch, gradients those of finite
differences."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_execution import execute
from networks import SGD, Given, central_difference, compiled, executed, given_values, interpreted, relative_error
from test_convolutions import CHAINS, network_of_planes

from mimdsim import api
from mimdsim.base.errors import MappingError, MimdsimError
from mimdsim.execution import initial_weights
from mimdsim.execution.activity import constant_layers, run_recorded
from mimdsim.execution.execute import Executor
from mimdsim.execution.whole_tensors import refusals
from mimdsim.gpu.kernels import Recurrent
from mimdsim.gpu.lower import lower_to_kernels
from mimdsim.gpu.strategies import STRATEGIES
from mimdsim.graph import Layer, SpikingNetwork, cell_catalogue, interpret, training_graph
from mimdsim.graph.cell_catalogue import CELL_MODELS, cell_of
from mimdsim.graph.cells import OUTPUT, CellModel, Equations, Term, detached, exponential, relu, sigmoid, tanh
from mimdsim.graph.layer import Source
from mimdsim.graph.losses import Loss
from mimdsim.graph.neuron_models import neuron_of
from mimdsim.graph.neuron_parts import Parameter
from mimdsim.graph.norms import BatchNorm
from mimdsim.graph.spikes import Selection
from mimdsim.workload import MappingOptions, load_workload, network_of
from mimdsim.workload.interchange.layers import network_of_layers

TOLERANCE = 1e-5
PATH = Path(__file__).resolve().parents[2] / "docs" / "neurons.md"
PAGE = PATH.read_text(encoding="utf-8")
HEAD = "| cell | equations of a timestep | reproduces | parameters (default) |\n|---|---|---|---|\n"
ROWS = re.compile(f"(?<={re.escape(HEAD)})(\\|.*\\n)*")
PARAMETERS = {"exponential_lif": {"refractory": 2.0}}
GAINS = {"izhikevich": 100.0, "exponential_lif": 16.0}  # of drawn weights, so that neurons spike


def layer_of(name: str, kind: str | CellModel, inputs: int, neurons: int, **more: Any) -> Layer:
    surrogate = "superspike" if kind in GAINS else "triangular"
    selection = Selection(threshold=0.0, second_threshold=0.0, capacity=neurons, slope=1.0, surrogate=surrogate)
    parameters = PARAMETERS.get(kind, {}) if isinstance(kind, str) else {}
    fields = {"neuron": cell_of(kind, parameters), "selection": selection, "bias": True} | more
    return Layer(name=name, inputs=inputs, neurons=neurons, **fields)


def network(*kinds: str | CellModel, last: str = "", timesteps: int = 4, delay: int = 0, **more: Any) -> SpikingNetwork:
    """Layers of cells, and a layer whose potentials are read that has none, or of cells too."""
    widths = [6, *range(5, 5 + len(kinds))]
    layers = [layer_of(f"hidden{at}", kind, widths[at], widths[at + 1], **more) for at, kind in enumerate(kinds)]
    if last:
        layers.append(layer_of("output", last, widths[-1], 4, spiking=False, **more))
    else:
        reads = neuron_of("li", {"tau": 1.0, "dt": 1.0})
        layers.append(replace(layer_of("output", "gru", widths[-1], 4, spiking=False), neuron=reads))
    return SpikingNetwork(
        layers=tuple(layers), timesteps=timesteps, batch=3, input_capacity=6, spikes="dense", logit_scale=1.0,
        optimiser=SGD, delay=delay, loss=Loss(reading="last"),
    )  # fmt: skip


def drawn(of: SpikingNetwork, seed: int = 3, dtype: Any = np.float32) -> Given:
    values = given_values(of, seed, dtype=dtype)
    for layer in of.layers:
        values.arrays[f"w.{layer.name}"] *= GAINS.get(layer.neuron.model, 1.0)
    return values


def of_planes() -> SpikingNetwork:
    """A convolution into neurons that are not linear, whose planes are pooled, and a layer that reads them."""
    plain = network_of_planes(*CHAINS["two"], gain=1.0)
    cells = cell_of("exponential_lif", {"refractory": 1.0})
    layers = (*(replace(layer, neuron=cells, bias=True) for layer in plain.layers[:-1]), plain.layers[-1])
    return replace(plain, layers=layers)


def with_skip() -> SpikingNetwork:
    """A GRU that reads the input and a layer after it, and a layer that reads both."""
    plain = network("gru", "izhikevich", recurrence="none")
    first, second, last = plain.layers
    sources = (Source(name="input", neurons=6), Source(name="hidden1", neurons=6))
    ends = (Source(name="hidden1", neurons=6), Source(name="hidden0", neurons=5))
    layers = (replace(first, sources=sources), replace(second, recurrence="all_to_all"), replace(last, sources=ends))
    return replace(plain, layers=layers)


NETWORKS = {
    **{name: network(name) for name in CELL_MODELS},
    "two, a timestep apart": network("gru", "egru", delay=1),
    "without biases": network("gru", "lstm", bias=False),
    "read from its last layer": network("gru", last="lstm"),
    "one layer": network(last="gru"),
    "dropped": network("gru", dropout=0.5),
    "planes": of_planes(),
    "skips and feedback": with_skip(),
    "learned thresholds": network(CELL_MODELS["slstm_subtract"].learning(("threshold",))),
}


@pytest.mark.first(2)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("form", ["calls", "traced", "fused"])
def test_cells_run_on_tiles_as_they_are_meant(name: str, form: str) -> None:
    of = NETWORKS[name]
    values = drawn(of)
    if name == "dropped":
        values.arrays["random.hidden0"] = np.array([7, 70, 700])
    expected = interpreted(of, values)
    assert all(np.abs(gradient).max() > 0 for gradient in expected.gradients.values())
    made = compiled(of, options=MappingOptions(dense_neurons=form))
    for strict in (False, True) if form == "calls" else (False,):
        found = executed(made, values, strict=strict)
        assert found.loss == pytest.approx(expected.loss, rel=TOLERANCE)
        assert relative_error(found.counts, expected.counts) < TOLERANCE
        for key, gradient in expected.gradients.items():
            assert relative_error(found.gradients[key], gradient) < TOLERANCE, key
            assert relative_error(found.updated[key], expected.updated[key]) < TOLERANCE, key


@pytest.mark.first(2)
@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_gated_cells_are_those_of_pytorch(kind: str) -> None:
    """Weights and biases go in, and gradients come out, as torch.nn.GRU and LSTM have them."""
    torch = pytest.importorskip("torch")
    of = network(kind, timesteps=7)
    given = drawn(of, 5, np.float64).for_graph(of)
    found = interpret(training_graph(of), given)
    module = getattr(torch.nn, kind.upper())(6, 5).double()
    held = {"w": "weight_ih_l0", "r": "weight_hh_l0", "b": "bias_ih_l0", "rb": "bias_hh_l0"}
    module.load_state_dict(
        {torch_name: torch.tensor(given[f"{role}.hidden0"].T).squeeze() for role, torch_name in held.items()}
    )
    weights = {name: torch.tensor(given[name], requires_grad=True) for name in ("w.output", "b.output")}
    sent, _ = module(torch.tensor(given["input"]))
    logits = sent[-1] @ weights["w.output"] + weights["b.output"]
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(given["labels"]).long())
    loss.backward()
    assert float(found["loss"]) == pytest.approx(loss.item(), rel=1e-13)
    gradients = {name: each.grad.numpy() for name, each in weights.items()}
    gradients |= {f"{role}.hidden0": getattr(module, each).grad.numpy().T for role, each in held.items()}
    for name, gradient in gradients.items():
        assert relative_error(found[f"gradient.{name}"], gradient.reshape(given[name].shape)) < 1e-13, name


def test_event_based_cells_are_those_of_their_authors() -> None:
    """The equations as EvNN writes them in PyTorch, with its surrogate: a factor of 0.7, a support of 1."""
    torch = pytest.importorskip("torch")

    class Event(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(about: Any, x: Any) -> Any:
            about.save_for_backward(x)
            return torch.heaviside(x, torch.zeros_like(x))

        @staticmethod
        def backward(about: Any, gradient: Any) -> Any:
            (x,) = about.saved_tensors
            return gradient * 0.7 * torch.clamp(1 - torch.abs(x), min=0)

    of = network("egru", timesteps=9)
    given = drawn(of, 11, np.float64).for_graph(of)
    given["threshold.hidden0"] = np.random.default_rng(1).uniform(0.02, 0.3, (1, 5))
    found = interpret(training_graph(of), given)
    held = {name: torch.tensor(given[name], requires_grad=True) for name in of.parameters}
    y = c = torch.zeros(3, 5, dtype=torch.float64)
    events = []
    for now in torch.tensor(given["input"]):
        inputs = torch.chunk(now @ held["w.hidden0"] + held["b.hidden0"], 3, 1)
        own = torch.chunk(y @ held["r.hidden0"] + held["rb.hidden0"], 3, 1)
        z, r = torch.sigmoid(inputs[0] + own[0]), torch.sigmoid(inputs[1] + own[1])
        new = z * c + (1 - z) * torch.tanh(inputs[2] + r * own[2])
        event = Event.apply(new - held["threshold.hidden0"])
        events.append(event)
        y, c = event * new, new - event * held["threshold.hidden0"]
    assert 0.1 < torch.stack(events).mean() < 0.9
    logits = y @ held["w.output"] + held["b.output"]
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(given["labels"]).long())
    loss.backward()
    assert float(found["loss"]) == pytest.approx(loss.item(), rel=1e-13)
    for name, parameter in held.items():
        assert relative_error(found[f"gradient.{name}"], parameter.grad.numpy()) < 1e-12, name


@pytest.mark.first(2)
@pytest.mark.parametrize("name", ["egru", "izhikevich", "exponential_lif", "slstm"])
def test_gradients_of_smooth_spikes_are_those_of_finite_differences(name: str) -> None:
    of = NETWORKS[name]
    selection = replace(of.layers[0].selection, smooth=True, surrogate="sigmoid", slope=0.1)
    changed = {"dampening": 1.0} if name == "egru" else {"refractory": 0.0} if name == "exponential_lif" else {}
    first = replace(of.layers[0], selection=selection, neuron=cell_of(name, changed))
    of = replace(of, layers=(first, of.layers[1]))
    given, graph = drawn(of, 5, np.float64).for_graph(of), training_graph(of)
    found = interpret(graph, given)
    places = {"w.hidden0": (2, 1), "b.hidden0": (0, 3)} | ({"threshold.hidden0": (0, 2)} if name == "egru" else {})
    size = 1e-4 if name == "izhikevich" else 1e-6  # of potentials of about 100
    for parameter, place in places.items():
        wanted = central_difference(graph, given, parameter, place, size)
        assert found[f"gradient.{parameter}"][place] == pytest.approx(wanted, rel=2e-5, abs=1e-10), parameter


def izhikevich(currents: np.ndarray) -> np.ndarray:
    """Spikes [timesteps, ...] of the equations as published, one Euler step of 1 ms at a time."""
    v, spikes = np.full(currents.shape[1:], -65.0), []
    u = 0.2 * v
    for current in currents:
        v, u = v + 0.04 * v**2 + 5 * v + 140 - u + current, u + 0.02 * (0.2 * v - u)
        fired = v > 30
        v, u = np.where(fired, -65.0, v), np.where(fired, u + 8, u)
        spikes.append(fired)
    return np.stack(spikes)


def exponential_lif(currents: np.ndarray, rest: int) -> np.ndarray:
    """Spikes [timesteps, ...]; a neuron that has fired keeps its potential for `rest` timesteps."""
    v, held, spikes = np.zeros(currents.shape[1:]), np.zeros(currents.shape[1:]), []
    for current in currents:
        moved = v + 0.1 * (0.2 * np.exp((v - 0.8) / 0.2) - v + current)
        v = np.where(held > 0, v, moved)
        fired = v > 1.0
        held = np.where(fired, rest, np.maximum(held - 1, 0))
        v = np.where(fired, 0.0, v)
        spikes.append(fired)
    return np.stack(spikes)


@pytest.mark.first(2)
@pytest.mark.parametrize(("name", "gain"), [("izhikevich", 12.0), ("exponential_lif", 2.5)])
def test_neurons_spike_as_published(name: str, gain: float) -> None:
    of = network(name, timesteps=120)
    values = drawn(of, 2, np.float64)
    values.arrays["w.hidden0"] = np.random.default_rng(4).uniform(0, gain, (6, 5))
    seen: list[np.ndarray] = []
    given = values.for_graph(of)
    interpret(
        training_graph(of), given, lambda value, _t, array: seen.append(array) if value == "spikes.hidden0" else None
    )
    currents = given["input"] @ given["w.hidden0"] + given["b.hidden0"]
    wanted = izhikevich(currents) if name == "izhikevich" else exponential_lif(currents, 2)
    assert wanted.any(axis=0).all()
    np.testing.assert_array_equal(np.stack(seen), wanted)


@pytest.mark.first(2)
@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("reset", ["none", "subtract", "zero"])
@pytest.mark.parametrize("inputs", [5, 6])
def test_spiking_lstms_are_those_of_snntorch(reset: str, learns: bool, inputs: int) -> None:
    """Which clears its states in every timestep where its input is not as wide as they are: nothing is kept."""
    torch, snn = pytest.importorskip("torch"), pytest.importorskip("snntorch")
    surrogate = pytest.importorskip("snntorch.surrogate")
    model = CELL_MODELS["slstm" if reset == "none" else f"slstm_{reset}"].learning(("threshold",) * learns)
    layer = layer_of("hidden0", "gru", inputs, 5)
    selection = replace(layer.selection, surrogate="superspike", slope=10.0)
    cell = cell_of(model, {"memory": float(inputs == 5), "threshold": 0.3})
    plain = network("gru", timesteps=9)
    of = replace(
        plain, layers=(replace(layer, neuron=cell, selection=selection), *plain.layers[1:]), input_capacity=inputs
    )
    given = drawn(of, 5, np.float64).for_graph(of)
    given["w.output"] = np.random.default_rng(1).normal(size=given["w.output"].shape)
    threshold = float(given.get("c.hidden0.threshold", np.array(0.3)).squeeze())
    found = interpret(training_graph(of), given)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # of the states that it begins with
    try:
        grad = surrogate.fast_sigmoid(slope=10)
        module = snn.SLSTM(
            inputs, 5, threshold=threshold, reset_mechanism=reset, spike_grad=grad, learn_threshold=learns
        )
        held = {"w": "weight_ih", "r": "weight_hh", "b": "bias_ih", "rb": "bias_hh"}
        module.lstm_cell.load_state_dict(
            {torch_name: torch.tensor(given[f"{role}.hidden0"].T).squeeze() for role, torch_name in held.items()}
        )
        syn, mem, every = None, None, []
        for step in torch.tensor(given["input"]).double():
            sent, syn, mem = module(step, syn, mem)
            every.append(float(sent.mean()))
        loss = torch.nn.functional.cross_entropy(
            sent.double() @ torch.tensor(given["w.output"]) + torch.tensor(given["b.output"]),
            torch.tensor(given["labels"]).long(),
        )
        loss.backward()
    finally:
        torch.set_default_dtype(default)
    assert 0 < min(every) < max(every) < 1
    assert float(found["loss"]) == pytest.approx(loss.item(), rel=1e-13)
    gradients = {f"{role}.hidden0": getattr(module.lstm_cell, each).grad.numpy().T for role, each in held.items()}
    gradients |= {"c.hidden0.threshold": module.threshold.grad.numpy()} if learns else {}
    for name, gradient in gradients.items():
        made = found[f"gradient.{name}"]  # those of spikes are float32 there
        assert np.abs(made - gradient.reshape(made.shape)).max() <= 1e-6 * np.abs(gradient).max(), name


@pytest.mark.first(2)
@pytest.mark.parametrize("strategy", ["as_published", "graph_replay", "hoisted", "persistent"])
@pytest.mark.parametrize(
    "name", ["gru", "lstm", "egru", "slstm", "slstm_zero", "learned thresholds", "izhikevich", "two, a timestep apart"]
)
def test_every_gpu_strategy_means_the_same(name: str, strategy: str) -> None:
    of = NETWORKS[name]
    graph, given = training_graph(of), drawn(of, 4, np.float64).for_graph(of)
    if strategy == ("persistent" if name == "izhikevich" else "hoisted"):
        with pytest.raises(MappingError, match="depend"):
            lower_to_kernels(graph, STRATEGIES[strategy], precision="fp32")
        if strategy == "hoisted":
            return
    meant, made = interpret(graph, given), execute(graph, given, strategy=strategy)
    for value in graph.outputs:
        assert relative_error(np.asarray(made[value]), np.asarray(meant[value])) < 1e-12, value


@pytest.mark.first(2)
@pytest.mark.parametrize(("name", "gates"), [("gru", 3), ("lstm", 4), ("egru", 3), ("slstm", 4)])
def test_a_persistent_kernel_keeps_the_weights_of_all_gates(name: str, gates: int) -> None:
    made = lower_to_kernels(training_graph(NETWORKS[name]), STRATEGIES["persistent"], precision="fp32")
    recurrent = [kernel for kernel in made.kernels if isinstance(kernel, Recurrent)]
    assert [(each.neurons, each.gates, each.phase) for each in recurrent] == [
        (5, gates, "forward"),
        (5, gates, "backward"),
    ]


def _everything(cell: Equations) -> dict[str, Term]:
    """All arithmetic there is; a state that is kept as it was, and two that are one value."""
    a, b = cell.gates()
    x = relu(1 - a) * exponential(-b) / 2 + 3.0 * sigmoid(a - b) - 0.5
    y = tanh(x + cell.row("offset") * cell.state("one"))
    return {OUTPUT: y, "one": y, "other": y, "kept": cell.state("kept"), "gate": a}


EVERYTHING = CellModel(
    name="everything",
    gates=2,
    recurrent=True,
    states=("one", "other", "kept", "gate"),
    parameters=(Parameter(name="offset", default=0.5, unit="1", meaning="where offsets start"),),
    rows=("offset",),
    equations=_everything,
    equation="",
    source="a test",
)


def test_cells_of_ones_own_run() -> None:
    of = network(EVERYTHING)
    values = drawn(of)
    expected = interpreted(of, values)
    made = compiled(of)
    for strict in (False, True):
        found = executed(made, values, strict=strict)
        for key, gradient in expected.gradients.items():
            assert relative_error(found.gradients[key], gradient) < TOLERANCE, key
    given, graph = drawn(of, 5, np.float64).for_graph(of), training_graph(of)
    gradient = interpret(graph, given)["gradient.offset.hidden0"][0, 1]
    assert gradient == pytest.approx(central_difference(graph, given, "offset.hidden0", (0, 1)), rel=1e-6)
    assert initial_weights(of, 1, 1.0, 0.0)["offset.hidden0"].tolist() == [[0.5] * 5]


def made_of(states: str, equations: Any, **more: Any) -> CellModel:
    """Cells of one gate with states of one letter each."""
    plain: dict[str, Any] = {"gates": 1, "recurrent": False, "rows": ()} | more
    return replace(EVERYTHING, name="own", states=tuple(states), equations=equations, **plain)


def _used(cell: Equations, **states: Term) -> dict[str, Term]:
    return {OUTPUT: tanh(cell.state("v") - cell.from_inputs()[0]), **states}


# how states of two cells read each other and the current a, as (v, u, a, cell) -> terms
ORDERS: dict[str, Any] = {
    "both read both": lambda v, u, a, cell: _used(cell, v=v + u, u=u - v),
    "they change places": lambda v, u, a, cell: _used(cell, v=u, u=v + a),
    "one waits": lambda v, u, a, cell: {OUTPUT: tanh(u), "v": tanh(a), "u": v},
    "one waits and grows": lambda v, u, a, cell: {OUTPUT: tanh(u), "v": tanh(a), "u": v + a},
    "one gradient": lambda v, u, a, cell: {OUTPUT: tanh(u + v), "v": tanh(a), "u": relu(a)},
    "before and after": lambda v, u, a, cell: {OUTPUT: v * (v + a), "v": v + a, "u": u + a},
    "before, with no gradient": lambda v, u, a, cell: {OUTPUT: tanh(v + a) * detached(v), "v": tanh(v + a), "u": u},
    "nobody reads it": lambda v, u, a, cell: {OUTPUT: tanh(v), "v": a + a, "u": v},
    "a row twice": lambda v, u, a, cell: {OUTPUT: v * cell.row("offset"), "v": a + cell.row("offset"), "u": u},
    "a sequence of adjoints": lambda v, u, a, cell: {OUTPUT: tanh(v), "v": 0.5 * tanh(v) + a, "u": u},
}


@pytest.mark.parametrize("order", ORDERS)
def test_states_may_read_each_other_in_any_order(order: str) -> None:
    def equations(cell: Equations) -> dict[str, Term]:
        given = cell.state("v"), cell.state("u"), *cell.from_inputs(), cell
        return dict(ORDERS[order](*given))

    own = made_of("vu", equations, rows=("offset",) if order == "a row twice" else ())
    norm = BatchNorm(per="sequence") if order == "a sequence of adjoints" else None
    of = network(own, own, timesteps=6, norm=norm)
    values, made = drawn(of), compiled(of)
    expected = interpreted(of, values)
    for strict in (False, True):
        found = executed(made, values, strict=strict)
        for key, gradient in expected.gradients.items():
            assert relative_error(found.gradients[key], gradient) < TOLERANCE, key
    assert np.abs(expected.gradients["hidden0"]).max() > 0


@pytest.mark.first(2)
@pytest.mark.parametrize("state", ["w", "r", "b", "spikes", "current"])
def test_a_state_may_be_called_as_something_of_the_layer(state: str) -> None:
    def equations(cell: Equations) -> dict[str, Term]:
        (a,), (b,) = cell.from_inputs(), cell.from_itself()
        return {OUTPUT: cell.state(state) + b, state: 0.5 * cell.state(state) + tanh(a + b)}

    of = network(replace(made_of("", equations, recurrent=True), states=(state,)))
    values = drawn(of)
    expected, found = interpreted(of, values), executed(compiled(of), values)
    for key, gradient in expected.gradients.items():
        assert relative_error(found.gradients[key], gradient) < TOLERANCE, key


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ({"states": (OUTPUT,)}, "a name that is taken"),
        ({"rows": ("bias",)}, "a name that is taken"),
        ({"rows": ("w",)}, "a name that is taken"),
        ({"rows": ("start",)}, "name a parameter 'start', from which that row starts"),
        ({"learnable": ("start",)}, "name a parameter 'start', from which that row starts"),
        ({"recurrent_of": "ones"}, "has no state 'ones' for its own weights; did you mean 'one'"),
    ],
)
def test_names_that_cannot_be_are_refused(names: dict[str, Any], text: str) -> None:
    with pytest.raises(MappingError, match=text):
        replace(EVERYTHING, **names)


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda cell: {OUTPUT: cell.before}, r"give output; they must give terms for kept, one, other, output"),
        (
            lambda cell: {OUTPUT: 1.0, "one": 1.0, "other": 1.0, "kept": 1.0},
            r"\('kept' is 1\.0\); they must give terms",
        ),
        (lambda cell: {OUTPUT: cell.state("ones")}, r"no state 'ones'; did you mean 'one'"),
        (lambda cell: {OUTPUT: cell.row("offse")}, r"no row 'offse'"),
    ],
)
def test_equations_that_do_not_fit_are_refused(wrong: Any, text: str) -> None:
    of = network(replace(EVERYTHING, states=("one", "other", "kept"), equations=wrong))
    with pytest.raises(MappingError, match=text):
        training_graph(of)
    unused = made_of("v", lambda cell: {OUTPUT: detached(*cell.from_inputs()), "v": cell.state("v")})
    with pytest.raises(MappingError, match=r"does not depend on \['w.hidden0', 'b.hidden0'\]: use them, or name them"):
        training_graph(network(unused))
    alone = replace(EVERYTHING, recurrent=False, equations=lambda cell: {OUTPUT: cell.from_itself()[0]})
    with pytest.raises(MappingError, match="set recurrent = True"):
        training_graph(network(alone))
    alone = replace(EVERYTHING, recurrent=False, equations=lambda cell: {OUTPUT: cell.before})
    with pytest.raises(MappingError, match="set reads_itself = True"):
        training_graph(network(alone))


def test_what_cells_cannot_be_is_refused() -> None:
    of = network("gru")
    first = of.layers[0]
    for changes, text in (
        ({"recurrence": "all_to_all"}, "leave network.recurrence out"),
        ({"reset_unread": True}, "their equations say what a spike resets"),
    ):
        with pytest.raises(MappingError, match=text):
            replace(first, **changes)
    with pytest.raises(MappingError, match="no linear neurons"):
        _ = first.linear
    with pytest.raises(MappingError, match="not lists of spikes"):
        replace(of, spikes="sparse")
    with pytest.raises(MappingError, match="outputs of the last layer are no spikes"):
        replace(network(last="gru"), layers=(replace(network(last="gru").layers[0], spiking=True),))
    with pytest.raises(MappingError, match="no spikes whose share could be penalised"):
        replace(of, loss=Loss(reading="last", firing_strength=1.0))
    assert "cells ('gru') do not run as whole tensors" in refusals(of)[0]
    with pytest.raises(MappingError, match="is no cell; did you mean 'gru'"):
        cell_of("gruu")
    with pytest.raises(MappingError, match="no such parameter; did you mean 'threshold'"):
        cell_of("egru", {"treshold": 1.0})
    with pytest.raises(MappingError, match="names 'treshold'; by it cells \"slstm\" learn threshold"):
        CELL_MODELS["slstm"].learning(("treshold",))
    with pytest.raises(MappingError, match="learn what their equations say, and nothing by this key: leave it out"):
        CELL_MODELS["egru"].learning(("threshold",))
    with pytest.raises(MappingError, match="one number for the layer, 0 to 1"):
        cell_of("egru", {"threshold": [0.1, 0.2]})


def test_initial_weights_of_gated_cells_are_those_of_pytorch() -> None:
    made = initial_weights(network("gru"), 1, 1.0, 0.001)
    for name in ("w.hidden0", "r.hidden0", "b.hidden0", "rb.hidden0"):
        assert 0.8 * 5**-0.5 < np.abs(made[name]).max() <= 5**-0.5, name
    assert initial_weights(network("egru"), 1, 1.0, 0.001)["threshold.hidden0"] == pytest.approx(0.3)


def test_what_cells_send_is_recorded_as_what_is_not_zero() -> None:
    """All of a GRU's numbers, which is no layer that always fires; of an EGRU, its events."""
    of = network("gru", "egru", timesteps=8)
    executor = Executor(compiled(of).program)
    executor.write(drawn(of).for_program(of))
    activity = run_recorded(executor, of)
    assert (activity.counts["hidden0"][..., 0] == 5).all()
    share = activity.counts["hidden1"][..., 0].mean() / 6
    assert 0.05 < share < 0.95
    assert "hidden0" not in constant_layers(of, activity)


CHANGES = {
    "network.neuron": ["gru", "li"],
    "network.neuron_parameters": [{}, {"tau": 1.0, "dt": 1.0}],
    "network.hidden": [12],
    "network.capacity": [],
    "network.spikes": "dense",
    "network.output": "membrane",
    "network.bias": True,
    "training.reading": "last",
    "data.timesteps": 5,
    "training.batch": 8,
}


def test_workloads_describe_cells() -> None:
    made = network_of(load_workload("digits", CHANGES))
    assert made.layers[0].gates == 3
    assert list(made.parameters) == [
        "w.hidden0", "w.output", "r.hidden0", "b.hidden0", "b.output", "rb.hidden0"
    ]  # fmt: skip
    assert made.parameters["rb.hidden0"].public == "hidden0.recurrent_bias"


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"network.spikes": "sparse", "network.activity": 0.1}, 'set network.spikes = "dense"'),
        ({"network.reset": "zero"}, "network.reset is for linear neurons"),
        ({"network.output": "spikes", "network.neuron": "gru", "network.neuron_parameters": {}}, "sends no spikes"),
        ({"network.neuron": ["gruu", "li"]}, "did you mean 'gru'"),
        ({"network.neuron_parameters": [{"tau": 1.0}, {}]}, "has no such parameter"),
    ],
)
def test_descriptions_that_do_not_fit_cells_are_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(MimdsimError, match=text):
        load_workload("digits", CHANGES | changes)


def test_a_share_of_spikes_cannot_be_asked_of_numbers() -> None:
    with pytest.raises(MimdsimError, match="cells 'gru' of layer 'hidden0' send always"):
        api.run(
            "digits", "tiny", changes=CHANGES | {"training.initial_activity": 0.1, "training.max_training_steps": 1}
        )


def test_nir_has_no_cells() -> None:
    of = network("gru")
    with pytest.raises(MimdsimError, match="cells 'gru' have no counterpart in NIR"):
        network_of_layers(of, initial_weights(of, 1, 1.0, 0.0), 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gru", "egru", "slstm_subtract", "exponential_lif"])
def test_programs_of_cells_pass_the_check(name: str) -> None:
    report = api.check("digits", "tiny", changes=CHANGES | {"network.neuron": [name, "li"]}, strict=True)
    assert report.passed, report


CONVOLUTIONAL = """
title = "a convolutional LSTM"
seed = 1
[data]
source = "random"
inputs = 98
classes = 4
timesteps = 5
train_samples = 8
test_samples = 4
input_capacity = 40
activity = 0.1
[network]
hidden = [147]
spikes = "dense"
output = "membrane"
delay = 0
bias = true
neuron = ["gated", "li"]
[network.convolutions.hidden0]
planes = [2, 7, 7]
channels = 3
kernel = 3
padding = 1
own_kernel = 3
[network.cells.gated]
equations = ["c = sigmoid(I1) * c[t-1] + sigmoid(I2) * tanh(I3)", "output = sigmoid(I4) * tanh(c)"]
[training]
batch = 4
epochs = 1
learning_rate = 0.01
"""


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["tiny", "bow"])
def test_gates_of_planes_pass_the_check(machine: str, tmp_path: Path) -> None:
    (tmp_path / "planes.toml").write_text(CONVOLUTIONAL)
    made = network_of(load_workload(tmp_path / "planes.toml"))
    shapes = {name: each.shape for name, each in made.parameters.items() if name.endswith("hidden0")}
    assert shapes == {"w.hidden0": (2 * 9, 4 * 3), "r.hidden0": (3 * 9, 4 * 3), "b.hidden0": (1, 4 * 3)}
    report = api.check(tmp_path / "planes.toml", machine, strict=machine == "tiny")
    assert report.passed, report


def test_gates_of_planes_that_cannot_be_are_refused(tmp_path: Path) -> None:
    pooled = CONVOLUTIONAL.replace("own_kernel = 3", 'pool = { kind = "sum", size = 7 }').replace("[147]", "[3]")
    (tmp_path / "planes.toml").write_text(pooled)
    with pytest.raises(MappingError, match="'hidden0' of cells 'gated': a convolution in groups, or with a pool after"):
        network_of(load_workload(tmp_path / "planes.toml"))


def rows() -> str:
    made = []
    for model in CELL_MODELS.values():
        parameters = ", ".join(f"{item.name} {item.default:g} {item.unit}" for item in model.parameters)
        made.append(f"| `{model.name}` | {model.equation} | {model.source} | {parameters} |\n")
    return "".join(made)


def test_the_docs_page_is_the_table_of_cells() -> None:
    (found,) = ROWS.finditer(PAGE)
    assert found.group() == rows()


def test_the_cell_of_the_docs_page_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its gradients, by finite differences; and a workload may name it."""
    monkeypatch.setattr(cell_catalogue, "CELL_MODELS", dict(CELL_MODELS))
    code = PAGE[PAGE.index("## Cells") :].partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(code, names)
    of = network(names["CELL_MODELS"]["minimal"])
    given, graph = drawn(of, 5, np.float64).for_graph(of), training_graph(of)
    found = interpret(graph, given)["gradient.r.hidden0"][1, 3]
    assert found == pytest.approx(central_difference(graph, given, "r.hidden0", (1, 3)), rel=1e-5)


if __name__ == "__main__":
    PATH.write_text(ROWS.sub(lambda _: rows(), PAGE), encoding="utf-8")
