"""Lengths and returns of running episodes, and sums over those that ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aclearn.resident import kernels
from aclearn.types import EpisodeCohort


@dataclass(frozen=True)
class EpisodeSums:
    """Sums over the episodes that ended, and over resets.

    Attributes:
        returns: sum of their returns.
        resets: steps that began an episode and are not valid.
    """

    episodes: int
    returns: float
    resets: int


class OutOfRange(Exception):
    """A reward or an observation was NaN or too large in `count` steps, such as `step` of `row`."""

    def __init__(self, count: int, step: int, row: int) -> None:
        super().__init__(count, step, row)
        self.count, self.step, self.row = count, step, row


class Episodes:
    """The episodes of R rows; a row is an environment, or an agent of one. Kernels write them.

    Args:
        parts: slices of the environments, which have sums of their own.
        steps: of a rollout.
        time_limit: steps of the longest episode.
        accounts: number of sums that are kept apart.
        groups: of neighbouring rows that are saved apart; each has as many accounts.

    Attributes:
        running: by name `[R]`: length and return of the running episodes, whether the last step
            ended one, number of ended episodes, return of the last.
        statistics: `[accounts, parts · 64, 4]`.
        cohorts: `[accounts, parts · 64, 64, 3]`.
        cohort_steps: number of steps in which a cohort begins.
        out_of_range_at: `[1]`, a place where a number was out of range.
        most_rollouts: after which `take_cohorts` must be called, since the ring has no more room.
    """

    def __init__(
        self,
        rows: int,
        *,
        parts: int,
        steps: int,
        time_limit: int,
        device: torch.device,
        accounts: int = 1,
        groups: int = 1,
    ) -> None:
        self._groups = groups

        def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.running = {
            "lengths": zeros(rows, dtype=torch.int32),
            "returns": zeros(rows, dtype=torch.float32),
            "ended": zeros(rows, dtype=torch.bool),
            "episodes": zeros(rows, dtype=torch.int32),
            "last_returns": zeros(rows, dtype=torch.float32),
        }
        sums = (accounts, parts * kernels.SPREAD)
        self.statistics = zeros(*sums, kernels.STATISTICS, dtype=torch.float64)
        # an episode of the longest length, and a rollout, are within the ring
        self.cohort_steps = max(steps, -(-(time_limit + steps) // (kernels.COHORTS - 4)))
        self.cohorts = zeros(*sums, kernels.COHORTS, kernels.COHORT_SUMS, dtype=torch.float64)
        self.out_of_range_at = zeros(1, dtype=torch.int64)
        ring = kernels.COHORTS * self.cohort_steps
        self.most_rollouts = max(1, (ring - time_limit - self.cohort_steps) // steps)
        self._next_cohort = [0] * accounts  # the first that was not taken
        self._first_whole = 0  # of earlier ones some episodes are missing

    def begin(self, now: int) -> None:
        """Forget all: new episodes begin at step `now` in every row."""
        for tensor in self.running.values():
            tensor.zero_()
        self.cohorts.zero_()
        self._first_whole = now // self.cohort_steps
        self._next_cohort = [self._first_whole] * len(self._next_cohort)

    def take_sums(self, account: int = 0) -> EpisodeSums:
        """The sums since the last call; waits for the device.

        Raises:
            OutOfRange: a reward or an observation of the account's group was out of range; the sums
                of the group are forgotten.
        """
        mine, _ = self._of_group(self._group_of(account))
        group = self.statistics[mine]
        sums = group.cpu().numpy().sum(1)
        if bad := int(sums[:, kernels.OUT_OF_RANGE].sum()):
            step, row = divmod(int(self.out_of_range_at), 2**kernels.STEP_BITS)
            group.zero_()
            self.out_of_range_at.zero_()
            raise OutOfRange(bad, step, row)
        self.statistics[account].zero_()
        total = sums[account - mine.start]
        return EpisodeSums(
            int(total[kernels.EPISODES]),
            float(total[kernels.RETURNS]),
            int(total[kernels.RESETS]),
        )

    def discard_sums(self) -> None:
        """Forget the sums since the last call of `take_sums`."""
        self.statistics.zero_()
        self.out_of_range_at.zero_()

    def take_cohorts(self, now: int, account: int = 0) -> list[EpisodeCohort]:
        """The episodes by their first steps, as far as all have ended; waits for the device.

        `begun_s` is the number of a step.

        Args:
            now: number of the next step.
        """
        until = self._oldest_cohort(now, self._group_of(account))
        numbers = range(self._next_cohort[account], until)
        if not numbers:
            return []
        places = [number % kernels.COHORTS for number in numbers]
        kept = self.cohorts[account]
        sums = kept[:, places].sum(0).cpu().numpy()
        kept[:, places] = 0.0
        self._next_cohort[account] = until
        return [
            EpisodeCohort(float(number * self.cohort_steps), int(ended), float(returns), int(steps))
            for number, (ended, returns, steps) in zip(numbers, sums, strict=True)
            if ended and number >= self._first_whole
        ]

    def _oldest_cohort(self, now: int, group: int) -> int:
        """Number of the cohort of the oldest running episode of a group."""
        _, rows = self._of_group(group)
        running = self.running["lengths"][rows].masked_fill(self.running["ended"][rows], 0)
        return (now - int(running.max())) // self.cohort_steps

    def _group_of(self, account: int) -> int:
        return account * self._groups // len(self.statistics)

    def _of_group(self, group: int) -> tuple[slice, slice]:
        """Its accounts and its rows."""
        counts = len(self.statistics), len(self.running["lengths"])
        accounts, rows = (
            slice(count // self._groups * group, count // self._groups * (group + 1))
            for count in counts
        )
        return accounts, rows

    def last_returns(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Number of ended episodes of each row, and the return of its last one; copies."""
        ended, returns = (self.running[name].cpu() for name in ("episodes", "last_returns"))
        return ended.numpy().copy(), returns.numpy().copy()

    def snapshot(self, group: int = 0) -> dict[str, NDArray[Any]]:
        """All that a later `restore` of a group continues from, by name."""
        accounts, rows = self._of_group(group)
        running = {name: each[rows].cpu().numpy().copy() for name, each in self.running.items()}
        return {
            **running,
            "cohorts": self.cohorts[accounts].sum(1).cpu().numpy(),
            "cohort_steps": np.array([self.cohort_steps, self._first_whole], np.int64),
            "next_cohorts": np.array(self._next_cohort[accounts], np.int64),
        }

    def restore(self, saved: Mapping[str, NDArray[Any]], now: int, group: int = 0) -> None:
        """Continue from a `snapshot` of as many rows and accounts, before step `now`."""
        accounts, rows = self._of_group(group)
        for name, tensor in self.running.items():
            tensor[rows] = torch.from_numpy(np.array(saved[name])).to(tensor)
        cohorts = self.cohorts[accounts]
        cohorts.zero_()
        steps, self._first_whole = map(int, saved["cohort_steps"])
        self._next_cohort[accounts] = [int(number) for number in saved["next_cohorts"]]
        if steps == self.cohort_steps:
            cohorts[:, 0] = torch.from_numpy(np.array(saved["cohorts"]))
        else:  # of another rollout: episodes count that begin later
            self._next_cohort[accounts] = [self._oldest_cohort(now, group)] * len(cohorts)
            self._first_whole = -(-now // self.cohort_steps)
