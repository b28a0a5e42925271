"""A layer of linear neurons run alone over time, forward and backward, in float64: what a module is compared with."""

from __future__ import annotations

import numpy as np

from mimdsim.graph import OPERATIONS
from mimdsim.graph.linear_neurons import Gradient, LinearNeuron
from mimdsim.graph.surrogates import SURROGATES

MOST_STEPS = 8  # a current reaches the potential within as many timesteps as there are states, less one


def run_neuron(neuron: LinearNeuron, currents: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(spikes, what is compared with the threshold, states [timesteps, states, batch, neurons]), from a state of 0."""
    neuron_step = OPERATIONS["neuron"].evaluate
    x = np.zeros((len(neuron.states), *currents.shape[1:]))
    fired = np.zeros(currents.shape[1:], bool)
    spikes, potentials = np.zeros_like(currents), np.zeros_like(currents)
    states = np.zeros((len(currents), *x.shape))
    for t, current in enumerate(currents):
        x, potentials[t] = neuron_step(neuron, x, current, fired)
        states[t] = x
        spikes[t] = fired = potentials[t] > neuron.threshold
    return spikes, potentials, states


def gradient_of_currents(
    neuron: LinearNeuron, currents: np.ndarray, weight: np.ndarray, surrogate: str, slope: float
) -> np.ndarray:
    """The gradient by the currents of sum(weight * spikes), or without a surrogate of sum(weight * potentials)."""
    spikes, potentials, states = run_neuron(neuron, currents)
    full = neuron.resets and neuron.reset_gradient == "full"
    matrix, drive = neuron.differs
    about = Gradient(
        neuron=neuron,
        switched=neuron.resets and neuron.reset_gradient != "pass",
        reads_state=full and matrix,
        reads_current=full and drive,
        of_fired=full,
    )
    gradient = np.zeros_like(currents)
    dx, of_fired = np.zeros_like(states[0]), np.zeros(currents.shape[1:])
    for t in reversed(range(len(currents))):
        du = weight[t]
        if surrogate:
            du = (du + of_fired) * SURROGATES[surrogate].derivative(potentials[t] - neuron.threshold, np.float64(slope))
        (dx,) = OPERATIONS["neuron_readout_gradient"].evaluate(neuron, dx, du)
        fired = spikes[t - 1] > 0 if t else np.zeros(currents.shape[1:], bool)
        before = states[t - 1] if t else np.zeros_like(states[0])
        given = [fired] if about.switched else []
        given += [before] if about.reads_state else []
        given += [currents[t]] if about.reads_current else []
        dx, gradient[t], *rest = OPERATIONS["neuron_gradient"].evaluate(about, dx, *given)
        of_fired = rest[0] if rest else of_fired
    return gradient


def impulse(neuron: LinearNeuron) -> tuple[int, float]:
    """(timesteps until a current reaches the potential, what a current of 1 adds to it then)."""
    currents = np.zeros((MOST_STEPS, 1, neuron.neurons))
    quiet = run_neuron(neuron, currents)[1]
    currents[0] = 1e-9  # too little to fire
    response = (run_neuron(neuron, currents)[1] - quiet)[:, 0, 0] / 1e-9
    after = int(np.argmax(np.abs(response) > 1e-6))
    return after, float(response[after])
