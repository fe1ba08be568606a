"""Whether the run that is there is over, from the summary that it left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aclearn.config import Config, EnvConfig, RunConfig
from aclearn.errors import RunFolderError
from aclearn.runs import RunFolder
from services.runtime.run_end import why_over

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


def _why_over(dir: Path, summary: object) -> str | None:
    run = RunConfig(name="r", dir=str(dir), max_env_steps=10_000)
    config = Config(env=EnvConfig(id="CartPole-v1"), run=run)
    with RunFolder.create(dir, "r", config.to_yaml()) as folder:
        folder.summary_path.write_text(json.dumps(summary))
    return why_over(config)


def test_a_run_is_over_by_the_trainers_account_and_not_by_an_actors_claim(tmp_path) -> None:
    assert _why_over(tmp_path / "a", _SUMMARY) is None
    words = _why_over(tmp_path / "b", _SUMMARY | {"accounted_env_steps": 10_000})
    assert "reached run.max_env_steps=10000" in str(words)


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
