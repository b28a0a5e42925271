"""The linear neuron family: between spikes the state follows an affine map, after a spike another one.

    x[t] = A x[t-1] + B I[t] + c        if it did not fire at t-1
    x[t] = A'x[t-1] + B'I[t] + c'       if it did             (whatever the reset: zero, subtract, adaptation)
    u[t] = h . x[t] + o                 compared with the threshold: fires if u > threshold (strict)

A neuron is given by these arrays; `neuron_models` has a record per model that makes them from its parameters. Where
the state is the potential and says who fired, `fused` operations leave u out, as the published code does (facts:
Finkbeiner et al. 2024, arXiv 2311.04386, equations of the fused layer); they have costs of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mimdsim.base.errors import MappingError, check_choice
from mimdsim.graph.records import (
    Backward,
    OpDef,
    Operation,
    Outputs,
    SparseSpikes,
    Value,
    elements,
    like,
    listed_like,
    no_flops,
    per_element,
    shaped,
    summed,
)
from mimdsim.graph.spikes import Selection, smooth_spike


@dataclass(frozen=True, kw_only=True, eq=False)
class Affine:
    """x -> A x + B I + c: matrix [states, states, width], drive and constant [states, width]; a width of 1 holds for
    all neurons of the layer, otherwise there is one column per neuron."""

    matrix: np.ndarray
    drive: np.ndarray
    constant: np.ndarray

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.matrix, self.drive, self.constant


def advance(affine: Affine, x: np.ndarray, current: np.ndarray) -> np.ndarray:
    """A x + B I + c, added in the order states, current, constant; terms that are zero for all neurons are left out."""
    made = np.zeros_like(x)
    matrix, drive, constant = (array.astype(x.dtype) for array in affine.arrays)
    for row in range(len(x)):
        for column in range(len(x)):
            if matrix[row, column].any():
                made[row] += matrix[row, column] * x[column]
        if drive[row].any():
            made[row] += drive[row] * current
        if constant[row].any():
            made[row] += constant[row]
    return made


def pull_back(affine: Affine, dx: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A^T dx and B^T dx."""
    matrix, drive, _ = (array.astype(dx.dtype) for array in affine.arrays)
    previous, q = np.zeros_like(dx), np.zeros_like(dx[0])
    for row in range(len(dx)):
        for column in range(len(dx)):
            if matrix[row, column].any():
                previous[column] += matrix[row, column] * dx[row]
        if drive[row].any():
            q += drive[row] * dx[row]
    return previous, q


def terms_of(*arrays: np.ndarray) -> int:
    """How many coefficients are nonzero for some neuron in at least one of the arrays, which have the same shape."""
    return int(np.any([array.any(axis=-1) for array in arrays], axis=0).sum())


def _entries(arrays: tuple[np.ndarray, ...]) -> list[tuple[int, tuple[int, ...]]]:
    """Every coefficient of arrays whose last axis is the neurons, as (array, index within it)."""
    return [(number, at) for number, array in enumerate(arrays) for at in np.ndindex(array.shape[:-1])]


def shortest(row: np.ndarray) -> np.ndarray:
    """One number where all are the same."""
    return row[:1] if (row == row[0]).all() else row


@dataclass(frozen=True, kw_only=True, eq=False)
class Learned:
    """A constant of the model that is trained; the coefficients grow linearly with it.

    name: of the model's parameter; value float64 [neurons], or [1] for one that the layer shares; link: what is trained
    in its place ('clamp': itself, used from `low` to `high`; 'sigmoid': its logit). slopes: how much every array of the
    neuron grows with it, in the order of `LinearNeuron.arrays`; lift: how much its lift does.
    """

    name: str
    value: np.ndarray
    link: str
    low: float
    high: float
    slopes: tuple[np.ndarray, ...]
    lift: np.ndarray


RESET_GRADIENTS = ("pass", "mask", "full")
RESETS_BY = ("state", "emission")
MOST_STATES = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearNeuron:
    """The neurons of one layer.

    quiet: the map where a neuron did not fire in the previous timestep; fired: where it did (None: the same). readout h
    [states, width], offset o [width] (a neuron's own threshold is the layer's threshold minus its offset); lift: what
    of the offset is there for that comparison alone, and is no part of the membrane potential.
    reset_by: a neuron has fired when its 'state' was above the threshold, or when its 'emission' is listed (a spike
    dropped for lack of capacity does not reset). reset_gradient: 'pass' (adjoint by the quiet map everywhere), 'mask'
    (by the map that was applied), 'full' (also through the decision, with the layer's surrogate). published: there is
    published code for the model, which `fused` neurons use. learned: constants of the model that are trained, of which
    the arrays hold what they begin with. Neurons are equal when all these fields are.
    Raises MappingError for shapes or choices that do not fit together.
    """

    model: str
    states: tuple[str, ...]
    quiet: Affine
    fired: Affine | None
    readout: np.ndarray
    offset: np.ndarray
    threshold: float
    reset_by: str = "state"
    reset_gradient: str = "mask"
    published: bool = False
    learned: tuple[Learned, ...] = ()
    lift: np.ndarray = field(default_factory=lambda: np.zeros(1))

    def __post_init__(self) -> None:
        for value, known, key in (
            (self.reset_by, RESETS_BY, "reset_by"),
            (self.reset_gradient, RESET_GRADIENTS, "reset_gradient"),
        ):
            check_choice(f"network.{key}", value, known)
        count = len(self.states)
        if not 1 <= count <= MOST_STATES:
            raise MappingError(f"neuron '{self.model}' has {count} states; 1 to {MOST_STATES} are possible")
        if not self.threshold > 0:
            raise MappingError(
                f"neuron '{self.model}': its threshold lies {self.threshold:g} above the resting potential; it must be "
                "above it, or the neuron fires without input: raise the threshold"
            )
        for array in self.arrays:
            if not np.isfinite(array).all():
                raise MappingError(f"neuron '{self.model}': its parameters give coefficients that are not finite")
        if self.readout.shape[0] != count or any(a.shape[0] != count for a in self.quiet.arrays):
            raise MappingError(f"neuron '{self.model}': arrays do not have its {count} states on their first axis")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinearNeuron) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    @property
    def _content(self) -> tuple[object, ...]:
        plain = (self.model, self.states, self.threshold, self.reset_by, self.reset_gradient, self.published)
        named = ((each.name, each.link, each.low, each.high) for each in self.learned)
        learned = (array for each in self.learned for array in (each.value, *each.slopes, each.lift))
        return *plain, *named, *((array.shape, array.tobytes()) for array in (*self.arrays, self.lift, *learned))

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        both = (*self.quiet.arrays, *(self.fired.arrays if self.fired else ()))
        return (*both, self.readout, self.offset)

    @property
    def neurons(self) -> int:
        """The number of neurons that the arrays describe; 1 when one number holds for all."""
        return int(max(array.shape[-1] for array in self.arrays))

    @property
    def resets(self) -> bool:
        """Whether a spike changes anything in the neuron that fired it."""
        return self.fired is not None

    @property
    def fused(self) -> bool:
        """Whether the published operations and codelets run, fused and priced as published: they need one number for
        all neurons, and a reset to zero by state that no gradient goes through."""
        cleared = self.fired is None or not (self.fired.matrix.any() or self.fired.constant.any())
        by_state = self.reset_by == "state" and self.reset_gradient != "full"
        return self.published and by_state and cleared and self.neurons == 1 and not self.learned

    @cached_property
    def rows(self) -> tuple[tuple[tuple[int, tuple[int, ...]], ...], ...]:
        """The places in `arrays`, as (array, index within it), of every learned coefficient: equal ones are one."""
        found: dict[tuple[bytes, ...], list[tuple[int, tuple[int, ...]]]] = {}
        for number, at in _entries(self.arrays):
            slopes = [each.slopes[number][at] for each in self.learned]
            if any(slope.any() for slope in slopes):
                alike = tuple(shortest(array).tobytes() for array in (self.arrays[number][at], *slopes))
                found.setdefault(alike, []).append((number, at))
        return tuple(map(tuple, found.values()))

    def with_rows(self, rows: tuple[np.ndarray, ...]) -> LinearNeuron:
        """The neurons with these coefficients, each [1, neurons], in the places of `rows`."""
        if not rows:
            return self
        arrays = [np.array(np.broadcast_to(array, (*array.shape[:-1], rows[0].shape[-1]))) for array in self.arrays]
        for row, places in zip(rows, self.rows, strict=True):
            for number, at in places:
                arrays[number][at] = row[0]
        maps = [
            Affine(matrix=m, drive=b, constant=c) for m, b, c in zip(*(arrays[k:-2:3] for k in range(3)), strict=True)
        ]
        fired = maps[1] if self.fired else None
        return replace(self, quiet=maps[0], fired=fired, readout=arrays[-2], offset=arrays[-1], learned=())

    @property
    def unreset(self) -> LinearNeuron:
        """The neurons of which only the membrane potential is read: nothing is compared with a threshold, and nothing
        learned for that."""
        learned = []
        for each in self.learned:
            slopes = (*each.slopes[:3], each.slopes[-2], each.slopes[-1] - each.lift)
            if any(map(np.any, slopes)):
                learned.append(replace(each, slopes=slopes, lift=np.zeros(1)))
        offset, none = self.offset - self.lift, np.zeros(1)
        return replace(self, fired=None, offset=offset, lift=none, learned=tuple(learned))

    @property
    def lifts(self) -> bool:
        """Whether what is compared with the threshold is not the membrane potential."""
        return bool(self.lift.any() or any(each.lift.any() for each in self.learned))

    @property
    def differs(self) -> tuple[bool, bool]:
        """Whether the two maps differ (in their matrix, in their drive): what a full reset gradient has to read."""
        if self.fired is None:
            return False, False
        pairs = zip(self.quiet.arrays, self.fired.arrays, strict=True)
        matrix, drive, _ = (bool(np.any(one != other)) for one, other in pairs)
        return matrix, drive

    def check_width(self, layer: str, neurons: int) -> None:
        """Raises MappingError when the per-neuron constants do not match the layer's number of neurons."""
        for array in self.arrays:
            if array.shape[-1] not in (1, neurons):
                raise MappingError(
                    f"layer '{layer}': constants of neuron '{self.model}' are for {array.shape[-1]} neurons, the layer "
                    f"has {neurons}; give one number for all or {neurons}"
                )


@dataclass(frozen=True, kw_only=True, eq=False)
class Gradient:
    """Attributes of 'neuron_gradient': what it reads besides dx, in this order: who fired, x before, current; and
    whether it makes the adjoint of who fired."""

    neuron: LinearNeuron
    switched: bool
    reads_state: bool = False
    reads_current: bool = False
    of_fired: bool = False


class Place(NamedTuple):
    """Where a coefficient stands: what of the neuron's states it adds to (as many as there are: the potential), what of
    states, the current and one it multiplies, and whether after a spike, without one, or always ('')."""

    target: int
    column: int
    when: str


@dataclass(frozen=True, kw_only=True, eq=False)
class RowGradient:
    """Attributes of 'coefficient_gradient': which learned coefficient of the neuron; told: whether it is known who
    fired."""

    neuron: LinearNeuron
    row: int
    told: bool

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """Where the coefficient stands."""
        neuron, states = self.neuron, len(self.neuron.states)
        found: dict[tuple[int, int], set[str]] = {}
        for number, at in neuron.rows[self.row]:
            if number >= len(neuron.arrays) - 2:
                found[states, states + 1] = {"", "after"}  # the offset; read-outs are not learned
                continue
            kind, (target, *columns) = number % 3, at
            place = target, columns[0] if kind == 0 else states + kind - 1
            found.setdefault(place, set()).add("quiet" if number < 3 else "after")
        both = self.told and neuron.resets
        whens = {place: "" if len(when) > 1 or not both else next(iter(when)) for place, when in found.items()}
        return tuple(Place(*place, when) for place, when in whens.items())

    @property
    def reads(self) -> tuple[str, ...]:
        """What it is computed from, in order: adjoints of the states and of the potential, who fired, the states
        before, the current."""
        states = len(self.neuron.states)
        wanted = {
            "dx": any(place.target < states for place in self.places),
            "du": any(place.target == states for place in self.places),
            "fired": any(place.when for place in self.places),
            "x": any(place.column < states for place in self.places),
            "current": any(place.column == states for place in self.places),
        }
        return tuple(name for name, needed in wanted.items() if needed)


def _row_gradient(about: RowGradient, *given: np.ndarray) -> tuple[np.ndarray]:
    found, states = dict(zip(about.reads, given, strict=True)), len(about.neuron.states)
    total = np.zeros_like(given[0][..., :1, :].reshape(-1, given[0].shape[-1])[:1])
    for target, column, when in about.places:
        part = found["dx"][target] if target < states else found["du"]
        if column <= states:
            part = part * (found["x"][column] if column < states else found["current"])
        if when:
            fired = found["fired"]
            share = fired if fired.dtype != bool else fired.astype(part.dtype)
            part = part * (share if when == "after" else 1 - share)
        total += summed(part)
    return (total,)


@dataclass(frozen=True, kw_only=True)
class Fired:
    """Attributes of 'fired' and 'emitted': the layer's selection and width, and whether gradients go through it."""

    selection: Selection
    neurons: int
    differentiable: bool


def _choose(fired: np.ndarray, quiet: np.ndarray, after: np.ndarray) -> np.ndarray:
    """`after` where a neuron fired, `quiet` elsewhere; in between for a smooth spike."""
    if fired.dtype == bool:
        return np.where(fired, after, quiet)
    mixed = quiet + fired * (after - quiet)
    return np.where(fired == 0, quiet, np.where(fired == 1, after, mixed))


def _split(neuron: LinearNeuron, given: tuple[np.ndarray, ...]) -> tuple[LinearNeuron, list[np.ndarray]]:
    """The neurons with their learned coefficients, which come last, and what else is given."""
    count = len(given) - len(neuron.rows)
    return neuron.with_rows(given[count:]), list(given[:count])


def _neuron(
    neuron: LinearNeuron, x: np.ndarray, current: np.ndarray, *given: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    neuron, fired = _split(neuron, given)
    after = advance(neuron.quiet, x, current)
    if fired and neuron.fired is not None:
        after = _choose(fired[0], after, advance(neuron.fired, x, current))
    return after, _read_out(neuron, after)


def _read_out(neuron: LinearNeuron, x: np.ndarray) -> np.ndarray:
    readout = neuron.readout.astype(x.dtype)
    u = np.zeros_like(x[0])
    for row in range(len(x)):
        if readout[row].any():
            u += readout[row] * x[row]
    if neuron.offset.any():
        u += neuron.offset.astype(x.dtype)
    result: np.ndarray = u
    return result


def _neuron_vjp(build: Backward, op: Operation, dx: str | None, du: str | None) -> tuple[str | None, ...]:
    neuron, layer = op.attributes, op.layer
    if du is not None:
        both = (du,) if dx is None else (dx, du)
        dx = build.one("neuron_readout_gradient", both, f"{layer}.dx", layer=layer, attributes=neuron)
    assert dx is not None
    given, rows = op.inputs[: len(op.inputs) - len(neuron.rows)], op.inputs[len(op.inputs) - len(neuron.rows) :]
    resets = len(given) == 3 and neuron.resets
    full = resets and neuron.reset_gradient == "full"
    matrix, drive = neuron.differs
    # maps that differ in their constants alone have one adjoint, whoever fired
    switched = resets and neuron.reset_gradient != "pass" and (matrix or drive)
    attributes = Gradient(
        neuron=neuron, switched=switched, reads_state=full and matrix, reads_current=full and drive, of_fired=full
    )
    inputs = (dx, *((build.saved(given[2]),) if switched else ()))
    inputs += (build.saved(given[0]),) if attributes.reads_state else ()
    inputs += (build.saved(given[1]),) if attributes.reads_current else ()
    inputs += tuple(map(build.saved, rows))
    learned = tuple(_row_vjp(build, op, index, given, {"dx": dx, "du": du}) for index in range(len(rows)))
    made = build.add("neuron_gradient", inputs, f"{layer}.adjoint", layer=layer, attributes=attributes)
    return (*made, *(None,) * (len(given) - len(made)), *learned)


def _row_vjp(
    build: Backward, op: Operation, index: int, given: tuple[str, ...], adjoints: dict[str, str | None]
) -> str | None:
    """The gradient of one learned coefficient, summed over the rows of samples."""
    about = RowGradient(neuron=op.attributes, row=index, told=len(given) == 3)
    found = adjoints | {"x": given[0], "current": given[1], "fired": given[-1]}
    if "du" in about.reads and adjoints["du"] is None:
        return None
    inputs = tuple(found[name] if name in adjoints else build.saved(str(found[name])) for name in about.reads)
    name = f"{op.layer}.dc{index}_now"
    return build.one("coefficient_gradient", tuple(map(str, inputs)), name, layer=op.layer, attributes=about)


def _neuron_gradient(gradient: Gradient, dx: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, ...]:
    neuron, rest = _split(gradient.neuron, others)
    made = pull_back(neuron.quiet, dx)
    if gradient.switched and neuron.fired is not None:
        fired, after = rest.pop(0), pull_back(neuron.fired, dx)
        made = _choose(fired, made[0], after[0]), _choose(fired, made[1], after[1])
    if not gradient.of_fired or neuron.fired is None:
        return made
    x = rest.pop(0) if gradient.reads_state else np.zeros_like(dx)
    current = rest.pop(0) if gradient.reads_current else np.zeros_like(made[1])
    change = Affine(
        matrix=neuron.fired.matrix - neuron.quiet.matrix,
        drive=neuron.fired.drive - neuron.quiet.drive,
        constant=neuron.fired.constant - neuron.quiet.constant,
    )
    return (*made, (dx * advance(change, x, current)).sum(axis=0))


def _gradient_shapes(values: tuple[Value, ...], gradient: Gradient) -> Outputs:
    state = values[0].shape
    made = [("x", Value(name="", shape=state)), ("q", Value(name="", shape=state[1:]))]
    if gradient.of_fired:
        made.append(("fired", Value(name="", shape=state[1:])))
    return tuple(made)


def _readout_gradient(neuron: LinearNeuron, *given: np.ndarray) -> tuple[np.ndarray]:
    du = given[-1]
    added = neuron.readout.astype(du.dtype)
    made = added[:, None, :] * du
    return (made if len(given) == 1 else given[0] + made,)


def _fired(attributes: Fired, u: np.ndarray) -> tuple[np.ndarray]:
    if attributes.selection.smooth and attributes.differentiable:
        return (smooth_spike(attributes.selection, u),)
    return (u > u.dtype.type(attributes.selection.threshold),)


def _fired_vjp(build: Backward, op: Operation, gradient: str) -> tuple[str | None, ...]:
    if not op.attributes.differentiable:
        return (None,)
    inputs = (gradient, build.saved(op.inputs[0]))
    selection = op.attributes.selection
    return (build.one("spike_gradient", inputs, f"{op.layer}.du_reset", layer=op.layer, attributes=selection),)


def _emitted(attributes: Fired, spikes: SparseSpikes) -> tuple[np.ndarray]:
    flags = np.zeros((len(spikes.ids), attributes.neurons), bool)
    for sample in range(len(flags)):
        flags[sample, spikes.ids[sample, : spikes.counts[sample, 0]]] = True
    return (flags,)


def _emitted_vjp(build: Backward, op: Operation, gradient: str) -> tuple[str | None, ...]:
    if not op.attributes.differentiable:
        return (None,)
    inputs = (gradient, build.saved(op.inputs[0]))
    capacity = build.forward_value(op.inputs[0]).capacity
    return (build.one("emitted_gradient", inputs, f"{op.layer}.d_reset", layer=op.layer, attributes=capacity),)


def _emitted_gradient(capacity: int, gradient: np.ndarray, spikes: SparseSpikes) -> tuple[np.ndarray]:
    listed = np.arange(capacity) < spikes.counts[:, 1:]
    return (np.where(listed, np.take_along_axis(gradient, spikes.ids.astype(np.int64), axis=1), 0),)


class Constants(NamedTuple):
    """The constants that published codelets take, each rounded once; `threshold` is that of the reset."""

    decay: np.float32
    scale: np.float32
    threshold: np.float32


def constants_of(neuron: LinearNeuron) -> Constants:
    """The constants of a fused neuron; one that is never reset has an infinite threshold."""
    return Constants(
        decay=np.float32(neuron.quiet.matrix[0, 0, 0]),
        scale=np.float32(neuron.quiet.drive[0, 0]),
        threshold=np.float32(neuron.threshold if neuron.resets else math.inf),
    )


def _told_by_state(neuron: LinearNeuron, v: np.ndarray) -> np.ndarray:
    spiked: np.ndarray = v > v.dtype.type(neuron.threshold)
    return spiked


def _fused(neuron: LinearNeuron, v: np.ndarray, current: np.ndarray) -> tuple[np.ndarray]:
    fired = (_told_by_state(neuron, v),) if neuron.resets else ()
    return (_neuron(neuron, v[None], current, *fired)[0][0],)


def _fused_vjp(build: Backward, op: Operation, dv: str) -> tuple[str | None, ...]:
    """`_neuron_vjp` in two operations, of which that of the current never depends on who fired."""
    layer, neuron = op.layer, op.attributes
    current = build.one("lif_current_gradient", (dv,), f"{layer}.q", layer=layer, attributes=neuron)
    masked = neuron.resets and neuron.reset_gradient == "mask"
    inputs = (dv, build.saved(op.inputs[0])) if masked else (dv,)
    previous = build.one("lif_state_gradient", inputs, f"{layer}.dv_previous", layer=layer, attributes=neuron)
    return previous, current


def _fused_gradient(neuron: LinearNeuron, dv: np.ndarray, *v_previous: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    fired = [_told_by_state(neuron, v) for v in v_previous]
    dx, q = _neuron_gradient(Gradient(neuron=neuron, switched=bool(fired)), dv[None], *fired)
    return dx[0], q


def _map_terms(neuron: LinearNeuron) -> int:
    maps = [affine.arrays for affine in (neuron.quiet, neuron.fired) if affine is not None]
    return sum(terms_of(*parts) for parts in zip(*maps, strict=True))


LINEAR_NEURONS = (
    OpDef(
        name="neuron",
        shapes=lambda values, _: (
            ("", Value(name="", shape=values[0].shape)),
            ("u", Value(name="", shape=values[0].shape[1:])),
        ),
        evaluate=_neuron,
        vjp=_neuron_vjp,
        flops=lambda values, neuron: 2 * elements(values[1]) * (_map_terms(neuron) + terms_of(neuron.readout)),
    ),
    OpDef(name="lif", shapes=like(0), evaluate=_fused, vjp=_fused_vjp, flops=per_element(3)),
    OpDef(
        name="lif_current_gradient",
        shapes=like(0),
        evaluate=lambda neuron, dv: _fused_gradient(neuron, dv)[1:],
        flops=per_element(1),
    ),
    OpDef(
        name="lif_state_gradient",
        shapes=like(0),
        evaluate=lambda neuron, *given: _fused_gradient(neuron, *given)[:1],
        flops=per_element(1),
    ),
    OpDef(
        name="neuron_readout_gradient",
        shapes=shaped(lambda values, neuron: (len(neuron.states), *values[-1].shape)),
        evaluate=_readout_gradient,
        flops=lambda values, neuron: 2 * elements(values[-1]) * terms_of(neuron.readout),
    ),
    OpDef(
        name="neuron_gradient",
        shapes=_gradient_shapes,
        evaluate=_neuron_gradient,
        flops=lambda values, gradient: (
            2 * elements(values[0]) // values[0].shape[0] * _map_terms(gradient.neuron) * (1 + gradient.of_fired)
        ),
    ),
    OpDef(
        name="coefficient_gradient",
        shapes=shaped(lambda values, _: (1, values[0].shape[-1])),
        evaluate=_row_gradient,
        flops=lambda values, about: 2 * elements(values[0]) * len(about.places),
    ),
    OpDef(name="fired", shapes=like(0), evaluate=_fired, vjp=_fired_vjp, flops=per_element(1), recomputed=True),
    OpDef(name="emitted", shapes=like(0), evaluate=_emitted, vjp=_emitted_vjp, flops=no_flops, recomputed=True),
    OpDef(name="emitted_gradient", shapes=listed_like(1), evaluate=_emitted_gradient, flops=no_flops),
)
