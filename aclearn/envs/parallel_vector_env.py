"""Environments of several agents: PettingZoo's parallel API, one row for each agent."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from aclearn.envs.contract import (
    ContractError,
    begin_episode,
    flag_of,
    info_of,
    reward_of,
    step_result,
)
from aclearn.envs.restarting import RestartingEnvs
from aclearn.envs.sync_vector_env import SyncVectorEnv
from aclearn.errors import EnvironmentFailure
from aclearn.types.env_spec import Bools

if TYPE_CHECKING:
    from aclearn.config import EnvConfig


def is_parallel(env: Any) -> bool:
    """Whether it is a `pettingzoo.ParallelEnv`; never imports pettingzoo."""
    pettingzoo = sys.modules.get("pettingzoo")
    return pettingzoo is not None and isinstance(env, pettingzoo.ParallelEnv)


class ParallelVectorEnv(SyncVectorEnv):
    """Environments of the same A possible agents, which one policy plays: row e·A + a of B.

    An agent's episode begins with its first observation and ends when it is terminated or
    truncated. From then on its steps are resets without an action, until it appears again: at the
    latest when the environment, after the end of its last agent, is reset as a whole. A failure of
    the environment or of one agent's numbers drops the running episodes of all its agents.

    Raises:
        EnvironmentFailure: also if the agents have different spaces.
    """

    def __init__(self, group: RestartingEnvs, env: EnvConfig) -> None:
        super().__init__(group, env)
        #: Where an agent has an episode.
        self._playing = np.zeros(self.num_envs, np.bool_)
        #: The newest observation of each row: shown again while there is none.
        self._last: list[Any] = [None] * self.num_envs

    def _spaces(self) -> tuple[Any, Any, int]:
        observations, actions = self._spaces_by_agent()
        for what, spaces in (("observations", observations), ("actions", actions)):
            _check_equal(self._group.name, what, spaces)
        first = self._agents[0]
        return observations[first], actions[first], len(self._agents)

    def _spaces_by_agent(self) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """The observation and the action space of each agent, in the order of rows."""
        first = self._group.envs[0]
        self._agents = list(getattr(first, "possible_agents", None) or ())
        if not self._agents:
            raise EnvironmentFailure(
                f"environment {self._group.name}: its possible_agents are missing; each of them is "
                "a row"
            )
        observations = {agent: first.observation_space(agent) for agent in self._agents}
        return observations, {agent: first.action_space(agent) for agent in self._agents}

    def _begin_episode(self, e: int, seed: int | None) -> None:
        env = self._group.envs[e]
        self._taken[e] = 0
        shown, infos = begin_episode(env, seed)
        self._check_known(shown)
        for agent in self._agents:
            self._check_agent_spaces(agent, env.observation_space(agent), env.action_space(agent))
        if not shown:
            raise ContractError("agents", "reset: no agent has an observation")
        agent = None
        try:
            for b, agent in self._rows(e):
                self._playing[b] = agent in shown
                self._last[b] = shown.get(agent)
                if agent in shown:
                    self._write_first(b, shown[agent], info_of(infos.get(agent, {})))
                else:
                    self._wait(b)
        except ContractError as error:
            raise _named(agent, error) from error

    def _step_one(
        self,
        e: int,
        actions: Sequence[Any],
        idle: list[bool],
        rewards: NDArray[np.float64],
        terminated: Bools,
        truncated: Bools,
    ) -> None:
        rows = self._rows(e)
        taken = {agent: actions[b] for b, agent in rows if not idle[b]}
        if not taken:
            self._begin_episode(e, None)
            return
        env = self._group.envs[e]
        self._taken[e] += 1
        shown, rewarded, terminal, cut, infos = step_result(env.step(taken))
        self._check_known(shown)
        agent: Any = None
        try:
            for b, agent in rows:
                over = flag_of(terminal.get(agent, False), "terminated")
                limited = flag_of(cut.get(agent, False), "truncated")
                ends = over or limited
                if agent in taken:
                    if agent not in shown or agent not in rewarded:
                        said = "it acted in a step, and its observation or reward is missing"
                        raise ContractError("agents", said)
                    if not ends and agent not in env.agents:
                        said = "it left in a step, and was neither terminated nor truncated"
                        raise ContractError("agents", said)
                    self._last[b] = shown[agent]
                    self._layout.write(b, shown[agent])
                    info = info_of(infos.get(agent, {}))
                    self._write_mask(b, shown[agent], info, terminal=over)
                    if ends:
                        self._infos[b] = info
                    rewards[b] = reward_of(rewarded[agent])
                    terminated[b], truncated[b] = over, limited
                    self._playing[b] = not ends
                elif agent in shown and agent in env.agents and not ends:
                    self._last[b] = shown[agent]
                    self._write_first(b, shown[agent], info_of(infos.get(agent, {})))
                    self._playing[b] = True
                else:
                    self._wait(b)
        except ContractError as error:
            raise _named(agent, error) from error

    def _idle_after(self, ended: Bools) -> Bools:
        return ~self._playing

    def _wait(self, b: int) -> None:
        """Write something into the row of an agent without an episode; before its first, zeros."""
        if self._last[b] is not None:
            self._layout.write_first(b, self._last[b])
        if self.masks is not None:
            self.masks[b] = True

    def _check_agent_spaces(self, agent: Any, observations: Any, actions: Any) -> None:
        self._check_spaces(observations, actions)

    @override
    def _out_of_range(self, rewards: NDArray[np.float64]) -> Iterator[tuple[int, ContractError]]:
        for b, error in super()._out_of_range(rewards):
            yield b, _named(self._agents[b % len(self._agents)], error)

    def _rows(self, e: int) -> list[tuple[int, Any]]:
        """Row and agent of each of environment e's agents."""
        return list(enumerate(self._agents, e * len(self._agents)))

    def _check_known(self, shown: Mapping[Any, Any]) -> None:
        unknown = [agent for agent in shown if agent not in self._agents]
        if unknown:
            raise ContractError("agents", f"{unknown[0]} is not among possible_agents")


def _named(agent: Any, error: ContractError) -> ContractError:
    return ContractError(error.reason, f"agent {agent}: {error}")


def _check_equal(name: str, what: str, spaces: Mapping[Any, Any]) -> None:
    first, *others = spaces
    for other in others:
        if spaces[other] != spaces[first]:
            raise EnvironmentFailure(
                f"environment {name}: one policy plays all its agents, and their {what} differ: "
                f"{spaces[first]} of {first}, {spaces[other]} of {other}. Give them policies of "
                "their own (policies), or wrap the environment so that they are equal"
            )
