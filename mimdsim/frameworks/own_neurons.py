"""Neurons that are written out in PyTorch, operation by operation, as equations of a timestep.

What one operation made in a timestep is what the same one made a timestep earlier, but for what it was made of: the
last outputs of a layer are laid beside those before them, and every value that has such a twin belongs to the timestep
in which all that it is made of is there. What is read across timesteps is a state. The equations are then run on the
currents that were recorded, and must send what the module sent.
"""

from __future__ import annotations

import keyword
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.frameworks.arithmetic import ADD, OVER, SUBTRACT, TIMES, constant_of
from mimdsim.frameworks.neurons import Reading, refusal
from mimdsim.frameworks.origins import (
    Dropped,
    FunctionResult,
    Gate,
    Joined,
    LayerOutput,
    Made,
    Origin,
    Parameter,
    Pooled,
    Product,
    Read,
    Sum,
    feeds_of,
    undropped,
)
from mimdsim.frameworks.recording import GATHERS, NeuronCalls, Recorded
from mimdsim.graph.cell_equations import FUNCTIONS, SUMS, cell_from_equations, equations_of, evaluate
from mimdsim.graph.cells import OUTPUT, TAKEN, CellModel

Operand = Made | Read | float | np.ndarray
NEAR = 1e-4  # of a threshold: float32 sums in another order may fall on either side
SAME = 1e-4  # relative, of numbers that are sent: PyTorch computes in float32
MOST_CLASSES = 100


def made_of(origin: Any) -> Iterator[Any]:
    """What an origin is directly made of."""
    if isinstance(origin, Made):
        yield from origin.args
    elif isinstance(origin, FunctionResult):
        yield from origin.of
    else:
        yield from getattr(origin, "parts", ())
        if hasattr(origin, "of"):
            yield origin.of


@dataclass(eq=False)
class Component:
    """Values that are made of each other; roots: those that others read, with the weights that do."""

    members: list[Made] = field(default_factory=list)
    roots: dict[Made, set[str]] = field(default_factory=dict)


def components_of(starts: list[Any]) -> list[Component]:
    """Every component that anything here is made of, in the order in which they began."""
    parent: dict[Made, Made] = {}

    def found(made: Made) -> Made:
        while parent[made] is not made:
            parent[made] = made = parent[parent[made]]
        return made

    roots: dict[Made, set[str]] = {}
    seen: set[int] = set()
    waiting = [(start, None) for start in starts]
    while waiting:
        origin, above = waiting.pop()
        if isinstance(origin, Made):
            parent.setdefault(origin, origin)
            if isinstance(above, Made):
                one, other = found(above), found(origin)
                parent[one] = other
            else:
                roots.setdefault(origin, set())
        if isinstance(origin, Product):
            for made in _made_in([origin.of]):
                roots.setdefault(made, set()).add(origin.weight)
        if id(origin) not in seen:
            seen.add(id(origin))
            waiting += [(each, origin) for each in made_of(origin)]
    grouped: dict[Made, Component] = {}
    for made in sorted(parent, key=lambda each: each.number):
        grouped.setdefault(found(made), Component()).members.append(made)
    for root, read in sorted(roots.items(), key=lambda each: each[0].number):
        grouped[found(root)].roots[root] = read
    return [each for each in grouped.values() if each.roots]


@dataclass(frozen=True)
class Place:
    """A value of a class: its latest that the last outputs are made of is 0, the one a timestep before that 1."""

    kind: int
    age: int


def _is_current(operand: Any) -> bool:
    return isinstance(operand, Read) and not isinstance(operand.of, Parameter)


def _core(read: Read) -> Product | Sum:
    core = read.of.of if isinstance(read.of, Gate) else read.of
    assert isinstance(core, (Product, Sum))
    return core


class Classes:
    """The values that the last output of a component is made of, each with that of the timestep before: `places` of
    values, `latest` of every class."""

    def __init__(self, root: Made, before: Made, constant: set[Made]):
        """constant: what is made of parameters and numbers alone. Raises LookupError where both are made otherwise."""
        self.constant = constant
        self.places: dict[Made, Place] = {}
        self.latest: list[Made] = []
        waiting: dict[Made, Any] = {root: before}
        while waiting:
            made = max(waiting, key=lambda each: each.number)
            twin = waiting.pop(made)
            if len(self.latest) > MOST_CLASSES or not isinstance(twin, Made):
                raise LookupError
            known = self.places.get(made)
            place = known or Place(len(self.latest), 0)
            if self.places.setdefault(twin, Place(place.kind, place.age + 1)) != Place(place.kind, place.age + 1):
                raise LookupError
            if known:
                continue
            self.places[made] = place
            self.latest.append(made)
            if (made.op, made.step, len(made.args)) != (twin.op, twin.step, len(twin.args)):
                raise LookupError
            for one, other in zip(made.args, twin.args, strict=True):
                if isinstance(one, Made) and one not in constant:
                    if waiting.setdefault(one, other) is not other:
                        raise LookupError
                elif not _alike(one, other):
                    raise LookupError


def _alike(one: Operand, other: Operand) -> bool:
    """Whether operands of one operation are the same in two timesteps, but for the time."""
    if isinstance(one, Made):
        return isinstance(other, Made)
    if isinstance(one, Read):
        return isinstance(other, Read) and type(one.of) is type(other.of) and _signature(one) == _signature(other)
    return not isinstance(other, (Made, Read)) and np.array_equal(one, other)


def _signature(read: Read) -> Any:
    """The weights that a current is made with, and which share of it this is; of a parameter its name."""
    if isinstance(read.of, Parameter):
        return read.of
    gate = (read.of.index, read.of.gates) if isinstance(read.of, Gate) else (0, 1)
    return tuple(sorted({feed.product.weight for feed in feeds_of(_core(read))})), gate


@dataclass(frozen=True, kw_only=True)
class Written:
    """The neurons of a layer that are written out. texts: their equations; rows: by learned name, the module's
    parameter, '' for constants that differ from neuron to neuron, and values [1, neurons]; own: of cells with sums over
    their own outputs apart, the product that makes them; first: the timestep before which they send 0."""

    texts: tuple[str, ...]
    rows: dict[str, tuple[str, np.ndarray]]
    own: Product | None
    first: int

    def model(self, name: str) -> CellModel:
        return cell_from_equations(name, self.texts, {}, dict.fromkeys(self.rows, 0.0))


class _Layer:
    """Works out when what a layer is made of was made."""

    def __init__(self, where: str, made: list[Made], timesteps: int):
        self.where, self.timesteps = where, timesteps
        self.constant: set[Made] = set()
        for each in made:
            if not any(_is_current(arg) or (isinstance(arg, Made) and arg not in self.constant) for arg in each.args):
                self.constant.add(each)

    def families(self, component: Component, said: str) -> list[tuple[Classes, dict[Made, int]]]:
        """The kinds of what others read, latest first: the classes that the last is made of, and all of the kind with
        the timesteps from each to the last. said: what of theirs is not read."""
        left, found = [root for root in component.roots if root not in self.constant], []
        while left:
            root = left[-1]
            earlier = [each for each in reversed(component.members) if each.number < root.number and each.op == root.op]
            classes = next(filter(None, (self._classes(root, each) for each in earlier[:MOST_CLASSES])), None)
            if classes is None:
                raise refusal(
                    f"{self.where}: {said}"
                    if said
                    else f"{self.where}: '{root.by}' makes what is sent last of other things than a timestep earlier; "
                    "nearest: a loop that does the same in every timestep"
                )
            line = self._line(left)
            found.append((classes, {each: age for age, each in enumerate(line)}))
            left = [each for each in left if each not in line]
        return found

    def _classes(self, root: Made, before: Made) -> Classes | None:
        try:
            return Classes(root, before, self.constant)
        except LookupError:
            return None

    def _line(self, roots: list[Made]) -> list[Made]:
        """Those of one kind, latest first; the first timesteps may be made of less."""
        line, others = [roots[-1]], []
        for each in reversed(roots[:-1]):
            if (each.op, each.by) != (line[0].op, line[0].by):
                continue
            if self._classes(line[-1], each) is not None:
                line.append(each)
            else:
                others.append(each)
        return line + [each for each in others if each.number < line[-1].number]

    def values(self, classes: Classes, times: list[int], line: dict[Made, int]) -> dict[tuple[int, int], torch.Tensor]:
        """What the module made, by class and timestep, from the last timestep back."""
        found: dict[tuple[int, int], torch.Tensor] = {}
        waiting: list[tuple[int, Operand, int]] = [(0, made, times[0] - age) for made, age in line.items()]
        while waiting:
            kind, made, t = waiting.pop()
            if (kind, t) in found or t < 0:
                continue
            of = classes.latest[kind]
            tensor = made.tensor if isinstance(made, Read) else made.values if isinstance(made, Made) else made
            if tensor is not None:
                found[kind, t] = torch.as_tensor(tensor)
            if not isinstance(made, Made) or (made.op, len(made.args)) != (of.op, len(of.args)):
                continue
            # numbers that states begin with may come in another order
            turned = made.op in (ADD, TIMES) and _fits(of.args, made.args[::-1]) > _fits(of.args, made.args)
            for one, other in zip(of.args, made.args[::-1] if turned else made.args, strict=True):
                if isinstance(one, Made) and one not in self.constant:
                    place = classes.places[one]
                    waiting.append((place.kind, other, t + times[place.kind] - place.age - times[kind]))
        return found

    def times(self, classes: Classes, own: Own, earliest: float) -> list[int]:
        """When the latest of every class is made, as early as can be; of the last output there is an earliest."""
        found: list[float] = [-np.inf] * len(classes.latest)
        found[0] = earliest

        def time(arg: Operand) -> float:
            if isinstance(arg, Made) and arg not in self.constant:
                place = classes.places[arg]
                return found[place.kind] - place.age
            if not isinstance(arg, Read) or not _is_current(arg):
                return -np.inf
            return found[0] - own.age(arg) + 1 if own.is_sum(arg) else own.time(arg)

        for _ in range(len(found) + 2):
            before = list(found)
            for kind, made in enumerate(classes.latest):
                found[kind] = max(found[kind], *map(time, made.args))
            if found == before:
                break
        else:
            raise refusal(f"{self.where}: its values go round in a circle within a timestep")
        if not np.isfinite(found).all() or found[0] >= self.timesteps:
            raise refusal(f"{self.where}: its outputs are made before what they are made of")
        return [int(each) for each in found]


def _fits(args: tuple[Operand, ...], others: tuple[Operand, ...]) -> int:
    """How many operands of one operation are made as those of another."""
    pairs = zip(args, others, strict=True)
    return sum(
        type(one) is type(other) and (not isinstance(one, Made) or one.op == getattr(other, "op", ""))
        for one, other in pairs
    )


def _products(read: Read) -> list[Product]:
    return list(dict.fromkeys(feed.product for feed in feeds_of(_core(read))))


class Own:
    """The outputs of a layer, by the timesteps from each to the last, and the weights that multiply them."""

    def __init__(self, ages: dict[Made, int], reads: list[Read]):
        self.ages = ages
        self.weights = {each.weight for read in reads for each in _products(read) if self._of(each) is not None}

    def _of(self, product: Product) -> int | None:
        of = undropped(product.of)[0]
        return self.ages.get(of) if isinstance(of, Made) else None

    def is_sum(self, read: Read) -> bool:
        """Whether a current is a sum over the layer's own outputs alone."""
        return all(each.weight in self.weights for each in _products(read))

    def age(self, read: Read) -> int:
        """That of the outputs which such a sum is over."""
        return min(age for each in _products(read) if (age := self._of(each)) is not None)

    def earliest(self, reads: list[Read]) -> float:
        """When the last output is made, if currents have sums over the outputs of the timestep before in them."""
        both = [read for read in reads if not self.is_sum(read)]
        parts = ((self.time(read), self._of(each)) for read in both for each in _products(read))
        return max((time - 1 + age for time, age in parts if age is not None), default=-np.inf)

    def time(self, read: Read) -> int:
        """The timestep of a current."""
        return max(each.call for each in _products(read) if each.weight not in self.weights)


class _Writer:
    """The equations of a layer, from the classes of its values and when their latest are made."""

    def __init__(self, layer: _Layer, classes: Classes, times: list[int], own: Own, columns: int, anew: bool):
        """anew: also what has a name is worked out of the states of a timestep earlier, rather than kept."""
        self.layer, self.classes, self.kinds, self.own, self.columns = layer, classes, times, own, columns
        self._anew = anew
        self._recursive = {kind for kind in range(1, len(classes.latest)) if self._reaches(kind)}
        self.rows: dict[str, tuple[str, np.ndarray]] = {}
        self._taken = {*FUNCTIONS, "t", OUTPUT}
        self.names: dict[int, str] = {0: OUTPUT}
        self._row_names: dict[Any, str] = {}
        self._uses: Counter[int] = Counter()
        self._through: set[int] = set()
        self._inlined = False
        self.texts = self._write()
        self._inlined = True
        for kind, made in enumerate(classes.latest):  # named: what the module names, states, and what is read twice
            if kind and not made.name and self._uses[kind] < 2 and kind not in self._states:
                self.names.pop(kind, None)
        self._taken, self._row_names, self.rows = {*FUNCTIONS, "t", OUTPUT}, {}, {}
        kept = sorted(self.names)
        self.names = {0: OUTPUT}
        for kind in kept:
            self._name(kind)
        self._named = set(kept)
        self.texts = self._write()
        self.every = self._with_every()

    def _reaches(self, kind: int) -> bool:
        """Whether a class is made of itself, other than by what the layer sends."""
        seen, waiting = {0}, [kind]
        while waiting:
            args = self.classes.latest[waiting.pop()].args
            read = {
                self.classes.places[arg].kind for arg in args if isinstance(arg, Made) and arg in self.classes.places
            }
            if kind in read:
                return True
            waiting += read - seen
            seen |= read
        return False

    def _with_every(self) -> tuple[str, ...]:
        """The equations, and one of each value that was made: '_0', '_1' and so on, by its class."""
        values = {}
        for kind in range(len(self.classes.latest)):
            values[f"_{kind}"] = f"_{kind} = {self._expression(kind, 0)[0]}"
            while self._waiting:
                self._equation(self._waiting.pop())
        return (*self._written.values(), *self._helpers.values(), *values.values())

    def _write(self) -> tuple[str, ...]:
        self._written: dict[int, str] = {}
        self._helpers: dict[str, str] = {}
        self._states: set[int] = set()
        self._waiting = [0]
        while self._waiting:
            self._equation(self._waiting.pop())
        return (*self._written.values(), *self._helpers.values())

    def _equation(self, kind: int) -> str:
        """The name of a class, whose equation is written, after those of what it is made of."""
        name = self._name(kind)
        if kind not in self._written:
            text, _ = self._expression(kind, 0)
            self._written[kind] = f"{name} = {text}"
        return name

    def _unique(self, wanted: str, row: bool = False) -> str:
        name = re.sub(r"\W", "_", wanted) or "a"
        reserved = not name.isidentifier() or keyword.iskeyword(name) or SUMS.fullmatch(name) or (row and name in TAKEN)
        name = f"x_{name}" if reserved else name
        number, unique = 2, name
        while unique in self._taken:
            unique, number = f"{name}_{number}", number + 1
        self._taken.add(unique)
        return unique

    def _name(self, kind: int) -> str:
        if kind not in self.names:
            self.names[kind] = self._unique(self.classes.latest[kind].name or "a")
        return self.names[kind]

    def _expression(self, kind: int, lag: int) -> tuple[str, int]:
        """What a class is made of, so many timesteps before, and how strongly the text binds."""
        made = self.classes.latest[kind]
        return self._made(made, lambda arg: self._operand(arg, kind, lag))

    def _made(self, made: Made, text: Callable[[Operand], tuple[str, int]]) -> tuple[str, int]:
        given = [text(arg) for arg in made.args]
        if made.op in BINDING:
            (one, first), (other, second) = given
            binds = BINDING[made.op]
            if made.op == TIMES and one == "1":
                return other, second
            if made.op == TIMES and one == "-1":
                return f"-{_bound(other, second, 2)}", 2
            exact = made.op in (SUBTRACT, OVER)
            return f"{_bound(one, first, binds)} {made.op} {_bound(other, second, binds + exact)}", binds
        if made.op == "spike" and made.step:
            inside, binds = given[0]
            if made.step.threshold:
                sign = "-" if made.step.threshold > 0 else "+"
                inside = f"{_bound(inside, binds, 1)} {sign} {_number(abs(made.step.threshold))}"
            spike = f"spike({inside})"
            return (spike if made.step.factor == 1 else f"damp({spike}, {_number(made.step.factor)})"), 3
        return f"{made.op}({', '.join(each for each, _ in given)})", 3

    def _operand(self, arg: Operand, kind: int, lag: int) -> tuple[str, int]:
        """What a class reads."""
        if isinstance(arg, float):
            return (f"({_number(arg)})" if arg < 0 and arg != -1 else _number(arg)), 3
        if isinstance(arg, Made):
            if arg in self.layer.constant:
                return self._made(arg, lambda each: self._operand(each, kind, lag))
            place = self.classes.places[arg]
            return self._value(place.kind, lag + self.kinds[kind] - self.kinds[place.kind] + place.age)
        if not isinstance(arg, Read) or isinstance(arg.of, Parameter):
            return self._row(arg), 3
        gate = arg.of if isinstance(arg.of, Gate) else None
        number = str(gate.index + 1) if gate else ""
        if self.own.is_sum(arg):
            return self._earlier(f"R{number}", lag + self.kinds[kind] - (self.kinds[0] - self.own.age(arg) + 1))
        return self._earlier(f"I{number}", lag + self.kinds[kind] - self.own.time(arg))

    def _value(self, kind: int, lag: int) -> tuple[str, int]:
        made = self.classes.latest[kind]
        if made.op == "detach":
            return self._expression(kind, lag)
        # what is nothing's own name is worked out anew of what was, rather than kept
        plain = not made.name or (self._anew and kind not in self._recursive)
        if lag and kind and plain and kind not in self._through and not any(map(_is_current, made.args)):
            self._through.add(kind)
            made_anew = self._expression(kind, lag)
            self._through.remove(kind)
            return made_anew
        self._uses[kind] += not self._inlined
        if lag == 0 and self._inlined and kind not in self._named:
            return self._expression(kind, 0)
        if lag == 0:
            return self._equation(kind), 3
        if kind:
            self._states.add(kind)
        self._waiting.append(kind)
        return self._earlier(self._name(kind), lag)

    def _earlier(self, name: str, lag: int) -> tuple[str, int]:
        """What a name was so many timesteps before."""
        if lag and SUMS.fullmatch(name):
            self._helpers.setdefault(name, f"read_{name} = {name}")
            name = f"read_{name}"
        for step in range(1, lag):
            self._helpers.setdefault(
                f"{name}_{step}", f"{name}_{step} = {name if step == 1 else f'{name}_{step - 1}'}[t-1]"
            )
        return (f"{name if lag < 2 else f'{name}_{lag - 1}'}[t-1]" if lag else name), 3

    def _row(self, arg: Operand) -> str:
        """The name of what differs from neuron to neuron; the number of what does not."""
        if isinstance(arg, Read):
            of = arg.of
            assert isinstance(of, Parameter)
            known, values = of.name, arg.tensor.detach().cpu().numpy().astype(np.float64)
            if values.size == 1 and not arg.tensor.requires_grad:
                return _number(float(constant_of(arg.tensor)))  # type: ignore[arg-type]
        else:
            assert isinstance(arg, np.ndarray)
            of, known, values = None, "", arg
        key = of or values.tobytes()
        if values.size != self.columns:
            what = f"'{known}'" if known else "a tensor of no known origin"
            raise refusal(
                f"{self.layer.where} read {what}, {values.size} values for {self.columns} neurons; nearest: one "
                "for each"
            )
        if key not in self._row_names:
            self._row_names[key] = self._unique(known.rpartition(".")[2] or "constant", row=True)
            self.rows[self._row_names[key]] = known, values.reshape(1, -1)
        return self._row_names[key]


BINDING = {ADD: 1, SUBTRACT: 1, TIMES: 2, OVER: 2}


def _bound(text: str, binds: int, least: int) -> str:
    return text if binds >= least else f"({text})"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e6 else repr(value)


# ---- the layers of a module


class _Numbers:
    """The functions of equations on arrays; nearest: how near to a threshold a spike was."""

    def __init__(self) -> None:
        self.nearest: np.ndarray | float = np.inf

    def spike(self, x: np.ndarray) -> np.ndarray:
        # whole numbers, and states that are 0, may be equal to a threshold, in any precision
        self.nearest = np.minimum(self.nearest, np.where(x == 0, np.inf, np.abs(x)))
        return (x > 0).astype(np.float64)

    def detach(self, x: np.ndarray) -> np.ndarray:
        return x

    def damp(self, x: np.ndarray, _factor: float) -> np.ndarray:
        return x

    def clamp(self, x: np.ndarray, low: float, high: float) -> np.ndarray:
        return np.asarray(np.clip(x, low, high))

    def sigmoid(self, x: np.ndarray) -> np.ndarray:
        made: np.ndarray = 1 / (1 + np.exp(-x))
        return made

    tanh, exp = staticmethod(np.tanh), staticmethod(np.exp)

    def relu(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.maximum(x, 0.0))


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
    of_layers = (origin for calls in recorded.layers.values() for origin in calls.origins)
    # also what is read last, and by nothing that is returned
    ends = [*recorded.returned, *recorded.returned_before]
    components = components_of([*ends, *of_layers, *(read.of for read in _every_read(recorded))])
    if not components:
        return recorded
    for origin in recorded.returned:
        if isinstance(origin, FunctionResult) and len(origin.of) > recorded.timesteps > 0 and origin.by == "stack":
            warnings.warn(
                f"the module returns {len(origin.of)} timesteps of {recorded.timesteps}: what was there before "
                "the first is left out here, also of a maximum or a mean over time",
                UserWarning,
                stacklevel=4,
            )
    returned = _made_in(recorded.returned)
    layers, sent = {}, dict[Made, LayerOutput]()
    for component in components:
        if not any(_is_current(arg) for made in component.members for arg in made.args):
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
    ends = [_before_quotient(origin) for origin in recorded.returned]
    times = {sent[end].call for end in ends if isinstance(end, Made) and end in sent}
    plain = isinstance(ends[0] if ends else None, Made) and len(times) == 1 and not recorded.stepwise
    return replace(recorded, layers=made, returned=found, reading="last" if plain else recorded.reading)


def _before_quotient(origin: Origin | None) -> Origin | None:
    return origin.of[0] if isinstance(origin, FunctionResult) and origin.by == "div" else origin


def _undivided(origin: Origin | None) -> Origin | None:
    """What is divided by a number at the end, such as that of the timesteps, as such."""
    if isinstance(origin, Made) and origin.op == OVER and isinstance(origin.args[1], float):
        of = origin.args[0]
        return FunctionResult(by="div", of=(of,), divisor=origin.args[1]) if isinstance(of, Made) else origin
    return origin


def _made_in(origins: list[Origin | None]) -> set[Made]:
    """What operations element by element made of it, before sums over time and the like."""
    found, waiting = set(), list(origins)
    while waiting:
        origin = waiting.pop()
        if isinstance(origin, Made):
            found.add(origin)
        elif isinstance(origin, FunctionResult):
            waiting += origin.of
        elif isinstance(origin, (Pooled, Dropped)):
            waiting.append(origin.of)
    return found


def _layer(
    component: Component, recorded: Recorded, returned: set[Made], output: str
) -> tuple[NeuronCalls, dict[Made, LayerOutput]]:
    """The calls of a layer that is written out, and what its outputs, and states that are returned, are."""
    reads = [arg for made in component.members for arg in made.args if isinstance(arg, Read) and _is_current(arg)]
    unread = not_read(recorded, component)
    said = f"'{unread}' of it is not read; what is: docs/pytorch.md, 'Neurons that are written out'" if unread else ""
    if any(not _products(read) for read in reads):
        raise refusal(f"neurons that are written out read what is no product with weights{said and f': {said}'}")
    where = f"the neurons that read '{_products(reads[-1])[0].weight}'"
    timesteps = recorded.timesteps or 1 + max(each.call for read in reads for each in _products(read))
    layer = _Layer(where, recorded.made, timesteps)
    families = layer.families(component, said)
    classes, line = _sent(where, families, component, output)
    own = Own(line, reads)
    read_by = set().union(*(component.roots[each] for each in line))
    earliest = timesteps - 1 if classes.latest[0] in returned and read_by <= own.weights else -np.inf
    times = layer.times(classes, own, max(earliest, own.earliest(reads)))
    inputs = [read for read in _every_read(recorded) if not own.is_sum(read)]
    mine = {_signature(read)[0] for read in reads if not own.is_sum(read)}
    weights = max(mine, key=len)
    if any(not set(each) <= set(weights) for each in mine):
        raise refusal(f"{where} read '{min(mine)[0]}' apart from them; nearest: one matrix, whose product is split")
    inputs = [read for read in inputs if set(_signature(read)[0]) <= set(weights)]
    currents = _by_time(where, inputs, own.time, timesteps)
    gates = max(read.of.gates if isinstance(read.of, Gate) else 1 for read in reads)
    convolution = _products(reads[-1])[0].convolution
    width = currents[0][0].shape[1:].numel() // gates
    columns = convolution.result.channels if convolution else width
    product = next((each for read in reads if own.is_sum(read) for each in _products(read)), None)
    outputs = {times[0] - age: made for made, age in line.items()}
    refused = None
    for anew in (False, True):
        writer = _Writer(layer, classes, times, own, columns, anew)
        written = Written(texts=writer.texts, rows=writer.rows, own=product, first=times[0] - max(line.values()))
        try:
            model = written.model("own")
        except MappingError as problem:
            raise refusal(f"{where}: {problem} (its equations: {'; '.join(writer.texts)})") from None
        values = layer.values(classes, times, line)
        try:
            found = _checked(
                where, written, model, own, times[0], recorded, currents, outputs, writer.every, values, writer.names
            )
            break
        except DescriptionError as problem:
            refused = refused or problem
    else:
        assert refused is not None
        raise refused
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


def not_read(recorded: Recorded, component: Component | None = None) -> str:
    """The first function of what a component makes, or of a product or parameter, that equations have not."""
    members = set(component.members) if component else set()
    for kinds in ((), (Product, Sum, Gate, Parameter)):  # of its own first
        for each in recorded.unread:
            if each.by not in GATHERS and any(of in members if not kinds else isinstance(of, kinds) for of in each.of):
                return each.by.strip("_")
    return ""


Family = tuple[Classes, dict[Made, int]]


def _sent(where: str, families: list[Family], component: Component, output: str) -> Family:
    """What the layer sends: what weights read, else what the module returns."""
    read = [each for each in families if any(component.roots[made] for made in each[1])]
    if len(read) > 1:
        raise refusal(f"{where} send two kinds of values, which weights read; one of them can run")
    spikes = [each for each in families if (each[0].latest[0].op == "spike") == (output != "membrane")]
    return [*read, *spikes, *families][0]


def _every_read(recorded: Recorded) -> list[Read]:
    return [arg for made in recorded.made for arg in made.args if isinstance(arg, Read) and _is_current(arg)]


def _by_time(
    where: str, reads: list[Read], time: Callable[[Read], int], timesteps: int
) -> list[tuple[torch.Tensor, Product | Sum]]:
    """The current of every timestep, with all its gates, and its origin."""
    parts: dict[int, dict[int, torch.Tensor]] = {}
    origins: dict[int, Product | Sum] = {}
    for read in reads:
        t, gate = time(read), read.of.index if isinstance(read.of, Gate) else 0
        parts.setdefault(t, {})[gate] = read.tensor
        origins[t] = _core(read)
    missing = [t for t in range(timesteps) if t not in parts]
    if missing or len(parts) > timesteps:
        raise refusal(f"{where} read no current in timestep {missing[0] if missing else timesteps} of {timesteps}")
    whole = (torch.cat([parts[t][gate].detach() for gate in sorted(parts[t])], dim=-1) for t in range(timesteps))
    return [(tensor, origins[t]) for t, tensor in enumerate(whole)]


def _checked(
    where: str,
    written: Written,
    model: CellModel,
    own: Own,
    last: int,
    recorded: Recorded,
    currents: list[tuple[torch.Tensor, Product | Sum]],
    outputs: dict[int, Made],
    every: tuple[str, ...],
    by_class: dict[tuple[int, int], torch.Tensor],
    names: dict[int, str],
) -> list[torch.Tensor]:
    """What the equations send in every timestep; raises DescriptionError where it is not what the module sent, or where
    values of it, by class and timestep, are not what `every` equation makes."""
    given = np.stack([_flat(tensor) for tensor, _ in currents])
    sums = np.zeros_like(given)
    for read in _every_read(recorded) if model.recurrent else ():
        if not own.is_sum(read):
            continue
        age = [made for product in _products(read) for made in _made_in([product.of])]
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
    whole, doubtful, largest = made_by(written, given, sums, every, held)
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
    shape = currents[0][0].shape
    made = [held.get((OUTPUT, t), each[OUTPUT]) for t, each in enumerate(whole)]
    neurons = (shape[0], *shape[1:-1], shape[-1] // model.gates)
    return [torch.as_tensor(each).reshape(neurons) for each in made]


def _as_rows(tensor: torch.Tensor, samples: int, columns: int) -> np.ndarray | None:
    """Values [samples, columns], of numbers for all of them too; None for others, as of constants by channel."""
    found: np.ndarray = tensor.detach().cpu().numpy().astype(np.float64)
    if found.size == samples * columns:
        return found.reshape(samples, columns)
    if found.size == 1 or (found.ndim == 1 and found.size == columns):
        return np.broadcast_to(found, (samples, columns))
    return None


def _flat(tensor: torch.Tensor) -> np.ndarray:
    values: np.ndarray = tensor.detach().cpu().numpy().astype(np.float64)
    return values.reshape(len(values), -1)


def _replaced(origin: Any, sent: dict[Made, LayerOutput], known: dict[int, Any]) -> Any:
    """An origin in which what layers sent stands for how it was made."""
    if isinstance(origin, Made):
        return sent.get(origin, origin)
    if id(origin) in known:
        return known[id(origin)][1]
    made = origin
    if isinstance(origin, (Product, Pooled, Dropped)):
        made = replace(origin, of=_replaced(origin.of, sent, known))
    elif isinstance(origin, (Sum, Joined)):
        made = replace(origin, parts=tuple(_replaced(part, sent, known) for part in origin.parts))
    elif isinstance(origin, FunctionResult):
        made = replace(origin, of=tuple(_replaced(part, sent, known) for part in origin.of))
    known[id(origin)] = origin, made
    return made
