"""`aclearn evolve`, its picture and its Python function, with a stand-in for the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

import aclearn
from aclearn.errors import ConfigError, RunFolderError
from aclearn.launch import StopFlag
from services.population import engine
from tests.support.cli import aclearn as command
from tests.support.populations import RATE, StandInEngine


class Quick(StandInEngine):
    """Fitness is the weight."""

    def __init__(self, config: Any, stop: StopFlag, at_once: int | None) -> None:
        super().__init__(lambda task, weight: weight)
        self.at_once = at_once
        self.open.append(self)

    open: ClassVar[list[Quick]] = []

    def close(self) -> None:
        self.open.remove(self)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(engine, "ENGINES", {"local": f"{__name__}:Quick"})
    monkeypatch.setattr("services.commands.evolve.ENGINES", engine.ENGINES)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "pole.yaml"
    population = {"members": 3, "rounds": 2, "mutate": {RATE: [1e-4, 1e-1]}}
    path.write_text(yaml.safe_dump({"env": {"id": "CartPole-v1"}, "population": population}))
    return path


def test_a_population_is_trained_resumed_drawn_and_opened(config: Path, tmp_path: Path) -> None:
    said = command("evolve", config)
    folder = tmp_path / "runs" / "pole-population-1"
    assert "round 2 of 2 is over" in said and "pole-population-1 ended: rounds" in said
    assert "next: aclearn evaluate runs/pole-population-1/best" in said
    for again, rounds in ((config, 3), (folder, 4)):
        said = command("evolve", again, "--resume", f"population.rounds={rounds}")
        assert f"round {rounds} of {rounds} is over" in said and "round 2 of" not in said
    assert "wrote pole-population-1.png" in command("plot", folder)
    assert (tmp_path / "pole-population-1.png").is_file()

    found = aclearn.evolve(folder, {"population.rounds": 5}, resume=True)
    assert found.path == folder and len(found.lineage.rounds) == 5
    assert [run.name for run in found.members] == ["member-0", "member-1", "member-2"]
    assert (
        found.best.name == "best" and found.best_member.fitness == found.metrics["best_fitness"][-1]
    )
    assert list(found.metrics["round"]) == [1, 2, 3, 4, 5]
    assert found.config.population.rounds == 5 and len(found.plot().axes) == 2

    command("evolve", config)  # the next number
    assert (tmp_path / "runs" / "pole-population-2").is_dir()


def test_each_round_is_given_to_a_function(config: Path) -> None:
    seen: list[dict[str, Any]] = []
    found = aclearn.evolve(config, on_round=lambda line: seen.append(line) or len(seen) < 1)
    assert [line["round"] for line in seen] == [1]
    assert len(found.lineage.rounds) == 1


def test_what_cannot_be_evolved_or_resumed_is_refused(config: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no population; set population.members"):
        command("evolve", "cartpole")
    with pytest.raises(ConfigError, match="--on: expected one of local, got 'loca'"):
        command("evolve", config, "--on", "loca")
    with pytest.raises(ConfigError, match=r"population\.mutate: at"):
        command("evolve", config, f"population.mutate={{{RATE}: [1e-4, 11.0]}}")
    with pytest.raises(RunFolderError, match="there is no population of pole"):
        command("evolve", config, "--resume")
    command("evolve", config, "run.name=p")
    for words in ("population.members=4", f"population.mutate.{RATE}=[1e-3, 1e-1]"):
        with pytest.raises(ConfigError, match=r"the population in .* is another one: population"):
            command("evolve", config, "--resume", "run.name=p", words)
    with pytest.raises(RunFolderError, match="p exists already; continue it with --resume"):
        command("evolve", config, "run.name=p")
    run = tmp_path / "runs" / "r"
    run.mkdir()
    (run / "config.yaml").write_text("{}")
    with pytest.raises(RunFolderError, match="r is a run, and no population"):
        command("evolve", config, "--resume", "run.name=r")
    with pytest.raises(RunFolderError, match="r is a run, and no population"):
        aclearn.Population(run)
    assert Quick.open == []  # no engine stays open
