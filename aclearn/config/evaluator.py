"""The group `evaluator`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field
from typing_extensions import override

from aclearn.config._check import check
from aclearn.config._fields import Group, Whole
from aclearn.config.env import EnvConfig

_ENV = "evaluator.env"
_MOST_ENVS = 16


class EvaluatorConfig(Group):
    """The process that plays in environments of its own while training goes on.

    There is none without every_s or every_steps (docs/evaluator.md). A population is judged by the
    other keys at the end of each round (docs/populations.md).
    """

    every_s: float | None = Field(
        default=None,
        gt=0.0,
        le=86_400.0,
        description="time between the starts of two evaluations, in seconds; null: no evaluator, "
        "or the one of evaluator.every_steps",
    )
    every_steps: Whole | None = Field(
        default=None,
        ge=1,
        description="the same in agent steps, as run.max_env_steps counts them, in place of "
        "evaluator.every_s; run.deterministic needs it",
    )
    episodes: Whole = Field(default=20, ge=1, le=10_000, description="episodes of an evaluation")
    greedy: bool = Field(
        default=False,
        description="take the most probable action instead of sampling; of action values, such as "
        "those of dqn, always the best",
    )
    env: dict[str, Any] = Field(
        default_factory=dict,
        repr=False,  # env.kwargs may hold a simulator's password
        description="keys of env with other values, for instance kwargs: {level: 2}; those of "
        "kwargs and atari that are not named here stay. The spaces must be the run's",
    )
    cpu_share: float = Field(
        default=0.25,
        gt=0.0,
        le=1.0,
        description="largest mean share of one core that the evaluator uses",
    )
    stop_after: Whole | None = Field(
        default=None,
        ge=1,
        description="evaluations without a better mean than the best so far that end the run; "
        "null: it does not end by them",
    )
    keep: Whole = Field(
        default=0,
        ge=0,
        le=1000,
        description="checkpoints of evaluated policies to keep for later, evenly over the run, "
        "beside run.checkpoints_kept and the best one; --at names them",
    )

    @property
    def enabled(self) -> bool:
        """Whether the run has an evaluator."""
        return self.every_s is not None or self.every_steps is not None

    @property
    def envs(self) -> int:
        """Number of its environments."""
        return min(self.episodes, _MOST_ENVS)

    def env_keys(self, env: EnvConfig) -> dict[str, Any]:
        """The keys of `env` with the overrides, not validated."""
        keys = env.model_dump(exclude_unset=True)
        for key, value in self.env.items():
            below = keys.get(key)
            if isinstance(below, Mapping) and isinstance(value, Mapping):
                value = {**below, **value}
            keys[key] = value
        return keys

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        if not self.enabled:
            own = [key for key in type(self).model_fields if not key.startswith("every_")]
            if config.population.enabled:
                own = ["cpu_share", "keep"]
            for key in self.changed(*own):
                yield (
                    f"evaluator.{key}: it has no effect without an evaluator; set "
                    "evaluator.every_s, or remove this"
                )
            if not config.population.enabled:
                return
        if self.every_s is not None and self.every_steps is not None:
            yield "evaluator.every_steps: evaluator.every_s is set as well; remove one of them"
        elif self.every_s is not None and config.run.deterministic:
            yield (
                "evaluator.every_s: seconds differ from run to run, so run.deterministic cannot "
                "hold; set that to false, or evaluator.every_steps instead of this"
            )
        env, mistakes = check(EnvConfig, self.env_keys(config.env), _ENV)
        yield from (f"{key}:{sentence.removeprefix(':')}" for key, sentence in mistakes)
        if env is not None and self.env:
            known = set(config.env.contradictions(config))
            for sentence in env.contradictions(config):
                if sentence not in known:
                    yield f"{_ENV}{sentence.removeprefix('env')}"
