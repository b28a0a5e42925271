"""Wrong codelets: the right one's arithmetic with one line of it wrong, or its cost not what it does.

`DEFECTS`: family -> codelet -> (name of the defect, text of the right codelet, what stands there instead). The text is
looked for in the codelet's own function, then in those it calls.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from mimdsim.program import Codelet, TileFormula, WorkerBundles
from mutations.defects_forward import NEURON, SELECTION, STENCIL
from mutations.defects_training import GRADIENTS, OPTIMISER, PRODUCTS, REDUCTION
from mutations.operators import Mutant, steps_of
from mutations.subjects import subject, subject_names

Defect = tuple[str, str, str]
DEFECTS: dict[str, dict[str, tuple[Defect, ...]]] = {
    "selection": SELECTION,
    "neuron": NEURON,
    "gradients": GRADIENTS,
    "reduction": REDUCTION,
    "optimiser": OPTIMISER,
    "stencil": STENCIL,
    "products": PRODUCTS,
}


def _no_cost(codelet: Codelet) -> Codelet:
    """Nothing at all."""
    cost: Any = codelet.cost
    if isinstance(cost, TileFormula):
        return replace(codelet, cost=replace(cost, cycles=lambda extents, *_: 0 * next(iter(extents.values()))))
    return replace(codelet, cost=replace(cost, fixed=0.0, terms=()))


def _no_loops(codelet: Codelet) -> Codelet:
    """The work of one turn, however often its loops run."""
    cost: Any = codelet.cost
    if isinstance(cost, WorkerBundles):
        return replace(codelet, cost=replace(cost, terms=()))

    def cycles(extents: dict[str, Any], contexts: int, vector_bytes: int) -> Any:
        return cost.cycles({name: np.minimum(each, 1) for name, each in extents.items()}, contexts, vector_bytes)

    return replace(codelet, cost=replace(cost, cycles=cycles))


COSTS: dict[str, Callable[[Codelet], Codelet]] = {"no cost": _no_cost, "cost without loops": _no_loops}
WRONG: dict[str, tuple[str, str, Defect | Callable[[Codelet], Codelet]]] = {
    f"{family}/{codelet}/{defect[0]}": (family, codelet, defect)
    for family, codelets in DEFECTS.items()
    for codelet, defects in codelets.items()
    for defect in defects
} | {
    f"{family}/{codelet}/{name}": (f"{family} cost", codelet, change)
    for family, codelets in DEFECTS.items()
    for codelet in list(codelets)[:4]
    for name, change in COSTS.items()
}


def wrong_program(name: str) -> tuple[str, str, Mutant]:
    """(group, subject, mutant) of family/codelet/defect: the first subject that has the codelet, with it replaced."""
    group, wanted, change = WRONG[name]
    for each in subject_names():
        program = subject(each).program
        found = [(step, table) for step in steps_of(program) for table in step.tables if table.codelet.name == wanted]
        if found:
            right = found[0][1].codelet
            wrong = change(right) if callable(change) else replace(right, compute=rewritten(right.compute, *change[1:]))
            places = tuple(dict.fromkeys(step.name for step, _ in found))
            return group, each, Mutant(program=program.with_codelet(wanted, wrong), text=name, places=places)
    raise LookupError(f"no subject has a codelet '{wanted}'")


def rewritten(compute: Callable[..., None], old: str, new: str) -> Callable[..., None]:
    """The function in Python with every `old` in its text replaced by `new`; raises LookupError where there is none."""
    made = _rewritten(getattr(compute, "py_func", compute), old, new)
    if made is None:
        raise LookupError(f"'{old}' is not in the text of {compute}")
    return made


def _rewritten(function: Any, old: str, new: str) -> Any:
    source = textwrap.dedent(inspect.getsource(function))
    source = source[source.index("def ") :]
    space = dict(function.__globals__)
    space |= inspect.getclosurevars(function).nonlocals
    changed = source.replace(old, new)
    if changed == source:
        for name in function.__code__.co_names:
            helper = getattr(space.get(name), "py_func", None)
            made = None if helper is None else _rewritten(helper, old, new)
            if made is not None:
                space[name] = made
                break
        else:
            return None
    exec(compile(changed, "<a wrong codelet>", "exec"), space)
    return space[function.__name__]
