"""Tensors, which part of another one a tensor is, and how values come to lie as they do."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import torch


def tensors_in(given: Any) -> Iterator[torch.Tensor]:
    """All tensors in nested tuples, lists, deques and dicts, in order."""
    if isinstance(given, torch.Tensor):
        yield given
    elif isinstance(given, (dict, list, tuple, deque)):
        for value in given.values() if isinstance(given, dict) else given:
            yield from tensors_in(value)


def copy_of(module: Any) -> Any:
    """A copy of a module, or of a function; of tensors in it that operations made, which have no copies, the values."""
    held = module.modules() if isinstance(module, torch.nn.Module) else ()
    made = (each for one in held for each in tensors_in([*vars(one).values()]) if each.grad_fn is not None)
    return copy.deepcopy(module, {id(each): each.detach().clone() for each in made})


def entry_of(part: torch.Tensor, whole: torch.Tensor | None, last: bool = False) -> tuple[int, int] | None:
    """Which entry of the first or second axis of a tensor, or of the last, a view of it is, and of how many."""
    if whole is None or part.untyped_storage().data_ptr() != whole.untyped_storage().data_ptr():
        return None
    offset = part.storage_offset() - whole.storage_offset()
    for axis in (0, 1, whole.ndim - 1)[: 3 if last and whole.ndim > 2 else 2]:
        count, stride = whole.shape[axis], whole.stride(axis)
        # an axis of one entry may be that of the channels
        taken = part.numel() * count == whole.numel() if count > 1 else part.shape == whole.select(axis, 0).shape
        if taken and offset % stride == 0 and offset // stride < count:
            return offset // stride, count
    return None


def first_timestep(part: torch.Tensor, whole: torch.Tensor, timesteps: int) -> int:
    """With which entry of the first or second axis, of so many timesteps, a view of the last ones begins; 0: it is no
    such view."""
    offset = part.storage_offset() - whole.storage_offset()
    alike = part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr() and part.stride() == whole.stride()
    for axis in range(min(2, whole.ndim) if alike and part.ndim == whole.ndim else 0):
        first = whole.shape[axis] - part.shape[axis]
        others = [[*each.shape[:axis], *each.shape[axis + 1 :]] for each in (part, whole)]
        if first and whole.shape[axis] == timesteps and others[0] == others[1] and offset == first * whole.stride(axis):
            return int(first)
    return 0


def first_column(part: torch.Tensor, whole: torch.Tensor, axis: int = -1) -> int | None:
    """With which entry of the last axis, or of that of planes, a view of adjacent ones begins; None of others, and of
    all."""
    if part.ndim != whole.ndim or part.ndim < -axis or part.stride() != whole.stride():
        return None
    same = part.shape == (*whole.shape[:axis], part.shape[axis], *whole.shape[axis % whole.ndim + 1 :])
    if not same or not 0 < part.shape[axis] < whole.shape[axis] or not whole.stride(axis):
        return None
    if part.untyped_storage().data_ptr() != whole.untyped_storage().data_ptr():
        return None
    return int(part.storage_offset() - whole.storage_offset()) // int(whole.stride(axis))


def row_of(part: torch.Tensor, held: torch.Tensor) -> int | None:
    """Which of the rows of a parameter, each as long as this, a number of it is, or are adjacent ones."""
    alike = part.is_contiguous() and held.is_contiguous() and 0 < part.numel() == (part.shape or (1,))[-1]
    if not alike or held.numel() % part.numel():
        return None
    if part.untyped_storage().data_ptr() != held.untyped_storage().data_ptr():
        return None
    row, left = divmod(int(part.storage_offset() - held.storage_offset()), part.numel())
    return None if left else row


def is_cut_out(part: torch.Tensor, whole: torch.Tensor) -> bool:
    """Whether some of an axis is left out, and more than one entry of it is left."""
    longer = all(left > 1 or had == 1 for left, had in zip(part.shape, whole.shape, strict=False))
    return part.ndim == whole.ndim and part.numel() < whole.numel() and longer


def zeros_beside(
    _: Any, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> tuple[int, ...] | None:
    """How many zeros torch.nn.functional.pad adds before and after the last axis, the one before that, and so on, if it
    does nothing else."""
    return tuple(pad) if mode == "constant" and not value and min(pad) >= 0 else None


def is_zero(other: Any) -> bool:
    """A number, or spikes before there are any."""
    return isinstance(other, (int, float, torch.Tensor)) and not torch.as_tensor(other).any()


def is_number_zero(other: Any) -> bool:
    return isinstance(other, (int, float)) and other == 0


TURNS = {"permute", "transpose", "movedim", "swapaxes", "t", "T", "mT", "index_select"}  # and keep all values


class Layouts:
    """Where the values of tensors are in those that they were made as, of which samples follow one another."""

    def __init__(self) -> None:
        # by id of a tensor: the function that moved values, which of its results it is, and its arguments
        self._moves: dict[int, tuple[Any, int, Any, Any]] = {}
        self._laid: dict[int, torch.Tensor] = {}

    def moved(self, made: Any, func: Any, *args: Any, **kwargs: Any) -> None:
        """Remember how values of the first argument, a tensor or several, came to lie as they do."""
        for at, each in enumerate(tensors_in(made)):
            if each is not args[0]:
                self._moves[id(each)] = func, at, args, kwargs

    def alike(self, made: Any, *given: Any) -> None:
        """Remember that values lie as those of what was given, with as many, if these are turned."""
        if not isinstance(made, torch.Tensor) or id(made) in self._laid:
            return
        same = (each for each in given if isinstance(each, torch.Tensor) and each.shape == made.shape)
        of = next((each for each in same if each is not made and self.is_turned(each)), None)
        if of is not None:
            func, _, args, _ = self._moves.get(id(of), (None, 0, (), {}))
            self.moved(made, torch.clone, args[0] if func is torch.clone else of)

    def lay(self, made: torch.Tensor, places: torch.Tensor) -> None:
        """Say where the values of every sample of a tensor are."""
        samples = torch.arange(made.numel() // places.numel())[:, None] * places.numel()
        self._laid[id(made)] = (samples + places.reshape(-1)).reshape(made.shape)

    def is_turned(self, tensor: Any) -> bool:
        """Whether its values may lie in another order than those of what it was made as."""
        while id(tensor) not in self._laid:
            if id(tensor) not in self._moves:
                return False
            func, _, (tensor, *_), _ = self._moves[id(tensor)]
            if func is torch.stack:
                tensor = tensor[0]
            name = getattr(func, "__name__", "")
            if (getattr(getattr(func, "__self__", None), "__name__", name) if name == "__get__" else name) in TURNS:
                return True
        return True

    def places(self, tensor: torch.Tensor) -> torch.Tensor:
        """int64, as the tensor lies: where its values are in what it was made as."""
        if id(tensor) in self._laid:
            return self._laid[id(tensor)]
        if id(tensor) not in self._moves:
            return torch.arange(tensor.numel()).reshape(tensor.shape)
        func, at, (given, *args), kwargs = self._moves[id(tensor)]
        before = self.places(given) if isinstance(given, torch.Tensor) else [*map(self.places, given)]
        return [*tensors_in(func(before, *args, **kwargs))][at].long()

    def runs_along(self, tensor: torch.Tensor, neurons: int, run: int, axes: Sequence[int]) -> bool:
        """Whether every run of so many values that lie one after another in a sample of what it was made as, and
        nothing else, lies along these axes."""
        order, shape = self.order(tensor, neurons), tensor.shape
        first = next((k for k in reversed(range(tensor.ndim)) if shape[k:].numel() == neurons), tensor.ndim)
        inner = [axis % tensor.ndim - first for axis in axes]
        if order is None or not inner or min(inner) < 0 or math.prod(shape[first + axis] for axis in inner) != run:
            return False
        of_run = (order.argsort() // run).reshape(shape[first:])
        return all(bool((of_run == of_run.narrow(axis, 0, 1)).all()) for axis in inner)

    def order(self, tensor: torch.Tensor, neurons: int) -> torch.Tensor | None:
        """int64[neurons]: where in every sample of it the values are in the order in which they were made; None where
        samples differ, or some of them are left out."""
        if tensor.numel() % neurons or not tensor.numel():
            return None
        places = self.places(tensor).reshape(-1, neurons)
        order, apart = places.argsort(dim=1), places // neurons != places[:, :1] // neurons
        return order[0] if (order == order[:1]).all() and not apart.any() else None
