"""Whether the existing run is over, by its summary, and what its end says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aclearn.config import Config, EnvConfig, RunConfig, config_of_keys, with_overrides
from aclearn.errors import RunFolderError
from aclearn.runs import RunFolder
from services.ending.words import closing_words, next_commands, why_over

_SUMMARY = {
    "time_s": 9.0,
    "env_steps": 50_000,
    "accounted_env_steps": 9_999,
    "updates": 7,
    "return_mean_100": None,
    "episodes_in_mean": 0,
    "reached_target_at_s": None,
    "reason": "SIGTERM",
}


def _why_over(dir: Path, summary: object, **bounds: float) -> str | None:
    run = RunConfig(name="r", dir=str(dir), **(bounds or {"max_env_steps": 10_000}))
    config = Config(env=EnvConfig(id="CartPole-v1"), run=run)
    with RunFolder.create(dir, "r", config.to_yaml()) as folder:
        folder.summary_path.write_text(json.dumps(summary))
    return why_over(config)


def test_a_run_is_over_by_the_trainers_account_and_not_by_an_actors_claim(tmp_path) -> None:
    assert _why_over(tmp_path / "a", _SUMMARY) is None
    words = _why_over(tmp_path / "b", _SUMMARY | {"accounted_env_steps": 10_000})
    assert "reached run.max_env_steps=10000" in str(words)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (
            {"max_env_steps": 1_234_567},
            "run.max_env_steps=1234567. To resume it, give a higher bound, "
            "e.g. run.max_env_steps=2469134",
        ),
        (
            {"max_wall_s": 12.5},  # 25 would be too few again
            "run.max_wall_s=12.5. To resume it, give a higher bound, e.g. run.max_wall_s=100",
        ),
        (
            {"target_return": 475.0, "max_updates": 5000, "max_wall_s": 90.0},
            "its target of 475 at 90 s and run.max_updates=5000 and run.max_wall_s=90. To resume "
            "it, give run.stop_at_target=false or a higher run.target_return, and higher "
            "bounds, e.g. run.max_updates=10000 run.max_wall_s=180",
        ),
    ],
)
def test_all_that_a_run_has_reached_is_named_with_keys_that_suffice(
    tmp_path, bounds, words
) -> None:
    summary = _SUMMARY | {
        "time_s": 90.4,
        "accounted_env_steps": 1_234_600,
        "updates": 5000,
        "return_mean_100": 475.0,
        "episodes_in_mean": 100,
    }
    over = _why_over(tmp_path, summary, **bounds)
    assert over == f"the run in {tmp_path / 'r'} is over: it has reached {words}"


@pytest.mark.parametrize(
    ("summary", "what"),
    [
        ({}, "it has no time_s"),
        ({k: v for k, v in _SUMMARY.items() if k != "episodes_in_mean"}, "no episodes_in_mean"),
        ({k: v for k, v in _SUMMARY.items() if k != "return_mean_100"}, "no return_mean_100"),
        (_SUMMARY | {"updates": "many"}, "values of another type"),
    ],
)
def test_a_summary_that_is_no_run_s_is_refused_by_its_name(tmp_path, summary, what) -> None:
    with pytest.raises(RunFolderError, match=rf"r/summary\.json is no summary .*{what}"):
        _why_over(tmp_path, summary)


def test_an_early_stop_has_its_own_words_and_the_key_that_lets_the_run_go_on(tmp_path) -> None:
    summary = _SUMMARY | {
        "reason": "early_stop",
        "wall_s": 9.0,
        "evaluator_return_mean": 20.0,
        "evaluator_return_standard_error": 0.5,
        "evaluator_env_steps": 45_000.0,
        "evaluator_since_best": 3,
        "evaluator_best_return": 21.5,
    }
    keys = {"env.id": "CartPole-v1", "evaluator.every_s": 60, "evaluator.stop_after": 3}
    config = config_of_keys({**keys, "run.name": "r", "run.dir": str(tmp_path)})
    assert closing_words(config, summary).startswith(
        "run r (seed 1) ended: early_stop (3 evaluations without a better mean than 21.50), "
        "evaluated 20.00 ± 0.5 at 45000 steps, "
    )
    with RunFolder.create(tmp_path, "r", config.to_yaml()) as folder:
        folder.summary_path.write_text(json.dumps(summary))
    assert str(why_over(config)).endswith(
        "it has reached 3 evaluations without a better one (evaluator.stop_after). To resume it, "
        "give evaluator.stop_after=null or a higher one, e.g. 6"
    )
    assert why_over(with_overrides(config, ["evaluator.stop_after=4"])) is None
    assert why_over(with_overrides(config, ["evaluator.stop_after=null"])) is None


def test_the_last_words_tell_a_bound_before_the_first_update_and_a_sink_that_failed(
    tmp_path,
) -> None:
    run = RunConfig(name="r", dir=str(tmp_path), max_wall_s=3.0)
    config = Config(env=EnvConfig(id="CartPole-v1"), run=run)
    summary = _SUMMARY | {"reason": "max_wall_s", "wall_s": 9.0, "env_steps": 0}
    early = summary | {"updates": 0}
    assert closing_words(config, early) == (
        "run r (seed 1) ended: max_wall_s, 0 agent steps in 9 s; run.max_wall_s, which counts from "
        f"the command, passed before the first update; {tmp_path}/r"
    )
    resume = f"next: aclearn train {tmp_path}/r/config.yaml --resume run.max_wall_s=12"
    assert next_commands(config, early) == resume
    assert "first update" not in closing_words(config, summary)
    dropped = summary | {"dropped_steps": {"env_fault": 7, "bad_unroll": 320, "lag": 0}}
    assert " in 9 s, not learned: bad_unroll 320, env_fault 7; " in closing_words(config, dropped)
    told = closing_words(config, summary | {"sink_error": "metrics sink a fails"})
    assert told.endswith("/r\nmetrics sink a fails")
    assert "aclearn evaluate" in next_commands(config, summary)


def test_the_last_words_have_the_returns_and_targets_of_several_policies(tmp_path) -> None:
    policies = {"policies.red.agents": "r*", "policies.blue": {"agents": "b*", "learns": False}}
    target = {"run.target_return.red": 3, "run.target_return.blue": -2.5}
    place = {"run.name": "r", "run.dir": str(tmp_path)}
    config = config_of_keys({"env.id": "m:tag", **policies, **target, **place})
    means = {
        "red": {"return_mean_100": 3.125, "target_return": 3.0},
        "blue": {"return_mean_100": None, "target_return": -2.5},
    }
    over = {"policies": means, "reached_target_at_s": 8.0, "reason": "target_reached", "wall_s": 9}
    summary = _SUMMARY | {"return_mean_100": None} | over
    words = closing_words(config, summary)
    assert words.startswith("run r (seed 1) ended: target_reached, return red 3.12, blue -, ")
    assert "; target red 3 and blue -2.5 reached at 8 s; " in words
    assert f"export {tmp_path}/r --to r.onnx --policy red" in next_commands(config, summary)
