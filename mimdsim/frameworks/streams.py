"""Currents that several layers read, or that are added up as they are: the membrane shortcuts of MS-ResNet.

Products that make such currents become layers that send them, and what reads these, alone or added up, reads them by a
product without weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from mimdsim.frameworks.neurons import Reading, numbers_of
from mimdsim.frameworks.origins import (
    THROUGH,
    Dropped,
    FunctionResult,
    Gate,
    Input,
    Joined,
    LayerOutput,
    Made,
    Pooled,
    Product,
    Slice,
    Sum,
    each_in,
    is_in_time,
    is_sent,
    terms_of,
    timestep_of,
    unweighted,
    with_parts,
)
from mimdsim.frameworks.planes import currents_of
from mimdsim.frameworks.recorded import NeuronCalls, Recorded
from mimdsim.frameworks.written_equations import components_of, is_current, made_in
from mimdsim.graph.cell_catalogue import CURRENT

SENDS = Reading(model=CURRENT, parameters={}, reset="", reset_gradient="")  # its current, as it is


@dataclass(frozen=True, eq=False)
class _Reader:
    """Neurons: those of a framework's layer, or `neurons` that are written out. reads: where currents come from."""

    reads: list[Any]
    name: str = ""
    neurons: frozenset[Made] = frozenset()

    @cached_property
    def own(self) -> set[str]:
        """The weights of their own spikes, of which there are none in the first timestep."""
        terms = (part for origin in self.reads for part, _ in terms_of(origin))
        return {part.weight for part in terms if isinstance(part, Product) and self._sent(part.of)}

    def others(self, origin: Any) -> list[Any]:
        """What is added up in a current, but for products of their own spikes; none of currents side by side, but for
        those that layers have to send."""
        terms = [*terms_of(origin)]
        if isinstance(origin, Joined) and _is_alone(*(part for part, _ in terms)):
            return [origin]
        apart = any(columns for _, columns in terms) or isinstance(origin, Gate)
        return [] if apart else [part for part, _ in terms if not self.is_own(part)]

    def is_own(self, part: Any) -> bool:
        return isinstance(part, Product) and part.weight in self.own

    def _sent(self, of: Any) -> bool:
        while isinstance(of, (Slice, Dropped)):
            of = of.of
        return (isinstance(of, LayerOutput) and of.layer == self.name) or not self.neurons.isdisjoint(made_in([of]))


def with_currents(recorded: Recorded) -> Recorded:
    """What was recorded, with a layer for every product whose current is read by more than the weights of one layer."""
    readers = _readers(recorded)
    streams = _Streams(recorded, _sending(recorded, readers))
    for reader in readers:
        for made in reader.neurons:
            made.args = tuple(streams.operand(reader, arg) for arg in made.args)
    layers = dict(streams.layers)
    for reader, calls in zip(readers, recorded.layers.values(), strict=False):
        if calls.reading.weights:
            origins = [*map(streams.replaced, calls.origins)]
        else:
            tensors = zip(calls.origins, calls.currents, strict=True)
            origins = [streams.current(reader, of, tensor.shape[1 + calls.in_time :]) for of, tensor in tensors]
        layers[reader.name] = replace(calls, origins=origins)
    returned, before = ([*map(streams.replaced, each)] for each in (recorded.returned, recorded.returned_before))
    returned = [_returned_sum(recorded, origin, layers) for origin in returned]
    return replace(recorded, layers=layers, returned=returned, returned_before=before)


def _returned_sum(recorded: Recorded, origin: Any, layers: dict[str, NeuronCalls]) -> Any:
    """What is returned, where it is products that are added up, or one of several layers, or the input, side by side: a
    layer, put into `layers`, that sends their sum in every timestep."""
    through = (FunctionResult, Sum)
    ends = [each for each in each_in(through, origin) if not isinstance(each, through)]
    weights = {each.weight: each.negative for each in ends if isinstance(each, Product)}
    every = (of for each in _only_products(ends) for of in each_in((FunctionResult,), each.of))
    beside = any(isinstance(of, Joined) for of in every)
    if not (len(weights) > 1 or beside) or len(_only_products(ends)) < len(ends) or _is_alone(*ends):
        return origin
    made: list[dict[int, tuple[Product, torch.Tensor]]] = [
        _by_timestep(*each, recorded, _timesteps(recorded)) for each in weights.items()
    ]
    if len({*map(tuple, made)}) > 1 or not made[0]:
        return origin
    name = next(iter(weights)).removesuffix(".weight")
    parts = [[each[t] for each in made] for t in made[0]]
    tensors = [torch.stack([tensor for _, tensor in each]).sum(0) for each in parts]
    origins: list[Any] = [Sum(parts=tuple(of for of, _ in each)) if len(each) > 1 else each[0][0] for each in parts]
    layers[name] = NeuronCalls(
        name=name, module=torch.nn.Identity(), reading=replace(SENDS, in_time=False), currents=tensors,
        origins=origins, outputs=tensors,
    )  # fmt: skip
    sent = [LayerOutput(layer=name, call=t, spikes=True) for t in made[0]]

    def of_layer(each: Any) -> Any:
        if isinstance(each, FunctionResult):
            return with_parts(each, of_layer)
        calls = sorted({product.call for product in _only_products(part for part, _ in terms_of(each))})
        if is_in_time(each):
            return FunctionResult(by="stack", of=tuple(sent))
        return sent[calls[0]] if len(calls) == 1 else FunctionResult(by="add", of=tuple(sent[t] for t in calls))

    return of_layer(origin)


def _by_timestep(
    weight: str, negative: bool, recorded: Recorded, timesteps: int
) -> dict[int, tuple[Product, torch.Tensor]]:
    """What weights made in every timestep, and of what; negative: of which it is subtracted."""
    found: dict[int, tuple[Product, torch.Tensor]] = {}
    for product, tensor, version in recorded.currents:
        if product.weight != weight or tensor._version != version:
            continue
        made, product = -tensor.detach() if negative else tensor.detach(), replace(product, negative=negative)
        if is_in_time(product) and len(made) == timesteps:
            return {t: (timestep_of(product, t, timesteps), made[t]) for t in range(timesteps)}  # type: ignore[misc]
        found.setdefault(product.call, (product, made))
    return found


def with_late_currents(recorded: Recorded, weights: Callable[[Product], np.ndarray]) -> Recorded:
    """What was recorded, in which currents that are made of nothing but what a layer sent a timestep earlier, and read
    by it in the next (`r @ n @ m`), are sent in the timestep of that. weights: of a product, as they act."""
    layers = dict(recorded.layers)
    for name, calls in recorded.layers.items():
        first, *others = calls.origins
        last: Any = calls.origins[-1]
        if calls.reading.model != CURRENT or not isinstance(last, Product) or not _is_plain(last):
            continue
        sender = getattr(last.of, "layer", "")
        sent = [LayerOutput(layer=sender, call=t, spikes=True) for t in range(len(calls.origins))]
        late = [isinstance(each, Product) and each.of == of for each, of in zip(others, sent, strict=False)]
        known = layers[sender].outputs if sender in layers and not layers[sender].in_time else []
        if not all(late) or len(known) != len(sent) or calls.outputs[0].any():
            continue
        read = numbers_of(known[-1]).reshape(1, len(known[-1]), -1)
        made = torch.as_tensor(currents_of(last.convolution, read, weights(last), 0.0))
        tensors = [*calls.outputs[1:], made.reshape(calls.outputs[0].shape).to(calls.outputs[0].dtype)]
        origins: list[Any] = [replace(last, of=of, call=t) for t, of in enumerate(sent)]
        del layers[name]  # it runs after what it reads
        layers[name] = replace(calls, currents=tensors, outputs=tensors, origins=origins)
        earlier = partial(_earlier_call, name, first)
        for each in layers.keys() - {name}:
            layers[each] = replace(layers[each], origins=[*map(earlier, layers[each].origins)])
    return replace(recorded, layers=layers)


def _is_plain(product: Product) -> bool:
    """Whether it makes zeros of zeros, in every timestep and training step."""
    return not (product.biases or product.norm or product.delays or product.dropout or product.channels)


def _earlier_call(layer: str, first: Any, origin: Any) -> Any:
    """An origin in which what a layer sent is what it sent in the call before; first: what is like that before the
    first."""
    if isinstance(origin, LayerOutput) and origin.layer == layer:
        return replace(origin, call=origin.call - 1) if origin.call else first.of
    inner = isinstance(origin, (Product, Joined, FunctionResult, *THROUGH))
    return with_parts(origin, partial(_earlier_call, layer, first)) if inner else origin


def _readers(recorded: Recorded) -> list[_Reader]:
    """Layers of frameworks, in their order, and neurons that are written out."""
    every = recorded.layers.items()
    found = [_Reader([] if calls.reading.weights else calls.origins, name) for name, calls in every]
    starts = [*recorded.returned, *recorded.returned_before, *(each for _, calls in every for each in calls.origins)]
    starts += [arg.of for made in recorded.made for arg in made.args if is_current(arg)]
    for component in components_of(starts):
        reads = [arg.of for made in component.members for arg in made.args if is_current(arg)]
        found.append(_Reader(reads, neurons=frozenset(component.members)))
    return found


def _sending(recorded: Recorded, readers: list[_Reader]) -> dict[str, Product]:
    """The products that become layers, by their weights: those that weights or a pool read, that several readers add
    up, or one with what no layer adds up by weights of its own; and with them all that is added up with them."""
    ends = [*recorded.returned, *recorded.returned_before]
    inside = [each for origin in ends for each in _inside(origin, (Sum, Joined, FunctionResult))]
    inside += [each for one in readers for origin in one.reads for each in _inside(origin, (Sum, Joined, Gate))]
    of_cells = (calls for calls in recorded.layers.values() if calls.reading.weights)
    inside += [each for calls in of_cells for origin in calls.origins for each in _products_in(origin)]
    read_by: dict[str, set[_Reader]] = {}
    for one in readers:
        for product in _only_products(part for origin in one.reads for part, _ in terms_of(origin)):
            read_by.setdefault(product.weight, set()).add(one)
    sends = {each.weight for each in inside} | {weight for weight, by in read_by.items() if len(by) > 1}
    for one in readers:
        one.own.difference_update(sends)
    sums = [others for one in readers for origin in one.reads if (others := one.others(origin))]
    for others in sums:
        sends |= {each.weight for each in _only_products(others)} if _is_mixed(others) else set()
    before: set[str] = set()
    while sends != before:
        before = set(sends)
        for weights in ({each.weight for each in _only_products(others)} for others in sums):
            sends |= weights if weights & sends else set()
    forms: dict[str, set[Product]] = {}
    for product in (*inside, *(each for others in sums for each in _only_products(others))):
        if product.weight in sends:
            forms.setdefault(product.weight, set()).add(_form(product))
    found = {weight: min(of, key=_has_pool) for weight, of in forms.items()}  # of which pools may be read apart
    return {weight: form for weight, form in found.items() if len(set(map(_unpooled, forms[weight]))) == 1}


def _is_alone(*parts: Any) -> bool:
    """Whether one of these is a product that makes all currents of a layer."""
    return any(each.norm or each.convolution or each.delays for each in _only_products(parts))


def _only_products(parts: Iterable[Any]) -> list[Product]:
    """Those that are added up, or side by side in what is."""
    every = (each for part in parts for each in (part.parts if isinstance(part, Joined) else (part,)))
    return [each for each in every if isinstance(each, Product)]


def _is_mixed(others: list[Any]) -> bool:
    """Whether no layer adds this up by weights of its own."""
    products, alone = _only_products(others), _is_alone(*others)
    several = len({each.weight for each in products}) > 1  # not one in several timesteps
    return (alone and several) or (len(products) < len(others) and all(map(is_sent, others)))


def _products_in(*origins: Any) -> Iterator[Product]:
    """The products that these are made of, without neurons between."""
    every = each_in((Product, Joined, Gate, FunctionResult, *THROUGH), *origins)
    return (each for each in every if isinstance(each, Product))


def _inside(origin: Any, through: tuple[type, ...]) -> Iterator[Product]:
    """The products that another one, or a pool, reads; through: what adds products up, or gathers them."""
    ends = (each for each in each_in(through, origin) if not isinstance(each, through))
    return _products_in(*(each.of if isinstance(each, Product) else each for each in ends))


def _form(product: Product) -> Product:
    """What is alike of a product in every timestep."""
    return replace(product, of=Input(), call=0)


def _has_pool(product: Product) -> bool:
    return bool(product.convolution and product.convolution.after)


def _unpooled(product: Product) -> Product:
    return replace(product, convolution=product.convolution and replace(product.convolution, after=None))


class _Streams:
    """Layers that send currents, and origins in which these stand for the products that they are of."""

    def __init__(self, recorded: Recorded, sending: dict[str, Product]):
        self.layers: dict[str, NeuronCalls] = {}
        self._sending: dict[str, tuple[str, Product]] = {}
        self._known: dict[int, Any] = {}
        self._labels: dict[str, _Reader] = {}
        made: dict[str, dict[tuple[bool, int], tuple[Product, torch.Tensor]]] = {}
        timesteps = _timesteps(recorded)
        for product, tensor, version in recorded.currents:
            form, shape = sending.get(product.weight), _shape(product, tensor)
            each = replace(product, negative=bool(form and form.negative))
            if form == _form(each) and tensor._version == version and tuple(tensor.shape[-len(shape) :]) == shape:
                sent = -tensor.detach() if each.negative else tensor.detach()
                known = made.setdefault(product.weight, {})
                key, axes = (is_in_time(product), product.call), sent.shape[: -len(shape)]
                if len(axes) > 1 and axes[0] != timesteps == axes[1]:  # samples come first
                    sent = sent.movedim(1, 0)
                if key not in known or len(axes) > 1:
                    known[key] = each, sent.reshape(-1, *shape)
        for weight, by_call in made.items():
            name = weight.removesuffix(".weight")
            if calls := _calls(name, by_call, timesteps):
                self._sending[weight], self.layers[name] = (name, sending[weight]), calls
        self._order = {name: at for at, name in enumerate(self.layers)}
        for name, calls in self.layers.items():
            origins = [self.replaced(each, within=True) for each in calls.origins]
            self.layers[name] = replace(calls, origins=origins)

    def replaced(self, origin: Any, within: bool = False) -> Any:
        """An origin in which layers send currents; within: but for itself."""
        if not within and id(origin) in self._known:
            return self._known[id(origin)][1]
        made = origin
        if isinstance(origin, Product) and origin.weight in self._sending and not within:
            made = self._sent(origin)
        elif isinstance(origin, (Product, Joined, Gate, FunctionResult, *THROUGH)):
            made = with_parts(origin, self.replaced)
        if isinstance(made, Sum):  # the oldest first, so that what several add up begins alike
            made = replace(made, parts=tuple(sorted(made.parts, key=self._age)))
        if not within:
            self._known[id(origin)] = origin, made
        return made

    def _age(self, part: Any) -> int:
        return self._order.get(part.layer, len(self._order)) if isinstance(part, LayerOutput) else len(self._order)

    def _sent(self, product: Product) -> Any:
        name, form = self._sending[product.weight]
        whole, all_of_it = self.layers[name].in_time, is_in_time(product)
        call, entry = (0, 0 if all_of_it else product.call) if whole else (product.call, 0)
        sent = LayerOutput(layer=name, call=call, spikes=True, in_time=whole and all_of_it, entry=entry)
        if not _has_pool(product) or _has_pool(form):
            return sent
        convolution = product.convolution
        return Pooled(of=sent, planes=convolution.made, pool=convolution.after)  # type: ignore[union-attr, arg-type]

    def operand(self, reader: _Reader, arg: Any) -> Any:
        """What an operation of neurons that are written out reads."""
        return replace(arg, of=self.current(reader, arg.of, arg.tensor.shape[1:])) if is_current(arg) else arg

    def current(self, reader: _Reader, origin: Any, shape: tuple[int, ...]) -> Any:
        """Where the current of neurons of this shape comes from: what is sent is read by a product without weights."""
        others = reader.others(origin)
        sent = [self.replaced(each) for each in others]
        if not others or _only_products(sent) or not all(map(is_sent, sent)):
            return self.replaced(origin)
        sent.sort(key=self._age)
        names = " + ".join(dict.fromkeys(getattr(each, "layer", "what is made") for each in sent))
        label = f"what '{reader.name}' reads" if reader.name else f"after {names}"
        while self._labels.setdefault(label, reader) is not reader:
            label += ", again"
        of = Sum(parts=tuple(sent)) if len(sent) > 1 else sent[0]
        call = max(getattr(each, "call", 0) for each in (*others, *_only_products(others)))
        read = unweighted(of, label, shape, call)
        own = [self.replaced(part) for part, _ in terms_of(origin) if reader.is_own(part)]
        return Sum(parts=(read, *own)) if own else read


def _shape(product: Product, tensor: torch.Tensor) -> tuple[int, ...]:
    """Of what a product makes of a sample in a timestep, in this tensor: planes, or so many neurons."""
    if product.channels:
        return next(tensor.shape[k:] for k in range(tensor.ndim) if tensor.shape[k:].numel() == product.inputs)
    if product.convolution is None:
        return (tensor.shape[-1],)
    of = product.convolution.result
    shapes = (of.channels, of.height, of.width), (of.channels, of.positions), (of.neurons,)
    return next((each for each in shapes if tuple(tensor.shape[-len(each) :]) == each), shapes[-1])


def _timesteps(recorded: Recorded) -> int:
    """As many as were seen, by the module or by its layers."""
    calls = recorded.layers.values()
    return max([recorded.timesteps, *(len(each.outputs[0] if each.in_time else each.outputs) for each in calls)])


def _calls(name: str, made: dict[tuple[bool, int], tuple[Product, torch.Tensor]], timesteps: int) -> NeuronCalls | None:
    """The calls of a layer that sends what a product makes, of all timesteps at once or of one after another; None of
    one that multiplies several values in a timestep, or one for all. made: by whether it is in time, and call."""
    whole = [each for (in_time, _), each in made.items() if in_time]
    at_once = len(whole) == 1 and timesteps > 1 and len(whole[0][1]) % timesteps == 0
    if not at_once and len(made) != (timesteps or len(made)):
        return None
    found = whole if at_once else [*made.values()]
    tensors = [tensor.reshape(timesteps, -1, *tensor.shape[1:]) if at_once else tensor for _, tensor in found]
    return NeuronCalls(
        name=name,
        module=torch.nn.Identity(),
        reading=replace(SENDS, in_time=at_once),
        pixels=found[0][0].convolution.result if found[0][0].convolution else None,
        currents=tensors,
        origins=[product for product, _ in found],
        outputs=tensors,
    )
