"""The names that a run's metrics lines can have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aclearn.config import config_from_yaml, config_of_keys
from aclearn.errors import ConfigError
from aclearn.metrics.names import (
    FIXED_FIGURES,
    OWNED_FIGURES,
    TRAINER_FIGURES,
    check_line_name,
)

_ROLES = ("monitor", "trainer", "actor")


def check(name: str, text: str = "", *, roles=_ROLES, own=()) -> None:
    config = config_from_yaml("env: {id: CartPole-v1}\n" + text)
    check_line_name(name, config, key="monitor.strategies", roles=roles, own=own)


@pytest.mark.parametrize(
    ("name", "text", "roles"),
    [
        ("return_mean_100", "", _ROLES),
        ("reward_gap", "", _ROLES),
        ("behaviour_kl_estimate", "", _ROLES),
        ("actor_env_faults", "", _ROLES),
        ("monitor_free_cores", "", ()),
        ("compressor_kl_max", "", (*_ROLES, "compressor")),
        ("compressor_latency_ms_16", "", (*_ROLES, "compressor")),
        (
            "compressor_round_change",
            "compressor: {chain: ['links:Round', onnx]}",
            (*_ROLES, "compressor"),
        ),
        ("tuner_rate", "tuner: {enabled: true}", _ROLES),
        ("plugin_level", "monitor: {plugins: ['mine:Plugin']}", _ROLES),
        ("my_loss", "loss: {kind: 'mine:Loss'}", _ROLES),
        ("my_share", "correctors: [vtrace, 'mine:Corrector']", _ROLES),
    ],
)
def test_what_a_role_or_a_part_of_the_users_own_may_report_is_taken(name, text, roles) -> None:
    check(name, text, roles=roles)


def test_figures_of_the_users_indicators_are_taken() -> None:
    check("best_streak", own=("best_streak",))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("compressor_kl_max", "'compressor_kl_max'"),  # without a compressor
        ("retrun_mean_100", "did you mean return_mean_100"),
        ("wait_share", "'wait_share'"),  # no single number
        ("dropped_steps", "'dropped_steps'"),
        ("tuner_rate", "'tuner_rate'"),
        ("plugin_level", "'plugin_level'"),
        ("xyz", "docs/metrics.md has their names"),
    ],
)
def test_another_name_is_refused(name, words) -> None:
    with pytest.raises(ConfigError, match=r"^monitor\.strategies: no metrics line of this") as no:
        check(name)
    assert words in str(no.value)


def test_a_misspelt_figure_of_a_compressor_is_refused_beside_our_links() -> None:
    with pytest.raises(ConfigError, match="did you mean compressor_kl_max"):
        check("compressor_kl_mx", "compressor: {chain: [onnx]}", roles=(*_ROLES, "compressor"))


def test_the_known_figures_are_those_of_the_page_on_metrics() -> None:
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
    tables = page.partition("\n## In every line\n")[2].partition("\n## TensorBoard\n")[0]
    first_columns = [row.split("|")[1] for row in tables.splitlines() if row.startswith("| `")]
    documented = {
        name for column in first_columns for name in re.findall(r"`([a-z0-9_]+)`", column)
    }
    # mappings, texts, and the counts of lines that were not written
    other = {"dropped_steps", "wait_share", "part_seconds", "checkpoint_error", "tuner_verdicts"}
    other |= {"metrics_failures", "metrics_error", "chain_steps", "policy", "evaluator_test"}
    other |= {"policies"}
    assert documented - other == {*FIXED_FIGURES, *TRAINER_FIGURES, *OWNED_FIGURES}


def test_a_figure_that_each_policy_has_is_none_of_the_run() -> None:
    config = config_of_keys({"env.id": "a", "policies.red.agents": "*"})
    for name in ("behaviour_kl_estimate", "compressor_kl_mean", "entropy"):
        with pytest.raises(ConfigError, match=f"^s: each of several policies .* '{name}' of its"):
            check_line_name(name, config, key="s", roles=("trainer", "compressor"))
    for name in ("return_mean_100", "queue_fill", "lag_mean", "reward_gap"):
        check_line_name(name, config, key="s", roles=("trainer", "compressor"))
