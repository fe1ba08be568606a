"""The rows of one of several policies among those of a kind of agents."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from aclearn.errors import ConfigError
from aclearn.resident.rows import Rows
from aclearn.resident.slices import Slice
from aclearn.types import EnvSpec


class PolicyRows:
    """Row e·A + j of a policy of A agents is that of its agent j in environment e.

    Args:
        kind: the rows of all agents of this kind.
        agents: numbers of the policy's agents in it, in growing order.

    Attributes:
        place: number of the kind.
    """

    def __init__(self, kind: Rows, agents: Sequence[int], place: int = 0) -> None:
        self.kind, self.agents, self.place = kind, len(agents), place
        first, last = agents[0], agents[-1] + 1
        together = last - first == len(agents)
        # a slice is a view, and all agents of a kind are not even copied
        self._which: slice | Tensor = (
            slice(first, last)
            if together
            else torch.tensor(agents, device=kind.buffers.rewards.device)
        )

    def of(self, rows: Tensor, part: Slice | None = None) -> Tensor:
        """The policy's rows `[n·A, …]` of the kind's `[N·A_kind, …]`.

        Args:
            part: of the environments; None: all.
        """
        each = self._by_agent(rows, part)[:, self._which]
        return each.reshape(-1, *rows.shape[1:])

    def of_steps(self, rows: Tensor) -> Tensor:
        """The policy's rows `[T, n·A, …]` of the kind's `[T, N·A_kind, …]`."""
        T, A = len(rows), self.kind.agents
        each = rows.view(T, rows.shape[1] // A, A, *rows.shape[2:])[:, :, self._which]
        return each.reshape(T, -1, *rows.shape[2:])

    def write(self, rows: Tensor, values: Tensor, part: Slice | None = None) -> None:
        """Write the policy's rows `[n·A, …]` into the kind's."""
        into = self._by_agent(rows, part)
        into[:, self._which] = values.view(len(into), self.agents, *values.shape[1:])

    def _by_agent(self, rows: Tensor, part: Slice | None) -> Tensor:
        A = self.kind.agents
        if part is not None:
            rows = rows[A * part.first : A * (part.first + part.size)]
        return rows.view(len(rows) // A, A, *rows.shape[1:])


def kind_of(policy: str, agents: Collection[str], kinds: Mapping[str, Collection[str]]) -> str:
    """The name of the kind of a policy's agents.

    Args:
        kinds: name → agents.

    Raises:
        ConfigError: they are of several kinds.
    """
    found = [name for name, its in kinds.items() if {*agents} & {*its}]
    if len(found) != 1:
        raise ConfigError(
            f"policies.{policy}.agents: its agents are of the kinds {', '.join(found) or 'none'}, "
            "and a policy of resident environments has agents of one; give them policies of their "
            "own"
        )
    return found[0]


def rows_by_policy(kinds: Sequence[Rows], policies: Mapping[str, EnvSpec]) -> dict[str, PolicyRows]:
    """Policy → its rows among those of the kinds.

    Args:
        policies: policy → specification of its agents, as of `EnvSpec.by_policy`.

    Raises:
        ConfigError: the agents of a policy are of several kinds.
    """
    found, names = {}, {kind.name: kind.spec.agent_names for kind in kinds}
    for policy, spec in policies.items():
        place = [*names].index(kind_of(policy, spec.agent_names, names))
        its = kinds[place].spec.agent_names
        agents = [j for j, name in enumerate(its) if name in spec.agent_names]
        found[policy] = PolicyRows(kinds[place], agents, place)
    return found
