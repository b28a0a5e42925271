"""`mimdsim check` of a kernel, in words: what does not hold."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from mimdsim.base.errors import MimdsimError
from mimdsim.functional import Executor, execute_strictly
from mimdsim.machine import MimdMachine
from mimdsim.program import Program, verify

try:
    from mimdsim.check import check_kernel as _check_kernel  # type: ignore[attr-defined, unused-ignore]
except ImportError:
    _check_kernel = None


def check_kernel(
    build: Callable[[MimdMachine], Program],
    *,
    machine: MimdMachine,
    reference: Callable[..., Any],
    inputs: Callable[[np.random.Generator], dict[str, np.ndarray]] | None,
    strict: bool,
) -> list[str]:
    """What the check finds; empty when the kernel passes."""
    try:
        if _check_kernel is None:
            return _stand_in(build(machine), machine, reference, inputs, strict)
        more = {} if inputs is None else {"inputs": inputs}
        result = _check_kernel(build, machine=machine, reference=reference, strict=strict, **more)
        return [f"{finding.name}: {finding.text}" for finding in result.findings if not finding.passed]
    except MimdsimError as refused:
        return [str(refused)]


def _stand_in(program: Program, machine: MimdMachine, reference: Any, inputs: Any, strict: bool) -> list[str]:
    """Until there is one: rules, one draw, strictly too."""
    problems = verify(program, machine.chip.tiles)
    if problems:
        return [problem.message for problem in problems[:5]]
    draw = np.random.default_rng(0)
    shapes = {key: program.variables[held] for key, held in program.inputs.items()}
    given = inputs(draw) if inputs else {key: draw.normal(size=v.shape).astype(v.dtype) for key, v in shapes.items()}
    expected = reference(**{name: given[name] for name in inspect.signature(reference).parameters})
    (output,) = program.outputs
    for run in (lambda executor: executor.run(), execute_strictly)[: 1 + strict]:
        executor = Executor(program)
        executor.write(given)
        run(executor)
        if not np.allclose(executor.read(output), expected, rtol=1e-5, atol=1e-5 * float(np.abs(expected).max())):
            return [f"output '{output}' differs from the reference"]
    return []
