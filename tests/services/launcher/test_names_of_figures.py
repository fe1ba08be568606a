"""Figures, leaves and folders with any name reach every file and sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from aclearn.runs import MetricsTail
from tests.support.toys import odd_names
from tests.support.wandb_files import records, values
from tests.support.whole_run import WholeRun

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
    tmp_path: Path, wandb: Any
) -> None:
    folder = tmp_path / "rü n'q\"s %s"
    settings: dict[str, Any] = {
        "env": {"id": f"{_TOY}:Named", "info_metrics": list(odd_names.INFO)},
        "loss": {"kind": f"{_TOY}:NamedLoss"},
        "policy": {"normalise_observations": True},
        "metrics": {"sinks": [{"wandb": {"mode": "offline"}}], "sink_timeout_s": 30.0},
    }
    run = WholeRun(folder, run={"max_updates": 4}, **settings)
    try:
        assert run.run()["reason"] == "max_updates"
    finally:
        run.close()
    readers: tuple[Callable[[Path], Mapping[str, Any]], ...] = (_file, _tensorboard, _wandb)
    for read in readers:
        found = read(folder / "r")
        assert {name: found.get(name) for name in _FIGURES} == dict.fromkeys(_FIGURES, 7.0), read
        info = {k[5:]: v for k, v in found.items() if k.startswith("info_")}
        assert info == _INFO, read
    last = _file(folder / "r")
    assert last["monitor_sink_failures"] == 0 and "metrics_error" not in last
    assert "x" * 70 not in last and last["env_steps"] > 8.0

    resumed = WholeRun(folder, resume=True, run={"max_updates": 6}, **settings)
    try:
        assert resumed.run()["updates"] == 6
    finally:
        resumed.close()
