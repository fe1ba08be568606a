"""What ranks exchange: sums, averages, moments and bytes, in order of rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from aclearn.learning.moments import Moments
from aclearn.learning.ranks.group import Group


def add_up(group: Group, tensors: Iterable[Tensor]) -> None:
    """Replace each tensor by its sum over the ranks, in place.

    The order of the sum is that of the ranks, whatever carries the tensors.
    """
    for mine, parts in _gathered(group, tensors):
        _write(mine, reduce(torch.add, parts))


def average(group: Group, tensors: Iterable[Tensor]) -> None:
    """Replace each tensor of floats by its mean over the ranks, in place; leave others alone."""
    floats = (tensor for tensor in tensors if tensor.is_floating_point())
    for mine, parts in _gathered(group, floats):
        _write(mine, reduce(torch.add, parts) / group.size)


def least(group: Group, number: Tensor) -> int:
    """The smallest `[]` number of all ranks."""
    return min(int(each) for each in group.gather(number))


def joined_moments(group: Group, moments: Sequence[Moments]) -> list[Moments]:
    """Each with the samples of all ranks."""
    if group.size == 1 or not moments:
        return list(moments)
    flat = torch.cat([part.flatten() for each in moments for part in _parts(each)])
    ranks = [list(_from_flat(part, moments)) for part in group.gather(flat)]
    return [reduce(Moments.joined, same) for same in zip(*ranks, strict=True)]


def gather_bytes(group: Group, mine: bytes, device: torch.device) -> list[bytes]:
    """The bytes of all ranks, of any lengths, in order of rank."""
    if group.size == 1:
        return [mine]
    lengths = [int(each) for each in group.gather(torch.tensor(len(mine), device=device))]
    padded = np.zeros(max(1, *lengths), np.uint8)
    padded[: len(mine)] = np.frombuffer(mine, np.uint8)
    parts = group.gather(torch.from_numpy(padded).to(device))
    return [
        part[:length].cpu().numpy().tobytes() for part, length in zip(parts, lengths, strict=True)
    ]


def _gathered(
    group: Group, tensors: Iterable[Tensor]
) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """The tensors of each dtype, and side by side in one tensor those of each rank."""
    if group.size == 1:
        return
    by_dtype: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        by_dtype.setdefault(tensor.dtype, []).append(tensor.detach())
    for mine in by_dtype.values():
        yield mine, group.gather(torch.cat([tensor.reshape(-1) for tensor in mine]))


def _write(tensors: Sequence[Tensor], flat: Tensor) -> None:
    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view(tensor.shape))


def _parts(moments: Moments) -> tuple[Tensor, Tensor, Tensor]:
    return moments.count, moments.mean, moments.variance


def _from_flat(flat: Tensor, like: Sequence[Moments]) -> Iterator[Moments]:
    shapes = [part.shape for each in like for part in _parts(each)]
    parts = iter(torch.split(flat, [shape.numel() for shape in shapes]))
    shaped = [next(parts).view(shape) for shape in shapes]
    for begin in range(0, len(shaped), 3):
        yield Moments(*shaped[begin : begin + 3])
