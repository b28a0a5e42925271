"""The published leaky integrate-and-fire neuron, adaptation as published, and the neurons of NIR 1.0.8 and
SpikingJelly 2.0.0. One record each: see neuron_models."""

from __future__ import annotations

from typing import Any

import numpy as np

from mimdsim.graph.neuron_parts import Model, Parameter, Parts, decay, positive, potential

Given = dict[str, Any]
BETA = decay("beta", 0.9, "what a timestep keeps of the membrane potential")
THRESHOLD = positive("threshold", 1.0, "of the potential", "a spike where the potential is above it")
DT = positive("dt", 1e-3, "seconds", "width of a timestep")
V_LEAK = potential("v_leak", 0.0, "resting potential")
V_RESET = potential("v_reset", 0.0, "potential after a reset to zero")
V_THRESHOLD = potential("v_threshold", 1.0, "a spike where the potential is above it")
ALL = ("subtract", "zero", "none")
TAU_MEM = positive("tau_mem", 1e-2, "seconds", "time constant of the membrane")
TAU_SYN = positive("tau_syn", 5e-3, "seconds", "time constant of the synaptic current")
R = positive("r", 1.0, "of potential per current", "resistance")
W_IN = Parameter(name="w_in", default=1.0, unit="of current per input", meaning="input weight")


def _published_lif(p: Given) -> Parts:
    return Parts(matrix=[[p["decay"]]], drive=[(1.0 - p["decay"]) * p["current_gain"]], threshold=p["threshold"])


LIF = Model(
    name="lif",
    states=("potential",),
    parameters=(
        decay("decay", 0.95, "what a timestep keeps of the membrane potential"),
        Parameter(
            name="current_gain",
            default=10.0,
            unit="of potential per current",
            meaning="gain of the current",
            low=1e-37,  # about the smallest normal float32
            high=1e38,
        ),
        positive("threshold", 1.0, "of the potential", "a spike where the potential is above it"),
    ),
    resets=("zero", "subtract", "none"),
    reset_gradient="pass",
    parts=_published_lif,
    equation="v = decay v + (1 - decay) current_gain I; zero: v before the integration; subtract: not decayed",
    source="Finkbeiner et al. 2024; its code with reset 'zero' by state, reset gradient 'pass' or 'mask'",
    published=True,
)


def _adaptive(p: Given) -> Parts:
    return Parts(
        matrix=[[p["beta"], 0.0], [0.0, p["rho"]]],
        drive=[1.0, 0.0],
        threshold=p["threshold"],
        readout=[1.0, -np.asarray(p["kappa"])],
        jumps=[0.0, 1.0 / np.asarray(p["rho"])],  # a[t] = rho a[t-1] + fired[t-1]
    )


def _spikingjelly_lif(p: Given) -> Parts:
    leak = 1.0 / p["tau"]
    gain = np.where(np.asarray(p["decay_input"]) > 0, leak, 1.0)
    threshold = p["v_threshold"] - p["v_reset"]  # potentials are relative to v_reset, to which they decay
    return Parts(
        matrix=[[1.0 - leak]], drive=[gain], threshold=threshold, subtracts=p["v_threshold"], subtract_decays=True
    )


def _integrate(p: Given) -> Parts:
    return Parts(
        matrix=[[1.0]], drive=[p["r"]], threshold=p["v_threshold"], reset_value=p["v_reset"], subtract_decays=True
    )


def _lif(p: Given) -> Parts:
    step = p["dt"] / p["tau"]
    return Parts(
        matrix=[[1.0 - step]],
        drive=[p["r"] * step],
        threshold=p["v_threshold"] - p["v_leak"],
        reset_value=p["v_reset"] - p["v_leak"],
        subtracts=p["v_threshold"],
    )


def _li(p: Given) -> Parts:
    step = p["dt"] / p["tau"]
    return Parts(matrix=[[1.0 - step]], drive=[p["r"] * step], offset=p["v_leak"])


def _cuba(p: Given) -> tuple[list[list[Any]], list[Any]]:
    step, synapse = p["dt"] / p["tau_mem"], p["dt"] / p["tau_syn"]
    gain = step * p["r"]
    return [[1.0 - step, gain * (1.0 - synapse)], [0.0, 1.0 - synapse]], [
        gain * synapse * p["w_in"],
        synapse * p["w_in"],
    ]


def _cuba_lif(p: Given) -> Parts:
    matrix, drive = _cuba(p)
    return Parts(
        matrix=matrix,
        drive=drive,
        threshold=p["v_threshold"] - p["v_leak"],
        reset_value=p["v_reset"] - p["v_leak"],
        subtracts=p["v_threshold"],
    )


def _cuba_li(p: Given) -> Parts:
    matrix, drive = _cuba(p)
    return Parts(matrix=matrix, drive=drive, offset=p["v_leak"])


OTHERS = (
    Model(
        name="adaptive",
        states=("potential", "adaptation"),
        parameters=(
            BETA,
            Parameter(
                name="rho",
                default=0.97,
                unit="per timestep",
                meaning="what is kept of adaptation",
                low=1e-6,
                high=1.0,
            ),
            Parameter(name="kappa", default=0.07, unit="of the potential", meaning="rise of threshold per spike"),
            THRESHOLD,
        ),
        resets=ALL,
        parts=_adaptive,
        equation="v = beta v + I - threshold fired; a = rho a + fired; fires if v > threshold + kappa a",
        source="Bellec et al. 2020 (e-prop), ALIF; rho and kappa for 1 ms and 30 ms are assumed",
    ),
    Model(
        name="spikingjelly_lif",
        states=("potential",),
        parameters=(
            positive("tau", 2.0, "timesteps", "time constant of the membrane"),
            Parameter(
                name="decay_input", default=1.0, unit="0 or 1", meaning="input divided by tau", low=0.0, high=1.0
            ),
            V_THRESHOLD,
            V_RESET,
        ),
        resets=("zero", "subtract", "none"),
        parts=_spikingjelly_lif,
        equation="v = v - (v - v_reset)/tau + I (/tau); subtract: - v_threshold before the integration",
        source="SpikingJelly LIFNode, which fires at v >= threshold (reset gradient 'full'; detach_reset: 'mask')",
    ),
    Model(
        name="if",
        states=("potential",),
        parameters=(R, V_THRESHOLD, V_RESET),
        resets=("zero", "subtract", "none"),
        parts=_integrate,
        equation="v = v + r I",
        source="NIR IF; norse IAFCell, SpikingJelly IFNode",
    ),
    Model(
        name="nir_lif",
        states=("potential",),
        parameters=(positive("tau", 1e-2, "seconds", TAU_MEM.meaning), R, V_LEAK, V_THRESHOLD, V_RESET, DT),
        resets=("zero", "subtract", "none"),
        parts=_lif,
        equation="v = v + dt/tau (v_leak - v + r I); zero: v_reset before the integration",
        source="NIR LIF, Euler with dt; subtract as snnTorch (not decayed)",
    ),
    Model(
        name="cuba_lif",
        states=("potential", "current"),
        parameters=(TAU_SYN, TAU_MEM, R, W_IN, V_LEAK, V_THRESHOLD, V_RESET, DT),
        resets=("zero", "subtract", "none"),
        parts=_cuba_lif,
        equation="i = i + dt/tau_syn (w_in I - i); v = v + dt/tau_mem (v_leak - v + r i), of the new i",
        source="NIR CubaLIF, Euler with dt in the order of snnTorch Synaptic",
    ),
    Model(
        name="li",
        states=("potential",),
        parameters=(positive("tau", 1e-2, "seconds", TAU_MEM.meaning), R, V_LEAK, DT),
        resets=("none",),
        parts=_li,
        equation="v = v + dt/tau (v_leak - v + r I), no spikes",
        source="NIR LI",
        spiking=False,
    ),
    Model(
        name="cuba_li",
        states=("potential", "current"),
        parameters=(TAU_SYN, TAU_MEM, R, W_IN, V_LEAK, DT),
        resets=("none",),
        parts=_cuba_li,
        equation="i = i + dt/tau_syn (w_in I - i); v = v + dt/tau_mem (v_leak - v + r i), no spikes",
        source="NIR CubaLI; norse LI integrates its current before decaying it: norse_lif without reset",
        spiking=False,
    ),
)
