"""The groups of the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, Strict, field_validator
from typing_extensions import override

from aclearn.config._fields import Group, Whole
from aclearn.types.atari_ids import current_id


class AtariConfig(Group):
    """Preprocessing of Atari games; other environments reject these keys."""

    frame_skip: Whole = Field(
        default=4,
        ge=1,
        le=64,
        description="emulator frames for which an agent step repeats its action",
    )
    max_pool: bool = Field(
        default=True,
        description="take the pixel-wise maximum of the last two frames, since sprites flicker",
    )
    screen_size: Whole = Field(
        default=84, ge=36, le=512, description="height and width of the observed screen, in pixels"
    )
    frame_stack: Whole = Field(
        default=4, ge=1, le=16, description="frames in an observation, the newest included"
    )
    noop_max: Whole = Field(
        default=30,
        ge=0,
        le=1000,
        description="most idle emulator steps at the start of an episode, drawn uniformly from 0",
    )
    repeat_action_probability: float = Field(
        default=0.0,
        ge=0.0,
        le=1.0,
        description="probability of a sticky action in each emulator frame",
    )
    full_action_space: bool = Field(
        default=False,
        description="use all 18 actions of the console instead of the game's own",
    )
    fire_reset: bool = Field(
        default=True, description="press FIRE after a reset in games that wait for it"
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
        description="environment: an Atari game (ALE/Pong-v5), a gymnasium id (CartPole-v1), an "
        "id that a module registers (module:Name-v0), or a callable that returns a gymnasium.Env "
        "or a pettingzoo.ParallelEnv (module:factory). With vector: in front, a "
        "gymnasium.vector.VectorEnv (vector:module:factory)",
    )
    kwargs: dict[str, Any] = Field(
        default_factory=dict,
        repr=False,  # may hold a simulator's password
        description="keyword arguments of the environment; for Atari those of ale-py's "
        "AtariVectorEnv that neither env.atari nor another key sets",
    )
    frame_stack: Whole = Field(
        default=1,
        ge=1,
        le=16,
        description="images in an observation; Atari games use env.atari.frame_stack",
    )
    squash_actions: bool = Field(
        default=False,
        description="Box actions: bring sampled numbers between the bounds by tanh, instead of "
        "clipping them",
    )
    channels: Literal["first", "last"] | None = Field(
        default=None,
        description="axis of the channels of images with three axes; null: the one beside two "
        "axes of equal length, else the shorter of the first and the last",
    )
    ignore: Annotated[tuple[str, ...], Strict(False)] = Field(
        default=(),
        description="parts of Dict and Tuple observations that the policy does not see, by name: "
        "`mission`, `position.left`",
    )
    action_mask: str | None = Field(
        default=None,
        description="says which actions are allowed; the others are never taken. `info`: "
        '`info["action_mask"]` of each reset and step; `observation.mask`: the part `mask` of Dict '
        "observations, which the policy then does not see",
    )
    info_metrics: Annotated[tuple[str, ...], Strict(False)] = Field(
        default=(),
        max_length=16,
        description="numbers and flags that the environment puts into `info` at the end of an "
        "episode, by key: `success`, `episode.r`; `episode` stands for all numbers of that "
        "mapping. Their means over the newest episodes are `info_success` and so on",
    )
    clip_rewards: bool = Field(
        default=False,
        description="learn from rewards clipped to [-1, 1]; reported returns are unclipped",
    )
    life_loss_ends: bool = Field(
        default=False,
        description="learn as if a lost life ended the episode; the game continues",
    )
    atari: AtariConfig = Field(default_factory=AtariConfig)

    @field_validator("action_mask")
    @classmethod
    def _mask_is_somewhere(cls, mask: str | None) -> str | None:
        if mask in (None, "info") or re.fullmatch(r"observation\..+", str(mask)):
            return mask
        raise ValueError(f"expected info, observation.<name> or null, got {mask!r}")

    @field_validator("info_metrics")
    @classmethod
    def _keys_are_names(cls, keys: tuple[str, ...]) -> tuple[str, ...]:
        for key in keys:
            if not re.search(r"[^\W_]", key) or len(key) > 64:
                raise ValueError(
                    "expected a key of info with a letter or digit and at most 64 characters, "
                    f"got {key!r}"
                )
        return keys

    @field_validator("id")
    @classmethod
    def _atari_id_of_today(cls, env_id: str) -> str:
        return current_id(env_id)

    @property
    def is_atari(self) -> bool:
        """Whether the emulator's own vector environment plays this id."""
        return self.id.startswith("ALE/")

    @property
    def is_vector(self) -> bool:
        """Whether a `gymnasium.vector.VectorEnv` steps a whole group."""
        return self.id.startswith("vector:")

    @property
    def is_resident(self) -> bool:
        """Whether it is one of Warp functions (docs/resident.md)."""
        return self.id.startswith("resident:")

    @property
    def target(self) -> str:
        """The id without `vector:`."""
        return self.id.removeprefix("vector:")

    @property
    def mask_part(self) -> str | None:
        """Name of the part of observations that is the action mask; None: none is."""
        start, _, part = (self.action_mask or "").partition(".")
        return part if start == "observation" else None

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        if self.is_resident:
            for key in self.changed("frame_stack", "channels", "ignore", "action_mask"):
                yield f"env.{key}: resident environments have no such setting; remove it"
        if self.is_vector and self.action_mask is not None:
            yield "env.action_mask: masks of vector environments are not read; remove it"
        if not self.is_atari:
            not_one = f"{self.id} is not an Atari game (their ids start with ALE/)"
            if self.life_loss_ends:
                yield f"env.life_loss_ends: {not_one}, and only those tell of lives; remove it"
            if self.atari != AtariConfig():
                yield f"env.atari: {not_one}, so these keys would have no effect; remove them"
            return
        if self.frame_stack != 1:
            yield (
                f"env.frame_stack: {self.id} stacks its frames in the emulator; leave this at 1 "
                f"and set env.atari.frame_stack to {self.frame_stack}"
            )
        for key in self.changed("squash_actions", "action_mask"):
            yield (
                f"env.{key}: {self.id} is played with discrete actions that are all allowed; "
                "remove it"
            )
        for key in self.changed("channels", "ignore"):
            yield f"env.{key}: {self.id} shows one stack of grey images; remove it"
