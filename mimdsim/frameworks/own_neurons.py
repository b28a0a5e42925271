"""Neurons that are written out in PyTorch, operation by operation, as layers of cells with equations of their own.

The equations of a timestep (written_equations.py) are run on the currents that were recorded, and must send what the
module sent.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.frameworks.arithmetic import ADD, OVER, TIMES
from mimdsim.frameworks.neurons import Reading, numbers_of, refusal, tell
from mimdsim.frameworks.origins import (
    THROUGH,
    Currents,
    Dropped,
    FunctionResult,
    Gate,
    Joined,
    LayerOutput,
    Made,
    Origin,
    Parameter,
    Product,
    Read,
    Slice,
    Sum,
    each_in,
    is_in_time,
    timestep_of,
    unread_in,
    unweighted,
    with_parts,
)
from mimdsim.frameworks.recorded import NeuronCalls, Recorded
from mimdsim.frameworks.recording import GATHERS
from mimdsim.frameworks.recording_arithmetic import LEAST
from mimdsim.frameworks.written_equations import (
    Classes,
    Component,
    EquationWriter,
    LayerTimes,
    Own,
    Written,
    components_of,
    core_of,
    is_current,
    made_in,
    products_of,
    signature_of,
)
from mimdsim.graph import elementwise
from mimdsim.graph.cell_equations import SUMS, Arithmetic, equations_of, evaluate
from mimdsim.graph.cells import OUTPUT, CellModel

NEAR = 1e-4  # of a threshold: float32 sums in another order may fall on either side
READ_OF_NEURONS = "what is: docs/pytorch.md, 'Neurons that are written out'"
SAME = 1e-4  # relative, of numbers that are sent: PyTorch computes in float32


class _Numbers(Arithmetic):
    """The functions of equations on arrays; nearest: how near to a threshold a spike was."""

    sigmoid, tanh, exp, sqrt, log, relu = (  # type: ignore[assignment]
        staticmethod(elementwise.FUNCTIONS[name].value)
        for name in ("sigmoid", "tanh", "exponential", "sqrt", "log", "relu")
    )
    detach = damp = staticmethod(lambda x, _factor=1.0: x)  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__(self._spike)
        self.nearest: np.ndarray | float = np.inf

    def _spike(self, x: np.ndarray) -> np.ndarray:
        # whole numbers, and states that are 0, may be equal to a threshold, in any precision
        self.nearest = np.minimum(self.nearest, np.where(np.isin(x, (0, LEAST)), np.inf, np.abs(x)))
        return (x > 0).astype(np.float64)


def made_by(
    layer: Written,
    currents: np.ndarray,
    sums: np.ndarray,
    texts: tuple[str, ...],
    held: Mapping[tuple[str, int], np.ndarray],
) -> tuple[list[dict[str, np.ndarray]], np.ndarray, np.ndarray]:
    """What equations make, by timestep and name [samples, neurons], of currents and of sums over own outputs
    [timesteps, samples, gates * neurons]; whether a spike was so near to its threshold that float32 may have decided
    otherwise; and the largest numbers so far. held: what the module made, from which the next timestep goes on."""
    equations = equations_of(texts)
    made: dict[str, Any] = {}
    every, doubtful, reached = [], [], []
    gates = layer.model("").gates
    zeros = np.zeros((currents.shape[1], currents.shape[2] // gates))
    largest = zeros + 1.0
    for t in range(len(currents)):
        by_gate = {"I": np.split(currents[t], gates, axis=-1), "R": np.split(sums[t], gates, axis=-1)}
        before, made, functions = made, {}, _Numbers()
        every.append(dict[str, np.ndarray]())

        def named(name: str, earlier: bool, now: Any = made, then: Any = before, by_gate: Any = by_gate) -> Any:
            if earlier:
                return then.get(name, zeros)
            if name in now:
                return now[name]
            if found := SUMS.fullmatch(name):
                return by_gate[found[1]][int(found[2] or 1) - 1]
            values = layer.rows[name][1]
            return np.repeat(values, zeros.shape[1] // values.size, axis=1)

        for each in equations:
            with np.errstate(all="ignore"):  # said where it is compared
                value = evaluate(each.of, named, functions) + zeros
            largest = np.maximum(largest, np.where(np.isfinite(value), np.abs(value), 0.0))
            every[t][each.name] = value
            made[each.name] = held.get((each.name, t), value)
        doubtful.append(functions.nearest <= NEAR * largest)
        reached.append(largest)
    return every, np.stack(doubtful), np.stack(reached)


def with_own_neurons(recorded: Recorded, output: str) -> Recorded:
    """What was recorded, with the neurons that are written out as layers; output: what the loss reads of the last."""
    recorded = replace(recorded, returned=[_undivided(origin) for origin in recorded.returned])
    for name, calls in recorded.layers.items():
        if isinstance(read := calls.origins[-1], Made) and not calls.reading.weights:
            given = (arg for arg in read.args if is_current(arg))
            normed = any(product.norm for arg in given for product in products_of(arg))
            raise refusal(
                f"layer '{name}' reads what '{read.by}' made; neurons of a framework read products of spikes and "
                "weights, with their biases, which numbers may multiply"
                f"{'; what multiplies a norm belongs in its weight' if normed else ''}"
            )
    of_layers = (origin for calls in recorded.layers.values() for origin in calls.origins)
    # also what is read last, and by nothing that is returned
    ends = [*recorded.returned, *recorded.returned_before]
    # of which the last may not be read, or the others
    at_once = [product for product, *_ in recorded.currents if is_in_time(product)]
    components = components_of(
        [*ends, *of_layers, *at_once, *recorded.at_once, *(read.of for read in _every_read(recorded))]
    )
    components = [part for each in components for part in _split(each, recorded.timesteps)]
    if not components:
        return recorded
    for origin in recorded.returned:
        if isinstance(origin, FunctionResult) and len(origin.of) > recorded.timesteps > 0 and origin.by == "stack":
            tell(
                f"the module returns {len(origin.of)} timesteps of {recorded.timesteps}: what was there before "
                "the first is left out here, also of a maximum or a mean over time",
            )
    returned = made_in(recorded.returned)
    layers, sent = {}, dict[Made, LayerOutput]()
    for component in components:
        if not any(is_current(arg) for made in component.members for arg in made.args):
            continue  # of parameters alone
        calls, outputs = _layer(component, recorded, returned, output)
        if calls.name in layers or calls.name in recorded.layers:
            raise refusal(f"'{calls.name}' is read by neurons that are written out twice; nearest: weights for each")
        layers[calls.name] = calls
        sent |= outputs
    every = {**recorded.layers, **layers}
    known: dict[int, Any] = {}
    made = {
        name: replace(calls, origins=[_replaced(origin, sent, known) for origin in calls.origins])
        for name, calls in every.items()
    }
    found = [_replaced(origin, sent, known) for origin in recorded.returned]
    ends = [each.of[0] if isinstance(each, FunctionResult) and each.by == "div" else each for each in recorded.returned]
    times = {sent[end].call for end in ends if isinstance(end, Made) and end in sent}
    plain = bool(ends) and all(isinstance(each, Made) for each in ends) and len(times) == 1 and not recorded.stepwise
    return replace(recorded, layers=made, returned=found, reading="last" if plain else recorded.reading)


def _split(component: Component, timesteps: int) -> list[Component]:
    """The neurons of a component whose spikes weights read and, apart from them, what is made of these spikes alone
    that weights read too, such as a trace; the component where that is not so."""
    read = [root for root, by in component.roots.items() if by]
    core: set[Made] = set()
    spikes = [made for made in component.members if made.op == "spike"]
    waiting = list(spikes)
    while waiting:
        core.add(made := waiting.pop())
        waiting += [arg for arg in made.args if isinstance(arg, Made) and arg not in core]
    outside = [made for made in component.members if made not in core]
    between = {arg for made in outside for arg in made.args if isinstance(arg, Made) and arg in core}
    of_spikes, others = ([root for root in read if (root.op == "spike") is of] for of in (True, False))
    apart = of_spikes and others and core.isdisjoint(others)
    reads = [arg for made in component.members if made in core for arg in made.args if is_current(arg)]
    held = [made.values for made in spikes if made.values is not None]
    if not apart or not reads or not len(spikes) == len(held) == timesteps or not between <= set(spikes):
        return [component]
    label = f"what '{products_of(reads[0])[0].weight.removesuffix('.weight')}' sends"
    sent = {
        made: Read(of=unweighted(made, label, values.shape[1:], t), tensor=values)
        for t, (made, values) in enumerate(zip(spikes, held, strict=True))
    }
    for made in outside:
        made.args = tuple(sent[arg] if isinstance(arg, Made) and arg in sent else arg for arg in made.args)
    inner, outer = ({root: by for root, by in component.roots.items() if (root in core) is of} for of in (True, False))
    for spike in between:
        inner.setdefault(spike, set()).add(label)
    return [Component([each for each in component.members if each in core], inner), Component(outside, outer)]


def _undivided(origin: Origin | None) -> Origin | None:
    """What is divided, or multiplied, by a number at the end, such as that of the timesteps, as such; spikes that are
    added up one after another, and then read by weights, as their sum."""
    if isinstance(origin, Product):
        added = _added_up(_undivided(origin.of))
        return origin if added is None else replace(origin, of=added)
    if not isinstance(origin, Made) or origin.op not in (OVER, TIMES):
        return origin
    of: Any
    of, number = origin.args if origin.op == OVER else reversed(origin.args)
    if not isinstance(number, float) or number <= 0:
        return origin
    of = of.of if isinstance(of, Read) and isinstance(of.of, Currents) else of
    if not isinstance(of, (Made, Product, Sum)):
        return origin
    return FunctionResult(by="div", of=(of,), divisor=number if origin.op == OVER else 1 / number)


def _added_up(origin: Origin | None) -> FunctionResult | None:
    """The sum, also divided, of spikes that were added one after another to a number; None if it is none."""
    if isinstance(origin, FunctionResult) and origin.by == "div":
        added = _added_up(origin.of[0])
        return None if added is None else replace(origin, of=(added,))
    parts: list[Made] = []
    rest: Any = origin
    while isinstance(rest, Made) and rest.op == ADD:
        one, other = rest.args
        rest, last = (one, other) if isinstance(other, Made) else (other, one)
        if not isinstance(last, Made) or not _is_spike(last):
            return None
        parts.append(last)
    parts += [rest] if isinstance(rest, Made) else []
    alike = {(each.op, each.by) for each in parts}
    return FunctionResult(by="add", of=tuple(parts[::-1])) if len(parts) > 1 and len(alike) == 1 else None


def _layer(
    component: Component, recorded: Recorded, returned: set[Made], output: str
) -> tuple[NeuronCalls, dict[Made, LayerOutput]]:
    """The calls of a layer that is written out, and what its outputs, and states that are returned, are."""
    _give_timesteps(component, recorded)
    reads = [arg for made in component.members for arg in made.args if isinstance(arg, Read) and is_current(arg)]
    unread = not_read(recorded, component)
    said = f"'{unread}' of it is not read; {READ_OF_NEURONS}" if unread else ""
    if any(not products_of(read) for read in reads):
        raise refusal(f"neurons that are written out read what is no product with weights{said and f': {said}'}")
    where = f"the neurons that read '{products_of(reads[-1])[0].weight}'"
    if len({read.of.gates for read in reads if isinstance(read.of, Gate)}) > 1 or any(map(_is_wide, reads)):
        raise refusal(f"{where} read shares of one product that differ in width; nearest: chunk, of equal shares")
    timesteps = recorded.timesteps or 1 + max(each.call for read in reads for each in products_of(read))
    alone = all(len(calls.sequence(calls.outputs)) == 1 for calls in recorded.layers.values())
    layer = LayerTimes(where, recorded.made, timesteps, alone)
    families = layer.families(component, said)
    classes, line = _sent(where, families, component, output)
    done = {each.op for each in classes.latest}
    for each in each_in((Made,), *line):
        if isinstance(each, Made) and each.op not in (*done, "detach") and each not in layer.constant:
            if unread := _not_read_of_states(recorded):
                raise refusal(f"{where}: '{unread}' of it is not read; {READ_OF_NEURONS}")
            raise refusal(
                f"{where}: '{each.by}' acts in some timesteps and not in the last; nearest: a loop that does the same "
                "in every timestep"
            )
    own = Own(line, reads)
    kind, shown = _returned_instead(families, line, classes, returned, output)
    reads = [read for read in reads if not own.is_silent(read)]
    read_by = set().union(*(component.roots[each] for each in line))
    earliest = timesteps - 1 if classes.latest[0] in returned and read_by <= own.weights else -np.inf
    earliest = max(earliest, own.earliest(reads), _read_at_the_end(recorded, classes.latest[0], timesteps))
    times = layer.times(classes, own, earliest)
    inputs = [read for read in _every_read(recorded) if not own.is_sum(read)]
    mine = sorted({signature_of(read)[0] for read in reads if not own.is_sum(read)})
    weights = max(mine, key=len)
    if any(not set(each) <= set(weights) for each in mine):
        apart = sorted({each[0] for each in mine if not set(each) <= set(weights)})
        if any(map(own.is_sum, reads)) or not _join_gates(reads, recorded, own):
            raise refusal(
                f"{where} read {' and '.join(map(repr, apart))} apart from '{weights[0]}'; nearest: one matrix "
                "whose product is split, and one for what is read of their own outputs, as torch.nn.GRU has them"
            )
        return _layer(component, recorded, returned, output)
    inputs = [read for read in inputs if set(signature_of(read)[0]) <= set(weights)]
    currents = _by_time(where, inputs, own.time, timesteps, recorded)
    gates = max(read.of.gates if isinstance(read.of, Gate) else 1 for read in reads)
    product = products_of(reads[-1])[0]
    width = currents[0][0].shape[1:].numel() // gates
    columns = product.convolution.result.channels // gates if product.convolution else product.channels or width
    sums = next((core_of(read) for read in reversed(reads) if own.is_sum(read)), None)
    outputs = {times[0] - age: made for made, age in line.items()}
    refused = None
    for late, anew in itertools.product((False, True), repeat=2):
        when = layer.late(classes, times) if late else times
        values, begins = layer.values(classes, when, line)
        writer = EquationWriter(layer, classes, when, own, columns, begins, anew)
        written = Written(texts=writer.texts, rows=writer.rows, own=sums, first=times[0] - max(line.values()))
        try:
            model = written.model("own")
        except MappingError as problem:
            raise refusal(f"{where}: {problem} (its equations: {'; '.join(writer.texts)})") from None
        try:
            whole = _checked(
                where, written, model, own, times[0], recorded, currents, outputs, writer.every, values, writer.names
            )
            break
        except DescriptionError as problem:
            refused = refused or problem
    else:
        assert refused is not None
        raise refused
    sends = writer.names.get(kind, "")
    if (
        kind
        and sums is not None
        and read_by <= own.weights
        and sends in {each.name for each in equations_of(written.texts)}
    ):
        written, outputs = written.sending(sends), {when[kind] - age: made for made, age in shown.items()}
    else:
        sends = OUTPUT
    shape = currents[0][0].shape
    neurons = (shape[0], shape[1] // model.gates, *shape[2:])
    found = [torch.as_tensor(each[sends]).reshape(neurons) for each in whole]
    steps = {each.step for each in classes.latest if each.step}
    if len({(each.surrogate, each.slope) for each in steps if each}) > 1:
        raise refusal(f"{where} spike with several surrogate gradients; one of them can run")
    step = next(iter(steps), None)
    name = weights[0].removesuffix(".weight")
    reading = Reading(
        model=name,
        parameters={},
        reset="",
        reset_gradient="",
        spiking=True,
        surrogate=step.surrogate if step else "superspike",
        slope=step.slope if step else 1.0,
        written=written,
    )
    calls = NeuronCalls(
        name=name,
        module=torch.nn.Identity(),
        reading=reading,
        currents=[tensor for tensor, _ in currents],
        origins=[origin for _, origin in currents],
        outputs=found,
    )
    sent = {made: LayerOutput(layer=name, call=time, spikes=True) for time, made in outputs.items()}
    for _, states in families:
        for made, age in states.items():
            sent.setdefault(made, LayerOutput(layer=name, call=timesteps - 1 - age, spikes=False))
    return calls, sent


def _read_at_the_end(recorded: Recorded, last: Made, timesteps: int) -> float:
    """The timestep in which weights of what is returned read an output: neurons may send what they made before."""
    found = -np.inf
    through = FunctionResult, Sum, Dropped, Slice
    for product in each_in(through, *recorded.returned):
        if isinstance(product, Product) and any(each is last for each in each_in(through, product.of)):
            every = product.of.of if is_in_time(product) and isinstance(product.of, FunctionResult) else ()
            found = max(found, every.index(last) if last in every else product.call)
    return found or timesteps - 1.0  # 0: once, of what was sent in all timesteps, or the last


def _give_timesteps(component: Component, recorded: Recorded) -> None:
    """Give currents of an image that are made once, before the timesteps, that of each time when neurons read them."""
    timesteps = 1 + max((product.call for product, *_ in recorded.currents), default=0)
    readers: dict[str, dict[Made, int]] = {}
    for made in component.members if not recorded.timesteps else ():
        for product in (each for arg in made.args if is_current(arg) for each in products_of(arg)):
            if is_in_time(product):
                readers.setdefault(product.weight, {})[made] = product.call
    for weight, calls in readers.items():
        share, left = divmod(len(calls), timesteps)  # how often in a timestep
        for at, made in enumerate(calls if not left and not any(calls.values()) else ()):
            made.args = tuple(
                replace(arg, of=_of_timestep(arg.of, weight, at // share)) if is_current(arg) else arg
                for arg in made.args
            )


def _of_timestep(origin: Any, weight: str, t: int) -> Any:
    if isinstance(origin, Product):
        return replace(origin, call=t) if origin.weight == weight else origin
    return (
        with_parts(origin, lambda part: _of_timestep(part, weight, t))
        if isinstance(origin, Currents | Gate)
        else origin
    )


def _join_gates(reads: list[Read], recorded: Recorded, own: Own) -> bool:
    """Make products that neurons read apart, each with weights of its own, shares of one that is all of them side by
    side; whether that can be."""
    weights = {read: set(signature_of(read)[0]) for read in reads}
    gates = [
        each
        for at, each in enumerate(weights.values())
        if not any(each < other or (each == other and at > place) for place, other in enumerate(weights.values()))
    ]
    of_gate = {read: [gate for gate, each in enumerate(gates) if found <= each] for read, found in weights.items()}
    by_time: dict[int, dict[int, Currents]] = {}
    for read, of in of_gate.items():
        if len(of) != 1 or isinstance(read.of, Gate) or any(each.convolution for each in products_of(read)):
            return False
        core = core_of(read)
        if by_time.setdefault(own.time(read), {}).setdefault(of[0], core) is not core:
            return False
    if any(len(parts) < len(gates) for parts in by_time.values()) or len({read.tensor.shape for read in reads}) > 1:
        return False
    columns = (reads[0].tensor.shape[-1],) * len(gates)
    joined = {
        time: Joined(parts=tuple(parts[gate] for gate in range(len(gates))), widths=columns)
        for time, parts in by_time.items()
    }
    shares = {
        read: Read(of=Gate(of=joined[own.time(read)], index=of[0], gates=len(gates)), tensor=read.tensor)
        for read, of in of_gate.items()
    }
    for made in recorded.made:
        made.args = tuple(shares.get(arg, arg) if isinstance(arg, Read) else arg for arg in made.args)
    return True


def not_read(recorded: Recorded, component: Component | None = None) -> str:
    """The first function of what a component makes, or of a product or parameter, that equations have not."""
    members = set(component.members) if component else set()
    for kinds in ((), (Currents, Gate, Parameter)):  # of its own first
        for each in recorded.unread:
            if each.by not in GATHERS and any(of in members if not kinds else isinstance(of, kinds) for of in each.of):
                return str(unread_in(each).by).strip("_")
    return ""


def _not_read_of_states(recorded: Recorded) -> str:
    """The first function of what neurons make that equations have not; after it they are other neurons."""
    made = (
        each.by for each in recorded.unread if each.by not in GATHERS and any(isinstance(of, Made) for of in each.of)
    )
    return next(made, "").strip("_")


Family = tuple[Classes, dict[Made, int]]


def _sent(where: str, families: list[Family], component: Component, output: str) -> Family:
    """What the layer sends: what weights read, else what the module returns."""
    read = [each for each in families if any(component.roots[made] for made in each[1])]
    if len(read) > 1:
        raise refusal(
            f"{where} send two kinds of values, which weights read; one of them can run (as in torch.nn.GRU, whose "
            "reset gate multiplies what weights made of its outputs)"
        )
    spikes = [each for each in families if _is_spike(each[0].latest[0]) == (output != "membrane")]
    return [*read, *spikes, *families][0]


def _returned_instead(
    families: list[Family], line: dict[Made, int], classes: Classes, returned: set[Made], output: str
) -> tuple[int, dict[Made, int]]:
    """The class of what the loss reads, while weights read what is made of it, and all of the kind with the timesteps
    from each to the latest of that class; 0 and none where it reads what weights do."""
    for _, others in families if output != "spikes" and (output or not returned & line.keys()) else ():
        known = next((made for made in others if (place := classes.places.get(made)) and not place.age), None)
        if others is not line and known and next(iter(others)) in returned:
            return classes.places[known].kind, {made: age - others[known] for made, age in others.items()}
    return 0, {}


def _is_spike(made: Made) -> bool:
    """Whether it is a spike, or a number or parameter times one."""
    of = [arg for arg in made.args if isinstance(arg, Made)]
    return made.op == "spike" or (made.op == TIMES and len(of) == 1 and _is_spike(of[0]))


def _every_read(recorded: Recorded) -> list[Read]:
    reads = [arg for made in recorded.made for arg in made.args if isinstance(arg, Read) and is_current(arg)]
    return [read for read in reads if not _is_wide(read)]


def _is_wide(read: Read) -> bool:
    """Whether it is several shares of a product, of which parts may be read."""
    return isinstance(read.of, Gate) and read.of.shares > 1


def _by_time(
    where: str, reads: list[Read], time: Callable[[Read], int], timesteps: int, recorded: Recorded
) -> list[tuple[torch.Tensor, Currents]]:
    """The current of every timestep, with all its gates, and its origin."""
    parts: dict[int, dict[int, torch.Tensor]] = {}
    origins: dict[int, Currents] = {}
    for read in reads:
        t, gate = time(read), read.of.index if isinstance(read.of, Gate) else 0
        parts.setdefault(t, {})[gate] = read.tensor
        origins[t] = core_of(read)
    for t in range(1 + max(parts), timesteps):
        if t - 1 in parts and (last := _left_over(origins[t - 1], parts[t - 1], t, timesteps, recorded)) is not None:
            parts[t], origins[t] = {0: last[0]}, last[1]
    missing = [t for t in range(timesteps) if t not in parts]
    if missing or len(parts) > timesteps:
        raise refusal(
            f"{where} read no current in timestep {missing[0] if missing else timesteps} of {timesteps}; nearest: a "
            "loop over all of them"
        )
    whole = (torch.cat([parts[t][gate].detach() for gate in sorted(parts[t])], dim=1) for t in range(timesteps))
    return [(tensor, origins[t]) for t, tensor in enumerate(whole)]


def _left_over(
    origin: Currents, parts: dict[int, torch.Tensor], t: int, timesteps: int, recorded: Recorded
) -> tuple[torch.Tensor, Product] | None:
    """The current of a timestep, and its origin, that a product made with all others and nobody reads, as the last if
    states are made of what was before. parts: those of the timestep before. None: there is none."""
    before = torch.cat([parts[gate] for gate in sorted(parts)], dim=1)
    for product, whole, version in recorded.currents:
        if getattr(origin, "weight", "") != product.weight or not is_in_time(product) or whole._version != version:
            continue
        for axis in range(whole.ndim if timesteps in whole.shape else 0):
            if whole.shape[axis] == timesteps and torch.equal(whole.select(axis, t - 1), before):
                return whole.select(axis, t), timestep_of(product, t, timesteps)  # type: ignore[return-value]
    return None


def _checked(
    where: str,
    written: Written,
    model: CellModel,
    own: Own,
    last: int,
    recorded: Recorded,
    currents: list[tuple[torch.Tensor, Currents]],
    outputs: dict[int, Made],
    every: tuple[str, ...],
    by_class: dict[tuple[int, int], torch.Tensor],
    names: dict[int, str],
) -> list[dict[str, np.ndarray]]:
    """What the equations make in every timestep, by name, as the module made it; raises DescriptionError where it is
    not what the module sent, or where values of it, by class and timestep, are not what `every` equation makes."""
    given = np.stack([_flat(tensor) for tensor, _ in currents])
    sums = np.zeros_like(given)
    for read in _every_read(recorded) if model.recurrent else ():
        if not own.is_sum(read):
            continue
        age = [made for product in products_of(read) for made in made_in([product.of])]
        t = last - own.ages[age[0]] + 1 if age and age[0] in own.ages else 0
        gate, columns = read.of.index if isinstance(read.of, Gate) else 0, given.shape[2] // model.gates
        values, width = _flat(read.tensor), columns if isinstance(read.of, Gate) else given.shape[2]
        if 0 <= t < len(sums):
            sums[t, :, gate * columns : gate * columns + width] = values
    columns = given.shape[2] // model.gates
    known = {
        key: rows for key, each in by_class.items() if (rows := _as_rows(each, given.shape[1], columns)) is not None
    }
    held = {(names[kind], t): values for (kind, t), values in known.items() if kind in names}
    sent = {(OUTPUT, t): each.values for t, each in outputs.items() if 0 <= t < len(given)}
    held |= {key: _flat(tensor) for key, tensor in sent.items() if tensor is not None}
    try:
        whole, doubtful, largest = made_by(written, given, sums, every, held)
    except ValueError:  # of shapes
        raise refusal(
            f"{where} compute with as many values as there are inputs, or others, where others are one for each neuron "
            f"(their equations: {'; '.join(written.texts)})"
        ) from None
    wanted = {(f"_{kind}", t): values for (kind, t), values in known.items()} | held
    for (name, t), values in sorted(wanted.items(), key=lambda each: each[0][1]):
        if t >= len(whole):
            continue
        off = np.where(doubtful[t], 0.0, np.abs(values - whole[t][name]))
        if not (off <= SAME * largest[t]).all():
            raise refusal(
                f"{where} make values that are off by {off.max():.2g} in timestep {t} from those of the equations that "
                f"were read: {'; '.join(written.texts)}; nearest: states that begin at 0, the same in every timestep"
            )
    return [{name: held.get((name, t), value) for name, value in each.items()} for t, each in enumerate(whole)]


def _as_rows(tensor: torch.Tensor, samples: int, columns: int) -> np.ndarray | None:
    """Values [samples, columns], of numbers for all of them too; None for others, as of constants by channel."""
    found = numbers_of(tensor)
    if found.size == samples * columns:
        return found.reshape(samples, columns)
    if found.size == 1 or (found.ndim == 1 and found.size == columns):
        return np.broadcast_to(found, (samples, columns)).copy()
    return None


def _flat(tensor: torch.Tensor) -> np.ndarray:
    return numbers_of(tensor).reshape(len(tensor), -1)


def _replaced(origin: Any, sent: dict[Made, LayerOutput], known: dict[int, Any]) -> Any:
    """An origin in which what layers sent stands for how it was made."""
    if isinstance(origin, Made):
        return sent.get(origin, origin)
    if id(origin) in known:
        return known[id(origin)][1]
    made = origin
    if isinstance(origin, Sum) and len(origin.parts) == 1:
        return _replaced(origin.parts[0], sent, known)
    if isinstance(origin, (Product, Joined, FunctionResult, *THROUGH)):
        made = with_parts(origin, lambda part: _replaced(part, sent, known))
    known[id(origin)] = origin, made
    return made
