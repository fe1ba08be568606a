"""A sweep's file: what is searched, how often, and how good a configuration is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, Strict, model_validator

from aclearn.config import (
    Config,
    Group,
    Whole,
    YamlError,
    load_config,
    parse_yaml,
    validated,
    with_overrides,
)
from aclearn.errors import ConfigError

Sampler = Literal["tpe", "random", "gp", "cmaes", "nsgaii", "qmc"]
Pruner = Literal["none", "median", "halving", "hyperband"]
Ends = Annotated[tuple[float, float], Strict(False)]
#: Keys that a sweep sets itself, and the group that it does not use.
_OURS: Final = ("run", "population", "ray", "supervisor", "network", "metrics")

#: Keys of a run that a sweep decides.
_ENDS: Final = (
    "run.name",
    *(f"run.{key}" for key in ("max_env_steps", "max_updates", "max_wall_s", "target_return")),
)
#: What a population refuses of a configuration: without it, and why in words of a sweep.
_REFUSED: Final = {
    "evaluator.stop_after": ("null", "the steps of a sweep end its runs"),
    "policies": ("{}", "a run of a sweep has one policy, whose fitness is one number"),
}


class Search(Group):
    """The values of one key: exactly one of these."""

    range: Ends | None = Field(
        default=None,
        description="least and largest value; whole if the key's numbers are",
    )
    log: Ends | None = Field(
        default=None, description="the same on a logarithmic scale, for instance [1e-5, 1e-2]"
    )
    choices: Annotated[tuple[Any, ...], Strict(False)] | None = Field(
        default=None, description="a list of values of any kind"
    )

    @model_validator(mode="after")
    def _is_one(self) -> Search:
        given = [name for name in ("range", "log", "choices") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"search: expected one of range, log and choices, got {given}")
        [name] = given
        if name == "choices":
            if len(self.choices or ()) < 2:
                raise ValueError("choices: expected two or more values to choose from")
            return self
        low, high = self.ends
        if low >= high:
            raise ValueError(
                f"{name}: [{low:g}, {high:g}] is empty; the first number must be less than the "
                "second"
            )
        if name == "log" and low <= 0.0:
            raise ValueError(f"log: {low:g} has no logarithm; begin above 0, or take range")
        return self

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of a range."""
        ends = self.range or self.log
        assert ends is not None
        return ends


class SweepSettings(Group):
    """The keys of a sweep's file."""

    config: str = Field(min_length=1, description="configuration of the runs: a name or a path")
    set: dict[str, Any] = Field(
        default_factory=dict, description="dotted keys with other values than in it"
    )
    name: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$",
        description="folder in run.dir; null: <experiment>-sweep-<next number>",
    )
    search: dict[str, Search] = Field(
        min_length=1, description="dotted key → range, log or choices"
    )
    trials: Whole = Field(default=20, ge=1, le=100_000, description="configurations to try")
    seeds: Whole = Field(
        default=1,
        ge=1,
        le=100,
        description="runs of a trial, of seeds from run.seed on; their mean counts",
    )
    steps: Whole = Field(ge=1, description="agent steps of a run")
    judgements: Whole = Field(
        default=4,
        ge=1,
        le=1000,
        description="times that a trial is judged, evenly over its steps; the last one counts, the "
        "others may prune it",
    )
    sampler: Sampler = Field(default="tpe", description="proposes values; of Optuna")
    pruner: Pruner = Field(default="median", description="ends poor trials early; of Optuna")
    seed: Whole = Field(default=1, ge=0, le=2**31 - 1, description="seed of the sampler")

    @model_validator(mode="after")
    def _has_steps_for_each_judgement(self) -> SweepSettings:
        if self.judgements > self.steps:
            raise ValueError(
                f"judgements: {self.judgements} of a run of {self.steps} steps are more than one a "
                "step; lower this, or set steps higher"
            )
        return self

    @cached_property
    def base(self) -> Config:
        """The configuration with what is `set`.

        Raises:
            ConfigError: it is not valid.
        """
        # a run is judged as a member of a population is, so keys of its evaluator have an effect
        judged = {"population.members": 2, "population.selector": "none"}
        return load_config(self.config, {**judged, **self.set})

    def config_of(self, values: Mapping[str, Any]) -> Config:
        """The configuration with the values of a trial, which it may refuse.

        Raises:
            ConfigError: it is not valid with them.
        """
        return with_overrides(self.base, values) if values else self.base

    def is_whole(self, key: str) -> bool:
        """Whether the values of a key's range are whole numbers, as its type is.

        A key of any type, as an environment's own, has the type of its present value.
        """
        search = self.search[key]
        if search.choices is not None or not all(end.is_integer() for end in search.ends):
            return False
        try:
            self.config_of({key: search.ends[0] + 0.5})
        except ConfigError:  # it takes no fraction
            return True
        present: Any = self.base.model_dump(by_alias=True)
        for name in key.split("."):
            if not isinstance(present, Mapping) or name not in present:
                return True
            present = present[name]
        return isinstance(present, int)

    def examples(self, key: str) -> tuple[Any, ...]:
        """Values of a key that the configuration must accept."""
        search = self.search[key]
        if search.choices is not None:
            return search.choices
        whole = self.is_whole(key)
        return tuple(int(end) if whole else end for end in search.ends)

    def until(self, judgement: int) -> int:
        """Agent steps of a run at a judgement, from 1."""
        return -(-self.steps * judgement // self.judgements)


def load_sweep(path: Path) -> SweepSettings:
    """The sweep of a YAML file, whose every key has been tried in the configuration.

    Raises:
        ConfigError: the file cannot be read, or a key or a value is wrong; names them.
    """
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such sweep file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: the sweep cannot be read ({error})") from error
    try:
        document = parse_yaml(text)
        settings = validated(SweepSettings, document.value, "")
    except (YamlError, ConfigError) as error:
        raise ConfigError(
            "\n".join(f"{path}: {line}" for line in str(error).splitlines())
        ) from error
    beside = path.parent / settings.config
    if beside.suffix in (".yaml", ".yml") and beside.exists():
        settings = settings.model_copy(update={"config": str(beside.absolute())})
    if mistakes := list(_mistakes(settings)):
        raise ConfigError("\n".join(f"{path}: {mistake}" for mistake in mistakes))
    return settings


def _mistakes(settings: SweepSettings) -> Iterator[str]:
    try:
        settings.config_of({})
    except ConfigError as error:
        yield from map(_in_words_of_a_sweep, str(error).splitlines())
        return
    for key in settings.set:
        if key in _ENDS:
            yield f"set.{key}: steps ends each run, and its folder has the run's name; remove this"
    for key in settings.search:
        if key.partition(".")[0] in _OURS:
            yield f"search.{key}: it does not change what is learned; search other keys"
            continue
        for value in settings.examples(key):
            try:
                settings.config_of({key: value})
            except ConfigError as error:
                yield f"search.{key}: {json.dumps(value)} is refused: {error}"
                break


def _in_words_of_a_sweep(mistake: str) -> str:
    """A mistake of the configuration, whose population is the sweep's own."""
    for key, (without, why) in _REFUSED.items():
        place, found, said = mistake.partition(f"{key}: ")
        if found and "population" in said:
            return f"{place}{key}: {why}; give set: {{{key}: {without}}}"
    return mistake
