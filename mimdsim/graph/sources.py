"""What layers read: spikes of others, alone or combined element by element before weights see them.

As text: 'hidden0', 'hidden0@t-2', 'hidden0 + hidden1', 'hidden0 * (1 - hidden1)', '0.125 * hidden0',
'concat(hidden0, hidden1)', with size, stride and padding 'max_pool(hidden0, 3, 2, 1)' ('1x3' where height and width
differ), and of two with so many heads 'matmul_nn(hidden0, hidden1, 8)', of which 'matmul_nt' transposes the second and
'matmul_tn' the first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.graph.convolution import POOLS, Pair, Planes, Pool, Window, pool_planes
from mimdsim.graph.elementwise import Line
from mimdsim.graph.names import aged
from mimdsim.graph.synapses import BySample, HeadProduct, by_sample

ADD, TIMES, CONCAT = "+", "*", "concat"
COMPLEMENT = Line(scale=-1.0, shift=1.0)
KINDS = {ADD: "sum", TIMES: "product", COMPLEMENT: "complement", CONCAT: "concatenation"}
KINDS_OF = {Line: "multiple", Pool: "pool", HeadProduct: "product by head"}
HEAD_PRODUCTS = ("matmul_nn", "matmul_nt", "matmul_tn")
# how many sources a function takes at the most, and how many sizes at least and at the most
POOLED = {f"{kind}_pool": (1, 1, 3) for kind in POOLS}
FUNCTIONS = {CONCAT: (10**6, 0, 0)} | POOLED | dict.fromkeys(HEAD_PRODUCTS, (2, 1, 1))
DEEPEST = 50  # brackets in brackets


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a layer reads: another layer, or 'input', how wide that is, and how many timesteps old its spikes are
    (None: as from layer to layer in the network); or what is made of several, element by element.

    by: how it is made of the sources `of`: their sum, their product, all side by side (of planes their channels), 1
    minus the only one or a number times it, a pool of its planes, or a product of both by head.
    """

    name: str = ""
    neurons: int = 0
    lag: int | None = None
    by: str | Line | Pool | HeadProduct = ""
    of: tuple[Source, ...] = ()

    @property
    def terms(self) -> tuple[Source, ...]:
        """Every layer, or input, in it, from left to right."""
        return tuple(term for each in self.of for term in each.terms) if self.of else (self,)

    @property
    def combinations(self) -> tuple[Source, ...]:
        """Itself and all in it that are made of others."""
        return (self, *(each for part in self.of for each in part.combinations)) if self.of else ()

    @property
    def kind(self) -> str:
        """What it is, if it is made of others."""
        return KINDS.get(self.by) or KINDS_OF.get(type(self.by), "")

    @property
    def of_planes(self) -> bool:
        """Whether it is made of planes as such, of any width."""
        return isinstance(self.by, (Pool, HeadProduct))

    @property
    def names(self) -> str:
        """'hidden0', 'hidden0+hidden1'."""
        return self.text(lambda each: each.name).replace(" ", "")

    @property
    def aged(self) -> str:
        """'hidden0@t-2', 'hidden0@t+hidden1@t-1'."""
        return self.text(lambda each: aged(each.name, each.lag or 0)).replace(" ", "")

    def text(self, leaf: Callable[[Source], str]) -> str:
        """As `source_of` reads it; leaf: how what is not made of others is written."""
        if not self.of:
            return leaf(self)
        if isinstance(self.by, Pool):
            window = self.by.window
            places = (f"{a}" if a == b else f"{a}x{b}" for a, b in (window.kernel, window.stride, window.padding))
            return f"{self.by.kind}_pool({', '.join((self.of[0].text(leaf), *places))})"
        parts = [each.text(leaf) for each in self.of]
        if self.by == CONCAT:
            return f"concat({', '.join(parts)})"
        if isinstance(self.by, HeadProduct):
            return f"{self.by.kind}({', '.join(parts)}, {self.by.heads})"
        inner = [
            f"({part})" if isinstance(each.by, Line) or (each.by == ADD and self.by != ADD) else part
            for each, part in zip(self.of, parts, strict=True)
        ]
        if isinstance(self.by, Line):
            return f"1 - {inner[0]}" if self.by == COMPLEMENT else f"{self.by.scale!r} * {inner[0]}"
        return f" {self.by} ".join(inner)

    def mapped(self, leaf: Callable[[Source], Source]) -> Source:
        """The same of other layers."""
        return replace(self, of=tuple(each.mapped(leaf) for each in self.of)) if self.of else leaf(self)

    def sized(self, widths: Mapping[str, int], planes_of: Callable[[str], Planes | None]) -> Source:
        """With widths that follow from those of layers, and from their planes; raises MappingError for a pool, or a
        product by head, of what has none."""
        of = tuple(each.sized(widths, planes_of) for each in self.of)
        if self.of_planes:
            planes = self.planes(planes_of)
            if planes is None:
                without = next(each.names for each in of if each.planes(planes_of) is None)
                raise MappingError(f"'{self.names}' is a {self.kind} of '{without}', which has no planes")
            return replace(self, of=of, neurons=planes.neurons)
        if self.by == CONCAT:
            return replace(self, of=of, neurons=sum(each.neurons for each in of))
        return replace(self, of=of, neurons=of[0].neurons if of else widths[self.name])

    def planes(self, of: Callable[[str], Planes | None]) -> Planes | None:
        """Those that it has, from those of layers."""
        if not self.of:
            return of(self.name)
        every = [each for part in self.of if (each := part.planes(of))]
        whole = len(every) == len(self.of)  # else neurons are beside planes of one pixel
        if isinstance(self.by, (Pool, HeadProduct)):
            return self.by.over(*every) if whole else None
        if self.by == CONCAT and every:
            return replace(every[0], channels=sum(each.channels for each in every)) if whole else None
        return self.of[0].planes(of)

    def values(self, leaf: Callable[[Source], np.ndarray], planes_of: Callable[[str], Planes | None]) -> np.ndarray:
        """[..., neurons] from those of layers, of planes channels outermost; raises MappingError for widths that
        differ."""
        if not self.of:
            return leaf(self)
        parts = [each.values(leaf, planes_of) for each in self.of]
        if isinstance(self.by, Pool):
            planes = self.of[0].planes(planes_of)
            if planes is None or planes.neurons != parts[0].shape[-1]:
                raise MappingError(f"'{self.of[0].names}', which is pooled, has other planes than {planes}")
            return pool_planes(self.by, planes, parts[0])
        if isinstance(self.by, HeadProduct):
            return self._by_head(self.by, parts, [each.planes(planes_of) for each in self.of])
        if self.by == CONCAT:
            return np.concatenate(parts, axis=-1)
        if isinstance(self.by, Line):
            return self.by.scale * parts[0] + self.by.shift
        if len({each.shape for each in parts}) > 1:
            raise MappingError(f"the {self.kind} of '{', '.join(each.names for each in self.of)}', of several widths")
        made = parts[0]
        for each in parts[1:]:
            made = made + each if self.by == ADD else made * each
        return made

    def _by_head(self, by: HeadProduct, parts: list[np.ndarray], planes: list[Planes | None]) -> np.ndarray:
        """As `values`."""
        for each, has, part in zip(self.of, planes, parts, strict=True):
            if has is None or has.neurons != part.shape[-1]:
                raise MappingError(f"'{each.names}', which is multiplied by head, has other planes than {has}")
        known = [each for each in planes if each]
        samples = parts[0].size // known[0].neurons
        rows = (
            part.reshape(samples, has.channels, -1).transpose(0, 2, 1).reshape(-1, has.channels)
            for part, has in zip(parts, known, strict=True)
        )
        (made,) = by_sample(BySample(kind=by.kind, heads=by.heads, samples=samples), *rows)
        by_channel = made.reshape(samples, -1, made.shape[-1]).transpose(0, 2, 1)
        return by_channel.reshape(*parts[0].shape[:-1], -1)


def labels_of(sources: tuple[Source, ...]) -> tuple[str, ...]:
    """A name for each of what a layer reads: that of the source, with the age for all but the first of a source."""
    names = [each.names for each in sources]
    return tuple(each.aged if each.names in names[:place] else each.names for place, each in enumerate(sources))


NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")
TOKEN = re.compile(rf"\s*(\d+x\d+|{NUMBER.pattern}|\w+(?:@[^\s+*(),]*)?|\S)")
AGE = re.compile(r"t(?:-([1-9][0-9]{0,8}))?")


def source_of(text: str) -> Source:
    """What network.sources says in one entry, without widths; raises MappingError for what is no source."""
    tokens = [*TOKEN.findall(text), ""]
    found = _sum(tokens, text, 0)
    if tokens[0]:
        raise _no_source(tokens[0], text)
    return found


def _no_source(what: str, text: str) -> MappingError:
    return MappingError(
        f"network.sources: '{what}' is no source in '{text}'; write a layer, 'a + b', 'a * b', '1 - a', "
        "'0.5 * a', 'concat(a, b)', 'max_pool(a, size, stride, padding)' or 'matmul_nn(a, b, heads)'"
    )


def _too_deep(text: str) -> MappingError:
    return MappingError(f"network.sources: '{text[:40]}...' has more than {DEEPEST} brackets in each other")


def _sum(tokens: list[str], text: str, depth: int) -> Source:
    if depth > DEEPEST:
        raise _too_deep(text)
    parts = [*_separated(ADD, lambda: _term(tokens, text, depth), tokens)]
    return parts[0] if len(parts) == 1 else Source(by=ADD, of=tuple(parts))


def _separated(sign: str, part: Callable[[], Source], tokens: list[str]) -> Iterator[Source]:
    yield part()
    while tokens[0] == sign:
        tokens.pop(0)
        yield part()


def _term(tokens: list[str], text: str, depth: int) -> Source:
    if tokens[:2] == ["1", "-"]:
        if depth > DEEPEST:
            raise _too_deep(text)
        del tokens[:2]
        return Source(by=COMPLEMENT, of=(_term(tokens, text, depth + 1),))
    if NUMBER.fullmatch(tokens[0]) and tokens[1] == TIMES:
        if depth > DEEPEST:
            raise _too_deep(text)
        scale = float(tokens[0])
        if not 0 < scale < np.inf:
            raise _no_source(tokens[0], text)
        del tokens[:2]
        return Source(by=Line(scale=scale), of=(_term(tokens, text, depth + 1),))
    parts = [*_separated(TIMES, lambda: _factor(tokens, text, depth), tokens)]
    return parts[0] if len(parts) == 1 else Source(by=TIMES, of=tuple(parts))


def _factor(tokens: list[str], text: str, depth: int) -> Source:
    name = tokens[0] if tokens[1:2] == ["("] else ""
    if name not in FUNCTIONS and tokens[0] != "(":
        return _layer(tokens, text)
    called = name in FUNCTIONS
    del tokens[: 1 + called]
    parts, sizes = [_sum(tokens, text, depth + 1)], list[Pair]()
    most, fewest_sizes, most_sizes = FUNCTIONS.get(name, (1, 0, 0))
    while tokens[0] == "," and (len(parts) < most or most_sizes):
        del tokens[0]
        if len(parts) < most:
            parts.append(_sum(tokens, text, depth + 1))
            continue
        size = tokens.pop(0).split("x")
        if not all(each.isdecimal() and len(each) < 9 for each in size) or len(size) > 1 + (name not in HEAD_PRODUCTS):
            raise _no_source("x".join(size), text)
        sizes.append((int(size[0]), int(size[-1])))
    if (
        tokens[0] != ")"
        or not fewest_sizes <= len(sizes) <= most_sizes
        or (name in HEAD_PRODUCTS and len(parts) < most)
    ):
        raise _no_source(tokens[0], text)
    del tokens[0]
    if not called:
        return parts[0]
    return Source(by=_function(name, sizes), of=tuple(parts))


def _function(name: str, sizes: list[Pair]) -> str | Pool | HeadProduct:
    if name == CONCAT:
        return CONCAT
    if name in HEAD_PRODUCTS:
        return HeadProduct(kind=name, heads=sizes[0][0])
    stride, padding = sizes[1] if len(sizes) > 1 else sizes[0], sizes[2] if len(sizes) > 2 else (0, 0)
    return Pool(kind=name.removesuffix("_pool"), window=Window(kernel=sizes[0], stride=stride, padding=padding))


def _layer(tokens: list[str], text: str) -> Source:
    name, at, age = tokens[0].partition("@")
    if not re.fullmatch(r"\w+", name):
        raise _no_source(tokens[0], text)
    found = AGE.fullmatch(age)
    if at and found is None:
        raise MappingError(
            f"network.sources: '{tokens[0]}' is no source; write '{name}', '{name}@t' or, of spikes 3 timesteps old, "
            f"'{name}@t-3'"
        )
    del tokens[0]
    return Source(name=name, lag=int(found.group(1) or 0) if found else None)
