"""The neurons of snnTorch 1.0.0, from reading and running its code. One record each: see neuron_models."""

from __future__ import annotations

from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.graph.neuron_parts import Model, Parts, decay, positive

Given = dict[str, Any]
BETA = decay("beta", 0.9, "what a timestep keeps of the membrane potential")
ALPHA = decay("alpha", 0.9, "what a timestep keeps of the synaptic current")
THRESHOLD = positive("threshold", 1.0, "of the potential", "a spike where the potential is above it")
ALL = ("subtract", "zero", "none")


def _leaky(p: Given) -> Parts:
    return Parts(matrix=[[p["beta"]]], drive=[1.0], threshold=p["threshold"])


def _rleaky(p: Given) -> Parts:
    return Parts(matrix=[[p["beta"]]], drive=[1.0], threshold=p["threshold"], zero_when="after")


def _lapicque(p: Given) -> Parts:
    step = p["time_step"] / (p["resistance"] * p["capacitance"])
    gain = p["time_step"] / p["capacitance"]
    return Parts(matrix=[[1.0 - step]], drive=[gain], threshold=p["threshold"], zero_when="after")


def _synaptic(p: Given) -> Parts:
    matrix = [[p["beta"], p["alpha"]], [0.0, p["alpha"]]]
    return Parts(matrix=matrix, drive=[1.0, 1.0], threshold=p["threshold"], zero_when="after")


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


SNNTORCH = (
    Model(
        name="leaky",
        states=("potential",),
        parameters=(BETA, THRESHOLD),
        resets=ALL,
        parts=_leaky,
        equation="v = beta v + I; subtract: - threshold, not decayed; zero: v before the integration",
        source="snnTorch Leaky, reset_delay=True; defaults of its tutorials",
    ),
    Model(
        name="rleaky",
        states=("potential",),
        parameters=(BETA, THRESHOLD),
        resets=ALL,
        parts=_rleaky,
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
        parts=_synaptic,
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
)
