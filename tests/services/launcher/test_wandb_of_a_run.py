"""A run in Weights & Biases' offline mode, and what its file then has."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from aclearn.metrics.sinks.wandb_sink import ID_FILE
from tests.support.waiting import wait_for
from tests.support.wandb_files import records, values
from tests.support.whole_run import WholeRun


def test_a_run_is_kept_offline_and_a_resumed_one_continues_it(tmp_path: Path, wandb: Any) -> None:
    settings = {
        "env": {"id": "CartPole-v1", "kwargs": {"sutton_barto_reward": True}},
        "metrics": {
            "sinks": [{"wandb": {"mode": "offline", "project": "p"}}],
            "sink_timeout_s": 30.0,
        },
    }
    begun_s = 0
    for most, resume in ((20, False), (40, True)):
        # wandb's folder has the second of its start in its name
        wait_for(lambda last=begun_s: int(time.time()) > last, "the next second")
        begun_s = int(time.time())
        run = WholeRun(tmp_path, resume=resume, run={"max_updates": most}, **settings)
        try:
            run.run()
        finally:
            run.close()
    folder = tmp_path / "r"
    lines = run.lines()
    assert lines[-1]["monitor_sink_failures"] == lines[-1]["monitor_sink_dropped"] == 0

    files = sorted((folder / "wandb").glob("offline-run-*/*.wandb"))
    parts = [[(r.WhichOneof("record_type"), r) for r in records(file)] for file in files]
    begun = [record.run for part in parts for kind, record in part if kind == "run"]
    assert {each.run_id for each in begun} == {(folder / ID_FILE).read_text()}
    assert (begun[0].project, begun[0].display_name) == ("p", "r")
    sent = values(begun[0].config.update)
    assert sent["actors"]["envs_per_group"] == 2
    assert sent["env"]["id"] == "CartPole-v1" and "kwargs" not in sent["env"]
    logged = [
        values(record.history.item) for part in parts for kind, record in part if kind == "history"
    ]
    assert [each["env_steps"] for each in logged] == [line["env_steps"] for line in lines]
    assert logged[-1]["wait_share/actor/emulator"] == lines[-1]["wait_share"]["actor"]["emulator"]
    ends = [record.exit.exit_code for part in parts for kind, record in part if kind == "exit"]
    assert ends == [0, 0]
    summaries = [values(record.summary.update) for kind, record in parts[-1] if kind == "summary"]
    assert any(each.get("reason") == "max_updates" for each in summaries)
