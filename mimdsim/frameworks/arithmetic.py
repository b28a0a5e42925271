"""Single operations of PyTorch, element by element, in those of equations."""

from __future__ import annotations

from collections.abc import Callable
from operator import add, eq, ge, gt, le, lt, mul, ne, sub, truediv
from typing import Any

import numpy as np
import torch

from mimdsim.base.errors import MimdsimError
from mimdsim.frameworks.neurons import nearest_surrogate
from mimdsim.frameworks.origins import Made, Read, Step

ADD, SUBTRACT, TIMES, OVER = "+", "-", "*", "/"
BINARY = {
    **dict.fromkeys(("__add__", "__iadd__", "__radd__", "add"), ADD),
    **dict.fromkeys(("__sub__", "__isub__", "sub", "subtract"), SUBTRACT),
    **dict.fromkeys(("__mul__", "__imul__", "__rmul__", "mul", "multiply"), TIMES),
    **dict.fromkeys(("__truediv__", "__itruediv__", "div", "divide", "true_divide"), OVER),
}
REVERSED = {"__rsub__": SUBTRACT, "rsub": SUBTRACT, "__rtruediv__": OVER, "__rdiv__": OVER}
UNARY = {name: name for name in ("sigmoid", "tanh", "exp", "sqrt", "log", "relu", "detach")} | {"data": "detach"}
RELATIONS = {">": gt, ">=": ge, "<": lt, "<=": le, "==": eq, "!=": ne}
COMPARES = {"gt": ">", "greater": ">", "ge": ">=", "greater_equal": ">=", "lt": "<", "less": "<", "le": "<=",
            "less_equal": "<=", "eq": "==", "ne": "!="}  # fmt: skip
NEAR = 4  # operations from a step whose gradient is written to what is detached of it
FAR = 12  # operations back to all that a value is made of: such a step, or currents that are added to states
CLAMPS = {"clamp": (None, None), "clip": (None, None), "hardtanh": (-1.0, 1.0), "relu6": (0.0, 6.0)}
VALUES: dict[str, Callable[..., torch.Tensor]] = {
    ADD: add, SUBTRACT: sub, TIMES: mul, OVER: truediv, "detach": torch.Tensor.detach,
    "sigmoid": torch.sigmoid, "tanh": torch.tanh, "exp": torch.exp, "sqrt": torch.sqrt, "log": torch.log,
    "relu": torch.relu, "clamp": torch.clamp, "softplus": torch.nn.functional.softplus,
}  # fmt: skip
WHOLE = {"bool", "int", "long", "to", "type", "type_as"}  # of numbers that are whole already, without a gradient


def plain_name(by: str) -> str:
    """The name of a function without the underscore of one that is done in place."""
    return by if by.startswith("__") else by.removesuffix("_")


def arithmetic(make: Callable[..., Made], by: str, operands: list[Any], limits: list[Any]) -> Made | None:
    """What a function of PyTorch made, in operations of equations; None for functions that these have not. limits: of
    a clamp, by name."""
    by = plain_name(by)
    if by in REVERSED and len(operands) == 2:
        return make(REVERSED[by], operands[1], operands[0])
    if by in BINARY and len(operands) == 2:
        if BINARY[by] == TIMES and isinstance(operands[1], float):
            operands = operands[::-1]
        return make(BINARY[by], *operands)
    if by == "detach" and isinstance(operands[0], Made) and operands[0].op == "detach":
        operands = list(operands[0].args)
    if by in WHOLE:
        return make("detach", operands[0]) if _is_whole(operands[0]) else None
    if by in UNARY and len(operands) == 1:
        return make(UNARY[by], operands[0])
    if by in ("neg", "__neg__", "negative") and len(operands) == 1:
        return make(TIMES, -1.0, operands[0])
    if by in ("square", "pow", "__pow__") and (len(operands) == 1 or operands[1:] == [2.0]):
        return make(TIMES, operands[0], operands[0])
    if by in ("pow", "__pow__") and operands[1:] == [0.5]:
        return make("sqrt", operands[0])
    if by == "reciprocal" or (by in ("pow", "__pow__") and operands[1:] == [-1.0]):
        return make(OVER, 1.0, operands[0])
    if by in ("abs", "__abs__", "absolute") and len(operands) == 1:
        return make(ADD, make("relu", operands[0]), make("relu", make(TIMES, -1.0, operands[0])))
    if by == "softplus" and operands[1:] in ([], [1.0], [1.0, 20.0]):
        return make("softplus", operands[0])
    if by == "log1p":
        return make("log", make(ADD, 1.0, operands[0]))
    if by == "silu":
        return make(TIMES, operands[0], make("sigmoid", operands[0]))
    if by == "elu" and operands[1:] in ([], [1.0]):
        above = make("relu", operands[0])
        return make(ADD, above, make(SUBTRACT, make("exp", make(SUBTRACT, operands[0], above)), 1.0))
    if by == "hardsigmoid":
        return _between(make, make(ADD, 0.5, make(OVER, operands[0], 6.0)), 0.0, 1.0)
    if by == "softsign":
        size = make(ADD, make("relu", operands[0]), make("relu", make(TIMES, -1.0, operands[0])))
        return make(OVER, operands[0], make(ADD, 1.0, size))
    if by in ("leaky_relu", "prelu"):  # whose gradient at 0 is that below
        slope = [*operands, 0.01][1]
        rest = 1.0 - slope if isinstance(slope, float) else make(SUBTRACT, 1.0, slope)
        return make(ADD, make(TIMES, slope, operands[0]), make(TIMES, rest, make("relu", operands[0])))
    of_two = by in ("maximum", "minimum") or (by in ("max", "min") and not isinstance(operands[-1], float))
    if of_two and len(operands) == 2:
        one, other = operands
        if by.startswith("max"):
            return make(ADD, one, make("relu", make(SUBTRACT, other, one)))
        return make(SUBTRACT, one, make("relu", make(SUBTRACT, one, other)))
    if compares := COMPARES.get(by.strip("_")):
        return _compared(make, compares, *operands)
    if by == "sign" and isinstance(operands[0], (Made, Read)):
        return make(SUBTRACT, *(_compared(make, relation, operands[0], 0.0) for relation in (">", "<")))
    if by == "heaviside" and operands[1:] in ([0.0], [1.0]):
        return _compared(make, ">=" if operands[1] else ">", operands[0], 0.0)
    if by in ("__invert__", "logical_not", "bitwise_not") and _is_whole(operands[0]):
        return make(SUBTRACT, 1.0, operands[0])
    if by in ("__and__", "logical_and", "bitwise_and") and all(map(_is_whole, operands)):
        return make(TIMES, *operands)
    if by in ("__or__", "logical_or", "bitwise_or") and all(map(_is_whole, operands)):
        return make(SUBTRACT, make(ADD, *operands), make(TIMES, *operands))
    if by in ("clamp_min", "clamp_max"):
        by, operands, limits = (
            "clamp",
            operands[:1],
            [*operands[1:], None] if by == "clamp_min" else [None, *operands[1:]],
        )
    if by in CLAMPS and operands:
        low, high = [*operands[1:], *CLAMPS[by]][:2] if len(operands) > 1 else limits
        low, high = (CLAMPS[by][at] if limit is None else limit for at, limit in enumerate((low, high)))
        if not isinstance(low, (float, type(None))) or not isinstance(high, (float, type(None))):
            return None
        if low is not None and high is not None:
            if by in ("hardtanh", "relu6"):
                return _between(make, operands[0], low, high)
            return make("clamp", operands[0], low, high)
        return _limited(make, operands[0], low, high)
    if by == "masked_fill" and len(operands) == 3:
        by, operands = "where", [operands[1], operands[2], operands[0]]
    if by == "where" and len(operands) == 3 and _is_whole(operands[0]):
        chosen, one, other = operands
        if one == 0.0:
            return make(TIMES, other, make(SUBTRACT, 1.0, chosen))
        return (
            make(TIMES, chosen, one)
            if other == 0.0
            else make(ADD, other, make(TIMES, chosen, make(SUBTRACT, one, other)))
        )
    if by == "addcmul" and len(operands) == 3:
        return make(ADD, operands[0], make(TIMES, *operands[1:]))
    if by == "lerp" and len(operands) == 3:
        start, end, share = operands
        return make(ADD, start, make(TIMES, share, make(SUBTRACT, end, start)))
    return None


def _between(make: Callable[..., Made], x: Any, low: float, high: float) -> Made:
    """x within limits, at neither of which it has a gradient."""
    least = make(ADD, make("relu", make(SUBTRACT, x, low)), low)
    return make(SUBTRACT, high, make("relu", make(SUBTRACT, high, least)))


def _limited(make: Callable[..., Made], x: Any, low: float | None, high: float | None) -> Made | None:
    """x within a limit, at which PyTorch has its gradient."""
    if low is not None:
        return make(ADD, x, make("relu", make(SUBTRACT, low, x) if low else make(TIMES, -1.0, x)))
    return None if high is None else make(SUBTRACT, x, make("relu", make(SUBTRACT, x, high)))


def _compared(make: Callable[..., Made], by: str, one: Any, other: Any) -> Made | None:
    """A comparison, which has no gradient. Numbers that are equal are common where they are whole."""
    spike = _spike_in(one)
    if spike and isinstance(other, float):
        silent, fired = (RELATIONS[by](number, other) for number in (0.0, 1.0))
        made = make("detach", spike)
        return None if silent == fired else made if fired else make(SUBTRACT, 1.0, made)
    if by in ("==", "!="):
        return None
    above, below = (one, other) if by in (">", "<=") else (other, one)
    made = make("detach", make("spike", above if below == 0.0 else make(SUBTRACT, above, below)))
    return made if by in (">", "<") else make(SUBTRACT, 1.0, made)


def _spike_in(made: Any) -> Made | None:
    of = made.args[0] if isinstance(made, Made) and made.op == "detach" else made
    return of if isinstance(of, Made) and of.op == "spike" else None


def _is_whole(of: Any) -> bool:
    """Whether something is 0 or 1."""
    if isinstance(of, Made):
        return _spike_in(of) is not None or (of.tensor is not None and of.tensor.dtype == torch.bool)
    return not isinstance(of, Read) and bool(np.isin(of, (0.0, 1.0)).all())


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

    def at(x: np.ndarray, times: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        given = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        made = function(given)
        (made.sum() * times).backward()
        assert given.grad is not None
        return made.detach().numpy().astype(np.float64), given.grad.numpy().astype(np.float64) / times

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
            reached = bool(at(np.array([threshold]))[0][0])

            def derivative(x: np.ndarray) -> np.ndarray:
                return at(x + threshold)[1]

            name, slope, factor = nearest_surrogate("a spike", derivative, scaled=True)
            near = threshold + np.linspace(-1, 1, 20) / slope
            if any(not np.allclose(at(near, times)[1], at(near)[1], rtol=1e-4) for times in (1e3, 1e-3)):
                return None  # it limits gradients
    except MimdsimError:
        raise
    except Exception:  # of a function of the user's own, which may want another shape
        return None
    return Step(threshold=threshold, surrogate=name, slope=slope, factor=factor, at=reached)


def written_step(made: Made, known: dict[str, Step | None]) -> tuple[Made | Read, Step] | None:
    """What steps, and the step, of one whose gradient is written with what is detached, as in hard.detach() +
    (x - x.detach()) * slope(x).detach() or soft + (hard - soft).detach(). known: steps, by what makes them."""
    near, within = [made], {made}
    for _ in range(NEAR):
        near = [each for one in near for each in one.args if isinstance(each, Made) and each not in within]
        within.update(near)
    found = [one.args[0] for one in within if one.op == "detach"]
    for hard in (one for one in found if isinstance(one, Made) and one.op == "spike" and one.step is None):
        (of,) = hard.args
        for base in (of, *(of.args if isinstance(of, Made) else ())):
            if not isinstance(base, (Made, Read)) or (text := _text_of(made, base, {}, FAR)) is None:
                continue
            if text not in known:
                known[text] = step_of(lambda x, base=base: _value_of(made, base, x, {}))  # type: ignore[misc]
            if (step := known[text]) is not None:
                return base, step
    return None


def _text_of(of: Any, base: Made | Read, known: dict[int, str | None], left: int) -> str | None:
    """How it is made of `base` and numbers alone; None for what is made of more."""
    if of is base or isinstance(of, float):
        return "x" if of is base else repr(of)
    if not isinstance(of, Made) or of.step or not left:
        return None
    if id(of) not in known:
        args = [_text_of(each, base, known, left - 1) for each in of.args]
        known[id(of)] = None if None in args else f"{of.op}({', '.join(filter(None, args))})"
    return known[id(of)]


def _value_of(of: Any, base: Made | Read, x: torch.Tensor, known: dict[int, torch.Tensor]) -> torch.Tensor:
    if of is base or not isinstance(of, Made):
        return x if of is base else torch.as_tensor(of, dtype=x.dtype)
    if id(of) not in known:
        args = [_value_of(each, base, x, known) for each in of.args]
        known[id(of)] = (args[0] > 0).to(x) if of.op == "spike" else VALUES[of.op](*args)
    return known[id(of)]
