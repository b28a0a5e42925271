"""Single operations of PyTorch, element by element, in those of equations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from mimdsim.base.errors import DescriptionError
from mimdsim.frameworks.neurons import PROBES, nearest_surrogate
from mimdsim.frameworks.origins import Made, Step

ADD, SUBTRACT, TIMES, OVER = "+", "-", "*", "/"
BINARY = {
    **dict.fromkeys(("__add__", "__iadd__", "__radd__", "add", "add_"), ADD),
    **dict.fromkeys(("__sub__", "__isub__", "sub", "sub_", "subtract"), SUBTRACT),
    **dict.fromkeys(("__mul__", "__imul__", "__rmul__", "mul", "mul_", "multiply"), TIMES),
    **dict.fromkeys(("__truediv__", "__itruediv__", "div", "div_", "true_divide"), OVER),
}
REVERSED = {"__rsub__": SUBTRACT, "rsub": SUBTRACT, "__rtruediv__": OVER, "__rdiv__": OVER}
UNARY = {"sigmoid": "sigmoid", "tanh": "tanh", "exp": "exp", "relu": "relu", "detach": "detach"}
ABOVE = {
    "gt": False,
    "__gt__": False,
    "ge": False,
    "__ge__": False,
    "lt": True,
    "__lt__": True,
    "le": True,
    "__le__": True,
}
CLAMPS = {"clamp", "clip", "clamp_", "hardtanh"}


def arithmetic(make: Callable[..., Made], by: str, operands: list[Any], limits: list[Any]) -> Made | None:
    """What a function of PyTorch made, in operations of equations; None for functions that these have not."""
    if by in REVERSED and len(operands) == 2:
        return make(REVERSED[by], operands[1], operands[0])
    if by in BINARY and len(operands) == 2:
        if BINARY[by] == TIMES and isinstance(operands[1], float):
            operands = operands[::-1]
        return make(BINARY[by], *operands)
    if by == "detach" and isinstance(operands[0], Made) and operands[0].op == "detach":
        operands = list(operands[0].args)
    if by in UNARY and len(operands) == 1:
        return make(UNARY[by], operands[0])
    if by in ("neg", "__neg__", "negative") and len(operands) == 1:
        return make(TIMES, -1.0, operands[0])
    if by in ("square", "pow", "__pow__") and (len(operands) == 1 or operands[1:] == [2.0]):
        return make(TIMES, operands[0], operands[0])
    if by in ("abs", "__abs__", "absolute") and len(operands) == 1:
        return make(ADD, make("relu", operands[0]), make("relu", make(TIMES, -1.0, operands[0])))
    if by in ABOVE and len(operands) == 2:
        one, other = reversed(operands) if ABOVE[by] else operands
        if isinstance(one, Made) and _is_spike(one) and isinstance(other, float) and 0 <= other < 1:
            return make("detach", one.args[0] if one.op == "detach" else one)
        return make("detach", make("spike", make(SUBTRACT, one, other)))
    if by in CLAMPS and operands:
        low, high = [*operands[1:], None, None][:2] if len(operands) > 1 else limits
        made, x = None, operands[0]
        if not isinstance(low, (float, type(None))) or not isinstance(high, (float, type(None))):
            return None
        if low is not None and high is not None:
            return make("clamp", x, low, high)
        if low is not None:
            x = made = make(ADD, make("relu", make(SUBTRACT, x, low)), low)
        if high is not None:
            made = make(SUBTRACT, high, make("relu", make(SUBTRACT, high, x)))
        return made
    if by == "where" and len(operands) == 3:
        chosen, one, other = operands
        return make(ADD, other, make(TIMES, chosen, make(SUBTRACT, one, other)))
    return None


def _is_spike(made: Made) -> bool:
    of = made.args[0] if made.op == "detach" else made
    return isinstance(of, Made) and of.op == "spike"


def constant_of(tensor: torch.Tensor) -> float | np.ndarray | None:
    """A number where all are the same, as short as its precision allows; else an array."""
    if not tensor.numel() or tensor.is_complex():
        return None
    values: np.ndarray = tensor.detach().cpu().numpy()
    first = values.flat[0]
    if not (values == first).all():
        return values.astype(np.float64)
    return float(str(first)) if values.dtype == np.float32 else float(first)


def step_of(function: Callable[[torch.Tensor], Any]) -> Step | None:
    """The step that a function is, found by trying; None for a function that is none."""

    def at(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        given = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        made = function(given)
        made.sum().backward()
        assert given.grad is not None
        return made.detach().numpy().astype(np.float64), given.grad.numpy().astype(np.float64)

    low, high = -1e3, 1e3
    try:
        with torch.enable_grad():
            sent, _ = at(np.array([low, high]))
            if tuple(sent) != (0.0, 1.0):
                return None
            while high - low > 1e-9:
                middle = (low + high) / 2
                value = at(np.array([middle, middle]))[0][0]
                if value not in (0.0, 1.0):
                    return None
                low, high = (low, middle) if value else (middle, high)
            threshold = round(high, 7)
            found = at(PROBES + threshold)[1]
    except (RuntimeError, TypeError, ValueError, AttributeError, AssertionError):
        return None
    where, scale = "a spike", 1.0
    for scale in (1.0, float(np.abs(found).max()) or 1.0):
        try:
            name, slope = nearest_surrogate(where, found / scale)
            break
        except DescriptionError as problem:
            refused = problem
    else:
        raise refused
    return Step(threshold=threshold, surrogate=name, slope=slope, factor=scale)
