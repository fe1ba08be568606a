"""Episodes of a policy as a dataset, read by Minari."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from typer.testing import CliRunner

from aclearn.config import config_of_keys
from aclearn.envs.factory import read_spec
from aclearn.errors import AclearnError
from services.cli import app
from services.evaluator.evaluate import evaluate
from services.evaluator.record import Episode, record
from services.evaluator.saved_policy import SavedPolicy, SavedRun
from services.trainer.build import make_trainer
from tests.support.cli import aclearn
from tests.support.saved_runs import save_run

minari = pytest.importorskip("minari")


@pytest.fixture(autouse=True)
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    return tmp_path / "datasets"


def _load(name: str) -> tuple[Any, list[Any]]:
    dataset = minari.load_dataset(name)
    return dataset, list(dataset.iterate_episodes())


def test_minari_loads_the_episodes_that_an_evaluation_plays(tmp_path: Path, datasets: Path) -> None:
    run = save_run(tmp_path, {"id": "CartPole-v1"})
    told = aclearn("record", run, "--episodes", "3", "--out", "pole/new-v0", "--seed", "7")
    assert told.startswith(f"wrote {datasets}/pole/new-v0: 3 episodes, ")
    dataset, episodes = _load("pole/new-v0")
    evaluated = evaluate(run, episodes=3, seed=7)
    assert [float(np.sum(each.rewards)) for each in episodes] == evaluated.returns
    assert dataset.total_episodes == 3 and dataset.total_steps == sum(evaluated.lengths)
    assert dataset.spec.action_space == gymnasium.spaces.Discrete(2)
    assert dataset.storage.metadata["algorithm_name"] == "actor_critic"
    # each step is one of CartPole's own
    env = dataset.recover_environment().unwrapped
    for episode in episodes:
        assert len(episode.observations) == len(episode.actions) + 1
        assert not episode.terminations[:-1].any() and episode.terminations[-1]
        for t, action in enumerate(episode.actions):
            env.reset()
            env.state = episode.observations[t].astype(np.float64)
            reached = env.step(int(action))[0]
            np.testing.assert_allclose(reached, episode.observations[t + 1], atol=1e-5)


def test_nested_observations_are_leaves_and_actions_the_environments_own(tmp_path: Path) -> None:
    run = save_run(tmp_path, {"id": "tests.support.space_envs:Senses", "ignore": ["note"]})
    record(run, "senses-v0", episodes=5, greedy=True)
    dataset, episodes = _load("senses-v0")
    assert len(episodes) == 5
    space = dataset.spec.observation_space
    first = episodes[0].observations
    assert {*space} == {*first} and len(first) == 3
    for name, leaf in first.items():
        assert leaf.dtype == space[name].dtype and leaf.shape[1:] == space[name].shape
    assert dataset.spec.action_space == gymnasium.spaces.MultiDiscrete([3, 2, 2])
    assert episodes[0].actions.shape == (len(episodes[0].rewards), 3)


def test_numbers_are_those_within_the_bounds_and_a_long_episode_is_cut(tmp_path: Path) -> None:
    run = save_run(tmp_path, {"id": "Pendulum-v1"})
    record(run, "swing-v2", episodes=2, most_steps=30)
    dataset, episodes = _load("swing-v2")
    assert isinstance(dataset.spec.action_space, gymnasium.spaces.Box)
    for episode in episodes:
        assert episode.actions.shape == (30, 1) and np.abs(episode.actions).max() <= 2.0
        assert episode.truncations.tolist() == [False] * 29 + [True]
        assert not episode.terminations.any()


def test_of_several_policies_one_is_recorded_while_all_play(tmp_path: Path, monkeypatch) -> None:
    keys = {"env.id": "tests.support.agents_env:Uneven", "policy.architecture": "mlp"}
    agents = {"policies.first.agents": "long", "policies.second.agents": "short"}
    config = config_of_keys({**keys, **agents, "trainer.device": "cpu", "trainer.amp": "off"})
    specs = read_spec(config.env, patterns=config.patterns).by_policy(config.patterns)
    checkpoint: Any = SimpleNamespace(path=Path("1.json"))
    policies = {}
    for name, spec in specs.items():
        own = config.of_policy(name)
        learner = make_trainer(own, spec).learner
        weights = learner.tensors()
        policies[name] = SavedPolicy(own, spec, learner.architecture, weights, checkpoint, name)
    saved = SavedRun(config, checkpoint, policies)
    monkeypatch.setattr("services.evaluator.record.load_run", lambda *_, **__: saved)
    for name, length in (("first", 8), ("second", 4)):
        command = ["record", str(tmp_path), "--out", f"{name}-v0", "--episodes", "3"]
        told = CliRunner().invoke(app, [*command, "--policy", name])
        assert told.exit_code == 0, told.output
        assert [len(each.rewards) for each in _load(f"{name}-v0")[1]] == [length] * 3
    with pytest.raises(AclearnError, match=r"several policies; name one of first, second"):
        record(tmp_path, "any-v0", episodes=1)


def test_a_dataset_that_exists_or_has_no_version_is_refused(tmp_path: Path, datasets: Path) -> None:
    run = save_run(tmp_path, {"id": "CartPole-v1"})
    record(run, "pole-v0", episodes=1)
    with pytest.raises(AclearnError, match=r"--out: .*pole-v0 exists already; choose another"):
        record(run, "pole-v0", episodes=1)
    with pytest.raises(AclearnError, match=r"--out: 'pole': expected the name of a dataset"):
        record(run, "pole", episodes=1)


def test_half_a_dataset_is_removed(tmp_path: Path, datasets: Path, monkeypatch) -> None:
    run = save_run(tmp_path, {"id": "CartPole-v1"})

    def fails(*_: Any) -> Any:
        raise OSError("no space left")

    monkeypatch.setattr("services.evaluator.record.Episode.add", fails)
    with pytest.raises(OSError, match="no space left"):
        record(run, "pole-v0", episodes=1)
    assert list(datasets.iterdir()) == []


def test_a_dataset_has_its_name_once_it_is_whole_and_another_of_the_name_stays(
    tmp_path: Path, datasets: Path, monkeypatch
) -> None:
    run, seen, add = save_run(tmp_path, {"id": "CartPole-v1"}), [], Episode.add

    def looking(episode: Any, *given: Any) -> None:
        if not seen:
            seen.append((minari.list_local_datasets(), (datasets / "poles/new-v0").exists()))
            monkeypatch.setattr(Episode, "add", add)
            record(run, "poles/new-v0", episodes=3)  # another command, which is faster
        add(episode, *given)

    monkeypatch.setattr(Episode, "add", looking)
    with pytest.raises(AclearnError, match=r"--out: .*poles/new-v0 exists already"):
        record(run, "poles/new-v0", episodes=1)
    assert seen == [({}, False)]
    assert {path.name for path in datasets.rglob("*new-v0*")} == {"new-v0"}
    assert [*minari.list_local_datasets()] == ["poles/new-v0"]
    assert len(_load("poles/new-v0")[1]) == 3
