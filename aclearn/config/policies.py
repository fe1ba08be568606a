"""The section `policies`: several policies in one run, and the keys that each has of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BeforeValidator, Field, Strict

from aclearn.config._check import check
from aclearn.config._explain import MAPPED
from aclearn.config._fields import Group
from aclearn.config.correctors import listed
from aclearn.config.loss import LossConfig
from aclearn.types import DEFAULT_POLICY

if TYPE_CHECKING:
    from aclearn.config.model import Config

#: The sections of a run that a policy may have otherwise.
OVERRIDDEN: Final = ("policy", "loss", "correctors", "optimiser")
#: The sections in which each policy's loss may have defaults of its own.
WITH_USUAL: Final = ("trainer", "replay", *OVERRIDDEN)
#: Its dots would be those of keys; it is a part of the names of files and metrics.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", re.ASCII)


class PolicyOverrides(Group):
    """One of several policies: the agents that it plays, and what it has otherwise than the run."""

    agents: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=200)], ...],
        Strict(False),
        BeforeValidator(
            lambda given: [given] if isinstance(given, str) else given,
            json_schema_input_type=str | list[str],
        ),
        Field(min_length=1),
    ] = Field(
        description="the agents that it plays: a pattern (`adversary_*`, upper and lower case "
        "differ), or a list of them; each agent of the environment has exactly one policy",
    )
    init_from: str | None = Field(
        default=None,
        min_length=1,
        description="where it begins, as with run.init_from: a run folder or a checkpoint; of a "
        "run with several policies, the one of the same name; null: run.init_from",
    )
    learns: bool = Field(
        default=True, description="false: a fixed opponent, which plays and does not change"
    )
    policy: dict[str, Any] = Field(
        default_factory=dict, description="keys of the section policy that it has otherwise"
    )
    loss: dict[str, Any] = Field(
        default_factory=dict,
        description="keys of the section loss that it has otherwise; with another kind, all of "
        "them, and the correctors of that kind",
    )
    correctors: Annotated[list[Any], Strict(False), BeforeValidator(listed)] | None = Field(
        default=None, description="its own list; null: that of the run"
    )
    optimiser: dict[str, Any] = Field(
        default_factory=dict, description="keys of the section optimiser that it has otherwise"
    )


def _names_are_plain(policies: Any) -> Any:
    for name in policies if isinstance(policies, Mapping) else ():
        if name == DEFAULT_POLICY:
            raise ValueError(
                f"{name!r} is the name of the policy of a run without this section; choose another"
            )
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} cannot be the name of a policy; expected at most 32 letters, digits, _ "
                "and -, from a letter or digit on, since files and metrics have this name"
            )
    return policies


Policies = Annotated[dict[str, PolicyOverrides], BeforeValidator(_names_are_plain)]
"""The section `policies`: name → what the policy has of its own."""


def schema_key(dotted: str) -> str:
    """The key of the models for a key of a configuration, whose policies have names.

    `policies.red.loss.kind` is `loss.kind`, `policies.red.agents` is `policies.NAME.agents`.
    """
    first, *rest = dotted.split(".")
    if first != "policies" or not rest:
        return dotted
    if len(rest) > 1 and rest[1] in OVERRIDDEN:
        return ".".join(rest[1:])
    return ".".join([first, MAPPED, *rest[1:]])


def as_set(config: Config) -> dict[str, Any]:
    """The sections in which a policy's loss may have other defaults, with the keys that were set.

    A default of the run is none of a policy with another loss, so it must not become a set key.
    """
    data = config.model_dump(by_alias=True, exclude_unset=True, include=set(WITH_USUAL))
    return data | {"loss": {"kind": config.loss.kind} | data.get("loss", {})}


def data_of_policy(config: Config, name: str) -> dict[str, Any]:
    """The keys of the plain configuration of one of the policies.

    The other sections have the values that the run has. Only `trainer` and `replay`, where a loss
    has usual values of its own, are as they were set.
    """
    own = config.policies[name]
    data = config.model_dump(by_alias=True)
    for section in WITH_USUAL:
        data.pop(section)
    given = as_set(config)
    if own.loss.get("kind", config.loss.kind) != config.loss.kind:
        for section in ("loss", "correctors"):
            given.pop(section, None)
    for section in ("policy", "loss", "optimiser"):
        given[section] = _merged(given.get(section) or {}, getattr(own, section))
    if LossConfig.model_for(given["loss"]).source_of(given["loss"]) != "replay":
        given.pop("replay", None)  # that of the run's other policies
    if own.correctors is not None:
        given["correctors"] = own.correctors
    target = config.run.target_return
    data["run"] |= {
        "init_from": own.init_from or config.run.init_from,
        "target_return": target.get(name) if isinstance(target, Mapping) else target,
    }
    return deepcopy(data | given | {"policies": {}})


def mistakes(config: Config) -> Iterator[str]:
    """A sentence for each mistake of the section; it begins with the dotted key to change."""
    names, target = config.policy_names(), config.run.target_return
    if isinstance(target, Mapping):
        if not config.policies:
            yield "run.target_return: there is one policy; set it to a number"
        for unknown in sorted(target.keys() - set(names)) if config.policies else ():
            yield (
                f"run.target_return: there is no policy {unknown!r}; the policies are "
                f"{', '.join(names)}"
            )
    elif target is not None and config.policies:
        yield (
            "run.target_return: the returns of several policies have no common mean; give a number "
            f"by policy, for instance {{{names[0]}: {target:g}}}"
        )
    if config.policies and config.ranks > 1:
        key = "trainer.processes" if config.resident.envs is None else "resident.devices"
        yield f"{key}: several policies learn in one trainer; set it to 1"
    if config.policies and not config.learning_policies():
        yield (
            f"policies: none of them learns; set policies.{names[0]}.learns to true, or play them "
            "with aclearn evaluate"
        )
    if config.evaluator.stop_after is not None and not config.judged_policies():
        yield (
            "evaluator.stop_after: several policies learn, and no mean return says which "
            "evaluation is the best; name those that count in run.target_return, or remove this"
        )
    for name in config.policies:
        _, found = check(type(config), data_of_policy(config, name))
        for key, sentence in found:  # some have no colon behind the key: "x is not a known key"
            yield _of_policy(name, f"{key}: {sentence.removeprefix(':').strip()}")


def doubts_of_policies(config: Config, known: set[str]) -> Iterator[str]:
    """The doubts about single policies that are not among those `known` of the run."""
    from aclearn.config.model import doubts  # which this is a part of

    for name in config.policies:
        for sentence in doubts(config.of_policy(name)):
            if sentence not in known:
                yield _of_policy(name, sentence)


def _of_policy(name: str, sentence: str) -> str:
    """A sentence about a policy's plain configuration as one about the run's."""
    if sentence.startswith(OVERRIDDEN):
        return f"policies.{name}.{sentence}"
    return f"policies.{name}: with its keys, {sentence}"


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**below, **above}
    for key in below.keys() & above.keys():
        if isinstance(below[key], Mapping) and isinstance(above[key], Mapping):
            merged[key] = _merged(below[key], above[key])
    return merged
