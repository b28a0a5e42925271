"""Networks of linear neurons for tests, the equations of every model written out anew, and a PyTorch loop over the maps
of any neuron."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from networks import Given, parameter_keys, small_network

from mimdsim.graph import Layer, SpikingNetwork
from mimdsim.graph.linear_neurons import Affine, LinearNeuron
from mimdsim.graph.neuron_models import MODELS, neuron_of
from mimdsim.graph.surrogates import SURROGATES

SPIKING = [name for name, model in MODELS.items() if model.spiking]
CASES = [(name, reset) for name in SPIKING for reset in MODELS[name].resets]
GRADIENTS = ["pass", "mask", "full"]
# constants that make small networks fire now and then; potentials away from zero where a model has them
PARAMETERS: dict[str, dict[str, Any]] = {
    "lif": {"decay": 0.9375, "current_gain": 16.0},
    "lapicque": {"resistance": 4.0, "capacitance": 2.0},
    "alpha": {"alpha": 0.875, "beta": 0.75},
    "adaptive": {"kappa": 0.25},
    "norse_lif": {"tau_mem_inv": 300.0, "v_leak": 0.125, "v_reset": -0.25},
    "norse_lif_box": {"tau_mem_inv": 300.0, "v_leak": 0.125, "v_reset": -0.25},
    "norse_lsnn": {"tau_mem_inv": 300.0, "tau_adapt_inv": 50.0, "beta": 0.3, "v_reset": -0.25},
    "spikingjelly_lif": {"v_reset": -0.125},
    "spikingjelly_plif": {"share": 0.25, "v_reset": -0.125},
    "if": {"v_reset": 0.125},
    "nir_lif": {"tau": 4e-3, "r": 2.0, "v_leak": 0.125, "v_reset": -0.25},
    "cuba_lif": {"tau_mem": 4e-3, "tau_syn": 3e-3, "r": 2.0, "w_in": 2.0, "v_leak": 0.125, "v_reset": -0.25},
}


def parameters_of(model: str, reset: str) -> dict[str, Any]:
    """Test constants; soft resets of these frameworks know no v_reset."""
    given = dict(PARAMETERS.get(model, {}))
    if reset == "subtract":
        given.pop("v_reset", None)
    return given


def linear_network(
    model: str,
    reset: str,
    *,
    reset_by: str = "state",
    reset_gradient: str = "mask",
    surrogate: str = "superspike",
    slope: float = 5.0,
    parameters: dict[str, Any] | None = None,
    second_threshold: float = -100.0,
    widths: tuple[int, ...] = (12, 10, 4),
    **others: Any,
) -> SpikingNetwork:
    """A network whose layers all have the model's neurons; `second_threshold` counted from the resting potential."""
    network = small_network(widths, **({"timesteps": 12, "batch": 5} | others))
    given = parameters_of(model, reset) if parameters is None else parameters
    neuron = neuron_of(model, given, reset=reset, reset_by=reset_by, reset_gradient=reset_gradient)
    layers = []
    for layer in network.layers:
        selection = replace(
            layer.selection,
            threshold=neuron.threshold,
            second_threshold=second_threshold,
            surrogate=surrogate,
            slope=slope,
        )
        layers.append(replace(layer, neuron=neuron, selection=selection))
    return replace(network, layers=tuple(layers))


def spike_function(surrogate: str, slope: float, second: float = -np.inf) -> Any:
    """fires(u - threshold), with the surrogate as gradient where u - threshold is above `second`."""
    import torch

    pi = torch.pi

    def bell(x: Any, away: float, wider: float) -> Any:
        """A normal density, in units of the deviation that the slope says."""
        return slope / wider / pi**0.5 * torch.exp(-(((slope * x - away / 2**0.5) / wider) ** 2))

    shapes = {
        "superspike": lambda x: (slope * x.abs() + 1) ** -2,
        "arctan": lambda x: slope / 2 / (1 + (pi / 2 * slope * x) ** 2),
        "sigmoid": lambda x: slope * torch.sigmoid(slope * x) * (1 - torch.sigmoid(slope * x)),
        "triangular": lambda x: torch.relu(slope - slope**2 * x.abs()),
        "boxcar": lambda x: slope * (x.abs() < 0.5 / slope),
        "straight_through": torch.ones_like,
        "gaussian": lambda x: slope / pi**0.5 * torch.exp(-((slope * x) ** 2)),
        "multi_gaussian": lambda x: 1.15 * bell(x, 0, 1) - 0.15 * (bell(x, 1, 6) + bell(x, -1, 6)),
        "double_gaussian": lambda x: 1.15 * bell(x, 0, 1) - 0.3 * bell(x, 0, 6),
        "exponential": lambda x: slope / 2 * torch.exp(-slope * x.abs()),
    }
    assert set(shapes) == set(SURROGATES)

    class Spike(torch.autograd.Function):  # type: ignore[name-defined,misc]
        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            context.save_for_backward(x)
            return (x > 0).to(x.dtype)

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            (x,) = context.saved_tensors
            return gradient * shapes[surrogate](x) * (x > second)

    return Spike.apply


def start(model: str, p: dict[str, Any], like: Any) -> list[Any]:
    """The states of a fresh layer in the framework's own coordinates."""
    zero = like * 0
    rest = zero + p.get("v_leak", p["v_reset"] if model.startswith("spikingjelly") else 0.0)
    if model == "norse_lsnn":
        return [rest, zero, zero + p["v_th"]]
    return [rest] + [zero] * (len(MODELS[model].states) - 1)


def advanced(model: str, reset: str, p: dict[str, Any], states: list[Any], current: Any, f: Any) -> tuple[Any, Any]:
    """The states after a timestep and how far the potential is above the threshold; f: 1 where it fired before it."""
    v, *rest = states
    zero, subtract = (f, 0) if reset == "zero" else (0, f if reset == "subtract" else 0)
    threshold = p.get("threshold", p.get("v_th", p.get("v_threshold")))
    if model == "lif":
        v = p["decay"] * v * (1 - zero) + (1 - p["decay"]) * p["current_gain"] * current - threshold * subtract
    elif model == "leaky":
        v = p["beta"] * v * (1 - zero) + current - threshold * subtract
    elif model == "rleaky":
        v = (p["beta"] * v + current) * (1 - zero) - threshold * subtract
    elif model == "lapicque":
        rc = p["resistance"] * p["capacitance"]
        v = current * p["resistance"] / rc * p["time_step"] + (1 - p["time_step"] / rc) * v
        v = v * (1 - zero) - threshold * subtract
    elif model == "synaptic":
        i = p["alpha"] * rest[0] + current
        v, rest = (p["beta"] * v + i) * (1 - zero) - threshold * subtract, [i]
    elif model == "alpha":
        alpha, beta = p["alpha"], p["beta"]
        tau = np.log(alpha) / (np.log(beta) - np.log(alpha)) + 1
        excited, inhibited = alpha * rest[0] + current, beta * rest[1] - current
        v = tau * (excited + inhibited) * (1 - zero) + rest[1] * subtract
        rest = [excited * (1 - zero) - threshold * subtract, inhibited * (1 - zero) * (1 - subtract)]
    elif model == "adaptive":
        v = p["beta"] * v * (1 - zero) + current - threshold * subtract
        rest = [p["rho"] * rest[0] + f]
        return [v, *rest], v - p["kappa"] * rest[0] - threshold
    elif model in ("norse_lif", "norse_lif_box", "norse_lsnn"):
        v = v * (1 - zero) + p["v_reset"] * zero - threshold * subtract
        flowing = current
        if model == "norse_lif":
            jumped = rest[0] + current
            flowing, rest = jumped, [jumped * (1 - p["dt"] * p["tau_syn_inv"])]
        if model == "norse_lsnn":
            b = rest[1] + p["beta"] * f
            flowing = rest[0]
            rest = [
                flowing * (1 - p["dt"] * p["tau_syn_inv"]) + current,
                b + p["dt"] * p["tau_adapt_inv"] * (p["v_th"] - b),
            ]
            threshold = rest[1]
        v = v + p["dt"] * p["tau_mem_inv"] * (p["v_leak"] - v + flowing)
    elif model == "spikingjelly_lif":
        v = v * (1 - zero) + p["v_reset"] * zero - threshold * subtract
        v = v - (v - p["v_reset"]) / p["tau"] + current / (p["tau"] if p["decay_input"] else 1)
    elif model == "spikingjelly_plif":
        v = v * (1 - zero) + p["v_reset"] * zero - threshold * subtract
        v = v - (v - p["v_reset"]) * p["share"] + current * (p["share"] if p["decay_input"] else 1)
    elif model == "if":
        v = v * (1 - zero) + p["v_reset"] * zero - threshold * subtract + p["r"] * current
    elif model == "nir_lif":
        v = v * (1 - zero) + p["v_reset"] * zero
        v = v + p["dt"] / p["tau"] * (p["v_leak"] - v + p["r"] * current) - threshold * subtract
    elif model == "cuba_lif":
        i = rest[0] + p["dt"] / p["tau_syn"] * (p["w_in"] * current - rest[0])
        v = v * (1 - zero) + p["v_reset"] * zero
        v, rest = v + p["dt"] / p["tau_mem"] * (p["v_leak"] - v + p["r"] * i) - threshold * subtract, [i]
    else:
        raise AssertionError(f"the equations of neuron model '{model}' are not written out here: add them")
    return [v, *rest], v - threshold


def _advance(affine: Affine, x: Any, current: Any) -> Any:
    matrix, drive, constant = (current.new_tensor(array) for array in affine.arrays)
    return (matrix[:, :, None] * x).sum(dim=1) + drive[:, None] * current + constant[:, None]


def _stepped(neuron: LinearNeuron, x: Any, current: Any, f: Any) -> tuple[Any, Any]:
    """The states [states, batch, neurons] after a timestep and what is held against the threshold; f: who fired."""
    after = quiet = _advance(neuron.quiet, x, current)
    if neuron.fired is not None:
        f = f if neuron.reset_gradient == "full" else f.detach()
        after = (1 - f) * quiet + f * _advance(neuron.fired, x, current)
        if neuron.reset_gradient == "pass":
            after = after.detach() + (quiet - quiet.detach())
    u = (current.new_tensor(neuron.readout)[:, None] * after).sum(dim=0) + current.new_tensor(neuron.offset)
    return after, u


def forward_in_torch(network: SpikingNetwork, given: Given) -> tuple[dict[str, Any], list[list[Any]], float]:
    """Parameters by their key, what every layer sends in every timestep, and how close a potential came to the
    threshold of its layer."""
    import torch

    parameters = {
        key: torch.tensor(given.arrays[name], requires_grad=True) for key, name in parameter_keys(network).items()
    }
    layers = network.layers
    source = torch.tensor(given.dense, dtype=parameters[layers[0].name].dtype)
    emitted = [source.new_zeros(network.batch, layer.neurons) for layer in layers]
    states = [source.new_zeros(len(layer.neuron.states), network.batch, layer.neurons) for layer in layers]
    above = [zero - 1 for zero in emitted]
    sent: list[list[Any]] = [[] for _ in layers]
    closest = np.inf
    for t in range(network.timesteps):
        earlier = list(emitted)
        for index, layer in enumerate(layers):
            # a layer reads what the one before it emitted a timestep earlier or, without a delay, just now
            before = source[t] if index == 0 else (earlier if network.delay else emitted)[index - 1]
            current = before @ parameters[layer.name]
            if layer.recurrence == "all_to_all":
                current = current + earlier[index] @ parameters[f"r.{layer.name}"]
            if layer.recurrence in ("one_to_one", "one_weight"):
                current = current + earlier[index] * parameters[f"r.{layer.name}"]
            if layer.bias:
                current = current + parameters[f"b.{layer.name}"]
            neuron, selection = layer.neuron, layer.selection
            f = earlier[index]
            if neuron.reset_by == "state":
                f = spike_function(selection.surrogate, selection.slope)(above[index])
            if not layer.spiking:
                neuron = replace(neuron, fired=None)
            states[index], u = _stepped(neuron, states[index], current, f)
            above[index] = u - selection.threshold
            listed = selection.second_threshold - selection.threshold
            spikes = spike_function(selection.surrogate, selection.slope, listed)
            emitted[index] = spikes(above[index]) if layer.spiking else u
            sent[index].append(emitted[index])
            closest = min(closest, float(above[index].detach().abs().min()))
    return parameters, sent, closest


def by_autograd(network: SpikingNetwork, given: Given) -> tuple[float, dict[str, np.ndarray], np.ndarray, float]:
    """Loss, gradient by layer or parameter, spike counts, and how close a potential came to the threshold."""
    import torch

    parameters, sent, closest = forward_in_torch(network, given)
    counts = torch.stack(sent[-1]).sum(dim=0)
    labels = torch.tensor(given.labels, dtype=torch.long)
    loss = torch.nn.functional.cross_entropy(network.logit_scale * counts, labels)
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = {key: parameter.grad.numpy() for key, parameter in parameters.items()}
    return float(loss.detach()), gradients, counts.detach().numpy(), closest


def by_layer_in_torch(
    network: SpikingNetwork, given: Given
) -> tuple[float, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Loss, gradients and running averages by parameter of a network with batch norms, a layer over all timesteps at
    once, in the words of PyTorch."""
    import torch

    trained = {name: torch.tensor(given.arrays[name], requires_grad=True) for name in network.trained}
    averages = {name: torch.tensor(given.arrays[name]) for name in network.averages}
    sent = torch.tensor(given.dense)
    for layer in network.layers:
        if network.delay and layer is not network.layers[0]:
            sent = torch.cat([torch.zeros_like(sent[:1]), sent[:-1]])
        current = sent @ trained[f"w.{layer.name}"]
        norm = layer.norm
        assert norm is not None
        kept = [averages[f"{role}.{layer.name}"] for role in ("mean", "variance")]
        rows = [trained[f"{role}.{layer.name}"] for role in ("gain", "b")]
        batches = [current.flatten(0, 1)] if norm.per == "sequence" else list(current)
        how = {"training": True, "eps": norm.epsilon, "momentum": norm.momentum}
        turns = [t % norm.rows for t in range(len(batches))]
        given_to = [[each[turn] for each in (*kept, *rows)] for turn in turns]
        made = [torch.nn.functional.batch_norm(x, *of, **how) for x, of in zip(batches, given_to, strict=True)]
        current = torch.stack(made).reshape(current.shape)
        sent = _run_in_torch(layer, current, trained)
    loss = torch.nn.functional.cross_entropy(network.logit_scale * sent.sum(dim=0), torch.tensor(given.labels).long())
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = {name: each.grad.numpy() for name, each in trained.items()}
    return float(loss.detach()), gradients, {name: each.numpy() for name, each in averages.items()}


def _run_in_torch(layer: Layer, current: Any, trained: dict[str, Any]) -> Any:
    """Spikes of all timesteps from currents [timesteps, batch, neurons]."""
    import torch

    spiked = spike_function(layer.selection.surrogate, layer.selection.slope)
    states = current.new_zeros(len(layer.neuron.states), *current.shape[1:])
    above, spikes, sent = current[0].detach() * 0 - 1, current[0].detach() * 0, []
    for now in current:
        if layer.recurrence != "none":
            own = trained[f"r.{layer.name}"]
            now = now + (spikes @ own if layer.recurrence == "all_to_all" else spikes * own)
        states, u = _stepped(layer.neuron, states, now, spiked(above))
        above = u - layer.selection.threshold
        spikes = spiked(above)
        sent.append(spikes)
    return torch.stack(sent)
