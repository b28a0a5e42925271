"""One training step of the example has the gradients here that PyTorch finds. Currents and spikes alone tell neither
what acts on gradients inside a module nor in which order what is alike comes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from mimdsim.frameworks.blocks import index_in
from mimdsim.frameworks.neurons import numbers_of, refusal, refused_backward
from mimdsim.frameworks.planes import SAME_CURRENT
from mimdsim.frameworks.recorded import Recorded
from mimdsim.frameworks.torch_layers import TorchLayer, named
from mimdsim.frameworks.torch_weights import MINUS, Link, folded, links_of, without_place
from mimdsim.graph import SpikingNetwork, differentiate, interpret
from mimdsim.graph.cell_catalogue import CURRENT
from mimdsim.graph.names import INPUT, LABELS, LOSS, random_name, spikes_of
from mimdsim.graph.network_graphs import forward_graph

SAME_GRADIENT = 2e-3  # of the largest of a parameter
ROUNDING = 1e-5  # of the largest of all: float32 leaves so much of sums that are 0


def check_gradients(
    module: torch.nn.Module,
    recorded: Recorded,
    layers: list[TorchLayer],
    network: SpikingNetwork,
    weights: Mapping[str, np.ndarray],
    values: np.ndarray,
    reading: str,
    read: torch.Tensor,
) -> None:
    """Raises DescriptionError where one differs, and where cells send something else.

    network: what was made of the module, for the timesteps and the batch of the example. values: the example,
    float64[timesteps, batch, inputs]. reading, read: what the module returned of its last layer, as of
    `read_over_time`."""
    learning = {name: each for name, each in module.named_parameters() if each.requires_grad}
    links = [link for link in links_of(layers) if link[0] in learning]
    names = [*dict.fromkeys(name for name, *_ in links)]
    network = replace(network, spikes="dense", threshold_schedule=None)
    graph, found = differentiate(forward_graph(network), LOSS, tuple(network.trained))
    made = interpret(graph, _given(network, weights, values), _Sent(layers, network))
    (loss,) = (each for each in graph.operations if each.kind == f"{network.loss.kind}_gradient")
    read_of = network.timesteps - network.loss.burn_in
    counted = read_of if "mean" in reading and network.loss.reading != "mean" else 1
    back = torch.as_tensor(made[loss.outputs[0]]).to(read) * (recorded.votes * counted)
    scores = _scores(read, network.loss.reading)
    try:
        wanted = torch.autograd.grad(scores, [learning[name] for name in names], back, allow_unused=True)
    except RuntimeError as problem:
        raise refused_backward(problem) from problem
    theirs = {
        name: np.zeros(learning[name].shape) if each is None else numbers_of(each)
        for name, each in zip(names, wanted, strict=True)
    }
    largest = max(float(np.abs(each).max()) for each in theirs.values())
    added = back.numel() / back.shape[-1]  # samples, or samples in every timestep, whose gradients may add up to 0
    rounding = max(ROUNDING * largest, torch.finfo(read.dtype).eps * float(back.abs().max()) * added**0.5)
    for link in links:
        name, array, *_, norm = link
        if array not in found:
            raise refusal(
                f"'{name}' is learned, and nothing that is read of the module depends on it; nearest: a constant that "
                "is not learned (a membrane that is not reset has no threshold)"
            )
        mine = made[found[array]][index_in(norm)]
        if array.startswith("w.") and without_place(norm) not in ("", MINUS):  # that of what the norm makes of it
            mine = mine * folded(module, without_place(norm))[0]
        held = _laid(recorded.masks.get(name, np.ones(theirs[name].shape)), link, mine) != 0
        their = _laid(theirs[name], link, mine)
        off = float(np.abs(np.where(held, mine - their, 0.0)).max())
        if not np.isfinite(their).all():
            raise refusal(
                f"'{name}' gets a gradient from PyTorch on the example that is not finite (surrogates of large numbers "
                "may overflow); give weights, or an example, with which it is"
            )
        if not off <= max(SAME_GRADIENT * float(np.abs(their).max()), rounding):
            raise refusal(
                f"'{name}' gets a gradient on the example that differs by up to {off:.2g}, of "
                f"{np.abs(their).max():.2g} at most, from that of the network that was read: something acts on "
                "gradients that is not known here (a function with one of its own, detach(), timesteps left out), "
                "values are reordered on the way, or potentials are at the very edge of where surrogates have gradients"
            )


def _laid(values: np.ndarray, link: Link, mine: np.ndarray) -> np.ndarray:
    """Numbers of a parameter of the module as the array here lies that it became, or a part of."""
    _, array, turned, row, norm = link
    if array.startswith("delay."):  # [1, neurons, inputs, 1] of positions, which are less where delays are more
        values = -values[0, :, :, 0]
    laid = (values.reshape(len(values), -1).T if turned and values.ndim else values).reshape(-1, mine.shape[1])
    return (-laid if without_place(norm) == MINUS else laid)[row : row + len(mine)]


class _Sent:
    """Lays over what layers send in every timestep of the interpreter what they sent in the module, so that no sum that
    is rounded to the other side of a threshold makes another sequence of it."""

    def __init__(self, layers: list[TorchLayer], network: SpikingNetwork):
        self._calls = {spikes_of(name): layer.calls for name, layer in named(layers)}
        self._sent = {name: calls.sequence(calls.outputs) for name, calls in self._calls.items()}
        self._timesteps, (last, calls) = network.timesteps, [*self._calls.items()][-1]
        if not network.layers[-1].spiking and calls.reading.has_potential and calls.states:
            self._sent[last] = calls.sequence(calls.states)

    def __call__(self, name: str, t: int, value: Any) -> np.ndarray | None:
        calls, every = self._calls.get(name), self._sent.get(name, np.zeros(0))
        if calls is None or (t := t - (self._timesteps - len(every))) < 0:  # before neurons that are written out begin
            return None
        sent: np.ndarray = every[t].reshape(len(every[t]), value.shape[-1], -1).transpose(0, 2, 1).reshape(value.shape)
        off = float(np.abs(value - sent).max())
        # else held against their equations, or weights, before
        as_read = calls.reading.of_cells and not calls.reading.written and calls.reading.model != CURRENT
        same = off <= SAME_CURRENT * max(float(np.abs(sent).max()), SAME_CURRENT)
        if as_read and not same:
            raise refusal(
                f"layer '{calls.name}' sends what differs by up to {off:.2g} from what a '{calls.reading.model}' sends "
                "of the same: something acts on it that is not known here (a state handed in, an option)"
            )
        return sent


def _given(network: SpikingNetwork, weights: Mapping[str, np.ndarray], values: np.ndarray) -> dict[str, Any]:
    """Inputs of the graph: nothing is left out, and delays are as wide as the module has them."""
    numbers = network.scheduled | dict.fromkeys(network.kept_shares, 1.0)
    given: dict[str, Any] = {name: np.float64(number) for name, number in numbers.items()}
    given |= {name: weights[name].reshape(each.shape) for name, each in network.parameters.items()}
    given |= {random_name(layer.name): np.zeros(network.batch, np.int64) for layer in network.layers}
    labels = np.arange(network.batch) % network.classes
    return given | {INPUT: values[0] if network.steady_input else values, LABELS: labels}


def _scores(read: torch.Tensor, reading: str) -> torch.Tensor:
    """What the loss reads of what the module returned."""
    if read.ndim < 3 or reading == "every":
        return read
    of_time = {"sum": read.sum, "mean": read.mean, "max": lambda axis: read.max(axis).values}
    of_time["softmax"] = torch.softmax(read, -1).sum
    return of_time[reading](0) if reading in of_time else read[-1]
