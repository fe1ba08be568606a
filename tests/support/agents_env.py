"""Environments of several agents on PettingZoo's parallel API."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

#: Agent → first and last step of its episode; the environment's ends with the last one.
LIVES = {"red": (0, 4), "green": (0, 2), "blue": (1, 4)}
POINTS = {"red": 1.0, "green": 10.0, "blue": 100.0}


class Relay(ParallelEnv[str, Any, Any]):
    """Agents come and leave as in `LIVES`; an observation is [instance, episode, agent, step].

    Args:
        fault: how the first instance fails; the name of a space: its second episode has another.
        at: step of the failure in its first episode; 0: in reset.
        spaces_differ: of blue: "observations" or "actions".
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "relay"}
    instances: ClassVar[list[Relay]] = []

    def __init__(self, *, fault: str = "", at: int = 0, spaces_differ: str = "") -> None:
        self.number = len(self.instances)
        self.instances.append(self)
        self.possible_agents = list(LIVES)
        self.agents: list[str] = []
        self.seeds: list[int | None] = []
        self.received: list[dict[str, Any]] = []
        self._fault, self._at = fault if self.number == 0 else "", at
        self._differ, self._episode, self._step = spaces_differ, -1, 0

    def observation_space(self, agent: str) -> Any:
        other = (agent, self._differ) == ("blue", "observations")
        width = 5 if other or self._changed("observation_space") else 4
        return spaces.Box(-1e9, 1e9, (width,), np.float32)

    def action_space(self, agent: str) -> Any:
        other = (agent, self._differ) == ("blue", "actions")
        return spaces.Discrete(4 if other or self._changed("action_space") else 3)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.seeds.append(seed)
        self._episode += 1
        self._step = 0
        self.agents = [agent for agent, (first, _) in LIVES.items() if first == 0]
        shown = {agent: self._show(agent) for agent in self.agents}
        if self._fails("raise"):
            raise RuntimeError("the field is wet")
        if self._fails("nobody"):
            shown = {}
        return shown, {agent: self._info() for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        self.received.append(dict(actions))
        assert set(actions) == set(self.agents)
        self._step += 1
        t = self._step
        if self._fails("raise"):
            raise RuntimeError("the field is wet")
        acted = list(self.agents)
        self.agents = [agent for agent, (first, last) in LIVES.items() if first <= t < last]
        seen = [agent for agent in LIVES if agent in acted or agent in self.agents]
        shown = {agent: self._show(agent) for agent in seen}
        rewards = {agent: t * POINTS[agent] for agent in acted}
        ends = {agent: LIVES[agent][1] == t for agent in seen}
        terminated = {agent: ends[agent] and agent != "blue" for agent in seen}
        truncated = {agent: ends[agent] and agent == "blue" for agent in seen}
        if self._fails("nan observation"):
            shown["red"][0] = np.nan
        if self._fails("nan reward"):
            rewards["red"] = np.nan
        if self._fails("agent missing"):
            del shown["red"]
        if self._fails("agent leaves"):
            self.agents.remove("red")
        if self._fails("agent unknown"):
            shown["grey"] = shown["red"]
        return shown, rewards, terminated, truncated, {agent: self._info() for agent in seen}

    def _show(self, agent: str) -> Any:
        place = self.possible_agents.index(agent)
        return np.array([self.number, self._episode, place, self._step], np.float32)

    def _info(self) -> dict[str, Any]:
        return {"action_mask": np.arange(3) != self._step % 3}

    def _changed(self, space: str) -> bool:
        return self._fault == space and self._episode > 0

    def _fails(self, fault: str) -> bool:
        return self._fault == fault and self._step == self._at and self._episode == 0


class UnevenRelay(Relay):
    """`Relay` in which blue has spaces of its own: 5 numbers, the last of them 7, and 4 actions."""

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-1e9, 1e9, (5 if agent == "blue" else 4,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(4 if agent == "blue" else 3)

    def _show(self, agent: str) -> Any:
        shown = super()._show(agent)
        return np.append(shown, np.float32(7)) if agent == "blue" else shown


class Faulty(Relay):
    """`Relay` of which every instance fails."""

    def __init__(self, *, fault: str, at: int) -> None:
        super().__init__(fault=fault, at=at)
        self._fault = fault


class Pairs(ParallelEnv[str, Any, Any]):
    """Each of two agents is shown its own number of 3 and gets 1 for repeating it.

    The second agent leaves after half of the 8 steps.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "pairs"}
    best = (8 + 4) / 2

    def __init__(self) -> None:
        self.possible_agents = ["long", "short"]
        self._rng = np.random.default_rng()

    def observation_space(self, agent: str) -> Any:
        return _SEEN

    def action_space(self, agent: str) -> Any:
        return _CHOICE

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.agents, self._step = list(self.possible_agents), 0
        return self._next(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        self._step += 1
        acted, wanted = self.agents, self._wanted
        rewards = {agent: float(np.all(actions[agent] == wanted[agent])) for agent in acted}
        shown = self._next()
        ends = {agent: self._step == (8 if agent == "long" else 4) for agent in acted}
        self.agents = [agent for agent in acted if not ends[agent]]
        return shown, rewards, ends, dict.fromkeys(acted, False), {agent: {} for agent in acted}

    def _next(self) -> dict[str, Any]:
        self._wanted = {agent: int(self._rng.integers(3)) for agent in self.agents}
        return {agent: np.eye(3, dtype=np.float32)[n] for agent, n in self._wanted.items()}


class Uneven(Pairs):
    """`Pairs` of which each agent has spaces of its own: "long" has 3 numbers, "short" has 4."""

    counts: ClassVar[dict[str, int]] = {"long": 3, "short": 4}

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0.0, 1.0, (self.counts[agent],), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(self.counts[agent])

    def _next(self) -> dict[str, Any]:
        self._wanted = {a: int(self._rng.integers(self.counts[a])) for a in self.agents}
        return {a: np.eye(self.counts[a], dtype=np.float32)[n] for a, n in self._wanted.items()}


class Steer(Pairs):
    """`Pairs` with a number as action."""

    def action_space(self, agent: str) -> Any:
        return _NUMBER


_SEEN = spaces.Box(0.0, 1.0, (3,), np.float32)
_CHOICE = spaces.Discrete(3)
_NUMBER = spaces.Box(-1.0, 1.0, (1,), np.float32)
