"""Cells of PyTorch as cells here: GRU, LSTM and RNN, over a sequence or called timestep by timestep; and the linear
layer, which has no neurons, that reads what cells sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from mimdsim.graph import Layer, Sgd, SpikingNetwork, inference_graph, interpret
from mimdsim.graph.cell_catalogue import cell_of
from mimdsim.graph.losses import Loss
from mimdsim.graph.names import spikes_of
from mimdsim.graph.neuron_models import neuron_of
from mimdsim.graph.spikes import Selection

SAME = 1e-4  # of the largest: PyTorch computes in float32
READ_OUT: dict[str, float] = {"tau": 1.0, "dt": 1.0}  # of "li": what comes in is read


def problems(module: Any) -> Iterator[str]:
    """Options of a cell that nothing here stands for."""
    if getattr(module, "bidirectional", False):
        yield "runs in both directions (bidirectional=True); nearest: one direction"
    if getattr(module, "num_layers", 1) > 1:
        yield f"has {module.num_layers} layers; nearest: as many modules of one layer each"
    if getattr(module, "proj_size", 0):
        yield "projects its outputs (proj_size); nearest: torch.nn.Linear after it"


def cell_fields(module: Any, model: str) -> dict[str, Any]:
    """What a reading of a cell says, by field: a module over a sequence, or one timestep."""
    in_time = hasattr(module, "num_layers")
    end = "_l0" if in_time else ""
    return {
        "model": "rnn_relu" if getattr(module, "nonlinearity", "") == "relu" else model,
        "parameters": {},
        "reset": "",
        "reset_gradient": "",
        "in_time": in_time,
        "batch_first": in_time and module.batch_first,
        "weights": f"weight_ih{end}",
        "recurrent": f"weight_hh{end}",
        "bias": f"bias_ih{end}" if module.bias else "",
        "recurrent_bias": f"bias_hh{end}" if module.bias else "",
    }


def run_cells(model: str, arrays: Mapping[str, np.ndarray], given: np.ndarray) -> np.ndarray:
    """What a layer of cells sends, float64[timesteps, batch, neurons], of what it reads; arrays: its 'w', 'r' and, with
    biases, 'b' and 'rb'."""
    timesteps, batch, inputs = given.shape
    neurons, bias = arrays["r"].shape[0], "b" in arrays
    selection = Selection(threshold=0.0, second_threshold=0.0, capacity=neurons, slope=1.0)
    layers = (
        Layer(name="cells", inputs=inputs, neurons=neurons, neuron=cell_of(model), selection=selection, bias=bias),
        Layer(
            name="output", inputs=neurons, neurons=1, neuron=neuron_of("li", READ_OUT), selection=selection,
            spiking=False,
        ),
    )  # fmt: skip
    network = SpikingNetwork(
        layers=layers, timesteps=timesteps, batch=batch, input_capacity=inputs, spikes="dense", logit_scale=1.0,
        optimiser=Sgd(learning_rate=1.0), delay=0, loss=Loss(reading="last"),
    )  # fmt: skip
    known = {f"{role}.cells": array.reshape(-1, array.shape[-1]) for role, array in arrays.items()}
    sent: list[np.ndarray] = []

    def watch(name: str, _timestep: int, value: Any) -> None:
        if name == spikes_of("cells"):
            sent.append(value)

    interpret(inference_graph(network), {"input": given, "w.output": np.zeros((neurons, 1)), **known}, watch)
    return np.stack(sent)


def reading_of(returned: np.ndarray, outputs: np.ndarray, functions: Collection[str]) -> str:
    """How the outputs [timesteps, batch, classes] of a layer are read where a module returns this, made of them by
    these functions; '' where it returns neither all of them nor a reading of them."""
    readings = {
        "last": outputs[-1],
        "mean": outputs.mean(axis=0),
        "sum": outputs.sum(axis=0),
        "max": outputs.max(axis=0),
    }
    every = {"sum of all": outputs, "sum of all, by sample": outputs.swapaxes(0, 1)}
    said = {{"amax": "max", "add": "sum"}.get(each, each) for each in functions}  # several may agree on the example
    for name, values in sorted({**readings, **every}.items(), key=lambda each: each[0] not in said):
        same = values.shape == returned.shape and bool(
            np.abs(values - returned).max() <= SAME * max(float(np.abs(values).max()), SAME)
        )
        if same:
            return name if name in readings else "sum"
    return ""


def in_time_first(tensor: torch.Tensor, batch_first: bool) -> torch.Tensor:
    """A sequence with time as its first axis."""
    return tensor.movedim(1, 0) if batch_first else tensor
