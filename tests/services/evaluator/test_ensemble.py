"""Several policies as one: what it gives, where it is taken as a run, and who cannot join."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import aclearn
from aclearn.errors import AclearnError, ArgumentError
from aclearn.population import Lineage
from aclearn.population.file import judged_folder, write_lineage
from services.evaluator.saved_policy import load_policy
from tests.support.saved_runs import save_run
from tests.support.space_envs import Match, Reach

_EXAMPLE = Path(__file__).parents[3] / "examples" / "play_onnx.py"
_ENVS = "tests.support.space_envs"
_KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Discrete": (lambda: gymnasium.make("CartPole-v1"), {"id": "CartPole-v1"}),
    "MultiDiscrete": (Match, {"id": f"{_ENVS}:Match"}),
    "Box": (lambda: gymnasium.make("Pendulum-v1"), {"id": "Pendulum-v1", "squash_actions": True}),
    "Dict of actions": (Reach, {"id": f"{_ENVS}:Reach"}),
}
_NUMBERS = ("Box", "Dict of actions")


def _runs(folder: Path, env: dict[str, Any], count: int = 3, **policy: Any) -> list[Path]:
    """Runs of other weights, and one of another network."""
    return [
        save_run(
            folder / f"run-{n}",
            env,
            run={"seed": n},
            policy={"hidden": [8 + 4 * (n == 1)], **policy},
        )
        for n in range(count)
    ]


def _parts(named: dict[str, Any], name: str) -> list[Any]:
    found = named.get(name, ())
    return list(found) if isinstance(found, tuple) else [found]


def _joined(by: str, members: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """The parameters of an ensemble, by its definition, from those of its members."""
    choices, means, stds = (
        [np.stack(each) for each in zip(*(_parts(m, name) for m in members), strict=True)]
        for name in ("probabilities", "mean", "std")
    )
    shares = [each.mean(0) for each in choices]
    if by == "vote":
        votes = [np.eye(each.shape[1])[each.argmax(1)].mean(0) for each in choices]
        shares = [0.999 * v + 0.001 * share for v, share in zip(votes, shares, strict=True)]
    if by == "means":
        std = [np.exp(np.log(each).mean(0)) for each in stds]
    else:
        std = [
            np.sqrt((s**2 + m**2).mean(0) - m.mean(0) ** 2)
            for s, m in zip(stds, means, strict=True)
        ]
    return {"probabilities": shares, "mean": [each.mean(0) for each in means], "std": std}


@pytest.mark.parametrize("by", ["mean", "vote", "means"])
@pytest.mark.parametrize("kind", _KINDS)
def test_it_gives_what_its_members_give_together(kind: str, by: str, tmp_path: Path) -> None:
    make, env_config = _KINDS[kind]
    numbers = kind in _NUMBERS
    runs = _runs(tmp_path, env_config)
    if (by == "vote" and numbers) or (by == "means" and not numbers):
        with pytest.raises(AclearnError, match=f"by {by}"):
            aclearn.ensemble(runs, tmp_path / "all", by=by)
        return
    together = aclearn.load(aclearn.ensemble(runs, tmp_path / "all", by=by))
    members = [aclearn.load(run) for run in runs]
    observation, _ = make().reset(seed=1)
    expected = _joined(by, [member.parameters(observation) for member in members])
    found = together.parameters(observation)
    for name, parts in expected.items():
        for mine, theirs in zip(_parts(found, name), parts, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-5, err_msg=name)
    value = np.mean([member.value(observation) for member in members])
    assert together.value(observation) == pytest.approx(value, rel=1e-4)


def test_runs_of_several_policies_are_refused_and_one_in_a_section_is_none_of_them(
    tmp_path: Path,
) -> None:
    env = {"id": "tests.support.agents_env:Pairs"}
    for count, agents in ((1, ["*"]), (2, ["long", "short"])):
        policies = {f"p{n}": {"agents": pattern} for n, pattern in enumerate(agents)}
        runs = [save_run(tmp_path / f"{count}-{n}", env, policies=policies) for n in range(2)]
        if count == 1:
            assert aclearn.ensemble(runs, tmp_path / "all").is_dir()
            continue
        with pytest.raises(ArgumentError, match="has several policies, which play together"):
            aclearn.ensemble(runs, tmp_path / "both")


@pytest.mark.parametrize("memory", [None, "lstm"])
@pytest.mark.parametrize("kind", _KINDS)
def test_its_model_is_one_file_that_plays_alone(
    kind: str, memory: str | None, tmp_path: Path
) -> None:
    make, env_config = _KINDS[kind]
    given: dict[str, Any] = {"memory": {"kind": memory, "size": 6}} if memory else {}
    runs = _runs(tmp_path, env_config, normalise_observations=kind == "Box", **given)
    by = "means" if kind == "Box" else "mean"
    folder, model = aclearn.ensemble(runs, tmp_path / "all", by=by), tmp_path / "all.onnx"
    aclearn.export(folder, model)
    assert [path.name for path in tmp_path.glob("*.onnx*")] == ["all.onnx"]
    # onnxruntime and numpy, and nothing of ours
    policy, env = aclearn.load(folder), make()
    alone = runpy.run_path(str(_EXAMPLE))["OnnxPolicy"](str(model))
    alone.begin()
    observation, _ = env.reset(seed=1)
    for _ in range(4):
        action = alone.act(observation)
        _assert_same(action, policy.act(observation, greedy=True))
        observation, *_ = env.step(action)


def _assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        for name, part in expected.items():
            _assert_same(found[name], part)
        return
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_evaluate_takes_it_as_a_run(tmp_path: Path) -> None:
    folder = aclearn.ensemble(_runs(tmp_path, {"id": "CartPole-v1"}), tmp_path / "all", by="vote")
    played = aclearn.open_run(folder).evaluate(episodes=2, greedy=True)
    assert len(played.returns) == 2 and min(played.returns) > 0


def test_the_best_members_of_a_population_are_taken_as_they_were_judged(tmp_path: Path) -> None:
    population = tmp_path / "p"
    population.mkdir()
    lineage = Lineage.begin([{} for _ in range(4)], round_steps=100)
    now = lineage.now
    for number, run in enumerate(_runs(tmp_path, {"id": "CartPole-v1"}, count=4)):
        run.rename(population / f"member-{number}")
        newest = load_policy(population / f"member-{number}").checkpoint.path
        checkpoint, judged = newest.stem, judged_folder(population, number)
        judged.parent.mkdir(exist_ok=True)
        newest.parent.rename(judged)  # its run has removed it
        member = now.members[number]
        if number == 3:
            now = now.with_member(member.died("diverged", "not finite", 100, 0))
        else:
            now = now.with_member(member.judged(float(number), 0.1, 100, checkpoint, 0))
    write_lineage(population, lineage.with_now(now))
    folder = aclearn.ensemble(aclearn.Population(population), tmp_path / "all", best=2)
    members = load_policy(folder).checkpoint.state["members"]
    assert [Path(each).parts[-2] for each in members] == ["member-2", "member-1"]
    with pytest.raises(AclearnError, match="has 3 living members that were judged"):
        aclearn.ensemble(population, tmp_path / "more", best=4)
    with pytest.raises(AclearnError, match="at is of runs"):
        aclearn.ensemble(population, tmp_path / "more", at="best")
    with pytest.raises(AclearnError, match=r"best: expected .*2"):
        aclearn.ensemble(population, tmp_path / "more", best=0)


def test_members_that_cannot_join_are_refused_by_name(tmp_path: Path) -> None:
    runs = _runs(tmp_path, {"id": "CartPole-v1"})
    other = save_run(tmp_path / "other", {"id": "Acrobot-v1"})
    with pytest.raises(AclearnError, match=r"other.*has other spaces than .*run-0"):
        aclearn.ensemble([*runs, other], tmp_path / "all")
    with pytest.raises(AclearnError, match="expected one of mean, vote, means"):
        aclearn.ensemble(runs, tmp_path / "all", by="votes")
    with pytest.raises(AclearnError, match="at least 2 run folders"):
        aclearn.ensemble(aclearn.open_run(runs[0]), tmp_path / "all")
    with pytest.raises(AclearnError, match="best is of a population"):
        aclearn.ensemble(runs, tmp_path / "all", best=2)
    masked = _runs(tmp_path / "masked", {"id": f"{_ENVS}:Gates", "action_mask": "info"})
    with pytest.raises(AclearnError, match="Gates has action masks"):
        aclearn.ensemble(masked, tmp_path / "all")
    own = save_run(
        tmp_path / "own",
        {"id": "CartPole-v1"},
        policy={"architecture": "tests.support.own_networks:Remembers", "hidden": None},
    )
    with pytest.raises(AclearnError, match="one of your own"):
        aclearn.ensemble([*runs, own], tmp_path / "all")
    aclearn.ensemble(runs, tmp_path / "all")
    with pytest.raises(AclearnError, match="exists"):
        aclearn.ensemble(runs, tmp_path / "all")
