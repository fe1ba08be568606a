"""Tries an environment in its own process: before a run begins, and for `aclearn check-env`.

The user's code may hang, crash, print, change the directory or end the interpreter; the process
isolates the caller from all that, and never loads torch.
"""

from __future__ import annotations

import logging
import pkgutil
import time
from collections.abc import Collection, Iterable
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from aclearn.config import Config, config_from_yaml
from aclearn.distributions import distribution_of
from aclearn.envs import VectorEnv, make_policy_envs, read_spec
from aclearn.envs.env_check import EnvReport, check_env
from aclearn.envs.gymnasium_vector_env import GymnasiumVectorEnv
from aclearn.envs.lookup import maker
from aclearn.envs.policy_envs import PolicyPart
from aclearn.envs.sync_vector_env import SyncVectorEnv
from aclearn.errors import ConfigError, EnvironmentFailure, words_of
from aclearn.extensions import search_modules_in, users_line
from aclearn.hidden_packages import hidden_by_ours
from aclearn.launch import StopFlag
from aclearn.types import EnvSpec
from services.role import isolated

_LOGGER = logging.getLogger(__name__)

#: Additional seconds for the start of the process.
_START_WITHIN_S = 30.0
#: The module of the program that the user started.
_MAIN = "__main__"
#: Of a check: seconds of random actions; environments in a group, and faults that it survives.
_CHECK_S, _GROUP, _MOST_FAULTS = 5.0, 8, 20


def probe_environment(
    config: Config,
    *,
    stop: StopFlag | None = None,
    within_s: float | None = None,
    call: isolated.Call = isolated.call,
) -> EnvSpec | None:
    """The spec of the configured environment; None if `stop` was set meanwhile.

    Args:
        within_s: time limit of the whole probe; by default `actors.step_timeout_s` each for making,
            resetting and stepping.

    Raises:
        EnvironmentFailure: it cannot be made, reset or stepped, or is of an unsupported kind; gives
            the reason and the place in one line.
    """
    if config.env.target.startswith(f"{_MAIN}:") and config.run.deterministic:
        return read_spec(config.env, patterns=config.patterns)  # no other process has it
    within_s = within_s or _START_WITHIN_S + 3 * config.actors.step_timeout_s
    said = _ask(config, within_s, stop, call, checks=False)
    if said is None:
        return None
    spec = EnvSpec.from_dict(said["spec"])
    if spec.warning:
        _LOGGER.warning(spec.warning)
    return spec


def probe_evaluator(
    config: Config,
    spec: EnvSpec,
    *,
    stop: StopFlag | None = None,
    call: isolated.Call = isolated.call,
) -> None:
    """Check the evaluator's environment, where it has keys of its own.

    Args:
        spec: of the run's environments.

    Raises:
        ConfigError: it has other spaces.
        EnvironmentFailure: as of `probe_environment`.
    """
    if not config.evaluator.env:
        return
    try:
        found = probe_environment(
            config.model_copy(update={"env": config.evaluator_env}), stop=stop, call=call
        )
    except EnvironmentFailure as error:
        raise EnvironmentFailure(f"evaluator.env: {error}") from error
    if found is not None:
        check_evaluator_spaces(found, spec)


def check_evaluator_spaces(found: EnvSpec, run: EnvSpec) -> None:
    """Raise `ConfigError` unless an evaluator's environment has the spaces of the run's."""
    for theirs, ours in zip(found.kinds, run.kinds, strict=False):
        check_evaluator_spaces(theirs, ours)
    if (found.observation, found.action) != (run.observation, run.action):
        raise ConfigError(
            f"evaluator.env: it has {found.observation} → {found.action}, and the run's policy "
            f"takes {run.observation} → {run.action}; override only keys that leave the spaces as "
            "they are"
        )
    if found.masked != run.masked:
        has, other = ("masks", "none") if found.masked else ("no masks", "some")
        raise ConfigError(
            f"evaluator.env: it has {has} of actions, and the run's environment has {other}; set "
            "env.action_mask and evaluator.env={action_mask: …} so that both have masks or none"
        )


def check_environment(config: Config) -> tuple[EnvSpec, EnvReport]:
    """The spec of the configured environment, and the report of its check.

    Raises:
        EnvironmentFailure: it cannot be made, is of an unsupported kind, or ended its process.
    """
    # every limit of the environment's own is in the report
    within_s = _START_WITHIN_S + 10 * config.actors.step_timeout_s
    said = _ask(config, within_s, None, isolated.call, checks=True)
    assert said is not None  # nothing stops it
    return EnvSpec.from_dict(said["spec"]), EnvReport(**said["report"])


def _ask(
    config: Config, within_s: float, stop: StopFlag | None, call: isolated.Call, *, checks: bool
) -> dict[str, Any] | None:
    """Fields that the process says; None if `stop` was set meanwhile."""
    _check_modules(config)
    payload = {"yaml": config.to_yaml(), "checks": checks}
    answer = call("services.start.probe:try_environment", payload, within_s=within_s, stop=stop)
    said = {"phase": "made"} | answer.said
    if "spec" in said:
        return said
    if stop:
        return None
    if "failure" in said:
        raise EnvironmentFailure(said["failure"])
    if answer.late:
        raise EnvironmentFailure(
            f"environment {config.env.id}: no answer within {within_s:g} s while it was "
            f"{said['phase']} for the first time; raise actors.step_timeout_s if it needs more time"
        )
    ended = answer.ended(f" while it was {said['phase']} for the first time")
    raise EnvironmentFailure(f"environment {config.env.id}: {ended}")


def _check_modules(config: Config) -> None:
    """Warn of modules of the user's that ours hide; refuse an environment without a module.

    Raises:
        EnvironmentFailure: it is of the main program, and the run has processes.
    """
    module, colon, name = config.env.target.partition(":")
    if not colon or module == "resident":
        return
    if module == _MAIN and not config.run.deterministic:
        raise EnvironmentFailure(
            f"env.id {config.env.id!r}: other processes cannot import {name} from the main "
            f"program; write it into a file, e.g. my_env.py, and give my_env:{name}, or set "
            "run.deterministic=true, which is slower"
        )
    search_modules_in(config.run.pythonpath)
    if words := hidden_by_ours([*config.run.pythonpath, str(Path.cwd())]):
        _warn_once(words)


@lru_cache
def _warn_once(words: str) -> None:
    _LOGGER.warning(words)


def try_environment(say: isolated.Say, yaml: str, checks: bool) -> None:
    """Make the environment, and check it or step it once; says each phase, results or an error.

    Of a resident one that the trainer steps it only reads the definition.
    """
    config, phase = config_from_yaml(yaml), "made"
    search_modules_in(config.run.pythonpath)

    def enter(name: str) -> None:
        nonlocal phase
        say(phase=(phase := name))

    try:
        if config.resident.envs is not None and config.env.is_resident and not checks:
            # the trainer compiles its kernels for its own device, which may take half a minute
            specs = pkgutil.resolve_name("aclearn.resident.vector_env:read_specs")(config)
            say(spec=_of_run(config, specs.values()).to_dict())
            return
        parts = make_policy_envs(
            config.env,
            config.patterns,
            num_envs=1,
            seed=0,
            step_timeout_s=config.actors.step_timeout_s,
            max_faults=0,
        )
        env = next(iter(parts.values()))
        if checks:
            enter("checked")
            say(report=asdict(_checked(config, env)))
        else:
            enter("reset")
            for part in parts.values():
                part.reset()
            enter("stepped")
            _step(parts.values(), np.random.default_rng(0))
        say(spec=_of_run(config, (part.spec for part in parts.values())).to_dict())
        env.close()
    except BaseException as error:  # SystemExit included
        say(failure=_in_one_line(error, config.env.id, phase))


def _of_run(config: Config, specs: Iterable[EnvSpec]) -> EnvSpec:
    """The specification of the environment from those of the policies' agents."""
    return EnvSpec.joint(specs) if config.policies else next(iter(specs))


def _step(parts: Collection[VectorEnv], rng: np.random.Generator) -> None:
    """One step of each policy's agents with random actions that are allowed."""
    for env in parts:
        distribution = distribution_of(env.spec.action)
        parameters = np.zeros((env.num_envs, distribution.parameter_count), np.float32)
        env.send(distribution.sample(distribution.mask(parameters, env.masks), rng)[0])
    for env in parts:
        env.recv()


def _checked(config: Config, env: VectorEnv) -> EnvReport:
    """The report on an environment, of which one is made."""
    if type(env) is SyncVectorEnv:
        report = check_env(
            maker(config.env),
            config.env,
            seconds=_CHECK_S,
            step_timeout_s=config.actors.step_timeout_s,
        )
    else:
        report = _checked_group(config)
    report.advice += [env.spec.warning] if env.spec.warning else []
    return report


def _checked_group(config: Config) -> EnvReport:
    """The report on groups that check each step: all but single environments of gymnasium."""
    report, rng = EnvReport(), np.random.default_rng(1)
    parts = make_policy_envs(
        config.env,
        config.patterns,
        num_envs=_GROUP,
        seed=1,
        step_timeout_s=config.actors.step_timeout_s,
        max_faults=_MOST_FAULTS,
    )
    group, rows = next(iter(parts.values())), sum(part.num_envs for part in parts.values())
    steps, begun = 0, time.monotonic()
    try:
        for part in parts.values():
            part.reset()
        while time.monotonic() - begun < _CHECK_S and steps < 1000 * rows:
            _step(parts.values(), rng)
            steps += rows
    except EnvironmentFailure as error:
        report.mend.append(str(error))
    finally:
        if isinstance(group, SyncVectorEnv | GymnasiumVectorEnv | PolicyPart):
            report.mend += [f"{why}: {detail}" for why, detail in group.fault_details.items()]
        group.close()
    if not report.mend:
        took_s = time.monotonic() - begun
        report.fine.append(
            f"{steps} steps with random actions, {steps / took_s:,.0f} steps/s in a group of {rows}"
        )
    return report


def _in_one_line(error: BaseException, name: str, phase: str) -> str:
    """The error and its place in the user's own files."""
    cause = error.__cause__ or error
    if phase == "made" and isinstance(error, EnvironmentFailure | ConfigError):
        text = str(error)
    else:
        text = f"environment {name} fails when it is {phase} for the first time: {words_of(cause)}"
    place = users_line(cause)
    return " ".join(f"{text}{place if place not in text else ''}".split())
