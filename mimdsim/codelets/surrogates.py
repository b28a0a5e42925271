"""The cost of surrogate gradients, and the vertices that evaluate one at listed ids."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from mimdsim.codelets.neurons import STATE_GRADIENT, STATE_GRADIENT_ROW
from mimdsim.codelets.vertex_costs import SURROGATE_BUNDLES, SURROGATE_SOURCE
from mimdsim.numerics.equations import KINDS
from mimdsim.program import Codelet, Term, WorkerBundles

DIVIDE, EXPONENTIAL = 3, 3  # cycles of one float: division; f32exp, 6 for two in the PopLibs operation tables


@dataclass(frozen=True, kw_only=True)
class SurrogateCost:
    """Bundles and flops of the function alone, one instruction per bundle; `count` lists them."""

    bundles: int
    flops: int
    count: str


COSTS = {
    "superspike": SurrogateCost(
        bundles=5 + DIVIDE, flops=6, count="subtract, absolute, multiply, add, square, divide (3)"
    ),
    "arctan": SurrogateCost(bundles=4 + DIVIDE, flops=5, count="subtract, multiply, square, add, divide (3)"),
    "sigmoid": SurrogateCost(
        bundles=6 + EXPONENTIAL + DIVIDE,
        flops=8,
        count="subtract, absolute, multiply, exponential (3), add, square, multiply, divide (3)",
    ),
    "triangular": SurrogateCost(bundles=5, flops=5, count="subtract, absolute, multiply, subtract, maximum"),
    "boxcar": SurrogateCost(bundles=5, flops=4, count="subtract, absolute, compare, select (2)"),
    "straight_through": SurrogateCost(bundles=0, flops=0, count="nothing"),
    "gaussian": SurrogateCost(
        bundles=4 + EXPONENTIAL, flops=5, count="subtract, square, multiply, exponential (3), multiply"
    ),
    "multi_gaussian": SurrogateCost(
        bundles=14 + 3 * EXPONENTIAL,
        flops=17,
        count="subtract; add, subtract; three times square, multiply, exponential (3), multiply; add, subtract",
    ),
    "exponential": SurrogateCost(
        bundles=4 + EXPONENTIAL, flops=5, count="subtract, absolute, multiply, exponential (3), multiply"
    ),
}
# gradient and adjoint loaded, multiply, add, store, four pointers reloaded: the rest of the published loop
REST_BUNDLES = SURROGATE_BUNDLES - COSTS["superspike"].bundles


def kind_of(surrogate: str) -> int:
    """The number that identifies a surrogate in the arithmetic."""
    return KINDS.index(surrogate)


def at_an_id(surrogate: str) -> tuple[int, str]:
    """(bundles, their source) per listed id with this surrogate: function, product, sum, store."""
    if surrogate == "superspike":
        return SURROGATE_BUNDLES, SURROGATE_SOURCE
    cost = COSTS[surrogate]
    source = f"{SURROGATE_SOURCE}; instead of the first five and the division, counted by us: {cost.count}"
    return REST_BUNDLES + cost.bundles, source


def _with_surrogate(codelet: Codelet, surrogate: str) -> Codelet:
    """A codelet whose last loop evaluates the published surrogate, with another one; SuperSpike is that one."""
    if surrogate == "superspike":
        return codelet
    assert isinstance(codelet.cost, WorkerBundles)
    (bundles, source), (*before, loop) = at_an_id(surrogate), codelet.cost.terms
    lead = codelet.cost.source.replace(SURROGATE_SOURCE, "")
    terms = (*before, replace(loop, bundles=loop.bundles - SURROGATE_BUNDLES + bundles))
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
