"""The whole configuration: the group `run`, and all other groups."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ModelWrapValidatorHandler, Strict, model_validator
from typing_extensions import override

from aclearn.config._explain import got
from aclearn.config._fields import Group, Whole
from aclearn.config._plain import not_plain
from aclearn.config._yaml import canonical_yaml, dump_yaml, with_tuples
from aclearn.config.actors import ActorsConfig
from aclearn.config.compressor import CompressorConfig
from aclearn.config.correctors import CorrectorConfig, listed
from aclearn.config.env import EnvConfig
from aclearn.config.evaluator import EvaluatorConfig
from aclearn.config.learning import OptimiserConfig, ReplayConfig, TrainerConfig
from aclearn.config.loss import AnyLoss, LossConfig, default_correctors
from aclearn.config.monitor import MetricsConfig, MonitorConfig, TunerConfig
from aclearn.config.network import NetworkConfig, SupervisorConfig
from aclearn.config.policies import (
    WITH_USUAL,
    Policies,
    as_set,
    data_of_policy,
    doubts_of_policies,
    mistakes,
)
from aclearn.config.policy import PolicyConfig
from aclearn.config.population import PopulationConfig
from aclearn.config.predictor import PredictorConfig
from aclearn.config.ray import RayConfig
from aclearn.config.resident import ResidentConfig
from aclearn.errors import ConfigError
from aclearn.types import DEFAULT_POLICY, is_compressed

Judge = Literal["training", "evaluator"]


def _target_of(target: Any) -> Any:
    by_policy = isinstance(target, Mapping)
    if by_policy and not target:
        raise ValueError("expected a number, numbers by policy, or null, got {}; null: no target")
    for number in target.values() if by_policy else () if target is None else (target,):
        if type(number) not in (int, float) or not math.isfinite(number):
            raise ValueError(f"expected a number, numbers by policy, or null, got {got(number)}")
    return {str(name): float(number) for name, number in target.items()} if by_policy else target


def single_target(target: Any) -> float | None:
    """The target of a judged mean return; None without one, or with those of several policies."""
    if isinstance(target, Mapping):
        target = next(iter(target.values())) if len(target) == 1 else None
    return None if target is None else float(target)


TargetReturn = Annotated[float | dict[str, float] | None, BeforeValidator(_target_of)]
"""A mean return to reach, one of each policy, or none."""

_BOUNDS = ("target_return", "stop_at_target", "max_env_steps", "max_updates", "max_wall_s")


class RunConfig(Group):
    """The run: its name, bounds and output."""

    name: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="name of the run and its folder; null: <run.experiment>-<next free number>",
    )
    experiment: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$",
        description="what runs without a name have in common: pong gives pong-1, pong-2; null: the "
        "name of this file, of its folder for config.yaml, or of the environment",
    )
    dir: str = Field(default="runs", min_length=1, description="folder of the run folders")
    pythonpath: Annotated[tuple[str, ...], Strict(False)] = Field(
        default=(),
        description="folders in which modules of yours (module:Name) are searched after Python's "
        "own path; those of this file and of its bases, and the current one, are added",
    )
    seed: Whole = Field(
        default=1, ge=0, le=2**31 - 1, description="seed of weights, environments and sampling"
    )
    init_from: str | None = Field(
        default=None,
        min_length=1,
        description="run folder whose newest policy a new run begins with, or the .json file of a "
        "checkpoint: weights, normalisers and the moments of an optimiser of the same kind, but no "
        "counters; of the same architecture",
    )
    target_return: TargetReturn = Field(
        default=None,
        description="target: mean return by run.judge, in points of the game; with several "
        "policies a mapping, policy → its target, all of which must be met",
    )
    judge: Judge | None = Field(
        default=None,
        description="whose mean return decides about target_return and the best checkpoint: that "
        "of the newest 100 episodes of training, or the evaluator's; null: the evaluator's where "
        "there is one",
    )
    stop_at_target: bool = Field(
        default=True,
        description="end the run at target_return; a resumed run that has reached it ends at once",
    )
    max_env_steps: Whole | None = Field(
        default=None,
        ge=1,
        description="bound of the run, in agent steps of all environments that the trainer has "
        "got; actors may take up to one unroll of each environment more",
    )
    max_updates: Whole | None = Field(
        default=None, ge=1, description="bound of the run, in updates; exact"
    )
    max_wall_s: float | None = Field(
        default=None,
        gt=0.0,
        description="bound of the run, in seconds, without the pauses of a resumed run",
    )
    deterministic: bool = Field(
        default=False,
        description="take turns in one process on the CPU: one seed gives the same weights, bit "
        "for bit; slower",
    )
    checkpoint_every_s: float = Field(
        default=30.0, gt=0.0, le=86_400.0, description="time between checkpoints, in seconds"
    )
    checkpoints_kept: Whole = Field(
        default=3, ge=1, le=1000, description="newest checkpoints to keep beside the best one"
    )
    flight_recorder: Whole | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="newest batches of the trainer to keep on disk, so that `aclearn replay RUN` "
        "repeats their updates; between so many and half as many more are there; null: none",
    )
    audit: bool = Field(
        default=False,
        description="log digests of each learned batch in the trainer's log, to see that no step "
        "was learned twice (docs/reliability.md)",
    )
    metrics_every_s: float = Field(
        default=2.0,
        gt=0.0,
        le=5.0,
        description="time between two lines of metrics.jsonl, in seconds",
    )

    @override
    def contradictions(self, config: Config) -> Iterator[str]:
        if self.judge == "evaluator" and not config.evaluator.enabled:
            yield (
                "run.judge: there is no evaluator; set evaluator.every_s, for instance to 60, or "
                "this to training"
            )
        if self.flight_recorder is not None and config.ranks > 1:
            key = "trainer.processes" if config.resident.envs is None else "resident.devices"
            yield (
                f"{key}: run.flight_recorder repeats the updates of one trainer, and each of "
                f"{config.ranks} makes them of the batches of all; set {key} to 1, or "
                "run.flight_recorder to null"
            )
        if self.audit and config.loss.source != "stream":
            yield (
                f"run.audit: {config.loss.kind} learns a step in several batches; set it to false, "
                "or loss.kind to one that learns each step once"
            )
        if not self.deterministic:
            return
        for key in ("trainer", "predictor", "resident"):
            if (device := getattr(config, key).device) not in ("auto", "cpu"):
                yield (
                    f"{key}.device: run.deterministic is bit-reproducible on the CPU only; "
                    f"set it to cpu or auto instead of {device}"
                )
        if config.trainer.workers != 1:
            yield (
                "trainer.workers: run.deterministic has one worker at a time; set it to 1 instead "
                f"of {config.trainer.workers}"
            )

    def bounds(self) -> dict[str, float | None]:
        """The target and the bounds of the run, by key; None if not set.

        The target is that of the judged mean return: with targets of several policies there is no
        single one.
        """
        bounds = {key: getattr(self, key) for key in _BOUNDS}
        return bounds | {"target_return": single_target(self.target_return)}


class Config(Group):
    """The configuration of a run; made by `load_config`, or of sections: `Config(env={"id": …})`.

    Raises:
        ConfigError: one line for each mistake.
    """

    run: RunConfig = Field(default_factory=RunConfig)
    env: EnvConfig
    policy: PolicyConfig = Field(default_factory=PolicyConfig)
    policies: Policies = Field(
        default_factory=dict,
        description="several policies, by name; empty: one policy plays all agents",
    )
    actors: ActorsConfig = Field(default_factory=ActorsConfig)
    resident: ResidentConfig = Field(default_factory=ResidentConfig)
    predictor: PredictorConfig = Field(default_factory=PredictorConfig)
    compressor: CompressorConfig = Field(default_factory=CompressorConfig)
    evaluator: EvaluatorConfig = Field(default_factory=EvaluatorConfig)
    trainer: TrainerConfig = Field(default_factory=TrainerConfig)
    replay: ReplayConfig = Field(default_factory=ReplayConfig)
    loss: AnyLoss = Field(default_factory=lambda: LossConfig.model_for({})())
    correctors: Annotated[tuple[CorrectorConfig, ...], Strict(False), BeforeValidator(listed)] = (
        Field(
            default_factory=lambda earlier: default_correctors(earlier["loss"]),
            description="corrections of off-policy data before the loss, in order; auto: what the "
            "measured mismatch asks for; empty: one-step targets without correction; the default "
            "depends on loss.kind",
        )
    )
    optimiser: OptimiserConfig = Field(default_factory=OptimiserConfig)
    tuner: TunerConfig = Field(default_factory=TunerConfig)
    monitor: MonitorConfig = Field(default_factory=MonitorConfig)
    metrics: MetricsConfig = Field(default_factory=MetricsConfig)
    network: NetworkConfig = Field(default_factory=NetworkConfig)
    supervisor: SupervisorConfig = Field(default_factory=SupervisorConfig)
    population: PopulationConfig = Field(default_factory=PopulationConfig)
    ray: RayConfig = Field(default_factory=RayConfig)

    @model_validator(mode="wrap")
    @classmethod
    def _fill_in_the_usual(cls, data: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Defaults of other sections that the loss has, where these keys are not given."""
        if not isinstance(data, Mapping):
            return validate(data)
        loss, filled = data.get("loss"), dict(data)
        if isinstance(loss, LossConfig):
            usual = loss.usual_of(loss.model_dump())
        else:
            usual = LossConfig.model_for(loss).usual_of(loss if isinstance(loss, Mapping) else {})
        by_us: list[tuple[str, str]] = []
        for dotted, value in usual.items():
            section, _, key = dotted.partition(".")
            given = filled.get(section)
            if given is None or (isinstance(given, Mapping) and key not in given):
                filled[section] = {key: value, **(given or {})}
            elif isinstance(given, Group) and key not in given.model_fields_set:
                filled[section] = given.model_copy(update={key: value})
            else:
                continue
            by_us.append((section, key))
        config = validate(filled)
        for section, key in by_us:
            # it was not set: another loss has other usual values
            getattr(config, section).model_fields_set.discard(key)
        return config

    @model_validator(mode="after")
    def _groups_agree(self) -> Config:
        found = [sentence for group in _groups(self) for sentence in group.contradictions(self)]
        found += not_plain(self.model_dump(by_alias=True), "")
        found += mistakes(self) if not found else ()
        if found:
            raise ValueError("\n".join(found))
        return self

    def policy_names(self) -> tuple[str, ...]:
        """The names of the run's policies; "default" alone where it has one."""
        return tuple(self.policies) or (DEFAULT_POLICY,)

    def learning_policies(self) -> tuple[str, ...]:
        """The names of those that learn, which are all but the fixed opponents."""
        return tuple(name for name, own in self.policies.items() if own.learns) or (
            () if self.policies else (DEFAULT_POLICY,)
        )

    def judged_policies(self) -> tuple[str, ...]:
        """Those whose mean return decides about the best checkpoint, together.

        They are those of `run.target_return`, else the only one that learns; none otherwise, since
        the returns of opponents cancel.
        """
        if isinstance(self.run.target_return, Mapping):
            return tuple(self.run.target_return)
        learning = self.learning_policies()
        return learning if len(learning) == 1 else ()

    @property
    def patterns(self) -> dict[str, tuple[str, ...]]:
        """Policy → patterns of its agents; empty where one policy plays all."""
        return {name: own.agents for name, own in self.policies.items()}

    def of_policy(self, name: str) -> Config:
        """The configuration of one of the policies, as if the run had this one alone.

        Raises:
            ConfigError: there is none of this name.
        """
        if name not in self.policy_names():
            known = ", ".join(self.policy_names())
            raise ConfigError(f"there is no policy {name!r} in this run; its policies are {known}")
        return Config.model_validate(data_of_policy(self, name)) if self.policies else self

    def with_policy(self, name: str, section: str, **values: Any) -> Config:
        """A copy in which one of the policies has these keys of a section of its own."""
        own = self.policies[name]
        changed = own.model_copy(update={section: {**getattr(own, section), **values}})
        return self.model_copy(update={"policies": {**self.policies, name: changed}})

    @property
    def mixes_policies(self) -> bool:
        """Whether actors can play two policies: a compressed one and the uncompressed one."""
        return self.actors.inference == "local" and bool(self.compressor.rungs)

    @property
    def judge(self) -> Judge:
        """Whose mean return decides about the target and the best checkpoint."""
        return self.run.judge or ("evaluator" if self.evaluator.enabled else "training")

    @property
    def evaluator_test(self) -> str:
        """Digest of what the evaluator plays; only means of the same are compared."""
        env = self.evaluator_env.model_dump(exclude={"info_metrics"})
        test = [env, self.evaluator.episodes, self.evaluator.greedy, self.run.seed]
        return hashlib.sha256(canonical_yaml(test).encode()).hexdigest()[:16]

    @property
    def evaluator_env(self) -> EnvConfig:
        """The environment that the evaluator plays in."""
        return EnvConfig.model_validate(self.evaluator.env_keys(self.env))

    @property
    def acts_compressed(self) -> bool:
        """Whether what acts computes another function than the trainer's policy of its version."""
        resident = self.resident
        links = [link for chain in (*self.compressor.rungs, resident.chain) for link in chain]
        names = [link if isinstance(link, str) else next(iter(link)) for link in links]
        return any(map(is_compressed, names)) or resident.policy != "fp32"

    @property
    def ranks(self) -> int:
        """Number of trainer processes, which learn as one."""
        if self.resident.envs is not None:
            return self.resident.devices
        return self.trainer.processes

    @property
    def experiment(self) -> str:
        """What the names of this configuration's runs begin with."""
        return self.run.experiment or plain_name(self.env.id.removeprefix("ALE/").lower())

    def named_by_seed(self) -> Config:
        """A copy with a name of the run: `<experiment>-seed<seed>`, unless it has one.

        Roles started one by one agree on it without asking each other.
        """
        name = self.run.name or f"{self.experiment}-seed{self.run.seed}"
        return self.with_run(name=name)

    def with_run(self, **values: Any) -> Config:
        """A copy with other values in `run`, without another validation."""
        return self.model_copy(update={"run": self.run.model_copy(update=values)})

    def to_yaml(self) -> str:
        """Every key with its value, as YAML that `config_from_yaml` reads back to an equal one.

        It has `env.kwargs` in the clear. With several policies, whose losses may have other
        defaults, the sections of these have the set keys only.
        """
        values: dict[str, Any] = self.model_dump(by_alias=True)
        if self.policies:
            given = as_set(self)
            kept = (name for name in values if name in given or name not in WITH_USUAL)
            values = {name: given.get(name, values[name]) for name in kept}
        values["env"]["kwargs"] = with_tuples(self.env.kwargs)
        values["evaluator"]["env"] = with_tuples(self.evaluator.env)
        return dump_yaml(values)


def doubts(config: Config) -> Iterator[str]:
    """One sentence for each setting that has no effect, or an unexpected one.

    It begins with the dotted key to change and says how to mend it.
    """
    found = [sentence for group in _groups(config) for sentence in group.doubts(config)]
    yield from found
    yield from doubts_of_policies(config, set(found))


def _groups(config: Config) -> Iterator[Group]:
    for key in type(config).model_fields:
        group = getattr(config, key)
        if isinstance(group, dict):
            group = tuple(group.values())
        yield from group if isinstance(group, tuple) else (group,)


def plain_name(text: str) -> str:
    """The text as the name of an experiment: other characters than those of names become one -."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-")[:80] or "run"
