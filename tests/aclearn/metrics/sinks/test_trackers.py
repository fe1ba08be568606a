"""Trackers of experiments, offline; each in a process of its own, since they keep threads."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import run_python

_WRITES = """
import sys
from pathlib import Path
from aclearn.config.monitor import MetricsConfig
from aclearn.metrics.sinks import SinkRun, load_sinks

name, folder, begin = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
arguments = {
    "trackio": {"project": "p", "group": "g"},
    "mlflow": {"tracking_uri": f"file://{folder}/mlruns", "experiment": "p", "tags": {"a": "b"}},
}[name]
metrics = MetricsConfig.model_validate({"sinks": [{name: arguments}]})
[sink] = load_sinks(metrics, "127.0.0.1").values()
config = {
    "env": {"id": "CartPole-v1", "kwargs": {"key": "secret"}},
    "evaluator": {"env": {"kwargs": {"key": "secret"}, "clip_rewards": True}},
    **{f"group_{n}": {"value": n} for n in range(150)},
}
sink.open(SinkRun("r", folder, config, resumed=begin > 0))
for steps in (begin + 10, begin + 20):
    line = {
        "env_steps": steps, "time_s": steps / 10, "policy": "default", "target_return": None,
        "wait_share": {"actor": {"emulator": 0.5}}, "part_seconds": {"actor": {"swap": 1.0}},
        "a b/é": 7.0, "..": 8.0, '"q"': 9.0,
    }
    sink.write(line)
sink.write_decision({"by": "tuner", "verdict": "kept", "counts": {"trainers": 2}})
sink.close({"env_steps": begin + 20, "reason": "max_updates"} if begin else None)
"""

_READS = {
    "trackio": """
import json
from trackio import Api
from trackio.sqlite_storage import SQLiteStorage

[run] = Api().runs("p")
logged = SQLiteStorage.get_logs("p", "r", run_id=run.id)
print(json.dumps({"name": run.name, "config": run.config, "lines": logged}))
""",
    "mlflow": """
import json, sys
from mlflow.tracking import MlflowClient

client = MlflowClient(tracking_uri=f"file://{sys.argv[2]}/mlruns")
[run] = client.search_runs([client.get_experiment_by_name("p").experiment_id])
names = sorted(run.data.metrics)
histories = {
    name: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)]
    for name in names
}
print(json.dumps({
    "name": run.info.run_name, "status": run.info.status, "parameters": run.data.params,
    "tags": run.data.tags, "metrics": histories,
}))
""",
}


@pytest.fixture
def tracked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a tracker has of a run of two parts, in whose folder it keeps what it needs."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("PYTHONPATH", os.getcwd())

    def tracked(name: str) -> dict[str, Any]:
        for begin in ("0", "20"):
            done = run_python("-c", _WRITES, name, tmp_path, begin)
            assert done.returncode == 0, done.stderr
        read = run_python("-c", _READS[name], name, tmp_path)
        assert read.returncode == 0, read.stderr
        assert "secret" not in read.stdout
        return json.loads(read.stdout.splitlines()[-1])

    return tracked


def test_trackio_has_the_lines_and_decisions_of_both_parts_of_a_run(tracked) -> None:
    found = tracked("trackio")
    assert found["name"] == "r"
    assert found["config"]["env"] == {"id": "CartPole-v1"}
    assert found["config"]["evaluator"]["env"] == {"clip_rewards": True}
    lines = [line for line in found["lines"] if "env_steps" in line]
    assert [(line["step"], line["env_steps"]) for line in lines] == [
        (n, n) for n in (10, 20, 30, 40)
    ]
    assert lines[0]["wait_share/actor/emulator"] == 0.5 and lines[0]["a b/é"] == 7.0
    assert not any("part_seconds" in name for name in lines[0])
    decisions = [line for line in found["lines"] if "tuner/verdict" in line]
    assert [line["tuner/counts/trainers"] for line in decisions] == [2, 2]
    [summary] = [line for line in found["lines"] if "summary/reason" in line]
    assert summary["summary/reason"] == "max_updates"


def test_mlflow_has_the_numbers_and_parameters_of_both_parts_of_a_run(tracked) -> None:
    found = tracked("mlflow")
    assert (found["name"], found["status"]) == ("r", "FINISHED")
    assert found["tags"]["a"] == "b" and found["tags"]["reason"] == "max_updates"
    parameters = found["parameters"]
    assert (
        parameters["env.id"] == "CartPole-v1" and parameters["evaluator.env.clip_rewards"] == "True"
    )
    assert {f"group_{n}.value": str(n) for n in range(150)}.items() <= parameters.items()
    metrics = found["metrics"]
    assert metrics["env_steps"] == [[n, float(n)] for n in (10, 20, 30, 40)]
    assert metrics["wait_share/actor/emulator"] == [[n, 0.5] for n in (10, 20, 30, 40)]
    assert metrics["tuner/counts/trainers"] == [[20, 2.0], [40, 2.0]]
    # what MLflow takes in no name is `_`
    assert {"a b/é", "_", "_q_"} <= metrics.keys() and "policy" not in metrics
