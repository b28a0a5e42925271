"""The neurons of norse 1.1.0, from reading and running its code. One record each: see neuron_models."""

from __future__ import annotations

from typing import Any

from mimdsim.graph.neuron_parts import Model, Parameter, Parts, positive, potential

Given = dict[str, Any]
DT = positive("dt", 1e-3, "seconds", "width of a timestep")
V_LEAK = potential("v_leak", 0.0, "resting potential")
V_RESET = potential("v_reset", 0.0, "potential after a reset to zero")
NORSE = (
    positive("tau_mem_inv", 100.0, "per second", "inverse time constant of the membrane"),
    V_LEAK,
    potential("v_th", 1.0, "a spike where the potential is above it"),
    V_RESET,
    DT,
)
TAU_SYN_INV = positive("tau_syn_inv", 200.0, "per second", "inverse time constant of the synaptic current")


def _norse_lif(p: Given) -> Parts:
    a, s = p["dt"] * p["tau_mem_inv"], p["dt"] * p["tau_syn_inv"]
    matrix = [[1.0 - a, a], [0.0, 1.0 - s]]
    return Parts(
        matrix=matrix, drive=[a, 1.0 - s], threshold=p["v_th"] - p["v_leak"], reset_value=p["v_reset"] - p["v_leak"]
    )


def _norse_lif_box(p: Given) -> Parts:
    a = p["dt"] * p["tau_mem_inv"]
    return Parts(
        matrix=[[1.0 - a]],
        drive=[a],
        threshold=p["v_th"] - p["v_leak"],
        reset_value=p["v_reset"] - p["v_leak"],
        subtracts=p["v_th"],
        subtract_decays=True,
    )


def _norse_lsnn(p: Given) -> Parts:
    a, s, b = (p["dt"] * p[name] for name in ("tau_mem_inv", "tau_syn_inv", "tau_adapt_inv"))
    return Parts(
        matrix=[[1.0 - a, a, 0.0], [0.0, 1.0 - s, 0.0], [0.0, 0.0, 1.0 - b]],
        drive=[0.0, 1.0, 0.0],
        threshold=p["v_th"] - p["v_leak"],
        readout=[1.0, 0.0, -1.0],
        reset_value=p["v_reset"] - p["v_leak"],
        jumps=[0.0, 0.0, p["beta"]],
    )


NORSE_MODELS = (
    Model(
        name="norse_lif",
        states=("potential", "current"),
        parameters=(TAU_SYN_INV, *NORSE),
        resets=("zero", "none"),
        parts=_norse_lif,
        equation="i = i + I; v = v + dt tau_mem_inv (v_leak - v + i); i = (1 - dt tau_syn_inv) i",
        source="norse LIF, LIFCell (reset gradient 'full'), LIFRecurrent ('mask')",
    ),
    Model(
        name="norse_lif_box",
        states=("potential",),
        parameters=NORSE,
        resets=("zero", "subtract", "none"),
        parts=_norse_lif_box,
        equation="v = v + dt tau_mem_inv (v_leak - v + I); subtract: - v_th before the integration",
        source="norse LIFBoxCell (reset gradient 'full')",
    ),
    Model(
        name="norse_lsnn",
        states=("potential", "current", "adaptation"),
        parameters=(
            TAU_SYN_INV,
            positive("tau_adapt_inv", 1 / 800, "per second", "inverse time constant of the adaptation"),
            *NORSE,
            Parameter(name="beta", default=1.8, unit="of the potential", meaning="rise of the threshold per spike"),
        ),
        resets=("zero", "none"),
        parts=_norse_lsnn,
        equation="v = v + dt tau_mem_inv (v_leak - v + i); i = (1 - dt tau_syn_inv) i + I; b as threshold",
        source="norse LSNN (reset gradient 'full'), LSNNRecurrent ('mask')",
    ),
)
