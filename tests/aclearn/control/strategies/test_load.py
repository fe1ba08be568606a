"""Strategies of a configuration, and the errors of invalid ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from aclearn.config import config_from_yaml
from aclearn.control import Decision, Strategy
from aclearn.control.strategies.load import check_strategies, open_strategies
from aclearn.errors import ConfigError

LADDER = [["int8", "onnx"], ["onnx"], []]


def config(*strategies, **groups):
    groups = {"compressor": {"ladder": LADDER}, "monitor": {}} | groups
    groups["monitor"] = groups["monitor"] | {"strategies": list(strategies)}
    return config_from_yaml(yaml.safe_dump({"env": {"id": "CartPole-v1"}, **groups}))


def check(config) -> None:
    check_strategies(config, {"monitor", "trainer", "actor", "compressor"})


class Mine(Strategy):
    """A user's own strategy."""

    def __init__(self, level: float = 1.0) -> None:
        self.level = level

    def decide(self, moment):
        return Decision(1)


class Numbers:
    """No strategy."""


MINE = f"{__name__}:Mine"


@pytest.mark.parametrize("name", ["threshold", "reward_gap", "staged", "bandit", MINE])
def test_a_strategy_may_have_no_arguments(name: str) -> None:
    check(config(name, "linear_mix", actors={"original_share": 0.1}))


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ("treshold", "'treshold' is unknown; expected one of threshold, .*did you mean threshold?"),
        ({"threshold": {"epsilon": -1}}, "epsilon.*-1"),
        ({"threshold": {"epsilon": 0}}, "epsilon.*0"),
        ({"reward_gap": {"delta": -0.5}}, "delta"),
        ({"threshold": {"epsilon": float("nan")}}, "epsilon"),
        ({"threshold": {"dwell_s": 0}}, "dwell_s"),
        ({"threshold": {"delta": 3}}, "delta"),
        ({"linear_mix": {"step": 1.5}}, "step"),
        ({"bandit": {"window": 1}}, "window"),
        ({"staged": {"improvement": -1}}, "improvement"),
        ({"threshold": {}, "bandit": {}}, "expected a name or one"),
    ],
)
def test_arguments_that_cannot_be_are_refused_by_name(strategy, words: str) -> None:
    with pytest.raises(ConfigError, match=f"monitor.strategies.*{words}"):
        config(strategy)


@pytest.mark.parametrize("correctors", [["vtrace"], "auto"])
def test_auto_measures_what_v_trace_does(correctors) -> None:
    check(config({"threshold": {"indicator": "clipped_rho_share"}}, correctors=correctors))


@pytest.mark.parametrize(
    ("strategies", "groups", "words"),
    [
        (
            ["threshold", "bandit"],
            {},
            "monitor.strategies: threshold and bandit both set the rung of the ladder; keep one",
        ),
        ([MINE, "staged"], {}, "Mine and staged both set the rung"),
        (["linear_mix", {"linear_mix": {"step": 0.1}}], {}, "both set the share of unrolls"),
        (["reward_gap"], {}, "does not measure reward_gap; set actors.original_share above 0"),
        (["threshold"], {"compressor": {}}, "threshold needs a ladder of at least two chains"),
        (
            ["linear_mix"],
            {"actors": {"inference": "predictor"}},
            "linear_mix needs actors that play two policies; set actors.inference to local",
        ),
        (
            [{"threshold": {"indicator": "compressor_kl_maxx"}}],
            {},
            "threshold: no metrics line of this run has a figure 'compressor_kl_maxx'; did you "
            "mean compressor_kl_max",
        ),
        ([{"threshold": {"indicator": "xyz"}}], {}, "has a figure 'xyz'"),
        (
            ["threshold"],
            {"compressor": {"ladder": LADDER, "fidelity_observations": 0}},
            "threshold: this run does not measure compressor_kl_max; set "
            "compressor.fidelity_observations of 1024 or more",
        ),
        (
            [{"threshold": {"indicator": "behaviour_kl"}}],
            {},
            "does not measure behaviour_kl; set actors.behaviour_parameters to true",
        ),
        (
            [{"threshold": {"indicator": "clipped_rho_share"}}],
            {"correctors": []},
            "does not measure clipped_rho_share; set vtrace among correctors",
        ),
        ([{"staged": {"improvement": 3}}], {}, "staged: improvement: expected a rung from 0 to 2"),
        ([f"{__name__}:Mime"], {}, "did you mean Mine"),
        ([{MINE: {"lewel": 2}}], {}, "it takes level"),
        ([f"{__name__}:Numbers"], {}, "expected an instance of aclearn.control.strategies"),
    ],
)
def test_strategies_that_cannot_work_are_refused_before_the_run(strategies, groups, words) -> None:
    with pytest.raises(ConfigError) as error:
        check(config(*strategies, **groups))
    assert words in str(error.value)


def test_the_configuration_that_the_page_shows_works() -> None:
    page = (Path(__file__).parents[4] / "docs" / "strategies.md").read_text("utf-8")
    [text] = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    check(config_from_yaml(f"env: {{id: CartPole-v1}}\n{text}"))


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        check(config({"threshold": {"indicator": "xyz"}}, {"staged": {"improvement": 3}}))
    assert len(str(error.value).splitlines()) == 3


def test_without_a_ladder_its_figures_are_no_further_fault() -> None:
    with pytest.raises(ConfigError) as error:
        check_strategies(config("threshold", compressor={}), {"monitor", "trainer", "actor"})
    assert str(error.value).splitlines() == [
        "monitor.strategies: threshold needs a ladder of at least two chains, and there is none; "
        "set compressor.chain or compressor.ladder"
    ]


def test_figures_of_a_users_own_parts_may_be_followed() -> None:
    own = {"plugins": ["mine:Plugin"]}
    check(config({"threshold": {"indicator": "plugin_far"}}, monitor=own))
    check(config({"threshold": {"indicator": "surprise"}}, correctors=["mine:Own"]))


def test_a_ladder_of_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"compressor\.ladder: one chain leaves nothing"):
        config("threshold", compressor={"ladder": [["onnx"]]})


def test_a_run_that_must_be_reproducible_has_no_strategies() -> None:
    with pytest.raises(ConfigError, match=r"monitor\.strategies: .*run\.deterministic"):
        config("threshold", run={"deterministic": True})


def test_strategies_share_one_log_and_each_goes_on_from_its_own_line(tmp_path) -> None:
    both = config("threshold", "linear_mix", {MINE: {"level": 2.0}})
    assert both.monitor.strategies[2].arguments.model_dump() == {"dwell_s": 10.0, "level": 2.0}
    assert open_strategies(config(), tmp_path, ()) == {}
    assert list(tmp_path.iterdir()) == []
    state = {"wait_s": 60, "failed": 0}
    lines = [
        {"strategy": "threshold", "rung": 1, "changed_s": 1, "state": state},
        {"strategy": "threshold", "rung": 2, "changed_s": 2, "state": state},
        {"strategy": "linear_mix", "compressed_share": 0.25, "changed_s": 3, "state": {}},
    ]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (tmp_path / "strategies.jsonl").write_text(text)
    plugins = open_strategies(config("threshold", "linear_mix"), tmp_path, {"compressor"})
    assert {name: plugin.setting for name, plugin in plugins.items()} == {
        "threshold": 2,
        "linear_mix": 0.25,
    }


def test_a_configuration_keeps_its_strategies_through_yaml() -> None:
    written = config("threshold", {"linear_mix": {"zero_at": 2}})
    assert config_from_yaml(written.to_yaml()) == written
