"""A published defect as a user's codelet: the input gradient that always takes the first pair of the adjoint.

`LIFInpSpikesGradMultiRowSIMD` of github.com/jrfinkbeiner/graphcore_snn walks the weights as pairs but does not multiply
the id by the pairs per row, and reads the first pair of q for every pair of weights. Wrong beyond two neurons a tile:

    mimdsim check digits bow --program examples/defect_2_input_gradient.py --set mapping.neurons_per_tile=4
"""

import dataclasses

from mimdsim.checking.program import Subject
from mimdsim.codelets.spikes import INPUT_GRADIENT
from mimdsim.program import Program


def input_gradient(partial, w, q, ids, counts, part, sample, start, stop):
    """One vertex: partial [capacity], w [fan_in, neurons], q [neurons], ids [capacity], counts [2]; writes partial."""
    pairs = w.reshape(-1, 2)  # one row of w is (stop - start) / 2 pairs
    for slot in range(counts[1]):
        total = 0.0
        for pair in range((stop - start) // 2):
            weight = pairs[ids[slot] + pair]  # the defect: should be ids[slot] * pairs per row + pair
            total += weight[0] * q[0] + weight[1] * q[1]  # the defect: should be q[2 * pair], q[2 * pair + 1]
        partial[slot] = total


def build(subject: Subject) -> Program:
    """The compiled program with the input gradient replaced; fields, costs and mapping stay."""
    changed = dataclasses.replace(INPUT_GRADIENT, form="vertex", compute=input_gradient)
    return subject.program.with_codelet("InputGradient", changed)
