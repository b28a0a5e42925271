"""Keys of a workload that are given and that nothing reads, given the rest of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from mimdsim.base.schema import is_given
from mimdsim.graph.norms import OF_SAMPLES

if TYPE_CHECKING:
    from mimdsim.workload.description.workload import Workload


class _Readers(NamedTuple):
    """`keys` are read by workloads of which, and of whose value of the key `decided_by`, `are_read` holds; else `why`
    says why they are not, and what to do about it if there is more to do than to leave them out."""

    keys: tuple[str, ...]
    decided_by: str
    are_read: Callable[[Workload, Any], bool]
    why: str


def _is(wanted: str) -> Callable[[Workload, str], bool]:
    return lambda _, value: value == wanted


def _is_above_0(_: Workload, value: float) -> bool:
    return value > 0


def _some_but(standard: object) -> Callable[[Workload, object], bool]:
    """Whether some layer has another value than the standard one, as one of an imported model may."""
    return lambda workload, value: bool(workload.network.imported) or _any_but(standard, value)


def _some_of(*wanted: str) -> Callable[[Workload, object], bool]:
    """Whether some layer has one of these values, as one of an imported model may."""
    return lambda workload, value: bool(workload.network.imported) or any(each in wanted for each in _each(value))


def _any_but(standard: object, value: object) -> bool:
    return any(each != standard for each in _each(value))


def _each(value: object) -> tuple[object, ...]:
    """The values of all layers, or the one that they share."""
    return value if isinstance(value, tuple) else (value,)


IS_0, NO_BATCH_NORM = "{decided_by} is 0", "no layer has a batch norm"
READERS = (
    _Readers(
        ("network.activity", "network.output_capacity"),
        "network.capacity",
        lambda _, slots: not slots,
        "network.capacity = {value} gives the slots of every layer; add  --set network.capacity=[]",
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
        _is("sparse"),
        "it is for lists of spikes, not for dense spikes",
    ),
    _Readers(
        ("mapping.dense_neurons",),
        "network.spikes",
        lambda workload, spikes: (
            spikes == "dense"
            and (
                workload.mapping.dense_neurons == "traced"
                or bool(workload.network.learned)
                or _any_but("lif", workload.network.neuron)
            )
        ),
        'it is for dense spikes of neurons that take several operations, as "lif" does not',
    ),
    _Readers(("network.batch_norm_epsilon",), "network.batch_norm", _some_but("none"), NO_BATCH_NORM),
    _Readers(
        ("network.batch_norm_momentum",),
        "network.batch_norm",
        _some_of("timestep", "sequence", "each_timestep"),
        NO_BATCH_NORM,
    ),
    _Readers(
        ("network.batch_norm_groups",), "network.batch_norm", _some_of(*OF_SAMPLES), "no layer has a norm of samples"
    ),
    _Readers(("network.dropout_per", "network.dropout_of"), "network.dropout", _some_but(0.0), "nothing is dropped"),
    _Readers(
        ("data.manifold_dimensions", "data.smoothness"),
        "data.source",
        _is("randman"),
        "it is for source 'randman', not for '{value}'",
    ),
    _Readers(
        ("data.activity",),
        "data.source",
        lambda workload, source: source == "random" and workload.data.encoding == "events",
        "it is of the spikes of source 'random'",
    ),
    _Readers(
        ("training.over_timesteps",),
        "training.reading",
        _is("every"),
        'training.reading = "{value}" has one loss for all timesteps',
    ),
    _Readers(
        ("training.burn_in",),
        "training.reading",
        lambda _, reading: reading != "last",
        'training.reading = "last" reads the last timestep alone',
    ),
    _Readers(
        ("training.correct_rate", "training.incorrect_rate"),
        "training.loss",
        _is("mean_squared_error"),
        'training.loss = "{value}" has no rates to reach',
    ),
    _Readers(
        ("training.logit_scale",), "training.loss", _is("cross_entropy"), 'training.loss = "{value}" has no logits'
    ),
    _Readers(("training.firing_target",), "training.firing_strength", _is_above_0, IS_0),
    _Readers(
        ("training.second_threshold_start", "training.second_threshold_output"),
        "training.second_threshold_share",
        _is_above_0,
        IS_0,
    ),
    _Readers(("training.initial_activity_tolerance",), "training.initial_activity", _is_above_0, IS_0),
    _Readers(
        ("mapping.behind_tiles",),
        "training.optimiser",
        lambda workload, optimiser: (
            workload.mapping.behind_tiles != ("optimiser",) or optimiser != "sgd" or bool(workload.training.momentum)
        ),
        'training.optimiser = "sgd" without momentum keeps nothing',
    ),
    _Readers(
        ("training.recurrent_scale",), "network.recurrence", _some_but("none"), "no layer has synapses onto itself"
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
        where, decisive = decided_by.split(".")
        value = getattr(getattr(workload, where), decisive)
        if are_read(workload, value):
            continue
        because = why.format(decided_by=decided_by, value=list(value) if isinstance(value, tuple) else value)
        for dotted in keys:
            serves_another = decided_by in changed and dotted not in changed
            if is_given(workload, dotted) and not serves_another:
                yield Unread(dotted, decided_by, f"{dotted}: has no effect, because {because}")
