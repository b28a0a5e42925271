"""Operations element by element in a forward pass: what they are made of (what they mean: arithmetic.py)."""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from functools import partial
from typing import Any

import numpy as np
import torch

from mimdsim.frameworks.arithmetic import (
    ADD,
    BINARY,
    FAR,
    SUBTRACT,
    TIMES,
    UNARY,
    arithmetic,
    constant_of,
    plain_name,
    step_of,
    written_step,
)
from mimdsim.frameworks.origins import (
    Currents,
    Dropped,
    FunctionResult,
    Gate,
    LayerOutput,
    Made,
    Origin,
    Parameter,
    Part,
    Product,
    Read,
    Scaled,
    Slice,
    Step,
    Sum,
    feeds_of,
    minus,
    unweighted,
)
from mimdsim.frameworks.recorded import OriginRecorder
from mimdsim.frameworks.tensors import first_column, tensors_in
from mimdsim.graph.convolution import Planes

FRAMEWORKS = ("snntorch", "norse", "spikingjelly", "DCLS")

NOT_OF_USERS = ("torch", "mimdsim", *FRAMEWORKS)

PLANES = -3  # the axis of planes

LEAST = 6e-8  # about half of what float32 tells apart near 1


class ArithmeticRecorder(OriginRecorder):
    """Follows operations element by element, too."""

    def __init__(self) -> None:
        super().__init__()
        self._gradients = True
        self._steps: dict[Any, Step | None] = {}
        self._cut: dict[tuple[Made, int, int], Made | None] = {}
        self._again: dict[tuple[str, Any], Made] = {}  # what a function made of one value
        # sums with a current of spikes before the first timestep, by its weights: with the operation and its operands
        self._undecided: dict[frozenset[str], list[tuple[Made, str, Any, Read]]] = defaultdict(list)

    def _is_cut(self, args: Any, made: torch.Tensor) -> bool:
        """Whether a function leaves gradients out, as without gradients (no_grad)."""
        on = torch.is_grad_enabled() and made.requires_grad  # views that no_grad makes seem to require one
        return not on and any(each.requires_grad for each in tensors_in(args))

    def _element_by_element(self, name: str, args: Any, kwargs: Any, result: torch.Tensor) -> Made | None:
        """An operation on currents, parameters, and what was made of them; None for any other."""
        operands = [self._operand(arg) for arg in args if not isinstance(arg, (torch.dtype, torch.device))]
        kwargs = {key: given for key, given in kwargs.items() if key != "inplace" or given}
        operands += [kwargs.pop(key) for key in ("negative_slope", "beta", "threshold") if key in kwargs]
        if kwargs.keys() - {"min", "max", "min_val", "max_val", "alpha", "value"} or any(
            operand is None for operand in operands
        ):
            return None
        if not any(isinstance(operand, (Made, Read)) for operand in operands):
            return None
        factor = kwargs.get("alpha", kwargs.get("value", 1))
        sign = BINARY.get(plain_name(name), "")
        adds = factor == 1 and sign in (ADD, SUBTRACT)
        if adds and (together := self._together(sign, operands[0], operands[1])) is not None:
            self._name(args)
            self._decide_first(_weights_of(operands[1]))
            return together
        limits = [
            self._operand(given) if (given := kwargs.get(key, kwargs.get(f"{key}_val"))) is not None else None
            for key in ("min", "max")
        ]

        make = partial(self._made, name)
        alone = len(operands) == 1 and isinstance(operands[0], Made) and not self._is_cut(args, result)
        again = self._again.get((name, operands[0])) if alone else None
        if again is not None and again.values is not None:  # the same function of the same
            return again
        if factor != 1 and len(operands) < 2:
            return None
        if factor != 1:
            scaled = int(name != "rsub")  # what is subtracted
            operands[scaled] = make(TIMES, float(factor), operands[scaled])
        found = arithmetic(make, name, operands, limits)
        if found is None:
            return None
        if adds and isinstance(operands[1], Read):
            self._undecided[_weights_of(operands[1])].append((found, sign, operands[0], operands[1]))
        self._name(args)
        if alone and name in UNARY and found.op == name != "detach":
            self._again[name, operands[0]] = found
        cut = result.is_floating_point() and found.op != "detach" and self._is_cut(args, result)
        if not cut and found.op in (ADD, SUBTRACT) and (step := written_step(found, self._steps)) is not None:
            return self._made(name, "spike", self._just_below(step[0]) if step[1].at else step[0], step=step[1])
        if cut and is_in_place(name) and isinstance(operands[0], Made):  # whose gradient stays that of what was there
            return make(ADD, operands[0], make("detach", make(SUBTRACT, found, operands[0])))
        return make("detach", found) if cut else found

    def _decide_first(self, weights: frozenset[str]) -> None:
        """Add currents of the first timestep as those of later ones, which say of whose spikes they are."""
        for made, sign, before, read in self._undecided.pop(weights, ()):
            if (found := self._together(sign, before, read, decided=True)) is not None:
                made.by, made.op, made.args = found.by, found.op, found.args

    def _together(self, sign: str, made: Any, read: Any, left: int = FAR, decided: bool = False) -> Made | None:
        """(M + R) - S as M + (R - S), of two currents that are both of the layer's own spikes or both of others."""
        if not isinstance(made, Made) or made.op not in (ADD, SUBTRACT) or not isinstance(read, Read) or not left:
            return None
        for at, each in enumerate(made.args):
            own = made.op if at else ADD
            found: Made | Read | None = None
            if isinstance(each, Made):
                found = self._together(sign if own == ADD else _other(sign), each, read, left - 1, decided)
            elif isinstance(each, Read) and each.tensor.shape == read.tensor.shape:
                alike = (
                    decided
                    or all(map(_is_convolved, (each, read)))
                    or _is_own(each, made) is _is_own(read, made) is not None
                )
                alike = alike and _calls_of(each) == _calls_of(read)
                more = read.of if sign == own else minus(read.of)
                if alike and more is not None:
                    parts = [part for of in (each.of, more) for part in (of.parts if isinstance(of, Sum) else (of,))]
                    added = read.tensor if sign == own else -read.tensor
                    found = Read(of=Sum(parts=tuple(parts)), tensor=each.tensor + added)
            if found is not None:
                args = (*made.args[:at], found, *made.args[at + 1 :])
                return self._made(made.by, made.op, *args)
        return None

    def _made(self, by: str, op: str, *args: Any, step: Step | None = None) -> Made:
        every = (
            arg.planes if isinstance(arg, Made) else self._planes_made([arg.of]) for arg in args if _has_planes(arg)
        )
        planes = next(filter(None, every), None)
        made = Made(by=by, op=op, args=args, number=len(self.seen.made), tensor=None, step=step, planes=planes)
        self.seen.made.append(made)
        return made

    def _hold(self, made: Made, tensor: torch.Tensor) -> Made:
        """What an operation made, of which these are the values."""
        if made.planes is None and tensor.ndim > 3:
            channels, height, width = tensor.shape[PLANES:]
            made.planes = Planes(channels=channels, height=height, width=width)
        return made.hold(self.in_planes(tensor, made))

    def _operand(self, arg: Any) -> Made | Read | float | np.ndarray | None:
        if isinstance(arg, (bool, int, float)):
            return float(arg)
        if not isinstance(arg, torch.Tensor):
            return None
        origin = self.origin(arg)
        if isinstance(origin, Made):
            whole = origin.tensor is None or arg.numel() >= origin.tensor.numel()
            return origin if whole else None
        if isinstance(origin, Slice) and isinstance(origin.of, Made):
            columns: Made | None = self._columns(origin.of, origin.first, arg.shape[-1])
            return columns
        if isinstance(origin, (Product, Gate, Parameter, Part)) or (isinstance(origin, Currents) and feeds_of(origin)):
            return Read(of=origin, tensor=self.in_planes(arg, origin))
        if isinstance(origin, LayerOutput) and (current := self._as_current(origin)) is not None:
            return Read(of=current, tensor=arg)
        return constant_of(arg) if origin is None and not self._learns(arg) else None

    def _as_current(self, of: LayerOutput) -> Product | None:
        """What cells send in a timestep as a current without weights; None for spikes, potentials and sequences."""
        calls = self.seen.layers[of.layer]
        if not calls.reading.of_cells or calls.planes or of.in_time:
            return None
        call = of.entry if calls.in_time else of.call
        return unweighted(of, f"what '{of.layer}' sends", [calls.neurons], call)

    def _columns(self, of: Any, first: int, wide: int) -> Any:
        """Adjacent columns of what an operation made, as what it makes of those of what it reads; None where these are
        no shares of currents."""
        if isinstance(of, float):
            return of
        if isinstance(of, np.ndarray):
            return of[..., first : first + wide] if of.shape[-1] > 1 else of
        if isinstance(of, Read):
            part = of.tensor[..., first : first + wide]
            share = share_of(of.of, part, of.tensor) if isinstance(of.of, (Currents, Gate)) else None
            return share and Read(of=share, tensor=part)
        if (of, first, wide) not in self._cut:
            args = [self._columns(arg, first, wide) for arg in of.args]
            made = None if any(each is None for each in args) else self._made(of.by, of.op, *args, step=of.step)
            if made and (whole := of.values) is not None:
                made.hold(whole[..., first : first + wide])
            self._cut[of, first, wide] = made
        return self._cut[of, first, wide]

    def _row_of(self, of: Any, row: int, part: torch.Tensor) -> Any:
        """A row of what operations made of parameters and numbers alone, as what they make of that row of them."""
        if isinstance(of, float) or (isinstance(of, np.ndarray) and of.size == 1):
            return of
        if isinstance(of, Read) and isinstance(of.of, Parameter) and not of.of.masked:
            if of.tensor.numel() == 1:
                return of
            first = row * part.numel()
            taken = of.tensor.reshape(-1)[first : first + part.numel()].reshape(part.shape)
            return Read(of=Part(name=of.of.name, row=row), tensor=taken) if taken.numel() == part.numel() else None
        if not isinstance(of, Made):
            return None
        args = [self._row_of(arg, row, part) for arg in of.args]
        return None if any(each is None for each in args) else self._made(of.by, of.op, *args, step=of.step)

    def _learns(self, tensor: torch.Tensor) -> bool:
        """Whether the gradient of a tensor gets to anything but states that a framework makes, which nobody reads."""
        if tensor.grad_fn is None:
            return tensor.requires_grad and isinstance(tensor, torch.nn.Parameter)
        seen: set[Any] = set()
        waiting = [tensor.grad_fn]
        for node in waiting:  # which grows
            if isinstance(getattr(node, "variable", None), torch.nn.Parameter):
                return True
            waiting += {each for each, _ in node.next_functions if each is not None} - seen
            seen.update(waiting)
        return False

    def _name(self, args: Any) -> None:
        """Name what an operation reads by the variables that hold it, where the function that is called has such."""
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in NOT_OF_USERS:
            frame = frame.f_back
        held = {} if frame is None else frame.f_locals
        for arg in args:
            origin = self.origin(arg)
            if isinstance(origin, Made) and not origin.name:
                places = (held, getattr(held.get("self"), "__dict__", {}))
                origin.name = next((key for place in places for key, value in place.items() if value is arg), "")

    def _step(self, key: Any, *functions: Any) -> Step | None:
        """The step that functions with gradients of their own all are; key: what tells them apart from others."""
        if key not in self._steps:
            found = [*map(step_of, functions)]
            self._steps[key] = found[0] if found.count(found[0]) == len(found) else None
        return self._steps[key]

    def _spike(self, where: str, step: Step | None, given: Any, made: Any) -> None:
        """A function with a gradient of its own, of one tensor, which steps from 0 to 1."""
        of = self._operand(given)
        if isinstance(of, (Made, Read)) and step is not None:
            self._name([given])
            spike = self._made(where, "spike", self._just_below(of) if step.at else of, step=step)
            if not self._gradients:
                spike = self._made(where, "detach", spike)
            self.layouts.alike(made, given)
            self.mark(made, self._hold(spike, made))
        elif (known := self.origin(given)) is not None:
            self.mark(made, self._unread(where, known))

    def _just_below(self, of: Made | Read) -> Made:
        """What is above a threshold where `of` reaches it: its distance from the float32 below that."""
        limit = of.args[1] if isinstance(of, Made) and of.op == SUBTRACT else None
        if isinstance(of, Made) and isinstance(limit, (float, np.ndarray)):
            below = np.nextafter(np.float32(limit), np.float32(-np.inf)).astype(np.float64)
            return self._made(of.by, SUBTRACT, of.args[0], below if below.ndim else float(below))
        return self._made("add", ADD, of, LEAST)

    def _unread(self, by: str, *of: Origin | None, divisor: float = 1.0) -> FunctionResult:
        result = FunctionResult(by=by, of=tuple(each for each in of if each is not None), divisor=divisor)
        self.seen.unread.append(result)
        return result


def share_of(of: Currents | Gate, part: torch.Tensor, whole: torch.Tensor) -> Gate | None:
    """Adjacent columns, or planes, of a tensor of currents, or of a share of one, as shares that are equally wide."""
    axis = -1 if part.shape[:-1] == whole.shape[:-1] else PLANES
    first, wide, core = first_column(part, whole, axis), whole.shape[axis], of
    if first is None:
        return None
    if isinstance(of, Gate):
        first, wide, core = first + wide // of.shares * of.index, wide // of.shares * of.gates, of.of
    each = math.gcd(first, part.shape[axis], wide)
    assert not isinstance(core, Gate)
    return Gate(of=core, index=first // each, gates=wide // each, shares=part.shape[axis] // each)


def _has_planes(arg: Any) -> bool:
    """Whether it is a current, or made by an operation, which may be of planes."""
    return isinstance(arg, Made) or (isinstance(arg, Read) and isinstance(arg.of, Currents))


def is_in_place(name: str) -> bool:
    return name.startswith("__i") or (name.endswith("_") and name[-2:] != "__")


def _other(sign: str) -> str:
    return SUBTRACT if sign == ADD else ADD


def _calls_of(read: Read) -> set[int]:
    """In which timesteps a current is made."""
    return {feed.product.call for feed in feeds_of(read.of)} if isinstance(read.of, Currents) else set()


def _weights_of(read: Any) -> frozenset[str]:
    """The parameters that a current is made with; none of anything else."""
    of = read.of if isinstance(read, Read) else None
    return frozenset(feed.product.weight for feed in feeds_of(of)) if isinstance(of, Currents) else frozenset()


def _is_convolved(read: Read) -> bool:
    """Whether a current is made by convolutions, of which those of own spikes go with the others."""
    feeds = [*feeds_of(read.of)] if isinstance(read.of, Currents) else []
    return bool(feeds) and all(feed.product.convolution for feed in feeds)


def _is_own(read: Read, made: Made) -> bool | None:
    """Whether a current is of spikes that come of the same states as `made`; None for what is no current, and of states
    before the first timestep."""
    bases: list[Any] = [feed.product.of for feed in feeds_of(read.of)] if isinstance(read.of, Currents) else []
    while any(isinstance(of, (Slice, Dropped, Scaled)) for of in bases):
        bases = [of.of if isinstance(of, (Slice, Dropped, Scaled)) else of for of in bases]
    if not bases or any(isinstance(of, FunctionResult) for of in bases):
        return None
    near = _made_of(made)
    return any(isinstance(of, Made) and not near.isdisjoint(_made_of(of)) for of in bases)


def _made_of(made: Made) -> set[int]:
    """The numbers of what it is made of, a few operations back."""
    found, last = {made.number}, [made]
    for _ in range(FAR):
        last = [each for one in last for each in one.args if isinstance(each, Made) and each.number not in found]
        found |= {each.number for each in last}
    return found
