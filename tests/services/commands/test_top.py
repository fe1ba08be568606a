from __future__ import annotations

import io
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from aclearn.errors import RunFolderError
from aclearn.launch import StopFlag
from aclearn.views.run_state import read_goal
from services.commands.top import TopView, part_shares, top


def _line(time_s: float, **changes: Any) -> dict[str, Any]:
    line = {
        "time_s": time_s,
        "env_steps": 1000 * time_s,
        "learned_steps": 990 * time_s,
        "env_steps_per_s": 1000.0,
        "learned_steps_per_s": 990.0,
        "return_mean_100": 12.5,
        "dropped_steps": {},
        "wait_share": {
            "trainer": {"working": 0.45, "unrolls": 0.55},
            "actor": {"working": 0.2, "emulator": 0.7, "training queue": 0.1},
        },
        "queue_fill": 0.25,
        "part_seconds": {
            "actor": {
                "inference": 0.5 * time_s,
                "waiting for training queue": 0.2 * time_s,
                "total": 2.0 * time_s,
            }
        },
    }
    return line | changes


class _Run:
    """A run folder, written as by a monitor."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        (path / "config.yaml").write_text("run: {max_env_steps: 40000, target_return: null}\n")
        self.metrics = path / "metrics.jsonl"

    def write(self, *lines: dict[str, Any], torn: str = "") -> None:
        with self.metrics.open("a") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines) + torn)

    def end(self, line: dict[str, Any], reason: str = "max_env_steps") -> None:
        (self.path / "summary.json").write_text(json.dumps(line | {"reason": reason}))


@pytest.fixture
def run(tmp_path: Path) -> _Run:
    return _Run(tmp_path / "pong-1")


def _shown(path: Path) -> str:
    stream = io.StringIO()  # no terminal: once
    top(path, once=False, stream=stream, stop=StopFlag())
    return stream.getvalue()


def test_without_a_terminal_the_newest_line_is_printed_once(run: _Run) -> None:
    run.write(_line(10.0), _line(20.0))
    shown = _shown(run.path)
    for words in (
        "pong-1",
        "20.0 k of 40.0 k steps",
        "0:00:20 to go",  # the other 20 000 at 1 000 a second
        "990 steps/s",
        "Queues training",
        "25 %",
        "works 20 %",
        "emulator 70 %",
        "unrolls 55 %",
        "actor: it waits 70 %",
        "actors.emulator_threads",
        "inference 25 %",
        "the run continues",
    ):
        assert words in " ".join(shown.split()), (words, shown)
    assert "\x1b" not in shown


def test_refusals_of_all_servers_by_keys_are_shown(run: _Run) -> None:
    refused = {"monitor_refused_keys": 5, "refused_keys": 2.0, "predictor_refused_keys": 0.5}
    run.write(_line(10.0), _line(20.0, **refused, monitor_refused_rights=3))
    shown = " ".join(_shown(run.path).split())
    assert "8 connections with unknown or revoked keys were refused" in shown
    assert "3 messages were refused for which the sender's key is not" in shown


@pytest.mark.parametrize(
    ("reason", "ended_at_s", "told"),
    [
        ("max_env_steps", 20.0, "the run is over: max_env_steps"),
        ("SIGTERM", 19.0, "the run continues"),  # of its first part: it was resumed
        (None, 0.0, "no new metrics for 0:03:2"),
    ],
)
def test_how_a_run_stands(run: _Run, reason: str | None, ended_at_s: float, told: str) -> None:
    run.write(_line(10.0), _line(20.0), torn='{"time_s": 21.0, "env_st')
    if reason is None:
        old = time.time() - 200.0
        os.utime(run.metrics, (old, old))
    else:
        run.end(_line(ended_at_s), reason)
    shown = _shown(run.path)
    assert told in shown and "20.0 k of 40.0 k steps" in shown


@pytest.mark.parametrize(
    "text",
    ["run: [", "run: 3", "", "other: {}"]
    + [f"run: {{max_env_steps: {value}}}" for value in ("x", "[1]", "{a: 1}", ".nan")],
)
def test_a_configuration_that_cannot_be_read_costs_the_goal_only(run: _Run, text: str) -> None:
    run.write(_line(10.0))
    (run.path / "config.yaml").write_text(text)
    assert read_goal(run.path / "config.yaml") == {}
    assert "no end is set" in _shown(run.path)


def test_what_is_no_run_with_metrics_is_refused_by_name(tmp_path: Path, run: _Run) -> None:
    with pytest.raises(RunFolderError, match=r"there is no run folder at .*nothing"):
        _shown(tmp_path / "nothing")
    with pytest.raises(RunFolderError, match=r"not a run folder: it has no config\.yaml"):
        _shown(tmp_path)
    with pytest.raises(RunFolderError, match="expected a run that has started"):
        _shown(run.path)
    run.write({"time_s": "x"}, {"wait_share": 3}, torn='{"time_s"')
    with pytest.raises(RunFolderError, match="no metrics yet; wait a few seconds, or look into"):
        _shown(run.path)


def test_shares_of_parts_are_those_between_two_lines() -> None:
    before = {
        "part_seconds": {"actor": {"encode": 1.0, "waiting for x": 1.0, "total": 10.0}, "gone": {}}
    }
    after = {
        "part_seconds": {
            "actor": {"encode": 2.0, "wire": 0.5, "waiting for x": 3.0, "total": 14.0},
            "trainer": {"forward": 3.0, "total": 4.0},  # its first heartbeat came in between
            "silent": {"total": 0.0},
        }
    }
    assert part_shares(before, after) == {
        "actor": {"encode": 0.25, "wire": 0.125},
        "trainer": {"forward": 0.75},
    }
    assert part_shares({}, {}) == {}


def test_the_parts_look_back_ten_seconds() -> None:
    view = TopView({}, name="r")
    for second in range(0, 31):
        seconds = float(max(0, second - 20))
        parts = {"actor": {"encode": 0.5 * seconds, "total": float(second)}}
        view.observe(_line(float(second), part_seconds=parts))
    assert part_shares(view._recent[0], view._recent[-1]) == {"actor": {"encode": 0.5}}


_DAMAGED: list[Any] = [None, "x", [], {}, {"x": {"y": {}}}, True, -3, 1e300, 10**400, float("nan")]


def test_damaged_values_at_any_place_of_a_line_raise_nothing(run: _Run) -> None:
    whole = _line(
        20.0,
        lag_mean=1.0,
        lag_max=2,
        generation=0,
        checkpoint_failures=1,
        checkpoint_error=None,
        free_cores=1.0,
        cpu_share_trainer=0.5,
    )
    places: list[tuple[str, ...]] = [(name,) for name in whole]
    places += [(name, role) for name in ("wait_share", "part_seconds") for role in whole[name]]
    places += [("wait_share", "actor", "emulator"), ("part_seconds", "actor", "total")]
    for number, (*path, name) in enumerate(places):
        for value in (_DAMAGED[(number + 3 * k) % len(_DAMAGED)] for k in range(3)):
            damaged = json.loads(json.dumps(whole))
            at = damaged
            for part in path:
                at = at[part]
            at[name] = value
            run.metrics.write_text("")
            run.write(_line(10.0), damaged)
            assert "pong-1" in _shown(run.path), (path, name, value)
            run.end(damaged)
            _shown(run.path)
            (run.path / "summary.json").unlink()
