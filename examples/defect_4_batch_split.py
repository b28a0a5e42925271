"""A published defect as a user's codelet: the batch split over six worker contexts by floor(batch / 6).

The weight gradient of github.com/jrfinkbeiner/graphcore_snn gives every context floor(batch / 6) samples, so that the
rest of the batch is never added if the batch is not divisible by six:

    mimdsim check digits bow --program examples/defect_4_batch_split.py --batch 8
"""

import dataclasses

from mimdsim.checking.program import Subject
from mimdsim.codelets.spikes import WEIGHT_GRADIENT
from mimdsim.program import Program


def build(subject: Subject) -> Program:
    """The compiled program with a weight gradient that leaves the rest of the batch out."""
    each = subject.network.batch // 6

    def weight_gradient(dw, q, ids, counts, replica, sample_start, sample_stop, start, stop):
        """One vertex: dw [fan_in, neurons], q [samples, neurons], ids [samples, capacity], counts [samples, 2]."""
        for sample in range(min(each, sample_stop - sample_start)):  # the defect: sample_stop - sample_start are due
            for spike in ids[sample, : counts[sample, 0]]:
                dw[spike] += q[sample]

    changed = dataclasses.replace(WEIGHT_GRADIENT, form="vertex", compute=weight_gradient)
    return subject.program.with_codelet("WeightGradient", changed)
