"""Reverse-mode differentiation: from a graph with a loss to a graph that also computes the gradients.

One loop for all operations (`_accumulate`), applied to the outer graph and to the body of the scan. The rules live with
the operations (`vjp` in their records). Nothing here knows what a neuron is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from mimdsim.base.errors import MappingError
from mimdsim.graph.elementwise import Line
from mimdsim.graph.operations import OPERATIONS, BodyBackward, shapes_of, without_unused
from mimdsim.graph.records import Backward, Carry, Graph, GraphBuilder, Operation, Scan, Slice, Value, Vjp
from mimdsim.graph.synapses import Zeros


def differentiate(
    graph: Graph, loss: str, wrt: Sequence[str], terms: tuple[str, ...] = ()
) -> tuple[Graph, dict[str, str]]:
    """`graph` with the operations that compute d loss / d w for every w in `wrt`; the loss is `loss` plus all `terms`.

    Returns the new graph and the gradient's name for each w. The forward scan gains the stash as stacked outputs.
    Raises MappingError if the loss does not depend on one of them.
    """
    build = Backward("backward", shapes_of)
    build.begin_with(graph)
    cotangents: dict[str, str] = {}
    wanted = _depending_on(graph, wrt)
    for op in reversed(graph.operations):
        if op.kind == "scan":
            build.phase = "backward"
            _transpose_scan(build, op, cotangents, wanted)
            continue
        given = tuple(cotangents.get(name) for name in op.outputs)
        if op.outputs[0] not in (loss, *terms) and not any(given):
            continue
        rule = _rule_of(op)
        build.phase = "loss" if op.phase == "loss" else "backward"
        _accumulate(build, cotangents, op.inputs, rule(build, op, *given), op.layer)
    build.phase = "backward"
    missing = [name for name in wrt if name not in cotangents]
    if missing:
        raise MappingError(f"the loss '{loss}' does not depend on {missing}: use them, or name them in training.frozen")
    gradients = {name: cotangents[name] for name in wrt}
    return build.graph((*graph.outputs, *gradients.values())), gradients


def _depending_on(graph: Graph, wrt: Sequence[str]) -> set[str]:
    """`wrt`, and every value that a gradient goes through on its way to them."""
    found = set(wrt)
    for op in graph.operations:
        known = OPERATIONS[op.kind]
        if (op.kind == "scan" or known.vjp) and found & set(op.inputs):
            found |= known.through(op, found) if known.through else set(op.outputs)
    return found


def _rule_of(op: Operation) -> Vjp:
    rule = OPERATIONS[op.kind].vjp
    if rule is None:
        raise ValueError(f"operation '{op.name}' of kind '{op.kind}' has no gradient rule, but the loss depends on it")
    return rule


def _accumulate(
    build: Backward, cotangents: dict[str, str], names: tuple[str, ...], parts: tuple[str | None, ...], layer: str
) -> None:
    for name, part in zip(names, parts, strict=True):
        if part is not None:
            made = build.values[part]
            if not made.role:
                build.values[part] = replace(made, role="adjoint", of=name)
            known = cotangents.get(name)
            cotangents[name] = part if known is None else build.one("add", (known, part), f"d.{name}.sum", layer=layer)


def _cotangent_of(name: str, value: Value) -> Value:
    """A cotangent is an array; that of sparse spikes has one number per listed id."""
    return replace(value, name=name, form="array", role="adjoint", of=value.name)


def _transpose_scan(build: Backward, op: Operation, cotangents: dict[str, str], wanted: set[str]) -> None:
    """Append the reversed scan for `op` and replace `op` by one that also stacks the stash; only what the gradients of
    the `wanted` constants and sequences need is computed."""
    scan: Scan = op.attributes
    used = [name for name in op.outputs[: len(scan.carries)] if name in cotangents]
    if used:
        raise ValueError(f"scan '{op.name}': a loss on final carries ({used}) has no gradient rule; stack them instead")
    elsewhere = set()
    for other in build.operations:  # what bodies make has one name in the whole program
        if other.kind == "scan" and other.phase == "backward":
            elsewhere |= {name for each in other.attributes.body.operations for name in (each.name, *each.outputs)}
    back, entered = _transposed(build, op, cotangents, elsewhere)
    finals = len(scan.carries)
    constant_of = {name: op.inputs[finals + len(scan.slices) + index] for index, name in enumerate(scan.constants)}
    slice_of = {item.inside: op.inputs[finals + index] for index, item in enumerate(scan.slices)}
    sequences = [name for name, outer in slice_of.items() if outer in wanted and name in entered.inside]
    for name in sequences:
        if entered.inside[name] in entered.carried.values():  # which is overwritten before it is stacked
            entered.inside[name] = _copied(back, entered.inside[name], scan.body.value(name))
        if (known := cotangents.pop(slice_of[name], None)) is not None:  # of another scan, or a loss
            _add_known(build, back, entered, scan.body.value(name), known)
    before = tuple(dict.fromkeys(entered.inside[name] for name in sequences))  # of sequences added up, one for all
    of_constants = [name for name, outer in constant_of.items() if outer in wanted]
    carries, starts, sums = _leave(build, op, back, entered, of_constants, before)
    body = without_unused(back.graph((*(carry.leaves for carry in carries), *before)))
    read = {name for step in body.operations for name in step.inputs} | set(body.outputs)
    body = replace(body, inputs=tuple(name for name in body.inputs if name in read))
    slices = [(name, item) for name, item in back.slices if item.inside in read]
    grown = _with_stash(build, op, [name for name in back.stash if name in {source for source, _ in slices}])
    outer_sequence = dict(zip(scan.stacked, op.outputs[finals:], strict=True))
    outer_sequence |= dict(zip(grown.attributes.stacked, grown.outputs[finals:], strict=True))
    outer_sequence |= slice_of
    reads = [*(pair for pair in entered.slices if pair[1].inside in read)]
    reads += [(outer_sequence[name], item) for name, item in slices]
    even = [pair for pair in entered.even.values() if pair[0] in read]
    constants = [name for name in back.constants if back.saved(name) in read]
    transposed = Scan(
        body=body,
        timesteps=scan.timesteps,
        reverse=not scan.reverse,
        carries=tuple(carries),
        slices=tuple(item for _, item in reads),
        constants=(*(back.saved(name) for name in constants), *(inner_name for inner_name, _ in even)),
        stacked=before,
    )
    given = (*(constant_of[name] for name in constants), *(outer_name for _, outer_name in even))
    inputs = (*starts, *(name for name, _ in reads), *given)
    outputs = build.add("scan", inputs, f"{op.name}.backward", attributes=transposed)
    for index, constant in enumerate(sums):
        cotangents[constant_of[constant]] = outputs[len(carries) - len(sums) + index]
    stacks = dict(zip(before, outputs[len(carries) :], strict=True))
    for name in sequences:
        _accumulate(build, cotangents, (slice_of[name],), (stacks[entered.inside[name]],), "")


def _transposed(
    build: GraphBuilder, op: Operation, cotangents: dict[str, str], elsewhere: set[str]
) -> tuple[BodyBackward, _Entered]:
    """The body backwards. A carry that no gradient leaves gets none from later timesteps either."""
    scan: Scan = op.attributes
    without: set[str] = set()
    while True:
        back = BodyBackward(scan)
        back.elsewhere |= elsewhere
        entered = _enter(build, op, cotangents, back, without)
        _go_back(back, entered)
        read = {name for step in back.operations for name in step.inputs}
        read |= {entered.inside.get(carry.enters, "") for carry in scan.carries}
        ends = {
            carry.leaves
            for carry in scan.carries
            if entered.carried.get(carry.leaves) in read and carry.enters not in entered.inside
        }
        if not ends:
            return back, entered
        without |= ends


@dataclass(frozen=True, kw_only=True)
class _Entered:
    """Cotangents within the body of a scan, by the value they belong to.

    inside: those known so far; carried: those that come from later timesteps; slices: (outer sequence, its slice in the
    body); even: stacked value -> the constant of the body and the outer value, one number for all elements of all
    timesteps.
    """

    inside: dict[str, str]
    carried: dict[str, str]
    slices: list[tuple[str, Slice]]
    even: dict[str, tuple[str, str]]


def _enter(
    build: GraphBuilder, op: Operation, cotangents: dict[str, str], back: BodyBackward, without: Collection[str]
) -> _Entered:
    """Cotangents that come from later timesteps, but for the carries `without`, then those of the stacked outputs of
    this timestep."""
    scan, body = back.scan, back.scan.body
    inside: dict[str, str] = {}
    for carry in scan.carries:
        if not carry.detached and carry.leaves not in without:
            inside[carry.leaves] = back.declare(_cotangent_of(f"d.{carry.leaves}", body.value(carry.leaves)))
    entered = _Entered(inside=inside, carried=dict(inside), slices=[], even={})
    for name, outer_name in zip(scan.stacked, op.outputs[len(scan.carries) :], strict=True):
        cotangent = cotangents.get(outer_name)
        if cotangent is None:
            continue
        if not build.values[cotangent].shape:
            entered.even[name] = back.declare(Value(name=f"d.{name}.even", shape=())), cotangent
            continue
        entry = back.declare(_cotangent_of(f"d.{name}.now", body.value(name)))
        entered.slices.append((cotangent, Slice(inside=entry)))
        known = inside.get(name)
        if known is not None and body.value(name).form == "array":
            layer = next((step.layer for step in body.operations if name in step.outputs), "")
            inside[name] = back.one("add_read_out", (known, entry), f"d.{name}.sum", layer=layer)
        else:
            _accumulate(back, inside, (name,), (entry,), "")
    return entered


def _go_back(back: BodyBackward, entered: _Entered) -> None:
    """Apply the rules of the body's operations, from the last to the first."""
    inside = entered.inside
    for step in reversed(back.scan.body.operations):
        for name in step.outputs:
            if name in entered.even:
                if name not in inside:
                    raise ValueError(f"'{name}' gets a gradient only from a penalty, which has no rule for it")
                given_even = (inside[name], entered.even[name][0])
                inside[name] = back.one("add_even", given_even, f"d.{name}.with_even", layer=step.layer)
        given = tuple(inside.get(name) for name in step.outputs)
        if any(given):
            _accumulate(back, inside, step.inputs, _rule_of(step)(back, step, *given), step.layer)


def _add_known(build: GraphBuilder, back: BodyBackward, entered: _Entered, value: Value, known: str) -> None:
    """Add what is known of the cotangent of a sequence to that of its slice `value`."""
    name, even = value.name, not build.values[known].shape
    more = back.declare(Value(name=f"d.{name}.even", shape=()) if even else _cotangent_of(f"d.{name}.known", value))
    if even:
        entered.even[name] = more, known
    else:
        entered.slices.append((known, Slice(inside=more)))
    made = back.one("add_even" if even else "add", (entered.inside[name], more), f"d.{name}.all", layer=value.layer)
    back.values[made] = replace(back.values[made], role="adjoint", of=name)
    entered.inside[name] = made


def _leave(
    build: GraphBuilder,
    op: Operation,
    back: BodyBackward,
    entered: _Entered,
    wanted: Sequence[str],
    stacked: Iterable[str],
) -> tuple[list[Carry], list[str], list[str]]:
    """(carries to the previous timestep, initial value of each, those of the constants `wanted` whose gradients are
    summed, last). stacked: cotangents that leave every timestep."""
    scan, reference = back.scan, op.inputs[-1]
    carries: list[Carry] = []
    starts: list[str] = []
    needed = _needed(back, entered, wanted, stacked)
    handed_on = {carry.enters for carry in scan.carries}  # spikes, whose adjoints wait
    taken = {name for leaves, name in entered.carried.items() if leaves not in handed_on}
    for carry in scan.carries:
        leaving = entered.inside.get(carry.enters)
        if leaving is None or entered.carried.get(carry.leaves) not in needed:
            continue
        value = scan.body.value(carry.leaves)
        slices = {item.inside for _, item in entered.slices}  # which lie where the loss has them
        if leaving in (taken - {entered.carried[carry.leaves]}) | slices:  # it lies where another is carried
            leaving = _copied(back, leaving, scan.body.value(carry.enters))
        taken.add(leaving)
        zeros = Zeros(shape=value.shape, capacity=value.capacity)
        start = build.one("zeros", (reference,), f"d.{carry.leaves}.start", attributes=zeros)
        carries.append(Carry(enters=entered.carried[carry.leaves], leaves=leaving))
        starts.append(start)
    sums: list[str] = []
    for constant in scan.constants:
        part = entered.inside.get(constant)
        if part is None or constant not in wanted:
            continue
        value = scan.body.value(constant)
        held = back.declare(replace(value, name=f"sum.{constant}", role="gradient", of=constant))
        total = back.one("add", (held, part), f"sum.{constant}.next")
        carries.append(Carry(enters=held, leaves=total))
        starts.append(build.one("zeros", (reference,), f"sum.{constant}.start", attributes=Zeros(shape=value.shape)))
        sums.append(constant)
    return carries, starts, sums


def _copied(back: BodyBackward, cotangent: str, of: Value) -> str:
    """A cotangent of a value of the body, in a place of its own."""
    made = back.one("affine", (cotangent,), f"d.{of.name}", layer=of.layer, attributes=Line(scale=1.0))
    back.values[made] = replace(back.values[made], role="adjoint", of=of.name)
    return made


def _needed(back: BodyBackward, entered: _Entered, wanted: Sequence[str], stacked: Iterable[str]) -> set[str]:
    """The values of the body that the gradients of constants and sequences depend on, in this timestep or through
    earlier ones."""
    needed = set(stacked) | {entered.inside[name] for name in wanted if name in entered.inside}
    leaving = {
        entered.carried[carry.leaves]: entered.inside.get(carry.enters)
        for carry in back.scan.carries
        if carry.leaves in entered.carried
    }
    known = -1
    while known < len(needed):
        known = len(needed)
        for step in reversed(back.operations):
            if needed & set(step.outputs):
                needed |= set(step.inputs)
        needed |= {leaves for enters, leaves in leaving.items() if enters in needed and leaves is not None}
    return needed


def _with_stash(build: GraphBuilder, op: Operation, stash: list[str]) -> Operation:
    """`op` with the stash as further stacked outputs, put in its place."""
    scan: Scan = op.attributes
    extra = tuple(name for name in stash if name not in scan.stacked)
    names = []
    for name in extra:
        inside = scan.body.value(name)
        unique = build.fresh(f"{op.name}.{name}")
        build.values[unique] = replace(inside, name=unique, shape=(scan.timesteps, *inside.shape))
        names.append(unique)
    attributes = replace(scan, stacked=(*scan.stacked, *extra))
    grown = replace(op, outputs=(*op.outputs, *names), attributes=attributes)
    build.operations[build.operations.index(op)] = grown
    return grown
