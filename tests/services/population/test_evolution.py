"""The rounds of a population, whose members are trained by a stand-in."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from aclearn.config import with_overrides
from aclearn.errors import ConfigError, RoleFailure, RunFolderError
from aclearn.launch import StopFlag
from aclearn.population import DEAD, Origin, Selector
from aclearn.population.file import judged_folder, read_lineage
from aclearn.runs import (
    list_checkpoints,
    load_checkpoint,
    load_newest,
    read_metrics,
    runs_in,
    save_checkpoint,
)
from services.population.evolution import begin
from services.population.folder import PopulationFolder, existing_folder, refuse_other_population
from services.population.inheriting import with_values
from services.population.member import dead, write_outcome
from tests.support.populations import RATE, StandInEngine, evolve, population_config, weight


def by_rate(task: Any, weight: float) -> float:
    """The higher the learning rate, the better."""
    return 1000.0 * weight


@pytest.fixture(autouse=True)
def _no_plug_is_pulled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


class CopyTwo(Selector):
    """The first two are copied over the last two, whatever they are, in each round."""

    def first(self, members: int, space: Any, rng: Any) -> Any:
        return [{RATE: 1e-3 * (n + 1)} for n in range(members)]

    def select(self, round_: int, standings: Any, space: Any, rng: Any) -> Any:
        stay = [Origin.stays(each) for each in standings[:2]]
        copies = [Origin(n, n, {RATE: 1e-2}) for n in (0, 1)]
        return [*stay, *copies]


# --- the four defects of the released Podracer code


def test_the_better_half_is_copied_over_the_worse_half(tmp_path: Path) -> None:
    # ascending sort: the two worst were copied over the best
    folder, _, _ = evolve(population_config(tmp_path), StandInEngine(by_rate))
    for before, after in zip(folder.lineage.rounds, folder.lineage.rounds[1:], strict=False):
        fitness = [each.fitness for each in before.members]
        for member in after.members:
            if member.weights_from != member.number:
                assert fitness[member.weights_from] > fitness[member.number]
    assert sum(each.copies for each in folder.lineage.rounds) > 0


def test_a_copy_goes_on_with_the_weights_and_the_optimiser_of_its_parent(tmp_path: Path) -> None:
    # the copy raised, since its target existed; and the member saved its own weights over it
    selector = f"{__name__}:CopyTwo"
    config = population_config(tmp_path, rounds=2, selector=selector)
    folder, _, _ = evolve(config, StandInEngine(by_rate))
    first = [1e-3 * (n + 1) for n in range(4)]
    after = [first[0] * 2, first[1] * 2, first[0] + 1e-2, first[1] + 1e-2]
    for number, expected in enumerate(after):
        newest = load_newest(folder.member(number) / "checkpoints")
        assert newest.tensors["weights/w"] == pytest.approx(expected)
        assert newest.tensors["optimiser/w/exp_avg"] == pytest.approx(-expected)
        assert newest.tensors["random/torch"] == number  # its own


def test_a_copy_keeps_its_own_account_and_totals(tmp_path: Path) -> None:
    config = population_config(tmp_path, rounds=2, selector=f"{__name__}:CopyTwo")
    engine = StandInEngine(by_rate, stop_at=4)
    folder, _, _ = evolve(config, engine)
    [lineage] = [folder.lineage]
    assert [each.env_steps for each in lineage.now.members] == [103] * 4
    # the second round has begun, and nobody was trained
    child = load_newest(folder.member(2) / "checkpoints")
    assert child.tensors["weights/w"] == pytest.approx(1e-3)
    assert list(child.tensors["totals"]) == pytest.approx([1e-3, 1e-3, 103, 1])
    assert child.state["account"]["env_steps"] == 103
    assert child.state["inherited"] == {
        "round": 2, "from": "member-0", "checkpoint": lineage.rounds[0].members[0].checkpoint,
    }  # fmt: skip
    assert [each.until for each in lineage.now.members] == [203] * 4


def test_nothing_of_a_replaced_member_is_deleted(tmp_path: Path) -> None:
    # a folder was deleted and not made again
    config = population_config(tmp_path, selector=f"{__name__}:CopyTwo")
    folder, _, _ = evolve(config, StandInEngine(by_rate))
    for number in range(4):
        logs = sorted(path.name for path in (folder.member(number) / "logs").iterdir())
        assert logs == ["round-1.log", "round-2.log", "round-3.log"]
        assert (folder.member(number) / "config.yaml").is_file()


# --- a kill at any moment


class Killed(BaseException):
    """Stands in for SIGKILL."""


def test_a_driver_that_is_killed_at_any_write_comes_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"members": 2, "rounds": 2}
    whole, _, _ = evolve(population_config(tmp_path / "whole", **small), StandInEngine(by_rate))
    expected = whole.lineage
    assert expected.now.copies == 1
    replace = os.replace
    for at in range(200):
        config = population_config(tmp_path / str(at), **small)
        writes = 0

        def failing(*args: Any, at: int = at) -> None:
            nonlocal writes
            writes += 1
            if writes > at:
                raise Killed
            replace(*args)

        with monkeypatch.context() as patched:
            patched.setattr(os, "replace", failing)
            try:
                evolve(config, StandInEngine(by_rate))
            except Killed:
                pass
            else:
                break
        resumed, reason, _ = evolve(config, StandInEngine(by_rate))
        assert reason == "rounds"
        assert _plain(resumed.lineage) == _plain(expected), f"killed at write {at}"
        assert [line["round"] for line in read_metrics(resumed.metrics_path)] == [1, 2]
        assert weight(resumed.best) == pytest.approx(weight(whole.best))
    assert at > 20  # every write of the run was interrupted once


def _plain(lineage: Any) -> Any:
    """Without the time, and without names of checkpoints, of which one may be there twice."""
    document = lineage.model_copy(update={"time_s": 0.0}).model_dump()
    for member in (member for each in document["rounds"] for member in each["members"]):
        member.pop("checkpoint")
    document["best"].pop("checkpoint")
    return document


def test_a_stopped_population_continues_with_the_members_that_were_not_judged(
    tmp_path: Path,
) -> None:
    config = population_config(tmp_path)
    _, reason, _ = evolve(config, StandInEngine(by_rate, stop_at=6))
    assert reason is None
    _, reason, _ = evolve(config, engine := StandInEngine(by_rate))
    assert reason == "rounds"
    assert engine.trained == [(2, 2), (2, 3), *((3, n) for n in range(4))]


# --- dead members


def test_a_diverged_member_is_replaced_and_counted(tmp_path: Path) -> None:
    def fitness(task: Any, weight: float) -> float:
        return DEAD if (task.member, task.round) == (2, 1) else by_rate(task, weight)

    folder, reason, said = evolve(population_config(tmp_path), StandInEngine(fitness))
    first, second, _ = folder.lineage.rounds
    assert (first.members[2].status, first.members[2].fitness) == ("diverged", None)
    assert second.members[2].weights_from != 2 and second.members[2].status == "trained"
    assert reason == "rounds" and folder.lineage.deaths == 1
    assert "round 1, member 2: diverged: not finite" in said and "1 dead so far" in said
    assert [line["deaths"] for line in read_metrics(folder.metrics_path)] == [1, 1, 1]
    assert "2" not in read_metrics(folder.metrics_path)[0]["fitness"]


def test_a_member_that_never_had_a_checkpoint_begins_with_its_parents_policy(
    tmp_path: Path,
) -> None:
    class Engine(StandInEngine):
        def _train(self, task: Any) -> Any:
            if (task.member, task.round) == (2, 1):
                return dead(task.folder, 2, "failed", "no environment")
            return super()._train(task)

    config = population_config(tmp_path, rounds=2)
    folder, _, _ = evolve(config, Engine(by_rate, stop_at=4))
    child = load_newest(folder.member(2) / "checkpoints")
    parent = folder.lineage.now.members[2].weights_from
    given = folder.lineage.rounds[0].members[parent]
    assert child.tensors["weights/w"] == pytest.approx(given.values[RATE])
    assert child.state["account"]["env_steps"] == 0 and child.state["counters"]["updates"] == 0
    assert folder.lineage.now.members[2].until == 100


def test_a_member_whose_checkpoints_are_all_damaged_begins_with_its_parents_policy(
    tmp_path: Path,
) -> None:
    class Engine(StandInEngine):
        def _train(self, task: Any) -> Any:
            outcome = super()._train(task)
            if (task.member, task.round) == (2, 1):
                for file in (task.folder / "checkpoints").iterdir():
                    file.write_bytes(b"damaged")
                return dead(task.folder, 2, "failed", "damaged")
            return outcome

    folder, reason, _ = evolve(population_config(tmp_path, rounds=2), Engine(by_rate))
    member = folder.lineage.now.members[2]
    assert (reason, member.status, member.env_steps) == ("rounds", "trained", 103)
    assert member.weights_from != 2
    assert len(list((folder.member(2) / "damaged-2").iterdir())) == 2


def test_a_population_whose_members_are_all_dead_ends_and_says_why(tmp_path: Path) -> None:
    config = population_config(tmp_path)
    for _ in range(2):  # a resumed one ends again
        with pytest.raises(
            RoleFailure, match=r"all 4 members of .* are dead after round 1"
        ) as ended:
            evolve(config, StandInEngine(lambda task, weight: DEAD))
        assert "member 3: not finite" in str(ended.value)


def test_a_fault_that_all_members_have_and_that_is_mended_costs_the_round_alone(
    tmp_path: Path,
) -> None:
    class Broken(StandInEngine):
        def _train(self, task: Any) -> Any:
            outcome = dead(task.folder, task.member, "failed", "no such device: cuda")
            write_outcome(task.folder, task.round, outcome)
            return outcome if task.round == 2 else super()._train(task)

    config = population_config(tmp_path)
    for _ in range(2):
        with pytest.raises(RoleFailure, match=r"after round 2; .* Mend the cause and continue"):
            evolve(config, Broken(by_rate))
    folder, reason, _ = evolve(config, StandInEngine(by_rate))
    undisturbed, _, _ = evolve(population_config(tmp_path / "other"), StandInEngine(by_rate))
    assert reason == "rounds" and folder.lineage.rounds == undisturbed.lineage.rounds
    lines = [line["round"] for line in read_metrics(folder.metrics_path)]
    assert lines == [1, 2, 3]


def test_other_keys_count_from_the_present_round_on(tmp_path: Path) -> None:
    config = population_config(tmp_path)
    evolve(config, StandInEngine(by_rate, stop_at=2))
    changed = with_overrides(config, {"actors.processes": 7})
    folder, _, _ = evolve(changed, StandInEngine(by_rate, stop_at=1))
    texts = [(folder.member(n) / "config.yaml").read_text() for n in range(4)]
    assert ["processes: 7" in text for text in texts] == [False, False, True, True]


# --- ends


def test_the_best_agent_is_kept_though_its_member_gets_worse(tmp_path: Path) -> None:
    def fitness(task: Any, weight: float) -> float:
        return {1: 50.0, 2: 90.0, 3: 10.0}[task.round] + task.member

    config = population_config(tmp_path, selector="none")
    folder, _, said = evolve(config, StandInEngine(fitness))
    best = folder.lineage.best
    assert (best.round, best.member, best.fitness) == (2, 3, 93.0)
    assert weight(folder.best) == pytest.approx(2 * config.optimiser.learning_rate)
    assert load_newest(folder.best / "checkpoints").state["judged"]["return_mean"] == 93.0
    assert "best so far 93.00 ± 0 (member 3, round 2)" in said
    # runs of a population are its members; the best agent is a copy
    for path in (folder.path, tmp_path):
        assert [each.name for each in runs_in(path)] == [f"member-{n}" for n in range(4)]
    assert runs_in(folder.best) == [folder.best]


def test_judged_checkpoints_stay_until_the_next_judgement(tmp_path: Path) -> None:
    class Stopped(StandInEngine):
        def run(self, tasks: Any, stop: StopFlag) -> Any:
            yield from super().run(tasks[: 4 if tasks[0].round < 3 else 1], stop)
            if tasks[0].round == 3:
                for _ in range(5):  # its run saves on, and removes the judged one
                    newest = load_newest(tasks[1].folder / "checkpoints")
                    save_checkpoint(
                        newest.path.parent,
                        tensors=newest.tensors,
                        state=newest.state,
                        label=newest.label,
                        keep=1,
                    )
                stop.set("SIGINT")

    folder, reason, _ = evolve(population_config(tmp_path), Stopped(by_rate))
    judged = folder.lineage.judged
    assert reason is None and judged.number == 2
    for member in judged.ranked:
        [kept] = list_checkpoints(judged_folder(folder.path, member.number))
        saved = load_checkpoint(kept)
        assert kept.stem == member.checkpoint
        assert by_rate(None, float(saved.tensors["weights/w"])) == member.fitness


def test_a_collapsed_member_is_stopped_and_a_population_of_such_ends(tmp_path: Path) -> None:
    config = population_config(tmp_path, selector="none", rounds=9, stop_after=2)
    engine = StandInEngine(
        lambda task, weight: 10.0 - task.round + 5 * (task.member == 0) * task.round
    )
    folder, reason, _ = evolve(config, engine)
    assert reason == "rounds"  # member 0 gets better and better
    assert [max(r for r, m in engine.trained if m == n) for n in range(4)] == [9, 3, 3, 3]
    config = population_config(tmp_path / "all", selector="none", rounds=9, stop_after=2)
    folder, reason, _ = evolve(config, StandInEngine(lambda task, weight: -task.round))
    assert reason == "every member has stopped" and folder.lineage.now.number == 3


def test_the_population_ends_at_its_target(tmp_path: Path) -> None:
    config = population_config(tmp_path, selector="none").with_run(target_return=15.0)
    folder, reason, _ = evolve(config, StandInEngine(lambda task, weight: 8.0 * task.round))
    assert reason == "target_reached" and folder.lineage.now.number == 2


def test_a_function_gets_each_round_and_may_end_the_population(tmp_path: Path) -> None:
    seen = []

    def on_round(line: dict[str, Any]) -> bool:
        seen.append(line["round"])
        return line["round"] < 2

    _, reason, _ = evolve(population_config(tmp_path), StandInEngine(by_rate), on_round=on_round)
    assert (seen, reason) == ([1, 2], "on_round")


def test_the_same_seed_gives_the_same_population(tmp_path: Path) -> None:
    one, two = (
        evolve(population_config(tmp_path / name), StandInEngine(by_rate))[0].lineage.rounds
        for name in ("a", "b")
    )
    assert one == two


# --- what each member is trained with


def test_members_differ_by_seed_and_hyper_parameters_and_have_no_other_end(tmp_path: Path) -> None:
    configs = {}

    def fitness(task: Any, weight: float) -> float:
        configs[task.member] = task.config
        return 1.0

    config = population_config(tmp_path, rounds=1).with_run(max_updates=5, max_wall_s=3.0)
    folder, _, _ = evolve(config, StandInEngine(fitness))
    assert [configs[n].run.seed for n in range(4)] == [1, 2, 3, 4]
    rates = [configs[n].optimiser.learning_rate for n in range(4)]
    assert rates == [each.values[RATE] for each in folder.lineage.now.members]
    assert len(set(rates)) == 4
    for each in configs.values():
        assert each.run.bounds() == {
            "target_return": None, "stop_at_target": True, "max_env_steps": 100,
            "max_updates": None, "max_wall_s": None,
        }  # fmt: skip


def test_an_argument_of_a_corrector_is_a_hyper_parameter(tmp_path: Path) -> None:
    config = population_config(tmp_path, mutate={"correctors.vtrace.lambda": [0.5, 1.0]})
    changed = with_values(config, {"correctors.vtrace.lambda": 0.75, "trainer.epochs": 3.0})
    assert changed.correctors[0].arguments.lambda_ == 0.75
    assert type(changed.trainer.epochs) is int
    assert type(with_values(config, {RATE: 1.0}).optimiser.learning_rate) is float
    assert changed.correctors[1:] == config.correctors[1:] and changed.trainer.epochs == 3


# --- bad input


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"members": 6}, "population.members is 4 there, 6 here"),
        ({"mutate": {RATE: [1e-4, 1.0]}}, "population.mutate.optimiser.learning_rate is"),
        ({"selector": "pbt"}, "population.selector"),
        ({"round_steps": 7}, "population.round_steps is 100 there, 7 here"),
        ({"run.seed": 77}, "run.seed is"),
        ({"evaluator.env": {"kwargs": {"max_episode_steps": 9}}}, "evaluator.env"),
        ({"evaluator.greedy": True}, "evaluator.greedy is False there, True here"),
        ({"evaluator.episodes": 3}, "evaluator.episodes is"),
    ],
)
def test_a_population_is_not_resumed_with_other_members_ranges_or_episodes(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    there = population_config(tmp_path)
    keys = {key if "." in key else f"population.{key}": each for key, each in change.items()}
    with pytest.raises(ConfigError) as refused:
        refuse_other_population(tmp_path, there, with_overrides(there, keys))
    assert words in str(refused.value)
    refuse_other_population(tmp_path, there, population_config(tmp_path, rounds=9, stop_after=2))


def test_a_range_whose_end_is_no_value_of_the_key_is_refused(tmp_path: Path) -> None:
    config = population_config(tmp_path, mutate={RATE: [1e-4, 11.0]})
    with pytest.raises(ConfigError, match=r"at optimiser.learning_rate = 11: .* ≤ 10"):
        begin(config)


def test_a_folder_that_is_no_population_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "p"
    with pytest.raises(RunFolderError, match="no folder"):
        existing_folder(population_config(tmp_path))
    run.mkdir()
    (run / "config.yaml").write_text("{}")
    with pytest.raises(RunFolderError, match="p is a run, and no population; expected the folder"):
        existing_folder(population_config(tmp_path))
    with pytest.raises(RunFolderError, match=r"p exists already; give another run.name"):
        PopulationFolder.create(population_config(tmp_path), begin(population_config(tmp_path)))


def test_a_folder_that_a_killed_start_has_left_becomes_the_population(tmp_path: Path) -> None:
    config, path = population_config(tmp_path), tmp_path / "p"
    path.mkdir()
    for name in (".lock", "population.yaml", "population.json.tmp"):
        (path / name).touch()
    (path / "mine").touch()
    with pytest.raises(RunFolderError, match=r"p exists already; give another run.name"):
        PopulationFolder.create(config, begin(config))
    (path / "mine").unlink()
    PopulationFolder.create(config, begin(config)).close()
    assert existing_folder(config) == path
    with pytest.raises(RunFolderError, match=r"p exists already; continue it with --resume"):
        PopulationFolder.create(config, begin(config))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"format": 7}', "has format 7, expected 1"),
        ('{"format": 1, "lineage": {"rounds": 3}}', "is damaged"),
    ],
)
def test_a_damaged_population_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "population.json").write_text(text)
    with pytest.raises(RunFolderError, match="json") as refused:
        read_lineage(tmp_path)
    assert words in str(refused.value)


def test_two_commands_cannot_write_one_population(tmp_path: Path) -> None:
    config = population_config(tmp_path)
    folder = PopulationFolder.create(config, begin(config))
    try:
        with pytest.raises(RunFolderError, match="is being written by aclearn evolve"):
            PopulationFolder.open(folder.path, config)
    finally:
        folder.close()


def test_the_metrics_have_a_line_for_each_round_without_nan(tmp_path: Path) -> None:
    folder, _, _ = evolve(population_config(tmp_path), StandInEngine(by_rate, error=0.5))
    lines = read_metrics(folder.metrics_path)
    last, now = lines[-1], folder.lineage.now
    assert last["env_steps"] == 4 * 309
    assert last["fitness"] == {str(n): each.fitness for n, each in enumerate(now.members)}
    assert last["fitness_mean"] == pytest.approx(np.mean([each.fitness for each in now.members]))
    assert last["values"][RATE] == {str(n): m.values[RATE] for n, m in enumerate(now.members)}
    assert last["standard_error"]["0"] == 0.5
    json.dumps(lines, allow_nan=False)
    board = EventAccumulator(str(folder.path)).Reload()
    shown = board.Scalars("population/fitness_best")
    assert [each.step for each in shown] == [1, 2, 3]
    assert shown[-1].value == pytest.approx(last["fitness_best"], rel=1e-6)
    assert board.Scalars(f"population/values/{RATE}/2") and board.Scalars("population/fitness/0")


def test_a_stop_before_the_first_round_leaves_a_population_to_resume(tmp_path: Path) -> None:
    stop = StopFlag()
    stop.set("SIGTERM")
    config = population_config(tmp_path)
    _, reason, _ = evolve(config, StandInEngine(by_rate, stop_at=0), stop=stop)
    assert reason is None
    assert evolve(config, StandInEngine(by_rate))[1] == "rounds"
