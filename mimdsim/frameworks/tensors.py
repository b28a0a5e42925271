"""Tensors, and which part of another one a tensor is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch


def tensors_in(given: Any) -> Iterator[torch.Tensor]:
    """All tensors in nested tuples, lists and dicts, in order."""
    if isinstance(given, torch.Tensor):
        yield given
    elif isinstance(given, (dict, list, tuple)):
        for value in given.values() if isinstance(given, dict) else given:
            yield from tensors_in(value)


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
