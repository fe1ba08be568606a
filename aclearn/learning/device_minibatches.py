"""The minibatches of a batch whose valid steps only the device knows, in fixed shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from aclearn.learning.batch import Batch

_MOST = 2**63 - 1
#: Of splitmix64 (Steele, Lea & Flood 2014), as two's complements.
_STEP, _MIXES = 0x9E3779B97F4A7C15 - 2**64, (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)


class DeviceMinibatches:
    """As `Minibatches`, without a wait for the device.

    Each has the same number of steps, of which some may not be valid; there may be none that is.

    Args:
        batch: prepared.
        count: of minibatches in a pass.
        seed: `[]` int64, of the orders of single steps.
    """

    def __init__(self, batch: Batch, *, count: int, seed: Tensor) -> None:
        self._batch, self._count, self._seed = batch, count, seed
        self._shuffled = batch.frozen is not None and not batch.state
        self._parts = [] if self._shuffled else batch.cut(count)
        if not self._shuffled:
            self._count = len(self._parts)
        self._refused = torch.zeros(self._count, dtype=torch.bool, device=seed.device)
        self._learned = batch.valid.flatten()

    def of_pass(self, index: int) -> Iterator[tuple[Batch, Tensor]]:
        """Each minibatch, and whether it is refused, `[]` bool, to be set after its update.

        The steps of a refused one are not in later passes; that of whole unrolls stays refused.
        """
        parts = self._shuffle(index) if self._shuffled else self._parts
        yield from zip(parts, self._refused, strict=True)
        if self._shuffled:
            dropped = (self._inside & self._refused.unsqueeze(1)).flatten().int()
            counts = torch.zeros_like(self._learned, dtype=torch.int32)
            self._learned = self._learned & (counts.scatter_add_(0, self._taken, dropped) == 0)
            self._refused.zero_()

    @torch.no_grad()
    def _shuffle(self, index: int) -> list[Batch]:
        """Minibatches of steps that are still learned; their sizes differ by at most one."""
        order = random_order(self._learned, self._seed, index)
        steps, parts = self._learned.sum(), torch.arange(self._count, device=order.device)
        each, more = steps // self._count, steps % self._count
        sizes, starts = each + (parts < more), parts * each + torch.minimum(parts, more)
        most = -(-len(order) // self._count)
        places = torch.arange(most, device=order.device)
        self._inside = places < sizes.unsqueeze(1)
        at = (starts.unsqueeze(1) + places).clamp(max=len(order) - 1)
        self._taken = order[at.flatten()]
        # views of one copy cost less than copies
        shuffled = replace(
            self._batch.taken(self._taken),
            valid=self._inside.flatten().unsqueeze(0),
            all_valid=False,
        )
        return [shuffled.columns(slice(m * most, (m + 1) * most)) for m in range(self._count)]


def random_order(learned: Tensor, seed: Tensor, index: int) -> Tensor:
    """The numbers `[N]` int64 of the `learned` steps in a random order, then those of others.

    They are sorted by a hash of the seed, the number of the pass and their own, which needs neither
    a generator nor the host.

    Args:
        learned: `[N]` bool.
        seed: `[]` int64, on the same device.
        index: of the pass.
    """
    numbers = torch.arange(len(learned), device=learned.device)
    keys = _mixed(_mixed(_mixed(seed) + index) + numbers * _STEP) >> 1
    return keys.masked_fill(~learned, _MOST).argsort(stable=True)


def _mixed(z: Tensor) -> Tensor:
    """The finaliser of splitmix64; products wrap around, shifts are logical."""
    for shift, factor in zip((30, 27), _MIXES, strict=True):
        z = (z ^ ((z >> shift) & (2 ** (64 - shift) - 1))) * factor
    return z ^ ((z >> 31) & (2**33 - 1))
