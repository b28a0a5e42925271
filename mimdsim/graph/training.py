"""Update of the parameters: clipping by the global norm, then an optimiser (`numerics/optimisers`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mimdsim.graph.names import Parameter
from mimdsim.graph.records import GraphBuilder, OpDef, Value, elements, like
from mimdsim.numerics.optimisers import FORMS, Form, Optimiser

NORM_FLOOR = 1e-6  # added to the norm of the gradients before the bound is divided by it, as in PyTorch


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A parameter and its gradient."""

    parameter: Parameter
    gradient: str


def add_updates(
    build: GraphBuilder, optimiser: Optimiser, largest_norm: float, trained: tuple[Trained, ...]
) -> tuple[str, ...]:
    """Append the update of every parameter; returns the gradients as used, then the updated parameters and state.

    With a `largest_norm` above 0, all gradients are scaled down together if their common norm exceeds it.
    """
    if largest_norm:
        trained = _clipped(build, largest_norm, trained)
    for scalar in optimiser.scalars:
        build.declare(Value(name=scalar, shape=()))
    outputs = [item.gradient for item in trained]
    for item in trained:
        parameter, layer = item.parameter, item.parameter.layer
        state = tuple(parameter.kept(slot) for slot in optimiser.state)
        for name in state:
            build.declare(Value(name=name, shape=parameter.shape, layer=layer))
        given = (parameter.name, item.gradient, *state, *optimiser.scalars)
        outputs += build.add(optimiser.kind, given, f"next.{parameter.name}", layer=layer, attributes=optimiser)
    return tuple(outputs)


def _clipped(build: GraphBuilder, largest_norm: float, trained: tuple[Trained, ...]) -> tuple[Trained, ...]:
    squares = tuple(
        build.one("sum_squares", (item.gradient,), f"squares.{item.parameter.name}", layer=item.parameter.layer)
        for item in trained
    )
    factor = build.one("clip_factor", squares, "clip_factor", attributes=largest_norm)
    made = []
    for item in trained:
        name, layer = f"clipped.{item.parameter.name}", item.parameter.layer
        made.append(replace(item, gradient=build.one("scale", (item.gradient, factor), name, layer=layer)))
    return tuple(made)


def _clip_factor(largest_norm: float, *squares: Any) -> tuple[Any]:
    """min(1, largest_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_."""
    kind = np.asarray(squares[0]).dtype.type
    norm = np.sqrt(sum(squares[1:], squares[0]))
    return (min(kind(1), kind(largest_norm) / (norm + kind(NORM_FLOOR))),)


def _update(form: Form) -> OpDef:
    return OpDef(
        name=form.kind,
        shapes=lambda values, _: (
            *like(values[0]),
            *(each for field in form.state.values() for each in like(values[0], field)),
        ),
        evaluate=lambda optimiser, *given: optimiser.update(*given),
        flops=lambda values, _: form.plain_flops * elements(values[0]),
    )


TRAINING = (
    *(_update(form) for form in FORMS.values()),
    OpDef(
        name="sum_squares",
        shapes=lambda _values, _: (("", Value(name="", shape=())),),
        evaluate=lambda _, gradient: ((gradient * gradient).sum(),),
        flops=lambda values, _: 2 * elements(values[0]),
    ),
    OpDef(
        name="clip_factor",
        shapes=lambda _values, _: (("", Value(name="", shape=())),),
        evaluate=_clip_factor,
        flops=lambda values, _: len(values) + 3,
    ),
    OpDef(
        name="scale",
        shapes=lambda values, _: like(values[0]),
        evaluate=lambda _, gradient, factor: (gradient * factor,),
        flops=lambda values, _: elements(values[0]),
    ),
)
