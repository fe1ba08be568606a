"""Figures, leaves and folders with any name reach every file and sink."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from aclearn.metrics.sinks.wandb_sink import ID_FILE
from aclearn.runs import MetricsTail
from tests.support.toys import odd_names
from tests.support.waiting import wait_for
from tests.support.wandb_files import records, values

_TOY = "tests.support.toys.odd_names"
#: Of the loss: what cannot be printed is escaped; names of ours and too long ones are left out.
_FIGURES = ("td_error", "a b/é", "..", '"q"', "%s{}", "a\\nb", "\\ud800")
#: Of the infos; "" and "../won" would be "stats" and "stats_won" again.
_INFO = {
    **dict.fromkeys(("tracking_error", "é_ü", "成功"), 0.5),
    **{"stats_won": 1.0, "stats_a_b": 3.0, "stats_z": 4.0, "stats": 5.0},
}


def _file(folder: Path) -> Mapping[str, Any]:
    return MetricsTail(folder / "metrics.jsonl").read()[-1]


def _tensorboard(folder: Path) -> Mapping[str, Any]:
    read = EventAccumulator(str(folder))
    read.Reload()
    found = {}
    for tag in read.Tags()["scalars"]:
        group, _, name = tag.partition("/")
        found[f"info_{name}" if group == "info" else name] = read.Scalars(tag)[-1].value
    return found


def _wandb(folder: Path) -> Mapping[str, Any]:
    [file] = (folder / "wandb").glob("offline-run-*/*.wandb")
    lines = [r.history.item for r in records(file) if r.WhichOneof("record_type") == "history"]
    return values(lines[-1])


def test_figures_of_any_name_reach_every_sink_and_stop_no_resume(
    tmp_path: Path, start, wandb: Any
) -> None:
    folder = tmp_path / "rü n'q\"s %s"
    settings: dict[str, Any] = {
        "env": {"id": f"{_TOY}:Named", "info_metrics": list(odd_names.INFO), "kwargs": {}},
        "loss": {"kind": f"{_TOY}:NamedLoss"},
        "policy": {"normalise_observations": True},
        "evaluator": {"every_steps": 10**9, "env": {"kwargs": {}, "clip_rewards": True}},
        "metrics": {
            "sinks": [{"wandb": {"mode": "offline", "project": "p"}}],
            "sink_timeout_s": 30.0,
        },
    }
    run = start(folder, run={"max_updates": 4}, **settings)
    assert run.run()["reason"] == "max_updates"
    readers: tuple[Callable[[Path], Mapping[str, Any]], ...] = (_file, _tensorboard, _wandb)
    for read in readers:
        found = read(folder / "r")
        assert {name: found.get(name) for name in _FIGURES} == dict.fromkeys(_FIGURES, 7.0), read
        info = {k[5:]: v for k, v in found.items() if k.startswith("info_")}
        assert info == _INFO, read
    last = _file(folder / "r")
    assert last["monitor_sink_failures"] == 0 and "metrics_error" not in last
    assert "x" * 70 not in last and last["env_steps"] > 8.0

    # wandb's folder has the second of its start in its name
    begun_s = int(time.time())
    wait_for(lambda: int(time.time()) > begun_s, "the next second")
    resumed = start(folder, resume=True, run={"max_updates": 6}, **settings)
    assert resumed.run()["updates"] == 6
    _check_wandb(folder / "r", resumed.lines())


def _check_wandb(folder: Path, lines: list[dict[str, Any]]) -> None:
    """A resumed run continues the same run offline, without secrets, and both parts end well."""

    def read() -> list[list[tuple[str, Any]]]:
        files = sorted((folder / "wandb").glob("offline-run-*/*.wandb"))
        return [[(r.WhichOneof("record_type"), r) for r in records(file)] for file in files]

    def ended() -> bool:  # a process of wandb's writes them
        return sum(kind == "exit" for part in read() for kind, _ in part) == 2

    wait_for(ended, "the end of both parts")
    parts = read()
    begun = [record.run for part in parts for kind, record in part if kind == "run"]
    assert {each.run_id for each in begun} == {(folder / ID_FILE).read_text()}
    assert (begun[0].project, begun[0].display_name) == ("p", "r")
    sent = values(begun[0].config.update)
    assert sent["actors"]["envs_per_group"] == 2
    assert sent["env"]["id"] == f"{_TOY}:Named" and "kwargs" not in sent["env"]
    assert sent["evaluator"]["env"] == {"clip_rewards": True}
    logged = [
        values(record.history.item) for part in parts for kind, record in part if kind == "history"
    ]
    assert [each["env_steps"] for each in logged] == [line["env_steps"] for line in lines]
    assert logged[-1]["wait_share/actor/emulator"] == lines[-1]["wait_share"]["actor"]["emulator"]
    ends = [record.exit.exit_code for part in parts for kind, record in part if kind == "exit"]
    assert ends == [0, 0]
    summaries = [values(record.summary.update) for kind, record in parts[-1] if kind == "summary"]
    assert any(each.get("reason") == "max_updates" for each in summaries)
