"""A network of the user's own, checked and described where torch is.

Roles that never load torch need the shapes of its weights and its ONNX graph. `aclearn train` lets
another process make it before the run and passes the result to its roles; a role started by hand
asks for itself.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from aclearn.config import Config
from aclearn.distributions import distribution_of
from aclearn.errors import ConfigError
from aclearn.extensions import search_modules_in
from aclearn.launch import StopFlag
from aclearn.policies import ModuleSpec
from aclearn.types import EnvSpec, ObservationSpec
from services.role import isolated

_LOGGER = logging.getLogger(__name__)

#: Environment variable in which `aclearn train` passes the network's description to its roles.
VARIABLE = "ACLEARN_NETWORK"
#: Characters of a variable at most; Linux allows 128 KiB. Roles ask for longer ones themselves.
_MOST_CHARACTERS = 100_000
#: Seconds for loading torch and the user's module, and for the check.
_WITHIN_S = 120.0


class _StopError(Exception):
    """The wait for the network's description was stopped."""


@dataclass(frozen=True)
class _Request:
    """What is asked of the network, as JSON; `stop` ends the wait."""

    text: str
    stop: StopFlag | None = field(default=None, compare=False)


def await_network(config: Config, spec: EnvSpec, stop: StopFlag | None) -> bool:
    """Wait for the network of the user's own, if there is one; later calls have it at once.

    Returns:
        False if `stop` was set meanwhile.

    Raises:
        ConfigError: as `users_module`.
    """
    try:
        if config.policy.is_users:
            users_module(config, spec, stop=stop)
    except _StopError:
        return False
    return True


def users_module(config: Config, spec: EnvSpec, *, stop: StopFlag | None = None) -> ModuleSpec:
    """The configured network of the user's own, for this environment.

    Raises:
        ConfigError: it cannot be made or breaks the contract of `check_policy`; one line.
    """
    request = _request(config, spec)
    if (passed := os.environ.get(VARIABLE)) is not None:
        found = json.loads(passed)
        if found["request"] == request:
            return ModuleSpec.from_dict(found["module"])
    return _described(_Request(request, stop))


def network_variable(config: Config, spec: EnvSpec) -> dict[str, str]:
    """`VARIABLE` for the roles of a run, if it has a network of the user's own."""
    if not config.policy.is_users:
        return {}
    module = users_module(config, spec)
    text = json.dumps({"request": _request(config, spec), "module": module.to_dict()})
    return {VARIABLE: text} if len(text) <= _MOST_CHARACTERS else {}


def _request(config: Config, spec: EnvSpec) -> str:
    policy = config.policy
    try:
        return json.dumps(
            {
                "name": policy.architecture,
                "arguments": policy.arguments,
                "observation": spec.observation.to_dict(),
                "parameters": distribution_of(spec.action).parameter_count,
                "critic": policy.critic,
                "pythonpath": config.run.pythonpath,
            },
            sort_keys=True,
        )
    except TypeError as error:
        raise ConfigError(f"policy.arguments: {error}; use numbers, texts, lists") from error


@lru_cache(maxsize=4)
def _described(request: _Request) -> ModuleSpec:
    # a process that has not loaded torch, seconds and 200 MB, does not load it for this
    answer: dict[str, Any] = {}
    if "torch" in sys.modules:
        describe(answer.update, request.text)
    else:
        answer = _answer_of_a_process(request)
    if "failure" in answer:
        raise ConfigError(answer["failure"])
    for warning in answer["warnings"]:
        _LOGGER.warning("event=network_warning detail=%r", warning)
    return ModuleSpec.from_dict(answer["module"])


def _answer_of_a_process(request: _Request) -> dict[str, Any]:
    where = f"policy.architecture {json.loads(request.text)['name']!r}"
    answer = isolated.call(
        "services.policy.users_network:describe",
        {"request": request.text},
        within_s=_WITHIN_S,
        stop=request.stop,
    )
    if answer.said:
        return answer.said
    if request.stop:
        raise _StopError
    if answer.late:
        raise ConfigError(f"{where}: the network was not made within {_WITHIN_S:g} s")
    raise ConfigError(f"{where}: {answer.ended()}")


def describe(say: isolated.Say, request: str) -> None:
    """Make the network; says the module's description and warnings, or a failure."""
    from aclearn.policies.users_description import describe_module

    asked = json.loads(request)
    search_modules_in(asked.pop("pythonpath"))
    observation = ObservationSpec.from_dict(asked.pop("observation"))
    try:
        module, warnings = describe_module(**asked, observation=observation)
    except ConfigError as error:
        say(failure=str(error))
    else:
        say(module=module.to_dict(), warnings=warnings)
