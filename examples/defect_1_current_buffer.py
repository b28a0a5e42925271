"""A published defect as a user's codelet: the current buffer of two elements, indexed by the absolute neuron number.

`LIFStateUpdateInPlaceMultiNeuronSIMD` of github.com/jrfinkbeiner/graphcore_snn leaves its buffer as soon as a tile has
more than two neurons. Try:

    mimdsim check digits bow --program examples/defect_1_current_buffer.py --set mapping.neurons_per_tile=4
"""

import dataclasses

import numpy as np

from mimdsim.checking.program import Subject
from mimdsim.codelets.neurons import LIF_UPDATE
from mimdsim.program import Program


def lif_update(v, w, ids, counts, sample, start, stop, decay, scale, threshold):
    """One vertex: v [neurons], w [fan_in, neurons], ids [capacity], counts [2]; writes v in place."""
    current = np.zeros(2, np.float32)
    for spike in ids[: counts[0]]:
        for neuron in range(start, stop):
            current[neuron] += w[spike, neuron - start]  # the defect: neuron counts from the layer's first
    kept = np.where(v > threshold, np.float32(0), v * decay)
    v[:] = kept + scale * current[: stop - start]


def build(subject: Subject) -> Program:
    """The compiled program with the LIF update replaced; fields, costs and mapping stay."""
    return subject.program.with_codelet("LifUpdate", dataclasses.replace(LIF_UPDATE, form="vertex", compute=lif_update))
