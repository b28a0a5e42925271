"""Weights that a PyTorch module makes of a parameter before it multiplies by them: Dale's law, positive weights, masks.

What is done to the parameter is known step by step (recording.py). Signs and masks are found by the values: what was
made, held against the function of the parameter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from mimdsim.frameworks.arithmetic import ADD, OVER, TIMES
from mimdsim.frameworks.neurons import numbers_of, refusal
from mimdsim.frameworks.origins import FunctionResult, Made, Parameter, Read, Sum, parts_of
from mimdsim.graph.derived import FUNCTIONS, WeightFunction, run_lengths
from mimdsim.numerics.number_formats import FORMATS

SAME = 1e-5  # of a weight: the module computes in float32
OF_TORCH = {"abs": "abs", "__abs__": "abs", "absolute": "abs", "relu": "relu", "relu_": "relu", "exp": "exp",
            "sigmoid": "sigmoid", "tanh": "tanh"}  # fmt: skip

# what makes zeros of some weights; which, and that it does nothing else, the values say
LEAVES_OUT = {"masked_fill", "where", "triu", "tril", "sub", "__sub__", "diagonal_scatter", "index_fill"}


def parameter_in(origin: Any) -> Parameter | None:
    """The one parameter of which functions made something; None of other values."""
    while isinstance(origin, (Made, FunctionResult, Sum)):
        if isinstance(origin, Sum):
            origin = _straight_through(origin)
            continue
        parts = [each for each in parts_of(origin) if not isinstance(each, (float, np.ndarray))]
        if not parts:
            return None
        origin = parts[0]
        origin = origin.of if isinstance(origin, Read) else origin
    return origin if isinstance(origin, Parameter) else None


def is_diagonal(tensor: Any) -> bool:
    """Whether it is a square matrix of fixed numbers that has none beside its diagonal."""
    return (
        isinstance(tensor, torch.Tensor)
        and tensor.ndim == 2
        and not tensor.requires_grad
        and tensor.shape[0] == tensor.shape[1]
        and bool((tensor == torch.diag(torch.diagonal(tensor))).all())
    )


def function_of_weights(
    where: str, origin: Any, parameter: Parameter, held: torch.Tensor, made: torch.Tensor, turned: bool
) -> tuple[WeightFunction | None, np.ndarray | None]:
    """The function of weights that were made of a parameter, None where they are itself, and the zeros and ones by
    which these are multiplied beside it, laid out as the parameter is. turned: [outputs, inputs]; raises
    DescriptionError for what nothing here is."""
    names = _functions_in(origin)
    known = [name for name, each in FUNCTIONS.items() if not each.format]
    nearest = (
        f"nearest: {', '.join(known)} of the parameter, times a number, a fixed sign per source or zeros and ones; or "
        f"it rounded, straight through, to {', '.join(FORMATS)}{_without_it(parameter.name)}"
    )
    w, acts = map(numbers_of, (held, made))
    if made.stride() != held.stride():
        acts, turned = acts.T, not turned
    if len(names) == 1 and acts.shape == w.shape:  # what the values tell
        if names[0] in LEAVES_OUT and np.array_equal(acts, w * (acts != 0)):
            names = []
        elif names[0] not in known and len(rounded := _formats_of(w, acts)) == 1:
            names = known = rounded
    unknown = [name for name in names if name not in known]
    if unknown or len(names) > 1:
        raise refusal(f"{where} multiplies by what '{(unknown or names)[0]}' made of '{parameter.name}'; {nearest}")
    name = names[0] if names else "identity"
    if _is_clamped(origin) and bool((held == 0).any()):  # where clamp has a gradient, and relu has none
        raise refusal(f"{where} clamps '{parameter.name}', in which weights are 0; nearest: relu, or a mask beside it")
    of_all = FUNCTIONS[name].of(w)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.where(of_all == 0, np.nan, acts / of_all)
    factors = factor[~np.isnan(factor)]
    size = _one_size(factors)
    if acts.shape != w.shape or size is None:
        raise refusal(f"{where} multiplies by what numbers of several sizes made of '{parameter.name}'; {nearest}")
    factor = factor / size
    gone = np.rint(factor) == 0
    by_row = np.sign(np.nan_to_num(np.rint(factor)).reshape(len(factor), -1))
    by_row = by_row.T if turned else by_row
    if ((by_row > 0).any(axis=1) & (by_row < 0).any(axis=1)).any():
        raise refusal(f"{where} gives weights of one source several signs, of '{parameter.name}'; {nearest}")
    signs = run_lengths(np.where((by_row < 0).any(axis=1), -1, 1))
    masked = gone.any() and not parameter.masked
    if masked and not FUNCTIONS[name].keeps_zeros:
        raise refusal(f"{where} has a mask beside '{name}' of '{parameter.name}'; nearest: abs or relu with that mask")
    plain = name == "identity" and size == 1 and not signs
    function = None if plain else WeightFunction(function=name, signs=signs, factor=size)
    return function, (~gone).astype(np.float64) if masked else None


def _without_it(name: str) -> str:
    """How a module is rid of what it makes of a parameter, where PyTorch's own functions do."""
    layer, _, tensor = name.partition(".parametrizations.")
    if tensor:
        how = f"torch.nn.utils.parametrize.remove_parametrizations({layer}, '{tensor.partition('.')[0]}')"
    elif name.endswith(("_g", "_v")):
        layer, _, tensor = name[:-2].rpartition(".")
        how = f"torch.nn.utils.remove_weight_norm({layer}, '{tensor}')"
    else:
        return ""
    return f"; or {how} before, which keeps the weights that it made and trains those"


def _straight_through(origin: Sum) -> Any:
    """What gets the gradient of a sum with something detached; None: it is no such sum."""
    parts = [each for each in origin.parts if not (isinstance(each, FunctionResult) and each.by == "detach")]
    return parts[0] if len(parts) == 1 and len(origin.parts) == 2 else None


def _formats_of(w: np.ndarray, acts: np.ndarray) -> list[str]:
    """The formats to which all weights are rounded; none where they were before, so that any function may have left
    them as they are."""
    largest = np.abs(w).max(initial=0)
    rounded = {name: FUNCTIONS[name].of(w) for name in FORMATS}
    found = [name for name, each in rounded.items() if np.abs(each - acts).max() <= SAME * largest]
    return [name for name in found if np.abs(rounded[name] - w).max() > SAME * largest]


def _one_size(factors: np.ndarray) -> float | None:
    """Of all but zeros, as float32 has it, and 1 where it may be; None: there are several."""
    sizes = np.abs(factors[np.abs(factors) > SAME])
    if not sizes.size or np.abs(sizes - 1).max() <= SAME:
        return 1.0
    size = float(f"{np.median(sizes):.7g}")
    return size if np.abs(sizes / size - 1).max() <= SAME else None


def _functions_in(origin: Any) -> list[str]:
    """The functions, by the names here where there are such, of which values are made; a product with fixed numbers is
    none."""
    if isinstance(origin, Sum):
        return ["add"]
    if not isinstance(origin, (Made, FunctionResult)):
        return _functions_in(origin.of) if isinstance(origin, Read) else []
    parts = [each for each in parts_of(origin) if not isinstance(each, (float, np.ndarray))]
    if isinstance(origin, Made) and origin.by in OF_TORCH and origin.op == "+":  # of abs
        return [OF_TORCH[origin.by], *_functions_in(parts[0].args[0])]
    if _is_clamped(origin) and parts[1].args[0].op == TIMES:  # no less than 0
        return ["relu", *_functions_in(parts[0])]
    divided = isinstance(origin, Made) and origin.op == OVER and origin.args[0] is (*parts, None)[0]
    if isinstance(origin, Made) and (origin.op == TIMES or divided) and len(parts) == 1:
        return _functions_in(parts[0])
    if isinstance(origin, Made) and origin.op == TIMES and len(parts) == 2 and parts[0] == parts[1]:
        return ["square", *_functions_in(parts[0])]
    if isinstance(origin, Made) and (origin.by in OF_TORCH or origin.op == "softplus") and len(parts) == 1:
        return [OF_TORCH.get(origin.by, origin.op), *_functions_in(parts[0])]
    return [f"{origin.by}()" if origin.by in FUNCTIONS else origin.by, *(_functions_in(parts[0]) if parts else [])]


def _is_clamped(origin: Any) -> bool:
    """Whether it is no less than a number, as a clamp makes it."""
    return (
        isinstance(origin, Made) and origin.op == ADD and origin.by.removesuffix("_") in ("clamp", "clip", "clamp_min")
    )
