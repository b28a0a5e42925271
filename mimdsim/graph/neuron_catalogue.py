"""The neuron models: the published leaky integrate-and-fire neuron, adaptation as published, and those of snnTorch
1.0.0, norse 1.1.0, NIR 1.0.8 and SpikingJelly 2.0.0, from reading and running their code. One record each, see
`neuron_models`, after the function that makes its parts where these are more than one expression.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.graph.neuron_parts import Model, Parameter, Parts, decay, positive, potential

Given = dict[str, Any]
ALL = ("subtract", "zero", "none")
BETA = decay("beta", 0.9, "what a timestep keeps of the membrane potential")
ALPHA = decay("alpha", 0.9, "what a timestep keeps of the synaptic current")
THRESHOLD = positive("threshold", 1.0, "of the potential", "a spike where the potential is above it")
DT = positive("dt", 1e-3, "seconds", "width of a timestep")
V_LEAK = potential("v_leak", 0.0, "resting potential")
V_RESET = potential("v_reset", 0.0, "potential after a reset to zero")
V_THRESHOLD = potential("v_threshold", 1.0, "a spike where the potential is above it")
DECAY_INPUT = Parameter(
    name="decay_input", default=1.0, unit="0 or 1", meaning="input divided by tau", low=0.0, high=1.0
)
TAU = positive("tau", 1e-2, "seconds", "time constant of the membrane")
TAU_MEM = positive("tau_mem", 1e-2, "seconds", "time constant of the membrane")
TAU_SYN = positive("tau_syn", 5e-3, "seconds", "time constant of the synaptic current")
R = positive("r", 1.0, "of potential per current", "resistance")
W_IN = Parameter(name="w_in", default=1.0, unit="of current per input", meaning="input weight")
NORSE = (
    positive("tau_mem_inv", 100.0, "per second", "inverse time constant of the membrane"),
    V_LEAK,
    potential("v_th", 1.0, "a spike where the potential is above it"),
    V_RESET,
    DT,
)
TAU_SYN_INV = positive("tau_syn_inv", 200.0, "per second", "inverse time constant of the synaptic current")


def _lapicque(p: Given) -> Parts:
    step = p["time_step"] / (p["resistance"] * p["capacitance"])
    gain = p["time_step"] / p["capacitance"]
    return Parts(matrix=[[1.0 - step]], drive=[gain], threshold=p["threshold"], zero_when="after")


def _alpha(p: Given) -> Parts:
    alpha, beta = p["alpha"], p["beta"]
    if not np.all((np.asarray(alpha) > beta) & (np.asarray(beta) > 0) & (np.asarray(alpha) < 1)):
        raise MappingError("network.neuron_parameters: model 'alpha' needs 0 < beta < alpha < 1")
    tau = np.log(alpha) / (np.log(beta) - np.log(alpha)) + 1.0
    excited, inhibited = [0.0, alpha, 0.0], [0.0, 0.0, beta]
    # a spike takes the threshold off the excitation, clears the inhibition and adds its last value to the potential
    subtracted = (
        [[0.0, tau * alpha, tau * beta + 1.0], excited, [0.0, 0.0, 0.0]],
        [0.0, 1.0, 0.0],
        [0.0, -np.asarray(p["threshold"]), 0.0],
    )
    return Parts(
        matrix=[[0.0, tau * alpha, tau * beta], excited, inhibited],
        drive=[0.0, 1.0, -1.0],
        threshold=p["threshold"],
        zeroed=(0, 1, 2),
        zero_when="after",
        subtracted=subtracted,
    )


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


def _spikingjelly(p: Given, leak: Any) -> Parts:
    gain = np.where(np.asarray(p["decay_input"]) > 0, leak, 1.0)
    threshold = p["v_threshold"] - p["v_reset"]  # potentials are relative to v_reset, to which they decay
    return Parts(
        matrix=[[1.0 - leak]], drive=[gain], threshold=threshold, subtracts=p["v_threshold"], subtract_decays=True
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
        THRESHOLD,
    ),
    resets=("zero", "subtract", "none"),
    reset_gradient="pass",
    parts=lambda p: Parts(
        matrix=[[p["decay"]]], drive=[(1.0 - p["decay"]) * p["current_gain"]], threshold=p["threshold"]
    ),
    equation="v = decay v + (1 - decay) current_gain I; zero: v before the integration; subtract: not decayed",
    source="Finkbeiner et al. 2024; its code with reset 'zero' by state, reset gradient 'pass' or 'mask'",
    published=True,
)

CATALOGUE = (
    LIF,
    Model(
        name="leaky",
        states=("potential",),
        parameters=(BETA, THRESHOLD),
        resets=ALL,
        parts=lambda p: Parts(matrix=[[p["beta"]]], drive=[1.0], threshold=p["threshold"]),
        equation="v = beta v + I; subtract: - threshold, not decayed; zero: v before the integration",
        source="snnTorch Leaky, reset_delay=True; defaults of its tutorials",
    ),
    Model(
        name="rleaky",
        states=("potential",),
        parameters=(BETA, THRESHOLD),
        resets=ALL,
        parts=lambda p: Parts(matrix=[[p["beta"]]], drive=[1.0], threshold=p["threshold"], zero_when="after"),
        equation="v = beta v + I; subtract: - threshold, not decayed; zero: v after the integration, I is lost",
        source="snnTorch RLeaky (give the layer a recurrence)",
    ),
    Model(
        name="lapicque",
        states=("potential",),
        parameters=(
            positive("resistance", 5.1, "ohm", "membrane resistance"),
            positive("capacitance", 5.0, "farad", "membrane capacitance"),
            positive("time_step", 1.0, "seconds", "width of a timestep"),
            THRESHOLD,
        ),
        resets=ALL,
        parts=_lapicque,
        equation="v = (1 - time_step/RC) v + time_step/C I; zero: v after the integration, I is lost",
        source="snnTorch Lapicque",
    ),
    Model(
        name="synaptic",
        states=("potential", "current"),
        parameters=(ALPHA, decay("beta", 0.8, BETA.meaning), THRESHOLD),
        resets=ALL,
        parts=lambda p: Parts(
            matrix=[[p["beta"], p["alpha"]], [0.0, p["alpha"]]],
            drive=[1.0, 1.0],
            threshold=p["threshold"],
            zero_when="after",
        ),
        equation="i = alpha i + I; v = beta v + i; zero: v after the integration, i stays",
        source="snnTorch Synaptic, RSynaptic",
    ),
    Model(
        name="alpha",
        states=("potential", "excitation", "inhibition"),
        parameters=(
            decay("alpha", 0.9, "what a timestep keeps of the excitation"),
            decay("beta", 0.8, "what a timestep keeps of the inhibition"),
            THRESHOLD,
        ),
        resets=("zero", "subtract", "none"),
        parts=_alpha,
        equation="e = alpha e + I; n = beta n - I; v = tau (e + n), tau = ln alpha/(ln beta - ln alpha) + 1",
        source="snnTorch Alpha: 'zero' clears all three states, 'subtract' as its code does (not its formula)",
    ),
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
        parts=lambda p: Parts(
            matrix=[[p["beta"], 0.0], [0.0, p["rho"]]],
            drive=[1.0, 0.0],
            threshold=p["threshold"],
            readout=[1.0, -np.asarray(p["kappa"])],
            jumps=[0.0, 1.0 / np.asarray(p["rho"])],  # a[t] = rho a[t-1] + fired[t-1]
        ),
        equation="v = beta v + I - threshold fired; a = rho a + fired; fires if v > threshold + kappa a",
        source="Bellec et al. 2020 (e-prop), ALIF; rho and kappa for 1 ms and 30 ms are assumed",
    ),
    Model(
        name="spikingjelly_lif",
        states=("potential",),
        parameters=(
            positive("tau", 2.0, "timesteps", "time constant of the membrane"),
            DECAY_INPUT,
            V_THRESHOLD,
            V_RESET,
        ),
        resets=("zero", "subtract", "none"),
        parts=lambda p: _spikingjelly(p, 1.0 / p["tau"]),
        equation="v = v - (v - v_reset)/tau + I (/tau); subtract: - v_threshold before the integration",
        source="SpikingJelly LIFNode, which fires at v >= threshold (reset gradient 'full'; detach_reset: 'mask')",
    ),
    Model(
        name="spikingjelly_plif",
        states=("potential",),
        parameters=(
            Parameter(
                name="share",
                default=0.5,
                unit="per timestep",
                meaning="inverse time constant of the membrane",
                low=1e-6,
                high=1.0 - 1e-6,
                link="sigmoid",
            ),
            DECAY_INPUT,
            V_THRESHOLD,
            V_RESET,
        ),
        resets=("zero", "subtract", "none"),
        parts=lambda p: _spikingjelly(p, p["share"]),
        equation="v = v - share (v - v_reset) + I (share); subtract: - v_threshold before the integration",
        source="SpikingJelly ParametricLIFNode, whose share is a sigmoid of what it learns (network.learned)",
    ),
    Model(
        name="if",
        states=("potential",),
        parameters=(R, V_THRESHOLD, V_RESET),
        resets=("zero", "subtract", "none"),
        parts=lambda p: Parts(
            matrix=[[1.0]], drive=[p["r"]], threshold=p["v_threshold"], reset_value=p["v_reset"], subtract_decays=True
        ),
        equation="v = v + r I",
        source="NIR IF; norse IAFCell, SpikingJelly IFNode",
    ),
    Model(
        name="nir_lif",
        states=("potential",),
        parameters=(TAU, R, V_LEAK, V_THRESHOLD, V_RESET, DT),
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
        parameters=(TAU, R, V_LEAK, DT),
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
