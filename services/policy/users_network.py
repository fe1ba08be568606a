"""A network of the user's own, described for roles that never load torch.

They need the shapes of its weights and its ONNX graph. `aclearn train` lets another process make
it before the run and passes the result to its roles; a role started by hand asks for itself.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

from aclearn.config import Config
from aclearn.distributions import distribution_of
from aclearn.errors import ConfigError
from aclearn.policies import ModuleSpec
from aclearn.types import EnvSpec
from services.policy.torch_elsewhere import Questions, ask_torch, describe

_LOGGER = logging.getLogger(__name__)

#: Environment variable in which `aclearn train` passes the network's description to its roles.
VARIABLE = "ACLEARN_NETWORK"
#: Characters of a variable at most; Linux allows 128 KiB. Roles ask for longer ones themselves.
_MOST_CHARACTERS = 100_000

#: Request → description of the network that this process knows.
_known: dict[str, ModuleSpec] = {}
_MOST_KNOWN = 16


def users_module(config: Config, spec: EnvSpec) -> ModuleSpec:
    """The configured network of the user's own, for this environment.

    Raises:
        ConfigError: it cannot be made or breaks the contract of `check_policy`; one line.
    """
    request = _request(config, spec)
    if not _is_known(request):
        elsewhere = "torch" not in sys.modules
        questions = Questions(network=request)
        learn_network(request, ask_torch(config, questions) if elsewhere else describe(request))
    return _known[request]


def unknown_network(config: Config, spec: EnvSpec) -> str:
    """The request for the network if another process has to describe it; else empty.

    Args:
        config, spec: of one policy.
    """
    if not config.policy.is_users or "torch" in sys.modules:
        return ""
    request = _request(config, spec)
    return "" if _is_known(request) else request


def learn_network(request: str, said: Mapping[str, Any]) -> None:
    """Keep the network's description, which is said in answer to the request; tell its warnings."""
    for warning in said["warnings"]:
        _LOGGER.warning("event=network_warning detail=%r", warning)
    while len(_known) >= _MOST_KNOWN:
        del _known[next(iter(_known))]
    _known[request] = ModuleSpec.from_dict(said["module"])


def _is_known(request: str) -> bool:
    if request not in _known and (passed := os.environ.get(VARIABLE)) is not None:
        for found in json.loads(passed):
            if found["request"] == request:
                _known[request] = ModuleSpec.from_dict(found["module"])
    return request in _known


def network_variable(config: Config, spec: EnvSpec) -> dict[str, str]:
    """`VARIABLE` for the roles of a run, if it has networks of the user's own."""
    found = []
    for policy, its in spec.by_policy(config.patterns).items():
        own = config.of_policy(policy)
        if own.policy.is_users:
            module = users_module(own, its).to_dict()
            found.append({"request": _request(own, its), "module": module})
    text = json.dumps(found)
    return {VARIABLE: text} if found and len(text) <= _MOST_CHARACTERS else {}


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
