"""Several tensors in one vector, so that one call does what is done to all of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def in_one_vector(tensors: Sequence[Tensor]) -> Tensor:
    """A vector of the numbers of all `tensors`, which have their memory in it from now on."""
    vector = tensors[0].detach().new_empty(sum(tensor.numel() for tensor in tensors))
    for tensor, part in zip(tensors, parts_of(vector, tensors), strict=True):
        part.copy_(tensor.detach())
        tensor.data = part
    return vector


def parts_of(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """The parts of a vector as views, with the shapes of `like` and the order of their memory."""
    parts = torch.split(vector, [tensor.numel() for tensor in like])
    # those of a tensor with gaps, as a slice has them, without the gaps
    strides = [torch.empty_like(tensor, device="meta").stride() for tensor in like]
    return [
        part.as_strided(tensor.shape, stride, part.storage_offset())
        for part, tensor, stride in zip(parts, like, strides, strict=True)
    ]
