"""Which policy plays which agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from aclearn.errors import ConfigError, did_you_mean
from aclearn.types.policy_version import DEFAULT_POLICY

#: Most names of a list in a message.
_SHOWN = 8


def agents_by_policy(
    patterns: Mapping[str, Sequence[str]], agents: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Policy → its agents, in the orders of the arguments; each agent has exactly one.

    Args:
        patterns: policy → case-sensitive globs (`*`, `?`, `[ab]`); empty: one policy plays all.
        agents: of an environment.

    Raises:
        ConfigError: an agent without a policy or with two, or a pattern that no agent matches.
    """
    if not patterns:
        return {DEFAULT_POLICY: tuple(agents)}
    for policy, globs in patterns.items():
        for glob in globs:
            if not any(fnmatchcase(agent, glob) for agent in agents):
                near = did_you_mean(glob, agents)
                raise ConfigError(
                    f"policies.{policy}.agents: no agent matches {glob!r}{near}; the agents of the "
                    f"environment are {_listed(agents)} (upper and lower case differ)"
                )
    found: dict[str, list[str]] = {policy: [] for policy in patterns}
    for agent in agents:
        of = [p for p, globs in patterns.items() if any(fnmatchcase(agent, g) for g in globs)]
        if len(of) > 1:
            raise ConfigError(
                f"policies.{of[1]}.agents: the agent {agent} is one of policies.{of[0]} too; "
                "each agent has one policy"
            )
        if of:
            found[of[0]].append(agent)
    if missing := [agent for agent in agents if not any(agent in each for each in found.values())]:
        raise ConfigError(
            f"policies: no policy has the agents {_listed(missing)}; name them in policies.NAME."
            'agents, or add a policy that has them, for instance one with agents: "*"'
            if len(missing) == len(agents)
            else f"policies: no policy has {_listed(missing)}; add to policies.NAME.agents a "
            "pattern that matches, or a policy for the rest"
        )
    return {policy: tuple(each) for policy, each in found.items()}


def check_equal_spaces(
    policies: Mapping[str, Sequence[str]], what: str, spaces: Mapping[str, Any]
) -> None:
    """Check that the agents of each policy have the same space.

    Args:
        policies: policy → agents, as of `agents_by_policy`.
        what: "observations" or "actions".
        spaces: agent → its space.

    Raises:
        ConfigError: two of them differ; names both.
    """
    for policy, agents in policies.items():
        first = agents[0]
        for other in agents[1:]:
            if spaces[other] != spaces[first]:
                raise ConfigError(
                    f"policies.{policy}.agents: the agents of a policy have the same {what}, and "
                    f"these differ: {spaces[first]} of {first}, {spaces[other]} of {other}. Give "
                    "them policies of their own (section policies), or wrap the environment so "
                    "that they are equal"
                )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
