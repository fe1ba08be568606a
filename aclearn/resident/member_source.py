"""The batches of one member, which plays together with others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from aclearn.learning import Batch, GradientWorker, StepAccount
from aclearn.learning.sources.source import BatchSource
from aclearn.resident import ResidentEnvs
from aclearn.resident.played import Played
from aclearn.types import OBSERVATION

_ENVS = "resident/"


def batch_of_groups(envs: ResidentEnvs) -> Batch:
    """The buffers, without a copy; tensors have the groups in front: `[M, T, B, …]`."""

    def apart(rows: Tensor) -> Tensor:
        return rows.view(len(rows), envs.groups, -1, *rows.shape[2:]).movedim(1, 0)

    b = envs.buffers
    return Batch(
        observations={OBSERVATION: apart(b.observations)},
        actions=apart(b.actions),
        behaviour_log_prob=apart(b.log_probs),
        rewards=apart(b.rewards),
        terminated=apart(b.terminated),
        truncated=apart(b.truncated),
        valid=apart(b.valid),
        versions=np.zeros(0, np.int64),
    )


class MemberSource(BatchSource):
    """What one group of environments plays.

    Args:
        group: number of the member's environments among those of `envs`.
    """

    plays = True

    def __init__(
        self,
        envs: ResidentEnvs,
        group: int,
        account: StepAccount,
        incarnation: str,
    ) -> None:
        self._envs, self._group = envs, group
        self._account, self._incarnation = account, incarnation
        self._played = Played(account, incarnation)
        self._saved: dict[str, NDArray[Any]] = {}

    def count(self, steps: int) -> None:
        """Count the rollouts since the last call, of so many valid steps, which are in flight then.

        Raises:
            EnvironmentFailure: a reward or an observation was out of range.
        """
        envs, group = self._envs, self._group
        self._played.watch(envs.take_sums(group), envs.take_cohorts(group))
        self._account.produced(self._incarnation, steps)

    @property
    def saved_steps(self) -> int:
        """Steps of its environments in the checkpoint that it continues; 0 without one."""
        return int(self._saved.get("steps", 0))

    def go_on(self) -> None:
        """Continue the episodes of the checkpoint, if they fit.

        Those of another number of environments, or after other steps than the other members', do
        not: new ones begin.
        """
        each = self._envs.num_envs // self._envs.groups
        fits = len(self._saved.get("lengths", ())) == each
        if fits and self.saved_steps == self._envs.steps:
            self._envs.restore(self._saved, self._group)

    @override
    def next(self, timeout_s: float, worker: GradientWorker) -> Batch | None:
        return None  # all members learn from `batch_of_groups`

    @override
    def take_episodes(self) -> dict[str, Any]:
        return self._played.take(self._envs.steps)

    @override
    def heartbeat_fields(self) -> dict[str, dict[str, Any]]:
        return self._played.heartbeat_fields()

    @override
    def state(self) -> dict[str, NDArray[Any]]:
        snapshot = self._envs.snapshot(self._group)
        return {f"{_ENVS}{name}": array for name, array in snapshot.items()}

    @override
    def restore(self, saved: Mapping[str, NDArray[Any]]) -> None:
        """Kept until `go_on`, when all members are known."""
        self._account.close_all()
        self._saved = {
            name.removeprefix(_ENVS): array
            for name, array in saved.items()
            if name.startswith(_ENVS)
        }
