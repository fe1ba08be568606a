"""docs/resident.md and docs/worlds.md: their programs run, actors step their environments."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

from aclearn.config import EnvConfig, load_config
from aclearn.envs import make_vector_env

pytest.importorskip("aclearn.resident")
_PAGES = [Path(__file__).parents[3] / "docs" / name for name in ("resident.md", "worlds.md")]
_BLOCK = re.compile(
    r"^```(?:python|yaml)\n(?P<text># (?P<name>\S+)\n.*?)^```$", re.MULTILINE | re.DOTALL
)


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for block in _BLOCK.finditer("".join(page.read_text("utf-8") for page in _PAGES)):
        (tmp_path / block["name"]).write_text(block["text"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_the_programs_print_what_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path("random_actions.py")
    [_, mean] = re.fullmatch(
        r"(\d+) episodes, mean return (\d+\.\d)\n", capsys.readouterr().out
    ).groups()
    assert 21.0 < float(mean) < 23.5  # of uniform actions it is 22.3
    runpy.run_path("check.py")
    steps, excluded = map(int, re.findall(r"\d+", capsys.readouterr().out))
    assert steps > 4000 and excluded == 0


def test_the_program_of_worlds_plays_tag(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path("random_tag.py")
    [episodes, _] = re.fullmatch(
        r"(\d+) episodes of agents, (\d\.\d) columns away\n", capsys.readouterr().out
    ).groups()
    assert int(episodes) % 5 == 0 and int(episodes) >= 5000


def test_actors_step_the_world_of_the_page() -> None:
    config = load_config("meeting.yaml")
    assert config.resident.envs == 500
    env = EnvConfig(id=config.env.id, kwargs=config.env.kwargs)
    group = make_vector_env(env, num_envs=2, seed=1, step_timeout_s=60.0, max_faults=0)
    try:
        assert group.spec.agent_names == tuple(f"walker_{i}" for i in range(4))
        seen = group.reset()["observation"]
        rewards = np.zeros(8)
        for _ in range(40):
            group.send(np.ones(8, np.int32))  # nobody walks: only those in one place have met
            step = group.recv()
            met = ((seen == 0).sum(1) > 0) & ~step.reset
            # 2 · 0.5 and 2 · 1.5 of the two environments, for each whom one meets
            prize = np.repeat([1.0, 3.0], 4) * (seen == 0).sum(1)
            np.testing.assert_allclose(step.rewards, np.where(met, prize, 0.0), rtol=1e-6)
            assert (step.terminated[met]).all()
            rewards += step.rewards
            seen = step.observations["observation"]
        assert rewards.any()
    finally:
        group.close()


def test_actors_step_the_environment_of_the_page() -> None:
    config = load_config("sailing.yaml")
    assert config.resident.envs == 1000
    env = EnvConfig(id=config.env.id, kwargs={"strength": 0.0, "time_limit": 7})
    group = make_vector_env(env, num_envs=5, seed=1, step_timeout_s=60.0, max_faults=0)
    try:
        seen = group.reset()["observation"]
        assert (np.abs(seen[:, 0]) <= 1.0).all()
        for at in range(1, 17):
            group.send(np.full(5, 1, np.int32))
            step = group.recv()
            after = step.observations["observation"]
            assert step.reset.tolist() == [at in (8, 16)] * 5
            assert step.truncated.tolist() == [at in (7, 15)] * 5
            if not step.reset[0]:
                # no wind, no rudder: gusts of 0.1, the next hour, minus the distance as reward
                assert (np.abs(after - seen)[:, 0] < 0.6).all()
                np.testing.assert_allclose(after[:, 1], (seen[:, 1] + 1 / 24) % 1.0, atol=1e-6)
                np.testing.assert_allclose(step.rewards, -np.abs(after[:, 0]), rtol=1e-6)
            seen = after
        with pytest.raises(ValueError, match="actions: expected 3 actions"):
            group.send(np.full(5, 3, np.int32))
        with pytest.raises(ValueError, match=r"expected shape \(5,\), got \(4,\)"):
            group.send(np.zeros(4, np.int32))
    finally:
        group.close()
