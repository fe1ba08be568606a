"""Continuous Tag in NumPy for M environments at once: the rules of WarpDrive's CPU class.

Plain and slow: all pairs of agents, every agent's observation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Arrays = NDArray[Any]
#: Fields of a state: `[M, agents]` each, and "time" `[M]`.
State = Mapping[str, Arrays]


class Step(NamedTuple):
    """What a step reached; observations `[M, n, D]`, rewards `[M, n]`, the ends `[M]`."""

    state: dict[str, Arrays]
    observations: Arrays
    rewards: Arrays
    terminated: Arrays
    truncated: Arrays


@dataclass(frozen=True)
class TagContinuous:
    """The rules; defaults are those of WarpDrive's constructor.

    Attributes:
        types: of each agent, 1 for taggers and 0 for runners.
    """

    types: tuple[int, ...]
    grid_length: float = 10.0
    episode_length: int = 100
    max_acceleration: float = 1.0
    min_acceleration: float = -1.0
    max_turn: float = math.pi / 2
    min_turn: float = -math.pi / 2
    num_acceleration_levels: int = 10
    num_turn_levels: int = 10
    max_speed: float = 1.0
    skill_level_tagger: float = 1.0
    skill_level_runner: float = 1.0
    tagging_distance: float = 0.01
    edge_hit_penalty: float = 0.0
    step_penalty_for_tagger: float = 0.0
    step_reward_for_runner: float = 0.0
    tag_reward_for_tagger: float = 1.0
    tag_penalty_for_runner: float = -1.0
    end_of_game_reward_for_runner: float = 1.0
    use_full_observation: bool = True
    num_other_agents_observed: int = 2
    runner_exits_game_after_tagged: bool = True
    continuous_actions: bool = False

    def acceleration_actions(self) -> Arrays:
        """Changes of acceleration by number of the action."""
        return _levels(self.min_acceleration, self.max_acceleration, self.num_acceleration_levels)

    def turn_actions(self) -> Arrays:
        """Changes of direction by number of the action."""
        return _levels(self.min_turn, self.max_turn, self.num_turn_levels)

    def begin(self, x: Arrays, y: Arrays, direction: Arrays) -> dict[str, Arrays]:
        """The first state of M episodes, from numbers `[M, n]`."""
        zeros = np.zeros(np.shape(x), np.float32)
        return {
            "x": np.asarray(x, np.float32),
            "y": np.asarray(y, np.float32),
            "direction": np.asarray(direction, np.float32),
            "speed": zeros,
            "acceleration": zeros.copy(),
            "in_game": np.ones(np.shape(x), np.int32),
            "time": np.zeros(len(x), np.int32),
        }

    def step(self, state: State, actions: Arrays) -> Step:
        """One step.

        Args:
            actions: `[M, n, 2]`, numbers of a change of acceleration and of a turn.
        """
        changes = self.acceleration_actions()[actions[..., 0]]
        return self.move(state, changes, self.turn_actions()[actions[..., 1]])

    def move(self, state: State, changes: Arrays, turns: Arrays) -> Step:
        """One step by changes of acceleration and direction, `[M, n]` float32."""
        in_game, time = state["in_game"], state["time"] + 1
        direction = (state["direction"] + turns) % np.float32(2 * math.pi) * np.float32(in_game)
        acceleration = state["acceleration"] + changes
        tagger = np.array(self.types) == 1
        skills = np.where(tagger, self.skill_level_tagger, self.skill_level_runner)
        fastest = np.float32(self.max_speed * skills)
        speed = np.clip(state["speed"] + acceleration, 0, fastest) * np.float32(in_game)
        acceleration = acceleration * (speed > 0) * (speed < fastest)
        x = state["x"] + speed * np.cos(direction)
        y = state["y"] + speed * np.sin(direction)
        side = np.float32(self.grid_length)
        outside = (x < 0) | (x > side) | (y < 0) | (y > side)
        x, y = np.clip(x, 0, side), np.clip(y, 0, side)
        after = {
            "x": x,
            "y": y,
            "direction": direction,
            "speed": speed,
            "acceleration": acceleration,
            "in_game": in_game,
            "time": time,
        }
        observations = self.observe(after)  # before this step's tags
        last = time >= self.episode_length
        rewards, left = self._tag(after, outside, last)
        after["in_game"] = in_game * ~left
        terminated = (after["in_game"] * ~tagger).sum(1) == 0
        return Step(after, observations, rewards, terminated, last & ~terminated)

    def observe(self, state: State) -> Arrays:
        """Observations `[M, n, D]`."""
        n = len(self.types)
        diagonal = np.float32(math.sqrt(2) * self.grid_length)
        fastest = np.float32(self.max_speed + 1e-10)
        units = {"x": diagonal, "y": diagonal, "speed": fastest, "acceleration": fastest}
        scaled = [state[name] / unit for name, unit in units.items()]
        scaled.append(state["direction"] / np.float32(2 * math.pi))
        relative = np.stack([column[:, None, :] - column[:, :, None] for column in scaled], 2)
        in_game = state["in_game"]
        types = np.broadcast_to(np.asarray(self.types, np.float32), in_game.shape)
        flags = np.stack([types, np.float32(in_game)], 1)[:, None].repeat(n, 1)
        time = (state["time"] / self.episode_length).astype(np.float32)
        if self.use_full_observation:
            here = in_game[:, :, None, None] == 1
            features = np.concatenate([np.where(here, relative, 0), flags], 2)  # [M, n, 7, n]
            others = np.array([[j for j in range(n) if j != i] for i in range(n)])
            features = np.take_along_axis(features, others[None, :, None, :], 3)
        else:
            k = self.num_other_agents_observed
            dx, dy = (state[axis][:, None, :] - state[axis][:, :, None] for axis in "xy")
            distance = np.sqrt(dx * dx + dy * dy)
            absent = (in_game[:, None, :] == 0) | np.eye(n, dtype=bool)
            distance[absent] = np.inf
            nearest = np.argsort(distance, 2, kind="stable")[..., :k]  # ties: the lowest id
            features = np.concatenate([relative, flags], 2)
            features = np.take_along_axis(features, nearest[:, :, None, :], 3)
            seen = np.isfinite(np.take_along_axis(distance, nearest, 2))
            features = features * seen[:, :, None, :] * in_game[:, :, None, None]
            features = np.pad(features, [(0, 0)] * 3 + [(0, k - features.shape[3])])
        features = features.reshape(len(in_game), n, -1)
        return np.concatenate([features, (time[:, None] * in_game)[..., None]], 2).astype("f4")

    def _tag(self, state: State, outside: Arrays, last: Arrays) -> tuple[Arrays, Arrays]:
        """Rewards, and who leaves the game, `[M, n]` each."""
        in_game = state["in_game"]
        tagger = np.array(self.types) == 1
        each = np.where(tagger, self.step_penalty_for_tagger, self.step_reward_for_runner)
        rewards = in_game * (self.edge_hit_penalty * outside + each)
        left = np.zeros(in_game.shape, bool)
        taggers = np.flatnonzero(tagger)
        reach = np.float32(self.tagging_distance * self.grid_length)
        for runner in np.flatnonzero(~tagger):
            dx, dy = (state[a][:, [runner]] - state[a][:, taggers] for a in "xy")
            distance = np.sqrt(dx * dx + dy * dy)
            tagged = (distance.min(1) < reach) & (in_game[:, runner] == 1)
            rewards[tagged, runner] += self.tag_penalty_for_runner
            by = taggers[distance.argmin(1)]
            rewards[tagged, by[tagged]] += self.tag_reward_for_tagger
            left[:, runner] = tagged & self.runner_exits_game_after_tagged
            stays = last & (in_game[:, runner] == 1) & ~left[:, runner]
            rewards[stays, runner] += self.end_of_game_reward_for_runner
        return rewards, left


def _levels(least: float, most: float, count: int) -> Arrays:
    """No change first, then `count` levels."""
    return np.insert(np.linspace(np.float32(least), np.float32(most), count), 0, 0.0).astype(
        np.float32
    )
