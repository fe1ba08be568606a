"""The rules of continuous Tag by WarpDrive's keys, and the state after a reset."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from aclearn.config import Group, Whole
from aclearn.errors import ArgumentError

_START = ("agent_types", "start_x", "start_y", "start_direction")


class TagRules(Group):
    """WarpDrive's keys of continuous Tag, with the defaults of its class `TagContinuous`."""

    num_taggers: Whole = Field(1, ge=1, description="agents that hunt")
    num_runners: Whole = Field(10, ge=1, description="agents that flee")
    grid_length: float = Field(10.0, gt=0, description="side of the square, the unit of lengths")
    episode_length: Whole = Field(100, ge=1, description="steps of an episode")
    max_acceleration: float = Field(1.0, description="largest change of acceleration in a step")
    min_acceleration: float = Field(-1.0, description="least change of acceleration in a step")
    max_turn: float = Field(math.pi / 2, description="largest change of direction [rad]")
    min_turn: float = Field(-math.pi / 2, description="least change of direction [rad]")
    num_acceleration_levels: Whole = Field(10, ge=1, description="choices besides no change")
    num_turn_levels: Whole = Field(10, ge=1, description="choices besides no change")
    continuous_actions: bool = Field(
        False, description="an action is any two changes within their bounds"
    )
    max_speed: float = Field(1.0, gt=0, description="in a step, times an agent's skill level")
    skill_level_tagger: float = Field(1.0, gt=0, description="of all taggers")
    skill_level_runner: float = Field(1.0, gt=0, description="of all runners")
    tagging_distance: float = Field(0.01, ge=0, description="share of grid_length")
    edge_hit_penalty: float = Field(0.0, le=0, description="reward of a step against an edge")
    step_penalty_for_tagger: float = Field(0.0, le=0, description="reward of each step")
    step_reward_for_runner: float = Field(0.0, ge=0, description="reward of each step")
    tag_reward_for_tagger: float = Field(1.0, ge=0, description="of each runner that it tags")
    tag_penalty_for_runner: float = Field(-1.0, le=0, description="reward of being tagged")
    end_of_game_reward_for_runner: float = Field(
        1.0, ge=0, description="for being in the game at the time limit"
    )
    use_full_observation: bool = Field(True, description="an agent observes all others")
    num_other_agents_observed: Whole = Field(
        2, ge=1, description="the nearest, without use_full_observation"
    )
    runner_exits_game_after_tagged: bool = Field(True, description="else it stays")

    @model_validator(mode="after")
    def _ordered(self) -> TagRules:
        for what in ("acceleration", "turn"):
            least, most = getattr(self, f"min_{what}"), getattr(self, f"max_{what}")
            if least > most:
                raise ValueError(f"min_{what}: expected at most max_{what} = {most}, got {least}")
        return self

    @property
    def agents(self) -> int:
        """A."""
        return self.num_taggers + self.num_runners

    @property
    def observation_size(self) -> int:
        """D."""
        full, near = self.agents - 1, self.num_other_agents_observed
        return 7 * (full if self.use_full_observation else near) + 1

    def levels(self, what: str) -> NDArray[np.float32]:
        """The changes of "acceleration" or "turn" by number of the action; the first is none."""
        least, most = (np.float32(getattr(self, f"{end}_{what}")) for end in ("min", "max"))
        count = getattr(self, f"num_{what}_levels")
        return np.insert(np.linspace(least, most, count), 0, 0.0).astype(np.float32)


@dataclass(frozen=True)
class Start:
    """The state after each reset, `[A]`: whether an agent is a tagger, and where it is."""

    tagger: NDArray[np.bool_]
    x: NDArray[np.float32]
    y: NDArray[np.float32]
    direction: NDArray[np.float32]

    @classmethod
    def of(cls, given: Mapping[str, Any], rules: TagRules) -> Start:
        """The start of these arrays.

        Raises:
            ArgumentError: they do not fit the rules.
        """
        for mistake in _mistakes(given, rules):
            raise ArgumentError(f"tag_continuous: start: {mistake}")
        types, x, y, direction = (np.asarray(given[name], np.float32) for name in _START)
        return cls(types == 1.0, x, y, direction)


def _mistakes(given: Mapping[str, Any], rules: TagRules) -> Iterator[str]:
    if set(given) != set(_START):
        yield f"expected {', '.join(_START)}, got {', '.join(given) or 'none'}"
        return
    for name in _START:
        array = np.asarray(given[name])
        if array.shape != (rules.agents,) or array.dtype.kind not in "iuf":
            yield f"{name}: expected {rules.agents} numbers, one for each agent, got {array!r}"
        elif name == "agent_types":
            if set(array.tolist()) - {0, 1} or array.sum() != rules.num_taggers:
                yield (
                    f"{name}: expected 1 for num_taggers = {rules.num_taggers} agents and 0 for "
                    f"the others, got {array.tolist()}"
                )
        elif not np.isfinite(array).all():
            yield f"{name}: expected finite numbers, got {array.tolist()}"
        elif name != "start_direction" and not ((array >= 0) & (array <= rules.grid_length)).all():
            yield f"{name}: expected 0 to {rules.grid_length} (grid_length), got {array.tolist()}"
