"""Where the values of a tensor come from: the example, a layer, or arithmetic on what layers sent."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from mimdsim.graph.convolution import Convolution, Planes, Pool, Window
from mimdsim.graph.derived import Delays, WeightFunction
from mimdsim.graph.elementwise import Line
from mimdsim.graph.synapses import HeadProduct


@dataclass(frozen=True, kw_only=True)
class Input:
    """The example input, or a part of it. entry: (which, of how many) of the axis of time, where it is one of them."""

    entry: tuple[int, int] | None = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True)
class LayerOutput:
    """What a layer of neurons sent in one of its calls: its spikes, or one of its states. in_time: of all timesteps;
    entry: the one that was taken of these."""

    layer: str
    call: int
    spikes: bool
    in_time: bool = field(default=False, compare=False)
    entry: int = field(default=0, compare=False)


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter of the module, or its product with a mask."""

    name: str
    masked: bool = False


@dataclass(frozen=True, kw_only=True)
class Part:
    """A number of a parameter, or adjacent ones, as many as in every row before it."""

    name: str
    row: int


@dataclass(frozen=True, kw_only=True)
class Product:
    """`inputs` values times weights, plus biases, named as the parameters are; transposed: they lie [outputs, inputs].
    convolution: how planes are multiplied, with the pools before and after it. norm: the batch norm that scales it;
    folded: by constants, in eval(). dropout: of what it reads. negative: what is subtracted. delays: of its weights,
    that are learned; positions: the parameter that has them. function: by which weights are made of the parameter;
    bias_factor: by which the biases are multiplied. channels: of what is read without weights, and then only called
    `weight`, its planes, or neurons. call: how often it was computed before, or the timestep that was taken of it."""

    of: Origin
    inputs: int
    weight: str
    transposed: bool
    biases: tuple[str, ...] = ()
    convolution: Convolution | None = None
    norm: str = ""
    folded: bool = False
    dropout: Dropout | None = None
    negative: bool = False
    delays: Delays | None = None
    positions: str = ""
    function: WeightFunction | None = None
    bias_factor: float = 1.0
    channels: int = 0
    call: int = field(default=0, compare=False)


@dataclass(frozen=True, kw_only=True)
class Gate:
    """One of so many equal shares of the columns of a product, or of a sum of them; or `shares` adjacent ones."""

    of: Currents
    index: int
    gates: int
    shares: int = 1


@dataclass(frozen=True, kw_only=True)
class Dropout:
    """A share that is left out, drawn anew in every timestep or once a 'sequence'; of: 'neuron' or 'plane'."""

    share: float
    per: str
    of: str = "neuron"


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """What dropout leaves."""

    of: Origin
    dropout: Dropout


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """What a pool made of planes."""

    of: Origin
    planes: Planes
    pool: Pool


@dataclass(frozen=True, kw_only=True)
class Slice:
    """Adjacent neurons, from `first` on, of so many in a layer."""

    of: Origin
    first: int
    neurons: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Sum:
    parts: tuple[Origin, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Combined:
    """Made of spikes as a source of several says it: their product element by element, 1 minus the only part, or the
    product of both by head."""

    by: str | Line | HeadProduct
    parts: tuple[Origin, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Joined:
    """Side by side along the axis of neurons, each so wide, or so many planes; None: of no known origin, as zeros
    before there are spikes."""

    parts: tuple[Origin | None, ...]
    widths: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class FunctionResult:
    """Made by a function that no layer has; 'stack': the timesteps, one after another; divisor: the number by which it
    divided, or 1 over that by which it multiplied; votes: of how many adjacent outputs it is the mean."""

    by: str
    of: tuple[Origin | None, ...]
    divisor: float = 1.0
    votes: int = 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Padded(FunctionResult):
    """With so many zeros before and after its last axis, the one before that, and so on."""

    zeros: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Late(FunctionResult):
    """The timesteps from `first` on."""

    first: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Scaled(FunctionResult):
    """Spikes, or the input, times a number."""

    factor: float


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step from 0 to 1, above a threshold, with a surrogate gradient, which a factor multiplies; at: also `at` it."""

    threshold: float
    surrogate: str
    slope: float
    factor: float = 1.0
    at: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Read:
    """A current, or a parameter, as an operation element by element reads it."""

    of: Currents | Gate | Parameter | Part
    tensor: torch.Tensor


@dataclass(kw_only=True, eq=False, repr=False)  # it is made of all that was before
class Made:
    """What an operation element by element made. by: the function of PyTorch; op: as equations write it, 'spike' with
    its step; number: in the order in which they were made; name: of a variable that held it; version: of the tensor,
    which grows where something is done to it in place; planes: that the currents are in which it is made of."""

    by: str
    op: str
    args: tuple[Made | Read | float | np.ndarray, ...]
    number: int
    tensor: torch.Tensor | None
    step: Step | None = None
    name: str = ""
    version: int = -1
    planes: Planes | None = None

    def hold(self, tensor: torch.Tensor) -> Made:
        """Itself, of which this is the value."""
        self.tensor, self.version = tensor, tensor._version
        return self

    @property
    def values(self) -> torch.Tensor | None:
        """The tensor, unless it was changed since."""
        return self.tensor if self.tensor is not None and self.tensor._version == self.version else None


AS_THEY_ARE = WeightFunction(function="identity")
VOTE = "vote"  # what a voting layer makes
Currents = Product | Sum | Joined
Spikes = LayerOutput | Pooled | Dropped | Slice | Sum | Combined
Origin = Input | Parameter | Part | Product | Gate | Joined | FunctionResult | Made | Spikes
THROUGH = (Sum, Combined, Pooled, Dropped, Scaled, Slice)  # of the same timesteps as their parts


@dataclass(frozen=True, kw_only=True, eq=False)
class Feed:
    """What a layer reads of one source: a product with rows `first` to `last` - 1 of its weights, which read neurons
    from `row` on of so many `rows`; columns: those of the currents that it is, as (first, last, of how many), None: all
    of them."""

    of: Origin | None
    product: Product
    first: int
    last: int
    row: int = 0
    rows: int = 0
    columns: tuple[int, int, int] | None = None

    @property
    def convolution(self) -> Convolution | None:
        """How it reads planes, some of those of its product where others are side by side with them."""
        whole = self.product.convolution
        return whole and whole.with_planes((self.last - self.first) // whole.window.taps * whole.groups)


def parts_of(origin: object) -> tuple[Any, ...]:
    """What an origin is directly made of."""
    if isinstance(origin, Made):
        return origin.args
    of = getattr(origin, "parts", getattr(origin, "of", ()))
    return of if isinstance(of, tuple) else (of,)


def with_parts(origin: Any, made: Callable[[Any], Any]) -> Any:
    """The origin made of what a function makes of its parts."""
    name = "parts" if hasattr(origin, "parts") else "of"
    of = getattr(origin, name)
    return replace(origin, **{name: tuple(map(made, of)) if isinstance(of, tuple) else made(of)})


def unweighted(of: Any, read: str, shape: Sequence[int], call: int) -> Product:
    """What layers send in so many neurons, or planes, of a sample, as a current without weights. read: its name."""
    neurons = math.prod(shape)
    return Product(of=of, inputs=neurons, weight=read, transposed=False, channels=shape[0], call=call)


def terms_of(origin: Origin | None, columns: tuple[int, int, int] | None = None) -> Iterator[tuple[Any, Any]]:
    """What currents add up, and `Feed.columns` of each."""
    if isinstance(origin, Sum):
        for each in origin.parts:
            yield from terms_of(each, columns)
    elif isinstance(origin, Joined):
        first, _, of = columns or (0, 0, sum(origin.widths))
        for part, wide in zip(origin.parts, origin.widths, strict=True):
            yield from terms_of(part, (first, first + wide, of))
            first += wide
    else:
        yield origin, columns


def feeds_of(origin: Origin | None) -> list[Feed]:
    """The products that are added up in an origin, source by source."""
    found = []
    for each, columns in terms_of(origin):
        if isinstance(each, Product):
            apart = not (each.delays or each.channels or (each.convolution and each.convolution.groups > 1))
            side_by_side = each.of if isinstance(each.of, Joined) and apart else None
            parts, widths = (side_by_side.parts, side_by_side.widths) if side_by_side else ((each.of,), (each.inputs,))
            first, times = 0, each.inputs // sum(widths)  # of planes as wide as a window, or all of their pixels
            for part, wide in zip(parts, (times * width for width in widths), strict=True):
                of, row, rows = (part, 0, wide) if each.convolution or each.delays else _whole(part, wide)
                about = {"first": first, "last": first + wide, "row": row, "rows": rows, "columns": columns}
                found.append(Feed(of=of, product=each, **about))
                first += wide
    return found


def _whole(part: Origin | None, wide: int) -> tuple[Origin | None, int, int]:
    """The layer that a slice of so many neurons is of, where it begins there, and how many neurons that has."""
    if isinstance(part, Dropped):
        of, row, rows = _whole(part.of, wide)
        return (part if of is None else replace(part, of=of)), row, rows
    return (part.of, part.first, part.neurons) if isinstance(part, Slice) else (part, 0, wide)


def sliced(of: Any, first: int, neurons: int) -> Origin:
    """A slice of the neurons of something."""
    if isinstance(of, (Dropped, Scaled)):
        made: Origin = with_parts(of, lambda part: sliced(part, first, neurons))
        return made
    return replace(of, first=of.first + first) if isinstance(of, Slice) else Slice(of=of, first=first, neurons=neurons)


def minus(origin: Origin | None) -> Origin | None:
    """Products that are subtracted; None for what cannot be, such as the largest of them."""
    if isinstance(origin, (Sum, Joined)):
        parts = tuple(map(minus, origin.parts))
        return replace(origin, parts=parts) if all(parts) else None  # type: ignore[arg-type]
    if not isinstance(origin, Product) or origin.norm or (origin.convolution and origin.convolution.after):
        return None
    return replace(origin, negative=not origin.negative)


def scaled(origin: Any, factor: float) -> Origin | None:
    """Products times a number that is fixed; None for what cannot be, such as one that is normalised."""
    if isinstance(origin, (Sum, Joined)):
        parts = tuple(scaled(each, factor) for each in origin.parts)
        return replace(origin, parts=parts) if all(parts) else None  # type: ignore[arg-type]
    if factor < 0:
        return scaled(minus(origin), -factor)
    if not isinstance(origin, Product) or origin.norm or origin.delays or not 0 < factor < np.inf:
        return None
    about = origin.function or AS_THEY_ARE
    made = replace(about, factor=about.factor * factor)
    return replace(origin, function=None if made == AS_THEY_ARE else made, bias_factor=origin.bias_factor * factor)


def unscaled(product: Product) -> Product:
    """A product whose weights have the number above 0 that multiplies what it reads as their factor."""
    of = product.of.of[0] if isinstance(product.of, Scaled) else None
    if not isinstance(product.of, Scaled) or of is None or product.of.factor <= 0:
        return product
    made = scaled(replace(product, of=of), product.of.factor)
    return replace(made, bias_factor=product.bias_factor) if isinstance(made, Product) else product


def currents_in(operand: Any, known: dict[Made, Origin | None] | None = None) -> Origin | None:
    """What operations that scale currents and add them up made, as products; None where it is something else. known: of
    operations that others read as well."""
    if isinstance(operand, Read):
        return operand.of if isinstance(operand.of, Currents) else None
    if not isinstance(operand, Made) or len(operand.args) != 2:
        return None
    known = {} if known is None else known
    if operand not in known:
        known[operand] = _currents_of(operand.op, *operand.args, known)
    return known[operand]


def _currents_of(op: str, one: Any, other: Any, known: dict[Made, Origin | None]) -> Origin | None:
    if op == "*" and isinstance(one, float):
        return scaled(currents_in(other, known), one)
    if op == "/" and isinstance(other, float):
        return scaled(currents_in(one, known), 1 / other) if other else None
    if op not in ("+", "-"):
        return None
    both = [currents_in(one, known), currents_in(other, known)]
    both[1] = minus(both[1]) if op == "-" else both[1]
    parts = [part for each in both if each for part in (each.parts if isinstance(each, Sum) else (each,))]
    return _sum_of(parts) if all(both) else None


def _sum_of(parts: list[Any]) -> Origin | None:
    """A product that is there several times, times numbers, as one; None where nothing is left of it."""
    alike: dict[Any, list[Any]] = {}
    for part in parts:
        plain = isinstance(part, Product) and not part.norm
        about = part.function and replace(part.function, factor=1.0) if plain else None
        bare = about if about != AS_THEY_ARE else None
        same = replace(part, function=bare, bias_factor=1.0, negative=False) if plain else part
        alike.setdefault(same, []).append(part)
    made = []
    for same, every in alike.items():
        if len(every) > 1 and isinstance(same, Product):
            signs = [-1.0 if each.negative else 1.0 for each in every]
            factors = [each.function.factor if each.function else 1.0 for each in every]
            total = sum(sign * factor for sign, factor in zip(signs, factors, strict=True))
            by_bias = sum(sign * each.bias_factor for sign, each in zip(signs, every, strict=True))
            every = [scaled(replace(same, bias_factor=by_bias / total if total else 0.0), total)]
        made += every
    if None in made:
        return None
    return made[0] if len(made) == 1 else Sum(parts=tuple(made))


def added_up(origin: Origin | None) -> Origin | None:
    """What weights read, as a sum where it adds up spikes of neurons that are written out."""
    found = [*_spikes_in(origin)] if isinstance(origin, Made) and origin.op == "+" else []
    parts = tuple(each for each in found if each)
    return Sum(parts=parts) if parts and len(parts) == len(found) else origin


def _spikes_in(operand: object) -> Iterator[Made | None]:
    """The spikes that operations add up, or zeros before there are spikes; None: it is no sum of these."""
    if isinstance(operand, Made) and operand.op == "+":
        for each in operand.args:
            yield from _spikes_in(each)
    elif operand != 0.0:
        yield operand if isinstance(operand, Made) and operand.op == "spike" else None


def is_sent(origin: Any) -> bool:
    """Whether layers may send it, or what is made of these without weights."""
    if isinstance(origin, (Sum, Combined, Joined, Pooled, Dropped, Scaled)):
        return all(map(is_sent, parts_of(origin)))
    spikes = isinstance(origin, LayerOutput) and origin.spikes
    return spikes or isinstance(origin, (Input, Product)) or (isinstance(origin, Made) and origin.op == "spike")


def is_in_time(origin: Origin | None) -> bool:
    """Whether it is of all timesteps together, of an example that has them."""
    if isinstance(origin, Input):
        return origin.entry is None
    if isinstance(origin, LayerOutput):
        return origin.in_time
    if isinstance(origin, (Product, Gate, Joined, *THROUGH)):
        return all(map(is_in_time, parts_of(origin)))
    return isinstance(origin, FunctionResult) and origin.by == "stack"


def timestep_of(origin: Origin, t: int, timesteps: int) -> Origin:
    """What a timestep of it is."""
    if isinstance(origin, Late):
        return timestep_of(origin.of[0], t + origin.first, timesteps + origin.first)  # type: ignore[arg-type]
    if isinstance(origin, Input):
        return Input(entry=(t, timesteps))
    if isinstance(origin, LayerOutput):
        return replace(origin, in_time=False, entry=t) if origin.in_time else origin
    if isinstance(origin, (Product, Gate, Joined, *THROUGH)):
        made: Origin = with_parts(origin, lambda part: timestep_of(part, t, timesteps))
        return replace(made, call=t) if isinstance(made, Product) else made
    if isinstance(origin, FunctionResult) and len(origin.of) == timesteps:
        return origin.of[t] or FunctionResult(by="nothing that is known", of=())
    return origin


def of_all(origin: Any, in_time: Callable[[str], bool]) -> Any:
    """All timesteps of what is a timestep; in_time: whether a layer sends them at once."""
    if isinstance(origin, LayerOutput):
        return replace(origin, in_time=in_time(origin.layer), entry=0)
    if isinstance(origin, (Product, *THROUGH)):
        return with_parts(origin, lambda part: of_all(part, in_time))
    return Input() if isinstance(origin, Input) else origin


def undropped(of: Origin) -> tuple[Origin, Dropout | None]:
    """What dropout was applied to, and what it was."""
    return (of.of, of.dropout) if isinstance(of, Dropped) else (of, None)


def each_in(through: tuple[type, ...], *origins: Any) -> Iterator[Any]:
    """Origins and what they are made of, each once, however often others are made of it."""
    seen, waiting = dict[int, Any](), [*origins]
    while waiting:
        each = waiting.pop()
        if id(each) not in seen:
            seen[id(each)] = each
            yield each
            waiting += parts_of(each) if isinstance(each, through) else ()


def burn_in_of(origins: Iterable[Origin | None], layer: str, timesteps: int, begins: int) -> int:
    """How many timesteps at the start are left out of what is made of all that a layer sends, from `begins` on; 0 where
    others are left out."""
    read = set[int]().union(*(_timesteps_in(each, layer, timesteps) for each in origins))
    first = min(read, default=0)
    return first if first > begins and read == set(range(first, timesteps)) else 0


def _timesteps_in(origin: Any, layer: str, timesteps: int) -> set[int]:
    """Those in which a layer sent what something is made of."""
    found, seen, waiting = set[int](), dict[int, Any](), [origin]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen[id(each)] = each
        if isinstance(each, LayerOutput) and each.layer == layer:
            found |= set(range(timesteps)) if each.in_time else {max(each.call, each.entry)}
        elif isinstance(each, Late):
            found |= set[int]().union(*_by_timestep(each, layer, timesteps))
        elif isinstance(each, (FunctionResult, Product, *THROUGH)):
            waiting += parts_of(each)
    return found


def _by_timestep(origin: Any, layer: str, timesteps: int) -> list[set[int]]:
    """As `_timesteps_in`, of each entry of what has an axis of time."""
    if isinstance(origin, Late):
        return _by_timestep(origin.of[0], layer, timesteps)[origin.first :]
    if isinstance(origin, FunctionResult) and origin.by == "stack":
        return [_timesteps_in(each, layer, timesteps) for each in origin.of]
    if isinstance(origin, LayerOutput):
        return [{t} if origin.layer == layer else set() for t in range(timesteps)]
    parts = [_by_timestep(each, layer, timesteps) for each in parts_of(origin)]
    return [set[int]().union(*every) for every in zip(*parts, strict=False)]


def votes_in(origin: Origin | None) -> int:
    """How many adjacent outputs make one of these."""
    return max(getattr(each, "votes", 1) for each in each_in((FunctionResult, Sum), origin))


def with_votes(origin: Any, known: dict[int, Any] | None = None) -> Any:
    """What is returned, where a pool of adjacent neurons, which are no planes, is a vote. known: what was made so, by
    id, of what others are made of as well."""
    known = {} if known is None else known
    if isinstance(origin, (FunctionResult, Sum)):
        if id(origin) not in known:
            known[id(origin)] = with_parts(origin, lambda part: with_votes(part, known))
        return known[id(origin)]
    if isinstance(origin, Pooled):
        (_, each), planes = origin.pool.window.kernel, origin.planes
        apart = origin.pool.window == Window(kernel=(1, each), stride=(1, each)) and planes.width % each == 0
        if origin.pool.kind != "max" and apart and (planes.channels, planes.height) == (1, 1):
            divisor = 1 / each if origin.pool.kind == "sum" else 1.0
            return FunctionResult(by=VOTE, of=(origin.of,), divisor=divisor, votes=each)
    return origin


def sources_in(origin: Origin | None) -> set[tuple[str, bool]]:
    every = each_in((FunctionResult, *THROUGH), origin)
    return {(each.layer, each.spikes) for each in every if isinstance(each, LayerOutput)}


def unread_in(origin: Any) -> Any:
    """The first function of it that is not read, of which the others are."""
    if isinstance(origin, FunctionResult) and origin.by == "stack" and origin.of:
        return unread_in(origin.of[-1])
    while isinstance(origin, FunctionResult) and (of := [each for each in origin.of if _is_unread(each)]):
        origin = of[0]
    return origin


def _is_unread(origin: Origin | None) -> bool:
    return isinstance(origin, FunctionResult) and origin.by != "stack" and bool(origin.of)
