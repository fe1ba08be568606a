"""The programs of AcceRL's Table 4 and GA3C's figures, on runs whose figures are known."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aclearn.config import Config, load_config
from aclearn.wire import Weights, decode, encode

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import a3c
import ga3c
import lagged
import table4
import turns

#: Learned steps per second, and milliseconds of an actor's step.
_SPEEDS = {"fp32": (100, 8.0), "int8": (150, 5.0)}


class Machine:
    """Trainings in the place of real ones: five seconds of start, then a line each second."""

    def __init__(self) -> None:
        self.trained: list[tuple[str, float]] = []

    def train(self, config: Path, overrides: Sequence[str], folder: Path, until_s: float) -> None:
        assert config.exists()
        assert "env.id=ALE/Pong-v5" in overrides and "actors.processes=2" in overrides
        self.trained.append((folder.name, until_s))
        per_s, milliseconds = _SPEEDS[folder.name.rpartition("-")[2]]
        before = turns.lines_of(folder)
        last = before[-1] if before else {"time_s": 0.0, "learned_steps": 0}
        folder.mkdir(exist_ok=True)
        with folder.with_name(f"{folder.name}.turns").open("a") as file:
            file.write(f"{len(before)}\n")
        with (folder / "metrics.jsonl").open("a") as file:
            for second in range(int(until_s - last["time_s"]) + 1):
                steps = per_s * max(0, second - 5)
                # of this turn's processes
                parts = {"inference": steps * milliseconds / 1000 - steps * 0.002}
                parts |= {"emulator": steps * 0.002, "waiting for training queue": 9.0 * second}
                line = {
                    "time_s": last["time_s"] + second,
                    "learned_steps": last["learned_steps"] + steps,
                    "env_steps": last["learned_steps"] + steps,
                    "return_mean_100": (last["learned_steps"] + steps) / 100,
                    "part_seconds": {"actor": parts},
                }
                file.write(json.dumps(line) + "\n")


def test_table_4_is_of_the_steps_after_each_start_and_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine()
    monkeypatch.setattr(turns, "train", machine.train)
    arguments = ["--out", str(tmp_path), "--games", "Pong", "--actors", "2", "--turn-s", "20"]
    table4.main([*arguments, "--turns", "1"])
    table4.main([*arguments, "--turns", "2"])
    assert machine.trained == [
        *(("pong-fp32", 20.0), ("pong-int8", 20.0)),
        *(("pong-fp32", 40.0), ("pong-int8", 40.0)),
    ]
    out, error = capsys.readouterr()
    found = list(csv.DictReader(out.splitlines()))[-1]
    # each of two turns has 14 s between its first learned line and its last
    assert int(found["steps"]) == 2 * 14 * 100
    assert float(found["saved"]) == pytest.approx(1 - 100 / 150, abs=1e-3)
    assert [float(found[f"{name}_actor_ms"]) for name in _SPEEDS] == [8.0, 5.0]
    assert [float(found[f"{name}_steps_per_s"]) for name in _SPEEDS] == [100.0, 150.0]
    assert "| median | | | 33.3%; paper 29.8–40.3 % |" in error


def test_the_time_to_a_step_lies_between_two_lines() -> None:
    points = [(0.0, 0, None), (2.0, 0, None), (4.0, 100, 1.0), (5.0, 300, 2.0)]
    assert table4.time_to(points, 50) == 3.0
    assert table4.time_to(points, 200) == 4.5
    with pytest.raises(ValueError, match="at most 300"):
        table4.time_to(points, 301)


def test_every_game_and_variant_of_table_4_is_a_configuration() -> None:
    assert len(set(table4.GAMES)) == 12
    for config, overrides in table4.VARIANTS.values():
        loaded = load_config(config, ["env.id=ALE/Seaquest-v5", *overrides])
        assert loaded.policy.architecture == "accerl-original"
        assert loaded.trainer.unrolls_per_batch * loaded.actors.unroll_length == 160
    for network in ga3c.NETWORKS.values():
        for inference in ga3c.WAYS.values():
            load_config(ga3c._CONFIG, [*network, inference, "tuner.enabled=false"])


def _line(time_s: float, **figures: Any) -> dict[str, Any]:
    usual = {"tps": 4.04, "pps": 20.0, "learned_steps": 0, "return_mean_100": None}
    return {"time_s": time_s, **usual, **figures}


def test_the_curve_has_a_row_each_few_seconds_and_the_last() -> None:
    lines = [_line(t, tuner_predictors=1.0, tuner_trainers=t) for t in (0.5, 2.5, 10.5, 12.5)]
    rows = list(ga3c.curve(lines, 10.0))
    assert [(row["time_s"], row["trainers"], row["tps"]) for row in rows] == [
        *((0.5, 0.5, 4.0), (10.5, 10.5, 4.0), (12.5, 12.5, 4.0))
    ]


def test_networks_are_compared_by_the_median_of_their_rounds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    speeds = {"predictor": iter([30.0, 10.0, 20.0]), "local": iter([8.0, 10.0, 99.0])}

    def measure(config: Path, overrides: Sequence[str], seconds: float) -> tuple[Any, Any]:
        assert "policy.hidden=[4096]" in overrides and "tuner.enabled=false" in overrides
        assert config == ga3c._CONFIG and seconds == 60.0
        way = next(name for name, key in ga3c.WAYS.items() if key in overrides)
        first = {"time_s": 5.0, "policy_version": 7, "learned_steps": 100}
        versions = 7 + int(10 * next(speeds[way]))
        last = {"time_s": 15.0, "policy_version": versions, "learned_steps": 600, "lag_mean": 0.25}
        return first, last

    monkeypatch.setattr(ga3c, "measure", measure)
    ga3c.main(["sizes", "--networks", "wider"])
    out, error = capsys.readouterr()
    rows = list(csv.DictReader(out.splitlines()))
    assert [float(row["tps"]) for row in rows] == [30.0, 8.0, 10.0, 10.0, 20.0, 99.0]
    assert {(row["steps_per_s"], row["lag_mean"]) for row in rows} == {("50.0", "0.2")}
    assert "| wider | 20.0 | 10.0 | 2.00 |" in error


def test_each_arm_is_trained_to_its_steps_once_and_shown_over_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained: list[tuple[str, str]] = []

    def train(config: Path, overrides: Sequence[str], folder: Path, until_s: float) -> None:
        loaded = load_config(config, overrides)
        assert loaded.tuner.enabled == (loaded.actors.inference == "predictor")
        trained.append((folder.name, str(loaded.run.max_env_steps)))
        folder.mkdir(exist_ok=True)
        actors = f"actors: {{inference: {loaded.actors.inference}, processes: 3}}"
        (folder / "config.yaml").write_text(f"env: {{id: CartPole-v1}}\n{actors}")
        tuned = {"tuner_predictors": 2.0} if loaded.tuner.enabled else {}
        lines = [
            {"env_steps": steps, "return_mean_100": steps / 100, "lag_mean": 1.234, **tuned}
            for steps in range(0, loaded.run.max_env_steps + 1, 100)
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    monkeypatch.setattr(turns, "train", train)
    arguments = ["learning", "--out", str(tmp_path), "--every", "250", "--seeds", "4", "--steps"]
    ga3c.main([*arguments, "500", "--arms", "local"])
    ga3c.main([*arguments, "500"])
    assert trained == [("local-4", "500"), ("predictor-4", "500")]
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "arm,seed,env_steps,return_mean_100,lag_mean,actors,predictors,trainers"
    assert shown[-6:] == [
        f"{arm},4,{steps},{steps / 100},1.23,3,{predictors},1"
        for arm, predictors in (("predictor", 2), ("local", 0))
        for steps in (0, 300, 500)
    ]


def test_rates_of_each_arm_of_a3c_and_of_the_tuned_counts_are_taken_in_turns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(
        config: Path, overrides: Sequence[str], seconds: float, warm_up_s: float
    ) -> tuple[Any, Any]:
        loaded = load_config(config, overrides)
        counts = {f"tuner_{name}": 4.0 for name in loaded.tuner.counts if loaded.tuner.enabled}
        assert warm_up_s + seconds == (90.0 if loaded.tuner.enabled else 20.0)
        first = {"time_s": 5.0, "policy_version": 0, "learned_steps": 0}
        learned = {"policy_version": 30, "learned_steps": 2400, "lag_mean": 2.0}
        return first, {"time_s": 20.0, **learned, **counts}

    def train(config: Config, out: Path, *, seconds: float, **_: Any) -> None:
        rows = [f"{t},{t * 50},{t * 10},0,0," for t in range(1, int(seconds) + 1)]
        (out / "a3c.csv").write_text("\n".join([",".join(a3c.FIELDS), *rows]))

    monkeypatch.setattr(ga3c, "measure", measure)
    monkeypatch.setattr(a3c, "train", train)
    ga3c.main(["rates", "--set", "actors.processes=3"])
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    turn = ["predictor", "local", "a3c"]
    assert [row["arm"] for row in rows] == [*turn, *turn, "tuner"]
    assert [(row["tps"], row["steps_per_s"]) for row in rows[:3]] == [
        *(("2.0", "160.0"), ("2.0", "160.0"), ("10.0", "50.0"))
    ]
    assert rows[1]["predictors"] == rows[2]["predictors"] == "0" and rows[0]["actors"] == "3"
    assert [rows[-1][name] for name in ga3c.COUNTS] == ["4", "4", "4"]


def test_held_back_weights_are_those_of_so_many_versions_before() -> None:
    hold_back, shown = lagged.HoldBack(3), []
    for version in (1, 2, 3, 5, 6, 7, 7, 12):  # the newest at each request
        weights = Weights(generation=0, version=version, tensors={"w": np.full(1, version, "f4")})
        message = encode(weights, run="r", incarnation="t", sequence=version)
        [frames] = hold_back("trainer-0", "actor-1", message)
        envelope = decode(frames)
        assert envelope.message.tensors["w"].tolist() == [envelope.message.version]
        assert (envelope.sequence, envelope.incarnation) == (version, "t")
        shown.append(envelope.message.version)
    # version - 3, or the newest request before that
    assert shown == [1, 1, 1, 2, 3, 3, 3, 7]
