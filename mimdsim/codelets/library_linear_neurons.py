"""Linear neurons as calls of the element-wise library: the arithmetic of `linear_neurons.py`, one call per operation.

As in a framework that runs every operation separately: each coefficient is a product, each further term of a sum an
addition, and a coefficient that a spike changes is first chosen from two numbers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from mimdsim.codelets import linear_neurons
from mimdsim.codelets.elementwise import CALL_BYTES, SURROGATE_CALLS, calls_formula
from mimdsim.codelets.linear_terms import Shape, Structure
from mimdsim.program import Codelet, Length, Size, Term

TOLD = ("above scalar",)  # who fired


def _sum_calls(terms: tuple[Shape, ...], states: int, *, transposed: bool = False) -> tuple[str, ...]:
    """Calls of all terms; a sum with a single term takes one product, or nothing if its coefficient is one."""
    calls: list[str] = []
    begun: set[int] = set()
    for term in terms:
        constant = term.column > states
        if transposed and constant:
            continue
        into = term.column if transposed else term.target
        if term.differs:
            calls += ["one or zero"] if constant else ["one or zero", "times"]
        elif not constant and (term.loads or not term.unit):
            calls.append("times" if term.loads else "times scalar")
        if into in begun:
            calls.append("plus scalar" if constant and not term.differs else "plus in place")
        begun.add(into)
    return tuple(calls)


def _as_calls(codelet: Codelet, calls: tuple[str, ...]) -> Codelet:
    calls = calls or ("times scalar in place",)
    samples = codelet.extents["samples"]
    assert isinstance(samples, Length)
    arithmetic = sum(call not in ("select", "one or zero") for call in calls) or 1
    return replace(
        codelet,
        name=f"{codelet.name.replace('(', 'Calls(', 1)}",
        cost=calls_formula(*calls),
        flops=(Term(bundles=arithmetic, extents=("elements",)),),
        code_bytes=CALL_BYTES * len(set(calls)),
        extents={"elements": Size(samples.field)},
    )


@lru_cache(maxsize=64)
def update(structure: Structure, source: str) -> Codelet:
    """x and u of a box, one timestep later."""
    calls = (TOLD if source else ()) + _sum_calls(structure.terms, structure.states)
    return _as_calls(linear_neurons.update(structure, source), calls + _sum_calls(structure.readout, structure.states))


@lru_cache(maxsize=64)
def gradient(structure: Structure, source: str) -> Codelet:
    """dx and q of a box."""
    calls = (TOLD if source else ()) + _sum_calls(structure.terms, structure.states, transposed=True)
    return _as_calls(linear_neurons.gradient(structure, source), calls)


@lru_cache(maxsize=64)
def full_gradient(structure: Structure, reads: tuple[str, ...], surrogate: str, source: str = "fired") -> Codelet:
    """`gradient`, and the adjoint of who fired: each coefficient's change by a spike, times its operand, times its dx,
    and times the surrogate if one is named."""
    calls = (TOLD if source else ()) + _sum_calls(structure.terms, structure.states, transposed=True)
    for term in structure.terms:
        if term.differs:
            calls += ("times scalar", "times", "plus in place")
    calls += (*SURROGATE_CALLS[surrogate], "times") if surrogate else ()
    return _as_calls(linear_neurons.full_gradient(structure, reads, surrogate, source), calls)


def _readout_calls(structure: Structure) -> tuple[str, ...]:
    calls: tuple[str, ...] = ()
    for term in structure.read_states():
        calls += (() if term.unit else ("times" if term.loads else "times scalar",)) + ("plus in place",)
    return calls


@lru_cache(maxsize=64)
def dense_state_gradient(structure: Structure, surrogate: str) -> Codelet:
    """dx += readout * g * surrogate, for every neuron."""
    calls = (*SURROGATE_CALLS[surrogate], "times", *_readout_calls(structure))
    return _as_calls(linear_neurons.dense_state_gradient(structure, surrogate), calls)


@lru_cache(maxsize=64)
def readout_gradient(structure: Structure) -> Codelet:
    """dx += readout * du."""
    return _as_calls(linear_neurons.readout_gradient(structure), _readout_calls(structure))
