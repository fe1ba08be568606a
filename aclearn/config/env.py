"""What is played and what plays it: the groups `env` and `policy`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, Strict, field_validator

from aclearn.config._fields import Group, Whole
from aclearn.types.atari_ids import current_id


class AtariConfig(Group):
    """How a game of the Arcade Learning Environment is prepared; others refuse these keys."""

    frame_skip: Whole = Field(
        default=4,
        ge=1,
        le=64,
        description="emulator frames that one agent step repeats its action for",
    )
    max_pool: bool = Field(
        default=True,
        description="take the brighter of the last two frames, pixel by pixel, "
        "since sprites may flicker",
    )
    screen_size: Whole = Field(
        default=84, ge=36, le=512, description="height and width of the observed screen, in pixels"
    )
    frame_stack: Whole = Field(
        default=4, ge=1, le=16, description="newest frames that one observation shows, in frames"
    )
    noop_max: Whole = Field(
        default=30,
        ge=0,
        le=1000,
        description="most idle emulator steps at the start of an episode, drawn evenly from 0",
    )
    repeat_action_probability: float = Field(
        default=0.0,
        ge=0.0,
        le=1.0,
        description="probability of a sticky action in each emulator frame",
    )
    full_action_space: bool = Field(
        default=False,
        description="offer all 18 actions of the console instead of those the game knows",
    )
    fire_reset: bool = Field(
        default=True, description="press FIRE after a reset in the games that wait for it"
    )
    max_episode_frames: Whole = Field(
        default=108_000,
        ge=1,
        description="length at which an episode is truncated, in emulator frames",
    )


class EnvConfig(Group):
    """The environment."""

    id: Annotated[str, Strict()] = Field(
        min_length=1,
        max_length=200,
        description="what to play: an Atari game (ALE/Pong-v5), any id that gymnasium knows "
        "(CartPole-v1) or a module registers (module:Name-v0), or a callable of yours that returns "
        "a gymnasium.Env (module:factory)",
    )
    kwargs: dict[str, Any] = Field(
        default_factory=dict,
        repr=False,  # may hold a simulator's password
        description="keyword arguments for the maker of the environment; for Atari games those of "
        "ale-py's AtariVectorEnv, which go before env.atari",
    )
    frame_stack: Whole = Field(
        default=1,
        ge=1,
        le=16,
        description="newest images that one observation shows, in images; "
        "Atari games use env.atari.frame_stack instead",
    )
    clip_rewards: bool = Field(
        default=False,
        description="learn from rewards clipped to [-1, 1]; reported returns stay unclipped",
    )
    life_loss_ends: bool = Field(
        default=False,
        description="learn as if losing a life ended the episode; the game itself goes on",
    )
    atari: AtariConfig = Field(default_factory=AtariConfig)

    @field_validator("id")
    @classmethod
    def _atari_id_of_today(cls, env_id: str) -> str:
        return current_id(env_id)

    @property
    def is_atari(self) -> bool:
        """Whether the emulator's own vector environment plays this id."""
        return self.id.startswith("ALE/")
