"""The cost of surrogate gradients, and the vertices that evaluate one at listed ids."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from mimdsim.codelets.neurons import STATE_GRADIENT, STATE_GRADIENT_ROW
from mimdsim.codelets.vertex_costs import AT_AN_ID, SUPERSPIKE, SURROGATE_SOURCE
from mimdsim.numerics.equations import KINDS
from mimdsim.program import Codelet, Term, WorkerBundles
from mimdsim.program.loops import NATIVE_SLOTS, Mix

# cycles of one float: division; f32exp, 6 for two in the PopLibs operation tables
DIVIDE, EXPONENTIAL = NATIVE_SLOTS["divide"], NATIVE_SLOTS["function"]


@dataclass(frozen=True, kw_only=True)
class SurrogateCost:
    """Instructions and flops of the function alone; `count` lists them."""

    mix: Mix
    flops: int
    count: str


COSTS = {
    "superspike": SurrogateCost(mix=SUPERSPIKE, flops=6, count="subtract, absolute, multiply, add, square, divide (3)"),
    "arctan": SurrogateCost(
        mix=Mix(add=2, multiply=2, divide=1), flops=5, count="subtract, multiply, square, add, divide (3)"
    ),
    "sigmoid": SurrogateCost(
        mix=Mix(add=3, multiply=3, function=1, divide=1),
        flops=8,
        count="subtract, absolute, multiply, exponential (3), add, square, multiply, divide (3)",
    ),
    "triangular": SurrogateCost(
        mix=Mix(add=3, multiply=1, compare=1), flops=5, count="subtract, absolute, multiply, subtract, maximum"
    ),
    "boxcar": SurrogateCost(mix=Mix(add=2, compare=3), flops=4, count="subtract, absolute, compare, select (2)"),
    "straight_through": SurrogateCost(mix=Mix(), flops=0, count="nothing"),
    "gaussian": SurrogateCost(
        mix=Mix(add=1, multiply=3, function=1), flops=5, count="subtract, square, multiply, exponential (3), multiply"
    ),
    "multi_gaussian": SurrogateCost(
        mix=Mix(add=5, multiply=9, function=3),
        flops=17,
        count="subtract; add, subtract; three times square, multiply, exponential (3), multiply; add, subtract",
    ),
    "double_gaussian": SurrogateCost(
        mix=Mix(add=2, multiply=6, function=2),
        flops=11,
        count="subtract; twice square, multiply, exponential (3), multiply; subtract",
    ),
    "exponential": SurrogateCost(
        mix=Mix(add=2, multiply=2, function=1),
        flops=5,
        count="subtract, absolute, multiply, exponential (3), multiply",
    ),
}


def kind_of(surrogate: str) -> int:
    """The number that identifies a surrogate in the arithmetic."""
    return KINDS.index(surrogate)


def at_an_id(surrogate: str) -> tuple[Mix, str]:
    """(instructions, their source) per listed id with this surrogate: function, product, sum, store."""
    cost = COSTS[surrogate]
    if surrogate == "superspike":
        return cost.mix + AT_AN_ID, SURROGATE_SOURCE
    source = f"{SURROGATE_SOURCE}; instead of the first five and the division, counted by us: {cost.count}"
    return cost.mix + AT_AN_ID, source


def _with_surrogate(codelet: Codelet, surrogate: str) -> Codelet:
    """A codelet whose last loop evaluates the published surrogate, with another one; SuperSpike is that one."""
    if surrogate == "superspike":
        return codelet
    assert isinstance(codelet.cost, WorkerBundles)
    (_, source), (*before, loop) = at_an_id(surrogate), codelet.cost.terms
    assert loop.mix is not None
    mix = loop.mix + SUPERSPIKE * -1 + COSTS[surrogate].mix
    lead = codelet.cost.source.replace(SURROGATE_SOURCE, "")
    terms = (*before, replace(loop, bundles=mix.bundles, mix=mix))
    return replace(
        codelet,
        name=f"{codelet.name}({surrogate})",
        constants=(*codelet.constants, "surrogate"),
        cost=replace(codelet.cost, terms=terms, source=f"{lead}{source}"),
        flops=(Term(bundles=COSTS[surrogate].flops, extents=codelet.flops[0].extents),),
    )


@lru_cache(maxsize=16)
def state_gradient(surrogate: str) -> Codelet:
    """The surrogate at listed ids, on the tiles of the neurons."""
    return _with_surrogate(STATE_GRADIENT, surrogate)


@lru_cache(maxsize=16)
def state_gradient_row(surrogate: str) -> Codelet:
    """The surrogate at listed ids, on whole rows of a sample."""
    return _with_surrogate(STATE_GRADIENT_ROW, surrogate)
