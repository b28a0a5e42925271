"""Constants of a timestep from the equations of NIR, which are in continuous time and do not define a timestep.

Frameworks write tau = dt / (1 - decay) and r = tau / dt, so dt = tau / r gives their network back (Euler). A file with
r = 1 everywhere does not determine dt (Norse writes such files). A neuron without tau (IF) and with r = 1 sums its
input unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from mimdsim.workload.interchange.model_file import RESETS, Dynamics, Reset
from mimdsim.workload.interchange.nir_nodes import NirNode, NodeProblem, Reals

Leak = Literal["euler", "exp"]
TIMED = frozenset({"LI", "LIF", "CubaLI", "CubaLIF"})  # have time constants
SAME_DT = 1e-4  # assumed: tau and r are stored as float32, and 1 - decay has lost some digits
USUAL = ((1e-3, "Norse"), (1e-4, "snnTorch, Rockpool"), (1e-6, "fine timesteps of others"))  # dt that frameworks use
SHORT = (
    0.5  # of the shortest time constant: a longer timestep is not suggested, because little of the state would remain
)
SNAP = 1e-6  # a gain this close to 1 was 1 before tau and r were rounded


@dataclass(frozen=True, kw_only=True)
class Discretisation:
    """How neurons are made discrete. dt_seconds 0: from the file. leak 'euler': decay 1 - dt/tau, 'exp': exp(-dt/tau),
    the input is multiplied by r dt/tau in both. reset 'file': to v_reset, refused where a node has none."""

    dt_seconds: float = 0.0
    leak: Leak = "euler"
    reset: Reset | Literal["file"] = "file"


def dt_of_file(neurons: dict[str, NirNode]) -> tuple[float, list[str]]:
    """(tau / r of the neurons that determine it, else 0; problems if they disagree)."""
    told: dict[str, tuple[float, float]] = {}
    for name, node in neurons.items():
        tau = node.arrays.get("tau", node.arrays.get("tau_mem"))
        r = node.arrays.get("r")
        if tau is None or r is None or np.all(r == 1) or not (np.all(np.isfinite(tau)) and np.all(np.isfinite(r))):
            continue
        if tau.size != r.size and 1 not in (tau.size, r.size):
            continue  # such a value is refused, by name, when the number of neurons is known
        if np.all(r > 0) and np.all(tau > 0):
            ratio = tau.reshape(-1) / r.reshape(-1)
            told[name] = float(ratio.min()), float(ratio.max())
    if not told:
        return 0.0, []
    low = min(told, key=lambda name: told[name][0])
    high = max(told, key=lambda name: told[name][1])
    if told[high][1] > told[low][0] * (1 + SAME_DT):
        return 0.0, [
            f"neurons imply different timesteps: tau/r is {told[low][0]:.6g} s in '{low}' and {told[high][1]:.6g} s "
            f"in '{high}'; give one, --dt {told[low][0]:.3g}"
        ]
    return float(np.median([value for pair in told.values() for value in pair])), []


def dynamics_of(node: NirNode, neurons: int, dt: float, how: Discretisation) -> Dynamics:
    """The constants of a node for `neurons` neurons and a timestep of `dt` seconds (0: not known)."""
    given = {name: _per_neuron(name, values, neurons) for name, values in node.arrays.items()}
    for name, values in given.items():
        if not np.all(np.isfinite(values)):
            raise NodeProblem(f"'{name}' holds values that are not finite")
    zeros, ones = np.zeros(neurons), np.ones(neurons)
    if node.kind == "Threshold":
        return Dynamics(decay=zeros, gain=ones, rest=zeros, threshold=given["threshold"])
    if node.kind == "IF":
        gain = ones if np.all(given["r"] == 1) else _snap_to_one(given["r"] * _checked_dt(dt, None))
        return _firing(Dynamics(decay=ones, gain=gain, rest=zeros), node, given, how)
    name = "tau" if "tau" in given else "tau_mem"
    decay, share = _leak(name, given[name], dt, how)
    made = Dynamics(decay=decay, gain=_snap_to_one(given["r"] * share), rest=given["v_leak"])
    if "tau_syn" in given:
        synapse_decay, synapse_share = _leak("tau_syn", given["tau_syn"], dt, how)
        synapse_gain = _snap_to_one(given.get("w_in", ones) * synapse_share)
        made = replace(made, synapse_decay=synapse_decay, synapse_gain=synapse_gain)
    return _firing(made, node, given, how)


def _leak(name: str, tau: Reals, dt: float, how: Discretisation) -> tuple[Reals, Reals]:
    """(decay, dt / tau)"""
    if np.any(tau <= 0):
        raise NodeProblem(f"'{name}' is {tau.min():g} s; a time constant is positive")
    share = _checked_dt(dt, tau) / tau
    if how.leak == "exp":
        return np.exp(-share), share
    if np.any(share > 1 + SAME_DT):
        raise NodeProblem(
            f"a timestep of {dt:.4g} s is longer than '{name}', {tau.min():.4g} s, so the neuron would oscillate; "
            f"give --leak exp, or a shorter one, {suggest_timestep(tau)}"
        )
    return np.maximum(1 - share, 0.0), share


def _firing(made: Dynamics, node: NirNode, given: dict[str, Reals], how: Discretisation) -> Dynamics:
    """`made` with the threshold and reset of the node, if it has a threshold."""
    if "v_threshold" not in given:
        return made
    threshold = given["v_threshold"]
    reset = node.metadata.get("reset", "file") if how.reset == "file" else how.reset
    if reset == "file" and "v_reset" not in given:
        raise NodeProblem(
            "has no 'v_reset', as files of old versions of NIR, which do not say whether a spike subtracts the "
            "threshold or resets to zero; give --reset zero or --reset subtract"
        )
    known = "zero" if reset == "file" else next((name for name in RESETS if name == reset), None)
    if known is None:
        raise NodeProblem(f"its metadata say reset '{reset}'; known are {', '.join(RESETS)}; give --reset")
    value = given.get("v_reset", np.zeros_like(threshold)) if known in ("zero", "zero_after") else None
    return replace(made, threshold=threshold, reset=known, reset_value=value)


def _per_neuron(name: str, values: Reals, neurons: int) -> Reals:
    if values.size not in (1, neurons):
        raise NodeProblem(f"'{name}' has {values.size} values for {neurons} neurons")
    return np.broadcast_to(values.reshape(-1), (neurons,)).copy()


def _checked_dt(dt: float, tau: Reals | None) -> float:
    if dt <= 0:
        raise NodeProblem(
            "the file does not determine the timestep (r is 1); give that of the program that wrote it, in seconds, "
            f"{suggest_timestep(tau)}"
        )
    return dt


def suggest_timestep(tau: Reals | None) -> str:
    """'e.g. --dt 0.0001 (snnTorch, Rockpool)': timesteps well below the time constants, and why they have to be."""
    if tau is None:
        return f"e.g. --dt {USUAL[1][0]:g} ({USUAL[1][1]})"
    shortest = float(tau.min())
    fitting = [f"--dt {dt:g} ({who})" for dt, who in USUAL if dt <= SHORT * shortest] or [f"--dt {shortest / 10:.0e}"]
    why = f"a timestep as long as the time constant, {shortest:.3g} s, leaves decay 0: nothing would be remembered"
    return f"e.g. {' or '.join(fitting)}; {why}"


def ambiguities_of(node: NirNode, dynamics: Dynamics, how: Discretisation) -> list[str]:
    """Notes on values that were taken as given by the file or the user but are often meant differently."""
    found = []
    decays = [dynamics.decay, *([] if dynamics.synapse_decay is None else [dynamics.synapse_decay])]
    if how.dt_seconds and node.kind in TIMED and any(np.any(decay <= 0) for decay in decays):
        found.append(
            f"decay 0, as --dt {how.dt_seconds:g} is the time constant itself: nothing is remembered from one "
            "timestep to the next. Unless it was built that way (beta = 0), give the timestep of the program that "
            "wrote the file, often 1e-4 or 1e-6"
        )
    told = how.reset != "file" or "reset" in node.metadata
    if dynamics.reset == "zero" and not told and not np.any(dynamics.reset_value):
        found.append(
            "a spike resets to zero, as the file says; snnTorch also writes this for neurons that subtract their "
            "threshold, its default: if they do, give --reset subtract"
        )
    return found


def _snap_to_one(gain: Reals) -> Reals:
    return np.where(np.abs(gain - 1) < SNAP, 1.0, gain)
