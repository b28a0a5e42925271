"""Update of the parameters: clipping by the global norm, then an optimiser (`numerics/optimisers.py`)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from mimdsim.graph.names import Parameter, after
from mimdsim.graph.records import GraphBuilder, OpDef, Value, like, no_flops, per_element, scalar
from mimdsim.numerics.optimisers import FORMS, Form, Optimiser

NORM_FLOOR = 1e-6  # added to the norm of the gradients before the bound is divided by it, as in PyTorch


def add_updates(
    build: GraphBuilder,
    optimiser: Optimiser,
    largest_norm: float,
    gradients: dict[Parameter, str],
    pruned: Collection[str] = (),
) -> tuple[str, ...]:
    """Append the update of every parameter; returns the gradients as used, then the updated parameters and state.

    With a `largest_norm` above 0, all gradients are scaled down together if their common norm exceeds it. Numbers of
    `pruned` parameters that are 0 have no gradient.
    """
    for parameter, gradient in gradients.items():
        if (name := parameter.name) in pruned:
            kept = build.one("prune_gradient", (gradient, name), f"pruned.{name}", layer=parameter.layer)
            gradients = gradients | {parameter: kept}
    if largest_norm:
        gradients = _clipped(build, largest_norm, gradients)
    for name in optimiser.scalars:
        build.declare(Value(name=name, shape=()))
    outputs = list(gradients.values())
    for parameter, gradient in gradients.items():
        layer, state = parameter.layer, tuple(parameter.kept(slot) for slot in optimiser.state)
        for name in state:
            build.declare(Value(name=name, shape=parameter.shape, layer=layer))
        given = (parameter.name, gradient, *state, *optimiser.scalars)
        outputs += build.add(optimiser.kind, given, after(parameter.name), layer=layer, attributes=optimiser)
    return tuple(outputs)


def _clipped(build: GraphBuilder, largest_norm: float, gradients: dict[Parameter, str]) -> dict[Parameter, str]:
    squares = tuple(
        build.one("sum_squares", (gradient,), f"squares.{parameter.name}", layer=parameter.layer)
        for parameter, gradient in gradients.items()
    )
    factor = build.one("clip_factor", squares, "clip_factor", attributes=largest_norm)
    return {
        parameter: build.one("scale", (gradient, factor), f"clipped.{parameter.name}", layer=parameter.layer)
        for parameter, gradient in gradients.items()
    }


def _clip_factor(largest_norm: float, *squares: Any) -> tuple[Any]:
    """min(1, largest_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_."""
    kind = np.asarray(squares[0]).dtype.type
    norm = np.sqrt(sum(squares[1:], squares[0]))
    return (min(kind(1), kind(largest_norm) / (norm + kind(NORM_FLOOR))),)


def _update(form: Form) -> OpDef:
    return OpDef(
        name=form.kind,
        shapes=lambda values, _: tuple(
            (suffix, Value(name="", shape=values[0].shape)) for suffix in ("", *form.state.values())
        ),
        evaluate=lambda optimiser, *given: optimiser.update(*given),
        flops=per_element(form.plain_flops),
    )


TRAINING = (
    *(_update(form) for form in FORMS.values()),
    OpDef(
        name="sum_squares",
        shapes=scalar,
        evaluate=lambda _, gradient: ((gradient * gradient).sum(),),
        flops=per_element(2),
    ),
    OpDef(name="clip_factor", shapes=scalar, evaluate=_clip_factor, flops=lambda values, _: len(values) + 3),
    OpDef(
        name="prune_gradient",
        shapes=like(0),
        evaluate=lambda _, gradient, weights: (np.where(weights == 0, 0, gradient).astype(gradient.dtype),),
        flops=no_flops,
    ),
    OpDef(
        name="scale",
        shapes=like(0),
        evaluate=lambda _, gradient, factor: (gradient * factor,),
        flops=per_element(1),
    ),
)
