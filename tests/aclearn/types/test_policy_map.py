"""Each agent has exactly one policy, or the mistake is refused by name."""

from __future__ import annotations

import pytest

from aclearn.errors import ConfigError
from aclearn.types import agents_by_policy, check_equal_spaces

_AGENTS = ("adversary_0", "adversary_1", "agent_0", "Agent_1")


def test_patterns_give_each_agent_its_policy_in_the_order_of_the_environment() -> None:
    patterns = {"runner": ("Agent_[0-9]", "agent_0"), "tagger": ("adversary_*", "adversary_1")}
    assert agents_by_policy(patterns, _AGENTS) == {
        "runner": ("agent_0", "Agent_1"),
        "tagger": ("adversary_0", "adversary_1"),
    }
    assert agents_by_policy({}, _AGENTS) == {"default": _AGENTS}


@pytest.mark.parametrize(
    ("patterns", "said"),
    [
        (
            {"tagger": ("adversary_*",), "runner": ("agent_*",)},  # Agent_1 has a capital
            r"policies: no policy has Agent_1; add to policies\.NAME\.agents",
        ),
        (
            {"all": ("*",), "ghost": ("agnt_0",)},
            r"policies\.ghost\.agents: no agent matches 'agnt_0'; did you mean agent_0.*adversary",
        ),
        (
            {"all": ("*", "ghost_*")},
            r"policies\.all\.agents: no agent matches 'ghost_\*'",
        ),
        (
            {"all": ("*",), "tagger": ("adversary_1",)},
            r"policies\.tagger\.agents: the agent adversary_1 is one of policies\.all too",
        ),
    ],
    ids=("without a policy", "without agents", "one of two patterns", "two policies"),
)
def test_an_agent_or_a_pattern_without_the_other_is_refused_by_name(patterns, said) -> None:
    with pytest.raises(ConfigError, match=said):
        agents_by_policy(patterns, _AGENTS)


def test_a_thousand_agents_without_a_policy_are_counted_and_not_all_named() -> None:
    agents = [f"a_{i}" for i in range(1000)]
    with pytest.raises(ConfigError, match=r"a_1, .*a_8 and 991 more; add") as refused:
        agents_by_policy({"first": ("a_0",)}, agents)
    assert len(str(refused.value)) < 250


def test_agents_of_one_policy_with_different_spaces_are_refused_and_named() -> None:
    policies = {"tagger": ("a", "b"), "runner": ("c",)}
    check_equal_spaces(policies, "actions", {"a": 3, "b": 3, "c": 5})
    with pytest.raises(ConfigError, match=r"policies\.tagger\.agents: .*actions.*: 3 of a, 4 of b"):
        check_equal_spaces(policies, "actions", {"a": 3, "b": 4, "c": 5})
