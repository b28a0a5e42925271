"""Keys of a workload that are given and that nothing reads, given the rest of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

from mimdsim.graph.batch_norm import OF_SAMPLES

if TYPE_CHECKING:
    from mimdsim.workload.description.workload import Workload


class _Readers(NamedTuple):
    """`keys` are read by workloads of which `are_read` holds, which `decided_by` another key; else `why` says why they
    are not, and what to do about it if there is more to do than to leave them out."""

    keys: tuple[str, ...]
    decided_by: str
    are_read: Callable[[Workload], bool]
    why: str


READERS = (
    _Readers(
        ("network.activity", "network.output_capacity"),
        "network.capacity",
        lambda workload: not workload.network.capacity,
        "network.capacity = {slots} gives the slots of every layer; add  --set network.capacity=[]",
    ),
    _Readers(
        (
            *("network.activity", "network.capacity", "network.output_capacity", "network.truncation"),
            *("network.second_threshold", "network.output_second_threshold"),
            *("mapping.neurons_per_tile", "mapping.neurons_unit", "mapping.split"),
            *("mapping.weight_gradient_replicas", "mapping.states_per_worker"),
            *("mapping.reduce_exponent", "mapping.reduce_group", "mapping.reduce_rule"),
        ),
        "network.spikes",
        lambda workload: workload.network.spikes == "sparse",
        "it is for lists of spikes, not for dense spikes",
    ),
    _Readers(
        ("mapping.dense_neurons",),
        "network.spikes",
        lambda workload: (
            workload.network.spikes == "dense"
            and (
                workload.mapping.dense_neurons == "traced"
                or bool(workload.network.learned)
                or _any_but("lif", workload.network.neuron)
            )
        ),
        'it is for dense spikes of neurons that take several operations, as "lif" does not',
    ),
    _Readers(
        ("network.batch_norm_epsilon",),
        "network.batch_norm",
        lambda workload: bool(workload.network.imported) or _any_but("none", workload.network.batch_norm),
        "no layer has a batch norm",
    ),
    _Readers(
        ("network.batch_norm_momentum",),
        "network.batch_norm",
        lambda workload: (
            bool(workload.network.imported)
            or _any_of(("timestep", "sequence", "each_timestep"), workload.network.batch_norm)
        ),
        "no layer has a batch norm",
    ),
    _Readers(
        ("network.batch_norm_groups",),
        "network.batch_norm",
        lambda workload: bool(workload.network.imported) or _any_of(OF_SAMPLES, workload.network.batch_norm),
        "no layer has a norm of samples",
    ),
    _Readers(
        ("network.dropout_per", "network.dropout_of"),
        "network.dropout",
        lambda workload: bool(workload.network.imported) or _any_but(0.0, workload.network.dropout),
        "nothing is dropped",
    ),
    _Readers(
        ("data.manifold_dimensions", "data.smoothness"),
        "data.source",
        lambda workload: workload.data.source == "randman",
        "it is for source 'randman', not for '{data.source}'",
    ),
    _Readers(
        ("data.activity",),
        "data.source",
        lambda workload: workload.data.source == "random" and workload.data.encoding == "events",
        "it is of the spikes of source 'random'",
    ),
    _Readers(
        ("training.over_timesteps",),
        "training.reading",
        lambda workload: workload.training.reading == "every",
        'training.reading = "{training.reading}" has one loss for all timesteps',
    ),
    _Readers(
        ("training.burn_in",),
        "training.reading",
        lambda workload: workload.training.reading != "last",
        'training.reading = "last" reads the last timestep alone',
    ),
    _Readers(
        ("training.correct_rate", "training.incorrect_rate"),
        "training.loss",
        lambda workload: workload.training.loss == "mean_squared_error",
        'training.loss = "{training.loss}" has no rates to reach',
    ),
    _Readers(
        ("training.firing_target",),
        "training.firing_strength",
        lambda workload: workload.training.firing_strength > 0,
        "training.firing_strength is 0",
    ),
    _Readers(
        ("training.second_threshold_start", "training.second_threshold_output"),
        "training.second_threshold_share",
        lambda workload: workload.training.second_threshold_share > 0,
        "training.second_threshold_share is 0",
    ),
    _Readers(
        ("training.initial_activity_tolerance",),
        "training.initial_activity",
        lambda workload: workload.training.initial_activity > 0,
        "training.initial_activity is 0",
    ),
    _Readers(
        ("mapping.behind_tiles",),
        "training.optimiser",
        lambda workload: (
            workload.mapping.behind_tiles != ("optimiser",)
            or workload.training.optimiser != "sgd"
            or bool(workload.training.momentum)
        ),
        'training.optimiser = "sgd" without momentum keeps nothing',
    ),
    _Readers(
        ("training.recurrent_scale",),
        "network.recurrence",
        lambda workload: bool(workload.network.imported) or _any_but("none", workload.network.recurrence),
        "no layer has synapses onto itself",
    ),
)


class Unread(NamedTuple):
    key: str
    decided_by: str
    why: str


def unread_keys(workload: Workload, changed: Collection[str] = ()) -> Iterator[Unread]:
    """Keys that are given, with another value than by default, and that nothing reads; dotted. What a description gives
    counts as read where `changed` keys decide otherwise than it does: it serves both sides of a comparison."""
    for keys, decided_by, are_read, why in READERS:
        if are_read(workload):
            continue
        for dotted in keys:
            name, key = dotted.split(".")
            section = getattr(workload, name)
            serves_another = decided_by in changed and dotted not in changed
            if (
                key in section.model_fields_set
                and not serves_another
                and getattr(section, key) != type(section).model_fields[key].get_default(call_default_factory=True)
            ):
                slots = list(workload.network.capacity)
                because = why.format(slots=slots, training=workload.training, data=workload.data)
                yield Unread(dotted, decided_by, f"{dotted}: has no effect, because {because}")


def _any_of(values: tuple[str, ...], given: object) -> bool:
    """Whether one of these is given, for all layers or for one."""
    return any(each in values for each in (given if isinstance(given, tuple) else (given,)))


def _any_but(standard: object, value: object) -> bool:
    """Whether some layer has another value than the standard one."""
    return any(each != standard for each in (value if isinstance(value, tuple) else (value,)))
