"""Sweeps whose runs are trained by a stand-in."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from aclearn.config import load_config
from aclearn.errors import ConfigError, RoleFailure, RunFolderError
from aclearn.launch import StopFlag
from services.population.engine import Outcome, Task
from services.population.member import ROUND_FILE
from services.sweep.proposals import Proposals, import_optuna
from services.sweep.settings import SweepSettings
from services.sweep.sweep import Sweep

pytest.importorskip("optuna")

RATE = "optimiser.learning_rate"


class StandIn:
    """Gives each run a fitness; after `stop_at` runs it asks the sweep to stop."""

    def __init__(self, fitness: Callable[[Task], float | str], stop_at: int | None = None) -> None:
        self._fitness, self._stop_at = fitness, stop_at
        self.trained: list[tuple[str, int, int]] = []
        self.most = 0

    def run(self, tasks: Sequence[Task], stop: StopFlag) -> Iterator[Outcome]:
        self.most = max(self.most, len(tasks))
        for task in tasks:
            if self._stop_at == len(self.trained):
                stop.set("SIGTERM")
                return
            self.trained.append((task.folder.name, task.round, task.config.run.max_env_steps))
            found = self._fitness(task)
            if isinstance(found, str):
                yield Outcome(task.member, "diverged", float("-inf"), detail=found)
                continue
            outcome = Outcome(task.member, "trained", found)
            document = {"round": task.round, "outcome": asdict(outcome)}
            (task.folder / ROUND_FILE).write_text(json.dumps(document))
            yield outcome


def _settings(**values: Any) -> SweepSettings:
    given = {
        "config": "cartpole",
        "steps": 1000,
        "trials": 6,
        "search": {RATE: {"log": [1e-5, 1e-1]}},
        "pruner": "none",
        "sampler": "random",
    }
    return SweepSettings(**(given | values))


def _sweep(
    folder: Path, settings: SweepSettings, engine: StandIn, *, at_once: int = 2
) -> tuple[Any, list[str]]:
    folder.mkdir(exist_ok=True)
    notes: list[str] = []
    best = Sweep(
        folder,
        settings,
        Proposals(folder, settings),
        engine,
        at_once=lambda: at_once,
        stop=StopFlag(),
        note=notes.append,
    ).run()
    return best, notes


def _rate(task: Task) -> float:
    """The nearer to 1e-3, the better; better with each judgement."""
    return task.round - abs(math.log10(task.config.optimiser.learning_rate) + 3.0)


def _results(folder: Path) -> Any:
    return json.loads((folder / "sweep.json").read_text())


def test_the_best_of_all_trials_is_kept_as_a_configuration_to_train_from(tmp_path: Path) -> None:
    engine = StandIn(_rate)
    best, notes = _sweep(tmp_path / "s", _settings(judgements=2), engine)
    results = _results(tmp_path / "s")
    assert [each["state"] for each in results["trials"]] == ["complete"] * 6
    assert best.number == results["best"]
    assert best.newest == max(each["fitness"] for each in results["trials"])
    assert best.judged == pytest.approx({500: best.newest - 1.0, 1000: best.newest})
    config = load_config(tmp_path / "s" / "best.yaml")
    assert config.optimiser.learning_rate == best.values[RATE]
    assert config.run.name is None and config.run.max_env_steps != 1000
    assert not config.population.enabled  # it is one run, for `aclearn train` and manifests
    assert engine.most == 2 and len(engine.trained) == 12
    assert sum("judgement 1 of 2" in note for note in notes) == 6
    assert results["trials"][3]["runs"] == ["trial-3-seed-1"]
    assert results["importance"] == {RATE: 1.0}


def test_a_trial_of_several_seeds_counts_by_their_mean(tmp_path: Path) -> None:
    engine = StandIn(lambda task: float(task.config.run.seed))
    best, _ = _sweep(tmp_path / "s", _settings(trials=3, seeds=3, judgements=1), engine, at_once=4)
    assert best.newest == (1 + 2 + 3) / 3
    assert engine.most == 3  # a trial's runs together, and no second trial beside it
    assert {name for name, *_ in engine.trained} == {
        f"trial-{trial}-seed-{seed}" for trial in range(3) for seed in (1, 2, 3)
    }


def test_a_poor_trial_is_pruned_at_an_early_judgement(tmp_path: Path) -> None:
    # Optuna's median needs five trials before it; each later one here is worse
    engine = StandIn(lambda task: -float(task.member))
    settings = _settings(trials=8, judgements=4, pruner="median")
    best, notes = _sweep(tmp_path / "s", settings, engine, at_once=1)
    trained = [sum(name == f"trial-{n}-seed-1" for name, *_ in engine.trained) for n in range(8)]
    assert trained == [4, 4, 4, 4, 4, 1, 1, 1]
    assert best.number == 0 and sum("pruned" in note for note in notes) == 3


def test_a_sweep_continues_where_it_was_stopped_and_trains_no_run_twice(tmp_path: Path) -> None:
    settings, trained = _settings(trials=4, judgements=2, seeds=2), []
    for _ in range(20):
        engine = StandIn(_rate, stop_at=3)
        best, _ = _sweep(tmp_path / "s", settings, engine, at_once=4)
        trained += engine.trained
        if len(engine.trained) < 3:
            break
    assert len(trained) == len(set(trained)) == 4 * 2 * 2
    trials = _results(tmp_path / "s")["trials"]
    assert len({each["values"][RATE] for each in trials}) == len(trials) == 4
    assert best is not None


class Killed(BaseException):
    """A kill at a call."""


@pytest.mark.parametrize(
    ("method", "state", "trained"), [("complete", "complete", 2), ("prune", "pruned", 1)]
)
def test_a_kill_after_a_judgement_neither_trains_on_nor_forgets_to_prune(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, state: str, trained: int
) -> None:
    settings = _settings(trials=1, judgements=2)
    if method == "prune":
        monkeypatch.setattr("optuna.pruners.NopPruner.prune", lambda *given: True)

    def killed(*args: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Proposals, method, killed)
        _sweep(tmp_path / "s", settings, StandIn(_rate))
    engine = StandIn(_rate)
    _sweep(tmp_path / "s", settings, engine)
    [trial] = _results(tmp_path / "s")["trials"]
    assert engine.trained == []
    assert (trial["state"], len(trial["judged"])) == (state, trained)


def _halved(folder: Path, fitness: float) -> list[Any]:
    """Every trial of a sweep whose last one has this fitness: state, judgements, and rungs."""
    engine = StandIn(lambda task: [3.0, 1.0, 2.0, fitness][task.member] + task.round)
    settings = _settings(trials=4, judgements=4, pruner="halving")
    _sweep(folder, settings, engine)
    trials = Proposals(folder, settings)._study.get_trials(deepcopy=False)
    return [(each.state.name, each.intermediate_values, each.system_attrs) for each in trials]


@pytest.fixture(scope="module")
def three_trials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep whose fourth trial comes next."""
    folder = tmp_path_factory.mktemp("three")
    engine = StandIn(lambda task: [3.0, 1.0, 2.0][task.member] + task.round)
    _sweep(folder, _settings(trials=3, judgements=4, pruner="halving"), engine)
    return folder


@pytest.mark.parametrize(
    ("fitness", "write", "nth"),
    [
        (0.0, "set_trial_user_attr", 1),
        (0.0, "set_trial_intermediate_value", 1),
        (0.0, "set_trial_system_attr", 1),
        (0.0, "set_trial_state_values", 1),
        (9.0, "set_trial_system_attr", 2),
        (9.0, "set_trial_state_values", 1),
    ],
)
def test_a_kill_before_any_write_of_a_judgement_changes_no_verdict(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    three_trials: Path,
    fitness: float,
    write: str,
    nth: int,
) -> None:
    for name in ("whole", "killed"):
        shutil.copytree(three_trials, tmp_path / name)
    expected = _halved(tmp_path / "whole", fitness)
    assert expected[3][0] == ("COMPLETE" if fitness else "PRUNED")
    storage, calls = import_optuna().storages.RDBStorage, 0
    original = getattr(storage, write)

    def killed(*args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise Killed
        return original(*args, **more)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(storage, write, killed)
        _halved(tmp_path / "killed", fitness)
    assert _halved(tmp_path / "killed", fitness) == expected


def test_a_trial_that_a_kill_left_with_some_values_gets_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = {RATE: {"log": [1e-5, 1e-1]}, "loss.entropy_cost": {"range": [0.2, 0.4]}}
    settings = _settings(search=search, trials=1, judgements=1)
    suggest = import_optuna().trial.Trial._suggest

    def killed(trial: Any, key: str, space: Any) -> Any:
        if key != RATE:
            raise Killed
        return suggest(trial, key, space)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr("optuna.trial.Trial._suggest", killed)
        _sweep(tmp_path / "s", settings, StandIn(_rate))
    best, _ = _sweep(tmp_path / "s", settings, StandIn(_rate))
    assert best.values.keys() == search.keys()
    assert 0.2 <= best.values["loss.entropy_cost"] <= 0.4


@pytest.mark.parametrize("pruner", ["halving", "hyperband"])
def test_halving_compares_trials_at_judgements(tmp_path: Path, pruner: str) -> None:
    # one of several rungs at the first judgement would end most trials there
    settings = _settings(judgements=9, steps=9000, pruner=pruner)
    proposals, ends = Proposals(tmp_path, settings), set()
    for number, fitness in enumerate([14.0, *map(float, range(14))]):
        proposals.propose()
        judgement = 1
        while not proposals.judge(number, settings.until(judgement), fitness):
            if judgement == 9:
                break
            judgement += 1
        proposals.prune(number)
        ends.add(judgement)
    rung = {"halving": 4, "hyperband": 3}[pruner]
    assert ends - {9} <= {1, rung} and rung in ends


def test_a_trial_that_diverges_is_counted_as_failed_and_the_sweep_goes_on(tmp_path: Path) -> None:
    engine = StandIn(lambda task: "weights are not finite" if task.member % 2 else 1.0)
    best, _ = _sweep(tmp_path / "s", _settings(judgements=1), engine)
    assert best.number == 0
    failed = [each for each in _results(tmp_path / "s")["trials"] if each["state"] == "fail"]
    assert len(failed) == 3 and failed[0]["reason"] == "diverged: weights are not finite"
    with pytest.raises(RoleFailure, match=r"none of 6 trials .*(?s:.)*trial 0: diverged: no"):
        _sweep(tmp_path / "t", _settings(), StandIn(lambda task: "no"))
    with pytest.raises(RoleFailure, match=r"none of 1 trials .*(?s:.)*trial 0: diverged: no"):
        _sweep(tmp_path / "u", _settings(trials=1), StandIn(lambda task: "no"))


def test_a_sweep_without_hope_goes_on_once_its_cause_is_mended(tmp_path: Path) -> None:
    settings = _settings(trials=12, judgements=1)
    broken = StandIn(lambda task: "no data")
    for ended in (5, 10):
        with pytest.raises(RoleFailure, match=rf"none of {ended} trials .* continue with --resume"):
            _sweep(tmp_path / "s", settings, broken, at_once=5)
    best, _ = _sweep(tmp_path / "s", settings, StandIn(_rate), at_once=5)
    states = [each["state"] for each in _results(tmp_path / "s")["trials"]]
    assert states == ["fail"] * 10 + ["complete"] * 2 and best.number >= 10
    # one fitness is hope, whenever it was
    _sweep(tmp_path / "s", _settings(trials=17, judgements=1), broken, at_once=5)


def test_values_that_are_possible_alone_but_not_together_fail_their_trial(tmp_path: Path) -> None:
    search = {
        "supervisor.backoff_first_s": {"choices": [0.5, 9.0]},
        "supervisor.backoff_max_s": {"choices": [1.0, 10.0]},
    }
    settings = _settings(search=search, judgements=1)
    best, _ = _sweep(tmp_path / "s", settings, StandIn(lambda task: 1.0))
    assert best is not None
    for each in _results(tmp_path / "s")["trials"]:
        together = tuple(each["values"].values()) == (9.0, 1.0)
        assert (each["state"] == "fail") == together
        assert ("backoff_max_s" in each["reason"]) == together


def test_choices_of_any_kind_come_back_as_they_were(tmp_path: Path) -> None:
    search = {"policy.hidden": {"choices": [[32], [64, 64]]}}
    seen: set[tuple[int, ...]] = set()

    def look(task: Task) -> float:
        seen.add(tuple(task.config.policy.hidden))
        return 0.0

    _sweep(tmp_path / "s", _settings(search=search, judgements=1), StandIn(look))
    assert seen == {(32,), (64, 64)}
    values = _results(tmp_path / "s")["trials"][0]["values"]
    assert values["policy.hidden"] in ([32], [64, 64])


@pytest.mark.parametrize("sampler", ["tpe", "random", "gp", "nsgaii", "qmc"])
def test_samplers_by_name_propose_within_the_range(tmp_path: Path, sampler: str) -> None:
    settings = _settings(sampler=sampler, judgements=1, trials=3)
    _sweep(tmp_path / "s", settings, StandIn(_rate))
    rates = [each["values"][RATE] for each in _results(tmp_path / "s")["trials"]]
    assert len(set(rates)) == 3 and all(1e-5 <= rate <= 1e-1 for rate in rates)


def test_a_full_disk_is_named_and_what_there_is_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = _settings(judgements=1)
    _sweep(tmp_path / "s", settings, StandIn(_rate, stop_at=3))

    def full(*args: Any, **more: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("services.sweep.sweep.write_atomically", full)
        with pytest.raises(RunFolderError, match=r"No space left.*continue with --resume"):
            _sweep(tmp_path / "s", settings, StandIn(_rate))
    best, _ = _sweep(tmp_path / "s", settings, StandIn(_rate))
    assert len(_results(tmp_path / "s")["trials"]) == 6 and best is not None
    # and the database itself
    (tmp_path / "s" / "sweep.db").write_bytes(b"not a database" * 100)
    with pytest.raises(RunFolderError, match=r"sweep.db cannot be read or written"):
        _sweep(tmp_path / "s", settings, StandIn(_rate))


def test_optuna_that_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r'pip install "aclearn\[sweep\]"'):
        import_optuna()
