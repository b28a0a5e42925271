"""Stash policies: which forward values are kept for the backward pass, and which are recomputed from those.

    everything   every value that a gradient rule reads, of every timestep
    carry        what goes from one timestep to the next; the rest is recomputed within the timestep
    every:K      what goes from one segment of K timesteps to the next; the rest, segment by segment

Spikes of all timesteps are kept whatever the policy: they are short lists, and they save running the selection again
(or drawing again). Recomputation takes the same operations in the same order, so that gradients do not change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mimdsim.base.errors import MappingError
from mimdsim.graph.records import Carry, Graph, Operation, Scan

FORMS = '"everything", "carry" or "every:K", e.g. "every:10" to keep the states of every 10th timestep'
_EVERY = re.compile(r"^every:([1-9][0-9]{0,8})$")


@dataclass(frozen=True, kw_only=True)
class StashPolicy:
    """name: 'everything', 'carry' or 'every'; segment: timesteps from one kept state to the next (0 for the others)."""

    name: str
    segment: int = 0


def stash_policy(text: str, timesteps: int = 0) -> StashPolicy:
    """The policy that `text` names, for a sequence of `timesteps` if given; raises MappingError."""
    if text in ("everything", "carry"):
        return StashPolicy(name=text)
    found = _EVERY.match(text)
    if found is None:
        raise MappingError(f"mapping.stash = {text!r} is not a stash policy: write {FORMS}")
    segment = int(found.group(1))
    if timesteps % segment:
        fitting = [k for k in range(1, timesteps + 1) if timesteps % k == 0]
        near = {max(k for k in fitting if k <= segment), min((k for k in fitting if k >= segment), default=timesteps)}
        choices = " or ".join(f'"every:{k}"' for k in sorted(near))
        raise MappingError(
            f"mapping.stash = {text!r}: {timesteps} timesteps (data.timesteps) are not a whole number of segments of "
            f"{segment}: write {choices}"
        )
    return StashPolicy(name="every", segment=segment)


@dataclass(frozen=True, kw_only=True)
class Recomputation:
    """What is recomputed instead of kept: `values`, by `again` (a scan without sequences, run forward).

    states: the carries it starts from, arrays. sources: spikes it reads -> the forward body's value that holds them,
    and its timestep relative to this one. kept: carries on leaving to be stacked for it besides the forward scan's.
    """

    values: tuple[str, ...]
    again: Scan
    states: tuple[Carry, ...]
    sources: dict[str, tuple[str, int]]


def recomputation(graph: Graph, policy: StashPolicy) -> Recomputation | None:
    """What a policy recomputes in a graph; None if everything that is read is kept anyway, or nothing goes back."""
    if policy.name == "everything" or not any(op.kind == "scan" and op.phase == "backward" for op in graph.operations):
        return None
    op, backward = graph.scan("forward"), graph.scan("backward")
    scan: Scan = op.attributes
    body = scan.body
    read_outside = {name for other in graph.operations if other is not backward for name in other.inputs}
    read_outside |= set(graph.outputs)
    leaving = {carry.leaves for carry in scan.carries}
    stacked = zip(scan.stacked, op.outputs[len(scan.carries) :], strict=True)
    values = tuple(
        name
        for name, outer in stacked
        if body.value(name).form == "array"
        and outer not in read_outside
        and (policy.name == "every" or name not in leaving)
    )
    if not values:
        return None
    operations, entering = _back_to_states(body, values)
    states = tuple(carry for carry in scan.carries if carry.enters in entering and carry.enters not in _sparse(body))
    sources = {}
    for name in entering & _sparse(body):
        made, age = scan.left_as(name)
        sources[name] = made, -age if age else body.value(name).shift
    again = Scan(
        body=Graph(inputs=tuple(sorted(entering)), outputs=values, operations=operations, values=body.values),
        timesteps=scan.timesteps,
        reverse=False,
        carries=states,
        slices=(),
        constants=scan.constants,
        stacked=values,
    )
    return Recomputation(values=values, again=again, states=states, sources=sources)


def _sparse(body: Graph) -> set[str]:
    return {name for name, value in body.values.items() if value.form == "sparse"}


def _back_to_states(body: Graph, values: tuple[str, ...]) -> tuple[tuple[Operation, ...], set[str]]:
    """The operations that make `values`, and what they start from: spikes, inputs of the body, constants."""
    sparse = _sparse(body)
    wanted, kept, made = set(values), [], set()
    for op in reversed(body.operations):
        if wanted & set(op.outputs) - sparse:
            kept.append(op)
            wanted |= set(op.inputs)
            made |= set(op.outputs)
    return tuple(reversed(kept)), wanted - made
