"""The sections [network] and [training] that describe a PyTorch module."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import torch

from mimdsim.frameworks.neurons import REFUSED_BY, Reading, ReadingRefused, neuron_key, numbers_of, refusal, tell
from mimdsim.frameworks.origins import sources_in
from mimdsim.frameworks.planes import keys_of
from mimdsim.frameworks.recorded import Recorded
from mimdsim.frameworks.torch_layers import (
    TorchLayer,
    divisor_of,
    functions_in,
    mostly_delayed,
    named,
    number_of_biases,
    read_by,
    returned_by,
    sums_apart,
    widths_of,
)
from mimdsim.frameworks.torch_weights import public_name
from mimdsim.graph.cells import OUTPUT
from mimdsim.graph.linear_equations import linear_neuron_of
from mimdsim.graph.losses import softmax
from mimdsim.graph.names import INPUT, aged
from mimdsim.graph.norms import BatchNorm
from mimdsim.graph.sources import Source
from mimdsim.workload.description.sections import STEADY
from mimdsim.workload.interchange.importing import EVERY_GRADIENT, random_table, without_lists
from mimdsim.workload.interchange.model_file import weights_named

NEVER_SPIKES = "output 'spikes': the last layer, '{}', never spikes; write output='membrane'"
SAME = 1e-4  # of the largest: PyTorch computes in float32
LOSSES: dict[str, dict[str, Any]] = {
    "ce_count_loss": {"loss": "cross_entropy", "reading": "sum"},
    "ce_rate_loss": {"loss": "cross_entropy", "reading": "every", "over_timesteps": "mean"},
    "mse_count_loss": {"loss": "mean_squared_error", "reading": "sum"},
    "mse_membrane_loss": {"loss": "mean_squared_error", "reading": "every", "over_timesteps": "mean"},
    "ce_max_membrane_loss": {"loss": "cross_entropy", "reading": "max"},
}

READINGS = {
    "last": "the last timestep", "mean": "a mean over time", "sum": "a sum over time",
    "max": "the highest over time", "softmax": "a softmax of every timestep, added up", "every": "every timestep",
}  # fmt: skip


def network_table(layers: list[TorchLayer], old: Mapping[str, Any]) -> dict[str, Any]:
    """The section [network]: per layer what differs, and gradients of all neurons."""
    readings = [layer.calls.reading for layer in layers]
    widths = widths_of(layers)
    made: dict[str, Any] = {
        "hidden": widths[:-1],
        "capacity": widths,
        "neuron": [each.model for each in readings],
        "neuron_parameters": [each.parameters for each in readings],
        "reset": [each.reset for each in readings],
        "reset_gradient": [each.reset_gradient for each in readings],
        "surrogate": [each.surrogate for each in readings],
        "surrogate_slope": [each.slope for each in readings],
        "recurrence": [_recurrence(layer) for layer in layers],
        "bias": [each if each > 1 else bool(each) for each in map(number_of_biases, layers)],
        "delay": int(mostly_delayed(layers)),
        **EVERY_GRADIENT,
    }
    names = [name for name, _ in named(layers)]
    own = {name: each.written for name, each in zip(names, readings, strict=True) if each.written}
    if own:
        made["neuron"] = [
            f"neuron_of_{name}" if name in own else each.model for name, each in zip(names, readings, strict=True)
        ]
        made["cells"] = {
            f"neuron_of_{name}": {
                "equations": list(each.texts),
                "learned": {row: float(f"{np.median(values):.6g}") for row, (_, values, _) in each.rows.items()},
                **({"shared": list(each.shared)} if each.shared else {}),
                **({"recurrent_of": each.recurrent_of} if each.recurrent_of != OUTPUT else {}),
            }
            for name, each in own.items()
        }
    for before, name, layer in zip((INPUT, *names), names, layers, strict=False):
        # the age that is not written: of layers after it, the timestep before
        unsaid = {INPUT: 0} | dict.fromkeys(names[: names.index(name)], int(mostly_delayed(layers)))
        read = read_by(layers, layer)
        twice = [each.names in {other.names for other in read[:place]} for place, each in enumerate(read)]
        said = [each.text(partial(_dated, unsaid, again)) for each, again in zip(read, twice, strict=True)]
        if said != [before]:
            made.setdefault("sources", {})[name] = said
        if layer.convolution:
            made.setdefault("convolutions", {})[name] = keys_of(layer.convolution, read[0].name == INPUT, layer.gates)
        about = {
            public_name(array): each.function
            for each, array in zip(layer.sources, weights_named(name, read), strict=True)
            if not layer.unweighted
        }
        about |= {f"{name}.recurrent": layer.recurrent_function, f"{name}.bias": layer.bias_function}
        if functions := {array: asdict(each) for array, each in about.items() if each}:
            made.setdefault("weight_functions", {}).update(functions)
        if layer.delays:
            made.setdefault("delays", {})[name] = asdict(layer.delays)
    if learned := {name: [*each.learned] for name, each in zip(names, readings, strict=True) if each.learned}:
        made["learned"] = learned
    if unweighted := [name for name, layer in named(layers) if layer.unweighted]:
        made["unweighted"] = unweighted
    for key in ("spikes", "truncation", "neurons_per_class"):
        if key in old:
            made[key] = old[key]
    made |= _dropout(layers) | _norms(layers)
    sums = any(source.read.of for layer in layers for source in layer.sources)
    dense = (
        sums
        or made.keys() & {"convolutions", "dropout", "batch_norm", "unweighted"}
        or any(_sends_numbers(each, each is readings[-1]) for each in readings)
    )
    made |= {"spikes": "dense"} if dense else {}
    return without_lists(made)


def _dated(unsaid: Mapping[str, int], always: bool, each: Source) -> str:
    return each.name if each.lag == unsaid.get(each.name, 1) and not always else aged(each.name, each.lag or 0)


def _sends_numbers(reading: Reading, last: bool) -> bool:
    """Whether neurons run from dense spikes alone: cells, and equations that no linear neuron has."""
    if reading.written is None:
        return reading.of_cells
    model = reading.written.model(reading.model)
    return linear_neuron_of(model, {}) is None or not (model.spiking or last)


def _norms(layers: list[TorchLayer]) -> dict[str, Any]:
    """Keys of the section [network] for batch norms that are trained."""
    if not any(layer.trained_norm for layer in layers):
        return {}
    norms = [layer.trained_norm for layer in layers]
    found = [each or BatchNorm() for each in norms]
    return {
        "batch_norm": [each.per if each else "none" for each in norms],
        "batch_norm_epsilon": [each.epsilon for each in found],
        "batch_norm_momentum": [each.momentum for each in found],
        **({"batch_norm_groups": groups} if max(groups := [each.groups for each in found]) > 1 else {}),
    }


def _dropout(layers: list[TorchLayer]) -> dict[str, Any]:
    """Keys of the section [network] for what is left out."""
    every = {layer.calls.name: {source.dropout for source in layer.sources} for layer in layers}
    several = [name for name, found in every.items() if len(found) > 1]
    if several:
        raise refusal(f"layer '{several[0]}' reads sources with dropout of several kinds; one for all can run")
    found = [one for (one,) in every.values()]
    ways = sorted({each.per for each in found if each})
    if len(ways) > 1:
        raise refusal("some dropout is drawn for every timestep, other for every sequence; one of both can run")
    if not ways:
        return {}
    made = {"dropout": [each.share if each else 0.0 for each in found], "dropout_per": ways[0]}
    of = [each.of if each else "neuron" for each in found]
    return made | ({"dropout_of": of} if "plane" in of else {})


def _recurrence(layer: TorchLayer) -> str:
    if not layer.recurrent or sums_apart(layer) or layer.own_window:
        return "none"
    reading = layer.calls.reading
    if reading.recurrent != "V":
        return "all_to_all"
    return "one_weight" if layer.calls.module.V.numel() == 1 < layer.calls.neurons else "one_to_one"


def output_read(wanted: str, recorded: Recorded, last: TorchLayer) -> str:
    """What is read of the last layer: its spikes, or its potentials, of neurons that are reset or not."""
    if wanted not in ("", "spikes", "membrane"):
        raise refusal(f"output '{wanted}' is not known: write 'spikes' or 'membrane'")
    reading = last.calls.reading
    returned = set().union(*map(sources_in, recorded.returned))
    only_states = (last.calls.name, True) not in returned
    if not reading.has_potential:
        spikes = reading.written is not None and reading.written.model(reading.model).spiking
        state = only_states and (last.calls.name, False) in returned
        if (state and wanted != "spikes") or (spikes and wanted == "membrane"):
            raise refusal(
                f"what is read of '{last.calls.name}' is not what weights read of it; nearest: a last layer that no "
                "other reads, to whose state the currents of its own weights are added apart from others (v + fc(x) + "
                "rec(z))"
            )
        if wanted == "spikes" and not spikes:
            raise refusal(NEVER_SPIKES.format(last.calls.name))
        return "spikes" if spikes else "membrane"
    if not wanted:
        wanted = "membrane" if only_states else "spikes"
    if wanted == "spikes" and not reading.spiking:
        raise refusal(NEVER_SPIKES.format(last.calls.name))
    if wanted == "spikes":
        return "spikes"
    if not reading.spiking or reading.reset == "none" or reading.of_cells:
        return "membrane"
    return "membrane_of_spiking"


def needs_own_operations(last: TorchLayer, reads: str) -> bool:
    """Whether a model's neurons are not read so: both by their potential and by their own spikes, after the reset, as
    Norse and SpikingJelly have it, or before one at thresholds of their own."""
    reading, threshold = last.calls.reading, last.calls.reading.parameters.get("threshold")
    if reads == "spikes" or not reading.spiking or not reading.has_potential or reading.of_cells:
        return False
    apart = isinstance(threshold, tuple) or "threshold" in reading.learned
    resets = reads == "membrane_of_spiking"
    return bool(last.recurrent) or (resets and (apart or not neuron_key(last.calls.module).startswith("snntorch.")))


def read_over_time(
    recorded: Recorded, last: TorchLayer, reads: str, stepwise: bool, by_module: bool
) -> tuple[str, torch.Tensor | None]:
    """How what the module returned first reads its last layer over time, as of `reading_of`, '' where it took one
    timestep a call; and that: [batch, classes], or [timesteps, batch, classes], None where it returned nothing of it.
    by_module: whether that is what the loss is of; else any of what it returned may be the last layer's.

    Raises DescriptionError where it returned something else, as of some timesteps or classes."""
    calls, by_potential = last.calls, reads != "spikes" and last.calls.reading.has_potential
    outputs, spikes = (calls.states or calls.outputs, False) if by_potential else (calls.outputs, True)
    origins, made = recorded.returned, recorded.made_by_call
    of_output = [at for at, each in enumerate(origins) if (calls.name, spikes) in sources_in(each)]
    if not of_output:
        return recorded.reading, None
    every = calls.sequence(outputs)
    every = every.reshape(*every.shape[:2], -1, recorded.votes).mean(axis=-1)[recorded.burn_in :]
    planes = tuple(outputs[0].shape[1 + calls.in_time :])
    values = [_of_neurons(made[-1][at], planes) * divisor_of(origins[at]) for at in of_output]
    functions = functions_in(origins[of_output[0]])
    if stepwise:
        steps = torch.stack([_of_neurons(each[of_output[0]], planes) for each in made[-len(every) :]])
        values = [steps.reshape(every.shape) * divisor_of(origins[of_output[0]])]
    elif len(of_output) > 1 and all(each.shape == every.shape[1:] for each in values):
        # a list of all timesteps, the first of which may be a current as it is
        begun = [_of_neurons(made[-1][0], planes)] if len(of_output) == len(every) - 1 == len(origins) - 1 else []
        values = [torch.stack([*begun, *values])]
    read = [recorded.reading or reading_of(numbers_of(each), every, functions) for each in values]
    at = 0 if by_module else next((at for at, found in enumerate(read) if found), 0)
    if not read[at]:
        problem = (
            f"the output is neither all of what '{calls.name}' made nor a reading of it (its last, mean, highest or "
            "summed value over all timesteps); return one of these"
        )
        raise ReadingRefused(REFUSED_BY, [problem])
    ordered = _by_timestep(values[at], every) if read[at] == "every" else values[at].reshape(every.shape[1:])
    return recorded.reading if stepwise else read[at], ordered


def _by_timestep(values: torch.Tensor, every: np.ndarray) -> torch.Tensor:
    """All outputs as [timesteps, batch, classes], without the state that they begin with."""
    for axes in ((0, 1, 2), (1, 0, 2), (2, 0, 1)):
        ordered = values.permute(axes)[-len(every) :]
        if ordered.shape == every.shape and np.allclose(numbers_of(ordered), every, SAME, SAME):
            return ordered
    raise AssertionError("which reading_of has seen")


def _of_neurons(values: torch.Tensor, planes: tuple[int, ...]) -> torch.Tensor:
    """Values whose last axes are those of `planes`, if they are, with one axis of neurons instead."""
    return values.reshape(*values.shape[: -len(planes)], -1) if values.shape[-len(planes) :] == planes else values


def reading_of(returned: np.ndarray, outputs: np.ndarray, functions: Collection[str]) -> str:
    """How the outputs [timesteps, batch, classes] of a layer are read where a module returns this, made of them by
    these functions: "last", "mean", "sum", "max", "softmax" of the classes in every timestep, added up, and "mean
    softmax", "every" for all of them, '' for none of these."""
    readings = {
        "last": outputs[-1],
        "mean": outputs.mean(axis=0),
        "sum": outputs.sum(axis=0),
        "max": outputs.max(axis=0),
    }
    if "softmax" in functions:
        shares = softmax(outputs)
        readings = {"softmax": shares.sum(axis=0), "mean softmax": shares.mean(axis=0)}
    begun = np.pad(outputs, ((1, 0), (0, 0), (0, 0)))  # with the state that they begin with
    every = {"all": outputs, "all, by sample": outputs.swapaxes(0, 1), "all, time last": outputs.transpose(1, 2, 0)}
    every |= {"begun": begun, "begun, by sample": begun.swapaxes(0, 1)}
    said = {{"amax": "max", "add": "sum"}.get(each, each) for each in functions}  # several may agree on the example
    for name, values in sorted({**readings, **every}.items(), key=lambda each: each[0] not in said):
        same = values.shape == returned.shape and bool(
            np.abs(values - returned).max() <= SAME * max(float(np.abs(values).max()), SAME)
        )
        if same:
            return name if name in readings else "every"
    return ""


def objective(
    loss: str | Mapping[str, Any], recorded: Recorded, last: TorchLayer, by_membrane: bool, timesteps: int, reading: str
) -> dict[str, Any]:
    """Keys of [training] for the loss; by default the cross-entropy of what the module returns, by `reading`."""
    if not isinstance(loss, Mapping) and loss and loss not in LOSSES:
        raise refusal(f"loss '{loss}' is not known: write one of {', '.join(LOSSES)}, or keys of [training]")
    spikes = not (by_membrane and last.calls.reading.has_potential)
    ends = [each for each in returned_by(recorded, last) if (last.calls.name, spikes) in sources_in(each)]
    divisor = recorded.votes * divisor_of(next(iter(ends), None))
    votes: dict[str, Any] = {"logit_scale": 1 / divisor} if divisor != 1 else {}
    reduced = reading not in ("", "every")
    reading, averaged = reading.removeprefix("mean "), reading == "mean softmax"
    over_time = reading if reduced else "sum"
    if not reading:  # of a timestep, after which functions alone tell
        functions = set().union(*map(functions_in, returned_by(recorded, last)))
        over_time = next((each.removeprefix("a") for each in ("mean", "max", "amax") if each in functions), "sum")
    votes |= {"burn_in": recorded.burn_in} if recorded.burn_in else {}
    timesteps -= recorded.burn_in
    made = {"loss": "cross_entropy", "reading": over_time, **votes}
    if averaged or (not by_membrane and over_time == "mean"):
        made |= {"reading": "softmax" if averaged else "sum", "logit_scale": 1 / timesteps / divisor}
    if loss:
        given = dict(loss) if isinstance(loss, Mapping) else LOSSES[loss]
        wanted = given.get("reading", reading)
        if reduced and wanted != reading:
            raise refusal(
                f"what the module returns is {READINGS[reading]}, and this loss reads {READINGS.get(wanted, wanted)}; "
                "leave out loss, for the cross-entropy of what it returns, or return every timestep"
            )
        made = (made if reduced and "reading" not in given else votes) | given
    if recorded.log_softmax and made.get("loss", "cross_entropy") != "cross_entropy":
        raise refusal("the output goes through 'log_softmax', which only loss = 'cross_entropy' leaves as it is")
    if recorded.log_softmax:
        tell(
            "the output goes through 'log_softmax', which the cross-entropy has in it: mimdsim.torch_function returns "
            "what goes into it, so take cross_entropy of that in place of nll_loss"
        )
    counts, scale = made.get("loss") == "mean_squared_error", made.get("logit_scale", 0.0)
    of_rates = reduced and isinstance(loss, Mapping) and not {"reading", "logit_scale"} & loss.keys()
    if counts and of_rates and made["reading"] == "sum" and math.isclose(scale * timesteps * recorded.votes, 1.0):
        del made["logit_scale"]
        return made | {"reading": "mean"}
    if made.get("reading") == "last":
        made.pop("burn_in", None)
    if (counts and "logit_scale" in votes) or (made.get("reading") == "max" and recorded.votes > 1):
        raise refusal("counts, or the highest, of a mean of outputs have no loss here; nearest: 'ce_count_loss'")
    return made


def random_workload(values: np.ndarray, classes: int) -> dict[str, Any]:
    """A workload of random spikes, as frequent as those of the example, or of random numbers where that has others; the
    same in every timestep, if they are in the example."""
    steps, batch, inputs = values.shape
    table = random_table(inputs, classes)
    if np.isin(values, (0.0, 1.0)).all():
        table["data"] |= {"timesteps": steps, "activity": float(values.mean())}
    else:
        del table["data"]["activity"]
        steady = bool((values == values[0]).all())
        table["data"] |= {"timesteps": steps, "encoding": STEADY if steady else "values"}
        table["network"] = {"spikes": "dense"}
    table["data"] |= {"train_samples": 4 * batch, "test_samples": batch}
    table["training"]["batch"] = batch
    return table
