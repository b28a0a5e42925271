"""Stash policies on tiles: states kept of every timestep or of every K-th, and forward work done again from them.

With segments both scans are repeats of repeats. Forward, the states are kept before each segment. Backward, they are
taken from there, the segment runs again with the recorded spikes (synapses and neurons, no selection) and leaves what
gradients read in variables of one segment; then the backward body runs over it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from mimdsim.base.errors import MappingError
from mimdsim.compiler.context import Lowering
from mimdsim.compiler.time_slices import (
    count,
    count_earlier,
    count_timestep,
    set_counters,
    slice_timestep,
    update_timestep,
)
from mimdsim.graph import Graph, Scan, SpikingNetwork, Value
from mimdsim.graph.names import INPUT
from mimdsim.graph.records import Slice
from mimdsim.graph.stash import Recomputation, StashPolicy, recomputation, stash_policy
from mimdsim.program import Repeat


@dataclass(frozen=True, kw_only=True)
class Stash:
    """The policy of a lowering, and what it makes anew; `outer`: forward body value -> its stacked outer value."""

    policy: StashPolicy
    anew: Recomputation
    forward: Scan
    outer: dict[str, str]

    @property
    def segment(self) -> int:
        return self.policy.segment

    @property
    def kept(self) -> tuple[str, ...]:
        """States on leaving that are stacked only so that others can be made anew."""
        if self.segment:
            return ()
        return tuple(carry.leaves for carry in self.anew.states if carry.leaves not in self.outer)


def stash_of(graph: Graph, network: SpikingNetwork, text: str, spike_exchange: str) -> Stash | None:
    """What `mapping.stash` changes; None where everything is kept. Raises MappingError for what cannot be."""
    policy = stash_policy(text, network.timesteps)
    if policy.name == "everything":
        return None
    if network.spikes == "dense":
        raise MappingError(
            f'mapping.stash = {text!r} is for lists of spikes: with network.spikes = "dense" write '
            'mapping.stash = "everything"'
        )
    anew = recomputation(graph, policy)
    if anew is None:
        return None
    if spike_exchange == "dense" and any(layer.selection.truncation == "random" for layer in network.layers):
        raise MappingError(
            f'mapping.stash = {text!r} sums again by lists, mapping.spike_exchange = "dense" by rows, and with '
            'network.truncation = "random" that is another order: write mapping.spike_exchange = "ids", or '
            'mapping.stash = "everything"'
        )
    op = graph.scan("forward")
    scan: Scan = op.attributes
    outer = dict(zip(scan.stacked, op.outputs[len(scan.carries) :], strict=True))
    return Stash(policy=policy, anew=anew, forward=scan, outer=outer)


# ---- forward


@contextmanager
def forward_turns(low: Lowering, scan: Scan, stash: Stash | None) -> Iterator[None]:
    """The repeat of the forward scan; with segments within one that keeps the states."""
    if stash is None or not stash.segment:
        with low.repeat(scan.timesteps):
            yield
        return
    set_counters(low, "forward", -1, "segment")
    with low.repeat(scan.timesteps // stash.segment):
        count(low, {"segment": 1})
        for carry in stash.anew.states:
            (held,) = low.storage[carry.enters]
            value = stash.forward.body.value(carry.leaves)
            update_timestep(low, held, _declare(low, stash, value, "segments"), value.layer, carry.leaves)
        with low.repeat(stash.segment):
            yield


def _declare(low: Lowering, stash: Stash, value: Value, entries: str) -> str:
    """A sequence of states or potentials: of segments, or of the timesteps of one with an entry before them."""
    count = low.network.timesteps // stash.segment if entries == "segments" else stash.segment + 1
    shape = (count, *value.shape)
    name = f"{value.name}.kept" if entries == "segments" else f"{value.name}.segment"
    made = low.with_neurons(name, shape, value.layer, "neuron states")
    low.variables[made] = replace(low.variables[made], entries=entries, segment=stash.segment)
    return made


# ---- backward


@contextmanager
def backward_turns(low: Lowering, scan: Scan, stash: Stash | None) -> Iterator[None]:
    """The repeat of the backward scan, its timestep counted; with segments within one that first runs the segment
    again."""
    if stash is None or not stash.segment:
        with low.repeat(scan.timesteps, reverse=True):
            recorded = stash.anew.sources.values() if stash is not None else ()
            count_timestep(low, -1, (*scan.slices, *(Slice(inside=name, shift=shift) for name, shift in recorded)))
            yield
        return
    segment, carried = stash.segment, low.carried
    set_counters(low, "backward", scan.timesteps // segment, "segment")
    set_counters(low, "backward", 1, "place")
    with low.repeat(scan.timesteps // segment, reverse=True):
        count(low, {"timestep": -(segment + 1), "place": -1, "segment": -1})
        _restore(low, scan, stash)
        with low.repeat(segment):
            count(low, {"timestep": 1, "place": 1})
            shifts = {shift for _, shift in stash.anew.sources.values() if shift}
            count_earlier(low, [("timestep", shift) for shift in sorted(shifts, reverse=True)])
            again(low, stash)
            body = stash.forward.body
            for name in stash.anew.values:
                held = _declare(low, stash, body.value(name), "segment")
                update_timestep(low, low.storage[name][0], held, body.value(name).layer, name)
        count(low, {"timestep": 1, "place": 1})
        with low.repeat(segment, reverse=True):
            count(low, {"timestep": -1, "place": -1})
            shifts = {item.shift for item in scan.slices if item.shift} | {-1}
            places = [("place", -1)] if _read_before(scan, stash) else []
            count_earlier(low, [*(("timestep", shift) for shift in sorted(shifts, reverse=True)), *places])
            low.values, low.carried = scan.body.values, carried
            yield


def _read_before(scan: Scan, stash: Stash) -> set[str]:
    """Arrays on entry to the forward body that gradients read: what was a timestep before."""
    values = stash.forward.body.values
    names = {scan.body.value(item.inside).of for item in scan.slices if item.shift}
    return {name for name in names if values[name].form == "array"}


def _restore(low: Lowering, scan: Scan, stash: Stash) -> None:
    """States as they were before the segment; as the entry before it too where gradients read a timestep before."""
    body = stash.forward.body
    before = _read_before(scan, stash)
    assert before <= {carry.enters for carry in stash.anew.states}  # or the entry before a segment would be empty
    for carry in stash.anew.states:
        value = body.value(carry.leaves)
        (held,) = low.storage[carry.enters]
        slice_timestep(low, _declare(low, stash, value, "segments"), held, 0, value.layer)
        if carry.enters in before and carry.leaves in stash.anew.values:
            whole = _declare(low, stash, value, "segment")
            update_timestep(low, held, whole, value.layer, carry.leaves, shift=-1)
    for name in stash.anew.values:
        held = _declare(low, stash, body.value(name), "segment")
        low.storage[stash.outer[name]] = (held,)


def again(low: Lowering, stash: Stash) -> None:
    """The forward operations of one timestep again, from the states in place and the recorded spikes."""
    first = len(low.body)
    body = stash.forward.body
    for name, (source, shift) in sorted(stash.anew.sources.items()):
        value = body.value(name)
        sequence = low.storage[INPUT if value.layer == INPUT else stash.outer[source]]
        now = low.spikes(f"again.{name}", value.capacity, low.chips_of(value.layer), value.layer)
        for whole, part in zip(sequence, now, strict=True):
            slice_timestep(low, whole, part, shift)
        low.storage[name] = now
    low.values = body.values
    low.carried = frozenset(carry.enters for carry in stash.anew.states) | stash.anew.sources.keys()
    low.lower_body(low, stash.anew.again)
    for place, step in enumerate(low.body[first:], first):
        assert not isinstance(step, Repeat)
        low.body[place] = replace(step, name=f"again: {step.name}", stage=f"again: {step.stage}")


def again_in_timestep(low: Lowering, scan: Scan, stash: Stash | None) -> frozenset[str]:
    """Policy 'carry': states of before this timestep, and what is made anew of them; returns the body values that
    thereby need no slice."""
    if stash is None or stash.segment:
        return frozenset()
    for carry in stash.anew.states:
        layer, whole = stash.forward.body.value(carry.leaves).layer, low.storage[sequence_of(stash, carry.leaves)][0]
        slice_timestep(low, whole, low.storage[carry.enters][0], -1, layer)
    carried = low.carried
    again(low, stash)
    low.carried, low.values = carried, scan.body.values
    saved = [scan.body.value(item.inside) for item in scan.slices]
    made = {
        value.name: low.storage[value.of] for value in saved if value.role == "saved" and value.of in stash.anew.values
    }
    low.storage |= made
    return frozenset(made)


def sequence_of(stash: Stash, leaves: str) -> str:
    """The outer value that is a state on leaving every timestep, stacked by the graph or for the policy alone."""
    return stash.outer.get(leaves, f"{leaves}.every")
