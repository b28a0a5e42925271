"""The cells: gated ones as PyTorch and their authors write them, and neurons that are not linear between spikes.

One record each, after the function that writes its equations; docs/neurons.md shows how to add one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError, near, suggest
from mimdsim.graph.cells import (
    OUTPUT,
    Cell,
    CellModel,
    Equations,
    Term,
    damped,
    detached,
    exponential,
    relu,
    sigmoid,
    tanh,
)
from mimdsim.graph.neuron_parts import Parameter, positive, potential

Terms = Mapping[str, Term]


def _gru(cell: Equations) -> Terms:
    r_in, z_in, n_in = cell.from_inputs()
    r_own, z_own, n_own = cell.from_itself()
    r, z = sigmoid(r_in + r_own), sigmoid(z_in + z_own)
    n = tanh(n_in + r * n_own)
    return {OUTPUT: n + z * (cell.before - n)}


def _lstm(cell: Equations) -> Terms:
    i, f, g, o = cell.gates()
    c = sigmoid(f) * cell.state("c") + sigmoid(i) * tanh(g)
    return {OUTPUT: sigmoid(o) * tanh(c), "c": c}


def _slstm(reset: str, cell: Equations) -> Terms:
    i, f, g, o = cell.gates()
    before, threshold, kept = cell.state("mem"), cell.value("threshold"), cell.p["memory"]
    syn = sigmoid(f) * cell.state("syn") + sigmoid(i) * tanh(g)
    mem = sigmoid(o) * tanh(syn)
    if reset != "none":
        fired = detached(cell.spike(before - threshold))
        mem = mem - fired * (threshold if reset == "subtract" else mem)
    left = {"syn": syn, "mem": mem} if kept == 1 else {"syn": kept * syn, "mem": kept * mem}
    return {OUTPUT: cell.sent(mem, threshold), **left}


def _egru(cell: Equations) -> Terms:
    z_in, r_in, g_in = cell.from_inputs()
    z_own, r_own, g_own = cell.from_itself()
    z, r = sigmoid(z_in + z_own), sigmoid(r_in + r_own)
    g = tanh(g_in + r * g_own)
    c, threshold = g + z * (cell.state("c") - g), cell.row("threshold")
    event = damped(cell.spike(c - threshold), cell.p["dampening"])
    return {OUTPUT: c * event, "c": c - event * threshold}


def _izhikevich(cell: Equations) -> Terms:
    p, (current,) = cell.p, cell.from_inputs()
    v, u = cell.state("v") + p["c"], cell.state("u") + p["b"] * p["c"]
    risen = v + p["dt"] * (0.04 * (v * v) + 5.0 * v + 140.0 - u + current)
    moved = u + (p["dt"] * p["a"]) * (p["b"] * v - u)
    spike = cell.spike(risen - p["v_peak"])
    return {
        OUTPUT: spike,
        "v": risen - spike * (risen - p["c"]) - p["c"],
        "u": moved + spike * p["d"] - p["b"] * p["c"],
    }


def _exponential_lif(cell: Equations) -> Terms:
    p, (current,) = cell.p, cell.from_inputs()
    v, held = cell.state("v"), cell.state("held")
    upswing = p["delta_t"] * exponential((v - p["v_rheobase"]) / p["delta_t"])
    free = v + (p["dt"] / p["tau"]) * (upswing - v + p["r"] * current)
    # in the timesteps of its refractory period a neuron keeps its potential: held counts them down to 0
    waits = detached(cell.spike(held - 0.5))
    risen = free + waits * (v - free)
    spike = cell.spike(risen - p["v_threshold"])
    return {
        OUTPUT: spike,
        "v": risen - spike * (risen - p["v_reset"]),
        "held": held - waits + detached(spike) * p["refractory"],
    }


CURRENT = "current"

CELLS = (
    CellModel(
        name=CURRENT,
        gates=1,
        equations=lambda cell: {OUTPUT: cell.from_inputs()[0]},
        equation="what is sent is the current",
        source="membrane shortcuts, as of MS-ResNet (Hu et al. 2021), which add currents up",
    ),
    CellModel(
        name="rnn",
        gates=1,
        recurrent=True,
        equations=lambda cell: {OUTPUT: tanh(*cell.gates())},
        equation="h = tanh(W I + b + R h + b')",
        source="PyTorch RNN, RNNCell with nonlinearity 'tanh' (Elman 1990)",
    ),
    CellModel(
        name="rnn_relu",
        gates=1,
        recurrent=True,
        equations=lambda cell: {OUTPUT: relu(*cell.gates())},
        equation="h = max(W I + b + R h + b', 0)",
        source="PyTorch RNN, RNNCell with nonlinearity 'relu' (Le, Jaitly & Hinton 2015)",
    ),
    CellModel(
        name="gru",
        gates=3,
        recurrent=True,
        equations=_gru,
        equation="r, z = s(W I + b + R h + b'); n = tanh(W I + b + r (R h + b')); h = (1 - z) n + z h",
        source="PyTorch GRU, GRUCell: gates r, z, n",
    ),
    CellModel(
        name="lstm",
        gates=4,
        recurrent=True,
        states=("c",),
        equations=_lstm,
        equation="i, f, o = s(W I + b + R h + b'); g = tanh(W I + b + R h + b'); c = f c + i g; h = o tanh(c)",
        source="PyTorch LSTM, LSTMCell: gates i, f, g, o",
    ),
    CellModel(
        name="egru",
        gates=3,
        recurrent=True,
        states=("c",),
        rows=("threshold",),
        parameters=(
            Parameter(
                name="threshold",
                default=0.3,
                unit="of c",
                meaning="where the trained thresholds start",
                low=0.0,
                high=1.0,
            ),
            Parameter(
                name="dampening", default=0.7, unit="1", meaning="factor of the surrogate", low=0.0, high=1e6
            ),
        ),
        equations=_egru,
        equation="gates as gru, of y; c = z c + (1 - z) g; e = c > threshold; y = e c; c = c - e threshold",
        source="EGRU, Subramoney et al. 2023 (arXiv 2206.06178), as in EvNN: gates z, r, g; surrogate 'triangular', "
        "slope 1; its authors draw the first thresholds from a beta distribution of mean 0.3",
        sparse=True,
    ),
    *(
        CellModel(
            name="slstm" if reset == "none" else f"slstm_{reset}",
            gates=4,
            recurrent=True,
            recurrent_of="mem",
            states=("syn", "mem"),
            parameters=(
                Parameter(
                    name="threshold", default=0.1, unit="of mem", meaning="a spike where mem is above it", low=0.0,
                    high=1e6,
                ),
                Parameter(
                    name="memory", default=1.0, unit="1", meaning="share of syn and mem that a timestep keeps", low=0.0,
                    high=1.0,
                ),
            ),
            learnable=("threshold",),
            equations=partial(_slstm, reset),
            equation=f"i, f, g, o as lstm, of mem; syn = f syn + i g; mem = o tanh(syn){then}; spike: mem > threshold",
            source=f"snnTorch SLSTM, reset_mechanism '{reset}'; its own threshold, 1, is one that mem never reaches",
            spiking=True,
            sparse=True,
        )
        for reset, then in (
            ("none", ""),
            ("subtract", " - threshold, the last after a spike"),
            ("zero", ", or 0 after a spike"),
        )
    ),
    CellModel(
        name="izhikevich",
        gates=1,
        states=("v", "u"),
        parameters=(
            Parameter(name="a", default=0.02, unit="per millisecond", meaning="rate of the recovery"),
            Parameter(name="b", default=0.2, unit="of the potential", meaning="recovery that a potential calls for"),
            potential("c", -65.0, "potential after a spike, and at first"),
            Parameter(name="d", default=8.0, unit="of the recovery", meaning="rise of the recovery per spike"),
            potential("v_peak", 30.0, "a spike where the potential is above it"),
            positive("dt", 1.0, "milliseconds", "width of a timestep"),
        ),
        equations=_izhikevich,
        equation="v = v + dt (0.04 v^2 + 5 v + 140 - u + I); u = u + dt a (b v - u); spike: v = c, u = u + d",
        source="Izhikevich 2003, IEEE TNN 14(6), one Euler step a timestep, v and u from before it; v starts at c",
        spiking=True,
        sparse=True,
    ),
    CellModel(
        name="exponential_lif",
        gates=1,
        states=("v", "held"),
        parameters=(
            positive("tau", 1e-2, "seconds", "time constant of the membrane"),
            positive("dt", 1e-3, "seconds", "width of a timestep"),
            positive("r", 1.0, "of potential per current", "resistance"),
            positive("delta_t", 0.2, "of the potential", "sharpness of the upswing"),
            potential("v_rheobase", 0.8, "where the upswing sets in"),
            potential("v_threshold", 1.0, "a spike where the potential is above it"),
            potential("v_reset", 0.0, "potential after a spike"),
            Parameter(
                name="refractory", default=0.0, unit="timesteps", meaning="that a neuron rests after a spike", low=0.0,
                high=1e6,
            ),
        ),
        equations=_exponential_lif,
        equation="v = v + dt/tau (delta_t e^((v - v_rheobase)/delta_t) - v + r I), held for `refractory` after a spike",
        source="Fourcaud-Trocme et al. 2003; norse ExponentialIF without its synaptic current",
        spiking=True,
        sparse=True,
    ),
)  # fmt: skip


def cells_by_name(records: Iterable[CellModel]) -> dict[str, CellModel]:
    """Cells by name; raises MappingError for duplicate names."""
    found: dict[str, CellModel] = {}
    for record in records:
        if record.name in found:
            raise MappingError(f"two cells are called '{record.name}': give the new one another name")
        found[record.name] = record
    return found


CELL_MODELS = cells_by_name(CELLS)


def cell_of(model: str | CellModel, parameters: Mapping[str, Any] | None = None) -> Cell:
    """The cells of a layer from a record or its name, and numbers for its parameters.

    Raises MappingError for unknown names and for numbers out of range.
    """
    if isinstance(model, str):
        if model not in CELL_MODELS:
            raise MappingError(
                f"network.neuron = {model!r} is no cell{near(model, list(CELL_MODELS))}; there are "
                f"{', '.join(CELL_MODELS)}"
            )
        model = CELL_MODELS[model]
    known = {parameter.name: parameter for parameter in model.parameters}
    given = dict(parameters or {})
    for name in given:
        if name not in known:
            raise MappingError(
                f"network.neuron_parameters.{name}: cell '{model.name}' has no such parameter"
                f"{suggest(name, known) or '; it has none'}"
            )
    values = {name: given.get(name, parameter.default) for name, parameter in known.items()}
    for name, value in values.items():
        low, high = known[name].low, known[name].high
        if np.ndim(value) or not low <= float(value) <= high:
            raise MappingError(
                f"network.neuron_parameters.{name} must be one number for the layer, {low:g} to {high:g} "
                f"({known[name].unit}: {known[name].meaning}); given {value}"
            )
    return Cell(of=model, values={name: float(value) for name, value in values.items()})
