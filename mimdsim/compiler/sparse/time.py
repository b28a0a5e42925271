"""The scan on tiles: a repeat whose body slices sequences, hands spikes on, does the work and stashes, by a policy.

Forward, a carry that is written in place needs nothing; spikes are copied into the slots that the next layer reads, as
the published program does, and from there on for every timestep that somebody reads them later. Backward, every carry
lives in place, and adjoints that wait for an earlier timestep are copied as spikes are. (A ring of slots would need no
copies, but another address in every timestep.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from mimdsim.base.errors import MappingError
from mimdsim.codelets.dense import copy_codelet
from mimdsim.compiler.context import Lowering
from mimdsim.compiler.layout import LINEAR_BYTES
from mimdsim.compiler.sparse.neurons import declare_constants, declare_thresholds
from mimdsim.compiler.sparse.selection import declare_random, handed_on, list_variables
from mimdsim.compiler.sparse.spikes import declare_replicas, gradient_chips, sum_replicas
from mimdsim.compiler.time_slices import (
    by_age,
    count,
    count_earlier,
    count_timestep,
    fill,
    set_counters,
    slice_timestep,
    update_timestep,
    waiting,
)
from mimdsim.graph import Graph, Operation, Scan, SpikingNetwork, Value
from mimdsim.graph.names import INPUT, before, listed
from mimdsim.graph.records import Carry, Slice
from mimdsim.graph.stash import Recomputation, StashPolicy, recomputation, stash_policy
from mimdsim.program import Copy, Repeat


def lower_forward(low: Lowering, op: Operation) -> None:
    """The forward scan: initial carries, the repeat, the sequences it leaves behind."""
    scan: Scan = op.attributes
    network = low.network
    low.values = scan.body.values
    low.carried = frozenset(carry.enters for carry in scan.carries)
    for constant in scan.constants:
        low.storage.setdefault(constant, (constant,))
    for carry in scan.carries:
        value = scan.body.value(carry.enters)
        layer = value.layer
        if value.form == "sparse":
            _declare_carried_spikes(low, value, whole=carry.enters in waiting(scan))
        elif value.role == "generator":
            declare_random(low, carry, layer)
        else:
            v = low.with_neurons(carry.leaves, value.shape, layer, "neuron states")
            low.storage[carry.enters] = (v,)
            fill(low, v, "zero states", layer)
    home = low.chips_of(INPUT)
    sequence = low.spikes("input.sequence", network.input_capacity, home, INPUT, timesteps=network.timesteps)
    low.inputs |= dict(zip(listed(INPUT), sequence, strict=True))
    low.storage[INPUT] = sequence
    low.recorded[INPUT] = sequence
    for item in scan.slices:
        name = before(INPUT, -item.shift)
        low.storage[item.inside] = low.spikes(name, network.input_capacity, home, INPUT)
    stash = low.stash
    set_counters(low, "forward", -1)
    with forward_turns(low, scan, stash):
        count_timestep(low, 1, scan.slices)
        for item in scan.slices:
            for whole, part in zip(sequence, low.storage[item.inside], strict=True):
                slice_timestep(low, whole, part, item.shift)
        for carry in by_age(scan):
            if (value := scan.body.value(carry.enters)).form == "sparse":
                _hand_on_spikes(low, value, carry)
        low.lower_body(low, scan)
        finals = len(scan.carries)
        left_out = stash.anew.values if stash is not None else ()
        for name, outer in zip(scan.stacked, op.outputs[finals:], strict=True):
            if name in left_out:
                continue
            low.storage[outer] = _stash(low, scan.body.value(name))
            if scan.body.value(name).form == "sparse":
                low.recorded[scan.body.value(name).layer] = low.storage[outer]
        for name in stash.kept if stash is not None else ():
            low.storage[sequence_of(stash, name)] = _stash(low, scan.body.value(name))


def _hand_on_spikes(low: Lowering, value: Value, carry: Carry) -> None:
    """From where a layer leaves them to the slots that others read, and from these, where they lie, to those of older
    ones: a copy per timestep and age."""
    layer, held = value.layer, low.storage[carry.enters]
    if value.shift < -1:
        for source, target in zip(low.storage[carry.leaves], held, strict=True):
            _keep_slots(low, "hand on older spikes", source, target, layer)
        return
    for source, target in zip(handed_on(low, layer), held, strict=True):
        low.copies("hand on spikes", "carry", Copy(source=source, target=target), layer=layer)


def _keep_slots(low: Lowering, stage: str, source: str, target: str, layer: str) -> None:
    low.compute(
        stage, "carry", copy_codelet("slots"), *low.slots_of(target), {"source": source, "target": target}, layer=layer
    )


def _declare_carried_spikes(low: Lowering, value: Value, whole: bool) -> None:
    """Slots that the next layer reads, and what a layer leaves for them, known before the body writes it because the
    carry reads it first; no spikes have been emitted before the first timestep. whole: slots are handed on."""
    layer, enters = value.layer, value.name
    chips, name = gradient_chips(low, layer), "in" if value.shift == -1 else before("in", -value.shift)
    if low.options.spike_exchange == "dense":
        width = low.layer(layer).neurons
        row = low.spread(
            f"row.{layer}.{name}", width, "uint8", "spike ids", chips, least_bytes=LINEAR_BYTES, family=("ids", layer)
        )
        low.storage[enters] = (row,)
    else:
        low.storage[enters] = low.spikes(f"{layer}.{name}", value.capacity, chips, layer, least_bytes=LINEAR_BYTES)
    valued = slice(None) if whole else slice(-1, None)  # of ids and counts, only the counts need a value
    for held in low.storage[enters][valued]:
        fill(low, held, "zero spikes")
    if value.shift == -1:
        list_variables(low, layer)
        for held in handed_on(low, layer)[valued]:
            fill(low, held, "zero spikes")


def _stash(low: Lowering, value: Value) -> tuple[str, ...]:
    """Store a body value into its sequence at t; the sequence's variables."""
    timesteps, layer = low.network.timesteps, value.layer
    sequence: tuple[str, ...]
    if value.form == "sparse":
        sequence = low.spikes(f"{layer}.sequence", value.capacity, low.chips_of(layer), layer, timesteps=timesteps)
        name = ""
    else:
        name = value.name
        sequence = (low.with_neurons(f"{name}.sequence", (timesteps, *value.shape), layer, "neuron states"),)
        low.sequences[name] = sequence[0]
    for now, whole in zip(low.storage[value.name], sequence, strict=False):
        update_timestep(low, now, whole, layer, name)
    return sequence


def lower_backward(low: Lowering, op: Operation) -> None:
    """The reversed scan: adjoints in place, stash sliced per timestep, weight gradients summed in replicas."""
    scan: Scan = op.attributes
    low.values = scan.body.values
    low.carried = frozenset(carry.enters for carry in scan.carries)
    for carry in scan.carries:
        value = scan.body.value(carry.enters)
        layer = value.layer
        if value.role == "gradient":
            name = declare_replicas(low, value, layer)
        elif value.capacity:
            name = _listed_adjoint(low, value, before(f"g.{layer}", -value.shift))
            fill(low, name, "zero adjoints")
        else:
            name = low.with_neurons(f"d{value.of}", value.shape, layer, "gradients")
            fill(low, name, "zero adjoints", layer)
            declare_constants(low, layer)
            if low.options.state_gradient == "per_batch":
                declare_thresholds(low, layer)
        low.storage[carry.leaves] = (name,)
        if carry.enters in waiting(scan):  # read from another place, as what waits takes this one
            one_less = before(f"g.{layer}", -value.shift - 1) if value.shift else f"g.{layer}.taken"
            name = _listed_adjoint(low, value, one_less)
        low.storage[carry.enters] = (name,)
        # a gradient at listed ids that is added to another one to leave the body is made where the sum lies
        maker = scan.body.producer(carry.leaves)
        while maker is not None and maker.kind == "add" and scan.body.value(carry.leaves).capacity:
            low.storage[maker.inputs[0]] = low.storage[carry.leaves]
            maker = scan.body.producer(maker.inputs[0])
    offset = len(scan.carries)
    set_counters(low, "backward", scan.timesteps)
    with backward_turns(low, scan, low.stash):
        for carry in by_age(scan):
            (source,), (target,) = low.storage[carry.leaves], low.storage[carry.enters]
            if source != target:
                _keep_slots(low, "hand on adjoints", source, target, scan.body.value(carry.enters).layer)
        made = again_in_timestep(low, scan, low.stash)
        for item, outer in zip(scan.slices, op.inputs[offset:], strict=False):
            if item.inside in made:
                continue
            _slice_saved(low, scan.body.value(item.inside), low.storage[outer], item.shift)
        for inside, outer in zip(scan.constants, op.inputs[offset + len(scan.slices) :], strict=True):
            low.storage[inside] = low.storage.get(outer, (outer,))
        low.lower_body(low, scan)
    for outer, carry in zip(op.outputs, scan.carries, strict=True):
        low.storage[outer] = low.storage[carry.leaves]
        value = scan.body.value(carry.enters)
        if value.role == "gradient":
            parameter = low.network.parameters.get(value.of)
            sum_replicas(low, outer, value.layer, parameter.short if parameter else value.of)


def _listed_adjoint(low: Lowering, value: Value, name: str) -> str:
    layer = value.layer
    chips, family = gradient_chips(low, layer), ("gradients", layer)
    return low.spread(name, value.capacity, "float32", "gradients", chips, family=family)


def _slice_saved(low: Lowering, value: Value, sequence: tuple[str, ...], shift: int) -> None:
    """The current timestep of a stashed sequence, in variables of its own."""
    now: tuple[str, ...]
    if value.form == "sparse":
        now = low.spikes(value.name, value.capacity, low.chips_of(value.layer), value.layer)
    elif value.capacity:
        shape = (low.network.batch, value.capacity)
        now = (low.variable(value.name, shape, "float32", low.by_sample(0), "gradients"),)
    else:
        now = (low.with_neurons(value.name, value.shape, value.layer, "neuron states"),)
    low.storage[value.name] = now
    for whole, part in zip(sequence, now, strict=True):
        slice_timestep(low, whole, part, shift, "" if value.capacity else value.layer)


# ---- stash policies on tiles: states kept of every timestep or of every K-th, and forward work done again from them.
#
# With segments both scans are repeats of repeats. Forward, the states are kept before each segment. Backward, they are
# taken from there, the segment runs again with the recorded spikes (synapses and neurons, no selection) and leaves what
# gradients read in variables of one segment; then the backward body runs over it.


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
