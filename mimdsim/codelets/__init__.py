"""The codelets, one record each: boxes, arithmetic, cost, source. To add one, see `neurons.py`."""

from mimdsim.codelets import (
    array_products,
    dense,
    elementwise,
    fan_in,
    losses,
    neurons,
    recurrence_and_bias,
    rows,
    spikes,
    training,
    truncation,
)

FAMILIES = (
    *(neurons, spikes, fan_in, truncation, recurrence_and_bias),
    *(dense, losses, training, elementwise, array_products, rows),
)
CODELETS = {record.name: record for family in FAMILIES for record in family.CODELETS}

__all__ = [
    "CODELETS",
    "FAMILIES",
    "array_products",
    "dense",
    "elementwise",
    "fan_in",
    "losses",
    "neurons",
    "recurrence_and_bias",
    "rows",
    "spikes",
    "training",
    "truncation",
]
