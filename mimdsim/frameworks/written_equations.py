"""The equations of neurons that are written out in PyTorch, operation by operation.

What one operation made in a timestep is what the same one made a timestep earlier, but for what it was made of: the
last outputs of a layer are laid beside those before them, and every value that has such a twin belongs to the timestep
in which all that it is made of is there. What is read across timesteps is a state.
"""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

import numpy as np
import torch

from mimdsim.frameworks.arithmetic import ADD, OVER, SUBTRACT, TIMES, VALUES, constant_of
from mimdsim.frameworks.neurons import ONE_TIMESTEP, numbers_of, refusal
from mimdsim.frameworks.origins import (
    Currents,
    Dropped,
    FunctionResult,
    Gate,
    Made,
    Origin,
    Parameter,
    Part,
    Pooled,
    Product,
    Read,
    Slice,
    each_in,
    feeds_of,
    parts_of,
    undropped,
)
from mimdsim.graph.cell_equations import FUNCTIONS, SUMS, cell_from_equations
from mimdsim.graph.cells import OUTPUT, TAKEN, CellModel

Operand = Made | Read | float | np.ndarray
MOST_CLASSES = 100
RESERVED = {*TAKEN, "g", "random", "delay"}  # also what programs and weight files have under these names
ENOUGH = 4  # timesteps, of which the last two are made alike


def made_in(origins: list[Origin | None]) -> set[Made]:
    """What operations element by element made of it, before sums over time and the like."""
    return {each for each in each_in((FunctionResult, Pooled, Dropped, Slice), *origins) if isinstance(each, Made)}


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
            for made in made_in([origin.of]):
                roots.setdefault(made, set()).add(origin.weight)
        if id(origin) not in seen:
            seen.add(id(origin))
            waiting += [(each, origin) for each in parts_of(origin)]
    grouped: dict[Made, Component] = {}
    for made in sorted(parent, key=lambda each: each.number):
        grouped.setdefault(found(made), Component()).members.append(made)
    for root, read in sorted(roots.items(), key=lambda each: each[0].number):
        grouped[found(root)].roots[root] = read
    return [*_without_states(each for each in grouped.values() if each.roots)]


def _without_states(components: Iterable[Component]) -> Iterator[Component]:
    """Components, of which those that keep nothing from one timestep to the next but currents, and read the same
    weights in the same order, are one."""
    places: Counter[Any] = Counter()
    found: dict[Any, Component] = {}
    for each in components:
        reads = [[*products_of(arg)] for made in each.members for arg in made.args if is_current(arg)]
        times = {max((product.call for product in of), default=0) for of in reads}
        weights = frozenset(product.weight for of in reads for product in of)
        if not weights:
            yield each
            continue
        latest = weights, max(times)
        places[latest] += 1
        first = found.setdefault((weights, places[latest]), each)
        if first is each:
            yield each
        else:
            first.members += each.members
            first.roots |= each.roots


@dataclass(frozen=True)
class Place:
    """A value of a class: its latest that the last outputs are made of is 0, the one a timestep before that 1."""

    kind: int
    age: int


def is_current(operand: Any) -> TypeGuard[Read]:
    return isinstance(operand, Read) and not isinstance(operand.of, (Parameter, Part))


def core_of(read: Read) -> Currents:
    core = read.of.of if isinstance(read.of, Gate) else read.of
    assert isinstance(core, Currents)
    return core


class Classes:
    """The values that the last output of a component is made of, each with that of the timestep before: `places` of
    values, `latest` of every class."""

    def __init__(self, root: Made, before: Made, constant: set[Made], line: list[Made]):
        """constant: what is made of parameters and numbers alone; line: outputs from the root back, which may be read
        several timesteps later. Raises LookupError where both are made otherwise."""
        outputs = {made: Place(0, age) for age, made in enumerate(line) if age > 1}
        self.constant = constant
        self.places: dict[Made, Place] = {}
        self.latest: list[Made] = []
        waiting: dict[Made, Any] = {root: before}
        while waiting:
            made = max(waiting, key=lambda each: each.number)
            twin = waiting.pop(made)
            if len(self.latest) > MOST_CLASSES or not isinstance(twin, Made):
                raise LookupError
            known = self.places.get(made) or outputs.get(made)
            place = known or Place(len(self.latest), 0)
            self.places[made] = place
            if self.places.setdefault(twin, Place(place.kind, place.age + 1)) != Place(place.kind, place.age + 1):
                raise LookupError
            if known:
                continue
            self.latest.append(made)
            if (made.op, made.step, len(made.args)) != (twin.op, twin.step, len(twin.args)):
                raise LookupError
            for one, other in zip(made.args, twin.args, strict=True):
                if isinstance(one, Made) and one not in constant:
                    if waiting.setdefault(one, other) is not other:
                        raise LookupError
                elif not _alike(one, other):
                    raise LookupError


def _alike(one: Operand, other: Operand, seen: set[tuple[Made, Made]] | None = None) -> bool:
    """Whether operands of one operation are the same in two timesteps, but for the time. seen: pairs that were compared
    or are being, since several operations may read one value."""
    if isinstance(one, Made):
        if not isinstance(other, Made) or (one.op, len(one.args)) != (other.op, len(other.args)):
            return False
        seen = set() if seen is None else seen
        if one is other or (one, other) in seen:
            return True
        seen.add((one, other))
        return all(_alike(*pair, seen) for pair in zip(one.args, other.args, strict=True))
    if isinstance(one, Read):
        return isinstance(other, Read) and type(one.of) is type(other.of) and signature_of(one) == signature_of(other)
    return not isinstance(other, (Made, Read)) and np.array_equal(one, other)


def _differ(one: Operand, other: Operand) -> bool:
    """Whether operands are of other weights, parameters or numbers, themselves or in what they are made of directly."""
    if isinstance(one, Made):
        if not isinstance(other, Made) or (one.op, len(one.args)) != (other.op, len(other.args)):
            return False
        pairs = zip(one.args, other.args, strict=True)
        return any(not isinstance(pair[0], Made) and _differ(*pair) for pair in pairs)
    return isinstance(one, Read) == isinstance(other, Read) and not isinstance(other, Made) and not _alike(one, other)


def signature_of(read: Read) -> Any:
    """The weights that a current is made with, and which share of it this is; of a parameter its name."""
    if isinstance(read.of, (Parameter, Part)):
        return read.of
    gate = (read.of.index, read.of.gates) if isinstance(read.of, Gate) else (0, 1)
    return tuple(sorted({feed.product.weight for feed in feeds_of(core_of(read))})), gate


@dataclass(frozen=True, kw_only=True)
class Written:
    """The neurons of a layer that are written out. texts: their equations; rows: by learned name, the module's
    parameter, '' for constants that differ from neuron to neuron, values [1, neurons], or [1, 1], and which row of the
    parameter they are, None for all of it; own: of cells with sums over their own outputs apart, or over what another
    equation makes (recurrent_of), what makes them; first: the timestep before which they send 0.
    """

    texts: tuple[str, ...]
    rows: dict[str, tuple[str, np.ndarray, int | None]]
    own: Currents | None
    first: int
    recurrent_of: str = OUTPUT

    @property
    def shared(self) -> list[str]:
        """Learned names that are one number for the layer."""
        return [row for row, (of, values, _) in self.rows.items() if of and values.size == 1]

    def model(self, name: str) -> CellModel:
        learned = dict.fromkeys(self.rows, 0.0)
        return cell_from_equations(name, self.texts, {}, learned, self.shared, self.recurrent_of)

    def sending(self, name: str) -> Written:
        """The same neurons, which send what another equation makes, while their own weights read what they sent."""
        own, taken = f"{name}_{OUTPUT}", {*self.rows, *(text.partition(" = ")[0] for text in self.texts)}
        while own in taken:
            own += "_"
        swapped = {name: OUTPUT, OUTPUT: own}
        pattern = re.compile(rf"\b({'|'.join(map(re.escape, swapped))})\b")
        texts = tuple(pattern.sub(lambda found: swapped[found[0]], text) for text in self.texts)
        return replace(self, texts=texts, recurrent_of=own)


class LayerTimes:
    """Works out when what a layer is made of was made."""

    def __init__(self, where: str, made: list[Made], timesteps: int, alone: bool):
        """alone: whether no others run in several timesteps."""
        self.where, self.timesteps, self.alone = where, timesteps, alone
        self.constant: set[Made] = set()
        for each in made:
            if not any(is_current(arg) or (isinstance(arg, Made) and arg not in self.constant) for arg in each.args):
                self.constant.add(each)

    def families(self, component: Component, said: str) -> list[tuple[Classes, dict[Made, int]]]:
        """The kinds of what others read, latest first: the classes that the last is made of, and all of the kind with
        the timesteps from each to the last. said: what of theirs is not read."""
        left, found = [root for root in component.roots if root not in self.constant], []
        while left:
            root = left[-1]
            earlier = [each for each in reversed(component.members) if each.number < root.number and each.op == root.op]
            tried = (self._classes(root, each, left) for each in earlier[:MOST_CLASSES])
            classes = next(filter(None, tried), None)
            if classes is None:
                if not (said or earlier):
                    once = (
                        f"{self.where}: '{root.by}' acts once, and not in every timestep; at the end, return what it "
                        "reads, and let the loss do it, or the last of what it makes in every timestep"
                    )
                    raise refusal(ONE_TIMESTEP if self.timesteps == 1 and self.alone else once)
                made = f"'{root.by}' makes what is sent last of other things than a timestep earlier; nearest: "
                if self.timesteps < ENOUGH:
                    made += f"an example of {ENOUGH} timesteps or more, the first of which may be made of less"
                else:
                    made += (
                        "a loop that does the same in every timestep, and products that neurons of a framework read "
                        "as they are"
                    )
                raise refusal(f"{self.where}: {said or made}")
            line = self._line(left)
            found.append((classes, {each: age for age, each in enumerate(line)}))
            left = [each for each in left if each not in line]
        return found

    def _classes(self, root: Made, before: Made, roots: list[Made]) -> Classes | None:
        """roots: of all kinds, latest last."""
        alike = [each for each in roots if (each.op, each.by) == (root.op, root.by) and each.number <= root.number]
        for line in (alike[::-1], list[Made]()) if alike[-2:-1] == [before] else ([],):
            try:
                return Classes(root, before, self.constant, line)
            except LookupError:
                continue
        return None

    def _line(self, roots: list[Made]) -> list[Made]:
        """Those of one kind, latest first; the first timesteps may be made of less."""
        line, others = [roots[-1]], []
        for each in reversed(roots[:-1]):
            if (each.op, each.by) != (line[0].op, line[0].by):
                continue
            if self._classes(line[-1], each, roots) is not None:
                line.append(each)
            else:
                others.append(each)
        return line + [each for each in others if each.number < line[-1].number]

    def values(
        self, classes: Classes, times: list[int], line: dict[Made, int]
    ) -> tuple[dict[tuple[int, int], torch.Tensor], dict[int, float]]:
        """What the module made, by class and timestep, from the last timestep back; and what states begin with that
        equations do not make of those of others, by class."""
        found: dict[tuple[int, int], torch.Tensor] = {}
        begins: dict[int, float] = {}
        differs: dict[int, int] = {}  # by class, the last timestep that makes it of other things than the last does
        alike: dict[int, int] = {}  # and the first that makes it of the same
        waiting: list[tuple[int, Operand, int]] = [(0, made, times[0] - age) for made, age in line.items()]
        seen: set[tuple[int, int, int]] = set()  # also of values that are not held, which many others may be made of
        while waiting:
            kind, made, t = waiting.pop()
            if (kind, t, id(made)) in seen:
                continue
            seen.add((kind, t, id(made)))
            if t == -1 and isinstance(number := self._number(made), float):
                begins[kind] = number
            of = classes.latest[kind]
            learns = t >= 0 and isinstance(made, Made) and made not in self.constant
            if learns and (made.op == "detach") != (of.op == "detach"):  # type: ignore[union-attr]
                raise refusal(
                    f"{self.where} leave out gradients in timestep {t} or in the last one, and not in both; nearest: "
                    "the same in every timestep"
                )
            if (kind, t) in found or t < 0:
                continue
            tensor = made.tensor if isinstance(made, Read) else made.values if isinstance(made, Made) else made
            if tensor is not None:
                found[kind, t] = torch.as_tensor(tensor)
            if not isinstance(made, Made) or (made.op, len(made.args)) != (of.op, len(of.args)):
                differs[kind] = max(t, differs.get(kind, t))
                continue
            # numbers that states begin with may come in another order
            turned = made.op in (ADD, TIMES) and _fits(of.args, made.args[::-1]) > _fits(of.args, made.args)
            pairs = [*zip(of.args, made.args[::-1] if turned else made.args, strict=True)]
            if any(_differ(*pair) for pair in pairs):
                differs[kind] = max(t, differs.get(kind, t))
                continue  # sums of fewer: the first timesteps have no currents before them
            alike[kind] = min(t, alike.get(kind, t))
            for one, other in pairs:
                if isinstance(one, Made) and one not in self.constant:
                    place = classes.places[one]
                    waiting.append((place.kind, other, t + times[place.kind] - place.age - times[kind]))
        for kind in (each for each in differs if alike.get(each, self.timesteps) < differs[each]):
            raise refusal(
                f"{self.where}: '{classes.latest[kind].by}' is made in timestep {differs[kind]} of other things than "
                f"in timestep {alike[kind]} and the last; nearest: a loop that does the same in every timestep"
            )
        kept = dict(begins)
        # one after another: of two that are made of each other one has to stay, the one that has a name and is a state
        for kind in sorted(begins, key=lambda kind: bool(classes.latest[kind].name)):
            again = self._before(classes, classes.latest[kind], {**kept, kind: begins[kind] and torch.nan})
            if torch.allclose(again, torch.tensor(begins[kind]).double()):
                del kept[kind]
        return found, kept

    def _number(self, made: Operand) -> Operand:
        """The one number that parameters which are not learned made, if they did."""
        held = made.values if isinstance(made, Made) and made in self.constant else None
        found = constant_of(held) if held is not None and not held.requires_grad else made
        return found if isinstance(found, float) else made

    def _before(self, classes: Classes, made: Made, begins: dict[int, float]) -> Any:
        """What an operation makes of what states begin with, and without currents; that of itself may be no number."""
        known: dict[Made, torch.Tensor] = {}  # what is made of nothing that it is within
        within: list[Made] = []
        cut = 0

        def value(arg: Operand) -> torch.Tensor:
            nonlocal cut
            kind = classes.places[arg].kind if isinstance(arg, Made) and arg not in self.constant else -1
            if isinstance(arg, Made) and kind not in begins:
                if arg in known:
                    return known[arg]
                if arg not in within:
                    before = cut
                    within.append(arg)
                    result = of(classes.latest[kind] if kind >= 0 else arg)
                    within.pop()
                    if cut == before:
                        known[arg] = result
                    return result
                cut += 1
            plain = arg.tensor if isinstance(arg, Read) and not is_current(arg) else begins.get(kind, 0.0)
            return torch.as_tensor(plain if isinstance(arg, (Made, Read)) else arg).detach().double()

        def of(made: Made) -> torch.Tensor:
            given = [value(arg) for arg in made.args]
            if made.op == "spike":
                return (given[0] > (made.step.threshold if made.step else 0)).double()
            result: torch.Tensor = VALUES[made.op](*given)
            return result

        return of(made)

    def times(self, classes: Classes, own: Own, earliest: float) -> list[int]:
        """When the latest of every class is made, as early as can be; of the last output there is an earliest."""
        found: list[float] = [-np.inf] * len(classes.latest)
        found[0] = earliest

        def time(arg: Operand) -> float:
            if isinstance(arg, Made) and arg not in self.constant:
                place = classes.places[arg]
                return found[place.kind] - place.age
            if not isinstance(arg, Read) or not is_current(arg):
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

    def late(self, classes: Classes, times: list[int]) -> list[int]:
        """When the latest of every class is made, as late as can be, where the last output is made as in `times`: what
        the first timestep makes of numbers that states begin with is made in it, not before it."""
        found, before = [times[0], *[self.timesteps] * (len(times) - 1)], list[int]()
        while found != before:
            before = list(found)
            for kind, made in enumerate(classes.latest):
                for arg in made.args:
                    if isinstance(arg, Made) and (place := classes.places.get(arg)) and place.kind:
                        found[place.kind] = min(found[place.kind], found[kind] + place.age)
        return found


def _fits(args: tuple[Operand, ...], others: tuple[Operand, ...]) -> int:
    """How many operands of one operation, and of what is one itself, are made as those of another."""
    fits = 0
    for one, other in zip(args, others, strict=True):
        if isinstance(one, Made) and isinstance(other, Made):
            fits += one.op == other.op and 1 + sum(map(_alike, one.args, other.args))
        else:
            fits += type(one) is type(other)
    return fits


def products_of(read: Read) -> list[Product]:
    return list(dict.fromkeys(feed.product for feed in feeds_of(core_of(read))))


class Own:
    """The outputs of a layer, by the timesteps from each to the last, and the weights that multiply them."""

    def __init__(self, ages: dict[Made, int], reads: list[Read]):
        self.ages = ages
        self.weights = {each.weight for read in reads for each in products_of(read) if self._of(each) is not None}

    def _of(self, product: Product) -> int | None:
        of = undropped(product.of)[0]
        of = of.of if isinstance(of, Slice) else of
        return self.ages.get(of) if isinstance(of, Made) else None

    def is_sum(self, read: Read) -> bool:
        """Whether a current is a sum over the layer's own outputs alone."""
        return all(each.weight in self.weights for each in products_of(read))

    def is_silent(self, read: Read) -> bool:
        """Whether such a sum is over zeros, before there are outputs."""
        return self.is_sum(read) and all(self._of(each) is None for each in products_of(read))

    def age(self, read: Read) -> int:
        """That of the outputs which such a sum is over."""
        return min(age for each in products_of(read) if (age := self._of(each)) is not None)

    def earliest(self, reads: list[Read]) -> float:
        """When the last output is made, if currents have sums over the outputs of the timestep before in them."""
        both = [read for read in reads if not self.is_sum(read)]
        parts = ((self.time(read), self._of(each)) for read in both for each in products_of(read))
        return max((time - 1 + age for time, age in parts if age is not None), default=-np.inf)

    def time(self, read: Read) -> int:
        """The timestep of a current."""
        return max(each.call for each in products_of(read) if each.weight not in self.weights)


class EquationWriter:
    """The equations of a layer, from the classes of its values and when their latest are made."""

    def __init__(
        self,
        layer: LayerTimes,
        classes: Classes,
        times: list[int],
        own: Own,
        columns: int,
        begins: dict[int, float],
        anew: bool,
    ):
        """begins: what states begin with, by class, that is not made of others; anew: also what has a name is worked
        out of the states of a timestep earlier, rather than kept."""
        self._begins = begins
        self.layer, self.classes, self.kinds, self.own, self.columns = layer, classes, times, own, columns
        self._anew = anew
        self._recursive = {kind for kind in range(1, len(classes.latest)) if self._reaches(kind)}
        self._uses: Counter[int] = Counter()
        self._through: set[int] = set()
        self._write(set())
        self.texts = self._write(  # named: what the module names, states, and what is read twice
            {
                kind
                for kind in self.names
                if not kind or classes.latest[kind].name or self._uses[kind] > 1 or kind in self._states
            }
        )
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

    def _write(self, named: set[int]) -> tuple[str, ...]:
        """The equations of these classes, into which those of others are put; of all where none are given."""
        self._named = named
        self._taken = {*FUNCTIONS, "t", OUTPUT}
        self.rows: dict[str, tuple[str, np.ndarray, int | None]] = {}
        self._row_names: dict[Any, str] = {}
        self.names: dict[int, str] = {0: OUTPUT}
        for kind in sorted(named):
            self._name(kind)
        self._written: dict[int, str] = {}
        self._helpers: dict[str, str] = {}
        self._lagged: dict[str, str] = {}
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
        reserved = (
            not name.isidentifier() or keyword.iskeyword(name) or SUMS.fullmatch(name) or (row and name in RESERVED)
        )
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
        if not isinstance(arg, Read) or isinstance(arg.of, (Parameter, Part)):
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
        plain = kind not in self._begins and (not made.name or (self._anew and kind not in self._recursive))
        if lag and kind and plain and kind not in self._through and not any(map(is_current, made.args)):
            self._through.add(kind)
            made_anew = self._expression(kind, lag)
            self._through.remove(kind)
            return made_anew
        self._uses[kind] += 1
        if lag == 0 and self._named and kind not in self._named:
            return self._expression(kind, 0)
        if lag == 0:
            return self._equation(kind), 3
        if kind:
            self._states.add(kind)
        self._waiting.append(kind)
        name = self._name(kind)
        if not (begins := self._begins.get(kind)):
            return self._earlier(name, lag)
        # states begin at 0 here: what is kept is the distance from where this one begins
        sign, number = ("-", "+") if begins > 0 else ("+", "-"), _number(abs(begins))
        self._helpers.setdefault(f"{name}_moved", f"{name}_moved = {name} {sign[0]} {number}")
        return f"({self._earlier(f'{name}_moved', lag)[0]} {sign[1]} {number})", 3

    def _earlier(self, name: str, lag: int) -> tuple[str, int]:
        """What a name was so many timesteps before."""
        if lag and SUMS.fullmatch(name):
            self._helpers.setdefault(name, f"read_{name} = {name}")
            name = f"read_{name}"
        last = name
        for step in range(1, lag):
            key = f"{name}[t-{step}]"
            if key not in self._lagged:
                self._lagged[key] = self._unique(f"{name}_{step}")
                self._helpers[key] = f"{self._lagged[key]} = {last}[t-1]"
            last = self._lagged[key]
        return (f"{last}[t-1]" if lag else name), 3

    def _row(self, arg: Operand) -> str:
        """The name of what differs from neuron to neuron; the number of what does not."""
        if isinstance(arg, Read):
            of = arg.of
            assert isinstance(of, (Parameter, Part))
            known, values = of.name, numbers_of(arg.tensor)
            if values.size == 1 and not arg.tensor.requires_grad:
                return _number(float(constant_of(arg.tensor)))  # type: ignore[arg-type]
        else:
            assert isinstance(arg, np.ndarray)
            of, known, values = None, "", arg
            if values.size == 1:
                return _number(float(values.flat[0]))
        key = of or values.tobytes()
        if values.size not in (1, self.columns):
            what = f"'{known}'" if known else "a tensor of no known origin"
            raise refusal(
                f"{self.layer.where} read {what}, {values.size} values for {self.columns} neurons; nearest: one "
                "for each"
            )
        if key not in self._row_names:
            self._row_names[key] = self._unique(known.rpartition(".")[2] or "constant", row=True)
            row = of.row if isinstance(of, Part) else None
            self.rows[self._row_names[key]] = known, values.reshape(1, -1), row
        return self._row_names[key]


BINDING = {ADD: 1, SUBTRACT: 1, TIMES: 2, OVER: 2}


def _bound(text: str, binds: int, least: int) -> str:
    return text if binds >= least else f"({text})"


def _number(value: float) -> str:
    return str(int(value)) if abs(value) < 1e6 and value == int(value) else repr(value)
