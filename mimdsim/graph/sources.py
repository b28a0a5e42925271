"""What layers read: spikes of others, alone or combined element by element before weights see them.

As text: 'hidden0', 'hidden0@t-2', 'hidden0 + hidden1', 'hidden0 * (1 - hidden1)', 'concat(hidden0, hidden1)' and, with
size, stride and padding, 'max_pool(hidden0, 3, 2, 1)' ('1x3' where height and width differ).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.graph.convolution import POOLS, Pair, Planes, Pool, Window, pool_planes
from mimdsim.graph.names import aged

ADD, TIMES, COMPLEMENT, CONCAT = "+", "*", "1 -", "concat"
KINDS = {ADD: "sum", TIMES: "product", COMPLEMENT: "complement", CONCAT: "concatenation"}
DEEPEST = 50  # brackets in brackets


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a layer reads: another layer, or 'input', how wide that is, and how many timesteps old its spikes are
    (None: as from layer to layer in the network); or what is made of several, element by element.

    by: how it is made of the sources `of`: their sum, their product, 1 minus the only one, all side by side (of planes
    their channels), or a pool of its planes.
    """

    name: str = ""
    neurons: int = 0
    lag: int | None = None
    by: str | Pool = ""
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
        return KINDS.get(self.by, "") if isinstance(self.by, str) else "pool"

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
        inner = [
            f"({part})" if each.by == COMPLEMENT or (each.by == ADD and self.by != ADD) else part
            for each, part in zip(self.of, parts, strict=True)
        ]
        return f"1 - {inner[0]}" if self.by == COMPLEMENT else f" {self.by} ".join(inner)

    def mapped(self, leaf: Callable[[Source], Source]) -> Source:
        """The same of other layers."""
        return replace(self, of=tuple(each.mapped(leaf) for each in self.of)) if self.of else leaf(self)

    def sized(self, widths: Mapping[str, int], planes_of: Callable[[str], Planes | None]) -> Source:
        """With widths that follow from those of layers, and from their planes; raises MappingError for a pool of what
        has none."""
        of = tuple(each.sized(widths, planes_of) for each in self.of)
        if isinstance(self.by, Pool):
            planes = self.planes(planes_of)
            if planes is None:
                raise MappingError(f"'{self.names}' pools '{of[0].names}', which has no planes")
            return replace(self, of=of, neurons=planes.neurons)
        if self.by == CONCAT:
            return replace(self, of=of, neurons=sum(each.neurons for each in of))
        return replace(self, of=of, neurons=of[0].neurons if of else widths[self.name])

    def planes(self, of: Callable[[str], Planes | None]) -> Planes | None:
        """Those that it has, from those of layers."""
        if not self.of:
            return of(self.name)
        planes = self.of[0].planes(of)
        if self.by == CONCAT and planes:
            every = [each for part in self.of if (each := part.planes(of))]
            whole = len(every) == len(self.of)  # else neurons are beside planes of one pixel
            return replace(planes, channels=sum(each.channels for each in every)) if whole else None
        return self.by.over(planes) if isinstance(self.by, Pool) and planes else planes

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
        if self.by == CONCAT:
            return np.concatenate(parts, axis=-1)
        if len({each.shape for each in parts}) > 1:
            raise MappingError(f"the {self.kind} of '{', '.join(each.names for each in self.of)}', of several widths")
        made = 1 - parts[0] if self.by == COMPLEMENT else parts[0]
        for each in parts[1:]:
            made = made + each if self.by == ADD else made * each
        return made


def labels_of(sources: tuple[Source, ...]) -> tuple[str, ...]:
    """A name for each of what a layer reads: that of the source, with the age for all but the first of a source."""
    names = [each.names for each in sources]
    return tuple(each.aged if each.names in names[:place] else each.names for place, each in enumerate(sources))


TOKEN = re.compile(r"\s*(\d+x\d+|\d+(?!\w)|\w+(?:@[^\s+*(),]*)?|\S)")
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
        "'concat(a, b)' or 'max_pool(a, size, stride, padding)'"
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
    parts = [*_separated(TIMES, lambda: _factor(tokens, text, depth), tokens)]
    return parts[0] if len(parts) == 1 else Source(by=TIMES, of=tuple(parts))


def _factor(tokens: list[str], text: str, depth: int) -> Source:
    name = tokens[0]
    kind = name.removesuffix("_pool")
    pooled = kind != name and kind in POOLS and tokens[1] == "("
    joined = name == CONCAT and tokens[1] == "("
    if not (pooled or joined) and name != "(":
        return _layer(tokens, text)
    del tokens[: 1 + (pooled or joined)]
    inner = _sum(tokens, text, depth + 1)
    if joined:
        parts = [inner]
        while tokens[0] == ",":
            del tokens[0]
            parts.append(_sum(tokens, text, depth + 1))
        inner = Source(by=CONCAT, of=tuple(parts))
    sizes: list[Pair] = []
    while pooled and tokens[0] == ",":
        size = tokens[1].split("x")
        if not all(each.isdecimal() and len(each) < 9 for each in size):
            raise _no_source(tokens[1], text)
        sizes.append((int(size[0]), int(size[-1])))
        del tokens[:2]
    if tokens[0] != ")" or (pooled and not 1 <= len(sizes) <= 3):
        raise _no_source(tokens[0], text)
    del tokens[0]
    if not pooled:
        return inner
    stride, padding = sizes[1] if len(sizes) > 1 else sizes[0], sizes[2] if len(sizes) > 2 else (0, 0)
    return Source(by=Pool(kind=kind, window=Window(kernel=sizes[0], stride=stride, padding=padding)), of=(inner,))


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
