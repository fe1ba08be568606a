"""Tag on a grid in NumPy, on PettingZoo's parallel API: the rules of WarpDrive's CPU class."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

_MOVES = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])


class TagGridworld(ParallelEnv[str, Any, Any]):  # type: ignore[misc] # no types of PettingZoo
    """Taggers and one runner; the settings are those of the resident world."""

    metadata: ClassVar[dict[str, Any]] = {"name": "tag_gridworld"}

    def __init__(
        self,
        *,
        num_taggers: int = 10,
        grid_length: int = 10,
        episode_length: int = 100,
        wall_hit_penalty: float = 0.1,
        tag_reward_for_tagger: float = 10.0,
        tag_penalty_for_runner: float = 2.0,
        step_cost_for_tagger: float = 0.01,
        use_full_observation: bool = True,
    ) -> None:
        self.possible_agents = [*(f"tagger_{i}" for i in range(num_taggers)), "runner_0"]
        self._n, self._L, self._T = num_taggers + 1, grid_length, episode_length
        self._wall, self._step_cost = wall_hit_penalty, step_cost_for_tagger
        self._tag, self._tagged = tag_reward_for_tagger, tag_penalty_for_runner
        self._full = use_full_observation
        size = 4 * self._n + 1 if use_full_observation else 6
        self._observations = spaces.Box(0.0, np.inf, (size,), np.float32)

    def observation_space(self, agent: str) -> Any:
        return self._observations

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(5)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        self.places = np.full((self._n, 2), self._L // 2)
        self.places[-1] = 0
        self.time = 0
        return self._shown(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        self.time += 1
        taken = np.array([actions[agent] for agent in self.possible_agents])
        wanted = self.places + _MOVES[taken]
        self.places = wanted.clip(0, self._L)
        rewards = -self._wall * (self.places != wanted).any(1).astype(float)
        tagged = bool((self.places[:-1] == self.places[-1]).all(1).any())
        rewards[:-1] += self._tag if tagged else -self._step_cost
        rewards[-1] += -self._tagged if tagged else self._step_cost
        over = self.time >= self._T and not tagged
        acted = self.agents
        if tagged or over:
            self.agents = []
        return (
            self._shown(),
            dict(zip(acted, rewards.tolist(), strict=True)),
            dict.fromkeys(acted, tagged),
            dict.fromkeys(acted, over),
            {agent: {} for agent in acted},
        )

    def _shown(self) -> dict[str, Any]:
        places, n, runner = self.places / self._L, self._n, self._n - 1
        kinds, time = np.eye(n)[runner], [self.time / self._T]
        shown = {}
        for a, agent in enumerate(self.possible_agents):
            if self._full:
                parts = [places[:, 0], places[:, 1], kinds, np.eye(n)[a], time]
            else:
                distances = ((self.places[:-1] - self.places[-1]) ** 2).sum(1)
                other = int(distances.argmin()) if a == runner else runner
                parts = [places[a], places[other], [kinds[a]], time]
            shown[agent] = np.concatenate(parts).astype(np.float32)
        return shown
