"""Floor 3: the codelets. One record each: boxes, arithmetic, cost, source. To add one, see `neurons.py`."""

from mimdsim.codelets import dense, neurons, spikes, training, truncation

CODELETS = {
    record.name: record
    for record in (
        *neurons.CODELETS,
        *spikes.CODELETS,
        *truncation.CODELETS,
        *dense.CODELETS,
        *training.CODELETS,
    )
}

__all__ = ["CODELETS", "dense", "neurons", "spikes", "training", "truncation"]
