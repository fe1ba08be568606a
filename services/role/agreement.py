"""What all processes of a run must have in common, as digests that travel with the hello.

An unroll does not tell what it means: an environment with other rewards may have the same shapes.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from aclearn.config import Config, canonical_yaml
from aclearn.types import AUTO, EnvSpec
from services.role.automatic import AUTOMATIC, is_automatic

#: Groups and keys that change what an unroll, a policy or a rung of the ladder means.
_EQUAL = (
    "env",
    "policy",
    "actors.envs_per_group",
    "actors.unroll_length",
    "actors.behaviour_parameters",
    "compressor.chain",
    "compressor.ladder",
    "loss.kind",
    "loss.normalise_returns",
    "trainer.processes",
)
#: Groups and keys that may differ between ranks: files, addresses and devices of their machines.
_OF_ONE_PLACE = (
    "run.dir",
    "run.experiment",
    "run.pythonpath",
    "run.init_from",
    "trainer.device",
    "resident.device",
    "resident.threads",
    "metrics",
    "monitor",
    "network",
    "ray",
    "supervisor",
)
#: Prefix of the entries about the environment's own spaces, which no key sets.
_SPACES = "the environment's "


def config_digests(config: Config) -> dict[str, str]:
    """Dotted key → digest of its value, for all keys that must be equal in a run.

    Values do not travel: `env.kwargs` may hold a password.
    """
    digests = {key: _digest(value) for key, value in _equal_leaves(config)}
    for name, own in config.policies.items():
        values = dict(_equal_leaves(config.of_policy(name)))
        automatic = f"policies.{name}.{AUTOMATIC[0]}"
        digests[automatic] = _digest(values.pop(AUTOMATIC[0]))
        digests[f"policies.{name}"] = _digest([own.agents, own.learns, sorted(values.items())])
    return digests


def _equal_leaves(config: Config) -> Iterator[tuple[str, Any]]:
    for key, value in _leaves(config, config.model_dump(by_alias=True)):
        if any(f"{key}.".startswith(f"{equal}.") for equal in _EQUAL):
            yield key, value


def rank_digests(config: Config) -> dict[str, str]:
    """Digests of what ranks must have in common: the code, and what decides about an update."""
    values = _leaves(config, config.model_dump(by_alias=True))
    apart = tuple(f"{key}." for key in _OF_ONE_PLACE)
    digests = {key: _digest(value) for key, value in values if not f"{key}.".startswith(apart)}
    return digests | {"the code of aclearn": code_digest(), "the version of torch": _torch()}


@cache
def code_digest() -> str:
    """A digest of the source files of our four packages."""
    digest = hashlib.sha256()
    for name in ("aclearn", "compress", "correctors", "services"):
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.submodule_search_locations
        for folder in spec.submodule_search_locations:
            for path in sorted(Path(folder).rglob("*.py")):
                digest.update(f"{name}/{path.relative_to(folder)}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _torch() -> str:
    return importlib.metadata.version("torch")


def space_digests(spec: EnvSpec | None) -> dict[str, str]:
    """Digests of what an environment's spaces are; empty without a spec."""
    if spec is None:
        return {}
    parts = {
        "observations": spec.observation.to_dict(),
        "actions": spec.action.to_dict(),
        "masks": spec.masked,
        "agents": spec.agents,
    }
    if spec.kinds:
        parts["kinds"] = [[*kind.agent_names, space_digests(kind)] for kind in spec.kinds]
    return {f"{_SPACES}{name}": _digest(part) for name, part in parts.items()}


def spaces_in(digests: Mapping[str, str]) -> dict[str, str]:
    """The part of a hello's digests that is about spaces."""
    return {key: digest for key, digest in digests.items() if key.startswith(_SPACES)}


def differing(theirs: Mapping[str, str], ours: Mapping[str, str]) -> list[str]:
    """The entries of `ours` that `theirs` lacks or has otherwise.

    A key that may be "auto" differs only where both have settled it: a role by hand that has seen
    the environment has, another one has not.
    """
    auto = _digest(AUTO)
    return [
        key
        for key, digest in ours.items()
        if theirs.get(key) != digest
        and not (is_automatic(key) and auto in (digest, theirs.get(key)))
    ]


def _leaves(
    group: BaseModel, values: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """Dotted key → plain value of every key in `group`; a mapping such as env.kwargs is one."""
    for name, value in values.items():
        below = getattr(group, name, None)
        if isinstance(below, BaseModel):
            yield from _leaves(below, value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _digest(value: Any) -> str:
    return hashlib.sha256(canonical_yaml(value).encode()).hexdigest()[:16]
